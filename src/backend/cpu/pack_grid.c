/* Rows of formats with grids to panels, as linear_grid_impl.h draws them. */
#include "backend/cpu/pack.h"

#include "gguf/grids.h"

#include <string.h>

/* What of the drawing differs from format to format. */
struct shape {
    enum gguf_type type;
    size_t block_bytes;    /* in a panel, of all columns */
    uint32_t scale_bytes;  /* 0: in the upper bits */
    uint32_t upper_bytes;  /* of a group; 8: nibbles of two groups in 16 bytes */
    uint32_t n_upper_bits; /* of a point's number, beyond its low eight */
    uint32_t n_points;     /* of a group: 4 or 8 */
    bool has_signs;
};

void pack_signs(const uint8_t bits[4], uint32_t c, uint8_t *out)
{
    for (uint32_t g = 0; g < 8; g++)
        out[g * 8 + c / 2] |= (uint8_t)((bits[g / 2] >> (g % 2 * 4) & 15) << (c % 2 * 4));
}

/* Of group g the bits above a point's low eight, with what IQ1 keeps beside them. */
static void pack_upper(const struct shape *s,
                       const struct block_grid_codes *codes,
                       uint32_t g,
                       uint32_t c,
                       uint8_t *to)
{
    const uint32_t width = s->type == GGUF_TYPE_IQ1_M ? 4 : s->n_upper_bits;
    uint32_t bits = 0;
    for (uint32_t j = 0; j < s->n_points; j++)
        bits |= (uint32_t)(codes->index[g * s->n_points + j] >> 8) << (j * width);
    if (s->type == GGUF_TYPE_IQ1_S)
        bits |= (uint32_t)codes->scales[g * 2] << 12 | (uint32_t)codes->signs[g * 4] << 15;
    for (uint32_t j = 0; s->type == GGUF_TYPE_IQ1_M && j < 4; j++)
        bits |= (uint32_t)codes->signs[g * 4 + j] << (j * 4 + 3);
    if (s->upper_bytes == 32) {
        to[g * 32 + c * 2] = (uint8_t)bits;
        to[g * 32 + c * 2 + 1] = (uint8_t)(bits >> 8);
    } else if (s->upper_bytes == 16) {
        to[g * 16 + c] = (uint8_t)bits;
    } else if (s->upper_bytes == 8) {
        to[g / 2 * 16 + c] |= (uint8_t)(bits << (g % 2 * 4));
    }
}

static void pack_scales(const struct shape *s,
                        const struct block_grid_codes *codes,
                        uint32_t c,
                        uint8_t *to)
{
    for (uint32_t i = 0; i < 16; i++) { /* of 16 values each */
        if (s->scale_bytes == 128)
            to[i / 2 * 16 + c] |= (uint8_t)(codes->scales[i] << (i % 2 * 4));
        else if (s->scale_bytes == 64 && i % 2 == 0)
            to[i / 4 * 16 + c] |= (uint8_t)(codes->scales[i] << (i / 2 % 2 * 4));
    }
}

static void pack_grid(struct shape s, const uint8_t *row, uint32_t k, uint32_t c, uint8_t *panel)
{
    const size_t block_bytes = gguf_type_info(s.type)->block_bytes;
    const size_t group_bytes = (size_t)s.n_points * 16 + (s.has_signs ? 64 : 0);
    for (uint32_t b = 0; b < k / 256; b++) {
        struct block_grid_codes codes;
        block_grid_codes(s.type, row + b * block_bytes, &codes);
        uint8_t *two = panel + (size_t)(b / 2) * (64 + 2 * s.block_bytes);
        uint8_t *block = two + 64 + b % 2 * s.block_bytes;
        memcpy(two + b % 2 * 32 + c * 2, &codes.d, 2);
        pack_scales(&s, &codes, c, block);
        for (uint32_t g = 0; g < 8; g++) {
            uint8_t *group =
                block + s.scale_bytes + (size_t)8 * s.upper_bytes + (size_t)g * group_bytes;
            pack_upper(&s, &codes, g, c, block + s.scale_bytes);
            for (uint32_t j = 0; j < s.n_points; j++)
                group[j * 16 + c] = (uint8_t)codes.index[g * s.n_points + j];
            if (s.has_signs)
                pack_signs(codes.signs + (size_t)g * 4, c, group + (size_t)s.n_points * 16);
        }
    }
}

#define DEFINE_PACK(NAME, name, ...)                                                               \
    void pack_##name(const uint8_t *row, uint32_t k, uint32_t c, uint8_t *panel)                   \
    {                                                                                              \
        const struct shape s = {GGUF_TYPE_##NAME, PANEL_##NAME##_BYTES, __VA_ARGS__};              \
        pack_grid(s, row, k, c, panel);                                                            \
    }

DEFINE_PACK(IQ1_S, iq1_s, 0, 32, 3, 4, false)
DEFINE_PACK(IQ1_M, iq1_m, 128, 32, 3, 4, false)
DEFINE_PACK(IQ2_XXS, iq2_xxs, 64, 0, 0, 4, true)
DEFINE_PACK(IQ2_XS, iq2_xs, 128, 8, 1, 4, true)
DEFINE_PACK(IQ2_S, iq2_s, 128, 16, 2, 4, true)
DEFINE_PACK(IQ3_XXS, iq3_xxs, 64, 0, 0, 8, true)
DEFINE_PACK(IQ3_S, iq3_s, 64, 16, 1, 8, true)
