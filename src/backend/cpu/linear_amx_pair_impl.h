/* Up to 12 rows of Q8_0 at a time on the tile unit, that meet two panels: two places of memory are
 * read faster than one (linear_amx_group_impl.h).
 *
 *                  panel p            panel p + 1
 *     group g      C[0] = A B         C[1] = A B          to memory, at once
 *     group g - 1  C[2] meets its     C[3] meets its
 *                  sums               sums                12 rows in 24 registers
 *
 * Between the unit's instructions the lines that come soon are asked for, of either panel in turn.
 * Of 8 rows, two panels and 32 of K: 16 cycles of the unit, 24 lines loaded for it, 16 vectors of C
 * stored and loaded, 48 operations on two ports; vpdpbusd and the same operations take 176. */
enum {
    AMX_PAIR_ROWS = 12,   /* of a round */
    AMX_PAIR_SOON = 2048, /* bytes ahead in a panel */
    Q8_0_GROUP = 544,     /* with its scales */
};

/* Two panels and the rows that meet them. */
struct amx_pair {
    const uint8_t *panels;
    size_t panel_bytes;
    uint32_t n;      /* groups */
    const int8_t *q; /* activations of the first row */
    size_t q_stride;
    const float *s; /* ACT_D, as struct amx_groups has it */
    size_t plane;
};

/* Lines first .. end - 1 of what comes for a group. */
#define AMX_PAIR_ASK(first, end)                                                                   \
    UNROLL for (int l = first; l < end && asks; l++)                                               \
    {                                                                                              \
        __builtin_prefetch(ask + (size_t)l * 64);                                                  \
        __builtin_prefetch(ask + a->panel_bytes + (size_t)l * 64);                                 \
    }                                                                                              \
    AMX_STAY;

/* Group g of both panels is multiplied: C[c] and C[d], to ring[at]. */
#define AMX_PAIR_PRODUCT(g, c, d, t_a, at)                                                         \
    {                                                                                              \
        const uint8_t *b = weights_q8_0(a->panels, (g));                                           \
        const size_t next = (size_t)(g)*Q8_0_GROUP + AMX_PAIR_SOON;                                \
        const uint8_t *ask = a->panels + next + (next < a->panel_bytes ? 0 : a->panel_bytes);      \
        _tile_zero(c);                                                                             \
        _tile_loadd(t_a, a->q + (size_t)(g)*32, (int)a->q_stride);                                 \
        _tile_loadd(6, b, 64);                                                                     \
        _tile_dpbssd(c, t_a, 6);                                                                   \
        AMX_STAY;                                                                                  \
        AMX_PAIR_ASK(0, 3)                                                                         \
        _tile_zero(d);                                                                             \
        _tile_loadd(7, b + a->panel_bytes, 64);                                                    \
        _tile_dpbssd(d, t_a, 7);                                                                   \
        AMX_STAY;                                                                                  \
        AMX_PAIR_ASK(3, 6)                                                                         \
        _tile_stored(c, ring[at][0], 64);                                                          \
        _tile_stored(d, ring[at][1], 64);                                                          \
        AMX_STAY;                                                                                  \
        AMX_PAIR_ASK(6, 9)                                                                         \
    }

/* Group g, of which both C were stored, meets the sums. */
#define AMX_PAIR_MEET(g, at)                                                                       \
    {                                                                                              \
        const vf w = scales_q8_0(NO_HEAD, a->panels, (g), 0).w;                                    \
        const vf other = scales_q8_0(NO_HEAD, a->panels + a->panel_bytes, (g), 0).w;               \
        const float *s = a->s + (size_t)(g)*ACT_TILE;                                              \
        EACH_ROW                                                                                   \
        {                                                                                          \
            const vf d = vf_set1(s[m / ACT_TILE * ACT_PLANES * a->plane + m % ACT_TILE + ACT_D]);  \
            const vi one = vi_load(ring[at][0] + m * PANEL_COLS);                                  \
            const vi two = vi_load(ring[at][1] + m * PANEL_COLS);                                  \
            acc[m][0] = vf_fma(vf_from_i(one), vf_mul(w, d), acc[m][0]);                           \
            acc[m][1] = vf_fma(vf_from_i(two), vf_mul(other, d), acc[m][1]);                       \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

/* M rows, a multiple of 4; asks: they are the first to meet the panels. sums: [M][2 panels] */
AMX_INLINE void amx_pair(const struct amx_pair *of,
                         float (*sums)[2][PANEL_COLS],
                         const bool asks,
                         const int M)
{
    const struct amx_pair here = *of, *const a = &here; /* in registers, whatever is stored to */
    _Alignas(64) int32_t ring[2][2][AMX_C];
    vf acc[AMX_PAIR_ROWS][2];
    EACH_ROW acc[m][0] = acc[m][1] = vf_zero();
    uint32_t g = 0;
    for (; g + 2 <= a->n; g += 2) {
        AMX_PAIR_PRODUCT(g, 0, 1, 4, 0)
        if (g > 0)
            AMX_PAIR_MEET(g - 1, 1)
        AMX_PAIR_PRODUCT(g + 1, 2, 3, 5, 1)
        AMX_PAIR_MEET(g, 0)
    }
    if (g > 0)
        AMX_PAIR_MEET(g - 1, 1)
    if (g < a->n) {
        AMX_PAIR_PRODUCT(g, 0, 1, 4, 0)
        AMX_PAIR_MEET(g, 0)
    }
    EACH_ROW
    {
        vf_store(sums[m][0], acc[m][0]);
        vf_store(sums[m][1], acc[m][1]);
    }
}

#define DEFINE_AMX_PAIR(M)                                                                         \
    AMX static void amx_pair_##M(const struct amx_pair *a, float(*sums)[2][PANEL_COLS], bool asks) \
    {                                                                                              \
        if (asks)                                                                                  \
            amx_pair(a, sums, true, M);                                                            \
        else                                                                                       \
            amx_pair(a, sums, false, M);                                                           \
    }

DEFINE_AMX_PAIR(4)
DEFINE_AMX_PAIR(8)
DEFINE_AMX_PAIR(12)

#undef AMX_PAIR_MEET
#undef AMX_PAIR_PRODUCT
#undef AMX_PAIR_ASK

/* Where rounds of 12 are no more than the rounds of 16 that rows have else; one or two rows, which
 * memory alone bounds, need no unit. */
INLINE bool amx_pair_takes(uint32_t n_rows)
{
    return n_rows > 2 &&
           (n_rows + AMX_PAIR_ROWS - 1) / AMX_PAIR_ROWS == (n_rows + AMX_ROWS - 1) / AMX_ROWS;
}

/* Rows that amx_pair_takes; returns how many panels they have met: all, or all but the last. */
AMX static uint32_t amx_pair_panels(const struct linear_job *j)
{
    static void (*const by_rows[])(const struct amx_pair *, float(*)[2][PANEL_COLS], bool) = {
        amx_pair_4, amx_pair_8, amx_pair_12};
    const uint32_t k = j->act->k;
    const uint32_t at_once = j->n_rows < AMX_PAIR_ROWS ? (j->n_rows + 3) / 4 * 4 : AMX_PAIR_ROWS;
    struct amx_pair a = {.panel_bytes = j->panel_bytes,
                         .n = k / 32,
                         .q_stride = act_q_stride(k),
                         .plane = (size_t)k / 32 * ACT_TILE};
    _Alignas(64) float sums[AMX_PAIR_ROWS][2][PANEL_COLS];
    struct amx_config config = amx_config_32;
    for (int i = 0; i < 6; i++) /* up to 8 rows the unit takes half of the time */
        config.rows[i] = (uint8_t)at_once;
    AMX_STAY;
    _tile_loadconfig(&config);
    uint32_t p = 0;
    for (; p + 2 <= j->n_panels; p += 2) {
        a.panels = j->panels + p * j->panel_bytes;
        for (uint32_t done = 0; done < j->n_rows; done += at_once) {
            const uint32_t row = j->first_row + done, left = j->n_rows - done;
            const uint32_t n = left < at_once ? left : at_once;
            a.q = j->act->by32.q + row * a.q_stride;
            a.s = j->act->by32.scale + row / ACT_TILE * ACT_PLANES * a.plane;
            by_rows[(n - 1) / 4](&a, sums, done == 0);
            for (uint32_t m = 0; m < n; m++) {
                linear_put(j, row + m, p * PANEL_COLS, vf_load(sums[m][0]));
                linear_put(j, row + m, (p + 1) * PANEL_COLS, vf_load(sums[m][1]));
            }
        }
    }
    _tile_release();
    return p;
}
