/* Objects: the members that the schema describes, in its order, each once; then those that
 * additionalProperties lets in.
 *
 *      first(i)   members i.. when none has been written yet: no comma before the next
 *      next(i)    members i.. when one has
 *
 * are rules, one a member, so an object takes space in proportion to its members. */
#include "grammar/json_schema.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EXTRA 300u    /* members that are not described, where they are counted */
#define MAX_COUNTED 4000u /* rules of one object: members times how many are there */
#define MAX_OPTIONAL 300  /* members in a row that may be left out: parses side by side */

struct member {
    const char *name;
    grammar_node pair; /* "name": value; NEVER: cannot be */
    bool required;
};

struct object {
    struct member *members;
    uint32_t n, cap;
    grammar_node extra; /* one member that is not described, or NEVER */
    uint32_t min, max;  /* how many there may be, where that must be counted */
};

/* key ":" value, for a key that is quoted already. */
static grammar_node pair(struct schema *s, grammar_node key, grammar_node value)
{
    return SEQ(s->b,
               key,
               grammar_literal(s->b, ":", 1),
               grammar_json_space(s->b),
               schema_shared(s, value));
}

static void add_member(struct schema *s, struct object *o, const char *name, grammar_node value)
{
    o->members = grow(o->members, &o->cap, o->n + 1, sizeof *o->members);
    grammar_node key = json_text_literal(s->b, name, strlen(name));
    o->members[o->n++] = (struct member){.name = name, .pair = pair(s, key, value)};
}

static void read_properties(struct schema *s, const json_t *m, struct object *o)
{
    const json_t *properties = json_object_get(m, "properties");
    const char *key;
    json_t *v;
    if (properties && !json_is_object(properties)) {
        schema_fail(s, "properties", "must be an object");
        return;
    }
    size_t len = schema_push(s, "properties");
    json_object_foreach((json_t *)properties, key, v)
    {
        add_member(s, o, key, schema_compile_at(s, key, v));
        if (builder_failed(s->b))
            break;
    }
    schema_pop(s, len);
}

/* ---- members that are not described ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Characters that a name may have and that are written as they are. */
static void plain_chars(struct char_set *set)
{
    char_set_add(set, 0x20, 0x21);
    char_set_add(set, 0x23, 0x5b);
    char_set_add(set, 0x5d, 0x10ffff);
    char_set_normalise(set);
}

static grammar_node plain_char(struct schema *s)
{
    struct char_set set = {0};
    plain_chars(&set);
    grammar_node node = grammar_chars(s->b, set.n, set.r);
    char_set_deinit(&set);
    return schema_shared(s, node);
}

/* What may follow byte `at`, in which names[n], sorted, agree, so that the whole is none of them.
 * any: the rule for any further text. */
static grammar_node other_names(struct schema *s,
                                const char *const *names,
                                size_t n,
                                size_t at,
                                grammar_node any,
                                uint32_t depth)
{
    struct grammar_builder *b = s->b;
    struct char_set free_set = {0}, taken = {0};
    struct node_list some = {0};
    size_t i = 0;
    if (!schema_works(s))
        return grammar_never(b);
    if (depth > 100)
        return schema_fail(
            s, "additionalProperties", "names of properties are too long to tell apart");
    while (i < n && names[i][at] == '\0')
        i++;
    bool may_end = i == 0;
    while (i < n && !builder_failed(b)) {
        size_t len, to = i;
        uint32_t c = utf8_decode(names[i] + at, &len);
        while (to < n && strncmp(names[to] + at, names[i] + at, len) == 0)
            to++;
        char_set_add(&taken, c, c);
        grammar_node name = grammar_literal(b, names[i] + at, len);
        grammar_node rest = other_names(s, names + i, to - i, at + len, any, depth + 1);
        node_list_add(&some, SEQ(b, name, rest));
        i = to;
    }
    plain_chars(&free_set);
    char_set_invert(&free_set); /* what may not be, and what is taken; then the rest of all */
    for (uint32_t k = 0; k < taken.n; k++)
        char_set_add(&free_set, taken.r[k].lo, taken.r[k].hi);
    char_set_normalise(&free_set);
    char_set_invert(&free_set);
    node_list_add(&some, SEQ(b, grammar_chars(b, free_set.n, free_set.r), any));
    node_list_add(&some, may_end ? grammar_empty(b) : grammar_never(b));
    char_set_deinit(&taken);
    char_set_deinit(&free_set);
    return node_list_alt(b, &some);
}

static bool is_plain(const char *name)
{
    for (; *name; name++)
        if ((uint8_t)*name < 0x20 || *name == '"' || *name == '\\')
            return false;
    return true;
}

/* A quoted name that is not described. */
static grammar_node extra_name(struct schema *s, const struct object *o)
{
    if (o->n == 0)
        return json_text_string(s->b);
    const char **names = mem_alloc(o->n * sizeof *names);
    size_t n = 0;
    for (uint32_t i = 0; i < o->n; i++) /* one with escapes is none of the names made here */
        if (is_plain(o->members[i].name))
            names[n++] = o->members[i].name;
    qsort(names, n, sizeof *names, by_name);
    grammar_node any = schema_shared(s, grammar_repeat(s->b, plain_char(s), 0, GRAMMAR_NO_LIMIT));
    grammar_node node = json_text_quoted(s->b, other_names(s, names, n, 0, any, 0));
    free(names);
    return node;
}

/* ---- names by automata: patternProperties, propertyNames ---- */

#define MAX_PATTERNS 6u

/* Quoted names that are none of those described. */
static struct dfa *free_names(struct schema *s, const struct object *o)
{
    /* each written in one way, so what is taken out is out */
    grammar_node any = grammar_repeat(s->b, plain_char(s), 0, GRAMMAR_NO_LIMIT);
    struct dfa *d = dfa_create(s->b, json_text_quoted(s->b, any));
    if (o->n == 0)
        return d;
    grammar_node *taken = mem_zalloc(o->n, sizeof *taken);
    for (uint32_t i = 0; i < o->n; i++)
        taken[i] = json_text_literal(s->b, o->members[i].name, strlen(o->members[i].name));
    (void)dfa_narrow(s->b, &d, grammar_alt(s->b, o->n, taken), true);
    free(taken);
    return d;
}

/* One pattern of patternProperties, or the schema of propertyNames, as quoted names. */
struct rule_of_names {
    struct dfa *names; /* that match it for certain */
    struct dfa *may;   /* and those that match it by some language's rules */
    json_t *schema;
};

/* The members that are not described: for each set of patterns that names may match together, those
 * names, with what all of these patterns say; and names that match none, with additionalProperties.
 */
static void add_extras(struct schema *s,
                       const struct rule_of_names *rules,
                       uint32_t n,
                       const json_t *more,
                       const struct dfa *allowed,
                       struct object *o)
{
    grammar_node *kinds = mem_zalloc((size_t)1 << n, sizeof *kinds);
    uint32_t n_kinds = 0;
    for (uint32_t set = 0; set < 1u << n && !builder_failed(s->b); set++) {
        if (set == 0 && json_is_false(more))
            continue;
        struct dfa *d = free_names(s, o);
        if (allowed)
            (void)dfa_meet(s->b, &d, allowed, false);
        json_t *all = json_array();
        for (uint32_t i = 0; i < n; i++) {
            bool matches = set >> i & 1;
            (void)dfa_meet(s->b, &d, matches ? rules[i].names : rules[i].may, !matches);
            if (matches)
                json_array_append(all, rules[i].schema);
        }
        if (set == 0 && more)
            json_array_append(all, (json_t *)more);
        if (!d) {
            schema_fail(s, n ? "patternProperties" : "propertyNames", "is too large an automaton");
        } else if (!dfa_empty(d)) {
            json_t *value = json_array_size(all) == 1 ? json_incref(json_array_get(all, 0))
                                                      : json_pack("{s:O}", "allOf", all);
            kinds[n_kinds++] = pair(s, dfa_node(s->b, d), schema_compile(s, value));
            json_decref(value);
        }
        json_decref(all);
        dfa_destroy(d);
    }
    if (!builder_failed(s->b))
        o->extra = grammar_alt(s->b, n_kinds, kinds);
    free(kinds);
}

static void fail_required(struct schema *s, const char *name)
{
    schema_fail(s, "required", "'%.60s' is required, but no such member may be", name);
}

/* A described member whose name matches patterns has what they say too; one whose name may not be
 * cannot be there. One that is only required is described by patterns that match for certain, or
 * takes what additionalProperties says. */
static void narrow_members(struct schema *s,
                           const json_t *m,
                           const struct rule_of_names *rules,
                           uint32_t n,
                           const struct dfa *allowed,
                           struct object *o)
{
    const json_t *properties = json_object_get(m, "properties");
    json_t *more = json_object_get(m, "additionalProperties");
    for (uint32_t i = 0; i < o->n && !builder_failed(s->b); i++) {
        struct member *member = &o->members[i];
        json_t *name = json_string(member->name);
        char *text = grammar_json_dump(name);
        json_t *own = json_object_get(properties, member->name);
        json_t *all = own ? json_pack("[O]", own) : json_array();
        bool described = own != NULL;
        for (uint32_t k = 0; k < n; k++) {
            described |= dfa_accepts(rules[k].names, text, strlen(text));
            if (dfa_accepts(rules[k].may, text, strlen(text)))
                json_array_append(all, rules[k].schema);
        }
        bool changed = json_array_size(all) > (own != NULL);
        if (changed && !described && more)
            json_array_append(all, more);
        if (!described && json_is_false(more) && !s->combined) {
            fail_required(s, member->name);
        } else if (!described && json_is_false(more)) {
            member->pair = grammar_never(s->b); /* another option may do */
        } else if (allowed && !dfa_accepts(allowed, text, strlen(text))) {
            member->pair = grammar_never(s->b);
        } else if (changed) {
            json_t *both = json_pack("{s:O}", "allOf", all);
            member->pair = pair(s,
                                json_text_literal(s->b, member->name, strlen(member->name)),
                                schema_compile_at(s, "patternProperties", both));
            json_decref(both);
        }
        json_decref(all);
        json_decref(name);
        free(text);
    }
}

static void read_patterns(struct schema *s, const json_t *m, struct object *o)
{
    const json_t *patterns = json_object_get(m, "patternProperties");
    const json_t *names = json_object_get(m, "propertyNames");
    const json_t *more = json_object_get(m, "additionalProperties");
    struct rule_of_names rules[MAX_PATTERNS] = {0};
    struct dfa *allowed = NULL;
    const char *key;
    json_t *v;
    uint32_t n = 0;
    if (patterns && (!json_is_object(patterns) || json_object_size(patterns) > MAX_PATTERNS)) {
        schema_fail(s, "patternProperties", "must be an object of up to %u", MAX_PATTERNS);
        return;
    }
    json_object_foreach((json_t *)patterns, key, v)
    {
        json_t *text = json_string(key);
        for (int over = 0; over < 2; over++) {
            grammar_node node = schema_pattern(s, "patternProperties", text, over);
            struct dfa *d = dfa_create(s->b, json_text_quoted(s->b, node));
            *(over ? &rules[n].may : &rules[n].names) = d;
        }
        rules[n].schema = v;
        json_decref(text);
        n++;
        if (!rules[n - 1].names || !rules[n - 1].may)
            schema_fail(s, "patternProperties", "is too large an automaton");
    }
    if (names) {
        json_t *both = json_pack("{s:[O,{s:s}]}", "allOf", names, "type", "string");
        allowed = dfa_create(s->b, schema_compile_at(s, "propertyNames", both));
        json_decref(both);
        if (!allowed)
            schema_fail(s, "propertyNames", "is too large an automaton");
    }
    if (!builder_failed(s->b))
        narrow_members(s, m, rules, n, allowed, o);
    const json_t *closed = json_false();
    bool described = json_object_get(m, "properties") != NULL || n > 0;
    if (!builder_failed(s->b))
        add_extras(s, rules, n, more ? more : described ? closed : NULL, allowed, o);
    for (uint32_t i = 0; i < n; i++) {
        dfa_destroy(rules[i].names);
        dfa_destroy(rules[i].may);
    }
    dfa_destroy(allowed);
}

static void read_extra(struct schema *s, const json_t *m, struct object *o)
{
    const json_t *more = json_object_get(m, "additionalProperties");
    bool described = json_object_get(m, "properties") != NULL;
    bool patterns = json_object_size(json_object_get(m, "patternProperties")) > 0;
    if (patterns || json_object_get(m, "propertyNames")) {
        read_patterns(s, m, o);
        return;
    }
    if (json_is_false(more) || (!more && described))
        return;
    grammar_node value =
        more ? schema_compile_at(s, "additionalProperties", more) : grammar_json_value(s->b);
    o->extra = pair(s, extra_name(s, o), value);
}

/* ---- required, counts ---- */

static struct member *find_member(struct object *o, const char *name)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (strcmp(o->members[i].name, name) == 0)
            return &o->members[i];
    return NULL;
}

/* Members that must be there but are not described take what additionalProperties says. */
static void read_required(struct schema *s, const json_t *m, struct object *o)
{
    const json_t *list = json_object_get(m, "required");
    const json_t *more = json_object_get(m, "additionalProperties");
    if (list && !json_is_array(list)) {
        schema_fail(s, "required", "must be an array of names");
        return;
    }
    s->work += (uint32_t)((uint64_t)json_array_size(list) * o->n / 256);
    for (size_t i = 0; schema_works(s) && i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name) {
            schema_fail(s, "required", "must be an array of names");
            return;
        }
        struct member *member = find_member(o, name);
        bool closed = !member && json_is_false(more) &&
                      json_object_size(json_object_get(m, "patternProperties")) == 0;
        if (closed && !s->combined) {
            fail_required(s, name);
            return;
        }
        if (!member) {
            grammar_node value = closed ? grammar_never(s->b) /* another option may do */
                                 : more && !json_is_false(more) ? schema_compile(s, more)
                                                                : grammar_json_value(s->b);
            add_member(s, o, name, value);
            member = &o->members[o->n - 1];
        }
        member->required = true;
    }
}

/* How many members there may be. Names of those that are not described may come twice, so of them
 * one at most counts towards the least number. */
static void read_counts(struct schema *s, const json_t *m, struct object *o)
{
    o->min = 0;
    o->max = GRAMMAR_NO_LIMIT;
    if (!schema_count(s, m, "minProperties", &o->min) ||
        !schema_count(s, m, "maxProperties", &o->max))
        return;
    uint32_t n_required = 0, n_possible = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        n_required += o->members[i].required;
        n_possible += o->members[i].pair != grammar_never(s->b);
    }
    bool open = o->extra != grammar_never(s->b);
    if (open && o->min > n_possible + 1)
        schema_fail(s, "minProperties", "is more than the members that are described");
    if (o->max != GRAMMAR_NO_LIMIT && o->max > o->n + MAX_EXTRA)
        o->max = o->n + MAX_EXTRA; /* kept too well */
    if (o->min <= n_required)
        o->min = 0;
    if (!open && o->max >= n_possible)
        o->max = GRAMMAR_NO_LIMIT;
}

/* ---- the whole ---- */

static bool too_many_optional(const struct object *o)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        row = o->members[i].required ? 0 : row + 1;
        if (row > MAX_OPTIONAL)
            return true;
    }
    return false;
}

/* extra ("," extra)*, when none or some have been written; max: how many more may come. */
static grammar_node extras(struct schema *s, const struct object *o, bool first, uint32_t max)
{
    grammar_node comma = json_text_comma(s->b);
    return first ? grammar_separated(s->b, o->extra, comma, 0, max)
                 : grammar_repeat(s->b, SEQ(s->b, comma, o->extra), 0, max);
}

static grammar_node members(struct schema *s, const struct object *o)
{
    struct grammar_builder *b = s->b;
    grammar_node first = extras(s, o, true, GRAMMAR_NO_LIMIT);
    grammar_node next = extras(s, o, false, GRAMMAR_NO_LIMIT);
    for (uint32_t i = o->n; i > 0 && !builder_failed(b); i--) {
        const struct member *m = &o->members[i - 1];
        next = schema_shared(s, next);
        grammar_node here = SEQ(s->b, m->pair, next);
        first = m->required ? here : ALT(b, here, first);
        grammar_node one = SEQ(s->b, json_text_comma(s->b), m->pair);
        next = SEQ(s->b, m->required ? one : grammar_optional(b, one), next);
    }
    return first;
}

/* The same where members are counted: count(i, k) is members i.. when k have been written, of which
 * more than `min`, where there is no upper bound, are all alike. */
static grammar_node counted_members(struct schema *s, const struct object *o)
{
    struct grammar_builder *b = s->b;
    uint32_t top = o->max != GRAMMAR_NO_LIMIT ? o->max : o->min;
    if (top > o->n && o->extra == grammar_never(b))
        top = o->n;
    if ((uint64_t)(o->n + 1) * (top + 1) > MAX_COUNTED)
        return schema_fail(s,
                           o->min > 0 ? "minProperties" : "maxProperties",
                           "there are too many members to count");
    uint32_t width = top + 1;
    grammar_node *rules = mem_alloc((o->n + 1) * width * sizeof *rules);
    for (uint32_t i = 0; i < (o->n + 1) * width; i++)
        rules[i] = grammar_rule(b, "members that are counted");
    for (uint32_t i = 0; i <= o->n && !builder_failed(b); i++) {
        for (uint32_t k = 0; k <= top; k++) {
            grammar_node some[2] = {grammar_never(b), grammar_never(b)};
            bool room = o->max == GRAMMAR_NO_LIMIT || k < o->max;
            uint32_t after = k < top ? k + 1 : k;
            if (i == o->n) {
                uint32_t left = o->max == GRAMMAR_NO_LIMIT ? o->max : o->max - k;
                if (k >= o->min)
                    some[0] = extras(s, o, k == 0, left);
                else if (k + 1 == o->min && o->extra != grammar_never(b) && room)
                    some[0] = SEQ(s->b,
                                  k == 0 ? o->extra : SEQ(s->b, json_text_comma(s->b), o->extra),
                                  extras(s, o, false, left == GRAMMAR_NO_LIMIT ? left : left - 1));
            } else {
                const struct member *m = &o->members[i];
                if (!m->required)
                    some[0] = rules[(i + 1) * width + k];
                if (room)
                    some[1] = SEQ(s->b,
                                  k == 0 ? m->pair : SEQ(s->b, json_text_comma(s->b), m->pair),
                                  rules[(i + 1) * width + after]);
            }
            grammar_define(b, rules[i * width + k], grammar_alt(b, 2, some));
        }
    }
    grammar_node node = builder_failed(b) ? grammar_never(b) : rules[0];
    free(rules);
    return node;
}

grammar_node schema_object(struct schema *s, const json_t *m)
{
    struct grammar_builder *b = s->b;
    struct object o = {.extra = grammar_never(b), .max = GRAMMAR_NO_LIMIT};
    read_properties(s, m, &o);
    if (!builder_failed(b))
        read_required(s, m, &o);
    if (!builder_failed(b))
        read_extra(s, m, &o);
    if (!builder_failed(b))
        read_counts(s, m, &o);
    if (too_many_optional(&o))
        schema_fail(s, "properties", "over %d members in a row may be left out", MAX_OPTIONAL);
    bool counted = o.min > 0 || o.max != GRAMMAR_NO_LIMIT;
    grammar_node content = builder_failed(b) ? grammar_never(b)
                           : counted         ? counted_members(s, &o)
                                             : members(s, &o);
    free(o.members);
    return json_text_enclosed(b, "{}", content);
}
