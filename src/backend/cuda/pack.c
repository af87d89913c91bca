/* Rows of the file to parts of the device: blocks taken apart into numbers, and each number put
 * where linear_layout.h says. On the host, any thread; parts are independent. */
#include "backend/cuda/linear_layout.h"
#include "gguf/blocks.h"
#include "gguf/grids.h"

#include <limits.h>
#include <math.h>
#include <string.h>

_Static_assert((int)CUDA_TYPE_F32 == (int)GGUF_TYPE_F32, "types are numbered as in files");
#define CHECK_NUMBER(name, number, chunks, head, chunk, form)                                      \
    _Static_assert((int)CUDA_TYPE_##name == (int)GGUF_TYPE_##name, #name);
CUDA_FILE_FORMATS(CHECK_NUMBER)
#undef CHECK_NUMBER

int cuda_matrix_known(int type)
{
    return cuda_layout_of(type).known;
}

int cuda_matrix_alike(int a, int b)
{
    return cuda_stored_as(a) == cuda_stored_as(b);
}

unsigned cuda_act_form(int type)
{
    return cuda_layout_of(type).form;
}

size_t cuda_part_bytes(int type, uint32_t n_in)
{
    const struct cuda_layout l = cuda_layout_of(type);
    if (l.chunks == 0)
        return (size_t)CUDA_PART_ROWS * cuda_chunks(n_in) * CUDA_CHUNK_K * sizeof(float);
    const size_t runs = (cuda_chunks(n_in) + l.chunks - 1) / l.chunks;
    return cuda_units_bytes(l.head_bytes) +
           runs * (l.head_bytes + (size_t)l.chunks * l.chunk_bytes);
}

size_t cuda_matrix_bytes(int type, uint32_t n_in, uint32_t n_out)
{
    const size_t parts = n_out / CUDA_PART_ROWS + (n_out % CUDA_PART_ROWS != 0);
    return parts * cuda_part_bytes(type, n_in);
}

size_t cuda_act_bytes(unsigned forms, uint32_t max_rows, uint32_t max_k)
{
    const size_t tiles = max_rows / CUDA_ACT_ROWS + (max_rows % CUDA_ACT_ROWS != 0);
    const size_t group = cuda_act_group(max_rows);
    return group ? (tiles + group - 1) / group * group * cuda_act_tile_bytes(forms, max_k) : 0;
}

/* --- one row --- */

/* A row's run: its head and its first chunk. */
struct run {
    uint32_t row;
    uint8_t *head;
    uint8_t *chunk;
    uint32_t chunk_bytes;
};

typedef uint32_t (*spot_fn)(struct cuda_spot s);

/* Numbers q[n] of `bits` bits from value k of the run on, in the plane that begins at byte `plane`
 * of each chunk. Bits of one number never cross a byte (or are whole ones). */
static inline void put(const struct run *to,
                       uint32_t plane,
                       spot_fn spot,
                       uint32_t bits,
                       uint32_t k,
                       const uint8_t *q,
                       uint32_t n)
{
    const uint8_t mask = (uint8_t)((1u << bits) - 1);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = spot(cuda_spot_of(to->row, (k + i) % CUDA_CHUNK_K));
        uint8_t *chunk = to->chunk + (size_t)((k + i) / CUDA_CHUNK_K) * to->chunk_bytes;
        chunk[plane + at / 8] |= (uint8_t)((q[i] & mask) << at % 8);
    }
}

static void put_u16(const struct run *to, uint32_t e, uint32_t n, uint16_t v)
{
    memcpy(to->head + (size_t)cuda_head_index(to->row, e, n) * 2, &v, 2);
}

static void put_u8(const struct run *to, uint32_t byte, uint32_t e, uint32_t n, uint8_t v)
{
    to->head[byte + cuda_head_index(to->row, e, n)] = v;
}

static void nibbles(const uint8_t qs[16], uint8_t q[32])
{
    for (uint32_t i = 0; i < 16; i++) {
        q[i] = qs[i] & 15;
        q[i + 16] = qs[i] >> 4;
    }
}

static void high_bits(const uint8_t *q, uint32_t n, uint32_t shift, uint8_t *high)
{
    for (uint32_t i = 0; i < n; i++)
        high[i] = q[i] >> shift;
}

static void put_five_bits(const struct run *to, uint32_t k, const uint8_t *q, uint32_t n)
{
    uint8_t high[256];
    high_bits(q, n, 4, high);
    put(to, 0, cuda_at_nibble, 4, k, q, n);
    put(to, 512, cuda_at_fifth, 1, k, high, n);
}

static void fifth_bits(const uint8_t qh[4], uint8_t q[32])
{
    for (uint32_t i = 0; i < 32; i++)
        q[i] |= (uint8_t)((qh[i / 8] >> (i % 8) & 1) << 4);
}

/* Block b (0 or 1) of 32 of a chunk; head: scales of both, then mins of both. */
static void pack_block(int type, const uint8_t *src, const struct run *to, uint32_t b)
{
    const bool has_min = type == GGUF_TYPE_Q4_1 || type == GGUF_TYPE_Q5_1;
    const uint8_t *codes = src + (has_min ? 4 : 2);
    uint16_t d, m;
    uint8_t q[32];
    if (type == GGUF_TYPE_MXFP4) { /* a scale of a byte */
        nibbles(src + 1, q);
        put_u8(to, 0, b, 2, src[0]);
        put(to, 0, cuda_at_fp4, 4, b * 32, q, 32);
        return;
    }
    memcpy(&d, src, sizeof d);
    memcpy(&m, src + 2, sizeof m);
    put_u16(to, b, has_min ? 4 : 2, d);
    if (has_min)
        put_u16(to, 2 + b, 4, m);
    switch (type) {
    case GGUF_TYPE_Q8_0:
        for (uint32_t i = 0; i < 32; i++)
            q[i] = codes[i] ^ 0x80; /* q + 128 */
        put(to, 0, cuda_at_byte, 8, b * 32, q, 32);
        return;
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q5_1:
        nibbles(codes + 4, q);
        fifth_bits(codes, q);
        put_five_bits(to, b * 32, q, 32);
        return;
    case GGUF_TYPE_IQ4_NL:
        nibbles(codes, q);
        put(to, 0, cuda_at_index, 4, b * 32, q, 32);
        return;
    default: /* Q4_0, Q4_1 */
        nibbles(codes, q);
        put(to, 0, cuda_at_nibble, 4, b * 32, q, 32);
    }
}

/* d and dmin; then, for each chunk, its scales and mins. */
static void put_k_scales(const struct run *to, uint16_t d, uint16_t dmin, const uint8_t scales[12])
{
    put_u16(to, 0, 2, d);
    put_u16(to, 1, 2, dmin);
    for (uint32_t g = 0; g < 8; g++) {
        uint8_t scale, min;
        block_k_scale_min(scales, (int)g, &scale, &min);
        put_u8(to, 64 + g / 2 * 64, g % 2, 4, scale);
        put_u8(to, 64 + g / 2 * 64, 2 + g % 2, 4, min);
    }
}

/* scales: of 16 each, with the min in the upper half. */
static void put_two_bits(
    const struct run *to, uint16_t d, uint16_t dmin, const uint8_t scales[16], const uint8_t q[256])
{
    put_u16(to, 0, 2, d);
    put_u16(to, 1, 2, dmin);
    for (uint32_t g = 0; g < 16; g++)
        put_u8(to, 64 + g / 4 * 64, g % 4, 4, scales[g]);
    put(to, 0, cuda_at_two, 2, 0, q, 256);
}

static void pack_q2_k(const uint8_t *src, const struct run *to)
{
    struct block_q2_k b;
    uint8_t q[256];
    memcpy(&b, src, sizeof b);
    block_q2_k_codes(&b, q);
    put_two_bits(to, b.d, b.dmin, b.scales, q);
}

/* d (q - 1) as Q2_K has it: scales and mins of 1. */
static void pack_ternary(int type, const uint8_t *src, const struct run *to)
{
    uint8_t q[256], ones[16];
    uint16_t d;
    if (type == GGUF_TYPE_TQ1_0) {
        struct block_tq1_0 b;
        memcpy(&b, src, sizeof b);
        block_tq1_0_codes(&b, q);
        d = b.d;
    } else {
        struct block_tq2_0 b;
        memcpy(&b, src, sizeof b);
        block_tq2_0_codes(&b, q);
        d = b.d;
    }
    memset(ones, 0x11, sizeof ones);
    put_two_bits(to, d, d, ones, q);
}

static void pack_q3_k(const uint8_t *src, const struct run *to)
{
    struct block_q3_k b;
    uint8_t q[256], high[256];
    memcpy(&b, src, sizeof b);
    block_q3_k_codes(&b, q);
    high_bits(q, 256, 2, high);
    put_u16(to, 0, 1, b.d);
    for (uint32_t g = 0; g < 16; g++)
        put_u8(to, 32 + g / 4 * 64, g % 4, 4, (uint8_t)(block_q3_k_scale(&b, (int)g) + 32));
    put(to, 0, cuda_at_two, 2, 0, q, 256);
    put(to, 256, cuda_at_third, 1, 0, high, 256);
}

static void pack_q4_k(const uint8_t *src, const struct run *to)
{
    struct block_q4_k b;
    memcpy(&b, src, sizeof b);
    put_k_scales(to, b.d, b.dmin, b.scales);
    for (uint32_t half = 0; half < 4; half++) { /* 32 bytes: a group low, the next one high */
        uint8_t q[64];
        for (uint32_t i = 0; i < 32; i++) {
            q[i] = b.qs[half * 32 + i] & 15;
            q[i + 32] = b.qs[half * 32 + i] >> 4;
        }
        put(to, 0, cuda_at_nibble, 4, half * 64, q, 64);
    }
}

static void pack_q5_k(const uint8_t *src, const struct run *to)
{
    struct block_q5_k b;
    uint8_t q[256];
    memcpy(&b, src, sizeof b);
    block_q5_k_codes(&b, q);
    put_k_scales(to, b.d, b.dmin, b.scales);
    put_five_bits(to, 0, q, 256);
}

static void pack_q6_k(const uint8_t *src, const struct run *to)
{
    struct block_q6_k b;
    uint8_t q[256], high[256];
    memcpy(&b, src, sizeof b);
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t half = i / 128, run = i / 32 % 4, j = i % 32;
        q[i] = b.ql[half * 64 + run % 2 * 32 + j] >> (run / 2 * 4) & 15;
        high[i] = b.qh[half * 32 + j] >> (run * 2) & 3;
    }
    put_u16(to, 0, 1, b.d);
    for (uint32_t g = 0; g < 16; g++)
        put_u8(to, 32 + g / 4 * 64, g % 4, 4, (uint8_t)(b.scales[g] + 128));
    put(to, 0, cuda_at_nibble, 4, 0, q, 256);
    put(to, 512, cuda_at_sixth, 2, 0, high, 256);
}

static void pack_iq4_xs(const uint8_t *src, const struct run *to)
{
    struct block_iq4_xs b;
    memcpy(&b, src, sizeof b);
    put_u16(to, 0, 1, b.d);
    for (uint32_t g = 0; g < 8; g++) {
        uint8_t q[32];
        nibbles(b.qs + (size_t)g * 16, q);
        put_u8(to, 32 + g / 2 * 32, g % 2, 2, (uint8_t)(block_iq4_xs_scale(&b, (int)g) + 32));
        put(to, 0, cuda_at_index, 4, g * 32, q, 32);
    }
}

/* Of a format with a grid: its table (values + 128), what d is multiplied by, digits of a point. */
struct grid {
    const uint32_t *points;
    uint32_t n_dims;
    float unit;        /* a scale is d * this, of the row's unit, * (2 scale + 1) */
    uint8_t table[16]; /* digit, or 8 + digit where a sign (of IQ1 the one taken off) says so */
};

static struct grid grid_of(int type)
{
    const struct block_grids *g = &block_grids;
    static const uint8_t iq2[8] = {8, 25, 43}, iq3_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    static const uint8_t iq3_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    struct grid out = {.n_dims = 8, .unit = 0.125f};
    const uint8_t *values = iq2;
    switch (type) {
    case GGUF_TYPE_IQ1_S:
    case GGUF_TYPE_IQ1_M:
        out.points = g->iq1;
        values = NULL;
        break;
    case GGUF_TYPE_IQ2_XXS:
        out.points = g->iq2_xxs;
        break;
    case GGUF_TYPE_IQ2_XS:
        out.points = g->iq2_xs;
        break;
    case GGUF_TYPE_IQ2_S:
        out.points = g->iq2_s;
        break;
    case GGUF_TYPE_IQ3_XXS:
        out = (struct grid){.points = g->iq3_xxs, .n_dims = 4, .unit = 0.25f};
        values = iq3_xxs;
        break;
    default: /* IQ3_S */
        out = (struct grid){.points = g->iq3_s, .n_dims = 4, .unit = 1};
        values = iq3_s;
    }
    for (int i = 0; i < 8; i++) {
        out.table[i] = (uint8_t)(values ? 128 + values[i] : 128 + 8 * (i - 1) + 1);
        out.table[8 + i] = (uint8_t)(values ? 128 - values[i] : 128 + 8 * (i - 1) - 1);
    }
    return out;
}

static void pack_table(int type, const uint8_t *src, const struct run *to)
{
    const struct grid g = grid_of(type);
    struct block_grid_codes codes;
    uint8_t q[256];
    block_grid_codes((enum gguf_type)type, src, &codes);
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t k = i % g.n_dims;
        const uint32_t digit = g.points[codes.index[i / g.n_dims]] >> (k % 4 * 8 + k / 4 * 4) & 7;
        const bool ones = type == GGUF_TYPE_IQ1_S || type == GGUF_TYPE_IQ1_M; /* a sign for all 8 */
        q[i] = (uint8_t)(digit | (codes.signs[i / 8] >> (ones ? 0 : i % 8) & 1) << 3);
    }
    put_u16(to, 0, 1, codes.d);
    for (uint32_t i = 0; i < 16; i++)
        put_u8(to, 32 + i / 4 * 64, i % 4, 4, (uint8_t)(2 * codes.scales[i] + 1));
    memcpy(to->head + CUDA_HEAD_TABLE - sizeof g.table, g.table, sizeof g.table);
    put(to, 0, cuda_at_index, 4, 0, q, 256);
}

/* 64 values of Q1_0 or Q2_0, from value `from` of a block on, as Q4_0 has them. */
static void pack_few_bits(int type, const uint8_t *src, uint32_t from, const struct run *to)
{
    uint8_t q[64];
    uint16_t d;
    memcpy(&d, src, sizeof d);
    for (uint32_t i = 0; i < 64; i++) {
        const uint8_t *qs = src + 2;
        const uint32_t at = from + i;
        q[i] = (uint8_t)(type == GGUF_TYPE_Q1_0 ? 7 + (qs[at / 8] >> (at % 8) & 1) * 2
                                                : 7 + (qs[at / 4] >> (at % 4 * 2) & 3));
    }
    put_u16(to, 0, 2, d);
    put_u16(to, 1, 2, d);
    put(to, 0, cuda_at_nibble, 4, 0, q, 64);
}

/* Scales as kernels read them: without the bit that means nothing, 0 for what would be no number.
 */
static void pack_nvfp4(const uint8_t *src, const struct run *to)
{
    struct block_nvfp4 b;
    uint8_t q[64];
    memcpy(&b, src, sizeof b);
    block_nvfp4_codes(&b, q);
    for (uint32_t i = 0; i < 4; i++)
        put_u8(to, 0, i, 4, b.d[i] == 0x7f ? 0 : b.d[i] & 0x7f);
    put(to, 0, cuda_at_fp4, 4, 0, q, 64);
}

static void pack_super_block(int type, const uint8_t *src, const struct run *to)
{
    if (cuda_stored_as(type) == CUDA_TYPE_TABLE) {
        pack_table(type, src, to);
        return;
    }
    switch (type) {
    case GGUF_TYPE_TQ1_0:
    case GGUF_TYPE_TQ2_0:
        pack_ternary(type, src, to);
        return;
    case GGUF_TYPE_Q2_K:
        pack_q2_k(src, to);
        return;
    case GGUF_TYPE_Q3_K:
        pack_q3_k(src, to);
        return;
    case GGUF_TYPE_Q4_K:
        pack_q4_k(src, to);
        return;
    case GGUF_TYPE_Q5_K:
        pack_q5_k(src, to);
        return;
    case GGUF_TYPE_Q6_K:
        pack_q6_k(src, to);
        return;
    default:
        pack_iq4_xs(src, to);
    }
}

static void pack_float16(const uint8_t *src, uint32_t n_in, uint32_t row, uint8_t *dst)
{
    for (uint32_t k = 0; k < n_in; k++) {
        const uint32_t at = cuda_at_float16(cuda_spot_of(row, k % CUDA_CHUNK_K)) / 8;
        memcpy(dst + (size_t)(k / CUDA_CHUNK_K) * CUDA_CHUNK_F16 + at, src + (size_t)k * 2, 2);
    }
}

/* Block i of row r of a part, in runs of run_bytes. */
static void pack_block_of(
    int type, const uint8_t *block, uint32_t r, uint32_t i, uint8_t *dst, size_t run_bytes)
{
    const struct cuda_layout l = cuda_layout_of(type);
    const uint32_t values = gguf_type_info((enum gguf_type)type)->block_values;
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): formats of blocks have chunks */
    uint8_t *run = dst + (size_t)i * values / (l.chunks * CUDA_CHUNK_K) * run_bytes;
    for (uint32_t k = 0; k < values; k += l.chunks * CUDA_CHUNK_K, run += run_bytes) {
        const struct run to = {r, run, run + l.head_bytes, l.chunk_bytes};
        if (values == 32)
            pack_block(type, block, &to, i % 2);
        else if (type == GGUF_TYPE_NVFP4)
            pack_nvfp4(block, &to);
        else if (values < 256)
            pack_few_bits(type, block, k, &to);
        else
            pack_super_block(type, block, &to);
    }
}

/* --- units --- */

/* What a row's entry of each head begins with, f16: so many d, then mins. d * the format's largest
 * scale is an f16 where d < 2^top, so that D (linear_unpack.cuh) is one; mins are below 2^16, those
 * of a step counted in it. */
struct row_scales {
    uint32_t n_d, n_mins;
    int top, min_step; /* log2 */
};
static struct row_scales row_scales_of(int type)
{
    switch (cuda_stored_as(type)) {
    case CUDA_TYPE_Q4_1:
    case CUDA_TYPE_Q5_1:
        return (struct row_scales){2, 2, 16, 5};
    case CUDA_TYPE_Q2_K: /* scales to 15; TQ1_0, TQ2_0: 1 */
        return (struct row_scales){1, 1, type == GGUF_TYPE_Q2_K ? 12 : 16, 0};
    case CUDA_TYPE_Q4_K: /* 63 */
    case CUDA_TYPE_Q5_K:
        return (struct row_scales){1, 1, 10, 0};
    case CUDA_TYPE_Q3_K: /* -32..31 */
    case CUDA_TYPE_IQ4_XS:
    case CUDA_TYPE_TABLE:
        return (struct row_scales){1, 0, 11, 0};
    case CUDA_TYPE_Q6_K: /* -128..127 */
        return (struct row_scales){1, 0, 9, 0};
    default: /* Q8_0, Q4_0, Q5_0, IQ4_NL */
        return (struct row_scales){2, 0, 16, 0};
    }
}
_Static_assert(CUDA_MIN_STEP == 1u << 5, "row_scales");

/* The most that exponents may be raised by for the largest |v|, 2^e at least, to stay below 2^top;
 * of 0 anything. */
static int most_shift(float v, int top)
{
    return v > 0 ? top - 1 - ilogbf(v) : INT_MAX;
}

/* Row r's f16 in the heads of a part: divided by a power of two that makes of the largest as much
 * as it may be, which is returned: the row's unit. */
static float divide_scales(int type, uint32_t r, uint8_t *heads, size_t runs, size_t run_bytes)
{
    const struct row_scales s = row_scales_of(type);
    const uint32_t n = s.n_d + s.n_mins;
    float largest[2] = {0, 0};
    uint16_t h;
    for (size_t i = 0; i < runs * n; i++) {
        const uint32_t e = (uint32_t)(i % n);
        memcpy(&h, heads + i / n * run_bytes + (size_t)cuda_head_index(r, e, n) * 2, 2);
        const float v = fabsf(f16_to_f32(h));
        if (isfinite(v) && v > largest[e >= s.n_d])
            largest[e >= s.n_d] = v;
    }
    const int of_d = most_shift(largest[0], s.top),
              of_min = most_shift(largest[1], 16 + s.min_step);
    const int shift = of_d < of_min ? of_d : of_min == INT_MAX ? 0 : of_min;
    for (size_t i = 0; i < runs * n; i++) {
        const uint32_t e = (uint32_t)(i % n);
        uint8_t *at = heads + i / n * run_bytes + (size_t)cuda_head_index(r, e, n) * 2;
        memcpy(&h, at, 2);
        h = f32_to_f16(ldexpf(f16_to_f32(h), e < s.n_d ? shift : shift - s.min_step));
        memcpy(at, &h, 2);
    }
    return ldexpf(1, 24 - shift);
}

/* The same of MXFP4's exponents, which become the upper bytes of f16: 2^15 of the row's largest.
 * What is 2^30 times smaller is 0. */
static float divide_exponents(uint32_t r, uint8_t *heads, size_t runs, size_t run_bytes)
{
    int largest = 0;
    for (size_t i = 0; i < runs * 2; i++) {
        const int e = heads[i / 2 * run_bytes + cuda_head_index(r, i % 2, 2)];
        largest = e > largest ? e : largest;
    }
    for (size_t i = 0; i < runs * 2; i++) {
        uint8_t *e = heads + i / 2 * run_bytes + cuda_head_index(r, i % 2, 2);
        *e = (uint8_t)(*e + 30 < largest ? 0 : (*e + 30 - largest) * 4);
    }
    return ldexpf(1, largest - 128);
}

/* Row r's unit, by which what its heads hold is divided. */
static float row_unit(int type, uint32_t r, uint8_t *heads, size_t runs, size_t run_bytes)
{
    if (type == GGUF_TYPE_NVFP4)
        return 0x1p7f; /* of scales by 2^7 and floats by 2^-14; no other could hold more */
    if (type == GGUF_TYPE_MXFP4)
        return divide_exponents(r, heads, runs, run_bytes);
    const float unit = divide_scales(type, r, heads, runs, run_bytes);
    return cuda_stored_as(type) == CUDA_TYPE_TABLE ? unit * grid_of(type).unit : unit;
}

void cuda_part_pack(int type, uint32_t n_in, uint32_t n, const uint8_t *src, uint8_t *dst)
{
    const struct cuda_layout l = cuda_layout_of(type);
    const struct gguf_type_info *info = gguf_type_info((enum gguf_type)type);
    const size_t row_bytes = (size_t)n_in / info->block_values * info->block_bytes;
    const size_t run_bytes = l.head_bytes + (size_t)l.chunks * l.chunk_bytes;
    const size_t part_bytes = cuda_part_bytes(type, n_in);
    uint8_t *runs = dst + cuda_units_bytes(l.head_bytes);
    memset(dst, 0, part_bytes);
    block_grids_fill();
    for (uint32_t r = 0; r < n; r++, src += row_bytes) {
        if (type == GGUF_TYPE_F32)
            memcpy(dst + r * (part_bytes / CUDA_PART_ROWS), src, row_bytes);
        else if (info->block_values == 1)
            pack_float16(src, n_in, r, dst);
        for (uint32_t i = 0; info->block_values > 1 && i < n_in / info->block_values; i++)
            pack_block_of(type, src + (size_t)i * info->block_bytes, r, i, runs, run_bytes);
        if (l.head_bytes > 0) {
            const float unit =
                row_unit(type, r, runs, (part_bytes - CUDA_UNITS_BYTES) / run_bytes, run_bytes);
            memcpy(dst + r * sizeof unit, &unit, sizeof unit);
        }
    }
}
