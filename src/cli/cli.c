#include "cli/cli.h"

#include "base/clock.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool bar_is_open; /* the line of progress has no end yet */

int cli_fail(const char *cmd, const struct err_info *e)
{
    if (bar_is_open)
        fputc('\n', stderr);
    bar_is_open = false;
    if (e->field[0])
        fprintf(stderr, "weir %s: %s: %s\n", cmd, e->field, e->text);
    else
        fprintf(stderr, "weir %s: %s\n", cmd, e->text);
    return EXIT_FAILED;
}

static const char *_Atomic half_file;

/* In a signal handler only what is async-signal-safe: write, unlink and _exit. */
static void on_lost_page(int sig)
{
    static const char text[] = "weir: a model file lost its pages while it was read: it was "
                               "truncated, or its disk fails\n";
    (void)sig;
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    const char *path = atomic_load(&half_file);
    if (path)
        unlink(path);
    _exit(EXIT_FAILED);
}

void cli_remove_on_lost_page(const char *path)
{
    atomic_store(&half_file, path);
}

void cli_guard_mappings(void)
{
    const struct sigaction action = {.sa_handler = on_lost_page};
    sigaction(SIGBUS, &action, NULL);
}

static bool in_argp;

/* argp ends the process itself behind --help, without a look at whether that was written. */
static void check_help(void)
{
    if (!in_argp || (fflush(stdout) == 0 && !ferror(stdout)))
        return;
    perror("weir: standard output");
    _exit(EXIT_FAILED);
}

void cli_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_err_exit_status = EXIT_USAGE;
    in_argp = atexit(check_help) == 0;
    argp_parse(argp, argc, argv, 0, NULL, input);
    in_argp = false;
}

/* Decimal digits to a number; *end is what follows them. */
static bool parse_digits(const char *s, const char **end, uint64_t *out)
{
    if (!isdigit((unsigned char)*s))
        return false;
    errno = 0;
    char *stop;
    *out = strtoull(s, &stop, 10);
    *end = stop;
    return errno == 0;
}

uint64_t cli_number(
    struct argp_state *s, const char *name, const char *arg, uint64_t lo, uint64_t hi)
{
    const char *end = arg;
    uint64_t v = 0;
    if (!parse_digits(arg, &end, &v) || *end != '\0' || v < lo || v > hi)
        argp_error(s,
                   "%s: '%s' is not a number from %llu to %llu",
                   name,
                   arg,
                   (unsigned long long)lo,
                   (unsigned long long)hi);
    return v;
}

/* strtod reads more: blanks before it, hexadecimal, names. */
bool cli_decimal(const char *arg, double *out)
{
    char *end;
    const char *digits = arg + (*arg == '-' || *arg == '+');
    if (digits[strspn(digits, "0123456789.eE+-")] != '\0' || *digits == '-' || *digits == '+')
        return false;
    *out = strtod(arg, &end);
    return end != arg && *end == '\0';
}

double cli_real(struct argp_state *s, const char *name, const char *arg, double lo, double hi)
{
    double v = 0;
    if (!cli_decimal(arg, &v) || !(v >= lo && v <= hi))
        argp_error(s, "%s: '%s' is not a number from %g to %g", name, arg, lo, hi);
    return v;
}

uint64_t cli_size(struct argp_state *s, const char *name, const char *arg)
{
    static const char units[] = "KMGT";
    const char *end = arg;
    uint64_t v = 0;
    bool ok = parse_digits(arg, &end, &v);
    if (ok && *end != '\0') {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        ok = unit &&
             (end[1] == '\0' || strcasecmp(end + 1, "b") == 0 || strcasecmp(end + 1, "ib") == 0);
        for (const char *u = units; ok && u <= unit; u++)
            ok = !__builtin_mul_overflow(v, (uint64_t)1024, &v);
    }
    if (!ok)
        argp_error(s, "%s: '%s' is not a size such as 512M or 2G", name, arg);
    if (v == 0)
        argp_error(s, "%s: must be more than 0", name);
    return v;
}

enum kv_type cli_kv_type(struct argp_state *s, const char *arg)
{
    enum kv_type type = KV_F16;
    if (kv_type_parse(arg, &type) != OK)
        argp_error(s, "--kv-type: '%s' is not f16, f32, bf16 or q8_0", arg);
    return type;
}

uint32_t *cli_list(
    struct argp_state *s, const char *name, const char *arg, uint32_t max, uint32_t *n)
{
    uint32_t *list = mem_alloc((strlen(arg) / 2 + 1) * sizeof *list);
    const char *at = arg;
    *n = 0;
    for (;;) {
        uint64_t v = 0;
        while (*at == ',' || isspace((unsigned char)*at))
            at++;
        if (*at == '\0')
            break;
        if (!parse_digits(at, &at, &v) || v > max ||
            (*at != '\0' && *at != ',' && !isspace((unsigned char)*at)))
            argp_error(s, "%s: '%.40s' is not a list of numbers up to %u", name, arg, max);
        list[(*n)++] = (uint32_t)v;
    }
    if (*n == 0)
        argp_error(s, "%s: the list is empty", name);
    return list;
}

const char *cli_model_path(const char *given, struct err_info *e)
{
    /* beside the program in its build folder, or installed: bin/weir and share/weir */
    static const char *const places[] = {
        "../models/weir-nano.gguf", "models/weir-nano.gguf", "../share/weir/weir-nano.gguf"};
    static char path[PATH_MAX + 64];
    char dir[PATH_MAX];
    if (given && given[0])
        return given;
    if (given) {
        err_set(e, ERR_INVALID, "the model's path is empty");
        return NULL;
    }
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    if (n > 0) {
        dir[n] = '\0';
        *strrchr(dir, '/') = '\0';
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            snprintf(path, sizeof path, "%s/%s", dir, places[i]);
            if (access(path, R_OK) == 0)
                return path;
        }
    }
    err_set(e, ERR_NOT_FOUND, "the built-in model weir-nano.gguf was not found; name one with -m");
    return NULL;
}

enum err cli_read_file(const char *path, size_t max, char **out, size_t *n, struct err_info *e)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    if (!f)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    size_t cap = 1 << 16, len = 0, got;
    char *data = malloc(cap);
    while (data && len <= max && (got = fread(data + len, 1, cap - len - 1, f)) > 0) {
        len += got;
        if (cap - len > 1)
            continue;
        char *more = malloc(cap *= 2);
        if (more)
            memcpy(more, data, len);
        explicit_bzero(data, len); /* it may be a key */
        free(data);
        data = more;
    }
    const int why = ferror(f) ? errno : 0; /* what follows may change errno */
    const bool failed = ferror(f) != 0;
    if (!is_stdin)
        fclose(f);
    if (!data)
        return err_set(e, ERR_NOMEM, "%s: no memory for more than %zu bytes", path, len);
    if (failed || len > max) {
        explicit_bzero(data, len);
        free(data);
        return failed ? err_set(e, ERR_IO, "%s: %s", path, strerror(why))
                      : err_set(e, ERR_TOO_LARGE, "%s is too large", path);
    }
    data[len] = '\0';
    *out = data;
    *n = len;
    return OK;
}

void cli_progress(void *label, double fraction)
{
    static uint64_t start_us;
    static int shown = -1;
    if (!isatty(STDERR_FILENO))
        return;
    uint64_t now_us = clock_us();
    if (start_us == 0)
        start_us = now_us;
    int percent = (int)(fraction * 100.0);
    if (percent == shown || (shown < 0 && now_us - start_us < 1000000))
        return;
    shown = percent;
    char bar[31];
    for (int i = 0; i < 30; i++)
        bar[i] = i * 100 < percent * 30 ? '#' : ' ';
    bar[30] = '\0';
    fprintf(stderr,
            "\r%s [%s] %3d %%%s",
            (const char *)label,
            bar,
            percent,
            percent >= 100 ? "\n" : "");
    bar_is_open = percent < 100;
    if (percent >= 100) {
        shown = -1;
        start_us = 0;
    }
}
