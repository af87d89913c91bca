/* Who owns which block of KV memory. The bytes live in the backend; here are ids and states.
 *
 *      total = free + in use + cached
 *
 *      free    on the free list (a stack; block 0 is lent first)
 *      in use  referenced by at least one block table
 *      cached  referenced by none, content known, may be taken back  (none until prefixes are kept)
 *
 * A block holds `block_tokens` consecutive positions of one sequence, in every layer.
 * Thread: the engine's. Allocates: only in the *_create functions. */
#ifndef WEIR_KV_KV_H
#define WEIR_KV_KV_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_pool;

/* One sequence's blocks, in order. Room for max_blocks is taken at creation. */
struct kv_table {
    uint32_t *blocks; /* [n_blocks] */
    uint32_t n_blocks;
    uint32_t max_blocks;
};

struct kv_stats {
    uint32_t total, free, in_use, cached;
    uint32_t peak_in_use;
    uint64_t acquired, released; /* references taken and given back, ever */
};

enum err kv_pool_create(uint32_t n_blocks,
                        uint32_t block_tokens,
                        struct kv_pool **out,
                        struct err_info *e) WEIR_MUST_USE;
void kv_pool_destroy(struct kv_pool *p);

uint32_t kv_block_tokens(const struct kv_pool *p);
uint32_t kv_blocks_for(const struct kv_pool *p, uint32_t n_tokens);
struct kv_stats kv_pool_stats(const struct kv_pool *p);

enum err kv_table_init(struct kv_table *t, uint32_t max_blocks, struct err_info *e) WEIR_MUST_USE;
void kv_table_deinit(struct kv_table *t); /* must hold no blocks */

/* Make room for positions 0..n_tokens-1: all missing blocks or none. Idempotent.
 * Errors: ERR_QUEUE_FULL "exhausted: need n blocks but only m free"; ERR_TOO_LONG "would need n
 * blocks, exceeds max m". */
enum err kv_table_grow(struct kv_pool *p, struct kv_table *t, uint32_t n_tokens, struct err_info *e)
    WEIR_MUST_USE;

/* Give back every block of the table. One that is not in use is refused and logged, and kv_check
 * names it from then on. */
void kv_table_release(struct kv_pool *p, struct kv_table *t);

/* Walk everything: the sum above, each free block once on the list, each block's references equal
 * to the tables (of the n given: all there are) that hold it. Errors: ERR_INTERNAL naming the
 * block that is wrong. Not for use in a step: O(total). */
enum err kv_check(const struct kv_pool *p,
                  const struct kv_table *const *tables,
                  uint32_t n,
                  struct err_info *e) WEIR_MUST_USE;

#endif
