/* Experts: rows are sorted by the experts that they are given to, and each expert's matrices meet
 * all of their rows at once (as backend/cpu/experts.h).
 *
 *     scores --select--> n_used experts and weights of each row, by rank
 *            --sort----> places: one for each row and rank, ordered by expert
 *
 * All on the device: the host never learns what was selected. */
#ifndef WEIR_BACKEND_CUDA_EXPERTS_H
#define WEIR_BACKEND_CUDA_EXPERTS_H

#include "backend/cuda/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_experts {
    uint32_t n_expert, n_used;
    uint32_t *chosen;    /* [rows][n_used] */
    float *weights;      /* [rows][n_used] */
    uint32_t *places;    /* [rows][n_used] */
    uint32_t *place_row; /* [most_places] the row, or UINT32_MAX: there is none */
    float *place_weight; /* [most_places] of the row there; NULL: nobody asks. Where it is there,
                          * what experts read is weighed (cuda_gated) and what they give is not */
    uint32_t *first;     /* [n_expert + 1] places of each expert; the last: how many there are */
    uint32_t most_places;
};
/* Places that so many rows can need, with each expert's first at a multiple of a tile. */
uint32_t cuda_experts_most_places(uint32_t n_expert, uint32_t n_used, uint32_t rows);

/* How experts are selected and weighed. */
struct cuda_gating {
    int over_all, norm; /* the softmax's weights: over the selected, or over all experts and then
                         * (norm) made to sum to 1 */
    float scale;        /* times this */
    /* Where one of these is there, by probability: the softmax over all, or sigmoids; with a bias
     * added for the selection alone; from the n_groups_used best of n_groups (1: no groups), each
     * worth its largest value, or with a bias the sum of its two largest. */
    int sigmoid;
    int mixer;         /* or, without any, each by a softmax over what comes close (expert_mixer) */
    const float *bias; /* [n_expert] or NULL */
    const float *each; /* [n_expert]: in the end times an expert's own; or NULL */
    uint32_t n_groups, n_groups_used;
};

/* OP_SELECT: the n_used largest of scores, in order, ties to the lower expert. */
void cuda_experts_select(const struct cuda_at *at,
                         const struct cuda_experts *x,
                         struct cuda_buf scores,
                         const struct cuda_gating *gating);
void cuda_experts_sort(const struct cuda_at *at, const struct cuda_experts *x);
/* Prepared activations by place: of the rows, or of a buffer by place. */
void cuda_experts_pack(const struct cuda_at *at,
                       const struct cuda_experts *x,
                       struct cuda_buf in,
                       int by_place,
                       const struct cuda_act *act);
/* OP_EXPERTS, of n as in cuda_linear: w is [n_expert] matrices behind each other; bias
 * [n_expert][n_out] or NULL. */
void cuda_experts_linear(const struct cuda_at *at,
                         const struct cuda_experts *x,
                         const struct cuda_linear *ops,
                         uint32_t n);
/* OP_MIX: out[r] = sum over ranks, from the first, of weight (1 with place_weight) * in[place]. */
struct cuda_mix {
    struct cuda_buf in, out;
    uint32_t n;
};
void cuda_experts_mix(const struct cuda_at *at,
                      const struct cuda_experts *x,
                      const struct cuda_mix *op);

#ifdef __cplusplus
}
#endif

#endif
