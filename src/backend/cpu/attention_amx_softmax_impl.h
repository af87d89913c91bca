/* Attention on the tile unit: scores of a tile to weights, as products take them
 * (attention_amx_impl.h). */

/* Vectors h and h + 1 of query i's scores as its softmax takes them, and the largest of those seen;
 * whole: all are; plain: scores are taken as they are. */
INLINE void amx_attn_top(const struct attn_state *s,
                         uint32_t i,
                         uint32_t pos,
                         uint32_t h,
                         struct attn_seen seen,
                         vf *top,
                         const bool whole,
                         const bool plain)
{
    float *w = s->w + i * ATTN_W_STRIDE + h * VL;
    UNROLL for (uint32_t k = 0; k < 2; k++)
    {
        vf x = vf_load(w + k * VL);
        if (!plain && s->j->cap > 0.0f)
            x = cap_of(x, s->j->cap);
        if (!plain && s->j->slopes)
            x = attn_slope(s, i, pos + (h + k) * VL, x);
        if (!plain)
            vf_store(w + k * VL, x);
        top[k] = whole ? vf_max(top[k], x)
                       : _mm512_mask_max_ps(top[k], amx_attn_lanes(seen, h + k), top[k], x);
    }
}

/* The upper halves of 32 floats. */
INLINE vb amx_attn_upper(vf first, vf second)
{
    static const uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                     23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                     45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    return _mm512_permutex2var_epi16(
        _mm512_castps_si512(first), vb_load((const uint8_t *)odd), _mm512_castps_si512(second));
}

/* To the nearest with upper bits alone, which the lower ones do not show. */
INLINE vf amx_attn_rounded(vf x)
{
    return _mm512_castsi512_ps(vi_plus(_mm512_castps_si512(x), vi_set1(0x8000)));
}

/* Vectors h and h + 1 of w to weights, in place: hi, then lo, of A, or in pairs, each of a position
 * and the one 16 behind. */
INLINE void amx_attn_weigh(float *w,
                           uint32_t h,
                           struct attn_seen seen,
                           vf less,
                           vf *sum,
                           const bool whole,
                           const bool pairs)
{
    vf x[2], lo[2];
    UNROLL for (uint32_t k = 0; k < 2; k++)
    {
        x[k] = attn_exp(vf_sub(vf_load(w + (h + k) * VL), less));
        if (!whole)
            x[k] = _mm512_maskz_mov_ps(amx_attn_lanes(seen, h + k), x[k]);
        sum[k] = vf_add(sum[k], x[k]);
        const vf hi = amx_attn_rounded(x[k]);
        lo[k] = amx_attn_rounded(vf_sub(x[k], amx_upper(hi)));
        x[k] = hi;
    }
    vb_store((uint8_t *)(w + h * VL), pairs ? amx_pairs(x[0], x[1]) : amx_attn_upper(x[0], x[1]));
    vb_store((uint8_t *)(w + (h + 1) * VL),
             pairs ? amx_pairs(lo[0], lo[1]) : amx_attn_upper(lo[0], lo[1]));
}

/* Query i's scores of all that the job's queries see. */
INLINE void amx_attn_softmax_of(const struct attn_state *s,
                                uint32_t i,
                                uint32_t pos,
                                struct attn_seen any,
                                const bool plain,
                                const bool pairs)
{
    const struct attn_seen seen = attn_sees(s, i, pos);
    const uint32_t first = any.from / 32 * 2, end = amx_attn_steps(any.end) * 2;
    vf top[2] = {vf_set1(-INFINITY), vf_set1(-INFINITY)}, sum[2] = {vf_zero(), vf_zero()};
    for (uint32_t h = first; h < end; h += 2) {
        if (h * VL >= seen.from && (h + 2) * VL <= seen.end)
            amx_attn_top(s, i, pos, h, seen, top, true, plain);
        else
            amx_attn_top(s, i, pos, h, seen, top, false, plain);
    }
    const float highest = vf_hmax(vf_max(top[0], top[1]));
    if (highest > s->m[i]) /* not where it is no number */
        s->m[i] = highest;
    const vf less = vf_set1(s->m[i]);
    float *w = s->w + i * ATTN_W_STRIDE;
    for (uint32_t h = first; h < end; h += 2) {
        if (h * VL >= seen.from && (h + 2) * VL <= seen.end)
            amx_attn_weigh(w, h, seen, less, sum, true, pairs);
        else
            amx_attn_weigh(w, h, seen, less, sum, false, pairs);
    }
    vf_store(s->l + i * KV_TILE, vf_add(sum[0], sum[1]));
}

NOT_INLINE static void amx_attn_softmax(const struct attn_state *s,
                                        uint32_t pos,
                                        struct attn_seen any)
{
    const bool plain = s->j->cap == 0.0f && !s->j->slopes, pairs = s->j->kv->latent;
    for (uint32_t i = 0; i < s->n_query; i++) {
        if (plain && pairs)
            amx_attn_softmax_of(s, i, pos, any, true, true);
        else if (plain)
            amx_attn_softmax_of(s, i, pos, any, true, false);
        else
            amx_attn_softmax_of(s, i, pos, any, false, pairs);
    }
}
