/* Attention's items: a tile of rows (tiles.c) and a KV head, or several of them one after the
 * other; or, where these are few and contexts long, a range of positions of them.
 *
 * What sequences share is read first, for all of them, then what some of them share, then each
 * one's own; kernels keep the sums in between. A query's own arithmetic is the same in any company,
 * so that changes no bit. */
#include "backend/cpu/attend.h"
#include "backend/cpu/run.h"

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

/* Of a phase's rows: each sequence by itself, */
static const struct attn_tiles *own_tiles(const struct cpu_backend *b, const struct phase *p)
{
    const bool some = p->rows == ROWS_KEPT && b->n_kept < b->batch->n_rows;
    return some ? &b->kept_tiles : &b->all_tiles;
}

/* or together what shares blocks. */
static const struct attn_tiles *tiles_of(const struct cpu_backend *b, const struct phase *p)
{
    const struct attn_tiles *own = own_tiles(b, p);
    const struct attn_tiles *shared = own == &b->all_tiles ? &b->all_shared : &b->kept_shared;
    const bool passes = p->window || b->layers[p->layer].in_panes;
    return shared->n_tiles > 0 && !passes ? shared : own;
}

bool cpu_attend_holds_sequences(const struct cpu_backend *b, const struct phase *p)
{
    return tiles_of(b, p)->whole && tiles_of(b, p)->n_ranges == 0;
}

/* What the phase `p` does to the rows and the KV head of an item of `attention`. */
static void run_beside(struct cpu_backend *b,
                       const struct phase *attention,
                       const struct phase *p,
                       const struct attn_job *job)
{
    const struct row_part part = {job->head_kv, job->head_kv + 1, attention->n_head_kv};
    for (uint32_t i = 0; i < job->n_rows; i++)
        cpu_run_row(b, p, job->rows[i].at, part);
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

static const uint32_t *table_of(const struct cpu_backend *b, const struct phase *p, uint32_t seq)
{
    return cpu_table_of(&b->layers[p->layer], &b->batch->seqs[seq]);
}

/* A tile's rows first .. (returned) - 1 lie in the same blocks from position `from` to *stop, a
 * multiple of `step` or where the last of them ends, or `end` at the most. */
static uint32_t together(const struct attn_job *job,
                         uint32_t step,
                         uint32_t first,
                         uint32_t from,
                         uint32_t end,
                         uint32_t *stop)
{
    uint32_t until = end, i = first + 1;
    for (; i < job->n_rows; i++) {
        const uint32_t shared = job->rows[i].shared / step * step;
        if (shared <= from)
            break;
        until = shared < until ? shared : until;
    }
    const uint32_t all = attn_end_pos(job, i - 1);
    *stop = all < until ? all : until;
    return i;
}

/* Positions first .. end - 1 of all of a tile's rows, what they share first. */
static void attend_shared(struct cpu_backend *b,
                          const struct phase *p,
                          const struct attn_job *job,
                          uint32_t first,
                          uint32_t end,
                          const struct attn_sums *sums)
{
    const uint32_t step = b->kernels->attend_step(job);
    uint32_t done[ATTN_QUERIES];
    for (uint32_t i = 0; i < job->n_rows; i++)
        done[i] = first;
    for (uint32_t i = 0; i < job->n_rows;) {
        uint32_t stop;
        if (done[i] >= end || done[i] >= attn_end_pos(job, i)) {
            i++;
            continue;
        }
        const uint32_t n = together(job, step, i, done[i], end, &stop) - i;
        struct attn_job some = *job;
        some.rows += i;
        some.n_rows = n;
        some.at = i * job->group;
        some.blocks = table_of(b, p, job->rows[i].seq);
        some.more = false;
        b->kernels->attend_some(&some, done[i], stop, sums);
        for (uint32_t k = i; k < i + n; k++)
            done[k] = stop;
    }
}

/* A range of such a tile. */
static void attend_shared_range(struct cpu_backend *b,
                                const struct phase *p,
                                const struct attn_job *job,
                                uint32_t range,
                                float *open,
                                float *part)
{
    const struct attn_sums sums = {part, open, range};
    const uint32_t begin = range * ATTN_RANGE;
    for (uint32_t i = 0; i < job->n_rows; i++) {
        if (attn_end_pos(job, i) <= begin)
            attn_part_empty(part, i * job->group, job->group);
    }
    attend_shared(b, p, job, begin, begin + ATTN_RANGE, &sums);
}

/* One range; the worker that ends the last one folds them all, in order: true. */
static bool run_range(struct cpu_backend *b,
                      const struct phase *p,
                      const struct attn_job *job,
                      const struct attend *a,
                      float *open)
{
    const size_t part = attn_part_floats(job->kv->head_dim);
    float *parts = b->attn_parts + a->part * part;
    const uint32_t first = attn_first_pos(job, 0) / ATTN_RANGE;
    const uint32_t end = a->tile->shared ? a->tile->n_ranges : (attn_end(job) - 1) / ATTN_RANGE + 1;
    const uint32_t n = end - first;
    if (a->range >= n)
        return false; /* the window has passed some of the tile's */
    if (a->tile->shared)
        attend_shared_range(b, p, job, a->range, open, parts + a->range * part);
    else
        b->kernels->attend_part(job, first + a->range, parts + a->range * part);
    if (atomic_fetch_add_explicit(&b->attn_done[a->done], 1, memory_order_acq_rel) + 1 < n)
        return false;
    atomic_store_explicit(&b->attn_done[a->done], 0, memory_order_relaxed);
    b->kernels->attend_merge(job, parts, n);
    return true;
}

/* All of them. */
static void run_whole(struct cpu_backend *b,
                      const struct phase *p,
                      const struct attn_job *job,
                      bool shared,
                      const struct attn_sums *sums)
{
    if (!shared) {
        b->kernels->attend(job);
        return;
    }
    attend_shared(b, p, job, 0, UINT32_MAX, sums);
    b->kernels->attend_merge(job, sums->total, 1);
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
    const struct attn_row *rows = tiles->rows + a->tile->first;
    const size_t head = a->head_kv * group + skip;
    const uint32_t dim = layer->kv.head_dim, n_value = hp->latent ? hp->latent : dim;
    float *total = b->attn_sums + worker * b->attn_sums_stride;
    const struct attn_sums sums = {.total = total, .open = total + attn_part_floats(hp->head_dim)};
    const struct attn_job job = {
        .kv = &layer->kv,
        .base = layer->base,
        .blocks = table_of(b, p, rows->seq),
        .head_kv = a->head_kv,
        .more = a->more,
        .group = group - skip < ATTN_QUERIES ? group - skip : ATTN_QUERIES,
        .rows = rows,
        .n_rows = a->tile->n_rows,
        .n_seen = hp->causal ? 0 : b->batch->seqs[rows->seq].n_rows,
        .q = cpu_row_of(b, BUF_Q, 0) + head * dim,
        .out = cpu_row_of(b, BUF_ATT, 0) + head * n_value,
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
        run_beside(b, p, p - 1, &job);
    if (tiles->n_ranges > 0)
        done = run_range(b, p, &job, a, sums.open);
    else
        run_whole(b, p, &job, a->tile->shared, &sums);
    if (p->packs && done)
        run_beside(b, p, p + 1, &job);
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
static void run_split(struct cpu_backend *b, const struct phase *p, uint32_t item, uint32_t worker)
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
void cpu_attend_run(struct cpu_backend *b, const struct phase *p, uint32_t item, uint32_t worker)
{
    const struct attn_tiles *tiles = tiles_of(b, p);
    const uint32_t n_pieces = head_pieces(p), n_parts = p->n_head_kv / p->chunk;
    if (tiles->n_ranges > 0) {
        run_split(b, p, item, worker);
        return;
    }
    item = n_attention_items(b, p) - 1 - item;
    const uint32_t piece = item % n_pieces, first = item / n_pieces % n_parts * p->chunk;
    const struct attn_tile *tile = &tiles->tiles[item / n_pieces / n_parts];
    for (uint32_t h = first, end = first + p->chunk; h < end; h++) {
        const struct attend a = {.tile = tile, .head_kv = h, .piece = piece, .more = h + 1 < end};
        attend(b, p, &a, worker);
    }
}

uint32_t cpu_attend_divide(const struct cpu_backend *b, struct phase *p)
{
    const uint32_t n_ranges = tiles_of(b, p)->n_ranges;
    p->chunk = heads_of_item(b, p);
    return n_ranges > 0 ? n_ranges * p->n_head_kv * head_pieces(p) : n_attention_items(b, p);
}
