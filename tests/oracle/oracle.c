#include "oracle/oracle.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct eval {
    const struct model *m;
    const int32_t *tokens;
    uint32_t n;
    double *bufs[N_MODEL_BUFS]; /* [n, buf_width] */
    uint32_t *experts;          /* [n, n_expert_used] by rank */
    double *weights;            /* likewise */
    double **kept;              /* [n_layer][n, K and V] as stored; NULL: not yet */
};

static double value_of(const struct gguf_tensor *t, uint64_t i)
{
    float f;
    memcpy(&f, t->data + i * sizeof f, sizeof f);
    return f;
}

static double capped(double x, float cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

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
            row_of(v, op->out, r)[i] = (double)w[i] * op->scale;
    }
    free(w);
}

static void norm(const double *x, const struct gguf_tensor *w, double *out, uint32_t n, double eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const double scale = 1 / sqrt(sum / n + eps);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] * scale * (w ? value_of(w, i) : 1);
}

/* From value `first` of a row on. */
static void head_norm(const struct op *op, uint32_t first, double *x, double eps)
{
    const bool each = op->w && op->w->ne[1] > 1;
    norm(x, NULL, x, op->head_dim, eps);
    for (uint32_t i = 0; op->w && i < op->head_dim; i++)
        x[i] *= value_of(op->w, each ? first + i : i);
}

static void head_layer_norm(const struct op *op, uint32_t first, double *x, uint32_t n, double eps)
{
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    for (uint32_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrt(variance + eps) * value_of(op->w, first + i) +
               (op->bias ? value_of(op->bias, first + i) : 0);
}

static void layer_norm(const double *x, const struct op *op, double *out, uint32_t n, double eps)
{
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (x[i] - mean) / sqrt(variance + eps) * (op->w ? value_of(op->w, i) : 1) +
                 (op->bias ? value_of(op->bias, i) : 0);
}

/* out[n_rows] = w x for the first n_rows rows of a matrix; x [ne[0]]. */
static void matvec(const struct gguf_tensor *w, const double *x, double *out, uint64_t n_rows)
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
        matvec(op->w, row_of(v, op->in, r), out, op->n_out);
        for (uint32_t j = 0; op->factor && j < op->n_out; j++)
            out[j] *= value_of(op->factor, 0);
        for (uint32_t j = 0; op->bias && j < op->n_out; j++)
            out[j] += value_of(op->bias, j);
        for (uint32_t j = 0; op->kind == OP_LOGITS && j < op->n_out; j++)
            out[j] = capped(out[j] * op->scale, op->cap);
    }
}

/* Softmax or sigmoids of the scores of all experts. */
static void gate_all(const struct model_hparams *hp, const double *score, double *p)
{
    double top = score[0], sum = 0;
    for (uint32_t x = 1; x < hp->n_expert; x++)
        top = score[x] > top ? score[x] : top;
    for (uint32_t x = 0; x < hp->n_expert; x++)
        sum += p[x] = exp(score[x] - top);
    for (uint32_t x = 0; x < hp->n_expert; x++)
        p[x] = hp->expert_sigmoid ? 1 / (1 + exp(-score[x])) : p[x] / sum;
}

/* rank becomes -inf outside of the best groups, which are those with the largest sums of their
 * n_best largest scores. */
static void drop_groups(const struct model_hparams *hp,
                        const double *score,
                        double *rank,
                        int n_best)
{
    const uint32_t n = hp->n_expert / hp->n_expert_group;
    double *worth = mem_zalloc(hp->n_expert_group, sizeof *worth);
    for (uint32_t g = 0; g < hp->n_expert_group; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (uint32_t x = g * n; x < (g + 1) * n; x++) {
            second = score[x] > first ? first : score[x] > second ? score[x] : second;
            first = score[x] > first ? score[x] : first;
        }
        worth[g] = n_best > 1 && n > 1 ? first + second : first;
    }
    for (uint32_t g = 0; g < hp->n_expert_group; g++) {
        uint32_t better = 0;
        for (uint32_t o = 0; o < hp->n_expert_group; o++)
            better += worth[o] > worth[g] || (worth[o] == worth[g] && o < g);
        for (uint32_t x = g * n; x < (g + 1) * n && better >= hp->n_expert_group_used; x++)
            rank[x] = -INFINITY;
    }
    free(worth);
}

/* Weight of the i-th of those chosen (model.h, expert_mixer). */
static double mixed(const struct model_hparams *hp,
                    const double *score,
                    const uint32_t *chosen,
                    uint32_t i)
{
    const double top = score[chosen[i]];
    double sum = 0;
    for (uint32_t x = 0; x < hp->n_expert; x++) {
        bool out = (top - score[x]) / fmax(fabs(score[x]), top) > 0.02;
        for (uint32_t k = 0; k < i; k++)
            out |= chosen[k] == x;
        sum += out ? 0 : exp(score[x] - top);
    }
    return 1 / sum;
}

/* The most probable first (corrected by a bias where there is one), the first of equals before the
 * others. */
static void select_experts(const struct eval *v, const struct op *op)
{
    const struct model_hparams *hp = &v->m->hp;
    double *p = mem_zalloc((size_t)hp->n_expert * 2, sizeof *p), *rank = p + hp->n_expert;
    for (uint32_t r = 0; r < v->n; r++) {
        const double *score = row_of(v, op->in, r);
        uint32_t *chosen = v->experts + (size_t)r * op->n_head;
        double *w = v->weights + (size_t)r * op->n_head, sum = 0;
        bool no_number = false;
        gate_all(hp, score, p);
        for (uint32_t x = 0; x < hp->n_expert; x++) {
            rank[x] = op->bias ? p[x] + value_of(op->bias, x) : score[x];
            no_number |= isnan(rank[x]) != 0;
        }
        if (hp->n_expert_group > 1)
            drop_groups(hp, op->bias ? rank : p, rank, op->bias ? 2 : 1);
        for (uint32_t i = 0; i < op->n_head; i++) {
            chosen[i] = UINT32_MAX;
            for (uint32_t x = 0; x < hp->n_expert; x++) {
                bool taken = false;
                for (uint32_t k = 0; k < i; k++)
                    taken |= chosen[k] == x;
                if (!taken && (chosen[i] == UINT32_MAX || rank[x] > rank[chosen[i]]))
                    chosen[i] = x;
            }
            sum += p[chosen[i]];
        }
        for (uint32_t i = 0; i < op->n_head; i++)
            w[i] = no_number ? NAN
                             : (hp->expert_mixer ? mixed(hp, score, chosen, i)
                                                 : p[chosen[i]] / (hp->expert_norm ? sum : 1)) *
                                   hp->expert_scale * (op->w ? value_of(op->w, chosen[i]) : 1);
    }
    free(p);
}

static void experts(const struct eval *v, const struct op *op)
{
    const uint32_t n_used = op->n_head;
    const bool shared_input = !model_buf_of_experts(op->in);
    for (uint32_t r = 0; r < v->n; r++) {
        for (uint32_t i = 0; i < n_used; i++) {
            const uint32_t x = v->experts[(size_t)r * n_used + i];
            const double *in = row_of(v, op->in, r) + (shared_input ? 0 : (size_t)i * op->n_in);
            double *out = row_of(v, op->out, r) + (size_t)i * op->n_out;
            struct gguf_tensor w = *op->w;
            w.n_bytes /= w.ne[2];
            w.data += x * w.n_bytes + op->first_row * (w.n_bytes / w.ne[1]);
            matvec(&w, in, out, op->n_out);
            for (uint32_t j = 0; op->factor && j < op->n_out; j++)
                out[j] *= value_of(op->factor, x);
            for (uint32_t j = 0; op->bias && j < op->n_out; j++)
                out[j] += value_of(op->bias, (uint64_t)x * op->n_out + j);
        }
    }
}

static void mix(
    const struct eval *v, const struct op *op, double *out, const double *in, uint32_t r)
{
    const uint32_t n_used = op->n_head;
    memset(out, 0, op->n_out * sizeof *out);
    for (uint32_t i = 0; i < n_used; i++) {
        for (uint32_t j = 0; j < op->n_out; j++)
            out[j] += (v->m->hp.expert_input ? 1 : v->weights[(size_t)r * n_used + i]) *
                      in[(size_t)i * op->n_out + j];
    }
}

/* NaN stays NaN, of which fmin and fmax make a bound. */
static double at_most(double x, double bound)
{
    return x > bound ? bound : x;
}

static double within(double x, double bound)
{
    return x < -bound ? -bound : at_most(x, bound);
}

static double gated(enum gate_kind kind, double g, double u, double cap, double scale)
{
    if (kind == GATE_SITU)
        return scale * tanh(g / scale) / (1 + exp(-g)) * (cap > 0 ? cap * tanh(u / cap) : u);
    if (kind == GATE_SILU_CAPPED)
        return at_most(g / (1 + exp(-g)), cap) * within(u, cap);
    if (kind == GATE_SILU_BOUNDED)
        return gated(GATE_SILU, at_most(g, cap), within(u, cap), 0, 1);
    if (kind == GATE_SILU)
        return g / (1 + exp(-g)) * u;
    if (kind == GATE_GELU)
        return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    if (kind == GATE_SIGMOID)
        return u / (1 + exp(-g));
    if (kind == GATE_PLAIN)
        return g * u;
    g = at_most(g, 7);
    u = within(u, 7);
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

static double xielu(const struct xielu *p, double x)
{
    return x * p->beta + (x > 0 ? p->positive * x * x : p->negative * (expm1(fmin(x, p->eps)) - x));
}

static double unary(enum unary_kind kind, double x)
{
    if (kind == UNARY_GELU)
        return 0.5 * x * erfc(-x / sqrt(2));
    if (kind == UNARY_GELU_TANH)
        return gated(GATE_GELU, x, 1, 0, 1);
    if (kind == UNARY_SIGMOID)
        return 1 / (1 + exp(-x));
    if (kind == UNARY_SOFTPLUS)
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    if (kind == UNARY_EXP)
        return exp(x);
    x = x <= 0 ? 0 : x; /* what is no number stays none */
    return kind == UNARY_RELU ? x : x * x;
}

static void rotate_heads(
    const struct eval *v, const struct op *op, double *x, uint32_t n_heads, uint32_t pos)
{
    if (op->rope == ROPE_NONE)
        return;
    const struct model_rope *rope = &v->m->ropes[op->rope];
    const uint32_t half = rope->n_dims / 2;
    x += v->m->hp.rope_first;
    for (uint32_t h = 0; h < n_heads; h++, x += op->head_dim) {
        for (uint32_t i = 0; i < half; i++) {
            const double angle = pos * rope->inv_freq[i];
            const double c = cos(angle) * rope->scale, s = sin(angle) * rope->scale;
            const uint32_t at = v->m->rope == ROPE_HALVES ? i : 2 * i;
            const uint32_t other = v->m->rope == ROPE_HALVES ? i + half : 2 * i + 1;
            const double a = x[at], b = x[other];
            x[at] = a * c - b * s;
            x[other] = a * s + b * c;
        }
    }
}

static uint32_t first_seen(const struct op *op, uint32_t row)
{
    if (op->window == 0)
        return 0;
    if (op->window_kind == WINDOW_CHUNK)
        return row / op->window * op->window;
    const uint32_t behind = op->window_kind == WINDOW_AROUND ? op->window / 2 : op->window - 1;
    return row > behind ? row - behind : 0;
}

/* What a layer stores, for those that attend to it too. */
static void keep(const struct eval *v, const struct op *op)
{
    const size_t n_k = (size_t)v->n * v->m->buf_width[BUF_K];
    const size_t n_v = (size_t)v->n * v->m->buf_width[BUF_V];
    double *to = v->kept[op->layer] = mem_zalloc(n_k + n_v + 1, sizeof *to);
    memcpy(to, v->bufs[BUF_K], n_k * sizeof *to);
    memcpy(to + n_k, v->bufs[BUF_V], n_v * sizeof *to);
}

static void bring_back(const struct eval *v, const struct op *op)
{
    const size_t n_k = (size_t)v->n * v->m->buf_width[BUF_K];
    const size_t n_v = (size_t)v->n * v->m->buf_width[BUF_V];
    memcpy(v->bufs[BUF_K], v->kept[op->layer], n_k * sizeof(double));
    memcpy(v->bufs[BUF_V], v->kept[op->layer] + n_k, n_v * sizeof(double));
}

/* K and V of all positions are still in their buffers where the layer's own linears have just
 * filled them; where it is another's, what that layer stored is brought back first. */
static void attention(const struct eval *v, const struct op *op)
{
    const struct model_hparams *hp = &v->m->hp;
    const uint32_t dim = op->head_dim, group = op->n_head / op->n_head_kv;
    const uint32_t n_value = hp->latent ? hp->latent : dim;
    const enum model_buf values = hp->latent ? BUF_K : BUF_V;
    double *w = mem_alloc(v->n * sizeof *w);
    if (op->borrowed)
        bring_back(v, op);
    for (uint32_t r = 0; r < v->n; r++) {
        for (uint32_t h = 0; h < op->n_head; h++) {
            const double *q = row_of(v, BUF_Q, r) + (size_t)h * dim;
            double *out = row_of(v, op->out, r) + (size_t)h * n_value;
            const size_t col = (size_t)(h / group) * dim;
            const uint32_t begin = first_seen(op, r);
            uint32_t end = hp->causal ? r + 1 : v->n;
            if (op->window && op->window_kind == WINDOW_AROUND && r + op->window / 2 < end)
                end = r + op->window / 2 + 1;
            const double slope =
                op->alibi > 0 ? (double)model_alibi_slope(op->alibi, op->n_head, h) : 0;
            double top = op->w ? value_of(op->w, h) : -INFINITY, sum = 0;
            for (uint32_t p = begin; p < end; p++) {
                w[p] = 0;
                for (uint32_t d = 0; d < dim; d++)
                    w[p] += q[d] * row_of(v, BUF_K, p)[col + d];
                w[p] = capped(w[p] * op->scale, op->cap) -
                       slope * (p < r ? (double)(r - p) : (double)(p - r));
                top = w[p] > top ? w[p] : top;
            }
            memset(out, 0, n_value * sizeof *out);
            sum += op->w ? exp(value_of(op->w, h) - top) : 0;
            for (uint32_t p = begin; p < end; p++) {
                const double e = exp(w[p] - top);
                sum += e;
                for (uint32_t d = 0; d < n_value; d++)
                    out[d] += e * row_of(v, values, p)[col + d];
            }
            for (uint32_t d = 0; d < n_value; d++)
                out[d] /= sum;
        }
    }
    free(w);
}

/* Each head by itself. */
static void heads(const struct eval *v, const struct op *op)
{
    struct gguf_tensor w;
    for (uint32_t r = 0; r < v->n; r++) {
        for (uint32_t h = 0; h < op->n_head; h++) {
            const double *in = row_of(v, op->in, r) + (size_t)h * op->in_step;
            double *out = row_of(v, op->out, r) + (size_t)h * op->out_step;
            if (op->kind == OP_HEAD_COPY) {
                memcpy(out + op->out_step - op->n_out,
                       in + (op->front ? 0 : op->in_step - op->n_out),
                       op->n_out * sizeof *out);
                for (uint32_t i = 0; op->zero && i < op->out_step - op->n_out; i++)
                    out[i] = 0;
                continue;
            }
            w = *op->w;
            w.n_bytes /= w.ne[2];
            w.data += h * w.n_bytes;
            matvec(&w, in, out, op->n_out);
        }
    }
}

/* What value i of an expert's buffer is multiplied by before the gate. */
static double input_weight(const struct eval *v, const struct op *op, uint32_t r, uint32_t i)
{
    if (op->out != BUF_EXPERT_GATE || !v->m->hp.expert_input)
        return 1;
    return v->weights[(size_t)r * op->n_head + i / (op->n_out / op->n_head)];
}

/* Stream j of a row: the first lies behind the others. */
static double *stream_of(const struct op *op, double *streams, uint32_t j)
{
    return streams + (size_t)((j + op->n_head - 1) % op->n_head) * op->n_out;
}

static double mean_square(const double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i] / n;
    return sum;
}

/* Of the ops on several streams, value i. */
static void stream_value(
    const struct op *op, const double *in, const double *in2, double *out, uint32_t i)
{
    const uint32_t n = op->n_head;
    double was[8], first = stream_of(op, out, 0)[i];
    for (uint32_t j = 0; j < n; j++)
        was[j] = stream_of(op, out, j)[i];
    for (uint32_t j = 0; j < n; j++) {
        double *x = &stream_of(op, out, j)[i];
        for (uint32_t k = 0; op->kind == OP_PREDICT && k < n; k++)
            *x += in2[j * n + k] * was[k];
        if (op->kind == OP_CORRECT)
            *x += (in[i] - first) * (1 + in2[j]);
        if (op->kind == OP_SPREAD && j > 0)
            *x += in[i];
    }
}

static void keep_largest(const struct op *op, double *x)
{
    const uint32_t n = op->n_out;
    double mean = 0, variance = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    for (uint32_t i = 0; i < n; i++) {
        x[i] -= mean + op->scale * sqrt(variance);
        x[i] = x[i] < 0 ? 0 : x[i];
    }
}

static void match(const struct op *op, const double *in, double *out)
{
    const uint32_t n = op->n_out;
    for (uint32_t h = 0; h < op->n_head; h++, out += n) {
        const double by = sqrt(mean_square(in, n) / fmax(mean_square(out, n), 1e-5));
        for (uint32_t i = 0; i < n; i++)
            out[i] *= by;
    }
}

static void each_row(const struct eval *v, const struct op *op)
{
    const struct model_hparams *hp = &v->m->hp;
    const uint32_t n = op->n_out;
    for (uint32_t r = 0; r < v->n; r++) {
        double *out = row_of(v, op->out, r);
        const double *in = row_of(v, op->in, r), *in2 = row_of(v, op->in2, r);
        switch (op->kind) {
        case OP_NORM:
            norm(in, op->w, out, n, hp->norm_eps);
            break;
        case OP_LAYER_NORM:
            layer_norm(in, op, out, n, hp->norm_eps);
            break;
        case OP_HIDDEN:
            if (op->w)
                norm(in, op->w, out, n, hp->norm_eps);
            else
                memcpy(out, in, n * sizeof *out);
            break;
        case OP_UNARY:
            for (uint32_t i = 0; i < n; i++)
                out[i] =
                    op->unary == UNARY_XIELU ? xielu(&op->xielu, in[i]) : unary(op->unary, in[i]);
            break;
        case OP_TANH:
            for (uint32_t i = 0; i < n; i++)
                out[i] = tanh(in[i]);
            break;
        case OP_HEAD_LAYER_NORM:
            for (uint32_t i = 0; i < n; i += op->head_dim)
                head_layer_norm(op, i, out + i, op->head_dim, op->eps > 0 ? op->eps : hp->norm_eps);
            break;
        case OP_HEAD_NORM:
            for (uint32_t i = 0; i < n; i += op->head_dim)
                head_norm(op, i, out + i, hp->norm_eps);
            break;
        case OP_ROPE:
        case OP_ROPE_STORE:
            rotate_heads(v, op, row_of(v, BUF_Q, r), op->n_head, r);
            rotate_heads(v, op, row_of(v, BUF_K, r), op->n_head_kv, r);
            for (uint32_t i = 0; op->temper && i < op->n_head * op->head_dim; i++)
                row_of(v, BUF_Q, r)[i] *= model_temper(hp, r);
            break;
        case OP_GATED:
            for (uint32_t i = 0; i < n; i++) {
                const double w = input_weight(v, op, r, i);
                out[i] = gated(op->gate,
                               in[i] * w,
                               in2[op->in2_first + i] * w,
                               (double)op->cap,
                               (double)op->scale);
            }
            break;
        case OP_HEAD_SCALE:
            for (uint32_t i = 0; i < op->n_head * op->head_dim; i++)
                out[i] *= in[i / op->head_dim];
            break;
        case OP_MUL:
            for (uint32_t i = 0; i < n; i++)
                out[i] = in[i] * value_of(op->w, i);
            break;
        case OP_SPARSE:
            keep_largest(op, out);
            break;
        case OP_MATCH:
            match(op, in, out);
            break;
        case OP_FOLD:
            for (uint32_t i = 0; i < n; i++) {
                for (uint32_t h = 0; h < op->n_head; h++)
                    out[i] += in[(size_t)h * n + i];
                out[i] *= op->scale;
            }
            break;
        case OP_PREDICT:
        case OP_CORRECT:
        case OP_SPREAD:
            for (uint32_t i = 0; i < n; i++)
                stream_value(op, in, in2, out, i);
            break;
        case OP_CLAMP:
            for (uint32_t i = 0; i < n; i++)
                out[i] = within(out[i], op->cap);
            break;
        case OP_SCALE:
            for (uint32_t i = 0; i < n; i++)
                out[i] *= op->scale;
            break;
        case OP_ADD_GATED:
            for (uint32_t i = 0; i < n; i++)
                out[i] += in[i] / (1 + exp(-in2[0]));
            break;
        case OP_MIX:
            mix(v, op, out, in, r);
            break;
        default: /* OP_ADD */
            for (uint32_t i = 0; i < n; i++)
                out[i] += in[i] * op->scale;
        }
    }
}

/* Row positions[r], or the first, of a table onto each row. */
static void add_rows(const struct eval *v, const struct op *op)
{
    float *w = mem_alloc(op->w->ne[0] * sizeof *w);
    for (uint32_t r = 0; r < v->n; r++) {
        dequantise_row(op->w, op->kind == OP_ADD_POSITION ? r : 0, w);
        for (uint32_t i = 0; i < op->n_out; i++)
            row_of(v, op->out, r)[i] += w[i];
    }
    free(w);
}

void oracle_run(
    const struct model *m, const int32_t *tokens, uint32_t n, enum model_buf buf, float *result)
{
    struct eval v = {.m = m, .tokens = tokens, .n = n};
    for (int i = 0; i < N_MODEL_BUFS; i++)
        v.bufs[i] = mem_zalloc((size_t)n * m->buf_width[i] + 1, sizeof(double));
    v.experts = mem_zalloc((size_t)n * m->hp.n_expert_used + 1, sizeof *v.experts);
    v.weights = mem_zalloc((size_t)n * m->hp.n_expert_used + 1, sizeof *v.weights);
    v.kept = mem_zalloc(m->hp.n_layer, sizeof(double *));
    for (uint32_t i = 0; i < m->n_ops; i++) {
        const struct op *op = &m->ops[i];
        if (oracle_recurrent(m, op, v.bufs, n))
            continue;
        if (op->kind == OP_EMBED)
            embed(&v, op);
        else if (op->kind == OP_ADD_POSITION || op->kind == OP_ADD_TYPE)
            add_rows(&v, op);
        else if (op->kind == OP_LINEAR || op->kind == OP_LOGITS)
            linear(&v, op);
        else if (op->kind == OP_ATTENTION)
            attention(&v, op);
        else if (op->kind == OP_HEAD_LINEAR || op->kind == OP_HEAD_COPY)
            heads(&v, op);
        else if (op->kind == OP_SELECT)
            select_experts(&v, op);
        else if (op->kind == OP_EXPERTS)
            experts(&v, op);
        else
            each_row(&v, op);
        if (op->kind == OP_ROPE_STORE)
            keep(&v, op);
    }
    for (size_t i = 0; i < (size_t)n * m->buf_width[buf]; i++)
        result[i] = (float)v.bufs[buf][i];
    for (int i = 0; i < N_MODEL_BUFS; i++)
        free(v.bufs[i]);
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        free(v.kept[i]);
    free(v.kept);
    free(v.experts);
    free(v.weights);
}

void oracle_logits(const struct model *m, const int32_t *tokens, uint32_t n, float *logits)
{
    oracle_run(m, tokens, n, BUF_LOGITS, logits);
}
