#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local bool watching;
static atomic_uint_least64_t n_watched;

/* Defined by the linker's --wrap: the real functions behind ours. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **p, size_t align, size_t n);
char *__real_strdup(const char *s);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
char *__wrap_strdup(const char *s);

static _Thread_local uint64_t fails_in; /* allocations until one fails; 0: none will */

static inline void note(void)
{
    if (watching)
        atomic_fetch_add_explicit(&n_watched, 1, memory_order_relaxed);
}

static inline bool refused(void)
{
    note();
    return fails_in > 0 && --fails_in == 0;
}

void *__wrap_malloc(size_t n)
{
    return refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refused() ? NULL : __real_realloc(p, n);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    return refused() ? ENOMEM : __real_posix_memalign(p, align, n);
}

char *__wrap_strdup(const char *s)
{
    return refused() ? NULL : __real_strdup(s);
}

void mem_watch(bool on)
{
    watching = on;
}

uint64_t mem_watched(void)
{
    return atomic_load_explicit(&n_watched, memory_order_relaxed);
}

bool mem_fail_nth(uint64_t n)
{
    bool failed = fails_in == 0;
    fails_in = n;
    return failed;
}

/* These may abort, so they are never made to fail. */
static void *must(void *p)
{
    note();
    if (!p) {
        fputs("weir: out of memory\n", stderr);
        abort();
    }
    return p;
}

void *mem_alloc(size_t n_bytes)
{
    return must(__real_malloc(n_bytes ? n_bytes : 1));
}

void *mem_zalloc(size_t n, size_t size)
{
    return must(__real_calloc(n ? n : 1, size ? size : 1));
}

void *mem_realloc(void *p, size_t n_bytes)
{
    return must(__real_realloc(p, n_bytes ? n_bytes : 1));
}

char *mem_strdup(const char *s)
{
    return must(__real_strdup(s));
}

void *mem_aligned(size_t n_bytes)
{
    void *p = NULL;
    return posix_memalign(&p, 64, n_bytes ? n_bytes : 1) == 0 ? p : NULL;
}

bool mem_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool mem_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

uint32_t mem_common(const void *a, const void *b, uint32_t known, uint32_t n)
{
    enum { MANY = 32 };
    const uint32_t *x = a, *y = b;
    uint32_t i = known;
    while (i + MANY <= n && memcmp(x + i, y + i, MANY * sizeof *x) == 0)
        i += MANY;
    while (i < n && x[i] == y[i])
        i++;
    return i;
}
