/* Several residual streams (AltUp, Baykal et al. 2023), of which each layer computes one: before it
 * all are predicted as a mixture of themselves, after it all are corrected by what it changed. The
 * weights of the mixture come of the active stream, through a small router. Beside attention, a
 * product of two narrow matrices (LAuReL, Menghani et al. 2024). */
#include "model/build.h"

#include <math.h>
#include <stdio.h>

/* Of streams that lie one behind the other, the active one last. */
static void copy_active(struct builder *b, enum model_buf in, enum model_buf out)
{
    struct op *op = plan_add(b, OP_HEAD_COPY, in, out);
    op->n_head = 1;
    op->in_step = b->m->buf_width[in];
    op->out_step = b->m->buf_width[out];
    op->n_in = op->n_out = b->m->hp.n_embd;
}

static struct op *add_stream_op(
    struct builder *b, enum op_kind kind, enum model_buf in, enum model_buf out, uint32_t n_stream)
{
    struct op *op = plan_add(b, kind, in, out);
    op->in2 = BUF_COEFS;
    op->n_head = n_stream;
    op->n_in = op->n_out = b->m->hp.n_embd;
    return op;
}

/* A matrix for each of the streams that are not active. in_step: values from one to the next. */
static void add_stream_linear(
    struct builder *b, const char *name, enum model_buf in, uint32_t in_step, enum model_buf out)
{
    const uint32_t n_embd = b->m->hp.n_embd, n = b->m->hp.n_stream - 1;
    struct op *op = plan_add(b, OP_HEAD_LINEAR, in, out);
    op->n_head = n;
    op->in_step = in_step;
    op->out_step = op->n_in = op->n_out = n_embd;
    op->w = plan_take3(b, name, n_embd, n_embd, n, ANY_TYPE, REQUIRED);
}

void plan_streams(struct builder *b)
{
    copy_active(b, BUF_X, BUF_STREAMS);
    add_stream_linear(b, "altup_proj.weight", BUF_X, 0, BUF_STREAMS);
    add_stream_op(b, OP_MATCH, BUF_X, BUF_STREAMS, b->m->hp.n_stream - 1);
}

/* n coefficients, of X. */
static void add_coefficients(struct builder *b, const char *stem, uint32_t n)
{
    const uint32_t n_embd = b->m->hp.n_embd, n_stream = b->m->hp.n_stream;
    plan_norm(b, "altup_router_norm", BUF_X, BUF_H);
    plan_add(b, OP_SCALE, BUF_H, BUF_H)->scale = 1.0f / (float)n_embd;
    plan_linear(b, "altup_router", BUF_H, n_embd, BUF_MODES, n_stream, ABSENT);
    plan_add(b, OP_TANH, BUF_MODES, BUF_MODES);
    plan_linear(b, stem, BUF_MODES, n_stream, BUF_COEFS, n, ABSENT);
}

void plan_streams_predict(struct builder *b)
{
    const uint32_t n = b->m->hp.n_stream;
    copy_active(b, BUF_STREAMS, BUF_X);
    add_coefficients(b, "altup_predict_coef", n * n);
    add_stream_op(b, OP_PREDICT, BUF_STREAMS, BUF_STREAMS, n);
    copy_active(b, BUF_STREAMS, BUF_X);
}

void plan_streams_correct(struct builder *b)
{
    const uint32_t n = b->m->hp.n_stream, n_embd = b->m->hp.n_embd;
    add_coefficients(b, "altup_correct_coef", n);
    add_stream_op(b, OP_CORRECT, BUF_X, BUF_STREAMS, n);
    copy_active(b, BUF_STREAMS, BUF_X);
    struct op *op = plan_add(b, OP_MUL, BUF_X, BUF_H);
    op->w =
        plan_take(b, plan_name(b, "altup_correct_scale", "weight"), n_embd, 1, F32_ONLY, REQUIRED);
    plan_per_layer_part(b, BUF_H);
    add_stream_op(b, OP_SPREAD, BUF_OUT, BUF_STREAMS, n);
}

void plan_streams_fold(struct builder *b)
{
    const uint32_t n = b->m->hp.n_stream;
    copy_active(b, BUF_STREAMS, BUF_X);
    add_stream_linear(b, "altup_unembd_proj.weight", BUF_STREAMS, b->m->hp.n_embd, BUF_UNFOLDED);
    add_stream_op(b, OP_MATCH, BUF_X, BUF_UNFOLDED, n - 1);
    add_stream_op(b, OP_FOLD, BUF_UNFOLDED, BUF_X, n - 1)->scale = 1.0f / (float)n;
}

void plan_beside_attention(struct builder *b, enum model_buf in)
{
    const struct model_hparams *hp = &b->m->hp;
    plan_linear(b, "laurel_l", in, hp->n_embd, BUF_LOW, hp->n_low, ABSENT);
    plan_linear(b, "laurel_r", BUF_LOW, hp->n_low, BUF_BESIDE, hp->n_embd, ABSENT);
    plan_norm(b, "laurel_post_norm", BUF_BESIDE, BUF_BESIDE);
    plan_add(b, OP_ADD, in, BUF_BESIDE);
}

void plan_add_beside(struct builder *b)
{
    plan_add(b, OP_ADD, BUF_BESIDE, BUF_X);
    plan_add(b, OP_SCALE, BUF_X, BUF_X)->scale = sqrtf(0.5f);
}

/* Files say how many deviations above the mean a value has to be, and minus infinity for all. */
void plan_sparse(struct builder *b, uint32_t n)
{
    char key[64];
    snprintf(key, sizeof key, "%s.activation_sparsity_scale", b->m->arch);
    const struct gguf_kv *kv = b->err ? NULL : gguf_find(b->m->gguf, key);
    if (b->err)
        return;
    if (!kv || kv->kind != GGUF_ARRAY || kv->elem_kind != GGUF_F32 ||
        kv->n_elems != b->m->hp.n_layer) {
        b->err = err_set(b->e, ERR_FORMAT, "metadata key %s is not %u f32", key, b->m->hp.n_layer);
        return;
    }
    const double v = gguf_elem(kv, b->layer).f;
    if (isinf(v) && v < 0)
        return;
    if (!(v > -1e3 && v < 1e3)) {
        b->err = err_set(b->e, ERR_FORMAT, "%s[%u] is %g", key, b->layer, v);
        return;
    }
    struct op *op = plan_add(b, OP_SPARSE, BUF_GATE, BUF_GATE);
    op->n_in = op->n_out = n;
    op->scale = (float)v;
}
