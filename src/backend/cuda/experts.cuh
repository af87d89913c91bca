/* What experts gave a row, for the kernels that add it up. */
#ifndef WEIR_BACKEND_CUDA_EXPERTS_CUH
#define WEIR_BACKEND_CUDA_EXPERTS_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/experts.h"

/* Values j .. j + 3 of n of the sum over ranks, from the first; j a multiple of 4. */
static __device__ __forceinline__ float4
mixed_values(const cuda_experts &x, const cuda_buf &in, uint32_t row, uint32_t j, uint32_t n)
{
    const size_t first = static_cast<size_t>(row) * x.n_used;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (uint32_t i = 0; i < x.n_used; i++) {
        const float weight = x.place_weight ? 1.0f : x.weights[first + i];
        const float4 v = load4(in.p + x.places[first + i] * in.stride, j, n);
        sum.x = __fmaf_rn(weight, v.x, sum.x);
        sum.y = __fmaf_rn(weight, v.y, sum.y);
        sum.z = __fmaf_rn(weight, v.z, sum.z);
        sum.w = __fmaf_rn(weight, v.w, sum.w);
    }
    return sum;
}

#endif
