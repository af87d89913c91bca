/* Choosing tokens: the fast selection against a naive one by sorting, distributions against exact
 * probabilities, and the corners. */
#include "sample/sample.h"

#include "base/clock.h"
#include "sample/internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEED 20240601u

static double rnd(uint64_t *counter)
{
    return sample_uniform(SEED, (*counter)++);
}

/* --- random numbers ------------------------------------------------------------------------ */

/* The known answers published with the algorithm's authors' library (Random123, kat_vectors). */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        sample_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void test_uniform(void **state)
{
    (void)state;
    enum { N = 100000, BINS = 50 };
    uint32_t bins[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        double u = sample_uniform(7, i);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
    }
    double chi2 = 0;
    for (int b = 0; b < BINS; b++)
        chi2 += pow((double)bins[b] - N / BINS, 2) / (N / BINS);
    assert_true(chi2 < 85); /* 49 degrees of freedom: p = 0.001 */
    assert_true(sample_uniform(1, 5) == sample_uniform(1, 5));
    assert_true(sample_uniform(1, 5) != sample_uniform(2, 5));
    assert_true(sample_uniform(1, 5) != sample_uniform(1ull << 32 | 1, 5));
    assert_true(sample_uniform(1, 5) != sample_uniform(1, 1ull << 32 | 5));
}

/* --- rows ---------------------------------------------------------------------------------- */

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 870000; i++) {
        float x = -(float)i * 1e-4f, w;
        sample_exp(&x, 1, 0, 1, &w);
        double exact = exp((double)x);
        worst = fmax(worst, fabs(w - exact) / exact);
    }
    print_message("exp: largest relative error %.2g\n", worst);
    assert_true(worst < 2e-7);
    const float x[] = {-88, -1e30f, -INFINITY, NAN, -NAN, 0, -0.0f};
    float w[7];
    sample_exp(x, 7, 0, 1, w);
    for (int i = 0; i < 5; i++)
        assert_true(w[i] == 0);
    assert_true(w[5] == 1 && w[6] == 1);
}

/* Every length, so that the last word is cut anywhere; what is allowed keeps its bits, and a block
 * without anything is left alone. All ways agree. */
static void test_block_max(void **state)
{
    enum { MAX = 600, WORDS = (MAX + 63) / 64 };
    (void)state;
    uint64_t c = 0;
    for (uint32_t n = 1; n <= MAX; n++) {
        float x[MAX + 1], before[MAX + 1], most[WORDS];
        uint64_t bits[WORDS] = {0}, but[WORDS] = {0};
        for (uint32_t i = 0; i < n; i++) {
            before[i] = x[i] = i % 17 ? (float)rnd(&c) - 0.5f : NAN;
            double all = n % 5 == 0 ? 1 : n % 5 == 1 ? 0 : n % 5 == 2 ? 0.02 : 0.5;
            bits[i / 64] |= (uint64_t)(rnd(&c) < all) << i % 64;
            but[i / 64] |= (uint64_t)(rnd(&c) < 0.1) << i % 64;
        }
        before[n] = x[n] = 3.0f;
        const struct sample_allowed some = {bits, n % 2 ? but : NULL};
        const struct sample_allowed *allowed = n % 3 ? &some : NULL;
        float all_most = sample_block_max(x, n, allowed, most), seen = -INFINITY;
        sample_blocks_fn way[3] = {sample_blocks_plain};
        uint32_t n_ways = 1 + sample_blocks_x86(way + 1);
        for (uint32_t i = 0; i < n_ways; i++) {
            float other[MAX], other_most[WORDS];
            memcpy(other, before, n * sizeof *other);
            way[i](other, n / 64, allowed, other_most);
            assert_memory_equal(other, x, n / 64 * 64 * sizeof *x);
            assert_memory_equal(other_most, most, n / 64 * sizeof *most);
        }
        for (uint32_t b = 0; b * 64 < n; b++) {
            uint64_t word = sample_word(allowed, b);
            float max = -INFINITY;
            for (uint32_t i = b * 64; i < n && i < b * 64 + 64; i++) {
                const float least = -INFINITY;
                bool keep = word == 0 || (word >> i % 64 & 1);
                assert_memory_equal(&x[i], keep ? &before[i] : &least, sizeof x[i]);
                max = word && x[i] > max ? x[i] : max;
            }
            assert_true(most[b] == max);
            seen = max > seen ? max : seen;
        }
        assert_true(all_most == seen);
        assert_memory_equal(&x[n], &before[n], sizeof x[n]);
    }
}

/* Choosing among what is allowed is choosing from a row whose other logits are -inf. */
static void test_allowed(void **state)
{
    (void)state;
    enum { MAX = 1500, WORDS = (MAX + 63) / 64, TOP = 5 };
    struct sample_scratch *s = sample_scratch_create(MAX), *other = sample_scratch_create(MAX);
    uint64_t c = 3u << 24;
    for (uint64_t round = 0; round < 20000; round++) {
        static float x[MAX], ruled[MAX];
        uint64_t bits[WORDS] = {0}, but[WORDS] = {0};
        uint32_t n = 1 + (uint32_t)(rnd(&c) * MAX);
        double all = round % 3 == 0 ? 0.003 : round % 3 == 1 ? 0.05 : 0.9;
        double dead = round % 2 ? 0.7 : 0;
        for (uint32_t b = 0; b * 64 < n; b++) {
            bool none = rnd(&c) < dead;
            for (uint32_t i = b * 64; i < n && i < b * 64 + 64; i++) {
                x[i] = round % 5 ? (float)rnd(&c) * 9 : (float)(int)(rnd(&c) * 9);
                x[i] = rnd(&c) < 0.002 ? NAN : rnd(&c) < 0.002 ? -INFINITY : x[i];
                bits[b] |= (uint64_t)(!none && rnd(&c) < all) << i % 64;
                but[b] |= (uint64_t)(rnd(&c) < 0.02) << i % 64;
            }
        }
        const struct sample_allowed allowed = {bits, round % 7 ? but : NULL};
        for (uint32_t i = 0; i < n; i++) {
            uint64_t word = bits[i / 64] & ~(allowed.but ? but[i / 64] : 0);
            ruled[i] = word >> i % 64 & 1 ? x[i] : -INFINITY;
        }
        struct logit_bias bias = {.id = (int32_t)(rnd(&c) * n), .bias = 5};
        struct sample_params p = sample_params_default();
        p.seed = round;
        p.temperature = round % 11 == 0 ? 0 : 0.8f;
        p.temperature_last = round % 4 == 1;
        p.top_k = round % 3 == 1 ? 40 : 0;
        p.top_p = round % 5 < 2 ? 0.9f : 1;
        p.min_p = round % 7 < 2 ? 0.05f : 0;
        p.bias = &bias;
        p.n_bias = round % 2;
        struct token_logprob top[TOP], want_top[TOP];
        int32_t want = sample_token(&p, NULL, round, ruled, n, NULL, other);
        int32_t got = sample_token(&p, NULL, round, x, n, &allowed, s);
        uint32_t first = 0; /* that may come */
        while (first < n && !(sample_word(&allowed, first / 64) >> first % 64 & 1))
            first++;
        assert_int_equal(got, ruled[want] > -INFINITY ? want : first < n ? (int32_t)first : 0);
        float own = sample_drawn_logprobs(s, got, TOP, top);
        float want_own = sample_drawn_logprobs(other, got, TOP, want_top);
        if (!(ruled[want] > -INFINITY))
            continue;
        assert_true(fabsf(own - want_own) < 1e-6f);
        for (int i = 0; i < TOP; i++) {
            assert_int_equal(top[i].id, want_top[i].id);
            assert_true(top[i].id < 0 || fabsf(top[i].logprob - want_top[i].logprob) < 1e-6f);
        }
    }
    sample_scratch_destroy(s);
    sample_scratch_destroy(other);
}

static void test_argmax(void **state)
{
    (void)state;
    const float nan[] = {NAN, NAN, NAN}, low[] = {NAN, -INFINITY, -INFINITY};
    const float inf[] = {1, INFINITY, NAN, INFINITY};
    assert_int_equal(sample_argmax(nan, 3), 0);
    assert_int_equal(sample_argmax(low, 3), 1);
    assert_int_equal(sample_argmax(inf, 4), 1);
    uint64_t c = 0;
    for (int round = 0; round < 2000; round++) {
        enum { MAX = 5000 };
        static float x[MAX];
        uint32_t n = 1 + (uint32_t)(rnd(&c) * MAX), best = 0;
        for (uint32_t i = 0; i < n; i++) {
            x[i] = (float)(int)(rnd(&c) * 300) - 200; /* many equal */
            if (rnd(&c) < 0.01)
                x[i] = NAN;
        }
        while (best < n - 1 && isnan(x[best]))
            best++;
        for (uint32_t i = 0; i < n; i++)
            if (x[i] > x[best])
                best = i;
        if (isnan(x[best]))
            best = 0;
        assert_int_equal(sample_argmax(x, n), best);
    }
}

/* --- selection against sorting -------------------------------------------------------------- */

struct ranked {
    uint32_t id;
    float logit;
    double weight;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

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
        bool any = false;
        for (uint32_t i = 0; i < n; i++) {
            copy[i] = x[i] = values[(from + (uint32_t)(rnd(&c) * kinds)) % N_VALUES];
            any |= x[i] > -INFINITY;
        }
        struct sample_params p = random_params(&c, n);
        if (round % 7 == 0)
            p.temperature = 1e-44f;
        int32_t id = sample_token(&p, NULL, (uint64_t)round, copy, n, NULL, s);
        assert_in_range(id, 0, n - 1);
        if (any)
            assert_true(x[id] > -INFINITY); /* false for NaN */
    }
    sample_scratch_destroy(s);
}

static void test_bias(void **state)
{
    (void)state;
    struct sample_scratch *s = sample_scratch_create(4);
    const struct logit_bias bias[] = {{2, -INFINITY}, {0, 5}, {-1, 9}, {4, 9}};
    struct sample_params p = sample_params_default();
    p.bias = bias;
    p.n_bias = 4;
    for (uint64_t pos = 0; pos < 2000; pos++) {
        float x[] = {0, 0, 8, 0};
        p.temperature = pos % 2 ? 1.0f : 0.0f;
        int32_t id = sample_token(&p, NULL, pos, x, 4, NULL, s);
        assert_int_not_equal(id, 2);
        assert_true(pos % 2 || id == 0);
        assert_true(x[0] == 5 && x[1] == 0);
    }
    sample_scratch_destroy(s);
}

static void test_penalties(void **state)
{
    (void)state;
    struct sample_params p = sample_params_default();
    assert_null(sample_history_create(&p, 10));
    sample_history_add(NULL, 1, true);
    sample_history_destroy(NULL);
    p.temperature = 0;
    p.repetition_penalty = 2;
    p.presence_penalty = 0.5f;
    p.frequency_penalty = 0.25f;
    struct sample_history *h = sample_history_create(&p, 6);
    sample_history_add(h, 0, false); /* prompt only */
    sample_history_add(h, 0, false);
    sample_history_add(h, 1, true); /* output twice */
    sample_history_add(h, 1, true);
    sample_history_add(h, 3, false); /* both, and a negative logit */
    sample_history_add(h, 3, true);
    sample_history_add(h, 4, true);
    sample_history_add(h, 1000000, true); /* not in the vocabulary */
    float x[] = {8, 8, 3, -2, 0};
    assert_int_equal(sample_token(&p, h, 0, x, 5, NULL, NULL), 0);
    const float want[] = {4, 3, 3, -4.75f, -0.75f};
    assert_memory_equal(x, want, sizeof want);
    sample_history_destroy(h);
}

/* Presence alone: prompt tokens do not count. */
static void test_presence_ignores_prompt(void **state)
{
    (void)state;
    struct sample_params p = sample_params_default();
    p.temperature = 0;
    p.presence_penalty = -1;
    struct sample_history *h = sample_history_create(&p, 2);
    sample_history_add(h, 0, false);
    sample_history_add(h, 1, true);
    float x[] = {1, 1, 1};
    assert_int_equal(sample_token(&p, h, 0, x, 3, NULL, NULL), 1);
    assert_true(x[0] == 1 && x[1] == 2);
    sample_history_destroy(h);
}

/* Thousands of ids, many repeated, counted exactly. */
static void test_history_counts(void **state)
{
    (void)state;
    enum { N = 5000, ADDS = 40000 };
    struct sample_params p = sample_params_default();
    p.temperature = 0;
    p.frequency_penalty = 1;
    struct sample_history *h = sample_history_create(&p, N);
    float *x = calloc(N, sizeof *x), *want = calloc(N, sizeof *want);
    uint64_t c = 1u << 27;
    for (int i = 0; i < ADDS; i++) {
        int32_t id = (int32_t)(rnd(&c) * rnd(&c) * N);
        sample_history_add(h, id, true);
        want[id] -= 1;
    }
    sample_token(&p, h, 0, x, N, NULL, NULL);
    assert_memory_equal(x, want, N * sizeof *x);
    sample_history_destroy(h);
    free(x);
    free(want);
}

/* Against counting the newest tokens anew for each; prompt and output are the same to a window. */
static void test_window(void **state)
{
    (void)state;
    enum { N = 40, ADDS = 600 };
    static const uint32_t windows[] = {1, 2, 7, 64, ADDS, UINT32_MAX};
    uint64_t c = 1u << 25;
    for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
        struct sample_params p = sample_params_default();
        p.temperature = 0;
        p.repetition_penalty = 2;
        p.presence_penalty = 0.5f;
        p.frequency_penalty = 0.25f;
        p.penalty_window = windows[w];
        struct sample_history *h = sample_history_create(&p, ADDS);
        int32_t ids[ADDS];
        for (uint32_t n = 1; n <= ADDS; n++) {
            ids[n - 1] = (int32_t)(rnd(&c) * N);
            sample_history_add(h, ids[n - 1], n > ADDS / 2);
            float x[N], want[N];
            for (int i = 0; i < N; i++)
                x[i] = want[i] = (float)(i - N / 2);
            for (int i = 0; i < N; i++) {
                uint32_t count = 0, first = n > windows[w] ? n - windows[w] : 0;
                for (uint32_t k = first; k < n; k++)
                    count += ids[k] == i;
                if (count > 0) {
                    want[i] = want[i] > 0 ? want[i] / 2 : want[i] * 2;
                    want[i] -= 0.5f + 0.25f * (float)count;
                }
            }
            sample_token(&p, h, 0, x, N, NULL, NULL);
            assert_memory_equal(x, want, sizeof x);
        }
        sample_history_destroy(h);
    }
}

static void test_logprobs(void **state)
{
    (void)state;
    enum { N = 1000, TOP = 20 };
    float x[N];
    uint64_t c = 1u << 26;
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(round % 2 ? rnd(&c) * 20 : floor(rnd(&c) * 30));
        x[7] = NAN;
        struct ranked r[N];
        double sum = 0;
        for (int i = 0; i < N; i++) {
            r[i] = (struct ranked){.id = (uint32_t)i, .logit = i == 7 ? -INFINITY : x[i]};
            sum += i == 7 ? 0 : exp(x[i]);
        }
        qsort(r, N, sizeof *r, by_rank);
        struct token_logprob top[TOP];
        uint32_t n_top = 1 + (uint32_t)(rnd(&c) * TOP);
        float lp = sample_logprobs(x, N, 3, n_top, top);
        assert_true(fabs(lp - (x[3] - log(sum))) < 3e-6);
        for (uint32_t i = 0; i < n_top; i++) {
            assert_int_equal(top[i].id, r[i].id);
            assert_true(fabs(top[i].logprob - (r[i].logit - log(sum))) < 3e-6);
        }
    }
}

/* Drawn often, tokens come as often as the draw is said to have had them likely; those that cannot
 * come are not named, and what is named adds up. */
static void test_drawn_logprobs(void **state)
{
    (void)state;
    enum { N = 12, DRAWS = 20000 };
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
        bool last;
    } cases[] = {{1, 1, 0, 0, false},
                 {0.7f, 1, 0, 5, false},
                 {1.5f, 0.8f, 0, 0, false},
                 {1.5f, 1, 0.1f, 0, true},
                 {1, 0.9f, 0.05f, 8, true},
                 {0, 1, 0, 0, false}};
    struct sample_scratch *s = sample_scratch_create(N);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct sample_params p = sample_params_default();
        struct token_logprob top[N + 2];
        int counts[N] = {0};
        p.temperature = cases[k].temperature;
        p.top_p = cases[k].top_p;
        p.min_p = cases[k].min_p;
        p.top_k = cases[k].top_k;
        p.temperature_last = cases[k].last;
        p.seed = 7;
        for (uint64_t pos = 0; pos < DRAWS; pos++) {
            float x[N];
            for (int i = 0; i < N; i++)
                x[i] = i == 3 ? -INFINITY : (float)((i * 5) % 7) * 0.6f;
            int32_t id = sample_token(&p, NULL, pos, x, N, NULL, s);
            float own = sample_drawn_logprobs(s, id, N + 2, top);
            counts[id]++;
            assert_true(own <= 0 && isfinite(own));
        }
        double sum = 0;
        for (int i = 0; i < N + 2; i++) {
            if (top[i].id < 0) {
                assert_true(top[i].logprob == -INFINITY);
                continue;
            }
            assert_true(i == 0 || top[i].logprob <= top[i - 1].logprob);
            assert_int_not_equal(top[i].id, 3);
            sum += exp(top[i].logprob);
            assert_true(fabs(counts[top[i].id] / (double)DRAWS - exp(top[i].logprob)) < 0.02);
            counts[top[i].id] = 0;
        }
        assert_true(fabs(sum - 1) < 1e-5);
        for (int i = 0; i < N; i++)
            assert_int_equal(counts[i], 0); /* nothing came that is not named */
    }
    assert_true(sample_drawn_logprobs(s, 3, 0, NULL) == -INFINITY);
    sample_scratch_destroy(s);
}

static void test_logprobs_corners(void **state)
{
    (void)state;
    const float inf[] = {1, INFINITY, NAN, -INFINITY}, nan[] = {NAN, NAN};
    struct token_logprob top[5];
    assert_true(sample_logprobs(inf, 4, 1, 5, top) == 0);
    assert_int_equal(top[0].id, 1);
    assert_int_equal(top[1].id, 0);
    assert_int_equal(top[2].id, 3);
    assert_int_equal(top[3].id, -1);
    assert_true(top[1].logprob == -INFINITY && top[4].logprob == -INFINITY);
    assert_true(sample_logprobs(inf, 4, 2, 0, NULL) == -INFINITY);
    assert_true(sample_logprobs(inf, 4, 99, 0, NULL) == -INFINITY);
    assert_true(sample_logprobs(nan, 2, 0, 1, top) == -INFINITY);
    assert_int_equal(top[0].id, -1);
}

/* --- speed: printed, never judged ------------------------------------------------------------ */

static double row_us(const struct sample_params *p,
                     const float *x,
                     uint32_t n,
                     struct sample_scratch *s,
                     float *copy)
{
    enum { ROWS = 20 };
    double best = 1e9;
    for (uint64_t i = 0; i < ROWS; i++) {
        memcpy(copy, x, n * sizeof *x);
        uint64_t t = clock_us();
        sample_token(p, NULL, i, copy, n, NULL, s);
        best = fmin(best, (double)(clock_us() - t));
    }
    return best;
}

static void test_speed(void **state)
{
    (void)state;
    enum { N = 151936 };
    float *x = calloc(N, sizeof *x), *copy = calloc(N, sizeof *x);
    struct sample_scratch *s = sample_scratch_create(N);
    struct sample_params plain = sample_params_default(), greedy = plain, top_k = plain,
                         top_p = plain, all = plain, hot = plain;
    greedy.temperature = 0;
    top_k.top_k = 40;
    top_p.top_p = 0.95f;
    all.top_k = 40, all.top_p = 0.95f, all.min_p = 0.05f;
    hot.top_p = 0.95f, hot.temperature = 10;
    uint64_t c = 1u << 25;
    for (int i = 0; i < N; i++) /* like a model's: a bell, and a few far above it */
        x[i] = (float)(sqrt(-2 * log(1 - rnd(&c))) * cos(6.283185307179586 * rnd(&c)) * 2.5);
    for (int i = 0; i < 12; i++)
        x[(int)(rnd(&c) * N)] = 12 + (float)i;
    print_message("us per row of %d: greedy %.0f, plain %.0f, top-k 40 %.0f, top-p 0.95 %.0f, "
                  "both and min-p %.0f, top-p at temperature 10 %.0f\n",
                  N,
                  row_us(&greedy, x, N, s, copy),
                  row_us(&plain, x, N, s, copy),
                  row_us(&top_k, x, N, s, copy),
                  row_us(&top_p, x, N, s, copy),
                  row_us(&all, x, N, s, copy),
                  row_us(&hot, x, N, s, copy));
    struct token_logprob top[20];
    uint64_t t = clock_us();
    sample_logprobs(x, N, 5, 20, top);
    print_message("log-probabilities with 20 top: %llu us\n", (unsigned long long)(clock_us() - t));
    sample_scratch_destroy(s);
    free(x);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_block_max),
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_same_as_sorting),
        cmocka_unit_test(test_truncation_by_hand),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_batch_independence),
        cmocka_unit_test(test_hostile_logits),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_presence_ignores_prompt),
        cmocka_unit_test(test_history_counts),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_logprobs_corners),
        cmocka_unit_test(test_drawn_logprobs),
        cmocka_unit_test(test_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
