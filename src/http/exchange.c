/* One request and its answer. */
#include "base/log.h"
#include "base/mem.h"
#include "http/internal.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES                                                                                \
    2048 /* per read of a stream in HTTP/1.0; chunked ones use the library's pool                  \
          */
#define SMALL_BODY_BYTES 65536 /* there is always room for these */
#define WHOLE_BYTES 65536      /* of an answer with a length that are handed over at once */

static void end_call(struct exchange *ex, bool whole)
{
    if (!ex->call)
        return;
    ex->s->app->end(ex->s->app->ctx, ex->call, whole);
    ex->call = NULL;
}

/* ---- event streams, and finished answers, in the order of their silence ------------------- */

static struct exchange_list *list_of(struct exchange *ex)
{
    return ex->state == EX_SENDING ? &ex->s->readers : &ex->s->streams;
}

static void list_remove(struct exchange *ex)
{
    struct exchange_list *l = list_of(ex);
    *(ex->prev ? &ex->prev->next : &l->head) = ex->next;
    *(ex->next ? &ex->next->prev : &l->tail) = ex->prev;
    ex->listed = false;
}

static void list_append(struct exchange *ex)
{
    struct exchange_list *l = list_of(ex);
    ex->prev = l->tail;
    ex->next = NULL;
    *(ex->prev ? &ex->prev->next : &l->head) = ex;
    l->tail = ex;
    ex->listed = true;
}

/* Bytes of it were taken, or a comment is. */
static void spoke(struct exchange *ex)
{
    ex->spoke_us = ex->s->now_us;
    if (ex->listed && list_of(ex)->tail != ex) {
        list_remove(ex);
        list_append(ex);
    }
}

/* ---- the library's connection ------------------------------------------------------------ */

static void suspend(struct exchange *ex)
{
    if (!ex->suspended) {
        ex->suspended = true;
        MHD_suspend_connection(ex->conn->mhd);
    }
}

static void resume(struct exchange *ex)
{
    if (ex->suspended) {
        ex->suspended = false;
        ex->active_us = ex->s->now_us;
        MHD_resume_connection(ex->conn->mhd);
    }
}

/* What was pulled and not sent. */
static void drop_answer(struct exchange *ex)
{
    if (ex->listed)
        list_remove(ex);
    ex->s->n_unread -= ex->n_unread;
    ex->n_unread = 0;
    buf_deinit(&ex->out);
    ex->out_pos = 0;
}

/* The call ends now; the connection as soon as the library asks: on_complete and read_stream refuse
 * to go on. One that is not suspended may be waiting for its socket, so that is shut down. */
void exchange_abandon(struct exchange *ex)
{
    ex->gone = true;
    atomic_store_explicit(&ex->cancelled, true, memory_order_relaxed);
    if (ex->state == EX_QUEUED)
        return; /* a worker has it: exchange_begun comes back here */
    end_call(ex, false);
    drop_answer(ex);
    if (ex->suspended)
        resume(ex);
    else
        conn_cut(ex->conn);
}

/* ---- a request comes in ------------------------------------------------------------------ */

/* Called with the request line as it came, before the library decodes it in place. */
void *exchange_on_target(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    struct http_server *s = cls;
    struct conn *c =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct exchange *ex = mem_zalloc(1, sizeof *ex);
    ex->out.may_fail = true;
    ex->s = s;
    ex->conn = c;
    ex->due_us = s->now_us + s->cfg.request_ms * 1000ull;
    ex->target = target_copy(uri ? uri : "");
    ex->target_end = uri ? uri + strlen(uri) : NULL;
    c->ex = ex;
    c->clean = false;
    return ex;
}

static char *keep(char **at, const char *s)
{
    if (!s)
        return NULL;
    size_t n = strlen(s) + 1;
    char *copy = memcpy(*at, s, n);
    *at += n;
    return copy;
}

static const char *decode_path(char *target)
{
    target[strcspn(target, "?")] = '\0';
    (void)MHD_http_unescape(target);
    return target;
}

/* The views of the request must outlive the library's buffers, so they are copied: one block. */
static void keep_request(struct exchange *ex, const char *method, const struct header_facts *f)
{
    const char *query = strchr(ex->target, '?');
    query = query ? query + 1 : "";
    const char *parts[] = {method,
                           ex->target,
                           query,
                           f->authorization,
                           f->api_key,
                           f->request_id,
                           f->traceparent,
                           f->origin,
                           f->cors_method,
                           f->cors_headers};
    size_t n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        n += parts[i] ? strlen(parts[i]) + 1 : 0;
    char *at = ex->text = mem_alloc(n);
    ex->req.method = keep(&at, method);
    ex->req.path = decode_path(keep(&at, ex->target));
    ex->req.query = keep(&at, query);
    ex->req.authorization = keep(&at, f->authorization);
    ex->req.api_key = keep(&at, f->api_key);
    ex->req.request_id = keep(&at, f->request_id);
    ex->req.traceparent = keep(&at, f->traceparent);
    ex->req.origin = keep(&at, f->origin);
    ex->req.cors_method = keep(&at, f->cors_method);
    ex->req.cors_headers = keep(&at, f->cors_headers);
    ex->req.client = ex->conn->client; /* the connection outlives its exchanges */
    ex->req.body = "";
}

static enum MHD_Result refuse(struct exchange *ex, int status, const char *why)
{
    struct MHD_Response *r = response_of_error(ex, status, why);
    if (!r)
        return MHD_NO;
    enum MHD_Result rc = MHD_queue_response(ex->conn->mhd, (unsigned)status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result on_headers(struct exchange *ex, const char *method, const char *version)
{
    struct header_facts f;
    header_facts_read(ex->conn->mhd, method, &f);
    keep_request(ex, method, &f);
    const char *why = NULL;
    int status = header_refusal(ex, &f, method, version, &why);
    if (status)
        return refuse(ex, status, why);
    if (!form_begin(ex, f.content_type, &why))
        return refuse(ex, 400, why);
    return MHD_YES;
}

/* Room grows with what has come, not with what was promised. */
static bool grow_body(struct exchange *ex, size_t need)
{
    if (need < ex->body_cap)
        return true;
    size_t cap = ex->body_cap ? ex->body_cap * 2 : 4096;
    if (ex->body_due && cap > ex->body_due)
        cap = ex->body_due + 1;
    if (cap <= need)
        cap = need + 1;
    char *p = realloc(ex->body, cap);
    if (!p)
        return false;
    ex->body = p;
    ex->body_cap = cap;
    return true;
}

/* Small bodies come before anybody knows whose they are, and large ones from all at once, so what
 * they take together is bounded. */
static bool hold(struct exchange *ex, size_t n_body)
{
    struct http_server *s = ex->s;
    size_t n = n_body > SMALL_BODY_BYTES ? n_body - SMALL_BODY_BYTES : 0, more = n - ex->n_held;
    if (more > s->cfg.max_held_bytes - s->n_held)
        return false;
    s->n_held += more;
    ex->n_held = n;
    return true;
}

/* Its share goes to others. */
static void drop_body(struct exchange *ex)
{
    ex->s->n_held -= ex->n_held;
    ex->n_held = 0;
    form_free(ex);
    free(ex->body);
    ex->body = NULL;
    ex->req.body = "";
    ex->req.body_len = 0;
    ex->req.parts = NULL;
    ex->req.n_parts = 0;
}

/* A body that drips in is none: at least 1 KiB a second has to come, and what came faster before
 * buys no more than request_ms, since others want the memory that it holds. */
static void give_time(struct exchange *ex, size_t n_came)
{
    const uint64_t most_us = ex->s->now_us + ex->s->cfg.request_ms * 1000ull;
    ex->due_us += n_came * 1000ull;
    if (ex->due_us > most_us)
        ex->due_us = most_us;
}

static int refusal_of_body(struct exchange *ex, size_t n_body, struct err_info *e)
{
    const struct http_app *app = ex->s->app;
    const bool first = ex->n_held == 0 && n_body > SMALL_BODY_BYTES;
    if (n_body > largest_body(&ex->s->cfg, ex->form != NULL)) {
        err_set(e, ERR_TOO_LARGE, "the body is too large");
        return 413;
    }
    const int status = first && app->refuses_body ? app->refuses_body(app->ctx, &ex->req, e) : 0;
    if (status || hold(ex, n_body))
        return status;
    err_set(e, ERR_NOMEM, "too many large bodies are under way");
    return 503;
}

static enum MHD_Result on_body(struct exchange *ex, const char *data, size_t *n_bytes)
{
    size_t have = ex->req.body_len, n = *n_bytes;
    struct err_info e;
    int status = refusal_of_body(ex, have + n, &e);
    if (status) {
        send_error_raw(ex, status, e.text);
        return MHD_NO;
    }
    ex->req.body_len = have + n;
    give_time(ex, n);
    *n_bytes = 0;
    if (!grow_body(ex, have + n)) {
        send_error_raw(ex, 503, "out of memory");
        return MHD_NO;
    }
    memcpy(ex->body + have, data, n);
    ex->body[have + n] = 0;
    if (!ex->form) {
        ex->req.body = ex->body;
        return MHD_YES;
    }
    const char *why = form_feed(ex);
    if (why)
        send_error_raw(ex, 400, why);
    return why ? MHD_NO : MHD_YES;
}

/* The request is complete; also asked again after every resume while there is no answer. */
static enum MHD_Result on_complete(struct exchange *ex)
{
    struct http_server *s = ex->s;
    if (ex->gone)
        return MHD_NO;
    if (ex->state == EX_READING && ex->form) {
        const char *why = form_end(ex);
        ex->req.body_len = 0;
        if (why)
            return refuse(ex, 400, why);
    }
    if (ex->state == EX_READING) {
        atomic_fetch_add_explicit(&s->stat_requests, 1, memory_order_relaxed);
        ex->gone = ex->conn->peer_left;
        atomic_store_explicit(&ex->cancelled, ex->gone, memory_order_relaxed);
        ex->state = EX_QUEUED;
        s->n_begun++;
        worker_pool_submit(s, ex);
    }
    suspend(ex);
    return MHD_YES;
}

enum MHD_Result exchange_on_request(void *cls,
                                    struct MHD_Connection *mhd,
                                    const char *url,
                                    const char *method,
                                    const char *version,
                                    const char *data,
                                    size_t *n_bytes,
                                    void **ctx)
{
    (void)cls;
    (void)mhd;
    (void)url; /* the target, decoded */
    struct exchange *ex = *ctx;
    if (!ex)
        return MHD_NO;
    if (!ex->have_headers) {
        ex->have_headers = true;
        return on_headers(ex, method, version);
    }
    if (*n_bytes > 0)
        return on_body(ex, data, n_bytes);
    return on_complete(ex);
}

/* ---- the answer goes out ----------------------------------------------------------------- */

/* MHD_ContentReaderCallback. Bytes are pulled only when all before them were taken; what the
 * application has not got yet suspends the connection. */
static ssize_t read_stream(void *cls, uint64_t pos, char *dst, size_t max)
{
    (void)pos;
    struct exchange *ex = cls;
    struct http_server *s = ex->s;
    while (!ex->gone && ex->out_pos == ex->out.len && !ex->done && ex->news) {
        buf_clear(&ex->out);
        ex->out_pos = 0;
        enum http_pull r = s->app->pull(s->app->ctx, ex->call, &ex->answer, &ex->out);
        ex->done = r == HTTP_DONE;
        ex->news = r == HTTP_MORE;
        ex->gone |= r == HTTP_CUT;
    }
    if (ex->gone) {
        /* The library looks again at what ends here only when whatever idles for longer has ended,
         * but at once where the timeout is not that of all. */
        (void)MHD_set_connection_option(ex->conn->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = ex->out.len - ex->out_pos;
    if (n == 0 && ex->done)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        suspend(ex);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(dst, ex->out.data + ex->out_pos, n);
    ex->out_pos += n;
    ex->active_us = s->now_us;
    spoke(ex);
    return (ssize_t)n;
}

static bool queue_answer(struct exchange *ex, struct MHD_Response *r)
{
    const struct http_answer *a = &ex->answer;
    if (a->content_type && MHD_add_response_header(r, "Content-Type", a->content_type) != MHD_YES)
        log_warn("http: a content type was dropped: not a header value");
    for (size_t i = 0; i < a->n_headers; i++) {
        if (MHD_add_response_header(r, a->headers[i].name, a->headers[i].value) != MHD_YES)
            log_warn("http: header %zu of an answer was dropped: not a header value", i);
    }
    if (ex->s->draining)
        (void)MHD_add_response_header(r, "Connection", "close");
    enum MHD_Result rc = MHD_queue_response(ex->conn->mhd, (unsigned)a->status, r);
    MHD_destroy_response(r);
    return rc == MHD_YES;
}

/* A long answer is handed over in pieces, which shows whether its reader gets on. */
static struct MHD_Response *response_of_whole(struct exchange *ex)
{
    struct buf *b = &ex->out;
    if (b->len > WHOLE_BYTES)
        return MHD_create_response_from_callback(b->len, WHOLE_BYTES, read_stream, ex, NULL);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(b->len, b->data, MHD_RESPMEM_MUST_FREE);
    if (r)
        *b = (struct buf){0};
    return r;
}

/* The library ends an answer of unknown size with its last chunk, also one to HEAD, which has no
 * body: the next answer on the connection would begin with that. Such an answer tells no length,
 * and the connection ends with it. */
static struct MHD_Response *response_of_stream(struct exchange *ex)
{
    const uint64_t n = ex->answer.n_bytes;
    if (n > 0)
        return MHD_create_response_from_callback(n, WHOLE_BYTES, read_stream, ex, NULL);
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK_BYTES, read_stream, ex, NULL);
    if (r && !strcmp(ex->req.method, "HEAD"))
        (void)MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    return r;
}

/* Finished answers that wait for their readers are bounded together, as bodies are. Over that,
 * whose reader took something least recently gives way: he may be there no more, and the newest has
 * had no time to read yet. */
static void hold_answer(struct exchange *ex)
{
    struct http_server *s = ex->s;
    if (ex->out.len == 0)
        return; /* the library has it */
    ex->n_unread = ex->out.cap;
    s->n_unread += ex->n_unread;
    list_append(ex);
    while (s->n_unread > s->cfg.max_held_bytes && s->readers.head != ex) {
        atomic_fetch_add_explicit(&s->stat_dropped, 1, memory_order_relaxed);
        exchange_abandon(s->readers.head);
    }
}

static void start_answer(struct exchange *ex)
{
    struct MHD_Response *r;
    if (ex->answer.stream) {
        ex->state = EX_STREAMING;
        r = response_of_stream(ex);
        const char *type = ex->answer.content_type;
        ex->spoke_us = ex->s->now_us;
        if (ex->s->cfg.keepalive_comment_ms > 0 && type &&
            !strncmp(type, "text/event-stream", strlen("text/event-stream")))
            list_append(ex);
    } else {
        ex->state = EX_SENDING;
        r = response_of_whole(ex);
        hold_answer(ex);
    }
    if (!r || !queue_answer(ex, r)) {
        log_error("http: an answer with status %d could not be sent", ex->answer.status);
        exchange_abandon(ex);
        return;
    }
    resume(ex);
}

/* WAITING: pull until it is known what kind of answer this is, and, unless it is a stream, until it
 * is whole. */
static void gather_answer(struct exchange *ex)
{
    struct http_server *s = ex->s;
    enum http_pull r = HTTP_MORE;
    while (r == HTTP_MORE) {
        r = s->app->pull(s->app->ctx, ex->call, &ex->answer, &ex->out);
        if (r == HTTP_WAIT)
            return;
        if (r == HTTP_WORK) {
            ex->state = EX_QUEUED;
            worker_pool_submit(s, ex);
            return;
        }
        if (ex->answer.stream)
            break;
    }
    ex->done = r == HTTP_DONE;
    ex->news = r == HTTP_MORE;
    ex->gone |= r == HTTP_CUT; /* before its first byte: the head goes out, then the end */
    start_answer(ex);
}

void exchange_begun(struct exchange *ex)
{
    ex->state = EX_WAITING;
    drop_body(ex);
    if (ex->gone)
        exchange_abandon(ex);
    else
        gather_answer(ex);
}

/* One whose begin has not come back yet will be pulled then. */
void exchange_news(struct exchange *ex)
{
    if (ex->state == EX_WAITING) {
        gather_answer(ex);
    } else if (ex->state == EX_STREAMING) {
        ex->news = true;
        resume(ex);
    }
}

/* A stream that is not suspended has bytes on the way or a reader that takes none: no comment. */
void exchange_send_comments(struct http_server *s)
{
    const uint64_t limit_us = s->cfg.keepalive_comment_ms * 1000ull;
    struct exchange *ex;
    while ((ex = s->streams.head) && s->now_us - ex->spoke_us >= limit_us) {
        if (ex->suspended && !ex->gone) {
            buf_clear(&ex->out);
            ex->out_pos = 0;
            buf_str(&ex->out, ": keep-alive\n\n");
            resume(ex);
        }
        spoke(ex);
    }
}

void exchange_on_completed(void *cls,
                           struct MHD_Connection *mhd,
                           void **ctx,
                           enum MHD_RequestTerminationCode code)
{
    (void)mhd;
    struct http_server *s = cls;
    struct exchange *ex = *ctx;
    if (!ex)
        return;
    *ctx = NULL;
    bool whole = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && !ex->gone;
    bool begun = ex->state != EX_READING;
    if (begun && !whole && (ex->conn->peer_left || (!ex->conn->cut && !ex->gone)))
        atomic_fetch_add_explicit(&s->stat_gone, 1, memory_order_relaxed);
    end_call(ex, whole);
    drop_answer(ex);
    if (begun)
        s->n_begun--;
    ex->conn->ex = NULL;
    ex->conn->since_us = s->now_us;
    ex->conn->used = true;
    ex->conn->clean = begun && whole;
    drop_body(ex);
    free(ex->text);
    free(ex->target);
    free(ex);
}
