/* Matrix times activations over panels, for the vector language of simd.h.
 *
 * Every kernel is one template over M, the rows it takes at a time. For each output element all M
 * do the same operations in the same order: over blocks of 32 of K, an exact integer dot product,
 * then one product of scales and one fused multiply-add; float formats one fused multiply-add a k.
 * So the bits of a row do not depend on its neighbours.
 *
 * Bounds: M = 1 reads each weight once and is bound by memory. At M = LINEAR_M a VNNI kernel does
 * 8 vpdpbusd of 128 operations for each row and 32 of K, beside about 2 float operations on the
 * same ports, which leaves 80 % of the integer peak. */
#define PARTS (PANEL_COLS / VL)
#if VL == 16
#define LINEAR_M 8
#else
#define LINEAR_M 4
#endif

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define EACH_ROW UNROLL for (int m = 0; m < M; m++)

/* Packed activations of row `row` + m are at [m / T] tiles further, lane m % T; T = job's
 * act_lanes. */
#define Q4(k4, m) load_i32(q + (size_t)((m) / T) * q_tile + (k4) * (4 * T) + (m) % T * 4)
#define ACT_BLOCK(i, m) (&blocks[(size_t)((m) / T) * b_tile + (size_t)(i)*T + (m) % T])

/* The packed activations from `row` on, a multiple of T. */
#define ACT_POINTERS                                                                               \
    const uint32_t n_blocks = j->act->k / 32;                                                      \
    const size_t q_tile = (size_t)j->act->k * T;                                                   \
    const size_t b_tile = (size_t)n_blocks * T;                                                    \
    const int8_t *q = j->act->q + row / T * q_tile;                                                \
    const struct act_block *blocks = j->act->b + row / T * b_tile

/* Where the pair of groups of 32 lies to which group i belongs: 64 bytes of scales, then both. */
#define PAIR_AT(i, group_bytes) ((size_t)((i) / 2) * (64 + 2 * (group_bytes)))

/* The first rows to meet a panel bring it from memory; with many rows to a weight the processor
 * does not look far enough ahead by itself, so ask for what comes PREFETCH_BYTES later. Past the
 * last panel a prefetch does no harm. */
#define PREFETCH_BYTES 4096
#define PREFETCH(w, n_bytes)                                                                       \
    if (M > 2 && h == 0 && row == j->first_row)                                                    \
    UNROLL for (int l = 0; l < (n_bytes); l += 64)                                                 \
        __builtin_prefetch((const uint8_t *)(w) + PREFETCH_BYTES + l)

INLINE void linear_put(const struct linear_job *j, uint32_t row, uint32_t col, vf sum)
{
    if (col >= j->n_cols)
        return;
    uint32_t n = j->n_cols - col;
    float *out = j->out + row * j->out_stride + col;
    if (n >= VL) {
        if (j->bias)
            sum = vf_add(sum, vf_load(j->bias + col));
        if (j->add)
            sum = vf_add(sum, vf_load(out));
        vf_store(out, sum);
    } else {
        if (j->bias)
            sum = vf_add(sum, vf_load_n(j->bias + col, n));
        if (j->add)
            sum = vf_add(sum, vf_load_n(out, n));
        vf_store_n(out, sum, n);
    }
}

INLINE void linear_q8_0(
    const struct linear_job *j, uint32_t p, uint32_t row, const int M, const int T)
{
    ACT_POINTERS;
    const uint8_t *panel = j->panels + p * j->panel_bytes;
    for (int h = 0; h < PARTS; h++) {
        vf acc[LINEAR_M];
        EACH_ROW acc[m] = vf_zero();
        for (uint32_t i = 0; i < n_blocks; i++) {
            const uint8_t *scales = panel + PAIR_AT(i, 512) + i % 2 * 32 + h * VL * 2;
            const uint8_t *w = panel + PAIR_AT(i, 512) + 64 + i % 2 * 512 + h * VL * 4;
            PREFETCH(w, 512);
            vi s[LINEAR_M];
            EACH_ROW s[m] = vi_begin128(ACT_BLOCK(i, m)->n128);
            UNROLL for (uint32_t g = 0; g < 8; g++)
            {
                vb wv = vb_load(w + g * 64);
                EACH_ROW s[m] = vi_dot128(s[m], wv, Q4(i * 8 + g, m));
            }
            vf ws = vf_load_f16((const uint16_t *)scales);
            EACH_ROW acc[m] =
                vf_fma(vf_from_i(s[m]), vf_mul(ws, vf_set1(ACT_BLOCK(i, m)->d)), acc[m]);
        }
        EACH_ROW linear_put(j, row + m, p * PANEL_COLS + h * VL, acc[m]);
    }
}

/* s[m] += the dot product over 32 of K of nibbles at w, for all rows. */
#define NIBBLE_DOTS(w, i, s)                                                                       \
    UNROLL for (uint32_t g = 0; g < 4; g++)                                                        \
    {                                                                                              \
        vb both = vb_load((w) + g * 64);                                                           \
        vb low = vb_low4(both), high = vb_high4(both);                                             \
        EACH_ROW s[m] = vi_dot(s[m], low, Q4((i)*8 + g, m));                                       \
        EACH_ROW s[m] = vi_dot(s[m], high, Q4((i)*8 + g + 4, m));                                  \
    }

INLINE void linear_q4_0(
    const struct linear_job *j, uint32_t p, uint32_t row, const int M, const int T)
{
    ACT_POINTERS;
    const uint8_t *panel = j->panels + p * j->panel_bytes;
    for (int h = 0; h < PARTS; h++) {
        vf acc[LINEAR_M];
        EACH_ROW acc[m] = vf_zero();
        for (uint32_t i = 0; i < n_blocks; i++) {
            const uint8_t *scales = panel + PAIR_AT(i, 256) + i % 2 * 32 + h * VL * 2;
            const uint8_t *w = panel + PAIR_AT(i, 256) + 64 + i % 2 * 256 + h * VL * 4;
            PREFETCH(w, 256);
            vi s[LINEAR_M];
            EACH_ROW s[m] = vi_set1(ACT_BLOCK(i, m)->n8);
            NIBBLE_DOTS(w, i, s)
            vf ws = vf_load_f16((const uint16_t *)scales);
            EACH_ROW acc[m] =
                vf_fma(vf_from_i(s[m]), vf_mul(ws, vf_set1(ACT_BLOCK(i, m)->d)), acc[m]);
        }
        EACH_ROW linear_put(j, row + m, p * PANEL_COLS + h * VL, acc[m]);
    }
}

/* w = d sc q - dmin mn: the second term meets only the sum of the activations. */
INLINE void linear_q4_k(
    const struct linear_job *j, uint32_t p, uint32_t row, const int M, const int T)
{
    ACT_POINTERS;
    const uint8_t *panel = j->panels + p * j->panel_bytes;
    for (int h = 0; h < PARTS; h++) {
        vf acc[LINEAR_M];
        EACH_ROW acc[m] = vf_zero();
        for (uint32_t super = 0; super < n_blocks / 8; super++) {
            const uint8_t *base = panel + (size_t)super * PANEL_Q4_K_BYTES;
            vf d = vf_load_f16((const uint16_t *)base + h * VL);
            vf dmin = vf_load_f16((const uint16_t *)base + 16 + h * VL);
            for (uint32_t g8 = 0; g8 < 8; g8++) {
                const uint32_t i = super * 8 + g8;
                const uint8_t *scales = base + 64 + PAIR_AT(g8, 256) + g8 % 2 * 32 + h * VL;
                const uint8_t *w = base + 128 + PAIR_AT(g8, 256) + g8 % 2 * 256 + h * VL * 4;
                PREFETCH(w, 256);
                vi s[LINEAR_M];
                EACH_ROW s[m] = vi_set1(0);
                NIBBLE_DOTS(w, i, s)
                vf ws = vf_mul(d, vf_load_u8(scales));
                vf wm = vf_mul(dmin, vf_load_u8(scales + 16));
                EACH_ROW acc[m] = vf_fnma(wm, vf_set1(ACT_BLOCK(i, m)->dsum), acc[m]);
                EACH_ROW acc[m] =
                    vf_fma(vf_from_i(s[m]), vf_mul(ws, vf_set1(ACT_BLOCK(i, m)->d)), acc[m]);
            }
        }
        EACH_ROW linear_put(j, row + m, p * PANEL_COLS + h * VL, acc[m]);
    }
}

/* s[m] += the dot product over k4 = 4 half .. 4 half + 3 of 6-bit values. */
#define SIX_BIT_DOTS(w, i, half, s)                                                                \
    {                                                                                              \
        vb two = vb_load((w) + (half)*64);                                                         \
        UNROLL for (uint32_t g = 0; g < 4; g++)                                                    \
        {                                                                                          \
            vb both = vb_load((w) + 128 + g * 64);                                                 \
            vb wv = vb_or2((half) ? vb_high4(both) : vb_low4(both), vb_field2(two, g));            \
            EACH_ROW s[m] = vi_dot(s[m], wv, Q4((i)*8 + (half)*4 + g, m));                         \
        }                                                                                          \
    }

INLINE void linear_q6_k(
    const struct linear_job *j, uint32_t p, uint32_t row, const int M, const int T)
{
    ACT_POINTERS;
    const uint8_t *panel = j->panels + p * j->panel_bytes;
    for (int h = 0; h < PARTS; h++) {
        vf acc[LINEAR_M];
        EACH_ROW acc[m] = vf_zero();
        for (uint32_t super = 0; super < n_blocks / 8; super++) {
            const uint8_t *base = panel + (size_t)super * PANEL_Q6_K_BYTES;
            vf d = vf_load_f16((const uint16_t *)base + h * VL);
            for (uint32_t g8 = 0; g8 < 8; g8++) {
                const uint32_t i = super * 8 + g8;
                const uint8_t *pair = base + 64 + PAIR_AT(g8, 384);
                const int8_t *scales = (const int8_t *)pair + g8 % 2 * 32 + h * VL;
                const uint8_t *w = pair + 64 + g8 % 2 * 384 + h * VL * 4;
                PREFETCH(w, 384);
                vi s[LINEAR_M];
                vf t[LINEAR_M];
                vf ws = vf_mul(d, vf_load_i8(scales));
                EACH_ROW s[m] = vi_set1(ACT_BLOCK(i, m)->n32[0]);
                SIX_BIT_DOTS(w, i, 0, s)
                EACH_ROW t[m] = vf_mul(vf_from_i(s[m]), ws);
                ws = vf_mul(d, vf_load_i8(scales + 16));
                EACH_ROW s[m] = vi_set1(ACT_BLOCK(i, m)->n32[1]);
                SIX_BIT_DOTS(w, i, 1, s)
                EACH_ROW t[m] = vf_fma(vf_from_i(s[m]), ws, t[m]);
                EACH_ROW acc[m] = vf_fma(t[m], vf_set1(ACT_BLOCK(i, m)->d), acc[m]);
            }
        }
        EACH_ROW linear_put(j, row + m, p * PANEL_COLS + h * VL, acc[m]);
    }
}

/* Floats: P panels at a time, so that few rows still have enough independent sums in flight. */
#define DEFINE_LINEAR_FLOAT(name, type, load)                                                      \
    INLINE void name(const struct linear_job *j,                                                   \
                     uint32_t p0,                                                                  \
                     uint32_t row,                                                                 \
                     const int M,                                                                  \
                     const int T,                                                                  \
                     const int P)                                                                  \
    {                                                                                              \
        const uint32_t k = j->act->k;                                                              \
        const size_t x_tile = (size_t)k * T;                                                       \
        const float *x = j->act->x + row / T * x_tile;                                             \
        for (int h = 0; h < PARTS; h++) {                                                          \
            const type *w = (const type *)(j->panels + p0 * j->panel_bytes) + h * VL;              \
            vf acc[LINEAR_M][4];                                                                   \
            EACH_ROW UNROLL for (int p = 0; p < P; p++) acc[m][p] = vf_zero();                     \
            for (uint32_t i = 0; i < k; i++) {                                                     \
                vf wv[4];                                                                          \
                UNROLL for (int p = 0; p < P; p++) wv[p] =                                         \
                    load(w + (size_t)p * (j->panel_bytes / sizeof(type)) + (size_t)i * 16);        \
                EACH_ROW                                                                           \
                {                                                                                  \
                    vf a = vf_set1(x[(m) / T * x_tile + (size_t)i * T + (m) % T]);                 \
                    UNROLL for (int p = 0; p < P; p++) acc[m][p] = vf_fma(wv[p], a, acc[m][p]);    \
                }                                                                                  \
            }                                                                                      \
            EACH_ROW UNROLL for (int p = 0; p < P; p++)                                            \
                linear_put(j, row + m, (p0 + p) * PANEL_COLS + h * VL, acc[m][p]);                 \
        }                                                                                          \
    }

DEFINE_LINEAR_FLOAT(linear_f32, float, vf_load)
DEFINE_LINEAR_FLOAT(linear_f16, uint16_t, vf_load_f16)
DEFINE_LINEAR_FLOAT(linear_bf16, uint16_t, vf_load_bf16)

/* A tile of rows stays in the nearest cache while the job's panels pass by. */
#define EACH_TILE                                                                                  \
    for (uint32_t row = j->first_row, left = j->n_rows; left > 0;                                  \
         row += LINEAR_M, left -= left < LINEAR_M ? left : LINEAR_M)

#if LINEAR_M == 8
#define MORE_CASES(call)                                                                           \
    case 5:                                                                                        \
        call(5, ACT_TILE);                                                                         \
        break;                                                                                     \
    case 6:                                                                                        \
        call(6, ACT_TILE);                                                                         \
        break;                                                                                     \
    case 7:                                                                                        \
        call(7, ACT_TILE);                                                                         \
        break;                                                                                     \
    case 8:                                                                                        \
        call(8, ACT_TILE);                                                                         \
        break;
#else
#define MORE_CASES(call)
#endif

#define SWITCH_ROWS(call)                                                                          \
    switch (left < LINEAR_M ? left : LINEAR_M) {                                                   \
    case 1:                                                                                        \
        if (j->act_lanes == 1)                                                                     \
            call(1, 1);                                                                            \
        else                                                                                       \
            call(1, ACT_TILE);                                                                     \
        break;                                                                                     \
    case 2:                                                                                        \
        call(2, ACT_TILE);                                                                         \
        break;                                                                                     \
    case 3:                                                                                        \
        call(3, ACT_TILE);                                                                         \
        break;                                                                                     \
    case 4:                                                                                        \
        call(4, ACT_TILE);                                                                         \
        break;                                                                                     \
        MORE_CASES(call)                                                                           \
    }

#define DEFINE_RUN_INT(name, tile)                                                                 \
    static void name(const struct linear_job *j)                                                   \
    {                                                                                              \
        EACH_TILE                                                                                  \
        for (uint32_t p = 0; p < j->n_panels; p++)                                                 \
            SWITCH_ROWS(RUN_##tile)                                                                \
    }

#define RUN_linear_q8_0(m, t) linear_q8_0(j, p, row, (m), (t))
#define RUN_linear_q4_0(m, t) linear_q4_0(j, p, row, (m), (t))
#define RUN_linear_q4_k(m, t) linear_q4_k(j, p, row, (m), (t))
#define RUN_linear_q6_k(m, t) linear_q6_k(j, p, row, (m), (t))
DEFINE_RUN_INT(run_q8_0, linear_q8_0)
DEFINE_RUN_INT(run_q4_0, linear_q4_0)
DEFINE_RUN_INT(run_q4_k, linear_q4_k)
DEFINE_RUN_INT(run_q6_k, linear_q6_k)

/* One or two rows take four panels at a time, more take two. */
#define DEFINE_RUN_FLOAT(name, tile)                                                               \
    static void name(const struct linear_job *j)                                                   \
    {                                                                                              \
        EACH_TILE                                                                                  \
        {                                                                                          \
            uint32_t p = 0, n = left <= 2 ? 4 : 2;                                                 \
            for (; p + n <= j->n_panels; p += n)                                                   \
                SWITCH_ROWS(RUN_WIDE_##tile)                                                       \
            for (; p < j->n_panels; p++)                                                           \
                SWITCH_ROWS(RUN_##tile)                                                            \
        }                                                                                          \
    }

#define RUN_linear_f32(m, t) linear_f32(j, p, row, (m), (t), 1)
#define RUN_linear_f16(m, t) linear_f16(j, p, row, (m), (t), 1)
#define RUN_linear_bf16(m, t) linear_bf16(j, p, row, (m), (t), 1)
#define RUN_WIDE_linear_f32(m, t) linear_f32(j, p, row, (m), (t), (m) <= 2 ? 4 : 2)
#define RUN_WIDE_linear_f16(m, t) linear_f16(j, p, row, (m), (t), (m) <= 2 ? 4 : 2)
#define RUN_WIDE_linear_bf16(m, t) linear_bf16(j, p, row, (m), (t), (m) <= 2 ? 4 : 2)
DEFINE_RUN_FLOAT(run_f32, linear_f32)
DEFINE_RUN_FLOAT(run_f16, linear_f16)
DEFINE_RUN_FLOAT(run_bf16, linear_bf16)
