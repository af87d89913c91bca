/* Q8_0: w = d * q, q a signed byte, one d for 32 of K.
 *
 *     panel    [K/64] pairs of groups, 1088 bytes each:
 *              | f16 d[2][16] | group 0 | group 1 |
 *                64 bytes       512       512
 *     group    eight vectors; vector v holds K = 4v .. 4v + 3 of all columns, signed; kernels
 *              take q + 128:
 *              | column 0: k0 k1 k2 k3 | column 1: k0 k1 k2 k3 | ... column 15 |
 *
 * A line of scales precedes what it scales, so the panel is one stream. (An odd number of groups
 * ends with half a pair.) */
enum { PER_q8_0 = 1, Q8_0_GROUP = 544 /* bytes, with its scales */ };
#define head_q8_0(panel, i, c) NO_HEAD
#define weights_q8_0(panel, i) ((panel) + PAIR_AT(i, 512) + 64 + (i) % 2 * 512)
#define bytes_q8_0(w, i, g, at) vb_flip(vb_load((w) + (g)*64 + (at)))

INLINE struct scales scales_q8_0(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + PAIR_AT(i, 512) + i % 2 * 32) + c;
    return (struct scales){vf_load_f16(at), head.d};
}

DEFINE_GROUPED(q8_0, WIDE_PLUS_128, RUN_BYTES)
