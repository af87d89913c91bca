#include "model/plan.h"

#include "base/mem.h"
#include "model/build.h"
#include "model/keys.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPS_PER_LAYER = 64, /* at most */
    OPS_BESIDE = 24,
    PARTS_PER_LAYER = 13, /* q k v and gate up, with biases, and a recurrent part's three */
    MADE_PER_LAYER = 2,
    LLAMA4_MAVERICK_EXPERTS = 128 /* no file says it: this one does without the norms of Q and K */
};

/* What a norm multiplies by and adds: of the tensors NAME.weight and NAME.bias. */
struct norm_parts {
    const struct gguf_tensor *w, *bias;
};

static struct norm_parts take_norm(struct builder *b, const char *name)
{
    const enum norm_kind kind = b->arch->norm;
    const uint32_t n = b->m->hp.n_embd;
    char w[96], bias[96];
    snprintf(w, sizeof w, "%s.weight", name);
    if (b->arch->bare_norms && !gguf_find_tensor(b->m->gguf, w))
        snprintf(w, sizeof w, "%s", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    return (struct norm_parts){
        plan_take(b, w, n, 1, F32_ONLY, kind == NORM_LAYER_BARE ? ABSENT : REQUIRED),
        plan_take(b, bias, n, 1, F32_ONLY, kind == NORM_LAYER ? REQUIRED : ABSENT)};
}

/* Of rows of n_embd values, as the architecture normalises them. */
static void add_norm(struct builder *b,
                     struct norm_parts parts,
                     enum model_buf in,
                     enum model_buf out)
{
    struct op *op = plan_add(b, b->arch->norm == NORM_RMS ? OP_NORM : OP_LAYER_NORM, in, out);
    op->w = parts.w;
    op->bias = parts.bias;
}

void plan_norm(struct builder *b, const char *stem, enum model_buf in, enum model_buf out)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", b->layer, stem);
    add_norm(b, take_norm(b, name), in, out);
}

struct op *plan_head_norm(struct builder *b,
                          enum model_buf buf,
                          uint32_t n,
                          const struct gguf_tensor *w)
{
    struct op *op = plan_add(b, OP_HEAD_NORM, buf, buf);
    op->n_in = op->n_out = n;
    op->w = w;
    return op;
}

/* Of the n values of Q or K, over each head or over the whole row. */
static void add_qk_norm(struct builder *b, const char *stem, enum model_buf buf, uint32_t n)
{
    const bool rows = b->arch->qk_norm == QK_NORM_ROWS;
    const bool bare = b->arch->qk_norm == QK_NORM_BARE, each = b->arch->qk_norm == QK_NORM_EACH;
    const uint32_t dim = b->m->layers[b->layer].head_dim;
    if (b->arch->qk_norm == QK_PLAIN || (b->arch->qk_norm_optional && !plan_has(b, stem)))
        return;
    struct op *op = plan_add(b,
                             rows   ? OP_NORM
                             : each ? OP_HEAD_LAYER_NORM
                                    : OP_HEAD_NORM,
                             buf,
                             buf);
    op->n_in = op->n_out = n;
    op->w = plan_take(b,
                      plan_name(b, stem, "weight"),
                      rows ? n : dim,
                      each ? n / dim : 1,
                      F32_ONLY,
                      bare ? ABSENT : REQUIRED);
}

/* Rows first .. first + n - 1 of a matrix, or values of a vector, as a tensor of their own. */
static const struct gguf_tensor *part(struct builder *b,
                                      const struct gguf_tensor *t,
                                      uint64_t first,
                                      uint64_t n)
{
    if (!t)
        return NULL;
    assert(b->m->n_parts < b->m->hp.n_layer * PARTS_PER_LAYER);
    struct gguf_tensor *p = &b->m->parts[b->m->n_parts++];
    const int dim = t->ne[1] > 1 ? 1 : 0;
    const size_t bytes = t->n_bytes / t->ne[dim];
    *p = *t;
    p->ne[dim] = n;
    p->data = t->data + first * bytes;
    p->n_bytes = n * bytes;
    return p;
}

void plan_stacked(struct builder *b,
                  const char *stem,
                  enum model_buf in,
                  const enum model_buf *outs,
                  const uint32_t *n_outs,
                  int n,
                  enum presence presence)
{
    const uint32_t n_in = b->m->buf_width[in];
    uint64_t rows = 0, at = 0;
    for (int i = 0; i < n; i++)
        rows += n_outs[i];
    const struct gguf_tensor *w =
        plan_take(b, plan_name(b, stem, "weight"), n_in, rows, ANY_TYPE, REQUIRED);
    const struct gguf_tensor *bias =
        plan_take(b, plan_name(b, stem, "bias"), rows, 1, F32_ONLY, presence);
    const struct gguf_tensor *factor = plan_factor(b, w, 1);
    for (int i = 0; i < n; at += n_outs[i++]) {
        struct op *op = plan_add(b, OP_LINEAR, in, outs[i]);
        op->n_out = n_outs[i];
        op->w = part(b, w, at, n_outs[i]);
        op->bias = part(b, bias, at, n_outs[i]);
        op->factor = factor;
    }
}

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

static void add_qkv(struct builder *b, enum model_buf in)
{
    static const enum model_buf bufs[] = {BUF_Q, BUF_K, BUF_V};
    static const char *const stems[] = {"attn_q", "attn_k", "attn_v"};
    const struct model_layer *l = &b->m->layers[b->layer];
    const uint32_t dim = l->head_dim;
    const bool borrowed = l->kv_layer != b->layer;
    const uint32_t n[] = {l->n_head * dim, l->n_head_kv * dim, l->n_head_kv * dim};
    const bool gated = b->arch->gate_in_query;
    if (plan_has(b, "attn_qkv") && !gated) {
        plan_stacked(b, "attn_qkv", in, bufs, n, 3, b->arch->qkv_bias);
        return;
    }
    const bool same = b->arch->value_of_key && !plan_has(b, "attn_v");
    for (int i = 0; i < (borrowed ? 1 : same ? 2 : 3); i++)
        plan_linear(b,
                    stems[i],
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
    if (pattern && (pattern->kind != GGUF_ARRAY || pattern->elem_kind != GGUF_BOOL ||
                    pattern->n_elems < b->m->hp.n_layer)) {
        if (!b->err)
            b->err = err_set(b->e,
                             ERR_FORMAT,
                             "%s.attention.rope_pattern is not %u bools",
                             b->m->arch,
                             b->m->hp.n_layer);
        return ROPE_NONE;
    }
    if (pattern && !gguf_elem(pattern, b->layer).b)
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

/* The norm before a sub-layer, where there is one; returns what the sub-layer reads. */
static enum model_buf add_norm_before(struct builder *b, const char *stem)
{
    if (!(b->arch->norms & NORM_BEFORE))
        return BUF_X;
    if (b->arch->first_bare && b->layer == 0 && strcmp(stem, "attn_norm") == 0 &&
        !plan_has(b, stem))
        return BUF_X;
    plan_norm(b, stem, BUF_X, BUF_H);
    return BUF_H;
}

/* What a sub-layer put out, normalised where the architecture does so, joins the residual stream.
 */
static void add_result(struct builder *b, const char *norm, const char *norm_of_sum)
{
    if (b->arch->norms & NORM_AFTER)
        plan_norm(b, norm, BUF_OUT, BUF_OUT);
    plan_add(b, OP_ADD, BUF_OUT, BUF_X)->scale = b->m->hp.residual_scale;
    if (b->arch->norms & NORM_OF_SUM)
        plan_norm(b, norm_of_sum, BUF_X, BUF_X);
}

/* Whether attention and the feed-forward part of this layer read the same residual stream. */
static bool is_parallel(struct builder *b)
{
    bool by_key = true; /* as GPT-NeoX's own code has it where the configuration does not say */
    switch (b->arch->parallel) {
    case PARALLEL_BY_KEY:
        if (!b->err)
            b->err = key_bool(b->m, "use_parallel_residual", &by_key, b->e);
        return by_key;
    case PARALLEL_BY_NORM:
        return !plan_has(b, "ffn_norm");
    case PARALLEL_ALWAYS:
        return true;
    case PARALLEL_NOT:
        break;
    }
    return false;
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
    const bool norm_last = b->arch->qk_norm == QK_NORM_ROTATED ||
                           (bare && rope != ROPE_NONE && hp->n_expert != LLAMA4_MAVERICK_EXPERTS);
    struct op *op;
    if (norm_last) {
        op = plan_add(b, OP_ROPE, BUF_K, BUF_Q);
        op->rope = rope;
        op->n_head = l->n_head;
        op->n_head_kv = l->n_head_kv;
    }
    if (norm_last || !bare) {
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
    if (b->arch->sinks)
        op->w =
            plan_take(b, plan_name(b, "attn_sinks", "weight"), l->n_head, 1, F32_ONLY, REQUIRED);
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

/* Of what attention gathered. */
static void add_attention_gate(struct builder *b)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    struct op *op = plan_add(b, OP_GATED, BUF_HEADS, BUF_ATT);
    op->in2 = BUF_ATT;
    op->n_in = op->n_out = l->n_head * l->head_dim;
    op->gate = GATE_SIGMOID;
}

static void add_attention(struct builder *b, bool parallel)
{
    const struct model_hparams *hp = &b->m->hp;
    const struct model_layer *l = &b->m->layers[b->layer];
    const enum presence bias = b->arch->out_bias;
    const bool own_norm = b->arch->second == SECOND_ATTENTION && plan_has(b, "attn_norm_2");
    const enum model_buf in = add_norm_before(b, own_norm ? "attn_norm_2" : "attn_norm");
    if (hp->latent) {
        plan_latent_attention(b, in);
    } else if (l->n_head_kv == 0) { /* a matrix in its place */
        plan_linear(b, "attn_output", in, hp->n_embd, BUF_OUT, hp->n_embd, bias);
    } else {
        add_qkv(b, in);
        if (b->arch->gated_attention)
            plan_linear(b, "attn_gate", in, hp->n_embd, BUF_HEADS, l->n_head * l->head_dim, ABSENT);
        if (b->arch->streams)
            plan_beside_attention(b, in);
        if (parallel)
            add_second_norm(b, own_norm);
        add_clamps(b);
        plan_attend(b);
        if (b->arch->gated_attention || b->arch->gate_in_query)
            add_attention_gate(b);
        plan_linear(b, "attn_output", BUF_ATT, l->n_head * l->head_dim, BUF_OUT, hp->n_embd, bias);
    }
    if (l->recurrent) {
        plan_recurrent(b, in, BUF_SHARED);
        plan_add(b, OP_ADD, BUF_SHARED, BUF_OUT);
    }
    add_result(b, "post_attention_norm", "attn_output_norm");
    if (b->arch->streams)
        plan_add_beside(b);
}

void plan_unary(struct builder *b, enum model_buf buf, uint32_t n, enum unary_kind kind)
{
    struct op *op = plan_add(b, OP_UNARY, buf, buf);
    op->n_in = op->n_out = n;
    op->unary = kind;
    if (kind == UNARY_XIELU)
        op->xielu = plan_xielu(b);
}

/* What a file says that the gate is, of "gelu" and "silu". */
static bool gate_is_silu(struct builder *b)
{
    const struct gguf_kv *kv = key_find(b->m, "hidden_activation");
    if (!b->arch->gate_by_key || !kv)
        return false;
    if (kv->kind == GGUF_STRING && kv->s.len == 4 && memcmp(kv->s.data, "silu", 4) == 0)
        return true;
    if ((kv->kind != GGUF_STRING || kv->s.len != 4 || memcmp(kv->s.data, "gelu", 4) != 0) &&
        !b->err)
        b->err = err_set(
            b->e, ERR_UNSUPPORTED, "%s.hidden_activation is neither gelu nor silu", b->m->arch);
    return false;
}

void plan_gated(struct builder *b, enum model_buf out, enum model_buf up, uint32_t n)
{
    const bool silu = gate_is_silu(b);
    if (b->arch->gate_unary != UNARY_NONE && !silu)
        plan_unary(b, out, n, b->arch->gate_unary);
    struct op *op = plan_add(b, OP_GATED, out, out);
    op->in2 = up;
    op->n_in = op->n_out = n;
    op->gate = silu ? GATE_SILU : b->arch->gate;
}

static void add_dense(struct builder *b, enum model_buf in)
{
    const uint32_t n_embd = b->m->hp.n_embd, n_ff = b->m->layers[b->layer].n_ff;
    const enum presence bias = b->arch->out_bias;
    const struct gguf_tensor *up = gguf_find_tensor(b->m->gguf, plan_name(b, "ffn_up", "weight"));
    if (n_ff == 0 && !b->err) /* of a model with experts, in a layer without */
        b->err = err_set(b->e,
                         ERR_FORMAT,
                         "%s.feed_forward_length is missing or 0, but layer %u has no experts",
                         b->m->arch,
                         b->layer);
    if (b->arch->unary != UNARY_NONE) {
        plan_linear(b, "ffn_up", in, n_embd, BUF_GATE, n_ff, bias);
        plan_unary(b, BUF_GATE, n_ff, b->arch->unary);
        plan_linear(b, "ffn_down", BUF_GATE, n_ff, BUF_OUT, n_embd, bias);
        return;
    }
    if (!plan_has(b, "ffn_gate") && up && up->ne[1] == 2 * (uint64_t)n_ff) { /* both in one */
        const uint32_t n[] = {n_ff, n_ff};
        plan_stacked(b, "ffn_up", in, (enum model_buf[]){BUF_GATE, BUF_UP}, n, 2, bias);
    } else {
        plan_linear(b, "ffn_gate", in, n_embd, BUF_GATE, n_ff, bias);
        plan_linear(b, "ffn_up", in, n_embd, BUF_UP, n_ff, bias);
    }
    if (b->arch->streams)
        plan_sparse(b, BUF_GATE, n_ff);
    plan_gated(b, BUF_GATE, BUF_UP, n_ff);
    plan_linear(b, "ffn_down", BUF_GATE, n_ff, BUF_OUT, n_embd, bias);
}

static void add_layer(struct builder *b)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    const bool parallel = is_parallel(b);
    if (b->arch->streams)
        plan_streams_predict(b);
    if (l->n_head) {
        add_attention(b, parallel);
    } else if (l->recurrent) {
        plan_recurrent(b, add_norm_before(b, "attn_norm"), BUF_OUT);
        add_result(b, "post_attention_norm", "attn_output_norm");
    }
    if (b->arch->gaps && l->n_ff == 0)
        return;
    const enum model_buf in =
        parallel ? BUF_H : add_norm_before(b, b->arch->ffn_norm ? b->arch->ffn_norm : "ffn_norm");
    const bool experts = b->m->hp.n_expert && plan_has(b, "ffn_gate_inp");
    if (experts && !b->arch->experts_beside)
        plan_experts(b, in);
    else
        add_dense(b, in);
    if (experts && b->arch->experts_beside)
        plan_experts_beside(b);
    add_result(b, "post_ffw_norm", "layer_output_norm");
    if (b->arch->streams)
        plan_streams_correct(b);
    else if (b->arch->per_layer)
        plan_per_layer(b);
}

/* The embedding, and the output matrix, which may be the same one. */
static const struct gguf_tensor *add_embed(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const struct gguf_tensor *embd =
        plan_take(b, "token_embd.weight", hp->n_embd, hp->n_vocab, ANY_TYPE, REQUIRED);
    struct op *op = plan_add(b, OP_EMBED, BUF_X, BUF_X);
    op->w = embd;
    op->scale = hp->embedding_scale;
    return embd;
}

/* What joins a token's embedding: in BERT's family, the text's type, and a norm over the sum. */
static void add_places(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const bool encoder = b->arch->encoder;
    const struct gguf_tensor *types = gguf_find_tensor(b->m->gguf, "token_types.weight");
    if (types && encoder)
        plan_add(b, OP_ADD_TYPE, BUF_X, BUF_X)->w =
            plan_take(b, "token_types.weight", hp->n_embd, types->ne[1], ANY_TYPE, REQUIRED);
    if (b->arch->positions == REQUIRED)
        plan_add(b, OP_ADD_POSITION, BUF_X, BUF_X)->w =
            plan_take(b, "position_embd.weight", hp->n_embd, hp->n_positions, ANY_TYPE, REQUIRED);
    if (encoder || b->arch->embed_norm)
        add_norm(b, take_norm(b, "token_embd_norm"), BUF_X, BUF_X);
}

/* A linear of the head, over the rows whose hidden states are wanted. */
static void add_head_linear(
    struct builder *b, const char *w, const char *bias, enum model_buf in, enum model_buf out)
{
    struct op *op = plan_add(b, OP_LINEAR, in, out);
    op->w = plan_take(b, w, op->n_in, op->n_out, ANY_TYPE, REQUIRED);
    op->bias = plan_take(b, bias, op->n_out, 1, F32_ONLY, OPTIONAL);
}

/* The hidden states as they leave the model, and what a head makes of them. */
static void add_hidden(struct builder *b, struct norm_parts norm)
{
    const bool rms = b->arch->norm == NORM_RMS;
    plan_add(b, OP_HIDDEN, BUF_X, BUF_HIDDEN)->w = rms ? norm.w : NULL;
    if (!rms && !b->arch->encoder)
        add_norm(b, norm, BUF_HIDDEN, BUF_HIDDEN);
    enum model_buf in = BUF_HIDDEN;
    if (!b->m->hp.n_labels)
        return;
    if (gguf_find_tensor(b->m->gguf, "cls.weight")) {
        add_head_linear(b, "cls.weight", "cls.bias", BUF_HIDDEN, BUF_HEAD);
        in = BUF_HEAD;
        plan_add(b, OP_TANH, BUF_HEAD, BUF_HEAD);
    }
    add_head_linear(b, "cls.output.weight", "cls.output.bias", in, BUF_SCORES);
}

/* Logits of the residual stream: of models that continue texts. */
static void add_logits(struct builder *b, struct norm_parts norm, const struct gguf_tensor *w)
{
    add_norm(b, norm, BUF_X, BUF_H);
    struct op *op = plan_add(b, OP_LOGITS, BUF_H, BUF_LOGITS);
    op->w = w;
    /* Embeddings have no factor: a matrix that is both may not have one either. */
    op->factor = w == b->m->ops[0].w ? NULL : plan_factor(b, w, 1);
    op->bias = plan_take(b, "output.bias", b->m->hp.n_vocab, 1, F32_ONLY, b->arch->logit_bias);
    op->scale = b->m->hp.logit_scale;
    op->cap = b->m->hp.logit_cap;
}

static void set_widths(struct model *m, const struct arch *arch)
{
    const struct model_hparams *hp = &m->hp;
    uint32_t *w = m->buf_width;
    w[BUF_X] = w[BUF_H] = w[BUF_OUT] = hp->n_embd;
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        const struct model_layer *l = &m->layers[i];
        const uint32_t q = l->n_head * l->head_dim, kv = l->n_head_kv * l->head_dim;
        w[BUF_Q] = w[BUF_ATT] = q > w[BUF_Q] ? q : w[BUF_Q];
        w[BUF_K] = w[BUF_V] = kv > w[BUF_K] ? kv : w[BUF_K];
    }
    w[BUF_HEADS] = arch->gated_attention || arch->gate_in_query ? w[BUF_Q] : 0;
    w[BUF_QUERY] = arch->gate_in_query ? 2 * w[BUF_Q] : 0;
    if (hp->latent) {
        const uint32_t longer = hp->head_key > hp->head_value ? hp->head_key : hp->head_value;
        w[BUF_ATT] = hp->n_head * hp->latent;
        w[BUF_V] = 0;
        w[BUF_QUERY] = hp->q_latent;
        w[BUF_HEADS] = hp->n_head * longer;
    }
    w[BUF_GATE] = w[BUF_UP] = hp->n_ff > hp->n_ff_shared ? hp->n_ff : hp->n_ff_shared;
    w[BUF_GATE] = hp->n_per_layer > w[BUF_GATE] ? hp->n_per_layer : w[BUF_GATE];
    w[BUF_PER_LAYER] = w[BUF_PROJECTED] = hp->n_per_layer * hp->n_layer;
    w[BUF_STREAMS] = hp->n_stream * hp->n_embd;
    w[BUF_UNFOLDED] = hp->n_stream ? (hp->n_stream - 1) * hp->n_embd : 0;
    w[BUF_MODES] = hp->n_stream;
    w[BUF_COEFS] = hp->n_stream * hp->n_stream;
    w[BUF_LOW] = hp->n_expert_latent ? hp->n_expert_latent : hp->n_low;
    w[BUF_BESIDE] = hp->n_low ? hp->n_embd : 0;
    w[BUF_ROUTER] = hp->n_expert;
    w[BUF_EXPERT_GATE] = w[BUF_EXPERT_UP] = hp->n_expert_used * hp->n_ff_expert;
    w[BUF_EXPERT_OUT] = hp->n_expert_used * hp->n_embd;
    w[BUF_SHARED] = hp->n_ff_shared || (arch->experts_beside && hp->n_expert) ? hp->n_embd : 0;
    w[BUF_SHARED_GATE] = hp->n_ff_shared ? 1 : 0;
    w[BUF_LOGITS] = m->generates ? hp->n_vocab : 0;
    w[BUF_HIDDEN] = hp->n_embd;
    w[BUF_HEAD] = hp->n_labels ? hp->n_embd : 0;
    w[BUF_SCORES] = hp->n_labels;
    recurrent_widths(m, arch);
}

/* Whether a tensor is of the layers behind those that the plan has: "blk.N.". */
static bool is_beside(const struct builder *b, struct gguf_str name)
{
    const uint32_t first = b->m->hp.n_layer;
    uint32_t layer = 0;
    size_t i = 4;
    if (name.len < 6 || memcmp(name.data, "blk.", 4) != 0)
        return false;
    for (; i < name.len && i < 8 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        layer = layer * 10 + (uint32_t)(name.data[i] - '0');
    return i > 4 && i < name.len && name.data[i] == '.' && layer >= first &&
           layer < first + b->m->hp.n_layer_beside;
}

/* Tensors that the plan has no place for. */
static enum err check_leftovers(struct builder *b)
{
    const uint64_t n = gguf_n_tensors(b->m->gguf);
    for (int i = 0; i < N_ROPE_TENSORS; i++) {
        const struct gguf_tensor *t = rope_tensor(b->m, i);
        if (t)
            plan_mark(b, t);
    }
    for (uint64_t i = 0; i < n; i++) {
        char shown[96];
        if (!b->used[i] && !is_beside(b, gguf_tensor_at(b->m->gguf, i)->name))
            return err_set(b->e,
                           ERR_UNSUPPORTED,
                           "tensor %s has no place in architecture %s as Weir knows it: a variant "
                           "that is not supported",
                           gguf_show(gguf_tensor_at(b->m->gguf, i)->name, shown, sizeof shown),
                           b->m->arch);
    }
    return OK;
}

/* Files of LFM2 call it by two names. */
static const char *output_norm_name(const struct builder *b)
{
    const bool usual = gguf_find_tensor(b->m->gguf, "output_norm.weight");
    return b->arch->output_norm && !usual ? b->arch->output_norm : "output_norm";
}

enum err plan_build(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct builder b = {.m = m, .arch = arch, .e = e};
    m->generates = m->hp.causal && !arch->encoder;
    set_widths(m, arch);
    m->ops = mem_zalloc((size_t)m->hp.n_layer * OPS_PER_LAYER + OPS_BESIDE, sizeof *m->ops);
    m->parts = mem_zalloc((size_t)m->hp.n_layer * PARTS_PER_LAYER, sizeof *m->parts);
    m->made = mem_zalloc((size_t)m->hp.n_layer * MADE_PER_LAYER, sizeof *m->made);

    b.used = mem_zalloc(gguf_n_tensors(m->gguf) + 1, sizeof *b.used);
    const struct gguf_tensor *embd = add_embed(&b);
    add_places(&b);
    if (m->hp.n_per_layer)
        plan_per_layer_inputs(&b);
    if (arch->streams)
        plan_streams(&b);
    for (b.layer = 0; b.layer < m->hp.n_layer && !b.err; b.layer++)
        add_layer(&b);
    b.layer = 0;
    if (arch->streams)
        plan_streams_fold(&b);
    const struct gguf_tensor *out = NULL;
    struct norm_parts norm = {NULL, NULL};
    if (!arch->encoder) {
        norm = take_norm(&b, output_norm_name(&b));
        out = plan_take(&b, "output.weight", m->hp.n_embd, m->hp.n_vocab, ANY_TYPE, OPTIONAL);
    }
    if (m->generates)
        add_logits(&b, norm, out ? out : embd);
    add_hidden(&b, norm);
    if (!b.err)
        b.err = check_leftovers(&b);
    free(b.used);
    return b.err;
}
