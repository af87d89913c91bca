/* BF16 with the processor's dot product of bf16 pairs: activations are rounded to bf16, products
 * are exact, and each step adds two of them to an f32 sum. Panels as in linear_float_impl.h.
 *
 * Panels are read as they are, also by many rows, and the hardware looks ahead. Only where that
 * instruction is faster than f32 multiply-adds (kernels.c). */
#define BF16_DOT __attribute__((target("avx512bf16")))

BF16_DOT INLINE vf dot_bf16(vf acc, const uint8_t *w, const uint16_t *pair)
{
    const __m512bh a = (__m512bh)_mm512_set1_epi32(load_i32(pair));
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_loadu_si512((const void *)w), a);
}

/* Sums over n pairs, from w (P panels, `apart` bytes from one to the next) and from the packed
 * activations at x (tiles of T rows, x_tile values apart), onto acc. */
#define DOT_PAIRS(n)                                                                               \
    for (uint32_t i = 0; i < (n); i++) {                                                           \
        EACH_ROW                                                                                   \
        {                                                                                          \
            const uint16_t *a = x + (m) / T * x_tile + ((size_t)i * T + (m) % T) * 2;              \
            UNROLL for (int p = 0; p < P; p++) acc[m][p] =                                         \
                dot_bf16(acc[m][p], w + p * apart + (size_t)i * 64, a);                            \
        }                                                                                          \
    }

BF16_DOT INLINE void linear_bf16dot_in(
    const struct linear_job *j, uint32_t p0, uint32_t row, const int M, const int T, const int P)
{
    const uint32_t n_pairs = (j->act->k + 1) / 2;
    const size_t x_tile = (size_t)n_pairs * 2 * T, apart = j->panel_bytes;
    const uint16_t *x = j->act->bf16 + row / T * x_tile + row % T * 2;
    const uint8_t *w = j->panels + p0 * j->panel_bytes;
    vf acc[LINEAR_M][4];
    EACH_ROW UNROLL for (int p = 0; p < P; p++) acc[m][p] = vf_zero();
    DOT_PAIRS(n_pairs)
    EACH_ROW UNROLL for (int p = 0; p < P; p++)
        linear_put(j, row + m, (p0 + p) * PANEL_COLS, acc[m][p]);
}

DEFINE_IN_TILES(BF16_DOT, linear_bf16dot)

/* The same for a part of K of many rows: see linear_tile_impl.h. */
BF16_DOT INLINE void tile_bf16dot(const struct tile *t, uint32_t row, const int M)
{
    enum { T = ACT_TILE, P = TILE_PANELS };
    const uint32_t n_pairs = (t->j->act->k + 1) / 2;
    const size_t x_tile = (size_t)n_pairs * 2 * T;
    const size_t apart = t->n_panels == 1 ? 0 : t->j->panel_bytes; /* alone: once more in vain */
    const uint16_t *x = t->j->act->bf16 + row / T * x_tile + (size_t)t->first_k * T;
    const uint8_t *w = t->panels + (size_t)t->first_k * PANEL_COLS * 2;
    float *sums = tile_sums(t, row);
    vf acc[TILE_FLOAT_M][TILE_VECS];
    EACH_ROW UNROLL for (int p = 0; p < P; p++) acc[m][p] = vf_load(sums + (m * P + p) * VL);
    DOT_PAIRS((t->n_k + 1) / 2)
    EACH_ROW UNROLL for (int p = 0; p < P; p++) vf_store(sums + (m * P + p) * VL, acc[m][p]);
}

#define DEFINE_BF16DOT(m) BF16_DOT DEFINE_MULTIPLY(bf16dot, m, tile_bf16dot(t, row, m))
DEFINE_BF16DOT(4)
DEFINE_BF16DOT(8)
DEFINE_BF16DOT(12)

static void tiled_bf16dot(const struct linear_job *j)
{
    static const struct tile_format format = {
        .panels = TILE_PANELS,
        .part_k = TILE_FLOAT_K,
        .part_bytes = TILE_FLOAT_K * PANEL_COLS * 2,
        .max_rows = TILE_FLOAT_M,
        .multiply = {multiply4_bf16dot, multiply8_bf16dot, multiply12_bf16dot}};
    run_tiled(j, &format);
}

/* Operations done in n rounds; see run_peak_int8. */
BF16_DOT static double run_peak_bf16(uint64_t n)
{
    float pair = 0.5f; /* two bf16 in 32 bits */
    vf s[N_SUMS];
    UNROLL for (int i = 0; i < N_SUMS; i++) s[i] = vf_set1((float)i);
    for (uint64_t r = 0; r < n; r++) {
        __asm__ volatile("" : "+m"(pair)); /* a new operand each round */
        const __m512bh x = (__m512bh)vf_set1(pair);
        UNROLL for (int i = 0; i < N_SUMS; i++) s[i] = _mm512_dpbf16_ps(s[i], x, x);
    }
    float total = 0;
    UNROLL for (int i = 0; i < N_SUMS; i++) total += vf_sum(s[i]);
    __asm__ volatile("" : : "m"(total));
    return (double)n * N_SUMS * VL * 2 * 2;
}
