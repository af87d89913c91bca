/* A set of strings, walked byte by byte along a text: which of them does the text begin with?
 *
 * The strings lie sorted, so those with a common beginning lie together, and each byte of the text
 * narrows the range that is left. As in a trie, the work is the length walked, times the logarithm
 * of what is left. Of equal strings the last one added counts: however many a file has, each is
 * walked past once. Longer strings than PREFIX_MAX_BYTES are left out: a walk begins at each byte
 * of a text, so a file with one that long could make it quadratic.
 *
 *     struct prefix_walk w = {0};
 *     while (n-- > 0 && prefix_step(&set, &w, *text++))
 *         if (prefix_ends(&set, &w))
 *             ...         entries[w.lo] has w.depth bytes: those of the text so far
 *
 * Thread: immutable after prefix_sort. */
#ifndef WEIR_TOKENIZER_PREFIX_H
#define WEIR_TOKENIZER_PREFIX_H

#include "tokenizer/vocab.h"

/* No vocabulary comes near: the longest are runs of spaces and names of a few dozen bytes. */
#define PREFIX_MAX_BYTES 255

struct prefix_set {
    struct prefix_entry {
        const char *text; /* not owned */
        uint32_t len;     /* > 0 */
        token_id id;
    } * entries;
    uint32_t n;
    uint32_t n_too_long; /* left out */
    uint32_t first[257]; /* entries that begin with byte b: first[b] .. first[b + 1] */
};

/* Room for n entries; false when memory is out. Then add up to n, and sort. */
bool prefix_init(struct prefix_set *s, uint32_t n);
void prefix_add(struct prefix_set *s, const struct vocab_token *t, token_id id);
void prefix_sort(struct prefix_set *s);
void prefix_deinit(struct prefix_set *s);

/* Entries lo..hi begin with the depth bytes walked. Zero-initialise. */
struct prefix_walk {
    uint32_t lo, hi;
    size_t depth;
};

/* Walk one byte further; false when no entry goes on so. */
bool prefix_step(const struct prefix_set *s, struct prefix_walk *w, unsigned char byte);

/* Is there a string as long as the walk? Then it is entries[w->lo]. */
static inline bool prefix_ends(const struct prefix_set *s, const struct prefix_walk *w)
{
    return w->lo < w->hi && s->entries[w->lo].len == w->depth;
}

#endif
