/* The life of requests in a real engine on the built-in model: every one ends exactly once, its
 * blocks come back, steps allocate nothing, limits are named. */
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/stop.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct model *model;
static struct tokenizer *tokenizer;

static int setup(void **state)
{
    (void)state;
    struct err_info e;
    if (model_load(WEIR_MODELS "/weir-nano.gguf", &model, &e) != OK ||
        tokenizer_create(model->gguf, &tokenizer, &e) != OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    model_destroy(model);
    return 0;
}

static struct engine *open_engine(uint32_t max_running, uint32_t max_queue, uint64_t kv_bytes)
{
    struct engine_config cfg = engine_config_default();
    struct engine *eng;
    struct err_info e;
    cfg.n_threads = 2;
    cfg.max_running = max_running;
    cfg.max_queue = max_queue;
    cfg.kv_bytes = kv_bytes;
    cfg.n_ctx = 512;
    if (engine_create(model, tokenizer, &cfg, &eng, &e) != OK)
        fail_msg("%s", e.text);
    return eng;
}

static struct request *make(struct engine *eng,
                            const char *text,
                            uint32_t max_tokens,
                            const char *stop)
{
    struct request_params p = request_params_default();
    struct token_list ids = {0};
    struct text_piece piece = {text, strlen(text), true};
    struct request *r;
    struct err_info e;
    p.max_tokens = max_tokens;
    p.sample.temperature = 0.0f;
    const struct gguf_str end = {stop, stop ? strlen(stop) : 0};
    assert_int_equal(stop_texts_create(&end, stop ? 1 : 0, &p.stops, &e), OK);
    p.ignore_eos = stop == NULL && max_tokens > 0;
    assert_int_equal(tokenizer_encode(tokenizer, &piece, 1, &ids, &e), OK);
    bool *ended = calloc(1, sizeof *ended);
    if (request_create(eng, &p, ids.ids, (uint32_t)ids.n, ended, &r, &e) != OK)
        fail_msg("%s", e.text);
    stop_texts_release(p.stops);
    token_list_deinit(&ids);
    return r;
}

static void drop(struct request *r)
{
    free(request_user(r));
    request_destroy(r);
}

/* Take the next event, if there is one; a request that has ended may not be named again. */
static struct request *next_event(struct engine *eng, uint32_t *n_ended)
{
    struct request *r = engine_next_event(eng);
    if (r) {
        bool *ended = request_user(r);
        assert_false(*ended);
        *ended = request_finish(r) != FINISH_NONE;
        *n_ended += *ended;
    }
    return r;
}

/* Read events until n requests have ended. */
static void wait_ended(struct engine *eng, uint32_t n)
{
    uint32_t n_ended = 0;
    while (n_ended < n) {
        struct pollfd p = {.fd = engine_event_fd(eng), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 60000), 1);
        while (next_event(eng, &n_ended)) {
        }
    }
}

/* Nothing more may come, and the pool is whole. */
static void assert_idle(struct engine *eng)
{
    struct engine_stats st;
    assert_null(engine_next_event(eng));
    for (int i = 0; i < 6000; i++) {
        engine_stats_get(eng, &st);
        if (st.running == 0 && st.waiting == 0)
            break;
        usleep(10000);
    }
    assert_int_equal(st.running + st.waiting, 0);
    assert_int_equal(st.kv.blocks.in_use, 0);
    assert_int_equal(st.kv.blocks.free + st.kv.blocks.cached, st.kv.blocks.total);
    assert_int_equal(st.step_allocations, 0);
}

static void test_many(void **state)
{
    (void)state;
    enum { N = 100 };
    struct engine *eng = open_engine(16, 200, 0);
    struct request *rs[N];
    struct err_info e;
    for (int i = 0; i < N; i++)
        rs[i] = make(eng,
                     "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
                     1 + (uint32_t)i % 20,
                     NULL);
    for (int i = 0; i < N; i++)
        assert_int_equal(engine_submit(eng, rs[i], &e), OK);
    wait_ended(eng, N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(request_finish(rs[i]), FINISH_LENGTH);
        assert_int_equal(request_n_out(rs[i]), 1 + i % 20);
        assert_int_equal(request_n_completion(rs[i]), 1 + i % 20);
        drop(rs[i]);
    }
    assert_idle(eng);
    engine_destroy(eng);
}

static void test_queue_full(void **state)
{
    (void)state;
    struct engine *eng = open_engine(1, 2, 0);
    struct request *rs[4];
    struct err_info e;
    for (int i = 0; i < 4; i++)
        rs[i] = make(eng, "a long answer", 400, NULL);
    assert_int_equal(engine_submit_all(eng, rs, 3, &e), OK);
    assert_int_equal(engine_submit(eng, rs[3], &e), ERR_QUEUE_FULL);
    for (int i = 0; i < 3; i++)
        engine_cancel(eng, rs[i]);
    wait_ended(eng, 3);
    assert_int_equal(engine_submit(eng, rs[3], &e), OK);
    wait_ended(eng, 1);
    for (int i = 0; i < 4; i++)
        drop(rs[i]);
    assert_idle(eng);
    engine_destroy(eng);
}

/* Whoever has read the last event finds the place free: no false "queue full". */
static void test_serial_at_the_limit(void **state)
{
    (void)state;
    struct engine *eng = open_engine(1, 0, 0);
    struct err_info e;
    for (int i = 0; i < 500; i++) {
        struct request *r = make(eng, "a", 1, NULL);
        assert_int_equal(engine_submit(eng, r, &e), OK);
        wait_ended(eng, 1);
        drop(r);
    }
    struct request *two[2] = {make(eng, "a", 1, NULL), make(eng, "a", 1, NULL)};
    assert_int_equal(engine_submit_all(eng, two, 2, &e), ERR_INVALID); /* could never be held */
    drop(two[0]);
    drop(two[1]);
    assert_idle(eng);
    engine_destroy(eng);
}

static void test_cancel_random(void **state)
{
    (void)state;
    enum { N = 60 };
    struct engine *eng = open_engine(8, 100, 0);
    struct request *rs[N];
    struct err_info e;
    srand(1);
    for (int i = 0; i < N; i++) {
        rs[i] = make(eng, "tell me everything", 300, NULL);
        assert_int_equal(engine_submit(eng, rs[i], &e), OK);
        if (rand() % 2)
            usleep((useconds_t)(rand() % 2000));
        if (rand() % 3)
            engine_cancel(eng, rs[rand() % (i + 1)]);
    }
    for (int i = 0; i < N; i++)
        engine_cancel(eng, rs[i]);
    wait_ended(eng, N);
    for (int i = 0; i < N; i++) {
        assert_int_not_equal(request_finish(rs[i]), FINISH_NONE);
        drop(rs[i]);
    }
    assert_idle(eng);
    engine_destroy(eng);
}

static void test_limits(void **state)
{
    (void)state;
    size_t block = backend_kv_block_bytes(model, KV_F16, 16);
    struct engine *eng = open_engine(4, 4, 8 * block); /* 128 tokens */
    struct request_params p = request_params_default();
    token_id ids[200] = {0};
    struct request *r;
    struct err_info e;
    assert_int_equal(engine_n_ctx(eng), 128);
    assert_int_equal(request_create(eng, &p, ids, 0, NULL, &r, &e), ERR_INVALID);
    assert_int_equal(request_create(eng, &p, ids, 128, NULL, &r, &e), ERR_TOO_LONG);
    assert_non_null(strstr(e.text, "128"));
    p.max_tokens = 100;
    assert_int_equal(request_create(eng, &p, ids, 29, NULL, &r, &e), ERR_TOO_LONG);
    assert_non_null(strstr(e.text, "129"));
    ids[3] = (token_id)model->hp.n_vocab;
    assert_int_equal(request_create(eng, &p, ids, 10, NULL, &r, &e), ERR_INVALID);
    ids[3] = -1;
    assert_int_equal(request_create(eng, &p, ids, 10, NULL, &r, &e), ERR_INVALID);
    ids[3] = 0;
    p.max_tokens = 0; /* to the very end of the context */
    p.ignore_eos = true;
    assert_int_equal(request_create(eng, &p, ids, 127, calloc(1, sizeof(bool)), &r, &e), OK);
    assert_int_equal(engine_submit(eng, r, &e), OK);
    wait_ended(eng, 1);
    assert_int_equal(request_finish(r), FINISH_LENGTH);
    assert_int_equal(request_n_out(r), 1);
    drop(r);
    assert_idle(eng);
    engine_destroy(eng);
}

/* Each allocation of a request that has everything is refused once: an error, and no abort. */
static void test_memory_refused(void **state)
{
    (void)state;
    struct engine *eng = open_engine(1, 1, 0);
    struct request_params p = request_params_default();
    const struct logit_bias bias = {1, 1.0f};
    const token_id ids[] = {20, 21, 22}, stop_id = 3;
    struct request *r;
    struct err_info e;
    uint64_t nth = 1;
    p.max_tokens = 100;
    p.logprobs = p.prompt_logprobs = p.prompt_ranks = p.progress = true;
    p.n_top_logprobs = 2;
    p.sample.repetition_penalty = 1.1f;
    p.sample.penalty_window = 64;
    p.sample.bias = &bias;
    p.sample.n_bias = 1;
    p.stop_ids = &stop_id;
    p.n_stop_ids = 1;
    const struct gguf_str text = {"end", 3};
    while (true) {
        mem_fail_nth(nth);
        r = NULL;
        enum err err = stop_texts_create(&text, 1, &p.stops, &e);
        if (!err)
            err = request_create(eng, &p, ids, 3, NULL, &r, &e);
        stop_texts_release(p.stops);
        if (!mem_fail_nth(0))
            break;
        assert_int_equal(err, ERR_NOMEM);
        assert_null(r);
        nth++;
    }
    request_destroy(r);
    assert_true(nth > 12);
    engine_destroy(eng);
}

static void test_stop_string_is_cut(void **state)
{
    (void)state;
    struct engine *eng = open_engine(4, 4, 0);
    const char *prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
                         "<|im_start|>assistant\n";
    struct request *r = make(eng, prompt, 60, "ri");
    struct err_info e;
    assert_int_equal(engine_submit(eng, r, &e), OK);
    wait_ended(eng, 1);
    struct buf text = {0};
    for (uint32_t i = 0; i < request_n_out(r); i++) {
        size_t n;
        const char *bytes = tokenizer_bytes(tokenizer, request_out(r)[i].id, false, &n);
        buf_add(&text, bytes, n);
        /* what may be shown never reaches into the stop string */
        assert_true(request_out(r)[i].text_bytes <= request_text_bytes(r));
    }
    assert_int_equal(request_finish(r), FINISH_STOP);
    const char *found = strstr(buf_cstr(&text), "ri");
    assert_non_null(found); /* Pa|ri|s */
    assert_int_equal(found - text.data, request_text_bytes(r));
    buf_deinit(&text);
    drop(r);
    assert_idle(eng);
    engine_destroy(eng);
}

static void test_drain_and_stop(void **state)
{
    (void)state;
    struct engine *eng = open_engine(2, 8, 0);
    struct request *rs[4];
    struct err_info e;
    for (int i = 0; i < 4; i++)
        rs[i] = make(eng, "go on", 400, NULL);
    assert_int_equal(engine_submit_all(eng, rs, 3, &e), OK);
    engine_drain(eng);
    assert_int_equal(engine_submit(eng, rs[3], &e), ERR_DRAINING);
    engine_stop(eng);
    uint32_t n_ended = 0;
    while (next_event(eng, &n_ended)) {
    }
    assert_int_equal(n_ended, 3);
    for (int i = 0; i < 4; i++)
        drop(rs[i]);
    engine_destroy(eng);
}

/* With a window the first step waits for as many as can run, and no longer; a client that leaves,
 * an engine that stops and one that takes nobody else are not waited for. */
static void test_batch_window(void **state)
{
    enum { N = 4 };
    static const char *const texts[N] = {"Once", "There", "A fox", "37 + 48"};
    struct engine_config cfg = engine_config_default();
    struct request *rs[N];
    struct engine *eng;
    struct engine_stats st;
    struct err_info e;
    (void)state;
    cfg.n_threads = 2;
    cfg.n_ctx = 512;
    cfg.max_running = N;
    cfg.batch_window_ms = 600000;
    if (engine_create(model, tokenizer, &cfg, &eng, &e) != OK)
        fail_msg("%s", e.text);
    for (int i = 0; i < N; i++) {
        rs[i] = make(eng, texts[i], 3, NULL);
        assert_int_equal(engine_submit(eng, rs[i], &e), OK);
    }
    wait_ended(eng, N);
    engine_stats_get(eng, &st);
    assert_int_equal(st.batch_seqs.counts[0], 0); /* nobody was alone in a step */
    for (int i = 0; i < N; i++)
        drop(rs[i]);
    rs[0] = make(eng, "Once there was a", 3, NULL);
    assert_int_equal(engine_submit(eng, rs[0], &e), OK);
    engine_cancel(eng, rs[0]);
    wait_ended(eng, 1);
    assert_int_equal(request_finish(rs[0]), FINISH_CANCELLED);
    drop(rs[0]);
    rs[0] = make(eng, "Once there was a", 3, NULL);
    assert_int_equal(engine_submit(eng, rs[0], &e), OK);
    engine_stop(eng);
    drop(rs[0]);
    engine_destroy(eng);
    if (engine_create(model, tokenizer, &cfg, &eng, &e) != OK)
        fail_msg("%s", e.text);
    rs[0] = make(eng, "Once there was a", 3, NULL);
    assert_int_equal(engine_submit(eng, rs[0], &e), OK);
    engine_drain(eng);
    wait_ended(eng, 1);
    assert_int_equal(request_finish(rs[0]), FINISH_LENGTH);
    drop(rs[0]);
    engine_destroy(eng);
}

/* RAM above the disk. An engine that could not have the one lets go of the other. */
static void test_two_tiers(void **state)
{
    char dir[] = "/tmp/weir-test-XXXXXX";
    struct engine_config cfg = engine_config_default();
    struct engine *eng;
    struct engine_stats st;
    struct err_info e;
    (void)state;
    assert_non_null(mkdtemp(dir));
    cfg.n_threads = 2;
    cfg.n_ctx = 512;
    cfg.cache_dir = dir;
    cfg.host_cache_bytes = 1;
    assert_int_equal(engine_create(model, tokenizer, &cfg, &eng, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "host-cache"));
    cfg.host_cache_bytes = 1 << 20;
    if (engine_create(model, tokenizer, &cfg, &eng, &e) != OK)
        fail_msg("%s", e.text);
    engine_stats_get(eng, &st);
    assert_int_equal(st.n_tiers, 2);
    assert_string_equal(st.tiers[0].name, "host");
    assert_string_equal(st.tiers[1].name, "disk");
    assert_true(st.tiers[1].stats.writes); /* nobody else does */
    engine_destroy(eng);
    assert_int_equal(remove_folder(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_queue_full),
        cmocka_unit_test(test_cancel_random),
        cmocka_unit_test(test_serial_at_the_limit),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory_refused),
        cmocka_unit_test(test_stop_string_is_cut),
        cmocka_unit_test(test_drain_and_stop),
        cmocka_unit_test(test_batch_window),
        cmocka_unit_test(test_two_tiers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
