/* POST /v1/messages: from Anthropic's fields to those of /v1/chat/completions.
 *
 *      system, messages of blocks    -> messages; a tool_result becomes a message of its own
 *      tools, tool_choice            -> the same as functions (messages_tools.c)
 *      stop_sequences, thinking      -> stop, a variable of the template
 *
 * The other fields keep their names, so Weir's own (seed, cache_salt, ...) work here too. */
#include "api/messages.h"
#include "api/tools.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct api_refused refused[] = {
    {"mcp_servers", NEUTRAL_EMPTY, 0},
    {"container", NEUTRAL_EMPTY, 0},
    {"compaction", NEUTRAL_EMPTY, 0},
    {"thread", NEUTRAL_NOTHING, 0}, /* the rest of the conversation would be missing (errors.c) */
    {"n", NEUTRAL_NUMBER, 1},
};

/* Where in the body something is, for errors: "messages[3].content[1]". */
struct place {
    char text[96];
};

/* base[i], and what is in it. */
static struct place at(const char *base, size_t i, const char *member)
{
    struct place p;
    snprintf(p.text, sizeof p.text, "%.60s[%zu]%.10s", base, i, member);
    return p;
}

static enum err unsupported_block(const char *type, const char *field, struct err_info *e)
{
    bool image = strcmp(type, "image") == 0;
    return err_invalid(e,
                       field,
                       "'%s' is a block of type '%.40s'; %s",
                       field,
                       type,
                       image ? "image input is not supported by this model"
                             : "it is not supported by this server");
}

enum err messages_string(
    const json_t *o, const char *name, const char *field, const json_t **out, struct err_info *e)
{
    *out = json_object_get(o, name);
    if (json_is_string(*out))
        return OK;
    return err_invalid(e, field, "'%s' has no '%s', which must be a string", field, name);
}

static void add_string(struct buf *b, const json_t *s)
{
    buf_add(b, json_string_value(s), json_string_length(s));
}

/* A text, or blocks of text, run together. */
static enum err join_text(const json_t *v, const char *field, struct buf *out, struct err_info *e)
{
    if (json_is_string(v)) {
        add_string(out, v);
        return OK;
    }
    if (!json_is_array(v))
        return api_wrong_type(field, "a string or an array of blocks", v, e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *block = json_array_get(v, i), *text;
        struct place p = at(field, i, "");
        enum err err;
        if (!json_is_object(block))
            return api_wrong_type(p.text, "a block", block, e);
        if (strcmp(api_text_at(block, "type"), "text") != 0)
            return unsupported_block(api_text_at(block, "type"), p.text, e);
        if ((err = messages_string(block, "text", p.text, &text, e)))
            return err;
        add_string(out, text);
    }
    return OK;
}

/* --- messages ------------------------------------------------------------------------------- */

/* One message under way, and the list it goes to. */
struct turn {
    json_t *all;   /* the chat's messages so far */
    json_t *names; /* {id of a tool_use: name of its tool} */
    struct buf text, thoughts;
    json_t *calls; /* array, or NULL */
};

static void flush_user(struct turn *t)
{
    if (buf_any(&t->text))
        api_add_message(t->all, "user", api_json_string(&t->text));
    buf_clear(&t->text);
}

/* The result of a call, as a message of the role "tool". */
static enum err add_result(struct turn *t,
                           const json_t *block,
                           const char *field,
                           struct err_info *e)
{
    const json_t *id, *content = api_get(block, "content");
    struct buf text = {.may_fail = true};
    struct place inside;
    bool is_error = false;
    enum err err;
    snprintf(inside.text, sizeof inside.text, "%.50s.content", field);
    if (!(err = messages_string(block, "tool_use_id", field, &id, e)) &&
        !(err = api_get_bool(block, "is_error", &is_error, e)) && content)
        err = join_text(content, inside.text, &text, e);
    if (!err) {
        flush_user(t);
        json_t *m = api_add_message(t->all, "tool", api_json_string(&text));
        json_t *name = json_object_get(t->names, json_string_value(id));
        json_object_set(m, "tool_call_id", (json_t *)id);
        if (name)
            json_object_set(m, "name", name);
        if (is_error)
            json_object_set_new(m, "is_error", json_true());
    }
    buf_deinit(&text);
    return err;
}

/* A call that the assistant made, as OpenAI has it: its input as the text of JSON. */
static enum err add_call(struct turn *t, const json_t *block, const char *field, struct err_info *e)
{
    const json_t *id, *name, *input = json_object_get(block, "input");
    enum err err;
    if ((err = messages_string(block, "id", field, &id, e)) ||
        (err = messages_string(block, "name", field, &name, e)))
        return err;
    if (!json_is_object(input))
        return err_invalid(e, field, "'%s' has no 'input', which must be an object", field);
    char *arguments = json_dumps(input, JSON_COMPACT);
    if (!arguments)
        return err_set(e, ERR_NOMEM, "no memory for a message");
    if (!t->calls)
        t->calls = json_array();
    json_array_append_new(t->calls,
                          api_call_of(id, json_string_value(name), json_string(arguments)));
    free(arguments);
    json_object_set(t->names, json_string_value(id), (json_t *)name);
    return OK;
}

static enum err user_block(struct turn *t,
                           const json_t *block,
                           const char *field,
                           struct err_info *e)
{
    const json_t *text;
    enum err err;
    if (strcmp(api_text_at(block, "type"), "tool_result") == 0)
        return add_result(t, block, field, e);
    if (strcmp(api_text_at(block, "type"), "text") != 0)
        return unsupported_block(api_text_at(block, "type"), field, e);
    if (!(err = messages_string(block, "text", field, &text, e)))
        add_string(&t->text, text);
    return err;
}

/* Tells of what another server ran: what came of it shows in the text. */
static bool is_of_anothers_tool(const char *type)
{
    static const char end[] = "_tool_result";
    const size_t n = strlen(type), n_end = sizeof end - 1;
    return strcmp(type, "server_tool_use") == 0 || strcmp(type, "mcp_tool_use") == 0 ||
           (n > n_end && strcmp(type + n - n_end, end) == 0);
}

/* Thoughts of another model that only their maker can read say nothing here. */
static enum err assistant_block(struct turn *t,
                                const json_t *block,
                                const char *field,
                                struct err_info *e)
{
    const char *type = api_text_at(block, "type");
    bool is_text = strcmp(type, "text") == 0, thinks = strcmp(type, "thinking") == 0;
    const json_t *text;
    enum err err;
    if (strcmp(type, "tool_use") == 0)
        return add_call(t, block, field, e);
    if (strcmp(type, "redacted_thinking") == 0 || is_of_anothers_tool(type))
        return OK;
    if (!is_text && !thinks)
        return unsupported_block(type, field, e);
    if (!(err = messages_string(block, type, field, &text, e)))
        add_string(is_text ? &t->text : &t->thoughts, text);
    return err;
}

static void flush_assistant(struct turn *t)
{
    json_t *m = api_add_message(t->all, "assistant", api_json_string(&t->text));
    if (buf_any(&t->thoughts))
        json_object_set_new(m, "reasoning_content", api_json_string(&t->thoughts));
    if (t->calls)
        json_object_set_new(m, "tool_calls", t->calls);
    t->calls = NULL;
    buf_clear(&t->text);
    buf_clear(&t->thoughts);
}

/* What the system says in the middle of a conversation. */
static enum err read_system(struct turn *t,
                            const json_t *content,
                            const char *field,
                            struct err_info *e)
{
    struct buf text = {.may_fail = true};
    enum err err = content ? join_text(content, field, &text, e)
                           : err_invalid(e, field, "'%s' is required", field);
    if (!err)
        api_add_message(t->all, "system", api_json_string(&text));
    buf_deinit(&text);
    return err;
}

static enum err read_message(struct turn *t, const json_t *v, size_t i, struct err_info *e)
{
    struct place p = at("messages", i, ""), role_at = at("messages", i, ".role"),
                 content_at = at("messages", i, ".content");
    const json_t *content = json_object_get(v, "content");
    const char *role = json_string_value(json_object_get(v, "role"));
    bool user = role && strcmp(role, "user") == 0;
    size_t n_before = json_array_size(t->all);
    enum err err = OK;
    if (!json_is_object(v))
        return api_wrong_type(p.text, "an object", v, e);
    if (role && strcmp(role, "system") == 0)
        return read_system(t, content, content_at.text, e);
    if (!user && !(role && strcmp(role, "assistant") == 0))
        return err_invalid(
            e, role_at.text, "'%s' must be \"user\", \"assistant\" or \"system\"", role_at.text);
    if (json_is_string(content)) {
        add_string(&t->text, content);
    } else if (!json_is_array(content)) {
        return content
                   ? api_wrong_type(content_at.text, "a string or an array of blocks", content, e)
                   : err_invalid(e, content_at.text, "'%s' is required", content_at.text);
    }
    for (size_t k = 0; !err && k < json_array_size(content); k++) {
        const json_t *block = json_array_get(content, k);
        struct place b = at(content_at.text, k, "");
        err = !json_is_object(block) ? api_wrong_type(b.text, "a block", block, e)
              : user                 ? user_block(t, block, b.text, e)
                                     : assistant_block(t, block, b.text, e);
    }
    if (!err && user) {
        flush_user(t);
        if (json_array_size(t->all) == n_before) /* nothing was said, but a turn it is */
            api_add_message(t->all, "user", json_string(""));
    } else if (!err) {
        flush_assistant(t);
    }
    return err;
}

static bool is_of(const json_t *message, const char *role)
{
    return strcmp(json_string_value(json_object_get(message, "role")), role) == 0;
}

/* A last message of the assistant's is the beginning of the answer, to be continued: chat.c knows
 * how. An empty one begins nothing. */
static enum err ask_to_continue(json_t *all, json_t *b, struct err_info *e)
{
    const size_t n = json_array_size(all);
    const json_t *last = json_array_get(all, n - 1), *said = api_get(b, "continue_final_message");
    bool asked = false;
    if ((said && !json_is_true(said)) || !is_of(last, "assistant"))
        return OK;
    if (json_object_get(last, "tool_calls") || json_object_get(last, "reasoning_content"))
        return err_invalid(e,
                           "messages",
                           "a last message of the assistant is continued, so it can have nothing "
                           "but text");
    for (size_t i = 0; i < n; i++)
        asked |=
            !is_of(json_array_get(all, i), "assistant") && !is_of(json_array_get(all, i), "system");
    if (!asked) /* as Anthropic has it */
        return err_invalid(e,
                           "messages",
                           "'messages' has only the beginning of the assistant's answer: what "
                           "the user says must come before it");
    if (json_string_length(json_object_get(last, "content")) == 0)
        json_array_remove(all, n - 1);
    else
        json_object_set_new(b, "continue_final_message", json_true());
    return OK;
}

static enum err adapt_messages(const json_t *body, json_t *b, struct err_info *e)
{
    const json_t *v = api_get(body, "messages"), *system = api_get(body, "system");
    struct turn t = {.all = json_array(),
                     .names = json_object(),
                     .text.may_fail = true,
                     .thoughts.may_fail = true};
    enum err err = OK;
    json_object_set_new(b, "messages", t.all);
    if (!v)
        err = err_invalid(e, "messages", "'messages' is required");
    else if (!json_is_array(v))
        err = api_wrong_type("messages", "an array", v, e);
    else if (json_array_size(v) == 0)
        err = err_invalid(e, "messages", "'messages' is empty");
    if (!err && system && !(err = join_text(system, "system", &t.text, e))) {
        if (buf_any(&t.text))
            api_add_message(t.all, "system", api_json_string(&t.text));
        buf_clear(&t.text);
    }
    for (size_t i = 0; !err && i < json_array_size(v); i++)
        err = read_message(&t, json_array_get(v, i), i, e);
    if (!err)
        err = ask_to_continue(t.all, b, e);
    json_decref(t.names);
    json_decref(t.calls);
    buf_deinit(&t.text);
    buf_deinit(&t.thoughts);
    json_object_del(b, "system");
    return err;
}

/* --- the rest ------------------------------------------------------------------------------- */

static enum err adapt_stops(const json_t *body, json_t *b, struct err_info *e)
{
    json_t *v;
    enum err err = api_get_array(body, "stop_sequences", "an array of strings", &v, e);
    json_object_del(b, "stop_sequences");
    if (err || !v)
        return err;
    if (api_get(body, "stop"))
        return err_invalid(e, "stop", "'stop' and 'stop_sequences' are two names of the same");
    json_object_set(b, "stop", v);
    return OK;
}

/* Whether the model is to think is a variable of its template. */
static enum err adapt_thinking(const json_t *body, json_t *b, struct err_info *e)
{
    json_t *v;
    enum err err = api_get_object(body, "thinking", "an object", &v, e);
    json_object_del(b, "thinking");
    if (err || !v)
        return err;
    const char *type = api_text_at(v, "type");
    bool on = strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0;
    bool off = strcmp(type, "disabled") == 0 || strcmp(type, "between_tools") == 0;
    if (!on && !off)
        return err_invalid(e,
                           "thinking",
                           "'thinking' must have a 'type' of enabled, adaptive, disabled or "
                           "between_tools");
    int64_t budget = -1;
    err = api_get_int(v, "budget_tokens", 1, INT32_MAX, &budget, e);
    if (err) {
        api_rename_field(e, "budget_tokens", "thinking.budget_tokens");
        return err;
    }
    if (on && budget > 0)
        json_object_set_new(b, "thinking_budget_tokens", json_integer(budget));
    json_t *kwargs = api_own_object(b, "chat_template_kwargs");
    if (kwargs)
        api_say_thinking(kwargs, kwargs, on);
    return OK; /* what is no object is refused where it is read */
}

/* How hard to think is a variable of templates that have it; they know three degrees. */
static enum err adapt_effort(const json_t *config, json_t *b, struct err_info *e)
{
    const json_t *effort = api_get(config, "effort");
    const char *name = json_string_value(effort);
    if (!effort)
        return OK;
    if (!name)
        return api_wrong_type("output_config.effort", "a string", effort, e);
    if (strcmp(name, "xhigh") == 0 || strcmp(name, "max") == 0)
        name = "high";
    json_t *kwargs = api_own_object(b, "chat_template_kwargs");
    if (kwargs && !json_object_get(kwargs, "reasoning_effort"))
        json_object_set_new(kwargs, "reasoning_effort", json_string(name));
    return OK;
}

/* output_format, or output_config.format: {"type": "json_schema", "schema"}. */
static enum err adapt_format(const json_t *v, const char *field, json_t *b, struct err_info *e)
{
    if (!v || json_is_null(v))
        return OK;
    if (strcmp(api_text_at(v, "type"), "json_schema") != 0 || !json_object_get(v, "schema"))
        return err_invalid(
            e, field, "'%s' must be {\"type\": \"json_schema\", \"schema\": ...}", field);
    json_object_set_new(b,
                        "response_format",
                        json_pack("{s:s, s:{s:s, s:O}}",
                                  "type",
                                  "json_schema",
                                  "json_schema",
                                  "name",
                                  "output",
                                  "schema",
                                  json_object_get(v, "schema")));
    return OK;
}

static enum err adapt_output(const json_t *body, json_t *b, struct err_info *e)
{
    json_t *config;
    const json_t *format = api_get(body, "output_format");
    enum err err = api_get_object(body, "output_config", "an object", &config, e);
    json_object_del(b, "output_format");
    json_object_del(b, "output_config");
    if (err || (err = adapt_effort(config, b, e)))
        return err;
    return format ? adapt_format(format, "output_format", b, e)
                  : adapt_format(json_object_get(config, "format"), "output_config.format", b, e);
}

/* Edits of the context that leave nothing out: none, or of thinking, of which all is kept. Claude
 * Code sends the latter. */
static bool leaves_nothing_out(const json_t *management)
{
    const json_t *edits = json_object_get(management, "edits");
    if (!management)
        return true;
    if (!json_is_object(management) || json_object_size(management) > (edits ? 1 : 0) ||
        (edits && !json_is_array(edits)))
        return false;
    for (size_t i = 0; i < json_array_size(edits); i++) {
        const json_t *edit = json_array_get(edits, i);
        const char *keep = json_string_value(json_object_get(edit, "keep"));
        if (strcmp(api_text_at(edit, "type"), "clear_thinking_20251015") != 0 || !keep ||
            strcmp(keep, "all") != 0)
            return false;
    }
    return true;
}

static void messages_free(void *state)
{
    struct messages *m = state;
    json_decref(m->places);
    free(m);
}

enum err messages_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
{
    struct messages *m = mem_zalloc(1, sizeof *m);
    enum err err;
    c->state = m;
    c->free_state = messages_free;
    json_t *b = *out = json_copy((json_t *)body);
    if (!b)
        return err_set(e, ERR_NOMEM, "no memory to read the body");
    if (!c->prompt_only && !api_get(body, "max_tokens"))
        return err_invalid(e, "max_tokens", "'max_tokens' is required");
    if (!leaves_nothing_out(api_get(body, "context_management")))
        return err_invalid(
            e,
            "context_management",
            "'context_management' may leave nothing out: no 'edits', or clear_thinking_20251015 "
            "that keeps all");
    if ((err = api_refuse_fields(body, refused, sizeof refused / sizeof *refused, e)) ||
        (err = adapt_messages(body, b, e)) || (err = messages_adapt_tools(m, body, b, e)) ||
        (err = adapt_stops(body, b, e)) || (err = adapt_thinking(body, b, e)) ||
        (err = adapt_output(body, b, e)))
        return err;
    c->tool_places = m->places;
    return OK;
}

enum err messages_parse(struct api_call *c,
                        const json_t *body,
                        struct api_job *job,
                        struct err_info *e)
{
    struct messages *m = c->state;
    job->params.max_tokens_gives = true;
    enum err err = api_chat.parse(c, body, job, e);
    if (err)
        api_tools_name_place(m->places, e);
    if (!err)
        err = api_get_int(body, "max_tokens", 0, INT64_MAX, &m->max_tokens, e);
    return err;
}
