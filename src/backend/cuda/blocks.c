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
    uint8_t *to = b->block_bytes;
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
    memcpy(bytes, b->block_bytes, b->block_bytes_n);
}

void cuda_block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const struct cuda_kv *end = b->layers + b->model->hp.n_layer;
    const uint8_t *from = b->block_bytes;
    cuda_device_enter(b);
    cudaError_t rc = cudaStreamWaitEvent(b->copies, b->copied, 0);
    memcpy(b->block_bytes, bytes, b->block_bytes_n);
    for (const struct cuda_kv *l = b->layers; l < end && rc == cudaSuccess; l++) {
        rc = cudaMemcpyAsync(
            block_at(l, to), from, l->block_bytes, cudaMemcpyHostToDevice, b->copies);
        from += l->block_bytes;
    }
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(b->copies); /* the buffer is the next one's */
    check(rc, "writing a block");
}
