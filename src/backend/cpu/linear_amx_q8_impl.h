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
 *     up to 32 rows                       more, of each eight panels (up to 64 rows: two)
 *     for each P panels                   for each 256 of K
 *         for each 32 of K                    for each 2 panels
 *             P or 2 P products                   for each 32 rows, C from and to memory
 *             the next 32 become B                    for each 32 of K: 4 products, and where
 *                                                     no rows before did, the next B
 *
 * P is 4 for up to 16 rows, else 2. Widening a B takes 11 operations for 64 weights, 60 cycles in
 * all, and more beside products; memory takes longer where a core reads less than 20 GB/s, and is
 * what few rows wait for: so they ask for a line at a time, between all else, and for none of what
 * the last 32 of K would ask for, which was no faster. Many are bound by the turns of C: 4 from and
 * to memory cost as much as 16 products, and longer parts of K would push B out of the nearest
 * cache, which costs more. */
enum {
    AMX_Q8_RING = 2 * AMX_FLOAT_K / 32, /* B: of many rows all that a part of K of two panels has */
    AMX_Q8_SOON = 3072,                 /* bytes ahead in a panel */
    AMX_Q8_LINES = 9,                   /* that a group lies in, with its scales */
    AMX_Q8_ALONE = 4,                   /* panels that meet a row alone */
    AMX_Q8_SUMS = 8,                    /* panels of a group: 16 and 32 were no faster */
};

/* In a job's scratch. */
struct amx_q8_part {
    uint8_t b[AMX_Q8_RING][AMX_TILE_BYTES];
    float sums[AMX_Q8_SUMS][LINEAR_MAX_ROWS][PANEL_COLS];
};
_Static_assert(sizeof(struct amx_q8_part) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* Rounded to nearest; one beyond the bf16 becomes the largest, what is infinite stays so. */
AMX static void pack_high(const float *x, uint32_t first, uint32_t end, uint16_t *to)
{
    enum { INFINITE = 0x18 };
    const vf most = vf_set1(0x1.fep127f), least = vf_set1(-0x1.fep127f);
    for (uint32_t i = first; i < end; i += 16) {
        const vf a = vf_load(x + i);
        /* a bound comes first: what is no number stays none */
        const vf bounded = vf_max(least, vf_min(most, a));
        const vf kept = _mm512_mask_mov_ps(bounded, _mm512_fpclass_ps_mask(a, INFINITE), a);
        _mm256_storeu_si256((__m256i *)(to + i), (__m256i)_mm512_cvtneps_pbh(kept));
    }
}

/* d of a group's columns, larger by what cutting takes off a product on average: a third of the
 * last of 8 bits, 2^-7 / 3 of 1. Of 15 bits, so that offset, -(2^15 + 128) d, is one float. */
struct amx_q8_scales {
    vf d, offset;
};

INLINE struct amx_q8_scales amx_q8_scales(const uint8_t *panel, uint32_t i)
{
    const vf d = vf_mul(scales_q8_0(NO_HEAD, panel, i, 0).w, vf_set1(1.0f + 1.0f / 384));
    const vf cut = _mm512_castsi512_ps(vi_mask(_mm512_castps_si512(d), ~0x1ff));
    return (struct amx_q8_scales){cut, vf_mul(cut, vf_set1(-32896.0f))};
}

/* d q, not cut. at: the float 2^15 + q + 128. */
INLINE vf amx_q8_times(vi at, const struct amx_q8_scales *s)
{
    return vf_fma(_mm512_castsi512_ps(at), s->d, s->offset);
}

/* Byte i of each lane of q as amx_q8_times takes it. Shuffles have a port that neither shifts nor,
 * beside the unit's instructions, multiply-adds can use. */
INLINE vi amx_q8_at(vb q, const int i)
{
    const vi magic = vi_set1(0x47000000);
    const vb plus_128 = _mm512_xor_si512(q, _mm512_set1_epi8((char)0x80));
    if (i == 1)
        return _mm512_ternarylogic_epi32(plus_128, vi_set1(0xff00), magic, 0xea);
    const vb from = _mm512_set4_epi32((12 + i) << 8, (8 + i) << 8, (4 + i) << 8, i << 8);
    return _mm512_mask_shuffle_epi8(magic, 0x2222222222222222, plus_128, from);
}

/* Fours v to end - 1 of group i of a panel become those of a B; with each a line of `ask`, if any,
 * is asked for, and with the last what is left. All at once would fill the buffers that loads need,
 * and memory takes longer than 32 of K do. */
INLINE void amx_q8_widen(
    const uint8_t *panel, uint32_t i, int v, const int end, const uint8_t *ask, uint8_t *to)
{
    const uint8_t *w = weights_q8_0(panel, i);
    const struct amx_q8_scales s = amx_q8_scales(panel, i);
    UNROLL for (; v < end; v++)
    {
        if (ask)
            __builtin_prefetch(ask + v * 64);
        if (ask && v == 7)
            __builtin_prefetch(ask + (size_t)(AMX_Q8_LINES - 1) * 64);
        const vi q = vb_load(w + v * 64);
        vf x[4];
        UNROLL for (int b = 0; b < 4; b++) x[b] = amx_q8_times(amx_q8_at(q, b), &s);
        vb_store(to + v * 128, amx_pairs(x[0], x[1]));
        vb_store(to + v * 128 + 64, amx_pairs(x[2], x[3]));
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
                vf w[4];
                UNROLL for (int b = 0; b < 4; b++) w[b] =
                    amx_upper(amx_q8_times(amx_q8_at(q, b), &s[p]));
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

__attribute__((noinline)) static void amx_q8_alone_all(const struct linear_job *j)
{
    uint32_t p = 0;
    for (; p + AMX_Q8_ALONE <= j->n_panels; p += AMX_Q8_ALONE)
        amx_q8_alone(j, p, AMX_Q8_ALONE);
    for (; p < j->n_panels; p++)
        amx_q8_alone(j, p, 1);
}

/* --- more --------------------------------------------------------------------------------------
 */

/* Rows that meet panels: all there are, the first ones, or later ones. */
enum amx_q8_rows { AMX_Q8_ONLY, AMX_Q8_FIRST, AMX_Q8_LATER };

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

INLINE uint8_t *amx_q8_b(const struct amx_q8 *f, uint32_t p, uint32_t s, const int P)
{
    return f->b[s % (AMX_Q8_RING / (uint32_t)P) * (uint32_t)P + p];
}

/* A part of the next B of panel p. */
#define AMX_Q8_WIDEN(p, from, end)                                                                 \
    AMX_STAY;                                                                                      \
    if (widen && s + 1 < f->n)                                                                     \
        amx_q8_widen(f->panels + (p)*f->panel_bytes,                                               \
                     f->first + s + 1,                                                             \
                     from,                                                                         \
                     end,                                                                          \
                     how == AMX_Q8_ONLY ? ask + (p)*f->panel_bytes : NULL,                         \
                     amx_q8_b(f, (p), s + 1, P));                                                  \
    AMX_STAY;

/* A panel's products of 32 of K, and what else there is to do: between them, so that what a core
 * looks ahead at is of both. */
#define AMX_Q8_PANEL(p, b, c, d)                                                                   \
    {                                                                                              \
        _tile_loadd(b, amx_q8_b(f, (p), s, P), 64);                                                \
        AMX_Q8_WIDEN(p, 0, 2)                                                                      \
        _tile_dpbf16ps(c, 4, b);                                                                   \
        AMX_Q8_WIDEN(p, 2, 5)                                                                      \
        if (R == 2)                                                                                \
            _tile_dpbf16ps(d, 5, b);                                                               \
        AMX_Q8_WIDEN(p, 5, 8)                                                                      \
        if (how != AMX_Q8_ONLY)                                                                    \
            for (uint32_t l = f->ask_first; l < f->ask_end; l++)                                   \
                __builtin_prefetch(ask + (p)*f->panel_bytes + (size_t)l * 64);                     \
        AMX_STAY;                                                                                  \
    }

/* R times 16 rows, P panels: R P is at most 4. 0..3: C; 4, 5: A; 6, 7: B. */
AMX_INLINE void amx_q8_block(const struct amx_q8 *f,
                             const enum amx_q8_rows how,
                             const int R,
                             const int P)
{
    const bool widen = how != AMX_Q8_LATER;
    const uint16_t *a = f->a;
    const int stride = (int)(f->a_stride * sizeof *a);
    AMX_STAY; /* compilers do not see what tiles are loaded from */
    for (uint32_t p = 0; widen && p < (uint32_t)P; p++)
        amx_q8_widen(f->panels + p * f->panel_bytes, f->first, 0, 8, NULL, amx_q8_b(f, p, 0, P));
    AMX_STAY;
    AMX_BEGIN(0, 0, 0)
    if (P > 1)
        AMX_BEGIN(1, 0, 1)
    if (P > 2) {
        AMX_BEGIN(2, 0, 2)
        AMX_BEGIN(3, 0, 3)
    }
    if (R == 2) {
        AMX_BEGIN(2, 1, 0)
        if (P > 1)
            AMX_BEGIN(3, 1, 1)
    }
    for (uint32_t s = 0; s < f->n; s++, a += 32) {
        const uint8_t *ask =
            f->ask + (size_t)s * Q8_0_GROUP + (s < f->turn ? 0 : (P - 1) * f->panel_bytes);
        if (R == 2) { /* past B, which many rows would push out of the nearest cache */
            _tile_stream_loadd(4, a, stride);
            _tile_stream_loadd(5, a + AMX_ROWS * f->a_stride, stride);
        } else {
            _tile_loadd(4, a, stride);
        }
        AMX_Q8_PANEL(0, 6, 0, 2)
        if (P > 1)
            AMX_Q8_PANEL(1, 7, 1, 3)
        if (P > 2) {
            AMX_Q8_PANEL(2, 6, 2, 2)
            AMX_Q8_PANEL(3, 7, 3, 3)
        }
    }
    _tile_stored(0, AMX_C_AT(0, 0), 64);
    if (P > 1)
        _tile_stored(1, AMX_C_AT(0, 1), 64);
    if (P > 2) {
        _tile_stored(2, AMX_C_AT(0, 2), 64);
        _tile_stored(3, AMX_C_AT(0, 3), 64);
    }
    if (R == 2) {
        _tile_stored(2, AMX_C_AT(1, 0), 64);
        if (P > 1)
            _tile_stored(3, AMX_C_AT(1, 1), 64);
    }
    AMX_STAY; /* nor what they are stored to */
}

#undef AMX_Q8_PANEL
#undef AMX_Q8_WIDEN
#undef AMX_BEGIN
#undef AMX_C_AT

/* A part of K of P panels meets all rows. */
AMX_INLINE void amx_q8_meet(const struct amx_float_walk *at, const int P)
{
    const struct linear_job *j = at->j;
    struct amx_q8_part *part = (struct amx_q8_part *)j->scratch;
    const uint32_t at_once = j->n_rows > AMX_ROWS ? 2 * AMX_ROWS : AMX_ROWS;
    const uint32_t n = (j->n_rows + at_once - 1) / at_once, all = j->act->k / 32;
    struct amx_q8 f = {.panels = j->panels + at->panel * j->panel_bytes,
                       .panel_bytes = j->panel_bytes,
                       .first = at->k / 32,
                       .n = at->n_k / 32,
                       .b = part->b,
                       .a_stride = act_high_stride(j->act->k),
                       .sums = part->sums[at->panel - at->first_panel][0],
                       .begin = at->k == 0,
                       .turn = all};
    if (n == 1) { /* else rows have the time to wait for what comes later */
        f.ask = f.panels + AMX_Q8_SOON;
        f.turn -= all > AMX_Q8_SOON / Q8_0_GROUP ? AMX_Q8_SOON / Q8_0_GROUP : all;
    } else {
        f.ask = j->panels + at->next_panel * j->panel_bytes + at->next_k / 32 * Q8_0_GROUP;
    }
    f.a = j->act->hi + j->first_row * f.a_stride + at->k;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t left = j->n_rows - i * at_once, n_rows = left < at_once ? left : at_once;
        f.ask_first = AMX_Q8_LINES * i / n;
        f.ask_end = AMX_Q8_LINES * (i + 1) / n;
        if (P == 4 || j->n_rows <= AMX_ROWS)
            amx_q8_block(&f, AMX_Q8_ONLY, 1, P);
        else if (n_rows <= AMX_ROWS)
            amx_q8_block(&f, AMX_Q8_LATER, 1, P);
        else if (n == 1)
            amx_q8_block(&f, AMX_Q8_ONLY, 2, P);
        else if (i == 0)
            amx_q8_block(&f, AMX_Q8_FIRST, 2, P);
        else
            amx_q8_block(&f, AMX_Q8_LATER, 2, P);
        amx_float_put(at, i * at_once, n_rows, f.sums, P);
        f.a += at_once * f.a_stride;
        f.sums += at_once * PANEL_COLS;
    }
}

AMX static void amx_q8_1(const struct amx_float_walk *at)
{
    amx_q8_meet(at, 1);
}

AMX static void amx_q8_2(const struct amx_float_walk *at)
{
    amx_q8_meet(at, 2);
}

AMX static void amx_q8_4(const struct amx_float_walk *at)
{
    amx_q8_meet(at, 4);
}

__attribute__((noinline)) static void amx_q8_all(const struct linear_job *j)
{
    static void (*const meet[])(const struct amx_float_walk *at) = {
        [1] = amx_q8_1, [2] = amx_q8_2, [4] = amx_q8_4};
    amx_float_run(j, meet, AMX_Q8_SUMS);
}

static void amx_q8_0(const struct linear_job *j)
{
    amx_flushing(j, j->n_rows == 1 ? amx_q8_alone_all : amx_q8_all);
}
