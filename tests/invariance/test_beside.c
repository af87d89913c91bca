/* Steps that are begun before the one before them has ended change nothing: a random crowd of
 * requests gives, with a device beside the host, what each gives on the host alone, to the bit.
 *
 * The crowd has everything that makes the host and the device depend on each other: ends that the
 * device cannot foresee (end tokens, stop ids, stop strings, the end of a grammar), masks,
 * penalties and biases, log-probabilities, embeddings, cancellations at any moment; in a memory so
 * small that sequences are preempted. All of the KV memory is checked after every step.
 *
 *      test_beside [SEED]      prints the seed; one that failed can be given again */
#include "base/clock.h"
#include "invariance/beside.h"
#include "invariance/crowd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#define LLAMA TEST_DATA "/golden/quantised/llama.Q8_0.gguf"
#define WINDOWS TEST_DATA "/golden/variants/gemma2.f32.gguf"

enum { N_REQUESTS = 72, MOST = 48 };

static uint64_t seed;

/* A memory for some of the crowd's sequences. */
static struct engine_config make_config(const char *model, bool small)
{
    struct engine_config cfg = engine_config_default();
    struct model *m;
    assert_int_equal(model_load(model, &m, NULL), OK);
    cfg.n_threads = 1;
    cfg.n_ctx = 160;
    cfg.batch_tokens = 16 + crowd_below(60);
    cfg.max_running = 4 + crowd_below(20);
    cfg.max_queue = 4 * N_REQUESTS; /* no tenant is refused */
    if (small)
        cfg.kv_bytes = (12 + crowd_below(20)) * backend_kv_block_bytes(m, cfg.kv_type, 16);
    cfg.overcommit = 1.0;
    model_destroy(m);
    return cfg;
}

static void check(const char *model, uint32_t n_rounds)
{
    uint64_t ahead = 0, dropped = 0, preempted = 0, steps = 0, whole = 0;
    for (uint32_t round = 0; round < n_rounds; round++) {
        struct engine_config cfg = make_config(model, false);
        struct crowd *c = crowd_create(model, &cfg, N_REQUESTS, MOST);
        for (uint32_t k = 0; k < 3; k++) {
            cfg = make_config(model, k > 0);
            cfg.make_backend = beside_create;
            cfg.check_always = true;
            beside_set(&(struct beside_options){.seed = crowd_below(1000),
                                                .most_delay_us = k == 1 ? 0 : 1 + crowd_below(600),
                                                .most_biases = 2});
            struct engine_stats st = crowd_run(model, &cfg, c, false);
            ahead += st.steps_ahead;
            dropped += st.rows_dropped;
            preempted += st.preemptions;
            steps += st.steps;
            whole += st.requests_by_finish[FINISH_STOP] + st.requests_by_finish[FINISH_LENGTH];
        }
        crowd_destroy(c);
    }
    print_message("%llu of %u requests ran to their end; %llu steps, %llu begun ahead, %llu rows "
                  "dropped, %llu preemptions\n",
                  (unsigned long long)whole,
                  3 * n_rounds * N_REQUESTS,
                  (unsigned long long)steps,
                  (unsigned long long)ahead,
                  (unsigned long long)dropped,
                  (unsigned long long)preempted);
    assert_true(ahead > 0 && dropped > 0 && preempted > 0);
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

/* A device that fails ends everybody who was in that step, once; the others go on. */
static void test_failure(void **state)
{
    (void)state;
    for (int to_begin = 0; to_begin < 2; to_begin++) {
        struct engine_config cfg = make_config(LLAMA, false);
        struct crowd *c = crowd_create(LLAMA, &cfg, N_REQUESTS, MOST);
        cfg.make_backend = beside_create;
        cfg.check_always = true;
        beside_set(&(struct beside_options){.seed = seed,
                                            .most_delay_us = 300,
                                            .most_biases = 2,
                                            .fails_at = 2 + crowd_below(12),
                                            .fails_to_begin = to_begin});
        struct engine_stats st = crowd_run(LLAMA, &cfg, c, true);
        assert_true(st.requests_by_finish[FINISH_ERROR] > 0);
        assert_true(st.requests_by_finish[FINISH_ERROR] < N_REQUESTS);
        crowd_destroy(c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crowd_with_windows),
        cmocka_unit_test(test_failure),
    };
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : clock_us() ^ (uint64_t)clock_unix() << 20;
    crowd_seed(seed);
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
