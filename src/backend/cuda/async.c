/* Steps beside the host (backend/async.h), on the two slots of the queue.
 *
 *     on the stream:  event | what histories begin with | arrays of the step, with its jobs
 *                           | graph, or launches, and sampling | ids back | event
 *
 * A graph has the sampling behind its launches; jobs are arrays of the step like the others.
 * Sampling overwrites logits: where the host wants some, the device is told of no jobs at first,
 * the logits are copied behind the launches, then it is told how many there are, and sampling is
 * launched. Its ids stay where the next step's rows look for them (cuda_step.chosen) until that
 * step's own sampling, at its end.
 *
 * Each slot has pinned memory for its jobs besides the staging of its batch, so that nothing that a
 * copy still reads is written. The tokens that a history begins with go through it too; where a
 * step has more of them than fit, it waits for the device between two parts. */
#include "backend/carver.h"
#include "backend/cuda/cuda.h"

#include <assert.h>
#include <string.h>

enum { JOBS_ALIGN = 64 };

static_assert((int)CUDA_NO_NUMBER == (int)SAMPLE_NO_NUMBER, "the engine is told in one way");

/* What a slot's pinned memory for jobs holds. */
static void carve_jobs(const struct cuda_backend *b, struct carver *c, struct cuda_jobs *j)
{
    const uint32_t n = b->cfg.max_seqs;
    j->biases = carve(c, (size_t)n * CUDA_MAX_BIASES, sizeof *j->biases);
    j->chosen = carve(c, n, sizeof *j->chosen);
    j->host_rows = carve(c, b->cfg.max_logit_rows, sizeof *j->host_rows);
    j->tokens = carve(c, b->history_tokens, sizeof *j->tokens);
    j->late = carve(c, 1, sizeof *j->late);
}

size_t cuda_jobs_bytes(const struct cuda_backend *b)
{
    struct carver c = {.align = JOBS_ALIGN};
    struct cuda_jobs j;
    for (int i = 0; i < CUDA_SLOTS; i++)
        carve_jobs(b, &c, &j);
    return c.used;
}

void cuda_jobs_place(struct cuda_backend *b)
{
    struct carver c = {.base = b->jobs_pinned, .align = JOBS_ALIGN};
    for (int i = 0; i < CUDA_SLOTS; i++)
        carve_jobs(b, &c, &b->slots[i].jobs);
}

static bool penalises(const struct sample_params *p)
{
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f ||
           p->frequency_penalty != 0.0f;
}

/* A history counts all that a sequence holds, and its output apart: it has no window, in which
 * prompt and output count alike. */
bool cuda_can_choose(const struct backend *base, const struct sample_params *p)
{
    (void)base;
    return p->n_bias <= CUDA_MAX_BIASES && !(penalises(p) && p->penalty_window > 0);
}

/* --- preparing --- */

static void take_job(struct cuda_jobs *to,
                     struct cuda_sample_job *jobs,
                     const struct async_job *from)
{
    const struct sample_params *p = from->params;
    jobs[to->n++] = (struct cuda_sample_job){
        .logit_row = from->logit_row,
        .slot = penalises(p) ? from->slot : UINT32_MAX,
        .position = from->position,
        .seed = p->seed,
        .temperature = p->temperature,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repetition_penalty = p->repetition_penalty,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .temperature_last = p->temperature_last,
        .first_bias = to->n_biases,
        .n_bias = p->n_bias,
    };
    for (uint32_t i = 0; i < p->n_bias; i++)
        to->biases[to->n_biases++] = (struct cuda_bias){p->bias[i].id, p->bias[i].bias};
}

/* The step's own arrays know the batch; here is what else it has. */
static void take_jobs(struct cuda_slot *s, const struct async_step *a)
{
    struct cuda_arrays l;
    assert(a->n_jobs <= s->bounds.jobs && a->n_host_rows <= a->batch->n_logit_rows);
    cuda_arrays_of(&s->bounds, &l);
    s->jobs.n = s->jobs.n_biases = 0;
    for (uint32_t i = 0; i < a->n_jobs; i++)
        take_job(&s->jobs, (struct cuda_sample_job *)(void *)(s->pinned + l.jobs), &a->jobs[i]);
    s->jobs.n_host_rows = a->n_host_rows;
    if (a->n_host_rows)
        memcpy(s->jobs.host_rows, a->host_rows, a->n_host_rows * sizeof *a->host_rows);
    *s->jobs.late = a->n_jobs;
    s->counts.n_jobs = a->n_host_rows ? 0 : a->n_jobs;
    s->beside = true;
    memcpy(s->pinned + l.counts, &s->counts, sizeof s->counts);
    memcpy(s->pinned + l.token_from, a->token_from, a->batch->n_rows * sizeof *a->token_from);
}

/* --- on the stream --- */

/* n tokens into the slot's history; *used: of the pinned memory for them. */
static cudaError_t count_tokens(struct cuda_backend *b,
                                struct cuda_slot *s,
                                const struct async_job *job,
                                bool output,
                                uint32_t *used)
{
    const uint32_t from = output ? job->n_prompt : 0, end = output ? job->n_tokens : job->n_prompt;
    cudaError_t rc = cudaSuccess;
    for (uint32_t at = from, n; at < end && rc == cudaSuccess; at += n, *used += n) {
        if (*used == b->history_tokens) {
            rc = cudaStreamSynchronize(b->stream);
            *used = 0;
        }
        n = end - at < b->history_tokens - *used ? end - at : b->history_tokens - *used;
        memcpy(s->jobs.tokens + *used, job->tokens + at, n * sizeof *job->tokens);
        if (rc == cudaSuccess)
            rc = cudaMemcpyAsync(b->device_tokens,
                                 s->jobs.tokens + *used,
                                 n * sizeof *job->tokens,
                                 cudaMemcpyHostToDevice,
                                 b->stream);
        if (rc == cudaSuccess)
            rc = cuda_history_add(&b->histories,
                                  b->model->hp.n_vocab,
                                  job->slot,
                                  b->device_tokens,
                                  n,
                                  output,
                                  b->stream);
    }
    return rc;
}

static cudaError_t begin_histories(struct cuda_backend *b,
                                   struct cuda_slot *s,
                                   const struct async_step *a)
{
    cudaError_t rc = cudaSuccess;
    uint32_t used = 0;
    for (uint32_t i = 0; i < a->n_jobs && rc == cudaSuccess; i++) {
        const struct async_job *job = &a->jobs[i];
        if (!job->tokens || !penalises(job->params))
            continue;
        rc = cuda_history_begin(&b->histories, b->model->hp.n_vocab, job->slot, b->stream);
        if (rc == cudaSuccess &&
            job->params->repetition_penalty != 1.0f) /* it alone looks at the prompt */
            rc = count_tokens(b, s, job, false, &used);
        if (rc == cudaSuccess)
            rc = count_tokens(b, s, job, true, &used);
    }
    return rc;
}

/* Rows that follow each other in one copy. */
static cudaError_t copy_host_rows(struct cuda_backend *b, const struct cuda_slot *s)
{
    const uint32_t *rows = s->jobs.host_rows, width = b->model->buf_width[BUF_LOGITS];
    cudaError_t rc = cudaSuccess;
    for (uint32_t i = 0, n; i < s->jobs.n_host_rows && rc == cudaSuccess; i += n) {
        for (n = 1; i + n < s->jobs.n_host_rows && rows[i + n] == rows[i] + n;)
            n++;
        rc = cuda_copy_rows(b, s->logits + (size_t)i * width, BUF_LOGITS, rows[i], n);
    }
    return rc;
}

cudaError_t cuda_jobs_begin(struct cuda_backend *b, const struct cuda_slot *s)
{
    if (s->jobs.n_biases == 0)
        return cudaSuccess;
    return cudaMemcpyAsync(b->device_biases,
                           s->jobs.biases,
                           s->jobs.n_biases * sizeof *s->jobs.biases,
                           cudaMemcpyHostToDevice,
                           b->stream);
}

cudaError_t cuda_jobs_choose(struct cuda_backend *b, const struct cuda_bounds *bounds)
{
    struct cuda_arrays l;
    const struct cuda_at at = {.step = cuda_step_at(b, bounds),
                               .bounds = *bounds,
                               .rows = CUDA_ROWS_LOGITS,
                               .block_shared = b->block_shared,
                               .stream = b->stream};
    cuda_arrays_of(bounds, &l);
    cuda_sample(&at,
                (const struct cuda_sample_job *)(const void *)(b->step_in + l.jobs),
                b->device_biases,
                &b->histories,
                b->bufs[BUF_LOGITS],
                b->model->hp.n_vocab,
                b->chosen,
                b->sample_scratch);
    return cudaGetLastError();
}

/* How many jobs there are, where the device was told of none. */
static cudaError_t tell_late(struct cuda_backend *b, const struct cuda_slot *s)
{
    struct cuda_arrays l;
    cuda_arrays_of(&s->bounds, &l);
    return cudaMemcpyAsync(b->step_in + l.counts + offsetof(struct cuda_counts, n_jobs),
                           s->jobs.late,
                           sizeof *s->jobs.late,
                           cudaMemcpyHostToDevice,
                           b->stream);
}

cudaError_t cuda_jobs_finish(struct cuda_backend *b, const struct cuda_slot *s)
{
    const struct cuda_jobs *j = &s->jobs;
    cudaError_t rc = copy_host_rows(b, s);
    if (rc != cudaSuccess || j->n == 0)
        return rc;
    if (j->n_host_rows)
        rc = tell_late(b, s);
    if (rc == cudaSuccess && !s->sampled)
        rc = cuda_jobs_choose(b, &s->bounds);
    return rc == cudaSuccess ? cudaMemcpyAsync(j->chosen,
                                               b->chosen,
                                               j->n * sizeof *j->chosen,
                                               cudaMemcpyDeviceToHost,
                                               b->stream)
                             : rc;
}

/* --- the operations --- */

static enum err put_on_stream(struct cuda_backend *b,
                              uint32_t slot,
                              const struct async_step *a,
                              struct err_info *e)
{
    struct cuda_slot *s = &b->slots[slot];
    cudaError_t rc = cuda_moves_join(b, &s->moved); /* what it waits for is not its own time */
    if (rc != cudaSuccess)
        return cuda_failed(rc, "blocks on their way", e);
    enum err err = cuda_queue_mark(&b->steps, slot, e);
    if (err)
        return err;
    rc = begin_histories(b, s, a);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "the tokens of a history", e);
    err = cuda_slot_submit(b, s, e);
    return err ? err : cuda_queue_submit(&b->steps, slot, a->follows, e);
}

enum err cuda_begin(struct backend *base, const struct async_step *a, struct err_info *e)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    uint32_t i = (uint32_t)(b->steps.n_submitted % CUDA_SLOTS);
    cuda_device_enter(b);
    cuda_queue_release(&b->steps, i); /* what it held was of the step that ended before last */
    enum err err = cuda_blocks_whole(b, e);
    if (!err)
        err = cuda_queue_prepare(&b->steps, &i, e);
    if (err)
        return err;
    struct cuda_slot *s = &b->slots[i];
    cuda_slot_release(b, s);
    err = cuda_slot_prepare(b, s, a->batch, a->n_jobs, e);
    if (!err) {
        take_jobs(s, a);
        err = put_on_stream(b, i, a, e);
        if (err)
            (void)cudaStreamSynchronize(b->stream); /* whatever it began reads the slot no more */
    }
    if (err)
        cuda_queue_abandon(&b->steps, i);
    return err;
}

enum err cuda_end(struct backend *base, struct async_result *out, struct err_info *e)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    uint32_t i = 0;
    cuda_device_enter(b);
    const enum err err = cuda_queue_collect(&b->steps, &i, e);
    if (err)
        return err;
    const struct cuda_slot *s = &b->slots[i];
    *out = (struct async_result){.chosen = s->jobs.chosen, .logits = s->logits};
    b->last = s;
    pthread_mutex_lock(&b->lock);
    b->busy_us += b->steps.last_busy_us;
    b->run_us += b->steps.last_busy_us + b->steps.last_idle_us;
    pthread_mutex_unlock(&b->lock);
    return OK;
}
