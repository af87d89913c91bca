/* JSON before it is parsed. The parser (jansson) has no room for integers beyond 64 bits and
 * refuses the whole text for one of them; most other readers of JSON take the nearest double. */
#ifndef WEIR_BASE_JSON_TEXT_H
#define WEIR_BASE_JSON_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Append to *out the text with each such integer written as a real; what is no JSON stays none.
 * False, and nothing is appended, if there is no such integer. Any thread. */
bool json_text_widen(const char *s, size_t n, struct buf *out);

#endif
