/* What schemas say of other schemas - not, if, dependencies, oneOf - in words of properties, bounds
 * and options, which merging and the rest know.
 *
 *      if C then T else E      anyOf [C and T, (not C) and E]
 *      not C                   anyOf of what makes each keyword of C fail
 *      a depends on b          anyOf [no a, a and b]
 *
 * A keyword speaks of one type and is kept by values of all others, so what makes it fail is of
 * that type. {"not": {"enum": [...], "pattern": [...], "multipleOf": [...], "type": ["integer"]}},
 * with lists, is what stays of `not`, none of which may hold: json_scalars.c takes these texts out
 * of an automaton. */
#include "grammar/json_schema.h"

#include <string.h>

#define MAX_LOGIC_DEPTH 24

static json_t *negate(struct schema *s, const json_t *x, uint32_t depth);

/* Takes one; false: it is NULL. */
static bool add(json_t *list, json_t *one)
{
    return json_array_append_new(list, one) == 0;
}

/* {key: v}, of one type; takes v. */
static json_t *typed(const char *type, const char *key, json_t *v)
{
    return v ? json_pack("{s:s, s:o}", "type", type, key, v) : NULL;
}

static json_t *one_property(const char *key, json_t *schema)
{
    json_t *properties = json_object();
    json_object_set_new(properties, key, schema);
    return properties;
}

/* Add what is not of one of these types. Integers are numbers, so what is none may be a number. */
static void other_types(const json_t *v, json_t *out)
{
    static const char *const all[] = {"null", "boolean", "number", "string", "array", "object"};
    json_t *others = json_array(),
           *list = json_is_array(v) ? json_copy((json_t *)v) : json_pack("[O]", v);
    bool integer = false, number = false;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        bool has = false;
        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *name = json_string_value(json_array_get(list, k));
            has |= name && strcmp(name, all[i]) == 0;
            integer |= name && strcmp(name, "integer") == 0;
        }
        number |= has && i == 2;
        if (!has && !(i == 2 && integer))
            json_array_append_new(others, json_string(all[i]));
    }
    json_decref(list);
    json_array_append_new(out, json_pack("{s:o}", "type", others));
    if (integer && !number)
        json_array_append_new(
            out, json_pack("{s:s, s:{s:[s]}}", "type", "number", "not", "type", "integer"));
}

/* Add what lacks an element that the keyword asks for, or has one that fails. */
static bool negate_items(
    struct schema *s, const json_t *x, const char *key, json_t *v, json_t *out, uint32_t depth)
{
    if (strcmp(key, "items") == 0) {
        json_t *inner =
            json_is_array(v) || json_object_get(x, "prefixItems") ? NULL : negate(s, v, depth + 1);
        return add(out, typed("array", "contains", inner));
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *inner = negate(s, json_array_get(v, i), depth + 1), *first = json_array();
        if (!inner) {
            json_decref(first);
            return false;
        }
        for (size_t k = 0; k < i; k++)
            json_array_append_new(first, json_true());
        json_array_append_new(first, inner);
        json_t *one = typed("array", "prefixItems", first);
        json_object_set_new(one, "minItems", json_integer((json_int_t)i + 1));
        json_array_append_new(out, one);
    }
    return json_is_array(v);
}

/* n + by as a count; NULL: below 0, where nothing fails. */
static json_t *count(const json_t *v, int by)
{
    double n = json_number_value(v) + by;
    return json_is_number(v) && n >= 0 && n < 1e9 ? json_integer((json_int_t)n) : NULL;
}

/* What a bound becomes where it fails. */
struct bound {
    const char *key, *type, *other;
    int by; /* of counts; 2: of numbers, as they are */
};

/* NULL: it is no bound. */
static const struct bound *find_bound(const char *key)
{
    static const struct bound bounds[] = {{"minimum", "number", "exclusiveMaximum", 2},
                                          {"maximum", "number", "exclusiveMinimum", 2},
                                          {"exclusiveMinimum", "number", "maximum", 2},
                                          {"exclusiveMaximum", "number", "minimum", 2},
                                          {"minLength", "string", "maxLength", -1},
                                          {"maxLength", "string", "minLength", 1},
                                          {"minItems", "array", "maxItems", -1},
                                          {"maxItems", "array", "minItems", 1},
                                          {"minProperties", "object", "maxProperties", -1},
                                          {"maxProperties", "object", "minProperties", 1}};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (strcmp(key, bounds[i].key) == 0)
            return &bounds[i];
    return NULL;
}

static bool negate_bound(const struct bound *bound, json_t *v, json_t *out)
{
    if (!json_is_number(v))
        return false;
    json_t *limit = bound->by == 2 ? json_incref(v) : count(v, bound->by);
    if (limit)
        json_array_append_new(out, typed(bound->type, bound->other, limit));
    return true;
}

static bool negate_required(const json_t *v, json_t *out)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name)
            return false;
        json_array_append_new(out, typed("object", "properties", one_property(name, json_false())));
    }
    return json_is_array(v);
}

static bool negate_properties(struct schema *s, json_t *v, json_t *out, uint32_t depth)
{
    const char *name;
    json_t *sub;
    json_object_foreach(v, name, sub)
    {
        json_t *inner = negate(s, sub, depth + 1);
        if (!inner)
            return false;
        if (json_is_false(inner)) /* it cannot fail */
            continue;
        json_t *one = typed("object", "properties", one_property(name, inner));
        json_object_set_new(one, "required", json_pack("[s]", name));
        json_array_append_new(out, one);
    }
    return json_is_object(v);
}

/* allOf: one of them fails; else anyOf: all of them. */
static bool negate_options(
    struct schema *s, bool all_of, const json_t *v, json_t *out, uint32_t depth)
{
    json_t *all = json_array();
    bool ok = json_is_array(v);
    for (size_t i = 0; ok && i < json_array_size(v); i++)
        ok = add(all, negate(s, json_array_get(v, i), depth + 1));
    if (ok && all_of)
        json_array_extend(out, all);
    else if (ok)
        json_array_append_new(out, json_pack("{s:O}", "allOf", all));
    json_decref(all);
    return ok;
}

static bool negate_contains(struct schema *s, const json_t *v, json_t *out, uint32_t depth)
{
    json_t *inner = negate(s, v, depth + 1);
    json_t *one = inner ? typed("array", "items", inner) : NULL;
    schema_mark_negated(one);
    return add(out, one);
}

/* Add what makes one keyword fail; false: that cannot be said. */
static bool negate_keyword(
    struct schema *s, const json_t *x, const char *key, json_t *v, json_t *out, uint32_t depth)
{
    const struct bound *bound = find_bound(key);
    if (bound)
        return negate_bound(bound, v, out);
    if (strcmp(key, "const") == 0)
        return add(out, json_pack("{s:{s:[O]}}", "not", "enum", v));
    if (strcmp(key, "enum") == 0 && json_is_array(v))
        return add(out, json_pack("{s:{s:O}}", "not", "enum", v));
    if (strcmp(key, "pattern") == 0)
        return add(out, json_pack("{s:s, s:{s:[O]}}", "type", "string", "not", "pattern", v));
    if (strcmp(key, "type") == 0) {
        other_types(v, out);
        return true;
    }
    if (strcmp(key, "multipleOf") == 0) {
        const double n = json_number_value(v);
        return n >= 1 && n <= 1000 && n == (double)(int)n &&
               add(out, json_pack("{s:s, s:{s:[O]}}", "type", "number", "not", "multipleOf", v));
    }
    if (strcmp(key, "items") == 0 || strcmp(key, "prefixItems") == 0)
        return negate_items(s, x, key, v, out, depth);
    if (strcmp(key, "not") == 0)
        return add(out, schema_negated_all(v));
    if (strcmp(key, "required") == 0)
        return negate_required(v, out);
    if (strcmp(key, "properties") == 0)
        return negate_properties(s, v, out, depth);
    if (strcmp(key, "allOf") == 0 || strcmp(key, "anyOf") == 0)
        return negate_options(s, key[1] == 'l', v, out, depth);
    if (strcmp(key, "contains") == 0 && !json_object_get(x, "minContains") &&
        !json_object_get(x, "maxContains"))
        return negate_contains(s, v, out, depth);
    if (strcmp(key, SCHEMA_NEGATED) == 0)
        return true;
    return schema_is_ignored(s, key);
}

/* A schema that holds where x does not, new; NULL, without an error: that cannot be said. */
static json_t *negate(struct schema *s, const json_t *x, uint32_t depth)
{
    const char *key;
    json_t *v;
    if (!schema_works(s) || depth > MAX_LOGIC_DEPTH)
        return NULL;
    if (json_is_boolean(x))
        return json_boolean(json_is_false(x));
    if (!json_is_object(x))
        return NULL;
    json_t *out = json_array();
    bool ok = true;
    json_object_foreach((json_t *)x, key, v)
    {
        if (schema_is_ref(key)) {
            const json_t *target = schema_resolve(s, key, v);
            json_t *inner = target ? negate(s, target, depth + 1) : NULL;
            ok = add(out, inner);
        } else {
            ok = negate_keyword(s, x, key, v, out, depth);
        }
        if (!ok)
            break;
    }
    size_t n = json_array_size(out);
    for (size_t i = 0; i < json_array_size(out); i++) /* what is not so describes nothing */
        if (json_object_get(json_array_get(out, i), "properties") ||
            json_object_get(json_array_get(out, i), "prefixItems"))
            schema_mark_negated(json_array_get(out, i));
    json_t *made = !ok      ? NULL
                   : n == 0 ? json_false()
                   : n == 1 ? json_incref(json_array_get(out, 0))
                            : json_pack("{s:O}", "anyOf", out);
    json_decref(out);
    return made;
}

json_t *schema_negate(struct schema *s, const json_t *x)
{
    return negate(s, x, 0);
}

/* if, then, else as options; NULL with an error. */
static json_t *conditional(struct schema *s, const json_t *x)
{
    json_t *c = json_object_get(x, "if"), *yes = json_object_get(x, "then");
    json_t *no = json_object_get(x, "else");
    if (!yes && !no)
        return json_true();
    json_t *other = schema_negate(s, c);
    if (!other) {
        schema_fail(s, "if", "what it says cannot be turned round: use anyOf");
        return NULL;
    }
    json_t *one = yes ? json_pack("{s:[O,O]}", "allOf", c, yes) : json_incref(c);
    json_t *two = no ? json_pack("{s:[o,O]}", "allOf", other, no) : other;
    return json_pack("{s:[o,o]}", "anyOf", one, two);
}

/* Members that others need: lists of names, or schemas. */
static json_t *dependent(struct schema *s, const char *keyword, json_t *v)
{
    const char *key;
    json_t *needs, *all = json_array();
    if (!json_is_object(v)) {
        schema_fail(s, keyword, "must be an object");
        json_decref(all);
        return NULL;
    }
    json_object_foreach(v, key, needs)
    {
        json_t *without = typed("object", "properties", one_property(key, json_false()));
        json_t *with = json_pack("{s:[s]}", "required", key);
        if (json_is_array(needs))
            json_array_extend(json_object_get(with, "required"), needs);
        else
            json_object_set_new(with, "allOf", json_pack("[O]", needs));
        /* values that are no objects have no members that could need others */
        json_object_del(without, "type");
        schema_mark_negated(without);
        json_array_append_new(all, json_pack("{s:[o,o]}", "anyOf", without, with));
    }
    return json_pack("{s:o}", "allOf", all);
}

bool schema_is_logic(const char *key)
{
    static const char *const keys[] = {
        "not", "if", "dependentRequired", "dependentSchemas", "dependencies"};
    return IS_ONE_OF(key, keys);
}

/* Lists under "not" are what stays of it. */
static bool is_left(const json_t *v)
{
    const char *key;
    json_t *x;
    bool left = json_object_size(v) > 0;
    json_object_foreach((json_t *)v, key, x)
    {
        left &= json_is_array(x) &&
                (strcmp(key, "enum") == 0 || strcmp(key, "pattern") == 0 ||
                 strcmp(key, "multipleOf") == 0 ||
                 (strcmp(key, "type") == 0 && json_array_size(x) == 1 &&
                  strcmp("integer", json_string_value(json_array_get(x, 0)) ?: "") == 0));
    }
    return left;
}

json_t *schema_logic(struct schema *s, const json_t *x, const char *key, json_t *v, bool *plain)
{
    *plain = strcmp(key, "not") == 0 && is_left(v);
    if (*plain)
        return json_incref(v);
    if (strcmp(key, "if") == 0)
        return conditional(s, x);
    if (strcmp(key, "not") != 0)
        return dependent(s, key, v);
    json_t *other = schema_negate(s, v);
    if (!other && !builder_failed(s->b))
        schema_fail(s, "not", "what it says cannot be turned round");
    return other;
}
