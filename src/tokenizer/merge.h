/* Greedy merging of neighbouring symbols, shared by BPE (lowest rank first) and SPM (highest score
 * first); of equals the leftmost. O(n log n) in the symbols of one word.
 *
 * The symbols of a word lie side by side in its text:
 *
 *     text   l o w e r            text   l o w e r
 *     syms  [l][o][w][e][r]  -->  syms  [lo ][w][er ]     after (l, o) and (e, r)
 *
 * Thread: a struct merger is one caller's scratch memory. */
#ifndef WEIR_TOKENIZER_MERGE_H
#define WEIR_TOKENIZER_MERGE_H

#include "tokenizer/tokenizer.h"

struct merge_symbol {
    token_id id; /* TOKEN_NONE: no token has this text */
    uint32_t start, len;
    uint32_t prev, next; /* while merging a long word */
};

/* What joining two neighbours gives. */
struct merge_result {
    uint32_t order; /* lower goes first; MERGE_NEVER: they do not join */
    token_id id;
};
#define MERGE_NEVER UINT32_MAX

/* Which merge, if any, the vocabulary in ctx has for l followed by r in text. */
typedef struct merge_result (*merge_fn)(const void *ctx,
                                        const char *text,
                                        const struct merge_symbol *l,
                                        const struct merge_symbol *r);

struct merge_candidate {
    uint32_t order;
    uint32_t left; /* index of the left symbol */
    uint32_t len;  /* bytes of both: another length now means that one of them has changed */
    token_id id;
};

/* Zero-initialise. The caller fills syms[0..n) (id, start, len) after merger_room. */
struct merger {
    struct merge_symbol *syms;
    struct merge_candidate *heap;
    size_t cap_syms, cap_heap;
};

/* Room for n symbols; false when memory is out. */
bool merger_room(struct merger *m, size_t n);
void merger_deinit(struct merger *m);

/* Merge syms[0..n) until no pair joins; *n_left symbols remain, in order, in syms. False when
 * memory is out. */
bool merger_run(
    struct merger *m, size_t n, merge_fn fn, const void *ctx, const char *text, size_t *n_left);

#endif
