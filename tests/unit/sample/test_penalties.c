/* What is done to logits before a token is chosen: biases, and penalties for what has come. */
#include "sample/sample.h"

#include "base/mem.h"
#include "unit/sample/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

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

static struct sample_history *new_history(const struct sample_params *p,
                                          size_t max_tokens,
                                          uint32_t n_vocab)
{
    struct sample_history *h;
    assert_true(sample_history_create(p, max_tokens, n_vocab, &h));
    return h;
}

static void test_penalties(void **state)
{
    (void)state;
    struct sample_params p = sample_params_default();
    assert_null(new_history(&p, 10, 5));
    sample_history_add(NULL, 1, true);
    sample_history_destroy(NULL);
    p.temperature = 0;
    p.repetition_penalty = 2;
    p.presence_penalty = 0.5f;
    p.frequency_penalty = 0.25f;
    struct sample_history *h = new_history(&p, 8, 6);
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
    struct sample_history *h = new_history(&p, 2, 3);
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
    struct sample_history *h = new_history(&p, ADDS, N);
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
        struct sample_history *h = new_history(&p, ADDS, N);
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

/* It is as large as the vocabulary, not as what is asked for; memory that is refused is told. */
static void test_history_memory(void **state)
{
    (void)state;
    struct sample_params p = sample_params_default();
    struct sample_history *h;
    p.repetition_penalty = 2;
    sample_history_destroy(new_history(&p, (size_t)1 << 50, 1000));
    p.penalty_window = 64;
    sample_history_destroy(new_history(&p, (size_t)1 << 50, 1000));
    uint64_t nth = 1;
    while (true) {
        mem_fail_nth(nth);
        bool made = sample_history_create(&p, 100, 1000, &h);
        if (!mem_fail_nth(0))
            break;
        assert_false(made);
        assert_null(h);
        nth++;
    }
    sample_history_destroy(h);
    assert_int_equal(nth, 4); /* entries, table, ring */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_presence_ignores_prompt),
        cmocka_unit_test(test_history_counts),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_history_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
