/* Formats whose blocks of 32 have a scale: Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL MXFP4, and IQ4_XS; and
 * those that have one for 16: NVFP4, and those of grids (IQ1, IQ2, IQ3), as numbers of 4 bits with
 * a table.
 *
 *      w = d * (q - zero)   or   d * q + m          q as stored: 4, 5 or 8 bits, not negative
 *
 * How they become f16 is in linear_unpack.cuh. A chunk of 64 (two blocks), Q4_0; l: lane,
 * r = l / 4, k = 4 (l % 4); a nibble's step is its place
 *
 *      head    64 bytes   d / unit, f16, r = 0..7: block 0 of r | 0 of r + 8 | 1 of r | 1 of r + 8
 *      chunk  512 bytes   lane 0 | lane 1 | ... | lane 31, 16 bytes each:
 *                         word 0  row r      steps 0 (low nibbles) and 2 (high)
 *                         word 1  row r + 8  steps 0 and 2
 *                         word 2  row r      steps 1 and 3
 *                         word 3  row r + 8  steps 1 and 3
 *      in a word          | k+3 | k+1 | k+2 | k+0 |  bytes, from the highest: masks leave pairs
 *
 * Fifth bits (Q5_0, Q5_1) are a word a lane behind; Q4_1, Q5_1 have m after d in the head; Q8_0 has
 * bytes q + 128; IQ4 has nibbles that a table of bytes is looked up with (value + 128); MXFP4's are
 * floats, whose bits are put where an f16 has them: 2^-14 times the value.
 *
 * Of grids (TABLE) the points are taken apart at load: a point has at most 16 different values, so
 * each becomes 4 bits, and a run's head ends with the 16 bytes (value + 128) that they mean.
 *
 *      head  304 bytes   d of r | r + 8, r = 0..7 | for each chunk 64 bytes: scales, 8 for each r,
 *                        of r and r + 8 beside each other | table
 *
 * The file's 1.6 to 3.4 bits a weight become 4.7.
 *
 * NVFP4 has MXFP4's floats and a scale of 16 of them, a float of 4 bits of exponent and 3 of
 * mantissa, which becomes an f16 by a shift: 2^-8 times the scale. Its products are exact, and all
 * its rows have one unit. What the sums are multiplied by besides is of a matrix or expert
 * (linear_args.factors).
 *
 * To add a format: its numbers in linear_layout.h, its packing in pack.c, a struct here, its line
 * in the table at the end and in linear_embed.cu.
 *
 * Numbers: the bound of linear_tiles.cuh. */
#include "backend/cuda/linear_unpack.cuh"

/* d of both blocks, f16 of rows r, r + 8. ZERO: what numbers are counted from; HIGH: the second
 * block's are so many powers of two larger. */
template <uint32_t ZERO, uint32_t HIGH>
static __device__ __forceinline__ void scale_blocks(uint2 d, linear_weights &w)
{
#pragma unroll
    for (uint32_t b = 0; b < 2; b++) {
        const uint32_t down = b * HIGH, pair = b == 0 ? d.x : d.y;
        const uint32_t by = down > 0 ? half2_mul(pair, down_by(down)) : pair;
        scale_block(w, b, by, half2_mul(by, NEGATIVE | subnormal(ZERO << down)));
    }
}
/* The same of nibbles with mins. */
static __device__ __forceinline__ void scale_blocks_from(uint4 scales, linear_weights &w)
{
    const uint32_t step = subnormal(CUDA_MIN_STEP);
    scale_block(w, 0, scales.x, half2_mul(scales.z, step));
    scale_block(w, 1, half2_mul(scales.y, down_by(4)), half2_mul(scales.w, step));
}

/* -127 -104 -83 -65 | -49 -35 -22 -10 | 1 13 25 38 | 53 69 89 113, each + 128 */
static __device__ __forceinline__ uint4 iq4_table()
{
    return make_uint4(0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u);
}

/* Sign, two bits of exponent and one of mantissa, at the top of an f16. */
static __device__ __forceinline__ uint32_t widen_fp4(uint32_t top)
{
    return (top & 0x80008000u) | ((top >> 3) & 0x0e000e00u);
}
/* by: of each step, for rows r and r + 8. */
static __device__ __forceinline__ void unpack_fp4(uint4 q, const uint32_t by[4], linear_weights &w)
{
    const uint32_t words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int step = i / 2 * 2 + j / 2, row = i % 2;
            const uint32_t v = widen_fp4(words[i] << (12 - 4 * j));
            w.a[step][row + j % 2 * 2] = half2_mul(v, both(by[step], row));
        }
    }
}

/* --- formats --- */

struct q8_0 {
    LINEAR_FORMAT(Q8_0, false);
    struct raw {
        uint4 q[2];
        uint2 d;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint2>(0);
        r.q[0] = from.template chunk<uint4>(0);
        r.q[1] = from.template chunk<uint4>(512);
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) {
            spread_bytes(r.q[b].x, w.a[2 * b], 0);
            spread_bytes(r.q[b].y, w.a[2 * b], 1);
            spread_bytes(r.q[b].z, w.a[2 * b + 1], 0);
            spread_bytes(r.q[b].w, w.a[2 * b + 1], 1);
        }
        scale_blocks<128, 0>(r.d, w);
    }
};

/* Nibbles, and in the head a D for each block, or a D and a min. */
template <class D> struct raw_nibbles {
    uint4 q;
    D d;
    template <class S> __device__ __forceinline__ void fetch(const S &from)
    {
        d = from.template head<D>(0);
        q = from.template chunk<uint4>(0);
    }
};
template <class D> struct raw_five_bits {
    uint4 q;
    uint32_t fifth;
    D d;
    template <class S> __device__ __forceinline__ void fetch(const S &from)
    {
        d = from.template head<D>(0);
        q = from.template chunk<uint4>(0);
        fifth = from.template chunk<uint32_t>(512);
    }
};
#define FETCH_RAW                                                                                  \
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)         \
    {                                                                                              \
        r.fetch(from);                                                                             \
    }

struct q4_0 {
    LINEAR_FORMAT(Q4_0, false);
    typedef raw_nibbles<uint2> raw;
    FETCH_RAW
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_nibbles(r.q, w);
        scale_blocks<8, 4>(r.d, w);
    }
};

struct q5_0 {
    LINEAR_FORMAT(Q5_0, false);
    typedef raw_five_bits<uint2> raw;
    FETCH_RAW
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_five_bits(r.q, r.fifth, w);
        scale_blocks<16, 4>(r.d, w);
    }
};

struct q4_1 {
    LINEAR_FORMAT(Q4_1, false);
    typedef raw_nibbles<uint4> raw;
    FETCH_RAW
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_nibbles(r.q, w);
        scale_blocks_from(r.d, w);
    }
};

struct q5_1 {
    LINEAR_FORMAT(Q5_1, false);
    typedef raw_five_bits<uint4> raw;
    FETCH_RAW
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_five_bits(r.q, r.fifth, w);
        scale_blocks_from(r.d, w);
    }
};

struct iq4_nl {
    LINEAR_FORMAT(IQ4_NL, false);
    typedef raw_nibbles<uint2> raw;
    FETCH_RAW
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_indices(r.q, iq4_table(), w);
        scale_blocks<128, 0>(r.d, w);
    }
};

/* head: d of 16 rows, then for each chunk bytes scale + 32 as the others have d. */
struct iq4_xs {
    LINEAR_FORMAT(IQ4_XS, false);
    struct raw {
        uint4 q;
        uint32_t d, scales;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint32_t>(0);
        r.scales = from.template head<uint32_t>(32 + from.sub * 32);
        r.q = from.template chunk<uint4>(0);
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_indices(r.q, iq4_table(), w);
#pragma unroll
        for (uint32_t b = 0; b < 2; b++) {
            const uint32_t by = half2_mul(r.d, bytes_integer(r.scales, b, 32, 0));
            scale_block(w, b, by, half2_mul(by, NEGATIVE | subnormal(128)));
        }
    }
};

struct grid_table {
    LINEAR_FORMAT(TABLE, false);
    struct raw {
        uint4 q, table;
        uint32_t d;
        uint2 scales;
    };
    template <class S> static __device__ __forceinline__ void fetch(const S &from, raw &r)
    {
        r.d = from.template head<uint32_t>(0);
        r.scales = from.template head<uint2>(32 + from.sub * 64);
        r.table = from.template of_all<uint4>(CUDA_HEAD_TABLE - 16);
        r.q = from.template chunk<uint4>(0);
    }
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        unpack_indices(r.q, r.table, w);
        scale_steps<0, 128, 4>(r.d, r.scales, w);
    }
};

/* head: for each r the scales' bytes of steps 0 to 3, of r and r + 8 beside each other. */
struct nvfp4 {
    LINEAR_FORMAT(NVFP4, false);
    typedef raw_nibbles<uint2> raw;
    FETCH_RAW
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        uint32_t by[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* two bytes to the upper halves of 16 bits, down by one, and
                                         to 2^7 times the scale: 2^15 of that */
            const uint32_t pair =
                __byte_perm(i < 2 ? r.d.x : r.d.y, 0, i % 2 ? 0x3424u : 0x1404u) >> 1;
            by[i] = half2_mul(pair, 0x78007800u);
        }
        unpack_fp4(r.q, by, w);
    }
};

/* head: as others have d, the upper bytes of f16: of powers of two they are all. */
struct mxfp4 {
    LINEAR_FORMAT(MXFP4, false);
    typedef raw_nibbles<uint32_t> raw;
    FETCH_RAW
    static __device__ __forceinline__ void unpack(const raw &r, linear_weights &w)
    {
        uint32_t by[4];
        by[0] = by[1] = __byte_perm(r.d, 0, 0x1404u);
        by[2] = by[3] = __byte_perm(r.d, 0, 0x3424u);
        unpack_fp4(r.q, by, w);
    }
};

extern "C" void linear_block_launch(int type, const linear_group *p, const linear_grid *g)
{
    switch (type) {
    case CUDA_TYPE_Q8_0:
        return linear_launch<q8_0>(*p, *g);
    case CUDA_TYPE_Q4_0:
        return linear_launch<q4_0>(*p, *g);
    case CUDA_TYPE_Q4_1:
        return linear_launch<q4_1>(*p, *g);
    case CUDA_TYPE_Q5_0:
        return linear_launch<q5_0>(*p, *g);
    case CUDA_TYPE_Q5_1:
        return linear_launch<q5_1>(*p, *g);
    case CUDA_TYPE_IQ4_NL:
        return linear_launch<iq4_nl>(*p, *g);
    case CUDA_TYPE_IQ4_XS:
        return linear_launch<iq4_xs>(*p, *g);
    case CUDA_TYPE_TABLE:
        return linear_launch<grid_table>(*p, *g);
    case CUDA_TYPE_NVFP4:
        return linear_launch<nvfp4>(*p, *g);
    default:
        return linear_launch<mxfp4>(*p, *g);
    }
}
