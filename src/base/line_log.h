/* A file of lines that many write and none waits for.
 *
 *      line_log_write (any thread) -> pending, at most 1 MiB -> writer thread -> the file
 *
 * When the file is slower than those who write, or cannot grow, lines are dropped whole; the writer
 * says on stderr how many and why, once a second at most. A part of one is left, as a line of its
 * own, only where it cannot be taken back: in a pipe, or a file that others write too. Lines appear
 * in the order of the calls. */
#ifndef WEIR_BASE_LINE_LOG_H
#define WEIR_BASE_LINE_LOG_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct line_log;

/* Append to the file at `path`, which is made (0640) if it is not there; "-": standard output;
 * NULL: standard error. `name` is what messages call it. Errors: ERR_IO. */
enum err line_log_open(const char *path,
                       const char *name,
                       struct line_log **out,
                       struct err_info *e) WEIR_MUST_USE;

/* line[n] without its newline. */
void line_log_write(struct line_log *l, const char *line, size_t n);

/* Open the path again, once what is pending is written: somebody has moved the file. If that fails
 * the old one goes on, and a line on stderr says so. */
void line_log_reopen(struct line_log *l);

uint64_t line_log_dropped(struct line_log *l); /* lines, ever; only tests ask */

/* Writes what is pending, for two seconds at most. NULL is allowed. */
void line_log_close(struct line_log *l);

#endif
