/* Matrix products: which kernel, how many blocks, and the sum of ranges that had blocks of their
 * own.
 *
 *      rows <= 16     linear_few: memory's speed is all there is (a second tile of 8 rows, begun at
 *                     the same time, finds the weights in the second-level cache)
 *      more           linear_many; with a block for each range of K where there would be less than
 *                     half as many blocks as processors
 *
 * All give the same bits (linear_tiles.cuh), so the bounds of the launch may decide. Experts:
 * linear_few as long as an expert has about one tile of rows. */
#include "backend/cuda/linear_tiles.cuh"

static constexpr uint32_t FEW_ROWS = 16, FEW_BLOCKS = 64;

static uint32_t groups_of(uint32_t n, uint32_t size)
{
    return n / size + (n % size != 0);
}

static int is_wide(const cuda_at *at)
{
    return at->block_shared >= CUDA_SHARED_WIDE;
}

/* Rows of a block of linear_many. */
static uint32_t many_rows(const cuda_at *at, uint32_t rows)
{
    return rows <= 64 || !is_wide(at) ? 64 : 128;
}

/* Rows up to which ranges have blocks of their own. */
static uint32_t scratch_rows_of(uint32_t n_out)
{
    return FEW_BLOCKS / groups_of(n_out, MANY_PARTS * CUDA_PART_ROWS) * 128;
}

extern "C" size_t cuda_linear_scratch(uint32_t max_rows, uint32_t n_in, uint32_t n_out)
{
    const uint32_t most = scratch_rows_of(n_out);
    const uint32_t rows = max_rows <= FEW_ROWS ? 0 : max_rows < most ? max_rows : most;
    const uint32_t splits = linear_splits(cuda_chunks(n_in), groups_of(n_out, CUDA_PART_ROWS));
    return splits > 1 ? static_cast<size_t>(splits) * rows * n_out * sizeof(float) : 0;
}

/* out = (part[0] + part[1] + ...), finished as the others do. grid: (256 outputs, rows). */
static __global__ void __launch_bounds__(256) linear_merge(const linear_args p)
{
    const uint32_t j = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y;
    if (row >= *p.n_rows || j >= p.n_out)
        return;
    const size_t step = static_cast<size_t>(p.scratch_rows) * p.n_out;
    const float *part = p.scratch + static_cast<size_t>(row) * p.n_out + j;
    float total = part[0];
    for (uint32_t i = 1; i < p.splits; i++)
        total = __fadd_rn(total, part[i * step]);
    linear_store(p, 0, row, j, total, linear_factor(p, row));
}

/* Whose kernels: those of linear_k.cu, else of linear_block.cu (or of the floats). */
static bool is_k(int type)
{
    return type >= CUDA_TYPE_Q2_K && type <= CUDA_TYPE_Q6_K;
}

static linear_args args_of(const struct cuda_linear *op)
{
    const cuda_matrix *w = &op->w;
    const int type = cuda_stored_as(w->type);
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
    p.unit = layout.form == CUDA_ACT_F16
                 ? (is_k(type) ? linear_k_unit(type) : linear_block_unit(type))
                 : 1;
    p.act = op->act.data;
    p.act_tile_bytes = cuda_act_tile_bytes(op->act.forms, op->act.k);
    p.act_offset = cuda_act_offset(op->act.forms, layout.form, op->act.k);
    p.scaled = layout.form == CUDA_ACT_F16 || layout.form == CUDA_ACT_F16_PAIR;
    p.out = op->out;
    p.bias = op->bias;
    p.factors = op->factors;
    p.add = op->add;
    p.heads = op->act.heads;
    p.out_step = op->out_step;
    return p;
}

static void launch(int type, const linear_args *p, const linear_grid *g)
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

/* Blocks of a product in a grid of those that take 8 rows a block. */
static uint32_t few_blocks(int type, const linear_args *p)
{
    return type == CUDA_TYPE_F32 ? groups_of(p->n_out, LINEAR_WARPS)
                                 : groups_of(p->n_parts, LINEAR_WARPS / p->splits);
}

/* Products of so many tiles of 8 rows: a grid for those that lie alike. */
static void launch_few(
    const cuda_at *at, const int *types, const linear_args *all, uint32_t n, uint32_t tiles)
{
    bool done[CUDA_LINEAR_GROUP] = {};
    for (uint32_t i = 0; i < n; i++) {
        linear_args p[CUDA_LINEAR_GROUP];
        linear_grid g = {};
        for (uint32_t j = i; j < n && !done[i]; j++) {
            if (done[j] || !cuda_matrix_alike(types[i], types[j]))
                continue;
            done[j] = j > i;
            p[g.n] = all[j];
            g.x += few_blocks(types[j], &all[j]);
            g.end[g.n++] = g.x;
        }
        if (g.n == 0)
            continue;
        g.kernel = LINEAR_FEW;
        g.y = tiles;
        g.z = p[0].heads ? p[0].heads : 1;
        g.wide = is_wide(at);
        g.stream = at->stream;
        launch(types[i], p, &g);
    }
}

/* That of linear_many, for matrices that meet about so many rows. */
static linear_grid many_grid(const cuda_at *at, const linear_args *p, uint32_t rows)
{
    linear_grid g = {};
    g.kernel = many_rows(at, rows) == 64 ? LINEAR_MANY_64
               : at->wgmma               ? LINEAR_WGMMA_128
                                         : LINEAR_MANY_128;
    g.x = groups_of(p->n_parts, MANY_PARTS);
    g.y = g.z = g.n = 1;
    g.wide = is_wide(at);
    g.stream = at->stream;
    return g;
}

static void linear_many_rows(const cuda_at *at, const struct cuda_linear *op, linear_args p)
{
    const uint32_t rows = linear_row_bound(at);
    linear_grid g = many_grid(at, &p, rows);
    g.y = groups_of(rows, many_rows(at, rows));
    if (p.heads > 0) {
        g.z = p.heads;
    } else if (p.splits > 1 && rows <= scratch_rows_of(p.n_out)) {
        g.z = p.splits;
        p.scratch = op->scratch;
        p.scratch_rows = rows;
    }
    launch(op->w.type, &p, &g);
    if (p.scratch_rows > 0)
        CUDA_LAUNCH(linear_merge, dim3(groups_of(p.n_out, 256), rows), 256, 0, at->stream, p);
}

extern "C" void cuda_linear(const cuda_at *at, const struct cuda_linear *ops, uint32_t n)
{
    const uint32_t rows = linear_row_bound(at);
    linear_args few[CUDA_LINEAR_GROUP];
    int types[CUDA_LINEAR_GROUP];
    uint32_t n_few = 0;
    for (uint32_t i = 0; i < n && rows > 0; i++) {
        linear_args p = args_of(&ops[i]);
        p.n_rows = linear_row_count(at);
        p.act_head_bytes =
            ops[i].act.in_step ? cuda_act_bytes(ops[i].act.forms, rows, ops[i].act.k) : 0;
        if (rows <= FEW_ROWS || ops[i].w.type == CUDA_TYPE_F32) {
            types[n_few] = ops[i].w.type;
            few[n_few++] = p;
        } else {
            linear_many_rows(at, &ops[i], p);
        }
    }
    launch_few(at, types, few, n_few, groups_of(rows, CUDA_ACT_ROWS));
}

extern "C" void cuda_experts_linear(const cuda_at *at,
                                    const cuda_experts *x,
                                    const struct cuda_linear *ops,
                                    uint32_t n)
{
    const uint32_t places = linear_place_bound(at, x);
    const uint32_t given = linear_row_bound(at) * x->n_used / x->n_expert; /* rows of an expert */
    linear_args few[CUDA_LINEAR_GROUP];
    int types[CUDA_LINEAR_GROUP];
    uint32_t n_few = 0;
    for (uint32_t i = 0; i < n && places > 0; i++) {
        linear_args p = args_of(&ops[i]);
        p.first = x->first;
        p.place_row = x->place_row;
        p.n_expert = x->n_expert;
        if (given <= CUDA_ACT_ROWS || ops[i].w.type == CUDA_TYPE_F32) {
            types[n_few] = ops[i].w.type;
            few[n_few++] = p;
            continue;
        }
        linear_grid g = many_grid(at, &p, given);
        g.y = x->n_expert;
        g.z = given / many_rows(at, given) + 1;
        launch(ops[i].w.type, &p, &g);
    }
    launch_few(at, types, few, n_few, groups_of(places, CUDA_ACT_ROWS));
}
