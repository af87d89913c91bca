/* Choosing tokens: the fast selection against a naive one by sorting, distributions against exact
 * probabilities, and the corners. */
#include "sample/sample.h"

#include "unit/sample/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Sets weight[id] of every token that truncation keeps, 0 of the others; by the book. */
static void naive_weights(const struct sample_params *p,
                          const float *logits,
                          uint32_t n,
                          double *weight)
{
    struct ranked *r = calloc(n, sizeof *r);
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        weight[i] = 0;
        if (!isnan(logits[i]) && logits[i] > -INFINITY)
            r[m++] = (struct ranked){.id = i, .logit = logits[i]};
    }
    qsort(r, m, sizeof *r, by_rank);
    double total = 0, sum = 0;
    if (p->top_k > 0 && (uint32_t)p->top_k < m)
        m = (uint32_t)p->top_k;
    for (uint32_t i = 0; i < m; i++) {
        double t = p->temperature_last ? 1.0 : p->temperature;
        r[i].weight = exp(((double)r[i].logit - r[0].logit) / t);
        total += r[i].weight;
    }
    for (uint32_t i = 0; i < m && (i == 0 || p->top_p >= 1 || sum < p->top_p * total); i++) {
        sum += r[i].weight;
        if (r[i].weight >= p->min_p)
            weight[r[i].id] = p->temperature_last
                                  ? exp(((double)r[i].logit - r[0].logit) / p->temperature)
                                  : r[i].weight;
    }
    free(r);
}

/* The draw that the naive weights say, in the order of ids; *doubt when u is so near a boundary
 * that rounding may decide. */
static int32_t naive_draw(const double *weight, uint32_t n, double u, bool *doubt)
{
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        total += weight[i];
    int32_t chosen = -1;
    *doubt = false;
    for (uint32_t i = 0; i < n; i++) {
        if (weight[i] == 0)
            continue;
        sum += weight[i] / total;
        *doubt |= fabs(sum - u) < 1e-6;
        if (chosen < 0 && sum > u)
            chosen = (int32_t)i;
    }
    return chosen;
}

static void random_logits(uint64_t *c, float *x, uint32_t n)
{
    double spread = pow(10, rnd(c) * 3 - 1);
    bool ties = rnd(c) < 0.4, flat = rnd(c) < 0.05;
    for (uint32_t i = 0; i < n; i++) {
        double g = sqrt(-2 * log(1 - rnd(c))) * cos(6.283185307179586 * rnd(c));
        x[i] = (float)(flat ? 1.5 : ties ? round(g * 3) : g * spread);
        if (rnd(c) < 0.002)
            x[i] = rnd(c) < 0.5 ? NAN : -INFINITY;
    }
}

static struct sample_params random_params(uint64_t *c, uint32_t n)
{
    struct sample_params p = sample_params_default();
    p.temperature = (float)(0.1 + rnd(c) * 2);
    if (rnd(c) < 0.5)
        p.top_k = (int32_t)pow(n, rnd(c)) + 1;
    if (rnd(c) < 0.5)
        p.top_p = (float)(0.05 + 0.95 * rnd(c));
    if (rnd(c) < 0.3)
        p.min_p = (float)(rnd(c) * rnd(c));
    p.temperature_last = rnd(c) < 0.3;
    p.seed = (uint64_t)(rnd(c) * 1e15);
    return p;
}

static void test_same_as_sorting(void **state)
{
    (void)state;
    enum { MAX = 9000, ROUNDS = 3000 };
    float *x = calloc(MAX, sizeof *x), *copy = calloc(MAX, sizeof *x);
    double *weight = calloc(MAX, sizeof *weight);
    struct sample_scratch *s = sample_scratch_create(MAX);
    uint64_t c = 1u << 20;
    int doubts = 0;
    print_message("seed %u\n", SEED);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = 2 + (uint32_t)pow(MAX - 2, rnd(&c));
        random_logits(&c, x, n);
        x[(uint32_t)(rnd(&c) * n)] = 0.25f; /* at least one number */
        struct sample_params p = random_params(&c, n);
        naive_weights(&p, x, n, weight);
        for (uint64_t pos = 0; pos < 4; pos++) {
            bool doubt;
            memcpy(copy, x, n * sizeof *x);
            int32_t want = naive_draw(weight, n, sample_uniform(p.seed, pos), &doubt);
            int32_t got = sample_token(&p, NULL, pos, copy, n, NULL, s);
            doubts += doubt;
            if (got != want && !doubt)
                fail_msg("round %d: n %u k %d p %.9g min_p %.9g T %.9g: %d, should be %d",
                         round,
                         n,
                         p.top_k,
                         (double)p.top_p,
                         (double)p.min_p,
                         (double)p.temperature,
                         got,
                         want);
        }
    }
    assert_true(doubts < ROUNDS * 4 / 5);
    print_message("%d of %d draws too near a boundary to judge\n", doubts, ROUNDS * 4);
    sample_scratch_destroy(s);
    free(x);
    free(copy);
    free(weight);
}

/* Which tokens are ever chosen, exactly, where mass makes the boundary sharp. */
static void test_truncation_by_hand(void **state)
{
    (void)state;
    /* probabilities 0.4, 0.1, 0.3, 0.2 */
    const float x[] = {logf(4), logf(1), logf(3), logf(2)};
    static const struct {
        int32_t top_k;
        float top_p, min_p;
        unsigned kept; /* bit i: token i */
    } cases[] = {
        {0, 1, 0, 0xf},
        {2, 1, 0, 0x5},
        {0, 0.69f, 0, 0x5},
        {0, 0.71f, 0, 0xd},
        {0, 0.39f, 0, 0x1},
        {3, 0.75f, 0, 0x5},
        {3, 0.8f, 0, 0xd},
        {0, 1, 0.6f, 0x5},
        {0, 0.95f, 0.6f, 0x5},
        {4, 1, 0, 0xf},
        {9, 1, 0.24f, 0xf},
        {9, 1, 0.26f, 0xd},
        {0, 0.0f, 0, 0x1},
        {1, 1, 0, 0x1},
        {0, 1e-30f, 0, 0x1},
        {0, 1, 1, 0x1},
    };
    struct sample_scratch *s = sample_scratch_create(4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample_params p = sample_params_default();
        p.top_k = cases[i].top_k;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        unsigned seen = 0;
        for (uint64_t pos = 0; pos < 400; pos++) {
            float copy[4];
            memcpy(copy, x, sizeof copy);
            seen |= 1u << sample_token(&p, NULL, pos, copy, 4, NULL, s);
        }
        assert_int_equal(seen, cases[i].kept);
    }
    sample_scratch_destroy(s);
}

/* Equal logits: the lower ids are kept. */
static void test_ties(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N];
    struct sample_scratch *s = sample_scratch_create(N);
    struct sample_params k = sample_params_default(), top_p = k;
    k.top_k = 10;
    top_p.top_p = 0.1f;
    unsigned highest_k = 0, highest_p = 0;
    for (uint64_t pos = 0; pos < 20000; pos++) {
        for (int i = 0; i < N; i++)
            x[i] = i % 2 ? -0.0f : 0.0f;
        unsigned a = (unsigned)sample_token(&k, NULL, pos, x, N, NULL, s);
        unsigned b = (unsigned)sample_token(&top_p, NULL, pos, x, N, NULL, s);
        highest_k = a > highest_k ? a : highest_k;
        highest_p = b > highest_p ? b : highest_p;
    }
    assert_int_equal(highest_k, 9);
    assert_in_range(highest_p, 99, 100); /* 0.1f is a little more than a tenth */
    sample_scratch_destroy(s);
}

/* --- distributions -------------------------------------------------------------------------- */

static double chi_square(const struct sample_params *p,
                         const float *logits,
                         uint32_t n,
                         uint64_t n_draws,
                         uint32_t *n_free)
{
    struct sample_scratch *s = sample_scratch_create(n);
    double *weight = calloc(n, sizeof *weight), total = 0, chi2 = 0;
    uint64_t *seen = calloc(n, sizeof *seen);
    float *copy = calloc(n, sizeof *copy);
    naive_weights(p, logits, n, weight);
    for (uint32_t i = 0; i < n; i++)
        total += weight[i];
    for (uint64_t pos = 0; pos < n_draws; pos++) {
        memcpy(copy, logits, n * sizeof *copy);
        seen[sample_token(p, NULL, pos, copy, n, NULL, s)]++;
    }
    *n_free = 0;
    for (uint32_t i = 0; i < n; i++) {
        double expected = weight[i] / total * (double)n_draws;
        if (weight[i] == 0)
            assert_int_equal(seen[i], 0);
        else if (expected >= 5) {
            chi2 += pow((double)seen[i] - expected, 2) / expected;
            ++*n_free;
        }
    }
    sample_scratch_destroy(s);
    free(weight);
    free(seen);
    free(copy);
    return chi2;
}

static void test_distributions(void **state)
{
    (void)state;
    enum { N = 200 };
    float x[N];
    uint64_t c = 1u << 30;
    for (int i = 0; i < N; i++)
        x[i] = (float)(rnd(&c) * 6);
    struct sample_params p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = sample_params_default();
        p[i].seed = 99 + (uint64_t)i;
        p[i].temperature = 0.8f;
    }
    p[1].top_k = 40;
    p[2].top_p = 0.7f;
    p[3].min_p = 0.1f;
    for (int i = 0; i < 4; i++) {
        uint32_t n_free;
        double chi2 = chi_square(&p[i], x, N, 200000, &n_free);
        double sigma = (chi2 - n_free) / sqrt(2.0 * n_free);
        print_message("chi-square %.1f with %u bins (%+.1f sigma)\n", chi2, n_free, sigma);
        assert_true(n_free > 20 && fabs(sigma) < 4);
    }
}

/* The choice depends on its arguments alone: not on earlier rows, nor on the scratch. */
static void test_batch_independence(void **state)
{
    (void)state;
    enum { N = 3000, ROWS = 60 };
    struct sample_scratch *shared = sample_scratch_create(N);
    float *x = calloc(N, sizeof *x), *copy = calloc(N, sizeof *copy);
    int32_t first[ROWS];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < ROWS; i++) {
            int row = pass == 0 ? i : ROWS - 1 - i;
            uint64_t c = 1000000u * (uint64_t)row;
            struct sample_scratch *own = sample_scratch_create(N);
            random_logits(&c, x, N);
            struct sample_params p = random_params(&c, N);
            memcpy(copy, x, N * sizeof *x);
            int32_t id = sample_token(&p, NULL, (uint64_t)row, x, N, NULL, shared);
            assert_int_equal(sample_token(&p, NULL, (uint64_t)row, copy, N, NULL, own), id);
            sample_scratch_destroy(own);
            if (pass == 0)
                first[row] = id;
            else
                assert_int_equal(first[row], id);
        }
    sample_scratch_destroy(shared);
    free(x);
    free(copy);
}

/* --- corners -------------------------------------------------------------------------------- */

static void test_hostile_logits(void **state)
{
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0, 1e-45f, 5};
    enum { N = 150, N_VALUES = sizeof values / sizeof *values };
    struct sample_scratch *s = sample_scratch_create(N);
    uint64_t c = 1u << 28;
    for (int round = 0; round < 20000; round++) {
        float x[N], copy[N];
        uint32_t n = 1 + (uint32_t)(rnd(&c) * N), kinds = 1 + (uint32_t)(rnd(&c) * N_VALUES);
        uint32_t from = (uint32_t)(rnd(&c) * N_VALUES);
        bool any = false, number = false, infinite = false;
        for (uint32_t i = 0; i < n; i++) {
            copy[i] = x[i] = values[(from + (uint32_t)(rnd(&c) * kinds)) % N_VALUES];
            any |= x[i] > -INFINITY;
            number |= !isnan(x[i]);
        }
        struct sample_params p = random_params(&c, n);
        if (round % 7 == 0)
            p.temperature = 1e-44f;
        int32_t id = sample_token(&p, NULL, (uint64_t)round, copy, n, NULL, s);
        for (uint32_t i = 0; i < n; i++)
            infinite |= copy[i] == INFINITY;
        if (number && !infinite)
            assert_in_range(id, 0, n - 1);
        else
            assert_int_equal(id, SAMPLE_NO_NUMBER);
        if (any && !infinite)
            assert_true(x[id] > -INFINITY); /* false for NaN */
    }
    sample_scratch_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_sorting),
        cmocka_unit_test(test_truncation_by_hand),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_batch_independence),
        cmocka_unit_test(test_hostile_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
