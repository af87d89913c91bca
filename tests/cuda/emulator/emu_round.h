/* Rounding to 16-bit formats, to nearest and even, from f32 and from a sum of two f64. */
#ifndef EMU_ROUND_H
#define EMU_ROUND_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* What an instruction does to registers, which here are arrays that lanes hand in: sanitizers need
 * not watch it. */
#define EMU_REGISTERS __attribute__((no_sanitize("address", "undefined", "thread")))

EMU_REGISTERS static inline uint32_t emu_f32_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}
EMU_REGISTERS static inline float emu_f32_of(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

static inline uint16_t emu_f32_to_f16(float v)
{
    uint32_t u = emu_f32_bits(v), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return static_cast<uint16_t>(0x7fffu); /* as the device writes NaN */
    }
    if (a >= 0x477ff000u) { /* 65520 and more: infinite */
        return static_cast<uint16_t>(sign | 0x7c00u);
    }
    if (a < 0x38800000u) { /* below 2^-14: adding 0.5 leaves multiples of 2^-24 in the low bits */
        float r = emu_f32_of(a) + 0.5f;
        return static_cast<uint16_t>(sign | (emu_f32_bits(r) - 0x3f000000u));
    }
    a += 0xfffu + ((a >> 13) & 1);
    return static_cast<uint16_t>(sign | ((a - 0x38000000u) >> 13));
}

EMU_REGISTERS static inline float emu_f16_to_f32(uint16_t h)
{
    uint32_t sign = (h & 0x8000u) << 16, a = (h & 0x7fffu) << 13;
    /* below 2^-14: what lies above 2^-14 when the bits are put there */
    uint32_t small = emu_f32_bits(emu_f32_of(a + 0x38800000u) - 6.103515625e-5f);
    uint32_t large = a + (a >= 0x0f800000u ? 0x70000000u : 0x38000000u);
    return emu_f32_of(sign | (a < 0x00800000u ? small : large));
}

static inline uint16_t emu_f32_to_bf16(float v)
{
    uint32_t u = emu_f32_bits(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fffu;
    }
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

EMU_REGISTERS static inline float emu_bf16_to_f32(uint16_t h)
{
    return emu_f32_of(static_cast<uint32_t>(h) << 16);
}

/* a + b in f64, to odd: rounded once more to a format of fewer than 51 bits it is what the exact
 * sum would be. */
static inline double emu_sum_to_odd(double a, double b)
{
    double s = a + b, t = s - a, error = (a - (s - t)) + (b - t);
    int64_t bits;
    memcpy(&bits, &s, sizeof bits);
    if (isfinite(s) && error != 0 && !(bits & 1)) {
        bits += (error > 0) == (s > 0) ? 1 : -1;
        memcpy(&s, &bits, sizeof s);
    }
    return s;
}
/* f64 to f32, to odd. */
static inline float emu_f64_to_odd(double v)
{
    float f = static_cast<float>(v);
    if (!isfinite(v) || static_cast<double>(f) == v) {
        return f;
    }
    if (!isfinite(f)) {
        return f; /* rounds to infinity in fewer bits too */
    }
    uint32_t u = emu_f32_bits(f);
    if (!(u & 1)) {
        bool away = fabs(static_cast<double>(f)) < fabs(v);
        u = (u & 0x7fffffffu) == 0 ? (v < 0 ? 0x80000001u : 1u) : away ? u + 1 : u - 1;
    }
    return emu_f32_of(u);
}

#endif
