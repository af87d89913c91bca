/* F16 and BF16 weights, multiplied as they are. x is one f16 for F16 weights, as for all others; a
 * bf16 has 8 bits, so for BF16 x is a sum of two, upper + lower, and a step is two products.
 *
 *      chunk of 64, 2048 bytes   step 0 | step 1 | step 2 | step 3, 512 each:
 *                                lane 0 | lane 1 | ... | lane 31, 16 bytes: registers 0..3
 *
 * Numbers: a chunk is 2048 bytes and 4 (8) mma; memory needs 111 clocks for it, so few rows are
 * bound by memory alone. Many rows: BF16's two products for each one wanted make half of the dense
 * rate at most. */
#include "backend/cuda/linear_launches.cuh"

struct raw_halves {
    uint4 of[4];
};
#define HALF_FORMAT(name, pair)                                                                    \
    LINEAR_FORMAT(name, pair);                                                                     \
    typedef raw_halves raw;                                                                        \
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)         \
    {                                                                                              \
        for (uint32_t i = 0; i < 4; i++)                                                           \
            r.of[i] = from.template chunk<uint4>(i * 512);                                         \
    }                                                                                              \
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)                 \
    {                                                                                              \
        unpack_halves(r, w);                                                                       \
    }

static __device__ __forceinline__ void unpack_halves(const raw_halves &r, linear_weights &w)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w.a[i][0] = r.of[i].x;
        w.a[i][1] = r.of[i].y;
        w.a[i][2] = r.of[i].z;
        w.a[i][3] = r.of[i].w;
    }
}

struct f16 {
    HALF_FORMAT(F16, false)
};
struct bf16 {
    HALF_FORMAT(BF16, true)
};

extern "C" void linear_half_launch(int type, const linear_group *p, const linear_grid *g)
{
    if (type == CUDA_TYPE_BF16)
        linear_launch<bf16>(*p, *g);
    else
        linear_launch<f16>(*p, *g);
}
