/* Attention on tensor cores: KV of f16, bf16 and q8_0, heads up to 256.
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
 * tile's work in four parts, and one code does both.
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
 * Copies run ahead. Where rows are mostly alone (TILES = 1) and heads have up to 128 dims there is
 * room for two tiles: the next comes while this one is worked on, since a block has little to do
 * and waits for copies. Else V comes while S is computed, and the next K while e and A are. q8_0
 * goes through registers, as it has to be turned into f16. Heads of 256 take 16 queries at a time
 * where a block has only the least shared memory (gpu.h): the same sums.
 *
 * What rounds where is written out (__fmul_rn, ...) wherever a compiler might fuse in one instance
 * of these templates what it does not in another.
 *
 * Operations: 6, for Q has two terms, a query, position and dim. Bytes: K and V once for each
 * tile of queries. Bound on an H200: decode of heads of 128 in groups of 4 to 8 takes 192 mma for
 * 32 KiB, a third of the time that 4.8 TB/s allow them: memory's, some 80 %; long prompts: tensor
 * cores' through mma.sync, some 60 % of what wgmma would reach, less the split. */
#include "backend/cuda/attention_mma.cuh"

/* S of 16 positions, times what undoes the queries' powers; capped; in units of log2. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void scores(const attn_args &a,
                                              const attn_shared<T, D, TILES> *s,
                                              int stage,
                                              int n_tiles,
                                              float (&x)[TILES][2][4])
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4;
    const T *k = &s->k[stage][warp * 16 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
    const uint32_t row = lane / 8 % 2 * 8 + lane % 8, col = lane / 16 * 8;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j / 4][j % 4] = 0.0f;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t b[4];
        ldmatrix_x4(b, k + d);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            if (i >= n_tiles)
                break;
            uint32_t high[4], low[4];
            ldmatrix_x4(high, &s->q[0][i * 16 + row][d + col]);
            ldmatrix_x4(low, &s->q[1][i * 16 + row][d + col]);
            half_of<T>::mma(x[i][0], high, b);
            half_of<T>::mma(x[i][1], high, b + 2);
            half_of<T>::mma(x[i][0], low, b);
            half_of<T>::mma(x[i][1], low, b + 2);
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const float upper = s->scale[i * 16 + g], lower = s->scale[i * 16 + g + 8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float *y = &x[i][j / 4][j % 4];
            *y = __fmul_rn(*y, j % 4 < 2 ? upper : lower);
            if (a.cap > 0.0f)
                *y = __fmul_rn(a.cap * LOG2_E, tanhf(*y));
        }
    }
}

/* A += e V: this warp's dims, all 64 positions. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void values(const attn_shared<T, D, TILES> *s,
                                              int stage,
                                              int n_tiles,
                                              float (&acc)[TILES][D / 32][4])
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const T *v = &s->v[stage][lane / 8 % 2 * 8 + lane % 8][warp * (D / 4)];
    const uint32_t row = lane / 8 % 2 * 8 + lane % 8, col = lane / 16 * 8;
#pragma unroll
    for (int p = 0; p < STEP; p += 16) {
        uint32_t e[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; i++)
            if (i < n_tiles)
                ldmatrix_x4(e[i], &s->e[i * 16 + row][p + col]);
#pragma unroll
        for (int d = 0; d < D / 32; d += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, v + p * (D + PAD) + d * 8 + lane / 16 * 8);
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                if (i >= n_tiles)
                    break;
                half_of<T>::mma(acc[i][d], e[i], b);
                half_of<T>::mma(acc[i][d + 1], e[i], b + 2);
            }
        }
    }
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
static __device__ __forceinline__ float quad_sum(float x)
{
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* What a thread keeps of the queries that it has: rows g and g + 8 of each 16. */
template <int D, int TILES> struct attn_state {
    attn_seen sees[TILES][2];
    float m[TILES][2], l[TILES][2];
    float acc[TILES][D / 32][4];
};

/* Scores to weights, in shared memory, against the largest so far, which the tile may raise. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void weights(attn_shared<T, D, TILES> *s,
                                               int n_tiles,
                                               float (&x)[TILES][2][4],
                                               attn_state<D, TILES> *st)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        if (i >= n_tiles)
            break;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t row = i * 16 + g + h * 8;
            float top = fmaxf(fmaxf(s->meet[0][row], s->meet[1][row]),
                              fmaxf(s->meet[2][row], s->meet[3][row]));
            top = fmaxf(top, st->m[i][h]);
            const float zero = top == LEAST ? 0.0f : top;
            const float fade = exp2f(__fsub_rn(st->m[i][h], zero));
            st->m[i][h] = top;
            float w[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                w[j] = exp2f(__fsub_rn(x[i][j / 2][h * 2 + j % 2], zero));
            st->l[i][h] = __fmaf_rn(
                st->l[i][h], fade, __fadd_rn(__fadd_rn(w[0], w[1]), __fadd_rn(w[2], w[3])));
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const uint32_t col = warp * 16 + j * 8 + lane % 4 * 2;
                *reinterpret_cast<uint32_t *>(&s->e[row][col]) =
                    pair(half_of<T>::of(w[2 * j]), half_of<T>::of(w[2 * j + 1]));
            }
#pragma unroll
            for (int d = 0; d < D / 32; d++) {
                st->acc[i][d][h * 2] = __fmul_rn(st->acc[i][d][h * 2], fade);
                st->acc[i][d][h * 2 + 1] = __fmul_rn(st->acc[i][d][h * 2 + 1], fade);
            }
        }
    }
}

/* Scores that a query does not see become -inf; its largest of this warp's goes to the others. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void mask(attn_shared<T, D, TILES> *s,
                                            int n_tiles,
                                            uint32_t pos,
                                            float (&x)[TILES][2][4],
                                            const attn_state<D, TILES> *st)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4;
    const uint32_t first = pos + warp * 16 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        if (i >= n_tiles)
            break;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = LEAST;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const uint32_t p = first + j / 2 * 8 + j % 2;
                float *y = &x[i][j / 2][h * 2 + j % 2];
                if (p < st->sees[i][h].from || p >= st->sees[i][h].end)
                    *y = LEAST;
                top = fmaxf(top, *y);
            }
            top = quad_max(top);
            if (lane % 4 == 0)
                s->meet[warp][i * 16 + g + h * 8] = top;
        }
    }
}

/* One range: m, l (a thread's share) and acc of all queries. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void sum_range(const attn_args &a,
                                                 const attn_tile &t,
                                                 uint32_t head_kv,
                                                 uint32_t range,
                                                 int n_tiles,
                                                 attn_shared<T, D, TILES> *s,
                                                 attn_state<D, TILES> *st)
{
    const uint32_t begin = range * CUDA_ATTN_RANGE, end = begin + CUDA_ATTN_RANGE;
    const uint32_t last = end < t.seen.end ? end : t.seen.end;
    uint32_t pos = t.seen.from / STEP * STEP;
    pos = pos > begin ? pos : begin;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            st->m[i][h] = LEAST;
            st->l[i][h] = 0.0f;
        }
#pragma unroll
        for (int j = 0; j < D / 32 * 4; j++)
            st->acc[i][j / 4][j % 4] = 0.0f;
    }
    enum { STAGES = attn_shared<T, D, TILES>::STAGES };
    int turn = 0; /* of the tile at pos; the other one of `at` is the next tile's */
    find_rows(a, t, head_kv, pos, s->at[0]);
    find_rows(a, t, head_kv, pos + STEP, s->at[1]);
    __syncthreads();
    load_rows<T, D>(a, s->at[0], 0, s->k[0]);
    if (STAGES == 2)
        load_rows<T, D>(a, s->at[0], a.kv.half_bytes, s->v[0]);
    cp_async_commit();
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
        scores(a, s, stage, n_tiles, x);
        mask(s, n_tiles, pos, x, st);
        __syncthreads(); /* maxima are there; K has been read */
        find_rows(a, t, head_kv, pos + 2 * STEP, s->at[turn]);
        if (STAGES == 1 && more)
            load_rows<T, D>(a, s->at[turn ^ 1], 0, s->k[0]);
        cp_async_commit();
        weights(s, n_tiles, x, st);
        if (STAGES == 1)
            cp_async_wait<1>();
        __syncthreads(); /* weights and V are there */
        values(s, stage, n_tiles, st->acc);
        if (ahead) {
            put_q8(next_k, s->k[next]);
            put_q8(next_v, s->v[next]);
        }
    }
    __syncthreads(); /* all has been read */
}

/* l over all threads that have a part of a query's: the same in all of them. */
template <class T, int D, int TILES>
static __device__ __forceinline__ void sum_weights(attn_shared<T, D, TILES> *s,
                                                   attn_state<D, TILES> *st)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4;
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const float l = quad_sum(st->l[i / 2][i % 2]);
        if (lane % 4 == 0)
            s->meet[warp][i / 2 * 16 + g + i % 2 * 8] = l;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const uint32_t row = i / 2 * 16 + g + i % 2 * 8;
        st->l[i / 2][i % 2] = __fadd_rn(__fadd_rn(s->meet[0][row], s->meet[1][row]),
                                        __fadd_rn(s->meet[2][row], s->meet[3][row]));
    }
    __syncthreads();
}

/* A range's sums to a part, or folded into what `out` holds of the ranges before it. */
template <int D, int TILES>
static __device__ __forceinline__ void put_range(const attn_args &a,
                                                 const attn_tile &t,
                                                 uint32_t head_kv,
                                                 uint32_t q0,
                                                 uint32_t range,
                                                 bool is_first,
                                                 bool is_last,
                                                 const attn_state<D, TILES> *st,
                                                 float (&m)[TILES][2],
                                                 float (&l)[TILES][2])
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t dim = a.kv.head_dim, first = warp * (D / 4) + lane % 4 * 2;
    const bool split = a.n_splits > 1;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t at = q0 + i * 16 + lane / 4 + h * 8;
            if (at >= t.n_query)
                continue;
            const uint32_t row = t.first_row + at / a.group;
            const uint32_t head = head_kv * a.group + at % a.group;
            float *out = a.out.p + row * a.out.stride + static_cast<size_t>(head) * dim;
            float old = 0.0f, more = 1.0f, inverse = 1.0f;
            if (split) {
                float *part = attn_part(a, row, head, range);
                if (warp == 0 && lane % 4 == 0) {
                    part[0] = st->m[i][h];
                    part[1] = st->l[i][h];
                }
                out = part + PART_HEAD;
            } else {
                attn_fold(&m[i][h], &l[i][h], st->m[i][h], st->l[i][h], &old, &more);
                if (is_last)
                    inverse = attn_inverse(a, head, m[i][h], l[i][h]);
            }
#pragma unroll
            for (int j = 0; j < D / 32 * 2; j++) {
                const uint32_t d = first + j / 2 * 8 + j % 2;
                if (d >= dim)
                    continue;
                float x = st->acc[i][j / 2][h * 2 + j % 2];
                if (!split && !is_first)
                    x = attn_fold_value(out[d], x, old, more);
                out[d] = !split && is_last ? attn_end_value(x, inverse) : x;
            }
        }
    }
}

/* grid: [n_head_kv][tiles][splits] */
template <class T, int D, int TILES>
static __global__ void __launch_bounds__(THREADS, 2) attn_mma_kernel(struct attn_args a)
{
    typedef attn_shared<T, D, TILES> shared;
    CUDA_SHARED(shared, s);
    if (blockIdx.y >= a.step.counts->n_tiles)
        return;
    const uint32_t head_kv = blockIdx.x, g = threadIdx.x % WARP / 4;
    const attn_tile t = attn_tile_of(a, blockIdx.y);
    const uint32_t r0 = t.seen.from / CUDA_ATTN_RANGE, r1 = (t.seen.end - 1) / CUDA_ATTN_RANGE;
    const uint32_t step = a.n_splits, first = r0 + (step + blockIdx.z - r0 % step) % step;
    if (first > r1)
        return;
    if (a.kv.head_dim < D) { /* dims that the head lacks are zero */
        for (uint32_t i = threadIdx.x; i < sizeof(s->k) / 8; i += THREADS) /* both K and V */
            reinterpret_cast<uint4 *>(s->k)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
    }
    for (uint32_t q0 = 0; q0 < t.n_query; q0 += shared::QUERIES) {
        attn_state<D, TILES> st;
        float m[TILES][2], l[TILES][2];
        const int n_tiles = static_cast<int>((t.n_query - q0 + 15) / 16);
        load_queries(a, t, head_kv, q0, s);
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            const uint32_t at = q0 + i / 2 * 16 + g + i % 2 * 8;
            attn_seen *sees = &st.sees[i / 2][i % 2];
            sees->from = sees->end = 0;
            if (at < t.n_query)
                *sees = attn_sees(a, t.first_pos + at / a.group, t.all);
            m[i / 2][i % 2] = LEAST;
            l[i / 2][i % 2] = 0.0f;
        }
        for (uint32_t r = first; r <= r1; r += step) {
            sum_range(a, t, head_kv, r, n_tiles, s, &st);
            sum_weights(s, &st);
            put_range(a, t, head_kv, q0, r, r == r0, r == r1, &st, m, l);
        }
        __syncthreads(); /* queries have been read */
    }
}

/* --- the host's --- */

uint32_t attn_mma_queries(uint32_t head_dim)
{
    return head_dim % 8 != 0 || head_dim > 256 ? 0 : head_dim <= 128 ? 64 : 32;
}

template <class T, int D, int TILES>
static void launch(const struct attn_args *a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = attn_mma_kernel<T, D, TILES>;
    constexpr size_t bytes = sizeof(attn_shared<T, D, TILES>);
    static_assert(bytes <= (D == 256 && TILES > 1 ? CUDA_SHARED_WIDE : CUDA_SHARED_LEAST),
                  "what a device has");
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    CUDA_LAUNCH(kernel, grid, THREADS, bytes, stream, *a);
}

template <class T>
static void launch_for(
    const struct attn_args *a, dim3 grid, int few, uint32_t shared, cudaStream_t stream)
{
    const uint32_t dim = a->kv.head_dim;
    if (dim <= 64)
        few ? launch<T, 64, 1>(a, grid, stream) : launch<T, 64, 4>(a, grid, stream);
    else if (dim <= 128)
        few ? launch<T, 128, 1>(a, grid, stream) : launch<T, 128, 4>(a, grid, stream);
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
