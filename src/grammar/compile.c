/* Nodes to a program.
 *
 * Each node is compiled for what comes after it, so a state's successors have smaller numbers and
 * its `need` is known at once; a loop's only way out is what comes after it, so that holds for
 * loops too. Texts that are alternatives become a trie. A long repetition becomes a row of calls:
 *
 *      x{2,4}:  s4 -x-> s3 -x-> s2 -x-> s1 -x-> s0      s2, s1 and s0 may also be left
 *
 * whose length is bounded, as the body is one rule that all calls share. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

struct compiler {
    struct grammar_builder *b;
    const struct facts *f;
    struct program *p;
    uint32_t longest_token;
    uint32_t cap_states, cap_edges, cap_targets, n_edges, n_targets;
    /* rules, and bodies of repetitions that became rules */
    struct body {
        grammar_node node;
        uint32_t start; /* NONE: not compiled yet */
        uint16_t height;
    } * bodies;
    uint32_t n_bodies, cap_bodies, n_rows;
    uint32_t *body_of_rule; /* [n_rules] */
    uint32_t *body_of_node; /* [n_nodes] of repetitions */
    bool too_large;
};

static uint32_t add_state(struct compiler *c, struct state s)
{
    struct program *p = c->p;
    if (builder_over(c->b, (uint64_t)p->n_states + c->n_edges + c->n_targets, MAX_STATES - 1)) {
        c->too_large = true;
        return 0;
    }
    s.canon = p->n_states;
    p->states = grow(p->states, &c->cap_states, p->n_states + 1, sizeof *p->states);
    p->states[p->n_states] = s;
    return p->n_states++;
}

static void add_edge(struct compiler *c, uint8_t lo, uint8_t hi, uint32_t target)
{
    c->p->edges = grow(c->p->edges, &c->cap_edges, c->n_edges + 1, sizeof *c->p->edges);
    c->p->edges[c->n_edges++] = (struct edge){.lo = lo, .hi = hi, .target = target};
}

static uint32_t add_targets(struct compiler *c, const uint32_t *to, uint32_t n)
{
    uint32_t at = c->n_targets;
    if (n == 0)
        return at;
    c->p->targets = grow(c->p->targets, &c->cap_targets, at + n, sizeof *c->p->targets);
    memcpy(c->p->targets + at, to, n * sizeof *to);
    c->n_targets += n;
    return at;
}

static uint32_t split(struct compiler *c, const uint32_t *to, uint32_t n)
{
    uint16_t need = UINT16_MAX;
    if (n == 1)
        return to[0];
    for (uint32_t i = 0; i < n; i++)
        if (c->p->states[to[i]].need < need)
            need = c->p->states[to[i]].need;
    uint32_t first = add_targets(c, to, n);
    return add_state(c, (struct state){.op = OP_SPLIT, .need = need, .first = first, .n = n});
}

static uint32_t match_one(struct compiler *c, uint8_t byte, uint32_t next)
{
    struct state s = {.op = OP_MATCH, .need = c->p->states[next].need, .first = c->n_edges, .n = 1};
    add_edge(c, byte, byte, next);
    return add_state(c, s);
}

static uint32_t match_class(struct compiler *c, const struct byte_class *set, uint32_t next)
{
    struct state s = {.op = OP_MATCH, .need = c->p->states[next].need, .first = c->n_edges};
    for (uint32_t lo = 0; lo < 256; lo++) {
        if (!class_has(set, lo))
            continue;
        uint32_t hi = lo;
        while (hi < 255 && class_has(set, hi + 1))
            hi++;
        add_edge(c, (uint8_t)lo, (uint8_t)hi, next);
        s.n++;
        lo = hi;
    }
    return add_state(c, s);
}

static uint32_t match_token(struct compiler *c, int32_t id, uint32_t next)
{
    struct program *p = c->p;
    uint32_t i = 0;
    while (i < p->n_tokens && p->tokens[i] != id)
        i++;
    if (i == MAX_TOKEN_EDGES) {
        c->too_large = true;
        return 0;
    }
    if (i == p->n_tokens)
        p->tokens[p->n_tokens++] = id;
    return add_state(
        c, (struct state){.op = OP_TOKEN, .need = p->states[next].need, .first = i, .n = next});
}

static uint32_t call(struct compiler *c, uint32_t body, uint32_t next)
{
    uint32_t need = c->bodies[body].height + (next != 0 ? 1u : 0u);
    if (c->p->states[next].need > need)
        need = c->p->states[next].need;
    /* `first` is the body's number until all are compiled */
    return add_state(
        c, (struct state){.op = OP_CALL, .need = (uint16_t)need, .first = body, .n = next});
}

static uint32_t compile(struct compiler *c, grammar_node id, uint32_t next);

/* Does anything derive from the node, within the depth? */
static bool productive(const struct compiler *c, grammar_node id, uint32_t next)
{
    return (next == 0 ? c->f->tail[id] : c->f->inner[id]) <= GRAMMAR_MAX_DEPTH;
}

/* ---- alternatives ---- */

struct text {
    const uint8_t *s;
    uint32_t n;
};

static int by_text(const void *pa, const void *pb)
{
    const struct text *a = pa, *b = pb;
    int order = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

/* Bytes s[from..to) before next. */
static uint32_t chain(
    struct compiler *c, const uint8_t *s, uint32_t from, uint32_t to, uint32_t next)
{
    for (; to > from && !c->too_large; to--)
        next = match_one(c, s[to - 1], next);
    return next;
}

/* How many bytes the first and the last of t[n], and so all of them, have in common. */
static uint32_t common(const struct text *t, uint32_t n)
{
    uint32_t k = 0;
    while (k < t[0].n && k < t[n - 1].n && t[0].s[k] == t[n - 1].s[k])
        k++;
    return k;
}

static uint32_t trie(struct compiler *c,
                     const struct text *t,
                     uint32_t n,
                     uint32_t at,
                     uint32_t next,
                     uint32_t level);

/* One text each, where a trie would be too deep: "a", "aa", "aaa" and so on for hundreds. */
static uint32_t side_by_side(
    struct compiler *c, const struct text *t, uint32_t n, uint32_t at, uint32_t next)
{
    uint32_t *to = mem_alloc(n * sizeof *to);
    for (uint32_t i = 0; i < n; i++)
        to[i] = chain(c, t[i].s, at, t[i].n, next);
    uint32_t s = c->too_large ? 0 : split(c, to, n);
    free(to);
    return s;
}

/* What follows byte `at`, in which t[n] part or one of them ends. */
static uint32_t branch(struct compiler *c,
                       const struct text *t,
                       uint32_t n,
                       uint32_t at,
                       uint32_t next,
                       uint32_t level)
{
    struct edge edges[256];
    uint32_t n_edges = 0, i = 0;
    while (i < n && t[i].n == at)
        i++;
    bool ends = i > 0;
    while (i < n && !c->too_large) {
        uint32_t to = i;
        uint8_t byte = t[i].s[at];
        while (to < n && t[to].s[at] == byte)
            to++;
        edges[n_edges++] = (struct edge){
            .lo = byte, .hi = byte, .target = trie(c, t + i, to - i, at + 1, next, level + 1)};
        i = to;
    }
    if (n_edges == 0 || c->too_large)
        return next;
    struct state s = {
        .op = OP_MATCH, .need = c->p->states[next].need, .first = c->n_edges, .n = n_edges};
    for (i = 0; i < n_edges; i++)
        add_edge(c, edges[i].lo, edges[i].hi, edges[i].target);
    uint32_t both[2] = {next, add_state(c, s)};
    return split(c, ends ? both : both + 1, ends ? 2 : 1);
}

/* The trie of t[n], sorted, all of which agree in their first `at` bytes. */
static uint32_t trie(struct compiler *c,
                     const struct text *t,
                     uint32_t n,
                     uint32_t at,
                     uint32_t next,
                     uint32_t level)
{
    enum { MAX_LEVEL = 200 };
    if (n == 1)
        return chain(c, t[0].s, at, t[0].n, next);
    if (level > MAX_LEVEL)
        return side_by_side(c, t, n, at, next);
    uint32_t to = common(t, n);
    return chain(c, t[0].s, at, to, branch(c, t, n, to, next, level));
}

static bool is_text(const struct compiler *c, grammar_node x)
{
    return c->b->nodes[x].kind == NODE_BYTES || c->b->nodes[x].kind == NODE_EMPTY;
}

/* Those of kids[n_kids] that are texts and that the vocabulary can write; NONE: there are none. */
static uint32_t compile_texts(struct compiler *c,
                              const uint32_t *kids,
                              uint32_t n_kids,
                              uint32_t next)
{
    struct text *t = mem_alloc(n_kids * sizeof *t);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_kids; i++) {
        const struct node *kid = &c->b->nodes[kids[i]];
        if (!is_text(c, kids[i]) || !productive(c, kids[i], next))
            continue;
        t[n] = (struct text){(const uint8_t *)"", 0}; /* NODE_EMPTY */
        if (kid->kind == NODE_BYTES)
            t[n] = (struct text){(const uint8_t *)c->b->text.data + kid->a, kid->b};
        n++;
    }
    qsort(t, n, sizeof *t, by_text);
    uint32_t s = n > 0 ? trie(c, t, n, 0, next, 0) : NONE;
    free(t);
    return s;
}

/* All texts as one, so that many of them do not take the place of what stands beside them. */
static uint32_t compile_alt(struct compiler *c, const struct node *n, uint32_t next)
{
    const uint32_t *kids = c->b->kids + n->a;
    const uint32_t n_kids = n->b;
    uint32_t n_to = 0, *to = mem_alloc((n_kids + 1) * sizeof *to);
    uint32_t texts = compile_texts(c, kids, n_kids, next);
    if (texts != NONE)
        to[n_to++] = texts;
    for (uint32_t i = 0; i < n_kids; i++)
        if (!is_text(c, kids[i]) && productive(c, kids[i], next))
            to[n_to++] = compile(c, kids[i], next);
    uint32_t s = c->too_large ? 0 : split(c, to, n_to);
    free(to);
    return s;
}

/* ---- repetitions ---- */

/* The body as a rule of its own, so that copies are calls. */
static uint32_t body_of(struct compiler *c, grammar_node x)
{
    if (c->b->nodes[x].kind == NODE_RULE)
        return c->body_of_rule[c->b->nodes[x].a];
    if (c->body_of_node[x] != NONE)
        return c->body_of_node[x];
    c->bodies = grow(c->bodies, &c->cap_bodies, c->n_bodies + 1, sizeof *c->bodies);
    c->bodies[c->n_bodies] = (struct body){.node = x, .start = NONE, .height = c->f->tail[x]};
    c->body_of_node[x] = c->n_bodies;
    return c->n_bodies++;
}

/* Is it one state? */
static bool is_small(const struct compiler *c, grammar_node x)
{
    uint8_t kind = c->b->nodes[x].kind;
    return kind == NODE_CLASS || (kind == NODE_BYTES && c->b->nodes[x].b == 1);
}

static uint32_t new_row(struct compiler *c, enum row_kind kind)
{
    return ++c->n_rows * 4 + kind;
}

/* One x before `next`, of several. */
static uint32_t copy(struct compiler *c, grammar_node x, uint32_t n_copies, uint32_t next)
{
    return is_small(c, x) || n_copies <= 2 ? compile(c, x, next) : call(c, body_of(c, x), next);
}

/* x* before next. */
static uint32_t compile_star(struct compiler *c, grammar_node x, uint32_t next)
{
    uint32_t to[2] = {next, next};
    uint32_t first = add_targets(c, to, 2);
    uint32_t loop = add_state(
        c, (struct state){.op = OP_SPLIT, .need = c->p->states[next].need, .first = first, .n = 2});
    if (!c->too_large && c->f->inner[x] <= GRAMMAR_MAX_DEPTH) {
        uint32_t body = compile(c, x, loop); /* moves targets */
        c->p->targets[first + 1] = body;
    }
    return loop;
}

/* x from min to max times; open: any number may follow, whose row it is. Where more are left, of
 * either kind, than the longest token has bytes, tokens cannot tell how many. */
static uint32_t compile_row(
    struct compiler *c, grammar_node x, uint32_t min, uint32_t max, uint32_t next, uint32_t open)
{
    uint32_t last = next, far_optional = NONE, far_must = NONE;
    uint32_t optionals = new_row(c, ROW_MORE), splits = new_row(c, ROW_MORE),
             musts = open ? open : new_row(c, ROW_EXACT);
    bool counts = is_small(c, x) || max > 2; /* a copy is one state */
    bool plain = !c->f->nullable[x];
    for (uint32_t i = 1; i <= max && !c->too_large; i++) {
        bool optional = i <= max - min;
        uint32_t one = copy(c, x, max, last), s = one;
        if (c->too_large)
            return 0;
        if (optional) {
            uint32_t to[2] = {next, one};
            s = split(c, to, 2);
        }
        if (counts && !c->too_large) {
            c->p->states[one].row = optional ? optionals : musts;
            if (optional)
                c->p->states[s].row = splits;
        }
        /* what is left of this kind: i of the optional ones, else those that must */
        uint32_t left = optional ? i : i - (max - min);
        uint32_t *far = optional ? &far_optional : &far_must;
        if (plain && left > c->longest_token && !c->too_large) {
            if (*far == NONE) {
                *far = s;
            } else {
                c->p->states[s].canon = *far;
                c->p->states[one].canon =
                    optional ? c->p->targets[c->p->states[*far].first + 1] : *far;
            }
        }
        last = s;
    }
    return last;
}

static uint32_t compile_repeat(struct compiler *c, const struct node *n, uint32_t next)
{
    uint32_t min = n->b, max = n->c;
    if (c->f->inner[n->a] > GRAMMAR_MAX_DEPTH && !(max == 1 && productive(c, n->a, next)))
        return next; /* min is 0, or the node had not been productive */
    if (c->f->nullable[n->a])
        min = 0; /* the same texts, and empty rounds need not be made */
    uint32_t open = 0;
    if (max == GRAMMAR_NO_LIMIT) {
        next = compile_star(c, n->a, next);
        max = min;
        open = new_row(c, ROW_FEWER);
        if (!c->too_large)
            c->p->states[next].row = open;
    }
    return compile_row(c, n->a, min, max, next, open);
}

/* ---- free text up to a trigger: the automaton of Aho and Corasick 1975 over all of them ---- */

struct scan_trie {
    uint32_t *child; /* [n][256], NONE */
    uint32_t *fail;
    uint32_t *hit; /* trigger that ends here, or NONE */
    uint32_t n;
};

static void scan_add(struct scan_trie *t, const uint8_t *s, uint32_t n, uint32_t trigger)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *child = &t->child[(size_t)at * 256 + s[i]];
        if (*child == NONE)
            *child = t->n++;
        at = *child;
    }
    if (t->hit[at] == NONE)
        t->hit[at] = trigger;
}

/* Make child[] total: where no text goes on, as from the longest proper suffix. */
static void scan_close(struct scan_trie *t)
{
    uint32_t *queue = mem_alloc(t->n * sizeof *queue);
    uint32_t head = 0, tail = 0;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t *child = &t->child[i];
        if (*child == NONE)
            *child = 0;
        else
            queue[tail++] = *child;
    }
    while (head < tail) {
        uint32_t at = queue[head++];
        if (t->hit[at] == NONE)
            t->hit[at] = t->hit[t->fail[at]];
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t *child = &t->child[(size_t)at * 256 + i];
            uint32_t other = t->child[(size_t)t->fail[at] * 256 + i];
            if (*child == NONE) {
                *child = other;
            } else {
                t->fail[*child] = other;
                queue[tail++] = *child;
            }
        }
    }
    free(queue);
}

/* States of the scan: one a node of the trie, numbered from `base`; behind a trigger, its tail. */
static void scan_emit(struct compiler *c,
                      const struct scan_trie *t,
                      const uint32_t *tails,
                      uint32_t base,
                      uint32_t next,
                      bool may_end)
{
    for (uint32_t i = 0; i < t->n && !c->too_large; i++) {
        uint32_t first = c->n_edges, n = 0;
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t to = t->child[(size_t)i * 256 + byte], target;
            target = t->hit[to] == NONE ? base + 2 * to : tails[t->hit[to]];
            if (target == NONE)
                continue; /* this trigger can have nothing behind it, so it may not come */
            struct edge *before = n > 0 ? &c->p->edges[c->n_edges - 1] : NULL;
            if (before && before->target == target && before->hi + 1u == byte) {
                before->hi = (uint8_t)byte;
            } else {
                add_edge(c, (uint8_t)byte, (uint8_t)byte, target);
                n++;
            }
        }
        struct state *s = &c->p->states[base + 2 * i];
        s[1].op = OP_MATCH;
        s[1].first = first;
        s[1].n = n;
        uint32_t to[2] = {base + 2 * i + 1, next};
        s[0].op = OP_SPLIT;
        s[0].first = add_targets(c, to, 2);
        s[0].n = may_end ? 2 : 1;
    }
}

static uint32_t compile_scan(struct compiler *c, const struct scan *scan, uint32_t next)
{
    const uint32_t *kids = c->b->kids + scan->first;
    uint32_t n_nodes = 1, *tails = mem_alloc((scan->n + 1) * sizeof *tails);
    uint16_t need = scan->may_end ? c->p->states[next].need : UINT16_MAX;
    for (uint32_t i = 0; i < scan->n; i++) {
        n_nodes += c->b->nodes[kids[i]].b;
        tails[i] =
            productive(c, kids[scan->n + i], next) ? compile(c, kids[scan->n + i], next) : NONE;
        if (tails[i] != NONE && !c->too_large && c->p->states[tails[i]].need < need)
            need = c->p->states[tails[i]].need;
    }
    if (n_nodes > 10000)
        c->too_large = true;
    if (c->too_large) {
        free(tails);
        return 0;
    }
    struct scan_trie t = {.child = mem_alloc((size_t)n_nodes * 256 * sizeof *t.child),
                          .fail = mem_zalloc(n_nodes, sizeof *t.fail),
                          .hit = mem_alloc(n_nodes * sizeof *t.hit),
                          .n = 1};
    memset(t.child, 0xff, (size_t)n_nodes * 256 * sizeof *t.child);
    memset(t.hit, 0xff, n_nodes * sizeof *t.hit);
    for (uint32_t i = 0; i < scan->n; i++)
        scan_add(&t,
                 (const uint8_t *)c->b->text.data + c->b->nodes[kids[i]].a,
                 c->b->nodes[kids[i]].b,
                 i);
    scan_close(&t);
    uint32_t base = c->p->n_states;
    for (uint32_t i = 0; i < 2 * t.n; i++)
        add_state(c, (struct state){.op = OP_SPLIT, .need = need});
    scan_emit(c, &t, tails, base, next, scan->may_end);
    free(tails);
    free(t.child);
    free(t.fail);
    free(t.hit);
    return base;
}

/* ---- all nodes ---- */

static uint32_t compile(struct compiler *c, grammar_node id, uint32_t next)
{
    const struct node *n = &c->b->nodes[id];
    if (c->too_large)
        return 0;
    switch ((enum node_kind)n->kind) {
    case NODE_NEVER:
    case NODE_EMPTY:
        return next;
    case NODE_BYTES:
        return chain(c, (const uint8_t *)c->b->text.data + n->a, 0, n->b, next);
    case NODE_CLASS:
        return match_class(c, &c->b->classes[n->a], next);
    case NODE_TOKEN:
        return match_token(c, (int32_t)n->a, next);
    case NODE_SEQ:
        for (uint32_t i = n->b; i > 0; i--)
            next = compile(c, c->b->kids[n->a + i - 1], next);
        return next;
    case NODE_ALT:
        return compile_alt(c, n, next);
    case NODE_REPEAT:
        return compile_repeat(c, n, next);
    case NODE_RULE:
        return call(c, c->body_of_rule[n->a], next);
    case NODE_SCAN:
        return compile_scan(c, &c->b->scans[n->a], next);
    }
    return next;
}

static void compile_all(struct compiler *c, grammar_node root)
{
    for (uint32_t i = 0; i < c->b->n_rules; i++) {
        if (!c->f->rule_used[i] || c->f->rule_height[i] > GRAMMAR_MAX_DEPTH)
            continue;
        c->bodies = grow(c->bodies, &c->cap_bodies, c->n_bodies + 1, sizeof *c->bodies);
        c->body_of_rule[i] = c->n_bodies;
        c->bodies[c->n_bodies++] = (struct body){
            .node = c->b->rules[i].body, .start = NONE, .height = c->f->rule_height[i]};
    }
    add_state(c, (struct state){.op = OP_RETURN});
    c->p->start = compile(c, root, 0);
    /* compiling a body may add bodies */
    for (uint32_t i = 0; i < c->n_bodies && !c->too_large; i++) {
        uint32_t start = compile(c, c->bodies[i].node, 0); /* moves bodies */
        c->bodies[i].start = start;
    }
    for (uint32_t i = 0; i < c->p->n_states && !c->too_large; i++)
        if (c->p->states[i].op == OP_CALL)
            c->p->states[i].first = c->bodies[c->p->states[i].first].start;
}

enum err program_compile(struct grammar_builder *b,
                         grammar_node root,
                         const struct grammar_vocab *v,
                         struct program *out,
                         struct err_info *e)
{
    struct facts f;
    *out = (struct program){0};
    enum err err = facts_find(b, root, v, &f, e);
    if (err) {
        facts_deinit(&f);
        return err;
    }
    struct compiler c = {.b = b,
                         .f = &f,
                         .p = out,
                         .longest_token = v->longest,
                         .body_of_rule = mem_alloc((b->n_rules + 1) * sizeof(uint32_t)),
                         .body_of_node = mem_alloc(b->n_nodes * sizeof(uint32_t))};
    memset(c.body_of_rule, 0xff, (b->n_rules + 1) * sizeof(uint32_t));
    memset(c.body_of_node, 0xff, b->n_nodes * sizeof(uint32_t));
    compile_all(&c, root);
    free(c.bodies);
    free(c.body_of_rule);
    free(c.body_of_node);
    facts_deinit(&f);
    if (c.too_large) {
        program_deinit(out);
        return builder_refuse(b, e, " is too large: over %u states of its automaton", MAX_STATES);
    }
    program_find_classes(out, c.n_edges);
    program_find_ways(out, v->has);
    out->n_bytes = out->n_states * sizeof *out->ways + c.cap_states * sizeof *out->states +
                   c.cap_edges * sizeof *out->edges + c.cap_targets * sizeof *out->targets;
    return OK;
}
