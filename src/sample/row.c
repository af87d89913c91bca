/* Passes over a row of logits, as vector code: several running values side by side, each with its
 * own fixed set of elements, so that no sum depends on the width of the vectors. Written with the
 * vector types of gcc and clang where loops are not vectorised without leave to reorder floats.
 * Bound: the row's bytes from the cache. */
#include "sample/row_impl.h"

#include <math.h>

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));

static inline f32x4 load(const float *x)
{
    f32x4 v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* The larger of each pair; `b` where `a` is NaN. */
static inline f32x4 larger(f32x4 a, f32x4 b)
{
    i32x4 more = a > b;
    return (f32x4)(((i32x4)a & more) | ((i32x4)b & ~more));
}

float sample_max(const float *x, uint32_t n)
{
    const f32x4 least = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    f32x4 m0 = least, m1 = least, m2 = least, m3 = least;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        m0 = larger(load(x + i), m0);
        m1 = larger(load(x + i + 4), m1);
        m2 = larger(load(x + i + 8), m2);
        m3 = larger(load(x + i + 12), m3);
    }
    m0 = larger(larger(m0, m1), larger(m2, m3));
    float m = -INFINITY;
    for (int k = 0; k < 4; k++)
        m = m0[k] > m ? m0[k] : m;
    for (; i < n; i++)
        m = x[i] > m ? x[i] : m; /* false for NaN */
    return m;
}

/* -inf where `word` has no bit, for 64 logits: each bit is spread to a mask of 32. */
static void mask_block(float *x, uint64_t word)
{
    const i32x4 bit = {1, 2, 4, 8};
    const f32x4 least = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (uint32_t i = 0; i < 64; i += 4, word >>= 4) {
        int32_t w = (int32_t)(word & 15);
        i32x4 keep = ((i32x4){w, w, w, w} & bit) != 0;
        f32x4 v = (f32x4)(((i32x4)load(x + i) & keep) | ((i32x4)least & ~keep));
        memcpy(x + i, &v, sizeof v);
    }
}

static void blocks_plain(float *x,
                         uint32_t n_blocks,
                         const struct sample_allowed *allowed,
                         float *block_max)
{
    for (uint32_t b = 0; b < n_blocks; b++, x += SAMPLE_BLOCK) {
        uint64_t word = sample_word(allowed, b);
        if (word != 0 && word != UINT64_MAX)
            mask_block(x, word);
        block_max[b] = word == 0 ? -INFINITY : sample_max(x, SAMPLE_BLOCK);
    }
}

/* First i with x[i] == value, or n. */
static uint32_t find(const float *x, uint32_t n, float value)
{
    uint32_t i = 0;
    while (i < n && !(x[i] == value))
        i++;
    return i;
}

int32_t sample_argmax(const float *logits, uint32_t n_vocab)
{
    enum { PART = 2048 }; /* its second look, for the index, is in the nearest cache */
    float best = -INFINITY;
    uint32_t best_part = 0;
    for (uint32_t i = 0; i < n_vocab; i += PART) {
        float m = sample_max(logits + i, n_vocab - i < PART ? n_vocab - i : PART);
        if (m > best) {
            best = m;
            best_part = i;
        }
    }
    uint32_t id = best_part + find(logits + best_part, n_vocab - best_part, best);
    return id < n_vocab ? (int32_t)id : 0; /* all are NaN */
}

static bool is_allowed(const struct sample_allowed *allowed, uint32_t id)
{
    return sample_word(allowed, id / SAMPLE_BLOCK) >> id % SAMPLE_BLOCK & 1;
}

int32_t sample_argmax_allowed(float *logits, uint32_t n_vocab, const struct sample_allowed *allowed)
{
    enum { BLOCKS = 32, PART = BLOCKS * SAMPLE_BLOCK };
    float block_max[BLOCKS], best = -INFINITY;
    uint32_t best_part = 0;
    for (uint32_t i = 0; i < n_vocab; i += PART) {
        const uint64_t *but = allowed->but ? allowed->but + i / SAMPLE_BLOCK : NULL;
        const struct sample_allowed part = {allowed->bits + i / SAMPLE_BLOCK, but};
        uint32_t n = n_vocab - i < PART ? n_vocab - i : PART;
        float m = sample_block_max(logits + i, n, &part, block_max);
        if (m > best) {
            best = m;
            best_part = i;
        }
    }
    for (uint32_t i = best_part; i < n_vocab; i++)
        if (logits[i] == best && is_allowed(allowed, i))
            return (int32_t)i;
    for (uint32_t i = 0; i < n_vocab; i++) /* all are NaN */
        if (is_allowed(allowed, i))
            return (int32_t)i;
    return 0;
}

static void exp_plain(const float *x, uint32_t n, float max, float scale, float *w)
{
    exp_row(x, n, max, scale, w);
}

static void sum_plain(double lane[SAMPLE_LANES], const float *w, uint32_t n)
{
    sum_row(lane, w, n);
}

static void sum_blocks_plain(const float *w, uint32_t n_blocks, double *block_sum)
{
    sum_blocks(w, n_blocks, block_sum);
}

const struct sample_passes sample_passes_plain = {
    blocks_plain, exp_plain, sum_plain, sum_blocks_plain};

static struct sample_passes passes(void)
{
    struct sample_passes way[2] = {sample_passes_plain};
    (void)sample_passes_x86(way);
    return way[0];
}

float sample_block_max(float *x, uint32_t n, const struct sample_allowed *allowed, float *block_max)
{
    uint32_t whole = n / SAMPLE_BLOCK, rest = n % SAMPLE_BLOCK;
    passes().blocks(x, whole, allowed, block_max);
    if (rest > 0) {
        uint64_t word = sample_word(allowed, whole);
        x += whole * SAMPLE_BLOCK;
        for (uint32_t i = 0; word != 0 && i < rest; i++)
            x[i] = word >> i & 1 ? x[i] : -INFINITY;
        block_max[whole] = word == 0 ? -INFINITY : sample_max(x, rest);
    }
    return sample_max(block_max, sample_n_blocks(n));
}

void sample_exp(const float *x, uint32_t n, float max, float scale, float *w)
{
    passes().exp(x, n, max, scale, w);
}

void sample_sum_add(struct sample_sum *sum, const float *w, uint32_t n)
{
    const uint32_t rest = n % SAMPLE_LANES;
    passes().sum(sum->lane, w, n - rest);
    for (uint32_t k = 0; k < rest; k++)
        sum->lane[k] += w[n - rest + k];
}

double sample_sum_total(struct sample_sum *sum)
{
    return sum_lanes(sum->lane);
}

double sample_sum(const float *w, uint32_t n)
{
    struct sample_sum sum = {0};
    sample_sum_add(&sum, w, n);
    return sample_sum_total(&sum);
}

void sample_block_sums(const float *w, uint32_t n, double *block_sum)
{
    const uint32_t whole = n / SAMPLE_BLOCK, rest = n % SAMPLE_BLOCK;
    passes().sum_blocks(w, whole, block_sum);
    if (rest > 0)
        block_sum[whole] = sample_sum(w + whole * SAMPLE_BLOCK, rest);
}
