/* 5 or 8 to 32 rows of Q4_K, Q5_K and Q6_K on the tile unit, that meet two panels side by side: few
 * rows are bound by what a panel takes to be widened, and by memory, which is read faster in two
 * places.
 *
 *     panel p                 panel p + 1             128 of K each, [2] in memory:
 *     C[0] = A B[0]           widen -> B[1]           B  low, high [K/64][16][4]    4 KiB
 *     widen -> B[0], next     C[1] = A B[1]           C  low, high, of 16 rows; once more of
 *     C[1] meets its sums     C[0] meets its sums        what is beyond 16      2 or 4 KiB
 *
 * Each of the four products of 64 of K goes before a group of 32 that is widened, so that the unit
 * works while vectors are split; C is stored last, and met after the other panel's groups. The sums
 * and their order are those of linear_amx_impl.h; what a panel's 256 of K take off is multiplied
 * before the first of the products of their second half. */
enum {
    AMX_FEW_MIN = 8,   /* rows; fewer are not worth the widening, */
    AMX_APART_MIN = 5, /* nor where what is to take off is apart */
    AMX_FEW_MAX = 32,
    AMX_FEW_SOON = 2304, /* bytes ahead in a panel */
};

struct amx_few {
    uint8_t b[2][SUPER_K / 64][2][AMX_TILE_BYTES];
    float scales[2][2]
                [AMX_FLOATS]; /* [panel], of 128 of K in turns: K is an even number of those */
    int32_t c[2][4][AMX_C];
    float sums[2][AMX_FEW_MAX][PANEL_COLS];
    uint8_t mins[2][AMX_TILE_BYTES];            /* B of what is to take off, and its C, */
    float take_off[2][AMX_FEW_MAX][PANEL_COLS]; /* (linear_amx_mins_impl.h) */
};
_Static_assert(sizeof(struct amx_few) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* 128 of K of a panel, which begin at `w` as those at K = 0 do at `panel`. */
struct amx_few_at {
    const uint8_t *w, *ask;
    struct head head;
    float *floats;
    uint8_t *mins;
};

/* The rows of a job, at 128 of K. */
struct amx_few_rows {
    const int8_t *q;
    size_t q_stride;
    const float *s;
    size_t s_stride;
    uint32_t n;
};

/* Up to 3 rows behind the last are met for nothing. */
AMX_INLINE void amx_few_meet(const struct amx_few_rows *rows,
                             const float *s,
                             const int32_t (*c)[AMX_C],
                             const float *scales,
                             float (*sums)[PANEL_COLS],
                             const float (*take_off)[PANEL_COLS],
                             const enum wide_kind kind)
{
    const struct amx_products p = {.c = c,
                                   .scales = scales,
                                   .sums = sums,
                                   .take_off = take_off,
                                   .s = s,
                                   .s_stride = rows->s_stride};
    vf mins[8];
    amx_load_mins(&p, mins, kind);
    for (uint32_t m = 0; m < rows->n; m += ACT_TILE)
        amx_sums_any(&p, m, ACT_TILE, mins, kind);
    AMX_STAY;
}

AMX_INLINE void amx_few_config(uint32_t n_rows)
{
    struct amx_config config = amx_config_64;
    const bool more = n_rows > AMX_ROWS;
    const uint32_t first = more ? AMX_ROWS : n_rows, second = more ? n_rows - AMX_ROWS : n_rows;
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

/* The i-th of four products: low and high of 64 of K, or of two times 16 rows. */
#define AMX_FEW_PRODUCT(kind, i, c, d, more)                                                       \
    {                                                                                              \
        const int8_t *q_ = rows->q + (i) / 2 * 64;                                                 \
        if ((i) % 2 == 0) {                                                                        \
            _tile_loadd(4, q_, (int)rows->q_stride);                                               \
            _tile_loadd(6, b[(i) / 2][0], 64);                                                     \
            _tile_dpbsud(c, 4, 6);                                                                 \
            if (more) {                                                                            \
                _tile_loadd(5, q_ + AMX_ROWS * rows->q_stride, (int)rows->q_stride);               \
                _tile_dpbsud(2, 5, 6);                                                             \
            }                                                                                      \
        } else {                                                                                   \
            _tile_loadd(7, b[(i) / 2][1], 64);                                                     \
            AMX_HIGH(kind, d, 4, 7)                                                                \
            if (more)                                                                              \
                AMX_HIGH(kind, 3, 5, 7)                                                            \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

/* A panel's B is multiplied, C[c] and C[d], while the other's next groups, at `to`, are widened. */
#define AMX_FEW_TURN(name, kind, of, k_, c, d, more)                                               \
    {                                                                                              \
        const uint8_t(*b)[2][AMX_TILE_BYTES] = (const uint8_t(*)[2][AMX_TILE_BYTES])few->b[of];    \
        _tile_zero(c);                                                                             \
        _tile_zero(d);                                                                             \
        if (more) {                                                                                \
            _tile_zero(2);                                                                         \
            _tile_zero(3);                                                                         \
        }                                                                                          \
        const struct amx_off off = amx_few_off(j, few, (of), k_, kind);                            \
        AMX_OFF_BEGIN(&off, d, more)                                                               \
        AMX_FEW_PRODUCT(kind, 0, c, d, more)                                                       \
        amx_few_widen_##name(&to, 0, few->b[!(of)]);                                               \
        AMX_OFF_END(&off, d, more)                                                                 \
        AMX_FEW_PRODUCT(kind, 1, c, d, more)                                                       \
        amx_few_widen_##name(&to, 1, few->b[!(of)]);                                               \
        AMX_FEW_PRODUCT(kind, 2, c, d, more)                                                       \
        amx_few_widen_##name(&to, 2, few->b[!(of)]);                                               \
        AMX_FEW_PRODUCT(kind, 3, c, d, more)                                                       \
        amx_few_widen_##name(&to, 3, few->b[!(of)]);                                               \
    }

#define AMX_FEW_STORE(of, first, second, more)                                                     \
    {                                                                                              \
        _tile_stored(first, few->c[of][0], 64);                                                    \
        _tile_stored(second, few->c[of][1], 64);                                                   \
        if (more) {                                                                                \
            _tile_stored(2, few->c[of][2], 64);                                                    \
            _tile_stored(3, few->c[of][3], 64);                                                    \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

#define AMX_FEW_C(of) ((const int32_t(*)[AMX_C])few->c[of])
#define AMX_FEW_TAKE_OFF(of, k)                                                                    \
    ((k) % 256 != 0 ? (const float(*)[PANEL_COLS])few->take_off[of] : NULL)

/* B[0] holds the first of panels, and at last of `next`. more: than 16 rows, which take C 2 and 3;
 * else those are the second panel's. */
#define DEFINE_AMX_FEW(name, kind, group_bytes, alone)                                             \
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
        return (struct amx_few_at){.w = panel + at,                                                \
                                   .ask = panel + next +                                           \
                                          (next < j->panel_bytes ? 0 : j->panel_bytes),            \
                                   .head = head_##name(panel, k / 32, 0),                          \
                                   .floats = floats,                                               \
                                   .mins = mins + (size_t)(k % 256) * 2};                          \
    }                                                                                              \
                                                                                                   \
    AMX_INLINE void amx_few_widen_##name(                                                          \
        const struct amx_few_at *at, const uint32_t g, uint8_t(*b)[2][AMX_TILE_BYTES])             \
    {                                                                                              \
        const uint8_t *w = weights_##name(at->w, g);                                               \
        const struct super_scales scales = scales_##name(at->head, at->w, g, 0);                   \
        vb q[8];                                                                                   \
        UNROLL for (int v = 0; v < 8; v++) q[v] = bytes_##name(w, g, v, 0);                        \
        UNROLL for (uint32_t l = g * (group_bytes) / 64; l < (g + 1) * (group_bytes) / 64; l++)    \
            __builtin_prefetch(at->ask + (size_t)l * 64);                                          \
        amx_store_group(b, at->floats, g, q, &scales, at->head, at->mins, kind);                   \
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
        const float *was = NULL;                                                                   \
        here.q = j->act->by128.q + j->first_row * here.q_stride;                                   \
        here.s = j->act->by128.scale + j->first_row * here.s_stride;                               \
        for (uint32_t i = 0; i < k / SUPER_K; i++) {                                               \
            float(*scales)[2][AMX_FLOATS] = few->scales;                                           \
            const uint32_t at_k = i * SUPER_K, next_k = at_k + SUPER_K;                            \
            struct amx_few_at to = amx_few_at_##name(                                              \
                j, panels + j->panel_bytes, at_k, scales[1][i % 2], few->mins[1]);                 \
            AMX_FEW_TURN(name, kind, 0, at_k, 0, 1, more)                                          \
            if (i > 0)                                                                             \
                amx_few_meet(rows,                                                                 \
                             was,                                                                  \
                             AMX_FEW_C(1),                                                         \
                             scales[1][(i + 1) % 2],                                               \
                             few->sums[1],                                                         \
                             AMX_FEW_TAKE_OFF(1, at_k - SUPER_K),                                  \
                             kind);                                                                \
            AMX_FEW_STORE(0, 0, 1, more)                                                           \
            if (next_k < k)                                                                        \
                to = amx_few_at_##name(j, panels, next_k, scales[0][(i + 1) % 2], few->mins[0]);   \
            else                                                                                   \
                to = amx_few_at_##name(j, next, 0, scales[0][0], few->mins[0]);                    \
            if (more)                                                                              \
                AMX_FEW_TURN(name, kind, 1, at_k, 0, 1, more)                                      \
            else                                                                                   \
                AMX_FEW_TURN(name, kind, 1, at_k, 2, 3, more)                                      \
            amx_few_meet(rows,                                                                     \
                         here.s,                                                                   \
                         AMX_FEW_C(0),                                                             \
                         scales[0][i % 2],                                                         \
                         few->sums[0],                                                             \
                         AMX_FEW_TAKE_OFF(0, at_k),                                                \
                         kind);                                                                    \
            if (more)                                                                              \
                AMX_FEW_STORE(1, 0, 1, more)                                                       \
            else                                                                                   \
                AMX_FEW_STORE(1, 2, 3, more)                                                       \
            was = here.s++;                                                                        \
            here.q += SUPER_K;                                                                     \
        }                                                                                          \
        amx_few_meet(rows,                                                                         \
                     was,                                                                          \
                     AMX_FEW_C(1),                                                                 \
                     few->scales[1][(k / SUPER_K - 1) % 2],                                        \
                     few->sums[1],                                                                 \
                     AMX_FEW_TAKE_OFF(1, k - SUPER_K),                                             \
                     kind);                                                                        \
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
        if (j->n_rows < (amx_by_bits(kind) ? AMX_APART_MIN : AMX_FEW_MIN)) {                       \
            alone(j);                                                                              \
            return;                                                                                \
        }                                                                                          \
        amx_few_config(j->n_rows);                                                                 \
        memset(few->mins, 0, sizeof few->mins);                                                    \
        struct amx_few_at to =                                                                     \
            amx_few_at_##name(j, j->panels, 0, few->scales[0][0], few->mins[0]);                   \
        UNROLL for (uint32_t g = 0; g < 4; g++) amx_few_widen_##name(&to, g, few->b[0]);           \
        uint32_t p = 0;                                                                            \
        for (; p + 2 <= j->n_panels; p += 2) {                                                     \
            const uint8_t *panels = j->panels + p * j->panel_bytes;                                \
            const uint8_t *next = p + 4 <= j->n_panels ? panels + 2 * j->panel_bytes : panels;     \
            memset(few->sums, 0, sizeof few->sums);                                                \
            if (j->n_rows > AMX_ROWS)                                                              \
                amx_few_32_##name(j, panels, next);                                                \
            else                                                                                   \
                amx_few_16_##name(j, panels, next);                                                \
            for (uint32_t m = 0; m < j->n_rows; m++) {                                             \
                UNROLL for (uint32_t i = 0; i < 2; i++) linear_put(                                \
                    j, j->first_row + m, (p + i) * PANEL_COLS, vf_load(few->sums[i][m]));          \
            }                                                                                      \
        }                                                                                          \
        _tile_release();                                                                           \
        if (p < j->n_panels) {                                                                     \
            const struct linear_job last = amx_few_last(j);                                        \
            amx_many_##name(&last);                                                                \
        }                                                                                          \
    }
