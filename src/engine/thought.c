#include "engine/thought.h"

#include <string.h>

void thought_begin(struct thought *t, const struct request_thought *limit)
{
    *t = (struct thought){.limit = *limit, .open = limit->on && limit->open};
}

token_id thought_next(const struct thought *t)
{
    if (!t->open || t->n < t->limit.max_tokens)
        return TOKEN_NONE;
    return t->limit.close[t->n_put];
}

/* Is the mark in the tail, and not only in what was there before the last n bytes? */
static bool seen(const struct thought *t, const char *mark, size_t n)
{
    size_t n_mark = strlen(mark), reach = n + n_mark - 1;
    size_t from = t->n_tail > reach ? t->n_tail - reach : 0;
    return n_mark > 0 && n > 0 && memmem(t->tail + from, t->n_tail - from, mark, n_mark);
}

static void keep(struct thought *t, const char *bytes, size_t *n)
{
    if (*n > THOUGHT_TAIL / 2) { /* a mark is shorter than half of it (engine.h) */
        bytes += *n - THOUGHT_TAIL / 2;
        *n = THOUGHT_TAIL / 2;
    }
    size_t over = t->n_tail + *n > THOUGHT_TAIL ? t->n_tail + *n - THOUGHT_TAIL : 0;
    memmove(t->tail, t->tail + over, t->n_tail - over);
    t->n_tail -= (uint32_t)over;
    memcpy(t->tail + t->n_tail, bytes, *n);
    t->n_tail += (uint32_t)*n;
}

/* Nothing but white space has come before; is it the mark, may it become that, or is it neither? */
static bool begins(struct thought *t)
{
    size_t n_mark = strlen(t->limit.begin), space = 0;
    while (space < t->n_tail && strchr(" \t\r\n", t->tail[space]) && t->tail[space])
        space++;
    t->n_tail -= (uint32_t)space;
    memmove(t->tail, t->tail + space, t->n_tail);
    size_t n = t->n_tail < n_mark ? t->n_tail : n_mark;
    t->begun = memcmp(t->tail, t->limit.begin, n) != 0;
    return !t->begun && n == n_mark;
}

static bool ends(const struct thought *t, size_t n)
{
    return seen(t, t->limit.end, n) || seen(t, t->limit.call[0], n) || seen(t, t->limit.call[1], n);
}

void thought_accept(struct thought *t, token_id id, const char *bytes, size_t n)
{
    if (!t->limit.on)
        return;
    bool was_put = id == thought_next(t);
    keep(t, bytes, &n);
    if (!t->open) {
        t->open = !t->limit.first ? seen(t, t->limit.begin, n) : !t->begun && begins(t);
        t->n = t->n_put = 0;
        return;
    }
    t->n++;
    t->n_put = was_put ? t->n_put + 1 : 0; /* a mark that something came into begins anew */
    if (ends(t, n) || t->n_put == t->limit.n_close) {
        t->open = false;
        t->begun = true;
        t->n_tail = 0;
    }
}
