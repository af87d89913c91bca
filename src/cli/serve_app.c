#include "cli/serve_app.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* What http/ calls a call: the API's, and room for the headers of its answer. */
struct served_call {
    struct api_call *call;
    struct http_header headers[5 + API_MAX_HEADERS];
};

/* All but the parts of a form, and the name. */
static struct api_input input_of(const struct http_request *r)
{
    return (struct api_input){.method = r->method,
                              .path = r->path,
                              .query = r->query,
                              .body = r->body,
                              .body_len = r->body_len,
                              .authorization = r->authorization,
                              .api_key = r->api_key,
                              .request_id = r->request_id,
                              .traceparent = r->traceparent,
                              .origin = r->origin,
                              .cors_method = r->cors_method,
                              .cors_headers = r->cors_headers,
                              .client = r->client};
}

static void *app_begin(void *ctx, const struct http_request *r, void *name)
{
    struct serve_app *a = ctx;
    struct api_part *parts = mem_zalloc(r->n_parts + 1, sizeof *parts);
    for (size_t i = 0; i < r->n_parts; i++)
        parts[i] =
            (struct api_part){.name = r->parts[i].name,
                              .filename = r->parts[i].filename,
                              .n_filename = r->parts[i].filename ? strlen(r->parts[i].filename) : 0,
                              .data = r->parts[i].data,
                              .n_data = r->parts[i].n_data};
    struct api_input in = input_of(r);
    in.parts = parts;
    in.n_parts = r->n_parts;
    in.name = name;
    struct served_call *c = mem_zalloc(1, sizeof *c);
    c->call = api_begin(a->api, &in);
    free(parts);
    return c;
}

static void fill_answer(struct served_call *c, const struct api_answer *in, struct http_answer *out)
{
    size_t n = 0;
    if (in->request_id)
        c->headers[n++] = (struct http_header){"X-Request-Id", in->request_id};
    if (in->request_id && in->anthropic)
        c->headers[n++] = (struct http_header){"Request-Id", in->request_id};
    if (in->retry_after)
        c->headers[n++] = (struct http_header){"Retry-After", in->retry_after};
    if (in->allow)
        c->headers[n++] = (struct http_header){"Allow", in->allow};
    if (in->www_authenticate)
        c->headers[n++] = (struct http_header){"WWW-Authenticate", "Bearer"};
    for (size_t i = 0; i < in->n_headers; i++)
        c->headers[n++] = (struct http_header){in->headers[i].name, in->headers[i].value};
    *out = (struct http_answer){.status = in->status,
                                .content_type = in->content_type,
                                .headers = c->headers,
                                .n_headers = n,
                                .stream = in->stream,
                                .n_bytes = in->n_bytes};
}

static enum http_pull app_pull(void *ctx, void *call, struct http_answer *answer, struct buf *out)
{
    (void)ctx;
    struct served_call *c = call;
    struct api_answer a = {0};
    enum api_pull pulled = api_pull(c->call, &a, out);
    if (pulled == API_WAIT)
        return HTTP_WAIT;
    if (pulled == API_WORK)
        return HTTP_WORK;
    fill_answer(c, &a, answer);
    return pulled == API_DONE ? HTTP_DONE : pulled == API_CUT ? HTTP_CUT : HTTP_MORE;
}

static void app_work(void *ctx, void *call)
{
    (void)ctx;
    struct served_call *c = call;
    api_work(c->call);
}

static void app_end(void *ctx, void *call, bool whole)
{
    (void)ctx;
    struct served_call *c = call;
    if (!whole)
        api_cut(c->call);
    api_end(c->call);
    free(c);
}

static void *app_next(void *ctx)
{
    struct serve_app *a = ctx;
    void *name;
    if (a->batches)
        batches_collect(a->batches);
    while ((name = api_next(a->api))) {
        if (!a->batches || !batches_take_news(a->batches, name))
            return name;
    }
    return NULL;
}

static const char *app_error_body(void *ctx,
                                  int status,
                                  const char *text,
                                  const char *target,
                                  char id[HTTP_ID_BYTES],
                                  struct buf *out)
{
    const struct serve_app *a = ctx;
    struct err_info e;
    err_set(&e, ERR_INVALID, "%s", text);
    if (!id[0])
        api_new_id("req-", id, HTTP_ID_BYTES);
    const char *path = target ? api_path_below(a->api_prefix, target) : NULL;
    return api_error_body(status, &e, path, id, out) ? "Request-Id" : NULL;
}

static void app_refused(void *ctx, int status, const char *client)
{
    struct serve_app *a = ctx;
    api_note_refused(a->api, status, client);
}

static bool app_takes_form(void *ctx, const char *method, const char *path)
{
    const struct serve_app *a = ctx;
    return api_takes_form(a->api, method, path);
}

static bool app_at_once(void *ctx, const char *method, const char *path)
{
    const struct serve_app *a = ctx;
    return api_at_once(a->api, method, path);
}

static int app_refuses_body(void *ctx, const struct http_request *head, struct err_info *e)
{
    const struct serve_app *a = ctx;
    const struct api_input in = input_of(head);
    return api_refuses_body(a->api, &in, e);
}

struct http_app serve_app_ops(struct serve_app *a, int news_fd)
{
    return (struct http_app){.ctx = a,
                             .begin = app_begin,
                             .pull = app_pull,
                             .work = app_work,
                             .end = app_end,
                             .news_fd = news_fd,
                             .next = app_next,
                             .takes_form = app_takes_form,
                             .at_once = app_at_once,
                             .refuses_body = app_refuses_body,
                             .error_body = app_error_body,
                             .refused = app_refused};
}
