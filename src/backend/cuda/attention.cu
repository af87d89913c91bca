/* Attention over paged K and V: how the work is cut, the plain kernel, and the merge.
 *
 * Rows of a sequence attend in tiles: up to 64 queries (rows x heads of a KV head), so that what is
 * read of K and V serves them all. Positions come in tiles of one size, aligned to the absolute
 * position, and in ranges of CUDA_ATTN_RANGE, each summed by itself (attention.cuh).
 *
 *      grid         [n_head_kv][tiles][splits]        splits: so many that the device is full
 *      splits = 1   a block folds its ranges into `out` as they come: most prompts
 *      splits > 1   block z sums ranges z, z + splits, ... into parts; the merge folds a row's
 *
 *      positions    0       256      512      768     900
 *                   |   0   |   1    |   2    |  3  |         ranges of a row at 899
 *                     z=0     z=1      z=2      z=0           of 3 splits
 *
 * Both ways fold the same ranges in the same order with the same operations: no bit tells them
 * apart. The kernels for tensor cores are those of attention_mma.cu, attention_many.cu and
 * attention_long.cu. The one here multiplies in f32: for KV of f32, of which a model's tests need
 * all bits.
 *
 *      scores    lane p of a warp has position p of 32; a warp has every fourth query:
 *                s = sum over d, in order, of q[d] k[p][d]
 *      values    thread t has dims t, t + 128, ..: acc[d] = acc[d] c + sum over p, in order,
 *                of e[p] v[p][d]
 *
 * K and V of a tile lie beside each other in shared memory; of heads of more than 256 V takes the
 * place of K, so that a block needs no more than every device has (gpu.h). With a latent V is where
 * K is.
 *
 * Operations: 4 a query, position and dim; bytes: K and V once for each tile of queries. Bound on
 * an H200 for decode: the bytes of K and V at 4.8 TB/s, reached by the tensor cores' kernel only;
 * this one is bound by f32 FMA from shared memory, some 15 TFLOP/s. */
#include "backend/cuda/attention.cuh"

enum {
    THREADS = 128,
    WARPS = THREADS / WARP,
    STEP = 32,       /* positions a tile */
    BLOCKS_EACH = 4, /* of a processor, where ranges are divided between blocks */
    LONE = 16,       /* queries of a tile that attn_mma takes from attn_many */
    MERGE_THREADS = 128,
    MERGE_AHEAD = 8, /* parts of a row that are asked for at once */
};
static constexpr uint32_t LARGE = 132; /* processors of a large device */
#define MOST_PARTS_BYTES ((size_t)256 << 20)

static __device__ __forceinline__ float kv_value(const uint8_t *row,
                                                 int type,
                                                 uint32_t dim,
                                                 uint32_t d)
{
    switch (type) {
    case KV_IS_F32:
        return reinterpret_cast<const float *>(row)[d];
    case KV_IS_F16:
        return __half2float(reinterpret_cast<const __half *>(row)[d]);
    case KV_IS_BF16:
        return __bfloat162float(reinterpret_cast<const __nv_bfloat16 *>(row)[d]);
    default:
        return static_cast<float>(reinterpret_cast<const int8_t *>(row)[d]) *
               reinterpret_cast<const float *>(row + dim)[d / 32];
    }
}

/* K (or V, offset bytes on) of the tile at pos; zeros where nobody looks, since what lies there may
 * be anything. */
static __device__ void load_step(const attn_args &a,
                                 const attn_tile &t,
                                 uint32_t head_kv,
                                 uint32_t pos,
                                 size_t offset,
                                 float *to)
{
    const uint32_t dim = a.kv.head_dim, stride = dim + 4;
    for (uint32_t p = threadIdx.x / WARP; p < STEP; p += WARPS) {
        const bool seen = pos + p >= t.seen.from && pos + p < t.seen.end;
        const uint8_t *row = seen ? kv_at(a.kv, t.table, head_kv, pos + p) + offset : NULL;
        for (uint32_t d = threadIdx.x % WARP; d < dim; d += WARP)
            to[p * stride + d] = seen ? kv_value(row, a.kv.type, dim, d) : 0.0f;
    }
}

/* Shared memory of a block that takes Q queries: what has `dim` in its size lies behind it. */
template <int Q> struct plain_shared {
    float e[Q][STEP]; /* weights of the tile */
    float fade[Q];    /* by what a query's values shrink with it */
    float m[Q], l[Q]; /* of a range, */
    float total_m[Q], total_l[Q];
    float old[Q], more[Q], inverse[Q]; /* by what values are multiplied as it is folded */
};

/* What a warp keeps of its queries: warp w has queries w, w + 4, ... */
template <int N> struct plain_state {
    attn_seen sees[N];
    uint32_t place[N];
    float slope[N];
    float m[N], l[N];
};

/* Scores of position `lane` and the warp's queries, then weights. */
template <int Q>
static __device__ __forceinline__ void plain_weights(const attn_args &a,
                                                     uint32_t pos,
                                                     const float *q,
                                                     const float *k,
                                                     plain_shared<Q> *s,
                                                     plain_state<Q / WARPS> *st)
{
    enum { N = Q / WARPS };
    const uint32_t dim = a.kv.head_dim, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float x[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = 0.0f;
    k += lane * (dim + 4);
    q += warp * dim;
    for (uint32_t d = 0; d < dim; d += 4) {
        const float4 kd = *reinterpret_cast<const float4 *>(k + d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float4 qd = *reinterpret_cast<const float4 *>(q + i * WARPS * dim + d);
            x[i] = __fmaf_rn(kd.x, qd.x, x[i]);
            x[i] = __fmaf_rn(kd.y, qd.y, x[i]);
            x[i] = __fmaf_rn(kd.z, qd.z, x[i]);
            x[i] = __fmaf_rn(kd.w, qd.w, x[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] = __fmul_rn(x[i], a.scale);
        if (a.cap > 0.0f)
            x[i] = __fmul_rn(a.cap, tanhf(x[i] / a.cap));
        x[i] = __fmul_rn(x[i], LOG2_E);
        if (a.alibi > 0.0f)
            x[i] = attn_sloped(x[i], st->slope[i], st->place[i], pos + lane);
        if (pos + lane < st->sees[i].from || pos + lane >= st->sees[i].end)
            x[i] = LEAST;
        const float top = fmaxf(st->m[i], warp_max(x[i]));
        const float zero = top == LEAST ? 0.0f : top;
        const float weight = exp2f(__fsub_rn(x[i], zero)), fade = exp2f(__fsub_rn(st->m[i], zero));
        st->m[i] = top;
        st->l[i] = __fmaf_rn(st->l[i], fade, weight);
        s->e[i * WARPS + warp][lane] = weight;
        if (lane == 0)
            s->fade[i * WARPS + warp] = fade;
    }
}

/* acc = acc fade + sum over positions, in order, of e v. */
template <int Q, int SLOTS>
static __device__ __forceinline__ void plain_values(
    uint32_t dim, uint32_t stride, const float *v, const plain_shared<Q> *s, float (&acc)[Q][SLOTS])
{
#pragma unroll
    for (int j = 0; j < SLOTS; j++) {
        const uint32_t d = threadIdx.x + j * THREADS;
        if (d < dim) {
#pragma unroll
            for (int i = 0; i < Q; i++)
                acc[i][j] = __fmul_rn(acc[i][j], s->fade[i]);
#pragma unroll 1
            for (int p = 0; p < STEP; p++) {
                const float x = v[p * stride + d];
#pragma unroll
                for (int i = 0; i < Q; i++)
                    acc[i][j] = __fmaf_rn(s->e[i][p], x, acc[i][j]);
            }
        }
    }
}

/* The range's m and l in shared memory, and how it is folded into those before it. */
template <int Q>
static __device__ __forceinline__ void plain_fold(const attn_args &a,
                                                  uint32_t head_kv,
                                                  uint32_t q0,
                                                  const plain_state<Q / WARPS> *st,
                                                  plain_shared<Q> *s)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int i = 0; i < Q / WARPS; i++) {
        const float l = warp_sum(st->l[i]);
        const uint32_t at = i * WARPS + warp, head = head_kv * a.group + (q0 + at) % a.group;
        if (lane == 0) {
            s->m[at] = st->m[i];
            s->l[at] = l;
            attn_fold(&s->total_m[at], &s->total_l[at], st->m[i], l, &s->old[at], &s->more[at]);
            s->inverse[at] = attn_inverse(a, head, s->total_m[at], s->total_l[at]);
        }
    }
}

/* A range's sums to parts, or folded into what `out` holds of those before it. */
template <int Q, int SLOTS>
static __device__ __forceinline__ void plain_put(const attn_args &a,
                                                 const attn_tile &t,
                                                 uint32_t head_kv,
                                                 uint32_t q0,
                                                 uint32_t range,
                                                 bool is_first,
                                                 bool is_last,
                                                 const plain_shared<Q> *s,
                                                 const float (&acc)[Q][SLOTS])
{
    const uint32_t dim = a.n_value;
    const bool split = a.n_splits > 1;
#pragma unroll
    for (int i = 0; i < Q; i++) {
        const uint32_t at = q0 + i;
        if (at < t.n_query) {
            const uint32_t row = t.first_row + at / a.group;
            const uint32_t head = head_kv * a.group + at % a.group;
            float *out = a.out.p + row * a.out.stride + static_cast<size_t>(head) * dim;
            if (split) {
                out = attn_part(a, row, head, range);
                if (threadIdx.x == 0) {
                    out[0] = s->m[i];
                    out[1] = s->l[i];
                }
                out += PART_HEAD;
            }
#pragma unroll
            for (int j = 0; j < SLOTS; j++) {
                const uint32_t d = threadIdx.x + j * THREADS;
                if (d < dim) {
                    float x = acc[i][j];
                    if (!split && !is_first)
                        x = attn_fold_value(out[d], x, s->old[i], s->more[i]);
                    out[d] = !split && is_last ? attn_end_value(x, s->inverse[i]) : x;
                }
            }
        }
    }
}

template <int Q>
static __device__ void plain_begin(const attn_args &a,
                                   const attn_tile &t,
                                   uint32_t head_kv,
                                   uint32_t q0,
                                   float *q,
                                   plain_shared<Q> *s,
                                   plain_state<Q / WARPS> *st)
{
    const uint32_t dim = a.kv.head_dim;
    for (uint32_t i = threadIdx.x; i < Q * dim; i += THREADS) {
        const uint32_t at = q0 + i / dim;
        const float *from = a.q.p + (t.first_row + at / a.group) * a.q.stride +
                            static_cast<size_t>(head_kv * a.group + at % a.group) * dim;
        q[i] = at < t.n_query ? from[i % dim] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < Q / WARPS; i++) {
        const uint32_t at = q0 + i * WARPS + threadIdx.x / WARP;
        st->sees[i].from = st->sees[i].end = 0;
        st->place[i] = t.first_pos + at / a.group;
        st->slope[i] = a.alibi > 0.0f ? attn_slope(a, head_kv * a.group + at % a.group) : 0.0f;
        if (at < t.n_query)
            st->sees[i] = attn_sees(a, t.first_pos + at / a.group, t.all);
        if (threadIdx.x % WARP == 0) {
            s->total_m[i * WARPS + threadIdx.x / WARP] = LEAST;
            s->total_l[i * WARPS + threadIdx.x / WARP] = 0.0f;
        }
    }
    __syncwarp();
}

/* SLOTS: dims a thread; Q: queries taken at a time. grid: [n_head_kv][tiles][splits] */
template <int SLOTS, int Q>
static __global__ void __launch_bounds__(THREADS) attn_plain_kernel(struct attn_args a)
{
    cuda_let_next_begin();
    cuda_wait_before();
    CUDA_SHARED(float, shared);
    __shared__ plain_shared<Q> s;
    if (blockIdx.y >= a.step.counts->n_tiles)
        return;
    const uint32_t head_kv = blockIdx.x, dim = a.kv.head_dim;
    const attn_tile t = attn_tile_of(a, blockIdx.y);
    const bool turns = SLOTS > 2 && !a.kv.latent; /* there is room for one of K and V */
    const bool beside = SLOTS <= 2 && !a.kv.latent;
    float *q = shared, *k = q + Q * dim, *v = beside ? k + STEP * (dim + 4) : k;
    const uint32_t r0 = t.seen.from / CUDA_ATTN_RANGE, r1 = (t.seen.end - 1) / CUDA_ATTN_RANGE;
    const uint32_t step = a.n_splits, first = r0 + (step + blockIdx.z - r0 % step) % step;
    for (uint32_t q0 = 0; q0 < t.n_query; q0 += Q) {
        plain_state<Q / WARPS> st;
        plain_begin(a, t, head_kv, q0, q, &s, &st);
        for (uint32_t r = first; r <= r1; r += step) {
            const uint32_t begin = r * CUDA_ATTN_RANGE, end = begin + CUDA_ATTN_RANGE;
            const uint32_t last = end < t.seen.end ? end : t.seen.end;
            float acc[Q][SLOTS];
#pragma unroll
            for (int i = 0; i < Q * SLOTS; i++)
                acc[i / SLOTS][i % SLOTS] = 0.0f;
#pragma unroll
            for (int i = 0; i < Q / WARPS; i++) {
                st.m[i] = LEAST;
                st.l[i] = 0.0f;
            }
            uint32_t pos = t.seen.from / STEP * STEP;
            for (pos = pos > begin ? pos : begin; pos < last; pos += STEP) {
                __syncthreads(); /* the tile before has been read */
                load_step(a, t, head_kv, pos, 0, k);
                if (beside)
                    load_step(a, t, head_kv, pos, a.kv.half_bytes, v);
                __syncthreads();
                plain_weights<Q>(a, pos, q, k, &s, &st);
                __syncthreads();
                if (turns) {
                    load_step(a, t, head_kv, pos, a.kv.half_bytes, v);
                    __syncthreads();
                }
                plain_values(a.n_value, dim + 4, v, &s, acc);
            }
            plain_fold<Q>(a, head_kv, q0, &st, &s);
            __syncthreads();
            plain_put(a, t, head_kv, q0, r, r == r0, r == r1, &s, acc);
            __syncthreads();
        }
    }
}

/* All parts of a row's head, from the first range that it sees to the last. grid: [rows][n_head] */
static __global__ void attn_merge_kernel(struct attn_args a)
{
    cuda_let_next_begin();
    const uint32_t row = blockIdx.x, head = blockIdx.y, dim = a.n_value;
    const bool there = row < early_value(&a.step.counts->n_rows);
    attn_seen sees = {0, 1};
    if (there) {
        const cuda_seq seq = early_struct(&a.step.seqs[early_value(&a.step.row_seq[row])]);
        sees = attn_sees(a, early_value(&a.step.positions[row]), seq.first_pos + seq.n_rows);
    }
    cuda_wait_before();
    if (!there)
        return;
    const uint32_t r0 = sees.from / CUDA_ATTN_RANGE, r1 = (sees.end - 1) / CUDA_ATTN_RANGE;
    const size_t step = dim + PART_HEAD;
    for (uint32_t d = threadIdx.x; d < dim; d += MERGE_THREADS) {
        const float *part = attn_part(a, row, head, r0);
        float m = LEAST, l = 0.0f, total = 0.0f;
        for (uint32_t r = r0; r <= r1; r += MERGE_AHEAD, part += MERGE_AHEAD * step) {
            float range_m[MERGE_AHEAD], range_l[MERGE_AHEAD], value[MERGE_AHEAD];
#pragma unroll
            for (uint32_t i = 0; i < MERGE_AHEAD; i++) { /* of all before the first is needed */
                const float *p = part + (r + i <= r1 ? i : 0) * step;
                range_m[i] = p[0];
                range_l[i] = p[1];
                value[i] = p[PART_HEAD + d];
            }
#pragma unroll
            for (uint32_t i = 0; i < MERGE_AHEAD; i++) {
                float old, more;
                if (r + i > r1)
                    break;
                attn_fold(&m, &l, range_m[i], range_l[i], &old, &more);
                total = r + i == r0 ? value[i] : attn_fold_value(total, value[i], old, more);
            }
        }
        a.out.p[row * a.out.stride + (size_t)head * dim + d] =
            attn_end_value(total, attn_inverse(a, head, m, l));
    }
}

/* --- the host's --- */

uint32_t cuda_attention_tiles(const struct cuda_attention_shape *s,
                              const struct cuda_seq *seqs,
                              uint32_t n_seqs,
                              struct cuda_tile *tiles)
{
    const uint32_t group = s->n_head / s->n_head_kv, queries = s->head_dim <= 128 ? 64 : 32;
    const uint32_t rows = group < queries ? queries / group : 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_seqs; i++) {
        const uint32_t of_seq = (seqs[i].n_rows + rows - 1) / rows;
        for (uint32_t k = of_seq; k-- > 0;) { /* the last first: it sees most, and takes longest */
            const uint32_t r = k * rows, left = seqs[i].n_rows - r;
            tiles[n++] = cuda_tile{
                i, seqs[i].first_row + r, left < rows ? left : rows, seqs[i].first_pos + r};
        }
    }
    return n;
}

/* Blocks that share a tile's ranges: as many as it takes to fill the device. With many queries a
 * tile of one sequence one does where that makes three for two processors: it folds them in
 * registers, and more blocks would bring parts through memory. One, too, where parts would need too
 * much room. */
static uint32_t n_splits(const struct cuda_attention_shape *s,
                         const struct cuda_at *at,
                         bool many,
                         uint32_t blocks_a_head,
                         size_t *parts_bytes)
{
    const struct cuda_bounds *b = &at->bounds;
    const size_t row = (size_t)s->n_head * b->ranges * (s->head_dim + PART_HEAD) * sizeof(float);
    const uint32_t processors = at->processors ? at->processors : LARGE;
    const uint32_t blocks = b->tiles * s->n_head_kv * blocks_a_head;
    const uint32_t wanted = BLOCKS_EACH * processors;
    const bool enough = many && b->seqs == 1 ? 2 * blocks >= 3 * processors : blocks >= wanted;
    uint32_t n = blocks && !enough ? (wanted + blocks - 1) / blocks : 1;
    n = n < b->ranges ? n : b->ranges;
    *parts_bytes = 0;
    if (n <= 1 || row > MOST_PARTS_BYTES / b->rows)
        return 1;
    *parts_bytes = row * b->rows;
    return n;
}

/* Launches for less than the most may be split where that one is not: what any of them takes is at
 * most what rows of the most would, up to the limit. */
size_t cuda_attention_scratch(const struct cuda_attention_shape *s, const struct cuda_bounds *most)
{
    const size_t row = (size_t)s->n_head * most->ranges * (s->head_dim + PART_HEAD) * sizeof(float);
    if (most->ranges <= 1 || most->rows == 0)
        return 0;
    return row > MOST_PARTS_BYTES / most->rows ? MOST_PARTS_BYTES : row * most->rows;
}

static size_t plain_bytes(const struct attn_args *a, uint32_t queries)
{
    const uint32_t dim = a->kv.head_dim;
    /* K and V take turns, or are one, or lie beside each other */
    const size_t tiles = a->n_value > 256 || a->kv.latent ? 1 : 2;
    return sizeof(float) * ((size_t)queries * dim + tiles * STEP * (dim + 4));
}

typedef void (*plain_kernel)(struct attn_args);

static void plain_launch(const struct attn_args *a, dim3 grid, cudaStream_t stream)
{
    /* of longer keys fewer queries fit beside a tile, however short V is */
    const uint32_t most = CUDA_ATTN_MOST_DIM, dim = a->kv.head_dim > most ? most : a->n_value;
    const uint32_t queries = dim > 256 ? 8 : 16;
    const plain_kernel kernel = dim <= 128   ? attn_plain_kernel<1, 16>
                                : dim <= 256 ? attn_plain_kernel<2, 16>
                                             : attn_plain_kernel<4, 8>;
    /* the kernel's, not the launch's: layers' heads differ, and graphs keep the launches of all */
    const int allowed = CUDA_SHARED_LEAST - sizeof(plain_shared<16>);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, allowed);
    CUDA_LAUNCH_NEXT(kernel, grid, THREADS, plain_bytes(a, queries), stream, *a);
}

void cuda_attention(const struct cuda_at *at, const struct cuda_attention *op)
{
    const struct cuda_bounds *b = &at->bounds;
    const struct cuda_attention_shape shape = {op->n_head, op->kv.n_head_kv, op->kv.head_dim};
    if (b->rows == 0 || b->tiles == 0)
        return;
    struct attn_args a = {};
    size_t parts_bytes;
    a.step = at->step;
    a.q = op->q;
    a.out = op->out;
    a.kv = op->kv;
    a.n_head = op->n_head;
    a.group = op->n_head / op->kv.n_head_kv;
    a.scale = op->scale;
    a.cap = op->cap;
    a.window = op->window;
    a.window_kind = op->window_kind;
    a.n_value = op->kv.latent ? op->kv.latent : op->kv.head_dim;
    a.causal = op->causal;
    a.sinks = op->sinks;
    a.alibi = op->alibi;
    a.n_ranges = b->ranges;
    const bool is_plain = op->kv.type == KV_IS_F32, few = b->rows <= b->seqs;
    const bool is_long = !is_plain && (op->kv.latent || op->kv.head_dim > ATTN_MMA_MOST);
    const bool is_many = !is_plain && !is_long && !few && op->kv.head_dim <= ATTN_MANY_MOST;
    const uint32_t blocks = is_long ? attn_long_blocks(a.group, few, at->block_shared) : 1;
    a.n_splits = n_splits(&shape, at, is_many, blocks, &parts_bytes);
    a.parts = static_cast<float *>(op->scratch);
    const dim3 grid(op->kv.n_head_kv, b->tiles, a.n_splits);
    if (is_plain)
        plain_launch(&a, grid, at->stream);
    else if (is_long)
        attn_long_launch(&a, grid, few, at->block_shared, at->stream);
    else if (is_many) {
        /* a lone row beside a prompt has one warp's queries: all four share its positions instead
         */
        a.lone = b->seqs > 1 ? LONE : 0;
        attn_many_launch(&a, grid, at->block_shared, at->stream);
        if (a.lone > 0)
            attn_mma_launch(&a, grid, 1, at->block_shared, at->stream);
    } else
        attn_mma_launch(&a, grid, few, at->block_shared, at->stream);
    if (a.n_splits > 1) {
        const dim3 rows(b->rows, op->n_head);
        CUDA_LAUNCH_NEXT(attn_merge_kernel, rows, MERGE_THREADS, 0, at->stream, a);
    }
}
