/* POST /v1/responses: its tools as functions of the chat route, and calls of them in the answer.
 *
 *      function                as it is
 *      custom                  a function with one argument, the text `input`
 *      namespace               the tools in it, each by a name that has both: SPACE__NAME
 *      web_search, mcp, ...    left out: the model is not told of what it cannot use
 *
 * What the answer repeats of the tools are those that the model was told of. */
#include "api/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void responses_tool_name(const char *space, const char *name, struct buf *out)
{
    const size_t n = strlen(space);
    if (n > 0 && strcmp(space, "functions") != 0) { /* Codex's name for those in none */
        buf_str(out, space);
        buf_str(out, n > 2 && strcmp(space + n - 2, "__") == 0 ? "" : "__");
    }
    buf_str(out, name);
}

/* --- reading -------------------------------------------------------------------------------- */

/* Tools under way. */
struct reading {
    struct responses *r;
    json_t *functions; /* the chat's */
    json_t *offered;   /* of r, or of a namespace */
};

/* Where something is: "tools[2].tools[0]". */
struct place {
    char text[64];
};

static bool is(const json_t *o, const char *type)
{
    return strcmp(api_text_at(o, "type"), type) == 0;
}

static enum err missing(const char *field, const char *name, struct err_info *e)
{
    return err_set_field(
        e, ERR_INVALID, field, "'%s' has no '%s', which must be a string", field, name);
}

/* A text for the model to write, of whose form it is told. NULL: no memory. */
static json_t *custom_function(const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format");
    struct buf text = {.may_fail = true};
    buf_str(&text, api_text_at(tool, "description"));
    if (api_text_at(format, "definition")[0]) {
        buf_str(&text, text.len ? "\n\n" : "");
        buf_str(&text, "The input conforms to this grammar (");
        buf_str(&text, api_text_at(format, "syntax"));
        buf_str(&text, "):\n");
        buf_str(&text, api_text_at(format, "definition"));
    }
    json_t *function = json_pack("{s:s, s:{s:s, s:{s:{s:s}}, s:[s]}}",
                                 "description",
                                 buf_cstr(&text),
                                 "parameters",
                                 "type",
                                 "object",
                                 "properties",
                                 "input",
                                 "type",
                                 "string",
                                 "required",
                                 "input");
    if (text.failed) {
        json_decref(function);
        function = NULL;
    }
    buf_deinit(&text);
    return function;
}

static json_t *plain_function(const json_t *tool)
{
    static const char *const names[] = {"description", "parameters", "strict"};
    json_t *function = json_object();
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        json_t *value = json_object_get(tool, names[k]);
        if (value && !json_is_null(value))
            json_object_set(function, names[k], value);
    }
    return function;
}

static enum err offer(
    struct reading *t, json_t *tool, const char *space, const char *field, struct err_info *e)
{
    const char *name = api_text_at(tool, "name");
    const bool custom = is(tool, "custom");
    struct buf full = {0};
    if (!name[0])
        return missing(field, "name", e);
    json_t *function = custom ? custom_function(tool) : plain_function(tool);
    if (!function)
        return api_no_memory(e);
    responses_tool_name(space, name, &full);
    json_object_set_new(function, "name", json_string(buf_cstr(&full)));
    json_array_append_new(t->functions,
                          json_pack("{s:s, s:o}", "type", "function", "function", function));
    json_array_append_new(t->r->places, json_string(field));
    json_array_append(t->offered, tool);
    if (custom || strcmp(buf_cstr(&full), name) != 0)
        json_object_set_new(t->r->renamed,
                            buf_cstr(&full),
                            json_pack("{s:s, s:s, s:b}",
                                      "name",
                                      name,
                                      "namespace",
                                      full.len > strlen(name) ? space : "",
                                      "custom",
                                      custom));
    buf_deinit(&full);
    return OK;
}

static enum err read_list(
    struct reading *t, const json_t *list, const char *space, const char *of, struct err_info *e);

/* The answer repeats it with those of its tools that are offered, if there is any. */
static enum err read_namespace(struct reading *t,
                               json_t *tool,
                               const char *field,
                               struct err_info *e)
{
    const json_t *inside = json_object_get(tool, "tools");
    struct reading below = {t->r, t->functions, json_array()};
    struct place p;
    if (!api_text_at(tool, "name")[0]) {
        json_decref(below.offered);
        return missing(field, "name", e);
    }
    snprintf(p.text, sizeof p.text, "%.40s.tools", field);
    enum err err = read_list(&below, inside, api_text_at(tool, "name"), p.text, e);
    if (!err && json_array_size(below.offered) > 0) {
        json_t *own = json_copy(tool);
        json_object_set(own, "tools", below.offered);
        json_array_append_new(t->offered, own);
    }
    json_decref(below.offered);
    return err;
}

/* space: "" where it is in none. */
static enum err read_tool(
    struct reading *t, json_t *tool, const char *space, const char *field, struct err_info *e)
{
    if (!json_is_object(tool))
        return api_wrong_type(field, "an object", tool, e);
    if (!api_text_at(tool, "type")[0])
        return missing(field, "type", e);
    if (is(tool, "namespace") && !space[0])
        return read_namespace(t, tool, field, e);
    return is(tool, "function") || is(tool, "custom") ? offer(t, tool, space, field, e) : OK;
}

static enum err read_list(
    struct reading *t, const json_t *list, const char *space, const char *of, struct err_info *e)
{
    enum err err = OK;
    if (!list || json_is_null(list))
        return OK;
    if (!json_is_array(list))
        return api_wrong_type(of, "an array", list, e);
    for (size_t i = 0; !err && i < json_array_size(list); i++) {
        struct place p;
        snprintf(p.text, sizeof p.text, "%.40s[%zu]", of, i);
        err = read_tool(t, json_array_get(list, i), space, p.text, e);
    }
    return err;
}

/* Items of the input may bring tools, too. */
static enum err read_items(struct reading *t, const json_t *input, struct err_info *e)
{
    enum err err = OK;
    for (size_t i = 0; !err && i < json_array_size(input); i++) {
        const json_t *item = json_array_get(input, i);
        struct place p;
        snprintf(p.text, sizeof p.text, "input[%zu].tools", i);
        if (is(item, "additional_tools"))
            err = read_list(t, json_object_get(item, "tools"), "", p.text, e);
    }
    return err;
}

/* {"type": "function" | "custom", "name": ..., "namespace"?} as chat names a tool, into *out. */
static enum err adapt_named(const json_t *v, const char *field, json_t **out, struct err_info *e)
{
    struct buf full = {0};
    if (!is(v, "function") && !is(v, "custom"))
        return err_set_field(e,
                             ERR_INVALID,
                             field,
                             "'%s' asks for a tool of type '%.40s', which this server does not "
                             "have: it must be none, auto, required, or a function or custom tool "
                             "by its name",
                             field,
                             api_text_at(v, "type"));
    if (!api_text_at(v, "name")[0])
        return missing(field, "name", e);
    responses_tool_name(api_text_at(v, "namespace"), api_text_at(v, "name"), &full);
    *out = json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", buf_cstr(&full));
    buf_deinit(&full);
    return OK;
}

/* {"type": "allowed_tools", "mode": ..., "tools": [named, ...]}, of which those are left out that
 * the server does not have. */
static enum err adapt_allowed(const json_t *v, json_t **out, struct err_info *e)
{
    const json_t *tools = json_object_get(v, "tools"), *mode = json_object_get(v, "mode");
    const bool is_auto = strcmp(api_text_at(v, "mode"), "auto") == 0;
    enum err err = OK;
    if (!json_is_array(tools))
        return api_wrong_type("tool_choice.tools", "an array", tools ? tools : json_null(), e);
    json_t *all = json_array();
    for (size_t i = 0; !err && i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        json_t *named = NULL;
        struct place p;
        snprintf(p.text, sizeof p.text, "tool_choice.tools[%zu]", i);
        if (!json_is_object(tool))
            err = api_wrong_type(p.text, "an object", tool, e);
        else if (is(tool, "function") || is(tool, "custom") || is(tool, ""))
            err = adapt_named(tool, p.text, &named, e);
        if (named)
            json_array_append_new(all, named);
    }
    if (!err && json_array_size(all) == 0 && json_array_size(tools) > 0 && is_auto) {
        *out = json_string("none");
        json_decref(all);
        return OK;
    }
    *out = json_pack("{s:s, s:{s:O*, s:o}}",
                     "type",
                     "allowed_tools",
                     "allowed_tools",
                     "mode",
                     mode,
                     "tools",
                     all);
    return err;
}

/* A word as in chat; a tool is named without a level between. */
static enum err adapt_choice(const json_t *body, json_t *b, struct err_info *e)
{
    const json_t *v = json_object_get(body, "tool_choice");
    json_t *choice = NULL;
    if (!json_is_object(v))
        return OK;
    enum err err = is(v, "allowed_tools") ? adapt_allowed(v, &choice, e)
                                          : adapt_named(v, "tool_choice", &choice, e);
    json_object_set_new(b, "tool_choice", choice);
    return err;
}

enum err responses_adapt_tools(struct responses *r,
                               const json_t *body,
                               json_t *b,
                               struct err_info *e)
{
    enum err err;
    r->offered = json_array();
    r->places = json_array();
    r->renamed = json_object();
    struct reading t = {r, json_array(), r->offered};
    if (!(err = read_list(&t, json_object_get(body, "tools"), "", "tools", e)) &&
        !(err = read_items(&t, json_object_get(body, "input"), e)))
        err = adapt_choice(body, b, e);
    if (json_array_size(t.functions) > 0 || json_object_get(body, "tools"))
        json_object_set(b, "tools", t.functions);
    json_decref(t.functions);
    return err;
}

/* --- writing -------------------------------------------------------------------------------- */

void responses_find_tool(struct responses *r, const char *name, size_t n)
{
    r->tool = json_object_getn(r->renamed, name, n);
}

bool responses_is_custom(const struct responses *r)
{
    return json_is_true(json_object_get(r->tool, "custom"));
}

/* The text of a JSON string's inside; NULL: no memory. */
static json_t *unescape(const struct buf *inside)
{
    struct buf quoted = {.may_fail = true};
    json_error_t je;
    buf_char(&quoted, '"');
    buf_join(&quoted, inside);
    buf_char(&quoted, '"');
    json_t *s = quoted.failed
                    ? NULL
                    : api_json_load(quoted.data, quoted.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    buf_deinit(&quoted);
    return s;
}

/* `input`, or the one text there is, by whatever name; NULL: neither. */
static const json_t *only_text(const json_t *arguments)
{
    const json_t *v = json_object_get(arguments, "input");
    if (!v && json_object_size(arguments) == 1)
        v = json_object_iter_value(json_object_iter((json_t *)arguments));
    return json_is_string(v) ? v : NULL;
}

/* What has no such text, as where a limit cut it, is given as the model wrote it. */
void responses_read_input(struct responses *r)
{
    json_error_t je;
    json_t *text = unescape(&r->text);
    json_t *arguments = text ? api_json_load(json_string_value(text),
                                             json_string_length(text),
                                             JSON_DECODE_ANY | JSON_ALLOW_NUL,
                                             &je)
                             : NULL;
    const json_t *input = only_text(arguments);
    buf_clear(&r->input);
    if (input)
        json_text_escape(&r->input, json_string_value(input), json_string_length(input));
    else
        buf_join(&r->input, &r->text);
    r->items.failed |= !text || (!arguments && api_json_starved());
    json_decref(arguments);
    json_decref(text);
}

void responses_put_tool_name(const struct responses *r, struct buf *out)
{
    buf_str(out, "\"name\":");
    if (r->tool) {
        api_put_text(out, api_text_at(r->tool, "name"), strlen(api_text_at(r->tool, "name")));
        return;
    }
    buf_char(out, '"');
    buf_join(out, &r->name);
    buf_char(out, '"');
}

void responses_put_call(const struct responses *r, bool whole, struct buf *out)
{
    const bool custom = responses_is_custom(r);
    buf_printf(out,
               "\"type\":\"%s\",\"call_id\":\"%s\",",
               custom ? "custom_tool_call" : "function_call",
               r->call_id);
    responses_put_tool_name(r, out);
    if (api_text_at(r->tool, "namespace")[0])
        api_field_text(out, "namespace", api_text_at(r->tool, "namespace"));
    buf_str(out, custom ? ",\"input\":\"" : ",\"arguments\":\"");
    if (whole)
        buf_join(out, custom ? &r->input : &r->text);
    buf_char(out, '"');
}
