/* Attention on tensor cores: KV of f16, bf16 and q8_0, heads up to 256; rows that are mostly alone,
 * and prompts where heads have more than 128 dims (others': attention_many.cu, the same bits).
 *
 * A block of four warps takes up to 16 x TILES queries of one KV head over tiles of 64 positions:
 *
 *      S = Q K^T      warp w has positions 16 w .. 16 w + 15 of the tile, all queries
 *      e = 2^(S - m)  rows' maxima meet in shared memory; e goes there as 16 bits
 *      A = A c + e V  warp w has dims w D / 4 .. (w + 1) D / 4, all queries
 *
 *                        positions of the tile
 *                        w0   w1   w2   w3             D / 4 dims of a warp
 *            queries   | S0 | S1 | S2 | S3 |  x  V  =  | A0 | A1 | A2 | A3 |
 *
 * so K and V are read from shared memory once for all queries, a lone row's block has the whole
 * tile's work in four parts.
 *
 * Precision: Q is multiplied by a power of two that brings a head's largest value to 64 .. 128 and
 * split into two terms of 16 bits, which hold 22 (of bf16 16) of its bits; S is exact but for that
 * and f32 sums. e is rounded to 16 bits. q8_0 becomes f16, a rounding by 2^-12 of what was rounded
 * by 2^-8 of its block's largest when it was stored. So the error is that of storing K and V and of
 * rounding e, while a product of 16 bits alone would round Q as well.
 *
 * Order: S sums dims by sixteens, high term before low; the maximum has none; l sums a thread's
 * four weights of a tile as ((a + b) + (c + d)), tiles in order, then lanes, then warps; A sums
 * positions by sixteens. All per query: neighbours change nothing, a tile that a query does not see
 * adds 0.
 *
 * Heads of other sizes than 64, 128 and 256 have zeros up to the next: more products, no more
 * bytes.
 *
 * Copies run ahead. Where the first tile lies is found before the kernel before has ended (it is
 * the step's arrays that say so), and it is on its way before the queries are taken, which come
 * with it. Where heads have up to 128 dims there is room for two tiles: the next comes while this
 * one is worked on, since a block has little to do and waits for copies. Else V comes while S is
 * computed, and the next K while e and A are. q8_0 goes through registers, as it has to be turned
 * into f16. Heads of 256 take 16 queries at a time where a block has only the least shared memory
 * (gpu.h): the same sums.
 *
 * Operations: 6, for Q has two terms, a query, position and dim. Bytes: K and V once for each
 * tile of queries. Bound on an H200: decode of heads of 128 in groups of 4 to 8 takes 192 mma for
 * 32 KiB, a third of the time that 4.8 TB/s allow them: memory's, some 80 %. */
#include "backend/cuda/attention_mma.cuh"

/* The first position of a range that is looked at. */
static __device__ __forceinline__ uint32_t begin_of(const attn_tile &t, uint32_t range)
{
    const uint32_t from = t.seen.from / STEP * STEP, begin = range * CUDA_ATTN_RANGE;
    return from > begin ? from : begin;
}

/* Where the first two tiles of a range lie. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void find_range(const attn_args &a,
                                                  const attn_tile &t,
                                                  uint32_t head_kv,
                                                  uint32_t range,
                                                  attn_shared<T, D, TILES> *s)
{
    const uint32_t pos = begin_of(t, range);
    find_rows(a, t, head_kv, pos, s->at[0]);
    find_rows(a, t, head_kv, pos + STEP, s->at[1]);
}

/* The first tile goes on its way. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void send_range(const attn_args &a, attn_shared<T, D, TILES> *s)
{
    __syncthreads(); /* it is known where it lies */
    load_rows<T, D>(a, s->at[0], 0, s->k[0]);
    if (attn_shared<T, D, TILES>::STAGES == 2)
        load_rows<T, D>(a, s->at[0], a.kv.half_bytes, s->v[0]);
    cp_async_commit();
}

/* One range, of which the first tile is on its way: m, l (a thread's share) and acc of all queries.
 */
template <class T, int D, int TILES>
static __device__ __forceinline__ void sum_range(const attn_args &a,
                                                 const attn_tile &t,
                                                 uint32_t head_kv,
                                                 uint32_t range,
                                                 int n_tiles,
                                                 attn_shared<T, D, TILES> *s,
                                                 attn_state<D, TILES> *st)
{
    const uint32_t end = (range + 1) * CUDA_ATTN_RANGE;
    const uint32_t last = end < t.seen.end ? end : t.seen.end;
    uint32_t pos = begin_of(t, range);
    begin_range(st);
    enum { STAGES = attn_shared<T, D, TILES>::STAGES };
    int turn = 0; /* of the tile at pos; the other one of `at` is the next tile's */
    for (; pos < last; pos += STEP, turn ^= 1) {
        const bool more = pos + STEP < last;
        const int stage = turn % STAGES, next = (turn + 1) % STAGES;
        const bool ahead = STAGES == 2 && more && is_q8<T>(a);
        q8_values<D> next_k, next_v;
        cp_async_wait<0>();
        __syncthreads(); /* K (and V) is there; the tile before has been read */
        if (STAGES == 1)
            load_rows<T, D>(a, s->at[turn], a.kv.half_bytes, s->v[0]);
        if (ahead) {
            fetch_q8(a, s->at[turn ^ 1], 0, &next_k);
            fetch_q8(a, s->at[turn ^ 1], a.kv.half_bytes, &next_v);
        } else if (STAGES == 2 && more) {
            load_rows<T, D>(a, s->at[turn ^ 1], 0, s->k[next]);
            load_rows<T, D>(a, s->at[turn ^ 1], a.kv.half_bytes, s->v[next]);
        }
        cp_async_commit();
        float x[TILES][2][4];
        no_scores(x);
        add_scores<T, D>(k_of_lane(s->k[stage]), s, 0, D, n_tiles, x);
        end_scores(a, s, x);
        slope_scores(a, s, n_tiles, pos, x);
        mask(s, n_tiles, pos, x, st);
        __syncthreads(); /* maxima are there; K has been read */
        find_rows(a, t, head_kv, pos + 2 * STEP, s->at[turn]);
        if (STAGES == 1 && more)
            load_rows<T, D>(a, s->at[turn ^ 1], 0, s->k[0]);
        cp_async_commit();
        weights<T>(s, n_tiles, x, st);
        if (STAGES == 1)
            cp_async_wait<1>();
        __syncthreads(); /* weights and V are there */
        add_values<T, D>(s->v[stage], s, 0, n_tiles, st->acc);
        if (ahead) {
            put_q8(next_k, s->k[next]);
            put_q8(next_v, s->v[next]);
        }
    }
    __syncthreads(); /* all has been read */
}

/* grid: [n_head_kv][tiles][splits] */
template <class T, int D, int TILES>
static __global__ void __launch_bounds__(THREADS, 2) attn_mma_kernel(struct attn_args a)
{
    cuda_let_next_begin();
    typedef attn_shared<T, D, TILES> shared;
    CUDA_SHARED(shared, s);
    const uint32_t head_kv = blockIdx.x, step = a.n_splits;
    uint32_t r0 = 0, r1 = 0, first = 1; /* nothing */
    attn_tile t = {};
    if (blockIdx.y < early_value(&a.step.counts->n_tiles)) {
        t = attn_tile_of(a, blockIdx.y);
        r0 = t.seen.from / CUDA_ATTN_RANGE;
        r1 = (t.seen.end - 1) / CUDA_ATTN_RANGE;
        first = r0 + (step + blockIdx.z - r0 % step) % step;
        if (first <= r1)
            find_range(a, t, head_kv, first, s);
    }
    if (a.kv.head_dim < D) { /* dims that the head lacks are zero */
        for (uint32_t i = threadIdx.x; i < sizeof(s->k) / 8; i += THREADS) /* both K and V */
            reinterpret_cast<uint4 *>(s->k)[i] = make_uint4(0, 0, 0, 0);
    }
    cuda_wait_before();
    if (first > r1 || (a.lone > 0 && t.n_query > a.lone))
        return;
    send_range(a, s);
    for (uint32_t q0 = 0; q0 < t.n_query; q0 += shared::QUERIES) {
        attn_state<D, TILES> st;
        float m[TILES][2], l[TILES][2];
        const int n_tiles = static_cast<int>((t.n_query - q0 + 15) / 16);
        load_queries<T, D, TILES>(a, t, head_kv, q0, s);
        begin_queries(a, t, q0, &st, m, l);
        for (uint32_t r = first; r <= r1; r += step) {
            if (q0 > 0 || r > first) { /* else it was sent before the queries */
                find_range(a, t, head_kv, r, s);
                send_range(a, s);
            }
            sum_range(a, t, head_kv, r, n_tiles, s, &st);
            sum_weights(s, &st);
            put_range<D>(a, t, head_kv, q0, r, r == r0, r == r1, &st, m, l);
        }
        __syncthreads(); /* queries have been read */
    }
}

/* --- the host's --- */

template <class T, int D, int TILES>
static void launch(const struct attn_args *a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = attn_mma_kernel<T, D, TILES>;
    constexpr size_t bytes = sizeof(attn_shared<T, D, TILES>);
    static_assert(bytes <= (D == 256 && TILES > 1 ? CUDA_SHARED_WIDE : CUDA_SHARED_LEAST),
                  "what a device has");
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    CUDA_LAUNCH_NEXT(kernel, grid, THREADS, bytes, stream, *a);
}

template <class T>
static void launch_for(
    const struct attn_args *a, dim3 grid, int few, uint32_t shared, cudaStream_t stream)
{
    const uint32_t dim = a->kv.head_dim;
    if (dim <= 64)
        launch<T, 64, 1>(a, grid, stream);
    else if (dim <= 128)
        launch<T, 128, 1>(a, grid, stream);
    else
        few || shared < CUDA_SHARED_WIDE ? launch<T, 256, 1>(a, grid, stream)
                                         : launch<T, 256, 2>(a, grid, stream);
}

void attn_mma_launch(const attn_args *a, dim3 grid, int few, uint32_t shared, cudaStream_t stream)
{
    if (a->kv.type == KV_IS_BF16)
        launch_for<__nv_bfloat16>(a, grid, few, shared, stream);
    else
        launch_for<__half>(a, grid, few, shared, stream);
}
