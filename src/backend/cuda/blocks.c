/* Whole KV blocks as bytes: what all layers have in the block, which lies together (struct
 * cuda_kv_pool), and behind it what layers with windows have in its pane.
 *
 *      copy    on the stream of the steps: behind those that are there, before those to come
 *      read    on a stream beside it, behind the last copy: of a block whose steps have all ended
 *      write   on another, likewise: of a block that no step under way was given
 *
 * Into pinned memory and out of it the engine waits for neither. Whoever reads or writes a block,
 * or bytes of pinned memory, comes behind what was moved there, on the device, and behind nothing
 * else (moves.c): steps, copies, reads and writes. Who looks at the bytes waits first
 * (block_settle): the disk's thread. Any other memory is copied through one pinned block, which the
 * engine waits for, and that is counted.
 *
 * Where one fails nothing says what the KV memory holds from then on: all of it is lost, so that no
 * step begins again and no tier is given bytes that are not a block's. A copy that fails behind the
 * call leaves the device in an error that stays, which all later calls say; what it left in pinned
 * memory could only come back through one of them. */
#include "backend/cuda/cuda.h"
#include "base/clock.h"
#include "base/log.h"

#include <string.h>

/* In blocks (0), or in panes (1). */
static uint8_t *block_at(const struct cuda_kv_pool *pools, int i, struct backend_place at)
{
    return pools[i].base + (i ? at.pane : at.block) * pools[i].stride;
}

static cudaError_t copy(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s)
{
    return n ? cudaMemcpyAsync(to, from, n, k, s) : cudaSuccess;
}

/* These have no way to fail but with the device. */
static void check(struct cuda_backend *b, cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess || b->lost)
        return;
    b->lost = true;
    log_error("CUDA: %s: %s; nothing is computed any more", what, cudaGetErrorString(rc));
    cuda_moves_drain(b); /* what was begun touches nobody's memory */
    (void)cudaGetLastError();
}

enum err cuda_blocks_whole(const struct cuda_backend *b, struct err_info *e)
{
    return b->lost ? err_set(e, ERR_INTERNAL, "CUDA: moving a block of the KV memory failed before")
                   : OK;
}

/* How long a block takes, of one at a time: the next when the last is known. */
static void measure_begin(struct cuda_backend *b, cudaStream_t stream, bool *fresh)
{
    float ms = 0;
    if (b->measuring) {
        if (cudaEventQuery(b->measured) != cudaSuccess) {
            (void)cudaGetLastError(); /* it is on its way */
            *fresh = false;
            return;
        }
        if (cudaEventElapsedTime(&ms, b->moving, b->measured) == cudaSuccess) {
            pthread_mutex_lock(&b->lock);
            double *us = &b->moves.block_us;
            *us += ((double)ms * 1e3 - *us) / (*us > 0 ? 8 : 1);
            pthread_mutex_unlock(&b->lock);
        }
    }
    *fresh = cudaEventRecord(b->moving, stream) == cudaSuccess;
}

enum err cuda_blocks_open(struct cuda_backend *b, struct err_info *e)
{
    cudaError_t rc = cudaEventCreateWithFlags(&b->copied, cudaEventDisableTiming);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&b->moving);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&b->measured);
    return rc == cudaSuccess ? OK : cuda_failed(rc, "events of blocks", e);
}

void cuda_blocks_close(struct cuda_backend *b)
{
    cuda_event_drop(b->copied);
    cuda_event_drop(b->moving);
    cuda_event_drop(b->measured);
}

double cuda_block_us(const struct backend *base)
{
    return ((const struct cuda_backend *)base)->moves.block_us; /* the engine's thread writes it */
}

bool cuda_block_settle(struct backend *base)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    const bool ended = cuda_moves_settle(b) == cudaSuccess;
    if (!ended)
        (void)cudaGetLastError();
    return ended && !b->lost;
}

static struct cuda_region *region_of(struct cuda_backend *b, const void *p)
{
    for (int i = 0; i < BACKEND_PINNED; i++) {
        if (b->pinned[i].p == p)
            return &b->pinned[i];
    }
    return NULL;
}

static void set_region(struct cuda_backend *b, struct cuda_region *r, void *p, size_t n_bytes)
{
    pthread_mutex_lock(&b->lock);
    *r = (struct cuda_region){p, n_bytes};
    pthread_mutex_unlock(&b->lock);
}

void *cuda_pinned_alloc(struct backend *base, size_t n_bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    void *p = NULL;
    struct cuda_region *r = region_of(b, NULL);
    if (!r)
        return NULL;
    cuda_device_enter(b);
    if (cudaMallocHost(&p, n_bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    cuda_moves_new_slots(b, (int)(r - b->pinned), n_bytes);
    set_region(b, r, p, n_bytes);
    return p;
}

void cuda_pinned_free(struct backend *base, void *p)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    cuda_moves_drain(b); /* they read and write it */
    (void)cudaFreeHost(p);
    set_region(b, region_of(b, p), NULL, 0);
}

/* Not pinned: the engine's own time. */
static cudaError_t wait_counted(struct cuda_backend *b, cudaStream_t stream)
{
    const uint64_t since_ns = clock_ns();
    const cudaError_t rc = cudaStreamSynchronize(stream);
    pthread_mutex_lock(&b->lock);
    b->moves.waits++;
    b->moves.wait_us += (double)(clock_ns() - since_ns) * 1e-3;
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static void count(struct cuda_backend *b, uint64_t *what)
{
    pthread_mutex_lock(&b->lock);
    ++*what;
    b->moves.bytes += b->block_bytes_n;
    pthread_mutex_unlock(&b->lock);
}

void cuda_block_copy(struct backend *base, struct backend_place from, struct backend_place to)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    cuda_device_enter(b);
    struct cuda_moved last = {{0}};
    cuda_moves_of_place(b, from, &last);
    cuda_moves_of_place(b, to, &last);
    cudaError_t rc = cuda_moves_join(b, &last);
    for (int i = 0; i < 2 && rc == cudaSuccess; i++)
        rc = copy(block_at(b->kv_pools, i, to),
                  block_at(b->kv_pools, i, from),
                  b->kv_pools[i].stride,
                  cudaMemcpyDeviceToDevice,
                  b->stream);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(b->copied, b->stream);
    check(b, rc, "copying a block");
}

/* A block on its way out, or in, between the device and pinned memory. */
static cudaError_t move(struct cuda_backend *b,
                        enum cuda_lane way,
                        struct backend_place at,
                        uint8_t *bytes)
{
    cudaStream_t stream = b->ways[way].stream;
    bool fresh;
    cudaError_t rc = cuda_moves_begin(b, way, at, bytes);
    if (rc == cudaSuccess)
        rc = cudaStreamWaitEvent(stream, b->copied, 0);
    measure_begin(b, stream, &fresh);
    for (int i = 0; i < 2 && rc == cudaSuccess; i++) {
        const size_t n = b->kv_pools[i].stride;
        uint8_t *block = block_at(b->kv_pools, i, at);
        rc = way == CUDA_OUT ? copy(bytes, block, n, cudaMemcpyDeviceToHost, stream)
                             : copy(block, bytes, n, cudaMemcpyHostToDevice, stream);
        bytes += n;
    }
    if (rc == cudaSuccess)
        rc = cuda_moves_end(b, way, at, bytes - b->block_bytes_n);
    if (rc == cudaSuccess && fresh)
        rc = cudaEventRecord(b->measured, stream);
    b->measuring = b->measuring || fresh;
    return rc;
}

bool cuda_block_read(struct backend *base, struct backend_place from, void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const bool direct = cuda_moves_direct(b, bytes);
    cuda_device_enter(b);
    if (b->lost)
        return false;
    cudaError_t rc = move(b, CUDA_OUT, from, direct ? bytes : b->block_bytes);
    if (rc == cudaSuccess && !direct)
        rc = wait_counted(b, b->ways[CUDA_OUT].stream);
    check(b, rc, "reading a block");
    if (rc != cudaSuccess)
        return false;
    if (!direct)
        memcpy(bytes, b->block_bytes, b->block_bytes_n);
    count(b, &b->moves.read);
    return true;
}

void cuda_block_write(struct backend *base, struct backend_place to, const void *bytes)
{
    struct cuda_backend *b = (struct cuda_backend *)base;
    const bool direct = cuda_moves_direct(b, bytes);
    cuda_device_enter(b);
    if (!direct)
        memcpy(b->block_bytes, bytes, b->block_bytes_n);
    cudaError_t rc = move(b, CUDA_IN, to, direct ? (uint8_t *)(uintptr_t)bytes : b->block_bytes);
    if (rc == cudaSuccess && !direct)
        rc = wait_counted(b, b->ways[CUDA_IN].stream); /* the bytes are the next one's */
    check(b, rc, "writing a block");
    if (rc == cudaSuccess)
        count(b, &b->moves.written);
}
