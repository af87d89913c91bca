/* Formats in which several values together are a point of a grid: IQ1, IQ2 and IQ3.
 *
 * A block of 256 holds, for each 8 values (IQ1, IQ2) or 4 (IQ3), the number of a point, and for
 * each 16 or 32 a scale of three or four bits:
 *
 *     IQ1_S IQ1_M            w = d / 4 * (scale + 1/2) * (8 * (digit - 1) + 1)   or - 1
 *     IQ2_XXS IQ2_XS IQ2_S   w = d / 4 * (scale + 1/2) * +-{8, 25, 43}[digit]
 *     IQ3_XXS                w = d / 2 * (scale + 1/2) * +-{4, 12, 20, 28, 36, 44, 52, 62}[digit]
 *     IQ3_S                  w = d * 2 * (scale + 1/2) * +-(2 * digit + 1)
 *
 * These products are exact in f32. A grid is what makes the format: of all 3^8 (8^4) vectors of
 * digits the 256 to 2048 that the format knows, in ascending order with the first digit as the
 * least significant. It is therefore kept as a set (grids.c). */
#ifndef WEIR_GGUF_GRIDS_H
#define WEIR_GGUF_GRIDS_H

#include "gguf/blocks.h"

/* Of a point, digit k is bits 8 * (k % 4) + 4 * (k / 4) and up, four of them: so two masks yield
 * the bytes of four digits each. Zero until block_grids_fill. */
struct block_grids {
    uint32_t iq1[2048];
    uint32_t iq2_xxs[256];
    uint32_t iq2_xs[512];
    uint32_t iq2_s[1024];
    uint32_t iq3_xxs[256]; /* of four digits */
    uint32_t iq3_s[512];
};
extern struct block_grids block_grids;

/* Fills block_grids, once. Any thread; called by all in this folder that reads the grids. */
void block_grids_fill(void);

/* A block, taken apart. */
struct block_grid_codes {
    uint16_t d;         /* f16 */
    uint16_t index[64]; /* of points; IQ1 and IQ2 have 32 */
    uint8_t
        signs[32]; /* of 8 values each: bit k negates; of IQ1 1 where one is taken off, else 0 */
    uint8_t scales[16]; /* of 16 values each */
};

/* src: a block of one of the formats above, unaligned or not. */
void block_grid_codes(enum gguf_type type, const void *src, struct block_grid_codes *out);

/* Its 256 values. */
void block_grid_expand(enum gguf_type type, const void *src, float *out);

#endif
