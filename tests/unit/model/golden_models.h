/* The golden models as the tests of model/ load them. */
#ifndef WEIR_TEST_GOLDEN_MODELS_H
#define WEIR_TEST_GOLDEN_MODELS_H

#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define ARCHS TEST_DATA "/golden/architectures/"
#define VARIANTS TEST_DATA "/golden/variants/"
#define FAMILIES TEST_DATA "/golden/families/"
#define RECURRENT TEST_DATA "/golden/recurrent/"
#define ENCODERS TEST_DATA "/golden/encoders/"
#define BERT ENCODERS "bert.f32.gguf"
#define BERT_RANK ENCODERS "bert-rank.f32.gguf"

static inline struct model *load(const char *path)
{
    struct model *m;
    struct err_info e;
    if (model_load(path, &m, &e) != OK)
        fail_msg("%s: %s", path, e.text);
    return m;
}

static inline const struct op *find_op(const struct model *m, enum op_kind kind, uint32_t layer)
{
    for (uint32_t i = 0; i < m->n_ops; i++) {
        if (m->ops[i].kind == kind && m->ops[i].layer == layer)
            return &m->ops[i];
    }
    fail_msg("no op of kind %d in layer %u", (int)kind, layer);
    return NULL;
}

#endif
