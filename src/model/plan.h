/* Tensors checked and laid out as ops; used by model.c only. */
#ifndef WEIR_MODEL_PLAN_H
#define WEIR_MODEL_PLAN_H

#include "model/arch.h"

/* Fill m->ops, m->buf_width and m->weight_bytes from m->hp and the file's tensors. Every tensor of
 * the file must find its place: one that is left over would change the answer. */
enum err plan_build(struct model *m, const struct arch *arch, struct err_info *e) WEIR_MUST_USE;

#endif
