/* Attention: Q, K and V of what a layer reads, normalised, rotated, stored and attended to. */
#include "model/build.h"
#include "model/keys.h"

#include <math.h>
#include <string.h>

/* No file says it: this one does without the norms of Q and K. */
enum { LLAMA4_MAVERICK_EXPERTS = 128 };

/* Of a layer that attends to K and V of another: its own, which some files have, are left alone. */
static void leave_kv(struct builder *b)
{
    static const char *const stems[] = {"attn_k", "attn_v", "attn_k_norm"};
    for (int i = 0; i < 3; i++) {
        const struct gguf_tensor *t =
            gguf_find_tensor(b->m->gguf, plan_name(b, stems[i], "weight"));
        if (t)
            plan_mark(b, t);
    }
}

/* Each head's query and, behind it, what will gate what the head gathers. */
static void add_gate_of_query(struct builder *b)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    for (int i = 0; i < 2; i++) {
        struct op *op = plan_add(b, OP_HEAD_COPY, BUF_QUERY, i == 0 ? BUF_Q : BUF_HEADS);
        op->n_head = l->n_head;
        op->in_step = 2 * l->head_dim;
        op->out_step = op->n_in = op->n_out = l->head_dim;
        op->front = i == 0;
    }
}

static const char *const qkv_stems[] = {"attn_q", "attn_k", "attn_v"};

/* Of one matrix, whose biases some files have by themselves. */
static void add_fused_qkv(struct builder *b,
                          enum model_buf in,
                          const enum model_buf to[3],
                          const uint32_t rows[3])
{
    const bool apart = !gguf_find_tensor(b->m->gguf, plan_name(b, "attn_qkv", "bias")) &&
                       gguf_find_tensor(b->m->gguf, plan_name(b, "attn_q", "bias"));
    const uint32_t first = b->m->n_ops;
    plan_stacked(b, "attn_qkv", in, to, rows, 3, apart ? ABSENT : b->arch->qkv_bias);
    for (uint32_t i = 0; i < 3 && apart && !b->err; i++)
        b->m->ops[first + i].bias = plan_take(
            b, plan_name(b, qkv_stems[i], "bias"), rows[i], 1, F32_ONLY, b->arch->qkv_bias);
}

static void add_qkv(struct builder *b, enum model_buf in)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    const uint32_t dim = l->head_dim, value = b->m->hp.head_value;
    const enum model_buf bufs[] = {BUF_Q, BUF_K, value ? BUF_HEADS : BUF_V};
    const bool borrowed = l->kv_layer != b->layer;
    const uint32_t n[] = {
        l->n_head * dim, l->n_head_kv * dim, l->n_head_kv * (value ? value : dim)};
    const bool gated = b->arch->gate_in_query;
    if (plan_has(b, "attn_qkv")) {
        const enum model_buf to[] = {gated ? BUF_QUERY : bufs[0], bufs[1], bufs[2]};
        const uint32_t rows[] = {gated ? 2 * n[0] : n[0], n[1], n[2]};
        add_fused_qkv(b, in, to, rows);
        if (gated)
            add_gate_of_query(b);
        return;
    }
    const bool same = b->arch->value_of_key && !plan_has(b, "attn_v");
    for (int i = 0; i < (borrowed ? 1 : same ? 2 : 3); i++)
        plan_linear(b,
                    qkv_stems[i],
                    in,
                    b->m->hp.n_embd,
                    gated && i == 0 ? BUF_QUERY : bufs[i],
                    gated && i == 0 ? 2 * n[i] : n[i],
                    b->arch->qkv_bias);
    if (gated)
        add_gate_of_query(b);
    if (borrowed || !same)
        return;
    struct op *op = plan_add(b, OP_HEAD_COPY, BUF_K, BUF_V);
    op->n_head = l->n_head_kv;
    op->in_step = op->out_step = op->n_in = op->n_out = dim;
}

/* Whether the layer is one of the first, which are rotated whatever they see. */
static bool is_lead(struct builder *b)
{
    uint32_t n_lead = 0;
    if (b->arch->lead_rotated && !b->err)
        b->err = key_u32(b->m, "leading_dense_block_count", &n_lead, b->e);
    return b->layer < n_lead;
}

static enum rope_table rope_of(struct builder *b, bool windowed)
{
    const uint32_t step = b->arch->no_rope_step;
    const struct gguf_kv *pattern =
        b->arch->rope_pattern ? key_find(b->m, "attention.rope_pattern") : NULL;
    bool rotates = true;
    if (pattern && !key_is_flags(pattern, b->m->hp.n_layer)) {
        if (!b->err)
            b->err = err_set(b->e,
                             ERR_FORMAT,
                             "%s.attention.rope_pattern is not %u bools",
                             b->m->arch,
                             b->m->hp.n_layer);
        return ROPE_NONE;
    }
    if (pattern && !key_flag(pattern, b->layer))
        return ROPE_NONE;
    if (b->m->hp.alibi > 0.0f && b->arch->alibi_layers)
        return ROPE_NONE;
    if (b->arch->rope_switch && !b->err)
        b->err = key_bool(b->m, "rope.scaling.finetuned", &rotates, b->e);
    if (!rotates)
        return ROPE_NONE;
    if (step && (b->layer + 1) % step == 0)
        return ROPE_NONE;
    if (b->arch->full_unrotated && b->m->hp.window && !windowed && !is_lead(b))
        return ROPE_NONE;
    return windowed && b->m->ropes[ROPE_WINDOW].inv_freq ? ROPE_WINDOW : ROPE_FULL;
}

/* Queries by a factor for each head, as many times as the head has values; keys without weights. */
static void add_factor_norms(struct builder *b, uint32_t n_q, uint32_t n_kv)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    const uint32_t dim = l->head_dim;
    const uint64_t ne[3] = {dim, l->n_head, 1};
    uint8_t *data = NULL;
    const struct gguf_tensor *w = NULL, *factors = plan_take(b,
                                                             plan_name(b, "attn_q_norm", "weight"),
                                                             1,
                                                             l->n_head,
                                                             F32_ONLY,
                                                             REQUIRED);
    if (factors)
        w = plan_make(b, factors, GGUF_TYPE_F32, ne, dim * sizeof(float), &data);
    for (uint32_t i = 0; w && i < n_q; i++)
        memcpy(data + i * sizeof(float), factors->data + i / dim * sizeof(float), sizeof(float));
    plan_head_norm(b, BUF_Q, n_q, w);
    plan_head_norm(b, BUF_K, n_kv, NULL);
}

/* Of the n values of Q or K, over each head or over the whole row. */
static void add_qk_norm(struct builder *b, const char *stem, enum model_buf buf, uint32_t n)
{
    const bool rows = b->arch->qk_norm == QK_NORM_ROWS;
    const bool bare = b->arch->qk_norm == QK_NORM_BARE, each = b->arch->qk_norm == QK_NORM_EACH;
    const bool own = each || b->arch->qk_norm == QK_NORM_OWN;
    const uint32_t dim = b->m->layers[b->layer].head_dim;
    if (b->arch->qk_norm == QK_PLAIN || (b->arch->qk_norm_optional && !plan_has(b, stem)))
        return;
    const float eps = b->m->hp.norm_eps, other = b->arch->qk_eps;
    if (other > 0.0f && eps > 0.0f && other != eps) /* what makes one the other */
        plan_add(b, OP_SCALE, buf, buf)->scale = sqrtf(eps / other);
    const bool layer = rows && b->norm == NORM_LAYER;
    struct op *op = plan_add(b,
                             layer  ? OP_LAYER_NORM
                             : rows ? OP_NORM
                             : each ? OP_HEAD_LAYER_NORM
                                    : OP_HEAD_NORM,
                             buf,
                             buf);
    op->n_in = op->n_out = n;
    op->w = plan_take(b,
                      plan_name(b, stem, "weight"),
                      rows ? n : dim,
                      own ? n / dim : 1,
                      F32_ONLY,
                      bare ? ABSENT : REQUIRED);
    op->bias = plan_take(b,
                         plan_name(b, stem, "bias"),
                         each ? dim : n,
                         each ? n / dim : 1,
                         F32_ONLY,
                         layer  ? REQUIRED
                         : each ? OPTIONAL
                                : ABSENT);
}

/* The norm that only the feed-forward part of a parallel layer reads, once attention's linears have
 * read theirs: GPT-NeoX's second; of the larger Falcons the first, beside one for attention. */
static void add_second_norm(struct builder *b, bool own_attention_norm)
{
    if (own_attention_norm)
        plan_norm(b, "attn_norm", BUF_X, BUF_H);
    else if (b->arch->second == SECOND_FFN)
        plan_norm(b, "ffn_norm", BUF_X, BUF_H);
}

void plan_attend(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const struct model_layer *l = &b->m->layers[b->layer];
    const uint32_t n_q = l->n_head * l->head_dim, n_kv = l->n_head_kv * l->head_dim;
    const uint32_t n_value = hp->latent ? hp->latent : l->head_dim;
    const bool borrowed = l->kv_layer != b->layer;
    const bool windowed = hparams_windowed(b->m, b->arch, b->layer);
    const enum rope_table rope = rope_of(b, windowed);
    const bool bare = b->arch->qk_norm == QK_NORM_BARE;
    const bool factors = b->arch->qk_norm == QK_NORM_FACTORS;
    const bool norm_last = b->arch->qk_norm == QK_NORM_ROTATED || factors ||
                           (bare && rope != ROPE_NONE && hp->n_expert != LLAMA4_MAVERICK_EXPERTS);
    struct op *op;
    if (norm_last) {
        op = plan_add(b, OP_ROPE, BUF_K, BUF_Q);
        op->rope = rope;
        op->n_head = l->n_head;
        op->n_head_kv = l->n_head_kv;
    }
    if (factors) {
        add_factor_norms(b, n_q, n_kv);
    } else if (norm_last || !bare) {
        add_qk_norm(b, "attn_q_norm", BUF_Q, n_q);
        if (!borrowed)
            add_qk_norm(b, "attn_k_norm", BUF_K, n_kv);
    }
    if (b->arch->value_norm && !borrowed)
        plan_head_norm(b, BUF_V, n_kv, NULL);
    if (borrowed)
        leave_kv(b);
    op = plan_add(b, borrowed ? OP_ROPE : OP_ROPE_STORE, BUF_K, BUF_Q);
    op->in2 = BUF_V;
    op->rope = norm_last ? ROPE_NONE : rope;
    op->temper =
        hp->temper_scale != 0.0f && (b->arch->temper == TEMPER_BY_KEY || rope == ROPE_NONE);
    op->n_head = l->n_head;
    op->n_head_kv = borrowed ? 0 : l->n_head_kv;
    op = plan_add(b, OP_ATTENTION, BUF_Q, BUF_ATT);
    op->layer = (uint16_t)l->kv_layer;
    op->borrowed = borrowed;
    op->n_in = n_q;
    op->n_out = l->n_head * n_value;
    op->n_head = l->n_head;
    op->n_head_kv = l->n_head_kv;
    op->scale = hp->attention_scale;
    op->alibi = hp->alibi;
    op->cap = hp->attention_cap;
    op->window = windowed ? hp->window : 0;
    op->window_kind = b->arch->chunks ? WINDOW_CHUNK : hp->causal ? WINDOW_LAST : WINDOW_AROUND;
    op->w =
        plan_take(b, plan_name(b, "attn_sinks", "weight"), l->n_head, 1, F32_ONLY, b->arch->sinks);
}

static void add_clamps(struct builder *b)
{
    static const enum model_buf bufs[] = {BUF_Q, BUF_K, BUF_V};
    const struct model_layer *l = &b->m->layers[b->layer];
    for (int i = 0; i < 3 && b->m->hp.qkv_clamp > 0.0f; i++) {
        struct op *op = plan_add(b, OP_CLAMP, bufs[i], bufs[i]);
        op->n_in = op->n_out = (i == 0 ? l->n_head : l->n_head_kv) * l->head_dim;
        op->cap = b->m->hp.qkv_clamp;
    }
}

/* A head's values, where these are shorter than keys, behind zeros; and of what attention gathered
 * what it gathered of them. */
static void add_value_copy(struct builder *b, bool gathered)
{
    const struct model_hparams *hp = &b->m->hp;
    const struct model_layer *l = &b->m->layers[b->layer];
    struct op *op = gathered ? plan_add(b, OP_HEAD_COPY, BUF_ATT, BUF_HEADS)
                             : plan_add(b, OP_HEAD_COPY, BUF_HEADS, BUF_V);
    op->n_head = gathered ? l->n_head : l->n_head_kv;
    op->in_step = gathered ? l->head_dim : hp->head_value;
    op->out_step = gathered ? hp->head_value : l->head_dim;
    op->n_in = op->n_out = hp->head_value;
    op->zero = !gathered;
}

/* What attn_gate has for each row: a value for each that attention gathers, or one a head. */
static uint32_t gate_width(struct builder *b)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    const struct gguf_tensor *t =
        b->arch->attention_gate ? gguf_find_tensor(b->m->gguf, plan_name(b, "attn_gate", "weight"))
                                : NULL;
    return t && t->ne[1] == l->n_head ? l->n_head : l->n_head * l->head_dim;
}

/* Of what attention gathered, by n values of HEADS. */
static void add_attention_gate(struct builder *b, enum unary_kind kind, uint32_t n)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    const bool by_head = n == l->n_head, sigmoid = kind == UNARY_SIGMOID;
    if (by_head || !sigmoid)
        plan_unary(b, BUF_HEADS, n, kind);
    if (by_head) {
        struct op *op = plan_add(b, OP_HEAD_SCALE, BUF_HEADS, BUF_ATT);
        op->n_in = n;
        op->n_head = l->n_head;
        op->n_out = l->n_head * l->head_dim;
        return;
    }
    struct op *op = plan_add(b, OP_GATED, BUF_HEADS, BUF_ATT);
    op->in2 = BUF_ATT;
    op->n_in = op->n_out = n;
    op->gate = sigmoid ? GATE_SIGMOID : GATE_PLAIN;
}

/* It joins the residual stream; in some encoders (jina-embeddings-v2-base-code) its sum with what
 * it read does so once more, each time under a norm. */
static void add_result(struct builder *b)
{
    if (b->norms != NORM_OF_SUM || !plan_has(b, "attn_norm_2")) {
        plan_result(b, "post_attention_norm", "attn_output_norm");
        return;
    }
    plan_add(b, OP_ADD, BUF_X, BUF_OUT);
    plan_norm(b, "attn_output_norm", BUF_OUT, BUF_OUT);
    plan_add(b, OP_ADD, BUF_OUT, BUF_X);
    plan_norm(b, "attn_norm_2", BUF_X, BUF_X);
}

void plan_attention(struct builder *b, bool parallel)
{
    const struct model_hparams *hp = &b->m->hp;
    const struct model_layer *l = &b->m->layers[b->layer];
    const enum presence bias = b->arch->out_bias;
    const enum unary_kind gate = b->arch->gate_in_query ? UNARY_SIGMOID : b->arch->attention_gate;
    const uint32_t n_gate = gate_width(b);
    const bool own_norm = b->arch->second == SECOND_ATTENTION && plan_has(b, "attn_norm_2");
    const enum model_buf in = plan_norm_before(b, own_norm ? "attn_norm_2" : "attn_norm");
    if (hp->latent) {
        plan_latent_attention(b, in);
    } else if (l->n_head_kv == 0) { /* a matrix in its place */
        plan_linear(b, "attn_output", in, hp->n_embd, BUF_OUT, hp->n_embd, bias);
    } else {
        add_qkv(b, in);
        if (b->arch->indexed)
            plan_leave_index(b);
        if (b->arch->attention_gate)
            plan_linear(b, "attn_gate", in, hp->n_embd, BUF_HEADS, n_gate, ABSENT);
        if (hp->head_value)
            add_value_copy(b, false);
        if (b->arch->streams)
            plan_beside_attention(b, in);
        if (parallel)
            add_second_norm(b, own_norm);
        add_clamps(b);
        plan_attend(b);
        if (gate)
            add_attention_gate(b, gate, n_gate);
        if (b->arch->sub_norms)
            plan_part_norm(b, "attn_sub_norm", BUF_ATT, l->n_head * l->head_dim);
        if (hp->head_value)
            add_value_copy(b, true);
        plan_linear(b,
                    "attn_output",
                    hp->head_value ? BUF_HEADS : BUF_ATT,
                    l->n_head * (hp->head_value ? hp->head_value : l->head_dim),
                    BUF_OUT,
                    hp->n_embd,
                    bias);
        if (hp->value_scale > 0.0f)
            plan_add(b, OP_SCALE, BUF_OUT, BUF_OUT)->scale = hp->value_scale;
    }
    if (l->recurrent) {
        plan_recurrent(b, in, BUF_SHARED);
        plan_add(b, OP_ADD, BUF_SHARED, BUF_OUT);
    }
    add_result(b);
    if (b->arch->streams)
        plan_add_beside(b);
}
