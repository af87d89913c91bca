/* Where every access of every thread is watched a test takes a hundred times as long. With
 * WEIR_FEW_SHAPES each kernel, and each way through it, is still run, over few shapes: what the
 * checks for races do in every run of the tests; `make cuda-races` has all. */
#ifndef WEIR_TESTS_CUDA_FEW_H
#define WEIR_TESTS_CUDA_FEW_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool few_shapes(void)
{
    return getenv("WEIR_FEW_SHAPES") != NULL;
}

#endif
