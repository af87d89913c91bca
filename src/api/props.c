/* GET and POST /props, GET /slots: what llama-server tells of itself.
 *
 * Weir has no slots: sequences share one pool of memory. For those who count them, every sequence
 * that can run at once is one, and the first so many are busy. */
#include "api/native.h"

#include <string.h>

static void put_template(const struct api_call *c, struct buf *out)
{
    size_t n;
    const char *source = chat_template_source(c->api->tmpl, &n);
    buf_str(out, ",\"chat_template\":");
    api_put_text(out, source, n);
}

void api_props(struct api_call *c, const struct api_input *in)
{
    (void)in;
    struct engine_stats s;
    struct buf *out = &c->body;
    engine_stats_get(c->engine, &s);
    buf_printf(out,
               "{\"default_generation_settings\":{\"id\":0,\"id_task\":-1,\"n_ctx\":%u,"
               "\"speculative\":false,\"is_processing\":false,\"params\":",
               engine_n_ctx(c->engine));
    native_put_settings(c, NULL, NULL, out);
    buf_printf(out,
               ",\"prompt\":\"\",\"next_token\":{\"has_next_token\":true,\"has_new_line\":false,"
               "\"n_remain\":-1,\"n_decoded\":0,\"stopping_word\":\"\"}},\"total_slots\":%u,"
               "\"model_alias\":",
               s.max_running);
    buf_add(out, c->api->model_json.data, c->api->model_json.len);
    buf_str(out, ",\"model_path\":");
    api_put_text(out, c->api->model_path, strlen(c->api->model_path));
    put_template(c, out);
    buf_str(out,
            ",\"chat_template_caps\":{},\"modalities\":{\"vision\":false,\"audio\":false},"
            "\"build_info\":\"weir " WEIR_VERSION "\",\"is_sleeping\":false}");
    api_answer_json(c, 200);
}

/* There is nothing to set, there as here. */
void api_props_set(struct api_call *c, const struct api_input *in)
{
    (void)in;
    struct err_info e = {0};
    err_set(&e,
            ERR_UNSUPPORTED,
            "the properties of this server cannot be changed while it runs; see 'weir serve "
            "--help'");
    api_answer_error(c, &e);
}

/* ?fail_on_no_slot=1: 503 when all are busy. */
void api_slots(struct api_call *c, const struct api_input *in)
{
    struct engine_stats s;
    struct err_info e = {0};
    bool wants_one = false;
    engine_stats_get(c->engine, &s);
    enum err err = api_query_flag(in, "fail_on_no_slot", &wants_one, &e);
    if (!err && wants_one && s.running >= s.max_running)
        err = err_set(&e, ERR_DRAINING, "no slot is free");
    if (err) {
        api_answer_error(c, &e);
        return;
    }
    buf_char(&c->body, '[');
    for (uint32_t i = 0; i < s.max_running; i++)
        buf_printf(&c->body,
                   "%s{\"id\":%u,\"n_ctx\":%u,\"speculative\":false,\"is_processing\":%s}",
                   i ? "," : "",
                   i,
                   engine_n_ctx(c->engine),
                   i < s.running ? "true" : "false");
    buf_char(&c->body, ']');
    api_answer_json(c, 200);
}
