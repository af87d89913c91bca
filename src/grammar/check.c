/* What must be known before compiling: how deep the shortest derivation of each node nests, which
 * nodes derive the empty text, and that no rule begins with itself.
 *
 * Heights and emptiness are least fixed points: all rules start at "derives nothing", and rounds
 * over the rules, callees first, lower that until nothing changes. A call at the end of a rule is a
 * jump and opens nothing, so each node has two heights. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdlib.h>

/* Nodes looked at in all rounds together; a grammar of sense takes a few rounds. */
#define MAX_WORK 4000000u

struct check {
    const struct grammar_builder *b;
    struct facts *f;
    const struct grammar_vocab *v;
    uint32_t *seen; /* [n_nodes] the round that last looked at it */
    uint32_t round;
    uint32_t *order; /* rules in use, callees before callers where there is such an order */
    uint32_t n_order;
    uint64_t work;
    bool changed;
};

static uint16_t one_more(uint16_t height)
{
    return height < GRAMMAR_MAX_DEPTH ? (uint16_t)(height + 1)
           : height == NOTHING        ? NOTHING
                                      : TOO_DEEP;
}

static uint16_t higher(uint16_t a, uint16_t b)
{
    return a > b ? a : b;
}

static void look(struct check *c, grammar_node id);

static void look_at_seq(struct check *c, const struct node *n, grammar_node id)
{
    struct facts *f = c->f;
    uint16_t tail = 0, inner = 0;
    bool nullable = true;
    for (uint32_t i = 0; i < n->b; i++) {
        grammar_node kid = c->b->kids[n->a + i];
        look(c, kid);
        tail = higher(tail, i + 1 < n->b ? f->inner[kid] : f->tail[kid]);
        inner = higher(inner, f->inner[kid]);
        nullable &= f->nullable[kid];
    }
    f->tail[id] = tail;
    f->inner[id] = inner;
    f->nullable[id] = nullable;
}

static void look_at_alt(struct check *c, const uint32_t *kids, uint32_t n, grammar_node id)
{
    struct facts *f = c->f;
    for (uint32_t i = 0; i < n; i++) {
        grammar_node kid = kids[i];
        look(c, kid);
        if (f->tail[kid] < f->tail[id])
            f->tail[id] = f->tail[kid];
        if (f->inner[kid] < f->inner[id])
            f->inner[id] = f->inner[kid];
        f->nullable[id] |= f->nullable[kid];
    }
}

static void look_at_scan(struct check *c, const struct scan *s, grammar_node id)
{
    look_at_alt(c, c->b->kids + s->first + s->n, s->n, id);
    if (s->may_end)
        c->f->tail[id] = c->f->inner[id] = 0;
    c->f->nullable[id] = s->may_end; /* a trigger has a byte at least */
}

/* Has the vocabulary the bytes of a text, or one of a class? */
static bool can_be_written(const struct check *c, const struct node *n)
{
    bool all = true, any = false;
    if (n->kind == NODE_BYTES) {
        for (uint32_t i = 0; i < n->b; i++)
            all &= c->v->has[(uint8_t)c->b->text.data[n->a + i]];
        return all;
    }
    for (uint32_t i = 0; i < 256; i++)
        any |= c->v->has[i] && class_has(&c->b->classes[n->a], i);
    return any;
}

/* Facts of a node, once a round. */
static void look(struct check *c, grammar_node id)
{
    const struct node *n = &c->b->nodes[id];
    struct facts *f = c->f;
    if (c->seen[id] == c->round)
        return;
    c->seen[id] = c->round;
    c->work++;
    switch ((enum node_kind)n->kind) {
    case NODE_NEVER:
        break;
    case NODE_EMPTY:
        f->nullable[id] = true;
        f->tail[id] = f->inner[id] = 0;
        break;
    case NODE_BYTES:
    case NODE_CLASS:
        if (!can_be_written(c, n))
            break;
        f->tail[id] = f->inner[id] = 0;
        break;
    case NODE_TOKEN: /* one that ends an answer comes behind the grammar's text alone */
        if (!(c->v->eog[n->a / 64] >> n->a % 64 & 1))
            f->tail[id] = f->inner[id] = 0;
        break;
    case NODE_SEQ:
        look_at_seq(c, n, id);
        break;
    case NODE_ALT:
        look_at_alt(c, c->b->kids + n->a, n->b, id);
        break;
    case NODE_REPEAT:
        look(c, n->a);
        f->nullable[id] = n->b == 0 || f->nullable[n->a];
        f->inner[id] = n->b == 0 ? 0 : f->inner[n->a];
        f->tail[id] = f->inner[id];
        break;
    case NODE_RULE:
        f->nullable[id] = f->rule_nullable[n->a];
        f->tail[id] = f->rule_height[n->a];
        f->inner[id] = one_more(f->rule_height[n->a]);
        break;
    case NODE_SCAN:
        look_at_scan(c, &c->b->scans[n->a], id);
        break;
    }
}

/* One round over all rules; heights only sink and emptiness only spreads. */
static void make_round(struct check *c)
{
    c->round++;
    c->changed = false;
    for (uint32_t i = 0; i < c->n_order; i++) {
        uint32_t r = c->order[i];
        grammar_node body = c->b->rules[r].body;
        look(c, body);
        uint16_t height = c->f->tail[body];
        bool nullable = c->f->nullable[body];
        c->changed |= height != c->f->rule_height[r] || nullable != c->f->rule_nullable[r];
        c->f->rule_height[r] = height;
        c->f->rule_nullable[r] = nullable;
    }
}

/* ---- graphs over rules, walked with a stack of our own: they may be as deep as there are rules
 * ----
 */

struct rule_edges {
    uint32_t *to;
    uint32_t n, cap;
};

/* Add the rules that node `id` names; `first`: only those that may stand at its beginning. */
static void find_edges(struct check *c, grammar_node id, bool first, struct rule_edges *out)
{
    const struct node *n = &c->b->nodes[id];
    if (c->seen[id] == c->round || (first && c->f->tail[id] == NOTHING))
        return;
    c->seen[id] = c->round;
    c->work++;
    switch ((enum node_kind)n->kind) {
    case NODE_RULE:
        out->to = grow(out->to, &out->cap, out->n + 1, sizeof *out->to);
        out->to[out->n++] = n->a;
        break;
    case NODE_REPEAT:
        find_edges(c, n->a, first, out);
        break;
    case NODE_SEQ:
    case NODE_ALT:
        for (uint32_t i = 0; i < n->b; i++) {
            grammar_node kid = c->b->kids[n->a + i];
            find_edges(c, kid, first, out);
            if (first && n->kind == NODE_SEQ && !c->f->nullable[kid])
                break;
        }
        break;
    case NODE_SCAN:
        for (uint32_t i = 0; !first && i < c->b->scans[n->a].n; i++)
            find_edges(
                c, c->b->kids[c->b->scans[n->a].first + c->b->scans[n->a].n + i], first, out);
        break;
    default:
        break;
    }
}

enum colour { NEW, OPEN, DONE };
struct frame {
    uint32_t rule;
    struct rule_edges edges;
    uint32_t at;
};
struct walk {
    struct check *c;
    uint8_t *colour; /* [n_rules] */
    struct frame *stack;
    uint32_t n, cap;
    bool first;
};

static enum err open_rule(struct walk *w, uint32_t rule, struct err_info *e)
{
    const struct grammar_builder *b = w->c->b;
    if (b->rules[rule].body == NONE)
        return builder_refuse(b, e, ": rule '%.100s' is not defined", b->rules[rule].name);
    if (w->c->work > MAX_WORK)
        return builder_refuse(b, e, " is too tangled");
    w->stack = grow(w->stack, &w->cap, w->n + 1, sizeof *w->stack);
    struct frame *f = &w->stack[w->n++];
    *f = (struct frame){.rule = rule};
    w->colour[rule] = OPEN;
    w->c->round++;
    find_edges(w->c, b->rules[rule].body, w->first, &f->edges);
    return OK;
}

/* Depth first from one rule. All rules: they go into the order when done, and are in use. First
 * ones only: a cycle is left recursion. */
static enum err walk_rules(struct walk *w, uint32_t rule, struct err_info *e)
{
    enum err err = w->colour[rule] == NEW ? open_rule(w, rule, e) : OK;
    while (!err && w->n > 0) {
        struct frame *f = &w->stack[w->n - 1];
        if (f->at < f->edges.n) {
            uint32_t to = f->edges.to[f->at++];
            if (w->colour[to] == NEW)
                err = open_rule(w, to, e);
            else if (w->colour[to] == OPEN && w->first)
                err = builder_refuse(w->c->b,
                                     e,
                                     ": rule '%.100s' begins with itself (left recursion)",
                                     w->c->b->rules[to].name);
            continue;
        }
        w->colour[f->rule] = DONE;
        if (!w->first)
            w->c->order[w->c->n_order++] = f->rule;
        free(f->edges.to);
        w->n--;
    }
    while (w->n > 0)
        free(w->stack[--w->n].edges.to);
    return err;
}

static enum err order_rules(struct check *c, grammar_node root, struct err_info *e)
{
    struct walk w = {.c = c, .colour = mem_zalloc(c->b->n_rules + 1, 1)};
    struct rule_edges roots = {0};
    enum err err = OK;
    c->round++;
    find_edges(c, root, false, &roots);
    for (uint32_t i = 0; !err && i < roots.n; i++)
        err = walk_rules(&w, roots.to[i], e);
    free(roots.to);
    free(w.colour);
    free(w.stack);
    return err;
}

static enum err refuse_left_recursion(struct check *c, struct err_info *e)
{
    struct walk w = {.c = c, .colour = mem_zalloc(c->b->n_rules + 1, 1), .first = true};
    enum err err = OK;
    for (uint32_t i = 0; !err && i < c->n_order; i++)
        err = walk_rules(&w, c->order[i], e);
    free(w.colour);
    free(w.stack);
    return err;
}

static enum err find(struct check *c, grammar_node root, struct err_info *e)
{
    enum err err = order_rules(c, root, e);
    if (err)
        return err;
    for (uint32_t i = 0; i < c->n_order; i++)
        c->f->rule_used[c->order[i]] = true;
    do {
        make_round(c);
        if (c->work > MAX_WORK)
            return builder_refuse(c->b, e, " is too tangled");
    } while (c->changed);
    c->round++;
    look(c, root);
    if (c->f->tail[root] == NOTHING)
        return builder_refuse(c->b, e, " admits no text at all");
    if (c->f->tail[root] == TOO_DEEP)
        return builder_refuse(
            c->b, e, ": even the shortest text nests deeper than %d", GRAMMAR_MAX_DEPTH);
    return refuse_left_recursion(c, e);
}

enum err facts_find(const struct grammar_builder *b,
                    grammar_node root,
                    const struct grammar_vocab *v,
                    struct facts *f,
                    struct err_info *e)
{
    /* bounded by MAX_NODES and MAX_RULES */
    *f = (struct facts){.tail = mem_alloc(b->n_nodes * sizeof *f->tail),
                        .inner = mem_alloc(b->n_nodes * sizeof *f->inner),
                        .nullable = mem_zalloc(b->n_nodes, sizeof *f->nullable),
                        .rule_height = mem_alloc((b->n_rules + 1) * sizeof *f->rule_height),
                        .rule_nullable = mem_zalloc(b->n_rules + 1, sizeof *f->rule_nullable),
                        .rule_used = mem_zalloc(b->n_rules + 1, sizeof *f->rule_used)};
    for (uint32_t i = 0; i < b->n_nodes; i++)
        f->tail[i] = f->inner[i] = NOTHING;
    for (uint32_t i = 0; i < b->n_rules; i++)
        f->rule_height[i] = NOTHING;
    struct check c = {.b = b,
                      .f = f,
                      .v = v,
                      .seen = mem_zalloc(b->n_nodes, sizeof(uint32_t)),
                      .order = mem_alloc((b->n_rules + 1) * sizeof(uint32_t))};
    enum err err = find(&c, root, e);
    free(c.seen);
    free(c.order);
    return err;
}

void facts_deinit(struct facts *f)
{
    free(f->tail);
    free(f->inner);
    free(f->nullable);
    free(f->rule_height);
    free(f->rule_nullable);
    free(f->rule_used);
}
