/* Attention of every instruction set that this machine has, against plain double arithmetic; and
 * the same bits for a row alone, among others, and in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backend/cpu/kernels.h"
#include "base/mem.h"
#include "few.h"
#include "unit/backend/cpu/isas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Attention of one KV head over shuffled blocks, against softmax in double over what was stored. */
struct attn_case {
    const struct cpu_kernels *kernels;
    struct kv_layout kv;
    uint32_t group, first_pos, rows, n_blocks;
    uint32_t *blocks;
    uint8_t *memory;
    float *q, *k, *v; /* [rows, group, dim], [n_pos, dim] */
    uint32_t window;
    enum window_kind window_kind;
    float cap;
    const float *sinks, *slopes; /* [group] or NULL */
    uint32_t n_seen, latent;
    uint32_t steps; /* of keys and values to 1, which KV holds as they are; 0: any */
};

static void store_context(const struct attn_case *c, uint32_t n_pos)
{
    for (uint32_t p = 0; p < n_pos; p++) {
        uint8_t *head = c->memory + c->blocks[p / c->kv.block_tokens] * c->kv.block_bytes +
                        c->kv.head_bytes; /* the second of three heads */
        c->kernels->kv_store(&c->kv,
                             head,
                             p % c->kv.block_tokens,
                             c->k + (size_t)p * c->kv.head_dim,
                             c->v + (size_t)p * c->kv.head_dim);
    }
}

/* Values of V. */
static uint32_t n_value_of(const struct attn_case *c)
{
    return c->kv.latent ? c->kv.latent : c->kv.head_dim;
}

/* Rows of it lie in at[], which is filled. */
static struct attn_job job_of(const struct attn_case *c,
                              uint32_t first_row,
                              uint32_t rows,
                              struct attn_row *at,
                              float *out,
                              float *scratch)
{
    const size_t dim = c->kv.head_dim, n_value = n_value_of(c);
    for (uint32_t i = 0; i < rows; i++)
        at[i] = (struct attn_row){.at = first_row + i, .pos = c->first_pos + first_row + i};
    return (struct attn_job){.kv = &c->kv,
                             .base = c->memory,
                             .blocks = c->blocks,
                             .head_kv = 1,
                             .more = rows > 1, /* what is asked for is not read */
                             .group = c->group,
                             .rows = at,
                             .n_rows = rows,
                             .q = c->q,
                             .out = out,
                             .q_stride = c->group * dim,
                             .out_stride = c->group * n_value,
                             .scale = 0.3f,
                             .cap = c->cap,
                             .window = c->window,
                             .window_kind = c->window_kind,
                             .n_seen = c->n_seen,
                             .sinks = c->sinks,
                             .slopes = c->slopes,
                             .scratch = scratch};
}

static void attend(const struct attn_case *c, uint32_t first_row, uint32_t rows, float *out)
{
    const uint32_t dim = c->kv.head_dim;
    float *scratch = mem_aligned(attn_scratch_floats(dim) * sizeof *scratch);
    memset(scratch, 0xff, attn_scratch_floats(dim) * sizeof *scratch); /* NaN */
    struct attn_row at[ATTN_QUERIES];
    const struct attn_job j = job_of(c, first_row, rows, at, out, scratch);
    c->kernels->attend(&j);
    free(scratch);
}

/* The same, one range after the other in parts, the last range first, and then folded. */
static void attend_in_parts(const struct attn_case *c, float *out)
{
    const uint32_t dim = c->kv.head_dim;
    float *scratch = mem_aligned(attn_scratch_floats(dim) * sizeof *scratch);
    struct attn_row at[ATTN_QUERIES];
    const struct attn_job j = job_of(c, 0, c->rows, at, out, scratch);
    const uint32_t first = attn_first_pos(&j, 0) / ATTN_RANGE;
    const uint32_t n = (attn_end(&j) - 1) / ATTN_RANGE + 1 - first;
    const size_t part = attn_part_floats(dim);
    float *parts = mem_aligned(n * part * sizeof *parts);
    for (uint32_t r = n; r-- > 0;)
        c->kernels->attend_part(&j, first + r, parts + r * part);
    memset(scratch, 0xff, attn_scratch_floats(dim) * sizeof *scratch);
    c->kernels->attend_merge(&j, parts, n);
    free(scratch);
    free(parts);
}

/* The first position that a row at `pos` sees, and the one behind the last. */
static void visible(const struct attn_case *c, uint32_t pos, uint32_t *begin, uint32_t *end)
{
    const uint32_t window = c->window;
    *begin = 0;
    *end = c->n_seen ? c->n_seen : pos + 1;
    if (window == 0)
        return;
    for (uint32_t p = *end; p-- > 0;) {
        const uint32_t apart = p > pos ? p - pos : pos - p;
        const bool seen = c->window_kind == WINDOW_LAST    ? p > pos || apart < window
                          : c->window_kind == WINDOW_CHUNK ? p / window == pos / window
                                                           : apart <= window / 2;
        if (!seen && p > pos)
            *end = p;
        if (!seen && p < pos) {
            *begin = p + 1;
            return;
        }
    }
}

/* The mean square error, over the squares of what is added up: values that happen to cancel would
 * leave nothing to hold an error against. */
static double attn_error(const struct attn_case *c, const float *out)
{
    const uint32_t dim = c->kv.head_dim, n_value = n_value_of(c);
    double num = 0, den = 0, w[2048], want[MAX_HEAD_DIM], square[MAX_HEAD_DIM];
    for (uint32_t i = 0; i < c->rows * c->group; i++) {
        uint32_t begin, n;
        visible(c, c->first_pos + i / c->group, &begin, &n);
        double top = c->sinks ? c->sinks[i % c->group] : -INFINITY, sum = 0;
        for (uint32_t p = begin; p < n; p++) {
            w[p] = 0;
            for (uint32_t d = 0; d < dim; d++)
                w[p] += (double)c->q[(size_t)i * dim + d] * c->k[(size_t)p * dim + d] * 0.3f;
            w[p] = c->cap > 0 ? c->cap * tanh(w[p] / c->cap) : w[p];
            if (c->slopes)
                w[p] -= c->slopes[i % c->group] * fabs(c->first_pos + i / c->group - (double)p);
            top = w[p] > top ? w[p] : top;
        }
        memset(want, 0, sizeof want);
        memset(square, 0, sizeof square);
        sum = c->sinks ? exp(c->sinks[i % c->group] - top) : 0;
        for (uint32_t p = begin; p < n; p++) {
            sum += w[p] = exp(w[p] - top);
            for (uint32_t d = 0; d < n_value; d++) {
                const double x = w[p] * (c->kv.latent ? c->k : c->v)[(size_t)p * dim + d];
                want[d] += x;
                square[d] += x * x;
            }
        }
        for (uint32_t d = 0; d < n_value; d++) {
            const double diff = out[(size_t)i * n_value + d] - want[d] / sum;
            num += diff * diff;
            den += square[d] / (sum * sum);
        }
    }
    return num / den;
}

/* Value d of a key or a value: x, or with `steps` one that KV holds as it is. In Q8_0 that takes
 * one of 127 steps among those that share a scale, and scales differ from their neighbours' by
 * powers of two. */
static float stored(const struct attn_case *c, size_t d, float x)
{
    if (!c->steps)
        return x;
    const float unit = c->kv.type == KV_Q8_0 ? exp2f(-(float)(d / 32 % 3)) : 1.0f;
    if (c->kv.type == KV_Q8_0 && d % 32 == 0)
        return unit;
    return roundf(x * (float)c->steps) / (float)c->steps * unit;
}

static void check_attention(struct attn_case *c, enum kv_type type, uint32_t dim, uint32_t slots)
{
    static const double limit[] = {
        [KV_F32] = 5e-12, [KV_F16] = 1e-6, [KV_BF16] = 5e-5, [KV_Q8_0] = 3e-4};
    const uint32_t n_pos = c->n_seen ? c->n_seen : c->first_pos + c->rows;
    static uint32_t n_cases;
    if (few_shapes() && n_cases++ % 5) /* each of the four types of KV has its turns */
        return;
    c->kv = (struct kv_layout){
        .type = type, .head_dim = dim, .latent = c->latent, .block_tokens = slots};
    c->kv.half_bytes = kv_row_bytes(type, dim) * slots;
    c->kv.head_bytes = (c->latent ? 1 : 2) * c->kv.half_bytes;
    c->kv.block_bytes = 3 * c->kv.head_bytes;
    c->n_blocks = (n_pos + slots - 1) / slots;
    c->blocks = mem_alloc(c->n_blocks * sizeof *c->blocks);
    for (uint32_t i = 0; i < c->n_blocks; i++) /* the last one ends where memory does */
        c->blocks[i] = c->n_blocks - i;
    c->memory = mem_aligned((c->n_blocks + 1) * c->kv.block_bytes);
    memset(c->memory, 0xff, (c->n_blocks + 1) * c->kv.block_bytes); /* NaN where nothing is */
    const size_t n_q = (size_t)c->rows * c->group * dim, n_kv = (size_t)n_pos * dim;
    c->q = mem_alloc(n_q * sizeof *c->q);
    c->k = mem_alloc(n_kv * sizeof *c->k);
    c->v = mem_alloc(n_kv * sizeof *c->v);
    for (size_t i = 0; i < n_q; i++)
        c->q[i] = rnd_float() * 2;
    for (size_t i = 0; i < n_kv; i++) {
        c->k[i] = stored(c, i % dim, rnd_float());
        c->v[i] = stored(c, i % dim, rnd_float());
    }
    store_context(c, n_pos);
    uint32_t first, end;
    visible(c, c->first_pos, &first, &end);
    for (uint32_t i = 0; i < first / slots; i++)
        c->blocks[i] = 0; /* gone: the window has passed it */
    float *out = mem_zalloc(n_q, sizeof *out), *alone = mem_zalloc(n_q, sizeof *out);
    attend(c, 0, c->rows, out);
    const double error = attn_error(c, out);
    /* Scores grow with the root of the dimension, and so does the number of roundings in a sum; a
     * score at its cap is rounded to some 2^-23 of that. */
    const double wider = dim > 128 ? dim / 128.0 : 1, capped = c->cap * 0x1p-22;
    const double most = c->steps ? 3e-9 : limit[type];
    if (!(error < most * wider * wider + capped * capped))
        fail_msg("%s kv %s dim %u slots %u group %u rows %u at %u window %u cap %g: nmse %.2e",
                 c->kernels->name,
                 kv_type_name(type),
                 dim,
                 slots,
                 c->group,
                 c->rows,
                 c->first_pos,
                 c->window,
                 (double)c->cap,
                 error);
    for (uint32_t r = 0; r < c->rows; r++)
        attend(c, r, 1, alone);
    assert_memory_equal(alone, out, n_q * sizeof *out);
    memset(alone, 0, n_q * sizeof *alone);
    attend_in_parts(c, alone);
    assert_memory_equal(alone, out, n_q * sizeof *out);
    free(c->blocks);
    free(c->memory);
    free(c->q);
    free(c->k);
    free(c->v);
    free(out);
    free(alone);
}

static void attention_is_exact(void **s)
{
    (void)s;
    static const uint32_t dims[] = {4, 20, 64, 140, 512};
    static const uint32_t slots[] = {16, 32, 1, 5, 24, 48, 80, 128};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (int type = KV_F32; type <= KV_Q8_0; type++) {
            for (uint32_t n = 0; n < 40; n++) {
                struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                      .group = 1 + rnd() % 12,
                                      .first_pos = rnd() % 3 ? rnd() % 90 : 0};
                if (n == 24)
                    c.group = ATTN_QUERIES;
                if (n % 5 == (uint32_t)type) /* several ranges, or just at the edge of one */
                    c.first_pos = rnd() % 2 ? rnd() % 1500 : ATTN_RANGE * (1 + rnd() % 2) - 4;
                c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
                check_attention(&c, (enum kv_type)type, dims[n % 5], slots[n / 5]);
            }
        }
    }
}

/* Keys and values that KV holds as they are: what is read has all of its bits, and queries and
 * weights have 16 at least. */
static void all_bits_are_read(void **s)
{
    (void)s;
    static const uint32_t dims[][2] = {{144}, {272, 250}, {128}, {40}}, slots[] = {16, 32, 48};
    static const enum kv_type types[] = {KV_F16, KV_BF16, KV_Q8_0};
    static const uint32_t steps[] = {1 << 11, 1 << 8, 127};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 72; n++) {
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = 4 + rnd() % 13,
                                  .first_pos = rnd() % 2 ? rnd() % 90 : rnd() % 1500,
                                  .latent = dims[n / 3 % 4][1],
                                  .steps = steps[n % 3]};
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            check_attention(&c, types[n % 3], dims[n / 3 % 4][0], slots[n / 12 % 3]);
        }
    }
}

/* Windows shorter and longer than a tile, a block and a range; caps; sinks; and all of them. Blocks
 * that no row sees any more hold NaN. */
static void windows_caps_and_sinks_are_exact(void **s)
{
    (void)s;
    static const uint32_t dims[] = {12, 132, 24}, slots[] = {16, 5, 32};
    static const uint32_t windows[] = {1, 7, 16, 40, 100, 600, 3000};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 63; n++) {
            float sinks[ATTN_QUERIES];
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = 1 + rnd() % 12,
                                  .first_pos = rnd() % 2 ? rnd() % 90 : rnd() % 1800,
                                  .window = n % 4 ? windows[n % 7] : 0,
                                  .cap = n % 3 == 1 ? 0.5f + (float)(rnd() % 40) : 0};
            for (uint32_t h = 0; h < c.group; h++)
                sinks[h] = rnd_float() * 4;
            c.sinks = n % 2 ? sinks : NULL;
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            check_attention(&c, (enum kv_type)(n % 4), dims[n % 3], slots[n / 3 % 3]);
        }
    }
}

/* Slopes that leave positions far away all or nothing, one way and both, beside windows and caps.
 */
static void slopes_are_exact(void **s)
{
    (void)s;
    static const uint32_t dims[] = {8, 128, 24}, slots[] = {16, 5, 32};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 36; n++) {
            float slopes[ATTN_QUERIES];
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = 1 + rnd() % 12,
                                  .first_pos = rnd() % 2 ? rnd() % 90 : rnd() % 1800,
                                  .window = n % 6 == 1 ? 1 + rnd() % 700 : 0,
                                  .cap = n % 6 == 2 ? 0.5f + (float)(rnd() % 40) : 0,
                                  .slopes = slopes};
            for (uint32_t h = 0; h < c.group; h++)
                slopes[h] = exp2f(-(float)(rnd() % 11));
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            if (n % 3 == 0)
                c.n_seen = c.first_pos + c.rows + rnd() % 150;
            check_attention(&c, (enum kv_type)(n % 4), dims[n % 3], slots[n / 3 % 3]);
        }
    }
}

/* K whose first part is V, as attention over a latent has it; and chunks. */
static void latents_and_chunks_are_exact(void **s)
{
    (void)s;
    static const uint32_t dims[][2] = {{576, 512}, {260, 258}, {24, 8}}, slots[] = {16, 5, 32};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 72; n++) {
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = 1 + rnd() % (rnd() % 2 ? 9 : ATTN_QUERIES),
                                  .first_pos = rnd() % 2 ? rnd() % 90 : rnd() % 1800,
                                  .window = n / 3 % 3 ? 1 + rnd() % 700 : 0,
                                  .window_kind = WINDOW_CHUNK,
                                  .latent = dims[n % 3][1]};
            if (n >= 48)
                c.latent = 0;
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            check_attention(&c, (enum kv_type)(n % 4), dims[n % 3][0], slots[n / 12 % 3]);
        }
    }
}

/* Every row sees what lies behind it too, up to within one tile, range or block of what follows, or
 * as far as a window to either side. */
static void both_ways_is_exact(void **s)
{
    (void)s;
    static const uint32_t dims[] = {8, 160, 24}, slots[] = {16, 5, 32};
    for (size_t i = 0; i < COUNT(isas); i++) {
        for (uint32_t n = 0; n < 48; n++) {
            struct attn_case c = {.kernels = cpu_kernels_select(isas[i]),
                                  .group = 1 + rnd() % 9,
                                  .first_pos = n % 3 ? rnd() % 90 : 0};
            c.rows = 1 + rnd() % (ATTN_QUERIES / c.group);
            c.n_seen = c.first_pos + c.rows + (n % 4 ? rnd() % 60 : rnd() % 1800);
            c.window = n % 2 ? 1 + rnd() % (n % 8 == 1 ? 1000 : 50) : 0;
            c.window_kind = WINDOW_AROUND;
            check_attention(&c, (enum kv_type)(n % 4), dims[n % 3], slots[n / 3 % 3]);
        }
    }
}

/* One of 700 keys or values, or a query, holds what is no number, or in f16 a key what is infinite
 * there: no row that meets it gets numbers, wherever it lies. */
static void what_is_no_number_stays_none(void **s)
{
    (void)s;
    enum { DIM = 32, N_POS = 700, SLOTS = 16, N_BLOCKS = (N_POS + SLOTS - 1) / SLOTS };
    for (size_t i = 0; i < COUNT(isas) * 12; i++) {
        const enum kv_type type = i % 2 ? KV_F16 : KV_Q8_0;
        const uint32_t where = i / 2 % 3, at = i / 6 % 2 ? 511 + rnd() % 180 : rnd() % 500;
        const float bad = type == KV_F16 && where == 0 ? 1e6f : NAN;
        struct attn_case c = {.kernels = cpu_kernels_select(isas[i / 12]),
                              .kv = {.type = type, .head_dim = DIM, .block_tokens = SLOTS},
                              .group = 1,
                              .first_pos = N_POS - 9,
                              .rows = 9};
        c.kv.half_bytes = kv_row_bytes(type, DIM) * SLOTS;
        c.kv.head_bytes = 2 * c.kv.half_bytes;
        c.kv.block_bytes = 2 * c.kv.head_bytes;
        uint32_t blocks[N_BLOCKS];
        for (uint32_t b = 0; b < N_BLOCKS; b++)
            blocks[b] = b;
        c.blocks = blocks;
        c.memory = mem_aligned(N_BLOCKS * c.kv.block_bytes);
        memset(c.memory, 0xff, N_BLOCKS * c.kv.block_bytes);
        float out[9 * DIM], *all = mem_alloc((2 * N_POS + 9) * DIM * sizeof *all);
        for (uint32_t v = 0; v < (2 * N_POS + 9) * DIM; v++)
            all[v] = rnd_float() + 1.01f; /* all positive */
        c.k = all;
        c.v = all + N_POS * DIM;
        c.q = all + 2 * N_POS * DIM;
        if (where < 2)
            (where ? c.v : c.k)[at * DIM + 3] = bad;
        else
            c.q[3 * DIM + 3] = bad;
        store_context(&c, N_POS);
        attend(&c, 0, 9, out);
        for (uint32_t r = 0; r < 9; r++)
            assert_int_equal(isfinite(out[r * DIM + 3]) != 0, where == 2 && r != 3);
        free(c.memory);
        free(all);
    }
}

/* A value that is infinite, or no number, where some rows see it and others beside them do not, for
 * it comes later or the window has passed it: those have the bits that they have alone. */
static void nobody_meets_what_he_does_not_see(void **s)
{
    (void)s;
    enum { DIM = 256, ROWS = 4, GROUP = 8, SLOTS = 16, MOST = 1100, N_BLOCKS = MOST / SLOTS + 1 };
    static const enum kv_type types[] = {KV_F32, KV_F16, KV_BF16, KV_Q8_0};
    for (size_t n = 0; n < COUNT(isas) * 32; n++) {
        const uint32_t first_pos = rnd() % (MOST - ROWS), window = n / 4 % 2 ? 3 + rnd() % 600 : 0;
        struct attn_case c = {.kernels = cpu_kernels_select(isas[n / 32]),
                              .kv = {.type = types[n % 4], .head_dim = DIM, .block_tokens = SLOTS},
                              .group = GROUP,
                              .first_pos = first_pos,
                              .rows = ROWS,
                              .window = window};
        c.kv.latent = n / 16 % 2 ? DIM : 0;
        c.kv.half_bytes = kv_row_bytes(c.kv.type, DIM) * SLOTS;
        c.kv.head_bytes = (c.kv.latent ? 1 : 2) * c.kv.half_bytes;
        c.kv.block_bytes = 2 * c.kv.head_bytes;
        uint32_t blocks[N_BLOCKS], seen_by = 0;
        for (uint32_t b = 0; b < N_BLOCKS; b++)
            blocks[b] = b;
        c.blocks = blocks;
        c.memory = mem_aligned(N_BLOCKS * c.kv.block_bytes);
        memset(c.memory, 0xff, N_BLOCKS * c.kv.block_bytes);
        const uint32_t n_pos = first_pos + ROWS, n_all = (2 * n_pos + ROWS * GROUP) * DIM;
        float out[ROWS * GROUP * DIM], alone[ROWS * GROUP * DIM];
        float *all = mem_alloc(n_all * sizeof *all);
        for (uint32_t i = 0; i < n_all; i++)
            all[i] = rnd_float();
        c.k = all;
        c.v = all + (size_t)n_pos * DIM;
        c.q = all + (size_t)2 * n_pos * DIM;
        const bool passed = window > 0 && first_pos > window + ROWS && n / 8 % 2;
        const uint32_t bad = passed ? first_pos + 1 - window + rnd() % (ROWS - 1)
                                    : first_pos + 1 + rnd() % (ROWS - 1);
        (c.kv.latent ? c.k : c.v)[bad * DIM + 77] = n % 3 ? INFINITY : NAN;
        store_context(&c, n_pos);
        attend(&c, 0, ROWS, out);
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t begin, end;
            visible(&c, first_pos + r, &begin, &end);
            const bool seen = bad >= begin && bad < end;
            seen_by += seen;
            attend(&c, r, 1, alone);
            for (uint32_t i = r * GROUP; i < (r + 1) * GROUP; i++)
                assert_int_equal(!isfinite(out[i * DIM + 77]), seen);
            if (!seen)
                assert_memory_equal(
                    out + r * GROUP * DIM, alone + r * GROUP * DIM, GROUP * DIM * sizeof *out);
        }
        assert_in_range(seen_by, 1, ROWS - 1);
        free(c.memory);
        free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_exact),
        cmocka_unit_test(all_bits_are_read),
        cmocka_unit_test(windows_caps_and_sinks_are_exact),
        cmocka_unit_test(slopes_are_exact),
        cmocka_unit_test(latents_and_chunks_are_exact),
        cmocka_unit_test(both_ways_is_exact),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(nobody_meets_what_he_does_not_see),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
