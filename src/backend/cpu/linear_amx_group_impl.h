/* Rows on the tile unit, of formats with a scale for 32 of K: a C each. Of 16 columns, 16 rows and
 * 32 of K: an instruction of 16 cycles, 24 lines to load for it, 16 vectors of C to store, and the
 * same 16 to load again, which meet their scales: a product of scales and a multiply-add, 32 cycles
 * on the one port that is left for them while the unit is in use, and two sums to make a float of
 * an integer, on either of two (amx_float); vpdpbusd and its operations take 88.
 *
 *     for each 16 rows, a panel's groups of 32 of K in a row:
 *         multiply group g            C[g % 4]
 *         store group g - 1           what waits for the unit is not what comes first
 *         group g - 2 meets its sums  which stay in 16 registers
 *
 * So a product has the time of a group before it is stored, its C that of another before it is
 * loaded again, and the core finds work of three groups to do at a time.
 *
 * The first 16 rows find the panel as it is: group g + 1 is widened while g is multiplied, from
 * memory, and stays for the other rows, 512 of K at a time (up to 16 rows take all of K, of which a
 * ring holds 512). Of up to 32 rows one panel follows the other; of more, two take turns, and each
 * 16 ask for the activations of the next 16, which lie in the second cache or further away: in a
 * model that saves a twelfth. (Q8_0: linear_amx_q8_impl.h.) */
enum {
    AMX_RING = 4,             /* C */
    AMX_GROUPS = TILE_K / 32, /* B of a panel */
    AMX_GROUPS_SOON = 3072,   /* bytes ahead in a panel */
};

/* 512 of K of a panel, widened. */
struct amx_group_panel {
    uint8_t b[AMX_GROUPS][8 * 64];
    float scales[AMX_GROUPS][2][PANEL_COLS]; /* scale, what to take off */
    float sums[LINEAR_MAX_ROWS][PANEL_COLS];
};

/* In a job's scratch, as struct amx_part. */
struct amx_group_part {
    struct amx_group_panel panels[2];
};
_Static_assert(sizeof(struct amx_group_part) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* 0..3: C; 4, 5: A; 6, 7: B. */
static const struct amx_config amx_config_32 = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 8, 8},
};

/* What is made of C. */
enum amx_group_kind {
    AMX_SIGNED,
    AMX_MIN, /* there is something to take off, times the activations' sum */
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

/* Group i of a panel becomes B `at`. */
typedef void amx_widen_fn(const uint8_t *panel,
                          uint32_t i,
                          struct amx_group_panel *to,
                          uint32_t at);

#define DEFINE_AMX_WIDEN(name, kind)                                                               \
    INLINE void amx_widen_##name(                                                                  \
        const uint8_t *panel, uint32_t i, struct amx_group_panel *to, uint32_t at)                 \
    {                                                                                              \
        const uint8_t *w = weights_##name(panel, i);                                               \
        const struct head head = head_##name(panel, i / PER_##name * PER_##name, 0);               \
        const struct scales scales = scales_##name(head, panel, i, 0);                             \
        vb q[8];                                                                                   \
        UNROLL for (int v = 0; v < 8; v++) q[v] = bytes_##name(w, i, v, 0);                        \
        amx_store_signed(to->b[at], q, kind);                                                      \
        vf_store(to->scales[at][0], scales.w);                                                     \
        vf_store(to->scales[at][1], scales.second);                                                \
    }

DEFINE_AMX_WIDEN(q4_0, WIDE_PLUS_8)
DEFINE_AMX_WIDEN(q4_1, WIDE_MIN)
DEFINE_AMX_WIDEN(q5_0, WIDE_PLUS_16)
DEFINE_AMX_WIDEN(q5_1, WIDE_MIN_31)
DEFINE_AMX_WIDEN(iq4_nl, WIDE_PLUS_128)
DEFINE_AMX_WIDEN(mxfp4, WIDE_PLUS_16)

/* Groups of one panel, and the up to 16 rows that meet them. */
struct amx_groups {
    const uint8_t *panel;
    struct amx_group_panel *wide;
    uint32_t at, n;       /* the first, how many */
    uint32_t n_rows;      /* from the first on, 16 or more are 16 */
    const int8_t *q;      /* activations of the first row, */
    const int8_t *q_next; /* of that of the rows that come next, or NULL */
    size_t q_stride;
    const float *s;     /* ACT_D, [group][ACT_TILE], of the first four rows; */
    size_t plane;       /* from there to the next of ACT_PLANES */
    const uint8_t *ask; /* what comes next from memory: */
    uint32_t ask_bytes; /* a group there */
    float (*sums)[PANEL_COLS];
};

/* Group g is multiplied: C[c] = A B. */
#define AMX_PRODUCT(g, c, t_a, t_b)                                                                \
    {                                                                                              \
        _tile_zero(c);                                                                             \
        _tile_loadd(t_a, a->q + (size_t)(g)*32, (int)a->q_stride);                                 \
        _tile_loadd(t_b, a->wide->b[(g) % AMX_GROUPS], 64);                                        \
        _tile_dpbssd(c, t_a, t_b);                                                                 \
        AMX_STAY;                                                                                  \
        if (a->q_next) {                                                                           \
            const int8_t *q_ = a->q_next + (g) % 2 * 8 * a->q_stride + (size_t)(g) / 2 * 64;       \
            UNROLL for (size_t r = 0; r < 8; r++) __builtin_prefetch(q_ + r * a->q_stride);        \
        }                                                                                          \
        if (widen) {                                                                               \
            if ((g) + 1 < a->n)                                                                    \
                widen(a->panel, a->at + (g) + 1, a->wide, ((g) + 1) % AMX_GROUPS);                 \
            for (uint32_t l = 0; l < a->ask_bytes; l += 64)                                        \
                __builtin_prefetch(a->ask + (size_t)(g)*a->ask_bytes + l);                         \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

#define AMX_STORE(c)                                                                               \
    {                                                                                              \
        _tile_stored(c, ring[c], 64);                                                              \
        AMX_STAY;                                                                                  \
    }

/* Group g, of which C was stored, meets the sums. */
#define AMX_MEET(g, c)                                                                             \
    {                                                                                              \
        amx_meet(a, s, (g), ring[c], acc, kind, M);                                                \
        AMX_STAY;                                                                                  \
    }

/* x as vf_from_i has it, for x below 2^22, as 32 products of bytes are. Beside the unit's
 * instructions conversions have one port, which products of floats need; sums have two. */
INLINE vf amx_float(vi x)
{
    const vi biased = vi_plus(x, vi_set1(0x4b400000)); /* the float 1.5 * 2^23 + x */
    return vf_sub(_mm512_castsi512_ps(biased), vf_set1(0x1.8p23f));
}

AMX_INLINE void amx_meet(const struct amx_groups *a,
                         const float *const *s,
                         uint32_t g,
                         const int32_t *c,
                         vf *acc,
                         const enum amx_group_kind kind,
                         const int M)
{
    const vf ws = vf_load(a->wide->scales[g % AMX_GROUPS][0]);
    const vf min = kind == AMX_MIN ? vf_load(a->wide->scales[g % AMX_GROUPS][1]) : ws;
    EACH_ROW
    {
        const float *at = s[m / ACT_TILE] + (size_t)g * ACT_TILE + m % ACT_TILE;
        const vi dot = vi_load(c + m * PANEL_COLS);
        if (kind == AMX_MIN)
            acc[m] = vf_fnma(min, vf_set1(at[ACT_DSUM * a->plane]), acc[m]);
        acc[m] = vf_fma(amx_float(dot), vf_mul(ws, vf_set1(at[ACT_D])), acc[m]);
    }
}

/* M rows, a multiple of 4. widen: NULL, or each group becomes B while the one before is multiplied.
 */
AMX_INLINE void amx_groups(const struct amx_groups *of,
                           amx_widen_fn *const widen,
                           const enum amx_group_kind kind,
                           const int M)
{
    const struct amx_groups here = *of, *const a = &here; /* in registers, whatever is stored to */
    _Alignas(64) int32_t ring[AMX_RING][AMX_C];
    vf acc[AMX_ROWS];
    EACH_ROW acc[m] = vf_load(a->sums[m]);
    const float *s[AMX_ROWS / ACT_TILE];
    UNROLL for (int i = 0; i < M / ACT_TILE; i++)
    {
        /* behind the last row there is nothing, nor in C: such sums are not put */
        s[i] = a->s + (i * ACT_TILE < (int)a->n_rows ? (size_t)i * ACT_PLANES * a->plane : 0);
        __asm__("" : "+r"(s[i])); /* each a register: no sums of products in the loop */
    }
    if (widen)
        widen(a->panel, a->at, a->wide, 0);
    AMX_STAY; /* compilers do not see what tiles are loaded from */
    uint32_t g = 0;
    for (; g + AMX_RING <= a->n; g += AMX_RING) {
        AMX_PRODUCT(g, 0, 4, 6)
        AMX_STORE(3)
        if (g > 0)
            AMX_MEET(g - 2, 2)
        AMX_PRODUCT(g + 1, 1, 5, 7)
        AMX_STORE(0)
        if (g > 0)
            AMX_MEET(g - 1, 3)
        AMX_PRODUCT(g + 2, 2, 4, 6)
        AMX_STORE(1)
        AMX_MEET(g, 0)
        AMX_PRODUCT(g + 3, 3, 5, 7)
        AMX_STORE(2)
        AMX_MEET(g + 1, 1)
    }
    if (g > 0) {
        AMX_STORE(3)
        AMX_MEET(g - 2, 2)
        AMX_MEET(g - 1, 3)
    }
    for (; g < a->n; g++) {
        AMX_PRODUCT(g, 0, 4, 6)
        AMX_STORE(0)
        AMX_MEET(g, 0)
    }
    EACH_ROW vf_store(a->sums[m], acc[m]);
}

/* As many rows as there are, up to three in vain. */
#define DEFINE_AMX_GROUPS(name, kind)                                                              \
    AMX static void amx_groups_##name##_4(const struct amx_groups *a)                              \
    {                                                                                              \
        amx_groups(a, NULL, kind, 4);                                                              \
    }                                                                                              \
    AMX static void amx_groups_##name##_8(const struct amx_groups *a)                              \
    {                                                                                              \
        amx_groups(a, NULL, kind, 8);                                                              \
    }                                                                                              \
    AMX static void amx_groups_##name##_12(const struct amx_groups *a)                             \
    {                                                                                              \
        amx_groups(a, NULL, kind, 12);                                                             \
    }                                                                                              \
    AMX static void amx_groups_##name##_16(const struct amx_groups *a)                             \
    {                                                                                              \
        amx_groups(a, NULL, kind, 16);                                                             \
    }                                                                                              \
    AMX static void amx_groups_##name(const struct amx_groups *a)                                  \
    {                                                                                              \
        if (a->n_rows <= 4)                                                                        \
            amx_groups_##name##_4(a);                                                              \
        else if (a->n_rows <= 8)                                                                   \
            amx_groups_##name##_8(a);                                                              \
        else if (a->n_rows <= 12)                                                                  \
            amx_groups_##name##_12(a);                                                             \
        else                                                                                       \
            amx_groups_##name##_16(a);                                                             \
    }

DEFINE_AMX_GROUPS(signed, AMX_SIGNED)
DEFINE_AMX_GROUPS(min, AMX_MIN)

/* What of the activations meets groups from k on. */
INLINE void amx_groups_rows(struct amx_groups *a,
                            const struct linear_job *j,
                            uint32_t done,
                            uint32_t k)
{
    const uint32_t all = j->act->k, row = j->first_row + done;
    a->q_stride = act_q_stride(all);
    a->q = j->act->by32.q + row * a->q_stride + k;
    a->n_rows = j->n_rows - done;
    a->q_next = NULL;
    if (j->n_rows > 2 * AMX_ROWS) /* else they are in the nearest cache */
        a->q_next =
            done + AMX_ROWS < j->n_rows ? a->q + AMX_ROWS * a->q_stride : a->q - done * a->q_stride;
    a->plane = (size_t)all / 32 * ACT_TILE;
    a->s = j->act->by32.scale + row / ACT_TILE * ACT_PLANES * a->plane + k / 32 * ACT_TILE;
}

INLINE void amx_groups_put(const struct linear_job *j,
                           uint32_t panel,
                           uint32_t row,
                           uint32_t n_rows,
                           const float (*sums)[PANEL_COLS])
{
    for (uint32_t m = 0; m < n_rows; m++)
        linear_put(j, j->first_row + row + m, panel * PANEL_COLS, vf_load(sums[m]));
}

AMX static void amx_groups_config(uint32_t n_rows)
{
    struct amx_config config = amx_config_32;
    for (int i = 0; i < 6; i++)
        config.rows[i] = (uint8_t)(n_rows < AMX_ROWS ? n_rows : AMX_ROWS);
    AMX_STAY;
    _tile_loadconfig(&config);
}

/* A part of K of a panel meets all rows: with the first 16 of them it is widened. */
#define DEFINE_AMX_GROUPED(name, groups_kind, kind, group_bytes)                                   \
    AMX static void amx_first_##name(const struct amx_groups *a)                                   \
    {                                                                                              \
        amx_groups(a, amx_widen_##name, kind, AMX_ROWS);                                           \
    }                                                                                              \
    AMX static void amx_part_##name(                                                               \
        const struct linear_job *j, struct amx_group_panel *wide, uint32_t p, uint32_t k)          \
    {                                                                                              \
        const uint32_t left = j->act->k - k;                                                       \
        const uint32_t n_k = left < TILE_K || j->n_rows <= AMX_ROWS ? left : TILE_K;               \
        const uint8_t *panel = j->panels + p * j->panel_bytes;                                     \
        struct amx_groups a = {.panel = panel,                                                     \
                               .wide = wide,                                                       \
                               .at = k / 32,                                                       \
                               .n = n_k / 32,                                                      \
                               .ask_bytes = (group_bytes)};                                        \
        const size_t at = (size_t)k / 32 * (group_bytes);                                          \
        const size_t next = at + TILE_K / 32 * (group_bytes);                                      \
        if (j->n_rows <= 2 * AMX_ROWS)                                                             \
            a.ask = panel + at + AMX_GROUPS_SOON;                                                  \
        else                                                                                       \
            a.ask = next < j->panel_bytes ? panel + next : panel + 2 * j->panel_bytes;             \
        for (uint32_t done = 0; done < j->n_rows; done += AMX_ROWS) {                              \
            a.sums = wide->sums + done;                                                            \
            amx_groups_rows(&a, j, done, k);                                                       \
            if (n_k == left)                                                                       \
                linear_ask_out(                                                                    \
                    j, j->first_row + done, a.n_rows < AMX_ROWS ? a.n_rows : AMX_ROWS, p, 1);      \
            if (done > 0)                                                                          \
                amx_groups_##groups_kind(&a);                                                      \
            else                                                                                   \
                amx_first_##name(&a);                                                              \
        }                                                                                          \
    }                                                                                              \
    AMX static void amx_##name(const struct linear_job *j)                                         \
    {                                                                                              \
        if (j->n_rows < AMX_GROUP_MIN_ROWS) {                                                      \
            run_##name(j);                                                                         \
            return;                                                                                \
        }                                                                                          \
        struct amx_group_part *part = (struct amx_group_part *)j->scratch;                         \
        const uint32_t all = j->act->k, n_rows = (j->n_rows + 15) / 16 * 16;                       \
        const uint32_t at_once = j->n_rows <= 2 * AMX_ROWS ? 1 : 2;                                \
        const uint32_t k_once = j->n_rows <= AMX_ROWS ? all : TILE_K;                              \
        amx_groups_config(j->n_rows);                                                              \
        for (uint32_t p = 0; p < j->n_panels; p += at_once) {                                      \
            const uint32_t n = j->n_panels - p < at_once ? 1 : at_once;                            \
            for (uint32_t i = 0; i < n; i++)                                                       \
                memset(part->panels[i].sums, 0, n_rows * sizeof part->panels[i].sums[0]);          \
            for (uint32_t k = 0; k < all; k += k_once) {                                           \
                for (uint32_t i = 0; i < n; i++)                                                   \
                    amx_part_##name(j, &part->panels[i], p + i, k);                                \
            }                                                                                      \
            for (uint32_t i = 0; i < n; i++)                                                       \
                amx_groups_put(                                                                    \
                    j, p + i, 0, j->n_rows, (const float(*)[PANEL_COLS])part->panels[i].sums);     \
        }                                                                                          \
        _tile_release();                                                                           \
    }

DEFINE_AMX_GROUPED(q4_0, signed, AMX_SIGNED, 288)
DEFINE_AMX_GROUPED(q4_1, min, AMX_MIN, Q4_1_GROUP)
DEFINE_AMX_GROUPED(q5_0, signed, AMX_SIGNED, 352)
DEFINE_AMX_GROUPED(q5_1, min, AMX_MIN, Q5_1_GROUP)
DEFINE_AMX_GROUPED(iq4_nl, signed, AMX_SIGNED, 288)
DEFINE_AMX_GROUPED(mxfp4, signed, AMX_SIGNED, 272)
