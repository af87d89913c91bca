/* Logits to a token, by one request's own parameters.
 *
 * Order: logit bias, penalties, what is not allowed, temperature, then the truncations top-k, top-p
 * and min-p over what is left, then one draw; with temperature_last it comes after the truncations.
 * The random number is a function of (seed, position) alone, so neither batch mates nor preemption
 * can change it. Ties go to the lower id.
 *
 * Thread: any; calls for different requests may run side by side with a scratch each.
 * Allocates: never, after the *_create functions. */
#ifndef WEIR_SAMPLE_SAMPLE_H
#define WEIR_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct logit_bias {
    int32_t id;
    float bias;
};

/* Plain values; sample_params_default() is the neutral set. */
struct sample_params {
    float temperature;        /* 0: greedy */
    bool temperature_last;    /* truncations see the model's own distribution */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 1: off; the fewest tokens with this mass of what top-k left */
    float min_p;              /* 0: off; a part of the likeliest token's probability */
    float repetition_penalty; /* 1: off; over prompt and output: l > 0 ? l / p : l * p */
    float presence_penalty;   /* 0: off; taken off the logit of a token in the output */
    float frequency_penalty;  /* 0: off; the same, for each time it is there */
    uint32_t penalty_window;  /* 0: as above; else all three look at the newest so many tokens of
                                 prompt and output together, as llama.cpp's do */
    uint64_t seed;
    const struct logit_bias *bias; /* [n_bias]; of an id that comes twice, the sum */
    uint32_t n_bias;
};
struct sample_params sample_params_default(void);

/* Which tokens a sequence of at most max_tokens > 0 holds, for the penalties; at most n_vocab > 0
 * distinct ones. *out is NULL when no penalty is on, and the other functions accept it. create
 * returns false, and *out is NULL, when memory is out; adding never allocates. */
struct sample_history;
bool sample_history_create(const struct sample_params *p,
                           size_t max_tokens,
                           uint32_t n_vocab,
                           struct sample_history **out);
void sample_history_destroy(struct sample_history *h);
void sample_history_add(struct sample_history *h, int32_t id, bool output);

/* Room for one row of n_vocab logits under selection: about 13 bytes each. NULL: out of memory. */
struct sample_scratch;
struct sample_scratch *sample_scratch_create(uint32_t n_vocab);
void sample_scratch_destroy(struct sample_scratch *s);

/* The tokens that may come: i where bit i % 64 of word i / 64 is set in `bits`, and not in `but`
 * (which may be NULL). Both have n_vocab bits and zeros behind them. */
struct sample_allowed {
    const uint64_t *bits, *but;
};

/* Instead of a token: among the logits that count there is no number, or one is +inf: what
 * computed it left the range of numbers. */
enum { SAMPLE_NO_NUMBER = -2 };

/* Choose the token for position `pos`, of those that are allowed (NULL: of all). logits[n_vocab]
 * are overwritten. NaN is never chosen: where nothing else is left the answer is SAMPLE_NO_NUMBER,
 * and also where one of them is +inf, which biases and penalties do not make of a model's logits.
 * Nor is -inf, unless there is nothing else that is allowed; nor what is not allowed, unless
 * nothing is; ids out of range in biases and history are ignored. */
int32_t sample_token(const struct sample_params *p,
                     const struct sample_history *h,
                     uint64_t pos,
                     float *logits,
                     uint32_t n_vocab,
                     const struct sample_allowed *allowed,
                     struct sample_scratch *s);

struct token_logprob {
    int32_t id;
    float logprob;
};

/* Natural log-probabilities under the model itself (before penalties and temperature): of `id`,
 * returned, and of the n_top most likely, descending, into top[]. Does not change logits. Places in
 * top[] beyond the vocabulary's numbers get id -1 and -inf. */
float sample_logprobs(
    const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top, struct token_logprob *top);

/* The place of id among all tokens, from 1: the most likely first, of equals the lower number. id:
 * one of the vocabulary's. */
uint32_t sample_rank(const float *logits, uint32_t n_vocab, int32_t id);

/* The same of the draw that sample_token has just made with this scratch: after biases, penalties,
 * truncations and temperature. Tokens that could not come have -inf, and no place in top[]. */
float sample_drawn_logprobs(const struct sample_scratch *s,
                            int32_t id,
                            uint32_t n_top,
                            struct token_logprob *top);

/* Index of the largest logit; the lowest index among equals. NaN never wins unless all are. */
int32_t sample_argmax(const float *logits, uint32_t n_vocab);

/* Uniform in [0, 1) with 53 bits, from (seed, counter): Philox4x32-10, stateless. */
double sample_uniform(uint64_t seed, uint64_t counter);

#endif
