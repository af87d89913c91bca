/* What the text of a value in a tag means, by the schema of its argument. */
#include "chat/reply/internal.h"

#include <string.h>
#include <strings.h>

static uint32_t type_of_value(const json_t *v)
{
    static const uint32_t types[] = {[JSON_OBJECT] = TYPE_OBJECT,
                                     [JSON_ARRAY] = TYPE_ARRAY,
                                     [JSON_STRING] = TYPE_STRING,
                                     [JSON_INTEGER] = TYPE_INTEGER,
                                     [JSON_REAL] = TYPE_NUMBER,
                                     [JSON_TRUE] = TYPE_BOOLEAN,
                                     [JSON_FALSE] = TYPE_BOOLEAN,
                                     [JSON_NULL] = TYPE_NULL};
    return types[json_typeof(v)];
}

static uint32_t type_of_name(const json_t *name)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"string", TYPE_STRING},
                 {"object", TYPE_OBJECT},
                 {"array", TYPE_ARRAY},
                 {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER},
                 {"boolean", TYPE_BOOLEAN},
                 {"null", TYPE_NULL}};
    const char *s = json_string_value(name);
    for (size_t i = 0; s && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, s) == 0)
            return types[i].type;
    return 0;
}

static uint32_t types_of_all(const json_t *list, uint32_t (*type_of)(const json_t *v))
{
    uint32_t types = TYPE_TOLD;
    for (size_t i = 0; i < json_array_size(list); i++)
        types |= type_of(json_array_get(list, i));
    return types;
}

/* Types follow from "type", else from the values of enum or const, else from the options of anyOf.
 * *left more schemas are looked at. */
static uint32_t types_within(const json_t *root, const json_t *schema, int depth, uint32_t *left)
{
    if (*left == 0)
        return TYPE_ANY;
    --*left;
    schema = reply_resolve(root, schema);
    const json_t *v = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    const json_t *one = json_object_get(schema, "const"), *any = json_object_get(schema, "anyOf");
    if (json_is_string(v))
        return TYPE_TOLD | type_of_name(v);
    if (json_is_array(v))
        return types_of_all(v, type_of_name);
    if (json_array_size(list) > 0)
        return types_of_all(list, type_of_value);
    if (one)
        return TYPE_TOLD | type_of_value(one);
    any = any ? any : json_object_get(schema, "oneOf");
    if (!any && json_array_size(json_object_get(schema, "allOf")) == 1)
        any = json_object_get(schema, "allOf");
    if (depth == 0 || json_array_size(any) == 0)
        return TYPE_ANY;
    uint32_t types = 0, told = TYPE_TOLD;
    for (size_t i = 0; i < json_array_size(any); i++) {
        uint32_t option = types_within(root, json_array_get(any, i), depth - 1, left);
        types |= option & TYPE_ANY;
        told &= option;
    }
    return types | told;
}

uint32_t reply_types(const json_t *root, const json_t *schema)
{
    uint32_t left = REPLY_MAX_SCHEMAS;
    return types_within(root, schema, 4, &left);
}

bool reply_only_string(const json_t *root, const json_t *schema)
{
    return reply_types(root, schema) == (TYPE_TOLD | TYPE_STRING);
}

/* Is v, which a value reads as, of a type that the schema asks for? */
static bool fits(uint32_t types, const json_t *v)
{
    if (json_is_string(v))
        return !(types & TYPE_STRING) || !(types & TYPE_TOLD);
    return types & (type_of_value(v) | (json_is_integer(v) ? TYPE_NUMBER : 0));
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
static bool from_python(uint32_t types, const char *s, size_t n, struct buf *out)
{
    if (n == 0 || (s[0] != '{' && s[0] != '[') || types & TYPE_STRING)
        return false;
    json_t *read = read_python(s, n, out);
    bool ok = read && fits(types, read);
    json_decref(read);
    if (!ok)
        buf_clear(out);
    return ok;
}

/* Is it JSON that can stand as it is? */
static bool is_json(uint32_t types, const char *s, size_t n)
{
    json_t *read = n ? json_loadb(s, n, JSON_DECODE_ANY, NULL) : NULL;
    if (!read && is_long_integer(s, n)) /* its digits go out as they are */
        read = json_integer(1);
    bool ok = read && (fits(types, read) || !(types & TYPE_STRING));
    json_decref(read);
    return ok;
}

void reply_value_json(
    const json_t *root, const json_t *schema, const char *s, size_t n, struct buf *out)
{
    const uint32_t types = reply_types(root, schema);
    const char *word = word_of(s, n);
    if (is_json(types, s, n)) {
        buf_add(out, s, n);
    } else if (word && types & TYPE_TOLD && types & (word[0] == 'n' ? TYPE_NULL : TYPE_BOOLEAN)) {
        buf_str(out, word);
    } else if (!from_python(types, s, n, out)) {
        buf_char(out, '"');
        json_text_escape(out, s, n);
        buf_char(out, '"');
    }
}
