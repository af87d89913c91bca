/* Log-probabilities, of the model's and of the draw's. */
#include "sample/sample.h"

#include "unit/sample/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

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
        for (uint32_t i = 0; i < N - 1; i++) /* the last is no number */
            assert_int_equal(sample_rank(x, N, (int32_t)r[i].id), i + 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_logprobs_corners),
        cmocka_unit_test(test_drawn_logprobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
