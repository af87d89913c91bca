/* What the text of a value in a tag means, by the schema of its argument. */
#include "chat/reply/internal.h"

#include <string.h>
#include <strings.h>

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {[JSON_OBJECT] = "object",
                                        [JSON_ARRAY] = "array",
                                        [JSON_STRING] = "string",
                                        [JSON_INTEGER] = "integer",
                                        [JSON_REAL] = "number",
                                        [JSON_TRUE] = "boolean",
                                        [JSON_FALSE] = "boolean",
                                        [JSON_NULL] = "null"};
    return names[json_typeof(v)];
}

static bool has_value_of(const json_t *list, const char *type)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(type_name(json_array_get(list, i)), type) == 0)
            return true;
    return false;
}

/* Does a schema allow this type? What says nothing of types allows all; *told says which. Types
 * follow from "type", else from the values of enum or const, else from the options of anyOf. *left
 * more schemas are looked at. */
static bool allows_within(const json_t *root,
                          const json_t *schema,
                          const char *type,
                          bool *told,
                          int depth,
                          uint32_t *left)
{
    *told = false;
    if (*left == 0)
        return true;
    --*left;
    schema = reply_resolve(root, schema);
    const json_t *v = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    const json_t *one = json_object_get(schema, "const"), *any = json_object_get(schema, "anyOf");
    bool found = false;
    *told = true;
    if (json_is_string(v))
        return strcmp(json_string_value(v), type) == 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        found |= s && strcmp(s, type) == 0;
    }
    if (json_is_array(v))
        return found;
    if (json_array_size(list) > 0)
        return has_value_of(list, type);
    if (one)
        return strcmp(type_name(one), type) == 0;
    any = any ? any : json_object_get(schema, "oneOf");
    if (!any && json_array_size(json_object_get(schema, "allOf")) == 1)
        any = json_object_get(schema, "allOf");
    for (size_t i = 0; depth > 0 && i < json_array_size(any); i++) {
        bool one_told = false;
        found |= allows_within(root, json_array_get(any, i), type, &one_told, depth - 1, left);
        *told &= one_told;
    }
    if (depth > 0 && json_array_size(any) > 0)
        return found;
    *told = false;
    return true;
}

static bool allows(const json_t *root, const json_t *schema, const char *type, bool *told)
{
    uint32_t left = REPLY_MAX_SCHEMAS;
    return allows_within(root, schema, type, told, 4, &left);
}

uint32_t reply_types(const json_t *root, const json_t *schema)
{
    static const char *const names[] = {
        "string", "object", "array", "integer", "number", "boolean", "null"};
    uint32_t types = 0;
    bool told = false;
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
        types |= (uint32_t)allows(root, schema, names[i], &told) << i;
    return types << 1 | told;
}

bool reply_only_string(const json_t *root, const json_t *schema)
{
    return reply_types(root, schema) == (TYPE_TOLD | TYPE_STRING);
}

/* Is v, which a value reads as, of a type that the schema asks for? */
static bool fits(const json_t *root, const json_t *schema, const json_t *v)
{
    bool told;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return allows(root, schema, "object", &told);
    case JSON_ARRAY:
        return allows(root, schema, "array", &told);
    case JSON_STRING:
        return !allows(root, schema, "string", &told) || !told;
    case JSON_INTEGER:
        return allows(root, schema, "integer", &told) || allows(root, schema, "number", &told);
    case JSON_REAL:
        return allows(root, schema, "number", &told);
    case JSON_TRUE:
    case JSON_FALSE:
        return allows(root, schema, "boolean", &told);
    case JSON_NULL:
        break;
    }
    return allows(root, schema, "null", &told);
}

/* Digits, with a sign or not, more of them than the JSON library's integers have. */
static bool is_long_integer(const char *s, size_t n)
{
    size_t from = n > 0 && s[0] == '-';
    if (n - from < 19 || s[from] == '0')
        return false;
    for (size_t i = from; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return true;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(s, word, n) == 0;
}

/* The JSON of a word of Python's, or NULL. */
static const char *word_of(const char *s, size_t n)
{
    if (is_word(s, n, "true"))
        return "true";
    if (is_word(s, n, "false"))
        return "false";
    return n == 4 && memcmp(s, "None", 4) == 0 ? "null" : NULL;
}

struct literal {
    struct buf arguments;
    bool ended, other;
};

static void on_literal(void *ctx, const struct reply_event *ev)
{
    struct literal *l = ctx;
    if (ev->kind == REPLY_CALL_ARGUMENTS)
        buf_add(&l->arguments, ev->text, ev->n);
    else if (ev->kind == REPLY_CALL_END)
        l->ended = true;
    else
        l->other |= ev->kind != REPLY_CALL_BEGIN || ev->call > 0;
}

/* A list or dict as Python writes it: JSON in *out, and what that reads as, the caller's reference;
 * NULL: it is none. */
static json_t *read_python(const char *s, size_t n, struct buf *out)
{
    static const char head[] = "<|tool_call_start|>f(v=", key[] = "{\"v\": ";
    const struct reply_config cfg = {.style = {reply_format_find("lfm2"), NULL},
                                     .tools = json_array()};
    struct reply_parser *p = reply_create(&cfg);
    struct literal l = {.ended = false};
    json_t *read = NULL;
    reply_feed(p, head, sizeof head - 1, on_literal, &l);
    reply_feed(p, s, n, on_literal, &l);
    reply_feed(p, ")", 1, on_literal, &l);
    reply_finish(p, false, on_literal, &l);
    if (l.ended && !l.other && l.arguments.len > sizeof key) {
        buf_add(out, l.arguments.data + sizeof key - 1, l.arguments.len - sizeof key);
        read = json_loadb(out->data, out->len, 0, NULL);
    }
    buf_deinit(&l.arguments);
    reply_destroy(p);
    json_decref((json_t *)cfg.tools);
    return read;
}

/* Is it a list or dict of Python's that the schema asks for? Then *out is its JSON. */
static bool from_python(
    const json_t *root, const json_t *schema, const char *s, size_t n, struct buf *out)
{
    bool told;
    if (n == 0 || (s[0] != '{' && s[0] != '[') || allows(root, schema, "string", &told))
        return false;
    json_t *read = read_python(s, n, out);
    bool ok = read && fits(root, schema, read);
    json_decref(read);
    if (!ok)
        buf_clear(out);
    return ok;
}

/* Is it JSON that can stand as it is? */
static bool is_json(const json_t *root, const json_t *schema, const char *s, size_t n)
{
    bool told;
    json_t *read = n ? json_loadb(s, n, JSON_DECODE_ANY, NULL) : NULL;
    if (!read && is_long_integer(s, n)) /* its digits go out as they are */
        read = json_integer(1);
    bool ok = read && (fits(root, schema, read) || !allows(root, schema, "string", &told));
    json_decref(read);
    return ok;
}

void reply_value_json(
    const json_t *root, const json_t *schema, const char *s, size_t n, struct buf *out)
{
    const char *word = word_of(s, n);
    bool told;
    if (is_json(root, schema, s, n)) {
        buf_add(out, s, n);
    } else if (word && allows(root, schema, word[0] == 'n' ? "null" : "boolean", &told) && told) {
        buf_str(out, word);
    } else if (!from_python(root, schema, s, n, out)) {
        buf_char(out, '"');
        json_text_escape(out, s, n);
        buf_char(out, '"');
    }
}
