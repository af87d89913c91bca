/* What one step holds: every decode, then chunks of prompts.
 *
 * The rows left for prompts go to as many sequences as can have a useful chunk each, and are
 * shared evenly; what a short rest does not need is handed on to the longer ones:
 *
 *      rests 8, 40, 1000; 128 rows  ->  8, 40, 80       (shortest first, left / n_left each)
 *
 * When there are fewer useful chunks than sequences, they take turns; a budget that is less than a
 * useful chunk goes to one. */
#include "sched/internal.h"

#include "base/log.h"

#include <assert.h>
#include <stddef.h>

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* As many of `rows` as there is memory for beside what is promised to others; the least always. */
static uint32_t rows_in_memory(const struct sched *s, const struct sched_seq *seq, uint32_t rows)
{
    uint64_t spare = kv_room(s->kv) - s->n_promised;
    uint64_t blocks = seq->table.n_blocks + sched_least_blocks(s, seq) + spare;
    uint64_t most = blocks * kv_block_tokens(s->kv) - sched_stored(seq);
    return rows < most ? rows : (uint32_t)most;
}

static void add_item(struct sched *s, struct sched_plan *plan, struct sched_seq *seq, uint32_t n)
{
    const uint32_t first = sched_stored(seq);
    s->n_promised -= sched_least_blocks(s, seq);
    /* sched_make_room and rows_in_memory saw to it that this cannot fail */
    if (kv_table_grow(s->kv, &seq->table, first + n, NULL) != OK) {
        log_error("slot %u: no KV block although one was promised", seq->slot);
        s->n_broken++;
        assert(!"promise broken");
        return;
    }
    s->items[plan->n_items++] = (struct sched_item){
        .seq = seq, .first = first, .n_rows = n, .samples = n == sched_rest(seq)};
    seq->n_ahead += n;
    if (first + n == sched_length(seq) && sched_length(seq) < seq->n_max)
        seq->n_expected++;
    plan->n_rows += n;
}

static uint32_t count_decodes(const struct sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_running; i++)
        n += sched_is_decode(s->running[i]);
    return n;
}

uint32_t sched_draft_rows(const struct sched *s, uint32_t row_budget)
{
    const uint32_t n_decodes = count_decodes(s);
    uint32_t most = min_u32(SCHED_DRAFT_ROWS, row_budget);
    most = min_u32(most, min_u32(s->cfg.max_rows, s->cfg.max_logit_rows));
    return n_decodes < s->n_running || most < n_decodes ? 0 : most - n_decodes;
}

/* The item's draft, as far as the blocks go that it has anyway; of at most so many rows. */
static uint32_t add_draft(struct sched *s, struct sched_plan *plan, uint32_t most)
{
    struct sched_item *item = &s->items[plan->n_items - 1];
    const struct sched_seq *seq = item->seq;
    const uint32_t end = seq->table.n_blocks * kv_block_tokens(s->kv);
    uint32_t n = min_u32(seq->n_draft, most);
    n = min_u32(n, end - item->first - item->n_rows);
    item->n_draft = n;
    item->n_rows += n;
    plan->n_rows += n;
    plan->n_drafts += n;
    return n;
}

static void plan_decodes(struct sched *s, struct sched_plan *plan, uint32_t row_budget)
{
    uint32_t left = sched_draft_rows(s, row_budget); /* the first in rank first */
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct sched_seq *seq = s->running[i];
        const uint32_t n_items = plan->n_items;
        if (!sched_is_decode(seq))
            continue;
        add_item(s, plan, seq, 1);
        if (plan->n_items > n_items)
            left -= add_draft(s, plan, left);
    }
    plan->n_decodes = plan->n_items;
}

/* Rows up to where a fetch may begin again: what is behind them need not be computed, perhaps. */
static uint32_t rows_before_fetch(const struct sched *s, const struct sched_seq *seq)
{
    const uint32_t from = kv_fetch_from(s->kv, &seq->table);
    return seq->n_computed < from ? from - sched_stored(seq) : UINT32_MAX;
}

static bool can_prefill(const struct sched *s, const struct sched_seq *seq)
{
    return sched_is_prefill(seq) && sched_is_ready(seq) && rows_before_fetch(s, seq) > 0;
}

/* One that is at its prompt, and decodes more than once then. */
static void add_prompt(struct sched_load *load, const struct sched_seq *seq, int32_t priority)
{
    if (seq->priority < priority || seq->n_max < sched_length(seq) + 2)
        return;
    const uint32_t rows = sched_length(seq) - seq->n_cached;
    load->n_prompts++;
    load->prompts_attend += sched_length(seq);
    load->longest_prompt = rows > load->longest_prompt ? rows : load->longest_prompt;
}

struct sched_load sched_load(const struct sched *s)
{
    struct sched_load load = {0};
    int32_t priority = INT32_MIN;       /* the highest of a decode */
    int64_t room = kv_available(s->kv); /* as admission counts */
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sched_seq *seq = s->running[i];
        room -= sched_expected_blocks(s, seq);
        if (!sched_is_decode(seq))
            continue;
        load.n_decodes++;
        load.decodes_attend += sched_length(seq);
        priority = seq->priority > priority ? seq->priority : priority;
    }
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sched_seq *seq = s->running[i];
        if (!sched_is_prefill(seq))
            continue;
        if (can_prefill(s, seq) && sched_stored(seq) > load.prefill_depth)
            load.prefill_depth = sched_stored(seq);
        add_prompt(&load, seq, priority);
    }
    const uint32_t n_free = s->cfg.max_running - s->n_running;
    for (uint32_t i = 0; i < s->n_waiting && i < n_free; i++) {
        const struct sched_seq *seq = s->waiting[s->n_waiting - 1 - i];
        room -= sched_expected_blocks(s, seq);
        if (room < 0)
            break;
        add_prompt(&load, seq, priority);
    }
    return load;
}

/* The caller's budget bounds the step, so that those who decode or arrive need not wait long for
 * the next; but a few rows are left always, or prompts would starve behind decodes. */
static uint32_t prefill_budget(const struct sched *s, uint32_t row_budget)
{
    uint32_t n_decodes = count_decodes(s), room = s->cfg.max_rows - n_decodes;
    uint32_t budget = row_budget > n_decodes ? row_budget - n_decodes : 0;
    return min_u32(budget > SCHED_LEAST_ROWS ? budget : SCHED_LEAST_ROWS, room);
}

/* The priority of the first in rank that can prefill: those below it go after all others. */
static int32_t first_priority(const struct sched *s)
{
    for (uint32_t i = 0; i < s->n_running; i++)
        if (can_prefill(s, s->running[i]))
            return s->running[i]->priority;
    return INT32_MIN;
}

/* Where in running[] the turns begin: with who has waited longest for one, so that newcomers, who
 * stand at the end, do not keep them from coming round. Those below `priority` have none. */
static uint32_t first_turn(const struct sched *s, int32_t priority)
{
    uint32_t first = 0;
    uint64_t longest = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_running; i++) {
        const struct sched_seq *seq = s->running[i];
        if (!can_prefill(s, seq) || seq->priority < priority || seq->turn >= longest)
            continue;
        first = i;
        longest = seq->turn;
    }
    return first;
}

/* Fill chosen[] with those who prefill in this step, by turns while their least chunks fit in
 * `budget`; the first always does. */
static uint32_t choose(struct sched *s, uint32_t budget)
{
    const int32_t priority = first_priority(s);
    const uint32_t first = first_turn(s, priority);
    uint32_t n = 0, rows = 0;
    s->n_turns++;
    for (uint32_t i = 0; i < 2 * s->n_running; i++) {
        struct sched_seq *seq = s->running[(first + i) % s->n_running];
        if (!can_prefill(s, seq) || (seq->priority < priority) != (i >= s->n_running))
            continue;
        if (n > 0 && rows + sched_least_rows(s, seq) > budget)
            break;
        rows += sched_least_rows(s, seq);
        seq->turn = s->n_turns;
        s->chosen[n++] = seq;
    }
    return n;
}

/* Shortest rest first; equal ones keep their order. */
static void sort_by_rest(struct sched_seq **seqs, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct sched_seq *seq = seqs[i];
        uint32_t k = i;
        for (; k > 0 && sched_rest(seqs[k - 1]) > sched_rest(seq); k--)
            seqs[k] = seqs[k - 1];
        seqs[k] = seq;
    }
}

/* Where a chunk that is not its prompt's last should end: where a block does, so that what others
 * have of the next block can be found. If more than an eighth of the chunk had to be cut off for
 * it, only where about every fourth chunk ends at the latest, for small ones would lose half. */
static uint32_t cut_at_block(const struct sched *s, const struct sched_seq *seq, uint32_t rows)
{
    uint32_t block = kv_block_tokens(s->kv), end = sched_stored(seq) + rows;
    uint32_t over = end % block;
    if (8 * over > rows)
        over = end % (kv_blocks_for(s->kv, 4 * rows) * block);
    return over < rows ? rows - over : rows;
}

/* A fair part of `left` rows, for the first of `n_left` sequences. Since all least chunks fit in
 * `left`, but for one that is alone, a part of at least SCHED_CHUNK_ROWS leaves as much for each of
 * the others. */
static uint32_t share_of(const struct sched *s,
                         const struct sched_seq *seq,
                         uint32_t left,
                         uint32_t n_left)
{
    uint32_t rows = left / n_left, rest = sched_rest(seq);
    if (rest <= rows || s->cfg.whole)
        return rest;
    if (rows < SCHED_CHUNK_ROWS)
        rows = min_u32(sched_least_rows(s, seq), left);
    return cut_at_block(s, seq, rows);
}

static void plan_prefill(struct sched *s, struct sched_plan *plan, uint32_t budget)
{
    uint32_t n = choose(s, budget);
    uint32_t n_all = 0; /* that want logits of all rows, and are not planned yet */
    for (uint32_t i = 0; i < n; i++)
        n_all += s->chosen[i]->all_logits;
    sort_by_rest(s->chosen, n);
    /* one logit row is set aside for each; the others are shared among those who want all */
    uint32_t spare_logits = s->cfg.max_logit_rows - plan->n_decodes - n;
    for (uint32_t i = 0; i < n; i++) {
        struct sched_seq *seq = s->chosen[i];
        uint32_t rows = min_u32(share_of(s, seq, budget, n - i), rows_before_fetch(s, seq));
        if (seq->all_logits) {
            rows = min_u32(rows, 1 + spare_logits / n_all--);
            spare_logits -= rows - 1;
        }
        rows = rows_in_memory(s, seq, rows);
        budget -= min_u32(rows, budget);
        add_item(s, plan, seq, rows);
    }
}

bool sched_take_in(struct sched *s, uint32_t row_budget, struct sched_plan *out)
{
    uint64_t n_preempted = s->n_preempted;
    *out = (struct sched_plan){.items = s->items, .waits_for_tier = kv_poll(s->kv)};
    for (uint32_t i = 0; i < s->n_running; i++)
        if (sched_is_prefill(s->running[i]) && s->running[i]->n_ahead == 0)
            sched_find_prefix(s, s->running[i]);
    s->waits_for_steps = false;
    if (!sched_make_room(s)) {
        out->waits_for_steps = true;
        return false;
    }
    sched_admit(s, prefill_budget(s, row_budget));
    s->n_broken += s->n_promised > kv_room(s->kv);
    out->waits_for_steps = s->waits_for_steps;
    out->n_preempted = (uint32_t)(s->n_preempted - n_preempted);
    return true;
}

void sched_plan_rows(struct sched *s, uint32_t row_budget, struct sched_plan *out)
{
    uint32_t budget = prefill_budget(s, row_budget);
    plan_decodes(s, out, row_budget);
    if (budget > 0)
        plan_prefill(s, out, budget);
    for (uint32_t i = 0; i < s->n_running; i++)
        out->waits_for_tier |= s->running[i]->fetching;
    assert(out->n_rows <= s->cfg.max_rows);
}

void sched_plan_step(struct sched *s, uint32_t row_budget, struct sched_plan *out)
{
    if (sched_take_in(s, row_budget, out))
        sched_plan_rows(s, row_budget, out);
}
