#include "kv/host.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "kv/tier_index.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_BYTES 64
#define MAX_SLOTS (UINT32_MAX / 4)
/* what a fetch is taken to cost before the first one: 4 GB/s */
#define FIRST_BYTES_PER_US 4000

enum slot_state {
    SLOT_FREE,
    SLOT_FILLING, /* from store_begin to store */
    SLOT_HELD,    /* in the index */
};

struct slot {
    enum slot_state state;
    uint32_t n_lent; /* fetches that have it; it is not evicted while there are any */
    uint32_t next;   /* of the free ones */
    struct kv_key parent;
    uint64_t since_us; /* FILLING: when it began */
};

/* Fetches that ended at once, until poll tells. */
struct ended {
    uint64_t ticket;
    uint32_t slot;
};

enum { MAX_ENDED = 1024, NO_SLOT = UINT32_MAX };

struct host {
    struct kv_tier tier;
    struct kv_host_config cfg;
    size_t stride; /* from one slot's bytes to the next's */
    uint32_t n_slots, free;
    struct slot *slots;        /* [n_slots] */
    int32_t *tokens;           /* [n_slots][block_tokens] */
    uint8_t *memory;           /* [n_slots * stride] */
    struct kv_tier_index held; /* key -> slot, HELD */
    struct ended ended[MAX_ENDED];
    uint32_t ended_head, n_ended;
    uint64_t fetch_us; /* of one block, learned */
    uint64_t lent_at_us;
    pthread_mutex_t mutex; /* of the stats: they are read by others */
    struct kv_tier_stats stats;
};

static struct host *host_of(struct kv_tier *t)
{
    return (struct host *)t;
}

static uint8_t *bytes_of(const struct host *h, uint32_t slot)
{
    return h->memory + slot * h->stride;
}

/* The slot whose bytes these are; NO_SLOT: they are of the tier below. */
static uint32_t slot_of(const struct host *h, const void *bytes)
{
    const uintptr_t at = (uintptr_t)bytes, base = (uintptr_t)h->memory;
    if (at < base || at >= base + h->n_slots * h->stride)
        return NO_SLOT;
    assert((at - base) % h->stride == 0);
    return (uint32_t)((at - base) / h->stride);
}

static void count(struct host *h, uint64_t *what)
{
    pthread_mutex_lock(&h->mutex);
    ++*what;
    h->stats.entries = h->held.n;
    h->stats.bytes = (uint64_t)h->held.n * h->cfg.block_bytes;
    pthread_mutex_unlock(&h->mutex);
}

static void count_latency(struct host *h, struct kv_tier_latency *l, uint64_t us)
{
    pthread_mutex_lock(&h->mutex);
    l->count++;
    l->sum_us += us;
    l->max_us = us > l->max_us ? us : l->max_us;
    pthread_mutex_unlock(&h->mutex);
}

static void free_slot(struct host *h, uint32_t id)
{
    h->slots[id].state = SLOT_FREE;
    h->slots[id].next = h->free;
    h->free = id;
}

static uint32_t host_has(struct kv_tier *t, const struct kv_key *key)
{
    struct host *h = host_of(t);
    if (kv_tier_index_find(&h->held, 0, key))
        return 1;
    return t->below && t->below->ops->has(t->below, key) ? 2 : 0;
}

/* What is used above says nothing of what was driven out to here. */
static void host_used(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use)
{
    struct host *h = host_of(t);
    struct kv_tier_entry *entry = use == KV_TIER_USED ? NULL : kv_tier_index_find(&h->held, 0, key);
    if (entry && use == KV_TIER_WANTED)
        kv_tier_index_touch(&h->held, entry);
    else if (entry)
        kv_tier_index_cool(&h->held, entry);
    else if (t->below)
        t->below->ops->used(t->below, key, use);
}

static uint64_t host_estimate_us(struct kv_tier *t, uint32_t n)
{
    return n * host_of(t)->fetch_us;
}

/* The slot that has the block; NO_SLOT: none, or the key stands for another text. */
static uint32_t find(struct host *h, const struct kv_tier_block *b)
{
    struct kv_tier_entry *entry = kv_tier_index_find(&h->held, 0, &b->key);
    if (!entry)
        return NO_SLOT;
    const uint32_t id = (uint32_t)entry->value, n = h->cfg.block_tokens;
    if (!kv_key_equal(&h->slots[id].parent, &b->parent) ||
        memcmp(h->tokens + (size_t)id * n, b->tokens, n * sizeof *b->tokens) != 0) {
        count(h, &h->stats.ignored);
        return NO_SLOT;
    }
    kv_tier_index_touch(&h->held, entry);
    return id;
}

static bool host_fetch(struct kv_tier *t, const struct kv_tier_block *b, uint64_t ticket)
{
    struct host *h = host_of(t);
    const uint32_t id = find(h, b);
    if (id == NO_SLOT)
        return t->below && t->below->ops->fetch(t->below, b, ticket);
    if (h->n_ended == MAX_ENDED)
        return false;
    h->slots[id].n_lent++;
    h->ended[(h->ended_head + h->n_ended++) % MAX_ENDED] = (struct ended){ticket, id};
    if (h->cfg.wake)
        h->cfg.wake(h->cfg.wake_ctx);
    return true;
}

static bool host_poll(struct kv_tier *t, struct kv_tier_done *out)
{
    struct host *h = host_of(t);
    if (h->n_ended == 0)
        return t->below && t->below->ops->poll(t->below, out);
    const struct ended *ended = &h->ended[h->ended_head];
    *out = (struct kv_tier_done){.ticket = ended->ticket, .bytes = bytes_of(h, ended->slot)};
    h->ended_head = (h->ended_head + 1) % MAX_ENDED;
    h->n_ended--;
    h->lent_at_us = clock_us();
    count(h, &h->stats.fetched);
    return true;
}

/* Since then, of a copy to or from the device: what the host saw of it, or the device of one. */
static uint64_t copy_us(const struct host *h, uint64_t since_us)
{
    const uint64_t us = clock_us() - since_us;
    const double moved_us = h->cfg.move_us ? h->cfg.move_us(h->cfg.alloc_ctx) : 0;
    return (double)us < moved_us ? (uint64_t)moved_us : us;
}

/* What lies between poll and here is the copy to the device. */
static void host_release(struct kv_tier *t, const void *bytes)
{
    struct host *h = host_of(t);
    const uint32_t id = slot_of(h, bytes);
    if (id == NO_SLOT) {
        t->below->ops->release(t->below, bytes);
        return;
    }
    assert(h->slots[id].n_lent > 0);
    h->slots[id].n_lent--;
    const uint64_t us = copy_us(h, h->lent_at_us);
    h->fetch_us += ((int64_t)us - (int64_t)h->fetch_us) / 8;
    count_latency(h, &h->stats.fetch, us);
}

/* The oldest that nobody has been lent makes room. NO_SLOT: all are lent. */
static uint32_t evict(struct host *h)
{
    struct kv_tier_entry *entry = kv_tier_index_oldest(&h->held);
    while (entry && h->slots[entry->value].n_lent > 0)
        entry = kv_tier_index_newer(&h->held, entry);
    if (!entry)
        return NO_SLOT;
    const uint32_t id = (uint32_t)entry->value;
    kv_tier_index_remove(&h->held, entry);
    count(h, &h->stats.evicted);
    return id;
}

/* What is full goes below. */
static bool host_busy(struct kv_tier *t)
{
    return t->below && t->below->ops->busy && t->below->ops->busy(t->below);
}

static void *host_store_begin(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why)
{
    struct host *h = host_of(t);
    struct kv_tier_entry *entry = kv_tier_index_find(&h->held, 0, key);
    if (why == KV_TIER_FULL)
        return t->below ? t->below->ops->store_begin(t->below, key, why) : NULL;
    if (entry) {
        kv_tier_index_touch(&h->held, entry);
        return NULL;
    }
    uint32_t id = h->free;
    if (id != NO_SLOT)
        h->free = h->slots[id].next;
    else
        id = evict(h);
    if (id == NO_SLOT) {
        count(h, &h->stats.dropped);
        return NULL;
    }
    h->slots[id].state = SLOT_FILLING;
    h->slots[id].since_us = clock_us();
    return bytes_of(h, id);
}

static void host_store(struct kv_tier *t, const struct kv_tier_block *b, void *bytes)
{
    struct host *h = host_of(t);
    const uint32_t id = slot_of(h, bytes), n = h->cfg.block_tokens;
    if (id == NO_SLOT) {
        t->below->ops->store(t->below, b, bytes);
        return;
    }
    assert(h->slots[id].state == SLOT_FILLING);
    if (kv_tier_index_find(&h->held, 0, &b->key)) { /* it came twice in between */
        free_slot(h, id);
        return;
    }
    h->slots[id].state = SLOT_HELD;
    h->slots[id].parent = b->parent;
    memcpy(h->tokens + (size_t)id * n, b->tokens, n * sizeof *b->tokens);
    kv_tier_index_put(&h->held, 0, &b->key, id);
    count(h, &h->stats.stored);
    count_latency(h, &h->stats.store, copy_us(h, h->slots[id].since_us));
}

static void host_store_abandon(struct kv_tier *t, const struct kv_key *key, void *bytes)
{
    struct host *h = host_of(t);
    const uint32_t id = slot_of(h, bytes);
    if (id == NO_SLOT) {
        t->below->ops->store_abandon(t->below, key, bytes);
        return;
    }
    assert(h->slots[id].state == SLOT_FILLING);
    free_slot(h, id);
    count(h, &h->stats.dropped);
}

static void host_stats(struct kv_tier *t, struct kv_tier_stats *out)
{
    struct host *h = host_of(t);
    pthread_mutex_lock(&h->mutex);
    *out = h->stats;
    pthread_mutex_unlock(&h->mutex);
}

static void host_free(struct host *h)
{
    kv_tier_index_deinit(&h->held);
    pthread_mutex_destroy(&h->mutex);
    if (h->memory && h->cfg.free)
        h->cfg.free(h->cfg.alloc_ctx, h->memory);
    else
        free(h->memory);
    free(h->slots);
    free(h->tokens);
    free(h);
}

static void host_destroy(struct kv_tier *t)
{
    if (t->below)
        t->below->ops->destroy(t->below);
    host_free(host_of(t));
}

static const struct kv_tier_ops host_ops = {
    .name = "host",
    .has = host_has,
    .used = host_used,
    .estimate_us = host_estimate_us,
    .fetch = host_fetch,
    .poll = host_poll,
    .release = host_release,
    .busy = host_busy,
    .store_begin = host_store_begin,
    .store = host_store,
    .store_abandon = host_store_abandon,
    .stats = host_stats,
    .destroy = host_destroy,
};

/* Of the kind that moves without the host, if the system gives so much of it. */
static bool alloc_blocks(struct host *h, size_t n_bytes)
{
    h->memory = h->cfg.alloc ? h->cfg.alloc(h->cfg.alloc_ctx, n_bytes) : NULL;
    if (h->memory)
        return true;
    if (h->cfg.alloc)
        log_warn(
            "host-cache: %zu MiB of pinned memory were refused: ordinary memory is used, which "
            "moves more slowly",
            n_bytes >> 20);
    h->cfg.free = NULL;
    h->memory = mem_aligned(n_bytes);
    return h->memory != NULL;
}

static enum err alloc(struct host *h, struct err_info *e)
{
    size_t n_bytes;
    bool ok = mem_mul(h->n_slots, h->stride, &n_bytes) &&
              (h->slots = calloc(h->n_slots, sizeof *h->slots)) &&
              (h->tokens = calloc((size_t)h->n_slots * h->cfg.block_tokens, sizeof *h->tokens)) &&
              alloc_blocks(h, n_bytes);
    if (!ok)
        return err_set(e,
                       ERR_NOMEM,
                       "host-cache: no memory for %u blocks of %zu bytes",
                       h->n_slots,
                       h->cfg.block_bytes);
    h->free = NO_SLOT;
    for (uint32_t i = h->n_slots; i-- > 0;)
        free_slot(h, i);
    return kv_tier_index_init(&h->held, h->n_slots, e);
}

enum err kv_host_open(const struct kv_host_config *cfg, struct kv_tier **out, struct err_info *e)
{
    size_t stride;
    *out = NULL;
    if (cfg->block_tokens == 0 || cfg->block_bytes == 0 ||
        !mem_add(cfg->block_bytes, ALIGN_BYTES - 1, &stride))
        return err_set(e,
                       ERR_INVALID,
                       "host-cache: a block of %u tokens and %zu bytes cannot be kept",
                       cfg->block_tokens,
                       cfg->block_bytes);
    stride = stride / ALIGN_BYTES * ALIGN_BYTES;
    if (cfg->max_bytes < stride)
        return err_set(e,
                       ERR_INVALID,
                       "host-cache: %llu bytes hold not one block of %zu",
                       (unsigned long long)cfg->max_bytes,
                       stride);
    struct host *h = mem_zalloc(1, sizeof *h);
    const uint64_t n = cfg->max_bytes / stride;
    h->tier = (struct kv_tier){.ops = &host_ops, .most_asked = cfg->move_us ? 2 : 1};
    h->cfg = *cfg;
    h->stride = stride;
    h->n_slots = n > MAX_SLOTS ? MAX_SLOTS : (uint32_t)n;
    h->fetch_us = 1 + cfg->block_bytes / FIRST_BYTES_PER_US;
    h->stats = (struct kv_tier_stats){
        .on = true, .writes = true, .max_bytes = (uint64_t)h->n_slots * cfg->block_bytes};
    pthread_mutex_init(&h->mutex, NULL);
    enum err err = alloc(h, e);
    if (err) {
        host_free(h);
        return err;
    }
    h->tier.below = cfg->below;
    *out = &h->tier;
    return OK;
}
