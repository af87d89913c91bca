#include "backend/cuda/limits.h"

#include "backend/cuda/cuda.h"

enum { ROUNDS = 5, MAX_PRODUCTS = 4096 };
#define COPY_BYTES ((size_t)512 << 20) /* each way; far more than any cache */
#define WANTED_MS 20                   /* of one round of products */

struct probe {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    uint8_t *from, *to;
    size_t bytes;
    uint32_t n_blocks;
};

/* Milliseconds between the events. */
static enum err elapsed(struct probe *p, float *ms, struct err_info *e)
{
    cudaError_t rc = cudaGetLastError();
    if (rc == cudaSuccess)
        rc = cudaEventRecord(p->end, p->stream);
    if (rc == cudaSuccess)
        rc = cudaEventSynchronize(p->end);
    if (rc == cudaSuccess)
        rc = cudaEventElapsedTime(ms, p->begin, p->end);
    *ms = *ms > 1e-3f ? *ms : 1e-3f;
    return rc == cudaSuccess ? OK : cuda_failed(rc, "measuring", e);
}

static enum err measure_copy(struct probe *p, double *bytes_s, struct err_info *e)
{
    enum err err = OK;
    for (int i = 0; i <= ROUNDS && !err; i++) { /* the first places the kernel */
        float ms = 0;
        (void)cudaEventRecord(p->begin, p->stream);
        limits_copy(p->from, p->to, p->bytes / 16, p->stream);
        err = elapsed(p, &ms, e);
        const double rate = 2.0 * (double)p->bytes / ((double)ms * 1e-3);
        if (i > 0 && rate > *bytes_s)
            *bytes_s = rate;
    }
    return err;
}

/* Rounds are doubled until they take long enough to be measured. */
static enum err measure_products(struct probe *p,
                                 enum limits_product kind,
                                 double *ops_s,
                                 struct err_info *e)
{
    enum err err = OK;
    uint32_t n = 16;
    for (int i = 0; i < ROUNDS && !err; i++) {
        float ms = 0;
        (void)cudaEventRecord(p->begin, p->stream);
        const double ops = limits_multiply(kind, p->n_blocks, n, (float *)(void *)p->to, p->stream);
        err = elapsed(p, &ms, e);
        const double rate = ops / ((double)ms * 1e-3);
        *ops_s = rate > *ops_s ? rate : *ops_s;
        if (ms < WANTED_MS && n < MAX_PRODUCTS) {
            n *= 2;
            i = -1;
        }
    }
    return err;
}

static enum err open_probe(struct probe *p, uint32_t index, struct err_info *e)
{
    int n = 0;
    size_t free_bytes, total;
    void *from = NULL, *to = NULL;
    cudaError_t rc = cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, (int)index);
    if (rc == cudaSuccess)
        rc = cudaMemGetInfo(&free_bytes, &total);
    if (rc != cudaSuccess)
        return cuda_failed(rc, "the device's memory", e);
    p->n_blocks = (uint32_t)n * 2;
    p->bytes = COPY_BYTES < free_bytes / 8 ? COPY_BYTES : free_bytes / 8 / 16 * 16;
    rc = cudaMalloc(&from, p->bytes);
    if (rc == cudaSuccess)
        rc = cudaMalloc(&to, p->bytes);
    p->from = from;
    p->to = to;
    if (rc == cudaSuccess)
        rc = cudaMemset(from, 1, p->bytes);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&p->begin);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&p->end);
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    return rc == cudaSuccess ? OK : cuda_failed(rc, "measuring", e);
}

static void close_probe(struct probe *p)
{
    (void)cudaFree(p->from);
    (void)cudaFree(p->to);
    cuda_event_drop(p->begin);
    cuda_event_drop(p->end);
    if (p->stream)
        (void)cudaStreamDestroy(p->stream);
}

/* Quantised weights are multiplied as f16. */
enum err cuda_limits(uint32_t index, struct device_limits *out, struct err_info *e)
{
    struct probe p = {0};
    struct device_info info;
    *out = (struct device_limits){0};
    enum err err = cuda_device_open(index, &info, e);
    if (err)
        return err;
    err = open_probe(&p, index, e);
    if (!err)
        err = measure_copy(&p, &out->read_bytes_s, e);
    if (!err)
        err = measure_products(&p, LIMITS_F16, &out->ops_s[LIMIT_F16], e);
    if (!err)
        err = measure_products(&p, LIMITS_BF16, &out->ops_s[LIMIT_BF16], e);
    if (!err)
        err = measure_products(&p, LIMITS_F32, &out->ops_s[LIMIT_F32], e);
    out->ops_s[LIMIT_QUANT] = out->ops_s[LIMIT_Q8_0] = out->ops_s[LIMIT_F16];
    close_probe(&p);
    return err;
}
