/* JSON schemas (draft 2020-12, what of it can be had by construction) to nodes.
 *
 * What comes out always satisfies the schema. The other direction is given up where it costs
 * nothing that a model would miss: members come in the order of the schema, and an object has no
 * members that are not described, unless additionalProperties says so. A keyword that is neither
 * done nor an annotation is an error with its pointer. */
#include "grammar/json_schema.h"

#include "base/json_text.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

grammar_node schema_fail(struct schema *s, const char *key, const char *fmt, ...)
{
    char text[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t len = key ? schema_push(s, key) : s->path.len;
    builder_fail(
        s->b, "'%s': at \"%.100s\": %s", s->b->field, s->path.len ? buf_cstr(&s->path) : "", text);
    if (key)
        schema_pop(s, len);
    return grammar_never(s->b);
}

bool schema_is_one_of(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

size_t schema_push(struct schema *s, const char *key)
{
    size_t len = s->path.len;
    buf_char(&s->path, '/');
    for (; *key && s->path.len < len + 200; key++) {
        if (*key == '~')
            buf_str(&s->path, "~0");
        else if (*key == '/')
            buf_str(&s->path, "~1");
        else
            buf_char(&s->path, *key);
    }
    return len;
}

size_t schema_push_index(struct schema *s, size_t i)
{
    size_t len = s->path.len;
    buf_printf(&s->path, "/%zu", i);
    return len;
}

void schema_pop(struct schema *s, size_t len)
{
    s->path.len = len;
}

bool schema_works(struct schema *s)
{
    if (builder_over(s->b, ++s->work, SCHEMA_MAX_WORK) ||
        builder_over(s->b, s->b->schema_work + s->work, BUILDER_MAX_WORK))
        schema_fail(s, NULL, "the schema is too large, or combines too many of its parts");
    return !builder_failed(s->b);
}

/* ---- references ---- */

/* A schema that others refer to becomes a rule, so it may refer to itself. It waits for its turn: a
 * chain of references is no recursion here. */
static grammar_node compile_ref(struct schema *s, const char *key, const json_t *ref)
{
    const json_t *target = schema_resolve(s, key, ref);
    if (!target)
        return grammar_never(s->b);
    s->work += s->n_refs / 1024;
    for (uint32_t i = 0; i < s->n_refs; i++)
        if (s->refs[i].target == target)
            return s->refs[i].rule;
    const char *text = json_string_value(ref);
    grammar_node rule = grammar_rule(s->b, text);
    s->refs = grow(s->refs, &s->cap_refs, s->n_refs + 1, sizeof *s->refs);
    s->refs[s->n_refs++] = (struct schema_ref){target, text + 1, rule};
    return rule;
}

/* The keyword of a schema that refers to another and says nothing else that counts, or NULL. */
static const char *only_ref(const json_t *schema)
{
    const char *key, *found = NULL;
    json_t *v;
    json_object_foreach((json_t *)schema, key, v)
    {
        if (schema_is_annotation(key))
            continue;
        if (found || !schema_is_ref(key))
            return NULL;
        found = key;
    }
    return found;
}

/* ---- anyOf, oneOf ---- */

/* Are the options apart, or at least where what stands beside both holds too? */
static bool apart(struct schema *s, json_t *beside, json_t *x, json_t *y)
{
    bool is = schema_disjoint(s, x, y);
    if (!is && json_object_size(beside) > 0 && !builder_failed(s->b)) {
        json_t *a = json_pack("{s:[O,O]}", "allOf", beside, x);
        json_t *b = json_pack("{s:[O,O]}", "allOf", beside, y);
        is = schema_disjoint(s, a, b);
        json_decref(a);
        json_decref(b);
    }
    return is;
}

/* Of oneOf only one option may hold: where two might, the other is turned round. False: it cannot
 * be. */
static bool exclude(
    struct schema *s, json_t *both, json_t *beside, const json_t *list, size_t i, size_t k)
{
    json_t *option = json_array_get(list, i), *other = json_array_get(list, k);
    if (apart(s, beside, k < i ? other : option, k < i ? option : other) || builder_failed(s->b))
        return true;
    json_t *turned = schema_negate(s, other);
    if (turned)
        json_array_append_new(json_object_get(both, "allOf"), turned);
    return turned != NULL || builder_failed(s->b);
}

json_t *schema_exclusive(struct schema *s, json_t *beside, const json_t *list)
{
    size_t n = json_is_array(list) ? json_array_size(list) : 0;
    json_t *all = json_array();
    if (n == 0 || n > 300)
        schema_fail(s, "oneOf", n ? "has too many schemas" : "must be an array that is not empty");
    for (size_t i = 0; i < n && !builder_failed(s->b); i++) {
        json_t *both = json_pack("{s:[O]}", "allOf", json_array_get(list, i));
        for (size_t k = 0; k < n && !builder_failed(s->b); k++)
            if (k != i && !exclude(s, both, beside, list, i, k))
                schema_fail(
                    s, "oneOf", "its options %zu and %zu cannot be told apart: use anyOf", i, k);
        json_array_append_new(all, both);
    }
    if (!builder_failed(s->b))
        return all;
    json_decref(all);
    return NULL;
}

/* Each option together with what stands beside the list. */
static grammar_node compile_options(struct schema *s, json_t *m, const char *key)
{
    json_t *list = json_incref(json_object_get(m, key));
    size_t n = json_is_array(list) ? json_array_size(list) : 0;
    json_object_del(m, key);
    bool alone = json_object_size(m) == 0, one = strcmp(key, "oneOf") == 0;
    if (n == 0 || n > 10000 || (one && n > 300)) {
        json_decref(list);
        return schema_fail(
            s, key, n ? "has too many schemas" : "must be an array that is not empty");
    }
    grammar_node *nodes = mem_zalloc(n, sizeof *nodes);
    size_t len = schema_push(s, key);
    for (size_t i = 0; i < n && !builder_failed(s->b); i++) {
        json_t *option = json_array_get(list, i);
        size_t at = schema_push_index(s, i);
        json_t *both = alone ? json_pack("{s:[O]}", "allOf", option)
                             : json_pack("{s:[O,O]}", "allOf", m, option);
        size_t n_parts = json_array_size(json_object_get(both, "allOf"));
        for (size_t k = 0; one && k < n && !builder_failed(s->b); k++)
            if (k != i && !exclude(s, both, m, list, i, k))
                schema_fail(s, NULL, "cannot be told apart from oneOf/%zu: use anyOf", k);
        if (alone && json_array_size(json_object_get(both, "allOf")) == n_parts) {
            json_decref(both); /* which may be a reference, and recursive */
            both = json_incref(option);
        }
        nodes[i] = both ? schema_compile(s, both) : schema_fail(s, NULL, "no memory");
        json_decref(both);
        schema_pop(s, at);
    }
    schema_pop(s, len);
    grammar_node node = grammar_alt(s->b, (uint32_t)n, nodes);
    free(nodes);
    json_decref(list);
    return node;
}

/* ---- schemas ---- */

/* A word of JSON, unless "not" has it. */
static grammar_node unless_refused(struct schema *s, const json_t *m, const char *word)
{
    json_t *v = json_loads(word, JSON_DECODE_ANY, NULL);
    bool refused = schema_refuses(m, v);
    json_decref(v);
    return refused ? grammar_never(s->b) : grammar_literal(s->b, word, strlen(word));
}

/* Arrays and objects can be written in too many ways to take one out. */
static bool refuses_only_scalars(struct schema *s, const json_t *m, uint32_t types)
{
    const json_t *list = json_object_get(json_object_get(m, "not"), "enum");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!(schema_type_of(json_array_get(list, i)) & types & (TYPE_ARRAY | TYPE_OBJECT)))
            continue;
        schema_fail(s, "not", "is not supported for arrays and objects that are given whole");
        return false;
    }
    return true;
}

static grammar_node compile_types(struct schema *s, const json_t *m, uint32_t types)
{
    grammar_node some[7];
    uint32_t n = 0;
    if (!refuses_only_scalars(s, m, types))
        return grammar_never(s->b);
    if (types & TYPE_NULL)
        some[n++] = unless_refused(s, m, "null");
    if (types & TYPE_BOOLEAN) {
        grammar_node both[2] = {unless_refused(s, m, "true"), unless_refused(s, m, "false")};
        some[n++] = grammar_alt(s->b, 2, both);
    }
    if (types & TYPE_NUMBER)
        some[n++] = schema_number(s, m);
    else if (types & TYPE_INTEGER)
        some[n++] = schema_integer(s, m);
    if (types & TYPE_STRING)
        some[n++] = schema_string(s, m);
    if (types & TYPE_ARRAY)
        some[n++] = schema_array(s, m);
    if (types & TYPE_OBJECT)
        some[n++] = schema_object(s, m);
    return grammar_alt(s->b, n, some);
}

static grammar_node compile_merged(struct schema *s, json_t *m)
{
    uint32_t types;
    if (json_is_false(m))
        return grammar_never(s->b);
    if (json_object_size(m) == 0)
        return grammar_json_value(s->b);
    bool any = json_object_get(m, "anyOf"), one = json_object_get(m, "oneOf");
    if (any || one)
        return compile_options(s, m, one ? "oneOf" : "anyOf");
    if (!schema_types(s, m, &types))
        return grammar_never(s->b);
    if (json_object_get(m, "enum") || json_object_get(m, "const"))
        return schema_values(s, m);
    if (types == TYPE_ALL && !json_object_get(m, "not"))
        return grammar_json_value(s->b);
    return compile_types(s, m, types);
}

grammar_node schema_compile(struct schema *s, const json_t *schema)
{
    if (!schema_works(s))
        return grammar_never(s->b);
    if (s->depth >= SCHEMA_MAX_DEPTH)
        return schema_fail(s, NULL, "nested too deeply");
    const char *key = only_ref(schema);
    if (key)
        return compile_ref(s, key, json_object_get(schema, key));
    s->depth++;
    const bool outer = s->combined;
    s->combined = json_object_get(schema, "allOf") != NULL;
    json_t *m = schema_merge(s, schema);
    grammar_node node = m ? compile_merged(s, m) : grammar_never(s->b);
    json_decref(m);
    s->combined = outer;
    s->depth--;
    return node;
}

grammar_node schema_compile_at(struct schema *s, const char *key, const json_t *schema)
{
    size_t len = schema_push(s, key);
    grammar_node node = schema_compile(s, schema);
    schema_pop(s, len);
    return node;
}

grammar_node schema_shared(struct schema *s, grammar_node node)
{
    if (builder_failed(s->b))
        return grammar_never(s->b);
    switch ((enum node_kind)s->b->nodes[node].kind) {
    case NODE_NEVER:
    case NODE_EMPTY:
    case NODE_CLASS:
    case NODE_RULE:
        return node;
    default:
        break;
    }
    grammar_node rule = grammar_rule(s->b, "part of a schema");
    grammar_define(s->b, rule, node);
    return rule;
}

static struct schema begin(struct grammar_builder *b, const json_t *schema, const char *where)
{
    const char *draft = json_string_value(json_object_get(schema, "$schema"));
    struct schema s = {
        .b = b, .root = schema, .old_contains = draft && strstr(draft, "2019-09") != NULL};
    buf_str(&s.path, where);
    return s;
}

static void end(struct schema *s)
{
    s->b->schema_work += s->work;
    buf_deinit(&s->path);
    json_decref(s->mark);
    free(s->refs);
}

json_t *grammar_json_merge(struct grammar_builder *b, const json_t *schema, const char *where)
{
    if (builder_failed(b))
        return NULL;
    struct schema s = begin(b, schema, where);
    json_t *m = schema_merge(&s, schema);
    if (m && schema_has_unevaluated(m)) { /* and options, whose part in it would be forgotten */
        schema_fail(
            &s, NULL, "unevaluatedProperties and -Items are not supported here beside options");
        json_decref(m);
        m = NULL;
    }
    end(&s);
    return m;
}

json_t *grammar_json_listed(struct grammar_builder *b, const json_t *schema, const char *where)
{
    if (builder_failed(b))
        return NULL;
    struct schema s = begin(b, schema, where);
    json_t *m = schema_merge(&s, schema);
    s.combined = true; /* it may be that none is kept */
    json_t *kept = json_is_object(m) ? schema_listed(&s, m) : m ? json_array() : NULL;
    json_decref(m);
    end(&s);
    return kept;
}

#define MAX_ROOT_OPTIONS 64u

/* Add what the schema comes to, option by option; false with an error. */
static bool add_options(struct schema *s, const json_t *schema, json_t *out, uint32_t depth)
{
    json_t *m = schema_merge(s, schema);
    const char *key = json_object_get(m, "oneOf") ? "oneOf" : "anyOf";
    json_t *list = json_incref(json_object_get(m, key));
    bool ok = m != NULL;
    if (!list) {
        if (json_is_object(m))
            json_array_append(out, m);
        json_decref(m);
        return ok;
    }
    if (depth > 8 || json_array_size(out) + json_array_size(list) > MAX_ROOT_OPTIONS) {
        schema_fail(s, key, "there are too many options");
        ok = false;
    }
    json_object_del(m, key);
    json_t *options = !ok || key[0] == 'a' ? json_incref(list) : schema_exclusive(s, m, list);
    for (size_t i = 0; ok && i < json_array_size(options); i++) {
        json_t *both = json_pack("{s:[O,O]}", "allOf", m, json_array_get(options, i));
        ok = add_options(s, both, out, depth + 1);
        json_decref(both);
    }
    ok = ok && options;
    json_decref(options);
    json_decref(list);
    json_decref(m);
    return ok;
}

json_t *grammar_json_options(struct grammar_builder *b, const json_t *schema, const char *where)
{
    if (builder_failed(b))
        return NULL;
    struct schema s = begin(b, schema, where);
    json_t *out = json_array();
    (void)add_options(&s, schema, out, 0);
    end(&s);
    if (!builder_failed(b))
        return out;
    json_decref(out);
    return NULL;
}

grammar_node grammar_json_schema(struct grammar_builder *b, const json_t *schema, const char *where)
{
    if (builder_failed(b))
        return grammar_never(b);
    struct schema s = begin(b, schema, where);
    grammar_node node = schema_compile(&s, schema);
    for (uint32_t i = 0; i < s.n_refs && !builder_failed(b); i++) { /* which may add to them */
        schema_pop(&s, 0);
        buf_str(&s.path, where);
        buf_str(&s.path, s.refs[i].pointer);
        grammar_node body = schema_compile(&s, s.refs[i].target);
        grammar_define(b, s.refs[i].rule, body);
    }
    end(&s);
    return node;
}

grammar_node grammar_json_schema_text(struct grammar_builder *b, const char *s, size_t n)
{
    json_error_t at;
    struct buf wide = {0};
    json_t *schema = json_loadb(s, n, JSON_DECODE_ANY, &at);
    if (!schema && json_error_code(&at) == json_error_numeric_overflow &&
        json_text_widen(s, n, &wide)) /* as the body of a request is read */
        schema = json_loadb(wide.data, wide.len, JSON_DECODE_ANY, &at);
    buf_deinit(&wide);
    if (!schema)
        return builder_fail(
            b, "'%s' is no JSON: line %d, column %d: %s", b->field, at.line, at.column, at.text);
    grammar_node node = grammar_json_schema(b, schema, "");
    json_decref(schema);
    return node;
}
