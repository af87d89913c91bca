/* Nibbles that look up a value in a table of sixteen:
 *
 *     IQ4_NL  w = d * iq4[q]            d for 32 of K
 *     IQ4_XS  w = d * scale * iq4[q]    d for 256 of K, scale (a signed byte here) for 32
 *     MXFP4   w = 2^(e - 128) * fp4[q]  e for 32 of K
 *     NVFP4   w = s / 2 * fp4[q]        s, a float of eight bits, for 16 of K
 *
 *     group    four vectors of nibbles as in Q4_0, 256 bytes
 *
 *     panels   IQ4_NL  as Q4_0
 *              IQ4_XS  [K/512] | f16 d[2][16] | block 0 | block 1 |        64 + 2 x 2176 bytes
 *                      block   | i8 scale[8][16] | eight groups |
 *              MXFP4   [K/128] | u8 e[4][16] | four groups |               64 + 4 x 256
 *              NVFP4   [K/64]  | u8 s[4][16] | two groups |                64 + 2 x 256
 *
 * The tables hold what the multiplying instructions take: unsigned bytes, iq4 + 128, fp4 + 16
 * and, where halves of a group have scales, fp4 + 32.
 * One instruction looks up a whole vector. */
static const uint8_t iq4_table[16] = {
    1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t fp4_table[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
static const uint8_t fp4_table_32[16] = {
    32, 33, 34, 35, 36, 38, 40, 44, 32, 31, 30, 29, 28, 26, 24, 20};

INLINE vb iq4_bytes(const uint8_t *w, int g, int at)
{
    return vb_lookup(iq4_table, nibble_bytes(w, g, at));
}

/* IQ4_NL */
enum { PER_iq4_nl = 1 };
#define head_iq4_nl(panel, i, c) NO_HEAD
#define weights_iq4_nl(panel, i) ((panel) + PAIR_AT(i, 256) + 64 + (i) % 2 * 256)
#define bytes_iq4_nl(w, i, g, at) iq4_bytes(w, g, at)

INLINE struct scales scales_iq4_nl(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(panel + PAIR_AT(i, 256) + i % 2 * 32) + c;
    return (struct scales){vf_load_f16(at), head.d};
}

/* IQ4_XS */
#define PAIR_iq4_xs(panel, i) ((panel) + (size_t)((i) / 16) * (64 + 2 * PANEL_IQ4_XS_BYTES))
#define BLOCK_iq4_xs(panel, i) (PAIR_iq4_xs(panel, i) + 64 + (i) / 8 % 2 * PANEL_IQ4_XS_BYTES)
#define weights_iq4_xs(panel, i) (BLOCK_iq4_xs(panel, i) + 128 + (i) % 8 * 256)
#define bytes_iq4_xs(w, i, g, at) iq4_bytes(w, g, at)
#define SCALES_iq4_xs(panel, i) (BLOCK_iq4_xs(panel, i) + (i) % 8 * 16)

INLINE struct head head_iq4_xs(const uint8_t *panel, uint32_t i, int c)
{
    const uint16_t *at = (const uint16_t *)(PAIR_iq4_xs(panel, i) + i / 8 % 2 * 32) + c;
    return (struct head){vf_load_f16(at), vf_zero()};
}

INLINE struct super_scales scales_iq4_xs(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const int8_t *at = (const int8_t *)SCALES_iq4_xs(panel, i) + c;
    return (struct super_scales){vi_load_i8(at), NO_SCALE, head.dmin, head.dmin};
}

/* MXFP4 */
enum { PER_mxfp4 = 1 };
#define FOUR_mxfp4(panel, i) ((panel) + (size_t)((i) / 4) * (64 + 4 * 256))
#define head_mxfp4(panel, i, c) NO_HEAD
#define weights_mxfp4(panel, i) (FOUR_mxfp4(panel, i) + 64 + (i) % 4 * 256)
#define bytes_mxfp4(w, i, g, at) vb_lookup(fp4_table, nibble_bytes(w, g, at))

INLINE struct scales scales_mxfp4(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    return (struct scales){vf_load_e8m0_half(FOUR_mxfp4(panel, i) + i % 4 * 16 + c), head.d};
}

/* NVFP4 */
enum { PER_nvfp4 = 1 };
#define TWO_nvfp4(panel, i) ((panel) + (size_t)((i) / 2) * (64 + 2 * 256))
#define head_nvfp4(panel, i, c) NO_HEAD
#define weights_nvfp4(panel, i) (TWO_nvfp4(panel, i) + 64 + (i) % 2 * 256)
#define bytes_nvfp4(w, i, g, at) vb_lookup(fp4_table_32, nibble_bytes(w, g, at))

INLINE struct scales scales_nvfp4(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    (void)head;
    const uint8_t *at = TWO_nvfp4(panel, i) + i % 2 * 32 + c;
    return (struct scales){vf_load_e4m3_half(at), vf_load_e4m3_half(at + 16)};
}

DEFINE_GROUPED(iq4_nl, WIDE_PLUS_128, RUN_SIMPLE)

DEFINE_SUPER(iq4_xs, SUPER_PLUS_128, RUN_USUAL)

DEFINE_GROUPED(mxfp4, WIDE_PLUS_16, RUN_SIMPLE)

DEFINE_GROUPED(nvfp4, WIDE_HALVES, RUN_COSTLY)
