/* How weights and prepared activations lie in the device's memory: what pack.c writes and
 * linear*.cu read. C and C++.
 *
 * Weights lie as the tensor cores take them (mma m16n8k16, weights as the operand of 16 rows):
 *
 *      part       16 output rows, all of K; missing rows are zero
 *        units    of each row, f32: a power of two that sums are multiplied by (linear_unpack.cuh)
 *        run      1 or 4 chunks that share a head: scales, and what else is stored once for many
 *          chunk  64 of K: four steps of 16, each one mma
 *
 *      part = | units | head | chunk 0 | chunk 1 ... | head | chunk ...
 *
 * Scales are divided by the unit, so that they and the weights are f16. Floats have neither units
 * nor heads.
 *
 * In a step lane l holds rows l / 4 and l / 4 + 8, and of each four values of K, from 4 (l % 4) on:
 *
 *      register   0            1            2            3
 *      row        l / 4        l / 4 + 8    l / 4        l / 4 + 8
 *      of the 4   0, 1         0, 1         2, 3         2, 3
 *
 * A chunk holds each lane's numbers together, so that a warp reads it in order, 16 bytes a lane.
 * Where a number's bits are is a function below (cuda_at_nibble ...): all that pack.c, cuda_embed
 * and the kernels' unpacking have to agree on.
 *
 * K is padded with zeros: of weights to whole runs, of activations to whole chunks (types of four
 * chunks a run have blocks of 256 of K, so both are the same). */
#ifndef WEIR_BACKEND_CUDA_LINEAR_LAYOUT_H
#define WEIR_BACKEND_CUDA_LINEAR_LAYOUT_H

#include "backend/cuda/linear.h"

#ifdef __cplusplus
#define CUDA_ANY static inline __host__ __device__
#else
#define CUDA_ANY static inline
#endif

#define CUDA_CHUNK_K 64u

/* name, number (enum gguf_type), chunks of a run, bytes of a head, bytes of a chunk, activations */
#define CUDA_FILE_FORMATS(X)                                                                       \
    X(F16, 1, 1, 0, 2048, CUDA_ACT_F16)                                                            \
    X(BF16, 30, 1, 0, 2048, CUDA_ACT_BF16_PAIR)                                                    \
    X(Q4_0, 2, 1, 64, 512, CUDA_ACT_F16)                                                           \
    X(Q4_1, 3, 1, 128, 512, CUDA_ACT_F16)                                                          \
    X(Q5_0, 6, 1, 64, 640, CUDA_ACT_F16)                                                           \
    X(Q5_1, 7, 1, 128, 640, CUDA_ACT_F16)                                                          \
    X(Q8_0, 8, 1, 64, 1024, CUDA_ACT_F16)                                                          \
    X(IQ4_NL, 20, 1, 64, 512, CUDA_ACT_F16)                                                        \
    X(MXFP4, 39, 1, 32, 512, CUDA_ACT_F16)                                                         \
    X(NVFP4, 40, 1, 64, 512, CUDA_ACT_F16)                                                         \
    X(Q2_K, 10, 4, 320, 256, CUDA_ACT_F16)                                                         \
    X(Q3_K, 11, 4, 288, 384, CUDA_ACT_F16)                                                         \
    X(Q4_K, 12, 4, 320, 512, CUDA_ACT_F16)                                                         \
    X(Q5_K, 13, 4, 320, 640, CUDA_ACT_F16)                                                         \
    X(Q6_K, 14, 4, 288, 768, CUDA_ACT_F16)                                                         \
    X(IQ4_XS, 23, 4, 160, 512, CUDA_ACT_F16)
/* TABLE is no type of files: numbers that sixteen bytes of its own say the meaning of. */
#define CUDA_FORMATS(X) CUDA_FILE_FORMATS(X) X(TABLE, 256, 4, 304, 512, CUDA_ACT_F16)

#define CUDA_FORMAT_NUMBERS(name, number, chunks, head, chunk, form)                               \
    CUDA_TYPE_##name = (number), CUDA_RUN_##name = (chunks), CUDA_HEAD_##name = (head),            \
    CUDA_CHUNK_##name = (chunk),
enum { CUDA_FORMATS(CUDA_FORMAT_NUMBERS) CUDA_TYPE_F32 = 0 };
#undef CUDA_FORMAT_NUMBERS

/* Types whose numbers lie as another's do; their blocks are taken apart at load (pack.c).
 *
 *      IQ1, IQ2, IQ3   a point of a grid is digits with a sign each, 16 values at most: TABLE
 *      TQ1_0, TQ2_0    d * (q - 1), d for 256: Q2_K with scales and mins of 1, dmin = d
 *      Q1_0, Q2_0      d * (q - 1), or d and -d, d for 128 or 64: Q4_0, q + 7 */
CUDA_ANY int cuda_stored_as(int type)
{
    switch (type) {
    case 16: /* IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S */
    case 17:
    case 18:
    case 19:
    case 21: /* IQ3_S, IQ2_S, IQ1_M */
    case 22:
    case 29:
        return CUDA_TYPE_TABLE;
    case 34: /* TQ1_0, TQ2_0 */
    case 35:
        return CUDA_TYPE_Q2_K;
    case 41: /* Q1_0, Q2_0 */
    case 42:
        return CUDA_TYPE_Q4_0;
    default:
        return type == CUDA_TYPE_TABLE ? -1 : type;
    }
}

/* Sizes of a type; chunks 0: it is F32, whose rows lie one after the other, K padded to chunks, or
 * (known 0) no type at all. */
struct cuda_layout {
    uint32_t chunks, head_bytes, chunk_bytes;
    unsigned form;
    int known;
};
static inline struct cuda_layout cuda_layout_of(int type)
{
#define CUDA_FORMAT_CASE(name, number, chunks, head, chunk, form)                                  \
    case CUDA_TYPE_##name: {                                                                       \
        const struct cuda_layout l = {chunks, head, chunk, form, 1};                               \
        return l;                                                                                  \
    }
    switch (cuda_stored_as(type)) {
        CUDA_FORMATS(CUDA_FORMAT_CASE)
    default:
        break;
    }
#undef CUDA_FORMAT_CASE
    const struct cuda_layout other = {0, 0, 0, CUDA_ACT_F32, type == CUDA_TYPE_F32};
    return other;
}

/* Bytes of the units in front of a part. */
#define CUDA_UNITS_BYTES 64u
CUDA_ANY uint32_t cuda_units_bytes(uint32_t head_bytes)
{
    return head_bytes > 0 ? CUDA_UNITS_BYTES : 0;
}

/* Mins of Q4_1 and Q5_1 are stored divided by so many d: both are f16 of about one size. */
#define CUDA_MIN_STEP 32u

CUDA_ANY uint32_t cuda_chunks(uint32_t k)
{
    return k / CUDA_CHUNK_K + (k % CUDA_CHUNK_K != 0);
}

/* --- where a number is: row 0..15 of a part, k 0..63 of a chunk --- */

struct cuda_spot {
    uint32_t lane, step, reg, half; /* half: which of the two numbers of a register */
};
CUDA_ANY struct cuda_spot cuda_spot_of(uint32_t row, uint32_t k)
{
    const struct cuda_spot s = {row % 8 * 4 + k % 16 / 4, k / 16, row / 8 + k % 4 / 2 * 2, k % 2};
    return s;
}

/* The first bit of a number, counted from the first bit of its plane in the chunk.
 *
 * 16-bit floats: four registers of a lane together, step by step. */
CUDA_ANY uint32_t cuda_at_float16(struct cuda_spot s)
{
    return (s.step * 512 + s.lane * 16 + s.reg * 4 + s.half * 2) * 8;
}
/* Bytes (q8_0): of two steps, a lane's 16 bytes are its registers 0, 1 of the first step with the
 * bytes of 2, 3 beside, then of the second. */
CUDA_ANY uint32_t cuda_at_byte(struct cuda_spot s)
{
    return (s.step / 2 * 512 + s.lane * 16 + (s.step % 2 * 2 + s.reg % 2) * 4 + s.reg / 2 * 2 +
            s.half) *
           8;
}
/* Nibbles: steps 0 and 1 in the low ones, 2 and 3 in the high ones, so that a mask leaves the pair
 * of a register:
 *
 *      word step % 2 * 2 + reg % 2, from bit 31 down, four bits each; half 1, then half 0:
 *
 *      | s+2 r+2 | s r+2 | s+2 r | s r | s+2 r+2 | s r+2 | s+2 r | s r | */
CUDA_ANY uint32_t cuda_at_nibble(struct cuda_spot s)
{
    return s.lane * 128 + (s.step % 2 * 2 + s.reg % 2) * 32 + s.half * 16 + s.reg / 2 * 8 +
           s.step / 2 * 4;
}
/* Fifth bits beside such nibbles: one word a lane. Shifted right by reg, bit 4 is that of step 0,
 * bit 8 that of step 2; with the bytes of each half exchanged first, those of 1 and 3. */
CUDA_ANY uint32_t cuda_at_fifth(struct cuda_spot s)
{
    const uint32_t bit = s.step / 2 * 4 + 4 + s.reg;
    return s.lane * 32 + s.half * 16 + (s.step % 2 ? bit ^ 8 : bit);
}
/* Fifth and sixth bits: two words a lane, for steps 0, 2 and 1, 3. Shifted right by 2 (reg % 2),
 * bits 4 and 8 are those of the two steps; with the bytes of each half exchanged first, of
 * registers 2, 3.
 */
CUDA_ANY uint32_t cuda_at_sixth(struct cuda_spot s)
{
    const uint32_t bit = s.step / 2 * 4 + 4 + s.reg % 2 * 2;
    return s.lane * 64 + s.step % 2 * 32 + s.half * 16 + (s.reg / 2 ? bit ^ 8 : bit);
}
/* Two bits: two words a lane, for registers 0, 2 and 1, 3: the steps from the lowest bit up. */
CUDA_ANY uint32_t cuda_at_two(struct cuda_spot s)
{
    return s.lane * 64 + s.reg % 2 * 32 + s.half * 16 + s.reg / 2 * 8 + s.step * 2;
}
/* Third bits beside such: one word a lane. Shifted right by reg % 2, bit 2 + 2 step; with the bytes
 * of each half exchanged first, of registers 2, 3. */
CUDA_ANY uint32_t cuda_at_third(struct cuda_spot s)
{
    const uint32_t bit = 2 + 2 * s.step + s.reg % 2;
    return s.lane * 32 + s.half * 16 + (s.reg / 2 ? bit ^ 8 : bit);
}
/* Nibbles that are looked up (iq4): a word for each row and half of the chunk, in the order of K.
 */
CUDA_ANY uint32_t cuda_at_index(struct cuda_spot s)
{
    return s.lane * 128 + (s.step / 2 * 2 + s.reg % 2) * 32 + s.step % 2 * 16 + s.reg / 2 * 8 +
           s.half * 4;
}
/* Nibbles that are floats of 4 bits: as these, but a register's pair is 16 bits apart. */
CUDA_ANY uint32_t cuda_at_fp4(struct cuda_spot s)
{
    return s.lane * 128 + (s.step / 2 * 2 + s.reg % 2) * 32 + s.half * 16 + s.step % 2 * 8 +
           s.reg / 2 * 4;
}

/* --- heads: entries of rows r and r + 8 lie beside each other, those of r % 8 together --- */

/* Entry e of n of a row: the index of it. */
CUDA_ANY uint32_t cuda_head_index(uint32_t row, uint32_t e, uint32_t n)
{
    return row % 8 * 2 * n + e * 2 + row / 8;
}

/* --- prepared activations --- */

/* Tiles of 8 rows, in groups of as many as there may be in a launch, up to 16: cuda_act_group, of
 * the same bound when rows are prepared and when they are multiplied. A group holds what all its
 * tiles have of a chunk together, so that one copy brings it:
 *
 *      | factors of its tiles | forms that there are, each:
 *
 *      F16:      | chunk 0 of all tiles, 1024 bytes each | chunk 1 of all | ..
 *      pair:     the same; | values, upper part 1024 | lower part 1024 |
 *      F32:      not in chunks: [tiles][8 rows][K padded to chunks]
 *
 * Factors, 8 f32 a tile, undo the rows' scales. Values of a tile's chunk lie as the operand of 8
 * columns, in pieces of 128 bytes: the 8 rows after each other, 16 bytes each. Two pieces for each
 * 16 of K: of each four the first two numbers, then the others; so a lane's operands are words of
 * them, and wgmma reads them where they lie. */
#define CUDA_ACT_ROWS 8u
#define CUDA_ACT_HEAD_BYTES 32u
#define CUDA_ACT_F16_BYTES 1024u
#define CUDA_ACT_PAIR_BYTES 2048u
#define CUDA_ACT_GROUP 16u
CUDA_ANY uint32_t cuda_act_group(uint32_t max_rows)
{
    const uint32_t tiles = max_rows / CUDA_ACT_ROWS + (max_rows % CUDA_ACT_ROWS != 0);
    return tiles < CUDA_ACT_GROUP ? tiles : CUDA_ACT_GROUP;
}
CUDA_ANY uint32_t cuda_act_chunk_bytes(unsigned form)
{
    return form == CUDA_ACT_F16   ? CUDA_ACT_F16_BYTES
           : form != CUDA_ACT_F32 ? CUDA_ACT_PAIR_BYTES
                                  : CUDA_ACT_ROWS * CUDA_CHUNK_K * (uint32_t)sizeof(float);
}
CUDA_ANY size_t cuda_act_form_bytes(unsigned form, uint32_t k)
{
    return (size_t)cuda_chunks(k) * cuda_act_chunk_bytes(form);
}
/* A tile's bytes in front of a form; of CUDA_ACT_F32 * 2: all of them. */
CUDA_ANY size_t cuda_act_offset(unsigned forms, unsigned form, uint32_t k)
{
    size_t at = CUDA_ACT_HEAD_BYTES;
    for (unsigned f = CUDA_ACT_F16; f < form; f *= 2)
        at += forms & f ? cuda_act_form_bytes(f, k) : 0;
    return at;
}
CUDA_ANY size_t cuda_act_tile_bytes(unsigned forms, uint32_t k)
{
    return cuda_act_offset(forms, CUDA_ACT_F32 * 2, k);
}
/* Byte of value k of row 0..7 in its tile's chunk, upper part. */
CUDA_ANY uint32_t cuda_act_in_chunk(uint32_t row, uint32_t k)
{
    return k % CUDA_CHUNK_K / 16 * 256 + k % 4 / 2 * 128 + row * 16 + k % 16 / 4 * 4 + k % 2 * 2;
}

#endif
