/* Arguments with a tag for each, by the schema of the tool: values that may be strings are plain
 * text in their tags, others JSON, or have tags within them. */
#include "chat/reply/arguments.h"
#include "chat/reply/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Is it an enumeration without a string in it? */
static bool lists_no_string(const json_t *schema)
{
    const json_t *one = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    bool any = json_is_string(one);
    for (size_t i = 0; !one && i < json_array_size(list); i++)
        any |= json_is_string(json_array_get(list, i));
    return (one || json_array_size(list) > 0) && !any;
}

/* Can the text stand in a tag, up to its end? */
static bool stands(const struct maker *m, const char *s)
{
    bool ok = !strstr(s, m->f->value_end[0]);
    for (size_t i = 0; i < MAX_BANS; i++)
        ok = ok && !(m->f->ban[i] && strstr(s, m->f->ban[i]));
    return ok;
}

/* Do tags say of a value whether it is a string? */
static bool is_typed(const struct maker *m)
{
    return m->f->json[0] != NULL;
}

/* Is the text read as the string that it is? */
static bool reads_as_string(const struct maker *m, const json_t *schema, const char *s, size_t n)
{
    struct buf json = {0};
    reply_value_json(schema, schema, s, n, &json);
    bool ok = is_typed(m) || json.data[0] == '"';
    buf_deinit(&json);
    return ok;
}

/* One of the values of an enumeration that the schema keeps, strings as plain text; false if it is
 * none, or none of its values can stand in a tag. What reads as something else by `read` is left
 * out, but where nothing would be left. */
static bool choice_of(const struct maker *m,
                      const struct argument *a,
                      const json_t *read,
                      size_t tool,
                      grammar_node *out)
{
    const json_t *schema = a->schema;
    if (!json_object_get(schema, "const") && !json_object_get(schema, "enum"))
        return false;
    json_t *values = grammar_json_listed(m->b, schema, WHERE(tool, a->key));
    size_t n = json_array_size(values), kept = 0, n_misread = 0;
    grammar_node *nodes = mem_zalloc(2 * n + 1, sizeof *nodes), *misread = nodes + n;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(values, i);
        const char *s = json_string_value(v);
        char *text = s ? NULL : grammar_json_dump(v);
        if (text || (s && stands(m, s))) {
            size_t n_s = text ? strlen(text) : json_string_length(v);
            bool ok = text ? !is_typed(m) : reads_as_string(m, read, s, n_s);
            *(ok ? &nodes[kept++] : &misread[n_misread++]) =
                grammar_literal(m->b, text ? text : s, n_s);
        }
        free(text);
    }
    bool any = n == 0 || kept + n_misread > 0;
    *out = kept ? grammar_alt(m->b, (uint32_t)kept, nodes)
                : grammar_alt(m->b, (uint32_t)n_misread, misread);
    free(nodes);
    json_decref(values);
    return any;
}

/* Plain text that ends with the closing tag, kept to what the schema says of strings where an
 * automaton for that is not too large. */
static grammar_node tagged_text(const struct maker *m, const struct argument *a, size_t tool)
{
    const char *end = m->f->value_end[0], *ban = m->f->ban[0];
    const char *without = ban && strstr(end, ban) ? ban : end;
    grammar_node text;
    if (!m->f->cdata && grammar_plain_string(m->b, a->schema, WHERE(tool, a->key), without, &text))
        return SEQ(m->b, text, frame_piece(m, end));
    return frame_text_until(m, end, m->f->ban);
}

/* What stands behind the first piece that ends a value. */
static grammar_node behind_value(const struct maker *m, const struct argument *a)
{
    if (!m->f->nested)
        return frame_pieces_from(m, m->f->value_end, 1);
    return SEQ(m->b,
               grammar_literal(m->b, "</", 2),
               grammar_literal(m->b, a->key, strlen(a->key)),
               grammar_literal(m->b, ">", 1));
}

/* Is a tag with this name read as one of an argument? (nested.c) */
static bool can_be_tag(const struct maker *m, const char *key)
{
    const size_t n_around = strlen(m->f->value_end[0]) + 2; /* < and > */
    return key[0] && key[0] != '/' && strncmp(key, "invoke ", 7) != 0 && !strpbrk(key, ">\n") &&
           strlen(key) + n_around <= REPLY_MAX_HEAD;
}

/* Is the text of a key read whole, up to what closes keys? (tagged.c) */
static bool can_be_key(const struct maker *m, const struct buf *text)
{
    const struct tagged_spec *spec = m->r->style.format->spec;
    struct buf all = {0};
    buf_add(&all, text->data, text->len);
    buf_str(&all, spec->key_close);
    const bool ok = strstr(buf_cstr(&all), spec->key_close) == all.data + text->len &&
                    all.len <= REPLY_MAX_HEAD;
    buf_deinit(&all);
    return ok;
}

static grammar_node key_of(const struct maker *m, const char *key, size_t tool)
{
    struct buf text = {0};
    for (const char *s = key; *s; s++) {
        if (m->f->escaped && (*s == '&' || *s == '"'))
            buf_str(&text, *s == '&' ? "&amp;" : "&quot;");
        else
            buf_char(&text, *s);
    }
    const bool ok = m->f->nested ? can_be_tag(m, key) : can_be_key(m, &text);
    grammar_node node =
        ok ? grammar_literal(m->b, buf_cstr(&text), text.len) : arguments_unwritable(m, tool, key);
    buf_deinit(&text);
    return node;
}

/* Types of a value as its schema says them, `own`, and as it is read by: does it come back as it
 * is? JSON does where no string may be, or where its type may. */
static bool read_alike(uint32_t own, uint32_t read, bool text)
{
    if (text)
        return own == read;
    if (read & TYPE_NUMBER)
        read |= TYPE_INTEGER;
    return !(read & TYPE_STRING) || !(own & ~read & ~(uint32_t)(TYPE_TOLD | TYPE_STRING));
}

static json_t *beside_null(const struct maker *m, const json_t *schema);
static grammar_node value_of(const struct maker *m,
                             const struct argument *a,
                             size_t tool,
                             bool same);

/* TEXT text VALUE_END, or where it may be null, too, JSON null VALUE_END: what else its schema says
 * is kept then as well. */
static grammar_node text_of(const struct maker *m, const struct argument *a, size_t tool)
{
    struct argument other = *a;
    grammar_node value;
    json_t *string = beside_null(m, a->schema);
    const bool nullable = string && reply_only_string(string, string);
    other.schema = nullable ? string : a->schema;
    if (choice_of(m, &other, a->schema, tool, &value))
        value = SEQ(m->b, value, frame_piece(m, m->f->value_end[0]));
    else
        value = tagged_text(m, &other, tool);
    value = SEQ(m->b, frame_pieces(m, m->f->text), value);
    json_decref(string);
    if (!nullable)
        return value;
    grammar_node null = SEQ(m->b,
                            frame_pieces(m, is_typed(m) ? m->f->json : m->f->text),
                            grammar_literal(m->b, "null", 4),
                            frame_piece(m, m->f->value_end[0]));
    return ALT(m->b, value, null);
}

/* KEY key TEXT or JSON value VALUE_END */
static grammar_node tagged_argument(const struct maker *m, const struct argument *a, size_t tool)
{
    grammar_node value;
    const uint32_t own = reply_types(a->schema, a->schema);
    const uint32_t read = reply_types(m->schema, a->read);
    /* what may be a string is plain text, without quotes */
    const bool text = own & TYPE_STRING && !lists_no_string(a->schema);
    if (!read_alike(own, read, text))
        return arguments_fail(
            m,
            tool,
            a->key,
            "its type is said in several places, which cannot be kept to in this model's calls");
    if (text)
        value = text_of(m, a, tool);
    else
        value = SEQ(m->b,
                    frame_pieces(m, is_typed(m) ? m->f->json : m->f->text),
                    value_of(m, a, tool, own == read),
                    frame_piece(m, m->f->value_end[0]));
    return SEQ(
        m->b, frame_pieces(m, m->f->key), key_of(m, a->key, tool), value, behind_value(m, a));
}

/* ---- tags within values ---- */

/* What is deeper is JSON: a schema may refer to itself. So it does most where members may lack. */
enum { MAX_TAGS_DEPTH = 4, MAX_NULL_DEPTH = 2 };

/* Does the schema say of a value what tags cannot be kept to? */
static bool says_more(const json_t *schema)
{
    static const char *const more[] = {"enum",
                                       "const",
                                       "anyOf",
                                       "oneOf",
                                       "if",
                                       "not",
                                       "dependentRequired",
                                       "dependentSchemas",
                                       "uniqueItems",
                                       "contains",
                                       "prefixItems"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (json_object_get(schema, more[i]))
            return true;
    return false;
}

/* A tag "item" for each element. */
static grammar_node elements(const struct maker *m, const struct argument *a, size_t tool)
{
    struct argument item = {
        .key = "item",
        .schema = arguments_merged(m, a->schema, json_object_get(a->schema, "items"), ""),
        .depth = a->depth + 1,
        .read = reply_items(m->schema, a->read)};
    const bool any = item.schema && !json_is_false(item.schema);
    grammar_node node = any ? tagged_argument(m, &item, tool) : grammar_never(m->b);
    json_decref(item.schema);
    return grammar_repeat(m->b,
                          node,
                          arguments_count(a->schema, "minItems", 0),
                          arguments_count(a->schema, "maxItems", GRAMMAR_NO_LIMIT));
}

/* A tag for each member. */
static grammar_node members(const struct maker *m, const struct argument *a, size_t tool)
{
    struct arguments own = {0};
    bool ok = arguments_collect(m, a->schema, tool, &own);
    for (size_t i = 0; i < own.n; i++)
        own.list[i].depth = a->depth + 1;
    json_t *all = reply_all_properties(m->schema, a->read);
    grammar_node node = ok ? tags_arguments(m, &own, tool, all) : grammar_never(m->b);
    json_decref(all);
    arguments_deinit(&own);
    return node;
}

/* Templates print values as Python does; read as a boolean where its schema says that it is one. */
static grammar_node any_boolean(const struct maker *m)
{
    static const struct grammar_text words[] = {
        {"true", 4}, {"false", 5}, {"True", 4}, {"False", 5}};
    return grammar_choice(m->b, sizeof words / sizeof words[0], words);
}

/* A value of one type, which is no string and by which it is read. */
static grammar_node typed_value(const struct maker *m, const struct argument *a, size_t tool)
{
    const char *type = json_string_value(json_object_get(a->schema, "type"));
    if (type && strcmp(type, "boolean") == 0 && !says_more(a->schema))
        return any_boolean(m);
    if (!m->f->nested || !type || a->depth >= MAX_TAGS_DEPTH || says_more(a->schema))
        return arguments_json(m, a, tool);
    if (strcmp(type, "array") == 0 && json_is_object(json_object_get(a->schema, "items")))
        return elements(m, a, tool);
    if (strcmp(type, "object") == 0 && json_object_get(a->schema, "properties") &&
        arguments_counts_fit(a->schema))
        return members(m, a, tool);
    return arguments_json(m, a, tool);
}

static bool is_null(const json_t *type)
{
    return json_is_string(type) && strcmp(json_string_value(type), "null") == 0;
}

/* The other of two options, with what the schema says beside them, where one is null; new. */
static json_t *option_beside_null(const struct maker *m, const json_t *schema)
{
    const char *key = json_object_get(schema, "anyOf") ? "anyOf" : "oneOf";
    json_t *list = json_object_get(schema, key), *rest = json_copy((json_t *)schema);
    json_t *found = NULL;
    json_object_del(rest, key);
    for (size_t i = 0; json_array_size(list) == 2 && i < 2 && !found; i++) {
        const json_t *null = json_array_get(list, i);
        if (!is_null(json_object_get(null, "type")) || says_more(null) || says_more(rest) ||
            json_object_get(rest, "type"))
            continue;
        json_t *both = json_pack("{s:[O,O]}", "allOf", rest, json_array_get(list, 1 - i));
        found = arguments_merged(m, schema, both, "");
        json_decref(both);
    }
    json_decref(rest);
    return found;
}

/* Where a value is of one type or null, its schema without null, new; else NULL. */
static json_t *beside_null(const struct maker *m, const json_t *schema)
{
    const json_t *types = json_object_get(schema, "type");
    json_t *found;
    if (json_array_size(types) == 2 && !says_more(schema)) {
        const bool first = is_null(json_array_get(types, 0));
        if (!first && !is_null(json_array_get(types, 1)))
            return NULL;
        found = json_copy((json_t *)schema);
        json_object_set(found, "type", json_array_get(types, first));
    } else {
        found = option_beside_null(m, schema);
    }
    const json_t *type = json_object_get(found, "type");
    if ((json_is_string(type) && !is_null(type)) || (found && reply_only_string(found, found)))
        return found;
    json_decref(found);
    return NULL;
}

/* A value that is no string. same: its types are those by which it is read, or it is JSON. */
static grammar_node value_of(const struct maker *m,
                             const struct argument *a,
                             size_t tool,
                             bool same)
{
    if (!same)
        return arguments_json(m, a, tool);
    struct argument other = *a;
    other.schema = a->depth < MAX_NULL_DEPTH ? beside_null(m, a->schema) : NULL;
    if (!other.schema)
        return typed_value(m, a, tool);
    grammar_node node = typed_value(m, &other, tool);
    json_decref(other.schema);
    return ALT(m->b, node, grammar_literal(m->b, "null", 4));
}

grammar_node tags_any(const struct maker *m)
{
    static const struct grammar_range plain[] = {
        {0x21, 0x21}, {0x23, 0x3b}, {0x3d, 0x3d}, {0x3f, 0x10ffff}}; /* no space, ", < or > */
    const struct frame *f = m->f;
    grammar_node key = grammar_repeat(m->b, grammar_chars(m->b, 4, plain), 1, MAX_KEY);
    grammar_node open = frame_pieces(m, f->text);
    if (is_typed(m))
        open = ALT(m->b, open, frame_pieces(m, f->json));
    grammar_node value = SEQ(
        m->b, frame_text_until(m, f->value_end[0], f->ban), frame_pieces_from(m, f->value_end, 1));
    return grammar_repeat(
        m->b, SEQ(m->b, frame_pieces(m, f->key), key, open, value), 0, GRAMMAR_NO_LIMIT);
}

grammar_node tags_arguments(const struct maker *m,
                            const struct arguments *a,
                            size_t tool,
                            const json_t *all)
{
    grammar_node node = grammar_empty(m->b);
    for (size_t i = 0; i < a->n; i++) {
        struct argument *own = &a->list[i];
        own->read = json_object_get(all, own->key);
        grammar_node one = tagged_argument(m, own, tool);
        node = SEQ(m->b, node, own->required ? one : grammar_optional(m->b, one));
    }
    return node;
}
