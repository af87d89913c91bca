/* Which rows of a batch attend together.
 *
 * A tile is rows of a sequence that follow each other, as many as fit a job. Where sequences share
 * where their contexts begin - the same blocks, as the prefix cache lends them - their few rows are
 * one tile, too, in the order of their blocks, and read what they share once (attend.c):
 *
 *     row    positions ->
 *     a      [ shared by all    ][ shared by a, b ][ a ]
 *     b      [ ...              ][ ...            ][ b     ]
 *     c      [ ...              ][ c      ]
 *
 * Layers whose windows pass have tiles of one sequence each: their panes are few. And where more
 * than 16 heads attend to a KV head a row fills a job by itself. */
#include "backend/cpu/attend.h"

#include "base/mem.h"

#include <string.h>

/* Few items over long contexts are split, so that all workers have their part. That changes no bit:
 * ranges are folded in any case. */
static bool splits_attention(const struct cpu_backend *b, const struct attn_tiles *tiles)
{
    const uint32_t n_workers = pool_size(b->pool);
    return n_workers > 1 && tiles->n_ranges > tiles->n_tiles &&
           tiles->n_tiles * b->max_heads < n_workers * 8 &&
           (uint64_t)tiles->n_ranges * b->max_heads <= n_workers * MAX_SPLIT_ITEMS;
}

static uint32_t rows_of_tile(const struct cpu_backend *b)
{
    const uint32_t group = b->max_group ? b->max_group : 1;
    return group < ATTN_QUERIES ? ATTN_QUERIES / group : 1;
}

/* The position behind the last that a tile's row i sees, of layers that see all. */
static uint32_t end_of(const struct cpu_backend *b, const struct attn_row *row)
{
    return b->model->hp.causal ? row->pos + 1 : b->batch->seqs[row->seq].n_rows;
}

/* What a tile reads. */
static void measure_tile(const struct cpu_backend *b, struct attn_tiles *tiles, struct attn_tile *t)
{
    const struct attn_row *rows = tiles->rows + t->first;
    uint32_t longest = 0;
    uint64_t n_pos = 0;
    for (uint32_t i = 0; i < t->n_rows; i++) {
        const uint32_t end = end_of(b, &rows[i]);
        longest = end > longest ? end : longest;
        n_pos += rows[i].shared != UINT32_MAX ? end - rows[i].shared : b->model->hp.causal;
    }
    t->first_range = tiles->n_ranges;
    t->n_ranges = (longest - 1) / ATTN_RANGE + 1;
    tiles->n_ranges += t->n_ranges;
    tiles->longest = n_pos > tiles->longest ? (uint32_t)n_pos : tiles->longest;
    tiles->n_pos += n_pos;
}

static void measure(const struct cpu_backend *b, struct attn_tiles *tiles)
{
    tiles->longest = tiles->n_ranges = 0;
    tiles->n_pos = 0;
    for (uint32_t i = 0; i < tiles->n_tiles; i++)
        measure_tile(b, tiles, &tiles->tiles[i]);
    if (!splits_attention(b, tiles))
        tiles->n_ranges = 0;
}

/* A row to the tile at work, or to the next one. */
static void put_row(struct attn_tiles *tiles, uint32_t *n_rows, struct attn_row row)
{
    if (row.shared == 0)
        tiles->tiles[tiles->n_tiles++] = (struct attn_tile){.first = *n_rows};
    tiles->tiles[tiles->n_tiles - 1].n_rows++;
    tiles->rows[(*n_rows)++] = row;
}

/* Of rows[0 .. n - 1], ascending, or where that is NULL of all n: those that attend together follow
 * each other in a sequence. */
static void make_tiles(struct cpu_backend *b,
                       const uint32_t *rows,
                       uint32_t n,
                       struct attn_tiles *tiles)
{
    const uint32_t most = rows_of_tile(b);
    uint32_t last_row = 0, n_put = 0;
    tiles->n_tiles = 0;
    tiles->whole = true;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = rows ? rows[i] : i, seq = b->row_seq[row];
        const struct attn_tile *t = tiles->n_tiles ? &tiles->tiles[tiles->n_tiles - 1] : NULL;
        const bool follows =
            t && tiles->rows[t->first].seq == seq && row == last_row + 1 && t->n_rows < most;
        const uint32_t pos = b->batch->positions[row];
        put_row(tiles, &n_put, (struct attn_row){i, pos, seq, follows ? UINT32_MAX : 0});
        last_row = row;
    }
    for (uint32_t i = 0; i < tiles->n_tiles; i++) {
        const struct attn_tile *t = &tiles->tiles[i];
        const uint32_t all = b->batch->seqs[tiles->rows[t->first].seq].n_rows;
        tiles->whole = tiles->whole && t->n_rows == all;
    }
    measure(b, tiles);
}

/* --- what sequences share ----------------------------------------------------------------------
 */

/* Blocks that lie before both of two tiles' rows. */
static uint32_t blocks_before(const struct cpu_backend *b,
                              const struct attn_row *x,
                              const struct attn_row *y)
{
    return (x->pos < y->pos ? x->pos : y->pos) / b->cfg.block_tokens;
}

/* How many of those they have in common, from the first on; `known` are. */
static uint32_t common_blocks(const struct cpu_backend *b,
                              const struct attn_row *x,
                              const struct attn_row *y,
                              uint32_t known)
{
    return mem_common(b->batch->seqs[x->seq].blocks,
                      b->batch->seqs[y->seq].blocks,
                      known,
                      blocks_before(b, x, y));
}

/* Whether x, with so many blocks in common with y, stands before it in the order of their tables:
 * what shares most stands side by side. */
static bool stands_before(const struct cpu_backend *b,
                          const struct attn_row *x,
                          const struct attn_row *y,
                          uint32_t common)
{
    if (common == blocks_before(b, x, y))
        return x->pos < y->pos;
    return b->batch->seqs[x->seq].blocks[common] < b->batch->seqs[y->seq].blocks[common];
}

/* Few rows, which leave room for others', behind as much as is worth it. */
static bool may_share(const struct cpu_backend *b,
                      const struct attn_tiles *tiles,
                      const struct attn_tile *t)
{
    return 2 * t->n_rows <= rows_of_tile(b) && tiles->rows[t->first].pos >= ATTN_TILE;
}

/* Those that may, to by_table; returns how many. */
static uint32_t sort_by_table(struct cpu_backend *b, const struct attn_tiles *tiles)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < tiles->n_tiles; i++) {
        const struct attn_tile *t = &tiles->tiles[i];
        const struct attn_row *row = tiles->rows + t->first;
        uint32_t first = 0, end = n, with_first = 0, with_end = 0; /* common with what bounds it */
        if (!may_share(b, tiles, t))
            continue;
        while (first < end) {
            const uint32_t middle = first + (end - first) / 2;
            const struct attn_row *other = tiles->rows + tiles->tiles[b->by_table[middle]].first;
            const uint32_t known = with_first < with_end ? with_first : with_end;
            const uint32_t common = common_blocks(b, row, other, known);
            if (stands_before(b, row, other, common)) {
                end = middle;
                with_end = common;
            } else {
                first = middle + 1;
                with_first = common;
            }
        }
        memmove(b->by_table + first + 1, b->by_table + first, (n - first) * sizeof *b->by_table);
        b->by_table[first] = i;
        n++;
    }
    return n;
}

/* A tile of `from` behind others, with which its rows share so many positions, or by itself. */
static void put_tile(const struct attn_tiles *from,
                     const struct attn_tile *t,
                     uint32_t shared,
                     struct attn_tiles *to,
                     uint32_t *n_rows)
{
    for (uint32_t i = 0; i < t->n_rows; i++) {
        struct attn_row row = from->rows[t->first + i];
        row.shared = i > 0 ? UINT32_MAX : shared;
        put_row(to, n_rows, row);
    }
    to->tiles[to->n_tiles - 1].shared |= shared > 0;
}

/* Rows that a tile of several sequences may have: no more than leave each worker two ranges of a
 * head, were all tiles as large. */
static uint32_t most_rows(const struct cpu_backend *b, const struct attn_tiles *from, uint32_t n)
{
    uint32_t most = rows_of_tile(b);
    uint64_t n_items = 0;
    for (uint32_t i = 0; i < n; i++)
        n_items += (uint64_t)from->tiles[b->by_table[i]].n_ranges * b->max_heads;
    while (most > 1 && n_items / most < 2 * pool_size(b->pool))
        most /= 2;
    return most;
}

/* `to` has the same rows as `from`, and tiles of what shares blocks; none where nothing does. Those
 * that others had no part in go last: items count down, and they are prompts. */
static void share_tiles(struct cpu_backend *b, const struct attn_tiles *from, struct attn_tiles *to)
{
    uint32_t n_rows = 0;
    bool any = false;
    to->n_tiles = 0;
    if (!b->model->hp.causal)
        return;
    const uint32_t n = sort_by_table(b, from), most = most_rows(b, from, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct attn_tile *t = &from->tiles[b->by_table[i]];
        const struct attn_tile *last = &from->tiles[b->by_table[i > 0 ? i - 1 : 0]];
        uint32_t shared = b->cfg.block_tokens *
                          common_blocks(b, from->rows + last->first, from->rows + t->first, 0);
        if (i == 0 || shared < ATTN_TILE || to->tiles[to->n_tiles - 1].n_rows + t->n_rows > most)
            shared = 0;
        put_tile(from, t, shared, to, &n_rows);
        any |= shared > 0;
    }
    if (!any) {
        to->n_tiles = 0;
        return;
    }
    for (uint32_t i = 0; i < from->n_tiles; i++) {
        const struct attn_tile *t = &from->tiles[i];
        if (!may_share(b, from, t))
            put_tile(from, t, 0, to, &n_rows);
    }
    to->whole = from->whole;
    measure(b, to);
    const uint64_t longest = (uint64_t)to->longest * pool_size(b->pool);
    if (to->n_ranges == 0 && 2 * longest > to->n_pos * b->max_heads)
        to->n_tiles = 0; /* all would wait for one item */
}

void cpu_make_tiles(struct cpu_backend *b)
{
    make_tiles(b, NULL, b->batch->n_rows, &b->all_tiles);
    share_tiles(b, &b->all_tiles, &b->all_shared);
    if (b->n_kept == b->batch->n_rows)
        return;
    make_tiles(b, b->kept, b->n_kept, &b->kept_tiles);
    share_tiles(b, &b->kept_tiles, &b->kept_shared);
}
