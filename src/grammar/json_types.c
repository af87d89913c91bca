/* Values of one type, by the keywords that speak of it. Those of other types say nothing here. */
#include "grammar/json_schema.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t type;
} type_names[] = {{"null", TYPE_NULL},
                  {"boolean", TYPE_BOOLEAN},
                  {"integer", TYPE_INTEGER},
                  {"number", TYPE_NUMBER | TYPE_INTEGER},
                  {"string", TYPE_STRING},
                  {"array", TYPE_ARRAY},
                  {"object", TYPE_OBJECT}};

static uint32_t type_of_name(const json_t *v)
{
    const char *name = json_string_value(v);
    for (size_t i = 0; name && i < sizeof type_names / sizeof type_names[0]; i++)
        if (strcmp(type_names[i].name, name) == 0)
            return type_names[i].type;
    return 0;
}

uint32_t schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_REAL:
        return json_real_value(v) == floor(json_real_value(v)) ? TYPE_NUMBER | TYPE_INTEGER
                                                               : TYPE_NUMBER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

/* The type that a keyword speaks of; 0: of none. */
static uint32_t type_of_keyword(const char *key)
{
    static const struct {
        const char *part;
        uint32_t type;
    } parts[] = {{"ropert", TYPE_OBJECT},
                 {"required", TYPE_OBJECT},
                 {"tems", TYPE_ARRAY},
                 {"Length", TYPE_STRING},
                 {"pattern", TYPE_STRING},
                 {"format", TYPE_STRING},
                 {"inimum", TYPE_NUMBER | TYPE_INTEGER},
                 {"aximum", TYPE_NUMBER | TYPE_INTEGER},
                 {"multipleOf", TYPE_NUMBER | TYPE_INTEGER}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(key, parts[i].part))
            return parts[i].type;
    return 0;
}

bool schema_types(struct schema *s, const json_t *m, uint32_t *types)
{
    const json_t *t = json_object_get(m, "type"), *nullable = json_object_get(m, "nullable");
    size_t n = json_is_array(t) ? json_array_size(t) : 1;
    const char *key;
    json_t *v;
    *types = 0;
    for (size_t i = 0; t && i < n; i++) {
        uint32_t one = type_of_name(json_is_array(t) ? json_array_get(t, i) : t);
        if (!one) {
            schema_fail(s, "type", "must be the name of a type, or an array of some");
            return false;
        }
        *types |= one;
    }
    if (nullable && !json_is_boolean(nullable)) {
        schema_fail(s, "nullable", "must be true or false");
        return false;
    }
    if (t) {
        *types |= json_is_true(nullable) ? TYPE_NULL : 0;
        return true; /* an empty array: types that have nothing in common */
    }
    json_object_foreach((json_t *)m, key, v)
    {
        *types |= type_of_keyword(key);
    }
    if (*types == 0)
        *types = TYPE_ALL;
    return true;
}

bool schema_count(struct schema *s, const json_t *m, const char *key, uint32_t *out)
{
    const json_t *v = json_object_get(m, key);
    if (!v)
        return true;
    double n = json_number_value(v);
    if (!json_is_number(v) || n < 0 || n != floor(n)) {
        schema_fail(s, key, "must be an integer that is not negative");
        return false;
    }
    if (n > 100000) { /* a limit from above may be kept too well */
        if (strncmp(key, "min", 3) == 0) {
            schema_fail(s, key, "is too large");
            return false;
        }
        n = 100000;
    }
    *out = (uint32_t)n;
    return true;
}

/* ---- strings ---- */

grammar_node schema_string(struct schema *s, const json_t *m)
{
    const json_t *pattern = json_object_get(m, "pattern"), *format = json_object_get(m, "format");
    bool bounded = json_object_get(m, "minLength") || json_object_get(m, "maxLength");
    uint32_t min = 0, max = GRAMMAR_NO_LIMIT;
    grammar_node content = grammar_never(s->b);
    if ((pattern && !json_is_string(pattern)) || (format && !json_is_string(format)))
        return schema_fail(s, pattern ? "pattern" : "format", "must be a string");
    if (pattern && (format || bounded))
        return schema_fail(s, "pattern", "is not supported beside format, minLength or maxLength");
    if (format && bounded)
        return schema_fail(s, "format", "is not supported beside minLength or maxLength");
    if (pattern) {
        struct buf where = {0};
        size_t len = schema_push(s, "pattern");
        buf_printf(&where, "'%s': at \"%.100s\"", s->b->field, buf_cstr(&s->path));
        schema_pop(s, len);
        content = regex_node(s->b,
                             json_string_value(pattern),
                             json_string_length(pattern),
                             true,
                             true,
                             buf_cstr(&where));
        buf_deinit(&where);
    } else if (format) {
        if (!json_format(s->b, json_string_value(format), &content))
            return schema_fail(s, "format", "this format is not supported");
    } else {
        if (!schema_count(s, m, "minLength", &min) || !schema_count(s, m, "maxLength", &max))
            return content;
        if (!bounded)
            return json_text_string(s->b);
        content = grammar_repeat(s->b, json_text_char(s->b), min, max);
    }
    return json_text_quoted(s->b, content);
}

/* ---- numbers ---- */

/* The narrower of two bounds on one side. */
static bool add_bound(struct schema *s,
                      const json_t *m,
                      const char *key,
                      bool excluded,
                      bool *has,
                      double *bound,
                      bool *is_excluded)
{
    const json_t *v = json_object_get(m, key);
    double x = json_number_value(v);
    bool lower = key[0] == 'm' ? key[1] == 'i' : strstr(key, "Min") != NULL;
    if (!v)
        return true;
    if (!json_is_number(v)) {
        schema_fail(s, key, "must be a number");
        return false;
    }
    if (!*has || (lower ? x > *bound : x < *bound) || (x == *bound && excluded)) {
        *bound = x;
        *is_excluded = excluded;
    }
    *has = true;
    return true;
}

static bool read_bounds(struct schema *s, const json_t *m, struct number_bounds *n)
{
    *n = (struct number_bounds){0};
    return add_bound(s, m, "minimum", false, &n->has_lo, &n->lo, &n->lo_excluded) &&
           add_bound(s, m, "exclusiveMinimum", true, &n->has_lo, &n->lo, &n->lo_excluded) &&
           add_bound(s, m, "maximum", false, &n->has_hi, &n->hi, &n->hi_excluded) &&
           add_bound(s, m, "exclusiveMaximum", true, &n->has_hi, &n->hi, &n->hi_excluded);
}

/* multipleOf of numbers that are whole anyway. */
static bool multiple_is_free(struct schema *s, const json_t *m, bool whole)
{
    const json_t *v = json_object_get(m, "multipleOf");
    if (!v || (whole && json_is_number(v) && json_number_value(v) == 1.0))
        return true;
    schema_fail(s, "multipleOf", "is not supported");
    return false;
}

grammar_node schema_number(struct schema *s, const json_t *m)
{
    struct number_bounds n;
    if (json_object_get(m, "multipleOf") &&
        json_number_value(json_object_get(m, "multipleOf")) == 1.0)
        return schema_integer(s, m);
    if (!multiple_is_free(s, m, false) || !read_bounds(s, m, &n))
        return grammar_never(s->b);
    if (!n.has_lo && !n.has_hi)
        return json_text_number(s->b);
    return json_number_between(s->b, &n, s->b->field);
}

/* The first or last integer within a bound. A schema's integers are exact where doubles are. */
static bool whole_bound(struct schema *s, double x, bool excluded, bool lower, int64_t *out)
{
    double whole = lower ? ceil(x) : floor(x);
    if (excluded && whole == x)
        whole += lower ? 1 : -1;
    if (fabs(whole) > 9007199254740992.0) {
        schema_fail(s, lower ? "minimum" : "maximum", "is beyond 2^53");
        return false;
    }
    *out = (int64_t)whole;
    return true;
}

grammar_node schema_integer(struct schema *s, const json_t *m)
{
    struct number_bounds n;
    int64_t lo = 0, hi = 0;
    if (!multiple_is_free(s, m, true) || !read_bounds(s, m, &n) ||
        (n.has_lo && !whole_bound(s, n.lo, n.lo_excluded, true, &lo)) ||
        (n.has_hi && !whole_bound(s, n.hi, n.hi_excluded, false, &hi)))
        return grammar_never(s->b);
    if (!n.has_lo && !n.has_hi)
        return json_text_integer(s->b);
    return json_integer_between(s->b, n.has_lo, lo, n.has_hi, hi);
}

/* ---- arrays ---- */

struct items {
    grammar_node *first; /* [n_first] */
    uint32_t n_first;
    grammar_node rest; /* NEVER: no more */
    uint32_t min, max;
};

/* From element i on, what follows element i - 1 up to the end. */
static grammar_node items_from(struct schema *s, const struct items *t)
{
    struct grammar_builder *b = s->b;
    grammar_node comma =
        grammar_seq(b, 2, (grammar_node[]){grammar_literal(b, ",", 1), grammar_json_space(b)});
    grammar_node tail = grammar_empty(b), never = grammar_never(b);
    uint32_t n = t->n_first < t->max ? t->n_first : t->max;
    if (t->max > n) {
        uint32_t min = t->min > n ? t->min - n : 0;
        uint32_t max = t->max == GRAMMAR_NO_LIMIT ? GRAMMAR_NO_LIMIT : t->max - n;
        if (n == 0) { /* the first of them has no comma */
            grammar_node more = grammar_seq(b, 2, (grammar_node[]){comma, t->rest});
            uint32_t most = max == GRAMMAR_NO_LIMIT ? max : max - 1;
            grammar_node some = grammar_seq(
                b,
                2,
                (grammar_node[]){t->rest, grammar_repeat(b, more, min > 0 ? min - 1 : 0, most)});
            return min > 0 || t->rest == never ? (min > 0 ? some : tail)
                                               : grammar_optional(b, some);
        }
        tail = grammar_repeat(b, grammar_seq(b, 2, (grammar_node[]){comma, t->rest}), min, max);
    } else if (t->min > n) {
        return never;
    }
    for (uint32_t i = n; i > 0; i--) {
        grammar_node one[3] = {i > 1 ? comma : grammar_empty(b), t->first[i - 1], tail};
        tail = grammar_seq(b, 3, one);
        if (i > t->min)
            tail = grammar_optional(b, tail);
    }
    return tail;
}

static grammar_node rest_of_items(struct schema *s, const json_t *m, bool has_first)
{
    const json_t *items = json_object_get(m, "items");
    if (json_is_array(items))
        return schema_fail(s, "items", "an array of schemas is called prefixItems");
    if (items)
        return schema_shared(s, schema_compile_at(s, "items", items));
    return has_first ? grammar_never(s->b) : grammar_json_value(s->b);
}

grammar_node schema_array(struct schema *s, const json_t *m)
{
    const json_t *first = json_object_get(m, "prefixItems");
    struct items t = {.max = GRAMMAR_NO_LIMIT};
    struct grammar_builder *b = s->b;
    if (json_is_true(json_object_get(m, "uniqueItems")))
        return schema_fail(s, "uniqueItems", "is not supported");
    if (first && !json_is_array(first))
        return schema_fail(s, "prefixItems", "must be an array");
    if (!schema_count(s, m, "minItems", &t.min) || !schema_count(s, m, "maxItems", &t.max))
        return grammar_never(b);
    if (t.max < t.min)
        return schema_fail(s, "maxItems", "is less than minItems");
    t.n_first = (uint32_t)json_array_size(first);
    t.first = mem_zalloc(t.n_first + 1, sizeof *t.first);
    size_t len = schema_push(s, "prefixItems");
    for (uint32_t i = 0; i < t.n_first && !builder_failed(b); i++) {
        size_t at = schema_push_index(s, i);
        t.first[i] = schema_compile(s, json_array_get(first, i));
        schema_pop(s, at);
    }
    schema_pop(s, len);
    t.rest = rest_of_items(s, m, t.n_first > 0);
    if (t.min > t.n_first && t.n_first > 0 && !json_object_get(m, "items"))
        t.rest = grammar_json_value(b);
    grammar_node content = builder_failed(b) ? grammar_never(b) : items_from(s, &t);
    free(t.first);
    grammar_node space = grammar_json_space(b);
    grammar_node list[5] = {
        grammar_literal(b, "[", 1), space, content, space, grammar_literal(b, "]", 1)};
    return grammar_seq(b, 5, list);
}
