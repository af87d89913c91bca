/* POST /v1/responses: its conversation as messages of the chat route.
 *
 *      previous_response_id    the conversation up to that answer, from the store
 *      instructions            a system message before it all; it is not kept
 *      input                   a text, or items: messages, calls, results of calls, reasoning
 *
 * It is kept as chat messages, so that the next turn can go on from it. */
#include "api/responses.h"
#include "api/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The conversation under way. */
struct talk {
    json_t *all;         /* chat messages */
    json_t *earlier;     /* input items of the answer that it goes on from, or NULL */
    json_t *answer;      /* that one, or NULL */
    struct buf thoughts; /* reasoning that belongs to the assistant's next message */
};

/* A text, or parts of text. */
static enum err join_parts(const json_t *v, const char *field, struct buf *out, struct err_info *e)
{
    if (json_is_string(v)) {
        buf_add(out, json_string_value(v), json_string_length(v));
        return OK;
    }
    if (!v)
        return err_invalid(e, field, "'%s' has no text", field);
    if (!json_is_array(v))
        return api_wrong_type(field, "a string or an array of parts", v, e);
    return api_join_parts(v, field, "", PARTS_REFUSAL | PARTS_REASONING, out, e);
}

/* The reasoning under way is the assistant's message's, behind what that has of it. */
static void give_thoughts(struct talk *t, json_t *m)
{
    const json_t *before = json_object_get(m, "reasoning_content");
    struct buf all = {.may_fail = true};
    if (buf_any(&t->thoughts)) {
        buf_add(&all, json_string_value(before), json_string_length(before));
        buf_join(&all, &t->thoughts);
        json_object_set_new(m, "reasoning_content", api_json_string(&all));
    }
    buf_clear(&t->thoughts);
    buf_deinit(&all);
}

/* The assistant's last message if it is the last of all, else a new, empty one; with the reasoning
 * that came before it. */
static json_t *assistant_of(struct talk *t)
{
    size_t n = json_array_size(t->all);
    json_t *m = n ? json_array_get(t->all, n - 1) : NULL;
    if (strcmp(api_text_at(m, "role"), "assistant") != 0)
        m = api_add_message(t->all, "assistant", json_string(""));
    give_thoughts(t, m);
    return m;
}

static enum err add_message(struct talk *t,
                            const json_t *item,
                            const char *field,
                            struct err_info *e)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = api_text_at(item, "role");
    struct buf text = {.may_fail = true};
    bool known = false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        known |= strcmp(role, roles[i]) == 0;
    if (!known)
        return err_invalid(
            e, field, "'%s' must have a 'role' of user, assistant, system or developer", field);
    enum err err = join_parts(json_object_get(item, "content"), field, &text, e);
    if (!err) {
        json_t *m = api_add_message(t->all, role, api_json_string(&text));
        if (strcmp(role, "assistant") == 0)
            give_thoughts(t, m);
        buf_clear(&t->thoughts);
    }
    buf_deinit(&text);
    return err;
}

/* Items that are calls. `name`: of those that have none; `given`: their member with what the tool
 * is given, as JSON in a text if it is "arguments". */
static const struct call_kind {
    const char *type, *name, *given;
} call_kinds[] = {
    {"function_call", NULL, "arguments"},
    {"custom_tool_call", NULL, "input"},
    {"local_shell_call", "local_shell", "action"},
    {"shell_call", "shell", "action"},
    {"apply_patch_call", "apply_patch", "operation"},
};

/* A new reference, or NULL. */
static json_t *arguments_of(const struct call_kind *kind, json_t *given)
{
    if (strcmp(kind->given, "arguments") == 0)
        return json_incref(given);
    json_t *o =
        strcmp(kind->given, "input") == 0 ? json_pack("{s:O}", "input", given) : json_incref(given);
    char *text = json_dumps(o, JSON_COMPACT);
    json_t *arguments = text ? json_string(text) : NULL;
    json_decref(o);
    free(text);
    return arguments;
}

static enum err add_call(struct talk *t,
                         const struct call_kind *kind,
                         const json_t *item,
                         const char *field,
                         struct err_info *e)
{
    json_t *id = json_object_get(item, "call_id"), *given = json_object_get(item, kind->given);
    const char *name = kind->name ? kind->name : json_string_value(json_object_get(item, "name"));
    struct buf full = {0};
    if (!json_is_string(id))
        return responses_missing(field, "call_id", e);
    if (!name)
        return responses_missing(field, "name", e);
    if (kind->name && !json_is_object(given))
        return err_invalid(
            e, field, "'%s' has no '%s', which must be an object", field, kind->given);
    if (!kind->name && !json_is_string(given))
        return responses_missing(field, kind->given, e);
    enum err err = responses_check_text(item, "namespace", field, e);
    if (err)
        return err;
    json_t *m = assistant_of(t), *calls = json_object_get(m, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(m, "tool_calls", calls);
    }
    responses_tool_name(api_text_at(item, "namespace"), name, &full);
    json_array_append_new(calls, api_call_of(id, buf_cstr(&full), arguments_of(kind, given)));
    buf_deinit(&full);
    return OK;
}

/* Of a patch it is said whether that could be done, and there need be no more. */
static enum err put_status(
    const json_t *item, const char *field, bool alone, struct buf *out, struct err_info *e)
{
    const json_t *v = api_get(item, "status");
    const char *status = v ? api_text_at(item, "status") : "";
    if (v && strcmp(status, "completed") != 0 && strcmp(status, "failed") != 0)
        return err_invalid(e, field, "'%s' must have a 'status' of completed or failed", field);
    if (alone && !v)
        return err_invalid(e, field, "'%s' has no 'status'", field);
    buf_str(out, status);
    buf_str(out, v && !alone ? "\n" : "");
    return OK;
}

/* What came of a call: text, or, of the kinds that have no name, whatever JSON that is. */
static enum err add_result(struct talk *t,
                           const json_t *item,
                           const struct call_kind *kind,
                           const char *field,
                           struct err_info *e)
{
    const bool any = kind->name != NULL, patch = strcmp(kind->given, "operation") == 0;
    json_t *id = json_object_get(item, "call_id"), *output = (json_t *)api_get(item, "output");
    struct buf text = {.may_fail = true};
    enum err err = OK;
    if (any && !id)
        id = json_object_get(item, "id");
    if (!json_is_string(id))
        return responses_missing(field, "call_id", e);
    if (patch)
        err = put_status(item, field, !output, &text, e);
    if (err) {
        /* said */
    } else if (any && output && !json_is_string(output)) {
        char *json = json_dumps(output, JSON_COMPACT | JSON_ENCODE_ANY);
        text.failed |= !json;
        buf_str(&text, json ? json : "");
        free(json);
    } else if (any && !output && !patch) {
        err = err_invalid(e, field, "'%s' has no 'output'", field);
    } else if (output || !patch) {
        err = join_parts(output, field, &text, e);
    }
    if (!err)
        json_object_set(
            api_add_message(t->all, "tool", api_json_string(&text)), "tool_call_id", id);
    buf_deinit(&text);
    return err;
}

/* Reasoning as we gave it; of what is only encrypted or summarised nothing can be read. */
static enum err add_reasoning(struct talk *t,
                              const json_t *item,
                              const char *field,
                              struct err_info *e)
{
    const json_t *content = api_get(item, "content");
    return content ? join_parts(content, field, &t->thoughts, e) : OK;
}

/* Tells of tools that whoever answered then ran itself, and of tools that are offered: the one
 * shows in what the assistant said behind it, the other is read elsewhere. */
static bool says_nothing(const char *type)
{
    static const char *const types[] = {"web_search_call",
                                        "file_search_call",
                                        "code_interpreter_call",
                                        "image_generation_call",
                                        "mcp_list_tools",
                                        "mcp_call",
                                        "mcp_approval_request",
                                        "mcp_approval_response",
                                        "tool_search_call",
                                        "tool_search_output",
                                        "additional_tools"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

static enum err unsupported_item(const char *type, const char *field, struct err_info *e)
{
    if (strcmp(type, "item_reference") == 0)
        return err_invalid(e,
                           field,
                           "'%s' is an item_reference: items are not kept by themselves; send "
                           "the item, or go on with 'previous_response_id'",
                           field);
    return err_invalid(e,
                       field,
                       "'%s' is an item of type '%.40s', which is not supported by this server",
                       field,
                       type);
}

static enum err add_item(struct talk *t, const json_t *item, size_t i, struct err_info *e)
{
    char field[32], output[64];
    snprintf(field, sizeof field, "input[%zu]", i);
    if (!json_is_object(item))
        return api_wrong_type(field, "an object", item, e);
    const char *type = api_text_at(item, "type");
    if (!type[0] || strcmp(type, "message") == 0)
        return add_message(t, item, field, e);
    if (strcmp(type, "reasoning") == 0)
        return add_reasoning(t, item, field, e);
    for (size_t k = 0; k < sizeof call_kinds / sizeof *call_kinds; k++) {
        const struct call_kind *kind = &call_kinds[k];
        snprintf(output, sizeof output, "%s_output", kind->type);
        if (strcmp(type, kind->type) == 0)
            return add_call(t, kind, item, field, e);
        if (strcmp(type, output) == 0)
            return add_result(t, item, kind, field, e);
    }
    return says_nothing(type) ? OK : unsupported_item(type, field, e);
}

static enum err read_input(struct talk *t, const json_t *body, struct err_info *e)
{
    json_t *v = (json_t *)api_get(body, "input");
    enum err err = OK;
    if (!v)
        return err_invalid(e, "input", "'input' is required");
    if (json_is_string(v)) {
        api_add_message(t->all, "user", json_incref(v));
        return OK;
    }
    if (!json_is_array(v))
        return api_wrong_type("input", "a string or an array of items", v, e);
    if (json_array_size(v) == 0)
        return err_invalid(e, "input", "'input' is empty");
    for (size_t i = 0; !err && i < json_array_size(v); i++)
        err = add_item(t, json_array_get(v, i), i, e);
    if (!err && buf_any(&t->thoughts))
        assistant_of(t);
    return err;
}

/* NULL: no memory. */
static json_t *load(const struct buf *text)
{
    json_error_t je;
    return text->failed ? NULL : api_json_load(text->data, text->len, JSON_ALLOW_NUL, &je);
}

/* The conversation up to the answer that is named, or none. */
static enum err read_previous(struct api_call *c,
                              const json_t *body,
                              struct talk *t,
                              struct err_info *e)
{
    struct gguf_str id = {0};
    struct buf kept[N_KEPT] = {{.may_fail = true}, {.may_fail = true}, {.may_fail = true}};
    struct buf *const texts[N_KEPT] = {&kept[0], &kept[1], &kept[2]};
    enum err err = api_get_str(body, "previous_response_id", &id, e);
    if (err)
        return err;
    if (!id.data) {
        t->all = json_array();
        return OK;
    }
    if (!api_store_get(c->api->store, api_owner(c), id.data, texts))
        return err_set_field(e,
                             ERR_NOT_FOUND,
                             "previous_response_id",
                             "there is no response '%.48s': it was never kept, was deleted, or "
                             "gave way to newer ones",
                             id.data);
    t->all = load(&kept[KEPT_MESSAGES]);
    t->answer = t->all ? load(&kept[KEPT_RESPONSE]) : NULL;
    t->earlier = t->answer ? load(&kept[KEPT_ITEMS]) : NULL;
    for (size_t i = 0; i < N_KEPT; i++)
        buf_deinit(&kept[i]);
    return t->earlier ? OK : err_set(e, ERR_NOMEM, "no memory for the conversation");
}

/* What the next answer and /input_items need of it. */
static enum err keep(struct responses *r,
                     const struct talk *t,
                     const json_t *body,
                     struct err_info *e)
{
    if (!r->store)
        return OK;
    char *kept = json_dumps(t->all, JSON_COMPACT);
    if (kept) /* without its bracket, so that the answer can follow */
        buf_add(&r->messages, kept, strlen(kept) - 1);
    const bool failed = !kept || r->messages.failed;
    free(kept);
    return failed ? err_set(e, ERR_NOMEM, "no memory to keep the conversation")
                  : responses_keep_items(r, t->earlier, t->answer, api_get(body, "input"), e);
}

enum err responses_adapt_input(struct api_call *c,
                               const json_t *body,
                               json_t *b,
                               struct err_info *e)
{
    struct responses *r = c->state;
    struct talk t = {.thoughts.may_fail = true};
    struct gguf_str instructions = {0};
    enum err err;
    if (!(err = read_previous(c, body, &t, e)) && !(err = read_input(&t, body, e)) &&
        !(err = api_get_str(body, "instructions", &instructions, e)) &&
        !(err = keep(r, &t, body, e))) {
        if (instructions.data && instructions.len > 0) {
            json_t *m = json_object();
            json_object_set_new(m, "role", json_string("system"));
            json_object_set_new(m, "content", json_stringn(instructions.data, instructions.len));
            json_array_insert_new(t.all, 0, m);
        }
        json_object_set(b, "messages", t.all);
    }
    json_decref(t.all);
    json_decref(t.earlier);
    json_decref(t.answer);
    buf_deinit(&t.thoughts);
    return err;
}
