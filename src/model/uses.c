#include "model/uses.h"

bool plan_reads_later(const struct model *m, uint32_t i, enum model_buf buf)
{
    for (uint32_t n = i + 1; n < m->n_ops; n++) {
        const struct op *op = &m->ops[n];
        bool in_place =
            op->kind == OP_ADD || op->kind == OP_ADD_GATED || op->kind == OP_HEAD_NORM ||
            op->kind == OP_HEAD_LAYER_NORM || op->kind == OP_ROPE_STORE || op->kind == OP_ROPE ||
            op->kind == OP_HEAD_LINEAR || op->kind == OP_HEAD_COPY || op->kind == OP_ADD_POSITION ||
            op->kind == OP_ADD_TYPE || op->kind == OP_MATCH || op->kind == OP_FOLD ||
            op->kind == OP_PREDICT || op->kind == OP_CORRECT || op->kind == OP_SPREAD ||
            op->kind == OP_CONV || op->kind == OP_HEAD_UNIT || op->kind == OP_RATES ||
            op->kind == OP_HEAD_SCALE;
        if (op->kind != OP_EMBED && op->in == buf)
            return true;
        if ((op->kind == OP_GATED || op->kind == OP_ROPE_STORE || op->kind == OP_ADD_GATED ||
             op->kind == OP_PREDICT || op->kind == OP_CORRECT) &&
            op->in2 == buf)
            return true;
        if (op->kind == OP_ATTENTION && buf == BUF_Q)
            return true;
        if ((op->kind == OP_RATES || op->kind == OP_RECUR) && (buf == BUF_RATE || buf == BUF_BETA))
            return true;
        if (op->out == buf)
            return in_place;
    }
    return false;
}

/* Choices of experts are kept by row, too: between SELECT and MIX no row may move. */
uint32_t plan_last_storing(const struct model *m)
{
    uint32_t last = 0;
    bool selected = false;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        switch (m->ops[i].kind) {
        case OP_EMBED:
        case OP_ADD_POSITION:
        case OP_ADD_TYPE:
        case OP_ROPE_STORE:
        case OP_CONV:
        case OP_RECUR:
            last = i;
            selected = false;
            break;
        case OP_SELECT:
            selected = true;
            break;
        case OP_EXPERTS:
        case OP_MIX:
            last = selected ? last : i;
            break;
        case OP_ROPE:
        case OP_ATTENTION:
        case OP_NORM:
        case OP_LAYER_NORM:
        case OP_LINEAR:
        case OP_HEAD_LINEAR:
        case OP_HEAD_COPY:
        case OP_HEAD_NORM:
        case OP_HEAD_UNIT:
        case OP_HEAD_LAYER_NORM:
        case OP_RATES:
        case OP_SCALE:
        case OP_CLAMP:
        case OP_MUL:
        case OP_SPARSE:
        case OP_MATCH:
        case OP_FOLD:
        case OP_PREDICT:
        case OP_CORRECT:
        case OP_SPREAD:
        case OP_GATED:
        case OP_UNARY:
        case OP_HEAD_SCALE:
        case OP_ADD:
        case OP_ADD_GATED:
        case OP_LOGITS:
        case OP_HIDDEN:
        case OP_TANH:
            break;
        }
    }
    return last;
}

bool plan_same_input(const struct op *a, const struct op *b)
{
    return b->kind == OP_LINEAR && a->kind == OP_LINEAR && b->in == a->in && b->n_in == a->n_in &&
           b->out != a->in;
}
