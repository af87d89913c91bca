#include "model/uses.h"

/* What an op reads: its `in`, its `in2`, of its `out` what it changes or leaves as it is, and RATE
 * and BETA, REC_KEY and REC_QUERY, K and V, which it does not name. */
enum { READS_IN = 1, READS_IN2 = 2, READS_OUT = 4, READS_RATES = 8, READS_KEYS = 16 };

static unsigned reads_of(enum op_kind kind)
{
    switch (kind) {
    case OP_EMBED:
        return 0;
    case OP_ADD_POSITION:
    case OP_ADD_TYPE:
    case OP_HEAD_NORM:
    case OP_HEAD_UNIT:
    case OP_HEAD_LAYER_NORM:
    case OP_CONV:
    case OP_SCALE:
    case OP_CLAMP:
    case OP_SPARSE:
    case OP_UNARY:
    case OP_TANH:
        return READS_OUT;
    case OP_NORM:
    case OP_LAYER_NORM:
    case OP_LINEAR:
    case OP_MUL:
    case OP_ATTENTION:
    case OP_EXPERTS:
    case OP_MIX:
    case OP_LOGITS:
    case OP_HIDDEN:
        return READS_IN;
    case OP_HEAD_LINEAR:
    case OP_HEAD_COPY:
    case OP_HEAD_SCALE:
    case OP_MATCH:
    case OP_FOLD:
    case OP_SPREAD:
    case OP_ADD:
    case OP_SELECT: /* writes none */
    case OP_ROPE:   /* K and Q */
        return READS_IN | READS_OUT;
    case OP_GATED:
        return READS_IN | READS_IN2;
    case OP_ROPE_STORE:
    case OP_ADD_GATED:
    case OP_PREDICT:
    case OP_CORRECT:
        return READS_IN | READS_IN2 | READS_OUT;
    case OP_RATES:
        return READS_IN | READS_OUT | READS_RATES;
    case OP_RECUR:
        return READS_IN | READS_RATES | READS_KEYS;
    }
    return ~0u;
}

bool plan_reads_later(const struct model *m, uint32_t i, enum model_buf buf)
{
    for (uint32_t n = i + 1; n < m->n_ops; n++) {
        const struct op *op = &m->ops[n];
        const unsigned reads = reads_of(op->kind);
        if ((reads & READS_IN && op->in == buf) || (reads & READS_IN2 && op->in2 == buf) ||
            (reads & READS_OUT && op->out == buf) ||
            (reads & READS_RATES && (buf == BUF_RATE || buf == BUF_BETA)) ||
            (reads & READS_KEYS &&
             (buf == BUF_REC_KEY || buf == BUF_REC_QUERY || buf == BUF_K || buf == BUF_V)))
            return true;
        if (op->out == buf)
            return false;
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

const struct op *plan_joined_add(const struct model *m, uint32_t i)
{
    const struct op *op = &m->ops[i], *next = op + 1;
    if (i + 1 >= m->n_ops || next->kind != OP_ADD || next->scale != 1.0f || next->in != op->out ||
        next->out == op->in || next->out == op->out || plan_reads_later(m, i + 1, op->out))
        return NULL;
    return next;
}

bool plan_same_input(const struct op *a, const struct op *b)
{
    return b->kind == OP_LINEAR && a->kind == OP_LINEAR && b->in == a->in && b->n_in == a->n_in &&
           b->out != a->in;
}
