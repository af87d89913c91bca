/* Generations: how they begin, how their text comes, and how they end. */
#include "base/mem.h"
#include "engine/stop.h"
#include "lib/internal.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* --- the events thread ----------------------------------------------------------------------- */

/* Bytes of the outputs, up to where they may be shown, become text. */
static void take_text(struct weir_generation *g, bool ended)
{
    const uint32_t n_out = request_n_out(g->request);
    const struct request_token *out = request_out(g->request);
    const uint32_t limit = ended       ? request_text_bytes(g->request)
                           : n_out > 0 ? out[n_out - 1].text_bytes
                                       : 0;
    while (g->token_at < n_out && g->n_bytes < limit) {
        size_t n;
        const char *bytes = tokenizer_bytes(g->w->tokenizer, out[g->token_at].id, false, &n);
        const uint32_t left = (uint32_t)n - g->token_bytes, room = limit - g->n_bytes;
        const uint32_t here = left < room ? left : room;
        utf8_feed(&g->utf8, bytes + g->token_bytes, here, false, &g->text);
        g->n_bytes += here;
        g->token_bytes += here;
        if (here == left) {
            g->token_at++;
            g->token_bytes = 0;
        }
    }
    if (ended)
        utf8_feed(&g->utf8, "", 0, true, &g->text);
}

/* Of length 1; all zeros stay. */
static void take_vector(struct weir_generation *g)
{
    uint32_t n;
    const float *x = request_vector(g->request, &n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    const double length = sum > 0 ? sqrt(sum) : 1;
    for (uint32_t i = 0; i < n; i++)
        g->vector[i] = (float)(x[i] / length);
}

static void take_end(struct weir_generation *g)
{
    static const enum weir_finish finishes[] = {[FINISH_STOP] = WEIR_STOP,
                                                [FINISH_LENGTH] = WEIR_LENGTH,
                                                [FINISH_CANCELLED] = WEIR_CANCELLED,
                                                [FINISH_ERROR] = WEIR_FAILED};
    const struct request *r = g->request;
    g->result.finish = finishes[request_finish(r)];
    (void)request_prompt(r, &g->result.n_prompt);
    g->result.n_cached = request_n_cached(r);
    g->result.n_output = request_n_completion(r);
    g->error = *request_error(r);
    if (g->vector && request_finish(r) == FINISH_STOP)
        take_vector(g);
    request_destroy(g->request);
    g->request = NULL;
}

/* With the lock. Its reader may free it as soon as that is let go. */
static void take_news(struct weir_generation *g)
{
    const bool ended = request_finish(g->request) != FINISH_NONE;
    take_text(g, ended);
    if (ended)
        take_end(g);
    pthread_cond_broadcast(&g->news);
}

void *lib_events_main(void *weir)
{
    struct weir *w = weir;
    for (;;) {
        struct pollfd fds[] = {{.fd = engine_event_fd(w->engine), .events = POLLIN},
                               {.fd = w->stop_fd, .events = POLLIN}};
        struct request *r;
        (void)poll(fds, 2, -1);
        pthread_mutex_lock(&w->lock);
        while ((r = engine_next_event(w->engine)))
            take_news(request_user(r));
        pthread_mutex_unlock(&w->lock);
        if (fds[1].revents)
            return NULL;
    }
}

/* --- requests -------------------------------------------------------------------------------- */

static struct weir_request default_request(void)
{
    return (struct weir_request){.size = sizeof(struct weir_request), .top_p = 1.0f};
}

void weir_request_init_size(struct weir_request *r, size_t size)
{
    const struct weir_request all = default_request();
    lib_init_options(r, size, &all, sizeof all);
}

static enum err read_sampling(const struct weir_request *q,
                              struct sample_params *s,
                              struct err_info *e)
{
    const struct {
        const char *name;
        float value, most;
    } reals[] = {{"temperature", q->temperature, 2.0f},
                 {"top_p", q->top_p, 1.0f},
                 {"min_p", q->min_p, 1.0f}};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        if (!(reals[i].value >= 0.0f && reals[i].value <= reals[i].most))
            return err_set(e,
                           ERR_INVALID,
                           "%s: %g is not from 0 to %g",
                           reals[i].name,
                           (double)reals[i].value,
                           (double)reals[i].most);
    }
    if (q->top_k < 0)
        return err_set(e, ERR_INVALID, "top_k: %d is below 0", q->top_k);
    s->temperature = q->temperature;
    s->top_p = q->top_p;
    s->min_p = q->min_p;
    s->top_k = q->top_k;
    s->seed = q->seed;
    return OK;
}

/* The stop texts, as one reference. */
static enum err read_stops(const struct weir_request *q,
                           struct stop_texts **out,
                           struct err_info *e)
{
    struct gguf_str texts[REQUEST_MAX_STOPS];
    if (q->n_stops > REQUEST_MAX_STOPS)
        return err_set(e, ERR_INVALID, "%zu stop texts, not %d", q->n_stops, REQUEST_MAX_STOPS);
    for (size_t i = 0; i < q->n_stops; i++) {
        const char *text = q->stops[i];
        if (!text || !text[0])
            return err_set(e, ERR_INVALID, "stops[%zu] is empty", i);
        const size_t n = strnlen(text, LIB_MAX_TEXT_BYTES + 1);
        if (n > LIB_MAX_TEXT_BYTES || !utf8_valid(text, n))
            return err_set(e, ERR_INVALID, "stops[%zu] is too long, or not valid UTF-8 text", i);
        texts[i] = (struct gguf_str){text, n};
    }
    return stop_texts_create(texts, (uint32_t)q->n_stops, out, e);
}

/* The form that the text must have, compiled, or found compiled; one reference. */
static enum err compile_form(struct weir *w,
                             const struct weir_request *q,
                             struct grammar **out,
                             struct err_info *e)
{
    const bool schema = q->json_schema != NULL;
    const char *text = schema ? q->json_schema : q->grammar;
    const struct grammar_vocab *vocab;
    enum err err;
    if (!text)
        return OK;
    if (schema && q->grammar)
        return err_set(e, ERR_INVALID, "json_schema and grammar exclude each other");
    const size_t n = strnlen(text, LIB_MAX_TEXT_BYTES + 1);
    if (n > LIB_MAX_TEXT_BYTES)
        return err_set(e, ERR_TOO_LONG, "a form of more than %zu bytes", LIB_MAX_TEXT_BYTES);
    if ((err = engine_vocab(w->engine, &vocab, e)))
        return err;
    struct buf key = {.may_fail = true};
    buf_char(&key, schema ? 's' : 'g');
    buf_add(&key, text, n);
    if (key.failed) {
        buf_deinit(&key);
        return err_set(e, ERR_NOMEM, "no memory for a form of %zu bytes", n);
    }
    *out = grammar_cache_find(w->grammars, key.data, key.len);
    if (!*out) {
        struct grammar_builder *b = grammar_builder_create(schema ? "json_schema" : "grammar");
        const grammar_node root =
            schema ? grammar_json_schema_text(b, text, n) : grammar_gbnf(b, text, n);
        err = grammar_compile(b, root, vocab, out, e);
        grammar_builder_destroy(b);
        if (!err)
            grammar_cache_add(w->grammars, key.data, key.len, *out);
    }
    buf_deinit(&key);
    return err;
}

static enum err read_prompt(const struct weir *w,
                            const struct weir_request *q,
                            struct token_list *ids,
                            struct err_info *e)
{
    if ((q->messages != NULL) + (q->prompt != NULL) + (q->tokens != NULL) != 1)
        return err_set(e, ERR_INVALID, "one of messages, prompt and tokens has to be given");
    if (q->messages)
        return lib_encode_chat(w, q->messages, q->n_messages, ids, e);
    if (!q->prompt)
        return OK;
    const size_t n = strnlen(q->prompt, LIB_MAX_TEXT_BYTES + 1);
    if (n <= LIB_MAX_TEXT_BYTES && !utf8_valid(q->prompt, n))
        return err_set(e, ERR_INVALID, "the prompt is not valid UTF-8 text");
    return lib_encode(w, q->prompt, true, false, ids, e);
}

/* --- generations ----------------------------------------------------------------------------- */

static void destroy(struct weir_generation *g)
{
    request_destroy(g->request); /* never submitted */
    pthread_cond_destroy(&g->news);
    buf_deinit(&g->text);
    buf_deinit(&g->piece);
    free(g->vector);
    free(g);
}

/* Submit g, made for w, with its prompt tokens[n]; on failure it is destroyed. */
static enum err submit(struct weir_generation *g,
                       const struct request_params *p,
                       const token_id *tokens,
                       size_t n,
                       struct err_info *e)
{
    struct weir *w = g->w;
    enum err err = n > UINT32_MAX / 2
                       ? err_set(e, ERR_TOO_LONG, "a prompt of %zu tokens", n)
                       : request_create(w->engine, p, tokens, (uint32_t)n, g, &g->request, e);
    if (!err) {
        pthread_mutex_lock(&w->lock);
        err = engine_submit(w->engine, g->request, e);
        w->n_generations += !err;
        pthread_mutex_unlock(&w->lock);
    }
    if (err)
        destroy(g);
    return err;
}

static struct weir_generation *create(struct weir *w)
{
    struct weir_generation *g = mem_zalloc(1, sizeof *g);
    g->w = w;
    pthread_cond_init(&g->news, NULL);
    return g;
}

enum weir_status weir_generate(struct weir *w,
                               const struct weir_request *given,
                               struct weir_generation **out,
                               struct weir_error *e)
{
    struct weir_request q = default_request();
    struct request_params p = request_params_default();
    struct token_list ids = {0};
    struct err_info why;
    enum err err;
    const struct lib_own own = lib_enter();
    *out = NULL;
    if (!(err = lib_take_options(&q, sizeof q, given, given->size, &why)) &&
        !(err = model_must_generate(w->model, &why)) &&
        !(err = read_sampling(&q, &p.sample, &why)) && !(err = read_stops(&q, &p.stops, &why)) &&
        !(err = read_prompt(w, &q, &ids, &why)) && !(err = compile_form(w, &q, &p.grammar, &why))) {
        struct weir_generation *g = create(w);
        p.max_tokens = q.max_tokens;
        err = submit(g, &p, q.tokens ? q.tokens : ids.ids, q.tokens ? q.n_tokens : ids.n, &why);
        *out = err ? NULL : g;
    }
    lib_leave(&own);
    grammar_release(p.grammar);
    stop_texts_release(p.stops);
    token_list_deinit(&ids);
    return lib_status(err, &why, e);
}

const char *weir_next(struct weir_generation *g, size_t *n_bytes)
{
    pthread_mutex_lock(&g->w->lock);
    while (g->text.len == 0 && g->request)
        pthread_cond_wait(&g->news, &g->w->lock);
    const struct buf taken = g->text;
    g->text = g->piece;
    g->piece = taken;
    buf_clear(&g->text);
    pthread_mutex_unlock(&g->w->lock);
    if (n_bytes)
        *n_bytes = g->piece.len;
    return g->piece.len > 0 ? buf_cstr(&g->piece) : NULL;
}

void weir_cancel(struct weir_generation *g)
{
    pthread_mutex_lock(&g->w->lock);
    if (g->request)
        engine_cancel(g->w->engine, g->request);
    pthread_mutex_unlock(&g->w->lock);
}

enum weir_status weir_result(struct weir_generation *g,
                             struct weir_result *out,
                             struct weir_error *e)
{
    pthread_mutex_lock(&g->w->lock);
    while (g->request)
        pthread_cond_wait(&g->news, &g->w->lock);
    pthread_mutex_unlock(&g->w->lock);
    *out = g->result;
    return lib_status(out->finish == WEIR_FAILED ? g->error.code : OK, &g->error, e);
}

void weir_free(struct weir_generation *g)
{
    struct weir_result ignored;
    if (!g)
        return;
    struct weir *w = g->w;
    weir_cancel(g);
    (void)weir_result(g, &ignored, NULL);
    destroy(g);
    pthread_mutex_lock(&w->lock);
    w->n_generations--;
    lib_release(w);
}

/* --- embeddings ------------------------------------------------------------------------------ */

/* The tokens of a text that is to be a vector, with what the model wants around it. */
static enum err encode_whole(const struct weir *w,
                             const char *text,
                             struct token_list *ids,
                             struct err_info *e)
{
    const size_t n = strnlen(text, LIB_MAX_TEXT_BYTES + 1);
    if (n == 0 || (n <= LIB_MAX_TEXT_BYTES && !utf8_valid(text, n)))
        return err_set(e, ERR_INVALID, "the text is empty, or not valid UTF-8");
    enum err err = lib_encode(w, text, true, false, ids, e);
    tokenizer_add_end(w->tokenizer, ids);
    return err;
}

enum weir_status weir_embed(struct weir *w, const char *text, float *vector, struct weir_error *e)
{
    struct request_params p = request_params_default();
    struct token_list ids = {0};
    struct weir_generation *g = NULL;
    struct weir_result result;
    struct weir_error failed;
    struct err_info why;
    const struct lib_own own = lib_enter();
    enum err err = encode_whole(w, text, &ids, &why);
    lib_leave(&own);
    if (!err && engine_pooling(w->engine) == POOLING_NONE)
        err = err_set(&why, ERR_UNSUPPORTED, "the model has an embedding for each token");
    p.output = OUTPUT_EMBEDDING;
    if (!err) {
        g = create(w);
        g->vector = mem_zalloc(weir_n_embd(w), sizeof *g->vector);
        err = submit(g, &p, ids.ids, ids.n, &why);
    }
    token_list_deinit(&ids);
    if (err)
        return lib_status(err, &why, e);
    const enum weir_status status = weir_result(g, &result, e ? e : &failed);
    if (!status)
        memcpy(vector, g->vector, weir_n_embd(w) * sizeof *vector);
    weir_free(g);
    return status;
}
