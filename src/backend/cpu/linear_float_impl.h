/* F32, F16, BF16: the weight as it is, times the activation as it is, in f32: one fused
 * multiply-add a weight, in the order of K.
 *
 *     panel    F32, F16   [K][16] values
 *              BF16       [K/2][16][2]: a lane holds two adjacent K, so that either becomes an f32
 *                         by one shift or mask, and both are what a bf16 dot product takes. An odd
 *                         K ends with a zero.
 *
 * Few rows meet P panels at a time, so that there are enough independent sums in flight. */

/* Weights k, k + 1 of VL columns to f32. k is even for BF16, any for the others. */
INLINE vf load_f32_at(const uint8_t *panel, size_t k, int h)
{
    return vf_load((const float *)panel + k * PANEL_COLS + h * VL);
}

INLINE vf load_f16_at(const uint8_t *panel, size_t k, int h)
{
    return vf_load_f16((const uint16_t *)panel + k * PANEL_COLS + h * VL);
}

INLINE vf load_bf16_at(const uint8_t *panel, size_t k, int h)
{
    const uint8_t *pair = panel + (k / 2 * PANEL_COLS + (size_t)h * VL) * 4;
    return k % 2 ? vf_odd_bf16(pair) : vf_even_bf16(pair);
}

#define FLOAT_STEP(load, k)                                                                        \
    {                                                                                              \
        vf wv[4 * PARTS_AT_ONCE(1)];                                                               \
        EACH_FEW_SUM                                                                               \
        wv[v] = load(w + (size_t)(v / at_once) * j->panel_bytes, (k), begin + v % at_once);        \
        EACH_ROW                                                                                   \
        {                                                                                          \
            vf a = vf_set1(x[(m) / T * x_tile + (size_t)(k)*T + (m) % T]);                         \
            EACH_FEW_SUM acc[m][v] = vf_fma(wv[v], a, acc[m][v]);                                  \
        }                                                                                          \
    }

/* What is asked for at byte `at` of a panel, of P side by side (ASK_FROM, linear_impl.h). */
INLINE const uint8_t *float_ask(
    const struct linear_job *j, const uint8_t *panel, size_t at, bool first, const int P)
{
    const size_t next = at + (first ? j->prefetch : 0);
    return panel + next + (next < j->panel_bytes ? 0 : (size_t)(P - 1) * j->panel_bytes);
}

/* T is a constant here even for a row alone: to multiply by it for every k would take a tenth of
 * the time. */
#define DEFINE_IN_TILES(attribute, name)                                                           \
    attribute INLINE void name(const struct linear_job *j,                                         \
                               uint32_t p0,                                                        \
                               uint32_t row,                                                       \
                               const int M,                                                        \
                               const int T,                                                        \
                               const int P)                                                        \
    {                                                                                              \
        if (T == 1)                                                                                \
            name##_in(j, p0, row, M, 1, P);                                                        \
        else                                                                                       \
            name##_in(j, p0, row, M, ACT_TILE, P);                                                 \
    }

#define DEFINE_LINEAR_FLOAT(name, value_bytes, load)                                               \
    INLINE void name##_in(const struct linear_job *j,                                              \
                          uint32_t p0,                                                             \
                          uint32_t row,                                                            \
                          const int M,                                                             \
                          const int T,                                                             \
                          const int P)                                                             \
    {                                                                                              \
        const uint32_t k = j->act->k;                                                              \
        const size_t x_tile = (size_t)k * T;                                                       \
        const float *x = j->act->x + row / T * x_tile + row % T;                                   \
        const uint8_t *w = j->panels + p0 * j->panel_bytes;                                        \
        FEW_SUMS;                                                                                  \
        for (int begin = 0; begin < PARTS; begin += at_once) {                                     \
            vf acc[LINEAR_M][4 * PARTS_AT_ONCE(1)];                                                \
            EACH_ROW EACH_FEW_SUM acc[m][v] = vf_zero();                                           \
            uint32_t i = 0;                                                                        \
            for (; i + 2 <= k; i += 2) {                                                           \
                UNROLL for (int p = 0; p < P; p++)                                                 \
                {                                                                                  \
                    const uint8_t *panel = w + p * j->panel_bytes;                                 \
                    const uint8_t *ask = float_ask(j,                                              \
                                                   panel,                                          \
                                                   (size_t)i * 16 * (value_bytes),                 \
                                                   begin == 0 && row == j->first_row,              \
                                                   P);                                             \
                    __builtin_prefetch(ask);                                                       \
                    if ((value_bytes) == 4)                                                        \
                        __builtin_prefetch(ask + 64);                                              \
                }                                                                                  \
                FLOAT_STEP(load, i)                                                                \
                FLOAT_STEP(load, i + 1)                                                            \
            }                                                                                      \
            if (i < k)                                                                             \
                FLOAT_STEP(load, i)                                                                \
            PUT_SUMS(acc)                                                                          \
        }                                                                                          \
    }                                                                                              \
    DEFINE_IN_TILES(, name)

/* n of K from k on (even), of one panel, to f32 [n][16]. */
#define DEFINE_WIDEN_FLOAT(name, load)                                                             \
    INLINE void name(const uint8_t *panel, uint32_t k, uint32_t n, float *wide)                    \
    {                                                                                              \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            for (int h = 0; h < PARTS; h++)                                                        \
                vf_store(wide + (size_t)i * PANEL_COLS + h * VL, load(panel, k + i, h));           \
        }                                                                                          \
    }

#define DEFINE_FLOAT(name, value_bytes)                                                            \
    DEFINE_LINEAR_FLOAT(linear_##name, value_bytes, load_##name##_at)                              \
    DEFINE_WIDEN_FLOAT(widen_##name, load_##name##_at)                                             \
    DEFINE_TILE_FLOAT(name, value_bytes)                                                           \
    DEFINE_RUN(, name, FEW_FLOAT)

DEFINE_FLOAT(f32, 4)

DEFINE_FLOAT(f16, 2)

DEFINE_FLOAT(bf16, 2)
