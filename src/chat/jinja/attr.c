/* v.name, v[index] and v[a:b:c]. */
#include "chat/jinja/eval.h"

#include <stdio.h>
#include <string.h>

static struct jval no_attr(struct jrun *r, struct jval v, const struct jstr *name)
{
    const char *type = v.kind == J_NONE ? "None" : jval_type(v);
    return jval_undefined_as(r,
                             "'%s%s' has no attribute '%.*s'",
                             type,
                             v.kind == J_NONE ? "" : " object",
                             JSTR_UP_TO(60, name));
}

static struct jval unsafe_attr(struct jrun *r, struct jval v, const struct jstr *name)
{
    return jval_undefined_as(r,
                             "access to attribute '%.*s' of '%s' object is unsafe.",
                             JSTR_UP_TO(60, name),
                             jval_type(v));
}

static bool in_list(const struct jstr *name, const char *const *list)
{
    for (; *list; list++)
        if (jstr_is(name, *list))
            return true;
    return false;
}

/* What the immutable sandbox does not let a template touch, though it is there. */
static bool is_unsafe(struct jval v, const struct jstr *name)
{
    static const char *const lists[] = {
        "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL};
    static const char *const dicts[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    if (name->len > 4 && memcmp(name->data, "__", 2) == 0 &&
        memcmp(name->data + name->len - 2, "__", 2) == 0)
        return v.kind != J_NAMESPACE;
    return (v.kind == J_LIST && in_list(name, lists)) || (v.kind == J_DICT && in_list(name, dicts));
}

static struct jval macro_attr(struct jrun *r, const struct jnode *n, const struct jstr *name)
{
    if (jstr_is(name, "name"))
        return n->text ? jval_str(n->text) : jval_none();
    if (jstr_is(name, "caller"))
        return jval_bool(n->uses_caller);
    if (jstr_is(name, "catch_kwargs"))
        return jval_bool(n->uses_kwargs);
    if (jstr_is(name, "catch_varargs"))
        return jval_bool(n->uses_varargs);
    if (jstr_is(name, "arguments")) {
        struct jval *items = jrun_alloc_n(r, n->args->n, sizeof *items);
        for (size_t i = 0; i < n->args->n; i++)
            items[i] = jval_str(n->args->items[i].name);
        return jval_tuple(r, items, n->args->n);
    }
    return (struct jval){.kind = J_MISSING};
}

static struct jval block_attr(struct jrun *r, const struct jstr *name)
{
    const struct jnodes *blocks = &r->tmpl->blocks;
    jrun_charge(r, blocks->n / 16);
    for (size_t i = 0; i < blocks->n; i++)
        if (jstr_eq(blocks->items[i]->text, name))
            return (struct jval){.kind = J_BLOCK, .block = blocks->items[i]};
    return (struct jval){.kind = J_MISSING};
}

/* getattr(v, name); J_MISSING where Python would raise AttributeError. */
static struct jval get_attr(struct jrun *r, struct jval v, const struct jstr *name)
{
    const struct jval *there;
    struct jval found = {.kind = J_MISSING};
    if (is_unsafe(v, name))
        return unsafe_attr(r, v, name);
    switch (v.kind) {
    case J_NAMESPACE:
        there = jdict_get_str(r, v.dict, name);
        if (there && name->data[0] == '_')
            return unsafe_attr(r, v, name);
        return there ? *there : found;
    case J_LOOP:
        found = jloop_attr(r, v, name);
        break;
    case J_MACRO:
        return macro_attr(r, v.macro->node, name);
    case J_BLOCKS:
        return block_attr(r, name);
    case J_TUPLE:
        if (v.list->group && (jstr_is(name, "grouper") || jstr_is(name, "list")))
            return v.list->items[jstr_is(name, "list")];
        break;
    default:
        break;
    }
    const struct jbuiltin *b = found.kind == J_MISSING ? jmethod_find(v, name) : NULL;
    if (!b)
        return found;
    if (!b->params) /* a value, not a function */
        return b->fn(r, v, NULL);
    struct jmethod *m = jrun_alloc(r, sizeof *m);
    *m = (struct jmethod){b, v};
    return (struct jval){.kind = J_METHOD, .method = m};
}

struct jval jval_attr(struct jrun *r, struct jval v, const struct jstr *name)
{
    jval_expect_defined(r, v);
    struct jval found = get_attr(r, v, name);
    if (found.kind != J_MISSING)
        return found;
    const struct jval *value = v.kind == J_DICT ? jdict_get_str(r, v.dict, name) : NULL;
    return value ? *value : no_attr(r, v, name);
}

/* ---- indices ---- */

static struct jval at_index(struct jrun *r, struct jval v, int64_t i)
{
    int64_t n = jval_len(v);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return (struct jval){.kind = J_MISSING};
    if (v.kind == J_STR) {
        size_t begin = jstr_byte_at(r, v.s, (size_t)i), end = begin;
        jstr_next(v.s, &end);
        return jval_str(jstr_sub(r, v.s, begin, end));
    }
    if (v.kind == J_RANGE)
        return jval_int(v.range->start + i * v.range->step);
    return v.list->items[i];
}

struct jval jval_item(struct jrun *r, struct jval v, struct jval index)
{
    jval_expect_defined(r, v);
    struct jval found = {.kind = J_MISSING};
    if (v.kind == J_DICT) {
        const struct jval *value = jval_hashable(r, index) ? jdict_get(r, v.dict, index) : NULL;
        found = value ? *value : found;
    } else if (jval_is_int(index) &&
               (v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE || v.kind == J_RANGE)) {
        found = at_index(r, v, jval_as_int(index));
    }
    if (found.kind == J_MISSING && index.kind == J_STR)
        found = get_attr(r, v, index.s);
    if (found.kind != J_MISSING)
        return found;
    if (index.kind == J_STR)
        return no_attr(r, v, index.s);
    return jval_undefined_as(r, "%s object has no element of that index", jval_type(v));
}

/* ---- slices ---- */

struct slice {
    int64_t start, step, n;
};

/* As Python's slice.indices: bounds beyond the ends are brought to them. */
static int64_t clamp(int64_t i, int64_t n, bool backwards)
{
    if (i < 0)
        i = i < -n ? (backwards ? -1 : 0) : i + n;
    else if (i >= n)
        i = backwards ? n - 1 : n;
    return i;
}

static struct slice bounds_of(struct jrun *r, const struct jval bounds[3], int64_t n)
{
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != J_NONE && !jval_is_int(bounds[i]))
            jrun_fail(r, "slice indices must be integers or None");
    struct slice s = {.step = bounds[2].kind == J_NONE ? 1 : jval_as_int(bounds[2])};
    if (s.step == 0)
        jrun_fail(r, "slice step cannot be zero");
    bool back = s.step < 0;
    int64_t stop =
        bounds[1].kind == J_NONE ? (back ? -1 : n) : clamp(jval_as_int(bounds[1]), n, back);
    s.start =
        bounds[0].kind == J_NONE ? (back ? n - 1 : 0) : clamp(jval_as_int(bounds[0]), n, back);
    int64_t span = back ? s.start - stop : stop - s.start;
    uint64_t step = back ? 0 - (uint64_t)s.step : (uint64_t)s.step;
    s.n = span > 0 ? (int64_t)(((uint64_t)span - 1) / step) + 1 : 0;
    return s;
}

static struct jval slice_str(struct jrun *r, const struct jstr *v, struct slice s)
{
    jrun_charge(r, v->len / 64);
    if (s.step == 1)
        return jval_str(jstr_sub(r,
                                 v,
                                 jstr_byte_at(r, v, (size_t)s.start),
                                 jstr_byte_at(r, v, (size_t)(s.start + s.n))));
    jrun_charge(r, (uint64_t)v->n_chars / 8);
    size_t *starts = jrun_alloc_n(r, v->n_chars + 1, sizeof *starts);
    for (size_t i = 0, at = 0; i < v->n_chars; i++) {
        starts[i] = at;
        jstr_next(v, &at);
    }
    starts[v->n_chars] = v->len;
    struct jsb b = JSB(r);
    for (int64_t i = 0, at = s.start; i < s.n; i++, at += i < s.n ? s.step : 0)
        jsb_sub(&b, v, starts[at], starts[at + 1]);
    return jval_str(jstr_as_markup(r, jsb_done(&b), v->markup));
}

struct jval jval_slice(struct jrun *r, struct jval v, const struct jval bounds[3])
{
    jval_expect_defined(r, v);
    if (v.kind != J_STR && v.kind != J_LIST && v.kind != J_TUPLE && v.kind != J_RANGE)
        jrun_fail(r, "'%s' object cannot be sliced", jval_type(v));
    struct slice s = bounds_of(r, bounds, jval_len(v));
    if (v.kind == J_STR)
        return slice_str(r, v.s, s);
    if (v.kind == J_RANGE) {
        struct jrange *g = jrun_alloc(r, sizeof *g);
        int64_t start, step, stop;
        if (__builtin_mul_overflow(s.start, v.range->step, &start) ||
            __builtin_add_overflow(start, v.range->start, &start) ||
            __builtin_mul_overflow(v.range->step, s.step, &step) ||
            __builtin_mul_overflow(step, s.n, &stop) || __builtin_add_overflow(stop, start, &stop))
            jrun_fail(r, "an integer has more than 64 bits");
        *g = (struct jrange){start, stop, step, s.n};
        return (struct jval){.kind = J_RANGE, .range = g};
    }
    jrun_charge(r, (uint64_t)s.n / 4);
    struct jval *items = jrun_alloc_n(r, (size_t)s.n, sizeof *items);
    for (int64_t i = 0, at = s.start; i < s.n; i++, at += i < s.n ? s.step : 0)
        items[i] = v.list->items[at];
    return v.kind == J_LIST ? jval_list(r, items, (size_t)s.n) : jval_tuple(r, items, (size_t)s.n);
}
