/* UTF-8: validity, code points, and a filter that turns any bytes that arrive in pieces into
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

/* The code point at s, which begins a valid character of *len bytes. */
static inline uint32_t utf8_decode(const char *str, size_t *len)
{
    const unsigned char *s = (const unsigned char *)str;
    if (s[0] < 0x80) {
        *len = 1;
        return s[0];
    }
    if (s[0] < 0xe0) {
        *len = 2;
        return (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu);
    }
    if (s[0] < 0xf0) {
        *len = 3;
        return (s[0] & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    }
    *len = 4;
    return (s[0] & 7u) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
}

/* A code point, at most U+10FFFF, as bytes; how many. */
size_t utf8_encode(uint32_t c, char out[4]);

/* Bytes held back because they may yet become a character. Zero-initialise. */
struct utf8_stream {
    char held[4];
    uint8_t n_held;
};

/* Append to *out the whole characters of held + s[0..n); each maximal invalid part becomes one
 * U+FFFD. An unfinished character at the end is held, or becomes U+FFFD when `flush` is set. */
void utf8_feed(struct utf8_stream *u, const char *s, size_t n, bool flush, struct buf *out);

#endif
