/* What this machine can do at best, to hold measurements against. */
#ifndef WEIR_BACKEND_CPU_LIMITS_H
#define WEIR_BACKEND_CPU_LIMITS_H

#include "backend/backend.h"

#include <stddef.h>

#include <stdint.h>

/* Measure with n_threads workers (0: one a physical core), about two seconds; the best of several
 * rounds each. Of bf16's peak counts the part that leaves one product a weight, where kernels take
 * three of them (F16), two (BF16) or one. Errors: ERR_NOMEM, ERR_INVALID. */
enum err cpu_limits_measure(uint32_t n_threads,
                            struct device_limits *out,
                            struct err_info *e) WEIR_MUST_USE;

struct cpu_kernels;
struct pool;

/* Bytes a second that the pool's workers read from memory of n bytes (all, at most 1 GiB), in the
 * fastest way (enum read_way); 0 for less than 256 MiB. Between walks. */
double cpu_read_rate(struct pool *pool,
                     const struct cpu_kernels *kernels,
                     const uint8_t *memory,
                     size_t n);

#endif
