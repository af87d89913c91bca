/* Arrays: what stands at which place, how many there are, that some are of a kind (contains), and
 * that none comes twice (uniqueItems, where the values are listed). */
#include "grammar/json_schema.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MAX_CONTAINED 4000u /* rules of one array: places times how many are found */
#define MAX_LISTED 250u     /* values of uniqueItems that are found out */
#define MAX_SUBSETS 8u      /* values of which each order is possible; of more, only the schema's */

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
    grammar_node comma = json_text_comma(b);
    grammar_node tail = grammar_empty(b);
    uint32_t n = t->n_first < t->max ? t->n_first : t->max;
    if (t->max > n) {
        uint32_t min = t->min > n ? t->min - n : 0;
        uint32_t max = t->max == GRAMMAR_NO_LIMIT ? GRAMMAR_NO_LIMIT : t->max - n;
        if (n == 0) /* the first of them has no comma */
            return grammar_separated(b, t->rest, comma, min, max);
        tail = grammar_repeat(b, SEQ(b, comma, t->rest), min, max);
    } else if (t->min > n) {
        return grammar_never(b);
    }
    for (uint32_t i = n; i > 0; i--) {
        tail = SEQ(b, i > 1 ? comma : grammar_empty(b), t->first[i - 1], tail);
        if (i > t->min)
            tail = grammar_optional(b, tail);
    }
    return tail;
}

static grammar_node rest_of_items(struct schema *s, const json_t *m, bool has_first)
{
    const json_t *items = json_object_get(m, "items");
    if (items)
        return schema_shared(s, schema_compile_at(s, "items", items));
    return has_first ? grammar_never(s->b) : grammar_json_value(s->b);
}

/* What a part says of an element: by its list, or of all beyond that. NULL: nothing. */
static json_t *element_of(const json_t *part, size_t i)
{
    json_t *one = json_array_get(json_object_get(part, "prefixItems"), i);
    return one ? one : json_object_get(part, "items");
}

bool schema_elements_agree(struct schema *s, json_t *m, json_t **part)
{
    const json_t *x = json_object_get(m, "prefixItems");
    const json_t *y = json_object_get(*part, "prefixItems");
    if ((!x && !y) || !(x || json_object_get(m, "items")) ||
        !(y || json_object_get(*part, "items")))
        return true;
    if ((x && !json_is_array(x)) || (y && !json_is_array(y)))
        return true; /* an error, whoever reads it */
    size_t n_x = json_array_size(x), n_y = json_array_size(y), n = n_x > n_y ? n_x : n_y;
    s->work += (uint32_t)(n / 8) + (schema_weight(x) + schema_weight(y)) / 16;
    if (!schema_works(s))
        return false;
    json_t *both = json_array(), *copy = json_copy(*part);
    for (size_t i = 0; i < n; i++) {
        json_t *of_m = element_of(m, i), *of_part = element_of(*part, i);
        if (of_m && of_part && !json_equal(of_m, of_part))
            json_array_append_new(both, json_pack("{s:[O,O]}", "allOf", of_m, of_part));
        else
            json_array_append(both, of_m ? of_m : of_part);
    }
    json_object_set_new(copy, "prefixItems", both);
    json_object_del(m, "prefixItems");
    json_decref(*part);
    *part = copy;
    return true;
}

/* ---- contains ---- */

/* An element as `contains` tells it apart. */
struct kinds {
    grammar_node found, other; /* other: where found ones are bounded from above, none of them */
};

/* Places from i on, where n of those found so far are as contains says. Beyond `cap` places are all
 * alike. Rules are made on the way: rules[i * (top + 1) + n]. */
struct contained {
    struct kinds *first; /* [n_first] */
    struct kinds rest;
    uint32_t n_first;
    grammar_node *rules;
    uint32_t need, most; /* of those found; most: NO_LIMIT, or others are told apart */
    uint32_t top;        /* as far as they are counted */
    uint32_t cap, min, max;
};

static grammar_node contained_rule(struct schema *s, struct contained *c, uint32_t i, uint32_t n)
{
    grammar_node *rule = &c->rules[i * (c->top + 1) + n];
    if (*rule == NONE)
        *rule = grammar_rule(s->b, "elements");
    return *rule;
}

static void define_contained(struct schema *s, struct contained *c, uint32_t i, uint32_t n)
{
    struct grammar_builder *b = s->b;
    grammar_node some[3] = {grammar_never(b), grammar_never(b), grammar_never(b)};
    grammar_node comma = i == 0 ? grammar_empty(b) : json_text_comma(b);
    const struct kinds *k = i < c->n_first ? &c->first[i] : &c->rest;
    uint32_t next = i < c->cap ? i + 1 : i;
    if (i >= c->min && n >= c->need)
        some[0] = grammar_empty(b);
    if (i < c->max) {
        some[1] = SEQ(b, comma, k->other, contained_rule(s, c, next, n));
        if (n < c->top)
            some[2] = SEQ(b, comma, k->found, contained_rule(s, c, next, n + 1));
    }
    grammar_define(b, contained_rule(s, c, i, n), grammar_alt(b, 3, some));
}

/* An element by its own schema (NULL: any) together with `more`, as a rule. */
static grammar_node element_with(struct schema *s, json_t *own, json_t *more)
{
    json_t *both = own ? json_pack("{s:[O,O]}", "allOf", own, more) : json_incref(more);
    grammar_node node = schema_shared(s, schema_compile_at(s, "contains", both));
    json_decref(both);
    return node;
}

/* others: what contains does not say, or NULL where nobody asks. */
static struct kinds kinds_of(
    struct schema *s, json_t *own, grammar_node any, json_t *kind, json_t *others)
{
    return (struct kinds){.found = element_with(s, own, kind),
                          .other = others ? element_with(s, own, others) : schema_shared(s, any)};
}

/* How many elements contains wants; false with an error. */
static bool read_contains(struct schema *s, const json_t *m, uint32_t *need, uint32_t *most)
{
    *need = 1;
    *most = GRAMMAR_NO_LIMIT;
    return schema_count(s, m, "minContains", need) && schema_count(s, m, "maxContains", most);
}

/* What does not satisfy `kind`, new; NULL with an error. */
static json_t *not_contained(struct schema *s, const json_t *kind)
{
    json_t *other = schema_negate(s, kind);
    if (!other && !builder_failed(s->b))
        schema_fail(s, "contains", "what it says cannot be turned round for maxContains");
    return other;
}

static grammar_node with_contained(struct schema *s, const json_t *m, const struct items *t)
{
    json_t *kind = json_object_get(m, "contains"), *items = json_object_get(m, "items");
    json_t *first = json_object_get(m, "prefixItems"), *other = NULL;
    struct contained c = {.n_first = t->n_first, .min = t->min, .max = t->max};
    if (!read_contains(s, m, &c.need, &c.most))
        return grammar_never(s->b);
    if (t->rest == grammar_never(s->b) && c.max > t->n_first)
        c.max = t->n_first;
    uint32_t far = c.min > c.n_first ? c.min : c.n_first;
    c.cap = c.max != GRAMMAR_NO_LIMIT ? c.max : far > 1 ? far : 1;
    c.top = c.most != GRAMMAR_NO_LIMIT ? c.most : c.need;
    if (c.top > c.cap && c.max != GRAMMAR_NO_LIMIT)
        c.top = c.cap; /* more cannot be */
    if ((uint64_t)(c.cap + 1) * (c.top + 1) > MAX_CONTAINED)
        return schema_fail(s, "contains", "there are too many places for it");
    if (c.need > c.top || c.min > c.max)
        return grammar_never(s->b);
    if (c.most != GRAMMAR_NO_LIMIT && !(other = not_contained(s, kind)))
        return grammar_never(s->b);
    c.first = mem_zalloc(c.n_first + 1, sizeof *c.first);
    for (uint32_t i = 0; i < c.n_first && !builder_failed(s->b); i++)
        c.first[i] = kinds_of(s, json_array_get(first, i), t->first[i], kind, other);
    c.rest = (struct kinds){grammar_never(s->b), grammar_never(s->b)};
    if (t->rest != grammar_never(s->b) && !builder_failed(s->b))
        c.rest = kinds_of(s, items, t->rest, kind, other);
    json_decref(other);
    uint32_t n_rules = (c.cap + 1) * (c.top + 1);
    c.rules = mem_alloc(n_rules * sizeof *c.rules);
    memset(c.rules, 0xff, n_rules * sizeof *c.rules);
    for (uint32_t i = 0; i <= c.cap; i++)
        for (uint32_t n = 0; n <= c.top && !builder_failed(s->b); n++)
            define_contained(s, &c, i, n);
    grammar_node node = builder_failed(s->b) ? grammar_never(s->b) : c.rules[0];
    free(c.rules);
    free(c.first);
    return node;
}

/* ---- uniqueItems ---- */

/* Texts of an automaton as values, new; NULL: too many. */
static json_t *values_of_texts(struct schema *s, json_t *m)
{
    struct dfa *d = dfa_create(s->b, schema_compile_at(s, "items", m));
    char *texts = d ? dfa_texts(d, MAX_LISTED) : NULL;
    json_t *out = texts ? json_array() : NULL;
    for (const char *text = texts; out && *text; text += strlen(text) + 1) {
        json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
        if (v) /* -0 is 0, which is there too */
            json_array_append_new(out, v);
    }
    free(texts);
    dfa_destroy(d);
    return out;
}

/* The values that elements may have, new, if the schema lists them or leaves few; else NULL. */
static json_t *listed_values(struct schema *s, const json_t *items)
{
    json_t *m = items ? schema_merge(s, items) : NULL, *out = NULL;
    json_t *list = json_object_get(m, "enum"), *one = json_object_get(m, "const");
    json_t *type = json_object_get(m, "type");
    const char *name = json_string_value(type);
    if (one)
        out = json_pack("[O]", one);
    else if (list)
        out = json_copy(list);
    else if (name && strcmp(name, "boolean") == 0)
        out = json_pack("[b,b]", 1, 0);
    else if (name && strcmp(name, "null") == 0)
        out = json_pack("[n]");
    else if (name && (strcmp(name, "integer") == 0 || strcmp(name, "string") == 0) &&
             (json_object_get(m, "pattern") || json_object_get(m, "maximum") ||
              json_object_get(m, "exclusiveMaximum")))
        out = values_of_texts(s, m);
    for (size_t i = 0; i < json_array_size(out); i++) /* equal ones once */
        for (size_t k = json_array_size(out) - 1; k > i; k--) {
            if (!schema_works(s))
                break;
            if (schema_same_value(json_array_get(out, i), json_array_get(out, k)))
                json_array_remove(out, k);
        }
    json_decref(m);
    return out;
}

/* Each value as the schema of elements has it. */
static grammar_node value_node(struct schema *s, const json_t *items, json_t *v)
{
    json_t *one = json_pack("{s:[O,{s:O}]}", "allOf", items, "const", v);
    grammar_node node = schema_compile_at(s, "items", one);
    json_decref(one);
    return schema_shared(s, node);
}

/* Values of which contains wants from min to max: bits of those that satisfy it for certain, and
 * of those that may. */
struct wanted {
    uint32_t sure, maybe;
    uint32_t min, max;
};

static bool is_wanted(const struct wanted *w, uint32_t used)
{
    return (uint32_t)__builtin_popcount(used & w->sure) >= w->min &&
           (uint32_t)__builtin_popcount(used & w->maybe) <= w->max;
}

/* Which of the values satisfy contains; false with an error. */
static bool find_wanted(struct schema *s, const json_t *m, const json_t *list, struct wanted *w)
{
    json_t *kind = json_object_get(m, "contains");
    size_t n = json_array_size(list);
    *w = (struct wanted){0, 0, 0, GRAMMAR_NO_LIMIT};
    if (!kind)
        return true;
    if (n > MAX_SUBSETS) {
        schema_fail(s, "contains", "is not supported beside uniqueItems of so many values");
        return false;
    }
    json_t *others = read_contains(s, m, &w->min, &w->max) ? not_contained(s, kind) : NULL;
    for (size_t i = 0; others && i < n; i++) {
        json_t *one = json_pack("{s:O}", "const", json_array_get(list, i));
        w->sure |= (element_with(s, one, kind) != grammar_never(s->b)) << i;
        w->maybe |= (element_with(s, one, others) == grammar_never(s->b)) << i;
        json_decref(one);
    }
    json_decref(others);
    return !builder_failed(s->b);
}

/* Values that are left, as bits: each may come next. */
static grammar_node any_order(struct schema *s,
                              const grammar_node *values,
                              uint32_t n,
                              const struct items *t,
                              const struct wanted *w)
{
    struct grammar_builder *b = s->b;
    grammar_node rules[1u << MAX_SUBSETS], some[MAX_SUBSETS + 1];
    grammar_node comma = json_text_comma(b);
    for (uint32_t used = 0; used < 1u << n; used++)
        rules[used] = grammar_rule(b, "elements that are left");
    for (uint32_t used = 0; used < 1u << n && !builder_failed(b); used++) {
        uint32_t n_used = (uint32_t)__builtin_popcount(used), k = 0;
        for (uint32_t i = 0; i < n && n_used < t->max; i++)
            if (!(used >> i & 1))
                some[k++] =
                    SEQ(b, used ? comma : grammar_empty(b), values[i], rules[used | 1u << i]);
        if (n_used >= t->min && is_wanted(w, used))
            some[k++] = grammar_empty(b);
        grammar_define(b, rules[used], grammar_alt(b, k, some));
    }
    return rules[0];
}

/* The same in the order of the list only: each may lack, min to max of them. */
static grammar_node one_order(struct schema *s,
                              const grammar_node *values,
                              uint32_t n,
                              const struct items *t)
{
    struct grammar_builder *b = s->b;
    uint32_t most = t->max < n ? t->max : n, width = most + 1;
    if ((uint64_t)(n + 1) * width > MAX_CONTAINED)
        return schema_fail(s,
                           "uniqueItems",
                           "%u values for up to %u elements are too many: (values + 1) times "
                           "(maxItems + 1) may be %u",
                           n,
                           most,
                           MAX_CONTAINED);
    grammar_node comma = json_text_comma(b);
    grammar_node *rules = mem_alloc((n + 1) * width * sizeof *rules);
    for (uint32_t i = 0; i < (n + 1) * width; i++)
        rules[i] = grammar_rule(b, "elements in their order");
    for (uint32_t i = 0; i <= n && !builder_failed(b); i++) {
        for (uint32_t k = 0; k <= most; k++) { /* k are there already */
            grammar_node some[2] = {grammar_never(b), grammar_never(b)};
            if (i == n && k >= t->min)
                some[0] = grammar_empty(b);
            if (i < n)
                some[0] = rules[(i + 1) * width + k];
            if (i < n && k < most)
                some[1] =
                    SEQ(b, k ? comma : grammar_empty(b), values[i], rules[(i + 1) * width + k + 1]);
            grammar_define(b, rules[i * width + k], grammar_alt(b, 2, some));
        }
    }
    grammar_node node = builder_failed(b) ? grammar_never(b) : rules[0];
    free(rules);
    return node;
}

static grammar_node unique_items(struct schema *s, const json_t *m, const struct items *t)
{
    const json_t *items = json_object_get(m, "items");
    struct wanted w;
    if (t->max <= 1)
        return json_object_get(m, "contains") ? with_contained(s, m, t) : items_from(s, t);
    json_t *list = t->n_first == 0 ? listed_values(s, items) : NULL;
    size_t n = json_array_size(list);
    if (!list || n > MAX_CONTAINED) {
        json_decref(list);
        return schema_fail(
            s,
            "uniqueItems",
            "is supported where the elements have an enum or few values, or maxItems is 1");
    }
    grammar_node *values = mem_zalloc(n + 1, sizeof *values);
    for (size_t i = 0; i < n && !builder_failed(s->b); i++)
        values[i] = value_node(s, items, json_array_get(list, i));
    grammar_node node = grammar_never(s->b);
    if (!builder_failed(s->b) && find_wanted(s, m, list, &w))
        node = n <= MAX_SUBSETS ? any_order(s, values, (uint32_t)n, t, &w)
                                : one_order(s, values, (uint32_t)n, t);
    free(values);
    json_decref(list);
    return node;
}

/* ---- the whole ---- */

static grammar_node content_of(struct schema *s, const json_t *m, const struct items *t)
{
    const json_t *unique = json_object_get(m, "uniqueItems");
    if (unique && !json_is_boolean(unique))
        return schema_fail(s, "uniqueItems", "must be true or false");
    if (json_is_true(unique))
        return unique_items(s, m, t);
    return json_object_get(m, "contains") ? with_contained(s, m, t) : items_from(s, t);
}

grammar_node schema_array(struct schema *s, const json_t *m)
{
    const json_t *first = json_object_get(m, "prefixItems");
    struct items t = {.max = GRAMMAR_NO_LIMIT};
    struct grammar_builder *b = s->b;
    if (first && !json_is_array(first))
        return schema_fail(s, "prefixItems", "must be an array");
    if (!schema_count(s, m, "minItems", &t.min) || !schema_count(s, m, "maxItems", &t.max))
        return grammar_never(b);
    if (t.max < t.min)
        return s->combined ? grammar_never(b) : schema_fail(s, "maxItems", "is less than minItems");
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
    grammar_node content = builder_failed(b) ? grammar_never(b) : content_of(s, m, &t);
    free(t.first);
    return json_text_enclosed(b, "[]", content);
}
