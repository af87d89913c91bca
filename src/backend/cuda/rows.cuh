/* What becomes of a row: norms and maps, for a kernel an op (rows.cu) and for one that does several
 * of them in turn (rows_pack.cu). The bits are the same, as the text is, and as what rounds is
 * written out where a compiler could fuse it in one kernel and not in the other.
 *
 * A thread has values 4t .. 4t + 3, then those 4 * threads further on; how many threads a sum has
 * follows from n alone (sum_threads). */
#ifndef WEIR_BACKEND_CUDA_ROWS_CUH
#define WEIR_BACKEND_CUDA_ROWS_CUH

#include "backend/cuda/device.cuh"

/* As enum gate_kind (model.h). */
enum { SILU, GELU, CLAMPED, SIGMOID, PLAIN, SILU_CAPPED, SILU_BOUNDED };
enum {
    UNARY_NONE,
    UNARY_GELU,
    UNARY_GELU_TANH,
    UNARY_RELU_SQUARE,
    UNARY_RELU,
    UNARY_SIGMOID,
    UNARY_SOFTPLUS,
    UNARY_EXP,
    UNARY_XIELU
};

namespace
{
/* Where four values at i go: to memory, or there with a look at them. */
struct put_values {
    __device__ __forceinline__ void operator()(float *x, uint32_t i, uint32_t n, float4 v) const
    {
        store4(x, i, n, v);
    }
};

/* The largest |v| that is finite, of those that this thread put: what packing scales a row by. */
struct put_and_look {
    float largest;
    __device__ __forceinline__ void look(float v)
    {
        v = fabsf(v);
        largest = v > largest && !isinf(v) ? v : largest;
    }
    __device__ __forceinline__ void operator()(float *x, uint32_t i, uint32_t n, float4 v)
    {
        store4(x, i, n, v);
        look(v.x);
        look(i + 1 < n ? v.y : 0.0f);
        look(i + 2 < n ? v.z : 0.0f);
        look(i + 3 < n ? v.w : 0.0f);
    }
};
} // namespace

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
template <class Sum, class Put>
static __device__ __forceinline__ void norm_values(const float *x,
                                                   float *out,
                                                   const float *w,
                                                   uint32_t n,
                                                   float eps,
                                                   float size,
                                                   uint32_t t,
                                                   uint32_t threads,
                                                   Sum sum,
                                                   Put &put)
{
    float part = 0.0f;
    for (uint32_t i = 4 * t; i < n; i += 4 * threads)
        part = add_squares(load4(x, i, n), part);
    const float scale = size / sqrtf(sum(part) / static_cast<float>(n) + eps);
    for (uint32_t i = 4 * t; i < n; i += 4 * threads)
        put(out, i, n, scaled(load4(x, i, n), scale, w ? load4(w, i, n) : all(1.0f)));
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

/* Row `from` to row `row`, of one head, by a block. part: [WARP] of shared memory. */
template <class Put>
static __device__ __forceinline__ void norm_row(
    const struct cuda_norm &op, uint32_t from, uint32_t row, float *part, Put &put)
{
    const float *x = op.in.p + from * op.in.stride;
    float *out = op.out.p + row * op.out.stride;
    if (op.w || op.bare) {
        norm_values(
            x, out, op.w, op.n, op.eps, op.size, threadIdx.x, blockDim.x, sum_of_block{part}, put);
        return;
    }
    for (uint32_t i = 4 * threadIdx.x; i < op.n; i += 4 * blockDim.x)
        put(out, i, op.n, load4(x, i, op.n));
}

/* The mean first, then squares of what is left, so that a large mean costs no digits. */
template <class Put>
static __device__ __forceinline__ void layer_norm_row(
    const struct cuda_layer_norm &op, uint32_t from, uint32_t row, float *part, Put &put)
{
    const uint32_t n = op.n, stride = 4 * blockDim.x;
    const float *x = op.in.p + from * op.in.stride;
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
        put(out,
            i,
            n,
            make_float4(fmaf((v.x - mean) * scale, w.x, b.x),
                        fmaf((v.y - mean) * scale, w.y, b.y),
                        fmaf((v.z - mean) * scale, w.z, b.z),
                        fmaf((v.w - mean) * scale, w.w, b.w)));
    }
}

/* --- maps ---
 *
 * An Op says where a row's input lies and what becomes of a value: of(a, b, c) with a of the input,
 * b of the second input where `two` is set, c of the output as it was where `adds` is. */

/* Values i .. i + 3 of a row that goes to `to`, after op.begin(step, row). */
template <class Op, class Put>
static __device__ __forceinline__ void map_four(
    const Op &op, uint32_t row, float *to, uint32_t i, uint32_t n, Put &put)
{
    const float4 a = load4(op.input(row), i, n);
    const float4 b = Op::two ? load4(op.second(row), i, n) : a;
    const float4 c = Op::adds ? load4(to, i, n) : a;
    put(to,
        i,
        n,
        make_float4(op.of(a.x, b.x, c.x),
                    op.of(a.y, b.y, c.y),
                    op.of(a.z, b.z, c.z),
                    op.of(a.w, b.w, c.w)));
}

/* Within -bound .. bound; NaN stays NaN, of which fminf and fmaxf make a bound. */
static __device__ __forceinline__ float bounded(float x, float bound)
{
    return x > bound ? bound : x < -bound ? -bound : x;
}

namespace
{
/* 1 + e^x, rounded once e^x is: a compiler may make one multiply-add of the sum and expf's last
 * product. */
__device__ __forceinline__ float one_and_exp(float x)
{
    return __fadd_rn(1.0f, expf(x));
}

/* gelu(g) = g / 2 (1 + tanh y), y = sqrt(2 / pi) (g + 0.044715 g^3); 1 + tanh y is
 * 2 / (1 + e^-2y), in which nothing cancels. */
__device__ __forceinline__ float gelu_tanh(float g)
{
    return g / one_and_exp(fmaf(g * g * g, 0.044715f, g) * -1.5957691216057308f);
}

struct gate_values {
    enum { two = 1, adds = 0 };
    struct cuda_gated g;
    float weight;
    __device__ __forceinline__ void begin(const cuda_step &, uint32_t row)
    {
        weight = g.weights ? g.weights[row] : 1.0f;
    }
    __device__ __forceinline__ const float *input(uint32_t row) const
    {
        return g.in.p + row * g.in.stride;
    }
    __device__ __forceinline__ const float *second(uint32_t row) const
    {
        return g.in2.p + row * g.in2.stride;
    }
    __device__ __forceinline__ float of(float x, float u, float) const
    {
        x = __fmul_rn(x, weight);
        u = __fmul_rn(u, weight);
        if (g.kind == SILU)
            return x / one_and_exp(-x) * u;
        if (g.kind == GELU)
            return gelu_tanh(x) * u;
        if (g.kind == SIGMOID)
            return u / one_and_exp(-x);
        if (g.kind == PLAIN)
            return x * u;
        if (g.kind == SILU_CAPPED) {
            x = x / one_and_exp(-x);
            return (x > g.cap ? g.cap : x) * bounded(u, g.cap);
        }
        if (g.kind == SILU_BOUNDED) {
            x = x > g.cap ? g.cap : x;
            return x / one_and_exp(-x) * bounded(u, g.cap);
        }
        x = x > 7.0f ? 7.0f : x;
        u = bounded(u, 7.0f);
        return x / one_and_exp(x * -1.702f) * (u + 1.0f);
    }
};

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

/* x Phi(x) = x / 2 erfc(-x / sqrt 2): exact in both tails; its tanh form as the gate's; xIELU;
 * 1 / (1 + e^-x); log(1 + e^x), of e^-|x| so that nothing overflows; e^x; what is above 0, or
 * its square. */
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
                x > 0.0f ? u.positive * x * x : u.negative * __fsub_rn(expm1f(fminf(x, u.eps)), x);
            return fmaf(x, u.beta, bent);
        }
        if (u.kind == UNARY_SIGMOID)
            return 1.0f / one_and_exp(-x);
        if (u.kind == UNARY_SOFTPLUS)
            return __fadd_rn(x <= 0.0f ? 0.0f : x, log1pf(expf(-fabsf(x))));
        if (u.kind == UNARY_EXP)
            return expf(x);
        x = x <= 0.0f ? 0.0f : x;
        return u.kind == UNARY_RELU ? x : x * x;
    }
};

struct add_scaled : in_place {
    enum { adds = 1 };
    float scale;
    const float *gate; /* or NULL */
    size_t gate_stride;
    __device__ __forceinline__ void begin(const cuda_step &, uint32_t row)
    {
        if (gate)
            scale = 1.0f / one_and_exp(-gate[row * gate_stride]);
    }
    __device__ __forceinline__ float of(float a, float, float c) const
    {
        return fmaf(a, scale, c);
    }
};
} // namespace

static __host__ __device__ __forceinline__ unary_value unary_value_of(const struct cuda_unary &op)
{
    unary_value v;
    v.buf = op.buf;
    v.u = op;
    return v;
}

static __host__ __device__ __forceinline__ add_scaled add_scaled_of(const struct cuda_add &op)
{
    add_scaled v;
    v.buf = op.in;
    v.scale = op.scale;
    v.gate = op.gate.p;
    v.gate_stride = op.gate.stride;
    return v;
}

#endif
