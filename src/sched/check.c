/* sched_check: what the scheduler stores twice, compared. */
#include "sched/internal.h"

static enum err check_running(const struct sched *s, uint32_t i, struct err_info *e)
{
    const struct sched_seq *seq = s->running[i];
    if (seq->slot >= s->cfg.max_running)
        return err_set(e, ERR_INTERNAL, "running sequence %u is in slot %u", i, seq->slot);
    for (uint32_t k = 0; k < i; k++)
        if (s->running[k]->slot == seq->slot)
            return err_set(e, ERR_INTERNAL, "slot %u runs two sequences", seq->slot);
    if (i > 0 && !sched_goes_before(s->running[i - 1], seq))
        return err_set(e, ERR_INTERNAL, "slot %u runs out of rank", seq->slot);
    if (s->slots[seq->slot].blocks)
        return err_set(e, ERR_INTERNAL, "slot %u runs but kept its table", seq->slot);
    if (seq->n_computed > seq->n_known || seq->n_known < seq->n_prompt ||
        sched_length(seq) > seq->n_max || sched_stored(seq) > sched_length(seq))
        return err_set(e,
                       ERR_INTERNAL,
                       "slot %u: %u and %u computed, %u and %u known, prompt %u, at most %u",
                       seq->slot,
                       seq->n_computed,
                       seq->n_ahead,
                       seq->n_known,
                       seq->n_expected,
                       seq->n_prompt,
                       seq->n_max);
    if (seq->table.n_blocks < kv_blocks_for(s->kv, sched_stored(seq)) ||
        (!seq->fetching && seq->table.n_blocks > kv_blocks_for(s->kv, sched_length(seq))))
        return err_set(e,
                       ERR_INTERNAL,
                       "slot %u: %u blocks for %u positions",
                       seq->slot,
                       seq->table.n_blocks,
                       sched_stored(seq));
    uint32_t first = kv_first_pane(s->kv, seq->n_computed);
    if (kv_n_panes(s->kv) > 0 && seq->table.first_pane != first)
        return err_set(e,
                       ERR_INTERNAL,
                       "slot %u: panes from %u on for %u positions",
                       seq->slot,
                       seq->table.first_pane,
                       seq->n_computed);
    if (kv_n_states(s->kv) > 0 &&
        (seq->table.state == KV_NO_STATE || seq->table.n_state != sched_stored(seq)))
        return err_set(e,
                       ERR_INTERNAL,
                       "slot %u: state %u behind %u positions, not %u",
                       seq->slot,
                       seq->table.state,
                       seq->table.n_state,
                       sched_stored(seq));
    return OK;
}

/* Whom a sequence waits for runs before it, and has what it waits for still to compute. */
static enum err check_leader(const struct sched *s, uint32_t i, struct err_info *e)
{
    const struct sched_seq *seq = s->running[i];
    uint32_t k = 0;
    while (k < i && s->running[k] != seq->leader)
        k++;
    if (seq->leader && (k == i || seq->leader->n_known < seq->leader_until))
        return err_set(e, ERR_INTERNAL, "slot %u waits for nobody before it", seq->slot);
    return OK;
}

static enum err check_free_slots(const struct sched *s, struct err_info *e)
{
    for (uint32_t i = 0; i < s->cfg.max_running - s->n_running; i++) {
        uint32_t slot = s->free_slots[i];
        if (slot >= s->cfg.max_running)
            return err_set(e, ERR_INTERNAL, "free slot %u does not exist", slot);
        for (uint32_t k = 0; k < i; k++)
            if (s->free_slots[k] == slot)
                return err_set(e, ERR_INTERNAL, "slot %u is free twice", slot);
        if (!s->slots[slot].blocks || s->slots[slot].n_blocks)
            return err_set(
                e, ERR_INTERNAL, "free slot %u holds %u blocks", slot, s->slots[slot].n_blocks);
    }
    return OK;
}

static enum err check_waiting(const struct sched *s, struct err_info *e)
{
    if (s->n_waiting > s->cfg.max_waiting + s->cfg.max_running)
        return err_set(e, ERR_INTERNAL, "%u of %u waiting", s->n_waiting, s->cfg.max_waiting);
    for (uint32_t i = 0; i < s->n_waiting; i++) {
        const struct sched_seq *seq = s->waiting[i];
        if (seq->slot != SCHED_NO_SLOT || seq->table.blocks || seq->n_computed)
            return err_set(e, ERR_INTERNAL, "waiting sequence %u is in slot %u", i, seq->slot);
        if (i > 0 && !sched_waits_before(s->waiting[i - 1], seq))
            return err_set(e, ERR_INTERNAL, "waiting sequence %u is out of rank", i);
    }
    return OK;
}

/* Every sequence is its tenant's, and what was charged ahead is still to be computed. */
static enum err check_tenants(const struct sched *s, struct err_info *e)
{
    for (uint32_t i = 0; i < s->n_tenants; i++) {
        const struct sched_tenant *t = &s->tenants[i];
        uint32_t n_running = 0, n_waiting = 0;
        for (uint32_t k = 0; k < s->n_running; k++)
            n_running += s->running[k]->tenant_at == i && s->running[k]->tenant == t->id;
        for (uint32_t k = 0; k < s->n_waiting; k++)
            n_waiting += s->waiting[k]->tenant_at == i && s->waiting[k]->tenant == t->id;
        if (n_waiting != t->n_waiting || n_running + n_waiting != t->n_seqs)
            return err_set(e,
                           ERR_INTERNAL,
                           "tenant %u has %u waiting and %u in all, but %u and %u are counted",
                           t->id,
                           n_waiting,
                           n_running + n_waiting,
                           t->n_waiting,
                           t->n_seqs);
    }
    for (uint32_t k = 0; k < s->n_running; k++)
        if (s->running[k]->n_charged > s->running[k]->n_known)
            return err_set(e, ERR_INTERNAL, "slot %u is charged too much", s->running[k]->slot);
    return OK;
}

enum err sched_check(const struct sched *s, struct err_info *e)
{
    uint64_t expected = 0, panes = 0;
    if (s->n_broken > 0)
        return err_set(e,
                       ERR_INTERNAL,
                       "%llu times less memory was there than was promised",
                       (unsigned long long)s->n_broken);
    for (uint32_t i = 0; i < s->n_running; i++) {
        enum err err = check_running(s, i, e);
        if (err == OK)
            err = check_leader(s, i, e);
        if (err != OK)
            return err;
        expected += sched_expected_blocks(s, s->running[i]);
        panes += sched_most_panes(s, s->running[i]);
        s->tables[i] = &s->running[i]->table;
    }
    uint32_t available = kv_available(s->kv) + kv_coming_free(s->kv);
    if (s->cfg.overcommit == 0.0 && expected > available)
        return err_set(e,
                       ERR_INTERNAL,
                       "%llu blocks are needed without overcommitment, %u are to be had",
                       (unsigned long long)expected,
                       available);
    if (s->cfg.overcommit == 0.0 && panes > kv_n_panes(s->kv))
        return err_set(e,
                       ERR_INTERNAL,
                       "%llu panes are needed without overcommitment, there are %u",
                       (unsigned long long)panes,
                       kv_n_panes(s->kv));
    enum err err = check_free_slots(s, e);
    if (err == OK)
        err = check_waiting(s, e);
    if (err == OK)
        err = check_tenants(s, e);
    return err == OK ? kv_check(s->kv, s->tables, s->n_running, e) : err;
}
