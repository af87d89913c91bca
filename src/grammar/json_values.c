/* Values that a schema lists, by enum and const: which of them it keeps, by what they are and not
 * by how Weir would write others, and how they are written. */
#include "grammar/json_schema.h"

#include "base/json_text.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- as text ---- */

/* In the fewest digits that read back as the same double. */
static void write_real(struct buf *out, const json_t *v)
{
    for (int digits = 15; digits <= 17; digits++) {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        bool same = text && (digits == 17 || strtod(text, NULL) == json_real_value(v));
        if (same)
            buf_str(out, text);
        free(text);
        if (same)
            return;
    }
}

static void write_string(struct buf *out, const char *s, size_t n)
{
    buf_char(out, '"');
    json_text_escape(out, s, n);
    buf_char(out, '"');
}

static void write_value(struct buf *out, const json_t *v)
{
    const char *key, *before = "";
    json_t *x;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        buf_char(out, '{');
        json_object_foreach((json_t *)v, key, x)
        {
            buf_str(out, before);
            write_string(out, key, strlen(key));
            buf_char(out, ':');
            write_value(out, x);
            before = ",";
        }
        buf_char(out, '}');
        break;
    case JSON_ARRAY:
        buf_char(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            buf_str(out, i ? "," : "");
            write_value(out, json_array_get(v, i));
        }
        buf_char(out, ']');
        break;
    case JSON_STRING:
        write_string(out, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        write_real(out, v);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        buf_str(out, json_is_true(v) ? "true" : "false");
        break;
    case JSON_NULL:
        buf_str(out, "null");
        break;
    }
}

char *grammar_json_dump(const json_t *v)
{
    struct buf out = {0};
    write_value(&out, v);
    (void)buf_cstr(&out);
    return out.data;
}

static grammar_node literal_value(struct schema *s, const json_t *v)
{
    if (schema_is_inexact(v))
        return schema_fail(s, NULL, "a value with a number beyond 64 bits is not supported");
    struct buf text = {0};
    write_value(&text, v);
    grammar_node node = grammar_literal(s->b, text.data, text.len);
    buf_deinit(&text);
    return node;
}

/* ---- which are kept ---- */

/* Does v satisfy the schema x, beside all else that x says? NULL: any value does. False also with
 * an error, where that cannot be told. */
static bool satisfies(struct schema *s, const char *key, json_t *x, json_t *v)
{
    if (!x || json_is_true(x) || builder_failed(s->b))
        return !builder_failed(s->b);
    s->work += (uint32_t)(json_object_size(x) / 8);
    json_t *both = json_copy(x), *all = json_object_get(x, "allOf");
    all = all ? json_copy(all) : json_array();
    json_array_append_new(all, json_pack("{s:O}", "const", v));
    json_object_set_new(both, "allOf", all);
    bool is = schema_compile_at(s, key, both) != grammar_never(s->b);
    json_decref(both);
    return is && !builder_failed(s->b);
}

/* Is the keyword, if it is there, of this kind? False with an error. */
static bool is_kind(struct schema *s, const json_t *m, const char *key, json_type kind)
{
    const json_t *v = json_object_get(m, key);
    if (!v || json_typeof(v) == kind)
        return true;
    schema_fail(s, key, kind == JSON_ARRAY ? "must be an array" : "must be an object");
    return false;
}

/* Are n as many as the keywords say? min: where the lower one is absent. False also with an error.
 */
static bool keeps_count(
    struct schema *s, const json_t *m, const char *least, uint32_t min, const char *most, size_t n)
{
    const json_t *limit = json_object_get(m, most);
    uint32_t max = 0; /* made less where it is large, so this only checks the keyword */
    return schema_count(s, m, least, &min) && schema_count(s, m, most, &max) && n >= min &&
           (!limit || (double)n <= json_number_value(limit));
}

/* What the schema says of strings but their lengths, new, as patterns: a format is what Weir
 * writes, and more than that is of it. */
static json_t *patterns_of(const json_t *m)
{
    const char *format = json_string_value(json_object_get(m, "format"));
    const char *loose = format ? json_format_pattern(format) : NULL;
    json_t *is = json_object_get(m, "pattern"), *out = json_object();
    json_t *all = json_is_array(is) ? json_copy(is) : is ? json_pack("[O]", is) : json_array();
    if (loose)
        json_array_append_new(all, json_string(loose));
    if (json_array_size(all) > 0)
        json_object_set(out, "pattern", all);
    if (json_object_get(json_object_get(m, "not"), "pattern"))
        json_object_set(out, "not", json_object_get(m, "not"));
    json_decref(all);
    return out;
}

/* *patterns: an automaton of them, made where it is asked for first. */
static bool keeps_string(struct schema *s, const json_t *m, const json_t *v, struct dfa **patterns)
{
    const char *text = json_string_value(v);
    size_t n_chars = 0;
    for (; *text; text++)
        n_chars += (*text & 0xc0) != 0x80;
    if (!keeps_count(s, m, "minLength", 0, "maxLength", n_chars))
        return false;
    if (!*patterns) {
        json_t *said = patterns_of(m);
        bool any = json_object_size(said) == 0;
        if (!any)
            *patterns = schema_patterns(s, said);
        json_decref(said);
        if (any)
            return true;
        if (!*patterns)
            schema_fail(s, "pattern", "is too large an automaton beside a list of values");
    }
    struct buf inside = {0};
    json_text_escape(&inside, json_string_value(v), json_string_length(v));
    bool keeps = *patterns && dfa_accepts(*patterns, inside.data, inside.len);
    buf_deinit(&inside);
    return keeps;
}

static bool keeps_unique(struct schema *s, const json_t *v)
{
    size_t n = json_array_size(v);
    for (size_t i = 0; i < n; i++) {
        const uint32_t work = schema_weight(json_array_get(v, i)) / 16;
        for (size_t k = 0; k < i; k++) {
            s->work += work;
            if (!schema_works(s) || schema_same_value(json_array_get(v, i), json_array_get(v, k)))
                return false;
        }
    }
    return true;
}

static bool keeps_array(struct schema *s, const json_t *m, const json_t *v)
{
    const json_t *first = json_object_get(m, "prefixItems");
    json_t *items = json_object_get(m, "items"), *kind = json_object_get(m, "contains");
    size_t n = json_array_size(v), n_first = json_array_size(first), found = 0;
    if (!is_kind(s, m, "prefixItems", JSON_ARRAY) ||
        !keeps_count(s, m, "minItems", 0, "maxItems", n))
        return false;
    for (size_t i = 0; i < n; i++) {
        json_t *x = json_array_get(v, i);
        if (i < n_first ? !satisfies(s, "prefixItems", json_array_get(first, i), x)
                        : !satisfies(s, "items", items, x))
            return false;
        found += kind && satisfies(s, "contains", kind, x);
    }
    return (!json_is_true(json_object_get(m, "uniqueItems")) || keeps_unique(s, v)) &&
           (!kind || keeps_count(s, m, "minContains", 1, "maxContains", found));
}

/* A name that a pattern may match has what that says; one that is not described for certain has
 * what additionalProperties says. */
static bool keeps_member(struct schema *s, const json_t *m, const char *key, json_t *v)
{
    const json_t *patterns = json_object_get(m, "patternProperties");
    json_t *own = json_object_get(json_object_get(m, "properties"), key), *sub;
    json_t *name = json_string(key);
    const char *pattern;
    bool described = own != NULL;
    size_t len = schema_push(s, "properties");
    bool keeps = satisfies(s, key, own, v);
    schema_pop(s, len);
    keeps = keeps && satisfies(s, "propertyNames", json_object_get(m, "propertyNames"), name);
    json_object_foreach((json_t *)patterns, pattern, sub)
    {
        json_t *is = json_pack("{s:s}", "pattern", pattern);
        json_t *is_not = json_pack("{s:{s:[s]}}", "not", "pattern", pattern);
        described |= satisfies(s, "patternProperties", is, name);
        keeps = keeps && (satisfies(s, "patternProperties", is_not, name) ||
                          satisfies(s, "patternProperties", sub, v));
        json_decref(is);
        json_decref(is_not);
    }
    if (!described)
        keeps = keeps &&
                satisfies(s, "additionalProperties", json_object_get(m, "additionalProperties"), v);
    json_decref(name);
    return keeps && !builder_failed(s->b);
}

static bool keeps_object(struct schema *s, const json_t *m, const json_t *v)
{
    const json_t *required = json_object_get(m, "required");
    const char *key;
    json_t *x;
    if (!is_kind(s, m, "properties", JSON_OBJECT) ||
        !is_kind(s, m, "patternProperties", JSON_OBJECT) ||
        !is_kind(s, m, "required", JSON_ARRAY) ||
        !keeps_count(s, m, "minProperties", 0, "maxProperties", json_object_size(v)))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i))))
            return false;
    json_object_foreach((json_t *)v, key, x)
    {
        if (!keeps_member(s, m, key, x))
            return false;
    }
    return true;
}

/* Does the value satisfy the rest of what the merged schema says? False also with an error. */
static bool keeps_value(struct schema *s, const json_t *rest, json_t *v, struct dfa **patterns)
{
    static const char *const options[] = {"anyOf", "oneOf"};
    if (json_object_size(rest) == 0)
        return true;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        json_t *list = json_object_get(rest, options[i]);
        json_t *some = list ? json_pack("{s:O}", options[i], list) : NULL;
        bool keeps = satisfies(s, options[i], some, v);
        json_decref(some);
        if (!keeps)
            return false;
    }
    if (json_is_string(v))
        return keeps_string(s, rest, v, patterns);
    if (json_is_number(v))
        return schema_keeps_number(s, rest, v);
    if (json_is_array(v))
        return keeps_array(s, rest, v);
    return !json_is_object(v) || keeps_object(s, rest, v);
}

/* What else the schema says than its list of values: new. */
static json_t *beside_values(const json_t *m)
{
    static const char *const list[] = {"const", "enum", "type", "nullable"};
    json_t *rest = json_copy((json_t *)m);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        json_object_del(rest, list[i]);
    return rest;
}

json_t *schema_listed(struct schema *s, const json_t *m)
{
    json_t *one = json_object_get(m, "const"), *list = json_object_get(m, "enum");
    const json_t *refused = json_object_get(json_object_get(m, "not"), "enum");
    struct dfa *patterns = NULL;
    uint32_t types = TYPE_ALL;
    size_t n = list ? json_array_size(list) : 1;
    if (n == 0 && !(s->combined && json_is_array(list))) /* lists may have nothing in common */
        schema_fail(s, "enum", "must be an array that is not empty");
    if (n > MAX_NODES)
        schema_fail(s, "enum", "has too many values");
    uint64_t work = refused ? n * (uint64_t)schema_weight(refused) / 64 : 0; /* each with each */
    s->work += work < SCHEMA_MAX_WORK ? (uint32_t)work : SCHEMA_MAX_WORK;
    if (builder_failed(s->b) || !schema_works(s) ||
        (json_object_get(m, "type") && !schema_types(s, m, &types)))
        return NULL;
    json_t *kept = json_array(), *rest = beside_values(m);
    for (size_t i = 0; i < n && !builder_failed(s->b); i++) {
        json_t *v = list ? json_array_get(list, i) : one;
        if (types & schema_type_of(v) && (!one || schema_same_value(v, one)) &&
            !schema_refuses(m, v) && keeps_value(s, rest, v, &patterns))
            json_array_append(kept, v);
    }
    dfa_destroy(patterns);
    json_decref(rest);
    if (!builder_failed(s->b))
        return kept;
    json_decref(kept);
    return NULL;
}

grammar_node schema_values(struct schema *s, const json_t *m)
{
    json_t *kept = schema_listed(s, m);
    size_t n = json_array_size(kept);
    size_t n_plain =
        1u + (json_object_get(m, "type") != NULL) + (json_object_get(m, "nullable") != NULL);
    if (kept && n == 0 && !s->combined && json_object_size(m) == n_plain)
        schema_fail(s, json_object_get(m, "enum") ? "enum" : "const", "no value is of the type");
    grammar_node *nodes = mem_zalloc(n + 1, sizeof *nodes);
    for (size_t i = 0; i < n && !builder_failed(s->b); i++)
        nodes[i] = literal_value(s, json_array_get(kept, i));
    grammar_node node = grammar_alt(s->b, (uint32_t)n, nodes);
    free(nodes);
    json_decref(kept);
    return node;
}
