/* Matrix times activations over panels, for the vector language of simd.h.
 *
 * One file a family of formats, each with its layout and how its weights are taken apart; what is
 * the same for all of them is made of that:
 *
 *     linear_group_impl.h  few rows, from the description of a quantised format:
 *         linear_q8_0_impl.h  linear_q4_0_impl.h  linear_q4_k_impl.h  linear_q6_k_impl.h
 *         linear_q5_impl.h    linear_table_impl.h linear_q2_q3_impl.h
 *         linear_grid_impl.h  linear_ternary_impl.h
 *     linear_super_impl.h  the same where scales are integers
 *     linear_float_impl.h  linear_bf16dot_impl.h
 *     linear_tile_impl.h   many rows, any format; linear_tile_int_impl.h
 *     linear_pairs_impl.h  the same with half the multiplications
 *     linear_amx_impl.h    the same by a tile unit; linear_amx_few_impl.h
 *     linear_amx_mins_impl.h  linear_amx_group_impl.h  linear_amx_float_impl.h
 *     linear_amx_q8_impl.h    linear_amx_unit_impl.h
 *
 * Every kernel is one template over M, the rows it takes at a time. For each output element all M,
 * and all ways, do the same operations in the same order: over groups of 32 of K, an exact integer
 * dot product, then one product of scales and one fused multiply-add (add_group and its sisters);
 * over 128 of K where scales are integers (add_super, add_super_min); float formats one fused
 * multiply-add a k, on a tile unit they and Q8_0 its sums of 32 of K, and so what Q4_K and Q5_K
 * take off. So the bits of a row do not depend on its neighbours.
 *
 * Bounds: M = 1 reads each weight once and is bound by memory. With many rows a VNNI kernel does 8
 * vpdpbusd of 128 operations for each row, 16 columns and 32 of K, beside three float operations:
 * on the same ports (Intel) that leaves 73 % of the integer peak, else (AMD) 80 to 100 %. In pairs
 * (linear_pairs_impl.h) it does four for those eight. */
#define PARTS (PANEL_COLS / VL)
#if VL == 16
#define LINEAR_M 8
#else
#define LINEAR_M 4
#endif

#if defined(WEIR_NO_UNROLL)
#define UNROLL
#define UNROLL_4
#elif defined(__clang__)
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif
#define EACH_ROW UNROLL for (int m = 0; m < M; m++)

/* One or two rows meet a line of weights once, whole: were each half of the columns a pass of its
 * own, memory would rest in every other one. The sums of P panels, part by part. */
#if VL == 8
#define PARTS_AT_ONCE(m) ((m) <= 2 ? PARTS : 1)
#else
#define PARTS_AT_ONCE(m) 1
#endif
#define FEW_SUMS const int at_once = PARTS_AT_ONCE(M), n_sums = P * at_once
#define EACH_FEW_SUM UNROLL for (int v = 0; v < n_sums; v++)
#define PUT_SUMS(sums)                                                                             \
    EACH_ROW EACH_FEW_SUM linear_put(                                                              \
        j, row + m, (p0 + v / at_once) * PANEL_COLS + (begin + v % at_once) * VL, sums[m][v]);

/* Packed activations of row `row` + m; those that lie in tiles are at [m / T] tiles further, lane
 * m % T, T = job's act_lanes. A lone row may lie anywhere in its tile, several begin one. Q4_AT:
 * word g of group i of ROWS_AT. The addresses of more than four rows are made of two and of
 * strides, as a processor adds them up in a load: a compiler that knew how they hang together would
 * keep each, most of them in memory. */
#define ROWS_AT(i)                                                                                 \
    const int8_t *at_0 = q + (size_t)(i)*32, *at_4 = at_0 + 4 * q_stride;                          \
    if (M > 4)                                                                                     \
        __asm__("" : "+r"(at_0), "+r"(at_4), "+r"(stride), "+r"(stride_3));
#define ROW_AT(m) (((m) < 4 ? at_0 : at_4) + ((m) % 4 == 3 ? stride_3 : (m) % 4 * stride))
#define Q4_AT(g, m) (ROW_AT(m) + (g)*4)
#ifndef VI_DOT_AT
#define vi_dot_at(acc, w, at) vi_dot((acc), (w), load_i32(at))
#define vi_dot128_at(acc, w, at) vi_dot128((acc), (w), load_i32(at))
#define vn_dot_at(acc, w, at) vn_dot((acc), (w), load_i32(at))
#endif
#define ACT_AT(i, m) ((size_t)((m) / T) * b_tile + (size_t)(i)*T + (m) % T)
#define ACT_BLOCK(i, m) (&blocks[ACT_AT(i, m)])
#define ACT_HALVES(i, m) (&halves[ACT_AT(i, m)])

/* The packed activations from `row` on, a multiple of T; by: by32 or by128. */
#define ACT_POINTERS(by)                                                                           \
    const uint32_t n_blocks = j->act->k / 32;                                                      \
    const size_t q_stride = act_q_stride(j->act->k);                                               \
    size_t stride = q_stride, stride_3 = 3 * q_stride;                                             \
    const size_t b_tile = (size_t)n_blocks * T;                                                    \
    const int8_t *q = j->act->by.q + row * q_stride;                                               \
    const struct act_block *blocks = j->act->by.b + row / T * b_tile + row % T;                    \
    const struct act_halves *halves = j->act->by.halves + row / T * b_tile + row % T;              \
    (void)halves, (void)stride, (void)stride_3

/* Where the pair of groups of 32 lies to which group i belongs: 64 bytes of scales, then both. */
#define PAIR_AT(i, group_bytes) ((size_t)((i) / 2) * (64 + 2 * (group_bytes)))

/* What TILE_K take in a panel. */
#define PART_BYTES(NAME, name, k, bytes, line, ...)                                                \
    PART_BYTES_##name = TILE_K / (k) * ((bytes) + (line)),
enum { CPU_FORMATS(PART_BYTES) };

/* Few rows that meet a single panel do nothing but wait for memory, of which the processor brings
 * as much as it sees loads and requests ahead. So their loop has few instructions, and the
 * addresses in it are a base plus a constant: a load that needed a value from a vector register
 * would wait behind the arithmetic that waits for memory. The layouts of all formats without heads
 * repeat themselves after TURN_OF groups or fewer. */
#define SINGLE (P == 1)
#define MET_ONCE (SINGLE && (M > 1 || T == 1)) /* else other rows may meet the panel, too */
#define AS_BYTES(name) (PART_BYTES_##name >= TILE_K * PANEL_COLS) /* a byte each, or more */
#define TURN_OF(name) (AS_BYTES(name) ? 2 : 4)
#define TURN_AT(name, i)                                                                           \
    (panels + (size_t)((i) / TURN_OF(name)) * (PART_BYTES_##name * TURN_OF(name) / (TILE_K / 32)))
#define CHECK_TURN(NAME, name, ...)                                                                \
    _Static_assert(TILE_K / 32 % TURN_OF(name) == 0 &&                                             \
                       PART_BYTES_##name * TURN_OF(name) % (TILE_K / 32) == 0,                     \
                   "turns begin at whole bytes");
CPU_FORMATS(CHECK_TURN)
enum { SINGLE_AHEAD = 7168 /* bytes of weights */, ACTS_AHEAD = 8 /* groups of activations */ };

/* The first row's, and as much of the others' as lies in the same lines, n groups of them: the
 * weights of a long panel have driven out of the nearest cache what the next one meets again. */
#define ASK_ACTS(first, n)                                                                         \
    for (int line_ = 0; SINGLE && line_ < (n) / 2; line_++)                                        \
        __builtin_prefetch(q + ((size_t)(first) + ACTS_AHEAD) * 32 + line_ * 64);                  \
    if (SINGLE)                                                                                    \
        __builtin_prefetch(ACT_BLOCK((first) + ACTS_AHEAD, 0));

/* The first rows to meet P panels bring them from memory. Not every processor looks far enough
 * ahead by itself, none with several rows to a weight: so group i asks for the lines that are
 * `ahead` groups later, its even share of those of TILE_K, in the panel P further where this one
 * ends. Past the last panel a prefetch does no harm. Who is to ask for nothing asks for what he
 * reads. A single panel passes as much sooner, and is asked for further ahead. */
#define ASK_AHEAD(name)                                                                            \
    const uint32_t ahead = begin == 0 && row == j->first_row                                       \
                               ? j->prefetch / (uint32_t)(PART_BYTES_##name / (TILE_K / 32))       \
                               : 0;                                                                \
    const int ask_all = (PART_BYTES_##name / 64 + TILE_K / 32 - 1) / (TILE_K / 32);
#define ASK_FROM(name, of, i)                                                                      \
    const int ask_lines = h == begin ? ask_all : 0;                                                \
    const uint8_t *ask = SINGLE ? (of).w + SINGLE_AHEAD : (of).panel;                              \
    if (!SINGLE) {                                                                                 \
        const bool next_ = (i) + ahead >= n_blocks;                                                \
        const uint32_t g_ = (uint32_t)(i) + ahead - (next_ ? n_blocks : 0);                        \
        const uint32_t in_part_ = g_ % (TILE_K / 32);                                              \
        ask += next_ ? P * j->panel_bytes : 0;                                                     \
        ask += (size_t)(g_ / (TILE_K / 32)) * PART_BYTES_##name;                                   \
        ask += in_part_ * (PART_BYTES_##name / 64) / (TILE_K / 32) * 64;                           \
    }

/* At step k of 8, which has the weights wv, those of n_lines (at most 16) whose turn it is: all at
 * once would fill the buffers that loads need. */
#define ASK_EVENLY(k, n_lines, wv, at)                                                             \
    {                                                                                              \
        const int now_ = (k) * (n_lines) / 8, then_ = ((k) + 1) * (n_lines) / 8;                   \
        for (int l_ = now_; l_ < then_; l_++) {                                                    \
            if (MET_ONCE)                                                                          \
                vb_ask_once(wv, (at) + (size_t)l_ * 64);                                           \
            else if (M > 4)                                                                        \
                vb_ask_many(wv, (at) + (size_t)l_ * 64);                                           \
            else                                                                                   \
                vb_ask(wv, (at) + (size_t)l_ * 64);                                                \
        }                                                                                          \
    }

/* Where sums of these rows will be put is asked for while they are multiplied for the last time:
 * every row is a place of its own, which another worker may have had. */
INLINE void linear_ask_out(
    const struct linear_job *j, uint32_t row, uint32_t n_rows, uint32_t panel, uint32_t n_panels)
{
    for (uint32_t r = row; r < row + n_rows; r++) {
        for (uint32_t p = panel; p < panel + n_panels; p++)
            __builtin_prefetch(j->out + r * j->out_stride + p * PANEL_COLS, 1);
    }
}

INLINE void linear_put(const struct linear_job *j, uint32_t row, uint32_t col, vf sum)
{
    if (col >= j->n_cols)
        return;
    uint32_t n = j->n_cols - col;
    float *out = j->out + row * j->out_stride + col;
    if (j->scale)
        sum = vf_mul(sum, vf_set1(*j->scale));
    if (n >= VL) {
        if (j->bias)
            sum = vf_add(sum, vf_load(j->bias + col));
        if (j->add)
            sum = vf_add(sum, vf_load(out));
        vf_store(out, sum);
    } else {
        if (j->bias)
            sum = vf_add(sum, vf_load_n(j->bias + col, n));
        if (j->add)
            sum = vf_add(sum, vf_load_n(out, n));
        vf_store_n(out, sum, n);
    }
}

/* A group's share of a sum: acc + s * ws * d, with s the exact dot product, ws the weights' scale
 * and d the activations'. */
INLINE vf add_group(vf acc, vi s, vf ws, const struct act_block *b)
{
    return vf_fma(vf_from_i(s), vf_mul(ws, vf_set1(b->d)), acc);
}

/* The same, less wm * d * (sum of the activations). */
INLINE vf add_group_min(vf acc, vi s, vf ws, vf wm, const struct act_block *b)
{
    acc = vf_fnma(wm, vf_set1(b->dsum), acc);
    return add_group(acc, s, ws, b);
}

/* The same with a scale for either half: `first` is that of the first times its scale. */
INLINE vf add_halves(vf acc, vf first, vi s, vf ws, const struct act_block *b)
{
    return vf_fma(vf_fma(vf_from_i(s), ws, first), vf_set1(b->d), acc);
}

/* What SUPER_K make: acc + t * d * (d of the activations), t exact. */
INLINE vf add_super(vf acc, vi t, vf d, const struct act_block *b)
{
    return vf_fma(vf_from_i(t), vf_mul(d, vf_set1(b->d)), acc);
}

/* The same, less what is to take off: dmin * (sum over groups: min * (sum of q)), the part in
 * brackets `off`, exact too. */
INLINE vf add_super_min(vf acc, vi t, vi off, vf d, vf dmin, const struct act_block *b)
{
    const vf x = vf_fnma(dmin, vf_from_i(off), vf_mul(d, vf_from_i(t)));
    return vf_fma(x, vf_set1(b->d), acc);
}

/* What a sum over q + 16 begins with, twice n8. Rows of padding hold anything, so it may wrap. */
INLINE vi vi_begin16(const struct act_block *b)
{
    return vi_set1((int32_t)(2 * (uint32_t)b->n8));
}

/* What a half's sum over q + 128 begins with, where vi_begin128 says that it begins with anything.
 */
INLINE vi vi_begin128_half(const struct act_halves *h, int half)
{
    return vi_begin128((int32_t)(4 * (uint32_t)h->n32[half]));
}

/* The wide form of a group (linear_tile_impl.h), and what it holds: first the kinds that have one
 * scale and nothing else (SUMS_STAY), last those whose scales are integers. Where words are
 * multiplied they follow it. */
enum { WIDE_SECOND = 64, WIDE_Q = 128, WIDE_THIRD = 640, WORDS_BYTES = 1024 };
enum wide_kind {
    WIDE_PLUS_128,    /* q + 128; scale */
    WIDE_PLUS_8,      /* q + 8, at most 15; scale */
    WIDE_PLUS_16,     /* q + 16; scale */
    WIDE_MIN,         /* q, at most 15; scale, and what to take off, times the activations' sum */
    WIDE_MIN_31,      /* q, at most 31; the same */
    WIDE_HALVES,      /* q + 32; scales of either half */
    WIDE_HALVES_128,  /* q + 128; the same */
    SUPER_PLUS_128,   /* q + 128; integer scale (vi_scale); d third, as in all that follow */
    SUPER_MIN,        /* q, at most 15; integer scale (vn_scale); what to take off likewise */
    SUPER_MIN_31,     /* q, at most 31; the same */
    SUPER_HALVES,     /* q + 32; integer scales of either half */
    SUPER_MIN_HALVES, /* scale * q; what to take off in either half */
    SUPER_SCALED,     /* 128 - scale * q; -d third */
};

/* For run_act_parts: of a format whether it reads halves, whether many rows meet words, and how
 * many are few. */
#define NOTE_HALVES(name, kind) enum { HALVES_##name = IN_HALVES(kind) ? ACT_BOTH_HALVES : 0 };
#ifdef DOT_WORDS
#define NOTE_WORDS(name, kind) enum { WORDS_##name = IN_WORDS(kind) };
#define NOTE_FEW(name, few) enum { FEW_##name = (few) };
#else
#define NOTE_WORDS(name, kind)
#define NOTE_FEW(name, few)
#endif

#include "backend/cpu/linear_group_impl.h"

#include "backend/cpu/linear_super_impl.h"

#include "backend/cpu/linear_tile_impl.h"

/* So many panels meet one tile of rows after the other before the next panels come: as few as many
 * rows take at a time where more would not stay in the second cache beside activations. */
enum { NEAR_PANELS = 4, NEAR_BYTES = 512 * 1024 };
#define NEAR_OF(j)                                                                                 \
    ((j)->n_rows > LINEAR_M && NEAR_PANELS * (j)->panel_bytes > NEAR_BYTES ? 2 : NEAR_PANELS)

/* Up to so many rows weights are taken apart as they come, for every tile of rows anew; for more
 * they are widened once, which is a pass of its own. What is costly to take apart is widened
 * sooner, what is hardly later where a processor stores slowly, and on Zen 5 never, as on Zen 4
 * what are bytes already: there tiles win nothing for the pass that stores every weight. On the
 * Xeon they win from the first row on that they take, but for floats. Numbers of rows by
 * measurement; the sums are the same. */
#if VL == 16
#define FEW_ROWS (j->tuning == TUNED_XEON ? LINEAR_M : 32)
#define FEW_COSTLY (j->tuning == TUNED_ZEN4 ? 16 : LINEAR_M)
#define FEW_SIMPLE (j->tuning == TUNED_ZEN5 ? UINT32_MAX : j->tuning == TUNED_ZEN4 ? 64 : LINEAR_M)
#define FEW_BYTES (j->tuning == TUNED_XEON ? LINEAR_M : UINT32_MAX)
#define FEW_FLOAT (j->tuning == TUNED_XEON ? 32 : FEW_SIMPLE)
#define FEW_RARE (j->tuning == TUNED_ZEN5 ? UINT32_MAX : LINEAR_M)
#elif VL == 8
#define FEW_ROWS 4
#define FEW_COSTLY 4
#define FEW_SIMPLE FEW_ROWS
#define FEW_BYTES FEW_ROWS
#define FEW_FLOAT FEW_ROWS
#define FEW_RARE LINEAR_M
#else
#define FEW_ROWS 8
#define FEW_COSTLY 8
#define FEW_SIMPLE FEW_ROWS
#define FEW_BYTES FEW_ROWS
#define FEW_FLOAT FEW_ROWS
#endif

#define EACH_TILE                                                                                  \
    for (uint32_t row = j->first_row, left = j->n_rows; left > 0;                                  \
         row += LINEAR_M, left -= left < LINEAR_M ? left : LINEAR_M)

/* Panels that M rows take at a time, as many streams from memory: one place alone is not read as
 * fast as memory can. On Zen 5 it is, so up to ONE_PANEL_ROWS take one panel after the other, on
 * Zen 4 a lone row; but not where the sum of one is a chain of as many links as there are lines
 * (floats, Q2_K), nor where what is done to a weight takes longer than to read it (grids, TQ, Q1_0,
 * Q2_0). With more rows the loads of activations bind, which two panels share; with AVX2 each half
 * of the columns is a pass of its own for more than two. */
#define PANELS_AT_ONCE(m) ((m) <= 2 ? 4 : 2)

/* A function for each number of rows. Where many sums go is asked for; fewer were no faster for it.
 */
#define DEFINE_FEW(attribute, name, m)                                                             \
    attribute NOT_INLINE static void few_##m##_##name(                                             \
        const struct linear_job *j, uint32_t p, uint32_t row)                                      \
    {                                                                                              \
        if ((m) > 4)                                                                               \
            linear_ask_out(j, row, (m), p, PANELS_AT_ONCE(m));                                     \
        linear_##name(j, p, row, (m), (m) == 1 ? (int)j->act_lanes : ACT_TILE, PANELS_AT_ONCE(m)); \
    }
#define CASE_FEW(attribute, name, m)                                                               \
    case m:                                                                                        \
        few_##m##_##name(j, p, row);                                                               \
        break;

#if LINEAR_M == 8
#define MORE_ROWS(X, attribute, name)                                                              \
    X(attribute, name, 5) X(attribute, name, 6) X(attribute, name, 7) X(attribute, name, 8)
#else
#define MORE_ROWS(X, attribute, name)
#endif
#define NO_MORE_ROWS(X, attribute, name)
#define EACH_FEW(X, attribute, name, MORE)                                                         \
    X(attribute, name, 1)                                                                          \
    X(attribute, name, 2) X(attribute, name, 3) X(attribute, name, 4) MORE(X, attribute, name)

/* One panel, which m rows meet. In a function of its own: among others' addresses a compiler keeps
 * some in vector registers (SINGLE). */
#define DEFINE_ONE(attribute, name, m)                                                             \
    attribute NOT_INLINE static void one_##m##_##name(                                             \
        const struct linear_job *j, size_t p, size_t row)                                          \
    {                                                                                              \
        linear_##name(j, p, row, (m), (m) == 1 ? 1 : ACT_TILE, 1);                                 \
    }
#define CASE_ONE(attribute, name, m)                                                               \
    case m:                                                                                        \
        one_##m##_##name(j, p, j->first_row);                                                      \
        break;

/* Panels that are left over meet one row after the other; all of a row alone, where few rows meet
 * one panel after the other. */
#define DEFINE_LEFT_OVER(attribute, name)                                                          \
    DEFINE_ONE(attribute, name, 1)                                                                 \
    attribute NOT_INLINE static void left_over_##name(                                             \
        const struct linear_job *j, size_t p, size_t row)                                          \
    {                                                                                              \
        if (j->act_lanes == 1)                                                                     \
            one_1_##name(j, p, row);                                                               \
        else                                                                                       \
            linear_##name(j, p, row, 1, ACT_TILE, 1);                                              \
    }

/* All rows meet linear_NAME, up to LINEAR_M at a time. */
#define DEFINE_MEET(attribute, name, MORE)                                                         \
    DEFINE_LEFT_OVER(attribute, name)                                                              \
    EACH_FEW(DEFINE_FEW, attribute, name, MORE)                                                    \
    attribute static void meet_##name(const struct linear_job *j)                                  \
    {                                                                                              \
        const uint32_t near = NEAR_OF(j);                                                          \
        for (uint32_t begin = 0, end; begin < j->n_panels; begin = end) {                          \
            end = j->n_panels - begin < near ? j->n_panels : begin + near;                         \
            EACH_TILE                                                                              \
            {                                                                                      \
                const uint32_t rows = left < LINEAR_M ? left : LINEAR_M;                           \
                const uint32_t n = PANELS_AT_ONCE(rows);                                           \
                uint32_t p = begin;                                                                \
                for (; n <= end - p; p += n) {                                                     \
                    switch (rows) {                                                                \
                        EACH_FEW(CASE_FEW, attribute, name, MORE)                                  \
                    }                                                                              \
                }                                                                                  \
                for (; p < end; p++) {                                                             \
                    for (uint32_t m = 0; m < rows; m++)                                            \
                        left_over_##name(j, p, row + m);                                           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

/* Up to ONE_PANEL_ROWS meet one panel after the other. */
#if VL == 16
#define ONE_PANEL_ROWS 4
#define EACH_ONE(X, attribute, name)                                                               \
    X(attribute, name, 2) X(attribute, name, 3) X(attribute, name, 4)
#elif VL == 8
#define ONE_PANEL_ROWS 2
#define EACH_ONE(X, attribute, name) X(attribute, name, 2)
#else
#define ONE_PANEL_ROWS 1
#define EACH_ONE(X, attribute, name)
#endif
#define DEFINE_MEET_ONE(name)                                                                      \
    EACH_ONE(DEFINE_ONE, , name)                                                                   \
    static void meet_one_##name(const struct linear_job *j)                                        \
    {                                                                                              \
        for (uint32_t p = 0; p < j->n_panels; p++) {                                               \
            switch (j->n_rows) {                                                                   \
                EACH_ONE(CASE_ONE, , name)                                                         \
            default:                                                                               \
                left_over_##name(j, p, j->first_row);                                              \
            }                                                                                      \
        }                                                                                          \
    }

/* few: a number of rows, above. */
#define DEFINE_RUN(attribute, name, few) DEFINE_RUN_OF(attribute, name, few, MORE_ROWS)
#define DEFINE_RUN_OF(attribute, name, few, MORE)                                                  \
    NOTE_FEW(name, few)                                                                            \
    enum { ONE_PANEL_##name = 0 };                                                                 \
    DEFINE_MEET(attribute, name, MORE)                                                             \
    attribute static void run_##name(const struct linear_job *j)                                   \
    {                                                                                              \
        if (j->n_rows > (few))                                                                     \
            tiled_##name(j);                                                                       \
        else                                                                                       \
            meet_##name(j);                                                                        \
    }
#define DEFINE_RUN_ONE(name, few)                                                                  \
    NOTE_FEW(name, few)                                                                            \
    enum { ONE_PANEL_##name = ONE_PANEL_ROWS };                                                    \
    DEFINE_MEET(, name, MORE_ROWS)                                                                 \
    DEFINE_MEET_ONE(name)                                                                          \
    static void run_##name(const struct linear_job *j)                                             \
    {                                                                                              \
        if (j->n_rows <= ONE_PANEL_ROWS &&                                                         \
            j->n_rows <= cpu_one_panel_rows(j->tuning, j->act_lanes))                              \
            meet_one_##name(j);                                                                    \
        else if (j->n_rows > (few))                                                                \
            tiled_##name(j);                                                                       \
        else                                                                                       \
            meet_##name(j);                                                                        \
    }

/* run_NAME of weights that are bytes, simple to take apart, usual, or costly; CHAIN: costly ones
 * whose sum is a chain. */
#define RUN_BYTES(name) DEFINE_RUN_ONE(name, FEW_BYTES)
#define RUN_SIMPLE(name) DEFINE_RUN_ONE(name, FEW_SIMPLE)
#define RUN_USUAL(name) DEFINE_RUN_ONE(name, FEW_ROWS)
#define RUN_COSTLY(name) DEFINE_RUN_ONE(name, FEW_COSTLY)
#define RUN_CHAIN(name) DEFINE_RUN(, name, FEW_COSTLY)

/* What is taken apart by lookups is widened sooner, and has no kernels for more rows: a copy for
 * each number would double what all this takes to compile. With AVX-512 up to 4 rows meet weights
 * as they come, with AVX2 a row alone, which in plain C other rare formats do, too. */
#define RUN_ALONE(name)                                                                            \
    NOTE_FEW(name, ALONE_ROWS)                                                                     \
    enum { ONE_PANEL_##name = 0 };                                                                 \
    DEFINE_LEFT_OVER(, name)                                                                       \
    static void run_##name(const struct linear_job *j)                                             \
    {                                                                                              \
        if (j->n_rows > ALONE_ROWS) {                                                              \
            tiled_##name(j);                                                                       \
            return;                                                                                \
        }                                                                                          \
        for (uint32_t i = 0; i < j->n_rows; i++) {                                                 \
            const uint32_t row = j->first_row + i;                                                 \
            uint32_t p = 0;                                                                        \
            for (; ALONE_PANELS > 1 && p + ALONE_PANELS <= j->n_panels; p += ALONE_PANELS)         \
                linear_##name(j, p, row, 1, (int)j->act_lanes, ALONE_PANELS);                      \
            for (; p < j->n_panels; p++)                                                           \
                left_over_##name(j, p, row);                                                       \
        }                                                                                          \
    }

#if VL == 4
#define ALONE_ROWS FEW_COSTLY
#define ALONE_PANELS 1
#define RUN_RARE RUN_ALONE
#else
#define ALONE_ROWS 1
#define ALONE_PANELS PANELS_AT_ONCE(1)
#define RUN_RARE(name) DEFINE_RUN(, name, FEW_RARE)
#endif
#if VL == 16
#define RUN_GRID(name) DEFINE_RUN_OF(, name, 4, NO_MORE_ROWS)
#else
#define RUN_GRID RUN_ALONE
#endif

#include "backend/cpu/linear_q8_0_impl.h"

#include "backend/cpu/linear_q4_0_impl.h"

#include "backend/cpu/linear_q4_k_impl.h"

#include "backend/cpu/linear_q5_impl.h"

#include "backend/cpu/linear_q6_k_impl.h"

#include "backend/cpu/linear_table_impl.h"

#include "backend/cpu/linear_q2_q3_impl.h"

#include "backend/cpu/linear_grid_impl.h"

#include "backend/cpu/linear_ternary_impl.h"

#include "backend/cpu/linear_float_impl.h"

#ifdef WITH_BF16_DOT
#include "backend/cpu/linear_bf16dot_impl.h"
DEFINE_RUN(BF16_DOT, bf16dot, FEW_FLOAT)
#endif

#ifdef DOT_BYTES
#include "backend/cpu/linear_pairs_impl.h"
#endif
#undef SUM_AT

#define BLOCKS_OF(NAME, name, ...) [PANEL_##NAME] = ACT_BLOCKS | HALVES_##name,
static const unsigned blocks_of[N_PANEL_FORMATS] = {CPU_BLOCK_FORMATS(BLOCKS_OF)};

#ifdef DOT_WORDS
/* With more rows than few they meet words, where their kind does (linear_tile_int_impl.h). */
#define WORDS_BEYOND(NAME, name, ...) [PANEL_##NAME] = WORDS_##name ? FEW_##name : 0,
static unsigned run_act_parts(enum panel_format format, uint32_t n_rows)
{
    static const uint32_t beyond[N_PANEL_FORMATS] = {CPU_BLOCK_FORMATS(WORDS_BEYOND)};
    const bool words = beyond[format] && n_rows > beyond[format];
    return words ? blocks_of[format] | ACT_WORDS : blocks_of[format];
}
#else
static unsigned run_act_parts(enum panel_format format, uint32_t n_rows)
{
    (void)n_rows;
    return blocks_of[format];
}
#endif

#ifdef WITH_AMX
#include "backend/cpu/linear_amx_unit_impl.h"

#include "backend/cpu/linear_amx_mins_impl.h"

#include "backend/cpu/linear_amx_impl.h"

#include "backend/cpu/linear_amx_group_impl.h"

#include "backend/cpu/linear_amx_float_impl.h"

#include "backend/cpu/linear_amx_q8_impl.h"

static unsigned amx_act_parts(enum panel_format format, uint32_t n_rows)
{
    const unsigned blocks = blocks_of[format];
    switch (format) {
    case PANEL_Q8_0: /* bf16 */
        return 0;
    case PANEL_Q4_0:
    case PANEL_Q4_1:
    case PANEL_Q5_0:
    case PANEL_Q5_1:
    case PANEL_IQ4_NL:
    case PANEL_MXFP4:
        return n_rows >= AMX_GROUP_MIN_ROWS ? ACT_CLOSE : blocks;
    case PANEL_Q4_K:
    case PANEL_Q5_K: /* what is to take off */
        return n_rows >= AMX_APART_MIN ? ACT_CLOSE : ACT_CLOSE | blocks;
    case PANEL_Q6_K:
        return n_rows >= AMX_FEW_MIN ? ACT_CLOSE : blocks;
    case PANEL_Q3_K:
    case PANEL_IQ4_XS:
        return n_rows >= AMX_MIN_ROWS ? ACT_CLOSE : blocks;
    case PANEL_Q2_K: /* minima in either half of 32 */
        return n_rows >= AMX_MIN_ROWS ? ACT_CLOSE | blocks : blocks;
    default:
        return blocks;
    }
}
#endif
