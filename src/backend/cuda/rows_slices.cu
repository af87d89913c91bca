/* A gate over wide rows that are few, and their preparation: slices of a row, to many processors.
 *
 *      map_slices    gate | up | slice 0 | slice 1 | ..  ->  values, and each warp's largest |v|
 *      pack_slices   the row's largest of those; values  ->  operands
 *
 * One block for a row (rows_pack.cu) takes 114 KB in and 85 KB out through one processor's 64 bytes
 * a clock, for a row of 14336, and all its exponentials and divisions on one processor's lanes:
 * more than a launch costs. Here a block has 1024 values of a row, a thread a four, and what runs
 * once is short: instructions that no block has run before come from afar too. The second launch
 * waits for nobody but the first: no thread of either waits for another warp's.
 *
 * Bits: those of rows_pack.cu. A map's value depends on itself alone, and the largest of the
 * warps' largest is the row's in any order.
 *
 * Numbers: a row of 14336 is 14 blocks of 8 warps, 112 sizes; up to 64 rows are 7 a processor.
 * Bound by the launches. */
#include "backend/cuda/experts.h"
#include "backend/cuda/linear_act.cuh"
#include "backend/cuda/rows_pack.h"

enum { SLICE_THREADS = 256, SLICE_ROWS = 64, SLICE_LEAST = 2048 };
static constexpr uint32_t SLICE_WARPS = SLICE_THREADS / WARP;

static uint32_t slices_of(uint32_t k)
{
    return (k + 4 * SLICE_THREADS - 1) / (4 * SLICE_THREADS);
}

/* The commonest gate, without the code of the others. */
namespace
{
struct silu_gate : gate_values {
    __device__ __forceinline__ float of(float x, float u, float c) const
    {
        gate_values gate = *this;
        gate.g.kind = SILU;
        return gate.of(x, u, c);
    }
};
} // namespace

/* sizes: [rows][slices][SLICE_WARPS]. grid: [slices][rows]. */
template <class Op>
static __global__ void __launch_bounds__(SLICE_THREADS) map_slices(
    cuda_step step, const uint32_t *row_count, Op op, cuda_buf out, uint32_t n, float *sizes)
{
    cuda_let_next_begin();
    const uint32_t row = blockIdx.y, thread = blockIdx.x * SLICE_THREADS + threadIdx.x;
    const uint32_t i = 4 * thread, n_rows = early_value(row_count);
    float largest = 0;
    cuda_wait_before();
    if (row >= n_rows)
        return;
    if (i < n) {
        op.begin(step, row);
        const float4 a = load4(op.input(row), i, n);
        const float4 v = map_four(op, a, Op::two ? load4(op.second(row), i, n) : a, a);
        store4(out.p + row * out.stride, i, n, v);
        largest = larger_of_four(largest, within4(v, i, n));
    }
    largest = warp_max(largest);
    if (threadIdx.x % WARP == 0)
        sizes[row * gridDim.x * SLICE_WARPS + thread / WARP] = largest;
}

/* grid: [slices][rows, up to the next multiple of 8]. */
static __global__ void __launch_bounds__(SLICE_THREADS) pack_slices(const uint32_t *row_count,
                                                                    cuda_buf in,
                                                                    uint8_t *data,
                                                                    uint32_t k,
                                                                    unsigned forms,
                                                                    uint32_t group,
                                                                    const float *sizes)
{
    cuda_let_next_begin();
    const uint32_t row = blockIdx.y, i = 4 * (blockIdx.x * SLICE_THREADS + threadIdx.x);
    const uint32_t n_rows = early_value(row_count);
    const uint32_t padded = (n_rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    const act_tile tile = act_tile_of(data, row, forms, k, group);
    cuda_wait_before();
    if (row >= padded)
        return;
    float4 v = make_float4(0, 0, 0, 0);
    int e = 0;
    if (row < n_rows) {
        const float4 *of_row =
            reinterpret_cast<const float4 *>(sizes + row * gridDim.x * SLICE_WARPS);
        float largest = 0;
        if (i < k)
            v = load4(in.p + row * in.stride, i, k);
#pragma unroll 1
        for (uint32_t j = threadIdx.x % WARP; j < gridDim.x * SLICE_WARPS / 4; j += WARP)
            largest = larger_of_four(largest, of_row[j]);
        e = act_is_scaled(forms) ? exponent_for(warp_max(largest)) : 0;
    }
    if (i == 0)
        act_store_factor(tile, row % CUDA_ACT_ROWS, power_of_two(-e));
    if (i < cuda_chunks(k) * CUDA_CHUNK_K)
        act_store_four(tile, row % CUDA_ACT_ROWS, i, v, k, forms, power_of_two(e));
}

template <class Op>
static void launch(const cuda_at *at, const cuda_act *act, const Op &op, const cuda_buf &out)
{
    const uint32_t rows = cuda_rows_bound(at), slices = slices_of(act->k);
    CUDA_LAUNCH_NEXT(map_slices<Op>,
                     dim3(slices, rows),
                     SLICE_THREADS,
                     0,
                     at->stream,
                     at->step,
                     linear_row_count(at),
                     op,
                     out,
                     act->k,
                     act->sizes);
    LAUNCH_COUNTED(pack_slices,
                   dim3(slices, (rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS),
                   SLICE_THREADS,
                   at,
                   out,
                   act->data,
                   act->k,
                   act->forms,
                   cuda_act_group(rows),
                   act->sizes);
}

extern "C" size_t cuda_slices_bytes(uint32_t k)
{
    return k < SLICE_LEAST ? 0 : sizeof(float) * SLICE_ROWS * SLICE_WARPS * slices_of(k);
}

/* Of places there are too many, of which each expert's last are empty. */
extern "C" int cuda_rows_slices(const struct cuda_at *at, const struct cuda_stages *s)
{
    const struct cuda_stage *of = &s->of[0];
    const uint32_t rows = cuda_rows_bound(at);
    if (s->n != 1 || !s->act || !s->act->sizes || s->act->k < SLICE_LEAST || rows == 0 ||
        rows > SLICE_ROWS)
        return 0;
    if (of->kind == CUDA_STAGE_UNARY && !of->unary.n_places) {
        launch(at, s->act, unary_value_of(of->unary), of->unary.buf);
        return 1;
    }
    if (of->kind != CUDA_STAGE_GATED || of->gated.n_places)
        return 0;
    const gate_values gate = {of->gated, 1.0f};
    if (of->gated.kind == SILU)
        launch(at, s->act, silu_gate{gate}, of->gated.out);
    else
        launch(at, s->act, gate, of->gated.out);
    return 1;
}
