/* F16 and BF16 weights.
 *
 *      F16:   acc += w[16 outputs][16 of K]  x[16][8 rows]          one mma a step, x as f16
 *      BF16:  acc += w  upper(x);  acc += w  lower(x)               two, x as a sum of two bf16
 *
 * A bf16 has 8 bits of x, too few beside weights that are exact; the sum of two has 16. F16 weights
 * meet x in 11 bits, after the row was scaled by a power of two, so that nothing overflows.
 *
 *      chunk of 64, 2048 bytes   step 0 | step 1 | step 2 | step 3, 512 each:
 *                                lane 0 | lane 1 | ... | lane 31, 16 bytes: registers 0..3
 *
 * Numbers: a chunk is 2048 bytes and 4 (BF16: 8) mma; memory needs 111 clocks for it, so decode is
 * bound by memory alone. Prefill: 4 loads of 16 bytes a lane for the weights and 2 for each 8 rows
 * make 4 x 8 x 2 mma: shared memory delivers for about two thirds of the peak of mma. */
#include "backend/cuda/linear_tiles.cuh"

struct half_weights {
    uint32_t a[4][4];
};
static __device__ __forceinline__ void unpack_halves(const uint8_t *chunk,
                                                     uint32_t lane,
                                                     half_weights &w)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 a = load<uint4>(chunk + i * 512 + lane * 16);
        w.a[i][0] = a.x;
        w.a[i][1] = a.y;
        w.a[i][2] = a.z;
        w.a[i][3] = a.w;
    }
}

struct f16 {
    static constexpr uint32_t RUN = CUDA_RUN_F16, HEAD = CUDA_HEAD_F16, CHUNK = CUDA_CHUNK_F16;
    static constexpr bool BF16 = false, SUMS = false, PARTS = false;
    typedef half_weights weights;
    static __device__ __forceinline__ void unpack(
        const uint8_t *, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        unpack_halves(chunk, lane, w);
    }
    static __device__ __forceinline__ void multiply(const weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float sum[4])
    {
        const act_values x = act_values_of(act, lane);
#pragma unroll
        for (int i = 0; i < 4; i++)
            mma_f16(sum, w.a[i], x.b[i]);
    }
};

struct bf16 {
    static constexpr uint32_t RUN = CUDA_RUN_BF16, HEAD = CUDA_HEAD_BF16, CHUNK = CUDA_CHUNK_BF16;
    static constexpr bool BF16 = true, SUMS = false, PARTS = false;
    typedef half_weights weights;
    static __device__ __forceinline__ void unpack(
        const uint8_t *, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)
    {
        unpack_halves(chunk, lane, w);
    }
    static __device__ __forceinline__ void multiply(const weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float sum[4])
    {
        const act_values upper = act_values_of(act, lane), lower = act_values_of(act + 1024, lane);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            mma_bf16(sum, w.a[i], upper.b[i]);
            mma_bf16(sum, w.a[i], lower.b[i]);
        }
    }
};

extern "C" void linear_half_launch(int type, const linear_args *p, const linear_grid *g)
{
    if (type == CUDA_TYPE_BF16)
        linear_launch<bf16>(*p, *g);
    else
        linear_launch<f16>(*p, *g);
}
