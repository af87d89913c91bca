/* Recurrent layers: convolutions over the rows of a sequence, and heads whose state is a matrix.
 *
 * Both run row by row, first to last. Vectors hold channels, or columns of a state, which have
 * nothing to do with one another; what is summed - rows of the convolution, rows of a state - is
 * summed in one order, whoever computes it and however the rows came. */

/* VL channels from c on. Their last rows stay in registers: hist[0] is the oldest. */
INLINE void conv_channels(const struct conv_job *j, uint32_t c, uint32_t n, const uint32_t width)
{
    vf hist[CONV_MAX_WIDTH], w[CONV_MAX_WIDTH];
    for (uint32_t i = 0; i + 1 < width; i++)
        hist[i] = j->from ? vf_load_n(j->from + (size_t)i * j->stride_state + c, n) : vf_zero();
    for (uint32_t i = 0; i < width; i++)
        w[i] = vf_load_n(j->w + (size_t)i * j->stride_state + c, n);
    const vf bias = j->bias ? vf_load_n(j->bias + c, n) : vf_zero();
    for (uint32_t r = 0; r < j->n_rows; r++) {
        float *x = j->x + r * j->stride + c;
        hist[width - 1] = vf_load_n(x, n);
        vf sum = bias;
        for (uint32_t i = 0; i < width; i++)
            sum = vf_fma(hist[i], w[i], sum);
        vf_store_n(x, j->gated ? silu_mul(sum, vf_set1(1.0f)) : sum, n);
        for (uint32_t i = 0; i + 1 < width; i++)
            hist[i] = hist[i + 1];
    }
    for (uint32_t i = 0; i + 1 < width; i++)
        vf_store_n(j->to + (size_t)i * j->stride_state + c, hist[i], n);
}

static void run_conv(const struct conv_job *j)
{
    for (uint32_t c = 0; c < j->n_channels; c += VL) {
        const uint32_t n = j->n_channels - c < VL ? j->n_channels - c : VL;
        if (j->width == 4) /* what nearly all models have: hist stays in registers */
            conv_channels(j, c, n, 4);
        else if (j->width == 3)
            conv_channels(j, c, n, 3);
        else
            conv_channels(j, c, n, j->width);
    }
}

/* Columns of a state that are taken at a time, as two vectors; their rows stay in the nearest cache
 * from one position to the next. Sums over rows go into REC_CHAINS in turn, which are then added:
 * one chain would wait for itself. */
enum { REC_VECTORS = 2, REC_CHAINS = 4 };

/* f S^T k, of the state as it was. */
INLINE void read_state(
    const float *s, size_t stride, const float *k, uint32_t n_key, float f, vf *out)
{
    vf sum[REC_CHAINS][REC_VECTORS];
    UNROLL for (int c = 0; c < REC_CHAINS; c++)
    {
        UNROLL for (int v = 0; v < REC_VECTORS; v++) sum[c][v] = vf_zero();
    }
    uint32_t i = 0;
    for (; i + REC_CHAINS <= n_key; i += REC_CHAINS) {
        UNROLL for (int c = 0; c < REC_CHAINS; c++)
        {
            const vf by = vf_set1(k[i + c]);
            const float *row = s + (i + c) * stride;
            UNROLL for (int v = 0; v < REC_VECTORS; v++) sum[c][v] =
                vf_fma(vf_load(row + v * VL), by, sum[c][v]);
        }
    }
    for (; i < n_key; i++) {
        UNROLL for (int v = 0; v < REC_VECTORS; v++) sum[0][v] =
            vf_fma(vf_load(s + i * stride + v * VL), vf_set1(k[i]), sum[0][v]);
    }
    const vf decay = vf_set1(f);
    UNROLL for (int v = 0; v < REC_VECTORS; v++) out[v] =
        vf_mul(vf_add(vf_add(sum[0][v], sum[1][v]), vf_add(sum[2][v], sum[3][v])), decay);
}

/* to = f from + k d, row by row; the sums of its rows times q. from NULL: zeros. */
INLINE void move_state(const float *from,
                       float *to,
                       size_t stride,
                       const float *k,
                       const float *q,
                       uint32_t n_key,
                       float f,
                       const vf *d,
                       vf *out)
{
    vf sum[REC_CHAINS][REC_VECTORS];
    UNROLL for (int c = 0; c < REC_CHAINS; c++)
    {
        UNROLL for (int v = 0; v < REC_VECTORS; v++) sum[c][v] = vf_zero();
    }
    const vf decay = vf_set1(f);
    for (uint32_t i = 0; i < n_key; i += REC_CHAINS) {
        UNROLL for (int c = 0; c < REC_CHAINS; c++)
        {
            if (i + c >= n_key)
                break;
            const vf by = vf_set1(k[i + c]), read = vf_set1(q[i + c]);
            const size_t at = (i + c) * stride;
            UNROLL for (int v = 0; v < REC_VECTORS; v++)
            {
                const vf was = from ? vf_load(from + at + v * VL) : vf_zero();
                const vf now = vf_fma(by, d[v], vf_mul(was, decay));
                vf_store(to + at + v * VL, now);
                sum[c][v] = vf_fma(now, read, sum[c][v]);
            }
        }
    }
    UNROLL for (int v = 0; v < REC_VECTORS; v++) out[v] =
        vf_add(vf_add(sum[0][v], sum[1][v]), vf_add(sum[2][v], sum[3][v]));
}

/* REC_VECTORS * VL columns from c on, over all rows. */
INLINE void recur_columns(const struct recur_job *j, uint32_t c, const bool delta)
{
    const float *from = j->from ? j->from + c : NULL;
    for (uint32_t r = 0; r < j->n_rows; r++) {
        const float *k = j->k + r * j->stride, *q = j->q + r * j->stride;
        const float *value = j->v + r * j->stride + c;
        const float f = j->rate[r * j->rate_stride], b = j->beta[r * j->rate_stride];
        float *to = j->to + c, *out = j->out + r * j->out_stride + c;
        vf d[REC_VECTORS], read[REC_VECTORS];
        UNROLL for (int v = 0; v < REC_VECTORS; v++) d[v] = vf_load(value + v * VL);
        if (delta) {
            UNROLL for (int v = 0; v < REC_VECTORS; v++) read[v] = vf_zero();
            if (from)
                read_state(from, j->n_value, k, j->n_key, f, read);
            UNROLL for (int v = 0; v < REC_VECTORS; v++) d[v] = vf_sub(d[v], read[v]);
        }
        UNROLL for (int v = 0; v < REC_VECTORS; v++) d[v] = vf_mul(d[v], vf_set1(b));
        move_state(from, to, j->n_value, k, q, j->n_key, f, d, read);
        UNROLL for (int v = 0; v < REC_VECTORS; v++)
        {
            vf y = vf_mul(read[v], vf_set1(j->scale));
            if (!delta)
                y = vf_fma(vf_load(value + v * VL), vf_set1(j->skip), y);
            vf_store(out + v * VL, y);
        }
        from = to;
    }
}

/* As above for one column, where fewer than two vectors are left; in C, since these are few. */
static void recur_column(const struct recur_job *j, uint32_t c)
{
    const float *from = j->from ? j->from + c : NULL;
    float *to = j->to + c;
    for (uint32_t r = 0; r < j->n_rows; r++, from = to) {
        const float *k = j->k + r * j->stride, *q = j->q + r * j->stride;
        const float value = j->v[r * j->stride + c];
        const float f = j->rate[r * j->rate_stride], b = j->beta[r * j->rate_stride];
        float read = 0, y = 0;
        for (uint32_t i = 0; from && j->delta && i < j->n_key; i++)
            read += from[(size_t)i * j->n_value] * k[i];
        const float d = (value - read * f) * b;
        for (uint32_t i = 0; i < j->n_key; i++) {
            const size_t at = (size_t)i * j->n_value;
            to[at] = (from ? from[at] * f : 0.0f) + k[i] * d;
            y += to[at] * q[i];
        }
        j->out[r * j->out_stride + c] = y * j->scale + (j->delta ? 0.0f : value * j->skip);
    }
}

static void run_recur(const struct recur_job *j)
{
    uint32_t c = 0;
    if (j->n_rows == 0) {
        if (j->from && j->from != j->to)
            memcpy(j->to, j->from, (size_t)j->n_key * j->n_value * sizeof(float));
        return;
    }
    for (; c + REC_VECTORS * VL <= j->n_value; c += REC_VECTORS * VL) {
        if (j->delta)
            recur_columns(j, c, true);
        else
            recur_columns(j, c, false);
    }
    for (; c < j->n_value; c++)
        recur_column(j, c);
}
