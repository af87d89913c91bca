/* POST /v1/responses: its tools as functions of the chat route, and calls of them in the answer.
 *
 *      function                as it is
 *      custom                  a function with one argument, the text `input`
 *      namespace               the tools in it, each by a name that has both: SPACE__NAME
 *      web_search, mcp, ...    left out: the model is not told of what it cannot use
 *
 * What the answer repeats of the tools are those that the model was told of. */
#include "api/responses.h"
#include "api/tools.h"

#include <stdio.h>
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
    json_t *known;     /* {name that the model has: [its function, is it custom]} */
    json_t *spaces;    /* {what begins names in a namespace: [the model's names, ...]} */
    json_t *abouts;    /* [of functions] what is to be told of its namespace, or null */
    json_t *allowed;   /* {the model's name: true} of those that it is told of; NULL: all */
    const char *space; /* "": in none */
    json_t *about;     /* what is to be told of that, or NULL */
};

/* Where something is: "tools[2].tools[0]". */
struct place {
    char text[64];
};

static bool is(const json_t *o, const char *type)
{
    return strcmp(api_text_at(o, "type"), type) == 0;
}

enum err responses_missing(const char *field, const char *name, struct err_info *e)
{
    return err_invalid(e, field, "'%s' has no '%s', which must be a string", field, name);
}

enum err responses_check_text(const json_t *o, const char *name, const char *of, struct err_info *e)
{
    const json_t *v = api_get(o, name);
    struct place p;
    snprintf(p.text, sizeof p.text, "%.40s.%s", of, name);
    return !v || json_is_string(v) ? OK : api_wrong_type(p.text, "a string", v, e);
}

static enum err check_tool(const json_t *tool, const char *field, struct err_info *e)
{
    const json_t *format = is(tool, "custom") ? api_get(tool, "format") : NULL;
    struct place p;
    enum err err;
    snprintf(p.text, sizeof p.text, "%.40s.format", field);
    if (!api_text_at(tool, "name")[0])
        return responses_missing(field, "name", e);
    if ((err = responses_check_text(tool, "description", field, e)) ||
        (err = responses_check_text(tool, "namespace", field, e)))
        return err;
    if (format && !json_is_object(format))
        return api_wrong_type(p.text, "an object", format, e);
    if ((err = responses_check_text(format, "type", p.text, e)) ||
        (err = responses_check_text(format, "syntax", p.text, e)))
        return err;
    return responses_check_text(format, "definition", p.text, e);
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
        const json_t *value = api_get(tool, names[k]);
        if (value)
            json_object_set(function, names[k], (json_t *)value);
    }
    return function;
}

/* "Namespace SPACE: ABOUT"; NULL: there is nothing to tell, or no memory. */
static json_t *about_of(const char *space, const char *about)
{
    struct buf text = {.may_fail = true};
    if (!about[0])
        return NULL;
    buf_str(&text, "Namespace ");
    buf_str(&text, space);
    buf_str(&text, ": ");
    buf_str(&text, about);
    json_t *v = text.failed ? NULL : json_string(buf_cstr(&text));
    buf_deinit(&text);
    return v;
}

/* What a namespace is about, once, before what is said of the first of its tools. */
static enum err tell_abouts(const struct reading *t, struct err_info *e)
{
    json_t *told = json_object(), *last = NULL;
    bool failed = false;
    for (size_t i = 0; i < json_array_size(t->functions); i++) {
        json_t *function = json_object_get(json_array_get(t->functions, i), "function");
        json_t *about = json_array_get(t->abouts, i);
        const char *own = api_text_at(function, "description");
        if (t->allowed && !json_object_get(t->allowed, api_text_at(function, "name")))
            continue;
        if (!json_is_string(about) || about == last ||
            json_object_get(told, json_string_value(about)))
            continue;
        last = about;
        json_object_set_new(told, json_string_value(about), json_true());
        struct buf text = {.may_fail = true};
        buf_str(&text, json_string_value(about));
        buf_str(&text, own[0] ? "\n\n" : "");
        buf_str(&text, own);
        failed |= text.failed;
        if (!text.failed)
            json_object_set_new(function, "description", json_string(buf_cstr(&text)));
        buf_deinit(&text);
    }
    json_decref(told);
    return failed ? api_no_memory(e) : OK;
}

/* A tool that the model is to have by the name `full`. */
static enum err add_function(struct reading *t,
                             const json_t *tool,
                             json_t *function,
                             const char *full,
                             const char *field,
                             struct err_info *e)
{
    const char *name = api_text_at(tool, "name");
    const bool custom = is(tool, "custom");
    struct buf before = {0};
    if (strcmp(full, name) != 0 && strlen(full) > CHAT_MAX_TOOL_NAME)
        return err_invalid(e,
                           field,
                           "the name of '%s' with its namespace's, '%.150s', is longer than %d",
                           field,
                           full,
                           CHAT_MAX_TOOL_NAME);
    if (json_array_size(t->functions) >= CHAT_MAX_TOOLS)
        return err_invalid(
            e, field, "there are more than %d tools up to '%s'", CHAT_MAX_TOOLS, field);
    json_object_set_new(t->known, full, json_pack("[o, b]", json_copy(function), custom));
    json_array_append_new(t->abouts, t->about ? json_incref(t->about) : json_null());
    json_array_append_new(t->functions,
                          json_pack("{s:s, s:O}", "type", "function", "function", function));
    json_array_append_new(t->r->places, json_string(field));
    json_array_append(t->offered, (json_t *)tool);
    if (custom || strcmp(full, name) != 0)
        json_object_set_new(t->r->renamed,
                            full,
                            json_pack("{s:s, s:s, s:b}",
                                      "name",
                                      name,
                                      "namespace",
                                      strlen(full) > strlen(name) ? t->space : "",
                                      "custom",
                                      custom));
    responses_tool_name(t->space, "", &before);
    json_array_append_new(json_object_get(t->spaces, buf_cstr(&before)), json_string(full));
    buf_deinit(&before);
    return OK;
}

/* Is it the same as one that is known? */
static bool is_known(const struct reading *t, const char *full, const json_t *function, bool custom)
{
    const json_t *known = json_object_get(t->known, full);
    return json_equal(json_array_get(known, 0), function) &&
           json_is_true(json_array_get(known, 1)) == custom;
}

static enum err offer(struct reading *t, json_t *tool, const char *field, struct err_info *e)
{
    const bool custom = is(tool, "custom");
    struct buf full = {0};
    enum err err = check_tool(tool, field, e);
    if (err)
        return err;
    json_t *function = custom ? custom_function(tool) : plain_function(tool);
    if (!function)
        return api_no_memory(e);
    responses_tool_name(t->space, api_text_at(tool, "name"), &full);
    json_object_set_new(function, "name", json_string(buf_cstr(&full)));
    if (!is_known(t, buf_cstr(&full), function, custom))
        err = add_function(t, tool, function, buf_cstr(&full), field, e);
    json_decref(function);
    buf_deinit(&full);
    return err;
}

static enum err read_list(struct reading *t,
                          const json_t *list,
                          const char *of,
                          struct err_info *e);

/* What is read from now on is in it. */
static void enter(struct reading *t, const char *space, json_t *about)
{
    struct buf before = {0};
    t->space = space;
    t->about = about;
    responses_tool_name(space, "", &before);
    if (!json_object_get(t->spaces, buf_cstr(&before)))
        json_object_set_new(t->spaces, buf_cstr(&before), json_array());
    buf_deinit(&before);
}

/* The answer repeats it with those of its tools that are offered, if there is any. */
static enum err read_namespace(struct reading *t,
                               json_t *tool,
                               const char *field,
                               struct err_info *e)
{
    struct reading below = *t;
    struct place p;
    enum err err;
    if (t->space[0])
        return err_invalid(
            e, field, "'%s' is a namespace in a namespace, which there is not", field);
    if (!api_text_at(tool, "name")[0])
        return responses_missing(field, "name", e);
    if ((err = responses_check_text(tool, "description", field, e)))
        return err;
    const char *name = api_text_at(tool, "name"), *about = api_text_at(tool, "description");
    enter(&below, name, about_of(name, about));
    if (!below.about && about[0])
        return api_no_memory(e);
    below.offered = json_array();
    snprintf(p.text, sizeof p.text, "%.40s.tools", field);
    err = read_list(&below, api_get(tool, "tools"), p.text, e);
    if (!err && json_array_size(below.offered) > 0) {
        json_t *own = json_copy(tool);
        json_object_set(own, "tools", below.offered);
        json_array_append_new(t->offered, own);
    }
    json_decref(below.about);
    json_decref(below.offered);
    return err;
}

static enum err read_tool(struct reading *t, json_t *tool, const char *field, struct err_info *e)
{
    if (!json_is_object(tool))
        return api_wrong_type(field, "an object", tool, e);
    if (!api_text_at(tool, "type")[0])
        return responses_missing(field, "type", e);
    if (is(tool, "namespace"))
        return read_namespace(t, tool, field, e);
    return is(tool, "function") || is(tool, "custom") ? offer(t, tool, field, e) : OK;
}

static enum err read_list(struct reading *t, const json_t *list, const char *of, struct err_info *e)
{
    enum err err = OK;
    if (list && !json_is_array(list))
        return api_wrong_type(of, "an array", list, e);
    for (size_t i = 0; !err && i < json_array_size(list); i++) {
        struct place p;
        snprintf(p.text, sizeof p.text, "%.40s[%zu]", of, i);
        err = read_tool(t, json_array_get(list, i), p.text, e);
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
        if (is(item, "additional_tools") || is(item, "tool_search_output"))
            err = read_list(t, api_get(item, "tools"), p.text, e);
    }
    return err;
}

/* --- tool_choice ---------------------------------------------------------------------------- */

/* {"type": "function" | "custom", "name": ..., "namespace"?}: what the model calls it. */
static enum err named(const json_t *v, const char *field, struct buf *full, struct err_info *e)
{
    if (!is(v, "function") && !is(v, "custom"))
        return err_invalid(e,
                           field,
                           "'%s' asks for a tool of type '%.40s', which this server does not "
                           "have: it must be none, auto, required, or a function or custom tool "
                           "by its name",
                           field,
                           api_text_at(v, "type"));
    if (!api_text_at(v, "name")[0])
        return responses_missing(field, "name", e);
    enum err err = responses_check_text(v, "namespace", field, e);
    if (!err)
        responses_tool_name(api_text_at(v, "namespace"), api_text_at(v, "name"), full);
    return err;
}

/* A tool as chat names it. */
static json_t *choice_of(const char *full)
{
    return json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", full);
}

static enum err unknown(const char *name, struct err_info *e)
{
    return err_invalid(
        e, "tool_choice", "'tool_choice' names '%.64s', which is not among the tools", name);
}

/* One that is named in the list, or those of a namespace, into the set *names. */
static enum err add_allowed(const struct reading *t,
                            const json_t *tool,
                            const char *field,
                            json_t *names,
                            struct err_info *e)
{
    struct buf full = {0};
    enum err err = OK;
    if (!json_is_object(tool))
        return api_wrong_type(field, "an object", tool, e);
    if (is(tool, "namespace")) {
        const char *name = api_text_at(tool, "name");
        if (!name[0])
            return responses_missing(field, "name", e);
        responses_tool_name(name, "", &full);
        const json_t *all = json_object_get(t->spaces, buf_cstr(&full));
        for (size_t i = 0; i < json_array_size(all); i++)
            json_object_set_new(names, json_string_value(json_array_get(all, i)), json_true());
        err = all ? OK : unknown(name, e);
    } else if (is(tool, "function") || is(tool, "custom") || is(tool, "")) {
        if (!(err = named(tool, field, &full, e)) && !json_object_get(t->known, buf_cstr(&full)))
            err = unknown(buf_cstr(&full), e);
        if (!err)
            json_object_set_new(names, buf_cstr(&full), json_true());
    }
    buf_deinit(&full);
    return err;
}

/* {"type": "allowed_tools", "mode": ..., "tools": [named, ...]}, of which those are left out that
 * the server does not have. */
static enum err adapt_allowed(struct reading *t, const json_t *v, json_t **out, struct err_info *e)
{
    const json_t *tools = json_object_get(v, "tools"), *mode = json_object_get(v, "mode");
    const size_t n = json_array_size(tools);
    const char *name;
    json_t *one;
    enum err err = OK;
    if (!json_is_array(tools))
        return api_wrong_type("tool_choice.tools", "an array", tools ? tools : json_null(), e);
    if (n > CHAT_MAX_TOOLS)
        return api_tools_too_many("tool_choice.tools", e);
    json_t *names = json_object();
    for (size_t i = 0; !err && i < n; i++) {
        struct place p;
        snprintf(p.text, sizeof p.text, "tool_choice.tools[%zu]", i);
        err = add_allowed(t, json_array_get(tools, i), p.text, names, e);
    }
    const bool none = n > 0 && json_object_size(names) == 0;
    if (!err && none && strcmp(api_text_at(v, "mode"), "required") == 0)
        err = err_invalid(e,
                          "tool_choice",
                          "'tool_choice' requires a call of tools none of which this server has");
    if (!err && none && strcmp(api_text_at(v, "mode"), "auto") == 0) {
        *out = json_string("none");
    } else if (!err) {
        json_t *all = json_array();
        json_object_foreach(names, name, one) json_array_append_new(all, choice_of(name));
        *out = json_pack("{s:s, s:{s:O*, s:o}}",
                         "type",
                         "allowed_tools",
                         "allowed_tools",
                         "mode",
                         mode,
                         "tools",
                         all);
    }
    if (!err && strcmp(api_text_at(v, "mode"), "auto") == 0)
        t->allowed = json_incref(names);
    json_decref(names);
    return err;
}

/* A word as in chat; a tool is named without a level between. */
static enum err adapt_choice(struct reading *t, const json_t *body, json_t *b, struct err_info *e)
{
    const json_t *v = json_object_get(body, "tool_choice");
    json_t *choice = NULL;
    struct buf full = {0};
    enum err err;
    if (!json_is_object(v))
        return OK;
    if (is(v, "allowed_tools"))
        err = adapt_allowed(t, v, &choice, e);
    else if (!(err = named(v, "tool_choice", &full, e)))
        choice = choice_of(buf_cstr(&full));
    json_object_set_new(b, "tool_choice", choice);
    buf_deinit(&full);
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
    struct reading t = {.r = r,
                        .functions = json_array(),
                        .offered = r->offered,
                        .known = json_object(),
                        .spaces = json_object(),
                        .abouts = json_array()};
    enter(&t, "", NULL);
    if (!(err = read_list(&t, api_get(body, "tools"), "tools", e)) &&
        !(err = read_items(&t, json_object_get(body, "input"), e)) &&
        !(err = adapt_choice(&t, body, b, e)))
        err = tell_abouts(&t, e);
    if (json_array_size(t.functions) > 0 || json_object_get(body, "tools"))
        json_object_set(b, "tools", t.functions);
    json_decref(t.functions);
    json_decref(t.known);
    json_decref(t.spaces);
    json_decref(t.abouts);
    json_decref(t.allowed);
    return api_json_starved() ? api_no_memory(e) : err;
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

/* The one member if it is a text, by whatever name; else NULL. */
static const json_t *only_text(const json_t *arguments)
{
    const json_t *v = json_object_size(arguments) == 1
                          ? json_object_iter_value(json_object_iter((json_t *)arguments))
                          : NULL;
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
