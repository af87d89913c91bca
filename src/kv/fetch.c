/* The tier below: full blocks fetched back ahead of computing them. A fetch belongs to a table:
 *
 *      blocks  | in place  | arrived | asked for |        |
 *                                    ^arrived    ^asked   ^end
 *
 * Blocks arrive in order; the first that does not ends the fetch. It is computed, and behind it
 * another fetch may begin. A block is taken when its bytes are asked for, its pane when they are
 * there, for the window moves on. How much is asked for at a time may be limited, for who copies it
 * makes steps wait.
 *
 * Taking a place drives a block out, which a tier may store in place of another. One that does is
 * asked for a block at a time, or two, and again as soon as they have arrived, all in one kv_poll:
 * the places that they leave there are then as many as are wanted, and what is yet to come is not
 * driven out by what makes room for it.
 *
 * Fetches from one tier are served in the order in which they began, so each is there as early as
 * it can be; and they are judged by what the tier gives to any of them. */
#include "kv/internal.h"
#include "kv/kv.h"

/* A ticket names the fetch, the tier, and the index in the table. */
#define TICKET_INDEX_BITS 24
#define TICKET_LEVEL_BITS 1
/* Far more than any disk takes for a block; a tier that is silent for so long is not waited for. */
#define PATIENCE_US 1000000
/* Blocks that were said to be there and were not; then a sequence asks for no more. */
#define MAX_MISSES 8
/* What the tier says of itself counts as much as so many blocks that were seen to come: one that
 * hangs for a moment is not given up on, a slow one costs no more than they take to compute. */
#define TRUST_BLOCKS 32

void kv_set_pace(struct kv *kv, uint64_t now_us, double us_per_token)
{
    kv->now_us = now_us;
    kv->compute_us = us_per_token;
}

static const int32_t *tokens_at(const struct kv *kv, const struct kv_table *t, uint32_t i)
{
    return t->tokens + (size_t)i * kv->cfg.block_tokens;
}

/* The key that names what lies before index i. */
static const struct kv_key *key_before(const struct kv *kv, const struct kv_table *t, uint32_t i)
{
    return i > 0 ? &kv->keys[t->blocks[i - 1]] : &t->space;
}

void kv_name_block(struct kv *kv, const struct kv_table *t, uint32_t i)
{
    kv_hash_block(kv->hasher,
                  key_before(kv, t, i),
                  tokens_at(kv, t, i),
                  kv->cfg.block_tokens,
                  &kv->keys[t->blocks[i]]);
}

bool kv_fetching(const struct kv_table *t)
{
    return t->fetch.serial != 0;
}

uint32_t kv_fetched(const struct kv *kv, const struct kv_table *t)
{
    return t->fetch.arrived * kv->cfg.block_tokens;
}

uint32_t kv_fetch_from(const struct kv *kv, const struct kv_table *t)
{
    return t->no_fetch ? 0 : t->fetch_from * kv->cfg.block_tokens;
}

static struct kv_tier *tier_at(const struct kv *kv, uint32_t level)
{
    return level ? kv->cfg.tier->below : kv->cfg.tier;
}

/* How many full blocks from index i on the tier has and there is memory for, of those before the
 * last known token, and which tier it is: the first of another ends the run, for they would not
 * come in order. kv->run has their keys then. */
static uint32_t count_on_tier(
    struct kv *kv, const struct kv_table *t, uint32_t i, uint32_t n_known, uint32_t *level)
{
    struct kv_tier *tier = kv->cfg.tier;
    uint32_t size = kv->cfg.block_tokens, n = 0;
    uint32_t most = t->max_blocks - i < kv_available(kv) ? t->max_blocks - i : kv_available(kv);
    struct kv_key key = *key_before(kv, t, i);
    for (; n < most && (uint64_t)(i + n + 1) * size < n_known; n++) {
        struct kv_key next;
        kv_hash_block(kv->hasher, &key, tokens_at(kv, t, i + n), size, &next);
        const uint32_t here = tier->ops->has(tier, &next);
        if (here == 0 || (n > 0 && here != *level + 1))
            break;
        *level = here - 1;
        kv->run[n] = key = next;
    }
    return n;
}

/* Blocks that others will ask for before a fetch that begins now. */
static uint32_t n_unasked(const struct kv *kv, uint32_t level)
{
    uint32_t n = 0;
    for (const struct kv_table *t = kv->fetching; t; t = t->fetch.next)
        n += t->fetch.level == level ? t->fetch.end - t->fetch.asked : 0;
    return n;
}

static double computing_us(const struct kv *kv, uint32_t n_blocks)
{
    return kv->compute_us * n_blocks * kv->cfg.block_tokens;
}

/* What a fetch of so many that begins now would take, by what the tier says of itself. */
static double estimate_us(const struct kv *kv, uint32_t level, uint32_t n_blocks)
{
    struct kv_tier *tier = tier_at(kv, level);
    return (double)tier->ops->estimate_us(tier, n_unasked(kv, level) + n_blocks);
}

/* What has not come is computed. */
static void stop(struct kv_fetch *f)
{
    f->end = f->asked = f->arrived;
}

/* Nor is the rest asked for again by this sequence. */
static void give_up(struct kv_table *t)
{
    stop(&t->fetch);
    t->no_fetch = true;
}

static uint64_t ticket_of(const struct kv_fetch *f, uint32_t i)
{
    return (f->serial << TICKET_LEVEL_BITS | f->level) << TICKET_INDEX_BITS | i;
}

static uint32_t level_of(uint64_t ticket)
{
    return ticket >> TICKET_INDEX_BITS & ((1u << TICKET_LEVEL_BITS) - 1);
}

/* May a fetch copy one more block in, and out what is in its place? */
static bool may_move(const struct kv *kv)
{
    return kv->cfg.most_moves == 0 || kv->moves_left > 0;
}

static void count_moves(struct kv *kv, uint64_t n)
{
    kv->moves_left -= n < kv->moves_left ? (uint32_t)n : kv->moves_left;
}

/* The place of the block to be asked for next; false: nothing is to be had. */
static bool take_place(struct kv *kv, struct kv_table *t)
{
    const uint64_t n_copied = kv->n_copied_out;
    const uint32_t n_tokens = (t->fetch.asked + 1) * kv->cfg.block_tokens;
    const bool taken = kv_grow_blocks(kv, t, n_tokens, NULL) == OK;
    count_moves(kv, kv->n_copied_out - n_copied);
    return taken;
}

/* What the tier was asked for and has not come. */
static uint32_t n_owed(const struct kv *kv, uint32_t level)
{
    uint32_t n = 0;
    for (const struct kv_table *t = kv->fetching; t; t = t->fetch.next)
        n += t->fetch.level == level ? t->fetch.asked - t->fetch.arrived : 0;
    return n;
}

/* Has the tier as many fetches under way as are good for it? */
static bool has_enough(const struct kv *kv, uint32_t level)
{
    const uint32_t most = tier_at(kv, level)->most_asked;
    return most > 0 && n_owed(kv, level) >= most;
}

/* The next block. False: nothing more can be asked for now. */
static bool ask_next(struct kv *kv, struct kv_table *t)
{
    struct kv_tier *tier = kv->cfg.tier;
    struct kv_fetch *f = &t->fetch;
    kv->seen[f->level].refused = has_enough(kv, f->level);
    if (kv->seen[f->level].refused)
        return false;
    if (!take_place(kv, t)) {
        f->end = f->asked;
        return false;
    }
    kv_name_block(kv, t, f->asked);
    struct kv_tier_block b = {.key = kv->keys[t->blocks[f->asked]],
                              .parent = *key_before(kv, t, f->asked),
                              .tokens = tokens_at(kv, t, f->asked)};
    if (tier->ops->has(tier, &b.key) != f->level + 1) { /* forgotten meanwhile, or left below */
        f->end = f->asked;
        return false;
    }
    kv->seen[f->level].refused = !tier->ops->fetch(tier, &b, ticket_of(f, f->asked));
    if (kv->seen[f->level].refused)
        return false;
    count_moves(kv, 1);
    f->asked++;
    return true;
}

static void ask(struct kv *kv, struct kv_table *t)
{
    struct kv_fetch *f = &t->fetch;
    while (f->asked < f->end && may_move(kv) && !kv->seen[f->level].refused && ask_next(kv, t))
        ;
}

/* n blocks came from the tier since something did last. Where it sent all that it was asked for, it
 * may have waited for us; one that is asked for few at a time always has. */
static void note_came(struct kv *kv, uint32_t level, uint32_t n)
{
    struct kv_tier_seen *seen = &kv->seen[level];
    const double block_us = (double)(kv->now_us - seen->since_us) / n;
    if (tier_at(kv, level)->most_asked == 0 && (block_us < seen->block_us || n_owed(kv, level) > 0))
        seen->block_us += (block_us - seen->block_us) * n / (n + TRUST_BLOCKS);
    seen->since_us = kv->now_us;
}

/* Nobody is to blame the tier for the time before. */
static void note_idle(struct kv *kv, uint32_t level)
{
    if (n_owed(kv, level) == 0 && !kv->seen[level].refused)
        kv->seen[level].since_us = kv->now_us;
}

static bool serves_any(const struct kv *kv, uint32_t level)
{
    const struct kv_table *t = kv->fetching;
    while (t && t->fetch.level != level)
        t = t->fetch.next;
    return t != NULL;
}

static void join(struct kv *kv, struct kv_table *t)
{
    t->fetch.prev = kv->last_fetching;
    *(kv->last_fetching ? &kv->last_fetching->fetch.next : &kv->fetching) = t;
    kv->last_fetching = t;
}

bool kv_fetch_begin(struct kv *kv, struct kv_table *t, uint32_t n_computed, uint32_t n_known)
{
    uint32_t size = kv->cfg.block_tokens, first = n_computed / size;
    if (!kv->cfg.tier || !t->shares || t->no_fetch || first < t->fetch_from ||
        n_computed % size != 0 || t->n_blocks != first)
        return false;
    uint32_t level = 0, n = count_on_tier(kv, t, first, n_known, &level);
    if (n == 0 || first + n >= 1u << TICKET_INDEX_BITS)
        return false;
    const double fetch_us = estimate_us(kv, level, n), compute_us = computing_us(kv, n);
    if (compute_us > 0.0 && fetch_us >= compute_us) {
        kv->counts.fetches_declined[level]++;
        t->no_fetch = true;
        return false;
    }
    t->fetch = (struct kv_fetch){.serial = kv->next_serial++,
                                 .asked = first,
                                 .arrived = first,
                                 .end = first + n,
                                 .level = level};
    for (uint32_t i = n; i-- > 0;)
        kv->cfg.tier->ops->used(kv->cfg.tier, &kv->run[i], KV_TIER_WANTED);
    note_idle(kv, level);
    if (!serves_any(kv, level))
        kv->seen[level].block_us = fetch_us / n;
    join(kv, t);
    ask(kv, t);
    if (t->fetch.end > first)
        return true;
    kv_fetch_end(kv, t); /* making room for them drove them out */
    return false;
}

void kv_fetch_end(struct kv *kv, struct kv_table *t)
{
    struct kv_fetch *f = &t->fetch;
    *(f->prev ? &f->prev->fetch.next : &kv->fetching) = f->next;
    *(f->next ? &f->next->fetch.prev : &kv->last_fetching) = f->prev;
    f->prev = f->next = NULL;
    f->serial = 0;
    while (t->n_blocks > f->arrived)
        kv_pool_unref(kv->pool, t->blocks[--t->n_blocks], false);
}

static struct kv_table *table_of(const struct kv *kv, uint64_t serial)
{
    struct kv_table *t = kv->fetching;
    while (t && t->fetch.serial != serial)
        t = t->fetch.next;
    return t;
}

/* A block came, or it did not. Late ones, of a fetch that was given up, are nobody's. */
static void take_arrival(struct kv *kv, const struct kv_tier_done *done)
{
    struct kv_table *t = table_of(kv, done->ticket >> (TICKET_INDEX_BITS + TICKET_LEVEL_BITS));
    if (!t || t->fetch.arrived == t->fetch.end)
        return;
    struct kv_fetch *f = &t->fetch;
    struct kv_tier *tier = kv->cfg.tier;
    uint32_t size = kv->cfg.block_tokens;
    bool no_pane = kv->panes && kv_panes_available(kv) == 0;
    if (no_pane || (done->ticket & ((1u << TICKET_INDEX_BITS) - 1)) != f->arrived) {
        give_up(t);
        return;
    }
    if (!done->bytes) { /* lost or damaged: what is behind it may be whole */
        t->fetch_from = f->arrived + 1;
        t->no_fetch = ++t->n_misses == MAX_MISSES;
        stop(f);
        return;
    }
    kv_pane_take(kv, t);
    kv->cfg.mover.write(kv->cfg.mover.ctx, kv_place_of(kv, t->blocks[f->arrived]), done->bytes);
    tier->ops->used(tier, &kv->keys[t->blocks[f->arrived]], KV_TIER_ARRIVED);
    f->arrived++;
    t->n_attached += size;
    kv->counts.hit_tokens += size;
    kv_publish_blocks(kv, t, f->arrived * size, false);
    kv_panes_pass_now(kv, t, f->arrived * size); /* for those that arrive next */
}

/* Would computing the rest of a fetch take less than waiting for it, behind n_before blocks? The
 * time since something came last counts as that of a block. What ends within the patience that
 * there is for a block anyway is waited for: there is little to be gained. */
static bool is_too_slow(const struct kv *kv, const struct kv_fetch *f, uint32_t n_before)
{
    const struct kv_tier_seen *seen = &kv->seen[f->level];
    const uint32_t n = f->end - f->arrived;
    const double waited_us = (double)(kv->now_us - seen->since_us);
    const double compute_us = computing_us(kv, n);
    double block_us = (seen->block_us * TRUST_BLOCKS + waited_us) / (TRUST_BLOCKS + 1);
    if (block_us < seen->block_us)
        block_us = seen->block_us;
    const double fetch_us = block_us * (n_before + n);
    return compute_us > 0.0 && fetch_us > compute_us && fetch_us > PATIENCE_US;
}

/* Those that take too long are given up on. */
static void judge_all(struct kv *kv)
{
    uint32_t n_before[KV_MAX_TIERS] = {0};
    for (struct kv_table *t = kv->fetching; t; t = t->fetch.next) {
        const struct kv_fetch *f = &t->fetch;
        if (f->arrived < f->end && (kv->now_us - kv->seen[f->level].since_us > PATIENCE_US ||
                                    is_too_slow(kv, f, n_before[f->level]))) {
            kv->counts.fetches_abandoned[f->level]++;
            give_up(t);
        }
        n_before[f->level] += f->end - f->arrived;
    }
}

/* Did anything come? */
static bool take_arrivals(struct kv *kv)
{
    struct kv_tier *tier = kv->cfg.tier;
    struct kv_tier_done done;
    uint32_t n_came[KV_MAX_TIERS] = {0}, n = 0;
    kv->taking_arrivals = true;
    for (; tier->ops->poll(tier, &done); n++) {
        n_came[level_of(done.ticket)]++;
        take_arrival(kv, &done);
        if (done.bytes)
            tier->ops->release(tier, done.bytes);
    }
    kv->taking_arrivals = false;
    for (uint32_t level = 0; level < KV_MAX_TIERS; level++)
        if (n_came[level] > 0)
            note_came(kv, level, n_came[level]);
    return n > 0;
}

static void ask_all(struct kv *kv)
{
    for (uint32_t level = 0; level < KV_MAX_TIERS; level++)
        kv->seen[level].refused = false;
    for (struct kv_table *t = kv->fetching; t; t = t->fetch.next)
        ask(kv, t);
    for (uint32_t level = 0; level < KV_MAX_TIERS; level++)
        note_idle(kv, level);
}

/* Of a tier that is asked for few at a time: it has them at once. */
static bool owes_at_once(const struct kv *kv)
{
    for (uint32_t level = 0; level < KV_MAX_TIERS; level++)
        if (n_owed(kv, level) > 0 && tier_at(kv, level)->most_asked > 0)
            return true;
    return false;
}

bool kv_poll(struct kv *kv)
{
    if (!kv->cfg.tier)
        return false;
    (void)take_arrivals(kv);
    kv->moves_left = kv->cfg.most_moves;
    do
        ask_all(kv);
    while (owes_at_once(kv) && take_arrivals(kv));
    judge_all(kv);
    for (struct kv_table *t = kv->fetching, *next; t; t = next) {
        next = t->fetch.next;
        if (t->fetch.arrived == t->fetch.end)
            kv_fetch_end(kv, t);
    }
    kv_store_waiting(kv); /* behind the fetches: they are waited for */
    return kv->fetching != NULL;
}
