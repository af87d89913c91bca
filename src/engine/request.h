/* The fields behind struct request; for engine/ only.
 *
 * Three groups, by who writes: the owner before submit; the engine thread while it runs; and the
 * published view, which changes hands under the engine's event lock. */
#ifndef WEIR_ENGINE_REQUEST_H
#define WEIR_ENGINE_REQUEST_H

#include "backend/async.h"
#include "engine/draft.h"
#include "engine/engine.h"
#include "engine/rules.h"
#include "engine/stop.h"
#include "engine/thought.h"
#include "sched/sched.h"

#include <stdatomic.h>

/* How far the output has come. */
struct request_view {
    uint32_t n_out;
    enum finish finish;
    uint32_t text_bytes; /* to show in all, when finished */
    uint32_t n_completion;
    uint32_t n_cached; /* prompt tokens whose KV was found */
    uint32_t n_prefilled;
    uint32_t n_progress;
    enum stop_kind stop;
    token_id end_id;    /* that ended it, of STOP_EOG and STOP_ID; else TOKEN_NONE */
    uint32_t stop_text; /* which of the texts in `stop` */
    struct request_times times;
};

struct request {
    /* the owner's, constant after request_create */
    struct request_params params;
    struct logit_bias *bias; /* what params point to */
    token_id *stop_ids;
    uint64_t *no_ends; /* [n_vocab] bits: all tokens but those that end the output; or NULL */
    struct token_rules *rules; /* a reference, or NULL */
    void *user;
    uint32_t n_prompt;
    uint32_t max_new;
    token_id *tokens; /* [n_prompt + max_new] prompt, then output */

    /* the engine thread's */
    struct sched_seq seq;
    struct sample_history *history;
    struct stop_matcher *stop;
    struct thought thought;
    struct lines lines;
    struct grammar_state *grammar; /* or NULL */
    uint64_t *may;                 /* with rules: what may come, while its token is chosen */
    struct draft draft;            /* `after` is NULL: nothing is drafted */
    struct request_view now;
    uint64_t n_text_bytes; /* raw bytes of all output tokens */
    bool has_news;         /* on the engine's list of this step */
    struct request *prev_active, *next_active, *next_news;
    struct request_event events[REQUEST_MAX_EVENTS]; /* timeline.h */
    uint32_t n_events, n_events_omitted;
    uint32_t n_preempted_seen, n_before_fetch;
    bool in_step, fetching_seen;
    uint32_t item_of[ASYNC_STEPS]; /* in the steps under way, by place; or STEP_NONE (step.h) */
    uint32_t device_job;           /* that chooses its token, of the newest of them */
    uint32_t n_entered_slot;       /* times it had, when a device last counted its tokens; + 1 */

    /* arrays written by the engine up to a count, read by the consumer up to the published one */
    struct request_token *out;         /* [max_new] */
    struct token_logprob *top;         /* [max_new, n_top] */
    struct request_progress *progress; /* [REQUEST_MAX_PROGRESS] with params.progress */
    float *prompt_logprobs;            /* [n_prompt] */
    struct token_logprob *prompt_top;  /* [n_prompt, n_top] */
    uint32_t *prompt_ranks;            /* [n_prompt] with params.prompt_ranks */
    double *sums;                      /* [n_vector] of the rows so far, */
    float *vector;                     /* [n_vectors, n_vector] and what they come to (embed.h) */
    uint32_t n_vector, n_vectors;      /* 0: tokens are wanted */
    bool no_numbers;                   /* a value of vector is none */
    struct err_info error;

    /* under the event lock */
    struct request_view published;
    bool queued;
    struct request *next_event;
    struct request *next_submit; /* under the submit lock */

    struct request_view seen; /* the consumer's copy */
    atomic_bool cancel;
};

#endif
