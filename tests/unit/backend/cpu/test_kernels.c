/* Every kernel of every instruction set that this machine has, against plain double arithmetic,
 * over odd shapes; and the same bits for a row alone and among others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"
#include "base/mem.h"
#include "unit/backend/cpu/weights.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const char *const isas[] = {"reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"};
static const enum gguf_type types[] = {
    GGUF_TYPE_F32,   GGUF_TYPE_F16,     GGUF_TYPE_BF16,   GGUF_TYPE_Q8_0,    GGUF_TYPE_Q4_0,
    GGUF_TYPE_Q4_K,  GGUF_TYPE_Q6_K,    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,    GGUF_TYPE_Q5_1,
    GGUF_TYPE_Q5_K,  GGUF_TYPE_IQ4_NL,  GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4,   GGUF_TYPE_Q2_K,
    GGUF_TYPE_Q3_K,  GGUF_TYPE_IQ1_S,   GGUF_TYPE_IQ1_M,  GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS,
    GGUF_TYPE_IQ2_S, GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S,  GGUF_TYPE_TQ1_0,   GGUF_TYPE_TQ2_0,
    GGUF_TYPE_Q1_0,  GGUF_TYPE_Q2_0,    GGUF_TYPE_NVFP4};

static uint64_t seed;

static int start(void **s)
{
    (void)s;
    const char *given = getenv("SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    random_state = seed;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return 0;
}

static struct act_int8 make_int8(uint32_t k, uint32_t rows, uint32_t padded)
{
    const size_t groups = (size_t)padded * (k < 32 ? 1 : k / 32);
    return (struct act_int8){mem_aligned(act_q_bytes(k, rows)),
                             mem_aligned(groups * sizeof(struct act_block)),
                             {mem_aligned(groups * ACT_PLANES * sizeof(float))}};
}

static struct act make_act(uint32_t k, uint32_t rows)
{
    const uint32_t padded = (rows + 3) / 4 * 4; /* exactly what kernels may touch */
    return (struct act){.k = k,
                        .x = mem_aligned((size_t)padded * k * 4),
                        .bf16 = mem_aligned((size_t)padded * (k + 1) * 2),
                        .two = mem_aligned(act_two_bytes(k, rows)),
                        .by32 = make_int8(k, rows, padded),
                        .by128 = make_int8(k, rows, padded)};
}

static void free_act(struct act *a)
{
    free(a->x);
    free(a->bf16);
    free(a->two);
    free(a->by32.q);
    free(a->by32.b);
    free(a->by128.q);
    free(a->by128.b);
    free(a->by32.s);
    free(a->by128.s);
}

struct linear_case {
    const struct cpu_kernels *kernels;
    enum panel_format format;
    struct gguf_tensor w;
    uint32_t k, n, rows;
    uint8_t *panels;
    float *x, *bias; /* [rows, k], [n] */
};

/* All columns for rows first .. first + n_rows - 1, packed by themselves, onto out [rows, n]; but
 * for the first `skip` of them, a multiple of lanes. */
static void run_linear_from(const struct linear_case *c,
                            uint32_t first,
                            uint32_t n_rows,
                            uint32_t skip,
                            uint32_t lanes,
                            bool add,
                            float *out)
{
    struct act a = make_act(c->k, n_rows);
    uint8_t *scratch = mem_aligned(LINEAR_SCRATCH_BYTES);
    memset(scratch, 0xff, LINEAR_SCRATCH_BYTES); /* NaN */
    for (uint32_t r = 0; r < n_rows; r++)
        c->kernels->pack(
            c->x + (size_t)(first + r) * c->k, &a, r, c->kernels->act_kinds[c->format], lanes);
    const struct linear_job j = {.panels = c->panels,
                                 .panel_bytes = panel_bytes(c->format, c->k),
                                 .n_panels = (c->n + 15) / 16,
                                 .n_cols = c->n,
                                 .act = &a,
                                 .act_lanes = lanes,
                                 .first_row = skip,
                                 .n_rows = n_rows - skip,
                                 .scratch = scratch,
                                 .prefetch = cpu_kernels_prefetch(n_rows),
                                 .out = out + (size_t)first * c->n,
                                 .out_stride = c->n,
                                 .bias = c->bias,
                                 .add = add};
    c->kernels->linear[c->format](&j);
    free_act(&a);
    free(scratch);
}

static void run_linear(const struct linear_case *c,
                       uint32_t first,
                       uint32_t n_rows,
                       uint32_t lanes,
                       bool add,
                       float *out)
{
    run_linear_from(c, first, n_rows, 0, lanes, add, out);
}

/* What a product of an F16 or BF16 weight with two bf16 of an activation leaves out. */
static double left_out(enum panel_format format, float w, float x)
{
    const float hi = bf16_to_f32(f32_to_bf16(x)), lo = bf16_to_f32(f32_to_bf16(x - hi));
    uint32_t bits;
    memcpy(&bits, &w, sizeof bits);
    const float u = bf16_to_f32((uint16_t)(bits >> 16));
    const double part = format == PANEL_F16 ? ((double)w - u) * lo : 0;
    return (double)w * ((double)x - hi - lo) + part;
}

/* The exact sum, over activations as the kernel sees them: rounded to 8 bits for quantised weights,
 * to bf16 where pairs of that are multiplied; without what is left out where it is two.
 * *size is the sum of magnitudes: what rounding errors are in proportion to, however much of the
 * sum itself cancels out. */
static double exact(const struct linear_case *c, const float *w, const float *x, double *size)
{
    double sum = 0;
    float amax = 0;
    *size = 0;
    for (uint32_t k = 0; k < c->k; k++) {
        double a = x[k];
        if (c->kernels->act_kinds[c->format] == ACT_BF16)
            a = bf16_to_f32(f32_to_bf16(x[k]));
        if (c->kernels->act_kinds[c->format] & (ACT_INT8 | ACT_INT8_128)) {
            const uint32_t per = c->kernels->act_kinds[c->format] == ACT_INT8 ? 32 : SUPER_K;
            amax = k % per ? amax : 0;
            for (uint32_t i = k; k % per == 0 && i < k + per; i++)
                amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
            a = amax > 0 ? nearbyintf(x[k] * (127.0f / amax)) * (amax / 127.0f) : 0;
        }
        if (c->kernels->act_kinds[c->format] == ACT_TWO)
            sum -= left_out(c->format, w[k], x[k]);
        sum += w[k] * a;
        *size += fabs(w[k] * a);
    }
    return sum;
}

/* The most that any product may lack, of itself: 2^-15 and 2^-17, 2^-17. */
static double most_left_out(const struct linear_case *c)
{
    if (c->kernels->act_kinds[c->format] != ACT_TWO)
        return 0;
    return c->format == PANEL_F16 ? 0x1.4p-15 : 0x1p-17;
}

static void check_linear(const struct linear_case *c)
{
    float *out = mem_zalloc((size_t)c->rows * c->n + 1, sizeof *out);
    float *alone = mem_zalloc((size_t)c->rows * c->n + 1, sizeof *out);
    float *row = mem_alloc(c->k * sizeof *row);
    out[(size_t)c->rows * c->n] = 77; /* a guard */
    run_linear(c, 0, c->rows, ACT_TILE, false, out);
    double num = 0, den = 0;
    for (uint32_t j = 0; j < c->n; j++) {
        gguf_dequantize(c->w.type, c->w.data + j * (c->w.n_bytes / c->n), row, c->k);
        for (uint32_t r = 0; r < c->rows; r++) {
            const double bias = c->bias ? c->bias[j] : 0;
            double size;
            const double want = exact(c, row, c->x + (size_t)r * c->k, &size) + bias;
            const double got = out[(size_t)r * c->n + j];
            double lost = 0;
            for (uint32_t i = 0; most_left_out(c) > 0 && i < c->k; i++)
                lost += left_out(c->format, row[i], c->x[(size_t)r * c->k + i]);
            assert_true(fabs(lost) <= most_left_out(c) * size);
            size += fabs(bias);
            num += (got - want) * (got - want);
            den += size * size;
        }
    }
    if (!(num <= den * 1e-13))
        fail_msg("%s %s k %u n %u rows %u: nmse %.2e",
                 c->kernels->name,
                 gguf_type_name(c->w.type),
                 c->k,
                 c->n,
                 c->rows,
                 num / den);
    assert_true(out[(size_t)c->rows * c->n] == 77);

    for (uint32_t r = 0; r < c->rows; r++) /* packed as a lone row */
        run_linear(c, r, 1, r % 2 ? 1 : ACT_TILE, false, alone);
    assert_memory_equal(alone, out, (size_t)c->rows * c->n * sizeof *out);
    run_linear(c, 0, c->rows, ACT_TILE, true, alone); /* once more, added on */
    for (size_t i = 0; i < (size_t)c->rows * c->n; i++)
        assert_true(alone[i] == out[i] + out[i]);
    const uint32_t skip = c->rows > 8 ? 4 * (1 + rnd() % (c->rows / 4 - 1)) : 0;
    memcpy(alone, out, skip * c->n * sizeof *out); /* as rows of experts, which begin anywhere */
    memset(alone + skip * c->n, 0xff, (c->rows - skip) * c->n * sizeof *out);
    run_linear_from(c, 0, c->rows, skip, ACT_TILE, false, alone);
    assert_memory_equal(alone, out, (size_t)c->rows * c->n * sizeof *out);
    free(out);
    free(alone);
    free(row);
}

/* What was packed, read back column by column, is what the file's blocks say. */
static void check_columns(const struct linear_case *c)
{
    float *want = mem_alloc(c->k * sizeof *want), *got = mem_alloc(c->k * sizeof *got);
    for (uint32_t j = 0; j < c->n; j++) {
        gguf_dequantize(c->w.type, c->w.data + j * (c->w.n_bytes / c->n), want, c->k);
        c->kernels->column[c->format](
            c->panels + j / 16 * panel_bytes(c->format, c->k), c->k, j % 16, got);
        for (uint32_t k = 0; k < c->k; k++)
            assert_true(got[k] == want[k]);
    }
    free(want);
    free(got);
}

static void linear_shapes(const struct cpu_kernels *kernels, enum gguf_type type)
{
    static const uint32_t ns[] = {1, 15, 16, 17, 40, 100};
    const uint32_t unit = gguf_type_info(type)->block_values;
    static const uint32_t counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 12,
                                      14, 17, 20, 23, 33, 36, 49, 62, 75, 88, 101};
    for (size_t at = 0; at < COUNT(counts); at++) {
        const uint32_t rows = counts[at];
        struct linear_case c = {.kernels = kernels, .rows = rows, .n = ns[rnd() % COUNT(ns)]};
        const uint32_t most = rows % 2 ? 150 : 1200; /* longer than a part, TILE_K */
        c.k = unit == 1 ? 1 + rnd() % most : unit * (1 + rnd() % (most / unit + 1));
        assert_true(panel_format_of(type, &c.format));
        c.w = make_tensor(type, c.k, c.n);
        const size_t bytes = panel_bytes(c.format, c.k);
        c.panels = mem_aligned(bytes * ((c.n + 15) / 16));
        for (uint32_t p = 0; p < (c.n + 15) / 16; p++)
            panel_pack(c.format, &c.w, p, c.panels + p * bytes);
        c.x = mem_alloc((size_t)rows * c.k * sizeof *c.x);
        for (size_t i = 0; i < (size_t)rows * c.k; i++)
            c.x[i] = rows == 3 && i < c.k ? 0 : rnd_float(); /* one row of zeros */
        float bias[100];
        for (uint32_t i = 0; i < c.n; i++)
            bias[i] = rnd_float();
        c.bias = rows % 2 ? bias : NULL;
        check_linear(&c);
        check_columns(&c);
        free((void *)(uintptr_t)c.w.data);
        free(c.panels);
        free(c.x);
    }
}

static void linears_are_exact(void **s)
{
    (void)s;
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (size_t t = 0; t < COUNT(types); t++)
            linear_shapes(cpu_kernels_select(isas[i]), types[t]);
    }
}

/* A tensor's panels, and activations, for the formats of two bytes. */
static struct linear_case make_halves(enum gguf_type type, uint32_t k, uint32_t n, uint32_t rows)
{
    struct linear_case c = {.rows = rows, .n = n, .k = k, .w = make_tensor(type, k, n)};
    assert_true(panel_format_of(type, &c.format));
    c.panels = mem_aligned(panel_bytes(c.format, k) * ((n + 15) / 16));
    c.x = mem_alloc((size_t)rows * k * sizeof *c.x);
    for (size_t i = 0; i < (size_t)rows * k; i++)
        c.x[i] = rnd_float();
    return c;
}

static void pack_halves(struct linear_case *c)
{
    for (uint32_t p = 0; p < (c->n + 15) / 16; p++)
        panel_pack(c->format, &c->w, p, c->panels + p * panel_bytes(c->format, c->k));
}

static void free_halves(struct linear_case *c)
{
    free((void *)(uintptr_t)c->w.data);
    free(c->panels);
    free(c->x);
}

/* Also all at once, of more rows than a unit takes, and of as many panels as a job may hold. */
static void subnormal_halves_are_exact(void **s)
{
    (void)s;
    static const uint32_t rows[] = {1, 3, 17, 33, 70, 150};
    for (size_t i = 0; i < COUNT(rows) * COUNT(isas); i++) {
        struct linear_case c = make_halves(GGUF_TYPE_F16, 300 + rnd() % 300, 145, rows[i % 6]);
        c.kernels = cpu_kernels_select(isas[i / 6]);
        for (size_t at = 0; at < c.w.n_bytes; at += 2) {
            const uint16_t bits = (uint16_t)(rnd() & (rnd() % 2 ? 0x83ff : 0xbbff));
            memcpy((uint8_t *)(uintptr_t)c.w.data + at, &bits, sizeof bits);
        }
        pack_halves(&c);
        check_linear(&c);
        free_halves(&c);
    }
}

/* What is finite stays finite, up to the largest; what is not does not become so. */
static void large_activations_stay_finite(void **s)
{
    (void)s;
    static const enum gguf_type halves[] = {GGUF_TYPE_F16, GGUF_TYPE_BF16};
    static const float large[] = {FLT_MAX, -FLT_MAX, INFINITY, NAN};
    for (size_t i = 0; i < COUNT(isas) * 4; i++) {
        struct linear_case c = make_halves(halves[i % 2], 70, 16, i % 4 < 2 ? 1 : 5);
        c.kernels = cpu_kernels_select(isas[i / 4]);
        const uint16_t half = halves[i % 2] == GGUF_TYPE_F16 ? f32_to_f16(0.5f) : f32_to_bf16(0.5f);
        for (size_t at = 0; at < c.w.n_bytes; at += 2)
            memcpy((uint8_t *)(uintptr_t)c.w.data + at, &half, sizeof half);
        pack_halves(&c);
        for (size_t l = 0; l < COUNT(large); l++) {
            float out[5 * 16];
            if (c.kernels->act_kinds[c.format] == ACT_BF16 && l < 2)
                continue; /* they are rounded, to infinity */
            c.x[33] = large[l];
            run_linear(&c, 0, c.rows, ACT_TILE, false, out);
            for (int j = 0; j < 16; j++) {
                assert_int_equal(isfinite(out[j]) != 0, isfinite(large[l]) != 0);
                if (l < 2)
                    assert_true(fabs(out[j] - 0.5 * large[l]) <= FLT_MAX * 1e-5);
            }
        }
        free_halves(&c);
    }
}

/* Bytes of blocks as runs of extremes, so that weights, and scales, are as large as they may be. */
static void put_extremes(const struct gguf_tensor *w)
{
    static const uint8_t extremes[] = {0x00, 0xff, 0x80, 0x7f};
    const struct gguf_type_info *info = gguf_type_info(w->type);
    for (size_t at = 0; at < w->n_bytes; at += info->block_bytes) {
        uint8_t *block = (uint8_t *)(uintptr_t)w->data + at, scales[4];
        const bool short_scale = w->type == GGUF_TYPE_MXFP4;
        const size_t d = scale_at(w->type);
        const size_t n = has_second_scale(w->type) || w->type == GGUF_TYPE_NVFP4 ? 4
                         : short_scale                                           ? 1
                                                                                 : 2;
        memcpy(scales, block + d, n);
        for (uint32_t i = 0; i < info->block_bytes; i += 16) {
            const uint32_t left = info->block_bytes - i, kind = rnd() % 5;
            if (kind < 4)
                memset(block + i, extremes[kind], left < 16 ? left : 16);
        }
        if (w->type == GGUF_TYPE_IQ1_M)
            put_iq1_m_scale(block);
        else
            memcpy(block + d, scales, n);
    }
}

/* Activations that are all as large as they may be, of one sign or of both in turn; any. */
static void put_large(float *x, uint32_t rows, uint32_t k)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < k; i++)
            x[(size_t)r * k + i] = r % 4 == 0   ? 1.0f
                                   : r % 4 == 1 ? -1.0f
                                   : r % 4 == 2 ? (i % 2 ? 1.0f : -1.0f)
                                                : rnd_float();
    }
}

/* Every way to the sum of integers is exact, up to the largest: within an instruction set, and so
 * between those that add floats alike. Rows and panels end within what a tile unit takes. */
static void check_extremes(enum gguf_type type, uint32_t rows, uint32_t n, uint32_t k)
{
    struct linear_case c = {.rows = rows, .n = n, .k = k};
    assert_true(panel_format_of(type, &c.format));
    c.w = make_tensor(type, k, n);
    put_extremes(&c.w);
    const size_t bytes = panel_bytes(c.format, k), size = (size_t)rows * n * sizeof(float);
    c.panels = mem_aligned(bytes * ((n + 15) / 16));
    for (uint32_t p = 0; p < (n + 15) / 16; p++)
        panel_pack(c.format, &c.w, p, c.panels + p * bytes);
    c.x = mem_alloc((size_t)rows * k * sizeof *c.x);
    put_large(c.x, rows, k);
    float *first = mem_alloc(size), *out = mem_alloc(size);
    for (size_t i = 0; i < COUNT(isas); i++) {
        c.kernels = cpu_kernels_select(isas[i]);
        check_linear(&c);
        run_linear(&c, 0, rows, ACT_TILE, false, i < 2 ? first : out);
        if (i >= 2 && strcmp(cpu_kernels_select("avx2")->name, "reference") != 0)
            assert_memory_equal(out, first, size);
    }
    free((void *)(uintptr_t)c.w.data);
    free(c.panels);
    free(c.x);
    free(first);
    free(out);
}

static void extremes_are_exact(void **s)
{
    (void)s;
    static const uint32_t rows[] = {17, 31, 33, 64, 85, LINEAR_MAX_ROWS}, ns[] = {16, 17, 40};
    for (size_t t = 0; t < COUNT(types); t++) {
        const uint32_t unit = gguf_type_info(types[t])->block_values;
        for (size_t i = 0; unit > 1 && i < COUNT(rows); i++) {
            /* a part of TILE_K and more, of which every number of groups may be left */
            const uint32_t k = unit < 256 ? (TILE_K + 32 * (1 + rnd() % 9)) / unit * unit : 768;
            check_extremes(types[t], rows[i], ns[(t + i) % COUNT(ns)], k);
        }
    }
}

/* Memory is what the file takes: panels add 7 % at most. */
static void panels_are_as_small_as_files(void **s)
{
    (void)s;
    for (size_t t = 0; t < COUNT(types); t++) {
        const struct gguf_type_info *info = gguf_type_info(types[t]);
        enum panel_format format;
        assert_true(panel_format_of(types[t], &format));
        const size_t file = (size_t)2048 / info->block_values * info->block_bytes * PANEL_COLS;
        assert_true(panel_bytes(format, 2048) * 100 <= file * 107);
    }
}

/* Attention of one KV head over shuffled blocks, against softmax in double over what was stored. */
struct attn_case {
    const struct cpu_kernels *kernels;
    struct kv_layout kv;
    uint32_t group, first_pos, rows, n_blocks;
    uint32_t *blocks;
    uint8_t *memory;
    float *q, *k, *v; /* [rows, group, dim], [n_pos, dim] */
    uint32_t window;
    enum window_kind window_kind;
    float cap;
    const float *sinks; /* [group] or NULL */
    uint32_t n_seen, latent;
};

static void store_context(const struct attn_case *c, uint32_t n_pos)
{
    for (uint32_t p = 0; p < n_pos; p++) {
        uint8_t *head = c->memory + c->blocks[p / c->kv.block_tokens] * c->kv.block_bytes +
                        c->kv.head_bytes; /* the second of two heads */
        c->kernels->kv_store(&c->kv,
                             head,
                             p % c->kv.block_tokens,
                             c->k + (size_t)p * c->kv.head_dim,
                             c->v + (size_t)p * c->kv.head_dim);
    }
}

/* Values of V. */
static uint32_t n_value_of(const struct attn_case *c)
{
    return c->kv.latent ? c->kv.latent : c->kv.head_dim;
}

static struct attn_job job_of(
    const struct attn_case *c, uint32_t first_row, uint32_t rows, float *out, float *scratch)
{
    const size_t dim = c->kv.head_dim, n_value = n_value_of(c);
    return (struct attn_job){.kv = &c->kv,
                             .base = c->memory,
                             .blocks = c->blocks,
                             .head_kv = 1,
                             .group = c->group,
                             .first_pos = c->first_pos + first_row,
                             .n_rows = rows,
                             .q = c->q + first_row * c->group * dim,
                             .out = out + first_row * c->group * n_value,
                             .q_stride = c->group * dim,
                             .out_stride = c->group * n_value,
                             .scale = 0.3f,
                             .cap = c->cap,
                             .window = c->window,
                             .window_kind = c->window_kind,
                             .n_seen = c->n_seen,
                             .sinks = c->sinks,
                             .scratch = scratch};
}

static void attend(const struct attn_case *c, uint32_t first_row, uint32_t rows, float *out)
{
    const uint32_t dim = c->kv.head_dim;
    float *scratch = mem_aligned(attn_scratch_floats(dim) * sizeof *scratch);
    memset(scratch, 0xff, attn_scratch_floats(dim) * sizeof *scratch); /* NaN */
    const struct attn_job j = job_of(c, first_row, rows, out, scratch);
    c->kernels->attend(&j);
    free(scratch);
}

/* The same, one range after the other in parts, the last range first, and then folded. */
static void attend_in_parts(const struct attn_case *c, float *out)
{
    const uint32_t dim = c->kv.head_dim;
    float *scratch = mem_aligned(attn_scratch_floats(dim) * sizeof *scratch);
    const struct attn_job j = job_of(c, 0, c->rows, out, scratch);
    const uint32_t first = attn_first_pos(&j, 0) / ATTN_RANGE;
    const uint32_t n = (attn_end(&j) - 1) / ATTN_RANGE + 1 - first;
    const size_t part = attn_part_floats(dim);
    float *parts = mem_aligned(n * part * sizeof *parts);
    for (uint32_t r = n; r-- > 0;)
        c->kernels->attend_part(&j, first + r, parts + r * part);
    memset(scratch, 0xff, attn_scratch_floats(dim) * sizeof *scratch);
    c->kernels->attend_merge(&j, parts, n);
    free(scratch);
    free(parts);
}

/* The first position that a row at `pos` sees, and the one behind the last. */
static void visible(const struct attn_case *c, uint32_t pos, uint32_t *begin, uint32_t *end)
{
    const uint32_t window = c->window;
    *begin = 0;
    *end = c->n_seen ? c->n_seen : pos + 1;
    if (window == 0)
        return;
    for (uint32_t p = *end; p-- > 0;) {
        const uint32_t apart = p > pos ? p - pos : pos - p;
        const bool seen = c->window_kind == WINDOW_LAST    ? p > pos || apart < window
                          : c->window_kind == WINDOW_CHUNK ? p / window == pos / window
                                                           : apart <= window / 2;
        if (!seen && p > pos)
            *end = p;
        if (!seen && p < pos) {
            *begin = p + 1;
            return;
        }
    }
}

static double attn_error(const struct attn_case *c, const float *out)
{
    const uint32_t dim = c->kv.head_dim, n_value = n_value_of(c);
    double num = 0, den = 0, w[2048], want[MAX_HEAD_DIM];
    for (uint32_t i = 0; i < c->rows * c->group; i++) {
        uint32_t begin, n;
        visible(c, c->first_pos + i / c->group, &begin, &n);
        double top = c->sinks ? c->sinks[i % c->group] : -INFINITY, sum = 0;
        for (uint32_t p = begin; p < n; p++) {
            w[p] = 0;
            for (uint32_t d = 0; d < dim; d++)
                w[p] += (double)c->q[(size_t)i * dim + d] * c->k[(size_t)p * dim + d] * 0.3f;
            w[p] = c->cap > 0 ? c->cap * tanh(w[p] / c->cap) : w[p];
            top = w[p] > top ? w[p] : top;
        }
        memset(want, 0, sizeof want);
        sum = c->sinks ? exp(c->sinks[i % c->group] - top) : 0;
        for (uint32_t p = begin; p < n; p++) {
            sum += w[p] = exp(w[p] - top);
            for (uint32_t d = 0; d < n_value; d++)
                want[d] += w[p] * (c->kv.latent ? c->k : c->v)[(size_t)p * dim + d];
        }
        for (uint32_t d = 0; d < n_value; d++) {
            const double diff = out[(size_t)i * n_value + d] - want[d] / sum;
            num += diff * diff;
            den += want[d] / sum * want[d] / sum;
        }
    }
    return num / den;
}

static void check_attention(struct attn_case *c, enum kv_type type, uint32_t dim, uint32_t slots)
{
    static const double limit[] = {
        [KV_F32] = 5e-12, [KV_F16] = 1e-6, [KV_BF16] = 5e-5, [KV_Q8_0] = 3e-4};
    const uint32_t n_pos = c->n_seen ? c->n_seen : c->first_pos + c->rows;
    c->kv = (struct kv_layout){
        .type = type, .head_dim = dim, .latent = c->latent, .block_tokens = slots};
    c->kv.half_bytes = kv_row_bytes(type, dim) * slots;
    c->kv.head_bytes = (c->latent ? 1 : 2) * c->kv.half_bytes;
    c->kv.block_bytes = 2 * c->kv.head_bytes;
    c->n_blocks = (n_pos + slots - 1) / slots;
    c->blocks = mem_alloc(c->n_blocks * sizeof *c->blocks);
    for (uint32_t i = 0; i < c->n_blocks; i++)
        c->blocks[i] = c->n_blocks - 1 - i;
    c->memory = mem_aligned((c->n_blocks + 1) * c->kv.block_bytes);
    memset(c->memory, 0xff, (c->n_blocks + 1) * c->kv.block_bytes); /* NaN where nothing is */
    const size_t n_q = (size_t)c->rows * c->group * dim, n_kv = (size_t)n_pos * dim;
    c->q = mem_alloc(n_q * sizeof *c->q);
    c->k = mem_alloc(n_kv * sizeof *c->k);
    c->v = mem_alloc(n_kv * sizeof *c->v);
    for (size_t i = 0; i < n_q; i++)
        c->q[i] = rnd_float() * 2;
    for (size_t i = 0; i < n_kv; i++) {
        c->k[i] = rnd_float();
        c->v[i] = rnd_float();
    }
    store_context(c, n_pos);
    uint32_t first, end;
    visible(c, c->first_pos, &first, &end);
    for (uint32_t i = 0; i < first / slots; i++)
        c->blocks[i] = c->n_blocks; /* gone: the window has passed it */
    float *out = mem_zalloc(n_q, sizeof *out), *alone = mem_zalloc(n_q, sizeof *out);
    attend(c, 0, c->rows, out);
    const double error = attn_error(c, out);
    /* Scores grow with the root of the dimension, and so does the number of roundings in a sum. */
    const double wider = dim > 128 ? dim / 128.0 : 1;
    if (!(error < limit[type] * wider * wider))
        fail_msg("%s kv %s dim %u slots %u group %u rows %u at %u window %u cap %g: nmse %.2e",
                 c->kernels->name,
                 kv_type_name(type),
                 dim,
                 slots,
                 c->group,
                 c->rows,
                 c->first_pos,
                 c->window,
                 (double)c->cap,
                 error);
    for (uint32_t r = 0; r < c->rows; r++)
        attend(c, r, 1, alone);
    assert_memory_equal(alone, out, n_q * sizeof *out);
    memset(alone, 0, n_q * sizeof *alone);
    attend_in_parts(c, alone);
    assert_memory_equal(alone, out, n_q * sizeof *out);
    free(c->blocks);
    free(c->memory);
    free(c->q);
    free(c->k);
    free(c->v);
    free(out);
    free(alone);
}

static void attention_is_exact(void **s)
{
    (void)s;
    static const uint32_t dims[] = {8, 24, 64, 72, 512}, slots[] = {16, 32, 1, 5, 24};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (int type = KV_F32; type <= KV_Q8_0; type++) {
            for (uint32_t n = 0; n < 25; n++) {
                struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                      .group = 1 + rnd() % 9,
                                      .first_pos = rnd() % 3 ? rnd() % 90 : 0};
                if (n == 24)
                    c.group = ATTN_QUERIES;
                if (n % 5 == (uint32_t)type) /* several ranges, or just at the edge of one */
                    c.first_pos = rnd() % 2 ? rnd() % 1500 : ATTN_RANGE * (1 + rnd() % 2) - 4;
                c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
                check_attention(&c, (enum kv_type)type, dims[n % 5], slots[n / 5]);
            }
        }
    }
}

/* Windows shorter and longer than a tile, a block and a range; caps; sinks; and all of them. Blocks
 * that no row sees any more hold NaN. */
static void windows_caps_and_sinks_are_exact(void **s)
{
    (void)s;
    static const uint32_t dims[] = {8, 64, 24}, slots[] = {16, 5, 32};
    static const uint32_t windows[] = {1, 7, 16, 40, 100, 600, 3000};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 63; n++) {
            float sinks[ATTN_QUERIES];
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = 1 + rnd() % 9,
                                  .first_pos = rnd() % 2 ? rnd() % 90 : rnd() % 1800,
                                  .window = n % 4 ? windows[n % 7] : 0,
                                  .cap = n % 3 == 1 ? 0.5f + (float)(rnd() % 40) : 0};
            for (uint32_t h = 0; h < c.group; h++)
                sinks[h] = rnd_float() * 4;
            c.sinks = n % 2 ? sinks : NULL;
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            check_attention(&c, (enum kv_type)(n % 4), dims[n % 3], slots[n / 3 % 3]);
        }
    }
}

/* K whose first part is V, as attention over a latent has it; and chunks. */
static void latents_and_chunks_are_exact(void **s)
{
    (void)s;
    static const uint32_t dims[][2] = {{576, 512}, {32, 24}, {24, 8}}, slots[] = {16, 5, 32};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 36; n++) {
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = n % 4 ? 1 + rnd() % 9 : 16,
                                  .first_pos = rnd() % 2 ? rnd() % 90 : rnd() % 1800,
                                  .window = n % 3 ? 1 + rnd() % 700 : 0,
                                  .window_kind = WINDOW_CHUNK,
                                  .latent = dims[n % 3][1]};
            if (n >= 24)
                c.latent = 0;
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            check_attention(&c, (enum kv_type)(n % 4), dims[n % 3][0], slots[n / 3 % 3]);
        }
    }
}

/* Every row sees what lies behind it too, up to within one tile, range or block of what follows, or
 * as far as a window to either side. */
static void both_ways_is_exact(void **s)
{
    (void)s;
    static const uint32_t dims[] = {8, 64, 24}, slots[] = {16, 5, 32};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 48; n++) {
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = 1 + rnd() % 4,
                                  .first_pos = n % 3 ? rnd() % 90 : 0};
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            c.n_seen = c.first_pos + c.rows + (n % 4 ? rnd() % 60 : rnd() % 1800);
            c.window = n % 2 ? 1 + rnd() % (n % 8 == 1 ? 1000 : 50) : 0;
            c.window_kind = WINDOW_AROUND;
            check_attention(&c, (enum kv_type)(n % 4), dims[n % 3], slots[n / 3 % 3]);
        }
    }
}

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
        cmocka_unit_test(linears_are_exact),
        cmocka_unit_test(subnormal_halves_are_exact),
        cmocka_unit_test(large_activations_stay_finite),
        cmocka_unit_test(extremes_are_exact),
        cmocka_unit_test(panels_are_as_small_as_files),
        cmocka_unit_test(attention_is_exact),
        cmocka_unit_test(windows_caps_and_sinks_are_exact),
        cmocka_unit_test(latents_and_chunks_are_exact),
        cmocka_unit_test(both_ways_is_exact),
        cmocka_unit_test(exp_is_accurate),
        cmocka_unit_test(rows_are_exact),
        cmocka_unit_test(isas_are_selected),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
