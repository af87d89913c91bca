/* What choosing a token costs, over a row of a large vocabulary.
 *
 *      sample_speed [TOKENS]             default 151,936
 *
 * Logits like a model's: a bell, and a few far above it. A line for each kind of request: the
 * microseconds of the fastest of twenty rows. */
#include "sample/sample.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 20, N_HIGH = 12, TOP = 20 };

static uint64_t rng = 88172645463325252u;

/* 0 < x < 1: Marsaglia's xorshift64. */
static double chance(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return ((double)(rng >> 12) + 0.5) / (double)(1ull << 52);
}

static void fill(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)(sqrt(-2 * log(chance())) * cos(6.283185307179586 * chance()) * 2.5);
    for (uint32_t i = 0; i < N_HIGH; i++)
        x[(uint32_t)(chance() * n)] = 12 + (float)i;
}

static void time_choice(const char *what,
                        struct sample_params p,
                        const float *x,
                        uint32_t n,
                        struct sample_scratch *s,
                        float *copy)
{
    uint64_t best = UINT64_MAX;
    for (uint64_t i = 0; i < ROWS; i++) {
        memcpy(copy, x, n * sizeof *x);
        const uint64_t begin = clock_us();
        sample_token(&p, NULL, i, copy, n, NULL, s);
        const uint64_t us = clock_us() - begin;
        best = us < best ? us : best;
    }
    printf("%-28s %6llu us\n", what, (unsigned long long)best);
}

int main(int argc, char **argv)
{
    const uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 151936;
    if (n < TOP)
        return fprintf(stderr, "sample_speed: at least %d tokens\n", TOP), 2;
    float *x = malloc(n * sizeof *x), *copy = malloc(n * sizeof *x);
    struct sample_scratch *s = sample_scratch_create(n);
    if (!x || !copy || !s)
        return fprintf(stderr, "sample_speed: out of memory\n"), 1;
    fill(x, n);
    struct sample_params p = sample_params_default();
    time_choice("as it is", p, x, n, s, copy);
    p.temperature = 0;
    time_choice("the likeliest", p, x, n, s, copy);
    p = sample_params_default();
    p.top_k = 40;
    time_choice("top-k 40", p, x, n, s, copy);
    p.top_p = 0.95f, p.min_p = 0.05f;
    time_choice("top-k, top-p 0.95, min-p", p, x, n, s, copy);
    p = sample_params_default();
    p.top_p = 0.95f;
    time_choice("top-p 0.95", p, x, n, s, copy);
    p.temperature = 10;
    time_choice("top-p 0.95, temperature 10", p, x, n, s, copy);
    struct token_logprob top[TOP];
    const uint64_t begin = clock_us();
    sample_logprobs(x, n, 5, TOP, top);
    printf("%-28s %6llu us\n", "20 log-probabilities", (unsigned long long)(clock_us() - begin));
    sample_scratch_destroy(s);
    free(x);
    free(copy);
    return 0;
}
