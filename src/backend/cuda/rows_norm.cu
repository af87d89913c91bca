/* The usual norm before products, and the row's preparation.
 *
 *      thread t of T    fours t and t + T of the row, in registers
 *      it adds up as    FOURS / F threads of a sum (sum_threads), with F fours each
 *
 * What rows_pack.cu does of any stages, of one alone and with nothing else in the way: a row's time
 * is that of a load, two barriers and instructions that are fetched once. Two fours a thread: half
 * the warps for some third more instructions than one four has. T is fixed, so that fours are one
 * constant apart. Weights are read before the kernel before has ended.
 *
 * Bits: those of norm_values and act_pack_row. Warp w of the block has the parts of warps w and
 * w + T / 32 of a sum; they meet in the same trees, and parts of no values are zero.
 *
 * Numbers: up to 4096 values are 512 threads, up to 8192 1024. A row runs through some 340
 * instructions, 5.4 KB (in rows_pack.cu, of 1024 threads for 4096 values: 550, 8.8 KB). Bound by
 * the launch for few rows, by memory for many. */
#include "backend/cuda/linear_act.cuh"
#include "backend/cuda/rows_pack.h"

enum { FOURS = 2, LEAST_THREADS = 512 };

struct norm_pack_args {
    struct cuda_norm norm;
    const uint32_t *n_rows;
    uint8_t *act;
    unsigned forms;
    uint32_t group;
};

/* Calls f(j, i) of the fours of thread t of THREADS, those before n. */
template <int THREADS, class F> static __device__ __forceinline__ void each_four(uint32_t n, F f)
{
    const uint32_t i = 4 * threadIdx.x;
#pragma unroll
    for (uint32_t j = 0; j < FOURS; j++) {
        if (i + j * 4 * THREADS < n)
            f(j, j * 4 * THREADS);
    }
}

static __device__ __forceinline__ float4 four_of(const float *x)
{
    return *reinterpret_cast<const float4 *>(x);
}

/* F: fours of each thread of a sum. grid: [rows, up to the next multiple of 8]. */
template <int F>
static __global__ void __launch_bounds__(LEAST_THREADS *F) norm_pack(const norm_pack_args a)
{
    enum { PARTS = FOURS / F, THREADS = LEAST_THREADS * F, WARPS = THREADS / WARP };
    __shared__ float parts[PARTS * WARPS], sizes[WARPS];
    cuda_let_next_begin();
    const uint32_t row = blockIdx.x, of_tile = row % CUDA_ACT_ROWS, n = a.norm.n;
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, i = 4 * threadIdx.x;
    const uint32_t n_rows = early_value(a.n_rows);
    const float *weights = a.norm.w + i;
    float4 w[FOURS] = {}, v[FOURS] = {};
    each_four<THREADS>(n, [&](uint32_t j, uint32_t on) { w[j] = four_of(weights + on); });
    const act_tile tile = act_tile_of(a.act, row, a.forms, n, a.group);
    cuda_wait_before();
    if (row >= (n_rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS)
        return;
    int e = 0;
    if (row < n_rows) {
        const float *in = a.norm.in.p + row * a.norm.in.stride + i;
        float *out = a.norm.out.p + row * a.norm.out.stride + i;
        float part[PARTS] = {}, largest = 0;
        each_four<THREADS>(n, [&](uint32_t j, uint32_t on) { v[j] = four_of(in + on); });
#pragma unroll
        for (uint32_t j = 0; j < FOURS; j++)
            part[j % PARTS] = add_squares(v[j], part[j % PARTS]);
#pragma unroll
        for (uint32_t j = 0; j < PARTS; j++)
            part[j] = warp_sum(part[j]);
        if (lane == 0) {
#pragma unroll
            for (uint32_t j = 0; j < PARTS; j++)
                parts[j * WARPS + warp] = part[j];
        }
        __syncthreads();
        const float scale = norm_scale(warp_sum(parts[lane]), n, a.norm.eps, a.norm.size);
        each_four<THREADS>(n, [&](uint32_t j, uint32_t on) {
            v[j] = scaled(v[j], scale, w[j]);
            *reinterpret_cast<float4 *>(out + on) = v[j];
            largest = larger_of_four(largest, v[j]);
        });
        if (act_is_scaled(a.forms)) {
            largest = warp_max(largest);
            if (lane == 0)
                sizes[warp] = largest;
            __syncthreads();
            e = exponent_for(warp_max(sizes[lane % WARPS]));
        }
    }
    if (threadIdx.x == 0)
        act_store_factor(tile, of_tile, power_of_two(-e));
    const uint32_t padded = cuda_chunks(n) * CUDA_CHUNK_K;
    if (a.forms & CUDA_ACT_F16) { /* the usual form */
        uint8_t *to = act_value_at(tile, a.forms, CUDA_ACT_F16, n, of_tile, i);
        const uint32_t chunk = tile.tiles * CUDA_ACT_F16_BYTES;
        each_four<THREADS>(padded, [&](uint32_t j, uint32_t on) {
            store_f16(to + on / CUDA_CHUNK_K * chunk, v[j], power_of_two(e));
        });
    }
    if (a.forms & ~CUDA_ACT_F16)
        each_four<THREADS>(padded, [&](uint32_t j, uint32_t on) {
            act_store_unscaled(tile, of_tile, i + on, v[j], n, a.forms);
        });
}

/* Rows of whole fours, each to be loaded as one. */
static bool is_usual(const struct cuda_norm *op)
{
    const struct cuda_buf *in = &op->in, *out = &op->out;
    return op->w && !op->gather && op->n > 0 && op->n % 4 == 0 &&
           op->n <= 2 * FOURS * 4 * LEAST_THREADS && aligned16(op->w) && aligned16(in->p) &&
           in->stride % 4 == 0 && aligned16(out->p) && out->stride % 4 == 0;
}

extern "C" int cuda_rows_norm(const struct cuda_at *at, const struct cuda_stages *s)
{
    const struct cuda_norm *op = &s->of[0].norm;
    const uint32_t rows = cuda_rows_bound(at);
    if (s->n != 1 || s->of[0].kind != CUDA_STAGE_NORM || !s->act || rows == 0 || !is_usual(op))
        return 0;
    const norm_pack_args a = {
        *op, linear_row_count(at), s->act->data, s->act->forms, cuda_act_group(rows)};
    const uint32_t fours = row_fours(op->n, sum_threads(op->n));
    CUDA_LAUNCH_NEXT(fours == 1 ? norm_pack<1> : norm_pack<2>,
                     (rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS,
                     LEAST_THREADS * fours,
                     0,
                     at->stream,
                     a);
    return 1;
}
