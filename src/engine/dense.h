/* Two matrices behind the pooling of embeddings: v becomes third * (second * v), as sentence
 * encoders (EmbeddingGemma) have it whose converter kept them, dense_2 and dense_3.
 *
 *      second [mid][n_embd]      third [n_embd][mid]      f32, copied: the file may go
 *
 * Operations 4 n_embd mid, bytes 8 n_embd mid, for each text: 4.7 million multiply-adds of
 * EmbeddingGemma's. A sum is of 16 lanes, those by pairs. */
#ifndef WEIR_ENGINE_DENSE_H
#define WEIR_ENGINE_DENSE_H

#include "model/model.h"

struct dense;

/* *out is NULL where the file has no such matrices. n_workers: that may call dense_apply at once.
 * Errors: ERR_NOMEM. */
enum err dense_create(const struct model *m,
                      uint32_t n_workers,
                      struct dense **out,
                      struct err_info *e) WEIR_MUST_USE;
void dense_destroy(struct dense *d); /* NULL is fine */

/* v[n_embd] in place; NULL leaves it as it is. Thread: worker `worker`. Allocates: never. */
void dense_apply(const struct dense *d, uint32_t worker, float *v);

#endif
