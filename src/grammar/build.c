/* The builder: nodes from parts, simplified where that costs nothing, and the first error kept. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY_PART 32u /* of the bounds of work */

/* The first two nodes of every builder. */
enum { NEVER, EMPTY };

void *grow(void *array, uint32_t *cap, uint32_t n, size_t size)
{
    if (n <= *cap)
        return array;
    uint32_t more = *cap ? *cap : 16;
    while (more < n)
        more *= 2;
    *cap = more;
    return mem_realloc(array, more * size);
}

grammar_node builder_fail(struct grammar_builder *b, const char *fmt, ...)
{
    char text[sizeof b->error.text];
    va_list args;
    if (builder_failed(b))
        return NEVER;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set_field(&b->error, ERR_INVALID, b->field, "%s", text);
    return NEVER;
}

enum err builder_refuse(const struct grammar_builder *b, struct err_info *e, const char *fmt, ...)
{
    char text[sizeof e->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set_field(e, ERR_INVALID, b->field, "'%s'%s", b->field, text);
}

static grammar_node add_node(struct grammar_builder *b, struct node n)
{
    if (builder_failed(b))
        return NEVER;
    if (b->n_nodes + b->n_kids >= MAX_NODES)
        return builder_fail(b, "'%s' is too large: over %u parts", b->field, MAX_NODES);
    if (n.depth > MAX_NODE_DEPTH)
        return builder_fail(
            b, "'%s' is nested too deeply: over %u levels", b->field, MAX_NODE_DEPTH);
    b->nodes = grow(b->nodes, &b->cap_nodes, b->n_nodes + 1, sizeof *b->nodes);
    b->nodes[b->n_nodes] = n;
    return b->n_nodes++;
}

struct grammar_builder *grammar_builder_create(const char *field)
{
    struct grammar_builder *b = mem_zalloc(1, sizeof *b);
    snprintf(b->field, sizeof b->field, "%s", field);
    b->json_value = b->json_object = b->json_array = b->json_string = b->json_char = NONE;
    b->json_number = b->json_space = b->json_integer = NONE;
    add_node(b, (struct node){.kind = NODE_NEVER});
    add_node(b, (struct node){.kind = NODE_EMPTY});
    return b;
}

void grammar_builder_set_try(struct grammar_builder *b, bool on)
{
    b->try = on;
}

bool grammar_builder_cut_short(const struct grammar_builder *b)
{
    return b->cut_short;
}

bool builder_over(struct grammar_builder *b, uint64_t used, uint64_t most)
{
    const uint64_t may = b->try ? most / TRY_PART : most;
    b->cut_short |= b->try && used > may;
    return used > may;
}

void grammar_builder_destroy(struct grammar_builder *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->n_rules; i++)
        free(b->rules[i].name);
    free(b->nodes);
    free(b->kids);
    free(b->classes);
    free(b->rules);
    free(b->scans);
    buf_deinit(&b->text);
    free(b);
}

enum err grammar_builder_error(const struct grammar_builder *b, struct err_info *e)
{
    if (builder_failed(b) && e)
        *e = b->error;
    return b->error.code;
}

grammar_node grammar_fail(struct grammar_builder *b, const char *text)
{
    return builder_fail(b, "%s", text);
}

grammar_node grammar_starved(struct grammar_builder *b, uint32_t n)
{
    if (!builder_failed(b))
        err_set_field(&b->error, ERR_NOMEM, b->field, "'%s': no memory for %u texts", b->field, n);
    return NEVER;
}

grammar_node grammar_empty(struct grammar_builder *b)
{
    (void)b;
    return EMPTY;
}

grammar_node grammar_never(struct grammar_builder *b)
{
    (void)b;
    return NEVER;
}

grammar_node grammar_literal(struct grammar_builder *b, const char *s, size_t n)
{
    if (n == 0 || builder_failed(b))
        return EMPTY;
    if (n > MAX_TEXT_BYTES || b->text.len + n > MAX_TEXT_BYTES)
        return builder_fail(
            b, "'%s' is too large: over %u bytes of text", b->field, MAX_TEXT_BYTES);
    uint32_t at = (uint32_t)b->text.len;
    buf_add(&b->text, s, n);
    return add_node(b, (struct node){.kind = NODE_BYTES, .a = at, .b = (uint32_t)n});
}

grammar_node builder_class(struct grammar_builder *b, const struct byte_class *c)
{
    if (!(c->bits[0] | c->bits[1] | c->bits[2] | c->bits[3]))
        return NEVER;
    if (b->n_classes >= MAX_NODES)
        return builder_fail(b, "'%s' is too large: over %u sets of bytes", b->field, MAX_NODES);
    b->classes = grow(b->classes, &b->cap_classes, b->n_classes + 1, sizeof *b->classes);
    b->classes[b->n_classes] = *c;
    return add_node(b, (struct node){.kind = NODE_CLASS, .a = b->n_classes++});
}

grammar_node grammar_byte_range(struct grammar_builder *b, uint8_t lo, uint8_t hi)
{
    struct byte_class c = {0};
    class_add(&c, lo, hi);
    return builder_class(b, &c);
}

grammar_node grammar_token(struct grammar_builder *b, int32_t id)
{
    return add_node(b, (struct node){.kind = NODE_TOKEN, .a = (uint32_t)id});
}

static uint32_t add_kids(struct grammar_builder *b, uint32_t n, const grammar_node *nodes)
{
    uint32_t at = b->n_kids;
    if (n > MAX_NODES || b->n_nodes + b->n_kids + n > MAX_NODES) {
        builder_fail(b, "'%s' is too large: over %u parts", b->field, MAX_NODES);
        return 0;
    }
    if (n == 0)
        return at;
    b->kids = grow(b->kids, &b->cap_kids, at + n, sizeof *b->kids);
    memcpy(b->kids + at, nodes, n * sizeof *nodes);
    b->n_kids += n;
    return at;
}

/* n parts as one node. `unit` is the part that changes nothing and may be left out. */
static grammar_node combine(struct grammar_builder *b,
                            enum node_kind kind,
                            uint32_t n,
                            const grammar_node *nodes,
                            grammar_node unit)
{
    uint16_t depth = 0;
    uint32_t kept = 0;
    grammar_node only = unit;
    if (builder_failed(b))
        return NEVER;
    uint32_t at = b->n_kids;
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i] == unit)
            continue;
        only = nodes[i];
        kept++;
        add_kids(b, 1, &only);
        if (builder_failed(b))
            return NEVER;
        if (b->nodes[only].depth > depth)
            depth = b->nodes[only].depth;
    }
    if (kept < 2) {
        b->n_kids = at;
        return only;
    }
    return add_node(
        b,
        (struct node){.kind = (uint8_t)kind, .depth = (uint16_t)(depth + 1), .a = at, .b = kept});
}

grammar_node grammar_seq(struct grammar_builder *b, uint32_t n, const grammar_node *nodes)
{
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i] == NEVER)
            return NEVER;
    return combine(b, NODE_SEQ, n, nodes, EMPTY);
}

grammar_node grammar_alt(struct grammar_builder *b, uint32_t n, const grammar_node *nodes)
{
    return combine(b, NODE_ALT, n, nodes, NEVER);
}

void node_list_add(struct node_list *l, grammar_node node)
{
    l->nodes = grow(l->nodes, &l->cap, l->n + 1, sizeof *l->nodes);
    l->nodes[l->n++] = node;
}

grammar_node node_list_seq(struct grammar_builder *b, struct node_list *l)
{
    grammar_node node = grammar_seq(b, l->n, l->nodes);
    free(l->nodes);
    return node;
}

grammar_node node_list_alt(struct grammar_builder *b, struct node_list *l)
{
    grammar_node node = grammar_alt(b, l->n, l->nodes);
    free(l->nodes);
    return node;
}

grammar_node grammar_repeat(struct grammar_builder *b, grammar_node x, uint32_t min, uint32_t max)
{
    if (builder_failed(b) || max < min)
        return NEVER;
    if (max == 0 || x == EMPTY)
        return EMPTY;
    if (x == NEVER)
        return min == 0 ? EMPTY : NEVER;
    if (min == 1 && max == 1)
        return x;
    return add_node(b,
                    (struct node){.kind = NODE_REPEAT,
                                  .depth = (uint16_t)(b->nodes[x].depth + 1),
                                  .a = x,
                                  .b = min,
                                  .c = max});
}

grammar_node grammar_optional(struct grammar_builder *b, grammar_node x)
{
    return grammar_repeat(b, x, 0, 1);
}

grammar_node grammar_separated(
    struct grammar_builder *b, grammar_node x, grammar_node separator, uint32_t min, uint32_t max)
{
    if (max == 0 || max < min)
        return min == 0 ? EMPTY : NEVER;
    uint32_t most = max == GRAMMAR_NO_LIMIT ? max : max - 1;
    grammar_node more = grammar_repeat(b, SEQ(b, separator, x), min > 0 ? min - 1 : 0, most);
    return min > 0 ? SEQ(b, x, more) : grammar_optional(b, SEQ(b, x, more));
}

grammar_node grammar_choice(struct grammar_builder *b, uint32_t n, const struct grammar_text *texts)
{
    grammar_node *nodes = malloc(((size_t)n + 1) * sizeof *nodes);
    if (!nodes)
        return grammar_starved(b, n);
    for (uint32_t i = 0; i < n; i++)
        nodes[i] = grammar_literal(b, texts[i].data, texts[i].len);
    grammar_node node = grammar_alt(b, n, nodes);
    free(nodes);
    return node;
}

grammar_node grammar_rule(struct grammar_builder *b, const char *name)
{
    if (b->n_rules >= MAX_RULES)
        return builder_fail(b, "'%s' is too large: over %u rules", b->field, MAX_RULES);
    b->rules = grow(b->rules, &b->cap_rules, b->n_rules + 1, sizeof *b->rules);
    b->rules[b->n_rules] = (struct rule){.name = mem_strdup(name), .body = NONE};
    return add_node(b, (struct node){.kind = NODE_RULE, .a = b->n_rules++});
}

void grammar_define(struct grammar_builder *b, grammar_node rule, grammar_node body)
{
    if (!builder_failed(b) && b->nodes[rule].kind == NODE_RULE)
        b->rules[b->nodes[rule].a].body = body;
}

grammar_node grammar_scan(struct grammar_builder *b,
                          uint32_t n,
                          const struct grammar_text *triggers,
                          const grammar_node *tails,
                          bool may_end)
{
    uint16_t depth = 0;
    grammar_node *texts = mem_alloc(((size_t)n + 1) * sizeof *texts);
    for (uint32_t i = 0; i < n; i++) {
        if (triggers[i].len == 0)
            builder_fail(b, "'%s': a trigger is empty", b->field);
        texts[i] = grammar_literal(b, triggers[i].data, triggers[i].len);
        if (b->nodes[tails[i]].depth > depth)
            depth = b->nodes[tails[i]].depth;
    }
    uint32_t first = add_kids(b, n, texts);
    add_kids(b, n, tails);
    free(texts);
    if (builder_failed(b))
        return NEVER;
    b->scans = grow(b->scans, &b->cap_scans, b->n_scans + 1, sizeof *b->scans);
    b->scans[b->n_scans] = (struct scan){.first = first, .n = n, .may_end = may_end};
    return add_node(
        b, (struct node){.kind = NODE_SCAN, .depth = (uint16_t)(depth + 1), .a = b->n_scans++});
}
