/* Working buffers that are lent: taken at start, never again.
 *
 *      class          what for                          rows x bytes a row     where
 *      hidden         the residual stream and its like   max_rows               device
 *      intermediate   inside feed-forward layers         max_rows, or places    device
 *      attention      Q, K, V and what was gathered      max_rows               device
 *      staging        what crosses to and from the host                         host, pinned
 *
 * All buffers of a class have one size. Borrowing takes the one that came back last, so a step that
 * borrows in a fixed order and returns in the opposite one gets the same addresses every time: that
 * is what lets a captured graph be replayed. What a step returns may still be in use on the device;
 * the next step's work stands behind it on the same stream. A staging buffer is returned once its
 * event has come.
 *
 * Invariants: lent + free == held; each buffer is lent at most once (returning one that is not lent
 * is refused); after cuda_pool_warm_up a borrow allocates nothing unless the plan was wrong, and
 * then it is counted and said.
 *
 * Thread: the engine's; cuda_pool_stats any. */
#ifndef WEIR_BACKEND_CUDA_POOL_H
#define WEIR_BACKEND_CUDA_POOL_H

#include "backend/backend.h"

#include <cuda_runtime.h>
#include <pthread.h>

enum { CUDA_POOL_MOST = 64 }; /* buffers of a class */

struct cuda_pool_class {
    size_t bytes;                  /* of a buffer */
    uint32_t warm;                 /* buffers that the warm-up takes */
    uint8_t *all[CUDA_POOL_MOST];  /* [held] */
    uint8_t *free[CUDA_POOL_MOST]; /* [n_free] a stack; the last came back last */
    uint32_t n_free;
    struct gpu_class_stats stats;
};

struct cuda_pool {
    struct cuda_pool_class classes[N_GPU_CLASSES];
    bool zero; /* on return */
    bool warm;
    pthread_mutex_t lock; /* of the figures, which other threads read */
};

void cuda_pool_init(struct cuda_pool *p, bool zero);
/* Before the warm-up: n buffers of so many bytes. n: at most CUDA_POOL_MOST. */
void cuda_pool_plan(struct cuda_pool *p, enum gpu_class c, size_t bytes, uint32_t n);
/* Bytes that the warm-up takes: of the device, or pinned. */
size_t cuda_pool_device_bytes(const struct cuda_pool *p);
size_t cuda_pool_pinned_bytes(const struct cuda_pool *p);
/* Take what was planned and is not there; a second call finds nothing to do. Device buffers come
 * zeroed. Errors: ERR_NOMEM (with the class and the numbers). */
enum err cuda_pool_warm_up(struct cuda_pool *p, struct err_info *e) WEIR_MUST_USE;
/* Errors: ERR_NOMEM (the class is at CUDA_POOL_MOST, or the device has no more). */
enum err cuda_pool_borrow(struct cuda_pool *p, enum gpu_class c, uint8_t **out, struct err_info *e)
    WEIR_MUST_USE;
/* Zeroed, where that was asked for, in the stream's order; staging at once. Errors: ERR_INTERNAL
 * (it was not lent: it stays as it is). */
enum err cuda_pool_return(struct cuda_pool *p,
                          enum gpu_class c,
                          uint8_t *buffer,
                          cudaStream_t stream,
                          struct err_info *e) WEIR_MUST_USE;
void cuda_pool_stats(struct cuda_pool *p,
                     struct gpu_class_stats out[N_GPU_CLASSES]); /* any thread */
void cuda_pool_deinit(struct cuda_pool *p);

#endif
