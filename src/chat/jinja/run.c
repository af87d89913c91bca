#include "chat/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jchunk {
    struct jchunk *next;
    size_t n_bytes;
    _Alignas(16) char data[];
};

#define CHUNK_BYTES ((size_t)64 * 1024)

void jarena_free(struct jarena *a)
{
    while (a->chunks) {
        struct jchunk *next = a->chunks->next;
        free(a->chunks);
        a->chunks = next;
    }
    a->at = a->end = NULL;
    a->n_bytes = 0;
}

enum err jrun_try(struct jrun *r, void (*fn)(struct jrun *r, void *arg), void *arg)
{
    jmp_buf here;
    jmp_buf *outer = r->exit;
    uint32_t depth = r->depth;
    r->exit = &here;
    if (setjmp(here) == 0) {
        fn(r, arg);
        r->code = OK;
    }
    /* neither changed since setjmp */
    r->exit = outer;
    r->depth = depth;
    return r->code;
}

static _Noreturn void leave(struct jrun *r, enum err code, const char *text)
{
    err_set(r->e, code, "line %u: %s", r->line, text);
    r->code = code;
    longjmp(*r->exit, 1);
}

_Noreturn void jrun_fail(struct jrun *r, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    leave(r, ERR_INVALID, text);
}

_Noreturn void jrun_fail_as(struct jrun *r, enum err code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    leave(r, code, text);
}

_Noreturn void jrun_out_of_steps(struct jrun *r)
{
    jrun_fail_as(r, ERR_TOO_LARGE, "the template takes too many steps");
}

_Noreturn void jrun_too_deep(struct jrun *r)
{
    jrun_fail_as(r, ERR_TOO_LARGE, "nested deeper than %d", JINJA_MAX_DEPTH);
}

static void add_chunk(struct jrun *r, size_t n_bytes)
{
    struct jarena *a = &r->arena;
    size_t take = n_bytes > CHUNK_BYTES / 4 ? n_bytes : CHUNK_BYTES;
    if (take > a->max_bytes || a->n_bytes > a->max_bytes - take)
        jrun_fail_as(r, ERR_TOO_LARGE, "the template takes more than %zu bytes", a->max_bytes);
    struct jchunk *c = malloc(sizeof *c + take);
    if (!c)
        jrun_fail_as(r, ERR_NOMEM, "no memory for %zu bytes", take);
    c->n_bytes = take;
    c->next = a->chunks;
    a->chunks = c;
    a->n_bytes += take;
    a->at = c->data;
    a->end = c->data + take;
}

void *jrun_alloc(struct jrun *r, size_t n_bytes)
{
    struct jarena *a = &r->arena;
    if (n_bytes > SIZE_MAX / 4)
        jrun_fail_as(r, ERR_TOO_LARGE, "the template takes more than %zu bytes", a->max_bytes);
    n_bytes = (n_bytes + 15) & ~(size_t)15;
    if ((size_t)(a->end - a->at) < n_bytes) {
        char *at = a->at, *end = a->end;
        add_chunk(r, n_bytes);
        if (n_bytes > CHUNK_BYTES / 4 && at) { /* a chunk of its own: the one before goes on */
            char *own = a->at;
            a->at = at;
            a->end = end;
            return memset(own, 0, n_bytes);
        }
    }
    void *p = a->at;
    a->at += n_bytes;
    return memset(p, 0, n_bytes);
}

void *jrun_alloc_n(struct jrun *r, size_t n, size_t size)
{
    if (size > 0 && n > SIZE_MAX / 4 / size)
        jrun_fail_as(
            r, ERR_TOO_LARGE, "the template takes more than %zu bytes", r->arena.max_bytes);
    return jrun_alloc(r, n * size);
}

void *jrun_grow(struct jrun *r, void *p, size_t n, size_t need, size_t *cap, size_t size)
{
    if (need <= *cap)
        return p;
    size_t more = *cap < 4 ? 4 : *cap;
    while (more < need)
        more = more > SIZE_MAX / 4 ? need : 2 * more;
    void *bigger = jrun_alloc_n(r, more, size);
    if (n > 0)
        memcpy(bigger, p, n * size);
    *cap = more;
    return bigger;
}
