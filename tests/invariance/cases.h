/* Requests whose answers must not change, and company for them. */
#ifndef WEIR_TESTS_INVARIANCE_CASES_H
#define WEIR_TESTS_INVARIANCE_CASES_H

#include "invariance/harness.h"

#define N_CASES 6
#define N_MATES 31
#define N_TOP 10

struct test_case {
    token_id prompt[200];
    uint32_t n_prompt, n_new;
    float temperature;
    bool prompt_logprobs;
};

/* A generator of its own for prompts: the same in every run. */
uint32_t next_random(uint32_t n);

/* Case i: of 1 to 200 tokens, greedy and sampled in turn; two want logits of all prompt rows. */
void make_case(struct test_case *c, uint32_t i, uint32_t n_vocab);
struct request *make_request(struct harness *h, const struct test_case *c);
struct request *make_mate(struct harness *h, uint32_t most_new);
void drop_request(struct request *r);

struct engine_config make_config(uint32_t n_threads, uint32_t batch_tokens, enum kv_type kv);

/* What the case gives in an engine of its own, on one thread, when nothing else runs. */
void run_alone(const char *path, const struct test_case *c, enum kv_type kv, struct buf *record);

#endif
