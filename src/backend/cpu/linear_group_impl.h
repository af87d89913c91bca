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
 * and DEFINE_GROUPED makes linear_NAME, for few rows, widen_NAME, for the tiles, and by that all
 * else that the tables want. The kinds are those of the tiles (enum wide_kind), and so is the
 * arithmetic. */

struct head {
    vf d, dmin;
};

struct scales {
    vf w, second;
};

#define NO_HEAD ((struct head){vf_zero(), vf_zero()})

/* From five rows on an activation that was loaded meets two panels: with one, every product has a
 * load of its own, and up to eight sums are too few to hide how long a product takes. */
#define BESIDE_OF(m, p) (VL == 16 && (m) > 4 && (p) == 2 ? 2 : 1)
#define EACH_BESIDE UNROLL for (int u = 0; u < beside; u++)

struct beside {
    const uint8_t *panel, *w; /* its group's weights */
    size_t at;                /* which group of `panel` it is */
    struct head head;
};

/* The panels of sum v and of those beside it, at group i of `from`, as `of`, and h, the part of
 * their columns; head_i: where the group's head begins. */
#define BESIDE_AT(name, v, from, i, head_i)                                                        \
    const int h = begin + (v) % at_once;                                                           \
    struct beside of[2];                                                                           \
    EACH_BESIDE                                                                                    \
    {                                                                                              \
        of[u].panel = (from) + ((v) / at_once + u) * j->panel_bytes;                               \
        of[u].at = (i);                                                                            \
        of[u].w = weights_##name(of[u].panel, of[u].at);                                           \
        of[u].head = head_##name(of[u].panel, head_i, h * VL);                                     \
    }

/* Of a whole group in the order of nibbles, so that a vector of them is taken apart at once. */
#define GROUP_DOTS(name, begin, end, dot, s)                                                       \
    {                                                                                              \
        ROWS_AT(i)                                                                                 \
        UNROLL for (int k = begin; k < end; k++)                                                   \
        {                                                                                          \
            const int g = end - begin == 8 ? k % 2 * 4 + k / 2 : k;                                \
            vb wv[2];                                                                              \
            EACH_BESIDE                                                                            \
            {                                                                                      \
                wv[u] = bytes_##name(of[u].w, i, g, h * VL * 4);                                   \
                ASK_EVENLY(k, ask_lines, wv[u], ask + u * j->panel_bytes)                          \
            }                                                                                      \
            EACH_ROW                                                                               \
            {                                                                                      \
                if (beside == 1) {                                                                 \
                    s[m][0] = dot##_at(s[m][0], wv[0], Q4_AT(g, m));                               \
                } else {                                                                           \
                    const int32_t a = load_i32(Q4_AT(g, m));                                       \
                    EACH_BESIDE s[m][u] = dot(s[m][u], wv[u], a);                                  \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

/* Scales come after the dot products, which need the registers. kind: struct scales or, where they
 * are integers, super_scales. */
#define SCALES_BESIDE(name, kind)                                                                  \
    struct kind scales[2];                                                                         \
    EACH_BESIDE scales[u] = scales_##name(of[u].head, of[u].panel, of[u].at, h * VL);

#define WIDE_PLUS_128_FEW(name)                                                                    \
    {                                                                                              \
        vi s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vi_begin128(ACT_BLOCK(i, m)->n128);                         \
        GROUP_DOTS(name, 0, 8, vi_dot128, s)                                                       \
        SCALES_BESIDE(name, scales)                                                                \
        EACH_ROW EACH_BESIDE acc[m][v + u] =                                                       \
            add_group(acc[m][v + u], s[m][u], scales[u].w, ACT_BLOCK(i, m));                       \
    }

#define WIDE_PLUS_8_FEW(name)                                                                      \
    {                                                                                              \
        vn s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vn_begin(ACT_BLOCK(i, m)->n8);                              \
        GROUP_DOTS(name, 0, 8, vn_dot, s)                                                          \
        SCALES_BESIDE(name, scales)                                                                \
        EACH_ROW EACH_BESIDE acc[m][v + u] = add_group(                                            \
            acc[m][v + u], vn_end(s[m][u], ACT_BLOCK(i, m)->n8), scales[u].w, ACT_BLOCK(i, m));    \
    }

#define WIDE_PLUS_16_FEW(name)                                                                     \
    {                                                                                              \
        vi s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vi_begin16(ACT_BLOCK(i, m));                                \
        GROUP_DOTS(name, 0, 8, vi_dot, s)                                                          \
        SCALES_BESIDE(name, scales)                                                                \
        EACH_ROW EACH_BESIDE acc[m][v + u] =                                                       \
            add_group(acc[m][v + u], s[m][u], scales[u].w, ACT_BLOCK(i, m));                       \
    }

#define WIDE_MIN_FEW(name)                                                                         \
    {                                                                                              \
        vn s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vn_begin(0);                                                \
        GROUP_DOTS(name, 0, 8, vn_dot, s)                                                          \
        SCALES_BESIDE(name, scales)                                                                \
        EACH_ROW EACH_BESIDE acc[m][v + u] = add_group_min(                                        \
            acc[m][v + u], vn_end(s[m][u], 0), scales[u].w, scales[u].second, ACT_BLOCK(i, m));    \
    }

#define WIDE_MIN_31_FEW(name)                                                                      \
    {                                                                                              \
        vi s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vi_set1(0);                                                 \
        GROUP_DOTS(name, 0, 8, vi_dot, s)                                                          \
        SCALES_BESIDE(name, scales)                                                                \
        EACH_ROW EACH_BESIDE acc[m][v + u] =                                                       \
            add_group_min(acc[m][v + u], s[m][u], scales[u].w, scales[u].second, ACT_BLOCK(i, m)); \
    }

/* Sums in two halves fill the registers. */
#define SUMS_IN_MEMORY                                                                             \
    if (M > 4)                                                                                     \
        __asm__("" : "+m"(acc));

#define WIDE_HALVES_FEW(name)                                                                      \
    {                                                                                              \
        vn s[LINEAR_M][2];                                                                         \
        vf t[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vn_begin32(ACT_HALVES(i, m)->n32[0]);                       \
        GROUP_DOTS(name, 0, 4, vn_dot, s)                                                          \
        SCALES_BESIDE(name, scales)                                                                \
        EACH_ROW EACH_BESIDE t[m][u] = vf_mul(vf_from_i(vn_end(s[m][u], 0)), scales[u].w);         \
        EACH_ROW EACH_BESIDE s[m][u] = vn_begin32(ACT_HALVES(i, m)->n32[1]);                       \
        GROUP_DOTS(name, 4, 8, vn_dot, s)                                                          \
        EACH_ROW EACH_BESIDE acc[m][v + u] = add_halves(                                           \
            acc[m][v + u], t[m][u], vn_end(s[m][u], 0), scales[u].second, ACT_BLOCK(i, m));        \
        SUMS_IN_MEMORY                                                                             \
    }

#define WIDE_HALVES_128_FEW(name)                                                                  \
    {                                                                                              \
        vi s[LINEAR_M][2];                                                                         \
        vf t[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vi_begin128_half(ACT_HALVES(i, m), 0);                      \
        GROUP_DOTS(name, 0, 4, vi_dot128, s)                                                       \
        SCALES_BESIDE(name, scales)                                                                \
        EACH_ROW EACH_BESIDE t[m][u] = vf_mul(vf_from_i(s[m][u]), scales[u].w);                    \
        EACH_ROW EACH_BESIDE s[m][u] = vi_begin128_half(ACT_HALVES(i, m), 1);                      \
        GROUP_DOTS(name, 4, 8, vi_dot128, s)                                                       \
        EACH_ROW EACH_BESIDE acc[m][v + u] =                                                       \
            add_halves(acc[m][v + u], t[m][u], s[m][u], scales[u].second, ACT_BLOCK(i, m));        \
        SUMS_IN_MEMORY                                                                             \
    }

/* Where more than two rows meet the panels, each loads its activations anew: a compiler that knew
 * them to be the same would keep all eight of each row in memory in between. */
#define ACT_ANEW                                                                                   \
    if (M > 2 && VL > 4)                                                                           \
        __asm__("" : "+r"(q), "+r"(blocks));

/* Group `group` of the sequence, which is number `at` of `from`, meets all rows. */
#define MEET_GROUP(name, kind, from, at, group)                                                    \
    {                                                                                              \
        const size_t i = (group);                                                                  \
        UNROLL for (int v = 0; v < n_sums; v += beside)                                            \
        {                                                                                          \
            BESIDE_AT(name, v, from, at, first)                                                    \
            ASK_FROM(name, of[0], i)                                                               \
            ACT_ANEW                                                                               \
            kind##_FEW(name)                                                                       \
        }                                                                                          \
    }

/* kind: one of the wide kinds that begin with WIDE_; run: how many rows meet it so (RUN_SIMPLE ...,
 * linear_impl.h). */
#define DEFINE_GROUPED(name, kind, run)                                                            \
    INLINE void linear_##name(                                                                     \
        const struct linear_job *j, size_t p0, size_t row, const int M, const int T, const int P)  \
    {                                                                                              \
        ACT_POINTERS(by32);                                                                        \
        const uint8_t *panels = j->panels + p0 * j->panel_bytes;                                   \
        FEW_SUMS;                                                                                  \
        const int beside = BESIDE_OF(M, P);                                                        \
        for (int begin = 0; begin < PARTS; begin += at_once) {                                     \
            ASK_AHEAD(name)                                                                        \
            vf acc[LINEAR_M][4 * PARTS_AT_ONCE(1)];                                                \
            EACH_ROW EACH_FEW_SUM acc[m][v] = vf_zero();                                           \
            size_t first = 0;                                                                      \
            if (SINGLE && PER_##name == 1) {                                                       \
                for (; first + TURN_OF(name) <= n_blocks; first += TURN_OF(name)) {                \
                    const uint8_t *from = TURN_AT(name, first);                                    \
                    ASK_ACTS(first, TURN_OF(name))                                                 \
                    UNROLL for (uint32_t nth = 0; nth < TURN_OF(name); nth++)                      \
                        MEET_GROUP(name, kind, from, nth, first + nth)                             \
                }                                                                                  \
            }                                                                                      \
            for (; first < n_blocks; first += PER_##name) {                                        \
                for (size_t at = first; at < first + PER_##name; at++)                             \
                    MEET_GROUP(name, kind, panels, at, at)                                         \
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
    }                                                                                              \
    DEFINE_TILE_INT(name, kind)                                                                    \
    run(name)

/* Vector g of a group's nibbles at `w`. */
INLINE vb nibble_bytes(const uint8_t *w, int g, int at)
{
    vb both = vb_load(w + g % 4 * 64 + at);
    vb_load_once(both);
    return g < 4 ? vb_low4(both) : vb_high4(both);
}
