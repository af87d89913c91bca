/* The arguments of a call as the formats write them, by the schema of the tool: JSON; a tag for
 * each; names and values as in Python; Gemma 4's way. */
#include "chat/reply/arguments.h"
#include "chat/reply/internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_COMPARED = 4000000 };

/* ---- what the schema says ---- */

const char *arguments_where(size_t tool, const char *key, char out[160])
{
    snprintf(out,
             160,
             "/tools/%zu/function/parameters%s%.64s",
             tool,
             key ? "/properties/" : "",
             key ? key : "");
    return out;
}

grammar_node arguments_fail(const struct maker *m, size_t tool, const char *key, const char *what)
{
    char error[240];
    snprintf(error, sizeof error, "'tools': at \"%s\": %s", WHERE(tool, key), what);
    return grammar_fail(m->b, error);
}

grammar_node arguments_unwritable(const struct maker *m, size_t tool, const char *key)
{
    return arguments_fail(m, tool, key, "this name cannot be written in this model's calls");
}

/* A schema of a part, which may refer to definitions of the whole. */
static json_t *with_definitions(const json_t *root, const json_t *part)
{
    static const char *const definitions[] = {"$defs", "definitions"};
    json_t *copy = json_is_object(part) ? json_copy((json_t *)part) : json_incref((json_t *)part);
    for (size_t i = 0; json_is_object(copy) && i < 2; i++) {
        json_t *d = json_object_get(root, definitions[i]);
        if (d && !json_object_get(copy, definitions[i]))
            json_object_set(copy, definitions[i], d);
    }
    return copy;
}

json_t *arguments_merged(const struct maker *m,
                         const json_t *root,
                         const json_t *part,
                         const char *at)
{
    json_t *whole = with_definitions(root, part);
    json_t *flat = grammar_json_merge(m->b, whole, at);
    if (json_is_object(flat)) {
        json_t *both = with_definitions(whole, flat);
        json_decref(flat);
        flat = both;
    }
    json_decref(whole);
    return flat;
}

/* The part's options likewise, new: one where it has none. NULL with an error. */
static json_t *options_of(const struct maker *m,
                          const json_t *root,
                          const json_t *part,
                          const char *at)
{
    json_t *whole = with_definitions(root, part);
    json_t *list = grammar_json_options(m->b, whole, at);
    for (size_t i = 0; i < json_array_size(list); i++)
        json_array_set_new(list, i, with_definitions(whole, json_array_get(list, i)));
    json_decref(whole);
    return list;
}

static bool is_required(const json_t *schema, const char *key)
{
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *s = json_string_value(json_array_get(required, i));
        if (s && strcmp(s, key) == 0)
            return true;
    }
    return false;
}

static void add(struct arguments *out, const char *key, json_t *schema, bool required)
{
    out->list = mem_realloc(out->list, (out->n + 1) * sizeof *out->list);
    out->list[out->n++] = (struct argument){.key = key, .schema = schema, .required = required};
}

void arguments_deinit(const struct arguments *a)
{
    for (size_t i = 0; i < a->n; i++)
        json_decref(a->list[i].schema);
    free(a->list);
}

bool arguments_counts_fit(const json_t *schema)
{
    const json_t *least = json_object_get(schema, "minProperties");
    const json_t *most = json_object_get(schema, "maxProperties");
    const size_t n = json_object_size(json_object_get(schema, "properties"));
    const size_t n_required = json_array_size(json_object_get(schema, "required"));
    return (!least || json_number_value(least) <= (double)n_required) &&
           (!most || json_number_value(most) >= (double)(n + n_required)) &&
           (n + n_required == 0 ||
            (!json_object_get(schema, "propertyNames") &&
             json_object_size(json_object_get(schema, "patternProperties")) == 0));
}

static grammar_node fail_bounds(const struct maker *m, size_t tool)
{
    return arguments_fail(
        m,
        tool,
        NULL,
        "minProperties, maxProperties, propertyNames and patternProperties are not supported "
        "with this model's calls");
}

/* Does it list what all arguments together may be, or may not be? */
static bool lists_objects(const json_t *schema)
{
    const json_t *refused = json_object_get(json_object_get(schema, "not"), "enum");
    bool any = json_object_get(schema, "enum") || json_object_get(schema, "const");
    for (size_t i = 0; i < json_array_size(refused); i++)
        any |= json_is_object(json_array_get(refused, i));
    return any;
}

bool arguments_collect(const struct maker *m,
                       const json_t *schema,
                       size_t tool,
                       struct arguments *out)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *others = json_object_get(schema, "additionalProperties");
    const char *key;
    json_t *v;
    *out = (struct arguments){0};
    if (!arguments_counts_fit(schema)) {
        fail_bounds(m, tool);
        return false;
    }
    if (lists_objects(schema)) {
        arguments_fail(
            m,
            tool,
            NULL,
            "enum and const of all arguments together are not supported with this model's calls");
        return false;
    }
    if ((uint64_t)json_object_size(properties) * json_array_size(required) > MAX_COMPARED) {
        arguments_fail(m, tool, NULL, "there are too many properties and required names");
        return false;
    }
    json_object_foreach((json_t *)properties, key, v)
    {
        json_t *flat = arguments_merged(m, schema, v, WHERE(tool, key));
        if (!flat)
            return false;
        if (json_is_false(flat) && !is_required(schema, key)) {
            json_decref(flat);
            continue;
        }
        add(out, key, flat, is_required(schema, key));
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name || json_object_get(properties, name))
            continue;
        if (json_is_false(others)) {
            arguments_fail(m, tool, name, "it is required, but no such argument may be");
            return false;
        }
        json_t *flat = others ? arguments_merged(m, schema, others, "") : json_object();
        if (!flat)
            return false;
        add(out, name, flat, true);
    }
    return grammar_builder_error(m->b, NULL) == OK;
}

/* ---- JSON ---- */

static grammar_node json_arguments(const struct maker *m,
                                   const json_t *schema,
                                   size_t tool,
                                   bool free)
{
    if (free)
        return grammar_json_object(m->b);
    json_t *own = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    if (!json_object_get(own, "type"))
        json_object_set_new(own, "type", json_string("object"));
    grammar_node node = grammar_json_schema(m->b, own, WHERE(tool, NULL));
    json_decref(own);
    return node;
}

grammar_node arguments_json(const struct maker *m, const struct argument *a, size_t tool)
{
    return grammar_json_schema(m->b, a->schema, WHERE(tool, a->key));
}

/* ---- lists with commas ---- */

/* pairs[n] in their order, some of which may lack, with commas between those that are there. */
static grammar_node listed(const struct maker *m,
                           const grammar_node *pairs,
                           const bool *required,
                           size_t n,
                           const char *comma)
{
    grammar_node first = grammar_empty(m->b), next = grammar_empty(m->b);
    for (size_t i = n; i > 0; i--) {
        grammar_node rule = grammar_rule(m->b, "arguments");
        grammar_define(m->b, rule, next);
        grammar_node here = SEQ(m->b, pairs[i - 1], rule);
        grammar_node one = SEQ(m->b, grammar_literal(m->b, comma, strlen(comma)), pairs[i - 1]);
        first = required[i - 1] ? here : ALT(m->b, here, first);
        next = SEQ(m->b, required[i - 1] ? one : grammar_optional(m->b, one), rule);
    }
    return first;
}

static grammar_node repeated(
    const struct maker *m, grammar_node item, const char *comma, uint32_t min, uint32_t max)
{
    return grammar_separated(m->b, item, grammar_literal(m->b, comma, strlen(comma)), min, max);
}

static grammar_node any_key(const struct maker *m)
{
    static const struct grammar_range head[] = {{'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct grammar_range tail[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    return SEQ(m->b,
               grammar_chars(m->b, 3, head),
               grammar_repeat(m->b, grammar_chars(m->b, 4, tail), 0, MAX_KEY - 1));
}

/* Can the key stand without quotes? */
static bool is_bare(const char *key)
{
    size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return n > 0 && n <= REPLY_MAX_KEY && key[n] == '\0';
}

/* key=VALUE, or key:VALUE; values[n] by their arguments. */
static grammar_node keyed(const struct maker *m,
                          const struct arguments *a,
                          size_t tool,
                          const char *equals,
                          const char *comma,
                          grammar_node (*value)(const struct maker *,
                                                const struct argument *,
                                                size_t))
{
    grammar_node *pairs = mem_zalloc(a->n + 1, sizeof *pairs);
    bool *required = mem_zalloc(a->n + 1, sizeof *required);
    for (size_t i = 0; i < a->n; i++) {
        const struct argument *one = &a->list[i];
        required[i] = one->required;
        if (!is_bare(one->key))
            arguments_unwritable(m, tool, one->key);
        pairs[i] = SEQ(m->b,
                       grammar_literal(m->b, one->key, strlen(one->key)),
                       grammar_literal(m->b, equals, 1),
                       value(m, one, tool));
    }
    grammar_node node = listed(m, pairs, required, a->n, comma);
    free(pairs);
    free(required);
    return node;
}

/* a=1, b="x": JSON is read as well as Python's way of writing it. */
static grammar_node any_named(const struct maker *m)
{
    grammar_node pair =
        SEQ(m->b, any_key(m), grammar_literal(m->b, "=", 1), grammar_json_value(m->b));
    return repeated(m, pair, ", ", 0, GRAMMAR_NO_LIMIT);
}

/* ---- Gemma 4 ---- */

static grammar_node gemma_string(const struct maker *m)
{
    return SEQ(m->b, frame_piece(m, m->f->gemma), frame_text_until(m, m->f->gemma, NULL));
}

/* Number, true, false, null. */
static grammar_node gemma_literal(const struct maker *m)
{
    json_t *schema = json_pack("{s:[s,s,s]}", "type", "number", "boolean", "null");
    grammar_node node = grammar_json_schema(m->b, schema, "");
    json_decref(schema);
    return node;
}

static grammar_node bracketed(const struct maker *m, const char *brackets, grammar_node inside)
{
    return SEQ(
        m->b, grammar_literal(m->b, brackets, 1), inside, grammar_literal(m->b, brackets + 1, 1));
}

static grammar_node gemma_dict(const struct maker *m, grammar_node value)
{
    grammar_node pair = SEQ(m->b, any_key(m), grammar_literal(m->b, ":", 1), value);
    return bracketed(m, "{}", repeated(m, pair, ",", 0, GRAMMAR_NO_LIMIT));
}

static grammar_node any_gemma(const struct maker *m)
{
    grammar_node value = grammar_rule(m->b, "value");
    grammar_node list = bracketed(m, "[]", repeated(m, value, ",", 0, GRAMMAR_NO_LIMIT));
    grammar_define(
        m->b, value, ALT(m->b, gemma_string(m), gemma_literal(m), list, gemma_dict(m, value)));
    return value;
}

static grammar_node gemma_of(const struct maker *m, json_t *schema, size_t tool, uint32_t depth);

static grammar_node gemma_member(const struct maker *m, const struct argument *a, size_t tool)
{
    return gemma_of(m, a->schema, tool, a->depth);
}

/* An object of which no member is named: what others may be, all are. */
static grammar_node gemma_map(const struct maker *m, const json_t *s, size_t tool, uint32_t depth)
{
    json_t *others = json_object_get(s, "additionalProperties");
    if (arguments_count(s, "minProperties", 0) > 0 || json_object_get(s, "maxProperties") ||
        json_object_get(s, "propertyNames") ||
        json_object_size(json_object_get(s, "patternProperties")) > 0)
        return fail_bounds(m, tool);
    json_t *flat = others ? arguments_merged(m, s, others, "") : NULL;
    grammar_node value = flat ? gemma_of(m, flat, tool, depth + 1) : any_gemma(m);
    json_decref(flat);
    return gemma_dict(m, value);
}

static int by_key(const void *a, const void *b)
{
    const char *x = ((const struct argument *)a)->key, *y = ((const struct argument *)b)->key;
    int order = strcasecmp(x, y);
    return order ? order : strcmp(x, y);
}

/* A schema that refers to itself has objects within objects without an end: beyond MAX_NESTING they
 * are any. */
static grammar_node gemma_object(const struct maker *m,
                                 const json_t *schema,
                                 size_t tool,
                                 uint32_t depth)
{
    struct arguments a = {0};
    grammar_node node = grammar_never(m->b);
    bool ok = arguments_collect(m, schema, tool, &a);
    for (size_t i = 0; i < a.n; i++)
        a.list[i].depth = depth + 1;
    if (a.n > 1) /* as its template lists and writes them */
        qsort(a.list, a.n, sizeof *a.list, by_key);
    if (ok)
        node = bracketed(m, "{}", keyed(m, &a, tool, ":", ",", gemma_member));
    arguments_deinit(&a);
    return node;
}

uint32_t arguments_count(const json_t *schema, const char *key, uint32_t absent)
{
    const json_t *v = json_object_get(schema, key);
    double n = json_number_value(v);
    return !json_is_number(v) || n < 0 ? absent : n > 10000 ? 10000 : (uint32_t)n;
}

static grammar_node gemma_array(const struct maker *m, const json_t *s, size_t tool, uint32_t depth)
{
    json_t *items = json_object_get(s, "items");
    if (json_is_true(json_object_get(s, "uniqueItems")) || json_object_get(s, "contains") ||
        json_object_get(s, "prefixItems"))
        return arguments_fail(
            m,
            tool,
            NULL,
            "uniqueItems, contains and prefixItems are not supported with this model's calls");
    json_t *flat = items ? arguments_merged(m, s, items, "") : NULL;
    grammar_node item = flat ? gemma_of(m, flat, tool, depth + 1) : any_gemma(m);
    json_decref(flat);
    return bracketed(m,
                     "[]",
                     repeated(m,
                              item,
                              ",",
                              arguments_count(s, "minItems", 0),
                              arguments_count(s, "maxItems", GRAMMAR_NO_LIMIT)));
}

/* One of the values that the schema lists, which are no arrays or objects. */
static grammar_node gemma_choice(const struct maker *m, const json_t *schema, size_t tool)
{
    json_t *values = grammar_json_listed(m->b, schema, WHERE(tool, NULL));
    size_t n = json_array_size(values);
    grammar_node *nodes = mem_zalloc(n + 1, sizeof *nodes);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(values, i);
        const char *s = json_string_value(v);
        char *text = s ? NULL : grammar_json_dump(v);
        if (json_is_object(v) || json_is_array(v))
            nodes[i] = arguments_fail(
                m, tool, NULL, "enum of objects is not supported with this model's calls");
        else if (s)
            nodes[i] = SEQ(m->b,
                           frame_piece(m, m->f->gemma),
                           grammar_literal(m->b, s, json_string_length(v)),
                           frame_piece(m, m->f->gemma));
        else
            nodes[i] = grammar_literal(m->b, text, strlen(text));
        free(text);
    }
    grammar_node node = grammar_alt(m->b, (uint32_t)n, nodes);
    free(nodes);
    json_decref(values);
    return node;
}

static grammar_node gemma_options(const struct maker *m,
                                  const json_t *s,
                                  size_t tool,
                                  uint32_t depth)
{
    json_t *list = options_of(m, s, s, "");
    size_t n = json_array_size(list);
    grammar_node *nodes = mem_zalloc(n + 1, sizeof *nodes);
    for (size_t i = 0; i < n; i++)
        nodes[i] = gemma_of(m, json_array_get(list, i), tool, depth + 1);
    grammar_node node = grammar_alt(m->b, (uint32_t)n, nodes);
    free(nodes);
    json_decref(list);
    return node;
}

static grammar_node gemma_type(
    const struct maker *m, const json_t *s, const char *type, size_t tool, uint32_t depth)
{
    if (strcmp(type, "object") == 0)
        return json_object_get(s, "properties") || json_array_size(json_object_get(s, "required"))
                   ? gemma_object(m, s, tool, depth)
                   : gemma_map(m, s, tool, depth);
    if (strcmp(type, "array") == 0)
        return gemma_array(m, s, tool, depth);
    if (strcmp(type, "string") == 0) {
        grammar_node text;
        if (grammar_plain_string(m->b, s, WHERE(tool, NULL), m->f->gemma, &text))
            return SEQ(m->b, frame_piece(m, m->f->gemma), text, frame_piece(m, m->f->gemma));
        return gemma_string(m);
    }
    json_t *one = json_copy((json_t *)s);
    json_object_set_new(one, "type", json_string(type));
    grammar_node node = grammar_json_schema(m->b, one, WHERE(tool, NULL));
    json_decref(one);
    return node;
}

/* A value of a merged schema. */
static grammar_node gemma_of(const struct maker *m, json_t *schema, size_t tool, uint32_t depth)
{
    const json_t *type = json_object_get(schema, "type");
    if (json_is_false(schema))
        return grammar_never(m->b);
    if (depth > MAX_NESTING)
        return any_gemma(m);
    if (json_object_get(schema, "const") || json_object_get(schema, "enum"))
        return gemma_choice(m, schema, tool);
    if (json_object_get(schema, "anyOf") || json_object_get(schema, "oneOf"))
        return gemma_options(m, schema, tool, depth);
    if (json_is_string(type))
        return gemma_type(m, schema, json_string_value(type), tool, depth);
    if (json_is_array(type) && json_array_size(type) < 8) {
        grammar_node some[8];
        size_t n = json_array_size(type);
        for (size_t i = 0; i < n; i++) {
            const char *name = json_string_value(json_array_get(type, i));
            some[i] = gemma_type(m, schema, name ? name : "", tool, depth);
        }
        return grammar_alt(m->b, (uint32_t)n, some);
    }
    return json_object_get(schema, "properties") ? gemma_object(m, schema, tool, depth)
                                                 : any_gemma(m);
}

/* ---- all of them ---- */

/* The arguments by a merged schema without options. all: the tool's properties, by name. */
static grammar_node arguments_of(const struct maker *m,
                                 const json_t *flat,
                                 const json_t *all,
                                 size_t tool)
{
    struct arguments a = {0};
    grammar_node node = grammar_never(m->b);
    if (m->f->gemma)
        node = gemma_object(m, flat, tool, 0);
    else if (arguments_collect(m, flat, tool, &a))
        node = m->f->named ? keyed(m, &a, tool, "=", ", ", arguments_json)
                           : tags_arguments(m, &a, tool, all);
    arguments_deinit(&a);
    return node;
}

/* One way for each option of the schema's root. */
static grammar_node by_options(const struct maker *m, const json_t *schema, size_t tool)
{
    json_t *list = options_of(m, schema, schema, WHERE(tool, NULL));
    size_t n = json_array_size(list);
    json_t *all = reply_all_properties(m->schema, m->schema);
    grammar_node *nodes = mem_zalloc(n + 1, sizeof *nodes);
    for (size_t i = 0; i < n; i++)
        nodes[i] = arguments_of(m, json_array_get(list, i), all, tool);
    grammar_node node = n > 0 ? grammar_alt(m->b, (uint32_t)n, nodes) : grammar_never(m->b);
    free(nodes);
    json_decref(all);
    json_decref(list);
    return node;
}

/* Any arguments where a value's closing tag has its name, which no grammar can repeat: those that
 * the schema describes, as many of them as come. */
static grammar_node any_nested(const struct maker *m, const json_t *schema, size_t tool)
{
    json_t *copy = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    static const char *const bounds[] = {
        "minProperties", "maxProperties", "propertyNames", "patternProperties", "required"};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        json_object_del(copy, bounds[i]);
    grammar_node node = by_options(m, copy, tool);
    json_decref(copy);
    return node;
}

grammar_node frame_arguments(const struct maker *m, const json_t *schema, size_t tool, bool free)
{
    const struct frame *f = m->f;
    if (!f->named && !f->gemma && !f->key[0])
        return json_arguments(m, schema, tool, free);
    if (free && f->nested)
        return any_nested(m, schema, tool);
    if (free)
        return f->gemma ? gemma_dict(m, any_gemma(m)) : f->named ? any_named(m) : tags_any(m);
    return by_options(m, schema, tool);
}
