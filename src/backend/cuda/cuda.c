/* Making and ending the backend; its table of operations. */
#include "backend/cuda/cuda.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_parallel(struct backend *base,
                         uint32_t n,
                         void (*fn)(void *ctx, uint32_t i, uint32_t w),
                         void *ctx)
{
    pool_each(((struct cuda_backend *)base)->threads, n, fn, ctx);
}

static uint32_t n_workers(const struct backend *base)
{
    return pool_size(((const struct cuda_backend *)base)->threads);
}

static pthread_mutex_t *lock_of(const struct cuda_backend *b)
{
    return (pthread_mutex_t *)&b->lock;
}

/* The device is the one worker: what it does not work of a run it waits for the host. */
static void times(const struct backend *base, double *run_us, double *waited_us)
{
    const struct cuda_backend *b = (const struct cuda_backend *)base;
    pthread_mutex_lock(lock_of(b));
    *run_us = b->run_us;
    *waited_us = b->run_us > b->busy_us ? b->run_us - b->busy_us : 0;
    pthread_mutex_unlock(lock_of(b));
}

static size_t memory_bytes(const struct backend *base)
{
    const struct cuda_backend *b = (const struct cuda_backend *)base;
    return b->weights_bytes + b->workspace_bytes + b->kv_bytes + b->state_bytes +
           cuda_pool_device_bytes(&b->pool);
}

static const char *kernels_name(const struct backend *base)
{
    return ((const struct cuda_backend *)base)->kernels_name;
}

static const char *describe(const struct backend *base)
{
    return ((const struct cuda_backend *)base)->description;
}

static void gpu_stats(const struct backend *base, struct gpu_stats *out)
{
    const struct cuda_backend *b = (const struct cuda_backend *)base;
    *out = (struct gpu_stats){.n_layers = b->model->hp.n_layer,
                              .total_bytes = b->budget.total,
                              .limit_bytes = b->budget.limit,
                              .weights_bytes = b->weights_bytes,
                              .kv_bytes = b->kv_bytes + b->state_bytes,
                              .workspace_bytes = b->workspace_bytes,
                              .pinned_bytes = b->budget.pinned,
                              .warmed_up = b->warmed_up,
                              .wgmma = b->wgmma,
                              .graphs = b->n_graphs};
    cuda_pool_stats((struct cuda_pool *)&b->pool, out->classes);
    pthread_mutex_lock(lock_of(b));
    for (int i = 0; i < BACKEND_PINNED; i++)
        out->pinned_bytes += b->pinned[i].n_bytes;
    out->moves = b->moves;
    out->replays = b->replays;
    out->walks = b->walks;
    out->queue = cuda_queue_stats(&b->steps);
    if (!out->queue.submitted) { /* steps were run one by one, if any */
        out->queue.submitted = out->queue.completed = b->replays + b->walks;
        out->queue.busy_us = b->busy_us;
        out->queue.idle_us = b->run_us > b->busy_us ? b->run_us - b->busy_us : 0;
    }
    pthread_mutex_unlock(lock_of(b));
}

static void free_plan(struct cuda_backend *b)
{
    free(b->launches);
    free(b->matrices);
    free(b->vector_list);
    free(b->layers);
    free(b->states);
    free(b->tiles);
    free(b->seqs);
}

static void destroy(struct backend *base)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    if (b->stream)
        (void)cudaStreamSynchronize(b->stream);
    cuda_moves_drain(b);
    for (uint32_t i = 0; i < b->n_graphs; i++)
        (void)cudaGraphExecDestroy(b->graphs[i].exec);
    cuda_event_drop(b->run_begin);
    cuda_event_drop(b->run_end);
    cuda_blocks_close(b);
    cuda_moves_close(b);
    cuda_queue_deinit(&b->steps);
    pool_destroy(b->threads);
    cuda_memory_release(b);
    if (b->stream)
        (void)cudaStreamDestroy(b->stream);
    free_plan(b);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static const struct async_ops async = {
    .can_choose = cuda_can_choose,
    .begin = cuda_begin,
    .end = cuda_end,
};

static const struct backend_ops ops = {
    .name = "cuda",
    .run = cuda_run,
    .hidden = cuda_hidden,
    .parallel = run_parallel,
    .n_workers = n_workers,
    .block_copy = cuda_block_copy,
    .pinned_alloc = cuda_pinned_alloc,
    .pinned_free = cuda_pinned_free,
    .block_read = cuda_block_read,
    .block_write = cuda_block_write,
    .block_us = cuda_block_us,
    .block_settle = cuda_block_settle,
    .kernels_name = kernels_name,
    .times = times,
    .memory_bytes = memory_bytes,
    .describe = describe,
    .gpu_stats = gpu_stats,
    .destroy = destroy,
    .async = &async,
};

/* Up to the budget: nothing is taken of the device. */
static enum err plan(const struct model *m,
                     const struct backend_config *cfg,
                     struct cuda_backend **out,
                     struct err_info *e)
{
    struct device_info info;
    *out = NULL;
    if (!cfg->block_tokens || !cfg->max_rows || !cfg->max_seqs || !cfg->max_logit_rows ||
        (!cfg->n_blocks && !cfg->max_positions)) {
        err_set(e, ERR_INVALID, "a backend needs blocks, rows and sequences");
        return ERR_INVALID; /* as a constant: analysers do not follow err_set */
    }
    enum err err = cuda_device_open(cfg->device.index, &info, e);
    if (err)
        return err;
    struct cuda_backend *b = mem_zalloc(1, sizeof *b);
    b->base.ops = &ops;
    b->model = m;
    b->cfg = *cfg;
    b->major = info.major;
    b->minor = info.minor;
    b->block_shared = cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, cfg->device.index);
    b->processors = cuda_attribute(cudaDevAttrMultiProcessorCount, cfg->device.index);
    snprintf(b->device_name, sizeof b->device_name, "%s", info.name);
    pthread_mutex_init(&b->lock, NULL);
    cuda_pool_init(&b->pool, cfg->device.zero_buffers);
    err = cuda_compile(b, e);
    if (!err)
        err = cuda_budget_make(b, e);
    if (err)
        destroy(&b->base);
    else
        *out = b;
    return err;
}

enum err cuda_room(const struct model *m,
                   const struct backend_config *cfg,
                   uint64_t *kv_bytes,
                   struct err_info *e)
{
    struct cuda_backend *b;
    struct backend_config any = *cfg; /* of any number of blocks */
    any.n_blocks = any.n_panes = any.n_states = 0;
    const uint64_t held = (uint64_t)cfg->n_blocks * cfg->block_tokens;
    if (!any.max_positions)
        any.max_positions = held > UINT32_MAX ? UINT32_MAX : (uint32_t)held;
    const enum err err = plan(m, &any, &b, e);
    if (err)
        return err;
    *kv_bytes = b->budget.kv;
    destroy(&b->base);
    return OK;
}

static enum err open_streams(struct cuda_backend *b, struct err_info *e)
{
    cudaError_t rc = cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&b->run_begin);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&b->run_end);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "streams and events", e);
    enum err err = cuda_moves_open(b, e);
    if (!err)
        err = cuda_blocks_open(b, e);
    return err ? err : cuda_queue_init(&b->steps, b->stream, e);
}

/* The first steps of its life, of one row: as such, then by the launches of the largest step, whose
 * kernels are others, so that what one takes of the device or is refused by it shows now. Then the
 * graphs. */
static enum err warm_up(struct cuda_backend *b, struct err_info *e)
{
    const int32_t token = 0;
    const uint32_t zero = 0;
    const struct batch_seq seq = {.n_rows = 1, .blocks = &zero, .panes = &zero};
    const struct batch one = {.n_rows = 1,
                              .tokens = &token,
                              .positions = &zero,
                              .n_seqs = 1,
                              .seqs = &seq,
                              .n_logit_rows = b->model->generates,
                              .logit_rows = &zero,
                              .n_hidden_rows = 1,
                              .hidden_rows = &zero};
    float *logits;
    enum err err = cuda_run(&b->base, &one, &logits, e);
    b->at_most = true;
    if (!err)
        err = cuda_run(&b->base, &one, &logits, e);
    b->at_most = false;
    if (!err)
        err = cuda_kv_zero(b, e);
    if (!err)
        err = cuda_graphs_capture(b, e);
    const cudaError_t rc = cudaDeviceSynchronize();
    if (!err && rc != cudaSuccess)
        err = cuda_failed(rc, "warming up", e);
    b->replays = b->walks = 0;
    b->run_us = b->busy_us = 0;
    b->warmed_up = true;
    return err;
}

enum err cuda_backend_create(const struct model *m,
                             const struct backend_config *cfg,
                             struct backend **out,
                             struct err_info *e)
{
    struct cuda_backend *b;
    *out = NULL;
    if (!cfg->n_blocks)
        return err_set(e, ERR_INVALID, "a backend needs blocks, rows and sequences");
    if (!cfg->n_states && model_state_bytes(m))
        return err_set(e, ERR_INVALID, "a backend needs states for a model with recurrent layers");
    enum err err = plan(m, cfg, &b, e);
    if (err)
        return err;
    b->wgmma = cuda_wgmma_check(b);
    err = pool_create(cfg->n_threads, 1, &b->threads, e);
    if (!err)
        err = open_streams(b, e);
    if (!err)
        err = cuda_memory_take(b, e);
    if (!err)
        err = cuda_weights_load(b, e);
    if (!err)
        err = warm_up(b, e);
    if (err) {
        destroy(&b->base);
        return err;
    }
    snprintf(b->kernels_name,
             sizeof b->kernels_name,
             "sm_%u%u " CUDA_KERNELS_REVISION,
             b->major,
             b->minor);
    snprintf(b->description,
             sizeof b->description,
             "cuda:%u %s, sm_%u%u, %.0f GiB",
             cfg->device.index,
             b->device_name,
             b->major,
             b->minor,
             (double)b->budget.total / (1 << 30));
    size_t left = 0, total = 0;
    (void)cudaMemGetInfo(&left, &total);
    log_info("cuda:%u: warmed up, %u graphs of steps, %.3f GiB left",
             cfg->device.index,
             b->n_graphs,
             (double)left / (1 << 30));
    *out = &b->base;
    return OK;
}
