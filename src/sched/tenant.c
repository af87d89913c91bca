/* Whose turn it is: every tenant has a count of the rows that were computed for it, and the first
 * in rank of the one that had fewest is admitted next.
 *
 *      tenant   served   waiting, first in rank first
 *        7        900    a b c d e
 *        3        700    x y            x is next; its prompt of 300 counts at once, so then a is
 *
 * Prompts are charged ahead when they come in, so that tenants take turns within a step too; what
 * was not computed after all (found later, or removed) is given back.
 *
 * Counts only grow, and who joins is lifted to no more than another has: so none is larger than all
 * rows that were ever computed. Pure counting: no clock. */
#include "sched/internal.h"

#include <assert.h>

/* Lower is sooner. What one that runs was charged with ahead would be given back if it waited. */
static int64_t turn_of(const struct sched *s, const struct sched_seq *seq)
{
    const struct sched_tenant *t = &s->tenants[seq->tenant_at];
    return t->served + t->ahead - seq->n_charged - seq->priority * SCHED_PRIORITY_ROWS;
}

bool sched_has_turn_before(const struct sched *s,
                           const struct sched_seq *a,
                           const struct sched_seq *b)
{
    if (a->tenant_at == b->tenant_at)
        return sched_goes_before(a, b);
    int64_t at_a = turn_of(s, a), at_b = turn_of(s, b);
    return at_a != at_b ? at_a < at_b : sched_goes_before(a, b);
}

enum {
    MOST_SEEN = 64
}; /* of a tenant, for one that has rows: a plan must not take longer with its
    * queue */

/* The first in rank that has rows, of waiting[end - n..end). */
static struct sched_seq *first_with_rows(const struct sched *s, uint32_t end, uint32_t n)
{
    for (uint32_t i = 1; i <= n && i <= MOST_SEEN; i++)
        if (sched_has_rows(s, s->waiting[end - i]))
            return s->waiting[end - i];
    return NULL;
}

struct sched_seq *sched_first_waiting(const struct sched *s)
{
    struct sched_seq *first = NULL;
    uint32_t end = 0;
    for (uint32_t i = 0; i < s->n_tenants && end < s->n_waiting; i++) {
        end += s->tenants[i].n_waiting;
        struct sched_seq *seq = first_with_rows(s, end, s->tenants[i].n_waiting);
        if (seq && (!first || sched_has_turn_before(s, seq, first)))
            first = seq;
    }
    return first;
}

/* A place for a tenant that has none: a new one, or that of who left, has had least, and so loses
 * least by being forgotten. There are as many places as sequences can be here at once. */
static uint32_t take_place(struct sched *s)
{
    uint32_t at = UINT32_MAX;
    if (s->n_tenants < s->cfg.max_waiting + s->cfg.max_running)
        return s->n_tenants++;
    for (uint32_t i = 0; i < s->n_tenants; i++) {
        const struct sched_tenant *t = &s->tenants[i];
        if (t->n_seqs == 0 && (at == UINT32_MAX || t->served < s->tenants[at].served))
            at = i;
    }
    assert(at != UINT32_MAX);
    return at;
}

static uint32_t find_place(const struct sched *s, uint32_t tenant)
{
    uint32_t i = 0;
    while (i < s->n_tenants && s->tenants[i].id != tenant)
        i++;
    return i;
}

void sched_join_tenant(struct sched *s, struct sched_seq *seq)
{
    uint32_t at = find_place(s, seq->tenant);
    if (at == s->n_tenants) {
        at = take_place(s);
        s->tenants[at] = (struct sched_tenant){.id = seq->tenant};
    }
    s->tenants[at].n_seqs++;
    seq->tenant_at = at;
}

/* Where one that had nothing waiting begins, if it asks at `priority`: level with the one that was
 * served most, for what that took it took from nobody who waits. But where somebody waits, no
 * further than level with that one: in rows, so that who has the higher priority has its head
 * start; or in turns, where the one that waits has the lower priority and let pass what it had to.
 */
static int64_t level_at(const struct sched *s, int32_t priority)
{
    int64_t most = 0, level = INT64_MAX;
    uint32_t end = 0;
    for (uint32_t i = 0; i < s->n_tenants; i++) {
        const struct sched_tenant *t = &s->tenants[i];
        if (t->served > most)
            most = t->served;
        end += t->n_waiting;
        if (t->n_waiting == 0)
            continue;
        int64_t above = (int64_t)priority - s->waiting[end - 1]->priority;
        int64_t at = t->served + (above > 0 ? above * SCHED_PRIORITY_ROWS : 0);
        if (at < level)
            level = at;
    }
    return level < most ? level : most;
}

/* Of the tenant's requests that wait, does one ask at this priority or a higher one? One that waits
 * at a lower one, such as a line of a batch, misses no turns of this one. */
static bool has_asked(const struct sched *s, const struct sched_tenant *t, int32_t priority)
{
    uint32_t end = 0;
    for (const struct sched_tenant *u = s->tenants; u <= t; u++)
        end += u->n_waiting;
    for (uint32_t i = end - t->n_waiting; i < end; i++)
        if (s->waiting[i]->priority >= priority)
            return true;
    return false;
}

void sched_lift_tenant(struct sched *s, const struct sched_seq *seq)
{
    struct sched_tenant *t = &s->tenants[seq->tenant_at];
    if (has_asked(s, t, seq->priority))
        return;
    int64_t level = level_at(s, seq->priority);
    if (t->served < level)
        t->served = level;
}

void sched_quit_tenant(struct sched *s, struct sched_seq *seq)
{
    s->tenants[seq->tenant_at].n_seqs--;
    seq->tenant_at = SCHED_NO_TENANT;
}

void sched_charge_entry(struct sched *s, struct sched_seq *seq)
{
    seq->n_charged = sched_rest(seq);
    s->tenants[seq->tenant_at].ahead += seq->n_charged;
}

void sched_charge_rows(struct sched *s, struct sched_seq *seq, uint32_t n_rows)
{
    struct sched_tenant *t = &s->tenants[seq->tenant_at];
    uint32_t ahead = n_rows < seq->n_charged ? n_rows : seq->n_charged;
    seq->n_charged -= ahead;
    t->ahead -= ahead;
    t->served += n_rows;
    if (seq->n_computed == seq->n_known)
        sched_refund(s, seq);
}

void sched_refund(struct sched *s, struct sched_seq *seq)
{
    s->tenants[seq->tenant_at].ahead -= seq->n_charged;
    seq->n_charged = 0;
}

int64_t sched_served(const struct sched *s, uint32_t tenant)
{
    uint32_t at = find_place(s, tenant);
    return at < s->n_tenants ? s->tenants[at].served + s->tenants[at].ahead : 0;
}
