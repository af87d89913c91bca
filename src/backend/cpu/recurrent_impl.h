/* Recurrent layers: convolutions over the rows of a sequence, heads whose state is a matrix, and
 * channels whose state is a vector.
 *
 * All run row by row, first to last. Vectors hold channels, or columns of a state, which have
 * nothing to do with one another; what is summed - rows of the convolution, rows of a state - is
 * summed in one order, whoever computes it and however the rows came. */

/* All rows of some channels, row by row. ring[i % (width - 1)] is the row i, counted so that those
 * before the first are rows 0 .. width - 2. */
INLINE void conv_part(const struct conv_job *j, uint32_t c, uint32_t n, const uint32_t width)
{
    float ring[MODEL_MAX_CONV_WIDTH - 1][CONV_MAX_PART];
    const uint32_t n_ring = width - 1;
    for (uint32_t i = 0; i < n_ring; i++) {
        if (j->from)
            memcpy(ring[i], j->from + i * j->stride_state + c, n * sizeof(float));
        else
            memset(ring[i], 0, n * sizeof(float));
    }
    for (uint32_t r = 0; r < j->n_rows; r++) {
        float *x = j->x + r * j->stride + c;
        for (uint32_t at = 0; at < n; at += VL) {
            const uint32_t left = n - at < VL ? n - at : VL;
            vf sum = j->bias ? vf_load_n(j->bias + c + at, left) : vf_zero();
            for (uint32_t i = 0; i < n_ring; i++)
                sum = vf_fma(vf_load_n(ring[(r + i) % n_ring] + at, left),
                             vf_load_n(j->w + i * j->stride_w + c + at, left),
                             sum);
            const vf now = vf_load_n(x + at, left);
            sum = vf_fma(now, vf_load_n(j->w + n_ring * j->stride_w + c + at, left), sum);
            vf_store_n(ring[r % n_ring] + at, now, left); /* where the oldest was */
            vf_store_n(x + at, j->gated ? silu_mul(sum, vf_set1(1.0f)) : sum, left);
        }
    }
    for (uint32_t i = 0; i < n_ring; i++)
        memcpy(j->to + i * j->stride_state + c, ring[(j->n_rows + i) % n_ring], n * sizeof(float));
}

static void run_conv(const struct conv_job *j)
{
    for (uint32_t c = 0; c < j->n_channels; c += CONV_MAX_PART) {
        const uint32_t n = j->n_channels - c < CONV_MAX_PART ? j->n_channels - c : CONV_MAX_PART;
        if (j->width == 4) /* what nearly all models have */
            conv_part(j, c, n, 4);
        else if (j->width == 3)
            conv_part(j, c, n, 3);
        else
            conv_part(j, c, n, j->width);
    }
}

/* A state lies in tiles, one behind the other: all rows of REC_TILE columns, so that a tile stays
 * in the nearest cache from one position to the next; then of half as many, if so many are left;
 * then of single columns. Sums over rows go into several chains in turn, which are then added: one
 * would wait for itself. */
enum { REC_TILE = 32, REC_CHAINS = VL == 16 ? 4 : 2 };

/* The sum of the chains. */
INLINE vf rec_fold(const vf *sum, int step)
{
    vf all = vf_add(sum[0], sum[step]);
    if (REC_CHAINS == 4)
        all = vf_add(all, vf_add(sum[2 * step], sum[3 * step]));
    return all;
}

/* f S^T k of a tile of nv vectors, as it is, with one f for all of its rows or one for each; out
 * may not be S. */
INLINE void read_tile(const float *s,
                      const float *k,
                      const float *f,
                      uint32_t n_key,
                      const bool each,
                      vf *out,
                      const int nv)
{
    vf sum[REC_CHAINS * REC_TILE / VL];
    UNROLL for (int i = 0; i < REC_CHAINS * nv; i++) sum[i] = vf_zero();
    uint32_t i = 0;
    for (; i + REC_CHAINS <= n_key; i += REC_CHAINS) {
        UNROLL for (int c = 0; c < REC_CHAINS; c++)
        {
            const vf by = vf_set1(each ? k[i + c] * f[i + c] : k[i + c]);
            UNROLL for (int v = 0; v < nv; v++) sum[c * nv + v] =
                vf_fma(vf_load(s + ((i + c) * nv + v) * VL), by, sum[c * nv + v]);
        }
    }
    for (; i < n_key; i++) {
        const vf by = vf_set1(each ? k[i] * f[i] : k[i]);
        UNROLL for (int v = 0; v < nv; v++) sum[v] =
            vf_fma(vf_load(s + (i * nv + v) * VL), by, sum[v]);
    }
    UNROLL for (int v = 0; v < nv; v++)
    {
        out[v] = rec_fold(sum + v, nv);
        if (!each)
            out[v] = vf_mul(out[v], vf_set1(f[0]));
    }
}

/* One row of a tile: to = f from + k d, added up times q. */
INLINE void move_row(
    const float *from, float *to, vf f, vf k, vf q, const vf *d, vf *sum, const int nv)
{
    UNROLL for (int v = 0; v < nv; v++)
    {
        const vf was = from ? vf_load(from + v * VL) : vf_zero();
        const vf now = vf_fma(k, d[v], vf_mul(was, f));
        vf_store(to + v * VL, now);
        sum[v] = vf_fma(now, q, sum[v]);
    }
}

INLINE void move_tile(const float *from,
                      float *to,
                      const float *k,
                      const float *q,
                      const float *f,
                      uint32_t n_key,
                      const bool each,
                      const vf *d,
                      vf *out,
                      const int nv)
{
    vf sum[REC_CHAINS * REC_TILE / VL];
    const vf by = vf_set1(f[0]);
    UNROLL for (int i = 0; i < REC_CHAINS * nv; i++) sum[i] = vf_zero();
    uint32_t i = 0;
    for (; i + REC_CHAINS <= n_key; i += REC_CHAINS) {
        UNROLL for (int c = 0; c < REC_CHAINS; c++)
        {
            const size_t at = (size_t)(i + c) * nv * VL;
            move_row(from ? from + at : NULL,
                     to + at,
                     each ? vf_set1(f[i + c]) : by,
                     vf_set1(k[i + c]),
                     vf_set1(q[i + c]),
                     d,
                     sum + c * nv,
                     nv);
        }
    }
    for (; i < n_key; i++) {
        const size_t at = (size_t)i * nv * VL;
        move_row(from ? from + at : NULL,
                 to + at,
                 each ? vf_set1(f[i]) : by,
                 vf_set1(k[i]),
                 vf_set1(q[i]),
                 d,
                 sum,
                 nv);
    }
    UNROLL for (int v = 0; v < nv; v++) out[v] = rec_fold(sum + v, nv);
}

/* A tile of nv vectors, of columns from c on, over all rows. */
INLINE void recur_tile(
    const struct recur_job *j, uint32_t c, const bool delta, const bool each, const int nv)
{
    const size_t at = (size_t)c * j->n_key;
    const float *from = j->from ? j->from + at : NULL;
    float *to = j->to + at;
    for (uint32_t r = 0; r < j->n_rows; r++, from = to) {
        const float *k = j->k + r * j->k_stride, *q = j->q + r * j->q_stride;
        const float *value = j->v + r * j->v_stride + c;
        const float *f = j->rate + r * j->rate_stride;
        const float b = j->beta[r * j->beta_stride];
        float *out = j->out + r * j->out_stride + c;
        vf d[REC_TILE / VL], read[REC_TILE / VL];
        UNROLL for (int v = 0; v < nv; v++) d[v] = vf_load(value + v * VL);
        if (delta && from) {
            read_tile(from, k, f, j->n_key, each, read, nv);
            UNROLL for (int v = 0; v < nv; v++) d[v] = vf_sub(d[v], read[v]);
        }
        UNROLL for (int v = 0; v < nv; v++) d[v] = vf_mul(d[v], vf_set1(b));
        if (from)
            move_tile(from, to, k, q, f, j->n_key, each, d, read, nv);
        else
            move_tile(NULL, to, k, q, f, j->n_key, each, d, read, nv);
        UNROLL for (int v = 0; v < nv; v++)
        {
            vf y = vf_mul(read[v], vf_set1(j->scale));
            if (!delta)
                y = vf_fma(vf_load(value + v * VL), vf_set1(j->skip), y);
            vf_store(out + v * VL, y);
        }
    }
}

/* A column by itself: few models have any. */
static void recur_column(const struct recur_job *j, uint32_t c)
{
    const size_t at = (size_t)c * j->n_key;
    const float *from = j->from ? j->from + at : NULL;
    float *to = j->to + at;
    for (uint32_t r = 0; r < j->n_rows; r++, from = to) {
        const float *k = j->k + r * j->k_stride, *q = j->q + r * j->q_stride;
        const float value = j->v[r * j->v_stride + c];
        const float *f = j->rate + r * j->rate_stride;
        const float b = j->beta[r * j->beta_stride];
        float read = 0, y = 0;
        for (uint32_t i = 0; from && j->delta && i < j->n_key; i++)
            read += from[i] * (j->each ? k[i] * f[i] : k[i]);
        const float d = (value - (j->each ? read : read * f[0])) * b;
        for (uint32_t i = 0; i < j->n_key; i++) {
            to[i] = (from ? from[i] * f[j->each ? i : 0] : 0.0f) + k[i] * d;
            y += to[i] * q[i];
        }
        j->out[r * j->out_stride + c] = y * j->scale + (j->delta ? 0.0f : value * j->skip);
    }
}

/* One row of a tile: to = f from + k v - b was, added up times q; was: what `from` has by unit. */
INLINE void move_row_apart(const float *from,
                           float *to,
                           vf f,
                           vf k,
                           vf b,
                           vf q,
                           const vf *value,
                           const vf *was,
                           vf *sum,
                           const bool first,
                           const int nv)
{
    UNROLL for (int v = 0; v < nv; v++)
    {
        vf now = vf_mul(k, value[v]);
        if (from)
            now = vf_fma(vf_load(from + v * VL), f, now);
        if (from && !first)
            now = vf_sub(now, vf_mul(b, was[v]));
        vf_store(to + v * VL, now);
        if (!first)
            sum[v] = vf_fma(now, q, sum[v]);
    }
}

/* As recur_tile, with what is taken out apart. */
INLINE void apart_tile(const struct recur_job *j, uint32_t c, const bool first, const int nv)
{
    const size_t at = (size_t)c * j->n_key;
    const float *from = j->from ? j->from + at : NULL, one = 1.0f;
    float *to = j->to + at;
    for (uint32_t r = 0; r < j->n_rows; r++, from = to) {
        const float *k = j->k + r * j->k_stride, *q = j->q + r * j->q_stride;
        const float *f = j->rate + r * j->rate_stride,
                    *b = first ? NULL : j->beta + r * j->beta_stride;
        vf value[REC_TILE / VL], was[REC_TILE / VL], sum[REC_CHAINS * REC_TILE / VL];
        UNROLL for (int v = 0; v < nv; v++)
        {
            value[v] = vf_load(j->v + r * j->v_stride + c + v * VL);
            was[v] = vf_zero();
        }
        UNROLL for (int i = 0; i < REC_CHAINS * nv; i++) sum[i] = vf_zero();
        if (from)
            read_tile(from, j->unit + r * j->k_stride, &one, j->n_key, false, was, nv);
        for (uint32_t i = 0; i < j->n_key; i++) {
            const size_t own = (size_t)i * nv * VL;
            move_row_apart(from ? from + own : NULL,
                           to + own,
                           vf_set1(f[i]),
                           vf_set1(k[i]),
                           first ? vf_zero() : vf_set1(b[i]),
                           vf_set1(q[i]),
                           value,
                           was,
                           sum + i % REC_CHAINS * nv,
                           first,
                           nv);
        }
        UNROLL for (int v = 0; v < nv; v++) vf_store(j->out + r * j->out_stride + c + v * VL,
                                                     first ? was[v] : rec_fold(sum + v, nv));
    }
}

static void apart_column(const struct recur_job *j, uint32_t c)
{
    const size_t at = (size_t)c * j->n_key;
    const float *from = j->from ? j->from + at : NULL;
    float *to = j->to + at;
    for (uint32_t r = 0; r < j->n_rows; r++, from = to) {
        const float *k = j->k + r * j->k_stride, *q = j->q + r * j->q_stride;
        const float *f = j->rate + r * j->rate_stride,
                    *b = j->first ? NULL : j->beta + r * j->beta_stride;
        const float *unit = j->unit + r * j->k_stride, value = j->v[r * j->v_stride + c];
        float was = 0, y = 0;
        for (uint32_t i = 0; from && i < j->n_key; i++)
            was += from[i] * unit[i];
        for (uint32_t i = 0; i < j->n_key; i++) {
            to[i] = (from ? from[i] * f[i] : 0.0f) + k[i] * value - (b ? b[i] * was : 0.0f);
            y += to[i] * q[i];
        }
        j->out[r * j->out_stride + c] = j->first ? was : y;
    }
}

static void run_apart(const struct recur_job *j)
{
    uint32_t c = 0;
    for (; c + REC_TILE <= j->n_value; c += REC_TILE) {
        if (j->first)
            apart_tile(j, c, true, REC_TILE / VL);
        else
            apart_tile(j, c, false, REC_TILE / VL);
    }
    if (c + REC_TILE / 2 <= j->n_value) {
        apart_tile(j, c, j->first, REC_TILE / 2 / VL);
        c += REC_TILE / 2;
    }
    for (; c < j->n_value; c++)
        apart_column(j, c);
}

static void run_recur(const struct recur_job *j)
{
    uint32_t c = 0;
    if (j->n_rows == 0) {
        if (j->from && j->from != j->to)
            memcpy(j->to, j->from, (size_t)j->n_key * j->n_value * sizeof(float));
        return;
    }
    if (j->apart) {
        run_apart(j);
        return;
    }
    for (; c + REC_TILE <= j->n_value; c += REC_TILE) {
        if (j->each)
            recur_tile(j, c, true, true, REC_TILE / VL);
        else if (j->delta)
            recur_tile(j, c, true, false, REC_TILE / VL);
        else
            recur_tile(j, c, false, false, REC_TILE / VL);
    }
    if (c + REC_TILE / 2 <= j->n_value) {
        recur_tile(j, c, j->delta, j->each, REC_TILE / 2 / VL);
        c += REC_TILE / 2;
    }
    for (; c < j->n_value; c++)
        recur_column(j, c);
}

/* A tile of n channels, over all rows: s[i] = e^(step a[i]) s[i] + k[i] step x, read times q. */
INLINE void selective_tile(const struct selective_job *j, uint32_t c, const uint32_t n)
{
    const size_t first = (size_t)c * j->n_key;
    const float *from = j->from ? j->from + first : NULL;
    float *to = j->to + first;
    for (uint32_t r = 0; r < j->n_rows; r++, from = to) {
        const float *k = j->k + r * j->k_stride, *q = j->q + r * j->q_stride;
        for (uint32_t at = 0; at < n; at += VL) {
            const uint32_t left = n - at < VL ? n - at : VL;
            const vf x = vf_load_n(j->x + r * j->x_stride + c + at, left);
            const vf step = vf_load_n(j->step + r * j->step_stride + c + at, left);
            const vf d = vf_mul(step, x);
            vf sum = vf_zero();
            for (uint32_t i = 0; i < j->n_key; i++) {
                const size_t own = (size_t)i * n + at;
                const vf f = vf_exp(vf_mul(step, vf_load_n(j->a + first + own, left)));
                const vf was = from ? vf_load_n(from + own, left) : vf_zero();
                const vf now = vf_fma(vf_set1(k[i]), d, vf_mul(was, f));
                vf_store_n(to + own, now, left);
                sum = vf_fma(now, vf_set1(q[i]), sum);
            }
            sum = vf_fma(x, vf_load_n(j->skip + c + at, left), sum);
            vf_store_n(j->out + r * j->out_stride + c + at, sum, left);
        }
    }
}

static void run_selective(const struct selective_job *j)
{
    uint32_t c = 0;
    if (j->n_rows == 0) {
        if (j->from && j->from != j->to)
            memcpy(j->to, j->from, (size_t)j->n_key * j->n_channels * sizeof(float));
        return;
    }
    for (; c + SELECTIVE_TILE <= j->n_channels; c += SELECTIVE_TILE)
        selective_tile(j, c, SELECTIVE_TILE);
    if (c < j->n_channels)
        selective_tile(j, c, j->n_channels - c);
}
