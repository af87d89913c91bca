/* Arithmetic of CUDA for the host's C++ compiler: integers, bits of numbers, conversions, and
 * functions that say how they round. What is approximate on a device is exact here. */
#ifndef EMU_MATH_H
#define EMU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* --- integers --- */

#define EMU_MIN_MAX(type)                                                                          \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
#undef EMU_MIN_MAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

static inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
static inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    unsigned r = 0;
    for (unsigned i = 0; i < 4; i++) {
        r |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7))) & 255) << (8 * i);
    }
    return r;
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}

/* --- bits of numbers --- */

template <class To, class From> static inline To emu_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
static inline int __float_as_int(float v)
{
    return emu_bits<int>(v);
}
static inline unsigned __float_as_uint(float v)
{
    return emu_bits<unsigned>(v);
}
static inline float __int_as_float(int v)
{
    return emu_bits<float>(v);
}
static inline float __uint_as_float(unsigned v)
{
    return emu_bits<float>(v);
}

/* Clamps, and NaN gives 0, as on the device. */
static inline int __float2int_rn(float v)
{
    const double n = nearbyint(static_cast<double>(v));
    return !(n == n)      ? 0
           : n >= 0x1p31  ? 0x7fffffff
           : n <= -0x1p31 ? -0x7fffffff - 1
                          : static_cast<int>(n);
}
static inline float __uint2float_rn(unsigned v)
{
    return static_cast<float>(v);
}

/* --- arithmetic --- */

#define EMU_FLOAT2(name, expression)                                                               \
    static inline float name(float x, float y)                                                     \
    {                                                                                              \
        return expression;                                                                         \
    }
EMU_FLOAT2(__fdiv_rn, x / y)
EMU_FLOAT2(__fadd_rn, x + y)
EMU_FLOAT2(__fsub_rn, x - y)
EMU_FLOAT2(__fmul_rn, x *y)
#undef EMU_FLOAT2
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}

#endif
