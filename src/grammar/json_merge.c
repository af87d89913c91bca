/* One object of keywords out of a schema, what it refers to, and all of its allOf.
 *
 * A value must satisfy all of them, so bounds become the narrower ones, types meet, properties
 * join; two that say different things about the same place go there as an allOf of their own. */
#include "grammar/json_schema.h"

#include <string.h>

static const char *const annotations[] = {
    "title",           "description",      "default",          "examples", "example",
    "deprecated",      "readOnly",         "writeOnly",        "$schema",  "$comment",
    "$defs",           "definitions",      "$anchor",          "$id",      "id",
    "$vocabulary",     "$dynamicAnchor",   "$recursiveAnchor", "xml",      "externalDocs",
    "contentEncoding", "contentMediaType", "discriminator"};

bool schema_is_annotation(const char *key)
{
    return IS_ONE_OF(key, annotations) || strncmp(key, "x-", 2) == 0;
}

/* How two values of one keyword become one. */
enum join {
    JOIN_LARGER,
    JOIN_SMALLER,
    JOIN_MEMBERS, /* of an object, both by allOf where both have one */
    JOIN_UNION,   /* of arrays */
    JOIN_COMMON,  /* of arrays */
    JOIN_TYPES,
    JOIN_ALL_OF,
    JOIN_TRUE,     /* either */
    JOIN_FALSE,    /* both must be true */
    JOIN_OPTIONS,  /* each of one with each of the other */
    JOIN_PATTERNS, /* a list of all of them */
    JOIN_LISTS,    /* of an object of arrays */
    JOIN_CONST,    /* nothing, unless they are equal */
    JOIN_MULTIPLES,
    JOIN_NOT, /* only equal ones */
};
#define MAX_OPTIONS 1000u
#define MAX_DEPTH 60 /* of references and allOf within one another */
static const struct {
    const char *name;
    enum join join;
} keywords[] = {{"type", JOIN_TYPES},
                {"nullable", JOIN_FALSE},
                {"enum", JOIN_COMMON},
                {"const", JOIN_CONST},
                {"anyOf", JOIN_OPTIONS},
                {"oneOf", JOIN_NOT}, /* add_keyword knows a way */
                {"properties", JOIN_MEMBERS},
                {"required", JOIN_UNION},
                {"additionalProperties", JOIN_ALL_OF},
                {"patternProperties", JOIN_MEMBERS},
                {"propertyNames", JOIN_ALL_OF},
                {"minProperties", JOIN_LARGER},
                {"maxProperties", JOIN_SMALLER},
                {"items", JOIN_ALL_OF},
                {"prefixItems", JOIN_NOT},
                {"minItems", JOIN_LARGER},
                {"maxItems", JOIN_SMALLER},
                {"uniqueItems", JOIN_TRUE},
                {"minLength", JOIN_LARGER},
                {"maxLength", JOIN_SMALLER},
                {"pattern", JOIN_PATTERNS},
                {"format", JOIN_NOT},
                {"minimum", JOIN_LARGER},
                {"maximum", JOIN_SMALLER},
                {"exclusiveMinimum", JOIN_LARGER},
                {"exclusiveMaximum", JOIN_SMALLER},
                {"multipleOf", JOIN_MULTIPLES},
                {"contains", JOIN_NOT},
                {"minContains", JOIN_LARGER},
                {"maxContains", JOIN_SMALLER},
                {"unevaluatedProperties", JOIN_NOT},
                {"unevaluatedItems", JOIN_NOT},
                {"not", JOIN_LISTS}};

static json_t *all_of(json_t *x, json_t *y)
{
    return json_pack("{s:[O,O]}", "allOf", x, y);
}

static json_t *join_members(json_t *x, json_t *y)
{
    const char *key;
    json_t *v, *out = json_copy(x);
    json_object_foreach(y, key, v)
    {
        json_t *other = json_object_get(out, key);
        if (!other)
            json_object_set(out, key, v);
        else if (!json_equal(other, v))
            json_object_set_new(out, key, all_of(other, v));
    }
    return out;
}

uint32_t schema_weight(const json_t *v)
{
    uint32_t n = 1;
    const char *key;
    json_t *x;
    if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, x)
        {
            n += schema_weight(x);
        }
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        n += schema_weight(json_array_get(v, i));
    return n;
}

static bool contains(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), v))
            return true;
    return false;
}

/* Values of x that are in y, or of y that are not in x behind all of x. */
static json_t *join_lists(struct schema *s, const json_t *x, const json_t *y, bool common)
{
    json_t *out = common ? json_array() : json_copy((json_t *)x);
    const json_t *from = common ? x : y, *to = common ? y : x;
    const uint32_t cost = schema_weight(to) / 64;
    for (size_t i = 0; i < json_array_size(from); i++) {
        s->work += cost;
        json_t *v = json_array_get(from, i);
        if (schema_works(s) && contains(to, v) == common)
            json_array_append(out, v);
    }
    return out;
}

/* "number" and "integer" meet in "integer". */
static json_t *join_types(const json_t *x, const json_t *y)
{
    json_t *a = json_is_array(x) ? json_copy((json_t *)x) : json_pack("[O]", x);
    json_t *b = json_is_array(y) ? json_copy((json_t *)y) : json_pack("[O]", y);
    json_t *out = json_array(), *number = json_string("number"), *integer = json_string("integer");
    for (size_t i = 0; i < json_array_size(a); i++) {
        json_t *t = json_array_get(a, i);
        if (contains(b, t))
            json_array_append(out, t);
        else if ((json_equal(t, number) && contains(b, integer)) ||
                 (json_equal(t, integer) && contains(b, number)))
            json_array_append(out, integer);
    }
    json_decref(number);
    json_decref(integer);
    json_decref(a);
    json_decref(b);
    return out;
}

/* Each option of x together with each of y, new; NULL: too many. */
static json_t *join_options(struct schema *s, json_t *x, json_t *y)
{
    json_t *out = json_array();
    size_t n = json_array_size(x), k = json_array_size(y);
    if (n > MAX_OPTIONS || k > MAX_OPTIONS || n * k > MAX_OPTIONS) {
        json_decref(out);
        schema_fail(s,
                    NULL,
                    "%zu options combined with %zu others (by allOf, $ref, oneOf, if or "
                    "dependentRequired) are more than %u",
                    n,
                    k,
                    MAX_OPTIONS);
        return NULL;
    }
    s->work += (uint32_t)(n * k);
    for (size_t i = 0; i < n * k; i++)
        json_array_append_new(out, all_of(json_array_get(x, i / k), json_array_get(y, i % k)));
    return out;
}

static json_t *listed(json_t *v)
{
    return json_is_array(v) ? json_copy(v) : json_pack("[O]", v);
}

static json_t *join_patterns(json_t *x, json_t *y)
{
    json_t *out = listed(x), *more = listed(y);
    json_array_extend(out, more);
    json_decref(more);
    return out;
}

/* {"enum": [...], "pattern": [...]}: the lists behind one another. */
static json_t *join_each(json_t *x, json_t *y)
{
    const char *key;
    json_t *v, *out = json_copy(x);
    json_object_foreach(y, key, v)
    {
        json_t *old = json_object_get(out, key), *both = old ? json_copy(old) : json_array();
        json_array_extend(both, v);
        json_object_set_new(out, key, both);
    }
    return out;
}

/* The least multiple of both, new; NULL: they are no integers, or too large. */
static json_t *common_multiple(double x, double y)
{
    if (x < 1 || y < 1 || x > 1e6 || y > 1e6 || x != (double)(int)x || y != (double)(int)y)
        return NULL;
    json_int_t a = (json_int_t)x, b = (json_int_t)y, rest = 0;
    for (json_int_t c = a, d = b; d > 0; c = d, d = rest) {
        rest = c % d;
        if (rest == 0)
            return json_integer(a / d * b);
    }
    return NULL;
}

/* The two as one, new; NULL with an error. */
static json_t *join(struct schema *s, const char *key, enum join how, json_t *x, json_t *y)
{
    bool numbers = json_is_number(x) && json_is_number(y);
    if (x == y)
        return json_incref(x);
    /* comparing y, and copying x */
    s->work += schema_weight(y) / 16 + (uint32_t)((json_object_size(x) + json_array_size(x)) / 8);
    if (!schema_works(s))
        return NULL;
    if (json_equal(x, y))
        return json_incref(x);
    switch (how) {
    case JOIN_LARGER:
        if (numbers)
            return json_incref(schema_compare_numbers(x, y) > 0 ? x : y);
        break;
    case JOIN_SMALLER:
        if (numbers)
            return json_incref(schema_compare_numbers(x, y) < 0 ? x : y);
        break;
    case JOIN_MEMBERS:
        if (json_is_object(x) && json_is_object(y))
            return join_members(x, y);
        break;
    case JOIN_UNION:
    case JOIN_COMMON:
        if (json_is_array(x) && json_is_array(y))
            return join_lists(s, x, y, how == JOIN_COMMON);
        break;
    case JOIN_TYPES:
        if (json_array_size(x) > 64 || json_array_size(y) > 64)
            break;
        return join_types(x, y);
    case JOIN_ALL_OF:
        return json_is_false(x) || json_is_false(y) ? json_false() : all_of(x, y);
    case JOIN_TRUE:
        return json_boolean(json_is_true(x) || json_is_true(y));
    case JOIN_FALSE:
        return json_boolean(json_is_true(x) && json_is_true(y));
    case JOIN_OPTIONS:
        if (json_is_array(x) && json_is_array(y))
            return join_options(s, x, y);
        break;
    case JOIN_PATTERNS:
        return join_patterns(x, y);
    case JOIN_LISTS:
        return join_each(x, y);
    case JOIN_CONST:
        return json_null(); /* add_keyword says that nothing conforms */
    case JOIN_MULTIPLES: {
        json_t *both = numbers ? common_multiple(json_number_value(x), json_number_value(y)) : NULL;
        if (both)
            return both;
        break;
    }
    case JOIN_NOT:
        break;
    }
    schema_fail(s, key, "cannot be combined with another \"%.40s\" (by allOf, anyOf or $ref)", key);
    return NULL;
}

/* Letters only, small ones: to find what is misspelt. */
static bool same_letters(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '_' || *a == '-' || *a == ' ')
            a++;
        if ((*a | 0x20) != (*b | 0x20))
            return false;
        if (*a == '\0' || *b == '\0')
            return *a == *b;
    }
}

/* A keyword that is nobody's: other vocabularies have theirs, and the specification says that they
 * count for nothing. One that is a misspelt keyword was meant to count. */
static bool is_foreign(struct schema *s, const char *key)
{
    static const char *const unsupported[] = {"extends", "disallow", "divisibleBy"};
    if (IS_ONE_OF(key, unsupported)) {
        schema_fail(s, key, "this keyword is not supported");
        return false;
    }
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (same_letters(key, keywords[i].name)) {
            schema_fail(s, key, "this keyword is written \"%s\"", keywords[i].name);
            return false;
        }
    }
    return true;
}

static size_t number_of(const char *key)
{
    size_t n = sizeof keywords / sizeof keywords[0], i = 0;
    while (i < n && strcmp(keywords[i].name, key) != 0)
        i++;
    return i;
}

bool schema_is_ignored(struct schema *s, const char *key)
{
    static const char *const others[] = {"oneOf",
                                         "if",
                                         "then",
                                         "else",
                                         "$ref",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "allOf",
                                         "dependencies",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "additionalItems"};
    return !IS_ONE_OF(key, others) &&
           (schema_is_annotation(key) ||
            (number_of(key) == sizeof keywords / sizeof keywords[0] && is_foreign(s, key)));
}

/* *never becomes true where no value satisfies both. */
static bool add_keyword(struct schema *s, json_t *m, const char *key, json_t *v, bool *never)
{
    size_t i = number_of(key);
    if (i == sizeof keywords / sizeof keywords[0])
        return is_foreign(s, key);
    json_t *old = json_object_get(m, key);
    if (old && keywords[i].join == JOIN_CONST && !json_equal(old, v)) {
        *never |= !schema_same_value(old, v);
        return true;
    }
    if (old && strcmp(key, "oneOf") == 0 && !json_equal(old, v)) {
        json_t *any = schema_exclusive(s, NULL, v);
        bool ok = any && add_keyword(s, m, "anyOf", any, never);
        json_decref(any);
        return ok;
    }
    json_t *joined = old ? join(s, key, keywords[i].join, old, v) : json_incref(v);
    return joined && json_object_set_new(m, key, joined) == 0;
}

/* The properties of x, and those of y under what x says of others: false, or a schema. */
static json_t *meet_members(const json_t *x, const json_t *y, const json_t *more)
{
    const char *key;
    json_t *v, *out = json_object();
    json_object_foreach(json_object_get(y, "properties"), key, v)
    {
        if (json_object_get(json_object_get(x, "properties"), key))
            json_object_set(out, key, v);
        else
            json_object_set_new(
                out, key, json_is_false(more) ? json_false() : all_of(v, (json_t *)more));
    }
    return out;
}

/* Does it say anything of members, by their names or of all others? */
static bool describes_members(const json_t *x)
{
    return json_object_get(x, "properties") || json_object_get(x, "patternProperties") ||
           json_object_get(x, "additionalProperties");
}

/* What one part says of members that it does not describe holds for its own properties only: so the
 * other's get it too. New references; *part is a copy where that changes it. */
static bool members_agree(struct schema *s, json_t *m, json_t **part)
{
    const json_t *x = json_object_get(m, "additionalProperties");
    const json_t *y = json_object_get(*part, "additionalProperties");
    bool x_says = x && !json_is_true(x), y_says = y && !json_is_true(y);
    if ((!x_says && !y_says) || !describes_members(m) || !describes_members(*part))
        return true;
    if (json_object_get(m, "patternProperties") || json_object_get(*part, "patternProperties")) {
        schema_fail(s,
                    "additionalProperties",
                    "cannot be combined with patternProperties (by allOf, anyOf or $ref)");
        return false;
    }
    s->work += (uint32_t)((json_object_size(json_object_get(m, "properties")) +
                           json_object_size(json_object_get(*part, "properties"))) /
                          8);
    json_t *of_part = x_says ? meet_members(m, *part, x) : NULL;
    json_t *of_m = y_says ? meet_members(*part, m, y) : NULL;
    if (of_part && json_object_get(*part, "properties")) {
        json_t *copy = json_copy(*part);
        json_object_set(copy, "properties", of_part);
        json_decref(*part);
        *part = copy;
    }
    if (of_m && json_object_get(m, "properties"))
        json_object_set(m, "properties", of_m);
    json_decref(of_part);
    json_decref(of_m);
    return true;
}

/* "nullable" belongs to the type beside it, and how often something is contained to what that is;
 * the lists of elements that older drafts have. New. */
static json_t *modernised(json_t *part)
{
    json_t *type = json_object_get(part, "type"), *items = json_object_get(part, "items");
    const json_t *nullable = json_object_get(part, "nullable");
    const bool contains = json_object_get(part, "contains");
    const json_t *least = json_object_get(part, "minContains");
    if (!json_is_boolean(nullable) && !json_is_array(items) && !contains && !least &&
        !json_object_get(part, "maxContains"))
        return json_incref(part);
    json_t *copy = json_copy(part);
    if (contains && !least) /* as where it is not said; another part may say 0 */
        json_object_set_new(copy, "minContains", json_integer(1));
    if (!contains) { /* without it they say nothing */
        json_object_del(copy, "minContains");
        json_object_del(copy, "maxContains");
    }
    if (type && json_is_true(nullable)) {
        json_t *types = json_is_array(type) ? json_copy(type) : json_pack("[O]", type);
        json_array_append_new(types, json_string("null"));
        json_object_set_new(copy, "type", types);
    }
    if (json_is_boolean(nullable)) /* without a type beside it, it says nothing */
        json_object_del(copy, "nullable");
    if (json_is_array(items) && !json_object_get(part, "prefixItems")) {
        json_t *more = json_object_get(part, "additionalItems");
        json_object_set(copy, "prefixItems", items);
        json_object_del(copy, "items");
        if (more)
            json_object_set(copy, "items", more);
    }
    json_object_del(copy, "additionalItems");
    return copy;
}

static bool flatten(struct schema *s, const json_t *schema, json_t *m, bool *never, uint32_t depth);

/* Add what not, if or a dependency comes to. */
static bool add_logic(struct schema *s,
                      const json_t *part,
                      const char *key,
                      json_t *v,
                      json_t *m,
                      bool *never,
                      uint32_t depth)
{
    bool plain;
    json_t *means = schema_logic(s, part, key, v, &plain);
    bool ok = means && (plain ? add_keyword(s, m, key, means, never)
                              : flatten(s, means, m, never, depth + 1));
    json_decref(means);
    return ok;
}

/* Add what the schema refers to and all of its allOf. */
static bool flatten_others(
    struct schema *s, const json_t *schema, json_t *m, bool *never, uint32_t depth)
{
    const json_t *all = json_object_get(schema, "allOf");
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)schema, key, v)
    {
        const json_t *target = schema_is_ref(key) ? schema_resolve(s, key, v) : NULL;
        if (schema_is_ref(key) && (!target || !flatten(s, target, m, never, depth + 1)))
            return false;
    }
    if (all && !json_is_array(all)) {
        schema_fail(s, "allOf", "must be an array");
        return false;
    }
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!flatten(s, json_array_get(all, i), m, never, depth + 1))
            return false;
    return true;
}

/* Add what `schema` says to m. *never becomes true where it is false. */
static bool flatten(struct schema *s, const json_t *schema, json_t *m, bool *never, uint32_t depth)
{
    const char *key;
    json_t *v;
    if (!schema_works(s))
        return false;
    if (json_is_true(schema))
        return true;
    if (json_is_false(schema)) {
        *never = true;
        return true;
    }
    if (!json_is_object(schema)) {
        schema_fail(s, NULL, "a schema is an object, true or false");
        return false;
    }
    if (depth > MAX_DEPTH) {
        schema_fail(
            s,
            NULL,
            "refers to itself without an end, or to others through more than %d of allOf and $ref",
            MAX_DEPTH);
        return false;
    }
    json_t *part = modernised((json_t *)schema);
    if (json_object_get(part, "unevaluatedProperties") ||
        json_object_get(part, "unevaluatedItems")) {
        json_t *copy = json_copy(part);
        json_decref(part);
        part = copy;
    }
    bool ok = schema_read_unevaluated(s, part, json_object_get(part, "contains"), m, depth) &&
              members_agree(s, m, &part) && schema_elements_agree(s, m, &part);
    static const char *const elsewhere[] = {
        "allOf", "then", "else", "additionalItems", SCHEMA_NEGATED};
    const bool negated = json_object_get(part, SCHEMA_NEGATED) != NULL;
    s->n_negated += negated;
    ok = ok && schema_note_evaluated(s, part, m);
    json_object_foreach(part, key, v)
    {
        if (!ok)
            break;
        if (s->n_negated > 0 && schema_has_unevaluated(m) && json_is_array(v) &&
            (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0)) {
            json_t *options = schema_negated_options(v);
            ok = add_keyword(s, m, key, options, never);
            json_decref(options);
            continue;
        }
        if (!schema_is_annotation(key) && !IS_ONE_OF(key, elsewhere) && !schema_is_ref(key) &&
            !schema_is_logic(key) && !schema_is_evaluated_list(s, part, key))
            ok = add_keyword(s, m, key, v, never);
    }
    /* last: what these come to are parts of their own, of which all that stands here must hold */
    json_object_foreach(part, key, v)
    {
        if (!ok)
            break;
        if (schema_is_logic(key))
            ok = add_logic(s, part, key, v, m, never, depth);
    }
    json_decref(part);
    ok = ok && flatten_others(s, schema, m, never, depth);
    s->n_negated -= negated;
    return ok;
}

json_t *schema_merge(struct schema *s, const json_t *schema)
{
    bool never = false;
    json_t *m = json_object();
    if (m && flatten(s, schema, m, &never, 0) && !never) {
        schema_settle_evaluated(s, m);
        if (!builder_failed(s->b))
            return m;
    }
    json_decref(m);
    return never && !builder_failed(s->b) ? json_false() : NULL;
}
