/* A batch's run: the phases, divided into items for it. */
#include "backend/cpu/run.h"
#include "backend/cpu/attend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/recurrent.h"

#include <assert.h>
#include <string.h>

uint32_t cpu_phase_rows(const struct cpu_backend *b, const struct phase *p)
{
    switch (p->rows) {
    case ROWS_KEPT:
        return b->n_kept;
    case ROWS_LOGITS:
        return b->batch->n_logit_rows;
    case ROWS_HIDDEN:
        return b->batch->n_hidden_rows;
    case ROWS_ALL:
        break;
    }
    return b->batch->n_rows;
}

/* Rows of one tile are packed into the same lines, which would go to and fro between two workers:
 * so items that follow each other are of different tiles, where tiles are divided at all. */
static uint32_t first_row_of(const struct phase *p, uint32_t item, uint32_t n_rows)
{
    const uint32_t n_tiles = (n_rows + ACT_TILE - 1) / ACT_TILE;
    if (p->chunk % ACT_TILE == 0)
        return item * p->chunk;
    return item % n_tiles * ACT_TILE + item / n_tiles;
}

void cpu_run_row(struct cpu_backend *b, const struct phase *p, uint32_t row, struct row_part part)
{
    const uint32_t *rows = p->rows == ROWS_HIDDEN ? b->hidden_at : b->logit_at;
    const uint32_t n_rows = cpu_phase_rows(b, p);
    uint32_t from = p->gather ? rows[row] : row;
    for (uint32_t i = 0; i < p->n; i++, from = row)
        cpu_run_step(b, &b->steps[p->first + i], from, row, n_rows, part);
}

static void run_rows(struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    const uint32_t n_rows = cpu_phase_rows(b, p), n = p->n_parts, i = item % n;
    const struct row_part part = {p->units * i / n, p->units * (i + 1) / n, p->units};
    const uint32_t first = first_row_of(p, item / n, n_rows);
    for (uint32_t row = first; row < first + p->chunk && row < n_rows; row++)
        cpu_run_row(b, p, row, part);
}

/* As run_rows, over places; those that only fill up a tile are left out. */
static void run_places(struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    const uint32_t n_rows = cpu_phase_rows(b, p);
    const uint32_t first = first_row_of(p, item, experts_max_places(&b->model->hp, n_rows));
    for (uint32_t place = first; place < first + p->chunk && place < b->n_places; place++) {
        const uint32_t row = b->place_row[place];
        for (uint32_t i = 0; row != NO_ROW && i < p->n; i++) {
            struct step *s = &b->steps[p->first + i];
            cpu_run_step(b, s, s->gather ? row : place, place, n_rows, WHOLE_ROW);
        }
    }
}

/* Of one buffer, or behind the last of the angles; in place, for none moves up. */
static void keep_rows(const struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    const bool angles = item == N_MODEL_BUFS;
    float *rows = angles ? b->angles : b->bufs[item];
    const size_t n = angles ? (size_t)N_ROPE_TABLES * b->model->hp.rope_dims * 2 : b->stride[item];
    if (!angles && !(p->keeps >> item & 1))
        return;
    for (uint32_t i = 0; i < b->n_kept; i++) {
        if (b->kept[i] != i)
            memcpy(rows + i * n, rows + b->kept[i] * n, n * sizeof *rows);
    }
}

static void run_item(void *ctx, uint32_t phase, uint32_t item, uint32_t worker)
{
    struct cpu_backend *b = ctx;
    const struct phase *p = &b->phases[phase];
    switch (p->kind) {
    case PHASE_ROWS:
        if (p->places)
            run_places(b, p, item);
        else
            run_rows(b, p, item);
        break;
    case PHASE_LINEAR:
        cpu_run_panels(b, p, worker);
        break;
    case PHASE_ATTENTION:
        cpu_attend_run(b, p, item, worker);
        break;
    case PHASE_SORT:
        experts_sort(b, p->n_used, cpu_phase_rows(b, p));
        break;
    case PHASE_EXPERTS:
        experts_run(b, p, item, worker);
        break;
    case PHASE_CONV:
    case PHASE_RECUR:
        recurrent_run(b, p, item);
        break;
    case PHASE_KEEP:
        keep_rows(b, p, item);
        break;
    }
}

/* Of this batch, by the attention before or behind it. */
static bool done_by_attention(const struct cpu_backend *b, const struct phase *p)
{
    const struct phase *before = p > b->phases ? p - 1 : p;
    const struct phase *behind = p + 1 < b->phases + b->n_phases ? p + 1 : p;
    return before->packs || behind->rotates;
}

/* In whole tiles, or row by row where there would be too few for all to end together, or where
 * there are fewer than workers in parts that are worth handing out. */
static uint32_t divide_rows(struct phase *p, uint32_t n_rows, uint32_t n_workers)
{
    const uint32_t tiles = n_rows / (n_workers * 4 * ACT_TILE);
    const uint32_t wanted = (n_workers + n_rows - 1) / n_rows;
    const uint32_t most = p->units < p->least ? 1 : p->units / p->least;
    p->n_parts = wanted < most ? wanted : most;
    p->chunk = tiles ? tiles * ACT_TILE : 1;
    if (tiles)
        return (n_rows + p->chunk - 1) / p->chunk;
    if (n_rows < ACT_TILE)
        return n_rows * p->n_parts;
    return (n_rows + ACT_TILE - 1) / ACT_TILE * ACT_TILE * p->n_parts;
}

/* How this batch divides a phase: sets its chunk, returns its number of items. */
static uint32_t divide_phase(const struct cpu_backend *b, struct phase *p)
{
    const struct model_hparams *hp = &b->model->hp;
    const uint32_t n_workers = pool_size(b->pool);
    uint32_t n_rows = cpu_phase_rows(b, p);
    const uint32_t n_runs = experts_max_runs(hp, n_rows);
    if (p->places)
        n_rows = experts_max_places(hp, n_rows);
    if (n_rows == 0)
        return 0;
    switch (p->kind) {
    case PHASE_ROWS:
        return done_by_attention(b, p) ? 0 : divide_rows(p, n_rows, n_workers);
    case PHASE_LINEAR:
        return cpu_divide_panels(b, p, n_rows);
    case PHASE_ATTENTION:
        return cpu_attend_divide(b, p);
    case PHASE_SORT:
        return 1;
    case PHASE_EXPERTS: /* for as many experts as can be wanted: how many are is known later */
        p->chunk = cpu_expert_chunk(b, p, n_rows, n_workers);
        return (p->n_panels + p->chunk - 1) / p->chunk * n_runs;
    case PHASE_CONV:
    case PHASE_RECUR:
        return recurrent_items(b, p);
    case PHASE_KEEP:
        return b->n_kept == 0 || b->n_kept == b->batch->n_rows ? 0 : N_MODEL_BUFS + 1;
    }
    return 0;
}

/* Which sequence each row belongs to. */
static void find_sequences(struct cpu_backend *b, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        const struct batch_seq *seq = &batch->seqs[i];
        assert(seq->first_row + seq->n_rows <= batch->n_rows);
        assert(b->model->hp.causal || seq->first_pos == 0);
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            b->row_seq[seq->first_row + r] = i;
            assert(batch->positions[seq->first_row + r] == seq->first_pos + r);
        }
    }
}

/* Which rows somebody wants something of. */
static void find_kept(struct cpu_backend *b, const struct batch *batch)
{
    uint32_t logits = 0, hidden = 0;
    b->n_kept = 0;
    while (logits < batch->n_logit_rows || hidden < batch->n_hidden_rows) {
        const uint32_t l = logits < batch->n_logit_rows ? batch->logit_rows[logits] : UINT32_MAX;
        const uint32_t h = hidden < batch->n_hidden_rows ? batch->hidden_rows[hidden] : UINT32_MAX;
        const uint32_t row = l < h ? l : h;
        assert(row < batch->n_rows && (b->n_kept == 0 || row > b->kept[b->n_kept - 1]));
        if (l == row)
            b->logit_at[logits++] = b->n_kept;
        if (h == row)
            b->hidden_at[hidden++] = b->n_kept;
        b->kept[b->n_kept++] = row;
    }
}

/* Which rows there are, which of them are wanted, and how they attend. */
static void prepare(struct cpu_backend *b, const struct batch *batch)
{
    b->batch = batch;
    find_sequences(b, batch);
    find_kept(b, batch);
    cpu_make_tiles(b);
}

enum err cpu_run(struct backend *base,
                 const struct batch *batch,
                 float **logits,
                 struct err_info *e)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    *logits = b->bufs[BUF_LOGITS];
    if (batch->n_logit_rows && !b->model->generates)
        return err_set(e, ERR_INTERNAL, "logits of a model that has none");
    if (batch->n_rows > b->cfg.max_rows || batch->n_seqs > b->cfg.max_seqs ||
        batch->n_logit_rows > b->cfg.max_logit_rows || batch->n_hidden_rows > b->cfg.max_rows)
        return err_set(e,
                       ERR_INTERNAL,
                       "a batch of %u rows, %u sequences, %u logits is too large",
                       batch->n_rows,
                       batch->n_seqs,
                       batch->n_logit_rows);
    if (batch->n_rows == 0)
        return OK;
    prepare(b, batch);
    b->n_runs_begun++;
    atomic_store_explicit(&b->n_rows, batch->n_rows, memory_order_relaxed);
    for (struct phase *p = b->phases; p < b->phases + b->n_phases; p++)
        p->rotates = p->may_rotate && cpu_attend_holds_sequences(b, p);
    for (uint32_t i = 0; i < b->n_phases; i++)
        b->n_items[i] = divide_phase(b, &b->phases[i]);
    pool_walk(b->pool, b->n_items, b->n_phases, run_item, b);
    return OK;
}

const float *cpu_hidden(const struct backend *base, enum model_buf buf, uint32_t i)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    return cpu_row_of(b, buf, i);
}
