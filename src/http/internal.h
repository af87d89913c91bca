/* What the files of this folder share. Everything here belongs to the loop thread, but for the job
 * queue (worker.c) and the counters.
 *
 *      listen.c    address -> listening socket
 *      server.c    the event loop, start and stop
 *      conn.c      connections: accepted, watched for leaving, timed out, closed without a reset
 *      exchange.c  one request and its answer, joined with the library's callbacks
 *      form.c      bodies in parts
 *      worker.c    threads that run app.begin and app.work
 *      tls.c       certificates: who we are
 *      headers.c   what a head must be, and our own answers to those that are not
 *
 * A connection outlives its exchanges and has at most one at a time:
 *
 *      READING -> QUEUED -> WAITING -> STREAMING | SENDING -> freed
 *      headers,   worker:   begun, no   the library asks for    (on_completed)
 *      body       begin     answer yet  bytes | holds them all
 *
 * In QUEUED and WAITING, and in STREAMING while there is nothing to send, the library's connection
 * is suspended: it never touches the socket then, so conn.c watches for the client leaving. */
#ifndef WEIR_HTTP_INTERNAL_H
#define WEIR_HTTP_INTERNAL_H

#include "http/http.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

/* What an event of the loop's epoll set is about; first member of what it points to. */
enum source {
    SOURCE_LISTEN,
    SOURCE_LIBRARY, /* the library's own epoll set */
    SOURCE_NEWS,    /* app.news_fd */
    SOURCE_WAKE,    /* a worker finished, or stop */
    SOURCE_CONN,    /* a client left */
    SOURCE_LINGER,  /* closing: what still comes is thrown away */
};

struct identity; /* a certificate and its key (tls.c) */

struct conn {
    enum source source;
    int fd;
    struct identity *identity; /* of its handshake; NULL without TLS */
    char client[64];           /* http_request.client */
    struct conn *prev, *next;  /* all connections */
    struct MHD_Connection *mhd;
    struct exchange *ex; /* the request under way from its first line on, or NULL */
    uint64_t since_us;   /* accepted, or the last answer was complete */
    bool used;           /* has had an answer */
    bool peer_left;
    bool cut;   /* shut down by us */
    bool clean; /* the last request was read whole and answered */
    bool over;  /* beyond max_connections: only told so */
};

enum ex_state { EX_READING, EX_QUEUED, EX_WAITING, EX_STREAMING, EX_SENDING };

struct exchange {
    struct http_server *s;
    struct conn *conn;
    enum ex_state state;
    bool have_headers;
    bool suspended;
    bool gone;   /* abandoned: ends as soon as it can */
    bool done;   /* pull said HTTP_DONE */
    bool news;   /* pull before suspending */
    bool listed; /* an event stream that gets comments, or a finished answer: prev, next */
    atomic_bool cancelled; /* gone: begin may end early */
    void *call;            /* the application's, between begin and end */
    struct http_answer answer;
    struct http_request req;
    char *text;             /* the strings of req, one block */
    char *target;           /* in its origin form, as it came */
    const char *target_end; /* in the head as it came, which is there until it was read */
    char *body;
    struct form *form;         /* a body in parts, or NULL */
    size_t body_cap, body_due; /* due: Content-Length, or 0 */
    size_t n_held;             /* of its body, counted in the server's, until begin is over */
    size_t n_unread;           /* of a finished answer in `out`, counted in the server's */
    struct buf out;            /* pulled, not yet taken by the library */
    size_t out_pos;
    uint64_t due_us;              /* READING: it is cut unless more of it has come by then */
    uint64_t active_us;           /* bytes were last handed over */
    uint64_t spoke_us;            /* its last bytes or comment */
    struct exchange *next_job;    /* a queue of jobs, or results */
    struct exchange *prev, *next; /* in its list */
};

struct exchange_list {
    struct exchange *head, *tail; /* the longest silent first */
};

/* A socket whose connection is over, kept until the peer has read our last words. */
struct farewell {
    enum source source;
    int fd;
    uint64_t deadline_us;
    struct farewell *next;
};

struct job_queue {
    struct exchange *head, *tail; /* in order of arrival; tail: only where there is a head */
};

struct worker_pool {
    pthread_mutex_t mutex;
    pthread_cond_t more;
    struct job_queue small, large; /* large: to begin what has a body of more than 64 KiB */
    struct exchange *results;
    pthread_t *threads; /* [n_threads] */
    uint32_t n_threads;
    uint32_t n_active; /* of them: at work, and not slow; */
    uint32_t n_large;  /* of these: with a large body; */
    uint32_t n_slow;   /* slow */
    bool stopping;
};

struct http_server {
    struct http_config cfg;
    const struct http_app *app;
    struct MHD_Daemon *mhd;
    int listen_fds[HTTP_MAX_HOSTS]; /* [n_listen] */
    uint32_t n_listen;              /* 0 once it accepts no more */
    int epoll_fd, wake_fd;
    int spare_fd; /* given up to accept and close when descriptors run out */
    uint16_t port;
    enum source src_listen, src_library, src_news, src_wake;

    uint64_t now_us; /* once per turn of the loop */
    struct conn *conns;
    uint32_t n_conns;
    struct farewell *lingers;
    uint32_t n_lingers;
    size_t n_held;                /* bytes of all bodies beyond small ones */
    size_t n_unread;              /* of all finished answers, */
    struct exchange_list readers; /* which are these; */
    struct exchange_list streams; /* event streams that get comments */
    uint32_t n_begun;             /* exchanges between QUEUED and their end */

    bool accepting, draining, news_pending;
    uint64_t next_pass_us, next_tick_us, drain_us, cut_us;
    struct worker_pool pool;

    struct identity *identity;                /* of new connections; NULL without TLS */
    _Atomic(struct identity *) next_identity; /* given by set_identity, not yet taken */

    atomic_bool stop;
    _Atomic uint32_t grace_ms;
    _Atomic uint32_t stat_connections;
    _Atomic uint64_t stat_accepted, stat_requests, stat_gone, stat_dropped;
};

/* listen.c: all of cfg's addresses, into s->listen_fds and s->port; on an error those that were
 * opened are there to be closed. */
enum err http_listen(struct http_server *s, struct err_info *e) WEIR_MUST_USE;
void http_listen_watch(struct http_server *s, bool on); /* in the epoll set: for events, or none */
void http_listen_close(struct http_server *s);

/* worker.c: submit and collect are for the loop thread. */
void worker_pool_start(struct http_server *s);
void worker_pool_stop(struct http_server *s); /* waits for begins under way */
void worker_pool_submit(struct http_server *s, struct exchange *ex);
struct exchange *worker_pool_collect(struct http_server *s); /* a list, oldest first */

/* conn.c */
void conn_accept(struct http_server *s);
void conn_notify(void *cls,
                 struct MHD_Connection *mhd,
                 void **ctx,
                 enum MHD_ConnectionNotificationCode code);
void conn_peer_left(struct http_server *s, struct conn *c, bool both_ways);
void conn_cut(struct conn *c);                   /* the library notices and closes it */
void conn_check_patience(struct http_server *s); /* cut those whose time is over, or who left */
void conn_linger_drain(struct http_server *s, struct farewell *l);
void conn_linger_expire(struct http_server *s, bool all);

/* exchange.c */
void *exchange_on_target(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result exchange_on_request(void *cls,
                                    struct MHD_Connection *mhd,
                                    const char *url,
                                    const char *method,
                                    const char *version,
                                    const char *data,
                                    size_t *n_bytes,
                                    void **ctx);
void exchange_on_completed(void *cls,
                           struct MHD_Connection *mhd,
                           void **ctx,
                           enum MHD_RequestTerminationCode code);
void exchange_begun(struct exchange *ex);   /* a worker's result */
void exchange_news(struct exchange *ex);    /* named by app.next */
void exchange_abandon(struct exchange *ex); /* the client left, or we stop */
void exchange_send_comments(struct http_server *s);

/* form.c. Each but the first three is for exchanges that have a form. */
struct form;
/* Is the body to be taken apart? content_type: NULL if none was given. */
bool form_is(const struct exchange *ex, const char *content_type);
size_t largest_body(const struct http_config *cfg, bool is_form);
/* Is the body a form? Then ex->form is set. False: it says so, but cannot be; *why says what. */
bool form_begin(struct exchange *ex, const char *content_type, const char **why);
/* NULL, or why the form is refused. The first after each piece of the body that came, the second
 * when it is whole: it fills in req.parts. */
const char *form_feed(struct exchange *ex);
const char *form_end(struct exchange *ex);
void form_free(struct exchange *ex); /* also without a form */

/* tls.c: the loop thread, but for identity_create. Each connection holds its identity. */
enum err identity_create(const char *cert,
                         const char *key,
                         struct identity **out,
                         struct err_info *e) WEIR_MUST_USE;
void identity_release(struct identity *id); /* NULL is allowed */
void identity_take_next(struct http_server *s);
void tls_conn_opened(struct http_server *s, struct conn *c);
const struct MHD_OptionItem *tls_options(void); /* for MHD_OPTION_ARRAY */
/* Plain bytes beside the library's answer, on either kind of connection. */
void conn_send_raw(struct conn *c, const void *bytes, size_t n);

/* headers.c: answers that this folder makes itself, and what it asks of a request. */
struct header_facts {
    const char *host, *authorization, *request_id, *content_length, *transfer_encoding;
    const char *content_type, *api_key, *traceparent, *origin, *cors_method, *cors_headers;
    const char *end; /* of the last value, in the head as it came */
    uint32_t n_content_length;
    bool encoded; /* compressed, or the like, if there is a body */
    bool odd;     /* no further header was read than one that is malformed, or a second host */
};
/* A copy of a target in its origin form: that of an absolute one is what stands behind the host. */
char *target_copy(const char *target);
/* `head`: where the library keeps the request's head, whose first word is the method. */
void header_facts_read(struct MHD_Connection *mhd, const char *head, struct header_facts *f);
/* 0, or the status to refuse the request with and why. */
int header_refusal(struct exchange *ex,
                   const struct header_facts *f,
                   const char *method,
                   const char *version,
                   const char **why);
struct MHD_Response *response_of_error(struct exchange *ex, int status, const char *why);
void send_error_raw(struct exchange *ex, int status, const char *why);

#endif
