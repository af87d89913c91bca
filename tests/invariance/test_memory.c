/* Same request, same answer, wherever its prefix comes from: computed, found in memory whole or in
 * part, fetched from the disk, or computed again after its sequence was preempted.
 *
 * Each case is first run alone in an engine that has computed nothing; what it gives then must come
 * out in every other way, to the bit. Each way is also shown to have been taken. */
#include "few.h"
#include "invariance/fixture.h"
#include "scratch.h"

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
#define GEMMA3 TEST_DATA "/golden/architectures/gemma3.f32.gguf" /* 6 layers of 7 have windows */
#define GAPS TEST_DATA "/golden/families/deci.f32.gguf"          /* some layers store nothing */
#define PATTERN TEST_DATA "/golden/families/exaone4-windows.f32.gguf"
#define ALL_WINDOWED TEST_DATA "/golden/variants/mistral.f32.gguf"

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
        if (few_leave_out(k, 2))
            continue;
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
        assert_same(rs[i], &f->want[5], 5);
        drop_request(rs[i]);
    }
    assert_int_equal(stats_of(&h).kv.counts.miss_tokens, c->n_prompt + 7);
    harness_close(&h);
}

/* Memory for hardly more than the longest of them, and admission that hopes for the best. */
static void check_preempted(const struct fixture *f, uint32_t n_blocks)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 40, f->kv);
    struct model *m;
    assert_int_equal(model_load(f->model, &m, NULL), OK);
    cfg.kv_bytes = n_blocks * backend_kv_block_bytes(m, f->kv, 16);
    model_destroy(m);
    cfg.overcommit = 1.0;
    harness_open(&h, f->model, &cfg);
    struct engine_stats st = {0};
    for (int i = 0; i < 6 || (i < 60 && st.preemptions == 0); i++) { /* who meets whom is chance */
        run_cases(&h, f, N_MATES);
        st = stats_of(&h);
    }
    const uint64_t taken =
        st.kv.blocks.total * st.kv_block_bytes + st.kv.panes.total * st.kv_pane_bytes;
    assert_true(taken <= cfg.kv_bytes);
    assert_true(taken + st.kv_block_bytes + st.kv_pane_bytes > cfg.kv_bytes);
    assert_true(st.preemptions > 0);
    assert_true(st.kv.counts.evicted + st.kv.counts.panes_evicted > 10);
    assert_sound(&h);
    harness_close(&h);
}

/* What memory for few blocks cannot keep is found again in RAM; dir: or below it, on the disk, for
 * RAM is not enough either. How much gets there is a matter of how fast the disk writes. */
static void check_host(const struct fixture *f, uint32_t n_blocks, const char *dir)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 40, f->kv);
    struct model *m;
    assert_int_equal(model_load(f->model, &m, NULL), OK);
    cfg.kv_bytes = n_blocks * backend_kv_block_bytes(m, f->kv, 16);
    cfg.host_cache_bytes = dir ? cfg.kv_bytes / 2 : 8 * cfg.kv_bytes;
    cfg.cache_dir = dir;
    model_destroy(m);
    harness_open(&h, f->model, &cfg);
    for (int i = 0; i < 3; i++)
        run_cases(&h, f, i == 1 ? N_MATES : 0);
    struct engine_stats st = stats_of(&h);
    assert_int_equal(st.n_tiers, dir ? 2 : 1);
    assert_string_equal(st.tiers[0].name, "host");
    assert_true(st.tiers[0].stats.stored > 10);
    if (dir)
        assert_true(st.tiers[0].stats.evicted > 10 && st.tiers[1].stats.entries > 0);
    else
        assert_true(st.tiers[0].stats.fetched > 10);
    assert_sound(&h);
    harness_close(&h);
}

static void check_host_above_disk(const struct fixture *f, uint32_t n_blocks)
{
    char dir[] = "/tmp/weir-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    check_host(f, n_blocks, dir);
    assert_int_equal(remove_folder(dir), 0);
}

/* Written by one engine, found by the next, which begins with nothing in memory. */
static void check_disk(const struct fixture *f)
{
    char dir[] = "/tmp/weir-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int run = 0; run < 3; run++) {
        struct harness h;
        struct engine_config cfg = make_config(f->n_threads, 64, f->kv);
        cfg.cache_dir = dir;
        harness_open(&h, f->model, &cfg);
        uint32_t found = run_cases(&h, f, run == 2 ? N_MATES : 0);
        struct engine_stats st = stats_of(&h);
        assert_true(st.n_tiers == 1 && st.tiers[0].stats.on && st.tiers[0].stats.writes);
        if (run > 0) {
            assert_int_equal(st.tiers[0].stats.fetched,
                             2 + 6 + 12); /* full blocks of 33, 100, 200 tokens */
            assert_int_equal(found, 16 * st.tiers[0].stats.fetched);
        }
        harness_close(&h);
    }
    assert_int_equal(remove_folder(dir), 0);
}

static void check_all(const char *model, enum kv_type kv, uint32_t n_threads, uint32_t n_blocks)
{
    struct fixture f;
    prepare(&f, model, kv, n_threads);
    check_hot(&f);
    check_part_hits(&f);
    check_waiting(&f);
    check_preempted(&f, n_blocks);
    check_host(&f, n_blocks, NULL);
    check_host_above_disk(&f, n_blocks);
    check_disk(&f);
    forget(&f);
}

static void test_f16(void **state)
{
    (void)state;
    if (!few_shapes())
        check_all(LLAMA, KV_F16, 1, 18);
    check_all(LLAMA, KV_F16, 2, 18);
}

static void test_q8_0(void **state)
{
    (void)state;
    check_all(LLAMA, KV_Q8_0, 2, 18);
}

static void test_f32(void **state)
{
    (void)state;
    if (!few_shapes())
        check_all(LLAMA, KV_F32, 2, 18);
}

static void test_architectures(void **state)
{
    (void)state;
    check_all(EXPERTS, KV_F16, 2, 18);
    check_all(PATTERN, KV_F16, 2, 18);
    if (few_shapes())
        return;
    check_all(WINDOWS, KV_F16, 2, 18);
    check_all(GAPS, KV_F16, 2, 18);
}

/* Where all layers have windows, blocks have no bytes but their panes'. */
static void test_all_windowed(void **state)
{
    (void)state;
    check_all(ALL_WINDOWED, KV_F16, 2, 6); /* a window takes four */
}

/* --- contexts of many windows ---------------------------------------------------------------- */

enum { LONG_PROMPT = 400, LONG_NEW = 60, N_LONG = 3, CONTEXT = 480 };

struct long_case {
    token_id prompt[LONG_PROMPT];
    struct buf want;
};

static struct request *make_long(struct harness *h, const token_id *prompt, uint32_t n, uint32_t i)
{
    struct err_info e;
    struct request *r;
    struct request_params p = request_params_default();
    p.max_tokens = LONG_NEW;
    p.ignore_eos = p.logprobs = true;
    p.n_top_logprobs = N_TOP;
    p.sample.temperature = i % 2 ? 0.9f : 0.0f;
    p.sample.seed = 7;
    if (request_create(h->engine, &p, prompt, n, calloc(1, sizeof(bool)), &r, &e) != OK)
        fail_msg("request_create: %s", e.text);
    return r;
}

static struct engine_config long_config(uint32_t n_threads, uint32_t batch_tokens, uint32_t n_slots)
{
    struct engine_config cfg = make_config(n_threads, batch_tokens, KV_F16);
    cfg.n_ctx = CONTEXT;
    cfg.max_running = n_slots;
    return cfg;
}

/* Two texts that begin alike for 200 tokens, and one of its own; each alone, its prompt computed at
 * once, with memory for all of it. */
static void prepare_long(struct long_case *cases, const char *model)
{
    struct harness h;
    struct engine_config cfg = long_config(1, LONG_PROMPT, 1);
    for (uint32_t i = 0; i < N_LONG; i++) {
        harness_open(&h, model, &cfg);
        for (uint32_t k = 0; k < LONG_PROMPT; k++)
            cases[i].prompt[k] =
                i == 1 && k < 200 ? cases[0].prompt[k] : (token_id)next_random(h.model->hp.n_vocab);
        struct request *r = make_long(&h, cases[i].prompt, LONG_PROMPT, i);
        harness_run(&h, &r, 1);
        harness_record(r, N_TOP, &cases[i].want);
        drop_request(r);
        harness_close(&h);
    }
}

static void run_long(struct harness *h, struct long_case *cases, uint32_t copies)
{
    struct request *rs[N_LONG * 8];
    for (uint32_t i = 0; i < N_LONG * copies; i++)
        rs[i] = make_long(h, cases[i % N_LONG].prompt, LONG_PROMPT, i % N_LONG);
    harness_run(h, rs, N_LONG * copies);
    for (uint32_t i = 0; i < N_LONG * copies; i++) {
        const struct buf *want = &cases[i % N_LONG].want;
        struct buf got = {0};
        assert_int_equal(request_finish(rs[i]), FINISH_LENGTH);
        harness_record(rs[i], N_TOP, &got);
        if (got.len != want->len || memcmp(got.data, want->data, got.len) != 0)
            fail_msg("long case %u differs, %u tokens found", i, request_n_cached(rs[i]));
        buf_deinit(&got);
        drop_request(rs[i]);
    }
}

/* Through little memory: attached, cut short for want of panes, preempted, and fetched. */
static void check_long(const char *model)
{
    struct long_case cases[N_LONG] = {0};
    char dir[] = "/tmp/weir-test-XXXXXX";
    struct model *m;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(model_load(model, &m, NULL), OK);
    const uint64_t whole = backend_kv_block_bytes(m, KV_F16, 16);
    model_destroy(m);
    prepare_long(cases, model);
    for (uint32_t run = 0; run < 4; run++) {
        struct harness h;
        struct engine_config cfg = long_config(1 + run % 2, run == 2 ? 16 : 64, 6);
        cfg.kv_bytes = 50 * whole; /* of 30 blocks a sequence */
        cfg.overcommit = 1.0;
        cfg.cache_dir = run < 2 ? NULL : dir;
        harness_open(&h, model, &cfg);
        for (uint32_t i = 0; i < 3; i++)
            run_long(&h, cases, run == 0 ? 1 : 4);
        struct engine_stats st = stats_of(&h);
        assert_true(st.kv.panes.total > 0 && st.kv.panes.total < st.kv.blocks.total);
        assert_true(st.kv.counts.panes_passed > 100);
        assert_true(st.kv.counts.hit_tokens > 0);
        if (run == 3)
            assert_true(st.tiers[0].stats.fetched > 0);
        assert_sound(&h);
        harness_close(&h);
    }
    for (uint32_t i = 0; i < N_LONG; i++)
        buf_deinit(&cases[i].want);
    assert_int_equal(remove_folder(dir), 0);
}

static void test_many_windows_long(void **state)
{
    (void)state;
    check_long(EXPERTS);
    if (few_shapes())
        return;
    check_long(WINDOWS);
    check_long(ALL_WINDOWED);
}

/* A sequence of 460 positions holds its 29 blocks and, of 29 panes, those of a window of 24. In
 * memory for the blocks and panes of two, four run side by side, and nobody is preempted. */
static void test_long_sequences_hold_a_window(void **state)
{
    (void)state;
    struct long_case cases[N_LONG] = {0};
    struct harness h;
    struct model *m;
    assert_int_equal(model_load(GEMMA3, &m, NULL), OK);
    const uint64_t whole = backend_kv_block_bytes(m, KV_F16, 16);
    const uint32_t window = m->hp.window;
    model_destroy(m);
    prepare_long(cases, GEMMA3);
    struct engine_config cfg = long_config(2, 64, 5);
    cfg.kv_bytes = 2 * (LONG_PROMPT + LONG_NEW + 15) / 16 * whole;
    cfg.overcommit = 0.0; /* so that all of them have to fit */
    harness_open(&h, GEMMA3, &cfg);
    struct request *one = make_long(&h, cases[2].prompt, LONG_PROMPT, 2);
    harness_run(&h, &one, 1);
    drop_request(one);
    struct engine_stats st = stats_of(&h);
    assert_int_equal(st.kv.blocks.peak_in_use, 29);
    /* the window and a chunk; with steps begun ahead two more are under way, or just were */
    const uint32_t chunks = st.steps_ahead > 0 ? 3 : 1;
    assert_true(st.kv.panes.peak_in_use <= kv_window_blocks(window, 16, chunks * 64));
    struct request *rs[5];
    for (uint32_t i = 0; i < 5; i++) {
        token_id own[LONG_PROMPT];
        for (uint32_t k = 0; k < LONG_PROMPT; k++)
            own[k] = (token_id)next_random(h.model->hp.n_vocab);
        rs[i] = make_long(&h, own, LONG_PROMPT, i);
    }
    harness_run(&h, rs, 5);
    for (uint32_t i = 0; i < 5; i++)
        drop_request(rs[i]);
    st = stats_of(&h);
    print_message("%llu bytes: %u blocks of %llu, %u panes of %llu; at most %u and %u in use\n",
                  (unsigned long long)cfg.kv_bytes,
                  st.kv.blocks.total,
                  (unsigned long long)st.kv_block_bytes,
                  st.kv.panes.total,
                  (unsigned long long)st.kv_pane_bytes,
                  st.kv.blocks.peak_in_use,
                  st.kv.panes.peak_in_use);
    assert_int_equal(st.preemptions, 0);
    assert_true(st.kv.blocks.peak_in_use >= 4 * 26); /* four prompts and more at once */
    for (uint32_t i = 0; i < N_LONG; i++)
        buf_deinit(&cases[i].want);
    harness_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_q8_0),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_all_windowed),
        cmocka_unit_test(test_many_windows_long),
        cmocka_unit_test(test_long_sequences_hold_a_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
