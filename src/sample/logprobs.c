#include "sample/internal.h"

#include <math.h>

/* log sum exp(x[i] - max) */
static double log_sum_exp(const float *x, uint32_t n, float max)
{
    enum { PART = 512 };
    float w[PART];
    double total = 0;
    for (uint32_t i = 0; i < n; i += PART) {
        uint32_t len = n - i < PART ? n - i : PART;
        sample_exp(x + i, len, max, 1.0f, w);
        total += sample_sum(w, len);
    }
    return log(total);
}

/* An infinite maximum takes all the probability; with no number at all there is none. */
static float logprob_of(float l, float max, double lse)
{
    if (isnan(l) || l == -INFINITY)
        return -INFINITY;
    if (!isfinite(max))
        return l == max ? 0.0f : -INFINITY;
    return (float)((double)l - (double)max - lse);
}

void sample_insert_top(struct token_logprob *top, uint32_t *n, uint32_t n_top, int32_t id, float l)
{
    uint32_t i = *n < n_top ? (*n)++ : n_top - 1;
    for (; i > 0 && top[i - 1].logprob < l; i--)
        top[i] = top[i - 1];
    top[i] = (struct token_logprob){.id = id, .logprob = l};
}

/* The n_top largest logits, with the logits where the log-probabilities will be. */
static uint32_t find_top(const float *logits,
                         uint32_t n_vocab,
                         uint32_t n_top,
                         struct token_logprob *top)
{
    uint32_t n = 0;
    for (uint32_t first = 0; first < n_vocab; first += SAMPLE_BLOCK) {
        uint32_t len = n_vocab - first < SAMPLE_BLOCK ? n_vocab - first : SAMPLE_BLOCK;
        if (n == n_top && !(sample_max(logits + first, len) > top[n - 1].logprob))
            continue;
        for (uint32_t i = first; i < first + len; i++)
            if (n < n_top ? !isnan(logits[i]) : logits[i] > top[n - 1].logprob)
                sample_insert_top(top, &n, n_top, (int32_t)i, logits[i]);
    }
    return n;
}

float sample_logprobs(
    const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top, struct token_logprob *top)
{
    float max = sample_max(logits, n_vocab);
    double lse = isfinite(max) ? log_sum_exp(logits, n_vocab, max) : 0;
    uint32_t n = n_top > 0 ? find_top(logits, n_vocab, n_top, top) : 0;
    for (uint32_t i = 0; i < n_top; i++) {
        if (i < n)
            top[i].logprob = logprob_of(top[i].logprob, max, lse);
        else
            top[i] = (struct token_logprob){.id = -1, .logprob = -INFINITY};
    }
    bool known = id >= 0 && (uint32_t)id < n_vocab;
    return known ? logprob_of(logits[id], max, lse) : -INFINITY;
}

uint32_t sample_rank(const float *logits, uint32_t n_vocab, int32_t id)
{
    const float own = logits[id];
    uint32_t rank = 1;
    for (uint32_t i = 0; i < (uint32_t)id; i++)
        rank += logits[i] >= own;
    for (uint32_t i = (uint32_t)id + 1; i < n_vocab; i++)
        rank += logits[i] > own;
    return rank;
}
