/* Q8_0 on the tile unit's products of bf16 (TDPBF16PS). A weight d q is cut to the 8 bits of a
 * bf16, and an activation rounded to them: together a third of the error of activations of 8 bits
 * with a scale for each 32, and nothing is left to do for each 32 of K, where scales took most of
 * the time. Of 16 rows, 16 columns and 32 of K
 *
 *     A  [16 rows][32 of K]            act.hi, read with its stride
 *     B  [16 pairs of K][16 columns]   a group of a panel, widened, in a job's scratch
 *     C  [16 rows][16 columns]         the sums: f32
 *
 * are one instruction of 16 cycles, of up to 8 rows half of that. The order of its sums, and how
 * vectors repeat it for a row alone, is told in linear_amx_float_impl.h; a sum over K is one 32
 * after the other, however many rows there are.
 *
 *     up to 32 rows                       more, of each eight panels
 *     for each P panels                   for each 256 of K
 *         for each 32 of K                    for each 2 panels
 *             P or 2 P products                   for each 32 rows, C from and to memory
 *             the next 32 become B                    for each 32 of K: 4 products, and where
 *                                                     no rows before did, the next B
 *
 * P is 4 for up to 16 rows, else 2. Widening a B takes 15 operations for 64 weights, 60 cycles at
 * best and some 100 as it is: so few rows are bound by it where one core has memory to itself. Many
 * are bound by the turns of C: 4 from and to memory cost as much as 16 products, and longer parts
 * of K would push B out of the nearest cache, which costs more. */
enum {
    AMX_Q8_STEPS = 8,               /* of 32 of K, that many rows meet at a time */
    AMX_Q8_RING = 2 * AMX_Q8_STEPS, /* B, of all panels together */
    AMX_Q8_SOON = 3072,             /* bytes ahead in a panel */
    AMX_Q8_LINES = 9,               /* that a group lies in, with its scales */
    AMX_Q8_ALONE = 4,               /* panels that meet a row alone */
};

/* In a job's scratch. */
struct amx_q8_part {
    uint8_t b[AMX_Q8_RING][AMX_TILE_BYTES];
    float sums[LINEAR_MAX_SUMS][LINEAR_MAX_ROWS][PANEL_COLS];
};
_Static_assert(sizeof(struct amx_q8_part) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* Rounded to nearest; one beyond the bf16 becomes the largest. Zeros behind k. */
AMX_FLOAT static void pack_high(const float *x, uint32_t k, uint16_t *to)
{
    const vf most = vf_set1(0x1.fep127f), least = vf_set1(-0x1.fep127f);
    for (uint32_t i = 0; i < k; i += 16) {
        const vf a = vf_load_n(x + i, k - i < 16 ? k - i : 16);
        /* a bound comes first: what is no number stays none */
        const __m256i hi = (__m256i)_mm512_cvtneps_pbh(vf_max(least, vf_min(most, a)));
        _mm256_storeu_si256((__m256i *)(to + i), hi);
    }
}

/* d of a group's columns, larger by what cutting takes off a product on average: a third of the
 * last of 8 bits, 2^-7 / 3 of 2. Of 15 bits, so that offset, -(2^15 + 128) d, is one float. */
struct amx_q8_scales {
    vf d, offset;
};

INLINE struct amx_q8_scales amx_q8_scales(const uint8_t *panel, uint32_t i)
{
    const vf d = vf_mul(scales_q8_0(NO_HEAD, panel, i, 0).w, vf_set1(1.0f + 1.0f / 384));
    const vf cut = _mm512_castsi512_ps(vi_mask(_mm512_castps_si512(d), ~0x1ff));
    return (struct amx_q8_scales){cut, vf_mul(cut, vf_set1(-32896.0f))};
}

/* d q, not cut. at: q in the second byte of each lane, where q + 128 becomes 2^15 + q + 128. */
INLINE vf amx_q8_times(vi at, const struct amx_q8_scales *s)
{
    const vi byte = vi_set1(0xff00), magic = vi_set1(0x47000000 ^ 0x8000);
    const vi w = _mm512_ternarylogic_epi32(at, byte, magic, 0x6a);
    return vf_fma(_mm512_castsi512_ps(w), s->d, s->offset);
}

/* Group i of a panel becomes a B. */
INLINE void amx_q8_widen(const uint8_t *panel, uint32_t i, uint8_t *to)
{
    const uint8_t *w = weights_q8_0(panel, i);
    const struct amx_q8_scales s = amx_q8_scales(panel, i);
    UNROLL for (int v = 0; v < 8; v++)
    {
        const vi q = vb_load(w + v * 64);
        vb_store(to + v * 128, amx_pairs(amx_q8_times(vi_shift(q, 8), &s), amx_q8_times(q, &s)));
        vb_store(to + v * 128 + 64,
                 amx_pairs(amx_q8_times(vi_shift(q, -8), &s), amx_q8_times(vi_shift(q, -16), &s)));
    }
}

/* --- a row alone ---------------------------------------------------------------------------------
 */

/* What the tile unit does to C, for one row and P panels side by side. */
INLINE void amx_q8_alone(const struct linear_job *j, uint32_t p0, const int P)
{
    const uint32_t n = j->act->k / 32;
    const size_t apart = j->panel_bytes;
    const uint16_t *hi = j->act->hi + j->first_row * act_high_stride(j->act->k);
    const uint8_t *panels = j->panels + p0 * apart;
    vf acc[AMX_Q8_ALONE];
    UNROLL for (int p = 0; p < P; p++) acc[p] = vf_zero();
    for (uint32_t i = 0; i < n; i++, hi += 32) {
        float x[32];
        vf_store(x, vf_load_bf16(hi));
        vf_store(x + 16, vf_load_bf16(hi + 16));
        struct amx_q8_scales s[AMX_Q8_ALONE];
        vf first[AMX_Q8_ALONE], second[AMX_Q8_ALONE];
        UNROLL for (int p = 0; p < P; p++)
        {
            s[p] = amx_q8_scales(panels + p * apart, i);
            first[p] = second[p] = vf_zero();
        }
        size_t ask = (size_t)i * Q8_0_GROUP + j->prefetch;
        ask += ask < apart ? 0 : (P - 1) * apart;
        UNROLL for (int v = 0; v < 8; v++)
        {
            UNROLL for (int p = 0; p < P; p++)
            {
                __builtin_prefetch(panels + p * apart + ask + v * 64);
                const vi q = vb_load(weights_q8_0(panels + p * apart, i) + v * 64);
                const vf w[] = {amx_upper(amx_q8_times(vi_shift(q, 8), &s[p])),
                                amx_upper(amx_q8_times(q, &s[p])),
                                amx_upper(amx_q8_times(vi_shift(q, -8), &s[p])),
                                amx_upper(amx_q8_times(vi_shift(q, -16), &s[p]))};
                first[p] = vf_fma(w[0], vf_set1(x[v * 4]), first[p]);
                second[p] = vf_fma(w[1], vf_set1(x[v * 4 + 1]), second[p]);
                first[p] = vf_fma(w[2], vf_set1(x[v * 4 + 2]), first[p]);
                second[p] = vf_fma(w[3], vf_set1(x[v * 4 + 3]), second[p]);
            }
        }
        UNROLL for (int p = 0; p < P; p++) acc[p] = vf_add(acc[p], vf_add(first[p], second[p]));
    }
    UNROLL for (int p = 0; p < P; p++)
        linear_put(j, j->first_row, (p0 + (uint32_t)p) * PANEL_COLS, acc[p]);
}

static void amx_q8_alone_all(const struct linear_job *j)
{
    uint32_t p = 0;
    for (; p + AMX_Q8_ALONE <= j->n_panels; p += AMX_Q8_ALONE)
        amx_q8_alone(j, p, AMX_Q8_ALONE);
    for (; p < j->n_panels; p++)
        amx_q8_alone(j, p, 1);
}

/* --- more --------------------------------------------------------------------------------------
 */

/* P panels, some groups of them, and the rows that meet them. */
struct amx_q8 {
    const uint8_t *panels; /* the first; */
    size_t panel_bytes;    /* to the next */
    uint32_t first, n;     /* groups */
    uint8_t (*b)[AMX_TILE_BYTES];
    const uint16_t *a;           /* of the first row, at the first group */
    size_t a_stride;             /* values to the next one's */
    float *sums;                 /* of the first row and panel */
    bool begin;                  /* from 0 */
    const uint8_t *ask;          /* what a group asks for: of the first panel, */
    uint32_t ask_first, ask_end; /* lines of it, and of the others', */
    uint32_t turn;               /* up to this group; then of panels that follow */
};

/* Rows that are all there are; the first, whose groups are widened, and others. */
enum amx_q8_place { AMX_Q8_FEW, AMX_Q8_FIRST, AMX_Q8_LATER };

INLINE uint8_t *amx_q8_b(const struct amx_q8 *f, uint32_t p, uint32_t s, const int P)
{
    return f->b[s % (AMX_Q8_RING / (uint32_t)P) * (uint32_t)P + p];
}

#define AMX_Q8_C(r, p) (f->sums + (r)*AMX_ROWS * PANEL_COLS + (size_t)(p)*AMX_SUMS)
#define AMX_Q8_BEGIN(c, r, p)                                                                      \
    {                                                                                              \
        if (f->begin)                                                                              \
            _tile_zero(c);                                                                         \
        else                                                                                       \
            _tile_loadd(c, AMX_Q8_C(r, p), 64);                                                    \
    }

/* A panel's products of 32 of K, and what else there is to do meanwhile. */
#define AMX_Q8_PANEL(p, b, c, d)                                                                   \
    {                                                                                              \
        _tile_loadd(b, amx_q8_b(f, (p), s, P), 64);                                                \
        _tile_dpbf16ps(c, 4, b);                                                                   \
        if (R == 2)                                                                                \
            _tile_dpbf16ps(d, 5, b);                                                               \
        AMX_STAY;                                                                                  \
        if (at != AMX_Q8_LATER && s + 1 < f->n)                                                    \
            amx_q8_widen(                                                                          \
                f->panels + (p)*f->panel_bytes, f->first + s + 1, amx_q8_b(f, (p), s + 1, P));     \
        if (at == AMX_Q8_FEW) {                                                                    \
            UNROLL for (int l = 0; l < AMX_Q8_LINES; l++)                                          \
                __builtin_prefetch(ask + (p)*f->panel_bytes + (size_t)l * 64);                     \
        } else {                                                                                   \
            for (uint32_t l = f->ask_first; l < f->ask_end; l++)                                   \
                __builtin_prefetch(ask + (p)*f->panel_bytes + (size_t)l * 64);                     \
        }                                                                                          \
        AMX_STAY;                                                                                  \
    }

/* R times 16 rows, P panels: R P is at most 4. 0..3: C; 4, 5: A; 6, 7: B. */
AMX_FLOAT_INLINE void amx_q8_block(const struct amx_q8 *f,
                                   const enum amx_q8_place at,
                                   const int R,
                                   const int P)
{
    const uint16_t *a = f->a;
    const int stride = (int)(f->a_stride * sizeof *a);
    AMX_STAY; /* compilers do not see what tiles are loaded from */
    for (uint32_t p = 0; at != AMX_Q8_LATER && p < (uint32_t)P; p++)
        amx_q8_widen(f->panels + p * f->panel_bytes, f->first, amx_q8_b(f, p, 0, P));
    AMX_STAY;
    AMX_Q8_BEGIN(0, 0, 0)
    if (P > 1)
        AMX_Q8_BEGIN(1, 0, 1)
    if (P > 2) {
        AMX_Q8_BEGIN(2, 0, 2)
        AMX_Q8_BEGIN(3, 0, 3)
    }
    if (R == 2) {
        AMX_Q8_BEGIN(2, 1, 0)
        if (P > 1)
            AMX_Q8_BEGIN(3, 1, 1)
    }
    for (uint32_t s = 0; s < f->n; s++, a += 32) {
        const uint8_t *ask =
            f->ask + (size_t)s * Q8_0_GROUP + (s < f->turn ? 0 : (P - 1) * f->panel_bytes);
        _tile_loadd(4, a, stride);
        if (R == 2)
            _tile_loadd(5, a + AMX_ROWS * f->a_stride, stride);
        AMX_Q8_PANEL(0, 6, 0, 2)
        if (P > 1)
            AMX_Q8_PANEL(1, 7, 1, 3)
        if (P > 2) {
            AMX_Q8_PANEL(2, 6, 2, 2)
            AMX_Q8_PANEL(3, 7, 3, 3)
        }
    }
    _tile_stored(0, AMX_Q8_C(0, 0), 64);
    if (P > 1)
        _tile_stored(1, AMX_Q8_C(0, 1), 64);
    if (P > 2) {
        _tile_stored(2, AMX_Q8_C(0, 2), 64);
        _tile_stored(3, AMX_Q8_C(0, 3), 64);
    }
    if (R == 2) {
        _tile_stored(2, AMX_Q8_C(1, 0), 64);
        if (P > 1)
            _tile_stored(3, AMX_Q8_C(1, 1), 64);
    }
    AMX_STAY; /* nor what they are stored to */
}

#undef AMX_Q8_PANEL
#undef AMX_Q8_BEGIN
#undef AMX_Q8_C

#define DEFINE_AMX_Q8_BLOCK(rows, n_panels)                                                        \
    AMX_FLOAT static void amx_q8_block_##rows##_##n_panels(const struct amx_q8 *f,                 \
                                                           enum amx_q8_place at)                   \
    {                                                                                              \
        if (at == AMX_Q8_FEW)                                                                      \
            amx_q8_block(f, AMX_Q8_FEW, rows, n_panels);                                           \
        else if (at == AMX_Q8_FIRST)                                                               \
            amx_q8_block(f, AMX_Q8_FIRST, rows, n_panels);                                         \
        else                                                                                       \
            amx_q8_block(f, AMX_Q8_LATER, rows, n_panels);                                         \
    }
DEFINE_AMX_Q8_BLOCK(1, 1)
DEFINE_AMX_Q8_BLOCK(1, 2)
DEFINE_AMX_Q8_BLOCK(1, 4)
DEFINE_AMX_Q8_BLOCK(2, 1)
DEFINE_AMX_Q8_BLOCK(2, 2)

/* All rows meet groups first .. first + n - 1 of n_panels panels from p on, 1, 2 or 4; sums: of the
 * first of them; next: what comes from memory after that. */
AMX_FLOAT static void amx_q8_rows(const struct linear_job *j,
                                  uint32_t p,
                                  uint32_t n_panels,
                                  uint32_t first,
                                  uint32_t n,
                                  float (*sums)[PANEL_COLS],
                                  const uint8_t *next)
{
    static void (*const meet[2][5])(const struct amx_q8 *f, enum amx_q8_place at) = {
        {[1] = amx_q8_block_1_1, [2] = amx_q8_block_1_2, [4] = amx_q8_block_1_4},
        {[1] = amx_q8_block_2_1, [2] = amx_q8_block_2_2}};
    struct amx_q8_part *part = (struct amx_q8_part *)j->scratch;
    const uint32_t at_once = j->n_rows > AMX_ROWS ? 2 * AMX_ROWS : AMX_ROWS;
    const uint32_t blocks = (j->n_rows + at_once - 1) / at_once, all = j->act->k / 32;
    struct amx_q8 f = {.panels = j->panels + p * j->panel_bytes,
                       .panel_bytes = j->panel_bytes,
                       .first = first,
                       .n = n,
                       .b = part->b,
                       .a_stride = act_high_stride(j->act->k),
                       .sums = sums[0],
                       .begin = first == 0,
                       .ask = next,
                       .turn = n};
    if (blocks == 1) { /* else rows have the time to wait for what comes later */
        f.ask = f.panels + AMX_Q8_SOON;
        f.turn = all > AMX_Q8_SOON / Q8_0_GROUP ? all - AMX_Q8_SOON / Q8_0_GROUP : 0;
    }
    f.a = j->act->hi + j->first_row * f.a_stride + (size_t)first * 32;
    for (uint32_t i = 0; i < blocks; i++) {
        const uint32_t left = j->n_rows - i * at_once, n_rows = left < at_once ? left : at_once;
        f.ask_first = AMX_Q8_LINES * i / blocks;
        f.ask_end = AMX_Q8_LINES * (i + 1) / blocks;
        meet[n_rows > AMX_ROWS][n_panels](&f,
                                          blocks == 1 ? AMX_Q8_FEW
                                          : i == 0    ? AMX_Q8_FIRST
                                                      : AMX_Q8_LATER);
        for (uint32_t r = 0; first + n == all && r < n_rows; r++) {
            for (uint32_t q = 0; q < n_panels; q++)
                linear_put(j,
                           j->first_row + i * at_once + r,
                           (p + q) * PANEL_COLS,
                           vf_load(f.sums + r * PANEL_COLS + (size_t)q * AMX_SUMS));
        }
        f.a += at_once * f.a_stride;
        f.sums += at_once * PANEL_COLS;
    }
}

__attribute__((noinline)) AMX_FLOAT static void amx_q8_all(const struct linear_job *j)
{
    struct amx_q8_part *to = (struct amx_q8_part *)j->scratch;
    const uint32_t all = j->act->k / 32, at_once = j->n_rows <= AMX_ROWS ? 4 : 2;
    const bool few = j->n_rows <= 2 * AMX_ROWS;
    const uint32_t group = few ? at_once : LINEAR_MAX_SUMS, part = few ? all : AMX_Q8_STEPS;
    struct amx_config config = amx_config_64;
    for (int i = 0; i < 6; i++) /* up to 8 rows the unit takes half of the time */
        config.rows[i] = (uint8_t)(j->n_rows < AMX_ROWS ? j->n_rows : AMX_ROWS);
    AMX_STAY;
    _tile_loadconfig(&config);
    for (uint32_t first = 0; first < j->n_panels; first += group) {
        const uint32_t end = j->n_panels - first < group ? j->n_panels : first + group;
        for (uint32_t g = 0; g < all; g += part) {
            const uint32_t n_groups = all - g < part ? all - g : part;
            for (uint32_t p = first, n; p < end; p += n) {
                n = end - p >= at_once ? at_once : end - p > 1 ? 2 : 1;
                const bool last = p + n == end, over = last && g + part >= all;
                const uint32_t next_g = over ? 0 : last ? g + part : g;
                const uint32_t next_p = over ? end : last ? first : p + n;
                const uint8_t *next =
                    j->panels + next_p * j->panel_bytes + (size_t)next_g * Q8_0_GROUP;
                amx_q8_rows(j, p, n, g, n_groups, to->sums[p - first], next);
            }
        }
    }
    _tile_release();
}

/* Vectors flush what is too small, as the unit does. */
static void amx_q8_0(const struct linear_job *j)
{
    if (j->n_rows == 1)
        amx_flushing(j, amx_q8_alone_all);
    else
        amx_q8_all(j);
}
