/* What a request's headers must be before anything is done for it, and the answers to those that
 * are not. Framing that two readers could understand differently (a length given twice, a length
 * and chunks, an unknown coding; names that are no names, such as "Content-Length ", values with
 * controls or NULs, folded lines, two hosts) is refused, since a proxy in front may be the other
 * reader. */
#include "base/mem.h"
#include "http/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Connections and large bodies come and go within seconds. */
#define RETRY_S "5"

/* A token (RFC 9110, 5.6.2). */
static bool is_name(const char *s, size_t n)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++) {
        const char c = s[i], low = (char)(c | 0x20);
        if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') &&
            (c == '\0' || !strchr(marks, c)))
            return false;
    }
    return n > 0;
}

static bool has_controls(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 0x20 && s[i] != '\t')
            return true;
    }
    return false;
}

/* Is there nothing from the end of one part of the head to the next but blanks and the line's end
 * (n NULs: the library ends strings where they stand)? It takes a NUL for a string's end too, and
 * joins a folded line to the name before it; neither can be seen in what it gives, but here. (A NUL
 * right before a bare LF cannot: together they are what it leaves of CR and LF.) */
static bool is_gap(const char *end, const char *next, int n)
{
    bool ended = false;
    if ((uintptr_t)next < (uintptr_t)end)
        return false;
    for (; end < next; end++) {
        const bool nul = *end == '\0';
        if (nul ? --n < 0 : ended || !strchr(" \t", *end))
            return false;
        ended |= nul;
    }
    return true;
}

/* A list of codings that change nothing. */
static bool is_identity(const char *list)
{
    static const char word[] = "identity";
    const size_t n = strlen(word);
    for (;;) {
        list += strspn(list, " \t,");
        if (!*list)
            return true;
        if (strncasecmp(list, word, n) != 0 || !strchr(" \t,", list[n]))
            return false;
        list += n;
    }
}

static enum MHD_Result on_header(void *cls,
                                 enum MHD_ValueKind kind,
                                 const char *key,
                                 size_t n_key,
                                 const char *value,
                                 size_t n_value)
{
    (void)kind;
    struct header_facts *f = cls;
    f->odd |= !key || !value || !is_name(key, n_key) || has_controls(value, n_value) ||
              (f->end && !is_gap(f->end, key, 2));
    if (f->odd)
        return MHD_NO;
    f->end = value + n_value;
    if (!strcasecmp(key, "Host")) {
        f->odd = f->host != NULL;
        f->host = value;
    } else if (!strcasecmp(key, "Authorization")) {
        f->authorization = value;
    } else if (!strcasecmp(key, "X-Api-Key")) {
        f->api_key = value;
    } else if (!strcasecmp(key, "X-Request-Id")) {
        f->request_id = value;
    } else if (!strcasecmp(key, "Content-Type")) {
        f->content_type = value;
    } else if (!strcasecmp(key, "Content-Encoding")) {
        f->encoded |= !is_identity(value);
    } else if (!strcasecmp(key, "Traceparent")) {
        f->traceparent = f->traceparent ? "" : value; /* twice: none can be trusted */
    } else if (!strcasecmp(key, "Origin")) {
        f->origin = value;
    } else if (!strcasecmp(key, "Access-Control-Request-Method")) {
        f->cors_method = value;
    } else if (!strcasecmp(key, "Access-Control-Request-Headers")) {
        f->cors_headers = value;
    } else if (!strcasecmp(key, "Content-Length")) {
        f->content_length = value;
        f->n_content_length++;
    } else if (!strcasecmp(key, "Transfer-Encoding")) {
        /* a second one makes a list, which is not "chunked" */
        f->transfer_encoding = f->transfer_encoding ? "" : value;
    }
    return MHD_YES;
}

static bool all_between(const char *s, unsigned char lo, unsigned char hi, size_t max)
{
    size_t n = 0;
    for (; s[n]; n++) {
        unsigned char c = (unsigned char)s[n];
        if (c < lo || c > hi || n >= max)
            return false;
    }
    return n > 0;
}

static void drop_unless(const char **value, unsigned char lo, size_t max)
{
    if (*value && !all_between(*value, lo, 0x7e, max))
        *value = NULL;
}

/* Of the whole head; 0 if the library does not say. */
static size_t header_size(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return size ? size->header_size : 0;
}

/* Values that may come back in an answer or a log are dropped unless harmless. */
void header_facts_read(struct MHD_Connection *mhd, const char *head, struct header_facts *f)
{
    *f = (struct header_facts){0};
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, on_header, f);
    size_t n = header_size(mhd);
    f->odd |= f->end && n > 0 && !is_gap(f->end, head + n, 4);
    drop_unless(&f->request_id, 0x21, 128);
    drop_unless(&f->authorization, 0x20, SIZE_MAX);
    drop_unless(&f->api_key, 0x20, SIZE_MAX);
    drop_unless(&f->traceparent, 0x21, 256);
    drop_unless(&f->origin, 0x21, 256);
    drop_unless(&f->cors_method, 0x21, 256);
    drop_unless(&f->cors_headers, 0x20, 1024);
}

char *target_copy(const char *target)
{
    static const char host_chars[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
        "-._~!$&'()*+,;=:@[]";
    size_t scheme = 0;
    if (!strncasecmp(target, "http://", 7))
        scheme = 7;
    else if (!strncasecmp(target, "https://", 8))
        scheme = 8;
    const size_t n_host = scheme ? strspn(target + scheme, host_chars) : 0;
    const char *rest = target + scheme + n_host;
    if (n_host == 0 || !strchr("/?", *rest))
        return mem_strdup(target);
    const size_t n = strlen(rest) + 2;
    char *copy = mem_alloc(n);
    snprintf(copy, n, "%s%s", *rest == '/' ? "" : "/", rest);
    return copy;
}

static bool target_is_odd(const char *target)
{
    for (const char *p = target; *p; p++) {
        if ((unsigned char)*p <= 0x20 || *p == 0x7f || !strncmp(p, "%00", 3))
            return true;
    }
    return target[0] == 0;
}

/* Is there a body that is compressed, or the like? */
static bool is_encoded(const struct header_facts *f)
{
    const bool body =
        f->transfer_encoding || (f->content_length && strtoull(f->content_length, NULL, 10) > 0);
    return body && f->encoded;
}

int header_refusal(struct exchange *ex,
                   const struct header_facts *f,
                   const char *method,
                   const char *version,
                   const char **why)
{
    const struct http_config *cfg = &ex->s->cfg;
    if (ex->conn->over) {
        *why = "too many connections";
        return 503;
    }
    if (header_size(ex->conn->mhd) > cfg->max_header_bytes) {
        bool target = strlen(ex->target) > cfg->max_header_bytes / 2;
        *why = target ? "the request's target is too long" : "the request's headers are too large";
        return target ? 414 : 431;
    }
    if (!all_between(method, 0x21, 0x7e, 32) || target_is_odd(ex->target) ||
        !is_gap(ex->target_end, version, 1)) {
        *why = "the request line is malformed";
        return 400;
    }
    if (f->odd) {
        *why = "a header is malformed, or there are two hosts";
        return 400;
    }
    if (!strcmp(version, "HTTP/1.1") && !f->host) {
        *why = "the Host header is missing";
        return 400;
    }
    if (f->n_content_length > 1 || (f->content_length && f->transfer_encoding)) {
        *why = "the length of the body is given twice";
        return 400;
    }
    if (f->transfer_encoding && strcasecmp(f->transfer_encoding, "chunked") != 0) {
        *why = "the only transfer coding understood is chunked";
        return 501;
    }
    if (f->content_length) {
        /* the library has checked that it is a number that fits */
        unsigned long long n = strtoull(f->content_length, NULL, 10);
        if (n > largest_body(cfg, form_is(ex, f->content_type))) {
            *why = "the body is too large";
            return 413;
        }
        ex->body_due = (size_t)n;
    }
    if (is_encoded(f)) {
        *why =
            "the body is compressed (Content-Encoding), which is not understood: send it as it is";
        return 415;
    }
    return 0;
}

/* Of an answer with that status, beside those that all have; NULL: none. */
static const struct http_header *header_of(int status)
{
    static const struct {
        int status;
        struct http_header header;
    } rows[] = {{401, {"WWW-Authenticate", "Bearer"}},
                {415, {"Accept-Encoding", "identity"}},
                {503, {"Retry-After", RETRY_S}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].status == status)
            return &rows[i].header;
    }
    return NULL;
}

/* Returns the name of a header that has the id too, or NULL. */
static const char *put_error(
    struct exchange *ex, int status, const char *why, char id[HTTP_ID_BYTES], struct buf *out)
{
    const struct http_app *app = ex->s->app;
    snprintf(id, HTTP_ID_BYTES, "%s", ex->req.request_id ? ex->req.request_id : "");
    const char *also = app->error_body(app->ctx, status, why, ex->target, id, out);
    if (app->refused)
        app->refused(app->ctx, status, ex->conn->client);
    return also;
}

struct MHD_Response *response_of_error(struct exchange *ex, int status, const char *why)
{
    struct buf b = {0};
    char id[HTTP_ID_BYTES];
    const char *also = put_error(ex, status, why, id, &b);
    struct MHD_Response *r = MHD_create_response_from_buffer(b.len, b.data, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        buf_deinit(&b);
        return NULL;
    }
    (void)MHD_add_response_header(r, "Content-Type", "application/json");
    (void)MHD_add_response_header(r, "X-Request-Id", id);
    if (also)
        (void)MHD_add_response_header(r, also, id);
    const struct http_header *h = header_of(status);
    if (h)
        (void)MHD_add_response_header(r, h->name, h->value);
    (void)MHD_add_response_header(r, "Connection", "close");
    return r;
}

/* In the middle of a body the library accepts no answer, only a closed connection; so the answer is
 * written beside it. The socket's buffer is empty then: nothing was sent since the last request. */
void send_error_raw(struct exchange *ex, int status, const char *why)
{
    struct buf body = {0}, msg = {0};
    char id[HTTP_ID_BYTES];
    const char *also = put_error(ex, status, why, id, &body);
    buf_printf(&msg,
               "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\n",
               status,
               MHD_get_reason_phrase_for((unsigned)status),
               id);
    if (also)
        buf_printf(&msg, "%s: %s\r\n", also, id);
    const struct http_header *h = header_of(status);
    if (h)
        buf_printf(&msg, "%s: %s\r\n", h->name, h->value);
    buf_printf(&msg, "Connection: close\r\nContent-Length: %zu\r\n\r\n", body.len);
    buf_add(&msg, body.data, body.len);
    conn_send_raw(ex->conn, msg.data, msg.len);
    buf_deinit(&body);
    buf_deinit(&msg);
}
