#include "backend/backend.h"

#include <string.h>

static const char *const names[] = {
    [KV_F32] = "f32", [KV_F16] = "f16", [KV_BF16] = "bf16", [KV_Q8_0] = "q8_0"};

const char *kv_type_name(enum kv_type t)
{
    return names[t];
}

enum err kv_type_parse(const char *s, enum kv_type *out)
{
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(s, names[i]) == 0) {
            *out = (enum kv_type)i;
            return OK;
        }
    }
    return ERR_INVALID;
}

size_t kv_row_bytes(enum kv_type t, uint32_t head_dim)
{
    switch (t) {
    case KV_F32:
        return (size_t)head_dim * 4;
    case KV_F16:
    case KV_BF16:
        return (size_t)head_dim * 2;
    case KV_Q8_0: /* 32 values share an f32 scale */
        return (size_t)head_dim + (head_dim + 31) / 32 * 4;
    }
    return 0;
}

size_t backend_kv_read_bytes(const struct model *m, const struct op *op, enum kv_type t)
{
    return kv_row_bytes(t, op->head_dim) * (m->hp.latent ? 1 : 2) * op->n_head_kv;
}

/* K and V of a block of all layers that store them, or only of those with windows. */
static size_t bytes_of(const struct model *m, enum kv_type t, uint32_t block_tokens, bool windowed)
{
    size_t n = 0;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (op->kind == OP_ATTENTION && !op->borrowed && (op->window > 0 || !windowed))
            n += backend_kv_read_bytes(m, op, t);
    }
    return n * block_tokens;
}

size_t backend_kv_block_bytes(const struct model *m, enum kv_type t, uint32_t block_tokens)
{
    return bytes_of(m, t, block_tokens, false);
}

size_t backend_kv_pane_bytes(const struct model *m, enum kv_type t, uint32_t block_tokens)
{
    return bytes_of(m, t, block_tokens, true);
}
