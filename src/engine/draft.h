/* Drafts: what may come next, guessed from what the sequence says already.
 *
 * Where the last tokens stood before, those that followed may follow again:
 *
 *      ... the quick brown fox ... the quick brown ?      a draft: fox ...
 *
 * A step computes the newest token and the draft behind it, as it would a prompt, which reads the
 * weights once. Then tokens are chosen row by row, each as it is without a draft, as long as they
 * are what was drafted: the same request gets the same tokens, some of them sooner.
 *
 * Who drafts in vain pauses, the longer the more often. Thread: the owner's until the request is
 * submitted, then the engine's. Allocates: only in draft_create. */
#ifndef WEIR_ENGINE_DRAFT_H
#define WEIR_ENGINE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

enum { DRAFT_GRAM = 3 };

struct draft {
    uint32_t *after;   /* [mask + 1] by `gram` tokens: where what followed them last begins */
    uint32_t mask;     /* a power of two less one */
    uint32_t gram;     /* tokens that have to have stood there before */
    uint32_t n_seen;   /* tokens whose grams are in there */
    uint32_t n_next;   /* tokens that the next draft may have */
    uint32_t n_missed; /* drafts without a right token since the last that had one */
    uint32_t n_pause;  /* drafts yet to be left out */
};

/* For a sequence of up to n_max tokens; gram: usually DRAFT_GRAM. False: no memory. */
bool draft_create(struct draft *d, uint32_t n_max, uint32_t gram);
void draft_destroy(struct draft *d);

/* Write a draft of at most `most` tokens behind tokens[0 .. n - 1]; how many it has. */
uint32_t draft_make(struct draft *d, int32_t *tokens, uint32_t n, uint32_t most);

/* Of a draft of n_drafted tokens (not 0) so many were right. */
void draft_learn(struct draft *d, uint32_t n_drafted, uint32_t n_right);

#endif
