/* Attention on tensor cores where a tile of K and V is more than a block can hold: heads of more
 * than 256, and K and V in one row (a latent). KV of f16, bf16 and q8_0.
 *
 * As attention_mma.cu in all that is summed: S sums dims by sixteens in order, A positions by
 * sixteens, tiles of 64 positions in order. But K and V come in pieces of 128 dims, through a ring
 * of three: while one is multiplied the next two are on their way.
 *
 *      pieces of a tile    K0  K1  K2  K3 | V0  V1  V2  V3 | K0 ..          heads of 512
 *                          S  += Q K^T    |  A0  A1  A2  A3 += e V
 *                                         e = 2^(S - m)
 *
 *      ring                | K2 | K0 | K1 |     K0 being multiplied; all threads meet before K2
 *                                               takes the place of what came before K0
 *
 * With a latent the pieces of V are the first of K's, which come once more, from the second-level
 * cache. A warp has a quarter of each piece of V. Heads end within a piece: what is behind is zero
 * in K and Q up to the next 16 dims, and of V nobody's.
 *
 * A tile's queries are divided between blocks, 16 TILES each. Where rows are mostly alone, or a
 * block has the least shared memory (gpu.h), TILES is 1, else 2: the same sums.
 *
 * Operations and bytes: those of attention_mma.cu, K and V once for 16 TILES queries. Bound on an
 * H200 for decode with groups of up to 16: memory's 4.8 TB/s; with one latent for 128 heads four to
 * eight blocks read what one brought, so the second-level cache's; prompts: the same, 24 to 48
 * operations a byte of it. */
#include "backend/cuda/attention_mma.cuh"

static constexpr int PIECE = 128; /* dims that come at a time, */
static constexpr int PIECE_ROW = PIECE + PAD;
static constexpr int RING = 3;       /* pieces there is room for */
static constexpr int MOST_KEY = 640; /* CUDA_ATTN_MOST_KEY, in whole pieces */
static constexpr int MOST_VALUE = CUDA_ATTN_MOST_DIM;
static_assert(CUDA_ATTN_MOST_KEY <= MOST_KEY && MOST_VALUE % PIECE == 0, "whole pieces");

/* Shared memory of a block. */
template <class T, int TILES> struct long_shared {
    enum { QUERIES = 16 * TILES };
    T q[2][QUERIES][MOST_KEY + PAD];
    T ring[RING][STEP][PIECE_ROW];
    T e[QUERIES][STEP + PAD];
    float scale[QUERIES];
    float slope[QUERIES];
    uint32_t place[QUERIES];
    float meet[WARPS][QUERIES];
    const uint8_t *at[3][STEP]; /* where the rows of three tiles lie: as far ahead as pieces come */
};

/* The pieces of a range's tiles, numbered from the first. */
struct long_pieces {
    uint32_t of_key, of_tile, n;
};

/* Eight values of q8_0 as f16. */
static __device__ __forceinline__ void put_eight(const uint8_t *row,
                                                 uint32_t d,
                                                 uint32_t dim,
                                                 __half *to)
{
    const uint32_t *from = reinterpret_cast<const uint32_t *>(row + d);
    const uint32_t lower = from[0], upper = from[1];
    const float scale = reinterpret_cast<const float *>(row + dim)[d / 32];
    *reinterpret_cast<uint4 *>(to) = make_uint4(two_values(lower, 0, scale),
                                                two_values(lower, 2, scale),
                                                two_values(upper, 0, scale),
                                                two_values(upper, 2, scale));
}
static __device__ __forceinline__ void put_eight(const uint8_t *,
                                                 uint32_t,
                                                 uint32_t,
                                                 __nv_bfloat16 *)
{
}

/* 64 rows of dims first .. first + 127 of so many, `offset` bytes into a row: copies that the
 * caller waits for; q8_0 at once. Zeros where nobody looks, and behind the last up to the next 16.
 */
template <class T>
static __device__ __forceinline__ void load_piece(const attn_args &a,
                                                  const uint8_t *const *at,
                                                  size_t offset,
                                                  uint32_t first,
                                                  uint32_t n,
                                                  T (*to)[PIECE_ROW])
{
#pragma unroll
    for (int i = 0; i < STEP * (PIECE / 8) / THREADS; i++) {
        const uint32_t k = threadIdx.x + i * THREADS, p = k / (PIECE / 8), d = k % (PIECE / 8) * 8;
        const uint8_t *row = at[p];
        const bool there = row && first + d < n;
        if (first + d >= (n + 15) / 16 * 16)
            continue;
        if (!is_q8<T>(a))
            cp_async_16_fill(
                &to[p][d], there ? row + offset + (first + d) * 2 : a.kv.base, there ? 16 : 0);
        else if (there)
            put_eight(row + offset, first + d, a.kv.head_dim, &to[p][d]);
        else
            *reinterpret_cast<uint4 *>(&to[p][d]) = make_uint4(0, 0, 0, 0);
    }
}

/* Piece number i goes on its way, if there is one. */
template <class T, int TILES>
static __device__ __forceinline__ void send_piece(const attn_args &a,
                                                  const long_pieces &x,
                                                  uint32_t i,
                                                  long_shared<T, TILES> *s)
{
    const uint32_t tile = i / x.of_tile, k = i % x.of_tile;
    if (i < x.n && k < x.of_key)
        load_piece<T>(a, s->at[tile % 3], 0, k * PIECE, a.kv.head_dim, s->ring[i % RING]);
    else if (i < x.n)
        load_piece<T>(a,
                      s->at[tile % 3],
                      a.kv.latent ? 0 : a.kv.half_bytes,
                      (k - x.of_key) * PIECE,
                      a.n_value,
                      s->ring[i % RING]);
    cp_async_commit();
}

/* Piece number i, which has come; the one before it has been multiplied by all. */
template <class T, int TILES>
static __device__ __forceinline__ const T (*take_piece(
    const attn_args &a, const long_pieces &x, uint32_t i, long_shared<T, TILES> *s))[PIECE_ROW]
{
    cp_async_wait<RING - 2>();
    __syncthreads();
    send_piece(a, x, i + RING - 1, s);
    return s->ring[i % RING];
}

/* One range: m, l (a thread's share) and acc of all queries. */
template <class T, int TILES>
static __device__ __forceinline__ void sum_range(const attn_args &a,
                                                 const attn_tile &t,
                                                 uint32_t head_kv,
                                                 uint32_t range,
                                                 int n_tiles,
                                                 long_shared<T, TILES> *s,
                                                 attn_state<MOST_VALUE, TILES> *st)
{
    const uint32_t begin = range * CUDA_ATTN_RANGE, end = begin + CUDA_ATTN_RANGE;
    const uint32_t last = end < t.seen.end ? end : t.seen.end;
    const uint32_t n_value = (a.n_value + PIECE - 1) / PIECE;
    uint32_t pos = t.seen.from / STEP * STEP, i = 0;
    pos = pos > begin ? pos : begin;
    long_pieces x;
    x.of_key = (a.kv.head_dim + PIECE - 1) / PIECE;
    x.of_tile = x.of_key + n_value;
    x.n = (last - pos + STEP - 1) / STEP * x.of_tile;
    begin_range(st);
    find_rows(a, t, head_kv, pos, s->at[0]);
    find_rows(a, t, head_kv, pos + STEP, s->at[1]);
    __syncthreads();
    for (uint32_t k = 0; k < RING - 1; k++)
        send_piece(a, x, k, s);
    for (uint32_t tile = 0; pos < last; pos += STEP, tile++) {
        float scores[TILES][2][4];
        no_scores(scores);
        for (uint32_t k = 0; k < x.of_key; k++) {
            const int from = static_cast<int>(k * PIECE);
            const T(*piece)[PIECE_ROW] = take_piece(a, x, i++, s);
            add_scores<T, PIECE>(
                k_of_lane(piece), s, from, static_cast<int>(a.kv.head_dim) - from, n_tiles, scores);
        }
        end_scores(a, s, scores);
        slope_scores(a, s, n_tiles, pos, scores);
        mask(s, n_tiles, pos, scores, st);
        __syncthreads(); /* maxima are there */
        find_rows(a, t, head_kv, pos + 2 * STEP, s->at[(tile + 2) % 3]);
        weights<T>(s, n_tiles, scores, st);
#pragma unroll
        for (int k = 0; k < MOST_VALUE / PIECE; k++) {
            if (k >= static_cast<int>(n_value))
                break;
            const T(*piece)[PIECE_ROW] = take_piece(a, x, i++, s); /* weights are there, too */
            add_values<T, PIECE>(piece, s, k * (PIECE / 32), n_tiles, st->acc);
        }
    }
    __syncthreads(); /* all has been read */
}

/* grid: [n_head_kv * n_blocks][tiles][splits]; a tile's queries are divided between n_blocks. */
template <class T, int TILES>
static __global__ void __launch_bounds__(THREADS, TILES == 1 ? 2 : 1)
    attn_long_kernel(struct attn_args a, uint32_t n_blocks)
{
    cuda_let_next_begin();
    cuda_wait_before();
    typedef long_shared<T, TILES> shared;
    CUDA_SHARED(shared, s);
    if (blockIdx.y >= a.step.counts->n_tiles)
        return;
    const uint32_t head_kv = blockIdx.x / n_blocks, block = blockIdx.x % n_blocks;
    const attn_tile t = attn_tile_of(a, blockIdx.y);
    const uint32_t r0 = t.seen.from / CUDA_ATTN_RANGE, r1 = (t.seen.end - 1) / CUDA_ATTN_RANGE;
    const uint32_t step = a.n_splits, first = r0 + (step + blockIdx.z - r0 % step) % step;
    if (first > r1)
        return;
    for (uint32_t q0 = block * shared::QUERIES; q0 < t.n_query; q0 += n_blocks * shared::QUERIES) {
        attn_state<MOST_VALUE, TILES> st;
        float m[TILES][2], l[TILES][2];
        const int n_tiles = static_cast<int>((t.n_query - q0 + 15) / 16);
        load_queries<T, MOST_KEY, TILES>(a, t, head_kv, q0, s);
        begin_queries(a, t, q0, &st, m, l);
        for (uint32_t r = first; r <= r1; r += step) {
            sum_range(a, t, head_kv, r, n_tiles, s, &st);
            sum_weights(s, &st);
            put_range<PIECE>(a, t, head_kv, q0, r, r == r0, r == r1, &st, m, l);
        }
        __syncthreads(); /* queries have been read */
    }
}

/* --- the host's --- */

static constexpr uint32_t TILE_QUERIES =
    64; /* that a tile has, unless one row has more (attention.cu) */

uint32_t attn_long_blocks(uint32_t group, int few, uint32_t shared)
{
    const uint32_t each = few || shared < CUDA_SHARED_WIDE ? 16 : 32;
    const uint32_t most = few || group > TILE_QUERIES ? group : TILE_QUERIES;
    return (most + each - 1) / each;
}

template <class T, int TILES>
static void launch(const struct attn_args *a, dim3 grid, uint32_t n_blocks, cudaStream_t stream)
{
    const auto kernel = attn_long_kernel<T, TILES>;
    constexpr size_t bytes = sizeof(long_shared<T, TILES>);
    static_assert(bytes <= (TILES > 1 ? CUDA_SHARED_WIDE : CUDA_SHARED_LEAST), "what a device has");
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    grid.x *= n_blocks;
    CUDA_LAUNCH_NEXT(kernel, grid, THREADS, bytes, stream, *a, n_blocks);
}

void attn_long_launch(const attn_args *a, dim3 grid, int few, uint32_t shared, cudaStream_t stream)
{
    const uint32_t n = attn_long_blocks(a->group, few, shared);
    const bool one = few || shared < CUDA_SHARED_WIDE;
    if (a->kv.type == KV_IS_BF16)
        one ? launch<__nv_bfloat16, 1>(a, grid, n, stream)
            : launch<__nv_bfloat16, 2>(a, grid, n, stream);
    else
        one ? launch<__half, 1>(a, grid, n, stream) : launch<__half, 2>(a, grid, n, stream);
}
