/* simd.h for AVX2, FMA and F16C, with AVX-VNNI where the including file has it. Included by simd.h
 * only. */
#include <immintrin.h>

#define VL 8

typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vb;

#define vf_zero() _mm256_setzero_ps()
#define vf_set1(x) _mm256_set1_ps(x)
#define vf_load(p) _mm256_loadu_ps(p)
#define vf_store(p, v) _mm256_storeu_ps((p), (v))
#define vf_add(a, b) _mm256_add_ps((a), (b))
#define vf_sub(a, b) _mm256_sub_ps((a), (b))
#define vf_mul(a, b) _mm256_mul_ps((a), (b))
#define vf_div(a, b) _mm256_div_ps((a), (b))
#define vf_fma(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define vf_fnma(a, b, c) _mm256_fnmadd_ps((a), (b), (c)) /* c - a * b */
#define vf_max(a, b) _mm256_max_ps((a), (b))
#define vf_min(a, b) _mm256_min_ps((a), (b))
#define vf_abs(a) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), (a))

/* All ones in lanes below n. */
INLINE __m256i v_mask_n(uint32_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* The first n lanes, n <= VL; the others are 0 or untouched. */
INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return _mm256_maskload_ps(p, v_mask_n(n));
}

INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    _mm256_maskstore_ps(p, v_mask_n(n), v);
}

/* Lane i keeps a for i < n, else b. */
INLINE vf vf_first_n(vf a, vf b, uint32_t n)
{
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(v_mask_n(n)));
}

/* Lane i has what lane i ^ 1 had. */
INLINE vf vf_swap_pairs(vf a)
{
    return _mm256_permute_ps(a, 0xb1);
}

/* VL values of each of four rows side by side: to[i * step + r] = rows[r * stride + i]. */
INLINE void vf_put_beside(const float *rows, size_t stride, float *to, size_t step)
{
    const vf a = vf_load(rows), b = vf_load(rows + stride);
    const vf c = vf_load(rows + 2 * stride), d = vf_load(rows + 3 * stride);
    const __m256d ab[] = {(__m256d)_mm256_unpacklo_ps(a, b), (__m256d)_mm256_unpackhi_ps(a, b)};
    const __m256d cd[] = {(__m256d)_mm256_unpacklo_ps(c, d), (__m256d)_mm256_unpackhi_ps(c, d)};
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { /* lane n of two: value 4n + k of the rows */
        const vf x = (vf)(k % 2 ? _mm256_unpackhi_pd(ab[k / 2], cd[k / 2])
                                : _mm256_unpacklo_pd(ab[k / 2], cd[k / 2]));
        _mm_storeu_ps(to + k * step, _mm256_castps256_ps128(x));
        _mm_storeu_ps(to + (4 + k) * step, _mm256_extractf128_ps(x, 1));
    }
}

INLINE vf vf_zero_below(vf a, vf x, float bound)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, _mm256_set1_ps(bound), _CMP_NLT_UQ), a);
}

INLINE float vf_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float vf_hmax(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* The larger of top, not negative, and |x|, ordered as integers: NaN is the largest. */
INLINE vf vf_max_abs(vf top, vf x)
{
    return _mm256_castsi256_ps(
        _mm256_max_epi32(_mm256_castps_si256(top), _mm256_castps_si256(vf_abs(x))));
}

INLINE float vf_hmax_abs(vf top)
{
    const __m256i t = _mm256_castps_si256(top);
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(t), _mm256_extracti128_si256(t, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* Lanes of two bf16 each: the first of every pair, the second. */
#define vf_even_bf16(p) _mm256_castsi256_ps(_mm256_slli_epi32(vb_load(p), 16))
#define vf_odd_bf16(p)                                                                             \
    _mm256_castsi256_ps(_mm256_and_si256(vb_load(p), _mm256_set1_epi32((int)0xffff0000)))

INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE vf vf_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

INLINE void vf_store_f16(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#define vi_set1(x) _mm256_set1_epi32(x)
#define vi_round(a) _mm256_cvtps_epi32(a) /* to nearest even */
#define vf_from_i(a) _mm256_cvtepi32_ps(a)
#define vi_plus(a, b) _mm256_add_epi32((a), (b))
#define vi_times(a, b) _mm256_mullo_epi32((a), (b)) /* the low 32 bits */
#define vi_load(p) vb_load(p)
#define vi_store(p, v) vb_store((p), (v))
#define vi_load_i8(p) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p)))

INLINE int32_t vi_sum(vi a)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 1)));
}

/* 2^n for n in -126..127. */
INLINE vf vf_exp2_of(vi n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* As bytes, -128..127; their sum. */
INLINE int32_t vi_store_i8(int8_t *p, vi v)
{
    const __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i b = _mm_packs_epi16(h, h);
    _mm_storel_epi64((__m128i *)p, b);
    const __m128i s =
        _mm_sad_epu8(_mm_xor_si128(b, _mm_set1_epi8((char)0x80)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(s) - 8 * 128;
}

#define vb_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define vb_store(p, v) _mm256_storeu_si256((__m256i *)(p), (v))
#define vb_low4(w) _mm256_and_si256((w), _mm256_set1_epi8(15))
#define vb_high4(w) _mm256_and_si256(_mm256_srli_epi16((w), 4), _mm256_set1_epi8(15))
/* a | ((h shifted so that field f, 2 bits, lies at bits 4 and 5) & 0x30) */
#define vb_or2(a, h) _mm256_or_si256((a), _mm256_and_si256((h), _mm256_set1_epi8(0x30)))
#define vb_field2(h, f)                                                                            \
    ((f) == 0   ? _mm256_slli_epi16((h), 4)                                                        \
     : (f) == 1 ? _mm256_slli_epi16((h), 2)                                                        \
     : (f) == 2 ? (h)                                                                              \
                : _mm256_srli_epi16((h), 2))

/* Bits n = -6..4 places up; those of neighbouring bytes come along. */
#define vb_shift(h, n)                                                                             \
    ((n) == 4    ? _mm256_slli_epi16((h), 4)                                                       \
     : (n) == 3  ? _mm256_slli_epi16((h), 3)                                                       \
     : (n) == 2  ? _mm256_slli_epi16((h), 2)                                                       \
     : (n) == 1  ? _mm256_slli_epi16((h), 1)                                                       \
     : (n) == 0  ? (h)                                                                             \
     : (n) == -1 ? _mm256_srli_epi16((h), 1)                                                       \
     : (n) == -2 ? _mm256_srli_epi16((h), 2)                                                       \
     : (n) == -3 ? _mm256_srli_epi16((h), 3)                                                       \
     : (n) == -4 ? _mm256_srli_epi16((h), 4)                                                       \
     : (n) == -5 ? _mm256_srli_epi16((h), 5)                                                       \
                 : _mm256_srli_epi16((h), 6))
#define vb_mask(h, bits) _mm256_and_si256((h), _mm256_set1_epi8(bits))
/* a | (h & bits) */
#define vb_or_mask(a, h, bits) _mm256_or_si256((a), _mm256_and_si256((h), _mm256_set1_epi8(bits)))
#define vb_add(a, x) _mm256_add_epi8((a), _mm256_set1_epi8(x))
#define vb_xor(a, b) _mm256_xor_si256((a), (b))
#define vb_flip(a) _mm256_xor_si256((a), _mm256_set1_epi8((char)0x80))
/* The compiler no longer knows what v holds. */
#define vb_forget(v) __asm__("" : "+x"(v))
/* v, which two instructions need, is loaded and kept, not an operand in memory of either. */
#define vb_load_once(v) vb_forget(v)
/* Ask for a line once v is there: a compiler by itself puts all requests first. */
#define vb_ask(v, line) __asm__ volatile("prefetcht0 %1" : "+x"(v) : "m"(*(const char *)(line)))
#define vb_ask_many vb_ask
#define vb_ask_once(v, line)                                                                       \
    __asm__ volatile("prefetchnta %1" : "+x"(v) : "m"(*(const char *)(line)))
/* Of each byte w, below 16, the table's byte. */
#define vb_lookup(table, w)                                                                        \
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table))), (w))

/* The low four bits of VL bytes, one to a lane, for vb_times; the high four. */
INLINE vb vb_load_low4(const uint8_t *p)
{
    const vi x = _mm256_and_si256(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)),
                                  _mm256_set1_epi32(15));
    return _mm256_or_si256(x, _mm256_slli_epi32(x, 16));
}

INLINE vf vf_load_high4(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_srli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)), 4));
}

/* Every byte times its lane's; at most 255, so that pairs can be multiplied as one. */
#define vb_times(w, lanes) _mm256_mullo_epi16((w), (lanes))

/* Integers in lanes: of bytes, of u16; bits n = -31..31 places up (n known to the compiler); down.
 */
#define vi_load_u8(p) _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p)))
#define vi_load_u16(p) _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p)))
#define vi_shift(x, n) ((n) < 0 ? (vi)((__v8su)(x) >> (-(n)&31)) : (vi)((__v8su)(x) << ((n)&31)))
#define vi_shift_right(x, n) _mm256_srl_epi32((x), _mm_cvtsi32_si128((int)(n)))
#define vi_mask(x, bits) _mm256_and_si256((x), _mm256_set1_epi32(bits))
/* a | (h & bits) */
#define vi_or_mask(a, h, bits) _mm256_or_si256((a), _mm256_and_si256((h), _mm256_set1_epi32(bits)))
/* Of each lane the table's element. */
#define vi_gather(table, index) _mm256_i32gather_epi32((const int *)(table), (index), 4)
#define vb_from_i(x) (x)
#define vb_set1(x) _mm256_set1_epi8(x)
#define vb_plus(a, b) _mm256_add_epi8((a), (b))

/* Where the bit of x is set `set`, else `clear`, as bytes. */
INLINE vb vi_choose(vi x, int bit, int set, int clear)
{
    const vi top = _mm256_sll_epi32(x, _mm_cvtsi32_si128(31 - bit));
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(_mm256_set1_epi32(clear)),
                                                _mm256_castsi256_ps(_mm256_set1_epi32(set)),
                                                _mm256_castsi256_ps(top)));
}

/* Bytes whose bit is set, of 4 * VL bits, as 256 less the byte. */
INLINE vb vb_negate(vb x, const uint8_t *bits)
{
    const __m256i bytes =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i all = _mm256_shuffle_epi8(_mm256_set1_epi32(load_i32(bits)), bytes);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(all, bit), bit);
    return _mm256_sub_epi8(_mm256_xor_si256(x, set), set);
}

/* Three times the low byte of w * power, over 256: of even and odd bytes, as upper halves of 16. */
INLINE vb vb_ternary(vb w, int power)
{
    const vb three = _mm256_set1_epi16(3);
    const vb even = _mm256_mullo_epi16(w, _mm256_set1_epi16((int16_t)(power << 8)));
    const vb odd = _mm256_mullo_epi16(_mm256_and_si256(w, _mm256_set1_epi16((int16_t)0xff00)),
                                      _mm256_set1_epi16((int16_t)power));
    return _mm256_or_si256(_mm256_mulhi_epu16(even, three),
                           _mm256_slli_epi16(_mm256_mulhi_epu16(odd, three), 8));
}

/* 2^(e - 128) of VL bytes e: below 2 it is subnormal. */
INLINE vf vf_load_e8m0_half(const uint8_t *p)
{
    const vi one = _mm256_set1_epi32(1),
             e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const vi normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    const vi tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), _mm256_min_epi32(e, one));
    return _mm256_castsi256_ps(_mm256_max_epi32(normal, tiny));
}

/* Of VL bytes without a sign, four bits of exponent and three of mantissa, half. */
INLINE vf vf_load_e4m3_half(const uint8_t *p)
{
    const vi e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(e, 20)), _mm256_set1_ps(0x1p119f));
}

#if defined(__AVXVNNI__)
#define vi_dot(acc, w, a4) _mm256_dpbusd_avx_epi32((acc), (w), _mm256_set1_epi32(a4))
#define vi_dot_words(acc, w, a2) _mm256_dpwssd_avx_epi32((acc), (w), _mm256_set1_epi32(a2))

/* For bytes that are q + 128: begin with -128 * (sum of the activations). */
#define vi_begin128(n128) _mm256_set1_epi32(n128)
#define vi_dot128(acc, w, a4) vi_dot((acc), (w), (a4))

/* For bytes up to 15, summed over 32 of K. */
typedef vi vn;
#define VN_MAX 255 /* bytes, of which vn sums 32 of K */
#define vn_begin(n) _mm256_set1_epi32(n)
#define vn_begin32(n32) _mm256_set1_epi32(n32)
#define vn_dot(acc, w, a4) vi_dot((acc), (w), (a4))
#define vn_end(acc, n) (acc)
/* A sum that needs nothing more times a scale, which vn_lanes made ready. */
#define vn_lanes(scale) (scale)
#define vn_times(acc, lanes) vi_times((acc), (lanes))

/* sum + x * scale, |x| below 2^23, of a signed byte that vi_scale made ready: the low byte of x and
 * what is above it are 16 bits each. (vi_times is two instructions.) */
#define VI_PRODUCT_16
#define vi_scale(scale)                                                                            \
    _mm256_or_si256(_mm256_and_si256((scale), _mm256_set1_epi32(0xffff)),                          \
                    _mm256_slli_epi32((scale), 24))

INLINE vi vi_add_times(vi sum, vi x, vi scale)
{
    const vi bytes = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 1, 2, 4, -1, 5, 6, 8, -1, 9, 10, 12, -1, 13, 14));
    return _mm256_dpwssd_avx_epi32(sum, _mm256_shuffle_epi8(x, bytes), scale);
}

/* The same of a vn. */
#define vn_scale(scale) vi_scale(scale)
#define vn_add_times(sum, x, scale) vi_add_times((sum), (x), (scale))
#else
/* A sum that the compiler knows nothing of: it would else add all products of a group as a tree,
 * for which there are no registers. */
INLINE vi in_turn(vi sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

/* Bytes up to 63: two products of at most 63 * 127 cannot saturate the 16-bit sum of maddubs. */
INLINE vi vi_dot(vi acc, vb w, int32_t a4)
{
    __m256i p = _mm256_maddubs_epi16(w, _mm256_set1_epi32(a4));
    return in_turn(_mm256_add_epi32(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1))));
}

/* Two of them: nor can the sum of two such sums. */
#define DOT_TWO
INLINE vi vi_dot_two(vi acc, vb w0, int32_t a0, vb w1, int32_t a1)
{
    const __m256i p = _mm256_add_epi16(_mm256_maddubs_epi16(w0, _mm256_set1_epi32(a0)),
                                       _mm256_maddubs_epi16(w1, _mm256_set1_epi32(a1)));
    return in_turn(_mm256_add_epi32(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1))));
}

/* Bytes that are q + 128: |q| <= 128 and the sign moved to the activation (never -128), so two
 * products reach at most 32512 and nothing saturates. No offset remains to be taken off. */
#define vi_begin128(n128) ((void)(n128), _mm256_setzero_si256())

INLINE vi vi_dot128(vi acc, vb w, int32_t a4)
{
    __m256i q = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
    __m256i a = _mm256_sign_epi8(_mm256_set1_epi32(a4), q);
    __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(q), a);
    return in_turn(_mm256_add_epi32(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1))));
}

/* The same of words, as they come of pairs of bytes: what many rows meet, where a conversion of
 * each weight does not count and every other instruction does. */
#define DOT_WORDS
#define vb_words(q) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(q)))

INLINE vi vi_dot_words(vi acc, vb w, int32_t a2)
{
    return in_turn(_mm256_add_epi32(acc, _mm256_madd_epi16(w, _mm256_set1_epi32(a2))));
}

/* Of bytes q + 128, four to a lane, those at n and n + 1 as words q. */
INLINE vb vb_words_of(vb w, int n)
{
    const vb twice = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
    const vb bytes = _mm256_add_epi8(twice, _mm256_set1_epi8((char)n));
    return _mm256_srai_epi16(_mm256_shuffle_epi8(vb_flip(w), bytes), 8);
}

/* Bytes up to 15, summed over 32 of K: eight sums of two products of at most 15 * 127 stay below
 * 2^15, so they are kept in 16 bits and brought to 32 once. So are bytes q + 32 up to 63 over 16 of
 * K, which begin with -32 * the activations that each 16 bits meet: what was added counts as q
 * then, what is to come as -32, and 32 * 127 * 8 stays below 2^15. */
typedef __m256i vn;
#define VN_MAX 15 /* or 31 of 16 */
#define vn_begin(n) ((void)(n), _mm256_setzero_si256())
#define vn_begin32(n32) _mm256_set1_epi32(n32)
#define VN_PAIRS

/* n32 of 32 activations: -32 * the sum of those at 4i and 4i + 1, and of the others, as 16 bits
 * each, of either half. */
INLINE void vn_pairs(const int8_t *q, int32_t n32[2])
{
    vi s = _mm256_maddubs_epi16(_mm256_set1_epi8(1), vb_load(q));
    s = _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0x4e));
    s = _mm256_add_epi16(s, _mm256_shuffle_epi32(s, 0xb1));
    s = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(s, 5));
    n32[0] = _mm256_extract_epi32(s, 0);
    n32[1] = _mm256_extract_epi32(s, 4);
}

INLINE vn vn_dot(vn acc, vb w, int32_t a4)
{
    return in_turn(_mm256_add_epi16(acc, _mm256_maddubs_epi16(w, _mm256_set1_epi32(a4))));
}

INLINE vi vn_end(vn acc, int32_t n)
{
    return _mm256_add_epi32(_mm256_madd_epi16(acc, _mm256_set1_epi16(1)), _mm256_set1_epi32(n));
}

/* A sum that needs nothing more times a scale (below 2^15), which vn_lanes made ready: twice a
 * lane. */
#define vn_lanes(scale) _mm256_blend_epi16((scale), _mm256_slli_epi32((scale), 16), 0xaa)
#define vn_times(acc, lanes) _mm256_madd_epi16((acc), (lanes))

/* sum + x * scale, |x| below 2^23, of a signed byte that vi_scale made ready; the same of a vn. */
#define vi_scale(scale) (scale)
#define vi_add_times(sum, x, scale) vi_plus((sum), vi_times((x), (scale)))
#define vn_scale(scale) vn_lanes(scale)
#define vn_add_times(sum, x, scale) vi_plus((sum), vn_times((x), (scale)))
#endif
