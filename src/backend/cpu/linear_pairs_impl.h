/* Many rows of weights of four or five bits with half the multiplications (Winograd 1968, "A New
 * Algorithm for Inner Product"), where additions of bytes have ports of their own: on AMD's
 * processors.
 *
 * Eight of K are two words of four bytes each, x1 x2 of a row and w1 w2 of a column. Byte by byte
 *
 *     (x1 + o + w2) (x2 + w1) =   x1 w1 + x2 w2      what is wanted
 *      0 .. 255     -128 .. 127   + x1 x2 + o x2     of the row alone
 *                                 + w1 w2 + o w1     of the column alone
 *
 * with o = 128, x in -128..112 and w in 0..15, or x up to 96 and w up to 31: both factors are
 * bytes, so one vpdpbusd of them is worth two. Sums begin with what they will have too much of,
 * taken off (those of rows of padding with anything, so they may wrap): what 128 of K come to is
 * the same integer that SUPER_MIN makes, and so is every bit.
 *
 *     pack     act_block.pairs, of each 32 of a row
 *     widen    128 of K: | begin i32[16] | d f32[16] | group 0 | group 1 | group 2 | group 3 |
 *              group:    | scale i32[16] | min       | w1 | w2 + o | w1 | w2 + o | ... |
 *                          64 bytes        64          64 each, words 0 .. 7 of its K
 *              min:      of groups 0 and 2 i16[16][2], that and the next group's; of group 1 dmin
 *                        f32[16]
 *
 * begin: the columns' terms of all four groups times their scales, taken off; so what meets a scale
 * is the dot product of a group and its column's term, 126,976 + 78,864 at most. Of one row, 16
 * columns and 128 of K there are 16 vpdpbusd and 32 additions, four shuffles and vpdpwssd for
 * scales, two vpdpwssd for minima and five operations at the end: 63 on four ports that do one
 * every other cycle each, of which 25 on the two that multiply, where SUPER_MIN has 41 on those.
 * Four rows meet two panels, so that sums, totals and weights fit the registers. The price is
 * activations in 241 or 225 steps instead of 255; but those of one sign seldom reach as far as
 * those of the other, which have all of theirs (pack_uneven). */
enum {
    PAIRS_GROUP_BYTES = 128 + 8 * 64,
    PAIRS_SUPER_BYTES = 128 + SUPER_K / 32 * PAIRS_GROUP_BYTES,
    PAIRS_PART_BYTES = TILE_K / SUPER_K * PAIRS_SUPER_BYTES,
};
_Static_assert(TILE_PANELS *PAIRS_PART_BYTES <= WIDE_PART_BYTES && PARTS == 1,
               "sums lie behind wide parts");

/* The weights of a group; begin: what totals begin with, of the groups before. */
INLINE vi widen_pairs(const vb q[8], vi begin, vi scale, uint8_t *to)
{
    vi off = vi_set1(0);
    UNROLL for (int g = 0; g < 8; g += 2)
    {
        const vb w2 = vb_flip(q[g + 1]);
        off = vi_dot_bytes(off, w2, q[g]);
        vb_store(to + g * 64, q[g]);
        vb_store(to + g * 64 + 64, w2);
    }
    return vi_minus(begin, vi_times(off, scale));
}

/* Where four rows of a tile are; of their addresses one is kept, and strides. */
struct pairs_at {
    const int8_t *q;
    size_t stride, stride_3;
    const struct act_block *b;
    const uint8_t *wide; /* of the first panel */
};

#define PAIRS_ROW(m) ((m) == 3 ? at->stride_3 : (size_t)(m)*at->stride)
#define PAIRS_WIDE(v, where) (at->wide + (v)*PAIRS_PART_BYTES + (where))
#define EACH_PAIRS_SUM UNROLL for (int m = 0; m < ACT_TILE; m++) UNROLL for (int v = 0; v < V; v++)

/* A group meets four rows. V: panels, here and below. */
INLINE void pairs_group(const struct pairs_at *at, vi total[ACT_TILE][TILE_PANELS], const int V)
{
    vi s[ACT_TILE][TILE_PANELS];
    EACH_PAIRS_SUM s[m][v] = vi_set1(at->b[m].pairs);
    UNROLL for (int g = 0; g < 8; g += 2)
    {
        vb w1[TILE_PANELS], w2[TILE_PANELS];
        UNROLL for (int v = 0; v < V; v++)
        {
            w1[v] = vb_load(PAIRS_WIDE(v, 128 + g * 64));
            w2[v] = vb_load(PAIRS_WIDE(v, 192 + g * 64));
        }
        UNROLL for (int m = 0; m < ACT_TILE; m++)
        {
            const int8_t *q = at->q + PAIRS_ROW(m) + g * 4;
            const vb x1 = vb_set4(load_i32(q)), x2 = vb_set4(load_i32(q + 4));
            UNROLL for (int v = 0; v < V; v++) s[m][v] =
                vi_dot_bytes(s[m][v], vb_plus(x1, w2[v]), vb_plus(x2, w1[v]));
        }
    }
    EACH_PAIRS_SUM total[m][v] =
        vi_add_times(total[m][v], s[m][v], vi_load((const int32_t *)PAIRS_WIDE(v, 0)));
}

/* What 128 of K came to for four rows meets their sums. */
INLINE void pairs_meet(const struct pairs_at *at,
                       vi total[ACT_TILE][TILE_PANELS],
                       float *sums,
                       const int V)
{
    UNROLL for (int v = 0; v < V; v++)
    {
        const uint8_t *min = PAIRS_WIDE(v, 128 + 64);
        const vi off0 = vi_load((const int32_t *)min);
        const vi off2 = vi_load((const int32_t *)(min + 2 * PAIRS_GROUP_BYTES));
        const vf d = vf_load((const float *)PAIRS_WIDE(v, 64));
        const vf dmin = vf_load((const float *)(min + PAIRS_GROUP_BYTES));
        UNROLL for (int m = 0; m < ACT_TILE; m++)
        {
            const struct act_block *b = at->b + m;
            float *sum = sums + (m * TILE_PANELS + v) * VL;
            vi off = vi_dot_words(vi_set1(0), off0, b->sums);
            off = vi_dot_words(off, off2, b[2 * ACT_TILE].sums);
            vf_store(sum, add_super_min(vf_load(sum), total[m][v], off, d, dmin, b));
        }
    }
}

/* 128 of K meet four rows. */
INLINE void pairs_super(struct pairs_at *at, float *sums, const int V)
{
    vi total[ACT_TILE][TILE_PANELS];
    struct pairs_at begin = *at;
    EACH_PAIRS_SUM total[m][v] = vi_load((const int32_t *)PAIRS_WIDE(v, 0));
    at->wide += 128;
    for (int g = 0; g < SUPER_K / 32; g++) {
        __asm__(""
                : "+r"(at->q), "+r"(at->stride), "+r"(at->stride_3), "+r"(at->b), "+r"(at->wide));
        pairs_group(at, total, V);
        at->q += 32;
        at->b += ACT_TILE;
        at->wide += PAIRS_GROUP_BYTES;
    }
    __asm__("" : "+r"(begin.wide), "+r"(begin.b), "+r"(sums));
    pairs_meet(&begin, total, sums, V);
}

INLINE void pairs_rows(const struct tile *t, uint32_t row, const int V)
{
    const struct act_int8 *acts = &t->j->act->by128;
    const uint32_t k = t->j->act->k;
    struct pairs_at at = {
        .q = acts->q + row * act_q_stride(k) + t->first_k,
        .stride = act_q_stride(k),
        .stride_3 = act_q_stride(k) * 3,
        .b = acts->b + ((size_t)(row / ACT_TILE) * k + t->first_k) / 32 * ACT_TILE,
        .wide = t->wide,
    };
    float *sums = t->sums + (size_t)(row - t->j->first_row) * TILE_PANELS * VL;
    const uint8_t *ask = tile_asks(t, row);
    for (uint32_t i = 0; i < t->n_k; i += SUPER_K, ask += t->ask) {
        tile_ask(t, ask, TILE_PANELS);
        pairs_super(&at, sums, V);
    }
}

INLINE void pairs_tile(const struct tile *t, uint32_t row)
{
    if (t->n_panels == TILE_PANELS)
        pairs_rows(t, row, TILE_PANELS);
    else
        pairs_rows(t, row, 1);
}

DEFINE_MULTIPLY(pairs, 4, pairs_tile(t, row))

#define DEFINE_PAIRS(name)                                                                         \
    static void widen_pairs_##name(const struct tile *t, uint32_t p)                               \
    {                                                                                              \
        const uint8_t *panel = t->panels + p * t->j->panel_bytes;                                  \
        uint8_t *to = t->wide + (size_t)p * PAIRS_PART_BYTES;                                      \
        for (uint32_t k = t->first_k; k < t->first_k + t->n_k; k += SUPER_K) {                     \
            const struct head head = head_##name(panel, k / 256 * 8, 0);                           \
            uint8_t *group = to + 128;                                                             \
            vi begin = vi_set1(0);                                                                 \
            for (uint32_t i = k / 32; i < (k + SUPER_K) / 32; i++, group += PAIRS_GROUP_BYTES) {   \
                const uint8_t *w = weights_##name(panel, i);                                       \
                const struct super_scales scales = scales_##name(head, panel, i, 0);               \
                vb q[8];                                                                           \
                UNROLL for (int g = 0; g < 8; g++) q[g] = bytes_##name(w, i, g, 0);                \
                vi_store((int32_t *)group, vi_scale(scales.w));                                    \
                vi off = scales.second;                                                            \
                if (i % 2 == 0)                                                                    \
                    off = two_words(off, scales_##name(head, panel, i + 1, 0).second);             \
                vi_store((int32_t *)(group + 64), off);                                            \
                begin = widen_pairs(q, begin, scales.w, group + 128);                              \
            }                                                                                      \
            vi_store((int32_t *)to, begin);                                                        \
            vf_store((float *)(to + 64), head.d);                                                  \
            vf_store((float *)(to + 128 + PAIRS_GROUP_BYTES + 64), head.dmin);                     \
            to += PAIRS_SUPER_BYTES;                                                               \
        }                                                                                          \
    }                                                                                              \
    static void pairs_##name(const struct linear_job *j)                                           \
    {                                                                                              \
        static const struct tile_format format = {.panels = TILE_PANELS,                           \
                                                  .part_k = TILE_K,                                \
                                                  .part_bytes = PART_BYTES_##name,                 \
                                                  .max_rows = ACT_TILE,                            \
                                                  .widen = widen_pairs_##name,                     \
                                                  .multiply = {multiply4_pairs}};                  \
        if (j->n_rows < PAIRS_MIN_ROWS)                                                            \
            run_##name(j);                                                                         \
        else                                                                                       \
            run_tiled(j, &format);                                                                 \
    }

DEFINE_PAIRS(q4_k)
DEFINE_PAIRS(q5_k)

#undef PAIRS_ROW
#undef PAIRS_WIDE
#undef EACH_PAIRS_SUM
