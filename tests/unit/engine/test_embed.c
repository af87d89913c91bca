/* Requests that want a vector: right, the same bits in any company and chunks, one end each, and
 * refusals that say why. The vectors themselves are checked in backend/ and by the server's tests.
 */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poll.h>
#include <string.h>

#define ENCODERS TEST_DATA "/golden/encoders/"
#define NANO WEIR_MODELS "/weir-nano.gguf"
#define MAX_VALUES 4096

struct world {
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
};

static struct engine_config config(uint32_t max_running, uint32_t batch_tokens)
{
    struct engine_config cfg = engine_config_default();
    cfg.n_threads = 2;
    cfg.max_running = max_running;
    cfg.batch_tokens = batch_tokens;
    return cfg;
}

static void open_world(struct world *w, const char *path, const struct engine_config *cfg)
{
    struct err_info e;
    if (model_load(path, &w->model, &e) != OK ||
        tokenizer_create(w->model->gguf, &w->tokenizer, &e) != OK ||
        engine_create(w->model, w->tokenizer, cfg, &w->engine, &e) != OK)
        fail_msg("%s: %s", path, e.text);
}

static void close_world(struct world *w)
{
    engine_destroy(w->engine);
    tokenizer_destroy(w->tokenizer);
    model_destroy(w->model);
}

/* Ids that any of the models has, a different text for each i. */
static void fill(token_id *ids, uint32_t n, uint32_t i)
{
    for (uint32_t k = 0; k < n; k++)
        ids[k] = (token_id)(5 + (k * 31 + i * 17 + k * k * i) % 50);
}

static struct request *make(const struct world *w,
                            enum request_output output,
                            uint32_t n,
                            uint32_t i)
{
    struct request_params p = request_params_default();
    token_id ids[512];
    struct request *r;
    struct err_info e;
    p.output = output;
    p.max_tokens = output == OUTPUT_TOKENS ? (n == 100 ? 90 : 12) : 0;
    p.ignore_eos = true;
    fill(ids, n, i);
    if (request_create(w->engine, &p, ids, n, NULL, &r, &e) != OK)
        fail_msg("%s", e.text);
    return r;
}

/* Submit all, and wait until each has had its one end. */
static void run(const struct world *w, struct request **rs, uint32_t n)
{
    struct err_info e;
    uint32_t n_ended = 0;
    assert_int_equal(engine_submit_all(w->engine, rs, n, &e), OK);
    while (n_ended < n) {
        struct pollfd p = {.fd = engine_event_fd(w->engine), .events = POLLIN};
        const struct request *r;
        assert_int_equal(poll(&p, 1, 60000), 1);
        while ((r = engine_next_event(w->engine)))
            n_ended += request_finish(r) != FINISH_NONE;
    }
    assert_null(engine_next_event(w->engine));
}

static uint32_t take(struct request *r, float *out)
{
    uint32_t n;
    const float *v = request_vector(r, &n);
    assert_int_equal(request_finish(r), FINISH_STOP);
    assert_int_equal(request_n_out(r), 0);
    assert_true(n > 0 && n <= MAX_VALUES);
    memcpy(out, v, n * sizeof *out);
    request_destroy(r);
    return n;
}

/* Each text alone against all of them at once, in steps of another size, with requests for tokens
 * between where the model has any. */
static void check_company(const char *path, enum pooling pooling, enum request_output output)
{
    enum { N = 24 };
    static float alone[N][MAX_VALUES], together[N][MAX_VALUES];
    struct engine_config few = config(1, 512), many = config(16, 64);
    struct request *rs[2 * N];
    struct world a = {0}, b = {0};
    uint32_t n = 0, n_rs = 0, lengths[N];
    few.pooling = many.pooling = pooling;
    few.n_ctx = many.n_ctx = 96;
    many.block_tokens = 8;
    many.kv_bytes = 0;
    open_world(&a, path, &few);
    for (uint32_t i = 0; i < N; i++) {
        lengths[i] = 1 + i * 37 % 96;
        struct request *r = make(&a, output, lengths[i], i);
        run(&a, &r, 1);
        n = take(r, alone[i]);
    }
    close_world(&a);
    open_world(&b, path, &many);
    for (uint32_t i = 0; i < N; i++) {
        rs[n_rs++] = make(&b, output, lengths[i], i);
        if (b.model->generates)
            rs[n_rs++] = make(&b, OUTPUT_TOKENS, 1 + i, i);
    }
    run(&b, rs, n_rs);
    for (uint32_t i = 0, k = 0; i < n_rs; i++) {
        uint32_t n_values;
        if (request_vector(rs[i], &n_values))
            take(rs[i], together[k++]);
        else
            request_destroy(rs[i]);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_memory_equal(alone[i], together[i], n * sizeof(float));
    struct engine_stats st;
    engine_stats_get(b.engine, &st);
    assert_int_equal(st.step_allocations, 0);
    assert_int_equal(st.vectors, N);
    assert_int_equal(st.requests_by_finish[FINISH_STOP], N);
    assert_int_equal(st.kv.blocks.in_use, 0);
    close_world(&b);
}

static void test_company(void **state)
{
    (void)state;
    static const enum pooling poolings[] = {POOLING_MEAN, POOLING_CLS, POOLING_LAST};
    for (int i = 0; i < 3; i++) {
        check_company(ENCODERS "bert.f32.gguf", poolings[i], OUTPUT_EMBEDDING);
        check_company(NANO, poolings[i], OUTPUT_EMBEDDING);
    }
    check_company(ENCODERS "nomic-bert.f32.gguf", POOLING_UNSPECIFIED, OUTPUT_EMBEDDING);
    check_company(ENCODERS "gemma-embedding.f32.gguf", POOLING_UNSPECIFIED, OUTPUT_EMBEDDING);
    check_company(ENCODERS "bert-rank.f32.gguf", POOLING_UNSPECIFIED, OUTPUT_SCORES);
}

/* Memory that two answers grow into while the text after them is still being computed, in small
 * steps: the text is preempted, and begins its sum again. */
static void test_preempted(void **state)
{
    (void)state;
    enum { N = 4, LEN = 300 };
    static float alone[MAX_VALUES], got[MAX_VALUES];
    struct engine_config cfg = config(8, 8);
    struct world w = {0};
    struct request *rs[3 * N];
    cfg.pooling = POOLING_MEAN;
    cfg.n_ctx = 400;
    cfg.overcommit = 1.0;
    open_world(&w, NANO, &cfg);
    rs[0] = make(&w, OUTPUT_EMBEDDING, LEN, 3);
    run(&w, rs, 1);
    const uint32_t n = take(rs[0], alone);
    cfg.kv_bytes = 38 * backend_kv_block_bytes(w.model, cfg.kv_type, cfg.block_tokens);
    close_world(&w);
    open_world(&w, NANO, &cfg);
    for (uint32_t i = 0; i < N; i++) {
        rs[3 * i] = make(&w, OUTPUT_TOKENS, 100, 50 + 2 * i);
        rs[3 * i + 1] = make(&w, OUTPUT_TOKENS, 100, 51 + 2 * i);
        rs[3 * i + 2] = make(&w, OUTPUT_EMBEDDING, LEN, 3);
    }
    run(&w, rs, 3 * N);
    for (uint32_t i = 0; i < N; i++) {
        take(rs[3 * i + 2], got);
        assert_memory_equal(got, alone, n * sizeof *got);
        request_destroy(rs[3 * i]);
        request_destroy(rs[3 * i + 1]);
    }
    struct engine_stats st;
    engine_stats_get(w.engine, &st);
    print_message("%llu preemptions\n", (unsigned long long)st.preemptions);
    assert_true(st.preemptions > 0);
    close_world(&w);
}

static void refuse(
    const struct world *w, enum request_output output, uint32_t n, enum err code, const char *words)
{
    struct request_params p = request_params_default();
    token_id ids[512];
    struct request *r;
    struct err_info e = {0};
    p.output = output;
    fill(ids, n, 1);
    assert_int_equal(request_create(w->engine, &p, ids, n, NULL, &r, &e), code);
    assert_null(r);
    if (!strstr(e.text, words))
        fail_msg("'%s' does not say '%s'", e.text, words);
}

static void test_refusals(void **state)
{
    (void)state;
    struct engine_config cfg = config(4, 16);
    struct world w = {0};
    struct err_info e = {0};
    open_world(&w, ENCODERS "bert.f32.gguf", &cfg);
    assert_int_equal(engine_n_ctx(w.engine), 96);
    assert_int_equal(engine_pooling(w.engine), POOLING_CLS);
    refuse(&w, OUTPUT_TOKENS, 3, ERR_INVALID, "makes embeddings");
    refuse(&w, OUTPUT_SCORES, 3, ERR_INVALID, "no head");
    refuse(&w, OUTPUT_EMBEDDING, 97, ERR_TOO_LONG, "at most 96 tokens, but this one has 97");
    refuse(&w, OUTPUT_EMBEDDING, 0, ERR_INVALID, "empty");
    struct request *longest = make(&w, OUTPUT_EMBEDDING, 96, 1); /* wider than batch_tokens */
    run(&w, &longest, 1);
    float out[MAX_VALUES];
    take(longest, out);
    struct request *gone = make(&w, OUTPUT_EMBEDDING, 90, 1); /* cancelled, maybe in time */
    assert_int_equal(engine_submit(w.engine, gone, &e), OK);
    engine_cancel(w.engine, gone);
    struct pollfd p = {.fd = engine_event_fd(w.engine), .events = POLLIN};
    while (request_finish(gone) == FINISH_NONE) {
        assert_int_equal(poll(&p, 1, 60000), 1);
        engine_next_event(w.engine);
    }
    request_destroy(gone);
    close_world(&w);

    open_world(&w, ENCODERS "bert-rank.f32.gguf", &cfg);
    refuse(&w, OUTPUT_EMBEDDING, 3, ERR_INVALID, "pooling");
    close_world(&w);

    struct engine *eng;
    struct model *m;
    struct tokenizer *t;
    assert_int_equal(model_load(ENCODERS "bert.f32.gguf", &m, &e), OK);
    assert_int_equal(tokenizer_create(m->gguf, &t, &e), OK);
    assert_int_equal(model_set_context(m, 97, &e), ERR_INVALID);
    cfg.n_ctx = 97;
    assert_int_equal(engine_create(m, t, &cfg, &eng, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "97"));
    assert_non_null(strstr(e.text, "96"));
    cfg.n_ctx = 0;
    cfg.cache_dir = "/nonexistent";
    assert_int_equal(engine_create(m, t, &cfg, &eng, &e), ERR_INVALID);
    assert_string_equal(e.field, "cache-dir");
    tokenizer_destroy(t);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_preempted),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
