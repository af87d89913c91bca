#include "engine/draft.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_DRAFT = 3, LONGEST_DRAFT = 8, LONGEST_PAUSE = 64 };

/* Entries beyond so many would only say where something stood long ago. */
#define MAX_ENTRIES (1u << 16)

bool draft_create(struct draft *d, uint32_t n_max, uint32_t gram)
{
    uint32_t n = 64;
    while (n < n_max && n < MAX_ENTRIES)
        n *= 2;
    *d = (struct draft){.mask = n - 1, .gram = gram, .n_next = FIRST_DRAFT};
    d->after = calloc(n, sizeof *d->after);
    return d->after;
}

void draft_destroy(struct draft *d)
{
    free(d->after);
    d->after = NULL;
}

/* Of so many tokens. Two grams that share a place cost a draft at most. */
static uint32_t place_of(const struct draft *d, const int32_t *tokens)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < d->gram; i++) {
        h = (h ^ (uint32_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return (uint32_t)h & d->mask;
}

/* Grams that something follows already. */
static void note_grams(struct draft *d, const int32_t *tokens, uint32_t n)
{
    uint32_t at = d->n_seen > d->gram ? d->n_seen : d->gram;
    for (; at < n; at++)
        d->after[place_of(d, tokens + at - d->gram)] = at;
    d->n_seen = n > d->n_seen ? n : d->n_seen;
}

uint32_t draft_make(struct draft *d, int32_t *tokens, uint32_t n, uint32_t most)
{
    note_grams(d, tokens, n);
    if (n < d->gram || most == 0)
        return 0;
    if (d->n_pause > 0) {
        d->n_pause--;
        return 0;
    }
    const int32_t *last = tokens + n - d->gram;
    const uint32_t from = d->after[place_of(d, last)];
    if (from == 0 || memcmp(tokens + from - d->gram, last, d->gram * sizeof *last) != 0)
        return 0;
    most = most < d->n_next ? most : d->n_next;
    for (uint32_t i = 0; i < most; i++) /* one that goes on behind the end repeats itself */
        tokens[n + i] = tokens[from + i];
    return most;
}

void draft_learn(struct draft *d, uint32_t n_drafted, uint32_t n_right)
{
    if (n_right == 0) {
        d->n_missed++;
        d->n_pause = d->n_missed < 6 ? (1u << d->n_missed) - 1 : LONGEST_PAUSE;
        d->n_next = FIRST_DRAFT;
        return;
    }
    d->n_missed = 0;
    if (n_right < n_drafted)
        d->n_next = n_right + 1;
    else if (n_drafted == d->n_next)
        d->n_next = 2 * d->n_next < LONGEST_DRAFT ? 2 * d->n_next : LONGEST_DRAFT;
}
