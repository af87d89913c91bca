/* Hands out aligned parts of one region: first with base NULL to learn the size, then for real. */
#ifndef WEIR_BACKEND_CARVER_H
#define WEIR_BACKEND_CARVER_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct carver {
    uint8_t *base;
    size_t align, used; /* bytes */
    bool overflow;
};

/* n elements of `size` bytes, with some room behind them; NULL without a base. */
static inline void *carve(struct carver *c, size_t n, size_t size)
{
    size_t bytes;
    void *p = c->base ? c->base + c->used : NULL;
    if (!mem_mul(n, size, &bytes) || !mem_add(bytes, 2 * c->align - 1, &bytes) ||
        !mem_add(c->used, bytes / c->align * c->align, &c->used))
        c->overflow = true;
    return p;
}

#endif
