/* Attention on the tile unit's products of bf16, where K and V lie as F16, BF16 or Q8_0. A number
 * is a sum of two of 8 bits: a query or a weight hi + lo, a key or a value u + v (of F16 all of its
 * 11 bits, of BF16 u alone). Of the four products u lo, u hi and v hi are summed, in this order, as
 * in linear_amx_float_impl.h; the fourth is below 2^-15 of the sum. Of 16 queries
 *
 *     scores   A  [16 queries][32 dims]           hi or lo, packed once, times the scale
 *              B  [16 pairs of dims][16 positions]
 *              C  [16 queries][16 positions]      from 0
 *     values   A  [16 queries][32 positions]      hi or lo of weights
 *              B  [16 pairs of positions][16 dims]
 *              C  [16 queries][16 dims]           the sums
 *
 * A tile is a whole range (AMX_ATTN_TILE is ATTN_RANGE): first all scores, then all weights, then
 * all values. Up to 16 queries meet four B side by side, more two, while what comes next is taken
 * apart between the unit's instructions.
 *
 * A query meets every position that any of its job sees, those that it does not see with a weight
 * of 0: that adds nothing, so its bits are the same in any company (but for the sign of a 0, which
 * attn_put makes positive). Where values that only some queries see are infinite, or no numbers,
 * the queries of one row at a time meet them. */
enum {
    AMX_ATTN_A = TWO,                /* values of 32 dims or positions in A: hi, lo */
    AMX_ATTN_B = 2 * AMX_TILE_BYTES, /* bytes of 32 by 16: u, v */
    AMX_ATTN_GROUP = 4,              /* B that are taken apart together */
    AMX_ATTN_DIMS = 128,             /* from heads so wide on, */
    AMX_ATTN_HEADS = 7,              /* so many of a KV head */
    AMX_ATTN_AHEAD = 320,            /* lines from what is read to what is asked for */
};
_Static_assert(2 * AMX_ATTN_GROUP * AMX_ATTN_B <= ATTN_UNIT_FLOATS * 4, "scratch holds two groups");
_Static_assert((int)AMX_ATTN_TILE == (int)ATTN_RANGE, "no sums are left from a tile before");

INLINE uint32_t amx_attn_steps(uint32_t n)
{
    return (n + 31) / 32;
}

static void amx_attn_pack(struct attn_state *s)
{
    const struct attn_job *j = s->j;
    const vf scale = vf_set1(j->scale);
    uint16_t *to = (uint16_t *)s->q;
    for (uint32_t i = 0; i < s->n_query; i++, to += act_two_stride(s->dim)) {
        const float *q =
            j->q + j->rows[i / j->group].at * j->q_stride + (size_t)(i % j->group) * s->dim;
        float x[MAX_HEAD_DIM];
        for (uint32_t d = 0; d < s->dim; d += VL)
            vf_store(x + d, vf_mul(vf_load_n(q + d, s->dim - d < VL ? s->dim - d : VL), scale));
        pack_two(x, 0, s->dim, to);
    }
}

/* Lanes of vector h of a tile that are seen. */
INLINE __mmask16 amx_attn_lanes(struct attn_seen seen, uint32_t h)
{
    const uint32_t at = h * VL, from = seen.from > at ? seen.from - at : 0;
    const uint32_t end = seen.end > at ? seen.end - at : 0;
    const uint32_t below = end < VL ? (1u << end) - 1 : 0xffff;
    return (__mmask16)(from < VL ? below & ~((1u << from) - 1) : 0);
}

#include "backend/cpu/attention_amx_b_impl.h"

/* --- products ----------------------------------------------------------------------------------
 */

/* Queries that meet a group. */
struct amx_attn {
    const uint16_t *a; /* hi of the first 16, at the group's first step; */
    size_t a_stride;   /* values from row to row of theirs, */
    size_t a_lo;       /* to lo, */
    size_t a_below;    /* to the next 16, */
    size_t a_step;     /* to the next step */
    float *c;          /* of the first 16 queries and B; */
    size_t c_stride;   /* values from row to row of it, */
    size_t c_below;    /* to the next 16, */
    size_t c_beside;   /* to the next B */
    bool begin, load;  /* C begins, with what it holds or 0; */
    bool end;          /* C ends */
};

#define AMX_ATTN_C(r, p) (m->c + (r)*m->c_below + (p)*m->c_beside)
#define AMX_ATTN_BEGIN(t, r, p)                                                                    \
    {                                                                                              \
        if (m->load)                                                                               \
            _tile_loadd(t, AMX_ATTN_C(r, p), c_bytes);                                             \
        else                                                                                       \
            _tile_zero(t);                                                                         \
    }
#define AMX_ATTN_DO                                                                                \
    AMX_STAY;                                                                                      \
    amx_attn_do(s, w, type, transposed);                                                           \
    AMX_STAY;

/* Queries in a meet what is of K or V in b. */
#define AMX_ATTN_PRODUCT(c, a, b)                                                                  \
    {                                                                                              \
        if (transposed)                                                                            \
            _tile_dpbf16ps(c, b, a);                                                               \
        else                                                                                       \
            _tile_dpbf16ps(c, a, b);                                                               \
    }

/* B t of a step meets up to 16 queries. */
#define AMX_ATTN_MEET(t)                                                                           \
    {                                                                                              \
        _tile_loadd(6, b + (t)*AMX_ATTN_B, 64);                                                    \
        AMX_ATTN_PRODUCT(t, 5, 6)                                                                  \
        AMX_ATTN_DO                                                                                \
        AMX_ATTN_PRODUCT(t, 4, 6)                                                                  \
        if (type != KV_BF16) {                                                                     \
            _tile_loadd(7, b + (t)*AMX_ATTN_B + AMX_TILE_BYTES, 64);                               \
            AMX_ATTN_PRODUCT(t, 4, 7)                                                              \
        }                                                                                          \
        AMX_ATTN_DO                                                                                \
    }

/* Up to 16 queries, P B: 4, 2 or 1. 0..3: C; 4, 5: A; 6, 7: B. */
AMX_INLINE void amx_attn_flat(const struct attn_state *s,
                              const struct amx_attn_group *g,
                              const struct amx_attn *m,
                              struct amx_attn_work *w,
                              const enum kv_type type,
                              const bool transposed,
                              const int P)
{
    const int a_bytes = (int)(m->a_stride * sizeof *m->a), c_bytes = (int)(m->c_stride * 4);
    const uint16_t *a = m->a;
    const uint8_t *b = g->b;
    if (m->begin) {
        AMX_ATTN_BEGIN(0, 0, 0)
        if (P > 1)
            AMX_ATTN_BEGIN(1, 0, 1)
        if (P > 2) {
            AMX_ATTN_BEGIN(2, 0, 2)
            AMX_ATTN_BEGIN(3, 0, 3)
        }
    }
    for (uint32_t i = 0; i < g->n_steps; i++, a += m->a_step, b += P * AMX_ATTN_B) {
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(5, a + m->a_lo, a_bytes);
        AMX_ATTN_MEET(0)
        if (P > 1)
            AMX_ATTN_MEET(1)
        if (P > 2) {
            AMX_ATTN_MEET(2)
            AMX_ATTN_MEET(3)
        }
    }
    if (m->end) {
        _tile_stored(0, AMX_ATTN_C(0, 0), c_bytes);
        if (P > 1)
            _tile_stored(1, AMX_ATTN_C(0, 1), c_bytes);
        if (P > 2) {
            _tile_stored(2, AMX_ATTN_C(0, 2), c_bytes);
            _tile_stored(3, AMX_ATTN_C(0, 3), c_bytes);
        }
    }
}

#undef AMX_ATTN_MEET

#define AMX_ATTN_TWO(above, below, b)                                                              \
    {                                                                                              \
        AMX_ATTN_PRODUCT(above, 4, b)                                                              \
        AMX_ATTN_PRODUCT(below, 5, b)                                                              \
        AMX_ATTN_DO                                                                                \
    }

/* 17 to 32 queries, P B: 2 or 1. */
AMX_INLINE void amx_attn_square(const struct attn_state *s,
                                const struct amx_attn_group *g,
                                const struct amx_attn *m,
                                struct amx_attn_work *w,
                                const enum kv_type type,
                                const bool transposed,
                                const int P)
{
    const int a_bytes = (int)(m->a_stride * sizeof *m->a), c_bytes = (int)(m->c_stride * 4);
    const uint16_t *a = m->a, *below = m->a + m->a_below;
    const uint8_t *b = g->b;
    if (m->begin) {
        AMX_ATTN_BEGIN(0, 0, 0)
        AMX_ATTN_BEGIN(2, 1, 0)
        if (P > 1) {
            AMX_ATTN_BEGIN(1, 0, 1)
            AMX_ATTN_BEGIN(3, 1, 1)
        }
    }
    for (uint32_t i = 0; i < g->n_steps; i++) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a + m->a_lo, a_bytes);
        _tile_loadd(5, below + m->a_lo, a_bytes);
        AMX_ATTN_TWO(0, 2, 6)
        if (P > 1) {
            _tile_loadd(7, b + AMX_ATTN_B, 64);
            AMX_ATTN_TWO(1, 3, 7)
        }
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(5, below, a_bytes);
        AMX_ATTN_TWO(0, 2, 6)
        if (P > 1)
            AMX_ATTN_TWO(1, 3, 7)
        if (type != KV_BF16) {
            _tile_loadd(6, b + AMX_TILE_BYTES, 64);
            AMX_ATTN_TWO(0, 2, 6)
            if (P > 1) {
                _tile_loadd(7, b + AMX_ATTN_B + AMX_TILE_BYTES, 64);
                AMX_ATTN_TWO(1, 3, 7)
            }
        }
        a += m->a_step;
        below += m->a_step;
        b += P * AMX_ATTN_B;
    }
    if (m->end) {
        _tile_stored(0, AMX_ATTN_C(0, 0), c_bytes);
        _tile_stored(2, AMX_ATTN_C(1, 0), c_bytes);
        if (P > 1) {
            _tile_stored(1, AMX_ATTN_C(0, 1), c_bytes);
            _tile_stored(3, AMX_ATTN_C(1, 1), c_bytes);
        }
    }
}

#undef AMX_ATTN_TWO
#undef AMX_ATTN_PRODUCT
#undef AMX_ATTN_DO
#undef AMX_ATTN_BEGIN
#undef AMX_ATTN_C

/* n_query queries meet a group, and what w has to do is done. */
AMX_INLINE void amx_attn_meet(const struct attn_state *s,
                              const struct amx_attn_group *g,
                              const struct amx_attn *m,
                              struct amx_attn_work *w,
                              uint32_t n_query,
                              const enum kv_type type,
                              const bool transposed)
{
    AMX_STAY; /* compilers do not see what tiles are loaded from */
    if (n_query > AMX_ROWS && g->n == 2)
        amx_attn_square(s, g, m, w, type, transposed, 2);
    else if (n_query > AMX_ROWS)
        amx_attn_square(s, g, m, w, type, transposed, 1);
    else if (g->n == 4)
        amx_attn_flat(s, g, m, w, type, transposed, 4);
    else if (g->n == 2)
        amx_attn_flat(s, g, m, w, type, transposed, 2);
    else
        amx_attn_flat(s, g, m, w, type, transposed, 1);
    AMX_STAY; /* nor what they are stored to */
    while (w->left > 0)
        amx_attn_do(s, w, type, transposed);
}

/* B from first_at to end_at (parts or dims), of each steps first .. end - 1, in groups: all steps
 * of some side by side, then the next ones; across: a step of all of them, then the next step. */
struct amx_attn_walk {
    uint32_t first_at, end_at, first, end;
    uint32_t n_query;
    bool across;
};

/* Of `left` B so many meet n_query queries side by side. */
INLINE uint32_t amx_attn_beside(uint32_t left, uint32_t n_query)
{
    return left >= 4 && n_query <= AMX_ROWS ? 4 : left >= 2 ? 2 : 1;
}

/* The group behind g, or the first where g has none yet; false: there is none. */
INLINE bool amx_attn_next(const struct amx_attn_walk *k, struct amx_attn_group *g)
{
    const uint32_t each = g->values ? VL : 1;
    const bool begin = g->n == 0;
    if (begin) {
        g->at = k->first_at;
        g->first = k->first;
    } else if (k->across) {
        g->at += g->n * each;
        if (g->at >= k->end_at) {
            g->at = k->first_at;
            g->first++;
        }
    } else {
        g->first += g->n_steps;
        if (g->first == k->end) {
            g->at += g->n * each;
            g->first = k->first;
        }
    }
    if (g->at >= k->end_at || g->first >= k->end)
        return false;
    if (begin || k->across || g->first == k->first)
        g->n = amx_attn_beside((k->end_at - g->at + each - 1) / each, k->n_query);
    const uint32_t most_steps = g->n == 1 && !k->across ? AMX_ATTN_GROUP : 1;
    g->n_steps = k->end - g->first < most_steps ? k->end - g->first : most_steps;
    return true;
}

/* w takes up g. (Copied whole, w would wait for its last numbers to be written.) */
INLINE void amx_attn_take(struct amx_attn_work *w, const struct amx_attn_group *g, bool any)
{
    w->g = g;
    w->left = any ? g->n * g->n_steps * 2 : 0;
    w->i = 0;
    w->p = g->first * 32;
    w->to = g->b;
}

/* k's queries meet its groups. first: of the first group; kind: of values, what is seen. */
AMX_INLINE void amx_attn_run(const struct attn_state *s,
                             const struct amx_attn_walk *k,
                             const struct amx_attn *first,
                             const struct amx_attn_group *kind,
                             struct amx_attn_ask *ask,
                             const enum kv_type type,
                             const bool transposed)
{
    const uint32_t each = kind->values ? VL : 1;
    struct amx_attn_group g[2] = {*kind, *kind};
    struct amx_attn m = *first;
    g[0].b = (uint8_t *)s->k;
    g[1].b = g[0].b + (size_t)AMX_ATTN_GROUP * AMX_ATTN_B;
    bool more = amx_attn_next(k, &g[0]);
    struct amx_attn_work w = {.ask = ask};
    amx_attn_take(&w, &g[0], more);
    while (w.left > 0)
        amx_attn_do(s, &w, type, transposed);
    for (uint32_t i = 0; more; i ^= 1) {
        const struct amx_attn_group *now = &g[i];
        struct amx_attn_group *next = &g[i ^ 1];
        uint8_t *const b = next->b;
        *next = *now;
        next->b = b;
        more = amx_attn_next(k, next);
        amx_attn_take(&w, next, more);
        m.a = first->a + (now->first - k->first) * first->a_step;
        m.c = first->c + (now->at - k->first_at) / each * first->c_beside;
        m.begin = k->across || now->first == k->first;
        m.end = k->across || now->first + now->n_steps == k->end;
        amx_attn_meet(s, now, &m, &w, k->n_query, type, transposed);
    }
}

AMX static void amx_attn_config(uint32_t n_query)
{
    struct amx_config config = amx_config_64;
    const uint32_t above = n_query < AMX_ROWS ? n_query : AMX_ROWS;
    const uint32_t below = n_query > AMX_ROWS ? n_query - AMX_ROWS : n_query;
    config.rows[0] = config.rows[1] = config.rows[4] = (uint8_t)above;
    config.rows[2] = config.rows[3] = config.rows[5] = (uint8_t)below;
    AMX_STAY;
    _tile_loadconfig(&config);
}

#include "backend/cpu/attention_amx_softmax_impl.h"

/* --- a tile ------------------------------------------------------------------------------------
 */

/* Whether all of some positions' values are finite. */
static bool amx_attn_finite(
    const struct attn_state *s, uint32_t pos, uint32_t from, uint32_t end, const enum kv_type type)
{
    enum { NO_NUMBER_OR_INFINITE = 0x99 };
    const struct amx_attn_group g = {.values = true, .pos = pos, .seen = {from, end}};
    const bool latent = s->j->kv->latent; /* 16 positions of a dim, not 16 dims of a position */
    const uint32_t n = latent ? s->n_value : s->padded / VL;
    for (uint32_t p = latent ? from / VL * VL : from; p < end; p += latent ? VL : 1) {
        for (uint32_t i = 0; i < n; i++) {
            const vf x =
                latent ? amx_attn_latent(s, &g, p, i, type) : amx_attn_row(s, &g, i, p, type);
            if (_mm512_fpclass_ps_mask(x, NO_NUMBER_OR_INFINITE))
                return false;
        }
    }
    return true;
}

AMX_INLINE void amx_attn_scores(const struct attn_state *s,
                                uint32_t pos,
                                struct attn_seen any,
                                struct amx_attn_ask *ask,
                                const enum kv_type type)
{
    const uint32_t part = any.from / KV_TILE;
    const struct amx_attn_walk k = {.first_at = part,
                                    .end_at = (any.end + KV_TILE - 1) / KV_TILE,
                                    .end = amx_attn_steps(s->dim),
                                    .n_query = s->n_query};
    const struct amx_attn m = {.a = (const uint16_t *)s->q,
                               .a_stride = act_two_stride(s->dim),
                               .a_lo = 32,
                               .a_below = AMX_ROWS * act_two_stride(s->dim),
                               .a_step = AMX_ATTN_A,
                               .c = s->w + part * KV_TILE,
                               .c_stride = ATTN_W_STRIDE,
                               .c_below = AMX_ROWS * ATTN_W_STRIDE,
                               .c_beside = KV_TILE};
    const struct amx_attn_group keys = {.pos = pos, .seen = any};
    amx_attn_run(s, &k, &m, &keys, ask, type, false);
}

/* Queries first .. first + n_query - 1, of which some see what is in `seen`. Few take all dims of
 * 32 positions after the other, as memory brings them; many do not load and store their sums as
 * often. */
AMX_INLINE void amx_attn_values(const struct attn_state *s,
                                uint32_t pos,
                                uint32_t first,
                                uint32_t n_query,
                                struct attn_seen seen,
                                struct amx_attn_ask *ask,
                                const enum kv_type type)
{
    const uint32_t from = seen.from / 32;
    const struct amx_attn_walk k = {.end_at = s->padded,
                                    .first = from,
                                    .end = seen.from < seen.end ? amx_attn_steps(seen.end) : from,
                                    .n_query = n_query,
                                    .across = n_query <= AMX_ROWS};
    const struct amx_attn m = {.a = (const uint16_t *)(s->w + first * ATTN_W_STRIDE) +
                                    (size_t)from * AMX_ATTN_A,
                               .a_stride = ATTN_W_STRIDE * 2,
                               .a_lo = 32,
                               .a_below = AMX_ROWS * ATTN_W_STRIDE * 2,
                               .a_step = AMX_ATTN_A,
                               .c = s->acc + (size_t)first * s->padded,
                               .c_stride = s->padded,
                               .c_below = (size_t)AMX_ROWS * s->padded,
                               .c_beside = VL,
                               .load = true};
    const struct amx_attn_group values = {.values = true, .pos = pos, .seen = seen};
    amx_attn_run(s, &k, &m, &values, ask, type, false);
}

#include "backend/cpu/attention_amx_latent_impl.h"

/* All queries' values, of which each sees what any does, those not seen with a weight of 0; or,
 * where that would bring up what is no number, of each row what it sees. */
AMX_INLINE void amx_attn_tile_as(const struct attn_state *s, uint32_t pos, const enum kv_type type)
{
    const struct attn_seen a = attn_sees(s, 0, pos), z = attn_sees(s, s->n_query - 1, pos);
    const struct attn_seen any = {a.from, z.end}, all = {z.from, a.end};
    if (any.from >= any.end)
        return;
    struct amx_attn_ask ask =
        amx_attn_ask_from(s, any.from / KV_TILE, (any.end + KV_TILE - 1) / KV_TILE, type);
    amx_attn_scores(s, pos, any, &ask, type);
    amx_attn_softmax(s, pos, any);
    const bool latent = s->j->kv->latent, together = all.from < all.end;
    if (latent)
        amx_latent_weights(s, any);
    const uint32_t n = amx_attn_finite(s, pos, any.from, together ? all.from : any.end, type) &&
                               amx_attn_finite(s, pos, together ? all.end : any.end, any.end, type)
                           ? s->n_query
                           : s->j->group;
    amx_attn_config(latent ? 2 * AMX_ROWS : n);
    for (uint32_t i = 0; i < s->n_query; i += n) {
        const struct attn_seen seen = n == s->n_query ? any : attn_sees(s, i, pos);
        if (latent)
            amx_latent_values(s, pos, i, n, seen, &ask, type);
        else
            amx_attn_values(s, pos, i, n, seen, &ask, type);
    }
    amx_attn_config(s->n_query);
}

AMX static void amx_attn_tile(struct attn_state *s, uint32_t pos, uint32_t last_pos)
{
    if (!amx_attn_scattered(s->j))
        attn_find(s, pos, last_pos, false);
    switch (s->j->kv->type) {
    case KV_F16:
        amx_attn_tile_as(s, pos, KV_F16);
        break;
    case KV_BF16:
        amx_attn_tile_as(s, pos, KV_BF16);
        break;
    default:
        amx_attn_tile_as(s, pos, KV_Q8_0);
        break;
    }
}

static const struct attn_way amx_attn_way = {amx_attn_pack, amx_attn_tile, AMX_ATTN_TILE};

/* F32 keeps its vectors, and so do narrow heads and few to a KV head, for which vectors multiply K
 * and V sooner than they take them apart: by numbers of the model's, so that rows alone and
 * together have the same bits. */
INLINE bool amx_attn_takes(const struct attn_job *j)
{
    const uint32_t dims = j->kv->latent ? AMX_LATENT_DIMS : AMX_ATTN_DIMS;
    return j->kv->type != KV_F32 && j->kv->head_dim >= dims && j->group >= AMX_ATTN_HEADS;
}

AMX static void amx_attend(const struct attn_job *j)
{
    if (!amx_attn_takes(j)) {
        run_attend(j);
        return;
    }
    amx_attn_config(j->n_rows * j->group);
    attn_attend(j, &amx_attn_way);
    _tile_release();
}

AMX static void amx_attend_part(const struct attn_job *j, uint32_t range, float *part)
{
    if (!amx_attn_takes(j)) {
        run_attend_part(j, range, part);
        return;
    }
    amx_attn_config(j->n_rows * j->group);
    attn_attend_part(j, &amx_attn_way, range, part);
    _tile_release();
}

AMX static void amx_attend_some(const struct attn_job *j,
                                uint32_t from,
                                uint32_t end,
                                const struct attn_sums *sums)
{
    if (!amx_attn_takes(j)) {
        run_attend_some(j, from, end, sums);
        return;
    }
    amx_attn_config(j->n_rows * j->group);
    attn_attend_some(j, &amx_attn_way, from, end, sums);
    _tile_release();
}

static uint32_t amx_attend_step(const struct attn_job *j)
{
    return amx_attn_takes(j) ? amx_attn_way.tile : attn_vectors.tile;
}

#define amx_attend_merge run_attend_merge
