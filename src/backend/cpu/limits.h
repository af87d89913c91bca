/* What this machine can do at best, to hold measurements against. */
#ifndef WEIR_BACKEND_CPU_LIMITS_H
#define WEIR_BACKEND_CPU_LIMITS_H

#include "base/err.h"

#include <stddef.h>

#include <stdint.h>

struct cpu_limits {
    double read_bytes_s; /* streaming from memory */
    double int8_ops_s;   /* multiplications and additions, a dot product's all counted */
    double f16_ops_s;    /* of F16 weights: as f32, or of bf16 a third, as each takes three, */
    double bf16_ops_s;   /* of BF16 weights: likewise, of bf16 a half, or all with one each */
    double f32_ops_s;
};

/* Measure with n_threads workers (0: one a physical core), about two seconds; the best of several
 * rounds each. Errors: ERR_NOMEM, ERR_INVALID. */
enum err cpu_limits_measure(uint32_t n_threads,
                            struct cpu_limits *out,
                            struct err_info *e) WEIR_MUST_USE;

struct cpu_kernels;
struct pool;

/* Bytes a second that the pool's workers read from memory of n bytes (all, at most 1 GiB), from one
 * place each or from four, whichever is faster; 0 for less than 256 MiB. Between walks. */
double cpu_read_rate(struct pool *pool,
                     const struct cpu_kernels *kernels,
                     const uint8_t *memory,
                     size_t n);

#endif
