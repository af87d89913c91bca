/* A batch as bytes that cross to the device in one copy. */
#include "backend/cuda/cuda.h"

#include <assert.h>
#include <string.h>

static size_t place(size_t *at, size_t n, size_t size)
{
    const size_t here = *at;
    *at = (here + n * size + 15) / 16 * 16;
    return here;
}

/* In the order in which graphs of equal bounds find them, too: offsets depend on bounds alone. */
void cuda_arrays_of(const struct cuda_bounds *m, struct cuda_arrays *out)
{
    size_t at = 0;
    out->counts = place(&at, 1, sizeof(struct cuda_counts));
    out->seqs = place(&at, m->seqs, sizeof(struct cuda_seq));
    out->tokens = place(&at, m->rows, sizeof(int32_t));
    out->token_from = place(&at, m->rows, sizeof(int32_t));
    out->positions = place(&at, m->rows, sizeof(uint32_t));
    out->row_seq = place(&at, m->rows, sizeof(uint32_t));
    out->logit_rows = place(&at, m->logit_rows, sizeof(uint32_t));
    out->hidden_rows = place(&at, m->hidden_rows, sizeof(uint32_t));
    out->tiles = place(&at, m->tiles, sizeof(struct cuda_tile));
    out->jobs = place(&at, m->jobs, sizeof(struct cuda_sample_job));
    out->tables = at;
}

struct cuda_step cuda_step_at(const struct cuda_backend *b, const struct cuda_bounds *bounds)
{
    struct cuda_arrays l;
    cuda_arrays_of(bounds, &l);
    const uint8_t *p = b->step_in;
    return (struct cuda_step){
        .counts = (const struct cuda_counts *)(const void *)(p + l.counts),
        .tokens = (const int32_t *)(const void *)(p + l.tokens),
        .token_from = (const int32_t *)(const void *)(p + l.token_from),
        .chosen = b->chosen,
        .positions = (const uint32_t *)(const void *)(p + l.positions),
        .row_seq = (const uint32_t *)(const void *)(p + l.row_seq),
        .seqs = (const struct cuda_seq *)(const void *)(p + l.seqs),
        .tables = (const uint32_t *)(const void *)(p + l.tables),
        .logit_rows = (const uint32_t *)(const void *)(p + l.logit_rows),
        .hidden_rows = (const uint32_t *)(const void *)(p + l.hidden_rows),
        .tiles = (const struct cuda_tile *)(const void *)(p + l.tiles),
    };
}

static enum err check(const struct cuda_backend *b, const struct batch *x, struct err_info *e)
{
    if (x->n_logit_rows && !b->model->generates)
        return err_set(e, ERR_INTERNAL, "logits of a model that has none");
    if (x->n_rows == 0 || x->n_rows > b->cfg.max_rows || x->n_seqs > b->cfg.max_seqs ||
        x->n_logit_rows > b->cfg.max_logit_rows || x->n_hidden_rows > b->cfg.max_rows)
        return err_set(e,
                       ERR_INTERNAL,
                       "a batch of %u rows, %u sequences, %u logits is too large",
                       x->n_rows,
                       x->n_seqs,
                       x->n_logit_rows);
    return OK;
}

/* A sequence's table, from entry `first` on, behind those that are there. Entries before it name
 * nothing and are never read. */
static uint32_t put_table(
    uint32_t *tables, uint32_t *n, const uint32_t *from, uint32_t first, uint32_t end)
{
    const uint32_t at = *n;
    for (uint32_t i = 0; i < end; i++)
        tables[at + i] = i < first ? 0 : from[i];
    *n = at + end;
    return at;
}

/* The states kept of a sequence, behind its tables; struct cuda_kept is two entries. */
static void put_kept(const struct cuda_backend *b,
                     const struct batch_seq *s,
                     uint32_t *tables,
                     uint32_t *n,
                     struct cuda_seq *out)
{
    const uint32_t size = b->cfg.block_tokens, end = s->first_pos + s->n_rows;
    out->kept = *n;
    for (uint32_t k = s->first_pos / size; s->states && (uint64_t)(k + 1) * size <= end; k++) {
        if (s->states[k] == BATCH_NO_STATE)
            continue;
        tables[(*n)++] = (k + 1) * size - s->first_pos;
        tables[(*n)++] = s->states[k];
        out->n_kept++;
    }
}

/* The first entry of a sequence's panes that any of its rows reads. */
static uint32_t first_pane(const struct cuda_backend *b, const struct batch_seq *s)
{
    const uint32_t window = b->window;
    const uint32_t from = window && s->first_pos >= window ? s->first_pos + 1 - window : 0;
    return from / b->cfg.block_tokens;
}

/* Raise `last` to the last moves of what a sequence's rows read and write. */
static void moved_of(const struct cuda_backend *b,
                     const struct batch_seq *s,
                     uint32_t end,
                     struct cuda_moved *last)
{
    const uint32_t first = first_pane(b, s);
    cuda_moves_of(b, 0, s->blocks, end, last);
    if (b->cfg.n_panes)
        cuda_moves_of(b, 1, s->panes + first, end - first, last);
}

/* Sequences and their tables; *moved: when any of their blocks was, if some are on their way.
 * Errors: ERR_INTERNAL. */
static enum err put_seqs(struct cuda_backend *b,
                         const struct batch *x,
                         struct cuda_seq *seqs,
                         uint32_t *n_entries,
                         uint32_t *tables,
                         struct cuda_moved *moved,
                         struct err_info *e)
{
    const bool moving = cuda_moves_pending(b);
    uint32_t n = 0;
    *moved = (struct cuda_moved){{0}};
    for (uint32_t i = 0; i < x->n_seqs; i++) {
        const struct batch_seq *s = &x->seqs[i];
        const uint32_t end =
            (s->first_pos + s->n_rows + b->cfg.block_tokens - 1) / b->cfg.block_tokens;
        const uint64_t kept = b->state_bytes ? s->n_rows / b->cfg.block_tokens + 1 : 0;
        const uint64_t wanted = (uint64_t)end * (b->cfg.n_panes ? 2 : 1) + 2 * kept;
        assert(s->first_row + s->n_rows <= x->n_rows);
        assert(b->model->hp.causal || s->first_pos == 0);
        if (n + wanted > b->table_entries)
            return err_set(e,
                           ERR_INTERNAL,
                           "the block tables of %u sequences are longer than the %u entries that "
                           "there is room for",
                           x->n_seqs,
                           b->table_entries);
        seqs[i] = (struct cuda_seq){.first_row = s->first_row,
                                    .n_rows = s->n_rows,
                                    .first_pos = s->first_pos,
                                    .second = s->second,
                                    .state_from = s->state_from,
                                    .state_to = s->state_to};
        seqs[i].blocks = seqs[i].panes = put_table(tables, &n, s->blocks, 0, end);
        if (b->cfg.n_panes)
            seqs[i].panes = put_table(tables, &n, s->panes, first_pane(b, s), end);
        if (moving)
            moved_of(b, s, end, moved);
        if (b->state_bytes)
            put_kept(b, s, tables, &n, &seqs[i]);
    }
    *n_entries = n;
    return OK;
}

bool cuda_bounds_within(const struct cuda_bounds *m, const struct cuda_bounds *most)
{
    return m->rows <= most->rows && m->seqs <= most->seqs && m->logit_rows <= most->logit_rows &&
           m->hidden_rows <= most->hidden_rows && m->tiles <= most->tiles &&
           m->jobs <= most->jobs && m->ranges <= most->ranges;
}

static uint32_t ranges_of(const struct batch *x)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < x->n_seqs; i++) {
        const uint32_t end = x->seqs[i].first_pos + x->seqs[i].n_rows;
        const uint32_t n = (end + CUDA_ATTN_RANGE - 1) / CUDA_ATTN_RANGE;
        most = n > most ? n : most;
    }
    return most;
}

/* The tiles depend on sequences alone, so they are found before it is known where they go. */
static uint32_t make_tiles(struct cuda_backend *b, const struct batch *x)
{
    const struct cuda_attention_shape shape = cuda_attention_most(b->model);
    for (uint32_t i = 0; i < x->n_seqs; i++)
        b->seqs[i] = (struct cuda_seq){.first_row = x->seqs[i].first_row,
                                       .n_rows = x->seqs[i].n_rows,
                                       .first_pos = x->seqs[i].first_pos};
    return cuda_attention_tiles(&shape, b->seqs, x->n_seqs, b->tiles);
}

static void put_rows(uint8_t *to, const struct cuda_arrays *l, const struct batch *x)
{
    uint32_t *row_seq = (uint32_t *)(void *)(to + l->row_seq);
    memcpy(to + l->tokens, x->tokens, x->n_rows * sizeof *x->tokens);
    memset(to + l->token_from, 0xff, x->n_rows * sizeof(int32_t)); /* -1: tokens are the host's */
    memcpy(to + l->positions, x->positions, x->n_rows * sizeof *x->positions);
    for (uint32_t i = 0; i < x->n_seqs; i++) {
        for (uint32_t r = 0; r < x->seqs[i].n_rows; r++)
            row_seq[x->seqs[i].first_row + r] = i;
    }
    if (x->n_logit_rows)
        memcpy(to + l->logit_rows, x->logit_rows, x->n_logit_rows * sizeof *x->logit_rows);
    if (x->n_hidden_rows)
        memcpy(to + l->hidden_rows, x->hidden_rows, x->n_hidden_rows * sizeof *x->hidden_rows);
}

static void count(struct cuda_backend *b,
                  const struct batch *x,
                  uint32_t n_jobs,
                  struct cuda_slot *s)
{
    s->counts = (struct cuda_counts){.n_rows = x->n_rows,
                                     .n_seqs = x->n_seqs,
                                     .n_logit_rows = x->n_logit_rows,
                                     .n_hidden_rows = x->n_hidden_rows,
                                     .n_tiles = make_tiles(b, x)};
    s->bounds = (struct cuda_bounds){.rows = x->n_rows,
                                     .seqs = x->n_seqs,
                                     .logit_rows = x->n_logit_rows,
                                     .hidden_rows = x->n_hidden_rows,
                                     .tiles = s->counts.n_tiles,
                                     .jobs = n_jobs,
                                     .ranges = ranges_of(x)};
    s->graph = cuda_graph_for(b, &s->bounds);
    if (s->graph >= 0)
        s->bounds = b->graphs[s->graph].bounds;
    else if (b->at_most)
        s->bounds = b->most;
}

enum err cuda_slot_prepare(struct cuda_backend *b,
                           struct cuda_slot *s,
                           const struct batch *x,
                           uint32_t n_jobs,
                           struct err_info *e)
{
    struct cuda_arrays l;
    uint32_t n_entries = 0;
    enum err err = check(b, x, e);
    if (!err)
        err = cuda_pool_borrow(&b->pool, GPU_STAGING, &s->pinned, e);
    if (err)
        return err;
    s->beside = s->sampled = false;
    count(b, x, n_jobs, s);
    if (!cuda_bounds_within(&s->bounds, &b->most)) {
        cuda_slot_release(b, s);
        return err_set(e, ERR_INTERNAL, "a step is larger than the memory that was taken for it");
    }
    cuda_arrays_of(&s->bounds, &l);
    s->logits = (float *)(void *)(s->pinned + b->out_offset);
    s->hidden = (float *)(void *)(s->pinned + b->hidden_offset);
    s->scores = (float *)(void *)(s->pinned + b->scores_offset);
    memcpy(s->pinned + l.counts, &s->counts, sizeof s->counts);
    memcpy(s->pinned + l.tiles, b->tiles, s->counts.n_tiles * sizeof *b->tiles);
    put_rows(s->pinned, &l, x);
    err = put_seqs(b,
                   x,
                   (struct cuda_seq *)(void *)(s->pinned + l.seqs),
                   &n_entries,
                   (uint32_t *)(void *)(s->pinned + l.tables),
                   &s->moved,
                   e);
    s->in_bytes = l.tables + (size_t)n_entries * sizeof(uint32_t);
    if (err)
        cuda_slot_release(b, s);
    return err;
}

void cuda_slot_release(struct cuda_backend *b, struct cuda_slot *s)
{
    struct err_info ignored; /* it is lent: nothing can be wrong with it */
    if (s->pinned)
        (void)!cuda_pool_return(&b->pool, GPU_STAGING, s->pinned, b->stream, &ignored);
    s->pinned = NULL;
}
