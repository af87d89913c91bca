/* What both kernels of the tensor cores' attention share (attention_mma.cu draws it; and
 * attention_long.cu): how queries, K and V come to shared memory - the two terms of a query, 64
 * rows of K or V as 16 bits, whatever they are stored as -, a tile's scores, weights and values,
 * and how a range ends.
 *
 *      q   [high, low][queries][D + PAD]      k, v   [stages][64 positions][D + PAD]
 *
 * Rows are PAD values longer than a head, so that eight of them lie in all banks (ldmatrix). What
 * rounds where is written out (__fmul_rn, ...) wherever a compiler might fuse in one instance of
 * these templates what it does not in another. Shared: attn_shared, or what has q, e, scale, slope,
 * place and meet as it does. */
#ifndef WEIR_BACKEND_CUDA_ATTENTION_MMA_CUH
#define WEIR_BACKEND_CUDA_ATTENTION_MMA_CUH

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
    float slope[QUERIES];       /* with ALiBi, of a query's head, */
    uint32_t place[QUERIES];    /* and its position */
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
            x->lower[i] = from[0];
            x->upper[i] = from[1];
            x->scale[i] = reinterpret_cast<const float *>(row + offset + dim)[d / 32];
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

/* Queries q0 on, each scaled by a power of two and split; a warp a query, and those of TOGETHER are
 * asked for before the first is needed. */
template <class T, int D, int TILES, class Shared>
static __device__ void load_queries(
    const attn_args &a, const attn_tile &t, uint32_t head_kv, uint32_t q0, Shared *s)
{
    constexpr uint32_t TOGETHER = D <= 128 ? 4 : D <= 256 ? 2 : 1;
    const uint32_t dim = a.kv.head_dim, lane = threadIdx.x % WARP;
    for (uint32_t from = threadIdx.x / WARP; from < 16 * TILES; from += TOGETHER * WARPS) {
        float values[TOGETHER][D / WARP];
#pragma unroll
        for (uint32_t k = 0; k < TOGETHER; k++) {
            const uint32_t at = q0 + from + k * WARPS;
            const float *q = a.q.p + (t.first_row + at / a.group) * a.q.stride +
                             static_cast<size_t>(head_kv * a.group + at % a.group) * dim;
#pragma unroll
            for (int j = 0; j < D / WARP; j++) {
                const uint32_t d = lane + j * WARP;
                values[k][j] = at < t.n_query && d < dim ? q[d] : 0.0f;
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < TOGETHER; k++) {
            const uint32_t i = from + k * WARPS, at = q0 + i;
            const float(&x)[D / WARP] = values[k];
            float most = 0.0f;
#pragma unroll
            for (int j = 0; j < D / WARP; j++)
                most = fmaxf(most, fabsf(x[j]));
            most = warp_max(most);
            /* 2^(133 - e) with e the exponent of the largest, as far as both powers are numbers */
            int exponent = 127 + 133 - (__float_as_int(most) >> 23);
            exponent = exponent < 1 || most == 0.0f ? 127 : exponent > 253 ? 253 : exponent;
            const float up = __int_as_float(exponent << 23);
            const float down = __int_as_float((254 - exponent) << 23);
#pragma unroll
            for (int j = 0; j < D / WARP; j++) {
                const float y = __fmul_rn(x[j], up);
                const T high = half_of<T>::of(y);
                s->q[0][i][lane + j * WARP] = high;
                s->q[1][i][lane + j * WARP] = half_of<T>::of(__fsub_rn(y, half_of<T>::back(high)));
            }
            if (lane == 0)
                s->scale[i] = a.cap > 0.0f ? down * a.scale / a.cap : down * a.scale * LOG2_E;
            if (lane == 0 && a.alibi > 0.0f) {
                s->slope[i] = attn_slope(a, head_kv * a.group + at % a.group);
                s->place[i] = t.first_pos + at / a.group;
            }
        }
    }
}

/* --- one tile: scores, weights, values --- */

/* S of 16 positions += n_dims (at most DIMS) dims of Q, from q_from on, times K: `k` is what the
 * lane loads first, the dims of a position follow each other. */
template <class T, int DIMS, int TILES, class Shared>
static __device__ __forceinline__ void add_scores(
    const T *k, const Shared *s, int q_from, int n_dims, int n_tiles, float (&x)[TILES][2][4])
{
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t row = lane / 8 % 2 * 8 + lane % 8, col = q_from + lane / 16 * 8;
#pragma unroll
    for (int d = 0; d < DIMS; d += 16) {
        if (d >= n_dims)
            break;
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
}

/* What a lane loads first of K for its warp's 16 positions, of rows of ROW values. */
template <class T, int ROW> static __device__ __forceinline__ const T *k_of_lane(const T (*k)[ROW])
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    return &k[warp * 16 + lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
}

/* S times what undoes the queries' powers; capped; in units of log2. */
template <int TILES, class Shared>
static __device__ __forceinline__ void end_scores(const attn_args &a,
                                                  const Shared *s,
                                                  float (&x)[TILES][2][4])
{
    const uint32_t g = threadIdx.x % WARP / 4;
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

/* With ALiBi: less what the distances from the tile at `pos` take off. */
template <int TILES, class Shared>
static __device__ __forceinline__ void slope_scores(
    const attn_args &a, const Shared *s, int n_tiles, uint32_t pos, float (&x)[TILES][2][4])
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4;
    const uint32_t first = pos + warp * 16 + lane % 4 * 2;
    if (!(a.alibi > 0.0f))
        return;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        if (i >= n_tiles)
            break;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const uint32_t row = i * 16 + g + (j % 4 < 2 ? 0 : 8), p = first + j / 4 * 8 + j % 2;
            float *y = &x[i][j / 4][j % 4];
            *y = attn_sloped(*y, s->slope[row], s->place[row], p);
        }
    }
}

template <int TILES> static __device__ __forceinline__ void no_scores(float (&x)[TILES][2][4])
{
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[i][j / 4][j % 4] = 0.0f;
}

/* A += e V of all 64 positions, of this warp's quarter of PIECE dims, which are acc[.][from] on. */
template <class T, int PIECE, int TILES, int N, class Shared>
static __device__ __forceinline__ void add_values(
    const T (*v)[PIECE + PAD], const Shared *s, int from, int n_tiles, float (&acc)[TILES][N][4])
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t row = lane / 8 % 2 * 8 + lane % 8, col = lane / 16 * 8;
    const T *mine = &v[row][warp * (PIECE / 4) + col];
#pragma unroll
    for (int p = 0; p < STEP; p += 16) {
        uint32_t e[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; i++)
            if (i < n_tiles)
                ldmatrix_x4(e[i], &s->e[i * 16 + row][p + col]);
#pragma unroll
        for (int d = 0; d < PIECE / 32; d += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, mine + p * (PIECE + PAD) + d * 8);
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                if (i >= n_tiles)
                    break;
                half_of<T>::mma(acc[i][from + d], e[i], b);
                half_of<T>::mma(acc[i][from + d + 1], e[i], b + 2);
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

/* Whom the thread's queries see, and that nothing was summed. */
template <int D, int TILES>
static __device__ __forceinline__ void begin_queries(const attn_args &a,
                                                     const attn_tile &t,
                                                     uint32_t q0,
                                                     attn_state<D, TILES> *st,
                                                     float (&m)[TILES][2],
                                                     float (&l)[TILES][2])
{
    const uint32_t g = threadIdx.x % WARP / 4;
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        const uint32_t at = q0 + i / 2 * 16 + g + i % 2 * 8;
        attn_seen *sees = &st->sees[i / 2][i % 2];
        sees->from = sees->end = 0;
        if (at < t.n_query)
            *sees = attn_sees(a, t.first_pos + at / a.group, t.all);
        m[i / 2][i % 2] = LEAST;
        l[i / 2][i % 2] = 0.0f;
    }
}

/* A range begins. */
template <int D, int TILES>
static __device__ __forceinline__ void begin_range(attn_state<D, TILES> *st)
{
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
}

/* Scores to weights, in shared memory, against the largest so far, which the tile may raise. */
template <class T, int D, int TILES, class Shared>
static __device__ __forceinline__ void weights(Shared *s,
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
template <int D, int TILES, class Shared>
static __device__ __forceinline__ void mask(
    Shared *s, int n_tiles, uint32_t pos, float (&x)[TILES][2][4], const attn_state<D, TILES> *st)
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

/* l over all threads that have a part of a query's: the same in all of them. */
template <int D, int TILES, class Shared>
static __device__ __forceinline__ void sum_weights(Shared *s, attn_state<D, TILES> *st)
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

/* A range's sums to a part, or folded into what `out` holds of the ranges before it. Each warp has
 * a quarter of each PIECE of D dims. */
template <int PIECE, int D, int TILES>
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
    const uint32_t dim = a.n_value, first = warp * (PIECE / 4) + lane % 4 * 2;
    enum { EACH = PIECE / 32 * 2 }; /* of a thread's values of a row, in a piece */
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
                const uint32_t d = j / EACH * PIECE + first + j % EACH / 2 * 8 + j % 2;
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

#endif
