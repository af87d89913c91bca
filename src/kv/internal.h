/* The state behind struct kv, shared by kv.c (tables and sharing), fetch.c (the tier) and check.c.
 */
#ifndef WEIR_KV_INTERNAL_H
#define WEIR_KV_INTERNAL_H

#include "kv/kv.h"
#include "kv/pool.h"
#include "kv/prefix.h"

struct kv {
    struct kv_config cfg;
    struct kv_pool *pool;
    struct kv_prefix *prefix;
    struct kv_hasher *hasher;  /* with a tier */
    struct kv_key *keys;       /* [n_blocks] with a tier: of full published blocks */
    struct kv_table *fetching; /* tables that wait for the tier */
    uint64_t next_serial;
    double compute_us; /* a token */
    uint64_t now_us;
    uint32_t *scratch; /* [2 * n_blocks] of kv_check */
    struct kv_counts counts;
};

/* The block before index i of a table, or KV_ROOT. */
uint32_t kv_parent_of(const struct kv_table *t, uint32_t i);

/* Publish the first n tokens of the table's block i. */
void kv_publish_block(struct kv *kv, struct kv_table *t, uint32_t i, uint32_t n);

/* With a tier: name the table's full block i, whose predecessors are named. */
void kv_name_block(struct kv *kv, const struct kv_table *t, uint32_t i);
/* Write a full published block behind, if there is a tier and it wants it. */
void kv_store(struct kv *kv, uint32_t block);
/* Stop fetching into a table: blocks that did not arrive are given back. */
void kv_fetch_end(struct kv *kv, struct kv_table *t);

#endif
