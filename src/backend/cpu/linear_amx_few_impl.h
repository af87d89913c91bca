/* 5, 8 or 17 to 64 rows, up to 32 at once, of the K-quants but Q2_K, and of IQ4_XS, on the tile
 * unit, that meet two panels side by side: few rows are bound by what a panel takes to be widened,
 * and by memory, which is read faster in two places.
 *
 *     panel p                 panel p + 1             128 of K each:
 *     C = A B[0]              widen -> B[1]           B  low, high [K/64][16][4]    2 x 4 KiB
 *                             C before meets sums     C  low, high, of 16 rows; once more of
 *     widen -> B[0], next     C = A B[1]                 what is beyond 16      2 or 4 KiB
 *     C before meets sums
 *
 * A turn is one panel's products. Between two of them a part of the other's next groups is widened,
 * and four rows of what the turn before multiplied meet their sums: while the unit is in use there
 * is one port for multiplications, conversions and shifts of vectors, and the products, widening
 * and sums, each alone as long as the other two, pass each other only where none comes in bursts
 * longer than a core looks ahead. C is stored last, when the C before has been met, so there is
 * one: all that a turn touches, and the activations that come from the second cache, have to fit
 * the nearest. The sums and their order are those of linear_amx_impl.h; what a panel's 256 of K
 * take off is multiplied before the first of the products of their second half. */
enum {
    AMX_FEW_MIN = 8,     /* rows of Q6_K; fewer are not worth the widening, */
    AMX_APART_MIN = 5,   /* nor where what is to take off is apart */
    AMX_FEW_MAX = 32,    /* at once, */
    AMX_FEW_TWICE = 64,  /* and one after the other: widening again is hidden by sums */
    AMX_FEW_SOON = 2304, /* bytes ahead in a panel */
};

struct amx_few {
    uint8_t b[2][SUPER_K / 64][2][AMX_TILE_BYTES];
    float scales[2][2]
                [AMX_FLOATS]; /* [panel], of 128 of K in turns: K is an even number of those */
    int32_t c[4][AMX_C];
    float sums[2][AMX_FEW_MAX][PANEL_COLS];
    uint8_t mins[2][AMX_TILE_BYTES];            /* B of what is to take off, and its C, */
    float take_off[2][AMX_FEW_MAX][PANEL_COLS]; /* (linear_amx_mins_impl.h) */
};
_Static_assert(sizeof(struct amx_few) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* 128 of K, whose weights and scales lie from w and scales on as a panel's first do from its
 * beginning. */
struct amx_few_at {
    const uint8_t *w, *scales, *ask;
    struct head head;
    float *floats;
    uint8_t *mins;
};

/* The rows of a job, at 128 of K; s: d of the first, s_stride to the next one's. */
struct amx_few_rows {
    const int8_t *q;
    size_t q_stride;
    const float *s;
    size_t s_stride;
    uint32_t n;
};

/* What was multiplied of a panel, and which sums it meets. */
struct amx_few_met {
    const int32_t (*c)[AMX_C]; /* or NULL: nothing was yet */
    const float *scales;
    float (*sums)[PANEL_COLS];
    const float (*take_off)[PANEL_COLS]; /* or NULL */
    const float *s;                      /* d of the first row that has not been met */
};

/* Rows m .. m + 3 meet their sums, of which up to three lie behind the last. */
AMX_INLINE void amx_few_meet(const struct amx_few_rows *rows,
                             struct amx_few_met *met,
                             const uint32_t m,
                             const enum wide_kind kind)
{
    if (m >= rows->n || !met->c)
        return;
    const size_t stride = rows->s_stride;
    const float *s[ACT_TILE] = {met->s, met->s + stride, met->s + 2 * stride, met->s + 3 * stride};
    const int32_t *low = met->c[m / AMX_ROWS * 2] + m % AMX_ROWS * PANEL_COLS;
    const vf d = vf_load(met->scales);
    float(*sums)[PANEL_COLS] = met->sums + m;
    vf sum[ACT_TILE];
    UNROLL_4 for (uint32_t i = 0; i < ACT_TILE; i++) sum[i] =
        amx_add(vf_load(sums[i]), low + i * PANEL_COLS, d, *s[i], kind);
    if (amx_by_bits(kind) && met->take_off) {
        const vf dmin = vf_load(met->scales + PANEL_COLS);
        UNROLL_4 for (uint32_t i = 0; i < ACT_TILE; i++) sum[i] =
            vf_fma(vf_load(met->take_off[m + i]), dmin, sum[i]);
    }
    UNROLL_4 for (uint32_t i = 0; i < ACT_TILE; i++) vf_store(sums[i], sum[i]);
    met->s += ACT_TILE * stride;
    AMX_STAY;
}

/* more: products of 16 rows and of the others, one of which is met for nothing if there is none (no
 * tile has no rows; what is behind the last row may be read). */
AMX_INLINE void amx_few_config(uint32_t n_rows, const bool more)
{
    struct amx_config config = amx_config_64;
    const uint32_t first = n_rows < AMX_ROWS ? n_rows : AMX_ROWS;
    const uint32_t second = !more ? first : n_rows > AMX_ROWS ? n_rows - AMX_ROWS : 1;
    config.rows[0] = config.rows[1] = config.rows[4] = (uint8_t)first;
    config.rows[2] = config.rows[3] = config.rows[5] = (uint8_t)second;
    AMX_STAY;
    _tile_loadconfig(&config);
}

/* What there is to take off where 128 of K from k on are a second 128. */
INLINE struct amx_off amx_few_off(const struct linear_job *j,
                                  struct amx_few *few,
                                  uint32_t panel,
                                  uint32_t k,
                                  const enum wide_kind kind)
{
    return (struct amx_off){
        .a = amx_by_bits(kind) && k % 256 != 0 ? amx_mins_a(j->act, j->first_row, k) : NULL,
        .a_stride = act_sums_stride(j->act->k),
        .b = few->mins[panel],
        .c = few->take_off[panel],
    };
}

/* As many of two times as of the other, about, so that the second is no row alone; whole tiles of
 * rows, as they are packed. */
INLINE uint32_t amx_few_rows_at_once(uint32_t n_rows)
{
    const uint32_t times = (n_rows + AMX_FEW_MAX - 1) / AMX_FEW_MAX;
    return ((n_rows + times - 1) / times + ACT_TILE - 1) / ACT_TILE * ACT_TILE;
}

/* The last panel of a job by itself. */
INLINE struct linear_job amx_few_last(const struct linear_job *j)
{
    const uint32_t p = j->n_panels - 1, col = p * PANEL_COLS;
    struct linear_job last = *j;
    last.panels += p * j->panel_bytes;
    last.n_panels = 1;
    last.n_cols -= col;
    last.out += col;
    last.bias = j->bias ? j->bias + col : NULL;
    return last;
}

/* The i-th of eight products of more than 16 rows, or of four: low and high of 64 of K, and of each
 * the first 16 rows and the others. */
#define AMX_FEW_PRODUCT(kind, i, c, d, more)                                                       \
    {                                                                                              \
        const int at_ = (i) / ((more) ? 4 : 2), of_ = (more) ? (i) % 4 : (i) % 2 * 2;              \
        const int8_t *q_ = rows->q + at_ * 64;                                                     \
        if (of_ == 0) {                                                                            \
            _tile_loadd(4, q_, (int)rows->q_stride);                                               \
            _tile_loadd(6, b[at_][0], 64);                                                         \
            _tile_dpbsud(c, 4, 6);                                                                 \
        } else if (of_ == 1) {                                                                     \
            _tile_loadd(5, q_ + AMX_ROWS * rows->q_stride, (int)rows->q_stride);                   \
            _tile_dpbsud(2, 5, 6);                                                                 \
        } else if (of_ == 2) {                                                                     \
            _tile_loadd(7, b[at_][1], 64);                                                         \
            AMX_HIGH(kind, d, 4, 7)                                                                \
        } else {                                                                                   \
            AMX_HIGH(kind, 3, 5, 7)                                                                \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

/* One of four steps of a turn: a product, low or high in turn, or with more rows two, of both parts
 * of the rows; after each of those half a group, or with few rows a whole one, is widened, and four
 * rows are met. */
#define AMX_FEW_STEP(name, kind, g, c, d, more)                                                    \
    {                                                                                              \
        const int n_ = (more) ? 4 : 8; /* vectors after a product */                               \
        AMX_FEW_PRODUCT(kind, (more) ? 2 * (g) : (g), c, d, more)                                  \
        const struct amx_times times = amx_few_scales_##name(&to, g);                              \
        amx_few_widen_##name(&to, g, 0, n_, &times, widened);                                      \
        amx_few_meet(rows, &met, (g)*32 / n_, kind);                                               \
        if (more) {                                                                                \
            AMX_FEW_PRODUCT(kind, 2 * (g) + 1, c, d, true)                                         \
            amx_few_widen_##name(&to, g, 4, 4, &times, widened);                                   \
            amx_few_meet(rows, &met, (g)*8 + 4, kind);                                             \
        }                                                                                          \
    }

/* A panel's B is multiplied, C[c] and C[d], while the other's next groups, at `to`, are widened and
 * its products before, `met`, meet their sums. */
#define AMX_FEW_TURN(name, kind, of, k_, c, d, more)                                               \
    {                                                                                              \
        const uint8_t(*b)[2][AMX_TILE_BYTES] = (const uint8_t(*)[2][AMX_TILE_BYTES])few->b[of];    \
        uint8_t(*widened)[2][AMX_TILE_BYTES] = few->b[!(of)];                                      \
        _tile_zero(c);                                                                             \
        _tile_zero(d);                                                                             \
        if (more) {                                                                                \
            _tile_zero(2);                                                                         \
            _tile_zero(3);                                                                         \
        }                                                                                          \
        const struct amx_off off = amx_few_off(j, few, (of), k_, kind);                            \
        AMX_OFF_BEGIN(&off, d, more)                                                               \
        AMX_FEW_STEP(name, kind, 0, c, d, more)                                                    \
        AMX_OFF_END(&off, d, more)                                                                 \
        AMX_FEW_STEP(name, kind, 1, c, d, more)                                                    \
        AMX_FEW_STEP(name, kind, 2, c, d, more)                                                    \
        AMX_FEW_STEP(name, kind, 3, c, d, more)                                                    \
    }

#define AMX_FEW_STORE(first, second, more)                                                         \
    {                                                                                              \
        _tile_stored(first, few->c[0], 64);                                                        \
        _tile_stored(second, few->c[1], 64);                                                       \
        if (more) {                                                                                \
            _tile_stored(2, few->c[2], 64);                                                        \
            _tile_stored(3, few->c[3], 64);                                                        \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

#define AMX_FEW_MET(of, k)                                                                         \
    ((struct amx_few_met){                                                                         \
        .c = (const int32_t(*)[AMX_C])few->c,                                                      \
        .scales = few->scales[of][(k) / SUPER_K % 2],                                              \
        .sums = few->sums[of],                                                                     \
        .take_off = (k) % 256 != 0 ? (const float(*)[PANEL_COLS])few->take_off[of] : NULL,         \
        .s = here.s})

/* group_bytes: as in DEFINE_AMX_SUPER. scales_from(panel, i): where the scales of group i lie, or
 * what lies as far from where it does for group 0. least: as many rows are worth it; fewer are for
 * `alone`. B[0] holds the first of panels, and at last of `next`. more: there are products of 16
 * rows and of the others, which take C 2 and 3; else those are the second panel's. */
#define DEFINE_AMX_FEW(name, kind, group_bytes, scales_from, least, alone)                         \
    AMX static void amx_many_##name(const struct linear_job *j);                                   \
                                                                                                   \
    INLINE struct amx_few_at amx_few_at_##name(const struct linear_job *j,                         \
                                               const uint8_t *panel,                               \
                                               uint32_t k,                                         \
                                               float *floats,                                      \
                                               uint8_t *mins)                                      \
    {                                                                                              \
        const size_t at = (size_t)(weights_##name(panel, k / 32) - weights_##name(panel, 0));      \
        const size_t next = at + AMX_FEW_SOON;                                                     \
        const size_t scales = (size_t)(scales_from(panel, k / 32) - scales_from(panel, 0));        \
        return (struct amx_few_at){.w = panel + at,                                                \
                                   .scales = panel + scales,                                       \
                                   .ask = panel + next +                                           \
                                          (next < j->panel_bytes ? 0 : j->panel_bytes),            \
                                   .head = head_##name(panel, k / 32, 0),                          \
                                   .floats = floats,                                               \
                                   .mins = mins + (size_t)(k % 256) * 2};                          \
    }                                                                                              \
                                                                                                   \
    AMX_INLINE struct amx_times amx_few_scales_##name(const struct amx_few_at *at,                 \
                                                      const uint32_t g)                            \
    {                                                                                              \
        const struct super_scales scales = scales_##name(at->head, at->scales, g, 0);              \
        return amx_store_scales(at->floats, g, &scales, at->head, at->mins, kind);                 \
    }                                                                                              \
                                                                                                   \
    /* n vectors of group g, from the first on; of more than 16 rows of Q4_K and Q5_K lines asked  \
     * for go to the second cache: what they would push out of the nearest is read sooner. */      \
    AMX_INLINE void amx_few_widen_##name(const struct amx_few_at *at,                              \
                                         const uint32_t g,                                         \
                                         const int first,                                          \
                                         const int n,                                              \
                                         const struct amx_times *times,                            \
                                         uint8_t(*b)[2][AMX_TILE_BYTES])                           \
    {                                                                                              \
        const uint8_t *w = weights_##name(at->w, g);                                               \
        const uint32_t ask = (g * 8 + (uint32_t)first) * (group_bytes) / 512;                      \
        const uint32_t end =                                                                       \
            ((g * 8 + (uint32_t)(first + n)) * (group_bytes) + (g == 3 ? 511 : 0)) / 512;          \
        UNROLL for (uint32_t l = ask; l < end; l++)                                                \
        {                                                                                          \
            if (amx_by_bits(kind) && n == 4)                                                       \
                __builtin_prefetch(at->ask + (size_t)l * 64, 0, 2);                                \
            else                                                                                   \
                __builtin_prefetch(at->ask + (size_t)l * 64);                                      \
        }                                                                                          \
        vb q[8];                                                                                   \
        UNROLL for (int v = 0; v < n; v++) q[v] = bytes_##name(w, g, first + v, 0);                \
        UNROLL for (int v = 0; v < n; v++) amx_store_four(b, g, first + v, q[v], times, kind);     \
        AMX_STAY;                                                                                  \
    }                                                                                              \
                                                                                                   \
    AMX_INLINE void amx_few_two_##name(                                                            \
        const struct linear_job *j, const uint8_t *panels, const uint8_t *next, const bool more)   \
    {                                                                                              \
        struct amx_few *few = (struct amx_few *)j->scratch;                                        \
        const uint32_t k = j->act->k;                                                              \
        struct amx_few_rows here = {.q_stride = act_q_stride(k),                                   \
                                    .s_stride = k / SUPER_K,                                       \
                                    .n = j->n_rows},                                               \
                            *const rows = &here;                                                   \
        struct amx_few_met met = {.c = NULL};                                                      \
        here.q = j->act->by128.q + j->first_row * here.q_stride;                                   \
        here.s = j->act->by128.scale + j->first_row * here.s_stride;                               \
        for (uint32_t i = 0; i < k / SUPER_K; i++) {                                               \
            float(*scales)[2][AMX_FLOATS] = few->scales;                                           \
            const uint32_t at_k = i * SUPER_K, next_k = at_k + SUPER_K;                            \
            struct amx_few_at to = amx_few_at_##name(                                              \
                j, panels + j->panel_bytes, at_k, scales[1][i % 2], few->mins[1]);                 \
            AMX_FEW_TURN(name, kind, 0, at_k, 0, 1, more)                                          \
            AMX_FEW_STORE(0, 1, more)                                                              \
            met = AMX_FEW_MET(0, at_k);                                                            \
            if (next_k < k)                                                                        \
                to = amx_few_at_##name(j, panels, next_k, scales[0][(i + 1) % 2], few->mins[0]);   \
            else                                                                                   \
                to = amx_few_at_##name(j, next, 0, scales[0][0], few->mins[0]);                    \
            if (more) {                                                                            \
                AMX_FEW_TURN(name, kind, 1, at_k, 0, 1, more)                                      \
                AMX_FEW_STORE(0, 1, more)                                                          \
            } else {                                                                               \
                AMX_FEW_TURN(name, kind, 1, at_k, 2, 3, more)                                      \
                AMX_FEW_STORE(2, 3, more)                                                          \
            }                                                                                      \
            met = AMX_FEW_MET(1, at_k);                                                            \
            here.s++;                                                                              \
            here.q += SUPER_K;                                                                     \
        }                                                                                          \
        UNROLL for (uint32_t m = 0; m < AMX_FEW_MAX; m += ACT_TILE)                                \
            amx_few_meet(rows, &met, m, kind);                                                     \
    }                                                                                              \
                                                                                                   \
    AMX static void amx_few_16_##name(                                                             \
        const struct linear_job *j, const uint8_t *panels, const uint8_t *next)                    \
    {                                                                                              \
        amx_few_two_##name(j, panels, next, false);                                                \
    }                                                                                              \
                                                                                                   \
    AMX static void amx_few_32_##name(                                                             \
        const struct linear_job *j, const uint8_t *panels, const uint8_t *next)                    \
    {                                                                                              \
        amx_few_two_##name(j, panels, next, true);                                                 \
    }                                                                                              \
                                                                                                   \
    AMX static void amx_few_##name(const struct linear_job *j)                                     \
    {                                                                                              \
        struct amx_few *few = (struct amx_few *)j->scratch;                                        \
        if (j->n_rows < (least)) {                                                                 \
            alone(j);                                                                              \
            return;                                                                                \
        }                                                                                          \
        if (j->n_panels == 1) {                                                                    \
            amx_many_##name(j);                                                                    \
            return;                                                                                \
        }                                                                                          \
        const uint32_t n = amx_few_rows_at_once(j->n_rows);                                        \
        const bool more = (int)(least) > AMX_ROWS || n > AMX_ROWS;                                 \
        uint32_t configured = 0;                                                                   \
        memset(few->mins, 0, sizeof few->mins);                                                    \
        struct amx_few_at to =                                                                     \
            amx_few_at_##name(j, j->panels, 0, few->scales[0][0], few->mins[0]);                   \
        UNROLL for (uint32_t g = 0; g < 4; g++)                                                    \
        {                                                                                          \
            const struct amx_times times = amx_few_scales_##name(&to, g);                          \
            amx_few_widen_##name(&to, g, 0, 8, &times, few->b[0]);                                 \
        }                                                                                          \
        uint32_t p = 0;                                                                            \
        for (; p + 2 <= j->n_panels; p += 2) {                                                     \
            const uint8_t *panels = j->panels + p * j->panel_bytes;                                \
            const uint8_t *next = p + 4 <= j->n_panels ? panels + 2 * j->panel_bytes : panels;     \
            for (uint32_t row = 0; row < j->n_rows; row += n) {                                    \
                const bool last = row + n >= j->n_rows;                                            \
                struct linear_job some = *j;                                                       \
                some.first_row += row;                                                             \
                some.n_rows = last ? j->n_rows - row : n;                                          \
                if (some.n_rows != configured)                                                     \
                    amx_few_config(some.n_rows, more);                                             \
                configured = some.n_rows;                                                          \
                memset(few->sums, 0, sizeof few->sums);                                            \
                if (more)                                                                          \
                    amx_few_32_##name(&some, panels, last ? next : panels);                        \
                else                                                                               \
                    amx_few_16_##name(&some, panels, last ? next : panels);                        \
                for (uint32_t m = 0; m < some.n_rows; m++) {                                       \
                    UNROLL for (uint32_t i = 0; i < 2; i++) linear_put(                            \
                        j, some.first_row + m, (p + i) * PANEL_COLS, vf_load(few->sums[i][m]));    \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        _tile_release();                                                                           \
        if (p < j->n_panels) {                                                                     \
            const struct linear_job last = amx_few_last(j);                                        \
            amx_many_##name(&last);                                                                \
        }                                                                                          \
    }
