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
#define PAIR_q4_k(panel, i)                                                                        \
    ((panel) + (size_t)((i) / 8) * PANEL_Q4_K_BYTES + 64 + PAIR_AT((i) % 8, 256))
#define weights_q4_k(panel, i) (PAIR_q4_k(panel, i) + 64 + (i) % 2 * 256)
#define bytes_q4_k(w, i, g, at) nibble_bytes(w, g, at)

INLINE struct head head_q4_k(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + (size_t)(i / 8) * PANEL_Q4_K_BYTES) + c;
    return (struct head){vf_load_f16(at), vf_load_f16(at + 16)};
}

INLINE struct super_scales scales_q4_k(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const uint8_t *at = PAIR_q4_k(panel, i) + i % 2 * 32 + c;
    return (struct super_scales){
        vi_load_u8(at), vi_load_u8(at + 16), head.dmin, vf_load_u8(at + 16)};
}

DEFINE_SUPER_OF(q4_k, SUPER_MIN, TAKE_OFF, RUN_USUAL)
