/* weir serve: opens the port, loads the model behind it, and shuts down in order.
 *
 *      main thread     the HTTP loop
 *      loader          model -> tokenizer -> engine, then ends; /health is 503 until then
 *      signals         waits for SIGTERM and SIGINT, then drains; on SIGHUP reads files again
 *      engine          its own thread (engine/) */
#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "batches/batches.h"
#include "chat/builtin.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/serve_app.h"
#include "cli/serve_files.h"
#include "cli/serve_options.h"
#include "cli/serve_sampling.h"
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
    struct serve_files files;
    struct serve_app app;
    struct http_app http_app; /* over app */
    struct http_server *http;
    int news_fd; /* epoll: readable when the engine's events are, once there is an engine, or calls
                  * of the batches began */

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

/* --- what api/ asks of http/ ---------------------------------------------------------------- */

static void worker_slow(void *ctx, bool slow)
{
    struct server *s = ctx;
    http_server_worker_slow(s->http, slow);
}

static bool client_left(void *ctx, void *name)
{
    (void)ctx;
    return http_client_left(name);
}

static void http_metrics(void *ctx, struct buf *out)
{
    struct server *s = ctx;
    struct http_stats st = http_server_stats(s->http);
    buf_printf(
        out,
        "# HELP weir_http_connections Connections open now.\n"
        "# TYPE weir_http_connections gauge\n"
        "weir_http_connections %u\n"
        "# HELP weir_http_connections_total Connections accepted.\n"
        "# TYPE weir_http_connections_total counter\n"
        "weir_http_connections_total %llu\n"
        "# HELP weir_http_clients_gone_total Clients that left before their answer was complete.\n"
        "# TYPE weir_http_clients_gone_total counter\n"
        "weir_http_clients_gone_total %llu\n"
        "# HELP weir_http_answers_dropped_total Finished answers given up unread, as too many "
        "waited for their readers.\n"
        "# TYPE weir_http_answers_dropped_total counter\n"
        "weir_http_answers_dropped_total %llu\n",
        st.connections,
        (unsigned long long)st.accepted,
        (unsigned long long)st.clients_gone,
        (unsigned long long)st.answers_dropped);
}

/* --- loading and shutting down -------------------------------------------------------------- */

/* Where all layers have windows, blocks have no bytes but their panes'. */
static uint64_t tokens_held(const struct engine_stats *st)
{
    bool blocks = st->kv_block_bytes > 0 || st->kv.panes.total == 0;
    uint64_t n = blocks ? st->kv.blocks.total : st->kv.panes.total;
    return n * st->kv_block_tokens;
}

static void log_states(const struct engine_stats *st)
{
    if (st->kv.states.total == 0)
        return;
    log_info("KV memory: %u blocks of %.1f KiB, %u tokens in each, and %u states of %.1f KiB in "
             "recurrent layers, one for each sequence that runs and the rest for prefixes",
             st->kv.blocks.total,
             (double)st->kv_block_bytes / 1024.0,
             st->kv_block_tokens,
             st->kv.states.total,
             (double)st->kv_state_bytes / 1024.0);
}

static void log_windows(const struct engine_stats *st)
{
    if (st->kv.panes.total == 0)
        return;
    log_info("KV memory: %u blocks of %.1f KiB in layers that see everything, %u panes of %.1f KiB "
             "in layers that see %u tokens; %u tokens in each",
             st->kv.blocks.total,
             (double)st->kv_block_bytes / 1024.0,
             st->kv.panes.total,
             (double)st->kv_pane_bytes / 1024.0,
             st->kv_window,
             st->kv_block_tokens);
}

/* The operator's, which has to be one that can be run. */
static enum err use_template(
    struct server *s, const char *flag, const char *text, size_t n, struct err_info *e)
{
    s->template = chat_template_create(text, n);
    if (n == 0 || chat_template_problem(s->template))
        return err_invalid(
            e, flag, "%.200s", n ? chat_template_problem(s->template) : "the file is empty");
    return OK;
}

/* The operator's, or the model's own, whose problems are told when it matters. Models without one
 * are old or were never taught to chat: then it is ChatML, as llama-server has it, and the log says
 * so. */
static enum err make_template(struct server *s, struct gguf_str own, struct err_info *e)
{
    const char *file = s->opt.chat_template_file, *given = s->opt.chat_template;
    char *text = NULL;
    size_t n;
    if (given && strcmp(given, "none") == 0) {
        s->template = chat_template_create(NULL, 0);
        return OK;
    }
    if (given) {
        const char *source = chat_builtin_source(given) ? chat_builtin_source(given) : given;
        return use_template(s, "--chat-template", source, strlen(source), e);
    }
    if (!file && own.len == 0 && s->model->generates) {
        const char *chatml = chat_builtin_source("chatml");
        log_warn("the model has no chat template: chats use ChatML (see --chat-template)");
        s->template = chat_template_create(chatml, strlen(chatml));
        return OK;
    }
    if (!file) {
        s->template = chat_template_create(own.data, own.len);
        return OK;
    }
    enum err err = cli_read_file(file, SIZE_MAX, &text, &n, e);
    if (!err)
        err = use_template(s, "--chat-template-file", text, n, e);
    free(text);
    return err;
}

static enum err load(struct server *s, struct err_info *e)
{
    struct gguf_str source = {NULL, 0}, tool_use = {NULL, 0};
    struct engine *eng = NULL;
    const char *path = cli_model_path(s->opt.model, e);
    enum err err;
    if (!path)
        return e->code;
    if ((err = model_load(path, &s->model, e)) ||
        (err = model_set_context(s->model, s->opt.engine.n_ctx, e)) ||
        (err = tokenizer_create(s->model->gguf, &s->tokenizer, e)) ||
        (err = gguf_get_str(s->model->gguf, "tokenizer.chat_template", &source, e)) ||
        (err = gguf_get_str(s->model->gguf, "tokenizer.chat_template.tool_use", &tool_use, e)) ||
        (err = make_template(s, source, e)))
        return err;
    if (tool_use.len > 0 && !s->opt.chat_template && !s->opt.chat_template_file &&
        !chat_template_add_tool_use(s->template, tool_use.data, tool_use.len))
        log_warn("the model's chat template for tools cannot be run: the other one is used");
    if ((err =
             chat_template_set_style(s->template, s->opt.tool_format, s->opt.reasoning_format, e)))
        return err;
    if ((err = engine_create(s->model, s->tokenizer, &s->opt.engine, &eng, e)))
        return err;
    model_drop_made(s->model);
    pthread_mutex_lock(&s->lock);
    s->engine = eng;
    pthread_mutex_unlock(&s->lock);
    struct epoll_event ev = {.events = EPOLLIN};
    if (epoll_ctl(s->news_fd, EPOLL_CTL_ADD, engine_event_fd(eng), &ev) != 0)
        return err_set(e, ERR_IO, "cannot watch the engine's events");
    struct engine_stats st;
    engine_stats_get(eng, &st);
    log_info("%s: %s, %s, context %u, KV memory for %llu tokens, chat template %s (tools %s, "
             "reasoning %s)",
             path,
             s->model->arch,
             engine_describe(eng),
             engine_n_ctx(eng),
             (unsigned long long)tokens_held(&st),
             chat_template_name(s->template),
             reply_format_name(chat_template_style(chat_template_for(s->template, true)).format),
             reply_thoughts_name(chat_template_style(s->template).thoughts));
    log_windows(&st);
    log_states(&st);
    if (chat_template_problem(s->template))
        log_warn("the chat template cannot be run, so the chat route will refuse: %s",
                 chat_template_problem(s->template));
    return OK;
}

/* Of requests that do not say. */
static enum err take_advice(struct server *s, struct err_info *e)
{
    struct buf advice = {0};
    if (s->opt.no_advice)
        return OK;
    serve_sampling_advice(s->model->gguf, &advice);
    const char *json = buf_cstr(&advice);
    if (strcmp(json, "{}") != 0)
        log_info("the model's file advises %s (--model-sampling)", json);
    enum err err = api_advise(s->app.api, json, e);
    buf_deinit(&advice);
    return err;
}

static void *loader_main(void *arg)
{
    struct server *s = arg;
    struct err_info e = {0};
    if (load(s, &e) != OK || take_advice(s, &e) != OK) {
        cli_fail("serve", &e);
        atomic_store(&s->failed, true);
        http_server_stop(s->http, 0);
    } else {
        api_set_engine(s->app.api, s->engine, s->template);
        if (s->app.batches && batches_start(s->app.batches, &e) != OK)
            log_error("batch: %s", e.text);
        log_info("ready");
    }
    atomic_store(&s->loaded, true);
    return NULL;
}

static void begin_drain(struct server *s, const char *why)
{
    log_info("%s: draining", why);
    s->drain_us = clock_us();
    api_set_draining(s->app.api);
    if (s->app.batches)
        batches_drain(s->app.batches);
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

static struct timespec grace_left(const struct server *s)
{
    uint64_t end_us = s->drain_us + s->opt.drain_timeout_s * 1000000ull, now_us = clock_us();
    return clock_spec(end_us > now_us ? end_us - now_us : 0);
}

static void *signal_main(void *arg)
{
    struct server *s = arg;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR2); /* from main, when the server is over */
    if (serve_files_any(&s->opt))
        sigaddset(&set, SIGHUP);
    enum { SERVING, DRAINING, CUT } state = SERVING;
    while (!atomic_load(&s->over)) {
        struct timespec grace = grace_left(s);
        int sig = state == DRAINING ? sigtimedwait(&set, NULL, &grace) : sigwaitinfo(&set, NULL);
        if (sig == SIGHUP)
            serve_files_reload(&s->files, s->app.api, s->http);
        if (sig == SIGHUP || sig == SIGUSR2 || (sig < 0 && errno == EINTR))
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

/* SIGHUP ends a server that has nothing to read again, as when its terminal closes. */
static void block_signals(const struct serve_options *o)
{
    sigset_t set;
    sigemptyset(&set);
    if (serve_files_any(o)) {
        signal(SIGHUP, SIG_DFL); /* nohup has it ignored, and then nobody could wait for it */
        sigaddset(&set, SIGHUP);
    }
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static enum err open_batches(struct server *s, struct err_info *e)
{
    enum err err = batches_create(&s->opt.batches, s->app.api, &s->app.batches, e);
    if (err)
        return err;
    struct api_service service = batches_service(s->app.batches);
    api_set_service(s->app.api, &service);
    struct epoll_event ev = {.events = EPOLLIN};
    if (epoll_ctl(s->news_fd, EPOLL_CTL_ADD, batches_event_fd(s->app.batches), &ev) != 0)
        return err_set(e, ERR_IO, "cannot watch the batches' events");
    return OK;
}

static enum err open_server(struct server *s, struct err_info *e)
{
    struct http_config hc = s->opt.http;
    const char *path = cli_model_path(s->opt.model, e);
    char id[256];
    struct buf defaults = {0};
    if (!path)
        return e->code;
    serve_model_id(&s->opt, path, id, sizeof id);
    const struct serve_options *o = &s->opt;
    enum err err = serve_files_open(&s->files, o, e);
    if (err)
        return err;
    hc.tls_cert = s->files.tls_cert;
    hc.tls_key = s->files.tls_key;
    buf_printf(&defaults, "{%.*s}", (int)o->defaults.len, o->defaults.len ? o->defaults.data : "");
    struct api_config ac = {.model_id = id,
                            .names = o->aliases.names,
                            .n_names = o->aliases.n,
                            .tags = o->tags.names,
                            .n_tags = o->tags.n,
                            .prefix = o->api_prefix,
                            .max_tokens = o->max_tokens,
                            .no_slots = o->no_slots,
                            .api_key = o->api_key,
                            .admin_key = s->files.admin_key,
                            .any_model = o->any_model,
                            .no_embeddings = o->no_embeddings,
                            .model_path = path,
                            .defaults = o->defaults.len ? buf_cstr(&defaults) : NULL,
                            .cors_origins = o->cors_origins,
                            .n_cors_origins = o->n_cors_origins,
                            .worker_slow = worker_slow,
                            .client_left = client_left,
                            .worker_ctx = s,
                            .write_line = s->files.lines ? serve_files_line : NULL,
                            .line_ctx = &s->files,
                            .log_all = o->access_log != NULL,
                            .log_slow = o->log_slow,
                            .slow_ms = o->slow_ms};
    s->news_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->news_fd < 0)
        return err_set(e, ERR_IO, "cannot create an epoll set");
    s->app.api_prefix = o->api_prefix;
    s->http_app = serve_app_ops(&s->app, s->news_fd);
    err = api_create(&ac, &s->app.api, e);
    buf_deinit(&defaults);
    if (err || (err = serve_files_load_keys(&s->files, s->app.api, e)) ||
        (err = http_server_create(&hc, &s->http_app, &s->http, e)))
        return err;
    serve_files_forget(&s->files);
    api_set_extra_metrics(s->app.api, http_metrics, s);
    return s->opt.batches.dir ? open_batches(s, e) : OK;
}

/* Calls that were cut off are freed once the engine has let go of their requests. */
static void close_server(struct server *s)
{
    http_server_destroy(s->http);
    if (s->app.batches)
        batches_stop(s->app.batches);
    if (s->engine)
        engine_stop(s->engine);
    if (s->app.api) {
        while (api_next(s->app.api))
            ;
        api_destroy(s->app.api);
    }
    batches_destroy(s->app.batches);
    serve_files_close(&s->files);
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
    if (loading && !err && !atomic_load(&s->loaded) && !atomic_load(&s->failed)) {
        pthread_detach(loader); /* nobody waits for it, and it may end just now */
        _exit(EXIT_DONE);       /* told to stop while a large model still loads: nothing to save */
    }
    if (loading)
        pthread_join(loader, NULL);
    atomic_store(&s->over, true);
    pthread_kill(signals, SIGUSR2);
    pthread_join(signals, NULL);
    return err;
}

static void log_addresses(const struct server *s)
{
    for (const char *at = s->opt.http.host[0] ? s->opt.http.host : "127.0.0.1"; *at;) {
        const int n = (int)strcspn(at, ", ");
        const bool v6 = memchr(at, ':', (size_t)n) != NULL;
        if (n > 0)
            log_info("listening on %s://%s%.*s%s:%u",
                     s->opt.tls_cert_file ? "https" : "http",
                     v6 ? "[" : "",
                     n,
                     at,
                     v6 ? "]" : "",
                     http_server_port(s->http));
        at += n;
        at += strspn(at, ", ");
    }
}

int cmd_serve(int argc, char **argv)
{
    struct server s = {.news_fd = -1};
    struct err_info e = {0};
    serve_parse(argc, argv, &s.opt);
    pthread_mutex_init(&s.lock, NULL);
    block_signals(&s.opt);
    enum err err = open_server(&s, &e);
    if (!err) {
        log_addresses(&s);
        err = serve(&s, &e);
    }
    if (err)
        cli_fail("serve", &e);
    close_server(&s);
    serve_options_deinit(&s.opt);
    return err || atomic_load(&s.failed) ? EXIT_FAILED : EXIT_DONE;
}
