#include "model/build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool *used_at(struct builder *b, const struct gguf_tensor *t)
{
    return &b->used[t - gguf_tensor_at(b->m->gguf, 0)];
}

void plan_mark(struct builder *b, const struct gguf_tensor *t)
{
    *used_at(b, t) = true;
}

const struct gguf_tensor *plan_take_shape(struct builder *b,
                                          const char *name,
                                          const uint64_t ne[4],
                                          enum values values,
                                          enum presence presence)
{
    const bool f32_only = values == F32_ONLY;
    if (b->err || presence == ABSENT)
        return NULL;
    const struct gguf_tensor *t = gguf_find_tensor(b->m->gguf, name);
    if (!t) {
        if (presence == REQUIRED)
            b->err = err_set(b->e, ERR_FORMAT, "tensor %s is missing", name);
        return NULL;
    }
    const bool again = *used_at(b, t);
    plan_mark(b, t);
    if (memcmp(t->ne, ne, sizeof t->ne) != 0) {
        b->err = err_set(b->e,
                         ERR_FORMAT,
                         "tensor %s has shape %llu x %llu x %llu x %llu, expected %llu x %llu x "
                         "%llu%s",
                         name,
                         (unsigned long long)t->ne[0],
                         (unsigned long long)t->ne[1],
                         (unsigned long long)t->ne[2],
                         (unsigned long long)t->ne[3],
                         (unsigned long long)ne[0],
                         (unsigned long long)ne[1],
                         (unsigned long long)ne[2],
                         ne[3] > 1 ? ", of several" : "");
        return NULL;
    }
    if (f32_only ? t->type != GGUF_TYPE_F32 : !gguf_type_is_computed(t->type)) {
        b->err = err_set(b->e,
                         ERR_UNSUPPORTED,
                         "tensor %s has type %s, which is not supported%s",
                         name,
                         gguf_type_name((uint32_t)t->type),
                         f32_only ? " here" : "");
        return NULL;
    }
    b->m->weight_bytes += again ? 0 : t->n_bytes; /* gate and up of experts may be one */
    return t;
}

const struct gguf_tensor *plan_take3(struct builder *b,
                                     const char *name,
                                     uint64_t cols,
                                     uint64_t rows,
                                     uint64_t depth,
                                     enum values values,
                                     enum presence presence)
{
    const uint64_t ne[4] = {cols, rows, depth, 1};
    return plan_take_shape(b, name, ne, values, presence);
}

const struct gguf_tensor *plan_take(struct builder *b,
                                    const char *name,
                                    uint64_t cols,
                                    uint64_t rows,
                                    enum values values,
                                    enum presence presence)
{
    return plan_take3(b, name, cols, rows, 1, values, presence);
}

const struct gguf_tensor *plan_factor(struct builder *b, const struct gguf_tensor *w, uint64_t n)
{
    static const char weight[] = ".weight";
    char name[96];
    if (!w || (w->type != GGUF_TYPE_NVFP4 && !b->arch->scaled) || w->name.len < sizeof weight)
        return NULL;
    const int stem = (int)(w->name.len - (sizeof weight - 1));
    snprintf(name, sizeof name, "%.*s.input_scale", stem, w->name.data);
    const struct gguf_tensor *ignored = gguf_find_tensor(b->m->gguf, name);
    if (ignored)
        plan_mark(b, ignored);
    snprintf(name, sizeof name, "%.*s.scale", stem, w->name.data);
    const struct gguf_tensor *t = plan_take(b, name, n, 1, F32_ONLY, OPTIONAL);
    for (uint64_t i = 0; t && i < n; i++) {
        float v;
        memcpy(&v, t->data + i * sizeof v, sizeof v);
        if (!isfinite(v) && !b->err)
            b->err = err_set(b->e, ERR_FORMAT, "tensor %s holds what is no number", name);
    }
    return t;
}

/* What the file calls the layer: of two stacks the high one's stand behind the low one's. */
static uint32_t named(const struct builder *b)
{
    const uint32_t pass = b->layer / b->n_named;
    const bool high = b->n_low_pass && (pass + 1) % (b->n_low_pass + 1) == 0;
    return b->layer % b->n_named + (high ? b->n_named : 0);
}

const char *plan_name(const struct builder *b, const char *stem, const char *kind)
{
    static _Thread_local char name[96];
    snprintf(name, sizeof name, "blk.%u.%s.%s", named(b), stem, kind);
    return name;
}

const char *plan_bare_name(const struct builder *b, const char *stem)
{
    static _Thread_local char name[96];
    snprintf(name, sizeof name, "blk.%u.%s", named(b), stem);
    return name;
}

bool plan_has(const struct builder *b, const char *stem)
{
    return gguf_find_tensor(b->m->gguf, plan_name(b, stem, "weight")) != NULL;
}

/* Where the next of n goes. */
static uint32_t next_of(struct builder *b, uint32_t *n, uint32_t most, const char *what)
{
    if (*n < most)
        return (*n)++;
    if (!b->err)
        b->err = err_set(b->e,
                         ERR_UNSUPPORTED,
                         "%s: layer %u needs more %s than a plan has room for, %u",
                         b->m->arch,
                         b->layer,
                         what,
                         most);
    return most - 1;
}

struct op *plan_add(struct builder *b, enum op_kind kind, enum model_buf in, enum model_buf out)
{
    struct op *op = &b->m->ops[next_of(b, &b->m->n_ops, b->most_ops, "operations")];
    *op =
        (struct op){.kind = kind, .layer = (uint16_t)b->layer, .in = in, .out = out, .scale = 1.0f};
    op->head_dim = b->m->layers[b->layer].head_dim;
    op->n_in = b->m->buf_width[in];
    op->n_out = b->m->buf_width[out];
    return op;
}

struct gguf_tensor *plan_part(struct builder *b, const struct gguf_tensor *of)
{
    struct gguf_tensor *p =
        &b->m->parts[next_of(b, &b->m->n_parts, b->most_parts, "parts of tensors")];
    *p = *of;
    return p;
}

struct gguf_tensor *plan_make(struct builder *b,
                              const struct gguf_tensor *of,
                              enum gguf_type type,
                              const uint64_t ne[3],
                              size_t row_bytes,
                              uint8_t **data)
{
    char shown[96];
    struct gguf_tensor *p = plan_part(b, of);
    if (b->err)
        return NULL;
    const size_t n_bytes = row_bytes * ne[1] * ne[2];
    uint8_t *bytes = malloc(n_bytes);
    if (!bytes) {
        b->err = err_set(b->e,
                         ERR_NOMEM,
                         "no memory for the matrices that are made of tensor %s",
                         gguf_show(of->name, shown, sizeof shown));
        return NULL;
    }
    p->type = type;
    memcpy(p->ne, ne, 3 * sizeof *ne);
    p->n_bytes = n_bytes;
    p->data = *data = b->m->made[b->m->n_made++] = bytes;
    return p;
}

struct op *plan_linear_of(struct builder *b,
                          const struct gguf_tensor *w,
                          enum model_buf in,
                          uint32_t n_in,
                          enum model_buf out,
                          uint32_t n_out)
{
    struct op *op = plan_add(b, OP_LINEAR, in, out);
    op->n_in = n_in;
    op->n_out = n_out;
    op->w = w;
    op->factor = plan_factor(b, w, 1);
    return op;
}

struct op *plan_linear(struct builder *b,
                       const char *stem,
                       enum model_buf in,
                       uint32_t n_in,
                       enum model_buf out,
                       uint32_t n_out,
                       enum presence bias)
{
    const struct gguf_tensor *w =
        plan_take(b, plan_name(b, stem, "weight"), n_in, n_out, ANY_TYPE, REQUIRED);
    struct op *op = plan_linear_of(b, w, in, n_in, out, n_out);
    op->bias = plan_take(b, plan_name(b, stem, "bias"), n_out, 1, F32_ONLY, bias);
    return op;
}

void plan_product(struct builder *b,
                  enum gate_kind kind,
                  enum model_buf gate,
                  enum model_buf in,
                  enum model_buf out)
{
    struct op *op = plan_add(b, OP_GATED, gate, out);
    op->in2 = in;
    op->gate = kind;
}

void plan_copy(struct builder *b, enum model_buf in, uint32_t from, enum model_buf out, uint32_t to)
{
    const uint32_t n = b->m->hp.n_embd;
    struct op *op = plan_add(b, OP_HEAD_COPY, in, out);
    op->n_head = 1;
    op->in_step = (from + 1) * n; /* whose last n */
    op->out_step = (to + 1) * n;
    op->n_in = op->n_out = n;
}
