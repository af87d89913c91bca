/* Filters on things that have items. */
#include "chat/jinja/eval.h"
#include "chat/jinja/unicode.h"

#include <string.h>

/* ---- attributes of items ---- */

/* "a.b.0" or 3: what to look up in an item, one after the other. */
struct getter {
    struct jval parts[16];
    size_t n;
    struct jval fallback; /* in place of what is undefined, unless J_MISSING */
    bool ignore_case;
};

static bool all_digits(const struct jstr *s)
{
    for (size_t i = 0; i < s->len; i++)
        if (s->data[i] < '0' || s->data[i] > '9')
            return false;
    return s->len > 0 && s->len < 18;
}

static struct getter make_getter(struct jrun *r, struct jval attribute, bool ignore_case)
{
    struct getter g = {.fallback = {.kind = J_MISSING}, .ignore_case = ignore_case};
    if (!jarg_given(attribute))
        return g;
    if (attribute.kind != J_STR) {
        g.parts[g.n++] = attribute;
        return g;
    }
    const struct jstr *s = attribute.s, *dot = jstr_lit(r, ".");
    for (size_t from = 0, end; from <= s->len; from = end + 1) {
        end = jstr_find(r, s, dot, from, s->len);
        end = end == SIZE_MAX ? s->len : end;
        const struct jstr *part = jstr_sub(r, s, from, end);
        if (g.n == sizeof g.parts / sizeof g.parts[0])
            jrun_fail(r, "an attribute has too many parts");
        int64_t i = 0;
        for (size_t k = 0; all_digits(part) && k < part->len; k++)
            i = i * 10 + (part->data[k] - '0');
        g.parts[g.n++] = all_digits(part) ? jval_int(i) : jval_str(part);
    }
    return g;
}

static struct jval get(struct jrun *r, const struct getter *g, struct jval item)
{
    for (size_t i = 0; i < g->n; i++) {
        item = jval_item(r, item, g->parts[i]);
        if (g->fallback.kind != J_MISSING && item.kind == J_UNDEFINED)
            item = g->fallback;
    }
    if (g->ignore_case && item.kind == J_STR)
        item = jval_str(juni_to_case(r, item.s, JCASE_LOWER));
    return item;
}

/* The attributes of "a,b" as a list; of one as a list, too. */
static struct jval get_several(struct jrun *r,
                               struct jval attribute,
                               bool ignore_case,
                               struct jval item)
{
    struct jitems all = {0};
    if (attribute.kind != J_STR) {
        struct getter g = make_getter(r, attribute, ignore_case);
        jitems_add(r, &all, get(r, &g, item));
        return jval_list(r, all.items, all.n);
    }
    const struct jstr *s = attribute.s, *comma = jstr_lit(r, ",");
    for (size_t from = 0, end; from <= s->len; from = end + 1) {
        end = jstr_find(r, s, comma, from, s->len);
        end = end == SIZE_MAX ? s->len : end;
        struct getter g = make_getter(r, jval_str(jstr_sub(r, s, from, end)), ignore_case);
        jitems_add(r, &all, get(r, &g, item));
    }
    return jval_list(r, all.items, all.n);
}

/* ---- one item, or their number ---- */

static struct jval filter_length(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    if (v.kind == J_LOOP)
        return jval_attr(r, v, jstr_lit(r, "length"));
    if (jval_len(v) < 0)
        jrun_fail(r, "object of type '%s' has no len()", jval_type(v));
    return jval_int(jval_len(v));
}

static struct jval filter_first(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    struct jwalk w = jwalk_begin(r, v);
    struct jval item;
    if (jwalk_next(r, &w, &item))
        return item;
    return jval_undefined_as(r, "No first item, sequence was empty.");
}

/* The items from the last to the first; an iterator has no last. */
static struct jval reversed(struct jrun *r, struct jval v)
{
    if (v.kind == J_ITER || !jval_iterable(v))
        jrun_fail(r, "'%s' object is not reversible", jval_type(v));
    const struct jlist *l = jval_items(r, v);
    struct jval *items = jrun_alloc_n(r, l->n, sizeof *items);
    jrun_charge(r, l->n / 4);
    for (size_t i = 0; i < l->n; i++)
        items[i] = l->items[l->n - 1 - i];
    for (size_t i = 0; v.kind == J_STR && i < l->n; i++) /* taken by subscript, unlike a walk */
        items[i].s = jstr_as_markup(r, items[i].s, v.s->markup);
    return jval_iter(r, items, l->n, v.kind == J_LIST ? "list_reverseiterator" : "reversed");
}

static struct jval filter_last(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    struct jval back = reversed(r, v);
    if (back.iter->n == 0)
        return jval_undefined_as(r, "No last item, sequence was empty.");
    return back.iter->items[0];
}

static struct jval filter_reverse(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    const struct jval backwards[3] = {jval_none(), jval_none(), jval_int(-1)};
    if (v.kind == J_STR)
        return jval_slice(r, v, backwards);
    if (v.kind != J_ITER)
        return reversed(r, v);
    const struct jlist *l = jval_items(r, v);
    return jval_slice(r, jval_list(r, l->items, l->n), backwards);
}

/* Any item would do; the same request gets the same text, so it is the first. */
static struct jval filter_random(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    if (jval_len(v) == 0)
        return jval_undefined_as(r, "No random item, sequence was empty.");
    return jval_item(r, v, jval_int(0));
}

static struct jval extreme(struct jrun *r, struct jval v, const struct jval *a, bool max)
{
    struct getter g = make_getter(r, a[1], !jarg_bool(r, a[0], false));
    struct jwalk w = jwalk_begin(r, v);
    struct jval item, best, best_key;
    if (!jwalk_next(r, &w, &best))
        return jval_undefined_as(r, "No aggregated item, sequence was empty.");
    best_key = get(r, &g, best);
    while (jwalk_next(r, &w, &item)) {
        struct jval key = get(r, &g, item);
        if (max ? jval_compare(r, OP_LT, best_key, key) : jval_compare(r, OP_LT, key, best_key)) {
            best = item;
            best_key = key;
        }
    }
    return best;
}

JBUILTIN(filter_min, extreme(r, v, a, false))
JBUILTIN(filter_max, extreme(r, v, a, true))

static struct jval filter_sum(struct jrun *r, struct jval v, const struct jval *a)
{
    struct getter g = make_getter(r, a[0], false);
    struct jval sum = a[1].kind == J_MISSING ? jval_int(0) : a[1], item;
    if (sum.kind == J_STR)
        jrun_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    struct jwalk w = jwalk_begin(r, v);
    while (jwalk_next(r, &w, &item))
        sum = jval_arithmetic(r, OP_ADD, sum, get(r, &g, item));
    return sum;
}

static struct jval filter_join(struct jrun *r, struct jval v, const struct jval *a)
{
    struct getter g = make_getter(r, a[1], false);
    const struct jstr *glue = a[0].kind == J_MISSING ? &jstr_empty : jval_to_str(r, a[0]);
    struct jwalk w = jwalk_begin(r, v);
    struct jsb b = JSB(r);
    bool first = true;
    for (struct jval item; jwalk_next(r, &w, &item); first = false) {
        if (!first)
            jsb_str(&b, glue);
        jval_print(&b, get(r, &g, item));
    }
    return jval_str(jsb_done(&b));
}

/* ---- sorting ---- */

struct keyed {
    struct jval key, item;
};

/* Merge [0, mid) and [mid, n); the second goes first only where it must. */
static void merge(
    struct jrun *r, struct keyed *items, struct keyed *room, size_t mid, size_t n, bool down)
{
    size_t a = 0, b = mid, to = 0;
    while (a < mid && b < n) {
        bool second = down ? jval_compare(r, OP_LT, items[a].key, items[b].key)
                           : jval_compare(r, OP_LT, items[b].key, items[a].key);
        room[to++] = items[second ? b++ : a++];
    }
    while (a < mid)
        room[to++] = items[a++];
    while (b < n)
        room[to++] = items[b++];
    memcpy(items, room, n * sizeof *items);
}

static void sort(struct jrun *r, struct keyed *items, struct keyed *room, size_t n, bool down)
{
    if (n < 2)
        return;
    sort(r, items, room, n / 2, down);
    sort(r, items + n / 2, room, n - n / 2, down);
    merge(r, items, room, n / 2, n, down);
}

/* In place, stable, by Python's <; fails where keys cannot be compared. `down`: the largest first,
 * equal ones in order. */
static void sort_keyed(struct jrun *r, struct keyed *items, size_t n, bool down)
{
    sort(r, items, jrun_alloc_n(r, n, sizeof *items), n, down);
}

static struct jval list_of(struct jrun *r, const struct keyed *items, size_t n)
{
    struct jval *list = jrun_alloc_n(r, n, sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = items[i].item;
    return jval_list(r, list, n);
}

/* ---- lists of them ---- */

static struct jval filter_list(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    const struct jlist *l = jval_items(r, v);
    return jval_list(r, l->items, l->n);
}

static struct jval filter_sort(struct jrun *r, struct jval v, const struct jval *a)
{
    bool ignore_case = !jarg_bool(r, a[1], false);
    const struct jlist *l = jval_items(r, v);
    struct keyed *items = jrun_alloc_n(r, l->n, sizeof *items);
    for (size_t i = 0; i < l->n; i++)
        items[i] = (struct keyed){get_several(r, a[2], ignore_case, l->items[i]), l->items[i]};
    sort_keyed(r, items, l->n, jarg_bool(r, a[0], false));
    return list_of(r, items, l->n);
}

static struct jval filter_dictsort(struct jrun *r, struct jval v, const struct jval *a)
{
    bool ignore_case = !jarg_bool(r, a[0], false);
    const struct jstr *by = a[1].kind == J_MISSING ? jstr_lit(r, "key") : jarg_str(r, a[1]);
    bool by_value = jstr_is(by, "value");
    if (!by_value && !jstr_is(by, "key"))
        jrun_fail(r, "You can only sort by either \"key\" or \"value\"");
    jval_expect_defined(r, v);
    if (v.kind != J_DICT)
        jrun_fail(r, "'%s' object has no attribute 'items'", jval_type(v));
    size_t n = v.dict->n;
    struct keyed *items = jrun_alloc_n(r, n, sizeof *items);
    for (size_t i = 0; i < n; i++) {
        const struct jpair *p = &v.dict->pairs[i];
        struct jval key = by_value ? p->value : p->key;
        if (ignore_case && key.kind == J_STR)
            key = jval_str(juni_to_case(r, key.s, JCASE_LOWER));
        items[i] = (struct keyed){key, jval_pair(r, p->key, p->value)};
    }
    sort_keyed(r, items, n, jarg_bool(r, a[2], false));
    return list_of(r, items, n);
}

const struct jpair *jdict_sorted(struct jrun *r, struct jval dict)
{
    const struct jval case_sensitive[JMAX_PARAMS] = {jval_bool(true)};
    const struct jlist *l = filter_dictsort(r, dict, case_sensitive).list;
    struct jpair *pairs = jrun_alloc_n(r, l->n, sizeof *pairs);
    for (size_t i = 0; i < l->n; i++)
        pairs[i] = (struct jpair){l->items[i].list->items[0], l->items[i].list->items[1]};
    return pairs;
}

static struct jval filter_unique(struct jrun *r, struct jval v, const struct jval *a)
{
    struct getter g = make_getter(r, a[1], !jarg_bool(r, a[0], false));
    struct jdict *seen = jdict_new(r);
    struct jitems kept = {0};
    struct jwalk w = jwalk_begin(r, v);
    for (struct jval item; jwalk_next(r, &w, &item);) {
        struct jval key = get(r, &g, item);
        if (jdict_get(r, seen, key))
            continue;
        jdict_set(r, seen, key, jval_none());
        jitems_add(r, &kept, item);
    }
    return jval_iter(r, kept.items, kept.n, "generator");
}

static struct jval group_of(struct jrun *r, struct jval key, const struct keyed *items, size_t n)
{
    struct jval group = jval_pair(r, key, list_of(r, items, n));
    struct jlist *marked = jrun_alloc(r, sizeof *marked);
    *marked = *group.list;
    marked->group = true;
    return (struct jval){.kind = J_TUPLE, .list = marked};
}

static struct jval filter_groupby(struct jrun *r, struct jval v, const struct jval *a)
{
    bool ignore_case = !jarg_bool(r, a[2], false);
    struct getter g = make_getter(r, a[0], ignore_case);
    g.fallback = a[1].kind == J_NONE ? g.fallback : a[1];
    const struct jlist *l = jval_items(r, v);
    struct keyed *items = jrun_alloc_n(r, l->n, sizeof *items);
    struct jitems groups = {0};
    for (size_t i = 0; i < l->n; i++)
        items[i] = (struct keyed){get(r, &g, l->items[i]), l->items[i]};
    sort_keyed(r, items, l->n, false);
    g.ignore_case = false;
    for (size_t i = 0, end; i < l->n; i = end) {
        for (end = i + 1; end < l->n && jval_eq(r, items[i].key, items[end].key);)
            end++;
        jitems_add(r, &groups, group_of(r, get(r, &g, items[i].item), items + i, end - i));
    }
    return jval_list(r, groups.items, groups.n);
}

static struct jval filter_batch(struct jrun *r, struct jval v, const struct jval *a)
{
    int64_t n = jarg_int(r, a[0], 0);
    struct jitems rows = {0}, row = {0};
    struct jwalk w = jwalk_begin(r, v);
    for (struct jval item; jwalk_next(r, &w, &item);) {
        if ((int64_t)row.n == n) {
            jitems_add(r, &rows, jval_list(r, row.items, row.n));
            row = (struct jitems){0};
        }
        jitems_add(r, &row, item);
    }
    bool fill = jarg_given(a[1]);
    while (row.n > 0 && fill && (int64_t)row.n < n) {
        jrun_charge(r, 1);
        jitems_add(r, &row, a[1]);
    }
    if (row.n > 0)
        jitems_add(r, &rows, jval_list(r, row.items, row.n));
    return jval_iter(r, rows.items, rows.n, "generator");
}

static struct jval filter_slice(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jlist *l = jval_items(r, v);
    int64_t n = jarg_int(r, a[0], 0);
    if (n == 0)
        jrun_fail(r, "integer division or modulo by zero");
    struct jitems columns = {0};
    size_t each = n > 0 ? l->n / (size_t)n : 0, extra = n > 0 ? l->n % (size_t)n : 0, at = 0;
    bool fill = jarg_given(a[1]);
    for (size_t c = 0; (int64_t)c < n; c++) {
        struct jitems column = {0};
        size_t end = at + each + (c < extra);
        jrun_charge(r, 1 + end - at);
        for (; at < end; at++)
            jitems_add(r, &column, l->items[at]);
        if (fill && c >= extra)
            jitems_add(r, &column, a[1]);
        jitems_add(r, &columns, jval_list(r, column.items, column.n));
    }
    return jval_iter(r, columns.items, columns.n, "generator");
}

/* What has no pairs fails when somebody goes through them. */
static struct jval filter_items(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    struct jitems items = {0};
    for (size_t i = 0; v.kind == J_DICT && i < v.dict->n; i++)
        jitems_add(r, &items, jval_pair(r, v.dict->pairs[i].key, v.dict->pairs[i].value));
    struct jval it = jval_iter(r, items.items, items.n, "generator");
    if (v.kind != J_DICT && v.kind != J_UNDEFINED) {
        it.iter->error = "Can only get item pairs from a mapping.";
        it.iter->code = ERR_INVALID;
    }
    return it;
}

/* ---- map, select, reject ---- */

/* A generator of Python's works while it is gone through; here it works at once, and what fails
 * fails when the items before have been taken. */
struct lazy {
    struct jval v;
    const struct jargs *args;
    struct jitems out;
    bool keep, by_attribute; /* of select and its like */
};

static struct jval run_lazy(struct jrun *r, struct lazy *l, void (*fn)(struct jrun *r, void *l))
{
    uint32_t line = r->line;
    enum err err = jval_true(r, l->v) ? jrun_try(r, fn, l) : OK;
    struct jval it = jval_iter(r, l->out.items, l->out.n, "generator");
    r->line = line;
    if (err) {
        const char *text = strstr(r->e->text, ": ");
        text = text ? text + 2 : r->e->text;
        if (err != ERR_INVALID)
            jrun_fail_as(r, err, "%s", text);
        size_t n = strlen(text) + 1;
        it.iter->error = memcpy(jrun_alloc(r, n), text, n);
        it.iter->code = err;
    }
    return it;
}

/* The keyword `name`, or J_MISSING. */
static struct jval keyword(const struct jargs *args, const char *name)
{
    for (size_t i = 0; i < args->n_keywords; i++)
        if (jstr_is(args->keywords[i].name, name))
            return args->keywords[i].value;
    return (struct jval){.kind = J_MISSING};
}

static void map_items(struct jrun *r, void *arg)
{
    struct lazy *l = arg;
    const struct jargs *args = l->args;
    struct jval attribute = keyword(args, "attribute"), fallback = keyword(args, "default");
    bool by_attribute = args->n == 0 && attribute.kind != J_MISSING;
    struct jargs rest = *args;
    if (!by_attribute && args->n == 0)
        jrun_fail(r, "map requires a filter argument");
    if (by_attribute && args->n_keywords > 1 + (size_t)(fallback.kind != J_MISSING))
        jrun_fail(r, "map got an unexpected keyword argument");
    struct getter g = {0};
    if (by_attribute) {
        g = make_getter(r, attribute, false);
        g.fallback = fallback.kind == J_NONE ? g.fallback : fallback;
    } else {
        rest.items++;
        rest.n--;
    }
    struct jwalk w = jwalk_begin(r, l->v);
    for (struct jval item; jwalk_next(r, &w, &item);)
        jitems_add(r,
                   &l->out,
                   by_attribute ? get(r, &g, item) : jcall_filter(r, args->items[0], item, &rest));
}

static struct jval filter_map(struct jrun *r, struct jval v, const struct jargs *args)
{
    struct lazy l = {.v = v, .args = args};
    return run_lazy(r, &l, map_items);
}

static void select_items(struct jrun *r, void *arg)
{
    struct lazy *l = arg;
    const struct jargs *args = l->args;
    size_t n_used = l->by_attribute;
    if (args->n < n_used)
        jrun_fail(r, "Missing parameter for attribute name");
    struct getter g = {0};
    if (l->by_attribute)
        g = make_getter(r, args->items[0], false);
    bool tests = args->n > n_used;
    struct jargs rest = *args;
    rest.items = args->n > n_used + tests ? args->items + n_used + tests : NULL;
    rest.n -= n_used + tests;
    struct jwalk w = jwalk_begin(r, l->v);
    for (struct jval item; jwalk_next(r, &w, &item);) {
        struct jval v = l->by_attribute ? get(r, &g, item) : item;
        bool yes = tests ? jcall_test(r, args->items[n_used], v, &rest) : jval_true(r, v);
        if (yes == l->keep)
            jitems_add(r, &l->out, item);
    }
}

#define SELECT(name, keep_, by_attribute_)                                                         \
    static struct jval name(struct jrun *r, struct jval v, const struct jargs *args)               \
    {                                                                                              \
        struct lazy l = {.v = v, .args = args, .keep = (keep_), .by_attribute = (by_attribute_)};  \
        return run_lazy(r, &l, select_items);                                                      \
    }
SELECT(filter_select, true, false)
SELECT(filter_reject, false, false)
SELECT(filter_selectattr, true, true)
SELECT(filter_rejectattr, false, true)

const struct jbuiltin jfilters_list[] = {
    {"length", "", 0, filter_length, NULL},
    {"count", "", 0, filter_length, NULL},
    {"first", "", 0, filter_first, NULL},
    {"last", "", 0, filter_last, NULL},
    {"reverse", "", 0, filter_reverse, NULL},
    {"random", "", 0, filter_random, NULL},
    {"min", "case_sensitive attribute", 0, filter_min, NULL},
    {"max", "case_sensitive attribute", 0, filter_max, NULL},
    {"sum", "attribute start", 0, filter_sum, NULL},
    {"join", "d attribute", 0, filter_join, NULL},
    {"list", "", 0, filter_list, NULL},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort, NULL},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort, NULL},
    {"unique", "case_sensitive attribute", 0, filter_unique, NULL},
    {"groupby", "attribute default case_sensitive", 1, filter_groupby, NULL},
    {"batch", "linecount fill_with", 1, filter_batch, NULL},
    {"slice", "slices fill_with", 1, filter_slice, NULL},
    {"items", "", 0, filter_items, NULL},
    {"map", "", 0, NULL, filter_map},
    {"select", "", 0, NULL, filter_select},
    {"reject", "", 0, NULL, filter_reject},
    {"selectattr", "", 0, NULL, filter_selectattr},
    {"rejectattr", "", 0, NULL, filter_rejectattr},
    {NULL, NULL, 0, NULL, NULL},
};
