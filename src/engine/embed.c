#include "engine/embed.h"

#include "base/clock.h"
#include "engine/dense.h"
#include "engine/stats.h"

#include <math.h>
#include <string.h>

/* The rows that make the vector: all, or one end's; or each is one. */
enum rows { ROWS_ALL, ROWS_EACH, ROWS_FIRST, ROWS_LAST };

static enum rows rows_of(const struct engine *eng, enum request_output output)
{
    if (output == OUTPUT_SCORES)
        return eng->model->hp.causal ? ROWS_LAST : ROWS_FIRST;
    return eng->pooling == POOLING_MEAN   ? ROWS_ALL
           : eng->pooling == POOLING_NONE ? ROWS_EACH
           : eng->pooling == POOLING_CLS  ? ROWS_FIRST
                                          : ROWS_LAST;
}

bool embed_each(const struct engine *eng, enum request_output output)
{
    return rows_of(eng, output) == ROWS_EACH;
}

bool embed_needs_all(const struct engine *eng, enum request_output output)
{
    return rows_of(eng, output) != ROWS_LAST;
}

void embed_fill(struct engine *eng, struct step_batch *s, const struct sched_item *item)
{
    struct request *r = item->seq->user;
    struct batch *b = &s->b;
    if (r->params.output == OUTPUT_TOKENS)
        return;
    const struct embed_job job = {.item = s->n_items - 1,
                                  .hidden_row = b->n_hidden_rows,
                                  .first = item->first,
                                  .begins = item->first == 0,
                                  .ends = item->samples};
    const enum rows rows = rows_of(eng, r->params.output);
    for (uint32_t i = 0; i < item->n_rows; i++) {
        if (rows == ROWS_ALL || rows == ROWS_EACH || (rows == ROWS_FIRST && item->first + i == 0) ||
            (rows == ROWS_LAST && item->first + i == r->n_prompt - 1))
            s->hidden_rows[b->n_hidden_rows++] = b->n_rows + i;
    }
    s->vectors[s->n_vectors] = job;
    s->vectors[s->n_vectors++].n_rows = b->n_hidden_rows - job.hidden_row;
}

struct work {
    struct engine *eng;
    struct step_batch *s;
};

static bool are_numbers(const float *x, size_t n)
{
    size_t i = 0;
    while (i < n && isfinite(x[i]))
        i++;
    return i == n;
}

/* Any worker, each job once. */
static void take_rows(void *ctx, uint32_t i, uint32_t worker)
{
    const struct work *w = ctx;
    struct engine *eng = w->eng;
    const struct embed_job *job = &w->s->vectors[i];
    struct request *r = w->s->items[job->item].r;
    if (!r)
        return;
    const bool scores = r->params.output == OUTPUT_SCORES;
    const struct dense *dense = scores ? NULL : eng->dense;
    const enum model_buf buf = scores ? BUF_SCORES : BUF_HIDDEN;
    if (rows_of(eng, r->params.output) == ROWS_EACH) {
        float *out = r->vector + (size_t)job->first * r->n_vector;
        for (uint32_t k = 0; k < job->n_rows; k++) {
            memcpy(out + (size_t)k * r->n_vector,
                   eng->backend->ops->hidden(eng->backend, buf, job->hidden_row + k),
                   r->n_vector * sizeof *out);
            dense_apply(dense, worker, out + (size_t)k * r->n_vector);
        }
        r->no_numbers |= !are_numbers(out, (size_t)job->n_rows * r->n_vector);
        return;
    }
    if (job->begins)
        memset(r->sums, 0, r->n_vector * sizeof *r->sums);
    for (uint32_t k = 0; k < job->n_rows; k++) {
        const float *row = eng->backend->ops->hidden(eng->backend, buf, job->hidden_row + k);
        for (uint32_t j = 0; j < r->n_vector; j++)
            r->sums[j] += (double)row[j];
    }
    const double n = rows_of(eng, r->params.output) == ROWS_ALL ? r->n_prompt : 1;
    for (uint32_t j = 0; job->ends && j < r->n_vector; j++)
        r->vector[j] = (float)(r->sums[j] / n);
    if (job->ends)
        dense_apply(dense, worker, r->vector);
    r->no_numbers |= job->ends && !are_numbers(r->vector, r->n_vector);
}

void embed_finish(struct engine *eng, struct step_batch *s)
{
    struct work w = {eng, s};
    if (s->n_vectors == 0)
        return;
    eng->backend->ops->parallel(eng->backend, s->n_vectors, take_rows, &w);
    const uint64_t now_us = clock_us();
    for (uint32_t i = 0; i < s->n_vectors; i++) {
        struct request *r = s->items[s->vectors[i].item].r;
        if (!r || !s->vectors[i].ends)
            continue;
        const bool any = !r->no_numbers;
        pthread_mutex_lock(&eng->stats_lock);
        stats_vector(&eng->stats, r, now_us, any);
        pthread_mutex_unlock(&eng->stats_lock);
        if (!any)
            (void)err_set(&r->error, ERR_INTERNAL, "the model made a value that is no number");
        step_finish(eng, r, any ? FINISH_STOP : FINISH_ERROR);
    }
}
