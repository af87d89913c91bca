/* Rows of activations, one by one.
 *
 *      norm         y = x / sqrt(mean(x^2) + eps) * w            a block, or a warp, for a sum
 *      layer norm   y = (x - mean) / sqrt(var + eps) * w + b     likewise
 *      maps         y = f(x, x2, y) of each value by itself      four values a thread
 *
 * A row of n values under a norm:
 *
 *      thread   0     1          T-1   0     1                   T: n / 4 threads in whole warps,
 *      values | 0..3 | 4..7 | .. |   | 4T.. | .. |               at most 1024
 *
 * Each thread sums its values from the first to the last, then lanes meet in a butterfly, then the
 * warps' sums in another (device.cuh). T follows from n alone, so a row's bits depend on nothing
 * else; whether values are loaded by fours or singly changes no order. With heads, a warp has a
 * head: lane l sums values 4l.., 4(l + 32)...
 *
 * Operations: a few a value. Bytes: each value once in and once out (4 + 4), for rows that fit the
 * L2 cache from there. Bound on an H200: 4.8 TB/s from 256 rows of 4096 on; for a single row the
 * time of a launch, 2 to 3 us, which graphs hide in part. */
#include "backend/cuda/rows.h"

#include "backend/cuda/rows.cuh"

enum { MAP_THREADS = 128, HEAD_WARPS = 8 };

/* --- norms --- */

/* grid: [rows]. */
static __global__ void __launch_bounds__(SUM_THREADS_MOST)
    norm_kernel(cuda_step step, int rows, struct cuda_norm op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    __shared__ float part[2 * WARP];
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    row_in_memory r;
    r.begin(NULL, 0);
    sums_of_block sums = {part, 0};
    norm_row(r, op, op.gather ? gathered(step, rows, row) : row, row, sums);
}

/* grid: [rows][heads / HEAD_WARPS]; a warp a head. */
static __global__ void head_norm_kernel(cuda_step step, int rows, struct cuda_norm op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x, head = blockIdx.y * HEAD_WARPS + threadIdx.x / WARP;
    if (row >= rows_of(step, rows) || head >= op.heads)
        return;
    const uint32_t from = op.gather ? gathered(step, rows, row) : row;
    row_in_memory r = {threadIdx.x % WARP, WARP};
    norm_values(r,
                op.in.p + from * op.in.stride + static_cast<size_t>(head) * op.n,
                op.out.p + row * op.out.stride + static_cast<size_t>(head) * op.n,
                op.w ? op.w + static_cast<size_t>(head) * op.w_step : NULL,
                op.n,
                op.eps,
                op.size,
                sum_of_warp{});
}

void cuda_norm(const struct cuda_at *at, const struct cuda_norm *op)
{
    const uint32_t rows = cuda_rows_bound(at);
    if (rows == 0)
        return;
    if (op->heads > 1 && (op->w || op->bare)) {
        const dim3 grid(rows, (op->heads + HEAD_WARPS - 1) / HEAD_WARPS);
        LAUNCH_ROWS(head_norm_kernel, grid, HEAD_WARPS * WARP, at, *op);
        return;
    }
    struct cuda_norm all = *op; /* a copy of heads is one of the row */
    all.n = op->n * (op->heads > 1 ? op->heads : 1);
    LAUNCH_ROWS(norm_kernel, rows, sum_threads(all.n), at, all);
}

/* grid: [rows]. */
static __global__ void __launch_bounds__(SUM_THREADS_MOST)
    layer_norm_kernel(cuda_step step, int rows, struct cuda_layer_norm op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    __shared__ float part[2 * WARP];
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    row_in_memory r;
    r.begin(NULL, 0);
    sums_of_block sums = {part, 0};
    layer_norm_row(r, op, op.gather ? gathered(step, rows, row) : row, row, sums);
}

void cuda_layer_norm(const struct cuda_at *at, const struct cuda_layer_norm *op)
{
    if (cuda_rows_bound(at) == 0)
        return;
    LAUNCH_ROWS(layer_norm_kernel, cuda_rows_bound(at), sum_threads(op->n), at, *op);
}

/* A warp a head: lane l has values l, l + 32, ... grid: [rows][heads / HEAD_WARPS]. */
static __global__ void head_layer_norm_kernel(cuda_step step,
                                              int rows,
                                              cuda_buf buf,
                                              uint32_t heads,
                                              uint32_t n,
                                              float eps,
                                              const float *w,
                                              const float *bias)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x, head = blockIdx.y * HEAD_WARPS + threadIdx.x / WARP;
    const uint32_t lane = threadIdx.x % WARP;
    if (row >= rows_of(step, rows) || head >= heads)
        return;
    float *x = buf.p + row * buf.stride + static_cast<size_t>(head) * n;
    w += static_cast<size_t>(head) * n;
    if (bias)
        bias += static_cast<size_t>(head) * n;
    float sum = 0.0f;
    for (uint32_t i = lane; i < n; i += WARP)
        sum = sum + x[i];
    const float mean = warp_sum(sum) / static_cast<float>(n);
    sum = 0.0f;
    for (uint32_t i = lane; i < n; i += WARP)
        sum = fmaf(x[i] - mean, x[i] - mean, sum);
    const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(n) + eps);
    for (uint32_t i = lane; i < n; i += WARP)
        x[i] = (x[i] - mean) * scale * w[i] + (bias ? bias[i] : 0.0f);
}

void cuda_head_layer_norm(const struct cuda_at *at,
                          struct cuda_buf buf,
                          uint32_t heads,
                          uint32_t n,
                          float eps,
                          const float *w,
                          const float *bias)
{
    const dim3 grid(cuda_rows_bound(at), (heads + HEAD_WARPS - 1) / HEAD_WARPS);
    if (cuda_rows_bound(at) == 0)
        return;
    LAUNCH_ROWS(
        head_layer_norm_kernel, grid, HEAD_WARPS * WARP, at, buf, heads, n, eps, w, bias);
}

/* grid: [rows]. */
static __global__ void head_copy_kernel(cuda_step step, int rows, struct cuda_head_copy op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    const float *in = op.in.p + row * op.in.stride + (op.front ? 0 : op.in_step - op.n);
    float *out = op.out.p + row * op.out.stride + op.out_step - op.n;
    for (uint32_t i = threadIdx.x; i < op.heads * op.n; i += blockDim.x)
        out[i / op.n * op.out_step + i % op.n] = in[i / op.n * op.in_step + i % op.n];
    const uint32_t before = op.zero ? op.out_step - op.n : 0;
    for (uint32_t i = threadIdx.x; i < op.heads * before; i += blockDim.x)
        (out - before)[i / before * op.out_step + i % before] = 0.0f;
}

void cuda_head_copy(const struct cuda_at *at, const struct cuda_head_copy *op)
{
    if (cuda_rows_bound(at) > 0)
        LAUNCH_ROWS(head_copy_kernel, cuda_rows_bound(at), 256, at, *op);
}

/* grid: [rows] */
static __global__ void head_scale_kernel(
    cuda_step step, int rows, cuda_buf in, cuda_buf out, uint32_t n, uint32_t heads)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    const float *scale = in.p + row * in.stride;
    float *x = out.p + row * out.stride;
    for (uint32_t i = threadIdx.x; i < heads * n; i += blockDim.x)
        x[i] *= scale[i / n];
}

void cuda_head_scale(
    const struct cuda_at *at, struct cuda_buf in, struct cuda_buf out, uint32_t heads, uint32_t n)
{
    if (cuda_rows_bound(at) > 0)
        LAUNCH_ROWS(head_scale_kernel, cuda_rows_bound(at), 256, at, in, out, n, heads);
}

/* --- maps --- */

/* grid: [rows][4 * MAP_THREADS values]. */
template <class Op>
static __global__ void map_kernel(
    cuda_step step, int rows, const uint32_t *n_places, cuda_buf out, uint32_t n, Op op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x, i = 4 * (blockIdx.y * MAP_THREADS + threadIdx.x);
    if (row >= (n_places ? *n_places : rows_of(step, rows)) || i >= n)
        return;
    float *to = out.p + row * out.stride;
    op.begin(step, row);
    const float4 a = load4(op.input(row), i, n);
    const float4 b = Op::two ? load4(op.second(row), i, n) : a;
    store4(to, i, n, map_four(op, a, b, Op::adds ? load4(to, i, n) : a));
}

template <class Op>
static void map_rows(const struct cuda_at *at,
                     uint32_t rows,
                     const uint32_t *n_places,
                     struct cuda_buf out,
                     uint32_t n,
                     Op op)
{
    const dim3 grid(rows, (n + 4 * MAP_THREADS - 1) / (4 * MAP_THREADS));
    if (rows == 0 || n == 0)
        return;
    LAUNCH_ROWS(map_kernel<Op>, grid, MAP_THREADS, at, n_places, out, n, op);
}

namespace
{
/* A row of a table onto each row. */
struct add_table_row {
    enum { two = 0, adds = 1 };
    const float *w;
    uint32_t n, n_types; /* n_types 0: the table is of positions */
    const float *from;
    __device__ __forceinline__ void begin(const cuda_step &step, uint32_t row)
    {
        const uint32_t pos = step.positions[row];
        uint32_t at = pos;
        if (n_types) {
            const uint32_t second = step.seqs[step.row_seq[row]].second;
            at = n_types > 1 && second && pos >= second;
        }
        from = w + static_cast<size_t>(at) * n;
    }
    __device__ __forceinline__ const float *input(uint32_t) const
    {
        return from;
    }
    __device__ __forceinline__ const float *second(uint32_t) const
    {
        return from;
    }
    __device__ __forceinline__ float of(float a, float, float c) const
    {
        return c + a;
    }
};
} // namespace

void cuda_add_position(const struct cuda_at *at, struct cuda_buf out, const float *w, uint32_t n)
{
    map_rows(at, cuda_rows_bound(at), NULL, out, n, add_table_row{w, n, 0, NULL});
}

void cuda_add_type(
    const struct cuda_at *at, struct cuda_buf out, const float *w, uint32_t n, uint32_t n_types)
{
    map_rows(at, cuda_rows_bound(at), NULL, out, n, add_table_row{w, n, n_types, NULL});
}

void cuda_gated(const struct cuda_at *at, const struct cuda_gated *op)
{
    const uint32_t rows = op->n_places ? op->most_places : cuda_rows_bound(at);
    map_rows(at, rows, op->n_places, op->out, op->n, gate_values{*op, 1.0f});
}

void cuda_unary(const struct cuda_at *at, const struct cuda_unary *op)
{
    const uint32_t rows = op->n_places ? op->most_places : cuda_rows_bound(at);
    map_rows(at, rows, op->n_places, op->buf, op->n, unary_value_of(*op));
}

namespace
{
struct clamp_value : in_place {
    float bound;
    __device__ __forceinline__ float of(float x, float, float) const
    {
        return bounded(x, bound);
    }
};

struct mul_values : in_place {
    enum { two = 1 };
    const float *w;
    __device__ __forceinline__ const float *second(uint32_t) const
    {
        return w;
    }
    __device__ __forceinline__ float of(float a, float b, float) const
    {
        return a * b;
    }
};
} // namespace

void cuda_clamp(const struct cuda_at *at, struct cuda_buf buf, uint32_t n, float bound)
{
    clamp_value op;
    op.buf = buf;
    op.bound = bound;
    map_rows(at, cuda_rows_bound(at), NULL, buf, n, op);
}

void cuda_mul(
    const struct cuda_at *at, struct cuda_buf in, struct cuda_buf out, const float *w, uint32_t n)
{
    mul_values op;
    op.buf = in;
    op.w = w;
    map_rows(at, cuda_rows_bound(at), NULL, out, n, op);
}

namespace
{
struct cap_value : in_place {
    float scale, cap;
    __device__ __forceinline__ float of(float x, float, float) const
    {
        return tanh_capped(x * scale, cap);
    }
};
} // namespace

void cuda_tanh_cap(
    const struct cuda_at *at, struct cuda_buf buf, uint32_t n, float scale, float cap)
{
    cap_value op;
    op.buf = buf;
    op.scale = scale;
    op.cap = cap;
    map_rows(at, cuda_rows_bound(at), NULL, buf, n, op);
}

void cuda_add(const struct cuda_at *at, const struct cuda_add *op)
{
    map_rows(at, cuda_rows_bound(at), NULL, op->out, op->n, add_scaled_of(*op));
}
