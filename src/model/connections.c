/* Hyper-connections (Zhu et al. 2024), each stream by itself: several residual streams, alike at
 * first. A sub-layer reads a sum of them by weights, and what it puts out joins each by another.
 * All weights come of all streams, normalised as one row. */
#include "model/build.h"

#include "model/keys.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 96 };

static void copy_streams(
    struct builder *b, enum model_buf in, enum model_buf out, uint32_t n, bool spread)
{
    struct op *op = plan_add(b, OP_HEAD_COPY, in, out);
    op->n_head = n;
    op->in_step = spread ? 0 : b->m->hp.n_embd;
    op->out_step = op->n_in = op->n_out = b->m->hp.n_embd;
    op->front = true;
}

/* Each stream of UNFOLDED times its weight. */
static void weigh(struct builder *b, enum model_buf weights)
{
    struct op *op = plan_add(b, OP_HEAD_SCALE, weights, BUF_UNFOLDED);
    op->n_in = op->n_head = b->m->hp.n_stream;
    op->head_dim = b->m->hp.n_embd;
    op->n_out = b->m->buf_width[BUF_UNFOLDED];
}

static float read_key(struct builder *b, const char *key, float hi)
{
    float v = 0.0f;
    if (b->err)
        return 0.0f;
    if (!key_find(b->m, key))
        b->err = err_set(b->e, ERR_FORMAT, "metadata key %s.%s is missing", b->m->arch, key);
    else
        b->err = key_f32_in(b->m, key, -1e-30f, hi, &v, b->e);
    return v;
}

/* n_stream rows that are `scale` where row and value are of one stream, or one of `bias`. */
static const struct gguf_tensor *make_rows(struct builder *b, float scale, const float *bias)
{
    const uint32_t n = b->m->hp.n_stream;
    const uint64_t ne[3] = {n, bias ? 1 : n, 1};
    uint8_t *data = NULL;
    const struct gguf_tensor *w =
        plan_make(b, gguf_tensor_at(b->m->gguf, 0), GGUF_TYPE_F32, ne, n * sizeof scale, &data);
    for (uint64_t i = 0; w && i < ne[0] * ne[1]; i++) {
        const float v = bias ? *bias : i / n == i % n ? scale : 0.0f;
        memcpy(data + i * sizeof v, &v, sizeof v);
    }
    return w;
}

void plan_connections(struct builder *b)
{
    const float eps = read_key(b, "hyper_connection.epsilon", 1.0f);
    const float gain = read_key(b, "hyper_connection.magnitude", 1e6f);
    b->lift_read = make_rows(b, 1.0f, NULL);
    b->lift_write = make_rows(b, gain, NULL);
    b->lift_bias = make_rows(b, 0.0f, &eps);
    copy_streams(b, BUF_X, BUF_STREAMS, b->m->hp.n_stream, true);
}

/* A weight for each stream: lift * sigmoid(scale * product + base) + eps. part: which n_stream rows
 * of a matrix that has n_part times as many. */
static void add_weights(struct builder *b,
                        const char *stem,
                        uint32_t part,
                        uint32_t n_part,
                        enum model_buf out,
                        const struct gguf_tensor *lift)
{
    const uint32_t n = b->m->hp.n_stream;
    const uint64_t rows = (uint64_t)n * n_part;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s_fn.weight", stem);
    const struct gguf_tensor *w =
        plan_take(b, name, b->m->buf_width[BUF_UNFOLDED], rows, ANY_TYPE, REQUIRED);
    snprintf(name, sizeof name, "%s_base.weight", stem);
    const struct gguf_tensor *base = plan_take(b, name, rows, 1, F32_ONLY, REQUIRED);
    snprintf(name, sizeof name, "%s_scale.weight", stem);
    const struct gguf_tensor *scale = plan_take(b, name, n_part, 1, F32_ONLY, REQUIRED);
    struct op *op = plan_add(b, OP_LINEAR, BUF_UNFOLDED, out);
    op->n_out = n;
    op->w = plan_slice(b, w, (uint64_t)n * part, n);
    op->bias = plan_slice(b, base, (uint64_t)n * part, n);
    op->factor = plan_slice(b, scale, part, 1);
    plan_unary(b, out, n, UNARY_SIGMOID);
    op = plan_linear_of(b, lift, out, n, out, n);
    op->bias = b->lift_bias;
}

/* X of all streams. */
static void add_sum(struct builder *b, const char *stem, uint32_t n_part)
{
    const uint32_t n = b->m->hp.n_stream;
    copy_streams(b, BUF_STREAMS, BUF_UNFOLDED, n, false);
    plan_head_norm(b, BUF_UNFOLDED, b->m->buf_width[BUF_UNFOLDED], NULL)->head_dim =
        b->m->buf_width[BUF_UNFOLDED];
    add_weights(b, stem, 0, n_part, BUF_MODES, b->lift_read);
    if (n_part > 1)
        add_weights(b, stem, 1, n_part, BUF_COEFS, b->lift_write);
    copy_streams(b, BUF_STREAMS, BUF_UNFOLDED, n, false);
    weigh(b, BUF_MODES);
    struct op *op = plan_add(b, OP_HEAD_COPY, BUF_UNFOLDED, BUF_X); /* the last one, */
    op->n_head = 1;
    op->in_step = op->n_in;
    op->out_step = op->n_out;
    op = plan_add(b, OP_FOLD, BUF_UNFOLDED, BUF_X); /* and those before it */
    op->n_head = n - 1;
    op->n_in = op->n_out;
}

void plan_connections_read(struct builder *b, const char *stem)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s", plan_bare_name(b, stem));
    add_sum(b, name, 2);
}

void plan_connections_write(struct builder *b)
{
    copy_streams(b, BUF_OUT, BUF_UNFOLDED, b->m->hp.n_stream, true);
    weigh(b, BUF_COEFS);
    plan_add(b, OP_ADD, BUF_UNFOLDED, BUF_STREAMS);
}

void plan_connections_end(struct builder *b)
{
    add_sum(b, "output_hc", 1);
}
