/* Matrix products: which kernel, how many blocks, and the sum of ranges that had blocks of their
 * own.
 *
 *      rows <= 16      linear_few: memory's speed is all there is
 *      more            linear_wgmma on Hopper, else linear_many; with a block for each range of K
 *                      where there would be less than half as many blocks as processors
 *
 * All give the same bits (linear_tiles.cuh), so the bounds of the launch may decide. Experts:
 * linear_few as long as an expert has about one tile of rows. */
#include "backend/cuda/linear_launches.cuh"

/* Ranges have blocks of their own below FEW_BLOCKS, or half as many as there are processors. */
static constexpr uint32_t FEW_ROWS = 16, FEW_BLOCKS = 64, LARGE = 132;
/* Of a block: outputs and rows. */
static constexpr uint32_t MANY_OUTPUTS = MANY_PARTS * CUDA_PART_ROWS, MANY_ROWS = 128;

static uint32_t groups_of(uint32_t n, uint32_t size)
{
    return n / size + (n % size != 0);
}

extern "C" size_t cuda_linear_scratch(uint32_t max_rows, uint32_t n_in, uint32_t n_out)
{
    const size_t most = static_cast<size_t>(FEW_BLOCKS) * MANY_OUTPUTS * MANY_ROWS;
    const size_t n = static_cast<size_t>(max_rows) * n_out;
    const uint32_t splits = linear_splits(cuda_chunks(n_in), 1);
    if (max_rows <= FEW_ROWS || splits == 1)
        return 0;
    return splits * (n < most ? n : most) * sizeof(float);
}

/* out = (part[0] + part[1] + ...), finished as the others do. grid: (256 outputs of each product,
 * rows). */
static constexpr uint32_t MERGE_OUTPUTS = 256, MOST_SPLITS = 8;
static __global__ void __launch_bounds__(MERGE_OUTPUTS) linear_merge(CUDA_PARAMETER(linear_group) given)
{
    cuda_let_next_begin();
    cuda_wait_before();
    uint32_t block;
    const linear_args p = linear_of_group(given, blockIdx.x, block);
    const uint32_t j = block * MERGE_OUTPUTS + threadIdx.x, row = blockIdx.y;
    if (row >= *p.n_rows || j >= p.n_out)
        return;
    const size_t step = static_cast<size_t>(p.scratch_rows) * p.n_out;
    const float *from = p.scratch + static_cast<size_t>(row) * p.n_out + j;
    float part[MOST_SPLITS];
#pragma unroll
    for (uint32_t i = 0; i < MOST_SPLITS; i++)
        part[i] = i < p.splits ? from[i * step] : 0;
    float total = part[0];
#pragma unroll
    for (uint32_t i = 1; i < MOST_SPLITS; i++)
        total = i < p.splits ? __fadd_rn(total, part[i]) : total;
    linear_store(p, 0, row, j, total, linear_factor(p, row));
}

/* Whose kernels: those of linear_k.cu, else of linear_block.cu (or of the floats). */
static bool is_k(int type)
{
    return type >= CUDA_TYPE_Q2_K && type <= CUDA_TYPE_Q6_K;
}

/* rows: as many as were prepared at most. */
static linear_args args_of(const struct cuda_linear *op, uint32_t rows)
{
    const cuda_matrix *w = &op->w;
    const cuda_layout layout = cuda_layout_of(w->type);
    const uint32_t chunks = cuda_chunks(w->n_in);
    linear_args p = {};
    p.w = w->data;
    p.part_bytes = cuda_part_bytes(w->type, w->n_in);
    p.matrix_bytes = cuda_matrix_bytes(w->type, w->n_in, w->n_out);
    p.n_in = w->n_in;
    p.n_out = w->n_out;
    p.n_parts = groups_of(w->n_out, CUDA_PART_ROWS);
    p.runs = layout.chunks ? groups_of(chunks, layout.chunks) : chunks;
    p.splits = linear_splits(p.runs, p.n_parts);
    p.units_bytes = cuda_units_bytes(layout.head_bytes);
    p.act = op->act.data;
    p.act_group = cuda_act_group(rows);
    p.act_tile_bytes = cuda_act_tile_bytes(op->act.forms, op->act.k);
    p.act_offset = cuda_act_offset(op->act.forms, layout.form, op->act.k);
    p.scaled = layout.form == CUDA_ACT_F16;
    p.out = op->out;
    p.bias = op->bias;
    p.factors = op->factors;
    p.add = op->add;
    p.heads = op->act.heads;
    p.out_step = op->out_step;
    return p;
}

static void launch(int type, const linear_group *p, const linear_grid *g)
{
    type = cuda_stored_as(type);
    if (type == CUDA_TYPE_F32)
        linear_f32_launch(p, g);
    else if (type == CUDA_TYPE_F16 || type == CUDA_TYPE_BF16)
        linear_half_launch(type, p, g);
    else if (is_k(type))
        linear_k_launch(type, p, g);
    else
        linear_block_launch(type, p, g);
}

/* Products that lie alike, or, of few rows, in two ways, and what they meet. */
struct linear_work {
    int type, second; /* second: of those behind `alike`; or -1 */
    linear_args p[CUDA_LINEAR_GROUP];
    uint32_t n, alike;
    uint32_t rows;  /* that a matrix meets, about; without experts: at most */
    uint32_t tiles; /* of 8 rows, of all experts */
    float *scratch; /* NULL: there is none */
};

static uint32_t parts_of(const linear_work *w)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < w->n; i++)
        parts += w->p[i].n_parts;
    return parts;
}

static uint32_t processors_of(const cuda_at *at)
{
    return at->processors ? at->processors : LARGE;
}

static linear_kernel kernel_for(const cuda_at *at, const linear_work *w)
{
    if (w->rows <= CUDA_ACT_ROWS || w->type == CUDA_TYPE_F32)
        return LINEAR_FEW_8;
    if (w->rows <= FEW_ROWS && w->p[0].first == NULL)
        return LINEAR_FEW_16;
    if (!at->wgmma)
        return w->rows <= 64 || at->block_shared < CUDA_SHARED_WIDE ? LINEAR_MANY_64
                                                                    : LINEAR_MANY_128;
    if (w->rows <= 64)
        return LINEAR_WGMMA_64;
    /* three blocks of 256 outputs for two processors keep them busy; else two of 128 do, each */
    const linear_args *p = &w->p[0];
    const uint32_t times = p->first ? p->n_expert : p->heads ? p->heads : 1;
    const uint64_t blocks = static_cast<uint64_t>(groups_of(parts_of(w), 2 * MANY_PARTS)) *
                            groups_of(w->rows, MANY_ROWS) * times;
    return 2 * blocks < 3 * processors_of(at) ? LINEAR_WGMMA_128 : LINEAR_WGMMA_256;
}

/* A grid's blocks of outputs, of as many parts for each. */
static uint32_t count_blocks(const linear_work *w, linear_group *group, uint32_t outputs)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        group->of[i] = w->p[i];
        group->end[i] = end += groups_of(w->p[i].n_out, outputs);
    }
    return end;
}

static void launch_few(const linear_work *w, linear_grid g)
{
    linear_group group = {};
    for (uint32_t i = 0; i < w->n; i++) {
        const linear_args *p = &w->p[i];
        g.x += w->type == CUDA_TYPE_F32 ? groups_of(p->n_out, LINEAR_WARPS)
                                        : groups_of(p->n_parts, LINEAR_WARPS / p->splits);
        group.of[i] = *p;
        group.end[i] = g.x;
    }
    g.y = group.tiles = g.kernel == LINEAR_FEW_16 ? groups_of(w->tiles, 2) : w->tiles;
    g.z = w->p[0].heads ? w->p[0].heads : 1;
    g.second = w->second;
    group.alike = w->alike;
    launch(w->type, &group, &g);
}

/* Each range has its own blocks, whose sums go to scratch; returns how many ranges there are. */
static uint32_t split_ranges(linear_work *w)
{
    float *scratch = w->scratch;
    uint32_t splits = 1;
    for (uint32_t i = 0; i < w->n; i++) {
        w->p[i].scratch = scratch;
        w->p[i].scratch_rows = w->rows;
        scratch += static_cast<size_t>(w->p[i].splits) * w->rows * w->p[i].n_out;
        splits = w->p[i].splits > splits ? w->p[i].splits : splits;
    }
    return splits;
}

static void launch_many(const cuda_at *at, linear_work *w, linear_grid g)
{
    const uint32_t half = processors_of(at) / 2, few = half < FEW_BLOCKS ? half : FEW_BLOCKS;
    const bool by_mma = g.kernel == LINEAR_MANY_64 || g.kernel == LINEAR_MANY_128;
    const linear_args *p = &w->p[0];
    linear_group group = {};
    const uint32_t outputs = g.kernel == LINEAR_WGMMA_256 ? 2 * MANY_OUTPUTS : MANY_OUTPUTS;
    const uint32_t block_rows =
        g.kernel == LINEAR_MANY_64 || g.kernel == LINEAR_WGMMA_64 ? 64 : MANY_ROWS;
    const uint32_t row_blocks = groups_of(w->rows, block_rows);
    const uint32_t blocks = count_blocks(w, &group, outputs);
    const uint32_t narrow = blocks * (outputs / MANY_OUTPUTS); /* cuda_linear_scratch's */
    bool ranges = false;
    g.z = p->first ? p->n_expert : p->heads ? p->heads : 1;
    for (uint32_t i = 0; i < w->n && w->scratch && narrow * row_blocks < few; i++)
        ranges |= w->p[i].splits > 1;
    if (ranges) {
        g.z = split_ranges(w);
        (void)count_blocks(w, &group, outputs);
    }
    g.x = by_mma ? blocks : row_blocks;
    g.y = by_mma ? row_blocks : blocks;
    if (by_mma && p->first) { /* its experts are in the middle */
        g.y = p->n_expert;
        g.z = row_blocks;
    }
    launch(w->type, &group, &g);
    if (ranges) {
        const uint32_t merges = count_blocks(w, &group, MERGE_OUTPUTS);
        CUDA_LAUNCH_NEXT(linear_merge, dim3(merges, w->rows), MERGE_OUTPUTS, 0, g.stream, group);
    }
}

static bool is_few(linear_kernel kernel)
{
    return kernel == LINEAR_FEW_8 || kernel == LINEAR_FEW_16;
}

static void multiply(const cuda_at *at, linear_work *w)
{
    linear_grid g = {};
    g.kernel = kernel_for(at, w);
    g.second = -1;
    g.stream = at->stream;
    if (is_few(g.kernel))
        return launch_few(w, g);
    if (at->wgmma)
        return launch_many(at, w, g);
    for (uint32_t i = 0; i < w->n; i++) { /* linear_many has one product */
        linear_work one = *w;
        one.p[0] = w->p[i];
        one.n = 1;
        launch_many(at, &one, g);
    }
}

/* Takes those of ops[from ..] that no launch has and that `with` may be launched with. */
static void gather(linear_work *w,
                   const struct cuda_linear *ops,
                   const linear_args *all,
                   uint32_t from,
                   uint32_t n,
                   int (*with)(int, int),
                   bool done[])
{
    for (uint32_t i = from; i < n; i++) {
        if (done[i] || !with(w->type, ops[i].w.type))
            continue;
        done[i] = true;
        w->p[w->n++] = all[i];
    }
}

/* All products, those that lie alike together. */
static void multiply_all(const cuda_at *at,
                         const struct cuda_linear *ops,
                         const linear_args *all,
                         uint32_t n,
                         linear_work w)
{
    bool done[CUDA_LINEAR_GROUP] = {};
    for (uint32_t i = 0; i < n; i++) {
        if (done[i])
            continue;
        w.n = 0;
        w.type = ops[i].w.type;
        gather(&w, ops, all, i, n, cuda_matrix_alike, done);
        w.alike = w.n;
        if (is_few(kernel_for(at, &w)))
            gather(&w, ops, all, i, n, linear_two, done);
        w.second = w.n > w.alike ? CUDA_TYPE_Q6_K : -1;
        multiply(at, &w);
    }
}

extern "C" void cuda_linear(const cuda_at *at, const struct cuda_linear *ops, uint32_t n)
{
    linear_args all[CUDA_LINEAR_GROUP];
    linear_work w = {};
    w.rows = cuda_rows_bound(at);
    w.tiles = groups_of(w.rows, CUDA_ACT_ROWS);
    w.scratch = ops[0].act.heads ? NULL : ops[0].scratch;
    for (uint32_t i = 0; i < n; i++) {
        all[i] = args_of(&ops[i], w.rows);
        all[i].n_rows = linear_row_count(at);
        all[i].act_head_bytes =
            ops[i].act.in_step ? cuda_act_bytes(ops[i].act.forms, w.rows, ops[i].act.k) : 0;
    }
    if (w.rows > 0)
        multiply_all(at, ops, all, n, w);
}

extern "C" void cuda_experts_linear(const cuda_at *at,
                                    const cuda_experts *x,
                                    const struct cuda_linear *ops,
                                    uint32_t n)
{
    const uint32_t places = linear_place_bound(at, x);
    linear_args all[CUDA_LINEAR_GROUP];
    linear_work w = {};
    w.rows = cuda_rows_bound(at) * x->n_used / x->n_expert; /* of an expert */
    w.tiles = groups_of(places, CUDA_ACT_ROWS);
    for (uint32_t i = 0; i < n; i++) {
        all[i] = args_of(&ops[i], places);
        all[i].first = x->first;
        all[i].n_expert = x->n_expert;
    }
    if (places > 0)
        multiply_all(at, ops, all, n, w);
}
