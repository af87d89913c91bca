/* Same request, same answer, wherever its prefix comes from: computed, found in memory whole or in
 * part, fetched from the disk, or computed again after its sequence was preempted.
 *
 * Each case is first run alone in an engine that has computed nothing; what it gives then must come
 * out in every other way, to the bit. Each way is also shown to have been taken. */
#include "invariance/cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA TEST_DATA "/golden/quantised/llama.Q8_0.gguf"
#define EXPERTS TEST_DATA "/golden/variants/gpt-oss.f32.gguf" /* and windows, and sinks */
#define WINDOWS TEST_DATA "/golden/variants/gemma2.f32.gguf"
#define ALL_WINDOWED TEST_DATA "/golden/variants/mistral.f32.gguf"

struct fixture {
    const char *model;
    enum kv_type kv;
    uint32_t n_threads;
    struct test_case cases[N_CASES];
    struct buf want[N_CASES];
};

static void prepare(struct fixture *f, const char *model, enum kv_type kv, uint32_t n_threads)
{
    struct harness h;
    struct engine_config cfg = make_config(1, 512, kv);
    *f = (struct fixture){.model = model, .kv = kv, .n_threads = n_threads};
    harness_open(&h, model, &cfg);
    for (uint32_t i = 0; i < N_CASES; i++) {
        make_case(&f->cases[i], i, h.model->hp.n_vocab);
        f->cases[i].prompt_logprobs = false; /* they would have to be computed */
    }
    harness_close(&h);
    for (uint32_t i = 0; i < N_CASES; i++)
        run_alone(model, &f->cases[i], kv, &f->want[i]);
}

static void forget(struct fixture *f)
{
    for (uint32_t i = 0; i < N_CASES; i++)
        buf_deinit(&f->want[i]);
}

static struct engine_stats stats_of(const struct harness *h)
{
    struct engine_stats st;
    engine_stats_get(h->engine, &st);
    assert_int_equal(st.step_allocations, 0);
    assert_int_equal(st.kv.in_use, 0);
    assert_int_equal(st.kv.free + st.kv.cached, st.kv.total);
    return st;
}

/* Run the cases, together with n_mates others; the answers must be the same. Returns how many
 * prompt tokens were found. */
static uint32_t run_cases(struct harness *h, const struct fixture *f, uint32_t n_mates)
{
    struct request *rs[N_CASES + N_MATES];
    uint32_t n_cached = 0;
    for (uint32_t i = 0; i < N_CASES; i++)
        rs[i] = make_request(h, &f->cases[i]);
    for (uint32_t i = 0; i < n_mates; i++)
        rs[N_CASES + i] = make_mate(h, 120);
    harness_run(h, rs, N_CASES + n_mates);
    for (uint32_t i = 0; i < N_CASES; i++) {
        struct buf got = {0};
        assert_int_equal(request_finish(rs[i]), FINISH_LENGTH);
        harness_record(rs[i], N_TOP, &got);
        if (got.len != f->want[i].len || memcmp(got.data, f->want[i].data, got.len) != 0)
            fail_msg("case %u differs: %u threads, KV %s, %u tokens found",
                     i,
                     f->n_threads,
                     kv_type_name(f->kv),
                     request_n_cached(rs[i]));
        buf_deinit(&got);
        n_cached += request_n_cached(rs[i]);
    }
    for (uint32_t i = 0; i < N_CASES + n_mates; i++)
        drop_request(rs[i]);
    return n_cached;
}

static void check_hot(const struct fixture *f)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 64, f->kv);
    harness_open(&h, f->model, &cfg);
    assert_int_equal(run_cases(&h, f, 0), 0);
    uint32_t all = 0;
    for (uint32_t i = 0; i < N_CASES; i++)
        all += f->cases[i].n_prompt - 1;
    assert_int_equal(run_cases(&h, f, 0), all); /* everything but the last token of each */
    assert_int_equal(run_cases(&h, f, N_MATES), all);
    stats_of(&h);
    harness_close(&h);
}

/* Others that begin alike go before: some end where a block does, most do not. */
static void check_part_hits(const struct fixture *f)
{
    static const uint32_t same[] = {7, 16, 31, 64, 99, 150};
    for (uint32_t k = 0; k < sizeof same / sizeof same[0]; k++) {
        struct harness h;
        struct engine_config cfg = make_config(f->n_threads, 48, f->kv);
        harness_open(&h, f->model, &cfg);
        struct request *rs[N_CASES];
        for (uint32_t i = 0; i < N_CASES; i++) {
            struct test_case c = f->cases[i];
            for (uint32_t at = same[k]; at < c.n_prompt; at++)
                c.prompt[at] = (token_id)next_random(h.model->hp.n_vocab);
            rs[i] = make_request(&h, &c);
        }
        harness_run(&h, rs, N_CASES);
        uint32_t least = 0;
        for (uint32_t i = 0; i < N_CASES; i++) {
            uint32_t most = f->cases[i].n_prompt - 1;
            least += same[k] < most ? same[k] : most;
        }
        assert_true(run_cases(&h, f, 0) >= least);
        for (uint32_t i = 0; i < N_CASES; i++)
            drop_request(rs[i]);
        stats_of(&h);
        harness_close(&h);
    }
}

/* Eight with the same text at once: one computes, the others wait for it and are given the same. */
static void check_waiting(const struct fixture *f)
{
    struct harness h;
    struct request *rs[8];
    const struct test_case *c = &f->cases[5];
    struct engine_config cfg = make_config(f->n_threads, 32, f->kv);
    harness_open(&h, f->model, &cfg);
    for (uint32_t i = 0; i < 8; i++)
        rs[i] = make_request(&h, c);
    harness_run(&h, rs, 8);
    for (uint32_t i = 0; i < 8; i++) {
        struct buf got = {0};
        harness_record(rs[i], N_TOP, &got);
        assert_int_equal(got.len, f->want[5].len);
        assert_memory_equal(got.data, f->want[5].data, got.len);
        buf_deinit(&got);
        drop_request(rs[i]);
    }
    assert_int_equal(stats_of(&h).kv.counts.miss_tokens, c->n_prompt + 7);
    harness_close(&h);
}

/* Memory for hardly more than the longest of them, and admission that hopes for the best. */
static void check_preempted(const struct fixture *f)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 40, f->kv);
    struct model *m;
    assert_int_equal(model_load(f->model, &m, NULL), OK);
    cfg.kv_bytes = 18 * backend_kv_block_bytes(m, f->kv, 16);
    model_destroy(m);
    cfg.overcommit = 1.0;
    harness_open(&h, f->model, &cfg);
    for (int i = 0; i < 6; i++)
        run_cases(&h, f, N_MATES);
    struct engine_stats st = stats_of(&h);
    assert_int_equal(st.kv.total, 18);
    assert_true(st.preemptions > 0);
    assert_true(st.kv.counts.evicted > 10);
    harness_close(&h);
}

/* Written by one engine, found by the next, which begins with nothing in memory. */
static void check_disk(const struct fixture *f)
{
    char dir[] = "/tmp/weir-test-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    for (int run = 0; run < 3; run++) {
        struct harness h;
        struct engine_config cfg = make_config(f->n_threads, 64, f->kv);
        cfg.cache_dir = dir;
        harness_open(&h, f->model, &cfg);
        uint32_t found = run_cases(&h, f, run == 2 ? N_MATES : 0);
        struct engine_stats st = stats_of(&h);
        assert_true(st.has_tier && st.tier.on && st.tier.writes);
        if (run > 0) {
            assert_int_equal(st.tier.fetched, 2 + 6 + 12); /* full blocks of 33, 100, 200 tokens */
            assert_int_equal(found, 16 * st.tier.fetched);
        }
        harness_close(&h);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static void check_all(const char *model, enum kv_type kv, uint32_t n_threads)
{
    struct fixture f;
    prepare(&f, model, kv, n_threads);
    check_hot(&f);
    check_part_hits(&f);
    check_waiting(&f);
    check_preempted(&f);
    check_disk(&f);
    forget(&f);
}

static void test_f16(void **state)
{
    (void)state;
    check_all(LLAMA, KV_F16, 1);
    check_all(LLAMA, KV_F16, 2);
}

static void test_q8_0(void **state)
{
    (void)state;
    check_all(LLAMA, KV_Q8_0, 2);
}

static void test_f32(void **state)
{
    (void)state;
    check_all(LLAMA, KV_F32, 2);
}

static void test_architectures(void **state)
{
    (void)state;
    check_all(EXPERTS, KV_F16, 2);
    check_all(WINDOWS, KV_F16, 2);
}

/* Where all layers have windows, what lies behind them is let go before anybody is preempted. */
static void test_trimmed(void **state)
{
    (void)state;
    struct fixture f;
    prepare(&f, ALL_WINDOWED, KV_F16, 2);
    struct harness h;
    struct engine_config cfg = make_config(2, 40, KV_F16);
    struct model *m;
    assert_int_equal(model_load(f.model, &m, NULL), OK);
    cfg.kv_bytes = 18 * backend_kv_block_bytes(m, KV_F16, 16);
    model_destroy(m);
    cfg.overcommit = 1.0;
    harness_open(&h, f.model, &cfg);
    for (int i = 0; i < 4; i++)
        run_cases(&h, &f, N_MATES);
    assert_true(stats_of(&h).kv.counts.trimmed > 20);
    harness_close(&h);
    check_hot(&f);
    check_part_hits(&f);
    check_waiting(&f);
    check_disk(&f);
    forget(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_q8_0),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
