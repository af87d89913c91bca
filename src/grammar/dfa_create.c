/* Nodes to a finite automaton.
 *
 * Nodes become an NFA with empty moves (Thompson 1968), and those of its subsets that some text
 * leads to are the states of the DFA. Bytes that no move tells apart are one class. */
#include "base/mem.h"
#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NFA 60000u
#define MAX_SUBSETS 2000000u /* members of all subsets together */
#define MAX_INLINE 40u       /* rules within rules */

/* One move: a class of bytes, or without a byte; or both targets without a byte. */
struct nfa_state {
    uint32_t class_id; /* NONE: an empty move */
    uint32_t to, other;
};

struct nfa {
    const struct grammar_builder *b;
    struct nfa_state *states; /* the first one accepts */
    uint32_t n, cap;
    uint32_t depth;
    bool failed;
};

/* ---- nodes to an NFA, built backwards: each part for what comes after it ---- */

static uint32_t add(struct nfa *a, uint32_t class_id, uint32_t to, uint32_t other)
{
    if (a->n >= MAX_NFA) {
        a->failed = true;
        return 0;
    }
    a->states = grow(a->states, &a->cap, a->n + 1, sizeof *a->states);
    a->states[a->n] = (struct nfa_state){class_id, to, other};
    return a->n++;
}

/* A byte as a class: those from 2^31 on are single bytes. */
#define SINGLE 0x80000000u

static uint32_t build(struct nfa *a, grammar_node id, uint32_t next);

static uint32_t build_repeat(struct nfa *a, const struct node *n, uint32_t next)
{
    uint32_t end = next;
    if (n->c == GRAMMAR_NO_LIMIT) {
        uint32_t loop = add(a, NONE, next, NONE);
        uint32_t body = build(a, n->a, loop);
        if (!a->failed)
            a->states[loop].other = body;
        next = loop;
    } else {
        for (uint32_t i = n->b; i < n->c && !a->failed; i++)
            next = add(a, NONE, end, build(a, n->a, next));
    }
    for (uint32_t i = 0; i < n->b && !a->failed; i++)
        next = build(a, n->a, next);
    return next;
}

static uint32_t build_alt(struct nfa *a, const struct node *n, uint32_t next)
{
    uint32_t all = NONE;
    for (uint32_t i = 0; i < n->b && !a->failed; i++) {
        uint32_t one = build(a, a->b->kids[n->a + i], next);
        if (one != NONE)
            all = all == NONE ? one : add(a, NONE, one, all);
    }
    return all;
}

/* The state at which the node begins; NONE: no text. */
static uint32_t build(struct nfa *a, grammar_node id, uint32_t next)
{
    const struct node *n = &a->b->nodes[id];
    if (a->failed || next == NONE)
        return next;
    switch ((enum node_kind)n->kind) {
    case NODE_NEVER:
        return NONE;
    case NODE_EMPTY:
        return next;
    case NODE_BYTES:
        for (uint32_t i = n->b; i > 0 && !a->failed; i--)
            next = add(a, SINGLE | (uint8_t)a->b->text.data[n->a + i - 1], next, NONE);
        return next;
    case NODE_CLASS:
        return add(a, n->a, next, NONE);
    case NODE_SEQ:
        for (uint32_t i = n->b; i > 0 && !a->failed; i--)
            next = build(a, a->b->kids[n->a + i - 1], next);
        return next;
    case NODE_ALT:
        return build_alt(a, n, next);
    case NODE_REPEAT:
        return build_repeat(a, n, next);
    case NODE_RULE:
        if (a->depth >= MAX_INLINE || a->b->rules[n->a].body == NONE)
            break;
        a->depth++;
        next = build(a, a->b->rules[n->a].body, next);
        a->depth--;
        return next;
    case NODE_TOKEN:
    case NODE_SCAN:
        break;
    }
    a->failed = true;
    return 0;
}

/* ---- subsets ---- */

struct subsets {
    const struct nfa *nfa;
    uint32_t *members; /* of all subsets, ascending in each */
    uint32_t n_members, cap_members;
    struct subset {
        uint32_t first, n, hash, chain;
    } * list;
    uint32_t n, cap;
    uint32_t *buckets; /* [4096] */
    uint32_t *mark, stamp;
    uint32_t *todo, *found;
    uint64_t n_visits; /* of states, to see what is reached without a byte */
};

static bool moves_on(const struct nfa *a, const struct nfa_state *s, uint8_t byte)
{
    if (s->class_id == NONE)
        return false;
    if (s->class_id & SINGLE)
        return (uint8_t)s->class_id == byte;
    return class_has(&a->b->classes[s->class_id], byte);
}

/* Add what is reached from `state` without a byte to found[*n]. */
static void close_over(struct subsets *x, uint32_t state, uint32_t *n)
{
    uint32_t top = 0;
    if (state == NONE || x->mark[state] == x->stamp)
        return;
    x->mark[state] = x->stamp;
    x->todo[top++] = state;
    while (top > 0) {
        uint32_t at = x->todo[--top];
        x->n_visits++;
        const struct nfa_state *s = &x->nfa->states[at];
        uint32_t to[2] = {s->to, s->other};
        if (s->class_id != NONE || at == 0) {
            x->found[(*n)++] = at;
            continue;
        }
        for (int i = 0; i < 2; i++) {
            if (to[i] == NONE || x->mark[to[i]] == x->stamp)
                continue;
            x->mark[to[i]] = x->stamp;
            x->todo[top++] = to[i];
        }
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The number of the subset found[n]; NONE: it is empty, or there are too many. */
static uint32_t intern(struct subsets *x, uint32_t n, bool *failed)
{
    if (n == 0)
        return NONE;
    qsort(x->found, n, sizeof *x->found, by_number);
    uint32_t hash = n;
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ x->found[i]) * 0x9e3779b1u + (hash >> 15);
    uint32_t *bucket = &x->buckets[hash % 4096];
    for (uint32_t i = *bucket; i != NONE; i = x->list[i].chain)
        /* NOLINTNEXTLINE(clang-analyzer-core.*): what a bucket names is there */
        if (x->list[i].hash == hash && x->list[i].n == n &&
            memcmp(x->members + x->list[i].first, x->found, n * sizeof *x->found) == 0)
            return i;
    if (x->n >= DFA_MAX_STATES || x->n_members + n > MAX_SUBSETS) {
        *failed = true;
        return NONE;
    }
    x->members = grow(x->members, &x->cap_members, x->n_members + n, sizeof *x->members);
    memcpy(x->members + x->n_members, x->found, n * sizeof *x->found);
    x->list = grow(x->list, &x->cap, x->n + 1, sizeof *x->list);
    x->list[x->n] = (struct subset){x->n_members, n, hash, *bucket};
    x->n_members += n;
    *bucket = x->n;
    return x->n++;
}

/* Bytes that no class and no single byte of the NFA tells apart. */
static void find_classes(const struct nfa *a, struct dfa *d, uint8_t byte_of[256])
{
    uint16_t id[256] = {0};
    uint32_t n = 1;
    bool *seen = mem_zalloc(a->b->n_classes + 1, sizeof *seen); /* copies have the same class */
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t split[256];
        const struct nfa_state *s = &a->states[i];
        if (s->class_id == NONE || n == 256)
            continue;
        if (s->class_id & SINGLE) { /* cheap: one byte leaves its class */
            uint8_t byte = (uint8_t)s->class_id;
            bool alone = true;
            for (uint32_t k = 0; k < 256 && alone; k++)
                alone = k == byte || id[k] != id[byte];
            if (!alone)
                id[byte] = (uint16_t)n++;
            continue;
        }
        if (seen[s->class_id])
            continue;
        seen[s->class_id] = true;
        memset(split, 0xff, sizeof split);
        const struct byte_class *c = &a->b->classes[s->class_id];
        bool out[256] = {false};
        for (uint32_t k = 0; k < 256; k++)
            out[id[k]] |= !class_has(c, k);
        for (uint32_t k = 0; k < 256; k++) {
            if (!class_has(c, k) || !out[id[k]])
                continue;
            if (split[id[k]] == NONE)
                split[id[k]] = n++;
            id[k] = (uint16_t)split[id[k]];
            if (n >= 256)
                break;
        }
    }
    free(seen);
    if (n >= 256) /* every byte for itself */
        for (uint32_t k = 0; k < 256; k++)
            id[k] = (uint16_t)k;
    d->n_classes = 0;
    uint16_t number[512];
    memset(number, 0xff, sizeof number);
    for (uint32_t k = 0; k < 256; k++) {
        if (number[id[k]] == 0xffff) {
            byte_of[d->n_classes] = (uint8_t)k;
            number[id[k]] = (uint16_t)d->n_classes++;
        }
        d->class_of[k] = (uint8_t)number[id[k]];
    }
}

static bool determinize(struct grammar_builder *b,
                        const struct nfa *a,
                        uint32_t start,
                        struct dfa *d)
{
    uint8_t byte_of[256];
    struct subsets x = {.nfa = a,
                        .buckets = mem_alloc(4096 * sizeof(uint32_t)),
                        .mark = mem_zalloc(a->n, sizeof(uint32_t)),
                        .todo = mem_alloc(2 * (size_t)a->n * sizeof(uint32_t)),
                        .found = mem_alloc((size_t)a->n * sizeof(uint32_t))};
    uint32_t cap_next = 0, cap_accepts = 0, n = 0;
    bool failed = false;
    memset(x.buckets, 0xff, 4096 * sizeof *x.buckets);
    find_classes(a, d, byte_of);
    x.stamp = 1;
    close_over(&x, start, &n);
    d->start = intern(&x, n, &failed);
    for (uint32_t i = 0; i < x.n && !failed; i++) {
        d->next = grow(d->next, &cap_next, (i + 1) * d->n_classes, sizeof *d->next);
        d->accepts = grow(d->accepts, &cap_accepts, i + 1, sizeof *d->accepts);
        d->accepts[i] = x.members[x.list[i].first] == 0; /* state 0 accepts */
        b->dfa_work += (uint64_t)x.list[i].n * d->n_classes;
        failed |= builder_over(b, b->dfa_work, DFA_MAX_WORK);
        for (uint32_t c = 0; c < d->n_classes && !failed; c++) {
            n = 0;
            x.stamp++;
            for (uint32_t k = 0; k < x.list[i].n; k++) {
                const struct nfa_state *s = &a->states[x.members[x.list[i].first + k]];
                if (moves_on(a, s, byte_of[c]))
                    close_over(&x, s->to, &n);
            }
            uint32_t to = intern(&x, n, &failed);
            d->next[i * d->n_classes + c] = to;
            failed |= builder_over(b, b->dfa_work + x.n_visits, DFA_MAX_WORK);
        }
    }
    b->dfa_work += x.n_visits;
    d->n = x.n;
    free(x.members);
    free(x.list);
    free(x.buckets);
    free(x.mark);
    free(x.todo);
    free(x.found);
    return !failed;
}

struct dfa *dfa_create(struct grammar_builder *b, grammar_node node)
{
    struct nfa a = {.b = b};
    struct dfa *d = mem_zalloc(1, sizeof *d);
    d->start = NONE;
    a.failed = builder_over(b, b->dfa_work, DFA_MAX_WORK);
    if (!builder_failed(b) && !a.failed) {
        add(&a, NONE, NONE, NONE); /* accepts */
        uint32_t start = build(&a, node, 0);
        b->dfa_work += 4 * (uint64_t)a.n;
        if (!a.failed && start != NONE)
            a.failed = !determinize(b, &a, start, d);
    }
    free(a.states);
    if (!a.failed)
        return d;
    dfa_destroy(d);
    return NULL;
}
