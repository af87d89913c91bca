/* Does a value satisfy a JSON schema? Straight from the specification, for the keywords that the
 * tests use; patterns and formats by POSIX expressions, and dates by the C library. */
#ifndef TESTS_GRAMMAR_CHECKER_H
#define TESTS_GRAMMAR_CHECKER_H

#include <jansson.h>
#include <math.h>
#include <regex.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

static bool check(const json_t *root, const json_t *s, const json_t *v);

static bool check_regex(const char *text, const char *pattern)
{
    regex_t re;
    char posix[512];
    size_t n = 0;
    for (const char *p = pattern; *p; p++) { /* \d is all that the tests need of classes */
        const char *put = p[0] == '\\' && p[1] == 'd' ? "[0-9]" : NULL;
        n += (size_t)snprintf(posix + n, sizeof posix - n, "%s", put ? put : (char[]){*p, 0});
        p += put != NULL;
    }
    if (regcomp(&re, posix, REG_EXTENDED | REG_NOSUB))
        return false;
    bool ok = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return ok;
}

static bool check_date(const char *text, const char *format)
{
    struct tm tm = {0};
    const char *end = strptime(text, format, &tm);
    int day = tm.tm_mday, month = tm.tm_mon;
    if (!end)
        return false;
    tm.tm_isdst = 0;
    (void)timegm(&tm);
    return (format[1] != 'Y' || (tm.tm_mday == day && tm.tm_mon == month)) &&
           check_regex(end,
                       format[strlen(format) - 1] == 'd'
                           ? "^$"
                           : "^(\\.[0-9]+)?(Z|[+-][0-2][0-9]:[0-5][0-9])$");
}

static bool check_format(const char *text, const char *format)
{
    static const char *const known[][2] = {
        {"uuid", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        {"hostname",
         "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
        {"email", "^[A-Za-z0-9_.+-]+@[a-z0-9.-]+\\.[a-z]+$"},
        {"ipv4",
         "^((25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\\.){3}(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])$"}};
    if (strcmp(format, "date") == 0)
        return check_date(text, "%Y-%m-%d");
    if (strcmp(format, "time") == 0)
        return check_date(text, "%H:%M:%S");
    if (strcmp(format, "date-time") == 0)
        return check_date(text, "%Y-%m-%dT%H:%M:%S");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i][0], format) == 0)
            return check_regex(text, known[i][1]);
    return true; /* of others nothing is promised */
}

static bool is_type(const json_t *v, const char *type)
{
    bool whole = json_is_number(v) && json_number_value(v) == floor(json_number_value(v));
    return (strcmp(type, "null") == 0 && json_is_null(v)) ||
           (strcmp(type, "boolean") == 0 && json_is_boolean(v)) ||
           (strcmp(type, "integer") == 0 && whole) ||
           (strcmp(type, "number") == 0 && json_is_number(v)) ||
           (strcmp(type, "string") == 0 && json_is_string(v)) ||
           (strcmp(type, "array") == 0 && json_is_array(v)) ||
           (strcmp(type, "object") == 0 && json_is_object(v));
}

static bool check_type(const json_t *s, const json_t *v)
{
    const json_t *t = json_object_get(s, "type");
    bool ok = !t || (json_is_true(json_object_get(s, "nullable")) && json_is_null(v));
    if (json_is_string(t))
        return ok || is_type(v, json_string_value(t));
    for (size_t i = 0; i < json_array_size(t); i++)
        ok |= is_type(v, json_string_value(json_array_get(t, i)));
    return ok;
}

static size_t n_chars(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

/* What a bound says of x: sign +1 for lower ones. */
static bool bound(const json_t *s, const char *key, double x, int sign, bool strict)
{
    const json_t *b = json_object_get(s, key);
    double d = sign * (x - json_number_value(b));
    return !b || (strict ? d > 0 : d >= 0);
}

/* The same of a number: exactly, and as those have it who read doubles. A long double has room for
 * all integers of 64 bits. */
static bool bounds_number(const json_t *s, const char *key, const json_t *v, int sign, bool strict)
{
    const json_t *b = json_object_get(s, key);
    long double at = json_is_integer(b) ? (long double)json_integer_value(b) : json_number_value(b);
    long double x = json_is_integer(v) ? (long double)json_integer_value(v) : json_number_value(v);
    int order = sign * ((x > at) - (x < at));
    return bound(s, key, json_number_value(v), sign, strict) &&
           (!b || (strict ? order > 0 : order >= 0));
}

static bool is_multiple(const json_t *s, double x)
{
    const json_t *by = json_object_get(s, "multipleOf");
    double times = x / json_number_value(by); /* as validators do it */
    return !by || times == floor(times);
}

static bool check_plain(const json_t *s, const json_t *v)
{
    if (json_is_number(v)) {
        double x = json_number_value(v);
        return bounds_number(s, "minimum", v, 1, false) &&
               bounds_number(s, "maximum", v, -1, false) &&
               bounds_number(s, "exclusiveMinimum", v, 1, true) &&
               bounds_number(s, "exclusiveMaximum", v, -1, true) && is_multiple(s, x);
    }
    if (json_is_string(v)) {
        const char *text = json_string_value(v);
        const json_t *pattern = json_object_get(s, "pattern"),
                     *format = json_object_get(s, "format");
        return bound(s, "minLength", (double)n_chars(text), 1, false) &&
               bound(s, "maxLength", (double)n_chars(text), -1, false) &&
               (!pattern || check_regex(text, json_string_value(pattern))) &&
               (!format || check_format(text, json_string_value(format)));
    }
    return true;
}

static bool check_array(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *first = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    double n = (double)json_array_size(v);
    if (!bound(s, "minItems", n, 1, false) || !bound(s, "maxItems", n, -1, false))
        return false;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = i < json_array_size(first) ? json_array_get(first, i) : items;
        if (json_is_array(items)) /* as older drafts have it */
            one = i < json_array_size(items) ? json_array_get(items, i)
                                             : json_object_get(s, "additionalItems");
        if (one && !check(root, one, json_array_get(v, i)))
            return false;
    }
    const json_t *kind = json_object_get(s, "contains"), *least = json_object_get(s, "minContains");
    const json_t *most = json_object_get(s, "maxContains");
    size_t found = 0, need = least ? (size_t)json_integer_value(least) : 1;
    for (size_t i = 0; i < json_array_size(v); i++)
        found += kind && check(root, kind, json_array_get(v, i));
    for (size_t i = 0; json_is_true(json_object_get(s, "uniqueItems")) && i < json_array_size(v);
         i++)
        for (size_t k = 0; k < i; k++)
            if (json_equal(json_array_get(v, i), json_array_get(v, k)))
                return false;
    return !kind || (found >= need && (!most || found <= (size_t)json_integer_value(most)));
}

static bool check_object(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *properties = json_object_get(s, "properties"),
                 *more = json_object_get(s, "additionalProperties");
    const json_t *patterns = json_object_get(s, "patternProperties"),
                 *names = json_object_get(s, "propertyNames");
    const json_t *required = json_object_get(s, "required");
    double n = (double)json_object_size(v);
    const char *key, *pattern;
    json_t *x, *sub;
    if (!bound(s, "minProperties", n, 1, false) || !bound(s, "maxProperties", n, -1, false))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i))))
            return false;
    json_object_foreach(json_object_get(s, "dependentRequired"), key, x)
    {
        for (size_t i = 0; json_object_get(v, key) && i < json_array_size(x); i++)
            if (!json_object_get(v, json_string_value(json_array_get(x, i))))
                return false;
    }
    json_object_foreach((json_t *)v, key, x)
    {
        const json_t *one = json_object_get(properties, key);
        bool known = one != NULL;
        if (one && !check(root, one, x))
            return false;
        json_object_foreach((json_t *)patterns, pattern, sub)
        {
            if (!check_regex(key, pattern))
                continue;
            known = true;
            if (!check(root, sub, x))
                return false;
        }
        if (!known && more && !check(root, more, x))
            return false;
        json_t *name = json_string(key);
        bool ok = !names || check(root, names, name);
        json_decref(name);
        if (!ok)
            return false;
    }
    return true;
}

static const json_t *look_up(const json_t *root, const char *pointer)
{
    char part[256];
    while (*pointer == '/') {
        size_t n = 0;
        for (pointer++; *pointer && *pointer != '/'; pointer++) {
            if (*pointer == '~')
                part[n++] = *++pointer == '0' ? '~' : '/';
            else
                part[n++] = *pointer;
        }
        part[n] = '\0';
        root = json_object_get(root, part);
    }
    return root;
}

static size_t n_satisfied(const json_t *root, const json_t *list, const json_t *v)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        n += check(root, json_array_get(list, i), v);
    return n;
}

static bool check(const json_t *root, const json_t *s, const json_t *v)
{
    if (json_is_boolean(s))
        return json_is_true(s);
    const json_t *ref = json_object_get(s, "$ref"), *one = json_object_get(s, "const");
    const json_t *list = json_object_get(s, "enum"), *all = json_object_get(s, "allOf");
    const json_t *any = json_object_get(s, "anyOf"), *exactly = json_object_get(s, "oneOf");
    const json_t *not = json_object_get(s, "not"), *cond = json_object_get(s, "if");
    bool listed = !list;
    if (not &&check(root, not, v))
        return false;
    if (cond) {
        const json_t *then = json_object_get(s, check(root, cond, v) ? "then" : "else");
        if (then && !check(root, then, v))
            return false;
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        listed |= json_equal(json_array_get(list, i), v);
    return (!ref || check(root, look_up(root, json_string_value(ref) + 1), v)) &&
           (!one || json_equal(one, v)) && listed && check_type(s, v) && check_plain(s, v) &&
           (!json_is_array(v) || check_array(root, s, v)) &&
           (!json_is_object(v) || check_object(root, s, v)) &&
           n_satisfied(root, all, v) == json_array_size(all) &&
           (!any || n_satisfied(root, any, v) > 0) &&
           (!exactly || n_satisfied(root, exactly, v) == 1);
}

#endif
