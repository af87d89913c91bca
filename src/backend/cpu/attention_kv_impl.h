/* K and V of one head: what attention reads of paged blocks, and how a position is stored. */

INLINE const uint8_t *attn_block(const struct attn_job *j, uint32_t pos)
{
    return j->base + j->blocks[pos / j->kv->block_tokens] * j->kv->block_bytes +
           j->head_kv * j->kv->head_bytes;
}

/* VL values at p. */
INLINE vf kv_load(enum kv_type type, const uint8_t *p)
{
    switch (type) {
    case KV_F32:
        return vf_load((const float *)p);
    case KV_F16:
        return vf_load_f16((const uint16_t *)p);
    case KV_BF16:
        return vf_load_bf16((const uint16_t *)p);
    default:
        return vf_load_i8((const int8_t *)p);
    }
}

/* Value i of those at p. */
INLINE float kv_get(enum kv_type type, const uint8_t *p, size_t i)
{
    switch (type) {
    case KV_F32:
        return ((const float *)p)[i];
    case KV_F16:
        return f16_to_f32(((const uint16_t *)p)[i]);
    case KV_BF16:
        return bf16_to_f32(((const uint16_t *)p)[i]);
    default:
        return (float)((const int8_t *)p)[i];
    }
}

/* VL values at p, of which those of Q8_0 have scales of their own or one. */
INLINE vf kv_load_scaled(enum kv_type type, const uint8_t *p, vf scale)
{
    const vf x = kv_load(type, p);
    return type == KV_Q8_0 ? vf_mul(x, scale) : x;
}

/* The first n < VL of them. */
INLINE vf kv_load_n(enum kv_type type, const uint8_t *p, uint32_t n, vf scale)
{
    float x[VL] = {0};
    for (uint32_t i = 0; i < n; i++)
        x[i] = kv_get(type, p, i);
    return type == KV_Q8_0 ? vf_mul(vf_load(x), scale) : vf_load(x);
}

#define KV_SIZE(type) ((type) == KV_F32 ? 4u : (type) == KV_Q8_0 ? 1u : 2u)

/* Where KV_TILE positions from pos on lie in a block. */
static struct attn_part attn_part_at(const struct attn_job *j, uint32_t pos)
{
    const struct kv_layout *kv = j->kv;
    const size_t n_slots = kv->block_tokens, dim = kv->head_dim, slot = pos % n_slots;
    const size_t n_values = dim * n_slots, size = KV_SIZE(kv->type);
    const uint8_t *k = attn_block(j, pos), *v = k + kv->half_bytes;
    return (struct attn_part){
        .k = k + slot * size,
        .v = v + slot * dim * size,
        .k_scales = (const float *)(k + n_values) + slot,
        .v_scales = (const float *)(v + n_values) + slot * ((dim + 31) / 32),
        .n_slots = n_slots,
    };
}

/* The same of the KV head behind the job's. */
static struct attn_part attn_next_head(const struct attn_job *j, uint32_t pos)
{
    struct attn_job next = *j;
    next.head_kv++;
    return attn_part_at(&next, pos);
}

/* K of a part that lies in one block, brought to f32: k[dim][KV_TILE] */
static void attn_copy_k(const struct attn_state *s, uint32_t pos, float *k)
{
    const enum kv_type type = s->j->kv->type;
    const struct attn_part part = attn_part_at(s->j, pos);
    for (uint32_t d = 0; d < s->dim; d++) {
        for (int h = 0; h < PARTS; h++) {
            vf scale = vf_zero();
            if (type == KV_Q8_0)
                scale = vf_load(part.k_scales + d / 32 * part.n_slots + h * VL);
            const uint8_t *from = part.k + (d * part.n_slots + h * VL) * KV_SIZE(type);
            vf_store(k + d * KV_TILE + h * VL, kv_load_scaled(type, from, scale));
        }
    }
}

/* The same of one position, wherever it lies, into lane i. */
static void attn_copy_k_one(const struct attn_state *s, uint32_t pos, uint32_t i, float *k)
{
    const struct attn_part part = attn_part_at(s->j, pos);
    for (uint32_t d = 0; d < s->dim; d++) {
        const float x = kv_get(s->j->kv->type, part.k, d * part.n_slots);
        k[d * KV_TILE + i] =
            s->j->kv->type == KV_Q8_0 ? x * part.k_scales[d / 32 * part.n_slots] : x;
    }
}

/* V of one position. */
static void attn_copy_v_one(const struct attn_state *s, uint32_t pos, float *v)
{
    const struct attn_part part = attn_part_at(s->j, pos);
    for (uint32_t d = 0; d < s->n_value; d++) {
        const float x = kv_get(s->j->kv->type, part.v, d);
        v[d] = s->j->kv->type == KV_Q8_0 ? x * part.v_scales[d / 32] : x;
    }
}

/* V of a latent, of positions from .. n - 1 at least: the first dims of K. */
static void attn_copy_latent(
    const struct attn_state *s, uint32_t from, uint32_t n, const float *k, float *v)
{
    uint32_t d = 0;
    for (; d + 4 <= s->n_value; d += 4) {
        for (uint32_t i = from / VL * VL; i < n; i += VL)
            vf_put_beside(k + d * KV_TILE + i, KV_TILE, v + i * s->n_value + d, s->n_value);
    }
    for (; d < s->n_value; d++)
        for (uint32_t i = from; i < n; i++)
            v[i * s->n_value + d] = k[d * KV_TILE + i];
}

/* Positions pos + from .. pos + n - 1 of a part brought to f32. k[dim][KV_TILE],
 * v[KV_TILE][n_value] */
static struct attn_part attn_copy(
    const struct attn_state *s, uint32_t pos, uint32_t from, uint32_t n, float *k, float *v)
{
    const struct kv_layout *kv = s->j->kv;
    const bool whole = kv->block_tokens % KV_TILE == 0;
    if (whole)
        attn_copy_k(s, pos, k);
    for (uint32_t i = from; i < n; i++) {
        if (!whole)
            attn_copy_k_one(s, pos + i, i, k);
        if (!kv->latent)
            attn_copy_v_one(s, pos + i, v + i * s->n_value);
    }
    if (kv->latent)
        attn_copy_latent(s, from, n, k, v);
    return (struct attn_part){.k = (const uint8_t *)k, .v = (const uint8_t *)v, .n_slots = KV_TILE};
}

/* 32 (or the head's last) values to int8 with one scale; to[i * stride]. Where one is no number,
 * neither is the scale. */
static float kv_quantise(const float *x, uint32_t n, int8_t *to, size_t stride)
{
    float amax = 0;
    for (uint32_t i = 0; i < n; i++)
        amax = fabsf(x[i]) > amax || isnan(x[i]) ? fabsf(x[i]) : amax;
    if (amax <= 1e-30f) {
        for (uint32_t i = 0; i < n; i++)
            to[i * stride] = 0;
        return 0;
    }
    const float inverse = 127.0f / amax;
    for (uint32_t i = 0; i < n; i++)
        to[i * stride] = (int8_t)lrintf(x[i] * inverse);
    return amax / 127.0f;
}

static void kv_store_q8(
    const struct kv_layout *kv, uint8_t *head, uint32_t slot, const float *k, const float *v)
{
    const uint32_t dim = kv->head_dim, n_slots = kv->block_tokens, n_scales = (dim + 31) / 32;
    float *k_scales = (float *)(head + (size_t)dim * n_slots);
    float *v_scales = (float *)(head + kv->half_bytes + (size_t)dim * n_slots);
    for (uint32_t d = 0; d < dim; d += 32) {
        const uint32_t n = dim - d < 32 ? dim - d : 32;
        int8_t *k_to = (int8_t *)head + (size_t)d * n_slots + slot;
        k_scales[(size_t)(d / 32) * n_slots + slot] = kv_quantise(k + d, n, k_to, n_slots);
        if (kv->latent)
            continue;
        int8_t *v_to = (int8_t *)head + kv->half_bytes + (size_t)slot * dim + d;
        v_scales[(size_t)slot * n_scales + d / 32] = kv_quantise(v + d, n, v_to, 1);
    }
}

static void to_half(enum kv_type type, const float *x, uint16_t *to, uint32_t n)
{
    if (type == KV_BF16) {
        for (uint32_t i = 0; i < n; i++)
            to[i] = f32_to_bf16(x[i]);
        return;
    }
    uint32_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store_f16(to + i, vf_load(x + i));
    for (; i < n; i++)
        to[i] = f32_to_f16(x[i]);
}

static void run_kv_store(
    const struct kv_layout *kv, uint8_t *head, uint32_t slot, const float *k, const float *v)
{
    const uint32_t dim = kv->head_dim;
    uint8_t *value = head + kv->half_bytes;
    if (kv->type == KV_Q8_0) {
        kv_store_q8(kv, head, slot, k, v);
    } else if (kv->type == KV_F32) {
        for (uint32_t d = 0; d < dim; d++)
            ((float *)head)[(size_t)d * kv->block_tokens + slot] = k[d];
        if (!kv->latent)
            memcpy((float *)value + (size_t)slot * dim, v, dim * sizeof *v);
    } else {
        uint16_t half[MAX_HEAD_DIM];
        to_half(kv->type, k, half, dim);
        for (uint32_t d = 0; d < dim; d++)
            ((uint16_t *)head)[(size_t)d * kv->block_tokens + slot] = half[d];
        if (!kv->latent)
            to_half(kv->type, v, (uint16_t *)value + (size_t)slot * dim, dim);
    }
}
