/* The plan as a whole: how wide its buffers are, embedding, layers, head, the norms around
 * sub-layers, and that no tensor is left over. The parts of a layer have files of their own
 * (build.h). */
#include "model/plan.h"

#include "base/mem.h"
#include "model/build.h"
#include "model/keys.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPS_PER_LAYER = 72, /* at most */
    OPS_BESIDE = 24,
    PARTS_PER_LAYER = 16, /* q k v and gate up, with biases, and a recurrent part's three; or of a
                           * latent's two, gate up, and the twelve of connections */
    PARTS_BESIDE = 6,
    MAX_DENSE = 1 << 20 /* values between two matrices behind the pooling */
};

/* What a norm multiplies by and adds: of the tensors NAME.weight and NAME.bias. */
struct norm_parts {
    const struct gguf_tensor *w, *bias;
};

static bool by_rms(const struct builder *b)
{
    return b->norm == NORM_RMS || b->norm == NORM_RMS_BARE;
}

const struct gguf_tensor *plan_ones(struct builder *b)
{
    const uint32_t n = b->m->hp.n_embd;
    const uint64_t ne[3] = {n, 1, 1};
    const float one = 1.0f;
    uint8_t *data = NULL;
    if (b->ones)
        return b->ones;
    b->ones = plan_make(b, gguf_tensor_at(b->m->gguf, 0), GGUF_TYPE_F32, ne, n * sizeof one, &data);
    for (uint32_t i = 0; b->ones && i < n; i++)
        memcpy(data + i * sizeof one, &one, sizeof one);
    return b->ones;
}

static struct norm_parts take_norm(struct builder *b, const char *name)
{
    const enum norm_kind kind = b->norm;
    const uint32_t n = b->m->hp.n_embd;
    char w[96], bias[96];
    if (kind == NORM_RMS_BARE)
        return (struct norm_parts){plan_ones(b), NULL};
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
    struct op *op = plan_add(b, by_rms(b) ? OP_NORM : OP_LAYER_NORM, in, out);
    op->w = parts.w;
    op->bias = parts.bias;
}

void plan_norm(struct builder *b, const char *stem, enum model_buf in, enum model_buf out)
{
    add_norm(b, take_norm(b, plan_bare_name(b, stem)), in, out);
}

void plan_part_norm(struct builder *b, const char *stem, enum model_buf buf, uint32_t n)
{
    struct op *op = plan_add(b, OP_NORM, buf, buf);
    op->n_in = op->n_out = n;
    const bool bare = b->arch->bare_norms && !plan_has(b, stem);
    op->w = plan_take(
        b, bare ? plan_bare_name(b, stem) : plan_name(b, stem, "weight"), n, 1, F32_ONLY, REQUIRED);
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

const struct gguf_tensor *plan_slice(struct builder *b,
                                     const struct gguf_tensor *t,
                                     uint64_t first,
                                     uint64_t n)
{
    if (!t)
        return NULL;
    struct gguf_tensor *p = plan_part(b, t);
    const int dim = t->ne[1] > 1 ? 1 : 0;
    const size_t bytes = t->n_bytes / t->ne[dim];
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
    plan_stacked_of(b, stem, in, b->m->buf_width[in], outs, n_outs, n, presence);
}

void plan_stacked_of(struct builder *b,
                     const char *stem,
                     enum model_buf in,
                     uint32_t n_in,
                     const enum model_buf *outs,
                     const uint32_t *n_outs,
                     int n,
                     enum presence presence)
{
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
        op->n_in = n_in;
        op->n_out = n_outs[i];
        op->w = plan_slice(b, w, at, n_outs[i]);
        op->bias = plan_slice(b, bias, at, n_outs[i]);
        op->factor = factor;
    }
}

enum model_buf plan_norm_before(struct builder *b, const char *stem)
{
    if (b->arch->connections)
        plan_connections_read(b, strcmp(stem, "attn_norm") == 0 ? "hc_attn" : "hc_ffn");
    if (b->norms == NORM_AFTER || b->norms == NORM_OF_SUM)
        return BUF_X;
    if (b->arch->first_bare && b->layer == 0 && strcmp(stem, "attn_norm") == 0 &&
        !plan_has(b, stem))
        return BUF_X;
    if (b->norms == NORM_OF_STREAM) {
        plan_norm(b, stem, BUF_X, BUF_X);
        return BUF_X;
    }
    const bool recalls = b->m->hp.recall_step > 0;
    plan_norm(b, stem, recalls ? plan_recall(b, strcmp(stem, "attn_norm") == 0) : BUF_X, BUF_H);
    return BUF_H;
}

void plan_result(struct builder *b, const char *norm, const char *norm_of_sum)
{
    const float eps = b->m->hp.norm_eps, other = b->arch->after_eps;
    const bool after = b->norms == NORM_AFTER || b->norms == NORM_BOTH;
    if (b->arch->norms_after_as_sums &&
        (strcmp(norm, "post_ffw_norm") != 0 || plan_has(b, norm_of_sum)))
        norm = norm_of_sum;
    if (b->arch->norms_after_by_key)
        norm = strcmp(norm, "post_ffw_norm") == 0 ? "ffn_norm" : "attn_norm";
    if (after && other > 0.0f && eps > 0.0f) /* what makes one the other */
        plan_add(b, OP_SCALE, BUF_OUT, BUF_OUT)->scale = sqrtf(eps / other);
    if (after)
        plan_norm(b, norm, BUF_OUT, BUF_OUT);
    if (b->arch->connections) {
        plan_connections_write(b);
        return;
    }
    const bool of_stream = b->arch->scales == SCALES_STREAM;
    if (of_stream)
        plan_add(b, OP_SCALE, BUF_X, BUF_X)->scale = b->m->hp.residual_scale;
    if (b->restarts)
        plan_copy(b, BUF_OUT, 0, BUF_X, 0);
    else
        plan_add(b, OP_ADD, BUF_OUT, BUF_X)->scale = of_stream ? 1.0f : b->m->hp.residual_scale;
    b->restarts = false;
    if (b->norms == NORM_OF_SUM)
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

/* What stands in for the layer's matrices where it is given a picture. */
static void leave_sight(struct builder *b)
{
    static const char *const stems[] = {
        "vis_attn_qkv", "vis_attn_output", "vis_gate", "vis_up", "vis_down"};
    for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++) {
        const struct gguf_tensor *t =
            gguf_find_tensor(b->m->gguf, plan_name(b, stems[i], "weight"));
        if (t)
            plan_mark(b, t);
    }
}

static void add_layer(struct builder *b)
{
    const struct model_layer *l = &b->m->layers[b->layer];
    const bool parallel = is_parallel(b);
    const bool experts = b->m->hp.n_expert && plan_has(b, "ffn_gate_inp");
    if (b->arch->sight_beside)
        leave_sight(b);
    if (b->arch->streams)
        plan_streams_predict(b);
    if (experts && b->arch->router_first)
        plan_router(b, BUF_X);
    if (experts && b->arch->experts_first)
        plan_experts_first(b);
    if (l->n_head) {
        plan_attention(b, parallel);
    } else if (l->recurrent) {
        plan_recurrent(b, plan_norm_before(b, "attn_norm"), BUF_OUT);
        plan_result(b, "post_attention_norm", "attn_output_norm");
    }
    if (b->arch->gaps && l->n_ff == 0)
        return;
    const enum model_buf in =
        parallel ? BUF_H : plan_norm_before(b, b->arch->ffn_norm ? b->arch->ffn_norm : "ffn_norm");
    if (experts && !b->arch->experts_beside && !b->arch->experts_first)
        plan_experts(b, in);
    else
        plan_dense(b, in);
    if (experts && b->arch->experts_beside)
        plan_experts_beside(b);
    plan_result(b, "post_ffw_norm", "layer_output_norm");
    if (b->arch->recurrence == RECURRENCE_RWKV6 && !b->arch->usual_ff)
        plan_rwkv_end(b);
    if (experts && b->arch->experts_first)
        plan_add(b, OP_ADD, BUF_SHARED, BUF_X);
    if (b->arch->streams)
        plan_streams_correct(b);
    else if (b->arch->per_layer)
        plan_per_layer(b);
    else if (b->arch->embed_again)
        plan_embed_again(b);
}

/* Behind each pass over the layers but the last one: what the next one reads. */
static void end_loop(struct builder *b)
{
    bool skips = false;
    if ((b->layer + 1) % b->n_named != 0 || b->layer + 1 == b->m->hp.n_layer)
        return;
    if (b->arch->loops && !b->err)
        b->err = key_bool(b->m, "skip_loop_final_norm", &skips, b->e);
    if (!skips)
        add_norm(b, take_norm(b, "output_norm"), BUF_X, BUF_X);
    if (b->arch->cycles)
        plan_cycles_next(b);
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
    if (hp->n_positions && !hp->indexed)
        plan_add(b, OP_ADD_POSITION, BUF_X, BUF_X)->w =
            plan_take(b, "position_embd.weight", hp->n_embd, hp->n_positions, ANY_TYPE, REQUIRED);
    if (encoder || b->arch->embed_norm)
        add_norm(b, take_norm(b, "token_embd_norm"), BUF_X, BUF_X);
    if (b->arch->embed_bare)
        plan_head_norm(b, BUF_X, hp->n_embd, NULL)->head_dim = hp->n_embd;
    if (b->arch->embed_again) {
        struct op *op = plan_add(b, OP_HEAD_COPY, BUF_X, BUF_BESIDE);
        op->n_head = 1;
        op->in_step = op->out_step = hp->n_embd;
    }
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
    const bool rms = by_rms(b);
    plan_add(b, OP_HIDDEN, BUF_X, BUF_HIDDEN)->w = rms ? norm.w : NULL;
    if (!rms && !b->arch->encoder)
        add_norm(b, norm, BUF_HIDDEN, BUF_HIDDEN);
    enum model_buf in = BUF_HIDDEN;
    if (!b->m->hp.n_labels)
        return;
    if (!gguf_find_tensor(b->m->gguf, "cls.output.weight")) { /* jina-reranker-v1 */
        add_head_linear(b, "cls.weight", "cls.bias", BUF_HIDDEN, BUF_SCORES);
        plan_add(b, OP_TANH, BUF_SCORES, BUF_SCORES);
        return;
    }
    if (gguf_find_tensor(b->m->gguf, "cls.weight")) {
        add_head_linear(b, "cls.weight", "cls.bias", BUF_HIDDEN, BUF_HEAD);
        in = BUF_HEAD;
        plan_add(b, OP_TANH, BUF_HEAD, BUF_HEAD);
    }
    add_head_linear(b, "cls.output.weight", "cls.output.bias", in, BUF_SCORES);
}

/* What keeps the tokens that are never said below all others; NULL: there are none. */
static const struct gguf_tensor *take_unsaid(struct builder *b)
{
    const uint32_t n = b->m->hp.n_vocab, *unsaid = b->arch->unsaid;
    const uint64_t ne[3] = {n, 1, 1};
    uint8_t *data = NULL;
    if (unsaid[1] == 0 || n < unsaid[1])
        return NULL;
    const struct gguf_tensor *bias =
        plan_make(b, gguf_tensor_at(b->m->gguf, 0), GGUF_TYPE_F32, ne, n * sizeof(float), &data);
    for (uint32_t i = 0; bias && i < n; i++) {
        const float v = i >= unsaid[0] && i < unsaid[1] ? -FLT_MAX : 0.0f;
        memcpy(data + i * sizeof v, &v, sizeof v);
    }
    return bias;
}

/* Logits of the residual stream: of models that continue texts. */
static void add_logits(struct builder *b, struct norm_parts norm, const struct gguf_tensor *w)
{
    add_norm(b, norm, BUF_X, BUF_H);
    struct op *op = plan_add(b, OP_LOGITS, BUF_H, BUF_LOGITS);
    op->w = w;
    /* Embeddings have no factor: a matrix that is both may not have one either. */
    op->factor = w == b->m->ops[0].w ? NULL : plan_factor(b, w, 1);
    op->bias =
        b->arch->unsaid[1]
            ? take_unsaid(b)
            : plan_take(b, "output.bias", b->m->hp.n_vocab, 1, F32_ONLY, b->arch->logit_bias);
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
    w[BUF_HEADS] = arch->attention_gate || arch->gate_in_query || hp->head_value ? w[BUF_Q] : 0;
    w[BUF_QUERY] = arch->gate_in_query ? 2 * w[BUF_Q] : 0;
    if (hp->latent) {
        const uint32_t longer = hp->head_key > hp->head_value ? hp->head_key : hp->head_value;
        const uint32_t n_gate = arch->attention_gate ? hp->n_head * hp->head_value : 0;
        w[BUF_ATT] = hp->n_head * hp->latent;
        w[BUF_V] = 0;
        w[BUF_QUERY] = hp->q_latent > n_gate ? hp->q_latent : n_gate;
        w[BUF_HEADS] = hp->n_head * longer;
    }
    w[BUF_GATE] = w[BUF_UP] = hp->n_ff > hp->n_ff_shared ? hp->n_ff : hp->n_ff_shared;
    w[BUF_GATE] = hp->n_per_layer > w[BUF_GATE] ? hp->n_per_layer : w[BUF_GATE];
    w[BUF_PER_LAYER] = w[BUF_PROJECTED] = hp->n_per_layer * hp->n_layer;
    w[BUF_STREAMS] = hp->n_stream * hp->n_embd;
    w[BUF_UNFOLDED] = hp->n_stream ? (hp->n_stream - arch->streams) * hp->n_embd : 0;
    w[BUF_MODES] = hp->n_stream;
    w[BUF_COEFS] = hp->n_stream * hp->n_stream;
    w[BUF_LOW] = hp->n_expert_latent ? hp->n_expert_latent : arch->cycles ? hp->n_embd : hp->n_low;
    w[BUF_BESIDE] = hp->n_low || arch->embed_again || arch->cycles ? hp->n_embd : 0;
    w[BUF_ROUTER] = hp->n_expert;
    w[BUF_EXPERT_GATE] = w[BUF_EXPERT_UP] = hp->n_expert_used * hp->n_ff_expert;
    w[BUF_EXPERT_OUT] = hp->n_expert_used * hp->n_embd;
    const bool both = (arch->experts_beside || arch->experts_first) && hp->n_expert;
    w[BUF_SHARED] = hp->n_ff_shared || both ? hp->n_embd : 0;
    w[BUF_SHARED_GATE] = hp->n_ff_shared ? 1 : 0;
    w[BUF_LOGITS] = m->generates ? hp->n_vocab : 0;
    w[BUF_HIDDEN] = hp->n_embd;
    w[BUF_HEAD] = hp->n_labels ? hp->n_embd : 0;
    w[BUF_SCORES] = hp->n_labels;
    recurrent_widths(m, arch);
    recall_widths(m);
}

/* Both, or neither. */
static void take_behind_pooling(struct builder *b)
{
    const struct gguf_tensor *second = gguf_find_tensor(b->m->gguf, "dense_2.weight");
    const bool third = gguf_find_tensor(b->m->gguf, "dense_3.weight") != NULL;
    const uint64_t mid = second && second->ne[1] <= MAX_DENSE ? second->ne[1] : MAX_DENSE;
    if (!b->arch->dense || (!second && !third))
        return;
    b->m->dense[0] =
        plan_take(b, "dense_2.weight", b->m->hp.n_embd, (uint32_t)mid, ANY_TYPE, REQUIRED);
    b->m->dense[1] =
        plan_take(b, "dense_3.weight", (uint32_t)mid, b->m->hp.n_embd, ANY_TYPE, REQUIRED);
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

static void read_norm_place(struct builder *b)
{
    bool after = false;
    if (b->arch->norms_after_by_key)
        b->err = key_bool(b->m, "swin_norm", &after, b->e);
    if (after)
        b->norms = NORM_AFTER;
}

enum err plan_build(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct builder b = {.m = m,
                        .arch = arch,
                        .norm = hparams_norm(m, arch),
                        .norms = arch->norms,
                        .n_named =
                            m->hp.n_stack ? m->hp.n_stack : m->hp.n_layer / hparams_loops(m, arch),
                        .n_low_pass = m->hp.n_low_pass,
                        .most_ops = m->hp.n_layer * OPS_PER_LAYER + OPS_BESIDE + recall_most_ops(m),
                        .most_parts = m->hp.n_layer * PARTS_PER_LAYER + PARTS_BESIDE,
                        .e = e};
    m->generates = m->hp.causal && !arch->encoder;
    set_widths(m, arch);
    m->ops = mem_zalloc(b.most_ops, sizeof *m->ops);
    m->parts = mem_zalloc(b.most_parts, sizeof *m->parts);
    m->made = mem_zalloc(b.most_parts, sizeof *m->made); /* each is the data of a part */
    b.used = mem_zalloc(gguf_n_tensors(m->gguf) + 1, sizeof *b.used);
    read_norm_place(&b);
    const struct gguf_tensor *embd = add_embed(&b);
    add_places(&b);
    if (m->hp.n_per_layer)
        plan_per_layer_inputs(&b);
    if (arch->streams)
        plan_streams(&b);
    if (arch->connections)
        plan_connections(&b);
    if (arch->cycles)
        plan_cycles(&b);
    for (b.layer = 0; b.layer < m->hp.n_layer && !b.err; b.layer++) {
        add_layer(&b);
        end_loop(&b);
    }
    b.layer = 0;
    if (arch->streams)
        plan_streams_fold(&b);
    if (arch->connections)
        plan_connections_end(&b);
    if (m->hp.recall_step)
        plan_recall_last(&b);
    const struct gguf_tensor *out = NULL;
    struct norm_parts norm = {NULL, NULL};
    if (!arch->encoder) {
        norm = take_norm(&b, output_norm_name(&b));
        out = plan_take(&b, "output.weight", m->hp.n_embd, m->hp.n_vocab, ANY_TYPE, OPTIONAL);
    }
    if (m->generates)
        add_logits(&b, norm, out ? out : embd);
    add_hidden(&b, norm);
    take_behind_pooling(&b);
    if (!b.err)
        b.err = check_leftovers(&b);
    free(b.used);
    return b.err;
}
