/* What a backend adds that runs beside the host: steps are begun, and heard of when they are done.
 *
 *      host      begin 1 | begin 2 | end 1: accept | begin 3 | end 2: accept | ...
 *      device              step 1 ........ | step 2 .......... | step 3
 *
 * Up to ASYNC_STEPS are under way; they run one after another, in the order in which they began. So
 * that a step can begin before the host knows what the one before chose, the backend chooses
 * tokens itself where it can, and a row of the next step may name a job of this one instead of a
 * token. Of logits only those rows come back that the host asks for.
 *
 * What a sequence holds (for penalties) is counted on the device, in a history for each slot; every
 * token that a job chooses is added to its own.
 *
 * Promise, beside that of backend.h: a token depends on its row's logits, its job's parameters and
 * what its history was made of, never on other jobs.
 *
 * While steps are under way: hidden() is of the one ended last, until the next begins or ends;
 * parallel() is for the host's own work; block_copy, block_read and block_write as kv_mover says
 * (kv/kv.h); run() is not called. Thread: the engine's. */
#ifndef WEIR_BACKEND_ASYNC_H
#define WEIR_BACKEND_ASYNC_H

#include "backend/backend.h"
#include "sample/sample.h"

#include <stdbool.h>

enum { ASYNC_STEPS = 2 };

/* One row that chooses a token on the device. */
struct async_job {
    uint32_t logit_row; /* into batch.logit_rows */
    uint32_t slot;      /* the sequence's, < max_seqs; no two jobs of a step have the same */
    uint64_t position;  /* of the token to be chosen */
    const struct sample_params *params;
    /* Where this is the sequence's first job in this slot: all that it holds, of which n_prompt are
     * the prompt. Else NULL: what its jobs chose has been added since. */
    const int32_t *tokens; /* [n_tokens] */
    uint32_t n_prompt, n_tokens;
};

/* A batch, and what else a step needs if it is to run beside the host. */
struct async_step {
    const struct batch *batch;
    const int32_t *token_from;    /* [n_rows] from 0: the token is what that job chose, of the step
                                   * that began before this one; batch->tokens has none. -1: it has */
    const struct async_job *jobs; /* [n_jobs] */
    uint32_t n_jobs;
    const uint32_t *host_rows; /* [n_host_rows] of logit_rows, ascending: these come back, as the
                                * model made them */
    uint32_t n_host_rows;
    bool follows; /* there was work to do all the time since the step before: of use for figures */
};

struct async_result {
    const int32_t *chosen; /* [n_jobs] */
    float *logits;         /* [n_host_rows, n_vocab], writable; both until the next begin or end */
};

struct async_ops {
    /* Are these parameters within what a job may have? The answer depends on them alone. */
    bool (*can_choose)(const struct backend *b, const struct sample_params *p);
    /* Takes all it needs of *s, which is the caller's again on return; less than ASYNC_STEPS are
     * under way. Allocates nothing. Errors: ERR_INTERNAL; then the step has not begun. */
    enum err (*begin)(struct backend *b, const struct async_step *s, struct err_info *e);
    /* Wait for the oldest step under way. Errors: ERR_INTERNAL; it has ended, without a result. */
    enum err (*end)(struct backend *b, struct async_result *out, struct err_info *e);
};

#endif
