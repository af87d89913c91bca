/* Many rows on Hopper: linear_wgmma, by wgmma.
 *
 *      block     WARPGROUPS x 64 outputs by TILES tiles of 8 rows; a warp has 16 outputs, all rows
 *
 *      warp      raw <- memory    a chunk ahead, past shared memory, as linear_few reads them
 *                operands <- raw  (F::unpack), while the products of other warpgroups run
 *                sums += operands x the chunk of all rows, in shared memory: four wgmma, one chain
 *                                                          for the range
 *      thread 0  chunks of the rows to a ring of STAGES, by bulk copies of TILES KB (a pair: twice)
 *
 * There is no barrier of the block in the loop: who has multiplied a stage arrives at its barrier,
 * and drifts from the others, so that some unpack while others multiply. At the end of a range sums
 * are added to totals in shared memory, where each thread has its own.
 *
 * Bounds, a chunk of 256 outputs x 128 rows: 4.2 million operations, 1024 clocks of a processor's
 * tensor cores; 16 KB of rows and 17 (Q8_0) to 32 KB (F16) of weights from the second-level cache,
 * 33 to 48 bytes a clock, of which an H100 brings some 24: so 50 to 70 % of the tensor cores. Of
 * shared memory 64 bytes a clock are read. What was measured is in docs/PERFORMANCE.md. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_WGMMA_CUH
#define WEIR_BACKEND_CUDA_LINEAR_WGMMA_CUH

#include "backend/cuda/bulk.cuh"
#include "backend/cuda/linear_tiles.cuh"
#include "backend/cuda/wgmma.cuh"

/* BLOCKS: of a processor. */
template <class F, uint32_t WARPGROUPS_, uint32_t TILES_, uint32_t STAGES_, uint32_t BLOCKS_>
struct wgmma_block {
    static constexpr uint32_t WARPS = WARPGROUPS_ * 4, TILES = TILES_, STAGES = STAGES_;
    static constexpr uint32_t BLOCKS = BLOCKS_;
    static constexpr uint32_t TILE_BYTES = linear_size<F>::ACT_BYTES;
    static constexpr uint32_t STAGE_BYTES = TILES * TILE_BYTES;
    static constexpr uint32_t SUMS = TILES * 4; /* of a thread */
    static constexpr uint32_t TOTAL_BYTES = WARPS * 32 * SUMS * sizeof(float);
    static constexpr uint32_t BYTES =
        STAGES * STAGE_BYTES + TOTAL_BYTES + 2 * STAGES * sizeof(bulk_barrier);
};

/* A place in the ring; parity: of how often it was gone through. */
template <uint32_t STAGES> struct wgmma_place {
    uint32_t slot = 0, parity = 0;
    __device__ __forceinline__ void go_on()
    {
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* What a block multiplies: rows [first, first + n) of all, or of an expert's places, and ranges
 * [from, to) of K. */
struct wgmma_share {
    uint32_t expert, first, n, from, to;
    uint32_t part; /* of this warp */
};

/* The ring, and thread 0's part: chunks of the rows into it. */
template <class F, class B> struct wgmma_ring {
    uint8_t *stages;
    bulk_barrier *full, *empty;
    wgmma_place<B::STAGES> next;      /* to bring */
    const uint8_t *act[2] = {};       /* of the tiles in one group, and those in the next */
    uint32_t bytes[2] = {}, step = 0; /* of a chunk */

    __device__ __forceinline__ void begin(const linear_args &p, const wgmma_share &s)
    {
        const uint32_t tile = s.first / CUDA_ACT_ROWS;
        const uint32_t tiles = (s.n + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS;
        const uint32_t here = p.act_group - tile % p.act_group;
        const uint32_t chunk = p.runs * s.from / p.splits * F::RUN;
        step = linear_act_step<F>(p);
        bytes[0] = (tiles < here ? tiles : here) * B::TILE_BYTES;
        bytes[1] = tiles * B::TILE_BYTES - bytes[0];
        act[0] = linear_act<F>(p, tile) + static_cast<size_t>(chunk) * step;
        act[1] = linear_act<F>(p, tile + here) + static_cast<size_t>(chunk) * step;
    }
    __device__ __forceinline__ void bring()
    {
        uint8_t *to = stages + next.slot * B::STAGE_BYTES;
        bulk_wait(&empty[next.slot], next.parity ^ 1);
        bulk_expect(&full[next.slot], bytes[0] + bytes[1]);
        bulk_copy(to, act[0], bytes[0], &full[next.slot]);
        if (bytes[1] > 0)
            bulk_copy(to + bytes[0], act[1], bytes[1], &full[next.slot]);
        act[0] += step;
        act[1] += step;
        next.go_on();
    }
};

/* The products of a chunk. */
template <class F, class B>
static __device__ __forceinline__ void wgmma_chunk(linear_weights &w,
                                                   const uint8_t *stage,
                                                   float (*sum)[4])
{
    const uint64_t values = wgmma_descriptor(wgmma_address(stage), 128, B::TILE_BYTES);
    wgmma_group<B::TILES> group;
    wgmma_begin(group, sum, w.a);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma_product<F::PAIR>(group, sum, w.a[i], values + i * (256 / 16));
        if constexpr (F::PAIR)
            wgmma_product<F::PAIR>(group, sum, w.a[i], values + (1024 + i * 256) / 16);
    }
    wgmma_wait(group, sum);
}

/* Totals to where they belong. A lane has outputs r and r + 8, r = lane / 4, of rows 2 (lane % 4)
 * and the next of each tile. What is added to is asked for before the first is stored: behind a
 * store a load would have to wait. */
template <class B>
static __device__ __forceinline__ void wgmma_store(const linear_args &p,
                                                   const wgmma_share &s,
                                                   const float *totals,
                                                   bool alone)
{
    constexpr uint32_t AT_ONCE = 16;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t output = s.part * CUDA_PART_ROWS + lane / 4, row = s.first + lane % 4 * 2;
#pragma unroll 1
    for (uint32_t e = 0; e < B::SUMS; e += AT_ONCE) {
        float v[AT_ONCE], old[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t j = output + i % 4 / 2 * 8, r = row + (e + i) / 4 * 8 + i % 2;
            v[i] = totals[(e + i) * 32];
            old[i] = 0;
            if (!alone && p.add && j < p.n_out && r < s.first + s.n)
                old[i] = p.out.p[r * p.out.stride + j];
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t j = output + i % 4 / 2 * 8, r = row + (e + i) / 4 * 8 + i % 2;
            if (j >= p.n_out || r >= s.first + s.n)
                continue;
            if (alone) {
                p.scratch[(static_cast<size_t>(s.from) * p.scratch_rows + r) * p.n_out + j] = v[i];
                continue;
            }
            const float done = linear_value(p, s.expert, j, v[i], linear_factor(p, r));
            p.out.p[r * p.out.stride + j] = p.add ? __fadd_rn(old[i], done) : done;
        }
    }
}

template <class F, class B>
static __device__ __forceinline__ void wgmma_rows(const linear_args &p,
                                                  const wgmma_share &s,
                                                  wgmma_ring<F, B> &ring,
                                                  wgmma_place<B::STAGES> &at)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t first = p.runs * s.from / p.splits * F::RUN;
    const uint32_t last = p.runs * s.to / p.splits * F::RUN;
    const bool has_part = s.part < p.n_parts;
    const uint8_t *weights = linear_part(p, s.expert, s.part);
    float *totals = reinterpret_cast<float *>(ring.stages + B::STAGES * B::STAGE_BYTES) +
                    warp * 32 * B::SUMS + lane;
    typename F::raw raw = {};
    if (has_part)
        linear_fetch<F>(linear_run<F>(weights, first / F::RUN), first % F::RUN, lane, raw);
    if (threadIdx.x == 0) {
        ring.begin(p, s);
        for (uint32_t i = 0; i < B::STAGES - 1 && first + i < last; i++)
            ring.bring();
    }
    uint32_t chunk = first;
    for (uint32_t split = s.from; split < s.to; split++) {
        const uint32_t end = p.runs * (split + 1) / p.splits * F::RUN;
        float sum[B::TILES][4] = {};
#pragma unroll 1
        for (; chunk < end; chunk++) {
            linear_weights w;
            F::unpack(raw, w);
            if (has_part && chunk + 1 < last)
                linear_fetch<F>(
                    linear_run<F>(weights, (chunk + 1) / F::RUN), (chunk + 1) % F::RUN, lane, raw);
            if (threadIdx.x == 0 && chunk + B::STAGES - 1 < last)
                ring.bring();
            __syncwarp();
            bulk_wait(&ring.full[at.slot], at.parity);
            wgmma_chunk<F, B>(w, ring.stages + at.slot * B::STAGE_BYTES, sum);
            if (lane == 0)
                bulk_arrive(&ring.empty[at.slot]);
            at.go_on();
        }
#pragma unroll
        for (uint32_t i = 0; i < B::SUMS; i++)
            totals[i * 32] =
                split == s.from ? sum[i / 4][i % 4] : __fadd_rn(totals[i * 32], sum[i / 4][i % 4]);
    }
    if (has_part)
        wgmma_store<B>(p, s, totals, p.scratch_rows > 0);
}

/* grid: (groups of 8 TILES rows, of WARPGROUPS x 64 outputs of each product, ranges of K or
 * heads), or with experts (blocks that share an expert's rows, groups of outputs, experts): blocks
 * that follow each other read the same weights. Where there is no wgmma nothing is written. */
template <class F, class B>
static __global__ void __launch_bounds__(B::WARPS * 32, B::BLOCKS)
    linear_wgmma(CUDA_PARAMETER(linear_group) given)
{
    cuda_let_next_begin();
#if WGMMA_HERE
    CUDA_SHARED(uint8_t, shared);
    wgmma_ring<F, B> ring;
    ring.stages = shared;
    ring.full =
        reinterpret_cast<bulk_barrier *>(shared + B::STAGES * B::STAGE_BYTES + B::TOTAL_BYTES);
    ring.empty = ring.full + B::STAGES;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < B::STAGES; i++) {
            bulk_init(&ring.full[i], 1);
            bulk_init(&ring.empty[i], B::WARPS);
        }
    }
    cuda_wait_before();
    __syncthreads();
    uint32_t block;
    const linear_args p = linear_of_group(given, blockIdx.y, block);
    const bool alone = p.scratch_rows > 0; /* this block has one range of all */
    const uint32_t expert = p.first ? blockIdx.z : 0;
    const uint32_t begin = p.first ? p.first[expert] : 0;
    const uint32_t end = p.first ? p.first[expert + 1] : *p.n_rows;
    if (alone && blockIdx.z >= p.splits)
        return;
    wgmma_place<B::STAGES> at;
    wgmma_share s;
    s.expert = expert;
    s.part = block * B::WARPS + threadIdx.x / 32;
    s.from = alone ? blockIdx.z : 0;
    s.to = alone ? s.from + 1 : p.splits;
    constexpr uint32_t rows = B::TILES * CUDA_ACT_ROWS;
    for (uint32_t first = begin + blockIdx.x * rows; first < end; first += gridDim.x * rows) {
        s.first = first;
        s.n = end - first < rows ? end - first : rows;
        wgmma_rows<F, B>(p, s, ring, at);
    }
#else
    cuda_wait_before();
#endif
}

#endif
