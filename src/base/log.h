/* Lines for the operator, on stderr: "weir: LEVEL: text"; or where a program that has Weir inside
 * wants them. Any thread. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO };

/* Before threads start. */
void log_set_level(enum log_level level); /* default LOG_INFO */
/* NULL: stderr */
void log_set_sink(void (*fn)(void *ctx, int level, const char *line), void *ctx);
void log_line(enum log_level level, const char *fmt, ...) WEIR_PRINTF(2, 3);

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)

#endif
