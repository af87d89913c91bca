/* Nibbles with a minimum, and with a fifth bit:
 *
 *     Q4_1  w = d * q + m          q four bits, d and m for 32 of K
 *     Q5_0  w = d * (q - 16)       q five bits, d for 32 of K
 *     Q5_1  w = d * q + m          q five bits, d and m for 32 of K
 *     Q5_K  w = d * scale * q - dmin * min      as Q4_K with q five bits
 *
 *     group    | one vector of fifth bits, not in Q4_1 | four vectors of nibbles as in Q4_0 |
 *                64 bytes                                256
 *              Bit g of a byte of the first belongs to K = 4g .. 4g + 3.
 *
 *     panels   Q4_1  [K/32]    | f16 d[16] | f16 -m[16] | group |          64 + 256 bytes
 *              Q5_0  [K/64]    | f16 d[2][16] | group 0 | group 1 |        64 + 320 + 320
 *              Q5_1  [K/32]    | f16 d[16] | f16 -m[16] | group |          64 + 320
 *              Q5_K  [K/256]   | f16 d[16] | f16 dmin[16] | pair 0 | ... pair 3 |
 *                    pair      | u8 scale[16], min[16] of group 0, of group 1 | group 0 | group 1 |
 *
 * The minimum is kept as what is taken off, so that all take the arithmetic of Q4_K. */
INLINE vb five_bit_bytes(const uint8_t *w, int g, int at)
{
    return vb_or_mask(nibble_bytes(w + 64, g, at), vb_shift(vb_load(w + at), 4 - g), 0x10);
}

/* Q4_1 */
enum { PER_q4_1 = 1, Q4_1_GROUP = PANEL_Q4_1_BYTES };
#define head_q4_1(panel, i, c) NO_HEAD
#define weights_q4_1(panel, i) ((panel) + (size_t)(i)*Q4_1_GROUP + 64)
#define bytes_q4_1(w, i, g, at) nibble_bytes(w, g, at)

INLINE struct scales scales_q4_1(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    (void)head;
    const uint16_t *at = (const uint16_t *)(panel + (size_t)i * Q4_1_GROUP) + c;
    return (struct scales){vf_load_f16(at), vf_load_f16(at + 16)};
}

/* Q5_0 */
enum { PER_q5_0 = 1 };
#define head_q5_0(panel, i, c) NO_HEAD
#define weights_q5_0(panel, i) ((panel) + PAIR_AT(i, 320) + 64 + (i) % 2 * 320)
#define bytes_q5_0(w, i, g, at) five_bit_bytes(w, g, at)

INLINE struct scales scales_q5_0(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + PAIR_AT(i, 320) + i % 2 * 32) + c;
    return (struct scales){vf_load_f16(at), head.d};
}

/* Q5_1 */
enum { PER_q5_1 = 1, Q5_1_GROUP = PANEL_Q5_1_BYTES };
#define head_q5_1(panel, i, c) NO_HEAD
#define weights_q5_1(panel, i) ((panel) + (size_t)(i)*Q5_1_GROUP + 64)
#define bytes_q5_1(w, i, g, at) five_bit_bytes(w, g, at)

INLINE struct scales scales_q5_1(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    (void)head;
    const uint16_t *at = (const uint16_t *)(panel + (size_t)i * Q5_1_GROUP) + c;
    return (struct scales){vf_load_f16(at), vf_load_f16(at + 16)};
}

/* Q5_K */
#define PAIR_q5_k(panel, i)                                                                        \
    ((panel) + (size_t)((i) / 8) * PANEL_Q5_K_BYTES + 64 + PAIR_AT((i) % 8, 320))
#define weights_q5_k(panel, i) (PAIR_q5_k(panel, i) + 64 + (i) % 2 * 320)
#define bytes_q5_k(w, i, g, at) five_bit_bytes(w, g, at)

INLINE struct head head_q5_k(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + (size_t)(i / 8) * PANEL_Q5_K_BYTES) + c;
    return (struct head){vf_load_f16(at), vf_load_f16(at + 16)};
}

INLINE struct super_scales scales_q5_k(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const uint8_t *at = PAIR_q5_k(panel, i) + i % 2 * 32 + c;
    return (struct super_scales){
        vi_load_u8(at), vi_load_u8(at + 16), head.dmin, vf_load_u8(at + 16)};
}

DEFINE_GROUPED(q4_1, WIDE_MIN, RUN_SIMPLE)

DEFINE_GROUPED(q5_0, WIDE_PLUS_16, RUN_SIMPLE)

DEFINE_GROUPED(q5_1, WIDE_MIN_31, RUN_SIMPLE)

DEFINE_SUPER_OF(q5_k, SUPER_MIN_31, TAKE_OFF, RUN_USUAL)
