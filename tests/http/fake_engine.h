/* An application for the HTTP layer with an engine that only keeps time. For tests.
 *
 *      GET  /stream?n=&hz=&size=&spread=  n events of about size bytes, hz a second (0: at once);
 *                                         spread=1: streams not in step with each other
 *      GET  /flood?n=&length=             n bytes as fast as the reader takes them, a pattern;
 *                                         length=1: with a length
 *      GET  /big?n=                       the same bytes, as one answer with a length
 *      POST /echo                         the body
 *      GET  /facts                        path, query, authorization, request id as text
 *      GET  /now                          begins at once, as /stats does
 *      GET  /held                         begin takes until /now is asked for, or its client leaves
 *      GET  /hang                         never answers
 *      GET  /silent                       an event stream that says nothing
 *      GET  /slow?ms=                     begin takes ms
 *      GET  /late?ms=                     answers after ms
 *      GET  /work                         an answer that a worker makes, once /stats was asked for
 *      GET  /stats                        the counters as JSON
 *
 * Header-only, so that the unit tests and the program use the same one. */
#ifndef WEIR_TESTS_FAKE_ENGINE_H
#define WEIR_TESTS_FAKE_ENGINE_H

#include "base/clock.h"
#include "base/mem.h"
#include "http/http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum fake_kind { FAKE_TEXT, FAKE_STREAM, FAKE_FLOOD, FAKE_HANG, FAKE_SILENT, FAKE_LATE, FAKE_WORK };

struct fake_call {
    enum fake_kind kind;
    void *name; /* next() calls it by this */
    int status;
    struct http_answer answer;
    struct http_header headers[1];
    struct buf text; /* a FAKE_TEXT answer */
    uint64_t serial;
    uint64_t n_now;   /* asked for before */
    uint64_t n, sent; /* events, or bytes of a flood */
    uint64_t n_bytes; /* of a flood, if they are told */
    uint64_t made;    /* events the engine has made; under the lock */
    uint64_t due_us, period_us;
    size_t size;
    bool timed, named;
    struct fake_call *prev, *next; /* calls the engine serves */
    struct fake_call *next_named;  /* calls with news */
};

struct fake {
    struct http_app app;
    struct http_server *server; /* for /stats; set after create */
    pthread_mutex_t lock;
    pthread_t thread;
    bool stop, paused; /* paused: what is timed comes later */
    struct fake_call *calls, *named;
    uint64_t n_begin, n_left, n_end, n_whole, n_pull, n_double_end, n_stats, n_now;
};

static inline char fake_pattern(uint64_t i)
{
    return (char)('a' + i * 7 % 26);
}

static inline uint64_t fake_arg(const char *query, const char *name, uint64_t otherwise)
{
    char key[32];
    snprintf(key, sizeof key, "%s=", name);
    for (const char *p = query; p && *p; p = strchr(p, '&'), p = p ? p + 1 : NULL) {
        if (!strncmp(p, key, strlen(key)))
            return strtoull(p + strlen(key), NULL, 10);
    }
    return otherwise;
}

static inline void fake_stats(struct fake *f, struct buf *out)
{
    struct http_stats st = http_server_stats(f->server);
    pthread_mutex_lock(&f->lock);
    f->n_stats++;
    buf_printf(out,
               "{\"begin\": %llu, \"left\": %llu, \"end\": %llu, \"whole\": %llu, \"pull\": %llu, "
               "\"double_end\": %llu, "
               "\"connections\": %u, \"accepted\": %llu, \"requests\": %llu, \"gone\": %llu, "
               "\"dropped\": %llu}\n",
               (unsigned long long)f->n_begin,
               (unsigned long long)f->n_left,
               (unsigned long long)f->n_end,
               (unsigned long long)f->n_whole,
               (unsigned long long)f->n_pull,
               (unsigned long long)f->n_double_end,
               st.connections,
               (unsigned long long)st.accepted,
               (unsigned long long)st.requests,
               (unsigned long long)st.clients_gone,
               (unsigned long long)st.answers_dropped);
    pthread_mutex_unlock(&f->lock);
}

/* Under the lock. */
static inline void fake_name(struct fake *f, struct fake_call *c)
{
    if (c->named)
        return;
    c->named = true;
    c->next_named = f->named;
    f->named = c;
}

static inline void fake_notify(struct fake *f)
{
    uint64_t one = 1;
    (void)!write(f->app.news_fd, &one, sizeof one);
}

/* The engine: every millisecond, an event for each stream whose time has come. */
static inline void *fake_engine_main(void *arg)
{
    struct fake *f = arg;
    for (;;) {
        usleep(1000);
        uint64_t now = clock_us();
        pthread_mutex_lock(&f->lock);
        for (struct fake_call *c = f->paused ? NULL : f->calls; c; c = c->next) {
            if (!c->timed || now < c->due_us)
                continue;
            c->due_us += c->period_us;
            if (++c->made >= c->n)
                c->timed = false;
            fake_name(f, c);
        }
        bool news = f->named != NULL, stop = f->stop;
        pthread_mutex_unlock(&f->lock);
        if (news)
            fake_notify(f);
        if (stop)
            return NULL;
    }
}

static inline void fake_text(struct fake_call *c, int status, const char *text)
{
    c->status = status;
    buf_str(&c->text, text);
}

static inline void fake_stream(struct fake_call *c, const char *query)
{
    c->kind = FAKE_STREAM;
    c->n = fake_arg(query, "n", 10);
    c->size = fake_arg(query, "size", 100);
    uint64_t hz = fake_arg(query, "hz", 0);
    if (hz == 0) {
        c->made = c->n;
        return;
    }
    c->timed = true;
    c->period_us = 1000000 / hz;
    uint64_t now = clock_us();
    c->due_us = now - now % c->period_us + c->period_us;
    if (fake_arg(query, "spread", 0))
        c->due_us += c->serial * 7919 * 13 % c->period_us;
}

enum { FAKE_HELD_MS = 60000 }; /* the longest that a test which fails keeps a worker */

static inline void fake_hold(struct fake *f, const struct fake_call *c)
{
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < FAKE_HELD_MS && f->n_now == c->n_now && !http_client_left(c->name); i++) {
        pthread_mutex_unlock(&f->lock);
        usleep(1000);
        pthread_mutex_lock(&f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

static inline void fake_get(struct fake *f, struct fake_call *c, const struct http_request *r)
{
    const char *p = r->path;
    c->n = fake_arg(r->query, "n", 1000);
    if (!strcmp(p, "/stream")) {
        fake_stream(c, r->query);
    } else if (!strcmp(p, "/flood")) {
        c->kind = FAKE_FLOOD;
        c->n_bytes = fake_arg(r->query, "length", 0) ? c->n : 0;
    } else if (!strcmp(p, "/big")) {
        for (uint64_t i = 0; i < c->n; i++)
            buf_char(&c->text, fake_pattern(i));
    } else if (!strcmp(p, "/hang")) {
        c->kind = FAKE_HANG;
    } else if (!strcmp(p, "/silent")) {
        c->kind = FAKE_SILENT;
    } else if (!strcmp(p, "/slow")) {
        usleep((useconds_t)fake_arg(r->query, "ms", 300) * 1000);
        fake_text(c, 200, "slow\n");
    } else if (!strcmp(p, "/held")) {
        fake_hold(f, c);
        fake_text(c, 200, "held\n");
    } else if (!strcmp(p, "/now")) {
        pthread_mutex_lock(&f->lock);
        f->n_now++;
        pthread_mutex_unlock(&f->lock);
        fake_text(c, 200, "now\n");
    } else if (!strcmp(p, "/late")) {
        c->kind = FAKE_LATE;
        c->timed = true;
        c->n = 1;
        c->due_us = clock_us() + fake_arg(r->query, "ms", 300) * 1000;
        fake_text(c, 200, "late\n");
    } else if (!strcmp(p, "/work")) {
        c->kind = FAKE_WORK;
        pthread_mutex_lock(&f->lock);
        c->n = f->n_stats;
        pthread_mutex_unlock(&f->lock);
    } else if (!strcmp(p, "/facts")) {
        buf_printf(&c->text,
                   "%s|%s|%s|%s\n",
                   p,
                   r->query,
                   r->authorization ? r->authorization : "-",
                   r->request_id ? r->request_id : "-");
    } else if (!strcmp(p, "/stats")) {
        fake_stats(f, &c->text);
    } else {
        fake_text(c, 404, "no such thing\n");
    }
}

static inline void *fake_begin(void *ctx, const struct http_request *r, void *name)
{
    struct fake *f = ctx;
    struct fake_call *c = mem_zalloc(1, sizeof *c);
    c->status = 200;
    c->name = name;
    pthread_mutex_lock(&f->lock);
    f->n_begin++;
    f->n_left += http_client_left(name);
    c->serial = f->n_begin;
    c->n_now = f->n_now;
    pthread_mutex_unlock(&f->lock);
    if (!strcmp(r->path, "/echo") && !strcmp(r->method, "POST"))
        buf_add(&c->text, r->body, r->body_len);
    else if (strcmp(r->method, "GET") != 0 && strcmp(r->method, "HEAD") != 0)
        fake_text(c, 405, "only GET\n");
    else
        fake_get(f, c, r);
    c->headers[0] = (struct http_header){"X-Request-Id", r->request_id ? r->request_id : "none"};
    c->answer.stream = c->kind == FAKE_STREAM || c->kind == FAKE_FLOOD || c->kind == FAKE_SILENT;
    pthread_mutex_lock(&f->lock);
    c->next = f->calls;
    if (c->next)
        c->next->prev = c;
    f->calls = c;
    pthread_mutex_unlock(&f->lock);
    return c;
}

static inline void fake_fill(struct fake_call *c, struct http_answer *a)
{
    bool stream = c->answer.stream;
    *a = (struct http_answer){.status = c->status,
                              .content_type = stream ? "text/event-stream" : "text/plain",
                              .headers = c->headers,
                              .n_headers = 1,
                              .stream = stream,
                              .n_bytes = c->n_bytes};
}

static inline enum http_pull fake_pull_stream(struct fake *f, struct fake_call *c, struct buf *out)
{
    pthread_mutex_lock(&f->lock);
    uint64_t made = c->made;
    pthread_mutex_unlock(&f->lock);
    for (; c->sent < made && out->len < 65536; c->sent++) {
        char pad[4096];
        size_t n = c->size < sizeof pad ? c->size : sizeof pad - 1;
        memset(pad, 'x', n);
        buf_printf(out, "data: {\"i\": %llu, \"pad\": \"", (unsigned long long)c->sent);
        buf_add(out, pad, n);
        buf_str(out, "\"}\n\n");
    }
    if (c->sent == c->n) {
        buf_str(out, "data: [DONE]\n\n");
        return HTTP_DONE;
    }
    return c->sent < made ? HTTP_MORE : HTTP_WAIT;
}

static inline enum http_pull fake_pull_flood(struct fake_call *c, struct buf *out)
{
    for (int i = 0; i < 65536 && c->sent < c->n; i++, c->sent++)
        buf_char(out, fake_pattern(c->sent));
    return c->sent == c->n ? HTTP_DONE : HTTP_MORE;
}

static inline enum http_pull fake_pull(void *ctx,
                                       void *call,
                                       struct http_answer *a,
                                       struct buf *out)
{
    struct fake *f = ctx;
    struct fake_call *c = call;
    bool first = a->status == 0;
    pthread_mutex_lock(&f->lock);
    f->n_pull++;
    bool late = c->kind == FAKE_LATE && c->made == 0;
    pthread_mutex_unlock(&f->lock);
    if (c->kind == FAKE_HANG || late)
        return HTTP_WAIT;
    if (c->kind == FAKE_WORK && c->text.len == 0)
        return HTTP_WORK;
    fake_fill(c, a);
    switch (c->kind) {
    case FAKE_STREAM: {
        enum http_pull r = fake_pull_stream(f, c, out);
        return first && r == HTTP_WAIT ? HTTP_MORE : r;
    }
    case FAKE_FLOOD:
        return fake_pull_flood(c, out);
    case FAKE_SILENT:
        return first ? HTTP_MORE : HTTP_WAIT;
    default:
        buf_add(out, c->text.data, c->text.len);
        return HTTP_DONE;
    }
}

/* Ends when somebody else was answered: on the loop thread nobody would be. */
static inline void fake_work(void *ctx, void *call)
{
    struct fake *f = ctx;
    struct fake_call *c = call;
    for (bool asked = false; !asked;) {
        usleep(1000);
        pthread_mutex_lock(&f->lock);
        asked = f->n_stats > c->n || f->stop;
        pthread_mutex_unlock(&f->lock);
    }
    buf_str(&c->text, "worked\n");
}

static inline void fake_end(void *ctx, void *call, bool whole)
{
    struct fake *f = ctx;
    struct fake_call *c = call, *x;
    pthread_mutex_lock(&f->lock);
    f->n_end++;
    f->n_whole += whole;
    for (x = f->calls; x && x != c; x = x->next)
        ;
    f->n_double_end += x == NULL;
    if (!x) {
        pthread_mutex_unlock(&f->lock);
        return;
    }
    if (c->prev)
        c->prev->next = c->next;
    else
        f->calls = c->next;
    if (c->next)
        c->next->prev = c->prev;
    for (struct fake_call **p = &f->named; *p; p = &(*p)->next_named) {
        if (*p == c) {
            *p = c->next_named;
            break;
        }
    }
    pthread_mutex_unlock(&f->lock);
    buf_deinit(&c->text);
    free(c);
}

static inline void *fake_next(void *ctx)
{
    struct fake *f = ctx;
    pthread_mutex_lock(&f->lock);
    struct fake_call *c = f->named;
    void *name = c ? c->name : NULL;
    if (c) {
        f->named = c->next_named;
        c->named = false;
    } else {
        uint64_t n;
        (void)!read(f->app.news_fd, &n, sizeof n);
    }
    pthread_mutex_unlock(&f->lock);
    return name;
}

/* Below /also/ the id has another header. */
static inline const char *fake_error_body(void *ctx,
                                          int status,
                                          const char *text,
                                          const char *target,
                                          char id[HTTP_ID_BYTES],
                                          struct buf *out)
{
    (void)ctx;
    if (!id[0])
        strcpy(id, "made-up");
    buf_printf(out, "{\"error\": {\"code\": %d, \"message\": \"%s\"}}", status, text);
    return target && strncmp(target, "/also/", 6) == 0 ? "Also-Id" : NULL;
}

static inline bool fake_at_once(void *ctx, const char *method, const char *path)
{
    (void)ctx;
    return !strcmp(method, "GET") && (!strcmp(path, "/now") || !strcmp(path, "/stats"));
}

static inline void fake_start(struct fake *f)
{
    *f = (struct fake){0};
    pthread_mutex_init(&f->lock, NULL);
    f->app = (struct http_app){.ctx = f,
                               .begin = fake_begin,
                               .pull = fake_pull,
                               .work = fake_work,
                               .end = fake_end,
                               .news_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
                               .next = fake_next,
                               .at_once = fake_at_once,
                               .error_body = fake_error_body};
    if (pthread_create(&f->thread, NULL, fake_engine_main, f) != 0)
        abort();
}

static inline void fake_stop(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    close(f->app.news_fd);
    pthread_mutex_destroy(&f->lock);
}

#endif
