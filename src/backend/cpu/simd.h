/* One small vector language for every kernel, so that the arithmetic is written once.
 *
 * A kernel file includes this header after its compiler flags decided the instruction set:
 *
 *     AVX-512 with VNNI   VL = 16    __m512
 *     AVX2 with FMA       VL = 8     __m256, with AVX-VNNI or without
 *     anything else       VL = 4     arrays of C floats
 *
 *     vf   VL floats        vi   VL int32        vb   4 * VL bytes, four to a lane
 *     vn   sums of small unsigned bytes over one group of 32: as vi, or narrower where faster
 *
 * vi_dot multiplies four unsigned bytes a lane with four signed bytes that all lanes share, and
 * adds the four products to the lane: exact integers on every instruction set. */
#ifndef WEIR_BACKEND_CPU_SIMD_H
#define WEIR_BACKEND_CPU_SIMD_H

#include "gguf/grids.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef WEIR_CHECKED /* by sanitizers: loops and calls compile ten times as fast */
#define WEIR_NO_UNROLL
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif
/* What many kernels call, once in their file. */
#define NOT_INLINE __attribute__((noinline))

INLINE int32_t load_i32(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

#if defined(__AVX512F__) && defined(__AVX512VNNI__)
#include "backend/cpu/simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "backend/cpu/simd_avx2.h"
#else
#include "backend/cpu/simd_plain.h"
#endif

/* e^x to 2 units in the last place for x in [-87.3, 88.3].
 * x = n ln2 + r with |r| <= ln2 / 2, and the Taylor series of e^r to r^7 (its rest is 5e-9). */
INLINE vf vf_exp_within(vf x)
{
    vi n = vi_round(vf_mul(x, vf_set1(1.44269504f)));
    vf nf = vf_from_i(n);
    vf r = vf_fma(nf, vf_set1(-0.693145752f), x);
    r = vf_fma(nf, vf_set1(-1.42860677e-6f), r);
    vf p = vf_set1(1.0f / 5040);
    p = vf_fma(p, r, vf_set1(1.0f / 720));
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_mul(p, vf_exp2_of(n));
}

/* The same; 0 below, e^88.3 above. Here and below bounds stand first, as of two the second is taken
 * where one is no number: so that stays none. */
INLINE vf vf_exp(vf x)
{
    const vf c = vf_min(vf_set1(88.3f), vf_max(vf_set1(-87.3f), x));
    return vf_zero_below(vf_exp_within(c), x, -87.3f);
}

/* tanh x = t / (t + 2) with t = e^2x - 1, which is 2^n (e^r - 1) + (2^n - 1): exact to a few units
 * in the last place near 0 too, where e^2x - 1 would cancel. */
INLINE vf vf_tanh(vf x)
{
    vf c = vf_min(vf_set1(40.0f), vf_max(vf_set1(-40.0f), vf_add(x, x)));
    vi n = vi_round(vf_mul(c, vf_set1(1.44269504f)));
    vf nf = vf_from_i(n), power = vf_exp2_of(n);
    vf r = vf_fma(nf, vf_set1(-0.693145752f), c);
    r = vf_fma(nf, vf_set1(-1.42860677e-6f), r);
    vf p = vf_set1(1.0f / 5040);
    p = vf_fma(p, r, vf_set1(1.0f / 720));
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(vf_mul(p, r), r, r);
    vf t = vf_fma(p, power, vf_sub(power, vf_set1(1.0f)));
    return vf_div(t, vf_add(t, vf_set1(2.0f)));
}

#endif
