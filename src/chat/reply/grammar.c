/* Frames of calls. A frame is a list of texts; one that is a control token of the model is that
 * token. Where formats leave a choice of white space, it is what the templates write. */
#include "chat/reply_grammar.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIECES 6

/* One way to write a block of calls. "#" is a number. */
struct frame {
    const char *format;
    const char *needs;             /* a control token that decides for this frame, or NULL */
    const char *open[MAX_PIECES];  /* of the block */
    const char *name[MAX_PIECES];  /* in front of a name */
    const char *args[MAX_PIECES];  /* between name and arguments */
    const char *close[MAX_PIECES]; /* behind the arguments */
    const char *between;           /* two calls; NULL: there is only one */
    const char *end[MAX_PIECES];   /* of the block */
    /* of arguments with tags: in front of a key, of a string, of another value, behind a value */
    const char *key[MAX_PIECES], *text[MAX_PIECES], *json[MAX_PIECES], *value_end[MAX_PIECES];
};

#define OBJECT(args_key)                                                                           \
    .name = {"{\"name\": \""}, .args = {"\", \"" args_key "\": "}, .close = {"}"}
#define DSML(block)                                                                                \
    .open = {"<", "｜DSML｜", block ">\n"}, .name = {"<", "｜DSML｜", "invoke name=\""},           \
    .args = {"\">\n"}, .close = {"</", "｜DSML｜", "invoke>\n"}, .between = "",                    \
    .end = {"</", "｜DSML｜", block ">"}, .key = {"<", "｜DSML｜", "parameter name=\""},           \
    .text = {"\" string=\"true\">"}, .json = {"\" string=\"false\">"},                             \
    .value_end = {"</", "｜DSML｜", "parameter>", "\n"}

static const struct frame frames[] = {
    {.format = "hermes",
     .name = {"<tool_call>", "\n{\"name\": \""},
     .args = {"\", \"arguments\": "},
     .close = {"}\n", "</tool_call>"},
     .between = "\n"},
    {.format = "llama3", OBJECT("parameters")},
    {.format = "json", OBJECT("arguments")},
    {.format = "mistral",
     .needs = "[ARGS]",
     .name = {"[TOOL_CALLS]"},
     .args = {"[ARGS]"},
     .between = ""},
    {.format = "mistral",
     .open = {"[TOOL_CALLS]", "["},
     OBJECT("arguments"),
     .between = ", ",
     .end = {"]"}},
    {.format = "functionary-v3.1",
     .name = {"<function="},
     .args = {">"},
     .close = {"</function>"},
     .between = ""},
    {.format = "functionary-v3.2", .args = {"\n"}, .between = ">>>"},
    {.format = "deepseek",
     .open = {"<｜tool▁calls▁begin｜>"},
     .name = {"<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>"},
     .args = {"\n```json\n"},
     .close = {"\n```", "<｜tool▁call▁end｜>"},
     .between = "\n",
     .end = {"<｜tool▁calls▁end｜>"}},
    {.format = "deepseek",
     .open = {"<｜tool▁calls▁begin｜>"},
     .name = {"<｜tool▁call▁begin｜>"},
     .args = {"<｜tool▁sep｜>"},
     .close = {"<｜tool▁call▁end｜>"},
     .between = "",
     .end = {"<｜tool▁calls▁end｜>"}},
    {.format = "deepseek-v3.2", DSML("function_calls")},
    {.format = "deepseek-v4", DSML("tool_calls")},
    {.format = "harmony",
     .name = {"<|channel|>", "commentary to=functions."},
     .args = {" ", "<|constrain|>", "json", "<|message|>"}},
    {.format = "kimi",
     .open = {"<|tool_calls_section_begin|>"},
     .name = {"<|tool_call_begin|>", "functions."},
     .args = {":", "#", "<|tool_call_argument_begin|>"},
     .close = {"<|tool_call_end|>"},
     .between = "",
     .end = {"<|tool_calls_section_end|>"}},
    {.format = "qwen-xml",
     .name = {"<tool_call>", "\n<function="},
     .args = {">\n"},
     .close = {"</function>\n", "</tool_call>"},
     .between = "\n",
     .key = {"<parameter="},
     .text = {">\n"},
     .json = {">\n"},
     .value_end = {"\n</parameter>", "\n"}},
    {.format = "glm",
     .name = {"<tool_call>"},
     .args = {"\n"},
     .close = {"</tool_call>"},
     .between = "\n",
     .key = {"<arg_key>"},
     .text = {"</arg_key>", "\n", "<arg_value>"},
     .json = {"</arg_key>", "\n", "<arg_value>"},
     .value_end = {"</arg_value>", "\n"}},
    {.format = "minimax",
     .open = {"<minimax:tool_call>", "\n"},
     .name = {"<invoke name=\""},
     .args = {"\">\n"},
     .close = {"</invoke>\n"},
     .between = "",
     .end = {"</minimax:tool_call>"},
     .key = {"<parameter name=\""},
     .text = {"\">"},
     .json = {"\">"},
     .value_end = {"</parameter>", "\n"}},
    {.format = "granite",
     .open = {"<|tool_call|>", "["},
     OBJECT("arguments"),
     .between = ", ",
     .end = {"]"}},
    {.format = "command-r7b",
     .open = {"<|START_ACTION|>", "[\n    "},
     .name = {"{\"tool_call_id\": \"", "#", "\", \"tool_name\": \""},
     .args = {"\", \"parameters\": "},
     .close = {"}"},
     .between = ",\n    ",
     .end = {"\n]", "<|END_ACTION|>"}},
    {.format = "apriel",
     .open = {"<tool_calls>", "["},
     OBJECT("arguments"),
     .between = ", ",
     .end = {"]", "</tool_calls>"}},
    {.format = "firefunction",
     .open = {" functools["},
     OBJECT("arguments"),
     .between = ", ",
     .end = {"]"}},
};
enum { N_FRAMES = sizeof frames / sizeof frames[0] };

/* What is being made. */
struct maker {
    const struct reply_grammar *r;
    struct grammar_builder *b;
    const struct frame *f;
};

#define SEQ(b, ...)                                                                                \
    grammar_seq(b,                                                                                 \
                sizeof((grammar_node[]){__VA_ARGS__}) / sizeof(grammar_node),                      \
                (grammar_node[]){__VA_ARGS__})

static int32_t token_of(const struct maker *m, const char *s)
{
    return m->r->token ? m->r->token(m->r->ctx, s, strlen(s)) : -1;
}

static grammar_node piece(const struct maker *m, const char *s)
{
    int32_t id = token_of(m, s);
    if (id >= 0)
        return grammar_token(m->b, id);
    if (strcmp(s, "#") == 0)
        return grammar_repeat(m->b, grammar_byte_range(m->b, '0', '9'), 1, 3);
    return grammar_literal(m->b, s, strlen(s));
}

/* Pieces, from the one numbered `from` on. */
static grammar_node pieces_from(const struct maker *m, const char *const *texts, size_t from)
{
    grammar_node nodes[MAX_PIECES];
    uint32_t n = 0;
    for (size_t i = from; i < MAX_PIECES && texts[i]; i++)
        nodes[n++] = piece(m, texts[i]);
    return n ? grammar_seq(m->b, n, nodes) : grammar_empty(m->b);
}

static grammar_node pieces(const struct maker *m, const char *const *texts)
{
    return pieces_from(m, texts, 0);
}

static grammar_node any_text(const struct maker *m)
{
    static const struct grammar_range all = {0, 0x10ffff};
    return grammar_repeat(m->b, grammar_chars(m->b, 1, &all), 0, GRAMMAR_NO_LIMIT);
}

/* Free text up to the mark that closes it, and the mark. */
static grammar_node text_until(const struct maker *m, const char *mark)
{
    int32_t id = token_of(m, mark);
    if (id >= 0)
        return SEQ(m->b, any_text(m), grammar_token(m->b, id));
    const struct grammar_text trigger = {mark, strlen(mark)};
    grammar_node tail = grammar_empty(m->b);
    return grammar_scan(m->b, 1, &trigger, &tail, false);
}

/* ---- arguments ---- */

/* A schema that is an object's, whatever it says. */
static json_t *object_schema(const json_t *schema)
{
    json_t *copy = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    if (!json_object_get(copy, "type"))
        json_object_set_new(copy, "type", json_string("object"));
    return copy;
}

static grammar_node json_arguments(const struct maker *m,
                                   const json_t *schema,
                                   size_t tool,
                                   bool free)
{
    char where[64];
    if (free)
        return grammar_json_object(m->b);
    json_t *own = object_schema(schema);
    snprintf(where, sizeof where, "/tools/%zu/function/parameters", tool);
    grammar_node node = grammar_json_schema(m->b, own, where);
    json_decref(own);
    return node;
}

/* May a value be a string? Then in tags it is plain text, without quotes. */
static bool may_be_string(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    if (json_is_string(type))
        return strcmp(json_string_value(type), "string") == 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *s = json_string_value(json_array_get(type, i));
        if (s && strcmp(s, "string") == 0)
            return true;
    }
    return !json_is_array(type);
}

/* One of the texts of an enumeration; false if there is something else in it. */
static bool choice_of(const struct maker *m, const json_t *values, grammar_node *out)
{
    size_t n = json_array_size(values);
    struct grammar_text *texts = mem_zalloc(n + 1, sizeof *texts);
    bool ok = n > 0;
    for (size_t i = 0; i < n && ok; i++) {
        const json_t *v = json_array_get(values, i);
        ok = json_is_string(v);
        texts[i] = (struct grammar_text){ok ? json_string_value(v) : "", json_string_length(v)};
    }
    if (ok)
        *out = grammar_choice(m->b, (uint32_t)n, texts);
    free(texts);
    return ok;
}

/* The schema of one argument, which may refer to definitions of the whole. */
static json_t *property_schema(const json_t *root, const json_t *property)
{
    static const char *const definitions[] = {"$defs", "definitions"};
    json_t *copy = json_copy((json_t *)property);
    for (size_t i = 0; json_is_object(copy) && i < 2; i++) {
        json_t *d = json_object_get(root, definitions[i]);
        if (d && !json_object_get(copy, definitions[i]))
            json_object_set(copy, definitions[i], d);
    }
    return copy;
}

/* KEY key TEXT or JSON value VALUE_END */
static grammar_node tagged_argument(const struct maker *m,
                                    const json_t *schema,
                                    const char *key,
                                    const json_t *property,
                                    size_t tool)
{
    grammar_node name = grammar_literal(m->b, key, strlen(key)), value;
    bool text = may_be_string(property) || !json_is_object(property);
    json_t *one = NULL;
    if (text && choice_of(m, json_object_get(property, "enum"), &value)) {
        value = SEQ(m->b, value, pieces(m, m->f->value_end));
    } else if (text) {
        value = SEQ(m->b, text_until(m, m->f->value_end[0]), pieces_from(m, m->f->value_end, 1));
    } else {
        char where[160];
        snprintf(where, sizeof where, "/tools/%zu/function/parameters/properties/%.64s", tool, key);
        one = property_schema(schema, property);
        value = SEQ(m->b, grammar_json_schema(m->b, one, where), pieces(m, m->f->value_end));
        json_decref(one);
    }
    return SEQ(m->b, pieces(m, m->f->key), name, pieces(m, text ? m->f->text : m->f->json), value);
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

/* Any arguments: of tools that are not bound to their schema. */
static grammar_node any_tagged(const struct maker *m)
{
    enum { MAX_KEY = 64 }; /* characters; the parser takes more bytes (REPLY_MAX_HEAD) */
    static const struct grammar_range plain[] = {
        {0x21, 0x21}, {0x23, 0x3b}, {0x3d, 0x3d}, {0x3f, 0x10ffff}}; /* no space, ", < or > */
    const struct frame *f = m->f;
    grammar_node key = grammar_repeat(m->b, grammar_chars(m->b, 4, plain), 1, MAX_KEY);
    grammar_node open = pieces(m, f->text);
    if (strcmp(f->text[0], f->json[0]) != 0)
        open = grammar_alt(m->b, 2, (grammar_node[]){open, pieces(m, f->json)});
    grammar_node value = SEQ(m->b, text_until(m, f->value_end[0]), pieces_from(m, f->value_end, 1));
    return grammar_repeat(
        m->b, SEQ(m->b, pieces(m, f->key), key, open, value), 0, GRAMMAR_NO_LIMIT);
}

/* Schemas that say elsewhere than in `properties` what the arguments are: no tags for those. */
static bool is_combined(const json_t *schema)
{
    static const char *const keys[] = {"$ref", "allOf", "anyOf", "oneOf"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(schema, keys[i]))
            return true;
    return false;
}

/* The arguments in the order of the schema; those that are not required may lack. */
static grammar_node tagged_arguments(const struct maker *m,
                                     const json_t *schema,
                                     size_t tool,
                                     bool free)
{
    char error[200];
    if (free)
        return any_tagged(m);
    if (is_combined(schema)) {
        snprintf(error,
                 sizeof error,
                 "'tools': at \"/tools/%zu/function/parameters\": $ref, allOf, anyOf and oneOf are "
                 "not supported here with this model's format of calls",
                 tool);
        return grammar_fail(m->b, error);
    }
    json_t *properties = json_object_get(schema, "properties"), *property;
    const char *key;
    grammar_node all = grammar_empty(m->b);
    json_object_foreach(properties, key, property)
    {
        grammar_node one = tagged_argument(m, schema, key, property, tool);
        if (!is_required(schema, key))
            one = grammar_optional(m->b, one);
        all = SEQ(m->b, all, one);
    }
    return all;
}

/* ---- calls ---- */

static grammar_node call_of(const struct maker *m, size_t i)
{
    const json_t *function = json_object_get(json_array_get(m->r->tools, i), "function");
    const json_t *schema = json_object_get(function, "parameters");
    const char *name = json_string_value(json_object_get(function, "name"));
    bool free = !m->r->required && !(m->r->strict && m->r->strict[i]);
    grammar_node arguments =
        m->f->key[0] ? tagged_arguments(m, schema, i, free) : json_arguments(m, schema, i, free);
    return SEQ(m->b,
               grammar_literal(m->b, name, strlen(name)),
               pieces(m, m->f->args),
               arguments,
               pieces(m, m->f->close));
}

/* A name and what follows it, of any tool that may be called. */
static grammar_node any_call(const struct maker *m)
{
    size_t n = json_array_size(m->r->tools);
    grammar_node *calls = mem_zalloc(n + 1, sizeof *calls);
    uint32_t n_calls = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_object_get(json_array_get(m->r->tools, i), "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (name && (!m->r->only || strcmp(name, m->r->only) == 0))
            calls[n_calls++] = call_of(m, i);
    }
    grammar_node node = n_calls ? grammar_alt(m->b, n_calls, calls) : grammar_never(m->b);
    free(calls);
    return node;
}

/* The block behind its first piece, which is the block's, or the call's where blocks have none. */
static grammar_node block_behind_first(const struct maker *m)
{
    const struct frame *f = m->f;
    grammar_node call = any_call(m);
    size_t in_open = f->open[0] != NULL, in_name = !in_open && f->name[0];
    grammar_node node =
        SEQ(m->b, pieces_from(m, f->open, in_open), pieces_from(m, f->name, in_name), call);
    if (m->r->parallel && f->between) {
        grammar_node next = SEQ(
            m->b, grammar_literal(m->b, f->between, strlen(f->between)), pieces(m, f->name), call);
        node = SEQ(m->b, node, grammar_repeat(m->b, next, 0, GRAMMAR_NO_LIMIT));
    }
    return SEQ(m->b, node, pieces(m, f->end));
}

static const char *first_piece(const struct frame *f)
{
    return f->open[0] ? f->open[0] : f->name[0];
}

static grammar_node required_block(const struct maker *m)
{
    const char *first = first_piece(m->f);
    grammar_node rest = block_behind_first(m);
    return first ? SEQ(m->b, piece(m, first), rest) : rest;
}

/* Text, in which the first piece begins a block; behind it the reply ends. */
static grammar_node optional_block(const struct maker *m)
{
    const char *first = first_piece(m->f);
    grammar_node rest = block_behind_first(m);
    int32_t id = token_of(m, first);
    if (id >= 0)
        return SEQ(
            m->b, any_text(m), grammar_optional(m->b, SEQ(m->b, grammar_token(m->b, id), rest)));
    const struct grammar_text trigger = {first, strlen(first)};
    return grammar_scan(m->b, 1, &trigger, &rest, true);
}

/* ---- reasoning ---- */

/* Reasoning where it is open, or may be opened, and the white space behind it. */
static grammar_node thoughts_before(const struct maker *m)
{
    const struct reply_style *s = &m->r->style;
    if (!s->thoughts)
        return grammar_empty(m->b);
    if (strcmp(reply_thoughts_name(s->thoughts), "harmony") == 0)
        return grammar_optional(m->b,
                                SEQ(m->b,
                                    piece(m, "<|channel|>"),
                                    piece(m, "analysis"),
                                    piece(m, "<|message|>"),
                                    text_until(m, "<|end|>"),
                                    piece(m, "<|start|>"),
                                    piece(m, "assistant")));
    grammar_node newlines = grammar_repeat(m->b, grammar_literal(m->b, "\n", 1), 0, 2);
    grammar_node closed =
        SEQ(m->b, text_until(m, reply_thoughts_mark(s->thoughts, false)), newlines);
    if (m->r->start.thinking)
        return closed;
    return grammar_optional(m->b,
                            SEQ(m->b, piece(m, reply_thoughts_mark(s->thoughts, true)), closed));
}

/* ---- all of it ---- */

/* Frames that may be in a text: they begin with a mark that nothing else begins with. */
static bool has_mark(const struct frame *f)
{
    static const char *const others[] = {"llama3", "json", "harmony", "functionary-v3.2"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(f->format, others[i]) == 0)
            return false;
    return true;
}

bool reply_grammar_known(const struct reply_format *f, bool required)
{
    for (size_t i = 0; f && i < N_FRAMES; i++)
        if (strcmp(frames[i].format, reply_format_name(f)) == 0)
            return required || has_mark(&frames[i]);
    return false;
}

grammar_node reply_grammar_build(const struct reply_grammar *r, struct grammar_builder *b)
{
    grammar_node blocks[N_FRAMES];
    uint32_t n = 0;
    struct maker m = {r, b, NULL};
    if (!reply_grammar_known(r->style.format, r->required))
        return grammar_never(b);
    for (size_t i = 0; i < N_FRAMES; i++) {
        m.f = &frames[i];
        if (strcmp(m.f->format, reply_format_name(r->style.format)) != 0)
            continue;
        if (m.f->needs && token_of(&m, m.f->needs) < 0)
            continue;
        blocks[n++] = r->required ? required_block(&m) : optional_block(&m);
        if (m.f->needs)
            break; /* the model knows this way, so it is the one */
    }
    return SEQ(b, thoughts_before(&m), grammar_alt(b, n, blocks));
}

grammar_node reply_grammar_content(const struct reply_grammar *r,
                                   struct grammar_builder *b,
                                   grammar_node content)
{
    const struct maker m = {r, b, NULL};
    const char *name = reply_format_name(r->style.format);
    grammar_node before = thoughts_before(&m);
    if (strcmp(name, "harmony") == 0)
        before =
            SEQ(b, before, piece(&m, "<|channel|>"), piece(&m, "final"), piece(&m, "<|message|>"));
    else if (strcmp(name, "functionary-v3.2") == 0)
        before = SEQ(b, before, piece(&m, "all\n"));
    return SEQ(b, before, content);
}
