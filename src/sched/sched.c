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
    return OK;
}

static enum err slots_init(struct sched *s, struct err_info *e)
{
    uint32_t n = s->cfg.max_running;
    s->slots = calloc(n, sizeof *s->slots);
    s->free_slots = calloc(n, sizeof *s->free_slots);
    s->running = calloc(n, sizeof(struct sched_seq *));
    s->waiting = calloc(s->cfg.max_waiting, sizeof(struct sched_seq *));
    s->items = calloc(n, sizeof *s->items);
    s->chosen = calloc(n, sizeof(struct sched_seq *));
    s->tables = calloc(n, sizeof(struct kv_table *));
    if (!s->slots || !s->free_slots || !s->running || !s->waiting || !s->items || !s->chosen ||
        !s->tables)
        return err_set(e, ERR_NOMEM, "no memory to schedule %u sequences", n);
    for (uint32_t i = 0; i < n; i++) {
        enum err err = kv_table_init(&s->slots[i].table, s->cfg.max_blocks_per_seq, e);
        if (err != OK)
            return err;
        s->free_slots[i] = n - 1 - i; /* slot 0 first */
    }
    return OK;
}

enum err sched_create(const struct sched_config *cfg,
                      struct kv_pool *pool,
                      struct sched **out,
                      struct err_info *e)
{
    *out = NULL;
    enum err err = config_check(cfg, e);
    if (err != OK)
        return err;
    struct sched *s = mem_zalloc(1, sizeof *s);
    s->cfg = *cfg;
    s->pool = pool;
    s->turn_slot = SCHED_NO_SLOT;
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
        kv_table_deinit(&s->slots[i].table);
    free(s->slots);
    free(s->free_slots);
    free(s->running);
    free(s->waiting);
    free(s->items);
    free(s->chosen);
    free(s->tables);
    free(s);
}

enum err sched_fits(const struct sched *s, uint32_t n_max, struct err_info *e)
{
    uint32_t need = kv_blocks_for(s->pool, n_max);
    uint32_t total = kv_pool_stats(s->pool).total;
    uint32_t most = total < s->cfg.max_blocks_per_seq ? total : s->cfg.max_blocks_per_seq;
    if (need > most)
        return err_set(e, ERR_TOO_LONG, "would need %u blocks, exceeds max %u", need, most);
    return OK;
}

enum err sched_add(struct sched *s, struct sched_seq *seq, struct err_info *e)
{
    if (seq->n_prompt == 0 || seq->n_max < seq->n_prompt)
        return err_set(e,
                       ERR_INVALID,
                       "a sequence of at most %u tokens cannot begin with a prompt of %u",
                       seq->n_max,
                       seq->n_prompt);
    enum err err = sched_fits(s, seq->n_max, e);
    if (err != OK)
        return err;
    if (s->n_waiting == s->cfg.max_waiting)
        return err_set(e, ERR_QUEUE_FULL, "%u requests are waiting already", s->n_waiting);
    seq->n_computed = 0;
    seq->n_known = seq->n_prompt;
    seq->slot = SCHED_NO_SLOT;
    seq->table = (struct kv_table){0};
    s->waiting[(s->first_waiting + s->n_waiting) % s->cfg.max_waiting] = seq;
    s->n_waiting++;
    return OK;
}

/* Strictly first come, first served: when the head of the line does not fit, nobody overtakes it,
 * although a shorter one behind might fit. Overtaking would fill every gap with short requests and
 * a long one could wait for ever; so it waits at most until those now running have ended. */
bool sched_admit(struct sched *s)
{
    if (s->n_waiting == 0 || s->n_running == s->cfg.max_running)
        return false;
    struct sched_seq *seq = s->waiting[s->first_waiting];
    uint32_t need = kv_blocks_for(s->pool, seq->n_max);
    if (s->n_reserved + need > kv_pool_stats(s->pool).total)
        return false;
    s->first_waiting = (s->first_waiting + 1) % s->cfg.max_waiting;
    s->n_waiting--;
    uint32_t slot = s->free_slots[s->cfg.max_running - s->n_running - 1];
    s->running[s->n_running++] = seq;
    s->n_reserved += need;
    s->slots[slot].n_reserved = need;
    seq->slot = slot;
    seq->table = s->slots[slot].table;
    s->slots[slot].table = (struct kv_table){0};
    return true;
}

void sched_computed(struct sched *s, const struct sched_item *item)
{
    (void)s;
    struct sched_seq *seq = item->seq;
    assert(seq->slot != SCHED_NO_SLOT && item->first == seq->n_computed);
    seq->n_computed = item->first + item->n_rows;
    assert(seq->n_computed <= seq->n_known);
}

void sched_append(struct sched *s, struct sched_seq *seq)
{
    (void)s;
    assert(seq->slot != SCHED_NO_SLOT && seq->n_known < seq->n_max);
    seq->n_known++;
}

static void remove_running(struct sched *s, struct sched_seq *seq)
{
    uint32_t i = 0;
    while (i < s->n_running && s->running[i] != seq)
        i++;
    assert(i < s->n_running);
    memmove(
        &s->running[i], &s->running[i + 1], (s->n_running - i - 1) * sizeof(struct sched_seq *));
    s->n_running--;
    if (seq->slot == s->turn_slot) /* the turn passes to the next in line */
        s->turn_slot = i < s->n_running ? s->running[i]->slot : SCHED_NO_SLOT;
    struct sched_slot *slot = &s->slots[seq->slot];
    kv_table_release(s->pool, &seq->table);
    slot->table = seq->table;
    seq->table = (struct kv_table){0};
    s->n_reserved -= slot->n_reserved;
    slot->n_reserved = 0;
    s->free_slots[s->cfg.max_running - s->n_running - 1] = seq->slot;
    seq->slot = SCHED_NO_SLOT;
}

static void remove_waiting(struct sched *s, const struct sched_seq *seq)
{
    uint32_t cap = s->cfg.max_waiting;
    uint32_t i = 0;
    while (i < s->n_waiting && s->waiting[(s->first_waiting + i) % cap] != seq)
        i++;
    if (i == s->n_waiting)
        return;
    for (; i + 1 < s->n_waiting; i++)
        s->waiting[(s->first_waiting + i) % cap] = s->waiting[(s->first_waiting + i + 1) % cap];
    s->n_waiting--;
}

void sched_remove(struct sched *s, struct sched_seq *seq)
{
    if (seq->slot != SCHED_NO_SLOT)
        remove_running(s, seq);
    else
        remove_waiting(s, seq);
}

uint32_t sched_n_running(const struct sched *s)
{
    return s->n_running;
}

uint32_t sched_n_waiting(const struct sched *s)
{
    return s->n_waiting;
}

/* --- sched_check --------------------------------------------------------------------------- */

static enum err check_running(const struct sched *s, uint32_t i, struct err_info *e)
{
    const struct sched_seq *seq = s->running[i];
    if (seq->slot >= s->cfg.max_running)
        return err_set(e, ERR_INTERNAL, "running sequence %u is in slot %u", i, seq->slot);
    for (uint32_t k = 0; k < i; k++)
        if (s->running[k]->slot == seq->slot)
            return err_set(e, ERR_INTERNAL, "slot %u runs two sequences", seq->slot);
    const struct sched_slot *slot = &s->slots[seq->slot];
    if (slot->table.blocks)
        return err_set(e, ERR_INTERNAL, "slot %u runs but kept its table", seq->slot);
    if (seq->n_computed > seq->n_known || seq->n_known < seq->n_prompt || seq->n_known > seq->n_max)
        return err_set(e,
                       ERR_INTERNAL,
                       "slot %u: %u computed, %u known, prompt %u, at most %u",
                       seq->slot,
                       seq->n_computed,
                       seq->n_known,
                       seq->n_prompt,
                       seq->n_max);
    if (slot->n_reserved != kv_blocks_for(s->pool, seq->n_max) ||
        seq->table.n_blocks > slot->n_reserved ||
        seq->table.n_blocks < kv_blocks_for(s->pool, seq->n_computed))
        return err_set(e,
                       ERR_INTERNAL,
                       "slot %u: %u blocks for %u positions, %u reserved",
                       seq->slot,
                       seq->table.n_blocks,
                       seq->n_computed,
                       slot->n_reserved);
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
        const struct sched_slot *free_slot = &s->slots[slot];
        if (!free_slot->table.blocks || free_slot->table.n_blocks || free_slot->n_reserved)
            return err_set(e,
                           ERR_INTERNAL,
                           "free slot %u holds %u blocks, %u reserved",
                           slot,
                           free_slot->table.n_blocks,
                           free_slot->n_reserved);
    }
    return OK;
}

static enum err check_waiting(const struct sched *s, struct err_info *e)
{
    if (s->n_waiting > s->cfg.max_waiting)
        return err_set(e, ERR_INTERNAL, "%u of %u waiting", s->n_waiting, s->cfg.max_waiting);
    for (uint32_t i = 0; i < s->n_waiting; i++) {
        const struct sched_seq *seq = s->waiting[(s->first_waiting + i) % s->cfg.max_waiting];
        if (seq->slot != SCHED_NO_SLOT || seq->table.blocks || seq->n_computed)
            return err_set(e, ERR_INTERNAL, "waiting sequence %u is in slot %u", i, seq->slot);
    }
    return OK;
}

enum err sched_check(const struct sched *s, struct err_info *e)
{
    uint64_t reserved = 0;
    for (uint32_t i = 0; i < s->n_running; i++) {
        enum err err = check_running(s, i, e);
        if (err != OK)
            return err;
        reserved += s->slots[s->running[i]->slot].n_reserved;
        s->tables[i] = &s->running[i]->table;
    }
    if (reserved != s->n_reserved || reserved > kv_pool_stats(s->pool).total)
        return err_set(e,
                       ERR_INTERNAL,
                       "%llu blocks reserved, counted %llu of %u",
                       (unsigned long long)s->n_reserved,
                       (unsigned long long)reserved,
                       kv_pool_stats(s->pool).total);
    enum err err = check_free_slots(s, e);
    if (err == OK)
        err = check_waiting(s, e);
    return err == OK ? kv_check(s->pool, s->tables, s->n_running, e) : err;
}
