/* Q8_0: w = d * q, q a signed byte, one d for 32 of K.
 *
 *     panel    [K/64] pairs of groups, 1088 bytes each:
 *              | f16 d[2][16] | group 0 | group 1 |
 *                64 bytes       512       512
 *     group    eight vectors; vector v holds K = 4v .. 4v + 3 of all columns, as q + 128:
 *              | column 0: k0 k1 k2 k3 | column 1: k0 k1 k2 k3 | ... column 15 |
 *
 * A line of scales precedes what it scales, so the panel is one stream. (An odd number of groups
 * ends with half a pair.) */
INLINE void linear_q8_0(
    const struct linear_job *j, uint32_t p0, uint32_t row, const int M, const int T, const int P)
{
    ACT_POINTERS;
    const uint8_t *panels = j->panels + p0 * j->panel_bytes;
    for (int h = 0; h < PARTS; h++) {
        vf acc[LINEAR_M][4];
        EACH_ROW UNROLL for (int p = 0; p < P; p++) acc[m][p] = vf_zero();
        for (uint32_t i = 0; i < n_blocks; i++)
            UNROLL for (int p = 0; p < P; p++)
            {
                const uint8_t *panel = panels + p * j->panel_bytes;
                const uint8_t *scales = panel + PAIR_AT(i, 512) + i % 2 * 32 + h * VL * 2;
                const uint8_t *w = panel + PAIR_AT(i, 512) + 64 + i % 2 * 512 + h * VL * 4;
                PREFETCH(panel, w - 64, 64 + 512)
                vi s[LINEAR_M];
                EACH_ROW s[m] = vi_begin128(ACT_BLOCK(i, m)->n128);
                UNROLL for (uint32_t g = 0; g < 8; g++)
                {
                    vb wv = vb_load(w + g * 64);
                    EACH_ROW s[m] = vi_dot128(s[m], wv, Q4(i * 8 + g, m));
                }
                vf ws = vf_load_f16((const uint16_t *)scales);
                EACH_ROW acc[m][p] = add_group(acc[m][p], s[m], ws, ACT_BLOCK(i, m));
            }
        EACH_ROW UNROLL for (int p = 0; p < P; p++)
            linear_put(j, row + m, (p0 + p) * PANEL_COLS + h * VL, acc[m][p]);
    }
}

INLINE void widen_q8_0(const uint8_t *panel, uint32_t i, uint8_t *wide)
{
    const uint8_t *scales = panel + PAIR_AT(i, 512) + i % 2 * 32;
    const uint8_t *w = panel + PAIR_AT(i, 512) + 64 + i % 2 * 512;
    for (int h = 0; h < PARTS; h++) {
        const int at = h * VL * 4;
        vf_store((float *)(wide + at), vf_load_f16((const uint16_t *)(scales + at / 2)));
        UNROLL for (int g = 0; g < 8; g++)
            vb_store(wide + WIDE_Q + g * 64 + at, vb_load(w + g * 64 + at));
    }
}
