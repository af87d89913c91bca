/* Values of a latent on the tile unit: the first dims of K, whose positions lie side by side. So it
 * is they that have rows, and what is summed is transposed:
 *
 *     A  [16 dims][16 pairs of positions]       u or v
 *     B  [16 pairs of positions][16 queries]    hi or lo of weights
 *     C  [16 dims][16 queries]
 *
 * where a pair is a position and the one 16 behind, for which vectors take one shuffle, not three.
 * Weights are transposed once a tile and for all dims, sums at its end: a sum of a dim and a query
 * is what it would be, had they changed places. */
enum {
    AMX_LATENT_DIMS = 256, /* from K so wide on: its copy, that vectors make, is as large */
    AMX_LATENT_STEPS = AMX_ATTN_TILE / 32,
    AMX_LATENT_B = AMX_TILE_BYTES / 2,  /* values of a B: */
    AMX_LATENT_STEP = 2 * AMX_LATENT_B, /* of hi, then lo */
    AMX_LATENT_WEIGHTS = ATTN_QUERIES / AMX_ROWS * AMX_LATENT_STEPS * AMX_LATENT_STEP,
};
_Static_assert(ATTN_UNIT_FLOATS + AMX_LATENT_WEIGHTS / 2 + ATTN_QUERIES * AMX_LATENT_DIMS <=
                   2 * ATTN_TILE * AMX_LATENT_DIMS,
               "scratch for copies holds groups, weights and sums");

/* [ATTN_QUERIES / 16][AMX_LATENT_STEPS]: B of hi, of lo */
INLINE uint16_t *amx_latent_b(const struct attn_state *s)
{
    return (uint16_t *)(s->k + ATTN_UNIT_FLOATS);
}

/* [padded][ATTN_QUERIES] */
INLINE float *amx_latent_sums(const struct attn_state *s)
{
    return s->k + ATTN_UNIT_FLOATS + AMX_LATENT_WEIGHTS / 2;
}

/* 16 rows of 16, or of 16 pairs, transposed; stride: values from row to row of `from`. */
static void amx_latent_turn(const float *from, size_t stride, float *to)
{
    UNROLL for (int i = 0; i < 16; i += 4) vf_put_beside(from + i * stride, stride, to + i, 16);
}

/* Weights to B. Those of queries that are not there may be anything. */
NOT_INLINE static void amx_latent_weights(const struct attn_state *s, struct attn_seen any)
{
    for (uint32_t i = 0; i < s->n_query; i += AMX_ROWS) {
        const float *w = s->w + i * ATTN_W_STRIDE;
        uint16_t *to = amx_latent_b(s) + (size_t)i / AMX_ROWS * AMX_LATENT_STEPS * AMX_LATENT_STEP;
        for (uint32_t k = any.from / 32; k < amx_attn_steps(any.end); k++) {
            uint16_t *b = to + (size_t)k * AMX_LATENT_STEP;
            amx_latent_turn(w + k * 32, ATTN_W_STRIDE, (float *)b);
            amx_latent_turn(w + k * 32 + VL, ATTN_W_STRIDE, (float *)(b + AMX_LATENT_B));
        }
    }
}

/* Sums of queries first .. end - 1 to acc. */
static void amx_latent_put(const struct attn_state *s, uint32_t first, uint32_t end)
{
    float x[AMX_ROWS][VL];
    for (uint32_t q = first / AMX_ROWS * AMX_ROWS; q < end; q += AMX_ROWS) {
        for (uint32_t d = 0; d < s->padded; d += VL) {
            amx_latent_turn(amx_latent_sums(s) + (size_t)d * ATTN_QUERIES + q, ATTN_QUERIES, x[0]);
            for (uint32_t i = q < first ? first - q : 0; i < AMX_ROWS && q + i < end; i++)
                vf_store(s->acc + (size_t)(q + i) * s->padded + d, vf_load(x[i]));
        }
    }
}

/* As amx_attn_values; of a range, whose only tile this is. The others' sums are made, too, and
 * left.
 */
AMX_INLINE void amx_latent_values(const struct attn_state *s,
                                  uint32_t pos,
                                  uint32_t first,
                                  uint32_t n_query,
                                  struct attn_seen seen,
                                  struct amx_attn_ask *ask,
                                  const enum kv_type type)
{
    if (seen.from >= seen.end)
        return;
    const uint32_t from = seen.from / 32;
    const struct amx_attn_walk k = {
        .end_at = s->padded, .first = from, .end = amx_attn_steps(seen.end), .n_query = s->n_query};
    const struct amx_attn m = {.a = amx_latent_b(s) + (size_t)from * AMX_LATENT_STEP,
                               .a_stride = 32,
                               .a_lo = AMX_LATENT_B,
                               .a_below = AMX_LATENT_STEPS * AMX_LATENT_STEP,
                               .a_step = AMX_LATENT_STEP,
                               .c = amx_latent_sums(s),
                               .c_stride = ATTN_QUERIES,
                               .c_below = AMX_ROWS,
                               .c_beside = VL * ATTN_QUERIES};
    const struct amx_attn_group values = {.values = true, .pos = pos, .seen = seen};
    amx_attn_run(s, &k, &m, &values, ask, type, true);
    amx_latent_put(s, first, first + n_query);
}
