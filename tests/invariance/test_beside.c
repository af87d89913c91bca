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
#include "invariance/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA TEST_DATA "/golden/quantised/llama.Q8_0.gguf"
#define WINDOWS TEST_DATA "/golden/variants/gemma2.f32.gguf"

enum { N_REQUESTS = 72, MOST_PROMPT = 90, MOST_NEW = 48, N_TEXTS = 4, MOST_STOP_IDS = 24 };

static uint64_t seed, rng;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rng >> 33) % n);
}

struct asked {
    struct request_params params;
    token_id prompt[MOST_PROMPT], stop_ids[MOST_STOP_IDS];
    struct logit_bias bias[4];
    uint32_t n_prompt;
    bool constrained;
    bool cancelled;
    bool ended;
    struct request *r;
    struct buf want; /* what it gave alone */
    enum finish want_finish;
    enum stop_kind want_stop;
    uint32_t want_completion, want_out;
};

struct crowd {
    struct asked asked[N_REQUESTS];
    token_id texts[N_TEXTS][MOST_PROMPT];
};

static void draw_sampling(struct asked *a, uint32_t n_vocab)
{
    static const float temperatures[] = {0.0f, 0.7f, 1.0f, 1.4f};
    struct sample_params *s = &a->params.sample;
    s->temperature = temperatures[below(4)];
    s->seed = below(1000);
    s->top_k = below(2) ? (int32_t)below(40) : 0;
    s->top_p = below(3) ? 1.0f : 0.9f;
    s->min_p = below(4) ? 0.0f : 0.05f;
    if (below(3) == 0)
        s->repetition_penalty = 1.2f;
    if (below(3) == 0)
        s->presence_penalty = 0.5f;
    if (below(3) == 0)
        s->frequency_penalty = 0.3f;
    s->n_bias = below(3) ? 0 : below(5); /* a device takes two */
    s->bias = a->bias;
    for (uint32_t i = 0; i < s->n_bias; i++)
        a->bias[i] = (struct logit_bias){(int32_t)below(n_vocab), (float)below(7) - 3.0f};
}

static void draw_ends(struct asked *a, uint32_t n_vocab)
{
    static const char *const stops[] = {"e", "a", " t", "xq"};
    struct request_params *p = &a->params;
    p->max_tokens = 1 + below(MOST_NEW);
    p->ignore_eos = below(2);
    p->n_stop_ids = below(2) ? below(MOST_STOP_IDS) : 0;
    p->stop_ids = a->stop_ids;
    for (uint32_t i = 0; i < p->n_stop_ids; i++)
        a->stop_ids[i] = (token_id)below(n_vocab);
    p->n_stops = below(3) == 0;
    const char *stop = stops[below(4)];
    p->stops[0] = (struct gguf_str){stop, strlen(stop)};
}

static void draw(struct crowd *c, struct asked *a, uint32_t n_vocab)
{
    struct request_params *p = &a->params;
    *p = request_params_default();
    a->n_prompt = 1 + below(MOST_PROMPT);
    const uint32_t same = below(a->n_prompt + 1), text = below(N_TEXTS);
    for (uint32_t i = 0; i < a->n_prompt; i++)
        a->prompt[i] = i < same ? c->texts[text][i] : (token_id)below(n_vocab);
    p->cache = below(8) > 0;
    p->priority = below(4) ? 0 : (int32_t)below(3) - 1;
    p->tenant = below(3);
    if (below(9) == 0) {
        p->output = OUTPUT_EMBEDDING;
        return;
    }
    draw_sampling(a, n_vocab);
    draw_ends(a, n_vocab);
    a->constrained = below(6) == 0;
    p->logprobs = below(3) == 0;
    p->prompt_logprobs = p->logprobs && below(3) == 0;
    p->n_top_logprobs = p->logprobs ? below(4) : 0;
}

static void must(enum err err, const struct err_info *e)
{
    if (err != OK)
        fail_msg("%s", e->text);
}

/* Letters and spaces, up to 20 of them. */
static struct grammar *make_grammar(struct harness *h)
{
    const struct grammar_vocab *v;
    struct grammar *g;
    struct err_info e;
    must(engine_vocab(h->engine, &v, &e), &e);
    struct grammar_builder *b = grammar_builder_create("test");
    must(grammar_compile(b, grammar_regex(b, "[a-z ]{1,20}", 12), v, &g, &e), &e);
    grammar_builder_destroy(b);
    return g;
}

static void create(struct harness *h, struct asked *a, struct grammar *g)
{
    struct err_info e;
    a->params.grammar = a->constrained ? g : NULL;
    a->ended = a->cancelled = false;
    must(request_create(h->engine, &a->params, a->prompt, a->n_prompt, a, &a->r, &e), &e);
}

static void record(const struct asked *a, struct buf *out)
{
    uint32_t n;
    harness_record(a->r, a->params.n_top_logprobs, out);
    const float *vector = request_vector(a->r, &n);
    buf_add(out, vector, n * sizeof *vector);
}

/* What each gives on the host alone. */
static void run_host(const char *model, const struct engine_config *cfg, struct crowd *c)
{
    struct harness h;
    struct request *rs[N_REQUESTS];
    bool done[N_REQUESTS] = {false};
    harness_open(&h, model, cfg);
    struct grammar *g = make_grammar(&h);
    for (uint32_t i = 0; i < N_TEXTS; i++)
        for (uint32_t k = 0; k < MOST_PROMPT; k++)
            c->texts[i][k] = (token_id)below(h.model->hp.n_vocab);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct asked *a = &c->asked[i];
        struct err_info e;
        draw(c, a, h.model->hp.n_vocab);
        a->params.grammar = a->constrained ? g : NULL;
        must(request_create(h.engine, &a->params, a->prompt, a->n_prompt, &done[i], &rs[i], &e),
             &e);
    }
    harness_run(&h, rs, N_REQUESTS);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct asked *a = &c->asked[i];
        a->r = rs[i];
        record(a, &a->want);
        a->want_finish = request_finish(a->r);
        a->want_stop = request_stop(a->r);
        a->want_completion = request_n_completion(a->r);
        a->want_out = request_n_out(a->r);
        request_destroy(a->r);
    }
    grammar_release(g);
    harness_close(&h);
}

/* All of it, or of one that was cancelled the beginning. */
static void compare(const struct asked *a, uint32_t i)
{
    struct buf got = {0};
    record(a, &got);
    if (request_finish(a->r) == FINISH_CANCELLED) {
        assert_true(a->cancelled);
        assert_true(request_n_out(a->r) <= a->want_out);
        if (!a->params.prompt_logprobs && a->params.output == OUTPUT_TOKENS &&
            memcmp(got.data, a->want.data, got.len) != 0)
            fail_msg("request %u, cancelled, began otherwise", i);
    } else if (got.len != a->want.len || memcmp(got.data, a->want.data, got.len) != 0 ||
               request_finish(a->r) != a->want_finish || request_stop(a->r) != a->want_stop ||
               request_n_completion(a->r) != a->want_completion) {
        fail_msg("request %u gave %u tokens and ended as %d, not %u and %d: %s",
                 i,
                 request_n_out(a->r),
                 request_finish(a->r),
                 a->want_out,
                 a->want_finish,
                 request_error(a->r)->text);
    }
    buf_deinit(&got);
}

/* Take what has happened; returns how many ended. */
static uint32_t take_events(struct harness *h, int patience_ms)
{
    struct pollfd p = {.fd = engine_event_fd(h->engine), .events = POLLIN};
    uint32_t n = 0;
    if (poll(&p, 1, patience_ms) <= 0)
        return 0;
    for (struct request *r; (r = engine_next_event(h->engine));) {
        struct asked *a = request_user(r);
        assert_false(a->ended);
        a->ended = request_finish(r) != FINISH_NONE;
        n += a->ended;
    }
    return n;
}

/* Submit the crowd bit by bit, cancel some; `fails`: a step does. */
static struct engine_stats run_device(const char *model,
                                      const struct engine_config *cfg,
                                      struct crowd *c,
                                      bool fails)
{
    struct harness h;
    struct err_info e;
    uint32_t n_ended = 0, n_sent = 0;
    harness_open(&h, model, cfg);
    struct grammar *g = make_grammar(&h);
    for (uint64_t begun_us = clock_us(); n_ended < N_REQUESTS;) {
        for (uint32_t n = below(12); n > 0 && n_sent < N_REQUESTS; n--) {
            create(&h, &c->asked[n_sent], g);
            must(engine_submit(h.engine, c->asked[n_sent++].r, &e), &e);
        }
        struct asked *a = &c->asked[below(n_sent ? n_sent : 1)];
        if (n_sent > 0 && below(8) == 0 && !a->ended) {
            a->cancelled = true;
            engine_cancel(h.engine, a->r);
        }
        n_ended += take_events(&h, n_sent < N_REQUESTS ? (int)below(4) : 20);
        if (clock_us() - begun_us > 120000000)
            fail_msg("%u of %u ended in two minutes", n_ended, N_REQUESTS);
    }
    assert_int_equal(take_events(&h, 0), 0);
    engine_stop(h.engine);
    struct engine_stats st;
    engine_stats_get(h.engine, &st);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        if (!fails || request_finish(c->asked[i].r) != FINISH_ERROR)
            compare(&c->asked[i], i);
        request_destroy(c->asked[i].r);
    }
    uint64_t n = 0;
    for (int f = 0; f <= FINISH_ERROR; f++)
        n += st.requests_by_finish[f];
    assert_int_equal(n, N_REQUESTS);
    assert_int_equal(st.step_allocations, 0);
    assert_int_equal(st.kv.in_use, 0);
    assert_int_equal(st.kv.panes.in_use, 0);
    if (!st.check_ok)
        fail_msg("%s", st.check_error.text);
    assert_true(st.checks >= st.steps);
    grammar_release(g);
    harness_close(&h);
    return st;
}

/* A memory for some of the crowd's sequences. */
static struct engine_config make_config(const char *model, bool small)
{
    struct engine_config cfg = engine_config_default();
    struct model *m;
    assert_int_equal(model_load(model, &m, NULL), OK);
    cfg.n_threads = 1;
    cfg.n_ctx = 160;
    cfg.batch_tokens = 16 + below(60);
    cfg.max_running = 4 + below(20);
    cfg.max_queue = 4 * N_REQUESTS; /* no tenant is refused */
    if (small)
        cfg.kv_bytes = (12 + below(20)) * backend_kv_block_bytes(m, cfg.kv_type, 16);
    cfg.overcommit = 1.0;
    model_destroy(m);
    return cfg;
}

static void check(const char *model, uint32_t n_rounds)
{
    uint64_t ahead = 0, dropped = 0, preempted = 0, steps = 0, whole = 0;
    for (uint32_t round = 0; round < n_rounds; round++) {
        struct crowd *c = calloc(1, sizeof *c);
        struct engine_config cfg = make_config(model, false);
        run_host(model, &cfg, c);
        for (uint32_t k = 0; k < 3; k++) {
            cfg = make_config(model, k > 0);
            cfg.make_backend = beside_create;
            cfg.check_always = true;
            beside_set(&(struct beside_options){.seed = below(1000),
                                                .most_delay_us = k == 1 ? 0 : 1 + below(600),
                                                .most_biases = 2});
            struct engine_stats st = run_device(model, &cfg, c, false);
            ahead += st.steps_ahead;
            dropped += st.rows_dropped;
            preempted += st.preemptions;
            steps += st.steps;
            whole += st.requests_by_finish[FINISH_STOP] + st.requests_by_finish[FINISH_LENGTH];
        }
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            buf_deinit(&c->asked[i].want);
        free(c);
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
        struct crowd *c = calloc(1, sizeof *c);
        struct engine_config cfg = make_config(LLAMA, false);
        run_host(LLAMA, &cfg, c);
        cfg.make_backend = beside_create;
        cfg.check_always = true;
        beside_set(&(struct beside_options){.seed = seed,
                                            .most_delay_us = 300,
                                            .most_biases = 2,
                                            .fails_at = 2 + below(12),
                                            .fails_to_begin = to_begin});
        struct engine_stats st = run_device(LLAMA, &cfg, c, true);
        assert_true(st.requests_by_finish[FINISH_ERROR] > 0);
        assert_true(st.requests_by_finish[FINISH_ERROR] < N_REQUESTS);
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            buf_deinit(&c->asked[i].want);
        free(c);
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
    rng = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
