/* States: what recurrent layers keep of a sequence, in place of K and V of each position.
 *
 *      positions   block 0 | block 1 | block 2 | block 3 | blo
 *      states                        kept                     own
 *
 * A state is large and stands for all that lies before one position, so a sequence has one of its
 * own, which its rows change in place, and few are kept: behind the last position of a full block,
 * for whoever begins with the same text. Which blocks have one is asked for (kv_want_state) before
 * the rows that end them are planned; the step that computes those stores it on its way, and from
 * then on nobody writes to it. When a sequence lets go, its own state becomes that of its last
 * block, full or not: there the conversation goes on.
 *
 * A prefix can be used up to a block that has one. The first rows behind it read the kept state and
 * write the sequence's own. */
#include "kv/internal.h"
#include "kv/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum err kv_states_create(struct kv *kv, struct err_info *e)
{
    const uint32_t n = kv->cfg.n_blocks, n_states = kv->cfg.n_states;
    if (n_states == 0)
        return OK;
    enum err err = kv_pool_create(n_states, "state", &kv->states, e);
    if (err != OK)
        return err;
    kv->state_of = malloc(n * sizeof *kv->state_of);
    kv->states_info = malloc(n_states * sizeof *kv->states_info);
    if (!kv->state_of || !kv->states_info)
        return err_set(e, ERR_NOMEM, "no memory to account for %u states", n_states);
    for (uint32_t i = 0; i < n; i++)
        kv->state_of[i] = KV_NO_STATE;
    for (uint32_t i = 0; i < n_states; i++)
        kv->states_info[i].block = KV_NO_BLOCK;
    return kv_leaving_init(&kv->states_leaving, n_states, e);
}

void kv_states_destroy(struct kv *kv)
{
    kv_pool_destroy(kv->states);
    kv_leaving_deinit(&kv->states_leaving);
    free(kv->state_of);
    free(kv->states_info);
}

uint32_t kv_n_states(const struct kv *kv)
{
    return kv->cfg.n_states;
}

uint32_t kv_states_available(const struct kv *kv)
{
    if (!kv->states)
        return 0;
    struct kv_pool_stats p = kv_pool_stats(kv->states);
    return p.free + p.cached;
}

static void bind(struct kv *kv, uint32_t state, uint32_t block, uint32_t n_tokens)
{
    kv->state_of[block] = state;
    kv->states_info[state] = (struct kv_state_info){block, n_tokens};
}

static void unbind(struct kv *kv, uint32_t state)
{
    if (kv->states_info[state].block != KV_NO_BLOCK)
        kv->state_of[kv->states_info[state].block] = KV_NO_STATE;
    kv->states_info[state].block = KV_NO_BLOCK;
}

/* Is it behind all that its block is known to hold? */
static bool is_whole(const struct kv *kv, uint32_t state)
{
    const struct kv_state_info *s = &kv->states_info[state];
    return s->block != KV_NO_BLOCK && kv_prefix_n_tokens(kv->prefix, s->block) == s->n_tokens;
}

bool kv_has_state(const struct kv *kv, uint32_t block)
{
    return kv->state_of[block] != KV_NO_STATE && is_whole(kv, kv->state_of[block]);
}

/* One that nobody uses; there is one. */
static uint32_t take(struct kv *kv)
{
    uint32_t state = kv_pool_acquire(kv->states);
    if (state != KV_NO_BLOCK)
        return state;
    state = kv_pool_oldest(kv->states);
    assert(state != KV_NO_BLOCK);
    unbind(kv, state);
    kv_pool_drop(kv->states, state);
    kv->counts.states_evicted++;
    return kv_pool_acquire(kv->states);
}

void kv_state_give_back(struct kv *kv, uint32_t state)
{
    kv_pool_unref(kv->states, state, is_whole(kv, state));
    if (kv_pool_state(kv->states, state) == KV_FREE)
        unbind(kv, state);
}

static void let_go(struct kv *kv, uint32_t state)
{
    if (kv_has_steps(kv))
        kv_leave(kv, &kv->states_leaving, state);
    else
        kv_state_give_back(kv, state);
}

static void let_go_of_base(struct kv *kv, struct kv_table *t)
{
    if (t->base != KV_NO_STATE)
        let_go(kv, t->base);
    t->base = KV_NO_STATE;
}

bool kv_state_take(struct kv *kv, struct kv_table *t)
{
    if (!kv->states || t->state != KV_NO_STATE)
        return true;
    if (kv_states_available(kv) == 0)
        return false;
    t->state = take(kv);
    return true;
}

bool kv_want_state(const struct kv *kv, struct kv_table *t, uint32_t i)
{
    if (!kv->states || !t->shares || (uint64_t)(i + 1) * kv->cfg.block_tokens <= t->n_state)
        return false;
    for (uint32_t k = 0; k < t->n_wanted; k++)
        if (t->wanted[k] == i)
            return true;
    if (t->n_wanted == KV_MAX_WANTED)
        return false;
    t->wanted[t->n_wanted++] = i;
    return true;
}

/* Rows up to n positions are planned: those wanted states that lie on their way are taken, if there
 * are any to be had. */
static void take_wanted(struct kv *kv, struct kv_table *t, uint32_t n)
{
    uint32_t n_left = 0;
    for (uint32_t k = 0; k < t->n_wanted; k++) {
        const uint32_t i = t->wanted[k], end = (i + 1) * kv->cfg.block_tokens;
        if (end > n) {
            t->wanted[n_left++] = i;
            continue;
        }
        if (end <= t->n_state || t->n_kept == KV_MAX_WANTED || kv_states_available(kv) == 0)
            continue;
        assert(kv->state_of[t->blocks[i]] == KV_NO_STATE && t->states[i] == KV_NO_STATE);
        t->states[i] = take(kv);
        bind(kv, t->states[i], t->blocks[i], kv->cfg.block_tokens);
        t->kept[t->n_kept++] = i;
    }
    t->n_wanted = n_left;
}

void kv_states_advance(struct kv *kv, struct kv_table *t, uint32_t n)
{
    if (!kv->states || n <= t->n_state)
        return;
    const bool first = t->base != KV_NO_STATE && t->n_state == t->base_at;
    t->state_from = first ? t->base : t->state;
    take_wanted(kv, t, n);
    t->n_state = n;
}

void kv_states_pass(struct kv *kv, struct kv_table *t, uint32_t n)
{
    if (!kv->states)
        return;
    if (t->base != KV_NO_STATE && n > t->base_at)
        let_go_of_base(kv, t);
    uint32_t n_left = 0;
    for (uint32_t k = 0; k < t->n_kept; k++) {
        const uint32_t i = t->kept[k];
        if ((i + 1) * kv->cfg.block_tokens > n) {
            t->kept[n_left++] = i;
            continue;
        }
        kv->counts.states_kept += is_whole(kv, t->states[i]); /* else another has one already */
        let_go(kv, t->states[i]);
        t->states[i] = KV_NO_STATE;
    }
    t->n_kept = n_left;
}

/* As the table holds blocks up to n positions: what its next rows begin with. Without another state
 * for those rows to write to the block gives its own away. */
void kv_states_attach(struct kv *kv, struct kv_table *t, uint32_t n)
{
    const uint32_t state = kv->state_of[t->blocks[t->n_blocks - 1]];
    assert(state != KV_NO_STATE);
    let_go_of_base(kv, t);
    kv_pool_ref(kv->states, state);
    t->n_state = n;
    if (kv_state_take(kv, t)) {
        t->base = state;
        t->base_at = n;
        return;
    }
    unbind(kv, state);
    t->state = state;
}

bool kv_states_can_attach(const struct kv *kv, const struct kv_table *t, uint32_t block)
{
    const uint32_t state = kv->state_of[block];
    return t->state != KV_NO_STATE || kv_pool_state(kv->states, state) == KV_CACHED ||
           kv_states_available(kv) > 0;
}

bool kv_state_take_over(struct kv *kv, struct kv_table *t, uint32_t block, uint32_t n)
{
    const uint32_t state = kv->state_of[block];
    if (!kv_has_state(kv, block) || kv_pool_state(kv->states, state) != KV_CACHED)
        return false;
    let_go_of_base(kv, t);
    kv_pool_ref(kv->states, state);
    unbind(kv, state);
    if (t->state != KV_NO_STATE)
        let_go(kv, t->state);
    t->state = state;
    t->n_state = n;
    return true;
}

void kv_state_merge(struct kv *kv, const struct kv_table *t, uint32_t i, uint32_t other)
{
    if (!kv->states)
        return;
    const uint32_t mine = kv->state_of[t->blocks[i]];
    if (mine == KV_NO_STATE)
        return;
    const uint32_t n = kv->states_info[mine].n_tokens;
    unbind(kv, mine);
    if (kv->state_of[other] == KV_NO_STATE)
        bind(kv, mine, other, n);
}

void kv_states_release(struct kv *kv, struct kv_table *t, uint32_t n_computed)
{
    if (!kv->states)
        return;
    const uint32_t size = kv->cfg.block_tokens;
    for (; t->n_kept > 0; t->n_kept--) { /* of rows that nobody heard of */
        const uint32_t i = t->kept[t->n_kept - 1];
        unbind(kv, t->states[i]);
        let_go(kv, t->states[i]);
        t->states[i] = KV_NO_STATE;
    }
    let_go_of_base(kv, t);
    if (t->state != KV_NO_STATE && t->shares && n_computed > 0 && t->n_state == n_computed) {
        const uint32_t i = (n_computed - 1) / size, n = n_computed - i * size;
        if (kv->state_of[t->blocks[i]] == KV_NO_STATE &&
            kv_prefix_n_tokens(kv->prefix, t->blocks[i]) == n)
            bind(kv, t->state, t->blocks[i], n);
    }
    if (t->state != KV_NO_STATE)
        let_go(kv, t->state);
    t->state = KV_NO_STATE;
    t->n_state = t->n_wanted = 0;
}

void kv_state_drop(struct kv *kv, uint32_t block)
{
    if (!kv->states || kv->state_of[block] == KV_NO_STATE)
        return;
    const uint32_t state = kv->state_of[block];
    unbind(kv, state);
    if (kv_pool_state(kv->states, state) == KV_CACHED)
        kv_pool_drop(kv->states, state);
}

/* --- kv_check -------------------------------------------------------------------------------- */

enum err kv_states_check_table(const struct kv *kv,
                               const struct kv_table *t,
                               uint32_t *held,
                               struct err_info *e)
{
    uint32_t n_set = 0;
    if (!kv->states)
        return OK;
    if (t->state != KV_NO_STATE)
        held[t->state]++;
    if (t->base != KV_NO_STATE)
        held[t->base]++;
    for (uint32_t i = 0; i < t->max_blocks && t->states; i++)
        n_set += t->states[i] != KV_NO_STATE;
    for (uint32_t k = 0; k < t->n_kept && t->states; k++) {
        const uint32_t state = t->states[t->kept[k]];
        if (state >= kv->cfg.n_states || kv->states_info[state].block != t->blocks[t->kept[k]])
            return err_set(
                e, ERR_INTERNAL, "a table keeps state %u, which is not its block's", state);
        held[state]++;
    }
    if (n_set != t->n_kept ||
        (t->state != KV_NO_STATE && kv->states_info[t->state].block != KV_NO_BLOCK) ||
        (t->base != KV_NO_STATE && (t->state == KV_NO_STATE || t->base_at > t->n_state)) ||
        t->n_state > (uint64_t)t->n_blocks * kv->cfg.block_tokens)
        return err_set(e,
                       ERR_INTERNAL,
                       "a table with state %u behind %u positions of %u blocks keeps %u of %u",
                       t->state,
                       t->n_state,
                       t->n_blocks,
                       t->n_kept,
                       n_set);
    return OK;
}

enum err kv_states_check(const struct kv *kv, struct err_info *e)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < kv->cfg.n_blocks; id++)
        n += kv->state_of[id] != KV_NO_STATE;
    for (uint32_t state = 0; state < kv->cfg.n_states; state++) {
        const uint32_t id = kv->states_info[state].block;
        const enum kv_state is = kv_pool_state(kv->states, state);
        const bool bound = id < kv->cfg.n_blocks && kv->state_of[id] == state;
        n -= bound;
        if ((!bound && (id != KV_NO_BLOCK || is == KV_CACHED)) || (bound && is == KV_FREE) ||
            (is == KV_CACHED && !is_whole(kv, state)) ||
            (bound && kv_pool_state(kv->pool, id) == KV_FREE))
            return err_set(
                e, ERR_INTERNAL, "state %u is in state %d, with block %u", state, (int)is, id);
    }
    return n == 0 ? OK : err_set(e, ERR_INTERNAL, "%u KV blocks have states of others", n);
}
