/* Any bytes as a multipart/form-data body: what comes in pieces must be read as what comes at once,
 * and its parts must lie in the body, apart and in order.
 *
 * The first line is the Content-Type, the first byte of the next the size of the pieces. */
#include "http/internal.h"

#include <stdlib.h>
#include <string.h>

/* The name is libFuzzer's. NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static bool take(void *ctx, const char *method, const char *path)
{
    (void)ctx;
    (void)method;
    (void)path;
    return true;
}

/* As exchange.c does; returns why the form is refused, or NULL. A body of just its bytes and the
 * NUL behind them, at another place for each piece. */
static const char *read_form(
    struct exchange *ex, const char *type, const uint8_t *bytes, size_t n, size_t step)
{
    const char *why;
    if (!form_begin(ex, type, &why))
        return why;
    must(ex->form);
    for (size_t at = 0; at < n; at += step) {
        const size_t now = n - at < step ? n - at : step;
        char *body = malloc(at + now + 1);
        must(body);
        memcpy(body, bytes, at + now);
        body[at + now] = '\0';
        free(ex->body);
        ex->body = body;
        ex->req.body_len = at + now;
        if ((why = form_feed(ex)))
            return why;
    }
    return form_end(ex);
}

static void check_parts(const struct exchange *ex)
{
    const char *from = ex->body;
    for (size_t i = 0; i < ex->req.n_parts; i++) {
        const struct http_part *p = &ex->req.parts[i];
        must(p->data >= from && p->data[p->n_data] == '\0');
        from = p->data + p->n_data;
        must(from < ex->body + ex->req.body_len && p->name);
    }
}

static void compare(const struct exchange *x, const struct exchange *y)
{
    must(x->req.n_parts == y->req.n_parts);
    for (size_t i = 0; i < x->req.n_parts; i++) {
        const struct http_part *p = &x->req.parts[i], *q = &y->req.parts[i];
        must(p->n_data == q->n_data && memcmp(p->data, q->data, p->n_data) == 0);
        must(strcmp(p->name, q->name) == 0 && !p->filename == !q->filename);
        must(!p->filename || strcmp(p->filename, q->filename) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const struct http_app app = {.takes_form = take};
    struct http_server server = {.app = &app};
    struct exchange whole = {.s = &server}, pieces = {.s = &server};
    const uint8_t *line = n_bytes ? memchr(data, '\n', n_bytes) : NULL;
    if (!line || line + 2 > data + n_bytes || memchr(data, '\0', (size_t)(line - data)))
        return 0;
    char *type = strndup((const char *)data, (size_t)(line - data));
    const uint8_t *body = line + 2;
    const size_t n = n_bytes - (size_t)(body - data), step = line[1] ? line[1] : 1;
    whole.req.method = pieces.req.method = "POST";
    whole.req.path = pieces.req.path = "/";
    if (form_is(&whole, type)) {
        const char *why = read_form(&whole, type, body, n, n ? n : 1);
        const char *other = read_form(&pieces, type, body, n, step);
        must(!why == !other && (!why || strcmp(why, other) == 0));
        if (!why) {
            check_parts(&whole);
            compare(&whole, &pieces);
        }
        form_free(&whole);
        form_free(&pieces);
        free(whole.body);
        free(pieces.body);
    }
    free(type);
    return 0;
}
