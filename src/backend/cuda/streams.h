/* Models of several residual streams (model.h: OP_MATCH to OP_SPREAD), and gates of which only the
 * largest values are kept (OP_SPARSE).
 *
 * Rows of streams hold n_part of n values each; of OP_PREDICT, OP_CORRECT and OP_SPREAD the first,
 * which layers compute, lies last. Thread, errors and oracle as in rows.h. */
#ifndef WEIR_BACKEND_CUDA_STREAMS_H
#define WEIR_BACKEND_CUDA_STREAMS_H

#include "backend/cuda/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MOST_STREAMS = 8 }; /* model/hparams.c */

struct cuda_streams {
    struct cuda_buf in, coefs, out;
    uint32_t n_part, n; /* PREDICT, CORRECT, SPREAD: at most CUDA_MOST_STREAMS */
    float scale;        /* FOLD */
};
/* Each part of out times what makes its magnitude that of in [n]. */
void cuda_streams_match(const struct cuda_at *at, const struct cuda_streams *op);
/* out [n] = (out + the sum of the parts of in) * scale. */
void cuda_streams_fold(const struct cuda_at *at, const struct cuda_streams *op);
/* Stream j of out += sum over k of coefs[j][k] * stream k, of what they were. */
void cuda_streams_predict(const struct cuda_at *at, const struct cuda_streams *op);
/* Stream j of out += (in [n] - the first) * (1 + coefs[j]). */
void cuda_streams_correct(const struct cuda_at *at, const struct cuda_streams *op);
/* All streams of out but the first += in [n]. */
void cuda_streams_spread(const struct cuda_at *at, const struct cuda_streams *op);

/* In place: max(x - mean - scale * deviation, 0), the deviation that of these n. */
void cuda_sparse(const struct cuda_at *at, struct cuda_buf buf, uint32_t n, float scale);

#ifdef __cplusplus
}
#endif

#endif
