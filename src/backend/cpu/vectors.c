#include "backend/cpu/vectors.h"
#include "backend/cpu/kernels.h"
#include "base/mem.h"

#include <string.h>

/* Floats that a vector of n takes: whole cache lines. */
static size_t padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

static float *take(struct vectors *v, size_t n)
{
    float *to = v->data + v->n;
    v->n += padded(n);
    return to;
}

static size_t n_floats(const struct gguf_tensor *t)
{
    return t->n_bytes / sizeof(float);
}

static bool is_table(const struct op *op)
{
    return op->kind == OP_ADD_POSITION || op->kind == OP_ADD_TYPE;
}

static bool has_vector(const struct op *op)
{
    return op->w && (op->kind == OP_NORM || op->kind == OP_LAYER_NORM || op->kind == OP_HEAD_NORM ||
                     op->kind == OP_HEAD_LAYER_NORM || op->kind == OP_HIDDEN ||
                     op->kind == OP_ATTENTION || op->kind == OP_SELECT || op->kind == OP_MUL ||
                     op->kind == OP_CONV || op->kind == OP_RATES || op->kind == OP_RECUR);
}

enum err vectors_alloc(struct vectors *v, const struct model *m, struct err_info *e)
{
    size_t n = 16;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (has_vector(op))
            n += padded(n_floats(op->w));
        if (op->kind == OP_HEAD_LAYER_NORM)
            n += padded(op->n_out);
        if (op->kind == OP_HEAD_NORM && !op->w)
            n += padded(op->head_dim);
        if (op->kind == OP_HEAD_UNIT)
            n += padded(op->head_dim);
        if (op->kind == OP_ATTENTION)
            n += padded(op->n_head);
        if (op->kind == OP_LAYER_NORM)
            n += 2 * padded(op->n_out);
        if (is_table(op))
            n += padded(op->w->ne[0] * op->w->ne[1]);
        if (op->bias)
            n += padded(n_floats(op->bias));
        if (op->factor)
            n += padded(n_floats(op->factor));
    }
    *v = (struct vectors){.data = mem_aligned(n * sizeof(float))};
    if (!v->data)
        return err_set(e, ERR_NOMEM, "no memory for %zu values of norms", n);
    return OK;
}

const float *vectors_copy(struct vectors *v, const struct gguf_tensor *t)
{
    if (!t)
        return NULL;
    float *to = take(v, n_floats(t));
    memcpy(to, t->data, t->n_bytes);
    return to;
}

const float *vectors_table(struct vectors *v, const struct gguf_tensor *t)
{
    float *to = take(v, t->ne[0] * t->ne[1]);
    for (uint64_t i = 0; i < t->ne[1]; i++)
        gguf_dequantize(
            t->type, t->data + i * (t->n_bytes / t->ne[1]), to + i * t->ne[0], t->ne[0]);
    return to;
}

const float *vectors_fill(struct vectors *v, uint32_t n, float value)
{
    float *to = take(v, n);
    for (uint32_t i = 0; i < n; i++)
        to[i] = value;
    return to;
}

const float *vectors_slopes(struct vectors *v, const struct op *op)
{
    float *to = take(v, op->n_head);
    for (uint32_t h = 0; h < op->n_head; h++)
        to[h] = model_alibi_slope(op->alibi, op->n_head, h);
    return to;
}

const float *vectors_taps(struct vectors *v, const struct op *op, uint32_t width)
{
    const uint32_t n = op->n_out;
    float *to = take(v, n_floats(op->w));
    for (uint32_t i = 0; i < width; i++)
        for (uint32_t k = 0; k < n; k++)
            memcpy(&to[(size_t)i * n + k],
                   op->w->data + ((size_t)k * width + i) * sizeof *to,
                   sizeof *to);
    return to;
}

const float *vectors_tiles(struct vectors *v, const struct op *op, uint32_t n_key)
{
    const uint32_t n = op->n_head;
    float *to = take(v, n_floats(op->w));
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t first = k / SELECTIVE_TILE * SELECTIVE_TILE, left = n - first;
        const uint32_t width = left < SELECTIVE_TILE ? left : SELECTIVE_TILE;
        for (uint32_t i = 0; i < n_key; i++)
            memcpy(&to[(size_t)first * n_key + (size_t)i * width + k - first],
                   op->w->data + ((size_t)k * n_key + i) * sizeof *to,
                   sizeof *to);
    }
    return to;
}
