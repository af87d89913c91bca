/* Whole KV blocks as bytes: the same block of every layer, one layer after the other; of layers
 * with windows its pane. All on the stream of the steps, so behind those that wrote them and before
 * those that will. */
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
    cuda_kv_copy(
        b->layers, b->model->hp.n_layer, from.block, from.pane, to.block, to.pane, b->stream);
    check(cudaGetLastError(), "copying a block");
}

void cuda_block_read(struct backend *base, struct backend_place from, void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const size_t n = b->layers[0].block_bytes;
    cudaError_t rc = cudaSuccess;
    for (uint32_t l = 0; l < b->model->hp.n_layer && rc == cudaSuccess; l++)
        rc = cudaMemcpyAsync(b->block_bytes + l * n,
                             block_at(&b->layers[l], from),
                             n,
                             cudaMemcpyDeviceToHost,
                             b->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(b->stream);
    check(rc, "reading a block");
    memcpy(bytes, b->block_bytes, b->block_bytes_n);
}

void cuda_block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const size_t n = b->layers[0].block_bytes;
    cudaError_t rc = cudaSuccess;
    memcpy(b->block_bytes, bytes, b->block_bytes_n);
    for (uint32_t l = 0; l < b->model->hp.n_layer && rc == cudaSuccess; l++)
        rc = cudaMemcpyAsync(block_at(&b->layers[l], to),
                             b->block_bytes + l * n,
                             n,
                             cudaMemcpyHostToDevice,
                             b->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(b->stream); /* the buffer is the next one's */
    check(rc, "writing a block");
}
