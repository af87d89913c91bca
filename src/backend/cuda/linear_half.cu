/* F16 and BF16 weights. x is a sum of two numbers of the weights' kind, so two products a step:
 *
 *      acc += w[16 outputs][16 of K]  upper(x)[16][8 rows];      acc += w  lower(x)
 *
 * One f16 of x (11 bits) would do half of the work, but on small models it is further from the
 * exact result than is allowed (DECISIONS.md); a bf16 has 8 bits. The sum of two has 22, or 16. For
 * F16 x was scaled by a power of two before, so that nothing overflows.
 *
 *      chunk of 64, 2048 bytes   step 0 | step 1 | step 2 | step 3, 512 each:
 *                                lane 0 | lane 1 | ... | lane 31, 16 bytes: registers 0..3
 *
 * Numbers: a chunk is 2048 bytes and 8 mma; memory needs 111 clocks for it, so few rows are bound
 * by memory alone. Many rows: two products for each one wanted, so half of the dense rate at most;
 * of mma.sync, which makes about two thirds of the peak on a Hopper, a third.
 */
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

#define HALF_FORMAT(name)                                                                          \
    static constexpr uint32_t RUN = CUDA_RUN_##name, HEAD = CUDA_HEAD_##name,                      \
                              CHUNK = CUDA_CHUNK_##name;                                           \
    static constexpr bool PAIR = true, SUMS = false, PARTS = false;                                \
    typedef half_weights weights;                                                                  \
    static __device__ __forceinline__ void unpack(                                                 \
        const uint8_t *, const uint8_t *chunk, uint32_t, uint32_t lane, weights &w)                \
    {                                                                                              \
        unpack_halves(chunk, lane, w);                                                             \
    }

struct f16 {
    HALF_FORMAT(F16)
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        By by(act, lane);
        by.begin(sum, w.a[0], 16);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            by.f16(sum, w.a[i], i);
            by.lower_f16(sum, w.a[i], i);
        }
        by.wait(sum);
    }
};

struct bf16 {
    HALF_FORMAT(BF16)
    template <class By>
    static __device__ __forceinline__ void multiply(weights &w,
                                                    const uint8_t *act,
                                                    uint32_t lane,
                                                    float (*sum)[4])
    {
        By by(act, lane);
        by.begin(sum, w.a[0], 16);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            by.bf16(sum, w.a[i], i);
            by.lower_bf16(sum, w.a[i], i);
        }
        by.wait(sum);
    }
};

extern "C" void linear_half_launch(int type, const linear_args *p, const linear_grid *g)
{
    if (type == CUDA_TYPE_BF16)
        linear_launch<bf16>(p, *g);
    else
        linear_launch<f16>(p, *g);
}
