/* Attention on the tile unit: keys and values become B (attention_amx_impl.h), those of a latent A
 * (attention_amx_latent_impl.h), a few rows at a time, while others meet queries, and what comes
 * later is asked for. */

/* Some B: n side by side, of n_steps steps of 32 (dims of keys, positions of values) each. In
 * memory: [n_steps][n]. */
struct amx_attn_group {
    bool values;
    uint32_t at;             /* of keys the first part of 16, of values the first dim; */
    uint32_t n;              /* the next ones follow */
    uint32_t first, n_steps; /* steps */
    uint32_t pos;            /* of the tile, of which */
    struct attn_seen seen;   /* these are seen */
    uint8_t *b;
};

/* Positions that lie in a row do not lie in one block. */
INLINE bool amx_attn_scattered(const struct attn_job *j)
{
    return j->kv->block_tokens % KV_TILE != 0;
}

/* Where rows of one of them lie. */
struct amx_attn_rows {
    const uint8_t *at;
    size_t step;         /* bytes from one to the next */
    const float *scales; /* of Q8_0, a vector for all of them, or */
    size_t scale_step;   /* if this is not 0 one for each, so far apart */
};

/* Of B i from row p of all steps on, up to the next multiple of 16. */
INLINE struct amx_attn_rows amx_attn_rows_of(const struct attn_state *s,
                                             const struct amx_attn_group *g,
                                             uint32_t i,
                                             uint32_t p,
                                             const enum kv_type type)
{
    if (!g->values) {
        const struct attn_part *at = &s->parts[g->at + i];
        const size_t step = at->n_slots * KV_SIZE(type);
        return (struct amx_attn_rows){
            .at = at->k + p * step, .step = step, .scales = at->k_scales + p / 32 * at->n_slots};
    }
    const struct attn_part *at = &s->parts[p / KV_TILE];
    const size_t step = s->n_value * KV_SIZE(type), n_scales = (s->n_value + 31) / 32;
    const uint32_t d = g->at + i * VL;
    return (struct amx_attn_rows){.at = at->v + p % KV_TILE * step + d * KV_SIZE(type),
                                  .step = step,
                                  .scales = at->v_scales + p % KV_TILE * n_scales + d / 32,
                                  .scale_step = n_scales};
}

/* Two rows as pairs: of u, and of v a tile further. */
INLINE void amx_attn_pair(vf first, vf second, const enum kv_type type, uint8_t *to)
{
    vb_store(to, amx_pairs(first, second));
    if (type != KV_BF16)
        vb_store(to + AMX_TILE_BYTES,
                 amx_pairs(vf_sub(first, amx_upper(first)), vf_sub(second, amx_upper(second))));
}

/* 16 rows of 16 columns, of which rows from .. end - 1 are there, the others 0. */
INLINE void amx_attn_split(const struct amx_attn_rows *r,
                           const uint32_t from,
                           const uint32_t end,
                           const enum kv_type type,
                           uint8_t *to)
{
    const uint8_t *at = r->at;
    const size_t step = r->step;
    vf scale = vf_zero();
    if (type == KV_Q8_0 && !r->scale_step)
        scale = vf_load(r->scales);
    UNROLL_4 for (uint32_t i = 0; i < 16; i += 2, at += 2 * step, to += 64)
    {
        vf x[2] = {vf_zero(), vf_zero()};
        UNROLL for (uint32_t k = 0; k < 2; k++)
        {
            if (i + k < from || i + k >= end)
                continue;
            if (type == KV_Q8_0 && r->scale_step)
                scale = vf_set1(r->scales[(i + k) * r->scale_step]);
            x[k] = kv_load_scaled(type, at + k * step, scale);
        }
        amx_attn_pair(x[0], x[1], type, to);
    }
}

/* Value d of the key, or value, at position p of the tile, wherever its block lies. */
static float amx_attn_one(const struct attn_state *s,
                          const struct amx_attn_group *g,
                          uint32_t p,
                          uint32_t d,
                          const enum kv_type type)
{
    const struct attn_part at = attn_part_at(s->j, g->pos + p);
    const bool apart = g->values && !s->j->kv->latent;
    const float x = apart ? kv_get(type, at.v, d) : kv_get(type, at.k, (size_t)d * at.n_slots);
    if (type != KV_Q8_0)
        return x;
    return x * (apart ? at.v_scales[d / 32] : at.k_scales[d / 32 * at.n_slots]);
}

/* Row p of B i of scattered positions. */
static vf amx_attn_row_of_ones(const struct attn_state *s,
                               const struct amx_attn_group *g,
                               uint32_t i,
                               uint32_t p,
                               const enum kv_type type)
{
    float x[VL] = {0};
    for (uint32_t c = 0; c < VL; c++) {
        const uint32_t at = g->values ? p : (g->at + i) * KV_TILE + c;
        const uint32_t d = g->values ? g->at + i * VL + c : p;
        if (at >= g->seen.from && at < g->seen.end && d < (g->values ? s->n_value : s->dim))
            x[c] = amx_attn_one(s, g, at, d, type);
    }
    return vf_load(x);
}

/* Row p of B i, of which something, or all, may be missing: that is 0. */
static vf amx_attn_row(const struct attn_state *s,
                       const struct amx_attn_group *g,
                       uint32_t i,
                       uint32_t p,
                       const enum kv_type type)
{
    if (amx_attn_scattered(s->j))
        return amx_attn_row_of_ones(s, g, i, p, type);
    const uint32_t d = g->at + i * VL, left = g->values && d < s->n_value ? s->n_value - d : 0;
    const bool is = g->values ? p >= g->seen.from && p < g->seen.end && left > 0 : p < s->dim;
    if (!is)
        return vf_zero();
    const struct amx_attn_rows r = amx_attn_rows_of(s, g, i, p, type);
    vf scale = vf_zero();
    if (type == KV_Q8_0)
        scale = g->values ? vf_set1(*r.scales) : vf_load(r.scales);
    return g->values && left < VL ? kv_load_n(type, r.at, left, scale)
                                  : kv_load_scaled(type, r.at, scale);
}

/* 16 rows of B i from p on, one by one. */
static void amx_attn_split_rows(const struct attn_state *s,
                                const struct amx_attn_group *g,
                                uint32_t i,
                                uint32_t p,
                                const enum kv_type type,
                                uint8_t *to)
{
    for (uint32_t k = 0; k < 16; k += 2)
        amx_attn_pair(amx_attn_row(s, g, i, p + k, type),
                      amx_attn_row(s, g, i, p + k + 1, type),
                      type,
                      to + k * 32);
}

/* Of a latent, value d of the 16 positions of the tile from p on, as they lie side by side in K;
 * those not seen are 0. */
static vf amx_attn_latent(const struct attn_state *s,
                          const struct amx_attn_group *g,
                          uint32_t p,
                          uint32_t d,
                          const enum kv_type type)
{
    const __mmask16 lanes = amx_attn_lanes(g->seen, p / VL);
    if (lanes == 0 || d >= s->dim)
        return vf_zero();
    if (amx_attn_scattered(s->j)) {
        float x[VL] = {0};
        for (uint32_t c = 0; c < VL; c++) {
            if (lanes >> c & 1)
                x[c] = amx_attn_one(s, g, p + c, d, type);
        }
        return vf_load(x);
    }
    const struct attn_part *at = &s->parts[p / KV_TILE];
    vf scale = vf_zero();
    if (type == KV_Q8_0)
        scale = vf_load(at->k_scales + d / 32 * at->n_slots);
    const vf x = kv_load_scaled(type, at->k + d * at->n_slots * KV_SIZE(type), scale);
    return _mm512_maskz_mov_ps(lanes, x);
}

/* Of a latent values d to d + 7 of 32 positions from p on, paired as amx_attn_weigh does it.
 * to: [8][16][2] */
INLINE void amx_attn_split_latent(const struct attn_state *s,
                                  const struct amx_attn_group *g,
                                  uint32_t p,
                                  uint32_t d,
                                  const enum kv_type type,
                                  uint8_t *to)
{
    const bool all = g->seen.from <= p && g->seen.end >= p + 32 && d + 8 <= s->dim;
    vf x[2], scale[2] = {vf_zero(), vf_zero()};
    if (!all || amx_attn_scattered(s->j)) {
        for (uint32_t i = 0; i < 8; i++, to += 64) {
            x[0] = amx_attn_latent(s, g, p, d + i, type);
            x[1] = amx_attn_latent(s, g, p + VL, d + i, type);
            amx_attn_pair(x[0], x[1], type, to);
        }
        return;
    }
    const struct attn_part *at = &s->parts[p / KV_TILE];
    const size_t n_slots = at->n_slots, step = n_slots * KV_SIZE(type);
    const uint8_t *k[2] = {at[0].k + d * step, at[1].k + d * step};
    for (uint32_t h = 0; type == KV_Q8_0 && h < 2; h++)
        scale[h] = vf_load(at[h].k_scales + d / 32 * n_slots);
    UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        UNROLL for (uint32_t h = 0; h < 2; h++) x[h] =
            kv_load_scaled(type, k[h] + i * step, scale[h]);
        amx_attn_pair(x[0], x[1], type, to + i * 64);
    }
}

/* What is asked for into the second cache: the keys of every part, then the values of every part,
 * but of a latent, then the keys of the parts behind the tile, as they lie in blocks of 16
 * positions (of others some of it comes unasked). */
struct amx_attn_ask {
    uint32_t first, part, end; /* parts */
    uint32_t pass, left;       /* lines of a part; */
    uint32_t lines[2];         /* of its keys, of its values */
    const uint8_t *at;
};

INLINE void amx_attn_ask_part(const struct attn_state *s, struct amx_attn_ask *a)
{
    if (a->part == a->end) {
        a->part = a->first;
        a->pass += a->pass == 0 && a->lines[1] == 0 ? 2 : 1;
    }
    const struct attn_part *part = (a->pass < 2 ? s->parts : s->next) + a->part++;
    a->at = a->pass == 1 ? part->v : part->k;
    a->left = a->lines[a->pass == 1];
}

INLINE void amx_attn_ask(const struct attn_state *s, struct amx_attn_ask *a, uint32_t n)
{
    while (n > 0 && a->pass < 3) {
        if (a->left == 0)
            amx_attn_ask_part(s, a);
        const uint32_t now = n < a->left ? n : a->left;
        const uint8_t *at = a->at;
        for (uint32_t i = 0; i < now; i++, at += 64)
            __builtin_prefetch(at, 0, 2);
        a->at = at;
        a->left -= now;
        n -= now;
    }
}

static struct amx_attn_ask amx_attn_ask_from(const struct attn_state *s,
                                             uint32_t first,
                                             uint32_t end,
                                             const enum kv_type type)
{
    const uint32_t bytes = KV_TILE * KV_SIZE(type), n_value = s->j->kv->latent ? 0 : s->n_value;
    struct amx_attn_ask a = {.first = first,
                             .part = first,
                             .end = end,
                             .lines = {(s->dim * bytes + 63) / 64, (n_value * bytes + 63) / 64}};
    if (amx_attn_scattered(s->j)) /* there are no parts */
        a.pass = 3;
    for (uint32_t left = AMX_ATTN_AHEAD; left > 0 && a.pass < 3;) {
        amx_attn_ask_part(s, &a);
        const uint32_t n = left < a.left ? left : a.left;
        left -= n;
        a.left -= n;
        a.at += (size_t)n * 64;
    }
    return a;
}

/* What is to be done for a group, and asked for meanwhile. */
struct amx_attn_work {
    const struct amx_attn_group *g;
    uint32_t left; /* halves of B, of which the next is */
    uint32_t i, p; /* of B i from row p on */
    uint8_t *to;
    struct amx_attn_ask *ask;
};

INLINE void amx_attn_half(const struct attn_state *s,
                          struct amx_attn_work *w,
                          const enum kv_type type,
                          const bool transposed)
{
    const struct amx_attn_group *g = w->g;
    const uint32_t p = w->p, first = g->values ? g->seen.from : 0;
    const uint32_t last = g->values ? g->seen.end : s->dim;
    const uint32_t from = first > p ? first - p : 0, end = last > p ? last - p : 0;
    const bool all_columns = !g->values || g->at + (w->i + 1) * VL <= s->n_value;
    if (transposed) {
        amx_attn_split_latent(s, g, p / 32 * 32, g->at + w->i * VL + p % 32 / 2, type, w->to);
    } else if (amx_attn_scattered(s->j) || !all_columns || from >= end || from >= 16) {
        amx_attn_split_rows(s, g, w->i, p, type, w->to);
    } else {
        const struct amx_attn_rows r = amx_attn_rows_of(s, g, w->i, p, type);
        if (from == 0 && end >= 16)
            amx_attn_split(&r, 0, 16, type, w->to);
        else
            amx_attn_split(&r, from, end, type, w->to);
    }
    amx_attn_ask(s, w->ask, 16 * VL * KV_SIZE(type) / 64);
    w->left--;
    w->p += 16;
    w->to += 16 * 32;
    if (w->p % 32)
        return;
    w->to += AMX_TILE_BYTES;
    if (++w->i < g->n)
        w->p -= 32;
    else
        w->i = 0;
}

/* Functions of their own: in every place where they are called they would not fit the cache for
 * instructions. */
#define AMX_ATTN_HALF(name, type, transposed)                                                      \
    NOT_INLINE static void amx_attn_half_##name(const struct attn_state *s,                        \
                                                struct amx_attn_work *w)                           \
    {                                                                                              \
        amx_attn_half(s, w, type, transposed);                                                     \
    }
AMX_ATTN_HALF(f16, KV_F16, false)
AMX_ATTN_HALF(f16_latent, KV_F16, true)
AMX_ATTN_HALF(bf16, KV_BF16, false)
AMX_ATTN_HALF(bf16_latent, KV_BF16, true)
AMX_ATTN_HALF(q8_0, KV_Q8_0, false)
AMX_ATTN_HALF(q8_0_latent, KV_Q8_0, true)
#undef AMX_ATTN_HALF

INLINE void amx_attn_do(const struct attn_state *s,
                        struct amx_attn_work *w,
                        const enum kv_type type,
                        const bool transposed)
{
    if (w->left == 0)
        return;
    if (type == KV_F16 && transposed)
        amx_attn_half_f16_latent(s, w);
    else if (type == KV_F16)
        amx_attn_half_f16(s, w);
    else if (type == KV_BF16 && transposed)
        amx_attn_half_bf16_latent(s, w);
    else if (type == KV_BF16)
        amx_attn_half_bf16(s, w);
    else if (transposed)
        amx_attn_half_q8_0_latent(s, w);
    else
        amx_attn_half_q8_0(s, w);
}
