/* Two to four numbers around zero, one scale for 64 to 256 of K:
 *
 *     TQ1_0  w = d * (q - 1)    q 0..2, d for 256 of K
 *     TQ2_0  w = d * (q - 1)    q two bits, d for 256
 *     Q2_0   w = d * (q - 1)    q two bits, d for 64
 *     Q1_0   w = d or -d        d for 128
 *
 *     panels   TQ1_0  [K/512] | f16 d[2][16] | block 0 | block 1 |     64 + 2 x 832 bytes
 *                     block   | thirteen vectors of digits |
 *              TQ2_0  [K/512] | f16 d[2][16] | sixteen groups |         64 + 16 x 128
 *              Q2_0   [K/128] | f16 d[2][16] | four groups |            64 + 4 x 128
 *              Q1_0   [K/256] | f16 d[2][16] | eight groups |           64 + 8 x 64
 *
 *     group    two vectors of pairs of bits as in Q2_K, 128 bytes;
 *              of Q1_0 bits as the signs of IQ2, 64 bytes
 *     digits   Vector v of a block holds K = 20v .. 20v + 19, the last one 16: five digits to the
 *              base of three in a byte, digit n for K = 20v + 4n .. 20v + 4n + 3. The byte is their
 *              fraction of 256, rounded up: times 3^n its low byte is what digits n and on are, and
 *              three times that overflows into digit n. */

/* TQ1_0 */
enum { PER_tq1_0 = 8 };
#define TWO_tq1_0(panel, i) ((panel) + (size_t)((i) / 16) * (64 + 2 * PANEL_TQ1_0_BYTES))
#define weights_tq1_0(panel, i) (TWO_tq1_0(panel, i) + 64 + (i) / 8 % 2 * PANEL_TQ1_0_BYTES)

INLINE struct head head_tq1_0(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(TWO_tq1_0(panel, i) + i / 8 % 2 * 32) + c;
    return (struct head){vf_load_f16(at), vf_zero()};
}

INLINE vb bytes_tq1_0(const uint8_t *w, uint32_t i, int g, int at)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    const uint32_t k4 = i % 8 * 8 + (uint32_t)g;
    return vb_add(vb_ternary(vb_load(w + k4 / 5 * 64 + at), powers[k4 % 5]), 7);
}

/* TQ2_0 */
enum { PER_tq2_0 = 8 };
#define TWO_tq2_0(panel, i) ((panel) + (size_t)((i) / 16) * (64 + 16 * 128))
#define weights_tq2_0(panel, i) (TWO_tq2_0(panel, i) + 64 + (i) % 16 * 128)

INLINE struct head head_tq2_0(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(TWO_tq2_0(panel, i) + i / 8 % 2 * 32) + c;
    return (struct head){vf_load_f16(at), vf_zero()};
}

INLINE vb bytes_tq2_0(const uint8_t *w, uint32_t i, int g, int at)
{
    (void)i;
    return vb_add(two_bit_bytes(w, g, at), 7);
}

/* Q2_0 */
enum { PER_q2_0 = 2 };
#define TWO_q2_0(panel, i) ((panel) + (size_t)((i) / 4) * (64 + 4 * 128))
#define bytes_q2_0(w, i, g, at) bytes_tq2_0(w, i, g, at)
#define weights_q2_0(panel, i) (TWO_q2_0(panel, i) + 64 + (i) % 4 * 128)

INLINE struct head head_q2_0(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(TWO_q2_0(panel, i) + i / 2 % 2 * 32) + c;
    return (struct head){vf_load_f16(at), vf_zero()};
}

/* Q1_0 */
enum { PER_q1_0 = 4 };
#define TWO_q1_0(panel, i) ((panel) + (size_t)((i) / 8) * (64 + 8 * 64))
#define weights_q1_0(panel, i) (TWO_q1_0(panel, i) + 64 + (i) % 8 * 64)

INLINE struct head head_q1_0(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(TWO_q1_0(panel, i) + i / 4 % 2 * 32) + c;
    return (struct head){vf_load_f16(at), vf_zero()};
}

INLINE vb bytes_q1_0(const uint8_t *w, uint32_t i, int g, int at)
{
    (void)i;
    return vb_negate(vb_set1(127), w + g * 8 + at / 8);
}

#define HEAD_SCALES(head, panel, i, c) ((struct scales){(head).d, (head).dmin})
#define scales_tq1_0 HEAD_SCALES
#define scales_tq2_0 HEAD_SCALES
#define scales_q2_0 HEAD_SCALES
#define scales_q1_0 HEAD_SCALES

DEFINE_GROUPED(tq1_0, WIDE_PLUS_8, RUN_ALONE)

DEFINE_GROUPED(tq2_0, WIDE_PLUS_8, RUN_RARE)

DEFINE_GROUPED(q2_0, WIDE_PLUS_8, RUN_RARE)

DEFINE_GROUPED(q1_0, WIDE_PLUS_128, RUN_RARE)
