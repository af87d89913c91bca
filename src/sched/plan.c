/* What one step holds: every decode, then chunks of prompts.
 *
 * The rows left for prompts go to as many sequences as can have a useful chunk each, and are
 * shared evenly; what a short rest does not need is handed on to the longer ones:
 *
 *      rests 8, 40, 1000; 128 rows  ->  8, 40, 80       (shortest first, left / n_left each)
 *
 * When there are fewer useful chunks than sequences, they take turns. */
#include "sched/internal.h"

#include "base/log.h"

#include <assert.h>
#include <stddef.h>

/* Rows below which a chunk is not worth its reading of all the weights, and the multiple that
 * kernels like chunks to be. */
#define CHUNK_ROWS 16

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Tokens known whose KV is not stored yet. */
static uint32_t rest_of(const struct sched_seq *seq)
{
    return seq->n_known - seq->n_computed;
}

static bool is_decode(const struct sched_seq *seq)
{
    return rest_of(seq) == 1 && seq->n_computed >= seq->n_prompt;
}

static bool is_prefill(const struct sched_seq *seq)
{
    return rest_of(seq) > 0 && !is_decode(seq);
}

/* The least a prefilling sequence gets if it gets anything. */
static uint32_t least_rows(const struct sched_seq *seq)
{
    return min_u32(rest_of(seq), CHUNK_ROWS);
}

static void add_item(struct sched *s, struct sched_plan *plan, struct sched_seq *seq, uint32_t n)
{
    /* The reservation made at admission covers every position, so this cannot fail. */
    if (kv_table_grow(s->pool, &seq->table, seq->n_computed + n, NULL) != OK) {
        log_error("slot %u: no KV block within its reservation", seq->slot);
        assert(!"reservation broken");
        return;
    }
    s->items[plan->n_items++] = (struct sched_item){
        .seq = seq, .first = seq->n_computed, .n_rows = n, .samples = n == rest_of(seq)};
    plan->n_rows += n;
}

static void plan_decodes(struct sched *s, struct sched_plan *plan)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (is_decode(s->running[i]))
            add_item(s, plan, s->running[i], 1);
    plan->n_decodes = plan->n_items;
}

/* The caller's budget bounds the step, so that those who decode or arrive need not wait long for
 * the next; but never below one chunk, or prompts would starve behind decodes. */
static uint32_t prefill_budget(const struct sched *s, uint32_t n_decodes, uint32_t row_budget)
{
    uint32_t room = s->cfg.max_rows - n_decodes;
    uint32_t budget = row_budget > n_decodes ? row_budget - n_decodes : 0;
    return min_u32(budget > CHUNK_ROWS ? budget : CHUNK_ROWS, room);
}

/* Where in running[] the turns begin: the one that missed its turn last time, if still there. */
static uint32_t first_turn(const struct sched *s)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->slot == s->turn_slot)
            return i;
    return 0;
}

/* Fill chosen[] with those who prefill in this step, by turns while their least chunks fit in
 * `budget`; then admit others while theirs do. */
static uint32_t choose(struct sched *s, struct sched_plan *plan, uint32_t budget)
{
    uint32_t n = 0, rows = 0;
    uint32_t first = first_turn(s), n_before = s->n_running;
    s->turn_slot = SCHED_NO_SLOT;
    for (uint32_t i = 0; i < n_before; i++) {
        struct sched_seq *seq = s->running[(first + i) % n_before];
        if (!is_prefill(seq))
            continue;
        if (n > 0 && rows + least_rows(seq) > budget) {
            s->turn_slot = seq->slot;
            return n;
        }
        rows += least_rows(seq);
        s->chosen[n++] = seq;
    }
    while (s->n_waiting > 0) {
        struct sched_seq *seq = s->waiting[s->first_waiting];
        if ((n > 0 && rows + least_rows(seq) > budget) || !sched_admit(s))
            break;
        rows += least_rows(seq);
        s->chosen[n++] = seq;
        plan->n_admitted++;
    }
    return n;
}

/* Shortest rest first; equal ones keep their order. */
static void sort_by_rest(struct sched_seq **seqs, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct sched_seq *seq = seqs[i];
        uint32_t k = i;
        for (; k > 0 && rest_of(seqs[k - 1]) > rest_of(seq); k--)
            seqs[k] = seqs[k - 1];
        seqs[k] = seq;
    }
}

/* A fair part of `left` rows, for the first of `n_left` sequences. Since all least chunks fit in
 * `left`, a part of at least CHUNK_ROWS leaves as much for each of the others. */
static uint32_t share_of(const struct sched_seq *seq, uint32_t left, uint32_t n_left)
{
    uint32_t share = left / n_left, rest = rest_of(seq);
    if (rest <= share)
        return rest;
    if (share < CHUNK_ROWS)
        return min_u32(least_rows(seq), left);
    return share - share % CHUNK_ROWS;
}

static void plan_prefill(struct sched *s, struct sched_plan *plan, uint32_t budget)
{
    uint32_t n = choose(s, plan, budget);
    uint32_t n_all = 0; /* that want logits of all rows, and are not planned yet */
    for (uint32_t i = 0; i < n; i++)
        n_all += s->chosen[i]->all_logits;
    sort_by_rest(s->chosen, n);
    /* one logit row is set aside for each; the others are shared among those who want all */
    uint32_t spare_logits = s->cfg.max_logit_rows - plan->n_decodes - n;
    for (uint32_t i = 0; i < n; i++) {
        struct sched_seq *seq = s->chosen[i];
        uint32_t rows = share_of(seq, budget, n - i);
        if (seq->all_logits) {
            rows = min_u32(rows, 1 + spare_logits / n_all--);
            spare_logits -= rows - 1;
        }
        budget -= rows;
        add_item(s, plan, seq, rows);
    }
}

void sched_plan_step(struct sched *s, uint32_t row_budget, struct sched_plan *out)
{
    *out = (struct sched_plan){.items = s->items};
    plan_decodes(s, out);
    uint32_t budget = prefill_budget(s, out->n_decodes, row_budget);
    if (budget > 0)
        plan_prefill(s, out, budget);
    assert(out->n_rows <= s->cfg.max_rows);
}
