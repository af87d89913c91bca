/* A random crowd of requests that has everything that makes the host and a device depend on each
 * other: ends that the device cannot foresee (end tokens, stop ids, stop strings, the end of a
 * grammar), masks, penalties and biases, log-probabilities, embeddings, cancellations at any
 * moment.
 *
 * What each gives alone is recorded; then it must come out of any engine, to the bit. */
#ifndef WEIR_TESTS_INVARIANCE_CROWD_H
#define WEIR_TESTS_INVARIANCE_CROWD_H

#include "invariance/harness.h"

enum { MOST_REQUESTS = 72, MOST_PROMPT = 90, MOST_NEW = 48, N_TEXTS = 4, MOST_STOP_IDS = 24 };

struct asked {
    struct request_params params;
    token_id prompt[MOST_PROMPT], stop_ids[MOST_STOP_IDS];
    struct logit_bias bias[4];
    uint32_t n_prompt;
    bool constrained;
    bool cancelled;
    bool ended;
    struct request *r;
    struct buf want; /* what it gave alone */
    enum finish want_finish;
    enum stop_kind want_stop;
    uint32_t want_completion, want_out;
};

struct crowd {
    uint32_t n_requests, most_new;
    struct asked asked[MOST_REQUESTS];
    token_id texts[N_TEXTS][MOST_PROMPT];
};

/* Everything random follows from the seed. */
void crowd_seed(uint64_t seed);
uint32_t crowd_below(uint32_t n);

/* Draw n_requests with outputs of up to most_new tokens, and record what they give in an engine
 * with cfg, which is to run them without any of what is tested. */
struct crowd *crowd_create(const char *model,
                           const struct engine_config *cfg,
                           uint32_t n_requests,
                           uint32_t most_new);
void crowd_destroy(struct crowd *c);

/* Submit the crowd bit by bit, cancel some; what they give must be the same, each must end once,
 * and nothing be left. `fails`: a step does, and those whom it ends give the beginning of it. */
struct engine_stats crowd_run(const char *model,
                              const struct engine_config *cfg,
                              struct crowd *c,
                              bool fails);

#endif
