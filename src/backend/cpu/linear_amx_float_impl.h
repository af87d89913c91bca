/* BF16 and F16 weights on the tile unit's products of bf16 (TDPBF16PS). What is longer than the 8
 * bits of a bf16 is a sum of two:
 *
 *     activation   x = hi + lo, 16 bits of its 24, each rounded to nearest
 *     BF16         w             w lo + w hi
 *     F16          w = u + v     u lo + u hi + v hi; its upper 8 bits and its lower 3
 *
 * The v lo that is left out is below 2^-15 of the product; what hi + lo leave of x below 2^-17. Of
 * 16 rows, 16 columns and 32 of K
 *
 *     A  [16 rows][32 of K]            hi or lo: act.two, read with its stride
 *     B  [16 pairs of K][16 columns]   w as it lies in a panel of BF16; u or v, in a job's scratch
 *     C  [16 rows][16 columns]         the sums: f32
 *
 * are one instruction of 16 cycles, of up to 8 rows half of that. It adds the products of a pair's
 * first to one sum, those of its second to another, both from 0 and with every step rounded, and
 * what the two come to to C; a number too small for the normal exponents is 0. A row alone gets the
 * same by the same steps in vectors (amx_alone), which bring what they read from memory faster. So
 * every sum over K has one order: 32 of K after the other, and of each the products as they are
 * named above.
 *
 *     for each group of panels
 *         for each part of K
 *             for each P panels of them     4 where there are at most 16 rows, else 2
 *                 for each 16 or 32 rows    4 C, from and to memory
 *                     for each 32 of K      F16, the first rows: the next 32 become u, v
 *                                           8 or 12 products
 *
 * Many rows are too long to pass by as a whole: so a group is several panels then, and what a part
 * of K takes of all rows stays in the second cache meanwhile. */
enum {
    AMX_FLOAT_MANY = 64,   /* rows up to which all of K of them stays in the second cache */
    AMX_FLOAT_STEPS = 16,  /* 32 of K of panels that are split at a time, of all panels together */
    AMX_FLOAT_K = 256,     /* of a part, where there are more rows than meet it at once */
    AMX_FLOAT_SOON = 3072, /* bytes ahead in a panel, where not */
    TWO = 2 * 32,          /* values of hi and lo of 32 of K */
};

enum amx_float_kind { AMX_BF16, AMX_F16 };

/* In a job's scratch. */
struct amx_float_part {
    uint8_t b[AMX_FLOAT_STEPS][2][AMX_TILE_BYTES];
    uint8_t rest[4][AMX_TILE_BYTES];
    float sums[LINEAR_MAX_SUMS][LINEAR_MAX_ROWS][PANEL_COLS];
};
_Static_assert(sizeof(struct amx_float_part) <= LINEAR_SCRATCH_BYTES, "a job's scratch holds it");

/* hi and lo of values first .. end - 1 of a row; those of one beyond the bf16 leave the rest to lo,
 * so that all stay finite.
 */
AMX static void pack_two(const float *x, uint32_t first, uint32_t end, uint16_t *to)
{
    const vf most = vf_set1(0x1.fep127f), least = vf_set1(-0x1.fep127f);
    for (uint32_t i = first; i < end; i += 16) {
        const uint32_t n = end - i < 16 ? end - i : 16;
        const vf a = vf_load_n(x + i, n);
        /* a bound comes first: what is no number stays none */
        const __m256i hi = (__m256i)_mm512_cvtneps_pbh(vf_max(least, vf_min(most, a)));
        const vf rest = vf_sub(a, vf_load_bf16((const uint16_t *)&hi));
        uint16_t *at = to + (size_t)i / 32 * TWO + i % 32;
        _mm256_storeu_si256((__m256i *)at, hi);
        _mm256_storeu_si256((__m256i *)(at + 32), (__m256i)_mm512_cvtneps_pbh(rest));
        if (i % 32 == 0 && end - i <= 16) { /* nothing follows in these 32 of K */
            _mm256_storeu_si256((__m256i *)(at + 16), _mm256_setzero_si256());
            _mm256_storeu_si256((__m256i *)(at + 48), _mm256_setzero_si256());
        }
    }
}

/* Eight of K of a panel of F16 to u and v: to, and a B further. */
INLINE void amx_split(const uint8_t *w, uint8_t *to)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        const vf first = load_f16_at(w, (size_t)i * 2, 0);
        const vf second = load_f16_at(w, (size_t)i * 2 + 1, 0);
        vb_store(to + i * 64, amx_pairs(first, second));
        vb_store(to + AMX_TILE_BYTES + i * 64,
                 amx_pairs(vf_sub(first, amx_upper(first)), vf_sub(second, amx_upper(second))));
    }
}

/* --- a row alone ---------------------------------------------------------------------------------
 */

enum { AMX_PRODUCTS = 3, AMX_ALONE_PANELS = 4 };

/* One of a pair of K, `at`, of P panels; pair: the activations', hi. */
INLINE void amx_alone_products(vf (*s)[AMX_ALONE_PANELS],
                               const uint8_t *panels,
                               size_t panel_bytes,
                               size_t at,
                               const uint16_t *pair,
                               const enum amx_float_kind kind,
                               const int P)
{
    const vf hi = amx_of_pair(pair, at % 2), lo = amx_of_pair(pair + 32, at % 2);
    UNROLL for (int p = 0; p < P; p++)
    {
        const uint8_t *panel = panels + p * panel_bytes;
        const vf w = kind == AMX_F16 ? load_f16_at(panel, at, 0) : load_bf16_at(panel, at, 0);
        const vf u = kind == AMX_F16 ? amx_upper(w) : w;
        s[0][p] = vf_fma(u, lo, s[0][p]);
        s[1][p] = vf_fma(u, hi, s[1][p]);
        if (kind == AMX_F16)
            s[2][p] = vf_fma(vf_sub(w, u), hi, s[2][p]);
    }
}

/* What the tile unit does to C, for one row and P panels side by side. */
INLINE void amx_alone(const struct linear_job *j,
                      uint32_t p0,
                      const enum amx_float_kind kind,
                      const int P)
{
    const int n_products = kind == AMX_F16 ? 3 : 2;
    const uint32_t n_k = j->act->k;
    const size_t apart = j->panel_bytes;
    const uint16_t *x = j->act->two + j->first_row * act_two_stride(n_k);
    const uint8_t *panels = j->panels + p0 * apart;
    vf acc[AMX_ALONE_PANELS];
    UNROLL for (int p = 0; p < P; p++) acc[p] = vf_zero();
    for (uint32_t k = 0; k < n_k; k += 32, x += TWO) {
        const uint32_t n = n_k - k < 32 ? n_k - k : 32;
        vf first[AMX_PRODUCTS][AMX_ALONE_PANELS], second[AMX_PRODUCTS][AMX_ALONE_PANELS];
        UNROLL for (int i = 0; i < n_products; i++)
        {
            UNROLL for (int p = 0; p < P; p++) first[i][p] = second[i][p] = vf_zero();
        }
        for (uint32_t i = 0; i < n; i += 2) {
            size_t next = (size_t)(k + i) * 32 + j->prefetch;
            next += next < apart ? 0 : (P - 1) * apart;
            UNROLL for (int p = 0; p < P; p++) __builtin_prefetch(panels + p * apart + next);
            amx_alone_products(first, panels, apart, k + i, x + i, kind, P);
            if (i + 1 < n)
                amx_alone_products(second, panels, apart, k + i + 1, x + i, kind, P);
        }
        UNROLL for (int i = 0; i < n_products; i++)
        {
            UNROLL for (int p = 0; p < P; p++) acc[p] =
                vf_add(acc[p], vf_add(first[i][p], second[i][p]));
        }
    }
    UNROLL for (int p = 0; p < P; p++)
        linear_put(j, j->first_row, (p0 + (uint32_t)p) * PANEL_COLS, acc[p]);
}

INLINE void amx_alone_all(const struct linear_job *j, const enum amx_float_kind kind)
{
    uint32_t p = 0;
    for (; p + AMX_ALONE_PANELS <= j->n_panels; p += AMX_ALONE_PANELS)
        amx_alone(j, p, kind, AMX_ALONE_PANELS);
    for (; p < j->n_panels; p++)
        amx_alone(j, p, kind, 1);
}

/* --- more --------------------------------------------------------------------------------------
 */

/* P panels, a part of K of them, and the rows that meet it. */
struct amx_float {
    const uint8_t *w; /* of the first panel */
    size_t panel_bytes;
    uint32_t n_k, n;     /* of the part, and in steps of 32 */
    const uint8_t *rest; /* [P] the last step, where K ends within it; zeros behind */
    uint8_t *b;          /* [P][AMX_FLOAT_STEPS / P], a ring: u and v of F16 */
    const uint16_t *a;   /* hi of the first row */
    size_t a_stride;     /* values to the next one's */
    float *sums;         /* of the first row and panel */
    bool begin;          /* from 0 */
    const uint8_t *ask;  /* for 32 of K what comes later from memory, of the first panel; */
    bool soon;           /* before anything else: all of it, between the unit's instructions; */
    uint32_t turn;       /* step from which on that is a panel's that follows; */
    uint32_t first, end; /* else the lines of it that these rows ask for */
};

enum { AMX_SUMS = LINEAR_MAX_ROWS * PANEL_COLS }; /* values from one panel's to the next's */

/* Step s of panel p, of the file's bits. */
INLINE const uint8_t *amx_float_w(const struct amx_float *f, uint32_t p, uint32_t s)
{
    if ((s + 1) * 32 > f->n_k)
        return f->rest + (size_t)p * AMX_TILE_BYTES;
    return f->w + p * f->panel_bytes + (size_t)s * AMX_TILE_BYTES;
}

/* Its B: of BF16 those are one. */
INLINE const uint8_t *amx_float_b(
    const struct amx_float *f, uint32_t p, uint32_t s, const enum amx_float_kind kind, const int P)
{
    const uint32_t ring = AMX_FLOAT_STEPS / P;
    return kind == AMX_BF16 ? amx_float_w(f, p, s)
                            : f->b + (size_t)(p * ring + s % ring) * 2 * AMX_TILE_BYTES;
}

/* The i-th quarter of all quarters of step s of P panels to where that is, if there is such a step.
 * Between two instructions of the tile unit, where compilers must leave it. */
INLINE void amx_float_split(const struct amx_float *f, uint32_t s, uint32_t i, const int P)
{
    if (s >= f->n)
        return;
    const uint32_t p = i / 4, at = i % 4;
    AMX_STAY;
    amx_split(amx_float_w(f, p, s) + (size_t)at * 256,
              f->b +
                  (size_t)(p * (AMX_FLOAT_STEPS / P) + s % (AMX_FLOAT_STEPS / P)) * 2 *
                      AMX_TILE_BYTES +
                  (size_t)at * 256);
    AMX_STAY;
}

/* What comes soon, a line or a few of all panels at the i-th of 4 P places in step s: all of a step
 * at once, or one panel after the other, is slower. */
INLINE void amx_float_ask_soon(const struct amx_float *f, uint32_t s, uint32_t i, const int P)
{
    if (!f->soon)
        return;
    const uint8_t *at = f->ask + (size_t)s * AMX_TILE_BYTES + (size_t)i * AMX_TILE_BYTES / (4 * P);
    at += s < f->turn ? 0 : (size_t)(P - 1) * f->panel_bytes;
    AMX_STAY;
    UNROLL for (int l = 0; l < 4; l++)
        __builtin_prefetch(at + l % P * f->panel_bytes + (size_t)(l / P) * 64);
    AMX_STAY;
}

/* What comes later, to the second cache. */
INLINE void amx_float_ask_later(const struct amx_float *f, uint32_t s, const int P)
{
    const uint8_t *at = f->ask + (size_t)s * AMX_TILE_BYTES;
    for (uint32_t l = f->first; l < f->end; l++) {
        UNROLL for (int p = 0; p < P; p++)
            __builtin_prefetch(at + p * f->panel_bytes + (size_t)l * 64, 0, 2);
    }
}

#define AMX_C_AT(r, p) (f->sums + (size_t)(r)*AMX_ROWS * PANEL_COLS + (size_t)(p)*AMX_SUMS)
#define AMX_BEGIN(c, r, p)                                                                         \
    {                                                                                              \
        if (f->begin)                                                                              \
            _tile_zero(c);                                                                         \
        else                                                                                       \
            _tile_loadd(c, AMX_C_AT(r, p), 64);                                                    \
    }
#define AMX_QUARTER(i, P)                                                                          \
    {                                                                                              \
        amx_float_ask_soon(f, s, (uint32_t)(i), (P));                                              \
        if (split)                                                                                 \
            amx_float_split(f, s + 1, (uint32_t)(i), (P));                                         \
    }
#define AMX_A_AT(r, lo) (a + (r)*AMX_ROWS * f->a_stride + (lo)*32)

/* 32 rows, 2 panels; split: of F16, where no rows before did, a step ahead, so that the core has
 * work while the unit has. 0..3: C; 4, 5: A; 6, 7: B. */
AMX_INLINE void amx_float_square(const struct amx_float *f,
                                 const enum amx_float_kind kind,
                                 const bool split)
{
    const uint16_t *a = f->a;
    const int stride = (int)(f->a_stride * sizeof *a);
    AMX_BEGIN(0, 0, 0)
    AMX_BEGIN(1, 0, 1)
    AMX_BEGIN(2, 1, 0)
    AMX_BEGIN(3, 1, 1)
    for (uint32_t s = 0; s < f->n; s++, a += TWO) {
        const uint8_t *b = amx_float_b(f, 0, s, kind, 2), *other = amx_float_b(f, 1, s, kind, 2);
        _tile_loadd(6, b, 64);
        _tile_stream_loadd(4, AMX_A_AT(0, 1), stride);
        _tile_dpbf16ps(0, 4, 6);
        AMX_QUARTER(0, 2)
        _tile_loadd(7, other, 64);
        _tile_dpbf16ps(1, 4, 7);
        AMX_QUARTER(1, 2)
        _tile_stream_loadd(5, AMX_A_AT(1, 1), stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        AMX_QUARTER(2, 2)
        _tile_stream_loadd(4, AMX_A_AT(0, 0), stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        AMX_QUARTER(3, 2)
        _tile_stream_loadd(5, AMX_A_AT(1, 0), stride);
        _tile_dpbf16ps(2, 5, 6);
        AMX_QUARTER(4, 2)
        _tile_dpbf16ps(3, 5, 7);
        if (kind == AMX_F16) {
            _tile_loadd(6, b + AMX_TILE_BYTES, 64);
            _tile_dpbf16ps(0, 4, 6);
            AMX_QUARTER(5, 2)
            _tile_loadd(7, other + AMX_TILE_BYTES, 64);
            _tile_dpbf16ps(1, 4, 7);
            AMX_QUARTER(6, 2)
            _tile_dpbf16ps(2, 5, 6);
            AMX_QUARTER(7, 2)
            _tile_dpbf16ps(3, 5, 7);
        } else {
            AMX_QUARTER(5, 2)
            AMX_QUARTER(6, 2)
            AMX_QUARTER(7, 2)
        }
        amx_float_ask_later(f, s, 2);
    }
    _tile_stored(0, AMX_C_AT(0, 0), 64);
    _tile_stored(1, AMX_C_AT(0, 1), 64);
    _tile_stored(2, AMX_C_AT(1, 0), 64);
    _tile_stored(3, AMX_C_AT(1, 1), 64);
}

/* Two panels' products of 32 of K, and of the next 32 the split. */
#define AMX_FLOAT_TWO(c, d, p)                                                                     \
    {                                                                                              \
        const uint8_t *b = amx_float_b(f, (p), s, kind, P);                                        \
        const uint8_t *other = amx_float_b(f, (p) + 1, s, kind, P);                                \
        _tile_loadd(6, b, 64);                                                                     \
        _tile_dpbf16ps(c, 5, 6);                                                                   \
        AMX_QUARTER((p)*4, P)                                                                      \
        _tile_loadd(7, other, 64);                                                                 \
        _tile_dpbf16ps(d, 5, 7);                                                                   \
        AMX_QUARTER((p)*4 + 1, P)                                                                  \
        _tile_dpbf16ps(c, 4, 6);                                                                   \
        AMX_QUARTER((p)*4 + 2, P)                                                                  \
        _tile_dpbf16ps(d, 4, 7);                                                                   \
        AMX_QUARTER((p)*4 + 3, P)                                                                  \
        AMX_QUARTER((p)*4 + 4, P)                                                                  \
        if (kind == AMX_F16) {                                                                     \
            _tile_loadd(6, b + AMX_TILE_BYTES, 64);                                                \
            _tile_dpbf16ps(c, 4, 6);                                                               \
            AMX_QUARTER((p)*4 + 5, P)                                                              \
            AMX_QUARTER((p)*4 + 6, P)                                                              \
            _tile_loadd(7, other + AMX_TILE_BYTES, 64);                                            \
            _tile_dpbf16ps(d, 4, 7);                                                               \
            AMX_QUARTER((p)*4 + 7, P)                                                              \
        } else {                                                                                   \
            AMX_QUARTER((p)*4 + 5, P)                                                              \
            AMX_QUARTER((p)*4 + 6, P)                                                              \
            AMX_QUARTER((p)*4 + 7, P)                                                              \
        }                                                                                          \
    }

/* 16 rows, P panels: 4, 2 or 1. */
AMX_INLINE void amx_float_flat(const struct amx_float *f,
                               const enum amx_float_kind kind,
                               const bool split,
                               const int P)
{
    const uint16_t *a = f->a;
    const int stride = (int)(f->a_stride * sizeof *a);
    AMX_BEGIN(0, 0, 0)
    if (P > 1)
        AMX_BEGIN(1, 0, 1)
    if (P > 2) {
        AMX_BEGIN(2, 0, 2)
        AMX_BEGIN(3, 0, 3)
    }
    for (uint32_t s = 0; s < f->n; s++, a += TWO) {
        _tile_loadd(4, AMX_A_AT(0, 0), stride);
        _tile_loadd(5, AMX_A_AT(0, 1), stride);
        if (P > 1) {
            AMX_FLOAT_TWO(0, 1, 0)
        } else {
            const uint8_t *b = amx_float_b(f, 0, s, kind, P);
            _tile_loadd(6, b, 64);
            _tile_dpbf16ps(0, 5, 6);
            _tile_dpbf16ps(0, 4, 6);
            UNROLL for (int i = 0; i < 4; i++)
            {
                AMX_QUARTER(i, P)
            }
            if (kind == AMX_F16) {
                _tile_loadd(7, b + AMX_TILE_BYTES, 64);
                _tile_dpbf16ps(0, 4, 7);
            }
        }
        if (P > 2)
            AMX_FLOAT_TWO(2, 3, 2)
        amx_float_ask_later(f, s, P);
    }
    _tile_stored(0, AMX_C_AT(0, 0), 64);
    if (P > 1)
        _tile_stored(1, AMX_C_AT(0, 1), 64);
    if (P > 2) {
        _tile_stored(2, AMX_C_AT(0, 2), 64);
        _tile_stored(3, AMX_C_AT(0, 3), 64);
    }
}

#undef AMX_FLOAT_TWO
#undef AMX_QUARTER
#undef AMX_A_AT

/* Up to 32 rows, at most 16 of 4 panels or of one. */
AMX_INLINE void amx_float_block(const struct amx_float *f,
                                uint32_t n_rows,
                                const enum amx_float_kind kind,
                                const bool split,
                                const int P)
{
    AMX_STAY; /* compilers do not see what tiles are loaded from */
    for (uint32_t i = 0; split && i < 4 * (uint32_t)P; i++)
        amx_float_split(f, 0, i, P);
    if (P == 2 && n_rows > AMX_ROWS)
        amx_float_square(f, kind, split);
    else
        amx_float_flat(f, kind, split, P);
    AMX_STAY; /* nor what they are stored to */
}

/* What of a job's rows meets a part of K. */
struct amx_float_walk {
    const struct linear_job *j;
    uint32_t panel, k, n_k;      /* the part; */
    uint32_t next_panel, next_k; /* the one that comes after it; */
    uint32_t first_panel;        /* whose sums are the first */
};

/* Behind the last part of K, of P panels: the sums of n_rows from the job's row `done` on. */
AMX_INLINE void amx_float_put(
    const struct amx_float_walk *at, uint32_t done, uint32_t n_rows, const float *sums, const int P)
{
    const struct linear_job *j = at->j;
    if (at->k + at->n_k < j->act->k)
        return;
    for (uint32_t r = 0; r < n_rows; r++) {
        UNROLL for (int p = 0; p < P; p++)
            linear_put(j,
                       j->first_row + done + r,
                       (at->panel + (uint32_t)p) * PANEL_COLS,
                       vf_load(sums + r * PANEL_COLS + (size_t)p * AMX_SUMS));
    }
}

/* A part of K of P panels meets all rows. */
AMX_INLINE void amx_float_rows(const struct amx_float_walk *at,
                               const enum amx_float_kind kind,
                               const int P)
{
    const struct linear_job *j = at->j;
    struct amx_float_part *part = (struct amx_float_part *)j->scratch;
    const size_t stride = act_two_stride(j->act->k);
    const uint32_t at_once = P == 2 ? 2 * AMX_ROWS : AMX_ROWS, lines = AMX_TILE_BYTES / 64;
    const uint32_t n = (j->n_rows + at_once - 1) / at_once, ring = AMX_FLOAT_STEPS / P;
    const bool whole = at->n_k == j->act->k;
    struct amx_float f = {.w = j->panels + at->panel * j->panel_bytes + (size_t)at->k * 32,
                          .panel_bytes = j->panel_bytes,
                          .n_k = at->n_k,
                          .n = (at->n_k + 31) / 32,
                          .rest = part->rest[0],
                          .b = part->b[0][0],
                          .a = j->act->two + j->first_row * stride + (size_t)at->k / 32 * TWO,
                          .a_stride = stride,
                          .sums = part->sums[at->panel - at->first_panel][0],
                          .begin = at->k == 0};
    if (n == 1) { /* else rows have the time to wait for what comes later */
        const size_t soon = AMX_FLOAT_SOON;
        f.soon = true;
        f.ask = f.w + soon;
        f.turn = (uint32_t)(j->panel_bytes > soon ? (j->panel_bytes - soon) / AMX_TILE_BYTES : 0);
    } else {
        f.ask = j->panels + at->next_panel * j->panel_bytes + (size_t)at->next_k * 32;
    }
    for (uint32_t p = 0; at->n_k % 32 && p < (uint32_t)P; p++) {
        const size_t from = (size_t)(at->n_k / 32) * AMX_TILE_BYTES;
        const size_t bytes =
            kind == AMX_F16 ? (size_t)(at->n_k % 32) * 32 : (size_t)(at->n_k % 32 + 1) / 2 * 64;
        memcpy(part->rest[p], f.w + p * j->panel_bytes + from, bytes);
        memset(part->rest[p] + bytes, 0, AMX_TILE_BYTES - bytes);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t left = j->n_rows - i * at_once, n_rows = left < at_once ? left : at_once;
        f.first = f.soon ? 0 : lines * i / n;
        f.end = f.soon ? 0 : lines * (i + 1) / n;
        if (kind == AMX_F16 && (i == 0 || f.n > ring)) /* or it is still there */
            amx_float_block(&f, n_rows, kind, true, P);
        else
            amx_float_block(&f, n_rows, kind, false, P);
        amx_float_put(at, i * at_once, n_rows, f.sums, P);
        f.a += at_once * f.a_stride;
        f.sums += whole ? 0 : at_once * PANEL_COLS;
    }
}

/* The panels of a group from at->first_panel on, a part of K after the other. */
#define DEFINE_AMX_FLOAT(name, kind)                                                               \
    AMX static void amx_float_##name##_1(const struct amx_float_walk *at)                          \
    {                                                                                              \
        amx_float_rows(at, kind, 1);                                                               \
    }                                                                                              \
    AMX static void amx_float_##name##_2(const struct amx_float_walk *at)                          \
    {                                                                                              \
        amx_float_rows(at, kind, 2);                                                               \
    }                                                                                              \
    AMX static void amx_float_##name##_4(const struct amx_float_walk *at)                          \
    {                                                                                              \
        amx_float_rows(at, kind, 4);                                                               \
    }                                                                                              \
    __attribute__((noinline)) static void amx_float_##name(const struct linear_job *j)             \
    {                                                                                              \
        static void (*const meet[])(const struct amx_float_walk *at) = {                           \
            [1] = amx_float_##name##_1, [2] = amx_float_##name##_2, [4] = amx_float_##name##_4};   \
        amx_float_run(j, meet, LINEAR_MAX_SUMS);                                                   \
    }                                                                                              \
    __attribute__((noinline)) static void amx_alone_##name(const struct linear_job *j)             \
    {                                                                                              \
        amx_alone_all(j, kind);                                                                    \
    }                                                                                              \
    static void amx_##name(const struct linear_job *j)                                             \
    {                                                                                              \
        amx_flushing(j, j->n_rows == 1 ? amx_alone_##name : amx_float_##name);                     \
    }

/* most: panels of a group. */
AMX static void amx_float_run(const struct linear_job *j,
                              void (*const meet[])(const struct amx_float_walk *at),
                              uint32_t most)
{
    const uint32_t all = j->act->k, at_once = j->n_rows <= AMX_ROWS ? 4 : 2;
    const uint32_t group = j->n_rows <= AMX_FLOAT_MANY ? at_once : most;
    const uint32_t part = j->n_rows <= 2 * AMX_ROWS ? (all + 31) / 32 * 32 : AMX_FLOAT_K;
    struct amx_config config = amx_config_64;
    for (int i = 0; i < 6; i++) /* up to 8 rows the unit takes half of the time */
        config.rows[i] = (uint8_t)(j->n_rows < AMX_ROWS ? j->n_rows : AMX_ROWS);
    AMX_STAY;
    _tile_loadconfig(&config);
    for (uint32_t first = 0; first < j->n_panels; first += group) {
        const uint32_t end = j->n_panels - first < group ? j->n_panels : first + group;
        for (uint32_t k = 0; k < all; k += part) {
            for (uint32_t p = first, n; p < end; p += n) {
                n = end - p >= at_once ? at_once : end - p > 1 ? 2 : 1;
                struct amx_float_walk at = {.j = j,
                                            .panel = p,
                                            .k = k,
                                            .n_k = all - k < part ? all - k : part,
                                            .next_panel = p + n,
                                            .next_k = k,
                                            .first_panel = first};
                if (p + n == end) {
                    at.next_panel = k + part < all ? first : end;
                    at.next_k = k + part < all ? k + part : 0;
                }
                meet[n](&at);
            }
        }
    }
    _tile_release();
}

DEFINE_AMX_FLOAT(bf16, AMX_BF16)
DEFINE_AMX_FLOAT(f16, AMX_F16)
