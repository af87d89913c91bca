/* Several things done to a row while a block has it: sums, norms and gates, and its preparation for
 * the products that read it (linear.h). The bits are those of a launch each.
 *
 * Thread: the engine's. Errors: as rows.h has them. */
#ifndef WEIR_BACKEND_CUDA_ROWS_PACK_H
#define WEIR_BACKEND_CUDA_ROWS_PACK_H

#include "backend/cuda/experts.h"
#include "backend/cuda/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MOST_STAGES = 6 };

enum cuda_stage_kind {
    CUDA_STAGE_MIX,
    CUDA_STAGE_ADD,
    CUDA_STAGE_NORM,
    CUDA_STAGE_LAYER_NORM,
    CUDA_STAGE_GATED,
    CUDA_STAGE_UNARY,
};
/* As the launches of these names. A norm is of one head. */
struct cuda_stage {
    enum cuda_stage_kind kind;
    union {
        struct cuda_mix mix;
        struct cuda_add add;
        struct cuda_norm norm;
        struct cuda_layer_norm layer_norm;
        struct cuda_gated gated;
        struct cuda_unary unary;
    };
};

/* Stages of the same rows, in order. A stage reads no row of another block's: only the first may
 * gather. All norms have sums of as many threads (cuda_stages_fit). Over places if the first is. */
struct cuda_stages {
    struct cuda_stage of[CUDA_MOST_STAGES];
    uint32_t n;
    const struct cuda_act *act; /* that is made of what the last puts out; or NULL. Without heads */
    const struct cuda_experts *experts; /* over places, and of mixes; else NULL */
};
/* May norms over so many values each be stages of one launch? */
int cuda_stages_fit(uint32_t n_a, uint32_t n_b);
void cuda_rows_stages(const struct cuda_at *at, const struct cuda_stages *s);

/* A map of wide rows that are few, and packed, is two launches over slices of each row
 * (rows_slices.cu), of the same bits. s: stages; whether they were such, and are launched. */
int cuda_rows_slices(const struct cuda_at *at, const struct cuda_stages *s);
/* A norm of one kind by itself, and packed, has a kernel of its own (rows_norm.cu), likewise. */
int cuda_rows_norm(const struct cuda_at *at, const struct cuda_stages *s);
/* What slices leave of rows of so many values in act->sizes; 0: there are none of so few. */
size_t cuda_slices_bytes(uint32_t k);

#ifdef __cplusplus
}
#endif

#endif
