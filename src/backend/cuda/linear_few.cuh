/* Few rows: a warp for each 16 outputs and range of K, and up to TILES tiles of 8 rows.
 *
 *      memory  | chunk | chunk | chunk | ...      a lane's share of AHEAD chunks is in registers or
 *      warp    lane 0 .. lane 31                  on its way to them, as it lies (F::raw)
 *
 *      each chunk:  raw -> operands (F::unpack) -> 4 mma a tile, one chain for the range
 *                   raw <- the chunk AHEAD further on
 *
 * Weights are read once and by one warp, so they go to its registers past shared memory and without
 * staying in the nearest cache, which is left to the activations: those are read by every warp, as
 * the operands of mma lie (linear_layout.h). The first of them are asked for before the kernel
 * before has ended. A block's warps add their ranges through shared memory, in order. On an H100
 * two to four chunks ahead and 16 to 24 warps a processor keep memory busiest; rings in shared
 * memory, filled by cp.async or by bulk copies, were 10 to 20 % slower.
 *
 * Loads to registers count on six counters that the compiler hands out, and to wait for one is to
 * wait for all on its counter. So weights are asked for without branches (load_words_if): the
 * compiler keeps them on a counter of their own, and each turn of AHEAD chunks waits once. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_FEW_CUH
#define WEIR_BACKEND_CUDA_LINEAR_FEW_CUH

#include "backend/cuda/linear_tiles.cuh"

static constexpr uint32_t LINEAR_WARPS = 8;

/* A warp's range of K: what it has of AHEAD chunks, and where those behind them are, of which
 * `left` are still to be asked for. A range is whole runs, and so is AHEAD. */
template <class F, uint32_t AHEAD> struct few_stream {
    static_assert(AHEAD % F::RUN == 0, "whole runs");
    const uint8_t *at;
    uint32_t left;
    typename F::raw raw[AHEAD];

    /* Slot 0, 1, ..., AHEAD - 1, and 0 again. */
    __device__ __forceinline__ void bring(uint32_t slot, uint32_t lane)
    {
        linear_fetch_if<F>(slot / F::RUN * F::RUN < left,
                           linear_run<F>(at, slot / F::RUN),
                           slot % F::RUN,
                           lane,
                           raw[slot]);
        if (slot == AHEAD - 1) {
            at = linear_run<F>(at, AHEAD / F::RUN);
            left -= AHEAD < left ? AHEAD : left;
        }
    }
};

/* One of the results that a thread writes, if it is there, and what its sum meets. */
struct few_result {
    uint32_t of, reg, from; /* of the block's parts, and where its sums lie */
    uint32_t j, row;
    bool there;
    float unit, factor, old;
};
/* e: output of 16 fastest, then row of 8 a tile, then part of the block's. */
static __device__ __forceinline__ few_result few_result_of(const linear_args &p,
                                                           uint32_t e,
                                                           uint32_t tiles,
                                                           uint32_t first_part,
                                                           uint32_t first_row,
                                                           uint32_t n_rows,
                                                           uint32_t expert)
{
    const uint32_t output = e % 16, column = e / 16 % (8 * tiles);
    few_result r = {};
    r.of = e / (128 * tiles);
    r.reg = column / 8 * 4 + output / 8 * 2 + column % 2;
    r.from = output % 8 * 4 + column % 8 / 2;
    r.j = (first_part + r.of) * CUDA_PART_ROWS + output;
    r.row = first_row + column;
    r.there = r.of < LINEAR_WARPS / p.splits && r.row < n_rows && r.j < p.n_out;
    if (r.there) {
        r.unit = linear_unit(p, expert, r.j);
        r.factor = linear_factor(p, r.row);
        r.old = p.add ? p.out.p[r.row * p.out.stride + r.j] : 0;
    }
    return r;
}

/* A block of product p, of which it is `block`. parts: in shared memory. */
template <class F, uint32_t TILES, uint32_t AHEAD>
static __device__ __forceinline__ void few_block(const linear_args &p,
                                                 uint32_t block,
                                                 uint32_t group,
                                                 float (*parts)[TILES * 4][32])
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t row = group * TILES * CUDA_ACT_ROWS;
    const uint32_t per_block = LINEAR_WARPS / p.splits, split = warp % p.splits;
    const uint32_t part = block * per_block + warp / p.splits;
    const uint32_t begin = p.runs * split / p.splits * F::RUN;
    const uint32_t end = part < p.n_parts ? p.runs * (split + 1) / p.splits * F::RUN : begin;

    few_stream<F, AHEAD> s;
    s.at = linear_run<F>(linear_part(p, 0, part), begin / F::RUN);
    s.left = end - begin;
#pragma unroll
    for (uint32_t i = 0; i < AHEAD && !p.first; i++) /* while the kernel before ends */
        s.bring(i, lane);
    uint32_t n_rows = p.first ? 0 : linear_rows(p);
    cuda_wait_before();
    if (p.first)
        n_rows = linear_rows(p);
    if (row >= n_rows)
        return;
    const uint32_t expert = p.first ? linear_expert_at(p, row) : 0;
    s.at += expert * p.matrix_bytes;
#pragma unroll
    for (uint32_t i = 0; i < AHEAD && p.first; i++)
        s.bring(i, lane);

    const uint32_t n_tiles = (n_rows - row + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS;
    const uint32_t act_step = linear_act_step<F>(p);
    const uint8_t *act[TILES];
#pragma unroll
    for (uint32_t t = 0; t < TILES; t++) {
        /* columns that are no row have the last row's */
        const uint32_t tile = t < n_tiles ? t : 0, left = n_rows - row - tile * CUDA_ACT_ROWS;
        const uint32_t column = lane / 4 < left ? lane / 4 : left - 1;
        act[t] = linear_act<F>(p, group * TILES + tile) + static_cast<size_t>(begin) * act_step +
                 column * 16 + lane % 4 * 4;
    }
    /* what its first result needs is asked for while there is something else to do */
    const uint32_t n_results = per_block * TILES * 128, first_part = block * per_block;
    uint32_t e = threadIdx.x;
    few_result result = few_result_of(p, e, TILES, first_part, row, n_rows, expert);
    float sum[TILES][4] = {};
    const auto multiply = [&](uint32_t slot) {
        constexpr bool as_it_lies = F::CHUNK == 32 * sizeof(linear_weights);
        linear_weights w;
        F::unpack(s.raw[slot], w);
        if (!as_it_lies)
            s.bring(slot, lane);
#pragma unroll
        for (uint32_t t = 0; t < TILES; t++) {
            const act_values x = act_values_at(act[t]);
            linear_multiply<F>(w, x, F::PAIR ? act_values_at(act[t] + 1024) : x, sum[t]);
            act[t] += act_step;
        }
        if (as_it_lies) /* into the registers that were multiplied */
            s.bring(slot, lane);
    };
    uint32_t left = end - begin;
#pragma unroll 1
    for (; left >= AHEAD; left -= AHEAD) { /* without a branch inside, which loads do not pass */
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            multiply(i);
    }
#pragma unroll
    for (uint32_t i = 0; F::RUN < AHEAD && i < AHEAD - 1; i++) {
        if (i < left)
            multiply(i);
    }

#pragma unroll
    for (uint32_t i = 0; i < TILES * 4; i++)
        parts[warp][i][lane] = sum[i / 4][i % 4];
    __syncthreads();
    while (e < n_results) {
        if (result.there) {
            const float(*part)[TILES * 4][32] = parts + result.of * p.splits;
            float total = part[0][result.reg][result.from];
            for (uint32_t i = 1; i < p.splits; i++)
                total = __fadd_rn(total, part[i][result.reg][result.from]);
            const float v = linear_value_of(p, expert, result.j, total, result.unit, result.factor);
            p.out.p[result.row * p.out.stride + result.j] = p.add ? __fadd_rn(result.old, v) : v;
        }
        e += LINEAR_WARPS * 32;
        result = few_result_of(p, e, TILES, first_part, row, n_rows, expert);
    }
}

/* grid: (groups of 8 / splits x 16 outputs of each product x tiles of 8 TILES rows, 1, heads or 1);
 * block: 8 warps. */
template <class F, uint32_t TILES, uint32_t AHEAD, uint32_t BLOCKS>
static __global__ void __launch_bounds__(LINEAR_WARPS * 32, BLOCKS)
    linear_few(CUDA_PARAMETER(linear_group) given)
{
    __shared__ float parts[LINEAR_WARPS][TILES * 4][32];
    cuda_let_next_begin();
    uint32_t block;
    const linear_args p = linear_of_group(given, blockIdx.x / given.tiles, block);
    few_block<F, TILES, AHEAD>(p, block, blockIdx.x % given.tiles, parts);
}

/* The same of a group whose first `alike` products are of format F, the others of G. */
template <class F, class G, uint32_t TILES, uint32_t AHEAD, uint32_t BLOCKS>
static __global__ void __launch_bounds__(LINEAR_WARPS * 32, BLOCKS)
    linear_few_two(CUDA_PARAMETER(linear_group) given)
{
    __shared__ float parts[LINEAR_WARPS][TILES * 4][32];
    cuda_let_next_begin();
    uint32_t block;
    const uint32_t i = linear_product_at(given, blockIdx.x / given.tiles, block);
    const linear_args p = linear_of_head(given.of[i]);
    if (i < given.alike)
        few_block<F, TILES, AHEAD>(p, block, blockIdx.x % given.tiles, parts);
    else
        few_block<G, TILES, AHEAD>(p, block, blockIdx.x % given.tiles, parts);
}

#endif
