/* Models with recurrent layers: the same request, the same answer, whatever state it goes on from -
 * its own, one kept for its prompt, for where texts part, or left where another conversation ended
 * - whether a sequence is preempted, cancelled, or its states are taken back. Each case is first
 * run alone in an engine that has computed nothing. */
#include "invariance/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <time.h>

enum { BLOCK = 16 };

/* Where the prompt's last full block ends there is a state. */
static uint32_t kept_at(uint32_t n_prompt)
{
    return (n_prompt - 1) / BLOCK * BLOCK;
}

static void check_hot(const struct fixture *f)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 64, f->kv);
    uint32_t all = 0;
    harness_open(&h, f->model, &cfg);
    assert_int_equal(run_cases(&h, f, 0), 0);
    for (uint32_t i = 0; i < N_CASES; i++)
        all += kept_at(f->cases[i].n_prompt);
    assert_int_equal(run_cases(&h, f, 0), all);
    assert_int_equal(run_cases(&h, f, N_MATES), all);
    assert_true(stats_of(&h).kv.counts.states_kept >= 4);
    harness_close(&h);
}

/* Others that begin alike went before: where they part a state is kept once that was seen. */
static void check_parting(const struct fixture *f, uint32_t same)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 48, f->kv);
    struct test_case c = f->cases[5];
    harness_open(&h, f->model, &cfg);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t at = same; at < c.n_prompt; at++)
            c.prompt[at] = (token_id)next_random(h.model->hp.n_vocab);
        struct request *r = make_request(&h, &c);
        harness_run(&h, &r, 1);
        assert_int_equal(request_n_cached(r), round < 2 ? 0 : same / BLOCK * BLOCK);
        drop_request(r);
    }
    assert_true(run_cases(&h, f, 0) >= same / BLOCK * BLOCK);
    assert_sound(&h);
    stats_of(&h);
    harness_close(&h);
}

/* The next turn of a conversation finds all of the one before, but its last token. */
static void check_conversation(const struct fixture *f)
{
    for (uint32_t i = 0; i < 5; i++) {
        struct harness h;
        struct engine_config cfg = make_config(f->n_threads, 64, f->kv);
        struct test_case next = f->cases[i];
        struct buf want = {0};
        harness_open(&h, f->model, &cfg);
        struct request *r = make_request(&h, &f->cases[i]);
        harness_run(&h, &r, 1);
        for (uint32_t k = 0; k < request_n_out(r); k++)
            next.prompt[next.n_prompt++] = request_out(r)[k].id;
        const uint32_t all = next.n_prompt - 1;
        for (uint32_t k = 0; k < 5; k++)
            next.prompt[next.n_prompt++] = (token_id)(k + 3);
        drop_request(r);
        run_alone(f->model, &next, f->kv, &want);
        r = make_request(&h, &next);
        harness_run(&h, &r, 1);
        assert_int_equal(request_n_cached(r), all);
        assert_same(r, &want, i);
        drop_request(r);
        buf_deinit(&want);
        stats_of(&h);
        harness_close(&h);
    }
}

/* Eight with the same text at once: one computes, the others wait for its state. */
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
    assert_int_equal(stats_of(&h).kv.counts.miss_tokens,
                     c->n_prompt + 7 * (c->n_prompt - kept_at(c->n_prompt)));
    harness_close(&h);
}

/* Memory for hardly more than the longest of them and a few states. */
static void check_preempted(const struct fixture *f, uint32_t n_blocks)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 40, f->kv);
    struct model *m;
    assert_int_equal(model_load(f->model, &m, NULL), OK);
    const uint64_t block = backend_kv_block_bytes(m, f->kv, BLOCK), state = model_state_bytes(m);
    model_destroy(m);
    cfg.kv_bytes = 2 * n_blocks * block > 8 * state ? 2 * n_blocks * block : 8 * state;
    cfg.overcommit = 1.0;
    cfg.host_cache_bytes = 1 << 20; /* which is off */
    harness_open(&h, f->model, &cfg);
    struct engine_stats st = {0};
    for (int i = 0; i < 3; i++) { /* who meets whom is chance */
        run_cases(&h, f, N_MATES);
        st = stats_of(&h);
    }
    const uint64_t taken = st.kv.blocks.total * block + st.kv.states.total * state;
    assert_true(taken <= cfg.kv_bytes && taken + block + state > cfg.kv_bytes);
    assert_int_equal(st.n_tiers, 0);
    assert_true(st.kv.counts.evicted + st.kv.counts.states_evicted > 10);
    assert_sound(&h);
    harness_close(&h);
}

/* Some are cancelled wherever they are; what they leave is found or not, but never wrong. */
static void check_cancelled(const struct fixture *f)
{
    struct harness h;
    struct engine_config cfg = make_config(f->n_threads, 16, f->kv);
    harness_open(&h, f->model, &cfg);
    for (uint32_t round = 0; round < 4; round++) {
        struct request *rs[N_CASES];
        struct err_info e;
        for (uint32_t i = 0; i < N_CASES; i++)
            rs[i] = make_request(&h, &f->cases[i]);
        for (uint32_t i = 0; i < N_CASES; i++)
            assert_int_equal(engine_submit(h.engine, rs[i], &e), OK);
        nanosleep(&(struct timespec){.tv_nsec = 400000L * round}, NULL);
        for (uint32_t i = 0; i < N_CASES; i++)
            engine_cancel(h.engine, rs[i]);
        harness_wait(&h, N_CASES);
        for (uint32_t i = 0; i < N_CASES; i++)
            drop_request(rs[i]);
        run_cases(&h, f, 0);
    }
    assert_sound(&h);
    stats_of(&h);
    harness_close(&h);
}

static void check_all(const char *name, enum kv_type kv, uint32_t n_threads)
{
    char path[512];
    struct fixture f;
    snprintf(path, sizeof path, "%s/golden/recurrent/%s.f32.gguf", TEST_DATA, name);
    print_message("%s\n", name);
    prepare(&f, path, kv, n_threads);
    check_hot(&f);
    check_parting(&f, 64);
    check_parting(&f, 101);
    check_conversation(&f);
    check_waiting(&f);
    check_preempted(&f, 18);
    check_cancelled(&f);
    forget(&f);
}

static void short_convolutions(void **state)
{
    (void)state;
    check_all("lfm2", KV_F16, 2);
}

static void delta_rules(void **state)
{
    (void)state;
    check_all("qwen35", KV_F16, 2);
    check_all("qwen3next", KV_Q8_0, 1);
    check_all("kimi-linear", KV_F16, 2);
    check_all("bailingmoe3", KV_F16, 2);
    check_all("rwkv6", KV_F16, 2);
    check_all("rwkv7", KV_F16, 2);
    check_all("rwkv7-small", KV_F16, 1);
    check_all("rwkv6qwen2-small", KV_F16, 1);
    check_all("arwkv7-bare", KV_F16, 1);
    check_all("kimi-k3", KV_F16, 2);
}

static void scans(void **state)
{
    (void)state;
    check_all("granitehybrid", KV_F16, 2);
    check_all("falcon-h1", KV_F16, 2);
    check_all("minimax-01-listed", KV_F16, 2);
    check_all("plamo2-last", KV_F16, 2);
    check_all("mamba2", KV_F16, 1); /* no layer attends: blocks have no bytes */
}

static void channels(void **state)
{
    (void)state;
    check_all("falcon-mamba", KV_F16, 2);
    check_all("jamba", KV_F16, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_convolutions),
        cmocka_unit_test(delta_rules),
        cmocka_unit_test(scans),
        cmocka_unit_test(channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
