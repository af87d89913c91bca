#include "backend/cpu/experts.h"

#include "backend/cpu/run.h"

#include <math.h>
#include <string.h>

enum { MAX_EXPERTS = 1024 }; /* model/experts.c */

#define MIXER_REACH 0.02f /* model/model.h, expert_mixer */

uint32_t experts_max_runs(const struct model_hparams *hp, uint32_t n_rows)
{
    const uint64_t n = (uint64_t)n_rows * hp->n_expert_used;
    return n < hp->n_expert ? (uint32_t)n : hp->n_expert;
}

uint32_t experts_max_places(const struct model_hparams *hp, uint32_t n_rows)
{
    return n_rows * hp->n_expert_used + experts_max_runs(hp, n_rows) * (ACT_TILE - 1);
}

/* The largest score that is not taken, the first of equals. */
static uint32_t best_of(const float *scores, const bool *taken, uint32_t n)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (!taken[i] && (best == UINT32_MAX || scores[i] > scores[best]))
            best = i;
    }
    return best;
}

/* As softmax of the scores, or as sigmoids. */
static void probabilities(const struct cpu_backend *b, const float *scores, float *p)
{
    const uint32_t n = b->model->hp.n_expert;
    const bool sigmoid = b->model->hp.expert_sigmoid;
    float top = scores[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        top = scores[i] > top ? scores[i] : top;
    for (uint32_t i = 0; i < n; i++)
        p[i] = sigmoid ? -scores[i] : scores[i] - top;
    b->kernels->exp(p, p, n);
    for (uint32_t i = 0; i < n; i++)
        sum += p[i];
    for (uint32_t i = 0; i < n; i++)
        p[i] = sigmoid ? 1.0f / (1.0f + p[i]) : p[i] / sum;
}

/* What a group of experts is worth: the sum of its n_best largest scores. */
static float worth_of(const float *scores, uint32_t n, uint32_t n_best)
{
    bool taken[MAX_EXPERTS] = {false};
    float sum = 0;
    for (uint32_t i = 0; i < n_best && i < n; i++) {
        const uint32_t best = best_of(scores, taken, n);
        taken[best] = true;
        sum += scores[best];
    }
    return sum;
}

/* Leave experts in the n_expert_group_used best of the groups only. */
static void keep_best_groups(const struct model_hparams *hp, float *scores, uint32_t n_best)
{
    const uint32_t n = hp->n_expert / hp->n_expert_group;
    float worth[MAX_EXPERTS];
    bool kept[MAX_EXPERTS] = {false};
    for (uint32_t g = 0; g < hp->n_expert_group; g++)
        worth[g] = worth_of(scores + (size_t)g * n, n, n_best);
    for (uint32_t i = 0; i < hp->n_expert_group_used; i++)
        kept[best_of(worth, kept, hp->n_expert_group)] = true;
    for (uint32_t i = 0; i < hp->n_expert; i++)
        scores[i] = kept[i / n] ? scores[i] : -INFINITY;
}

/* Selected by probability, corrected where there is a bias; weighed by probability alone. Where it
 * is not corrected scores have the same order, and sigmoids of large ones would be equal. */
static void select_by_probability(const struct cpu_backend *b,
                                  const struct step *s,
                                  const float *scores,
                                  uint32_t *experts,
                                  float *weights)
{
    const struct model_hparams *hp = &b->model->hp;
    const bool grouped = hp->n_expert_group > 1;
    float p[MAX_EXPERTS] = {0}, corrected[MAX_EXPERTS] = {0}, sum = 0;
    bool taken[MAX_EXPERTS] = {false};
    probabilities(b, scores, p);
    for (uint32_t i = 0; i < hp->n_expert; i++)
        corrected[i] = s->bias ? p[i] + s->bias[i] : grouped ? p[i] : scores[i];
    if (grouped)
        keep_best_groups(hp, corrected, s->bias ? 2 : 1);
    for (uint32_t i = 0; i < s->n_head; i++) {
        experts[i] = best_of(corrected, taken, hp->n_expert);
        taken[experts[i]] = true;
        sum += p[experts[i]];
    }
    sum = hp->expert_norm ? fmaxf(sum, 1e-20f) : 1.0f;
    /* one that was selected by what is no number has none */
    for (uint32_t i = 0; i < s->n_head; i++)
        weights[i] = isnan(corrected[experts[i]]) ? NAN : p[experts[i]] / sum * hp->expert_scale;
}

/* Of those that were selected, in order (model.h, expert_mixer). */
static void mix_sparsely(const struct cpu_backend *b,
                         const struct step *s,
                         const float *scores,
                         const uint32_t *experts,
                         float *weights)
{
    const struct model_hparams *hp = &b->model->hp;
    bool taken[MAX_EXPERTS] = {false};
    float e[MAX_EXPERTS];
    for (uint32_t i = 0; i < s->n_head; i++) {
        const float top = scores[experts[i]];
        float sum = 0;
        for (uint32_t x = 0; x < hp->n_expert; x++)
            e[x] = scores[x] - top;
        b->kernels->exp(e, e, hp->n_expert);
        for (uint32_t x = 0; x < hp->n_expert; x++) {
            const bool far = (top - scores[x]) / fmaxf(fabsf(scores[x]), top) > MIXER_REACH;
            sum += taken[x] || far ? 0 : e[x];
        }
        weights[i] = hp->expert_scale / sum;
        taken[experts[i]] = true;
    }
}

static void select_for_row(const struct cpu_backend *b,
                           const struct step *s,
                           const float *scores,
                           uint32_t *experts,
                           float *weights)
{
    const struct model_hparams *hp = &b->model->hp;
    float e[MAX_EXPERTS], sum = 0;
    bool taken[MAX_EXPERTS] = {false};
    if (s->bias || hp->expert_sigmoid || hp->n_expert_group > 1) {
        select_by_probability(b, s, scores, experts, weights);
        return;
    }
    for (uint32_t i = 0; i < s->n_head; i++) {
        experts[i] = best_of(scores, taken, hp->n_expert);
        taken[experts[i]] = true;
    }
    if (hp->expert_mixer) {
        mix_sparsely(b, s, scores, experts, weights);
        return;
    }
    for (uint32_t i = 0; i < hp->n_expert; i++)
        e[i] = scores[i] - scores[experts[0]];
    b->kernels->exp(e, e, hp->n_expert);
    for (uint32_t i = 0; i < hp->n_expert && !hp->expert_norm; i++)
        sum += e[i];
    for (uint32_t i = 0; i < s->n_head && hp->expert_norm; i++)
        sum += e[experts[i]];
    for (uint32_t i = 0; i < s->n_head; i++)
        weights[i] = e[experts[i]] / sum * hp->expert_scale;
}

void experts_select(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    const uint32_t n_used = s->n_head;
    uint32_t *experts = b->experts + (size_t)row * n_used;
    float *weights = b->expert_weights + (size_t)row * n_used;
    select_for_row(b, s, cpu_row_of(b, BUF_ROUTER, row), experts, weights);
    for (uint32_t i = 0; i < n_used && s->w; i++)
        weights[i] *= s->w[experts[i]];
}

void experts_sort(struct cpu_backend *b, uint32_t n_used, uint32_t n_rows)
{
    const struct model_hparams *hp = &b->model->hp;
    const uint32_t n = n_rows * n_used;
    const uint32_t unit = cpu_act_lanes(n_rows);
    uint32_t count[MAX_EXPERTS] = {0}, next[MAX_EXPERTS];
    for (uint32_t i = 0; i < n; i++)
        count[b->experts[i]]++;
    b->n_used = n_used;
    b->n_runs = b->n_places = 0;
    for (uint32_t x = 0; x < hp->n_expert; x++) {
        if (count[x] == 0)
            continue;
        next[x] = b->n_places;
        b->runs[b->n_runs++] = (struct expert_run){x, b->n_places, count[x]};
        for (uint32_t i = 0; i < (count[x] + unit - 1) / unit * unit; i++)
            b->place_row[b->n_places++] = NO_ROW;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t place = next[b->experts[i]]++;
        b->place_row[place] = i / n_used;
        b->places[i] = place;
    }
}

void experts_weigh(const struct cpu_backend *b, uint32_t place, float *x, uint32_t n)
{
    const size_t first = (size_t)b->place_row[place] * b->n_used;
    uint32_t rank = 0;
    while (b->places[first + rank] != place)
        rank++;
    b->kernels->cap(x, b->expert_weights[first + rank], 0.0f, n);
}

void experts_mix(const struct cpu_backend *b, const struct step *s, uint32_t row)
{
    const uint32_t n_used = b->n_used;
    float *out = cpu_row_of(b, s->out, row);
    memset(out, 0, s->n * sizeof *out);
    for (uint32_t i = row * n_used; i < (row + 1) * n_used; i++)
        b->kernels->add_scaled(cpu_row_of(b, s->in, b->places[i]),
                               b->model->hp.expert_input ? 1.0f : b->expert_weights[i],
                               out,
                               s->n);
}

/* Panels first .. first + n - 1 of a matrix, for all places of a run, in a step of n_rows. */
static void multiply(const struct cpu_backend *b,
                     const struct matrix *x,
                     const struct expert_run *run,
                     uint32_t n_rows,
                     uint32_t first,
                     uint32_t n,
                     uint32_t worker)
{
    const uint32_t col = first * PANEL_COLS;
    struct linear_job job = {
        .panels = x->panels + first * x->panel_bytes,
        .panel_bytes = x->panel_bytes,
        .n_panels = n,
        .n_cols = x->n_out - col < n * PANEL_COLS ? x->n_out - col : n * PANEL_COLS,
        .act = &x->act,
        .act_lanes = cpu_act_lanes(n_rows),
        .tuning = cpu_kernels_tuning(),
        .scratch = b->linear_scratch + (size_t)worker * LINEAR_SCRATCH_BYTES,
        .out = b->bufs[x->out] + col,
        .out_stride = b->stride[x->out],
        .scale = x->scale,
        .bias = x->bias ? x->bias + col : NULL,
    };
    for (uint32_t row = 0; row < run->n; row += LINEAR_MAX_ROWS) {
        job.first_row = run->first + row;
        job.n_rows = run->n - row < LINEAR_MAX_ROWS ? run->n - row : LINEAR_MAX_ROWS;
        job.prefetch = cpu_kernels_prefetch(job.n_rows);
        b->kernels->linear[x->format](&job);
    }
}

/* Matrices of a phase lie one group after the other (gate, up), n_expert in each. */
void experts_run(struct cpu_backend *b, const struct phase *p, uint32_t item, uint32_t worker)
{
    const uint32_t n_expert = b->model->hp.n_expert;
    const uint32_t n_chunks = (p->n_panels + p->chunk - 1) / p->chunk;
    if (item / n_chunks >= b->n_runs)
        return;
    const struct expert_run *run = &b->runs[item / n_chunks];
    uint32_t first = item % n_chunks * p->chunk;
    uint32_t left = p->n_panels - first < p->chunk ? p->n_panels - first : p->chunk;
    const struct matrix *x = &b->matrices[p->first + run->expert];
    for (; left > 0; x += n_expert) {
        if (first >= x->n_panels) {
            first -= x->n_panels;
            continue;
        }
        const uint32_t here = left < x->n_panels - first ? left : x->n_panels - first;
        multiply(b, x, run, cpu_phase_rows(b, p), first, here, worker);
        left -= here;
        first = 0;
    }
}
