/* Two and three bits, scales for 16 of K:
 *
 *     Q2_K  w = d * scale * q - dmin * min    q two bits; scale and min four bits
 *     Q3_K  w = d * scale * (q - 4)           q three bits; scale six bits, a signed byte here
 *
 *     group    | two vectors of pairs of bits | Q3_K: one vector of third bits |
 *                128 bytes                      64
 *              Vector v of pairs holds K = 16v .. 16v + 15: bits 2f and 2f + 1 of a byte belong to
 *              K = 16v + 4f .. 16v + 4f + 3. Bit g of a third bits' byte: K = 4g .. 4g + 3.
 *
 *     panels   Q2_K  [K/256]  | f16 d[16] | f16 dmin[16] | pair 0 | ... pair 3 |   64 + 4 x 320
 *                    pair     | u8 [2 groups][2 halves][16] | group 0 | group 1 |
 *                             scale in the low nibble, min in the high one
 *              Q3_K  [K/512]  | f16 d[2][16] | block 0 | block 1 |               64 + 2 x 1792
 *                    block    | pair 0 | ... pair 3 |                            448 each
 *                    pair     | i8 scale [2 groups][2 halves][16] | group 0 | group 1 |
 *
 * Q2_K's weights are multiplied by their scale first, scale * q is 45 at most: so 32 of them have
 * one scale left, d. Its minima meet the sums of either half of the activations. */

/* Bits 2f and 2f + 1 of vector g / 4, f = g % 4. */
INLINE vb two_bit_bytes(const uint8_t *w, int g, int at)
{
    return vb_mask(vb_shift(vb_load(w + g / 4 * 64 + at), -2 * (g % 4)), 3);
}

/* Q2_K */
#define PAIR_q2_k(panel, i)                                                                        \
    ((panel) + (size_t)((i) / 8) * PANEL_Q2_K_BYTES + 64 + PAIR_AT((i) % 8, 128))
#define weights_q2_k(panel, i) (PAIR_q2_k(panel, i) + 64 + (i) % 2 * 128)

INLINE struct head head_q2_k(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + (size_t)(i / 8) * PANEL_Q2_K_BYTES) + c;
    return (struct head){vf_load_f16(at), vf_load_f16(at + 16)};
}

INLINE struct super_scales scales_q2_k(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const uint8_t *at = PAIR_q2_k(panel, i) + i % 2 * 32 + c;
    return (struct super_scales){NO_SCALE,
                                 NO_SCALE,
                                 vf_mul(head.dmin, vf_load_high4(at)),
                                 vf_mul(head.dmin, vf_load_high4(at + 16))};
}

INLINE vb bytes_q2_k(const uint8_t *w, uint32_t i, int g, int at)
{
    const uint8_t *pair = w - i % 2 * 128 - 64;
    return vb_times(two_bit_bytes(w, g, at), vb_load_low4(pair + i % 2 * 32 + g / 4 * 16 + at / 4));
}

/* Q3_K */
#define BLOCKS_q3_k(panel, i) ((panel) + (size_t)((i) / 16) * (64 + 2 * PANEL_Q3_K_BYTES))
#define PAIR_q3_k(panel, i)                                                                        \
    (BLOCKS_q3_k(panel, i) + 64 + (i) / 8 % 2 * PANEL_Q3_K_BYTES + PAIR_AT((i) % 8, 192))
#define weights_q3_k(panel, i) (PAIR_q3_k(panel, i) + 64 + (i) % 2 * 192)

INLINE struct head head_q3_k(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(BLOCKS_q3_k(panel, i) + i / 8 % 2 * 32) + c;
    return (struct head){vf_load_f16(at), vf_zero()};
}

INLINE struct super_scales scales_q3_k(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const int8_t *at = (const int8_t *)PAIR_q3_k(panel, i) + i % 2 * 32 + c;
    return (struct super_scales){vi_load_i8(at), vi_load_i8(at + 16), head.dmin, head.dmin};
}

/* q - 4 + 32, as Q6_K has it. */
INLINE vb bytes_q3_k(const uint8_t *w, uint32_t i, int g, int at)
{
    (void)i;
    const vb third = vb_shift(vb_load(w + 128 + at), 2 - g);
    return vb_add(vb_or_mask(two_bit_bytes(w, g, at), third, 4), 28);
}

#ifdef VI_PRODUCT_16
/* SUPER_SCALED: 128 - scale * (q - 4) is a byte, for the scale has six bits with its sign. A
 * product of two bytes without one fits a byte: where the scale is positive that of 7 - q. */
INLINE void widen_scaled_q3_k(const uint8_t *panel, uint32_t i, uint8_t *wide)
{
    const uint8_t *w = weights_q3_k(panel, i);
    for (int c = 0; c < PANEL_COLS; c += VL) {
        const struct head head = head_q3_k(panel, i, c);
        const struct super_scales scales = scales_q3_k(head, panel, i, c);
        vf_store((float *)(wide + WIDE_THIRD) + c, vf_sub(vf_zero(), head.d));
        vb flip[2], times[2], base[2];
        UNROLL for (int h = 0; h < 2; h++)
        {
            const vi scale = h ? scales.second : scales.w;
            const vi minus = vi_shift(scale, -31); /* 1 where it is negative */
            const vi sign = vi_plus(vi_set1(1), vi_times(minus, vi_set1(-2)));
            const vi zero = vi_times(scale, vi_plus(vi_set1(-3), vi_times(minus, vi_set1(7))));
            flip[h] =
                vb_from_i(vi_plus(vi_set1(0x07070707), vi_times(minus, vi_set1(-0x07070707))));
            times[h] = vb_from_i(vi_times(vi_times(scale, sign), vi_set1(0x00010001)));
            base[h] = vb_from_i(vi_times(vi_plus(zero, vi_set1(128)), vi_set1(0x01010101)));
        }
        UNROLL for (int g = 0; g < 8; g++)
        {
            const vb third = vb_shift(vb_load(w + 128 + c * 4), 2 - g);
            const vb q = vb_or_mask(two_bit_bytes(w, g, c * 4), third, 4);
            const vb product = vb_times(vb_xor(q, flip[g / 4]), times[g / 4]);
            vb_store(wide + WIDE_Q + g * 64 + c * 4, vb_plus(base[g / 4], product));
        }
    }
}
#endif

DEFINE_SUPER(q2_k, SUPER_MIN_HALVES, RUN_CHAIN)

DEFINE_SUPER_FEW(q3_k, q3_k, SUPER_HALVES, NO_MINS)
DEFINE_SUPER_WIDEN(q3_k, SUPER_HALVES)
DEFINE_COLUMN(q3_k, SUPER_HALVES)
#ifdef VI_PRODUCT_16
DEFINE_TILED(q3_k, widen_scaled_q3_k, SUPER_SCALED)
#else
DEFINE_TILED(q3_k, widen_q3_k, SUPER_HALVES)
#endif
RUN_COSTLY(q3_k)
