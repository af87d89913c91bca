/* The kernels of matrix products, over a format: how bytes become sums is the format's
 * (linear_block.cu, linear_k.cu, linear_half.cu), which bytes when is here.
 *
 * One sum, in one order, for any number of rows:
 *
 *     K is cut into `splits` ranges of whole runs, by n_in and n_out alone
 *     part[s]   = the products of range s, chunk by chunk from the first on    (Format::multiply)
 *     out       = (part[0] + part[1] + ... ) * factors (+ bias) (+ out)        (linear_value)
 *
 * and three ways to get it, chosen by the bounds of the launch, all of the same bits:
 *
 *     few rows    a warp for each 16 outputs and range, 8 rows: a block holds all ranges of its
 *                 outputs and adds them through shared memory. Weights stream to each warp through
 *                 a ring of its own, 4 chunks deep (3 where shared memory is scarce): no barrier
 *                 in the loop.
 *
 *                        outputs 0-15            16-31       (splits 4: 2 x 16 outputs a block)
 *                        warp 0  1  2  3         4 5 6 7
 *                   K   |--0--|--1--|--2--|--3--|
 *
 *                 Matrices that read the same rows (q, k, v; gate, up) are one grid, first all
 *                 blocks of the first.
 *
 *     many rows   a block for 128 outputs x 128 rows (or 64) goes through all ranges, 8 warps of 32
 * x 64 (16 x 64) each; at the end of a range the part is added to totals in shared memory. in
 * between, where that would leave processors idle: the same, but each range has its own block,
 * which leaves its part in scratch, and a second launch adds them (linear_merge).
 *
 *     on Hopper   many rows are multiplied by wgmma, which takes 64 outputs from four warps'
 * registers and 128 rows from shared memory where copies left them: a warp has 16 x 128. Only where
 * the device was seen to give mma's bits (wgmma_check.c).
 *
 * Bounds on an H200 (4.8 TB/s, 132 processors of 1.98 GHz with 4 schedulers): memory brings 18.4
 * bytes a clock and processor, so that in the time of 1 KB of weights 222 instructions can be made;
 * how many each format makes is in docs/DECISIONS.md. 16 warps with 3 chunks of 0.5 to 1 KB each on
 * their way (F16: 8 with 2 KB) are 26 to 52 KB a processor; 4.8 TB/s x 0.7 us need 25. Many rows: a
 * chunk is 512 mma of a block (8 parts x 16 tiles x 4; F16 1,024) against 23 KB (Q4_0) to 48 KB
 * (F16) that it brings in from the second-level cache, which binds before the products do. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_TILES_CUH
#define WEIR_BACKEND_CUDA_LINEAR_TILES_CUH

#include "backend/cuda/linear_launch.h"
#include "backend/cuda/linear_products.cuh"

/* --- copies to shared memory --- */

template <class F> struct linear_ring {
    static constexpr uint32_t RUN_BYTES = F::HEAD + F::RUN * F::CHUNK;
    /* Only values are kept where a format needs no sums. */
    static constexpr uint32_t ACT_BYTES = F::PAIR               ? CUDA_ACT_PAIR_BYTES
                                          : F::SUMS || F::PARTS ? CUDA_ACT_F16_BYTES
                                                                : CUDA_ACT_SUMS;
    static constexpr uint32_t VALUE_BYTES = F::PAIR ? CUDA_ACT_PAIR_BYTES : CUDA_ACT_SUMS;
    static constexpr uint32_t ACT_STRIDE = F::PAIR ? CUDA_ACT_PAIR_BYTES : CUDA_ACT_F16_BYTES;
};

/* Heads on their way or in use, where `depth` chunks are. */
static __host__ __device__ constexpr uint32_t linear_heads(uint32_t run, uint32_t depth)
{
    return (depth + run - 2) / run + 1;
}

/* --- few rows --- */

static constexpr uint32_t LINEAR_WARPS = 8;

/* DEPTH: chunks on their way or in use. */
template <class F, uint32_t DEPTH>
static __host__ __device__ constexpr uint32_t linear_few_warp_bytes()
{
    return DEPTH * (F::CHUNK + linear_ring<F>::ACT_BYTES) + (F::RUN == 1 ? DEPTH : 2) * F::HEAD;
}
template <class F, uint32_t DEPTH>
static __host__ __device__ constexpr uint32_t linear_few_shared_bytes()
{
    return LINEAR_WARPS * linear_few_warp_bytes<F, DEPTH>();
}

/* A warp's ring, and where in its range it is. Time goes in turns of DEPTH chunks, unrolled, so
 * that slots, and where a chunk of the turn lies, are known to the compiler. */
template <class F, uint32_t DEPTH> struct few_stream {
    /* of the turn's first run and chunk, at the lane's 16 bytes */
    const uint8_t *weights, *act;
    uint8_t *chunks, *acts, *heads; /* of shared memory */
    uint32_t lane;
    bool has_row, has_sums; /* the lane's share of values, of sums, is of a row that is there */
    uint32_t left;          /* chunks from the turn's first on */

    static constexpr uint32_t RUN_BYTES = linear_ring<F>::RUN_BYTES;
    static_assert(F::RUN == 1 || F::RUN == DEPTH, "a turn is whole runs");

    /* Bring chunk i of the turn, which may be of the next one, into slot i % DEPTH. */
    __device__ __forceinline__ void bring(uint32_t i, uint32_t turn) const
    {
        if (i >= left)
            return;
        const uint8_t *run = weights + i / F::RUN * RUN_BYTES;
        if constexpr (F::HEAD > 0) {
            if (i % F::RUN == 0 && lane * 16 < F::HEAD)
                cp_async_16(head(i, turn) + lane * 16, run);
        }
        const uint8_t *from = run + F::HEAD + i % F::RUN * F::CHUNK;
        uint8_t *to = chunks + i % DEPTH * F::CHUNK + lane * 16;
#pragma unroll
        for (uint32_t o = 0; o < F::CHUNK; o += 512) {
            if (o + 512 <= F::CHUNK || o + lane * 16 < F::CHUNK)
                cp_async_16(to + o, from + o);
        }
        from = act + i * linear_ring<F>::ACT_STRIDE;
        to = acts + i % DEPTH * linear_ring<F>::ACT_BYTES + lane * 16;
        if (has_row) {
#pragma unroll
            for (uint32_t o = 0; o < linear_ring<F>::VALUE_BYTES; o += 512)
                cp_async_16(to + o, from + o);
        }
        if constexpr (F::SUMS || F::PARTS) {
            if (has_sums)
                cp_async_16(to + CUDA_ACT_SUMS, from + CUDA_ACT_SUMS);
        }
    }
    /* The head of the run that chunk i of the turn is of. */
    __device__ __forceinline__ uint8_t *head(uint32_t i, uint32_t turn) const
    {
        return heads + (F::RUN == 1 ? i % DEPTH : (turn + i / F::RUN) % 2) * F::HEAD;
    }
    __device__ __forceinline__ void next_turn()
    {
        weights += DEPTH / F::RUN * RUN_BYTES;
        act += DEPTH * linear_ring<F>::ACT_STRIDE;
        left -= DEPTH;
    }
};

/* What rows `at` has: [first, first + n) of the places of the expert, or all. */
static __device__ __forceinline__ uint32_t linear_rows(const linear_args &p)
{
    return p.first ? p.first[p.n_expert] : *p.n_rows;
}

/* The product that this block is of, where each head has its own. */
static __device__ __forceinline__ linear_args linear_of_head(linear_args p)
{
    if (p.heads > 0) {
        p.w += blockIdx.z * p.matrix_bytes;
        p.act += blockIdx.z * p.act_head_bytes;
        p.out.p += static_cast<size_t>(blockIdx.z) * p.out_step;
    }
    return p;
}

/* The product of the group that block x is of, which of its blocks that is, and of which rows. */
static __device__ __forceinline__ linear_args linear_of_group(const linear_group &g,
                                                              uint32_t &block,
                                                              uint32_t &act_tile)
{
    const uint32_t at = blockIdx.x / g.tiles;
    uint32_t i = 0;
    while (at >= g.end[i])
        i++;
    block = at - (i > 0 ? g.end[i - 1] : 0);
    act_tile = blockIdx.x % g.tiles;
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

static __device__ __forceinline__ float linear_value(
    const linear_args &p, uint32_t expert, uint32_t j, float total, float factor)
{
    float v = __fmul_rn(__fmul_rn(total, p.unit), factor);
    if (p.factors)
        v = __fmul_rn(v, p.factors[expert]);
    return p.bias ? __fadd_rn(v, p.bias[static_cast<size_t>(expert) * p.n_out + j]) : v;
}
static __device__ __forceinline__ void linear_store(
    const linear_args &p, uint32_t expert, uint32_t row, uint32_t j, float total, float factor)
{
    float *out = p.out.p + row * p.out.stride + j;
    const float v = linear_value(p, expert, j, total, factor);
    *out = p.add ? __fadd_rn(*out, v) : v;
}
/* What undoes the scale of a row. */
static __device__ __forceinline__ float linear_factor(const linear_args &p, uint32_t row)
{
    if (!p.scaled)
        return 1;
    const uint8_t *tile = p.act + row / CUDA_ACT_ROWS * p.act_tile_bytes;
    return load<float>(tile + row % CUDA_ACT_ROWS * sizeof(float));
}

/* grid: (groups of 8 / splits x 16 outputs of each product x tiles of 8 rows, 1, 1 or heads); block: 8
 * warps. */
template <class F, uint32_t DEPTH>
static __global__ void __launch_bounds__(LINEAR_WARPS * 32) linear_few(const linear_group given)
{
    CUDA_SHARED(uint8_t, shared);
    uint32_t block, act_tile;
    const linear_args p = linear_of_group(given, block, act_tile);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t row = act_tile * CUDA_ACT_ROWS, n_rows = linear_rows(p);
    if (row >= n_rows)
        return;
    const uint32_t expert = p.first ? linear_expert_at(p, row) : 0;
    const uint32_t per_block = LINEAR_WARPS / p.splits, split = warp % p.splits;
    const uint32_t tile = block * per_block + warp / p.splits;
    const uint32_t begin = p.runs * split / p.splits, end = p.runs * (split + 1) / p.splits;

    const uint32_t rows = n_rows - row < CUDA_ACT_ROWS ? n_rows - row : CUDA_ACT_ROWS;
    few_stream<F, DEPTH> s;
    s.weights = p.w + expert * p.matrix_bytes + tile * p.part_bytes +
                static_cast<size_t>(begin) * linear_ring<F>::RUN_BYTES + lane * 16;
    s.act = p.act + act_tile * p.act_tile_bytes + p.act_offset +
            static_cast<size_t>(begin) * F::RUN * linear_ring<F>::ACT_STRIDE + lane * 16;
    s.chunks = shared + warp * linear_few_warp_bytes<F, DEPTH>();
    s.acts = s.chunks + DEPTH * F::CHUNK;
    s.heads = s.acts + DEPTH * linear_ring<F>::ACT_BYTES;
    s.lane = lane;
    s.has_row = lane % 8 < rows && (!p.place_row || p.place_row[row + lane % 8] != UINT32_MAX);
    /* a row's sums are 16 bytes, and so are its sums in parts */
    s.has_sums = s.has_row && (lane < 8 ? F::SUMS : lane < 16 && F::PARTS);
    s.left = tile < p.n_parts ? (end - begin) * F::RUN : 0;
    if (!__all_sync(0xffffffffu, s.has_row)) { /* zeros are multiplied where there is no row */
        for (uint32_t i = lane * 16; i < DEPTH * linear_ring<F>::ACT_BYTES; i += 512)
            *reinterpret_cast<uint4 *>(s.acts + i) = make_uint4(0, 0, 0, 0);
        __syncwarp();
    }
#pragma unroll
    for (uint32_t i = 0; i < DEPTH - 1; i++) {
        s.bring(i, 0);
        cp_async_commit();
    }

    float sum[1][4] = {};
    const uint32_t turns = (s.left + DEPTH - 1) / DEPTH;
#pragma unroll 1
    for (uint32_t turn = 0; turn < turns; turn++) {
#pragma unroll
        for (uint32_t i = 0; i < DEPTH; i++) {
            if (F::RUN > 1 || i < s.left) { /* a run's chunks are all there */
                cp_async_wait<DEPTH - 2>();
                __syncwarp(); /* chunk i is there for all lanes, all are done with the one before */
                s.bring(i + DEPTH - 1, turn);
                cp_async_commit();
                typename F::weights w;
                F::unpack(s.head(i, turn), s.chunks + i * F::CHUNK, i % F::RUN, lane, w);
                F::template multiply<by_mma<F::PAIR>>(
                    w, s.acts + i * linear_ring<F>::ACT_BYTES, lane, sum);
            }
        }
        s.next_turn();
    }

    __syncthreads(); /* the rings are done with */
    float *parts = reinterpret_cast<float *>(shared);
    for (uint32_t i = 0; i < 4; i++)
        parts[(warp * 4 + i) * 32 + lane] = sum[0][i];
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < per_block * 128; e += LINEAR_WARPS * 32) {
        /* e: output of 16 fastest, then row of 8, then part */
        const uint32_t output = e % 16, column = e / 16 % 8, part = e / 128;
        const uint32_t from = output % 8 * 4 + column / 2;
        const uint32_t reg = output / 8 * 2 + column % 2;
        const uint32_t j = (block * per_block + part) * CUDA_PART_ROWS + output;
        float total = parts[(part * p.splits * 4 + reg) * 32 + from];
        for (uint32_t i = 1; i < p.splits; i++)
            total = __fadd_rn(total, parts[((part * p.splits + i) * 4 + reg) * 32 + from]);
        if (column < rows && j < p.n_out)
            linear_store(p, expert, row + column, j, total, linear_factor(p, row + column));
    }
}

/* --- many rows --- */

/* Parts of 16 outputs of a block. */
static constexpr uint32_t MANY_PARTS = 8;
/* What a warp has of a block: by mma P parts and 8 tiles of 8 rows; by wgmma, of which four warps
 * of 64 outputs meet, a part and all 16 tiles. */
template <uint32_t P> struct many_by_mma {
    static constexpr uint32_t BLOCK = P, PARTS = P, TILES = 8;
    static constexpr bool WGMMA = false;
};
struct many_by_wgmma {
    static constexpr uint32_t BLOCK = 2, PARTS = 1, TILES = WGMMA_TILES;
    static constexpr bool WGMMA = true;
};
static __host__ __device__ constexpr uint32_t many_tiles(uint32_t p)
{
    return 8 * p;
}

/* Chunks on their way: what leaves room for the totals, 64 KB of the wide 163 (32 of the least 99).
 */
template <class F> static __host__ __device__ constexpr uint32_t many_depth()
{
    return F::PAIR ? 2 : 3;
}
template <class F, uint32_t P> static __host__ __device__ constexpr uint32_t many_slot_bytes()
{
    return MANY_PARTS * F::CHUNK + many_tiles(P) * linear_ring<F>::ACT_BYTES;
}
template <class F, uint32_t P> static __host__ __device__ constexpr uint32_t many_ring_bytes()
{
    return many_depth<F>() * many_slot_bytes<F, P>() +
           linear_heads(F::RUN, many_depth<F>()) * MANY_PARTS * F::HEAD;
}
template <class F, uint32_t P>
static __host__ __device__ constexpr uint32_t linear_many_shared_bytes()
{
    return many_ring_bytes<F, P>() + MANY_PARTS * many_tiles(P) * 128 * sizeof(float);
}

/* What a thread brings of a block's chunks: warp w brings part w, and tiles w and w + 8. */
template <class F, uint32_t P> struct many_stream {
    /* of the next run and chunk, at the lane's 16 bytes */
    const uint8_t *weights, *act[P];
    uint8_t *shared;
    uint32_t warp, lane;
    bool has_part, has_tile[P]; /* there is one for this warp */
    uint32_t left;              /* chunks of the range to bring */
    uint32_t sub, slot, head_slot;

    static constexpr uint32_t HEADS = linear_heads(F::RUN, many_depth<F>());

    __device__ __forceinline__ uint8_t *chunk(uint32_t i, uint32_t part) const
    {
        return shared + i * many_slot_bytes<F, P>() + part * F::CHUNK;
    }
    __device__ __forceinline__ uint8_t *acts(uint32_t i, uint32_t tile) const
    {
        return chunk(i, MANY_PARTS) + tile * linear_ring<F>::ACT_BYTES;
    }
    __device__ __forceinline__ uint8_t *head(uint32_t i, uint32_t part) const
    {
        return chunk(many_depth<F>(), 0) + (i * MANY_PARTS + part) * F::HEAD;
    }
    /* Bring the next chunk into the next slot; all threads of the block. */
    __device__ __forceinline__ void bring()
    {
        if (left == 0)
            return;
        left--;
        if (has_part) {
            if constexpr (F::HEAD > 0) {
                if (sub == 0 && lane * 16 < F::HEAD)
                    cp_async_16(head(head_slot, warp) + lane * 16, weights);
            }
            const uint8_t *from = weights + F::HEAD + sub * F::CHUNK;
            uint8_t *to = chunk(slot, warp) + lane * 16;
#pragma unroll
            for (uint32_t o = 0; o < F::CHUNK; o += 512) {
                if (o + 512 <= F::CHUNK || o + lane * 16 < F::CHUNK)
                    cp_async_16(to + o, from + o);
            }
        }
#pragma unroll
        for (uint32_t p = 0; p < P; p++) {
            uint8_t *to = acts(slot, warp + p * 8) + lane * 16;
#pragma unroll
            for (uint32_t o = 0; has_tile[p] && o < linear_ring<F>::ACT_BYTES; o += 512) {
                if (o + 512 <= linear_ring<F>::ACT_BYTES ||
                    o + lane * 16 < linear_ring<F>::ACT_BYTES)
                    cp_async_16(to + o, act[p] + o);
            }
            act[p] += linear_ring<F>::ACT_STRIDE;
        }
        slot = slot + 1 == many_depth<F>() ? 0 : slot + 1;
        if (++sub == F::RUN) {
            sub = 0;
            weights += linear_ring<F>::RUN_BYTES;
            head_slot = head_slot + 1 == HEADS ? 0 : head_slot + 1;
        }
    }
};

/* A warp's share of the block. */
struct many_share {
    uint32_t part, parts, tile, tiles;
};
template <class M>
static __device__ __forceinline__ many_share many_share_of(uint32_t warp,
                                                           uint32_t parts,
                                                           uint32_t tiles)
{
    many_share s;
    s.part = warp * M::PARTS % MANY_PARTS;
    s.tile = warp * M::PARTS / MANY_PARTS * M::TILES;
    s.parts = s.part >= parts ? 0 : M::PARTS < parts - s.part ? M::PARTS : parts - s.part;
    s.tiles = s.tile >= tiles ? 0 : M::TILES < tiles - s.tile ? M::TILES : tiles - s.tile;
    return s;
}

/* The products of the stream's chunks, added to sum. Parts and tiles that are not there are
 * multiplied too, whatever shared memory holds (tiles by fours): nobody reads their sums, and
 * without branches independent products can follow each other. */
template <class F, class M>
static __device__ __forceinline__ void many_range(many_stream<F, M::BLOCK> &s,
                                                  const many_share &mine,
                                                  float (*sum)[4])
{
    constexpr uint32_t depth = many_depth<F>(), P = M::PARTS;
    const uint32_t n = s.left, tiles = __shfl_sync(0xffffffffu, mine.tiles, 0);
    for (uint32_t i = 0; i < depth - 1; i++) {
        s.bring();
        cp_async_commit();
    }
    uint32_t slot = 0, head = 0, sub = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        cp_async_wait<depth - 2>();
        if constexpr (M::WGMMA)
            wgmma_see_shared();
        __syncthreads();
        s.bring();
        cp_async_commit();
        typename F::weights w[P];
#pragma unroll
        for (uint32_t r = 0; r < P; r++)
            F::unpack(s.head(head, mine.part + r), s.chunk(slot, mine.part + r), sub, s.lane, w[r]);
        if constexpr (M::WGMMA)
            F::template multiply<by_wgmma<linear_ring<F>::ACT_BYTES>>(
                w[0], s.acts(slot, 0), s.lane, sum);
#pragma unroll
        for (uint32_t c = 0; c < 8 && !M::WGMMA; c += 4) {
            if (c >= tiles)
                break;
#pragma unroll
            for (uint32_t e = 0; e < 4 * P; e++)
                F::template multiply<by_mma<F::PAIR>>(w[e % P],
                                                      s.acts(slot, mine.tile + c + e / P),
                                                      s.lane,
                                                      &sum[e % P * 8 + c + e / P]);
        }
        slot = slot + 1 == depth ? 0 : slot + 1;
        if (++sub == F::RUN) {
            sub = 0;
            head = head + 1 == many_stream<F, M::BLOCK>::HEADS ? 0 : head + 1;
        }
    }
    __syncthreads(); /* the ring is done with */
}

/* Of the lane's result i of part r and tile c: output and row. */
static __device__ __forceinline__ uint32_t many_output(const many_share &mine,
                                                       uint32_t r,
                                                       uint32_t i)
{
    return (mine.part + r) * CUDA_PART_ROWS + threadIdx.x % 32 / 4 + i / 2 * 8;
}
static __device__ __forceinline__ uint32_t many_row(const many_share &mine, uint32_t c, uint32_t i)
{
    return (mine.tile + c) * CUDA_ACT_ROWS + threadIdx.x % 4 * 2 + i % 2;
}

/* Results of a lane from `e` on. What they are multiplied by and added to is asked for before the
 * first is stored: behind a store a load would have to wait. (Of twice as many at once 260 bytes of
 * wgmma's registers for NVFP4 are spilled.) */
static constexpr uint32_t MANY_AT_ONCE = 8;
template <class M>
static __device__ __forceinline__ void many_store(const linear_args &p,
                                                  const many_share &mine,
                                                  const float *totals,
                                                  uint32_t expert,
                                                  uint32_t first,
                                                  uint32_t n,
                                                  bool alone,
                                                  uint32_t e)
{
    float v[MANY_AT_ONCE], old[MANY_AT_ONCE];
    const uint32_t r = e / (M::TILES * 4), c = e / 4 % M::TILES;
    static_assert(M::TILES * 4 % MANY_AT_ONCE == 0, "all of one part");
    if (r >= mine.parts)
        return;
    const uint32_t part = blockIdx.x * MANY_PARTS * CUDA_PART_ROWS;
#pragma unroll
    for (uint32_t i = 0; i < MANY_AT_ONCE; i++) {
        const uint32_t j = part + many_output(mine, r, i % 4);
        const uint32_t row = many_row(mine, c + i / 4, i % 4);
        const bool is_there = c + i / 4 < mine.tiles && j < p.n_out && row < n;
        v[i] = totals[(e + i) * (LINEAR_WARPS * 32) + threadIdx.x];
        old[i] = 0;
        if (is_there && !alone) {
            v[i] = linear_value(p, expert, j, v[i], linear_factor(p, first + row));
            if (p.add)
                old[i] = p.out.p[(first + row) * p.out.stride + j];
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < MANY_AT_ONCE; i++) {
        const uint32_t j = part + many_output(mine, r, i % 4);
        const uint32_t row = many_row(mine, c + i / 4, i % 4);
        if (c + i / 4 >= mine.tiles || j >= p.n_out || row >= n)
            continue;
        if (alone)
            p.scratch[(static_cast<size_t>(blockIdx.z) * p.scratch_rows + row + first) * p.n_out +
                      j] = v[i];
        else
            p.out.p[(first + row) * p.out.stride + j] = p.add ? __fadd_rn(old[i], v[i]) : v[i];
    }
}

/* Rows [first, first + n) of a matrix (or an expert's places), outputs from part blockIdx.x * 8 on.
 */
template <class F, class M>
static __device__ __forceinline__ void many_block(
    const linear_args &p, uint8_t *shared, uint32_t expert, uint32_t first, uint32_t n)
{
    constexpr uint32_t P = M::BLOCK, PER_WARP = M::PARTS * M::TILES * 4; /* results of a lane */
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t part = blockIdx.x * MANY_PARTS, tile = first / CUDA_ACT_ROWS;
    const uint32_t parts = p.n_parts - part < MANY_PARTS ? p.n_parts - part : MANY_PARTS;
    const uint32_t tiles = (n + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS;
    const many_share mine = many_share_of<M>(warp, parts, tiles);
    many_stream<F, P> s;
    s.shared = shared;
    s.warp = warp;
    s.lane = lane;
    s.has_part = warp < parts;
    float *totals = reinterpret_cast<float *>(shared + many_ring_bytes<F, P>());
    const bool alone = p.scratch_rows > 0; /* this block has one range of all */
    const uint32_t split_end = alone ? blockIdx.z + 1 : p.splits;
    for (uint32_t split = alone ? blockIdx.z : 0; split < split_end; split++) {
        const uint32_t begin = p.runs * split / p.splits, end = p.runs * (split + 1) / p.splits;
        s.weights = p.w + expert * p.matrix_bytes + (part + warp) * p.part_bytes +
                    static_cast<size_t>(begin) * linear_ring<F>::RUN_BYTES + lane * 16;
#pragma unroll
        for (uint32_t i = 0; i < P; i++) {
            s.has_tile[i] = warp + i * 8 < tiles;
            s.act[i] = p.act + (tile + warp + i * 8) * p.act_tile_bytes + p.act_offset +
                       static_cast<size_t>(begin) * F::RUN * linear_ring<F>::ACT_STRIDE + lane * 16;
        }
        s.left = (end - begin) * F::RUN;
        s.sub = s.slot = s.head_slot = 0;
        float sum[PER_WARP / 4][4] = {};
        many_range<F, M>(s, mine, sum);
#pragma unroll
        for (uint32_t e = 0; e < PER_WARP; e++) {
            float *total = totals + e * (LINEAR_WARPS * 32) + threadIdx.x;
            const float part_sum = sum[e / 4][e % 4];
            *total = alone || split == 0 ? part_sum : __fadd_rn(*total, part_sum);
        }
    }
    for (uint32_t e = 0; e < PER_WARP; e += MANY_AT_ONCE)
        many_store<M>(p, mine, totals, expert, first, n, alone, e);
}

template <class F, class M>
static __device__ __forceinline__ void many_blocks(const linear_args &p, uint8_t *shared)
{
    constexpr uint32_t group = many_tiles(M::BLOCK) * CUDA_ACT_ROWS;
    const uint32_t expert = p.first ? blockIdx.y : 0;
    const uint32_t begin = p.first ? p.first[expert] : 0;
    const uint32_t end = p.first ? p.first[expert + 1] : *p.n_rows;
    const uint32_t step = p.first ? gridDim.z : gridDim.y;
    for (uint32_t g = p.first ? blockIdx.z : blockIdx.y; begin + g * group < end; g += step) {
        const uint32_t first = begin + g * group, left = end - first;
        many_block<F, M>(p, shared, expert, first, left < group ? left : group);
    }
}

/* grid: (groups of 128 outputs, groups of 64 P rows, 1, splits or heads), or with experts (..,
 * experts, blocks that share an expert's groups of rows); block: 8 warps. */
template <class F, uint32_t P>
static __global__ void __launch_bounds__(LINEAR_WARPS * 32, P == 1 ? 2 : 1)
    linear_many(const linear_args given)
{
    CUDA_SHARED(uint8_t, shared);
    const linear_args p = linear_of_head(given);
    many_blocks<F, many_by_mma<P>>(p, shared);
}

/* As linear_many<F, 2>, by wgmma. Where there is none nothing is written. */
template <class F>
static __global__ void __launch_bounds__(LINEAR_WARPS * 32) linear_wgmma(const linear_args given)
{
#if WGMMA_HERE
    CUDA_SHARED(uint8_t, shared);
    const linear_args p = linear_of_head(given);
    many_blocks<F, many_by_wgmma>(p, shared);
#endif
}

/* --- launches --- */

/* Bytes beyond 48 KB have to be asked for; and that a processor has as many as can be, which decides
 * how many blocks it takes, is not left to the driver. */
template <class K> static void linear_allow(K *kernel, uint32_t shared_bytes)
{
    const void *f = reinterpret_cast<const void *>(kernel);
    cudaFuncSetAttribute(
        f, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    cudaFuncSetAttribute(
        f, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

template <class F, uint32_t P>
static void linear_launch_many(const linear_args &p, const linear_grid &g)
{
    constexpr uint32_t bytes = linear_many_shared_bytes<F, P>();
    static_assert(bytes <= (P == 1 ? CUDA_SHARED_LEAST : CUDA_SHARED_WIDE), "what a device has");
    linear_allow(linear_many<F, P>, bytes);
    CUDA_LAUNCH((linear_many<F, P>), dim3(g.x, g.y, g.z), LINEAR_WARPS * 32, bytes, g.stream, p);
}
template <class F> static void linear_launch_wgmma(const linear_args &p, const linear_grid &g)
{
    constexpr uint32_t bytes = linear_many_shared_bytes<F, 2>();
    linear_allow(linear_wgmma<F>, bytes);
    CUDA_LAUNCH(linear_wgmma<F>, dim3(g.x, g.y, g.z), LINEAR_WARPS * 32, bytes, g.stream, p);
}
static inline linear_group linear_group_of(const linear_args *p, const linear_grid &g)
{
    linear_group group = {};
    for (uint32_t i = 0; i < g.n; i++) {
        group.of[i] = p[i];
        group.end[i] = g.end[i];
    }
    group.tiles = g.y;
    return group;
}
template <class F, uint32_t DEPTH>
static void linear_launch_few(const linear_args *p, const linear_grid &g)
{
    constexpr uint32_t bytes = linear_few_shared_bytes<F, DEPTH>();
    static_assert(bytes <= (DEPTH < 4 ? CUDA_SHARED_LEAST : CUDA_SHARED_WIDE) - 16,
                  "what a device has, beside linear_expert_at's");
    linear_allow(linear_few<F, DEPTH>, bytes);
    CUDA_LAUNCH((linear_few<F, DEPTH>),
                dim3(g.x * g.y, 1, g.z),
                LINEAR_WARPS * 32,
                bytes,
                g.stream,
                linear_group_of(p, g));
}
template <class F> static void linear_launch(const linear_args *p, const linear_grid &g)
{
    if (g.kernel == LINEAR_WGMMA_128)
        return linear_launch_wgmma<F>(*p, g);
    if (g.kernel == LINEAR_MANY_128)
        return linear_launch_many<F, 2>(*p, g);
    if (g.kernel == LINEAR_MANY_64)
        return linear_launch_many<F, 1>(*p, g);
    if constexpr (linear_few_shared_bytes<F, 4>() + 16 > CUDA_SHARED_LEAST) {
        if (!g.wide)
            return linear_launch_few<F, 3>(p, g);
    }
    linear_launch_few<F, 4>(p, g);
}

#endif
