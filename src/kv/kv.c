#include "kv/kv.h"

#include "base/mem.h"
#include "kv/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum err create_parts(struct kv *kv, struct err_info *e)
{
    uint32_t n = kv->cfg.n_blocks;
    enum err err = kv_pool_create(n, &kv->pool, e);
    if (err == OK)
        err = kv_prefix_create(n, kv->cfg.block_tokens, &kv->prefix, e);
    if (err != OK)
        return err;
    kv->scratch = calloc(n, 2 * sizeof *kv->scratch);
    if (!kv->scratch)
        return err_set(e, ERR_NOMEM, "no memory to check %u KV blocks", n);
    if (!kv->cfg.tier)
        return OK;
    kv->keys = calloc(n, sizeof *kv->keys);
    return kv->keys ? kv_hasher_create(&kv->hasher, e)
                    : err_set(e, ERR_NOMEM, "no memory to name %u KV blocks", n);
}

enum err kv_create(const struct kv_config *cfg, struct kv **out, struct err_info *e)
{
    *out = NULL;
    if (cfg->n_blocks == 0 || cfg->block_tokens == 0)
        return err_set(e,
                       ERR_INVALID,
                       "KV memory needs blocks and tokens in them, not %u blocks of %u",
                       cfg->n_blocks,
                       cfg->block_tokens);
    struct kv *kv = mem_zalloc(1, sizeof *kv);
    kv->cfg = *cfg;
    kv->next_serial = 1;
    enum err err = create_parts(kv, e);
    if (err != OK) {
        kv_destroy(kv);
        return err;
    }
    *out = kv;
    return OK;
}

void kv_destroy(struct kv *kv)
{
    if (!kv)
        return;
    kv_hasher_destroy(kv->hasher);
    kv_prefix_destroy(kv->prefix);
    kv_pool_destroy(kv->pool);
    free(kv->keys);
    free(kv->scratch);
    free(kv);
}

uint32_t kv_block_tokens(const struct kv *kv)
{
    return kv->cfg.block_tokens;
}

uint32_t kv_blocks_for(const struct kv *kv, uint32_t n_tokens)
{
    return n_tokens / kv->cfg.block_tokens + (n_tokens % kv->cfg.block_tokens != 0);
}

uint32_t kv_available(const struct kv *kv)
{
    struct kv_pool_stats p = kv_pool_stats(kv->pool);
    return p.free + p.cached;
}

struct kv_stats kv_stats(const struct kv *kv)
{
    struct kv_pool_stats p = kv_pool_stats(kv->pool);
    return (struct kv_stats){.total = p.total,
                             .free = p.free,
                             .in_use = p.in_use,
                             .cached = p.cached,
                             .peak_in_use = p.peak_in_use,
                             .published = kv_prefix_n_blocks(kv->prefix),
                             .acquired = p.acquired,
                             .released = p.released,
                             .counts = kv->counts};
}

void kv_count_misses(struct kv *kv, uint32_t n_tokens)
{
    kv->counts.miss_tokens += n_tokens;
}

/* --- tables ---------------------------------------------------------------------------------- */

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

void kv_table_begin(struct kv_table *t,
                    const int32_t *tokens,
                    const struct kv_key *space,
                    bool shares)
{
    assert(t->n_blocks == 0);
    *t = (struct kv_table){.blocks = t->blocks,
                           .max_blocks = t->max_blocks,
                           .tokens = tokens,
                           .space = *space,
                           .shares = shares};
}

uint32_t kv_parent_of(const struct kv_table *t, uint32_t i)
{
    return i > 0 ? t->blocks[i - 1] : KV_ROOT;
}

/* Take back the cached block that was last used longest ago; there is one. */
static void evict(struct kv *kv)
{
    uint32_t id = kv_pool_oldest(kv->pool);
    assert(id != KV_NO_BLOCK);
    kv_store(kv, id); /* a second chance, if there was no room when it was published */
    kv_prefix_remove(kv->prefix, id);
    kv_pool_drop(kv->pool, id);
    kv->counts.evicted++;
}

/* The caller counted: something is available. */
static uint32_t take_block(struct kv *kv)
{
    uint32_t id = kv_pool_acquire(kv->pool);
    if (id == KV_NO_BLOCK) {
        evict(kv);
        id = kv_pool_acquire(kv->pool);
    }
    return id;
}

enum err kv_table_grow(struct kv *kv, struct kv_table *t, uint32_t n_tokens, struct err_info *e)
{
    uint32_t want = kv_blocks_for(kv, n_tokens);
    if (want <= t->n_blocks)
        return OK;
    if (want > t->max_blocks)
        return err_set(
            e, ERR_TOO_LONG, "would need %u blocks, exceeds max %u", want, t->max_blocks);
    uint32_t missing = want - t->n_blocks, available = kv_available(kv);
    if (missing > available)
        return err_set(
            e, ERR_QUEUE_FULL, "exhausted: need %u blocks but only %u free", missing, available);
    while (t->n_blocks < want)
        t->blocks[t->n_blocks++] = take_block(kv);
    return OK;
}

void kv_table_release(struct kv *kv, struct kv_table *t, uint32_t n_computed)
{
    if (kv_fetching(t))
        kv_fetch_end(kv, t);
    kv_publish(kv, t, n_computed, true);
    /* backwards: what continues a block is older than it, and the next table gets free blocks in
     * the same order */
    while (t->n_blocks > 0) {
        uint32_t id = t->blocks[--t->n_blocks];
        if (id == KV_GONE)
            continue;
        kv_pool_unref(kv->pool, id, kv_prefix_n_tokens(kv->prefix, id) > 0);
    }
    t->n_gone = 0;
    t->tokens = NULL;
}

/* Up to which block others need the table's blocks: the first after the last that somebody else
 * holds or continues. */
static uint32_t end_of_shared(const struct kv *kv, const struct kv_table *t)
{
    uint32_t own_children = 0, i = t->n_blocks;
    for (; i > 0 && t->blocks[i - 1] != KV_GONE; i--) {
        uint32_t id = t->blocks[i - 1], n = kv_prefix_n_tokens(kv->prefix, id);
        if (kv_pool_refs(kv->pool, id) > 1 ||
            (n > 0 && kv_prefix_n_children(kv->prefix, id) > own_children))
            break;
        own_children = n > 0;
    }
    return i;
}

/* Out of the index, from the last on, as only a block without children can go. */
static void unpublish(struct kv *kv, struct kv_table *t, uint32_t from)
{
    for (uint32_t i = t->n_blocks; i > from; i--) {
        if (kv_prefix_n_tokens(kv->prefix, t->blocks[i - 1]) == 0)
            continue;
        kv_store(kv, t->blocks[i - 1]); /* a second chance, as before it is evicted */
        kv_prefix_remove(kv->prefix, t->blocks[i - 1]);
    }
    t->shares = false;
}

uint32_t kv_table_trim(struct kv *kv, struct kv_table *t, uint32_t first)
{
    uint32_t end = first / kv->cfg.block_tokens, n = 0;
    if (end > t->n_blocks)
        end = t->n_blocks;
    if (kv_fetching(t) || end == 0 || t->blocks[end - 1] == KV_GONE)
        return 0;
    uint32_t i = end_of_shared(kv, t);
    if (i >= end)
        return 0;
    unpublish(kv, t, i);
    for (; i < end; i++, n++) {
        kv_pool_unref(kv->pool, t->blocks[i], false);
        t->blocks[i] = KV_GONE;
    }
    t->n_gone += n;
    kv->counts.trimmed += n;
    return n;
}

/* --- sharing --------------------------------------------------------------------------------- */

struct kv_peek kv_peek(const struct kv *kv,
                       const struct kv_key *space,
                       const int32_t *tokens,
                       uint32_t n)
{
    uint32_t size = kv->cfg.block_tokens, parent = KV_ROOT;
    struct kv_peek found = {0};
    for (uint32_t at = 0; at + size < n; at += size) {
        uint32_t id;
        if (kv_prefix_best(kv->prefix, parent, space, tokens + at, size, &id) < size)
            break;
        found.n_blocks++;
        found.n_cached += kv_pool_state(kv->pool, id) == KV_CACHED;
        parent = id;
    }
    return found;
}

/* The block that has the next `common` tokens, for this table to go on in; false without room. */
static bool take_part(struct kv *kv, struct kv_table *t, uint32_t id, uint32_t common)
{
    bool idle = kv_pool_state(kv->pool, id) == KV_CACHED;
    if (idle && kv_prefix_n_tokens(kv->prefix, id) == common && common < kv->cfg.block_tokens) {
        kv_pool_ref(kv->pool, id);
        t->blocks[t->n_blocks++] = id;
        return true;
    }
    kv_pool_touch(kv->pool, id); /* so that making room evicts it last */
    if (kv_available(kv) <= (idle ? 1 : 0))
        return false;
    uint32_t copy = take_block(kv);
    kv->cfg.mover.copy(kv->cfg.mover.ctx, id, copy);
    t->blocks[t->n_blocks++] = copy;
    kv->counts.copied++;
    return true;
}

/* Attached up to n: what lies there is published, or need not be yet. */
static uint32_t note_attached(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n)
{
    t->n_published = n - n % kv->cfg.block_tokens;
    t->n_attached += n - n_computed;
    kv->counts.hit_tokens += n - n_computed;
    return n;
}

static bool can_attach(const struct kv *kv, const struct kv_table *t, uint32_t n_computed)
{
    return t->shares && n_computed % kv->cfg.block_tokens == 0 &&
           n_computed / kv->cfg.block_tokens == t->n_blocks;
}

uint32_t kv_attach(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known)
{
    uint32_t size = kv->cfg.block_tokens, n = n_computed, id;
    if (!can_attach(kv, t, n_computed))
        return n_computed;
    for (; n + size < n_known && t->n_blocks < t->max_blocks; n += size) {
        uint32_t parent = kv_parent_of(t, t->n_blocks);
        if (kv_prefix_best(kv->prefix, parent, &t->space, t->tokens + n, size, &id) < size)
            break;
        kv_pool_ref(kv->pool, id);
        t->blocks[t->n_blocks++] = id;
    }
    return note_attached(kv, t, n_computed, n);
}

uint32_t kv_attach_part(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known)
{
    uint32_t size = kv->cfg.block_tokens, id;
    if (!can_attach(kv, t, n_computed) || n_computed + 1 >= n_known || t->n_blocks == t->max_blocks)
        return n_computed;
    uint32_t most = n_known - 1 - n_computed < size ? n_known - 1 - n_computed : size;
    uint32_t parent = kv_parent_of(t, t->n_blocks);
    const int32_t *tokens = t->tokens + n_computed;
    uint32_t common = kv_prefix_best(kv->prefix, parent, &t->space, tokens, most, &id);
    if (common == 0 || !take_part(kv, t, id, common))
        return n_computed;
    return note_attached(kv, t, n_computed, n_computed + common);
}

void kv_publish_block(struct kv *kv, struct kv_table *t, uint32_t i, uint32_t n)
{
    uint32_t id = t->blocks[i], parent = kv_parent_of(t, i), size = kv->cfg.block_tokens;
    const int32_t *tokens = t->tokens + (size_t)i * size;
    uint32_t already = kv_prefix_n_tokens(kv->prefix, id);
    if (already == n)
        return;
    if (already > 0)
        kv_prefix_remove(kv->prefix, id);
    uint32_t other;
    if (kv_prefix_best(kv->prefix, parent, &t->space, tokens, n, &other) < n) {
        kv_prefix_insert(kv->prefix, parent, &t->space, id, tokens, n);
        if (n == size && kv->cfg.tier) {
            kv_name_block(kv, t, i);
            kv_store(kv, id);
        }
    } else if (n == size) { /* computed twice: equal tokens have equal bits, one copy is enough */
        kv_pool_ref(kv->pool, other);
        kv_pool_unref(kv->pool, id, false);
        t->blocks[i] = other;
        kv->counts.merged++;
    }
}

void kv_publish(struct kv *kv, struct kv_table *t, uint32_t n_computed, bool tail)
{
    uint32_t size = kv->cfg.block_tokens;
    if (!t->shares)
        return;
    assert(n_computed <= (uint64_t)t->n_blocks * size);
    for (; t->n_published + size <= n_computed; t->n_published += size)
        kv_publish_block(kv, t, t->n_published / size, size);
    if (tail && n_computed > t->n_published)
        kv_publish_block(kv, t, t->n_published / size, n_computed - t->n_published);
}
