/* Recurrent layers as their definitions read (model.h), of one sequence from its first row on. */
#include "oracle/oracle.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct rows {
    const struct model *m;
    double *const *bufs;
    uint32_t n;
};

static double *row_of(const struct rows *v, enum model_buf buf, uint32_t row)
{
    return v->bufs[buf] + (size_t)row * v->m->buf_width[buf];
}

static double value_of(const struct gguf_tensor *t, uint64_t i)
{
    float f;
    memcpy(&f, t->data + i * sizeof f, sizeof f);
    return f;
}

static void convolve(const struct rows *v, const struct op *op)
{
    const uint32_t width = v->m->hp.conv_width;
    const uint32_t first = op->first_channel;
    for (uint32_t c = 0; c < op->n_out; c++) {
        for (uint32_t r = v->n; r-- > 0;) { /* the last first: rows before it are as they were */
            double sum = op->bias ? value_of(op->bias, c) : 0;
            for (uint32_t i = 0; i < width; i++)
                if (r + 1 + i >= width)
                    sum += value_of(op->w, (uint64_t)c * width + i) *
                           row_of(v, op->out, r + 1 + i - width)[first + c];
            row_of(v, op->out, r)[first + c] = op->gated ? sum / (1 + exp(-sum)) : sum;
        }
    }
}

static void unit(const struct rows *v, const struct op *op, uint32_t r)
{
    for (double *x = row_of(v, op->out, r), *end = x + op->n_out; x < end; x += op->head_dim) {
        double sum = op->eps > 0 ? op->eps : v->m->hp.norm_eps;
        for (uint32_t i = 0; i < op->head_dim; i++)
            sum += x[i] * x[i];
        for (uint32_t i = 0; i < op->head_dim; i++)
            x[i] /= sqrt(sum);
    }
}

static void rates(const struct rows *v, const struct op *op, uint32_t r)
{
    const uint32_t per = op->in_step;
    const double *in = row_of(v, op->in, r);
    double *rate = row_of(v, BUF_RATE, r), *beta = row_of(v, BUF_BETA, r);
    for (uint32_t h = 0; h < op->n_head; h++) {
        const double x = per ? in[h / per * 2 * per + per + h % per] : rate[h];
        const double y = per ? in[h / per * 2 * per + h % per] : beta[h];
        const double s = log1p(exp(x + value_of(op->bias, h)));
        rate[h] = exp(s * value_of(op->w, h));
        beta[h] = op->recur == RECUR_DELTA ? 1 / (1 + exp(-y)) : s;
    }
}

/* One head, over all rows. */
static void recur(const struct rows *v, const struct op *op, uint32_t h)
{
    const struct model_hparams *hp = &v->m->hp;
    const uint32_t n_key = hp->rec_key, n_value = hp->rec_value, n_group = hp->n_rec_group;
    const bool each = op->recur == RECUR_DELTA_EACH, delta = each || op->recur == RECUR_DELTA;
    const bool fixed = op->recur == RECUR_FIXED;
    const uint32_t g = op->tiled ? h % n_group : h / (op->n_head / n_group);
    const size_t keys = (size_t)n_group * n_key, values = (size_t)op->n_head * n_value;
    double *state = mem_zalloc((size_t)n_key * n_value, sizeof *state);
    for (uint32_t r = 0; r < v->n; r++) {
        const double *mix = row_of(v, op->in, r);
        const double *q = mix + (delta ? 0 : values + keys) + (size_t)g * n_key;
        const double *k = mix + (delta ? keys : values) + (size_t)g * n_key;
        const double *x = mix + (delta ? 2 * keys : 0) + (size_t)h * n_value;
        const double own = fixed ? value_of(op->w, h) : 0;
        const double *f = fixed ? &own : row_of(v, BUF_RATE, r) + (each ? h * n_key : h);
        const double b = fixed ? value_of(op->w, op->n_head + h) : row_of(v, BUF_BETA, r)[h];
        if (fixed) {
            q = mix + (size_t)h * (2 * n_key + n_value);
            k = q + n_key;
            x = k + n_key;
        }
        for (uint32_t c = 0; c < n_value; c++) {
            double held = 0, out = 0;
            for (uint32_t i = 0; delta && i < n_key; i++)
                held += f[each ? i : 0] * state[i * n_value + c] * k[i];
            for (uint32_t i = 0; i < n_key; i++) {
                double *s = &state[i * n_value + c];
                *s = f[each ? i : 0] * *s + k[i] * (x[c] - held) * b;
                out += *s * q[i];
            }
            if (!fixed)
                out = delta ? out / sqrt(n_key) : out + value_of(op->w, h) * x[c];
            row_of(v, op->out, r)[(size_t)h * n_value + c] = out;
        }
    }
    free(state);
}

/* One head whose vectors have rows of their own, likewise. */
static void recur_apart(const struct rows *v, const struct op *op, uint32_t h)
{
    const uint32_t n = v->m->hp.rec_key;
    const size_t own = (size_t)h * n;
    const bool first = op->recur == RECUR_READ_FIRST;
    double *state = mem_zalloc((size_t)n * n, sizeof *state);
    for (uint32_t r = 0; r < v->n; r++) {
        const double *q = row_of(v, BUF_Q, r) + own, *k = row_of(v, BUF_K, r) + own;
        const double *u = first ? q : row_of(v, BUF_REC_KEY, r) + own;
        const double *b = row_of(v, BUF_BETA, r) + own;
        const double *f = row_of(v, BUF_RATE, r) + own, *x = row_of(v, BUF_V, r) + own;
        for (uint32_t c = 0; c < n; c++) {
            double was = 0, out = 0;
            for (uint32_t i = 0; i < n; i++)
                was += state[i * n + c] * u[i];
            for (uint32_t i = 0; i < n; i++) {
                double *s = &state[i * n + c];
                *s = f[i] * *s + k[i] * x[c] - (first ? 0 : b[i] * was);
                out += *s * q[i];
            }
            row_of(v, op->out, r)[own + c] = first ? was : out;
        }
    }
    free(state);
}

/* One channel, likewise. */
static void recur_channel(const struct rows *v, const struct op *op, uint32_t c)
{
    const uint32_t n_key = v->m->hp.rec_key;
    double *state = mem_zalloc(n_key, sizeof *state);
    for (uint32_t r = 0; r < v->n; r++) {
        const double *k = row_of(v, BUF_REC_KEY, r), *q = row_of(v, BUF_REC_QUERY, r);
        const double x = row_of(v, op->in, r)[c], step = row_of(v, BUF_RATE, r)[c];
        double out = value_of(op->bias, c) * x;
        for (uint32_t i = 0; i < n_key; i++) {
            state[i] =
                exp(step * value_of(op->w, (uint64_t)c * n_key + i)) * state[i] + k[i] * step * x;
            out += state[i] * q[i];
        }
        row_of(v, op->out, r)[c] = out;
    }
    free(state);
}

bool oracle_recurrent(const struct model *m, const struct op *op, double *const *bufs, uint32_t n)
{
    const struct rows v = {m, bufs, n};
    switch (op->kind) {
    case OP_CONV:
        convolve(&v, op);
        return true;
    case OP_RECUR:
        for (uint32_t h = 0; h < op->n_head; h++)
            (op->recur == RECUR_SELECTIVE                                      ? recur_channel
             : op->recur == RECUR_DELTA_APART || op->recur == RECUR_READ_FIRST ? recur_apart
                                                                               : recur)(&v, op, h);
        return true;
    case OP_HEAD_UNIT:
        for (uint32_t r = 0; r < n; r++)
            unit(&v, op, r);
        return true;
    case OP_RATES:
        for (uint32_t r = 0; r < n; r++)
            rates(&v, op, r);
        return true;
    default:
        return false;
    }
}
