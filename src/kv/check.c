/* kv_check: the whole structure is walked, and everything that is stored twice is compared. */
#include "kv/internal.h"
#include "kv/kv.h"

#include <string.h>

/* A table's published blocks are its own text: each below the one before, with its tokens. */
static enum err check_published(const struct kv *kv, const struct kv_table *t, struct err_info *e)
{
    uint32_t size = kv->cfg.block_tokens;
    for (uint32_t i = 0; i < t->n_blocks; i++) {
        uint32_t id = t->blocks[i];
        uint32_t n = kv_prefix_n_tokens(kv->prefix, id);
        if (n == 0)
            continue;
        if (kv_prefix_parent(kv->prefix, id) != kv_parent_of(t, i) ||
            memcmp(kv_prefix_tokens(kv->prefix, id), t->tokens + (size_t)i * size, n * 4) != 0 ||
            (i == 0 && !kv_key_equal(kv_prefix_space(kv->prefix, id), &t->space)))
            return err_set(
                e, ERR_INTERNAL, "KV block %u is published as another text than its table's", id);
    }
    return OK;
}

/* A table holds the panes of its own blocks, from the one its window begins in to the last that is
 * there. Those before the window are not its concern. */
static enum err check_held_panes(const struct kv *kv,
                                 const struct kv_table *t,
                                 uint32_t *held,
                                 struct err_info *e)
{
    uint32_t end = t->fetch.serial ? t->fetch.arrived : t->n_blocks;
    if (!kv->panes)
        return OK;
    if (t->first_pane > t->end_pane || t->end_pane != end)
        return err_set(e,
                       ERR_INTERNAL,
                       "a KV table holds panes %u to %u of %u blocks",
                       t->first_pane,
                       t->end_pane,
                       end);
    for (uint32_t i = t->first_pane; i < t->end_pane; i++) {
        uint32_t id = t->blocks[i], pane = t->panes[i];
        if (pane >= kv->cfg.n_panes || kv->pane_of[id] != pane)
            return err_set(
                e, ERR_INTERNAL, "KV block %u in a table has pane %u", id, kv->pane_of[id]);
        held[pane]++;
    }
    return OK;
}

/* A block's pane is its own, and of no use without it. */
static enum err check_owners(const struct kv *kv, struct err_info *e)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < kv->cfg.n_blocks; id++)
        n += kv->pane_of[id] != KV_NO_PANE;
    for (uint32_t pane = 0; pane < kv->cfg.n_panes; pane++) {
        uint32_t id = kv->block_of[pane];
        enum kv_state state = kv_pool_state(kv->panes, pane);
        bool owned = id < kv->cfg.n_blocks && kv->pane_of[id] == pane;
        bool merged = id == KV_NO_BLOCK && kv->panes_leaving.places[pane].n_refs > 0;
        n -= owned;
        if ((owned || merged) != (state != KV_FREE) || (!owned && id != KV_NO_BLOCK) ||
            (owned && state == KV_IN_USE && kv_pool_state(kv->pool, id) != KV_IN_USE) ||
            (state == KV_CACHED && kv_prefix_n_tokens(kv->prefix, id) == 0))
            return err_set(
                e, ERR_INTERNAL, "KV pane %u is in state %u, with block %u", pane, state, id);
    }
    return n == 0 ? OK : err_set(e, ERR_INTERNAL, "%u KV blocks have panes of others", n);
}

static enum err check_table(const struct kv *kv,
                            const struct kv_table *t,
                            uint32_t *held,
                            struct err_info *e)
{
    if (t->n_blocks > t->max_blocks)
        return err_set(
            e, ERR_INTERNAL, "a KV table holds %u blocks of %u", t->n_blocks, t->max_blocks);
    for (uint32_t i = 0; i < t->n_blocks; i++) {
        if (t->blocks[i] >= kv->cfg.n_blocks)
            return err_set(e, ERR_INTERNAL, "KV block %u in a table does not exist", t->blocks[i]);
        held[t->blocks[i]]++;
    }
    if (t->fetch.serial && (t->fetch.arrived > t->fetch.asked || t->fetch.asked > t->n_blocks ||
                            t->fetch.asked > t->fetch.end))
        return err_set(e,
                       ERR_INTERNAL,
                       "a fetch has %u of %u blocks, asked for %u",
                       t->fetch.arrived,
                       t->n_blocks,
                       t->fetch.asked);
    enum err err = check_held_panes(kv, t, held + 2 * (size_t)kv->cfg.n_blocks, e);
    if (err == OK)
        err =
            kv_states_check_table(kv, t, held + 2 * (size_t)kv->cfg.n_blocks + kv->cfg.n_panes, e);
    return err == OK ? check_published(kv, t, e) : err;
}

/* What a block is to the pool and to the index must go together. */
static enum err check_block(const struct kv *kv, uint32_t id, struct err_info *e)
{
    uint32_t n = kv_prefix_n_tokens(kv->prefix, id), refs = kv_pool_refs(kv->pool, id);
    enum kv_state state = kv_pool_state(kv->pool, id);
    bool part = n > 0 && n < kv->cfg.block_tokens;
    if ((state == KV_FREE && n > 0) || (state == KV_CACHED && n == 0) || (part && refs > 1) ||
        (n == 0 && refs > 1))
        return err_set(e,
                       ERR_INTERNAL,
                       "KV block %u is published with %u tokens in state %u, with %u references",
                       id,
                       n,
                       state,
                       refs);
    return OK;
}

/* From the oldest on: whatever continues a cached block comes before it. */
static enum err check_order(const struct kv *kv, uint32_t *children, struct err_info *e)
{
    memset(children, 0, kv->cfg.n_blocks * sizeof *children);
    for (uint32_t id = kv_pool_oldest(kv->pool); id != KV_NO_BLOCK;
         id = kv_pool_newer(kv->pool, id)) {
        uint32_t parent = kv_prefix_parent(kv->prefix, id);
        if (children[id] != kv_prefix_n_children(kv->prefix, id))
            return err_set(
                e, ERR_INTERNAL, "cached KV block %u would be evicted before a child", id);
        if (parent != KV_ROOT)
            children[parent]++;
    }
    return OK;
}

enum err kv_check(const struct kv *kv,
                  const struct kv_table *const *tables,
                  uint32_t n,
                  struct err_info *e)
{
    uint32_t *held = kv->scratch, *children = held + kv->cfg.n_blocks;
    enum err err = OK;
    uint32_t *held_panes = children + kv->cfg.n_blocks;
    uint32_t *held_states = held_panes + kv->cfg.n_panes;
    memset(held,
           0,
           ((size_t)2 * kv->cfg.n_blocks + kv->cfg.n_panes + kv->cfg.n_states) * sizeof *held);
    for (uint32_t i = 0; i < n && err == OK; i++)
        err = check_table(kv, tables[i], held, e);
    if (err == OK)
        err = kv_leaving_check(kv, &kv->leaving, kv->cfg.n_blocks, held, e);
    if (err == OK && kv->panes)
        err = kv_leaving_check(kv, &kv->panes_leaving, kv->cfg.n_panes, held_panes, e);
    if (err == OK && kv->states)
        err = kv_leaving_check(kv, &kv->states_leaving, kv->cfg.n_states, held_states, e);
    if (err == OK)
        err = kv_pool_check(kv->pool, held, e);
    if (err == OK)
        err = kv_prefix_check(kv->prefix, e);
    if (err == OK && kv->panes)
        err = kv_pool_check(kv->panes, held_panes, e);
    if (err == OK && kv->panes)
        err = check_owners(kv, e);
    if (err == OK && kv->states)
        err = kv_pool_check(kv->states, held_states, e);
    if (err == OK && kv->states)
        err = kv_states_check(kv, e);
    if (err == OK && kv->cfg.tier)
        err = kv_waiting_check(kv, children, e);
    for (uint32_t id = 0; id < kv->cfg.n_blocks && err == OK; id++)
        err = check_block(kv, id, e);
    return err == OK ? check_order(kv, children, e) : err;
}
