/* Formats whose blocks of 32 have a scale: Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL MXFP4, and IQ4_XS; and
 * those that have one for 16: NVFP4, and those of grids (IQ1, IQ2, IQ3), as numbers of 4 bits with
 * a table.
 *
 *      w = d * (q - zero)   or   d * q + m          q as stored: 4, 5 or 8 bits, not negative
 *
 *      sum_k w x  =  sum over blocks:  d * (sum q x - zero * sum x)  (+ m * sum x)
 *
 * An integer q below 1024 is an f16 as it is: the bits of the integer are those of the subnormal
 * q * 2^-24, which tensor cores multiply exactly. So to unpack is to mask. Nibbles of the upper
 * half of a byte stay where they are and count 16 times as much; their block's scale is divided
 * by 16. The product of a block starts at -zero * sum x instead of 0, and the scale is applied to
 * it in f32:
 *
 *      part[16 outputs][8 rows] = -zero * sum x            (sums of 16 come with the activations)
 *      part += q[16][0..15]  x[0..15][8]                   mma, step 0
 *      part += q[16][16..31] x[16..31][8]                  mma, step 1
 *      acc  += d[16] * part                                fma, in f32
 *
 * A chunk of 64 (two blocks), Q4_0; l: lane, r = l / 4, k = 4 (l % 4); a nibble's step is its place
 *
 *      head  64 bytes    d of r: block 0, row r | 0, r + 8 | 1, r | 1, r + 8       (f16, for r =
 * 0..7) chunk 512 bytes   lane 0 | lane 1 | ... | lane 31, 16 bytes each: word 0  row r      steps
 * 0 (low nibbles) and 2 (high) word 1  row r + 8  steps 0 and 2 word 2  row r      steps 1 and 3
 *                        word 3  row r + 8  steps 1 and 3
 *      in a word        | k+3 | k+1 | k+2 | k+0 |   bytes, from the highest: masks leave pairs
 *
 * Fifth bits (Q5_0, Q5_1) are a word a lane behind; Q4_1, Q5_1 have m after d in the head; Q8_0 has
 * bytes q + 128; IQ4 has nibbles that a table of bytes is looked up with (value + 128); MXFP4's are
 * floats, whose bits are put where an f16 has them: 2^-14 times the value.
 *
 * Of grids (TABLE) the points are taken apart at load: a point has at most 16 different values, so
 * each becomes 4 bits, and a run's head ends with the 16 bytes (value + 128) that they mean. A
 * scale is of 16 values: each step has a part of its own, as in Q6_K.
 *
 *      head  336 bytes   d of r | r + 8, f32, r = 0..7 | for each chunk 64 bytes: scales, 8 for
 * each r, of r and r + 8 beside each other | table
 *
 * The file's 1.6 to 3.4 bits a weight become 4.7, all numbers exact.
 *
 * NVFP4 has MXFP4's floats and a scale of 16 of them, a float of 4 bits of exponent and 3 of
 * mantissa, which becomes an f16 by a shift: 2^-7 times the scale. What the sums are multiplied by
 * besides is of a matrix or expert (linear_args.factors).
 *
 * To add a format: its numbers in linear_layout.h, its packing in pack.c, a struct here, its line
 * in the table at the end and in linear_embed.cu.
 *
 * Numbers: the bound of linear_tiles.cuh; instructions for a chunk are in docs/DECISIONS.md. */
#include "backend/cuda/linear_tiles.cuh"

static constexpr float SUBNORMAL = 1.0f / (1 << 24);

/* Numbers of a chunk as operands of its four steps, scales of its two blocks for rows r and r + 8.
 */
struct block_weights {
    uint32_t a[4][4];
    float d[2][2];
    float m[2][2];
};

/* Sums of x: of a block, of the lane's two rows of activations. */
static __device__ __forceinline__ float2 block_sums(const uint8_t *act, uint32_t lane, int b)
{
    const float4 s = act_sums_of(act, lane % 4 * 2), t = act_sums_of(act, lane % 4 * 2 + 1);
    return b == 0 ? make_float2(__fadd_rn(s.x, s.y), __fadd_rn(t.x, t.y))
                  : make_float2(__fadd_rn(s.z, s.w), __fadd_rn(t.z, t.w));
}

/* ZERO: what q is counted from, in units of the first block's numbers; HIGH: how many times as much
 * the second's count. */
template <class By, int ZERO, int HIGH, bool MINS>
static __device__ __forceinline__ void multiply_blocks(block_weights &w,
                                                       const uint8_t *act,
                                                       uint32_t lane,
                                                       float (*sum)[4])
{
    By by(act, lane);
#pragma unroll
    for (int b = 0; b < 2; b++) {
        float part[By::TILES][4] = {};
#pragma unroll
        for (uint32_t c = 0; c < By::TILES && ZERO != 0; c++) {
            const float2 x = block_sums(by.tile(c), lane, b);
            const float zero = -ZERO * SUBNORMAL * (b == 0 ? 1 : HIGH);
            part[c][0] = part[c][2] = __fmul_rn(x.x, zero);
            part[c][1] = part[c][3] = __fmul_rn(x.y, zero);
        }
        by.begin(part, w.a[2 * b], 8);
        by.f16(part, w.a[2 * b], 2 * b);
        by.f16(part, w.a[2 * b + 1], 2 * b + 1);
        by.wait(part);
#pragma unroll
        for (uint32_t i = 0; i < By::TILES * 4; i++)
            sum[i / 4][i % 4] = __fmaf_rn(w.d[b][i % 4 / 2], part[i / 4][i % 4], sum[i / 4][i % 4]);
#pragma unroll
        for (uint32_t c = 0; c < By::TILES && MINS; c++) {
            const float2 x = block_sums(by.tile(c), lane, b);
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[c][i] = __fmaf_rn(w.m[b][i / 2], i % 2 ? x.y : x.x, sum[c][i]);
        }
    }
}

/* --- numbers --- */

/* Pairs of a register from nibbles; steps 2 and 3 stay 16 times as large. */
static __device__ __forceinline__ void unpack_nibbles(const uint8_t *chunk,
                                                      uint32_t lane,
                                                      uint32_t a[4][4])
{
    const uint4 q = load<uint4>(chunk + lane * 16);
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) { /* step i / 2 and i / 2 + 2, registers i % 2 and i % 2 + 2 */
        const uint32_t upper = words[i] >> 8;
        a[i / 2][i % 2] = words[i] & 0x000f000fu;
        a[i / 2][i % 2 + 2] = upper & 0x000f000fu;
        a[i / 2 + 2][i % 2] = words[i] & 0x00f000f0u;
        a[i / 2 + 2][i % 2 + 2] = upper & 0x00f000f0u;
    }
}
static __device__ __forceinline__ void unpack_fifth(const uint8_t *plane,
                                                    uint32_t lane,
                                                    uint32_t a[4][4])
{
    uint32_t even = load<uint32_t>(plane + lane * 4); /* steps 0, 2 */
    uint32_t odd = __byte_perm(even, 0, 0x2301u);     /* steps 1, 3 */
#pragma unroll
    for (int r = 0; r < 4; r++) {
        a[0][r] |= (even >> r) & 0x00100010u;
        a[1][r] |= (odd >> r) & 0x00100010u;
        a[2][r] |= (even >> r) & 0x01000100u;
        a[3][r] |= (odd >> r) & 0x01000100u;
    }
}
/* Two pairs from the four bytes of a word. */
static __device__ __forceinline__ void spread_bytes(uint32_t bytes, uint32_t a[4], int r)
{
    a[r] = __byte_perm(bytes, 0, 0x4140u);
    a[r + 2] = __byte_perm(bytes, 0, 0x4342u);
}
static __device__ __forceinline__ void unpack_bytes(const uint8_t *chunk,
                                                    uint32_t lane,
                                                    uint32_t a[4][4])
{
#pragma unroll
    for (int b = 0; b < 2; b++) {
        const uint4 q = load<uint4>(chunk + b * 512 + lane * 16);
        spread_bytes(q.x, a[2 * b], 0);
        spread_bytes(q.y, a[2 * b], 1);
        spread_bytes(q.z, a[2 * b + 1], 0);
        spread_bytes(q.w, a[2 * b + 1], 1);
    }
}
/* Bytes of a table, of the four nibbles in the low half of q (whose upper bits are cleared in low,
 * and moved down by one in upper: 4 where the upper eight are meant). */
static __device__ __forceinline__ uint32_t look_up(uint4 table, uint32_t low, uint32_t upper)
{
    const uint32_t first = __byte_perm(table.x, table.y, low);
    const uint32_t second = __byte_perm(table.z, table.w, low);
    return __byte_perm(first, second, 0x3210u + upper);
}
/* -127 -104 -83 -65 | -49 -35 -22 -10 | 1 13 25 38 | 53 69 89 113, each + 128 */
static __device__ __forceinline__ uint4 iq4_table()
{
    return make_uint4(0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u);
}
static __device__ __forceinline__ void unpack_indices(const uint8_t *chunk,
                                                      uint4 table,
                                                      uint32_t lane,
                                                      uint32_t a[4][4])
{
    const uint4 q = load<uint4>(chunk + lane * 16);
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) { /* steps i / 2 * 2 and the next, row r or r + 8 */
        const uint32_t low = words[i] & 0x77777777u, upper = (words[i] & 0x88888888u) >> 1;
        spread_bytes(look_up(table, low & 0xffffu, upper & 0xffffu), a[i / 2 * 2], i % 2);
        spread_bytes(look_up(table, low >> 16, upper >> 16), a[i / 2 * 2 + 1], i % 2);
    }
}
/* Sign, two bits of exponent and one of mantissa, at the top of an f16. */
static __device__ __forceinline__ uint32_t widen_fp4(uint32_t top)
{
    return (top & 0x80008000u) | ((top >> 3) & 0x0e000e00u);
}
static __device__ __forceinline__ void unpack_fp4(const uint8_t *chunk,
                                                  uint32_t lane,
                                                  uint32_t a[4][4])
{
    const uint4 q = load<uint4>(chunk + lane * 16);
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i / 2 * 2][i % 2] = widen_fp4(words[i] << 12);
        a[i / 2 * 2][i % 2 + 2] = widen_fp4(words[i] << 8);
        a[i / 2 * 2 + 1][i % 2] = widen_fp4(words[i] << 4);
        a[i / 2 * 2 + 1][i % 2 + 2] = widen_fp4(words[i]);
    }
}

/* --- scales --- */

/* Of both blocks, f16; by: 1, or what undoes that the second block's numbers are larger. */
static __device__ __forceinline__ void unpack_scales(uint2 of_blocks, float by, float d[2][2])
{
    d[0][0] = low_half(of_blocks.x);
    d[0][1] = high_half(of_blocks.x);
    d[1][0] = __fmul_rn(low_half(of_blocks.y), by);
    d[1][1] = __fmul_rn(high_half(of_blocks.y), by);
}
static __device__ __forceinline__ void unpack_mins(uint2 of_blocks, float m[2][2])
{
    m[0][0] = __fmul_rn(low_half(of_blocks.x), SUBNORMAL);
    m[0][1] = __fmul_rn(high_half(of_blocks.x), SUBNORMAL);
    m[1][0] = __fmul_rn(low_half(of_blocks.y), SUBNORMAL);
    m[1][1] = __fmul_rn(high_half(of_blocks.y), SUBNORMAL);
}

/* --- formats --- */

#define BLOCK_FORMAT(name, sums)                                                                   \
    static constexpr uint32_t RUN = CUDA_RUN_##name, HEAD = CUDA_HEAD_##name,                      \
                              CHUNK = CUDA_CHUNK_##name;                                           \
    static constexpr bool PAIR = false, SUMS = (sums), PARTS = false;                              \
    typedef block_weights weights

struct q8_0 {
    BLOCK_FORMAT(Q8_0, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        unpack_scales(load<uint2>(head + lane / 4 * 8), 1, w.d);
        unpack_bytes(chunk, lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 128, 1, false>(w, act, lane, sum);
    }
};

struct q4_0 {
    BLOCK_FORMAT(Q4_0, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        unpack_scales(load<uint2>(head + lane / 4 * 8), 1.0f / 16, w.d);
        unpack_nibbles(chunk, lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 8, 16, false>(w, act, lane, sum);
    }
};

struct q5_0 {
    BLOCK_FORMAT(Q5_0, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        unpack_scales(load<uint2>(head + lane / 4 * 8), 1.0f / 16, w.d);
        unpack_nibbles(chunk, lane, w.a);
        unpack_fifth(chunk + 512, lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 16, 16, false>(w, act, lane, sum);
    }
};

struct q4_1 {
    BLOCK_FORMAT(Q4_1, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        const uint4 scales = load<uint4>(head + lane / 4 * 16);
        unpack_scales(make_uint2(scales.x, scales.y), 1.0f / 16, w.d);
        unpack_mins(make_uint2(scales.z, scales.w), w.m);
        unpack_nibbles(chunk, lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 0, 16, true>(w, act, lane, sum);
    }
};

struct q5_1 {
    BLOCK_FORMAT(Q5_1, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        q4_1::unpack(head, chunk, sub, lane, w);
        unpack_fifth(chunk + 512, lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 0, 16, true>(w, act, lane, sum);
    }
};

struct iq4_nl {
    BLOCK_FORMAT(IQ4_NL, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        unpack_scales(load<uint2>(head + lane / 4 * 8), 1, w.d);
        unpack_indices(chunk, iq4_table(), lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 128, 1, false>(w, act, lane, sum);
    }
};

/* head: d of 16 rows, then for each chunk bytes scale + 32 as the others have d. */
struct iq4_xs {
    BLOCK_FORMAT(IQ4_XS, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        const uint32_t d = load<uint32_t>(head + lane / 4 * 4);
        const uint32_t scales = load<uint32_t>(head + 32 + sub * 32 + lane / 4 * 4);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            w.d[i / 2][i % 2] =
                __fmul_rn(i % 2 ? high_half(d) : low_half(d), byte_float(scales, i, 32, 1));
        unpack_indices(chunk, iq4_table(), lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 128, 1, false>(w, act, lane, sum);
    }
};

/* Numbers of a chunk, and a scale of each of its four steps for rows r and r + 8. */
struct step_weights {
    uint32_t a[4][4];
    float scale[4][2];
};

/* ZERO: what the numbers are counted from. */
template <class By, int ZERO>
static __device__ __forceinline__ void multiply_steps(step_weights &w,
                                                      const uint8_t *act,
                                                      uint32_t lane,
                                                      float (*sum)[4])
{
    By by(act, lane);
#pragma unroll
    for (int step = 0; step < 4; step++) {
        float part[By::TILES][4] = {};
        if constexpr (ZERO != 0)
            begin_step(by, lane, step, -ZERO * SUBNORMAL, part);
        by.begin(part, w.a[step], 4);
        by.f16(part, w.a[step], step);
        by.wait(part);
#pragma unroll
        for (uint32_t i = 0; i < By::TILES * 4; i++)
            sum[i / 4][i % 4] =
                __fmaf_rn(w.scale[step][i % 4 / 2], part[i / 4][i % 4], sum[i / 4][i % 4]);
    }
}

struct grid_table {
    static constexpr uint32_t RUN = CUDA_RUN_TABLE, HEAD = CUDA_HEAD_TABLE,
                              CHUNK = CUDA_CHUNK_TABLE;
    static constexpr bool PAIR = false, SUMS = true, PARTS = false;
    typedef step_weights weights; /* scale: d and all */
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        const float2 d = load<float2>(head + lane / 4 * 8);
        const uint2 s = load<uint2>(head + 64 + sub * 64 + lane / 4 * 8);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            w.scale[i / 2][i % 2] =
                __fmul_rn(i % 2 ? d.y : d.x, byte_float(i < 4 ? s.x : s.y, i % 4, 0, 1));
        unpack_indices(chunk, load<uint4>(head + 320), lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_steps<By, 128>(w, act, lane, sum);
    }
};

/* head: for each r the scales' bytes of steps 0 to 3, of r and r + 8 beside each other. */
struct nvfp4 {
    static constexpr uint32_t RUN = CUDA_RUN_NVFP4, HEAD = CUDA_HEAD_NVFP4,
                              CHUNK = CUDA_CHUNK_NVFP4;
    static constexpr bool PAIR = false, SUMS = false, PARTS = false;
    typedef step_weights weights;
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        const uint2 s = load<uint2>(head + lane / 4 * 8);
#pragma unroll
        for (int i = 0; i < 4;
             i++) { /* two bytes to the upper halves of 16 bits, and down by one */
            const uint32_t pair = __byte_perm(i < 2 ? s.x : s.y, 0, i % 2 ? 0x3424u : 0x1404u) >> 1;
            w.scale[i][0] = low_half(pair);
            w.scale[i][1] = high_half(pair);
        }
        unpack_fp4(chunk, lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_steps<By, 0>(w, act, lane, sum);
    }
};

/* head: exponents e of 2^(e - 128), as others have d. */
struct mxfp4 {
    BLOCK_FORMAT(MXFP4, false);
    static __device__ __forceinline__ float scale(uint32_t e)
    {
        return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        const uint32_t e = load<uint32_t>(head + lane / 4 * 4);
#pragma unroll
        for (int i = 0; i < 4; i++)
            w.d[i / 2][i % 2] = scale((e >> (8 * i)) & 255);
        unpack_fp4(chunk, lane, w.a);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_blocks<By, 0, 1, false>(w, act, lane, sum);
    }
};

/* The table of mxfp4 is of doubled values; nvfp4's scales are 2^-7 of what they stand for. */
extern "C" float linear_block_unit(int type)
{
    return type == CUDA_TYPE_MXFP4   ? 32768.0f
           : type == CUDA_TYPE_NVFP4 ? 4194304.0f
                                     : 1 / SUBNORMAL;
}

extern "C" void linear_block_launch(int type, const linear_args *p, const linear_grid *g)
{
    switch (type) {
    case CUDA_TYPE_Q8_0:
        return linear_launch<q8_0>(p, *g);
    case CUDA_TYPE_Q4_0:
        return linear_launch<q4_0>(p, *g);
    case CUDA_TYPE_Q4_1:
        return linear_launch<q4_1>(p, *g);
    case CUDA_TYPE_Q5_0:
        return linear_launch<q5_0>(p, *g);
    case CUDA_TYPE_Q5_1:
        return linear_launch<q5_1>(p, *g);
    case CUDA_TYPE_IQ4_NL:
        return linear_launch<iq4_nl>(p, *g);
    case CUDA_TYPE_IQ4_XS:
        return linear_launch<iq4_xs>(p, *g);
    case CUDA_TYPE_TABLE:
        return linear_launch<grid_table>(p, *g);
    case CUDA_TYPE_NVFP4:
        return linear_launch<nvfp4>(p, *g);
    default:
        return linear_launch<mxfp4>(p, *g);
    }
}
