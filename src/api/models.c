/* GET /health, /version and /v1/models. */
#include "api/call.h"

#include <string.h>
#include <time.h>

/* As llama-server has it; its clients wait for this one while a model loads. */
static void put_unavailable(const char *message, struct buf *out)
{
    buf_str(out, ",\"error\":{\"code\":503");
    api_field_text(out, "message", message);
    buf_str(out, ",\"type\":\"unavailable_error\"}");
}

enum err api_working(const struct api *a, struct err_info *e)
{
    const struct engine *eng = atomic_load_explicit(&a->engine, memory_order_acquire);
    return eng ? engine_working(eng, e) : OK;
}

enum err api_health(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    const char *status = "ok", *message = NULL;
    if (atomic_load(&c->api->draining)) {
        status = "draining";
    } else if (!c->engine) {
        status = "loading";
        message = "Loading model";
    } else if (engine_working(c->engine, e)) {
        status = "failing";
        message = e->text;
    }
    buf_char(&c->body, '{');
    api_field_text(&c->body, "status", status);
    if (message)
        put_unavailable(message, &c->body);
    buf_char(&c->body, '}');
    api_answer_json(c, strcmp(status, "ok") == 0 ? 200 : 503);
    return OK;
}

enum err api_version(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    buf_str(&c->body, "{\"version\":\"" WEIR_VERSION "\"}");
    return OK;
}

static void put_names(const char *const *names, size_t n, const char *open, struct buf *out)
{
    buf_str(out, open);
    for (size_t i = 0; i < n; i++) {
        buf_str(out, i ? "," : "");
        api_put_text(out, names[i], strlen(names[i]));
    }
    buf_char(out, ']');
}

/* What llama-server tells of a model: its numbers. */
static void put_meta(const struct api_call *c, struct buf *out)
{
    const struct model *m = engine_model(c->engine);
    uint64_t n_params = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        uint64_t n = 1;
        for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++)
            n *= t->ne[d];
        n_params += n;
    }
    buf_printf(out,
               ",\"meta\":{\"n_vocab\":%u,\"n_ctx\":%u,\"n_ctx_train\":%u,\"n_embd\":%u,"
               "\"n_params\":%llu,\"size\":%zu}",
               m->hp.n_vocab,
               engine_n_ctx(c->engine),
               m->hp.n_ctx_train,
               m->hp.n_embd,
               (unsigned long long)n_params,
               m->weight_bytes);
}

/* What Anthropic's clients look for in the same object. */
static void put_for_anthropic(const struct api_call *c, struct buf *out)
{
    const time_t created = (time_t)c->api->created;
    struct tm utc;
    char when[32];
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&created, &utc));
    buf_str(out, ",\"type\":\"model\"");
    api_field_model(c, "display_name", out);
    buf_printf(out, ",\"created_at\":\"%s\",\"lifecycle\":\"active\"", when);
    if (c->engine)
        buf_printf(out,
                   ",\"max_input_tokens\":%u,\"max_tokens\":%u",
                   engine_n_ctx(c->engine),
                   engine_n_ctx(c->engine));
}

void api_field_model(const struct api_call *c, const char *name, struct buf *out)
{
    api_field(out, name);
    buf_join(out, &c->api->model_json);
}

void api_put_model(const struct api_call *c, struct buf *out)
{
    buf_char(out, '{');
    api_field_model(c, "id", out);
    buf_str(out, ",\"object\":\"model\"");
    api_field_int(out, "created", c->api->created);
    buf_str(out, ",\"owned_by\":\"weir\"");
    put_for_anthropic(c, out);
    put_names(c->api->cfg.names, c->api->cfg.n_names, ",\"aliases\":[", out);
    put_names(c->api->cfg.tags, c->api->cfg.n_tags, ",\"tags\":[", out);
    if (c->engine) { /* known once it is loaded */
        api_field_int(out, "max_model_len", engine_n_ctx(c->engine));
        put_meta(c, out);
    }
    buf_char(out, '}');
}

enum err api_models(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    buf_str(&c->body, "{\"object\":\"list\",\"data\":[");
    api_put_model(c, &c->body);
    buf_str(&c->body, "],\"has_more\":false");
    api_field_model(c, "first_id", &c->body);
    api_field_model(c, "last_id", &c->body);
    buf_char(&c->body, '}');
    return OK;
}

enum err api_model(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    const char *id = api_path_after(in->path, "/models/");
    if (!api_is_model(c->api, id, strlen(id)))
        return api_no_model(c->api, id, e);
    api_put_model(c, &c->body);
    return OK;
}
