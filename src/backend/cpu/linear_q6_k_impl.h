/* Q6_K: w = d * scale * (q - 32), q six bits; d for 256 of K, scale (a signed byte) for 16.
 *
 *     panel    [K/256], PANEL_Q6_K_BYTES each:
 *              | f16 d[16], 32 unused | pair 0 | pair 1 | pair 2 | pair 3 |
 *                64 bytes               832 each
 *     pair     | i8 scale[2][16] of group 0, of group 1 | group 0 | group 1 |
 *                64 bytes                                 384       384
 *     group    | two vectors of upper bits | four vectors of nibbles as in Q4_0 |
 *                128 bytes                   256
 *              Vector h of upper bits holds K = 16h .. 16h + 15: field f, bits 2f and 2f + 1 of a
 *              byte, belongs to K = 16h + 4f .. 16h + 4f + 3. */

#define PAIR_q6_k(panel, i)                                                                        \
    ((panel) + (size_t)((i) / 8) * PANEL_Q6_K_BYTES + 64 + PAIR_AT((i) % 8, 384))
#define weights_q6_k(panel, i) (PAIR_q6_k(panel, i) + 64 + (i) % 2 * 384)

INLINE vb bytes_q6_k(const uint8_t *w, uint32_t i, int g, int at)
{
    (void)i;
    const vb upper = vb_load(w + g / 4 * 64 + at);
    return vb_or2(nibble_bytes(w + 128, g, at), vb_field2(upper, g % 4));
}

INLINE struct head head_q6_k(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + (size_t)(i / 8) * PANEL_Q6_K_BYTES) + c;
    return (struct head){vf_load_f16(at), vf_zero()};
}

INLINE struct super_scales scales_q6_k(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const int8_t *at = (const int8_t *)PAIR_q6_k(panel, i) + i % 2 * 32 + c;
    return (struct super_scales){vi_load_i8(at), vi_load_i8(at + 16), head.dmin, head.dmin};
}

DEFINE_SUPER(q6_k, SUPER_HALVES, RUN_COSTLY)
