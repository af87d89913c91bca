/* Whole KV blocks as bytes: the same block of every layer, one layer after the other; of layers
 * with windows its pane.
 *
 *      copy    on the stream of the steps: behind those that are there, before those to come
 *      read    on a stream beside it: of a block whose steps have all ended
 *      write   likewise, behind the last copy: of a block that no step under way was given; those
 *              that come later are submitted when it is there */
#include "backend/cuda/cuda.h"
#include "base/log.h"

#include <string.h>

static uint8_t *block_at(const struct cuda_kv *l, struct backend_place at)
{
    return l->base + (l->in_panes ? at.pane : at.block) * l->block_bytes;
}

/* These have no way to fail but with the device; the next run says so too. */
static void check(cudaError_t rc, const char *what)
{
    if (rc != cudaSuccess)
        log_error("CUDA: %s: %s", what, cudaGetErrorString(rc));
}

void *cuda_pinned_alloc(struct backend *base, size_t n_bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    void *p = NULL;
    if (b->lent_pinned)
        return NULL;
    cuda_device_enter(b);
    if (cudaMallocHost(&p, n_bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    pthread_mutex_lock(&b->lock);
    b->lent_pinned = p;
    b->lent_pinned_n = n_bytes;
    pthread_mutex_unlock(&b->lock);
    return p;
}

void cuda_pinned_free(struct backend *base, void *p)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    (void)cudaFreeHost(p);
    pthread_mutex_lock(&b->lock);
    b->lent_pinned = NULL;
    b->lent_pinned_n = 0;
    pthread_mutex_unlock(&b->lock);
}

/* A block's bytes may go straight there. */
static bool is_pinned(const struct cuda_backend *b, const void *bytes)
{
    const uintptr_t at = (uintptr_t)bytes, base = (uintptr_t)b->lent_pinned;
    return b->lent_pinned && at >= base && at - base + b->block_bytes_n <= b->lent_pinned_n;
}

void cuda_block_copy(struct backend *base, struct backend_place from, struct backend_place to)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    cuda_kv_copy(
        b->layers, b->model->hp.n_layer, from.block, from.pane, to.block, to.pane, b->stream);
    check(cudaGetLastError(), "copying a block");
    check(cudaEventRecord(b->copied, b->stream), "copying a block");
}

void cuda_block_read(struct backend *base, struct backend_place from, void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const struct cuda_kv *end = b->layers + b->model->hp.n_layer;
    const bool direct = is_pinned(b, bytes);
    uint8_t *to = direct ? bytes : b->block_bytes;
    cudaError_t rc = cudaSuccess;
    cuda_device_enter(b);
    for (const struct cuda_kv *l = b->layers; l < end && rc == cudaSuccess; l++) {
        rc = cudaMemcpyAsync(
            to, block_at(l, from), l->block_bytes, cudaMemcpyDeviceToHost, b->copies);
        to += l->block_bytes;
    }
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(b->copies);
    check(rc, "reading a block");
    if (!direct)
        memcpy(bytes, b->block_bytes, b->block_bytes_n);
}

void cuda_block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const struct cuda_kv *end = b->layers + b->model->hp.n_layer;
    const bool direct = is_pinned(b, bytes);
    const uint8_t *from = direct ? bytes : b->block_bytes;
    cuda_device_enter(b);
    cudaError_t rc = cudaStreamWaitEvent(b->copies, b->copied, 0);
    if (!direct)
        memcpy(b->block_bytes, bytes, b->block_bytes_n);
    for (const struct cuda_kv *l = b->layers; l < end && rc == cudaSuccess; l++) {
        rc = cudaMemcpyAsync(
            block_at(l, to), from, l->block_bytes, cudaMemcpyHostToDevice, b->copies);
        from += l->block_bytes;
    }
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(b->copies); /* the bytes are the next one's */
    check(rc, "writing a block");
}
