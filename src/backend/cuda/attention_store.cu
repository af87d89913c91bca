/* Angles, rotation, and storing K and V in their blocks.
 *
 *      angle[r][i] = position[r] * inv_freq[i]             in f64: at position 100,000 an f32 would
 * be off by a hundredth of a radian (a, b) -> (a cos - b sin, a sin + b cos)            pairs (2i,
 * 2i + 1) or (i, i + dims / 2)
 *
 * A row of a block, of one head, by type of KV:
 *
 *      f32, f16, bf16    | x0 | x1 | ..      rounded to the nearest, ties to even
 *      q8_0              | int8 [head_dim] | f32 scales [ceil(head_dim / 32)] |
 *                        x = q * d, d = max|x| / 127 of 32 values
 *
 * A block of threads rotates the query heads of a KV head and stores its K and V; of all KV heads
 * of a row where there are rows enough, since most of its time it waits: for where the row lies,
 * which is found before the kernel before has ended, and for values, of which a thread asks for
 * those of four pairs at once. K goes from one to the other in shared memory. Operations: 6 a pair;
 * bytes: Q and K in and out, V in, K and V out. Bound on an H200: a launch's time for few rows, 4.8
 * TB/s from some hundreds on. Sums: none; a maximum has no order. */
#include "backend/cuda/attention.cuh"

static constexpr uint32_t MOST_STORE_THREADS = 512;
static constexpr uint32_t AHEAD = 4;          /* pairs of a thread that are asked for at once */
static constexpr uint32_t MOST_STORED = 8192; /* values of K in a block: 32 KiB */
static constexpr uint32_t BLOCKS_EACH = 3, LARGE = 132; /* of a processor; a large device's */

static __global__ void angles_kernel(
    cuda_step step, const double *inv_freq, uint32_t dims, double scale, float *out)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x, n_pairs = dims / 2;
    if (row >= step.counts->n_rows)
        return;
    const double pos = static_cast<double>(step.positions[row]);
    float *to = out + static_cast<size_t>(row) * dims;
    for (uint32_t i = threadIdx.x; i < n_pairs; i += blockDim.x) {
        double s, c;
        sincos(pos * inv_freq[i], &s, &c);
        to[i] = static_cast<float>(c * scale);
        to[n_pairs + i] = static_cast<float>(s * scale);
    }
}

void cuda_angles(
    const struct cuda_at *at, const double *inv_freq, uint32_t dims, double scale, float *out)
{
    if (at->bounds.rows == 0)
        return;
    CUDA_LAUNCH_NEXT(
        angles_kernel, at->bounds.rows, 64, 0, at->stream, at->step, inv_freq, dims, scale, out);
}

/* 32 values of a head, x one a lane: those from 32 g on; zeros behind the end. */
static __device__ __forceinline__ void store_values(const cuda_kv &kv,
                                                    uint8_t *row,
                                                    float x,
                                                    uint32_t g)
{
    const uint32_t lane = threadIdx.x % WARP, d = g * WARP + lane;
    if (kv.type == KV_IS_Q8_0) {
        const float most = warp_max_size(x);
        const bool some = !(most <= 1e-30f); /* NaN, too: its scale makes all of them NaN */
        if (d < kv.head_dim)
            reinterpret_cast<int8_t *>(row)[d] =
                static_cast<int8_t>(some ? __float2int_rn(__fmul_rn(x, 127.0f / most)) : 0);
        if (lane == 0)
            reinterpret_cast<float *>(row + kv.head_dim)[g] = some ? most / 127.0f : 0.0f;
        return;
    }
    if (d >= kv.head_dim)
        return;
    if (kv.type == KV_IS_F32)
        reinterpret_cast<float *>(row)[d] = x;
    else if (kv.type == KV_IS_F16)
        reinterpret_cast<__half *>(row)[d] = __float2half_rn(x);
    else
        reinterpret_cast<__nv_bfloat16 *>(row)[d] = __float2bfloat16_rn(x);
}

/* Pairs of the query heads of so many KV heads, and of their K, which goes to `stored` as well,
 * unless that is NULL. Those of AHEAD turns are asked for before the first is needed. */
static __device__ __forceinline__ void rotate(const struct cuda_rope_store &op,
                                              uint32_t row,
                                              uint32_t n_kv,
                                              float *q,
                                              float *k,
                                              float *stored)
{
    const float *angles = op.angles + static_cast<size_t>(row) * op.dims;
    const uint32_t n_pairs = op.dims / 2, dim = op.kv.head_dim;
    const uint32_t n_q = n_kv * (op.n_head / op.kv.n_head_kv), heads = n_q + (k ? n_kv : 0);
    const uint32_t apart = op.adjacent ? 1 : n_pairs;
    for (uint32_t from = threadIdx.x; from < heads * n_pairs; from += AHEAD * blockDim.x) {
        float a[AHEAD], b[AHEAD], c[AHEAD], s[AHEAD];
        uint32_t head[AHEAD], first[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            const uint32_t at = from + i * blockDim.x, pair = at % n_pairs;
            head[i] = at / n_pairs;
            first[i] = op.first + (op.adjacent ? 2 * pair : pair);
            a[i] = b[i] = c[i] = s[i] = 0.0f;
            if (head[i] >= heads)
                continue;
            const float *x = head[i] < n_q ? q + static_cast<size_t>(head[i]) * dim
                                           : k + static_cast<size_t>(head[i] - n_q) * dim;
            a[i] = x[first[i]];
            b[i] = x[first[i] + apart];
            c[i] = angles[pair];
            s[i] = angles[n_pairs + pair];
        }
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            if (head[i] >= heads)
                continue;
            const bool is_q = head[i] < n_q;
            const size_t at = static_cast<size_t>(is_q ? head[i] : head[i] - n_q) * dim + first[i];
            float *x = (is_q ? q : k) + at;
            const float to_first = /* as the host rounds */
                __fsub_rn(__fmul_rn(a[i], c[i]), __fmul_rn(b[i], s[i]));
            const float to_second = __fadd_rn(__fmul_rn(a[i], s[i]), __fmul_rn(b[i], c[i]));
            x[0] = to_first;
            x[apart] = to_second;
            if (!is_q && stored) {
                stored[at] = to_first;
                stored[at + apart] = to_second;
            }
        }
    }
}

/* A block has n_kv KV heads of a row, or what is left of them. grid: [rows][n_head_kv / n_kv] */
static __global__ void __launch_bounds__(MOST_STORE_THREADS)
    rope_store_kernel(cuda_step step, struct cuda_rope_store op, uint32_t n_kv)
{
    CUDA_SHARED(float, stored); /* K [n_kv][head_dim] */
    cuda_let_next_begin();
    const uint32_t row = blockIdx.x, head = blockIdx.y * n_kv, dim = op.kv.head_dim;
    const uint32_t warp = threadIdx.x / WARP, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
    const bool there = row < early_value(&step.counts->n_rows);
    uint32_t pos = 0;
    uint8_t *to = NULL;
    if (there && op.kv.base) {
        const cuda_seq seq = early_struct(&step.seqs[early_value(&step.row_seq[row])]);
        pos = early_value(&step.positions[row]);
        to = kv_at(op.kv, step.tables + (op.kv.in_panes ? seq.panes : seq.blocks), head, pos);
    }
    cuda_wait_before();
    if (!there)
        return;
    const uint32_t group = op.n_head / op.kv.n_head_kv;
    n_kv = n_kv < op.kv.n_head_kv - head ? n_kv : op.kv.n_head_kv - head;
    float *q = op.q.p + row * op.q.stride + static_cast<size_t>(head) * group * dim;
    float *k = op.k.p ? op.k.p + row * op.k.stride + static_cast<size_t>(head) * dim : NULL;
    const float *v = op.v.p + row * op.v.stride + static_cast<size_t>(head) * dim;
    const uint32_t each = (dim + WARP - 1) / WARP, n = n_kv * each; /* of 32 values */
    const bool has_v = to && !op.kv.latent;
    const uint32_t first_d = warp % each * WARP + lane;
    const float first_v =
        has_v && warp < n && first_d < dim ? v[warp / each * dim + first_d] : 0.0f;
    for (uint32_t i = threadIdx.x; to && i < n_kv * dim; i += blockDim.x) {
        if (!op.angles || i % dim < op.first || i % dim >= op.first + op.dims)
            stored[i] = k[i];
    }
    if (op.angles)
        rotate(op, row, n_kv, q, k, to ? stored : NULL);
    if (!to)
        return;
    for (uint32_t i = warp; has_v && i < n; i += warps) {
        const uint32_t h = i / each, d = i % each * WARP + lane;
        const float x = i == warp ? first_v : d < dim ? v[h * dim + d] : 0.0f;
        store_values(op.kv, to + h * kv_head_bytes(op.kv) + op.kv.half_bytes, x, i % each);
    }
    __syncthreads();
    if (op.temper_length > 0) {
        const uint64_t at = (static_cast<uint64_t>(pos) + op.temper_offset) / op.temper_length;
        const float by = static_cast<float>(1 + op.temper_scale * log(1 + static_cast<double>(at)));
        for (uint32_t i = threadIdx.x; i < n_kv * group * dim; i += blockDim.x)
            q[i] = __fmul_rn(q[i], by);
    }
    for (uint32_t i = warp; i < n; i += warps) {
        const uint32_t h = i / each, d = i % each * WARP + lane;
        const float x = d < dim ? stored[h * dim + d] : 0.0f;
        store_values(op.kv, to + h * kv_head_bytes(op.kv), x, i % each);
    }
}

/* KV heads of a row that a block has: several where a block for each would be more than the device
 * runs at once, as each waits for where its row lies. */
static uint32_t heads_together(const struct cuda_at *at, const struct cuda_kv *kv)
{
    const uint32_t blocks = at->bounds.rows * kv->n_head_kv;
    const uint32_t fit = MOST_STORED / kv->head_dim;
    uint32_t n = blocks / (BLOCKS_EACH * (at->processors ? at->processors : LARGE));
    n = n < fit ? n : fit;
    if (n <= 1)
        return 1;
    n = (kv->n_head_kv + n - 1) / n; /* blocks of a row: they have as many each */
    return (kv->n_head_kv + n - 1) / n;
}

void cuda_rope_store(const struct cuda_at *at, const struct cuda_rope_store *op)
{
    if (at->bounds.rows == 0)
        return;
    const uint32_t n_kv = heads_together(at, &op->kv);
    const dim3 grid(at->bounds.rows, (op->kv.n_head_kv + n_kv - 1) / n_kv);
    const uint32_t heads = op->n_head / op->kv.n_head_kv + (op->k.p != NULL);
    const uint32_t pairs = op->angles ? heads * (op->dims / 2) : 0;
    const uint32_t wanted = n_kv * (pairs > op->kv.head_dim ? pairs : op->kv.head_dim);
    const uint32_t threads = (wanted + WARP - 1) / WARP * WARP;
    CUDA_LAUNCH_NEXT(rope_store_kernel,
                     grid,
                     threads < MOST_STORE_THREADS ? threads : MOST_STORE_THREADS,
                     n_kv * op->kv.head_dim * sizeof(float),
                     at->stream,
                     at->step,
                     *op,
                     n_kv);
}
