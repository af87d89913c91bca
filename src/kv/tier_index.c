#include "kv/tier_index.h"

#include "base/seed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NONE UINT32_MAX

enum err kv_tier_index_init(struct kv_tier_index *ix, uint32_t cap, struct err_info *e)
{
    uint32_t n_buckets = 16;
    while (n_buckets < cap && n_buckets < UINT32_MAX / 2 + 1)
        n_buckets *= 2;
    *ix = (struct kv_tier_index){.mask = n_buckets - 1,
                                 .cap = cap,
                                 .oldest = NONE,
                                 .newest = NONE,
                                 .cold = NONE,
                                 .free = cap ? 0 : NONE};
    ix->entries = calloc(cap ? cap : 1, sizeof *ix->entries);
    ix->buckets = malloc(n_buckets * sizeof *ix->buckets);
    if (!ix->entries || !ix->buckets) {
        kv_tier_index_deinit(ix);
        return err_set(e, ERR_NOMEM, "no memory for an index of %u segments", cap);
    }
    ix->seed = seed_random();
    memset(ix->buckets, 0xff, n_buckets * sizeof *ix->buckets); /* NONE */
    for (uint32_t i = 0; i < cap; i++)
        ix->entries[i].next = i + 1 < cap ? i + 1 : NONE;
    return OK;
}

void kv_tier_index_deinit(struct kv_tier_index *ix)
{
    free(ix->entries);
    free(ix->buckets);
    *ix = (struct kv_tier_index){0};
}

enum err kv_tier_index_copy(const struct kv_tier_index *from,
                            uint32_t cap,
                            struct kv_tier_index *out,
                            struct err_info *e)
{
    enum err err = kv_tier_index_init(out, cap, e);
    if (err)
        return err;
    for (uint32_t i = from->oldest; i != NONE; i = from->entries[i].newer) {
        const struct kv_tier_entry *entry = &from->entries[i];
        kv_tier_index_put(out, entry->model, &entry->key, entry->value);
        if (i == from->cold)
            out->cold = out->newest;
    }
    return OK;
}

static uint32_t *bucket_of(const struct kv_tier_index *ix, uint64_t model, const struct kv_key *key)
{
    uint64_t hash = XXH3_64bits_withSeed(key->bytes, sizeof key->bytes, ix->seed ^ model);
    return &ix->buckets[hash & ix->mask];
}

struct kv_tier_entry *kv_tier_index_find(const struct kv_tier_index *ix,
                                         uint64_t model,
                                         const struct kv_key *key)
{
    for (uint32_t i = *bucket_of(ix, model, key); i != NONE; i = ix->entries[i].next) {
        struct kv_tier_entry *entry = &ix->entries[i];
        if (entry->model == model && kv_key_equal(&entry->key, key))
            return entry;
    }
    return NULL;
}

/* Behind `older`, which is NONE for the oldest. */
static void list_insert(struct kv_tier_index *ix, struct kv_tier_entry *entry, uint32_t older)
{
    const uint32_t id = (uint32_t)(entry - ix->entries);
    const uint32_t newer = older == NONE ? ix->oldest : ix->entries[older].newer;
    entry->older = older;
    entry->newer = newer;
    *(older == NONE ? &ix->oldest : &ix->entries[older].newer) = id;
    *(newer == NONE ? &ix->newest : &ix->entries[newer].older) = id;
}

static void list_unlink(struct kv_tier_index *ix, const struct kv_tier_entry *entry)
{
    if (ix->cold == (uint32_t)(entry - ix->entries))
        ix->cold = entry->older;
    *(entry->older == NONE ? &ix->oldest : &ix->entries[entry->older].newer) = entry->newer;
    *(entry->newer == NONE ? &ix->newest : &ix->entries[entry->newer].older) = entry->older;
}

void kv_tier_index_put(struct kv_tier_index *ix,
                       uint64_t model,
                       const struct kv_key *key,
                       uint64_t value)
{
    struct kv_tier_entry *entry = kv_tier_index_find(ix, model, key);
    if (entry) {
        entry->value = value;
        kv_tier_index_touch(ix, entry);
        return;
    }
    assert(ix->n < ix->cap);
    uint32_t *bucket = bucket_of(ix, model, key), id = ix->free;
    entry = &ix->entries[id];
    ix->free = entry->next;
    entry->key = *key;
    entry->model = model;
    entry->value = value;
    entry->next = *bucket;
    *bucket = id;
    ix->n++;
    list_insert(ix, entry, ix->newest);
}

void kv_tier_index_touch(struct kv_tier_index *ix, struct kv_tier_entry *entry)
{
    list_unlink(ix, entry);
    list_insert(ix, entry, ix->newest);
}

void kv_tier_index_follow(struct kv_tier_index *ix,
                          struct kv_tier_entry *entry,
                          const struct kv_tier_entry *newer)
{
    list_unlink(ix, entry);
    list_insert(ix, entry, newer->older);
}

void kv_tier_index_cool(struct kv_tier_index *ix, struct kv_tier_entry *entry)
{
    list_unlink(ix, entry);
    list_insert(ix, entry, ix->cold);
    ix->cold = (uint32_t)(entry - ix->entries);
}

void kv_tier_index_remove(struct kv_tier_index *ix, struct kv_tier_entry *entry)
{
    uint32_t id = (uint32_t)(entry - ix->entries);
    uint32_t *at = bucket_of(ix, entry->model, &entry->key);
    while (*at != id)
        at = &ix->entries[*at].next;
    *at = entry->next;
    list_unlink(ix, entry);
    entry->next = ix->free;
    ix->free = id;
    ix->n--;
}

struct kv_tier_entry *kv_tier_index_oldest(const struct kv_tier_index *ix)
{
    return ix->oldest == NONE ? NULL : &ix->entries[ix->oldest];
}

struct kv_tier_entry *kv_tier_index_newer(const struct kv_tier_index *ix,
                                          const struct kv_tier_entry *entry)
{
    return entry->newer == NONE ? NULL : &ix->entries[entry->newer];
}
