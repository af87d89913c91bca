/* F32 weights: routers, and whole models in tests. Plain fused multiply-adds in f32.
 *
 *      a warp for each output and 8 rows; lane l takes k = 128 i + 4 l + 0..3 for i = 0, 1, ...
 *      sum of a lane = fma by rising k
 *      total         = sums of lanes, added in a tree of halves (16, 8, 4, 2, 1)
 *
 *      part of 16 outputs: [16][K padded to 64] f32, one row after the other
 *
 * grid: (groups of 8 outputs x tiles of 8 rows, 1, 1 or heads); block: 8 warps, of which each reads
 * its output's weights in order, 512 bytes at a time, while all read the same activations.
 *
 * Numbers: 4 bytes and 8 fma a weight for 8 rows: bound by memory for a few rows, by arithmetic (67
 * Tflop/s) beyond; large products are not what this format is used for. */
#include "backend/cuda/linear_launches.cuh"

/* Sums of 8 rows over all lanes, left in sum[0]; returns the lane's row. While a lane has several,
 * it gives away the half that its partner keeps: 9 shuffles, where each row by itself takes 5.
 *
 *      lanes that differ by   16       8     4     2  1
 *      rows of a lane         8 -> 4   -> 2  -> 1             row = lane / 4
 */
static __device__ __forceinline__ uint32_t sum_lanes(float sum[CUDA_ACT_ROWS], uint32_t lane)
{
#pragma unroll
    for (uint32_t o = 16, n = CUDA_ACT_ROWS / 2; n > 0; o /= 2, n /= 2) {
        const bool upper = lane & o;
#pragma unroll
        for (uint32_t r = 0; r < n; r++) {
            const float keep = upper ? sum[r + n] : sum[r], give = upper ? sum[r] : sum[r + n];
            sum[r] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, give, o));
        }
    }
    sum[0] = __fadd_rn(sum[0], __shfl_xor_sync(0xffffffffu, sum[0], 2));
    sum[0] = __fadd_rn(sum[0], __shfl_xor_sync(0xffffffffu, sum[0], 1));
    return lane / 4;
}

static __global__ void __launch_bounds__(256) linear_f32(CUDA_PARAMETER(linear_group) given)
{
    cuda_let_next_begin();
    cuda_wait_before();
    uint32_t block;
    const linear_args p = linear_of_group(given, blockIdx.x / given.tiles, block);
    const uint32_t act_tile = blockIdx.x % given.tiles;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t j = block * LINEAR_WARPS + warp;
    const uint32_t row = act_tile * CUDA_ACT_ROWS, n_rows = linear_rows(p);
    if (row >= n_rows)
        return;
    const uint32_t expert = p.first ? linear_expert_at(p, row) : 0;
    if (j >= p.n_out)
        return;
    const uint32_t k = cuda_chunks(p.n_in) * CUDA_CHUNK_K;
    const float *w =
        reinterpret_cast<const float *>(p.w + expert * p.matrix_bytes) + static_cast<size_t>(j) * k;
    const float *x = reinterpret_cast<const float *>(linear_act_group(p, act_tile, p.act_offset) +
                                                     act_tile % p.act_group *
                                                         cuda_act_form_bytes(CUDA_ACT_F32, p.n_in));
    float sum[CUDA_ACT_ROWS] = {};
    for (uint32_t i = lane * 4; i < k; i += 128) {
        const float4 a = *reinterpret_cast<const float4 *>(w + i);
#pragma unroll
        for (uint32_t r = 0; r < CUDA_ACT_ROWS; r++) {
            const float4 b = *reinterpret_cast<const float4 *>(x + static_cast<size_t>(r) * k + i);
            sum[r] = __fmaf_rn(a.x, b.x, sum[r]);
            sum[r] = __fmaf_rn(a.y, b.y, sum[r]);
            sum[r] = __fmaf_rn(a.z, b.z, sum[r]);
            sum[r] = __fmaf_rn(a.w, b.w, sum[r]);
        }
    }
    const uint32_t r = sum_lanes(sum, lane);
    if (lane % 4 == 0 && row + r < n_rows)
        linear_store(p, expert, row + r, j, sum[0], 1);
}

extern "C" void linear_f32_launch(const linear_group *p, const linear_grid *g)
{
    CUDA_LAUNCH_NEXT(linear_f32, dim3(g->x * g->y, 1, g->z), LINEAR_WARPS * 32, 0, g->stream, *p);
}
