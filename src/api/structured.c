/* The fields that say what form an answer has, in the words of OpenAI, vLLM and llama.cpp; at most
 * one of them, compiled on the worker thread that parses the request, or found compiled. */
#include "api/compile.h"
#include "api/reply.h"

#include <stdlib.h>
#include <string.h>

enum form { FORM_NONE, FORM_OBJECT, FORM_SCHEMA, FORM_GBNF, FORM_REGEX, FORM_CHOICE };

/* What was asked for; a view of the body. */
struct wish {
    enum form form;
    const char *field;
    const json_t *value;
};

static const struct form_field {
    const char *name;
    enum form form;
} fields[] = {{"grammar", FORM_GBNF},
              {"guided_grammar", FORM_GBNF},
              {"regex", FORM_REGEX},
              {"guided_regex", FORM_REGEX},
              {"choice", FORM_CHOICE},
              {"guided_choice", FORM_CHOICE},
              {"json_schema", FORM_SCHEMA},
              {"guided_json", FORM_SCHEMA}},
  vllm_fields[] = {{"json", FORM_SCHEMA},
                   {"regex", FORM_REGEX},
                   {"choice", FORM_CHOICE},
                   {"grammar", FORM_GBNF}};

static enum err want(
    struct wish *w, enum form form, const char *field, const json_t *value, struct err_info *e)
{
    if (w->form != FORM_NONE)
        return err_invalid(e,
                           field,
                           "'%s' cannot be combined with '%s': the answer has one form",
                           field,
                           w->field);
    *w = (struct wish){form, field, value};
    return OK;
}

/* Absent, null, and an empty text say nothing. */
static bool is_given(const json_t *v)
{
    return v && !json_is_null(v) && !(json_is_string(v) && json_string_length(v) == 0);
}

static enum err read_fields(
    const json_t *body, const struct form_field *list, size_t n, struct wish *w, struct err_info *e)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(body, list[i].name);
        enum err err = is_given(v) ? want(w, list[i].form, list[i].name, v, e) : OK;
        if (err)
            return err;
    }
    return OK;
}

/* {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}; llama.cpp also
 * takes a schema beside json_object. */
static enum err read_response_format(const json_t *body, struct wish *w, struct err_info *e)
{
    const char *name = "response_format";
    json_t *v;
    enum err err = api_get_object(body, name, "an object", &v, e);
    if (err || !v)
        return err;
    const char *type = json_string_value(json_object_get(v, "type"));
    if (type && strcmp(type, "text") == 0)
        return OK;
    const json_t *schema = api_get(v, "schema");
    if (type && strcmp(type, "json_object") == 0)
        return schema ? want(w, FORM_SCHEMA, name, schema, e) : want(w, FORM_OBJECT, name, v, e);
    if (!type)
        return err_invalid(e,
                           name,
                           "'response_format' must have a 'type': 'text', 'json_object' or "
                           "'json_schema'");
    if (strcmp(type, "json_schema") != 0)
        return err_invalid(e,
                           name,
                           "'response_format' must have the type 'text', 'json_object' or "
                           "'json_schema', not '%.40s'",
                           type);
    const json_t *inner = json_object_get(v, "json_schema");
    if (json_is_object(inner))
        schema = api_get(inner, "schema");
    if (!schema)
        return err_invalid(e, name, "'response_format' has no 'json_schema' with a 'schema'");
    return want(w, FORM_SCHEMA, name, schema, e);
}

/* vLLM's newer way to say the same. */
static enum err read_structured_outputs(const json_t *body, struct wish *w, struct err_info *e)
{
    const char *name = "structured_outputs", *key;
    const json_t *v = json_object_get(body, name);
    json_t *x;
    if (!is_given(v))
        return OK;
    if (!json_is_object(v))
        return api_wrong_type(name, "an object", v, e);
    json_object_foreach((json_t *)v, key, x)
    {
        bool known = strcmp(key, "json_object") == 0;
        for (size_t i = 0; i < sizeof vllm_fields / sizeof vllm_fields[0]; i++)
            known |= strcmp(key, vllm_fields[i].name) == 0;
        if (!known && is_given(x) && !json_is_false(x))
            return err_invalid(e, name, "'structured_outputs' with '%.40s' is not supported", key);
    }
    enum err err = read_fields(v, vllm_fields, sizeof vllm_fields / sizeof vllm_fields[0], w, e);
    const json_t *object = json_object_get(v, "json_object");
    if (!err && is_given(object) && !json_is_boolean(object))
        return api_wrong_type("json_object", "true or false", object, e);
    return !err && json_is_true(object) ? want(w, FORM_OBJECT, name, v, e) : err;
}

/* ---- grammars ---- */

static enum err check_type(const struct wish *w, struct err_info *e)
{
    const json_t *v = w->value;
    if ((w->form == FORM_GBNF || w->form == FORM_REGEX) && !json_is_string(v))
        return api_wrong_type(w->field, "a string", v, e);
    if (w->form == FORM_SCHEMA && !json_is_object(v) && !json_is_boolean(v) && !json_is_string(v))
        return api_wrong_type(w->field, "a JSON schema (an object)", v, e);
    if (w->form != FORM_CHOICE)
        return OK;
    if (!json_is_array(v))
        return api_wrong_type(w->field, "an array of strings", v, e);
    if (json_array_size(v) == 0)
        return err_invalid(e, w->field, "'%s' is empty: no text could be the answer", w->field);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_string(x) || json_string_length(x) == 0)
            return err_invalid(
                e, w->field, "'%s' must be an array of strings, none of them empty", w->field);
    }
    return OK;
}

static grammar_node build_choice(struct grammar_builder *b, const json_t *v)
{
    uint32_t n = (uint32_t)json_array_size(v);
    struct grammar_text *texts = malloc(n * sizeof *texts);
    if (!texts)
        return grammar_starved(b, n);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        texts[i] = (struct grammar_text){json_string_value(x), json_string_length(x)};
    }
    grammar_node node = grammar_choice(b, n, texts);
    free(texts);
    return node;
}

static grammar_node build(struct grammar_builder *b, const struct wish *w)
{
    const json_t *v = w->value;
    switch (w->form) {
    case FORM_NONE:
    case FORM_OBJECT:
        break;
    case FORM_SCHEMA:
        return json_is_string(v) /* the way vLLM's clients may send it */
                   ? grammar_json_schema_text(b, json_string_value(v), json_string_length(v))
                   : grammar_json_schema(b, v, "");
    case FORM_GBNF:
        return grammar_gbnf(b, json_string_value(v), json_string_length(v));
    case FORM_REGEX:
        return grammar_regex(b, json_string_value(v), json_string_length(v));
    case FORM_CHOICE:
        return build_choice(b, v);
    }
    return grammar_json_object(b);
}

/* What tells one wish from another: the form and its text. NULL: out of memory. */
static char *key_of(const struct wish *w)
{
    json_t *key = json_pack("[i,O]", (int)w->form, w->form == FORM_OBJECT ? json_null() : w->value);
    char *text = key ? json_dumps(key, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(key);
    return text;
}

struct wished {
    struct api_call *call;
    const struct wish *wish;
};

static grammar_node build_wished(void *ctx, struct grammar_builder *b)
{
    const struct wished *x = ctx;
    return api_reply_content(x->call, b, build(b, x->wish));
}

static enum err compile(struct api_call *c,
                        const struct wish *w,
                        struct grammar **out,
                        struct err_info *e)
{
    struct wished wished = {c, w};
    struct buf key = {0};
    const struct api_grammar_source source = {
        .field = w->field, .key = &key, .build = build_wished, .ctx = &wished};
    char *text = key_of(w);
    const bool ok = text && api_reply_put_key(c, &key);
    buf_str(&key, text ? text : "");
    free(text);
    enum err err = ok ? api_compile(c, &source, out, e)
                      : err_set(e, ERR_NOMEM, "no memory for '%s'", w->field);
    buf_deinit(&key);
    return err;
}

static grammar_node build_form(void *ctx, struct grammar_builder *b)
{
    return build(b, ctx);
}

/* Is the form well said, although it does not come into play? */
static enum err check_form(struct api_call *c, struct wish *w, struct err_info *e)
{
    struct grammar *none;
    const struct api_grammar_source source = {
        .field = w->field, .build = build_form, .ctx = w, .check = true};
    return api_compile(c, &source, &none, e);
}

enum err api_structured_parse(struct api_call *c,
                              const json_t *body,
                              struct api_params *p,
                              struct err_info *e)
{
    struct wish w = {0};
    enum err err;
    if ((err = read_response_format(body, &w, e)) || (err = read_structured_outputs(body, &w, e)) ||
        (err = read_fields(body, fields, sizeof fields / sizeof fields[0], &w, e)) ||
        w.form == FORM_NONE || (err = check_type(&w, e)))
        return err;
    bool calls = c->tools.choice == CHAT_TOOLS_REQUIRED || c->tools.choice == CHAT_TOOLS_NAMED;
    if (c->reply.tools && calls)
        return check_form(c, &w, e);     /* there will be no content: calls must come */
    struct grammar *strict = p->grammar; /* what was made for tools alone */
    p->grammar = NULL;
    grammar_release(strict);
    err = compile(c, &w, &p->grammar, e);
    p->request.grammar = p->grammar;
    return err;
}
