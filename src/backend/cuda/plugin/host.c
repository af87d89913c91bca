/* What the process has once: the plugin has no state of its own for these. */
#include "backend/cuda/plugin/host.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>

const struct plugin_host *plugin_host;

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    plugin_host->log((int)level, line);
}

void *mem_alloc(size_t n_bytes)
{
    return plugin_host->zalloc(1, n_bytes);
}

void *mem_zalloc(size_t n, size_t size)
{
    return plugin_host->zalloc(n, size);
}

void *mem_aligned(size_t n_bytes)
{
    return plugin_host->aligned(n_bytes);
}

void mem_watch(bool on)
{
    plugin_host->watch(on);
}

void gguf_drop_pages(const struct gguf *g, const struct gguf_tensor *t, size_t first, size_t n)
{
    plugin_host->drop_pages(g, t, first, n);
}

/* These are pure. */
bool mem_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool mem_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
