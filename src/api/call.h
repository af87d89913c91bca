/* What is behind struct api and struct api_call; for api/ only.
 *
 *      struct api_call ---- choices[n] ---- struct request (the engine's)
 *           |                    '-- text cursor: what of its output was written
 *           '-- dialect: how its bytes look (chat.c, completions.c, messages.c, responses.c,
 *                       native.c, plain.c, embeddings.c, rerank.c), with a state of its own
 *
 * A call without a dialect is a complete answer in `body`. Until engine_submit_all the worker that
 * runs api_begin owns a call; from then on the loop thread does. A call that ends while requests
 * run stays until the engine has let go of the last one. */
#ifndef WEIR_API_CALL_H
#define WEIR_API_CALL_H

#include "api/api.h"
#include "api/keys.h"
#include "api/params.h"
#include "base/utf8.h"
#include "chat/tools.h"

#include <stdatomic.h>

#define API_MAX_STATUS 600

/* Whose errors a route speaks (errors.c). */
enum api_shape {
    API_OPENAI,    /* {"error": {message, type, param, code}} */
    API_BARE,      /* the same without /v1, where llama-server's clients are */
    API_ANTHROPIC, /* {"type": "error", "error": {type, message}, "request_id"} */
    API_LLAMA,     /* {"error": {code, message, type}}, code being the status */
    API_PLAIN,     /* {"error": message} */
};

struct api_store;

struct api {
    char *model_id;
    struct buf model_json; /* model_id as a JSON string */
    struct api_config cfg; /* but for the texts that are copied */
    struct api_keys *keys;
    uint32_t max_choices;
    json_t *defaults;        /* what requests that do not say are taken to say; or NULL */
    char *model_path;        /* for /props */
    struct api_store *store; /* of answers that /v1/responses can be asked for again */
    int64_t created;
    uint64_t began_us;                /* monotonic */
    const struct chat_template *tmpl; /* valid once engine is set */
    _Atomic(struct engine *) engine;
    atomic_bool draining;
    struct api_service service; /* handle NULL: none */
    struct grammar_cache *grammars;
    struct api_gate *gate; /* for those that are costly to compile */
    api_extra_metrics_fn extra;
    void *extra_ctx;
    atomic_uint_least64_t n_answers[API_MAX_STATUS]; /* by status */
    atomic_uint_least64_t n_vector_values;           /* held by calls without pooling (vectors.h) */
    struct api_call *news_head, *news_tail;          /* loop thread: named by the engine */
};

struct api_choice {
    struct api_call *call;
    struct request *req;
    uint32_t index;
    bool done;       /* the terminal event was seen */
    bool closed;     /* its last chunk is written */
    uint32_t n_told; /* of its prompt: how much was told to be there (extras.c) */
    bool echoed;     /* the prompt, where it is wanted, is written */
    bool ended;      /* the text is flushed: no more pieces */
    /* log-probabilities of the echoed prompt (completions.c): */
    uint32_t n_echoed;   /* tokens that are written */
    uint32_t echo_chars; /* characters of these */
    /* the text cursor (text.c): */
    uint32_t n_taken; /* output tokens that became pieces */
    uint32_t tok_at;  /* next byte to write: of output tok_at, at tok_off */
    uint32_t tok_off;
    uint32_t n_bytes;        /* raw bytes written so far */
    uint32_t n_chars;        /* characters written so far, prompt included if echoed */
    struct utf8_stream utf8; /* of the echoed prompt before, which leaves nothing in it */
    /* a reply in parts (reply.c): */
    struct reply_parser *reply;  /* NULL: all of the output is content */
    struct buf logprobs, tokens; /* of tokens that no chunk has told of yet */
    uint32_t n_ids;              /* output tokens whose ids are told, and the prompt's (ids.c) */
    bool prompt_ids, end_id;
    uint32_t n_read;     /* output tokens that it has read */
    uint32_t n_thoughts; /* of them reasoning, the mark at its end included */
};

struct api_dialect;

/* What the log has of a call's requests, of all together, once they are gone: the first times and
 * the worst end. */
struct api_computed {
    uint32_t n_choices;
    enum finish finish;
    uint64_t n_prompt, n_cached, n_completion;
    uint64_t admit_us, first_us;
    struct buf timeline; /* with a slow log */
};

struct api_call {
    struct api *api;
    void *name; /* api_input's */
    const struct api_dialect *dialect;
    enum api_shape shape;
    void *state; /* the dialect's, from parse until the call ends */
    void (*free_state)(void *state);
    struct api_answer answer;
    struct api_header headers[API_MAX_HEADERS]; /* of the answer, by api_put_header */
    struct buf body;
    char id[40];
    char request_id[132]; /* the client's own, or empty */
    char retry_after[12];
    char allow[64];
    char began[24]; /* when the server did, in seconds since 1970 (metrics.c) */
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
    struct chat_tools tools; /* of the request; of its own body */
    const json_t
        *tool_places; /* the dialect's, of tools that it made for the chat route (tools.h) */
    struct reply_config reply; /* how replies are read; style NULL: they are not */
    bool include_usage, usage_so_far, return_tokens, ignore_eos, logprobs, echo;
    bool special_text;  /* control tokens are text (text.c) */
    bool token_ids;     /* those of prompt and output (ids.c) */
    bool tokens_as_ids; /* log-probabilities name tokens by their numbers (text.c) */
    bool parse_special; /* control tokens in texts of prompts (completions.c), and */
    bool no_special;    /* nothing put around them */
    bool timings_per_token, progress, verbose; /* extras.c */
    struct buf settings;                       /* generation_settings as JSON, if answers have it */
    uint32_t n_top;
    bool prompt_logprobs; /* prompt_logprobs.c, */
    uint32_t n_prompt_top;
    int file_fd; /* of a reply that is a file; -1: none */
    uint64_t file_due;
    bool prompt_only; /* nothing will be generated */
    bool opened, counted;
    /* who (keys.h), and what for the log (record.c) */
    struct api_key *key; /* or NULL */
    const char *gone;    /* internal: the owner, if its key is not there any more; while parsing */
    bool entered;        /* counts among the key's running requests */
    bool refused;        /* after that, by a limit or by the engine */
    bool internal;       /* api_input's, and so is the next */
    int32_t rank;
    uint64_t n_charged; /* prompt tokens taken from the key's limit */
    char limits[6][24]; /* values of x-ratelimit headers */
    const char *route;  /* of the table, or NULL */
    char method[8];
    char client[64];
    char traceparent[64]; /* as it came, or empty */
    char trace_id[33];
    int64_t begin_unix_ms;
    uint64_t begin_us, end_us;
    uint64_t bytes_in, bytes_out;
    struct api_computed computed;
    bool timeline; /* asked for in the answer */
    bool written;  /* api_work has: the answer is `body` */
    bool whole;    /* the answer was given to its end */
    bool ended;    /* api_end was called */
    bool listed;   /* on the api's list of news */
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
    struct buf text; /* for echo; of completions and of plain.c UTF-8 */
};

/* What a body became. */
struct api_job {
    struct api_params params;
    struct api_key_terms terms; /* what params point to */
    struct api_prompt *prompts;
    uint32_t n_prompts;
};

/* What a dialect calls a field that params.c and chat.c know by another name; "x.y": a member. */
struct api_rename {
    const char *from, *to;
};

/* How one dialect reads and writes. All but adapt and parse: loop thread. */
struct api_dialect {
    const char *id_prefix;            /* "cmpl-" */
    const char *object;               /* of a whole answer; NULL: the dialect has no "choices" */
    const char *chunk_object;         /* of a stream's chunks */
    const char *prompt_field;         /* at fault when the prompt is too long */
    bool whole_context;               /* without max_tokens: to the end of the context, else 16 */
    bool any_model;                   /* its clients have names of models built in */
    const struct api_rename *renames; /* up to one without `from`; or NULL */
    /* *out: a new body with the fields that params.c and chat.c read, made of the client's. NULL:
     * the client's is one. */
    enum err (*adapt)(struct api_call *c, const json_t *body, json_t **out, struct err_info *e);
    /* The dialect's own fields into *c (flags) and *job (params, prompts). Errors: as the client
     * should see them. */
    enum err (*parse)(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e);
    void (*open)(struct api_call *c, struct buf *out); /* first chunks of a stream; or NULL */
    void (*piece)(struct api_choice *ch, const struct api_piece *p, struct buf *out);
    /* With api_call.echo, before the first piece: a part of the prompt, until it is `echoed`. */
    void (*echo)(struct api_choice *ch, struct buf *out);
    /* A chunk without text; `fields` go behind those that all chunks have. NULL: none is written.
     */
    void (*progress)(struct api_choice *ch, const char *fields, struct buf *out);
    void (*close)(struct api_choice *ch, struct buf *out); /* the choice's last chunk */
    void (*end)(struct api_call *c, struct buf *out);      /* behind the last choice's; or NULL */
    void (*fail)(struct api_call *c, const struct err_info *e, struct buf *out); /* instead */
    void (*whole)(struct api_call *c, struct buf *out); /* the answer, all choices finished */
};
extern const struct api_dialect api_completions, api_chat, api_messages, api_responses, api_native,
    api_infill;

/* A header of the answer; both live until api_end. Those beyond API_MAX_HEADERS are a bug. */
void api_put_header(struct api_call *c, const char *name, const char *value);

/* Who asks, and what the key's limits say (access.c). enter: before the route of a POST runs.
 * charge: the prompts' tokens, before submit; uncharge: the engine refused. settle: the call is
 * over or will not run; once, and only when no request runs. */
enum err api_identify(struct api_call *c,
                      const struct api_input *in,
                      bool admin_route,
                      struct err_info *e);
enum err api_enter(struct api_call *c, struct err_info *e);
enum err api_charge(struct api_call *c, uint64_t n_prompt, struct err_info *e);
void api_uncharge(struct api_call *c);
void api_settle(struct api_call *c);
bool api_client_left(const struct api_call *c); /* before api_begin has returned */
/* Whose what a call leaves behind is: the tenant of its key, 0 without one. */
uint32_t api_owner(const struct api_call *c);
/* The key's terms into what the body asked for: salt and priority; and an internal call's rank. */
enum err api_apply_terms(const struct api_call *c,
                         const json_t *body,
                         struct api_key_terms *terms,
                         struct request_params *p,
                         struct err_info *e);

/* Pages of other origins (cors.c): headers for one that may call. */
void api_cors(struct api_call *c, const struct api_input *in);
/* Is it a browser that asks whether it may? Then the answer is made. */
bool api_cors_preflight(struct api_call *c, const struct api_input *in);

/* What remains of a call (record.c). */
void api_record_begin(struct api_call *c, const struct api_input *in);
void api_record_requests(struct api_call *c); /* before they go */
void api_record_end(const struct api_call *c);
void api_count_answer(struct api *a, int status);
/* ,"timeline":{...} of all choices, or of one; with the comma, and nothing if it was not asked for.
 * Those it tells of have finished. */
void api_add_timeline(const struct api_call *c, struct buf *out);
void api_add_own_timeline(const struct api_choice *ch, struct buf *out);

/* Fill *c with a complete answer. The body is appended to c->body by the caller or here. */
void api_answer_json(struct api_call *c, int status);
void api_answer_error(struct api_call *c, const struct err_info *e);
enum err api_no_memory(struct err_info *e); /* ERR_NOMEM */
enum err api_no_model(const struct api *a, const char *name, struct err_info *e);
/* What tokenizer_encode said of a field's text: the client's fault, unless memory was out. */
enum err api_not_tokenized(enum err why, const char *field, struct err_info *e);
void api_put_retry_after(struct api_call *c, uint32_t seconds); /* of a 429; else it is guessed */

/* What runs for a route. OK: c's body is the answer, or c is the loop thread's by now. Errors: as
 * the client should see them. */
typedef enum err api_run_fn(struct api_call *c,
                            const struct api_input *in,
                            struct err_info *e) WEIR_MUST_USE;
api_run_fn api_serve; /* service.c: what the service says */
api_run_fn api_plain, api_plain_many, api_plain_stream, api_plain_batch; /* plain.c */
api_run_fn api_tokenize_batch, api_chat_stream;
api_run_fn api_batch_stats, api_figures, api_plain_models; /* figures.c */
api_run_fn api_gpu_warmup, api_gpu_status;                 /* gpu.c */
api_run_fn api_health, api_version, api_models, api_model; /* models.c */
api_run_fn api_metrics, api_kv, api_openapi;
api_run_fn api_tokenize, api_detokenize, api_apply_template; /* tokenize.c */
api_run_fn api_count_chat, api_count_messages, api_count_responses;
api_run_fn api_props, api_props_set, api_slots, api_slot_action, api_lora,
    api_lora_set;                                 /* props.c */
api_run_fn api_response_get, api_response_delete; /* responses.c */
api_run_fn api_response_items;                    /* responses_items.c */
api_run_fn api_embeddings, api_rerank;

enum api_pull api_pull_file(struct api_call *c, struct buf *out); /* service.c */
uint64_t api_gpu_buffers(const struct gpu_stats *g); /* bytes of the pool's, of the device */
double api_share(double part, double rest);          /* of both together; 0 where both are 0 */

/* errors.c, routes.c. request_id: NULL if there is none. */
int api_shape_status(enum api_shape shape, enum err code);
void api_put_error(enum api_shape shape,
                   int status,
                   const struct err_info *e,
                   const char *request_id,
                   struct buf *out);
enum api_shape api_shape_of(const char *path);

/* Check, and run, the route that *in asks for. (routes.c) */
void api_route(struct api_call *c, const struct api_input *in);
const char *api_path_after(const char *path, const char *part); /* which is there */
/* Of the query: NAME=1 or true, 0 or false. Absent: *out stays. Errors: ERR_INVALID. */
enum err api_query_flag(const struct api_input *in, const char *name, bool *out, struct err_info *e)
    WEIR_MUST_USE;

/* POST bodies: parse, tokenize, submit. After OK, *c belongs to the loop thread. (generate.c) */
enum err api_generate(struct api_call *c,
                      const struct api_dialect *d,
                      const struct api_input *in,
                      struct err_info *e) WEIR_MUST_USE;
/* The same up to the prompt, the first one if there are several; c->prompt_only is set. */
enum err api_read_prompt(struct api_call *c,
                         const struct api_dialect *d,
                         const struct api_input *in,
                         struct token_list *ids,
                         struct err_info *e) WEIR_MUST_USE;
struct api_prompt *api_job_prompts(struct api_job *job, uint32_t n); /* take n empty ones */
/* Reads a prompt; its errors speak of field. */
typedef enum err (*api_prompt_fn)(struct api_call *c,
                                  const json_t *v,
                                  const char *field,
                                  struct api_prompt *p,
                                  struct err_info *e);
/* A prompt of each element of list, an array in the field `name`, whose elements are NAME[i]. */
enum err api_read_prompts(struct api_call *c,
                          const json_t *list,
                          const char *name,
                          api_prompt_fn read,
                          struct api_job *job,
                          struct err_info *e) WEIR_MUST_USE;
/* [{"type": "text", "text": TEXT}, ...], joined; what else is text there: {"type": "refusal",
 * "refusal": TEXT}, {"type": "reasoning_text", "text": TEXT}. (chat.c) Errors: ERR_INVALID. */
enum { PARTS_REFUSAL = 1, PARTS_REASONING = 2 };
enum err api_join_parts(const json_t *parts,
                        const char *field,
                        const char *between,
                        unsigned more,
                        struct buf *out,
                        struct err_info *e) WEIR_MUST_USE;
/* {"role": role, "content": content}, at the end of all; which it takes. (chat.c) */
json_t *api_add_message(json_t *all, const char *role, json_t *content);
/* A call in a message: {"id", "type": "function", "function": {"name", "arguments"}}. */
json_t *api_call_of(const json_t *id, const char *name, json_t *arguments);
/* What the request is rendered with, once c->tools is read. (reply.c) */
const struct chat_template *api_template(const struct api_call *c);
/* Whether the model is to think, by both names that templates have for it, into vars, unless
 * `given`, the client's own variables or NULL, has the name. (chat.c) */
void api_say_thinking(json_t *vars, const json_t *given, bool on);
/* A prompt of token ids, taken as it is. (completions.c) */
enum err api_ids_prompt(struct api_call *c,
                        const json_t *v,
                        const char *field,
                        struct api_prompt *p,
                        struct err_info *e) WEIR_MUST_USE;
void api_job_deinit(struct api_job *job);
/* n requests a prompt, prompt by prompt. c->n_choices counts those that exist, for the undoing. */
enum err api_create_choices(struct api_call *c,
                            const struct api_dialect *d,
                            struct api_job *job,
                            struct err_info *e) WEIR_MUST_USE;
/* api_charge for each prompt once, however many answers it has. */
enum err api_charge_job(struct api_call *c,
                        const struct api_job *job,
                        struct err_info *e) WEIR_MUST_USE;
/* Hand all choices to the engine. After OK, *c belongs to the loop thread. */
enum err api_submit(struct api_call *c,
                    const struct api_dialect *d,
                    bool stream,
                    struct err_info *e) WEIR_MUST_USE;
enum err api_check_model(const struct api_call *c, struct gguf_str name, struct err_info *e)
    WEIR_MUST_USE;                            /* NAME of the request, data NULL: absent */
void api_choices_destroy(struct api_call *c); /* requests not submitted, or ended */

/* {"token_ids": [...], "num_tokens": N} (tokenize.c) */
void api_put_tokenized(const struct token_list *ids, struct buf *out);
void api_put_model(const struct api_call *c, struct buf *out); /* its object (models.c) */
/* The model's id, as a field. */
void api_field_model(const struct api_call *c, const char *name, struct buf *out);
void api_metrics_llama(const struct engine_stats *s, struct buf *out); /* metrics_llama.c */
void api_put_figure(struct buf *out, double v); /* a value of /metrics, whole where it is */
bool api_is_model(const struct api *a, const char *name, size_t n);

/* The form that the answer must have, compiled, into p->grammar. (structured.c) Errors: ERR_INVALID
 * naming the field, and the place in what it holds; those of api_compile. */
enum err api_structured_parse(struct api_call *c,
                              const json_t *body,
                              struct api_params *p,
                              struct err_info *e) WEIR_MUST_USE;

/* "stop" or "length". */
const char *api_finish_name(enum finish f);

/* The parts that OpenAI's two completion routes share (call.c). `choice` writes an element of
 * "choices". */
void api_put_choices(struct api_call *c,
                     void (*choice)(struct api_choice *ch, struct buf *out),
                     struct buf *out);
void api_openai_end(struct api_call *c, struct buf *out);

/* The status is long sent, so the error is an event, and the end mark is missing: without a name,
 * and with the name `error`. (call.c) */
void api_openai_fail(struct api_call *c, const struct err_info *e, struct buf *out);
void api_named_fail(struct api_call *c, const struct err_info *e, struct buf *out);

/* What llama-server adds (extras.c). timings: {"cache_n", "prompt_n", ...} after n_out tokens.
 * extras: the fields of the end, each with a comma before it. */
enum err api_read_extras(struct api_call *c,
                         const json_t *body,
                         struct api_params *p,
                         struct err_info *e) WEIR_MUST_USE;
/* reasoning_budget_tokens, once it is known how the model reasons. (extras.c) */
enum err api_read_budget(struct api_call *c,
                         const json_t *body,
                         struct api_params *p,
                         struct err_info *e) WEIR_MUST_USE;
void api_put_timings(const struct api_choice *ch, uint32_t n_out, struct buf *out);
void api_put_extras(const struct api_choice *ch, struct buf *out);
void api_tell_progress(struct api_choice *ch, struct buf *out);
const char *api_stop_type(const struct api_choice *ch); /* "eos", "limit" or "word" */

/* vLLM's return_token_ids, each field with a comma before it; nothing where it was not asked for.
 * own: "token_ids" of a choice, those that no chunk has told of. prompt: "prompt_token_ids", in the
 * choice's first chunk or its only answer. (ids.c) */
void api_put_own_ids(struct api_choice *ch, struct buf *out);
void api_put_prompt_ids(struct api_choice *ch, struct buf *out);
uint64_t api_n_ids(const struct api_call *c); /* of an answer as one object, once all have ended */

/* vLLM's prompt_logprobs of the choice's prompt, with a comma before it, and how many numbers there
 * are in an answer of d; nothing where it was not asked for. To put them all have ended.
 * (prompt_logprobs.c) */
void api_put_prompt_logprobs(const struct api_choice *ch, struct buf *out);
uint64_t api_n_prompt_logprobs(const struct api_call *c, const struct api_dialect *d);

/* A chunk around one choice: begin writes up to `"index":N`, end from `,"finish_reason"`. */
void api_chunk_begin(const struct api_choice *ch, struct buf *out);
void api_openai_progress(struct api_choice *ch, const char *fields, struct buf *out);
void api_chunk_end(const struct api_choice *ch, const char *finish, struct buf *out);

#endif
