/* The oracle: a model's plan evaluated the obvious way, in double precision, from dequantised
 * weights. No panels, no cache, no threads. What backends compute is held against it. */
#ifndef WEIR_TESTS_ORACLE_H
#define WEIR_TESTS_ORACLE_H

#include "model/model.h"

/* logits [n, n_vocab] of one sequence at positions 0..n-1. Allocates; aborts when memory is out. */
void oracle_logits(const struct model *m, const int32_t *tokens, uint32_t n, float *logits);

/* What the whole plan leaves in a buffer: result [n, width of the buffer], of every row, also where
 * the plan is over some rows only. */
void oracle_run(
    const struct model *m, const int32_t *tokens, uint32_t n, enum model_buf buf, float *result);

/* Of recurrent.c: an op of recurrent layers, over n rows of bufs [n, buf_width]; false: it is
 * another. */
bool oracle_recurrent(const struct model *m, const struct op *op, double *const *bufs, uint32_t n);

#endif
