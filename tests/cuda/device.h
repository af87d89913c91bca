/* Memory of the device (or of its emulation) for the tests of kernels, and an emulated step. */
#ifndef WEIR_TESTS_CUDA_DEVICE_H
#define WEIR_TESTS_CUDA_DEVICE_H

#include "backend/cuda/rows.h"

#include <string.h>

/* Under ASan a test takes ten times as long. */
#if defined(__SANITIZE_ADDRESS__)
#define EVERY_ACCESS_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) /* clang */
#define EVERY_ACCESS_CHECKED 1
#endif
#endif

static inline void *device_bytes(size_t n)
{
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, n ? n : 1), cudaSuccess);
    assert_int_equal(cudaMemset(p, 0xff, n ? n : 1), cudaSuccess); /* NaN, or nobody's row */
    return p;
}

static inline void *device_copy(const void *host, size_t n)
{
    void *p = device_bytes(n);
    assert_int_equal(cudaMemcpy(p, host, n, cudaMemcpyHostToDevice), cudaSuccess);
    return p;
}

static inline void host_copy(void *host, const void *device, size_t n)
{
    assert_int_equal(cudaMemcpy(host, device, n, cudaMemcpyDeviceToHost), cudaSuccess);
}

/* Bytes of shared memory that a launch may count on: what the device has, or only what all have. */
static inline uint32_t device_block_shared(int least)
{
    int n = 0;
    assert_int_equal(cudaDeviceGetAttribute(&n, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
                     cudaSuccess);
    return least ? CUDA_SHARED_LEAST : (uint32_t)n;
}

static inline int device_has_wgmma(void)
{
    int major = 0;
    assert_int_equal(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
                     cudaSuccess);
    return major == 9;
}

/* A place in a step of n rows, launched for `bound`; only counts are there. Free by at_free. */
static inline struct cuda_at at_make(uint32_t n, uint32_t bound)
{
    const struct cuda_counts counts = {.n_rows = n};
    struct cuda_at at = {.rows = CUDA_ROWS_ALL, .block_shared = device_block_shared(0)};
    at.bounds.rows = bound;
    at.step.counts = device_copy(&counts, sizeof counts);
    return at;
}

static inline void at_free(struct cuda_at *at)
{
    cudaFree((void *)(uintptr_t)at->step.counts);
}

#endif
