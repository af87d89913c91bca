/* Routes, the key, and what the layers above hold on to. */
#include "api/call.h"
#include "base/clock.h"
#include "base/mem.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#define DEFAULT_MAX_CHOICES 128

enum err api_create(const struct api_config *cfg, struct api **out, struct err_info *e)
{
    *out = NULL;
    if (!cfg->model_id || !cfg->model_id[0])
        return err_set_field(e, ERR_INVALID, "model_id", "the model needs a name");
    struct api *a = mem_zalloc(1, sizeof *a);
    a->model_id = mem_strdup(cfg->model_id);
    api_put_text(&a->model_json, a->model_id, strlen(a->model_id));
    a->max_choices = cfg->max_choices ? cfg->max_choices : DEFAULT_MAX_CHOICES;
    a->no_embeddings = cfg->no_embeddings;
    a->created = clock_unix();
    if (cfg->api_key && cfg->api_key[0]) {
        a->has_key = true;
        SHA256((const unsigned char *)cfg->api_key, strlen(cfg->api_key), a->key_digest);
    }
    *out = a;
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

void api_set_draining(struct api *a)
{
    atomic_store(&a->draining, true);
}

void api_destroy(struct api *a)
{
    if (!a)
        return;
    while (api_next(a)) { /* the last events free the calls that ended before them */
    }
    free(a->model_id);
    buf_deinit(&a->model_json);
    free(a);
}

bool api_is_model(const struct api *a, const char *name, size_t n)
{
    return (n == strlen(a->model_id) && memcmp(name, a->model_id, n) == 0) ||
           (n == strlen("default") && memcmp(name, "default", n) == 0);
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

/* Seconds until the queue has probably moved by a place: requests last `e2e` on average, and
 * `running` of them share the time. */
static void set_retry_after(struct api_call *c)
{
    struct engine_stats s;
    engine_stats_get(c->engine, &s);
    double e2e = s.e2e.count ? s.e2e.sum / (double)s.e2e.count : 1.0;
    double seconds = e2e / (s.running ? s.running : 1);
    int whole = seconds < 1.0 ? 1 : seconds > 60.0 ? 60 : (int)(seconds + 0.999);
    snprintf(c->retry_after, sizeof c->retry_after, "%d", whole);
    c->answer.retry_after = c->retry_after;
}

void api_answer_error(struct api_call *c, const struct err_info *e)
{
    int status = api_status_of(e->code);
    buf_clear(&c->body);
    api_error_body(status, e, &c->body);
    api_answer_json(c, status);
    c->answer.stream = false;
    c->answer.www_authenticate = status == 401;
    if (e->code == ERR_QUEUE_FULL && c->engine)
        set_retry_after(c);
}

/* "Bearer KEY", compared in constant time: as digests, so that lengths do not show either. */
static bool has_access(const struct api *a, const char *authorization)
{
    unsigned char digest[sizeof a->key_digest];
    if (!a->has_key)
        return true;
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return false;
    const char *key = authorization + 7;
    key += strspn(key, " ");
    SHA256((const unsigned char *)key, strlen(key), digest);
    return CRYPTO_memcmp(digest, a->key_digest, sizeof digest) == 0;
}

/* In the order of the table, which it indexes; other paths of the same follow. */
enum route_kind {
    ROUTE_HEALTH,
    ROUTE_MODELS,
    ROUTE_METRICS,
    ROUTE_KV,
    ROUTE_COMPLETIONS,
    ROUTE_CHAT,
    ROUTE_EMBEDDINGS,
    ROUTE_EMBEDDING, /* llama-server's shape */
    ROUTE_RERANK
};

static const struct route {
    const char *path;
    enum route_kind kind;
    bool post;
} routes[] = {
    [ROUTE_HEALTH] = {"/health", ROUTE_HEALTH, false},
    [ROUTE_MODELS] = {"/v1/models", ROUTE_MODELS, false},
    [ROUTE_METRICS] = {"/metrics", ROUTE_METRICS, false},
    [ROUTE_KV] = {"/v1/kv", ROUTE_KV, false},
    [ROUTE_COMPLETIONS] = {"/v1/completions", ROUTE_COMPLETIONS, true},
    [ROUTE_CHAT] = {"/v1/chat/completions", ROUTE_CHAT, true},
    [ROUTE_EMBEDDINGS] = {"/v1/embeddings", ROUTE_EMBEDDINGS, true},
    [ROUTE_EMBEDDING] = {"/embedding", ROUTE_EMBEDDING, true},
    [ROUTE_RERANK] = {"/v1/rerank", ROUTE_RERANK, true},
    {"/embeddings", ROUTE_EMBEDDING, true},
    {"/rerank", ROUTE_RERANK, true},
    {"/reranking", ROUTE_RERANK, true},
    {"/v1/reranking", ROUTE_RERANK, true},
    {"/v2/rerank", ROUTE_RERANK, true},
};
static const char model_path[] = "/v1/models/";

/* The path as it is: no trailing slashes, no other spellings. NULL if there is none. */
static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(path, routes[i].path) == 0)
            return &routes[i];
    }
    if (strncmp(path, model_path, sizeof model_path - 1) == 0)
        return &routes[ROUTE_MODELS];
    return NULL;
}

/* HEAD is GET without the body, which http/ leaves out. */
static bool method_fits(const struct route *r, const char *method)
{
    if (r->post)
        return strcmp(method, "POST") == 0;
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

/* Is there an engine, and may it take work? */
static enum err check_ready(struct api_call *c, struct err_info *e)
{
    if (!c->engine)
        return err_set(e, ERR_DRAINING, "the model is still loading");
    return OK;
}

/* Draining comes first: a server that ends while it loads does not become ready. */
static enum err check_open(struct api_call *c, struct err_info *e)
{
    if (atomic_load(&c->api->draining))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    return check_ready(c, e);
}

/* The checks before a route runs, from the outside in. */
static enum err admit(struct api_call *c,
                      const struct api_input *in,
                      const struct route *r,
                      struct err_info *e)
{
    if (!(r && r->kind == ROUTE_HEALTH) && !has_access(c->api, in->authorization))
        return err_set(e,
                       ERR_AUTH,
                       in->authorization ? "the API key is wrong"
                                         : "an API key is required: Authorization: Bearer KEY");
    if (!r)
        return err_set(e, ERR_NOT_FOUND, "there is no route %.200s", in->path);
    if (!method_fits(r, in->method)) {
        c->answer.allow = r->post ? "POST" : "GET, HEAD";
        return err_set(
            e, ERR_METHOD, "%s answers %s, not %.16s", r->path, c->answer.allow, in->method);
    }
    if (r->kind == ROUTE_METRICS || r->kind == ROUTE_KV)
        return check_ready(c, e);
    return r->post ? check_open(c, e) : OK;
}

static void run_route(struct api_call *c, const struct api_input *in, const struct route *r)
{
    switch (r->kind) {
    case ROUTE_HEALTH:
        api_health(c);
        break;
    case ROUTE_METRICS:
        api_metrics(c);
        break;
    case ROUTE_KV:
        api_kv(c, in->query);
        break;
    case ROUTE_MODELS:
        if (strcmp(in->path, r->path) == 0)
            api_models(c);
        else
            api_model(c, in->path + sizeof model_path - 1);
        break;
    case ROUTE_COMPLETIONS:
        api_generate(c, &api_completions, in);
        break;
    case ROUTE_CHAT:
        api_generate(c, &api_chat, in);
        break;
    case ROUTE_EMBEDDINGS:
    case ROUTE_EMBEDDING:
        api_embeddings(c, in, r->kind == ROUTE_EMBEDDINGS);
        break;
    case ROUTE_RERANK:
        api_rerank(c, in);
        break;
    }
}

struct api_call *api_begin(struct api *a, const struct api_input *in)
{
    struct err_info e = {0};
    struct api_call *c = mem_zalloc(1, sizeof *c);
    c->api = a;
    c->engine = atomic_load_explicit(&a->engine, memory_order_acquire);
    c->created = clock_unix();
    c->name = in->name;
    api_new_id("req-", c->id, sizeof c->id);
    snprintf(c->request_id, sizeof c->request_id, "%s", in->request_id ? in->request_id : "");
    c->answer.request_id = c->request_id[0] ? c->request_id : c->id;
    const struct route *r = find_route(in->path);
    if (admit(c, in, r, &e) != OK)
        api_answer_error(c, &e);
    else
        run_route(c, in, r);
    return c; /* the loop thread may be using *c by now */
}
