/* Rows of f32 to operands: as linear_layout.h draws them, once for all matrices that read them.
 *
 *      F16:   x = f16(v * 2^e), e such that the largest finite |v| of the row comes to 2^10..2^11:
 * far from overflow, sums of 16 too, and exact to 11 bits down to 2^-24 of the largest. sum of 16 =
 * the x as rounded, added in f32 from the first to the last; upper = f16(sum), lower = f16(sum -
 * upper). BF16:  upper = bf16(v), lower = bf16(v - upper). F32:   v.
 *
 * A block a row (or a head of it), 256 threads; a thread takes groups of 16 of K. Rows up to the
 * next multiple of 8 are filled with zeros. Numbers: 4 bytes in, 2.5 to 8.5 out for each value,
 * bound by memory (or by the launch, for few rows); the row's second reading comes from the caches.
 */
#include "backend/cuda/linear_act.cuh"

static constexpr uint32_t ACT_THREADS = 256;

/* Where the rows come from: row r of the step, or of a place (experts.h). */
struct act_source {
    struct cuda_buf in;
    const uint32_t *n_rows;    /* how many rows, or ... */
    const uint32_t *place_row; /* ... NULL, or the row of each place, UINT32_MAX: none */
    int by_place;              /* the buffer has places as rows */
};

static __global__ void __launch_bounds__(ACT_THREADS) act_pack(const act_source src,
                                                               uint8_t *data,
                                                               uint32_t k,
                                                               unsigned forms,
                                                               uint32_t in_step,
                                                               size_t head_bytes)
{
    const uint32_t row = blockIdx.x, n_rows = *src.n_rows;
    if (row >= (n_rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS)
        return;
    uint32_t from = row < n_rows ? row : UINT32_MAX;
    if (src.place_row && from != UINT32_MAX) {
        from = src.place_row[row];
        if (from != UINT32_MAX && src.by_place)
            from = row;
    }
    const float *in = from == UINT32_MAX ? NULL
                                         : src.in.p + from * src.in.stride +
                                               static_cast<size_t>(blockIdx.y) * in_step;
    float largest = 0;
    for (uint32_t i = threadIdx.x; act_is_scaled(forms) && in && i < k; i += ACT_THREADS) {
        const float v = fabsf(in[i]);
        largest = v > largest && !isinf(v) ? v : largest;
    }
    act_pack_row(in,
                 largest,
                 act_tile(data + blockIdx.y * head_bytes, row, forms, k),
                 row % CUDA_ACT_ROWS,
                 k,
                 forms);
}

static void launch(const cuda_at *at, const act_source &src, const cuda_act *act, uint32_t rows)
{
    const uint32_t padded = (rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    if (padded == 0)
        return;
    CUDA_LAUNCH(act_pack,
                dim3(padded, act->heads ? act->heads : 1),
                ACT_THREADS,
                0,
                at->stream,
                src,
                act->data,
                act->k,
                act->forms,
                act->in_step,
                cuda_act_bytes(act->forms, rows, act->k));
}

extern "C" void cuda_act_pack(const cuda_at *at, cuda_buf in, const cuda_act *act)
{
    const act_source src = {in, linear_row_count(at), NULL, 0};
    launch(at, src, act, linear_row_bound(at));
}

extern "C" void cuda_experts_pack(
    const cuda_at *at, const cuda_experts *x, cuda_buf in, int by_place, const cuda_act *act)
{
    const act_source src = {in, x->first + x->n_expert, x->place_row, by_place};
    launch(at, src, act, linear_place_bound(at, x));
}
