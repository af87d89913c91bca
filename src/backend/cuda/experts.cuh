/* What experts gave a row, for the kernels that add it up. */
#ifndef WEIR_BACKEND_CUDA_EXPERTS_CUH
#define WEIR_BACKEND_CUDA_EXPERTS_CUH

#include "backend/cuda/experts.h"

/* Value j of the sum over ranks, from the first. */
static __device__ __forceinline__ float mixed_value(const cuda_experts &x,
                                                    const cuda_buf &in,
                                                    uint32_t row,
                                                    uint32_t j)
{
    const size_t first = static_cast<size_t>(row) * x.n_used;
    float sum = 0;
    for (uint32_t i = 0; i < x.n_used; i++) {
        const float weight = x.place_weight ? 1.0f : x.weights[first + i];
        sum = __fmaf_rn(weight, in.p[x.places[first + i] * in.stride + j], sum);
    }
    return sum;
}

#endif
