/* Recurrent layers: convolutions over the rows of a sequence, heads whose state is a matrix, and
 * channels whose state is a vector.
 *
 *      rows     5 of block 3 | block 4 | 2 of block 5
 *      state    from --------> kept -------> to           (kept: the step names one for block 4)
 *
 * A launch reads each sequence's state once, takes it through the sequence's rows in registers, and
 * writes it where the step says (cuda_seq). The one it begins with is only read, unless it is
 * where the last one goes, too; with a sequence's first position it is zeros. Thread and errors as
 * in rows.h. Oracle: tests/oracle/recurrent.c. */
#ifndef WEIR_BACKEND_CUDA_RECURRENT_H
#define WEIR_BACKEND_CUDA_RECURRENT_H

#include "backend/cuda/rows.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The states of one layer: state i begins at base + i * floats. It has the last width - 1 rows of
 * the convolution's channels, the oldest first, then from `heads` on each head's matrix, column
 * after column of n_key values. */
struct cuda_states {
    float *base;
    size_t floats, heads;
};

/* In place: x[r][c] = sum over i of w[c][i] x[r - width + 1 + i][c] (+ bias[c]), then silu if
 * gated; rows before the first are the state's. width: 2 .. MODEL_MAX_CONV_WIDTH. */
struct cuda_conv {
    struct cuda_buf x;
    struct cuda_states states;
    const float *w;    /* [n][width] */
    const float *bias; /* [n] or NULL */
    uint32_t n, width;
    int gated;
    uint32_t first, step; /* of x and of a state's rows the first of the n; and values of such a
                           * row; 0: n */
};
void cuda_conv(const struct cuda_at *at, const struct cuda_conv *op);

/* OP_RATES: rate = e^(s a) with s = softplus(x + bias), beta = sigmoid(y) with delta, else s. x is
 * rate, y beta, or with `per` a row of `in` has y of so many heads, then their x, and so on. */
struct cuda_rates {
    struct cuda_buf in, rate, beta;
    const float *a, *bias; /* [n_head] */
    uint32_t n_head, per;
    int delta;
};
void cuda_rates(const struct cuda_at *at, const struct cuda_rates *op);

/* OP_RECUR. A row of mix has q and k of all groups, then v with delta; else v, k and q. With each,
 * which goes with delta, a row of rate has n_key values of each head. With apart, which goes with
 * both, so have rows of beta, of mix, which is q, and of k, v and unit; with first, which goes with
 * all, nothing is taken out, and what unit reads is what comes out. With fixed, which goes with
 * none, a row of mix has q, k and v of each head, and rate and beta, of no buffer, have strides of
 * 0. */
struct cuda_recur {
    struct cuda_buf mix, rate, beta, out;
    struct cuda_buf k, v, unit;
    struct cuda_states states;
    const float *skip;                        /* [n_head] or NULL */
    const float *fixed;                       /* rates, then betas: [2][n_head] or NULL */
    uint32_t n_head, n_group, n_key, n_value; /* n_key: at most 1024 */
    float scale;                              /* of what is read */
    int delta, each, apart, first, tiled;
};
void cuda_recur(const struct cuda_at *at, const struct cuda_recur *op);

/* OP_RECUR of RECUR_SELECTIVE: channels of the layer's n, each a column of n_key values. */
struct cuda_selective {
    struct cuda_buf x, step, k, q, out;
    struct cuda_states states;
    const float *a;    /* [n][n_key] */
    const float *skip; /* [n] */
    uint32_t n, n_key; /* n_key: at most 256 */
};
void cuda_selective(const struct cuda_at *at, const struct cuda_selective *op);

#ifdef __cplusplus
}
#endif

#endif
