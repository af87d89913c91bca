/* Rows of f32 to operands: as linear_layout.h draws them, once for all matrices that read them.
 *
 *      F16:   x = f16(v * 2^e), e such that the largest finite |v| of the row comes to 2^10..2^11:
 * far from overflow, sums of 16 too, and exact to 11 bits down to 2^-24 of the largest. sum of 16 =
 * the x as rounded, added in f32 from the first to the last; upper = f16(sum), lower = f16(sum -
 * upper). BF16:  upper = bf16(v), lower = bf16(v - upper). F32:   v.
 *
 * A block a row (or a head of it), 256 threads; a thread takes groups of 16 of K. Rows up to the
 * next multiple of 8 are filled with zeros. Numbers: 4 bytes in, 2.5 to 8.5 out for each value,
 * bound by memory (or by the launch, for few rows); the row's second reading comes from the caches.
 */
#include "backend/cuda/linear_tiles.cuh"

static constexpr uint32_t ACT_THREADS = 256;

/* Where the rows come from: row r of the step, or of a place (experts.h). */
struct act_source {
    struct cuda_buf in;
    const uint32_t *n_rows;    /* how many rows, or ... */
    const uint32_t *place_row; /* ... NULL, or the row of each place, UINT32_MAX: none */
    int by_place;              /* the buffer has places as rows */
};

static __device__ __forceinline__ float largest_of_block(float v)
{
    __shared__ float of_warp[ACT_THREADS / 32];
    for (int o = 16; o > 0; o /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    for (uint32_t i = 0; i < ACT_THREADS / 32; i++)
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

static __global__ void __launch_bounds__(ACT_THREADS) act_pack(const act_source src,
                                                               uint8_t *data,
                                                               uint32_t k,
                                                               unsigned forms,
                                                               uint32_t in_step,
                                                               size_t head_bytes)
{
    const uint32_t row = blockIdx.x, n_rows = *src.n_rows;
    if (row >= (n_rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS)
        return;
    uint32_t from = row < n_rows ? row : UINT32_MAX;
    if (src.place_row && from != UINT32_MAX) {
        from = src.place_row[row];
        if (from != UINT32_MAX && src.by_place)
            from = row;
    }
    const float *in = from == UINT32_MAX ? NULL
                                         : src.in.p + from * src.in.stride +
                                               static_cast<size_t>(blockIdx.y) * in_step;
    uint8_t *tile =
        data + blockIdx.y * head_bytes + row / CUDA_ACT_ROWS * cuda_act_tile_bytes(forms, k);
    const uint32_t r = row % CUDA_ACT_ROWS;
    float scale = 1, factor = 1;
    if (forms & (CUDA_ACT_F16 | CUDA_ACT_F16_PAIR)) {
        float largest = 0;
        for (uint32_t i = threadIdx.x; in && i < k; i += ACT_THREADS) {
            const float v = fabsf(in[i]);
            largest = v > largest && !isinf(v) ? v : largest;
        }
        const int e = exponent_for(largest_of_block(largest));
        scale = power_of_two(e);
        factor = power_of_two(-e);
    }
    if (threadIdx.x == 0)
        *reinterpret_cast<float *>(tile + r * sizeof(float)) = factor;
    const uint32_t padded = cuda_chunks(k) * CUDA_CHUNK_K;
    for (uint32_t group = threadIdx.x; group < padded / 16; group += ACT_THREADS) {
        float v[16];
#pragma unroll
        for (uint32_t i = 0; i < 16; i++)
            v[i] = in && group * 16 + i < k ? in[group * 16 + i] : 0;
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

static void launch(const cuda_at *at, const act_source &src, const cuda_act *act, uint32_t rows)
{
    const uint32_t padded = (rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    if (padded == 0)
        return;
    CUDA_LAUNCH(act_pack,
                dim3(padded, act->heads ? act->heads : 1),
                ACT_THREADS,
                0,
                at->stream,
                src,
                act->data,
                act->k,
                act->forms,
                act->in_step,
                cuda_act_bytes(act->forms, rows, act->k));
}

extern "C" void cuda_act_pack(const cuda_at *at, cuda_buf in, const cuda_act *act)
{
    const act_source src = {in, linear_row_count(at), NULL, 0};
    launch(at, src, act, linear_row_bound(at));
}

extern "C" void cuda_experts_pack(
    const cuda_at *at, const cuda_experts *x, cuda_buf in, int by_place, const cuda_act *act)
{
    const act_source src = {in, x->first + x->n_expert, x->place_row, by_place};
    launch(at, src, act, linear_place_bound(at, x));
}
