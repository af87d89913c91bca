/* Many rows of activations in int8 and quantised weights in their wide form, M rows at a time
 * (linear_tile_impl.h).
 *
 * Of one row, 16 columns and 128 of K on two ports of AVX-512, 32 vpdpbusd beside
 *
 *     12  where 32 of K have a scale: a conversion, a product of scales, a multiply-add each
 *     11  where scales are integers: a shuffle and a vpdpwssd each (vi_add_times), then those three
 *     15  with minima: two vpdpwssd, a conversion and a multiply-add more
 *     19  with a scale for either half of 32
 *      3  where the scale is in the bytes: SUPER_SCALED
 *
 * so 73, 74, 68, 63 and 91 % of the integer peak are what is possible.
 *
 * With AVX2 alone bytes up to 15, or up to 31 or q + 32 over 16 of K, are summed in 16 bits: a
 * multiplication for 4 of K; of others up to 63 (Q2_K) two such sums, three for 8. Those that are
 * left, q + 128, would take three, of which one moves a sign, and take two as words. */

#ifdef DOT_WORDS
#define IN_WORDS(kind)                                                                             \
    ((kind) == WIDE_PLUS_128 || (kind) == WIDE_HALVES_128 || (kind) == SUPER_PLUS_128)
#else
#define IN_WORDS(kind) ((void)(kind), false)
#endif
#define IN_HALVES(kind)                                                                            \
    ((kind) == WIDE_HALVES || (kind) == WIDE_HALVES_128 || (kind) == SUPER_HALVES ||               \
     (kind) == SUPER_MIN_HALVES)
#define WIDE_STRIDE(kind) (WIDE_BYTES + (IN_WORDS(kind) ? WORDS_BYTES : 0))

/* Where M rows and a group are. Of four rows every address is made of one, as a processor adds them
 * up in a load. */
struct tile_at {
    const int8_t *q[TILE_INT_M / ACT_TILE]; /* activations of the i-th four rows, or their words */
    size_t stride, stride_3;                /* to the next row's, and three times that */
    const struct act_block *b[TILE_INT_M / ACT_TILE];
    const struct act_halves *halves[TILE_INT_M / ACT_TILE]; /* of kinds that have any */
    const uint8_t *wide;                                    /* the first panel's */
};

/* A compiler that knew how these hang together would keep an address of each row and vector. */
#define APART(x) __asm__("" : "+r"(x))
#define APART_3(x, y, z) __asm__("" : "+r"(x), "+r"(y), "+r"(z))

INLINE struct tile_at tile_begin(const struct tile *t,
                                 const struct act_int8 *acts,
                                 uint32_t row,
                                 const int M,
                                 const enum wide_kind kind)
{
    const uint32_t k = t->j->act->k, each = IN_WORDS(kind) ? sizeof *acts->words : 1;
    const int8_t *q = IN_WORDS(kind) ? (const int8_t *)acts->words : acts->q;
    struct tile_at at = {.stride = act_q_stride(k) * each, .wide = t->wide};
    at.stride_3 = at.stride * 3;
    for (uint32_t i = 0; i < (uint32_t)M / ACT_TILE; i++) {
        at.q[i] = q + (row + i * ACT_TILE) * at.stride + t->first_k * each;
        const size_t block = ((size_t)(row / ACT_TILE + i) * k + t->first_k) / 32 * ACT_TILE;
        at.b[i] = acts->b + block;
        at.halves[i] = acts->halves + block;
    }
    return at;
}

/* To the next 32 of K. */
INLINE void tile_step(struct tile_at *at, const int M, const enum wide_kind kind)
{
    for (int i = 0; i < M / ACT_TILE; i++) {
        at->q[i] += IN_WORDS(kind) ? 64 : 32;
        at->b[i] += ACT_TILE;
        APART(at->b[i]);
        if (IN_HALVES(kind)) {
            at->halves[i] += ACT_TILE;
            APART(at->halves[i]);
        }
    }
    at->wide += WIDE_STRIDE(kind);
    APART_3(at->q[0], at->stride, at->stride_3);
    APART(at->q[M / ACT_TILE - 1]);
}

#define Q_AT(m) ((m) % 4 == 3 ? at->stride_3 : (size_t)((m) % 4) * at->stride)
#define DOTS_AT(begin, end, where, dot, s)                                                         \
    UNROLL for (int g = begin; g < end; g++)                                                       \
    {                                                                                              \
        vb wv[TILE_VECS];                                                                          \
        UNROLL for (int v = 0; v < TILE_VECS; v++) wv[v] =                                         \
            vb_load(at->wide + WIDE_AT(v) + where + g * 64);                                       \
        EACH_ROW                                                                                   \
        {                                                                                          \
            const int32_t a = load_i32(at->q[(m) / 4] + Q_AT(m) + g * 4);                          \
            UNROLL for (int v = 0; v < TILE_VECS; v++) s[m][v] = dot(s[m][v], wv[v], a);           \
        }                                                                                          \
    }
#define DOTS(begin, end, dot, s) DOTS_AT(begin, end, WIDE_Q, dot, s)
#ifdef DOT_WORDS
#define DOTS_128(begin, end, s) DOTS_AT(2 * begin, 2 * end, WIDE_BYTES, vi_dot_words, s)
#else
#define DOTS_128(begin, end, s) DOTS(begin, end, vi_dot128, s)
#endif
/* Bytes up to 63. */
#ifdef DOT_TWO
#define WEIGHTS_AT(v, g) vb_load(at->wide + WIDE_AT(v) + WIDE_Q + (g)*64)
#define DOTS_63(s)                                                                                 \
    UNROLL for (int g = 0; g < 8; g += 2)                                                          \
    {                                                                                              \
        vb w0[TILE_VECS], w1[TILE_VECS];                                                           \
        UNROLL for (int v = 0; v < TILE_VECS; v++) w0[v] = WEIGHTS_AT(v, g);                       \
        UNROLL for (int v = 0; v < TILE_VECS; v++) w1[v] = WEIGHTS_AT(v, g + 1);                   \
        EACH_ROW                                                                                   \
        {                                                                                          \
            const int8_t *a = at->q[(m) / 4] + Q_AT(m) + g * 4;                                    \
            const int32_t a0 = load_i32(a), a1 = load_i32(a + 4);                                  \
            UNROLL for (int v = 0; v < TILE_VECS; v++) s[m][v] =                                   \
                vi_dot_two(s[m][v], w0[v], a0, w1[v], a1);                                         \
        }                                                                                          \
    }
#else
#define DOTS_63(s) DOTS(0, 8, vi_dot, s)
#endif
/* A vn that holds 16 of K of bytes up to 31, and then the other half, as 32 bits. */
#define DOTS_31(s)                                                                                 \
    EACH_SUM n[m][v] = vn_begin(0);                                                                \
    DOTS(0, 4, vn_dot, n)                                                                          \
    EACH_SUM s[m][v] = vi_plus(s[m][v], vn_end(n[m][v], 0));                                       \
    EACH_SUM n[m][v] = vn_begin(0);                                                                \
    DOTS(4, 8, vn_dot, n)                                                                          \
    EACH_SUM s[m][v] = vi_plus(s[m][v], vn_end(n[m][v], 0));
#define BLOCK(m) (&at->b[(m) / ACT_TILE][(m) % ACT_TILE])
#define HALVES(m) (&at->halves[(m) / ACT_TILE][(m) % ACT_TILE])
#define SCALE_AT(v, where) vi_load((const int32_t *)(at->wide + WIDE_AT(v) + (where)))
#define FLOAT_AT(v, where) vf_load((const float *)(at->wide + WIDE_AT(v) + (where)))

/* Where 32 of K have one scale and nothing else, sums stay in registers for 128 of K, all but a
 * few. Groups of other kinds need the registers themselves, so their sums are in memory. Measured
 * on Zen 4 alone. */
#define SUMS_STAY(kind) (VL == 16 && (kind) <= WIDE_PLUS_16)

/* A group of 32 of K meets M rows; sums: of the first row, where they do not stay. */
INLINE void tile_group(const struct tile_at *at,
                       vf stay[TILE_INT_M][TILE_VECS],
                       float *sums,
                       const int M,
                       const enum wide_kind kind)
{
    APART(sums);
    vf ws[TILE_VECS], second[TILE_VECS];
    UNROLL for (int v = 0; v < TILE_VECS; v++)
    {
        ws[v] = FLOAT_AT(v, 0);
        second[v] = FLOAT_AT(v, WIDE_SECOND);
    }
    vi s[TILE_INT_M][TILE_VECS];
    vn n[TILE_INT_M][TILE_VECS];
    vf first[TILE_INT_M][TILE_VECS];
    switch (kind) {
    case WIDE_PLUS_128:
        EACH_SUM s[m][v] = vi_begin128(BLOCK(m)->n128);
        DOTS_128(0, 8, s)
        break;
    case WIDE_PLUS_16:
    case WIDE_MIN_31:
        EACH_SUM s[m][v] = kind == WIDE_MIN_31 ? vi_set1(0) : vi_begin16(BLOCK(m));
        if (VN_MAX >= 31) {
            DOTS(0, 8, vi_dot, s)
        } else {
            DOTS_31(s)
        }
        break;
    case WIDE_HALVES:
        EACH_SUM n[m][v] = vn_begin32(HALVES(m)->n32[0]);
        DOTS(0, 4, vn_dot, n)
        EACH_SUM first[m][v] = vf_mul(vf_from_i(vn_end(n[m][v], 0)), ws[v]);
        EACH_SUM n[m][v] = vn_begin32(HALVES(m)->n32[1]);
        DOTS(4, 8, vn_dot, n)
        EACH_SUM s[m][v] = vn_end(n[m][v], 0);
        break;
    case WIDE_HALVES_128:
        EACH_SUM s[m][v] = vi_begin128_half(HALVES(m), 0);
        DOTS_128(0, 4, s)
        EACH_SUM first[m][v] = vf_mul(vf_from_i(s[m][v]), ws[v]);
        EACH_SUM s[m][v] = vi_begin128_half(HALVES(m), 1);
        DOTS_128(4, 8, s)
        break;
    default: /* WIDE_PLUS_8, WIDE_MIN */
        EACH_SUM n[m][v] = vn_begin(kind == WIDE_MIN ? 0 : BLOCK(m)->n8);
        DOTS(0, 8, vn_dot, n)
        EACH_SUM s[m][v] = vn_end(n[m][v], kind == WIDE_MIN ? 0 : BLOCK(m)->n8);
        break;
    }
    EACH_SUM
    {
        vf sum = SUMS_STAY(kind) ? stay[m][v] : vf_load(SUM_AT(m, v));
        if (kind == WIDE_HALVES || kind == WIDE_HALVES_128)
            sum = add_halves(sum, first[m][v], s[m][v], second[v], BLOCK(m));
        else if (kind == WIDE_MIN || kind == WIDE_MIN_31)
            sum = add_group_min(sum, s[m][v], ws[v], second[v], BLOCK(m));
        else /* beside sums that stay the scales have no registers either */
            sum = add_group(sum, s[m][v], SUMS_STAY(kind) ? FLOAT_AT(v, 0) : ws[v], BLOCK(m));
        if (SUMS_STAY(kind))
            stay[m][v] = sum;
        else
            vf_store(SUM_AT(m, v), sum);
    }
}

/* What sums over q + 128 of SUPER_K begin with. Rows of padding hold anything, so it may wrap. */
INLINE int32_t super_n128(const struct act_block *b)
{
    uint32_t n = 0;
    UNROLL for (int i = 0; i < SUPER_K / 32; i++) n += (uint32_t)b[i * ACT_TILE].n128;
    return (int32_t)n;
}

#define ADD_TIMES(add_times, s, where)                                                             \
    EACH_SUM total[m][v] = add_times(total[m][v], s[m][v], SCALE_AT(v, where));

/* What SUPER_K come to for M rows, and on to the next. It stays in registers, most of it: loading
 * it for each group would keep the multipliers waiting. */
INLINE void tile_totals(struct tile_at *at,
                        vi total[TILE_INT_M][TILE_VECS],
                        const int M,
                        const enum wide_kind kind)
{
    vi s[TILE_INT_M][TILE_VECS];
    vn n[TILE_INT_M][TILE_VECS];
    EACH_ROW
    {
        const vi first = kind == SUPER_SCALED ? vi_begin128(super_n128(BLOCK(m))) : vi_set1(0);
        UNROLL for (int v = 0; v < TILE_VECS; v++) total[m][v] = first;
    }
    for (int i = 0; i < SUPER_K / 32; i++) {
        if (kind == SUPER_SCALED) {
            DOTS(0, 8, vi_dot128, total)
        } else if (kind == SUPER_MIN_HALVES) {
            DOTS_63(total)
        } else if (kind == SUPER_PLUS_128) {
            EACH_SUM s[m][v] = vi_begin128(BLOCK(m)->n128);
            DOTS_128(0, 8, s)
            ADD_TIMES(vi_add_times, s, 0)
        } else if (kind == SUPER_HALVES) {
            EACH_SUM n[m][v] = vn_begin32(HALVES(m)->n32[0]);
            DOTS(0, 4, vn_dot, n)
            ADD_TIMES(vn_add_times, n, 0)
            EACH_SUM n[m][v] = vn_begin32(HALVES(m)->n32[1]);
            DOTS(4, 8, vn_dot, n)
            ADD_TIMES(vn_add_times, n, WIDE_SECOND)
        } else if (kind == SUPER_MIN || VN_MAX >= 31) {
            EACH_SUM n[m][v] = vn_begin(0);
            DOTS(0, 8, vn_dot, n)
            ADD_TIMES(vn_add_times, n, 0)
        } else { /* a vn holds 16 of K */
            EACH_SUM n[m][v] = vn_begin(0);
            DOTS(0, 4, vn_dot, n)
            ADD_TIMES(vn_add_times, n, 0)
            EACH_SUM n[m][v] = vn_begin(0);
            DOTS(4, 8, vn_dot, n)
            ADD_TIMES(vn_add_times, n, 0)
        }
        tile_step(at, M, kind);
    }
}

/* SUPER_K meet M rows, and on to the next. */
INLINE void tile_super(struct tile_at *next, float *sums, const int M, const enum wide_kind kind)
{
    APART(sums);
    vi total[TILE_INT_M][TILE_VECS];
    tile_totals(next, total, M, kind);
    struct tile_at begin = *next, *at = &begin;
    begin.wide -= SUPER_K / 32 * WIDE_STRIDE(kind);
    for (int i = 0; i < M / ACT_TILE; i++)
        begin.b[i] -= SUPER_K / 32 * ACT_TILE;
    for (int i = 0; IN_HALVES(kind) && i < M / ACT_TILE; i++)
        begin.halves[i] -= SUPER_K / 32 * ACT_TILE;
    vf d[TILE_VECS], dmin[TILE_VECS], min[4][TILE_VECS], other[4][TILE_VECS];
    vi off[2][TILE_VECS];
    UNROLL for (int v = 0; v < TILE_VECS; v++)
    {
        d[v] = FLOAT_AT(v, WIDE_THIRD);
        UNROLL for (int g = 0; g < SUPER_K / 32; g++)
        {
            other[g][v] = FLOAT_AT(v, g * WIDE_STRIDE(kind));
            min[g][v] = FLOAT_AT(v, g * WIDE_STRIDE(kind) + WIDE_SECOND);
        }
        dmin[v] = FLOAT_AT(v, WIDE_STRIDE(kind) + WIDE_THIRD);
        UNROLL for (int g = 0; g < 2; g++) off[g][v] =
            SCALE_AT(v, 2 * g * WIDE_STRIDE(kind) + WIDE_SECOND);
    }
    EACH_SUM
    {
        vf sum = vf_load(SUM_AT(m, v));
        if (kind == SUPER_MIN || kind == SUPER_MIN_31) {
            vi n = vi_dot_words(vi_set1(0), off[0][v], BLOCK(m)->sums);
            n = vi_dot_words(n, off[1][v], (BLOCK(m) + 2 * ACT_TILE)->sums);
            vf_store(SUM_AT(m, v), add_super_min(sum, total[m][v], n, d[v], dmin[v], BLOCK(m)));
            continue;
        }
        UNROLL for (int g = 0; kind == SUPER_MIN_HALVES && g < SUPER_K / 32; g++)
        {
            const struct act_halves *h = HALVES(m) + g * ACT_TILE;
            sum = vf_fnma(other[g][v], vf_set1(h->dsum[0]), sum);
            sum = vf_fnma(min[g][v], vf_set1(h->dsum[1]), sum);
        }
        vf_store(SUM_AT(m, v), add_super(sum, total[m][v], d[v], BLOCK(m)));
    }
}

INLINE void tile_int(const struct tile *t, uint32_t row, const int M, const enum wide_kind kind)
{
    const bool super = kind >= SUPER_PLUS_128;
    const struct act_int8 *acts = super ? &t->j->act->by128 : &t->j->act->by32;
    struct tile_at at = tile_begin(t, acts, row, M, kind);
    const uint8_t *end = t->wide + t->n_k / 32 * WIDE_STRIDE(kind);
    const uint8_t *ask = tile_asks(t, row);
    float *sums = tile_sums(t, row);
    while (at.wide < end) {
        tile_ask(t, ask, TILE_PANELS);
        ask += t->ask;
        if (super) {
            tile_super(&at, sums, M, kind);
            continue;
        }
        vf stay[TILE_INT_M][TILE_VECS];
        EACH_SUM stay[m][v] = SUMS_STAY(kind) ? vf_load(SUM_AT(m, v)) : vf_zero();
        for (int i = 0; i < ASK_K / 32 && at.wide < end; i++) {
            tile_group(&at, stay, sums, M, kind);
            tile_step(&at, M, kind);
        }
        if (SUMS_STAY(kind))
            EACH_SUM vf_store(SUM_AT(m, v), stay[m][v]);
    }
}

#undef DOTS_AT
#undef DOTS
#undef DOTS_128
#undef DOTS_63
#undef DOTS_31
#undef ADD_TIMES
#undef Q_AT
#undef BLOCK
#undef HALVES
#undef SCALE_AT
#undef SUMS_STAY
#undef FLOAT_AT
