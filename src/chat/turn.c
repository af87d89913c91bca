/* Templates differ in what they expect of conversations with tools: arguments as objects or as
 * text, names on results; and many know nothing of tools. For those the calls and results become
 * texts in the manner of Hermes, which most models have seen, and the tools are listed before the
 * conversation. */
#include "chat/turn.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define CALL_OPEN "<tool_call>\n"
#define CALL_CLOSE "\n</tool_call>"
#define RESULT_OPEN "<tool_response>\n"
#define RESULT_CLOSE "\n</tool_response>"

/* JSON as templates print it. */
static void put_json(struct buf *out, const json_t *v)
{
    char *s = json_dumps(v, JSON_ENCODE_ANY);
    buf_str(out, s ? s : "null");
    free(s);
}

static json_t *string_of(const struct buf *b)
{
    return json_stringn(b->len ? b->data : "", b->len);
}

/* Arguments given as text, read; NULL where they are no JSON. No arguments at all are none. */
static json_t *read_arguments(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (strspn(s, " \t\r\n") == n)
        return json_object();
    return json_loadb(s, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* The form that the template wants. Text that is no JSON stays text. */
static json_t *arguments_for(const struct chat_traits *traits, const json_t *v)
{
    struct buf text = {0};
    json_t *made = NULL;
    if (traits->text_arguments && !json_is_string(v)) {
        put_json(&text, v);
        made = string_of(&text);
        buf_deinit(&text);
    } else if (!traits->text_arguments && json_is_string(v)) {
        made = read_arguments(v);
    }
    return made ? made : json_incref((json_t *)v);
}

static json_t *calls_for(const struct chat_traits *traits, const json_t *calls)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_copy(json_array_get(calls, i));
        json_t *function = json_copy(json_object_get(call, "function"));
        const json_t *arguments = json_object_get(function, "arguments");
        if (arguments)
            json_object_set_new(function, "arguments", arguments_for(traits, arguments));
        if (function)
            json_object_set_new(call, "function", function);
        json_array_append_new(all, call);
    }
    return all;
}

/* The name of the tool that a result answers: of the call with its id, the latest. */
static const json_t *name_of(const json_t *messages, size_t before, const json_t *id)
{
    for (size_t i = before; id && i-- > 0;) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *call = json_array_get(calls, k);
            if (json_equal(json_object_get(call, "id"), id))
                return json_object_get(json_object_get(call, "function"), "name");
        }
    }
    return NULL;
}

/* ---- templates that know calls ---- */

static json_t *known_message(const struct chat_traits *traits, const json_t *messages, size_t i)
{
    const json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
    json_t *copy = json_copy((json_t *)m);
    if (json_array_size(calls) > 0)
        json_object_set_new(copy, "tool_calls", calls_for(traits, calls));
    else
        json_object_del(copy, "tool_calls"); /* templates ask whether it is there */
    json_t *reasoning = json_object_get(m, "reasoning_content");
    if (traits->thinking && reasoning && json_array_size(calls) > 0 &&
        json_string_length(json_object_get(m, "content")) == 0)
        json_object_set(copy, "thinking", reasoning);
    const char *role = json_string_value(json_object_get(m, "role"));
    if (role && strcmp(role, "tool") == 0 && !json_is_string(json_object_get(m, "name"))) {
        const json_t *name = name_of(messages, i, json_object_get(m, "tool_call_id"));
        if (name)
            json_object_set(copy, "name", (json_t *)name);
    }
    return copy;
}

/* ---- templates that do not ---- */

static void put_call(struct buf *out, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    json_t *read = json_is_string(arguments) ? read_arguments(arguments) : NULL;
    buf_str(out, out->len > 0 ? "\n" CALL_OPEN "{\"name\": " : CALL_OPEN "{\"name\": ");
    put_json(out, json_object_get(function, "name"));
    buf_str(out, ", \"arguments\": ");
    put_json(out, read ? read : arguments);
    buf_str(out, "}" CALL_CLOSE);
    json_decref(read);
}

static void put_content(struct buf *out, const json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    if (json_is_string(content))
        buf_add(out, json_string_value(content), json_string_length(content));
}

/* Calls as text behind the content. */
static json_t *plain_calls(const json_t *m)
{
    struct buf text = {0};
    json_t *copy = json_copy((json_t *)m);
    const json_t *calls = json_object_get(m, "tool_calls");
    put_content(&text, m);
    for (size_t i = 0; i < json_array_size(calls); i++)
        put_call(&text, json_array_get(calls, i));
    json_object_del(copy, "tool_calls");
    json_object_set_new(copy, "content", string_of(&text));
    buf_deinit(&text);
    return copy;
}

/* A result as a turn of the user; several in a row are one turn, for roles must alternate. */
static void add_plain_result(json_t *all, const json_t *m, bool again)
{
    struct buf text = {0};
    json_t *last = again ? json_array_get(all, json_array_size(all) - 1) : NULL;
    if (last) {
        put_content(&text, last);
        buf_char(&text, '\n');
    }
    buf_str(&text, RESULT_OPEN);
    put_content(&text, m);
    buf_str(&text, RESULT_CLOSE);
    if (last)
        json_object_set_new(last, "content", string_of(&text));
    else
        json_array_append_new(all,
                              json_pack("{s:s, s:o}", "role", "user", "content", string_of(&text)));
    buf_deinit(&text);
}

/* What a model is told that was given no words for tools by its template. */
static void put_tools(struct buf *out, const struct chat_tools *tools)
{
    buf_str(out, "You have these tools:\n");
    for (size_t i = 0; i < json_array_size(tools->list); i++) {
        put_json(out, json_array_get(tools->list, i));
        buf_char(out, '\n');
    }
    buf_str(out,
            "\nTo use a tool, answer with its name and arguments as JSON between these marks:\n"
            "<tool_call>\n{\"name\": <name of the tool>, \"arguments\": <object with its "
            "arguments>}\n</tool_call>");
    buf_str(out, tools->parallel ? "\nTo use several, write several such blocks." : "");
}

/* The list goes behind what the system says, or makes a turn of the system, or goes before what the
 * user says first. */
static void insert_tools(const struct chat_traits *traits,
                         const struct chat_tools *tools,
                         json_t *messages)
{
    struct buf text = {0};
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    bool is_system = role && strcmp(role, "system") == 0;
    if (is_system) {
        put_content(&text, first);
        buf_str(&text, text.len > 0 ? "\n\n" : "");
    }
    put_tools(&text, tools);
    if (!is_system && !traits->system) {
        buf_str(&text, "\n\n");
        put_content(&text, first);
    }
    if (is_system || !traits->system) {
        json_t *copy = json_copy(first);
        json_object_set_new(copy, "content", string_of(&text));
        json_array_set_new(messages, 0, copy);
    } else {
        json_array_insert_new(
            messages, 0, json_pack("{s:s, s:o}", "role", "system", "content", string_of(&text)));
    }
    buf_deinit(&text);
}

static json_t *messages_for(const struct chat_traits *traits, const json_t *messages)
{
    json_t *all = json_array();
    bool was_result = false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));
        bool is_result = !traits->calls && role && strcmp(role, "tool") == 0;
        if (is_result)
            add_plain_result(all, m, was_result);
        else
            json_array_append_new(
                all, traits->calls ? known_message(traits, messages, i) : plain_calls(m));
        was_result = is_result;
    }
    return all;
}

enum err chat_turn_prepare(const struct chat_template *tmpl,
                           const struct chat_turn *turn,
                           struct json_t **messages,
                           struct json_t **vars,
                           struct err_info *e)
{
    const struct chat_traits *traits = chat_template_traits(tmpl);
    bool wanted = chat_tools_wanted(turn->tools);
    *messages = messages_for(traits, turn->messages);
    *vars = turn->vars ? json_copy((json_t *)turn->vars) : json_object();
    if (wanted && chat_template_calls_unknown(tmpl))
        return err_set_field(e,
                             ERR_INVALID,
                             "tools",
                             "how this model writes calls of tools is not known to this server; "
                             "its operator can choose with --tool-format");
    if (!*messages || !*vars)
        return err_set(e, ERR_NOMEM, "no memory for a conversation");
    if (wanted && traits->tools)
        json_object_set(*vars, "tools", turn->tools->list);
    else if (wanted)
        insert_tools(traits, turn->tools, *messages);
    return OK;
}
