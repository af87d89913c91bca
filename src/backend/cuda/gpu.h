/* CUDA as the sources of this folder use it.
 *
 * The same sources are compiled twice: by nvcc for devices, and by the host's compiler over an
 * emulation of the CUDA model (tests/cuda/emulator: headers of the names that nvcc has, found
 * first). What the host's compiler cannot read is written in words of our own, here and in mma.cuh:
 *
 *     CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
 *     CUDA_SHARED(type, name)          dynamic shared memory of a kernel, 16-byte aligned
 *
 * Host code is C; kernels are C++ in the plain subset (templates over a format or a width, nothing
 * of its library). Each .cu has a .h of C that declares its launches: whoever calls them needs no
 * CUDA compiler.
 *
 * Promise of every kernel: what it computes for a row depends on that row and its sequence alone,
 * never on the batch or on the bounds that a launch was made for. Sums run in one fixed order. No
 * atomics on floating-point values. */
#ifndef WEIR_BACKEND_CUDA_GPU_H
#define WEIR_BACKEND_CUDA_GPU_H

#include <cuda_runtime.h>

/* Bytes of shared memory that a block may ask for, beyond the 48 KB that it has unasked. All
 * devices of compute capability 8.0 and later have the least; those of 8.6, 8.9 and 12.x no
 * more. 8.0, 9.0 and 10.x have what is called wide here. A kernel that takes more than the least
 * has a form that does not, of the same sums in the same order: a launch chooses by
 * cuda_at.block_shared. */
#define CUDA_SHARED_LEAST (99u << 10)
#define CUDA_SHARED_WIDE (163u << 10)

#ifdef __cplusplus
#if defined(__CUDACC__)
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    (kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define CUDA_SHARED(type, name)                                                                    \
    extern __shared__ uint4 cuda_shared_memory[];                                                  \
    type *const name = reinterpret_cast<type *>(cuda_shared_memory)
#else
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    emu_launch(                                                                                    \
        #kernel, (grid), (block), (shared_bytes), (stream), kernel __VA_OPT__(, ) __VA_ARGS__)
#define CUDA_SHARED(type, name) type *const name = reinterpret_cast<type *>(emu_shared_memory())
#endif
#endif

#endif
