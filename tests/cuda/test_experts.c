/* Experts on the device (or its emulation): selection against a plain scan, places that hold every
 * choice once and in order, and products and mixtures whose bits do not depend on who shares an
 * expert. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cuda/experts.h"
#include "cuda/device.h"
#include "few.h"
#include "unit/backend/cpu/weights.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static int start(void **s)
{
    (void)s;
    const char *given = getenv("SEED");
    random_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SEED=%llu\n", (unsigned long long)random_state);
    return 0;
}

/* What a step leaves behind, on the device and as read back. */
struct fixture {
    uint32_t rows, bound;
    struct cuda_at at;
    struct cuda_experts x;
    uint32_t *chosen, *places, *place_row, *first;
    float *weights, *place_weight;
};

static bool weighed; /* whether fixtures ask for the weights of places */

static struct fixture make_fixture(uint32_t n_expert,
                                   uint32_t n_used,
                                   uint32_t rows,
                                   uint32_t bound)
{
    struct fixture f = {.rows = rows, .bound = bound, .at = at_make(rows, bound)};
    f.at.wgmma = rnd() % 2 && device_has_wgmma(); /* the same bits */
    f.at.processors = rnd() % 2;
    f.x.n_expert = n_expert;
    f.x.n_used = n_used;
    f.x.most_places = cuda_experts_most_places(n_expert, n_used, bound);
    f.x.chosen = device_bytes((size_t)bound * n_used * sizeof(uint32_t));
    f.x.weights = device_bytes((size_t)bound * n_used * sizeof(float));
    f.x.places = device_bytes((size_t)bound * n_used * sizeof(uint32_t));
    f.x.place_row = device_bytes(f.x.most_places * sizeof(uint32_t));
    if (weighed)
        f.x.place_weight = device_bytes(f.x.most_places * sizeof(float));
    f.x.first = device_bytes((n_expert + 1) * sizeof(uint32_t));
    f.chosen = mem_zalloc((size_t)rows * n_used, sizeof *f.chosen);
    f.places = mem_zalloc((size_t)rows * n_used, sizeof *f.places);
    f.weights = mem_zalloc((size_t)rows * n_used, sizeof *f.weights);
    f.place_row = mem_zalloc(f.x.most_places, sizeof *f.place_row);
    f.place_weight = mem_zalloc(f.x.most_places, sizeof *f.place_weight);
    f.first = mem_zalloc(n_expert + 1, sizeof *f.first);
    return f;
}

static void free_fixture(struct fixture *f)
{
    cudaFree(f->x.chosen);
    cudaFree(f->x.weights);
    cudaFree(f->x.places);
    cudaFree(f->x.place_row);
    cudaFree(f->x.place_weight);
    cudaFree(f->x.first);
    free(f->place_weight);
    free(f->chosen);
    free(f->places);
    free(f->weights);
    free(f->place_row);
    free(f->first);
    at_free(&f->at);
}

static const struct cuda_gating over_selected = {.norm = 1, .scale = 1};

/* scores [rows][n_expert] */
static void select_and_sort(struct fixture *f,
                            const float *scores,
                            const struct cuda_gating *gating)
{
    const struct cuda_experts *x = &f->x;
    const size_t n = (size_t)f->rows * x->n_used;
    float *in = device_copy(scores, (size_t)f->rows * x->n_expert * sizeof *scores);
    cuda_experts_select(&f->at, x, (struct cuda_buf){in, x->n_expert}, gating);
    cuda_experts_sort(&f->at, x);
    host_copy(f->chosen, x->chosen, n * sizeof *f->chosen);
    host_copy(f->weights, x->weights, n * sizeof *f->weights);
    host_copy(f->places, x->places, n * sizeof *f->places);
    host_copy(f->place_row, x->place_row, x->most_places * sizeof *f->place_row);
    if (x->place_weight)
        host_copy(f->place_weight, x->place_weight, x->most_places * sizeof *f->place_weight);
    host_copy(f->first, x->first, (x->n_expert + 1) * sizeof *f->first);
    cudaFree(in);
}

/* A scan that replaces what it has by what is larger: ties go to the lower expert. */
static void check_selection(const struct fixture *f, const float *scores, int norm, float scale)
{
    const uint32_t n = f->x.n_expert, n_used = f->x.n_used;
    for (uint32_t r = 0; r < f->rows; r++) {
        const float *score = scores + (size_t)r * n;
        const uint32_t *chosen = f->chosen + (size_t)r * n_used;
        bool taken[1024] = {false};
        double sum = 0;
        for (uint32_t i = 0; i < n_used; i++) {
            uint32_t best = UINT32_MAX;
            for (uint32_t e = 0; e < n; e++) {
                if (!taken[e] && (best == UINT32_MAX || score[e] > score[best]))
                    best = e;
            }
            assert_int_equal(chosen[i], best);
            taken[best] = true;
            sum += norm ? exp((double)score[best] - score[chosen[0]]) : 0;
        }
        for (uint32_t e = 0; e < n && !norm; e++)
            sum += exp((double)score[e] - score[chosen[0]]);
        for (uint32_t i = 0; i < n_used; i++) {
            const double want = exp((double)score[chosen[i]] - score[chosen[0]]) / sum * scale;
            const float got = f->weights[(size_t)r * n_used + i];
            assert_true(isnan(want) ? isnan(got) : fabs(got - want) <= 1e-6 * fabs(want) + 1e-30);
        }
    }
}

/* Each choice has one place, of its row, among its expert's; by row; the rest are nobody's. */
static void check_places(const struct fixture *f)
{
    const uint32_t n_used = f->x.n_used;
    bool *held = mem_zalloc(f->x.most_places + 1, sizeof *held);
    assert_int_equal(f->first[0], 0);
    assert_true(f->first[f->x.n_expert] <= f->x.most_places);
    for (uint32_t e = 0; e < f->x.n_expert; e++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < f->rows * n_used; i++) {
            if (f->chosen[i] != e)
                continue;
            assert_int_equal(f->places[i], f->first[e] + count++);
            assert_int_equal(f->place_row[f->places[i]], i / n_used);
            if (f->x.place_weight)
                assert_memory_equal(&f->place_weight[f->places[i]], &f->weights[i], sizeof(float));
            held[f->places[i]] = true;
        }
        assert_int_equal(f->first[e + 1], f->first[e] + (count + 7) / 8 * 8);
    }
    for (uint32_t p = 0; p < f->first[f->x.n_expert]; p++)
        assert_true(held[p] || f->place_row[p] == UINT32_MAX);
    free(held);
}

/* How rows are spread: drawn, all to the same, in the lower half only, with ties, and not numbers.
 */
enum spread { DRAWN, SAME, LOWER, TIES, NOT_NUMBERS, N_SPREADS };

static float *make_scores(uint32_t rows, uint32_t n_expert, enum spread spread)
{
    float *scores = mem_alloc((size_t)rows * n_expert * sizeof *scores);
    for (uint32_t i = 0; i < rows * n_expert; i++) {
        const uint32_t e = i % n_expert;
        scores[i] = rnd_float() * 5;
        if (spread == SAME)
            scores[i] = (float)(n_expert - e);
        else if (spread == LOWER)
            scores[i] -= e >= n_expert / 2 ? 100 : 0;
        else if (spread == TIES)
            scores[i] = (float)(rnd() % 3) - 1;
        else if (spread == NOT_NUMBERS && rnd() % 4 == 0)
            scores[i] = rnd() % 2 ? NAN : INFINITY * (rnd() % 2 ? 1.0f : -1.0f);
    }
    return scores;
}

static void choices_and_places(void **s)
{
    (void)s;
    static const uint32_t shapes[][3] = {/* experts, used, rows */
                                         {4, 2, 1},
                                         {8, 2, 33},
                                         {32, 4, 7},
                                         {33, 33, 5},
                                         {60, 6, 300},
                                         {128, 8, 128},
                                         {128, 8, 160},
                                         {1, 1, 20},
                                         {1024, 10, 12}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        for (enum spread spread = DRAWN; spread < (few_shapes() ? SAME : N_SPREADS); spread++) {
            const uint32_t n = shapes[i][0], n_used = shapes[i][1], rows = shapes[i][2];
            weighed = rnd() % 2;
            struct fixture f = make_fixture(n, n_used, rows, rows + rnd() % 2 * 200);
            float *scores = make_scores(rows, n, spread);
            const int norm = (int)(rnd() % 2);
            select_and_sort(
                &f, scores, &(struct cuda_gating){.over_all = !norm, .norm = norm, .scale = 1.5f});
            check_selection(&f, scores, norm, 1.5f);
            check_places(&f);
            free(scores);
            free_fixture(&f);
        }
    }
}

/* The rows' probabilities, and what they are ranked by: -inf outside of the best groups. false: two
 * groups are too much alike to say which. */
static bool rank_of(const struct cuda_gating *g,
                    const float *score,
                    const float *bias,
                    uint32_t n_expert,
                    double *p,
                    double *rank)
{
    const uint32_t n = n_expert / g->n_groups;
    double sum = 0, worth[64], above = INFINITY;
    for (uint32_t i = 0; i < n_expert; i++)
        sum += exp((double)score[i]);
    for (uint32_t i = 0; i < n_expert; i++) {
        p[i] = g->sigmoid ? 1 / (1 + exp(-(double)score[i])) : exp((double)score[i]) / sum;
        rank[i] = p[i] + (bias ? bias[i] : 0);
    }
    for (uint32_t x = 0; x < g->n_groups; x++) {
        double first = -INFINITY, second = -INFINITY;
        for (uint32_t i = x * n; i < (x + 1) * n; i++) {
            second = rank[i] > first ? first : rank[i] > second ? rank[i] : second;
            first = rank[i] > first ? rank[i] : first;
        }
        worth[x] = bias && n > 1 ? first + second : first;
    }
    for (uint32_t k = 0; k < g->n_groups; k++) { /* from the best to the worst */
        uint32_t best = UINT32_MAX;
        for (uint32_t x = 0; x < g->n_groups; x++) {
            if (!isnan(worth[x]) && (best == UINT32_MAX || worth[x] > worth[best]))
                best = x;
        }
        if (k == g->n_groups_used && above - worth[best] < 1e-5)
            return false;
        for (uint32_t i = best * n; i < (best + 1) * n && k >= g->n_groups_used; i++)
            rank[i] = -INFINITY;
        above = worth[best];
        worth[best] = NAN;
    }
    return true;
}

/* Sigmoids or a softmax, with a bias or without, in groups or all together. */
static void choices_by_probability(void **state)
{
    static const uint32_t shapes[][4] = {/* experts, used, groups, of which used */
                                         {8, 2, 1, 1},
                                         {64, 6, 8, 3},
                                         {160, 6, 8, 3},
                                         {256, 8, 8, 4},
                                         {384, 8, 1, 1},
                                         {32, 4, 32, 7}};
    (void)state;
    for (uint32_t round = 0; round < COUNT(shapes) * 4; round++) {
        const uint32_t *shape = shapes[round / 4], n = shape[0], n_used = shape[1], rows = 37;
        struct fixture f = make_fixture(n, n_used, rows, rows);
        float *scores = make_scores(rows, n, DRAWN), *bias = mem_alloc(n * sizeof *bias);
        for (uint32_t i = 0; i < n; i++)
            bias[i] = rnd_float();
        float *bias_there = device_copy(bias, n * sizeof *bias);
        struct cuda_gating g = {.norm = (int)(rnd() % 2),
                                .scale = 2.5f,
                                .sigmoid = (int)(round % 2),
                                .bias = round % 4 < 2 ? bias_there : NULL,
                                .n_groups = shape[2],
                                .n_groups_used = shape[3]};
        if (!g.bias && g.n_groups == 1)
            g.sigmoid = 1;
        select_and_sort(&f, scores, &g);
        double p[1024], rank[1024];
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t *chosen = f.chosen + (size_t)r * n_used;
            double sum = 0;
            if (!rank_of(&g, scores + (size_t)r * n, g.bias ? bias : NULL, n, p, rank))
                continue;
            for (uint32_t i = 0; i < n_used; i++) {
                double best = -INFINITY;
                for (uint32_t e = 0; e < n; e++)
                    best = rank[e] > best ? rank[e] : best;
                assert_in_range(chosen[i], 0, n - 1);
                assert_true(rank[chosen[i]] >= best - 1e-6);
                rank[chosen[i]] = -INFINITY;
                sum += p[chosen[i]];
            }
            for (uint32_t i = 0; i < n_used; i++)
                assert_true(fabs(f.weights[(size_t)r * n_used + i] -
                                 p[chosen[i]] / (g.norm ? sum : 1) * 2.5) < 1e-5);
        }
        check_places(&f);
        cudaFree(bias_there);
        free(bias);
        free(scores);
        free_fixture(&f);
    }
}

/* Of scores a little above 50 those count that are at most two steps lower. */
static void choices_are_mixed(void **state)
{
    (void)state;
    for (uint32_t n = 2; n < 200; n += 33) {
        const uint32_t n_used = n < 4 ? 2 : 2 + rnd() % 3, rows = 37;
        struct fixture f = make_fixture(n, n_used, rows, rows);
        float *scores = mem_alloc((size_t)rows * n * sizeof *scores);
        for (uint32_t i = 0; i < rows * n; i++)
            scores[i] = 50 + 0.4f * (float)(rnd() % 9);
        select_and_sort(&f, scores, &(struct cuda_gating){.mixer = 1, .norm = 1, .scale = 1.5f});
        for (uint32_t i = 0; i < rows * f.x.n_used; i++) {
            const uint32_t r = i / f.x.n_used, rank = i % f.x.n_used;
            const float *score = scores + (size_t)r * n;
            double sum = 0;
            for (uint32_t e = 0; e < n; e++) {
                const double apart = score[f.chosen[i]] - score[e];
                bool before = false;
                for (uint32_t k = 1; k <= rank; k++)
                    before |= f.chosen[i - k] == e;
                sum += before || apart > 1 ? 0 : exp(-apart);
            }
            assert_true(fabs(f.weights[i] - 1.5 / sum) < 1e-5);
        }
        check_places(&f);
        free(scores);
        free_fixture(&f);
    }
}

/* Matrices of experts, one behind the other. */
struct bank {
    struct gguf_tensor w; /* n_expert * n rows of k */
    struct cuda_matrix matrix;
    uint32_t n_expert, k, n;
    float *bias, *host_bias;
    float *factors, *host_factors; /* of each expert */
};

static struct bank make_bank(enum gguf_type type, uint32_t n_expert, uint32_t k, uint32_t n)
{
    struct bank b = {.n_expert = n_expert, .k = k, .n = n};
    b.w = make_tensor(type, k, n_expert * n);
    const size_t one = cuda_matrix_bytes((int)type, k, n), part = cuda_part_bytes((int)type, k);
    const size_t row_bytes = b.w.n_bytes / (n_expert * n);
    uint8_t *data = mem_alloc(one * n_expert);
    for (uint32_t e = 0; e < n_expert; e++) {
        for (uint32_t r = 0; r < n; r += 16)
            cuda_part_pack((int)type,
                           k,
                           n - r < 16 ? n - r : 16,
                           b.w.data + (e * n + r) * row_bytes,
                           data + e * one + r / 16 * part);
    }
    b.matrix = (struct cuda_matrix){(int)type, k, n, device_copy(data, one * n_expert)};
    free(data);
    b.host_bias = mem_alloc((size_t)n_expert * n * sizeof(float));
    for (uint32_t i = 0; i < n_expert * n; i++)
        b.host_bias[i] = rnd_float();
    b.bias = device_copy(b.host_bias, (size_t)n_expert * n * sizeof(float));
    b.host_factors = mem_alloc(n_expert * sizeof(float));
    for (uint32_t i = 0; i < n_expert; i++)
        b.host_factors[i] = 0.5f + fabsf(rnd_float());
    b.factors = device_copy(b.host_factors, n_expert * sizeof(float));
    return b;
}

static void free_bank(struct bank *b)
{
    free((void *)(uintptr_t)b->w.data);
    cudaFree((void *)(uintptr_t)b->matrix.data);
    cudaFree(b->bias);
    cudaFree(b->factors);
    free(b->host_bias);
    free(b->host_factors);
}

/* Products of each row with its experts, from a row for all ranks; then of these once more from
 * places, square; mixed. x [rows][k], k == n. out [rows][n]. */
static void run_layer(
    struct fixture *f, const struct bank *b, const float *x, float *by_rank, float *out)
{
    const uint32_t k = b->k, n = b->n;
    const unsigned form = cuda_act_form(b->matrix.type);
    struct cuda_buf in = {device_copy(x, (size_t)f->rows * k * sizeof *x), k};
    struct cuda_buf first = {device_bytes((size_t)f->x.most_places * n * sizeof *x), n};
    struct cuda_buf second = {device_bytes((size_t)f->x.most_places * n * sizeof *x), n};
    struct cuda_buf mixed = {device_bytes((size_t)f->rows * n * sizeof *x), n};
    const struct cuda_act act = {
        .data = device_bytes(cuda_act_bytes(form, f->x.most_places, k)), .k = k, .forms = form};
    struct cuda_linear op = {
        .w = b->matrix, .act = act, .bias = b->bias, .factors = b->factors, .out = first};
    cuda_experts_pack(&f->at, &f->x, in, 0, &act);
    cuda_experts_linear(&f->at, &f->x, &op, 1);
    cuda_experts_pack(&f->at, &f->x, first, 1, &act);
    op.out = second;
    op.bias = NULL;
    cuda_experts_linear(&f->at, &f->x, &op, 1);
    cuda_experts_mix(&f->at, &f->x, &(struct cuda_mix){second, mixed, n});
    float *places = mem_alloc((size_t)f->x.most_places * n * sizeof *places);
    host_copy(places, first.p, (size_t)f->x.most_places * n * sizeof *places);
    for (uint32_t i = 0; i < f->rows * f->x.n_used; i++)
        memcpy(by_rank + (size_t)i * n, places + (size_t)f->places[i] * n, n * sizeof *places);
    host_copy(out, mixed.p, (size_t)f->rows * n * sizeof *out);
    free(places);
    cudaFree(in.p);
    cudaFree(first.p);
    cudaFree(second.p);
    cudaFree(mixed.p);
    cudaFree(act.data);
}

static void multiply_row(const struct bank *b, uint32_t e, const double *x, double *out)
{
    float *w = mem_alloc(b->k * sizeof *w);
    const size_t row_bytes = b->w.n_bytes / (b->n_expert * b->n);
    for (uint32_t j = 0; j < b->n; j++) {
        gguf_dequantize(b->w.type, b->w.data + (e * b->n + j) * row_bytes, w, b->k);
        out[j] = 0;
        for (uint32_t k = 0; k < b->k; k++)
            out[j] += w[k] * x[k];
        out[j] *= b->host_factors[e];
    }
    free(w);
}

/* NMSE of by_rank and out against double arithmetic. */
static void check_layer(const struct fixture *f,
                        const struct bank *b,
                        const float *x,
                        const float *by_rank,
                        const float *out)
{
    double num[2] = {0, 0}, den[2] = {0, 0}, in[512], first[512], second[512], mixed[512];
    assert_true(b->k <= COUNT(in) && b->k == b->n);
    for (uint32_t r = 0; r < f->rows; r++) {
        memset(mixed, 0, sizeof mixed);
        for (uint32_t i = r * f->x.n_used; i < (r + 1) * f->x.n_used; i++) {
            for (uint32_t k = 0; k < b->k; k++)
                in[k] = x[(size_t)r * b->k + k];
            multiply_row(b, f->chosen[i], in, first);
            for (uint32_t j = 0; j < b->n; j++) {
                first[j] += b->host_bias[f->chosen[i] * b->n + j];
                num[0] += pow(by_rank[(size_t)i * b->n + j] - first[j], 2);
                den[0] += first[j] * first[j];
            }
            multiply_row(b, f->chosen[i], first, second);
            for (uint32_t j = 0; j < b->n; j++)
                mixed[j] += (weighed ? 1 : f->weights[i]) * second[j];
        }
        for (uint32_t j = 0; j < b->n; j++) {
            num[1] += pow(out[(size_t)r * b->n + j] - mixed[j], 2);
            den[1] += mixed[j] * mixed[j];
        }
    }
    assert_true(num[0] <= den[0] * 2e-7);
    assert_true(num[1] <= den[1] * 1e-6);
}

static void places_do_not_know_their_company(void **s)
{
    (void)s;
    static const enum gguf_type types[] = {
        GGUF_TYPE_F32, GGUF_TYPE_F16, GGUF_TYPE_BF16, GGUF_TYPE_NVFP4, GGUF_TYPE_Q4_K};
    for (size_t t = few_shapes() ? 3 : 0; t < COUNT(types); t++) {
        for (enum spread spread = DRAWN; spread <= (few_shapes() ? SAME : TIES); spread++) {
            const uint32_t rows = spread == SAME ? 150 : 20, n_expert = 6, n_used = 2;
            struct bank b = make_bank(types[t], n_expert, 256, 256);
            weighed = spread % 2 == 1; /* of both, or their sums are others */
            struct fixture f = make_fixture(n_expert, n_used, rows, rows + 3);
            float *scores = make_scores(rows, n_expert, spread);
            const size_t row_bytes = 256 * sizeof(float);
            float *x = mem_alloc(rows * row_bytes), *out = mem_alloc(rows * row_bytes);
            float *by_rank = mem_alloc(rows * n_used * row_bytes);
            float alone[256], alone_by_rank[512];
            for (uint32_t i = 0; i < rows * 256; i++)
                x[i] = rnd_float();
            select_and_sort(&f, scores, &over_selected);
            run_layer(&f, &b, x, by_rank, out);
            if (spread != SAME)
                check_layer(&f, &b, x, by_rank, out);
            for (uint32_t r = 0; r < (few_shapes() ? 1 : rows);
                 r += 1 + rnd() % (rows / 5)) { /* with fewer, by itself */
                struct fixture one = make_fixture(n_expert, n_used, 1, 1 + rnd() % 2 * 60);
                select_and_sort(&one, scores + (size_t)r * n_expert, &over_selected);
                run_layer(&one, &b, x + (size_t)r * 256, alone_by_rank, alone);
                assert_memory_equal(alone_by_rank, by_rank + (size_t)r * 512, 2 * row_bytes);
                assert_memory_equal(alone, out + (size_t)r * 256, row_bytes);
                free_fixture(&one);
            }
            free(scores);
            free(x);
            free(out);
            free(by_rank);
            free_fixture(&f);
            free_bank(&b);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_and_places),
        cmocka_unit_test(choices_by_probability),
        cmocka_unit_test(choices_are_mixed),
        cmocka_unit_test(places_do_not_know_their_company),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
