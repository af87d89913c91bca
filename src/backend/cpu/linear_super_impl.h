/* Few rows of formats whose scales are integers: within 128 of K (SUPER_K) the activations share
 * their scale and the weights theirs, so that
 *
 *     t = sum over 32 of K:  scale * (exact dot product)      an integer below 2^31, exact
 *     acc = acc - min * (sum of the activations)              Q2_K, for each 16
 *     acc = acc + t * (d of the weights * d of the activations)    once, at the end (add_super), or
 *     acc = acc + (d t - dmin off) * (d of the activations)   Q4_K, Q5_K (add_super_min), with
 *     off = sum over 32 of K:  min * (sum of the activations' bytes)     as exact
 *
 * What is an integer may be summed in any order: a tile unit takes scale * q for the weights and
 * meets all 128 at once (linear_amx_impl.h). A format NAME describes itself as in
 * linear_group_impl.h, but for
 *
 *     scales_NAME(head, panel, i, c)   scales as integers, and what to take off, of group i
 *
 * and DEFINE_SUPER makes linear_NAME and widen_NAME of that. */
struct super_scales {
    vi w, second;      /* of a group, or of either half of it; Q4_K, Q5_K: scale and min */
    vf min, other_min; /* of either half what is taken off; Q4_K, Q5_K: other_min is min */
};

#define NO_SCALE vi_set1(0)

#define SUPER_PLUS_128_FEW(name)                                                                   \
    {                                                                                              \
        vi s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vi_begin128(ACT_BLOCK(i, m)->n128);                         \
        GROUP_DOTS(name, 0, 8, vi_dot128, s)                                                       \
        SCALES_BESIDE(name, super_scales)                                                          \
        EACH_ROW EACH_BESIDE t[m][v + u] = vi_plus(t[m][v + u], vi_times(s[m][u], scales[u].w));   \
    }

/* Without what is to take off, which is for hooks (DEFINE_SUPER_FEW) that read what these declare.
 */
#define SUPER_MIN_FEW(name)                                                                        \
    vn s[LINEAR_M][2];                                                                             \
    EACH_ROW EACH_BESIDE s[m][u] = vn_begin(0);                                                    \
    GROUP_DOTS(name, 0, 8, vn_dot, s)                                                              \
    SCALES_BESIDE(name, super_scales)                                                              \
    vi lanes[2];                                                                                   \
    EACH_BESIDE lanes[u] = vn_lanes(scales[u].w);                                                  \
    EACH_ROW EACH_BESIDE t[m][v + u] = vi_plus(t[m][v + u], vn_times(s[m][u], lanes[u]));

#define SUPER_MIN_31_FEW(name)                                                                     \
    vi s[LINEAR_M][2];                                                                             \
    EACH_ROW EACH_BESIDE s[m][u] = vi_set1(0);                                                     \
    GROUP_DOTS(name, 0, 8, vi_dot, s)                                                              \
    SCALES_BESIDE(name, super_scales)                                                              \
    EACH_ROW EACH_BESIDE t[m][v + u] = vi_plus(t[m][v + u], vi_times(s[m][u], scales[u].w));

#define SUPER_HALVES_FEW(name)                                                                     \
    {                                                                                              \
        vn s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = vn_begin32(ACT_HALVES(i, m)->n32[0]);                       \
        GROUP_DOTS(name, 0, 4, vn_dot, s)                                                          \
        SCALES_BESIDE(name, super_scales)                                                          \
        vi lanes[2], second[2];                                                                    \
        EACH_BESIDE lanes[u] = vn_lanes(scales[u].w);                                              \
        EACH_BESIDE second[u] = vn_lanes(scales[u].second);                                        \
        EACH_ROW EACH_BESIDE t[m][v + u] = vi_plus(t[m][v + u], vn_times(s[m][u], lanes[u]));      \
        EACH_ROW EACH_BESIDE s[m][u] = vn_begin32(ACT_HALVES(i, m)->n32[1]);                       \
        GROUP_DOTS(name, 4, 8, vn_dot, s)                                                          \
        EACH_ROW EACH_BESIDE t[m][v + u] = vi_plus(t[m][v + u], vn_times(s[m][u], second[u]));     \
    }

/* The bytes are scale * q already. */
#define SUPER_MIN_HALVES_FEW(name)                                                                 \
    {                                                                                              \
        vi s[LINEAR_M][2];                                                                         \
        EACH_ROW EACH_BESIDE s[m][u] = t[m][v + u];                                                \
        GROUP_DOTS(name, 0, 8, vi_dot, s)                                                          \
        EACH_ROW EACH_BESIDE t[m][v + u] = s[m][u];                                                \
        SCALES_BESIDE(name, super_scales)                                                          \
        EACH_ROW EACH_BESIDE acc[m][v + u] =                                                       \
            vf_fnma(scales[u].min, vf_set1(ACT_HALVES(i, m)->dsum[0]), acc[m][v + u]);             \
        EACH_ROW EACH_BESIDE acc[m][v + u] =                                                       \
            vf_fnma(scales[u].other_min, vf_set1(ACT_HALVES(i, m)->dsum[1]), acc[m][v + u]);       \
    }

/* One or two rows meet the panels group by group, as memory brings them; more one panel after the
 * other, for their integers fill the registers (but for five rows and more of SUPER_PLUS_128, which
 * needs the fewest: BESIDE_OF): the sums of the others are in memory then, which a compiler would
 * not do by itself. */

/* kind: one of the wide kinds that begin with SUPER_; run: as in DEFINE_GROUPED. */
#define DEFINE_SUPER(name, kind, run) DEFINE_SUPER_OF(name, kind, NO_MINS, run)
#define DEFINE_SUPER_OF(name, kind, mins, run)                                                     \
    DEFINE_SUPER_FEW(name, name, kind, mins)                                                       \
    DEFINE_SUPER_WIDEN(name, kind)                                                                 \
    DEFINE_TILE_INT(name, kind)                                                                    \
    run(name)

/* Two integers of 16 bits to a lane. */
INLINE vi two_words(vi low, vi high)
{
    return vi_plus(low, vi_shift(high, 16));
}

/* linear_AS. mins: how 128 of K meet the sums of a panel, and with them what a format takes off, as
 * hooks: at the beginning, after a group of 32 of K of sum v, after 128 of sum v of all rows. */
#define NO_MINS_BEGIN
#define NO_MINS_GROUP
#define NO_MINS_MEET(name, v, h, head, panel)                                                      \
    EACH_ROW kept[m][v] = add_super(acc[m][v], t[m][v], (head).d, ACT_BLOCK(first, m));

#define TAKE_OFF_BEGIN
#define TAKE_OFF_GROUP
#define TAKE_OFF_OF(name, i, h, head, panel) scales_##name(head, panel, i, (h)*VL).second
#define TAKE_OFF_TWO(name, i, h, head, panel)                                                      \
    two_words(TAKE_OFF_OF(name, i, h, head, panel), TAKE_OFF_OF(name, (i) + 1, h, head, panel))
#define TAKE_OFF_MEET(name, v, h, head, panel)                                                     \
    const vi off_0 = TAKE_OFF_TWO(name, first, h, head, panel);                                    \
    const vi off_2 = TAKE_OFF_TWO(name, first + 2, h, head, panel);                                \
    EACH_ROW                                                                                       \
    {                                                                                              \
        vi off = vi_dot_words(vi_set1(0), off_0, ACT_BLOCK(first, m)->sums);                       \
        off = vi_dot_words(off, off_2, ACT_BLOCK(first + 2, m)->sums);                             \
        kept[m][v] =                                                                               \
            add_super_min(acc[m][v], t[m][v], off, (head).d, (head).dmin, ACT_BLOCK(first, m));    \
    }

#define DEFINE_SUPER_FEW(as, name, kind, mins)                                                     \
    INLINE void linear_##as(                                                                       \
        const struct linear_job *j, size_t p0, size_t row, const int M, const int T, const int P)  \
    {                                                                                              \
        ACT_POINTERS(by128);                                                                       \
        const uint8_t *panels = j->panels + p0 * j->panel_bytes;                                   \
        FEW_SUMS;                                                                                  \
        const int beside = (kind) == SUPER_PLUS_128 ? BESIDE_OF(M, P) : 1;                         \
        const int sums_at_once = M <= 2 ? n_sums : beside;                                         \
        for (int begin = 0; begin < PARTS; begin += at_once) {                                     \
            ASK_AHEAD(name)                                                                        \
            vf kept[LINEAR_M][4 * PARTS_AT_ONCE(1)];                                               \
            EACH_ROW EACH_FEW_SUM kept[m][v] = vf_zero();                                          \
            mins##_BEGIN;                                                                          \
            for (size_t first = 0; first < n_blocks; first += SUPER_K / 32) {                      \
                ASK_ACTS(first, SUPER_K / 32)                                                      \
                UNROLL for (int v0 = 0; v0 < n_sums; v0 += sums_at_once)                           \
                {                                                                                  \
                    const int v1 = v0 + sums_at_once;                                              \
                    vi t[LINEAR_M][4 * PARTS_AT_ONCE(1)];                                          \
                    vf acc[LINEAR_M][4 * PARTS_AT_ONCE(1)];                                        \
                    EACH_ROW UNROLL for (int v = v0; v < v1; v++)                                  \
                    {                                                                              \
                        t[m][v] = vi_set1(0);                                                      \
                        acc[m][v] = kept[m][v];                                                    \
                    }                                                                              \
                    for (size_t i = first; i < first + SUPER_K / 32; i++) {                        \
                        UNROLL for (int v = v0; v < v1; v += beside)                               \
                        {                                                                          \
                            BESIDE_AT(name, v, panels, i, first / 8 * 8)                           \
                            ASK_FROM(name, of[0], i)                                               \
                            kind##_FEW(name) mins##_GROUP;                                         \
                        }                                                                          \
                    }                                                                              \
                    UNROLL for (int v = v0; v < v1; v++)                                           \
                    {                                                                              \
                        const int p = v / at_once, h = begin + v % at_once;                        \
                        const uint8_t *panel = panels + p * j->panel_bytes;                        \
                        const struct head head = head_##name(panel, first / 8 * 8, h * VL);        \
                        mins##_MEET(name, v, h, head, panel)                                       \
                    }                                                                              \
                    if (M > 2)                                                                     \
                        __asm__("" : "+m"(kept));                                                  \
                }                                                                                  \
            }                                                                                      \
            PUT_SUMS(kept)                                                                         \
        }                                                                                          \
    }

#define DEFINE_SUPER_WIDEN(name, kind)                                                             \
    INLINE void widen_##name(const uint8_t *panel, uint32_t i, uint8_t *wide)                      \
    {                                                                                              \
        const uint8_t *w = weights_##name(panel, i);                                               \
        for (int c = 0; c < PANEL_COLS; c += VL) {                                                 \
            const struct head head = head_##name(panel, i / 8 * 8, c);                             \
            const struct super_scales scales = scales_##name(head, panel, i, c);                   \
            uint8_t *first = wide + c * 4, *second = wide + WIDE_SECOND + c * 4;                   \
            vi off = scales.second;                                                                \
            if (i % 2 == 0 && (kind == SUPER_MIN || kind == SUPER_MIN_31))                         \
                off = two_words(off, scales_##name(head, panel, i + 1, c).second);                 \
            if (kind == SUPER_MIN_HALVES)                                                          \
                vf_store((float *)first, scales.min);                                              \
            else if (kind == SUPER_PLUS_128)                                                       \
                vi_store((int32_t *)first, vi_scale(scales.w));                                    \
            else                                                                                   \
                vi_store((int32_t *)first, vn_scale(scales.w));                                    \
            if (kind == SUPER_HALVES)                                                              \
                vi_store((int32_t *)second, vn_scale(scales.second));                              \
            else if (kind == SUPER_MIN || kind == SUPER_MIN_31)                                    \
                vi_store((int32_t *)second, off);                                                  \
            else                                                                                   \
                vf_store((float *)second, scales.other_min);                                       \
            const bool odd_min = (kind == SUPER_MIN || kind == SUPER_MIN_31) && i % 2;             \
            vf_store((float *)(wide + WIDE_THIRD) + c, odd_min ? head.dmin : head.d);              \
            vb q[8]; /* none stored yet: what two have in common is loaded once */                 \
            UNROLL for (int g = 0; g < 8; g++) q[g] = bytes_##name(w, i, g, c * 4);                \
            UNROLL for (int g = 0; g < 8; g++) vb_store(wide + WIDE_Q + g * 64 + c * 4, q[g]);     \
        }                                                                                          \
    }
