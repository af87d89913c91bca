#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static void to_stderr(void *ctx, int level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info"};
    (void)ctx;
    fprintf(stderr, "weir: %s: %s\n", names[level], line);
}

static enum log_level max_level = LOG_INFO;
static void (*sink)(void *ctx, int level, const char *line) = to_stderr;
static void *sink_ctx;

void log_set_level(enum log_level level)
{
    max_level = level;
}

void log_set_sink(void (*fn)(void *ctx, int level, const char *line), void *ctx)
{
    sink = fn ? fn : to_stderr;
    sink_ctx = ctx;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level > max_level)
        return;
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    err_one_line(line);
    sink(sink_ctx, (int)level, line);
}
