/* Bytes on a socket to a parsed request, and an answer back. The only folder that knows the HTTP
 * library.
 *
 * One thread runs the event loop for all connections. A request, once its body is complete, is
 * handed to the application on a worker thread (begin); from then on the loop pulls the answer out
 * of it (pull) whenever the application says that there is news (next), and tells it when the
 * exchange is over, finished or because the client left (end).
 *
 *      socket -> loop: headers, body -> worker: app.begin -> loop: app.pull ... -> app.end
 *                                        app.news_fd, app.next: "this call has more to pull"
 *
 * Slow readers cost little: of a stream no more is pulled until what was is sent. An answer in one
 * piece waits whole in the connection; what these take together is bounded, and over it the one
 * whose reader took something least recently is given up. A client that leaves is noticed at once,
 * also while nothing is sent to it.
 *
 * Leaving means closing, resetting or shutting down the sending side: a FIN looks the same whether
 * its sender still reads or is gone, so a half-closed client loses its unfinished answer. An answer
 * that is complete and merely waits to be sent still reaches it. */
#ifndef WEIR_HTTP_HTTP_H
#define WEIR_HTTP_HTTP_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_ID_BYTES 132 /* room for an X-Request-Id */

/* A part of a multipart/form-data body. */
struct http_part {
    const char *name;
    const char *filename; /* or NULL */
    const char *data;     /* NUL-terminated for convenience; may hold NULs itself */
    size_t n_data;
};

/* A complete request; views valid until end, those of its body until begin returns. Paths carry no
 * query. */
struct http_request {
    const char *method; /* "POST" */
    const char *path;   /* "/v1/completions" */
    const char *query;  /* after '?', or "" */
    const char *body;   /* NUL-terminated for convenience; may hold NULs itself */
    size_t body_len;
    const struct http_part *parts; /* [n_parts] of a form, whose body is "" */
    size_t n_parts;
    /* Values of headers, or NULL; none has control characters. */
    const char *authorization;
    const char *api_key;      /* X-Api-Key */
    const char *request_id;   /* X-Request-Id; visible ASCII, at most 128 characters */
    const char *traceparent;  /* visible ASCII, at most 256 characters */
    const char *origin;       /* the same */
    const char *cors_method;  /* Access-Control-Request-Method; the same */
    const char *cors_headers; /* Access-Control-Request-Headers; at most 1024 characters */
    const char *client;       /* "127.0.0.1:40000", "[::1]:40000" */
};

struct http_header {
    const char *name;
    const char *value;
};

/* What the application knows about the answer before its first byte. Strings live until end. */
struct http_answer {
    int status;
    const char *content_type;
    const struct http_header *headers; /* [n_headers] */
    size_t n_headers;
    bool stream;      /* flushed as it comes; otherwise the body is sent whole with a length */
    uint64_t n_bytes; /* of a stream: its length, 0 if that is not known: then it is chunked */
};

enum http_pull {
    HTTP_WAIT, /* nothing (more) now; app.next will name this call when there is. Bytes may have
                * been appended once *answer is filled in: that saves the question whether there are
                * more */
    HTTP_MORE, /* bytes were appended; ask again when they are sent */
    HTTP_WORK, /* of an answer that is no stream: to make it takes long. Nothing was appended; a
                * worker does that (work), then it is pulled again */
    HTTP_DONE, /* bytes may have been appended; the answer is complete */
    HTTP_CUT,  /* of a stream: the rest cannot be had. The connection ends without the stream's end,
                * which tells the client */
};

/* The application. `call` is its object for one exchange. */
struct http_app {
    void *ctx;
    /* Worker thread, or as `at_once` says; once for each whole request, also where its client has
     * left meanwhile (http_client_left): nobody pulls that one. Never NULL: errors are answers too.
     * `name` is what next() calls it by. */
    void *(*begin)(void *ctx, const struct http_request *r, void *name);
    /* Loop thread. Append to *out; the first time that it does not return HTTP_WAIT, *answer has
     * been filled in. A non-stream answer is pulled until HTTP_DONE before anything is sent. Events
     * of a text/event-stream are appended whole, as a keep-alive comment may come between pulls. */
    enum http_pull (*pull)(void *ctx, void *call, struct http_answer *answer, struct buf *out);
    /* Worker thread, after HTTP_WORK and before the next pull. NULL: no pull says so. */
    void (*work)(void *ctx, void *call);
    /* Loop thread, exactly once for each begin. The call stops what still runs. whole: all of the
     * answer was handed to the system. */
    void (*end)(void *ctx, void *call, bool whole);
    /* Readable when some call has news; then next() yields each such call's name once, NULL at the
     * end, and makes it unreadable again; watched edge-triggered, so news after that NULL must
     * write to it. A call that has ended may still be named only if end() has not been called for
     * it. A call whose begin has not returned may be named: it is pulled once anyway when begin
     * returns. */
    int news_fd;
    void *(*next)(void *ctx);
    /* Loop thread, once the head is there: is a multipart/form-data body of this method and path
     * taken apart (http_request.parts)? Else it is a body like any other. NULL: none is. */
    bool (*takes_form)(void *ctx, const char *method, const char *path);
    /* Loop thread, once the request is whole: does its begin take no time, so that the loop does it
     * itself, before those that wait for a worker? NULL: none does. */
    bool (*at_once)(void *ctx, const char *method, const char *path);
    /* Loop thread, once there is more of a body than its first 64 KiB: 0, or the status that the
     * rest is refused with, and why. `head`: the request, without a body. NULL: none is. */
    int (*refuses_body)(void *ctx, const struct http_request *head, struct err_info *e);
    /* Loop thread: an answer to a request that never became a call (bad HTTP, too large, too many
     * connections): the JSON body for this status. `target` is the request's, path and query; `id`
     * the answer's X-Request-Id: the request's own, or "", which is made another. Returns the name
     * of a header that has the id too, or NULL. */
    const char *(*error_body)(void *ctx,
                              int status,
                              const char *text,
                              const char *target,
                              char id[HTTP_ID_BYTES],
                              struct buf *out);
    /* Loop thread: such an answer was given to this client. May be NULL. */
    void (*refused)(void *ctx, int status, const char *client);
};

#define HTTP_MAX_HOSTS 16

struct http_config {
    const char *host;         /* numeric address or name, or up to HTTP_MAX_HOSTS of them with
                               * commas between (then "::" is IPv6 alone, so that "0.0.0.0" may
                               * stand beside it); default "127.0.0.1" */
    uint16_t port;            /* of each address; 0: the system chooses */
    uint32_t max_connections; /* a few more get 503, further ones are closed on accept */
    size_t max_body_bytes;    /* over it: 413 */
    size_t max_form_bytes;    /* of a form that is taken apart, where that is more; 0: it is not */
    size_t max_held_bytes;    /* of all bodies, each beyond its first 64 KiB: 503; as much again of
                               * all finished answers, each of more than 64 KiB; 0: 1 GiB, or four
                               * largest bodies if that is more */
    size_t max_header_bytes;  /* over it: 431, or 414 where the target alone has more than half of
                               * it; a connection takes up to twice that and 16 KiB */
    uint32_t n_workers;       /* threads that run begin and work */
    uint32_t
        keepalive_comment_ms; /* an idle event stream gets ": keep-alive" this often; 0: never */
    /* Limits of patience; 0 means the default. None of them ends an answer that is being made. */
    uint32_t request_ms; /* from connecting to a request line; from there to the whole request, but
                          * every KiB of body that comes gives a second of it back; 30 s */
    uint32_t idle_ms;    /* between requests of one connection; 75 s */
    uint32_t stall_ms;   /* a reader that takes nothing at all; 10 min */
    /* PEM text of a certificate (with its chain) and its key, both or neither: TLS. Not kept. */
    const char *tls_cert, *tls_key;
};

struct http_stats {
    uint32_t connections;        /* open now */
    uint64_t accepted, requests; /* ever */
    uint64_t clients_gone;       /* left before their answer was complete */
    uint64_t answers_dropped;    /* not read, and too much of that kind */
};

struct http_server;

/* Bind and listen; raises the soft limit of open files to the hard one. app and what it points to
 * must outlive the server. Errors: ERR_IO (address, port), ERR_INVALID, ERR_FORMAT (certificate or
 * key; the text says what is wrong). */
enum err http_server_create(const struct http_config *cfg,
                            const struct http_app *app,
                            struct http_server **out,
                            struct err_info *e) WEIR_MUST_USE;
uint16_t http_server_port(const struct http_server *s);

/* Serve until http_server_stop, once. The calling thread becomes the loop thread. */
enum err http_server_run(struct http_server *s, struct err_info *e) WEIR_MUST_USE;

/* Any thread, or a signal handler: stop accepting; run returns when every exchange has ended, or at
 * the latest after grace_ms, when the rest are cut off. Again, with another grace: that counts from
 * the first time. */
void http_server_stop(struct http_server *s, uint32_t grace_ms);

/* Any thread: handshakes from the next turn of the loop on use this certificate; connections that
 * are open keep theirs. On an error the one there is stays. Only for a server created with TLS. */
enum err http_server_set_identity(struct http_server *s,
                                  const char *cert,
                                  const char *key,
                                  struct err_info *e) WEIR_MUST_USE;

/* Any thread that runs begin: it will take long from now on (slow), and another one has its place;
 * or it will not any more. Beyond 65 slow ones nobody takes their places. */
void http_server_worker_slow(struct http_server *s, bool slow);
/* Within begin, any thread: has the client of the request with that name left? */
bool http_client_left(const void *name);

struct http_stats http_server_stats(const struct http_server *s); /* any thread */
void http_server_destroy(struct http_server *s);

#endif
