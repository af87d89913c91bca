/* Many rows on a tile unit (AMX): the sums of linear_tile_impl.h and their order, the integers
 * within by another instruction, so that no bit differs, but for what Q4_K and Q5_K take off
 * (linear_amx_mins_impl.h). Of 16 rows and K = 32 or 64
 *
 *     A  [16 rows][K]            the activations, as they were packed
 *     B  [K/4][16 columns][4]    the weights of a panel
 *     C  [16 rows][16 columns]   int32, += their dot products
 *
 * are one instruction of 16 cycles, however short K is; another stores C in 16, from where it meets
 * the scales. So the formats of linear_super_impl.h, here, gain most: 128 of K, with the scales
 * multiplied in, are one C. A product of scale and weight may not fit a byte; then it is two, and
 * two C:
 *
 *     scale * q = 256 * high + low,   high signed, low unsigned
 *     scale * q = 8 * (scale / 8 * q) + scale % 8 * q      of six bits and up to 31: all unsigned,
 *                                                          and two bytes are multiplied as one
 *
 *     for each two panels
 *         for each part of K (AMX_K)
 *             widen: panel -> [K/64] { low [16][16][4], high [16][16][4] }, floats of the scales
 *             for each 32 rows
 *                 for each 128 of K and either panel: 8 products, 4 C to memory, 32 x 16 sums
 *                     and of each second 128: what 256 of K take off (linear_amx_mins_impl.h)
 *         put the sums of all rows
 *
 * Of 16 columns, 32 rows and 128 of K, from the nearest cache: 137 cycles multiply and 50 store C;
 * to meet the sums takes 5 operations a vector. When those were 9, one after the other took 375
 * cycles and taking turns every four rows 290, where vpdpbusd and its float operations take 768 at
 * best. What rows need next is in the second cache; asking for it took an eighth of the time.
 * Up to 64 rows, but of Q2_K: linear_amx_few_impl.h. Formats with a scale for 32 of K:
 * linear_amx_group_impl.h.
 *
 * Rows are read 16 at a time: up to 15 of what lies behind the last, for nothing. */
enum {
    AMX_K = 256,                  /* that is widened at a time */
    AMX_MIN_ROWS = 17,            /* fewer are not worth the widening */
    AMX_GROUP_MIN_ROWS = 12,      /* likewise, in linear_amx_group_impl.h */
    AMX_FLOATS = PANEL_COLS * 12, /* of 128 of K: d, then dmin, or two minima a group */
};

/* In a job's scratch: a part of K of up to two panels, which share what is read of the rows. */
struct amx_panel {
    uint8_t b[AMX_K / 64][2][AMX_TILE_BYTES]; /* low, high */
    uint8_t mins[AMX_TILE_BYTES];             /* B of what is to take off, */
    float take_off[2 * AMX_ROWS][PANEL_COLS]; /* and its C (linear_amx_mins_impl.h) */
    float scales[AMX_K / SUPER_K][AMX_FLOATS];
    float sums[LINEAR_MAX_ROWS][PANEL_COLS];
};

struct amx_part {
    struct amx_panel panels[2];
    int32_t c[4][AMX_C];
};
_Static_assert(sizeof(struct amx_part) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* How the weights of a super kind become B. */
INLINE int amx_parts(const enum wide_kind kind)
{
    return kind == SUPER_MIN_HALVES ? 1 : 2;
}

/* Is scale * q split by the scale's bits? */
INLINE bool amx_by_bits(const enum wide_kind kind)
{
    return kind == SUPER_MIN || kind == SUPER_MIN_31;
}

/* Of each lane's lower bytes the low one or both, twice: where `from` has them; and 0 elsewhere. A
 * shuffle has a port of its own while the unit is in use. */
INLINE __m512i amx_spread(__m512i scale, const int from)
{
    const __m512i lanes = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    return _mm512_shuffle_epi8(scale, _mm512_or_si512(lanes, _mm512_set1_epi32(from)));
}

/* Scales in both words of a lane. */
INLINE __m512i amx_twice(__m512i scale)
{
    return amx_spread(scale, 0x01000100);
}

/* Scales of 16 columns, for bytes of K: in both words of a lane; as the even bytes and the odd
 * ones; times what is taken off a byte, as words, and 256 times that. */
struct amx_scale {
    __m512i words, even, odd, off, off_256;
};

/* What the bytes of 32 of K are multiplied by: of either half, or by the lower bits and the upper
 * ones, words alone. */
struct amx_times {
    struct amx_scale of[2];
};

INLINE struct amx_scale amx_scale_of(__m512i scale, const int log2_offset)
{
    return (struct amx_scale){.words = amx_twice(scale),
                              .even = amx_spread(scale, (int)0x80008000),
                              .odd = amx_spread(scale, 0x00800080),
                              .off = _mm512_slli_epi16(amx_twice(scale), log2_offset),
                              .off_256 = _mm512_slli_epi16(amx_twice(scale), 8 + log2_offset)};
}

/* The low and the high byte of scale * (q - offset). Those of even bytes and of odd ones are made
 * apart; the low ones of odd bytes are what a product of two has beyond that of the first. There
 * are three multiplications and a shift, for which one port is left while the unit is in use. */
INLINE void amx_store_products(uint8_t *low, uint8_t *high, __m512i q, const struct amx_scale *s)
{
    const __m512i even = _mm512_maddubs_epi16(q, s->even), odd = _mm512_maddubs_epi16(q, s->odd);
    const __m512i beyond = _mm512_sub_epi16(_mm512_mullo_epi16(q, s->words), even);
    const __m512i of_even = _mm512_sub_epi16(even, s->off);
    const __m512i of_odd = _mm512_sub_epi16(odd, s->off);
    const __m512i low_odd = _mm512_sub_epi16(beyond, s->off_256);
    const __m512i byte = _mm512_set1_epi16(0xff), upper = _mm512_set1_epi16((int16_t)0xff00);
    vb_store(low, _mm512_ternarylogic_epi32(low_odd, of_even, byte, 0xf8));
    vb_store(high, _mm512_ternarylogic_epi32(_mm512_srli_epi16(of_even, 8), of_odd, upper, 0xf8));
}

/* Of group g, whose floats, of its 128 of K, and mins, where those are apart, are stored. */
INLINE struct amx_times amx_store_scales(float *floats,
                                         uint32_t g,
                                         const struct super_scales *scales,
                                         struct head head,
                                         uint8_t *mins,
                                         const enum wide_kind kind)
{
    struct amx_times times = {0};
    if (amx_by_bits(kind)) {
        times.of[0].words = amx_twice(vi_mask(scales->w, 7));
        times.of[1].words = amx_twice(vi_shift(scales->w, -3));
    } else if (kind != SUPER_MIN_HALVES) {
        const int offset = kind == SUPER_PLUS_128 ? 7 : 5; /* bits */
        times.of[0] = amx_scale_of(scales->w, offset);
        if (kind == SUPER_HALVES)
            times.of[1] = amx_scale_of(scales->second, offset);
    }
    vf_store(floats, head.d);
    if (amx_by_bits(kind)) {
        vf_store(floats + PANEL_COLS, head.dmin);
        amx_mins_store(mins, g, scales->other_min);
    }
    if (kind == SUPER_MIN_HALVES) {
        vf_store(floats + (1 + g % 4 * 2) * PANEL_COLS, scales->min);
        vf_store(floats + (2 + g % 4 * 2) * PANEL_COLS, scales->other_min);
    }
    return times;
}

/* Four of K, the i-th of group g of b. */
INLINE void amx_store_four(uint8_t (*b)[2][AMX_TILE_BYTES],
                           uint32_t g,
                           const int i,
                           vb q,
                           const struct amx_times *times,
                           const enum wide_kind kind)
{
    const uint32_t at = g % 2 * 512 + (uint32_t)i * 64;
    uint8_t *low = b[g / 2][0] + at, *high = b[g / 2][1] + at;
    if (kind == SUPER_MIN_HALVES) {
        vb_store(low, q);
    } else if (amx_by_bits(kind)) {
        vb_store(low, vb_times(q, times->of[0].words));
        vb_store(high, vb_times(q, times->of[1].words));
    } else {
        amx_store_products(low, high, q, &times->of[kind == SUPER_HALVES && i >= 4]);
    }
}

/* 128 of K and up to 32 rows: what was multiplied, and which sums it meets. */
struct amx_products {
    const int32_t (*c)[AMX_C];
    const float *scales;
    float (*sums)[PANEL_COLS];
    const float (*take_off)[PANEL_COLS]; /* of 256 of K, whose second 128 these are; or NULL */
    const float *s;                      /* d of the first row; */
    size_t s_stride;                     /* to the next one's */
    const struct act_halves *halves;     /* [k/32][ACT_TILE] of the first four rows; */
    size_t halves_stride;                /* to the next four's */
    uint32_t n;                          /* rows */
};

/* What 128 of K of a row came to, 16 columns of C, meets their sums: acc + t * d * s. */
AMX_INLINE vf amx_add(vf acc, const int32_t *low, vf d, float s, const enum wide_kind kind)
{
    vi t = vi_load(low);
    if (amx_parts(kind) == 2)
        t = vi_plus(vi_shift(vi_load(low + AMX_C), amx_by_bits(kind) ? 3 : 8), t);
    return vf_fma(vf_from_i(t), vf_mul(d, vf_set1(s)), acc);
}

/* Rows first .. first + n - 1 of that; mins: from scales; off: whether there is take_off. */
AMX_INLINE void amx_sums(const struct amx_products *p,
                         const uint32_t first,
                         uint32_t n,
                         const vf *mins,
                         const bool off,
                         const enum wide_kind kind)
{
    const float *s = p->s + first * p->s_stride;
    const int32_t *low = p->c[first / AMX_ROWS * 2] + first % AMX_ROWS * PANEL_COLS;
    const vf d = vf_load(p->scales);
    UNROLL_4 for (uint32_t m = 0; m < n; m++, s += p->s_stride)
    {
        float *sum = p->sums[first + m];
        vf acc = vf_load(sum);
        if (kind == SUPER_MIN_HALVES) {
            const uint32_t row = first + m;
            const struct act_halves *h =
                p->halves + row / ACT_TILE * p->halves_stride + row % ACT_TILE;
            UNROLL for (int i = 0; i < 8; i++) acc =
                vf_fnma(mins[i], vf_set1(h[i / 2 * ACT_TILE].dsum[i % 2]), acc);
        }
        acc = amx_add(acc, low + m * PANEL_COLS, d, *s, kind);
        if (off)
            acc = vf_fma(vf_load(p->take_off[first + m]), mins[0], acc);
        vf_store(sum, acc);
    }
}

AMX_INLINE void amx_load_mins(const struct amx_products *p, vf *mins, const enum wide_kind kind)
{
    const int n = kind == SUPER_MIN_HALVES ? 8 : amx_by_bits(kind) ? 1 : 0;
    UNROLL for (int i = 0; i < n; i++) mins[i] = vf_load(p->scales + (1 + i) * PANEL_COLS);
}

/* The same, whether there is something to take off or not. */
AMX_INLINE void amx_sums_any(const struct amx_products *p,
                             const uint32_t first,
                             uint32_t n,
                             const vf *mins,
                             const enum wide_kind kind)
{
    if (amx_by_bits(kind) && p->take_off)
        amx_sums(p, first, n, mins, true, kind);
    else
        amx_sums(p, first, n, mins, false, kind);
}

AMX_INLINE void amx_all_sums(const struct amx_products *p, const enum wide_kind kind)
{
    if (p->n == 0)
        return;
    vf mins[8];
    amx_load_mins(p, mins, kind);
    amx_sums_any(p, 0, p->n < AMX_ROWS ? p->n : AMX_ROWS, mins, kind);
    if (p->n > AMX_ROWS)
        amx_sums_any(p, AMX_ROWS, p->n - AMX_ROWS, mins, kind);
}

/* C += A B, B the high part. */
#define AMX_HIGH(kind, c, a, b)                                                                    \
    {                                                                                              \
        if (amx_by_bits(kind))                                                                     \
            _tile_dpbsud(c, a, b);                                                                 \
        else                                                                                       \
            _tile_dpbssd(c, a, b);                                                                 \
    }

/* What 256 of K take off, to a tile and of more than 16 rows to tile 3, which are zero: from there
 * it is stored once there was other work to do, and they are zero again. */
struct amx_off {
    const uint16_t *a; /* of the first row, or NULL: there is nothing */
    size_t a_stride;   /* values to the next one's */
    const uint8_t *b;
    float (*c)[PANEL_COLS]; /* [rows] */
};

#define AMX_OFF_BEGIN(off, to, more)                                                               \
    if ((off)->a) {                                                                                \
        const int stride_ = (int)((off)->a_stride * sizeof *(off)->a);                             \
        _tile_loadd(4, (off)->a, stride_);                                                         \
        _tile_loadd(7, (off)->b, 64);                                                              \
        _tile_dpbf16ps(to, 4, 7);                                                                  \
        if (more) {                                                                                \
            _tile_loadd(5, (off)->a + AMX_ROWS * (off)->a_stride, stride_);                        \
            _tile_dpbf16ps(3, 5, 7);                                                               \
        }                                                                                          \
    }
#define AMX_OFF_END(off, to, more)                                                                 \
    if ((off)->a) {                                                                                \
        AMX_STAY;                                                                                  \
        _tile_stored(to, (off)->c, 64);                                                            \
        _tile_zero(to);                                                                            \
        if (more) {                                                                                \
            _tile_stored(3, (off)->c + AMX_ROWS, 64);                                              \
            _tile_zero(3);                                                                         \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

/* Between two instructions of the tile unit 4 rows of the products before meet their sums: nothing
 * else fills the time that the unit takes. */
#define AMX_FOUR(at)                                                                               \
    AMX_STAY;                                                                                      \
    amx_sums_any(before, (at), 4, mins, kind);                                                     \
    AMX_STAY

/* 32 rows and 128 of K, while those before, 32 as well, meet their sums. C is stored after that:
 * loads behind a store that waits for the unit would wait as well. */
AMX_INLINE void amx_turn(const int8_t *q,
                         size_t stride,
                         const uint8_t (*b)[2][AMX_TILE_BYTES],
                         const struct amx_products *before,
                         const struct amx_off *off,
                         const enum wide_kind kind)
{
    const int8_t *more = q + AMX_ROWS * stride;
    vf mins[8];
    amx_load_mins(before, mins, kind);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    AMX_OFF_BEGIN(off, 1, true)
    _tile_loadd(4, q, (int)stride);
    _tile_loadd(6, b[0][0], 64);
    _tile_dpbsud(0, 4, 6);
    AMX_FOUR(0);
    _tile_loadd(5, more, (int)stride);
    _tile_dpbsud(2, 5, 6);
    AMX_FOUR(4);
    AMX_OFF_END(off, 1, true)
    _tile_loadd(7, b[0][1], 64);
    AMX_HIGH(kind, 1, 4, 7)
    AMX_FOUR(8);
    AMX_HIGH(kind, 3, 5, 7)
    AMX_FOUR(12);
    _tile_loadd(4, q + 64, (int)stride);
    _tile_loadd(6, b[1][0], 64);
    _tile_dpbsud(0, 4, 6);
    AMX_FOUR(16);
    _tile_loadd(5, more + 64, (int)stride);
    _tile_dpbsud(2, 5, 6);
    AMX_FOUR(20);
    _tile_loadd(7, b[1][1], 64);
    AMX_HIGH(kind, 1, 4, 7)
    AMX_FOUR(24);
    AMX_HIGH(kind, 3, 5, 7)
    AMX_FOUR(28);
}

/* The same of 16 rows, or of 16 more, by itself. */
AMX_INLINE void amx_dots(const int8_t *q,
                         size_t stride,
                         const uint8_t (*b)[2][AMX_TILE_BYTES],
                         const struct amx_off *off,
                         const bool more,
                         const enum wide_kind kind)
{
    const int parts = amx_parts(kind);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    AMX_OFF_BEGIN(off, 1, more)
    AMX_OFF_END(off, 1, more)
    UNROLL for (int i = 0; i < SUPER_K / 64; i++)
    {
        _tile_loadd(4, q + i * 64, (int)stride);
        _tile_loadd(6, b[i][0], 64);
        _tile_dpbsud(0, 4, 6);
        if (more) {
            _tile_loadd(5, q + AMX_ROWS * stride + i * 64, (int)stride);
            _tile_dpbsud(2, 5, 6);
        }
        if (parts == 2) {
            _tile_loadd(7, b[i][1], 64);
            AMX_HIGH(kind, 1, 4, 7)
            if (more)
                AMX_HIGH(kind, 3, 5, 7)
        }
    }
}

AMX_INLINE void amx_store(int32_t (*c)[AMX_C], const bool more, const int parts)
{
    AMX_STAY; /* compilers do not see what tiles are stored to, or that c was read before */
    _tile_stored(0, c[0], 64);
    if (parts == 2)
        _tile_stored(1, c[1], 64);
    if (more)
        _tile_stored(2, c[2], 64);
    if (more && parts == 2)
        _tile_stored(3, c[3], 64);
    AMX_STAY;
}

/* A part of K of up to two panels meets all rows. */
AMX_INLINE void amx_rows(const struct linear_job *j,
                         struct amx_part *part,
                         uint32_t panel,
                         uint32_t n_panels,
                         uint32_t first_k,
                         const enum wide_kind kind)
{
    const uint32_t k = j->act->k;
    const size_t stride = act_q_stride(k);
    const struct act_int8 *acts = &j->act->by128;
    const int parts = amx_parts(kind);
    struct amx_products before = {.n = 0};
    for (uint32_t done = 0; done < j->n_rows; done += 2 * AMX_ROWS) {
        const uint32_t row = j->first_row + done, left = j->n_rows - done;
        const uint32_t n = left < 2 * AMX_ROWS ? left : 2 * AMX_ROWS;
        if (first_k + AMX_K >= k)
            linear_ask_out(j, row, n, panel, n_panels);
        for (uint32_t at = 0; at < AMX_K / SUPER_K; at++) {
            const uint32_t at_k = first_k + at * SUPER_K;
            const int8_t *q = acts->q + row * stride + at_k;
            for (uint32_t i = 0; i < n_panels; i++) {
                struct amx_panel *p = &part->panels[i];
                const uint8_t(*b)[2][AMX_TILE_BYTES] = p->b + at * (SUPER_K / 64);
                const bool apart = amx_by_bits(kind) && at + 1 == AMX_K / SUPER_K;
                const struct amx_off off = {.a = apart ? amx_mins_a(j->act, row, first_k) : NULL,
                                            .a_stride = act_sums_stride(k),
                                            .b = p->mins,
                                            .c = p->take_off};
                const struct amx_products now = {
                    .take_off = apart ? (const float(*)[PANEL_COLS])p->take_off : NULL,
                    .c = (const int32_t(*)[AMX_C])part->c,
                    .scales = p->scales[at],
                    .sums = p->sums + done,
                    .s = acts->scale + ((size_t)row * k + at_k) / SUPER_K,
                    .s_stride = k / SUPER_K,
                    .halves = acts->halves + ((size_t)(row / ACT_TILE) * k + at_k) / 32 * ACT_TILE,
                    .halves_stride = (size_t)k / 32 * ACT_TILE,
                    .n = n};
                if (parts == 2 && now.n == 2 * AMX_ROWS && before.n == now.n) {
                    amx_turn(q, stride, b, &before, &off, kind);
                } else {
                    amx_all_sums(&before, kind);
                    amx_dots(q, stride, b, &off, now.n > AMX_ROWS, kind);
                }
                amx_store(part->c, now.n > AMX_ROWS, parts);
                before = now;
            }
        }
    }
    amx_all_sums(&before, kind);
}

/* Asks for what a group's place will hold a part of K later: `after` of the panel; where that ends
 * for the panel after the next. */
INLINE void amx_ask(const struct linear_job *j, const uint8_t *panel, size_t after, uint32_t bytes)
{
    if (after >= j->panel_bytes)
        after += j->panel_bytes;
    for (uint32_t l = 0; l < bytes; l += 64)
        __builtin_prefetch(panel + after + l);
}

#include "backend/cpu/linear_amx_few_impl.h"

/* group_bytes: what 32 of K take in a panel, about. few: what takes up to n_few rows. */
#define DEFINE_AMX_SUPER(name, kind, group_bytes, few, n_few)                                      \
    static void amx_widen_##name(                                                                  \
        const struct linear_job *j, const uint8_t *panel, uint32_t k, struct amx_panel *to)        \
    {                                                                                              \
        const struct head head = head_##name(panel, k / 32, 0);                                    \
        for (uint32_t g = 0; g < AMX_K / 32; g++) {                                                \
            const uint32_t i = k / 32 + g;                                                         \
            const uint8_t *w = weights_##name(panel, i);                                           \
            amx_ask(j, panel, (size_t)(w - panel) + AMX_K / 32 * (group_bytes), (group_bytes));    \
            const struct super_scales scales = scales_##name(head, panel, i, 0);                   \
            vb q[8];                                                                               \
            UNROLL for (int v = 0; v < 8; v++) q[v] = bytes_##name(w, i, v, 0);                    \
            const struct amx_times times =                                                         \
                amx_store_scales(to->scales[g / 4], g, &scales, head, to->mins, kind);             \
            UNROLL for (int v = 0; v < 8; v++) amx_store_four(to->b, g, v, q[v], &times, kind);    \
        }                                                                                          \
    }                                                                                              \
    AMX static void amx_many_##name(const struct linear_job *j)                                    \
    {                                                                                              \
        struct amx_part *part = (struct amx_part *)j->scratch;                                     \
        _tile_loadconfig(&amx_config_64);                                                          \
        for (uint32_t p = 0; p < j->n_panels; p += 2) {                                            \
            const uint32_t n = j->n_panels - p < 2 ? 1 : 2;                                        \
            for (uint32_t i = 0; i < n; i++) {                                                     \
                memset(part->panels[i].sums, 0, j->n_rows * sizeof part->panels[i].sums[0]);       \
                memset(part->panels[i].mins, 0, sizeof part->panels[i].mins);                      \
            }                                                                                      \
            for (uint32_t k = 0; k < j->act->k; k += AMX_K) {                                      \
                for (uint32_t i = 0; i < n; i++)                                                   \
                    amx_widen_##name(                                                              \
                        j, j->panels + (p + i) * j->panel_bytes, k, &part->panels[i]);             \
                AMX_STAY; /* nor what they are loaded from */                                      \
                amx_rows(j, part, p, n, k, kind);                                                  \
            }                                                                                      \
            for (uint32_t m = 0; m < j->n_rows; m++) {                                             \
                for (uint32_t i = 0; i < n; i++)                                                   \
                    linear_put(j,                                                                  \
                               j->first_row + m,                                                   \
                               (p + i) * PANEL_COLS,                                               \
                               vf_load(part->panels[i].sums[m]));                                  \
            }                                                                                      \
        }                                                                                          \
        _tile_release();                                                                           \
    }                                                                                              \
    __attribute__((noinline)) static void amx_any_##name(const struct linear_job *j)               \
    {                                                                                              \
        if (j->n_rows <= (n_few))                                                                  \
            few(j);                                                                                \
        else                                                                                       \
            amx_many_##name(j);                                                                    \
    }                                                                                              \
    static void amx_##name(const struct linear_job *j)                                             \
    {                                                                                              \
        if (amx_by_bits(kind)) /* floats on the unit */                                            \
            amx_flushing(j, amx_any_##name);                                                       \
        else                                                                                       \
            amx_any_##name(j);                                                                     \
    }

/* Up to 4 rows of a format whose kind takes off: alone_NAME. */
#define DEFINE_AMX_ALONE(name, kind)                                                               \
    DEFINE_SUPER_FEW(alone_##name, name, kind, AMX_MINS)                                           \
    DEFINE_MEET(, alone_##name, NO_MORE_ROWS)

_Static_assert(AMX_APART_MIN == 5, "alone_NAME has so many rows");
DEFINE_AMX_ALONE(q4_k, SUPER_MIN)
DEFINE_AMX_ALONE(q5_k, SUPER_MIN_31)
DEFINE_AMX_FEW(q4_k, SUPER_MIN, PANEL_Q4_K_BYTES / 8, weights_q4_k, AMX_APART_MIN, meet_alone_q4_k)
DEFINE_AMX_FEW(
    q5_k, SUPER_MIN_31, PANEL_Q5_K_BYTES / 8, weights_q5_k, AMX_APART_MIN, meet_alone_q5_k)
DEFINE_AMX_FEW(q6_k, SUPER_HALVES, PANEL_Q6_K_BYTES / 8, weights_q6_k, AMX_FEW_MIN, run_q6_k)
DEFINE_AMX_FEW(q3_k, SUPER_HALVES, PANEL_Q3_K_BYTES / 8 + 4, weights_q3_k, AMX_MIN_ROWS, run_q3_k)
DEFINE_AMX_FEW(
    iq4_xs, SUPER_PLUS_128, PANEL_IQ4_XS_BYTES / 8 + 4, SCALES_iq4_xs, AMX_MIN_ROWS, run_iq4_xs)
DEFINE_AMX_SUPER(q4_k, SUPER_MIN, PANEL_Q4_K_BYTES / 8, amx_few_q4_k, AMX_FEW_TWICE)
DEFINE_AMX_SUPER(q5_k, SUPER_MIN_31, PANEL_Q5_K_BYTES / 8, amx_few_q5_k, AMX_FEW_TWICE)
DEFINE_AMX_SUPER(q6_k, SUPER_HALVES, PANEL_Q6_K_BYTES / 8, amx_few_q6_k, AMX_FEW_TWICE)
DEFINE_AMX_SUPER(q2_k, SUPER_MIN_HALVES, PANEL_Q2_K_BYTES / 8, run_q2_k, AMX_MIN_ROWS - 1)
DEFINE_AMX_SUPER(q3_k, SUPER_HALVES, PANEL_Q3_K_BYTES / 8 + 4, amx_few_q3_k, AMX_FEW_TWICE)
DEFINE_AMX_SUPER(iq4_xs, SUPER_PLUS_128, PANEL_IQ4_XS_BYTES / 8 + 4, amx_few_iq4_xs, AMX_FEW_TWICE)
