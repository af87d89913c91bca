/* The real scheduler and KV memory, driven by a fake model and a random crowd.
 *
 * The fake model has a real memory: a tag for every position of every block, laid out as a backend
 * would; of every pane, where it has layers with windows; or of panes alone, where it has no
 * others. The tag of a position is made from its token and the tag before it, which is read back
 * through the block table, and through that of the panes; the first is made from the space. With
 * windows it also reads the first position that it sees. In worlds with recurrent layers, with
 * others or without, a state holds the tag that it is behind, and the next row reads it there. So a
 * tag stands for the whole text up to it, and the next token is made from the last tag. A block
 * that is lent twice, lost, given back too early, found for another text or another tenant, copied
 * or fetched wrongly changes somebody's output, and every output is compared with what the same
 * sequence says alone.
 *
 * Prompts begin like others: with a piece of a few texts of the world, or with what somebody has
 * said before. Below the memory there is a tier that fails as it likes.
 *
 * In half of the worlds steps are planned ahead: one is on its way through a device of the same
 * order as real ones, which may do everything at the last moment, or at once. It was given the
 * tables as they were and takes the tokens that it needs from what the step before chose; copies
 * of blocks wait in the same queue. What is lent to another too early is overwritten.
 *
 * Time is counted in operations: arrivals, cancellations and steps, in random order, over worlds of
 * random sizes, many of them so tiny that everything is always full. After each operation the
 * scheduler and the memory check themselves. Some worlds begin with an allocation that fails.
 *
 *      sim_sched [SEED [N_OPS]]        the seed of a failed run replays it */
#include "sched/sched.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kv/host.h"
#include "sim/fake_tier.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CLIENTS 96
#define MAX_TOKENS 320
#define MAX_RUNNING 60
#define MAX_ORDERS 1024
#define OPS_PER_WORLD 2000
#define N_TEXTS 6
#define N_SPACES 3
#define N_TENANTS 4
#define FIRST_TENANT 1000

/* One request: its tokens, and what the simulation expects of the scheduler. */
struct client {
    struct sched_seq seq;
    bool alive;
    uint64_t serial;    /* in the order of arrival */
    uint32_t n_stop;    /* ends by itself at this length, at most n_max */
    uint32_t n_skipped; /* steps since it last got a row */
    uint32_t space;
    bool ran;             /* before this step */
    uint32_t n_preempted; /* times, before this step */
    bool all_logits;
    uint32_t n_logits;  /* prompt rows whose logits it got */
    uint32_t length;    /* tokens known or expected, before this step */
    uint32_t chosen_by; /* its item in the newest step */
    int32_t tokens[MAX_TOKENS];
};

/* What a step was given of one sequence. */
struct given {
    struct client *c;
    uint64_t serial; /* of the client; another: it left */
    struct sched_item item;
    uint64_t begin; /* the tag before the first position */
    uint32_t n_blocks, first_pane, end_pane;
    uint32_t blocks[MAX_TOKENS], panes[MAX_TOKENS], states[MAX_TOKENS];
    uint32_t state_from, state_to;
    int32_t tokens[MAX_TOKENS]; /* [n_rows] */
    uint32_t n_known;           /* of them; the other is what the step before chose */
    uint32_t from;              /* there */
    int32_t chosen;
};

struct fake_step {
    struct given items[MAX_RUNNING];
    uint32_t n_items;
    bool has_run;
};

/* What the device has been told to do. */
struct order {
    struct fake_step *step; /* or a copy: */
    struct kv_place from, to;
};

struct world {
    struct sched_config cfg;
    bool ahead;                  /* steps are planned while others run */
    bool holds;                  /* but not before they have ended */
    struct fake_step *steps[2];  /* oldest first */
    uint32_t n_steps;            /* begun and not ended */
    struct fake_step *memory;    /* [2] */
    int32_t chosen[MAX_RUNNING]; /* by the step that ran last, of its items */
    struct order orders[MAX_ORDERS];
    uint32_t n_orders;
    uint32_t n_blocks, block_tokens;
    uint32_t window, n_panes; /* 0: no layers with windows */
    bool all_windowed;        /* no others */
    uint32_t n_states;        /* 0: no recurrent layers */
    bool all_recurrent;       /* no others */
    uint32_t longest;         /* sequence that could run */
    struct kv *kv;
    struct fake_tier *tier; /* or NULL */
    struct kv_tier *host;   /* RAM above it, or alone, or NULL */
    struct sched *sched;
    uint64_t *tags;      /* [n_blocks * block_tokens] the memory of the fake model; or NULL */
    uint64_t *pane_tags; /* [n_panes * block_tokens] */
    uint64_t *states;    /* [n_states] the tag that each is behind */
    uint32_t n_vocab;
    int32_t texts[N_TEXTS][MAX_TOKENS];
    struct kv_key spaces[N_SPACES];
    struct client clients[MAX_CLIENTS];
    uint64_t next_serial;
    bool priorities; /* somebody may ask for one */
    uint32_t n_tenants;
    int64_t worked[N_TENANTS]; /* rows computed for each since it came */
    int64_t began[N_TENANTS];  /* what it began with then, and was lifted by */
    uint64_t now_us;
    double us_per_token;
    const struct sched_seq *first; /* in rank, of all that are alive */
    uint32_t first_computed;
    uint32_t n_stuck; /* steps since it last got on */
};

static uint64_t seed, n_ops, rng_state;
static struct {
    uint64_t added, refused, cancelled, finished, steps, rows, decodes, full;
    uint64_t hits, misses, copied, merged, evicted, preempted, fetched, host_fetched,
        failed_allocations;
    uint64_t passed, pane_evicted, pane_missed, panes_full;
    uint64_t state_kept, state_evicted, state_missed, states_full, state_hits;
    uint64_t ahead, held, dropped, late_copies;
} count;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail(__LINE__, #cond, __VA_ARGS__);                                                    \
    } while (0)

static _Noreturn void WEIR_PRINTF(3, 4) fail(int line, const char *cond, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("sim_sched.c:%d: %s: ", line, cond);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\nFAILED after %llu operations; replay: sim_sched %llu %llu\n",
           (unsigned long long)n_ops,
           (unsigned long long)seed,
           (unsigned long long)n_ops);
    exit(1);
}

/* --- randomness, and the fake model ---------------------------------------------------------- */

/* Vigna's splitmix64 step: the whole state is one counter. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t below(uint32_t n)
{
    rng_state += 0x9e3779b97f4a7c15u;
    return (uint32_t)((mix(rng_state) >> 32) * n >> 32);
}

static uint32_t between(uint32_t lo, uint32_t hi)
{
    return lo + below(hi - lo + 1);
}

/* Small numbers mostly, large ones sometimes. */
static uint32_t skewed(uint32_t lo, uint32_t hi)
{
    uint32_t n = between(lo, hi);
    return below(3) ? lo + (n - lo) / 8 : n;
}

static uint64_t tag_of(int32_t token, uint64_t tag_before)
{
    return mix(tag_before + 0x9e3779b97f4a7c15u * ((uint64_t)token + 1));
}

static uint64_t first_tag(const struct client *c)
{
    return mix(c->space + 1);
}

static int32_t next_token(const struct world *w, uint64_t tag)
{
    return (int32_t)((tag >> 40) % w->n_vocab);
}

/* The tags of a block, or NULL where all layers have windows. */
static uint64_t *tags_of(const struct world *w, struct kv_place p)
{
    CHECK(p.block < w->n_blocks, "block %u", p.block);
    return w->tags ? w->tags + (size_t)p.block * w->block_tokens : NULL;
}

/* And of its pane, or NULL where none has. */
static uint64_t *pane_tags_of(const struct world *w, struct kv_place p)
{
    CHECK(w->window ? p.pane < w->n_panes : p.pane == KV_NO_PANE, "pane %u", p.pane);
    return w->window ? w->pane_tags + (size_t)p.pane * w->block_tokens : NULL;
}

static size_t tags_bytes(const struct world *w)
{
    return w->block_tokens * sizeof(uint64_t);
}

static void move_block(struct world *w, struct kv_place from, struct kv_place to)
{
    if (w->tags)
        memcpy(tags_of(w, to), tags_of(w, from), tags_bytes(w));
    if (w->window)
        memcpy(pane_tags_of(w, to), pane_tags_of(w, from), tags_bytes(w));
}

/* Where the layers that see everything have the tag of a position; NULL where there are none. */
static uint64_t *tag_at(struct world *w, const uint32_t *blocks, uint32_t n, uint32_t pos)
{
    uint32_t i = pos / w->block_tokens;
    CHECK(i < n, "position %u has no block", pos);
    uint64_t *tags = tags_of(w, (struct kv_place){blocks[i], 0});
    return tags ? tags + pos % w->block_tokens : NULL;
}

/* Where those with windows have it; NULL likewise. */
static uint64_t *pane_tag_at(struct world *w, const struct given *g, uint32_t pos)
{
    uint32_t i = pos / w->block_tokens;
    if (!w->window)
        return NULL;
    CHECK(i < g->n_blocks, "position %u has no block", pos);
    CHECK(i >= g->first_pane && i < g->end_pane, "position %u has no pane", pos);
    struct kv_place p = {g->blocks[i], g->panes[i]};
    return pane_tags_of(w, p) + pos % w->block_tokens;
}

/* The first position that a row at `pos` sees in layers with windows. */
static uint32_t first_seen(const struct world *w, uint32_t pos)
{
    return w->window && pos >= w->window ? pos + 1 - w->window : 0;
}

static uint64_t read_tag(struct world *w, const struct given *g, uint32_t pos)
{
    const uint64_t *tag = tag_at(w, g->blocks, g->n_blocks, pos);
    const uint64_t *pane_tag = pane_tag_at(w, g, pos);
    CHECK(!tag || !pane_tag || *tag == *pane_tag, "position %u: two kinds of layers differ", pos);
    return tag ? *tag : *pane_tag;
}

/* What the first row of an item begins with. */
static uint64_t tag_before(struct world *w, const struct given *g)
{
    if (g->item.first == 0)
        return g->begin;
    if (!w->n_states)
        return read_tag(w, g, g->item.first - 1);
    CHECK(g->state_from < w->n_states, "begins with state %u", g->state_from);
    const uint64_t tag = w->states[g->state_from];
    CHECK(!w->tags || tag == read_tag(w, g, g->item.first - 1),
          "state %u is not behind position %u",
          g->state_from,
          g->item.first - 1);
    return tag;
}

/* The tag of a position is known: into the states that are behind it. */
static void store_state(struct world *w, const struct given *g, uint32_t pos, uint64_t tag)
{
    const uint32_t i = pos / w->block_tokens;
    if (!w->n_states)
        return;
    CHECK(g->state_to < w->n_states, "writes to state %u", g->state_to);
    w->states[g->state_to] = tag;
    if (pos % w->block_tokens + 1 < w->block_tokens || g->states[i] == KV_NO_STATE)
        return;
    CHECK(g->states[i] < w->n_states && g->states[i] != g->state_to, "keeps %u", g->states[i]);
    w->states[g->states[i]] = tag;
}

static void store_tag(struct world *w, const struct given *g, uint32_t pos, uint64_t to)
{
    uint64_t *tag = tag_at(w, g->blocks, g->n_blocks, pos), *pane_tag = pane_tag_at(w, g, pos);
    if (tag)
        *tag = to;
    if (pane_tag)
        *pane_tag = to;
}

/* Compute the rows of an item, and choose. As in a backend, all rows are stored before one of them
 * reads. */
static void run_item(struct world *w, struct given *g)
{
    const struct sched_item *item = &g->item;
    uint64_t tag = tag_before(w, g);
    const uint32_t end = item->first + item->n_rows;
    if (g->n_known < item->n_rows)
        g->tokens[g->n_known] = w->chosen[g->from];
    for (uint32_t i = 0; i < item->n_rows; i++) {
        tag = tag_of(g->tokens[i], tag);
        store_tag(w, g, item->first + i, tag);
        store_state(w, g, item->first + i, tag);
    }
    for (uint32_t pos = item->first; pos < end && w->tags; pos++)
        (void)read_tag(w, g, first_seen(w, pos));
    g->chosen = next_token(w, tag);
}

/* Do what the device was told first. */
static void run_order(struct world *w)
{
    struct order o = w->orders[0];
    memmove(w->orders, w->orders + 1, --w->n_orders * sizeof *w->orders);
    if (o.step) {
        for (uint32_t i = 0; i < o.step->n_items; i++)
            run_item(w, &o.step->items[i]);
        for (uint32_t i = 0; i < o.step->n_items; i++)
            w->chosen[i] = o.step->items[i].chosen;
        o.step->has_run = true;
    } else {
        move_block(w, o.from, o.to);
    }
}

static void run_orders(struct world *w)
{
    while (w->n_orders > 0)
        run_order(w);
}

static bool has_copies(const struct world *w)
{
    for (uint32_t i = 0; i < w->n_orders; i++)
        if (!w->orders[i].step)
            return true;
    return false;
}

static void copy_block(void *ctx, struct kv_place from, struct kv_place to)
{
    struct world *w = ctx;
    if (w->n_orders == MAX_ORDERS || w->n_steps == 0)
        run_orders(w);
    w->orders[w->n_orders++] = (struct order){.from = from, .to = to};
    count.late_copies += w->n_orders > 1;
    if (w->n_orders == 1)
        run_orders(w);
}

/* No step under way was given this block or pane; or, to read it, none writes it. */
static void check_unused(const struct world *w, struct kv_place p, bool to_read)
{
    for (uint32_t i = 0; i < w->n_steps; i++)
        for (uint32_t k = 0; k < w->steps[i]->n_items; k++) {
            const struct given *g = &w->steps[i]->items[k];
            const uint32_t first = to_read ? g->item.first / w->block_tokens : 0;
            for (uint32_t b = first; b < g->n_blocks; b++)
                CHECK(g->blocks[b] != p.block, "block %u is in use", p.block);
            for (uint32_t b = g->first_pane > first ? g->first_pane : first; b < g->end_pane; b++)
                CHECK(g->panes[b] != p.pane, "pane %u is in use", p.pane);
        }
}

/* Twice as large as it need be where there is one kind of layers only. */
static bool read_block(void *ctx, struct kv_place from, void *bytes)
{
    const struct world *w = ctx;
    check_unused(w, from, true);
    if (below(64) == 0) { /* the device failed; what came of it must not be kept */
        memset(bytes, 0xee, 2 * tags_bytes(w));
        return false;
    }
    memset(bytes, 0, 2 * tags_bytes(w));
    if (w->tags)
        memcpy(bytes, tags_of(w, from), tags_bytes(w));
    if (w->window)
        memcpy((char *)bytes + tags_bytes(w), pane_tags_of(w, from), tags_bytes(w));
    return true;
}

static void write_block(void *ctx, struct kv_place to, const void *bytes)
{
    struct world *w = ctx;
    check_unused(w, to, false);
    if (has_copies(w))
        run_orders(w);
    if (w->tags)
        memcpy(tags_of(w, to), bytes, tags_bytes(w));
    if (w->window)
        memcpy(pane_tags_of(w, to), (const char *)bytes + tags_bytes(w), tags_bytes(w));
}

/* Nobody may have written into this sequence's blocks, and its output is what it says alone. What
 * was copied for it may be still to come. */
static void verify(struct world *w, const struct client *c)
{
    uint64_t tag = first_tag(c);
    const struct sched_seq *s = &c->seq;
    if (has_copies(w))
        return;
    const struct kv_table *t = &s->table;
    const bool at_base = w->n_states && t->base != KV_NO_STATE && t->base_at == s->n_computed;
    for (uint32_t pos = 0; pos < s->n_computed; pos++) {
        tag = tag_of(c->tokens[pos], tag);
        const uint64_t *stored = tag_at(w, s->table.blocks, s->table.n_blocks, pos);
        const uint64_t *pane = NULL;
        if (w->window && pos >= first_seen(w, s->n_computed)) {
            const uint32_t i = pos / w->block_tokens;
            CHECK(i >= s->table.first_pane && i < s->table.end_pane, "no pane at %u", pos);
            pane = pane_tags_of(w, (struct kv_place){s->table.blocks[i], s->table.panes[i]}) +
                   pos % w->block_tokens;
        }
        CHECK((!stored || *stored == tag) && (!pane || *pane == tag),
              "serial %llu: position %u was overwritten",
              (unsigned long long)c->serial,
              pos);
        CHECK(!w->n_states || s->slot == SCHED_NO_SLOT || s->n_ahead > 0 ||
                  pos + 1 < s->n_computed || w->states[at_base ? t->base : t->state] == tag,
              "serial %llu: its state was overwritten",
              (unsigned long long)c->serial);
        if (pos + 1 >= s->n_prompt && pos + 1 < s->n_known)
            CHECK(c->tokens[pos + 1] == next_token(w, tag),
                  "serial %llu: token %u is another",
                  (unsigned long long)c->serial,
                  pos + 1);
    }
}

/* --- operations ------------------------------------------------------------------------------ */

static struct client *client_of(const struct sched_seq *s)
{
    return s->user;
}

/* Begin like others: with a text of the world, or with what another client has in its memory. */
static void draw_prompt(struct world *w, struct client *c)
{
    const struct client *other = &w->clients[below(MAX_CLIENTS)];
    const int32_t *begin = below(3) ? w->texts[below(N_TEXTS)] : other->tokens;
    uint32_t n = c->seq.n_prompt, same = below(8) ? between(0, n) : n;
    if (other == c)
        same = 0;
    for (uint32_t i = 0; i < n; i++)
        c->tokens[i] = i < same ? begin[i] : (int32_t)below(w->n_vocab);
}

static int64_t served(const struct world *w, uint32_t tenant)
{
    return sched_served(w->sched, FIRST_TENANT + tenant);
}

static uint32_t n_alive_of(const struct world *w, uint32_t tenant)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        n += w->clients[i].alive && w->clients[i].seq.tenant == FIRST_TENANT + tenant;
    return n;
}

static uint32_t n_waiting_of(const struct world *w, uint32_t tenant)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        const struct client *c = &w->clients[i];
        n += c->alive && c->seq.tenant == FIRST_TENANT + tenant && c->seq.slot == SCHED_NO_SLOT;
    }
    return n;
}

static void op_add(struct world *w)
{
    struct client *c = &w->clients[below(MAX_CLIENTS)];
    if (c->alive)
        return;
    memset(&c->seq, 0xa5, sizeof c->seq); /* the scheduler fills in its own fields */
    c->seq.user = c;
    /* mostly what could fit; a request in sixteen is of any length */
    uint32_t longest =
        w->longest > MAX_TOKENS - 40 || below(16) == 0 ? MAX_TOKENS - 40 : w->longest;
    c->seq.n_prompt = skewed(1, longest);
    c->seq.n_max = c->seq.n_prompt + skewed(0, longest < 40 ? longest : 40);
    c->seq.all_logits = c->all_logits = below(8) == 0;
    c->seq.shares = below(10) > 0;
    c->seq.priority = w->priorities ? (int32_t)below(3) - 1 : 0;
    c->seq.tenant = FIRST_TENANT + below(w->n_tenants);
    c->space = below(4) ? 0 : below(N_SPACES);
    c->seq.space = w->spaces[c->space];
    c->seq.tokens = c->tokens;
    c->n_logits = 0;
    c->n_stop = below(2) ? c->seq.n_max : between(c->seq.n_prompt, c->seq.n_max);
    draw_prompt(w, c);
    uint32_t need = (c->seq.n_max + w->block_tokens - 1) / w->block_tokens;
    uint32_t panes = sched_panes_per_seq(w->window, w->block_tokens);
    bool fits = need <= w->n_blocks && need <= w->cfg.max_blocks_per_seq &&
                (!w->window || (need < panes ? need : panes) <= w->n_panes);
    bool room = sched_n_waiting(w->sched) < w->cfg.max_waiting;
    enum err want = !fits ? ERR_TOO_LONG : !room ? ERR_QUEUE_FULL : OK;
    uint32_t tenant = c->seq.tenant - FIRST_TENANT;
    bool comes = n_alive_of(w, tenant) == 0, waits = n_waiting_of(w, tenant) > 0;
    int64_t had = served(w, tenant);
    enum err got = sched_add(w->sched, &c->seq, NULL);
    int64_t lifted = served(w, tenant) - had;
    CHECK(lifted == 0 || (lifted > 0 && got == OK && !waits), "tenant %u was lifted", tenant);
    if (got == OK && comes) {
        w->began[tenant] = served(w, tenant);
        w->worked[tenant] = 0;
    } else {
        w->began[tenant] += lifted;
    }
    CHECK(got == want, "adding %u tokens: error %d, should be %d", c->seq.n_max, got, want);
    c->alive = got == OK;
    c->serial = ++w->next_serial;
    c->n_skipped = 0;
    count.added += got == OK;
    count.refused += got != OK;
}

static void leave(struct world *w, struct client *c)
{
    verify(w, c);
    sched_remove(w->sched, &c->seq);
    CHECK(c->seq.slot == SCHED_NO_SLOT && !c->seq.table.blocks, "left with slot %u", c->seq.slot);
    c->alive = false;
}

static void op_cancel(struct world *w)
{
    uint32_t i = below(MAX_CLIENTS), n = 0;
    while (n < MAX_CLIENTS && !w->clients[(i + n) % MAX_CLIENTS].alive)
        n++;
    if (n == MAX_CLIENTS)
        return;
    leave(w, &w->clients[(i + n) % MAX_CLIENTS]);
    count.cancelled++;
}

/* As if the rows under way had run. */
static bool decodes(const struct sched_seq *s)
{
    uint32_t stored = s->n_computed + s->n_ahead, length = s->n_known + s->n_expected;
    return stored >= s->n_prompt && length == stored + 1 &&
           !(s->n_expected > 0 && length == s->n_max);
}

/* Everything a plan promises. Called before any of it is run. */
static void check_plan(struct world *w,
                       const struct sched_plan *p,
                       uint32_t row_budget,
                       uint32_t n_decoding,
                       uint32_t n_waiting)
{
    uint32_t n_rows = 0, n_logits = 0;
    for (uint32_t i = 0; i < p->n_items; i++) {
        const struct sched_item *it = &p->items[i];
        const struct sched_seq *s = it->seq;
        CHECK(client_of(s)->alive && s->slot < w->cfg.max_running, "item %u", i);
        const uint32_t end = it->first + it->n_rows, length = client_of(s)->length;
        const bool decode = it->n_rows == 1 && it->first >= s->n_prompt && end == length;
        CHECK(end == s->n_computed + s->n_ahead && it->n_rows > 0, "item %u has no rows", i);
        CHECK(end <= length, "item %u goes beyond %u", i, length);
        CHECK(it->samples == (end == length), "item %u samples", i);
        /* one that came back to all its blocks decodes, although it came in with the prompts */
        CHECK(i < p->n_decodes ? decode : !decode || s->n_preempted > 0,
              "item %u is not where it belongs",
              i);
        for (uint32_t k = 0; k < i; k++)
            CHECK(p->items[k].seq != s, "items %u and %u are of one sequence", k, i);
        n_rows += it->n_rows;
        CHECK(!s->fetching && !s->leader, "item %u is of one that waits", i);
        bool all = s->all_logits && it->first < s->n_prompt;
        n_logits += all ? it->n_rows : it->samples;
        if (all)
            client_of(s)->n_logits += it->n_rows;
    }
    CHECK(n_rows == p->n_rows && n_rows <= w->cfg.max_rows, "%u rows", n_rows);
    CHECK(n_logits <= w->cfg.max_logit_rows, "%u logit rows", n_logits);
    CHECK(!p->waits_for_steps || w->n_steps > 0, "waits for steps");
    CHECK(w->n_steps == 0 || p->n_preempted == 0, "%u preempted", p->n_preempted);
    if (p->waits_for_steps && p->n_items == 0)
        return;
    CHECK(p->n_decodes + p->n_preempted >= n_decoding, "%u of %u decode", p->n_decodes, n_decoding);
    CHECK(n_waiting + p->n_preempted - sched_n_waiting(w->sched) == p->n_admitted,
          "%u admitted",
          p->n_admitted);
    CHECK(w->cfg.overcommit > 0 || sched_n_preempted(w->sched) == 0 || w->priorities,
          "preempted without overcommitment");
    uint32_t bound = row_budget > p->n_decodes + 4 ? row_budget : p->n_decodes + 4;
    CHECK(n_rows <= bound, "%u rows in a budget of %u", n_rows, row_budget);
    CHECK(n_rows > 0 || p->waits_for_tier || w->n_steps > 0 ||
              sched_n_running(w->sched) + sched_n_waiting(w->sched) == 0,
          "stuck");
}

/* Whoever is first in rank gets on in every step, but for the time that it waits for the tier or
 * for its turn. */
static void check_first(struct world *w)
{
    const struct sched_seq *first = NULL;
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        const struct sched_seq *s = &w->clients[i].seq;
        if (w->n_tenants > 1 && s->slot == SCHED_NO_SLOT)
            continue; /* it may be another tenant's turn */
        if (w->clients[i].alive && (!first || s->rank < first->rank ||
                                    (s->rank == first->rank && s->serial < first->serial)))
            first = s;
    }
    bool same = first && first == w->first && first->n_computed == w->first_computed;
    w->n_stuck = same ? w->n_stuck + 1 : 0;
    w->first = first;
    w->first_computed = first ? first->n_computed : 0;
    CHECK(w->n_stuck <= 2 * w->cfg.max_running + 80, "the first in rank does not get on");
}

/* A tenant was served what was computed for it, and what those who run are charged with ahead. */
static void check_served(const struct world *w)
{
    for (uint32_t t = 0; t < w->n_tenants; t++) {
        int64_t ahead = 0, n = 0;
        for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
            const struct sched_seq *s = &w->clients[i].seq;
            if (!w->clients[i].alive || s->tenant != FIRST_TENANT + t)
                continue;
            n++;
            ahead += s->slot != SCHED_NO_SLOT ? s->n_charged : 0;
        }
        CHECK(n == 0 || served(w, t) == w->began[t] + w->worked[t] + ahead,
              "tenant %u was served %lld, not %lld + %lld + %lld",
              t,
              (long long)served(w, t),
              (long long)w->began[t],
              (long long)w->worked[t],
              (long long)ahead);
    }
}

static bool came_in(const struct client *c)
{
    return c->alive && c->seq.slot != SCHED_NO_SLOT &&
           (!c->ran || c->seq.n_preempted > c->n_preempted);
}

/* Nobody came in while the first of another tenant waited that had been served less. */
static void check_turns(const struct world *w)
{
    int64_t least = INT64_MAX, before[N_TENANTS];
    for (uint32_t t = 0; t < w->n_tenants; t++)
        before[t] = served(w, t);
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        const struct client *c = &w->clients[i];
        if (c->alive && c->seq.slot == SCHED_NO_SLOT &&
            served(w, c->seq.tenant - FIRST_TENANT) < least)
            least = served(w, c->seq.tenant - FIRST_TENANT);
        if (came_in(c))
            before[c->seq.tenant - FIRST_TENANT] -= c->seq.n_charged;
    }
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        const struct client *c = &w->clients[i];
        if (came_in(c) && !w->priorities)
            CHECK(before[c->seq.tenant - FIRST_TENANT] <= least,
                  "tenant %u came in at %lld, another waits at %lld",
                  c->seq.tenant,
                  (long long)before[c->seq.tenant - FIRST_TENANT],
                  (long long)least);
    }
}

/* Of one tenant, who runs goes before who
 * waits, and nobody who could move is passed over for long. */
static void check_order(struct world *w, uint32_t tenant)
{
    const struct sched_seq *last_running = NULL, *first_waiting = NULL;
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        struct client *c = &w->clients[i];
        const struct sched_seq *s = &c->seq;
        if (!c->alive || s->tenant != tenant)
            continue;
        if (s->slot == SCHED_NO_SLOT) {
            if (!first_waiting || s->rank < first_waiting->rank ||
                (s->rank == first_waiting->rank && s->serial < first_waiting->serial))
                first_waiting = s;
            c->n_skipped = 0;
            continue;
        }
        if (!last_running || s->rank > last_running->rank ||
            (s->rank == last_running->rank && s->serial > last_running->serial))
            last_running = s;
        if (!s->leader && !s->fetching && !w->priorities)
            CHECK(++c->n_skipped <= 2 * w->cfg.max_running + 2,
                  "serial %u starves",
                  (uint32_t)c->serial);
    }
    /* one of higher priority may wait while those before it hold what it needs */
    CHECK(!last_running || !first_waiting || last_running->rank <= first_waiting->rank ||
              first_waiting->priority > last_running->priority,
          "somebody was overtaken");
}

static void check_fairness(struct world *w, const struct sched_plan *p)
{
    for (uint32_t t = 0; t < w->n_tenants; t++)
        check_order(w, FIRST_TENANT + t);
    check_turns(w);
    check_served(w);
    check_first(w);
    for (uint32_t i = 0; i < p->n_items; i++)
        client_of(p->items[i].seq)->n_skipped = 0;
}

/* Give a step what is planned, as it is now. */
static void give(struct world *w, struct fake_step *step, const struct sched_plan *plan)
{
    step->n_items = plan->n_items;
    step->has_run = false;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *it = &plan->items[i];
        const struct kv_table *t = &it->seq->table;
        struct client *c = client_of(it->seq);
        struct given *g = &step->items[i];
        *g = (struct given){.c = c,
                            .serial = c->serial,
                            .item = *it,
                            .begin = first_tag(c),
                            .n_blocks = t->n_blocks,
                            .first_pane = t->first_pane,
                            .end_pane = t->end_pane,
                            .state_from = t->state_from,
                            .state_to = t->state,
                            .n_known = it->n_rows,
                            .from = c->chosen_by};
        memcpy(g->blocks, t->blocks, t->n_blocks * sizeof *g->blocks);
        if (w->window)
            memcpy(g->panes, t->panes, t->n_blocks * sizeof *g->panes);
        if (w->n_states)
            memcpy(g->states, t->states, t->n_blocks * sizeof *g->states);
        memcpy(g->tokens, c->tokens + it->first, it->n_rows * sizeof *g->tokens);
        if (it->first + it->n_rows > it->seq->n_known) {
            g->n_known--;
            g->tokens[g->n_known] = -1;
        }
        c->chosen_by = i;
    }
    w->orders[w->n_orders++] = (struct order){.step = step};
    w->steps[w->n_steps++] = step;
    kv_step_begun(w->kv);
}

/* Plan a step and begin it; false if there is nothing to run. */
static bool begin_step(struct world *w)
{
    uint32_t n_decoding = 0, n_waiting = sched_n_waiting(w->sched);
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        struct client *c = &w->clients[i];
        c->ran = c->seq.slot != SCHED_NO_SLOT;
        c->n_preempted = c->seq.n_preempted;
        c->length = c->seq.n_known + c->seq.n_expected;
        n_decoding += c->alive && c->seq.slot != SCHED_NO_SLOT && decodes(&c->seq);
    }
    uint32_t row_budget = below(w->cfg.max_rows + 1);
    struct sched_plan plan;
    w->now_us += 20000;
    kv_set_pace(w->kv, w->now_us, w->us_per_token);
    sched_plan_step(w->sched, row_budget, &plan);
    check_plan(w, &plan, row_budget, n_decoding, n_waiting);
    w->holds = plan.waits_for_steps;
    count.held += plan.waits_for_steps;
    if (!plan.waits_for_steps)
        check_fairness(w, &plan);
    struct err_info e;
    CHECK(sched_check(w->sched, &e) == OK, "planned: %s", e.text);
    if (plan.n_items == 0)
        return false;
    if (w->n_orders == MAX_ORDERS)
        run_orders(w);
    give(w, w->n_steps > 0 && w->steps[0] == w->memory ? w->memory + 1 : w->memory, &plan);
    count.steps++;
    count.ahead += w->n_steps > 1;
    count.rows += plan.n_rows;
    count.decodes += plan.n_decodes;
    return true;
}

/* The oldest step has run: take in what it says of those who are still there. */
static void end_step(struct world *w)
{
    struct fake_step *step = w->steps[0];
    while (!step->has_run)
        run_order(w);
    w->steps[0] = w->steps[1];
    w->n_steps--;
    kv_step_ended(w->kv);
    for (uint32_t i = 0; i < step->n_items; i++) {
        const struct given *g = &step->items[i];
        const struct sched_item *it = &g->item;
        struct client *c = g->c;
        if (!c->alive || c->serial != g->serial) {
            count.dropped++;
            continue;
        }
        sched_computed(w->sched, it);
        w->worked[c->seq.tenant - FIRST_TENANT] += it->n_rows;
        if (!it->samples)
            continue;
        CHECK(!c->all_logits || c->n_logits >= c->seq.n_prompt, "logits were left out");
        if (c->seq.n_known >= c->n_stop) {
            leave(w, c);
            count.finished++;
        } else {
            c->tokens[c->seq.n_known] = g->chosen;
            sched_append(w->sched, &c->seq);
        }
    }
    struct kv_stats s = kv_stats(w->kv);
    count.full += s.in_use == w->n_blocks;
    count.panes_full += w->window && s.panes.in_use == w->n_panes;
    count.states_full += w->n_states && s.states.in_use == w->n_states;
}

static void op_step(struct world *w)
{
    bool begun = (w->n_steps == 0 || !w->holds) && begin_step(w);
    if (below(2))
        run_orders(w);
    if (w->n_steps == 2 || (w->n_steps == 1 && (!begun || !w->ahead)))
        end_step(w);
}

/* --- worlds ---------------------------------------------------------------------------------- */

static void world_draw(struct world *w)
{
    w->block_tokens = between(1, 24);
    w->n_blocks = skewed(1, 2 + 3200 / w->block_tokens);
    w->cfg.max_running = skewed(1, MAX_RUNNING);
    w->ahead = below(2);
    w->cfg.max_waiting = between(1, 40);
    w->cfg.max_rows = w->cfg.max_running + skewed(0, 300);
    w->cfg.max_logit_rows = w->cfg.max_running + skewed(0, 60);
    w->cfg.max_blocks_per_seq = between(1, MAX_TOKENS / w->block_tokens + 1);
    w->priorities = below(2);
    w->n_tenants = below(2) ? 1 : between(2, N_TENANTS);
    w->cfg.overcommit = below(3) ? below(11) / 10.0 : below(2);
    if (below(3)) {
        w->window = skewed(2, 200); /* a position reads the one before it */
        w->all_windowed = below(3) == 0;
        w->n_panes = skewed(1, w->n_blocks);
    } else if (below(3)) {
        w->n_states = skewed(1, 3 * w->cfg.max_running);
        w->all_recurrent = below(3) == 0;
    }
    uint32_t most =
        w->n_blocks < w->cfg.max_blocks_per_seq ? w->n_blocks : w->cfg.max_blocks_per_seq;
    if (w->window && w->n_panes < sched_panes_per_seq(w->window, w->block_tokens))
        most = w->n_panes < most ? w->n_panes : most;
    w->longest = most * w->block_tokens;
    w->n_vocab = below(2) ? between(1, 4) : between(5, 50000);
    for (uint32_t i = 0; i < N_TEXTS; i++) /* some begin alike */
        for (uint32_t k = 0; k < MAX_TOKENS; k++)
            w->texts[i][k] = i % 2 && k < 40 * i ? w->texts[i - 1][k] : (int32_t)below(w->n_vocab);
    for (uint32_t i = 1; i < N_SPACES; i++)
        CHECK(kv_space_of(&i, sizeof i, &w->spaces[i], NULL) == OK, "space %u", i);
}

/* The parts that are tested; ERR_NOMEM leaves nothing behind. */
static enum err world_open(struct world *w, struct err_info *e)
{
    struct kv_config kc = {.n_blocks = w->n_blocks,
                           .block_tokens = w->block_tokens,
                           .mover = {w, copy_block, read_block, write_block},
                           .tier = w->host   ? w->host
                                   : w->tier ? fake_tier_base(w->tier)
                                             : NULL,
                           .window = w->window,
                           .n_panes = w->n_panes,
                           .n_states = w->n_states};
    enum err err = kv_create(&kc, &w->kv, e);
    if (err == OK)
        err = sched_create(&w->cfg, w->kv, &w->sched, e);
    if (err != OK) {
        kv_destroy(w->kv);
        w->kv = NULL;
    }
    return err;
}

static void make_host(struct world *w)
{
    struct kv_host_config hc = {.max_bytes = (uint64_t)(2 * tags_bytes(w) + 63) * skewed(1, 200),
                                .block_tokens = w->block_tokens,
                                .block_bytes = 2 * tags_bytes(w),
                                .below = w->tier ? fake_tier_base(w->tier) : NULL};
    CHECK(kv_host_open(&hc, &w->host, NULL) == OK, "%u tokens a block", w->block_tokens);
}

static struct world *world_create(void)
{
    struct world *w = mem_zalloc(1, sizeof *w);
    struct err_info e;
    w->memory = mem_zalloc(2, sizeof *w->memory);
    world_draw(w);
    if (!w->all_windowed && !w->all_recurrent)
        w->tags = mem_zalloc((size_t)w->n_blocks * w->block_tokens, sizeof *w->tags);
    w->pane_tags = mem_zalloc((size_t)w->n_panes * w->block_tokens + 1, sizeof *w->pane_tags);
    w->states = mem_zalloc(w->n_states + 1, sizeof *w->states);
    if (below(2) && !w->n_states)
        w->tier = fake_tier_create(w->block_tokens, 2 * tags_bytes(w), below);
    if (below(3) == 0 && !w->n_states)
        make_host(w);
    for (uint64_t nth = below(8) ? 0 : 1; nth > 0; nth++) {
        mem_fail_nth(nth);
        enum err err = world_open(w, &e);
        if (!mem_fail_nth(0)) {
            CHECK(err == OK, "%s", e.text);
            sched_destroy(w->sched);
            kv_destroy(w->kv);
            break;
        }
        CHECK(err == ERR_NOMEM, "allocation %u failed, error %d", (uint32_t)nth, err);
        count.failed_allocations++;
    }
    CHECK(world_open(w, &e) == OK, "%s", e.text);
    w->us_per_token = below(3) ? 10.0 : 0.0;
    return w;
}

static void world_check(struct world *w)
{
    struct err_info e;
    CHECK(sched_check(w->sched, &e) == OK, "%s", e.text);
    for (uint32_t i = 0; i < MAX_CLIENTS; i += 8) /* some of the memory each time */
        if (w->clients[i + n_ops % 8].alive)
            verify(w, &w->clients[i + n_ops % 8]);
    n_ops++;
}

/* Run to the end of all that is there: it must end, and leave nothing behind. */
static void world_drain(struct world *w)
{
    for (uint32_t n = 0; sched_n_running(w->sched) + sched_n_waiting(w->sched) + w->n_steps > 0;
         n++) {
        CHECK(n < MAX_CLIENTS * MAX_TOKENS, "%u still run", sched_n_running(w->sched));
        op_step(w);
        world_check(w);
    }
    struct kv_stats s = kv_stats(w->kv);
    CHECK(s.free + s.cached == s.total && s.in_use == 0 && s.acquired == s.released,
          "%u free and %u cached of %u",
          s.free,
          s.cached,
          s.total);
    CHECK(s.panes.free + s.panes.cached == s.panes.total, "%u panes in use", s.panes.in_use);
    CHECK(s.states.free + s.states.cached == s.states.total, "%u states in use", s.states.in_use);
}

static void world_destroy(struct world *w)
{
    struct kv_stats s = kv_stats(w->kv);
    count.hits += s.counts.hit_tokens;
    count.misses += s.counts.miss_tokens;
    count.copied += s.counts.copied;
    count.merged += s.counts.merged;
    count.evicted += s.counts.evicted;
    count.passed += s.counts.panes_passed;
    count.pane_evicted += s.counts.panes_evicted;
    count.pane_missed += s.counts.pane_miss_tokens;
    count.state_kept += s.counts.states_kept;
    count.state_evicted += s.counts.states_evicted;
    count.state_missed += s.counts.state_miss_tokens;
    count.state_hits += w->n_states ? s.counts.hit_tokens : 0;
    count.preempted += sched_n_preempted(w->sched);
    count.fetched += w->tier ? fake_tier_n_fetched(w->tier) : 0;
    sched_destroy(w->sched);
    kv_destroy(w->kv);
    if (w->host) {
        struct kv_tier_stats host;
        w->host->ops->stats(w->host, &host);
        count.host_fetched += host.fetched;
        w->host->ops->destroy(w->host);
    }
    fake_tier_destroy(w->tier);
    free(w->tags);
    free(w->pane_tags);
    free(w->states);
    free(w->memory);
    free(w);
}

static void world_run(uint64_t end)
{
    struct world *w = world_create();
    uint32_t p_add = between(2, 60), p_cancel = below(2) ? between(0, 15) : 0;
    uint32_t breaks_at = below(4 * OPS_PER_WORLD);
    for (uint32_t i = 0; i < OPS_PER_WORLD && n_ops < end; i++) {
        uint32_t dice = below(100);
        if (w->tier && i == breaks_at)
            (i % 2 ? fake_tier_break : fake_tier_hush)(w->tier);
        if (dice < p_add)
            op_add(w);
        else if (dice < p_add + p_cancel)
            op_cancel(w);
        else
            op_step(w);
        world_check(w);
    }
    if (below(4)) /* else it is destroyed with its sequences */
        world_drain(w);
    world_destroy(w);
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : clock_us() ^ (uint64_t)clock_unix() << 20;
    uint64_t end = argc > 2 ? strtoull(argv[2], NULL, 10) + 1 : 1000000;
    uint64_t start_us = clock_us(), worlds = 0;
    rng_state = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (; n_ops < end; worlds++)
        world_run(end);
    printf("%llu operations in %llu worlds, %.1f s: %llu sequences (%llu refused, %llu cancelled, "
           "%llu finished), %llu steps with %llu rows, %llu decodes; memory full in %llu\n",
           (unsigned long long)n_ops,
           (unsigned long long)worlds,
           (double)(clock_us() - start_us) * 1e-6,
           (unsigned long long)count.added,
           (unsigned long long)count.refused,
           (unsigned long long)count.cancelled,
           (unsigned long long)count.finished,
           (unsigned long long)count.steps,
           (unsigned long long)count.rows,
           (unsigned long long)count.decodes,
           (unsigned long long)count.full);
    printf("%llu positions found and %llu computed, %llu blocks copied, %llu merged, %llu evicted, "
           "%llu fetched and %llu from RAM; %llu preemptions, %llu failed allocations\n",
           (unsigned long long)count.hits,
           (unsigned long long)count.misses,
           (unsigned long long)count.copied,
           (unsigned long long)count.merged,
           (unsigned long long)count.evicted,
           (unsigned long long)count.fetched,
           (unsigned long long)count.host_fetched,
           (unsigned long long)count.preempted,
           (unsigned long long)count.failed_allocations);
    printf("%llu panes passed, %llu evicted, %llu positions not used for want of them; all in use "
           "after %llu steps\n",
           (unsigned long long)count.passed,
           (unsigned long long)count.pane_evicted,
           (unsigned long long)count.pane_missed,
           (unsigned long long)count.panes_full);
    printf(
        "%llu states kept, %llu evicted; with them %llu positions found, %llu not used for want of "
        "them; all in use after %llu steps\n",
        (unsigned long long)count.state_kept,
        (unsigned long long)count.state_evicted,
        (unsigned long long)count.state_hits,
        (unsigned long long)count.state_missed,
        (unsigned long long)count.states_full);
    printf("%llu steps planned ahead, %llu plans waited for steps; %llu results dropped, %llu late "
           "copies\n",
           (unsigned long long)count.ahead,
           (unsigned long long)count.held,
           (unsigned long long)count.dropped,
           (unsigned long long)count.late_copies);
    return 0;
}
