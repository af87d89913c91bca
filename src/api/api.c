/* The beginning of a call, and what the layers above hold on to. */
#include "api/call.h"
#include "api/gate.h"
#include "api/store.h"
#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define UNAVAILABLE_RETRY_S 5 /* of a 503: nobody knows; as the HTTP layer says */
#define DEFAULT_MAX_CHOICES 128
#define TRIM_BODY_BYTES (1u << 20)
/* Of answers kept for /v1/responses. */
#define STORE_MAX_ENTRIES 1024
#define STORE_MAX_BYTES (64u << 20)

enum err api_create(const struct api_config *cfg, struct api **out, struct err_info *e)
{
    *out = NULL;
    if (!cfg->model_id || !cfg->model_id[0])
        return err_invalid(e, "model_id", "the model needs a name");
    struct api *a = mem_zalloc(1, sizeof *a);
    api_json_watch();
    if (cfg->defaults && !(a->defaults = json_loads(cfg->defaults, 0, NULL))) {
        free(a);
        return err_invalid(e, "defaults", "the defaults are not JSON");
    }
    a->model_id = mem_strdup(cfg->model_id);
    api_put_text(&a->model_json, a->model_id, strlen(a->model_id));
    a->max_choices = cfg->max_choices ? cfg->max_choices : DEFAULT_MAX_CHOICES;
    a->model_path = mem_strdup(cfg->model_path ? cfg->model_path : "");
    a->store = api_store_create(STORE_MAX_ENTRIES, STORE_MAX_BYTES);
    a->created = clock_unix();
    a->grammars = grammar_cache_create();
    a->gate = api_gate_create();
    a->began_us = clock_us();
    a->cfg = *cfg;
    a->keys = api_keys_create();
    if (cfg->api_key && cfg->api_key[0])
        api_keys_set_single(a->keys, cfg->api_key);
    if (cfg->admin_key && cfg->admin_key[0])
        api_keys_set_admin(a->keys, cfg->admin_key);
    /* kept otherwise, or not at all */
    a->cfg.model_id = a->cfg.model_path = a->cfg.api_key = a->cfg.admin_key = NULL;
    a->cfg.defaults = NULL;
    *out = a;
    return OK;
}

enum err api_advise(struct api *a, const char *json, struct err_info *e)
{
    json_t *advice = json_loads(json, 0, NULL);
    if (!json_is_object(advice)) {
        json_decref(advice);
        return err_invalid(e, "advice", "it is no JSON object");
    }
    if (a->defaults)
        json_object_update(advice, a->defaults);
    json_decref(a->defaults);
    a->defaults = advice; /* published with the engine */
    return OK;
}

void api_set_engine(struct api *a, struct engine *eng, const struct chat_template *tmpl)
{
    a->tmpl = tmpl; /* published by the store below */
    atomic_store_explicit(&a->engine, eng, memory_order_release);
}

void api_set_extra_metrics(struct api *a, api_extra_metrics_fn fn, void *ctx)
{
    a->extra = fn;
    a->extra_ctx = ctx;
}

void api_set_service(struct api *a, const struct api_service *s)
{
    a->service = *s;
}

enum err api_load_keys(
    struct api *a, const char *text, size_t n, uint32_t *n_plain, struct err_info *e)
{
    return api_keys_load(a->keys, text, n, clock_us(), n_plain, e);
}

void api_set_admin_key(struct api *a, const char *key)
{
    api_keys_set_admin(a->keys, key);
}

void api_set_draining(struct api *a)
{
    atomic_store(&a->draining, true);
    api_gate_close(a->gate);
}

void api_destroy(struct api *a)
{
    if (!a)
        return;
    while (api_next(a)) { /* the last events free the calls that ended before them */
    }
    api_store_destroy(a->store);
    json_decref(a->defaults);
    free(a->model_id);
    free(a->model_path);
    buf_deinit(&a->model_json);
    api_keys_destroy(a->keys);
    grammar_cache_destroy(a->grammars);
    api_gate_destroy(a->gate);
    free(a);
}

static bool is_name(const char *own, const char *name, size_t n)
{
    return n == strlen(own) && memcmp(name, own, n) == 0;
}

bool api_is_model(const struct api *a, const char *name, size_t n)
{
    bool is = is_name(a->model_id, name, n) || is_name("default", name, n);
    for (size_t i = 0; !is && i < a->cfg.n_names; i++)
        is = is_name(a->cfg.names[i], name, n);
    return is;
}

void api_new_id(const char *prefix, char *id, size_t cap)
{
    unsigned char random[12];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        abort(); /* small requests never fail once the system is up */
    int at = snprintf(id, cap, "%s", prefix);
    for (size_t i = 0; i < sizeof random; i++)
        at += snprintf(id + at, cap - (size_t)at, "%02x", random[i]);
}

void api_answer_json(struct api_call *c, int status)
{
    c->answer.status = status;
    c->answer.content_type = "application/json";
}

void api_put_retry_after(struct api_call *c, uint32_t seconds)
{
    snprintf(c->retry_after, sizeof c->retry_after, "%u", seconds);
    c->answer.retry_after = c->retry_after;
}

/* Seconds until the queue has probably moved by a place: requests last `e2e` on average, and
 * `running` of them share the time. */
static void set_retry_after(struct api_call *c)
{
    struct engine_stats s;
    engine_stats_get(c->engine, &s);
    double e2e = s.e2e.count ? s.e2e.sum / (double)s.e2e.count : 1.0;
    double seconds = e2e / (s.running ? s.running : 1);
    api_put_retry_after(c, seconds < 1.0 ? 1 : seconds > 60.0 ? 60 : (uint32_t)(seconds + 0.999));
}

void api_answer_error(struct api_call *c, const struct err_info *e)
{
    struct err_info starved = {0};
    if (api_json_starved() &&
        e->code != ERR_NOMEM) { /* what came of it is not the client's fault */
        (void)api_no_memory(&starved);
        e = &starved;
    }
    int status = api_shape_status(c->shape, e->code);
    buf_clear(&c->body);
    api_put_error(c->shape, status, e, c->answer.request_id, &c->body);
    api_answer_json(c, status);
    c->answer.stream = false;
    c->answer.www_authenticate = status == 401;
    c->answer.key_limit = e->code == ERR_RATE_LIMIT;
    bool later = e->code == ERR_QUEUE_FULL || e->code == ERR_RATE_LIMIT;
    c->refused |= later || e->code == ERR_DRAINING;
    if (later && c->engine && !c->answer.retry_after)
        set_retry_after(c);
    if (status == 503 && !c->answer.retry_after) /* loading, shutting down, out of memory */
        api_put_retry_after(c, UNAVAILABLE_RETRY_S);
}

void api_put_header(struct api_call *c, const char *name, const char *value)
{
    assert(c->answer.n_headers < API_MAX_HEADERS);
    c->headers[c->answer.n_headers++] = (struct api_header){name, value};
    c->answer.headers = c->headers;
}

const char *api_path_below(const char *prefix, const char *path)
{
    size_t n = prefix ? strlen(prefix) : 0;
    return n == 0 || (strncmp(path, prefix, n) == 0 && path[n] == '/') ? path + n : "";
}

struct api_call *api_begin(struct api *a, const struct api_input *in)
{
    struct api_call *c = mem_zalloc(1, sizeof *c);
    c->api = a;
    c->engine = atomic_load_explicit(&a->engine, memory_order_acquire);
    c->created = clock_unix();
    c->name = in->name;
    c->file_fd = -1;
    c->body.may_fail = true;
    c->counted = in->internal;
    (void)api_json_starved();
    api_new_id("req-", c->id, sizeof c->id);
    snprintf(c->request_id, sizeof c->request_id, "%s", in->request_id ? in->request_id : "");
    c->answer.request_id = c->request_id[0] ? c->request_id : c->id;
    c->internal = in->internal;
    c->rank = in->priority;
    struct api_input below = *in;
    below.path = api_path_below(in->internal ? NULL : a->cfg.prefix, in->path);
    api_route(c, &below);
    /* A large body may have been millions of values, a hundred times its bytes, among which others'
     * few keep the heap from shrinking: 0.2 ms for each MB that goes back. */
    if (in->body_len > TRIM_BODY_BYTES)
        malloc_trim(0);
    return c; /* the loop thread may be using *c by now */
}
