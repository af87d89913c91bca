/* What happens to rows before matrices: packing, in the forms that cpu_act_kinds names.
 *
 * Bytes are made of four groups of 32 at a time, 128 of K, so that what goes across a vector, a
 * maximum or a sum, is had of four together. */
enum { PACK_GROUPS = 4, PACK_AHEAD = 512 /* values, and of x half as many */ };

/* How the values of each group become bytes: q = round(x / d), within least .. most. */
struct pack_steps {
    float d[PACK_GROUPS], inverse[PACK_GROUPS], least, most;
};

/* amax: max|x|; no number if one is none, and so is d then. */
INLINE void pack_even(float amax, float *d, float *inverse)
{
    const bool some = amax > 1e-30f, none = amax <= 1e-30f;
    *d = none ? 0.0f : amax / 127.0f;
    *inverse = some ? 127.0f / amax : 0.0f;
}

/* The same with fewer steps on one side, where values of either sign are high or -low at most:
 * those that reach further become negative, by a negative d if need be. Which do is anyone's guess,
 * so that is looked up: a branch would be missed every other time. */
INLINE void pack_uneven(
    float amax, float high, float low, const float most, float *d, float *inverse)
{
    pack_even(amax, d, inverse);
    if (!(amax > 1e-30f && amax < INFINITY))
        return;
    const float far = high > low ? high : low, near = high > low ? low : high;
    const float reach[] = {near, far}, steps[] = {most, -PAIRS_LEAST}, signs[] = {1.0f, -1.0f};
    const int by = near <= far * (most / -PAIRS_LEAST), side = high > low;
    *d = signs[side] * (reach[by] / steps[by]);
    *inverse = signs[side] * (steps[by] / reach[by]);
}

#ifdef DOT_WORDS
INLINE void pack_words(const int8_t *q, uint32_t first, uint32_t end, int16_t *words)
{
    for (uint32_t i = first; i < end; i += 2 * VL)
        vb_store(words + i, vb_words(q + i));
}
#endif

/* What a group of 32 comes to, at K = at, close to the next one's. */
INLINE void pack_close(const struct act_int8 *to,
                       uint32_t k,
                       uint32_t row,
                       uint32_t lanes,
                       const uint32_t per,
                       uint32_t at,
                       float d,
                       float dsum)
{
    if (per == 32) {
        const size_t plane = (size_t)(k / 32) * lanes;
        float *scale = to->scale + row / lanes * plane * ACT_PLANES + row % lanes;
        scale[ACT_D * plane + (size_t)(at / 32) * lanes] = d;
        scale[ACT_DSUM * plane + (size_t)(at / 32) * lanes] = dsum;
        return;
    }
    to->scale[((size_t)row * k + at) / SUPER_K] = d;
    uint16_t *sums = to->sums + row * act_sums_stride(k) + at / 256 * 32 + at % 256 / 32 * 2;
    union {
        float x;
        uint32_t bits;
    } hi = {.x = -dsum}, lo;
    hi.bits &= 0xffff0000;
    lo.x = -dsum - hi.x;
    sums[0] = (uint16_t)(hi.bits >> 16);
    sums[1] = (uint16_t)((lo.bits + 0x8000) >> 16); /* rounded: hi + lo lack 2^-16 of it at most */
    sums[16] = sums[17] = 0;
}

/* What is made of a row's bytes, once all are stored: a load that is wider than the stores before
 * it waits until they have left the processor. */
INLINE void pack_again(const struct act_int8 *to,
                       uint32_t k,
                       uint32_t row,
                       uint32_t first,
                       uint32_t end,
                       struct act_halves *halves,
                       uint32_t lanes,
                       unsigned parts)
{
    const int8_t *q = to->q + row * act_q_stride(k);
    (void)q, (void)halves, (void)lanes, (void)parts, (void)first, (void)end;
#ifdef DOT_WORDS
    if (parts & ACT_WORDS)
        pack_words(q, first, end, to->words + row * act_q_stride(k));
#endif
#ifdef VN_PAIRS
    for (uint32_t g = first / 32; halves && g < end / 32; g++)
        vn_pairs(q + g * 32, halves[(size_t)g * lanes].n32);
#endif
}

/* Of some vectors, none of them negative, the largest lanes; no number is the largest. */
INLINE void pack_tops(const vf v[PACK_GROUPS], float top[PACK_GROUPS], const int n)
{
#ifdef FOUR_AT_ONCE
    if (n > 1) {
        vf_hmax_abs_four(v, top);
        return;
    }
#endif
    for (int i = 0; i < n; i++)
        top[i] = vf_hmax_abs(v[i]);
}

/* n groups; per: values that share a scale, 32 or all. */
INLINE struct pack_steps pack_steps_of(
    const float *x, const int n, const uint32_t per, const bool pairs, float most)
{
    struct pack_steps s = {.least = pairs ? PAIRS_LEAST : -127.0f, .most = pairs ? most : 127.0f};
    vf tops[PACK_GROUPS], high = vf_zero(), low = vf_zero();
    float top[PACK_GROUPS];
    UNROLL for (int g = 0; g < n; g++)
    {
        tops[g] = vf_zero();
        UNROLL for (int i = 0; i < 32; i += VL)
        {
            const vf v = vf_load(x + g * 32 + i);
            tops[g] = vf_max_abs(tops[g], v);
            if (pairs) {
                high = vf_max(high, v);
                low = vf_min(low, v);
            }
        }
    }
    if (per == 32) {
        pack_tops(tops, top, n);
        UNROLL for (int g = 0; g < n; g++) pack_even(top[g], &s.d[g], &s.inverse[g]);
        return s;
    }
    UNROLL for (int g = 1; g < n; g++) tops[0] = vf_max_abs(tops[0], tops[g]);
    tops[1] = high;
    tops[2] = vf_sub(vf_zero(), low);
    tops[3] = tops[0];
    pack_tops(tops, top, pairs ? PACK_GROUPS : 1);
    if (pairs)
        pack_uneven(top[0], top[1], top[2], most, &s.d[0], &s.inverse[0]);
    else
        pack_even(top[0], &s.d[0], &s.inverse[0]);
    UNROLL for (int g = 1; g < n; g++)
    {
        s.d[g] = s.d[0];
        s.inverse[g] = s.inverse[0];
    }
    return s;
}

/* The bytes of n groups, the sums of either half of each, and what they have as pairs
 * (linear_pairs_impl.h; bytes just stored are not to be had again at once). */
INLINE void pack_bytes(const float *x,
                       const struct pack_steps *s,
                       int8_t *q,
                       int32_t sums[2][PACK_GROUPS],
                       int32_t pair[PACK_GROUPS],
                       const bool pairs,
                       const int n)
{
    enum { VECS = 32 / VL };
    (void)pair, (void)pairs;
    vi r[PACK_GROUPS * VECS];
    UNROLL for (int i = 0; i < n * VECS; i++)
    {
        /* The bounds, standing second, replace what is no number. */
        const vf steps = vf_mul(vf_load(x + i * VL), vf_set1(s->inverse[i / VECS]));
        r[i] = vi_round(vf_max(vf_min(steps, vf_set1(s->most)), vf_set1(s->least)));
    }
#ifdef FOUR_AT_ONCE
    if (n == PACK_GROUPS) {
        const vb bytes[] = {vb_from_four(r), vb_from_four(r + 4)};
        vb_store(q, bytes[0]);
        vb_store(q + 64, bytes[1]);
        for (int i = 0; pairs && i < 2; i++)
            pairs_of_row(bytes[i], &pair[2 * i], &pair[2 * i + 1]);
        vi_sums_of_four(r[0], r[2], r[4], r[6], sums[0]);
        vi_sums_of_four(r[1], r[3], r[5], r[7], sums[1]);
        return;
    }
#endif
    UNROLL for (int g = 0; g < n; g++) sums[0][g] = sums[1][g] = 0;
    UNROLL for (int i = 0; i < n * VECS; i++) sums[i % VECS * VL / 16][i / VECS] +=
        vi_store_i8(q + i * VL, r[i]);
}

/* Where a row goes. */
struct pack_to {
    const struct act_int8 *to;
    uint32_t k, row, lanes;
    unsigned parts;
    int8_t *q;
    struct act_block *b;       /* NULL where nobody reads them */
    struct act_halves *halves; /* likewise */
};

/* n groups from K = at on. */
INLINE void pack_groups(
    const float *x, const struct pack_to *p, uint32_t at, const int n, const uint32_t per)
{
    const bool pairs = per == SUPER_K && p->parts & ACT_PAIRS;
    const struct pack_steps steps =
        pack_steps_of(x, n, per, pairs, p->parts & ACT_PAIRS_31 ? PAIRS_MOST_31 : PAIRS_MOST);
    const float *d = steps.d;
    int32_t sums[2][PACK_GROUPS], pair[PACK_GROUPS] = {0}, all[PACK_GROUPS];
    pack_bytes(x, &steps, p->q + at, sums, pair, pairs, n);
    UNROLL for (int g = 0; g < n; g++) all[g] = sums[0][g] + sums[1][g];
    const size_t block = (size_t)at / 32 * p->lanes;
    for (int g = 0; p->b && g < n; g++) {
        struct act_block *b = &p->b[block + (size_t)g * p->lanes];
        *b = (struct act_block){.d = d[g], .n128 = -128 * all[g]};
        if (per == 32) {
            b->dsum = d[g] * (float)all[g];
            b->n8 = -8 * all[g];
        } else {
            b->sums = g % 2 ? 0 : (int32_t)((uint32_t)all[g + 1] << 16 | (uint16_t)all[g]);
            b->pairs = pair[g];
        }
    }
    for (int g = 0; p->halves && g < n; g++)
        p->halves[block + (size_t)g * p->lanes] =
            (struct act_halves){.n32 = {-32 * sums[0][g], -32 * sums[1][g]},
                                .dsum = {d[g] * (float)sums[0][g], d[g] * (float)sums[1][g]}};
    for (int g = 0; p->parts & ACT_CLOSE && g < n; g++)
        pack_close(
            p->to, p->k, p->row, p->lanes, per, at + (uint32_t)g * 32, d[g], d[g] * (float)all[g]);
}

/* The lines written here were last read by another core, and those of x last written there. So both
 * are asked for ahead, but none to write that another core may be writing, behind the end. These
 * are the lines of 64 values at K = at. */
INLINE void pack_ask(const struct pack_to *p, uint32_t at)
{
    __builtin_prefetch(p->q + at, 1);
    for (uint32_t g = at / 32; p->b && g < at / 32 + 2; g++)
        __builtin_prefetch(p->b + (size_t)g * p->lanes, 1);
    for (uint32_t g = at / 32; p->halves && g < at / 32 + 2; g++)
        __builtin_prefetch(p->halves + (size_t)g * p->lanes, 1);
}

INLINE void pack_int8(const float *x,
                      uint32_t k,
                      const struct act_int8 *to,
                      uint32_t row,
                      uint32_t first,
                      uint32_t end,
                      uint32_t lanes,
                      unsigned parts,
                      const uint32_t per)
{
    const size_t plane = (size_t)(k / 32) * lanes, tile = row / lanes, lane = row % lanes;
    const struct pack_to p = {
        .to = to,
        .k = k,
        .row = row,
        .lanes = lanes,
        .parts = parts,
        .q = to->q + row * act_q_stride(k),
        .b = parts & ACT_BLOCKS ? to->b + tile * plane + lane : NULL,
        .halves = parts & ACT_BOTH_HALVES ? to->halves + tile * plane + lane : NULL,
    };
    uint32_t at = first;
    for (uint32_t a = first; a < end && a < first + PACK_AHEAD; a += 64)
        pack_ask(&p, a);
    for (; at + SUPER_K <= end; at += SUPER_K) {
        for (uint32_t a = at; a < at + SUPER_K; a += 64) {
            for (int l = 0; l < 4; l++)
                __builtin_prefetch(x + a + PACK_AHEAD / 2 + l * 16);
            if (a + PACK_AHEAD < end)
                pack_ask(&p, a + PACK_AHEAD);
        }
        pack_groups(x + at, &p, at, PACK_GROUPS, per);
    }
    for (; per == 32 && at < end; at += 32)
        pack_groups(x + at, &p, at, 1, per);
    pack_again(to, k, row, first, end, p.halves, lanes, parts);
}

/* Rounded to nearest even, as pairs of adjacent k. */
INLINE void pack_bf16(
    const float *x, uint32_t k, uint32_t first, uint32_t end, uint16_t *to, uint32_t lanes)
{
    for (uint32_t i = first; i < end; i++)
        to[(size_t)(i / 2) * 2 * lanes + i % 2] = f32_to_bf16(x[i]);
    if (k % 2 && end == k)
        to[(size_t)(k / 2) * 2 * lanes + 1] = 0;
}

static void run_pack(const float *x,
                     struct act *a,
                     uint32_t row,
                     uint32_t first,
                     uint32_t end,
                     unsigned kinds,
                     uint32_t lanes)
{
    const uint32_t tile = row / lanes, lane = row % lanes, k = a->k;
    if (kinds & ACT_F32) {
        float *to = a->x + (size_t)tile * k * lanes + lane;
        for (uint32_t i = first; i < end; i++)
            to[(size_t)i * lanes] = x[i];
    }
    if (kinds & ACT_BF16) {
        uint16_t *to = a->bf16 + ((size_t)tile * ((k + 1) / 2) * lanes + lane) * 2;
        pack_bf16(x, k, first, end, to, lanes);
    }
#ifdef WITH_AMX
    if (kinds & ACT_TWO)
        pack_two(x, first, end, a->two + row * act_two_stride(k));
    if (kinds & ACT_HIGH)
        pack_high(x, first, end, a->hi + row * act_high_stride(k));
#endif
    if (kinds & ACT_INT8)
        pack_int8(x, k, &a->by32, row, first, end, lanes, kinds, 32);
    if (kinds & ACT_INT8_128)
        pack_int8(x, k, &a->by128, row, first, end, lanes, kinds, SUPER_K);
}
