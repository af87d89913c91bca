/* The real scheduler and block pool, driven by a fake model and a random crowd.
 *
 * The fake model has a real memory: a tag for every position of every block, laid out as a backend
 * would. The tag of a position is made from its token and the tag before it, which is read back
 * through the block table; the next token is made from the last tag. So a block that is lent twice,
 * lost, or given back too early changes somebody's output, and every output is compared with what
 * the same sequence says alone.
 *
 * Time is counted in operations: arrivals, cancellations and steps, in random order, over worlds of
 * random sizes, many of them so tiny that everything is always full. After each operation the
 * scheduler and the pool check themselves.
 *
 *      sim_sched [SEED [N_OPS]]        the seed of a failed run replays it */
#include "sched/sched.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CLIENTS 96
#define MAX_TOKENS 320
#define OPS_PER_WORLD 2000

/* One request: its tokens, and what the simulation expects of the scheduler. */
struct client {
    struct sched_seq seq;
    bool alive;
    uint64_t serial;    /* in the order of arrival */
    uint32_t n_stop;    /* ends by itself at this length, at most n_max */
    uint32_t n_skipped; /* steps since it last got a row */
    uint32_t tokens[MAX_TOKENS];
};

struct world {
    struct sched_config cfg;
    uint32_t n_blocks, block_tokens;
    uint32_t longest; /* sequence that could run */
    struct kv_pool *pool;
    struct sched *sched;
    uint64_t *tags; /* [n_blocks * block_tokens] the memory of the fake model */
    struct client clients[MAX_CLIENTS];
    uint64_t next_serial;
};

static uint64_t seed, n_ops, rng_state;
static struct {
    uint64_t added, refused, cancelled, finished, steps, rows, decodes, full_pools;
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

static uint64_t tag_of(uint32_t token, uint64_t tag_before)
{
    return mix(tag_before + 0x9e3779b97f4a7c15u * (token + 1));
}

static uint32_t next_token(uint64_t tag)
{
    return (uint32_t)(tag >> 40);
}

static uint64_t *tag_at(struct world *w, const struct sched_seq *s, uint32_t pos)
{
    uint32_t i = pos / w->block_tokens;
    CHECK(i < s->table.n_blocks, "position %u has no block", pos);
    CHECK(s->table.blocks[i] < w->n_blocks, "block %u", s->table.blocks[i]);
    return &w->tags[s->table.blocks[i] * w->block_tokens + pos % w->block_tokens];
}

/* Compute the rows of an item; the tag of the last one. */
static uint64_t run_item(struct world *w, const struct client *c, const struct sched_item *item)
{
    uint64_t tag = item->first > 0 ? *tag_at(w, &c->seq, item->first - 1) : 0;
    for (uint32_t pos = item->first; pos < item->first + item->n_rows; pos++) {
        tag = tag_of(c->tokens[pos], tag);
        *tag_at(w, &c->seq, pos) = tag;
    }
    return tag;
}

/* Nobody may have written into this sequence's blocks, and its output is what it says alone. */
static void verify(struct world *w, const struct client *c)
{
    uint64_t tag = 0;
    for (uint32_t pos = 0; pos < c->seq.n_computed; pos++) {
        tag = tag_of(c->tokens[pos], tag);
        CHECK(*tag_at(w, &c->seq, pos) == tag,
              "serial %llu: position %u was overwritten",
              (unsigned long long)c->serial,
              pos);
        if (pos + 1 >= c->seq.n_prompt && pos + 1 < c->seq.n_known)
            CHECK(c->tokens[pos + 1] == next_token(tag),
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
    c->seq.all_logits = below(8) == 0;
    c->n_stop = below(2) ? c->seq.n_max : between(c->seq.n_prompt, c->seq.n_max);
    for (uint32_t i = 0; i < c->seq.n_prompt; i++)
        c->tokens[i] = below(50000);
    uint32_t need = (c->seq.n_max + w->block_tokens - 1) / w->block_tokens;
    bool fits = need <= w->n_blocks && need <= w->cfg.max_blocks_per_seq;
    bool room = sched_n_waiting(w->sched) < w->cfg.max_waiting;
    enum err want = !fits ? ERR_TOO_LONG : !room ? ERR_QUEUE_FULL : OK;
    enum err got = sched_add(w->sched, &c->seq, NULL);
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

static bool decodes(const struct sched_seq *s)
{
    return s->n_computed >= s->n_prompt && s->n_known == s->n_computed + 1;
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
        CHECK(it->first == s->n_computed && it->n_rows > 0, "item %u has no rows", i);
        CHECK(it->first + it->n_rows <= s->n_known, "item %u goes beyond %u", i, s->n_known);
        CHECK(it->samples == (it->first + it->n_rows == s->n_known), "item %u samples", i);
        CHECK((i < p->n_decodes) == decodes(s), "item %u is not where it belongs", i);
        for (uint32_t k = 0; k < i; k++)
            CHECK(p->items[k].seq != s, "items %u and %u are of one sequence", k, i);
        n_rows += it->n_rows;
        n_logits += s->all_logits && it->first < s->n_prompt ? it->n_rows : it->samples;
    }
    CHECK(n_rows == p->n_rows && n_rows <= w->cfg.max_rows, "%u rows", n_rows);
    CHECK(n_logits <= w->cfg.max_logit_rows, "%u logit rows", n_logits);
    CHECK(p->n_decodes == n_decoding, "%u of %u decode", p->n_decodes, n_decoding);
    CHECK(n_waiting - sched_n_waiting(w->sched) == p->n_admitted, "%u admitted", p->n_admitted);
    uint32_t bound = row_budget > n_decoding + 16 ? row_budget : n_decoding + 16;
    CHECK(n_rows <= bound, "%u rows in a budget of %u", n_rows, row_budget);
    CHECK(n_rows > 0 || sched_n_running(w->sched) + sched_n_waiting(w->sched) == 0, "stuck");
}

/* Who runs came in the order of arrival, and nobody who could move is passed over for long. */
static void check_fairness(struct world *w, const struct sched_plan *p)
{
    uint64_t newest_running = 0, oldest_waiting = UINT64_MAX;
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        struct client *c = &w->clients[i];
        if (!c->alive)
            continue;
        if (c->seq.slot == SCHED_NO_SLOT) {
            oldest_waiting = c->serial < oldest_waiting ? c->serial : oldest_waiting;
            continue;
        }
        newest_running = c->serial > newest_running ? c->serial : newest_running;
        CHECK(++c->n_skipped <= 2 * w->cfg.max_running, "serial %u starves", (uint32_t)c->serial);
    }
    CHECK(newest_running < oldest_waiting, "somebody was overtaken");
    for (uint32_t i = 0; i < p->n_items; i++)
        client_of(p->items[i].seq)->n_skipped = 0;
}

static void op_step(struct world *w)
{
    uint32_t n_decoding = 0, n_waiting = sched_n_waiting(w->sched);
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        n_decoding += w->clients[i].alive && w->clients[i].seq.slot != SCHED_NO_SLOT &&
                      decodes(&w->clients[i].seq);
    uint32_t row_budget = below(w->cfg.max_rows + 1);
    struct sched_plan plan;
    sched_plan_step(w->sched, row_budget, &plan);
    check_plan(w, &plan, row_budget, n_decoding, n_waiting);
    check_fairness(w, &plan);
    struct err_info e;
    CHECK(sched_check(w->sched, &e) == OK, "planned: %s", e.text);
    for (uint32_t i = 0; i < plan.n_items; i++) {
        const struct sched_item *it = &plan.items[i];
        struct client *c = client_of(it->seq);
        uint64_t tag = run_item(w, c, it);
        sched_computed(w->sched, it);
        if (!it->samples)
            continue;
        if (c->seq.n_known >= c->n_stop) {
            leave(w, c);
            count.finished++;
        } else {
            c->tokens[c->seq.n_known] = next_token(tag);
            sched_append(w->sched, &c->seq);
        }
    }
    count.steps++;
    count.rows += plan.n_rows;
    count.decodes += plan.n_decodes;
    count.full_pools += kv_pool_stats(w->pool).free == 0;
}

/* --- worlds ---------------------------------------------------------------------------------- */

static struct world *world_create(void)
{
    struct world *w = mem_zalloc(1, sizeof *w);
    w->block_tokens = between(1, 24);
    w->n_blocks = skewed(1, 2 + 3200 / w->block_tokens);
    w->cfg.max_running = skewed(1, 60);
    w->cfg.max_waiting = between(1, 40);
    w->cfg.max_rows = w->cfg.max_running + skewed(0, 300);
    w->cfg.max_logit_rows = w->cfg.max_running + skewed(0, 60);
    w->cfg.max_blocks_per_seq = between(1, MAX_TOKENS / w->block_tokens + 1);
    uint32_t most =
        w->n_blocks < w->cfg.max_blocks_per_seq ? w->n_blocks : w->cfg.max_blocks_per_seq;
    w->longest = most * w->block_tokens;
    w->tags = mem_zalloc((size_t)w->n_blocks * w->block_tokens, sizeof *w->tags);
    struct err_info e;
    CHECK(kv_pool_create(w->n_blocks, w->block_tokens, &w->pool, &e) == OK, "%s", e.text);
    CHECK(sched_create(&w->cfg, w->pool, &w->sched, &e) == OK, "%s", e.text);
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
    for (uint32_t n = 0; sched_n_running(w->sched) + sched_n_waiting(w->sched) > 0; n++) {
        CHECK(n < MAX_CLIENTS * MAX_TOKENS, "%u still run", sched_n_running(w->sched));
        op_step(w);
        world_check(w);
    }
    struct kv_stats s = kv_pool_stats(w->pool);
    CHECK(s.free == s.total && s.acquired == s.released, "%u of %u free", s.free, s.total);
}

static void world_destroy(struct world *w)
{
    sched_destroy(w->sched);
    kv_pool_destroy(w->pool);
    free(w->tags);
    free(w);
}

static void world_run(uint64_t end)
{
    struct world *w = world_create();
    uint32_t p_add = between(2, 60), p_cancel = below(2) ? between(0, 15) : 0;
    for (uint32_t i = 0; i < OPS_PER_WORLD && n_ops < end; i++) {
        uint32_t dice = below(100);
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
    uint64_t end = argc > 2 ? strtoull(argv[2], NULL, 10) + 1 : 2000000;
    uint64_t start_us = clock_us(), worlds = 0;
    rng_state = seed;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (; n_ops < end; worlds++)
        world_run(end);
    printf("%llu operations in %llu worlds, %.1f s: %llu sequences (%llu refused, %llu cancelled, "
           "%llu finished), %llu steps with %llu rows, %llu decodes; pool full in %llu\n",
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
           (unsigned long long)count.full_pools);
    return 0;
}
