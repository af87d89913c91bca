/* A growable run of bytes: text under construction.
 *
 * Zero-initialise to begin ({0}), buf_deinit to end; buf_clear keeps the room for reuse. `data` is
 * not NUL-terminated unless buf_cstr was called last. Growing aborts when memory is out, so input
 * is bounded before it is appended. */
#ifndef WEIR_BASE_BUF_H
#define WEIR_BASE_BUF_H

#include "base/err.h"

#include <stddef.h>

struct buf {
    char *data;
    size_t len;
    size_t cap;
};

void buf_deinit(struct buf *b);
void buf_clear(struct buf *b);
void buf_reserve(struct buf *b, size_t n_more);
void buf_add(struct buf *b, const void *data, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) WEIR_PRINTF(2, 3);
const char *buf_cstr(struct buf *b); /* NUL-terminates behind len and returns data */

#endif
