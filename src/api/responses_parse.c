/* POST /v1/responses: from its fields to those of /v1/chat/completions.
 *
 *      previous_response_id    the conversation up to that answer, from the store
 *      instructions            a system message before it all; it is not kept
 *      input                   a text, or items: messages, calls, results of calls, reasoning
 *      text.format, tools      response_format, tools as functions
 *
 * The conversation is kept as chat messages, so that the next turn can go on from it. */
#include "api/responses.h"
#include "api/store.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct api_refused refused[] = {
    {"background", NEUTRAL_FALSE, 0},
    {"conversation", NEUTRAL_NOTHING, 0},
    {"prompt", NEUTRAL_NOTHING, 0},
    {"max_tool_calls", NEUTRAL_NOTHING, 0},
    {"messages", NEUTRAL_NOTHING, 0},
    {"context_management", NEUTRAL_EMPTY, 0},
    {"n", NEUTRAL_NUMBER, 1},
};

static const char *string_at(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

static json_t *new_message(json_t *all, const char *role, json_t *content)
{
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", content);
    json_array_append_new(all, m);
    return m;
}

/* --- input ---------------------------------------------------------------------------------- */

/* The conversation under way. */
struct talk {
    json_t *all;         /* chat messages */
    struct buf thoughts; /* reasoning that belongs to the assistant's next message */
};

static enum err missing(const char *field, const char *name, struct err_info *e)
{
    return err_set_field(
        e, ERR_INVALID, field, "'%s' has no '%s', which must be a string", field, name);
}

/* A text, or parts of text. */
static enum err join_parts(const json_t *v, const char *field, struct buf *out, struct err_info *e)
{
    static const char *const texts[] = {"input_text", "output_text", "text", "reasoning_text"};
    if (json_is_string(v)) {
        buf_add(out, json_string_value(v), json_string_length(v));
        return OK;
    }
    if (!v)
        return err_set_field(e, ERR_INVALID, field, "'%s' has no text", field);
    if (!json_is_array(v))
        return api_wrong_type(field, "a string or an array of parts", v, e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i), *text = json_object_get(part, "text");
        bool known = false;
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
            known |= strcmp(string_at(part, "type"), texts[k]) == 0;
        if (strcmp(string_at(part, "type"), "refusal") == 0) {
            known = true;
            text = json_object_get(part, "refusal");
        }
        if (!known)
            return err_set_field(e,
                                 ERR_INVALID,
                                 field,
                                 "'%s' has a part of type '%.40s'; this model reads only text",
                                 field,
                                 string_at(part, "type"));
        if (!json_is_string(text))
            return missing(field, "text", e);
        buf_add(out, json_string_value(text), json_string_length(text));
    }
    return OK;
}

static json_t *to_json(const struct buf *b)
{
    return json_stringn(b->len ? b->data : "", b->len);
}

/* The reasoning under way is the assistant's message's, behind what that has of it. */
static void give_thoughts(struct talk *t, json_t *m)
{
    const json_t *before = json_object_get(m, "reasoning_content");
    struct buf all = {0};
    if (t->thoughts.len > 0) {
        buf_add(&all, json_string_value(before), json_string_length(before));
        buf_join(&all, &t->thoughts);
        json_object_set_new(m, "reasoning_content", to_json(&all));
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
    if (strcmp(string_at(m, "role"), "assistant") != 0)
        m = new_message(t->all, "assistant", json_string(""));
    give_thoughts(t, m);
    return m;
}

static enum err add_message(struct talk *t,
                            const json_t *item,
                            const char *field,
                            struct err_info *e)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = string_at(item, "role");
    struct buf text = {0};
    bool known = false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        known |= strcmp(role, roles[i]) == 0;
    if (!known)
        return err_set_field(e,
                             ERR_INVALID,
                             field,
                             "'%s' must have a 'role' of user, assistant, system or developer",
                             field);
    enum err err = join_parts(json_object_get(item, "content"), field, &text, e);
    if (!err) {
        json_t *m = new_message(t->all, role, to_json(&text));
        if (strcmp(role, "assistant") == 0)
            give_thoughts(t, m);
        buf_clear(&t->thoughts);
    }
    buf_deinit(&text);
    return err;
}

static enum err add_call(struct talk *t, const json_t *item, const char *field, struct err_info *e)
{
    static const char *const needed[] = {"call_id", "name", "arguments"};
    for (size_t i = 0; i < 3; i++)
        if (!json_is_string(json_object_get(item, needed[i])))
            return missing(field, needed[i], e);
    json_t *m = assistant_of(t), *calls = json_object_get(m, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(m, "tool_calls", calls);
    }
    json_array_append_new(calls,
                          json_pack("{s:O, s:s, s:{s:O, s:O}}",
                                    "id",
                                    json_object_get(item, "call_id"),
                                    "type",
                                    "function",
                                    "function",
                                    "name",
                                    json_object_get(item, "name"),
                                    "arguments",
                                    json_object_get(item, "arguments")));
    return OK;
}

static enum err add_result(struct talk *t,
                           const json_t *item,
                           const char *field,
                           struct err_info *e)
{
    json_t *id = json_object_get(item, "call_id");
    struct buf text = {0};
    if (!json_is_string(id))
        return missing(field, "call_id", e);
    enum err err = join_parts(json_object_get(item, "output"), field, &text, e);
    if (!err)
        json_object_set(new_message(t->all, "tool", to_json(&text)), "tool_call_id", id);
    buf_deinit(&text);
    return err;
}

/* Reasoning as we gave it; of what is only encrypted or summarised nothing can be read. */
static enum err add_reasoning(struct talk *t,
                              const json_t *item,
                              const char *field,
                              struct err_info *e)
{
    const json_t *content = json_object_get(item, "content");
    if (!content || json_is_null(content))
        return OK;
    return join_parts(content, field, &t->thoughts, e);
}

static enum err add_item(struct talk *t, const json_t *item, size_t i, struct err_info *e)
{
    char field[32];
    snprintf(field, sizeof field, "input[%zu]", i);
    if (!json_is_object(item))
        return api_wrong_type(field, "an object", item, e);
    const char *type = string_at(item, "type");
    if (!type[0] || strcmp(type, "message") == 0)
        return add_message(t, item, field, e);
    if (strcmp(type, "function_call") == 0)
        return add_call(t, item, field, e);
    if (strcmp(type, "function_call_output") == 0)
        return add_result(t, item, field, e);
    if (strcmp(type, "reasoning") == 0)
        return add_reasoning(t, item, field, e);
    return err_set_field(e,
                         ERR_INVALID,
                         field,
                         "'%s' is an item of type '%.40s', which is not supported by this server",
                         field,
                         type);
}

static enum err read_input(struct talk *t, const json_t *body, struct err_info *e)
{
    json_t *v = json_object_get(body, "input");
    enum err err = OK;
    if (!v || json_is_null(v))
        return err_set_field(e, ERR_INVALID, "input", "'input' is required");
    if (json_is_string(v)) {
        new_message(t->all, "user", json_incref(v));
        return OK;
    }
    if (!json_is_array(v))
        return api_wrong_type("input", "a string or an array of items", v, e);
    if (json_array_size(v) == 0)
        return err_set_field(e, ERR_INVALID, "input", "'input' is empty");
    for (size_t i = 0; !err && i < json_array_size(v); i++)
        err = add_item(t, json_array_get(v, i), i, e);
    if (!err && t->thoughts.len > 0)
        assistant_of(t);
    return err;
}

/* *all: the messages up to the answer that is named, or none. */
static enum err read_previous(struct api_call *c,
                              const json_t *body,
                              json_t **all,
                              struct err_info *e)
{
    struct gguf_str id = {0};
    struct buf messages = {0};
    json_error_t je;
    enum err err = api_get_str(body, "previous_response_id", &id, e);
    if (err)
        return err;
    if (!id.data) {
        *all = json_array();
        return OK;
    }
    if (api_store_get(c->api->store, api_owner(c), id.data, NULL, &messages))
        *all = api_json_load(messages.data, messages.len, JSON_ALLOW_NUL, &je);
    else
        err = err_set_field(e,
                            ERR_NOT_FOUND,
                            "previous_response_id",
                            "there is no response '%.48s': it was never kept, was deleted, or gave "
                            "way to newer ones",
                            id.data);
    buf_deinit(&messages);
    return err || *all ? err : err_set(e, ERR_NOMEM, "no memory for the conversation");
}

/* The whole conversation into b, and what of it is kept into r. */
static enum err adapt_input(struct api_call *c, const json_t *body, json_t *b, struct err_info *e)
{
    struct responses *r = c->state;
    struct talk t = {0};
    struct gguf_str instructions = {0};
    enum err err;
    if (!(err = read_previous(c, body, &t.all, e)) && !(err = read_input(&t, body, e)) &&
        !(err = api_get_str(body, "instructions", &instructions, e))) {
        char *kept = json_dumps(t.all, JSON_COMPACT);
        if (kept) /* without its bracket, so that the answer can follow */
            buf_add(&r->messages, kept, strlen(kept) - 1);
        free(kept);
        if (instructions.data && instructions.len > 0) {
            json_t *m = json_object();
            json_object_set_new(m, "role", json_string("system"));
            json_object_set_new(m, "content", json_stringn(instructions.data, instructions.len));
            json_array_insert_new(t.all, 0, m);
        }
        json_object_set(b, "messages", t.all);
    }
    json_decref(t.all);
    buf_deinit(&t.thoughts);
    return err;
}

/* --- tools, format, flags ------------------------------------------------------------------- */

static enum err adapt_tools(const json_t *body, json_t *b, struct err_info *e)
{
    const json_t *v = json_object_get(body, "tools");
    if (!v || json_is_null(v))
        return OK;
    if (!json_is_array(v))
        return api_wrong_type("tools", "an array", v, e);
    json_t *all = json_array();
    json_object_set_new(b, "tools", all);
    for (size_t i = 0; i < json_array_size(v); i++) {
        static const char *const names[] = {"name", "description", "parameters", "strict"};
        json_t *tool = json_array_get(v, i), *function = json_object();
        char field[32];
        snprintf(field, sizeof field, "tools[%zu]", i);
        json_array_append_new(all,
                              json_pack("{s:s, s:o}", "type", "function", "function", function));
        if (strcmp(string_at(tool, "type"), "function") != 0)
            return err_set_field(e,
                                 ERR_INVALID,
                                 field,
                                 "'%s' must be a tool of type function, not '%.40s'",
                                 field,
                                 string_at(tool, "type"));
        if (!string_at(tool, "name")[0])
            return missing(field, "name", e);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            json_t *value = json_object_get(tool, names[k]);
            if (value && !json_is_null(value))
                json_object_set(function, names[k], value);
        }
    }
    return OK;
}

/* A word as in chat; a function is named without a level between. */
static enum err adapt_tool_choice(const json_t *body, json_t *b, struct err_info *e)
{
    const json_t *v = json_object_get(body, "tool_choice");
    if (!json_is_object(v))
        return OK;
    if (strcmp(string_at(v, "type"), "function") != 0 || !string_at(v, "name")[0])
        return err_set_field(e,
                             ERR_INVALID,
                             "tool_choice",
                             "'tool_choice' must be none, auto, required, or a function by its "
                             "name");
    json_object_set_new(
        b,
        "tool_choice",
        json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", string_at(v, "name")));
    return OK;
}

/* text: {"format": {"type": "text" | "json_object" | "json_schema", ...}}. */
static enum err adapt_format(const json_t *body, json_t *b, struct err_info *e)
{
    const json_t *text = json_object_get(body, "text");
    json_t *format = json_object_get(text, "format");
    if (!text || json_is_null(text) || (json_is_object(text) && (!format || json_is_null(format))))
        return OK;
    if (!json_is_object(text))
        return api_wrong_type("text", "an object", text, e);
    if (!json_is_object(format))
        return api_wrong_type("text.format", "an object", format, e);
    json_t *out = json_object();
    json_object_set(out, "type", json_object_get(format, "type"));
    if (strcmp(string_at(format, "type"), "json_schema") == 0) {
        const json_t *given = json_object_get(format, "schema");
        if (!given || json_is_null(given)) {
            json_decref(out);
            return err_set_field(
                e, ERR_INVALID, "text.format", "'text.format' has no 'schema' for its json_schema");
        }
        json_t *schema = json_copy(format);
        json_object_del(schema, "type");
        json_object_set_new(out, "json_schema", schema);
    }
    json_object_set_new(b, "response_format", out);
    return OK;
}

/* reasoning.effort: a variable of the template, where it has one; "none" is no thinking at all. */
static enum err adapt_effort(json_t *effort, json_t *b, struct err_info *e)
{
    if (!effort || json_is_null(effort))
        return OK;
    if (!json_is_string(effort))
        return api_wrong_type("reasoning.effort", "a string", effort, e);
    json_t *kwargs = api_own_object(b, "chat_template_kwargs");
    if (!kwargs)
        return OK; /* refused where it is read */
    if (!json_object_get(kwargs, "reasoning_effort"))
        json_object_set(kwargs, "reasoning_effort", effort);
    if (strcmp(json_string_value(effort), "none") == 0)
        api_say_thinking(kwargs, kwargs, false);
    return OK;
}

static enum err adapt_rest(const json_t *body, json_t *b, struct err_info *e)
{
    json_t *max = (json_t *)api_get(body, "max_output_tokens");
    json_t *reasoning = json_object_get(body, "reasoning");
    struct gguf_str truncation = {"disabled", 8}, user;
    enum err err;
    if ((err = api_get_str(body, "truncation", &truncation, e)) ||
        (err = api_get_str(body, "user", &user, e)))
        return err;
    if (strcmp(truncation.data, "disabled") != 0 && strcmp(truncation.data, "auto") != 0)
        return err_set_field(
            e, ERR_INVALID, "truncation", "'truncation' must be 'disabled' or 'auto'");
    if (reasoning && !json_is_null(reasoning) && !json_is_object(reasoning))
        return api_wrong_type("reasoning", "an object", reasoning, e);
    if (max) { /* before the names that other routes have for it */
        json_object_del(b, "max_completion_tokens");
        json_object_set(b, "max_tokens", max);
    }
    json_object_del(b, "text");
    return adapt_effort(json_object_get(reasoning, "effort"), b, e);
}

/* --- what the answer repeats ---------------------------------------------------------------- */

static void put_field(struct buf *out, const char *name, const json_t *v, const char *otherwise)
{
    char *text = v && !json_is_null(v)
                     ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))
                     : NULL;
    buf_printf(out, ",\"%s\":", name);
    buf_str(out, text ? text : otherwise);
    free(text);
}

/* The limit that holds, by whichever of its names. */
static const json_t *limit_of(const json_t *body)
{
    static const char *const names[] = {
        "max_output_tokens", "max_completion_tokens", "max_tokens", "n_predict"};
    const json_t *v = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !v; i++)
        v = api_get(body, names[i]);
    return v && json_number_value(v) > 0 ? v : NULL; /* -1: there is none */
}

static void write_echo(struct responses *r, const json_t *body)
{
    static const struct {
        const char *name, *otherwise;
    } fields[] = {
        {"instructions", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"previous_response_id", "null"},
        {"reasoning", "{\"effort\":null,\"summary\":null}"},
        {"store", "true"},
        {"temperature", "1.0"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"},
        {"top_logprobs", "0"},
        {"top_p", "1.0"},
        {"truncation", "\"disabled\""},
        {"user", "null"},
    };
    put_field(&r->echo, "max_output_tokens", limit_of(body), "null");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        put_field(
            &r->echo, fields[i].name, json_object_get(body, fields[i].name), fields[i].otherwise);
    buf_str(&r->echo, ",\"background\":false,\"max_tool_calls\":null,\"service_tier\":\"default\"");
}

static enum err check_metadata(const json_t *v, struct err_info *e)
{
    const char *key;
    json_t *x;
    if (v && !json_is_null(v) && !json_is_object(v))
        return api_wrong_type("metadata", "an object of strings", v, e);
    json_object_foreach((json_t *)v, key, x)
    {
        char field[64];
        snprintf(field, sizeof field, "metadata.%.40s", key);
        if (!json_is_string(x))
            return api_wrong_type(field, "a string", x, e);
    }
    return OK;
}

/* include: only the log-probabilities are something that we could leave out. */
static enum err read_flags(struct api_call *c, const json_t *body, struct err_info *e)
{
    struct responses *r = c->state;
    const json_t *include = json_object_get(body, "include");
    int64_t n_top = 0;
    enum err err;
    r->store = true;
    if ((err = api_get_bool(body, "store", &r->store, e)) ||
        (err = api_get_int(body, "top_logprobs", 0, REQUEST_MAX_TOP_LOGPROBS, &n_top, e)) ||
        (err = check_metadata(json_object_get(body, "metadata"), e)))
        return err;
    if (include && !json_is_null(include) && !json_is_array(include))
        return api_wrong_type("include", "an array of strings", include, e);
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *name = json_string_value(json_array_get(include, i));
        if (!name)
            return api_wrong_type("include", "an array of strings", json_array_get(include, i), e);
        c->logprobs |= strcmp(name, "message.output_text.logprobs") == 0;
    }
    c->logprobs |= n_top > 0;
    c->n_top = (uint32_t)n_top;
    return OK;
}

static void responses_free(void *state)
{
    struct responses *r = state;
    struct buf *all[] = {&r->echo,
                         &r->messages,
                         &r->name,
                         &r->text,
                         &r->logprobs,
                         &r->noted,
                         &r->items,
                         &r->said,
                         &r->thought,
                         &r->called};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buf_deinit(all[i]);
    free(r);
}

enum err responses_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
{
    enum err err;
    struct responses *r = c->state = mem_zalloc(1, sizeof *r);
    r->logprobs.may_fail = r->noted.may_fail = r->items.may_fail = true;
    c->free_state = responses_free;
    json_t *b = *out = json_copy((json_t *)body);
    if (!b)
        return err_set(e, ERR_NOMEM, "no memory to read the body");
    if ((err = api_refuse_fields(body, refused, sizeof refused / sizeof *refused, e)) ||
        (err = read_flags(c, body, e)) || (err = adapt_input(c, body, b, e)) ||
        (err = adapt_tools(body, b, e)) || (err = adapt_tool_choice(body, b, e)) ||
        (err = adapt_format(body, b, e)) || (err = adapt_rest(body, b, e)))
        return err;
    json_object_del(b, "top_logprobs"); /* read; in chat they need another field */
    write_echo(c->state, body);
    return OK;
}

enum err responses_parse(struct api_call *c,
                         const json_t *body,
                         struct api_job *job,
                         struct err_info *e)
{
    bool logprobs = c->logprobs;
    uint32_t n_top = c->n_top;
    enum err err = api_chat.parse(c, body, job, e);
    c->logprobs = logprobs;
    c->n_top = n_top;
    return err;
}
