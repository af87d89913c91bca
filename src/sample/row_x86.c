/* The passes over a row for processors with wider vectors. A maximum is exact, so it is the same
 * one everywhere; of the others row_impl.h tells why. */
#include "sample/row_impl.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>

__attribute__((target("avx2"))) static void blocks_avx2(float *x,
                                                        uint32_t n_blocks,
                                                        const struct sample_allowed *allowed,
                                                        float *block_max)
{
    const __m256 least = _mm256_set1_ps(-INFINITY);
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (uint32_t b = 0; b < n_blocks; b++, x += SAMPLE_BLOCK) {
        uint64_t word = sample_word(allowed, b);
        __m256 max = least;
        for (uint32_t i = 0; word != 0 && i < SAMPLE_BLOCK; i += 8) {
            __m256 v = _mm256_loadu_ps(x + i);
            if (word != UINT64_MAX) {
                __m256i byte = _mm256_set1_epi32((int)(word >> i & 0xff));
                __m256i keep = _mm256_cmpeq_epi32(_mm256_and_si256(byte, bit), bit);
                v = _mm256_blendv_ps(least, v, _mm256_castsi256_ps(keep));
                _mm256_storeu_ps(x + i, v);
            }
            max = _mm256_max_ps(v, max); /* the second where the first is NaN */
        }
        __m128 half = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
        half = _mm_max_ps(half, _mm_movehl_ps(half, half));
        half = _mm_max_ss(half, _mm_shuffle_ps(half, half, 1));
        block_max[b] = _mm_cvtss_f32(half);
    }
}

__attribute__((target("avx512f"))) static void blocks_avx512(float *x,
                                                             uint32_t n_blocks,
                                                             const struct sample_allowed *allowed,
                                                             float *block_max)
{
    const __m512 least = _mm512_set1_ps(-INFINITY);
    for (uint32_t b = 0; b < n_blocks; b++, x += SAMPLE_BLOCK) {
        uint64_t word = sample_word(allowed, b);
        __m512 max = least;
        for (uint32_t i = 0; word != 0 && i < SAMPLE_BLOCK; i += 16) {
            __mmask16 keep = (__mmask16)(word >> i);
            max = _mm512_max_ps(_mm512_mask_loadu_ps(least, keep, x + i), max);
            if (word != UINT64_MAX)
                _mm512_mask_storeu_ps(x + i, (__mmask16)~keep, least);
        }
        block_max[b] = _mm512_reduce_max_ps(max);
    }
}

#define AVX2 "avx2"
#ifdef __clang__
#define AVX512 "avx512f"
#else
#define AVX512 "avx512f,prefer-vector-width=512"
#endif
#define PASSES(isa, ISA)                                                                           \
    __attribute__((target(ISA))) static void exp_##isa(                                            \
        const float *x, uint32_t n, float max, float scale, float *w)                              \
    {                                                                                              \
        exp_row(x, n, max, scale, w);                                                              \
    }                                                                                              \
    __attribute__((target(ISA))) static void sum_##isa(                                            \
        double lane[SAMPLE_LANES], const float *w, uint32_t n)                                     \
    {                                                                                              \
        sum_row(lane, w, n);                                                                       \
    }                                                                                              \
    __attribute__((target(ISA))) static void sum_blocks_##isa(                                     \
        const float *w, uint32_t n_blocks, double *block_sum)                                      \
    {                                                                                              \
        sum_blocks(w, n_blocks, block_sum);                                                        \
    }                                                                                              \
    static const struct sample_passes passes_##isa = {                                             \
        blocks_##isa, exp_##isa, sum_##isa, sum_blocks_##isa};

PASSES(avx2, AVX2)
PASSES(avx512, AVX512)

uint32_t sample_passes_x86(struct sample_passes out[2])
{
    uint32_t n = 0;
    if (__builtin_cpu_supports("avx512f"))
        out[n++] = passes_avx512;
    if (__builtin_cpu_supports("avx2"))
        out[n++] = passes_avx2;
    return n;
}

#else

uint32_t sample_passes_x86(struct sample_passes out[2])
{
    (void)out;
    return 0;
}

#endif
