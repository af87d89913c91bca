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
 * goes through registers, as it has to be turned into f16.
 *
 * What rounds where is written out (__fmul_rn, ...) wherever a compiler might fuse in one instance
 * of these templates what it does not in another.
 *
 * Operations: 6, for Q has two terms, a query, position and dim. Bytes: K and V once for each
 * tile of queries. Bound on an H200: decode of heads of 128 in groups of 4 to 8 takes 192 mma for
 * 32 KiB, a third of the time that 4.8 TB/s allow them: memory's, some 80 %; long prompts: tensor
 * cores' through mma.sync, some 60 % of what wgmma would reach, less the split. */
#include "backend/cuda/attention.cuh"
#include "backend/cuda/mma.cuh"

enum {
    THREADS = 128,
    WARPS = THREADS / WARP,
    STEP = 64, /* positions a tile */
    PAD = 8,   /* values a row of shared memory is longer, so that eight rows lie in all banks */
};

namespace
{
template <class T> struct half_of;
template <> struct half_of<__half> {
    enum { FROM_Q8 = 1 };
    static __device__ __forceinline__ __half of(float x)
    {
        return __float2half_rn(x);
    }
    static __device__ __forceinline__ float back(__half x)
    {
        return __half2float(x);
    }
    static __device__ __forceinline__ void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
    {
        mma_f16(d, a, b);
    }
};
template <> struct half_of<__nv_bfloat16> {
    enum { FROM_Q8 = 0 };
    static __device__ __forceinline__ __nv_bfloat16 of(float x)
    {
        return __float2bfloat16_rn(x);
    }
    static __device__ __forceinline__ float back(__nv_bfloat16 x)
    {
        return __bfloat162float(x);
    }
    static __device__ __forceinline__ void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
    {
        mma_bf16(d, a, b);
    }
};
} // namespace

template <class T> static __device__ __forceinline__ uint32_t pair(T a, T b)
{
    union {
        T x[2];
        uint32_t u;
    } both;
    both.x[0] = a;
    both.x[1] = b;
    return both.u;
}

/* Whether KV is q8_0, which becomes f16. */
template <class T> static __device__ __forceinline__ bool is_q8(const attn_args &a)
{
    return half_of<T>::FROM_Q8 && a.kv.type == KV_IS_Q8_0;
}

/* Shared memory of a block. */
template <class T, int D, int TILES> struct attn_shared {
    enum { QUERIES = 16 * TILES, ROW = D + PAD, WEIGHT_ROW = STEP + PAD };
    enum { STAGES = TILES == 1 && D <= 128 ? 2 : 1 }; /* tiles of K and V there is room for */
    T q[2][QUERIES][ROW];                             /* high terms, low terms */
    T k[STAGES][STEP][ROW];
    T v[STAGES][STEP][ROW];
    T e[QUERIES][WEIGHT_ROW];
    float scale[QUERIES];       /* of S: the head's power of two undone */
    float meet[WARPS][QUERIES]; /* what warps tell each other of rows */
    const uint8_t *at[2][STEP]; /* where a tile's rows lie; NULL: nobody looks there */
};

/* Where the 64 positions from pos on lie. */
static __device__ __forceinline__ void find_rows(
    const attn_args &a, const attn_tile &t, uint32_t head_kv, uint32_t pos, const uint8_t **at)
{
    if (threadIdx.x < STEP) {
        const uint32_t p = pos + threadIdx.x;
        const bool seen = p >= t.seen.from && p < t.seen.end;
        at[threadIdx.x] = seen ? kv_at(a.kv, t.table, head_kv, p) : NULL;
    }
}

static __device__ __forceinline__ uint32_t two_values(uint32_t four, int first, float scale)
{
    const int lower = static_cast<int8_t>(four >> (8 * first));
    const int upper = static_cast<int8_t>(four >> (8 * first + 8));
    return pair(__float2half_rn(static_cast<float>(lower) * scale),
                __float2half_rn(static_cast<float>(upper) * scale));
}

/* Values of q8_0 on their way: 8 of a row for each of its turns that a thread has. */
template <int D> struct q8_values {
    enum { N = STEP * (D / 8) / THREADS };
    uint32_t lower[N], upper[N];
    float scale[N];
};

/* 64 rows of K (or V, offset bytes on) as they lie; 0 where nobody looks. */
template <int D>
static __device__ __forceinline__ void fetch_q8(const attn_args &a,
                                                const uint8_t *const *at,
                                                size_t offset,
                                                q8_values<D> *x)
{
    const uint32_t dim = a.kv.head_dim;
#pragma unroll
    for (int i = 0; i < q8_values<D>::N; i++) {
        const uint32_t k = threadIdx.x + i * THREADS, d = k % (D / 8) * 8;
        const uint8_t *row = at[k / (D / 8)];
        x->lower[i] = x->upper[i] = 0;
        x->scale[i] = 0.0f;
        if (row && d < dim) {
            const uint32_t *from = reinterpret_cast<const uint32_t *>(row + offset + d);
            x->lower[i] = __ldg(from);
            x->upper[i] = __ldg(from + 1);
            x->scale[i] = __ldg(reinterpret_cast<const float *>(row + offset + dim) + d / 32);
        }
    }
}

template <int D>
static __device__ __forceinline__ void put_q8(const q8_values<D> &x, __half (*to)[D + PAD])
{
#pragma unroll
    for (int i = 0; i < q8_values<D>::N; i++) {
        const uint32_t k = threadIdx.x + i * THREADS;
        *reinterpret_cast<uint4 *>(&to[k / (D / 8)][k % (D / 8) * 8]) =
            make_uint4(two_values(x.lower[i], 0, x.scale[i]),
                       two_values(x.lower[i], 2, x.scale[i]),
                       two_values(x.upper[i], 0, x.scale[i]),
                       two_values(x.upper[i], 2, x.scale[i]));
    }
}
template <int D>
static __device__ __forceinline__ void put_q8(const q8_values<D> &, __nv_bfloat16 (*)[D + PAD])
{
}

/* 64 rows of K (or V, offset bytes on): copies that the caller waits for; q8_0 at once. */
template <class T, int D>
static __device__ __forceinline__ void load_rows(const attn_args &a,
                                                 const uint8_t *const *at,
                                                 size_t offset,
                                                 T (*to)[D + PAD])
{
    if (is_q8<T>(a)) {
        q8_values<D> x;
        fetch_q8(a, at, offset, &x);
        put_q8(x, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < STEP * (D / 8) / THREADS; i++) {
        const uint32_t k = threadIdx.x + i * THREADS, p = k / (D / 8), d = k % (D / 8) * 8;
        const uint8_t *row = at[p];
        if (d < a.kv.head_dim)
            cp_async_16_fill(&to[p][d], row ? row + offset + d * 2 : a.kv.base, row ? 16 : 0);
    }
}

/* Queries q0 on, each scaled by a power of two and split; a warp a query. */
template <class T, int D, int TILES>
static __device__ void load_queries(const attn_args &a,
                                    const attn_tile &t,
                                    uint32_t head_kv,
                                    uint32_t q0,
                                    attn_shared<T, D, TILES> *s)
{
    const uint32_t dim = a.kv.head_dim, lane = threadIdx.x % WARP;
    for (uint32_t i = threadIdx.x / WARP; i < 16 * TILES; i += WARPS) {
        const uint32_t at = q0 + i;
        const float *q = a.q.p + (t.first_row + at / a.group) * a.q.stride +
                         static_cast<size_t>(head_kv * a.group + at % a.group) * dim;
        float x[D / WARP], most = 0.0f;
#pragma unroll
        for (int j = 0; j < D / WARP; j++) {
            const uint32_t d = lane + j * WARP;
            x[j] = at < t.n_query && d < dim ? q[d] : 0.0f;
            most = fmaxf(most, fabsf(x[j]));
        }
        most = warp_max(most);
        /* 2^(133 - e) with e the exponent of the largest, as far as both powers are numbers */
        int exponent = 127 + 133 - (__float_as_int(most) >> 23);
        exponent = exponent < 1 || most == 0.0f ? 127 : exponent > 253 ? 253 : exponent;
        const float up = __int_as_float(exponent << 23);
        const float down = __int_as_float((254 - exponent) << 23);
#pragma unroll
        for (int j = 0; j < D / WARP; j++) {
            const float y = x[j] * up;
            const T high = half_of<T>::of(y);
            s->q[0][i][lane + j * WARP] = high;
            s->q[1][i][lane + j * WARP] = half_of<T>::of(y - half_of<T>::back(high));
        }
        if (lane == 0)
            s->scale[i] = a.cap > 0.0f ? down * a.scale / a.cap : down * a.scale * LOG2_E;
    }
}

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
                st->acc[i][d][h * 2] *= fade;
                st->acc[i][d][h * 2 + 1] *= fade;
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
    static_assert(bytes <= CUDA_BLOCK_SHARED, "what every device that is taken has");
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    CUDA_LAUNCH(kernel, grid, THREADS, bytes, stream, *a);
}

template <class T>
static void launch_for(const struct attn_args *a, dim3 grid, int few, cudaStream_t stream)
{
    const uint32_t dim = a->kv.head_dim;
    if (dim <= 64)
        few ? launch<T, 64, 1>(a, grid, stream) : launch<T, 64, 4>(a, grid, stream);
    else if (dim <= 128)
        few ? launch<T, 128, 1>(a, grid, stream) : launch<T, 128, 4>(a, grid, stream);
    else
        few ? launch<T, 256, 1>(a, grid, stream) : launch<T, 256, 2>(a, grid, stream);
}

void attn_mma_launch(const attn_args *a, dim3 grid, int few, cudaStream_t stream)
{
    if (a->kv.type == KV_IS_BF16)
        launch_for<__nv_bfloat16>(a, grid, few, stream);
    else
        launch_for<__half>(a, grid, few, stream);
}
