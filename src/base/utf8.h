/* UTF-8 at the edges: validity, and a filter that turns any bytes that arrive in pieces into
 * whole, valid characters. */
#ifndef WEIR_BASE_UTF8_H
#define WEIR_BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length 1..4 of the valid sequence at s (shortest form, no surrogates, at most U+10FFFF),
 * 0 if s[0..n) begins with no valid sequence, -1 if it may become one with more bytes. */
int utf8_len(const char *s, size_t n);

bool utf8_valid(const char *s, size_t n);

/* Bytes held back because they may yet become a character. Zero-initialise. */
struct utf8_stream {
    char held[4];
    uint8_t n_held;
};

/* Append to *out the whole characters of held + s[0..n); each maximal invalid part becomes one
 * U+FFFD. An unfinished character at the end is held, or becomes U+FFFD when `flush` is set. */
void utf8_feed(struct utf8_stream *u, const char *s, size_t n, bool flush, struct buf *out);

#endif
