/* Products of every instruction set that this machine has, with every block format, against plain
 * double arithmetic, over odd shapes; and the same bits for a row alone and among others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"
#include "base/mem.h"
#include "few.h"
#include "unit/backend/cpu/isas.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum gguf_type types[] = {
    GGUF_TYPE_F32,   GGUF_TYPE_F16,     GGUF_TYPE_BF16,   GGUF_TYPE_Q8_0,    GGUF_TYPE_Q4_0,
    GGUF_TYPE_Q4_K,  GGUF_TYPE_Q6_K,    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,    GGUF_TYPE_Q5_1,
    GGUF_TYPE_Q5_K,  GGUF_TYPE_IQ4_NL,  GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4,   GGUF_TYPE_Q2_K,
    GGUF_TYPE_Q3_K,  GGUF_TYPE_IQ1_S,   GGUF_TYPE_IQ1_M,  GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS,
    GGUF_TYPE_IQ2_S, GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S,  GGUF_TYPE_TQ1_0,   GGUF_TYPE_TQ2_0,
    GGUF_TYPE_Q1_0,  GGUF_TYPE_Q2_0,    GGUF_TYPE_NVFP4};
_Static_assert(COUNT(types) == N_PANEL_FORMATS, "every format of formats.h");

/* What is not packed is NaN. */
static void *unpacked(size_t n)
{
    return memset(mem_aligned(n), 0xff, n);
}

static struct act_int8 make_int8(uint32_t k, uint32_t rows, uint32_t padded)
{
    const size_t groups = (size_t)padded * (k < 32 ? 1 : k / 32);
    return (struct act_int8){unpacked(act_q_bytes(k, rows)),
                             unpacked(groups * sizeof(struct act_block)),
                             unpacked(groups * sizeof(struct act_halves)),
                             unpacked(groups * ACT_PLANES * sizeof(float)),
                             unpacked(act_q_rows(rows) * act_sums_stride(k) * sizeof(uint16_t)),
                             unpacked(act_q_bytes(k, rows) * sizeof(int16_t))};
}

static struct act make_act(uint32_t k, uint32_t rows)
{
    const uint32_t padded = (rows + 3) / 4 * 4; /* exactly what kernels may touch */
    return (struct act){.k = k,
                        .x = mem_aligned((size_t)padded * k * 4),
                        .bf16 = mem_aligned((size_t)padded * (k + 1) * 2),
                        .two = mem_aligned(act_two_bytes(k, rows)),
                        .hi = mem_aligned(act_high_bytes(k, rows)),
                        .by32 = make_int8(k, rows, padded),
                        .by128 = make_int8(k, rows, padded)};
}

static void free_act(struct act *a)
{
    free(a->x);
    free(a->bf16);
    free(a->two);
    free(a->hi);
    free(a->by32.q);
    free(a->by32.b);
    free(a->by32.halves);
    free(a->by128.q);
    free(a->by128.b);
    free(a->by128.halves);
    free(a->by32.scale);
    free(a->by128.scale);
    free(a->by32.sums);
    free(a->by128.sums);
    free(a->by32.words);
    free(a->by128.words);
}

struct linear_case {
    const struct cpu_kernels *kernels;
    enum panel_format format;
    struct gguf_tensor w;
    uint32_t k, n, rows;
    uint8_t *panels;
    float *x, *bias;    /* [rows, k], [n] */
    const float *scale; /* or NULL */
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
    const unsigned kinds = cpu_act_kinds(c->kernels, c->format, n_rows - skip);
    static uint32_t n_jobs;
    for (uint32_t r = 0; r < n_rows; r++)
        c->kernels->pack(c->x + (size_t)(first + r) * c->k, &a, r, 0, c->k, kinds, lanes);
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
                                 .tuning = (enum cpu_tuning)(n_jobs++ % N_TUNED),
                                 .out = out + (size_t)first * c->n,
                                 .out_stride = c->n,
                                 .scale = c->scale,
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

/* The step of activations in 8 bits that are to reach as far as these, and how many to 1; of some
 * kinds they have fewer steps on one side of 0 than on the other. */
static float step_of(const float *x, uint32_t n, unsigned kinds, float *inverse)
{
    const float most = kinds & ACT_PAIRS_31 ? PAIRS_MOST_31 : PAIRS_MOST;
    float high = 0, low = 0;
    for (uint32_t i = 0; i < n; i++) {
        high = x[i] > high ? x[i] : high;
        low = -x[i] > low ? -x[i] : low;
    }
    const float far = high > low ? high : low, near = high > low ? low : high;
    const bool even = !(kinds & ACT_PAIRS), by_near = !even && near > far * (most / 128);
    const float steps = even ? 127 : by_near ? most : 128, reach = by_near ? near : far;
    const float sign = !even && high > low ? -1 : 1;
    *inverse = reach > 0 ? sign * steps / reach : 0;
    return sign * reach / steps;
}

/* A row of activations as the kernel sees it: rounded to 8 bits for quantised weights, to bf16
 * where those are multiplied. */
static void see(const struct linear_case *c, const float *x, double *a)
{
    const unsigned kinds = c->kernels->act_kinds[c->format];
    const uint32_t per = kinds == ACT_INT8 ? 32 : SUPER_K;
    float d = 0, inverse = 0;
    for (uint32_t k = 0; k < c->k; k++) {
        a[k] = x[k];
        if (kinds & (ACT_BF16 | ACT_HIGH))
            a[k] = bf16_to_f32(f32_to_bf16(x[k]));
        if (kinds & (ACT_INT8 | ACT_INT8_128)) {
            if (k % per == 0)
                d = step_of(x + k, per, kinds, &inverse);
            a[k] = nearbyintf(x[k] * inverse) * d;
        }
    }
}

/* Weights of Q8_0 as the kernel sees them where they become bf16: d q is cut to 8 bits, from a
 * slightly larger d of 15. */
static void see_weights(const struct linear_case *c, const uint8_t *blocks, float *w)
{
    if (c->kernels->act_kinds[c->format] != ACT_HIGH)
        return;
    for (uint32_t k = 0; k < c->k; k++) {
        const struct block_q8_0 *block = (const struct block_q8_0 *)blocks + k / 32;
        union {
            float f;
            uint32_t bits;
        } x = {f16_to_f32(block->d) * (1.0f + 1.0f / 384)};
        x.bits &= ~UINT32_C(0x1ff);
        x.f *= (float)block->qs[k % 32];
        x.bits &= ~UINT32_C(0xffff);
        w[k] = x.f;
    }
}

/* size: the sum of magnitudes, what rounding errors are in proportion to, however much of the sum
 * itself cancels out; lost: what is left out where activations are two bf16. */
struct exact {
    double sum, size, lost;
};

/* The exact sum over what the kernel sees of x, a; without what is left out. */
static struct exact exact(const struct linear_case *c,
                          const float *w,
                          const float *x,
                          const double *a)
{
    struct exact e = {0};
    const bool two = c->kernels->act_kinds[c->format] == ACT_TWO;
    for (uint32_t k = 0; k < c->k; k++) {
        if (two)
            e.lost += left_out(c->format, w[k], x[k]);
        e.sum += w[k] * a[k];
        e.size += fabs(w[k] * a[k]);
    }
    e.sum -= e.lost;
    return e;
}

/* Does a tile unit take off the format's minima? All but 2^-16 of them. */
static bool takes_off_apart(const struct cpu_kernels *kernels, enum panel_format format)
{
    return kernels->act_parts(format, 1) & ACT_CLOSE;
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
    double *seen = mem_alloc((size_t)c->rows * c->k * sizeof *seen);
    for (uint32_t r = 0; r < c->rows; r++)
        see(c, c->x + (size_t)r * c->k, seen + (size_t)r * c->k);
    out[(size_t)c->rows * c->n] = 77; /* a guard */
    run_linear(c, 0, c->rows, ACT_TILE, false, out);
    double num = 0, den = 0;
    for (uint32_t j = 0; j < c->n; j++) {
        const uint8_t *blocks = c->w.data + j * (c->w.n_bytes / c->n);
        gguf_dequantize(c->w.type, blocks, row, c->k);
        see_weights(c, blocks, row);
        for (uint32_t r = 0; r < c->rows; r++) {
            const double bias = c->bias ? c->bias[j] : 0;
            const size_t at = (size_t)r * c->k;
            const struct exact e = exact(c, row, c->x + at, seen + at);
            const double want = e.sum + bias, size = e.size + fabs(bias);
            const double got = out[(size_t)r * c->n + j];
            assert_true(fabs(e.lost) <= most_left_out(c) * e.size);
            num += (got - want) * (got - want);
            den += size * size;
        }
    }
    if (!(num <= den * (takes_off_apart(c->kernels, c->format) ? 1e-12 : 1e-13)))
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
    free(seen);
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
    static const uint32_t counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 12, 14, 16, 17,
                                      20, 23, 28, 32, 33, 36, 49, 62, 64, 65, 73, 88, 201};
    static size_t n_seen;
    for (size_t at = 0; at < COUNT(counts); at++) {
        const uint32_t rows = counts[at];
        if (few_leave_out(n_seen++, 9))
            continue;
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

/* The first `rows` rows from `skip` on and the first n columns, of panels that end where memory
 * does, against what each row has alone: all [c->rows][c->n]. */
static void check_among(
    const struct linear_case *c, uint32_t skip, uint32_t rows, uint32_t n, const float *all)
{
    const size_t bytes = panel_bytes(c->format, c->k) * ((n + 15) / 16);
    struct linear_case part = *c;
    part.n = n;
    part.panels = memcpy(mem_aligned(bytes), c->panels, bytes);
    const size_t size = (size_t)(skip + rows) * n;
    float *out = mem_zalloc(size + 1, sizeof *out);
    memset(out, 0xff, (size + 1) * sizeof *out); /* NaN */
    run_linear_from(&part, 0, skip + rows, skip, rows == 1 && !skip ? 1 : ACT_TILE, false, out);
    for (uint32_t r = 0; r < skip + rows; r++) {
        for (uint32_t j = 0; j < n; j++) {
            const float got = out[(size_t)r * n + j], want = all[(size_t)r * c->n + j];
            if (r < skip ? got == got : memcmp(&got, &want, sizeof got) != 0)
                fail_msg("%s %s k %u: column %u of row %u, of %u columns of rows %u to %u",
                         c->kernels->name,
                         gguf_type_name(c->w.type),
                         c->k,
                         j,
                         r,
                         n,
                         skip,
                         skip + rows - 1);
        }
    }
    assert_true(out[size] != out[size]);
    free(part.panels);
    free(out);
}

/* Numbers of rows up to more than most kernels take before they widen weights, beside numbers of
 * panels that leave some over, whichever are taken at a time: a row's bits are those that it has
 * alone. Few rows, which take as many panels as a processor is tuned for, by every tuning, at the
 * beginning and behind others. */
static void any_rows_and_panels_are_exact(void **s)
{
    (void)s;
    enum { MOST_ROWS = 40, MOST_PANELS = 9, SKIP = ACT_TILE, EACH_TUNING = 4 /* rows */ };
    static const float scale = 0.7f;
    for (size_t i = 0; i < COUNT(isas) * COUNT(types); i++) {
        const size_t isa = i / COUNT(types), type = i % COUNT(types);
        const uint32_t unit = gguf_type_info(types[type])->block_values;
        struct linear_case c = {.kernels = cpu_kernels_select(isas[isa]),
                                .rows = MOST_ROWS + SKIP,
                                .n = MOST_PANELS * PANEL_COLS,
                                .scale = &scale,
                                .k = unit == 1    ? 33
                                     : unit < 256 ? 19 * unit /* beyond what a part of K holds */
                                                  : 2 * unit};
        assert_true(panel_format_of(types[type], &c.format));
        c.w = make_tensor(types[type], c.k, c.n);
        const size_t bytes = panel_bytes(c.format, c.k);
        c.panels = mem_aligned(bytes * MOST_PANELS);
        for (uint32_t p = 0; p < MOST_PANELS; p++)
            panel_pack(c.format, &c.w, p, c.panels + p * bytes);
        c.x = mem_alloc((size_t)c.rows * c.k * sizeof *c.x);
        for (size_t at = 0; at < (size_t)c.rows * c.k; at++)
            c.x[at] = rnd_float();
        float *all = mem_alloc((size_t)c.rows * c.n * sizeof *all);
        for (uint32_t r = 0; r < c.rows; r++)
            run_linear(&c, r, 1, 1, false, all);
        const bool plain = strcmp(c.kernels->name, "reference") == 0; /* slow, and up to 8 alike */
        for (uint32_t rows = 1; rows <= (plain ? 12 : MOST_ROWS); rows++) {
            if (few_leave_out(rows + i, 3))
                continue;
            const uint32_t panels = 1 + (uint32_t)(rows + rows / 3 + i) % MOST_PANELS;
            const uint32_t n = panels * PANEL_COLS - rnd() % PANEL_COLS;
            for (uint32_t at = 0; rows <= EACH_TUNING && at < 2 * N_TUNED; at++)
                check_among(&c, at < N_TUNED ? 0 : SKIP, rows, n, all);
            if (rows > EACH_TUNING)
                check_among(&c, rnd() % 3 ? 0 : SKIP, rows, n, all);
        }
        free((void *)(uintptr_t)c.w.data);
        free(c.panels);
        free(c.x);
        free(all);
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

/* Also all at once, of more rows than a unit takes. */
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

/* More panels than those whose sums a job holds at a time, of more rows than have none to hold. */
static void groups_of_panels_are_exact(void **s)
{
    (void)s;
    static const enum gguf_type of[] = {GGUF_TYPE_F16, GGUF_TYPE_BF16, GGUF_TYPE_Q8_0};
    const uint32_t n = LINEAR_MAX_SUMS * PANEL_COLS + 40;
    for (size_t i = 0; i < COUNT(of) * COUNT(isas); i++) {
        const uint32_t k = 32 * (9 + rnd() % 3); /* more than a part */
        struct linear_case c = make_halves(of[i % COUNT(of)], k, n, 65 + rnd() % 5);
        c.kernels = cpu_kernels_select(isas[i / COUNT(of)]);
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

/* Likewise of weights that are all 64 / 128. */
static void large_activations_meet_q8_0(void **s)
{
    (void)s;
    static const float large[] = {FLT_MAX, -FLT_MAX, INFINITY, -INFINITY, NAN};
    const struct block_q8_0 ones = {.d = f32_to_f16(1.0f / 128)};
    for (size_t i = 0; i < COUNT(isas) * COUNT(large) * 2; i++) {
        struct linear_case c = make_halves(GGUF_TYPE_Q8_0, 64, 16, i % 2 ? 5 : 1);
        c.kernels = cpu_kernels_select(isas[i / 2 / COUNT(large)]);
        for (size_t at = 0; at < c.w.n_bytes; at += sizeof ones) {
            struct block_q8_0 *block = (struct block_q8_0 *)(uintptr_t)(c.w.data + at);
            *block = ones;
            memset(block->qs, 64, sizeof block->qs);
        }
        pack_halves(&c);
        const float x = large[i / 2 % COUNT(large)];
        float out[5 * 16];
        c.x[33] = x;
        run_linear(&c, 0, c.rows, ACT_TILE, false, out);
        for (int j = 0; j < 16; j++) {
            assert_int_equal(isfinite(out[j]) != 0, isfinite(x) != 0);
            if (isfinite(x))
                assert_true(fabs(out[j] - 0.5 * x) <= FLT_MAX * 0.005);
            else if (c.kernels->act_kinds[c.format] == ACT_HIGH && !isnan(x))
                assert_true(out[j] == x);
        }
        free_halves(&c);
    }
}

/* A sum too small for the normal exponents, here a bias that meets nothing, is the same in a row
 * alone and among others, whether an instruction set keeps it or not. */
static void subnormal_sums_do_not_depend_on_rows(void **s)
{
    (void)s;
    static const enum gguf_type some[] = {GGUF_TYPE_F16,
                                          GGUF_TYPE_BF16,
                                          GGUF_TYPE_Q8_0,
                                          GGUF_TYPE_Q4_K,
                                          GGUF_TYPE_Q5_K,
                                          GGUF_TYPE_Q6_K};
    enum { ROWS = 33, N = 17 };
    static const uint32_t at_once[] = {2, 8, 16};
    float bias[N], out[ROWS * N] = {0}, before[ROWS * N], alone[ROWS * N];
    for (int j = 0; j < N; j++)
        bias[j] = 1e-40f * (float)(j + 1);
    for (size_t i = 0; i < COUNT(isas) * COUNT(some); i++) {
        struct linear_case c = make_halves(some[i % COUNT(some)], 256, N, ROWS);
        c.kernels = cpu_kernels_select(isas[i / COUNT(some)]);
        c.bias = bias;
        memset((uint8_t *)(uintptr_t)c.w.data, 0, c.w.n_bytes);
        pack_halves(&c);
        for (int add = 0; add < 2; add++) {
            memcpy(before, out, sizeof out); /* what is added to */
            run_linear(&c, 0, ROWS, ACT_TILE, add, out);
            for (size_t a = 0; a < COUNT(at_once); a++) {
                memcpy(alone, before, sizeof out);
                run_linear(&c, 0, 1, 1, add, alone);
                for (uint32_t r = 1; r < ROWS; r += at_once[a])
                    run_linear(&c, r, at_once[a], ACT_TILE, add, alone);
                assert_memory_equal(alone, out, sizeof out);
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
 * between those that add floats alike, of activations rounded alike. Rows and panels end within
 * what a tile unit takes. */
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
        const struct cpu_kernels *kernels = cpu_kernels_select(isas[i]);
        struct cpu_kernels alike = *cpu_kernels_select("avx2");
        if (i < 2 || strcmp(alike.name, "reference") == 0 ||
            kernels->act_kinds[c.format] == ACT_HIGH || /* no integers */
            takes_off_apart(kernels, c.format))
            alike = *kernels;
        alike.act_kinds[c.format] = kernels->act_kinds[c.format];
        c.kernels = &alike;
        run_linear(&c, 0, rows, ACT_TILE, false, first);
        c.kernels = kernels;
        check_linear(&c);
        run_linear(&c, 0, rows, ACT_TILE, false, out);
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
    static const uint32_t rows[] = {10, 17, 31, 33, 64, 85, LINEAR_MAX_ROWS}, ns[] = {16, 17, 40};
    for (size_t t = 0; t < COUNT(types); t++) {
        const uint32_t unit = gguf_type_info(types[t])->block_values;
        for (size_t i = 0; unit > 1 && i < COUNT(rows); i++) {
            if (few_leave_out(i + t, 7))
                continue;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_are_exact),
        cmocka_unit_test(any_rows_and_panels_are_exact),
        cmocka_unit_test(groups_of_panels_are_exact),
        cmocka_unit_test(subnormal_halves_are_exact),
        cmocka_unit_test(large_activations_stay_finite),
        cmocka_unit_test(large_activations_meet_q8_0),
        cmocka_unit_test(subnormal_sums_do_not_depend_on_rows),
        cmocka_unit_test(extremes_are_exact),
        cmocka_unit_test(panels_are_as_small_as_files),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
