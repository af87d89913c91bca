/* Copies by the bulk copy engine, and the barriers in shared memory that they end at: from sm_90
 * on. Beside the form for the device (PTX) stands the emulated one, as in mma.cuh.
 *
 *      one thread     bulk_init(full, 1), bulk_init(empty, readers)            then __syncthreads
 *
 *      who brings     bulk_wait(empty, ..)      bulk_expect(full, bytes)      bulk_copy(.., full)
 * .. who reads      bulk_wait(full, ..)       reads      __syncwarp      a lane: bulk_arrive(empty)
 *
 * A barrier goes through phases, 0 first. A phase is over when as many have arrived as bulk_init
 * said and the bytes that were expected in it have come; then the next begins. bulk_wait(b, parity)
 * waits until a phase of that parity is over: of a barrier that nobody has arrived at yet phase 0
 * is not, the one before it, of parity 1, is. Nobody may be two phases ahead of who waits.
 *
 * A thread that has waited sees what those who arrived had done before, what the copies brought
 * (with ordinary loads, and by wgmma without a fence), and may have its bytes copied over by a copy
 * that begins then. A lane arrives for its warp behind __syncwarp. What threads write to
 * shared memory themselves is no business of these copies: they would need a fence more. A block
 * does not end before its copies.
 *
 * The emulated form moves the bytes as late as it can, when a thread waits for them; what nobody
 * ever ends is reported, and so is a copy that nobody waited for.
 *
 * Code for other devices has no such instructions: BULK_HERE is 0, and kernels that use them are
 * empty there. */
#ifndef WEIR_BACKEND_CUDA_BULK_CUH
#define WEIR_BACKEND_CUDA_BULK_CUH

#include "backend/cuda/mma.cuh"

/* In shared memory, aligned to 8 bytes. */
typedef uint64_t bulk_barrier;

#if defined(__CUDACC__)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define BULK_HERE 1
#define BULK_ASM(...) asm volatile(__VA_ARGS__)
#else
#define BULK_HERE 0
#define BULK_ASM(...) (void)0
#endif

static __device__ __forceinline__ void bulk_init(bulk_barrier *b, uint32_t arrivals)
{
    BULK_ASM("mbarrier.init.shared::cta.b64 [%0], %1;\n\t"
             "fence.mbarrier_init.release.cluster;" ::"r"(mma_shared_address(b)),
             "r"(arrivals)
             : "memory");
}
/* Arrives, and has the phase wait for so many bytes more; before their copies begin. */
static __device__ __forceinline__ void bulk_expect(bulk_barrier *b, uint32_t bytes)
{
    BULK_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mma_shared_address(b)),
             "r"(bytes)
             : "memory");
}
/* By one thread; both ends aligned to 16, and so are the bytes. */
static __device__ __forceinline__ void bulk_copy(void *shared,
                                                 const void *global,
                                                 uint32_t bytes,
                                                 bulk_barrier *b)
{
    BULK_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
             "[%3];" ::"r"(mma_shared_address(shared)),
             "l"(__cvta_generic_to_global(global)),
             "r"(bytes),
             "r"(mma_shared_address(b))
             : "memory");
}
static __device__ __forceinline__ void bulk_arrive(bulk_barrier *b)
{
    BULK_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mma_shared_address(b)) : "memory");
}
static __device__ __forceinline__ void bulk_wait(bulk_barrier *b, uint32_t parity)
{
#if BULK_HERE
    uint32_t is_over;
    do {
        asm volatile("{.reg .pred p; "
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.b32 %0, 1, 0, p;}"
                     : "=r"(is_over)
                     : "r"(mma_shared_address(b)), "r"(parity)
                     : "memory");
    } while (!is_over);
#endif
}

#else

#define BULK_HERE 1

static inline void bulk_init(bulk_barrier *b, uint32_t arrivals)
{
    *b = arrivals;
    emu_bulk_init(b, arrivals);
}
static inline void bulk_expect(bulk_barrier *b, uint32_t bytes)
{
    emu_bulk_expect(b, bytes);
}
static inline void bulk_copy(void *shared, const void *global, uint32_t bytes, bulk_barrier *b)
{
    emu_bulk_copy(shared, global, bytes, b);
}
static inline void bulk_arrive(bulk_barrier *b)
{
    emu_bulk_arrive(b);
}
static inline void bulk_wait(bulk_barrier *b, uint32_t parity)
{
    emu_bulk_wait(b, parity);
}

#endif

#endif
