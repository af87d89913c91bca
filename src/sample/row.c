/* Passes over a row of logits, as vector code: several running values side by side, each with its
 * own fixed set of elements, so that no sum depends on the width of the vectors. Written with the
 * vector types of gcc and clang where loops are not vectorised without leave to reorder floats.
 * Bound: the row's bytes from the cache. */
#include "sample/internal.h"

#include <math.h>

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));

static inline f32x4 load(const float *x)
{
    f32x4 v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* The larger of each pair; `b` where `a` is NaN. */
static inline f32x4 larger(f32x4 a, f32x4 b)
{
    i32x4 more = a > b;
    return (f32x4)(((i32x4)a & more) | ((i32x4)b & ~more));
}

float sample_max(const float *x, uint32_t n)
{
    const f32x4 least = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    f32x4 m0 = least, m1 = least, m2 = least, m3 = least;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        m0 = larger(load(x + i), m0);
        m1 = larger(load(x + i + 4), m1);
        m2 = larger(load(x + i + 8), m2);
        m3 = larger(load(x + i + 12), m3);
    }
    m0 = larger(larger(m0, m1), larger(m2, m3));
    float m = -INFINITY;
    for (int k = 0; k < 4; k++)
        m = m0[k] > m ? m0[k] : m;
    for (; i < n; i++)
        m = x[i] > m ? x[i] : m; /* false for NaN */
    return m;
}

float sample_block_max(const float *x, uint32_t n, float *block_max)
{
    uint32_t n_blocks = sample_n_blocks(n);
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t first = b * SAMPLE_BLOCK;
        block_max[b] = sample_max(x + first, n - first < SAMPLE_BLOCK ? n - first : SAMPLE_BLOCK);
    }
    return sample_max(block_max, n_blocks);
}

/* -inf where `word` has no bit, for 64 logits: each bit is spread to a mask of 32. */
static void mask_block(float *x, uint64_t word)
{
    const i32x4 bit = {1, 2, 4, 8};
    const f32x4 least = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (uint32_t i = 0; i < 64; i += 4, word >>= 4) {
        int32_t w = (int32_t)(word & 15);
        i32x4 keep = ((i32x4){w, w, w, w} & bit) != 0;
        f32x4 v = (f32x4)(((i32x4)load(x + i) & keep) | ((i32x4)least & ~keep));
        memcpy(x + i, &v, sizeof v);
    }
}

static void rule_out_block(float *x)
{
    const f32x4 least = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (uint32_t i = 0; i < 64; i += 4)
        memcpy(x + i, &least, sizeof least);
}

void sample_mask(float *logits, uint32_t n_vocab, const uint64_t *allowed, const uint64_t *but)
{
    for (uint32_t first = 0; first < n_vocab; first += 64) {
        uint64_t word = allowed[first / 64] & ~(but ? but[first / 64] : 0);
        if (word == UINT64_MAX)
            continue;
        if (n_vocab - first >= 64) {
            if (word == 0) /* most are: nothing is read */
                rule_out_block(logits + first);
            else
                mask_block(logits + first, word);
            continue;
        }
        for (uint32_t i = first; i < n_vocab; i++)
            if (!(word >> i % 64 & 1))
                logits[i] = -INFINITY;
    }
}

/* First i with x[i] == value, or n. */
static uint32_t find(const float *x, uint32_t n, float value)
{
    uint32_t i = 0;
    while (i < n && !(x[i] == value))
        i++;
    return i;
}

int32_t sample_argmax(const float *logits, uint32_t n_vocab)
{
    enum { PART = 2048 }; /* its second look, for the index, is in the nearest cache */
    float best = -INFINITY;
    uint32_t best_part = 0;
    for (uint32_t i = 0; i < n_vocab; i += PART) {
        float m = sample_max(logits + i, n_vocab - i < PART ? n_vocab - i : PART);
        if (m > best) {
            best = m;
            best_part = i;
        }
    }
    uint32_t id = best_part + find(logits + best_part, n_vocab - best_part, best);
    return id < n_vocab ? (int32_t)id : 0; /* all are NaN */
}

/* exp(x) for x in [-87, 0], and 0 for anything else: x = n ln 2 + f with |f| <= ln 2 / 2, exp(f) by
 * its Taylor series to f^7 (relative error 6e-9 before rounding), 2^n by the exponent's bits. The
 * rounding to n adds and takes away 1.5 * 2^23, whose last bit has the weight 1. The choice between
 * x and 0 is a mask, since compilers do not vectorise one between floats. */
static inline float exp_nonpositive(float x)
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

void sample_exp(const float *x, uint32_t n, float max, float scale, float *w)
{
    for (uint32_t i = 0; i < n; i++)
        w[i] = exp_nonpositive((x[i] - max) * scale);
}

double sample_sum(const float *w, uint32_t n)
{
    enum { LANES = 8 };
    double lane[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += w[i + k];
    for (int k = 0; i < n; i++, k++)
        lane[k] += w[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}
