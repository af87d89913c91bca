#include "kv/kv.h"

#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum block_state { BLOCK_FREE, BLOCK_IN_USE };

/* A block's state says where it must be found, its references how many tables hold it; kv_check
 * compares both with what is really there.
 *
 *      free_ids  | 7 | 6 | 5 | 2 |   |   |      n_free = 4, block 2 is lent next
 *
 * The last block given back is lent first: its bytes are the likeliest to be in a cache. */
struct kv_pool {
    uint32_t n_blocks;
    uint32_t block_tokens;
    uint32_t *free_ids; /* [n_free] a stack */
    uint32_t n_free;
    uint32_t n_in_use;
    uint32_t peak_in_use;
    uint32_t *refs;  /* [n_blocks] */
    uint8_t *states; /* [n_blocks] enum block_state */
    uint64_t acquired;
    uint64_t released;
    /* A block given back that nobody held: a bug of the caller. It is refused, so nothing breaks,
     * and remembered, so kv_check names it. */
    uint32_t n_bad_releases;
    uint32_t bad_release_id;
    uint32_t *seen; /* [n_blocks] scratch of kv_check */
};

static void pool_reset(struct kv_pool *p)
{
    for (uint32_t i = 0; i < p->n_blocks; i++)
        p->free_ids[i] = p->n_blocks - 1 - i;
    p->n_free = p->n_blocks;
}

enum err kv_pool_create(uint32_t n_blocks,
                        uint32_t block_tokens,
                        struct kv_pool **out,
                        struct err_info *e)
{
    *out = NULL;
    if (n_blocks == 0 || block_tokens == 0)
        return err_set(e,
                       ERR_INVALID,
                       "a KV pool needs blocks and tokens in them, not %u blocks of %u",
                       n_blocks,
                       block_tokens);
    struct kv_pool *p = mem_zalloc(1, sizeof *p);
    p->n_blocks = n_blocks;
    p->block_tokens = block_tokens;
    p->free_ids = malloc(n_blocks * sizeof *p->free_ids);
    p->refs = calloc(n_blocks, sizeof *p->refs);
    p->states = calloc(n_blocks, sizeof *p->states);
    p->seen = malloc(n_blocks * sizeof *p->seen);
    if (!p->free_ids || !p->refs || !p->states || !p->seen) {
        kv_pool_destroy(p);
        return err_set(e, ERR_NOMEM, "no memory to account for %u KV blocks", n_blocks);
    }
    pool_reset(p);
    *out = p;
    return OK;
}

void kv_pool_destroy(struct kv_pool *p)
{
    if (!p)
        return;
    free(p->free_ids);
    free(p->refs);
    free(p->states);
    free(p->seen);
    free(p);
}

uint32_t kv_block_tokens(const struct kv_pool *p)
{
    return p->block_tokens;
}

uint32_t kv_blocks_for(const struct kv_pool *p, uint32_t n_tokens)
{
    return n_tokens / p->block_tokens + (n_tokens % p->block_tokens != 0);
}

struct kv_stats kv_pool_stats(const struct kv_pool *p)
{
    return (struct kv_stats){.total = p->n_blocks,
                             .free = p->n_free,
                             .in_use = p->n_in_use,
                             .cached = p->n_blocks - p->n_free - p->n_in_use,
                             .peak_in_use = p->peak_in_use,
                             .acquired = p->acquired,
                             .released = p->released};
}

/* The pool holds at least one free block: the caller counted. */
static uint32_t block_acquire(struct kv_pool *p)
{
    uint32_t id = p->free_ids[--p->n_free];
    p->states[id] = BLOCK_IN_USE;
    p->refs[id] = 1;
    p->acquired++;
    if (++p->n_in_use > p->peak_in_use)
        p->peak_in_use = p->n_in_use;
    return id;
}

static void block_release(struct kv_pool *p, uint32_t id)
{
    if (id >= p->n_blocks || p->states[id] != BLOCK_IN_USE) {
        log_error("KV block %u was given back but is not in use", id);
        p->n_bad_releases++;
        p->bad_release_id = id;
        return;
    }
    p->released++;
    if (--p->refs[id] > 0)
        return;
    p->states[id] = BLOCK_FREE;
    p->n_in_use--;
    p->free_ids[p->n_free++] = id;
}

enum err kv_table_init(struct kv_table *t, uint32_t max_blocks, struct err_info *e)
{
    *t = (struct kv_table){.max_blocks = max_blocks};
    t->blocks = calloc(max_blocks ? max_blocks : 1, sizeof *t->blocks);
    if (!t->blocks)
        return err_set(e, ERR_NOMEM, "no memory for a table of %u KV blocks", max_blocks);
    return OK;
}

void kv_table_deinit(struct kv_table *t)
{
    assert(t->n_blocks == 0);
    free(t->blocks);
    *t = (struct kv_table){0};
}

enum err kv_table_grow(struct kv_pool *p, struct kv_table *t, uint32_t n_tokens, struct err_info *e)
{
    uint32_t want = kv_blocks_for(p, n_tokens);
    if (want <= t->n_blocks)
        return OK;
    if (want > t->max_blocks)
        return err_set(
            e, ERR_TOO_LONG, "would need %u blocks, exceeds max %u", want, t->max_blocks);
    uint32_t missing = want - t->n_blocks;
    if (missing > p->n_free)
        return err_set(
            e, ERR_QUEUE_FULL, "exhausted: need %u blocks but only %u free", missing, p->n_free);
    while (t->n_blocks < want)
        t->blocks[t->n_blocks++] = block_acquire(p);
    return OK;
}

void kv_table_release(struct kv_pool *p, struct kv_table *t)
{
    /* backwards, so that the next table gets these blocks in the same order */
    while (t->n_blocks > 0)
        block_release(p, t->blocks[--t->n_blocks]);
}

/* --- kv_check ---------------------------------------------------------------------------------
 * `seen` becomes, per block, ON_FREE_LIST or how many tables hold it. */

#define ON_FREE_LIST UINT32_MAX

static enum err check_free_list(const struct kv_pool *p, struct err_info *e)
{
    if (p->n_free > p->n_blocks)
        return err_set(e, ERR_INTERNAL, "KV pool: %u of %u blocks free", p->n_free, p->n_blocks);
    for (uint32_t i = 0; i < p->n_free; i++) {
        uint32_t id = p->free_ids[i];
        if (id >= p->n_blocks)
            return err_set(e, ERR_INTERNAL, "KV block %u on the free list does not exist", id);
        if (p->seen[id] == ON_FREE_LIST)
            return err_set(e, ERR_INTERNAL, "KV block %u is on the free list twice", id);
        p->seen[id] = ON_FREE_LIST;
    }
    return OK;
}

static enum err check_table(const struct kv_pool *p, const struct kv_table *t, struct err_info *e)
{
    if (t->n_blocks > t->max_blocks)
        return err_set(
            e, ERR_INTERNAL, "a KV table holds %u blocks of %u", t->n_blocks, t->max_blocks);
    for (uint32_t i = 0; i < t->n_blocks; i++) {
        uint32_t id = t->blocks[i];
        if (id >= p->n_blocks)
            return err_set(e, ERR_INTERNAL, "KV block %u in a table does not exist", id);
        if (p->seen[id] == ON_FREE_LIST)
            return err_set(e, ERR_INTERNAL, "KV block %u is free and in a table", id);
        p->seen[id]++;
    }
    return OK;
}

static enum err check_block(const struct kv_pool *p, uint32_t id, struct err_info *e)
{
    bool listed = p->seen[id] == ON_FREE_LIST;
    if (listed != (p->states[id] == BLOCK_FREE))
        return err_set(e,
                       ERR_INTERNAL,
                       "KV block %u is %s the free list, in state %u",
                       id,
                       listed ? "on" : "not on",
                       p->states[id]);
    uint32_t held = listed ? 0 : p->seen[id];
    if (p->refs[id] != held || (!listed && held == 0))
        return err_set(e,
                       ERR_INTERNAL,
                       "KV block %u counts %u references, tables hold %u",
                       id,
                       p->refs[id],
                       held);
    return OK;
}

static enum err check_sums(const struct kv_pool *p, struct err_info *e)
{
    uint32_t in_use = 0;
    uint64_t refs = 0;
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        in_use += p->states[id] == BLOCK_IN_USE;
        refs += p->refs[id];
    }
    if (in_use != p->n_in_use || p->n_free + in_use != p->n_blocks || in_use > p->peak_in_use)
        return err_set(e,
                       ERR_INTERNAL,
                       "KV pool: %u free + %u in use of %u, counted %u (peak %u)",
                       p->n_free,
                       p->n_in_use,
                       p->n_blocks,
                       in_use,
                       p->peak_in_use);
    if (p->acquired - p->released != refs)
        return err_set(e,
                       ERR_INTERNAL,
                       "KV pool: %llu references taken, %llu given back, %llu there",
                       (unsigned long long)p->acquired,
                       (unsigned long long)p->released,
                       (unsigned long long)refs);
    if (p->n_bad_releases > 0)
        return err_set(e,
                       ERR_INTERNAL,
                       "KV block %u was given back but was not in use (%u such)",
                       p->bad_release_id,
                       p->n_bad_releases);
    return OK;
}

enum err kv_check(const struct kv_pool *p,
                  const struct kv_table *const *tables,
                  uint32_t n,
                  struct err_info *e)
{
    memset(p->seen, 0, p->n_blocks * sizeof *p->seen);
    enum err err = check_free_list(p, e);
    for (uint32_t i = 0; i < n && err == OK; i++)
        err = check_table(p, tables[i], e);
    for (uint32_t id = 0; id < p->n_blocks && err == OK; id++)
        err = check_block(p, id, e);
    return err == OK ? check_sums(p, e) : err;
}
