/* What formats of integers are unpacked with (linear_block.cu, linear_k.cu): each weight becomes
 * one f16, and one instruction makes two of them.
 *
 *      w16 = f16(q * D + C) = f16(w / unit)
 *      D   = f16(d * scale / unit * 2^24)
 *      C   = -zero * D, or f16(min / unit)
 *
 * q: an integer below 1024 is an f16 as it is: the bits of the integer are those of the subnormal
 * q * 2^-24. So a mask leaves two numbers. What stays in the upper half of a byte, or further up in
 * fields of two bits, counts 2^n times as much: D is divided by that.
 * unit: a power of two of each output row's own, chosen at load (pack.c) such that the largest D is
 * below 2^16; the sums are multiplied by it at last (linear_value).
 *
 * Rounding: w16's is as x's, 2^-12 of it on average. Where scales are products (K formats) D is
 * rounded too, and so is a min; a zero is a power of two, so that C is what D makes of it. The
 * row's largest D makes weights of 2^-9 (1 bit) to 1 (8 bits), and the finest step of an f16 is
 * 2^-24: so blocks with less than some 2^-5 (1 bit) to 2^-14 of the row's largest scale have fewer
 * bits, and those with less than 2^-15 to 2^-24 of it none. That is lost beside the roundings of
 * the row's largest weights, which are 2^-12 of these. */
#ifndef WEIR_BACKEND_CUDA_LINEAR_UNPACK_CUH
#define WEIR_BACKEND_CUDA_LINEAR_UNPACK_CUH

#include "backend/cuda/linear_launches.cuh"

/* --- f16 in pairs --- */

static __device__ __forceinline__ uint32_t half2_mul(uint32_t a, uint32_t b)
{
    return bits_of<uint32_t>(__hmul2(bits_of<__half2>(a), bits_of<__half2>(b)));
}
static __device__ __forceinline__ uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    return bits_of<uint32_t>(
        __hfma2(bits_of<__half2>(a), bits_of<__half2>(b), bits_of<__half2>(c)));
}
/* The lower half of a pair (i 0) or the upper one, twice: no instruction, where it is an operand of
 * the two above. */
static __device__ __forceinline__ uint32_t both(uint32_t pair, uint32_t i)
{
    const __half2 h = bits_of<__half2>(pair);
    return bits_of<uint32_t>(i ? __high2half2(h) : __low2half2(h));
}
/* 2^-n, twice. */
static __device__ __forceinline__ uint32_t down_by(uint32_t n)
{
    return 0x3c003c00u - n * 0x04000400u;
}
static constexpr uint32_t NEGATIVE = 0x80008000u;
/* n * 2^-24, twice. */
static __device__ __forceinline__ uint32_t subnormal(uint32_t n)
{
    return n * 0x00010001u;
}
/* Bytes 2 i and 2 i + 1 of a word as such. */
static __device__ __forceinline__ uint32_t bytes_subnormal(uint32_t word, uint32_t i)
{
    return __byte_perm(word, 0, 0x4140u + i * 0x202u);
}
/* (Bytes 2 i and 2 i + 1 of a word - bias) * 2^-down; exact: a byte is put into 1024. */
static __device__ __forceinline__ uint32_t bytes_integer(uint32_t word,
                                                         uint32_t i,
                                                         uint32_t bias,
                                                         uint32_t down)
{
    const uint32_t shifted = __byte_perm(word, 0x64u, 0x4140u + i * 0x202u);
    return half2_fma(shifted, down_by(down), 0xe400e400u + subnormal(bias) - down * 0x04000400u);
}

/* --- integers, as subnormals --- */

/* Pairs of a register from nibbles; steps 2 and 3 stay 16 times as large. */
static __device__ __forceinline__ void unpack_nibbles(uint4 q, linear_weights &w)
{
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) { /* step i / 2 and i / 2 + 2, registers i % 2 and i % 2 + 2 */
        const uint32_t upper = words[i] >> 8;
        w.a[i / 2][i % 2] = words[i] & 0x000f000fu;
        w.a[i / 2][i % 2 + 2] = upper & 0x000f000fu;
        w.a[i / 2 + 2][i % 2] = words[i] & 0x00f000f0u;
        w.a[i / 2 + 2][i % 2 + 2] = upper & 0x00f000f0u;
    }
}
/* And their fifth bits, from the plane behind. */
static __device__ __forceinline__ void unpack_five_bits(uint4 q, uint32_t even, linear_weights &w)
{
    unpack_nibbles(q, w);
    const uint32_t odd = __byte_perm(even, 0, 0x2301u); /* steps 1, 3; even: 0, 2 */
#pragma unroll
    for (int r = 0; r < 4; r++) {
        w.a[0][r] |= (even >> r) & 0x00100010u;
        w.a[1][r] |= (odd >> r) & 0x00100010u;
        w.a[2][r] |= (even >> r) & 0x01000100u;
        w.a[3][r] |= (odd >> r) & 0x01000100u;
    }
}
/* Two pairs from the four bytes of a word. */
static __device__ __forceinline__ void spread_bytes(uint32_t bytes, uint32_t a[4], int r)
{
    a[r] = __byte_perm(bytes, 0, 0x4140u);
    a[r + 2] = __byte_perm(bytes, 0, 0x4342u);
}
/* Bytes of a table, of the four nibbles in the low half of q (whose upper bits are cleared in low,
 * and moved down by one in upper: 4 where the upper eight are meant). */
static __device__ __forceinline__ uint32_t look_up(uint4 table, uint32_t low, uint32_t upper)
{
    const uint32_t first = __byte_perm(table.x, table.y, low);
    const uint32_t second = __byte_perm(table.z, table.w, low);
    return __byte_perm(first, second, 0x3210u + upper);
}
/* Numbers + 128, of nibbles that a table of bytes is looked up with. */
static __device__ __forceinline__ void unpack_indices(uint4 q, uint4 table, linear_weights &w)
{
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) { /* steps i / 2 * 2 and the next, row r or r + 8 */
        const uint32_t low = words[i] & 0x77777777u, upper = (words[i] & 0x88888888u) >> 1;
        spread_bytes(look_up(table, low & 0xffffu, upper & 0xffffu), w.a[i / 2 * 2], i % 2);
        spread_bytes(look_up(table, low >> 16, upper >> 16), w.a[i / 2 * 2 + 1], i % 2);
    }
}

/* --- integers to weights --- */

/* A step's registers; by, from: of rows l / 4 and l / 4 + 8. */
static __device__ __forceinline__ void scale_step(uint32_t a[4], uint32_t by, uint32_t from)
{
#pragma unroll
    for (uint32_t reg = 0; reg < 4; reg++)
        a[reg] = half2_fma(a[reg], both(by, reg % 2), both(from, reg % 2));
}
/* Both steps of block b. */
static __device__ __forceinline__ void scale_block(linear_weights &w,
                                                   uint32_t b,
                                                   uint32_t by,
                                                   uint32_t from)
{
    scale_step(w.a[2 * b], by, from);
    scale_step(w.a[2 * b + 1], by, from);
}
/* A scale for 16: d of rows r, r + 8 times (byte - BIAS); bytes: for each step those of both rows.
 * Numbers are counted from ZERO, and of G steps lie in one place: those of the next 4^G times as
 * large. */
template <uint32_t BIAS, uint32_t ZERO, uint32_t G>
static __device__ __forceinline__ void scale_steps(uint32_t d, uint2 bytes, linear_weights &w)
{
#pragma unroll
    for (uint32_t step = 0; step < 4; step++) {
        const uint32_t down = step / G * G * 2, word = step < 2 ? bytes.x : bytes.y;
        const uint32_t by = half2_mul(d, bytes_integer(word, step % 2, BIAS, down));
        scale_step(w.a[step], by, half2_mul(by, NEGATIVE | subnormal(ZERO << down)));
    }
}

#endif
