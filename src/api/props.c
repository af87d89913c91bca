/* GET and POST /props, /slots, /lora-adapters: what llama-server tells of itself.
 *
 * Weir has no slots: sequences share one pool of memory. For those who count them, every sequence
 * that can run at once is one, and the first so many are busy. */
#include "api/native.h"
#include "chat/encode.h"

#include <string.h>

static void put_template(const struct api_call *c, struct buf *out)
{
    size_t n;
    const char *source = chat_template_source(c->api->tmpl, &n);
    const struct chat_traits *traits = chat_template_traits(c->api->tmpl);
    api_field(out, "chat_template");
    api_put_text(out, source, n);
    buf_str(out, ",\"chat_template_caps\":{");
    api_field_bool(out, "supports_system_role", traits->system);
    api_field_bool(out, "supports_tools", traits->tools);
    api_field_bool(out, "supports_tool_calls", traits->calls);
    api_field_bool(out, "supports_object_arguments", traits->calls && !traits->text_arguments);
    buf_char(out, '}');
}

/* The text of a token, "" where the model has none. */
static void put_token(const struct api_call *c, const char *name, token_id id, struct buf *out)
{
    struct buf text = {0};
    const char *s = chat_token_text(engine_tokenizer(c->engine), id, &text);
    api_field(out, name);
    api_put_text(out, s ? s : "", s ? text.len : 0);
    buf_deinit(&text);
}

enum err api_props(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
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
               "\"n_remain\":-1,\"n_decoded\":0,\"stopping_word\":\"\"}},\"total_slots\":%u",
               s.max_running);
    api_field_model(c, "model_alias", out);
    api_field_text(out, "model_path", c->api->model_path);
    put_template(c, out);
    put_token(c, "bos_token", tokenizer_bos(engine_tokenizer(c->engine)), out);
    put_token(c, "eos_token", tokenizer_eos(engine_tokenizer(c->engine)), out);
    buf_str(out, ",\"modalities\":{\"vision\":false,\"audio\":false}");
    api_field_bool(out, "endpoint_slots", !c->api->cfg.no_slots);
    buf_str(out,
            ",\"endpoint_props\":false,\"endpoint_metrics\":true,"
            "\"build_info\":\"weir " WEIR_VERSION "\",\"is_sleeping\":false}");
    return OK;
}

/* There is nothing to set, there as here. */
enum err api_props_set(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)c;
    (void)in;
    return err_set(e,
                   ERR_UNSUPPORTED,
                   "the properties of this server cannot be changed while it runs; see 'weir serve "
                   "--help'");
}

/* ?fail_on_no_slot=1: 503 when all are busy. */
enum err api_slots(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    struct engine_stats s;
    bool wants_one = false;
    if (c->api->cfg.no_slots)
        return err_set(e, ERR_UNSUPPORTED, "this server does not show its slots (--slots on)");
    engine_stats_get(c->engine, &s);
    enum err err = api_query_flag(in, "fail_on_no_slot", &wants_one, e);
    if (err)
        return err;
    if (wants_one && s.running >= s.max_running)
        return err_set(e, ERR_DRAINING, "no slot is free");
    struct buf *out = &c->body;
    buf_char(out, '[');
    for (uint32_t i = 0; i < s.max_running; i++) {
        buf_str(out, i ? ",{" : "{");
        api_field_int(out, "id", i);
        api_field_int(out, "n_ctx", engine_n_ctx(c->engine));
        api_field_bool(out, "speculative", false);
        api_field_bool(out, "is_processing", i < s.running);
        buf_char(out, '}');
    }
    buf_char(out, ']');
    return OK;
}

/* ?action=save, restore or erase: sequences have no slot that could be named, and what they leave
 * is kept by itself (GET /v1/kv). */
enum err api_slot_action(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)c;
    (void)in;
    return err_set(
        e,
        ERR_UNSUPPORTED,
        "this server has no slots to save or restore; computed prefixes are kept by themselves, "
        "on disk with --cache-dir");
}

/* There are none, and none can be loaded. */
enum err api_lora(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    buf_str(&c->body, "[]");
    return OK;
}

/* [{"id", "scale"}, ...]: nothing but an empty list can be kept to. */
enum err api_lora_set(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    json_error_t je;
    json_t *list = api_json_load(in->body, in->body_len, 0, &je);
    const bool is_list = json_is_array(list), none = json_array_size(list) == 0;
    json_decref(list);
    if (!is_list)
        return err_set(
            e, ERR_INVALID, "the body must be an array of objects with 'id' and 'scale'");
    if (!none)
        return err_set(e, ERR_INVALID, "there is no adapter with such an id: this server has none");
    buf_str(&c->body, "{\"success\":true}");
    return OK;
}
