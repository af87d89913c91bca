#include "invariance/crowd.h"

#include "base/clock.h"
#include "engine/rules.h"
#include "engine/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rng;

void crowd_seed(uint64_t seed)
{
    rng = seed;
}

uint32_t crowd_below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((rng >> 33) % n);
}

static void draw_sampling(struct asked *a, uint32_t n_vocab)
{
    static const float temperatures[] = {0.0f, 0.7f, 1.0f, 1.4f};
    struct sample_params *s = &a->params.sample;
    s->temperature = temperatures[crowd_below(4)];
    s->seed = crowd_below(1000);
    s->top_k = crowd_below(2) ? (int32_t)crowd_below(40) : 0;
    s->top_p = crowd_below(3) ? 1.0f : 0.9f;
    s->min_p = crowd_below(4) ? 0.0f : 0.05f;
    if (crowd_below(3) == 0)
        s->repetition_penalty = 1.2f;
    if (crowd_below(3) == 0)
        s->presence_penalty = 0.5f;
    if (crowd_below(3) == 0)
        s->frequency_penalty = 0.3f;
    s->n_bias = crowd_below(3) ? 0 : crowd_below(5); /* a device takes two */
    s->bias = a->bias;
    for (uint32_t i = 0; i < s->n_bias; i++)
        a->bias[i] =
            (struct logit_bias){(int32_t)crowd_below(n_vocab), (float)crowd_below(7) - 3.0f};
    if (crowd_below(8) == 0) { /* says one thing over and over, which can be foretold */
        s->n_bias = 1;
        a->bias[0] = (struct logit_bias){(int32_t)crowd_below(n_vocab), 100.0f};
    }
}

static void draw_ends(const struct crowd *c, struct asked *a, uint32_t n_vocab)
{
    static const char *const stops[] = {"e", "a", " t", "xq"};
    struct request_params *p = &a->params;
    p->max_tokens = 1 + crowd_below(c->most_new);
    p->ignore_eos = crowd_below(2);
    p->n_stop_ids = crowd_below(2) ? crowd_below(MOST_STOP_IDS) : 0;
    p->stop_ids = a->stop_ids;
    for (uint32_t i = 0; i < p->n_stop_ids; i++)
        a->stop_ids[i] = (token_id)crowd_below(n_vocab);
    const uint32_t n = crowd_below(3) == 0;
    const char *stop = stops[crowd_below(4)];
    const struct gguf_str text = {stop, strlen(stop)};
    if (stop_texts_create(&text, n, &p->stops, NULL) != OK)
        fail_msg("no stop strings");
}

/* Some tokens that never come, and pairs of which the second does not follow the first. */
static void draw_rules(struct asked *a, uint32_t n_vocab)
{
    struct err_info e;
    enum err err = token_rules_create(n_vocab, &a->params.rules, &e);
    for (uint32_t i = 0; !err && i < 100; i++) {
        const token_id ids[2] = {(token_id)crowd_below(n_vocab), (token_id)crowd_below(n_vocab)};
        err = token_rules_ban(a->params.rules, ids, 1 + i % 2, &e);
    }
    if (err || !token_rules_any(a->params.rules))
        fail_msg("no rules");
}

static void draw(struct crowd *c, struct asked *a, uint32_t n_vocab)
{
    struct request_params *p = &a->params;
    *p = request_params_default();
    a->n_prompt = 1 + crowd_below(MOST_PROMPT);
    const uint32_t same = crowd_below(a->n_prompt + 1), text = crowd_below(N_TEXTS);
    for (uint32_t i = 0; i < a->n_prompt; i++)
        a->prompt[i] = i < same ? c->texts[text][i] : (token_id)crowd_below(n_vocab);
    p->cache = crowd_below(8) > 0;
    p->priority = crowd_below(4) ? 0 : (int32_t)crowd_below(3) - 1;
    p->tenant = crowd_below(3);
    if (crowd_below(9) == 0) {
        p->output = OUTPUT_EMBEDDING;
        return;
    }
    draw_sampling(a, n_vocab);
    draw_ends(c, a, n_vocab);
    a->constrained = crowd_below(6) == 0;
    if (!a->constrained && crowd_below(5) == 0)
        draw_rules(a, n_vocab);
    p->logprobs = crowd_below(3) == 0;
    p->prompt_logprobs = p->prompt_ranks = p->logprobs && crowd_below(3) == 0;
    p->n_top_logprobs = p->logprobs ? crowd_below(4) : 0;
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

static void run_alone_in(const char *model, const struct engine_config *cfg, struct crowd *c)
{
    struct harness h;
    struct request *rs[MOST_REQUESTS];
    bool done[MOST_REQUESTS] = {false};
    harness_open(&h, model, cfg);
    struct grammar *g = make_grammar(&h);
    for (uint32_t i = 0; i < N_TEXTS; i++)
        for (uint32_t k = 0; k < MOST_PROMPT; k++)
            c->texts[i][k] = (token_id)crowd_below(h.model->hp.n_vocab);
    for (uint32_t i = 0; i < c->n_requests; i++) {
        struct asked *a = &c->asked[i];
        struct err_info e;
        draw(c, a, h.model->hp.n_vocab);
        struct request_params p = a->params;
        p.grammar = a->constrained ? g : NULL;
        p.tenant = 0; /* what is submitted at once is of one */
        must(request_create(h.engine, &p, a->prompt, a->n_prompt, &done[i], &rs[i], &e), &e);
    }
    harness_run(&h, rs, c->n_requests);
    for (uint32_t i = 0; i < c->n_requests; i++) {
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

struct crowd *crowd_create(const char *model,
                           const struct engine_config *cfg,
                           uint32_t n_requests,
                           uint32_t most_new)
{
    struct crowd *c = calloc(1, sizeof *c);
    c->n_requests = n_requests;
    c->most_new = most_new;
    run_alone_in(model, cfg, c);
    return c;
}

void crowd_destroy(struct crowd *c)
{
    for (uint32_t i = 0; i < c->n_requests; i++) {
        buf_deinit(&c->asked[i].want);
        stop_texts_release(c->asked[i].params.stops);
        token_rules_release(c->asked[i].params.rules);
    }
    free(c);
}

static bool same(const struct buf *a, const struct buf *b, size_t n)
{
    return n == 0 || memcmp(a->data, b->data, n) == 0;
}

/* All of it, or of one that was cancelled the beginning. */
/* fails: the device does, with which any may have ended. */
static void compare(const struct asked *a, uint32_t i, bool fails)
{
    const enum finish finish = request_finish(a->r);
    struct buf got = {0};
    record(a, &got);
    if (finish == FINISH_CANCELLED || (fails && finish == FINISH_ERROR)) {
        assert_true(a->cancelled || finish == FINISH_ERROR);
        assert_true(request_n_out(a->r) <= a->want_out);
        if (!a->params.prompt_logprobs && a->params.output == OUTPUT_TOKENS &&
            !same(&got, &a->want, got.len))
            fail_msg("request %u, cut short, began otherwise", i);
    } else if (got.len != a->want.len || !same(&got, &a->want, got.len) ||
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

struct engine_stats crowd_run(const char *model,
                              const struct engine_config *cfg,
                              struct crowd *c,
                              bool fails)
{
    struct harness h;
    struct err_info e;
    uint32_t n_ended = 0, n_sent = 0, n_cancelled = 0;
    harness_open(&h, model, cfg);
    struct grammar *g = make_grammar(&h);
    for (uint64_t begun_us = clock_us(); n_ended < c->n_requests;) {
        for (uint32_t n = crowd_below(12); n > 0 && n_sent < c->n_requests; n--) {
            create(&h, &c->asked[n_sent], g);
            must(engine_submit(h.engine, c->asked[n_sent++].r, &e), &e);
        }
        struct asked *a = &c->asked[crowd_below(n_sent ? n_sent : 1)];
        if (n_sent > 0 && crowd_below(8) == 0 && !a->ended && !a->cancelled &&
            n_cancelled < c->n_requests / 4) {
            n_cancelled++;
            a->cancelled = true;
            engine_cancel(h.engine, a->r);
        }
        n_ended += take_events(&h, n_sent < c->n_requests ? (int)crowd_below(4) : 20);
        if (clock_us() - begun_us > 600000000)
            fail_msg("%u of %u ended in ten minutes", n_ended, c->n_requests);
    }
    assert_int_equal(take_events(&h, 0), 0);
    engine_stop(h.engine);
    struct engine_stats st;
    engine_stats_get(h.engine, &st);
    for (uint32_t i = 0; i < c->n_requests; i++) {
        compare(&c->asked[i], i, fails);
        request_destroy(c->asked[i].r);
    }
    uint64_t n = 0;
    for (int f = 0; f <= FINISH_ERROR; f++)
        n += st.requests_by_finish[f];
    assert_int_equal(n, c->n_requests);
    assert_int_equal(st.step_allocations, 0);
    assert_int_equal(st.kv.blocks.in_use, 0);
    assert_int_equal(st.kv.panes.in_use, 0);
    if (!st.check_ok)
        fail_msg("%s", st.check_error.text);
    assert_true(st.checks >= st.steps);
    grammar_release(g);
    harness_close(&h);
    return st;
}
