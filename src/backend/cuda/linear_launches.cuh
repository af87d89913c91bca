/* How the kernels of a format are launched (linear.cu decides which). */
#ifndef WEIR_BACKEND_CUDA_LINEAR_LAUNCHES_CUH
#define WEIR_BACKEND_CUDA_LINEAR_LAUNCHES_CUH

#include "backend/cuda/linear_many.cuh"
#include "backend/cuda/linear_wgmma.cuh"

/* Bytes beyond 48 KB have to be asked for (whose refusal is the last error, which the launch's
 * caller looks at); and that a processor has as many as can be, which decides how many blocks it
 * takes, is not left to the driver: a hint, whose refusal is nothing. */
template <class K> static void linear_allow(K *kernel, uint32_t shared_bytes)
{
    const void *f = reinterpret_cast<const void *>(kernel);
    cudaFuncSetAttribute(
        f, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    const bool well = cudaPeekAtLastError() == cudaSuccess;
    cudaFuncSetAttribute(
        f, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (well)
        (void)cudaGetLastError();
}

template <class F, uint32_t P>
static void linear_launch_many(const linear_group &p, const linear_grid &g)
{
    constexpr uint32_t bytes = linear_many_shared_bytes<F, P>();
    static_assert(bytes <= (P == 1 ? CUDA_SHARED_LEAST : CUDA_SHARED_WIDE), "what a device has");
    linear_allow(linear_many<F, P>, bytes);
    CUDA_LAUNCH_NEXT(
        (linear_many<F, P>), dim3(g.x, g.y, g.z), LINEAR_WARPS * 32, bytes, g.stream, p.of[0]);
}
template <class F, class B>
static void linear_launch_wgmma(const linear_group &p, const linear_grid &g)
{
    static_assert(B::BYTES <= CUDA_SHARED_HOPPER, "what a device has");
    linear_allow(linear_wgmma<F, B>, B::BYTES);
    CUDA_LAUNCH_NEXT(
        (linear_wgmma<F, B>), dim3(g.x, g.y, g.z), B::WARPS * 32, B::BYTES, g.stream, p);
}
/* Chunks ahead, and blocks of a processor, which bound the registers: what was best on an H100. */
template <class F> struct few_size {
    static constexpr uint32_t AHEAD = F::RUN > 1 ? F::RUN : F::CHUNK > 1024 ? 2 : 3;
    static constexpr uint32_t BLOCKS = F::RUN > 1 || F::PAIR ? 2 : 3;
};
template <class F, uint32_t TILES>
static void linear_launch_few(const linear_group &p, const linear_grid &g)
{
    CUDA_LAUNCH_NEXT((linear_few<F, TILES, few_size<F>::AHEAD, few_size<F>::BLOCKS>),
                     dim3(g.x * g.y, 1, g.z),
                     LINEAR_WARPS * 32,
                     0,
                     g.stream,
                     p);
}
template <class F, class G, uint32_t TILES>
static void linear_launch_two(const linear_group &p, const linear_grid &g)
{
    typedef few_size<F> size;
    static_assert(size::AHEAD == few_size<G>::AHEAD && size::BLOCKS == few_size<G>::BLOCKS, "");
    CUDA_LAUNCH_NEXT((linear_few_two<F, G, TILES, size::AHEAD, size::BLOCKS>),
                     dim3(g.x * g.y, 1, g.z),
                     LINEAR_WARPS * 32,
                     0,
                     g.stream,
                     p);
}
/* linear_two */
template <class F, class G>
static void linear_launch_either(const linear_group &p, const linear_grid &g)
{
    g.kernel == LINEAR_FEW_8 ? linear_launch_two<F, G, 1>(p, g) : linear_launch_two<F, G, 2>(p, g);
}
template <class F> static void linear_launch(const linear_group &p, const linear_grid &g)
{
    constexpr bool pair = F::PAIR; /* twice the bytes of rows */
    switch (g.kernel) {
    case LINEAR_FEW_8:
        return linear_launch_few<F, 1>(p, g);
    case LINEAR_FEW_16:
        return linear_launch_few<F, 2>(p, g);
    case LINEAR_MANY_64:
        return linear_launch_many<F, 1>(p, g);
    case LINEAR_MANY_128:
        return linear_launch_many<F, 2>(p, g);
    case LINEAR_WGMMA_64:
        return linear_launch_wgmma<F, wgmma_block<F, 2, 8, 4, 2>>(p, g);
    case LINEAR_WGMMA_128:
        return linear_launch_wgmma<F, wgmma_block<F, 2, 16, 3, pair ? 1 : 2>>(p, g);
    case LINEAR_WGMMA_256:
        return linear_launch_wgmma<F, wgmma_block<F, 4, 16, pair ? 2 : 4, 1>>(p, g);
    }
}

#endif
