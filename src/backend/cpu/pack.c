/* Bits of a row to panels: the file's blocks taken apart, and laid as linear_*_impl.h draw them. */
#include "backend/cpu/pack.h"

#include "gguf/blocks.h"

#include <string.h>

void pack_f32(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t i = 0; i < k; i++)
        memcpy(out + ((size_t)i * PANEL_COLS + c) * 4, row + (size_t)i * 4, 4);
}

void pack_f16(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t i = 0; i < k; i++)
        memcpy(out + ((size_t)i * PANEL_COLS + c) * 2, row + (size_t)i * 2, 2);
}

void pack_bf16(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t i = 0; i < k; i++)
        memcpy(out + ((size_t)(i / 2) * PANEL_COLS + c) * 4 + i % 2 * 2, row + (size_t)i * 2, 2);
}

void pack_q8_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 32; b++) {
        const uint8_t *block = row + (size_t)b * sizeof(struct block_q8_0);
        uint8_t *pair = out + (size_t)(b / 2) * (64 + 2 * 512),
                *to = pair + 64 + b % 2 * 512 + c * 4;
        memcpy(pair + b % 2 * 32 + c * 2, block, 2);
        for (uint32_t g = 0; g < 8; g++)
            memcpy(to + g * 64, block + 2 + g * 4, 4);
    }
}

/* The file's q4_0 pairs value j with j + 16, which is just our pairing of k4 and k4 + 4. */
void pack_q4_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 32; b++) {
        const uint8_t *block = row + (size_t)b * sizeof(struct block_q4_0);
        uint8_t *pair = out + (size_t)(b / 2) * (64 + 2 * 256),
                *to = pair + 64 + b % 2 * 256 + c * 4;
        memcpy(pair + b % 2 * 32 + c * 2, block, 2);
        for (uint32_t v = 0; v < 4; v++)
            memcpy(to + v * 64, block + 2 + v * 4, 4);
    }
}

void pack_iq4_nl(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    pack_q4_0(row, k, c, out); /* as it lies, that is Q4_0 */
}

/* 32 values below 16 of column c to four vectors of nibbles. */
static void pack_nibbles(const uint8_t *q, uint32_t c, uint8_t *out)
{
    for (uint32_t v = 0; v < 4; v++) {
        for (uint32_t i = 0; i < 4; i++)
            out[v * 64 + c * 4 + i] = (uint8_t)(q[v * 4 + i] | q[16 + v * 4 + i] << 4);
    }
}

void pack_q4_k(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++) {
        struct block_q4_k block;
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        uint8_t *base = out + (size_t)s * PANEL_Q4_K_BYTES;
        for (uint32_t g = 0; g < 8; g++) {
            uint8_t q[32]; /* two groups share 32 bytes of the file: low, then high nibbles */
            for (uint32_t i = 0; i < 32; i++)
                q[i] = block.qs[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
            uint8_t *pair = base + 64 + (size_t)(g / 2) * (64 + 2 * 256);
            uint8_t *scales = pair + g % 2 * 32 + c;
            block_k_scale_min(block.scales, (int)g, &scales[0], &scales[16]);
            pack_nibbles(q, c, pair + 64 + g % 2 * 256);
        }
        memcpy(base + c * 2, &block.d, 2);
        memcpy(base + 32 + c * 2, &block.dmin, 2);
    }
}

/* 256 six-bit values of a block in order: four strands of 32 in each half. */
static void unpack_q6_k(const struct block_q6_k *b, uint8_t q[256])
{
    for (uint32_t half = 0; half < 2; half++) {
        const uint8_t *ql = b->ql + half * 64, *qh = b->qh + half * 32;
        uint8_t *to = q + half * 128;
        for (uint32_t i = 0; i < 32; i++) {
            to[i] = (uint8_t)((ql[i] & 15) | (qh[i] & 3) << 4);
            to[i + 32] = (uint8_t)((ql[i + 32] & 15) | (qh[i] >> 2 & 3) << 4);
            to[i + 64] = (uint8_t)(ql[i] >> 4 | (qh[i] >> 4 & 3) << 4);
            to[i + 96] = (uint8_t)(ql[i + 32] >> 4 | (qh[i] >> 6) << 4);
        }
    }
}

void pack_q6_k(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++) {
        struct block_q6_k block;
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        uint8_t q[256], low[32];
        unpack_q6_k(&block, q);
        uint8_t *base = out + (size_t)s * PANEL_Q6_K_BYTES;
        for (uint32_t g = 0; g < 8; g++) {
            uint8_t *pair = base + 64 + (size_t)(g / 2) * (64 + 2 * 384);
            uint8_t *group = pair + 64 + g % 2 * 384, *high = group + c * 4;
            for (uint32_t i = 0; i < 32; i++) {
                low[i] = q[g * 32 + i] & 15;
                const uint32_t k4 = i / 4; /* vector k4 / 4, field k4 % 4 */
                high[k4 / 4 * 64 + i % 4] |= (uint8_t)(q[g * 32 + i] >> 4 << (k4 % 4 * 2));
            }
            pack_nibbles(low, c, group + 128);
            pair[g % 2 * 32 + c] = (uint8_t)block.scales[g * 2];
            pair[g % 2 * 32 + 16 + c] = (uint8_t)block.scales[g * 2 + 1];
        }
        memcpy(base + c * 2, &block.d, 2);
    }
}

/* 32 numbers below 32: fifth bits, then nibbles. */
static void pack_five_bits(const uint8_t *q, uint32_t c, uint8_t *out)
{
    uint8_t low[32];
    for (uint32_t i = 0; i < 32; i++) {
        low[i] = q[i] & 15;
        out[c * 4 + i % 4] |= (uint8_t)((q[i] >> 4) << (i / 4));
    }
    pack_nibbles(low, c, out + 64);
}

/* The same from a block of 32 of the file. */
static void pack_five_bit_block(const uint8_t qh[4], const uint8_t qs[16], uint32_t c, uint8_t *out)
{
    uint8_t q[32];
    for (uint32_t i = 0; i < 32; i++)
        q[i] = (uint8_t)((qs[i % 16] >> (i / 16 * 4) & 15) | (qh[i / 8] >> (i % 8) & 1) << 4);
    pack_five_bits(q, c, out);
}

/* A file's 16 bytes of nibbles pair value j with j + 16, which is just our pairing. */
static void pack_nibble_block(const uint8_t qs[16], uint32_t c, uint8_t *out)
{
    for (uint32_t v = 0; v < 4; v++)
        memcpy(out + v * 64 + c * 4, qs + v * 4, 4);
}

/* d and -m of a group, in its line of scales. */
static void pack_scale_min(uint16_t d, uint16_t m, uint32_t c, uint8_t *out)
{
    m ^= 0x8000;
    memcpy(out + c * 2, &d, 2);
    memcpy(out + 32 + c * 2, &m, 2);
}

void pack_q4_1(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 32; b++, out += 64 + 256) {
        struct block_q4_1 block;
        memcpy(&block, row + (size_t)b * sizeof block, sizeof block);
        pack_scale_min(block.d, block.m, c, out);
        pack_nibble_block(block.qs, c, out + 64);
    }
}

void pack_q5_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 32; b++) {
        struct block_q5_0 block;
        memcpy(&block, row + (size_t)b * sizeof block, sizeof block);
        uint8_t *pair = out + (size_t)(b / 2) * (64 + 2 * 320);
        memcpy(pair + b % 2 * 32 + c * 2, &block.d, 2);
        pack_five_bit_block(block.qh, block.qs, c, pair + 64 + b % 2 * 320);
    }
}

void pack_q5_1(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 32; b++, out += 64 + 320) {
        struct block_q5_1 block;
        memcpy(&block, row + (size_t)b * sizeof block, sizeof block);
        pack_scale_min(block.d, block.m, c, out);
        pack_five_bit_block(block.qh, block.qs, c, out + 64);
    }
}

void pack_q5_k(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++, out += PANEL_Q5_K_BYTES) {
        struct block_q5_k block;
        uint8_t q[256];
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        block_q5_k_codes(&block, q);
        memcpy(out + c * 2, &block.d, 2);
        memcpy(out + 32 + c * 2, &block.dmin, 2);
        for (uint32_t g = 0; g < 8; g++) {
            uint8_t *pair = out + 64 + (size_t)(g / 2) * (64 + 2 * 320);
            uint8_t *scales = pair + g % 2 * 32 + c;
            block_k_scale_min(block.scales, (int)g, &scales[0], &scales[16]);
            pack_five_bits(q + (size_t)g * 32, c, pair + 64 + g % 2 * 320);
        }
    }
}

void pack_iq4_xs(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++) {
        struct block_iq4_xs block;
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        uint8_t *two = out + (size_t)(s / 2) * (64 + 2 * PANEL_IQ4_XS_BYTES);
        uint8_t *to = two + 64 + s % 2 * PANEL_IQ4_XS_BYTES;
        memcpy(two + s % 2 * 32 + c * 2, &block.d, 2);
        for (uint32_t g = 0; g < 8; g++) {
            to[g * 16 + c] = (uint8_t)block_iq4_xs_scale(&block, (int)g);
            pack_nibble_block(block.qs + (size_t)g * 16, c, to + 128 + (size_t)g * 256);
        }
    }
}

void pack_mxfp4(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 32; b++) {
        struct block_mxfp4 block;
        memcpy(&block, row + (size_t)b * sizeof block, sizeof block);
        uint8_t *four = out + (size_t)(b / 4) * (64 + 4 * 256);
        four[b % 4 * 16 + c] = block.e;
        pack_nibble_block(block.qs, c, four + 64 + (size_t)(b % 4) * 256);
    }
}

/* As kernels have scales: without the sign that means nothing, and 0 for what would be NaN. */
static uint8_t nvfp4_scale(uint8_t d)
{
    return d == 0x7f ? 0 : d & 0x7f;
}

void pack_nvfp4(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 64; b++, out += 64 + 2 * 256) {
        struct block_nvfp4 block;
        uint8_t q[64];
        memcpy(&block, row + (size_t)b * sizeof block, sizeof block);
        block_nvfp4_codes(&block, q);
        for (uint32_t i = 0; i < 4; i++)
            out[i * 16 + c] = nvfp4_scale(block.d[i]);
        pack_nibbles(q, c, out + 64);
        pack_nibbles(q + 32, c, out + 64 + 256);
    }
}

/* The low two bits of 32 numbers. */
static void pack_two_bits(const uint8_t *q, uint32_t c, uint8_t *out)
{
    for (uint32_t i = 0; i < 32; i++)
        out[i / 16 * 64 + c * 4 + i % 4] |= (uint8_t)((q[i] & 3) << (i / 4 % 4 * 2));
}

void pack_q2_k(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++, out += PANEL_Q2_K_BYTES) {
        struct block_q2_k block;
        uint8_t q[256];
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        block_q2_k_codes(&block, q);
        memcpy(out + c * 2, &block.d, 2);
        memcpy(out + 32 + c * 2, &block.dmin, 2);
        for (uint32_t g = 0; g < 8; g++) {
            uint8_t *pair = out + 64 + (size_t)(g / 2) * (64 + 2 * 128);
            pair[g % 2 * 32 + c] = block.scales[g * 2];
            pair[g % 2 * 32 + 16 + c] = block.scales[g * 2 + 1];
            pack_two_bits(q + (size_t)g * 32, c, pair + 64 + g % 2 * 128);
        }
    }
}

void pack_q3_k(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++) {
        struct block_q3_k block;
        uint8_t q[256];
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        block_q3_k_codes(&block, q);
        uint8_t *two = out + (size_t)(s / 2) * (64 + 2 * PANEL_Q3_K_BYTES);
        memcpy(two + s % 2 * 32 + c * 2, &block.d, 2);
        for (uint32_t g = 0; g < 8; g++) {
            uint8_t *pair = two + 64 + s % 2 * PANEL_Q3_K_BYTES + (size_t)(g / 2) * (64 + 2 * 192);
            uint8_t *group = pair + 64 + g % 2 * 192;
            pair[g % 2 * 32 + c] = (uint8_t)block_q3_k_scale(&block, (int)g * 2);
            pair[g % 2 * 32 + 16 + c] = (uint8_t)block_q3_k_scale(&block, (int)g * 2 + 1);
            pack_two_bits(q + (size_t)g * 32, c, group);
            for (uint32_t i = 0; i < 32; i++)
                group[128 + c * 4 + i % 4] |= (uint8_t)((q[g * 32 + i] >> 2) << (i / 4));
        }
    }
}

void pack_tq2_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++) {
        struct block_tq2_0 block;
        uint8_t q[256];
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        block_tq2_0_codes(&block, q);
        uint8_t *two = out + (size_t)(s / 2) * (64 + 2 * PANEL_TQ2_0_BYTES);
        memcpy(two + s % 2 * 32 + c * 2, &block.d, 2);
        for (uint32_t g = 0; g < 8; g++)
            pack_two_bits(
                q + (size_t)g * 32, c, two + 64 + s % 2 * PANEL_TQ2_0_BYTES + (size_t)g * 128);
    }
}

/* Five digits to the base of three, or what is left of them, as a fraction of 256 rounded up. */
static uint8_t ternary_byte(const uint8_t *q, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 5; i++)
        sum = sum * 3 + (i < n ? q[(size_t)i * 4] : 0);
    return (uint8_t)((sum * 256 + 242) / 243);
}

void pack_tq1_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 256; s++) {
        struct block_tq1_0 block;
        uint8_t q[256];
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        block_tq1_0_codes(&block, q);
        uint8_t *two = out + (size_t)(s / 2) * (64 + 2 * PANEL_TQ1_0_BYTES);
        uint8_t *to = two + 64 + s % 2 * PANEL_TQ1_0_BYTES + c * 4;
        memcpy(two + s % 2 * 32 + c * 2, &block.d, 2);
        for (uint32_t v = 0; v < 13; v++) {
            for (uint32_t i = 0; i < 4; i++)
                to[v * 64 + i] = ternary_byte(q + (size_t)v * 20 + i, v < 12 ? 5 : 4);
        }
    }
}

void pack_q2_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 64; s++) {
        struct block_q2_0 block;
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        uint8_t q[64], *two = out + (size_t)(s / 2) * (64 + 4 * 128);
        memcpy(two + s % 2 * 32 + c * 2, &block.d, 2);
        for (uint32_t i = 0; i < 64; i++)
            q[i] = block.qs[i / 4] >> (i % 4 * 2) & 3;
        pack_two_bits(q, c, two + 64 + s % 2 * 256);
        pack_two_bits(q + 32, c, two + 64 + s % 2 * 256 + 128);
    }
}

void pack_q1_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t s = 0; s < k / 128; s++) {
        struct block_q1_0 block;
        memcpy(&block, row + (size_t)s * sizeof block, sizeof block);
        uint8_t *two = out + (size_t)(s / 2) * (64 + 8 * 64);
        memcpy(two + s % 2 * 32 + c * 2, &block.d, 2);
        for (uint32_t g = 0; g < 4; g++)
            pack_signs(block.qs + (size_t)g * 4, c, two + 64 + s % 2 * 256 + (size_t)g * 64);
    }
}
