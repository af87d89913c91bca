/* Q4_0: w = d * (q - 8), q four bits, one d for 32 of K.
 *
 *     panel    [K/64] pairs of groups, 576 bytes each:
 *              | f16 d[2][16] | group 0 | group 1 |
 *                64 bytes       256       256
 *     group    four vectors of nibbles; vector v holds K = 4v .. 4v + 3 in the low nibbles and
 *              K = 16 + 4v .. 16 + 4v + 3 in the high ones:
 *              | column 0: k0|k16 k1|k17 k2|k18 k3|k19 | column 1 | ... column 15 |
 *
 * The 8 is taken off by beginning the sum of products at -8 times the sum of the activations. */

/* s[m] += the dot product over 32 of K of nibbles at w, for all rows. */
#define NIBBLE_DOTS(w, i, s)                                                                       \
    UNROLL for (uint32_t g = 0; g < 4; g++)                                                        \
    {                                                                                              \
        vb both = vb_load((w) + g * 64);                                                           \
        vb low = vb_low4(both), high = vb_high4(both);                                             \
        EACH_ROW s[m] = vn_dot(s[m], low, Q4((i)*8 + g, m));                                       \
        EACH_ROW s[m] = vn_dot(s[m], high, Q4((i)*8 + g + 4, m));                                  \
    }

INLINE void linear_q4_0(
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
                const uint8_t *scales = panel + PAIR_AT(i, 256) + i % 2 * 32 + h * VL * 2;
                const uint8_t *w = panel + PAIR_AT(i, 256) + 64 + i % 2 * 256 + h * VL * 4;
                PREFETCH(panel, w - 64, 64 + 256)
                vn s[LINEAR_M];
                EACH_ROW s[m] = vn_begin(ACT_BLOCK(i, m)->n8);
                NIBBLE_DOTS(w, i, s)
                vf ws = vf_load_f16((const uint16_t *)scales);
                EACH_ROW acc[m][p] =
                    add_group(acc[m][p], vn_end(s[m], ACT_BLOCK(i, m)->n8), ws, ACT_BLOCK(i, m));
            }
        EACH_ROW UNROLL for (int p = 0; p < P; p++)
            linear_put(j, row + m, (p0 + p) * PANEL_COLS + h * VL, acc[m][p]);
    }
}

/* The nibbles of a group, 256 bytes, to bytes. */
INLINE void widen_nibbles(const uint8_t *w, uint8_t *wide)
{
    UNROLL for (int g = 0; g < 4; g++)
    {
        UNROLL for (int at = 0; at < 64; at += VL * 4)
        {
            vb both = vb_load(w + g * 64 + at);
            vb_store(wide + WIDE_Q + g * 64 + at, vb_low4(both));
            vb_store(wide + WIDE_Q + (g + 4) * 64 + at, vb_high4(both));
        }
    }
}

INLINE void widen_q4_0(const uint8_t *panel, uint32_t i, uint8_t *wide)
{
    const uint8_t *scales = panel + PAIR_AT(i, 256) + i % 2 * 32;
    for (int h = 0; h < PARTS; h++)
        vf_store((float *)wide + h * VL, vf_load_f16((const uint16_t *)scales + h * VL));
    widen_nibbles(panel + PAIR_AT(i, 256) + 64 + i % 2 * 256, wide);
}
