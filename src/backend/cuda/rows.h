/* What is done to rows of activations one by one: norms, gates, sums.
 *
 * One launch an op; several of a row in one: rows_pack.h. Grids come from bounds; rows beyond the
 * step's counts are left alone. Thread: the engine's. Errors: those of the launch, by
 * cudaGetLastError at the end of the walk. Oracle: tests/oracle/oracle.c and rows_impl.h. */
#ifndef WEIR_BACKEND_CUDA_ROWS_H
#define WEIR_BACKEND_CUDA_ROWS_H

#include "backend/cuda/gpu.h"
#include "backend/cuda/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a launch belongs. */
struct cuda_at {
    struct cuda_step step;
    struct cuda_bounds bounds;
    enum cuda_rows rows;
    uint32_t block_shared; /* bytes that a block may have (gpu.h); 0: the least */
    uint32_t processors;   /* of the device; 0: as of a large one */
    int wgmma;             /* the device has it, with mma's bits (wgmma_check.c) */
    cudaStream_t stream;
};
/* How many rows such a launch is made for. */
static inline uint32_t cuda_rows_bound(const struct cuda_at *at)
{
    return at->rows == CUDA_ROWS_ALL      ? at->bounds.rows
           : at->rows == CUDA_ROWS_LOGITS ? at->bounds.logit_rows
                                          : at->bounds.hidden_rows;
}

/* out[r] = in[r] / rms(in[r]) * size * w; heads > 1: each of so many heads of n by itself, with one
 * w, or where w_step is not 0 with w + w_step of the next. gather: in is read at the rows that
 * `rows` names, out written at 0, 1, ...; else both at the row. w NULL: a copy, or, if it is bare,
 * as if w were 1. out may be in without gather. */
struct cuda_norm {
    struct cuda_buf in, out;
    uint32_t n, heads;
    float eps, size;
    const float *w;
    uint32_t w_step;
    int gather, bare;
};
void cuda_norm(const struct cuda_at *at, const struct cuda_norm *op);

/* out[r] = (in[r] - mean) / deviation * w + bias; NULL: w is 1, bias 0. gather as above; out may be
 * in without it. */
struct cuda_layer_norm {
    struct cuda_buf in, out;
    uint32_t n;
    float eps;
    const float *w, *bias;
    int gather;
};
void cuda_layer_norm(const struct cuda_at *at, const struct cuda_layer_norm *op);
/* The same in place over each of `heads` heads of n by itself, with a w of its own, [heads][n],
 * and likewise a bias, or NULL. */
void cuda_head_layer_norm(const struct cuda_at *at,
                          struct cuda_buf buf,
                          uint32_t heads,
                          uint32_t n,
                          float eps,
                          const float *w,
                          const float *bias);
/* The last n of each head's in_step values, or with `front` the first, to the last of its out_step;
 * with `zero` what stands before these is 0. */
struct cuda_head_copy {
    struct cuda_buf in, out;
    uint32_t heads, n, in_step, out_step;
    int front, zero;
};
void cuda_head_copy(const struct cuda_at *at, const struct cuda_head_copy *op);

/* out[r] += row positions[r] of w, [.., n]. */
void cuda_add_position(const struct cuda_at *at, struct cuda_buf out, const float *w, uint32_t n);
/* out[r] += row 0 of w, or row 1 (of n_types) for positions from the sequence's `second` on. */
void cuda_add_type(
    const struct cuda_at *at, struct cuda_buf out, const float *w, uint32_t n, uint32_t n_types);

/* out[r] = act(in[r]) * in2[r], by enum gate_kind (model.h); over places where n_places is not NULL
 * (experts.h): as many as it says; there both are first multiplied by weights[place], unless that
 * is NULL. */
struct cuda_gated {
    int kind;
    float scale, cap; /* of kinds that have them */
    struct cuda_buf in, in2, out;
    uint32_t n;
    const uint32_t *n_places;
    uint32_t most_places;
    const float *weights;
};
void cuda_gated(const struct cuda_at *at, const struct cuda_gated *op);
/* In place, by enum unary_kind (model.h); for xIELU with its four numbers. Over places as above. */
struct cuda_unary {
    int kind;
    float positive, negative, beta, eps;
    struct cuda_buf buf;
    uint32_t n;
    const uint32_t *n_places;
    uint32_t most_places;
};
void cuda_unary(const struct cuda_at *at, const struct cuda_unary *op);
/* Each of `heads` heads of n values of out[r] *= in[r][head]. */
void cuda_head_scale(
    const struct cuda_at *at, struct cuda_buf in, struct cuda_buf out, uint32_t heads, uint32_t n);
/* In place: within -bound .. bound. */
void cuda_clamp(const struct cuda_at *at, struct cuda_buf buf, uint32_t n, float bound);
/* out[r] = in[r] * w. */
void cuda_mul(
    const struct cuda_at *at, struct cuda_buf in, struct cuda_buf out, const float *w, uint32_t n);
/* x * scale, then capped: cap tanh(x / cap), unless cap is 0. */
void cuda_tanh_cap(
    const struct cuda_at *at, struct cuda_buf buf, uint32_t n, float scale, float cap);
/* out[r] += in[r] * scale, or with gate.p not NULL * sigmoid(gate[r][0]). */
struct cuda_add {
    struct cuda_buf in, out, gate;
    uint32_t n;
    float scale;
};
void cuda_add(const struct cuda_at *at, const struct cuda_add *op);

#ifdef __cplusplus
}
#endif

#endif
