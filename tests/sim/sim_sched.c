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
#include "sim/sim.h"

#include "base/clock.h"
#include "base/mem.h"
#include "few.h"
#include "kv/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS_PER_WORLD 2000

static uint64_t seed, n_ops, rng_state;
struct sim_counts count;

void sim_fail(const char *file, int line, const char *cond, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%s:%d: %s: ", file, line, cond);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\nFAILED after %llu operations; replay: sim_sched %llu %llu\n",
           (unsigned long long)n_ops,
           (unsigned long long)seed,
           (unsigned long long)n_ops);
    exit(1);
}

/* --- chance ---------------------------------------------------------------------------------- */

uint32_t below(uint32_t n)
{
    rng_state += 0x9e3779b97f4a7c15u;
    return (uint32_t)((mix(rng_state) >> 32) * n >> 32);
}

uint32_t between(uint32_t lo, uint32_t hi)
{
    return lo + below(hi - lo + 1);
}

uint32_t skewed(uint32_t lo, uint32_t hi)
{
    uint32_t n = between(lo, hi);
    return below(3) ? lo + (n - lo) / 8 : n;
}

/* --- operations ------------------------------------------------------------------------------ */

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

static uint32_t n_alive_of(const struct world *w, uint32_t tenant)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        n += w->clients[i].alive && w->clients[i].seq.tenant == FIRST_TENANT + tenant;
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
    bool comes = n_alive_of(w, tenant) == 0;
    note_waiting(w);
    int64_t had = served(w, tenant);
    enum err got = sched_add(w->sched, &c->seq, NULL);
    int64_t lifted = served(w, tenant) - had;
    /* one that waits at a lower priority does not count */
    CHECK(lifted == 0 || (got == OK && (!w->waited[tenant] || w->priorities)),
          "tenant %u was lifted",
          tenant);
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
    if (got == OK && !w->waited[tenant])
        check_lift(w, tenant, lifted);
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
        c->rest = c->ran && !decodes(&c->seq) ? rest(&c->seq) : 0;
        n_decoding += c->alive && c->seq.slot != SCHED_NO_SLOT && decodes(&c->seq);
    }
    note_waiting(w);
    uint32_t row_budget = below(w->cfg.max_rows + 1);
    w->budget = row_budget > n_decoding + 4 ? row_budget - n_decoding : 4;
    if (w->budget > w->cfg.max_rows - n_decoding)
        w->budget = w->cfg.max_rows - n_decoding;
    struct sched_plan plan;
    w->now_us += 20000;
    kv_set_pace(w->kv, w->now_us, w->us_per_token);
    sched_plan_step(w->sched, row_budget, &plan);
    check_plan(w, &plan, row_budget, n_decoding, n_waiting);
    w->holds = plan.waits_for_steps;
    count.held += plan.waits_for_steps;
    check_lifts(w);
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
            sched_append(&c->seq);
        }
    }
    struct kv_stats s = kv_stats(w->kv);
    count.full += s.blocks.in_use == w->n_blocks;
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
    w->most_moves = below(2) ? between(2, 9) : 0;
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
                           .most_moves = w->most_moves,
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

static double a_moment(void *ctx)
{
    (void)ctx;
    return 1;
}

static void make_host(struct world *w)
{
    struct kv_host_config hc = {.max_bytes = (uint64_t)(2 * tags_bytes(w) + 63) * skewed(1, 200),
                                .block_tokens = w->block_tokens,
                                .block_bytes = 2 * tags_bytes(w),
                                .move_us = below(2) ? a_moment : NULL, /* two under way */
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
    const double paces[] = {0.0, 10.0, 20000.0}; /* the tier is seldom faster at the second */
    w->us_per_token = paces[below(3)];
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
    CHECK(s.blocks.free + s.blocks.cached == s.blocks.total && s.blocks.in_use == 0 &&
              s.acquired == s.released,
          "%u free and %u cached of %u",
          s.blocks.free,
          s.blocks.cached,
          s.blocks.total);
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
    uint64_t end = argc > 2 ? strtoull(argv[2], NULL, 10) + 1 : few_shapes() ? 300000 : 1000000;
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
