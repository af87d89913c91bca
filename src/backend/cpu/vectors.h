/* What steps and phases read as floats: norms, biases, factors, small tables. Copied from the file
 * (or made, where it has none) into one piece of memory, each from a cache line on. */
#ifndef WEIR_BACKEND_CPU_VECTORS_H
#define WEIR_BACKEND_CPU_VECTORS_H

#include "model/model.h"

struct vectors {
    float *data;
    size_t n; /* floats handed out */
};

/* Room for one call below for each vector of each op. The caller frees v->data. Errors: ERR_NOMEM.
 */
enum err vectors_alloc(struct vectors *v, const struct model *m, struct err_info *e) WEIR_MUST_USE;

/* Of a tensor of floats; NULL for NULL. */
const float *vectors_copy(struct vectors *v, const struct gguf_tensor *t);

/* Of a table of two dimensions, whatever type the file has it in. */
const float *vectors_table(struct vectors *v, const struct gguf_tensor *t);

/* n times the same, for what the file leaves out. */
const float *vectors_fill(struct vectors *v, uint32_t n, float value);

/* By head, what attention takes from scores for each position of distance. */
const float *vectors_slopes(struct vectors *v, const struct op *op);

/* A convolution's weights lie by channel in the file, by row here, so that a vector is of channels.
 */
const float *vectors_taps(struct vectors *v, const struct op *op, uint32_t width);

/* What channels forget by lies by channel in the file, by tiles here, as their states do. */
const float *vectors_tiles(struct vectors *v, const struct op *op, uint32_t n_key);

#endif
