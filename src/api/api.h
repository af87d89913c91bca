/* The HTTP API: JSON of a dialect in, requests to the engine; their output back as JSON.
 *
 * One call is one HTTP exchange and owns one or more engine requests (n, several prompts). This
 * folder knows no sockets: cli/serve.c joins it with http/.
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

struct api_config {
    const char *model_id; /* the alias, or the model's name */
    const char *api_key;  /* NULL: open */
    uint32_t max_choices; /* n x prompts in one call; 0: 128 */
    bool no_embeddings;   /* the routes for embeddings and reranking refuse */
};

/* The HTTP facts of a request; views valid until api_end. */
struct api_input {
    const char *method, *path, *query;
    const char *body;
    size_t body_len;
    const char *authorization; /* NULL if absent */
    const char *request_id;    /* the client's own, visible ASCII of at most 128 bytes; or NULL */
    void *name;                /* what api_next calls the call by; not NULL */
};

struct api_answer {
    int status;
    const char *content_type;
    const char *retry_after; /* seconds, or NULL */
    const char *allow;       /* for 405, or NULL */
    const char *request_id;  /* X-Request-Id of the answer */
    bool www_authenticate;   /* for 401 */
    bool stream;
};

enum api_pull { API_WAIT, API_MORE, API_DONE };

/* Extra lines for /metrics from the layers above (connections and so on). */
typedef void (*api_extra_metrics_fn)(void *ctx, struct buf *out);

/* While `engine` is NULL, everything but /health (503) and /v1/models answers 503.
 * Errors: ERR_INVALID (model_id). */
enum err api_create(const struct api_config *cfg,
                    struct api **out,
                    struct err_info *e) WEIR_MUST_USE;
void api_set_engine(struct api *a, struct engine *eng, const struct chat_template *tmpl);
void api_set_extra_metrics(struct api *a, api_extra_metrics_fn fn, void *ctx); /* before serving */
void api_set_draining(struct api *a); /* /health and new requests: 503. Any thread */
void api_destroy(struct api *a); /* after the last api_end and engine_stop, before engine_destroy */

struct api_call *api_begin(struct api *a, const struct api_input *in); /* never NULL */

/* Append what is new to *out. API_WAIT: nothing was appended, *answer is untouched. Otherwise
 * *answer is filled in, its strings living until api_end. API_MORE may have appended nothing the
 * first time: then only the head of a stream is ready to go. */
enum api_pull api_pull(struct api_call *c, struct api_answer *answer, struct buf *out);
void api_end(struct api_call *c);

/* The names of calls with news, each once; drains the engine's events. Loop thread. NULL at the
 * end. One may be named before its api_begin has returned. */
void *api_next(struct api *a);

/* The body of an error in OpenAI's shape, for any layer. */
void api_error_body(int status, const struct err_info *e, struct buf *out);
int api_status_of(enum err code); /* the one table from errors to HTTP statuses */

#endif
