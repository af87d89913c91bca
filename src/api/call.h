/* What is behind struct api and struct api_call; for api/ only.
 *
 *      struct api_call ---- choices[n] ---- struct request (the engine's)
 *           |                    '-- text cursor: what of its output was written
 *           '-- dialect: how its bytes look (chat.c, completions.c)
 *
 * A call without a dialect is a complete answer in `body`. Until engine_submit_all the worker that
 * runs api_begin owns a call; from then on the loop thread does. A call that ends while requests
 * run stays until the engine has let go of the last one. */
#ifndef WEIR_API_CALL_H
#define WEIR_API_CALL_H

#include "api/api.h"
#include "api/params.h"
#include "base/utf8.h"

#include <stdatomic.h>

#define API_MAX_STATUS 600

struct api {
    char *model_id;
    struct buf model_json; /* model_id as a JSON string */
    bool has_key;
    unsigned char key_digest[32];
    uint32_t max_choices;
    bool no_embeddings;
    int64_t created;
    const struct chat_template *tmpl; /* valid once engine is set */
    _Atomic(struct engine *) engine;
    atomic_bool draining;
    api_extra_metrics_fn extra;
    void *extra_ctx;
    atomic_uint_least64_t n_answers[API_MAX_STATUS]; /* by status */
    struct api_call *news_head, *news_tail;          /* loop thread: named by the engine */
};

struct api_choice {
    struct api_call *call;
    struct request *req;
    uint32_t index;
    bool done;   /* the terminal event was seen */
    bool closed; /* its last chunk is written */
    bool echoed; /* the prompt, where it is wanted, is written */
    bool ended;  /* the text is flushed: no more pieces */
    /* the text cursor (text.c): */
    uint32_t n_taken; /* output tokens that became pieces */
    uint32_t tok_at;  /* next byte to write: of output tok_at, at tok_off */
    uint32_t tok_off;
    uint32_t n_bytes; /* raw bytes written so far */
    uint32_t n_chars; /* characters written so far, prompt included if echoed */
    struct utf8_stream utf8;
};

struct api_dialect;

struct api_call {
    struct api *api;
    void *name; /* api_input's */
    const struct api_dialect *dialect;
    struct api_answer answer;
    struct buf body;
    char id[40];
    char request_id[132]; /* the client's own, or empty */
    char retry_after[12];
    const struct tokenizer *tokenizer;
    struct engine *engine;
    int64_t created;
    struct buf prefix; /* of each chunk, up to the choices' elements; or of the whole answer */
    struct buf text;   /* of the piece under construction */
    struct api_choice *choices;
    uint32_t n_choices;
    uint32_t n_per_prompt;
    uint32_t n_running;          /* choices whose terminal event has not come */
    struct api_vectors *vectors; /* vectors.h; of calls for embeddings and scores, else NULL */
    struct buf *echoes;          /* [n_prompts] text of the prompts, when echo */
    uint32_t n_prompts;
    bool include_usage, return_tokens, ignore_eos, logprobs, echo;
    uint32_t n_top;
    bool opened, counted;
    bool ended;  /* api_end was called */
    bool listed; /* on the api's list of news */
    struct api_call *next_news;
};

/* A step of visible output: one token's, or what the end released. */
struct api_piece {
    const char *text; /* whole characters; valid until the next piece */
    size_t len;
    int64_t token; /* index into the outputs, -1 for none */
};

/* One prompt ready for the engine. */
struct api_prompt {
    struct token_list ids;
    struct buf text; /* for echo */
};

/* What a body became. */
struct api_job {
    struct api_params params;
    struct api_prompt *prompts;
    uint32_t n_prompts;
};

/* How one dialect reads and writes. All but parse: loop thread. */
struct api_dialect {
    const char *id_prefix;    /* "cmpl-" */
    const char *object;       /* of a whole answer */
    const char *chunk_object; /* of a stream's chunks */
    const char *prompt_field; /* at fault when the prompt is too long */
    bool whole_context;       /* without max_tokens: to the end of the context, else 16 */
    /* The dialect's own fields into *c (flags) and *job (params, prompts). Errors: as the client
     * should see them. */
    enum err (*parse)(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e);
    void (*open)(struct api_call *c, struct buf *out); /* first chunks of a stream, or none */
    void (*piece)(struct api_choice *ch, const struct api_piece *p, struct buf *out);
    void (*close)(struct api_choice *ch, struct buf *out); /* the choice's last chunk */
    void (*whole)(struct api_choice *ch, struct buf *out); /* element of "choices" */
    /* Instead of the three above, where it is there: all of the answer, when all have ended.
     * Errors: as the client should see them; then *out is as it was. */
    enum err (*answer)(struct api_call *c, struct buf *out, struct err_info *e);
};
extern const struct api_dialect api_completions, api_chat;

/* Fill *c with a complete answer. The body is appended to c->body by the caller or here. */
void api_answer_json(struct api_call *c, int status);
void api_answer_error(struct api_call *c, const struct err_info *e);

/* "PREFIX" and 24 random hex digits into id[cap]. */
void api_new_id(const char *prefix, char *id, size_t cap);

/* POST bodies: parse, tokenize, submit. On failure c is an error answer. (generate.c) */
void api_generate(struct api_call *c, const struct api_dialect *d, const struct api_input *in);
struct api_prompt *api_job_prompts(struct api_job *job, uint32_t n); /* take n empty ones */
/* A prompt of token ids, taken as it is. (completions.c) */
enum err api_ids_prompt(struct api_call *c,
                        const json_t *v,
                        const char *field,
                        struct api_prompt *p,
                        struct err_info *e) WEIR_MUST_USE;
void api_job_deinit(struct api_job *job);
/* Hand all choices to the engine. After OK, *c belongs to the loop thread. */
enum err api_submit(struct api_call *c,
                    const struct api_dialect *d,
                    bool stream,
                    struct err_info *e) WEIR_MUST_USE;
enum err api_check_model(const struct api_call *c, struct gguf_str name, struct err_info *e)
    WEIR_MUST_USE;                            /* NAME of the request, data NULL: absent */
void api_choices_destroy(struct api_call *c); /* requests not submitted, or ended */

/* POST: a vector of each text. openai: OpenAI's shape, else llama-server's. (embeddings.c) */
void api_embeddings(struct api_call *c, const struct api_input *in, bool openai);
/* POST: texts in the order of how well they fit a query. (rerank.c) */
void api_rerank(struct api_call *c, const struct api_input *in);

/* GET routes. */
void api_health(struct api_call *c); /* models.c */
void api_models(struct api_call *c);
void api_model(struct api_call *c, const char *id);
void api_metrics(struct api_call *c);               /* metrics.c */
void api_kv(struct api_call *c, const char *query); /* kv.c */
bool api_is_model(const struct api *a, const char *name, size_t n);

/* "stop" or "length". */
const char *api_finish_name(enum finish f);

/* The usage object of the call, all requests finished. */
void api_put_usage(const struct api_call *c, struct buf *out);

/* A chunk around one choice: begin writes up to `"index":N`, end from `,"finish_reason"`. */
void api_chunk_begin(const struct api_choice *ch, struct buf *out);
void api_chunk_end(const struct api_choice *ch, const char *finish, struct buf *out);

#endif
