/* bfloat16 of CUDA, over the emulation: each operation is rounded once, to nearest and even. */
#ifndef EMU_CUDA_BF16_H
#define EMU_CUDA_BF16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
#include "emu_round.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    unsigned short bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw r) : bits(r.x)
    {
    }
    __nv_bfloat16(float v) : bits(emu_f32_to_bf16(v))
    {
    }
    __nv_bfloat16(double v) : bits(emu_f32_to_bf16(emu_f64_to_odd(v)))
    {
    }
    __nv_bfloat16(int v) : bits(emu_f32_to_bf16(emu_f64_to_odd(v)))
    {
    }
    __nv_bfloat16(unsigned v) : bits(emu_f32_to_bf16(emu_f64_to_odd(v)))
    {
    }
    operator float() const
    {
        return emu_bf16_to_f32(bits);
    }
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b)
    {
    }
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 v)
{
    return v;
}
static inline __nv_bfloat16 __float2bfloat16(float v)
{
    return __nv_bfloat16(v);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    return __nv_bfloat16(v);
}
static inline __nv_bfloat16 __double2bfloat16(double v)
{
    return __nv_bfloat16(v);
}
static inline __nv_bfloat16 __int2bfloat16_rn(int v)
{
    return __nv_bfloat16(v);
}
static inline __nv_bfloat16 __uint2bfloat16_rn(unsigned v)
{
    return __nv_bfloat16(v);
}
static inline int __bfloat162int_rn(__nv_bfloat16 v)
{
    return __float2int_rn(v);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v)
{
    return v.bits;
}
static inline short __bfloat16_as_short(__nv_bfloat16 v)
{
    return static_cast<short>(v.bits);
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short v)
{
    return __nv_bfloat16(__nv_bfloat16_raw{v});
}
static inline __nv_bfloat16 __short_as_bfloat16(short v)
{
    return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(v)});
}
static inline __nv_bfloat162 __float2bfloat162_rn(float v)
{
    return __nv_bfloat162(__nv_bfloat16(v), __nv_bfloat16(v));
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return __nv_bfloat162(__nv_bfloat16(v.x), __nv_bfloat16(v.y));
}
static inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return float2{v.x, v.y};
}
static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat162(a, b);
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat162(a, b);
}
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 v)
{
    return __nv_bfloat162(v, v);
}
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}
static inline float __low2float(__nv_bfloat162 v)
{
    return v.x;
}
static inline float __high2float(__nv_bfloat162 v)
{
    return v.y;
}
static inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v)
{
    return __nv_bfloat162(v.x, v.x);
}
static inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v)
{
    return __nv_bfloat162(v.y, v.y);
}
static inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 v)
{
    return __nv_bfloat162(v.y, v.x);
}

/* Sums to odd, products exact, in f64; a quotient of so few bits is rounded by f32 without harm. */
static inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16(emu_sum_to_odd(float(a), float(b)));
}
static inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16(emu_sum_to_odd(float(a), -float(b)));
}
static inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16(static_cast<double>(float(a)) * static_cast<double>(float(b)));
}
static inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16(float(a) / float(b));
}
static inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c)
{
    double product = static_cast<double>(float(a)) * static_cast<double>(float(b));
    return __nv_bfloat16(emu_sum_to_odd(product, static_cast<double>(float(c))));
}
static inline __nv_bfloat16 __hneg(__nv_bfloat16 a)
{
    return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(a.bits ^ 0x8000u)});
}
static inline __nv_bfloat16 __habs(__nv_bfloat16 a)
{
    return __nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(a.bits & 0x7fffu)});
}
static inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16(fmaxf(a, b));
}
static inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __nv_bfloat16(fminf(a, b));
}
static inline bool __hisnan(__nv_bfloat16 a)
{
    return isnan(float(a));
}
static inline int __hisinf(__nv_bfloat16 a)
{
    return isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0;
}
static inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162(__hadd(a.x, b.x), __hadd(a.y, b.y));
}
static inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162(__hsub(a.x, b.x), __hsub(a.y, b.y));
}
static inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162(__hmul(a.x, b.x), __hmul(a.y, b.y));
}
static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
    return __nv_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
static inline __nv_bfloat162 __hneg2(__nv_bfloat162 a)
{
    return __nv_bfloat162(__hneg(a.x), __hneg(a.y));
}
static inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162(__hmax(a.x, b.x), __hmax(a.y, b.y));
}
static inline __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __nv_bfloat162(__hmin(a.x, b.x), __hmin(a.y, b.y));
}
static inline bool __hlt(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return float(a) < float(b);
}
static inline bool __hgt(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return float(a) > float(b);
}
static inline bool __heq(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return float(a) == float(b);
}
static inline __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hadd(a, b);
}
static inline __nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hsub(a, b);
}
static inline __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hmul(a, b);
}
static inline __nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hdiv(a, b);
}
static inline __nv_bfloat16 operator-(__nv_bfloat16 a)
{
    return __hneg(a);
}
static inline bool operator<(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hlt(a, b);
}
static inline bool operator>(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __hgt(a, b);
}
static inline bool operator==(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __heq(a, b);
}
#endif

#endif
