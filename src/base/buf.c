#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_deinit(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.may_fail = b->may_fail};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
}

static bool fail(struct buf *b)
{
    b->failed = true;
    return false;
}

bool buf_reserve(struct buf *b, size_t n_more)
{
    if (b->failed)
        return false;
    if (b->cap - b->len >= n_more)
        return true;
    size_t cap = b->cap ? b->cap : 64;
    if (n_more > SIZE_MAX / 4)
        abort(); /* input is bounded long before: a caller lost count */
    while (cap - b->len < n_more)
        cap *= 2;
    char *data = b->may_fail ? realloc(b->data, cap) : mem_realloc(b->data, cap);
    if (!data)
        return fail(b);
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
    if (n == 0 || !buf_reserve(b, n))
        return;
    memcpy(b->data + b->len, data, n);
    b->len += n;
}

void buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n <= 0 || !buf_reserve(b, (size_t)n + 1))
        return;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void buf_join(struct buf *b, const struct buf *from)
{
    if (from->failed && b->may_fail)
        (void)fail(b);
    else if (from->failed)
        abort(); /* whose text may fail hands it to one that may */
    buf_add(b, from->data, from->len);
}

const char *buf_cstr(struct buf *b)
{
    if (!buf_reserve(b, 1))
        return "";
    b->data[b->len] = '\0';
    return b->data;
}
