/* GET /health and /v1/models. */
#include "api/call.h"

#include <string.h>

void api_health(struct api_call *c, const struct api_input *in)
{
    (void)in;
    const char *status = "ok";
    if (atomic_load(&c->api->draining))
        status = "draining";
    else if (!c->engine)
        status = "loading";
    buf_str(&c->body, "{\"status\":\"");
    buf_str(&c->body, status);
    buf_char(&c->body, '"');
    if (strcmp(status, "loading") == 0) /* what llama-server says then, and its clients wait for */
        buf_str(&c->body,
                ",\"error\":{\"code\":503,\"message\":\"Loading model\","
                "\"type\":\"unavailable_error\"}");
    buf_char(&c->body, '}');
    api_answer_json(c, strcmp(status, "ok") == 0 ? 200 : 503);
}

void api_put_model(const struct api_call *c, struct buf *out)
{
    buf_str(out, "{\"id\":");
    buf_add(out, c->api->model_json.data, c->api->model_json.len);
    buf_str(out, ",\"object\":\"model\",\"created\":");
    api_put_int(out, c->api->created);
    buf_str(out, ",\"owned_by\":\"weir\"");
    if (c->engine) { /* known once it is loaded */
        buf_str(out, ",\"max_model_len\":");
        api_put_int(out, engine_n_ctx(c->engine));
    }
    buf_char(out, '}');
}

void api_models(struct api_call *c, const struct api_input *in)
{
    (void)in;
    buf_str(&c->body, "{\"object\":\"list\",\"data\":[");
    api_put_model(c, &c->body);
    buf_str(&c->body, "]}");
    api_answer_json(c, 200);
}

void api_model(struct api_call *c, const struct api_input *in)
{
    const char *id = api_path_after(in->path, "/models/");
    if (api_is_model(c->api, id, strlen(id))) {
        api_put_model(c, &c->body);
        api_answer_json(c, 200);
        return;
    }
    struct err_info e = {0};
    err_set_field(&e,
                  ERR_NOT_FOUND,
                  "model",
                  "the model '%.100s' is not here; this server has '%.100s'",
                  id,
                  c->api->model_id);
    api_answer_error(c, &e);
}
