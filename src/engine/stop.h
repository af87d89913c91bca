/* Ends that the output itself brings: a stop string, or a line with too little indentation.
 *
 * Stop strings are found in output that arrives in pieces, without ever showing the beginning of
 * one. One Knuth-Morris-Pratt automaton a string, advanced byte by byte; the longest partial match
 * at the end of the output is what has to be held back. Constant time a byte, and no copy of the
 * output is kept. Source: Knuth, Morris, Pratt 1977.
 *
 *      stop_texts     the strings and their automatons, constant: one for all choices of a request
 *      stop_matcher   how much of each one output ends with */
#ifndef WEIR_ENGINE_STOP_H
#define WEIR_ENGINE_STOP_H

#include "base/err.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stop_texts;
struct stop_matcher;

#define STOP_MAX_BYTES 65536 /* of all texts together: 5 bytes of memory each */

/* Texts are copied; each must be non-empty. n = 0 gives NULL, which the other functions take. *out
 * has one reference; any thread. Errors: ERR_INVALID (also over STOP_MAX_BYTES), ERR_NOMEM. */
enum err stop_texts_create(const struct gguf_str *texts,
                           uint32_t n,
                           struct stop_texts **out,
                           struct err_info *e) WEIR_MUST_USE;
void stop_texts_release(struct stop_texts *t);
uint32_t stop_texts_count(const struct stop_texts *t);
/* Of text i; ends with a NUL behind its length. */
struct gguf_str stop_texts_get(const struct stop_texts *t, uint32_t i);

/* At the beginning of an output; keeps a reference. NULL for NULL. */
struct stop_matcher *stop_begin(struct stop_texts *t);
void stop_destroy(struct stop_matcher *s);
struct gguf_str stop_get(const struct stop_matcher *s, uint32_t i); /* stop_texts_get */

/* Feed bytes. True when a stop string was completed: *end_bytes is then where the output ends,
 * counted from the very first byte, and *which the string's index. When one byte completes several,
 * the one that begins first wins. Allocates: never. */
bool stop_feed(
    struct stop_matcher *s, const char *bytes, size_t n, uint64_t *end_bytes, uint32_t *which);

/* The output has grown by n bytes of which none counts, nor do those before them. */
void stop_skip(struct stop_matcher *s, size_t n);

/* How many of the last bytes may yet become part of a stop string. */
size_t stop_held(const struct stop_matcher *s);

/* Lines, for ends by too little indentation and by too much time:
 *
 *      "    if x:\n        return 1\n\ndef"     min_indent 4: ends at the second newline
 */
struct lines {
    bool in_indent; /* at the beginning of a line, behind n_indent spaces and tabs */
    uint32_t n_indent;
};

/* The output goes on with bytes[n]. Where a line that is not the first begins with less than
 * min_indent, *at is the offset in `bytes` of what follows its spaces, and the answer is true.
 * Allocates: never. */
bool lines_feed(struct lines *l, const char *bytes, size_t n, uint32_t min_indent, size_t *at);

#endif
