/* Who holds which block, or pane, of KV memory. The bytes live in the backend; here are ids and
 * states.
 *
 *      total = free + in use + cached
 *
 *      free    on the free list (a stack; block 0 is lent first)
 *      in use  referenced by at least one block table
 *      cached  referenced by none, content known; in the order of last use, oldest taken back first
 *
 * Inside kv/ alone: others use kv.h. Thread: the engine's. Allocates: only in kv_pool_create. */
#ifndef WEIR_KV_POOL_H
#define WEIR_KV_POOL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_NO_BLOCK UINT32_MAX

struct kv_pool;

enum kv_state { KV_FREE, KV_IN_USE, KV_CACHED };

struct kv_pool_stats {
    uint32_t total, free, in_use, cached;
    uint32_t peak_in_use;
    uint64_t acquired, released; /* references taken and given back, ever */
};

/* what: one of them, in messages; static. */
enum err kv_pool_create(uint32_t n_blocks,
                        const char *what,
                        struct kv_pool **out,
                        struct err_info *e) WEIR_MUST_USE;
void kv_pool_destroy(struct kv_pool *p);
struct kv_pool_stats kv_pool_stats(const struct kv_pool *p);

enum kv_state kv_pool_state(const struct kv_pool *p, uint32_t id);
uint32_t kv_pool_refs(const struct kv_pool *p, uint32_t id);

/* A free block with one reference, or KV_NO_BLOCK. */
uint32_t kv_pool_acquire(struct kv_pool *p);
/* One more reference to a block that is in use or cached. */
void kv_pool_ref(struct kv_pool *p, uint32_t id);
/* One less; after the last the block is free, or, to `keep` its content, cached as the newest. A
 * block that is not in use is refused and logged, and kv_pool_check names it from then on. */
void kv_pool_unref(struct kv_pool *p, uint32_t id, bool keep);

/* As if it had just been used: a cached block becomes the newest. */
void kv_pool_touch(struct kv_pool *p, uint32_t id);
/* The cached block that was last used longest ago, or KV_NO_BLOCK. */
uint32_t kv_pool_oldest(const struct kv_pool *p);
/* The next newer cached block, or KV_NO_BLOCK. */
uint32_t kv_pool_newer(const struct kv_pool *p, uint32_t id);
/* A cached block becomes free. */
void kv_pool_drop(struct kv_pool *p, uint32_t id);

/* Walk everything: the sum above, each free block once on the list, each cached one once in the
 * order, and held[id] references to each. Errors: ERR_INTERNAL naming the block that is wrong. */
enum err kv_pool_check(const struct kv_pool *p,
                       const uint32_t *held,
                       struct err_info *e) WEIR_MUST_USE;

#endif
