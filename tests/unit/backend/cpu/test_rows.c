/* What kernels of every instruction set make of rows value by value, against plain double
 * arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "unit/backend/cpu/isas.h"

#include <math.h>
#include <string.h>

/* Distance in units of the last place of the right value. */
static double ulps(float got, double want)
{
    int e;
    frexp(want, &e);
    return fabs(got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

static void exp_is_accurate(void **s)
{
    (void)s;
    for (size_t i = 0; i < COUNT(isas); i++) {
        const struct cpu_kernels *k = cpu_kernels_select(isas[i]);
        double worst = 0;
        for (int n = 0; n < 20000; n++) {
            float x[37], y[37];
            for (int j = 0; j < 37; j++)
                x[j] = rnd_float() * (j % 2 ? 87.0f : 3.0f);
            k->exp(x, y, 37);
            for (int j = 0; j < 37; j++) {
                const double u = ulps(y[j], exp((double)x[j]));
                worst = u > worst ? u : worst;
            }
        }
        print_message("%-9s exp: %.2f ulp\n", isas[i], worst);
        assert_true(worst < 2);
        float edge[4] = {-INFINITY, -200, 0, 88.0f}, out[4];
        k->exp(edge, out, 4);
        assert_true(out[0] == 0 && out[1] == 0 && out[2] == 1 && isfinite(out[3]));
    }
}

static void rows_are_exact(void **s)
{
    (void)s;
    for (size_t i = 0; i < COUNT(isas); i++) {
        const struct cpu_kernels *kernels = cpu_kernels_select(isas[i]);
        for (uint32_t n = 1; n <= 140; n += n < 70 ? 1 : 23) {
            float x[141], w[141], out[141];
            double sum = 0;
            for (uint32_t j = 0; j < n; j++) {
                x[j] = rnd_float() * 4;
                w[j] = rnd_float();
                sum += (double)x[j] * x[j];
            }
            out[n] = 77;
            kernels->norm(x, w, out, n, 1e-5f);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - x[j] / sqrt(sum / n + 1e-5f) * w[j]) < 2e-6);
            double mean = 0, variance = 0;
            for (uint32_t j = 0; j < n; j++)
                mean += ((double)x[j] + 5) / n;
            for (uint32_t j = 0; j < n; j++)
                variance += (x[j] + 5 - mean) * (x[j] + 5 - mean) / n;
            float shifted[141];
            for (uint32_t j = 0; j < n; j++)
                shifted[j] = x[j] + 5;
            shifted[n] = 1e9f; /* behind the end */
            kernels->layer_norm(shifted, w, x, out, n, 1e-5f);
            for (uint32_t j = 0; j < n; j++) {
                const double want = (shifted[j] - mean) / sqrt(variance + 1e-5f) * w[j] + x[j];
                assert_true(fabs(out[j] - want) < (n < 3 ? 2e-3 : 1e-5));
            }
            kernels->layer_norm(shifted, w, x, shifted, n, 1e-5f);
            assert_memory_equal(shifted, out, n * sizeof *out);
            kernels->unary[UNARY_GELU](x, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - 0.5 * x[j] * erfc(-x[j] / sqrt(2))) < 5e-7);
            kernels->unary[UNARY_GELU_TANH](x, out, n);
            for (uint32_t j = 0; j < n; j++) {
                const double g = x[j], y = sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
                assert_true(fabs(out[j] - 0.5 * g * (1 + tanh(y))) < 2e-6);
            }
            kernels->unary[UNARY_RELU_SQUARE](x, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - (x[j] > 0 ? (double)x[j] * x[j] : 0)) < 2e-6);
            kernels->unary[UNARY_RELU](x, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(out[j] == (x[j] > 0 ? x[j] : 0));
            kernels->unary[UNARY_SIGMOID](x, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - 1 / (1 + exp(-(double)x[j]))) < 3e-7);
            for (int far = 1; far <= 16; far *= 4) {
                for (uint32_t j = 0; j < n; j++)
                    shifted[j] = x[j] * (float)far;
                kernels->unary[UNARY_SOFTPLUS](shifted, out, n);
                for (uint32_t j = 0; j < n; j++) {
                    const double y = shifted[j], want = fmax(y, 0) + log1p(exp(-fabs(y)));
                    assert_true(fabs(out[j] - want) <= 4e-7 * want);
                }
            }
            kernels->unary[UNARY_EXP](x, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - exp(x[j])) < 4e-7 * exp(x[j]));
            kernels->silu_mul(x, w, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - x[j] / (1 + exp(-(double)x[j])) * w[j]) < 2e-6);
            kernels->gelu_mul(x, w, out, n);
            for (uint32_t j = 0; j < n; j++) {
                const double g = x[j], y = sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
                assert_true(fabs(out[j] - 0.5 * g * (1 + tanh(y)) * w[j]) < 2e-6);
            }
            kernels->sigmoid_mul(x, w, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - w[j] / (1 + exp(-(double)x[j]))) < 1e-6);
            const struct xielu p = {
                .positive = 0.8f, .negative = 1.1f, .beta = 0.5f, .eps = -1e-6f};
            memcpy(out, x, n * sizeof *x);
            kernels->xielu(out, &p, n);
            for (uint32_t j = 0; j < n; j++) {
                const double v = x[j], below = expm1(fmin(v, p.eps)) - v;
                const double want = p.beta * v + (v > 0 ? p.positive * v * v : p.negative * below);
                assert_true(fabs(out[j] - want) < 4e-6);
            }
            for (uint32_t j = 0; j < n; j++)
                x[j] *= 3; /* some beyond the limit of 7 */
            kernels->clamped_mul(x, x, out, n);
            for (uint32_t j = 0; j < n; j++) {
                const double g = fmin(x[j], 7), u = fmax(-7, fmin(x[j], 7));
                assert_true(fabs(out[j] - g / (1 + exp(-1.702 * g)) * (u + 1)) < 2e-5);
            }
            kernels->capped_mul(x, x, out, n, 2.0f);
            for (uint32_t j = 0; j < n; j++) {
                const double g = x[j] / (1 + exp(-(double)x[j])), u = fmax(-2, fmin(x[j], 2));
                assert_true(fabs(out[j] - fmin(g, 2) * u) < 5e-6);
            }
            memcpy(out, w, n * sizeof *w);
            kernels->add_scaled(x, 0.7f, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(fabs(out[j] - (w[j] + (double)x[j] * 0.7f)) < 2e-6);
            memcpy(out, x, n * sizeof *x);
            kernels->cap(out, 1.5f, 5.0f, n);
            for (uint32_t j = 0; j < n; j++) {
                const double want = 5 * tanh(x[j] * 1.5 / 5);
                assert_true(fabs(out[j] - want) <= 5e-7 * fabs(want) + 1e-30);
            }
            memcpy(out, w, n * sizeof *w);
            kernels->cap(out, 0.25f, 0, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(out[j] == w[j] * 0.25f);
            memcpy(out, w, n * sizeof *w);
            kernels->add(x, out, n);
            for (uint32_t j = 0; j < n; j++)
                assert_true(out[j] == x[j] + w[j]);
            assert_true(out[n] == 77);
        }
    }
}

/* Pairs of neighbours, or of either half: the same bits on all, those of two products and a sum. */
static void rotations_are_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(isas) * 2; i++) {
        const struct cpu_kernels *k = cpu_kernels_select(isas[i / 2]);
        for (uint32_t n = 2; n <= 130; n += 2) {
            float x[131], out[131], angles[260];
            for (uint32_t j = 0; j < n; j++)
                out[j] = x[j] = rnd_float() * 4;
            out[n] = 77;
            for (uint32_t j = 0; j < n / 2; j++) {
                const uint32_t a = i % 2 ? j : 2 * j, b = i % 2 ? n / 2 + j : 2 * j + 1;
                angles[a] = angles[b] = rnd_float();
                angles[n + b] = rnd_float();
                angles[n + a] = -angles[n + b];
            }
            k->rotate(out, angles, n, i % 2 ? ROPE_HALVES : ROPE_ADJACENT);
            for (uint32_t j = 0; j < n / 2; j++) {
                const uint32_t a = i % 2 ? j : 2 * j, b = i % 2 ? n / 2 + j : 2 * j + 1;
                assert_true(out[a] == x[a] * angles[a] - x[b] * angles[n + b]);
                assert_true(out[b] == x[a] * angles[n + b] + x[b] * angles[a]);
            }
            assert_true(out[n] == 77);
        }
    }
}

/* All kernels that take a value by itself, or a row as a whole, with NaN at place `at` of n. */
static void rows_keep(const struct cpu_kernels *k, uint32_t n, uint32_t at)
{
    const struct xielu xielu = {.positive = 0.8f, .negative = 0.8f, .beta = 0.5f, .eps = -1e-6f};
    float x[40], ones[40], out[40];
    void (*const two[])(const float *, const float *, float *, uint32_t) = {
        k->silu_mul, k->gelu_mul, k->clamped_mul, k->sigmoid_mul, k->mul};
    for (uint32_t i = 0; i < n; i++) {
        x[i] = i == at ? NAN : rnd_float();
        ones[i] = 1;
    }
    k->exp(x, out, n);
    assert_true(isnan(out[at]));
    for (size_t i = 0; i < COUNT(two); i++) {
        two[i](x, ones, out, n);
        assert_true(isnan(out[at]));
        two[i](ones, x, out, n);
        assert_true(isnan(out[at]));
    }
    k->capped_mul(x, ones, out, n, 7);
    assert_true(isnan(out[at]));
    k->capped_mul(ones, x, out, n, 7);
    assert_true(isnan(out[at]));
    for (size_t i = UNARY_NONE + 1; i < N_UNARY_KINDS; i++) {
        k->unary[i](x, out, n);
        assert_true(isnan(out[at]));
    }
    k->norm(x, ones, out, n, 1e-5f);
    assert_true(isnan(out[0]) && isnan(out[n - 1]));
    k->layer_norm(x, ones, ones, out, n, 1e-5f);
    assert_true(isnan(out[0]) && isnan(out[n - 1]));
    memcpy(out, x, sizeof out);
    k->xielu(out, &xielu, n);
    assert_true(isnan(out[at]));
    memcpy(out, x, sizeof out);
    k->cap(out, 0.5f, 30, n);
    assert_true(isnan(out[at]));
}

/* A row of activations that holds one is no number by its scale, while its bytes stay in bounds. */
static void packed_keep(const struct cpu_kernels *k, uint32_t at)
{
    enum { K = 256 };
    static float x[K], scale[ACT_PLANES * K / 32];
    static int8_t q[(K / 64 | 1) * 64 * 16];
    static struct act_block b[K / 32];
    static struct act_halves h[K / 32];
    static float by128_scale[K / SUPER_K];
    static uint16_t sums[32];
    struct act a = {.k = K,
                    .by32 = {.q = q, .b = b, .halves = h, .scale = scale},
                    .by128 = {.q = q, .b = b, .halves = h, .scale = by128_scale, .sums = sums}};
    for (uint32_t i = 0; i < K; i++)
        x[i] = i == at ? NAN : rnd_float();
    static const unsigned kinds[] = {
        ACT_INT8, ACT_INT8_128, ACT_INT8_128 | ACT_PAIRS, ACT_INT8_128 | ACT_PAIRS | ACT_PAIRS_31};
    for (size_t at_kind = 0; at_kind < COUNT(kinds); at_kind++) {
        const unsigned kind = kinds[at_kind];
        const uint32_t per = kind == ACT_INT8 ? 32 : SUPER_K;
        const int most = kind & ACT_PAIRS_31 ? PAIRS_MOST_31 : kind & ACT_PAIRS ? PAIRS_MOST : 127;
        const int least = kind & ACT_PAIRS ? PAIRS_LEAST : -127;
        k->pack(x, &a, 0, 0, K, kind | ACT_BLOCKS | ACT_CLOSE, 1);
        for (uint32_t i = 0; i < K / 32; i++)
            assert_true(isnan(b[i].d) == (i * 32 / per == at / per));
        for (uint32_t i = 0; i < K / per; i++)
            assert_true(isnan(per == 32 ? scale[i] : by128_scale[i]) == (i == at / per));
        for (uint32_t i = 0; i < K; i++)
            assert_in_range(q[i] - least, 0, most - least);
    }
}

/* Room for all kinds of four rows of k, from one piece of memory, zeros. */
struct packed {
    struct act act;
    uint8_t *bytes;
    size_t n_bytes;
};

static void *carve(struct packed *p, size_t n)
{
    uint8_t *at = p->bytes ? p->bytes + p->n_bytes : NULL;
    p->n_bytes += (n + 63) / 64 * 64;
    return at;
}

static void lay_out(struct packed *p, uint32_t k)
{
    const size_t groups = (size_t)(k / 32 + 1) * ACT_TILE;
    struct act_int8 *of[] = {&p->act.by32, &p->act.by128};
    p->n_bytes = 0;
    p->act.k = k;
    p->act.x = carve(p, (size_t)ACT_TILE * k * sizeof(float));
    p->act.bf16 = carve(p, (size_t)ACT_TILE * (k + 1) * sizeof(uint16_t));
    p->act.two = carve(p, act_two_bytes(k, ACT_TILE));
    p->act.hi = carve(p, act_high_bytes(k, ACT_TILE));
    for (size_t i = 0; i < COUNT(of); i++)
        *of[i] = (struct act_int8){carve(p, act_q_bytes(k, ACT_TILE)),
                                   carve(p, groups * sizeof(struct act_block)),
                                   carve(p, groups * sizeof(struct act_halves)),
                                   carve(p, groups * ACT_PLANES * sizeof(float)),
                                   carve(p, ACT_TILE * act_sums_stride(k) * sizeof(uint16_t)),
                                   carve(p, act_q_bytes(k, ACT_TILE) * sizeof(int16_t))};
}

static struct packed make_packed(uint32_t k)
{
    struct packed p = {0};
    lay_out(&p, k);
    p.bytes = mem_aligned(p.n_bytes);
    memset(p.bytes, 0, p.n_bytes);
    lay_out(&p, k);
    return p;
}

/* What several matrices read of one input is what each would have read alone. */
static void packed_for_many_as_for_one(void **state)
{
    (void)state;
    enum { K = 512, Q = (K / 64 | 1) * 64 * 16 };
    static float x[K];
    static int8_t q[4][Q];
    static int16_t words[4][Q];
    static struct act_block b[4][K / 32];
    static struct act_halves h[4][K / 32];
    static const unsigned pairs[] = {0, ACT_PAIRS, ACT_PAIRS | ACT_PAIRS_31};
    for (size_t i = 0; i < COUNT(isas) * COUNT(pairs); i++) {
        const struct cpu_kernels *k = cpu_kernels_select(isas[i / COUNT(pairs)]);
        const unsigned kind = ACT_INT8_128 | pairs[i % COUNT(pairs)],
                       parts = ACT_BLOCKS | ACT_BOTH_HALVES | ACT_WORDS;
        struct act a[4];
        for (uint32_t n = 0; n < 4; n++)
            a[n] = (struct act){.k = K};
        a[0].by32 = (struct act_int8){.q = q[0], .b = b[0], .halves = h[0], .words = words[0]};
        a[1].by128 = (struct act_int8){.q = q[1], .b = b[1], .halves = h[1], .words = words[1]};
        a[2].by32 = (struct act_int8){.q = q[2], .b = b[2], .halves = h[2], .words = words[2]};
        a[2].by128 = (struct act_int8){.q = q[3], .b = b[3], .halves = h[3], .words = words[3]};
        for (uint32_t n = 0; n < K; n++)
            x[n] = rnd_float();
        k->pack(x, &a[0], 0, 0, K, ACT_INT8 | parts, 1);
        k->pack(x, &a[1], 0, 0, K, kind | parts, 1);
        k->pack(x, &a[2], 0, 0, K, ACT_INT8 | kind | parts, 1);
        for (uint32_t n = 0; n < 2; n++) {
            assert_memory_equal(q[n], q[n + 2], K);
            assert_memory_equal(words[n], words[n + 2], K * sizeof *words[n]);
            assert_memory_equal(b[n], b[n + 2], sizeof b[n]);
            assert_memory_equal(h[n], h[n + 2], sizeof h[n]);
        }
    }
}

/* Rows that are packed in parts, in any order, are what they are as a whole. */
static void packed_in_parts_as_whole(void **state)
{
    enum { K = 5 * SUPER_K, ROWS = 3, KINDS = 9 };
    static const unsigned kinds[KINDS] = {
        ACT_F32,
        ACT_BF16,
        ACT_TWO,
        ACT_HIGH,
        ACT_INT8 | ACT_BLOCKS | ACT_CLOSE | ACT_WORDS | ACT_BOTH_HALVES,
        ACT_INT8_128 | ACT_BLOCKS | ACT_CLOSE | ACT_WORDS | ACT_BOTH_HALVES,
        ACT_INT8_128 | ACT_BLOCKS | ACT_PAIRS,
        ACT_INT8_128 | ACT_BLOCKS | ACT_PAIRS | ACT_PAIRS_31,
        ACT_INT8 | ACT_INT8_128 | ACT_F32 | ACT_BLOCKS};
    static float x[ROWS][K + 77];
    (void)state;
    for (size_t i = 0; i < COUNT(isas) * KINDS * 2; i++) {
        const struct cpu_kernels *k = cpu_kernels_select(isas[i / KINDS % COUNT(isas)]);
        const unsigned kind = kinds[i % KINDS];
        const uint32_t lanes = i / KINDS / COUNT(isas) ? ACT_TILE : 1;
        const bool floats = !(kind & (ACT_INT8 | ACT_INT8_128 | ACT_HIGH));
        const uint32_t n = floats ? K + 77 : K, n_rows = lanes == 1 ? 1 : ROWS;
        struct packed whole = make_packed(n), parts = make_packed(n);
        uint32_t order[] = {3, 0, 4, 1, 2};
        for (uint32_t r = 0; r < n_rows; r++) {
            for (uint32_t c = 0; c < n; c++)
                x[r][c] = rnd_float();
            k->pack(x[r], &whole.act, r, 0, n, kind, lanes);
            for (uint32_t p = 0; p < COUNT(order); p++) {
                const uint32_t first = order[p] * SUPER_K;
                k->pack(
                    x[r], &parts.act, r, first, order[p] == 4 ? n : first + SUPER_K, kind, lanes);
            }
        }
        if (memcmp(whole.bytes, parts.bytes, whole.n_bytes) != 0)
            fail_msg("%s, kinds %x, tiles of %u: parts differ", k->name, kind, lanes);
        free(whole.bytes);
        free(parts.bytes);
    }
}

/* How values that share a scale are to become bytes. */
struct rounding {
    float d, inverse, least, most;
};

static struct rounding rounding_of(const float *x, uint32_t n, unsigned kind)
{
    const bool pairs = kind & ACT_PAIRS;
    float high = 0, low = 0;
    for (uint32_t i = 0; i < n; i++) {
        high = fmaxf(high, x[i]);
        low = fmaxf(low, -x[i]);
    }
    struct rounding r = {.least = pairs ? PAIRS_LEAST : -127, .most = 127};
    if (pairs)
        r.most = kind & ACT_PAIRS_31 ? PAIRS_MOST_31 : PAIRS_MOST;
    const float far = fmaxf(high, low), near = fminf(high, low);
    if (far <= 1e-30f)
        return r;
    const bool uneven = pairs && isfinite(far), by_near = uneven && near > far * (r.most / 128);
    const float steps = by_near ? r.most : uneven ? 128 : 127, reach = by_near ? near : far;
    const float sign = uneven && high > low ? -1 : 1;
    r.d = sign * (reach / steps);
    r.inverse = sign * (steps / reach);
    return r;
}

/* As linear_pairs_impl.h begins with. */
static int32_t pairs_of(const int8_t *q)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < 32; i++)
        sum -= i % 8 < 4 ? (q[i] + 128) * q[i + 4] : 0;
    return sum;
}

/* hi + lo are dsum's negative, as linear_amx_mins_impl.h has it. */
static void assert_two_are(const uint16_t two[2], float dsum)
{
    uint32_t bits;
    const float whole = -dsum;
    memcpy(&bits, &whole, sizeof bits);
    assert_int_equal(two[0], bits >> 16);
    const float left = whole - bf16_to_f32(two[0]);
    memcpy(&bits, &left, sizeof bits);
    assert_int_equal(two[1], (bits + 0x8000) >> 16);
}

/* Row r of tiles of `lanes`, K values x that were packed as `kind`, one of the forms in bytes. */
static void check_packed(const struct cpu_kernels *kernels,
                         const float *x,
                         const struct act *act,
                         uint32_t r,
                         uint32_t lanes,
                         unsigned kind)
{
    const bool by128 = kind & ACT_INT8_128, pairs = by128 && kind & ACT_PAIRS;
    const bool halves_alike = strcmp(kernels->name, "avx2") != 0; /* that has vn_pairs */
    const uint32_t k = act->k, per = by128 ? SUPER_K : 32;
    const struct act_int8 *a = by128 ? &act->by128 : &act->by32;
    const size_t plane = (size_t)(k / 32) * lanes;
    const float *close = a->scale + r / lanes * plane * ACT_PLANES + r % lanes;
    struct rounding to = {0};
    int next[2] = {0};
    for (uint32_t g = 0; g < k / 32; g++) {
        const size_t at = r / lanes * plane + (size_t)g * lanes + r % lanes;
        const int8_t *q = a->q + r * act_q_stride(k) + (size_t)g * 32;
        if (g * 32 % per == 0)
            to = rounding_of(x + (size_t)g * 32, per, by128 ? kind : 0);
        int sum[2] = {0};
        for (uint32_t i = 0; i < 32; i++) {
            const float steps = x[g * 32 + i] * to.inverse;
            const float want = steps < to.least ? to.least : steps < to.most ? steps : to.most;
            assert_int_equal(q[i], (int)nearbyintf(want)); /* no number: most */
            sum[i / 16] += q[i];
        }
        const struct act_block *b = a->b + at;
        const struct act_halves *h = a->halves + at;
        const int all = sum[0] + sum[1];
        const float dsum = to.d * (float)all;
        assert_memory_equal(&b->d, &to.d, sizeof to.d);
        assert_int_equal(b->n128, -128 * all);
        if (!by128) {
            assert_memory_equal(&b->dsum, &dsum, sizeof dsum);
            assert_int_equal(b->n8, -8 * all);
        } else if (g % 2 == 0) {
            next[0] = (int16_t)(b->sums & 0xffff);
            next[1] = b->sums >> 16;
        }
        if (by128)
            assert_int_equal(next[g % 2], all);
        if (pairs && kernels->act_kinds[PANEL_Q4_K] & ACT_PAIRS)
            assert_int_equal(b->pairs, pairs_of(q));
        for (uint32_t i = 0; i < 2; i++) {
            const float half = to.d * (float)sum[i];
            assert_memory_equal(&h->dsum[i], &half, sizeof half);
            assert_true(!halves_alike || h->n32[i] == -32 * sum[i]);
        }
        if (by128) {
            const uint16_t *two = a->sums + r * act_sums_stride(k) + g / 8 * 32 + g % 8 * 2;
            assert_memory_equal(&a->scale[((size_t)r * k + g * 32) / SUPER_K], &to.d, sizeof to.d);
            if (isfinite(dsum))
                assert_two_are(two, dsum);
            assert_true(two[16] == 0 && two[17] == 0);
        } else {
            const float *scale = close + (size_t)g * lanes;
            assert_memory_equal(&scale[ACT_D * plane], &to.d, sizeof to.d);
            assert_memory_equal(&scale[ACT_DSUM * plane], &dsum, sizeof dsum);
        }
    }
}

/* Values that are hard to round: of one sign or of both alike, halves of a step, zeros of either
 * sign, at the end of the exponents, and some that are infinite. */
static void put_hard(float *x, uint32_t k, uint32_t way)
{
    for (uint32_t i = 0; i < k; i++) {
        const float v = rnd_float(), sign = (i / 128 + i / 32) % 2 ? -1 : 1;
        switch (way) {
        case 1: /* of one sign */
            x[i] = fabsf(v) * sign;
            break;
        case 2: /* ties, in steps of 1 */
            x[i] = i % 32 == 0 ? 127 * sign : (float)((int)(rnd() % 253) - 126) + 0.5f;
            break;
        case 3: /* either sign reaches as far as all of its steps, or not quite */
            x[i] = i % 128 == 5    ? sign
                   : i % 128 == 77 ? (i / 128 % 3 ? 112.0f : 96.0f) / -128 * sign
                                   : v * 0.75f;
            break;
        case 4:
            x[i] = i / 32 % 3 ? (v < 0 ? -0.0f : 0.0f) : v;
            break;
        case 5: /* at the end of what is not taken for zeros, or below */
            x[i] = v * 2e-30f * (i / 128 % 2 ? 1 : 1e-9f);
            break;
        case 6:
            x[i] = v * 3e38f;
            break;
        case 7:
            x[i] = rnd() % 100 ? v : INFINITY * sign;
            break;
        default:
            x[i] = v;
        }
    }
}

/* All that is packed of a row, to the bit, in plain C: of K that end within what is packed at a
 * time, too, where only scales for 32 are asked for. */
static void packed_as_drawn(void **state)
{
    enum { K = 5 * SUPER_K + 96 };
    static const unsigned forms[] = {ACT_INT8,
                                     ACT_INT8_128,
                                     ACT_INT8_128 | ACT_PAIRS,
                                     ACT_INT8_128 | ACT_PAIRS | ACT_PAIRS_31,
                                     ACT_INT8 | ACT_INT8_128 | ACT_PAIRS};
    static float x[K];
    (void)state;
    for (size_t i = 0; i < COUNT(isas) * COUNT(forms) * 2; i++) {
        const struct cpu_kernels *kernels = cpu_kernels_select(isas[i / 2 / COUNT(forms)]);
        const unsigned form = forms[i / 2 % COUNT(forms)];
        const uint32_t lanes = i % 2 ? ACT_TILE : 1;
        const unsigned kinds = form | ACT_BLOCKS | ACT_CLOSE | ACT_BOTH_HALVES;
        const uint32_t most = form == ACT_INT8 ? K / 32 : K / SUPER_K;
        for (uint32_t way = 0; way < 8; way++) {
            const uint32_t k = (1 + rnd() % most) * (form == ACT_INT8 ? 32 : SUPER_K);
            struct packed p = make_packed(k);
            const uint32_t r = rnd() % ACT_TILE;
            put_hard(x, k, way);
            kernels->pack(x, &p.act, r, 0, k, kinds, lanes);
            if (form & ACT_INT8)
                check_packed(kernels, x, &p.act, r, lanes, ACT_INT8);
            if (form & ACT_INT8_128)
                check_packed(kernels, x, &p.act, r, lanes, form & ~(unsigned)ACT_INT8);
            free(p.bytes);
        }
    }
}

/* Every value is within half a step, and no step longer than what reaches furthest asks for. */
static void packed_unevenly_but_close(void **state)
{
    (void)state;
    enum { K = 128, Q = (K / 64 | 1) * 64 * 16 };
    static float x[K];
    static int8_t q[Q];
    static struct act_block b[K / 32];
    static struct act_halves h[K / 32];
    struct act a = {.k = K, .by128 = {.q = q, .b = b, .halves = h}};
    const struct cpu_kernels *k = cpu_kernels_select("avx512-bf16");
    for (uint32_t i = 0; i < 400; i++) {
        const float below = 1 + rnd_float(), above = 1 + rnd_float(); /* 0 .. 2 */
        const unsigned kind = ACT_PAIRS | (i % 2 ? ACT_PAIRS_31 : 0);
        const int most = i % 2 ? PAIRS_MOST_31 : PAIRS_MOST;
        double high = 0, low = 0;
        for (uint32_t n = 0; n < K; n++) {
            x[n] = rnd_float();
            x[n] *= x[n] < 0 ? below : above;
            high = x[n] > high ? x[n] : high;
            low = -x[n] > low ? -x[n] : low;
        }
        k->pack(x, &a, 0, 0, K, ACT_INT8_128 | ACT_BLOCKS | kind, 1);
        const double far = high > low ? high : low, near = high > low ? low : high;
        const double step = fabs((double)b[0].d);
        assert_true(step <= 1.00001 * (far / 128 > near / most ? far / 128 : near / most));
        for (uint32_t n = 0; n < K; n++) {
            assert_in_range(q[n] - PAIRS_LEAST, 0, most - PAIRS_LEAST);
            assert_true(fabs((double)q[n] * (double)b[0].d - (double)x[n]) <= 0.5001 * step);
        }
    }
}

static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(isas); i++) {
        const struct cpu_kernels *k = cpu_kernels_select(isas[i]);
        for (uint32_t at = 0; at < 37; at++)
            rows_keep(k, 37, at);
        for (uint32_t at = 0; at < 256; at++)
            packed_keep(k, at);
    }
}

static void isas_are_selected(void **s)
{
    (void)s;
    assert_null(cpu_kernels_select("neon"));
    assert_string_equal(cpu_kernels_select("reference")->name, "reference");
    assert_ptr_equal(cpu_kernels_select(""), cpu_kernels_select(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(rows_are_exact),
        cmocka_unit_test(rotations_are_exact),
        cmocka_unit_test(packed_for_many_as_for_one),
        cmocka_unit_test(packed_in_parts_as_whole),
        cmocka_unit_test(packed_as_drawn),
        cmocka_unit_test(packed_unevenly_but_close),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(isas_are_selected),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
