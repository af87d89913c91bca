/* Values to blocks: the way back of gguf_dequantize.
 *
 * Each block is chosen by itself, so as to make the sum of squared errors small: candidate scales
 * are tried, each with the numbers that rounding gives, and the least-squares scale for these
 * numbers is kept if it is the best so far. Scales are then rounded to what the block can store,
 * and the numbers rounded once more for the scales as stored. The same values give the same bytes,
 * whatever comes before or after them. */
#ifndef WEIR_GGUF_QUANTIZE_H
#define WEIR_GGUF_QUANTIZE_H

#include "gguf/blocks.h"

/* The magnitude up to which all values find a scale that their block can store: 8e6 for Q8_0.
 * Larger ones may come out smaller. 0 for types that gguf_quantize does not know; it knows F16,
 * Q4_0, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K. */
float gguf_quantize_limit(enum gguf_type type);

/* out = the blocks of n finite values, n a multiple of the type's block_values. Any thread;
 * allocates nothing. */
void gguf_quantize(enum gguf_type type, const float *x, void *out, size_t n);

#endif
