/* weir serve: joins http/ and api/, loads the model behind an open port, and shuts down in order.
 *
 *      main thread     the HTTP loop
 *      loader          model -> tokenizer -> engine, then ends; /health is 503 until then
 *      signals         waits for SIGTERM and SIGINT, then drains
 *      engine          its own thread (engine/) */
#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/serve_options.h"
#include "engine/engine.h"
#include "http/http.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

/* How long a client may take to read that its request was cut off. */
#define LAST_WORDS_MS 1000

struct server {
    struct serve_options opt;
    struct api *api;
    struct http_app app;
    struct http_server *http;
    int news_fd; /* epoll: readable when the engine's events are, once there is an engine */

    pthread_mutex_t lock; /* what the loader makes and the signal thread uses */
    struct model *model;
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct engine *engine;
    atomic_bool loaded; /* or failed to: the loader is about to end */
    atomic_bool failed;
    atomic_bool over;  /* the signal thread may end */
    uint64_t drain_us; /* the signal thread's own */
};

/* --- http_app on top of api ----------------------------------------------------------------- */

/* What http/ calls a call: the API's, and room for the headers of its answer. */
struct served_call {
    struct api_call *call;
    struct http_header headers[4];
};

static void *app_begin(void *ctx, const struct http_request *r, void *name)
{
    struct server *s = ctx;
    struct api_input in = {.method = r->method,
                           .path = r->path,
                           .query = r->query,
                           .body = r->body,
                           .body_len = r->body_len,
                           .authorization = r->authorization,
                           .request_id = r->request_id,
                           .name = name};
    struct served_call *c = mem_zalloc(1, sizeof *c);
    c->call = api_begin(s->api, &in);
    return c;
}

static void fill_answer(struct served_call *c, const struct api_answer *in, struct http_answer *out)
{
    size_t n = 0;
    if (in->request_id)
        c->headers[n++] = (struct http_header){"X-Request-Id", in->request_id};
    if (in->retry_after)
        c->headers[n++] = (struct http_header){"Retry-After", in->retry_after};
    if (in->allow)
        c->headers[n++] = (struct http_header){"Allow", in->allow};
    if (in->www_authenticate)
        c->headers[n++] = (struct http_header){"WWW-Authenticate", "Bearer"};
    *out = (struct http_answer){.status = in->status,
                                .content_type = in->content_type,
                                .headers = c->headers,
                                .n_headers = n,
                                .stream = in->stream};
}

static enum http_pull app_pull(void *ctx, void *call, struct http_answer *answer, struct buf *out)
{
    (void)ctx;
    struct served_call *c = call;
    struct api_answer a = {0};
    enum api_pull pulled = api_pull(c->call, &a, out);
    if (pulled == API_WAIT)
        return HTTP_WAIT;
    fill_answer(c, &a, answer);
    return pulled == API_DONE ? HTTP_DONE : HTTP_MORE;
}

static void app_end(void *ctx, void *call)
{
    (void)ctx;
    struct served_call *c = call;
    api_end(c->call);
    free(c);
}

static void *app_next(void *ctx)
{
    struct server *s = ctx;
    return api_next(s->api);
}

static void app_error_body(void *ctx, int status, const char *text, struct buf *out)
{
    (void)ctx;
    struct err_info e;
    err_set(&e, ERR_INVALID, "%s", text);
    api_error_body(status, &e, out);
}

static void http_metrics(void *ctx, struct buf *out)
{
    struct server *s = ctx;
    struct http_stats st = http_server_stats(s->http);
    buf_printf(out,
               "# HELP weir_http_connections Connections open now.\n"
               "# TYPE weir_http_connections gauge\n"
               "weir_http_connections %u\n"
               "# HELP weir_http_connections_total Connections accepted.\n"
               "# TYPE weir_http_connections_total counter\n"
               "weir_http_connections_total %llu\n"
               "# HELP weir_http_clients_gone_total Clients that left before their answer was "
               "complete.\n"
               "# TYPE weir_http_clients_gone_total counter\n"
               "weir_http_clients_gone_total %llu\n",
               st.connections,
               (unsigned long long)st.accepted,
               (unsigned long long)st.clients_gone);
}

/* --- loading and shutting down -------------------------------------------------------------- */

static enum err load(struct server *s, struct err_info *e)
{
    struct gguf_str source = {NULL, 0};
    struct engine *eng = NULL;
    const char *path = cli_model_path(s->opt.model, e);
    enum err err;
    if (!path)
        return e->code;
    if ((err = model_load(path, &s->model, e)) ||
        (err = model_set_context(s->model, s->opt.engine.n_ctx, e)) ||
        (err = tokenizer_create(s->model->gguf, &s->tokenizer, e)) ||
        (err = gguf_get_str(s->model->gguf, "tokenizer.chat_template", &source, e)))
        return err;
    s->template = chat_template_create(source.data, source.len);
    if ((err = engine_create(s->model, s->tokenizer, &s->opt.engine, &eng, e)))
        return err;
    pthread_mutex_lock(&s->lock);
    s->engine = eng;
    pthread_mutex_unlock(&s->lock);
    struct epoll_event ev = {.events = EPOLLIN};
    if (epoll_ctl(s->news_fd, EPOLL_CTL_ADD, engine_event_fd(eng), &ev) != 0)
        return err_set(e, ERR_IO, "cannot watch the engine's events");
    struct engine_stats st;
    engine_stats_get(eng, &st);
    log_info("%s: %s, %s, context %u, KV memory for %llu tokens, chat template %s",
             path,
             s->model->arch,
             engine_describe(eng),
             engine_n_ctx(eng),
             (unsigned long long)st.kv.total * st.kv_block_tokens,
             chat_template_name(s->template));
    if (chat_template_problem(s->template))
        log_warn("the chat template cannot be run, so the chat route will refuse: %s",
                 chat_template_problem(s->template));
    return OK;
}

static void *loader_main(void *arg)
{
    struct server *s = arg;
    struct err_info e = {0};
    if (load(s, &e) != OK) {
        cli_fail("serve", &e);
        atomic_store(&s->failed, true);
        http_server_stop(s->http, 0);
    } else {
        api_set_engine(s->api, s->engine, s->template);
        log_info("ready");
    }
    atomic_store(&s->loaded, true);
    return NULL;
}

static void begin_drain(struct server *s, const char *why)
{
    log_info("%s: draining", why);
    s->drain_us = clock_us();
    api_set_draining(s->api);
    pthread_mutex_lock(&s->lock);
    if (s->engine)
        engine_drain(s->engine);
    pthread_mutex_unlock(&s->lock);
    http_server_stop(s->http, s->opt.drain_timeout_s * 1000 + LAST_WORDS_MS);
}

/* End what still runs; its clients are told so, if they read it in time. */
static void cut_off(struct server *s, const char *why)
{
    struct engine_stats st = {0};
    pthread_mutex_lock(&s->lock);
    if (s->engine) {
        engine_stats_get(s->engine, &st);
        engine_cancel_all(s->engine);
    }
    pthread_mutex_unlock(&s->lock);
    log_warn("%s: %u running and %u waiting requests are cut off", why, st.running, st.waiting);
    http_server_stop(s->http, (uint32_t)((clock_us() - s->drain_us) / 1000) + LAST_WORDS_MS);
}

static void *signal_main(void *arg)
{
    struct server *s = arg;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR2); /* from main, when the server is over */
    const struct timespec grace = {.tv_sec = (time_t)s->opt.drain_timeout_s};
    enum { SERVING, DRAINING, CUT } state = SERVING;
    while (!atomic_load(&s->over)) {
        int sig = state == DRAINING ? sigtimedwait(&set, NULL, &grace) : sigwaitinfo(&set, NULL);
        if (sig == SIGUSR2 || (sig < 0 && errno == EINTR))
            continue;
        const char *why = sig < 0 ? "the drain's time is over" : strsignal(sig);
        if (state == CUT)
            _exit(EXIT_FAILED); /* asked three times */
        if (state == SERVING)
            begin_drain(s, why);
        else
            cut_off(s, why);
        state = state == SERVING ? DRAINING : CUT;
    }
    return NULL;
}

static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static enum err open_server(struct server *s, struct err_info *e)
{
    struct http_config hc = s->opt.http;
    s->app = (struct http_app){.ctx = s,
                               .begin = app_begin,
                               .pull = app_pull,
                               .end = app_end,
                               .next = app_next,
                               .error_body = app_error_body};
    const char *path = cli_model_path(s->opt.model, e);
    char id[256];
    if (!path)
        return e->code;
    serve_model_id(&s->opt, path, id, sizeof id);
    struct api_config ac = {
        .model_id = id, .api_key = s->opt.api_key, .no_embeddings = s->opt.no_embeddings};
    s->app.news_fd = s->news_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->news_fd < 0)
        return err_set(e, ERR_IO, "cannot create an epoll set");
    enum err err = api_create(&ac, &s->api, e);
    if (err || (err = http_server_create(&hc, &s->app, &s->http, e)))
        return err;
    api_set_extra_metrics(s->api, http_metrics, s);
    return OK;
}

/* Calls that were cut off are freed once the engine has let go of their requests. */
static void close_server(struct server *s)
{
    http_server_destroy(s->http);
    if (s->engine)
        engine_stop(s->engine);
    if (s->api) {
        while (api_next(s->api))
            ;
        api_destroy(s->api);
    }
    engine_destroy(s->engine);
    chat_template_destroy(s->template);
    tokenizer_destroy(s->tokenizer);
    model_destroy(s->model);
    if (s->news_fd >= 0)
        close(s->news_fd);
    pthread_mutex_destroy(&s->lock);
}

/* Run the loop, with the loader and the signal thread beside it. */
static enum err serve(struct server *s, struct err_info *e)
{
    pthread_t loader, signals;
    if (pthread_create(&signals, NULL, signal_main, s) != 0)
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    bool loading = pthread_create(&loader, NULL, loader_main, s) == 0;
    enum err err =
        loading ? http_server_run(s->http, e) : err_set(e, ERR_NOMEM, "cannot start a thread");
    if (loading && !err && !atomic_load(&s->loaded) && !atomic_load(&s->failed))
        _exit(EXIT_DONE); /* told to stop while a large model still loads: nothing to save */
    if (loading)
        pthread_join(loader, NULL);
    atomic_store(&s->over, true);
    pthread_kill(signals, SIGUSR2);
    pthread_join(signals, NULL);
    return err;
}

int cmd_serve(int argc, char **argv)
{
    struct server s = {.news_fd = -1};
    struct err_info e = {0};
    serve_parse(argc, argv, &s.opt);
    pthread_mutex_init(&s.lock, NULL);
    block_signals();
    enum err err = open_server(&s, &e);
    if (!err) {
        log_info("listening on http://%s:%u", s.opt.http.host, http_server_port(s.http));
        err = serve(&s, &e);
    }
    if (err)
        cli_fail("serve", &e);
    close_server(&s);
    serve_options_deinit(&s.opt);
    return err || atomic_load(&s.failed) ? EXIT_FAILED : EXIT_DONE;
}
