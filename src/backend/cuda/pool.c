#include "backend/cuda/pool.h"

#include "backend/cuda/cuda.h"
#include "base/log.h"

#include <string.h>

void cuda_pool_init(struct cuda_pool *p, bool zero)
{
    *p = (struct cuda_pool){.zero = zero};
    pthread_mutex_init(&p->lock, NULL);
}

void cuda_pool_plan(struct cuda_pool *p, enum gpu_class c, size_t bytes, uint32_t n)
{
    p->classes[c].bytes = bytes;
    p->classes[c].warm = bytes ? n : 0;
    p->classes[c].stats.buffer_bytes = bytes;
}

static size_t planned(const struct cuda_pool_class *c)
{
    return c->bytes * (c->stats.held > c->warm ? c->stats.held : c->warm);
}

size_t cuda_pool_device_bytes(const struct cuda_pool *p)
{
    size_t n = 0;
    for (int c = 0; c < N_GPU_CLASSES; c++)
        n += c == GPU_STAGING ? 0 : planned(&p->classes[c]);
    return n;
}

size_t cuda_pool_pinned_bytes(const struct cuda_pool *p)
{
    return planned(&p->classes[GPU_STAGING]);
}

/* Another buffer of the class, on top of its stack. */
static enum err grow(struct cuda_pool *p, enum gpu_class which, struct err_info *e)
{
    struct cuda_pool_class *c = &p->classes[which];
    void *at = NULL;
    if (c->stats.held == CUDA_POOL_MOST)
        return err_set(e,
                       ERR_NOMEM,
                       "the pool's %d %s buffers are all lent",
                       CUDA_POOL_MOST,
                       gpu_class_name(which));
    cudaError_t rc =
        which == GPU_STAGING ? cudaMallocHost(&at, c->bytes) : cudaMalloc(&at, c->bytes);
    if (rc == cudaSuccess && which == GPU_STAGING)
        memset(at, 0, c->bytes);
    else if (rc == cudaSuccess)
        rc = cudaMemset(at, 0, c->bytes);
    if (rc == cudaSuccess) /* our own streams do not wait for it */
        rc = cudaStreamSynchronize(cudaStreamLegacy);
    if (rc != cudaSuccess) {
        (void)cudaGetLastError();
        return err_set(e,
                       ERR_NOMEM,
                       "no memory for %s buffer %u of %.1f MiB: %s",
                       gpu_class_name(which),
                       c->stats.held + 1,
                       (double)c->bytes / (1 << 20),
                       cudaGetErrorString(rc));
    }
    pthread_mutex_lock(&p->lock);
    c->all[c->stats.held++] = at;
    c->free[c->n_free++] = at;
    c->stats.allocations += p->warm;
    pthread_mutex_unlock(&p->lock);
    return OK;
}

/* Buffers are stacked so that the first that was taken is lent first. */
static void reverse(struct cuda_pool_class *c)
{
    for (uint32_t i = 0; i < c->n_free / 2; i++) {
        uint8_t *t = c->free[i];
        c->free[i] = c->free[c->n_free - 1 - i];
        c->free[c->n_free - 1 - i] = t;
    }
}

enum err cuda_pool_warm_up(struct cuda_pool *p, struct err_info *e)
{
    for (int i = 0; i < N_GPU_CLASSES; i++) {
        struct cuda_pool_class *c = &p->classes[i];
        const uint32_t before = c->stats.held;
        while (c->stats.held < c->warm) {
            enum err err = grow(p, (enum gpu_class)i, e);
            if (err)
                return err;
        }
        if (before == 0)
            reverse(c);
    }
    p->warm = true;
    return OK;
}

enum err cuda_pool_borrow(struct cuda_pool *p,
                          enum gpu_class which,
                          uint8_t **out,
                          struct err_info *e)
{
    struct cuda_pool_class *c = &p->classes[which];
    *out = NULL;
    if (c->n_free == 0) {
        enum err err = grow(p, which, e);
        if (err)
            return err;
        if (p->warm)
            log_warn("the pool of %s buffers had to grow to %u: its plan was wrong",
                     gpu_class_name(which),
                     c->stats.held);
    }
    pthread_mutex_lock(&p->lock);
    *out = c->free[--c->n_free];
    c->stats.borrows++;
    c->stats.lent++;
    if (c->stats.lent > c->stats.peak)
        c->stats.peak = c->stats.lent;
    pthread_mutex_unlock(&p->lock);
    return OK;
}

/* Is it one of the class's, and not free? */
static bool is_lent(const struct cuda_pool_class *c, const uint8_t *buffer)
{
    bool known = false;
    for (uint32_t i = 0; i < c->stats.held; i++)
        known |= c->all[i] == buffer;
    for (uint32_t i = 0; i < c->n_free; i++) {
        if (c->free[i] == buffer)
            return false;
    }
    return known;
}

enum err cuda_pool_return(struct cuda_pool *p,
                          enum gpu_class which,
                          uint8_t *buffer,
                          cudaStream_t stream,
                          struct err_info *e)
{
    struct cuda_pool_class *c = &p->classes[which];
    if (!is_lent(c, buffer))
        return err_set(e,
                       ERR_INTERNAL,
                       "a buffer came back to the pool's class %s that it had not lent",
                       gpu_class_name(which));
    if (p->zero && which == GPU_STAGING)
        memset(buffer, 0, c->bytes);
    else if (p->zero && cudaMemsetAsync(buffer, 0, c->bytes, stream) != cudaSuccess)
        return cuda_failed(cudaGetLastError(), "zeroing a buffer", e);
    pthread_mutex_lock(&p->lock);
    c->free[c->n_free++] = buffer;
    c->stats.returns++;
    c->stats.lent--;
    pthread_mutex_unlock(&p->lock);
    return OK;
}

void cuda_pool_stats(struct cuda_pool *p, struct gpu_class_stats out[N_GPU_CLASSES])
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < N_GPU_CLASSES; i++)
        out[i] = p->classes[i].stats;
    pthread_mutex_unlock(&p->lock);
}

void cuda_pool_deinit(struct cuda_pool *p)
{
    for (int i = 0; i < N_GPU_CLASSES; i++) {
        struct cuda_pool_class *c = &p->classes[i];
        for (uint32_t k = 0; k < c->stats.held; k++)
            (void)(i == GPU_STAGING ? cudaFreeHost(c->all[k]) : cudaFree(c->all[k]));
    }
    pthread_mutex_destroy(&p->lock);
}
