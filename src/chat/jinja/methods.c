/* The methods and attributes of everything but strings, and the table of all of them. */
#include "chat/jinja/eval.h"

#include <math.h>

/* ---- dicts ---- */

static struct jval dict_get(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jval *there = jdict_get(r, v.dict, a[0]);
    return there ? *there : a[1].kind == J_MISSING ? jval_none() : a[1];
}

static struct jval dict_view(struct jrun *r, struct jval v, int what)
{
    struct jview *view = jrun_alloc(r, sizeof *view);
    view->dict = v.dict;
    view->what = what;
    return (struct jval){.kind = J_VIEW, .view = view};
}

JBUILTIN(dict_keys, dict_view(r, v, VIEW_KEYS))
JBUILTIN(dict_values, dict_view(r, v, VIEW_VALUES))
JBUILTIN(dict_items, dict_view(r, v, VIEW_ITEMS))
JBUILTIN(itself, v)

static struct jval dict_fromkeys(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)v;
    struct jdict *d = jdict_new(r);
    struct jwalk w = jwalk_begin(r, a[0]);
    for (struct jval key; jwalk_next(r, &w, &key);)
        jdict_set(r, d, key, a[1].kind == J_MISSING ? jval_none() : a[1]);
    return jval_dict(d);
}

/* ---- lists, tuples, ranges ---- */

static struct jval list_count(struct jrun *r, struct jval v, const struct jval *a)
{
    int64_t n = 0;
    struct jwalk w = jwalk_begin(r, v);
    for (struct jval item; jwalk_next(r, &w, &item);)
        n += jval_eq(r, item, a[0]);
    return jval_int(n);
}

static struct jval list_index(struct jrun *r, struct jval v, const struct jval *a)
{
    int64_t n = jval_len(v), from = jarg_int(r, a[1], 0), to = jarg_int(r, a[2], n), i = 0;
    from = from < 0 ? from + n : from;
    to = to < 0 ? to + n : to;
    struct jwalk w = jwalk_begin(r, v);
    for (struct jval item; jwalk_next(r, &w, &item); i++)
        if (i >= from && i < to && jval_eq(r, item, a[0]))
            return jval_int(i);
    jrun_fail(r, "the value is not in the %s", jval_type(v));
}

JBUILTIN(range_start, jval_int(v.range->start))
JBUILTIN(range_stop, jval_int(v.range->stop))
JBUILTIN(range_step, jval_int(v.range->step))

/* ---- numbers ---- */

JBUILTIN(number_real,
         v.kind == J_BOOL ? (struct jval){.kind = J_INT, .input = v.input, .i = v.b} : v)
JBUILTIN(number_imag, v.kind == J_FLOAT ? jval_float(0.0) : jval_int(0))
JBUILTIN(int_denominator, jval_int(1))

static uint64_t magnitude(struct jval v)
{
    int64_t i = jval_as_int(v);
    return i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
}

JBUILTIN(int_bit_length, jval_int(magnitude(v) ? 64 - __builtin_clzll(magnitude(v)) : 0))
JBUILTIN(int_bit_count, jval_int(__builtin_popcountll(magnitude(v))))
JBUILTIN(float_is_integer, jval_bool(isfinite(v.f) && v.f == floor(v.f)))

/* ---- loops, cyclers, joiners ---- */

static struct jval loop_cycle(struct jrun *r, struct jval v, const struct jargs *args)
{
    if (args->n == 0)
        jrun_fail(r, "no items for cycling given");
    return args->items[(size_t)v.loop->index0 % args->n];
}

static struct jval loop_changed(struct jrun *r, struct jval v, const struct jargs *args)
{
    struct jval now = jval_tuple_of(r, args->items, args->n);
    if (v.loop->changed.kind == J_TUPLE && jval_eq(r, v.loop->changed, now))
        return jval_bool(false);
    v.loop->changed = now;
    return jval_bool(true);
}

JBUILTIN(cycler_current, v.cycler->items[v.cycler->at])

static struct jval cycler_next(struct jrun *r, struct jval v, const struct jval *a)
{
    struct jval current = cycler_current(r, v, a);
    v.cycler->at = (v.cycler->at + 1) % v.cycler->n;
    return current;
}

static struct jval cycler_reset(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)r;
    (void)a;
    v.cycler->at = 0;
    return jval_none();
}

JBUILTIN(cycler_pos, jval_int((int64_t)v.cycler->at))
JBUILTIN(joiner_sep, v.joiner->separator)
JBUILTIN(joiner_used, jval_bool(v.joiner->used))

/* ---- tables ---- */

static const struct jbuiltin dict_methods[] = {
    {"get", "/key default", 1, dict_get, NULL},
    {"keys", "", 0, dict_keys, NULL},
    {"values", "", 0, dict_values, NULL},
    {"items", "", 0, dict_items, NULL},
    {"copy", "", 0, itself, NULL},
    {"fromkeys", "/iterable value", 1, dict_fromkeys, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct jbuiltin list_methods[] = {
    {"copy", "", 0, itself, NULL}, /* not of tuples */
    {"count", "/value", 1, list_count, NULL},
    {"index", "/value start stop", 1, list_index, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct jbuiltin range_methods[] = {
    {"count", "/value", 1, list_count, NULL},
    {"index", "/value start stop", 1, list_index, NULL},
    {"start", NULL, 0, range_start, NULL},
    {"stop", NULL, 0, range_stop, NULL},
    {"step", NULL, 0, range_step, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct jbuiltin int_methods[] = {
    {"real", NULL, 0, number_real, NULL},
    {"imag", NULL, 0, number_imag, NULL},
    {"numerator", NULL, 0, number_real, NULL},
    {"denominator", NULL, 0, int_denominator, NULL},
    {"conjugate", "", 0, number_real, NULL},
    {"bit_length", "", 0, int_bit_length, NULL},
    {"bit_count", "", 0, int_bit_count, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct jbuiltin float_methods[] = {
    {"real", NULL, 0, number_real, NULL},
    {"imag", NULL, 0, number_imag, NULL},
    {"conjugate", "", 0, number_real, NULL},
    {"is_integer", "", 0, float_is_integer, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct jbuiltin loop_methods[] = {
    {"cycle", "", 0, NULL, loop_cycle},
    {"changed", "", 0, NULL, loop_changed},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct jbuiltin cycler_methods[] = {
    {"next", "", 0, cycler_next, NULL},
    {"reset", "", 0, cycler_reset, NULL},
    {"current", NULL, 0, cycler_current, NULL},
    {"pos", NULL, 0, cycler_pos, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct jbuiltin joiner_methods[] = {
    {"sep", NULL, 0, joiner_sep, NULL},
    {"used", NULL, 0, joiner_used, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

const struct jbuiltin *jmethod_find(struct jval v, const struct jstr *name)
{
    static const struct jbuiltin *const tables[] = {[J_BOOL] = int_methods,
                                                    [J_INT] = int_methods,
                                                    [J_FLOAT] = float_methods,
                                                    [J_STR] = jmethods_str,
                                                    [J_LIST] = list_methods,
                                                    [J_TUPLE] = list_methods + 1,
                                                    [J_DICT] = dict_methods,
                                                    [J_RANGE] = range_methods,
                                                    [J_LOOP] = loop_methods,
                                                    [J_CYCLER] = cycler_methods,
                                                    [J_JOINER] = joiner_methods,
                                                    [J_BLOCK] = NULL};
    for (const struct jbuiltin *b = tables[v.kind]; b && b->name; b++)
        if (jstr_is(name, b->name))
            return b;
    return NULL;
}
