#include "cli/bench_limits.h"

#include "model/uses.h"

#include <math.h>

/* What one token costs: multiplications by kind, and bytes read a step. */
struct cost {
    double ops[N_LIMIT_KINDS], bytes;
};

static enum limit_kind limit_of(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_F32:
        return LIMIT_F32;
    case GGUF_TYPE_F16:
        return LIMIT_F16;
    case GGUF_TYPE_BF16:
        return LIMIT_BF16;
    case GGUF_TYPE_Q8_0:
        return LIMIT_Q8_0;
    default:
        return LIMIT_QUANT;
    }
}

/* share: of the matrix that one token meets; read: that a step of some does. */
static void cost_add(struct cost *c, const struct op *op, double share, double read)
{
    c->ops[limit_of(op->w->type)] += 2.0 * op->n_in * op->n_out * (double)op->w->ne[2] * share;
    const uint64_t part = op->kind == OP_EXPERTS ? op->w->ne[1] : op->n_out; /* others' rows too */
    c->bytes += (double)op->w->n_bytes * read * op->n_out / (double)part;
}

/* Of the first n_ops. A step of n_tokens reads an expert once, if any of them is given to it; as if
 * all were as likely. */
static struct cost cost_of(const struct model *m, uint32_t n_ops, uint32_t n_tokens)
{
    struct cost c = {0};
    for (uint32_t i = 0; i < n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (op->kind == OP_LINEAR || op->kind == OP_HEAD_LINEAR || op->kind == OP_LOGITS)
            cost_add(&c, op, 1, 1);
        if (op->kind == OP_EXPERTS) {
            const double used = (double)op->n_head / m->hp.n_expert; /* layers may differ */
            cost_add(&c, op, used, 1 - pow(1 - used, n_tokens));
        }
    }
    return c;
}

static double compute_seconds(const struct device_limits *limits, const struct cost *c)
{
    double seconds = 0;
    for (int i = 0; i < N_LIMIT_KINDS; i++)
        seconds += c->ops[i] / limits->ops_s[i];
    return seconds;
}

double prefill_least_seconds(const struct model *m,
                             const struct device_limits *limits,
                             uint32_t n,
                             uint32_t last)
{
    uint32_t to_logits = 0;
    while (to_logits < m->n_ops && m->ops[to_logits].kind != OP_LOGITS)
        to_logits++;
    const struct cost stored = cost_of(m, plan_last_storing(m) + 1, n);
    const struct cost layers = cost_of(m, to_logits, n), all = cost_of(m, m->n_ops, n);
    const double a = compute_seconds(limits, &stored), z = compute_seconds(limits, &layers);
    return n * a + last * (z - a) + compute_seconds(limits, &all) - z;
}

/* Bytes of K and V that all layers read for `batch` rows at position `at`, of which the first
 * `shared` are the same for all, and of the states of recurrent ones that they read and write. */
static double kv_read(
    const struct model *m, enum kv_type type, uint32_t batch, double at, double shared)
{
    double sum = 2.0 * (double)model_state_bytes(m) * batch;
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (op->kind != OP_ATTENTION)
            continue;
        const double from = op->window && op->window < at ? at - op->window : 0;
        const double once = shared > from ? shared - from : 0;
        sum += (double)backend_kv_read_bytes(m, op, type) *
               ((at - from) * batch - once * (batch - 1.0));
    }
    return sum;
}

double decode_least_seconds(const struct model *m,
                            const struct device_limits *limits,
                            enum kv_type type,
                            uint32_t batch,
                            double at,
                            double shared,
                            double bytes_s)
{
    const struct cost c = cost_of(m, m->n_ops, batch);
    const double by_memory = (c.bytes + kv_read(m, type, batch, at, shared)) / bytes_s;
    const double by_compute = compute_seconds(limits, &c) * batch;
    return by_memory > by_compute ? by_memory : by_compute;
}
