/* Many rows: the weights of a few panels and a part of K are widened once, to what the multiplying
 * instructions take, and then meet all rows of the job while they lie in the nearest cache.
 *
 *     for each TILE_PANELS panels
 *         for each part of K (TILE_K, TILE_FLOAT_K)
 *             widen: panel -> [panel][group] { f32 scale[16], second[16], u8 q[8][16][4],
 *                                                      f32 third[16] }
 *                    or, for float weights,    [panel][k] f32[16]
 *             for each M rows
 *                 M x TILE_VECS sums, from and to memory: [row][vector]
 *         put the sums of all rows
 *
 * A weight's vector is loaded once for M rows and an activation's word once for TILE_VECS vectors:
 * with one vector, two loads a multiplication would keep the multipliers waiting. What is widened
 * costs a pass over the weights a job instead of one a tile. The operations on one sum, and their
 * order, are those of the kernels for few rows. */
#if VL == 16
enum { TILE_PANELS = 2, TILE_INT_M = 8, TILE_FLOAT_M = 12 };
#else
enum { TILE_PANELS = 1, TILE_INT_M = 4, TILE_FLOAT_M = 4 };
#endif
enum { TILE_VECS = TILE_PANELS * PARTS, TILE_GROUPS = TILE_K / 32 };

struct tile {
    const struct linear_job *j;
    const uint8_t *panels; /* the first one's beginning */
    uint32_t n_panels;     /* 1..TILE_PANELS */
    uint32_t first_k, n_k; /* the part of K at hand */
    uint8_t *wide;         /* [TILE_PANELS][TILE_GROUPS][WIDE_BYTES] */
    float *sums;           /* [row of the job][TILE_VECS][VL] */
    const uint8_t *next;   /* the weights needed next, of the first panel, and */
    uint32_t ask;          /* how many bytes of them each 32 of K of each tile asks for */
};

/* Where vector v of a group is, from the first one. */
#define WIDE_AT(v) ((v) / PARTS * TILE_GROUPS * WIDE_BYTES + (v) % PARTS * VL * 4)

/* Weights of the next part are on their way while this one is multiplied, evenly: a burst of
 * prefetches would fill the buffers that every load needs. `n` counts the calls of a part, from 0.
 * Past the last panel a prefetch does no harm. */
INLINE void tile_ask(const struct tile *t, size_t n)
{
    const uint8_t *at = t->next + n * t->ask;
    for (uint32_t i = 0; i < t->ask; i += 64) {
        UNROLL for (uint32_t p = 0; p < TILE_PANELS; p++)
            __builtin_prefetch(at + p * t->j->panel_bytes + i, 0, 2);
    }
}

/* Calls of tile_ask for a tile before the one at `row`. */
INLINE size_t tile_asked(const struct tile *t, uint32_t row, uint32_t max_rows)
{
    return (size_t)((row - t->j->first_row) / max_rows) * (t->n_k / 32);
}

INLINE float *tile_sums(const struct tile *t, uint32_t row)
{
    return t->sums + (size_t)(row - t->j->first_row) * TILE_VECS * VL;
}

/* A group of 32 of K meets M rows. q: the first row's activations of that group; b[i]: the i-th
 * four rows'; wide: the first panel's group; sums, t: of the first row. */
INLINE void tile_group(const int8_t *q,
                       const size_t q_stride,
                       const struct act_block *const *b,
                       const uint8_t *wide,
                       float *sums,
                       int32_t *t,
                       const int M,
                       const enum wide_kind kind)
{
    __asm__("" : "+r"(sums)); /* or the compiler keeps sixteen addresses instead of one */
    vf ws[TILE_VECS], second[TILE_VECS];
    UNROLL for (int v = 0; v < TILE_VECS; v++)
    {
        ws[v] = vf_load((const float *)(wide + WIDE_AT(v)));
        second[v] = vf_load((const float *)(wide + WIDE_AT(v) + WIDE_SECOND));
    }
#define EACH_SUM EACH_ROW UNROLL for (int v = 0; v < TILE_VECS; v++)
#define DOTS(begin, end, dot, s)                                                                   \
    UNROLL for (int g = begin; g < end; g++)                                                       \
    {                                                                                              \
        vb wv[TILE_VECS];                                                                          \
        UNROLL for (int v = 0; v < TILE_VECS; v++) wv[v] =                                         \
            vb_load(wide + WIDE_AT(v) + WIDE_Q + g * 64);                                          \
        EACH_ROW                                                                                   \
        {                                                                                          \
            const int32_t a = load_i32(q + (size_t)m * q_stride + g * 4);                          \
            UNROLL for (int v = 0; v < TILE_VECS; v++) s[m][v] = dot(s[m][v], wv[v], a);           \
        }                                                                                          \
    }
#define BLOCK(m) (&b[(m) / ACT_TILE][(m) % ACT_TILE])
#define SUM_AT(m, v) (sums + ((m)*TILE_VECS + (v)) * VL)
#define T_AT(m, v) (t + ((m)*TILE_VECS + (v)) * VL)
#define SCALE_AT(v, at) vi_load((const int32_t *)(wide + WIDE_AT(v) + (at)))
    if (kind == WIDE_PLUS_128) {
        vi s[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vi_begin128(BLOCK(m)->n128);
        DOTS(0, 8, vi_dot128, s)
        EACH_SUM vf_store(SUM_AT(m, v), add_group(vf_load(SUM_AT(m, v)), s[m][v], ws[v], BLOCK(m)));
    } else if (kind == WIDE_HALVES) {
        vi s[TILE_INT_M][TILE_VECS];
        vf first[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vi_set1(BLOCK(m)->n32[0]);
        DOTS(0, 4, vi_dot, s)
        EACH_SUM first[m][v] = vf_mul(vf_from_i(s[m][v]), ws[v]);
        EACH_SUM s[m][v] = vi_set1(BLOCK(m)->n32[1]);
        DOTS(4, 8, vi_dot, s)
        EACH_SUM vf_store(
            SUM_AT(m, v),
            add_halves(vf_load(SUM_AT(m, v)), first[m][v], s[m][v], second[v], BLOCK(m)));
    } else if (kind == WIDE_HALVES_128) {
        vi s[TILE_INT_M][TILE_VECS];
        vf first[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vi_begin128_half(BLOCK(m), 0);
        DOTS(0, 4, vi_dot128, s)
        EACH_SUM first[m][v] = vf_mul(vf_from_i(s[m][v]), ws[v]);
        EACH_SUM s[m][v] = vi_begin128_half(BLOCK(m), 1);
        DOTS(4, 8, vi_dot128, s)
        EACH_SUM vf_store(
            SUM_AT(m, v),
            add_halves(vf_load(SUM_AT(m, v)), first[m][v], s[m][v], second[v], BLOCK(m)));
    } else if (kind == WIDE_PLUS_16) {
        vi s[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vi_begin16(BLOCK(m));
        DOTS(0, 8, vi_dot, s)
        EACH_SUM vf_store(SUM_AT(m, v), add_group(vf_load(SUM_AT(m, v)), s[m][v], ws[v], BLOCK(m)));
    } else if (kind == WIDE_MIN_31) {
        vi s[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vi_set1(0);
        DOTS(0, 8, vi_dot, s)
        EACH_SUM vf_store(
            SUM_AT(m, v),
            add_group_min(vf_load(SUM_AT(m, v)), s[m][v], ws[v], second[v], BLOCK(m)));
    } else if (kind == SUPER_PLUS_128 || kind == SUPER_MIN_31) {
        vi s[TILE_INT_M][TILE_VECS];
        if (kind == SUPER_PLUS_128) {
            EACH_SUM s[m][v] = vi_begin128(BLOCK(m)->n128);
            DOTS(0, 8, vi_dot128, s)
        } else {
            EACH_SUM s[m][v] = vi_set1(0);
            DOTS(0, 8, vi_dot, s)
        }
        EACH_SUM vi_store(T_AT(m, v),
                          vi_plus(vi_load(T_AT(m, v)), vi_times(s[m][v], SCALE_AT(v, 0))));
    } else if (kind == SUPER_HALVES) {
        vi s[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vi_set1(BLOCK(m)->n32[0]);
        DOTS(0, 4, vi_dot, s)
        EACH_SUM vi_store(T_AT(m, v),
                          vi_plus(vi_load(T_AT(m, v)), vi_times(s[m][v], SCALE_AT(v, 0))));
        EACH_SUM s[m][v] = vi_set1(BLOCK(m)->n32[1]);
        DOTS(4, 8, vi_dot, s)
        EACH_SUM vi_store(
            T_AT(m, v), vi_plus(vi_load(T_AT(m, v)), vi_times(s[m][v], SCALE_AT(v, WIDE_SECOND))));
    } else if (kind == SUPER_MIN_HALVES) {
        vi s[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vi_load(T_AT(m, v));
        DOTS(0, 8, vi_dot, s)
        EACH_SUM vi_store(T_AT(m, v), s[m][v]);
    } else if (kind == SUPER_MIN) {
        vn s[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vn_begin(0);
        DOTS(0, 8, vn_dot, s)
        EACH_SUM vi_store(T_AT(m, v),
                          vi_plus(vi_load(T_AT(m, v)), vn_times(s[m][v], SCALE_AT(v, 0))));
    } else {
        vn s[TILE_INT_M][TILE_VECS];
        EACH_SUM s[m][v] = vn_begin(kind == WIDE_MIN ? 0 : BLOCK(m)->n8);
        DOTS(0, 8, vn_dot, s)
        if (kind == WIDE_MIN)
            EACH_SUM vf_store(
                SUM_AT(m, v),
                add_group_min(
                    vf_load(SUM_AT(m, v)), vn_end(s[m][v], 0), ws[v], second[v], BLOCK(m)));
        else
            EACH_SUM vf_store(
                SUM_AT(m, v),
                add_group(vf_load(SUM_AT(m, v)), vn_end(s[m][v], BLOCK(m)->n8), ws[v], BLOCK(m)));
    }
}

/* What SUPER_K came to meets the sums; b, wide: its first group. */
INLINE void tile_super(const struct act_block *const *b,
                       const uint8_t *wide,
                       float *sums,
                       int32_t *t,
                       const int M,
                       const enum wide_kind kind)
{
    vf d[TILE_VECS], min[4][TILE_VECS], other[4][TILE_VECS];
    UNROLL for (int v = 0; v < TILE_VECS; v++)
    {
        d[v] = vf_load((const float *)(wide + WIDE_AT(v) + WIDE_THIRD));
        UNROLL for (int g = 0; g < SUPER_K / 32; g++)
        {
            const uint8_t *at = wide + g * WIDE_BYTES + WIDE_AT(v);
            other[g][v] = vf_load((const float *)at);
            min[g][v] = vf_load((const float *)(at + WIDE_SECOND));
        }
    }
    EACH_SUM
    {
        vf sum = vf_load(SUM_AT(m, v));
        UNROLL for (int g = 0; g < SUPER_K / 32; g++)
        {
            const struct act_block *at = BLOCK(m) + g * ACT_TILE;
            if (kind == SUPER_MIN_HALVES) {
                sum = vf_fnma(other[g][v], vf_set1(at->dsum_half[0]), sum);
                sum = vf_fnma(min[g][v], vf_set1(at->dsum_half[1]), sum);
            } else if (kind == SUPER_MIN || kind == SUPER_MIN_31) {
                sum = vf_fnma(min[g][v], vf_set1(at->dsum), sum);
            }
        }
        vf_store(SUM_AT(m, v), add_super(sum, vi_load(T_AT(m, v)), d[v], BLOCK(m)));
        vi_store(T_AT(m, v), vi_set1(0));
    }
}

INLINE void tile_int(const struct tile *t, uint32_t row, const int M, const enum wide_kind kind)
{
    const bool super = kind >= SUPER_PLUS_128;
    const struct act_int8 *acts = super ? &t->j->act->by128 : &t->j->act->by32;
    const size_t k = t->j->act->k, four = row / ACT_TILE, q_stride = act_q_stride(t->j->act->k);
    const int8_t *q = acts->q + row * q_stride + t->first_k;
    const struct act_block *b[TILE_INT_M / ACT_TILE];
    for (int i = 0; i < M / ACT_TILE; i++)
        b[i] = acts->b + ((four + i) * k + t->first_k) / 32 * ACT_TILE;
    _Alignas(64) int32_t integers[TILE_INT_M * TILE_VECS * VL];
    memset(integers, 0, super ? sizeof integers : 0);
    const uint8_t *wide = t->wide, *end = wide + t->n_k / 32 * WIDE_BYTES;
    float *sums = tile_sums(t, row);
    size_t n = tile_asked(t, row, TILE_INT_M);
    for (; wide < end; wide += WIDE_BYTES) {
        tile_ask(t, n++);
        tile_group(q, q_stride, b, wide, sums, integers, M, kind);
        q += 32;
        for (int i = 0; i < M / ACT_TILE; i++)
            b[i] += ACT_TILE;
        if (super && n % (SUPER_K / 32) == 0) {
            const struct act_block *first[TILE_INT_M / ACT_TILE];
            for (int i = 0; i < M / ACT_TILE; i++)
                first[i] = b[i] - SUPER_K / 32 * ACT_TILE;
            tile_super(first, wide - (SUPER_K / 32 - 1) * WIDE_BYTES, sums, integers, M, kind);
        }
    }
}

INLINE void tile_float(const struct tile *t, uint32_t row, const int M)
{
    const size_t x_tile = (size_t)t->j->act->k * ACT_TILE;
    const float *x[TILE_FLOAT_M / ACT_TILE] = {NULL}, *w = (const float *)t->wide;
    for (int f = 0; f < M / ACT_TILE; f++)
        x[f] = t->j->act->x + (row / ACT_TILE + f) * x_tile + (size_t)t->first_k * ACT_TILE;
    float *sums = tile_sums(t, row);
    vf acc[TILE_FLOAT_M][TILE_VECS];
    EACH_SUM acc[m][v] = vf_load(SUM_AT(m, v));
    size_t n = tile_asked(t, row, TILE_FLOAT_M);
    for (uint32_t k = 0; k < t->n_k; k += 32) {
        const uint32_t end = t->n_k - k < 32 ? t->n_k : k + 32;
        tile_ask(t, n++);
        UNROLL_4 for (uint32_t i = k; i < end; i++)
        {
            vf wv[TILE_VECS];
            UNROLL for (int v = 0; v < TILE_VECS; v++) wv[v] =
                vf_load(w + v / PARTS * TILE_FLOAT_K * PANEL_COLS + v % PARTS * VL);
            EACH_ROW
            {
                vf a = vf_set1(x[m / ACT_TILE][m % ACT_TILE]);
                UNROLL for (int v = 0; v < TILE_VECS; v++) acc[m][v] = vf_fma(wv[v], a, acc[m][v]);
            }
            w += PANEL_COLS;
            UNROLL for (int f = 0; f < M / ACT_TILE; f++) x[f] += ACT_TILE;
        }
    }
    EACH_SUM vf_store(SUM_AT(m, v), acc[m][v]);
}

#undef EACH_SUM
#undef DOTS
#undef SUM_AT
#undef T_AT
#undef SCALE_AT
#undef BLOCK

INLINE void tile_put(const struct tile *t, uint32_t panel)
{
    const struct linear_job *j = t->j;
    for (uint32_t r = j->first_row; r < j->first_row + j->n_rows; r++) {
        for (int v = 0; v < TILE_VECS; v++)
            linear_put(
                j, r, panel * PANEL_COLS + (uint32_t)v * VL, vf_load(tile_sums(t, r) + v * VL));
    }
}

/* What the walk below needs to know of a format. */
struct tile_format {
    uint32_t part_k, part_bytes; /* K that is widened at a time, and what it takes in a panel */
    uint32_t max_rows;           /* 4, 8 or 12 */
    void (*widen)(const struct tile *t, uint32_t panel);     /* NULL: multiply reads the panels */
    void (*multiply[3])(const struct tile *t, uint32_t row); /* 4, 8, 12 rows from `row` on */
};

/* One part of K of some panels meets all rows. */
static void tile_rows(struct tile *t, const struct tile_format *f)
{
    const struct linear_job *j = t->j;
    const uint32_t n_asks = (j->n_rows + f->max_rows - 1) / f->max_rows * (t->n_k / 32);
    t->ask = n_asks ? f->part_bytes / n_asks + 1 : 0;
    for (uint32_t done = 0; done < j->n_rows; done += f->max_rows) {
        const uint32_t left = j->n_rows - done, m = left < f->max_rows ? left : f->max_rows;
        f->multiply[(m - 1) / 4](t, j->first_row + done);
    }
}

/* The last panel may be without its neighbour; then what is in the neighbour's place is multiplied
 * in vain. */
static void run_tiled(const struct linear_job *j, const struct tile_format *f)
{
    struct tile t = {.j = j, .wide = j->scratch, .sums = (float *)(j->scratch + WIDE_PART_BYTES)};
    const size_t n_sums = (size_t)(j->n_rows + 3) / 4 * 4 * TILE_VECS * VL;
    const uint32_t n_k = j->act->k;
    for (uint32_t p = 0; p < j->n_panels; p += TILE_PANELS) {
        t.panels = j->panels + p * j->panel_bytes;
        t.n_panels = j->n_panels - p < TILE_PANELS ? j->n_panels - p : TILE_PANELS;
        memset(t.sums, 0, n_sums * sizeof *t.sums);
        for (uint32_t part = 0; part * f->part_k < n_k; part++) {
            t.first_k = part * f->part_k;
            t.n_k = n_k - t.first_k < f->part_k ? n_k - t.first_k : f->part_k;
            for (uint32_t i = 0; f->widen && i < t.n_panels; i++)
                f->widen(&t, i);
            const bool last = t.first_k + t.n_k == n_k;
            t.next = last ? t.panels + TILE_PANELS * j->panel_bytes
                          : t.panels + (size_t)(part + 1) * f->part_bytes;
            tile_rows(&t, f);
        }
        tile_put(&t, p);
    }
}

#define DEFINE_MULTIPLY(kind, rows)                                                                \
    static void multiply##rows##_##kind(const struct tile *t, uint32_t row)                        \
    {                                                                                              \
        tile_int(t, row, rows, kind);                                                              \
    }
#if VL == 16
#define DEFINE_MULTIPLY_INT(kind) DEFINE_MULTIPLY(kind, 4) DEFINE_MULTIPLY(kind, 8)
#define MULTIPLY_INT(kind) multiply4_##kind, multiply8_##kind
#else
#define DEFINE_MULTIPLY_INT(kind) DEFINE_MULTIPLY(kind, 4)
#define MULTIPLY_INT(kind) multiply4_##kind
#endif

DEFINE_MULTIPLY_INT(WIDE_PLUS_128)
DEFINE_MULTIPLY_INT(WIDE_PLUS_8)
DEFINE_MULTIPLY_INT(WIDE_PLUS_16)
DEFINE_MULTIPLY_INT(WIDE_MIN)
DEFINE_MULTIPLY_INT(WIDE_MIN_31)
DEFINE_MULTIPLY_INT(WIDE_HALVES)
DEFINE_MULTIPLY_INT(WIDE_HALVES_128)
DEFINE_MULTIPLY_INT(SUPER_PLUS_128)
DEFINE_MULTIPLY_INT(SUPER_MIN)
DEFINE_MULTIPLY_INT(SUPER_MIN_31)
DEFINE_MULTIPLY_INT(SUPER_HALVES)
DEFINE_MULTIPLY_INT(SUPER_MIN_HALVES)

/* Column c of a group in its wide form, as the file's block would be dequantised. */
static void wide_column(const uint8_t *wide, uint32_t c, const enum wide_kind kind, float *out)
{
    const float scale = ((const float *)wide)[c];
    const float second = ((const float *)(wide + WIDE_SECOND))[c];
    const float d = ((const float *)(wide + WIDE_THIRD))[c];
    const int32_t first_of = ((const int32_t *)wide)[c];
    const int32_t second_of = ((const int32_t *)(wide + WIDE_SECOND))[c];
    for (uint32_t i = 0; i < 32; i++) {
        const int q = wide[WIDE_Q + i / 4 * 64 + c * 4 + i % 4];
        switch (kind) {
        case WIDE_PLUS_128:
            out[i] = scale * (float)(q - 128);
            break;
        case WIDE_PLUS_8:
            out[i] = scale * (float)(q - 8);
            break;
        case WIDE_PLUS_16:
            out[i] = scale * (float)(q - 16);
            break;
        case WIDE_MIN:
        case WIDE_MIN_31:
            out[i] = scale * (float)q - second;
            break;
        case WIDE_HALVES:
            out[i] = (i < 16 ? scale : second) * (float)(q - 32);
            break;
        case WIDE_HALVES_128:
            out[i] = (i < 16 ? scale : second) * (float)(q - 128);
            break;
        case SUPER_PLUS_128:
            out[i] = d * (float)first_of * (float)(q - 128);
            break;
        case SUPER_MIN:
        case SUPER_MIN_31:
            out[i] = d * (float)(first_of & 0xff) * (float)q - second;
            break;
        case SUPER_HALVES:
            out[i] = d * (float)(i < 16 ? first_of : second_of) * (float)(q - 32);
            break;
        case SUPER_MIN_HALVES:
            out[i] = d * (float)q - (i < 16 ? scale : second);
            break;
        }
    }
}

#define DEFINE_TILE_INT(name, kind)                                                                \
    static void column_##name(const uint8_t *panel, uint32_t k, uint32_t c, float *out)            \
    {                                                                                              \
        _Alignas(64) uint8_t wide[WIDE_BYTES];                                                     \
        for (uint32_t i = 0; i < k / 32; i++) {                                                    \
            widen_##name(panel, i, wide);                                                          \
            wide_column(wide, c, kind, out + (size_t)i * 32);                                      \
        }                                                                                          \
    }                                                                                              \
    static void widen_part_##name(const struct tile *t, uint32_t panel)                            \
    {                                                                                              \
        uint8_t *to = t->wide + (size_t)panel * TILE_GROUPS * WIDE_BYTES;                          \
        for (uint32_t i = 0; i < t->n_k / 32; i++)                                                 \
            widen_##name(                                                                          \
                t->panels + panel * t->j->panel_bytes, t->first_k / 32 + i, to + i * WIDE_BYTES);  \
    }                                                                                              \
    static void tiled_##name(const struct linear_job *j)                                           \
    {                                                                                              \
        static const struct tile_format format = {.part_k = TILE_K,                                \
                                                  .part_bytes = PART_BYTES_##name,                 \
                                                  .max_rows = TILE_INT_M,                          \
                                                  .widen = widen_part_##name,                      \
                                                  .multiply = {MULTIPLY_INT(kind)}};               \
        run_tiled(j, &format);                                                                     \
    }

enum {
    PART_BYTES_q8_0 = TILE_K / 64 * (64 + 2 * 512),
    PART_BYTES_q4_0 = TILE_K / 64 * (64 + 2 * 256),
    PART_BYTES_q4_k = TILE_K / 256 * PANEL_Q4_K_BYTES,
    PART_BYTES_q6_k = TILE_K / 256 * PANEL_Q6_K_BYTES,
    PART_BYTES_q4_1 = TILE_K / 32 * Q4_1_GROUP,
    PART_BYTES_q5_0 = TILE_K / 64 * (64 + 2 * 320),
    PART_BYTES_q5_1 = TILE_K / 32 * Q5_1_GROUP,
    PART_BYTES_q5_k = TILE_K / 256 * PANEL_Q5_K_BYTES,
    PART_BYTES_iq4_nl = PART_BYTES_q4_0,
    PART_BYTES_iq4_xs = TILE_K / 512 * (64 + 2 * PANEL_IQ4_XS_BYTES),
    PART_BYTES_mxfp4 = TILE_K / 128 * (64 + 4 * 256),
    PART_BYTES_nvfp4 = TILE_K / 64 * (64 + 2 * 256),
    PART_BYTES_q2_k = TILE_K / 256 * PANEL_Q2_K_BYTES,
    PART_BYTES_q3_k = TILE_K / 512 * (64 + 2 * PANEL_Q3_K_BYTES),
    PART_BYTES_iq1_s = TILE_K / 512 * (64 + 2 * PANEL_IQ1_S_BYTES),
    PART_BYTES_iq1_m = TILE_K / 512 * (64 + 2 * PANEL_IQ1_M_BYTES),
    PART_BYTES_iq2_xxs = TILE_K / 512 * (64 + 2 * PANEL_IQ2_XXS_BYTES),
    PART_BYTES_iq2_xs = TILE_K / 512 * (64 + 2 * PANEL_IQ2_XS_BYTES),
    PART_BYTES_iq2_s = TILE_K / 512 * (64 + 2 * PANEL_IQ2_S_BYTES),
    PART_BYTES_iq3_xxs = TILE_K / 512 * (64 + 2 * PANEL_IQ3_XXS_BYTES),
    PART_BYTES_iq3_s = TILE_K / 512 * (64 + 2 * PANEL_IQ3_S_BYTES),
    PART_BYTES_tq1_0 = TILE_K / 512 * (64 + 2 * PANEL_TQ1_0_BYTES),
    PART_BYTES_tq2_0 = TILE_K / 512 * (64 + 2 * PANEL_TQ2_0_BYTES),
    PART_BYTES_q1_0 = TILE_K / 256 * (64 + 8 * 64),
    PART_BYTES_q2_0 = TILE_K / 128 * (64 + 4 * 128),
};
DEFINE_TILE_INT(q8_0, WIDE_PLUS_128)
DEFINE_TILE_INT(q4_0, WIDE_PLUS_8)
DEFINE_TILE_INT(q4_k, SUPER_MIN)
DEFINE_TILE_INT(q6_k, SUPER_HALVES)
DEFINE_TILE_INT(q4_1, WIDE_MIN)
DEFINE_TILE_INT(q5_0, WIDE_PLUS_16)
DEFINE_TILE_INT(q5_1, WIDE_MIN_31)
DEFINE_TILE_INT(q5_k, SUPER_MIN_31)
DEFINE_TILE_INT(iq4_nl, WIDE_PLUS_128)
DEFINE_TILE_INT(iq4_xs, SUPER_PLUS_128)
DEFINE_TILE_INT(mxfp4, WIDE_PLUS_16)
DEFINE_TILE_INT(nvfp4, WIDE_HALVES)
DEFINE_TILE_INT(q2_k, SUPER_MIN_HALVES)
DEFINE_TILE_INT(q3_k, SUPER_HALVES)
DEFINE_TILE_INT(iq1_s, WIDE_PLUS_16)
DEFINE_TILE_INT(iq1_m, WIDE_HALVES)
DEFINE_TILE_INT(iq2_xxs, WIDE_PLUS_128)
DEFINE_TILE_INT(iq2_xs, WIDE_HALVES_128)
DEFINE_TILE_INT(iq2_s, WIDE_HALVES_128)
DEFINE_TILE_INT(iq3_xxs, WIDE_PLUS_128)
DEFINE_TILE_INT(iq3_s, WIDE_PLUS_128)
DEFINE_TILE_INT(tq1_0, WIDE_PLUS_8)
DEFINE_TILE_INT(tq2_0, WIDE_PLUS_8)
DEFINE_TILE_INT(q1_0, WIDE_PLUS_128)
DEFINE_TILE_INT(q2_0, WIDE_PLUS_8)

static void multiply4_float(const struct tile *t, uint32_t row)
{
    tile_float(t, row, 4);
}

#if VL == 16
static void multiply8_float(const struct tile *t, uint32_t row)
{
    tile_float(t, row, 8);
}

static void multiply12_float(const struct tile *t, uint32_t row)
{
    tile_float(t, row, 12);
}
#define MULTIPLY_FLOAT multiply4_float, multiply8_float, multiply12_float
#else
#define MULTIPLY_FLOAT multiply4_float
#endif

#define DEFINE_TILE_FLOAT(name, value_bytes)                                                       \
    static void column_##name(const uint8_t *panel, uint32_t k, uint32_t c, float *out)            \
    {                                                                                              \
        _Alignas(64) float wide[32 * PANEL_COLS];                                                  \
        for (uint32_t i = 0; i < k; i += 32) {                                                     \
            const uint32_t n = k - i < 32 ? k - i : 32;                                            \
            widen_##name(panel, i, n, wide);                                                       \
            for (uint32_t at = 0; at < n; at++)                                                    \
                out[i + at] = wide[at * PANEL_COLS + c];                                           \
        }                                                                                          \
    }                                                                                              \
    static void widen_part_##name(const struct tile *t, uint32_t panel)                            \
    {                                                                                              \
        float *to = (float *)t->wide + (size_t)panel * TILE_FLOAT_K * PANEL_COLS;                  \
        widen_##name(t->panels + panel * t->j->panel_bytes, t->first_k, t->n_k, to);               \
    }                                                                                              \
    static void tiled_##name(const struct linear_job *j)                                           \
    {                                                                                              \
        static const struct tile_format format = {.part_k = TILE_FLOAT_K,                          \
                                                  .part_bytes =                                    \
                                                      TILE_FLOAT_K * PANEL_COLS * (value_bytes),   \
                                                  .max_rows = TILE_FLOAT_M,                        \
                                                  .widen = widen_part_##name,                      \
                                                  .multiply = {MULTIPLY_FLOAT}};                   \
        run_tiled(j, &format);                                                                     \
    }

DEFINE_TILE_FLOAT(f32, 4)
DEFINE_TILE_FLOAT(f16, 2)
DEFINE_TILE_FLOAT(bf16, 2)
