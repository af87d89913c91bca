/* A growable run of bytes: text under construction.
 *
 * Zero-initialise to begin ({0}), buf_deinit to end; buf_clear keeps the room for reuse. `data` is
 * not NUL-terminated unless buf_cstr was called last.
 *
 * Growing aborts when memory is out, which is for small texts. One that grows with what clients
 * send or ask for begins as {.may_fail = true}: what there is no memory for is left out, `failed`
 * says so from then on, and whoever hands the text on asks once, at its end. */
#ifndef WEIR_BASE_BUF_H
#define WEIR_BASE_BUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data;
    size_t len;
    size_t cap;
    bool may_fail; /* stays when the buffer is emptied, and when it ends */
    bool failed;   /* the text is not whole; until buf_deinit */
};

void buf_deinit(struct buf *b);
void buf_clear(struct buf *b);
/* Room for n_more bytes behind len; false: `failed`. */
bool buf_reserve(struct buf *b, size_t n_more);
void buf_add(struct buf *b, const void *data, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) WEIR_PRINTF(2, 3);
/* Whether there is, or was to be, anything in it. */
static inline bool buf_any(const struct buf *b)
{
    return b->len > 0 || b->failed;
}
/* from's bytes, and that they are not whole. */
void buf_join(struct buf *b, const struct buf *from);
/* NUL-terminates behind len and returns data; "" where there was no memory for that. */
const char *buf_cstr(struct buf *b);

#endif
