/* Who reads what in a plan: for backends that make one of several ops. */
#ifndef WEIR_MODEL_USES_H
#define WEIR_MODEL_USES_H

#include "model/model.h"

/* Is `buf` read by an op after op i before another op writes all of it? */
bool plan_reads_later(const struct model *m, uint32_t i, enum model_buf buf);

/* The last op that needs all rows: it reads a row's token or its place in the text, or leaves
 * behind what other rows read, K and V or a state; or the MIX of experts that were selected before
 * such an op. From there on only those rows need go on whose logits or hidden states are wanted: of
 * a prompt its last, through the last layer's attention and feed-forward part, or through all
 * layers that borrow another's K and V. A row's angles go with it, and attention has to know its
 * position. */
uint32_t plan_last_storing(const struct model *m);

/* The add that follows op i, a linear, if nothing else uses what that puts out: then the linear can
 * add by itself, to the add's `out`. Else NULL. */
const struct op *plan_joined_add(const struct model *m, uint32_t i);

/* Two linears of the same rows, the first of which leaves them as they are. */
bool plan_same_input(const struct op *a, const struct op *b);

#endif
