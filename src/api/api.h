/* The HTTP API: JSON of a dialect in, requests to the engine; their output back as JSON.
 *
 * One call is one HTTP exchange and owns one or more engine requests (n, several prompts). This
 * folder knows no sockets: cli/serve_app.c joins it with http/.
 *
 *      api_begin  (any worker)   parse, template, tokenize, submit
 *      api_pull   (loop thread)  turn new tokens into bytes of the answer
 *      api_end    (loop thread)  cancel what still runs; freed once the engine has let go
 *
 * The engine may answer at once, so api_next may name a call before the worker's api_begin has
 * returned it. Such a name may be ignored, if the call is pulled once when it becomes known;
 * pulling without news is always allowed. A call that has ended is never named. */
#ifndef WEIR_API_API_H
#define WEIR_API_API_H

#include "base/buf.h"
#include "base/err.h"
#include "chat/chat.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api;
struct api_call;

/* A line about a call that is over: JSON, without its newline, and without anything that was asked
 * or answered. Any thread; must not wait. */
typedef void (*api_line_fn)(void *ctx, const char *line, size_t n);

struct api_config {
    const char *model_id;     /* the alias, or the model's name */
    const char *const *names; /* [n_names] other names that requests may give the model */
    size_t n_names;
    const char *const *tags; /* [n_tags] shown with the model */
    size_t n_tags;
    const char *prefix;     /* "/llm": where all routes are, and nothing else; or NULL */
    uint32_t max_tokens;    /* of requests that do not say; 0: as the dialect has it */
    bool no_slots;          /* /slots refuses */
    const char *api_key;    /* NULL: open, unless api_load_keys is called */
    const char *admin_key;  /* NULL: the admin's routes want no other key than the rest */
    uint32_t max_choices;   /* n x prompts in one call; 0: 128 */
    bool any_model;         /* a request may name any model; this one answers */
    bool no_embeddings;     /* the routes for embeddings and reranking refuse */
    const char *model_path; /* shown by /props, or NULL */
    const char *defaults;   /* a JSON object: fields of requests that do not say; or NULL */
    /* [n_cors_origins] pages of these origins may call, "*": all. Lists and `prefix` are views that
     * live as long as the api. */
    const char *const *cors_origins;
    size_t n_cors_origins;
    /* The worker that runs api_begin has long to do from now on (slow), or no more; NULL: nobody
     * wants to know. */
    void (*worker_slow)(void *ctx, bool slow);
    /* Has the client of the call with that name (api_input's) left, before api_begin has returned?
     * NULL: none ever does. */
    bool (*client_left)(void *ctx, void *name);
    void *worker_ctx;
    api_line_fn write_line; /* NULL: none */
    void *line_ctx;
    bool log_all;  /* a line for every call */
    bool log_slow; /* one with its timeline for those that took slow_ms or more */
    uint32_t slow_ms;
};

/* A part of a multipart/form-data body. Strings end with a NUL behind their length. */
struct api_part {
    const char *name;
    const char *filename; /* or NULL */
    size_t n_filename;
    const char *data;
    size_t n_data;
};

/* The HTTP facts of a request; views valid until api_end, body and parts until api_begin returns.
 */
struct api_input {
    const char *method, *path, *query;
    const char *body;
    size_t body_len;
    /* Headers; NULL if absent. */
    const char *authorization;
    const char *api_key;     /* X-Api-Key */
    const char *request_id;  /* the client's own, visible ASCII of at most 128 bytes */
    const char *traceparent; /* visible ASCII; ignored unless it is as W3C says */
    const char *origin;      /* visible ASCII of at most 256 bytes, like the next */
    const char *cors_method;
    const char *cors_headers;     /* at most 1024 bytes, no control characters */
    const char *client;           /* its address, for the log */
    void *name;                   /* what api_next calls the call by; not NULL */
    const struct api_part *parts; /* [n_parts] of a form; then there is no body */
    size_t n_parts;
    /* The server's own, not from a socket: no key is asked for, of the key's limits it leaves half
     * to requests from outside, it is not counted as an HTTP request, and these two say how it
     * ranks and whose it is. Of others a service (service.c) is told the owner. */
    bool internal;
    int32_t priority;  /* added to what the body asks for, which may not be above 0 */
    const char *owner; /* the name of the key, or "": its salt, and its turns (sched.h) */
};

struct api_header {
    const char *name, *value;
};
#define API_MAX_HEADERS 16

struct api_answer {
    int status;
    const char *content_type;
    const char *retry_after; /* seconds, or NULL */
    bool key_limit;          /* a limit of the key refused it, for now; */
    uint32_t key_wait_s;     /* for so long; 0: until another request of the key ends */
    const char *allow;       /* for 405, or NULL */
    const char *request_id;  /* X-Request-Id of the answer */
    bool anthropic;          /* which also wants it as Request-Id */
    bool www_authenticate;   /* for 401 */
    bool stream;
    uint64_t n_bytes;                 /* of a stream: its length, 0 if that is not known */
    const struct api_header *headers; /* [n_headers] others, at most API_MAX_HEADERS */
    size_t n_headers;
};

/* API_CUT: the rest cannot be had, and the client must see that it is missing. API_WORK: the answer
 * takes long to write; api_work does it on a thread that may, then it is pulled again. */
enum api_pull { API_WAIT, API_MORE, API_DONE, API_CUT, API_WORK };

/* Extra lines for /metrics from the layers above (connections and so on). */
typedef void (*api_extra_metrics_fn)(void *ctx, struct buf *out);

/* What a service answers: a JSON body, or a file, which the call closes. */
struct api_reply {
    struct buf body;
    int fd; /* -1: none */
    uint64_t n_bytes;
    const char *content_type; /* of the file */
};
/* Routes that another folder answers, behind the same key and with the same errors: /v1/files and
 * /v1/batches. handle: worker thread; paths and methods are those that there are, HEAD as GET. */
struct api_service {
    void *ctx;
    enum err (*handle)(void *ctx,
                       const struct api_input *in,
                       struct api_reply *out,
                       struct err_info *e);
};

/* Until api_set_engine /health is 503, and so is each route that wants an engine (routes.c): the
 * others, as /v1/models, answer. Errors: ERR_INVALID (model_id, defaults). */
enum err api_create(const struct api_config *cfg,
                    struct api **out,
                    struct err_info *e) WEIR_MUST_USE;
/* Before api_set_engine: a JSON object of fields of requests that do not say, where cfg.defaults do
 * not say either. Errors: ERR_INVALID. */
enum err api_advise(struct api *a, const char *json, struct err_info *e) WEIR_MUST_USE;
void api_set_engine(struct api *a, struct engine *eng, const struct chat_template *tmpl);
void api_set_extra_metrics(struct api *a, api_extra_metrics_fn fn, void *ctx); /* before serving */
void api_set_service(struct api *a, const struct api_service *s);              /* before serving */
/* The text of a keys file (docs/API.md) in the place of the one before, at once and as a whole; on
 * an error the old keys stay. Any thread. *n_plain: how many keys it has in the open. */
enum err api_load_keys(
    struct api *a, const char *text, size_t n, uint32_t *n_plain, struct err_info *e) WEIR_MUST_USE;
void api_set_admin_key(struct api *a, const char *key); /* any thread */
/* A request that never became a call was answered: it is counted and logged. Any thread. */
void api_note_refused(struct api *a, int status, const char *client);
void api_set_draining(struct api *a); /* /health and new requests: 503. Any thread */
void api_destroy(struct api *a); /* after the last api_end and engine_stop, before engine_destroy */

struct api_call *api_begin(struct api *a, const struct api_input *in); /* never NULL */

/* Append what is new to *out. API_WAIT, API_WORK: nothing was appended, *answer is untouched.
 * Otherwise *answer is filled in, its strings living until api_end. API_MORE may have appended
 * nothing the first time: then only the head of a stream is ready to go. */
enum api_pull api_pull(struct api_call *c, struct api_answer *answer, struct buf *out);
/* Any thread, between two pulls of which the first said API_WORK. */
void api_work(struct api_call *c);
void api_cut(struct api_call *c); /* before api_end: its client did not get all that was pulled */
void api_end(struct api_call *c);

/* The names of calls with news, each once; drains the engine's events. Loop thread. NULL at the
 * end. One may be named before its api_begin has returned. */
void *api_next(struct api *a);

/* OK, or why the engine's last step failed, as /health says it. Any thread. */
enum err api_working(const struct api *a, struct err_info *e);
/* Can the lines of a batch go to this route? */
bool api_is_batch_endpoint(const char *path);
/* Of the query, as it came: the value of `name` into out[cap], as far as there is room; "" if it
 * has none. False: it is not there. */
bool api_query_get(const struct api_input *in, const char *name, char *out, size_t cap);
/* Of the query of a list: `order` (else descending), and `limit`, 1 to most, into *n, which is
 * what it is else. Errors: ERR_INVALID. */
enum err api_query_page(const struct api_input *in,
                        uint32_t most,
                        bool *ascending,
                        uint32_t *n,
                        struct err_info *e) WEIR_MUST_USE;
/* "PREFIX" and 24 random hex digits into id[cap]. */
void api_new_id(const char *prefix, char *id, size_t cap);

/* Is the body of such a request a form, which comes in api_input.parts? */
bool api_takes_form(const struct api *a, const char *method, const char *path);

/* Does api_begin take no time for such a request, so that it need not be a worker's? */
bool api_at_once(const struct api *a, const char *method, const char *path);

/* 0, or the status that a request is refused with before its body is read, and why: its key may not
 * do what it asks for. `head`: without the body. Any thread. */
int api_refuses_body(struct api *a, const struct api_input *head, struct err_info *e);

/* The path without the prefix (or NULL) that all paths of clients have; "" where it lacks it, which
 * is no route. A view. */
const char *api_path_below(const char *prefix, const char *path);
/* The body of an error, for any layer: in the shape of the routes at `path`, OpenAI's where that is
 * NULL or no route of another. request_id: NULL if there is none. True: the answer's id belongs in
 * a header Request-Id too. */
bool api_error_body(int status,
                    const struct err_info *e,
                    const char *path,
                    const char *request_id,
                    struct buf *out);
/* The one table from errors to HTTP statuses, before a shape's own. But for it only tests ask. */
int api_status_of(enum err code);

#endif
