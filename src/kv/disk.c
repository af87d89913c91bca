/* The engine's side of the disk tier: buffers, queues, and what is known. Everything here is short
 * work under one mutex; disk_io.c does the rest. */
#include "kv/disk.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kv/disk_files.h"
#include "kv/disk_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MIN_SLOTS = 4,
    MAX_SLOTS = 1 << 20,
    ALIGN_BYTES = 64,
    STOP_US = 5000000,
    /* what a read is taken to cost before the first one: this and 400 MB/s */
    FIRST_READ_US = 100,
    FIRST_BYTES_PER_US = 400,
};

static struct disk *disk_of(struct kv_tier *t)
{
    return (struct disk *)t;
}

/* --- slots and queues ------------------------------------------------------------------------- */

void disk_ring_push(struct ring *r, uint32_t id)
{
    assert(r->n < r->cap);
    r->ids[(r->head + r->n++) % r->cap] = id;
}

uint32_t disk_ring_pop(struct ring *r)
{
    assert(r->n > 0);
    uint32_t id = r->ids[r->head];
    r->head = (r->head + 1) % r->cap;
    r->n--;
    return id;
}

void disk_slot_free(struct disk *d, uint32_t id)
{
    struct slot *s = &d->slots[id];
    if (s->state == SLOT_FILLING || s->state == SLOT_STORE)
        d->n_storing--;
    s->state = SLOT_FREE;
    disk_ring_push(&d->idle, id);
}

/* The slot whose buffer this is. */
static uint32_t slot_of(const struct disk *d, const void *bytes)
{
    size_t offset = (size_t)((const uint8_t *)bytes - d->memory);
    assert(offset % d->stride == 0 && offset / d->stride < d->n_slots);
    return (uint32_t)(offset / d->stride);
}

/* Keep what the caller's block says, tokens included. */
static void slot_describe(struct disk *d, uint32_t id, const struct kv_tier_block *b)
{
    struct slot *s = &d->slots[id];
    int32_t *tokens = d->tokens + (size_t)id * d->block_tokens;
    memcpy(tokens, b->tokens, d->block_tokens * sizeof *tokens);
    s->segment = (struct kv_segment){.fingerprint = d->fingerprint,
                                     .parent = b->parent,
                                     .key = b->key,
                                     .tokens = tokens,
                                     .n_tokens = d->block_tokens,
                                     .payload_bytes = d->block_bytes};
}

const struct slot *disk_queued(const struct disk *d, const struct kv_key *key)
{
    const struct kv_tier_entry *entry = kv_tier_index_find(&d->pending, d->model, key);
    const struct slot *s = entry ? &d->slots[entry->value] : NULL;
    return s && s->state == SLOT_STORE ? s : NULL;
}

static void drop_unreadable(struct disk *d, uint32_t i)
{
    d->n_unreadable--;
    memmove(
        &d->unreadable[i], &d->unreadable[i + 1], (d->n_unreadable - i) * sizeof *d->unreadable);
}

/* Where it is, or n_unreadable. */
static uint32_t find_unreadable(const struct disk *d, const struct kv_key *key)
{
    uint32_t i = 0;
    while (i < d->n_unreadable && !kv_key_equal(&d->unreadable[i], key))
        i++;
    return i;
}

bool disk_holds(const struct disk *d, const struct kv_key *key)
{
    return kv_tier_index_find(&d->held, d->model, key) &&
           find_unreadable(d, key) == d->n_unreadable;
}

void disk_forgive(struct disk *d, const struct kv_key *key)
{
    const uint32_t i = find_unreadable(d, key);
    if (i < d->n_unreadable)
        drop_unreadable(d, i);
}

bool disk_set_aside(struct disk *d, const struct kv_key *key)
{
    const bool was = find_unreadable(d, key) < d->n_unreadable;
    disk_forgive(d, key);
    if (d->n_unreadable == DISK_MAX_FAILED_READS)
        drop_unreadable(d, 0);
    d->unreadable[d->n_unreadable++] = *key;
    return was;
}

/* --- the operations --------------------------------------------------------------------------- */

static uint32_t disk_has(struct kv_tier *t, const struct kv_key *key)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    bool has = d->reads && (disk_holds(d, key) || disk_queued(d, key));
    pthread_mutex_unlock(&d->mutex);
    return has;
}

/* However: it is the newest now. The file's time stays, for that would be a call of the system. */
static void disk_used(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use)
{
    (void)use;
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    struct kv_tier_entry *entry =
        d->writes && !d->growing ? kv_tier_index_find(&d->held, d->model, key) : NULL;
    if (entry)
        kv_tier_index_touch(&d->held, entry);
    pthread_mutex_unlock(&d->mutex);
}

/* Fetches go first, so of the stores only the one being written stands in the way. */
static uint64_t disk_estimate_us(struct kv_tier *t, uint32_t n)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    uint64_t us = ((uint64_t)n + d->fetches.n + d->fetching) * d->fetch_us;
    if (d->storing)
        us += d->store_us;
    pthread_mutex_unlock(&d->mutex);
    return us;
}

static bool disk_fetch(struct kv_tier *t, const struct kv_tier_block *b, uint64_t ticket)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    bool can = d->reads && d->idle.n > 0;
    if (can) {
        uint32_t id = disk_ring_pop(&d->idle);
        slot_describe(d, id, b);
        d->slots[id].state = SLOT_FETCH;
        d->slots[id].ticket = ticket;
        disk_ring_push(&d->fetches, id);
        pthread_cond_signal(&d->work);
    }
    pthread_mutex_unlock(&d->mutex);
    return can;
}

static bool disk_poll(struct kv_tier *t, struct kv_tier_done *out)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    bool any = d->done.n > 0;
    if (any) {
        uint32_t id = disk_ring_pop(&d->done);
        struct slot *s = &d->slots[id];
        *out = (struct kv_tier_done){.ticket = s->ticket, .bytes = s->found ? s->bytes : NULL};
        if (s->found)
            s->state = SLOT_LENT;
        else
            disk_slot_free(d, id);
    }
    pthread_mutex_unlock(&d->mutex);
    return any;
}

static void disk_release(struct kv_tier *t, const void *bytes)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    uint32_t id = slot_of(d, bytes);
    assert(d->slots[id].state == SLOT_LENT);
    disk_slot_free(d, id);
    pthread_mutex_unlock(&d->mutex);
}

/* The mutex is held. */
static bool has_no_buffer(const struct disk *d)
{
    return d->idle.n == 0 || d->n_storing == d->max_stores;
}

static bool disk_busy(struct kv_tier *t)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    const bool busy = d->writes && has_no_buffer(d);
    d->awaited |= busy;
    pthread_mutex_unlock(&d->mutex);
    return busy;
}

static void *disk_store_begin(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why)
{
    (void)why; /* the sooner it is written the better */
    struct disk *d = disk_of(t);
    void *bytes = NULL;
    pthread_mutex_lock(&d->mutex);
    bool wanted =
        d->writes && !disk_holds(d, key) && !kv_tier_index_find(&d->pending, d->model, key);
    if (wanted && has_no_buffer(d)) {
        d->stats.dropped++;
    } else if (wanted) {
        uint32_t id = disk_ring_pop(&d->idle);
        d->slots[id].state = SLOT_FILLING;
        d->n_storing++;
        kv_tier_index_put(&d->pending, d->model, key, id);
        bytes = d->slots[id].bytes;
    }
    pthread_mutex_unlock(&d->mutex);
    return bytes;
}

static void disk_store(struct kv_tier *t, const struct kv_tier_block *b, void *bytes)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    uint32_t id = slot_of(d, bytes);
    assert(d->slots[id].state == SLOT_FILLING);
    assert(kv_tier_index_find(&d->pending, d->model, &b->key)->value == id);
    slot_describe(d, id, b);
    d->slots[id].state = SLOT_STORE;
    disk_ring_push(&d->stores, id);
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->mutex);
}

static void disk_store_abandon(struct kv_tier *t, const struct kv_key *key, void *bytes)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    const uint32_t id = slot_of(d, bytes);
    struct kv_tier_entry *entry = kv_tier_index_find(&d->pending, d->model, key);
    assert(d->slots[id].state == SLOT_FILLING && entry && entry->value == id);
    kv_tier_index_remove(&d->pending, entry);
    disk_slot_free(d, id);
    d->stats.dropped++;
    pthread_mutex_unlock(&d->mutex);
}

static void disk_stats(struct kv_tier *t, struct kv_tier_stats *out)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    *out = d->stats;
    out->on = d->reads;
    out->writes = d->writes;
    out->entries = d->reads ? d->n_own : 0;
    out->ignored = d->ignored_found + d->ignored_met;
    pthread_mutex_unlock(&d->mutex);
}

static void disk_free(struct disk *d)
{
    if (d->root >= 0)
        close(d->root);
    if (d->lock >= 0)
        close(d->lock);
    kv_tier_index_deinit(&d->held);
    kv_tier_index_deinit(&d->pending);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->mutex);
    free(d->idle.ids);
    free(d->fetches.ids);
    free(d->stores.ids);
    free(d->done.ids);
    free(d->slots);
    free(d->tokens);
    if (d->memory && d->free_memory)
        d->free_memory(d->alloc_ctx, d->memory);
    else
        free(d->memory);
    free(d->about);
    free(d->dir);
    free(d);
}

static void disk_destroy(struct kv_tier *t)
{
    struct disk *d = disk_of(t);
    pthread_mutex_lock(&d->mutex);
    d->stopping = true;
    d->stop_before_us = clock_us() + STOP_US;
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->mutex);
    pthread_join(d->thread, NULL);
    disk_free(d);
}

static const struct kv_tier_ops disk_ops = {
    .name = "disk",
    .has = disk_has,
    .used = disk_used,
    .estimate_us = disk_estimate_us,
    .fetch = disk_fetch,
    .poll = disk_poll,
    .release = disk_release,
    .busy = disk_busy,
    .store_begin = disk_store_begin,
    .store = disk_store,
    .store_abandon = disk_store_abandon,
    .stats = disk_stats,
    .destroy = disk_destroy,
};

/* --- opening ---------------------------------------------------------------------------------- */

static enum err check_config(const struct kv_disk_config *cfg, struct err_info *e)
{
    size_t fits;
    if (cfg->block_tokens == 0 || cfg->block_tokens > KV_SEGMENT_MAX_TOKENS ||
        cfg->block_bytes == 0 || !mem_add(cfg->block_bytes, 1 << 20, &fits))
        return err_set(e,
                       ERR_INVALID,
                       "a block of %u tokens and %zu bytes cannot be stored",
                       cfg->block_tokens,
                       cfg->block_bytes);
    uint64_t least = kv_segment_bytes(cfg->block_tokens, cfg->block_bytes);
    if (cfg->max_bytes < least)
        return err_set(e,
                       ERR_INVALID,
                       "a disk cache of %llu bytes holds not one block of %llu",
                       (unsigned long long)cfg->max_bytes,
                       (unsigned long long)least);
    return OK;
}

static bool ring_init(struct ring *r, uint32_t cap)
{
    r->cap = cap;
    r->ids = malloc(cap * sizeof *r->ids);
    return r->ids != NULL;
}

/* Of the kind that moves without the host, if there is any left. */
static bool alloc_buffers(struct disk *d, const struct kv_disk_config *cfg)
{
    size_t n_bytes;
    if (!mem_mul(d->n_slots, d->stride, &n_bytes))
        return false;
    if (cfg->alloc && (d->memory = cfg->alloc(cfg->alloc_ctx, n_bytes)) != NULL)
        d->free_memory = cfg->free;
    else
        d->memory = mem_aligned(n_bytes);
    return d->memory != NULL;
}

static enum err slots_init(struct disk *d, const struct kv_disk_config *cfg, struct err_info *e)
{
    uint64_t n = cfg->buffer_bytes / d->block_bytes;
    d->n_slots = n < MIN_SLOTS ? MIN_SLOTS : n > MAX_SLOTS ? MAX_SLOTS : (uint32_t)n;
    d->max_stores = d->n_slots / 2;
    d->stride = (d->block_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    bool ok = alloc_buffers(d, cfg) &&
              (d->tokens = malloc((size_t)d->n_slots * d->block_tokens * sizeof *d->tokens)) &&
              (d->slots = calloc(d->n_slots, sizeof *d->slots)) &&
              ring_init(&d->idle, d->n_slots) && ring_init(&d->fetches, d->n_slots) &&
              ring_init(&d->stores, d->n_slots) && ring_init(&d->done, d->n_slots);
    if (!ok)
        return err_set(e,
                       ERR_NOMEM,
                       "no memory for %u buffers of %zu bytes between KV memory and disk",
                       d->n_slots,
                       d->block_bytes);
    for (uint32_t i = 0; i < d->n_slots; i++) {
        d->slots[i].bytes = d->memory + i * d->stride;
        disk_ring_push(&d->idle, i);
    }
    return kv_tier_index_init(&d->pending, d->n_slots, e);
}

/* With SIGXFSZ blocked too, a limit on the size of files is an error of write here, not the end of
 * the process. */
static enum err start(struct disk *d, struct err_info *e)
{
    int rc = thread_start(&d->thread, disk_thread, d);
    return rc == 0 ? OK : err_set(e, ERR_NOMEM, "no thread for the disk cache: %s", strerror(rc));
}

enum err kv_disk_open(const struct kv_disk_config *cfg, struct kv_tier **out, struct err_info *e)
{
    *out = NULL;
    enum err err = check_config(cfg, e);
    if (err)
        return err;
    struct disk *d = mem_zalloc(1, sizeof *d);
    d->tier.ops = &disk_ops;
    d->dir = mem_strdup(cfg->dir);
    d->about = mem_strdup(cfg->about ? cfg->about : "");
    d->fingerprint = cfg->fingerprint;
    d->model = kv_file_model(&cfg->fingerprint);
    d->block_bytes = cfg->block_bytes;
    d->block_tokens = cfg->block_tokens;
    d->segment_bytes = kv_segment_bytes(cfg->block_tokens, cfg->block_bytes);
    d->max_bytes = d->stats.max_bytes = cfg->max_bytes;
    d->fetch_us = d->store_us = FIRST_READ_US + cfg->block_bytes / FIRST_BYTES_PER_US;
    d->wake = cfg->wake;
    d->wake_ctx = cfg->wake_ctx;
    d->reads = true;
    d->root = d->lock = -1;
    clock_cond_init(&d->work);
    pthread_mutex_init(&d->mutex, NULL);
    d->settle = cfg->settle;
    d->alloc_ctx = cfg->alloc_ctx;
    err = slots_init(d, cfg, e);
    if (!err)
        err = kv_tier_index_init(&d->held, 0, e);
    if (!err)
        err = kv_files_open(cfg->dir, true, &d->root, e);
    if (!err)
        err = disk_scan(d, e);
    if (!err) {
        disk_warn_of_others(d);
        err = start(d, e);
    }
    if (err) {
        disk_free(d);
        return err;
    }
    *out = &d->tier;
    return OK;
}
