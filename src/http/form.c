/* multipart/form-data bodies: the library's post processor takes them apart as they come, and what
 * it finds is copied together, part by part. They are read only where the application wants them,
 * for JSON bodies come with any Content-Type.
 *
 * A part is a name, maybe a file's name, and bytes. Bytes count against largest_body with the
 * rest of the body, so a form holds no more memory than a body of its length. */
#include "base/mem.h"
#include "http/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_PARTS 32
#define MAX_NAME_BYTES 1024
#define PROCESSOR_BYTES (16 * 1024) /* a part's own headers must fit */

struct form {
    struct MHD_PostProcessor *processor;
    struct buf data[MAX_PARTS];
    char *names[MAX_PARTS], *filenames[MAX_PARTS];
    struct http_part parts[MAX_PARTS];
    size_t n;
    const char *why; /* it is refused, or NULL */
    int status;      /* with that; 0: 400 */
};

/* The library may call for a part before it has any byte of it, and then again from the start. */
static bool goes_on(const struct form *f, const char *key)
{
    return f->n > 0 && f->data[f->n - 1].len == 0 && key && strcmp(f->names[f->n - 1], key) == 0;
}

/* The library ends a quoted name at its first quote, also at an escaped one: what is left then ends
 * in a backslash, and is not what was sent. (RFC 7578 has quotes sent as %22.) */
static const char *refusal_of_name(const char *name)
{
    size_t n = strlen(name);
    if (n > MAX_NAME_BYTES)
        return "a name in the multipart form is too long";
    if (n > 0 && name[n - 1] == '\\')
        return "the multipart form has an escaped quote, or a backslash at the end, in a name";
    return NULL;
}

static const char *refusal_of_part(const struct form *f, const char *key, const char *filename)
{
    if (f->n == MAX_PARTS)
        return "the multipart form has too many parts";
    if (!key)
        return "a part of the multipart form has no name";
    const char *why = refusal_of_name(key);
    return why || !filename ? why : refusal_of_name(filename);
}

static enum MHD_Result out_of_memory(struct form *f)
{
    f->why = "out of memory";
    f->status = 503;
    return MHD_NO;
}

/* The library calls this for each run of bytes of a part; off is 0 for its first. */
static enum MHD_Result on_part(void *cls,
                               enum MHD_ValueKind kind,
                               const char *key,
                               const char *filename,
                               const char *content_type,
                               const char *transfer_encoding,
                               const char *data,
                               uint64_t off,
                               size_t size)
{
    (void)kind;
    (void)content_type;
    (void)transfer_encoding;
    struct form *f = cls;
    if (off == 0 && !goes_on(f, key)) {
        f->why = refusal_of_part(f, key, filename);
        if (f->why)
            return MHD_NO;
        f->names[f->n] = mem_strdup(key);
        f->filenames[f->n] = filename ? mem_strdup(filename) : NULL;
        f->data[f->n++].may_fail = true;
    }
    if (f->n > 0)
        buf_add(&f->data[f->n - 1], data, size);
    if (f->n > 0 && f->data[f->n - 1].failed)
        return out_of_memory(f);
    return MHD_YES;
}

bool form_is(const struct exchange *ex, const char *content_type)
{
    static const char type[] = "multipart/form-data";
    const struct http_app *app = ex->s->app;
    return content_type && strncasecmp(content_type, type, sizeof type - 1) == 0 &&
           app->takes_form && app->takes_form(app->ctx, ex->req.method, ex->req.path);
}

size_t largest_body(const struct http_config *cfg, bool is_form)
{
    bool more = is_form && cfg->max_form_bytes > cfg->max_body_bytes;
    return more ? cfg->max_form_bytes : cfg->max_body_bytes;
}

bool form_begin(struct exchange *ex, const char *content_type, const char **why)
{
    *why = NULL;
    if (!form_is(ex, content_type))
        return true;
    struct form *f = mem_zalloc(1, sizeof *f);
    f->processor = MHD_create_post_processor(ex->conn->mhd, PROCESSOR_BYTES, on_part, f);
    if (!f->processor) {
        free(f);
        *why = "the Content-Type of the form names no boundary, or one of a single character that "
               "is not in quotes";
        return false;
    }
    ex->form = f;
    return true;
}

static const char *refusal(const struct form *f, bool fine, int *status)
{
    *status = f->status ? f->status : 400;
    if (f->why || fine)
        return f->why;
    return "the multipart form is malformed or cut short";
}

const char *form_feed(struct exchange *ex, const char *data, size_t n, int *status)
{
    struct form *f = ex->form;
    const bool fine = MHD_post_process(f->processor, data, n) == MHD_YES;
    return refusal(f, fine, status);
}

const char *form_end(struct exchange *ex, int *status)
{
    struct form *f = ex->form;
    enum MHD_Result whole = MHD_destroy_post_processor(f->processor);
    f->processor = NULL;
    const char *why = refusal(f, whole == MHD_YES && f->n > 0, status);
    if (why)
        return why;
    for (size_t i = 0; i < f->n; i++) {
        const char *data = buf_cstr(&f->data[i]);
        if (f->data[i].failed)
            (void)out_of_memory(f);
        f->parts[i] = (struct http_part){.name = f->names[i],
                                         .filename = f->filenames[i],
                                         .data = data,
                                         .n_data = f->data[i].len};
    }
    ex->req.parts = f->parts;
    ex->req.n_parts = f->n;
    return refusal(f, true, status);
}

void form_free(struct exchange *ex)
{
    struct form *f = ex->form;
    if (!f)
        return;
    if (f->processor)
        (void)MHD_destroy_post_processor(f->processor);
    for (size_t i = 0; i < f->n; i++) {
        free(f->names[i]);
        free(f->filenames[i]);
        buf_deinit(&f->data[i]);
    }
    free(f);
    ex->form = NULL;
}
