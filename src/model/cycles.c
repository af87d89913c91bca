/* Two stacks of layers (Hierarchical Reasoning Model, Wang et al. 2025): in each cycle the low one
 * is gone through several times, then the high one once, each time over the sum of what both made
 * last. The high one begins with the embedding. A pass has keys and values of its own: the plan's
 * layers are those of all passes. */
#include "model/build.h"
#include "model/keys.h"

/* Of a pass, counted from 0. */
static bool is_high(const struct model_hparams *hp, uint32_t pass)
{
    return (pass + 1) % (hp->n_low_pass + 1) == 0;
}

enum err cycles_read(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    uint32_t n_cycle = 0;
    enum err err;
    if ((err = key_u32_in(m, "hrm.layers_per_stack", 1, hp->n_layer, &hp->n_stack, e)) ||
        (err = key_u32_in(m, "hrm.l_cycles", 1, hp->n_layer, &hp->n_low_pass, e)) ||
        (err = key_u32_in(m, "hrm.h_cycles", 1, hp->n_layer, &n_cycle, e)))
        return err;
    const uint64_t n = (uint64_t)hp->n_stack * n_cycle * (hp->n_low_pass + 1);
    if (n != hp->n_layer)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.block_count is %u, but %u cycles of %u passes over %u layers make %llu",
                       m->arch,
                       hp->n_layer,
                       n_cycle,
                       hp->n_low_pass + 1,
                       hp->n_stack,
                       (unsigned long long)n);
    return OK;
}

static void copy_row(struct builder *b, enum model_buf out)
{
    struct op *op = plan_add(b, OP_HEAD_COPY, BUF_X, out);
    op->n_head = 1;
    op->in_step = op->out_step = b->m->hp.n_embd;
}

void plan_cycles(struct builder *b)
{
    copy_row(b, BUF_BESIDE);
    plan_add(b, OP_ADD_TYPE, BUF_X, BUF_X)->w =
        plan_take(b, "hrm.z_l_init", b->m->hp.n_embd, 1, ANY_TYPE, REQUIRED);
}

void plan_cycles_next(struct builder *b)
{
    const struct model_hparams *hp = &b->m->hp;
    const uint32_t pass = b->layer / hp->n_stack;
    const bool was_high = is_high(hp, pass), more = b->layer + 1 + hp->n_stack < hp->n_layer;
    if (was_high)
        copy_row(b, BUF_BESIDE);
    else if (is_high(hp, pass + 1) && more)
        copy_row(b, BUF_LOW);
    plan_add(b, OP_ADD, was_high ? BUF_LOW : BUF_BESIDE, BUF_X);
}
