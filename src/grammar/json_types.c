/* Values of one type, by the keywords that speak of it. Those of other types say nothing here. */
#include "grammar/json_schema.h"

#include <math.h>
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

/* i and d, exactly: a double has no room for all integers. */
static int compare_integer(json_int_t i, double d)
{
    const double beyond = 9223372036854775808.0; /* 2^63 */
    if (d >= beyond || d < -beyond)
        return d < 0 ? 1 : -1;
    json_int_t whole = (json_int_t)d;
    double rest = d - trunc(d);
    return i != whole ? (i > whole) - (i < whole) : (rest < 0) - (rest > 0);
}

int schema_compare_numbers(const json_t *x, const json_t *y)
{
    if (json_is_integer(x) && json_is_integer(y))
        return (json_integer_value(x) > json_integer_value(y)) -
               (json_integer_value(x) < json_integer_value(y));
    if (json_is_integer(x))
        return compare_integer(json_integer_value(x), json_real_value(y));
    if (json_is_integer(y))
        return -compare_integer(json_integer_value(y), json_real_value(x));
    return (json_real_value(x) > json_real_value(y)) - (json_real_value(x) < json_real_value(y));
}

bool schema_same_value(const json_t *x, const json_t *y)
{
    const char *key;
    json_t *v;
    if (json_is_number(x) && json_is_number(y))
        return schema_compare_numbers(x, y) == 0;
    if (json_is_object(x) && json_is_object(y) && json_object_size(x) == json_object_size(y)) {
        json_object_foreach((json_t *)x, key, v)
        {
            if (!schema_same_value(v, json_object_get(y, key)))
                return false;
        }
        return true;
    }
    bool arrays = json_is_array(x) && json_is_array(y) && json_array_size(x) == json_array_size(y);
    for (size_t i = 0; arrays && i < json_array_size(x); i++)
        if (!schema_same_value(json_array_get(x, i), json_array_get(y, i)))
            return false;
    return arrays || json_equal(x, y);
}

double schema_inner_double(const json_t *bound, bool lower)
{
    double x = json_number_value(bound);
    int order = json_is_integer(bound) ? compare_integer(json_integer_value(bound), x) : 0;
    if (lower ? order > 0 : order < 0)
        return nextafter(x, lower ? INFINITY : -INFINITY);
    return x;
}

bool schema_is_inexact(const json_t *v)
{
    const char *key;
    json_t *x;
    if (json_is_real(v))
        return fabs(json_real_value(v)) >= 9223372036854775808.0; /* 2^63 */
    json_object_foreach((json_t *)v, key, x)
    {
        if (schema_is_inexact(x))
            return true;
    }
    for (size_t i = 0; i < json_array_size(v); i++)
        if (schema_is_inexact(json_array_get(v, i)))
            return true;
    return false;
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
                 {"ontains", TYPE_ARRAY},
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
