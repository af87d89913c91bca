/* Drafts change nothing but how many steps it takes: a random crowd of requests gives with them
 * what each gives without, to the bit, in few slots and a memory so small that sequences are
 * preempted, with windows and experts too. All of the KV memory is checked after every step.
 *
 *      test_drafts [SEED]      prints the seed; one that failed can be given again */
#include "base/clock.h"
#include "invariance/crowd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#define LLAMA TEST_DATA "/golden/quantised/llama.Q8_0.gguf"
#define WINDOWS TEST_DATA "/golden/variants/gemma2.f32.gguf"
#define EXPERTS TEST_DATA "/golden/variants/mixtral.f32.gguf"

enum { N_REQUESTS = 60, MOST = 48 };

static uint64_t seed;

static struct engine_config make_config(const char *model, bool small)
{
    struct engine_config cfg = engine_config_default();
    struct model *m;
    assert_int_equal(model_load(model, &m, NULL), OK);
    cfg.n_threads = 1 + crowd_below(2);
    cfg.n_ctx = 160;
    cfg.batch_tokens = 8 + crowd_below(60);
    cfg.max_running = 1 + crowd_below(5);
    cfg.max_queue = 4 * N_REQUESTS; /* no tenant is refused */
    if (small)
        cfg.kv_bytes = (11 + crowd_below(12)) * backend_kv_block_bytes(m, cfg.kv_type, 16);
    cfg.overcommit = 1.0;
    model_destroy(m);
    return cfg;
}

static void check(const char *model, uint32_t n_rounds)
{
    uint64_t drafts = 0, drafted = 0, right = 0, steps = 0, preempted = 0;
    for (uint32_t round = 0; round < n_rounds; round++) {
        struct engine_config cfg = make_config(model, false);
        struct crowd *c = crowd_create(model, &cfg, N_REQUESTS, MOST);
        for (uint32_t k = 0; k < 3; k++) {
            cfg = make_config(model, k > 0);
            cfg.n_draft = 1 + crowd_below(ENGINE_MAX_DRAFT);
            cfg.draft_gram = 1 + crowd_below(2);
            cfg.check_always = true;
            const struct engine_stats st = crowd_run(model, &cfg, c, false);
            drafts += st.drafts;
            drafted += st.draft_tokens;
            right += st.draft_tokens_right;
            steps += st.steps;
            preempted += st.preemptions;
            assert_true(st.draft_tokens >= st.drafts && st.draft_tokens_right <= st.draft_tokens);
        }
        crowd_destroy(c);
    }
    print_message("%llu steps, %llu drafts, %llu tokens drafted, %llu right, %llu preemptions\n",
                  (unsigned long long)steps,
                  (unsigned long long)drafts,
                  (unsigned long long)drafted,
                  (unsigned long long)right,
                  (unsigned long long)preempted);
    assert_true(right > 0 && right < drafted);
}

static void test_crowd(void **state)
{
    (void)state;
    check(LLAMA, 3);
}

static void test_crowd_with_windows(void **state)
{
    (void)state;
    check(WINDOWS, 2);
}

static void test_crowd_with_experts(void **state)
{
    (void)state;
    check(EXPERTS, 2);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : clock_us() ^ (uint64_t)clock_unix() << 20;
    printf("seed %llu\n", (unsigned long long)seed);
    crowd_seed(seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crowd_with_windows),
        cmocka_unit_test(test_crowd_with_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
