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
static inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    return __nv_bfloat16(v);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}
static inline float __low2float(__nv_bfloat162 v)
{
    return v.x;
}
static inline float __high2float(__nv_bfloat162 v)
{
    return v.y;
}

#define EMU_HALF __nv_bfloat16
#define EMU_PAIR __nv_bfloat162
#define EMU_RAW __nv_bfloat16_raw
#include "emu_half.h"
#endif

#endif
