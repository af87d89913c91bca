/* What device.cpp and stream.cpp, which are CUDA's library here, share. */
#ifndef WEIR_TESTS_CUDA_PTX_RUNTIME_H
#define WEIR_TESTS_CUDA_PTX_RUNTIME_H

#include "ptx.h"

#include <cuda_runtime_api.h>
#include <mutex>

extern std::recursive_mutex ptx_lock; /* one call at a time */
extern thread_local cudaError_t ptx_last_error;

static inline cudaError_t ptx_error(cudaError_t e)
{
    ptx_last_error = e;
    return e;
}
bool ptx_captures();                   /* this thread, into a graph */
function *kernel_of(const void *host); /* the host's stub of it; NULL */

#endif
