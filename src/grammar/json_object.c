/* Objects: the members that the schema describes, in its order, each once; then those that
 * additionalProperties lets in.
 *
 *      first(i)   members i.. when none has been written yet: no comma before the next
 *      next(i)    members i.. when one has
 *
 * are rules, one a member, so an object takes space in proportion to its members. */
#include "grammar/json_schema.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONAL 300 /* members in a row that may be left out: parses side by side */

struct member {
    const char *name;
    grammar_node pair; /* "name": value; NEVER: cannot be */
    bool required;
};

struct object {
    struct member *members;
    uint32_t n, cap;
    grammar_node extra; /* one member that is not described, or NEVER */
    uint32_t n_extra_min, n_extra_max;
};

static grammar_node seq2(struct schema *s, grammar_node x, grammar_node y)
{
    return grammar_seq(s->b, 2, (grammar_node[]){x, y});
}

static grammar_node comma(struct schema *s)
{
    return seq2(s, grammar_literal(s->b, ",", 1), grammar_json_space(s->b));
}

/* key ":" value, for a key that is quoted already. */
static grammar_node pair(struct schema *s, grammar_node key, grammar_node value)
{
    grammar_node parts[4] = {
        key, grammar_literal(s->b, ":", 1), grammar_json_space(s->b), schema_shared(s, value)};
    return grammar_seq(s->b, 4, parts);
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

/* Names as a trie of characters, for the names that are none of them. */
struct name {
    const char *s;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->s, ((const struct name *)b)->s);
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

static uint32_t char_at(const char *s, size_t *len)
{
    static const uint8_t lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint8_t c = (uint8_t)s[0];
    *len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t out = c & lead[*len];
    for (size_t i = 1; i < *len; i++)
        out = out << 6 | ((uint8_t)s[i] & 0x3f);
    return out;
}

/* What may follow byte `at`, in which names[n], sorted, agree, so that the whole is none of them.
 * any: the rule for any further text. */
static grammar_node other_names(struct schema *s,
                                const struct name *names,
                                size_t n,
                                size_t at,
                                grammar_node any,
                                uint32_t depth)
{
    struct grammar_builder *b = s->b;
    struct char_set free_set = {0}, taken = {0};
    grammar_node *some = NULL;
    uint32_t n_some = 0, cap = 0;
    size_t i = 0;
    if (!schema_works(s))
        return grammar_never(b);
    if (depth > 100)
        return schema_fail(
            s, "additionalProperties", "names of properties are too long to tell apart");
    while (i < n && names[i].s[at] == '\0')
        i++;
    bool may_end = i == 0;
    while (i < n && !builder_failed(b)) {
        size_t len, to = i;
        uint32_t c = char_at(names[i].s + at, &len);
        while (to < n && strncmp(names[to].s + at, names[i].s + at, len) == 0)
            to++;
        char_set_add(&taken, c, c);
        some = grow(some, &cap, n_some + 3, sizeof *some);
        some[n_some++] = seq2(s,
                              grammar_literal(b, names[i].s + at, len),
                              other_names(s, names + i, to - i, at + len, any, depth + 1));
        i = to;
    }
    some = grow(some, &cap, n_some + 2, sizeof *some);
    plain_chars(&free_set);
    char_set_invert(&free_set); /* what may not be, and what is taken; then the rest of all */
    for (uint32_t k = 0; k < taken.n; k++)
        char_set_add(&free_set, taken.r[k].lo, taken.r[k].hi);
    char_set_normalise(&free_set);
    char_set_invert(&free_set);
    some[n_some++] = seq2(s, grammar_chars(b, free_set.n, free_set.r), any);
    some[n_some++] = may_end ? grammar_empty(b) : grammar_never(b);
    grammar_node node = grammar_alt(b, n_some, some);
    free(some);
    char_set_deinit(&taken);
    char_set_deinit(&free_set);
    return node;
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
    struct name *names = mem_alloc(o->n * sizeof *names);
    size_t n = 0;
    for (uint32_t i = 0; i < o->n; i++) /* one with escapes is none of the names made here */
        if (is_plain(o->members[i].name))
            names[n++] = (struct name){o->members[i].name};
    qsort(names, n, sizeof *names, by_name);
    grammar_node any = schema_shared(s, grammar_repeat(s->b, plain_char(s), 0, GRAMMAR_NO_LIMIT));
    grammar_node node = json_text_quoted(s->b, other_names(s, names, n, 0, any, 0));
    free(names);
    return node;
}

/* A name by "propertyNames", a schema of strings. */
static grammar_node checked_name(struct schema *s, const json_t *rule, const struct object *o)
{
    if (o->n > 0)
        return schema_fail(s, "propertyNames", "is not supported beside properties");
    json_t *both = json_pack("{s:[O,{s:s}]}", "allOf", rule, "type", "string");
    grammar_node node = schema_compile_at(s, "propertyNames", both);
    json_decref(both);
    return node;
}

/* The one pattern of patternProperties. Members that match none are not made. */
static void read_patterns(struct schema *s, const json_t *patterns, struct object *o)
{
    const char *key;
    json_t *v;
    if (!json_is_object(patterns) || json_object_size(patterns) != 1 || o->n > 0) {
        schema_fail(s,
                    "patternProperties",
                    "is supported with one pattern, and without properties or required");
        return;
    }
    size_t len = schema_push(s, "patternProperties");
    json_object_foreach((json_t *)patterns, key, v)
    {
        struct buf where = {0};
        buf_printf(&where, "'%s': at \"%.100s\"", s->b->field, buf_cstr(&s->path));
        grammar_node name = json_text_quoted(
            s->b, regex_node(s->b, key, strlen(key), true, true, buf_cstr(&where)));
        buf_deinit(&where);
        o->extra = pair(s, name, schema_compile_at(s, key, v));
    }
    schema_pop(s, len);
}

static void read_extra(struct schema *s, const json_t *m, struct object *o)
{
    const json_t *more = json_object_get(m, "additionalProperties");
    const json_t *patterns = json_object_get(m, "patternProperties");
    const json_t *names = json_object_get(m, "propertyNames");
    bool described = json_object_get(m, "properties") != NULL;
    if (patterns && json_object_size(patterns) > 0) {
        if (names)
            schema_fail(s, "propertyNames", "is not supported beside patternProperties");
        else
            read_patterns(s, patterns, o);
        return;
    }
    if (json_is_false(more) || (!more && described)) {
        if (names)
            schema_fail(s, "propertyNames", "is not supported beside properties");
        return;
    }
    grammar_node value =
        more ? schema_compile_at(s, "additionalProperties", more) : grammar_json_value(s->b);
    o->extra = pair(s, names ? checked_name(s, names, o) : extra_name(s, o), value);
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
        if (!member && json_is_false(more)) {
            schema_fail(s, "required", "'%.60s' is required, but no such member may be", name);
            return;
        }
        if (!member) {
            add_member(s, o, name, more ? schema_compile(s, more) : grammar_json_value(s->b));
            member = &o->members[o->n - 1];
        }
        member->required = true;
    }
}

/* Numbers of members are supported where the schema leaves nothing to count, and as a limit on the
 * members of a map. */
static void read_counts(struct schema *s, const json_t *m, struct object *o)
{
    uint32_t min = 0, max = GRAMMAR_NO_LIMIT, n_required = 0;
    if (!schema_count(s, m, "minProperties", &min) || !schema_count(s, m, "maxProperties", &max))
        return;
    for (uint32_t i = 0; i < o->n; i++)
        n_required += o->members[i].required;
    bool open = o->extra != grammar_never(s->b);
    o->n_extra_max = GRAMMAR_NO_LIMIT;
    if (o->n == 0 && open && min <= 1) { /* names may come twice, so no more can be promised */
        o->n_extra_min = min;
        o->n_extra_max = max;
        if (max < min)
            schema_fail(s, "maxProperties", "is less than minProperties");
        return;
    }
    if (min > n_required)
        schema_fail(
            s, "minProperties", "is supported up to 1, or up to the number of required members");
    if (max != GRAMMAR_NO_LIMIT && max < o->n)
        schema_fail(
            s, "maxProperties", "is supported for maps, or from the number of properties on");
    else if (max != GRAMMAR_NO_LIMIT)
        o->n_extra_max = max - o->n;
}

/* ---- the whole ---- */

/* (extra ("," extra)*)? with the numbers that are allowed. */
static grammar_node first_extras(struct schema *s, const struct object *o)
{
    grammar_node never = grammar_never(s->b);
    if (o->extra == never || o->n_extra_max == 0)
        return o->n_extra_min > 0 ? never : grammar_empty(s->b);
    uint32_t max = o->n_extra_max == GRAMMAR_NO_LIMIT ? GRAMMAR_NO_LIMIT : o->n_extra_max - 1;
    grammar_node more = grammar_repeat(s->b, seq2(s, comma(s), o->extra), 0, max);
    grammar_node some = seq2(s, o->extra, more);
    return o->n_extra_min > 0 ? some : grammar_optional(s->b, some);
}

static grammar_node next_extras(struct schema *s, const struct object *o)
{
    return grammar_repeat(s->b, seq2(s, comma(s), o->extra), 0, o->n_extra_max);
}

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

static grammar_node members(struct schema *s, const struct object *o)
{
    struct grammar_builder *b = s->b;
    grammar_node first = first_extras(s, o), next = next_extras(s, o);
    for (uint32_t i = o->n; i > 0 && !builder_failed(b); i--) {
        const struct member *m = &o->members[i - 1];
        next = schema_shared(s, next);
        grammar_node here = seq2(s, m->pair, next);
        first = m->required ? here : grammar_alt(b, 2, (grammar_node[]){here, first});
        grammar_node one = seq2(s, comma(s), m->pair);
        next = seq2(s, m->required ? one : grammar_optional(b, one), next);
    }
    return first;
}

grammar_node schema_object(struct schema *s, const json_t *m)
{
    struct grammar_builder *b = s->b;
    struct object o = {.extra = grammar_never(b)};
    read_properties(s, m, &o);
    if (!builder_failed(b))
        read_required(s, m, &o);
    if (!builder_failed(b))
        read_extra(s, m, &o);
    if (!builder_failed(b))
        read_counts(s, m, &o);
    if (too_many_optional(&o))
        schema_fail(s, "properties", "over %d members in a row may be left out", MAX_OPTIONAL);
    grammar_node content = builder_failed(b) ? grammar_never(b) : members(s, &o);
    free(o.members);
    grammar_node space = grammar_json_space(b);
    grammar_node list[5] = {
        grammar_literal(b, "{", 1), space, content, space, grammar_literal(b, "}", 1)};
    return grammar_seq(b, 5, list);
}
