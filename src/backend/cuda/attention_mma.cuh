/* How queries, K and V come to shared memory for the tensor cores' attention (attention_mma.cu):
 * the two terms of a query, 64 rows of K or V as 16 bits, whatever they are stored as.
 *
 *      q   [high, low][queries][D + PAD]      k, v   [stages][64 positions][D + PAD]
 *
 * Rows are PAD values longer than a head, so that eight of them lie in all banks (ldmatrix). */
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
            const float y = __fmul_rn(x[j], up);
            const T high = half_of<T>::of(y);
            s->q[0][i][lane + j * WARP] = high;
            s->q[1][i][lane + j * WARP] = half_of<T>::of(__fsub_rn(y, half_of<T>::back(high)));
        }
        if (lane == 0)
            s->scale[i] = a.cap > 0.0f ? down * a.scale / a.cap : down * a.scale * LOG2_E;
    }
}

#endif
