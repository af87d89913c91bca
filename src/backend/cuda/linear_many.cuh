/* Many rows by mma: linear_many (linear_tiles.cuh says what it does, and why). */
#ifndef WEIR_BACKEND_CUDA_LINEAR_MANY_CUH
#define WEIR_BACKEND_CUDA_LINEAR_MANY_CUH

#include "backend/cuda/linear_few.cuh"

/* Parts of 16 outputs of a block; a warp has P parts and 8 tiles of 8 rows. */
static constexpr uint32_t MANY_PARTS = 8, MANY_TILES = 8;
static __host__ __device__ constexpr uint32_t many_tiles(uint32_t p)
{
    return 8 * p;
}
/* Heads on their way or in use, where `depth` chunks are. */
static __host__ __device__ constexpr uint32_t linear_heads(uint32_t run, uint32_t depth)
{
    return (depth + run - 2) / run + 1;
}

/* Chunks on their way: what leaves room for the totals, 64 KB of the wide 163 (32 of the least 99).
 */
template <class F> static __host__ __device__ constexpr uint32_t many_depth()
{
    return F::CHUNK > 1024 ? 2 : 3;
}
template <class F, uint32_t P> static __host__ __device__ constexpr uint32_t many_slot_bytes()
{
    return MANY_PARTS * F::CHUNK + many_tiles(P) * linear_size<F>::ACT_BYTES;
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
    uint32_t sub, slot, head_slot, act_step;

    static constexpr uint32_t HEADS = linear_heads(F::RUN, many_depth<F>());

    __device__ __forceinline__ uint8_t *chunk(uint32_t i, uint32_t part) const
    {
        return shared + i * many_slot_bytes<F, P>() + part * F::CHUNK;
    }
    __device__ __forceinline__ uint8_t *acts(uint32_t i, uint32_t tile) const
    {
        return chunk(i, MANY_PARTS) + tile * linear_size<F>::ACT_BYTES;
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
            for (uint32_t o = 0; has_tile[p] && o < linear_size<F>::ACT_BYTES; o += 512)
                cp_async_16(to + o, act[p] + o);
            act[p] += act_step;
        }
        slot = slot + 1 == many_depth<F>() ? 0 : slot + 1;
        if (++sub == F::RUN) {
            sub = 0;
            weights += linear_size<F>::RUN_BYTES;
            head_slot = head_slot + 1 == HEADS ? 0 : head_slot + 1;
        }
    }
};

/* A warp's share of the block. */
struct many_share {
    uint32_t part, parts, tile, tiles;
};
template <uint32_t P>
static __device__ __forceinline__ many_share many_share_of(uint32_t warp,
                                                           uint32_t parts,
                                                           uint32_t tiles)
{
    many_share s;
    s.part = warp * P % MANY_PARTS;
    s.tile = warp * P / MANY_PARTS * MANY_TILES;
    s.parts = s.part >= parts ? 0 : P < parts - s.part ? P : parts - s.part;
    s.tiles = s.tile >= tiles ? 0 : MANY_TILES < tiles - s.tile ? MANY_TILES : tiles - s.tile;
    return s;
}

/* The products of the stream's chunks, added to sum. Parts and tiles that are not there are
 * multiplied too, whatever shared memory holds (tiles by fours): nobody reads their sums, and
 * without branches independent products can follow each other. */
template <class F, uint32_t P>
static __device__ __forceinline__ void many_range(many_stream<F, P> &s,
                                                  const many_share &mine,
                                                  float (*sum)[4])
{
    constexpr uint32_t depth = many_depth<F>();
    const uint32_t n = s.left, tiles = __shfl_sync(0xffffffffu, mine.tiles, 0);
    for (uint32_t i = 0; i < depth - 1; i++) {
        s.bring();
        cp_async_commit();
    }
    uint32_t slot = 0, head = 0, sub = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        cp_async_wait<depth - 2>();
        __syncthreads();
        s.bring();
        cp_async_commit();
        linear_weights w[P];
#pragma unroll
        for (uint32_t r = 0; r < P; r++) {
            const linear_source<false> from = {
                s.head(head, mine.part + r), s.chunk(slot, mine.part + r), sub, s.lane};
            typename F::raw raw;
            F::fetch(from, raw);
            F::unpack(raw, w[r]);
        }
#pragma unroll
        for (uint32_t c = 0; c < MANY_TILES; c += 4) {
            if (c >= tiles)
                break;
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint8_t *act = s.acts(slot, mine.tile + c + e);
                const act_values x = act_values_of(act, s.lane);
                const act_values lower = F::PAIR ? act_values_of(act + 1024, s.lane) : x;
#pragma unroll
                for (uint32_t r = 0; r < P; r++)
                    linear_multiply<F>(w[r], x, lower, sum[r * MANY_TILES + c + e]);
            }
        }
        slot = slot + 1 == depth ? 0 : slot + 1;
        if (++sub == F::RUN) {
            sub = 0;
            head = head + 1 == many_stream<F, P>::HEADS ? 0 : head + 1;
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
 * first is stored: behind a store a load would have to wait. */
static constexpr uint32_t MANY_AT_ONCE = 8;
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
    const uint32_t r = e / (MANY_TILES * 4), c = e / 4 % MANY_TILES;
    static_assert(MANY_TILES * 4 % MANY_AT_ONCE == 0, "all of one part");
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
template <class F, uint32_t P>
static __device__ __forceinline__ void many_block(
    const linear_args &p, uint8_t *shared, uint32_t expert, uint32_t first, uint32_t n)
{
    constexpr uint32_t PER_WARP = P * MANY_TILES * 4; /* results of a lane */
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t part = blockIdx.x * MANY_PARTS, tile = first / CUDA_ACT_ROWS;
    const uint32_t parts = p.n_parts - part < MANY_PARTS ? p.n_parts - part : MANY_PARTS;
    const uint32_t tiles = (n + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS;
    const many_share mine = many_share_of<P>(warp, parts, tiles);
    many_stream<F, P> s;
    s.shared = shared;
    s.warp = warp;
    s.lane = lane;
    s.has_part = warp < parts;
    s.act_step = linear_act_step<F>(p);
    float *totals = reinterpret_cast<float *>(shared + many_ring_bytes<F, P>());
    const bool alone = p.scratch_rows > 0; /* this block has one range of all */
    const uint32_t split_end = alone ? blockIdx.z + 1 : p.splits;
    for (uint32_t split = alone ? blockIdx.z : 0; split < split_end; split++) {
        const uint32_t begin = p.runs * split / p.splits, end = p.runs * (split + 1) / p.splits;
        s.weights = linear_part(p, expert, part + warp) +
                    static_cast<size_t>(begin) * linear_size<F>::RUN_BYTES + lane * 16;
#pragma unroll
        for (uint32_t i = 0; i < P; i++) {
            s.has_tile[i] = warp + i * 8 < tiles;
            s.act[i] = linear_act<F>(p, tile + warp + i * 8) +
                       static_cast<size_t>(begin) * F::RUN * s.act_step + lane * 16;
        }
        s.left = (end - begin) * F::RUN;
        s.sub = s.slot = s.head_slot = 0;
        float sum[PER_WARP / 4][4] = {};
        many_range<F, P>(s, mine, sum);
#pragma unroll
        for (uint32_t e = 0; e < PER_WARP; e++) {
            float *total = totals + e * (LINEAR_WARPS * 32) + threadIdx.x;
            const float part_sum = sum[e / 4][e % 4];
            *total = alone || split == 0 ? part_sum : __fadd_rn(*total, part_sum);
        }
    }
    for (uint32_t e = 0; e < PER_WARP; e += MANY_AT_ONCE)
        many_store(p, mine, totals, expert, first, n, alone, e);
}

template <class F, uint32_t P>
static __device__ __forceinline__ void many_blocks(const linear_args &p, uint8_t *shared)
{
    constexpr uint32_t group = many_tiles(P) * CUDA_ACT_ROWS;
    const uint32_t expert = p.first ? blockIdx.y : 0;
    const uint32_t begin = p.first ? p.first[expert] : 0;
    const uint32_t end = p.first ? p.first[expert + 1] : *p.n_rows;
    const uint32_t step = p.first ? gridDim.z : gridDim.y;
    for (uint32_t g = p.first ? blockIdx.z : blockIdx.y; begin + g * group < end; g += step) {
        const uint32_t first = begin + g * group, left = end - first;
        many_block<F, P>(p, shared, expert, first, left < group ? left : group);
    }
}

/* grid: (groups of 128 outputs, groups of 64 P rows, ranges of K or heads), or with experts (..,
 * experts, blocks that share an expert's groups of rows); block: 8 warps. */
template <class F, uint32_t P>
static __global__ void __launch_bounds__(LINEAR_WARPS * 32, P == 1 ? 2 : 1)
    linear_many(const linear_args given)
{
    cuda_let_next_begin();
    cuda_wait_before();
    CUDA_SHARED(uint8_t, shared);
    const linear_args p = linear_of_head(given);
    many_blocks<F, P>(p, shared);
}

#endif
