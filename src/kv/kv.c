#include "kv/kv.h"

#include "base/mem.h"
#include "kv/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum err create_parts(struct kv *kv, struct err_info *e)
{
    uint32_t n = kv->cfg.n_blocks;
    enum err err = kv_pool_create(n, "KV block", &kv->pool, e);
    if (err == OK)
        err = kv_prefix_create(n, kv->cfg.block_tokens, &kv->prefix, e);
    if (err == OK)
        err = kv_leaving_init(&kv->leaving, n, e);
    if (err == OK)
        err = kv_panes_create(kv, e);
    if (err == OK)
        err = kv_states_create(kv, e);
    if (err != OK)
        return err;
    kv->scratch = calloc((size_t)2 * n + kv->cfg.n_panes + kv->cfg.n_states, sizeof *kv->scratch);
    if (!kv->scratch)
        return err_set(e, ERR_NOMEM, "no memory to check %u KV blocks", n);
    if (!kv->cfg.tier)
        return OK;
    kv->keys = calloc(n, sizeof *kv->keys);
    kv->run = calloc(n, sizeof *kv->run);
    err = kv->keys && kv->run ? kv_waiting_init(kv, e)
                              : err_set(e, ERR_NOMEM, "no memory to name %u KV blocks", n);
    return err == OK ? kv_hasher_create(&kv->hasher, e) : err;
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
    if ((cfg->window == 0) != (cfg->n_panes == 0))
        return err_set(e,
                       ERR_INVALID,
                       "KV memory with a window of %u positions and %u panes",
                       cfg->window,
                       cfg->n_panes);
    if (cfg->n_states > 0 && (cfg->window > 0 || cfg->tier))
        return err_set(
            e, ERR_INVALID, "KV memory with states has neither a window nor a tier below it");
    struct kv *kv = mem_zalloc(1, sizeof *kv);
    kv->cfg = *cfg;
    kv->next_serial = 1;
    kv->moves_left = cfg->most_moves;
    kv->panes_leaving.oldest = kv->states_leaving.oldest = KV_NO_BLOCK;
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
    kv_panes_destroy(kv);
    kv_states_destroy(kv);
    kv_leaving_deinit(&kv->leaving);
    kv_waiting_deinit(kv);
    kv_pool_destroy(kv->pool);
    free(kv->keys);
    free(kv->run);
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

uint32_t kv_room(const struct kv *kv)
{
    uint32_t blocks = kv_available(kv), panes = kv_panes_available(kv);
    return kv->panes && panes < blocks ? panes : blocks;
}

static struct kv_usage usage_of(const struct kv_pool_stats *p)
{
    return (struct kv_usage){p->total, p->free, p->in_use, p->cached, p->peak_in_use};
}

struct kv_stats kv_stats(const struct kv *kv)
{
    struct kv_pool_stats p = kv_pool_stats(kv->pool), w = {0}, r = {0};
    if (kv->panes)
        w = kv_pool_stats(kv->panes);
    if (kv->states)
        r = kv_pool_stats(kv->states);
    return (struct kv_stats){.blocks = usage_of(&p),
                             .panes = usage_of(&w),
                             .states = usage_of(&r),
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

enum err kv_table_init(const struct kv *kv,
                       struct kv_table *t,
                       uint32_t max_blocks,
                       struct err_info *e)
{
    *t = (struct kv_table){.max_blocks = max_blocks, .state = KV_NO_STATE, .base = KV_NO_STATE};
    t->blocks = calloc(max_blocks ? max_blocks : 1, sizeof *t->blocks);
    if (kv->panes)
        t->panes = calloc(max_blocks ? max_blocks : 1, sizeof *t->panes);
    if (kv->states)
        t->states = malloc((max_blocks ? max_blocks : 1) * sizeof *t->states);
    for (uint32_t i = 0; t->states && i < max_blocks; i++)
        t->states[i] = KV_NO_STATE;
    if (!t->blocks || (kv->panes && !t->panes) || (kv->states && !t->states))
        return err_set(e, ERR_NOMEM, "no memory for a table of %u KV blocks", max_blocks);
    return OK;
}

void kv_table_deinit(struct kv_table *t)
{
    assert(t->n_blocks == 0);
    free(t->blocks);
    free(t->panes);
    free(t->states);
    *t = (struct kv_table){0};
}

void kv_table_begin(struct kv_table *t,
                    const int32_t *tokens,
                    const struct kv_key *space,
                    bool shares)
{
    assert(t->n_blocks == 0);
    *t = (struct kv_table){.blocks = t->blocks,
                           .panes = t->panes,
                           .states = t->states,
                           .state = KV_NO_STATE,
                           .base = KV_NO_STATE,
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
    kv_store_evicted(kv, id);
    kv_prefix_remove(kv->prefix, id);
    kv_pane_drop(kv, id);
    kv_state_drop(kv, id);
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

static enum err grow(
    struct kv *kv, struct kv_table *t, uint32_t n_tokens, uint32_t available, struct err_info *e)
{
    uint32_t want = kv_blocks_for(kv, n_tokens);
    if (want <= t->n_blocks)
        return OK;
    if (want > t->max_blocks)
        return err_set(
            e, ERR_TOO_LONG, "would need %u blocks, exceeds max %u", want, t->max_blocks);
    uint32_t missing = want - t->n_blocks;
    if (missing > available)
        return err_set(
            e, ERR_QUEUE_FULL, "exhausted: need %u blocks but only %u free", missing, available);
    while (t->n_blocks < want)
        t->blocks[t->n_blocks++] = take_block(kv);
    return OK;
}

enum err kv_grow_blocks(struct kv *kv, struct kv_table *t, uint32_t n_tokens, struct err_info *e)
{
    return grow(kv, t, n_tokens, kv_available(kv), e);
}

enum err kv_table_grow(struct kv *kv, struct kv_table *t, uint32_t n_tokens, struct err_info *e)
{
    enum err err = kv_state_take(kv, t) ? OK : err_set(e, ERR_QUEUE_FULL, "exhausted: no state");
    if (err == OK)
        err = grow(kv, t, n_tokens, kv_room(kv), e);
    if (err == OK)
        kv_states_advance(kv, t, n_tokens);
    while (kv->panes && err == OK && t->end_pane < t->n_blocks)
        kv_pane_take(kv, t);
    return err;
}

void kv_block_give_back(struct kv *kv, uint32_t id)
{
    kv_pool_unref(kv->pool, id, kv_prefix_n_tokens(kv->prefix, id) > 0);
}

/* A table gives up a reference: it is given back now, or when the steps under way have ended. */
static void let_go(struct kv *kv, uint32_t id)
{
    if (kv_has_steps(kv))
        kv_leave(kv, &kv->leaving, id);
    else
        kv_block_give_back(kv, id);
}

void kv_table_release(struct kv *kv, struct kv_table *t, uint32_t n_computed)
{
    if (kv_fetching(t))
        kv_fetch_end(kv, t);
    kv_publish(kv, t, n_computed, true);
    kv_tell_used(kv, t);
    /* backwards: what continues a block is older than it, and the next table gets free blocks in
     * the same order */
    kv_panes_release(kv, t);
    kv_states_release(kv, t, n_computed);
    while (t->n_blocks > 0)
        let_go(kv, t->blocks[--t->n_blocks]);
    t->n_published = 0;
    t->tokens = NULL;
}

/* --- sharing --------------------------------------------------------------------------------- */

/* Full blocks that continue a table's text. */
struct found {
    uint32_t end;                      /* up to where they can be used */
    uint32_t seen;                     /* up to where they are there */
    uint32_t n_cached, n_panes_cached; /* of those that can be used */
};

/* ids: [max_blocks] takes those found; NULL: cached ones are counted. */
static struct found find_blocks(const struct kv *kv,
                                const struct kv_table *t,
                                uint32_t n_known,
                                uint32_t *ids)
{
    uint32_t size = kv->cfg.block_tokens, i = t->n_blocks, parent = kv_parent_of(t, i), id;
    uint32_t whole = t->first_pane; /* from this block on all panes are there */
    struct found all = {i, i, 0, 0}, f = all;
    for (; i < t->max_blocks && (i + 1) * size < n_known; parent = id) {
        const int32_t *tokens = t->tokens + (size_t)i * size;
        if (kv_prefix_best(kv->prefix, parent, &t->space, tokens, size, &id) < size)
            break;
        if (ids)
            ids[i] = id;
        else
            all.n_cached += kv_pool_state(kv->pool, id) == KV_CACHED;
        all.end = all.seen = ++i;
        if (kv->states && kv_has_state(kv, id) && kv_states_can_attach(kv, t, id))
            f = all;
        if (!kv->panes)
            continue;
        all.n_panes_cached += kv_pane_is_cached(kv, id);
        if (kv_lacks_pane(kv, id))
            whole = i;
        if (kv_first_pane(kv, i * size) >= whole)
            f = all;
    }
    f.seen = all.seen;
    return kv->panes || kv->states ? f : all;
}

struct kv_peek kv_peek(const struct kv *kv,
                       const struct kv_key *space,
                       const int32_t *tokens,
                       uint32_t n)
{
    struct kv_table begin = {.tokens = tokens, .space = *space, .max_blocks = UINT32_MAX};
    struct found f = find_blocks(kv, &begin, n, NULL);
    struct kv_peek found = {.n_blocks = f.end, .n_cached = f.n_cached};
    if (kv->panes && kv_first_pane(kv, n) == 0) {
        found.n_panes = f.end;
        found.n_panes_cached = f.n_panes_cached;
    }
    return found;
}

/* The block that has the next `common` tokens, for this table to go on in; false without room. */
static bool take_part(struct kv *kv, struct kv_table *t, uint32_t id, uint32_t common)
{
    bool idle = kv_pool_state(kv->pool, id) == KV_CACHED;
    if (kv_lacks_pane(kv, id))
        return false;
    if (idle && kv_prefix_n_tokens(kv->prefix, id) == common && common < kv->cfg.block_tokens) {
        kv_pool_ref(kv->pool, id);
        t->blocks[t->n_blocks++] = id;
        return true;
    }
    kv_pool_touch(kv->pool, id); /* so that making room evicts it last */
    kv_pane_touch(kv, id);
    if (kv_available(kv) <= (idle ? 1 : 0) ||
        (kv->panes && kv_panes_available(kv) <= (kv_pane_is_cached(kv, id) ? 1 : 0)))
        return false;
    uint32_t copy = take_block(kv);
    t->blocks[t->n_blocks++] = copy;
    kv_pane_take(kv, t);
    kv->cfg.mover.copy(kv->cfg.mover.ctx, kv_place_of(kv, id), kv_place_of(kv, copy));
    kv->counts.copied++;
    return true;
}

/* Attached up to n: what lies there is published, or need not be yet. */
static uint32_t note_attached(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n)
{
    kv_panes_attach(kv, t, n);
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

/* Behind `seen` full blocks, of ids in the table, somebody may have left off in the middle of one,
 * with a state: take all of it over. Returns the positions stored now, or 0. */
static uint32_t go_on(struct kv *kv, struct kv_table *t, uint32_t seen, uint32_t n_known)
{
    const uint32_t size = kv->cfg.block_tokens, at = seen * size;
    uint32_t id;
    if (at + 1 >= n_known || seen == t->max_blocks)
        return 0;
    const uint32_t most = n_known - 1 - at < size ? n_known - 1 - at : size;
    const uint32_t common =
        kv_prefix_best(kv->prefix, kv_parent_of(t, seen), &t->space, t->tokens + at, most, &id);
    if (common == 0 || kv_pool_state(kv->pool, id) != KV_CACHED ||
        kv_prefix_n_tokens(kv->prefix, id) != common || common == size ||
        !kv_state_take_over(kv, t, id, at + common))
        return 0;
    while (t->n_blocks < seen)
        kv_pool_ref(kv->pool, t->blocks[t->n_blocks++]);
    kv_pool_ref(kv->pool, id);
    t->blocks[t->n_blocks++] = id;
    return at + common;
}

uint32_t kv_attach(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known)
{
    uint32_t size = kv->cfg.block_tokens;
    if (!can_attach(kv, t, n_computed))
        return n_computed;
    struct found f = find_blocks(kv, t, n_known, t->blocks);
    const uint32_t all = kv->states ? go_on(kv, t, f.seen, n_known) : 0;
    if (all > 0)
        return note_attached(kv, t, n_computed, all);
    if (!t->looked) /* those who wait for their turn look again and again */
        *(kv->states ? &kv->counts.state_miss_tokens : &kv->counts.pane_miss_tokens) +=
            (f.seen - f.end) * size;
    if (kv->states && f.seen > f.end) /* where texts part, others will, too */
        kv_want_state(kv, t, f.seen - 1);
    t->looked = true;
    while (t->n_blocks < f.end)
        kv_pool_ref(kv->pool, t->blocks[t->n_blocks++]);
    if (kv->states && f.end * size > n_computed)
        kv_states_attach(kv, t, f.end * size);
    return note_attached(kv, t, n_computed, f.end * size);
}

uint32_t kv_attach_part(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known)
{
    uint32_t size = kv->cfg.block_tokens, id;
    if (!can_attach(kv, t, n_computed) || n_computed + 1 >= n_known ||
        t->n_blocks == t->max_blocks || kv->states)
        return n_computed;
    uint32_t most = n_known - 1 - n_computed < size ? n_known - 1 - n_computed : size;
    uint32_t parent = kv_parent_of(t, t->n_blocks);
    const int32_t *tokens = t->tokens + n_computed;
    uint32_t common = kv_prefix_best(kv->prefix, parent, &t->space, tokens, most, &id);
    if (common == 0 || !take_part(kv, t, id, common))
        return n_computed;
    return note_attached(kv, t, n_computed, n_computed + common);
}

/* Publish the first n tokens of the table's block i. */
static void publish_block(struct kv *kv, struct kv_table *t, uint32_t i, uint32_t n)
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
        kv_pane_merge(kv, t, i, other);
        kv_state_merge(kv, t, i, other);
        kv_pool_ref(kv->pool, other);
        let_go(kv, id);
        t->blocks[i] = other;
        kv->counts.merged++;
    }
}

void kv_publish_blocks(struct kv *kv, struct kv_table *t, uint32_t n_computed, bool tail)
{
    uint32_t size = kv->cfg.block_tokens;
    assert(n_computed <= (uint64_t)t->n_blocks * size);
    for (; t->shares && t->n_published + size <= n_computed; t->n_published += size)
        publish_block(kv, t, t->n_published / size, size);
    if (t->shares && tail && n_computed > t->n_published)
        publish_block(kv, t, t->n_published / size, n_computed - t->n_published);
}

void kv_publish(struct kv *kv, struct kv_table *t, uint32_t n_computed, bool tail)
{
    kv_publish_blocks(kv, t, n_computed, tail);
    kv_panes_pass(kv, t, n_computed);
    kv_states_pass(kv, t, n_computed);
}
