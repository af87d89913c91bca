/* f16 and bf16 beside f32, rounded to nearest, ties to even. */
#ifndef WEIR_TESTS_CUDA_PTX_HALF_H
#define WEIR_TESTS_CUDA_PTX_HALF_H

#include <bit>
#include <math.h>
#include <stdint.h>

static inline float f32_of_bf16(uint16_t h)
{
    return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

static inline uint16_t bf16_of_f32(float x)
{
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if (x != x)
        return 0x7fff;
    return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* The exponent's bias is put right by a product, which is exact also for subnormal numbers. */
static inline float f32_of_f16(uint16_t h)
{
    const uint32_t size = static_cast<uint32_t>(h & 0x7fff) << 13;
    const float x = std::bit_cast<float>(size) * 0x1p112f;
    const uint32_t beyond = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | beyond |
                                static_cast<uint32_t>(h & 0x8000) << 16);
}

/* Of a double too: one rounding, whatever the value comes from. */
static inline uint16_t f16_of_f64(double x)
{
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double size = fabs(x);
    if (x != x)
        return 0x7fff;
    if (size >= 65520.0)
        return sign | 0x7c00;
    int e;
    frexp(size, &e); /* size = 0.1.. * 2^e: the last of 11 bits is 2^(e - 11), at least 2^-24 */
    const int last = e - 11 < -24 ? -24 : e - 11;
    const uint32_t n = static_cast<uint32_t>(nearbyint(ldexp(size, -last))); /* <= 2048 */
    if (n == 0)
        return sign;
    if (last == -24) /* subnormal, or the smallest exponent: n = 1024 carries into it */
        return static_cast<uint16_t>(sign | n);
    return static_cast<uint16_t>(sign | (static_cast<uint32_t>(last + 24) * 1024 + n));
}

#endif
