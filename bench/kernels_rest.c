/* The kernels that neither multiply matrices nor attend, and that kernels.c has no exact arithmetic
 * for: each over rows that lie in the caches, against the plain kernel of the same name. */
#include "kernels.h"

#include "base/mem.h"
#include "unit/backend/cpu/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROWS = 16, HEAD = 128, N_KEY = 16, CONV_WIDTH = 4, N_IN = 4 };

struct rest {
    const struct cpu_kernels *kernels;
    void (*run)(struct rest *r);
    uint32_t n;
    float *in[N_IN]; /* [N_ROWS * n] of -1 .. 1, twice; -0.9 .. -0.1; -0.1 .. 0.1 */
    float *out;      /* likewise */
    float *state;    /* [HEAD * HEAD] or [N_KEY * n] */
};

static void run(void *ctx)
{
    struct rest *r = ctx;
    r->run(r);
}

/* What a kernel works on in place. */
static float *copied(struct rest *r, size_t n)
{
    return memcpy(r->out, r->in[0], n * sizeof *r->out);
}

static void run_layer_norm(struct rest *r)
{
    r->kernels->layer_norm(r->in[0], r->in[1], r->in[2], r->out, r->n, 1e-5f);
}

#define UNARY(name, KIND)                                                                          \
    static void run_##name(struct rest *r)                                                         \
    {                                                                                              \
        r->kernels->unary[UNARY_##KIND](r->in[0], r->out, r->n);                                   \
    }
UNARY(gelu, GELU)
UNARY(gelu_tanh, GELU_TANH)
UNARY(relu_square, RELU_SQUARE)
UNARY(relu, RELU)
UNARY(sigmoid, SIGMOID)
UNARY(softplus, SOFTPLUS)
UNARY(unary_exp, EXP)

static void run_xielu(struct rest *r)
{
    static const struct xielu p = {.positive = 0.8f, .negative = 1.1f, .beta = 0.5f, .eps = -1e-6f};
    r->kernels->xielu(copied(r, r->n), &p, r->n);
}

static void run_sigmoid_mul(struct rest *r)
{
    r->kernels->sigmoid_mul(r->in[0], r->in[1], r->out, r->n);
}

static void run_capped_mul(struct rest *r)
{
    r->kernels->capped_mul(r->in[0], r->in[1], r->out, r->n, 0.5f);
}

static void run_mul(struct rest *r)
{
    r->kernels->mul(r->in[0], r->in[1], r->out, r->n);
}

static void run_add(struct rest *r)
{
    r->kernels->add(r->in[1], copied(r, r->n), r->n);
}

static void run_add_scaled(struct rest *r)
{
    r->kernels->add_scaled(r->in[1], 0.3f, copied(r, r->n), r->n);
}

static void rotate(struct rest *r, enum rope_kind kind)
{
    float *out = copied(r, r->n);
    for (uint32_t at = 0; at < r->n; at += HEAD)
        r->kernels->rotate(out + at, r->in[1], HEAD, kind);
}

static void run_rotate(struct rest *r)
{
    rotate(r, ROPE_HALVES);
}

static void run_rotate_adjacent(struct rest *r)
{
    rotate(r, ROPE_ADJACENT);
}

static void run_conv(struct rest *r)
{
    const struct conv_job job = {.x = copied(r, (size_t)N_ROWS * r->n),
                                 .stride = r->n,
                                 .n_rows = N_ROWS,
                                 .n_channels = r->n,
                                 .width = CONV_WIDTH,
                                 .stride_state = r->n,
                                 .stride_w = r->n,
                                 .to = r->state,
                                 .w = r->in[1],
                                 .bias = r->in[2],
                                 .gated = true};
    r->kernels->conv(&job);
}

static void recur(struct rest *r, bool delta, bool each)
{
    const size_t stride = 2 * HEAD;
    const struct recur_job job = {.delta = delta,
                                  .each = each,
                                  .n_rows = N_ROWS,
                                  .n_key = HEAD,
                                  .n_value = HEAD,
                                  .to = r->state,
                                  .q = r->in[0],
                                  .k = r->in[3],
                                  .v = r->in[1],
                                  .q_stride = stride,
                                  .k_stride = stride,
                                  .v_stride = stride,
                                  .rate = r->in[2],
                                  .beta = r->in[2] + HEAD,
                                  .rate_stride = stride,
                                  .beta_stride = stride,
                                  .out = r->out,
                                  .out_stride = HEAD,
                                  .scale = 1.0f / HEAD};
    r->kernels->recur(&job);
}

static void run_recur(struct rest *r)
{
    recur(r, false, false);
}

static void run_delta(struct rest *r)
{
    recur(r, true, false);
}

static void run_delta_each(struct rest *r)
{
    recur(r, true, true);
}

static void run_selective(struct rest *r)
{
    const struct selective_job job = {.n_rows = N_ROWS,
                                      .n_key = N_KEY,
                                      .n_channels = r->n,
                                      .to = r->state,
                                      .a = r->in[2],
                                      .skip = r->in[1],
                                      .x = r->in[0],
                                      .step = r->in[1],
                                      .x_stride = r->n,
                                      .step_stride = r->n,
                                      .k = r->in[0],
                                      .q = r->in[1],
                                      .k_stride = N_KEY,
                                      .q_stride = N_KEY,
                                      .out = r->out,
                                      .out_stride = r->n};
    r->kernels->selective(&job);
}

/* What a kernel puts out: a row of n values, or all rows, of n or of HEAD. */
enum shape { ONE_ROW, ALL_ROWS, ALL_HEADS };

static const struct {
    const char *name;
    void (*run)(struct rest *r);
    enum shape shape;
    double ops; /* of a value that comes out; e^x as 12 */
} kinds[] = {{"layer_norm", run_layer_norm, ONE_ROW, 6},
             {"gelu", run_gelu, ONE_ROW, 20},
             {"gelu_tanh", run_gelu_tanh, ONE_ROW, 20},
             {"relu_square", run_relu_square, ONE_ROW, 2},
             {"relu", run_relu, ONE_ROW, 1},
             {"sigmoid", run_sigmoid, ONE_ROW, 14},
             {"softplus", run_softplus, ONE_ROW, 24},
             {"unary_exp", run_unary_exp, ONE_ROW, 12},
             {"xielu", run_xielu, ONE_ROW, 18},
             {"sigmoid_mul", run_sigmoid_mul, ONE_ROW, 15},
             {"capped_mul", run_capped_mul, ONE_ROW, 18},
             {"mul", run_mul, ONE_ROW, 1},
             {"add", run_add, ONE_ROW, 1},
             {"add_scaled", run_add_scaled, ONE_ROW, 2},
             {"rotate/halves", run_rotate, ONE_ROW, 3},
             {"rotate/adjacent", run_rotate_adjacent, ONE_ROW, 3},
             {"conv", run_conv, ALL_ROWS, 2 * CONV_WIDTH + 14},
             {"recur", run_recur, ALL_HEADS, 5 * HEAD},
             {"recur/delta", run_delta, ALL_HEADS, 7 * HEAD},
             {"recur/delta_each", run_delta_each, ALL_HEADS, 8 * HEAD},
             {"selective", run_selective, ALL_ROWS, 18 * N_KEY}};

static void bench_kind(struct bench *b, struct rest *r, size_t kind)
{
    const uint32_t n_rows = kinds[kind].shape == ONE_ROW ? 1 : N_ROWS;
    const uint32_t width = kinds[kind].shape == ALL_HEADS ? HEAD : r->n;
    const size_t n = (size_t)n_rows * width;
    float *want = mem_alloc(n * sizeof *want);
    char shape[48];
    r->run = kinds[kind].run;
    r->kernels = &cpu_kernels_plain;
    r->run(r);
    memcpy(want, r->out, n * sizeof *want);
    r->kernels = b->k;
    const double seconds = seconds_of((struct timed){run, r});
    snprintf(shape, sizeof shape, "%u rows x %u, cached", n_rows, width);
    report(b,
           kinds[kind].name,
           shape,
           seconds,
           kinds[kind].ops * (double)n,
           b->f32,
           0,
           nmse(r->out, want, n),
           1e-11);
    free(want);
}

void bench_rest(struct bench *b)
{
    const uint32_t n = b->o->k;
    const size_t values = (size_t)N_ROWS * n;
    const size_t state = (size_t)N_KEY * n > HEAD * HEAD ? (size_t)N_KEY * n : HEAD * HEAD;
    struct rest r = {.n = n};
    for (int i = 0; i < N_IN; i++) {
        r.in[i] = mem_aligned(values * sizeof *r.in[i]);
        for (size_t v = 0; v < values; v++)
            r.in[i][v] = rnd_float();
    }
    for (size_t v = 0; v < values; v++) {
        r.in[2][v] = -0.5f + 0.4f * r.in[2][v];
        r.in[3][v] *= 0.1f;
    }
    r.out = mem_aligned(values * sizeof *r.out);
    r.state = mem_aligned(state * sizeof *r.state);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (wanted(b, kinds[i].name))
            bench_kind(b, &r, i);
    }
    for (int i = 0; i < N_IN; i++)
        free(r.in[i]);
    free(r.out);
    free(r.state);
}
