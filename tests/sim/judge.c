/* What plans promise, and what is fair. */
#include "sim/sim.h"

uint32_t rest(const struct sched_seq *s)
{
    uint32_t stored = s->n_computed + s->n_ahead, length = s->n_known + s->n_expected;
    return s->n_expected > 0 && length == s->n_max ? 0 : length - stored;
}

bool decodes(const struct sched_seq *s)
{
    return rest(s) == 1 && s->n_computed + s->n_ahead >= s->n_prompt;
}

void check_plan(struct world *w,
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
    CHECK(sched_n_waiting(w->sched) <= n_waiting + p->n_preempted, "more wait than did");
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

static bool is_of(const struct client *c, uint32_t tenant)
{
    return c->alive && c->seq.tenant == FIRST_TENANT + tenant;
}

static bool waits(const struct world *w, uint32_t tenant)
{
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        if (is_of(&w->clients[i], tenant) && w->clients[i].seq.slot == SCHED_NO_SLOT)
            return true;
    return false;
}

void note_waiting(struct world *w)
{
    for (uint32_t t = 0; t < w->n_tenants; t++)
        w->waited[t] = waits(w, t);
}

/* What those who run are charged with ahead. */
static int64_t ahead(const struct world *w, uint32_t tenant)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        if (is_of(&w->clients[i], tenant) && w->clients[i].seq.slot != SCHED_NO_SLOT)
            n += w->clients[i].seq.n_charged;
    return n;
}

static bool is_here(const struct world *w, uint32_t tenant)
{
    for (uint32_t i = 0; i < MAX_CLIENTS; i++)
        if (is_of(&w->clients[i], tenant))
            return true;
    return false;
}

void check_lift(const struct world *w, uint32_t tenant, int64_t lift)
{
    int64_t has = served(w, tenant) - ahead(w, tenant), most = 0, least = INT64_MAX;
    for (uint32_t t = 0; t < w->n_tenants; t++) {
        int64_t other = served(w, t) - ahead(w, t);
        if (t != tenant && other > most)
            most = other;
        if (t != tenant && w->waited[t] && other < least)
            least = other;
    }
    CHECK(lift >= 0 && (lift == 0 || has <= most), "tenant %u was lifted too far", tenant);
    if (w->priorities)
        return;
    CHECK(lift == 0 || has <= least, "tenant %u was lifted behind one that waits", tenant);
    CHECK(has >= (least < most ? least : most), "tenant %u has saved up turns", tenant);
}

void check_lifts(struct world *w)
{
    for (uint32_t t = 0; t < w->n_tenants; t++) {
        if (!is_here(w, t))
            continue;
        int64_t lift = served(w, t) - ahead(w, t) - w->began[t] - w->worked[t];
        /* with priorities, one that was taken out of the queue may be put back at once */
        CHECK(lift == 0 || !w->waited[t] || w->priorities, "tenant %u was lifted", t);
        if (!w->waited[t] && waits(w, t))
            check_lift(w, t, lift);
        w->began[t] += lift;
    }
}

/* A tenant was served what was computed for it, and what those who run are charged with ahead. */
static void check_served(const struct world *w)
{
    for (uint32_t t = 0; t < w->n_tenants; t++)
        CHECK(!is_here(w, t) || served(w, t) == w->began[t] + w->worked[t] + ahead(w, t),
              "tenant %u was served %lld, not %lld + %lld + %lld",
              t,
              (long long)served(w, t),
              (long long)w->began[t],
              (long long)w->worked[t],
              (long long)ahead(w, t));
}

static bool came_in(const struct client *c)
{
    return c->alive && c->seq.slot != SCHED_NO_SLOT &&
           (!c->ran || c->seq.n_preempted > c->n_preempted);
}

/* The most that was left of its prompt in this step, while it ran; it may have been preempted. */
static uint32_t prompt_rest(const struct client *c)
{
    bool entered = came_in(c) || (!c->ran && c->seq.n_preempted > c->n_preempted);
    return !c->alive ? 0 : entered ? c->length : c->rest;
}

static uint32_t least_rows(uint32_t n)
{
    return n < 16 ? n : 16;
}

/* May one that waits have had no rows beside the prompts that were there, or came in? Its tenant
 * has one of them, and there are not as many rows as all could use. */
static bool has_no_rows(const struct world *w, const struct client *waiting)
{
    uint32_t n = 0, n_own = 0, rows = least_rows(waiting->length);
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        const struct client *c = &w->clients[i];
        n += prompt_rest(c) > 0;
        n_own += prompt_rest(c) > 0 && c->seq.tenant == waiting->seq.tenant;
        rows += least_rows(prompt_rest(c));
    }
    return n >= 2 && n_own > 0 && rows > w->budget;
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
            served(w, c->seq.tenant - FIRST_TENANT) < least && !has_no_rows(w, c))
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

static bool goes_before(const struct sched_seq *a, const struct sched_seq *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->serial < b->serial;
}

/* Nobody comes in before one of its tenant that is before it in rank, except a shorter one where
 * the other has no rows. */
static void check_order(const struct world *w, const struct client *entered)
{
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        const struct client *c = &w->clients[i];
        if (!c->alive || c->seq.slot != SCHED_NO_SLOT || c->seq.tenant != entered->seq.tenant ||
            goes_before(&entered->seq, &c->seq))
            continue;
        CHECK(entered->length < c->length && has_no_rows(w, c),
              "serial %u was overtaken",
              (uint32_t)c->serial);
    }
}

/* Nobody who could move is passed over for long. */
static void check_moves(struct world *w, struct client *c)
{
    const struct sched_seq *s = &c->seq;
    if (s->slot == SCHED_NO_SLOT)
        c->n_skipped = 0;
    else if (!s->leader && !s->fetching && !w->priorities)
        CHECK(
            ++c->n_skipped <= 2 * w->cfg.max_running + 2, "serial %u starves", (uint32_t)c->serial);
}

void check_fairness(struct world *w, const struct sched_plan *p)
{
    for (uint32_t i = 0; i < MAX_CLIENTS; i++) {
        if (came_in(&w->clients[i]))
            check_order(w, &w->clients[i]);
        if (w->clients[i].alive)
            check_moves(w, &w->clients[i]);
    }
    check_turns(w);
    check_served(w);
    check_first(w);
    for (uint32_t i = 0; i < p->n_items; i++)
        client_of(p->items[i].seq)->n_skipped = 0;
}
