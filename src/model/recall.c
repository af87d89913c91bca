/* Attention over what the residual stream was (Kimi K3). The stream begins anew with each block of
 * layers, and what it was is kept; a sub-layer reads a mixture of all that was kept and of the
 * stream as it is, by the softmax of their scores: each normalised, times a vector.
 *
 * The mixture grows by one after the other, so that ops which other models have are enough. Of
 * scores s, with L the logarithm of the sum of e^s so far:
 *
 *      H += (kept - H) sigmoid(s - L);  L += softplus(s - L) */
#include "model/build.h"
#include "model/keys.h"

/* Far above any real model; plans are as long as this is large. */
#define MAX_RECALLS 32

enum { OPS_PER_RECALL = 9, OPS_PER_SUM = 5 };

enum err recall_read(struct model *m, struct err_info *e)
{
    static const char key[] = "attn_res.block_size";
    struct model_hparams *hp = &m->hp;
    if (!key_find(m, key))
        return err_set(e, ERR_FORMAT, "metadata key %s.%s is missing", m->arch, key);
    enum err err = key_u32_in(m, key, 0, 1u << 20, &hp->recall_step, e);
    if (err || hp->recall_step == 0)
        return err;
    hp->n_recall = (hp->n_layer - 1) / hp->recall_step + 1;
    if (hp->n_recall > MAX_RECALLS)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s.%s is %u: %u layers are %u blocks, at most %u are supported",
                       m->arch,
                       key,
                       hp->recall_step,
                       hp->n_layer,
                       hp->n_recall,
                       MAX_RECALLS);
    return OK;
}

void recall_widths(struct model *m)
{
    uint32_t *w = m->buf_width;
    if (m->hp.recall_step == 0)
        return;
    w[BUF_STREAMS] = m->hp.n_recall * m->hp.n_embd;
    w[BUF_BESIDE] = m->hp.n_embd;
    w[BUF_MODES] = w[BUF_COEFS] = 1;
}

uint32_t recall_most_ops(const struct model *m)
{
    const uint32_t n_sums = 2 * m->hp.n_layer + 1;
    return m->hp.recall_step ? n_sums * (OPS_PER_SUM + OPS_PER_RECALL * m->hp.n_recall) : 0;
}

/* Of what buffer `in` holds. OUT is free before a sub-layer. */
static void add_score(struct builder *b,
                      const struct gguf_tensor *w,
                      enum model_buf in,
                      enum model_buf score)
{
    plan_add(b, OP_NORM, in, BUF_OUT)->w = plan_ones(b);
    plan_linear_of(b, w, BUF_OUT, b->m->hp.n_embd, score, 1);
}

/* X and what was kept, to H. */
static void add_sum(struct builder *b, const struct gguf_tensor *w)
{
    add_score(b, w, BUF_X, BUF_MODES);
    plan_copy(b, BUF_X, 0, BUF_H, 0);
    for (uint32_t i = 0; i < b->n_recalled; i++) {
        plan_copy(b, BUF_STREAMS, i, BUF_BESIDE, 0);
        add_score(b, w, BUF_BESIDE, BUF_COEFS);
        plan_add(b, OP_ADD, BUF_MODES, BUF_COEFS)->scale = -1.0f;
        plan_add(b, OP_ADD, BUF_H, BUF_BESIDE)->scale = -1.0f;
        plan_add(b, OP_ADD_GATED, BUF_BESIDE, BUF_H)->in2 = BUF_COEFS;
        if (i + 1 == b->n_recalled)
            break;
        plan_unary(b, BUF_COEFS, 1, UNARY_SOFTPLUS);
        plan_add(b, OP_ADD, BUF_COEFS, BUF_MODES);
    }
}

static const struct gguf_tensor *take_score(struct builder *b, const char *name)
{
    return plan_take(b, name, b->m->hp.n_embd, 1, F32_ONLY, REQUIRED);
}

enum model_buf plan_recall(struct builder *b, bool attention)
{
    const char *stem = attention ? "attn_res_score" : "ffn_res_score";
    const struct gguf_tensor *w = take_score(b, plan_name(b, stem, "weight"));
    const enum model_buf out = b->n_recalled ? BUF_H : BUF_X;
    if (b->n_recalled)
        add_sum(b, w);
    if (attention && b->layer % b->m->hp.recall_step == 0) {
        plan_copy(b, BUF_X, 0, BUF_STREAMS, b->n_recalled++);
        b->restarts = true;
    }
    return out;
}

void plan_recall_last(struct builder *b)
{
    add_sum(b, take_score(b, "output_res_score.weight"));
    plan_copy(b, BUF_H, 0, BUF_X, 0);
}
