/* Whole KV blocks as bytes: the same block of every layer, one layer after the other; of layers
 * with windows its pane. */
#include "backend/cpu/cpu.h"

#include <string.h>

static uint8_t *block_at(const struct cpu_backend *b, uint32_t layer, struct backend_place at)
{
    const struct layer_kv *l = &b->layers[layer];
    return l->base + (l->in_panes ? at.pane : at.block) * b->kv.block_bytes;
}

void cpu_block_copy(struct backend *base, struct backend_place from, struct backend_place to)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    for (uint32_t l = 0; l < b->model->hp.n_layer; l++)
        memcpy(block_at(b, l, to), block_at(b, l, from), b->kv.block_bytes);
}

void cpu_block_read(struct backend *base, struct backend_place from, void *bytes)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    for (uint32_t l = 0; l < b->model->hp.n_layer; l++)
        memcpy((uint8_t *)bytes + l * b->kv.block_bytes, block_at(b, l, from), b->kv.block_bytes);
}

void cpu_block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    for (uint32_t l = 0; l < b->model->hp.n_layer; l++)
        memcpy(
            block_at(b, l, to), (const uint8_t *)bytes + l * b->kv.block_bytes, b->kv.block_bytes);
}
