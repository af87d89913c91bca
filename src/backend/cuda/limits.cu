/* Copies and products without anything else.
 *
 *      copy      a thread moves 16 bytes at a time, neighbours next to each other: 32 bytes a group
 *                and no operation; bound by the memory (an H200's data sheet says 4.8 TB/s for
 *                reads and writes together)
 *      products  a warp keeps 8 independent sums in registers and adds to each in turn: 2 * 16 * 8
 *                * 16 operations an instruction of the tensor cores, or 2 an FMA of f32, and no
 * byte
 *
 * The products are mma's (mma.cuh), as most kernels of this folder use: on some devices less than the
 * best there is. On Hopper wgmma does more, and so may products of many rows, which then come to
 * more than all of this. Each accumulator's sum runs in the order of the rounds. */
#include "backend/cuda/limits.h"
#include "backend/cuda/mma.cuh"

enum { THREADS = 256, SUMS = 8 };

static __global__ void copy_all(const uint4 *from, uint4 *to, size_t n)
{
    const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

/* kind: enum limits_product, of the tensor cores. */
template <int kind> static __global__ void multiply_tiles(uint32_t rounds, float *sink)
{
    const uint32_t one = kind == LIMITS_F16 ? 0x3c003c00u : 0x3f803f80u; /* two ones */
    const uint32_t a[4] = {one, one, one, one}, b[2] = {one, one};
    float d[SUMS][4] = {};
    for (uint32_t r = 0; r < rounds; r++) {
        for (int s = 0; s < SUMS; s++) {
            if (kind == LIMITS_F16)
                mma_f16(d[s], a, b);
            else
                mma_bf16(d[s], a, b);
        }
    }
    float sum = 0;
    for (int s = 0; s < SUMS; s++)
        sum += d[s][0] + d[s][1] + d[s][2] + d[s][3];
    sink[blockIdx.x * THREADS + threadIdx.x] = sum;
}

static __global__ void multiply_floats(uint32_t rounds, float *sink)
{
    const float x = 1.0f + static_cast<float>(threadIdx.x) * 0x1p-24f;
    float d[SUMS] = {};
    for (uint32_t r = 0; r < rounds; r++) {
        for (int s = 0; s < SUMS; s++)
            d[s] = __fmaf_rn(d[s], x, 1.0f);
    }
    float sum = 0;
    for (int s = 0; s < SUMS; s++)
        sum += d[s];
    sink[blockIdx.x * THREADS + threadIdx.x] = sum;
}

cudaError_t limits_code(void)
{
    struct cudaFuncAttributes code;
    return cudaFuncGetAttributes(&code, reinterpret_cast<const void *>(copy_all));
}

void limits_copy(const void *from, void *to, size_t n, cudaStream_t stream)
{
    const size_t blocks = (n + THREADS - 1) / THREADS;
    const dim3 grid(static_cast<unsigned>(blocks < 65536 ? blocks : 65536));
    CUDA_LAUNCH(copy_all,
                grid,
                dim3(THREADS),
                0,
                stream,
                static_cast<const uint4 *>(from),
                static_cast<uint4 *>(to),
                n);
}

double limits_multiply(
    enum limits_product kind, uint32_t n_blocks, uint32_t rounds, float *sink, cudaStream_t stream)
{
    const dim3 grid(n_blocks), block(THREADS);
    const double threads = static_cast<double>(n_blocks) * static_cast<double>(THREADS);
    const double times = static_cast<double>(rounds) * static_cast<double>(SUMS);
    if (kind == LIMITS_F32) {
        CUDA_LAUNCH(multiply_floats, grid, block, 0, stream, rounds, sink);
        return threads * times * 2;
    }
    if (kind == LIMITS_F16)
        CUDA_LAUNCH((multiply_tiles<LIMITS_F16>), grid, block, 0, stream, rounds, sink);
    else
        CUDA_LAUNCH((multiply_tiles<LIMITS_BF16>), grid, block, 0, stream, rounds, sink);
    return threads / 32 * times * (2.0 * 16 * 8 * 16);
}
