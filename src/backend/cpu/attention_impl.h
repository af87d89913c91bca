/* Attention of a few rows over the paged context of their sequence, one KV head at a time.
 *
 * Online softmax (Milakov and Gimelshein 2018; Dao 2022) over tiles of 16 positions aligned to the
 * absolute position, so the tiles, and with them the bits, do not depend on how a prompt was cut.
 * All query heads that share the KV head, of all rows of the item, meet a tile together: it is
 * brought to f32 once. A query's own arithmetic is the same in any company:
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

struct attn_state {
    const struct attn_job *j;
    uint32_t dim;        /* head_dim */
    uint32_t n_value;    /* of V: head_dim or latent, */
    uint32_t padded;     /* to a multiple of 16 */
    uint32_t n_query;    /* rows x heads, row-major */
    float *q;            /* [n_query / QB][dim][QB] */
    float *m;            /* [n_query] of the range: its part, */
    float *sum;          /* [n_query] at its end, */
    float *acc;          /* [n_query][padded] */
    float *k;            /* [dim][16] of the tile */
    float *v;            /* [16][padded] of the tile */
    float *w;            /* [n_query][16] scores, then weights, of the tile */
    float *l;            /* [n_query][16] */
    float *c;            /* [n_query] */
    const uint8_t *next; /* the block after the one at work, not asked for yet; NULL: none */
    size_t ask;          /* bytes of it that two dims ask for, a multiple of 64 */
};

/* The arrays of a part. */
static void attn_into(struct attn_state *s, float *part)
{
    s->m = part;
    s->sum = part + ATTN_QUERIES;
    s->acc = part + 2 * ATTN_QUERIES;
}

static void attn_begin(struct attn_state *s, const struct attn_job *j)
{
    s->j = j;
    s->dim = j->kv->head_dim;
    s->n_value = j->kv->latent ? j->kv->latent : s->dim;
    s->padded = (s->n_value + 15) / 16 * 16;
    s->n_query = j->n_rows * j->group;
    s->ask = (2 * j->kv->head_bytes / s->dim + 63) / 64 * 64;
    const size_t padded = (s->dim + 15) / 16 * 16;
    s->q = j->scratch;
    s->k = s->q + ATTN_QUERIES * padded;
    s->v = s->k + KV_TILE * padded;
    s->w = s->v + (size_t)KV_TILE * s->padded;
    s->l = s->w + ATTN_QUERIES * KV_TILE;
    s->c = s->l + ATTN_QUERIES * KV_TILE;
}

/* The scratch as attn_range wants it: V's padding zero, queries packed. */
static void attn_pack(struct attn_state *s)
{
    const struct attn_job *j = s->j;
    memset(s->q, 0, sizeof(float) * ATTN_QUERIES * ((s->dim + 15) / 16 * 16));
    memset(s->v, 0, sizeof(float) * KV_TILE * s->padded);
    for (uint32_t i = 0; i < s->n_query; i++) {
        const float *q = j->q + i / j->group * j->q_stride + (size_t)(i % j->group) * s->dim;
        float *to = s->q + (size_t)(i / QB) * s->dim * QB + i % QB;
        for (uint32_t d = 0; d < s->dim; d++)
            to[(size_t)d * QB] = q[d];
    }
}

/* Positions from tile_pos on that query i no longer sees, for its window has passed them: 0..16. */
INLINE uint32_t attn_hidden(const struct attn_state *s, uint32_t i, uint32_t tile_pos)
{
    const uint32_t first = attn_first_pos(s->j, i / s->j->group);
    return first <= tile_pos ? 0 : first - tile_pos < KV_TILE ? first - tile_pos : KV_TILE;
}

INLINE const uint8_t *attn_block(const struct attn_job *j, uint32_t pos)
{
    return j->base + j->blocks[pos / j->kv->block_tokens] * j->kv->block_bytes +
           j->head_kv * j->kv->head_bytes;
}

/* 16 (or VL) values of one dim of K, at adjacent positions. */
INLINE vf kv_load(enum kv_type type, const uint8_t *p, size_t i)
{
    switch (type) {
    case KV_F32:
        return vf_load((const float *)p + i);
    case KV_F16:
        return vf_load_f16((const uint16_t *)p + i);
    case KV_BF16:
        return vf_load_bf16((const uint16_t *)p + i);
    default:
        return vf_load_i8((const int8_t *)p + i);
    }
}

INLINE float kv_get(enum kv_type type, const uint8_t *p, size_t i)
{
    switch (type) {
    case KV_F32:
        return ((const float *)p)[i];
    case KV_F16:
        return f16_to_f32(((const uint16_t *)p)[i]);
    case KV_BF16:
        return bf16_to_f32(((const uint16_t *)p)[i]);
    default:
        return (float)((const int8_t *)p)[i];
    }
}

/* K of a tile that lies in one block. */
INLINE void fetch_k_of(const struct attn_state *s,
                       const uint8_t *k,
                       uint32_t slot,
                       enum kv_type type)
{
    const uint32_t n_slots = s->j->kv->block_tokens;
    const float *scales = (const float *)(k + (size_t)s->dim * n_slots);
    for (uint32_t d = 0; d < s->dim; d++) {
        for (int h = 0; h < PARTS; h++) {
            vf x = kv_load(type, k, (size_t)d * n_slots + slot + h * VL);
            if (type == KV_Q8_0)
                x = vf_mul(x, vf_load(scales + (size_t)(d / 32) * n_slots + slot + h * VL));
            vf_store(s->k + d * KV_TILE + h * VL, x);
        }
    }
}

/* K of a tile that crosses blocks: one position after the other. */
static void fetch_k_slowly(const struct attn_state *s, uint32_t pos, uint32_t from, uint32_t n)
{
    const struct kv_layout *kv = s->j->kv;
    for (uint32_t i = from; i < n; i++) {
        const uint8_t *k = attn_block(s->j, pos + i);
        const uint32_t slot = (pos + i) % kv->block_tokens;
        const float *scales = (const float *)(k + (size_t)s->dim * kv->block_tokens);
        for (uint32_t d = 0; d < s->dim; d++) {
            float x = kv_get(kv->type, k, (size_t)d * kv->block_tokens + slot);
            if (kv->type == KV_Q8_0)
                x *= scales[(size_t)(d / 32) * kv->block_tokens + slot];
            s->k[d * KV_TILE + i] = x;
        }
    }
}

/* Of the tile's positions at least from .. n - 1; others may be of blocks that are gone. */
static void fetch_k(const struct attn_state *s, uint32_t pos, uint32_t from, uint32_t n)
{
    const struct kv_layout *kv = s->j->kv;
    if (kv->block_tokens % KV_TILE != 0) {
        fetch_k_slowly(s, pos, from, n);
        return;
    }
    const uint8_t *k = attn_block(s->j, pos);
    const uint32_t slot = pos % kv->block_tokens;
    switch (kv->type) {
    case KV_F32:
        fetch_k_of(s, k, slot, KV_F32);
        break;
    case KV_F16:
        fetch_k_of(s, k, slot, KV_F16);
        break;
    case KV_BF16:
        fetch_k_of(s, k, slot, KV_BF16);
        break;
    case KV_Q8_0:
        fetch_k_of(s, k, slot, KV_Q8_0);
        break;
    }
}

/* V of one position; head_dim is a multiple of 8 but maybe not of VL. */
INLINE void fetch_v_of(
    const struct attn_state *s, const uint8_t *v, uint32_t slot, float *to, enum kv_type type)
{
    const uint32_t dim = s->dim, n_scales = (dim + 31) / 32;
    const float *scales = (const float *)(v + (size_t)dim * s->j->kv->block_tokens);
    const size_t at = (size_t)slot * dim;
    uint32_t d = 0;
    for (; d + VL <= dim; d += VL) {
        vf x = kv_load(type, v, at + d);
        if (type == KV_Q8_0)
            x = vf_mul(x, vf_set1(scales[slot * n_scales + d / 32]));
        vf_store(to + d, x);
    }
    for (; d < dim; d++) {
        float x = kv_get(type, v, at + d);
        to[d] = type == KV_Q8_0 ? x * scales[slot * n_scales + d / 32] : x;
    }
}

/* V that is the first part of K, which the tile has already. */
static void fetch_v_of_k(const struct attn_state *s, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++) {
        for (uint32_t d = 0; d < s->n_value; d++)
            s->v[(size_t)i * s->padded + d] = s->k[(size_t)d * KV_TILE + i];
    }
}

static void fetch_v(const struct attn_state *s, uint32_t pos, uint32_t from, uint32_t n)
{
    const struct kv_layout *kv = s->j->kv;
    if (kv->latent) {
        fetch_v_of_k(s, from, n);
        return;
    }
    for (uint32_t i = from; i < n; i++) {
        const uint8_t *v = attn_block(s->j, pos + i) + kv->half_bytes;
        const uint32_t slot = (pos + i) % kv->block_tokens;
        float *to = s->v + i * s->padded;
        switch (kv->type) {
        case KV_F32:
            fetch_v_of(s, v, slot, to, KV_F32);
            break;
        case KV_F16:
            fetch_v_of(s, v, slot, to, KV_F16);
            break;
        case KV_BF16:
            fetch_v_of(s, v, slot, to, KV_BF16);
            break;
        case KV_Q8_0:
            fetch_v_of(s, v, slot, to, KV_Q8_0);
            break;
        }
    }
}

/* Blocks lie anywhere in memory, so no hardware foresees the next one. It is asked for evenly while
 * the first queries' scores are computed: a burst would fill the buffers that every load needs. */
INLINE void attn_ask(const struct attn_state *s, uint32_t d)
{
    const uint8_t *at = s->next + d / 2 * s->ask;
    for (size_t i = 0; i < s->ask; i += 64)
        __builtin_prefetch(at + i);
}

/* w[first + m][0..16] = scale * q . k, even and odd dims summed apart. */
INLINE void attn_scores(const struct attn_state *s, uint32_t first, const int M)
{
    const float *queries = s->q + (size_t)(first / QB) * s->dim * QB;
    const vf scale = vf_set1(s->j->scale);
    for (int h = 0; h < PARTS; h++) {
        vf even[QB], odd[QB];
        EACH_ROW even[m] = odd[m] = vf_zero();
        const float *k = s->k + h * VL, *q = queries;
        for (uint32_t d = 0; d < s->dim; d += 2, k += 2 * KV_TILE, q += 2 * QB) {
            if (first == 0 && h == 0 && s->next)
                attn_ask(s, d);
            vf k0 = vf_load(k), k1 = vf_load(k + KV_TILE);
            EACH_ROW even[m] = vf_fma(k0, vf_set1(q[m]), even[m]);
            EACH_ROW odd[m] = vf_fma(k1, vf_set1(q[QB + m]), odd[m]);
        }
        EACH_ROW vf_store(s->w + (first + m) * KV_TILE + h * VL,
                          vf_mul(vf_add(even[m], odd[m]), scale));
    }
}

/* Lanes from .. n - 1 of part h of a tile keep x, the others become `other`. */
INLINE vf attn_keep(vf x, vf other, int h, uint32_t from, uint32_t n)
{
    const uint32_t before = (uint32_t)h * VL;
    const uint32_t seen = n <= before ? 0 : n - before > VL ? VL : n - before;
    const uint32_t gone = from <= before ? 0 : from - before > VL ? VL : from - before;
    x = vf_first_n(x, other, seen);
    return from ? vf_first_n(other, x, gone) : x;
}

/* Scores x of part h of the tile at `pos`, less what query i's head takes off for their distance.
 */
INLINE vf attn_slope(const struct attn_state *s, uint32_t i, uint32_t pos, int h, vf x)
{
    static const float places[KV_TILE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const struct attn_job *j = s->j;
    const int32_t at = (int32_t)(j->first_pos + i / j->group) - (int32_t)pos;
    const vf apart = vf_sub(vf_set1((float)at), vf_load(places + h * VL));
    return vf_fnma(vf_set1(j->slopes[i % j->group]), vf_max(apart, vf_sub(vf_zero(), apart)), x);
}

/* Scores of query i with the tile at `pos` to weights; it sees positions from .. n - 1 of that, at
 * least one. */
INLINE void attn_softmax(
    const struct attn_state *s, uint32_t i, uint32_t pos, uint32_t from, uint32_t n)
{
    float *w = s->w + i * KV_TILE, *l = s->l + i * KV_TILE;
    vf x[PARTS], top = vf_set1(-INFINITY);
    for (int h = 0; h < PARTS; h++) {
        x[h] = vf_load(w + h * VL);
        if (s->j->cap > 0.0f)
            x[h] = cap_of(x[h], s->j->cap);
        if (s->j->slopes)
            x[h] = attn_slope(s, i, pos, h, x[h]);
        x[h] = attn_keep(x[h], vf_set1(-INFINITY), h, from, n);
        top = vf_max(top, x[h]);
    }
    float m = s->m[i], m_new = vf_hmax(top);
    m_new = m_new > m ? m_new : m;
    vf c = vf_set1(1.0f);
    if (m_new != m)
        c = vf_exp(vf_set1(m - m_new));
    vf_store_n(&s->c[i], c, 1);
    s->m[i] = m_new;
    for (int h = 0; h < PARTS; h++) {
        vf p = attn_keep(vf_exp(vf_sub(x[h], vf_set1(m_new))), vf_zero(), h, from, n);
        vf_store(w + h * VL, p);
        vf_store(l + h * VL, vf_fma(vf_load(l + h * VL), c, p));
    }
}

/* acc[first + m][d..] = acc c + sum over positions from .. n - 1 of w v, N vectors of dims at a
 * time. */
INLINE void attn_values_at(const struct attn_state *s,
                           uint32_t first,
                           uint32_t from,
                           uint32_t n,
                           uint32_t d,
                           const int M,
                           const int N)
{
    vf acc[QB][4];
    EACH_ROW
    {
        vf c = vf_set1(s->c[first + m]);
        UNROLL for (int i = 0; i < N; i++) acc[m][i] =
            vf_mul(vf_load(s->acc + (size_t)(first + m) * s->padded + d + i * VL), c);
    }
    const float *w = s->w + first * KV_TILE, *end = w + n;
    const float *values = s->v + d + (size_t)from * s->padded;
    w += from;
    for (; w < end; w++, values += s->padded) {
        vf v[4];
        UNROLL for (int i = 0; i < N; i++) v[i] = vf_load(values + i * VL);
        EACH_ROW
        {
            vf weight = vf_set1(w[m * KV_TILE]);
            UNROLL for (int i = 0; i < N; i++) acc[m][i] = vf_fma(weight, v[i], acc[m][i]);
        }
    }
    EACH_ROW UNROLL for (int i = 0; i < N; i++)
        vf_store(s->acc + (size_t)(first + m) * s->padded + d + i * VL, acc[m][i]);
}

INLINE void attn_values(
    const struct attn_state *s, uint32_t first, uint32_t from, uint32_t n, const int M, const int N)
{
    uint32_t d = 0;
    for (; d + N * VL <= s->padded; d += N * VL)
        attn_values_at(s, first, from, n, d, M, N);
    for (; d < s->padded; d += VL)
        attn_values_at(s, first, from, n, d, M, 1);
}

/* Positions of the tile that query i may see: 0..16. */
INLINE uint32_t attn_visible(const struct attn_state *s, uint32_t i, uint32_t tile_pos)
{
    const uint32_t end = attn_end_pos(s->j, i / s->j->group);
    return end <= tile_pos ? 0 : end - tile_pos < KV_TILE ? end - tile_pos : KV_TILE;
}

/* Queries first .. first + M - 1 meet the tile. Rows on the diagonal, and at the window's far end,
 * see different positions; those go one by one, so that nobody touches a value from its own future,
 * or one that its window has passed. */
INLINE void attn_batch(const struct attn_state *s, uint32_t first, uint32_t tile_pos, const int M)
{
    const uint32_t n_first = attn_visible(s, first, tile_pos);
    const uint32_t n_last = attn_visible(s, first + M - 1, tile_pos);
    const uint32_t from_first = attn_hidden(s, first, tile_pos);
    const bool same = n_first == n_last && from_first == attn_hidden(s, first + M - 1, tile_pos);
    if (n_last == 0 || from_first == KV_TILE)
        return;
    attn_scores(s, first, M);
    for (uint32_t i = first; i < first + M; i++) {
        const uint32_t n = attn_visible(s, i, tile_pos), from = attn_hidden(s, i, tile_pos);
        if (from >= n)
            continue;
        attn_softmax(s, i, tile_pos, from, n);
        if (!same)
            attn_values(s, i, from, n, 1, 4);
    }
    if (same)
        attn_values(s, first, from_first, n_last, M, M > 2 ? 2 : 4);
}

static void attn_tile(struct attn_state *s, uint32_t pos, uint32_t last_pos)
{
    const uint32_t n_slots = s->j->kv->block_tokens, next = pos / n_slots * n_slots + n_slots;
    const bool first_of_block = pos % n_slots < KV_TILE;
    s->next = first_of_block && next <= last_pos ? attn_block(s->j, next) : NULL;
    const uint32_t n = attn_visible(s, s->n_query - 1, pos), from = attn_hidden(s, 0, pos);
    fetch_k(s, pos, from, n);
    fetch_v(s, pos, from, n);
    uint32_t i = 0;
    for (; i + QB <= s->n_query; i += QB)
        attn_batch(s, i, pos, QB);
    switch (s->n_query - i) {
    case 1:
        attn_batch(s, i, pos, 1);
        break;
    case 2:
        attn_batch(s, i, pos, 2);
        break;
    case 3:
        attn_batch(s, i, pos, 3);
        break;
#if QB == 8
    case 4:
        attn_batch(s, i, pos, 4);
        break;
    case 5:
        attn_batch(s, i, pos, 5);
        break;
    case 6:
        attn_batch(s, i, pos, 6);
        break;
    case 7:
        attn_batch(s, i, pos, 7);
        break;
#endif
    }
}

/* The part of one range; queries that see none of it have m = -inf. */
static void attn_range(struct attn_state *s, uint32_t range, float *part)
{
    const uint32_t last_pos = attn_end(s->j) - 1, begin = range * ATTN_RANGE;
    const uint32_t last = last_pos - begin < ATTN_RANGE ? last_pos : begin + ATTN_RANGE - 1;
    const uint32_t seen = attn_first_pos(s->j, 0) / KV_TILE * KV_TILE;
    const uint32_t first = seen > begin ? seen : begin;
    attn_into(s, part);
    memset(s->acc, 0, sizeof(float) * s->n_query * s->padded);
    memset(s->l, 0, sizeof(float) * s->n_query * KV_TILE);
    for (uint32_t i = 0; i < s->n_query; i++)
        s->m[i] = -INFINITY;
    for (uint32_t pos = first; pos <= last; pos += KV_TILE)
        attn_tile(s, pos, last_pos);
    for (uint32_t i = 0; i < s->n_query; i++) {
        vf l = vf_load(s->l + i * KV_TILE);
        for (int h = 1; h < PARTS; h++)
            l = vf_add(l, vf_load(s->l + i * KV_TILE + h * VL));
        s->sum[i] = vf_sum(l);
    }
}

/* total = total and the part after it. */
static void attn_fold(const struct attn_state *s, float *total, const float *part)
{
    const float *acc = part + 2 * ATTN_QUERIES;
    float *all = total + 2 * ATTN_QUERIES;
    for (uint32_t i = 0; i < s->n_query; i++) {
        const float m = part[i], before = total[i], top = m > before ? m : before;
        if (m == -INFINITY)
            continue;
        const vf old = vf_exp(vf_set1(before - top)), new = vf_exp(vf_set1(m - top));
        const vf sum = vf_set1(total[ATTN_QUERIES + i]), more = vf_set1(part[ATTN_QUERIES + i]);
        vf_store_n(&total[ATTN_QUERIES + i], vf_fma(more, new, vf_mul(sum, old)), 1);
        total[i] = top;
        for (uint32_t d = i * s->padded; d < (i + 1) * s->padded; d += VL)
            vf_store(all + d, vf_fma(vf_load(acc + d), new, vf_mul(vf_load(all + d), old)));
    }
}

/* 1 / (the sum and the sink's part of it), both with m as the largest score, or the sink's own. */
INLINE vf attn_with_sink(float m, float sum, float sink)
{
    const float top = sink > m ? sink : m;
    const vf old = vf_exp(vf_set1(m - top)), more = vf_exp(vf_set1(sink - top));
    return vf_div(old, vf_fma(vf_set1(sum), old, more));
}

static void attn_put(const struct attn_state *s, const float *total)
{
    const struct attn_job *j = s->j;
    for (uint32_t i = 0; i < s->n_query; i++) {
        vf inverse = vf_set1(1.0f / total[ATTN_QUERIES + i]);
        if (j->sinks)
            inverse = attn_with_sink(total[i], total[ATTN_QUERIES + i], j->sinks[i % j->group]);
        float *out = j->out + i / j->group * j->out_stride + (size_t)(i % j->group) * s->n_value;
        const float *acc = total + 2 * ATTN_QUERIES + (size_t)i * s->padded;
        for (uint32_t d = 0; d < s->n_value; d += VL) {
            vf x = vf_mul(vf_load(acc + d), inverse);
            vf_store_n(out + d, x, s->n_value - d < VL ? s->n_value - d : VL);
        }
    }
}

static void run_attend(const struct attn_job *j)
{
    struct attn_state s;
    attn_begin(&s, j);
    attn_pack(&s);
    float *total = s.c + ATTN_QUERIES;
    float *part = total + attn_part_floats(s.dim);
    uint32_t r = attn_first_pos(j, 0) / ATTN_RANGE;
    attn_range(&s, r++, total);
    for (; r * ATTN_RANGE < attn_end(j); r++) {
        attn_range(&s, r, part);
        attn_fold(&s, total, part);
    }
    attn_put(&s, total);
}

static void run_attend_part(const struct attn_job *j, uint32_t range, float *part)
{
    struct attn_state s;
    attn_begin(&s, j);
    attn_pack(&s);
    attn_range(&s, range, part);
}

static void run_attend_merge(const struct attn_job *j, const float *parts, uint32_t n_parts)
{
    struct attn_state s;
    attn_begin(&s, j);
    float *total = s.c + ATTN_QUERIES;
    const size_t n = attn_part_floats(s.dim);
    memcpy(total, parts, n * sizeof *total);
    for (uint32_t r = 1; r < n_parts; r++)
        attn_fold(&s, total, parts + r * n);
    attn_put(&s, total);
}

/* 32 (or the head's last) values to int8 with one scale; to[i * stride]. */
static float kv_quantise(const float *x, uint32_t n, int8_t *to, size_t stride)
{
    float amax = 0;
    for (uint32_t i = 0; i < n; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    if (!(amax > 1e-30f)) {
        for (uint32_t i = 0; i < n; i++)
            to[i * stride] = 0;
        return 0;
    }
    const float inverse = 127.0f / amax;
    for (uint32_t i = 0; i < n; i++)
        to[i * stride] = (int8_t)lrintf(x[i] * inverse);
    return amax / 127.0f;
}

static void kv_store_q8(
    const struct kv_layout *kv, uint8_t *head, uint32_t slot, const float *k, const float *v)
{
    const uint32_t dim = kv->head_dim, n_slots = kv->block_tokens, n_scales = (dim + 31) / 32;
    float *k_scales = (float *)(head + (size_t)dim * n_slots);
    float *v_scales = (float *)(head + kv->half_bytes + (size_t)dim * n_slots);
    for (uint32_t d = 0; d < dim; d += 32) {
        const uint32_t n = dim - d < 32 ? dim - d : 32;
        int8_t *k_to = (int8_t *)head + (size_t)d * n_slots + slot;
        k_scales[(size_t)(d / 32) * n_slots + slot] = kv_quantise(k + d, n, k_to, n_slots);
        if (kv->latent)
            continue;
        int8_t *v_to = (int8_t *)head + kv->half_bytes + (size_t)slot * dim + d;
        v_scales[(size_t)slot * n_scales + d / 32] = kv_quantise(v + d, n, v_to, 1);
    }
}

static void to_half(enum kv_type type, const float *x, uint16_t *to, uint32_t n)
{
    if (type == KV_BF16) {
        for (uint32_t i = 0; i < n; i++)
            to[i] = f32_to_bf16(x[i]);
        return;
    }
    uint32_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store_f16(to + i, vf_load(x + i));
    for (; i < n; i++)
        to[i] = f32_to_f16(x[i]);
}

static void run_kv_store(
    const struct kv_layout *kv, uint8_t *head, uint32_t slot, const float *k, const float *v)
{
    const uint32_t dim = kv->head_dim;
    uint8_t *value = head + kv->half_bytes;
    if (kv->type == KV_Q8_0) {
        kv_store_q8(kv, head, slot, k, v);
    } else if (kv->type == KV_F32) {
        for (uint32_t d = 0; d < dim; d++)
            ((float *)head)[(size_t)d * kv->block_tokens + slot] = k[d];
        if (!kv->latent)
            memcpy((float *)value + (size_t)slot * dim, v, dim * sizeof *v);
    } else {
        uint16_t half[MAX_HEAD_DIM];
        to_half(kv->type, k, half, dim);
        for (uint32_t d = 0; d < dim; d++)
            ((uint16_t *)head)[(size_t)d * kv->block_tokens + slot] = half[d];
        if (!kv->latent)
            to_half(kv->type, v, (uint16_t *)value + (size_t)slot * dim, dim);
    }
}
