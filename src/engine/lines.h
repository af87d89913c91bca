/* Ends that depend on the lines of the output: too little indentation, too much time.
 *
 *      "    if x:\n        return 1\n\ndef"     min_indent 4: ends at the second newline
 *
 * Engine thread; allocates nothing. */
#ifndef WEIR_ENGINE_LINES_H
#define WEIR_ENGINE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lines {
    bool in_indent; /* at the beginning of a line, behind n_indent spaces and tabs */
    uint32_t n_indent;
};

/* The output goes on with bytes[n]. Where a line that is not the first begins with less than
 * min_indent, *at is the offset in `bytes` of what follows its spaces, and the answer is true. */
bool lines_feed(struct lines *l, const char *bytes, size_t n, uint32_t min_indent, size_t *at);

#endif
