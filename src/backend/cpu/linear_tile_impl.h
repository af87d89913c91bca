/* Many rows: the weights of a few panels and a part of K are widened once, to what the multiplying
 * instructions take, and then meet all rows of the job while they lie in the nearest cache.
 *
 *     for each TILE_PANELS panels
 *         for each part of K (TILE_K, TILE_FLOAT_K)
 *             widen: panel -> [panel][group] { f32 scale[16], second[16], u8 q[8][16][4],
 *                                                      f32 third[16] }
 *                                    and the words of some (linear_tile_int_impl.h); Q4_K on some
 *                                    processors as linear_pairs_impl.h has it,
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
enum { TILE_VECS = TILE_PANELS * PARTS, TILE_GROUPS = TILE_K / 32, ASK_K = 128 };

struct tile {
    const struct linear_job *j;
    const uint8_t *panels; /* the first one's beginning */
    uint32_t panel;        /* which it is */
    uint32_t n_panels;     /* 1 .. the format's */
    uint32_t first_k, n_k; /* the part of K at hand */
    uint32_t max_rows;     /* that meet a part at a time */
    uint8_t *wide;         /* what was widened, of n_panels */
    float *sums;           /* [row of the job][vectors of the format's panels][VL] */
    bool last;             /* of K */
    const uint8_t *next;   /* the weights needed next, of the first panel, and */
    uint32_t ask;          /* how many bytes of them each 128 of K of each tile asks for */
};

/* Where vector v of a group is, from the first one. */
#define WIDE_AT(v) ((v) / PARTS * TILE_GROUPS * WIDE_BYTES + (v) % PARTS * VL * 4)
#ifdef DOT_WORDS
_Static_assert(TILE_PANELS == 1, "words have no place between panels");
_Static_assert(TILE_GROUPS *(WIDE_BYTES + WORDS_BYTES) <= WIDE_PART_BYTES, "sums lie behind them");
#endif
_Static_assert(TILE_PANELS *TILE_GROUPS *WIDE_BYTES <= WIDE_PART_BYTES, "sums lie behind them");

/* Weights of the next part are on their way while this one is multiplied, evenly: a burst of
 * prefetches would fill the buffers that every load needs. `at` of the first panel on, t->ask bytes
 * of each. Past the last panel a prefetch does no harm. */
INLINE void tile_ask(const struct tile *t, const uint8_t *at, const uint32_t n_panels)
{
    const size_t panel_bytes = t->j->panel_bytes;
    const uint8_t *end = at + t->ask;
    do {
        UNROLL for (uint32_t p = 0; p < n_panels; p++)
        {
            if (cpu_ask_near)
                __builtin_prefetch(at + p * panel_bytes, 0, 3);
            else
                __builtin_prefetch(at + p * panel_bytes, 0, 2);
        }
        at += 64;
    } while (__builtin_expect(at < end, 0));
}

/* How often a tile of n_k asks. */
#define TILE_ASKS(n_k) (((n_k) + ASK_K - 1) / ASK_K)

/* What the tile at `row` asks for first. */
INLINE const uint8_t *tile_asks(const struct tile *t, uint32_t row)
{
    const size_t calls = (size_t)((row - t->j->first_row) / t->max_rows) * TILE_ASKS(t->n_k);
    return t->next + calls * t->ask;
}

/* Where the sums of m rows go, if this is the last they meet. */
INLINE void tile_ask_out(const struct tile *t, uint32_t row, uint32_t end, uint32_t m)
{
    if (t->last)
        linear_ask_out(t->j, row, end - row < m ? end - row : m, t->panel, t->n_panels);
}

INLINE float *tile_sums(const struct tile *t, uint32_t row)
{
    return t->sums + (size_t)(row - t->j->first_row) * TILE_VECS * VL;
}

#define EACH_SUM EACH_ROW UNROLL for (int v = 0; v < TILE_VECS; v++)
#define SUM_AT(m, v) (sums + ((m)*TILE_VECS + (v)) * VL)

#include "backend/cpu/linear_tile_int_impl.h"

INLINE void tile_float(const struct tile *t, uint32_t row, const int M)
{
    const size_t x_tile = (size_t)t->j->act->k * ACT_TILE;
    const float *x[TILE_FLOAT_M / ACT_TILE] = {NULL}, *w = (const float *)t->wide;
    for (int f = 0; f < M / ACT_TILE; f++)
        x[f] = t->j->act->x + (row / ACT_TILE + f) * x_tile + (size_t)t->first_k * ACT_TILE;
    float *sums = tile_sums(t, row);
    vf acc[TILE_FLOAT_M][TILE_VECS];
    EACH_SUM acc[m][v] = vf_load(SUM_AT(m, v));
    const uint8_t *ask = tile_asks(t, row);
    for (uint32_t k = 0; k < t->n_k; k += ASK_K) {
        const uint32_t end = t->n_k - k < ASK_K ? t->n_k : k + ASK_K;
        tile_ask(t, ask, TILE_PANELS);
        ask += t->ask;
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

/* n_vecs: of a row's sums. */
static void tile_put(const struct tile *t, uint32_t n_vecs)
{
    const struct linear_job *j = t->j;
    const float *sums = t->sums;
    for (uint32_t r = j->first_row; r < j->first_row + j->n_rows; r++) {
        for (uint32_t v = 0; v < n_vecs; v++, sums += VL)
            linear_put(j, r, t->panel * PANEL_COLS + v * VL, vf_load(sums));
    }
}

/* What the walk below needs to know of a format. */
struct tile_format {
    uint32_t panels;             /* at a time */
    uint32_t part_k, part_bytes; /* K that is widened at a time, and what it takes in a panel */
    uint32_t max_rows;           /* 4, 8 or 12 */
    uint32_t four_rows_on;       /* 4 where the job's tuning is one of these, 1 << each */
    void (*widen)(const struct tile *t, uint32_t panel); /* NULL: multiply reads the panels */
    /* Rows row .. end - 1, so many at a time, and up to as many beyond them: 4, 8, 12. */
    void (*multiply[3])(const struct tile *t, uint32_t row, uint32_t end);
};

/* One part of K of some panels meets all rows. */
static void tile_rows(struct tile *t, const struct tile_format *f, bool last)
{
    const struct linear_job *j = t->j;
    const uint32_t most = t->max_rows, n_asks = (j->n_rows + most - 1) / most * TILE_ASKS(t->n_k);
    t->ask = n_asks ? f->part_bytes / n_asks + 1 : 0;
    t->last = last;
    const uint32_t end = j->first_row + j->n_rows, whole = end - j->n_rows % most;
    if (whole > j->first_row)
        f->multiply[most / 4 - 1](t, j->first_row, whole);
    if (whole < end)
        f->multiply[(end - whole - 1) / 4](t, whole, end);
}

/* The last panel may be without its neighbour; then what is in the neighbour's place is multiplied
 * in vain. */
static void run_tiled(const struct linear_job *j, const struct tile_format *f)
{
    struct tile t = {.j = j, .wide = j->scratch, .sums = (float *)(j->scratch + WIDE_PART_BYTES)};
    t.max_rows = f->four_rows_on >> j->tuning & 1 ? 4 : f->max_rows;
    const size_t n_sums = (size_t)(j->n_rows + 3) / 4 * 4 * f->panels * PANEL_COLS;
    const uint32_t n_k = j->act->k;
    for (uint32_t p = 0; p < j->n_panels; p += f->panels) {
        t.panel = p;
        t.panels = j->panels + p * j->panel_bytes;
        t.n_panels = j->n_panels - p < f->panels ? j->n_panels - p : f->panels;
        memset(t.sums, 0, n_sums * sizeof *t.sums);
        for (uint32_t part = 0; part * f->part_k < n_k; part++) {
            t.first_k = part * f->part_k;
            t.n_k = n_k - t.first_k < f->part_k ? n_k - t.first_k : f->part_k;
            for (uint32_t i = 0; f->widen && i < t.n_panels; i++)
                f->widen(&t, i);
            const bool last = t.first_k + t.n_k == n_k;
            t.next = last ? t.panels + f->panels * j->panel_bytes
                          : t.panels + (size_t)(part + 1) * f->part_bytes;
            tile_rows(&t, f, last);
        }
        tile_put(&t, f->panels * PARTS);
    }
}

/* multiply4_NAME and so on. One call for all rows: with one for each tile what surrounds it took
 * two to three in a hundred. */
#define DEFINE_MULTIPLY(name, m, multiply_tile)                                                    \
    static void multiply##m##_##name(const struct tile *t, uint32_t row, uint32_t end)             \
    {                                                                                              \
        for (; row < end; row += (m)) {                                                            \
            tile_ask_out(t, row, end, m);                                                          \
            multiply_tile;                                                                         \
        }                                                                                          \
    }
#define DEFINE_INT(kind, m) DEFINE_MULTIPLY(kind, m, tile_int(t, row, m, kind))
#if VL == 16
#define DEFINE_MULTIPLY_INT(kind) DEFINE_INT(kind, 4) DEFINE_INT(kind, 8)
#define MULTIPLY_INT(kind) multiply4_##kind, multiply8_##kind
#else
#define DEFINE_MULTIPLY_INT(kind) DEFINE_INT(kind, 4)
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
#ifdef VI_PRODUCT_16
DEFINE_MULTIPLY_INT(SUPER_SCALED)
#endif

/* Column c of a group in its wide form, as the file's block would be dequantised; pair: the group
 * and its neighbour. */
static void wide_column(
    const uint8_t *pair, uint32_t group, uint32_t c, const enum wide_kind kind, float *out)
{
    const uint8_t *wide = pair + group % 2 * WIDE_BYTES;
    const float scale = ((const float *)wide)[c];
    const float second = ((const float *)(wide + WIDE_SECOND))[c];
    const float d = ((const float *)(wide + WIDE_THIRD))[c];
    const int8_t first_of = ((const int8_t *)wide)[c * 4];
    const int8_t second_of = ((const int8_t *)wide)[WIDE_SECOND + c * 4];
    const float d_of_pair = ((const float *)(pair + WIDE_THIRD))[c];
    const float dmin = ((const float *)(pair + WIDE_BYTES + WIDE_THIRD))[c];
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
            out[i] = d_of_pair * (float)first_of * (float)q - dmin * (float)second_of;
            break;
        case SUPER_HALVES:
            out[i] = d * (float)(i < 16 ? first_of : second_of) * (float)(q - 32);
            break;
        case SUPER_SCALED: /* another form's bytes, with a column of its own */
            break;
        case SUPER_MIN_HALVES:
            out[i] = d * (float)q - (i < 16 ? scale : second);
            break;
        }
    }
}

#define DEFINE_COLUMN(name, kind)                                                                  \
    NOTE_HALVES(name, kind)                                                                        \
    static void column_##name(const uint8_t *panel, uint32_t k, uint32_t c, float *out)            \
    {                                                                                              \
        _Alignas(64) uint8_t wide[2 * WIDE_BYTES] = {0};                                           \
        for (uint32_t i = 0; i < k / 32; i++) {                                                    \
            if (i % 2 == 0)                                                                        \
                widen_##name(panel, i, wide);                                                      \
            if (i % 2 == 0 && i + 1 < k / 32)                                                      \
                widen_##name(panel, i + 1, wide + WIDE_BYTES);                                     \
            wide_column(wide, i, c, kind, out + (size_t)i * 32);                                   \
        }                                                                                          \
    }

/* The words of a group, behind its bytes. */
INLINE void widen_words(uint8_t *wide)
{
#ifdef DOT_WORDS
    for (int g = 0; g < 8; g++) {
        for (int c = 0; c < 64; c += VL * 4) {
            const vb bytes = vb_load(wide + WIDE_Q + g * 64 + c);
            vb_store(wide + WIDE_BYTES + 2 * g * 64 + c, vb_words_of(bytes, 0));
            vb_store(wide + WIDE_BYTES + (2 * g + 1) * 64 + c, vb_words_of(bytes, 2));
        }
    }
#else
    (void)wide;
#endif
}

/* Where four rows of integer scales are faster than eight. */
#define FOUR_ROWS_ON(kind)                                                                         \
    (((kind) >= SUPER_PLUS_128) << TUNED_ZEN4 | ((kind) == SUPER_HALVES) << TUNED_ZEN5)

/* widen: to the form that the kind says. */
#define DEFINE_TILED(name, widen_group, kind)                                                      \
    NOTE_WORDS(name, kind)                                                                         \
    static void widen_part_##name(const struct tile *t, uint32_t panel)                            \
    {                                                                                              \
        const uint8_t *from = t->panels + panel * t->j->panel_bytes;                               \
        uint8_t *to = t->wide + (size_t)panel * TILE_GROUPS * WIDE_STRIDE(kind);                   \
        for (uint32_t i = 0; i < t->n_k / 32; i++, to += WIDE_STRIDE(kind)) {                      \
            widen_group(from, t->first_k / 32 + i, to);                                            \
            if (IN_WORDS(kind))                                                                    \
                widen_words(to);                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void tiled_##name(const struct linear_job *j)                                           \
    {                                                                                              \
        static const struct tile_format format = {.panels = TILE_PANELS,                           \
                                                  .part_k = TILE_K,                                \
                                                  .part_bytes = PART_BYTES_##name,                 \
                                                  .max_rows = TILE_INT_M,                          \
                                                  .four_rows_on = FOUR_ROWS_ON(kind),              \
                                                  .widen = widen_part_##name,                      \
                                                  .multiply = {MULTIPLY_INT(kind)}};               \
        run_tiled(j, &format);                                                                     \
    }

#define DEFINE_TILE_INT(name, kind)                                                                \
    DEFINE_COLUMN(name, kind)                                                                      \
    DEFINE_TILED(name, widen_##name, kind)

DEFINE_MULTIPLY(float, 4, tile_float(t, row, 4))

#if VL == 16
DEFINE_MULTIPLY(float, 8, tile_float(t, row, 8))

DEFINE_MULTIPLY(float, 12, tile_float(t, row, 12))
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
        static const struct tile_format format = {.panels = TILE_PANELS,                           \
                                                  .part_k = TILE_FLOAT_K,                          \
                                                  .part_bytes =                                    \
                                                      TILE_FLOAT_K * PANEL_COLS * (value_bytes),   \
                                                  .max_rows = TILE_FLOAT_M,                        \
                                                  .widen = widen_part_##name,                      \
                                                  .multiply = {MULTIPLY_FLOAT}};                   \
        run_tiled(j, &format);                                                                     \
    }
