/* Recurrent layers: kernels against their definitions in double, for sizes that no tile divides;
 * and files whose sizes or tensors do not go together, which are refused in one line that names
 * them. */
#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/backend/cpu/patched.h"

#include <math.h>

#define SEEDS TEST_DATA "/golden/recurrent/"
#define FUZZ_SEEDS TEST_DATA "/../fuzz/corpus/model/"
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *const isas[] = {"reference", "avx2", "avx-vnni", "avx512"};

static float *random_floats(size_t n, uint64_t *seed)
{
    float *x = mem_alloc((n + 64) * sizeof *x);
    for (size_t i = 0; i < n + 64; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(*seed >> 40) / (1 << 23) - 1.0);
    }
    return x;
}

static void assert_near(const float *got, const double *want, size_t n, const char *what)
{
    double error = 0, all = 1e-30;
    for (size_t i = 0; i < n; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    if (!(error / all < 1e-11))
        fail_msg("%s: nmse %g", what, error / all);
}

/* --- convolutions ---------------------------------------------------------------------------- */

static void check_conv(const struct cpu_kernels *kernels, uint32_t width, uint32_t n, bool gated)
{
    enum { ROWS = 11 };
    uint64_t seed = width * 1000 + n;
    const uint32_t before = width - 1;
    float *x = random_floats((size_t)ROWS * n, &seed), *w = random_floats((size_t)width * n, &seed);
    float *state = random_floats((size_t)before * n, &seed), *bias = random_floats(n, &seed);
    float *to = mem_zalloc((size_t)before * n + 64, sizeof *to);
    double *want = mem_zalloc((size_t)ROWS * n, sizeof *want);
    for (uint32_t c = 0; c < n; c++) {
        for (uint32_t r = 0; r < ROWS; r++) {
            double sum = bias[c];
            for (uint32_t i = 0; i < width; i++) {
                const uint32_t at = r + i; /* counted from the state's first row */
                sum += (double)w[(size_t)i * n + c] *
                       (at < before ? state[(size_t)at * n + c] : x[(size_t)(at - before) * n + c]);
            }
            want[(size_t)r * n + c] = gated ? sum / (1 + exp(-sum)) : sum;
        }
    }
    float *last = mem_alloc((size_t)before * n * sizeof *last);
    memcpy(last, x + (size_t)(ROWS - before) * n, (size_t)before * n * sizeof *last);
    struct conv_job job = {.x = x,
                           .stride = n,
                           .n_rows = 4,
                           .n_channels = n,
                           .width = width,
                           .stride_state = n,
                           .stride_w = n,
                           .from = state,
                           .to = to,
                           .w = w,
                           .bias = bias,
                           .gated = gated};
    kernels->conv(&job);
    job.from = to; /* in place from here on, and once over no rows at all */
    job.x += 4 * (size_t)n;
    job.n_rows = 0;
    kernels->conv(&job);
    job.n_rows = 1;
    kernels->conv(&job);
    job.x += n;
    job.n_rows = ROWS - 5;
    kernels->conv(&job);
    assert_near(x, want, (size_t)ROWS * n, kernels->name);
    assert_memory_equal(to, last, (size_t)before * n * sizeof *last);
    free(x);
    free(w);
    free(state);
    free(bias);
    free(to);
    free(want);
    free(last);
}

static void convolutions(void **state)
{
    (void)state;
    static const uint32_t channels[] = {1, 7, 16, 33, 512, 700};
    for (size_t k = 0; k < COUNT(isas); k++)
        for (uint32_t width = 2; width <= MODEL_MAX_CONV_WIDTH; width++)
            for (size_t i = 0; i < COUNT(channels); i++)
                check_conv(cpu_kernels_select(isas[k]), width, channels[i], i % 2);
}

/* --- heads ----------------------------------------------------------------------------------- */

static void check_heads(
    const struct cpu_kernels *kernels, uint32_t n_key, uint32_t n, bool delta, bool each)
{
    enum { ROWS = 9 };
    const uint32_t n_rate = each ? n_key : 1;
    uint64_t seed = n_key * 1000 + n;
    float *k = random_floats((size_t)ROWS * n_key, &seed);
    float *q = random_floats((size_t)ROWS * n_key, &seed),
          *v = random_floats((size_t)ROWS * n, &seed);
    float *rate = random_floats((size_t)ROWS * n_rate, &seed), *beta = random_floats(ROWS, &seed);
    float *to = mem_zalloc((size_t)n_key * n + 64, sizeof *to),
          *kept = mem_zalloc((size_t)n_key * n + 64, sizeof *to);
    float *out = mem_zalloc((size_t)ROWS * n + 64, sizeof *out), *mix = NULL;
    double *s = mem_zalloc((size_t)n_key * n, sizeof *s),
           *want = mem_zalloc((size_t)ROWS * n, sizeof *want);
    const size_t stride = 2 * (size_t)n_key + n;
    mix = mem_alloc((ROWS * stride + 64) * sizeof *mix);
    for (uint32_t r = 0; r < ROWS; r++) {
        float *f = rate + (size_t)r * n_rate;
        for (uint32_t i = 0; i < n_rate; i++)
            f[i] = 0.5f + 0.4f * f[i];
        memcpy(mix + r * stride, q + (size_t)r * n_key, n_key * sizeof *mix);
        memcpy(mix + r * stride + n_key, k + (size_t)r * n_key, n_key * sizeof *mix);
        memcpy(mix + r * stride + 2 * n_key, v + (size_t)r * n, n * sizeof *mix);
        for (uint32_t c = 0; c < n; c++) {
            double held = 0, y = 0;
            for (uint32_t i = 0; delta && i < n_key; i++)
                held += f[each ? i : 0] * s[(size_t)i * n + c] * k[(size_t)r * n_key + i];
            for (uint32_t i = 0; i < n_key; i++) {
                double *at = &s[(size_t)i * n + c];
                *at = *at * f[each ? i : 0] +
                      k[(size_t)r * n_key + i] * (v[(size_t)r * n + c] - held) * beta[r];
                y += *at * q[(size_t)r * n_key + i];
            }
            want[(size_t)r * n + c] = delta ? 0.25 * y : y + 0.75 * v[(size_t)r * n + c];
        }
    }
    struct recur_job job = {.delta = delta,
                            .each = each,
                            .n_key = n_key,
                            .n_value = n,
                            .q = mix,
                            .k = mix + n_key,
                            .v = mix + 2 * (size_t)n_key,
                            .q_stride = stride,
                            .k_stride = stride,
                            .v_stride = stride,
                            .rate = rate,
                            .beta = beta,
                            .rate_stride = n_rate,
                            .beta_stride = 1,
                            .out = out,
                            .out_stride = n,
                            .scale = delta ? 0.25f : 1.0f,
                            .skip = delta ? 0.0f : 0.75f};
    static const uint32_t parts[] = {3, 0, 1, 5};
    for (uint32_t i = 0, done = 0; i < COUNT(parts); done += parts[i++]) {
        job.n_rows = parts[i];
        job.q = mix + done * stride;
        job.k = job.q + n_key;
        job.v = job.k + n_key;
        job.rate = rate + (size_t)done * n_rate;
        job.beta = beta + done;
        job.out = out + (size_t)done * n;
        job.to = i == 1 ? kept : to; /* copied, gone on from, then in place */
        kernels->recur(&job);
        job.from = job.to;
    }
    assert_near(out, want, (size_t)ROWS * n, kernels->name);
    free(k);
    free(q);
    free(v);
    free(rate);
    free(beta);
    free(to);
    free(kept);
    free(out);
    free(mix);
    free(s);
    free(want);
}

static void heads(void **state)
{
    (void)state;
    static const uint32_t keys[] = {1, 6, 16, 24, 128}, values[] = {1, 8, 13, 16, 32, 48, 80, 128};
    for (size_t k = 0; k < COUNT(isas); k++)
        for (size_t i = 0; i < COUNT(keys); i++)
            for (size_t j = 0; j < COUNT(values); j++) {
                check_heads(cpu_kernels_select(isas[k]), keys[i], values[j], true, false);
                check_heads(cpu_kernels_select(isas[k]), keys[i], values[j], false, false);
                check_heads(cpu_kernels_select(isas[k]), keys[i], values[j], true, true);
            }
}

/* Heads of n keys and as many values, with what is taken out apart: a row has q, k, v, the rates,
 * what is read by and what is added along; or first, with nothing taken out and that read alone. */
static void check_apart(const struct cpu_kernels *kernels, uint32_t n, bool first)
{
    enum { ROWS = 9, Q = 0, K, V, RATE, UNIT, BETA, N_PARTS };
    uint64_t seed = n;
    const size_t stride = (size_t)N_PARTS * n, size = (size_t)n * n;
    float *rows = random_floats(ROWS * stride, &seed);
    float *to = mem_zalloc(size + 64, sizeof *to), *kept = mem_zalloc(size + 64, sizeof *kept);
    float *out = mem_zalloc((size_t)ROWS * n + 64, sizeof *out);
    double *s = mem_zalloc(size, sizeof *s), *want = mem_zalloc((size_t)ROWS * n, sizeof *want);
    for (uint32_t r = 0; r < ROWS; r++) {
        float *row = rows + r * stride;
        for (uint32_t i = 0; i < n; i++) {
            row[RATE * n + i] = 0.5f + 0.4f * row[RATE * n + i];
            row[UNIT * n + i] /= sqrtf((float)n);
        }
        for (uint32_t c = 0; c < n; c++) {
            double was = 0;
            for (uint32_t i = 0; i < n; i++)
                was += s[(size_t)i * n + c] * row[UNIT * n + i];
            for (uint32_t i = 0; i < n; i++) {
                double *at = &s[(size_t)i * n + c];
                *at = *at * row[RATE * n + i] + (double)row[K * n + i] * row[V * n + c] -
                      (first ? 0 : row[BETA * n + i] * was);
                want[(size_t)r * n + c] += first ? 0 : *at * row[Q * n + i];
            }
            want[(size_t)r * n + c] += first ? was : 0;
        }
    }
    struct recur_job job = {.delta = true,
                            .each = true,
                            .apart = true,
                            .first = first,
                            .n_key = n,
                            .n_value = n,
                            .q_stride = stride,
                            .k_stride = stride,
                            .v_stride = stride,
                            .rate_stride = stride,
                            .beta_stride = stride,
                            .out_stride = n};
    static const uint32_t parts[] = {3, 0, 1, 5};
    for (uint32_t i = 0, done = 0; i < COUNT(parts); done += parts[i++]) {
        const float *row = rows + done * stride;
        job.n_rows = parts[i];
        job.q = row + Q * n;
        job.k = row + K * n;
        job.v = row + V * n;
        job.rate = row + RATE * n;
        job.unit = row + UNIT * n;
        job.beta = first ? NULL : row + BETA * n;
        job.out = out + (size_t)done * n;
        job.to = i == 1 ? kept : to; /* copied, gone on from, then in place */
        kernels->recur(&job);
        job.from = job.to;
    }
    assert_near(out, want, (size_t)ROWS * n, kernels->name);
    free(rows);
    free(to);
    free(kept);
    free(out);
    free(s);
    free(want);
}

static void heads_apart(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 7, 16, 29, 32, 48, 64, 80};
    for (size_t k = 0; k < COUNT(isas); k++)
        for (size_t i = 0; i < COUNT(sizes); i++)
            for (int first = 0; first < 2; first++)
                check_apart(cpu_kernels_select(isas[k]), sizes[i], first);
}

/* --- channels -------------------------------------------------------------------------------- */

/* Where value i of channel c of n lies in a state, or in what channels forget by. */
static size_t in_tiles(uint32_t n, uint32_t n_key, uint32_t c, uint32_t i)
{
    const uint32_t first = c / SELECTIVE_TILE * SELECTIVE_TILE, left = n - first;
    const uint32_t width = left < SELECTIVE_TILE ? left : SELECTIVE_TILE;
    return (size_t)first * n_key + (size_t)i * width + c - first;
}

/* What a row makes of the states s [n][n_key]. */
static void pass_channels(
    const struct selective_job *j, const float *x, const float *k, double *s, double *out)
{
    const float *step = x + j->n_channels, *q = k + j->n_key;
    for (uint32_t c = 0; c < j->n_channels; c++) {
        double y = (double)j->skip[c] * x[c];
        for (uint32_t i = 0; i < j->n_key; i++) {
            double *at = &s[(size_t)c * j->n_key + i];
            *at = *at * exp((double)step[c] * j->a[in_tiles(j->n_channels, j->n_key, c, i)]) +
                  (double)k[i] * step[c] * x[c];
            y += *at * q[i];
        }
        out[c] = y;
    }
}

static void check_channels(const struct cpu_kernels *kernels, uint32_t n_key, uint32_t n)
{
    enum { ROWS = 9 };
    uint64_t seed = n_key * 1000 + n;
    const size_t size = (size_t)n_key * n, x_stride = 2 * (size_t)n, k_stride = 2 * (size_t)n_key;
    float *x = random_floats(ROWS * x_stride, &seed), *k = random_floats(ROWS * k_stride, &seed);
    float *a = random_floats(size, &seed), *skip = random_floats(n, &seed);
    float *from = random_floats(size, &seed), *to = mem_zalloc(size + 64, sizeof *to);
    float *kept = mem_zalloc(size + 64, sizeof *kept);
    float *out = mem_zalloc((size_t)ROWS * n + 64, sizeof *out);
    double *s = mem_zalloc(size, sizeof *s), *want = mem_zalloc((size_t)ROWS * n, sizeof *want);
    struct selective_job job = {.n_key = n_key,
                                .n_channels = n,
                                .a = a,
                                .skip = skip,
                                .x_stride = x_stride,
                                .step_stride = x_stride,
                                .k_stride = k_stride,
                                .q_stride = k_stride,
                                .out_stride = n};
    for (size_t i = 0; i < size; i++)
        a[i] = -8.0f * fabsf(a[i]);
    for (size_t i = 0; i < ROWS * x_stride; i++)
        x[i] = i % x_stride < n ? x[i] : fabsf(x[i]);
    for (uint32_t c = 0; n % 2 && c < n; c++)
        for (uint32_t i = 0; i < n_key; i++)
            s[(size_t)c * n_key + i] = from[in_tiles(n, n_key, c, i)];
    for (uint32_t r = 0; r < ROWS; r++)
        pass_channels(&job, x + r * x_stride, k + r * k_stride, s, want + (size_t)r * n);
    job.from = n % 2 ? from : NULL;
    static const uint32_t parts[] = {3, 0, 1, 5};
    for (uint32_t i = 0, done = 0; i < COUNT(parts); done += parts[i++]) {
        job.n_rows = parts[i];
        job.x = x + done * x_stride;
        job.step = job.x + n;
        job.k = k + done * k_stride;
        job.q = job.k + n_key;
        job.out = out + (size_t)done * n;
        job.to = i == 1 ? kept : to; /* copied, gone on from, then in place */
        kernels->selective(&job);
        job.from = job.to;
    }
    assert_near(out, want, (size_t)ROWS * n, kernels->name);
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t i = 0; i < n_key; i++)
            assert_true(fabs(to[in_tiles(n, n_key, c, i)] - s[(size_t)c * n_key + i]) < 1e-5);
    free(x);
    free(k);
    free(a);
    free(skip);
    free(from);
    free(to);
    free(kept);
    free(out);
    free(s);
    free(want);
}

static void channels(void **state)
{
    (void)state;
    static const uint32_t keys[] = {1, 7, 16, 64}, sizes[] = {1, 8, 16, 29, 64, 131};
    for (size_t k = 0; k < COUNT(isas); k++)
        for (size_t i = 0; i < COUNT(keys); i++)
            for (size_t j = 0; j < COUNT(sizes); j++)
                check_channels(cpu_kernels_select(isas[k]), keys[i], sizes[j]);
}

/* --- hostile files --------------------------------------------------------------------------- */

static struct bytes read_seed(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, SEEDS "%s.f32.gguf", name);
    return read_file(path);
}

/* Every size: 0, far too large, negative, no integer, and one more than it is, which no tensor has.
 */
static void sizes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *seed, *key;
    } cases[] = {
        {"lfm2", "lfm2.shortconv.l_cache"},
        {"qwen35", "qwen35.ssm.conv_kernel"},
        {"qwen35", "qwen35.ssm.inner_size"},
        {"qwen35", "qwen35.ssm.state_size"},
        {"qwen35", "qwen35.ssm.time_step_rank"},
        {"qwen35", "qwen35.ssm.group_count"},
        {"qwen3next", "qwen3next.ssm.group_count"},
        {"granitehybrid", "granitehybrid.ssm.inner_size"},
        {"granitehybrid", "granitehybrid.ssm.time_step_rank"},
        {"falcon-h1", "falcon-h1.ssm.state_size"},
        {"nemotron_h", "nemotron_h.ssm.group_count"},
        {"kimi-linear", "kimi-linear.ssm.conv_kernel"},
        {"kimi-linear", "kimi-linear.kda.head_dim"},
        {"kimi-k3", "kimi-k3.ssm.conv_kernel"},
        {"kimi-k3", "kimi-k3.kda.head_dim"},
        {"bailingmoe3", "bailingmoe3.kda.head_dim"},
        {"mamba", "mamba.ssm.conv_kernel"},
        {"mamba", "mamba.ssm.inner_size"},
        {"mamba", "mamba.ssm.state_size"},
        {"jamba", "jamba.ssm.time_step_rank"},
        {"rwkv6", "rwkv6.wkv.head_size"},
        {"rwkv6", "rwkv6.time_mix_extra_dim"},
        {"rwkv6", "rwkv6.time_decay_extra_dim"},
        {"rwkv7", "rwkv7.wkv.head_size"},
        {"rwkv7", "rwkv7.attention.decay_lora_rank"},
        {"rwkv7", "rwkv7.attention.iclr_lora_rank"},
        {"rwkv7", "rwkv7.attention.value_residual_mix_lora_rank"},
        {"rwkv7", "rwkv7.attention.gate_lora_rank"},
        {"rwkv6qwen2", "rwkv6qwen2.wkv.head_size"},
        {"rwkv6qwen2", "rwkv6qwen2.time_mix_extra_dim"},
        {"arwkv7", "arwkv7.wkv.head_size"},
        {"arwkv7", "arwkv7.attention.gate_lora_rank"},
        {"arwkv7-bare", "arwkv7.attention.decay_lora_rank"},
        {"plamo2", "plamo2.ssm.conv_kernel"},
        {"plamo2", "plamo2.ssm.inner_size"},
        {"plamo2", "plamo2.ssm.state_size"},
        {"plamo2", "plamo2.ssm.time_step_rank"},
    };
    static const struct {
        uint32_t kind, value;
    } wrong[] = {{GGUF_U32, 0},
                 {GGUF_U32, 1u << 20},
                 {GGUF_U32, 1u << 31},
                 {GGUF_U32, UINT32_MAX},
                 {GGUF_I32, UINT32_MAX},
                 {GGUF_F32, 0x7fc00000}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t j = 0; j <= COUNT(wrong); j++) {
            struct bytes b = read_seed(cases[i].seed);
            uint8_t *at = behind(b, cases[i].key);
            uint32_t kind = GGUF_U32, value;
            memcpy(&value, at + 4, 4);
            value++;
            if (j < COUNT(wrong)) {
                kind = wrong[j].kind;
                value = wrong[j].value;
            }
            memcpy(at, &kind, 4);
            memcpy(at + 4, &value, 4);
            struct err_info e;
            enum err err = load_all(b, &e);
            const char *stem = strrchr(cases[i].key, '.') + 1;
            const bool named = strstr(e.text, stem) || strstr(e.text, "tensor blk.") ||
                               strstr(e.text, "do not go together");
            if (err != ERR_FORMAT || !named || strchr(e.text, '\n'))
                fail_msg("%s = %u: %d: %s", cases[i].key, value, err, e.text);
            free(b.data);
        }
    }
}

/* Each tensor shorter than it should be, or of integers. */
static void check_shapes(const char *seed)
{
    struct bytes whole = read_seed(seed);
    struct gguf *g;
    assert_int_equal(gguf_open_memory(whole.data, whole.n, &g, NULL), OK);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        for (int what = 0; what < 2; what++) {
            struct bytes b = read_seed(seed);
            uint8_t *at = behind(b, name);
            const uint64_t other = what == 0 && t->ne[0] > 1 ? t->ne[0] - 1 : t->ne[0] + 1;
            const uint32_t integers = 26;
            if (what == 0)
                memcpy(at + 4, &other, 8);
            else
                memcpy(at + 4 + 8 * (size_t)t->n_dims, &integers, 4);
            struct err_info e;
            enum err err = load_all(b, &e);
            if (err != (what == 0 ? ERR_FORMAT : ERR_UNSUPPORTED) || !strstr(e.text, name) ||
                strchr(e.text, '\n'))
                fail_msg("%s: %s, %d: %d: %s", seed, name, what, err, e.text);
            free(b.data);
        }
    }
    gguf_close(g);
    free(whole.data);
}

static void shapes_are_refused(void **state)
{
    (void)state;
    check_shapes("lfm2");
    check_shapes("qwen35");
    check_shapes("qwen3next");
    check_shapes("nemotron_h");
    check_shapes("falcon-h1");
    check_shapes("kimi-linear");
    check_shapes("kimi-k3");
    check_shapes("bailingmoe3-sections");
    check_shapes("mamba");
    check_shapes("jamba");
    check_shapes("rwkv6");
    check_shapes("rwkv6-small");
    check_shapes("rwkv7");
    check_shapes("rwkv6qwen2");
    check_shapes("arwkv7");
    check_shapes("arwkv7-bare");
    check_shapes("minimax-01-listed");
    check_shapes("plamo2-last");
}

/* A layer that attends beside its scan has more tensors of several matrices than any other. */
static void parts_of_all_tensors_have_room(void **state)
{
    (void)state;
    struct model *m;
    struct err_info e;
    if (model_load(FUZZ_SEEDS "all_in_one.gguf", &m, &e) != OK)
        fail_msg("%s", e.text);
    assert_int_equal(m->n_parts, 13); /* q k v, gate and up, each with a bias, and the scan's */
    model_destroy(m);
}

static void assert_refused(const char *path, enum err want, const char *what)
{
    struct bytes b = read_file(path);
    struct err_info e;
    enum err err = load_all(b, &e);
    if (err != want || !strstr(e.text, what) || strchr(e.text, '\n'))
        fail_msg("%s: %d: %s", path, err, e.text);
    free(b.data);
}

/* Two rates a head would not fit in the row of what heads read; where Q, K and V are one matrix,
 * the gate of what is attended to is missing from it; a convolution of rows to either side is
 * another. Norms that a model has are all there, and are or are not. */
static void what_would_come_out_wrong_is_refused(void **state)
{
    (void)state;
    assert_refused(FUZZ_SEEDS "delta_narrow.gguf", ERR_UNSUPPORTED, "heads of one value");
    assert_refused(FUZZ_SEEDS "convolution_both_ways.gguf", ERR_UNSUPPORTED, "look both ways");
    assert_refused(FUZZ_SEEDS "delta_fused.gguf", ERR_FORMAT, "blk.1.attn_qkv.weight has shape");
    assert_refused(FUZZ_SEEDS "channels_half.gguf", ERR_FORMAT, "blk.0.ssm_b_norm.weight");
    assert_refused(FUZZ_SEEDS "channels_unsaid.gguf", ERR_FORMAT, "mamba.ssm.dt_b_c_rms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(heads),
        cmocka_unit_test(heads_apart),
        cmocka_unit_test(channels),
        cmocka_unit_test(sizes_are_refused),
        cmocka_unit_test(shapes_are_refused),
        cmocka_unit_test(parts_of_all_tensors_have_room),
        cmocka_unit_test(what_would_come_out_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
