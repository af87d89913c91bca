/* Whole KV blocks as bytes: the same block of every layer, one layer after the other; of layers
 * with windows its pane. */
#include "backend/cpu/cpu.h"

#include <string.h>

static uint8_t *block_at(const struct layer_kv *l, struct backend_place at)
{
    return l->base + (l->in_panes ? at.pane : at.block) * l->kv.block_bytes;
}

void cpu_block_copy(struct backend *base, struct backend_place from, struct backend_place to)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    for (const struct layer_kv *l = b->layers; l < b->layers + b->model->hp.n_layer; l++)
        memcpy(block_at(l, to), block_at(l, from), l->kv.block_bytes);
}

bool cpu_block_read(struct backend *base, struct backend_place from, void *bytes)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    uint8_t *out = bytes;
    for (const struct layer_kv *l = b->layers; l < b->layers + b->model->hp.n_layer; l++) {
        memcpy(out, block_at(l, from), l->kv.block_bytes);
        out += l->kv.block_bytes;
    }
    return true;
}

void cpu_block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    const struct cpu_backend *b = (const struct cpu_backend *)base;
    const uint8_t *in = bytes;
    for (const struct layer_kv *l = b->layers; l < b->layers + b->model->hp.n_layer; l++) {
        memcpy(block_at(l, to), in, l->kv.block_bytes);
        in += l->kv.block_bytes;
    }
}
