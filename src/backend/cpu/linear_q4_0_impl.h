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

enum { PER_q4_0 = 1 };
#define head_q4_0(panel, i, c) NO_HEAD
#define weights_q4_0(panel, i) ((panel) + PAIR_AT(i, 256) + 64 + (i) % 2 * 256)
#define bytes_q4_0(w, i, g, at) nibble_bytes(w, g, at)

INLINE struct scales scales_q4_0(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + PAIR_AT(i, 256) + i % 2 * 32) + c;
    return (struct scales){vf_load_f16(at), head.d};
}

DEFINE_GROUPED(q4_0, WIDE_PLUS_8, RUN_SIMPLE)
