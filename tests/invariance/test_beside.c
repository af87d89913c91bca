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
    assert_true(ahead > 0);
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

static struct engine_stats run_one(struct request_params *p)
{
    static const token_id prompt[] = {5, 6, 7};
    struct engine_config cfg = make_config(LLAMA, false);
    struct harness h;
    struct err_info e;
    struct request *r;
    bool done = false;
    cfg.make_backend = beside_create;
    cfg.check_always = true;
    beside_set(&(struct beside_options){.seed = seed, .most_delay_us = 300, .most_biases = 2});
    harness_open(&h, LLAMA, &cfg);
    const uint32_t n_vocab = h.model->hp.n_vocab;
    token_id *all = malloc(n_vocab * sizeof *all);
    for (uint32_t i = 0; i < n_vocab; i++)
        all[i] = (token_id)i;
    if (p->n_stop_ids == n_vocab)
        p->stop_ids = all;
    assert_int_equal(request_create(h.engine, p, prompt, 3, &done, &r, &e), OK);
    harness_run(&h, &r, 1);
    assert_int_equal(request_n_out(r), p->n_stop_ids == n_vocab ? 0 : p->max_tokens);
    request_destroy(r);
    engine_stop(h.engine);
    struct engine_stats st;
    engine_stats_get(h.engine, &st);
    assert_int_equal(st.kv.blocks.in_use, 0);
    free(all);
    harness_close(&h);
    return st;
}

/* One that runs to its length: every step but the first is begun ahead, and no row is lost. */
static void test_known_end(void **state)
{
    (void)state;
    struct request_params p = request_params_default();
    p.max_tokens = 12;
    p.ignore_eos = true;
    const struct engine_stats st = run_one(&p);
    assert_int_equal(st.steps, 12);
    assert_int_equal(st.steps_ahead, 11);
    assert_int_equal(st.rows_dropped, 0);
}

/* Whatever the first token is, it ends the request: the row that was begun for it is dropped. */
static void test_unforeseen_end(void **state)
{
    (void)state;
    struct model *m;
    struct request_params p = request_params_default();
    assert_int_equal(model_load(LLAMA, &m, NULL), OK);
    p.n_stop_ids = m->hp.n_vocab;
    model_destroy(m);
    p.max_tokens = 12;
    p.ignore_eos = true;
    const struct engine_stats st = run_one(&p);
    assert_int_equal(st.steps, 2);
    assert_int_equal(st.steps_ahead, 1);
    assert_int_equal(st.rows_dropped, 1);
}

/* With more biases than the device takes the host chooses: no step is begun before it has. */
static void test_host_chooses(void **state)
{
    (void)state;
    struct logit_bias bias[3] = {{1, 0.5f}, {2, 0.5f}, {3, 0.5f}};
    struct request_params p = request_params_default();
    p.max_tokens = 12;
    p.ignore_eos = true;
    p.sample.bias = bias;
    p.sample.n_bias = 3;
    const struct engine_stats st = run_one(&p);
    assert_int_equal(st.steps, 12);
    assert_int_equal(st.steps_ahead, 0);
    assert_int_equal(st.rows_dropped, 0);
}

/* A device that fails ends everybody who was in that step, once; the others go on. (All who were in
 * it may have been cancelled meanwhile, but hardly twice.) */
static void test_failure(void **state)
{
    (void)state;
    uint64_t failed = 0;
    for (int to_begin = 0; to_begin < 2; to_begin++) {
        struct engine_config cfg = make_config(LLAMA, false);
        struct crowd *c = crowd_create(LLAMA, &cfg, N_REQUESTS, MOST);
        cfg.make_backend = beside_create;
        cfg.check_always = true;
        beside_set(&(struct beside_options){.seed = seed,
                                            .most_delay_us = 300,
                                            .most_biases = 2,
                                            .fails_at = 6 + crowd_below(12),
                                            .fails_to_begin = to_begin});
        struct engine_stats st = crowd_run(LLAMA, &cfg, c, true);
        failed += st.requests_by_finish[FINISH_ERROR];
        assert_true(st.requests_by_finish[FINISH_ERROR] < N_REQUESTS);
        crowd_destroy(c);
    }
    assert_true(failed > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_crowd_with_windows),
        cmocka_unit_test(test_known_end),
        cmocka_unit_test(test_unforeseen_end),
        cmocka_unit_test(test_host_chooses),
        cmocka_unit_test(test_failure),
    };
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : clock_us() ^ (uint64_t)clock_unix() << 20;
    crowd_seed(seed);
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
