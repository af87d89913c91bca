#include "sched/sched.h"

#include "base/mem.h"
#include "sched/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static enum err config_check(const struct sched_config *c, struct err_info *e)
{
    if (c->max_running == 0 || c->max_waiting == 0 || c->max_blocks_per_seq == 0)
        return err_set(e,
                       ERR_INVALID,
                       "scheduler: %u running, %u waiting, %u blocks each: none may be 0",
                       c->max_running,
                       c->max_waiting,
                       c->max_blocks_per_seq);
    /* so that every sequence can always decode, and one that cannot has a row to prefill with */
    if (c->max_rows < c->max_running || c->max_logit_rows < c->max_running)
        return err_set(e,
                       ERR_INVALID,
                       "scheduler: %u rows and %u logit rows are too few for %u sequences",
                       c->max_rows,
                       c->max_logit_rows,
                       c->max_running);
    if (!(c->overcommit >= 0.0 && c->overcommit <= 1.0))
        return err_set(
            e, ERR_INVALID, "scheduler: an overcommit of %g is not in 0..1", c->overcommit);
    return OK;
}

static enum err slots_init(struct sched *s, struct err_info *e)
{
    uint32_t n = s->cfg.max_running;
    s->slots = calloc(n, sizeof *s->slots);
    s->free_slots = calloc(n, sizeof *s->free_slots);
    s->running = calloc(n, sizeof(struct sched_seq *));
    s->waiting = calloc((size_t)s->cfg.max_waiting + n, sizeof(struct sched_seq *));
    s->items = calloc(n, sizeof *s->items);
    s->tenants = calloc((size_t)s->cfg.max_waiting + n, sizeof *s->tenants);
    s->chosen = calloc(n, sizeof(struct sched_seq *));
    s->tables = calloc(n, sizeof(struct kv_table *));
    if (!s->slots || !s->free_slots || !s->running || !s->waiting || !s->tenants || !s->items ||
        !s->chosen || !s->tables)
        return err_set(e, ERR_NOMEM, "no memory to schedule %u sequences", n);
    for (uint32_t i = 0; i < n; i++) {
        enum err err = kv_table_init(s->kv, &s->slots[i], s->cfg.max_blocks_per_seq, e);
        if (err != OK)
            return err;
        s->free_slots[i] = n - 1 - i; /* slot 0 first */
    }
    return OK;
}

enum err sched_create(const struct sched_config *cfg,
                      struct kv *kv,
                      struct sched **out,
                      struct err_info *e)
{
    *out = NULL;
    enum err err = config_check(cfg, e);
    if (err != OK)
        return err;
    struct sched *s = mem_zalloc(1, sizeof *s);
    s->cfg = *cfg;
    s->kv = kv;
    s->n_entered = 1;
    err = slots_init(s, e);
    if (err != OK) {
        sched_destroy(s);
        return err;
    }
    *out = s;
    return OK;
}

void sched_destroy(struct sched *s)
{
    if (!s)
        return;
    while (s->n_running > 0)
        sched_remove(s, s->running[s->n_running - 1]);
    for (uint32_t i = 0; s->slots && i < s->cfg.max_running; i++)
        kv_table_deinit(&s->slots[i]);
    free(s->slots);
    free(s->free_slots);
    free(s->running);
    free(s->waiting);
    free(s->tenants);
    free(s->items);
    free(s->chosen);
    free(s->tables);
    free(s);
}

uint32_t sched_stored(const struct sched_seq *seq)
{
    return seq->n_computed + seq->n_ahead;
}

uint32_t sched_length(const struct sched_seq *seq)
{
    return seq->n_known + seq->n_expected;
}

uint32_t sched_rest(const struct sched_seq *seq)
{
    if (seq->n_expected > 0 && sched_length(seq) == seq->n_max)
        return 0; /* with its last token it ends */
    return sched_length(seq) - sched_stored(seq);
}

bool sched_is_decode(const struct sched_seq *seq)
{
    return sched_rest(seq) == 1 && sched_stored(seq) >= seq->n_prompt;
}

bool sched_computes_known(const struct sched_seq *seq)
{
    uint32_t rest = seq->n_known - seq->n_computed;
    return rest > 1 || (rest == 1 && seq->n_computed < seq->n_prompt);
}

bool sched_is_prefill(const struct sched_seq *seq)
{
    return sched_rest(seq) > 0 && !sched_is_decode(seq);
}

uint32_t sched_least_rows(const struct sched *s, const struct sched_seq *seq)
{
    uint32_t rest = sched_rest(seq);
    if (s->cfg.whole)
        return rest;
    return sched_is_prefill(seq) && rest > SCHED_CHUNK_ROWS ? SCHED_CHUNK_ROWS : rest;
}

bool sched_goes_before(const struct sched_seq *a, const struct sched_seq *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->serial < b->serial;
}

/* Could n_max tokens ever be held? */
static enum err fits(const struct sched *s, uint32_t n_max, struct err_info *e)
{
    uint32_t need = kv_blocks_for(s->kv, n_max);
    uint32_t total = kv_stats(s->kv).blocks.total;
    uint32_t most = total < s->cfg.max_blocks_per_seq ? total : s->cfg.max_blocks_per_seq;
    if (need > most)
        return err_set(e, ERR_TOO_LONG, "would need %u blocks, exceeds max %u", need, most);
    uint32_t panes = kv_most_panes(s->kv, n_max, SCHED_CHUNK_ROWS);
    if (panes > kv_n_panes(s->kv))
        return err_set(
            e, ERR_TOO_LONG, "would need %u panes, exceeds max %u", panes, kv_n_panes(s->kv));
    if (s->cfg.whole && n_max > s->cfg.max_rows)
        return err_set(e,
                       ERR_TOO_LONG,
                       "%u tokens have to be computed at once, but a step has at most %u rows",
                       n_max,
                       s->cfg.max_rows);
    return OK;
}

bool sched_waits_before(const struct sched_seq *a, const struct sched_seq *b)
{
    return a->tenant_at != b->tenant_at ? a->tenant_at < b->tenant_at : sched_goes_before(b, a);
}

uint32_t sched_panes_per_seq(uint32_t window, uint32_t block_tokens)
{
    uint32_t rows = block_tokens > SCHED_CHUNK_ROWS ? block_tokens : SCHED_CHUNK_ROWS;
    return kv_window_blocks(window, block_tokens, rows);
}

/* How many of waiting[] are before seq: where it is, or where it belongs. */
static uint32_t place_of(const struct sched *s, const struct sched_seq *seq)
{
    uint32_t lo = 0, hi = s->n_waiting;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (sched_waits_before(s->waiting[mid], seq))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void sched_enqueue(struct sched *s, struct sched_seq *seq)
{
    sched_lift_tenant(s, seq);
    uint32_t i = place_of(s, seq);
    memmove(&s->waiting[i + 1], &s->waiting[i], (s->n_waiting - i) * sizeof(struct sched_seq *));
    s->waiting[i] = seq;
    s->n_waiting++;
    s->tenants[seq->tenant_at].n_waiting++;
}

void sched_dequeue(struct sched *s, struct sched_seq *seq)
{
    uint32_t i = place_of(s, seq);
    assert(i < s->n_waiting && s->waiting[i] == seq);
    s->refused = NULL;
    s->n_waiting--;
    s->tenants[seq->tenant_at].n_waiting--;
    memmove(&s->waiting[i], &s->waiting[i + 1], (s->n_waiting - i) * sizeof(struct sched_seq *));
}

enum err sched_add(struct sched *s, struct sched_seq *seq, struct err_info *e)
{
    seq->slot = SCHED_NO_SLOT;
    seq->tenant_at = SCHED_NO_TENANT;
    if (seq->n_prompt == 0 || seq->n_max < seq->n_prompt)
        return err_set(e,
                       ERR_INVALID,
                       "a sequence of at most %u tokens cannot begin with a prompt of %u",
                       seq->n_max,
                       seq->n_prompt);
    enum err err = fits(s, seq->n_max, e);
    if (err != OK)
        return err;
    if (s->n_waiting >= s->cfg.max_waiting)
        return err_set(e, ERR_QUEUE_FULL, "%u requests are waiting already", s->n_waiting);
    seq->serial = s->next_serial++;
    seq->rank = (int64_t)seq->serial - (int64_t)seq->priority * SCHED_PRIORITY_PLACES;
    seq->n_computed = seq->n_cached = seq->n_preempted = 0;
    seq->n_ahead = seq->n_expected = seq->n_draft = 0;
    seq->n_known = seq->n_prompt;
    seq->table = (struct kv_table){0};
    seq->fetching = false;
    seq->leader = NULL;
    seq->n_entered_seen = 0;
    seq->n_charged = 0;
    sched_join_tenant(s, seq);
    sched_enqueue(s, seq);
    return OK;
}

void sched_computed(struct sched *s, const struct sched_item *item)
{
    struct sched_seq *seq = item->seq;
    const uint32_t n_rows = item->n_rows - item->n_draft;
    assert(seq->slot != SCHED_NO_SLOT && item->first == seq->n_computed);
    assert(n_rows <= seq->n_ahead);
    bool prefill = sched_computes_known(seq);
    seq->n_computed = item->first + n_rows;
    seq->n_ahead -= n_rows;
    assert(seq->n_computed <= seq->n_known);
    sched_charge_rows(s, seq, n_rows);
    if (prefill && sched_looks(seq))
        kv_count_misses(s->kv, n_rows);
    kv_publish(s->kv, &seq->table, seq->n_computed, prefill);
}

void sched_confirm(struct sched *s, struct sched_seq *seq)
{
    assert(seq->slot != SCHED_NO_SLOT && seq->n_ahead == 0);
    assert(seq->n_computed + 1 == seq->n_known);
    seq->n_computed++;
    sched_charge_rows(s, seq, 1);
    kv_publish(s->kv, &seq->table, seq->n_computed, false);
}

void sched_append(struct sched_seq *seq)
{
    assert(seq->slot != SCHED_NO_SLOT && seq->n_known < seq->n_max);
    seq->n_known++;
    if (seq->n_expected > 0)
        seq->n_expected--;
}

void sched_leave_slot(struct sched *s, struct sched_seq *seq)
{
    uint32_t i = 0;
    while (i < s->n_running && s->running[i] != seq)
        i++;
    assert(i < s->n_running);
    memmove(
        &s->running[i], &s->running[i + 1], (s->n_running - i - 1) * sizeof(struct sched_seq *));
    s->n_running--;
    for (uint32_t k = i; k < s->n_running; k++) /* only those behind it can follow it */
        if (s->running[k]->leader == seq)
            s->running[k]->leader = NULL;
    sched_refund(s, seq);
    kv_table_release(s->kv, &seq->table, seq->n_computed);
    s->slots[seq->slot] = seq->table;
    s->free_slots[s->cfg.max_running - s->n_running - 1] = seq->slot;
    seq->table = (struct kv_table){0};
    seq->slot = SCHED_NO_SLOT;
    seq->n_ahead = seq->n_expected = 0;
    seq->fetching = false;
    seq->leader = NULL;
}

void sched_remove(struct sched *s, struct sched_seq *seq)
{
    if (seq->tenant_at == SCHED_NO_TENANT)
        return;
    if (seq->slot != SCHED_NO_SLOT)
        sched_leave_slot(s, seq);
    else
        sched_dequeue(s, seq);
    sched_quit_tenant(s, seq);
}

struct sched_seq *const *sched_running(const struct sched *s, uint32_t *n)
{
    *n = s->n_running;
    return s->running;
}

uint32_t sched_n_running(const struct sched *s)
{
    return s->n_running;
}

uint32_t sched_n_waiting(const struct sched *s)
{
    return s->n_waiting;
}

uint64_t sched_n_preempted(const struct sched *s)
{
    return s->n_preempted;
}
