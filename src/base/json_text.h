/* JSON as text, before it is parsed and as it is written. */
#ifndef WEIR_BASE_JSON_TEXT_H
#define WEIR_BASE_JSON_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* The parser (jansson) has no room for integers beyond 64 bits and refuses the whole text for one
 * of them; most other readers of JSON take the nearest double. Append to *out the text with each
 * such integer written as a real; what is no JSON stays none. False, and nothing is appended, if
 * there is no such integer. Any thread. */
bool json_text_widen(const char *s, size_t n, struct buf *out);

/* Append s[n] as the inside of a JSON string, escapes in their short form where there is one. Bytes
 * above 0x7f stay as they are. Any thread. */
void json_text_escape(struct buf *out, const char *s, size_t n);

#endif
