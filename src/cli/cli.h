/* The command line: a table of subcommands, and what they share.
 *
 * Exit status: 0 done, 1 failed, 2 used wrongly. Results go to stdout, everything else to stderr.
 */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include "backend/kv_type.h"
#include "base/err.h"

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* One subcommand; argv[0] is "weir NAME". */
int cmd_serve(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_render(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_devices(int argc, char **argv);

/* From here on, a page of a mapped file that is gone (the file was truncated while it was read, or
 * its disk fails) ends the process with one line and EXIT_FAILED instead of a signal. Once a model
 * is loaded nothing reads its file any more (gguf.h, backend/cpu/cpu.c). */
void cli_guard_mappings(void);

/* Then remove this file, too, which is only half written; NULL: none any more. Not copied. */
void cli_remove_on_lost_page(const char *path);

/* Print "weir NAME: field: text" for e and return EXIT_FAILED. */
int cli_fail(const char *cmd, const struct err_info *e);

/* argp_parse with our exit codes: usage errors exit with EXIT_USAGE, --help with 0. */
void cli_parse(const struct argp *argp, int argc, char **argv, void *input);

/* The argument of option `name` as a number or real in [lo, hi], a size above 0 ("512M", "2G",
 * "65536"; 1024-based), that of --kv-type, or a comma- or blank-separated list of numbers; anything
 * else is a usage error (argp_error). */
uint64_t cli_number(
    struct argp_state *s, const char *name, const char *arg, uint64_t lo, uint64_t hi);
bool cli_decimal(const char *arg, double *out); /* "-0.5", "2", "1e-3": all of it */
double cli_real(struct argp_state *s, const char *name, const char *arg, double lo, double hi);
uint64_t cli_size(struct argp_state *s, const char *name, const char *arg);
enum kv_type cli_kv_type(struct argp_state *s, const char *arg);
uint32_t *cli_list(struct argp_state *s,
                   const char *name,
                   const char *arg,
                   uint32_t max,
                   uint32_t *n); /* malloc'd, at least one */

/* The path of the model: `given`, or the built-in one beside the program, in its source tree or in
 * the installed share folder; NULL with *e filled if there is none. Static storage. */
const char *cli_model_path(const char *given, struct err_info *e);

/* Read a whole file, or stdin for "-", NUL-terminated behind *n bytes; malloc'd. Errors: ERR_IO,
 * ERR_NOMEM; ERR_TOO_LARGE beyond max bytes, and not many more are read. */
enum err cli_read_file(const char *path, size_t max, char **out, size_t *n, struct err_info *e)
    WEIR_MUST_USE;

/* "loading [####    ] 50 %" on a terminal, once it has taken more than a second; fraction 1 ends
 * the line. Nothing elsewhere. */
void cli_progress(void *label, double fraction);

#endif
