/* Steps: what happens to one row, with nothing to do with other rows. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/run.h"
#include "gguf/gguf.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Where a part of a row of n begins, and how long it is: units divide it evenly. */
static uint32_t part_first(struct row_part part, uint32_t n)
{
    return n / part.of * part.first;
}

static uint32_t part_length(struct row_part part, uint32_t n)
{
    return n / part.of * (part.end - part.first);
}

/* The angles of a row, of one table. */
static float *angles_of(const struct cpu_backend *b, uint32_t row, uint32_t table)
{
    return b->angles + ((size_t)row * N_ROPE_TABLES + table) * b->model->hp.rope_dims * 2;
}

/* Angles in double: at position 100,000 a float's error would be a hundredth of a radian. */
static void step_angles(const struct cpu_backend *b, uint32_t row)
{
    const double pos = b->batch->positions[row];
    for (uint32_t t = 0; t < N_ROPE_TABLES; t++) {
        const struct model_rope *rope = &b->model->ropes[t];
        const uint32_t n = rope->n_dims, half = n / 2;
        const bool halves = b->model->rope == ROPE_HALVES;
        float *c = angles_of(b, row, t), *s = c + n;
        for (uint32_t i = 0; rope->inv_freq && i < half; i++) {
            const uint32_t first = halves ? i : 2 * i, second = halves ? half + i : 2 * i + 1;
            const double angle = pos * rope->inv_freq[i];
            c[first] = c[second] = (float)(cos(angle) * rope->scale);
            s[second] = (float)(sin(angle) * rope->scale);
            s[first] = -s[second];
        }
    }
}

/* Heads of dims each, if the layer rotates at all. */
static void rotate_heads(
    const struct cpu_backend *b, const struct step *s, float *x, uint32_t n_head, uint32_t row)
{
    if (s->rope == ROPE_NONE)
        return;
    const float *angles = angles_of(b, row, s->rope);
    x += b->model->hp.rope_first;
    for (uint32_t h = 0; h < n_head; h++, x += s->head_dim)
        b->kernels->rotate(x, angles, b->model->ropes[s->rope].n_dims, b->model->rope);
}

static void step_rope_store(const struct cpu_backend *b,
                            const struct step *s,
                            uint32_t row,
                            struct row_part part)
{
    const struct model_hparams *hp = &b->model->hp;
    const uint32_t dim = s->head_dim, n_head = part_length(part, s->n_head);
    const uint32_t first = part_first(part, s->n_head_kv);
    const uint32_t end = first + part_length(part, s->n_head_kv);
    float *q = cpu_row_of(b, BUF_Q, row) + (size_t)part_first(part, s->n_head) * dim;
    float *k = cpu_row_of(b, BUF_K, row);
    const float *v = cpu_row_of(b, BUF_V, row);
    rotate_heads(b, s, q, n_head, row);
    rotate_heads(b, s, k + (size_t)first * dim, end - first, row);
    if (s->kind == STEP_ROPE)
        return;

    const uint32_t pos = b->batch->positions[row];
    if (s->temper)
        b->kernels->cap(q, model_temper(hp, pos), 0.0f, n_head * dim);
    const struct batch_seq *seq = &b->batch->seqs[b->row_seq[row]];
    const struct layer_kv *layer = &b->layers[s->layer];
    const struct kv_layout *kv = &layer->kv;
    uint8_t *block =
        layer->base + cpu_table_of(layer, seq)[pos / kv->block_tokens] * kv->block_bytes;
    for (uint32_t h = first; h < end; h++) {
        b->kernels->kv_store(kv,
                             block + h * kv->head_bytes,
                             pos % kv->block_tokens,
                             k + (size_t)h * dim,
                             v + (size_t)h * dim);
    }
}

static void step_embed(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    const struct gguf_tensor *t = s->table;
    const uint32_t token = (uint32_t)b->batch->tokens[row];
    assert(token < t->ne[1]);
    float *out = cpu_row_of(b, s->out, row);
    if (s->tied)
        b->kernels->column[s->tied->format](s->tied->panels +
                                                token / PANEL_COLS * s->tied->panel_bytes,
                                            s->n,
                                            token % PANEL_COLS,
                                            out);
    else
        gguf_dequantize(t->type, s->rows + token * (t->n_bytes / t->ne[1]), out, s->n);
    for (uint32_t i = 0; s->scale != 1.0f && i < s->n; i++)
        out[i] *= s->scale;
}

/* A row of a small table: the position's, or of the text's type. */
static void step_add_row(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    const uint32_t pos = b->batch->positions[row];
    const uint32_t second = b->batch->seqs[b->row_seq[row]].second;
    const bool is_second = s->n_types > 1 && second && pos >= second;
    assert(s->kind == STEP_ADD_TYPE || pos < b->model->hp.n_positions);
    const uint32_t i = s->kind == STEP_ADD_POSITION ? pos : is_second;
    b->kernels->add(s->w + (size_t)i * s->n, cpu_row_of(b, s->out, row), s->n);
}

/* What is no number stays none. */
static void bound(float *x, uint32_t n, float least, float most)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] < least ? least : x[i] > most ? most : x[i];
}

static void step_gated(const struct cpu_backend *b,
                       const struct step *s,
                       uint32_t from,
                       uint32_t row,
                       struct row_part part)
{
    const uint32_t first = part_first(part, s->n), n = part_length(part, s->n);
    float *gate = cpu_row_of(b, s->in, from) + first;
    float *up = cpu_row_of(b, s->in2, from) + s->in2_first + first;
    float *out = cpu_row_of(b, s->out, row) + first;
    if (s->out == BUF_EXPERT_GATE && b->model->hp.expert_input) {
        experts_weigh(b, row, gate, n);
        experts_weigh(b, row, up, n);
    }
    switch (s->gate) {
    case GATE_SILU:
        b->kernels->silu_mul(gate, up, out, n);
        break;
    case GATE_GELU:
        b->kernels->gelu_mul(gate, up, out, n);
        break;
    case GATE_CLAMPED:
        b->kernels->clamped_mul(gate, up, out, n);
        break;
    case GATE_SIGMOID:
        b->kernels->sigmoid_mul(gate, up, out, n);
        break;
    case GATE_PLAIN:
        b->kernels->mul(gate, up, out, n);
        break;
    case GATE_SILU_CAPPED:
        b->kernels->capped_mul(gate, up, out, n, s->cap);
        break;
    case GATE_SILU_BOUNDED:
        bound(gate, n, -INFINITY, s->cap);
        bound(up, n, -s->cap, s->cap);
        b->kernels->silu_mul(gate, up, out, n);
        break;
    case GATE_SITU:
        b->kernels->cap(up, 1.0f, s->cap, n);
        b->kernels->sigmoid_mul(gate, up, up, n);
        b->kernels->cap(gate, 1.0f, s->scale, n);
        b->kernels->mul(gate, up, out, n);
        break;
    }
}

/* out += in * sigmoid(in2[0]) */
static void step_add_gated(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    float e = -*cpu_row_of(b, s->in2, row);
    b->kernels->exp(&e, &e, 1);
    b->kernels->add_scaled(
        cpu_row_of(b, s->in, row), 1.0f / (1.0f + e), cpu_row_of(b, s->out, row), s->n);
}

static void step_head_norm(const struct cpu_backend *b,
                           const struct step *s,
                           uint32_t row,
                           struct row_part part)
{
    const uint32_t dim = s->head_dim, first = part_first(part, s->n);
    float *x = cpu_row_of(b, s->out, row) + first;
    const float *w = s->w + (size_t)first / dim * s->w_step;
    for (uint32_t i = 0; i < part_length(part, s->n); i += dim, w += s->w_step)
        b->kernels->norm(x + i, w, x + i, dim, s->eps);
}

static void step_head_layer_norm(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    float *x = cpu_row_of(b, s->out, row);
    const uint32_t dim = s->head_dim;
    for (uint32_t i = 0; i < s->n; i += dim)
        b->kernels->layer_norm(x + i, s->w + i, s->bias + i, x + i, dim, s->eps);
}

/* The end of each head's values, or their beginning. */
static void step_head_copy(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    const float *in = cpu_row_of(b, s->in, row) + (s->front ? 0 : s->in_step - s->n);
    const uint32_t before = s->out_step - s->n;
    float *out = cpu_row_of(b, s->out, row) + before;
    for (uint32_t h = 0; h < s->n_head; h++, in += s->in_step, out += s->out_step) {
        memcpy(out, in, s->n * sizeof *out);
        if (s->zero)
            memset(out - before, 0, before * sizeof *out);
    }
}

static void step_head_scale(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    const float *scale = cpu_row_of(b, s->in, row);
    float *x = cpu_row_of(b, s->out, row);
    for (uint32_t h = 0; h < s->n_head; h++) /* as no cap */
        b->kernels->cap(x + (size_t)h * s->head_dim, scale[h], 0.0f, s->head_dim);
}

/* What the matrices that read row `row` of n_rows want of it. */
static unsigned pack_kinds(const struct cpu_backend *b,
                           const struct step *s,
                           uint32_t row,
                           uint32_t n_rows)
{
    /* rows of its job, from the job's first on; of experts any number, but of a lone row one */
    const uint32_t left = s->any_rows ? 1 : n_rows - row / CPU_ROW_BLOCK * CPU_ROW_BLOCK;
    unsigned kinds = 0;
    for (uint64_t formats = s->formats; formats; formats &= formats - 1) {
        const enum panel_format format = (enum panel_format)__builtin_ctzll(formats);
        kinds |= cpu_act_kinds(b->kernels, format, left < CPU_ROW_BLOCK ? left : CPU_ROW_BLOCK);
        if (s->any_rows && n_rows > 1)
            kinds |= cpu_act_kinds(b->kernels, format, CPU_ROW_BLOCK);
    }
    return kinds;
}

static void step_pack_heads(const struct cpu_backend *b,
                            const struct step *s,
                            uint32_t row,
                            uint32_t n_rows)
{
    const unsigned kinds = pack_kinds(b, s, row, n_rows);
    const float *in = cpu_row_of(b, s->in, row);
    for (uint32_t h = 0; h < s->n_head; h++, in += s->in_step) {
        struct act act = cpu_act_of_head(b, s->act, h);
        b->kernels->pack(in, &act, row, 0, s->n, kinds, cpu_act_lanes(n_rows));
    }
}

void cpu_run_step(struct cpu_backend *b,
                  struct step *s,
                  uint32_t from,
                  uint32_t row,
                  uint32_t n_rows,
                  struct row_part part)
{
    const struct cpu_kernels *kernels = b->kernels;
    const uint32_t first = part_first(part, s->n), n = part_length(part, s->n);
    switch (s->kind) {
    case STEP_ANGLES:
        step_angles(b, row);
        break;
    case STEP_EMBED:
        step_embed(b, s, row);
        break;
    case STEP_ADD_POSITION:
    case STEP_ADD_TYPE:
        step_add_row(b, s, row);
        break;
    case STEP_LAYER_NORM:
        kernels->layer_norm(cpu_row_of(b, s->in, from),
                            s->w,
                            s->bias,
                            cpu_row_of(b, s->out, row),
                            s->n,
                            b->model->hp.norm_eps);
        break;
    case STEP_UNARY:
        kernels->unary[s->unary](
            cpu_row_of(b, s->in, from) + first, cpu_row_of(b, s->out, row) + first, n);
        break;
    case STEP_COPY:
        memcpy(cpu_row_of(b, s->out, row), cpu_row_of(b, s->in, from), s->n * sizeof(float));
        break;
    case STEP_NORM:
        kernels->norm(cpu_row_of(b, s->in, from),
                      s->w,
                      cpu_row_of(b, s->out, row),
                      s->n,
                      b->model->hp.norm_eps);
        break;
    case STEP_HEAD_NORM:
        step_head_norm(b, s, row, part);
        break;
    case STEP_HEAD_LAYER_NORM:
        step_head_layer_norm(b, s, row);
        break;
    case STEP_HEAD_COPY:
        step_head_copy(b, s, row);
        break;
    case STEP_HEAD_SCALE:
        step_head_scale(b, s, row);
        break;
    case STEP_PACK_HEADS:
        step_pack_heads(b, s, row, n_rows);
        break;
    case STEP_ROPE:
    case STEP_ROPE_STORE:
        step_rope_store(b, s, row, part);
        break;
    case STEP_GATED:
        step_gated(b, s, from, row, part);
        break;
    case STEP_ADD:
        if (s->scale == 1.0f)
            kernels->add(cpu_row_of(b, s->in, from), cpu_row_of(b, s->out, row), s->n);
        else
            kernels->add_scaled(
                cpu_row_of(b, s->in, from), s->scale, cpu_row_of(b, s->out, row), s->n);
        break;
    case STEP_ADD_GATED:
        step_add_gated(b, s, row);
        break;
    case STEP_RATES:
        recurrent_rates(s,
                        cpu_row_of(b, s->in, row),
                        cpu_row_of(b, BUF_RATE, row),
                        cpu_row_of(b, BUF_BETA, row));
        break;
    case STEP_SELECT:
        experts_select(b, s, row);
        break;
    case STEP_MIX:
        experts_mix(b, s, row);
        break;
    case STEP_CAP:
        kernels->cap(cpu_row_of(b, s->out, row), s->scale, s->cap, s->n);
        break;
    case STEP_CLAMP:
        bound(cpu_row_of(b, s->out, row), s->n, -s->cap, s->cap);
        break;
    case STEP_STREAMS:
        streams_run(
            s, cpu_row_of(b, s->in, row), cpu_row_of(b, s->in2, row), cpu_row_of(b, s->out, row));
        break;
    case STEP_XIELU:
        kernels->xielu(cpu_row_of(b, s->out, row), &s->xielu, s->n);
        break;
    case STEP_PACK:
        kernels->pack(cpu_row_of(b, s->in, from),
                      &s->act,
                      row,
                      first,
                      first + n,
                      pack_kinds(b, s, row, n_rows),
                      cpu_act_lanes(n_rows));
        break;
    }
}
