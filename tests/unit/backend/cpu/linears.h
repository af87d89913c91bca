/* For tests of products: some rows times some panels, by one instruction set, and how exact that
 * has to be. */
#ifndef WEIR_TESTS_LINEARS_H
#define WEIR_TESTS_LINEARS_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"
#include "base/mem.h"
#include "unit/backend/cpu/isas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

#endif
