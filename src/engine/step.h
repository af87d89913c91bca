/* The fields behind struct engine, and the body of its loop; for engine/ only. */
#ifndef WEIR_ENGINE_STEP_H
#define WEIR_ENGINE_STEP_H

#include "engine/engine.h"
#include "engine/guide.h"
#include "engine/pace.h"
#include "engine/quota.h"
#include "engine/request.h"
#include "sched/sched.h"

#include <pthread.h>

/* One step's batch, filled anew each time; room for the largest is taken at start. */
struct step_batch {
    int32_t *tokens;        /* [max_rows] */
    uint32_t *positions;    /* [max_rows] */
    struct batch_seq *seqs; /* [max_running] */
    uint32_t *logit_rows;   /* [max_logit_rows] */
    struct sample_job {     /* the rows that choose a token */
        struct request *r;
        uint32_t logit_row; /* index into logit_rows */
        int32_t chosen;
        float logprob;
    } * jobs; /* [max_running] */
    uint32_t n_jobs;
    uint32_t *hidden_rows;     /* [max_rows] */
    struct embed_job *vectors; /* [max_running] (embed.h) */
    uint32_t n_vectors;
    struct batch b;
    float *logits; /* of the run: [b.n_logit_rows, n_vocab] */
};

/* How the KV memory is divided. */
struct memory {
    uint32_t n_blocks, n_panes;
    uint64_t block_bytes, pane_bytes; /* of one */
    uint32_t window;                  /* 0, as n_panes and pane_bytes: there are none */
};

struct engine {
    const struct model *model;
    const struct tokenizer *tokenizer;
    struct engine_config cfg;
    struct backend *backend;
    struct memory memory;
    struct kv *kv;
    struct kv_tier *tier; /* or NULL */
    struct sched *sched;
    struct guide *guide; /* grammars */
    uint32_t n_ctx;
    enum pooling pooling;
    uint32_t max_rows, max_logit_rows; /* of a step */

    /* engine thread alone */
    struct step_batch batch;
    struct pace pace;
    struct sample_scratch **scratch; /* [n_workers] */
    float **rows;                    /* [n_workers][n_vocab] copies of logits */
    struct request *active;          /* every request submitted and not yet finished */
    struct request *news;            /* those that changed in this step */
    bool waits_for_tier;             /* some sequence does */
    uint64_t last_check_us;

    pthread_t thread;
    bool thread_started;

    pthread_mutex_t submit_lock; /* submissions, cancellations, wake-ups */
    pthread_cond_t submit_cond;
    struct request *submit_head, *submit_tail;
    struct quota quota; /* of those submitted whose terminal event is not yet published */
    bool any_cancel, all_cancel, draining, stopping;
    bool tier_news; /* what waits for the tier may go on */
    bool check_wanted;

    pthread_mutex_t event_lock;
    struct request *event_head, *event_tail;
    int event_fd;

    pthread_mutex_t stats_lock;
    struct engine_stats stats;
};

/* One iteration: plan, run, sample, publish. Returns false when there was nothing to run. */
bool step_run(struct engine *eng);

/* End a request, now: its blocks are free when this returns, its event goes out with the step. */
void step_finish(struct engine *eng, struct request *r, enum finish finish);

/* Hand this step's news to the consumer. */
void step_publish(struct engine *eng);

enum err step_batch_init(struct step_batch *s,
                         uint32_t max_rows,
                         uint32_t max_running,
                         uint32_t max_logit_rows,
                         struct err_info *e) WEIR_MUST_USE;
void step_batch_deinit(struct step_batch *s);

#endif
