/* What kernels of rows, attention and sampling share: sums over lanes in fixed trees, loads of four
 * values, and how many rows a launch is over.
 *
 * A butterfly adds lanes 16 apart, then 8, 4, 2, 1. Both partners add the same two numbers, so all
 * lanes end with the same bits; which lane holds what is the kernel's to say, by shapes alone. */
#ifndef WEIR_BACKEND_CUDA_DEVICE_CUH
#define WEIR_BACKEND_CUDA_DEVICE_CUH

#include "backend/cuda/rows.h"

static constexpr int WARP = 32;

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

/* The largest |x|; NaN where there is one, as its bits are above those of infinity. */
static __device__ __forceinline__ float warp_max_size(float x)
{
    uint32_t bits = __float_as_uint(fabsf(x));
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, bits, apart);
        bits = other > bits ? other : bits;
    }
    return __uint_as_float(bits);
}

/* The sum over a block of whole warps, the same in all threads. part: [WARP] of shared memory that
 * nobody reads any more. */
static __device__ __forceinline__ float block_sum_in(float x, float *part)
{
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    x = warp_sum(x);
    if (blockDim.x == WARP)
        return x;
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    return warp_sum(lane < blockDim.x / WARP ? part[lane] : 0.0f);
}
/* The same where an earlier sum of the block had the same part. */
static __device__ __forceinline__ float block_sum(float x, float *part)
{
    if (blockDim.x != WARP)
        __syncthreads();
    return block_sum_in(x, part);
}

/* A value, or a struct of 32-bit ones, of the step's arrays (step.h), which copies alone write: it
 * may be read before cuda_wait_before (gpu.h). From the second-level cache, as the first may still
 * hold the step's before. */
static __device__ __forceinline__ uint32_t early_value(const uint32_t *p)
{
    return __ldcg(p);
}
template <class T> static __device__ __forceinline__ T early_struct(const T *p)
{
    static_assert(sizeof(T) % sizeof(uint32_t) == 0, "of whole words");
    union {
        T whole;
        uint32_t word[sizeof(T) / sizeof(uint32_t)];
    } x;
#pragma unroll
    for (size_t i = 0; i < sizeof(T) / sizeof(uint32_t); i++)
        x.word[i] = early_value(reinterpret_cast<const uint32_t *>(p) + i);
    return x.whole;
}

static __host__ __device__ __forceinline__ bool aligned16(const void *p)
{
    return reinterpret_cast<size_t>(p) % 16 == 0;
}

/* x[i .. i + 4) of x[n], i < n a multiple of 4; zeros behind the end. */
static __device__ __forceinline__ float4 load4(const float *x, uint32_t i, uint32_t n)
{
    if (i + 4 <= n && aligned16(x))
        return *reinterpret_cast<const float4 *>(x + i);
    float4 v;
    v.x = x[i];
    v.y = i + 1 < n ? x[i + 1] : 0.0f;
    v.z = i + 2 < n ? x[i + 2] : 0.0f;
    v.w = i + 3 < n ? x[i + 3] : 0.0f;
    return v;
}

static __device__ __forceinline__ void store4(float *x, uint32_t i, uint32_t n, float4 v)
{
    if (i + 4 <= n && aligned16(x)) {
        *reinterpret_cast<float4 *>(x + i) = v;
        return;
    }
    x[i] = v.x;
    if (i + 1 < n)
        x[i + 1] = v.y;
    if (i + 2 < n)
        x[i + 2] = v.z;
    if (i + 3 < n)
        x[i + 3] = v.w;
}

/* Those of x[n]; zeros behind the end. */
static __device__ __forceinline__ float4 within4(float4 v, uint32_t i, uint32_t n)
{
    return make_float4(v.x, i + 1 < n ? v.y : 0.0f, i + 2 < n ? v.z : 0.0f, i + 3 < n ? v.w : 0.0f);
}

/* Threads of a block that sums n values, by fours: whole warps, a function of n alone. */
static constexpr uint32_t SUM_THREADS_MOST = 1024;
static inline uint32_t sum_threads(uint32_t n)
{
    const uint32_t threads = (n + 4 * WARP - 1) / (4 * WARP) * WARP;
    return threads < WARP ? WARP : threads > SUM_THREADS_MOST ? SUM_THREADS_MOST : threads;
}

/* How many rows the step has of a kind. */
static __device__ __forceinline__ uint32_t rows_of(const cuda_step &step, int rows)
{
    const cuda_counts *c = step.counts;
    return early_value(rows == CUDA_ROWS_ALL      ? &c->n_rows
                       : rows == CUDA_ROWS_LOGITS ? &c->n_logit_rows
                                                  : &c->n_hidden_rows);
}

/* A kernel over rows: its first parameters are the step and which rows, the others its own. */
#define LAUNCH_ROWS(kernel, grid, block, at, ...)                                                  \
    CUDA_LAUNCH_NEXT(kernel, grid, block, 0, (at)->stream, (at)->step, (at)->rows, __VA_ARGS__)

#endif
