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
 * A block of threads rotates the query heads of one KV head and stores its K and V. Operations: 6 a
 * pair; bytes: Q and K in and out, V in, K and V out. Bound on an H200: a launch's time for few
 * rows, 4.8 TB/s from some hundreds on. Sums: none; a maximum has no order. */
#include "backend/cuda/attention.cuh"

enum { STORE_THREADS = 128 };

static __global__ void angles_kernel(
    cuda_step step, const double *inv_freq, uint32_t dims, double scale, float *out)
{
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
    CUDA_LAUNCH(
        angles_kernel, at->bounds.rows, 64, 0, at->stream, at->step, inv_freq, dims, scale, out);
}

static __device__ __forceinline__ void rotate_pair(
    float *x, const float *angles, uint32_t i, uint32_t n_pairs, int adjacent)
{
    float *p = x + (adjacent ? 2 * i : i), *other = adjacent ? p + 1 : p + n_pairs;
    const float a = *p, b = *other, c = angles[i], s = angles[n_pairs + i];
    *p = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s)); /* as the host rounds */
    *other = __fadd_rn(__fmul_rn(a, s), __fmul_rn(b, c));
}

/* 32 values of a head, one a lane: those from 32 g on. */
static __device__ __forceinline__ void store_values(const cuda_kv &kv,
                                                    uint8_t *row,
                                                    const float *from,
                                                    uint32_t g)
{
    const uint32_t lane = threadIdx.x % WARP, d = g * WARP + lane;
    const float x = d < kv.head_dim ? from[d] : 0.0f;
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

/* grid: [rows][n_head_kv] */
static __global__ void rope_store_kernel(cuda_step step, struct cuda_rope_store op)
{
    const uint32_t row = blockIdx.x, head = blockIdx.y, dim = op.kv.head_dim;
    if (row >= step.counts->n_rows)
        return;
    const uint32_t group = op.n_head / op.kv.n_head_kv, n_pairs = op.dims / 2;
    float *q = op.q.p + row * op.q.stride + static_cast<size_t>(head) * group * dim;
    float *k = op.k.p ? op.k.p + row * op.k.stride + static_cast<size_t>(head) * dim : NULL;
    const float *v = op.v.p + row * op.v.stride + static_cast<size_t>(head) * dim;
    if (op.angles) {
        const float *angles = op.angles + static_cast<size_t>(row) * op.dims;
        const uint32_t heads = group + (k != NULL);
        for (uint32_t i = threadIdx.x; i < heads * n_pairs; i += STORE_THREADS) {
            const uint32_t h = i / n_pairs;
            float *x = h < group ? q + static_cast<size_t>(h) * dim : k;
            rotate_pair(x + op.first, angles, i % n_pairs, n_pairs, op.adjacent);
        }
        __syncthreads();
    }
    if (!op.kv.base)
        return;
    const cuda_seq seq = step.seqs[step.row_seq[row]];
    const uint32_t *table = step.tables + (op.kv.in_panes ? seq.panes : seq.blocks);
    const uint32_t pos = step.positions[row];
    uint8_t *to = kv_at(op.kv, table, head, pos);
    if (op.temper_length > 0) {
        const uint64_t at = (static_cast<uint64_t>(pos) + op.temper_offset) / op.temper_length;
        const float by = static_cast<float>(1 + op.temper_scale * log(1 + static_cast<double>(at)));
        for (uint32_t i = threadIdx.x; i < group * dim; i += STORE_THREADS)
            q[i] = __fmul_rn(q[i], by);
    }
    const uint32_t n = (dim + WARP - 1) / WARP, n_halves = op.kv.latent ? 1 : 2;
    for (uint32_t i = threadIdx.x / WARP; i < n_halves * n; i += STORE_THREADS / WARP) {
        if (i < n)
            store_values(op.kv, to, k, i);
        else
            store_values(op.kv, to + op.kv.half_bytes, v, i - n);
    }
}

void cuda_rope_store(const struct cuda_at *at, const struct cuda_rope_store *op)
{
    const dim3 grid(at->bounds.rows, op->kv.n_head_kv);
    if (at->bounds.rows == 0)
        return;
    CUDA_LAUNCH(rope_store_kernel, grid, STORE_THREADS, 0, at->stream, at->step, *op);
}
