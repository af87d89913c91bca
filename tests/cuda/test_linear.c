/* Matrix products of every format on the device (or its emulation) against double arithmetic over
 * what gguf_dequantize says, over odd shapes; the same bits for a row alone, among others, and
 * whatever number of rows a launch was made for; embeddings bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"
#include "backend/cuda/linear_layout.h"
#include "cuda/device.h"
#include "few.h"
#include "unit/backend/cpu/weights.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const enum gguf_type types[] = {
    GGUF_TYPE_F32,    GGUF_TYPE_F16,     GGUF_TYPE_BF16,  GGUF_TYPE_Q8_0,    GGUF_TYPE_Q4_0,
    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,    GGUF_TYPE_Q5_1,  GGUF_TYPE_IQ4_NL,  GGUF_TYPE_MXFP4,
    GGUF_TYPE_Q2_K,   GGUF_TYPE_Q3_K,    GGUF_TYPE_Q4_K,  GGUF_TYPE_Q5_K,    GGUF_TYPE_Q6_K,
    GGUF_TYPE_IQ4_XS, GGUF_TYPE_IQ1_S,   GGUF_TYPE_IQ1_M, GGUF_TYPE_IQ2_XXS, GGUF_TYPE_IQ2_XS,
    GGUF_TYPE_IQ2_S,  GGUF_TYPE_IQ3_XXS, GGUF_TYPE_IQ3_S, GGUF_TYPE_TQ1_0,   GGUF_TYPE_TQ2_0,
    GGUF_TYPE_Q1_0,   GGUF_TYPE_Q2_0,    GGUF_TYPE_NVFP4};

static int start(void **s)
{
    (void)s;
    const char *given = getenv("SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

struct linear_case {
    struct gguf_tensor w;
    uint32_t k, n, rows;
    struct cuda_matrix matrix;
    float *x;         /* [rows][k] */
    float *bias;      /* [n] of the device, or NULL */
    float *host_bias; /* the same */
    float *factors;   /* [1] of the device, or NULL; */
    float factor;     /* which is this, or 1 */
};

/* The matrix as it is laid out on the device, part by part. */
static struct cuda_matrix upload(const struct gguf_tensor *t, uint32_t k, uint32_t n)
{
    const int type = (int)t->type;
    const uint32_t step = CUDA_PART_ROWS;
    const size_t part = cuda_part_bytes(type, k), row_bytes = t->n_bytes / n;
    const size_t bytes = cuda_matrix_bytes(type, k, n);
    uint8_t *data = mem_alloc(bytes);
    assert_true(cuda_matrix_known(type));
    assert_int_equal(bytes, part * ((n + step - 1) / step));
    for (uint32_t r = 0; r < n; r += step)
        cuda_part_pack(
            type, k, n - r < step ? n - r : step, t->data + r * row_bytes, data + r / step * part);
    const struct cuda_matrix m = {type, k, n, device_copy(data, bytes)};
    free(data);
    return m;
}

static struct linear_case make_case(enum gguf_type type, uint32_t k, uint32_t n, uint32_t rows)
{
    struct linear_case c = {
        .k = k, .n = n, .rows = rows, .w = make_tensor(type, k, n), .factor = 1};
    c.matrix = upload(&c.w, k, n);
    c.x = mem_alloc((size_t)rows * k * sizeof *c.x);
    for (size_t i = 0; i < (size_t)rows * k; i++)
        c.x[i] = rnd_float();
    return c;
}

static void free_case(struct linear_case *c)
{
    free((void *)(uintptr_t)c->w.data);
    cudaFree((void *)(uintptr_t)c->matrix.data);
    cudaFree(c->bias);
    cudaFree(c->factors);
    free(c->host_bias);
    free(c->x);
}

/* Rows first .. first + n - 1 in a launch that was made for `bound`, onto out [rows][n_out]. */
static void run(const struct linear_case *c, uint32_t first, uint32_t n, uint32_t bound, float *out)
{
    const size_t out_bytes = (size_t)n * c->n * sizeof(float);
    const unsigned forms = rnd() % 2 ? 7 : cuda_act_form(c->matrix.type);
    struct cuda_at at = at_make(n, bound);
    at.block_shared = device_block_shared(rnd() % 2);
    at.wgmma = rnd() % 2 && device_has_wgmma();
    at.processors = rnd() % 2; /* so few have blocks of 256 outputs */
    float *x = device_copy(c->x + (size_t)first * c->k, (size_t)n * c->k * sizeof *x);
    struct cuda_linear op = {
        .w = c->matrix,
        .act = {.data = device_bytes(cuda_act_bytes(forms, bound, c->k)),
                .k = c->k,
                .forms = forms},
        .bias = c->bias,
        .factors = c->factors,
        .out = {device_bytes(out_bytes), c->n},
        .scratch = device_bytes(cuda_linear_scratch(bound, c->k, c->n)),
    };
    cuda_act_pack(&at, (struct cuda_buf){x, c->k}, &op.act);
    cuda_linear(&at, &op, 1);
    host_copy(out + (size_t)first * c->n, op.out.p, out_bytes);
    if (rnd() % 8 == 0) { /* once more, added on */
        float *twice = mem_alloc(out_bytes);
        op.add = 1;
        cuda_linear(&at, &op, 1);
        host_copy(twice, op.out.p, out_bytes);
        for (size_t i = 0; i < (size_t)n * c->n; i++) {
            const float once = out[(size_t)first * c->n + i];
            assert_true(twice[i] == once + once || isnan(once));
        }
        free(twice);
    }
    cudaFree(x);
    cudaFree(op.act.data);
    cudaFree(op.out.p);
    cudaFree(op.scratch);
    at_free(&at);
}

/* A row as it is multiplied: f16 after a scale of a power of two for the row, or as it is. */
static void see(enum gguf_type type, const float *x, uint32_t n, double *seen)
{
    float largest = 0;
    for (uint32_t k = 0; k < n; k++)
        largest = fabsf(x[k]) > largest ? fabsf(x[k]) : largest;
    const bool as_it_is = cuda_act_form((int)type) != CUDA_ACT_F16 || largest == 0;
    const float scale = as_it_is ? 1 : ldexpf(1, 10 - ilogbf(largest));
    for (uint32_t k = 0; k < n; k++)
        seen[k] = as_it_is ? x[k] : (double)f16_to_f32(f32_to_f16(x[k] * scale)) / scale;
}

#ifdef EMU_CUDA_RUNTIME_API_H
extern int emu_cuts_off(void);
#else
#define emu_cuts_off() 1
#endif

struct nmse {
    double num, den;
};

static bool is_quantised(enum gguf_type type)
{
    return gguf_type_info(type)->block_values > 1;
}
/* Mins, or what lies as formats with mins do. */
static bool has_mins(enum gguf_type type)
{
    return has_second_scale(type) || type == GGUF_TYPE_TQ1_0 || type == GGUF_TYPE_TQ2_0;
}

/* What rounding may make of products, besides that of x, as the mean of the squared errors of n of
 * them: of the sum of |w x|, or (quantised) of the root of that of (w x)^2, as each weight is
 * rounded by itself.
 *
 *      f32, bf16   sums in f32; 16 bits of each x
 *      sums        a device's tensor cores cut off what is below the last bit of the largest term,
 *                  of 16 and the sum so far, where the emulation rounds unless it is told to do as
 *                  they do (WEIR_EMU_SUMS): some 2^-20 of the terms' size
 *      quantised   2^-11 of each weight, and as much of its scale: 5e-7. A min and the scale are
 *                  rounded each, and the weight is a difference: 8 times that. The errors add up
 *                  as chance has it: t = 28 leaves one case in 10^12 (Laurent and Massart, Adaptive
 *                  estimation of a quadratic functional, 2000, lemma 1). */
static double bound_of(enum gguf_type type, double n)
{
    if (is_quantised(type)) {
        const double t = 28;
        return (has_mins(type) ? 4e-6 : 5e-7) * (1 + 2 * sqrt(t / n) + 2 * t / n);
    }
    return type == GGUF_TYPE_F32    ? 1e-13
           : type == GGUF_TYPE_BF16 ? 1e-11
           : emu_cuts_off()         ? 4e-12
                                    : 1e-13;
}

/* The error against the values themselves; fails if it is more than rounding explains. */
static struct nmse error_of(const struct linear_case *c, const float *out)
{
    struct nmse e = {0, 0}, exact = {0, 0};
    float *w = mem_alloc(c->k * sizeof *w);
    double *all = mem_alloc((size_t)c->rows * c->k * sizeof *all);
    for (uint32_t r = 0; r < c->rows; r++)
        see(c->w.type, c->x + (size_t)r * c->k, c->k, all + (size_t)r * c->k);
    for (uint32_t j = 0; j < c->n; j++) {
        gguf_dequantize(c->w.type, c->w.data + j * (c->w.n_bytes / c->n), w, c->k);
        for (uint32_t r = 0; r < c->rows; r++) {
            const float *x = c->x + (size_t)r * c->k;
            const double f = c->factor, *as_seen = all + (size_t)r * c->k;
            double want = c->bias ? c->host_bias[j] : 0, seen = want;
            double size = fabs(want), squares = want * want * 1e-6;
            for (uint32_t k = 0; k < c->k; k++) {
                want += f * w[k] * x[k];
                seen += f * w[k] * as_seen[k];
                size += fabs(f * w[k] * x[k]);
                squares += f * w[k] * x[k] * f * w[k] * x[k];
            }
            const double got = out[(size_t)r * c->n + j];
            e.num += (got - want) * (got - want);
            e.den += want * want;
            exact.num += (got - seen) * (got - seen);
            exact.den += is_quantised(c->w.type) ? squares : size * size;
        }
    }
    free(w);
    free(all);
    if (!(exact.num <= exact.den * bound_of(c->w.type, (double)c->rows * c->n)))
        fail_msg("%s k %u n %u rows %u: nmse %.2e",
                 gguf_type_name(c->w.type),
                 c->k,
                 c->n,
                 c->rows,
                 exact.num / exact.den);
    return e;
}

static void give_bias(struct linear_case *c)
{
    c->host_bias = mem_alloc(c->n * sizeof(float));
    for (uint32_t j = 0; j < c->n; j++)
        c->host_bias[j] = rnd_float();
    c->bias = device_copy(c->host_bias, c->n * sizeof(float));
}

static void give_factor(struct linear_case *c)
{
    c->factor = 0.25f + 3 * fabsf(rnd_float());
    c->factors = device_copy(&c->factor, sizeof c->factor);
}

/* All rows at once, then again in other company and for other bounds. */
static void check(struct linear_case *c)
{
    const size_t bytes = (size_t)c->rows * c->n * sizeof(float);
    float *out = mem_alloc(bytes), *again = mem_alloc(bytes);
    run(c, 0, c->rows, c->rows, out);
    (void)error_of(c, out);
    memset(again, 0, bytes);
    if (few_shapes()) {
        free(out);
        free(again);
        return;
    }
    for (uint32_t r = 0, n; r < c->rows; r += n) {
        static const uint32_t bounds[] = {1, 5, 8, 9, 64, 70, 130};
        n = c->rows - r < 1 + rnd() % 12 ? c->rows - r : 1;
        uint32_t bound = bounds[rnd() % COUNT(bounds)];
        run(c, r, n, bound < n ? n : bound, again);
    }
    assert_memory_equal(again, out, bytes);
    free(out);
    free(again);
}

static void products_are_right_in_any_company(void **s)
{
    (void)s;
    static const uint32_t ns[] = {1, 15, 16, 17, 33, 130};
#ifdef EVERY_ACCESS_CHECKED
    static const uint32_t rows[] = {2, 9, 70};
#else
    static const uint32_t rows[] = {1, 2, 7, 8, 9, 20, 70};
#endif
    for (size_t t = 0; t < COUNT(types); t++) {
        const uint32_t unit = gguf_type_info(types[t])->block_values;
        for (size_t i = 0; i < COUNT(rows); i++) {
            if (few_shapes() && rows[i] != 9 && rows[i] != 70)
                continue;
            const uint32_t most = rows[i] < 10 ? 1100 : 300;
            const uint32_t k =
                unit == 1 ? 1 + rnd() % most : unit * (1 + rnd() % (most / unit + 1));
            struct linear_case c = make_case(types[t], k, ns[rnd() % COUNT(ns)], rows[i]);
            if (rnd() % 2)
                give_bias(&c);
            if (types[t] == GGUF_TYPE_NVFP4 || rnd() % 4 == 0)
                give_factor(&c);
            check(&c);
            free_case(&c);
        }
    }
}

/* Many rows in one launch whose ranges of K have no blocks of their own, and one where they have.
 */
static void large_launches_give_the_same_bits(void **s)
{
    (void)s;
    static const enum gguf_type some[] = {
        GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, GGUF_TYPE_F16, GGUF_TYPE_NVFP4};
    for (size_t t = 0; t < (few_shapes() ? 1 : COUNT(some)); t++) {
        struct linear_case c = make_case(some[t], 1024, 30, 150);
        give_factor(&c);
        const size_t bytes = (size_t)c.rows * c.n * sizeof(float);
        float *out = mem_alloc(bytes), *again = mem_alloc(bytes);
        run(&c, 0, c.rows, c.rows, out);
        (void)error_of(&c, out);
        run(&c, 0, c.rows, 64 * 128 + 1, again); /* one block more than ranges are given to */
        assert_memory_equal(again, out, bytes);
        for (uint32_t r = 0; r < 3; r++)
            run(&c, r * 70, 1, 1, again);
        assert_memory_equal(again, out, bytes);
        free(out);
        free(again);
        free_case(&c);
    }
}

/* Matrices of each head's own, over rows of its own or the same ones: as if each head's rows were
 * all there is, to the bit. */
static void heads_have_their_own(void **s)
{
    (void)s;
    enum { HEADS = 3 };
    static const enum gguf_type some[] = {
        GGUF_TYPE_F32, GGUF_TYPE_F16, GGUF_TYPE_BF16, GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_K};
    static const uint32_t n_rows[] = {3, 21, 70};
    for (size_t t = 0; t < COUNT(some) * COUNT(n_rows) * 2; t++) {
        const enum gguf_type type = some[t / 2 / COUNT(n_rows)];
        const uint32_t k = 256, n = 40, rows = n_rows[t / 2 % COUNT(n_rows)], bound = rows + 2;
        const bool same = t % 2;
        if (few_shapes() && type != GGUF_TYPE_Q8_0)
            continue;
        const uint32_t in_step = same ? 0 : k + 5, out_step = n + 3;
        const size_t part = cuda_matrix_bytes((int)type, k, n), width = same ? k : HEADS * in_step;
        const size_t out_bytes = (size_t)rows * HEADS * out_step * sizeof(float);
        uint8_t *w = device_bytes(part * HEADS);
        float *x = mem_zalloc(rows * width, sizeof *x), *out = mem_alloc(out_bytes);
        float *want[HEADS];
        for (uint32_t h = 0; h < HEADS; h++) {
            struct linear_case c = make_case(type, k, n, rows);
            if (same && h > 0)
                memcpy(c.x, x, rows * width * sizeof *x);
            want[h] = mem_alloc((size_t)rows * n * sizeof(float));
            run(&c, 0, rows, rows, want[h]);
            for (uint32_t r = 0; r < rows; r++)
                memcpy(x + r * width + h * in_step, c.x + (size_t)r * k, k * sizeof *x);
            assert_int_equal(
                cudaMemcpy(w + h * part, c.matrix.data, part, cudaMemcpyDeviceToDevice),
                cudaSuccess);
            free_case(&c);
        }
        const unsigned form = cuda_act_form((int)type);
        struct cuda_at at = at_make(rows, bound);
        at.wgmma = rnd() % 2 && device_has_wgmma();
        float *in = device_copy(x, rows * width * sizeof *x);
        struct cuda_linear op = {
            .w = {(int)type, k, n, w},
            .act = {device_bytes(cuda_act_bytes(form, bound, k) * HEADS), k, form, HEADS, in_step},
            .out = {device_bytes(out_bytes), HEADS * out_step},
            .out_step = out_step};
        op.act.heads = same ? 0 : HEADS;
        cuda_act_pack(&at, (struct cuda_buf){in, width}, &op.act);
        op.act.heads = HEADS;
        cuda_linear(&at, &op, 1);
        host_copy(out, op.out.p, out_bytes);
        for (uint32_t i = 0; i < rows * HEADS; i++)
            assert_memory_equal(
                out + (size_t)i * out_step, want[i % HEADS] + i / HEADS * n, n * sizeof(float));
        for (uint32_t h = 0; h < HEADS; h++)
            free(want[h]);
        free(x);
        free(out);
        cudaFree(w);
        cudaFree(in);
        cudaFree(op.act.data);
        cudaFree(op.out.p);
        at_free(&at);
    }
}

/* The CPU's kernels, over the same. */
static void run_cpu(const struct linear_case *c, float *out)
{
    const struct cpu_kernels *kernels = cpu_kernels_select("reference");
    enum panel_format format;
    assert_true(panel_format_of(c->w.type, &format));
    const uint32_t n_panels = (c->n + 15) / 16, padded = (c->rows + 3) / 4 * 4;
    const size_t bytes = panel_bytes(format, c->k);
    uint8_t *panels = mem_aligned(bytes * n_panels), *scratch = mem_aligned(LINEAR_SCRATCH_BYTES);
    for (uint32_t p = 0; p < n_panels; p++)
        panel_pack(format, &c->w, p, panels + p * bytes);
    struct act a = {
        .k = c->k,
        .x = mem_aligned((size_t)padded * c->k * 4),
        .bf16 = mem_aligned((size_t)padded * (c->k + 1) * 2),
        .by32 = {mem_aligned(act_q_bytes(c->k, padded)),
                 mem_aligned((size_t)padded * (c->k / 32 + 1) * sizeof(struct act_block)),
                 mem_aligned((size_t)padded * (c->k / 32 + 1) * sizeof(struct act_halves)),
                 mem_aligned((size_t)padded * (c->k / 32 + 1) * ACT_PLANES * sizeof(float))}};
    a.by128 = a.by32; /* one of them is packed */
    const unsigned kinds = cpu_act_kinds(kernels, format, c->rows);
    for (uint32_t r = 0; r < c->rows; r++)
        kernels->pack(c->x + (size_t)r * c->k, &a, r, 0, c->k, kinds, ACT_TILE);
    const struct linear_job job = {.panels = panels,
                                   .panel_bytes = bytes,
                                   .n_panels = n_panels,
                                   .n_cols = c->n,
                                   .act = &a,
                                   .act_lanes = ACT_TILE,
                                   .n_rows = c->rows,
                                   .scratch = scratch,
                                   .prefetch = cpu_kernels_prefetch(c->rows),
                                   .out = out,
                                   .out_stride = c->n};
    kernels->linear[format](&job);
    free(panels);
    free(scratch);
    free(a.x);
    free(a.by32.q);
    free(a.bf16);
    free(a.by32.b);
    free(a.by32.halves);
    free(a.by32.scale);
}

static void errors_are_below_the_cpus(void **s)
{
    (void)s;
    if (few_shapes())
        skip();
    print_message("%-8s %10s %10s\n", "nmse", "cuda", "cpu");
    for (size_t t = 0; t < COUNT(types); t++) {
        struct linear_case c = make_case(types[t], 2048, 32, 16);
        float *out = mem_alloc((size_t)c.rows * c.n * sizeof *out);
        run(&c, 0, c.rows, c.rows, out);
        const struct nmse cuda = error_of(&c, out);
        run_cpu(&c, out);
        struct nmse cpu = {0, 0};
        float *w = mem_alloc(c.k * sizeof *w);
        for (uint32_t j = 0; j < c.n; j++) {
            gguf_dequantize(c.w.type, c.w.data + j * (c.w.n_bytes / c.n), w, c.k);
            for (uint32_t r = 0; r < c.rows; r++) {
                double want = 0;
                for (uint32_t k = 0; k < c.k; k++)
                    want += (double)w[k] * c.x[(size_t)r * c.k + k];
                cpu.num += (out[(size_t)r * c.n + j] - want) * (out[(size_t)r * c.n + j] - want);
                cpu.den += want * want;
            }
        }
        free(w);
        print_message("%-8s %10.2e %10.2e\n",
                      gguf_type_name(types[t]),
                      cuda.num / cuda.den,
                      cpu.num / cpu.den);
        /* floats: the CPU multiplies them in f32 */
        if (is_quantised(types[t]))
            assert_true(cuda.num / cuda.den <= cpu.num / cpu.den / 10);
        assert_true(cuda.num / cuda.den <= (types[t] == GGUF_TYPE_F32 ? 1e-13
                                            : has_mins(types[t])      ? 6e-7
                                                                      : 2e-7));
        free(out);
        free_case(&c);
    }
}

/* Scales of a tensor's blocks, by a power of two each: `each` says of row and block which. */
typedef int (*spread_fn)(uint32_t row, uint32_t block);
static void spread_scales(struct gguf_tensor *w, spread_fn each)
{
    const struct gguf_type_info *info = gguf_type_info(w->type);
    uint8_t *b = (uint8_t *)(uintptr_t)w->data;
    const uint32_t blocks = (uint32_t)(w->ne[0] / info->block_values);
    for (size_t i = 0; i < blocks * w->ne[1]; i++, b += info->block_bytes) {
        const int e = each((uint32_t)(i / blocks), (uint32_t)(i % blocks));
        if (w->type == GGUF_TYPE_MXFP4) {
            b[0] = (uint8_t)(b[0] + e);
            continue;
        }
        for (int s = 0; s <= has_second_scale(w->type); s++) {
            uint8_t *at = b + scale_at(w->type) + (size_t)s * 2;
            uint16_t h;
            memcpy(&h, at, 2);
            h = f32_to_f16(fminf(ldexpf(f16_to_f32(h), e), 65504));
            memcpy(at, &h, 2);
        }
    }
}
static int far_apart(uint32_t row, uint32_t block) /* 2^20 between rows, 2^12 within them */
{
    return 8 - (int)(row * 4 % 21) - (int)(block * 5 % 13) * (row > 5);
}
static int largest_and_least(uint32_t row, uint32_t block) /* 65504, subnormal, and both in a row */
{
    return row % 3 == 0 ? 30 : row % 3 == 1 ? -14 - (int)(block % 4) : block % 2 ? 30 : -14;
}

/* Each weight by itself, of rows that are 1 in one place. It is rounded to 2^-11 at most, and so is
 * its scale; where it is the difference of two numbers, these to 2^-11 of what they are, which is
 * not much more than the block's largest weight. The finest step of a row is 2^-15 of its largest
 * weight. */
static void weights_are_rounded_once(void **s)
{
    (void)s;
    static const spread_fn spreads[] = {NULL, far_apart, largest_and_least};
    if (few_shapes())
        skip();
    for (size_t t = 0; t < COUNT(types) * COUNT(spreads); t++) {
        const enum gguf_type type = types[t / COUNT(spreads)];
        const spread_fn each = spreads[t % COUNT(spreads)];
        const bool has_f16 = type != GGUF_TYPE_NVFP4 && type != GGUF_TYPE_IQ1_M;
        const uint32_t k = 512, n = 17;
        if (!is_quantised(type) || (each && !has_f16))
            continue;
        struct linear_case c = make_case(type, k, n, k);
        if (each) {
            cudaFree((void *)(uintptr_t)c.matrix.data);
            spread_scales(&c.w, each);
            c.matrix = upload(&c.w, k, n);
        }
        for (size_t i = 0; i < (size_t)k * k; i++)
            c.x[i] = i / k == i % k;
        float *out = mem_alloc((size_t)k * n * sizeof *out), *w = mem_alloc(k * sizeof *w);
        run(&c, 0, k, k, out);
        for (uint32_t j = 0; j < n; j++) {
            float of_row = 0, of_block[16] = {0};
            gguf_dequantize(type, c.w.data + j * (c.w.n_bytes / n), w, k);
            for (uint32_t i = 0; i < k; i++) {
                of_block[i / 32] = fmaxf(of_block[i / 32], fabsf(w[i]));
                of_row = fmaxf(of_row, fabsf(w[i]));
            }
            for (uint32_t i = 0; i < k; i++) {
                const float rounding =
                    has_mins(type) ? 0x1p-8f * of_block[i / 32] : 0x1p-10f * fabsf(w[i]);
                if (!(fabsf(out[i * n + j] - w[i]) <= rounding + 0x1p-15f * of_row))
                    fail_msg("%s spread %zu row %u k %u: %g for %g, of %g",
                             gguf_type_name(type),
                             t % COUNT(spreads),
                             j,
                             i,
                             (double)out[i * n + j],
                             (double)w[i],
                             (double)of_row);
            }
        }
        free(out);
        free(w);
        free_case(&c);
    }
}

/* Rows of any size, of zeros, and with what is not a number beside rows that must not notice. */
static void rows_of_any_size(void **s)
{
    (void)s;
    if (few_shapes())
        skip();
    for (size_t t = 0; t < COUNT(types); t++) {
        struct linear_case c = make_case(types[t], 512, 20, 12);
        const size_t bytes = (size_t)c.rows * c.n * sizeof(float);
        float *out = mem_alloc(bytes), *again = mem_alloc(bytes);
        const float sizes[] = {0, 1e-30f, 1e30f, 1e-4f, 1e5f, 1};
        for (uint32_t i = 0; i < c.rows * c.k; i++)
            c.x[i] *= sizes[i / c.k % COUNT(sizes)];
        c.x[0] = -0.0f;
        for (uint32_t i = 2 * c.k; i < 3 * c.k; i += 2) /* far apart in one row */
            c.x[i] = rnd_float();
        run(&c, 0, c.rows, c.rows, out);
        (void)error_of(&c, out);
        for (uint32_t j = 0; j < c.n; j++)
            assert_true(out[j] == 0 && out[6 * c.n + j] == 0);
        c.x[1 * c.k + 77] = NAN;
        c.x[5 * c.k + 300] = INFINITY;
        c.x[9 * c.k + 511] = -INFINITY;
        run(&c, 0, c.rows, c.rows, again);
        for (uint32_t r = 0; r < c.rows; r++) {
            const float *row = again + (size_t)r * c.n;
            if (r != 1 && r != 5 && r != 9)
                assert_memory_equal(row, out + (size_t)r * c.n, c.n * sizeof(float));
            for (uint32_t j = 0; j < c.n && (r == 1 || r == 5 || r == 9); j++)
                assert_true(!isfinite(row[j]));
        }
        free(out);
        free(again);
        free_case(&c);
    }
}

static void embeddings_are_exact(void **s)
{
    (void)s;
    for (size_t t = 0; t < COUNT(types); t++) {
        const uint32_t unit = gguf_type_info(types[t])->block_values, n = 37;
        const uint32_t k = unit == 1 ? 1 + rnd() % 300 : unit * (1 + rnd() % 5);
        struct linear_case c = make_case(types[t], k, n, 1);
        const float scale = rnd() % 2 ? 1 : 2.5f;
        int32_t tokens[40], from[40], chosen[3] = {36, 0, 5};
        for (uint32_t r = 0; r < 40; r++) {
            tokens[r] = r < n ? (int32_t)r : 0;
            from[r] = r < n ? -1 : (int32_t)(r - n);
        }
        struct cuda_at at = at_make(40, 50);
        at.step.tokens = device_copy(tokens, sizeof tokens);
        at.step.token_from = device_copy(from, sizeof from);
        at.step.chosen = device_copy(chosen, sizeof chosen);
        const size_t stride = k + 3;
        float *out = device_bytes(40 * stride * sizeof *out);
        float *got = mem_alloc(40 * stride * sizeof *got), *want = mem_alloc(k * sizeof *want);
        cuda_embed(&at, &c.matrix, (struct cuda_buf){out, stride}, scale);
        host_copy(got, out, 40 * stride * sizeof *out);
        for (uint32_t r = 0; r < 40; r++) {
            const uint32_t token = r < n ? r : (uint32_t)chosen[r - n];
            gguf_dequantize(types[t], c.w.data + token * (c.w.n_bytes / n), want, k);
            for (uint32_t i = 0; i < k; i++) {
                want[i] *= scale;
                if (got[r * stride + i] != 0 || want[i] != 0) /* zeros have a sign in some files */
                    assert_memory_equal(&got[r * stride + i], &want[i], sizeof(float));
            }
        }
        free(got);
        free(want);
        cudaFree(out);
        cudaFree((void *)(uintptr_t)at.step.tokens);
        cudaFree((void *)(uintptr_t)at.step.token_from);
        cudaFree((void *)(uintptr_t)at.step.chosen);
        at_free(&at);
        free_case(&c);
    }
}

static void unknown_types_are_refused(void **s)
{
    (void)s;
    assert_false(cuda_matrix_known(9)); /* Q8_1, which no weights have */
    assert_false(cuda_matrix_known(CUDA_TYPE_TABLE));
    for (size_t t = 0; t < COUNT(types); t++)
        assert_true(cuda_matrix_known((int)types[t]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_types_are_refused),
        cmocka_unit_test(embeddings_are_exact),
        cmocka_unit_test(weights_are_rounded_once),
        cmocka_unit_test(errors_are_below_the_cpus),
        cmocka_unit_test(rows_of_any_size),
        cmocka_unit_test(products_are_right_in_any_company),
        cmocka_unit_test(large_launches_give_the_same_bits),
        cmocka_unit_test(heads_have_their_own),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
