/* The block formats of quantised weights: their sizes, and their exact values.
 *
 * A row of ne[0] values is a run of blocks. gguf_dequantize is the definition of what a weight is:
 * kernels are tested against it. */
#ifndef WEIR_GGUF_BLOCKS_H
#define WEIR_GGUF_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The types that Weir computes with, numbered as in the file. A file may hold others: those whose
 * block size is known can be listed and skipped over (gguf_type_info), but not computed. */
enum gguf_type {
    GGUF_TYPE_F32 = 0,
    GGUF_TYPE_F16 = 1,
    GGUF_TYPE_Q4_0 = 2,
    GGUF_TYPE_Q4_1 = 3,
    GGUF_TYPE_Q5_0 = 6,
    GGUF_TYPE_Q5_1 = 7,
    GGUF_TYPE_Q8_0 = 8,
    GGUF_TYPE_Q2_K = 10,
    GGUF_TYPE_Q3_K = 11,
    GGUF_TYPE_Q4_K = 12,
    GGUF_TYPE_Q5_K = 13,
    GGUF_TYPE_Q6_K = 14,
    GGUF_TYPE_IQ2_XXS = 16,
    GGUF_TYPE_IQ2_XS = 17,
    GGUF_TYPE_IQ3_XXS = 18,
    GGUF_TYPE_IQ1_S = 19,
    GGUF_TYPE_IQ4_NL = 20,
    GGUF_TYPE_IQ3_S = 21,
    GGUF_TYPE_IQ2_S = 22,
    GGUF_TYPE_IQ4_XS = 23,
    GGUF_TYPE_IQ1_M = 29,
    GGUF_TYPE_BF16 = 30,
    GGUF_TYPE_TQ1_0 = 34,
    GGUF_TYPE_TQ2_0 = 35,
    GGUF_TYPE_MXFP4 = 39,
    GGUF_TYPE_NVFP4 = 40,
    GGUF_TYPE_Q1_0 = 41,
    GGUF_TYPE_Q2_0 = 42,
};

/* Packed as in the file (f16 as raw uint16_t). In blocks of 32, qs[j] holds value j in its low four
 * bits and value j + 16 in its high ones; bit j of qh is the fifth bit of value j. */
struct block_q4_0 { /* w = d * (q - 8) */
    uint16_t d;
    uint8_t qs[16];
};
struct block_q4_1 { /* w = d * q + m */
    uint16_t d;
    uint16_t m;
    uint8_t qs[16];
};
struct block_q5_0 { /* w = d * (q - 16), q five bits */
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct block_q5_1 { /* w = d * q + m, q five bits */
    uint16_t d;
    uint16_t m;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct block_iq4_nl { /* w = d * iq4_values[q] */
    uint16_t d;
    uint8_t qs[16];
};
struct block_mxfp4 { /* w = 2^(e - 128) * fp4_values[q] */
    uint8_t e;
    uint8_t qs[16];
};
struct block_nvfp4 { /* 4 groups of 16: w = block_nvfp4_scale(d) * fp4_values[q] */
    uint8_t d[4];
    uint8_t qs[32]; /* of each group 8: value j low, j + 8 high */
};
struct block_q8_0 { /* w = d * q */
    uint16_t d;
    int8_t qs[32];
};
struct block_q2_k {     /* 16 groups of 16: w = d * scale * q - dmin * min */
    uint8_t scales[16]; /* scale low, min high */
    uint8_t qs[64];
    uint16_t d;
    uint16_t dmin;
};
struct block_q3_k { /* 16 groups of 16: w = d * scale * (q - 4), scale -32..31 */
    uint8_t qh[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
};
struct block_q4_k { /* 8 groups of 32: w = d * scale * q - dmin * min; scales, mins 6 bits each */
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t qs[128];
};
struct block_q5_k { /* as q4_k, q five bits */
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
struct block_q6_k { /* 16 groups of 16: w = d * scale * (q - 32) */
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};
struct block_iq4_xs { /* 8 groups of 32: w = d * scale * iq4_values[q], scale -32..31 */
    uint16_t d;
    uint16_t scales_high;
    uint8_t scales_low[4];
    uint8_t qs[128];
};
struct block_q1_0 { /* 128 values: w = d where bit j is set, else -d */
    uint16_t d;
    uint8_t qs[16];
};
struct block_q2_0 { /* 64 values: w = d * (q - 1), two bits each in order */
    uint16_t d;
    uint8_t qs[16];
};
struct block_tq2_0 { /* 256 values: w = d * (q - 1), two bits */
    uint8_t qs[64];
    uint16_t d;
};
struct block_tq1_0 { /* 256 values: w = d * (q - 1), q a digit to the base of three, five to a byte
                      */
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
};
/* Several values together name a point of a grid: gguf/grids.h. */
struct block_iq1_s {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
};
struct block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint16_t scales[4];
};
struct block_iq2_xxs {
    uint16_t d;
    uint16_t qs[32];
};
struct block_iq2_xs {
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
};
struct block_iq2_s {
    uint16_t d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
};
struct block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];
    uint16_t signs_scales[16];
};
struct block_iq3_s {
    uint16_t d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
};

struct gguf_type_info {
    const char *name;      /* "Q8_0" */
    uint32_t block_values; /* values a block holds */
    uint32_t block_bytes;  /* bytes a block takes */
};

/* The layout of any type that the format defines, also of those that Weir does not compute; NULL
 * for a number that the format does not define. */
const struct gguf_type_info *gguf_type_info(enum gguf_type type);

/* Whether gguf_dequantize and the kernels know the type: one of enum gguf_type. */
bool gguf_type_is_computed(enum gguf_type type);

/* A name for any type number that the format defines, for messages ("Q2_K"); else "unknown". */
const char *gguf_type_name(uint32_t type);

/* Scale and min of group i (0..7) of the 12 bytes of a q4_k or q5_k block. */
void block_k_scale_min(const uint8_t scales[12], int i, uint8_t *scale, uint8_t *min);
/* Scale of group i: 0..15 of q3_k, 0..7 of iq4_xs; -32..31. */
int8_t block_q3_k_scale(const struct block_q3_k *b, int i);
int8_t block_iq4_xs_scale(const struct block_iq4_xs *b, int i);
/* 2^(e - 128), exact also where that is subnormal. */
float block_mxfp4_scale(uint8_t e);
/* Half of an unsigned float of four bits of exponent (bias 7) and three of mantissa; what would be
 * its NaN is 0, and its top bit means nothing. Exact. */
float block_nvfp4_scale(uint8_t d);

/* The 256 unsigned numbers q of a block, in the order of its values. */
void block_q2_k_codes(const struct block_q2_k *b, uint8_t q[256]);
void block_q3_k_codes(const struct block_q3_k *b, uint8_t q[256]);
void block_q5_k_codes(const struct block_q5_k *b, uint8_t q[256]);
void block_nvfp4_codes(const struct block_nvfp4 *b, uint8_t q[64]); /* of 64 */
void block_tq1_0_codes(const struct block_tq1_0 *b, uint8_t q[256]);
void block_tq2_0_codes(const struct block_tq2_0 *b, uint8_t q[256]);

/* out[n] = the n values stored at src (whole blocks: n is a multiple of block_values; src may be
 * unaligned). Exact in f32 up to the one product and difference that define the format. A type that
 * is not computed yields NaN. */
void gguf_dequantize(enum gguf_type type, const void *src, float *out, size_t n);

float f16_to_f32(uint16_t h); /* exact, also for subnormals, infinities and NaN */
uint16_t f32_to_f16(float f); /* round to nearest even */
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f); /* round to nearest even; NaN stays NaN */

#endif
