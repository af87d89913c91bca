/* Embeddings that each layer has of its own (Gemma 3n's and 4's): a second table gives n_per_layer
 * values a layer for a token, to which a projection of its embedding is added; at its end a layer
 * lets them gate what it adds to the stream. */
#include "model/build.h"

#include <math.h>
#include <string.h>

void plan_per_layer_inputs(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n = hp->n_per_layer, n_all = n * hp->n_layer;
    const float half = sqrtf(0.5f); /* of both parts' variance */
    struct op *op = plan_add(b, OP_EMBED, BUF_PER_LAYER, BUF_PER_LAYER);
    op->w = plan_take(b, "per_layer_token_embd.weight", n_all, hp->n_vocab, ANY_TYPE, REQUIRED);
    op->scale = sqrtf((float)n) * half;
    op = plan_add(b, OP_LINEAR, BUF_X, BUF_PROJECTED);
    op->w = plan_take(b, "per_layer_model_proj.weight", hp->n_embd, n_all, ANY_TYPE, REQUIRED);
    plan_add(b, OP_SCALE, BUF_PROJECTED, BUF_PROJECTED)->scale = 1.0f / sqrtf((float)hp->n_embd);
    op = plan_head_norm(b, BUF_PROJECTED, n_all, NULL);
    op->head_dim = n;
    op->w = plan_take(b, "per_layer_proj_norm.weight", n, 1, F32_ONLY, REQUIRED);
    plan_add(b, OP_ADD, BUF_PROJECTED, BUF_PER_LAYER)->scale = half;
}

/* The layer's scale, where it has one. */
static float take_scale(struct builder *b, enum presence presence)
{
    const struct gguf_tensor *t =
        plan_take(b, plan_name(b, "layer_output_scale", "weight"), 1, 1, F32_ONLY, presence);
    float scale = 1.0f;
    if (t)
        memcpy(&scale, t->data, sizeof scale);
    if (!isfinite(scale) && !b->err)
        b->err = err_set(
            b->e, ERR_FORMAT, "tensor blk.%u.layer_output_scale.weight is no number", b->layer);
    return scale;
}

void plan_per_layer_part(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t n = hp->n_per_layer;
    plan_linear(b, "inp_gate", in, hp->n_embd, BUF_GATE, n, ABSENT);
    plan_gated(b, BUF_GATE, BUF_PER_LAYER, n);
    b->m->ops[b->m->n_ops - 1].in2_first = b->layer * n;
    plan_linear(b, "proj", BUF_GATE, n, BUF_OUT, hp->n_embd, ABSENT);
    plan_norm(b, "post_norm", BUF_OUT, BUF_OUT);
}

void plan_per_layer(struct builder *b)
{
    if (b->m->hp.n_per_layer) {
        plan_per_layer_part(b, BUF_X);
        plan_add(b, OP_ADD, BUF_OUT, BUF_X);
    }
    const float scale = take_scale(b, OPTIONAL);
    if (scale != 1.0f)
        plan_add(b, OP_SCALE, BUF_X, BUF_X)->scale = scale;
}

void plan_embed_again(struct builder *b)
{
    const float scale = take_scale(b, REQUIRED);
    plan_add(b, OP_ADD, BUF_BESIDE, BUF_X)->scale = scale;
}
