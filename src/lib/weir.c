/* A model that is open: its start, its end, and what is asked of it. */
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "lib/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* By enum err. */
static const enum weir_status statuses[] = {
    [OK] = WEIR_OK,
    [ERR_NOMEM] = WEIR_ERR_NOMEM,
    [ERR_IO] = WEIR_ERR_IO,
    [ERR_FULL] = WEIR_ERR_IO,
    [ERR_FORMAT] = WEIR_ERR_FORMAT,
    [ERR_UNSUPPORTED] = WEIR_ERR_UNSUPPORTED,
    [ERR_INVALID] = WEIR_ERR_INVALID,
    [ERR_NOT_FOUND] = WEIR_ERR_NOT_FOUND,
    [ERR_TOO_LONG] = WEIR_ERR_TOO_LONG,
    [ERR_TOO_LARGE] = WEIR_ERR_TOO_LONG,
    [ERR_QUEUE_FULL] = WEIR_ERR_BUSY,
    [ERR_INTERNAL] = WEIR_ERR_INTERNAL,
};

enum weir_status lib_status(enum err err, const struct err_info *from, struct weir_error *e)
{
    const bool known = err < sizeof statuses / sizeof statuses[0] && (!err || statuses[err]);
    const enum weir_status status = known ? statuses[err] : WEIR_ERR_INTERNAL;
    if (e) {
        e->status = status;
        snprintf(e->text, sizeof e->text, "%s", err ? from->text : "");
    }
    return status;
}

void lib_init_options(void *to, size_t size, const void *own, size_t n)
{
    memset(to, 0, size);
    memcpy(to, own, size < n ? size : n);
    memcpy(to, &size, size < sizeof size ? size : sizeof size); /* the first field */
}

enum err lib_take_options(void *own, size_t n, const void *given, size_t size, struct err_info *e)
{
    if (size < sizeof size || size > n)
        return err_set(e, ERR_INVALID, "options of %zu bytes: not of this version's init", size);
    memcpy(own, given, size);
    return OK;
}

const char *weir_version(void)
{
    return WEIR_VERSION;
}

/* --- what is there once: the log, silent unless the program wants it, and a locale ----------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void drop_line(void *ctx, int level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

static void begin(void)
{
    log_set_sink(drop_line, NULL);
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* is there already: takes no memory */
}

void weir_set_log(void (*fn)(void *ctx, int level, const char *text), void *ctx)
{
    pthread_once(&once, begin);
    log_set_sink(fn ? fn : drop_line, ctx);
}

struct lib_own lib_enter(void)
{
    struct lib_own own = {.locale = uselocale(c_locale)};
    fegetenv(&own.env);
    fesetenv(FE_DFL_ENV);
    return own;
}

void lib_leave(const struct lib_own *own)
{
    fesetenv(&own->env);
    uselocale(own->locale);
}

/* --- opening and closing --------------------------------------------------------------------- */

static struct weir_options default_options(void)
{
    return (struct weir_options){.size = sizeof(struct weir_options),
                                 .max_running = 64,
                                 .max_waiting = engine_config_default().max_queue};
}

void weir_options_init_size(struct weir_options *o, size_t size)
{
    const struct weir_options all = default_options();
    lib_init_options(o, size, &all, sizeof all);
}

static enum err read_config(const struct weir_options *o,
                            struct engine_config *cfg,
                            struct err_info *e)
{
    *cfg = engine_config_default();
    if (o->device && device_parse(o->device, &cfg->device) != OK)
        return err_set(e, ERR_INVALID, "device '%.40s': not auto, cpu, cuda or cuda:N", o->device);
    if (o->kv_type && kv_type_parse(o->kv_type, &cfg->kv_type) != OK)
        return err_set(e, ERR_INVALID, "kv_type '%.40s': not f16, f32, bf16 or q8_0", o->kv_type);
    if (o->n_ctx == 1)
        return err_set(e, ERR_INVALID, "n_ctx 1: a prompt and an answer are two tokens at least");
    if (o->cache_bytes && (!o->cache_dir || !o->cache_dir[0]))
        return err_set(e, ERR_INVALID, "cache_bytes: of cache_dir, which is not given");
    cfg->n_threads = o->n_threads;
    cfg->n_ctx = o->n_ctx;
    cfg->kv_bytes = o->kv_bytes;
    cfg->max_running = o->max_running;
    cfg->max_queue = o->max_waiting;
    cfg->host_cache_bytes = o->host_cache_bytes;
    cfg->cache_dir = o->cache_dir && o->cache_dir[0] ? o->cache_dir : NULL;
    cfg->cache_bytes = o->cache_bytes;
    cfg->n_draft = o->draft_tokens;
    cfg->progress = o->progress;
    cfg->progress_ctx = o->progress_ctx;
    return OK;
}

static enum err start_events(struct weir *w, struct err_info *e)
{
    w->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->stop_fd < 0)
        return err_set(e, ERR_IO, "cannot create an eventfd");
    if (thread_start(&w->events, lib_events_main, w) != 0)
        return err_set(e, ERR_NOMEM, "cannot start a thread");
    w->has_events = true;
    return OK;
}

static enum err make_template(struct weir *w, const char *given, struct err_info *e)
{
    struct gguf_str own = {NULL, 0};
    enum err err = gguf_get_str(w->model->gguf, "tokenizer.chat_template", &own, e);
    if (given && !given[0])
        return err_set(e, ERR_INVALID, "chat_template: it is empty");
    if (given)
        own = (struct gguf_str){given, strlen(given)};
    if (!err)
        w->template = chat_template_create(own.data, own.len);
    if (!err && given && chat_template_problem(w->template))
        return err_set(e, ERR_INVALID, "chat_template: %.280s", chat_template_problem(w->template));
    return err;
}

static enum err open_parts(struct weir *w, const struct weir_options *o, struct err_info *e)
{
    struct engine_config cfg;
    enum err err;
    if (!o->model || !o->model[0])
        return err_set(e, ERR_INVALID, "options.model: no file is named");
    if ((err = read_config(o, &cfg, e)) || (err = model_load(o->model, &w->model, e)) ||
        (err = model_set_context(w->model, o->n_ctx, e)))
        return err;
    if (!o->kv_type && !w->model->generates)
        cfg.kv_type = KV_F32;
    if ((err = tokenizer_create(w->model->gguf, &w->tokenizer, e)) ||
        (err = make_template(w, o->chat_template, e)) ||
        (err = engine_create(w->model, w->tokenizer, &cfg, &w->engine, e)) ||
        (err = start_events(w, e)))
        return err;
    model_drop_made(w->model);
    w->grammars = grammar_cache_create();
    return OK;
}

/* All but the shell, from the last to the first. */
static void close_parts(struct weir *w)
{
    if (w->engine)
        engine_stop(w->engine);
    if (w->has_events) {
        eventfd_write(w->stop_fd, 1); /* now that the last events are there */
        pthread_join(w->events, NULL);
    }
    if (w->stop_fd >= 0)
        close(w->stop_fd);
    grammar_cache_destroy(w->grammars);
    engine_destroy(w->engine);
    chat_template_destroy(w->template);
    tokenizer_destroy(w->tokenizer);
    model_destroy(w->model);
}

enum weir_status weir_open(const struct weir_options *given,
                           struct weir **out,
                           struct weir_error *e)
{
    struct weir_options o = default_options();
    struct err_info why = {0};
    *out = NULL;
    pthread_once(&once, begin);
    enum err err = lib_take_options(&o, sizeof o, given, given->size, &why);
    if (err)
        return lib_status(err, &why, e);
    struct weir *w = mem_zalloc(1, sizeof *w);
    w->stop_fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    const struct lib_own own = lib_enter();
    err = open_parts(w, &o, &why);
    lib_leave(&own);
    if (err)
        weir_close(w);
    else
        *out = w;
    return lib_status(err, &why, e);
}

void weir_close(struct weir *w)
{
    if (!w)
        return;
    close_parts(w);
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    lib_release(w);
}

void lib_release(struct weir *w)
{
    const bool last = w->closed && w->n_generations == 0;
    pthread_mutex_unlock(&w->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&w->lock);
    free(w);
}

uint32_t weir_n_ctx(const struct weir *w)
{
    return engine_n_ctx(w->engine);
}

uint32_t weir_n_vocab(const struct weir *w)
{
    return w->model->hp.n_vocab;
}

uint32_t weir_n_embd(const struct weir *w)
{
    return w->model->hp.n_embd;
}

bool weir_generates(const struct weir *w)
{
    return w->model->generates;
}
