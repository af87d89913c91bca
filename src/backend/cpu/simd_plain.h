/* simd.h in plain C: any machine. Included by simd.h only. */

#define VL 4

typedef struct {
    float x[VL];
} vf;
typedef struct {
    int32_t x[VL];
} vi;
typedef struct {
    uint8_t x[VL * 4];
} vb;

#define EACH for (int i_ = 0; i_ < VL; i_++)
#define VF_BINARY(name, expr)                                                                      \
    INLINE vf name(vf a, vf b)                                                                     \
    {                                                                                              \
        vf r;                                                                                      \
        EACH r.x[i_] = (expr);                                                                     \
        return r;                                                                                  \
    }

VF_BINARY(vf_add, a.x[i_] + b.x[i_])
VF_BINARY(vf_sub, a.x[i_] - b.x[i_])
VF_BINARY(vf_mul, a.x[i_] * b.x[i_])
VF_BINARY(vf_div, a.x[i_] / b.x[i_])
VF_BINARY(vf_max, a.x[i_] > b.x[i_] ? a.x[i_] : b.x[i_])
VF_BINARY(vf_min, a.x[i_] < b.x[i_] ? a.x[i_] : b.x[i_])

/* One rounding where the machine has the instruction, two where it would be a library call. */
INLINE float plain_fma(float a, float b, float c)
{
#ifdef __FP_FAST_FMAF
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

INLINE vf vf_set1(float a)
{
    vf r;
    EACH r.x[i_] = a;
    return r;
}

INLINE vf vf_zero(void)
{
    return vf_set1(0.0f);
}

INLINE vf vf_load(const float *p)
{
    vf r;
    memcpy(r.x, p, sizeof r.x);
    return r;
}

INLINE void vf_store(float *p, vf v)
{
    memcpy(p, v.x, sizeof v.x);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    vf r;
    EACH r.x[i_] = plain_fma(a.x[i_], b.x[i_], c.x[i_]);
    return r;
}

INLINE vf vf_fnma(vf a, vf b, vf c)
{
    vf r;
    EACH r.x[i_] = plain_fma(-a.x[i_], b.x[i_], c.x[i_]);
    return r;
}

INLINE vf vf_abs(vf a)
{
    vf r;
    EACH r.x[i_] = fabsf(a.x[i_]);
    return r;
}

INLINE vf vf_load_n(const float *p, uint32_t n)
{
    vf r = vf_zero();
    memcpy(r.x, p, n * sizeof *p);
    return r;
}

INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    memcpy(p, v.x, n * sizeof *p);
}

INLINE vf vf_first_n(vf a, vf b, uint32_t n)
{
    vf r;
    EACH r.x[i_] = (uint32_t)i_ < n ? a.x[i_] : b.x[i_];
    return r;
}

INLINE vf vf_swap_pairs(vf a)
{
    vf r;
    EACH r.x[i_] = a.x[i_ ^ 1];
    return r;
}

/* VL values of each of four rows side by side: to[i * step + r] = rows[r * stride + i]. */
INLINE void vf_put_beside(const float *rows, size_t stride, float *to, size_t step)
{
    EACH for (size_t r = 0; r < 4; r++) to[(size_t)i_ * step + r] = rows[r * stride + (size_t)i_];
}

INLINE vf vf_zero_below(vf a, vf x, float bound)
{
    vf r;
    EACH r.x[i_] = x.x[i_] < bound ? 0.0f : a.x[i_];
    return r;
}

INLINE float vf_sum(vf a)
{
    return (a.x[0] + a.x[2]) + (a.x[1] + a.x[3]);
}

INLINE float vf_hmax(vf a)
{
    float m = a.x[0];
    EACH m = m > a.x[i_] ? m : a.x[i_];
    return m;
}

/* The larger of top, not negative, and |x|; NaN is the largest. */
INLINE vf vf_max_abs(vf top, vf x)
{
    vf r;
    EACH r.x[i_] = top.x[i_] >= fabsf(x.x[i_]) || isnan(top.x[i_]) ? top.x[i_] : fabsf(x.x[i_]);
    return r;
}

INLINE float vf_hmax_abs(vf top)
{
    float m = top.x[0];
    EACH m = m >= top.x[i_] || isnan(m) ? m : top.x[i_];
    return m;
}

INLINE vf vf_load_f16(const uint16_t *p)
{
    vf r;
    EACH r.x[i_] = f16_to_f32(p[i_]);
    return r;
}

INLINE vf vf_load_bf16(const uint16_t *p)
{
    vf r;
    EACH r.x[i_] = bf16_to_f32(p[i_]);
    return r;
}

/* Lanes of two bf16 each: the first of every pair, the second. */
INLINE vf vf_even_bf16(const uint8_t *p)
{
    uint16_t x[2 * VL];
    vf r;
    memcpy(x, p, sizeof x);
    EACH r.x[i_] = bf16_to_f32(x[2 * i_]);
    return r;
}

INLINE vf vf_odd_bf16(const uint8_t *p)
{
    uint16_t x[2 * VL];
    vf r;
    memcpy(x, p, sizeof x);
    EACH r.x[i_] = bf16_to_f32(x[2 * i_ + 1]);
    return r;
}

INLINE vf vf_load_u8(const uint8_t *p)
{
    vf r;
    EACH r.x[i_] = (float)p[i_];
    return r;
}

INLINE vf vf_load_i8(const int8_t *p)
{
    vf r;
    EACH r.x[i_] = (float)p[i_];
    return r;
}

INLINE void vf_store_f16(uint16_t *p, vf v)
{
    EACH p[i_] = f32_to_f16(v.x[i_]);
}

INLINE vi vi_set1(int32_t a)
{
    vi r;
    EACH r.x[i_] = a;
    return r;
}

INLINE vi vi_round(vf a)
{
    vi r;
    EACH r.x[i_] = (int32_t)lrintf(a.x[i_]);
    return r;
}

INLINE vf vf_from_i(vi a)
{
    vf r;
    EACH r.x[i_] = (float)a.x[i_];
    return r;
}

INLINE vi vi_plus(vi a, vi b)
{
    EACH a.x[i_] = (int32_t)((uint32_t)a.x[i_] + (uint32_t)b.x[i_]);
    return a;
}

/* The low 32 bits. */
INLINE vi vi_times(vi a, vi b)
{
    EACH a.x[i_] = (int32_t)((uint32_t)a.x[i_] * (uint32_t)b.x[i_]);
    return a;
}

INLINE vi vi_load(const int32_t *p)
{
    vi r;
    memcpy(r.x, p, sizeof r.x);
    return r;
}

INLINE void vi_store(int32_t *p, vi v)
{
    memcpy(p, v.x, sizeof v.x);
}

INLINE vi vi_load_i8(const int8_t *p)
{
    vi r;
    EACH r.x[i_] = p[i_];
    return r;
}

INLINE int32_t vi_sum(vi a)
{
    return a.x[0] + a.x[1] + a.x[2] + a.x[3];
}

INLINE vf vf_exp2_of(vi n)
{
    vf r;
    EACH
    {
        uint32_t bits = (uint32_t)(n.x[i_] + 127) << 23;
        memcpy(&r.x[i_], &bits, sizeof bits);
    }
    return r;
}

/* As bytes, -128..127; their sum. */
INLINE int32_t vi_store_i8(int8_t *p, vi v)
{
    int32_t sum = 0;
    EACH sum += p[i_] = (int8_t)v.x[i_];
    return sum;
}

INLINE vb vb_load(const uint8_t *p)
{
    vb r;
    memcpy(r.x, p, sizeof r.x);
    return r;
}

INLINE void vb_store(uint8_t *p, vb v)
{
    memcpy(p, v.x, sizeof v.x);
}

INLINE vb vb_low4(vb w)
{
    for (int i = 0; i < VL * 4; i++)
        w.x[i] &= 15;
    return w;
}

INLINE vb vb_high4(vb w)
{
    for (int i = 0; i < VL * 4; i++)
        w.x[i] >>= 4;
    return w;
}

/* h with field f, 2 bits, at bits 4 and 5 */
INLINE vb vb_field2(vb h, int f)
{
    for (int i = 0; i < VL * 4; i++)
        h.x[i] = (uint8_t)((h.x[i] >> (2 * f)) << 4);
    return h;
}

INLINE vb vb_or2(vb a, vb h)
{
    for (int i = 0; i < VL * 4; i++)
        a.x[i] |= h.x[i] & 0x30;
    return a;
}

/* Bits n = -6..4 places up. */
INLINE vb vb_shift(vb h, int n)
{
    for (int i = 0; i < VL * 4; i++)
        h.x[i] = (uint8_t)(n < 0 ? h.x[i] >> -n : h.x[i] << n);
    return h;
}

INLINE vb vb_mask(vb h, uint8_t bits)
{
    for (int i = 0; i < VL * 4; i++)
        h.x[i] &= bits;
    return h;
}

INLINE vb vb_or_mask(vb a, vb h, uint8_t bits)
{
    for (int i = 0; i < VL * 4; i++)
        a.x[i] |= h.x[i] & bits;
    return a;
}

INLINE vb vb_add(vb a, uint8_t x)
{
    for (int i = 0; i < VL * 4; i++)
        a.x[i] = (uint8_t)(a.x[i] + x);
    return a;
}

/* Signed bytes as q + 128, and back. */
INLINE vb vb_flip(vb a)
{
    return vb_add(a, 0x80);
}

#define vb_forget(v) ((void)(v))
#define vb_load_once(v) ((void)(v))
#define vb_ask(v, line) __builtin_prefetch(line)
#define vb_ask_many vb_ask
#define vb_ask_once vb_ask
/* Of each byte w, below 16, the table's byte. */
INLINE vb vb_lookup(const uint8_t table[16], vb w)
{
    for (int i = 0; i < VL * 4; i++)
        w.x[i] = table[w.x[i]];
    return w;
}

/* The low four bits of VL bytes, one to a lane, for vb_times; the high four. */
INLINE vb vb_load_low4(const uint8_t *p)
{
    vb r;
    for (int i = 0; i < VL * 4; i++)
        r.x[i] = p[i / 4] & 15;
    return r;
}

INLINE vf vf_load_high4(const uint8_t *p)
{
    vf r;
    EACH r.x[i_] = (float)(p[i_] >> 4);
    return r;
}

/* Every byte times its lane's; at most 255. */
INLINE vb vb_times(vb w, vb lanes)
{
    for (int i = 0; i < VL * 4; i++)
        w.x[i] = (uint8_t)(w.x[i] * lanes.x[i]);
    return w;
}

/* Integers in lanes: of bytes, of u16; bits n = -31..31 places up; down. */
INLINE vi vi_load_u8(const uint8_t *p)
{
    vi r;
    EACH r.x[i_] = p[i_];
    return r;
}

INLINE vi vi_load_u16(const uint16_t *p)
{
    vi r;
    EACH r.x[i_] = p[i_];
    return r;
}

INLINE vi vi_shift(vi x, int n)
{
    EACH x.x[i_] = (int32_t)(n < 0 ? (uint32_t)x.x[i_] >> -n : (uint32_t)x.x[i_] << n);
    return x;
}

#define vi_shift_right(x, n) vi_shift((x), -(int)(n))

INLINE vi vi_mask(vi x, int32_t bits)
{
    EACH x.x[i_] &= bits;
    return x;
}

/* a | (h & bits) */
INLINE vi vi_or_mask(vi a, vi h, int32_t bits)
{
    EACH a.x[i_] |= h.x[i_] & bits;
    return a;
}

/* Of each lane the table's element. */
INLINE vi vi_gather(const uint32_t *table, vi index)
{
    EACH index.x[i_] = (int32_t)table[index.x[i_]];
    return index;
}

INLINE vb vb_from_i(vi x)
{
    vb r;
    memcpy(r.x, x.x, sizeof r.x);
    return r;
}

INLINE vb vb_set1(uint8_t x)
{
    vb r;
    memset(r.x, x, sizeof r.x);
    return r;
}

INLINE vb vb_plus(vb a, vb b)
{
    for (int i = 0; i < VL * 4; i++)
        a.x[i] = (uint8_t)(a.x[i] + b.x[i]);
    return a;
}

/* Where the bit of x is set `set`, else `clear`, as bytes. */
INLINE vb vi_choose(vi x, int bit, int32_t set, int32_t clear)
{
    EACH x.x[i_] = (uint32_t)x.x[i_] >> bit & 1 ? set : clear;
    return vb_from_i(x);
}

/* Bytes whose bit is set, of 4 * VL bits, as 256 less the byte. */
INLINE vb vb_negate(vb x, const uint8_t *bits)
{
    for (int i = 0; i < VL * 4; i++)
        x.x[i] = (uint8_t)(bits[i / 8] >> (i % 8) & 1 ? -x.x[i] : x.x[i]);
    return x;
}

/* Three times the low byte of w * power, over 256. */
INLINE vb vb_ternary(vb w, int power)
{
    for (int i = 0; i < VL * 4; i++)
        w.x[i] = (uint8_t)((w.x[i] * power & 255) * 3 >> 8);
    return w;
}

/* 2^(e - 128) of VL bytes e. */
INLINE vf vf_load_e8m0_half(const uint8_t *p)
{
    vf r;
    EACH r.x[i_] = block_mxfp4_scale(p[i_]);
    return r;
}

/* Of VL bytes without a sign, four bits of exponent and three of mantissa, half. */
INLINE vf vf_load_e4m3_half(const uint8_t *p)
{
    vf r;
    EACH r.x[i_] = block_nvfp4_scale(p[i_] | 0x80); /* panels hold nothing that would be NaN */
    return r;
}

/* Rows of padding begin with anything, so it may wrap. */
INLINE vi vi_dot(vi acc, vb w, int32_t a4)
{
    int8_t a[4];
    memcpy(a, &a4, sizeof a);
    EACH acc.x[i_] = (int32_t)((uint32_t)acc.x[i_] +
                               (uint32_t)(w.x[4 * i_] * a[0] + w.x[4 * i_ + 1] * a[1] +
                                          w.x[4 * i_ + 2] * a[2] + w.x[4 * i_ + 3] * a[3]));
    return acc;
}

INLINE vi vi_dot_words(vi acc, vi w, int32_t a2)
{
    int16_t a[2], words[2];
    memcpy(a, &a2, sizeof a);
    for (int i = 0; i < VL; i++) {
        memcpy(words, &w.x[i], sizeof words);
        acc.x[i] += words[0] * a[0] + words[1] * a[1];
    }
    return acc;
}

#define vi_begin128(n128) vi_set1(n128)
#define vi_dot128(acc, w, a4) vi_dot((acc), (w), (a4))

typedef vi vn;
#define VN_MAX 255 /* bytes, of which vn sums 32 of K */
#define vn_begin(n) vi_set1(n)
#define vn_begin32(n32) vi_set1(n32)
#define vn_dot(acc, w, a4) vi_dot((acc), (w), (a4))
#define vn_end(acc, n) (acc)
/* A sum that needs nothing more times a scale, which vn_lanes made ready. */
#define vn_lanes(scale) (scale)
#define vn_times(acc, lanes) vi_times((acc), (lanes))

/* sum + x * scale, |x| below 2^23, of a signed byte that vi_scale made ready; the same of a vn. */
#define vi_scale(scale) (scale)
#define vi_add_times(sum, x, scale) vi_plus((sum), vi_times((x), (scale)))
#define vn_scale(scale) vn_lanes(scale)
#define vn_add_times(sum, x, scale) vi_plus((sum), vn_times((x), (scale)))
