/* Errors: a code says what kind, a fixed-size text says what and where.
 *
 * Every function that can fail returns enum err and takes a nullable struct err_info * as its
 * last parameter; the text is written where the failure happens and never rewritten on the way
 * up. Nothing here allocates. */
#ifndef WEIR_BASE_ERR_H
#define WEIR_BASE_ERR_H

#include <stdint.h>

enum err {
    OK = 0,
    ERR_NOMEM,       /* an allocation sized by input or configuration failed */
    ERR_IO,          /* the operating system refused a file or socket */
    ERR_FULL,        /* the same, as the disk or the quota is full */
    ERR_FORMAT,      /* bytes that are not what they claim to be (a model file, JSON) */
    ERR_UNSUPPORTED, /* well-formed, but Weir does not do it */
    ERR_INVALID,     /* a value of the wrong type or out of range; `field` names it */
    ERR_NOT_FOUND,   /* no such model, route or file */
    ERR_METHOD,      /* the route exists, the HTTP method does not */
    ERR_AUTH,        /* missing or wrong key */
    ERR_FORBIDDEN,   /* a known key, but not for this */
    ERR_TOO_LONG,    /* prompt and answer do not fit the context */
    ERR_TOO_LARGE,   /* a body or header over its limit */
    ERR_QUEUE_FULL,  /* come back later */
    ERR_RATE_LIMIT,  /* the same, as the key allows no more now */
    ERR_DRAINING,    /* the server is shutting down or still loading */
    ERR_INTERNAL,    /* a bug, or a device that failed */
};

/* What went wrong. `field` is the request field or file part at fault, or empty. */
struct err_info {
    enum err code;
    char field[64];
    char text[320];
    /* Of ERR_TOO_LONG: tokens in the prompt and in the context; 0 where they are not known. */
    uint32_t n_prompt, n_ctx;
};

#define WEIR_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define WEIR_MUST_USE __attribute__((warn_unused_result))

/* Fill *e (if not NULL) and return `code`. Truncates a text that is too long. A text may quote a
 * file or a request: control characters (C0, DEL, C1) and bytes that are no UTF-8, such as a
 * character that was cut, become '?', so it is one line, valid, and no terminal obeys it. */
enum err err_set(struct err_info *e, enum err code, const char *fmt, ...) WEIR_PRINTF(3, 4);

/* The same, naming the field at fault. */
enum err err_set_field(struct err_info *e, enum err code, const char *field, const char *fmt, ...)
    WEIR_PRINTF(4, 5);

/* The same of ERR_INVALID: err_invalid(e, field, fmt, ...). */
#define err_invalid(e, ...) err_set_field(e, ERR_INVALID, __VA_ARGS__)

/* Replace control characters and invalid bytes of a text, as err_set does. */
void err_one_line(char *text);

#endif
