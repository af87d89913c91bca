/* What parsing and rendering share: an arena, and one way out for errors.
 *
 * Everything made on the way lies in the arena of a struct jrun, so that an error can leave from
 * any depth: jrun_fail writes the text and jumps to the frame that began the run (jrun_try), which
 * frees the arena or lets it go on. Nothing between the two owns anything else. */
#ifndef WEIR_CHAT_JINJA_RUN_H
#define WEIR_CHAT_JINJA_RUN_H

#include "base/err.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jchunk;

struct jarena {
    struct jchunk *chunks; /* newest first */
    char *at, *end;        /* the free part of the newest */
    size_t n_bytes;        /* taken from the system */
    size_t max_bytes;
};
void jarena_free(struct jarena *a);

/* Nested evaluations, statements, values and brackets. Python gives up at some 300 macros. */
#define JINJA_MAX_DEPTH 1000

struct jinja_template;
struct jscope;
struct jsb;
struct jdict;

struct jrun {
    struct jarena arena;
    jmp_buf *exit;       /* where jrun_fail jumps */
    struct err_info *e;  /* may be NULL */
    enum err code;       /* of the failure */
    uint32_t line;       /* of what is being parsed or run */
    uint32_t depth;      /* of nesting now, at most JINJA_MAX_DEPTH */
    uint64_t steps_left; /* a rendering's */
    size_t max_output;   /* bytes that any one string may have */

    /* of a rendering */
    const struct jinja_template *tmpl;
    struct jdict *context; /* the variables that came from outside */
    struct jscope *root;   /* what the template sets at its top */
    const struct tm *now;
    bool autoescape; /* inside {% autoescape true %} */
};

/* Run fn(r, arg); the error of the failure inside it, or OK. */
enum err jrun_try(struct jrun *r, void (*fn)(struct jrun *r, void *arg), void *arg);

/* Leave with ERR_INVALID, or with `code`; "line N: " goes before the text. */
_Noreturn void jrun_fail(struct jrun *r, const char *fmt, ...) WEIR_PRINTF(2, 3);
_Noreturn void jrun_fail_as(struct jrun *r, enum err code, const char *fmt, ...) WEIR_PRINTF(3, 4);

/* Aligned to 16, zeroed, never NULL: leaves with ERR_TOO_LARGE or ERR_NOMEM. */
void *jrun_alloc(struct jrun *r, size_t n_bytes);
void *jrun_alloc_n(struct jrun *r, size_t n, size_t size); /* the product checked */
/* Room for more than `need` of the n items at p, of which *cap fit. */
void *jrun_grow(struct jrun *r, void *p, size_t n, size_t need, size_t *cap, size_t size);

/* Pay for n steps, or leave. */
static inline void jrun_charge(struct jrun *r, uint64_t n);

/* Around each thing that nests. */
static inline void jrun_enter(struct jrun *r);
static inline void jrun_leave(struct jrun *r);

/* ---- inline ---- */

_Noreturn void jrun_out_of_steps(struct jrun *r);
_Noreturn void jrun_too_deep(struct jrun *r);

static inline void jrun_charge(struct jrun *r, uint64_t n)
{
    if (r->steps_left < n)
        jrun_out_of_steps(r);
    r->steps_left -= n;
}

static inline void jrun_enter(struct jrun *r)
{
    if (r->depth >= JINJA_MAX_DEPTH)
        jrun_too_deep(r);
    r->depth++;
}

static inline void jrun_leave(struct jrun *r)
{
    r->depth--;
}

#endif
