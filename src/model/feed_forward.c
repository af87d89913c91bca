/* The dense feed-forward part of a layer; and the activations and gates that experts and other
 * parts have as well. */
#include "model/build.h"
#include "model/keys.h"

#include <string.h>

void plan_unary(struct builder *b, enum model_buf buf, uint32_t n, enum unary_kind kind)
{
    struct op *op = plan_add(b, OP_UNARY, buf, buf);
    op->n_in = op->n_out = n;
    op->n_head = model_buf_of_experts(buf) ? b->n_used : 0;
    op->unary = kind;
    if (kind == UNARY_XIELU)
        op->xielu = plan_xielu(b);
}

static bool key_says(const struct gguf_kv *kv, const char *text)
{
    return kv->kind == GGUF_STRING && kv->s.len == strlen(text) &&
           memcmp(kv->s.data, text, kv->s.len) == 0;
}

/* What a file says that the gate is, of silu and what the architecture has in its place. */
static bool gate_is_silu(struct builder *b)
{
    const struct gguf_kv *kv = key_find(b->m, "hidden_activation");
    const char *other = b->arch->gate_unary == UNARY_RELU_SQUARE ? "relu2" : "gelu";
    const struct model_layer *layer = &b->m->layers[b->layer];
    if (!b->arch->gate_by_key)
        return false;
    if (!kv)
        return b->arch->gate_by_heads && layer->n_head == layer->n_head_kv;
    if (!key_says(kv, "silu") && !key_says(kv, other) && !b->err)
        b->err = err_set(b->e,
                         ERR_UNSUPPORTED,
                         "%s.hidden_activation is neither %s nor silu",
                         b->m->arch,
                         other);
    return key_says(kv, "silu");
}

/* What keeps the layer's gate and what it multiplies small; 0: nothing does. */
static float gate_limit(struct builder *b, bool experts)
{
    const char *key = experts ? "swiglu_clamp_exp" : "swiglu_clamp_shexp";
    float limit = 0.0f;
    if (b->arch->gate_limits && !b->err)
        b->err = key_f32_layer(b->m, key, b->layer, -1e-30f, 1e6f, &limit, b->e);
    return limit > 1e-6f ? limit : 0.0f;
}

void plan_gated(struct builder *b, enum model_buf out, enum model_buf up, uint32_t n)
{
    const bool silu = gate_is_silu(b);
    const float limit = gate_limit(b, out == BUF_EXPERT_GATE);
    if (b->arch->gate_unary != UNARY_NONE && !silu)
        plan_unary(b, out, n, b->arch->gate_unary);
    struct op *op = plan_add(b, OP_GATED, out, out);
    op->in2 = up;
    op->n_in = op->n_out = n;
    op->n_head = model_buf_of_experts(out) ? b->n_used : 0;
    op->gate = silu ? GATE_SILU : b->arch->gate;
    if (limit > 0.0f)
        op->gate = b->arch->gate_bound_first ? GATE_SILU_BOUNDED : GATE_SILU_CAPPED;
    op->cap = limit;
    if (op->gate == GATE_SITU) {
        op->scale = b->m->hp.gate_scale;
        op->cap = b->m->hp.gate_cap;
    }
}

void plan_dense(struct builder *b, enum model_buf in)
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
    if (rwkv_is(b->arch) && !b->arch->usual_ff) {
        plan_rwkv_channels(b, in);
        return;
    }
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
        plan_sparse(b, n_ff);
    plan_gated(b, BUF_GATE, BUF_UP, n_ff);
    if (b->arch->sub_norms)
        plan_part_norm(b, "ffn_sub_norm", BUF_GATE, n_ff);
    plan_linear(b, "ffn_down", BUF_GATE, n_ff, BUF_OUT, n_embd, bias);
}
