/* The engine: requests in, events out, one thread that runs the steps.
 *
 *      any thread                   engine thread                       one consumer thread
 *      engine_submit --- queue ---> plan, run, sample, publish ------> engine_next_event
 *      engine_cancel                                                   request's output
 *
 * A request is one sequence: a prompt and what follows it. Its owner creates it, submits it, reads
 * its output as it grows and destroys it after its terminal event; every submitted request gets
 * exactly one. Between submit and that event the parameters belong to the engine.
 *
 * Output is published by counts: the engine appends to arrays, and copies how far they go under the
 * event lock once a step; taking the event copies that to the consumer, who may read that many
 * entries. So a slow reader loses nothing and blocks nobody. */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include "backend/backend.h"
#include "base/err.h"
#include "grammar/grammar.h"
#include "kv/kv.h"
#include "sample/sample.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

enum finish {
    FINISH_NONE,      /* still running */
    FINISH_STOP,      /* end-of-generation token, stop token or string, the end of the grammar */
    FINISH_LENGTH,    /* max_tokens, or the end of the context */
    FINISH_CANCELLED, /* engine_cancel, or the drain ran out of time */
    FINISH_ERROR,     /* request.error says what */
};

/* What ended a request that finished as FINISH_STOP, or as FINISH_LENGTH before its length. */
enum stop_kind {
    STOP_NONE,
    STOP_EOG,     /* the model's own end */
    STOP_ID,      /* one of params.stop_ids */
    STOP_TEXT,    /* one of params.stops */
    STOP_GRAMMAR, /* the text was complete */
    STOP_INDENT,  /* params.min_indent, */
    STOP_TIME,    /* or max_line_ms; of a request that finished as FINISH_LENGTH */
};

/* When a request got how far, by clock_us; 0: not yet. */
struct request_times {
    uint64_t submit_us, admit_us; /* admit: the first step that computed some of it */
    uint64_t first_us, last_us;   /* its first and its newest token */
    uint64_t end_us;
};

/* What a request is for. */
enum request_output {
    OUTPUT_TOKENS,
    OUTPUT_EMBEDDING, /* one vector of the whole prompt (without pooling, one of each token), */
    OUTPUT_SCORES,    /* or what the model's head makes of it; no tokens follow */
};

#define REQUEST_MAX_STOPS 16
#define REQUEST_MAX_TOP_LOGPROBS 20
#define REQUEST_MAX_PRIORITY 100

/* How long the output may reason, and how that is marked. Marks have fewer than 32 bytes. */
#define REQUEST_MAX_CLOSE 16
struct request_thought {
    bool on;
    bool open;           /* the prompt has opened it */
    uint32_t max_tokens; /* then the closing mark is put */
    bool first;          /* it opens only where the output begins; elsewhere the mark is text */
    char begin[32], end[32];
    char call[2][32];                  /* what ends it too, as a call begins; "": nothing */
    token_id close[REQUEST_MAX_CLOSE]; /* [n_close] what spells the end; at least one */
    uint32_t n_close;
};

/* What to do. Copied by request_create; strings and arrays too. */
struct request_params {
    enum request_output output;
    uint32_t
        n_first; /* of a pair of texts: tokens before the second begins; 0: there is one text */
    struct sample_params sample;
    uint32_t max_tokens; /* 0: as many as the context holds */
    uint32_t min_tokens; /* before so many no end comes: no end-of-generation token, none of
                          * stop_ids, and of `stops` none counts. What a grammar completes ends,
                          * and so do lines (min_indent, max_line_ms) */
    bool no_output;      /* the prompt alone is computed: its first token is neither shown nor
                          * counted, not as time to a first token either */
    bool same_prompt;  /* as another request's, an answer more to it: its tokens are not counted */
    bool ignore_eos;   /* end-of-generation tokens are ordinary output */
    bool special_text; /* control tokens are text, by their names; else they stand for none */
    bool logprobs;     /* of every output token */
    bool sampled_logprobs; /* and these of the draw, not of the model itself */
    uint32_t n_top_logprobs;
    bool prompt_logprobs; /* of every prompt token but the first */
    bool prompt_ranks;    /* and its place among all (sample_rank) */
    /* Of lines behind the first: one that begins with fewer spaces and tabs ends the output, cut
     * off from what they are followed by; 0: none does. */
    uint32_t min_indent;
    uint32_t
        max_line_ms; /* a newline so long after the first token ends the output; 0: none does */
    struct request_thought thought;
    bool progress;            /* each part of the prompt computed is news */
    struct stop_texts *stops; /* texts that end the output, themselves cut off (stop.h); or NULL.
                               * The request keeps a reference */
    bool keep_stop;           /* the one that ends it is not cut off */
    const token_id *stop_ids; /* [n_stop_ids] tokens that end the output, themselves cut off */
    uint32_t n_stop_ids;
    bool cache;             /* find, and leave, prefixes in KV memory */
    const char *cache_salt; /* [n_cache_salt] requests with other salts find none of this one's */
    size_t n_cache_salt;
    const uint8_t *cache_tenant; /* [n_cache_tenant] nor do those of other tenants; 0: nobody's */
    size_t n_cache_tenant;
    /* Tokens that never come (rules.h), of the model's vocabulary; or NULL. The request keeps a
     * reference. A text that a grammar has made complete ends where they leave nothing; else that
     * is an error. A thought's limit goes where they leave no whole mark of its end. */
    struct token_rules *rules;
    struct grammar *grammar; /* what the output must conform to, compiled for engine_vocab; or NULL.
                                The request keeps a reference */
    int32_t priority;        /* up to REQUEST_MAX_PRIORITY, or as far below 0; higher goes first */
    uint32_t tenant; /* whose it is; tenants of equal priority take turns (sched.h). 0: nobody's */
};
struct request_params request_params_default(void);

/* One generated token. */
struct request_token {
    token_id id;
    float logprob; /* when params.logprobs */
    /* Length of the output text, in raw bytes of all tokens so far, that may be shown: less than
     * what they spell while its end may yet become part of a stop string. */
    uint32_t text_bytes;
    uint64_t at_us; /* when it was chosen, by clock_us */
};

struct engine;
struct request; /* engine/request.h has the fields; the API reads it through these */

/* prompt[n_prompt] is copied. user: the owner's own. Any thread. Errors: ERR_INVALID (empty prompt,
 * id out of range, an output that the model does not have), ERR_TOO_LONG (context; names both
 * numbers, or blocks), ERR_NOMEM. */
enum err request_create(const struct engine *eng,
                        const struct request_params *p,
                        const token_id *prompt,
                        uint32_t n_prompt,
                        void *user,
                        struct request **out,
                        struct err_info *e) WEIR_MUST_USE;
void request_destroy(struct request *r); /* never submitted, or terminal event seen */

void *request_user(const struct request *r);
const token_id *request_prompt(const struct request *r, uint32_t *n);
/* Consumer's view; each call sees at least what the one before saw. */
uint32_t request_n_out(const struct request *r);
const struct request_token *request_out(const struct request *r);             /* [n_out] */
const struct token_logprob *request_top(const struct request *r, uint32_t i); /* of output i */
const float *request_prompt_logprobs(const struct request *r, uint32_t *n);   /* [n], [0] is 0 */
const struct token_logprob *request_prompt_top(const struct request *r, uint32_t i);
uint32_t request_prompt_rank(const struct request *r, uint32_t i); /* with params.prompt_ranks */
enum finish request_finish(const struct request *r); /* once not NONE, everything is final */
/* Valid when finished: output tokens that count as completion, text bytes to show in all. */
uint32_t request_text_bytes(const struct request *r);
uint32_t request_n_completion(const struct request *r); /* usage.completion_tokens */
uint32_t request_n_cached(const struct request *r);     /* prompt tokens whose KV was reused */
uint32_t request_n_prefilled(const struct request *r);  /* with params.progress: prompt tokens that
                                                           are computed or were found; any time */
/* With params.progress: what request_n_prefilled was after each of the first REQUEST_MAX_PROGRESS
 * steps that made it more, [*n]; any time. */
#define REQUEST_MAX_PROGRESS 256
struct request_progress {
    uint64_t at_us;
    uint32_t n_prefilled;
};
const struct request_progress *request_progress(const struct request *r, uint32_t *n);
/* Valid once finished as FINISH_STOP: the embedding [n_embd], not normalised, or the scores
 * [n_labels]; of a request for tokens NULL. n_vectors: how many there are, one behind the other:
 * of POOLING_NONE as many as the prompt has tokens, otherwise 1. */
const float *request_vector(const struct request *r, uint32_t *n);
uint32_t request_n_vectors(const struct request *r);
const struct err_info *request_error(const struct request *r);
enum stop_kind request_stop(const struct request *r); /* valid when finished */
/* The token that ended it, which is counted but none of its output, of STOP_EOG and STOP_ID; else
 * TOKEN_NONE. */
token_id request_end_id(const struct request *r);
/* The text of params.stops that ended it; only for STOP_TEXT. */
const char *request_stop_text(const struct request *r);
struct request_times request_times(const struct request *r);

/* What else happened, in order of time. */
#define REQUEST_MAX_EVENTS 64
enum request_event_kind {
    REQUEST_ADMITTED, /* into a step, again after it was preempted; n_tokens positions were there */
    REQUEST_PREFILL,  /* n_tokens of the prompt are computed; after a preemption, of the output too
                       */
    REQUEST_PREEMPTED, /* put back into the queue */
    REQUEST_FETCHING,  /* waits for the tier below */
    REQUEST_FETCHED,   /* n_tokens positions came from it */
};
struct request_event {
    uint64_t us;
    enum request_event_kind kind;
    uint32_t n_tokens;
};
/* Valid when finished. *n_omitted: how many more there were. */
const struct request_event *request_events(const struct request *r,
                                           uint32_t *n,
                                           uint32_t *n_omitted);

enum { ENGINE_MAX_DRAFT = 7 };

struct engine_config {
    struct device device; /* where the model runs */
    uint32_t n_threads;   /* 0: one a physical core */
    enum kv_type kv_type;
    uint64_t kv_bytes;         /* 0: a default */
    uint32_t block_tokens;     /* 0: 16 */
    uint32_t n_ctx;            /* longest prompt + output; 0: what the model was trained on */
    uint32_t max_running;      /* sequences admitted at once */
    uint32_t max_queue;        /* requests waiting beyond them */
    uint32_t batch_tokens;     /* rows in a step */
    double overcommit;         /* 0..1, of the output that admission does not count on (sched.h) */
    uint64_t host_cache_bytes; /* the RAM tier; 0: none */
    const char *cache_dir;     /* the disk tier, below it; NULL: none */
    uint64_t cache_bytes;      /* that it may take; 0: a default */
    enum pooling pooling; /* of embeddings; unspecified: as the file says, else of the last position
                           * where the model is causal, and the mean where not */
    uint32_t batch_window_ms; /* an idle engine waits so long for more than the first request,
                               * unless max_running have come; 0: it does not */
    uint32_t itl_target_ms;   /* a step with decodes aims to last at most this; 0: automatic */
    uint32_t n_draft; /* tokens guessed ahead (draft.h), at most ENGINE_MAX_DRAFT; 0: none */
    void (*progress)(void *ctx, double fraction);
    void *progress_ctx;
    /* For tests: makes another backend. */
    enum err (*make_backend)(const struct model *m,
                             const struct backend_config *cfg,
                             struct backend **out,
                             struct err_info *e);
    bool check_always;   /* for tests: walk the KV memory after each step (stats.checks) */
    uint32_t draft_gram; /* for tests: drafts where so many tokens have stood before; 0: 3 */
};
struct engine_config engine_config_default(void);

/* Packs the weights for the device (progress says how far that is), takes the workspace and all KV
 * memory, tiers included, and starts the engine thread. Model and tokenizer must outlive it.
 * Errors: ERR_INVALID (what *cfg says, also more KV memory than there is, or too little),
 * ERR_FORMAT (more tokens in the tokenizer than in the model), ERR_NOMEM, ERR_IO (cache_dir),
 * ERR_NOT_FOUND (no such device, or no plugin), ERR_UNSUPPORTED, ERR_INTERNAL (the device). */
enum err engine_create(const struct model *m,
                       const struct tokenizer *t,
                       const struct engine_config *cfg,
                       struct engine **out,
                       struct err_info *e) WEIR_MUST_USE;

/* Any thread. Errors (no event follows): ERR_QUEUE_FULL, ERR_DRAINING, ERR_INVALID (more at once
 * than could ever be held). */
enum err engine_submit(struct engine *eng, struct request *r, struct err_info *e) WEIR_MUST_USE;
/* All of them or none, so that one API call is admitted whole. They are of one tenant, which may
 * hold so much of the room only that others find some too (quota.h). */
enum err engine_submit_all(struct engine *eng,
                           struct request *const *rs,
                           uint32_t n,
                           struct err_info *e) WEIR_MUST_USE;

/* Any thread, any time between submit and destroy. The terminal event still comes. */
void engine_cancel(struct engine *eng, struct request *r);

/* A descriptor that is readable while events wait. */
int engine_event_fd(const struct engine *eng);
/* Consumer thread: the next request with news (more output, or terminal), NULL if none. A request
 * is named at most once for any amount of news; after its terminal event never again. */
struct request *engine_next_event(struct engine *eng);

/* Refuse new requests from now on (ERR_DRAINING); those submitted go on. */
void engine_drain(struct engine *eng);
/* Cancel every request there is. Any thread. */
void engine_cancel_all(struct engine *eng);
/* Stop the thread; what still runs ends as FINISH_CANCELLED, and its events can be read. */
void engine_stop(struct engine *eng);
void engine_destroy(struct engine *eng); /* stops first; all requests destroyed already */

uint32_t engine_n_ctx(const struct engine *eng);
enum pooling engine_pooling(const struct engine *eng); /* never unspecified */
const struct model *engine_model(const struct engine *eng);
const struct tokenizer *engine_tokenizer(const struct engine *eng);

/* Ask for a walk over all of the KV memory that compares everything that is known twice
 * (sched_check), between two steps; engine_stats.checks counts those made. At most one a second,
 * and 1/20 of the time. Any thread. */
void engine_want_check(struct engine *eng);

/* The vocabulary that grammars are compiled for; made when first asked for. Any thread.
 * Errors: ERR_NOMEM. */
enum err engine_vocab(struct engine *eng,
                      const struct grammar_vocab **out,
                      struct err_info *e) WEIR_MUST_USE;

/* A histogram over fixed bounds; the last bucket is everything above. */
#define ENGINE_HIST_BUCKETS 20
struct engine_hist {
    const double *bounds; /* [n_bounds] upper bounds, ascending */
    uint32_t n_bounds;
    uint64_t counts[ENGINE_HIST_BUCKETS]; /* [n_bounds + 1], not cumulative */
    double sum;
    uint64_t count;
};

/* Everything measured, as of now. Any thread. */
struct engine_stats {
    uint32_t running, waiting, max_running, max_queue;
    uint64_t requests_by_finish[FINISH_ERROR + 1]; /* ended, by enum finish */
    uint64_t prompt_tokens, output_tokens;         /* a prompt once, however many answers */
    uint64_t looked_up_tokens, cached_tokens;      /* of each prompt that looks; found computed */
    uint64_t computed_tokens;                      /* of each answer's prompt: the others */
    uint64_t vectors;                              /* texts that became embeddings or scores */
    uint32_t most_tokens;                          /* that a request had, prompt and output */
    uint64_t steps, steps_with_prefill;
    uint64_t steps_ahead;                      /* begun while another was under way */
    uint64_t rows_dropped;                     /* computed for requests that had ended meanwhile */
    uint64_t drafts;                           /* computed, */
    uint64_t draft_tokens, draft_tokens_right; /* theirs; those that were chosen */
    uint64_t steps_failed;                     /* whose backend gave an error */
    uint64_t step_allocations;                 /* made inside steps after warm-up; 0 or a bug */
    uint64_t preemptions;
    struct kv_stats kv;
    uint32_t kv_block_tokens;
    uint64_t kv_block_bytes; /* without its pane */
    uint64_t kv_pane_bytes;  /* 0: there are none */
    uint32_t kv_window;      /* positions that layers with panes see */
    uint64_t kv_state_bytes; /* of recurrent layers; 0: there are none */
    struct grammar_mask_stats masks;
    uint64_t checks; /* of the KV memory, on demand */
    bool check_ok;   /* the last one */
    struct err_info check_error;
    uint32_t n_tiers; /* below the KV memory, from the first */
    struct engine_tier {
        const char *name;
        struct kv_tier_stats stats;
    } tiers[KV_MAX_TIERS];
    uint64_t memory_bytes; /* held by the backend */
    bool on_gpu;
    struct gpu_stats gpu; /* if it is on one */
    double run_us,
        waited_us; /* of its workers, added up: at work together, loading too; for one another */
    struct engine_hist ttft, itl, queue_time, e2e, prefill_time, decode_time; /* seconds */
    struct engine_hist batch_rows, batch_seqs, step_time;
};
void engine_stats_get(const struct engine *eng, struct engine_stats *out);
/* OK, or why the last step failed: a device that has died fails all of them. Any thread. */
enum err engine_working(const struct engine *eng, struct err_info *e);
const char *engine_describe(const struct engine *eng); /* the backend's own words */
bool engine_on_gpu(const struct engine *eng);

#endif
