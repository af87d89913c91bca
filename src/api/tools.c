#include "api/tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* *out: o's member, NULL if it is absent or null. */
static enum err get_typed(const json_t *o,
                          const char *of,
                          const char *name,
                          json_type type,
                          const char *wanted,
                          const json_t **out,
                          struct err_info *e)
{
    char field[96];
    *out = api_get(o, name);
    if (!*out || json_typeof(*out) == type)
        return OK;
    snprintf(field, sizeof field, "%.64s.%s", of, name);
    return api_wrong_type(field, wanted, *out, e);
}

static enum err required(const char *of, const char *name, struct err_info *e)
{
    char field[96];
    snprintf(field, sizeof field, "%.64s.%s", of, name);
    return err_invalid(e, field, "'%s' is required", field);
}

/* {"type": "function"}: the one kind there is. */
static enum err check_type(const json_t *o, const char *of, bool may_lack, struct err_info *e)
{
    const json_t *type;
    char field[96];
    enum err err = get_typed(o, of, "type", JSON_STRING, "a string", &type, e);
    if (err)
        return err;
    if (!type)
        return may_lack ? OK : required(of, "type", e);
    if (strcmp(json_string_value(type), "function") == 0)
        return OK;
    snprintf(field, sizeof field, "%.64s.type", of);
    return err_invalid(
        e, field, "'%s' is '%.40s'; only 'function' is supported", field, json_string_value(type));
}

static enum err add_tool(const json_t *tool, size_t i, struct chat_tools *out, struct err_info *e)
{
    const json_t *function, *name, *description, *parameters;
    char of[48];
    bool strict = false;
    enum err err;
    snprintf(of, sizeof of, "tools[%zu]", i);
    if (!json_is_object(tool))
        return api_wrong_type(of, "an object", tool, e);
    if ((err = check_type(tool, of, false, e)) ||
        (err = get_typed(tool, of, "function", JSON_OBJECT, "an object", &function, e)))
        return err;
    if (!function)
        return required(of, "function", e);
    snprintf(of, sizeof of, "tools[%zu].function", i);
    if ((err = get_typed(function, of, "name", JSON_STRING, "a string", &name, e)) ||
        (err = get_typed(function, of, "description", JSON_STRING, "a string", &description, e)) ||
        (err = get_typed(function,
                         of,
                         "parameters",
                         JSON_OBJECT,
                         "an object, a JSON schema",
                         &parameters,
                         e)) ||
        (err = api_get_bool(function, "strict", &strict, e)))
        return err;
    if (!name)
        return required(of, "name", e);
    return chat_tools_add(
        out, of, json_string_value(name), json_string_value(description), parameters, strict, e);
}

/* A name in {"type": "function", "function": {"name": ...}}, of a tool that there is. */
static enum err name_in(const json_t *v,
                        const char *of,
                        const struct chat_tools *tools,
                        const json_t **name,
                        struct err_info *e)
{
    const json_t *function;
    char field[80];
    enum err err;
    if (!json_is_object(v))
        return api_wrong_type(of, "an object", v, e);
    if ((err = check_type(v, of, false, e)) ||
        (err = get_typed(v, of, "function", JSON_OBJECT, "an object", &function, e)))
        return err;
    if (!function)
        return required(of, "function", e);
    snprintf(field, sizeof field, "%.64s.function", of);
    if ((err = get_typed(function, field, "name", JSON_STRING, "a string", name, e)))
        return err;
    if (!*name)
        return required(field, "name", e);
    if (chat_tools_has(tools, json_string_value(*name)))
        return OK;
    return err_invalid(e,
                       "tool_choice",
                       "'tool_choice' names '%.64s', which is not among the tools",
                       json_string_value(*name));
}

enum err api_tools_too_many(const char *field, struct err_info *e)
{
    return err_invalid(e, field, "'%s' names more than %d tools", field, CHAT_MAX_TOOLS);
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": [named, ...]}}
 */
static enum err parse_allowed(const json_t *v, struct chat_tools *out, struct err_info *e)
{
    static const char of[] = "tool_choice.allowed_tools";
    const json_t *allowed, *mode, *tools;
    enum err err;
    if ((err = get_typed(v, "tool_choice", "allowed_tools", JSON_OBJECT, "an object", &allowed, e)))
        return err;
    if (!allowed)
        return required("tool_choice", "allowed_tools", e);
    if ((err = get_typed(allowed, of, "mode", JSON_STRING, "a string", &mode, e)) ||
        (err = get_typed(allowed, of, "tools", JSON_ARRAY, "an array", &tools, e)))
        return err;
    const char *word = mode ? json_string_value(mode) : "";
    if (strcmp(word, "auto") != 0 && strcmp(word, "required") != 0)
        return err_invalid(e, of, "'%s' must have a 'mode' of auto or required", of);
    if (json_array_size(tools) == 0)
        return err_invalid(e, of, "'%s' needs 'tools', at least one", of);
    if (json_array_size(tools) > CHAT_MAX_TOOLS)
        return api_tools_too_many(of, e);
    json_t *names = json_array();
    for (size_t i = 0; !err && i < json_array_size(tools); i++) {
        const json_t *name = NULL;
        char field[64];
        snprintf(field, sizeof field, "%s.tools[%zu]", of, i);
        if (!(err = name_in(json_array_get(tools, i), field, out, &name, e)))
            json_array_append(names, (json_t *)name);
    }
    out->choice = strcmp(word, "auto") == 0 ? CHAT_TOOLS_AUTO : CHAT_TOOLS_REQUIRED;
    if (!err)
        err = chat_tools_allow(out, names, e);
    json_decref(names);
    return err;
}

static enum err parse_named(const json_t *v, struct chat_tools *out, struct err_info *e)
{
    const json_t *name = NULL;
    enum err err = name_in(v, "tool_choice", out, &name, e);
    if (err)
        return err;
    snprintf(out->name, sizeof out->name, "%s", json_string_value(name));
    out->choice = CHAT_TOOLS_NAMED;
    return OK;
}

static enum err parse_choice(const json_t *body, struct chat_tools *out, struct err_info *e)
{
    static const char field[] = "tool_choice";
    const json_t *v = api_get(body, field);
    if (!v)
        return OK;
    const char *s = json_string_value(v);
    if (!s && !json_is_object(v))
        return api_wrong_type(field, "a string or an object", v, e);
    if (s && strcmp(s, "auto") == 0)
        return OK;
    if (s && strcmp(s, "none") == 0) {
        out->choice = CHAT_TOOLS_NONE;
        return OK;
    }
    if (s && strcmp(s, "required") != 0)
        return err_invalid(e,
                           field,
                           "'tool_choice' must be 'none', 'auto', 'required' or the name of a "
                           "tool, not '%.40s'",
                           s);
    if (!out->list)
        return err_invalid(e, field, "'tool_choice' needs 'tools'");
    out->choice = CHAT_TOOLS_REQUIRED;
    return s                                                      ? OK
           : strcmp(api_text_at(v, "type"), "allowed_tools") == 0 ? parse_allowed(v, out, e)
                                                                  : parse_named(v, out, e);
}

/* What tools were before they were called so. */
static enum err refuse_functions(const json_t *body, struct err_info *e)
{
    static const char *const old[][2] = {{"functions", "tools"}, {"function_call", "tool_choice"}};
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = api_get(body, old[i][0]);
        const char *s = json_string_value(v);
        bool neutral = !v || (json_is_array(v) && json_array_size(v) == 0) ||
                       (s && (s[0] == '\0' || strcmp(s, "none") == 0 || strcmp(s, "auto") == 0));
        if (!neutral)
            return err_invalid(e,
                               old[i][0],
                               "'%s' is not supported by this server; use '%s'",
                               old[i][0],
                               old[i][1]);
    }
    return OK;
}

enum err api_tools_parse(const json_t *body, struct chat_tools *out, struct err_info *e)
{
    json_t *tools;
    enum err err = refuse_functions(body, e);
    if (err || (err = api_get_array(body, "tools", "an array", &tools, e)))
        return err;
    out->parallel = true;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if ((err = add_tool(json_array_get(tools, i), i, out, e)))
            return err;
    if ((err = api_get_bool(body, "parallel_tool_calls", &out->parallel, e)))
        return err;
    return parse_choice(body, out, e);
}

void api_tools_name_place(const json_t *places, struct err_info *e)
{
    char from[48];
    for (size_t i = 0; e && i < json_array_size(places); i++) {
        snprintf(from, sizeof from, "tools[%zu].function", i);
        if (strncmp(e->field, from, strlen(from)) == 0) {
            api_rename_field(e, from, json_string_value(json_array_get(places, i)));
            return;
        }
    }
}

/* The place of a schema as a grammar has it: "tools[2].tools[0]" is "/tools/2/tools/0/parameters".
 */
static void put_pointer(const char *place, const char *parameters, struct buf *out)
{
    buf_char(out, '/');
    for (; *place; place++) {
        if (*place != ']')
            buf_char(out, strchr("[.", *place) ? '/' : *place);
    }
    buf_printf(out, "/%s", parameters);
}

/* Such an error begins: 'FIELD': at "/tools/2/function/parameters... */
void api_tools_name_schema(const struct chat_tools *tools,
                           const json_t *places,
                           const char *parameters,
                           struct err_info *e)
{
    static const char before[] = "': at \"/tools/", behind[] = "/function/parameters";
    char *at = e ? strstr(e->text, before) : NULL, *end, rest[sizeof e->text];
    struct buf whole = {0};
    if (!at)
        return;
    const size_t i = strtoul(at + strlen(before), &end, 10);
    if (strncmp(end, behind, strlen(behind)) != 0 ||
        i >= json_array_size(tools->allowed ? tools->allowed : tools->list))
        return;
    snprintf(rest, sizeof rest, "%s", end + strlen(behind));
    const char *place = json_string_value(json_array_get(places, tools->index[i]));
    if (place)
        put_pointer(place, parameters, &whole);
    else
        buf_printf(&whole, "/tools/%d%s", tools->index[i], behind);
    at = strchr(at, '/');
    snprintf(at, sizeof e->text - (size_t)(at - e->text), "%s%s", buf_cstr(&whole), rest);
    buf_deinit(&whole);
}

/* ---- messages ---- */

static enum err check_call(const json_t *call, const char *of, struct err_info *e)
{
    const json_t *function, *name, *id;
    const json_t *arguments;
    char field[80];
    enum err err;
    if (!json_is_object(call))
        return api_wrong_type(of, "an object", call, e);
    if ((err = check_type(call, of, true, e)) ||
        (err = get_typed(call, of, "id", JSON_STRING, "a string", &id, e)) ||
        (err = get_typed(call, of, "function", JSON_OBJECT, "an object", &function, e)))
        return err;
    if (!function)
        return required(of, "function", e);
    snprintf(field, sizeof field, "%.60s.function", of);
    if ((err = get_typed(function, field, "name", JSON_STRING, "a string", &name, e)))
        return err;
    if (!name)
        return required(field, "name", e);
    arguments = json_object_get(function, "arguments");
    if (!arguments)
        return required(field, "arguments", e);
    if (json_is_string(arguments) || json_is_object(arguments))
        return OK;
    snprintf(field, sizeof field, "%.56s.function.arguments", of);
    return api_wrong_type(field, "JSON in a string", arguments, e);
}

static enum err check_calls(json_t *message, const char *field, struct err_info *e)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    char of[64];
    snprintf(of, sizeof of, "%.40s.tool_calls", field);
    if (!calls)
        return OK;
    if (!json_is_array(calls))
        return api_wrong_type(of, "an array", calls, e);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        snprintf(of, sizeof of, "%.30s.tool_calls[%zu]", field, i);
        enum err err = check_call(json_array_get(calls, i), of, e);
        if (err)
            return err;
    }
    return OK;
}

enum err api_tools_check_message(json_t *message, const char *field, struct err_info *e)
{
    static const char *const texts[] = {"tool_call_id", "reasoning_content", "reasoning", "name"};
    static const char *const nullable[] = {
        "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "name"};
    enum err err;
    for (size_t i = 0; i < sizeof nullable / sizeof nullable[0]; i++)
        if (json_is_null(json_object_get(message, nullable[i])))
            json_object_del(message, nullable[i]);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const json_t *v;
        if ((err = get_typed(message, field, texts[i], JSON_STRING, "a string", &v, e)))
            return err;
    }
    json_t *reasoning = json_object_get(message, "reasoning");
    if (reasoning && !json_object_get(message, "reasoning_content"))
        json_object_set(message, "reasoning_content", reasoning);
    return check_calls(message, field, e);
}
