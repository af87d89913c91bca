/* Phases of recurrent layers. An item is a part of one sequence's channels, or one of its heads,
 * over all of the sequence's rows, which run in their order:
 *
 *      rows     5 of block 3 | block 4 | 2 of block 5
 *      states   from .............. kept ......... to     (kept: the batch names one for block 4)
 *
 * A stretch between two states reads the one before it with its first row, and leaves the one
 * behind it with its last; in between it works in the latter's place. So a state that is kept costs
 * nothing, and one that several sequences go on from is only read. */
#include "backend/cpu/recurrent.h"

#include "backend/cpu/run.h"

#include "gguf/gguf.h"

#include <math.h>

enum { CONV_PART = 64 }; /* channels: an item takes a multiple */
_Static_assert(CONV_PART % SELECTIVE_TILE == 0, "parts are of whole tiles");

/* Rows of one sequence between two states. */
struct stretch {
    const float *from; /* the layer's part; NULL: zeros */
    float *to;
    uint32_t first_row, n_rows;
};

static float *state_at(const struct layer_state *l, uint32_t state)
{
    return l->base + (size_t)state * l->floats;
}

/* The next stretch behind *done rows; false when there is none. */
static bool next_stretch(const struct cpu_backend *b,
                         const struct layer_state *l,
                         const struct batch_seq *seq,
                         uint32_t *done,
                         struct stretch *s)
{
    const uint32_t size = b->cfg.block_tokens, pos = seq->first_pos + *done;
    const uint32_t end = seq->first_pos + seq->n_rows;
    if (*done > seq->n_rows)
        return false;
    if (*done == 0)
        s->from = seq->first_pos ? state_at(l, seq->state_from) : NULL;
    else
        s->from = s->to;
    s->first_row = seq->first_row + *done;
    for (uint32_t k = pos / size; seq->states && (uint64_t)(k + 1) * size <= end; k++) {
        if (seq->states[k] == BATCH_NO_STATE)
            continue;
        s->to = state_at(l, seq->states[k]);
        s->n_rows = (k + 1) * size - pos;
        *done += s->n_rows;
        return true;
    }
    s->to = state_at(l, seq->state_to);
    s->n_rows = end - pos;
    *done = UINT32_MAX;
    return true;
}

static void run_conv_item(struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    const struct model_hparams *hp = &b->model->hp;
    const struct layer_state *l = &b->states[p->layer];
    const uint32_t n_parts = (p->n_channels + p->chunk - 1) / p->chunk;
    const struct batch_seq *seq = &b->batch->seqs[item / n_parts];
    const uint32_t own = item % n_parts * p->chunk, left = p->n_channels - own;
    const uint32_t c = p->first_channel + own;
    struct stretch s;
    for (uint32_t done = 0; next_stretch(b, l, seq, &done, &s);) {
        const struct conv_job job = {
            .x = cpu_row_of(b, BUF_MIX, s.first_row) + c,
            .stride = b->stride[BUF_MIX],
            .n_rows = s.n_rows,
            .n_channels = left < p->chunk ? left : p->chunk,
            .width = hp->conv_width,
            .stride_state = hp->conv_channels,
            .stride_w = p->n_channels,
            .from = s.from ? s.from + c : NULL,
            .to = s.to + c,
            .w = p->w + own,
            .bias = p->bias ? p->bias + own : NULL,
            .gated = p->gated,
        };
        b->kernels->conv(&job);
    }
}

static void run_recur_item(struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    const struct model_hparams *hp = &b->model->hp;
    const struct layer_state *l = &b->states[p->layer];
    const struct batch_seq *seq = &b->batch->seqs[item / p->n_head];
    const uint32_t head = item % p->n_head, n_group = hp->n_rec_group;
    const uint32_t group = p->tiled ? head % n_group : head / (p->n_head / n_group);
    const bool each = p->recur == RECUR_DELTA_EACH, delta = each || p->recur == RECUR_DELTA;
    const bool fixed = p->recur == RECUR_FIXED;
    const size_t keys = (size_t)n_group * hp->rec_key, own = (size_t)head * hp->rec_value;
    const size_t values = (size_t)p->n_head * hp->rec_value, shared = (size_t)group * hp->rec_key;
    const size_t before = model_conv_state_floats(hp) + own * hp->rec_key;
    struct stretch s;
    for (uint32_t done = 0; next_stretch(b, l, seq, &done, &s);) {
        const float *mix = cpu_row_of(b, BUF_MIX, s.first_row);
        struct recur_job job = {
            .delta = delta,
            .each = each,
            .n_rows = s.n_rows,
            .n_key = hp->rec_key,
            .n_value = hp->rec_value,
            .from = s.from ? s.from + before : NULL,
            .to = s.to + before,
            .q = mix + (delta ? 0 : values + keys) + shared,
            .k = mix + (delta ? keys : values) + shared,
            .v = mix + (delta ? 2 * keys : 0) + own,
            .q_stride = b->stride[BUF_MIX],
            .k_stride = b->stride[BUF_MIX],
            .v_stride = b->stride[BUF_MIX],
            .out = cpu_row_of(b, BUF_REC, s.first_row) + own,
            .out_stride = b->stride[BUF_REC],
            .scale = delta ? 1.0f / sqrtf((float)hp->rec_key) : 1.0f,
            .skip = p->w && !fixed ? p->w[head] : 0.0f,
        };
        if (fixed) {
            job.q = mix + 3 * own;
            job.k = job.q + hp->rec_key;
            job.v = job.k + hp->rec_key;
            job.rate = p->w + head; /* of all rows */
            job.beta = p->w + p->n_head + head;
        } else {
            job.rate = cpu_row_of(b, BUF_RATE, s.first_row) + (each ? head * hp->rec_key : head);
            job.beta = cpu_row_of(b, BUF_BETA, s.first_row) + head;
            job.rate_stride = b->stride[BUF_RATE];
            job.beta_stride = b->stride[BUF_BETA];
        }
        b->kernels->recur(&job);
    }
}

static void run_apart_item(struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    const struct model_hparams *hp = &b->model->hp;
    const struct layer_state *l = &b->states[p->layer];
    const struct batch_seq *seq = &b->batch->seqs[item / p->n_head];
    const bool first = p->recur == RECUR_READ_FIRST;
    const size_t own = (size_t)(item % p->n_head) * hp->rec_key; /* keys are as many as values */
    const size_t before = model_conv_state_floats(hp) + own * hp->rec_key;
    struct stretch s;
    for (uint32_t done = 0; next_stretch(b, l, seq, &done, &s);) {
        const struct recur_job job = {
            .delta = true,
            .each = true,
            .apart = true,
            .first = first,
            .n_rows = s.n_rows,
            .n_key = hp->rec_key,
            .n_value = hp->rec_value,
            .from = s.from ? s.from + before : NULL,
            .to = s.to + before,
            .q = cpu_row_of(b, BUF_Q, s.first_row) + own,
            .q_stride = b->stride[BUF_Q],
            .k = cpu_row_of(b, BUF_K, s.first_row) + own,
            .unit = cpu_row_of(b, first ? BUF_Q : BUF_REC_KEY, s.first_row) + own,
            .k_stride = b->stride[BUF_K],
            .v = cpu_row_of(b, BUF_V, s.first_row) + own,
            .v_stride = b->stride[BUF_V],
            .rate = cpu_row_of(b, BUF_RATE, s.first_row) + own,
            .rate_stride = b->stride[BUF_RATE],
            .beta = cpu_row_of(b, BUF_BETA, s.first_row) + own,
            .beta_stride = b->stride[BUF_BETA],
            .out = cpu_row_of(b, BUF_REC, s.first_row) + own,
            .out_stride = b->stride[BUF_REC],
        };
        b->kernels->recur(&job);
    }
}

static void run_selective_item(struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    const struct model_hparams *hp = &b->model->hp;
    const struct layer_state *l = &b->states[p->layer];
    const uint32_t n_parts = (p->n_head + p->chunk - 1) / p->chunk;
    const struct batch_seq *seq = &b->batch->seqs[item / n_parts];
    const uint32_t c = item % n_parts * p->chunk, left = p->n_head - c;
    const size_t own = (size_t)c * hp->rec_key, before = model_conv_state_floats(hp) + own;
    struct stretch s;
    for (uint32_t done = 0; next_stretch(b, l, seq, &done, &s);) {
        const struct selective_job job = {
            .n_rows = s.n_rows,
            .n_key = hp->rec_key,
            .n_channels = left < p->chunk ? left : p->chunk,
            .from = s.from ? s.from + before : NULL,
            .to = s.to + before,
            .a = p->w + own,
            .skip = p->bias + c,
            .x = cpu_row_of(b, BUF_MIX, s.first_row) + c,
            .x_stride = b->stride[BUF_MIX],
            .step = cpu_row_of(b, BUF_RATE, s.first_row) + c,
            .step_stride = b->stride[BUF_RATE],
            .k = cpu_row_of(b, BUF_REC_KEY, s.first_row),
            .k_stride = b->stride[BUF_REC_KEY],
            .q = cpu_row_of(b, BUF_REC_QUERY, s.first_row),
            .q_stride = b->stride[BUF_REC_QUERY],
            .out = cpu_row_of(b, BUF_REC, s.first_row) + c,
            .out_stride = b->stride[BUF_REC],
        };
        b->kernels->selective(&job);
    }
}

void recurrent_run(struct cpu_backend *b, const struct phase *p, uint32_t item)
{
    if (p->kind == PHASE_CONV)
        run_conv_item(b, p, item);
    else if (p->recur == RECUR_SELECTIVE)
        run_selective_item(b, p, item);
    else if (p->recur == RECUR_DELTA_APART || p->recur == RECUR_READ_FIRST)
        run_apart_item(b, p, item);
    else
        run_recur_item(b, p, item);
}

/* Few sequences are divided into parts, so that all workers have some. */
uint32_t recurrent_items(const struct cpu_backend *b, struct phase *p)
{
    const uint32_t n_seqs = b->batch->n_seqs, n = p->n_channels;
    if (p->kind == PHASE_RECUR && p->recur != RECUR_SELECTIVE)
        return n_seqs * p->n_head;
    const uint32_t want = pool_size(b->pool) * 8 / n_seqs + 1;
    p->chunk = (n / want + CONV_PART - 1) / CONV_PART * CONV_PART;
    p->chunk = p->chunk ? p->chunk : CONV_PART;
    return n_seqs * ((n + p->chunk - 1) / p->chunk);
}

/* In double, as a rate is a power of numbers near 1 over a long text. */
void recurrent_rates(const struct step *s, const float *in, float *rate, float *beta)
{
    const uint32_t per = s->in_step;
    for (uint32_t h = 0; h < s->n_head; h++) {
        const float x = per ? in[h / per * 2 * per + per + h % per] : rate[h];
        const float y = per ? in[h / per * 2 * per + h % per] : beta[h];
        const double z = (double)x + s->bias[h], step = z > 20 ? z : log1p(exp(z));
        rate[h] = (float)exp(step * s->w[h]);
        beta[h] = s->recur == RECUR_DELTA ? (float)(1 / (1 + exp(-(double)y))) : (float)step;
    }
}
