/* A row to operands, by a block: as linear_layout.h draws them, of what it has just computed
 * (rows_pack.cu) or of what others have (linear_act.cu, which has the arithmetic). How many threads
 * there are changes no bit. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_ACT_CUH
#define WEIR_BACKEND_CUDA_LINEAR_ACT_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/linear_tiles.cuh"

/* Of a block of whole warps, up to 1024 threads; once a kernel. */
static __device__ __forceinline__ float largest_of_block(float v)
{
    __shared__ float of_warp[32];
    for (int o = 16; o > 0; o /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        v = fmaxf(v, of_warp[i]);
    return v;
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

static __device__ __forceinline__ void store_piece(uint8_t *to, const uint32_t x[4])
{
    *reinterpret_cast<uint4 *>(to) = make_uint4(x[0], x[1], x[2], x[3]);
}

static __device__ __forceinline__ void store_f16(
    uint8_t *form, uint32_t row, uint32_t group, const float v[16], float scale)
{
    uint8_t *to = form + cuda_act_at(CUDA_ACT_F16, row, group * 16);
    uint32_t x[2][4]; /* of each piece; four of K are two numbers of both */
    float sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < 16; i += 2) {
        const __half a = __float2half_rn(__fmul_rn(v[i], scale));
        const __half b = __float2half_rn(__fmul_rn(v[i + 1], scale));
        sum = __fadd_rn(__fadd_rn(sum, __half2float(a)), __half2float(b));
        x[i / 2 % 2][i / 4] = bits_of<uint32_t>(__halves2half2(a, b));
    }
    store_piece(to, x[0]);
    store_piece(to + 128, x[1]);
    uint8_t *chunk = form + static_cast<size_t>(group / 4) * CUDA_ACT_F16_BYTES;
    const uint32_t at = (row * 4 + group % 4) * 4;
    const __half upper = __float2half_rn(sum);
    const __half lower = __float2half_rn(__fsub_rn(sum, __half2float(upper)));
    *reinterpret_cast<float *>(chunk + CUDA_ACT_SUMS + at) = sum;
    *reinterpret_cast<__half2 *>(chunk + CUDA_ACT_PARTS + at) = __halves2half2(upper, lower);
}

/* Two numbers as rounded, and in v what rounding left: nothing of an infinity. */
struct f16_rounding {
    static __device__ __forceinline__ uint32_t of(float v[2])
    {
        const __half2 h = __floats2half2_rn(v[0], v[1]);
        v[0] = isinf(v[0]) ? 0 : __fsub_rn(v[0], __low2float(h));
        v[1] = isinf(v[1]) ? 0 : __fsub_rn(v[1], __high2float(h));
        return bits_of<uint32_t>(h);
    }
};
struct bf16_rounding {
    static __device__ __forceinline__ uint32_t of(float v[2])
    {
        const __nv_bfloat162 h = __floats2bfloat162_rn(v[0], v[1]);
        v[0] = isinf(v[0]) ? 0 : __fsub_rn(v[0], __low2float(h));
        v[1] = isinf(v[1]) ? 0 : __fsub_rn(v[1], __high2float(h));
        return bits_of<uint32_t>(h);
    }
};
template <class Rounding>
static __device__ __forceinline__ void store_pair(
    uint8_t *form, uint32_t row, uint32_t group, const float v[16], float scale)
{
    uint8_t *to = form + cuda_act_at(CUDA_ACT_BF16_PAIR, row, group * 16);
    uint32_t upper[2][4], lower[2][4];
#pragma unroll
    for (uint32_t i = 0; i < 16; i += 2) {
        float a[2] = {__fmul_rn(v[i], scale), __fmul_rn(v[i + 1], scale)};
        upper[i / 2 % 2][i / 4] = Rounding::of(a);
        lower[i / 2 % 2][i / 4] = Rounding::of(a);
    }
    store_piece(to, upper[0]);
    store_piece(to + 128, upper[1]);
    store_piece(to + 1024, lower[0]);
    store_piece(to + 1024 + 128, lower[1]);
}

/* Whether any form wants to know a row's largest value. */
static __device__ __forceinline__ bool act_is_scaled(unsigned forms)
{
    return forms & (CUDA_ACT_F16 | CUDA_ACT_F16_PAIR);
}

/* Where row `row` of the rows at `data` lies, in tiles of 8. */
static __device__ __forceinline__ uint8_t *act_tile(uint8_t *data,
                                                    uint32_t row,
                                                    unsigned forms,
                                                    uint32_t k)
{
    return data + row / CUDA_ACT_ROWS * cuda_act_tile_bytes(forms, k);
}

/* in: k values, or NULL: zeros. largest: the largest finite |v|, of the values that this thread
 * knows. All threads of the block call, once they can read all values. */
static __device__ __forceinline__ void act_pack_row(
    const float *in, float largest, uint8_t *tile, uint32_t r, uint32_t k, unsigned forms)
{
    float scale = 1, factor = 1;
    if (act_is_scaled(forms)) {
        const int e = exponent_for(largest_of_block(largest));
        scale = power_of_two(e);
        factor = power_of_two(-e);
    }
    if (threadIdx.x == 0)
        *reinterpret_cast<float *>(tile + r * sizeof(float)) = factor;
    const uint32_t padded = cuda_chunks(k) * CUDA_CHUNK_K;
    for (uint32_t group = threadIdx.x; group < padded / 16; group += blockDim.x) {
        float v[16];
#pragma unroll
        for (uint32_t i = 0; i < 16; i += 4) {
            const uint32_t at = group * 16 + i;
            const float4 four = in && at < k ? load4(in, at, k) : make_float4(0, 0, 0, 0);
            v[i] = four.x;
            v[i + 1] = four.y;
            v[i + 2] = four.z;
            v[i + 3] = four.w;
        }
        if (forms & CUDA_ACT_F16)
            store_f16(tile + cuda_act_offset(forms, CUDA_ACT_F16, k), r, group, v, scale);
        if (forms & CUDA_ACT_F16_PAIR)
            store_pair<f16_rounding>(
                tile + cuda_act_offset(forms, CUDA_ACT_F16_PAIR, k), r, group, v, scale);
        if (forms & CUDA_ACT_BF16_PAIR)
            store_pair<bf16_rounding>(
                tile + cuda_act_offset(forms, CUDA_ACT_BF16_PAIR, k), r, group, v, 1);
        if (forms & CUDA_ACT_F32) {
            float *to = reinterpret_cast<float *>(tile + cuda_act_offset(forms, CUDA_ACT_F32, k)) +
                        static_cast<size_t>(r) * padded + group * 16;
#pragma unroll
            for (uint32_t i = 0; i < 16; i++)
                to[i] = v[i];
        }
    }
}

#endif
