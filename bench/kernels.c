/* Every kernel of every instruction set that this machine has, but those that store keys and values
 * or take a column out of a panel: checked, and timed on one thread beside the machine's limits.
 *
 *     kernels                          everything, minutes
 *     kernels --isa avx512 --k 5632    one instruction set, another length of the sums
 *     kernels --kernel linear/q4_k     only names that begin so
 *
 * What a kernel is bound by is the larger of operations / peak and bytes / bandwidth, where bytes
 * are those that come from memory, of which `stream` shapes read twice what the last cache holds:
 * `cached` ones find all in the caches. `error` is the
 * normalised mean square error: of matrices and some rows against exact arithmetic on unrounded
 * activations, of attention, over the same keys and values, and of all else against the plain C
 * kernels. The run fails if one is larger than its format explains. */
#include "kernels.h"

#include "backend/cpu/panel.h"
#include "base/clock.h"
#include "base/mem.h"
#include "unit/backend/cpu/weights.h"

#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEAST_STREAM_BYTES ((size_t)96 << 20)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

enum { CACHED_PANELS = 8, N_ROUNDS = 7, MAX_ROWS = 256 };

static const char *const isas[] = {"reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"};

#define FORMAT(NAME, name, ...) {#name, GGUF_TYPE_##NAME},
static const struct {
    const char *name;
    enum gguf_type type;
} formats[N_PANEL_FORMATS] = {CPU_FORMATS(FORMAT)};

/* Sums of k products in f32 round k times. */
static double max_error(enum panel_format format, uint32_t k)
{
    switch (format) {
    case PANEL_F32:
        return 5e-16 * k;
    case PANEL_F16:
        return 1e-10;
    case PANEL_BF16: /* rounded activations, with dot products of them */
        return 1e-5;
    default:
        return 1e-4;
    }
}

/* What is read from memory: twice what the last cache holds, so that nothing is left there. */
static size_t stream_bytes(void)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return cache > (long)LEAST_STREAM_BYTES / 2 ? 2 * (size_t)cache : LEAST_STREAM_BYTES;
}

/* In huge pages, as a model's weights and KV blocks are. */
static uint8_t *huge_memory(size_t n)
{
    const size_t whole = (n + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *p = aligned_alloc(HUGE_PAGE_BYTES, whole);
    if (!p) {
        fprintf(stderr, "kernels: no memory for %zu MiB\n", whole >> 20);
        exit(1);
    }
    (void)madvise(p, whole, MADV_HUGEPAGE);
    return p;
}

double seconds_of(struct timed t)
{
    double best = 1e9;
    uint64_t n = 1;
    for (int i = 0; i < N_ROUNDS; i++) {
        const uint64_t begin = clock_us();
        for (uint64_t c = 0; c < n; c++)
            t.fn(t.ctx);
        const double us = (double)(clock_us() - begin);
        if (us < 10000 && i == 0) {
            n = (uint64_t)(10000.0 * (double)n / (us + 1)) + 1;
            i = -1;
            if (n > 1u << 30)
                break;
            continue;
        }
        const double seconds = us * 1e-6 / (double)n;
        best = seconds < best ? seconds : best;
    }
    return best;
}

void report(struct bench *b,
            const char *name,
            const char *shape,
            double seconds,
            double ops,
            double peak,
            double bytes,
            double error,
            double max_error)
{
    const double by_ops = ops / peak, by_bytes = bytes / b->read;
    const double limit = by_ops > by_bytes ? by_ops : by_bytes;
    const bool wrong = error >= 0 && !(error <= max_error);
    printf("%-16s %-20s %-24s", b->k->name, name, shape);
    if (bytes > 0)
        printf(" %6.1f GB/s", bytes / seconds * 1e-9);
    else
        printf(" %11s", "");
    printf(" %7.1f Gop/s %5.0f %% of %s",
           ops / seconds * 1e-9,
           limit / seconds * 100,
           by_ops > by_bytes ? "arithmetic" : "memory    ");
    if (error >= 0)
        printf("  error %.1e%s", error, wrong ? " TOO LARGE" : "");
    printf("\n");
    fflush(stdout);
    b->n_failed += wrong;
    b->n_run++;
}

bool wanted(const struct bench *b, const char *name)
{
    return !b->o->kernel || strncmp(name, b->o->kernel, strlen(b->o->kernel)) == 0;
}

double nmse(const float *got, const float *want, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        num += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        den += (double)want[i] * want[i];
    }
    return num / den;
}

/* --- linear ---------------------------------------------------------------------------------- */

struct linear {
    const struct cpu_kernels *kernels;
    enum panel_format format;
    uint32_t n_panels; /* of all, in jobs of CACHED_PANELS */
    struct linear_job job;
    const uint8_t *first;
};

static void run_linear(void *ctx)
{
    struct linear *l = ctx;
    for (uint32_t p = 0; p + CACHED_PANELS <= l->n_panels; p += CACHED_PANELS) {
        l->job.panels = l->first + p * l->job.panel_bytes;
        l->kernels->linear[l->format](&l->job);
    }
}

/* Beside what the sums are by chance, which is of one row near 0 for all columns now and then. */
static double linear_error(const struct gguf_tensor *w, const float *x, const struct linear *l)
{
    const uint32_t k = (uint32_t)w->ne[0], n = (uint32_t)w->ne[1];
    float *row = mem_alloc(k * sizeof *row);
    double num = 0, den = 0;
    for (uint32_t c = 0; c < n; c++) {
        gguf_dequantize(w->type, w->data + c * (w->n_bytes / n), row, k);
        for (uint32_t r = 0; r < l->job.n_rows; r++) {
            double want = 0;
            for (uint32_t i = 0; i < k; i++) {
                const double product = (double)row[i] * x[(size_t)r * k + i];
                want += product;
                den += product * product;
            }
            const double diff = l->job.out[r * l->job.out_stride + c] - want;
            num += diff * diff;
        }
    }
    free(row);
    return num / den;
}

static void bench_linear_rows(struct bench *b,
                              enum panel_format format,
                              const struct gguf_tensor *w,
                              uint8_t *panels,
                              uint32_t rows,
                              bool stream)
{
    static float out[MAX_ROWS * CACHED_PANELS * PANEL_COLS];
    static _Alignas(64) uint8_t scratch[LINEAR_SCRATCH_BYTES];
    const uint32_t k = b->o->k, lanes = rows == 1 ? 1 : ACT_TILE;
    struct act a = {.k = k};
    a.x = mem_aligned((size_t)MAX_ROWS * k * sizeof *a.x);
    a.by32.q = mem_aligned(act_q_bytes(k, MAX_ROWS));
    a.by32.b = mem_aligned((size_t)MAX_ROWS * (k / 32) * sizeof *a.by32.b);
    a.by32.halves = mem_aligned((size_t)MAX_ROWS * (k / 32) * sizeof *a.by32.halves);
    a.by32.scale = mem_aligned((size_t)MAX_ROWS * (k / 32) * ACT_PLANES * sizeof *a.by32.scale);
    a.by32.sums = mem_aligned(act_q_rows(MAX_ROWS) * act_sums_stride(k) * sizeof *a.by32.sums);
    a.by32.words = mem_aligned(act_q_bytes(k, MAX_ROWS) * sizeof *a.by32.words);
    a.by128 = a.by32; /* one of them is packed */
    a.bf16 = mem_aligned((size_t)MAX_ROWS * k * sizeof *a.bf16);
    a.two = mem_aligned(act_two_bytes(k, MAX_ROWS));
    a.hi = mem_aligned(act_high_bytes(k, MAX_ROWS));
    float *x = mem_alloc((size_t)rows * k * sizeof *x);
    struct linear l = {.kernels = b->k, .format = format, .first = panels};
    for (size_t i = 0; i < (size_t)rows * k; i++)
        x[i] = rnd_float();
    const unsigned kinds = cpu_act_kinds(b->k, format, rows);
    for (uint32_t r = 0; r < rows; r++)
        b->k->pack(x + (size_t)r * k, &a, r, 0, k, kinds, lanes);
    const size_t bytes = panel_bytes(format, k);
    l.n_panels =
        stream ? (uint32_t)(stream_bytes() / bytes / CACHED_PANELS * CACHED_PANELS) : CACHED_PANELS;
    l.job = (struct linear_job){.panel_bytes = bytes,
                                .n_panels = CACHED_PANELS,
                                .n_cols = CACHED_PANELS * PANEL_COLS,
                                .act = &a,
                                .act_lanes = lanes,
                                .n_rows = rows,
                                .prefetch = cpu_kernels_prefetch(rows),
                                .tuning = cpu_kernels_tuning(),
                                .scratch = scratch,
                                .out = out,
                                .out_stride = CACHED_PANELS * PANEL_COLS};
    const double seconds = seconds_of((struct timed){run_linear, &l});
    l.n_panels = CACHED_PANELS;
    run_linear(&l);
    const double error = linear_error(w, x, &l);
    const unsigned kind = b->k->act_kinds[format];
    const uint32_t n = stream ? (uint32_t)(stream_bytes() / bytes / CACHED_PANELS) : 1;
    char name[32], shape[48];
    snprintf(name, sizeof name, "linear/%s", formats[format].name);
    snprintf(shape, sizeof shape, "%u rows x %u, %s", rows, k, stream ? "stream" : "cached");
    report(b,
           name,
           shape,
           seconds,
           2.0 * rows * k * CACHED_PANELS * PANEL_COLS * n,
           kind == ACT_F32                ? b->f32
           : kind & (ACT_BF16 | ACT_HIGH) ? b->bf16
           : kind == ACT_TWO              ? b->bf16 / (l.format == PANEL_F16 ? 3 : 2)
                                          : b->int8,
           stream ? (double)bytes * CACHED_PANELS * n : 0,
           error,
           max_error(format, k));
    free(a.x);
    free(a.by32.q);
    free(a.by32.b);
    free(a.by32.halves);
    free(a.by32.scale);
    free(a.by32.sums);
    free(a.by32.words);
    free(a.bf16);
    free(a.two);
    free(a.hi);
    free(x);
}

static void bench_linear(struct bench *b, enum panel_format format)
{
    char name[32];
    snprintf(name, sizeof name, "linear/%s", formats[format].name);
    if (!wanted(b, name))
        return;
    struct gguf_tensor w = make_tensor(formats[format].type, b->o->k, CACHED_PANELS * PANEL_COLS);
    const size_t bytes = panel_bytes(format, b->o->k);
    uint8_t *panels = huge_memory(stream_bytes() + bytes);
    for (size_t p = 0; p < stream_bytes() / bytes; p++) {
        if (p < CACHED_PANELS)
            panel_pack(format, &w, (uint32_t)p, panels + p * bytes);
        else
            memcpy(panels + p * bytes, panels + p % CACHED_PANELS * bytes, bytes);
    }
    const bool slow = b->k == &cpu_kernels_plain;
    for (uint32_t rows = 1; rows <= (slow ? 4u : 64u); rows *= rows < 4 ? 4 : 2)
        bench_linear_rows(b, format, &w, panels, rows, true);
    bench_linear_rows(b, format, &w, panels, 1, false); /* what is left when memory is no bound */
    for (uint32_t rows = slow ? 8 : 32; rows <= (slow ? 8u : MAX_ROWS); rows *= 8)
        bench_linear_rows(b, format, &w, panels, rows, false);
    free((void *)w.data);
    free(panels);
}

/* --- attention ------------------------------------------------------------------------------- */

enum { DEPTH = 1536, SLOTS = 16 };

struct attention {
    const struct cpu_kernels *kernels;
    struct attn_job job;
    uint32_t n_contexts, n_blocks; /* each */
    uint32_t *blocks;
    float *parts, *open; /* of the ranges of one context, and of one that is not at its end */
};

/* One context by the three ways that there are. */
static void whole(const struct attention *a)
{
    a->kernels->attend(&a->job);
}

static void by_ranges(const struct attention *a)
{
    const size_t part = attn_part_floats(a->job.kv->head_dim);
    for (uint32_t r = 0; r < DEPTH / ATTN_RANGE; r++)
        a->kernels->attend_part(&a->job, r, a->parts + r * part);
    a->kernels->attend_merge(&a->job, a->parts, DEPTH / ATTN_RANGE);
}

static void by_steps(const struct attention *a)
{
    const struct attn_sums sums = {.total = a->parts, .open = a->open};
    const uint32_t middle = DEPTH / 2 / ATTN_RANGE * ATTN_RANGE;
    a->kernels->attend_some(&a->job, 0, middle, &sums);
    a->kernels->attend_some(&a->job, middle, DEPTH, &sums);
    a->kernels->attend_merge(&a->job, a->parts, 1);
}

static const struct {
    const char *suffix;
    void (*run)(const struct attention *a);
} ways[] = {{"", whole}, {"/ranges", by_ranges}, {"/steps", by_steps}};

struct all_contexts {
    struct attention *a;
    void (*run)(const struct attention *a);
};

static void run_attention(void *ctx)
{
    const struct all_contexts *all = ctx;
    for (uint32_t i = 0; i < all->a->n_contexts; i++) {
        all->a->job.blocks = all->a->blocks + (size_t)i * all->a->n_blocks;
        all->run(all->a);
    }
}

/* Against the plain kernel, over the first context. */
static double attention_error(struct attention *a, void (*run)(const struct attention *a), size_t n)
{
    float *want = mem_alloc(n * sizeof *want);
    struct attn_job j = a->job;
    j.out = want;
    j.blocks = a->job.blocks = a->blocks;
    run(a);
    cpu_kernels_plain.attend(&j);
    const double error = nmse(a->job.out, want, n);
    free(want);
    return error;
}

/* Contexts of DEPTH positions in shuffled blocks, one KV head, `group` query heads; latent: of so
 * many values, or 0. */
static void bench_attention(struct bench *b,
                            enum kv_type type,
                            uint32_t dim,
                            uint32_t latent,
                            uint32_t group,
                            uint32_t rows)
{
    char name[32], shape[48];
    const uint32_t n_value = latent ? latent : dim;
    snprintf(name, sizeof name, "%s/%s", latent ? "latent" : "attention", kv_type_name(type));
    if (!wanted(b, name))
        return;
    struct kv_layout kv = {.type = type, .head_dim = dim, .latent = latent, .block_tokens = SLOTS};
    kv.half_bytes = kv_row_bytes(type, dim) * SLOTS;
    kv.head_bytes = kv.block_bytes = (latent ? 1 : 2) * kv.half_bytes;
    struct attention a = {.kernels = b->k, .n_blocks = DEPTH / SLOTS};
    a.n_contexts = (uint32_t)(stream_bytes() / (a.n_blocks * kv.block_bytes));
    const uint32_t n = a.n_contexts * a.n_blocks;
    uint8_t *memory = huge_memory(n * kv.block_bytes);
    a.blocks = mem_alloc(n * sizeof *a.blocks);
    float k[MAX_HEAD_DIM], v[MAX_HEAD_DIM], *q = mem_alloc((size_t)rows * group * dim * sizeof *q);
    float *out = mem_alloc((size_t)rows * group * n_value * sizeof *out);
    float *scratch = mem_aligned(attn_scratch_floats(dim) * sizeof *scratch);
    struct attn_row at[ATTN_QUERIES];
    for (uint32_t i = 0; i < rows; i++)
        at[i] = (struct attn_row){.at = i, .pos = DEPTH - rows + i};
    for (size_t i = 0; i < (size_t)rows * group * dim; i++)
        q[i] = rnd_float();
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t s = 0; s < SLOTS; s++) {
            for (uint32_t d = 0; d < dim; d++)
                k[d] = rnd_float(), v[d] = rnd_float();
            b->k->kv_store(&kv, memory + i * kv.block_bytes, s, k, v);
        }
        const uint32_t with = rnd() % (i + 1);
        a.blocks[i] = a.blocks[with];
        a.blocks[with] = i;
    }
    a.job = (struct attn_job){.kv = &kv,
                              .base = memory,
                              .group = group,
                              .rows = at,
                              .n_rows = rows,
                              .q = q,
                              .out = out,
                              .q_stride = (size_t)group * dim,
                              .out_stride = (size_t)group * n_value,
                              .scale = 0.125f,
                              .scratch = scratch};
    a.parts = mem_aligned(DEPTH / ATTN_RANGE * attn_part_floats(dim) * sizeof *a.parts);
    a.open = mem_aligned(attn_open_floats(dim) * sizeof *a.open);
    snprintf(shape, sizeof shape, "%u rows x %u, dim %u", rows, group, dim);
    const bool slow = b->k == &cpu_kernels_plain; /* which the others are held against, too */
    for (size_t w = 0; w < (slow ? 1 : COUNT(ways)); w++) {
        char way[48];
        snprintf(way, sizeof way, "%s%s", name, ways[w].suffix);
        struct all_contexts all = {&a, ways[w].run};
        const double seconds = seconds_of((struct timed){run_attention, &all});
        report(b,
               way,
               shape,
               seconds,
               2.0 * (dim + n_value) * DEPTH * group * rows * a.n_contexts,
               b->f32,
               (double)n * (double)kv.block_bytes,
               attention_error(&a, ways[w].run, (size_t)rows * group * n_value),
               type == KV_F32 ? 1e-11 : 1e-9); /* a tile unit takes 16 bits of a number */
    }
    free(a.parts);
    free(a.open);
    free(memory);
    free(a.blocks);
    free(q);
    free(out);
    free(scratch);
}

/* --- rows ------------------------------------------------------------------------------------ */

struct rows {
    const struct cpu_kernels *kernels;
    float *x, *y, *out;
    uint32_t n;
    struct act act;
};

static void run_norm(void *ctx)
{
    struct rows *r = ctx;
    r->kernels->norm(r->x, r->y, r->out, r->n, 1e-5f);
}

static void run_silu(void *ctx)
{
    struct rows *r = ctx;
    r->kernels->silu_mul(r->x, r->y, r->out, r->n);
}

static void run_gelu(void *ctx)
{
    struct rows *r = ctx;
    r->kernels->gelu_mul(r->x, r->y, r->out, r->n);
}

static void run_clamped(void *ctx)
{
    struct rows *r = ctx;
    r->kernels->clamped_mul(r->x, r->y, r->out, r->n);
}

static void run_cap(void *ctx)
{
    struct rows *r = ctx;
    memcpy(r->out, r->x, r->n * sizeof *r->out);
    r->kernels->cap(r->out, 1.5f, 4.0f, r->n);
}

static void run_pack(void *ctx)
{
    struct rows *r = ctx;
    r->kernels->pack(r->x, &r->act, 0, 0, r->act.k, ACT_INT8 | ACT_BLOCKS, ACT_TILE);
}

static void run_exp(void *ctx)
{
    struct rows *r = ctx;
    r->kernels->exp(r->x, r->out, r->n);
}

static double row_error(const struct rows *r, double (*want)(double x, double y, double scale))
{
    double square = 0, num = 0, den = 0;
    for (uint32_t i = 0; i < r->n; i++)
        square += (double)r->x[i] * r->x[i];
    for (uint32_t i = 0; i < r->n; i++) {
        const double w = want(r->x[i], r->y[i], 1 / sqrt(square / r->n + 1e-5));
        num += (r->out[i] - w) * (r->out[i] - w);
        den += w * w;
    }
    return num / den;
}

static double want_norm(double x, double y, double scale)
{
    return x * scale * y;
}

static double want_silu(double x, double y, double scale)
{
    (void)scale;
    return x / (1 + exp(-x)) * y;
}

static double want_gelu(double x, double y, double scale)
{
    (void)scale;
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) * y;
}

static double want_clamped(double x, double y, double scale)
{
    (void)scale;
    x = fmin(x, 7);
    return x / (1 + exp(-1.702 * x)) * (fmax(-7, fmin(y, 7)) + 1);
}

static double want_cap(double x, double y, double scale)
{
    (void)y;
    (void)scale;
    return 4 * tanh(x * 1.5 / 4);
}

static double want_exp(double x, double y, double scale)
{
    (void)y;
    (void)scale;
    return exp(x);
}

static void bench_rows(struct bench *b)
{
    static const struct {
        const char *name;
        void (*fn)(void *ctx);
        double (*want)(double x, double y, double scale); /* NULL: checked with linear */
        double ops;                                       /* a value; e^x as 12 */
    } kinds[] = {{"norm", run_norm, want_norm, 4},
                 {"silu_mul", run_silu, want_silu, 16},
                 {"gelu_mul", run_gelu, want_gelu, 20},
                 {"clamped_mul", run_clamped, want_clamped, 20},
                 {"cap", run_cap, want_cap, 18},
                 {"exp", run_exp, want_exp, 12},
                 {"pack/int8", run_pack, NULL, 4}};
    const uint32_t n = b->o->k;
    struct rows r = {.kernels = b->k, .n = n};
    r.x = mem_aligned(n * sizeof *r.x);
    r.y = mem_aligned(n * sizeof *r.y);
    r.out = mem_aligned(n * sizeof *r.out);
    r.act =
        (struct act){.k = n,
                     .by32 = {mem_aligned(act_q_bytes(n, ACT_TILE)),
                              mem_aligned((size_t)n / 32 * ACT_TILE * sizeof *r.act.by32.b),
                              mem_aligned((size_t)n / 32 * ACT_TILE * sizeof *r.act.by32.halves),
                              mem_aligned((size_t)n / 32 * ACT_TILE * ACT_PLANES * sizeof(float))}};
    for (uint32_t i = 0; i < n; i++) {
        r.x[i] = rnd_float() * 4;
        r.y[i] = rnd_float();
    }
    char shape[48];
    snprintf(shape, sizeof shape, "%u, cached", n);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (!wanted(b, kinds[i].name))
            continue;
        const double seconds = seconds_of((struct timed){kinds[i].fn, &r});
        const double error = kinds[i].want ? row_error(&r, kinds[i].want) : -1;
        report(b, kinds[i].name, shape, seconds, kinds[i].ops * n, b->f32, 0, error, 1e-12);
    }
    free(r.x);
    free(r.y);
    free(r.out);
    free(r.act.by32.q);
    free(r.act.by32.b);
    free(r.act.by32.halves);
    free(r.act.by32.scale);
}

/* --- all ------------------------------------------------------------------------------------- */

static double best_rate(double (*fn)(uint64_t n))
{
    double best = 0;
    for (int i = 0; fn && i < N_ROUNDS; i++) {
        const uint64_t begin = clock_us();
        const double ops = fn(200000);
        const double rate = ops / ((double)(clock_us() - begin + 1) * 1e-6);
        best = rate > best ? rate : best;
    }
    return best;
}

static double read_rate(const struct cpu_kernels *k)
{
    const size_t n = stream_bytes();
    uint8_t *p = huge_memory(n);
    double best = 0;
    memset(p, 1, n);
    for (int i = 0; i < 2 * N_ROUNDS; i++) {
        const uint64_t begin = clock_us();
        k->read(p, n, i % 2);
        const double rate = (double)n / ((double)(clock_us() - begin + 1) * 1e-6);
        best = rate > best ? rate : best;
    }
    free(p);
    return best;
}

static void bench_isa(struct bench *b)
{
    b->int8 = best_rate(b->k->peak_int8);
    b->f32 = best_rate(b->k->peak_f32);
    b->bf16 = best_rate(b->k->peak_bf16);
    b->read = read_rate(b->k);
    printf("%s: one thread, int8 %.0f, f32 %.0f, bf16 dot %.0f Gop/s, memory %.1f GB/s\n",
           b->k->name,
           b->int8 * 1e-9,
           b->f32 * 1e-9,
           b->bf16 * 1e-9,
           b->read * 1e-9);
    for (int format = 0; format < N_PANEL_FORMATS; format++)
        bench_linear(b, (enum panel_format)format);
    for (int type = KV_F32; type <= KV_Q8_0; type++) {
        bench_attention(b, (enum kv_type)type, 64, 0, 8, 1);
        bench_attention(b, (enum kv_type)type, 128, 0, 8, 4);
        bench_attention(b, (enum kv_type)type, 576, 512, 16, 1);
        bench_attention(b, (enum kv_type)type, 576, 512, 16, 2);
    }
    bench_rows(b);
    bench_rest(b);
}

static error_t parse_option(int key, char *arg, struct argp_state *s)
{
    struct options *o = s->input;
    switch (key) {
    case 'i':
        o->isa = arg;
        return 0;
    case 'n':
        o->kernel = arg;
        return 0;
    case 'k':
        o->k = (uint32_t)strtoul(arg, NULL, 10);
        if (o->k < 256 || o->k > 65536 || o->k % 256 != 0)
            argp_error(s, "--k: a multiple of 256 up to 65536");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"isa", 'i', "NAME", 0, "only this one: " CPU_ISAS, 0},
        {"kernel", 'n', "NAME", 0, "only kernels whose names begin so", 0},
        {"k", 'k', "N", 0, "length of the sums and rows (default 2048)", 0},
        {0}};
    static const struct argp argp = {
        options, parse_option, NULL, "Check and time the CPU kernels.", NULL, NULL, NULL};
    struct options o = {.k = 2048};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    struct bench b = {.o = &o};
    if (o.isa && !cpu_kernels_select(o.isa)) {
        fprintf(stderr, "kernels: --isa %s: not " CPU_ISAS "\n", o.isa);
        return 2;
    }
    const struct cpu_kernels *before = NULL;
    for (size_t i = 0; i < COUNT(isas); i++) {
        b.k = cpu_kernels_select(isas[i]);
        if ((o.isa && strcmp(o.isa, isas[i]) != 0) || b.k == before)
            continue; /* a set that this machine lacks is the one below */
        before = b.k;
        bench_isa(&b);
    }
    if (b.n_run == 0) {
        fprintf(stderr, "kernels: no kernel's name begins with '%s'\n", o.kernel ? o.kernel : "");
        return 2;
    }
    return b.n_failed ? 1 : 0;
}
