/* The oracle: a model's plan evaluated the obvious way, in double precision, from dequantised
 * weights. No panels, no cache, no threads; for tests. */
#ifndef WEIR_BACKEND_CPU_REFERENCE_H
#define WEIR_BACKEND_CPU_REFERENCE_H

#include "model/model.h"

/* logits [n, n_vocab] of one sequence at positions 0..n-1. Allocates; aborts when memory is out. */
void reference_logits(const struct model *m, const int32_t *tokens, uint32_t n, float *logits);

/* What the whole plan leaves in a buffer: result [n, width of the buffer], of every row, also where
 * the plan is over some rows only. */
void reference_run(
    const struct model *m, const int32_t *tokens, uint32_t n, enum model_buf buf, float *result);

/* out[n_rows] = w x for the first n_rows rows of a matrix; x [ne[0]]. */
void reference_matvec(const struct gguf_tensor *w, const double *x, double *out, uint64_t n_rows);

/* An op of recurrent layers, over n rows of bufs [n, buf_width]; false: it is another. */
bool reference_recurrent(const struct model *m,
                         const struct op *op,
                         double *const *bufs,
                         uint32_t n);

#endif
