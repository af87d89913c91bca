/* Formats of super-blocks of 256 with integer scales: Q4_K Q5_K Q2_K Q3_K, and Q6_K.
 *
 *      w = d * scale * q - dmin * min       a scale and a min for 32 (Q4_K, Q5_K) or 16 (Q2_K) of K
 *      w = d * scale * (q - 4)              for 16 (Q3_K)
 *      w = d * scale * (q - 32)             for 16 (Q6_K)
 *
 * How they become f16 is in linear_unpack.cuh; here D = f16(d * scale), C = f16(-dmin * min), of
 * which min is a subnormal too, as q is.
 *
 *      head   d of r: row r | dmin ... : 64 bytes (32 without mins), r = l / 4 = 0..7, f16
 *                     | d r | d r + 8 | dmin r | dmin r + 8 |
 *             for each of the four chunks 64 bytes, 8 for each r:
 *               Q4_K, Q5_K  | scale 0 of r, r + 8 | scale 1 | min 0 | min 1 |    of 32 each
 *               others      | 0 of r, r + 8 | 1 | 2 | 3 |                        of 16 each
 *             (Q2_K: scale low, min high; Q3_K: scale + 32; Q6_K: scale + 128)
 *      chunk  Q4_K, Q5_K, Q6_K: nibbles as Q4_0; 1 or 2 upper bits in a plane behind
 *             Q2_K, Q3_K: two bits, steps 0..3 from the lowest; Q3_K's third bits behind
 *
 * Numbers: the bound of linear_tiles.cuh. */
#include "backend/cuda/linear_unpack.cuh"

/* Q4_K and Q5_K; d: D of both rows, dmin of both; s: scales and mins of the chunk's blocks. */
static __device__ __forceinline__ void scale_by_32(uint2 d, uint2 s, linear_weights &w)
{
    const uint32_t minus = d.y ^ NEGATIVE;
#pragma unroll
    for (uint32_t b = 0; b < 2; b++) /* the second is 16 times as large */
        scale_block(w,
                    b,
                    half2_mul(d.x, bytes_integer(s.x, b, 0, b * 4)),
                    half2_mul(minus, bytes_subnormal(s.y, b)));
}

struct q4_k {
    LINEAR_FORMAT(Q4_K, false);
    struct raw {
        uint4 q;
        uint2 d, s;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint2>(0);
        r.s = from.template head<uint2>(64 + from.sub * 64);
        r.q = from.template chunk<uint4>(0);
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_nibbles(r.q, w);
        scale_by_32(r.d, r.s, w);
    }
};

struct q5_k {
    LINEAR_FORMAT(Q5_K, false);
    struct raw {
        uint4 q;
        uint32_t fifth;
        uint2 d, s;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint2>(0);
        r.s = from.template head<uint2>(64 + from.sub * 64);
        r.q = from.template chunk<uint4>(0);
        r.fifth = from.template chunk<uint32_t>(512);
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_five_bits(r.q, r.fifth, w);
        scale_by_32(r.d, r.s, w);
    }
};

/* Two-bit fields: step i counts 4^i times as much. */
static __device__ __forceinline__ void unpack_twos(uint2 q, linear_weights &w)
{
#pragma unroll
    for (uint32_t step = 0; step < 4; step++) {
        const uint32_t mask = 0x00030003u << (2 * step);
        w.a[step][0] = q.x & mask;
        w.a[step][1] = q.y & mask;
        w.a[step][2] = (q.x >> 8) & mask;
        w.a[step][3] = (q.y >> 8) & mask;
    }
}

struct q2_k {
    LINEAR_FORMAT(Q2_K, false);
    struct raw {
        uint2 q, d, s;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint2>(0);
        r.s = from.template head<uint2>(64 + from.sub * 64);
        r.q = from.template chunk<uint2>(0);
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        const uint32_t minus = r.d.y ^ NEGATIVE;
        const uint32_t scales[2] = {r.s.x & 0x0f0f0f0fu, r.s.y & 0x0f0f0f0fu};
        const uint32_t mins[2] = {(r.s.x >> 4) & 0x0f0f0f0fu, (r.s.y >> 4) & 0x0f0f0f0fu};
        unpack_twos(r.q, w);
#pragma unroll
        for (uint32_t step = 0; step < 4; step++)
            scale_step(w.a[step],
                       half2_mul(r.d.x, bytes_integer(scales[step / 2], step % 2, 0, step * 2)),
                       half2_mul(minus, bytes_subnormal(mins[step / 2], step % 2)));
    }
};

struct q3_k {
    LINEAR_FORMAT(Q3_K, false);
    struct raw {
        uint2 q, s;
        uint32_t third, d;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint32_t>(0);
        r.s = from.template head<uint2>(32 + from.sub * 64);
        r.q = from.template chunk<uint2>(0);
        r.third = from.template chunk<uint32_t>(256); /* registers 0, 1 */
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_twos(r.q, w);
        const uint32_t low = r.third, high = __byte_perm(low, 0, 0x2301u); /* registers 2, 3 */
#pragma unroll
        for (uint32_t step = 0; step < 4; step++) {
            const uint32_t mask = 0x00040004u << (2 * step);
            w.a[step][0] |= low & mask;
            w.a[step][1] |= (low >> 1) & mask;
            w.a[step][2] |= high & mask;
            w.a[step][3] |= (high >> 1) & mask;
        }
        scale_steps<32, 4, 1>(r.d, r.s, w);
    }
};

struct q6_k {
    LINEAR_FORMAT(Q6_K, false);
    struct raw {
        uint4 q;
        uint2 upper, s;
        uint32_t d;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint32_t>(0);
        r.s = from.template head<uint2>(32 + from.sub * 64);
        r.q = from.template chunk<uint4>(0);
        r.upper = from.template chunk<uint2>(512);
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_nibbles(r.q, w);
#pragma unroll
        for (int i = 0; i < 2; i++) {                           /* steps i and i + 2 */
            const uint32_t low = i ? r.upper.y : r.upper.x;     /* registers 0, 1 */
            const uint32_t high = __byte_perm(low, 0, 0x2301u); /* registers 2, 3 */
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t bits = (k < 2 ? low : high) >> (k % 2 * 2);
                w.a[i][k] |= bits & 0x00300030u;
                w.a[i + 2][k] |= bits & 0x03000300u;
            }
        }
        scale_steps<128, 32, 2>(r.d, r.s, w);
    }
};

extern "C" void linear_k_launch(int type, const linear_group *p, const linear_grid *g)
{
    const bool two = g->second == CUDA_TYPE_Q6_K;
    switch (type) {
    case CUDA_TYPE_Q2_K:
        return linear_launch<q2_k>(*p, *g);
    case CUDA_TYPE_Q3_K:
        return linear_launch<q3_k>(*p, *g);
    case CUDA_TYPE_Q4_K:
        return two ? linear_launch_either<q4_k, q6_k>(*p, *g) : linear_launch<q4_k>(*p, *g);
    case CUDA_TYPE_Q5_K:
        return two ? linear_launch_either<q5_k, q6_k>(*p, *g) : linear_launch<q5_k>(*p, *g);
    default:
        return linear_launch<q6_k>(*p, *g);
    }
}
