#include "model/plan.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define OPS_PER_LAYER 20

/* State of one build: the first error sticks, so that the plan below reads as the maths. */
struct builder {
    struct model *m;
    uint32_t layer;
    uint64_t n_used; /* tensors that found their place */
    enum err err;
    struct err_info *e;
};

/* Tensor `name` of the given shape (cols = row length), or NULL if it may be absent and is, or on
 * error. f32_only: norms and biases. */
static const struct gguf_tensor *take(struct builder *b,
                                      const char *name,
                                      uint64_t cols,
                                      uint64_t rows,
                                      bool f32_only,
                                      enum presence presence)
{
    if (b->err || presence == ABSENT)
        return NULL;
    const struct gguf_tensor *t = gguf_find_tensor(b->m->gguf, name);
    if (!t) {
        if (presence == REQUIRED)
            b->err = err_set(b->e, ERR_FORMAT, "tensor %s is missing", name);
        return NULL;
    }
    b->n_used++;
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != 1 || t->ne[3] != 1) {
        b->err = err_set(b->e,
                         ERR_FORMAT,
                         "tensor %s has shape %llu x %llu x %llu x %llu, expected %llu x %llu",
                         name,
                         (unsigned long long)t->ne[0],
                         (unsigned long long)t->ne[1],
                         (unsigned long long)t->ne[2],
                         (unsigned long long)t->ne[3],
                         (unsigned long long)cols,
                         (unsigned long long)rows);
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
    b->m->weight_bytes += t->n_bytes;
    return t;
}

/* Name of a tensor of the layer under construction; valid until the next call. */
static const char *layer_name(const struct builder *b, const char *suffix)
{
    static _Thread_local char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", b->layer, suffix);
    return name;
}

static struct op *add(struct builder *b, enum op_kind kind, enum model_buf in, enum model_buf out)
{
    struct op *op = &b->m->ops[b->m->n_ops++];
    *op = (struct op){.kind = kind, .layer = (uint16_t)b->layer, .in = in, .out = out};
    op->n_in = b->m->buf_width[in];
    op->n_out = b->m->buf_width[out];
    return op;
}

static void add_norm(struct builder *b, const char *name, enum model_buf in, enum model_buf out)
{
    add(b, OP_NORM, in, out)->w = take(b, name, b->m->buf_width[in], 1, true, REQUIRED);
}

static void add_head_norm(struct builder *b,
                          const char *suffix,
                          enum model_buf buf,
                          enum presence presence)
{
    uint32_t head_dim = b->m->hp.head_dim;
    const struct gguf_tensor *w = take(b, layer_name(b, suffix), head_dim, 1, true, presence);
    if (w)
        add(b, OP_HEAD_NORM, buf, buf)->w = w;
}

static void add_linear(
    struct builder *b, const char *stem, enum model_buf in, enum model_buf out, enum presence bias)
{
    struct op *op = add(b, OP_LINEAR, in, out);
    char suffix[40];
    snprintf(suffix, sizeof suffix, "%s.weight", stem);
    op->w = take(b, layer_name(b, suffix), op->n_in, op->n_out, false, REQUIRED);
    snprintf(suffix, sizeof suffix, "%s.bias", stem);
    op->bias = take(b, layer_name(b, suffix), op->n_out, 1, true, bias);
}

static void add_layer(struct builder *b, const struct arch *arch, float attention_scale)
{
    add_norm(b, layer_name(b, "attn_norm.weight"), BUF_X, BUF_H);
    add_linear(b, "attn_q", BUF_H, BUF_Q, arch->qkv_bias);
    add_linear(b, "attn_k", BUF_H, BUF_K, arch->qkv_bias);
    add_linear(b, "attn_v", BUF_H, BUF_V, arch->qkv_bias);
    add_head_norm(b, "attn_q_norm.weight", BUF_Q, arch->qk_norm);
    add_head_norm(b, "attn_k_norm.weight", BUF_K, arch->qk_norm);
    add(b, OP_ROPE_STORE, BUF_K, BUF_Q)->in2 = BUF_V;
    add(b, OP_ATTENTION, BUF_Q, BUF_ATT)->scale = attention_scale;
    add_linear(b, "attn_output", BUF_ATT, BUF_OUT, ABSENT);
    add(b, OP_ADD, BUF_OUT, BUF_X);

    add_norm(b, layer_name(b, "ffn_norm.weight"), BUF_X, BUF_H);
    add_linear(b, "ffn_gate", BUF_H, BUF_GATE, ABSENT);
    add_linear(b, "ffn_up", BUF_H, BUF_UP, ABSENT);
    add(b, OP_GATED_SILU, BUF_GATE, BUF_GATE)->in2 = BUF_UP;
    add_linear(b, "ffn_down", BUF_GATE, BUF_OUT, ABSENT);
    add(b, OP_ADD, BUF_OUT, BUF_X);
}

/* The embedding, and the output matrix, which may be the same one. */
static const struct gguf_tensor *add_embed(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const struct gguf_tensor *embd =
        take(b, "token_embd.weight", hp->n_embd, hp->n_vocab, false, REQUIRED);
    struct op *op = add(b, OP_EMBED, BUF_X, BUF_X);
    op->w = embd;
    return embd;
}

static void set_widths(struct model *m)
{
    const struct model_hparams *hp = &m->hp;
    uint32_t *w = m->buf_width;
    w[BUF_X] = w[BUF_H] = w[BUF_OUT] = hp->n_embd;
    w[BUF_Q] = w[BUF_ATT] = hp->n_head * hp->head_dim;
    w[BUF_K] = w[BUF_V] = hp->n_head_kv * hp->head_dim;
    w[BUF_GATE] = w[BUF_UP] = hp->n_ff;
    w[BUF_LOGITS] = hp->n_vocab;
}

/* Tensors that the plan has no place for. rope_freqs was used by model.c. */
static enum err check_leftovers(struct builder *b)
{
    uint64_t n = gguf_n_tensors(b->m->gguf);
    if (gguf_find_tensor(b->m->gguf, "rope_freqs.weight"))
        b->n_used++;
    if (b->n_used == n)
        return OK;
    return err_set(
        b->e,
        ERR_UNSUPPORTED,
        "the file holds %llu tensors of which architecture %s as Weir knows it uses %llu: "
        "a variant that is not supported",
        (unsigned long long)n,
        b->m->arch,
        (unsigned long long)b->n_used);
}

enum err plan_build(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct builder b = {.m = m, .e = e};
    set_widths(m);
    m->ops = mem_zalloc((size_t)m->hp.n_layer * OPS_PER_LAYER + 4, sizeof *m->ops);

    const struct gguf_tensor *embd = add_embed(&b);
    float scale = (float)(1.0 / __builtin_sqrt((double)m->hp.head_dim));
    for (b.layer = 0; b.layer < m->hp.n_layer && !b.err; b.layer++)
        add_layer(&b, arch, scale);
    b.layer = 0;
    add_norm(&b, "output_norm.weight", BUF_X, BUF_H);
    const struct gguf_tensor *out =
        take(&b, "output.weight", m->hp.n_embd, m->hp.n_vocab, false, OPTIONAL);
    add(&b, OP_LOGITS, BUF_H, BUF_LOGITS)->w = out ? out : embd;
    return b.err ? b.err : check_leftovers(&b);
}
