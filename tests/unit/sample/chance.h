/* For tests of choices: chance, and the order of tokens. */
#ifndef WEIR_TESTS_SAMPLE_CHANCE_H
#define WEIR_TESTS_SAMPLE_CHANCE_H

#include "sample/internal.h"

#include <stdint.h>

#define SEED 20240601u

/* 0..1; counts on. */
static inline double rnd(uint64_t *counter)
{
    return sample_uniform(SEED, (*counter)++);
}

/* Tokens in the order of selection: the largest logit first, of equal ones the lowest id. */
struct ranked {
    uint32_t id;
    float logit;
    double weight;
};

static inline int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

#endif
