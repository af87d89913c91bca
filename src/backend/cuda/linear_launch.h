/* What launches of matrix products are given: between linear.cu, which decides, and the files of
 * the formats, which have the kernels. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_LAUNCH_H
#define WEIR_BACKEND_CUDA_LINEAR_LAUNCH_H

#include "backend/cuda/experts.h"
#include "backend/cuda/linear_layout.h"

struct linear_args {
    /* weights: matrices behind each other, for experts */
    const uint8_t *w;
    size_t matrix_bytes, part_bytes;
    uint32_t n_in, n_out;
    uint32_t n_parts;     /* of 16 outputs */
    uint32_t runs;        /* of K */
    uint32_t splits;      /* ranges of runs: 1, 2, 4 or 8 */
    uint32_t units_bytes; /* in front of each part; 0: no row has a unit */
    /* activations */
    const uint8_t *act;
    size_t act_tile_bytes, act_offset;
    uint32_t act_group; /* tiles that lie together */
    int scaled;         /* they have a factor for each row */
    /* results */
    struct cuda_buf out;
    const float *bias;
    const float *factors; /* of the matrix, or of each expert; or NULL */
    int add;
    /* rows: how many, or with experts where each one's places begin */
    const uint32_t *n_rows;
    const uint32_t *first; /* [n_expert + 1] or NULL */
    uint32_t n_expert;
    /* heads, of which blockIdx.z says one; 0: none. All have the same rows */
    uint32_t heads, out_step;
    size_t act_head_bytes;
    /* parts of each range [splits][scratch_rows][n_out]; scratch_rows 0: blocks add them up */
    float *scratch;
    uint32_t scratch_rows;
};
/* What a launch is given: products of the same rows, of which one follows the other in blocks, by
 * weights that lie alike; linear_few's may be of two formats (linear_two). linear_many has one. */
struct linear_group {
    struct linear_args of[CUDA_LINEAR_GROUP];
    uint32_t end[CUDA_LINEAR_GROUP]; /* of the group's blocks, behind each */
    uint32_t alike;                  /* linear_few: so many are of the first format */
    uint32_t tiles;                  /* linear_few: tiles of rows, beside each other */
};

enum linear_kernel { /* rows a block; WGMMA_256: 256 outputs, 128 rows */
                     LINEAR_FEW_8,
                     LINEAR_FEW_16,
                     LINEAR_MANY_64,
                     LINEAR_MANY_128,
                     LINEAR_WGMMA_64,
                     LINEAR_WGMMA_128,
                     LINEAR_WGMMA_256,
};
struct linear_grid {
    uint32_t x, y, z; /* y of LINEAR_FEW: its tiles */
    enum linear_kernel kernel;
    int second; /* the format of those that are not alike; or -1 */
    cudaStream_t stream;
};

/* Formats that may share a launch of few rows, as common mixtures have them: V beside Q and K. */
static inline int linear_two(int first, int second)
{
    return (first == CUDA_TYPE_Q4_K || first == CUDA_TYPE_Q5_K) && second == CUDA_TYPE_Q6_K;
}

/* K ranges of a matrix: its shape's alone, never the batch's. */
static inline uint32_t linear_splits(uint32_t runs, uint32_t n_parts)
{
    uint32_t splits = 1;
    while (splits < 8 && n_parts * splits < 2048 && splits * 2 <= runs)
        splits *= 2;
    return splits;
}

/* Where the device has how many rows `at` is over. */
static inline const uint32_t *linear_row_count(const struct cuda_at *at)
{
    return at->rows == CUDA_ROWS_LOGITS   ? &at->step.counts->n_logit_rows
           : at->rows == CUDA_ROWS_HIDDEN ? &at->step.counts->n_hidden_rows
                                          : &at->step.counts->n_rows;
}
/* A kernel whose first parameter is that; the others are its own. */
#define LAUNCH_COUNTED(kernel, grid, block, at, ...)                                               \
    CUDA_LAUNCH_NEXT(kernel, grid, block, 0, (at)->stream, linear_row_count(at), __VA_ARGS__)
/* How many places a launch is made for; how many there are is x->first[x->n_expert]. */
static inline uint32_t linear_place_bound(const struct cuda_at *at, const struct cuda_experts *x)
{
    const uint32_t most = cuda_experts_most_places(x->n_expert, x->n_used, cuda_rows_bound(at));
    return most < x->most_places ? most : x->most_places;
}

/* By type. */
#ifdef __cplusplus
extern "C" {
#endif

void linear_block_launch(int type, const struct linear_group *p, const struct linear_grid *g);
void linear_k_launch(int type, const struct linear_group *p, const struct linear_grid *g);
void linear_half_launch(int type, const struct linear_group *p, const struct linear_grid *g);
void linear_f32_launch(const struct linear_group *p, const struct linear_grid *g);

#ifdef __cplusplus
}
#endif

#endif
