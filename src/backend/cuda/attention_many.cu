/* Attention on tensor cores where a tile has many queries: chunks of prompts, heads of up to 128.
 *
 * What is summed, and in which order, is what attention_mma.cu sums: no bit tells them apart. But a
 * warp has queries of its own, 16 of the block's 64, over all positions of a tile, so nothing
 * of them leaves its registers, and warps meet only where K and V come:
 *
 *      positions of a tile   | 0 .. 15 | 16 .. 31 | 32 .. 47 | 48 .. 63 |
 *      S = Q K^T of warp w   | S0      | S1       | S2       | S3       |   16 queries
 *      weights, as A of e V  | e0      | e1       | e2       | e3       |   D of S has A's layout
 *      l                     | l0      | l1       | l2       | l3       |   l = (l0 + l1) + (l2 +
 * l3)
 *
 * l0 is what the first warp of the other kernel sums, and so on. Ranges are folded in registers
 * where a block has all of its tile; else their parts go through memory (attention.cu).
 *
 * Copies: with two stages K and V of the next tile are on their way while this one is worked on, a
 * barrier a tile; with one, where a block has the least shared memory (gpu.h), V comes during S
 * and the next K during the rest. They do not stop at a range's end.
 *
 * Operations: 6 a query, position and dim, for Q has two terms. A tile takes 768 products of
 * tensor cores, some 1200 clocks of a processor of an H100, and reads 160 KiB of shared memory (K
 * and V once a warp, Q once), some 1300: bound by both, with two blocks to a processor. */
#include "backend/cuda/attention_mma.cuh"

enum { QUERIES = 64, PARTS = STEP / 16 };

/* Shared memory of a block. */
template <class T, int D, int STAGES> struct many_shared {
    T q[2][QUERIES][D + PAD]; /* high terms, low terms */
    T k[STAGES][STEP][D + PAD];
    T v[STAGES][STEP][D + PAD];
    float scale[QUERIES];
    float slope[QUERIES];
    uint32_t place[QUERIES];
    const uint8_t *at[2][STEP]; /* where a tile's rows lie; NULL: nobody looks there */
};

/* What a thread keeps of rows g and g + 8 of its warp's queries. */
template <int D> struct many_state {
    attn_seen sees[2];
    float m[2], l[2][PARTS]; /* of a range: l is a thread's share, by sixteens of positions */
    float acc[D / 8][4];
    float all_m[2], all_l[2]; /* of the ranges before it */
    float all[D / 8][4];
};

/* The tiles of a block: of ranges first, first + step, ... */
static __device__ __forceinline__ uint32_t tile_after(uint32_t pos, uint32_t step)
{
    const uint32_t next = pos + STEP;
    return next % CUDA_ATTN_RANGE ? next : next + (step - 1) * CUDA_ATTN_RANGE;
}

static __device__ __forceinline__ const uint8_t *row_of_thread(const attn_args &a,
                                                               const attn_tile &t,
                                                               uint32_t head_kv,
                                                               uint32_t pos)
{
    const uint32_t p = pos + threadIdx.x;
    const bool seen = threadIdx.x < STEP && p >= t.seen.from && p < t.seen.end;
    return seen ? kv_at(a.kv, t.table, head_kv, p) : NULL;
}

template <int D>
static __device__ __forceinline__ void many_begin(const attn_args &a,
                                                  const attn_tile &t,
                                                  uint32_t q0,
                                                  many_state<D> *st)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t at =
            q0 + threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4 + static_cast<uint32_t>(h) * 8;
        st->sees[h].from = st->sees[h].end = 0;
        if (at < t.n_query)
            st->sees[h] = attn_sees(a, t.first_pos + at / a.group, t.all);
        st->all_m[h] = LEAST;
        st->all_l[h] = 0.0f;
    }
}

template <int D> static __device__ __forceinline__ void many_begin_range(many_state<D> *st)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        st->m[h] = LEAST;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            st->l[h][p] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            st->acc[i][j] = 0.0f;
}

/* S of the warp's queries and all positions of a tile. */
template <class T, int D, class Shared>
static __device__ __forceinline__ void many_scores(const T (*k)[D + PAD],
                                                   const Shared *s,
                                                   float (&x)[2 * PARTS][4])
{
    const uint32_t lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
    const uint32_t row = lane / 8 % 2 * 8 + lane % 8, col = lane / 16 * 8;
    const T *mine = &k[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
#pragma unroll
    for (int i = 0; i < 2 * PARTS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[i][j] = 0.0f;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t high[4], low[4], b[PARTS][4];
        ldmatrix_x4(high, &s->q[0][first + row][d + col]);
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            ldmatrix_x4(b[p], mine + p * 16 * (D + PAD) + d);
        ldmatrix_x4(low, &s->q[1][first + row][d + col]);
#pragma unroll
        for (int p = 0; p < 2 * PARTS; p++)
            half_of<T>::mma(x[p], high, &b[p / 2][p % 2 * 2]);
#pragma unroll
        for (int p = 0; p < 2 * PARTS; p++)
            half_of<T>::mma(x[p], low, &b[p / 2][p % 2 * 2]);
    }
}

/* Scores to what the softmax takes: as end_scores, slope_scores and mask do. */
template <int D, class Shared>
static __device__ __forceinline__ void many_end_scores(const attn_args &a,
                                                       const Shared *s,
                                                       uint32_t pos,
                                                       const many_state<D> &st,
                                                       float (&x)[2 * PARTS][4])
{
    const uint32_t lane = threadIdx.x % WARP, g = threadIdx.x / WARP * 16 + lane / 4;
    const uint32_t first = pos + lane % 4 * 2;
    const float scale[2] = {s->scale[g], s->scale[g + 8]};
#pragma unroll
    for (int i = 0; i < 8 * PARTS; i++)
        x[i / 4][i % 4] = __fmul_rn(x[i / 4][i % 4], scale[i % 4 / 2]);
    if (a.cap > 0.0f) {
#pragma unroll
        for (int i = 0; i < 8 * PARTS; i++)
            x[i / 4][i % 4] = __fmul_rn(a.cap * LOG2_E, tanhf(x[i / 4][i % 4]));
    }
    if (a.alibi > 0.0f) {
#pragma unroll
        for (int i = 0; i < 8 * PARTS; i++) {
            const uint32_t row = g + static_cast<uint32_t>(i % 4 / 2 * 8);
            x[i / 4][i % 4] = attn_sloped(
                x[i / 4][i % 4], s->slope[row], s->place[row], first + i / 4 * 8 + i % 2);
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (st.sees[h].from <= pos && st.sees[h].end >= pos + STEP)
            continue;
#pragma unroll
        for (int i = 0; i < 4 * PARTS; i++) {
            const uint32_t p = first + i / 2 * 8 + i % 2;
            if (p < st.sees[h].from || p >= st.sees[h].end)
                x[i / 2][h * 2 + i % 2] = LEAST;
        }
    }
}

/* Scores to weights, against the largest so far, which the tile may raise. */
template <class T, int D>
static __device__ __forceinline__ void many_weights(many_state<D> *st,
                                                    const float (&x)[2 * PARTS][4],
                                                    uint32_t (&e)[PARTS][4])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = LEAST;
#pragma unroll
        for (int i = 0; i < 4 * PARTS; i++)
            top = fmaxf(top, x[i / 2][h * 2 + i % 2]);
        top = fmaxf(quad_max(top), st->m[h]);
        const float zero = top == LEAST ? 0.0f : top;
        const float fade = exp2f(__fsub_rn(st->m[h], zero));
        st->m[h] = top;
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            float w[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                w[j] = exp2f(__fsub_rn(x[2 * p + j / 2][h * 2 + j % 2], zero));
            st->l[h][p] = __fmaf_rn(
                st->l[h][p], fade, __fadd_rn(__fadd_rn(w[0], w[1]), __fadd_rn(w[2], w[3])));
#pragma unroll
            for (int j = 0; j < 2; j++)
                e[p][j * 2 + h] = pair(half_of<T>::of(w[2 * j]), half_of<T>::of(w[2 * j + 1]));
        }
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
            st->acc[d][h * 2] = __fmul_rn(st->acc[d][h * 2], fade);
            st->acc[d][h * 2 + 1] = __fmul_rn(st->acc[d][h * 2 + 1], fade);
        }
    }
}

/* A += e V of all positions of a tile. */
template <class T, int D>
static __device__ __forceinline__ void many_values(const T (*v)[D + PAD],
                                                   const uint32_t (&e)[PARTS][4],
                                                   float (&acc)[D / 8][4])
{
    const uint32_t lane = threadIdx.x % WARP;
    const T *mine = &v[lane / 8 % 2 * 8 + lane % 8][lane / 16 * 8];
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
#pragma unroll
        for (int d = 0; d < D / 8; d += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, mine + p * 16 * (D + PAD) + d * 8);
            half_of<T>::mma(acc[d], e[p], b);
            half_of<T>::mma(acc[d + 1], e[p], b + 2);
        }
    }
}

/* A range ends: its sums to a part, or folded into those before it, which after the last are put
 * to `out`. */
template <int D>
static __device__ __forceinline__ void many_put(const attn_args &a,
                                                const attn_tile &t,
                                                uint32_t head_kv,
                                                uint32_t q0,
                                                uint32_t range,
                                                bool is_first,
                                                bool is_last,
                                                many_state<D> *st)
{
    const uint32_t lane = threadIdx.x % WARP, dim = a.n_value;
    const bool split = a.n_splits > 1;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float l = __fadd_rn(__fadd_rn(quad_sum(st->l[h][0]), quad_sum(st->l[h][1])),
                                  __fadd_rn(quad_sum(st->l[h][2]), quad_sum(st->l[h][3])));
        const uint32_t at = q0 + threadIdx.x / WARP * 16 + lane / 4 + static_cast<uint32_t>(h) * 8;
        const uint32_t row = t.first_row + at / a.group, head = head_kv * a.group + at % a.group;
        const bool there = at < t.n_query;
        float *to = NULL, inverse = 1.0f;
        if (split && there) {
            to = attn_part(a, row, head, range);
            if (lane % 4 == 0) {
                to[0] = st->m[h];
                to[1] = l;
            }
            to += PART_HEAD;
        } else if (!split) {
            float old, more;
            attn_fold(&st->all_m[h], &st->all_l[h], st->m[h], l, &old, &more);
#pragma unroll
            for (int i = 0; i < D / 4; i++) {
                float *total = &st->all[i / 2][h * 2 + i % 2];
                const float x = st->acc[i / 2][h * 2 + i % 2];
                *total = is_first ? x : attn_fold_value(*total, x, old, more);
            }
            if (is_last && there) {
                to = a.out.p + row * a.out.stride + static_cast<size_t>(head) * dim;
                inverse = attn_inverse(a, head, st->all_m[h], st->all_l[h]);
            }
        }
#pragma unroll
        for (int i = 0; i < D / 4; i++) {
            const uint32_t d = lane % 4 * 2 + static_cast<uint32_t>(i / 2 * 8 + i % 2);
            if (to && d < dim)
                to[d] = split ? st->acc[i / 2][h * 2 + i % 2]
                              : attn_end_value(st->all[i / 2][h * 2 + i % 2], inverse);
        }
    }
}

/* grid: [n_head_kv][tiles][splits] */
template <class T, int D, int STAGES>
static __global__ void __launch_bounds__(THREADS, 2) attn_many_kernel(struct attn_args a)
{
    cuda_let_next_begin();
    typedef many_shared<T, D, STAGES> shared;
    CUDA_SHARED(shared, s);
    const uint32_t head_kv = blockIdx.x, step = a.n_splits;
    uint32_t r0 = 0, r1 = 0, first = 1, begin = 0; /* nothing */
    attn_tile t = {};
    if (blockIdx.y < early_value(&a.step.counts->n_tiles)) {
        t = attn_tile_of(a, blockIdx.y);
        r0 = t.seen.from / CUDA_ATTN_RANGE;
        r1 = (t.seen.end - 1) / CUDA_ATTN_RANGE;
        first = r0 + (step + blockIdx.z - r0 % step) % step;
        begin = first == r0 ? t.seen.from / STEP * STEP : first * CUDA_ATTN_RANGE;
    }
    if (a.kv.head_dim < D) { /* dims that the head lacks are zero */
        for (uint32_t i = threadIdx.x; i < sizeof(s->k) / 8; i += THREADS) /* both K and V */
            reinterpret_cast<uint4 *>(s->k)[i] = make_uint4(0, 0, 0, 0);
    }
    cuda_wait_before();
    if (first > r1 || t.n_query <= a.lone)
        return;
    for (uint32_t q0 = 0; q0 < t.n_query; q0 += QUERIES) {
        many_state<D> st;
        const bool works = q0 + threadIdx.x / WARP * 16 < t.n_query; /* this warp */
        if (threadIdx.x < STEP) {
            s->at[0][threadIdx.x] = row_of_thread(a, t, head_kv, begin);
            s->at[1][threadIdx.x] = row_of_thread(a, t, head_kv, tile_after(begin, step));
        }
        __syncthreads(); /* it is known where the first tile lies */
        load_rows<T, D>(a, s->at[0], 0, s->k[0]);
        if (STAGES == 2)
            load_rows<T, D>(a, s->at[0], a.kv.half_bytes, s->v[0]);
        cp_async_commit();
        load_queries<T, D, QUERIES / 16>(a, t, head_kv, q0, s);
        many_begin(a, t, q0, &st);
        many_begin_range(&st);
        int turn = 0; /* of the tile at pos; the other one of `at` is the next tile's */
        for (uint32_t pos = begin, next; pos < t.seen.end; pos = next, turn ^= 1) {
            next = tile_after(pos, step);
            const bool more = next < t.seen.end;
            const int stage = turn % STAGES;
            float x[2 * PARTS][4];
            uint32_t e[PARTS][4];
            cp_async_wait<0>();
            __syncthreads(); /* K (and V) is there; the tile before has been read */
            if (STAGES == 1)
                load_rows<T, D>(a, s->at[turn], a.kv.half_bytes, s->v[0]);
            else if (more) {
                load_rows<T, D>(a, s->at[turn ^ 1], 0, s->k[(turn + 1) % STAGES]);
                load_rows<T, D>(a, s->at[turn ^ 1], a.kv.half_bytes, s->v[(turn + 1) % STAGES]);
            }
            cp_async_commit();
            const uint8_t *ahead = row_of_thread(a, t, head_kv, tile_after(next, step));
            if (works)
                many_scores<T, D>(s->k[stage], s, x);
            if (STAGES == 1) {
                __syncthreads(); /* K has been read */
                if (more)
                    load_rows<T, D>(a, s->at[turn ^ 1], 0, s->k[0]);
                cp_async_commit();
            }
            if (works) {
                many_end_scores(a, s, pos, st, x);
                many_weights<T>(&st, x, e);
            }
            if (STAGES == 1) {
                cp_async_wait<1>();
                __syncthreads(); /* V is there */
            }
            if (works)
                many_values<T, D>(s->v[stage], e, st.acc);
            if (threadIdx.x < STEP)
                s->at[turn][threadIdx.x] = ahead;
            const uint32_t range = pos / CUDA_ATTN_RANGE;
            if (works && (!more || next / CUDA_ATTN_RANGE != range)) {
                many_put(a, t, head_kv, q0, range, range == r0, range == r1, &st);
                many_begin_range(&st);
            }
        }
        __syncthreads(); /* all has been read */
    }
}

/* --- the host's --- */

template <class T, int D, int STAGES>
static void launch(const struct attn_args *a, dim3 grid, cudaStream_t stream)
{
    const auto kernel = attn_many_kernel<T, D, STAGES>;
    constexpr size_t bytes = sizeof(many_shared<T, D, STAGES>);
    static_assert(bytes <= (D == 128 && STAGES > 1 ? CUDA_SHARED_HOPPER / 2 : CUDA_SHARED_LEAST),
                  "what a device has");
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    CUDA_LAUNCH_NEXT(kernel, grid, THREADS, bytes, stream, *a);
}

template <class T>
static void launch_for(const struct attn_args *a, dim3 grid, uint32_t shared, cudaStream_t stream)
{
    if (a->kv.head_dim <= 64)
        launch<T, 64, 2>(a, grid, stream);
    else if (shared < CUDA_SHARED_HOPPER) /* of two stages one block fits on a processor */
        launch<T, 128, 1>(a, grid, stream);
    else
        launch<T, 128, 2>(a, grid, stream);
}

void attn_many_launch(const attn_args *a, dim3 grid, uint32_t shared, cudaStream_t stream)
{
    if (a->kv.type == KV_IS_BF16)
        launch_for<__nv_bfloat16>(a, grid, shared, stream);
    else
        launch_for<__half>(a, grid, shared, stream);
}
