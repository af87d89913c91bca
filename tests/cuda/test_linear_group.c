/* Products that read the same rows, in one launch: the bits of a launch each, in every format and
 * in mixtures of them, over odd shapes, with biases, factors and sums; of rows and of experts'
 * places; and nothing else is written. How many launches it takes is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/experts.h"
#include "backend/cuda/linear_launch.h"
#include "cuda/device.h"
#include "few.h"
#include "unit/backend/cpu/weights.h"

#include <stdlib.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const enum gguf_type types[] = {
    GGUF_TYPE_F32,    GGUF_TYPE_F16,     GGUF_TYPE_BF16,  GGUF_TYPE_Q8_0,   GGUF_TYPE_Q4_0,
    GGUF_TYPE_Q4_1,   GGUF_TYPE_Q5_0,    GGUF_TYPE_Q5_1,  GGUF_TYPE_IQ4_NL, GGUF_TYPE_MXFP4,
    GGUF_TYPE_Q2_K,   GGUF_TYPE_Q3_K,    GGUF_TYPE_Q4_K,  GGUF_TYPE_Q5_K,   GGUF_TYPE_Q6_K,
    GGUF_TYPE_IQ4_XS, GGUF_TYPE_IQ2_XXS, GGUF_TYPE_TQ1_0, GGUF_TYPE_Q1_0,   GGUF_TYPE_NVFP4};

enum { N_EXPERT = 3, N_USED = 2, ALL_FORMS = 7 };

static int start(void **s)
{
    (void)s;
    const char *given = getenv("SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

static float *random_on_device(size_t n)
{
    float *v = mem_alloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = rnd_float();
    float *p = device_copy(v, n * sizeof *v);
    free(v);
    return p;
}

/* n_matrices behind each other. */
static struct cuda_matrix upload(enum gguf_type type, uint32_t k, uint32_t n, uint32_t n_matrices)
{
    const uint32_t step = CUDA_PART_ROWS;
    const size_t part = cuda_part_bytes((int)type, k), bytes = cuda_matrix_bytes((int)type, k, n);
    uint8_t *data = mem_alloc(bytes * n_matrices);
    for (uint32_t i = 0; i < n_matrices; i++) {
        const struct gguf_tensor t = make_tensor(type, k, n);
        const size_t row_bytes = t.n_bytes / n;
        for (uint32_t r = 0; r < n; r += step)
            cuda_part_pack((int)type,
                           k,
                           n - r < step ? n - r : step,
                           t.data + r * row_bytes,
                           data + i * bytes + r / step * part);
        free((void *)(uintptr_t)t.data);
    }
    const struct cuda_matrix m = {(int)type, k, n, device_copy(data, bytes * n_matrices)};
    free(data);
    return m;
}

struct group {
    struct cuda_linear ops[CUDA_LINEAR_GROUP];
    float *out[2][CUDA_LINEAR_GROUP]; /* together, and apart */
    uint32_t n, rows;                 /* rows that there is place for */
};

static struct cuda_linear make_product(enum gguf_type type,
                                       uint32_t k,
                                       uint32_t n_matrices,
                                       struct cuda_act act)
{
    const uint32_t n = 1 + rnd() % 150;
    struct cuda_linear op = {.w = upload(type, k, n, n_matrices), .act = act};
    op.out.stride = n + rnd() % 3;
    if (rnd() % 2)
        op.bias = random_on_device((size_t)n * n_matrices);
    if (rnd() % 2)
        op.factors = random_on_device(n_matrices);
    op.add = rnd() % 3 == 0;
    return op;
}

static void share_scratch(struct group *g, uint32_t k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n; i++)
        n += g->ops[i].w.n_out;
    float *scratch = device_bytes(cuda_linear_scratch(g->rows, k, n));
    for (uint32_t i = 0; i < g->n; i++)
        g->ops[i].scratch = scratch;
}

static void give_outputs(struct group *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        const size_t n = (size_t)g->rows * g->ops[i].out.stride;
        float *v = mem_alloc(n * sizeof *v);
        for (size_t e = 0; e < n; e++)
            v[e] = rnd_float();
        for (int apart = 0; apart < 2; apart++)
            g->out[apart][i] = device_copy(v, n * sizeof *v);
        free(v);
    }
}

static void set_outputs(struct group *g, int apart)
{
    for (uint32_t i = 0; i < g->n; i++)
        g->ops[i].out.p = g->out[apart][i];
}

static void compare(const struct group *g, const char *what)
{
    for (uint32_t i = 0; i < g->n; i++) {
        const size_t bytes = (size_t)g->rows * g->ops[i].out.stride * sizeof(float);
        uint8_t *a = mem_alloc(bytes), *b = mem_alloc(bytes);
        host_copy(a, g->out[0][i], bytes);
        host_copy(b, g->out[1][i], bytes);
        if (memcmp(a, b, bytes) != 0)
            fail_msg("%s: product %u of %u (%s) of %u rows has other bits than by itself",
                     what,
                     i,
                     g->n,
                     gguf_type_name((uint32_t)g->ops[i].w.type),
                     g->rows);
        free(a);
        free(b);
    }
}

static void free_group(struct group *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        cudaFree((void *)(uintptr_t)g->ops[i].w.data);
        cudaFree((void *)(uintptr_t)g->ops[i].bias);
        cudaFree((void *)(uintptr_t)g->ops[i].factors);
        cudaFree(g->out[0][i]);
        cudaFree(g->out[1][i]);
    }
    cudaFree(g->ops[0].scratch);
    cudaFree(g->ops[0].act.data);
}

/* How many launches cuda_linear makes: of a capture, whose work is not done. */
static size_t count_launches(const struct cuda_at *at, const struct group *g)
{
    struct cuda_at captured = *at;
    cudaGraph_t graph;
    size_t n = 0;
    assert_int_equal(cudaStreamCreate(&captured.stream), cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(captured.stream, cudaStreamCaptureModeThreadLocal),
                     cudaSuccess);
    cuda_linear(&captured, g->ops, g->n);
    assert_int_equal(cudaStreamEndCapture(captured.stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphGetNodes(graph, NULL, &n), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(captured.stream), cudaSuccess);
    return n;
}

static void check_rows(const enum gguf_type *of, uint32_t n, uint32_t k, uint32_t rows)
{
    const uint32_t bound = rows + rnd() % 3;
    struct cuda_at at = at_make(rows, bound);
    at.block_shared = device_block_shared(rnd() % 2);
    at.wgmma = rnd() % 2 && device_has_wgmma();
    at.processors = rnd() % 2;
    struct cuda_act act = {
        .data = device_bytes(cuda_act_bytes(ALL_FORMS, bound, k)), .k = k, .forms = ALL_FORMS};
    struct group g = {.n = n, .rows = bound};
    float *x = random_on_device((size_t)bound * k);
    cuda_act_pack(&at, (struct cuda_buf){x, k}, &act);
    for (uint32_t i = 0; i < n; i++)
        g.ops[i] = make_product(of[i], k, 1, act);
    share_scratch(&g, k);
    give_outputs(&g);
    set_outputs(&g, 0);
    cuda_linear(&at, g.ops, n);
    bool one = bound <= 16;
    for (uint32_t i = 1; i < n; i++)
        one = one &&
              (cuda_matrix_alike((int)of[0], (int)of[i]) || linear_two((int)of[0], (int)of[i]));
    if (one)
        assert_int_equal(count_launches(&at, &g), 1);
    set_outputs(&g, 1);
    for (uint32_t i = 0; i < n; i++)
        cuda_linear(&at, &g.ops[i], 1);
    compare(&g, "rows");
    cudaFree(x);
    free_group(&g);
    at_free(&at);
}

static uint32_t random_k(enum gguf_type a, enum gguf_type b)
{
    const uint32_t unit_a = (uint32_t)gguf_type_info(a)->block_values;
    const uint32_t unit_b = (uint32_t)gguf_type_info(b)->block_values;
    const uint32_t unit = unit_a > unit_b ? unit_a : unit_b;
    return unit * (1 + rnd() % (700 / unit));
}

static void products_of_one_format(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 7, 16, 21, 70};
    for (size_t t = 0; t < COUNT(types); t++) {
        const enum gguf_type of[CUDA_LINEAR_GROUP] = {types[t], types[t], types[t], types[t]};
        for (size_t r = 0; r < COUNT(rows); r++) {
            if (!few_shapes() || r == t % COUNT(rows))
                check_rows(of, 1 + rnd() % CUDA_LINEAR_GROUP, random_k(of[0], of[0]), rows[r]);
        }
    }
}

/* As files mix them: a v of more bits than q and k, a router in f32. */
static void products_of_several(void **state)
{
    (void)state;
    for (int i = 0; i < (few_shapes() ? 10 : 60); i++) {
        const enum gguf_type a = types[rnd() % COUNT(types)], b = types[rnd() % COUNT(types)];
        const enum gguf_type of[CUDA_LINEAR_GROUP] = {a, rnd() % 2 ? a : b, b, rnd() % 2 ? a : b};
        check_rows(of, 2 + rnd() % 3, random_k(a, b), 1 + rnd() % 20);
    }
}

/* Those of which few rows meet two in one launch. */
static void products_of_two(void **state)
{
    (void)state;
    static const enum gguf_type first[] = {GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K};
    static const uint32_t rows[] = {1, 6, 9, 14, 40}; /* of linear_few_two, with bounds, four */
    for (size_t t = 0; t < COUNT(first); t++) {
        const enum gguf_type a = first[t], b = GGUF_TYPE_Q6_K;
        const enum gguf_type of[CUDA_LINEAR_GROUP] = {a, rnd() % 2 ? a : b, b, rnd() % 2 ? a : b};
        assert_true(linear_two((int)a, (int)b));
        for (size_t r = 0; r < COUNT(rows); r++) {
            if (!few_shapes() || r % 2 == t) /* up to 16 runs: of 1 to 8 ranges */
                check_rows(of, 3 + rnd() % 2, 256 * (1 + rnd() % 16), rows[r]);
        }
    }
}

static void check_experts(enum gguf_type a, enum gguf_type b, uint32_t rows)
{
    const uint32_t k = random_k(a, b);
    struct cuda_at at = at_make(rows, rows);
    const uint32_t most = cuda_experts_most_places(N_EXPERT, N_USED, rows);
    uint32_t *chosen = mem_alloc((size_t)rows * N_USED * sizeof *chosen);
    for (uint32_t r = 0; r < rows; r++) {
        chosen[r * N_USED] = rnd() % 4 ? 0 : rnd() % N_EXPERT; /* one has many more than others */
        chosen[r * N_USED + 1] = (chosen[r * N_USED] + 1 + rnd() % (N_EXPERT - 1)) % N_EXPERT;
    }
    struct cuda_experts x = {.n_expert = N_EXPERT,
                             .n_used = N_USED,
                             .most_places = most,
                             .chosen = device_copy(chosen, rows * N_USED * sizeof *chosen),
                             .places = device_bytes(rows * N_USED * sizeof *chosen),
                             .place_row = device_bytes(most * sizeof *chosen),
                             .first = device_bytes((N_EXPERT + 1) * sizeof *chosen)};
    free(chosen);
    cuda_experts_sort(&at, &x);
    struct cuda_act act = {
        .data = device_bytes(cuda_act_bytes(ALL_FORMS, most, k)), .k = k, .forms = ALL_FORMS};
    float *in = random_on_device((size_t)rows * k);
    cuda_experts_pack(&at, &x, (struct cuda_buf){in, k}, 0, &act);
    struct group g = {.n = 2, .rows = most};
    at.wgmma = device_has_wgmma();
    at.processors = rnd() % 2;
    g.ops[0] = make_product(a, k, N_EXPERT, act);
    g.ops[1] = make_product(b, k, N_EXPERT, act);
    give_outputs(&g);
    set_outputs(&g, 0);
    cuda_experts_linear(&at, &x, g.ops, 2);
    set_outputs(&g, 1);
    at.wgmma = 0;
    for (uint32_t i = 0; i < 2; i++)
        cuda_experts_linear(&at, &x, &g.ops[i], 1);
    compare(&g, "experts");
    cudaFree(in);
    cudaFree(x.chosen);
    cudaFree(x.places);
    cudaFree(x.place_row);
    cudaFree(x.first);
    free_group(&g);
    at_free(&at);
}

static void products_of_experts(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(types); t++) {
        check_experts(types[t], types[t], 1 + rnd() % 9);
        if (linear_two((int)types[t], GGUF_TYPE_Q6_K))
            check_experts(types[t], GGUF_TYPE_Q6_K, 1 + rnd() % 9);
        if (!few_shapes())
            check_experts(types[t], types[rnd() % COUNT(types)], 1 + rnd() % 30);
        if (t % (few_shapes() ? 10 : 3) == 1)
            check_experts(types[t], types[t], 90 + rnd() % 150);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_one_format),
        cmocka_unit_test(products_of_several),
        cmocka_unit_test(products_of_two),
        cmocka_unit_test(products_of_experts),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
