#include "chat/jinja/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- making ---- */

static struct jval sequence(struct jrun *r, enum jkind kind, struct jval *items, size_t n)
{
    struct jlist *l = jrun_alloc(r, sizeof *l);
    l->items = items;
    l->n = n;
    return (struct jval){.kind = (uint8_t)kind, .list = l};
}

struct jval jval_list(struct jrun *r, struct jval *items, size_t n)
{
    return sequence(r, J_LIST, items, n);
}

struct jval jval_tuple(struct jrun *r, struct jval *items, size_t n)
{
    return sequence(r, J_TUPLE, items, n);
}

struct jval jval_tuple_of(struct jrun *r, const struct jval *items, size_t n)
{
    struct jval *copy = jrun_alloc_n(r, n, sizeof *copy);
    if (n > 0)
        memcpy(copy, items, n * sizeof *copy);
    return jval_tuple(r, copy, n);
}

struct jval jval_pair(struct jrun *r, struct jval a, struct jval b)
{
    return jval_tuple_of(r, (struct jval[]){a, b}, 2);
}

struct jval jval_iter(struct jrun *r, const struct jval *items, size_t n, const char *name)
{
    struct jiterator *it = jrun_alloc(r, sizeof *it);
    *it = (struct jiterator){.items = items, .n = n, .name = name};
    return (struct jval){.kind = J_ITER, .iter = it};
}

struct jval jval_undefined_as(struct jrun *r, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct jundefined *u = jrun_alloc(r, sizeof *u);
    size_t n = strlen(text) + 1;
    u->text = memcpy(jrun_alloc(r, n), text, n);
    return (struct jval){.kind = J_UNDEFINED, .undefined = u};
}

_Noreturn void jval_fail_undefined(struct jrun *r, struct jval v)
{
    if (v.undefined && v.undefined->text)
        jrun_fail(r, "%s", v.undefined->text);
    if (v.undefined && v.undefined->name)
        jrun_fail(r, "'%.*s' is undefined", JSTR_UP_TO(100, v.undefined->name));
    jrun_fail(r, "the value is undefined");
}

void jitems_add(struct jrun *r, struct jitems *l, struct jval v)
{
    l->items = jrun_grow(r, l->items, l->n, l->n + 1, &l->cap, sizeof *l->items);
    l->items[l->n++] = v;
}

/* ---- asking ---- */

const char *jval_type(struct jval v)
{
    static const char *const names[] = {[J_MISSING] = "missing",
                                        [J_UNDEFINED] = "Undefined",
                                        [J_NONE] = "NoneType",
                                        [J_BOOL] = "bool",
                                        [J_INT] = "int",
                                        [J_FLOAT] = "float",
                                        [J_STR] = "str",
                                        [J_LIST] = "list",
                                        [J_TUPLE] = "tuple",
                                        [J_DICT] = "dict",
                                        [J_VIEW] = "dict_items",
                                        [J_RANGE] = "range",
                                        [J_ITER] = "generator",
                                        [J_NAMESPACE] = "Namespace",
                                        [J_LOOP] = "LoopContext",
                                        [J_CYCLER] = "Cycler",
                                        [J_JOINER] = "Joiner",
                                        [J_FUNCTION] = "function",
                                        [J_METHOD] = "method",
                                        [J_MACRO] = "Macro",
                                        [J_BLOCKS] = "TemplateReference",
                                        [J_BLOCK] = "BlockReference"};
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (v.kind == J_STR && v.s->markup)
        return "Markup";
    if (v.kind == J_VIEW)
        return views[v.view->what];
    if (v.kind == J_ITER)
        return v.iter->name;
    return names[v.kind];
}

int64_t jval_len(struct jval v)
{
    switch (v.kind) {
    case J_UNDEFINED:
        return 0;
    case J_STR:
        return (int64_t)v.s->n_chars;
    case J_LIST:
    case J_TUPLE:
        return (int64_t)v.list->n;
    case J_DICT:
        return (int64_t)v.dict->n;
    case J_VIEW:
        return (int64_t)v.view->dict->n;
    case J_RANGE:
        return v.range->n;
    default:
        return -1;
    }
}

bool jval_true(struct jrun *r, struct jval v)
{
    (void)r;
    switch (v.kind) {
    case J_MISSING:
    case J_UNDEFINED:
    case J_NONE:
        return false;
    case J_BOOL:
        return v.b;
    case J_INT:
        return v.i != 0;
    case J_FLOAT:
        return v.f != 0.0;
    default:
        return jval_len(v) != 0; /* what has no length is true */
    }
}

bool jval_same(struct jval a, struct jval b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case J_NONE:
    case J_MISSING:
        return true;
    case J_BOOL:
        return a.b == b.b;
    case J_INT:
        return a.i == b.i;
    case J_FLOAT:
        return a.f == b.f;
    case J_STR:
        return a.s == b.s || (a.s->markup == b.s->markup && jstr_eq(a.s, b.s));
    case J_TUPLE:
        return a.list == b.list || (a.list->n == 0 && b.list->n == 0);
    default:
        return (const void *)a.list == (const void *)b.list;
    }
}

static bool items_eq(struct jrun *r, const struct jlist *a, const struct jlist *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jval_eq(r, a->items[i], b->items[i]))
            return false;
    return true;
}

/* Have they the same keys, with the same values if those count? */
static bool dicts_eq(struct jrun *r, const struct jdict *a, const struct jdict *b, bool values)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jval *other = jdict_get(r, b, a->pairs[i].key);
        if (!other || (values && !jval_eq(r, a->pairs[i].value, *other)))
            return false;
    }
    return true;
}

static bool ranges_eq(const struct jrange *a, const struct jrange *b)
{
    return a->n == b->n && (a->n == 0 || a->start == b->start) && (a->n < 2 || a->step == b->step);
}

static bool views_eq(struct jrun *r, const struct jview *a, const struct jview *b)
{
    if (a->what != b->what || a->what == VIEW_VALUES)
        return a == b;
    return dicts_eq(r, a->dict, b->dict, a->what == VIEW_ITEMS);
}

static bool numbers_eq(struct jval a, struct jval b)
{
    if (jval_is_int(a) && jval_is_int(b))
        return jval_as_int(a) == jval_as_int(b);
    return jval_as_float(a) == jval_as_float(b);
}

bool jval_eq(struct jrun *r, struct jval a, struct jval b)
{
    jrun_charge(r, 1);
    if (jval_is_number(a) && jval_is_number(b))
        return numbers_eq(a, b);
    if (a.kind != b.kind)
        return false;
    bool eq;
    switch (a.kind) {
    case J_UNDEFINED:
    case J_NONE:
        return true;
    case J_STR:
        jrun_charge(r, a.s->len == b.s->len ? a.s->len / 64 : 0);
        return jstr_eq(a.s, b.s);
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
        if (a.list == b.list)
            return true;
        jrun_enter(r);
        eq = a.kind == J_DICT ? dicts_eq(r, a.dict, b.dict, true) : items_eq(r, a.list, b.list);
        jrun_leave(r);
        return eq;
    case J_RANGE:
        return ranges_eq(a.range, b.range);
    case J_VIEW:
        jrun_enter(r);
        eq = views_eq(r, a.view, b.view);
        jrun_leave(r);
        return eq;
    default:
        return jval_same(a, b);
    }
}

static int items_cmp(struct jrun *r, const struct jlist *a, const struct jlist *b, const char *op)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!jval_eq(r, a->items[i], b->items[i]))
            return jval_cmp(r, a->items[i], b->items[i], op);
    return (a->n > b->n) - (a->n < b->n);
}

int jval_cmp(struct jrun *r, struct jval a, struct jval b, const char *op)
{
    jrun_charge(r, 1);
    jval_expect_defined(r, a);
    jval_expect_defined(r, b);
    if (jval_is_int(a) && jval_is_int(b)) {
        int64_t x = jval_as_int(a), y = jval_as_int(b);
        return (x > y) - (x < y);
    }
    if (jval_is_number(a) && jval_is_number(b)) {
        double x = jval_as_float(a), y = jval_as_float(b);
        return (x > y) - (x < y);
    }
    if (a.kind == J_STR && b.kind == J_STR) {
        jrun_charge(r, (a.s->len < b.s->len ? a.s->len : b.s->len) / 64);
        return jstr_cmp(a.s, b.s);
    }
    if (a.kind == b.kind && (a.kind == J_LIST || a.kind == J_TUPLE)) {
        jrun_enter(r);
        int c = items_cmp(r, a.list, b.list, op);
        jrun_leave(r);
        return c;
    }
    jrun_fail(
        r, "'%s' not supported between instances of '%s' and '%s'", op, jval_type(a), jval_type(b));
}

static bool range_contains(const struct jrange *g, struct jval item)
{
    if (!jval_is_number(item) ||
        (item.kind == J_FLOAT && (item.f != floor(item.f) || fabs(item.f) > 9e15)))
        return false;
    int64_t v = item.kind == J_FLOAT ? (int64_t)item.f : jval_as_int(item);
    if (g->step > 0 ? v < g->start || v >= g->stop : v > g->start || v <= g->stop)
        return false;
    return ((__int128)v - g->start) % g->step == 0;
}

bool jval_contains(struct jrun *r, struct jval container, struct jval item)
{
    if (container.kind == J_STR) {
        if (item.kind != J_STR)
            jrun_fail(r, "'in <string>' requires string as left operand, not %s", jval_type(item));
        return jstr_find(r, container.s, item.s, 0, container.s->len) != SIZE_MAX;
    }
    if (container.kind == J_DICT)
        return jdict_get(r, container.dict, item) != NULL;
    if (container.kind == J_VIEW && container.view->what == VIEW_KEYS)
        return jdict_get(r, container.view->dict, item) != NULL;
    if (container.kind == J_RANGE)
        return range_contains(container.range, item);
    if (!jval_iterable(container))
        jrun_fail(r, "argument of type '%s' is not iterable", jval_type(container));
    struct jwalk w = jwalk_begin(r, container);
    for (struct jval v; jwalk_next(r, &w, &v);)
        if (jval_eq(r, v, item))
            return true;
    return false;
}

/* ---- going through ---- */

bool jval_iterable(struct jval v)
{
    return jval_len(v) >= 0 || v.kind == J_ITER;
}

struct jwalk jwalk_begin(struct jrun *r, struct jval v)
{
    if (!jval_iterable(v))
        jrun_fail(r, "'%s' object is not iterable", jval_type(v));
    return (struct jwalk){.of = v};
}

static struct jval view_item(struct jrun *r, const struct jview *v, size_t i)
{
    const struct jpair *p = &v->dict->pairs[i];
    if (v->what == VIEW_ITEMS)
        return jval_pair(r, p->key, p->value);
    return v->what == VIEW_KEYS ? p->key : p->value;
}

static bool iterator_next(struct jrun *r, struct jiterator *it, struct jval *out)
{
    if (it->at == it->n) {
        if (it->error) {
            const char *error = it->error;
            it->error = NULL;
            jrun_fail_as(r, it->code, "%s", error);
        }
        return false;
    }
    *out = it->items[it->at++];
    return true;
}

bool jwalk_next(struct jrun *r, struct jwalk *w, struct jval *out)
{
    struct jval v = w->of;
    jrun_charge(r, 1);
    if (v.kind == J_ITER)
        return iterator_next(r, v.iter, out);
    if (v.kind == J_STR) {
        size_t begin = w->at;
        if (begin >= v.s->len)
            return false;
        jstr_next(v.s, &w->at);
        *out = jval_str(jstr_as_markup(r, jstr_sub(r, v.s, begin, w->at), false));
        return true;
    }
    if ((int64_t)w->at >= jval_len(v))
        return false;
    size_t i = w->at++;
    if (v.kind == J_DICT)
        *out = v.dict->pairs[i].key;
    else if (v.kind == J_VIEW)
        *out = view_item(r, v.view, i);
    else if (v.kind == J_RANGE)
        *out = jval_int(v.range->start + (int64_t)i * v.range->step);
    else
        *out = v.list->items[i];
    return true;
}

const struct jlist *jval_items(struct jrun *r, struct jval v)
{
    if (v.kind == J_LIST || v.kind == J_TUPLE)
        return v.list;
    struct jitems all = {0};
    struct jwalk w = jwalk_begin(r, v);
    for (struct jval item; jwalk_next(r, &w, &item);)
        jitems_add(r, &all, item);
    return jval_list(r, all.items, all.n).list;
}

/* ---- dicts ---- */

bool jval_hashable(struct jrun *r, struct jval v)
{
    if (v.kind == J_TUPLE) {
        bool yes = true;
        jrun_enter(r);
        jrun_charge(r, v.list->n);
        for (size_t i = 0; i < v.list->n && yes; i++)
            yes = jval_hashable(r, v.list->items[i]);
        jrun_leave(r);
        return yes;
    }
    return v.kind != J_LIST && v.kind != J_DICT && v.kind != J_VIEW;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

/* Equal values have equal hashes: 1, 1.0 and True are one key. */
static uint64_t hash_of(struct jrun *r, struct jval v)
{
    uint64_t h = 0x6A09E667F3BCC908u;
    if (jval_is_number(v)) {
        double f = jval_as_float(v);
        uint64_t bits;
        memcpy(&bits, &f, sizeof bits);
        h = mix(h, f == 0.0 ? 0 : bits); /* whose low bits are 0 of small integers: mixed again */
        return mix(h, 0);
    }
    if (v.kind == J_STR) {
        jrun_charge(r, v.s->len / 64);
        for (size_t i = 0; i < v.s->len; i++)
            h = mix(h, (unsigned char)v.s->data[i]);
    } else if (v.kind == J_TUPLE) {
        jrun_enter(r);
        jrun_charge(r, v.list->n);
        for (size_t i = 0; i < v.list->n; i++)
            h = mix(h, hash_of(r, v.list->items[i]));
        jrun_leave(r);
    }
    return mix(h, v.kind);
}

struct jdict *jdict_new(struct jrun *r)
{
    return jrun_alloc(r, sizeof(struct jdict));
}

#define SMALL_DICT 8

/* The slot of the key, or the free one where it belongs. */
static uint32_t *slot_of(struct jrun *r, const struct jdict *d, struct jval key)
{
    for (size_t at = hash_of(r, key);; at++) {
        uint32_t *slot = &d->slots[at & (d->n_slots - 1)];
        if (*slot == 0 || jval_eq(r, d->pairs[*slot - 1].key, key))
            return slot;
    }
}

static void index_pairs(struct jrun *r, struct jdict *d)
{
    d->n_slots = 4 * (d->n < 16 ? 16 : d->n);
    while (d->n_slots & (d->n_slots - 1))
        d->n_slots &= d->n_slots - 1;
    d->slots = jrun_alloc_n(r, d->n_slots, sizeof *d->slots);
    for (size_t i = 0; i < d->n; i++)
        *slot_of(r, d, d->pairs[i].key) = (uint32_t)i + 1;
}

struct jval *jdict_get(struct jrun *r, const struct jdict *d, struct jval key)
{
    if (!jval_hashable(r, key))
        jrun_fail(r, "unhashable type: '%s'", jval_type(key));
    if (d->slots) {
        uint32_t slot = *slot_of(r, d, key);
        return slot ? &d->pairs[slot - 1].value : NULL;
    }
    for (size_t i = 0; i < d->n; i++)
        if (jval_eq(r, d->pairs[i].key, key))
            return &d->pairs[i].value;
    return NULL;
}

struct jval *jdict_get_str(struct jrun *r, const struct jdict *d, const struct jstr *key)
{
    return jdict_get(r, d, jval_str(key));
}

void jdict_set(struct jrun *r, struct jdict *d, struct jval key, struct jval value)
{
    struct jval *there = jdict_get(r, d, key);
    if (there) {
        *there = value;
        return;
    }
    if (d->n >= UINT32_MAX / 8)
        jrun_fail_as(r, ERR_TOO_LARGE, "a dict has too many keys");
    d->pairs = jrun_grow(r, d->pairs, d->n, d->n + 1, &d->cap, sizeof *d->pairs);
    d->pairs[d->n++] = (struct jpair){key, value};
    if (d->n > SMALL_DICT && 2 * d->n > d->n_slots)
        index_pairs(r, d);
    else if (d->slots)
        *slot_of(r, d, key) = (uint32_t)d->n;
}
