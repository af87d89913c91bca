/* The passes over a row that row.c has for any processor and row_x86.c for some: inlined there, and
 * so compiled for the instructions that the caller may have. Each number, or lane of a sum, is
 * computed by the same operations however wide the vectors are, so the bits are the same. */
#ifndef WEIR_SAMPLE_ROW_IMPL_H
#define WEIR_SAMPLE_ROW_IMPL_H

#include "sample/internal.h"

#define PASS static inline __attribute__((always_inline))

/* exp(x) for x in [-87, 0], and 0 for anything else: x = n ln 2 + f with |f| <= ln 2 / 2, exp(f) by
 * its Taylor series to f^7 (relative error 6e-9 before rounding), 2^n by the exponent's bits. The
 * rounding to n adds and takes away 1.5 * 2^23, whose last bit has the weight 1. The choice between
 * x and 0 is a mask, since compilers do not vectorise one between floats. */
PASS float exp_nonpositive(float x)
{
    const float shift = 0x1.8p23f;
    int32_t bits, exponent;
    memcpy(&bits, &x, sizeof bits);
    int32_t mask = -(int32_t)((bits & 0x7fffffff) <= 0x42ae0000); /* |x| <= 87; false for NaN */
    bits &= mask;
    memcpy(&x, &bits, sizeof x);
    float shifted = x * 0x1.715476p0f + shift;
    float n = shifted - shift;
    float f = x - n * 0x1.62e4p-1f; /* ln 2 in two parts: n times the first is exact */
    f = f - n * 0x1.7f7d1cp-20f;
    float p = 0x1.a01a02p-13f;
    p = p * f + 0x1.6c16c2p-10f;
    p = p * f + 0x1.111112p-7f;
    p = p * f + 0x1.555556p-5f;
    p = p * f + 0x1.555556p-3f;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    memcpy(&exponent, &shifted, sizeof exponent);
    memcpy(&bits, &p, sizeof bits);
    bits = (int32_t)((uint32_t)bits + ((uint32_t)exponent << 23)) & mask;
    memcpy(&p, &bits, sizeof p);
    return p;
}

PASS void exp_row(const float *x, uint32_t n, float max, float scale, float *w)
{
    for (uint32_t i = 0; i < n; i++)
        w[i] = exp_nonpositive((x[i] - max) * scale);
}

/* Eight at a time, the lane of each its index modulo 8. */
PASS void sum_row(double lane[SAMPLE_LANES], const float *w, uint32_t n)
{
    double sum[SAMPLE_LANES];
    memcpy(sum, lane, sizeof sum);
    for (uint32_t i = 0; i < n; i += SAMPLE_LANES)
        for (int k = 0; k < SAMPLE_LANES; k++)
            sum[k] += (double)w[i + (uint32_t)k];
    memcpy(lane, sum, sizeof sum);
}

PASS double sum_lanes(double lane[SAMPLE_LANES])
{
    for (int half = SAMPLE_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

PASS void sum_blocks(const float *w, uint32_t n_blocks, double *block_sum)
{
    for (uint32_t b = 0; b < n_blocks; b++, w += SAMPLE_BLOCK) {
        double lane[SAMPLE_LANES] = {0};
        sum_row(lane, w, SAMPLE_BLOCK);
        block_sum[b] = sum_lanes(lane);
    }
}

#undef PASS

#endif
