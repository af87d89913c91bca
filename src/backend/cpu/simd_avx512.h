/* simd.h for AVX-512 F, BW, VL, DQ and VNNI. Included by simd.h only. */
#include <immintrin.h>

#define VL 16

typedef __m512 vf;
typedef __m512i vi;
typedef __m512i vb;

#define vf_zero() _mm512_setzero_ps()
#define vf_set1(x) _mm512_set1_ps(x)
#define vf_load(p) _mm512_loadu_ps(p)
#define vf_store(p, v) _mm512_storeu_ps((p), (v))
#define vf_add(a, b) _mm512_add_ps((a), (b))
#define vf_sub(a, b) _mm512_sub_ps((a), (b))
#define vf_mul(a, b) _mm512_mul_ps((a), (b))
#define vf_div(a, b) _mm512_div_ps((a), (b))
#define vf_fma(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define vf_fnma(a, b, c) _mm512_fnmadd_ps((a), (b), (c)) /* c - a * b */
#define vf_max(a, b) _mm512_max_ps((a), (b))
#define vf_min(a, b) _mm512_min_ps((a), (b))
#define vf_abs(a) _mm512_abs_ps(a)

/* The first n lanes, n <= VL; the others are 0 or untouched. */
INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}

/* Lane i keeps a for i < n, else b. */
INLINE vf vf_first_n(vf a, vf b, uint32_t n)
{
    return _mm512_mask_blend_ps((__mmask16)((1u << n) - 1), b, a);
}

/* Lane i has what lane i ^ 1 had. */
INLINE vf vf_swap_pairs(vf a)
{
    return _mm512_permute_ps(a, 0xb1);
}

/* VL values of each of four rows side by side: to[i * step + r] = rows[r * stride + i]. */
INLINE void vf_put_beside(const float *rows, size_t stride, float *to, size_t step)
{
    const vf a = vf_load(rows), b = vf_load(rows + stride);
    const vf c = vf_load(rows + 2 * stride), d = vf_load(rows + 3 * stride);
    const __m512d ab[] = {(__m512d)_mm512_unpacklo_ps(a, b), (__m512d)_mm512_unpackhi_ps(a, b)};
    const __m512d cd[] = {(__m512d)_mm512_unpacklo_ps(c, d), (__m512d)_mm512_unpackhi_ps(c, d)};
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { /* lane n of four: value 4n + k of the rows */
        const vf x = (vf)(k % 2 ? _mm512_unpackhi_pd(ab[k / 2], cd[k / 2])
                                : _mm512_unpacklo_pd(ab[k / 2], cd[k / 2]));
        _mm_storeu_ps(to + k * step, _mm512_castps512_ps128(x));
        _mm_storeu_ps(to + (4 + k) * step, _mm512_extractf32x4_ps(x, 1));
        _mm_storeu_ps(to + (8 + k) * step, _mm512_extractf32x4_ps(x, 2));
        _mm_storeu_ps(to + (12 + k) * step, _mm512_extractf32x4_ps(x, 3));
    }
}

INLINE vf vf_zero_below(vf a, vf x, float bound)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(bound), _CMP_NLT_UQ), a);
}

INLINE float vf_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}

INLINE float vf_hmax(vf a)
{
    return _mm512_reduce_max_ps(a);
}

/* The larger of top, not negative, and |x|, ordered as integers: NaN is the largest. */
INLINE vf vf_max_abs(vf top, vf x)
{
    return _mm512_castsi512_ps(
        _mm512_max_epi32(_mm512_castps_si512(top), _mm512_castps_si512(vf_abs(x))));
}

INLINE float vf_hmax_abs(vf top)
{
    const __m128i m = _mm_cvtsi32_si128(_mm512_reduce_max_epi32(_mm512_castps_si512(top)));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* Lanes of two bf16 each: the first of every pair, the second. */
#define vf_even_bf16(p) _mm512_castsi512_ps(_mm512_slli_epi32(vb_load(p), 16))
#define vf_odd_bf16(p)                                                                             \
    _mm512_castsi512_ps(_mm512_and_si512(vb_load(p), _mm512_set1_epi32((int)0xffff0000)))

INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE vf vf_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

INLINE void vf_store_f16(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#define vi_set1(x) _mm512_set1_epi32(x)
#define vi_round(a) _mm512_cvtps_epi32(a) /* to nearest even */
#define vf_from_i(a) _mm512_cvtepi32_ps(a)
#define vi_sum(a) _mm512_reduce_add_epi32(a)
#define vi_minus(a, b) _mm512_sub_epi32((a), (b))
#define vi_plus(a, b) _mm512_add_epi32((a), (b))
#define vi_times(a, b) _mm512_mullo_epi32((a), (b)) /* the low 32 bits */
#define vi_load(p) vb_load(p)
#define vi_store(p, v) vb_store((p), (v))
#define vi_load_i8(p) _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p)))

/* 2^n for n in -126..127. */
INLINE vf vf_exp2_of(vi n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}

/* As bytes, -128..127; their sum. */
INLINE int32_t vi_store_i8(int8_t *p, vi v)
{
    const __m128i b = _mm512_cvtepi32_epi8(v);
    _mm_storeu_si128((__m128i *)p, b);
    const __m128i s =
        _mm_sad_epu8(_mm_xor_si128(b, _mm_set1_epi8((char)0x80)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_unpackhi_epi64(s, s))) - 16 * 128;
}

#define vb_store(p, v) _mm512_storeu_si512((void *)(p), (v))

/* Four vectors at a time (pack_impl.h): OP over the lanes of each. */
#define FOUR_AT_ONCE
#define ACROSS_TWO(op, width, x, y)                                                                \
    _mm512_##op(_mm512_unpacklo_##width((x), (y)), _mm512_unpackhi_##width((x), (y)))
#define DEFINE_ACROSS_FOUR(name, op)                                                               \
    INLINE __m128i name(vi a, vi b, vi c, vi d)                                                    \
    {                                                                                              \
        const vi ab = ACROSS_TWO(op, epi32, a, b), cd = ACROSS_TWO(op, epi32, c, d);               \
        const vi four = ACROSS_TWO(op, epi64, ab, cd);                                             \
        const __m256i two =                                                                        \
            _mm256_##op(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64(four, 1));         \
        return _mm_##op(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));            \
    }
DEFINE_ACROSS_FOUR(max_across_four, max_epi32)
DEFINE_ACROSS_FOUR(sum_across_four, add_epi32)

/* vf_hmax_abs of each. */
INLINE void vf_hmax_abs_four(const vf v[4], float top[4])
{
    const __m128i t = max_across_four((vi)v[0], (vi)v[1], (vi)v[2], (vi)v[3]);
    _mm_storeu_ps(top, _mm_castsi128_ps(t));
}

INLINE void vi_sums_of_four(vi a, vi b, vi c, vi d, int32_t sums[4])
{
    _mm_storeu_si128((__m128i *)sums, sum_across_four(a, b, c, d));
}

/* As 64 bytes one behind the other, -128..127. */
INLINE __m512i vb_from_four(const vi v[4])
{
    const vi in_place = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const vb words = _mm512_packs_epi32(v[0], v[1]), more = _mm512_packs_epi32(v[2], v[3]);
    return _mm512_permutexvar_epi32(in_place, _mm512_packs_epi16(words, more));
}

#define vb_load(p) _mm512_loadu_si512((const void *)(p))
#define vb_low4(w) _mm512_and_si512((w), _mm512_set1_epi8(15))
#define vb_high4(w) _mm512_and_si512(_mm512_srli_epi16((w), 4), _mm512_set1_epi8(15))
/* a | ((h shifted so that field f, 2 bits, lies at bits 4 and 5) & 0x30) */
#define vb_or2(a, h)                                                                               \
    _mm512_ternarylogic_epi32((a), (h), _mm512_set1_epi8(0x30), 0xf8) /* a | (h & mask) */
#define vb_field2(h, f)                                                                            \
    ((f) == 0   ? _mm512_slli_epi16((h), 4)                                                        \
     : (f) == 1 ? _mm512_slli_epi16((h), 2)                                                        \
     : (f) == 2 ? (h)                                                                              \
                : _mm512_srli_epi16((h), 2))

/* Bits n = -6..4 places up; those of neighbouring bytes come along. */
#define vb_shift(h, n)                                                                             \
    ((n) == 4    ? _mm512_slli_epi16((h), 4)                                                       \
     : (n) == 3  ? _mm512_slli_epi16((h), 3)                                                       \
     : (n) == 2  ? _mm512_slli_epi16((h), 2)                                                       \
     : (n) == 1  ? _mm512_slli_epi16((h), 1)                                                       \
     : (n) == 0  ? (h)                                                                             \
     : (n) == -1 ? _mm512_srli_epi16((h), 1)                                                       \
     : (n) == -2 ? _mm512_srli_epi16((h), 2)                                                       \
     : (n) == -3 ? _mm512_srli_epi16((h), 3)                                                       \
     : (n) == -4 ? _mm512_srli_epi16((h), 4)                                                       \
     : (n) == -5 ? _mm512_srli_epi16((h), 5)                                                       \
                 : _mm512_srli_epi16((h), 6))
#define vb_mask(h, bits) _mm512_and_si512((h), _mm512_set1_epi8(bits))
/* a | (h & bits) */
#define vb_or_mask(a, h, bits) _mm512_ternarylogic_epi32((a), (h), _mm512_set1_epi8(bits), 0xf8)
#define vb_add(a, x) _mm512_add_epi8((a), _mm512_set1_epi8(x))
#define vb_xor(a, b) _mm512_xor_si512((a), (b))
#define vb_flip(a) _mm512_xor_si512((a), _mm512_set1_epi8((char)0x80))
/* The compiler no longer knows what v holds. */
#define vb_forget(v) __asm__("" : "+v"(v))
#define vb_load_once(v) ((void)(v)) /* slower */
/* Ask for a line once v is there: a compiler by itself puts all requests first. Into the second
 * cache; into that or the nearest, as cpu_ask_near says (a branch that a compiler knew would cost
 * it registers); and of what is read once into the nearest alone, so that it drives nothing out of
 * the others. */
#define vb_ask(v, line) __asm__ volatile("prefetcht1 %1" : "+v"(v) : "m"(*(const char *)(line)))
#define vb_ask_many(v, line)                                                                       \
    __asm__ volatile("cmpb $0, %2\n\t"                                                             \
                     "je 1f\n\t"                                                                   \
                     "prefetcht0 %1\n\t"                                                           \
                     "jmp 2f\n"                                                                    \
                     "1:\tprefetcht1 %1\n"                                                         \
                     "2:"                                                                          \
                     : "+v"(v)                                                                     \
                     : "m"(*(const char *)(line)), "m"(cpu_ask_near)                               \
                     : "cc")
#define vb_ask_once(v, line)                                                                       \
    __asm__ volatile("prefetchnta %1" : "+v"(v) : "m"(*(const char *)(line)))
/* Of each byte w, below 16, the table's byte. */
#define vb_lookup(table, w)                                                                        \
    _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(table))), (w))

/* The low four bits of VL bytes, one to a lane, for vb_times; the high four. */
INLINE vb vb_load_low4(const uint8_t *p)
{
    const vi x = _mm512_and_si512(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)),
                                  _mm512_set1_epi32(15));
    return _mm512_or_si512(x, _mm512_slli_epi32(x, 16));
}

INLINE vf vf_load_high4(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_srli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), 4));
}

/* Every byte times its lane's; at most 255, so that pairs can be multiplied as one. */
#define vb_times(w, lanes) _mm512_mullo_epi16((w), (lanes))

/* Integers in lanes: of bytes, of u16; bits n = -31..31 places up (n known to the compiler); down.
 */
#define vi_load_u8(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p)))
#define vi_load_u16(p) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p)))
#define vi_shift(x, n) ((n) < 0 ? (vi)((__v16su)(x) >> (-(n)&31)) : (vi)((__v16su)(x) << ((n)&31)))
#define vi_shift_right(x, n) _mm512_srl_epi32((x), _mm_cvtsi32_si128((int)(n)))
#define vi_mask(x, bits) _mm512_and_si512((x), _mm512_set1_epi32(bits))
/* a | (h & bits) */
#define vi_or_mask(a, h, bits) _mm512_ternarylogic_epi32((a), (h), _mm512_set1_epi32(bits), 0xf8)
/* Of each lane the table's element. */
#define vi_gather(table, index) _mm512_i32gather_epi32((index), (table), 4)
/* Where the bit of x is set `set`, else `clear`, as bytes. */
#define vi_choose(x, bit, set, clear)                                                              \
    _mm512_mask_blend_epi32(_mm512_test_epi32_mask((x), _mm512_set1_epi32(1 << (bit))),            \
                            _mm512_set1_epi32(clear),                                              \
                            _mm512_set1_epi32(set))
#define vb_from_i(x) (x)
#define vb_set1(x) _mm512_set1_epi8(x)
#define vb_plus(a, b) _mm512_add_epi8((a), (b))

/* Bytes whose bit is set, of 4 * VL bits, as 256 less the byte. */
INLINE vb vb_negate(vb x, const uint8_t *bits)
{
    uint64_t mask;
    memcpy(&mask, bits, sizeof mask);
    return _mm512_mask_sub_epi8(x, mask, _mm512_setzero_si512(), x);
}

/* Three times the low byte of w * power, over 256: of even and odd bytes, as upper halves of 16. */
INLINE vb vb_ternary(vb w, int power)
{
    const vb three = _mm512_set1_epi16(3);
    const vb even = _mm512_mullo_epi16(w, _mm512_set1_epi16((int16_t)(power << 8)));
    const vb odd = _mm512_mullo_epi16(_mm512_and_si512(w, _mm512_set1_epi16((int16_t)0xff00)),
                                      _mm512_set1_epi16((int16_t)power));
    return _mm512_or_si512(_mm512_mulhi_epu16(even, three),
                           _mm512_slli_epi16(_mm512_mulhi_epu16(odd, three), 8));
}

/* 2^(e - 128) of VL bytes e: below 2 it is subnormal. */
INLINE vf vf_load_e8m0_half(const uint8_t *p)
{
    const vi one = _mm512_set1_epi32(1),
             e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const vi normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    const vi tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), _mm512_min_epi32(e, one));
    return _mm512_castsi512_ps(_mm512_max_epi32(normal, tiny));
}

/* Of VL bytes without a sign, four bits of exponent and three of mantissa, half. */
INLINE vf vf_load_e4m3_half(const uint8_t *p)
{
    const vi e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(e, 20)), _mm512_set1_ps(0x1p119f));
}

#define vi_dot(acc, w, a4) _mm512_dpbusd_epi32((acc), (w), _mm512_set1_epi32(a4))

/* The same of pairs of words. */
#define vi_dot_words(acc, w, a2) _mm512_dpwssd_epi32((acc), (w), _mm512_set1_epi32(a2))

/* The same of two vectors, of u8 and of i8 (linear_pairs_impl.h). */
#define DOT_BYTES
#define vi_dot_bytes(acc, w, a) _mm512_dpbusd_epi32((acc), (w), (a))
#define vb_set4(a4) _mm512_set1_epi32(a4)

/* What sums over either 32 of 64 bytes begin with: minus the sum of (x1 + 128) x2, eight bytes at a
 * time, x1 the first four, x2 the others. */
INLINE void pairs_of_row(vb all, int32_t *first, int32_t *second)
{
    vi s = vi_dot_bytes(vi_set1(0), vb_flip(all), _mm512_srli_epi64(all, 32)); /* beside x2 zeros */
    s = vi_plus(s, _mm512_shuffle_epi32(s, 0x4e));
    s = vi_minus(vi_set1(0), vi_plus(s, _mm512_shuffle_i64x2(s, s, 0xb1)));
    *first = _mm512_cvtsi512_si32(s);
    *second = _mm_cvtsi128_si32(_mm512_extracti32x4_epi32(s, 2));
}

/* For bytes that are q + 128: begin with -128 * (sum of the activations). */
#define vi_begin128(n128) _mm512_set1_epi32(n128)
#define vi_dot128(acc, w, a4) vi_dot((acc), (w), (a4))

/* vi_dot of the four bytes at `at`, in one instruction, where a compiler makes two. */
#define VI_DOT_AT
INLINE vi vi_dot_at(vi acc, vb w, const int8_t *at)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const int8_t(*)[4])at));
    return acc;
}
#define vi_dot128_at vi_dot_at
#define vn_dot_at vi_dot_at

/* For bytes up to 15, summed over 32 of K. */
typedef vi vn;
#define VN_MAX 255 /* bytes, of which vn sums 32 of K */
#define vn_begin(n) _mm512_set1_epi32(n)
#define vn_begin32(n32) _mm512_set1_epi32(n32)
#define vn_dot(acc, w, a4) vi_dot((acc), (w), (a4))
#define vn_end(acc, n) (acc)
/* A sum that needs nothing more times a scale, which vn_lanes made ready. */
#define vn_lanes(scale) (scale)
#define vn_times(acc, lanes) vi_times((acc), (lanes))

/* sum + x * scale, |x| below 2^23, of a signed byte that vi_scale made ready: the low byte of x and
 * what is above it are 16 bits each. (vi_times is two instructions. A compiler that knew this one
 * would copy sums to and fro.) */
#define VI_PRODUCT_16
#define vi_scale(scale)                                                                            \
    _mm512_or_si512(_mm512_and_si512((scale), _mm512_set1_epi32(0xffff)),                          \
                    _mm512_slli_epi32((scale), 24))

INLINE vi vi_add_times(vi sum, vi x, vi scale)
{
    const vi bytes = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, -1, 1, 2, 4, -1, 5, 6, 8, -1, 9, 10, 12, -1, 13, 14));
    const vb words = _mm512_shuffle_epi8(x, bytes);
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(words), "v"(scale));
    return sum;
}

/* The same of a vn. */
#define vn_scale(scale) vi_scale(scale)
#define vn_add_times(sum, x, scale) vi_add_times((sum), (x), (scale))
