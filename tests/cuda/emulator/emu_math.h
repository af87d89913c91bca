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
static inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
static inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v));
}
static inline int __clzll(long long v)
{
    return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v));
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
static inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
static inline unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (unsigned i = 0; i < 32; i++) {
        r |= ((v >> i) & 1) << (31 - i);
    }
    return r;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return static_cast<unsigned>(((static_cast<uint64_t>(hi) << 32 | lo) << (n & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> (n & 31));
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned n)
{
    n = n < 32 ? n : 32;
    return static_cast<unsigned>(((static_cast<uint64_t>(hi) << 32 | lo) << n) >> 32);
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned n)
{
    n = n < 32 ? n : 32;
    return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> n);
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
static inline int __mulhi(int a, int b)
{
    return static_cast<int>((static_cast<int64_t>(a) * b) >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
static inline int __dp4a(int a, int b, int c)
{
    unsigned sum = static_cast<unsigned>(c);
    for (int i = 0; i < 4; i++) {
        int x = static_cast<int8_t>(static_cast<unsigned>(a) >> (8 * i));
        int y = static_cast<int8_t>(static_cast<unsigned>(b) >> (8 * i));
        sum += static_cast<unsigned>(x * y);
    }
    return static_cast<int>(sum);
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++) {
        c += ((a >> (8 * i)) & 255) * ((b >> (8 * i)) & 255);
    }
    return c;
}
static inline unsigned emu_bytes(unsigned a, unsigned b, int (*f)(int, int))
{
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        int x = static_cast<int>((a >> (8 * i)) & 255), y = static_cast<int>((b >> (8 * i)) & 255);
        r |= (static_cast<unsigned>(f(x, y)) & 255) << (8 * i);
    }
    return r;
}
static inline unsigned __vadd4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) { return x + y; });
}
static inline unsigned __vsub4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) { return x - y; });
}
static inline unsigned __vsubss4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) {
        int d = static_cast<int8_t>(x) - static_cast<int8_t>(y);
        return d < -128 ? -128 : d > 127 ? 127 : d;
    });
}
static inline unsigned __vcmpeq4(unsigned a, unsigned b)
{
    return emu_bytes(a, b, [](int x, int y) { return x == y ? 255 : 0; });
}
static inline unsigned __vcmpne4(unsigned a, unsigned b)
{
    return ~__vcmpeq4(a, b);
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
static inline long long __double_as_longlong(double v)
{
    return emu_bits<long long>(v);
}
static inline double __longlong_as_double(long long v)
{
    return emu_bits<double>(v);
}

/* Conversions to integers clamp, and NaN gives 0, as on the device. */
template <class I> static inline I emu_to_integer(double v)
{
    constexpr bool is_signed = static_cast<I>(-1) < 0;
    constexpr int bits = 8 * static_cast<int>(sizeof(I)) - (is_signed ? 1 : 0);
    constexpr I most = static_cast<I>(~static_cast<unsigned long long>(0) >> (64 - bits));
    if (!(v == v)) {
        return 0;
    }
    if (v >= ldexp(1.0, bits)) {
        return most;
    }
    double low = is_signed ? -ldexp(1.0, bits) : 0;
    return v <= low ? static_cast<I>(low) : static_cast<I>(v);
}
#define EMU_TO_INTEGER(from, type, to, name)                                                       \
    static inline type __##from##2##to##_rn(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(nearbyint(static_cast<double>(v)));                            \
    }                                                                                              \
    static inline type __##from##2##to##_rz(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(trunc(static_cast<double>(v)));                                \
    }                                                                                              \
    static inline type __##from##2##to##_rd(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(floor(static_cast<double>(v)));                                \
    }                                                                                              \
    static inline type __##from##2##to##_ru(name v)                                                \
    {                                                                                              \
        return emu_to_integer<type>(ceil(static_cast<double>(v)));                                 \
    }
EMU_TO_INTEGER(float, int, int, float)
EMU_TO_INTEGER(float, unsigned, uint, float)
EMU_TO_INTEGER(double, int, int, double)
EMU_TO_INTEGER(double, unsigned, uint, double)
#undef EMU_TO_INTEGER
static inline float __int2float_rn(int v)
{
    return static_cast<float>(v);
}
static inline float __uint2float_rn(unsigned v)
{
    return static_cast<float>(v);
}
static inline float __ull2float_rn(unsigned long long v)
{
    return static_cast<float>(v);
}
static inline double __ull2double_rn(unsigned long long v)
{
    return static_cast<double>(v);
}
static inline float __double2float_rn(double v)
{
    return static_cast<float>(v);
}

/* --- arithmetic; fast forms are the exact ones here --- */

/* the host's mathematics library has names of its own that begin so */
#define __expf emu_expf
#define __exp10f emu_exp10f
#define __logf emu_logf
#define __log2f emu_log2f
#define __log10f emu_log10f
#define __sinf emu_sinf
#define __cosf emu_cosf
#define __tanf emu_tanf
#define __tanhf emu_tanhf
#define __powf emu_powf
#define __sincosf emu_sincosf

#define EMU_FLOAT1(name, expression)                                                               \
    static inline float name(float x)                                                              \
    {                                                                                              \
        return expression;                                                                         \
    }
#define EMU_FLOAT2(name, expression)                                                               \
    static inline float name(float x, float y)                                                     \
    {                                                                                              \
        return expression;                                                                         \
    }
EMU_FLOAT1(emu_expf, expf(x))
EMU_FLOAT1(emu_exp10f, powf(10.0f, x))
EMU_FLOAT1(emu_logf, logf(x))
EMU_FLOAT1(emu_log2f, log2f(x))
EMU_FLOAT1(emu_log10f, log10f(x))
EMU_FLOAT1(emu_sinf, sinf(x))
EMU_FLOAT1(emu_cosf, cosf(x))
EMU_FLOAT1(emu_tanf, tanf(x))
EMU_FLOAT1(emu_tanhf, tanhf(x))
EMU_FLOAT1(__frcp_rn, 1.0f / x)
EMU_FLOAT1(__fsqrt_rn, sqrtf(x))
EMU_FLOAT1(__frsqrt_rn, static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
EMU_FLOAT1(rsqrtf, static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
EMU_FLOAT1(__saturatef, x > 0 ? (x < 1 ? x : 1.0f) : 0.0f)
EMU_FLOAT2(emu_powf, powf(x, y))
EMU_FLOAT2(__fdividef, x / y)
EMU_FLOAT2(__fdiv_rn, x / y)
EMU_FLOAT2(__fadd_rn, x + y)
EMU_FLOAT2(__fsub_rn, x - y)
EMU_FLOAT2(__fmul_rn, x *y)
#undef EMU_FLOAT1
#undef EMU_FLOAT2
static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline void emu_sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")

#endif
