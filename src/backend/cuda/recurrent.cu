/* Recurrent layers, row after row.
 *
 *      convolution   y[r] = silu(b + sum over i of w[i] x[r - W + 1 + i])      a thread a channel
 *      delta rule    S = f S + k (v - f S^T k) b;   y = S^T q scale            lanes a column
 *                    (or f for each key)
 *      apart         S = f S + k v - b (S^T u);     y = S^T q
 *      scan, fixed   S = f S + k v b;               y = S^T q scale + skip v   of S
 *      selective     s[i] = e^(d a[i]) s[i] + k[i] d x;   y = s q + skip x     4 lanes a channel
 *
 * A thread of the convolution has its channel's last W - 1 rows in registers. It loads CONV_ROWS
 * rows before it computes the first, so that as many loads are under way; nothing is summed over
 * threads.
 *
 * Columns of a head's state have nothing to do with one another: a block has one head of one
 * sequence and 32 of its columns, 8 lanes each, in registers from the first row to the last.
 *
 *      keys of a column | 0..3 | 4..7 | .. | 28..31 | 32..35 | ..
 *      lane                0      1    ..      7        0
 *
 *      grid   [sequences][heads][columns / 32]
 *      rows   | tile 0: q, k, v, rates in shared memory | tile 1 | ..      ROWS of them each
 *
 * A sum over keys runs in four chains a lane, one for each of the four values of a load, in order;
 * then the chains are added, then the lanes in a butterfly: the order is one of n_key alone. What
 * a row does to a state are the same operations wherever a chunk begins, and a state is stored as
 * it is in registers, so no bit knows of chunks, of the batch, or of which states were kept.
 *
 * A channel of the selective scan is such a column, whose keys each have a rate of their own; the
 * groups of keys are 16 wide, which is as many as models have.
 *
 * Operations of the delta rule: 7 a key and column of a row; bytes: the state once in and once out
 * for all rows of a sequence in the step. Bound on an H200, by estimate: decode by 4.8 TB/s of
 * states, from a few sequences of 32 heads on; a long chunk of one sequence by the latency of its
 * rows, some 300 cycles each, which the blocks of a multiprocessor hide from each other. */
#include "backend/cuda/recurrent.h"

#include "backend/cuda/device.cuh"

enum {
    CONV_THREADS = 64,
    CONV_ROWS = 8,
    RATE_THREADS = 128,
    LANES = 8, /* of a column */
    RECUR_THREADS = 256,
    COLUMNS = RECUR_THREADS / LANES, /* of a block */
    CHANNEL_LANES = 4,
    CHANNELS = RECUR_THREADS / CHANNEL_LANES,
    CHANNEL_ROWS = 16, /* of a tile */
};

/* --- states --- */

/* The states that a sequence's rows leave on their way. */
struct kept_states {
    const uint32_t *next; /* struct cuda_kept */
    uint32_t left;
    __device__ __forceinline__ kept_states(const cuda_step &step, const cuda_seq &seq)
        : next(step.tables + seq.kept), left(seq.n_kept)
    {
    }
    /* Is one kept behind the first n_rows rows? Then it is *state. */
    __device__ __forceinline__ bool take(uint32_t n_rows, uint32_t *state)
    {
        if (left == 0 || next[0] != n_rows)
            return false;
        *state = next[1];
        next += 2;
        left--;
        return true;
    }
};

static __device__ __forceinline__ float *state_at(const cuda_states &s, uint32_t state)
{
    return s.base + state * s.floats;
}

/* --- convolutions --- */

static __device__ __forceinline__ float silu(float x)
{
    return x / (1.0f + expf(-x));
}

/* The last W - 1 rows of a channel, the oldest first. */
template <int W> struct conv_rows {
    float row[W - 1];
    __device__ __forceinline__ void store(float *to, uint32_t stride) const
    {
#pragma unroll
        for (int i = 0; i < W - 1; i++)
            to[i * stride] = row[i];
    }
    __device__ __forceinline__ float pass(float x, const float *w, float bias)
    {
        float sum = bias;
#pragma unroll
        for (int i = 0; i < W - 1; i++)
            sum = __fmaf_rn(row[i], w[i], sum);
        sum = __fmaf_rn(x, w[W - 1], sum);
#pragma unroll
        for (int i = 0; i < W - 2; i++)
            row[i] = row[i + 1];
        row[W - 2] = x;
        return sum;
    }
};

/* grid: [sequences][channels / CONV_THREADS] */
template <int W> static __global__ void conv_kernel(cuda_step step, struct cuda_conv op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t c = blockIdx.y * CONV_THREADS + threadIdx.x;
    if (blockIdx.x >= step.counts->n_seqs || c >= op.n)
        return;
    const cuda_seq seq = step.seqs[blockIdx.x];
    const float bias = op.bias ? op.bias[c] : 0.0f;
    const uint32_t own = op.first + c, apart = op.step ? op.step : op.n;
    const float *from = seq.first_pos ? state_at(op.states, seq.state_from) + own : NULL;
    float *x = op.x.p + seq.first_row * op.x.stride + own;
    kept_states kept(step, seq);
    conv_rows<W> last;
    float w[W];
    uint32_t state;
#pragma unroll
    for (int i = 0; i < W; i++)
        w[i] = op.w[static_cast<size_t>(c) * W + i];
#pragma unroll
    for (int i = 0; i < W - 1; i++)
        last.row[i] = from ? from[static_cast<size_t>(i) * apart] : 0.0f;
    for (uint32_t done = 0; done < seq.n_rows; done += CONV_ROWS) {
        float in[CONV_ROWS];
#pragma unroll
        for (uint32_t r = 0; r < CONV_ROWS; r++)
            in[r] = done + r < seq.n_rows ? x[(done + r) * op.x.stride] : 0.0f;
#pragma unroll
        for (uint32_t r = 0; r < CONV_ROWS; r++) {
            if (done + r >= seq.n_rows)
                continue;
            const float sum = last.pass(in[r], w, bias);
            x[(done + r) * op.x.stride] = op.gated ? silu(sum) : sum;
            if (kept.take(done + r + 1, &state))
                last.store(state_at(op.states, state) + own, apart);
        }
    }
    last.store(state_at(op.states, seq.state_to) + own, apart);
}

template <int W> static void conv_launch(const struct cuda_at *at, const struct cuda_conv *op)
{
    const dim3 grid(at->bounds.seqs, (op->n + CONV_THREADS - 1) / CONV_THREADS);
    CUDA_LAUNCH_NEXT(conv_kernel<W>, grid, CONV_THREADS, 0, at->stream, at->step, *op);
}

void cuda_conv(const struct cuda_at *at, const struct cuda_conv *op)
{
    static void (*const launches[])(const struct cuda_at *,
                                    const struct cuda_conv *) = {conv_launch<2>,
                                                                 conv_launch<3>,
                                                                 conv_launch<4>,
                                                                 conv_launch<5>,
                                                                 conv_launch<6>,
                                                                 conv_launch<7>,
                                                                 conv_launch<8>};
    if (at->bounds.seqs > 0)
        launches[op->width - 2](at, op);
}

/* --- rates --- */

/* In double, as a rate is a power of numbers near 1 over a long text. grid: [rows][heads / 128] */
static __global__ void rates_kernel(cuda_step step, struct cuda_rates op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x, h = blockIdx.y * RATE_THREADS + threadIdx.x, per = op.per;
    if (row >= step.counts->n_rows || h >= op.n_head)
        return;
    float *rate = op.rate.p + row * op.rate.stride + h;
    float *beta = op.beta.p + row * op.beta.stride + h;
    const float *in = per ? op.in.p + row * op.in.stride + h / per * 2 * per + h % per : NULL;
    const double x = in ? in[per] : *rate, y = in ? in[0] : *beta;
    const double z = x + static_cast<double>(op.bias[h]), s = z > 20 ? z : log1p(exp(z));
    *rate = static_cast<float>(exp(s * static_cast<double>(op.a[h])));
    *beta = static_cast<float>(op.delta ? 1 / (1 + exp(-y)) : s);
}

void cuda_rates(const struct cuda_at *at, const struct cuda_rates *op)
{
    const dim3 grid(at->bounds.rows, (op->n_head + RATE_THREADS - 1) / RATE_THREADS);
    if (at->bounds.rows > 0)
        CUDA_LAUNCH_NEXT(rates_kernel, grid, RATE_THREADS, 0, at->stream, at->step, *op);
}

/* --- heads --- */

/* What heads forget by: one rate; one for each key; likewise, and what is taken out apart. */
enum recur_mode { ONE_RATE, EACH_RATE, APART };

/* What a block has of some rows. Keys behind n_key are zeros, in states too. */
template <int G, int MODE> struct recur_tile {
    enum { KEYS = 4 * LANES * G, ROWS = G <= 4 ? 16 : 64 / G };
    enum { RATES = MODE != ONE_RATE ? KEYS : 1, UNITS = MODE == APART ? KEYS : 4 };
    float k[ROWS][KEYS], q[ROWS][KEYS];
    float unit[MODE == APART ? ROWS : 1][UNITS], back[MODE == APART ? ROWS : 1][UNITS];
    float rate[ROWS][RATES];
    float v[ROWS][COLUMNS], out[ROWS][COLUMNS];
    float beta[ROWS];
};

/* Where a row has what the block reads. */
struct recur_places {
    const float *q, *k, *v, *rate, *beta, *unit;
    float *out;
    size_t k_stride, v_stride;
    uint32_t columns; /* that there are */
    __device__ __forceinline__ recur_places(const struct cuda_recur &op,
                                            const cuda_seq &seq,
                                            uint32_t head,
                                            uint32_t first)
    {
        const uint32_t keys = op.n_group * op.n_key, values = op.n_head * op.n_value;
        const uint32_t group = op.tiled ? head % op.n_group : head / (op.n_head / op.n_group);
        const uint32_t own = head * op.n_value + first, left = op.n_value - first;
        const float *mix = op.mix.p + seq.first_row * op.mix.stride;
        out = op.out.p + seq.first_row * op.out.stride + own;
        columns = left < COLUMNS ? left : uint32_t{COLUMNS};
        k_stride = v_stride = op.mix.stride;
        unit = NULL;
        if (op.fixed) {
            rate = op.fixed + head; /* of all rows */
            beta = rate + op.n_head;
            q = mix + head * (2 * op.n_key + op.n_value);
            k = q + op.n_key;
            v = k + op.n_key + first;
            return;
        }
        rate = op.rate.p + seq.first_row * op.rate.stride + (op.each ? head * op.n_key : head);
        beta = op.beta.p + seq.first_row * op.beta.stride + (op.apart ? head * op.n_key : head);
        if (op.apart) {
            q = mix + head * op.n_key;
            k = op.k.p + seq.first_row * op.k.stride + head * op.n_key;
            v = op.v.p + seq.first_row * op.v.stride + own;
            unit = op.unit.p + seq.first_row * op.unit.stride + head * op.n_key;
            k_stride = op.k.stride;
            v_stride = op.v.stride;
            return;
        }
        q = mix + (op.delta ? 0 : values + keys) + group * op.n_key;
        k = mix + (op.delta ? keys : values) + group * op.n_key;
        v = mix + (op.delta ? 2 * keys : 0) + own;
    }
};

/* n rows from `done` on, by all threads of the block. */
template <int G, int MODE>
static __device__ __forceinline__ void load_tile(recur_tile<G, MODE> *t,
                                                 const struct cuda_recur &op,
                                                 const recur_places &at,
                                                 uint32_t done,
                                                 uint32_t n)
{
    enum { KEYS = recur_tile<G, MODE>::KEYS, RATES = recur_tile<G, MODE>::RATES };
    for (uint32_t i = threadIdx.x; i < n * KEYS; i += RECUR_THREADS) {
        const uint32_t r = i / KEYS, key = i % KEYS;
        t->k[r][key] = key < op.n_key ? at.k[(done + r) * at.k_stride + key] : 0.0f;
        t->q[r][key] = key < op.n_key ? at.q[(done + r) * op.mix.stride + key] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; MODE == APART && i < n * KEYS; i += RECUR_THREADS) {
        const uint32_t r = i / KEYS, key = i % KEYS;
        t->unit[r][key] = key < op.n_key ? at.unit[(done + r) * op.unit.stride + key] : 0.0f;
        t->back[r][key] =
            key < op.n_key && !op.first ? at.beta[(done + r) * op.beta.stride + key] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < n * COLUMNS; i += RECUR_THREADS) {
        const uint32_t r = i / COLUMNS, c = i % COLUMNS;
        t->v[r][c] = c < at.columns ? at.v[(done + r) * at.v_stride + c] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < n * RATES; i += RECUR_THREADS) {
        const uint32_t r = i / RATES, key = i % RATES;
        t->rate[r][key] = key < op.n_key ? at.rate[(done + r) * op.rate.stride + key] : 0.0f;
    }
    if (MODE != APART && threadIdx.x < n)
        t->beta[threadIdx.x] = at.beta[(done + threadIdx.x) * op.beta.stride];
}

template <int G, int MODE>
static __device__ __forceinline__ void store_tile(const recur_tile<G, MODE> &t,
                                                  const struct cuda_recur &op,
                                                  const recur_places &at,
                                                  uint32_t done,
                                                  uint32_t n)
{
    for (uint32_t i = threadIdx.x; i < n * COLUMNS; i += RECUR_THREADS) {
        const uint32_t r = i / COLUMNS, c = i % COLUMNS;
        if (c < at.columns)
            at.out[(done + r) * op.out.stride + c] = t.out[r][c];
    }
}

/* A lane's part of a column: of every 32 keys four. */
template <int G, int MODE> struct column {
    float4 s[G];

    __device__ __forceinline__ void load(const float *from, uint32_t n_key)
    {
#pragma unroll
        for (int g = 0; g < G; g++) {
            const uint32_t i = 4 * (LANES * g + threadIdx.x % LANES);
            s[g] = from && i < n_key ? load4(from, i, n_key) : make_float4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void store(float *to, uint32_t n_key) const
    {
#pragma unroll
        for (int g = 0; g < G; g++) {
            const uint32_t i = 4 * (LANES * g + threadIdx.x % LANES);
            if (i < n_key)
                store4(to, i, n_key, s[g]);
        }
    }
    static __device__ __forceinline__ float4 keys(const float *x, int g)
    {
        return *reinterpret_cast<const float4 *>(x + 4 * (LANES * g + threadIdx.x % LANES));
    }
    /* How the lane's keys are forgotten. */
    static __device__ __forceinline__ float4 rates(const float *f, int g)
    {
        return MODE != ONE_RATE ? keys(f, g) : make_float4(f[0], f[0], f[0], f[0]);
    }
    /* The column times x, or where rates are of keys and f is not NULL times f x, in all of its
     * lanes. */
    __device__ __forceinline__ float read(const float *x, const float *f = NULL) const
    {
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int g = 0; g < G; g++) {
            float4 by = keys(x, g);
            if (MODE != ONE_RATE && f) {
                const float4 left = rates(f, g);
                by = make_float4(__fmul_rn(by.x, left.x),
                                 __fmul_rn(by.y, left.y),
                                 __fmul_rn(by.z, left.z),
                                 __fmul_rn(by.w, left.w));
            }
            sum.x = __fmaf_rn(s[g].x, by.x, sum.x);
            sum.y = __fmaf_rn(s[g].y, by.y, sum.y);
            sum.z = __fmaf_rn(s[g].z, by.z, sum.z);
            sum.w = __fmaf_rn(s[g].w, by.w, sum.w);
        }
        float all = __fadd_rn(__fadd_rn(sum.x, sum.y), __fadd_rn(sum.z, sum.w));
        for (int apart = LANES / 2; apart > 0; apart /= 2)
            all = __fadd_rn(all, __shfl_xor_sync(0xffffffffu, all, apart));
        return all;
    }
    /* s = s f + k d */
    __device__ __forceinline__ void move(const float *f, const float *k, float d)
    {
#pragma unroll
        for (int g = 0; g < G; g++) {
            const float4 by = keys(k, g), left = rates(f, g);
            s[g].x = __fmaf_rn(by.x, d, __fmul_rn(s[g].x, left.x));
            s[g].y = __fmaf_rn(by.y, d, __fmul_rn(s[g].y, left.y));
            s[g].z = __fmaf_rn(by.z, d, __fmul_rn(s[g].z, left.z));
            s[g].w = __fmaf_rn(by.w, d, __fmul_rn(s[g].w, left.w));
        }
    }
    static __device__ __forceinline__ float moved(
        float s, float f, float k, float v, float b, float was)
    {
        return __fsub_rn(__fmaf_rn(s, f, __fmul_rn(k, v)), __fmul_rn(b, was));
    }
    /* s = s f + k v - b was */
    __device__ __forceinline__ void move_apart(
        const float *f, const float *k, float v, const float *b, float was)
    {
#pragma unroll
        for (int g = 0; g < G; g++) {
            const float4 by = keys(k, g), left = keys(f, g), back = keys(b, g);
            s[g].x = moved(s[g].x, left.x, by.x, v, back.x, was);
            s[g].y = moved(s[g].y, left.y, by.y, v, back.y, was);
            s[g].z = moved(s[g].z, left.z, by.z, v, back.z, was);
            s[g].w = moved(s[g].w, left.w, by.w, v, back.w, was);
        }
    }
    /* One row; what is read of the column behind it. */
    __device__ __forceinline__ float pass(const recur_tile<G, MODE> &t,
                                          uint32_t r,
                                          uint32_t c,
                                          const struct cuda_recur &op,
                                          float skip)
    {
        const float *f = t.rate[r];
        const float v = t.v[r][c];
        float was = 0.0f;
        if (MODE == APART) {
            was = read(t.unit[r]);
            move_apart(f, t.k[r], v, t.back[r], was);
            return op.first ? was : read(t.q[r]);
        }
        if (MODE == EACH_RATE)
            was = read(t.k[r], f);
        else if (op.delta)
            was = __fmul_rn(read(t.k[r]), f[0]);
        move(f, t.k[r], __fmul_rn(__fsub_rn(v, was), t.beta[r]));
        return __fmaf_rn(v, skip, __fmul_rn(read(t.q[r]), op.scale));
    }
};

/* grid: [sequences][heads][columns / COLUMNS] */
template <int G, int MODE>
static __global__ void __launch_bounds__(RECUR_THREADS)
    recur_kernel(cuda_step step, struct cuda_recur op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    enum { ROWS = recur_tile<G, MODE>::ROWS };
    __shared__ __align__(16) recur_tile<G, MODE> tile;
    if (blockIdx.x >= step.counts->n_seqs)
        return;
    const cuda_seq seq = step.seqs[blockIdx.x];
    const uint32_t head = blockIdx.y, c = threadIdx.x / LANES;
    const recur_places at(op, seq, head, blockIdx.z * COLUMNS);
    const size_t own = head * static_cast<size_t>(op.n_value) + blockIdx.z * COLUMNS + c;
    const size_t place = op.states.heads + own * op.n_key;
    const bool mine = c < at.columns; /* else of zeros, and nobody's */
    const float skip = op.skip ? op.skip[head] : 0.0f;
    const bool begins = seq.first_pos == 0 || !mine;
    kept_states kept(step, seq);
    uint32_t state;
    column<G, MODE> s;
    s.load(begins ? NULL : state_at(op.states, seq.state_from) + place, op.n_key);
    for (uint32_t done = 0; done < seq.n_rows; done += ROWS) {
        const uint32_t left = seq.n_rows - done, n = left < ROWS ? left : uint32_t{ROWS};
        load_tile(&tile, op, at, done, n);
        __syncthreads();
        for (uint32_t r = 0; r < n; r++) {
            const float y = s.pass(tile, r, c, op, skip);
            if (threadIdx.x % LANES == 0)
                tile.out[r][c] = y;
            if (kept.take(done + r + 1, &state) && mine)
                s.store(state_at(op.states, state) + place, op.n_key);
        }
        __syncthreads();
        store_tile(tile, op, at, done, n);
    }
    if (mine)
        s.store(state_at(op.states, seq.state_to) + place, op.n_key);
}

template <int MODE> static void recur_launch(const struct cuda_at *at, const struct cuda_recur *op)
{
    const dim3 grid(at->bounds.seqs, op->n_head, (op->n_value + COLUMNS - 1) / COLUMNS);
    void (*kernel)(cuda_step, struct cuda_recur) = recur_kernel<32, MODE>;
    if (op->n_key <= 32)
        kernel = recur_kernel<1, MODE>;
    else if (op->n_key <= 64)
        kernel = recur_kernel<2, MODE>;
    else if (op->n_key <= 128)
        kernel = recur_kernel<4, MODE>;
    else if (op->n_key <= 256)
        kernel = recur_kernel<8, MODE>;
    CUDA_LAUNCH_NEXT(kernel, grid, RECUR_THREADS, 0, at->stream, at->step, *op);
}

void cuda_recur(const struct cuda_at *at, const struct cuda_recur *op)
{
    if (at->bounds.seqs > 0)
        (op->apart  ? recur_launch<APART>
         : op->each ? recur_launch<EACH_RATE>
                    : recur_launch<ONE_RATE>)(at, op);
}

/* --- channels --- */

/* What a block has of some rows. Keys behind n_key are zeros, in states too. */
template <int G> struct channel_tile {
    enum { KEYS = 4 * CHANNEL_LANES * G };
    float k[CHANNEL_ROWS][KEYS], q[CHANNEL_ROWS][KEYS];
    float x[CHANNEL_ROWS][CHANNELS], step[CHANNEL_ROWS][CHANNELS];
};

/* n rows from `row` on, of channels from `first` on, by all threads of the block. */
template <int G>
static __device__ __forceinline__ void load_channels(
    channel_tile<G> *t, const struct cuda_selective &op, uint32_t row, uint32_t first, uint32_t n)
{
    enum { KEYS = channel_tile<G>::KEYS };
    for (uint32_t i = threadIdx.x; i < n * KEYS; i += RECUR_THREADS) {
        const uint32_t r = i / KEYS, key = i % KEYS;
        t->k[r][key] = key < op.n_key ? op.k.p[(row + r) * op.k.stride + key] : 0.0f;
        t->q[r][key] = key < op.n_key ? op.q.p[(row + r) * op.q.stride + key] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < n * CHANNELS; i += RECUR_THREADS) {
        const uint32_t r = i / CHANNELS, c = i % CHANNELS;
        const bool there = first + c < op.n;
        t->x[r][c] = there ? op.x.p[(row + r) * op.x.stride + first + c] : 0.0f;
        t->step[r][c] = there ? op.step.p[(row + r) * op.step.stride + first + c] : 0.0f;
    }
}

/* A lane's part of a channel: of every 16 keys four. */
template <int G> struct channel {
    float4 s[G], a[G];

    static __device__ __forceinline__ uint32_t key(int g)
    {
        return 4 * (CHANNEL_LANES * g + threadIdx.x % CHANNEL_LANES);
    }
    static __device__ __forceinline__ void load(float4 *to, const float *from, uint32_t n_key)
    {
#pragma unroll
        for (int g = 0; g < G; g++)
            to[g] = from && key(g) < n_key ? load4(from, key(g), n_key) : make_float4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void store(float *to, uint32_t n_key) const
    {
#pragma unroll
        for (int g = 0; g < G; g++) {
            if (key(g) < n_key)
                store4(to, key(g), n_key, s[g]);
        }
    }
    static __device__ __forceinline__ float moved(float s, float a, float step, float k, float d)
    {
        return __fmaf_rn(k, d, __fmul_rn(s, expf(__fmul_rn(step, a))));
    }
    /* One row; what is read of the channel behind it, in all of its lanes. */
    __device__ __forceinline__ float pass(const channel_tile<G> &t, uint32_t r, uint32_t c)
    {
        const float step = t.step[r][c], d = __fmul_rn(step, t.x[r][c]);
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int g = 0; g < G; g++) {
            const float4 k = *reinterpret_cast<const float4 *>(&t.k[r][key(g)]);
            const float4 q = *reinterpret_cast<const float4 *>(&t.q[r][key(g)]);
            s[g].x = moved(s[g].x, a[g].x, step, k.x, d);
            s[g].y = moved(s[g].y, a[g].y, step, k.y, d);
            s[g].z = moved(s[g].z, a[g].z, step, k.z, d);
            s[g].w = moved(s[g].w, a[g].w, step, k.w, d);
            sum.x = __fmaf_rn(s[g].x, q.x, sum.x);
            sum.y = __fmaf_rn(s[g].y, q.y, sum.y);
            sum.z = __fmaf_rn(s[g].z, q.z, sum.z);
            sum.w = __fmaf_rn(s[g].w, q.w, sum.w);
        }
        float all = __fadd_rn(__fadd_rn(sum.x, sum.y), __fadd_rn(sum.z, sum.w));
        for (int apart = CHANNEL_LANES / 2; apart > 0; apart /= 2)
            all = __fadd_rn(all, __shfl_xor_sync(0xffffffffu, all, apart));
        return all;
    }
};

/* grid: [sequences][channels / CHANNELS] */
template <int G>
static __global__ void __launch_bounds__(RECUR_THREADS)
    selective_kernel(cuda_step step, struct cuda_selective op)
{
    cuda_let_next_begin();
    cuda_wait_before();
    __shared__ __align__(16) channel_tile<G> tile;
    if (blockIdx.x >= step.counts->n_seqs)
        return;
    const cuda_seq seq = step.seqs[blockIdx.x];
    const uint32_t first = blockIdx.y * CHANNELS, c = threadIdx.x / CHANNEL_LANES;
    const bool mine = first + c < op.n; /* else of zeros, and nobody's */
    const size_t own = static_cast<size_t>(first + c) * op.n_key;
    const float skip = mine ? op.skip[first + c] : 0.0f;
    const bool begins = seq.first_pos == 0 || !mine;
    kept_states kept(step, seq);
    uint32_t state;
    channel<G> ch;
    ch.load(ch.a, mine ? op.a + own : NULL, op.n_key);
    ch.load(ch.s,
            begins ? NULL : state_at(op.states, seq.state_from) + op.states.heads + own,
            op.n_key);
    for (uint32_t done = 0; done < seq.n_rows; done += CHANNEL_ROWS) {
        const uint32_t left = seq.n_rows - done,
                       n = left < CHANNEL_ROWS ? left : uint32_t{CHANNEL_ROWS};
        load_channels(&tile, op, seq.first_row + done, first, n);
        __syncthreads();
        for (uint32_t r = 0; r < n; r++) {
            const float y = ch.pass(tile, r, c);
            if (mine && threadIdx.x % CHANNEL_LANES == 0)
                op.out.p[(seq.first_row + done + r) * op.out.stride + first + c] =
                    __fmaf_rn(tile.x[r][c], skip, y);
            if (kept.take(done + r + 1, &state) && mine)
                ch.store(state_at(op.states, state) + op.states.heads + own, op.n_key);
        }
        __syncthreads();
    }
    if (mine)
        ch.store(state_at(op.states, seq.state_to) + op.states.heads + own, op.n_key);
}

void cuda_selective(const struct cuda_at *at, const struct cuda_selective *op)
{
    const dim3 grid(at->bounds.seqs, (op->n + CHANNELS - 1) / CHANNELS);
    void (*kernel)(cuda_step, struct cuda_selective) = selective_kernel<16>;
    if (op->n_key <= 16)
        kernel = selective_kernel<1>;
    else if (op->n_key <= 64)
        kernel = selective_kernel<4>;
    if (at->bounds.seqs > 0)
        CUDA_LAUNCH_NEXT(kernel, grid, RECUR_THREADS, 0, at->stream, at->step, *op);
}
