/* What draws are made of: random numbers, and passes over a row of logits. */
#include "sample/sample.h"

#include "sample/internal.h"
#include "unit/sample/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

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

/* Weights and their sums have the same bits on every processor, and a sum in parts is that of all.
 */
static void test_ways_agree(void **state)
{
    (void)state;
    enum { N = 64 * 9 };
    uint64_t c = 77u << 20;
    struct sample_passes way[3] = {sample_passes_plain};
    const uint32_t n_ways = 1 + sample_passes_x86(way + 1);
    for (int round = 0; round < 3000; round++) {
        float x[N], w[N], other[N];
        double sums[N / 64], other_sums[N / 64], all = 0;
        const uint32_t n = 1 + (uint32_t)(rnd(&c) * N) % N;
        const float scale = (float)(0.1 + 10 * rnd(&c));
        for (uint32_t i = 0; i < N; i++)
            x[i] = rnd(&c) < 0.01 ? NAN : rnd(&c) < 0.02 ? -INFINITY : 3 - (float)rnd(&c) * 20;
        way[0].exp(x, n, 3, scale, w);
        way[0].sum_blocks(w, n / 64, sums);
        for (uint32_t k = 1; k < n_ways; k++) {
            way[k].exp(x, n, 3, scale, other);
            assert_memory_equal(other, w, n * sizeof *w);
            way[k].sum_blocks(w, n / 64, other_sums);
            assert_memory_equal(other_sums, sums, n / 64 * sizeof *sums);
        }
        for (uint32_t i = 0; i < n; i++)
            all += w[i];
        assert_true(fabs(sample_sum(w, n) - all) <= 1e-12 * all);
        struct sample_sum parts = {0};
        const uint32_t cut = (uint32_t)(rnd(&c) * n) / 8 * 8;
        sample_sum_add(&parts, w, cut);
        sample_sum_add(&parts, w + cut, n - cut);
        const double in_parts = sample_sum_total(&parts), whole = sample_sum(w, n);
        assert_memory_equal(&in_parts, &whole, sizeof whole);
        sample_block_sums(w, n, sums);
        for (uint32_t b = 0; b * 64 < n; b++)
            assert_true(sums[b] == sample_sum(w + b * 64, n - b * 64 < 64 ? n - b * 64 : 64));
    }
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
        struct sample_passes way[3] = {sample_passes_plain};
        uint32_t n_ways = 1 + sample_passes_x86(way + 1);
        for (uint32_t i = 0; i < n_ways; i++) {
            float other[MAX], other_most[WORDS];
            memcpy(other, before, n * sizeof *other);
            way[i].blocks(other, n / 64, allowed, other_most);
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

/* Choosing among what is allowed is choosing from a row whose other logits are -inf. Where none of
 * it is above that, the first comes that has a number. */
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
                const double odd = round % 13 ? 0.002 : 1; /* one that is no finite number */
                x[i] = rnd(&c) < odd / 2 ? NAN : rnd(&c) < odd ? -INFINITY : x[i];
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
        uint32_t first = n; /* that may come, with a number if there is one */
        for (uint32_t i = n; i-- > 0;)
            if (sample_word(&allowed, i / 64) >> i % 64 & 1)
                first = first == n || isnan(x[first]) || !isnan(x[i]) ? i : first;
        first = first < n ? first : 0;
        const int32_t left = isnan(x[first]) ? SAMPLE_NO_NUMBER : (int32_t)first;
        int32_t want = sample_token(&p, NULL, round, ruled, n, NULL, other);
        int32_t got = sample_token(&p, NULL, round, x, n, &allowed, s);
        const bool some = want >= 0 && ruled[want] > -INFINITY;
        assert_int_equal(got, some ? want : left);
        if (got == SAMPLE_NO_NUMBER)
            continue;
        float own = sample_drawn_logprobs(s, got, TOP, top);
        float want_own = sample_drawn_logprobs(other, got, TOP, want_top);
        if (!some)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_ways_agree),
        cmocka_unit_test(test_argmax),
        cmocka_unit_test(test_block_max),
        cmocka_unit_test(test_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
