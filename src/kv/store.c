/* Full blocks on their way to the tier. Each is offered when it is published; while the tier has no
 * buffer it waits, and with it all that are published after it, so a block follows its parent:
 *
 *      published    7   2   9   4   5
 *      taken        7   2
 *      waiting              9   4   5      offered again by kv_poll, and when others are published
 *
 * A block waits as long as it can be found, also when the sequence that computed it has ended: a
 * list through the blocks, oldest first. One whose place is needed is offered for the last time. */
#include "kv/internal.h"
#include "kv/kv.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX
#define NOT_WAITING (UINT32_MAX - 1)

enum err kv_waiting_init(struct kv *kv, struct err_info *e)
{
    const uint32_t n = kv->cfg.n_blocks;
    struct kv_waiting *w = &kv->waiting;
    w->places = malloc(n * sizeof *w->places);
    w->oldest = w->newest = NONE;
    for (uint32_t i = 0; w->places && i < n; i++)
        w->places[i].older = NOT_WAITING;
    return w->places ? OK : err_set(e, ERR_NOMEM, "no memory to list %u KV blocks to store", n);
}

void kv_waiting_deinit(struct kv *kv)
{
    free(kv->waiting.places);
}

static void append(struct kv_waiting *w, uint32_t id)
{
    w->places[id] = (struct kv_waiting_place){.older = w->newest, .newer = NONE};
    *(w->newest == NONE ? &w->oldest : &w->places[w->newest].newer) = id;
    w->newest = id;
}

static void take_out(struct kv_waiting *w, uint32_t id)
{
    struct kv_waiting_place *p = &w->places[id];
    *(p->older == NONE ? &w->oldest : &w->places[p->older].newer) = p->newer;
    *(p->newer == NONE ? &w->newest : &w->places[p->newer].older) = p->older;
    p->older = NOT_WAITING;
}

/* Of a full published block. The tier may not want it. */
static void offer(struct kv *kv, uint32_t block, enum kv_tier_reason why)
{
    struct kv_tier *tier = kv->cfg.tier;
    void *bytes = tier->ops->store_begin(tier, &kv->keys[block], why);
    if (!bytes)
        return;
    uint32_t parent = kv_prefix_parent(kv->prefix, block);
    struct kv_tier_block b = {.key = kv->keys[block],
                              .parent = parent == KV_ROOT ? *kv_prefix_space(kv->prefix, block)
                                                          : kv->keys[parent],
                              .tokens = kv_prefix_tokens(kv->prefix, block)};
    kv->n_copied_out++;
    if (kv->cfg.mover.read(kv->cfg.mover.ctx, kv_place_of(kv, block), bytes))
        tier->ops->store(tier, &b, bytes);
    else
        tier->ops->store_abandon(tier, &b.key, bytes);
}

void kv_store(struct kv *kv, uint32_t block)
{
    append(&kv->waiting, block);
    if (!kv->taking_arrivals)
        kv_store_waiting(kv);
}

void kv_store_waiting(struct kv *kv)
{
    struct kv_tier *tier = kv->cfg.tier;
    struct kv_waiting *w = &kv->waiting;
    while (w->oldest != NONE && !(tier->ops->busy && tier->ops->busy(tier))) {
        const uint32_t id = w->oldest;
        take_out(w, id);
        offer(kv, id, KV_TIER_FULL);
    }
}

bool kv_store_rest(struct kv *kv)
{
    struct kv_tier *tier = kv->cfg.tier;
    struct kv_tier_done done;
    if (!tier)
        return false;
    while (tier->ops->poll(tier, &done)) { /* for nobody any more, in buffers that stores can use */
        if (done.bytes)
            tier->ops->release(tier, done.bytes);
    }
    kv_store_waiting(kv);
    return kv->waiting.oldest != NONE;
}

void kv_store_evicted(struct kv *kv, uint32_t block)
{
    if (!kv->cfg.tier || kv_prefix_n_tokens(kv->prefix, block) < kv->cfg.block_tokens ||
        kv_lacks_pane(kv, block))
        return;
    const bool waits = kv->waiting.places[block].older != NOT_WAITING;
    if (waits)
        take_out(&kv->waiting, block);
    if (waits && kv->cfg.tier->below) /* which gets nothing that is evicted */
        offer(kv, block, KV_TIER_FULL);
    offer(kv, block, KV_TIER_EVICTED);
}

/* What lies in memory above is not fetched: nothing else tells a tier that keeps it, too, that it
 * is of use. */
void kv_tell_used(const struct kv *kv, const struct kv_table *t)
{
    struct kv_tier *tier = kv->cfg.tier;
    for (uint32_t i = t->n_published / kv->cfg.block_tokens; tier && i-- > 0;) {
        assert(kv_prefix_n_tokens(kv->prefix, t->blocks[i]) == kv->cfg.block_tokens);
        tier->ops->used(tier, &kv->keys[t->blocks[i]], KV_TIER_USED);
    }
}

/* Each is full, and neither it nor what comes before it can be missing: those that wait are found,
 * and a parent that waits does so before its child. */
enum err kv_waiting_check(const struct kv *kv, uint32_t *seen, struct err_info *e)
{
    const struct kv_waiting *w = &kv->waiting;
    uint32_t older = NONE, n = 0, n_marked = 0;
    for (uint32_t id = 0; id < kv->cfg.n_blocks; id++) {
        seen[id] = w->places[id].older == NOT_WAITING;
        n_marked += !seen[id];
    }
    for (uint32_t id = w->oldest; id != NONE && n <= n_marked; id = w->places[id].newer, n++) {
        if (w->places[id].older != older || seen[id] ||
            kv_prefix_n_tokens(kv->prefix, id) < kv->cfg.block_tokens || kv_lacks_pane(kv, id))
            return err_set(e, ERR_INTERNAL, "KV block %u cannot wait to be stored", id);
        const uint32_t parent = kv_prefix_parent(kv->prefix, id);
        if (parent != KV_ROOT && !seen[parent])
            return err_set(e, ERR_INTERNAL, "KV block %u waits to be stored before its parent", id);
        seen[id] = 1;
        older = id;
    }
    if (n != n_marked || w->newest != older)
        return err_set(e, ERR_INTERNAL, "%u KV blocks wait to be stored, not %u", n, n_marked);
    return OK;
}
