/* What the parts of bench/kernels share: how something is timed, and a line of the table. */
#ifndef WEIR_BENCH_KERNELS_H
#define WEIR_BENCH_KERNELS_H

#include "backend/cpu/kernels.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

struct options {
    const char *isa, *kernel;
    uint32_t k;
};

struct bench {
    const struct options *o;
    const struct cpu_kernels *k;
    double int8, f32, bf16, read; /* a second: operations, bytes */
    int n_run, n_failed;
};

/* Something to time: fn does all of it once. */
struct timed {
    void (*fn)(void *ctx);
    void *ctx;
};

/* Seconds of one call, the best of several rounds of at least 10 ms. */
double seconds_of(struct timed t);

/* Does the name begin as --kernel says? */
bool wanted(const struct bench *b, const char *name);

/* A line of the table. bytes: from memory. error < 0: not checked here. */
void report(struct bench *b,
            const char *name,
            const char *shape,
            double seconds,
            double ops,
            double peak,
            double bytes,
            double error,
            double max_error);

/* The normalised mean square error of got. */
double nmse(const float *got, const float *want, size_t n);

/* kernels_rest.c: what happens to rows, against the plain kernels. */
void bench_rest(struct bench *b);

#endif
