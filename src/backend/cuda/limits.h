/* What this device can do at best, to hold measurements against: launches of small kernels that do
 * nothing else. */
#ifndef WEIR_BACKEND_CUDA_LIMITS_H
#define WEIR_BACKEND_CUDA_LIMITS_H

#include "backend/cuda/gpu.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the current device has code of this one, as of all kernels: else why a launch fails. */
cudaError_t limits_code(void);

/* to[i] = from[i], n groups of 16 bytes: 32 n bytes move. */
void limits_copy(const void *from, void *to, size_t n, cudaStream_t stream);

enum limits_product { LIMITS_F16, LIMITS_BF16, LIMITS_F32 };
/* n_blocks blocks of 8 warps do `rounds` rounds of products of that kind. sink: [n_blocks * 256].
 * Returns the operations (multiplications and additions) of it all. */
double limits_multiply(
    enum limits_product kind, uint32_t n_blocks, uint32_t rounds, float *sink, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
