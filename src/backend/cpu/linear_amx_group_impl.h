/* Many rows on the tile unit, of formats with a scale for 32 of K: a C each. Of 16 columns, 16 rows
 * and 128 of K: 4 instructions of 16 cycles, 64 vectors of C from memory, which meet their scales
 * with 3 operations each, 96 cycles on two ports, beside 120 cycles of loads; vpdpbusd and the same
 * operations take 352. */
enum { AMX_BATCH = 4 /* groups of 32 of K, a C each */ };

/* In a job's scratch, as struct amx_part. */
struct amx_group_panel {
    uint8_t b[TILE_K / 32][8 * 64];
    float scales[TILE_K / 32][2][PANEL_COLS]; /* scale, what to take off */
    float sums[LINEAR_MAX_ROWS][PANEL_COLS];
};

struct amx_group_part {
    struct amx_group_panel panels[2];
    int32_t c[AMX_BATCH][AMX_C];
};
_Static_assert(sizeof(struct amx_group_part) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* 0..3: C; 4, 5: A; 6, 7: B. */
static const struct amx_config amx_config_32 = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 8, 8},
};

/* Up to 16 rows and 4 groups: what was multiplied, and which sums it meets. */
struct amx_batch {
    const int32_t (*c)[AMX_C];
    const float (*scales)[2][PANEL_COLS];
    float (*sums)[PANEL_COLS];
    const struct act_scale *s; /* [group][ACT_TILE] of the first four rows; */
    size_t s_stride;           /* to the next four's */
    uint32_t n, n_groups;
};

/* What is widened, as signed bytes. */
INLINE void amx_store_signed(uint8_t *to, const vb *q, const enum wide_kind kind)
{
    const int offset = kind == WIDE_PLUS_128  ? 128
                       : kind == WIDE_PLUS_8  ? 8
                       : kind == WIDE_PLUS_16 ? 16
                                              : 0;
    UNROLL for (int i = 0; i < 8; i++) vb_store(to + i * 64, vb_add(q[i], (char)-offset));
}

/* Group g of a batch meets the sums of one row. */
INLINE vf amx_group_sum(
    vf acc, const struct amx_batch *p, uint32_t m, uint32_t g, vf ws, vf min, enum wide_kind kind)
{
    const struct act_scale *s = p->s + m / ACT_TILE * p->s_stride + g * ACT_TILE + m % ACT_TILE;
    if (kind == WIDE_MIN || kind == WIDE_MIN_31)
        acc = vf_fnma(min, vf_set1(s->dsum), acc);
    const vi dot = vi_load(p->c[g] + m * PANEL_COLS);
    return vf_fma(vf_from_i(dot), vf_mul(ws, vf_set1(s->d)), acc);
}

AMX_INLINE void amx_batch_sums(const struct amx_batch *p, const enum wide_kind kind)
{
    for (uint32_t m = 0; m < p->n; m++) {
        vf acc = vf_load(p->sums[m]);
        for (uint32_t g = 0; g < p->n_groups; g++)
            acc = amx_group_sum(
                acc, p, m, g, vf_load(p->scales[g][0]), vf_load(p->scales[g][1]), kind);
        vf_store(p->sums[m], acc);
    }
}

/* The g-th product of a batch, and the g-th of the batch before meets its sums. */
#define AMX_GROUP(g, a, w)                                                                         \
    {                                                                                              \
        _tile_zero(g);                                                                             \
        _tile_loadd(a, q + (g)*32, (int)stride);                                                   \
        _tile_loadd(w, b[g], 64);                                                                  \
        _tile_dpbssd(g, a, w);                                                                     \
        AMX_STAY;                                                                                  \
        const vf ws = vf_load(before->scales[g][0]), min = vf_load(before->scales[g][1]);          \
        UNROLL for (uint32_t m = 0; m < AMX_ROWS; m++) acc[m] =                                    \
            amx_group_sum(acc[m], before, m, g, ws, min, kind);                                    \
        AMX_STAY;                                                                                  \
    }

/* As amx_turn, of 16 rows and 4 groups. */
AMX_INLINE void amx_batch_turn(const int8_t *q,
                               size_t stride,
                               const uint8_t (*b)[8 * 64],
                               const struct amx_batch *before,
                               const bool ask,
                               const enum wide_kind kind)
{
    vf acc[AMX_ROWS];
    UNROLL for (int m = 0; m < AMX_ROWS; m++) acc[m] = vf_load(before->sums[m]);
    AMX_GROUP(0, 4, 6)
    AMX_GROUP(1, 5, 7)
    for (int m = 0; ask && m < AMX_ROWS; m++) {
        __builtin_prefetch(q + (AMX_ROWS + m) * stride);
        __builtin_prefetch(q + (AMX_ROWS + m) * stride + 64);
    }
    AMX_GROUP(2, 4, 6)
    AMX_GROUP(3, 5, 7)
    UNROLL for (int m = 0; m < AMX_ROWS; m++) vf_store(before->sums[m], acc[m]);
}

AMX_INLINE void amx_batch_store(int32_t (*c)[AMX_C])
{
    AMX_STAY;
    _tile_stored(0, c[0], 64);
    _tile_stored(1, c[1], 64);
    _tile_stored(2, c[2], 64);
    _tile_stored(3, c[3], 64);
    AMX_STAY;
}

/* Up to 16 rows of up to 4 groups by themselves. */
AMX_INLINE void amx_batch_dots(const int8_t *q,
                               size_t stride,
                               const uint8_t (*b)[8 * 64],
                               int32_t (*c)[AMX_C],
                               uint32_t n_groups)
{
    AMX_STAY;
    for (uint32_t g = 0; g < n_groups; g++) {
        _tile_zero(0);
        _tile_loadd(4, q + g * 32, (int)stride);
        _tile_loadd(6, b[g], 64);
        _tile_dpbssd(0, 4, 6);
        _tile_stored(0, c[g], 64);
    }
    AMX_STAY;
}

INLINE bool amx_batch_is_full(const struct amx_batch *p)
{
    return p->n == AMX_ROWS && p->n_groups == AMX_BATCH;
}

/* A part of K of up to two panels meets all rows. */
AMX_INLINE void amx_group_rows(const struct linear_job *j,
                               struct amx_group_part *part,
                               uint32_t n_panels,
                               uint32_t first_k,
                               uint32_t n_k,
                               const enum wide_kind kind)
{
    const uint32_t k = j->act->k, n_groups = n_k / 32;
    const size_t stride = act_q_stride(k);
    const struct act_int8 *acts = &j->act->by32;
    struct amx_batch before = {.n = 0};
    for (uint32_t done = 0; done < j->n_rows; done += AMX_ROWS) {
        const uint32_t row = j->first_row + done, left = j->n_rows - done;
        for (uint32_t at = 0; at < n_groups; at += AMX_BATCH) {
            const int8_t *q = acts->q + row * stride + first_k + at * 32;
            for (uint32_t i = 0; i < n_panels; i++) {
                struct amx_group_panel *p = &part->panels[i];
                const struct amx_batch now = {
                    .c = (const int32_t(*)[AMX_C])part->c,
                    .scales = (const float(*)[2][PANEL_COLS])p->scales + at,
                    .sums = p->sums + done,
                    .s = acts->scale + (size_t)row * (k / 32) + (first_k / 32 + at) * ACT_TILE,
                    .s_stride = (size_t)k / 32 * ACT_TILE,
                    .n = left < AMX_ROWS ? left : AMX_ROWS,
                    .n_groups = n_groups - at < AMX_BATCH ? n_groups - at : AMX_BATCH};
                if (amx_batch_is_full(&before) && amx_batch_is_full(&now)) {
                    if (i == 0)
                        amx_batch_turn(q, stride, p->b + at, &before, true, kind);
                    else
                        amx_batch_turn(q, stride, p->b + at, &before, false, kind);
                    amx_batch_store(part->c);
                } else {
                    amx_batch_sums(&before, kind);
                    amx_batch_dots(q, stride, p->b + at, part->c, now.n_groups);
                }
                before = now;
            }
        }
    }
    amx_batch_sums(&before, kind);
}

#define DEFINE_AMX_GROUPED(name, kind, group_bytes)                                                \
    static void amx_widen_##name(const struct linear_job *j,                                       \
                                 const uint8_t *panel,                                             \
                                 uint32_t k,                                                       \
                                 uint32_t n_k,                                                     \
                                 struct amx_group_panel *to)                                       \
    {                                                                                              \
        for (uint32_t g = 0; g < n_k / 32; g++) {                                                  \
            const uint32_t i = k / 32 + g;                                                         \
            const uint8_t *w = weights_##name(panel, i);                                           \
            amx_ask(j, panel, (size_t)(w - panel) + TILE_K / 32 * (group_bytes), (group_bytes));   \
            const struct head head = head_##name(panel, i / PER_##name * PER_##name, 0);           \
            const struct scales scales = scales_##name(head, panel, i, 0);                         \
            vb q[8];                                                                               \
            UNROLL for (int v = 0; v < 8; v++) q[v] = bytes_##name(w, i, v, 0);                    \
            amx_store_signed(to->b[g], q, kind);                                                   \
            vf_store(to->scales[g][0], scales.w);                                                  \
            vf_store(to->scales[g][1], scales.second);                                             \
        }                                                                                          \
    }                                                                                              \
    AMX static void amx_##name(const struct linear_job *j)                                         \
    {                                                                                              \
        if (j->n_rows < AMX_GROUP_MIN_ROWS) {                                                      \
            run_##name(j);                                                                         \
            return;                                                                                \
        }                                                                                          \
        struct amx_group_part *part = (struct amx_group_part *)j->scratch;                         \
        const uint32_t all = j->act->k;                                                            \
        _tile_loadconfig(&amx_config_32);                                                          \
        for (uint32_t p = 0; p < j->n_panels; p += 2) {                                            \
            const uint32_t n = j->n_panels - p < 2 ? 1 : 2;                                        \
            for (uint32_t i = 0; i < n; i++)                                                       \
                memset(part->panels[i].sums, 0, j->n_rows * sizeof part->panels[i].sums[0]);       \
            for (uint32_t k = 0; k < all; k += TILE_K) {                                           \
                const uint32_t n_k = all - k < TILE_K ? all - k : TILE_K;                          \
                for (uint32_t i = 0; i < n; i++)                                                   \
                    amx_widen_##name(                                                              \
                        j, j->panels + (p + i) * j->panel_bytes, k, n_k, &part->panels[i]);        \
                AMX_STAY;                                                                          \
                amx_group_rows(j, part, n, k, n_k, kind);                                          \
            }                                                                                      \
            for (uint32_t m = 0; m < j->n_rows; m++) {                                             \
                for (uint32_t i = 0; i < n; i++)                                                   \
                    linear_put(j,                                                                  \
                               j->first_row + m,                                                   \
                               (p + i) * PANEL_COLS,                                               \
                               vf_load(part->panels[i].sums[m]));                                  \
            }                                                                                      \
        }                                                                                          \
        _tile_release();                                                                           \
    }

DEFINE_AMX_GROUPED(q8_0, WIDE_PLUS_128, 544)
DEFINE_AMX_GROUPED(q4_0, WIDE_PLUS_8, 288)
DEFINE_AMX_GROUPED(q4_1, WIDE_MIN, Q4_1_GROUP)
DEFINE_AMX_GROUPED(q5_0, WIDE_PLUS_16, 352)
DEFINE_AMX_GROUPED(q5_1, WIDE_MIN_31, Q5_1_GROUP)
DEFINE_AMX_GROUPED(iq4_nl, WIDE_PLUS_128, 288)
DEFINE_AMX_GROUPED(mxfp4, WIDE_PLUS_16, 272)
