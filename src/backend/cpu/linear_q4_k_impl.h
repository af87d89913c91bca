/* Q4_K: w = d * scale * q - dmin * min, q four bits; d and dmin for 256 of K, scale and min (six
 * bits in the file, bytes here) for 32.
 *
 *     panel    [K/256], PANEL_Q4_K_BYTES each:
 *              | f16 d[16] | f16 dmin[16] | pair 0 | pair 1 | pair 2 | pair 3 |
 *                32          32 bytes       576 each
 *     pair     | u8 scale[16], min[16] of group 0, of group 1 | group 0 | group 1 |
 *                64 bytes                                       256       256
 *     group    nibbles as in Q4_0
 *
 * The second term meets only the sum of the activations, which is packed with them. */
INLINE void linear_q4_k(
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
                    const uint8_t *base = panel + (size_t)super * PANEL_Q4_K_BYTES;
                    vf d = vf_load_f16((const uint16_t *)base + h * VL);
                    vf dmin = vf_load_f16((const uint16_t *)base + 16 + h * VL);
                    const uint32_t i = super * 8 + g8;
                    const uint8_t *scales = base + 64 + PAIR_AT(g8, 256) + g8 % 2 * 32 + h * VL;
                    const uint8_t *w = base + 128 + PAIR_AT(g8, 256) + g8 % 2 * 256 + h * VL * 4;
                    PREFETCH(panel, w - 64, 64 + 256)
                    vn s[LINEAR_M];
                    EACH_ROW s[m] = vn_begin(0);
                    NIBBLE_DOTS(w, i, s)
                    vf ws = vf_mul(d, vf_load_u8(scales));
                    vf wm = vf_mul(dmin, vf_load_u8(scales + 16));
                    EACH_ROW acc[m][p] =
                        add_group_min(acc[m][p], vn_end(s[m], 0), ws, wm, ACT_BLOCK(i, m));
                }
        }
        EACH_ROW UNROLL for (int p = 0; p < P; p++)
            linear_put(j, row + m, (p0 + p) * PANEL_COLS + h * VL, acc[m][p]);
    }
}

INLINE void widen_q4_k(const uint8_t *panel, uint32_t i, uint8_t *wide)
{
    const uint8_t *base = panel + (size_t)(i / 8) * PANEL_Q4_K_BYTES;
    const uint8_t *pair = base + 64 + PAIR_AT(i % 8, 256), *scales = pair + i % 2 * 32;
    for (int at = 0; at < PANEL_COLS; at += VL) {
        vf d = vf_load_f16((const uint16_t *)base + at);
        vf dmin = vf_load_f16((const uint16_t *)base + 16 + at);
        vf_store((float *)wide + at, vf_mul(d, vf_load_u8(scales + at)));
        vf_store((float *)(wide + WIDE_SECOND) + at, vf_mul(dmin, vf_load_u8(scales + 16 + at)));
    }
    widen_nibbles(pair + 64 + i % 2 * 256, wide);
}
