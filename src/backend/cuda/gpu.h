/* CUDA as the sources of this folder use it.
 *
 * The same sources are compiled twice: by nvcc for devices, and by the host's compiler over an
 * emulation of the CUDA model (tests/cuda/emulator: headers of the names that nvcc has, found
 * first). What the host's compiler cannot read is written in words of our own, here and in mma.cuh:
 *
 *     CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
 *     CUDA_LAUNCH_NEXT(...)            the same of a kernel that may begin early, as below
 *     CUDA_SHARED(type, name)          dynamic shared memory of a kernel, 16-byte aligned
 *     CUDA_PARAMETER(type) name        const type name; a large one, which emulated threads share
 *
 * A step is some hundred kernels in a row, of a few microseconds each. One that is launched by
 * CUDA_LAUNCH_NEXT may begin while the one before it in the stream ends (from compute capability
 * 9.0 on; elsewhere it is a plain launch, and the two words do nothing):
 *
 *     cuda_let_next_begin()   the next kernel may begin, once all blocks have said so (or ended)
 *     cuda_wait_before()      waits until the kernel before has ended and all it wrote is there
 *
 * EVERY thread of such a kernel calls cuda_wait_before, also one that leaves at once, before it
 * touches what another kernel wrote or writes what another reads; before that it may read its
 * arguments and what no kernel writes: weights, and the step's arrays (early_value, device.cuh). So
 * a kernel ends after the one before it has, which ended after the one before that: who waits for
 * one has waited for all. Blocks that wait take room on a processor, but nobody's who is needed: a
 * kernel begins only when all blocks of the one before it have begun. Copies, events and graphs
 * begin and end whole, as ever. The emulation reports a thread that ends without the wait, and with
 * each access checked (races.cpp) one that writes, or reads what a kernel wrote, before it.
 *
 * Host code is C; kernels are C++ in the plain subset (templates over a format or a width, nothing
 * of its library). The launches of a .cu are declared in a .h of C, which several may share: who
 * calls them needs no CUDA compiler.
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
#define CUDA_SHARED_HOPPER (227u << 10) /* 9.0 and 10.x; kernels for 9.0 alone may have it */

/* Whether CUDA_LAUNCH_NEXT is more than CUDA_LAUNCH: the current device and the driver know of it,
 * the code that the device has of `kernel`, as of all others, has the words, and WEIR_CUDA_PDL is
 * not 0 (device.c). May be called in a capture. */
#ifdef __cplusplus
extern "C"
#endif
    int
    cuda_begins_early(const void *kernel);

#ifdef __cplusplus
#if defined(__CUDACC__)
static __device__ __forceinline__ void cuda_let_next_begin(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
static __device__ __forceinline__ void cuda_wait_before(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
template <class... Parameters, class... Arguments>
static inline void cuda_launch_next(dim3 grid,
                                    dim3 block,
                                    size_t shared_bytes,
                                    cudaStream_t stream,
                                    void (*kernel)(Parameters...),
                                    const Arguments &...arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = cuda_begins_early(reinterpret_cast<const void *>(kernel)) ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, arguments...); /* what goes wrong is the last error */
}
#define CUDA_LAUNCH_NEXT(kernel, grid, block, shared_bytes, stream, ...)                           \
    cuda_launch_next((grid), (block), (shared_bytes), (stream), kernel __VA_OPT__(, ) __VA_ARGS__)
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    (kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define CUDA_PARAMETER(type) const type
#define CUDA_SHARED(type, name)                                                                    \
    extern __shared__ uint4 cuda_shared_memory[];                                                  \
    type *const name = reinterpret_cast<type *>(cuda_shared_memory)
#else
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    emu_launch(                                                                                    \
        #kernel, (grid), (block), (shared_bytes), (stream), kernel __VA_OPT__(, ) __VA_ARGS__)
#define CUDA_LAUNCH_NEXT(kernel, grid, block, shared_bytes, stream, ...)                           \
    emu_launch_next(                                                                               \
        #kernel, (grid), (block), (shared_bytes), (stream), kernel __VA_OPT__(, ) __VA_ARGS__)
#define cuda_let_next_begin() emu_let_next_begin()
#define cuda_wait_before() emu_wait_before()
#define CUDA_PARAMETER(type) const type &
#define CUDA_SHARED(type, name) type *const name = reinterpret_cast<type *>(emu_shared_memory())
#endif
#endif

#endif
