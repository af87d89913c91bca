/* POST /v1/messages: its tools as functions of the chat route. Those that Anthropic would run
 * itself are left out: the model is not told of what it cannot use. */
#include "api/messages.h"

#include <stdio.h>
#include <string.h>

/* The beginnings of their types; a date follows. */
static bool is_run_by_provider(const char *type)
{
    static const char *const types[] = {
        "web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "mcp_toolset"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(type, types[i], strlen(types[i])) == 0)
            return true;
    return false;
}

/* A custom tool. */
static enum err add_tool(const json_t *v, const char *field, json_t *all, struct err_info *e)
{
    json_t *schema = json_object_get(v, "input_schema");
    json_t *description = json_object_get(v, "description"), *strict = json_object_get(v, "strict");
    const json_t *name;
    enum err err;
    if ((err = messages_string(v, "name", field, &name, e)))
        return err;
    if (!json_is_object(schema))
        return err_invalid(e, field, "'%s' has no 'input_schema', which must be an object", field);
    json_t *function = json_object(), *tool = json_object();
    json_object_set(function, "name", (json_t *)name);
    if (description)
        json_object_set(function, "description", description);
    json_object_set(function, "parameters", schema);
    if (strict)
        json_object_set(function, "strict", strict);
    json_object_set_new(tool, "type", json_string("function"));
    json_object_set_new(tool, "function", function);
    json_array_append_new(all, tool);
    return OK;
}

static enum err read_tool(
    struct messages *m, const json_t *v, size_t i, json_t *all, struct err_info *e)
{
    const json_t *given = json_object_get(v, "type");
    const char *type = api_text_at(v, "type");
    char field[48];
    snprintf(field, sizeof field, "tools[%zu].type", i);
    if (given && !json_is_null(given) && !json_is_string(given))
        return api_wrong_type(field, "a string", given, e);
    snprintf(field, sizeof field, "tools[%zu]", i);
    if (!json_is_object(v))
        return api_wrong_type(field, "an object", v, e);
    if (is_run_by_provider(type))
        return OK;
    if (type[0] && strcmp(type, "custom") != 0)
        return err_invalid(e,
                           field,
                           "'%s' is a tool of type '%.40s', which this server does not have",
                           field,
                           type);
    json_array_append_new(m->places, json_string(field));
    return add_tool(v, field, all, e);
}

static enum err adapt_list(struct messages *m, const json_t *body, json_t *b, struct err_info *e)
{
    json_t *v;
    enum err err = api_get_array(body, "tools", "an array", &v, e);
    if (err || !v)
        return err;
    json_t *all = json_array();
    json_object_set_new(b, "tools", all);
    m->places = json_array();
    for (size_t i = 0; !err && i < json_array_size(v); i++)
        err = read_tool(m, json_array_get(v, i), i, all, e);
    return err;
}

/* {"type": "auto" | "any" | "none"} or {"type": "tool", "name"}; OpenAI says "required" for any. */
static enum err adapt_choice(const json_t *body, json_t *b, struct err_info *e)
{
    json_t *v;
    const json_t *name;
    bool one_call = false;
    enum err err = api_get_object(body, "tool_choice", "an object", &v, e);
    if (err || !v || (err = api_get_bool(v, "disable_parallel_tool_use", &one_call, e)))
        return err;
    if (one_call)
        json_object_set_new(b, "parallel_tool_calls", json_false());
    name = json_object_get(v, "name");
    if (name && !json_is_string(name))
        return api_wrong_type("tool_choice.name", "a string", name, e);
    const char *type = api_text_at(v, "type");
    if (strcmp(type, "auto") == 0 || strcmp(type, "none") == 0) {
        json_object_set_new(b, "tool_choice", json_string(type));
    } else if (strcmp(type, "any") == 0) {
        json_object_set_new(b, "tool_choice", json_string("required"));
    } else if (strcmp(type, "tool") == 0) {
        if ((err = messages_string(v, "name", "tool_choice", &name, e)))
            return err;
        json_object_set_new(
            b,
            "tool_choice",
            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", (json_t *)name));
    } else {
        return err_invalid(
            e, "tool_choice", "'tool_choice' must have a 'type' of auto, any, tool or none");
    }
    return OK;
}

enum err messages_adapt_tools(struct messages *m, const json_t *body, json_t *b, struct err_info *e)
{
    enum err err = adapt_list(m, body, b, e);
    return err ? err : adapt_choice(body, b, e);
}
