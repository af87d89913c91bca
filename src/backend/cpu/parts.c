/* Parts of rows, for steps of few rows: a phase of rows would keep one worker busy for each row,
 * and the others waiting. So where each step writes of a part what it reads of the same part, units
 * of that size are found here, and a batch may hand out parts of rows (run.c):
 *
 *     [gated, pack]      columns, SUPER_K a unit, which is what packed values share at most
 *     [norm of heads, rope, store]      KV heads, each with the queries that it serves
 *
 * And what lies before and behind an attention, divided as its KV heads are, can be done by whoever
 * attends with those rows and heads: no phase, nobody to wait for, and values are still near.
 * Before it that is so where all rows of a sequence are in one item, as others would read what is
 * stored.
 */
#include "backend/cpu/cpu.h"

enum { PART_COLUMNS = 4 }; /* units: gating and packing 5,632 columns takes one core some 3 us */

static uint32_t common(uint32_t a, uint32_t b)
{
    while (b) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A step each of whose values is made of those of the same column. */
static bool is_by_columns(const struct step *s)
{
    /* else it writes what others read as their second */
    const bool apart = s->in2 != s->out || s->in2_first == 0 || s->in2_first >= s->n;
    return s->kind == STEP_UNARY || (s->kind == STEP_GATED && apart);
}

/* Of a phase that packs, after one step at most. */
static uint32_t column_units(const struct step *s, uint32_t n)
{
    const struct step *pack = s + n - 1;
    if (n > 2 || pack->kind != STEP_PACK || pack->n % SUPER_K)
        return 1;
    return n == 1 || (s->n == pack->n && is_by_columns(s)) ? pack->n / SUPER_K : 1;
}

static uint32_t head_units(const struct step *s, uint32_t n)
{
    uint32_t units = 0;
    for (const struct step *end = s + n; s < end; s++) {
        if (s->kind == STEP_HEAD_NORM)
            units = common(units, s->n / s->head_dim);
        else if (s->kind == STEP_ROPE || s->kind == STEP_ROPE_STORE)
            units = common(units, common(s->n_head, s->n_head_kv));
        else
            return 1;
    }
    return units;
}

static void find_units(const struct cpu_backend *b, struct phase *p)
{
    const struct step *s = b->steps + p->first;
    p->units = p->least = 1;
    if (p->kind != PHASE_ROWS || p->gather || p->places)
        return;
    p->units = column_units(s, p->n);
    p->by_heads = p->units == 1;
    if (p->by_heads)
        p->units = head_units(s, p->n);
    else
        p->least = PART_COLUMNS;
}

/* One item must hold all query heads of its KV head. */
static void find_neighbours(const struct cpu_backend *b, struct phase *p)
{
    const struct phase *before = p - 1, *behind = p + 1; /* no plan begins or ends with attention */
    if (p->kind != PHASE_ATTENTION || p->n_head / p->n_head_kv > ATTN_QUERIES)
        return;
    p->may_rotate = before->kind == PHASE_ROWS && before->rows == p->rows && before->by_heads &&
                    before->units % p->n_head_kv == 0;
    p->packs = behind->kind == PHASE_ROWS && behind->rows == p->rows && !behind->by_heads &&
               b->steps[behind->first].n == p->n_channels && behind->units % p->n_head_kv == 0;
}

void cpu_find_parts(struct cpu_backend *b)
{
    for (uint32_t i = 0; i < b->n_phases; i++)
        find_units(b, &b->phases[i]);
    for (uint32_t i = 0; i < b->n_phases; i++)
        find_neighbours(b, &b->phases[i]);
}
