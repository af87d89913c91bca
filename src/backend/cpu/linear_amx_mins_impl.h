/* What Q4_K and Q5_K take off, on the tile unit. Of w = d scale q - dmin min, min six bits for each
 * 32 of K, a sum has for each 256 of K
 *
 *     - dmin * (sum over groups of 32:  min s),   s = d sum(q) of the activations
 *
 * In vectors that is a multiply-add for each 32 of K, four of seven multiplications for 128, on the
 * one port that is left for them while the unit is in use. Instead the part in brackets is a
 * product of bf16 (s a sum of two, hi + lo, 16 bits) of 16 rows, 16 columns and 8 groups, one
 * instruction, and what is left is a multiply-add for 256 of K:
 *
 *     A  [16 rows][8 groups, 8 of zeros] { s hi, s lo }                 act.by128.sums, of -s
 *     B  [8 groups, 8 of zeros][16 columns] { min, min }
 *     C  [16 rows][16 columns]                                          f32
 *
 * Its order of sums linear_amx_float_impl.h tells; vectors repeat it for few rows. Before dmin a
 * sum is larger than after: activations beyond 1e34 may make it infinite here alone. */

/* A of 256 of K from k on. */
INLINE const uint16_t *amx_mins_a(const struct act *a, uint32_t row, uint32_t k)
{
    return a->by128.sums + row * act_sums_stride(a->k) + (size_t)k / 256 * 32;
}

/* Group g of a B. */
INLINE void amx_mins_store(uint8_t *b, uint32_t g, vf min)
{
    vb_store(b + (size_t)g * 64, amx_pairs(min, min));
}

/* --- few rows, in vectors ------------------------------------------------------------------------
 */

/* Hooks of DEFINE_SUPER_FEW, which use its names. hi_sum, lo_sum: of a pair's firsts and its
 * seconds, within 256 of K of sum v. What they come to meets a C of 0, which makes a 0 positive. */
#define AMX_MINS_BEGIN                                                                             \
    vf hi_sum[LINEAR_M][4], lo_sum[LINEAR_M][4];                                                   \
    EACH_ROW EACH_FEW_SUM hi_sum[m][v] = lo_sum[m][v] = vf_zero()

#define AMX_MINS_GROUP                                                                             \
    EACH_ROW                                                                                       \
    {                                                                                              \
        const uint16_t *of_row = amx_mins_a(j->act, row + m, i * 32) + i % 8 * 2;                  \
        hi_sum[m][v] = vf_fma(scales[0].other_min, amx_of_pair(of_row, false), hi_sum[m][v]);      \
        lo_sum[m][v] = vf_fma(scales[0].other_min, amx_of_pair(of_row, true), lo_sum[m][v]);       \
    }

#define AMX_MINS_MEET(name, v, h, head, panel)                                                     \
    NO_MINS_MEET(name, v, h, head, panel)                                                          \
    EACH_ROW                                                                                       \
    {                                                                                              \
        if (first % 8 == 0) /* the first 128 of 256 */                                             \
            continue;                                                                              \
        const vf sum = vf_add(vf_zero(), vf_add(hi_sum[m][v], lo_sum[m][v]));                      \
        kept[m][v] = vf_fma(sum, (head).dmin, kept[m][v]);                                         \
        hi_sum[m][v] = lo_sum[m][v] = vf_zero();                                                   \
    }
