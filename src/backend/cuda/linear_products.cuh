/* What the formats of weights are written with: bits as numbers, prepared activations as operands,
 * and products of a chunk by either of two instructions.
 *
 *      by_mma     one tile of 8 rows, by a warp: operands are registers, taken from shared memory
 * at once; a product is there when the call returns by_wgmma   16 tiles, by a warp and its three
 * neighbours: operands stay in shared memory; between begin and wait the registers belong to the
 * products
 *
 * A format's multiply is written once over either (By), so the order of sums is one. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_PRODUCTS_CUH
#define WEIR_BACKEND_CUDA_LINEAR_PRODUCTS_CUH

#include "backend/cuda/linear_layout.h"
#include "backend/cuda/wgmma.cuh"

#include <string.h>

/* --- bits --- */

template <class To, class From> static __device__ __forceinline__ To bits_of(From from)
{
    To to;
    static_assert(sizeof to == sizeof from, "of one size");
    memcpy(&to, &from, sizeof to);
    return to;
}
static __device__ __forceinline__ uint32_t half2_mul(uint32_t a, uint32_t b)
{
    return bits_of<uint32_t>(__hmul2(bits_of<__half2>(a), bits_of<__half2>(b)));
}
static __device__ __forceinline__ uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    return bits_of<uint32_t>(
        __hfma2(bits_of<__half2>(a), bits_of<__half2>(b), bits_of<__half2>(c)));
}
static __device__ __forceinline__ float low_half(uint32_t pair)
{
    return __half2float(__ushort_as_half(static_cast<unsigned short>(pair)));
}
static __device__ __forceinline__ float high_half(uint32_t pair)
{
    return __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
}
template <class T> static __device__ __forceinline__ T load(const uint8_t *p)
{
    return *reinterpret_cast<const T *>(p);
}
/* Byte i of a word, as a float; exact. */
static __device__ __forceinline__ float byte_float(uint32_t word, uint32_t i, float bias, float by)
{
    const float shifted = __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u + i)); /* + 2^23 */
    return __fmaf_rn(shifted, by, -(8388608.0f + bias) * by);
}

/* --- a lane's share of the activations of a chunk, for 8 rows --- */

struct act_values {
    uint32_t b[8]; /* two of each step */
};
static __device__ __forceinline__ act_values act_values_of(const uint8_t *act, uint32_t lane)
{
    act_values x;
    ldmatrix_x4(x.b, act + lane * 16);
    ldmatrix_x4(x.b + 4, act + 512 + lane * 16);
    return x;
}
/* The sums of 16 of a column that the lane has results of. */
static __device__ __forceinline__ float4 act_sums_of(const uint8_t *act, uint32_t column)
{
    return load<float4>(act + CUDA_ACT_SUMS + column * 16);
}

/* --- products of a chunk --- */

template <bool PAIR> struct by_mma {
    static constexpr uint32_t TILES = 1;
    const uint8_t *act;
    uint32_t lane;
    act_values x, lower_x;
    __device__ __forceinline__ by_mma(const uint8_t *from, uint32_t l) : act(from), lane(l)
    {
        x = act_values_of(act, lane);
        if constexpr (PAIR)
            lower_x = act_values_of(act + 1024, lane);
    }
    __device__ __forceinline__ const uint8_t *tile(uint32_t) const
    {
        return act;
    }
    /* Before the first product: d, and the n registers of A, have been written. */
    __device__ __forceinline__ void begin(float (*)[4], uint32_t *, uint32_t)
    {
    }
    __device__ __forceinline__ void f16(float (*d)[4], const uint32_t a[4], int step)
    {
        mma_f16(d[0], a, x.b + 2 * step);
    }
    __device__ __forceinline__ void lower_f16(float (*d)[4], const uint32_t a[4], int step)
    {
        mma_f16(d[0], a, lower_x.b + 2 * step);
    }
    __device__ __forceinline__ void bf16(float (*d)[4], const uint32_t a[4], int step)
    {
        mma_bf16(d[0], a, x.b + 2 * step);
    }
    __device__ __forceinline__ void lower_bf16(float (*d)[4], const uint32_t a[4], int step)
    {
        mma_bf16(d[0], a, lower_x.b + 2 * step);
    }
    /* With the sums in parts, which are 8 of K; a[2] and a[3] are 0. */
    __device__ __forceinline__ void sums(float (*d)[4], const uint32_t a[4])
    {
        const uint32_t b[2] = {load<uint32_t>(act + CUDA_ACT_PARTS + lane * 4), 0};
        mma_f16(d[0], a, b);
    }
    /* Until d holds what was multiplied. */
    __device__ __forceinline__ void wait(float (*)[4])
    {
    }
};

/* STRIDE: bytes from a tile of the chunk to the next. */
template <uint32_t STRIDE> struct by_wgmma {
    static constexpr uint32_t TILES = WGMMA_TILES;
    const uint8_t *act;
    uint64_t values;
    wgmma_group group;
    __device__ __forceinline__ by_wgmma(const uint8_t *from, uint32_t) : act(from)
    {
        values = wgmma_descriptor(wgmma_address(act), 128, STRIDE);
    }
    __device__ __forceinline__ const uint8_t *tile(uint32_t c) const
    {
        return act + c * STRIDE;
    }
    __device__ __forceinline__ void begin(float (*d)[4], uint32_t *a, uint32_t n)
    {
        wgmma_begin(group, d, a, n);
    }
    static constexpr uint64_t STEP = 256 / 16, LOWER = 1024 / 16; /* in a descriptor's units */
    __device__ __forceinline__ void f16(float (*d)[4], const uint32_t a[4], int step)
    {
        wgmma_f16(group, d, a, values + step * STEP);
    }
    __device__ __forceinline__ void lower_f16(float (*d)[4], const uint32_t a[4], int step)
    {
        wgmma_f16(group, d, a, values + step * STEP + LOWER);
    }
    __device__ __forceinline__ void bf16(float (*d)[4], const uint32_t a[4], int step)
    {
        wgmma_bf16(group, d, a, values + step * STEP);
    }
    __device__ __forceinline__ void lower_bf16(float (*d)[4], const uint32_t a[4], int step)
    {
        wgmma_bf16(group, d, a, values + step * STEP + LOWER);
    }
    /* The second piece, which zeros are multiplied with, is the first once more. */
    __device__ __forceinline__ void sums(float (*d)[4], const uint32_t a[4])
    {
        wgmma_f16(group, d, a, wgmma_descriptor(wgmma_address(act) + CUDA_ACT_PARTS, 0, STRIDE));
    }
    __device__ __forceinline__ void wait(float (*d)[4])
    {
        wgmma_wait(group, d);
    }
};

static __device__ __forceinline__ float value_of(float4 v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
/* The part of a step of 16, which starts at `zero` times the sums of x. */
template <class By>
static __device__ __forceinline__ void begin_step(
    const By &by, uint32_t lane, int step, float zero, float (*part)[4])
{
#pragma unroll
    for (uint32_t c = 0; c < By::TILES; c++) {
        const float4 s = act_sums_of(by.tile(c), lane % 4 * 2);
        const float4 t = act_sums_of(by.tile(c), lane % 4 * 2 + 1);
        part[c][0] = part[c][2] = __fmul_rn(value_of(s, step), zero);
        part[c][1] = part[c][3] = __fmul_rn(value_of(t, step), zero);
    }
}

#endif
