/* The API over a real engine and the small model, without sockets: what http/ and cli/serve_app.c
 * do, in a few lines. */
#ifndef WEIR_TESTS_API_SERVER_H
#define WEIR_TESTS_API_SERVER_H

#include "api/api.h"
#include "chat/chat.h"
#include "engine/engine.h"
#include "model/model.h"

#include "unit/api/cmocka_all.h"

#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server {
    struct model *model;
    struct tokenizer *tokenizer;
    struct chat_template *tmpl;
    struct engine *engine;
    struct api *api;
};

/* What a client sees. */
struct reply {
    struct api_answer answer; /* strings are gone, but for the two below */
    char allow[32], retry_after[16];
    struct buf body;  /* NUL-terminated */
    uint32_t n_works; /* how often a worker was asked for */
};

typedef enum err (*server_backend_fn)(const struct model *m,
                                      const struct backend_config *cfg,
                                      struct backend **out,
                                      struct err_info *e);

/* backend: NULL for the usual one. */
static inline void server_start_on(struct server *s,
                                   server_backend_fn backend,
                                   enum pooling pooling,
                                   uint32_t max_running,
                                   uint32_t max_queue)
{
    struct err_info e = {0};
    struct gguf_str source = {NULL, 0};
    struct engine_config ec = engine_config_default();
    ec.make_backend = backend;
    ec.pooling = pooling;
    struct api_config ac = {.model_id = "weir-nano"};
    memset(s, 0, sizeof *s);
    ec.n_threads = 2;
    ec.n_ctx = 256;
    ec.max_running = max_running;
    ec.max_queue = max_queue;
    if (model_load(WEIR_MODELS "/weir-nano.gguf", &s->model, &e) != OK ||
        tokenizer_create(s->model->gguf, &s->tokenizer, &e) != OK ||
        gguf_get_str(s->model->gguf, "tokenizer.chat_template", &source, &e) != OK ||
        engine_create(s->model, s->tokenizer, &ec, &s->engine, &e) != OK ||
        api_create(&ac, &s->api, &e) != OK)
        fail_msg("%s", e.text);
    s->tmpl = chat_template_create(source.data, source.len);
    api_set_engine(s->api, s->engine, s->tmpl);
}

static inline void server_start(struct server *s, uint32_t max_running, uint32_t max_queue)
{
    server_start_on(s, NULL, POOLING_UNSPECIFIED, max_running, max_queue);
}

static inline void server_stop(struct server *s)
{
    engine_stop(s->engine);
    api_destroy(s->api);
    engine_destroy(s->engine);
    chat_template_destroy(s->tmpl);
    tokenizer_destroy(s->tokenizer);
    model_destroy(s->model);
}

/* Wait for the engine, at most a minute. */
static inline void server_wait(struct server *s)
{
    struct pollfd p = {.fd = engine_event_fd(s->engine), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 60000), 1);
}

/* Pull until the answer is complete, and end the call. */
static inline void server_finish(struct server *s, struct api_call *c, struct reply *r)
{
    enum api_pull pulled;
    memset(r, 0, sizeof *r);
    while ((pulled = api_pull(c, &r->answer, &r->body)) != API_DONE) {
        if (pulled == API_MORE)
            continue;
        if (pulled == API_WORK) {
            api_work(c);
            r->n_works++;
            continue;
        }
        server_wait(s);
        while (api_next(s->api)) {
        }
    }
    if (r->answer.allow)
        snprintf(r->allow, sizeof r->allow, "%s", r->answer.allow);
    if (r->answer.retry_after)
        snprintf(r->retry_after, sizeof r->retry_after, "%s", r->answer.retry_after);
    buf_cstr(&r->body);
    api_end(c);
}

static inline struct api_call *server_begin(struct server *s,
                                            const char *method,
                                            const char *path,
                                            const char *body)
{
    struct api_input in = {.method = method,
                           .path = path,
                           .query = "",
                           .body = body,
                           .body_len = strlen(body),
                           .name = s};
    return api_begin(s->api, &in);
}

static inline void server_talk(
    struct server *s, const char *method, const char *path, const char *body, struct reply *r)
{
    server_finish(s, server_begin(s, method, path, body), r);
}

/* The answer as JSON; the caller's reference. */
static inline json_t *server_json(
    struct server *s, const char *method, const char *path, const char *body, int status)
{
    struct reply r;
    json_error_t je;
    server_talk(s, method, path, body, &r);
    if (r.answer.status != status)
        fail_msg("%s: status %d: %s", body, r.answer.status, r.body.data);
    json_t *o = json_loads(r.body.data, 0, &je);
    if (!o)
        fail_msg("%s in %s", je.text, r.body.data);
    buf_deinit(&r.body);
    return o;
}

/* The events of a stream, parsed; the last one must be [DONE]. An array, the caller's. */
static inline json_t *server_events(struct server *s, const char *path, const char *body)
{
    struct reply r;
    json_t *events = json_array();
    server_talk(s, "POST", path, body, &r);
    if (r.answer.status != 200)
        fail_msg("%s: status %d: %s", body, r.answer.status, r.body.data);
    assert_true(r.answer.stream);
    assert_string_equal(r.answer.content_type, "text/event-stream");
    char *at = r.body.data;
    bool done = false;
    while (*at) {
        char *end = strstr(at, "\n\n");
        assert_non_null(end);
        assert_false(done);
        assert_memory_equal(at, "data: ", 6);
        *end = '\0';
        if (strcmp(at, "data: [DONE]") == 0) {
            done = true;
        } else {
            json_error_t je;
            json_t *v = json_loads(at + 6, 0, &je);
            if (!v)
                fail_msg("%s in %s", je.text, at);
            json_array_append_new(events, v);
        }
        at = end + 2;
    }
    assert_true(done);
    buf_deinit(&r.body);
    return events;
}

/* v.a.b[0].c by "a.b.0.c"; NULL if there is none. */
static inline json_t *at(json_t *v, const char *path)
{
    char copy[128], *save = NULL;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *p = strtok_r(copy, ".", &save); p && v; p = strtok_r(NULL, ".", &save))
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(p)) : json_object_get(v, p);
    return v;
}

static inline const char *str_at(json_t *v, const char *path)
{
    const char *s = json_string_value(at(v, path));
    if (!s)
        fail_msg("no string at %s", path);
    return s;
}

static inline long long int_at(json_t *v, const char *path)
{
    json_t *i = at(v, path);
    if (!json_is_integer(i))
        fail_msg("no integer at %s", path);
    return json_integer_value(i);
}

#endif
