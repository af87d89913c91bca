/* Points of a grid, looked up from memory, and signs (gguf/grids.h):
 *
 *     IQ1_S IQ1_M            w = d / 4 * (scale + 1/2) * (8 * (digit - 1) +- 1)
 *     IQ2_XXS IQ2_XS IQ2_S   w = d / 4 * (scale + 1/2) * +-{8, 25, 43}[digit]
 *     IQ3_XXS                w = d / 2 * (scale + 1/2) * +-{4, 12, 20, 28, 36, 44, 52, 62}[digit]
 *     IQ3_S                  w = d * 2 * (scale + 1/2) * +-(2 * digit + 1)
 *
 *     panel    [K/512] | f16 d[2][16] | block 0 | block 1 |
 *     block    | scales | upper bits | eight groups |
 *     scales   64 bytes:  [4 pairs of groups][16], the first group's in the low nibble
 *              128 bytes: [8 groups][16], the first half's in the low nibble
 *     group    | points [4 or 8][16] | signs [8][16 x 4 bits] |
 *              Byte j, c of the points: the low eight bits of point j's number in column c.
 *              Bit 4c + i of word g of the signs: whether K = 4g + i of column c is negative.
 *
 *              scales   upper bits                                     group      block
 *     IQ1_S    in them  u16 [8][16]: 4 x 3 bits, scale 3, sign of 1    64         768
 *     IQ1_M    128      u16 [8][16]: 4 x (3 bits, sign of 1)           64         896
 *     IQ2_XXS  64       -                                              64 + 64    1088
 *     IQ2_XS   128      64: [4 pairs][16], 4 x 1 bit in a nibble       64 + 64    1216
 *     IQ2_S    128      128: [8][16], 4 x 2 bits                       64 + 64    1280
 *     IQ3_XXS  64       -                                              128 + 64   1600
 *     IQ3_S    64       128: [8][16], 8 x 1 bit                        128 + 64   1728
 *
 * A point's digits come as nibbles of a word: a gather brings the points of all columns, each
 * lane's two masks are K = 4g .. 4g + 3 of two g. Numbers are v + 128 where they have signs, for a
 * negated byte is then 128 - v; and 8 * digit + 8 + 1 or more in IQ1, which has no signs but halves
 * the distance between its digits. */
#if VL == 4 /* in plain C a call costs little beside what it does, and saves a minute's compiling  \
             */
#define UNPACK static __attribute__((noinline))
#else
#define UNPACK INLINE
#endif

static const uint8_t iq2_table[16] = {128 + 8, 128 + 25, 128 + 43};
static const uint8_t iq3_xxs_table[16] = {
    128 + 4, 128 + 12, 128 + 20, 128 + 28, 128 + 36, 128 + 44, 128 + 52, 128 + 62};
static const uint8_t iq3_s_table[16] = {
    128 + 1, 128 + 3, 128 + 5, 128 + 7, 128 + 9, 128 + 11, 128 + 13, 128 + 15};

INLINE vf grid_scale(vf d, vi scale)
{
    return vf_mul(d, vf_add(vf_from_i(scale), vf_set1(0.5f)));
}

/* One scale for a group, of a pair's; and one for either half. */
INLINE struct scales grid_scales(vf d, const uint8_t *block, uint32_t i, int c)
{
    const vi both = vi_load_u8(block + i % 8 / 2 * 16 + c);
    return (struct scales){grid_scale(d, vi_mask(vi_shift_right(both, i % 2 * 4), 15)), vf_zero()};
}

INLINE struct scales grid_half_scales(vf d, const uint8_t *block, uint32_t i, int c)
{
    const vi both = vi_load_u8(block + i % 8 * 16 + c);
    return (struct scales){grid_scale(d, vi_mask(both, 15)), grid_scale(d, vi_shift(both, -4))};
}

/* Eight digits to a point: those of K = 4g .. 4g + 3. */
INLINE vb grid_digits(vi point, int g)
{
    return g % 2 ? vb_high4(vb_from_i(point)) : vb_low4(vb_from_i(point));
}

/* digit * 8 of the same, digits below 4. */
INLINE vb grid_digits8(vi point, int g)
{
    return vb_mask(vb_from_i(vi_shift(point, g % 2 ? -1 : 3)), 0x18);
}

/* Where things are: BLOCK of group i, and from w of group i its group's block. */
#define GRID_FORMAT(NAME, name, scale_bytes, upper_bytes, points_bytes, signs_bytes, step)         \
    enum {                                                                                         \
        PER_##name = 8,                                                                            \
        GROUP_##name = (points_bytes) + (signs_bytes),                                             \
        UPPER_##name = (scale_bytes),                                                              \
        BLOCK_##name = (scale_bytes) + (upper_bytes) + 8 * GROUP_##name                            \
    };                                                                                             \
    _Static_assert((int)BLOCK_##name == PANEL_##NAME##_BYTES, "as formats.h has it");              \
    INLINE const uint8_t *block_##name(const uint8_t *panel, uint32_t i)                           \
    {                                                                                              \
        return panel + (size_t)(i / 16) * (64 + 2 * BLOCK_##name) + 64 + i / 8 % 2 * BLOCK_##name; \
    }                                                                                              \
    INLINE const uint8_t *weights_##name(const uint8_t *panel, uint32_t i)                         \
    {                                                                                              \
        return block_##name(panel, i) + UPPER_##name + (upper_bytes) + i % 8 * GROUP_##name;       \
    }                                                                                              \
    INLINE const uint8_t *upper_##name(const uint8_t *w, uint32_t i)                               \
    {                                                                                              \
        return w - i % 8 * GROUP_##name - (upper_bytes);                                           \
    }                                                                                              \
    INLINE struct head head_##name(const uint8_t *panel, uint32_t i, int c)                        \
    {                                                                                              \
        const uint8_t *two = panel + (size_t)(i / 16) * (64 + 2 * BLOCK_##name);                   \
        const uint16_t *at = (const uint16_t *)(two + i / 8 % 2 * 32) + c;                         \
        return (struct head){vf_mul(vf_load_f16(at), vf_set1(step)), vf_zero()};                   \
    }

GRID_FORMAT(IQ1_S, iq1_s, 0, 256, 64, 0, 0.25f)
GRID_FORMAT(IQ1_M, iq1_m, 128, 256, 64, 0, 0.25f)
GRID_FORMAT(IQ2_XXS, iq2_xxs, 64, 0, 64, 64, 0.25f)
GRID_FORMAT(IQ2_XS, iq2_xs, 128, 64, 64, 64, 0.25f)
GRID_FORMAT(IQ2_S, iq2_s, 128, 128, 64, 64, 0.25f)
GRID_FORMAT(IQ3_XXS, iq3_xxs, 64, 0, 128, 64, 0.5f)
GRID_FORMAT(IQ3_S, iq3_s, 64, 128, 128, 64, 2.0f)

/* IQ1_S: 8 * (digit - 1) +- 1 + 16 */
INLINE struct scales scales_iq1_s(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    const vi upper = vi_load_u16((const uint16_t *)(block_iq1_s(panel, i) + i % 8 * 32) + c);
    return (struct scales){grid_scale(head.d, vi_mask(vi_shift(upper, -12), 7)), vf_zero()};
}

INLINE vb bytes_iq1_s(const uint8_t *w, uint32_t i, int g, int at)
{
    const vi upper = vi_load_u16((const uint16_t *)(upper_iq1_s(w, i) + i % 8 * 32) + at / 4);
    const vi low = vi_load_u8(w + g / 2 * 16 + at / 4);
    const vi index = vi_or_mask(low, vi_shift(upper, 8 - g / 2 * 3), 0x700);
    return vb_plus(grid_digits8(vi_gather(block_grids.iq1, index), g),
                   vi_choose(upper, 15, 0x07070707, 0x09090909));
}

/* IQ1_M: 8 * (digit - 1) +- 1 + 32 */
INLINE struct scales scales_iq1_m(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    return grid_half_scales(head.d, block_iq1_m(panel, i), i, c);
}

INLINE vb bytes_iq1_m(const uint8_t *w, uint32_t i, int g, int at)
{
    const vi upper = vi_load_u16((const uint16_t *)(upper_iq1_m(w, i) + i % 8 * 32) + at / 4);
    const vi low = vi_load_u8(w + g / 2 * 16 + at / 4);
    const vi index = vi_or_mask(low, vi_shift(upper, 8 - g / 2 * 4), 0x700);
    return vb_plus(grid_digits8(vi_gather(block_grids.iq1, index), g),
                   vi_choose(upper, g / 2 * 4 + 3, 0x17171717, 0x19191919));
}

/* IQ2_XXS */
INLINE struct scales scales_iq2_xxs(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    return grid_scales(head.d, block_iq2_xxs(panel, i), i, c);
}

INLINE vb bytes_iq2_xxs(const uint8_t *w, uint32_t i, int g, int at)
{
    (void)i;
    const vi index = vi_load_u8(w + g / 2 * 16 + at / 4);
    const vb digits = grid_digits(vi_gather(block_grids.iq2_xxs, index), g);
    return vb_negate(vb_lookup(iq2_table, digits), w + 64 + g * 8 + at / 8);
}

/* IQ2_XS */
INLINE struct scales scales_iq2_xs(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    return grid_half_scales(head.d, block_iq2_xs(panel, i), i, c);
}

INLINE vb bytes_iq2_xs(const uint8_t *w, uint32_t i, int g, int at)
{
    const vi pair = vi_load_u8(upper_iq2_xs(w, i) + i % 8 / 2 * 16 + at / 4);
    const vi low = vi_load_u8(w + g / 2 * 16 + at / 4);
    const vi upper = vi_shift_right(pair, i % 2 * 4);
    const vi index = vi_or_mask(low, vi_shift(upper, 8 - g / 2), 0x100);
    const vb digits = grid_digits(vi_gather(block_grids.iq2_xs, index), g);
    return vb_negate(vb_lookup(iq2_table, digits), w + 64 + g * 8 + at / 8);
}

/* IQ2_S */
INLINE struct scales scales_iq2_s(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    return grid_half_scales(head.d, block_iq2_s(panel, i), i, c);
}

INLINE vb bytes_iq2_s(const uint8_t *w, uint32_t i, int g, int at)
{
    const vi upper = vi_load_u8(upper_iq2_s(w, i) + i % 8 * 16 + at / 4);
    const vi low = vi_load_u8(w + g / 2 * 16 + at / 4);
    const vi index = vi_or_mask(low, vi_shift(upper, 8 - g / 2 * 2), 0x300);
    const vb digits = grid_digits(vi_gather(block_grids.iq2_s, index), g);
    return vb_negate(vb_lookup(iq2_table, digits), w + 64 + g * 8 + at / 8);
}

/* IQ3_XXS */
INLINE struct scales scales_iq3_xxs(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    return grid_scales(head.d, block_iq3_xxs(panel, i), i, c);
}

INLINE vb bytes_iq3_xxs(const uint8_t *w, uint32_t i, int g, int at)
{
    (void)i;
    const vi point = vi_gather(block_grids.iq3_xxs, vi_load_u8(w + g * 16 + at / 4));
    return vb_negate(vb_lookup(iq3_xxs_table, vb_from_i(point)), w + 128 + g * 8 + at / 8);
}

/* IQ3_S */
INLINE struct scales scales_iq3_s(struct head head, const uint8_t *panel, uint32_t i, int c)
{
    return grid_scales(head.d, block_iq3_s(panel, i), i, c);
}

INLINE vb bytes_iq3_s(const uint8_t *w, uint32_t i, int g, int at)
{
    const vi upper = vi_load_u8(upper_iq3_s(w, i) + i % 8 * 16 + at / 4);
    const vi low = vi_load_u8(w + g * 16 + at / 4);
    const vi point = vi_gather(block_grids.iq3_s, vi_or_mask(low, vi_shift(upper, 8 - g), 0x100));
    return vb_negate(vb_lookup(iq3_s_table, vb_from_i(point)), w + 128 + g * 8 + at / 8);
}

DEFINE_GROUPED(iq1_s, WIDE_PLUS_16, RUN_GRID)

DEFINE_GROUPED(iq1_m, WIDE_HALVES, RUN_GRID)

DEFINE_GROUPED(iq2_xxs, WIDE_PLUS_128, RUN_GRID)

DEFINE_GROUPED(iq2_xs, WIDE_HALVES_128, RUN_GRID)

DEFINE_GROUPED(iq2_s, WIDE_HALVES_128, RUN_GRID)

DEFINE_GROUPED(iq3_xxs, WIDE_PLUS_128, RUN_GRID)

DEFINE_GROUPED(iq3_s, WIDE_PLUS_128, RUN_GRID)
