/* Which blocks a tier has, in the order of their last use: a hash table with a list through it.
 *
 *      buckets   | 2 | - | 0 | ...            by hash; entries of a bucket are chained
 *      entries   | 0 | 1 | 2 | 3 |            a fixed number; free ones are chained too
 *      list      oldest -> ... -> newest
 *                cold     | warm
 *
 * Cold ones are those that may go before all others, in the order in which they became so; what is
 * touched is warm again.
 *
 * Room is made in advance (init, copy), so adding cannot fail and allocates nothing. Thread: none
 * of its own; the tier changes it under its mutex. Private to the tiers. */
#ifndef WEIR_KV_TIER_INDEX_H
#define WEIR_KV_TIER_INDEX_H

#include "kv/key.h"

struct kv_tier_entry {
    struct kv_key key;
    uint64_t model; /* as in kv_file */
    uint64_t value; /* the user's: bytes of the file, or a slot */
    uint32_t older, newer;
    uint32_t next; /* in the bucket, or of the free ones */
};

struct kv_tier_index {
    struct kv_tier_entry *entries; /* [cap] */
    uint32_t *buckets;             /* [mask + 1] */
    uint32_t mask;
    uint32_t cap, n;
    uint32_t free;
    uint32_t oldest, newest;
    uint32_t cold; /* the newest that is */
    uint64_t seed; /* names come from a folder: nobody shall choose ones that collide */
};

/* Errors: ERR_NOMEM, and nothing to deinit. */
enum err kv_tier_index_init(struct kv_tier_index *ix,
                            uint32_t cap,
                            struct err_info *e) WEIR_MUST_USE;
void kv_tier_index_deinit(struct kv_tier_index *ix);

/* The same entries in the same order, with more room; reads only `from`. */
enum err kv_tier_index_copy(const struct kv_tier_index *from,
                            uint32_t cap,
                            struct kv_tier_index *out,
                            struct err_info *e) WEIR_MUST_USE;

/* NULL: not there. An entry stays where it is until it is removed. */
struct kv_tier_entry *kv_tier_index_find(const struct kv_tier_index *ix,
                                         uint64_t model,
                                         const struct kv_key *key);

/* Add as the newest, or make newest with a new value what is there. Needs n < cap. */
void kv_tier_index_put(struct kv_tier_index *ix,
                       uint64_t model,
                       const struct kv_key *key,
                       uint64_t value);

void kv_tier_index_touch(struct kv_tier_index *ix, struct kv_tier_entry *entry); /* now newest */
void kv_tier_index_cool(struct kv_tier_index *ix, struct kv_tier_entry *entry);
/* Now just older than `newer`, another entry. */
void kv_tier_index_follow(struct kv_tier_index *ix,
                          struct kv_tier_entry *entry,
                          const struct kv_tier_entry *newer);
void kv_tier_index_remove(struct kv_tier_index *ix, struct kv_tier_entry *entry);
/* NULL: there is none. */
struct kv_tier_entry *kv_tier_index_oldest(const struct kv_tier_index *ix);
struct kv_tier_entry *kv_tier_index_newer(const struct kv_tier_index *ix,
                                          const struct kv_tier_entry *entry);

#endif
