/* Panes: the windowed layers' part of a block, held while a window lies over it.
 *
 *      table    block 0 | block 1 | block 2 | block 3 | block 4
 *      panes    (cached)  (gone)     held      held      held
 *                                 ^first_pane                  ^end_pane
 *
 * A table holds the panes from the one with the first position that its next row sees. What a
 * window has passed is kept, if its block can be found by its text, until somebody needs the room:
 * the last window before a position is all that a sequence needs to go on from there. */
#include "kv/internal.h"
#include "kv/kv.h"

#include <assert.h>
#include <stdlib.h>

uint32_t kv_window_blocks(uint32_t window, uint32_t block_tokens, uint32_t n_rows)
{
    uint64_t n = (uint64_t)window - 1 + n_rows; /* positions, beginning anywhere in a block */
    return (uint32_t)((n + block_tokens - 2) / block_tokens + 1);
}

enum err kv_panes_create(struct kv *kv, struct err_info *e)
{
    const uint32_t n = kv->cfg.n_blocks, n_panes = kv->cfg.n_panes;
    if (kv->cfg.window == 0)
        return OK;
    enum err err = kv_pool_create(n_panes, "KV pane", &kv->panes, e);
    if (err != OK)
        return err;
    kv->pane_of = malloc(n * sizeof *kv->pane_of);
    kv->block_of = malloc(n_panes * sizeof *kv->block_of);
    if (!kv->pane_of || !kv->block_of)
        return err_set(e, ERR_NOMEM, "no memory to account for %u KV panes", n_panes);
    for (uint32_t i = 0; i < n; i++)
        kv->pane_of[i] = KV_NO_PANE;
    for (uint32_t i = 0; i < n_panes; i++)
        kv->block_of[i] = KV_NO_BLOCK;
    return kv_leaving_init(&kv->panes_leaving, n_panes, e);
}

void kv_panes_destroy(struct kv *kv)
{
    kv_pool_destroy(kv->panes);
    kv_leaving_deinit(&kv->panes_leaving);
    free(kv->pane_of);
    free(kv->block_of);
}

uint32_t kv_first_pane(const struct kv *kv, uint32_t n_computed)
{
    const uint32_t window = kv->cfg.window;
    return window && n_computed >= window ? (n_computed + 1 - window) / kv->cfg.block_tokens : 0;
}

uint32_t kv_n_panes(const struct kv *kv)
{
    return kv->cfg.n_panes;
}

uint32_t kv_most_panes(const struct kv *kv, uint32_t n_tokens, uint32_t n_rows)
{
    const uint32_t size = kv->cfg.block_tokens, blocks = kv_blocks_for(kv, n_tokens);
    if (!kv->panes)
        return 0;
    const uint32_t most = kv_window_blocks(kv->cfg.window, size, n_rows > size ? n_rows : size);
    return blocks < most ? blocks : most;
}

uint32_t kv_panes_available(const struct kv *kv)
{
    if (!kv->panes)
        return 0;
    struct kv_pool_stats p = kv_pool_stats(kv->panes);
    return p.free + p.cached;
}

struct kv_place kv_place_of(const struct kv *kv, uint32_t block)
{
    return (struct kv_place){block, kv->panes ? kv->pane_of[block] : KV_NO_PANE};
}

bool kv_lacks_pane(const struct kv *kv, uint32_t block)
{
    return kv->panes && kv->pane_of[block] == KV_NO_PANE;
}

bool kv_pane_is_cached(const struct kv *kv, uint32_t block)
{
    return kv->panes && kv->pane_of[block] != KV_NO_PANE &&
           kv_pool_state(kv->panes, kv->pane_of[block]) == KV_CACHED;
}

static void unbind(struct kv *kv, uint32_t pane)
{
    kv->pane_of[kv->block_of[pane]] = KV_NO_PANE;
    kv->block_of[pane] = KV_NO_BLOCK;
}

static void evict_pane(struct kv *kv)
{
    uint32_t pane = kv_pool_oldest(kv->panes);
    assert(pane != KV_NO_BLOCK);
    kv_store_evicted(kv, kv->block_of[pane]); /* without its pane it cannot be */
    unbind(kv, pane);
    kv_pool_drop(kv->panes, pane);
    kv->counts.panes_evicted++;
}

void kv_pane_take(struct kv *kv, struct kv_table *t)
{
    if (!kv->panes)
        return;
    const uint32_t i = t->end_pane++, block = t->blocks[i];
    assert(kv->pane_of[block] == KV_NO_PANE);
    uint32_t pane = kv_pool_acquire(kv->panes);
    if (pane == KV_NO_BLOCK) {
        evict_pane(kv);
        pane = kv_pool_acquire(kv->panes);
    }
    kv->pane_of[block] = pane;
    kv->block_of[pane] = block;
    t->panes[i] = pane;
}

void kv_pane_touch(struct kv *kv, uint32_t block)
{
    if (kv->panes)
        kv_pool_touch(kv->panes, kv->pane_of[block]);
}

/* Hold what the table's blocks up to its last one have, as far as they lie in the window behind n
 * positions. */
static void hold(struct kv *kv, struct kv_table *t, uint32_t n)
{
    uint32_t first = kv_first_pane(kv, n);
    uint32_t i = first > t->end_pane ? first : t->end_pane;
    for (; i < t->n_blocks; i++) {
        t->panes[i] = kv->pane_of[t->blocks[i]];
        kv_pool_ref(kv->panes, t->panes[i]);
    }
}

void kv_pane_give_back(struct kv *kv, uint32_t pane)
{
    const uint32_t block = kv->block_of[pane]; /* none, if it gave way to another */
    const bool keep = block != KV_NO_BLOCK && kv_prefix_n_tokens(kv->prefix, block) > 0;
    kv_pool_unref(kv->panes, pane, keep);
    if (kv_pool_state(kv->panes, pane) == KV_FREE && block != KV_NO_BLOCK)
        unbind(kv, pane);
}

static void let_go(struct kv *kv, uint32_t pane)
{
    if (kv_has_steps(kv))
        kv_leave(kv, &kv->panes_leaving, pane);
    else
        kv_pane_give_back(kv, pane);
}

typedef void (*give_fn)(struct kv *kv, uint32_t pane); /* let_go or kv_pane_give_back */

/* The table's pane i. */
static void pass(struct kv *kv, struct kv_table *t, uint32_t i, give_fn give)
{
    const uint32_t pane = t->panes[i];
    t->panes[i] = KV_NO_PANE;
    give(kv, pane);
}

static void pass_until(struct kv *kv, struct kv_table *t, uint32_t n, give_fn give)
{
    const uint32_t first = kv_first_pane(kv, n);
    for (; t->first_pane < first && t->first_pane < t->end_pane; t->first_pane++) {
        pass(kv, t, t->first_pane, give);
        kv->counts.panes_passed++;
    }
}

void kv_panes_pass(struct kv *kv, struct kv_table *t, uint32_t n)
{
    if (kv->panes)
        pass_until(kv, t, n, let_go);
}

/* For other tables' rows their own references stand, here or on the list of what leaves. */
void kv_panes_pass_now(struct kv *kv, struct kv_table *t, uint32_t n)
{
    if (kv->panes)
        pass_until(kv, t, n, kv_pane_give_back);
}

void kv_panes_attach(struct kv *kv, struct kv_table *t, uint32_t n)
{
    if (!kv->panes)
        return;
    hold(kv, t, n);              /* first: what others have passed might be taken back */
    kv_panes_pass_now(kv, t, n); /* who admits a sequence counts on one window's panes */
    uint32_t first = kv_first_pane(kv, n);
    t->first_pane = first > t->first_pane ? first : t->first_pane;
    t->end_pane = t->n_blocks;
    if (t->first_pane > t->end_pane)
        t->first_pane = t->end_pane;
}

void kv_panes_release(struct kv *kv, struct kv_table *t)
{
    while (t->end_pane > t->first_pane)
        pass(kv, t, --t->end_pane, let_go);
    t->first_pane = t->end_pane = 0;
}

void kv_pane_merge(struct kv *kv, struct kv_table *t, uint32_t i, uint32_t other)
{
    const uint32_t block = t->blocks[i];
    if (!kv->panes)
        return;
    const uint32_t mine = kv->pane_of[block];
    assert(i >= t->first_pane && i < t->end_pane && t->panes[i] == mine);
    unbind(kv, mine);
    if (kv->pane_of[other] == KV_NO_PANE) {
        kv->pane_of[other] = mine;
        kv->block_of[mine] = other;
        return;
    }
    t->panes[i] = kv->pane_of[other];
    kv_pool_ref(kv->panes, t->panes[i]);
    let_go(kv, mine);
}

void kv_pane_drop(struct kv *kv, uint32_t block)
{
    if (!kv->panes || kv->pane_of[block] == KV_NO_PANE)
        return;
    const uint32_t pane = kv->pane_of[block];
    unbind(kv, pane);
    kv_pool_drop(kv->panes, pane);
}
