/* What the files of sample/ share: passes over a row of logits, and selection without sorting. */
#ifndef WEIR_SAMPLE_INTERNAL_H
#define WEIR_SAMPLE_INTERNAL_H

#include "sample/sample.h"

#include <string.h>

/* A row is looked at in blocks of this many, each with its maximum: a block whose maximum is too
 * small for what is sought is skipped whole. A word of what is allowed is one block's. */
#define SAMPLE_BLOCK 64

static inline uint32_t sample_n_blocks(uint32_t n)
{
    return (n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
}

/* The bits of a block's tokens. */
static inline uint64_t sample_word(const struct sample_allowed *a, uint32_t block)
{
    return a ? a->bits[block] & ~(a->but ? a->but[block] : 0) : UINT64_MAX;
}

/* Unsigned integers in the order of the floats; both zeros are one. Not for NaN. */
static inline uint32_t sample_key(float x)
{
    uint32_t u;
    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}

static inline float sample_unkey(uint32_t u)
{
    float x;
    u ^= u >> 31 ? 0x80000000u : 0xffffffffu;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* row.c. NaN counts as -inf in all of these. */

/* Largest of x[n]; -inf when n is 0. */
float sample_max(const float *x, uint32_t n);
/* The largest of each block of x[n] into block_max[sample_n_blocks(n)]; returns the largest of all.
 * What is not allowed (NULL: nothing) becomes -inf before, but for blocks in which nothing is: they
 * are neither read nor written, and their largest is -inf. */
float sample_block_max(float *x,
                       uint32_t n,
                       const struct sample_allowed *allowed,
                       float *block_max);
/* w[i] = exp((x[i] - max) * scale), in 0..1; max >= x[i] is finite, scale > 0. */
void sample_exp(const float *x, uint32_t n, float max, float scale, float *w);
/* Sum of w[n] in double, in an order that depends on n alone. */
double sample_sum(const float *w, uint32_t n);
/* The same in parts, each but the last of a multiple of SAMPLE_LANES: what lies between parts may
 * as well have been zeros. */
#define SAMPLE_LANES 8
struct sample_sum {
    double lane[SAMPLE_LANES];
};
void sample_sum_add(struct sample_sum *sum, const float *w, uint32_t n);
double sample_sum_total(struct sample_sum *sum); /* once */
/* sample_sum of each block of w[n] into block_sum[sample_n_blocks(n)] */
void sample_block_sums(const float *w, uint32_t n, double *block_sum);

/* What these are made of: as any processor does it, and as this one can, the fastest first, at most
 * two ways (row_x86.c). The bits are the same. */
struct sample_passes {
    /* sample_block_max of whole blocks */
    void (*blocks)(float *x,
                   uint32_t n_blocks,
                   const struct sample_allowed *allowed,
                   float *block_max);
    void (*exp)(const float *x, uint32_t n, float max, float scale, float *w);
    void (*sum)(double lane[SAMPLE_LANES], const float *w, uint32_t n); /* n: of whole lanes */
    void (*sum_blocks)(const float *w, uint32_t n_blocks, double *block_sum);
};
extern const struct sample_passes sample_passes_plain;
uint32_t sample_passes_x86(struct sample_passes out[2]);

/* sample_argmax of what is allowed: of that the first where all are NaN, and 0 where nothing is.
 * Changes logits as above. */
int32_t sample_argmax_allowed(float *logits,
                              uint32_t n_vocab,
                              const struct sample_allowed *allowed);

/* select.c */

/* Where a descending order was cut: kept is i when key[i] > `key`, or equal to it and i <= `last`.
 */
struct sample_cut {
    uint32_t key;
    uint32_t last;
};
static inline bool sample_kept(struct sample_cut c, uint32_t key, uint32_t i)
{
    return key > c.key || (key == c.key && i <= c.last);
}

#define SAMPLE_RADIX_BITS 11
/* The shortest head of keys[n] in descending order (equal ones in the order of i) whose weights
 * reach `goal` > 0; all of them if they do not. weights NULL: each weighs 1.
 * hist: [1 << SAMPLE_RADIX_BITS] scratch. */
struct sample_cut sample_select(
    const uint32_t *keys, const float *weights, uint32_t n, double goal, double *hist);

/* logprobs.c: put (id, l) into top[*n] of room n_top, descending; behind those equal to it. */
void sample_insert_top(struct token_logprob *top, uint32_t *n, uint32_t n_top, int32_t id, float l);

/* history.c */

/* Change the logits of the tokens in *h (may be NULL) by the penalties of *p. */
void sample_penalise(const struct sample_params *p,
                     const struct sample_history *h,
                     float *logits,
                     uint32_t n_vocab);

/* random.c */
void sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
