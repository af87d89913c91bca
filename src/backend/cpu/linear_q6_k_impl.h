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

/* s[m] += the dot product over k4 = 4 half .. 4 half + 3 of 6-bit values. */
#define SIX_BIT_DOTS(w, i, half, s)                                                                \
    {                                                                                              \
        vb two = vb_load((w) + (half)*64);                                                         \
        UNROLL for (uint32_t g = 0; g < 4; g++)                                                    \
        {                                                                                          \
            vb both = vb_load((w) + 128 + g * 64);                                                 \
            vb wv = vb_or2((half) ? vb_high4(both) : vb_low4(both), vb_field2(two, g));            \
            EACH_ROW s[m] = vi_dot(s[m], wv, Q4((i)*8 + (half)*4 + g, m));                         \
        }                                                                                          \
    }

INLINE void linear_q6_k(
    const struct linear_job *j, uint32_t p0, uint32_t row, const int M, const int T, const int P)
{
    ACT_POINTERS;
    const uint8_t *panels = j->panels + p0 * j->panel_bytes;
    for (int h = 0; h < PARTS; h++) {
        vf acc[LINEAR_M][4];
        EACH_ROW UNROLL for (int p = 0; p < P; p++) acc[m][p] = vf_zero();
        for (uint32_t super = 0; super < n_blocks / 8; super++) {
            for (uint32_t g8 = 0; g8 < 8; g8++)
                UNROLL for (int p = 0; p < P; p++)
                {
                    const uint8_t *panel = panels + p * j->panel_bytes;
                    const uint8_t *base = panel + (size_t)super * PANEL_Q6_K_BYTES;
                    vf d = vf_load_f16((const uint16_t *)base + h * VL);
                    const uint32_t i = super * 8 + g8;
                    const uint8_t *pair = base + 64 + PAIR_AT(g8, 384);
                    const int8_t *scales = (const int8_t *)pair + g8 % 2 * 32 + h * VL;
                    const uint8_t *w = pair + 64 + g8 % 2 * 384 + h * VL * 4;
                    PREFETCH(panel, w - 64, 64 + 384)
                    vi s[LINEAR_M];
                    vf t[LINEAR_M];
                    vf ws = vf_mul(d, vf_load_i8(scales));
                    EACH_ROW s[m] = vi_set1(ACT_BLOCK(i, m)->n32[0]);
                    SIX_BIT_DOTS(w, i, 0, s)
                    EACH_ROW t[m] = vf_mul(vf_from_i(s[m]), ws);
                    ws = vf_mul(d, vf_load_i8(scales + 16));
                    EACH_ROW s[m] = vi_set1(ACT_BLOCK(i, m)->n32[1]);
                    SIX_BIT_DOTS(w, i, 1, s)
                    EACH_ROW acc[m][p] = add_halves(acc[m][p], t[m], s[m], ws, ACT_BLOCK(i, m));
                }
        }
        EACH_ROW UNROLL for (int p = 0; p < P; p++)
            linear_put(j, row + m, (p0 + p) * PANEL_COLS + h * VL, acc[m][p]);
    }
}

INLINE void widen_q6_k(const uint8_t *panel, uint32_t i, uint8_t *wide)
{
    const uint8_t *base = panel + (size_t)(i / 8) * PANEL_Q6_K_BYTES;
    const uint8_t *pair = base + 64 + PAIR_AT(i % 8, 384), *w = pair + 64 + i % 2 * 384;
    const int8_t *scales = (const int8_t *)pair + i % 2 * 32;
    for (int at = 0; at < PANEL_COLS; at += VL) {
        vf d = vf_load_f16((const uint16_t *)base + at);
        vf_store((float *)wide + at, vf_mul(d, vf_load_i8(scales + at)));
        vf_store((float *)(wide + WIDE_SECOND) + at, vf_mul(d, vf_load_i8(scales + 16 + at)));
    }
    for (int at = 0; at < 64; at += VL * 4) {
        const vb low_bits = vb_load(w + at), high_bits = vb_load(w + 64 + at);
        UNROLL for (int g = 0; g < 4; g++)
        {
            vb both = vb_load(w + 128 + g * 64 + at);
            vb_store(wide + WIDE_Q + g * 64 + at, vb_or2(vb_low4(both), vb_field2(low_bits, g)));
            vb_store(wide + WIDE_Q + (g + 4) * 64 + at,
                     vb_or2(vb_high4(both), vb_field2(high_bits, g)));
        }
    }
}
