/* Rows through several stages, and packed.
 *
 *      out, add | norm | pack          gate, up -> gated | pack          mix | add | norm | pack
 *
 *      a block:   row r   stage 0  ->  stage 1  ->  ..  ->  operands
 *      a thread:          its fours of the row, in registers
 *
 * Between two decode steps most launches are of a few rows, and take their own time rather than
 * their bytes'. A row by itself depends on no other, so one block takes it through all that is done
 * to it before the next product: three launches of 2 to 3 us become one. Each thread has the same
 * values of the row in all stages (rows.cuh), so nobody waits for anybody but in sums and where the
 * one value that gates a row is a stage's, too, and a stage takes what the one before it put from
 * registers; each buffer holds afterwards what it would have held, too. Rows so wide that a thread
 * has more than 4 fours (16384 values by 1024 threads) go through memory. The weight of the first
 * norm is read before the kernel before has ended.
 *
 * Bits: a stage is the text of its launch (rows.cuh, experts.cuh, linear_act.cuh). Sums have as
 * many threads as by themselves, which sum_threads makes of their values alone; maps and packing
 * are the same with any number.
 *
 * Numbers: for a norm and packing, behind the wait, a load of the second-level cache, two barriers
 * and stores; of 512 rows of 14336 under a gate 103 MB, 58 us on an H100. Bound: the launch for few
 * rows (wide gates of which are rows_slices.cu's), memory for many. */
#include "backend/cuda/rows_pack.h"

#include "backend/cuda/experts.cuh"
#include "backend/cuda/linear_act.cuh"
#include "backend/cuda/rows.cuh"

static constexpr uint32_t MOST_THREADS = SUM_THREADS_MOST;

struct stages_args {
    struct cuda_stage of[CUDA_MOST_STAGES];
    uint32_t n;
    uint32_t meets; /* bit i: the block meets before stage i */
    struct cuda_experts experts;
    const uint32_t *n_rows;    /* how many rows, or places */
    const uint32_t *place_row; /* NULL, or the row of each place, UINT32_MAX: none */
    const float *early;        /* a weight [n_early] of a norm, or NULL */
    uint32_t n_early;
    struct cuda_buf packed;
    uint8_t *act; /* NULL: nothing is packed */
    uint32_t k;
    unsigned forms;
    uint32_t group;
};

template <class Row>
static __device__ __forceinline__ void mix_row(Row &r,
                                               const cuda_experts &x,
                                               const struct cuda_mix &op,
                                               uint32_t row)
{
    float *out = op.out.p + row * op.out.stride;
    r.each(op.n, [&](uint32_t j, uint32_t i) {
        r.put(out, j, i, op.n, mixed_values(x, op.in, row, i, op.n));
    });
    r.is_put(out, op.n);
}

template <class Op>
static __device__ __forceinline__ void map_row(
    row_in_memory &r, const cuda_step &step, Op op, cuda_buf out, uint32_t n, uint32_t row)
{
    float *to = out.p + row * out.stride;
    op.begin(step, row);
    r.each(n, [&](uint32_t j, uint32_t i) {
        const float4 a = load4(op.input(row), i, n);
        const float4 b = Op::two ? load4(op.second(row), i, n) : a;
        r.put(to, j, i, n, map_four(op, a, b, Op::adds ? load4(to, i, n) : a));
    });
}
/* All loads are asked for before the first is needed. */
template <int N, class Op>
static __device__ __forceinline__ void map_row(
    row_in_registers<N> &r, const cuda_step &step, Op op, cuda_buf out, uint32_t n, uint32_t row)
{
    float *to = out.p + row * out.stride;
    float4 other[N] = {}; /* the second input, or what `to` held */
    op.begin(step, row);
    const float *from = op.input(row), *beside = Op::two ? op.second(row) : to;
    const bool held = (Op::two || Op::adds) && r.holds(beside, n);
    if (Op::two || Op::adds)
        r.each(n,
               [&](uint32_t j, uint32_t i) { other[j] = held ? r.held[j] : load4(beside, i, n); });
    r.bring(from, n);
    r.each(n, [&](uint32_t j, uint32_t i) {
        const float4 a = r.held[j];
        const float4 b = Op::two ? other[j] : a, c = Op::adds ? other[j] : a;
        r.put(to, j, i, n, map_four(op, a, b, c));
    });
    r.is_put(to, n);
}

/* One stage. The commonest gate has code of its own, in which the others do not lie between the
 * instructions of one value and those of the next. */
template <class Row>
static __device__ __forceinline__ void stage_row(Row &r,
                                                 const cuda_step &step,
                                                 int rows,
                                                 const stages_args &a,
                                                 const cuda_stage &s,
                                                 uint32_t row,
                                                 sums_of_block &sums)
{
    switch (s.kind) {
    case CUDA_STAGE_MIX:
        mix_row(r, a.experts, s.mix, row);
        break;
    case CUDA_STAGE_ADD:
        map_row(r, step, add_scaled_of(s.add), s.add.out, s.add.n, row);
        break;
    case CUDA_STAGE_NORM:
        norm_row(r, s.norm, s.norm.gather ? gathered(step, rows, row) : row, row, sums);
        break;
    case CUDA_STAGE_LAYER_NORM:
        layer_norm_row(
            r, s.layer_norm, s.layer_norm.gather ? gathered(step, rows, row) : row, row, sums);
        break;
    case CUDA_STAGE_GATED: {
        gate_values gate = {s.gated, 1.0f};
        if (gate.g.kind == SILU) {
            gate.g.kind = SILU;
            map_row(r, step, gate, s.gated.out, s.gated.n, row);
        } else {
            map_row(r, step, gate, s.gated.out, s.gated.n, row);
        }
        break;
    }
    case CUDA_STAGE_UNARY:
        map_row(r, step, unary_value_of(s.unary), s.unary.buf, s.unary.n, row);
        break;
    }
}

/* grid: [rows], up to the next multiple of 8 where they are packed. */
template <class Row>
static __global__ void __launch_bounds__(MOST_THREADS)
    rows_stages(cuda_step step, int rows, const stages_args a)
{
    __shared__ float part[2 * WARP];
    cuda_let_next_begin();
    const uint32_t row = blockIdx.x;
    sums_of_block sums = {part, 0};
    Row r;
    r.begin(a.early, a.n_early);
    uint32_t n_rows = a.place_row ? 0 : early_value(a.n_rows);
    cuda_wait_before();
    if (a.place_row)
        n_rows = *a.n_rows;
    const uint32_t padded = (n_rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    if (row >= (a.act ? padded : n_rows))
        return;
    for (uint32_t i = 0; i < a.n && row < n_rows; i++) {
        if (a.meets >> i & 1)
            __syncthreads();
        stage_row(r, step, rows, a, a.of[i], row, sums);
    }
    if (!a.act)
        return;
    const bool has_row = row < n_rows && !(a.place_row && a.place_row[row] == UINT32_MAX);
    act_pack_row(r,
                 has_row ? a.packed.p + row * a.packed.stride : NULL,
                 act_tile_of(a.act, row, a.forms, a.k, a.group),
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

/* The value by which a stage gates all of a row; one thread has it in other stages. */
static const float *gate_of(const struct cuda_stage *s)
{
    return s->kind == CUDA_STAGE_ADD ? s->add.gate.p : NULL;
}

/* Does stage i read what another thread put, or put what others read, in a stage before? */
static bool meets_before(const struct cuda_stages *s, uint32_t i)
{
    uint32_t n;
    const float *gate = gate_of(&s->of[i]), *out = output_of(&s->of[i], &n).p;
    for (uint32_t j = 0; j < i; j++) {
        if (output_of(&s->of[j], &n).p == gate || gate_of(&s->of[j]) == out)
            return true;
    }
    return false;
}

/* As many as the norms want, or else as the widest map can use; and how many fours of the widest
 * row each has. */
static uint32_t threads_of(const struct cuda_stages *s, uint32_t *fours)
{
    uint32_t n = 0, most = 0, of_norm = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        (void)output_of(&s->of[i], &n);
        if (s->of[i].kind == CUDA_STAGE_NORM || s->of[i].kind == CUDA_STAGE_LAYER_NORM)
            of_norm = n;
        most = n > most ? n : most;
    }
    const uint32_t threads = sum_threads(of_norm ? of_norm : most);
    *fours = row_fours(most, threads);
    return threads;
}

/* The weight of the first norm that has one. */
static void fetch_early(const struct cuda_stages *s, stages_args *a)
{
    for (uint32_t i = 0; i < s->n && !a->early; i++) {
        const struct cuda_stage *of = &s->of[i];
        (void)output_of(of, &a->n_early);
        a->early = of->kind == CUDA_STAGE_NORM         ? of->norm.w
                   : of->kind == CUDA_STAGE_LAYER_NORM ? of->layer_norm.w
                                                       : NULL;
    }
}

extern "C" int cuda_stages_fit(uint32_t n_a, uint32_t n_b)
{
    return sum_threads(n_a) == sum_threads(n_b);
}

extern "C" void cuda_rows_stages(const struct cuda_at *at, const struct cuda_stages *s)
{
    if (cuda_rows_slices(at, s) || cuda_rows_norm(at, s))
        return;
    const struct cuda_stage *first = &s->of[0];
    const bool places = first->kind == CUDA_STAGE_GATED   ? first->gated.n_places != NULL
                        : first->kind == CUDA_STAGE_UNARY ? first->unary.n_places != NULL
                                                          : false;
    uint32_t rows = places ? linear_place_bound(at, s->experts) : cuda_rows_bound(at);
    stages_args a = {};
    for (a.n = 0; a.n < s->n; a.n++) {
        a.of[a.n] = s->of[a.n];
        a.meets |= static_cast<uint32_t>(meets_before(s, a.n)) << a.n;
    }
    if (s->experts)
        a.experts = *s->experts;
    a.n_rows = places ? a.experts.first + a.experts.n_expert : linear_row_count(at);
    a.place_row = places ? a.experts.place_row : NULL;
    a.packed = output_of(&s->of[s->n - 1], &a.k);
    if (s->act) {
        a.act = s->act->data;
        a.k = s->act->k;
        a.forms = s->act->forms;
        a.group = cuda_act_group(rows);
        rows = (rows + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
    }
    fetch_early(s, &a);
    uint32_t fours;
    const uint32_t threads = threads_of(s, &fours);
    const auto kernel = fours <= 1   ? rows_stages<row_in_registers<1>>
                        : fours <= 2 ? rows_stages<row_in_registers<2>>
                        : fours <= 4 ? rows_stages<row_in_registers<4>>
                                     : rows_stages<row_in_memory>;
    if (rows > 0)
        LAUNCH_ROWS(kernel, rows, threads, at, a);
}
