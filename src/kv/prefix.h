/* The prefix index: a tree of published blocks.
 *
 *      root --(space, tokens 0..15)--> block 7 --(tokens 16..31)--> block 2
 *                                          \---(tokens 16..24)--> block 9      partly filled
 *
 * A block's path from the root is the whole text before it, so finding a block by walking down
 * compares every token, and the positions it holds can be reused as they are. No two children of
 * one block have the same tokens. Blocks that are partly filled have no children.
 *
 * The children of a block are a crit-bit tree over their tokens: a walk reads a few bits on the way
 * and compares the tokens of one child at its end, the one with the longest common beginning there
 * is. Its depth is bounded by the bits of a block's tokens, whatever the tokens are.
 * Source: Bernstein, "Crit-bit trees", 2004; Morrison 1968.
 *
 * Inside kv/ alone. Thread: the engine's. Allocates: only in kv_prefix_create. */
#ifndef WEIR_KV_PREFIX_H
#define WEIR_KV_PREFIX_H

#include "base/err.h"
#include "kv/key.h"

#include <stdint.h>

#define KV_ROOT UINT32_MAX /* the parent of first blocks */
#define KV_MAX_BLOCK_TOKENS 1024

struct kv_prefix;

enum err kv_prefix_create(uint32_t n_blocks,
                          uint32_t block_tokens,
                          struct kv_prefix **out,
                          struct err_info *e) WEIR_MUST_USE;
void kv_prefix_destroy(struct kv_prefix *x);

/* The child of `parent` that begins with the most of tokens[0..n), n <= block_tokens: how many it
 * shares, and which it is. 0 if none shares any. `space` matters below KV_ROOT alone. */
uint32_t kv_prefix_best(const struct kv_prefix *x,
                        uint32_t parent,
                        const struct kv_key *space,
                        const int32_t *tokens,
                        uint32_t n,
                        uint32_t *block);

/* Put a block that is not in the index below `parent`, with 1..block_tokens tokens (>= 0), which no
 * child of `parent` has all of. */
void kv_prefix_insert(struct kv_prefix *x,
                      uint32_t parent,
                      const struct kv_key *space,
                      uint32_t block,
                      const int32_t *tokens,
                      uint32_t n);
/* Take out a block without children. */
void kv_prefix_remove(struct kv_prefix *x, uint32_t block);

uint32_t kv_prefix_n_tokens(const struct kv_prefix *x, uint32_t block); /* 0: not in the index */
uint32_t kv_prefix_parent(const struct kv_prefix *x, uint32_t block);
uint32_t kv_prefix_n_children(const struct kv_prefix *x, uint32_t block);
const int32_t *kv_prefix_tokens(const struct kv_prefix *x, uint32_t block);
/* Of a block below KV_ROOT. */
const struct kv_key *kv_prefix_space(const struct kv_prefix *x, uint32_t block);
uint32_t kv_prefix_n_blocks(const struct kv_prefix *x); /* in the index */

/* Walk everything: every block in the index is found below its parent by its own tokens, every
 * parent is in the index, and the counts are right. */
enum err kv_prefix_check(const struct kv_prefix *x, struct err_info *e) WEIR_MUST_USE;

#endif
