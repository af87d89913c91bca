/* Half precision of CUDA, over the emulation: each operation is rounded once, to nearest and even.
 */
#ifndef EMU_CUDA_FP16_H
#define EMU_CUDA_FP16_H

#include "cuda_runtime.h"

#ifdef __cplusplus
#include "emu_round.h"

struct __half_raw {
    unsigned short x;
};

struct __half {
    unsigned short bits;

    __half() = default;
    __half(__half_raw r) : bits(r.x)
    {
    }
    __half(float v) : bits(emu_f32_to_f16(v))
    {
    }
    __half(double v) : bits(emu_f32_to_f16(emu_f64_to_odd(v)))
    {
    }
    __half(int v) : bits(emu_f32_to_f16(emu_f64_to_odd(v)))
    {
    }
    __half(unsigned v) : bits(emu_f32_to_f16(emu_f64_to_odd(v)))
    {
    }
    operator float() const
    {
        return emu_f16_to_f32(bits);
    }
};

struct __attribute__((aligned(4))) __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half a, __half b) : x(a), y(b)
    {
    }
};
typedef __half half;
typedef __half2 half2;

static inline float __half2float(__half v)
{
    return v;
}
static inline __half __float2half(float v)
{
    return __half(v);
}
static inline __half __float2half_rn(float v)
{
    return __half(v);
}
static inline __half __ushort_as_half(unsigned short v)
{
    return __half(__half_raw{v});
}
static inline __half2 __floats2half2_rn(float a, float b)
{
    return __half2(__half(a), __half(b));
}
static inline float __low2float(__half2 v)
{
    return v.x;
}
static inline float __high2float(__half2 v)
{
    return v.y;
}
static inline __half2 __low2half2(__half2 v)
{
    return __half2(v.x, v.x);
}
static inline __half2 __high2half2(__half2 v)
{
    return __half2(v.y, v.y);
}

#define EMU_HALF __half
#define EMU_PAIR __half2
#define EMU_RAW __half_raw
#include "emu_half.h"
#endif

#endif
