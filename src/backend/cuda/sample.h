/* Logits to tokens on the device, so that only ids come back.
 *
 * The rules are those of sample/sample.h, in their order, with the same random number for the same
 * (seed, position). Logits are overwritten. */
#ifndef WEIR_BACKEND_CUDA_SAMPLE_H
#define WEIR_BACKEND_CUDA_SAMPLE_H

#include "backend/cuda/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row that chooses. `slot`: whose history it is. */
struct cuda_sample_job {
    uint32_t logit_row;
    uint32_t slot; /* of histories; UINT32_MAX: no penalty is on */
    uint64_t position;
    uint64_t seed;
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t temperature_last;
    uint32_t first_bias, n_bias; /* into biases */
};
struct cuda_bias {
    int32_t id;
    float bias;
};

/* Which tokens a sequence holds: a count of each token of the vocabulary, in the prompt or not and
 * how often in the output. */
struct cuda_histories {
    uint32_t *counts; /* [slots][n_vocab]: output count * 2 + (is in the prompt) */
};
/* Forget slot's; count n tokens (of the device) of a prompt, or of an output that came back. No
 * walk may follow that would look whether they were taken on: they say so. */
cudaError_t cuda_history_begin(struct cuda_histories *h,
                               uint32_t n_vocab,
                               uint32_t slot,
                               cudaStream_t s);
cudaError_t cuda_history_add(struct cuda_histories *h,
                             uint32_t n_vocab,
                             uint32_t slot,
                             const int32_t *tokens,
                             uint32_t n,
                             int output,
                             cudaStream_t s);

/* What is chosen where all logits are NaN, or one is +inf: SAMPLE_NO_NUMBER (sample/sample.h). */
enum { CUDA_NO_NUMBER = -2 };

/* chosen[i] for jobs[0 .. counts.n_jobs); each chosen token is added to its history. jobs, biases:
 * of the device. scratch: cuda_sample_scratch bytes. */
size_t cuda_sample_scratch(uint32_t max_jobs, uint32_t n_vocab);
void cuda_sample(const struct cuda_at *at,
                 const struct cuda_sample_job *jobs,
                 const struct cuda_bias *biases,
                 const struct cuda_histories *h,
                 struct cuda_buf logits,
                 uint32_t n_vocab,
                 int32_t *chosen,
                 void *scratch);

#ifdef __cplusplus
}
#endif

#endif
