/* Routes: one table of paths, methods and what answers, and the checks before an answer is made. */
#include "api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What must be there before a route runs. */
enum need {
    NEEDS_NOTHING,
    NEEDS_MODEL, /* an engine */
    NEEDS_OPEN,  /* that takes work: not while draining */
    NEEDS_ADMIN, /* an engine, and the administrator's key, where there is one */
};

#define GET "GET, HEAD"
#define POST "POST"

/* A path may have several rows, each with methods of its own. A star stands for a part without
 * slashes; a path that ends in a slash, for all that are longer. */
static const struct route {
    const char *path;
    const char *methods;
    enum api_shape shape;
    enum need need;
    api_run_fn *run;
    const struct api_dialect *dialect; /* of api_generate, which runs where `run` is NULL */
    bool form;                         /* its body is one, where there is a service */
    bool at_once;                      /* nothing is computed or waited for */
    bool batch;                        /* lines of /v1/batches may name it */
} routes[] = {
    {"/health", GET, API_OPENAI, NEEDS_NOTHING, .run = api_health, .at_once = true},
    {"/v1/health", GET, API_OPENAI, NEEDS_NOTHING, .run = api_health, .at_once = true},
    {"/version", GET, API_OPENAI, NEEDS_NOTHING, .run = api_version, .at_once = true},
    {"/metrics", GET, API_OPENAI, NEEDS_ADMIN, .run = api_metrics},
    {"/v1/models", GET, API_OPENAI, NEEDS_NOTHING, .run = api_models},
    {"/v1/models/", GET, API_OPENAI, NEEDS_NOTHING, .run = api_model},
    {"/openapi.json", GET, API_OPENAI, NEEDS_NOTHING, .run = api_openapi},
    {"/v1/kv", GET, API_OPENAI, NEEDS_ADMIN, .run = api_kv},
    /* OpenAI's */
    {"/v1/completions", POST, API_OPENAI, NEEDS_OPEN, .dialect = &api_completions, .batch = true},
    {"/v1/chat/completions", POST, API_OPENAI, NEEDS_OPEN, .dialect = &api_chat, .batch = true},
    {"/chat/completions", POST, API_BARE, NEEDS_OPEN, .dialect = &api_chat},
    {"/v1/chat/completions/input_tokens", POST, API_OPENAI, NEEDS_MODEL, .run = api_count_chat},
    {"/chat/completions/input_tokens", POST, API_BARE, NEEDS_MODEL, .run = api_count_chat},
    {"/v1/embeddings", POST, API_OPENAI, NEEDS_OPEN, .run = api_embeddings, .batch = true},
    {"/v1/responses", POST, API_OPENAI, NEEDS_OPEN, .dialect = &api_responses, .batch = true},
    {"/responses", POST, API_BARE, NEEDS_OPEN, .dialect = &api_responses},
    {"/v1/responses/input_tokens", POST, API_OPENAI, NEEDS_MODEL, .run = api_count_responses},
    {"/responses/input_tokens", POST, API_BARE, NEEDS_MODEL, .run = api_count_responses},
    {"/v1/responses/*", GET, API_OPENAI, NEEDS_NOTHING, .run = api_response_get},
    {"/v1/responses/*", "DELETE", API_OPENAI, NEEDS_NOTHING, .run = api_response_delete},
    {"/v1/responses/*/input_items", GET, API_OPENAI, NEEDS_NOTHING, .run = api_response_items},
    {"/responses/*/input_items", GET, API_BARE, NEEDS_NOTHING, .run = api_response_items},
    {"/responses/*", GET, API_BARE, NEEDS_NOTHING, .run = api_response_get},
    {"/responses/*", "DELETE", API_BARE, NEEDS_NOTHING, .run = api_response_delete},
    /* Jina's and Cohere's */
    {"/v1/rerank", POST, API_OPENAI, NEEDS_OPEN, .run = api_rerank},
    {"/v1/reranking", POST, API_OPENAI, NEEDS_OPEN, .run = api_rerank},
    {"/v2/rerank", POST, API_OPENAI, NEEDS_OPEN, .run = api_rerank},
    /* another folder's */
    {"/v1/files", GET, API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    {"/v1/files", POST, API_OPENAI, NEEDS_NOTHING, .run = api_serve, .form = true},
    {"/v1/files/*/content", GET, API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    {"/v1/files/*", GET, API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    {"/v1/files/*", "DELETE", API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    {"/v1/batches", GET, API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    {"/v1/batches", POST, API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    {"/v1/batches/*/cancel", POST, API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    {"/v1/batches/*", GET, API_OPENAI, NEEDS_NOTHING, .run = api_serve},
    /* earlier engines' */
    {"/models", GET, API_PLAIN, NEEDS_NOTHING, .run = api_plain_models},
    {"/v1/metrics", GET, API_PLAIN, NEEDS_ADMIN, .run = api_figures},
    {"/v1/batch/stats", GET, API_PLAIN, NEEDS_ADMIN, .run = api_batch_stats},
    {"/v1/gpu/warmup", POST, API_PLAIN, NEEDS_ADMIN, .run = api_gpu_warmup},
    {"/v1/gpu/status", GET, API_PLAIN, NEEDS_ADMIN, .run = api_gpu_status},
    {"/v1/batch/completions", POST, API_PLAIN, NEEDS_OPEN, .run = api_plain_batch},
    {"/generate", POST, API_PLAIN, NEEDS_OPEN, .run = api_plain},
    {"/batch/generate", POST, API_PLAIN, NEEDS_OPEN, .run = api_plain_many},
    {"/realize/batch", POST, API_PLAIN, NEEDS_OPEN, .run = api_plain_many},
    {"/stream/generate", POST, API_PLAIN, NEEDS_OPEN, .run = api_plain_stream},
    {"/realize/generate", POST, API_PLAIN, NEEDS_OPEN, .run = api_plain_stream},
    {"/batch/tokenize", POST, API_PLAIN, NEEDS_MODEL, .run = api_tokenize_batch},
    {"/v1/chat/completions/stream", POST, API_OPENAI, NEEDS_OPEN, .run = api_chat_stream},
    /* Anthropic's */
    {"/v1/messages", POST, API_ANTHROPIC, NEEDS_OPEN, .dialect = &api_messages},
    {"/v1/messages/count_tokens", POST, API_ANTHROPIC, NEEDS_MODEL, .run = api_count_messages},
    /* llama-server's */
    {"/completion", POST, API_LLAMA, NEEDS_OPEN, .dialect = &api_native},
    {"/completions", POST, API_LLAMA, NEEDS_OPEN, .dialect = &api_native},
    {"/embedding", POST, API_LLAMA, NEEDS_OPEN, .run = api_embeddings},
    {"/embeddings", POST, API_LLAMA, NEEDS_OPEN, .run = api_embeddings},
    {"/rerank", POST, API_LLAMA, NEEDS_OPEN, .run = api_rerank},
    {"/reranking", POST, API_LLAMA, NEEDS_OPEN, .run = api_rerank},
    {"/tokenize", POST, API_LLAMA, NEEDS_MODEL, .run = api_tokenize},
    {"/detokenize", POST, API_LLAMA, NEEDS_MODEL, .run = api_detokenize},
    {"/apply-template", POST, API_LLAMA, NEEDS_MODEL, .run = api_apply_template},
    {"/props", GET, API_LLAMA, NEEDS_MODEL, .run = api_props},
    {"/props", POST, API_LLAMA, NEEDS_ADMIN, .run = api_props_set},
    {"/slots", GET, API_LLAMA, NEEDS_ADMIN, .run = api_slots},
    {"/slots/", POST, API_LLAMA, NEEDS_ADMIN, .run = api_slot_action},
    {"/lora-adapters", GET, API_LLAMA, NEEDS_NOTHING, .run = api_lora},
    {"/lora-adapters", POST, API_LLAMA, NEEDS_ADMIN, .run = api_lora_set},
    {"/infill", POST, API_LLAMA, NEEDS_OPEN, .dialect = &api_infill},
};
#define N_ROUTES (sizeof routes / sizeof routes[0])

/* The path as it is: no trailing slashes, no other spellings. */
static bool path_fits(const struct route *r, const char *path)
{
    size_t n = strlen(r->path);
    const char *star = strchr(r->path, '*');
    if (star) {
        size_t before = (size_t)(star - r->path);
        if (strncmp(path, r->path, before) != 0)
            return false;
        size_t part = strcspn(path + before, "/");
        return part > 0 && strcmp(path + before + part, star + 1) == 0;
    }
    if (r->path[n - 1] != '/')
        return strcmp(path, r->path) == 0;
    return strncmp(path, r->path, n) == 0 && path[n] != 0;
}

/* HEAD is GET without the body, which http/ leaves out. */
static bool method_fits(const struct route *r, const char *method)
{
    if (strcmp(r->methods, GET) == 0)
        return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    return strcmp(method, r->methods) == 0;
}

/* The first row that fits, and of those with its path the one for the method; NULL if there is
 * none. A path in full wins over one that ends in a slash, as it comes first in the table. */
static const struct route *find_route(const char *path,
                                      const char *method,
                                      const struct route **first)
{
    *first = NULL;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!path_fits(&routes[i], path))
            continue;
        if (!*first)
            *first = &routes[i];
        if (strcmp(routes[i].path, (*first)->path) == 0 && method_fits(&routes[i], method))
            return &routes[i];
    }
    return NULL;
}

bool api_is_batch_endpoint(const char *path)
{
    const struct route *first, *r = find_route(path, "POST", &first);
    return r && r->batch;
}

bool api_takes_form(const struct api *a, const char *method, const char *path)
{
    const struct route *first, *r = find_route(api_path_below(a->cfg.prefix, path), method, &first);
    return r && r->form && a->service.handle;
}

bool api_at_once(const struct api *a, const char *method, const char *path)
{
    const struct route *first, *r = find_route(api_path_below(a->cfg.prefix, path), method, &first);
    return r && r->at_once;
}

int api_refuses_body(struct api *a, const struct api_input *head, struct err_info *e)
{
    const char *path = api_path_below(a->cfg.prefix, head->path);
    const struct route *first, *r = find_route(path, head->method, &first);
    struct api_call c = {.api = a};
    const enum err err = api_identify(&c, head, r && r->need == NEEDS_ADMIN, e);
    return err ? api_shape_status(api_shape_of(path), err) : 0;
}

/* Of a path that is none, its family's. */
enum api_shape api_shape_of(const char *path)
{
    static const char anthropic[] = "/v1/messages/";
    const struct route *first;
    (void)find_route(path, "", &first);
    if (first)
        return first->shape;
    return strncmp(path, anthropic, sizeof anthropic - 1) == 0 ? API_ANTHROPIC : API_OPENAI;
}

const char *api_path_after(const char *path, const char *part)
{
    return strstr(path, part) + strlen(part);
}

bool api_query_get(const struct api_input *in, const char *name, char *out, size_t cap)
{
    const size_t n = strlen(name);
    for (const char *at = in->query ? in->query : ""; *at; at += *at == '&') {
        const size_t len = strcspn(at, "&");
        if (len >= n && strncmp(at, name, n) == 0 && (len == n || at[n] == '=')) {
            const size_t skipped = len > n ? n + 1 : n;
            snprintf(out, cap, "%.*s", (int)(len - skipped), at + skipped);
            return true;
        }
        at += len;
    }
    return false;
}

enum err api_query_flag(const struct api_input *in, const char *name, bool *out, struct err_info *e)
{
    static const char *const words[] = {"0", "1", "false", "true"};
    char value[8];
    if (!api_query_get(in, name, value, sizeof value))
        return OK;
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i % 2;
            return OK;
        }
    }
    return err_invalid(e, name, "'%s' in the query must be 1 or true, 0 or false", name);
}

enum err api_query_page(
    const struct api_input *in, uint32_t most, bool *ascending, uint32_t *n, struct err_info *e)
{
    char text[32];
    *ascending = false;
    if (api_query_get(in, "order", text, sizeof text)) {
        *ascending = strcmp(text, "asc") == 0;
        if (!*ascending && strcmp(text, "desc") != 0)
            return err_invalid(e, "order", "'order' must be asc or desc");
    }
    if (api_query_get(in, "limit", text, sizeof text)) {
        char *end;
        const long limit = strtol(text, &end, 10);
        if (*end || end == text || limit < 1 || limit > (long)most)
            return err_invalid(e, "limit", "'limit' must be from 1 to %u", most);
        *n = (uint32_t)limit;
    }
    return OK;
}

/* "GET, HEAD, POST" of all rows of the path. */
static const char *allowed(struct api_call *c, const struct route *first)
{
    size_t n = 0;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (strcmp(routes[i].path, first->path) == 0)
            n += (size_t)snprintf(c->allow + n,
                                  sizeof c->allow - n,
                                  "%s%s",
                                  n ? ", " : "",
                                  routes[i].methods); /* a few short words: they fit */
    }
    return c->allow;
}

/* Is there an engine, and may it take work? Draining comes first: a server that ends while it loads
 * does not become ready. */
static enum err check_need(const struct api_call *c, enum need need, struct err_info *e)
{
    if (need == NEEDS_OPEN && atomic_load(&c->api->draining))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    if (need != NEEDS_NOTHING && !c->engine)
        return err_set(e, ERR_DRAINING, "the model is still loading");
    return OK;
}

/* The checks before a route runs, from the outside in. */
static enum err admit(struct api_call *c,
                      const struct api_input *in,
                      const struct route *first,
                      const struct route *r,
                      struct err_info *e)
{
    enum err err;
    if (!(first && first->run == api_health) &&
        (err = api_identify(c, in, r && r->need == NEEDS_ADMIN, e)))
        return err;
    if (!first && in->path[0] == '\0')
        return err_set(e, ERR_NOT_FOUND, "all routes are below %.100s", c->api->cfg.prefix);
    if (!first)
        return err_set(e, ERR_NOT_FOUND, "there is no route %.200s", in->path);
    if (!r) {
        c->answer.allow = allowed(c, first);
        return err_set(
            e, ERR_METHOD, "%.200s answers %s, not %.16s", in->path, c->answer.allow, in->method);
    }
    if ((err = check_need(c, r->need, e)))
        return err;
    if (api_client_left(c)) /* while it waited for a worker; nobody reads this */
        return err_set(e, ERR_IO, "the client has left");
    return r->need == NEEDS_OPEN ? api_enter(c, e) : OK;
}

void api_route(struct api_call *c, const struct api_input *in)
{
    struct err_info e = {0};
    const struct route *first, *r = find_route(in->path, in->method, &first);
    c->shape = api_shape_of(in->path);
    c->answer.anthropic = c->shape == API_ANTHROPIC;
    c->route = r ? r->path : first ? first->path : NULL;
    api_record_begin(c, in);
    if (first && api_cors_preflight(c, in))
        return;
    api_cors(c, in);
    api_answer_json(c, 200); /* as long as nothing else is said */
    enum err err = admit(c, in, first, r, &e);
    if (!err)
        err = r->run ? r->run(c, in, &e) : api_generate(c, r->dialect, in, &e);
    if (err) /* else *c may be the loop thread's by now */
        api_answer_error(c, &e);
}
