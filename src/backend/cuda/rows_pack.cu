/* Rows through several stages, and packed.
 *
 *      out, add | norm | pack          gate, up -> gated | pack          mix | add | norm | pack
 *
 *      a block:   row r   stage 0  ->  barrier  ->  stage 1  ->  ..  ->  barrier  ->  operands
 *
 * Between two decode steps most launches are of a few rows, and take their own time rather than
 * their bytes'. A row by itself depends on no other, so one block takes it through all that is done
 * to it before the next product: three launches of 2 to 3 us become one. Values go through memory
 * between stages, as between launches: each buffer holds afterwards what it would have held, and
 * what was just written comes back from the caches.
 *
 * Bits: a stage is the text of its launch (rows.cuh, experts.cuh, linear_act.cuh). Sums have as
 * many threads as by themselves, which sum_threads makes of their values alone; maps and packing
 * are the same with any number.
 *
 * Numbers: a value of each stage in and out of the second-level cache, 8 to 12 bytes; a lone row of
 * 14336 under a gate is 170 KB of one processor's, some 1.5 us at 64 bytes a clock. Bound: the
 * launch for few rows, memory for many. */
#include "backend/cuda/rows_pack.h"

#include "backend/cuda/experts.cuh"
#include "backend/cuda/linear_act.cuh"
#include "backend/cuda/rows.cuh"

static constexpr uint32_t MOST_THREADS = 1024;

struct stages_args {
    struct cuda_stage of[CUDA_MOST_STAGES];
    uint32_t n;
    struct cuda_experts experts;
    const uint32_t *n_rows;    /* how many rows, or places */
    const uint32_t *place_row; /* NULL, or the row of each place, UINT32_MAX: none */
    struct cuda_buf packed;
    uint8_t *act; /* NULL: nothing is packed */
    uint32_t k;
    unsigned forms;
};

static __device__ __forceinline__ void mix_row(const cuda_experts &x,
                                               const struct cuda_mix &op,
                                               uint32_t row,
                                               put_and_look &put)
{
    float *out = op.out.p + row * op.out.stride;
    for (uint32_t i = 4 * threadIdx.x; i < op.n; i += 4 * blockDim.x) {
        float v[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            v[j] = i + j < op.n ? mixed_value(x, op.in, row, i + j) : 0;
        put(out, i, op.n, make_float4(v[0], v[1], v[2], v[3]));
    }
}

template <class Op>
static __device__ __forceinline__ void map_row(
    const cuda_step &step, Op op, cuda_buf out, uint32_t n, uint32_t row, put_and_look &put)
{
    op.begin(step, row);
    for (uint32_t i = 4 * threadIdx.x; i < n; i += 4 * blockDim.x)
        map_four(op, row, out.p + row * out.stride, i, n, put);
}

/* One stage; what its values are at most goes to put. */
static __device__ __forceinline__ void stage_row(const cuda_step &step,
                                                 int rows,
                                                 const stages_args &a,
                                                 const cuda_stage &s,
                                                 uint32_t row,
                                                 float *part,
                                                 put_and_look &put)
{
    switch (s.kind) {
    case CUDA_STAGE_MIX:
        mix_row(a.experts, s.mix, row, put);
        break;
    case CUDA_STAGE_ADD:
        map_row(step, add_scaled_of(s.add), s.add.out, s.add.n, row, put);
        break;
    case CUDA_STAGE_NORM:
        norm_row(s.norm, s.norm.gather ? gathered(step, rows, row) : row, row, part, put);
        break;
    case CUDA_STAGE_LAYER_NORM:
        layer_norm_row(
            s.layer_norm, s.layer_norm.gather ? gathered(step, rows, row) : row, row, part, put);
        break;
    case CUDA_STAGE_GATED:
        map_row(step, gate_values{s.gated, 1.0f}, s.gated.out, s.gated.n, row, put);
        break;
    case CUDA_STAGE_UNARY:
        map_row(step, unary_value_of(s.unary), s.unary.buf, s.unary.n, row, put);
        break;
    }
}

/* grid: [rows], up to the next multiple of 8 where they are packed. */
static __global__ void __launch_bounds__(MOST_THREADS)
    rows_stages(cuda_step step, int rows, const stages_args a)
{
    __shared__ float part[WARP];
    const uint32_t row = blockIdx.x, n_rows = *a.n_rows;
    const uint32_t padded = (n_rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    put_and_look put = {0};
    if (row >= (a.act ? padded : n_rows))
        return;
    for (uint32_t i = 0; i < a.n && row < n_rows; i++) {
        put.largest = 0;
        stage_row(step, rows, a, a.of[i], row, part, put);
        __syncthreads(); /* others read it as they like */
    }
    if (!a.act)
        return;
    const bool has_row = row < n_rows && !(a.place_row && a.place_row[row] == UINT32_MAX);
    act_pack_row(has_row ? a.packed.p + row * a.packed.stride : NULL,
                 has_row ? put.largest : 0,
                 act_tile(a.act, row, a.forms, a.k),
                 row % CUDA_ACT_ROWS,
                 a.k,
                 a.forms);
}

/* What a stage puts out. */
static struct cuda_buf output_of(const struct cuda_stage *s, uint32_t *n)
{
    switch (s->kind) {
    case CUDA_STAGE_MIX:
        *n = s->mix.n;
        return s->mix.out;
    case CUDA_STAGE_ADD:
        *n = s->add.n;
        return s->add.out;
    case CUDA_STAGE_NORM:
        *n = s->norm.n;
        return s->norm.out;
    case CUDA_STAGE_LAYER_NORM:
        *n = s->layer_norm.n;
        return s->layer_norm.out;
    case CUDA_STAGE_GATED:
        *n = s->gated.n;
        return s->gated.out;
    case CUDA_STAGE_UNARY:
        break;
    }
    *n = s->unary.n;
    return s->unary.buf;
}

/* As many as the norms want, or else as the widest map can use. */
static uint32_t threads_of(const struct cuda_stages *s)
{
    uint32_t n = 0, most = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        (void)output_of(&s->of[i], &n);
        if (s->of[i].kind == CUDA_STAGE_NORM || s->of[i].kind == CUDA_STAGE_LAYER_NORM)
            return sum_threads(n);
        most = n > most ? n : most;
    }
    return sum_threads(most);
}

extern "C" int cuda_stages_fit(uint32_t n_a, uint32_t n_b)
{
    return sum_threads(n_a) == sum_threads(n_b);
}

extern "C" void cuda_rows_stages(const struct cuda_at *at, const struct cuda_stages *s)
{
    const struct cuda_stage *first = &s->of[0];
    const bool places = first->kind == CUDA_STAGE_GATED   ? first->gated.n_places != NULL
                        : first->kind == CUDA_STAGE_UNARY ? first->unary.n_places != NULL
                                                          : false;
    uint32_t rows = places ? linear_place_bound(at, s->experts) : linear_row_bound(at);
    stages_args a = {};
    for (a.n = 0; a.n < s->n; a.n++)
        a.of[a.n] = s->of[a.n];
    if (s->experts)
        a.experts = *s->experts;
    a.n_rows = places ? a.experts.first + a.experts.n_expert : linear_row_count(at);
    a.place_row = places ? a.experts.place_row : NULL;
    a.packed = output_of(&s->of[s->n - 1], &a.k);
    if (s->act) {
        a.act = s->act->data;
        a.k = s->act->k;
        a.forms = s->act->forms;
        rows = (rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    }
    if (rows > 0)
        CUDA_LAUNCH(rows_stages, rows, threads_of(s), 0, at->stream, at->step, at->rows, a);
}
