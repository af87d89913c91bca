/* Ops on several residual streams, and the largest values of a gate.
 *
 *      a row of streams    | stream 1 | stream 2 | .. | stream 0 |      of n values each
 *
 *      match, sparse       a block for a row (and part): sums as those of norms (rows.cu)
 *      the others          a thread for value i of all streams: nothing is summed over values, and
 *                          over streams from the first to the last
 *
 * Operations: few; bytes: each stream once in and once out. Bound on an H200: 4.8 TB/s from some
 * hundred rows on, a launch's time below. */
#include "backend/cuda/streams.h"

#include "backend/cuda/device.cuh"

enum { THREADS = 256 };

/* --- sums over a row --- */

static __device__ float mean_square(const float *x, uint32_t n, float *part)
{
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum = fmaf(x[i], x[i], sum);
    return block_sum(sum, part) / static_cast<float>(n);
}

/* grid: [rows][parts] */
static __global__ void __launch_bounds__(SUM_THREADS_MOST)
    match_kernel(cuda_step step, int rows, struct cuda_streams op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    __shared__ float part[WARP];
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    float *x = op.out.p + row * op.out.stride + static_cast<size_t>(blockIdx.y) * op.n;
    const float want = mean_square(op.in.p + row * op.in.stride, op.n, part);
    const float by = sqrtf(want / fmaxf(mean_square(x, op.n, part), 1e-5f));
    for (uint32_t i = threadIdx.x; i < op.n; i += blockDim.x)
        x[i] = x[i] * by;
}

void cuda_streams_match(const struct cuda_at *at, const struct cuda_streams *op)
{
    const dim3 grid(cuda_rows_bound(at), op->n_part);
    if (cuda_rows_bound(at) > 0)
        LAUNCH_ROWS(match_kernel, grid, sum_threads(op->n), at, *op);
}

/* The mean first, then squares of what is left. grid: [rows] */
static __global__ void __launch_bounds__(SUM_THREADS_MOST) sparse_kernel(
    cuda_step step, int rows, cuda_buf buf, uint32_t n, float scale)
{
    cuda_let_next_begin();
    cuda_wait_before();
    __shared__ float part[WARP];
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    float *x = buf.p + row * buf.stride, sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum = sum + x[i];
    const float mean = block_sum(sum, part) / static_cast<float>(n);
    sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum = fmaf(x[i] - mean, x[i] - mean, sum);
    sum = block_sum(sum, part);
    const float cut = fmaf(scale, sqrtf(sum / static_cast<float>(n)), mean);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        x[i] = x[i] - cut <= 0.0f ? 0.0f : x[i] - cut; /* what is no number stays none */
}

void cuda_sparse(const struct cuda_at *at, struct cuda_buf buf, uint32_t n, float scale)
{
    if (cuda_rows_bound(at) > 0)
        LAUNCH_ROWS(sparse_kernel, cuda_rows_bound(at), sum_threads(n), at, buf, n, scale);
}

/* --- values by themselves --- */

enum stream_op { FOLD, PREDICT, CORRECT, SPREAD };

/* Where value 0 of stream j lies in a row of streams. */
static __device__ __forceinline__ float *stream_of(float *row, const cuda_streams &op, uint32_t j)
{
    return row + static_cast<size_t>((j + op.n_part - 1) % op.n_part) * op.n;
}

static __device__ __forceinline__ void predict(const cuda_streams &op,
                                               const float *coefs,
                                               float *out)
{
    float was[CUDA_MOST_STREAMS];
#pragma unroll
    for (uint32_t k = 0; k < CUDA_MOST_STREAMS; k++)
        was[k] = k < op.n_part ? *stream_of(out, op, k) : 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < CUDA_MOST_STREAMS; j++) {
        float sum = 0.0f;
        if (j >= op.n_part)
            continue;
#pragma unroll
        for (uint32_t k = 0; k < CUDA_MOST_STREAMS; k++) {
            if (k < op.n_part)
                sum = fmaf(coefs[j * op.n_part + k], was[k], sum);
        }
        *stream_of(out, op, j) = was[j] + sum;
    }
}

/* grid: [rows][n / THREADS] */
template <stream_op WHAT>
static __global__ void __launch_bounds__(THREADS)
    stream_kernel(cuda_step step, int rows, struct cuda_streams op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x, i = blockIdx.y * THREADS + threadIdx.x;
    if (row >= rows_of(step, rows) || i >= op.n)
        return;
    const float *in = op.in.p + row * op.in.stride + i, *coefs = op.coefs.p;
    float *out = op.out.p + row * op.out.stride + i;
    if (WHAT == PREDICT || WHAT == CORRECT)
        coefs += row * op.coefs.stride;
    if (WHAT == PREDICT) {
        predict(op, coefs, out);
    } else if (WHAT == CORRECT) {
        const float change = *in - *stream_of(out, op, 0);
        for (uint32_t j = 0; j < op.n_part; j++) {
            float *x = stream_of(out, op, j);
            *x = fmaf(change, 1.0f + coefs[j], *x);
        }
    } else if (WHAT == SPREAD) {
        for (uint32_t j = 1; j < op.n_part; j++) {
            float *x = stream_of(out, op, j);
            *x = *x + *in;
        }
    } else {
        float sum = *out;
        for (uint32_t k = 0; k < op.n_part; k++)
            sum = sum + in[static_cast<size_t>(k) * op.n];
        *out = sum * op.scale;
    }
}

template <stream_op WHAT>
static void launch(const struct cuda_at *at, const struct cuda_streams *op)
{
    const dim3 grid(cuda_rows_bound(at), (op->n + THREADS - 1) / THREADS);
    if (cuda_rows_bound(at) > 0)
        LAUNCH_ROWS(stream_kernel<WHAT>, grid, THREADS, at, *op);
}

void cuda_streams_fold(const struct cuda_at *at, const struct cuda_streams *op)
{
    launch<FOLD>(at, op);
}
void cuda_streams_predict(const struct cuda_at *at, const struct cuda_streams *op)
{
    launch<PREDICT>(at, op);
}
void cuda_streams_correct(const struct cuda_at *at, const struct cuda_streams *op)
{
    launch<CORRECT>(at, op);
}
void cuda_streams_spread(const struct cuda_at *at, const struct cuda_streams *op)
{
    launch<SPREAD>(at, op);
}
