/* What happens to one row at a time: norms, activations, packing for the linears. */

/* Squares are summed in two vectors of lanes, then lanes in one fixed tree. */
static void run_norm(const float *x, const float *w, float *out, uint32_t n, float eps)
{
    vf s0 = vf_zero(), s1 = vf_zero();
    uint32_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        vf a = vf_load(x + i), b = vf_load(x + i + VL);
        s0 = vf_fma(a, a, s0);
        s1 = vf_fma(b, b, s1);
    }
    for (; i < n; i += VL) {
        vf a = n - i >= VL ? vf_load(x + i) : vf_load_n(x + i, n - i);
        s0 = vf_fma(a, a, s0);
    }
    vf scale = vf_set1(1.0f / sqrtf(vf_sum(vf_add(s0, s1)) / (float)n + eps));
    for (i = 0; i + VL <= n; i += VL)
        vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), scale), vf_load(w + i)));
    if (i < n) {
        vf a = vf_mul(vf_mul(vf_load_n(x + i, n - i), scale), vf_load_n(w + i, n - i));
        vf_store_n(out + i, a, n - i);
    }
}

/* The sum of x[i], or of (x[i] - mean)^2, in two vectors of lanes, then lanes in one fixed tree. */
INLINE float sum_of(const float *x, uint32_t n, float mean, const bool squares)
{
    const vf shift = vf_set1(mean);
    vf s[2] = {vf_zero(), vf_zero()};
    for (uint32_t i = 0, at = 0; i < n; i += VL, at ^= 1) {
        const uint32_t left = n - i < VL ? n - i : VL;
        vf a = vf_load_n(x + i, left);
        if (squares) {
            a = vf_first_n(vf_sub(a, shift), vf_zero(), left);
            s[at] = vf_fma(a, a, s[at]);
        } else {
            s[at] = vf_add(s[at], a);
        }
    }
    return vf_sum(vf_add(s[0], s[1]));
}

/* The mean first, then squares of what is left, so that a large mean costs no digits. */
static void run_layer_norm(
    const float *x, const float *w, const float *bias, float *out, uint32_t n, float eps)
{
    const float mean = sum_of(x, n, 0.0f, false) / (float)n;
    const float variance = sum_of(x, n, mean, true) / (float)n;
    const vf shift = vf_set1(mean), scale = vf_set1(1.0f / sqrtf(variance + eps));
    for (uint32_t i = 0; i < n; i += VL) {
        const uint32_t left = n - i < VL ? n - i : VL;
        const vf a = vf_mul(vf_sub(vf_load_n(x + i, left), shift), scale);
        vf_store_n(out + i, vf_fma(a, vf_load_n(w + i, left), vf_load_n(bias + i, left)), left);
    }
}

/* silu(g) * u = g / (1 + e^-g) * u */
INLINE vf silu_mul(vf g, vf u)
{
    vf e = vf_exp(vf_sub(vf_zero(), g));
    return vf_mul(vf_div(g, vf_add(vf_set1(1.0f), e)), u);
}

static void run_silu_mul(const float *gate, const float *up, float *out, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store(out + i, silu_mul(vf_load(gate + i), vf_load(up + i)));
    if (i < n)
        vf_store_n(out + i, silu_mul(vf_load_n(gate + i, n - i), vf_load_n(up + i, n - i)), n - i);
}

static void run_add(const float *x, float *out, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store(out + i, vf_add(vf_load(out + i), vf_load(x + i)));
    if (i < n)
        vf_store_n(out + i, vf_add(vf_load_n(out + i, n - i), vf_load_n(x + i, n - i)), n - i);
}

/* Each of n dims times its cosine and the one that it turns with times its sine, which is negative
 * for the first of a pair. No fused sums: a rotation is the same on every instruction set. */
static void run_rotate(float *x, const float *angles, uint32_t n, enum rope_kind kind)
{
    const float *c = angles, *s = angles + n;
    const uint32_t half = n / 2;
    if (kind == ROPE_ADJACENT) {
        for (uint32_t i = 0; i < n; i += VL) {
            const uint32_t left = n - i < VL ? n - i : VL;
            const vf a = vf_load_n(x + i, left), b = vf_swap_pairs(a);
            const vf turned = vf_mul(b, vf_load_n(s + i, left));
            vf_store_n(x + i, vf_add(vf_mul(a, vf_load_n(c + i, left)), turned), left);
        }
        return;
    }
    for (uint32_t i = 0; i < half; i += VL) {
        const uint32_t left = half - i < VL ? half - i : VL, h = half + i;
        const vf a = vf_load_n(x + i, left), b = vf_load_n(x + h, left);
        const vf a_turned = vf_mul(a, vf_load_n(s + h, left));
        const vf b_turned = vf_mul(b, vf_load_n(s + i, left));
        vf_store_n(x + i, vf_add(vf_mul(a, vf_load_n(c + i, left)), b_turned), left);
        vf_store_n(x + h, vf_add(vf_mul(b, vf_load_n(c + h, left)), a_turned), left);
    }
}

static void run_exp(const float *x, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += VL) {
        uint32_t left = n - i < VL ? n - i : VL;
        vf_store_n(out + i, vf_exp(vf_load_n(x + i, left)), left);
    }
}

/* How values become bytes: q = round(x / d), within least .. most. */
struct pack_steps {
    float d, inverse, least, most;
};

/* amax: max|x|; no number if one is none, and so is d then. */
INLINE struct pack_steps pack_even(float amax)
{
    if (amax <= 1e-30f)
        return (struct pack_steps){0.0f, 0.0f, -127.0f, 127.0f};
    return (struct pack_steps){
        amax / 127.0f, amax > 1e-30f ? 127.0f / amax : 0.0f, -127.0f, 127.0f};
}

/* The same with fewer steps on one side, where values of either sign are high or -low at most:
 * those that reach further become negative, by a negative d if need be. */
INLINE struct pack_steps pack_uneven(float amax, float high, float low, float most)
{
    struct pack_steps s = pack_even(amax);
    s.least = PAIRS_LEAST;
    s.most = most;
    if (!(amax > 1e-30f && amax < INFINITY))
        return s;
    const float far = high > low ? high : low, near = high > low ? low : high;
    const bool by_far = near <= far * (most / -s.least);
    const float sign = high > low ? -1.0f : 1.0f;
    s.d = sign * (by_far ? far / -s.least : near / most);
    s.inverse = sign * (by_far ? -s.least / far : most / near);
    return s;
}

/* The bounds, standing second, replace what is no number. Sums of either half. */
INLINE void pack_block(const float *x, const struct pack_steps *s, int8_t *q, int32_t sum[2])
{
    sum[0] = sum[1] = 0;
    for (int i = 0; i < 32 / VL; i++) {
        const vf steps = vf_min(vf_mul(vf_load(x + i * VL), vf_set1(s->inverse)), vf_set1(s->most));
        vi r = vi_round(vf_max(steps, vf_set1(s->least)));
        sum[i * VL / 16] += vi_store_i8(q + i * VL, r);
    }
}

INLINE struct act_block block_of(float d, const int32_t sum[2])
{
    const int32_t all = sum[0] + sum[1];
    return (struct act_block){.d = d, .dsum = d * (float)all, .n128 = -128 * all, .n8 = -8 * all};
}

INLINE struct act_halves halves_of(float d, const int32_t sum[2])
{
    return (struct act_halves){.n32 = {-32 * sum[0], -32 * sum[1]},
                               .dsum = {d * (float)sum[0], d * (float)sum[1]}};
}

#ifdef DOT_WORDS
INLINE void pack_words(const int8_t *q, uint32_t first, uint32_t end, int16_t *words)
{
    for (uint32_t i = first; i < end; i += 2 * VL)
        vb_store(words + i, vb_words(q + i));
}
#endif

/* The lines written here were last read by another core, and those of x last written there. So both
 * are asked for ahead, but none to write that another core may be writing, behind the end. */
enum { PACK_AHEAD = 512 /* values, and of x half as many */ };

/* Those of 64 values at K = at. */
INLINE void pack_ask(const int8_t *q,
                     const struct act_block *b,
                     const struct act_halves *halves,
                     uint32_t lanes,
                     uint32_t at)
{
    __builtin_prefetch(q + at, 1);
    for (uint32_t g = at / 32; b && g < at / 32 + 2; g++)
        __builtin_prefetch(b + (size_t)g * lanes, 1);
    for (uint32_t g = at / 32; halves && g < at / 32 + 2; g++)
        __builtin_prefetch(halves + (size_t)g * lanes, 1);
}

/* What a group of 32 comes to, at K = at, close to the next one's. */
INLINE void pack_close(const struct act_int8 *to,
                       uint32_t k,
                       uint32_t row,
                       uint32_t lanes,
                       const uint32_t per,
                       uint32_t at,
                       struct act_block b)
{
    if (per == 32) {
        const size_t plane = (size_t)(k / 32) * lanes;
        float *scale = to->scale + row / lanes * plane * ACT_PLANES + row % lanes;
        scale[ACT_D * plane + (size_t)(at / 32) * lanes] = b.d;
        scale[ACT_DSUM * plane + (size_t)(at / 32) * lanes] = b.dsum;
        return;
    }
    to->scale[((size_t)row * k + at) / SUPER_K] = b.d;
    uint16_t *sums = to->sums + row * act_sums_stride(k) + at / 256 * 32 + at % 256 / 32 * 2;
    union {
        float x;
        uint32_t bits;
    } hi = {.x = -b.dsum}, lo;
    hi.bits &= 0xffff0000;
    lo.x = -b.dsum - hi.x;
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
                       struct act_block *b,
                       struct act_halves *halves,
                       uint32_t lanes,
                       unsigned parts,
                       const bool pairs)
{
    const int8_t *q = to->q + row * act_q_stride(k);
    (void)q, (void)b, (void)halves, (void)lanes, (void)parts, (void)pairs;
    (void)first, (void)end;
#ifdef DOT_WORDS
    if (parts & ACT_WORDS)
        pack_words(q, first, end, to->words + row * act_q_stride(k));
#endif
#ifdef DOT_BYTES
    for (uint32_t g = first / 32; b && pairs && g < end / 32; g += 2)
        pairs_of_row(q + g * 32, &b[(size_t)g * lanes].pairs, &b[(size_t)(g + 1) * lanes].pairs);
#endif
#ifdef VN_PAIRS
    for (uint32_t g = first / 32; halves && g < end / 32; g++)
        vn_pairs(q + g * 32, halves[(size_t)g * lanes].n32);
#endif
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
    int8_t *q = to->q + row * act_q_stride(k);
    struct act_block *b = parts & ACT_BLOCKS ? to->b + tile * plane + lane : NULL;
    struct act_halves *halves = parts & ACT_BOTH_HALVES ? to->halves + tile * plane + lane : NULL;
    const bool pairs = per == SUPER_K && parts & ACT_PAIRS;
    const float most = parts & ACT_PAIRS_31 ? PAIRS_MOST_31 : PAIRS_MOST;
    for (uint32_t at = first; at < end && at < first + PACK_AHEAD; at += 64)
        pack_ask(q, b, halves, lanes, at);
    for (uint32_t i = first; i < end; i += per) {
        for (uint32_t at = i; i % 64 == 0 && at < i + per; at += 64) {
            for (int l = 0; l < 4; l++)
                __builtin_prefetch(x + at + PACK_AHEAD / 2 + l * 16);
            if (at + PACK_AHEAD < end)
                pack_ask(q, b, halves, lanes, at + PACK_AHEAD);
        }
        vf top = vf_zero(), high = vf_zero(), low = vf_zero();
        for (uint32_t at = i; at < i + per; at += VL) {
            const vf v = vf_load(x + at);
            top = vf_max_abs(top, v);
            if (pairs) {
                high = vf_max(high, v);
                low = vf_max(low, vf_sub(vf_zero(), v));
            }
        }
        const float amax = vf_hmax_abs(top);
        const struct pack_steps steps =
            pairs ? pack_uneven(amax, vf_hmax(high), vf_hmax(low), most) : pack_even(amax);
        uint16_t sums[SUPER_K / 32];
        for (uint32_t g = 0; g < per / 32; g++) {
            int32_t sum[2];
            pack_block(x + i + g * 32, &steps, q + i + g * 32, sum);
            if (parts & ACT_CLOSE)
                pack_close(to, k, row, lanes, per, i + g * 32, block_of(steps.d, sum));
            if (b)
                b[(size_t)(i / 32 + g) * lanes] = block_of(steps.d, sum);
            if (halves)
                halves[(size_t)(i / 32 + g) * lanes] = halves_of(steps.d, sum);
            sums[g] = (uint16_t)(sum[0] + sum[1]);
        }
        for (uint32_t g = 0; b && per == SUPER_K && g < SUPER_K / 32; g += 2)
            b[(size_t)(i / 32 + g) * lanes].sums = (int32_t)((uint32_t)sums[g + 1] << 16 | sums[g]);
    }
    pack_again(to, k, row, first, end, b, halves, lanes, parts, pairs);
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
