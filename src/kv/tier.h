/* A tier below the device's KV memory: it keeps the bytes of full blocks under their keys.
 *
 *      store   the block's bytes are copied into a buffer of the tier and written behind
 *      fetch   read ahead into a buffer; poll hands it over when it is there and verified
 *
 * Tiers stand below each other, RAM (host.h) above the disk (disk.h); the engine speaks to the
 * first, which passes on what is for the next.
 *
 * A tier is a cache: it may forget anything at any time, and a block that it does not give back is
 * computed again. What it gives back is exactly what was stored: anything torn, foreign or damaged
 * counts as absent. Keys are names only: tokens and parent are compared on top.
 *
 * Thread: all calls are the engine's, but stats. The disk's work happens on a thread of its own,
 * for which none of them but destroy waits; RAM's at once. Allocates: nothing, but when a tier is
 * opened, and on the disk's thread. */
#ifndef WEIR_KV_TIER_H
#define WEIR_KV_TIER_H

#include "kv/key.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_MAX_TIERS = 2 }; /* below each other */

struct kv_tier;

/* A full block by content. The tier copies what it needs. */
struct kv_tier_block {
    struct kv_key key;
    struct kv_key parent;  /* key of the block before; the space, for the first of a sequence */
    const int32_t *tokens; /* [block_tokens] */
};

/* The end of a fetch. */
struct kv_tier_done {
    uint64_t ticket;   /* as given to fetch */
    const void *bytes; /* [block_bytes], the caller's until release; NULL: not there after all */
};

struct kv_tier_latency {
    uint64_t count, sum_us, max_us;
};

struct kv_tier_stats {
    bool on;          /* false: turned off by errors of I/O; nothing can be fetched */
    bool writes;      /* false: another process writes to this place, or writing failed */
    uint64_t entries; /* that could be fetched */
    uint64_t bytes;   /* held, of max_bytes */
    uint64_t max_bytes;
    uint64_t fetched, missed; /* fetches that ended with bytes, and without */
    uint64_t stored, dropped; /* stores that were written, and that were not: of any cause */
    uint64_t evicted;         /* entries removed to stay below max_bytes */
    uint64_t ignored;         /* torn, foreign or damaged entries met */
    uint64_t errors;          /* of I/O */
    struct kv_tier_latency fetch, store; /* one block, without its time in the queue */
};

/* Why a block is offered to a tier: its last position was computed, or its place is needed. */
enum kv_tier_reason { KV_TIER_FULL, KV_TIER_EVICTED };

/* What becomes of a block that a tier may have:
 *
 *      wanted    it will be fetched now, if it is still there then
 *      arrived   it was fetched, and lies above
 *      used      a sequence that held it above has let go of it */
enum kv_tier_use { KV_TIER_WANTED, KV_TIER_ARRIVED, KV_TIER_USED };

struct kv_tier_ops {
    const char *name; /* "disk" */
    /* Is the block there, as far as is known without looking at the disk? 0: no; 1: in this tier;
     * 2: in the one below. Asking changes nothing. */
    uint32_t (*has)(struct kv_tier *t, const struct kv_key *key);
    /* Said of blocks that may not be there, so that those of most use are kept: wanted and used of
     * a run's last block first, for without its beginning the rest cannot be found. */
    void (*used)(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use);
    /* What fetching n more blocks of this tier would take from now on, queue included; learned. */
    uint64_t (*estimate_us)(struct kv_tier *t, uint32_t n);
    /* Begin to fetch; poll tells the end, for blocks of one tier in the order of these calls.
     * false: no buffer is free (none was taken: try again after the next poll), or the tier is off.
     */
    bool (*fetch)(struct kv_tier *t, const struct kv_tier_block *b, uint64_t ticket);
    /* Fetches that have ended, one a call; false when there is none now. */
    bool (*poll)(struct kv_tier *t, struct kv_tier_done *out);
    void (*release)(struct kv_tier *t, const void *bytes);
    /* Has it no buffer for a full block just now? Then store_begin would refuse any; who waits for
     * one is woken, as for poll. NULL: never. */
    bool (*busy)(struct kv_tier *t);
    /* A buffer of block_bytes to fill and hand to store, which must follow, or store_abandon, where
     * it could not be filled: it is given back, and nothing is stored. NULL: do not store it
     * (it is there already or on its way, no buffer is free, or nothing can be written). */
    void *(*store_begin)(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why);
    void (*store)(struct kv_tier *t, const struct kv_tier_block *b, void *bytes);
    void (*store_abandon)(struct kv_tier *t, const struct kv_key *key, void *bytes);
    void (*stats)(struct kv_tier *t,
                  struct kv_tier_stats *out); /* any thread; of this tier alone */
    /* Writes what was stored, for at most a few seconds and what one write takes, then lets go of
     * everything. The tiers below go with it. */
    void (*destroy)(struct kv_tier *t);
};

/* Every tier's struct begins with this. */
struct kv_tier {
    const struct kv_tier_ops *ops;
    struct kv_tier *below; /* or NULL */
    /* Fetches from it to have under way at a time, where they end at the next poll and what makes
     * room for one above is stored here, in the place of one that has arrived. 0: any number. */
    uint32_t most_asked;
};

#endif
