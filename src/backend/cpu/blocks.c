/* Whole KV blocks as bytes: the same block of every layer, one layer after the other. */
#include "backend/cpu/cpu.h"

#include <string.h>

static uint8_t *block_at(const struct cpu_backend *b, uint32_t layer, uint32_t block)
{
    return b->kv_memory + layer * b->kv_layer_bytes + block * b->kv.block_bytes;
}

void cpu_block_copy(struct backend *base, uint32_t from, uint32_t to)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    for (uint32_t l = 0; l < b->model->hp.n_layer; l++)
        memcpy(block_at(b, l, to), block_at(b, l, from), b->kv.block_bytes);
}

void cpu_block_read(struct backend *base, uint32_t block, void *bytes)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    for (uint32_t l = 0; l < b->model->hp.n_layer; l++)
        memcpy((uint8_t *)bytes + l * b->kv.block_bytes, block_at(b, l, block), b->kv.block_bytes);
}

void cpu_block_write(struct backend *base, uint32_t block, const void *bytes)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    for (uint32_t l = 0; l < b->model->hp.n_layer; l++)
        memcpy(block_at(b, l, block),
               (const uint8_t *)bytes + l * b->kv.block_bytes,
               b->kv.block_bytes);
}
