/* Attention of a few rows over the paged context of their sequence, or what several have in common,
 * one KV head at a time.
 *
 * Online softmax (Milakov and Gimelshein 2018; Dao 2022) over tiles of ATTN_TILE positions (on a
 * tile unit of whole ranges: attention_amx_impl.h) aligned to the absolute position, so the tiles,
 * and with them the bits, do not depend on how a prompt was cut. All query heads that share the KV
 * head, of all rows of the item, meet a tile together. A query's own arithmetic is the same in any
 * company:
 *
 *     s[p] = scale * q . k[p]      m' = max(m, max s)      w[p] = e^(s[p] - m')
 *     c = e^(m - m')               l = l c + w             acc = acc c + sum_p w[p] v[p]
 *
 * (scores capped first, where the job says so) with l kept as 16 lanes and added up at the end of a
 * range.
 *
 * Ranges of ATTN_RANGE positions, aligned likewise, are summed by themselves and then folded from
 * the first to the last, so that different workers can take ranges of one long context:
 *
 *     M' = max(M, m)     L = L e^(M - M') + l e^(m - M')     A = A e^(M - M') + acc e^(m - M') */
#define QB LINEAR_M /* queries a kernel takes at a time; layouts have this stride */

enum { ATTN_PARTS = ATTN_TILE / KV_TILE, ATTN_MOST_PARTS = AMX_ATTN_TILE / KV_TILE };

/* Where KV_TILE positions lie: k[dim][n_slots], v[KV_TILE][dim], and their scales of Q8_0. */
struct attn_part {
    const uint8_t *k, *v;
    const float *k_scales, *v_scales; /* [dim / 32][n_slots], [KV_TILE][dim / 32] */
    size_t n_slots;
};

struct attn_state {
    const struct attn_job *j;
    uint32_t dim;     /* head_dim */
    uint32_t n_value; /* of V: head_dim or latent, */
    uint32_t padded;  /* to a multiple of 16 */
    uint32_t n_query; /* rows x heads, row-major */
    float *q;         /* [n_query / QB][dim][QB], zeros beyond n_query; as the way packs them */
    float *m;         /* [n_query] of the range: its part, */
    float *sum;       /* [n_query] at its end, */
    float *acc;       /* [n_query][padded] */
    float *k;         /* [ATTN_PARTS][dim][KV_TILE] of the tile, if it is copied: attn_copy */
    float *v;         /* [ATTN_TILE][n_value] likewise */
    float *w;         /* [n_query][ATTN_TILE] scores, then weights, of the tile */
    float *l;         /* [n_query][KV_TILE] */
    float *c;         /* [n_query] */
    uint32_t tile;    /* positions: ATTN_TILE or, on a tile unit, AMX_ATTN_TILE */
    struct attn_part parts[ATTN_MOST_PARTS]; /* the tile, */
    struct attn_part next[ATTN_MOST_PARTS];  /* what is read after it; or it again */
};

/* Positions of the tile at work that a query sees: none unless from < end. */
struct attn_seen {
    uint32_t from, end;
};

static void attn_begin(struct attn_state *s, const struct attn_job *j, uint32_t tile)
{
    const struct kv_layout *kv = j->kv;
    s->j = j;
    s->dim = kv->head_dim;
    s->n_value = kv->latent ? kv->latent : s->dim;
    s->padded = (s->n_value + 15) / 16 * 16;
    s->n_query = j->n_rows * j->group;
    s->tile = tile;
    s->q = j->scratch;
    s->k = s->q + ATTN_QUERIES * attn_query_floats(s->dim);
    s->v = s->k + ATTN_TILE * s->dim;
    s->w = s->k + attn_tile_floats(s->dim);
    s->l = s->w + ATTN_QUERIES * ATTN_W_STRIDE;
    s->c = s->l + ATTN_QUERIES * KV_TILE;
}

/* Queries side by side, QB at a time; the heads of a row four at a time, as they lie in a row. */
static void attn_pack(struct attn_state *s)
{
    const struct attn_job *j = s->j;
    const uint32_t dim = s->dim, in_vectors = dim / VL * VL;
    if (s->n_query % QB)
        memset(s->q + s->n_query / QB * QB * dim, 0, sizeof(float) * QB * dim);
    for (uint32_t i = 0, n; i < s->n_query; i += n) {
        const uint32_t head = i % j->group;
        const float *q = j->q + j->rows[i / j->group].at * j->q_stride + (size_t)head * dim;
        float *to = s->q + (size_t)(i / QB) * dim * QB + i % QB;
        n = i % 4 == 0 && j->group - head >= 4 ? 4 : 1;
        for (uint32_t d = 0; n == 4 && d < in_vectors; d += VL)
            vf_put_beside(q + d, dim, to + (size_t)d * QB, QB);
        for (uint32_t d = n == 4 ? in_vectors : 0; d < dim; d++)
            for (uint32_t h = 0; h < n; h++)
                to[(size_t)d * QB + h] = q[(size_t)h * dim + d];
    }
}

INLINE uint32_t attn_within(uint32_t pos, uint32_t tile_pos, uint32_t tile)
{
    return pos <= tile_pos ? 0 : pos - tile_pos < tile ? pos - tile_pos : tile;
}

/* What query i sees of the tile at tile_pos. Later queries see no less at its end, and no more at
 * its beginning. */
INLINE struct attn_seen attn_sees(const struct attn_state *s, uint32_t i, uint32_t tile_pos)
{
    const uint32_t row = i / s->j->group;
    return (struct attn_seen){attn_within(attn_first_pos(s->j, row), tile_pos, s->tile),
                              attn_within(attn_end_pos(s->j, row), tile_pos, s->tile)};
}

#include "backend/cpu/attention_kv_impl.h"

/* Tiles that vectors do not read where they lie. */
INLINE bool attn_copies(const struct attn_job *j)
{
    return j->kv->latent || j->kv->block_tokens % KV_TILE != 0;
}

/* What a tile's keys and values are where they are read. */
INLINE enum kv_type attn_read_as(const struct attn_job *j)
{
    return attn_copies(j) ? KV_F32 : j->kv->type;
}

/* w[first + m][part ..] = scale * q . k for N parts of the tile.
 *
 * Blocks lie anywhere in memory, so no hardware foresees the next ones. What the first queries
 * read, here and of V, is asked for a tile ahead at the same time (at the end, as much of the next
 * KV head): a burst would fill the buffers that every load needs. */
INLINE void attn_scores_of(const struct attn_state *s,
                           uint32_t first,
                           uint32_t part,
                           const enum kv_type type,
                           const int M,
                           const int N)
{
    const struct attn_part *at = s->parts + part, *next = first == 0 ? s->next + part : at;
    const size_t step = at->n_slots * KV_SIZE(type);
    const vf scale = vf_set1(s->j->scale);
    for (int h = 0; h < PARTS; h++) {
        const float *q = s->q + (size_t)(first / QB) * s->dim * QB;
        const uint8_t *k[ATTN_PARTS], *ask[ATTN_PARTS];
        vf sum[QB][ATTN_PARTS], scales[ATTN_PARTS];
        UNROLL for (int n = 0; n < N; n++)
        {
            k[n] = at[n].k + h * VL * KV_SIZE(type);
            ask[n] = next[n].k;
        }
        EACH_ROW UNROLL for (int n = 0; n < N; n++) sum[m][n] = vf_zero();
        for (uint32_t d = 0; d < s->dim;) {
            UNROLL for (int n = 0; n < N && type == KV_Q8_0; n++)
            {
                scales[n] = vf_load(at[n].k_scales + d / 32 * at[n].n_slots + h * VL);
                __builtin_prefetch(next[n].k_scales + d / 32 * next[n].n_slots);
            }
            const uint32_t stop = type == KV_Q8_0 && d + 32 < s->dim ? d + 32 : s->dim;
            for (; d < stop; d++, q += QB) {
                vf x[ATTN_PARTS];
                UNROLL for (int n = 0; n < N; n++)
                {
                    x[n] = kv_load_scaled(type, k[n], scales[n]);
                    __builtin_prefetch(ask[n]);
                    k[n] += step;
                    ask[n] += step;
                }
                EACH_ROW
                {
                    const vf y = vf_set1(q[m]);
                    UNROLL for (int n = 0; n < N; n++) sum[m][n] = vf_fma(x[n], y, sum[m][n]);
                }
            }
        }
        EACH_ROW UNROLL for (int n = 0; n < N; n++)
            vf_store(s->w + (first + m) * ATTN_TILE + (part + n) * KV_TILE + h * VL,
                     vf_mul(sum[m][n], scale));
    }
}

/* Several parts at once, so that there are enough sums to work on, and few loads a sum. */
INLINE void attn_scores(const struct attn_state *s,
                        uint32_t first,
                        struct attn_seen seen,
                        const enum kv_type type,
                        const int M)
{
    const int N = M == QB ? 2 : ATTN_PARTS;
    const uint32_t end = (seen.end + KV_TILE - 1) / KV_TILE;
    uint32_t part = seen.from / KV_TILE;
    for (; part + N <= end; part += N)
        attn_scores_of(s, first, part, type, M, N);
    for (; part < end; part++)
        attn_scores_of(s, first, part, type, M, 1);
}

/* Of VL positions of the tile from `at` on, those that are seen keep x, the others become `other`.
 */
INLINE vf attn_keep(vf x, vf other, uint32_t at, struct attn_seen seen)
{
    if (seen.end < at + VL)
        x = vf_first_n(x, other, seen.end - at);
    return seen.from > at ? vf_first_n(other, x, seen.from - at) : x;
}

/* VL scores x from position pos on, less what query i's head takes off for their distance. */
INLINE vf attn_slope(const struct attn_state *s, uint32_t i, uint32_t pos, vf x)
{
    static const float places[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const struct attn_job *j = s->j;
    const int32_t at = (int32_t)j->rows[i / j->group].pos - (int32_t)pos;
    const vf apart = vf_sub(vf_set1((float)at), vf_load(places));
    return vf_fnma(vf_set1(j->slopes[i % j->group]), vf_max(apart, vf_sub(vf_zero(), apart)), x);
}

/* e^x of x up to 0. Far below it is e^-64, nothing that a sum with 1 in it would notice; of less,
 * products with values would be subnormal, for which processors take a hundred times as long. What
 * is no number stands second, and stays none. */
INLINE vf attn_exp(vf x)
{
    return vf_exp_within(vf_max(vf_set1(-64.0f), x));
}

/* The score at vector h of the tile, as the softmax takes it. */
INLINE vf
attn_score(const struct attn_state *s, uint32_t i, uint32_t pos, uint32_t h, struct attn_seen seen)
{
    vf x = vf_load(s->w + i * ATTN_TILE + h * VL);
    if (s->j->cap > 0.0f)
        x = cap_of(x, s->j->cap);
    if (s->j->slopes)
        x = attn_slope(s, i, pos + h * VL, x);
    return attn_keep(x, vf_set1(-INFINITY), h * VL, seen);
}

/* Scores of query i with the tile at `pos` to weights, vectors first .. end - 1 of them, which hold
 * all that it sees: at least one position. What it does not see may hold anything. */
INLINE void attn_softmax_of(const struct attn_state *s,
                            uint32_t i,
                            uint32_t pos,
                            struct attn_seen seen,
                            const uint32_t first,
                            const uint32_t end)
{
    float *w = s->w + i * ATTN_TILE, *l = s->l + i * KV_TILE;
    vf top = vf_set1(-INFINITY);
    UNROLL_4 for (uint32_t h = first; h < end; h++)
    {
        const vf x = attn_score(s, i, pos, h, seen);
        vf_store(w + h * VL, x);
        top = vf_max(top, x);
    }
    const float m = s->m[i], highest = vf_hmax(top), m_new = highest > m ? highest : m;
    const vf c = attn_exp(vf_set1(m - m_new));
    vf_store_n(&s->c[i], c, 1);
    s->m[i] = m_new;
    vf sum[PARTS];
    UNROLL for (int h = 0; h < PARTS; h++) sum[h] = vf_mul(vf_load(l + h * VL), c);
    UNROLL_4 for (uint32_t h = first; h < end; h++)
    {
        vf p = attn_exp(vf_sub(vf_load(w + h * VL), vf_set1(m_new)));
        p = attn_keep(p, vf_zero(), h * VL, seen);
        vf_store(w + h * VL, p);
        sum[h % PARTS] = vf_add(sum[h % PARTS], p);
    }
    UNROLL for (int h = 0; h < PARTS; h++) vf_store(l + h * VL, sum[h]);
}

/* Of queries first .. last, all of which see the same. */
NOT_INLINE static void attn_softmax(
    const struct attn_state *s, uint32_t first, uint32_t last, uint32_t pos, struct attn_seen seen)
{
    const bool whole = seen.from == 0 && seen.end == ATTN_TILE;
    for (uint32_t i = first; whole && i <= last; i++)
        attn_softmax_of(s, i, pos, (struct attn_seen){0, ATTN_TILE}, 0, ATTN_TILE / VL);
    for (uint32_t i = first; !whole && i <= last; i++)
        attn_softmax_of(s, i, pos, seen, seen.from / VL, (seen.end + VL - 1) / VL);
}

/* acc[first + m][d..] = acc c + sum over positions seen of w v, N vectors of dims at a time, or
 * what is left of one. */
INLINE void attn_values_at(const struct attn_state *s,
                           uint32_t first,
                           struct attn_seen seen,
                           uint32_t d,
                           const enum kv_type type,
                           const int M,
                           const int N)
{
    const size_t step = s->n_value * KV_SIZE(type), n_scales = (s->n_value + 31) / 32;
    const uint32_t left = s->n_value - d;
    vf acc[QB][4];
    EACH_ROW
    {
        vf c = vf_set1(s->c[first + m]);
        UNROLL for (int i = 0; i < N; i++) acc[m][i] =
            vf_mul(vf_load(s->acc + (size_t)(first + m) * s->padded + d + i * VL), c);
    }
    const float *w = s->w + first * ATTN_TILE + seen.from, *end = w + (seen.end - seen.from);
    for (uint32_t p = seen.from; p < seen.end; p = p / KV_TILE * KV_TILE + KV_TILE) {
        const struct attn_part *at = s->parts + p / KV_TILE;
        const struct attn_part *next = first == 0 ? s->next + p / KV_TILE : at;
        const size_t begin = p % KV_TILE * step + d * KV_SIZE(type);
        const uint8_t *v = at->v + begin, *ask = next->v + begin;
        const float *scales = at->v_scales + p % KV_TILE * n_scales + d / 32;
        const float *part_end = w + (KV_TILE - p % KV_TILE);
        for (; w < (part_end < end ? part_end : end); w++, v += step, ask += step) {
            vf x[4];
            UNROLL for (int i = 0; i < N; i++)
            {
                vf scale = vf_zero();
                if (type == KV_Q8_0)
                    scale = vf_set1(scales[(d % 32 + i * VL) / 32]);
                x[i] = N == 1 && left < VL
                           ? kv_load_n(type, v, left, scale)
                           : kv_load_scaled(type, v + i * VL * KV_SIZE(type), scale);
                if (i * VL * KV_SIZE(type) % 64 == 0)
                    __builtin_prefetch(ask + i * VL * KV_SIZE(type));
            }
            scales += n_scales;
            EACH_ROW
            {
                const vf y = vf_set1(w[m * ATTN_TILE]);
                UNROLL for (int i = 0; i < N; i++) acc[m][i] = vf_fma(x[i], y, acc[m][i]);
            }
        }
    }
    EACH_ROW UNROLL for (int i = 0; i < N; i++)
        vf_store(s->acc + (size_t)(first + m) * s->padded + d + i * VL, acc[m][i]);
}

INLINE void attn_values(const struct attn_state *s,
                        uint32_t first,
                        struct attn_seen seen,
                        const enum kv_type type,
                        const int M)
{
    const int N = M == QB ? 2 : 4;
    uint32_t d = 0;
    for (; d + N * VL <= s->n_value; d += N * VL)
        attn_values_at(s, first, seen, d, type, M, N);
    for (; d < s->n_value; d += VL)
        attn_values_at(s, first, seen, d, type, M, 1);
}

/* Values that query i alone sees. */
NOT_INLINE static void attn_values_alone(const struct attn_state *s,
                                         uint32_t i,
                                         uint32_t from,
                                         uint32_t end)
{
    if (from >= end)
        return;
    const struct attn_seen seen = {from, end};
    switch (attn_read_as(s->j)) {
    case KV_F32:
        attn_values(s, i, seen, KV_F32, 1);
        break;
    case KV_F16:
        attn_values(s, i, seen, KV_F16, 1);
        break;
    case KV_BF16:
        attn_values(s, i, seen, KV_BF16, 1);
        break;
    case KV_Q8_0:
        attn_values(s, i, seen, KV_Q8_0, 1);
        break;
    }
    s->c[i] = 1.0f;
}

/* Queries first .. last meet the tile, M at a time: behind them are zeros. Rows on the diagonal,
 * and at the window's far end, see different positions: first each meets what only some of them see
 * at its beginning, then all what all of them see, then each what is left. So nobody touches a
 * value from its own future, or one that its window has passed, and everybody adds up in order of
 * position. */
INLINE void attn_batch(const struct attn_state *s,
                       uint32_t first,
                       uint32_t last,
                       uint32_t tile_pos,
                       const enum kv_type type,
                       const int M)
{
    const struct attn_seen a = attn_sees(s, first, tile_pos), z = attn_sees(s, last, tile_pos);
    const struct attn_seen any = {a.from, z.end}, all = {z.from, a.end};
    if (any.from >= any.end)
        return;
    attn_scores(s, first, any, type, M);
    if (a.from == z.from && a.end == z.end) {
        attn_softmax(s, first, last, tile_pos, all);
        attn_values(s, first, all, type, M);
        return;
    }
    const bool together = all.from < all.end;
    for (uint32_t i = first; i <= last; i++) {
        const struct attn_seen seen = attn_sees(s, i, tile_pos);
        if (seen.from < seen.end)
            attn_softmax(s, i, i, tile_pos, seen);
        attn_values_alone(s, i, seen.from, together ? all.from : seen.end);
    }
    if (!together)
        return;
    attn_values(s, first, all, type, M);
    for (uint32_t i = first; i <= last; i++) {
        s->c[i] = 1.0f;
        attn_values_alone(s, i, all.end, attn_sees(s, i, tile_pos).end);
    }
}

/* Where the part behind one of the last tile lies, the i-th: in the first tile of the KV head that
 * is next, if there is one. */
static struct attn_part attn_behind(const struct attn_state *s, uint32_t i, struct attn_part part)
{
    const uint32_t from = attn_first_pos(s->j, 0);
    const uint32_t pos = from / s->tile * s->tile + i * KV_TILE;
    return s->j->more && pos + KV_TILE > from ? attn_next_head(s->j, pos) : part;
}

/* Where the tile at `pos` lies, or its copy, as far as any query sees it, and the next. */
static void attn_find(struct attn_state *s, uint32_t pos, uint32_t last_pos, bool copies)
{
    const uint32_t from = attn_sees(s, 0, pos).from, end = attn_sees(s, s->n_query - 1, pos).end;
    for (uint32_t i = from / KV_TILE; i * KV_TILE < end; i++) {
        struct attn_part *part = &s->parts[i];
        const uint32_t first = i * KV_TILE, next = pos + s->tile + first;
        const uint32_t f = from > first ? from - first : 0;
        const uint32_t n = end - first < KV_TILE ? end - first : KV_TILE;
        *part =
            copies
                ? attn_copy(s, pos + first, f, n, s->k + first * s->dim, s->v + first * s->n_value)
                : attn_part_at(s->j, pos + first);
        s->next[i] = copies             ? *part
                     : next <= last_pos ? attn_part_at(s->j, next)
                                        : attn_behind(s, i, *part);
    }
}

INLINE void attn_tile_as(const struct attn_state *s, uint32_t pos, const enum kv_type type)
{
    uint32_t i = 0, left;
    for (; (left = s->n_query - i) > QB / 2; i += left < QB ? left : QB)
        attn_batch(s, i, i + (left < QB ? left : QB) - 1, pos, type, QB);
    if (QB == 8 && left > 2)
        attn_batch(s, i, i + left - 1, pos, type, 4);
    else if (left == 2)
        attn_batch(s, i, i + 1, pos, type, 2);
    else if (left > 0)
        attn_batch(s, i, i, pos, type, 1);
}

static void attn_tile(struct attn_state *s, uint32_t pos, uint32_t last_pos)
{
    attn_find(s, pos, last_pos, attn_copies(s->j));
    switch (attn_read_as(s->j)) {
    case KV_F32:
        attn_tile_as(s, pos, KV_F32);
        break;
    case KV_F16:
        attn_tile_as(s, pos, KV_F16);
        break;
    case KV_BF16:
        attn_tile_as(s, pos, KV_BF16);
        break;
    case KV_Q8_0:
        attn_tile_as(s, pos, KV_Q8_0);
        break;
    }
}

#include "backend/cpu/attention_range_impl.h"

#ifdef WITH_AMX
#include "backend/cpu/attention_amx_impl.h"
#endif
