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
enum { SILU, GELU, CLAMPED, SIGMOID, PLAIN, SILU_CAPPED, SILU_BOUNDED, SITU };
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

static __device__ __forceinline__ float4 all(float x)
{
    return make_float4(x, x, x, x);
}

namespace
{
/* A row as threads have it: number t of `threads` has the fours at 4t, 4 (t + threads), ...; each
 * calls f(j, i) of the j-th of them, which is at i. Nobody else touches them, so what is put here
 * can be taken by what is done next without a barrier. */
struct row_in_memory {
    uint32_t t, threads;
    template <class F> __device__ __forceinline__ void each(uint32_t n, F f) const
    {
        for (uint32_t i = 4 * t; i < n; i += 4 * threads)
            f(0u, i);
    }
    /* As a block's; w[n] will be a weight. */
    __device__ __forceinline__ void begin(const float *, uint32_t)
    {
        t = threadIdx.x;
        threads = blockDim.x;
    }
    /* x[n] is what will be taken. */
    __device__ __forceinline__ void bring(const float *, uint32_t) const
    {
    }
    __device__ __forceinline__ float4 take(const float *x, uint32_t, uint32_t i, uint32_t n) const
    {
        return load4(x, i, n);
    }
    __device__ __forceinline__ float4 weight(const float *w, uint32_t, uint32_t i, uint32_t n) const
    {
        return load4(w, i, n);
    }
    __device__ __forceinline__ void put(float *x, uint32_t, uint32_t i, uint32_t n, float4 v) const
    {
        store4(x, i, n, v);
    }
    /* All of x[n] has been put. */
    __device__ __forceinline__ void is_put(const float *, uint32_t) const
    {
    }
};

/* The same by a block, each thread's N fours in registers: what was put or brought last is taken
 * from there, and so is a weight that was fetched early (before cuda_wait_before). */
template <int N> struct row_in_registers {
    enum { FETCHES = N <= 2 }; /* else there are too few registers */
    float4 held[N], early[N];
    const float *held_of, *early_of; /* NULL: nothing's */
    uint32_t n_held;
    template <class F> __device__ __forceinline__ void each(uint32_t n, F f) const
    {
#pragma unroll
        for (uint32_t j = 0; j < N; j++) {
            const uint32_t i = 4 * (threadIdx.x + j * blockDim.x);
            if (i < n)
                f(j, i);
        }
    }
    __device__ __forceinline__ void begin(const float *w, uint32_t n)
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            held[j] = all(0.0f);
        held_of = NULL;
        n_held = 0;
        early_of = FETCHES ? w : NULL;
        if (early_of)
            each(n, [&](uint32_t j, uint32_t i) { early[j] = load4(w, i, n); });
    }
    __device__ __forceinline__ bool holds(const float *x, uint32_t n) const
    {
        return held_of == x && n_held == n;
    }
    __device__ __forceinline__ void bring(const float *x, uint32_t n)
    {
        if (!holds(x, n))
            each(n, [&](uint32_t j, uint32_t i) { held[j] = load4(x, i, n); });
        is_put(x, n);
    }
    __device__ __forceinline__ float4 take(const float *, uint32_t j, uint32_t, uint32_t) const
    {
        return held[j];
    }
    __device__ __forceinline__ float4 weight(const float *w,
                                             uint32_t j,
                                             uint32_t i,
                                             uint32_t n) const
    {
        return FETCHES && w == early_of ? early[j] : load4(w, i, n);
    }
    __device__ __forceinline__ void put(float *x, uint32_t j, uint32_t i, uint32_t n, float4 v)
    {
        store4(x, i, n, v);
        held[j] = within4(v, i, n);
    }
    __device__ __forceinline__ void is_put(const float *x, uint32_t n)
    {
        held_of = x;
        n_held = n;
    }
};
} // namespace

/* How many fours of n values a thread of so many has. */
static inline uint32_t row_fours(uint32_t n, uint32_t threads)
{
    return (n + 4 * threads - 1) / (4 * threads);
}

/* --- norms --- */

/* Four squares onto a sum, in order. */
static __device__ __forceinline__ float add_squares(float4 v, float sum)
{
    sum = fmaf(v.x, v.x, sum);
    sum = fmaf(v.y, v.y, sum);
    sum = fmaf(v.z, v.z, sum);
    return fmaf(v.w, v.w, sum);
}

static __device__ __forceinline__ float4 scaled(float4 v, float scale, float4 w)
{
    return make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

/* sum: of squares of n values. */
static __device__ __forceinline__ float norm_scale(float sum, uint32_t n, float eps, float size)
{
    return size / sqrtf(sum / static_cast<float>(n) + eps);
}

/* sum: what adds over the row's threads. */
template <class Row, class Sum>
static __device__ __forceinline__ void norm_values(
    Row &r, const float *x, float *out, const float *w, uint32_t n, float eps, float size, Sum sum)
{
    float part = 0.0f;
    r.bring(x, n);
    r.each(n, [&](uint32_t j, uint32_t i) { part = add_squares(r.take(x, j, i, n), part); });
    const float scale = norm_scale(sum(part), n, eps, size);
    r.each(n, [&](uint32_t j, uint32_t i) {
        r.put(
            out, j, i, n, scaled(r.take(x, j, i, n), scale, w ? r.weight(w, j, i, n) : all(1.0f)));
    });
    r.is_put(out, n);
}

namespace
{
/* part: [2][WARP] of shared memory; sums take turns, so that one's barrier is enough for the reads
 * of the one before the last. */
struct sums_of_block {
    float *part;
    uint32_t turn;
    __device__ __forceinline__ float operator()(float x)
    {
        turn ^= 1;
        return block_sum_in(x, part + turn * WARP);
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

/* Row `from` to row `row`, of one head, by a block. */
template <class Row>
static __device__ __forceinline__ void norm_row(
    Row &r, const struct cuda_norm &op, uint32_t from, uint32_t row, sums_of_block &sums)
{
    const float *x = op.in.p + from * op.in.stride;
    float *out = op.out.p + row * op.out.stride;
    const uint32_t n = op.n;
    if (op.w || op.bare) {
        norm_values(r, x, out, op.w, n, op.eps, op.size, [&](float v) { return sums(v); });
        return;
    }
    r.bring(x, n);
    r.each(n, [&](uint32_t j, uint32_t i) { r.put(out, j, i, n, r.take(x, j, i, n)); });
    r.is_put(out, n);
}

/* The mean first, then squares of what is left, so that a large mean costs no digits. */
template <class Row>
static __device__ __forceinline__ void layer_norm_row(
    Row &r, const struct cuda_layer_norm &op, uint32_t from, uint32_t row, sums_of_block &sums)
{
    const uint32_t n = op.n;
    const float *x = op.in.p + from * op.in.stride;
    float *out = op.out.p + row * op.out.stride;
    float sum = 0.0f;
    r.bring(x, n);
    r.each(n, [&](uint32_t j, uint32_t i) {
        const float4 v = r.take(x, j, i, n); /* zeros behind the end */
        sum = sum + v.x + v.y + v.z + v.w;
    });
    const float mean = sums(sum) / static_cast<float>(n);
    sum = 0.0f;
    r.each(n, [&](uint32_t j, uint32_t i) {
        const float4 v = r.take(x, j, i, n);
        sum = add_squares(make_float4(v.x - mean,
                                      i + 1 < n ? v.y - mean : 0.0f,
                                      i + 2 < n ? v.z - mean : 0.0f,
                                      i + 3 < n ? v.w - mean : 0.0f),
                          sum);
    });
    const float scale = 1.0f / sqrtf(sums(sum) / static_cast<float>(n) + op.eps);
    r.each(n, [&](uint32_t j, uint32_t i) {
        const float4 v = r.take(x, j, i, n), w = op.w ? r.weight(op.w, j, i, n) : all(1.0f);
        const float4 b = op.bias ? load4(op.bias, i, n) : all(0.0f);
        r.put(out,
              j,
              i,
              n,
              make_float4(fmaf((v.x - mean) * scale, w.x, b.x),
                          fmaf((v.y - mean) * scale, w.y, b.y),
                          fmaf((v.z - mean) * scale, w.z, b.z),
                          fmaf((v.w - mean) * scale, w.w, b.w)));
    });
    r.is_put(out, n);
}

/* --- maps ---
 *
 * An Op says where a row's input lies and what becomes of a value: of(a, b, c) with a of the input,
 * b of the second input where `two` is set, c of the output as it was where `adds` is. */

/* After op.begin(step, row). */
template <class Op>
static __device__ __forceinline__ float4 map_four(const Op &op, float4 a, float4 b, float4 c)
{
    return make_float4(
        op.of(a.x, b.x, c.x), op.of(a.y, b.y, c.y), op.of(a.z, b.z, c.z), op.of(a.w, b.w, c.w));
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

/* cap tanh(x / cap); cap 0: x. */
__device__ __forceinline__ float tanh_capped(float x, float cap)
{
    return cap > 0.0f ? cap * tanhf(x / cap) : x;
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
        if (g.kind == SITU)
            return tanh_capped(x, g.scale) * (tanh_capped(u, g.cap) / one_and_exp(-x));
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
