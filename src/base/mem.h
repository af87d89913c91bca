/* Small host allocations that may abort, overflow-checked products, and the watch that proves
 * that a step of the engine allocates nothing.
 *
 * The program is linked with --wrap for malloc and its kin, so every allocation made by our code
 * passes through mem.c. A thread that runs steps switches its watch on for the length of a step;
 * allocations made meanwhile are counted. */
#ifndef WEIR_BASE_MEM_H
#define WEIR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Like malloc, calloc (zeroed), realloc and strdup, but print one line and abort when memory is
 * out. Never for sizes that come from input: those use malloc and return ERR_NOMEM. */
void *mem_alloc(size_t n_bytes);
void *mem_zalloc(size_t n, size_t size);
void *mem_realloc(void *p, size_t n_bytes);
char *mem_strdup(const char *s);

/* n_bytes aligned to 64, not zeroed; NULL when memory is out. Free with free(). */
void *mem_aligned(size_t n_bytes);

/* *out = a * b or a + b; false when it does not fit. */
bool mem_mul(size_t a, size_t b, size_t *out);
bool mem_add(size_t a, size_t b, size_t *out);

/* How many values of 32 bits, of n, two arrays begin with alike; that the first `known` are is
 * given. Any thread; nothing allocated. */
uint32_t mem_common(const void *a, const void *b, uint32_t known, uint32_t n);

/* Count this thread's allocations from now on (or stop). Any thread; nothing allocated. */
void mem_watch(bool on);

/* Allocations counted so far, over all watched threads. */
uint64_t mem_watched(void);

/* For tests: of this thread's allocations that may fail, the n-th from now on does (0: none).
 * Returns true if the one asked for before has failed, or none was. */
bool mem_fail_nth(uint64_t n);

#endif
