/* What the files of sample/ share: passes over a row of logits, and selection without sorting. */
#ifndef WEIR_SAMPLE_INTERNAL_H
#define WEIR_SAMPLE_INTERNAL_H

#include "sample/sample.h"

#include <string.h>

/* A row is looked at in blocks of this many, each with its maximum: a block whose maximum is too
 * small for what is sought is skipped whole. */
#define SAMPLE_BLOCK 64

static inline uint32_t sample_n_blocks(uint32_t n)
{
    return (n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
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
/* block_max[sample_n_blocks(n)]; returns the largest of all. */
float sample_block_max(const float *x, uint32_t n, float *block_max);
/* w[i] = exp((x[i] - max) * scale), in 0..1; max >= x[i] is finite, scale > 0. */
void sample_exp(const float *x, uint32_t n, float max, float scale, float *w);
/* Sum of w[n] in double, in an order that depends on n alone. */
double sample_sum(const float *w, uint32_t n);

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
