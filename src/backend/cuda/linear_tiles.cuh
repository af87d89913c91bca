/* What the kernels of matrix products share (linear_few.cuh, linear_many.cuh, linear_wgmma.cuh),
 * over a format: how bytes become weights is the format's (linear_block.cu, linear_k.cu,
 * linear_half.cu), which bytes when is theirs.
 *
 * One sum, in one order, for any number of rows:
 *
 *     K is cut into `splits` ranges of whole runs, by n_in and n_out alone
 *     part[s]   = the products of range s, chunk by chunk from the first on    (linear_multiply)
 *     out       = (part[0] + part[1] + ... ) * unit * factors (+ bias) (+ out)    (linear_value)
 *
 * and three ways to get it, chosen by the bounds of the launch, all of the same bits:
 *
 *     few rows    up to 16 (linear_few.cuh): a warp for each 16 outputs and range; a block holds
 * all ranges of its outputs and adds them through shared memory. Weights stream from memory to each
 * warp's registers: no barrier in the loop.
 *
 *                        outputs 0-15            16-31       (splits 4: 2 x 16 outputs a block)
 *                        warp 0  1  2  3         4 5 6 7
 *                   K   |--0--|--1--|--2--|--3--|
 *
 *                 Matrices that read the same rows (q, k, v; gate, up) are one grid, first all
 *                 blocks of the first; by wgmma too.
 *
 *     many rows   (linear_many.cuh) a block for 128 outputs x 128 rows (or 64) goes through all
 *                 ranges, 8 warps of 32 x 64 (16 x 64) each; at the end of a range the part is
 * added to totals in shared memory. In between, where that would leave processors idle: the same,
 * but each range has its own block, which leaves its part in scratch, and a second launch adds them
 * (linear_merge).
 *
 *     on Hopper   (linear_wgmma.cuh) many rows are multiplied by wgmma, which takes 64 outputs from
 *                 four warps' registers and 128 rows (64) from shared memory where copies left
 * them. Only where the device was seen to give mma's bits (wgmma_check.c).
 *
 * Bounds: an H100's memory brings 12.9 bytes a clock to each of 132 processors, so that in the time
 * of 1 KB of weights its four schedulers make 318 instructions; a format makes 28 (F16) to 138 (of
 * tables) for a chunk of 0.3 to 2 KB, of which integers take two turns each. Many rows:
 * linear_wgmma.cuh. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_TILES_CUH
#define WEIR_BACKEND_CUDA_LINEAR_TILES_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/linear_launch.h"
#include "backend/cuda/linear_products.cuh"

/* --- sizes --- */

template <class F> struct linear_size {
    static constexpr uint32_t RUN_BYTES = F::HEAD + F::RUN * F::CHUNK;
    static constexpr uint32_t ACT_BYTES = F::PAIR ? CUDA_ACT_PAIR_BYTES : CUDA_ACT_F16_BYTES;
};

/* --- rows and results --- */

/* How many rows there are, or places of all experts; the former may be asked for early. */
static __device__ __forceinline__ uint32_t linear_rows(const linear_args &p)
{
    return p.first ? p.first[p.n_expert] : early_value(p.n_rows);
}

/* The product that this block is of, where each head has its own. */
static __device__ __forceinline__ linear_args linear_of_head(const linear_args &given)
{
    linear_args p = given;
    if (p.heads > 0) {
        p.w += blockIdx.z * p.matrix_bytes;
        p.act += blockIdx.z * p.act_head_bytes;
        p.out.p += static_cast<size_t>(blockIdx.z) * p.out_step;
    }
    return p;
}

/* Which product of the group its block `at` is of, and which of the product's blocks it is. */
static __device__ __forceinline__ uint32_t linear_product_at(const linear_group &g,
                                                             uint32_t at,
                                                             uint32_t &block)
{
    uint32_t i = 0;
    while (at >= g.end[i])
        i++;
    block = at - (i > 0 ? g.end[i - 1] : 0);
    return i;
}
static __device__ __forceinline__ linear_args linear_of_group(const linear_group &g,
                                                              uint32_t at,
                                                              uint32_t &block)
{
    const uint32_t i = linear_product_at(g, at, block);
    return linear_of_head(g.of[i]);
}

/* The expert whose places `place` is among; all threads of the block call. */
static __device__ __forceinline__ uint32_t linear_expert_at(const linear_args &p, uint32_t place)
{
    __shared__ uint32_t expert;
    for (uint32_t x = threadIdx.x; x < p.n_expert; x += blockDim.x) {
        if (p.first[x] <= place && place < p.first[x + 1])
            expert = x;
    }
    __syncthreads();
    return expert;
}

/* What output j's numbers were divided by. */
static __device__ __forceinline__ float linear_unit(const linear_args &p,
                                                    uint32_t expert,
                                                    uint32_t j)
{
    const uint8_t *part = p.w + expert * p.matrix_bytes + j / CUDA_PART_ROWS * p.part_bytes;
    return p.units_bytes ? load<float>(part + j % CUDA_PART_ROWS * sizeof(float)) : 1;
}
static __device__ __forceinline__ float linear_value_of(
    const linear_args &p, uint32_t expert, uint32_t j, float total, float unit, float factor)
{
    float v = __fmul_rn(__fmul_rn(total, unit), factor);
    if (p.factors)
        v = __fmul_rn(v, p.factors[expert]);
    return p.bias ? __fadd_rn(v, p.bias[static_cast<size_t>(expert) * p.n_out + j]) : v;
}
static __device__ __forceinline__ float linear_value(
    const linear_args &p, uint32_t expert, uint32_t j, float total, float factor)
{
    return linear_value_of(p, expert, j, total, linear_unit(p, expert, j), factor);
}
static __device__ __forceinline__ void linear_store(
    const linear_args &p, uint32_t expert, uint32_t row, uint32_t j, float total, float factor)
{
    float *out = p.out.p + row * p.out.stride + j;
    const float v = linear_value(p, expert, j, total, factor);
    *out = p.add ? __fadd_rn(*out, v) : v;
}
/* --- prepared rows --- */

/* Of the tile's group; `offset` bytes of each tile in front. */
static __device__ __forceinline__ const uint8_t *linear_act_group(const linear_args &p,
                                                                  uint32_t tile,
                                                                  size_t offset)
{
    return p.act + (tile - tile % p.act_group) * p.act_tile_bytes + p.act_group * offset;
}
/* Chunk 0 of a tile, and how far on the next chunk is. */
template <class F>
static __device__ __forceinline__ const uint8_t *linear_act(const linear_args &p, uint32_t tile)
{
    return linear_act_group(p, tile, p.act_offset) + tile % p.act_group * linear_size<F>::ACT_BYTES;
}
template <class F> static __device__ __forceinline__ uint32_t linear_act_step(const linear_args &p)
{
    return p.act_group * linear_size<F>::ACT_BYTES;
}
/* What undoes the scale of a row. */
static __device__ __forceinline__ float linear_factor(const linear_args &p, uint32_t row)
{
    if (!p.scaled)
        return 1;
    const uint32_t tile = row / CUDA_ACT_ROWS;
    const uint8_t *factors =
        linear_act_group(p, tile, 0) + tile % p.act_group * CUDA_ACT_HEAD_BYTES;
    return load<float>(factors + row % CUDA_ACT_ROWS * sizeof(float));
}

/* --- weights --- */

/* The first run of 16 outputs. */
static __device__ __forceinline__ const uint8_t *linear_part(const linear_args &p,
                                                             uint32_t expert,
                                                             uint32_t part)
{
    return p.w + expert * p.matrix_bytes + part * p.part_bytes + p.units_bytes;
}
/* Of a part: where so many runs have been passed. */
template <class F>
static __device__ __forceinline__ const uint8_t *linear_run(const uint8_t *part, uint32_t runs)
{
    return part + static_cast<size_t>(runs) * linear_size<F>::RUN_BYTES;
}
/* Ask for the lane's share of a run's chunk `sub`; or, without a branch, if it is wanted. */
template <class F>
static __device__ __forceinline__ void linear_fetch(const uint8_t *run,
                                                    uint32_t sub,
                                                    uint32_t lane,
                                                    typename F::raw &raw)
{
    const linear_source<true> from = {run, run + F::HEAD + sub * F::CHUNK, sub, lane};
    F::fetch(from, raw);
}
template <class F>
static __device__ __forceinline__ void linear_fetch_if(
    bool wanted, const uint8_t *run, uint32_t sub, uint32_t lane, typename F::raw &raw)
{
    const linear_source_if from = {wanted, run, run + F::HEAD + sub * F::CHUNK, sub, lane};
    F::fetch(from, raw);
}

#endif
