#include "backend/cpu/panel.h"

#include <string.h>

bool panel_format_of(enum gguf_type type, enum panel_format *out)
{
    switch (type) {
    case GGUF_TYPE_F32:
        *out = PANEL_F32;
        return true;
    case GGUF_TYPE_F16:
        *out = PANEL_F16;
        return true;
    case GGUF_TYPE_BF16:
        *out = PANEL_BF16;
        return true;
    case GGUF_TYPE_Q8_0:
        *out = PANEL_Q8_0;
        return true;
    case GGUF_TYPE_Q4_0:
        *out = PANEL_Q4_0;
        return true;
    case GGUF_TYPE_Q4_K:
        *out = PANEL_Q4_K;
        return true;
    case GGUF_TYPE_Q6_K:
        *out = PANEL_Q6_K;
        return true;
    default:
        return false;
    }
}

size_t panel_bytes(enum panel_format format, uint32_t k)
{
    size_t n = 0;
    switch (format) {
    case PANEL_F32:
        n = (size_t)k * 64;
        break;
    case PANEL_F16:
        n = (size_t)k * 32;
        break;
    case PANEL_BF16:
        n = ((size_t)k + 1) / 2 * 64;
        break;
    case PANEL_Q8_0:
        n = (size_t)k / 32 * 512 + ((size_t)k / 32 + 1) / 2 * 64;
        break;
    case PANEL_Q4_0:
        n = (size_t)k / 32 * 256 + ((size_t)k / 32 + 1) / 2 * 64;
        break;
    case PANEL_Q4_K:
        n = (size_t)k / 256 * PANEL_Q4_K_BYTES;
        break;
    case PANEL_Q6_K:
        n = (size_t)k / 256 * PANEL_Q6_K_BYTES;
        break;
    case N_PANEL_FORMATS:
        break;
    }
    return (n + 63) / 64 * 64;
}

static void pack_floats(const uint8_t *row, uint32_t k, size_t size, uint32_t c, uint8_t *out)
{
    for (uint32_t i = 0; i < k; i++)
        memcpy(out + ((size_t)i * PANEL_COLS + c) * size, row + i * size, size);
}

static void pack_bf16(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t i = 0; i < k; i++)
        memcpy(out + ((size_t)(i / 2) * PANEL_COLS + c) * 4 + i % 2 * 2, row + (size_t)i * 2, 2);
}

static void pack_q8_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
{
    for (uint32_t b = 0; b < k / 32; b++) {
        const uint8_t *block = row + (size_t)b * sizeof(struct block_q8_0);
        uint8_t *pair = out + (size_t)(b / 2) * (64 + 2 * 512),
                *to = pair + 64 + b % 2 * 512 + c * 4;
        memcpy(pair + b % 2 * 32 + c * 2, block, 2);
        for (uint32_t g = 0; g < 8; g++) {
            uint32_t four;
            memcpy(&four, block + 2 + g * 4, 4);
            four ^= 0x80808080u; /* q + 128 */
            memcpy(to + g * 64, &four, 4);
        }
    }
}

/* The file's q4_0 pairs value j with j + 16, which is just our pairing of k4 and k4 + 4. */
static void pack_q4_0(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
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

/* 32 values below 16 of column c to four vectors of nibbles. */
static void pack_nibbles(const uint8_t *q, uint32_t c, uint8_t *out)
{
    for (uint32_t v = 0; v < 4; v++) {
        for (uint32_t i = 0; i < 4; i++)
            out[v * 64 + c * 4 + i] = (uint8_t)(q[v * 4 + i] | q[16 + v * 4 + i] << 4);
    }
}

static void pack_q4_k(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
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
            block_q4_k_group(&block, (int)g, &scales[0], &scales[16]);
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

static void pack_q6_k(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *out)
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

void panel_pack(enum panel_format format, const struct gguf_tensor *t, uint32_t panel, uint8_t *out)
{
    const uint32_t k = (uint32_t)t->ne[0];
    const uint64_t n_rows = t->ne[1], first = (uint64_t)panel * PANEL_COLS;
    const size_t row_bytes = t->n_bytes / n_rows;
    memset(out, 0, panel_bytes(format, k)); /* missing columns have scale 0; q6_k ors bits in */
    for (uint32_t c = 0; c < PANEL_COLS && first + c < n_rows; c++) {
        const uint8_t *row = t->data + (first + c) * row_bytes;
        switch (format) {
        case PANEL_F32:
            pack_floats(row, k, 4, c, out);
            break;
        case PANEL_F16:
            pack_floats(row, k, 2, c, out);
            break;
        case PANEL_BF16:
            pack_bf16(row, k, c, out);
            break;
        case PANEL_Q8_0:
            pack_q8_0(row, k, c, out);
            break;
        case PANEL_Q4_0:
            pack_q4_0(row, k, c, out);
            break;
        case PANEL_Q4_K:
            pack_q4_k(row, k, c, out);
            break;
        case PANEL_Q6_K:
            pack_q6_k(row, k, c, out);
            break;
        case N_PANEL_FORMATS:
            break;
        }
    }
}
