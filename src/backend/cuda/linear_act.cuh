/* A row to operands, by a block: as linear_layout.h draws them, of what it has just computed
 * (rows_pack.cu) or of what others have (linear_act.cu, which has the arithmetic). A thread has
 * fours of the row (rows.cuh). How many threads there are changes no bit. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_ACT_CUH
#define WEIR_BACKEND_CUDA_LINEAR_ACT_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/linear_tiles.cuh"
#include "backend/cuda/rows.cuh"

/* Of a block of whole warps, up to 1024 threads, none below 0; once a kernel. */
static __device__ __forceinline__ float largest_of_block(float v)
{
    __shared__ float of_warp[WARP];
    v = warp_max(v);
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_max(threadIdx.x % WARP < blockDim.x / WARP ? of_warp[threadIdx.x % WARP] : 0.0f);
}

/* 2^e as a float, for e in -126..127. */
static __device__ __forceinline__ float power_of_two(int e)
{
    return __int_as_float((e + 127) << 23);
}
/* The e that brings the largest to 2^10..2^11, within what floats can undo. */
static __device__ __forceinline__ int exponent_for(float largest)
{
    if (largest == 0)
        return 0;
    const int e =
        static_cast<int>((__float_as_uint(largest) >> 23) & 255) - 127; /* -127: subnormal */
    return 10 - e < 126 ? 10 - e : 126;
}

/* The first two of four numbers of K, and the last two. */
static __device__ __forceinline__ void store_pieces(uint8_t *to, uint32_t first, uint32_t last)
{
    *reinterpret_cast<uint32_t *>(to) = first;
    *reinterpret_cast<uint32_t *>(to + 128) = last;
}

/* The four at i. */
static __device__ __forceinline__ void store_f16(uint8_t *to, float4 v, float scale)
{
    const __half2 first = __floats2half2_rn(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale));
    const __half2 last = __floats2half2_rn(__fmul_rn(v.z, scale), __fmul_rn(v.w, scale));
    store_pieces(to, bits_of<uint32_t>(first), bits_of<uint32_t>(last));
}

/* Two numbers as rounded, and in v what rounding left: nothing of an infinity. */
static __device__ __forceinline__ uint32_t round_to_bf16(float v[2])
{
    const __nv_bfloat162 h = __floats2bfloat162_rn(v[0], v[1]);
    v[0] = isinf(v[0]) ? 0 : __fsub_rn(v[0], __low2float(h));
    v[1] = isinf(v[1]) ? 0 : __fsub_rn(v[1], __high2float(h));
    return bits_of<uint32_t>(h);
}
static __device__ __forceinline__ void store_pair(uint8_t *to, float4 v)
{
    float first[2] = {v.x, v.y}, last[2] = {v.z, v.w};
    const uint32_t upper = round_to_bf16(first), upper_last = round_to_bf16(last);
    store_pieces(to, upper, upper_last);
    store_pieces(to + 1024, round_to_bf16(first), round_to_bf16(last));
}

/* Whether any form wants to know a row's largest value. */
static __device__ __forceinline__ bool act_is_scaled(unsigned forms)
{
    return forms & CUDA_ACT_F16;
}

/* Where a tile of 8 rows lies: its group, of so many tiles, and which of them it is. */
struct act_tile {
    uint8_t *group;
    uint32_t tiles, at;
};
static __device__ __forceinline__ act_tile
act_tile_of(uint8_t *data, uint32_t row, unsigned forms, uint32_t k, uint32_t group)
{
    const uint32_t tile = row / CUDA_ACT_ROWS, at = tile % group;
    return {data + (tile - at) * cuda_act_tile_bytes(forms, k), group, at};
}
/* Where value i of row 0..7 lies, in one of the forms of 16 bits. */
static __device__ __forceinline__ uint8_t *act_value_at(
    const act_tile &t, unsigned forms, unsigned form, uint32_t k, uint32_t row, uint32_t i)
{
    const size_t chunk = static_cast<size_t>(i / CUDA_CHUNK_K) * t.tiles + t.at;
    return t.group + t.tiles * cuda_act_offset(forms, form, k) +
           chunk * cuda_act_chunk_bytes(form) + cuda_act_in_chunk(row, i);
}

/* The largest finite |v| so far. */
static __device__ __forceinline__ float larger_size(float largest, float v)
{
    v = fabsf(v);
    return v > largest && !isinf(v) ? v : largest;
}
static __device__ __forceinline__ float larger_of_four(float largest, float4 v)
{
    largest = larger_size(larger_size(largest, v.x), v.y);
    return larger_size(larger_size(largest, v.z), v.w);
}

/* The four at i of the row of so many in its tile: values, 0 behind the end; forms that have no
 * scale. */
static __device__ __forceinline__ void act_store_unscaled(
    const act_tile &tile, uint32_t row, uint32_t i, float4 v, uint32_t k, unsigned forms)
{
    if (forms & CUDA_ACT_BF16_PAIR)
        store_pair(act_value_at(tile, forms, CUDA_ACT_BF16_PAIR, k, row, i), v);
    if (forms & CUDA_ACT_F32)
        *reinterpret_cast<float4 *>(
            tile.group + tile.tiles * cuda_act_offset(forms, CUDA_ACT_F32, k) +
            tile.at * cuda_act_form_bytes(CUDA_ACT_F32, k) +
            (static_cast<size_t>(row) * cuda_chunks(k) * CUDA_CHUNK_K + i) * sizeof(float)) = v;
}
/* All forms. */
static __device__ __forceinline__ void act_store_four(const act_tile &tile,
                                                      uint32_t row,
                                                      uint32_t i,
                                                      float4 v,
                                                      uint32_t k,
                                                      unsigned forms,
                                                      float scale)
{
    if (forms & CUDA_ACT_F16)
        store_f16(act_value_at(tile, forms, CUDA_ACT_F16, k, row, i), v, scale);
    act_store_unscaled(tile, row, i, v, k, forms);
}
static __device__ __forceinline__ void act_store_factor(const act_tile &tile,
                                                        uint32_t row,
                                                        float factor)
{
    *reinterpret_cast<float *>(tile.group + tile.at * CUDA_ACT_HEAD_BYTES + row * sizeof(float)) =
        factor;
}

/* in: k values, or NULL: zeros. All threads of the block call, once each can read its fours; r may
 * hold them. */
template <class Row>
static __device__ __forceinline__ void act_pack_row(
    Row &r, const float *in, const act_tile &tile, uint32_t row, uint32_t k, unsigned forms)
{
    float scale = 1, factor = 1, largest = 0;
    if (in)
        r.bring(in, k);
    if (act_is_scaled(forms)) {
        r.each(in ? k : 0, [&](uint32_t j, uint32_t i) {
            largest = larger_of_four(largest, r.take(in, j, i, k)); /* zeros behind the end */
        });
        const int e = exponent_for(largest_of_block(largest));
        scale = power_of_two(e);
        factor = power_of_two(-e);
    }
    if (threadIdx.x == 0)
        act_store_factor(tile, row, factor);
    r.each(cuda_chunks(k) * CUDA_CHUNK_K, [&](uint32_t j, uint32_t i) {
        const float4 v = in && i < k ? r.take(in, j, i, k) : make_float4(0, 0, 0, 0);
        act_store_four(tile, row, i, v, k, forms, scale);
    });
}

#endif
