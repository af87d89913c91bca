/* A batch's run: the phases, divided into items for it. */
#include "backend/cpu/run.h"
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

static void run_row(struct cpu_backend *b,
                    const struct phase *p,
                    uint32_t row,
                    struct row_part part)
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
        run_row(b, p, row, part);
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

static uint32_t head_pieces(const struct phase *p)
{
    const uint32_t group = p->n_head / p->n_head_kv;
    return (group + ATTN_QUERIES - 1) / ATTN_QUERIES;
}

/* Tiles are the same for all layers, but for those behind PHASE_KEEP: the largest group says how
 * many rows fit an item. */
void cpu_measure_heads(struct cpu_backend *b)
{
    for (const struct phase *p = b->phases; p < b->phases + b->n_phases; p++) {
        if (p->kind != PHASE_ATTENTION)
            continue;
        const uint32_t group = p->n_head / p->n_head_kv, heads = p->n_head_kv * head_pieces(p);
        b->max_group = group > b->max_group ? group : b->max_group;
        b->max_heads = heads > b->max_heads ? heads : b->max_heads;
    }
}

static const struct attn_tiles *tiles_of(const struct cpu_backend *b, const struct phase *p)
{
    return p->rows == ROWS_KEPT ? &b->kept_tiles : &b->all_tiles;
}

/* What the phase `p` does to the rows and the KV head of an item of `attention`. */
static void run_beside(struct cpu_backend *b,
                       const struct phase *attention,
                       const struct phase *p,
                       const struct attn_tile *tile,
                       uint32_t head_kv)
{
    const struct row_part part = {head_kv, head_kv + 1, attention->n_head_kv};
    for (uint32_t row = tile->first_row; row < tile->first_row + tile->n_rows; row++)
        run_row(b, p, row, part);
}

/* What attends at a time: a range of a KV head of a tile of rows, or all of it. */
struct attend {
    const struct attn_tile *tile;
    uint32_t head_kv, piece; /* piece: which of its query heads */
    bool more;               /* the next head follows */
    uint32_t range;          /* which of the tile's; parts: where the first one's result goes, */
    size_t part;
    uint32_t done; /* and which of attn_done counts them */
};

/* One range; the worker that ends the last one folds them all, in order: true. */
static bool run_attention_range(struct cpu_backend *b,
                                const struct attn_job *job,
                                const struct attend *a)
{
    const size_t part = attn_part_floats(job->kv->head_dim);
    float *parts = b->attn_parts + a->part * part;
    const uint32_t first = attn_first_pos(job, 0) / ATTN_RANGE;
    const uint32_t n = (attn_end(job) - 1) / ATTN_RANGE + 1 - first;
    if (a->range >= n)
        return false; /* the window has passed some of the tile's */
    b->kernels->attend_part(job, first + a->range, parts + a->range * part);
    if (atomic_fetch_add_explicit(&b->attn_done[a->done], 1, memory_order_acq_rel) + 1 < n)
        return false;
    atomic_store_explicit(&b->attn_done[a->done], 0, memory_order_relaxed);
    b->kernels->attend_merge(job, parts, n);
    return true;
}

static uint32_t n_attention_items(const struct cpu_backend *b, const struct phase *p)
{
    return tiles_of(b, p)->n_tiles * (p->n_head_kv / p->chunk) * head_pieces(p);
}

/* KV heads that an item takes one after the other, each asking for the next: as many as leave all
 * workers enough to end together, were all items as long as the longest. */
static uint32_t heads_of_item(const struct cpu_backend *b, const struct phase *p)
{
    enum { ITEMS = 8 /* a worker */ };
    const struct attn_tiles *tiles = tiles_of(b, p);
    const uint64_t least = (uint64_t)tiles->longest * pool_size(b->pool) * ITEMS;
    uint32_t n = 1;
    if (tiles->n_ranges > 0 || head_pieces(p) > 1)
        return n;
    while (p->n_head_kv % (2 * n) == 0 && tiles->n_pos * p->n_head_kv >= 2 * n * least)
        n *= 2;
    return n;
}

static void attend(struct cpu_backend *b,
                   const struct phase *p,
                   const struct attend *a,
                   uint32_t worker)
{
    const struct model_hparams *hp = &b->model->hp;
    const struct layer_kv *layer = &b->layers[p->layer];
    const struct attn_tiles *tiles = tiles_of(b, p);
    const uint32_t group = p->n_head / p->n_head_kv, skip = a->piece * ATTN_QUERIES;
    const struct attn_tile *tile = a->tile;
    const size_t head = a->head_kv * group + skip;
    const uint32_t dim = layer->kv.head_dim, n_value = hp->latent ? hp->latent : dim;
    const struct attn_job job = {
        .kv = &layer->kv,
        .base = layer->base,
        .blocks = cpu_table_of(layer, &b->batch->seqs[tile->seq]),
        .head_kv = a->head_kv,
        .more = a->more,
        .group = group - skip < ATTN_QUERIES ? group - skip : ATTN_QUERIES,
        .first_pos = tile->first_pos,
        .n_rows = tile->n_rows,
        .n_seen = hp->causal ? 0 : b->batch->seqs[tile->seq].n_rows,
        .q = cpu_row_of(b, BUF_Q, tile->first_row) + head * dim,
        .out = cpu_row_of(b, BUF_ATT, tile->first_row) + head * n_value,
        .q_stride = b->stride[BUF_Q],
        .out_stride = b->stride[BUF_ATT],
        .scale = p->scale,
        .cap = p->cap,
        .window = p->window,
        .window_kind = p->window_kind,
        .sinks = p->sinks ? p->sinks + a->head_kv * group + skip : NULL,
        .slopes = p->slopes ? p->slopes + a->head_kv * group + skip : NULL,
        .scratch = b->attn_scratch + worker * b->attn_scratch_stride,
    };
    bool done = true;
    if (p->rotates)
        run_beside(b, p, p - 1, tile, a->head_kv);
    if (tiles->n_ranges > 0)
        done = run_attention_range(b, &job, a);
    else
        b->kernels->attend(&job);
    if (p->packs && done)
        run_beside(b, p, p + 1, tile, a->head_kv);
}

/* The tile that has this one of all tiles' ranges. */
static uint32_t tile_with(const struct attn_tiles *tiles, uint32_t range)
{
    uint32_t first = 0, end = tiles->n_tiles;
    while (end - first > 1) {
        const uint32_t middle = first + (end - first) / 2;
        if (tiles->tiles[middle].first_range <= range)
            first = middle;
        else
            end = middle;
    }
    return first;
}

/* One of a tile's heads, or pieces of them, after the other, each range by range. */
static void run_attention_split(struct cpu_backend *b,
                                const struct phase *p,
                                uint32_t item,
                                uint32_t worker)
{
    const struct attn_tiles *tiles = tiles_of(b, p);
    const uint32_t n_pieces = head_pieces(p), n_heads = p->n_head_kv * n_pieces;
    item = tiles->n_ranges * n_heads - 1 - item;
    const uint32_t t = tile_with(tiles, item / n_heads);
    const struct attn_tile *tile = &tiles->tiles[t];
    const uint32_t at = item - tile->first_range * n_heads, head = at / tile->n_ranges;
    const struct attend a = {.tile = tile,
                             .head_kv = head / n_pieces,
                             .piece = head % n_pieces,
                             .range = tile->n_ranges - 1 - at % tile->n_ranges,
                             .part = (size_t)item - at % tile->n_ranges,
                             .done = t * n_heads + head};
    attend(b, p, &a, worker);
}

/* Items count down: late rows of a prompt have most to read, so they go first. */
static void run_attention(struct cpu_backend *b,
                          const struct phase *p,
                          uint32_t item,
                          uint32_t worker)
{
    const struct attn_tiles *tiles = tiles_of(b, p);
    const uint32_t n_pieces = head_pieces(p), n_parts = p->n_head_kv / p->chunk;
    if (tiles->n_ranges > 0) {
        run_attention_split(b, p, item, worker);
        return;
    }
    item = n_attention_items(b, p) - 1 - item;
    const uint32_t piece = item % n_pieces, first = item / n_pieces % n_parts * p->chunk;
    for (uint32_t h = first, end = first + p->chunk; h < end; h++) {
        const struct attend a = {.tile = &tiles->tiles[item / n_pieces / n_parts],
                                 .head_kv = h,
                                 .piece = piece,
                                 .more = h + 1 < end};
        attend(b, p, &a, worker);
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
        run_attention(b, p, item, worker);
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
        p->chunk = heads_of_item(b, p);
        return tiles_of(b, p)->n_ranges > 0
                   ? tiles_of(b, p)->n_ranges * p->n_head_kv * head_pieces(p)
                   : n_attention_items(b, p);
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

/* Few items over long contexts are split, so that all workers have their part. That changes no bit:
 * ranges are folded in any case. */
static bool splits_attention(const struct cpu_backend *b, const struct attn_tiles *tiles)
{
    const uint32_t n_workers = pool_size(b->pool);
    return n_workers > 1 && tiles->n_ranges > tiles->n_tiles &&
           tiles->n_tiles * b->max_heads < n_workers * 8 &&
           (uint64_t)tiles->n_ranges * b->max_heads <= n_workers * MAX_SPLIT_ITEMS;
}

/* Of rows[0 .. n - 1], ascending, or where that is NULL of all n: those that attend together follow
 * each other in a sequence. */
static void make_tiles(struct cpu_backend *b,
                       const uint32_t *rows,
                       uint32_t n,
                       struct attn_tiles *tiles)
{
    const uint32_t group = b->max_group ? b->max_group : 1;
    const uint32_t tile_rows = group < ATTN_QUERIES ? ATTN_QUERIES / group : 1;
    uint32_t last_row = 0;
    tiles->n_tiles = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = rows ? rows[i] : i, seq = b->row_seq[row];
        struct attn_tile *t = tiles->n_tiles ? &tiles->tiles[tiles->n_tiles - 1] : NULL;
        if (t && t->seq == seq && row == last_row + 1 && t->n_rows < tile_rows)
            t->n_rows++;
        else
            tiles->tiles[tiles->n_tiles++] =
                (struct attn_tile){seq, i, 1, b->batch->positions[row], 0, 0};
        last_row = row;
    }
    tiles->longest = tiles->n_ranges = 0;
    tiles->n_pos = 0;
    tiles->whole = true;
    for (uint32_t i = 0; i < tiles->n_tiles; i++) {
        struct attn_tile *t = &tiles->tiles[i];
        const uint32_t all = b->batch->seqs[t->seq].n_rows;
        const uint32_t end = b->model->hp.causal ? t->first_pos + t->n_rows : all;
        tiles->longest = end > tiles->longest ? end : tiles->longest;
        tiles->n_pos += end;
        t->first_range = tiles->n_ranges;
        t->n_ranges = (end - 1) / ATTN_RANGE + 1;
        tiles->n_ranges += t->n_ranges;
        tiles->whole = tiles->whole && t->n_rows == all;
    }
    if (!splits_attention(b, tiles))
        tiles->n_ranges = 0;
}

/* Which rows there are, which of them are wanted, and how they attend. */
static void prepare(struct cpu_backend *b, const struct batch *batch)
{
    b->batch = batch;
    find_sequences(b, batch);
    find_kept(b, batch);
    make_tiles(b, NULL, batch->n_rows, &b->all_tiles);
    make_tiles(b, b->kept, b->n_kept, &b->kept_tiles);
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
        p->rotates = p->may_rotate && tiles_of(b, p)->whole && tiles_of(b, p)->n_ranges == 0;
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
