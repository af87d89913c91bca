/* The fields behind struct engine, and the body of its loop; for engine/ only.
 *
 * A step is begun (planned, filled, handed to the backend) and ended (its results taken in). Where
 * the backend runs beside the host the next one is begun in between:
 *
 *      step.c    who begins and ends when; the end of a request; what the consumer sees
 *      fill.c    a plan becomes a batch, and jobs
 *      accept.c  results become tokens of requests
 *
 * A request that ends while it has rows under way is taken out of those steps (step_item.r). */
#ifndef WEIR_ENGINE_STEP_H
#define WEIR_ENGINE_STEP_H

#include "backend/async.h"
#include "engine/engine.h"
#include "engine/guide.h"
#include "engine/pace.h"
#include "engine/quota.h"
#include "engine/request.h"
#include "sched/sched.h"

#include <pthread.h>

#define STEP_NONE UINT32_MAX

/* One sequence's share of a step. */
struct step_item {
    struct request *r; /* NULL: it has ended since, and nobody hears of this any more */
    struct sched_item plan;
    uint32_t host_row; /* the first of those of its rows whose logits the host gets */
};

/* One row that chooses a token. */
struct sample_job {
    uint32_t item;
    uint32_t device_job; /* who chooses it; STEP_NONE: the host */
    uint32_t host_row;   /* its logits; STEP_NONE: they stay on the device */
    int32_t chosen;
    float logprob;
};

/* A step from when it is planned until it has ended; room for the largest is taken at start. */
struct step_batch {
    struct step_item *items; /* [n_items] of max_running */
    uint32_t n_items, n_decodes;
    uint32_t n_drafts;         /* rows of decodes that are guesses */
    int32_t *tokens;           /* [max_rows] */
    int32_t *token_from;       /* [max_rows] (async.h) */
    uint32_t *positions;       /* [max_rows] */
    struct batch_seq *seqs;    /* [max_running] */
    uint32_t *logit_rows;      /* [max_logit_rows] */
    uint32_t *host_rows;       /* [n_host_rows] of max_logit_rows: into logit_rows */
    struct sample_job *jobs;   /* [n_jobs] of max_running */
    struct async_job *devices; /* [n_devices] of max_running: those of them that a device does */
    uint32_t n_host_rows, n_jobs, n_devices;
    bool host_chooses;         /* some of them the host does: the next step needs what it chose */
    uint32_t *hidden_rows;     /* [max_rows] */
    struct embed_job *vectors; /* [max_running] (embed.h) */
    uint32_t n_vectors;
    struct batch b;
    uint64_t begin_us;
    bool ahead;         /* it was begun while another was under way */
    uint32_t n_dropped; /* rows of requests that ended before it did */
    enum err err;       /* it could not be begun */
    struct err_info error;
    /* once it has run */
    float *logits;         /* [n_host_rows, n_vocab] */
    const int32_t *chosen; /* [n_devices] */
};

/* How the KV memory is divided. */
struct memory {
    uint32_t n_blocks, n_panes;
    uint64_t block_bytes, pane_bytes; /* of one */
    uint32_t window;                  /* 0, as n_panes and pane_bytes: there are none */
    uint32_t n_states;                /* of recurrent layers, */
    uint64_t state_bytes;             /* each so long; 0: there are none */
};

struct engine {
    const struct model *model;
    const struct tokenizer *tokenizer;
    struct engine_config cfg;
    struct backend *backend;
    const struct async_ops *async; /* its own, or NULL */
    struct memory memory;
    uint64_t file_hash; /* of the model, with a cache on disk: its name there */
    struct kv *kv;
    struct kv_tier *tier; /* or NULL */
    struct sched *sched;
    struct guide *guide; /* grammars */
    uint32_t n_ctx;
    enum pooling pooling;
    struct dense *dense;               /* behind it; NULL: nothing */
    uint32_t max_rows, max_logit_rows; /* of a step */

    /* engine thread alone */
    struct step_batch steps[ASYNC_STEPS];
    uint32_t first_step, n_steps; /* those under way: a ring */
    bool holds;                   /* none may be begun before they have ended */
    bool was_idle;                /* there was nothing to do before the next */
    uint64_t last_end_us;         /* when one ended last */
    struct pace pace;
    struct sample_scratch **scratch; /* [n_workers] */
    float **rows;                    /* [n_workers][n_vocab] copies of logits */
    struct request *active;          /* every request submitted and not yet finished */
    struct request *news;            /* those that changed in this step */
    bool waits_for_tier;             /* some sequence does */
    uint64_t next_check_us;

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
    struct err_info step_error; /* of the last step, under the same lock; code OK: none */
};

/* One iteration: begin a step, end one, or both. Returns false when there was nothing to do. */
bool step_run(struct engine *eng);

/* End the steps that are under way; nobody waits for them any more. */
void step_drain(struct engine *eng);

/* End a request, now: its place is free when this returns, its blocks too when the steps under way
 * have ended; its event goes out with the step. */
void step_finish(struct engine *eng, struct request *r, enum finish finish);

/* Hand this step's news to the consumer. */
void step_publish(struct engine *eng);

/* It has news for the consumer. */
void step_note_news(struct engine *eng, struct request *r);

/* --- fill.c --- */

enum err step_batch_init(struct step_batch *s,
                         uint32_t max_rows,
                         uint32_t max_running,
                         uint32_t max_logit_rows,
                         struct err_info *e) WEIR_MUST_USE;
void step_batch_deinit(struct step_batch *s);
/* Of eng->steps. */
void step_fill(struct engine *eng, struct step_batch *s, const struct sched_plan *plan);

/* --- accept.c: of a step that has run --- */

/* What was promised is stored: tell the scheduler, and read what logits say of prompts. */
void step_note_computed(struct engine *eng, struct step_batch *s);
/* Choose what the host has to choose, and give every request its token. */
void step_accept(struct engine *eng, struct step_batch *s);

#endif
