/* What a format of weights is, and the products of a chunk with 8 rows of activations: one chain,
 * onto the sums of the whole range. What wgmma does for many rows (linear_wgmma.cuh) is the same
 * chain. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_PRODUCTS_CUH
#define WEIR_BACKEND_CUDA_LINEAR_PRODUCTS_CUH

#include "backend/cuda/linear_layout.h"
#include "backend/cuda/mma.cuh"

#include <string.h>

template <class To, class From> static __device__ __forceinline__ To bits_of(From from)
{
    To to;
    static_assert(sizeof to == sizeof from, "of one size");
    memcpy(&to, &from, sizeof to);
    return to;
}
template <class T> static __device__ __forceinline__ T load(const uint8_t *p)
{
    return *reinterpret_cast<const T *>(p);
}
template <class T> static __device__ __forceinline__ T load_once(const uint8_t *p)
{
    T v;
    static_assert(sizeof v == 4 || sizeof v == 8 || sizeof v == 16, "words");
    load_words_once<sizeof v / 4>(p, reinterpret_cast<uint32_t *>(&v));
    return v;
}
template <class T, bool ONCE>
static __device__ __forceinline__ T load_if(bool wanted, const uint8_t *p)
{
    T v = {};
    static_assert(sizeof v == 4 || sizeof v == 8 || sizeof v == 16, "words");
    load_words_if<sizeof v / 4, ONCE>(wanted, p, reinterpret_cast<uint32_t *>(&v));
    return v;
}

/* --- what a format is --- */

/* Weights of a chunk as they are multiplied: the operands of its four steps, f16 (bf16 of a pair),
 * each row's divided by its unit. */
struct linear_weights {
    uint32_t a[4][4];
};
/* A chunk, the `sub`th of its run, and the run's head, as a lane reads them: a plane of the chunk
 * holds the lanes' shares in order, an array of the head those of rows r and r + 8, r = 0..7, or
 * what all lanes have. ONCE: weights from memory, which nobody reads again soon (load_once). */
template <bool ONCE> struct linear_source {
    const uint8_t *head_at, *chunk_at;
    uint32_t sub, lane;
    template <class T> __device__ __forceinline__ T chunk(uint32_t plane) const
    {
        const uint8_t *at = chunk_at + plane + lane * sizeof(T);
        if constexpr (ONCE)
            return load_once<T>(at);
        else
            return load<T>(at);
    }
    template <class T> __device__ __forceinline__ T head(uint32_t array) const
    {
        return load<T>(head_at + array + lane / 4 * sizeof(T));
    }
    template <class T> __device__ __forceinline__ T of_all(uint32_t at) const
    {
        return load<T>(head_at + at);
    }
};
/* Once from memory, if it is wanted (load_words_if). */
struct linear_source_if {
    bool wanted;
    const uint8_t *head_at, *chunk_at;
    uint32_t sub, lane;
    template <class T> __device__ __forceinline__ T chunk(uint32_t plane) const
    {
        return load_if<T, true>(wanted, chunk_at + plane + lane * sizeof(T));
    }
    template <class T> __device__ __forceinline__ T head(uint32_t array) const
    {
        return load_if<T, false>(wanted, head_at + array + lane / 4 * sizeof(T));
    }
    template <class T> __device__ __forceinline__ T of_all(uint32_t at) const
    {
        return load_if<T, false>(wanted, head_at + at);
    }
};
/* PAIR: weights are bf16, and x is a sum of two. And there are
 *
 *      raw                  a lane's share of a chunk as it lies
 *      fetch(source, raw)   from memory: asks for all of it
 *      unpack(raw, w)       to operands */
#define LINEAR_FORMAT(name, pair)                                                                  \
    static constexpr uint32_t RUN = CUDA_RUN_##name, HEAD = CUDA_HEAD_##name,                      \
                              CHUNK = CUDA_CHUNK_##name;                                           \
    static constexpr bool PAIR = (pair)

/* --- products --- */

/* A lane's share of the activations of a chunk, for 8 rows: two registers of each step. */
struct act_values {
    uint32_t b[8];
};
/* From shared memory. */
static __device__ __forceinline__ act_values act_values_of(const uint8_t *act, uint32_t lane)
{
    act_values x;
    ldmatrix_x4(x.b, act + lane * 16);
    ldmatrix_x4(x.b + 4, act + 512 + lane * 16);
    return x;
}

/* From memory; act: where the lane's first word is. */
static __device__ __forceinline__ act_values act_values_at(const uint8_t *act)
{
    act_values x;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        x.b[i] = load<uint32_t>(act + i * 128);
    return x;
}

/* A chunk's products with a tile of 8 rows, onto sum: one chain. */
template <class F>
static __device__ __forceinline__ void linear_multiply(const linear_weights &w,
                                                       const act_values &x,
                                                       const act_values &lower,
                                                       float sum[4])
{
#pragma unroll
    for (int step = 0; step < 4; step++) {
        if constexpr (F::PAIR) {
            mma_bf16(sum, w.a[step], x.b + 2 * step);
            mma_bf16(sum, w.a[step], lower.b + 2 * step);
        } else {
            mma_f16(sum, w.a[step], x.b + 2 * step);
        }
    }
}

#endif
