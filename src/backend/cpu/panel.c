#include "backend/cpu/panel.h"

#include "backend/cpu/pack.h"

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
    case GGUF_TYPE_Q4_1:
        *out = PANEL_Q4_1;
        return true;
    case GGUF_TYPE_Q5_0:
        *out = PANEL_Q5_0;
        return true;
    case GGUF_TYPE_Q5_1:
        *out = PANEL_Q5_1;
        return true;
    case GGUF_TYPE_Q5_K:
        *out = PANEL_Q5_K;
        return true;
    case GGUF_TYPE_IQ4_NL:
        *out = PANEL_IQ4_NL;
        return true;
    case GGUF_TYPE_IQ4_XS:
        *out = PANEL_IQ4_XS;
        return true;
    case GGUF_TYPE_MXFP4:
        *out = PANEL_MXFP4;
        return true;
    case GGUF_TYPE_NVFP4:
        *out = PANEL_NVFP4;
        return true;
    case GGUF_TYPE_Q2_K:
        *out = PANEL_Q2_K;
        return true;
    case GGUF_TYPE_Q3_K:
        *out = PANEL_Q3_K;
        return true;
    case GGUF_TYPE_IQ1_S:
        *out = PANEL_IQ1_S;
        return true;
    case GGUF_TYPE_IQ1_M:
        *out = PANEL_IQ1_M;
        return true;
    case GGUF_TYPE_IQ2_XXS:
        *out = PANEL_IQ2_XXS;
        return true;
    case GGUF_TYPE_IQ2_XS:
        *out = PANEL_IQ2_XS;
        return true;
    case GGUF_TYPE_IQ2_S:
        *out = PANEL_IQ2_S;
        return true;
    case GGUF_TYPE_IQ3_XXS:
        *out = PANEL_IQ3_XXS;
        return true;
    case GGUF_TYPE_IQ3_S:
        *out = PANEL_IQ3_S;
        return true;
    case GGUF_TYPE_TQ1_0:
        *out = PANEL_TQ1_0;
        return true;
    case GGUF_TYPE_TQ2_0:
        *out = PANEL_TQ2_0;
        return true;
    case GGUF_TYPE_Q1_0:
        *out = PANEL_Q1_0;
        return true;
    case GGUF_TYPE_Q2_0:
        *out = PANEL_Q2_0;
        return true;
    default:
        return false;
    }
}

/* Blocks of 256 that share a line of scales in twos. */
static size_t blocks_in_twos(uint32_t k, size_t block_bytes)
{
    return (size_t)k / 256 * block_bytes + ((size_t)k / 256 + 1) / 2 * 64;
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
    case PANEL_IQ4_NL:
        n = (size_t)k / 32 * 256 + ((size_t)k / 32 + 1) / 2 * 64;
        break;
    case PANEL_Q4_K:
        n = (size_t)k / 256 * PANEL_Q4_K_BYTES;
        break;
    case PANEL_Q6_K:
        n = (size_t)k / 256 * PANEL_Q6_K_BYTES;
        break;
    case PANEL_Q4_1:
        n = (size_t)k / 32 * (64 + 256);
        break;
    case PANEL_Q5_0:
        n = (size_t)k / 32 * 320 + ((size_t)k / 32 + 1) / 2 * 64;
        break;
    case PANEL_Q5_1:
        n = (size_t)k / 32 * (64 + 320);
        break;
    case PANEL_Q5_K:
        n = (size_t)k / 256 * PANEL_Q5_K_BYTES;
        break;
    case PANEL_IQ4_XS:
        n = (size_t)k / 256 * PANEL_IQ4_XS_BYTES + ((size_t)k / 256 + 1) / 2 * 64;
        break;
    case PANEL_MXFP4:
        n = (size_t)k / 32 * 256 + ((size_t)k / 32 + 3) / 4 * 64;
        break;
    case PANEL_NVFP4:
        n = (size_t)k / 64 * (64 + 2 * 256);
        break;
    case PANEL_Q2_K:
        n = (size_t)k / 256 * PANEL_Q2_K_BYTES;
        break;
    case PANEL_Q3_K:
        n = (size_t)k / 256 * PANEL_Q3_K_BYTES + ((size_t)k / 256 + 1) / 2 * 64;
        break;
    case PANEL_IQ1_S:
        n = blocks_in_twos(k, PANEL_IQ1_S_BYTES);
        break;
    case PANEL_IQ1_M:
        n = blocks_in_twos(k, PANEL_IQ1_M_BYTES);
        break;
    case PANEL_IQ2_XXS:
        n = blocks_in_twos(k, PANEL_IQ2_XXS_BYTES);
        break;
    case PANEL_IQ2_XS:
        n = blocks_in_twos(k, PANEL_IQ2_XS_BYTES);
        break;
    case PANEL_IQ2_S:
        n = blocks_in_twos(k, PANEL_IQ2_S_BYTES);
        break;
    case PANEL_IQ3_XXS:
        n = blocks_in_twos(k, PANEL_IQ3_XXS_BYTES);
        break;
    case PANEL_IQ3_S:
        n = blocks_in_twos(k, PANEL_IQ3_S_BYTES);
        break;
    case PANEL_TQ1_0:
        n = blocks_in_twos(k, PANEL_TQ1_0_BYTES);
        break;
    case PANEL_TQ2_0:
        n = blocks_in_twos(k, PANEL_TQ2_0_BYTES);
        break;
    case PANEL_Q1_0:
        n = (size_t)k / 32 * 64 + ((size_t)k / 128 + 1) / 2 * 64;
        break;
    case PANEL_Q2_0:
        n = (size_t)k / 32 * 128 + ((size_t)k / 64 + 1) / 2 * 64;
        break;
    case N_PANEL_FORMATS:
        break;
    }
    return (n + 63) / 64 * 64;
}

void panel_pack(enum panel_format format, const struct gguf_tensor *t, uint32_t panel, uint8_t *out)
{
    const uint32_t k = (uint32_t)t->ne[0];
    const uint64_t n_rows = t->ne[1], first = (uint64_t)panel * PANEL_COLS;
    const size_t row_bytes = t->n_bytes / n_rows;
    memset(out, 0, panel_bytes(format, k)); /* missing columns have scale 0; some or bits in */
    for (uint32_t c = 0; c < PANEL_COLS && first + c < n_rows; c++) {
        const uint8_t *row = t->data + (first + c) * row_bytes;
        pack_column(format, row, k, c, out);
    }
}
