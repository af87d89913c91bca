#include "kv/pool.h"

#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

/* A block's state says where it must be found, its references how many tables hold it; the check
 * compares both with what is really there. */
struct block {
    uint32_t refs;
    uint32_t older, newer; /* neighbours while cached; older is the place on the list while free */
    uint32_t state;        /* enum kv_state */
};

/*      free_ids  | 7 | 6 | 5 | 2 |   |   |      n_free = 4, block 2 is lent next
 *
 *      oldest -> [4] <-> [9] <-> [1] <- newest  the cached ones
 *
 * The last block given back is lent first: its bytes are the likeliest to be in a cache. */
struct kv_pool {
    const char *what;
    uint32_t n_blocks;
    struct block *blocks; /* [n_blocks] */
    uint32_t *free_ids;   /* [n_free] a stack */
    uint32_t n_free;
    uint32_t oldest, newest;
    uint32_t n_cached;
    uint32_t n_in_use;
    uint32_t peak_in_use;
    uint64_t acquired;
    uint64_t released;
    /* A block given back that nobody held: a bug of the caller. It is refused, so nothing breaks,
     * and remembered, so the check names it. */
    uint32_t n_bad_releases;
    uint32_t bad_release_id;
};

static void put_on_free_list(struct kv_pool *p, uint32_t id)
{
    p->blocks[id].state = KV_FREE;
    p->blocks[id].older = p->n_free;
    p->free_ids[p->n_free++] = id;
}

enum err kv_pool_create(uint32_t n_blocks,
                        const char *what,
                        struct kv_pool **out,
                        struct err_info *e)
{
    *out = NULL;
    struct kv_pool *p = mem_zalloc(1, sizeof *p);
    p->what = what;
    p->n_blocks = n_blocks;
    p->free_ids = malloc(n_blocks * sizeof *p->free_ids);
    p->blocks = calloc(n_blocks, sizeof *p->blocks);
    if (!p->free_ids || !p->blocks) {
        kv_pool_destroy(p);
        return err_set(e, ERR_NOMEM, "no memory to account for %u %ss", n_blocks, what);
    }
    while (p->n_free < n_blocks)
        put_on_free_list(p, n_blocks - 1 - p->n_free);
    p->oldest = p->newest = KV_NO_BLOCK;
    *out = p;
    return OK;
}

void kv_pool_destroy(struct kv_pool *p)
{
    if (!p)
        return;
    free(p->free_ids);
    free(p->blocks);
    free(p);
}

struct kv_pool_stats kv_pool_stats(const struct kv_pool *p)
{
    return (struct kv_pool_stats){.total = p->n_blocks,
                                  .free = p->n_free,
                                  .in_use = p->n_in_use,
                                  .cached = p->n_cached,
                                  .peak_in_use = p->peak_in_use,
                                  .acquired = p->acquired,
                                  .released = p->released};
}

enum kv_state kv_pool_state(const struct kv_pool *p, uint32_t id)
{
    return (enum kv_state)p->blocks[id].state;
}

uint32_t kv_pool_refs(const struct kv_pool *p, uint32_t id)
{
    return p->blocks[id].refs;
}

static void link_newest(struct kv_pool *p, uint32_t id)
{
    struct block *b = &p->blocks[id];
    b->older = p->newest;
    b->newer = KV_NO_BLOCK;
    *(p->newest == KV_NO_BLOCK ? &p->oldest : &p->blocks[p->newest].newer) = id;
    p->newest = id;
    p->n_cached++;
    b->state = KV_CACHED;
}

static void unlink_cached(struct kv_pool *p, uint32_t id)
{
    const struct block *b = &p->blocks[id];
    *(b->older == KV_NO_BLOCK ? &p->oldest : &p->blocks[b->older].newer) = b->newer;
    *(b->newer == KV_NO_BLOCK ? &p->newest : &p->blocks[b->newer].older) = b->older;
    p->n_cached--;
}

static void put_in_use(struct kv_pool *p, uint32_t id)
{
    p->blocks[id].state = KV_IN_USE;
    p->blocks[id].refs = 1;
    p->acquired++;
    if (++p->n_in_use > p->peak_in_use)
        p->peak_in_use = p->n_in_use;
}

uint32_t kv_pool_acquire(struct kv_pool *p)
{
    if (p->n_free == 0)
        return KV_NO_BLOCK;
    uint32_t id = p->free_ids[--p->n_free];
    put_in_use(p, id);
    return id;
}

void kv_pool_ref(struct kv_pool *p, uint32_t id)
{
    struct block *b = &p->blocks[id];
    assert(b->state != KV_FREE);
    if (b->state == KV_CACHED) {
        unlink_cached(p, id);
        put_in_use(p, id);
        return;
    }
    b->refs++;
    p->acquired++;
}

void kv_pool_unref(struct kv_pool *p, uint32_t id, bool keep)
{
    if (id >= p->n_blocks || p->blocks[id].state != KV_IN_USE) {
        log_error("%s %u was given back but is not in use", p->what, id);
        p->n_bad_releases++;
        p->bad_release_id = id;
        return;
    }
    p->released++;
    if (--p->blocks[id].refs > 0)
        return;
    p->n_in_use--;
    if (keep)
        link_newest(p, id);
    else
        put_on_free_list(p, id);
}

void kv_pool_touch(struct kv_pool *p, uint32_t id)
{
    if (p->blocks[id].state != KV_CACHED)
        return;
    unlink_cached(p, id);
    link_newest(p, id);
}

uint32_t kv_pool_oldest(const struct kv_pool *p)
{
    return p->oldest;
}

uint32_t kv_pool_newer(const struct kv_pool *p, uint32_t id)
{
    return p->blocks[id].newer;
}

void kv_pool_drop(struct kv_pool *p, uint32_t id)
{
    assert(p->blocks[id].state == KV_CACHED);
    unlink_cached(p, id);
    put_on_free_list(p, id);
}

/* --- kv_pool_check ------------------------------------------------------------------------- */

/* Each free block knows its place on the list; so equal counts leave no room for a stranger. */
static enum err check_free_list(const struct kv_pool *p, uint32_t n_free, struct err_info *e)
{
    if (p->n_free != n_free)
        return err_set(
            e, ERR_INTERNAL, "%u %ss on the free list, %u are free", p->n_free, p->what, n_free);
    for (uint32_t i = 0; i < p->n_free; i++) {
        uint32_t id = p->free_ids[i];
        if (id >= p->n_blocks || p->blocks[id].state != KV_FREE || p->blocks[id].older != i)
            return err_set(e, ERR_INTERNAL, "%s %u is wrongly on the free list", p->what, id);
    }
    return OK;
}

static enum err check_cached(const struct kv_pool *p, struct err_info *e)
{
    uint32_t n = 0, before = KV_NO_BLOCK;
    for (uint32_t id = p->oldest; id != KV_NO_BLOCK; id = p->blocks[id].newer) {
        if (id >= p->n_blocks || p->blocks[id].state != KV_CACHED || p->blocks[id].older != before)
            return err_set(e, ERR_INTERNAL, "%s %u is wrongly among the cached", p->what, id);
        before = id;
        n++;
    }
    if (n != p->n_cached || p->newest != before)
        return err_set(e, ERR_INTERNAL, "%u %ss cached, counted %u", p->n_cached, p->what, n);
    return OK;
}

static enum err check_refs(const struct kv_pool *p, const uint32_t *held, struct err_info *e)
{
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        const struct block *b = &p->blocks[id];
        if (b->refs != held[id] || (b->state == KV_IN_USE) != (held[id] > 0))
            return err_set(e,
                           ERR_INTERNAL,
                           "%s %u, in state %u, counts %u references, tables hold %u",
                           p->what,
                           id,
                           b->state,
                           b->refs,
                           held[id]);
    }
    return OK;
}

static enum err check_sums(const struct kv_pool *p, struct err_info *e)
{
    uint32_t n[3] = {0};
    uint64_t refs = 0;
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        n[p->blocks[id].state]++;
        refs += p->blocks[id].refs;
    }
    if (n[KV_IN_USE] != p->n_in_use || n[KV_CACHED] != p->n_cached || p->n_in_use > p->peak_in_use)
        return err_set(e,
                       ERR_INTERNAL,
                       "%s pool: %u in use and %u cached of %u, counted %u and %u (peak %u)",
                       p->what,
                       p->n_in_use,
                       p->n_cached,
                       p->n_blocks,
                       n[KV_IN_USE],
                       n[KV_CACHED],
                       p->peak_in_use);
    if (p->acquired - p->released != refs)
        return err_set(e,
                       ERR_INTERNAL,
                       "%s pool: %llu references taken, %llu given back, %llu there",
                       p->what,
                       (unsigned long long)p->acquired,
                       (unsigned long long)p->released,
                       (unsigned long long)refs);
    if (p->n_bad_releases > 0)
        return err_set(e,
                       ERR_INTERNAL,
                       "%s %u was given back but was not in use (%u such)",
                       p->what,
                       p->bad_release_id,
                       p->n_bad_releases);
    return check_free_list(p, n[KV_FREE], e);
}

enum err kv_pool_check(const struct kv_pool *p, const uint32_t *held, struct err_info *e)
{
    enum err err = check_refs(p, held, e);
    if (err == OK)
        err = check_cached(p, e);
    return err == OK ? check_sums(p, e) : err;
}
