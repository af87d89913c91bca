/* What need not be computed: looked for whenever a prefilling sequence stands at the beginning of
 * a block, in this order:
 *
 *      full blocks in memory          attached
 *      another is computing them      waited for: the two have the same blocks so far, and the same
 *                                     tokens in at least the next
 *      the tier has them              fetched
 *      part of a block in memory      copied
 *
 * One follows only those before it in rank, so nobody waits in a circle. All of this goes by what
 * is stored, not by what is under way; so who has rows under way does not look until they have run.
 */
#include "sched/internal.h"

#include "base/mem.h"

bool sched_is_ready(const struct sched_seq *seq)
{
    return !seq->fetching && !seq->leader;
}

/* Up to which position `seq` can wait for `a`; 0 if it cannot. They have the same blocks so far and
 * at least one more in common, which `a` still has to compute. */
static uint32_t leads_until(const struct sched *s,
                            const struct sched_seq *a,
                            const struct sched_seq *seq)
{
    uint32_t at = seq->n_computed, k = seq->table.n_blocks, size = kv_block_tokens(s->kv);
    uint32_t end = a->n_known < seq->n_known - 1 ? a->n_known : seq->n_known - 1;
    /* one that wants all logits is too slow to be waited for */
    if (!a->table.shares || a->all_logits || !sched_computes_known(a) || end < at + size)
        return 0;
    if (k == 0 ? !kv_key_equal(&a->space, &seq->space)
               : a->table.n_blocks < k || a->table.blocks[k - 1] != seq->table.blocks[k - 1])
        return 0;
    uint32_t until = mem_common(a->tokens, seq->tokens, at, end);
    if (kv_n_states(s->kv) > 0) { /* it can be gone on from only where a state is kept */
        until -= until % size;
        if (sched_stored(a) >= until)
            return 0;
    }
    return until >= at + size && a->n_computed < until ? until : 0;
}

/* Has the leader a state kept at the end of what the two share? */
static bool will_be_kept(const struct sched *s, struct sched_seq *leader, uint32_t until)
{
    return kv_n_states(s->kv) == 0 ||
           kv_want_state(s->kv, &leader->table, until / kv_block_tokens(s->kv) - 1);
}

/* Nobody who was not there at the last search can lead, unless somebody came in meanwhile. */
static bool find_leader(struct sched *s, struct sched_seq *seq, bool found_more)
{
    if (!found_more && seq->n_entered_seen == s->n_entered)
        return false;
    seq->n_entered_seen = s->n_entered;
    for (uint32_t i = 0; i < s->n_running && s->running[i] != seq; i++) {
        uint32_t until = leads_until(s, s->running[i], seq);
        if (until > 0 && will_be_kept(s, s->running[i], until)) {
            seq->leader = s->running[i];
            seq->leader_until = until;
            seq->n_entered_seen = 0; /* look again when it is there */
            return true;
        }
    }
    return false;
}

/* How far what it waits for has come. */
static void note_progress(struct sched *s, struct sched_seq *seq)
{
    if (seq->fetching) {
        seq->n_computed = kv_fetched(s->kv, &seq->table);
        seq->fetching = kv_fetching(&seq->table);
    }
    if (seq->leader && seq->leader->n_computed >= seq->leader_until)
        seq->leader = NULL;
}

void sched_find_prefix(struct sched *s, struct sched_seq *seq)
{
    struct kv *kv = s->kv;
    uint32_t before = seq->n_computed;
    note_progress(s, seq);
    if (!sched_is_ready(seq) || !seq->table.shares || seq->all_logits ||
        seq->n_computed % kv_block_tokens(kv) != 0)
        return;
    seq->n_computed = kv_attach(kv, &seq->table, seq->n_computed, seq->n_known);
    if (!find_leader(s, seq, seq->n_computed > before)) {
        seq->fetching = kv_fetch_begin(kv, &seq->table, seq->n_computed, seq->n_known);
        if (!seq->fetching)
            seq->n_computed = kv_attach_part(kv, &seq->table, seq->n_computed, seq->n_known);
    }
    if (seq->n_preempted == 0)
        seq->n_cached = seq->table.n_attached;
}
