/* The architectures Weir knows: one row each. What a row cannot say, an op says. */
#ifndef WEIR_MODEL_ARCH_H
#define WEIR_MODEL_ARCH_H

#include "model/model.h"

/* Whether a kind of tensor belongs to the architecture. */
enum presence { ABSENT, OPTIONAL, REQUIRED };

struct arch {
    const char *name; /* general.architecture, and the prefix of its metadata keys */
    enum rope_kind rope;
    enum presence qkv_bias; /* attn_{q,k,v}.bias */
    enum presence qk_norm;  /* attn_{q,k}_norm.weight, over each head before rotation */
};

/* NULL when there is no such row. */
const struct arch *arch_find(const char *name, size_t len);

/* "llama, qwen2, qwen3" for messages. Static storage. */
const char *arch_list(void);

#endif
