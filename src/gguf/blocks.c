#include "gguf/blocks.h"

#include "gguf/grids.h"

#include <math.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "blocks are read as they lie in the file");
_Static_assert(sizeof(struct block_q4_0) == 18, "q4_0");
_Static_assert(sizeof(struct block_q4_1) == 20, "q4_1");
_Static_assert(sizeof(struct block_q5_0) == 22, "q5_0");
_Static_assert(sizeof(struct block_q5_1) == 24, "q5_1");
_Static_assert(sizeof(struct block_q8_0) == 34, "q8_0");
_Static_assert(sizeof(struct block_q2_k) == 84, "q2_k");
_Static_assert(sizeof(struct block_q3_k) == 110, "q3_k");
_Static_assert(sizeof(struct block_q4_k) == 144, "q4_k");
_Static_assert(sizeof(struct block_q5_k) == 176, "q5_k");
_Static_assert(sizeof(struct block_q6_k) == 210, "q6_k");
_Static_assert(sizeof(struct block_iq4_nl) == 18, "iq4_nl");
_Static_assert(sizeof(struct block_iq4_xs) == 136, "iq4_xs");
_Static_assert(sizeof(struct block_mxfp4) == 17, "mxfp4");
_Static_assert(sizeof(struct block_nvfp4) == 36, "nvfp4");
_Static_assert(sizeof(struct block_q1_0) == 18, "q1_0");
_Static_assert(sizeof(struct block_q2_0) == 18, "q2_0");
_Static_assert(sizeof(struct block_tq1_0) == 54, "tq1_0");
_Static_assert(sizeof(struct block_tq2_0) == 66, "tq2_0");

/* What the four bits of iq4_nl and iq4_xs mean: steps that are finer near zero. */
static const int8_t iq4_values[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/* What the four bits of mxfp4 and nvfp4 mean, doubled: a sign, two bits of exponent, one of
 * mantissa. */
static const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Every type of the format by its number; gaps were types that have been withdrawn. */
static const struct gguf_type_info types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},    [42] = {"Q2_0", 64, 18},
};

const struct gguf_type_info *gguf_type_info(enum gguf_type type)
{
    size_t i = (uint32_t)type;
    return i < sizeof types / sizeof types[0] && types[i].name ? &types[i] : NULL;
}

const char *gguf_type_name(uint32_t type)
{
    const struct gguf_type_info *info = gguf_type_info((enum gguf_type)type);
    return info ? info->name : "unknown";
}

static uint32_t bits_of(float f)
{
    uint32_t x;
    memcpy(&x, &f, sizeof x);
    return x;
}

static float float_of(uint32_t x)
{
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
}

/* f16: sign 1, exponent 5 (bias 15), mantissa 10. f32: 1, 8 (bias 127), 23. So a normal number
 * moves its bits up by 13 and its exponent up by 112. */
float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1f;
    uint32_t mantissa = h & 0x3ff;
    if (exponent == 0) /* zero and subnormals: mantissa units of 2^-24; exact */
        return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | mantissa << 13);
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float f)
{
    uint32_t x = bits_of(f);
    uint32_t sign = (x >> 16) & 0x8000;
    x &= 0x7fffffff;
    if (x > 0x7f800000) /* NaN: keep the top of the payload, make it quiet */
        return (uint16_t)(sign | 0x7e00 | ((x >> 13) & 0x1ff));
    if (x >= 0x47800000) /* 2^16 and above; 65520 and above get there by the carry below */
        return (uint16_t)(sign | 0x7c00);
    if (x <
        0x38800000) { /* below 2^-14: in 0.5 + |f| the last bit weighs 2^-24, as in the result */
        uint32_t sum = bits_of(float_of(x) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000));
    }
    x += 0xfff + ((x >> 13) & 1); /* half of the last kept bit, less one when that bit is even */
    return (uint16_t)(sign | ((x - (112u << 23)) >> 13));
}

float bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f)
{
    uint32_t x = bits_of(f);
    if ((x & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(x >> 16 | 0x40); /* quiet, so that a cut payload cannot become infinity */
    return (uint16_t)((x + 0x7fff + ((x >> 16) & 1)) >> 16);
}

/* Twelve bytes hold eight scales and eight mins of 6 bits. Bytes 0-3 and 4-7 hold scale and min of
 * groups 0-3 in their low 6 bits; bytes 8-11 hold the low 4 bits of groups 4-7 (scale low, min
 * high), whose top 2 bits are the top 2 bits of bytes 0-7. */
void block_k_scale_min(const uint8_t s[12], int i, uint8_t *scale, uint8_t *min)
{
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[i + 4] & 63;
    } else {
        *scale = (uint8_t)((s[i + 4] & 15) | (s[i - 4] >> 6) << 4);
        *min = (uint8_t)(s[i + 4] >> 4 | (s[i] >> 6) << 4);
    }
}

/* Bytes 0-7 hold the low 4 bits of scales 0-7 (low) and 8-15 (high); two bits of bytes 8-11 each
 * hold the high bits: of scale i in byte 8 + i % 4, from bit i / 4 * 2 on. */
int8_t block_q3_k_scale(const struct block_q3_k *b, int i)
{
    int low = b->scales[i % 8] >> (i / 8 * 4) & 15;
    int high = b->scales[8 + i % 4] >> (i / 4 * 2) & 3;
    return (int8_t)((high << 4 | low) - 32);
}

int8_t block_iq4_xs_scale(const struct block_iq4_xs *b, int i)
{
    int low = b->scales_low[i / 2] >> (i % 2 * 4) & 15;
    int high = b->scales_high >> (i * 2) & 3;
    return (int8_t)((high << 4 | low) - 32);
}

float block_mxfp4_scale(uint8_t e)
{
    return float_of(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

float block_nvfp4_scale(uint8_t d)
{
    const int exponent = d >> 3 & 15, mantissa = d & 7;
    if (d == 0x7f)
        return 0.0f;
    return exponent ? ldexpf((float)(8 + mantissa), exponent - 11) : ldexpf((float)mantissa, -10);
}

void block_nvfp4_codes(const struct block_nvfp4 *b, uint8_t q[64])
{
    for (int i = 0; i < 64; i++)
        q[i] = b->qs[i / 16 * 8 + i % 8] >> (i / 8 % 2 * 4) & 15;
}

/* Each half of 128 values is four runs of 32 over the same 32 bytes: run r is bits 2r, 2r + 1. */
static uint8_t two_bits(const uint8_t qs[64], int i)
{
    return qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

void block_q2_k_codes(const struct block_q2_k *b, uint8_t q[256])
{
    for (int i = 0; i < 256; i++)
        q[i] = two_bits(b->qs, i);
}

/* The third bits of run r of all eight are bit r of 32 bytes. */
void block_q3_k_codes(const struct block_q3_k *b, uint8_t q[256])
{
    for (int i = 0; i < 256; i++)
        q[i] = (uint8_t)(two_bits(b->qs, i) | (b->qh[i % 32] >> (i / 32) & 1) << 2);
}

/* Nibbles as in q4_k, fifth bits as the third ones of q3_k. */
void block_q5_k_codes(const struct block_q5_k *b, uint8_t q[256])
{
    for (int i = 0; i < 256; i++) {
        int low = b->qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        q[i] = (uint8_t)(low | (b->qh[i % 32] >> (i / 32) & 1) << 4);
    }
}

void block_tq2_0_codes(const struct block_tq2_0 *b, uint8_t q[256])
{
    for (int i = 0; i < 256; i++)
        q[i] = two_bits(b->qs, i);
}

/* A byte holds digits as a binary fraction: times 3 its overflow is the first, what is left goes
 * on. 32 bytes hold 160 values, 16 bytes 80 and 4 bytes 16; digit n of all bytes comes before n
 * + 1. */
void block_tq1_0_codes(const struct block_tq1_0 *b, uint8_t q[256])
{
    const struct {
        const uint8_t *bytes;
        int n_bytes, n_digits;
    } runs[] = {{b->qs, 32, 5}, {b->qs + 32, 16, 5}, {b->qh, 4, 4}};
    for (int r = 0; r < 3; r++) {
        for (int j = 0; j < runs[r].n_bytes; j++) {
            unsigned rest = runs[r].bytes[j];
            for (int n = 0; n < runs[r].n_digits; n++) {
                q[n * runs[r].n_bytes + j] = (uint8_t)(rest * 3 >> 8);
                rest = rest * 3 & 255;
            }
        }
        q += runs[r].n_bytes * runs[r].n_digits;
    }
}

static void expand_q4_0(const void *src, float *out)
{
    struct block_q4_0 b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)((b.qs[j] & 15) - 8);
        out[j + 16] = d * (float)((b.qs[j] >> 4) - 8);
    }
}

/* The product has at most 11 + 4 bits, so only the sum rounds. */
static void expand_q4_1(const void *src, float *out)
{
    struct block_q4_1 b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)(b.qs[j] & 15) + m;
        out[j + 16] = d * (float)(b.qs[j] >> 4) + m;
    }
}

/* Value j of a block of 32 in five bits. */
static int five_bits(const uint8_t qh[4], const uint8_t qs[16], int j)
{
    return (qs[j % 16] >> (j / 16 * 4) & 15) | (qh[j / 8] >> (j % 8) & 1) << 4;
}

static void expand_q5_0(const void *src, float *out)
{
    struct block_q5_0 b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d);
    for (int j = 0; j < 32; j++)
        out[j] = d * (float)(five_bits(b.qh, b.qs, j) - 16);
}

static void expand_q5_1(const void *src, float *out)
{
    struct block_q5_1 b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
    for (int j = 0; j < 32; j++)
        out[j] = d * (float)five_bits(b.qh, b.qs, j) + m;
}

/* 32 values that nibbles look up. */
static void expand_table(const uint8_t qs[16], float d, const int8_t table[16], float *out)
{
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)table[qs[j] & 15];
        out[j + 16] = d * (float)table[qs[j] >> 4];
    }
}

static void expand_iq4_nl(const void *src, float *out)
{
    struct block_iq4_nl b;
    memcpy(&b, src, sizeof b);
    expand_table(b.qs, f16_to_f32(b.d), iq4_values, out);
}

static void expand_iq4_xs(const void *src, float *out)
{
    struct block_iq4_xs b;
    memcpy(&b, src, sizeof b);
    for (int g = 0; g < 8; g++) {
        float d = f16_to_f32(b.d) * (float)block_iq4_xs_scale(&b, g);
        expand_table(b.qs + g * 16, d, iq4_values, out + (size_t)g * 32);
    }
}

static void expand_mxfp4(const void *src, float *out)
{
    struct block_mxfp4 b;
    memcpy(&b, src, sizeof b);
    expand_table(b.qs, block_mxfp4_scale(b.e), fp4_values, out);
}

static void expand_nvfp4(const void *src, float *out)
{
    struct block_nvfp4 b;
    uint8_t q[64];
    memcpy(&b, src, sizeof b);
    block_nvfp4_codes(&b, q);
    for (int j = 0; j < 64; j++)
        out[j] = block_nvfp4_scale(b.d[j / 16]) * (float)fp4_values[q[j]];
}

static void expand_q8_0(const void *src, float *out)
{
    struct block_q8_0 b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d);
    for (int j = 0; j < 32; j++)
        out[j] = d * (float)b.qs[j];
}

/* Groups come in pairs that share 32 bytes: the even group in the low nibbles, the odd one in the
 * high. d * scale * q has at most 11 + 6 + 4 bits, so only the difference rounds. */
static void expand_q4_k(const void *src, float *out)
{
    struct block_q4_k b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d);
    float dmin = f16_to_f32(b.dmin);
    for (size_t g = 0; g < 8; g++) {
        uint8_t scale, min;
        block_k_scale_min(b.scales, (int)g, &scale, &min);
        float step = d * (float)scale;
        float base = dmin * (float)min;
        const uint8_t *q = &b.qs[g / 2 * 32];
        int shift = g % 2 ? 4 : 0;
        for (size_t j = 0; j < 32; j++)
            out[g * 32 + j] = step * (float)(q[j] >> shift & 15) - base;
    }
}

static void expand_q5_k(const void *src, float *out)
{
    struct block_q5_k b;
    uint8_t q[256];
    memcpy(&b, src, sizeof b);
    block_q5_k_codes(&b, q);
    float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
    for (int i = 0; i < 256; i++) {
        uint8_t scale, min;
        block_k_scale_min(b.scales, i / 32, &scale, &min);
        out[i] = d * (float)scale * (float)q[i] - dmin * (float)min;
    }
}

static void expand_q2_k(const void *src, float *out)
{
    struct block_q2_k b;
    uint8_t q[256];
    memcpy(&b, src, sizeof b);
    block_q2_k_codes(&b, q);
    float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
    for (int i = 0; i < 256; i++) {
        int s = b.scales[i / 16];
        out[i] = d * (float)(s & 15) * (float)q[i] - dmin * (float)(s >> 4);
    }
}

static void expand_q3_k(const void *src, float *out)
{
    struct block_q3_k b;
    uint8_t q[256];
    memcpy(&b, src, sizeof b);
    block_q3_k_codes(&b, q);
    float d = f16_to_f32(b.d);
    for (int i = 0; i < 256; i++)
        out[i] = d * (float)block_q3_k_scale(&b, i / 16) * (float)(q[i] - 4);
}

/* Each half of 128 values is four runs of 32. Runs 0 and 1 are the low nibbles of the half's 64
 * bytes of ql, runs 2 and 3 the high ones; run r's upper 2 bits are bits 2r, 2r + 1 of 32 bytes of
 * qh. Scales cover 16 values each, in the order of the values. */
static void expand_q6_k(const void *src, float *out)
{
    struct block_q6_k b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, run = i / 32 % 4, j = i % 32;
        int low = b.ql[half * 64 + run % 2 * 32 + j] >> (run / 2 * 4) & 15;
        int high = b.qh[half * 32 + j] >> (run * 2) & 3;
        int8_t scale = b.scales[i / 16];
        out[i] = d * (float)scale * (float)((high << 4 | low) - 32);
    }
}

static void expand_q1_0(const void *src, float *out)
{
    struct block_q1_0 b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d);
    for (int i = 0; i < 128; i++)
        out[i] = b.qs[i / 8] >> (i % 8) & 1 ? d : -d;
}

static void expand_q2_0(const void *src, float *out)
{
    struct block_q2_0 b;
    memcpy(&b, src, sizeof b);
    float d = f16_to_f32(b.d);
    for (int i = 0; i < 64; i++)
        out[i] = d * (float)((b.qs[i / 4] >> (i % 4 * 2) & 3) - 1);
}

static void expand_tq1_0(const void *src, float *out)
{
    struct block_tq1_0 b;
    uint8_t q[256];
    memcpy(&b, src, sizeof b);
    block_tq1_0_codes(&b, q);
    float d = f16_to_f32(b.d);
    for (int i = 0; i < 256; i++)
        out[i] = d * (float)(q[i] - 1);
}

static void expand_tq2_0(const void *src, float *out)
{
    struct block_tq2_0 b;
    uint8_t q[256];
    memcpy(&b, src, sizeof b);
    block_tq2_0_codes(&b, q);
    float d = f16_to_f32(b.d);
    for (int i = 0; i < 256; i++)
        out[i] = d * (float)(q[i] - 1);
}

static void expand_halves(const uint8_t *src, float *out, size_t n, float (*widen)(uint16_t))
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof h);
        out[i] = widen(h);
    }
}

#define EXPAND_GRID(name, type)                                                                    \
    static void expand_##name(const void *src, float *out)                                         \
    {                                                                                              \
        block_grid_expand(type, src, out);                                                         \
    }
EXPAND_GRID(iq1_s, GGUF_TYPE_IQ1_S)
EXPAND_GRID(iq1_m, GGUF_TYPE_IQ1_M)
EXPAND_GRID(iq2_xxs, GGUF_TYPE_IQ2_XXS)
EXPAND_GRID(iq2_xs, GGUF_TYPE_IQ2_XS)
EXPAND_GRID(iq2_s, GGUF_TYPE_IQ2_S)
EXPAND_GRID(iq3_xxs, GGUF_TYPE_IQ3_XXS)
EXPAND_GRID(iq3_s, GGUF_TYPE_IQ3_S)

/* One block, of the types that have any. */
static void (*const expands[])(const void *src, float *out) = {
    [GGUF_TYPE_Q4_0] = expand_q4_0,       [GGUF_TYPE_Q4_1] = expand_q4_1,
    [GGUF_TYPE_Q5_0] = expand_q5_0,       [GGUF_TYPE_Q5_1] = expand_q5_1,
    [GGUF_TYPE_Q8_0] = expand_q8_0,       [GGUF_TYPE_Q2_K] = expand_q2_k,
    [GGUF_TYPE_Q3_K] = expand_q3_k,       [GGUF_TYPE_Q4_K] = expand_q4_k,
    [GGUF_TYPE_Q5_K] = expand_q5_k,       [GGUF_TYPE_Q6_K] = expand_q6_k,
    [GGUF_TYPE_IQ4_NL] = expand_iq4_nl,   [GGUF_TYPE_IQ4_XS] = expand_iq4_xs,
    [GGUF_TYPE_MXFP4] = expand_mxfp4,     [GGUF_TYPE_NVFP4] = expand_nvfp4,
    [GGUF_TYPE_Q1_0] = expand_q1_0,       [GGUF_TYPE_Q2_0] = expand_q2_0,
    [GGUF_TYPE_TQ1_0] = expand_tq1_0,     [GGUF_TYPE_TQ2_0] = expand_tq2_0,
    [GGUF_TYPE_IQ1_S] = expand_iq1_s,     [GGUF_TYPE_IQ1_M] = expand_iq1_m,
    [GGUF_TYPE_IQ2_XXS] = expand_iq2_xxs, [GGUF_TYPE_IQ2_XS] = expand_iq2_xs,
    [GGUF_TYPE_IQ2_S] = expand_iq2_s,     [GGUF_TYPE_IQ3_XXS] = expand_iq3_xxs,
    [GGUF_TYPE_IQ3_S] = expand_iq3_s,
};

static bool is_float(enum gguf_type type)
{
    return type == GGUF_TYPE_F32 || type == GGUF_TYPE_F16 || type == GGUF_TYPE_BF16;
}

bool gguf_type_is_computed(enum gguf_type type)
{
    const size_t i = (uint32_t)type;
    return is_float(type) || (i < sizeof expands / sizeof expands[0] && expands[i]);
}

void gguf_dequantize(enum gguf_type type, const void *src, float *out, size_t n)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    if (type == GGUF_TYPE_F32) {
        memcpy(out, src, n * sizeof *out);
    } else if (is_float(type)) {
        expand_halves(src, out, n, type == GGUF_TYPE_F16 ? f16_to_f32 : bf16_to_f32);
    } else if (!gguf_type_is_computed(type)) {
        for (size_t i = 0; i < n; i++)
            out[i] = NAN; /* not computed: must not pass for a value */
    } else {
        for (size_t i = 0; i < n / info->block_values; i++)
            expands[type]((const uint8_t *)src + i * info->block_bytes,
                          out + i * info->block_values);
    }
}
