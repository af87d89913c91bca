/* Who comes in, and who has to go: memory is given out in the order of rank.
 *
 *      running   a  b  c  d        a is first in rank
 *                ^ needs a block, none is left: d is preempted, then c; at last it is its own turn
 *
 * A preempted sequence leaves its blocks cached, so what others did not take is still there when it
 * comes back; it goes on where it was, with the same tokens. */
#include "sched/internal.h"

#include "base/log.h"

#include <assert.h>
#include <string.h>

/* Up to which position the sequence is counted on to get. */
static uint32_t counted_end(const struct sched *s, const struct sched_seq *seq)
{
    uint32_t rest = seq->n_max - sched_length(seq), least = kv_block_tokens(s->kv);
    uint32_t counted = (uint32_t)((1.0 - s->cfg.overcommit) * rest + 0.999);
    if (counted < least)
        counted = least; /* everybody will need one block soon */
    return sched_length(seq) + (counted > rest ? rest : counted);
}

uint32_t sched_expected_blocks(const struct sched *s, const struct sched_seq *seq)
{
    uint32_t need = kv_blocks_for(s->kv, counted_end(s, seq));
    return need > seq->table.n_blocks ? need - seq->table.n_blocks : 0;
}

uint32_t sched_most_panes(const struct sched *s, const struct sched_seq *seq)
{
    return kv_most_panes(s->kv, counted_end(s, seq), SCHED_CHUNK_ROWS);
}

uint32_t sched_least_blocks(const struct sched *s, const struct sched_seq *seq)
{
    uint32_t need = kv_blocks_for(s->kv, sched_stored(seq) + sched_least_rows(s, seq));
    return need > seq->table.n_blocks ? need - seq->table.n_blocks : 0;
}

/* What is left of the memory when everybody has what it is counted on to need; less than 0: it is
 * not enough. */
struct spare {
    int64_t blocks, panes, states;
};

static bool is_enough(const struct spare *s)
{
    return s->blocks >= 0 && s->panes >= 0 && s->states >= 0;
}

/* Who enters takes a state at once, so those who run need no further one. */
static uint32_t n_states(const struct sched *s)
{
    return kv_n_states(s->kv) > 0;
}

static uint32_t n_held(const struct sched_seq *seq)
{
    return seq->table.end_pane - seq->table.first_pane;
}

/* Panes are let go again, and those that two share stay in use until both have passed them. So when
 * nothing may ever be short, everybody's most has to fit at once; else, what is missing now. */
static bool is_strict(const struct sched *s)
{
    return s->cfg.overcommit == 0.0;
}

static int64_t expected_panes(const struct sched *s, const struct sched_seq *seq)
{
    uint32_t most = sched_most_panes(s, seq), held = is_strict(s) ? 0 : n_held(seq);
    return most > held ? most - held : 0;
}

static struct spare spare_beside(const struct sched *s, const struct sched_seq *seq)
{
    uint32_t panes = is_strict(s) ? kv_n_panes(s->kv) : kv_panes_available(s->kv);
    struct spare spare = {
        kv_available(s->kv), panes, (int64_t)kv_states_available(s->kv) - n_states(s)};
    for (uint32_t i = 0; i <= s->n_running; i++) {
        const struct sched_seq *a = i < s->n_running ? s->running[i] : seq;
        spare.blocks -= sched_expected_blocks(s, a);
        spare.panes -= expected_panes(s, a);
    }
    return spare;
}

/* Would the first that has rows fit beside what the running ones are counted on to need? */
static bool fits_beside(const struct sched *s, const struct sched_seq *seq)
{
    struct spare spare = spare_beside(s, seq);
    if (is_enough(&spare))
        return true;
    if (!sched_looks(seq))
        return false;
    struct kv_peek found = kv_peek(s->kv, &seq->space, seq->tokens, seq->n_known);
    spare.blocks += found.n_blocks - found.n_cached;
    if (!is_strict(s))
        spare.panes += found.n_panes - found.n_panes_cached;
    return is_enough(&spare);
}

/* What steps under way still hold cannot be counted on now, though it comes back: beside what this
 * plan promised there must be as much as the sequence can ever take. */
static bool fits_now(const struct sched *s, const struct sched_seq *seq)
{
    return !kv_has_steps(s->kv) ||
           (s->n_promised + sched_expected_blocks(s, seq) <= kv_available(s->kv) &&
            (kv_n_panes(s->kv) == 0 ||
             s->n_promised + sched_most_panes(s, seq) <= kv_panes_available(s->kv)));
}

static bool has_room(struct sched *s, const struct sched_seq *seq)
{
    uint32_t available = kv_available(s->kv), panes = kv_panes_available(s->kv);
    const uint32_t states = kv_states_available(s->kv);
    if (s->n_running == s->cfg.max_running ||
        (s->refused == seq && s->refused_available == available && s->refused_panes == panes &&
         s->refused_states == states && s->refused_running == s->n_running))
        return false;
    if (fits_beside(s, seq)) {
        s->waits_for_steps |= !fits_now(s, seq);
        return !s->waits_for_steps;
    }
    s->refused = seq;
    s->refused_available = available;
    s->refused_panes = panes;
    s->refused_states = states;
    s->refused_running = s->n_running;
    return false;
}

static void enter_slot(struct sched *s, struct sched_seq *seq)
{
    uint32_t i = s->n_running;
    for (; i > 0 && sched_goes_before(seq, s->running[i - 1]); i--)
        s->running[i] = s->running[i - 1];
    s->running[i] = seq;
    uint32_t slot = s->free_slots[s->cfg.max_running - s->n_running - 1];
    s->n_running++;
    s->n_entered++;
    seq->slot = slot;
    seq->turn = s->n_turns;
    seq->table = s->slots[slot];
    s->slots[slot] = (struct kv_table){0};
    kv_table_begin(&seq->table, seq->tokens, &seq->space, seq->shares);
    const uint32_t n_full = (seq->n_prompt - 1) / kv_block_tokens(s->kv);
    if (n_full > 0) /* for who asks the same, or goes on from this prompt */
        kv_want_state(s->kv, &seq->table, n_full - 1);
}

static void preempt_last(struct sched *s)
{
    struct sched_seq *seq = s->running[s->n_running - 1];
    assert(seq->n_ahead == 0 && !kv_has_steps(s->kv));
    seq->all_logits &= seq->n_computed < seq->n_prompt; /* else it has had them all */
    sched_leave_slot(s, seq);
    seq->n_computed = 0;
    seq->n_preempted++;
    s->n_preempted++;
    sched_enqueue(s, seq);
}

/* May `seq`, which waits, take the place of one that runs? By priority only, not by arrival; and
 * not if it would then be the other's turn. */
static bool may_displace(const struct sched *s,
                         const struct sched_seq *seq,
                         const struct sched_seq *running)
{
    return seq->priority > running->priority && sched_goes_before(seq, running) &&
           sched_has_turn_before(s, seq, running);
}

/* How many at the end of the line must go for `seq` to fit; 0 if all that may go are not enough.
 * What they share with others is counted as if it came free, so it may be too few. */
static uint32_t n_to_displace(const struct sched *s, const struct sched_seq *seq)
{
    struct spare spare = spare_beside(s, seq);
    for (uint32_t n = 1; n <= s->n_running; n++) {
        const struct sched_seq *last = s->running[s->n_running - n];
        if (!may_displace(s, seq, last))
            return 0;
        spare.blocks += sched_expected_blocks(s, last) + last->table.n_blocks;
        spare.panes += expected_panes(s, last) + (is_strict(s) ? 0 : n_held(last));
        spare.states += n_states(s);
        if (is_enough(&spare))
            return n;
    }
    return 0;
}

static void displace(struct sched *s, const struct sched_seq *seq)
{
    if (s->n_running == 0 || !may_displace(s, seq, s->running[s->n_running - 1]))
        return;
    uint32_t n = n_to_displace(s, seq);
    s->waits_for_steps |= n > 0 && kv_has_steps(s->kv);
    for (; n > 0 && !s->waits_for_steps; n--) {
        const struct sched_seq *last = s->running[s->n_running - 1];
        if (sched_is_ready(last))
            s->n_promised -= sched_least_blocks(s, last);
        preempt_last(s);
    }
}

static void see_prefills(struct sched *s, uint32_t budget)
{
    struct sched_prefills p = {.budget = budget, .shortest = UINT32_MAX};
    for (uint32_t i = 0; i < s->n_tenants; i++)
        s->tenants[i].prefills = false;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sched_seq *seq = s->running[i];
        if (!sched_is_prefill(seq) || !sched_is_ready(seq))
            continue;
        if (p.n++ == 0)
            p.first = seq;
        p.rows += sched_least_rows(s, seq);
        if (sched_rest(seq) < p.shortest)
            p.shortest = sched_rest(seq);
        s->tenants[seq->tenant_at].prefills = true;
    }
    s->prefills = p;
}

/* Prompts at once each take the longer, so beyond two they come in only while all have a useful
 * chunk in every step. But turns are taken anyway, so that keeps out nobody who goes before all of
 * them in rank, not the first of a tenant, and none that is shorter than what is left of any: it
 * delays each by less than each would delay it. */
bool sched_has_rows(const struct sched *s, const struct sched_seq *seq)
{
    const struct sched_prefills *p = &s->prefills;
    return p->n < 2 || p->rows + sched_least_rows(s, seq) <= p->budget ||
           sched_goes_before(seq, p->first) || !s->tenants[seq->tenant_at].prefills ||
           sched_rest(seq) < p->shortest;
}

/* Strictly in the order of turns, of those that have rows: when the first does not fit, nobody
 * overtakes it, although a shorter one behind might fit. Overtaking would fill every gap with short
 * requests and a long one could wait for ever; so it waits at most until those now running have
 * ended. One without rows waits until enough of those before it have computed their prompts. */
void sched_admit(struct sched *s, uint32_t row_budget)
{
    struct sched_seq *seq;
    while (see_prefills(s, row_budget), (seq = sched_first_waiting(s))) {
        if (!has_room(s, seq)) {
            displace(s, seq);
            if (!has_room(s, seq))
                return;
        }
        sched_dequeue(s, seq);
        enter_slot(s, seq);
        sched_find_prefix(s, seq);
        if (!kv_state_take(s->kv, &seq->table)) {
            log_error("slot %u: no state although there was one", seq->slot);
            assert(!"promise broken");
        }
        sched_charge_entry(s, seq);
        if (sched_is_ready(seq))
            s->n_promised += sched_least_blocks(s, seq);
    }
}

bool sched_make_room(struct sched *s)
{
    s->n_promised = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        if (!sched_is_ready(s->running[i]))
            continue;
        uint32_t need = sched_least_blocks(s, s->running[i]);
        while (i < s->n_running && s->n_promised + need > kv_room(s->kv)) {
            if (kv_has_steps(s->kv))
                return false;
            preempt_last(s);
        }
        s->n_promised += i < s->n_running ? need : 0;
    }
    return true;
}
