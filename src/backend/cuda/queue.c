#include "backend/cuda/queue.h"

#include "backend/cuda/cuda.h"
#include "base/clock.h"

#include <assert.h>

enum err cuda_queue_init(struct cuda_queue *q, cudaStream_t stream, struct err_info *e)
{
    *q = (struct cuda_queue){.stream = stream, .stats = {.slots = CUDA_SLOTS}};
    pthread_mutex_init(&q->lock, NULL);
    for (int i = 0; i < CUDA_QUEUE_EVENTS; i++) {
        cudaError_t rc = cudaEventCreate(&q->spans[i].begin);
        if (rc == cudaSuccess)
            rc = cudaEventCreate(&q->spans[i].end);
        if (rc != cudaSuccess)
            return cuda_failed(rc, "events", e);
    }
    return OK;
}

void cuda_queue_deinit(struct cuda_queue *q)
{
    if (q->stats.slots == 0)
        return;
    for (int i = 0; i < CUDA_QUEUE_EVENTS; i++) {
        cuda_event_drop(q->spans[i].begin);
        cuda_event_drop(q->spans[i].end);
    }
    pthread_mutex_destroy(&q->lock);
}

static struct cuda_span *span_of(struct cuda_queue *q, uint64_t step)
{
    return &q->spans[step % CUDA_QUEUE_EVENTS];
}

/* Wait for a step; `stalls`: the host can do nothing else meanwhile. */
static cudaError_t wait_for(struct cuda_queue *q, uint64_t step, bool stalls)
{
    cudaEvent_t end = span_of(q, step)->end;
    cudaError_t rc = cudaEventQuery(end);
    if (rc != cudaErrorNotReady)
        return rc;
    (void)cudaGetLastError(); /* some drivers keep it, and the next launch would be blamed */
    const uint64_t since_ns = clock_ns();
    rc = cudaEventSynchronize(end);
    if (!stalls)
        return rc;
    pthread_mutex_lock(&q->lock);
    q->stats.stalls++;
    q->stats.stall_us += (double)(clock_ns() - since_ns) * 1e-3;
    pthread_mutex_unlock(&q->lock);
    return rc;
}

enum err cuda_queue_prepare(struct cuda_queue *q, uint32_t *slot, struct err_info *e)
{
    const uint32_t i = (uint32_t)(q->n_submitted % CUDA_SLOTS);
    cudaError_t rc = cudaSuccess;
    if (q->states[i] == CUDA_SLOT_SUBMITTED)
        rc = wait_for(q, q->n_submitted - CUDA_SLOTS, true);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "the step before last", e);
    if (q->states[i] != CUDA_SLOT_EMPTY)
        return err_set(e, ERR_QUEUE_FULL, "the step before last has results that nobody took");
    q->states[i] = CUDA_SLOT_PREPARING;
    *slot = i;
    return OK;
}

enum err cuda_queue_mark(struct cuda_queue *q, uint32_t slot, struct err_info *e)
{
    (void)slot;
    assert(q->states[slot] == CUDA_SLOT_PREPARING && slot == q->n_submitted % CUDA_SLOTS);
    const cudaError_t rc = cudaEventRecord(span_of(q, q->n_submitted)->begin, q->stream);
    return rc == cudaSuccess ? OK : cuda_failed(rc, "a step's first event", e);
}

enum err cuda_queue_submit(struct cuda_queue *q, uint32_t slot, bool follows, struct err_info *e)
{
    struct cuda_span *s = span_of(q, q->n_submitted);
    assert(q->states[slot] == CUDA_SLOT_PREPARING && slot == q->n_submitted % CUDA_SLOTS);
    const cudaError_t rc = cudaEventRecord(s->end, q->stream);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "a step's last event", e);
    s->follows = follows && q->n_submitted > 0;
    q->states[slot] = CUDA_SLOT_SUBMITTED;
    q->n_submitted++;
    pthread_mutex_lock(&q->lock);
    q->stats.submitted++;
    q->stats.in_flight++;
    pthread_mutex_unlock(&q->lock);
    return OK;
}

void cuda_queue_abandon(struct cuda_queue *q, uint32_t slot)
{
    assert(q->states[slot] == CUDA_SLOT_PREPARING);
    q->states[slot] = CUDA_SLOT_EMPTY;
}

/* How long the device worked on the step, and waited for it. */
static cudaError_t measure(struct cuda_queue *q, uint64_t step)
{
    const struct cuda_span *s = span_of(q, step);
    float busy_ms = 0, idle_ms = 0;
    cudaError_t rc = cudaEventElapsedTime(&busy_ms, s->begin, s->end);
    if (rc == cudaSuccess && s->follows)
        rc = cudaEventElapsedTime(&idle_ms, span_of(q, step - 1)->end, s->begin);
    q->last_busy_us = (double)busy_ms * 1e3;
    q->last_idle_us = (double)idle_ms * 1e3;
    return rc;
}

enum err cuda_queue_collect(struct cuda_queue *q, uint32_t *slot, struct err_info *e)
{
    const uint64_t step = q->n_collected;
    if (step == q->n_submitted)
        return err_set(e, ERR_INTERNAL, "no step was submitted");
    const uint32_t i = (uint32_t)(step % CUDA_SLOTS);
    cudaError_t rc = wait_for(q, step, q->n_submitted - step == CUDA_SLOTS);
    q->last_busy_us = q->last_idle_us = 0;
    if (rc == cudaSuccess)
        rc = measure(q, step);
    *slot = i;
    q->states[i] = CUDA_SLOT_COMPLETE;
    q->n_collected++;
    pthread_mutex_lock(&q->lock);
    q->stats.completed++;
    q->stats.in_flight--;
    q->stats.busy_us += q->last_busy_us;
    q->stats.idle_us += q->last_idle_us;
    pthread_mutex_unlock(&q->lock);
    return rc == cudaSuccess ? OK : cuda_failed(rc, "a step", e);
}

void cuda_queue_release(struct cuda_queue *q, uint32_t slot)
{
    if (q->states[slot] == CUDA_SLOT_COMPLETE)
        q->states[slot] = CUDA_SLOT_EMPTY;
}

struct gpu_queue_stats cuda_queue_stats(const struct cuda_queue *q)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&q->lock;
    pthread_mutex_lock(lock);
    const struct gpu_queue_stats out = q->stats;
    pthread_mutex_unlock(lock);
    return out;
}
