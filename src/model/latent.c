/* Attention over a latent. Each head would make its key and value of it, k = K c and v = V c; but
 * q . (K c) = (K^T q) . c, and a sum of V c is V times a sum of c, so that queries are brought to
 * the latent and what is gathered is brought back, and only c is stored (DeepSeek-V2, 2.1.2). */
#include "base/mem.h"
#include "gguf/blocks.h"
#include "model/build.h"

#include <stdlib.h>
#include <string.h>

static void add_linear_by_head(struct builder *b,
                               const struct gguf_tensor *w,
                               enum model_buf in,
                               uint32_t in_step,
                               enum model_buf out,
                               uint32_t out_step)
{
    struct op *op = plan_add(b, OP_HEAD_LINEAR, in, out);
    op->n_head = b->m->layers[b->layer].n_head;
    op->in_step = in_step;
    op->out_step = out_step;
    op->n_in = w ? (uint32_t)w->ne[0] : 0;
    op->n_out = w ? (uint32_t)w->ne[1] : 0;
    op->w = w;
}

static void put_value(enum gguf_type type, uint8_t *data, size_t i, float v)
{
    const uint16_t half = type == GGUF_TYPE_BF16 ? f32_to_bf16(v) : f32_to_f16(v);
    if (type == GGUF_TYPE_F32)
        memcpy(data + i * sizeof v, &v, sizeof v);
    else
        memcpy(data + i * sizeof half, &half, sizeof half);
}

/* Older files have K and V of each head, one below the other: V is copied as it is, K transposed,
 * for which it leaves its blocks (floats stay as they are, others become F16). */
static void split_latent_matrices(struct builder *b,
                                  const struct gguf_tensor *both,
                                  const struct gguf_tensor **to_latent,
                                  const struct gguf_tensor **from_latent)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_head = b->m->layers[b->layer].n_head, n_key = hp->head_key - hp->rope_dims;
    const uint32_t n_value = hp->head_value, n_latent = hp->latent;
    const size_t row_bytes = both->n_bytes / both->ne[1];
    const bool is_float = both->type == GGUF_TYPE_F32 || both->type == GGUF_TYPE_BF16;
    const enum gguf_type type = is_float ? both->type : GGUF_TYPE_F16;
    const uint8_t *from = both->data;
    uint8_t *k, *v;
    const size_t value_bytes = type == GGUF_TYPE_F32 ? 4 : 2;
    const uint64_t ne_k[3] = {n_key, n_latent, n_head}, ne_v[3] = {n_latent, n_value, n_head};
    *to_latent = plan_make(b, both, type, ne_k, n_key * value_bytes, &k);
    if (*to_latent)
        *from_latent = plan_make(b, both, both->type, ne_v, row_bytes, &v);
    if (!*from_latent)
        return;
    float *row = mem_alloc(n_latent * sizeof *row);
    for (size_t h = 0; h < n_head; h++) {
        for (uint32_t i = 0; i < n_key; i++, from += row_bytes) {
            gguf_dequantize(both->type, from, row, n_latent);
            for (uint32_t d = 0; d < n_latent; d++)
                put_value(type, k, (h * n_latent + d) * n_key + i, row[d]);
        }
        memcpy(v + h * n_value * row_bytes, from, n_value * row_bytes);
        from += n_value * row_bytes;
    }
    free(row);
    gguf_drop_pages(b->m->gguf, both, 0, both->n_bytes);
}

/* The matrices that bring each head's query to the latent, and what it gathered from there. */
static void take_latent_matrices(struct builder *b,
                                 const struct gguf_tensor **to_latent,
                                 const struct gguf_tensor **from_latent)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_head = b->m->layers[b->layer].n_head, n_key = hp->head_key - hp->rope_dims;
    if (plan_has(b, "attn_kv_b")) {
        const struct gguf_tensor *both = plan_take(b,
                                                   plan_name(b, "attn_kv_b", "weight"),
                                                   hp->latent,
                                                   (uint64_t)n_head * (n_key + hp->head_value),
                                                   ANY_TYPE,
                                                   REQUIRED);
        if (both)
            split_latent_matrices(b, both, to_latent, from_latent);
        return;
    }
    *to_latent = plan_take3(
        b, plan_name(b, "attn_k_b", "weight"), n_key, hp->latent, n_head, ANY_TYPE, REQUIRED);
    *from_latent = plan_take3(b,
                              plan_name(b, "attn_v_b", "weight"),
                              hp->latent,
                              hp->head_value,
                              n_head,
                              ANY_TYPE,
                              REQUIRED);
}

void plan_leave_index(struct builder *b)
{
    static const char *const names[] = {"indexer.attn_q_b.weight",
                                        "indexer.attn_k.weight",
                                        "indexer.k_norm.weight",
                                        "indexer.k_norm.bias",
                                        "indexer.proj.weight",
                                        "indexer.q_proj.weight",
                                        "indexer.k_proj.weight",
                                        "indexer.q_norm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct gguf_tensor *t = gguf_find_tensor(b->m->gguf, plan_bare_name(b, names[i]));
        if (t)
            plan_mark(b, t);
    }
}

/* What each head gathered, by value, or by head where the matrix has so many rows, times a sigmoid
 * of what attention reads. */
static void add_gate(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_head = b->m->layers[b->layer].n_head, n = n_head * hp->head_value;
    const struct gguf_tensor *w = gguf_find_tensor(b->m->gguf, plan_name(b, "attn_gate", "weight"));
    if (!w && b->arch->gate_optional)
        return;
    if (w && w->ne[1] == n) {
        plan_linear(b, "attn_gate", in, hp->n_embd, BUF_QUERY, n, ABSENT);
        struct op *op = plan_add(b, OP_GATED, BUF_QUERY, BUF_HEADS);
        op->in2 = BUF_HEADS;
        op->n_in = op->n_out = n;
        op->gate = GATE_SIGMOID;
        return;
    }
    plan_linear(b, "attn_gate", in, hp->n_embd, BUF_QUERY, n_head, ABSENT);
    plan_unary(b, BUF_QUERY, n_head, b->arch->attention_gate);
    struct op *op = plan_add(b, OP_HEAD_SCALE, BUF_QUERY, BUF_HEADS);
    op->n_in = op->n_head = n_head;
    op->n_out = n_head * hp->head_value;
    op->head_dim = hp->head_value;
}

void plan_latent_attention(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n_head = b->m->layers[b->layer].n_head, n_embd = hp->n_embd;
    const struct gguf_tensor *to_latent = NULL, *from_latent = NULL;
    take_latent_matrices(b, &to_latent, &from_latent);
    if (b->arch->indexed)
        plan_leave_index(b);
    if (hp->q_latent) {
        plan_linear(b, "attn_q_a", in, n_embd, BUF_QUERY, hp->q_latent, ABSENT);
        plan_linear(b, "attn_kv_a_mqa", in, n_embd, BUF_K, hp->head_dim, ABSENT);
        plan_part_norm(b, "attn_q_a_norm", BUF_QUERY, hp->q_latent);
        plan_linear(
            b, "attn_q_b", BUF_QUERY, hp->q_latent, BUF_HEADS, n_head * hp->head_key, ABSENT);
    } else {
        plan_linear(b, "attn_q", in, n_embd, BUF_HEADS, n_head * hp->head_key, ABSENT);
        plan_linear(b, "attn_kv_a_mqa", in, n_embd, BUF_K, hp->head_dim, ABSENT);
    }
    plan_part_norm(b, "attn_kv_a_norm", BUF_K, hp->latent);
    add_linear_by_head(b, to_latent, BUF_HEADS, hp->head_key, BUF_Q, hp->head_dim);
    struct op *op = plan_add(b, OP_HEAD_COPY, BUF_HEADS, BUF_Q);
    op->n_head = n_head;
    op->in_step = hp->head_key;
    op->out_step = hp->head_dim;
    op->n_in = op->n_out = hp->rope_dims;
    plan_attend(b);
    add_linear_by_head(b, from_latent, BUF_ATT, hp->latent, BUF_HEADS, hp->head_value);
    if (b->arch->attention_gate)
        add_gate(b, in);
    plan_linear(b, "attn_output", BUF_HEADS, n_head * hp->head_value, BUF_OUT, n_embd, ABSENT);
}
