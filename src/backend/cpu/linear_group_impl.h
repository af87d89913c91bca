/* Kernels made from the description of a format. A format NAME says
 *
 *     PER_NAME                     groups of 32 of K that share a head
 *     head_NAME(panel, i, c)       what those share: scales, of columns c .. c + VL - 1; i is the
 *                                  first group
 *     scales_NAME(head, panel, i, c)   the scales of group i
 *     weights_NAME(panel, i)       where group i's weights begin
 *     bytes_NAME(w, i, g, at)      its K = 4g .. 4g + 3, g = 0..7, as the unsigned bytes that the
 *                                  kind wants; w: where they begin, at: first column times 4
 *
 * and DEFINE_GROUPED makes linear_NAME, for few rows, and widen_NAME, for the tiles. The kinds are
 * those of the tiles (enum wide_kind), and so is the arithmetic. */

struct head {
    vf d, dmin;
};

struct scales {
    vf w, second;
};

#define NO_HEAD ((struct head){vf_zero(), vf_zero()})

/* Of a whole group in the order of nibbles, so that a vector of them is taken apart at once. */
#define GROUP_DOTS(name, begin, end, dot, s)                                                       \
    UNROLL for (int k = begin; k < end; k++)                                                       \
    {                                                                                              \
        const int g = end - begin == 8 ? k % 2 * 4 + k / 2 : k;                                    \
        vb wv = bytes_##name(w, i, g, h * VL * 4);                                                 \
        ASK_EVENLY(k, ask_lines, wv)                                                               \
        EACH_ROW s[m] = dot(s[m], wv, Q4(i * 8 + (uint32_t)g, m));                                 \
    }

/* Scales come after the dot products, which need the registers. */
#define FEW_PLUS_128(name)                                                                         \
    {                                                                                              \
        vi s[LINEAR_M];                                                                            \
        EACH_ROW s[m] = vi_begin128(ACT_BLOCK(i, m)->n128);                                        \
        GROUP_DOTS(name, 0, 8, vi_dot128, s)                                                       \
        const struct scales scales = scales_##name(head, panel, i, h * VL);                        \
        EACH_ROW acc[m][v] = add_group(acc[m][v], s[m], scales.w, ACT_BLOCK(i, m));                \
    }

#define FEW_PLUS_8(name)                                                                           \
    {                                                                                              \
        vn s[LINEAR_M];                                                                            \
        EACH_ROW s[m] = vn_begin(ACT_BLOCK(i, m)->n8);                                             \
        GROUP_DOTS(name, 0, 8, vn_dot, s)                                                          \
        const struct scales scales = scales_##name(head, panel, i, h * VL);                        \
        EACH_ROW acc[m][v] =                                                                       \
            add_group(acc[m][v], vn_end(s[m], ACT_BLOCK(i, m)->n8), scales.w, ACT_BLOCK(i, m));    \
    }

#define FEW_PLUS_16(name)                                                                          \
    {                                                                                              \
        vi s[LINEAR_M];                                                                            \
        EACH_ROW s[m] = vi_begin16(ACT_BLOCK(i, m));                                               \
        GROUP_DOTS(name, 0, 8, vi_dot, s)                                                          \
        const struct scales scales = scales_##name(head, panel, i, h * VL);                        \
        EACH_ROW acc[m][v] = add_group(acc[m][v], s[m], scales.w, ACT_BLOCK(i, m));                \
    }

#define FEW_MIN(name)                                                                              \
    {                                                                                              \
        vn s[LINEAR_M];                                                                            \
        EACH_ROW s[m] = vn_begin(0);                                                               \
        GROUP_DOTS(name, 0, 8, vn_dot, s)                                                          \
        const struct scales scales = scales_##name(head, panel, i, h * VL);                        \
        EACH_ROW acc[m][v] =                                                                       \
            add_group_min(acc[m][v], vn_end(s[m], 0), scales.w, scales.second, ACT_BLOCK(i, m));   \
    }

#define FEW_MIN_31(name)                                                                           \
    {                                                                                              \
        vi s[LINEAR_M];                                                                            \
        EACH_ROW s[m] = vi_set1(0);                                                                \
        GROUP_DOTS(name, 0, 8, vi_dot, s)                                                          \
        const struct scales scales = scales_##name(head, panel, i, h * VL);                        \
        EACH_ROW acc[m][v] =                                                                       \
            add_group_min(acc[m][v], s[m], scales.w, scales.second, ACT_BLOCK(i, m));              \
    }

/* Sums in two halves fill the registers. */
#define SUMS_IN_MEMORY                                                                             \
    if (M > 4)                                                                                     \
        __asm__("" : "+m"(acc));

#define FEW_HALVES(name)                                                                           \
    {                                                                                              \
        vn s[LINEAR_M];                                                                            \
        vf t[LINEAR_M];                                                                            \
        EACH_ROW s[m] = vn_begin32(ACT_BLOCK(i, m)->n32[0]);                                       \
        GROUP_DOTS(name, 0, 4, vn_dot, s)                                                          \
        const struct scales scales = scales_##name(head, panel, i, h * VL);                        \
        EACH_ROW t[m] = vf_mul(vf_from_i(vn_end(s[m], 0)), scales.w);                              \
        EACH_ROW s[m] = vn_begin32(ACT_BLOCK(i, m)->n32[1]);                                       \
        GROUP_DOTS(name, 4, 8, vn_dot, s)                                                          \
        EACH_ROW acc[m][v] =                                                                       \
            add_halves(acc[m][v], t[m], vn_end(s[m], 0), scales.second, ACT_BLOCK(i, m));          \
        SUMS_IN_MEMORY                                                                             \
    }

#define FEW_HALVES_128(name)                                                                       \
    {                                                                                              \
        vi s[LINEAR_M];                                                                            \
        vf t[LINEAR_M];                                                                            \
        EACH_ROW s[m] = vi_begin128_half(ACT_BLOCK(i, m), 0);                                      \
        GROUP_DOTS(name, 0, 4, vi_dot128, s)                                                       \
        const struct scales scales = scales_##name(head, panel, i, h * VL);                        \
        EACH_ROW t[m] = vf_mul(vf_from_i(s[m]), scales.w);                                         \
        EACH_ROW s[m] = vi_begin128_half(ACT_BLOCK(i, m), 1);                                      \
        GROUP_DOTS(name, 4, 8, vi_dot128, s)                                                       \
        EACH_ROW acc[m][v] = add_halves(acc[m][v], t[m], s[m], scales.second, ACT_BLOCK(i, m));    \
        SUMS_IN_MEMORY                                                                             \
    }

/* Where more than two rows meet the panels, each loads its activations anew: a compiler that knew
 * them to be the same would keep all eight of each row in memory in between. */
#define ACT_ANEW                                                                                   \
    if (M > 2 && VL > 4)                                                                           \
        __asm__("" : "+r"(q), "+r"(blocks));

/* few: one of FEW_*. */
#define DEFINE_GROUPED(name, few)                                                                  \
    INLINE void linear_##name(const struct linear_job *j,                                          \
                              uint32_t p0,                                                         \
                              uint32_t row,                                                        \
                              const int M,                                                         \
                              const int T,                                                         \
                              const int P)                                                         \
    {                                                                                              \
        ACT_POINTERS(by32);                                                                        \
        const uint8_t *panels = j->panels + p0 * j->panel_bytes;                                   \
        FEW_SUMS;                                                                                  \
        for (int begin = 0; begin < PARTS; begin += at_once) {                                     \
            ASK_AHEAD(name)                                                                        \
            vf acc[LINEAR_M][4 * PARTS_AT_ONCE(1)];                                                \
            EACH_ROW EACH_FEW_SUM acc[m][v] = vf_zero();                                           \
            for (uint32_t first = 0; first < n_blocks; first += PER_##name) {                      \
                for (uint32_t i = first; i < first + PER_##name; i++) {                            \
                    EACH_FEW_SUM                                                                   \
                    {                                                                              \
                        const int p = v / at_once, h = begin + v % at_once;                        \
                        const uint8_t *panel = panels + p * j->panel_bytes;                        \
                        const struct head head = head_##name(panel, first, h * VL);                \
                        const uint8_t *w = weights_##name(panel, i);                               \
                        ASK_FROM(name, panel, i)                                                   \
                        ACT_ANEW                                                                   \
                        few(name)                                                                  \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
            PUT_SUMS(acc)                                                                          \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    INLINE void widen_##name(const uint8_t *panel, uint32_t i, uint8_t *wide)                      \
    {                                                                                              \
        const uint8_t *w = weights_##name(panel, i);                                               \
        for (int c = 0; c < PANEL_COLS; c += VL) {                                                 \
            const struct head head = head_##name(panel, i / PER_##name * PER_##name, c);           \
            const struct scales scales = scales_##name(head, panel, i, c);                         \
            vf_store((float *)wide + c, scales.w);                                                 \
            vf_store((float *)(wide + WIDE_SECOND) + c, scales.second);                            \
            vb q[8]; /* none stored yet: what two have in common is loaded once */                 \
            UNROLL for (int g = 0; g < 8; g++) q[g] = bytes_##name(w, i, g, c * 4);                \
            UNROLL for (int g = 0; g < 8; g++) vb_store(wide + WIDE_Q + g * 64 + c * 4, q[g]);     \
        }                                                                                          \
    }

/* Vector g of a group's nibbles at `w`. */
INLINE vb nibble_bytes(const uint8_t *w, int g, int at)
{
    vb both = vb_load(w + g % 4 * 64 + at);
    vb_load_once(both);
    return g < 4 ? vb_low4(both) : vb_high4(both);
}
