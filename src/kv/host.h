/* The RAM tier: full KV blocks whose place in the device's memory was needed, kept in memory of the
 * host until they are asked for again.
 *
 *      device --evicted--> RAM      copied into a slot; the oldest makes room
 *      device <--fetched-- RAM      the slot is lent as it is; it stays, as the first to make room
 *      device --full-----> disk     the tier below gets blocks as soon as they are full, as without
 *      device <--fetched-- disk     this one, so it holds what is dropped here
 *
 * What has arrived in the device lies there, so its place here is the next to be stored in: a run
 * of blocks that comes back to a full device changes places with what it drives out, for as long as
 * it is asked for block by block. Where blocks move beside the host two are under way, so that one
 * leaves while another comes.
 *
 * Everything happens at once: a fetch ends at the next poll. The bytes lie in one region taken at
 * start: pinned, where the device copies from such memory faster; else pages cost memory once they
 * are used. */
#ifndef WEIR_KV_HOST_H
#define WEIR_KV_HOST_H

#include "kv/tier.h"

struct kv_host_config {
    uint64_t max_bytes; /* for blocks; at least one fits */
    uint32_t block_tokens;
    size_t block_bytes;
    struct kv_tier *below; /* or NULL; owned from here on, if this succeeds */
    /* Memory that the device copies from fast; NULL: any. Where it returns NULL it is any, too. */
    void *(*alloc)(void *ctx, size_t n_bytes);
    void (*free)(void *ctx, void *p);
    /* Microseconds that a block takes where it is moved beside the host, 0: not known; NULL: it is
     * there when the mover returns. */
    double (*move_us)(void *ctx);
    void *alloc_ctx;
    /* Called by fetch when poll has something. May be NULL. */
    void (*wake)(void *ctx);
    void *wake_ctx;
};

/* Errors: ERR_INVALID (max_bytes below one block, or a size that cannot be), ERR_NOMEM. */
enum err kv_host_open(const struct kv_host_config *cfg,
                      struct kv_tier **out,
                      struct err_info *e) WEIR_MUST_USE;

#endif
