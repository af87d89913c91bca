/* For tests of kernels: the instruction sets, of which one that the machine lacks stands for the
 * next lower, and a seed. */
#ifndef WEIR_TESTS_ISAS_H
#define WEIR_TESTS_ISAS_H

#include "unit/backend/cpu/weights.h"

#include <stdlib.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static const char *const isas[] = {"reference", "avx2", "avx-vnni", "avx512", "avx512-bf16", "amx"};

/* A group's setup: the seed from SEED or the clock, printed. */
static int start(void **s)
{
    (void)s;
    const char *given = getenv("SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    random_state = seed;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return 0;
}

#endif
