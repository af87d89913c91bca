/* multipart/form-data bodies (RFC 7578), taken apart as they come: where parts begin and end is
 * noted in the body, and when it is whole their ends become NULs, so a form holds no more memory
 * than any body of its length. They are read only where the application wants them, for JSON bodies
 * come with any Content-Type.
 *
 * Names are read as clients write them: quoted or not, with \" and \\ or as they are. Other headers
 * of a part, and filename*, which the RFC does not allow, are passed over. */
#include "base/mem.h"
#include "http/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_PARTS 32
#define MAX_NAME_BYTES 1024
#define MAX_BOUNDARY_BYTES 256  /* the RFC allows 70 */
#define MAX_HEADERS (16 * 1024) /* a part's own headers must fit */
#define MAX_PADDING 256         /* blanks behind a boundary */
#define BLANKS " \t\r\n"

struct span {
    size_t at, n;
};

enum form_state { BETWEEN, HEADERS, DATA, OVER };

/* Offsets are into the exchange's body, which moves as it grows. */
struct form {
    char mark[MAX_BOUNDARY_BYTES + 5]; /* CR, LF, two hyphens and the boundary */
    size_t n_mark;
    enum form_state state;
    size_t from; /* the part's headers, or bytes, begin here */
    size_t at;   /* all before it was looked at */
    char *names[MAX_PARTS], *filenames[MAX_PARTS];
    struct span data[MAX_PARTS];
    struct http_part parts[MAX_PARTS];
    size_t n;
};

/* ---- parameters of a header: ; name=value; name="value" ---------------------------------- */

/* What is between quotes, up to the one that ends it; NULL if none does. */
static const char *read_quoted(const char *s, const char *end, char *out, size_t cap, size_t *n)
{
    *n = 0;
    for (; s < end && *s != '"'; s++) {
        if (*s == '\\' && end - s > 1 && (s[1] == '"' || s[1] == '\\'))
            s++;
        if (*n < cap)
            out[(*n)++] = *s;
    }
    return s < end ? s + 1 : NULL;
}

static const char *read_word(const char *s, const char *end, char *out, size_t cap, size_t *n)
{
    *n = 0;
    for (; s < end && *s != ';'; s++) {
        if (*n < cap)
            out[(*n)++] = *s;
    }
    while (*n > 0 && strchr(BLANKS, out[*n - 1]))
        --*n;
    return s;
}

static const char *skip(const char *s, const char *end, const char *what)
{
    while (s < end && *s && strchr(what, *s))
        s++;
    return s;
}

/* The first parameter of that name, cut at cap - 1 bytes; what it is a parameter of (s to end, no
 * NULs) may be broken elsewhere. False: there is none. */
static bool get_parameter(const char *s, const char *end, const char *name, char *out, size_t cap)
{
    while (s && (s = memchr(s, ';', (size_t)(end - s)))) {
        s = skip(s, end, ";" BLANKS);
        size_t n_key = 0;
        while (s + n_key < end && !strchr("=;" BLANKS, s[n_key]))
            n_key++;
        const bool found = n_key == strlen(name) && strncasecmp(s, name, n_key) == 0;
        const char *value = skip(s + n_key, end, BLANKS);
        if (value >= end || *value != '=') {
            s = value;
            continue;
        }
        value = skip(value + 1, end, BLANKS);
        size_t n;
        s = value < end && *value == '"' ? read_quoted(value + 1, end, out, cap - 1, &n)
                                         : read_word(value, end, out, cap - 1, &n);
        out[n] = '\0';
        if (found)
            return s != NULL;
    }
    return false;
}

/* ---- begin ------------------------------------------------------------------------------- */

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
    char boundary[MAX_BOUNDARY_BYTES + 2];
    const char *end = content_type + strlen(content_type);
    const size_t n = get_parameter(content_type, end, "boundary", boundary, sizeof boundary)
                         ? strlen(boundary)
                         : 0;
    if (n == 0 || n > MAX_BOUNDARY_BYTES) {
        *why = "the Content-Type of the form names no boundary, or too long a one";
        return false;
    }
    struct form *f = mem_zalloc(1, sizeof *f);
    memcpy(f->mark, "\r\n--", 4);
    memcpy(f->mark + 4, boundary, n);
    f->n_mark = n + 4;
    ex->form = f;
    return true;
}

/* ---- as it comes ------------------------------------------------------------------------- */

/* The value of the part's Content-Disposition, folded lines included; NULL if it has none. */
static const char *find_disposition(const char *s, const char *end, const char **value_end)
{
    static const char name[] = "Content-Disposition:";
    while (s < end) {
        const char *line = s;
        do { /* a line that begins with a blank goes on with the one before */
            s = memchr(s, '\n', (size_t)(end - s));
            s = s ? s + 1 : end;
        } while (s < end && (*s == ' ' || *s == '\t'));
        if ((size_t)(s - line) >= sizeof name && strncasecmp(line, name, sizeof name - 1) == 0) {
            *value_end = s;
            return line + sizeof name - 1;
        }
    }
    return NULL;
}

static const char *add_part(struct form *f, const char *headers, const char *end)
{
    char name[MAX_NAME_BYTES + 2], filename[MAX_NAME_BYTES + 2];
    if (f->n == MAX_PARTS)
        return "the multipart form has too many parts";
    if (memchr(headers, '\0', (size_t)(end - headers)))
        return "the multipart form has a NUL in the head of a part";
    const char *value_end, *value = find_disposition(headers, end, &value_end);
    if (!value || !get_parameter(value, value_end, "name", name, sizeof name))
        return "a part of the multipart form has no name";
    const bool is_file = get_parameter(value, value_end, "filename", filename, sizeof filename);
    if (strlen(name) > MAX_NAME_BYTES || (is_file && strlen(filename) > MAX_NAME_BYTES))
        return "a name in the multipart form is too long";
    f->names[f->n] = mem_strdup(name);
    f->filenames[f->n] = is_file ? mem_strdup(filename) : NULL;
    f->n++;
    return NULL;
}

enum mark { MARK_NONE, MARK_NEXT, MARK_LAST, MARK_CUT };

/* What stands behind a boundary: a part's headers (*n bytes further on), the end, or bytes by which
 * it was none. MARK_CUT: that is not there yet. */
static enum mark mark_at(const char *s, size_t n_left, size_t *n)
{
    if (n_left >= 2 && memcmp(s, "--", 2) == 0)
        return MARK_LAST;
    size_t i = 0;
    while (i < n_left && i < MAX_PADDING && (s[i] == ' ' || s[i] == '\t'))
        i++;
    if (n_left - i >= 2) {
        *n = i + 2;
        return memcmp(s + i, "\r\n", 2) == 0 ? MARK_NEXT : MARK_NONE;
    }
    const bool may_be = n_left == i || s[i] == '\r' || (i == 0 && s[0] == '-');
    return may_be ? MARK_CUT : MARK_NONE;
}

/* Are these bytes, as far as they are there, the mark or its beginning? */
static bool is_begin(const char *mark, size_t n_mark, const char *s, size_t n)
{
    return memcmp(s, mark, n < n_mark ? n : n_mark) == 0;
}

/* Looks for a boundary from f->at on; the body may begin with one, without a line's end before it.
 * False: for that more has to come. */
static bool to_boundary(struct form *f, const char *body, size_t n_body)
{
    while (f->at < n_body) {
        size_t n_skip = 0, n_mark = f->n_mark;
        const char *s;
        if (f->at == 0 && is_begin(f->mark + 2, n_mark - 2, body, n_body)) {
            n_mark -= 2;
            s = n_body < n_mark ? NULL : body;
        } else {
            s = memmem(body + f->at, n_body - f->at, f->mark, n_mark);
        }
        if (!s) { /* the last bytes may be the beginning of one */
            if (n_body - f->at >= n_mark)
                f->at = n_body - n_mark + 1;
            return false;
        }
        const size_t at = (size_t)(s - body), behind = at + n_mark;
        const enum mark mark = mark_at(body + behind, n_body - behind, &n_skip);
        f->at = at;
        if (mark == MARK_CUT)
            return false;
        if (mark == MARK_NONE) {
            f->at = behind;
            continue;
        }
        if (f->state == DATA) {
            struct span *d = &f->data[f->n - 1];
            *d = (struct span){f->from, at > f->from ? at - f->from : 0};
        }
        f->state = mark == MARK_LAST ? OVER : HEADERS;
        f->from = f->at = behind + n_skip;
        return true;
    }
    return false;
}

/* Looks for the empty line behind a part's headers. False: more has to come, or *why. */
static bool to_data(struct form *f, const char *body, size_t n_body, const char **why)
{
    const char *headers = body + f->from;
    const size_t n = n_body - f->from;
    if (n < 2)
        return false;
    const size_t seen = f->at - f->from;
    const char *end = memcmp(headers, "\r\n", 2) == 0 ? headers : NULL;
    if (!end && (end = memmem(headers + seen, n - seen, "\r\n\r\n", 4)))
        end += 2;
    if (!end || end - headers > MAX_HEADERS) {
        if (n > MAX_HEADERS + 4)
            *why = "the head of a part of the multipart form is too large";
        f->at = n > 3 ? n_body - 3 : f->from;
        return false;
    }
    *why = add_part(f, headers, end);
    f->state = DATA;
    f->from = (size_t)(end - body) + 2;
    f->at = f->from - 2; /* where there are no bytes the empty line ends them */
    return !*why;
}

const char *form_feed(struct exchange *ex)
{
    struct form *f = ex->form;
    const char *why = NULL;
    bool on = true;
    while (on && f->state != OVER)
        on = f->state == HEADERS ? to_data(f, ex->body, ex->req.body_len, &why)
                                 : to_boundary(f, ex->body, ex->req.body_len);
    return why;
}

const char *form_end(struct exchange *ex)
{
    struct form *f = ex->form;
    if (f->state != OVER || f->n == 0)
        return "the multipart form is malformed or cut short";
    for (size_t i = 0; i < f->n; i++) {
        ex->body[f->data[i].at + f->data[i].n] = '\0'; /* in the boundary behind it */
        f->parts[i] = (struct http_part){.name = f->names[i],
                                         .filename = f->filenames[i],
                                         .data = ex->body + f->data[i].at,
                                         .n_data = f->data[i].n};
    }
    ex->req.parts = f->parts;
    ex->req.n_parts = f->n;
    return NULL;
}

void form_free(struct exchange *ex)
{
    struct form *f = ex->form;
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        free(f->names[i]);
        free(f->filenames[i]);
    }
    free(f);
    ex->form = NULL;
}
