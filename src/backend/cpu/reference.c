#include "backend/cpu/reference.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct eval {
    const struct model *m;
    const int32_t *tokens;
    uint32_t n;
    double *bufs[N_MODEL_BUFS]; /* [n, buf_width] */
};

static double *row_of(const struct eval *v, enum model_buf buf, uint32_t row)
{
    return v->bufs[buf] + (size_t)row * v->m->buf_width[buf];
}

static void dequantise_row(const struct gguf_tensor *t, uint64_t row, float *out)
{
    gguf_dequantize(t->type, t->data + row * (t->n_bytes / t->ne[1]), out, t->ne[0]);
}

static void embed(const struct eval *v, const struct op *op)
{
    float *w = mem_alloc(op->w->ne[0] * sizeof *w);
    for (uint32_t r = 0; r < v->n; r++) {
        dequantise_row(op->w, (uint64_t)v->tokens[r], w);
        for (uint64_t i = 0; i < op->w->ne[0]; i++)
            row_of(v, op->out, r)[i] = w[i];
    }
    free(w);
}

static void norm(const double *x, const struct gguf_tensor *w, double *out, uint32_t n, double eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const double scale = 1 / sqrt(sum / n + eps);
    for (uint32_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, w->data + i * sizeof f, sizeof f);
        out[i] = x[i] * scale * f;
    }
}

void reference_matvec(const struct gguf_tensor *w, const double *x, double *out, uint64_t n_rows)
{
    float *row = mem_alloc(w->ne[0] * sizeof *row);
    for (uint64_t j = 0; j < n_rows; j++) {
        dequantise_row(w, j, row);
        double sum = 0;
        for (uint64_t k = 0; k < w->ne[0]; k++)
            sum += row[k] * x[k];
        out[j] = sum;
    }
    free(row);
}

static void linear(const struct eval *v, const struct op *op)
{
    for (uint32_t r = 0; r < v->n; r++) {
        double *out = row_of(v, op->out, r);
        reference_matvec(op->w, row_of(v, op->in, r), out, op->n_out);
        for (uint32_t j = 0; op->bias && j < op->n_out; j++) {
            float f;
            memcpy(&f, op->bias->data + j * sizeof f, sizeof f);
            out[j] += f;
        }
    }
}

static void rotate_heads(const struct eval *v, double *x, uint32_t n_heads, uint32_t pos)
{
    const uint32_t half = v->m->hp.rope_dims / 2;
    for (uint32_t h = 0; h < n_heads; h++, x += v->m->hp.head_dim) {
        for (uint32_t i = 0; i < half; i++) {
            const double angle = pos * v->m->rope_inv_freq[i];
            const uint32_t at = v->m->rope == ROPE_HALVES ? i : 2 * i;
            const uint32_t other = v->m->rope == ROPE_HALVES ? i + half : 2 * i + 1;
            const double a = x[at], b = x[other];
            x[at] = a * cos(angle) - b * sin(angle);
            x[other] = a * sin(angle) + b * cos(angle);
        }
    }
}

/* K and V of all positions are still in their buffers: the layer's own linears have just filled
 * them. */
static void attention(const struct eval *v, const struct op *op)
{
    const struct model_hparams *hp = &v->m->hp;
    const uint32_t dim = hp->head_dim, group = hp->n_head / hp->n_head_kv;
    double *w = mem_alloc(v->n * sizeof *w);
    for (uint32_t r = 0; r < v->n; r++) {
        for (uint32_t h = 0; h < hp->n_head; h++) {
            const double *q = row_of(v, BUF_Q, r) + (size_t)h * dim;
            double *out = row_of(v, op->out, r) + (size_t)h * dim;
            const size_t col = (size_t)(h / group) * dim;
            double top = -INFINITY, sum = 0;
            for (uint32_t p = 0; p <= r; p++) {
                w[p] = 0;
                for (uint32_t d = 0; d < dim; d++)
                    w[p] += q[d] * row_of(v, BUF_K, p)[col + d];
                w[p] *= op->scale;
                top = w[p] > top ? w[p] : top;
            }
            memset(out, 0, dim * sizeof *out);
            for (uint32_t p = 0; p <= r; p++) {
                const double e = exp(w[p] - top);
                sum += e;
                for (uint32_t d = 0; d < dim; d++)
                    out[d] += e * row_of(v, BUF_V, p)[col + d];
            }
            for (uint32_t d = 0; d < dim; d++)
                out[d] /= sum;
        }
    }
    free(w);
}

static void each_row(const struct eval *v, const struct op *op)
{
    const struct model_hparams *hp = &v->m->hp;
    const uint32_t n = v->m->buf_width[op->out];
    for (uint32_t r = 0; r < v->n; r++) {
        double *out = row_of(v, op->out, r);
        const double *in = row_of(v, op->in, r), *in2 = row_of(v, op->in2, r);
        switch (op->kind) {
        case OP_NORM:
            norm(in, op->w, out, n, hp->norm_eps);
            break;
        case OP_HEAD_NORM:
            for (uint32_t i = 0; i < n; i += hp->head_dim)
                norm(out + i, op->w, out + i, hp->head_dim, hp->norm_eps);
            break;
        case OP_ROPE_STORE:
            rotate_heads(v, row_of(v, BUF_Q, r), hp->n_head, r);
            rotate_heads(v, row_of(v, BUF_K, r), hp->n_head_kv, r);
            break;
        case OP_GATED_SILU:
            for (uint32_t i = 0; i < n; i++)
                out[i] = in[i] / (1 + exp(-in[i])) * in2[i];
            break;
        default: /* OP_ADD */
            for (uint32_t i = 0; i < n; i++)
                out[i] += in[i];
        }
    }
}

void reference_logits(const struct model *m, const int32_t *tokens, uint32_t n, float *logits)
{
    struct eval v = {.m = m, .tokens = tokens, .n = n};
    for (int i = 0; i < N_MODEL_BUFS; i++)
        v.bufs[i] = mem_zalloc((size_t)n * m->buf_width[i] + 1, sizeof(double));
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (op->kind == OP_EMBED)
            embed(&v, op);
        else if (op->kind == OP_LINEAR || op->kind == OP_LOGITS)
            linear(&v, op);
        else if (op->kind == OP_ATTENTION)
            attention(&v, op);
        else
            each_row(&v, op);
    }
    for (size_t i = 0; i < (size_t)n * m->hp.n_vocab; i++)
        logits[i] = (float)v.bufs[BUF_LOGITS][i];
    for (int i = 0; i < N_MODEL_BUFS; i++)
        free(v.bufs[i]);
}
