/* Filters on numbers and on values of any kind, and the table of all filters. */
#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct jval filter_default(struct jrun *r, struct jval v, const struct jval *a)
{
    if (v.kind != J_UNDEFINED && !(jarg_bool(r, a[1], false) && !jval_true(r, v)))
        return v;
    return a[0].kind == J_MISSING ? jval_str(jstr_lit(r, "")) : a[0];
}

static struct jval filter_attr(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jstr *name = jarg_str(r, a[0]);
    /* only what is an attribute: the keys of a dict are none */
    if (v.kind == J_DICT && !jmethod_find(v, name))
        return jval_undefined_as(r, "'dict object' has no such attribute");
    return jval_attr(r, v, name);
}

static struct jval filter_int(struct jrun *r, struct jval v, const struct jval *a)
{
    struct jval missing = a[0].kind == J_MISSING ? jval_int(0) : a[0];
    int64_t base = jarg_int(r, a[1], 10), i;
    double f;
    jval_expect_defined(r, v);
    if (jval_is_int(v))
        return (struct jval){.kind = J_INT, .input = v.input, .i = jval_as_int(v)};
    if (v.kind == J_FLOAT) {
        if (isinf(v.f))
            jrun_fail(r, "cannot convert float infinity to integer");
        if (isnan(v.f))
            return missing;
        f = v.f;
    } else if (v.kind == J_STR && jnumber_parse_int(r, v.s, base, &i)) {
        return (struct jval){.kind = J_INT, .input = !jstr_trusted(v.s), .i = i};
    } else if (v.kind != J_STR || !jnumber_parse_float(r, v.s, &f) || !isfinite(f)) {
        return missing;
    }
    if (!(fabs(f) < 9.2e18))
        jrun_fail(r, "an integer has more than 64 bits");
    bool input = v.kind == J_STR ? !jstr_trusted(v.s) : v.input;
    return (struct jval){.kind = J_INT, .input = input, .i = (int64_t)f};
}

static struct jval filter_float(struct jrun *r, struct jval v, const struct jval *a)
{
    double f;
    jval_expect_defined(r, v);
    if (jval_is_number(v))
        return (struct jval){.kind = J_FLOAT, .input = v.input, .f = jval_as_float(v)};
    if (v.kind == J_STR && jnumber_parse_float(r, v.s, &f))
        return (struct jval){.kind = J_FLOAT, .input = !jstr_trusted(v.s), .f = f};
    return a[0].kind == J_MISSING ? jval_float(0.0) : a[0];
}

static struct jval filter_abs(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    jval_expect_defined(r, v);
    if (!jval_is_number(v))
        jrun_fail(r, "bad operand type for abs(): '%s'", jval_type(v));
    if (v.kind == J_FLOAT)
        return (struct jval){.kind = J_FLOAT, .input = v.input, .f = fabs(v.f)};
    int64_t i = jval_as_int(v);
    if (i == INT64_MIN)
        jrun_fail(r, "an integer has more than 64 bits");
    return (struct jval){.kind = J_INT, .input = v.input, .i = i < 0 ? -i : i};
}

/* Half goes to the even neighbour. */
static int64_t round_int(struct jrun *r, int64_t i, int64_t precision)
{
    int64_t unit = 1;
    if (precision >= 0)
        return i;
    for (; precision < 0; precision++)
        if (__builtin_mul_overflow(unit, 10, &unit))
            return 0;
    int64_t rest = i % unit, half = unit / 2;
    __int128 down = (__int128)i - rest;
    if (rest < 0) {
        rest += unit;
        down -= unit;
    }
    bool up = rest > half || (rest == half && (down / unit) % 2 != 0);
    down += up ? unit : 0;
    if (down > INT64_MAX || down < INT64_MIN)
        jrun_fail(r, "an integer has more than 64 bits");
    return (int64_t)down;
}

/* The decimal digits of a double are exact in printf, so this rounds as Python does. */
static double round_float(double f, int64_t precision)
{
    char s[400];
    if (!isfinite(f) || precision > 300)
        return f;
    if (precision < 0) {
        double unit = pow(10.0, -(double)precision);
        return precision < -308 ? copysign(0.0, f) : rint(f / unit) * unit;
    }
    snprintf(s, sizeof s, "%.*f", (int)(precision > 30 ? 30 : precision), f);
    return precision > 30 ? f : jnumber_of(s);
}

static struct jval filter_round(struct jrun *r, struct jval v, const struct jval *a)
{
    int64_t precision = jarg_int(r, a[0], 0);
    const struct jstr *method = a[1].kind == J_MISSING ? jstr_lit(r, "common") : jarg_str(r, a[1]);
    bool up = jstr_is(method, "ceil"), down = jstr_is(method, "floor");
    if (!up && !down && !jstr_is(method, "common"))
        jrun_fail(r, "method must be common, ceil or floor");
    jval_expect_defined(r, v);
    if (!jval_is_number(v))
        jrun_fail(r, "type %s doesn't define __round__ method", jval_type(v));
    struct jval out;
    if (up || down) {
        double unit = pow(10.0, (double)precision), f = jval_as_float(v) * unit;
        if (!isfinite(f))
            jrun_fail(r, "cannot convert float to integer");
        out = jval_float(((up ? ceil(f) : floor(f)) + 0.0) / unit); /* never -0.0 */
    } else if (jval_is_int(v)) {
        out = jval_int(round_int(r, jval_as_int(v), precision));
    } else {
        out = jval_float(round_float(v.f, precision));
    }
    out.input = v.input;
    return out;
}

static struct jval filter_filesizeformat(struct jrun *r, struct jval v, const struct jval *a)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    bool is_binary = jarg_bool(r, a[0], false);
    double base = is_binary ? 1024.0 : 1000.0, bytes, unit;
    char s[400];
    if (v.kind == J_STR ? !jnumber_parse_float(r, v.s, &bytes) : !jval_is_number(v))
        jrun_fail(r, "could not convert to a float");
    if (v.kind != J_STR)
        bytes = jval_as_float(v);
    if (bytes == 1.0) {
        snprintf(s, sizeof s, "1 Byte");
    } else if (bytes < base) {
        snprintf(s, sizeof s, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        int i = 0;
        for (unit = base * base; i < 7 && !(bytes < unit); i++)
            unit *= base;
        snprintf(s, sizeof s, "%.1f %s", base * bytes / unit, (is_binary ? binary : decimal)[i]);
    }
    return jval_str(jstr_new(r, s, strlen(s), false));
}

/* As pprint prints what fits in a line: the keys of dicts are sorted. */
static void pprint(struct jsb *b, struct jval v)
{
    jrun_enter(b->r);
    if (v.kind == J_DICT)
        jval_put_pairs(b, jdict_sorted(b->r, v), v.dict->n, pprint);
    else if (v.kind == J_LIST)
        jval_put_items(b, v.list, "[", "]", pprint);
    else if (v.kind == J_TUPLE)
        jval_put_items(b, v.list, "(", v.list->n == 1 ? ",)" : ")", pprint);
    else
        jval_repr(b, v);
    jrun_leave(b->r);
}

static struct jval filter_pprint(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    struct jsb b = JSB(r);
    pprint(&b, v);
    const struct jstr *s = jsb_done(&b);
    if (s->n_chars > 80)
        jrun_fail(r, "pprint of more than a line is not supported");
    return jval_str(s);
}

static const struct jbuiltin filters_value[] = {
    {"default", "default_value boolean", 0, filter_default, NULL},
    {"d", "default_value boolean", 0, filter_default, NULL},
    {"attr", "name", 1, filter_attr, NULL},
    {"int", "default base", 0, filter_int, NULL},
    {"float", "default", 0, filter_float, NULL},
    {"abs", "", 0, filter_abs, NULL},
    {"round", "precision method", 0, filter_round, NULL},
    {"filesizeformat", "binary", 0, filter_filesizeformat, NULL},
    {"pprint", "", 0, filter_pprint, NULL},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, jval_tojson, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

const struct jbuiltin *jfilter_find(const struct jstr *name)
{
    const struct jbuiltin *const tables[] = {jfilters_text, jfilters_list, filters_value};
    for (size_t i = 0; i < 3; i++)
        for (const struct jbuiltin *b = tables[i]; b->name; b++)
            if (jstr_is(name, b->name))
                return b;
    return NULL;
}
