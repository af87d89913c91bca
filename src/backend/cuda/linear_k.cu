/* Formats of super-blocks of 256 with integer scales: Q4_K Q5_K Q2_K Q3_K, and Q6_K.
 *
 *      w = d * scale * q - dmin * min       a scale and a min for 32 (Q4_K, Q5_K) or 16 (Q2_K) of K
 *      w = d * scale * (q - 4)              for 16 (Q3_K)
 *      w = d * scale * (q - 32)             for 16 (Q6_K)
 *
 * scale * q is at most 63 * 31: an f16 holds it exactly. So scales are multiplied into the numbers,
 * two at a time, and a chunk of 64 is one chain of products, with one use of d:
 *
 *      part[16 outputs][8 rows] = 0
 *      part += (scale q)[16][16]  x[16][8]            mma, steps 0..3
 *      acc  += d[16] * part                           fma, in f32
 *
 * and the mins are a product of their own: 16 outputs x the four sums of 16 of x, each sum as two
 * f16 that add up (22 bits), so that K is 8 of an mma's 16:
 *
 *      low  = 0;  low += min[16][2 x 4]  sums[2 x 4][8];     acc -= dmin[16] * low
 *
 * Q6_K's scale * (q - 32) needs 13 bits. There each step of 16 has a part of its own, which starts
 * at -32 * sum x, and scale and d are applied in f32.
 *
 * Integers are f16 subnormals as they are, 2^-24 each (linear_block.cu); what stays in the upper
 * half of a byte, or further up in two-bit fields, has its scale divided instead. Mins are not: a
 * device aligns what it adds by the exponents that operands have, and a subnormal has one for all;
 * so the lower of two sums, beside the upper, would lose the bits that it is there for.
 *
 *      head   d of r: row r | dmin ... : 64 bytes (32 without mins), r = l / 4 = 0..7, f16
 *                     | d r | d r + 8 | dmin r | dmin r + 8 |
 *             for each of the four chunks 64 bytes, 8 for each r:
 *               Q4_K, Q5_K  | scale 0 of r, r + 8 | scale 1 | min 0 | min 1 |    of 32 each
 *               others      | 0 of r, r + 8 | 1 | 2 | 3 |                        of 16 each
 *             (Q2_K: scale low, min high; Q3_K: scale + 32; Q6_K: scale + 128)
 *      chunk  Q4_K, Q5_K, Q6_K: nibbles as Q4_0; 1 or 2 upper bits in a plane behind
 *             Q2_K, Q3_K: two bits, steps 0..3 from the lowest; Q3_K's third bits behind
 *
 * Numbers: docs/DECISIONS.md, as for linear_block.cu. */
#include "backend/cuda/linear_tiles.cuh"

static constexpr float SUBNORMAL = 1.0f / (1 << 24);

struct k_weights {
    uint32_t a[4][4];
    float d[2];
    float dmin[2];    /* negative */
    uint32_t mins[2]; /* of rows r and r + 8, of the 16 that this lane has the sums of */
};

template <class By, bool MINS>
static __device__ __forceinline__ void multiply_k(k_weights &w,
                                                  const uint8_t *act,
                                                  uint32_t lane,
                                                  float (*sum)[4])
{
    By by(act, lane);
    float part[By::TILES][4] = {};
    by.begin(part, w.a[0], 16);
#pragma unroll
    for (int i = 0; i < 4; i++)
        by.f16(part, w.a[i], i);
    by.wait(part);
#pragma unroll
    for (uint32_t i = 0; i < By::TILES * 4; i++)
        sum[i / 4][i % 4] = __fmaf_rn(w.d[i % 4 / 2], part[i / 4][i % 4], sum[i / 4][i % 4]);
    if constexpr (MINS) {
        uint32_t mins[4] = {w.mins[0], w.mins[1], 0, 0};
        float low[By::TILES][4] = {};
        by.begin(low, mins, 4);
        by.sums(low, mins);
        by.wait(low);
#pragma unroll
        for (uint32_t i = 0; i < By::TILES * 4; i++)
            sum[i / 4][i % 4] = __fmaf_rn(w.dmin[i % 4 / 2], low[i / 4][i % 4], sum[i / 4][i % 4]);
    }
}

/* Byte i of a word, in both halves, as an integer plus 1024. */
static __device__ __forceinline__ uint32_t twice_1024(uint32_t word, uint32_t i)
{
    return __byte_perm(word, 0x64u, 0x4040u + i * 0x101u);
}
/* The same as an integer. */
static __device__ __forceinline__ uint32_t twice_normal(uint32_t word, uint32_t i)
{
    return half2_fma(twice_1024(word, i), 0x3c003c00u, 0xe400e400u);
}
/* f16 pairs: 4^-i, and -1024 and -1056 times it. */
static __device__ __forceinline__ uint32_t quarter(uint32_t i)
{
    return 0x3c003c00u - i * 0x08000800u;
}
static __device__ __forceinline__ uint32_t minus_1024(uint32_t i)
{
    return 0xe400e400u - i * 0x08000800u;
}
static __device__ __forceinline__ uint32_t minus_1056(uint32_t i)
{
    return 0xe420e420u - i * 0x08000800u;
}

static __device__ __forceinline__ void unpack_nibbles(const uint8_t *chunk,
                                                      uint32_t lane,
                                                      uint32_t a[4][4])
{
    const uint4 q = load<uint4>(chunk + lane * 16);
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) { /* as in linear_block.cu */
        const uint32_t upper = words[i] >> 8;
        a[i / 2][i % 2] = words[i] & 0x000f000fu;
        a[i / 2][i % 2 + 2] = upper & 0x000f000fu;
        a[i / 2 + 2][i % 2] = words[i] & 0x00f000f0u;
        a[i / 2 + 2][i % 2 + 2] = upper & 0x00f000f0u;
    }
}

/* Head of Q4_K and Q5_K, and their scales multiplied into the numbers. */
static __device__ __forceinline__ void unpack_d(const uint8_t *head, uint32_t lane, k_weights &w)
{
    const uint2 d = load<uint2>(head + lane / 4 * 8);
    w.d[0] = low_half(d.x);
    w.d[1] = high_half(d.x);
    w.dmin[0] = -SUBNORMAL * low_half(d.y); /* mins count 2^24 times as much as q */
    w.dmin[1] = -SUBNORMAL * high_half(d.y);
}
static __device__ __forceinline__ void scale_by_32(const uint8_t *head,
                                                   uint32_t sub,
                                                   uint32_t lane,
                                                   k_weights &w)
{
    const uint2 s = load<uint2>(head + 64 + sub * 64 + lane / 4 * 8);
    unpack_d(head, lane, w);
    w.mins[0] = twice_normal(s.y, lane % 4 / 2 * 2);
    w.mins[1] = twice_normal(s.y, lane % 4 / 2 * 2 + 1);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) { /* block i / 2 (the second 16 times as large), row i % 2 */
        const uint32_t by =
            half2_fma(twice_1024(s.x, i), quarter(i / 2 * 2), minus_1024(i / 2 * 2));
#pragma unroll
        for (uint32_t step = i / 2 * 2; step < i / 2 * 2 + 2; step++) {
            w.a[step][i % 2] = half2_mul(w.a[step][i % 2], by);
            w.a[step][i % 2 + 2] = half2_mul(w.a[step][i % 2 + 2], by);
        }
    }
}

#define K_FORMAT(name, parts)                                                                      \
    static constexpr uint32_t RUN = CUDA_RUN_##name, HEAD = CUDA_HEAD_##name,                      \
                              CHUNK = CUDA_CHUNK_##name;                                           \
    static constexpr bool PAIR = false, SUMS = false, PARTS = (parts);                             \
    typedef k_weights weights

struct q4_k {
    K_FORMAT(Q4_K, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        unpack_nibbles(chunk, lane, w.a);
        scale_by_32(head, sub, lane, w);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_k<By, true>(w, act, lane, sum);
    }
};

struct q5_k {
    K_FORMAT(Q5_K, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        unpack_nibbles(chunk, lane, w.a);
        const uint32_t even = load<uint32_t>(chunk + 512 + lane * 4); /* steps 0, 2 */
        const uint32_t odd = __byte_perm(even, 0, 0x2301u);           /* steps 1, 3 */
#pragma unroll
        for (int r = 0; r < 4; r++) {
            w.a[0][r] |= (even >> r) & 0x00100010u;
            w.a[1][r] |= (odd >> r) & 0x00100010u;
            w.a[2][r] |= (even >> r) & 0x01000100u;
            w.a[3][r] |= (odd >> r) & 0x01000100u;
        }
        scale_by_32(head, sub, lane, w);
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_k<By, true>(w, act, lane, sum);
    }
};

/* Two-bit fields: step i counts 4^i times as much. */
static __device__ __forceinline__ void unpack_twos(const uint8_t *chunk,
                                                   uint32_t lane,
                                                   uint32_t a[4][4])
{
    const uint2 q = load<uint2>(chunk + lane * 8);
#pragma unroll
    for (uint32_t step = 0; step < 4; step++) {
        const uint32_t mask = 0x00030003u << (2 * step);
        a[step][0] = q.x & mask;
        a[step][1] = q.y & mask;
        a[step][2] = (q.x >> 8) & mask;
        a[step][3] = (q.y >> 8) & mask;
    }
}

struct q2_k {
    K_FORMAT(Q2_K, true);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        const uint2 s = load<uint2>(head + 64 + sub * 64 + lane / 4 * 8);
        const uint2 scales = make_uint2(s.x & 0x0f0f0f0fu, s.y & 0x0f0f0f0fu);
        const uint32_t mins = ((lane % 4 < 2 ? s.x : s.y) >> 4) & 0x0f0f0f0fu;
        unpack_d(head, lane, w);
        w.mins[0] = twice_normal(mins, lane % 2 * 2);
        w.mins[1] = twice_normal(mins, lane % 2 * 2 + 1);
        unpack_twos(chunk, lane, w.a);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) { /* step i / 2, row i % 2 */
            const uint32_t shifted = twice_1024(i < 4 ? scales.x : scales.y, i % 4);
            const uint32_t by = half2_fma(shifted, quarter(i / 2), minus_1024(i / 2));
            w.a[i / 2][i % 2] = half2_mul(w.a[i / 2][i % 2], by);
            w.a[i / 2][i % 2 + 2] = half2_mul(w.a[i / 2][i % 2 + 2], by);
        }
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_k<By, true>(w, act, lane, sum);
    }
};

struct q3_k {
    K_FORMAT(Q3_K, false);
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        const uint32_t d = load<uint32_t>(head + lane / 4 * 4);
        const uint2 s = load<uint2>(head + 32 + sub * 64 + lane / 4 * 8);
        w.d[0] = low_half(d);
        w.d[1] = high_half(d);
        unpack_twos(chunk, lane, w.a);
        const uint32_t low = load<uint32_t>(chunk + 256 + lane * 4); /* registers 0, 1 */
        const uint32_t high = __byte_perm(low, 0, 0x2301u);          /* registers 2, 3 */
#pragma unroll
        for (uint32_t step = 0; step < 4; step++) {
            const uint32_t mask = 0x00040004u << (2 * step);
            w.a[step][0] |= low & mask;
            w.a[step][1] |= (low >> 1) & mask;
            w.a[step][2] |= high & mask;
            w.a[step][3] |= (high >> 1) & mask;
        }
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) { /* step i / 2, row i % 2 */
            const uint32_t shifted = twice_1024(i < 4 ? s.x : s.y, i % 4);
            const uint32_t by = half2_fma(shifted, quarter(i / 2), minus_1056(i / 2));
            /* -4 in units of the step's numbers, as a subnormal */
            const uint32_t four = 0x80008000u | 0x00040004u << (i / 2 * 2);
            const uint32_t zero = half2_mul(by, four);
            w.a[i / 2][i % 2] = half2_fma(w.a[i / 2][i % 2], by, zero);
            w.a[i / 2][i % 2 + 2] = half2_fma(w.a[i / 2][i % 2 + 2], by, zero);
        }
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        multiply_k<By, false>(w, act, lane, sum);
    }
};

struct q6_k {
    static constexpr uint32_t RUN = CUDA_RUN_Q6_K, HEAD = CUDA_HEAD_Q6_K, CHUNK = CUDA_CHUNK_Q6_K;
    static constexpr bool PAIR = false, SUMS = true, PARTS = false;
    struct weights {
        uint32_t a[4][4];
        float scale[4][2]; /* of each step */
        float d[2];
    };
    static __device__ __forceinline__ void unpack(
        const uint8_t *head, const uint8_t *chunk, uint32_t sub, uint32_t lane, weights &w)
    {
        const uint32_t d = load<uint32_t>(head + lane / 4 * 4);
        const uint2 s = load<uint2>(head + 32 + sub * 64 + lane / 4 * 8);
        w.d[0] = low_half(d);
        w.d[1] = high_half(d);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            w.scale[i / 2][i % 2] =
                byte_float(i < 4 ? s.x : s.y, i % 4, 128, i < 4 ? 1.0f : 1.0f / 16);
        unpack_nibbles(chunk, lane, w.a);
        const uint2 upper = load<uint2>(chunk + 512 + lane * 8);
#pragma unroll
        for (int i = 0; i < 2; i++) {                           /* steps i and i + 2 */
            const uint32_t low = i ? upper.y : upper.x;         /* registers 0, 1 */
            const uint32_t high = __byte_perm(low, 0, 0x2301u); /* registers 2, 3 */
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const uint32_t bits = (r < 2 ? low : high) >> (r % 2 * 2);
                w.a[i][r] |= bits & 0x00300030u;
                w.a[i + 2][r] |= bits & 0x03000300u;
            }
        }
    }
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        By by(act, lane);
        float of_chunk[By::TILES][4] = {};
#pragma unroll
        for (int step = 0; step < 4; step++) {
            float part[By::TILES][4];
            begin_step(by, lane, step, -32 * SUBNORMAL * (step < 2 ? 1 : 16), part);
            by.begin(part, w.a[step], 4);
            by.f16(part, w.a[step], step);
            by.wait(part);
#pragma unroll
            for (uint32_t i = 0; i < By::TILES * 4; i++)
                of_chunk[i / 4][i % 4] =
                    __fmaf_rn(w.scale[step][i % 4 / 2], part[i / 4][i % 4], of_chunk[i / 4][i % 4]);
        }
#pragma unroll
        for (uint32_t i = 0; i < By::TILES * 4; i++)
            sum[i / 4][i % 4] =
                __fmaf_rn(w.d[i % 4 / 2], of_chunk[i / 4][i % 4], sum[i / 4][i % 4]);
    }
};

extern "C" float linear_k_unit(int type)
{
    (void)type;
    return 1 / SUBNORMAL;
}

extern "C" void linear_k_launch(int type, const linear_args *p, const linear_grid *g)
{
    switch (type) {
    case CUDA_TYPE_Q2_K:
        return linear_launch<q2_k>(p, *g);
    case CUDA_TYPE_Q3_K:
        return linear_launch<q3_k>(p, *g);
    case CUDA_TYPE_Q4_K:
        return linear_launch<q4_k>(p, *g);
    case CUDA_TYPE_Q5_K:
        return linear_launch<q5_k>(p, *g);
    default:
        return linear_launch<q6_k>(p, *g);
    }
}
