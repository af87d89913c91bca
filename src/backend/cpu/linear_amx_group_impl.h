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
 * Groups are widened, 512 of K of two panels at a time, which all rows meet then. (Q8_0:
 * linear_amx_q8_impl.h.) */
enum { AMX_RING = 4 /* C */ };

/* 512 of K of a panel, widened. */
struct amx_group_panel {
    uint8_t b[TILE_K / 32][8 * 64];
    float scales[TILE_K / 32][2][PANEL_COLS]; /* scale, what to take off */
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

/* Groups of one panel, and the up to 16 rows that meet them. */
struct amx_groups {
    const struct amx_group_panel *wide;
    uint32_t n;
    const int8_t *q; /* activations of the first row */
    size_t q_stride;
    const float *s;      /* ACT_D, [group][ACT_TILE], of the first four rows; */
    size_t plane;        /* from there to the next of ACT_PLANES */
    const uint8_t *ask;  /* what comes next from memory: */
    uint32_t ask_bytes;  /* a group there, */
    uint32_t first, end; /* and its pairs of lines that these rows ask for */
    float (*sums)[PANEL_COLS];
};

/* Group g is multiplied: C[c] = A B. */
#define AMX_PRODUCT(g, c, t_a, t_b)                                                                \
    {                                                                                              \
        _tile_zero(c);                                                                             \
        _tile_loadd(t_a, a->q + (size_t)(g)*32, (int)a->q_stride);                                 \
        _tile_loadd(t_b, a->wide->b[g], 64);                                                       \
        _tile_dpbssd(c, t_a, t_b);                                                                 \
        AMX_STAY;                                                                                  \
        for (uint32_t l = a->first; l < a->end; l++)                                               \
            __builtin_prefetch(a->ask + (size_t)(g)*a->ask_bytes + (size_t)l * 128, 0, 1);         \
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
    const vf ws = vf_load(a->wide->scales[g][0]);
    const vf min = kind == AMX_MIN ? vf_load(a->wide->scales[g][1]) : ws;
    EACH_ROW
    {
        const float *at = s[m / ACT_TILE] + (size_t)g * ACT_TILE + m % ACT_TILE;
        const vi dot = vi_load(c + m * PANEL_COLS);
        if (kind == AMX_MIN)
            acc[m] = vf_fnma(min, vf_set1(at[ACT_DSUM * a->plane]), acc[m]);
        acc[m] = vf_fma(amx_float(dot), vf_mul(ws, vf_set1(at[ACT_D])), acc[m]);
    }
}

/* M rows, a multiple of 4. */
AMX_INLINE void amx_groups(const struct amx_groups *of, const enum amx_group_kind kind, const int M)
{
    const struct amx_groups here = *of, *const a = &here; /* in registers, whatever is stored to */
    _Alignas(64) int32_t ring[AMX_RING][AMX_C];
    vf acc[AMX_ROWS];
    EACH_ROW acc[m] = vf_load(a->sums[m]);
    const float *s[AMX_ROWS / ACT_TILE];
    UNROLL for (int i = 0; i < M / ACT_TILE; i++)
    {
        s[i] = a->s + (size_t)i * ACT_PLANES * a->plane;
        __asm__("" : "+r"(s[i])); /* each a register: no sums of products in the loop */
    }
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
        amx_groups(a, kind, 4);                                                                    \
    }                                                                                              \
    AMX static void amx_groups_##name##_8(const struct amx_groups *a)                              \
    {                                                                                              \
        amx_groups(a, kind, 8);                                                                    \
    }                                                                                              \
    AMX static void amx_groups_##name##_12(const struct amx_groups *a)                             \
    {                                                                                              \
        amx_groups(a, kind, 12);                                                                   \
    }                                                                                              \
    AMX static void amx_groups_##name##_16(const struct amx_groups *a)                             \
    {                                                                                              \
        amx_groups(a, kind, 16);                                                                   \
    }                                                                                              \
    AMX static void amx_groups_##name(const struct amx_groups *a, uint32_t n_rows)                 \
    {                                                                                              \
        if (n_rows <= 4)                                                                           \
            amx_groups_##name##_4(a);                                                              \
        else if (n_rows <= 8)                                                                      \
            amx_groups_##name##_8(a);                                                              \
        else if (n_rows <= 12)                                                                     \
            amx_groups_##name##_12(a);                                                             \
        else                                                                                       \
            amx_groups_##name##_16(a);                                                             \
    }

DEFINE_AMX_GROUPS(signed, AMX_SIGNED)
DEFINE_AMX_GROUPS(min, AMX_MIN)

/* What of the activations meets groups from k on; rows ask for their share of the `pairs` of lines
 * of each group that comes: of the second line of a pair the processor thinks by itself. */
INLINE void amx_groups_rows(
    struct amx_groups *a, const struct linear_job *j, uint32_t done, uint32_t k, uint32_t pairs)
{
    const uint32_t all = j->act->k, row = j->first_row + done;
    const uint32_t at = done / AMX_ROWS, n = (j->n_rows + AMX_ROWS - 1) / AMX_ROWS;
    a->q_stride = act_q_stride(all);
    a->q = j->act->by32.q + row * a->q_stride + k;
    a->plane = (size_t)all / 32 * ACT_TILE;
    a->s = j->act->by32.scale + row / ACT_TILE * ACT_PLANES * a->plane + k / 32 * ACT_TILE;
    a->first = pairs * at / n;
    a->end = pairs * (at + 1) / n;
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

/* What is widened, as signed bytes. */
INLINE void amx_store_signed(uint8_t *to, const vb *q, const enum wide_kind kind)
{
    const int offset = kind == WIDE_PLUS_128  ? 128
                       : kind == WIDE_PLUS_8  ? 8
                       : kind == WIDE_PLUS_16 ? 16
                                              : 0;
    UNROLL for (int i = 0; i < 8; i++) vb_store(to + i * 64, vb_add(q[i], (char)-offset));
}

/* A part of K of two panels, or of the last, meets all rows. */
#define DEFINE_AMX_GROUPED(name, kind, groups_kind, group_bytes)                                   \
    static void amx_widen_##name(                                                                  \
        const uint8_t *panel, uint32_t k, uint32_t n_groups, struct amx_group_panel *to)           \
    {                                                                                              \
        for (uint32_t g = 0; g < n_groups; g++) {                                                  \
            const uint32_t i = k / 32 + g;                                                         \
            const uint8_t *w = weights_##name(panel, i);                                           \
            const struct head head = head_##name(panel, i / PER_##name * PER_##name, 0);           \
            const struct scales scales = scales_##name(head, panel, i, 0);                         \
            vb q[8];                                                                               \
            UNROLL for (int v = 0; v < 8; v++) q[v] = bytes_##name(w, i, v, 0);                    \
            amx_store_signed(to->b[g], q, kind);                                                   \
            vf_store(to->scales[g][0], scales.w);                                                  \
            vf_store(to->scales[g][1], scales.second);                                             \
        }                                                                                          \
    }                                                                                              \
    AMX static void amx_part_##name(                                                               \
        const struct linear_job *j, struct amx_group_panel *wide, uint32_t p, uint32_t k)          \
    {                                                                                              \
        const uint32_t left = j->act->k - k, n_k = left < TILE_K ? left : TILE_K;                  \
        const uint8_t *panel = j->panels + p * j->panel_bytes;                                     \
        struct amx_groups a = {.wide = wide, .n = n_k / 32, .ask_bytes = (group_bytes)};           \
        const size_t next = (size_t)(k + TILE_K) / 32 * (group_bytes);                             \
        a.ask = panel + next + (next < j->panel_bytes ? 0 : j->panel_bytes);                       \
        for (uint32_t done = 0; done < j->n_rows; done += AMX_ROWS) {                              \
            a.sums = wide->sums + done;                                                            \
            amx_groups_rows(&a, j, done, k, ((group_bytes) + 127) / 128);                          \
            amx_groups_##groups_kind(&a, j->n_rows - done);                                        \
        }                                                                                          \
    }                                                                                              \
    AMX static void amx_##name(const struct linear_job *j)                                         \
    {                                                                                              \
        if (j->n_rows < AMX_GROUP_MIN_ROWS) {                                                      \
            run_##name(j);                                                                         \
            return;                                                                                \
        }                                                                                          \
        struct amx_group_part *part = (struct amx_group_part *)j->scratch;                         \
        const uint32_t all = j->act->k, n_rows = (j->n_rows + 3) / 4 * 4;                          \
        _tile_loadconfig(&amx_config_32);                                                          \
        for (uint32_t p = 0; p < j->n_panels; p += 2) {                                            \
            const uint32_t n = j->n_panels - p < 2 ? 1 : 2;                                        \
            for (uint32_t i = 0; i < n; i++)                                                       \
                memset(part->panels[i].sums, 0, n_rows * sizeof part->panels[i].sums[0]);          \
            for (uint32_t k = 0; k < all; k += TILE_K) {                                           \
                const uint32_t n_k = all - k < TILE_K ? all - k : TILE_K;                          \
                for (uint32_t i = 0; i < n; i++)                                                   \
                    amx_widen_##name(                                                              \
                        j->panels + (p + i) * j->panel_bytes, k, n_k / 32, &part->panels[i]);      \
                AMX_STAY; /* nor what they are loaded from */                                      \
                for (uint32_t i = 0; i < n; i++)                                                   \
                    amx_part_##name(j, &part->panels[i], p + i, k);                                \
            }                                                                                      \
            for (uint32_t i = 0; i < n; i++)                                                       \
                amx_groups_put(                                                                    \
                    j, p + i, 0, j->n_rows, (const float(*)[PANEL_COLS])part->panels[i].sums);     \
        }                                                                                          \
        _tile_release();                                                                           \
    }

DEFINE_AMX_GROUPED(q4_0, WIDE_PLUS_8, signed, 288)
DEFINE_AMX_GROUPED(q4_1, WIDE_MIN, min, Q4_1_GROUP)
DEFINE_AMX_GROUPED(q5_0, WIDE_PLUS_16, signed, 352)
DEFINE_AMX_GROUPED(q5_1, WIDE_MIN_31, min, Q5_1_GROUP)
DEFINE_AMX_GROUPED(iq4_nl, WIDE_PLUS_128, signed, 288)
DEFINE_AMX_GROUPED(mxfp4, WIDE_PLUS_16, signed, 272)
