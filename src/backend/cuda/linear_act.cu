/* Rows of f32 to operands: as linear_layout.h draws them, once for all matrices that read them.
 *
 *      F16:   x = f16(v * 2^e), e such that the largest finite |v| of the row comes to 2^10..2^11:
 *             far from overflow, and exact to 11 bits down to 2^-24 of the largest
 *      BF16:  upper = bf16(v), lower = bf16(v - upper)
 *      F32:   v
 *
 * A block a row (or a head of it); a thread takes fours of K, which stay in its registers between
 * the search for the largest and the rounding. Rows up to the next multiple of 8 are filled with
 * zeros. Numbers: 4 bytes in, 2 or 4 out for each value and form, bound by memory (or for few rows
 * by the launch, a load and a barrier).
 */
#include "backend/cuda/linear_act.cuh"

/* Where the rows come from: row r of the step, or of a place (experts.h). */
struct act_source {
    struct cuda_buf in;
    const uint32_t *n_rows;    /* how many rows, or ... */
    const uint32_t *place_row; /* ... NULL, or the row of each place, UINT32_MAX: none */
    int by_place;              /* the buffer has places as rows */
};

template <class Row>
static __global__ void __launch_bounds__(SUM_THREADS_MOST) act_pack(const act_source src,
                                                                    uint8_t *data,
                                                                    uint32_t k,
                                                                    unsigned forms,
                                                                    uint32_t group,
                                                                    uint32_t in_step,
                                                                    size_t head_bytes)
{
    cuda_let_next_begin();
    const uint32_t row = blockIdx.x;
    uint32_t n_rows = src.place_row ? 0 : early_value(src.n_rows);
    cuda_wait_before();
    if (src.place_row)
        n_rows = *src.n_rows;
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
    Row r;
    r.begin(NULL, 0);
    act_pack_row(r,
                 in,
                 act_tile_of(data + blockIdx.y * head_bytes, row, forms, k, group),
                 row % CUDA_ACT_ROWS,
                 k,
                 forms);
}

template <class Row>
static void launch_as(const cuda_at *at, const act_source &src, const cuda_act *act, uint32_t rows)
{
    const uint32_t padded = (rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    CUDA_LAUNCH_NEXT(act_pack<Row>,
                     dim3(padded, act->heads ? act->heads : 1),
                     sum_threads(act->k),
                     0,
                     at->stream,
                     src,
                     act->data,
                     act->k,
                     act->forms,
                     cuda_act_group(rows),
                     act->in_step,
                     cuda_act_bytes(act->forms, rows, act->k));
}

static void launch(const cuda_at *at, const act_source &src, const cuda_act *act, uint32_t rows)
{
    const uint32_t fours = row_fours(act->k, sum_threads(act->k));
    if (rows == 0)
        return;
    if (fours <= 1)
        launch_as<row_in_registers<1>>(at, src, act, rows);
    else if (fours <= 4)
        launch_as<row_in_registers<4>>(at, src, act, rows);
    else
        launch_as<row_in_memory>(at, src, act, rows);
}

extern "C" void cuda_act_pack(const cuda_at *at, cuda_buf in, const cuda_act *act)
{
    const act_source src = {in, linear_row_count(at), NULL, 0};
    launch(at, src, act, cuda_rows_bound(at));
}

extern "C" void cuda_experts_pack(
    const cuda_at *at, const cuda_experts *x, cuda_buf in, int by_place, const cuda_act *act)
{
    const act_source src = {in, x->first + x->n_expert, x->place_row, by_place};
    launch(at, src, act, linear_place_bound(at, x));
}
