#include "tokenizer/merge.h"

#include <stdlib.h>
#include <string.h>

/* Up to this many symbols, scanning all pairs for the best beats keeping a heap. */
#define SHORT_WORD 24
#define NIL UINT32_MAX

bool merger_room(struct merger *m, size_t n)
{
    if (n <= m->cap_syms)
        return true;
    size_t cap = n < 256 ? 256 : n + n / 4;
    struct merge_symbol *syms = realloc(m->syms, cap * sizeof *syms);
    if (!syms)
        return false;
    m->syms = syms;
    m->cap_syms = cap;
    return true;
}

void merger_deinit(struct merger *m)
{
    free(m->syms);
    free(m->heap);
    *m = (struct merger){0};
}

/* pairs[i] is what syms[i] and syms[i + 1] would give; both arrays stay dense. */
static size_t run_short(
    struct merge_symbol *syms, size_t n, merge_fn fn, const void *ctx, const char *text)
{
    struct merge_result pairs[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        pairs[i] = fn(ctx, text, &syms[i], &syms[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pairs[i].order < pairs[best].order)
                best = i;
        if (pairs[best].order == MERGE_NEVER)
            break;
        syms[best].id = pairs[best].id;
        syms[best].len += syms[best + 1].len;
        n--;
        memmove(&syms[best + 1], &syms[best + 2], (n - best - 1) * sizeof *syms);
        if (best + 1 < n) {
            memmove(&pairs[best + 1], &pairs[best + 2], (n - best - 2) * sizeof *pairs);
            pairs[best] = fn(ctx, text, &syms[best], &syms[best + 1]);
        }
        if (best > 0)
            pairs[best - 1] = fn(ctx, text, &syms[best - 1], &syms[best]);
    }
    return n;
}

/* ---- long words: a heap of candidates over a doubly linked list ---- */

static bool goes_first(const struct merge_candidate *a, const struct merge_candidate *b)
{
    return a->order != b->order ? a->order < b->order : a->left < b->left;
}

static void heap_push(struct merge_candidate *heap, size_t *n, struct merge_candidate c)
{
    size_t i = (*n)++;
    while (i > 0 && goes_first(&c, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = c;
}

static struct merge_candidate heap_pop(struct merge_candidate *heap, size_t *n)
{
    struct merge_candidate top = heap[0], last = heap[--(*n)];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n)
            break;
        if (child + 1 < *n && goes_first(&heap[child + 1], &heap[child]))
            child++;
        if (!goes_first(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

struct long_run {
    struct merger *m;
    size_t n_heap;
    merge_fn fn;
    const void *ctx;
    const char *text;
};

static void propose(struct long_run *r, uint32_t left)
{
    const struct merge_symbol *syms = r->m->syms;
    if (left == NIL || syms[left].next == NIL)
        return;
    const struct merge_symbol *l = &syms[left], *next = &syms[l->next];
    struct merge_result got = r->fn(r->ctx, r->text, l, next);
    if (got.order != MERGE_NEVER)
        heap_push(r->m->heap,
                  &r->n_heap,
                  (struct merge_candidate){got.order, left, l->len + next->len, got.id});
}

/* A merged-away symbol has len 0, so a candidate's length tells whether it still holds: symbols
 * only grow, and a pair of the same total length at the same start is the same pair. */
static void apply(struct long_run *r, struct merge_candidate c)
{
    struct merge_symbol *syms = r->m->syms, *l = &syms[c.left];
    if (l->len == 0 || l->next == NIL || l->len + syms[l->next].len != c.len)
        return;
    struct merge_symbol *gone = &syms[l->next];
    l->id = c.id;
    l->len = c.len;
    l->next = gone->next;
    gone->len = 0;
    if (l->next != NIL)
        syms[l->next].prev = c.left;
    propose(r, l->prev);
    propose(r, c.left);
}

static bool run_long(struct long_run *r, size_t n, size_t *n_left)
{
    struct merger *m = r->m;
    /* n - 1 candidates to begin with; each merge takes one and adds at most two */
    if (2 * n > m->cap_heap) {
        free(m->heap);
        m->heap = malloc(2 * n * sizeof *m->heap);
        m->cap_heap = m->heap ? 2 * n : 0;
        if (!m->heap)
            return false;
    }
    for (size_t i = 0; i < n; i++) {
        m->syms[i].prev = i > 0 ? (uint32_t)i - 1 : NIL;
        m->syms[i].next = i + 1 < n ? (uint32_t)i + 1 : NIL;
    }
    for (size_t i = 0; i + 1 < n; i++)
        propose(r, (uint32_t)i);
    while (r->n_heap > 0)
        apply(r, heap_pop(m->heap, &r->n_heap));
    size_t out = 0;
    for (size_t i = 0; i < n; i++)
        if (m->syms[i].len > 0)
            m->syms[out++] = m->syms[i];
    *n_left = out;
    return true;
}

bool merger_run(
    struct merger *m, size_t n, merge_fn fn, const void *ctx, const char *text, size_t *n_left)
{
    if (n <= SHORT_WORD) {
        *n_left = run_short(m->syms, n, fn, ctx, text);
        return true;
    }
    struct long_run r = {m, 0, fn, ctx, text};
    return run_long(&r, n, n_left);
}
