/* Jinja templates: text with statements, expressions and variables, as chat models carry them.
 *
 * The language is that of Python's Jinja2 with trim_blocks, lstrip_blocks, the loop controls and
 * the `generation` tag, in its immutable sandbox; values behave and print as Python's. A template
 * is parsed once into a tree that never changes; a rendering walks the tree, and all it makes lies
 * in an arena of its own that goes when it ends.
 *
 *      source --lexer--> tokens --parser--> nodes --exec, eval--> text in spans
 *
 * What differs: integers are of 64 bits, and more is an error. So are complex numbers, bytes, \N{},
 * encode, maketrans and translate, lipsum, slices in tuples, and what pprint breaks into lines.
 * Functions and methods print without name and address; a generator's items are made when it is, so
 * the filter over an argument that nobody reads may fail. striptags knows six entities by name.
 *
 * Templates and variables come from strangers. A template reaches its variables and nothing else;
 * steps, memory, output and nesting are bounded, and a template that exceeds a bound fails.
 *
 * Trust. Each byte of the output is trusted, if the template itself holds it, or input, if it came
 * out of a variable; strings keep the two apart through all operations. In doubt it is input.
 *
 * Thread: a struct jinja_template is immutable; any thread may render. */
#ifndef WEIR_CHAT_JINJA_JINJA_H
#define WEIR_CHAT_JINJA_JINJA_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct json_t; /* jansson's */

struct jinja_template;

/* Parse source[0..n_bytes), UTF-8 of at most 1 MiB; *out is the caller's. Errors: ERR_FORMAT with
 * the line, ERR_UNSUPPORTED (include, import, extends), ERR_TOO_LARGE, ERR_NOMEM. */
enum err jinja_compile(const char *source,
                       size_t n_bytes,
                       struct jinja_template **out,
                       struct err_info *e) WEIR_MUST_USE;
void jinja_destroy(struct jinja_template *t);

/* Does the template read this variable anywhere? */
bool jinja_reads(const struct jinja_template *t, const char *name);

/* A run of the output, all of it trusted or none. */
struct jinja_span {
    size_t begin, end; /* bytes of text */
    bool trusted;
};

/* Zero-initialise; jinja_text_deinit frees. */
struct jinja_text {
    struct buf text;
    struct jinja_span *spans; /* [n_spans], in order, covering text */
    size_t n_spans;
};
void jinja_text_deinit(struct jinja_text *t);

/* What a rendering works on. A name in several of the objects is that of the first. */
struct jinja_input {
    const struct json_t *own;  /* object or NULL: variables whose text counts as the template's */
    const struct json_t *vars; /* object or NULL: variables whose text is input */
    const struct json_t *more; /* object or NULL: the same, after vars */
    const struct tm *now;      /* what strftime_now tells; NULL: the local time */
};

/* Bounds of one rendering; 0 is the default. */
struct jinja_limits {
    uint64_t n_steps;    /* nodes visited, items, 64 bytes compared or 16 classified: 20 million */
    size_t memory_bytes; /* of the arena: 256 MiB */
    size_t output_bytes; /* 64 MiB */
};

/* Append the template's text to *out (empty before). Errors: ERR_INVALID, with the line and what is
 * wrong in the words of raise_exception or of the language; ERR_TOO_LARGE for a bound; ERR_NOMEM.
 * After an error *out holds nothing. `limits` may be NULL. */
enum err jinja_render(const struct jinja_template *t,
                      const struct jinja_input *in,
                      const struct jinja_limits *limits,
                      struct jinja_text *out,
                      struct err_info *e) WEIR_MUST_USE;

#endif
