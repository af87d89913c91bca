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

#include "backend/cuda/device.cuh"

enum { MAP_THREADS = 128, HEAD_WARPS = 8 };

/* As enum gate_kind (model.h). */
enum { SILU, GELU, CLAMPED, SIGMOID, PLAIN };
enum { UNARY_NONE, UNARY_GELU, UNARY_GELU_TANH, UNARY_RELU_SQUARE, UNARY_XIELU };

/* --- norms --- */

/* Four squares onto a sum, in order. */
static __device__ __forceinline__ float add_squares(float4 v, float sum)
{
    sum = fmaf(v.x, v.x, sum);
    sum = fmaf(v.y, v.y, sum);
    sum = fmaf(v.z, v.z, sum);
    return fmaf(v.w, v.w, sum);
}

static __device__ __forceinline__ float4 all(float x)
{
    return make_float4(x, x, x, x);
}

static __device__ __forceinline__ float4 scaled(float4 v, float scale, float4 w)
{
    return make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

/* Norm by `threads` threads of which this is number `t`; sum: what adds over them. */
template <class Sum>
static __device__ void norm_values(const float *x,
                                   float *out,
                                   const float *w,
                                   uint32_t n,
                                   float eps,
                                   float size,
                                   uint32_t t,
                                   uint32_t threads,
                                   Sum sum)
{
    float part = 0.0f;
    for (uint32_t i = 4 * t; i < n; i += 4 * threads)
        part = add_squares(load4(x, i, n), part);
    const float scale = size / sqrtf(sum(part) / static_cast<float>(n) + eps);
    for (uint32_t i = 4 * t; i < n; i += 4 * threads)
        store4(out, i, n, scaled(load4(x, i, n), scale, w ? load4(w, i, n) : all(1.0f)));
}

namespace
{
struct sum_of_block {
    float *part;
    __device__ __forceinline__ float operator()(float x) const
    {
        return block_sum(x, part);
    }
};

struct sum_of_warp {
    __device__ __forceinline__ float operator()(float x) const
    {
        return warp_sum(x);
    }
};
} // namespace

static __device__ __forceinline__ uint32_t gathered(const cuda_step &step, int rows, uint32_t row)
{
    return rows == CUDA_ROWS_LOGITS   ? step.logit_rows[row]
           : rows == CUDA_ROWS_HIDDEN ? step.hidden_rows[row]
                                      : row;
}

/* grid: [rows]. */
static __global__ void norm_kernel(cuda_step step, int rows, struct cuda_norm op)
{
    __shared__ float part[WARP];
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    const float *x = op.in.p + (op.gather ? gathered(step, rows, row) : row) * op.in.stride;
    float *out = op.out.p + row * op.out.stride;
    if (op.w || op.bare) {
        norm_values(
            x, out, op.w, op.n, op.eps, op.size, threadIdx.x, blockDim.x, sum_of_block{part});
        return;
    }
    for (uint32_t i = 4 * threadIdx.x; i < op.n; i += 4 * blockDim.x)
        store4(out, i, op.n, load4(x, i, op.n));
}

/* grid: [rows][heads / HEAD_WARPS]; a warp a head. */
static __global__ void head_norm_kernel(cuda_step step, int rows, struct cuda_norm op)
{
    const uint32_t row = blockIdx.x, head = blockIdx.y * HEAD_WARPS + threadIdx.x / WARP;
    if (row >= rows_of(step, rows) || head >= op.heads)
        return;
    const uint32_t from = op.gather ? gathered(step, rows, row) : row;
    norm_values(op.in.p + from * op.in.stride + static_cast<size_t>(head) * op.n,
                op.out.p + row * op.out.stride + static_cast<size_t>(head) * op.n,
                op.w ? op.w + static_cast<size_t>(head) * op.w_step : NULL,
                op.n,
                op.eps,
                op.size,
                threadIdx.x % WARP,
                WARP,
                sum_of_warp{});
}

void cuda_norm(const struct cuda_at *at, const struct cuda_norm *op)
{
    const uint32_t rows = rows_bound(at);
    if (rows == 0)
        return;
    if (op->heads > 1 && (op->w || op->bare)) {
        const dim3 grid(rows, (op->heads + HEAD_WARPS - 1) / HEAD_WARPS);
        CUDA_LAUNCH(
            head_norm_kernel, grid, HEAD_WARPS * WARP, 0, at->stream, at->step, at->rows, *op);
        return;
    }
    struct cuda_norm all = *op; /* a copy of heads is one of the row */
    all.n = op->n * (op->heads > 1 ? op->heads : 1);
    CUDA_LAUNCH(norm_kernel, rows, sum_threads(all.n), 0, at->stream, at->step, at->rows, all);
}

/* The mean first, then squares of what is left, so that a large mean costs no digits. */
static __global__ void layer_norm_kernel(cuda_step step, int rows, struct cuda_layer_norm op)
{
    __shared__ float part[WARP];
    const uint32_t row = blockIdx.x, n = op.n, stride = 4 * blockDim.x;
    if (row >= rows_of(step, rows))
        return;
    const float *x = op.in.p + (op.gather ? gathered(step, rows, row) : row) * op.in.stride;
    float *out = op.out.p + row * op.out.stride;
    float sum = 0.0f;
    for (uint32_t i = 4 * threadIdx.x; i < n; i += stride) {
        const float4 v = load4(x, i, n); /* zeros behind the end */
        sum = sum + v.x + v.y + v.z + v.w;
    }
    const float mean = block_sum(sum, part) / static_cast<float>(n);
    sum = 0.0f;
    for (uint32_t i = 4 * threadIdx.x; i < n; i += stride) {
        const float4 v = load4(x, i, n);
        sum = add_squares(make_float4(v.x - mean,
                                      i + 1 < n ? v.y - mean : 0.0f,
                                      i + 2 < n ? v.z - mean : 0.0f,
                                      i + 3 < n ? v.w - mean : 0.0f),
                          sum);
    }
    const float scale = 1.0f / sqrtf(block_sum(sum, part) / static_cast<float>(n) + op.eps);
    for (uint32_t i = 4 * threadIdx.x; i < n; i += stride) {
        const float4 v = load4(x, i, n), w = op.w ? load4(op.w, i, n) : all(1.0f);
        const float4 b = op.bias ? load4(op.bias, i, n) : all(0.0f);
        store4(out,
               i,
               n,
               make_float4(fmaf((v.x - mean) * scale, w.x, b.x),
                           fmaf((v.y - mean) * scale, w.y, b.y),
                           fmaf((v.z - mean) * scale, w.z, b.z),
                           fmaf((v.w - mean) * scale, w.w, b.w)));
    }
}

void cuda_layer_norm(const struct cuda_at *at, const struct cuda_layer_norm *op)
{
    if (rows_bound(at) == 0)
        return;
    CUDA_LAUNCH(layer_norm_kernel,
                rows_bound(at),
                sum_threads(op->n),
                0,
                at->stream,
                at->step,
                at->rows,
                *op);
}

/* A warp a head: lane l has values l, l + 32, ... grid: [rows][heads / HEAD_WARPS]. */
static __global__ void head_layer_norm_kernel(
    cuda_step step, int rows, cuda_buf buf, uint32_t heads, uint32_t n, float eps, const float *w)
{
    const uint32_t row = blockIdx.x, head = blockIdx.y * HEAD_WARPS + threadIdx.x / WARP;
    const uint32_t lane = threadIdx.x % WARP;
    if (row >= rows_of(step, rows) || head >= heads)
        return;
    float *x = buf.p + row * buf.stride + static_cast<size_t>(head) * n;
    w += static_cast<size_t>(head) * n;
    float sum = 0.0f;
    for (uint32_t i = lane; i < n; i += WARP)
        sum = sum + x[i];
    const float mean = warp_sum(sum) / static_cast<float>(n);
    sum = 0.0f;
    for (uint32_t i = lane; i < n; i += WARP)
        sum = fmaf(x[i] - mean, x[i] - mean, sum);
    const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(n) + eps);
    for (uint32_t i = lane; i < n; i += WARP)
        x[i] = (x[i] - mean) * scale * w[i];
}

void cuda_head_layer_norm(const struct cuda_at *at,
                          struct cuda_buf buf,
                          uint32_t heads,
                          uint32_t n,
                          float eps,
                          const float *w)
{
    const dim3 grid(rows_bound(at), (heads + HEAD_WARPS - 1) / HEAD_WARPS);
    if (rows_bound(at) == 0)
        return;
    CUDA_LAUNCH(head_layer_norm_kernel,
                grid,
                HEAD_WARPS * WARP,
                0,
                at->stream,
                at->step,
                at->rows,
                buf,
                heads,
                n,
                eps,
                w);
}

/* grid: [rows]. */
static __global__ void head_copy_kernel(cuda_step step, int rows, struct cuda_head_copy op)
{
    const uint32_t row = blockIdx.x;
    if (row >= rows_of(step, rows))
        return;
    const float *in = op.in.p + row * op.in.stride + (op.front ? 0 : op.in_step - op.n);
    float *out = op.out.p + row * op.out.stride + op.out_step - op.n;
    for (uint32_t i = threadIdx.x; i < op.heads * op.n; i += blockDim.x)
        out[i / op.n * op.out_step + i % op.n] = in[i / op.n * op.in_step + i % op.n];
}

void cuda_head_copy(const struct cuda_at *at, const struct cuda_head_copy *op)
{
    if (rows_bound(at) > 0)
        CUDA_LAUNCH(head_copy_kernel, rows_bound(at), 256, 0, at->stream, at->step, at->rows, *op);
}

/* --- maps ---
 *
 * An Op says where a row's input lies and what becomes of a value: of(a, b, c) with a of the input,
 * b of the second input where `two` is set, c of the output as it was where `adds` is. */

template <class Op>
static __global__ void map_kernel(
    cuda_step step, int rows, const uint32_t *n_places, cuda_buf out, uint32_t n, Op op)
{
    const uint32_t row = blockIdx.x, i = 4 * (blockIdx.y * MAP_THREADS + threadIdx.x);
    if (row >= (n_places ? *n_places : rows_of(step, rows)) || i >= n)
        return;
    op.begin(step, row);
    float *to = out.p + row * out.stride;
    const float4 a = load4(op.input(row), i, n);
    const float4 b = Op::two ? load4(op.second(row), i, n) : a;
    const float4 c = Op::adds ? load4(to, i, n) : a;
    store4(to,
           i,
           n,
           make_float4(op.of(a.x, b.x, c.x),
                       op.of(a.y, b.y, c.y),
                       op.of(a.z, b.z, c.z),
                       op.of(a.w, b.w, c.w)));
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
    CUDA_LAUNCH(
        map_kernel<Op>, grid, MAP_THREADS, 0, at->stream, at->step, at->rows, n_places, out, n, op);
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
    map_rows(at, rows_bound(at), NULL, out, n, add_table_row{w, n, 0, NULL});
}

void cuda_add_type(
    const struct cuda_at *at, struct cuda_buf out, const float *w, uint32_t n, uint32_t n_types)
{
    map_rows(at, rows_bound(at), NULL, out, n, add_table_row{w, n, n_types, NULL});
}

/* Within -bound .. bound; NaN stays NaN, of which fminf and fmaxf make a bound. */
static __device__ __forceinline__ float bounded(float x, float bound)
{
    return x > bound ? bound : x < -bound ? -bound : x;
}

namespace
{
/* gelu(g) = g / 2 (1 + tanh y), y = sqrt(2 / pi) (g + 0.044715 g^3); 1 + tanh y is
 * 2 / (1 + e^-2y), in which nothing cancels. */
__device__ __forceinline__ float gelu_tanh(float g)
{
    return g / (1.0f + expf(fmaf(g * g * g, 0.044715f, g) * -1.5957691216057308f));
}

struct gate_values {
    enum { two = 1, adds = 0 };
    int kind;
    cuda_buf in, in2;
    const float *weights; /* of places, or NULL */
    float weight;
    __device__ __forceinline__ void begin(const cuda_step &, uint32_t row)
    {
        weight = weights ? weights[row] : 1.0f;
    }
    __device__ __forceinline__ const float *input(uint32_t row) const
    {
        return in.p + row * in.stride;
    }
    __device__ __forceinline__ const float *second(uint32_t row) const
    {
        return in2.p + row * in2.stride;
    }
    __device__ __forceinline__ float of(float g, float u, float) const
    {
        g = __fmul_rn(g, weight);
        u = __fmul_rn(u, weight);
        if (kind == SILU)
            return g / (1.0f + expf(-g)) * u;
        if (kind == GELU)
            return gelu_tanh(g) * u;
        if (kind == SIGMOID)
            return u / (1.0f + expf(-g));
        if (kind == PLAIN)
            return g * u;
        g = g > 7.0f ? 7.0f : g;
        u = bounded(u, 7.0f);
        return g / (1.0f + expf(g * -1.702f)) * (u + 1.0f);
    }
};
} // namespace

void cuda_gated(const struct cuda_at *at,
                int gate,
                struct cuda_buf in,
                struct cuda_buf in2,
                struct cuda_buf out,
                uint32_t n,
                const uint32_t *n_places,
                uint32_t most_places,
                const float *weights)
{
    const uint32_t rows = n_places ? most_places : rows_bound(at);
    map_rows(at, rows, n_places, out, n, gate_values{gate, in, in2, weights, 1.0f});
}

namespace
{
/* Of one row, mostly in place: what a value becomes depends on itself alone. */
struct in_place {
    enum { two = 0, adds = 0 };
    cuda_buf buf;
    __device__ __forceinline__ void begin(const cuda_step &, uint32_t)
    {
    }
    __device__ __forceinline__ const float *input(uint32_t row) const
    {
        return buf.p + row * buf.stride;
    }
    __device__ __forceinline__ const float *second(uint32_t row) const
    {
        return input(row);
    }
};

/* x Phi(x) = x / 2 erfc(-x / sqrt 2): exact in both tails; its tanh form as the gate's; xIELU; or
 * the square of what is above 0. */
struct unary_value : in_place {
    struct cuda_unary u;
    __device__ __forceinline__ float of(float x, float, float) const
    {
        if (u.kind == UNARY_GELU)
            return 0.5f * x * erfcf(x * -0.70710678118654752f);
        if (u.kind == UNARY_GELU_TANH)
            return gelu_tanh(x);
        if (u.kind == UNARY_XIELU) {
            const float bent =
                x > 0.0f ? u.positive * x * x : u.negative * (expm1f(fminf(x, u.eps)) - x);
            return fmaf(x, u.beta, bent);
        }
        x = x <= 0.0f ? 0.0f : x;
        return x * x;
    }
};
} // namespace

void cuda_unary(const struct cuda_at *at,
                const struct cuda_unary *unary,
                struct cuda_buf buf,
                uint32_t n,
                const uint32_t *n_places,
                uint32_t most_places)
{
    unary_value op;
    op.buf = buf;
    op.u = *unary;
    map_rows(at, n_places ? most_places : rows_bound(at), n_places, buf, n, op);
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
    map_rows(at, rows_bound(at), NULL, buf, n, op);
}

void cuda_mul(
    const struct cuda_at *at, struct cuda_buf in, struct cuda_buf out, const float *w, uint32_t n)
{
    mul_values op;
    op.buf = in;
    op.w = w;
    map_rows(at, rows_bound(at), NULL, out, n, op);
}

namespace
{
struct cap_value : in_place {
    float scale, cap;
    __device__ __forceinline__ float of(float x, float, float) const
    {
        x *= scale;
        return cap > 0.0f ? cap * tanhf(x / cap) : x;
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
    map_rows(at, rows_bound(at), NULL, buf, n, op);
}

namespace
{
struct add_scaled : in_place {
    enum { adds = 1 };
    float scale;
    const float *gate; /* or NULL */
    size_t gate_stride;
    __device__ __forceinline__ void begin(const cuda_step &, uint32_t row)
    {
        if (gate)
            scale = 1.0f / (1.0f + expf(-gate[row * gate_stride]));
    }
    __device__ __forceinline__ float of(float a, float, float c) const
    {
        return fmaf(a, scale, c);
    }
};
} // namespace

void cuda_add(const struct cuda_at *at,
              struct cuda_buf in,
              struct cuda_buf out,
              const struct cuda_buf *gate,
              uint32_t n,
              float scale)
{
    add_scaled op;
    op.buf = in;
    op.scale = scale;
    op.gate = gate ? gate->p : NULL;
    op.gate_stride = gate ? gate->stride : 0;
    map_rows(at, rows_bound(at), NULL, out, n, op);
}
