#include "sim/fake_tier.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 64, MAX_BUFFERS = 6 };

struct entry {
    bool used;
    bool cursed; /* said to be there, never given */
    struct kv_key key, parent;
    int32_t *tokens;
    uint8_t *bytes;
};

struct job {
    uint64_t ticket;
    uint8_t *buffer;
    bool found;
    uint32_t delay; /* polls */
};

struct fake_tier {
    struct kv_tier base;
    uint32_t block_tokens;
    size_t block_bytes;
    uint32_t (*below)(uint32_t n);
    struct entry entries[MAX_ENTRIES];
    uint8_t *buffers[MAX_BUFFERS];
    bool busy[MAX_BUFFERS];
    struct job jobs[MAX_BUFFERS];
    uint32_t n_jobs;
    bool broken, silent;
    uint64_t n_fetched;
};

static struct entry *find(struct fake_tier *f, const struct kv_key *key)
{
    for (uint32_t i = 0; i < MAX_ENTRIES; i++)
        if (f->entries[i].used && kv_key_equal(&f->entries[i].key, key))
            return &f->entries[i];
    return NULL;
}

static uint8_t *take_buffer(struct fake_tier *f)
{
    for (uint32_t i = 0; i < MAX_BUFFERS; i++)
        if (!f->busy[i]) {
            f->busy[i] = true;
            return f->buffers[i];
        }
    return NULL;
}

static void give_buffer(struct fake_tier *f, const void *bytes)
{
    for (uint32_t i = 0; i < MAX_BUFFERS; i++)
        if (f->buffers[i] == bytes && f->busy[i]) {
            f->busy[i] = false;
            return;
        }
    fprintf(stderr, "fake tier: a buffer was given back twice\n");
    abort();
}

static uint32_t has(struct kv_tier *t, const struct kv_key *key)
{
    struct fake_tier *f = (struct fake_tier *)t;
    return !f->broken && find(f, key);
}

static void used(struct kv_tier *t, const struct kv_key *key, enum kv_tier_use use)
{
    (void)t;
    (void)key;
    (void)use;
}

static uint64_t estimate_us(struct kv_tier *t, uint32_t n)
{
    struct fake_tier *f = (struct fake_tier *)t;
    return f->below(4) ? 0 : (uint64_t)n * f->below(1000);
}

static bool fetch(struct kv_tier *t, const struct kv_tier_block *b, uint64_t ticket)
{
    struct fake_tier *f = (struct fake_tier *)t;
    uint8_t *buffer = f->broken ? NULL : take_buffer(f);
    if (!buffer)
        return false;
    const struct entry *e = find(f, &b->key);
    struct job *job = &f->jobs[f->n_jobs++];
    *job = (struct job){.ticket = ticket, .buffer = buffer, .delay = f->below(6)};
    job->found = e && !e->cursed && f->below(16) > 0;
    if (!job->found)
        return true;
    if (memcmp(e->tokens, b->tokens, f->block_tokens * sizeof *e->tokens) != 0 ||
        !kv_key_equal(&e->parent, &b->parent)) {
        fprintf(stderr, "fake tier: a key stands for two texts\n");
        abort();
    }
    memcpy(buffer, e->bytes, f->block_bytes);
    return true;
}

static bool poll(struct kv_tier *t, struct kv_tier_done *out)
{
    struct fake_tier *f = (struct fake_tier *)t;
    if (f->n_jobs == 0 || f->silent || f->jobs[0].delay-- > 0)
        return false;
    struct job job = f->jobs[0];
    memmove(f->jobs, f->jobs + 1, --f->n_jobs * sizeof f->jobs[0]);
    *out = (struct kv_tier_done){.ticket = job.ticket, .bytes = job.found ? job.buffer : NULL};
    if (!job.found)
        give_buffer(f, job.buffer);
    f->n_fetched += job.found;
    return true;
}

static void release(struct kv_tier *t, const void *bytes)
{
    give_buffer((struct fake_tier *)t, bytes);
}

/* Now and then it says so though it is not. */
static bool busy(struct kv_tier *t)
{
    struct fake_tier *f = (struct fake_tier *)t;
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_BUFFERS; i++)
        n += f->busy[i];
    return !f->broken && (n == MAX_BUFFERS || f->below(4) == 0);
}

static void *store_begin(struct kv_tier *t, const struct kv_key *key, enum kv_tier_reason why)
{
    (void)why;
    struct fake_tier *f = (struct fake_tier *)t;
    return f->broken || find(f, key) || f->below(8) == 0 ? NULL : take_buffer(f);
}

static void store(struct kv_tier *t, const struct kv_tier_block *b, void *bytes)
{
    struct fake_tier *f = (struct fake_tier *)t;
    struct entry *e = &f->entries[f->below(MAX_ENTRIES)]; /* whoever was there is forgotten */
    e->used = true;
    e->cursed = f->below(10) == 0;
    e->key = b->key;
    e->parent = b->parent;
    memcpy(e->tokens, b->tokens, f->block_tokens * sizeof *e->tokens);
    memcpy(e->bytes, bytes, f->block_bytes);
    give_buffer(f, bytes);
}

static void store_abandon(struct kv_tier *t, const struct kv_key *key, void *bytes)
{
    (void)key;
    give_buffer((struct fake_tier *)t, bytes);
}

static void stats(struct kv_tier *t, struct kv_tier_stats *out)
{
    *out = (struct kv_tier_stats){.on = !((struct fake_tier *)t)->broken};
}

/* Whoever made it ends it, with fake_tier_destroy. */
static void destroy(struct kv_tier *t)
{
    (void)t;
}

static const struct kv_tier_ops ops = {.name = "fake",
                                       .has = has,
                                       .used = used,
                                       .estimate_us = estimate_us,
                                       .fetch = fetch,
                                       .poll = poll,
                                       .release = release,
                                       .busy = busy,
                                       .store_begin = store_begin,
                                       .store = store,
                                       .store_abandon = store_abandon,
                                       .stats = stats,
                                       .destroy = destroy};

struct fake_tier *fake_tier_create(uint32_t block_tokens,
                                   size_t block_bytes,
                                   uint32_t (*below)(uint32_t n))
{
    struct fake_tier *f = mem_zalloc(1, sizeof *f);
    f->base.ops = &ops;
    f->block_tokens = block_tokens;
    f->block_bytes = block_bytes;
    f->below = below;
    for (uint32_t i = 0; i < MAX_BUFFERS; i++)
        f->buffers[i] = mem_alloc(block_bytes);
    for (uint32_t i = 0; i < MAX_ENTRIES; i++) {
        f->entries[i].tokens = mem_alloc(block_tokens * sizeof(int32_t));
        f->entries[i].bytes = mem_alloc(block_bytes);
    }
    return f;
}

struct kv_tier *fake_tier_base(struct fake_tier *f)
{
    return &f->base;
}

void fake_tier_break(struct fake_tier *f)
{
    f->broken = true;
}

void fake_tier_hush(struct fake_tier *f)
{
    f->silent = true;
}

uint64_t fake_tier_n_fetched(const struct fake_tier *f)
{
    return f->n_fetched;
}

void fake_tier_destroy(struct fake_tier *f)
{
    for (uint32_t i = 0; f && i < MAX_BUFFERS; i++)
        free(f->buffers[i]);
    for (uint32_t i = 0; f && i < MAX_ENTRIES; i++) {
        free(f->entries[i].tokens);
        free(f->entries[i].bytes);
    }
    free(f);
}
