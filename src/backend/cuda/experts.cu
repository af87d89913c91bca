/* Experts: which, where, and the sum of what they gave. Products over places are linear.cu's.
 *
 *      scores [rows][n_expert]   row 0:  .1 .7 .2      row 1:  .6 .1 .3      (n_used 2)
 *      chosen                            1  2                  0  2
 *      places, by expert         expert 0: | row 1 |       1: | row 0 |      2: | row 0 | row 1 |
 *                                          0       (8)        8       (16)     16      17   (24)
 *
 * Each expert's places begin at a multiple of 8, the tile of prepared activations, and are in the
 * order of the rows: where a row is placed depends on its company, its bits do not, since each
 * place is a row of its product like any other. Counting adds integers, in any order; places are
 * counted in order. All of it is a few bytes: bound by the launches, two or three (select, sort,
 * mix: 3 to 10 us). */
#include "backend/cuda/experts.cuh"
#include "backend/cuda/linear_launch.h"

static constexpr uint32_t MOST_EXPERTS = 1024; /* model/experts.c */
static constexpr uint32_t SORT_THREADS = 1024, PLACE_THREADS = 256;

extern "C" uint32_t cuda_experts_most_places(uint32_t n_expert, uint32_t n_used, uint32_t rows)
{
    const uint32_t n = rows * n_used, wanted = n < n_expert ? n : n_expert;
    return (n + wanted * (CUDA_ACT_ROWS - 1)) / CUDA_ACT_ROWS * CUDA_ACT_ROWS;
}

/* --- selection: a warp a row --- */

/* The larger of two candidates, the lower expert of equals; UINT32_MAX: none. */
struct candidate {
    float score;
    uint32_t expert;
};
static __device__ __forceinline__ candidate better(candidate a, candidate b)
{
    if (a.expert == UINT32_MAX || b.expert == UINT32_MAX)
        return a.expert == UINT32_MAX ? b : a;
    const bool first = a.score > b.score || (a.score == b.score && a.expert < b.expert);
    return first ? a : b;
}

/* What experts are ranked by: scores as they are, or probabilities of them, corrected. */
struct ranking {
    const float *scores, *bias;
    int plain, sigmoid;
    float top, sum; /* of all scores: the largest, and the sum of e^(score - top) */
    __device__ __forceinline__ float probability(uint32_t i) const
    {
        if (sigmoid)
            return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-scores[i])));
        return __fdiv_rn(expf(scores[i] - top), sum);
    }
    __device__ __forceinline__ float operator[](uint32_t i) const
    {
        if (plain)
            return scores[i];
        return bias ? __fadd_rn(probability(i), bias[i]) : probability(i);
    }
};

/* The best that is not taken. As a scan from the first on would have it that replaces what it has
 * by what is larger, a NaN counts only where it is the first. Bit i of taken: expert lane + 32 i.
 */
static __device__ __forceinline__ uint32_t best_of(const ranking &rank,
                                                   uint32_t n_expert,
                                                   uint32_t lane,
                                                   uint32_t taken)
{
    candidate best = {0, UINT32_MAX};
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; lane + 32 * i < n_expert; i++) {
        if ((taken >> i) & 1)
            continue;
        const candidate c = {rank[lane + 32 * i], lane + 32 * i};
        first = first < c.expert ? first : c.expert;
        best = c.score == c.score ? better(best, c) : best;
    }
    for (int o = 16; o > 0; o /= 2) {
        candidate c;
        c.score = __shfl_xor_sync(0xffffffffu, best.score, o);
        c.expert = __shfl_xor_sync(0xffffffffu, best.expert, o);
        best = better(best, c);
        const uint32_t f = __shfl_xor_sync(0xffffffffu, first, o);
        first = first < f ? first : f;
    }
    const float at_first = rank[first];
    return at_first == at_first ? best.expert : first;
}

static __device__ __forceinline__ float sum_of_warp(float v)
{
    for (int o = 16; o > 0; o /= 2)
        v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}

/* The lane's experts outside of group g, of n experts each, as bits. */
static __device__ __forceinline__ uint32_t outside(uint32_t n_expert,
                                                   uint32_t lane,
                                                   uint32_t g,
                                                   uint32_t n)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; lane + 32 * i < n_expert; i++)
        bits |= (lane + 32 * i) / n == g ? 0 : 1u << i;
    return bits;
}

/* The largest value in a group, or the sum of the two largest. */
static __device__ float worth_of(
    const ranking &rank, uint32_t n_expert, uint32_t lane, uint32_t g, uint32_t n)
{
    uint32_t taken = outside(n_expert, lane, g, n);
    const uint32_t best = best_of(rank, n_expert, lane, taken);
    if (!rank.bias || n < 2)
        return rank[best];
    taken |= best % 32 == lane ? 1u << best / 32 : 0;
    return __fadd_rn(rank[best], rank[best_of(rank, n_expert, lane, taken)]);
}

/* The lane's experts in the groups that are not among the best, as bits: the best is looked for as
 * often as groups are used, the first of equals before the others. */
static __device__ uint32_t
left_out(const ranking &rank, uint32_t n_expert, uint32_t lane, uint32_t n_groups, uint32_t n_used)
{
    const uint32_t n = n_expert / n_groups;
    uint32_t out = UINT32_MAX, last = UINT32_MAX; /* the group that was kept last, */
    float below = 0;                              /* and its worth */
    for (uint32_t i = 0; i < n_used; i++) {
        candidate best = {0, UINT32_MAX};
        for (uint32_t g = 0; g < n_groups; g++) {
            float worth = worth_of(rank, n_expert, lane, g, n);
            worth = worth == worth ? worth : -INFINITY; /* NaN */
            const bool kept =
                last != UINT32_MAX && (worth > below || (worth == below && g <= last));
            if (!kept)
                best = better(best, {worth, g});
        }
        out &= outside(n_expert, lane, best.expert, n);
        below = best.score;
        last = best.expert;
    }
    return out;
}

static __device__ __forceinline__ float weighed(const cuda_gating &g, uint32_t expert, float weight)
{
    weight = __fmul_rn(weight, g.scale);
    return g.each ? __fmul_rn(weight, g.each[expert]) : weight;
}

/* The weights of those that were chosen, in order (model/model.h, expert_mixer). */
static __device__ void mix_sparsely(const cuda_experts &x,
                                    const cuda_gating &g,
                                    const float *scores,
                                    const uint32_t *chosen,
                                    float *weights,
                                    uint32_t lane)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < x.n_used; i++) {
        const float top = scores[chosen[i]];
        float sum = 0;
        for (uint32_t k = 0; lane + 32 * k < x.n_expert; k++) {
            const float score = scores[lane + 32 * k];
            const float apart = __fdiv_rn(__fsub_rn(top, score), fmaxf(fabsf(score), top));
            if (!((taken >> k) & 1) && !(apart > 0.02f))
                sum = __fadd_rn(sum, expf(score - top));
        }
        sum = sum_of_warp(sum);
        taken |= chosen[i] % 32 == lane ? 1u << chosen[i] / 32 : 0;
        if (lane == 0)
            weights[i] = weighed(g, chosen[i], __fdiv_rn(1.0f, sum));
    }
}

static __global__ void __launch_bounds__(128) select_kernel(const uint32_t *n_rows,
                                                            const cuda_experts x,
                                                            const cuda_buf in,
                                                            const cuda_gating g)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= *n_rows)
        return;
    const float *scores = in.p + row * in.stride;
    uint32_t *chosen = x.chosen + static_cast<size_t>(row) * x.n_used;
    float *weights = x.weights + static_cast<size_t>(row) * x.n_used;
    ranking rank = {scores, g.bias, 1, g.sigmoid, 0, 0};
    const bool by_probability = g.sigmoid || g.bias || g.n_groups > 1;
    uint32_t taken = 0;
    float top = 0;
    if (by_probability) {
        rank.top = scores[best_of(rank, x.n_expert, lane, 0)];
        for (uint32_t i = lane; i < x.n_expert; i += 32)
            rank.sum = __fadd_rn(rank.sum, expf(scores[i] - rank.top));
        rank.sum = sum_of_warp(rank.sum);
        rank.plain = !g.bias && g.n_groups <= 1; /* in the same order, and never equal */
        if (g.n_groups > 1)
            taken = left_out(rank, x.n_expert, lane, g.n_groups, g.n_groups_used);
    }
    for (uint32_t i = 0; i < x.n_used; i++) {
        const uint32_t best = best_of(rank, x.n_expert, lane, taken);
        taken |= best % 32 == lane ? 1u << best / 32 : 0;
        top = i == 0 ? scores[best] : top;
        if (lane == 0)
            chosen[i] = best;
    }
    __syncwarp();
    float all = 0, some = 0;
    if (by_probability) {
        for (uint32_t i = lane; i < x.n_used; i += 32)
            some = __fadd_rn(some, rank.probability(chosen[i]));
        some = sum_of_warp(some);
        const float sum = !g.norm ? 1.0f : some < 1e-20f ? 1e-20f : some;
        for (uint32_t i = lane; i < x.n_used; i += 32) {
            const float by = rank[chosen[i]]; /* what is no number gives no weight that is one */
            const float weight = __fdiv_rn(rank.probability(chosen[i]), sum);
            weights[i] = weighed(g, chosen[i], by == by ? weight : by);
        }
        return;
    }
    if (g.mixer) {
        mix_sparsely(x, g, scores, chosen, weights, lane);
        return;
    }
    for (uint32_t i = lane; g.over_all && i < x.n_expert; i += 32)
        all = __fadd_rn(all, expf(scores[i] - top));
    for (uint32_t i = lane; i < x.n_used; i += 32)
        some = __fadd_rn(some, expf(scores[chosen[i]] - top));
    all = sum_of_warp(all);
    some = sum_of_warp(some);
    const float sum = g.over_all && !g.norm ? all : some;
    for (uint32_t i = lane; i < x.n_used; i += 32)
        weights[i] = weighed(g, chosen[i], __fdiv_rn(expf(scores[chosen[i]] - top), sum));
}

extern "C" void cuda_experts_select(const cuda_at *at,
                                    const cuda_experts *x,
                                    cuda_buf scores,
                                    const cuda_gating *gating)
{
    const uint32_t rows = cuda_rows_bound(at);
    if (rows > 0)
        LAUNCH_COUNTED(select_kernel, (rows + 3) / 4, 128, at, *x, scores, *gating);
}

/* --- places --- */

/* count: how many each expert was given, to where its places begin, first; one block. */
static __device__ void begin_places(uint32_t *count, const cuda_experts &x)
{
    for (uint32_t o = 0; o < x.n_expert; o += 32) { /* one warp, 32 experts at a time */
        const uint32_t lane = threadIdx.x, e = o + lane;
        const uint32_t mine =
            e < x.n_expert ? (count[e] + CUDA_ACT_ROWS - 1) / CUDA_ACT_ROWS * CUDA_ACT_ROWS : 0;
        uint32_t end = mine;
        for (uint32_t d = 1; d < 32; d *= 2) {
            const uint32_t v = __shfl_up_sync(0xffffffffu, end, d);
            end += lane >= d ? v : 0;
        }
        const uint32_t before = o == 0 ? 0 : count[MOST_EXPERTS];
        __syncwarp();
        if (e < x.n_expert)
            x.first[e] = count[e] = before + end - mine;
        if (lane == 31)
            count[MOST_EXPERTS] = before + end;
        __syncwarp();
    }
    if (threadIdx.x == 0)
        x.first[x.n_expert] = count[MOST_EXPERTS];
}

static __device__ void count_places(uint32_t *count, const cuda_experts &x, uint32_t n)
{
    for (uint32_t i = threadIdx.x; i <= MOST_EXPERTS; i += blockDim.x)
        count[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        atomicAdd(&count[x.chosen[i]], 1u);
    __syncthreads();
    if (threadIdx.x < 32)
        begin_places(count, x);
    __syncthreads();
}

/* All in one block, for at most SORT_THREADS choices; else only where places begin. */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_begin(const uint32_t *n_rows, const cuda_experts x, int place)
{
    cuda_let_next_begin();
    cuda_wait_before();
    __shared__ uint32_t count[MOST_EXPERTS + 1];
    __shared__ uint32_t chosen[SORT_THREADS];
    const uint32_t n = *n_rows * x.n_used;
    count_places(count, x, n);
    if (!place)
        return;
    for (uint32_t i = threadIdx.x; i < count[MOST_EXPERTS]; i += SORT_THREADS)
        x.place_row[i] = UINT32_MAX;
    if (threadIdx.x < n)
        chosen[threadIdx.x] = x.chosen[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) {
        uint32_t at = count[chosen[threadIdx.x]];
        for (uint32_t i = 0; i < threadIdx.x; i++)
            at += chosen[i] == chosen[threadIdx.x];
        x.places[threadIdx.x] = at;
        x.place_row[at] = threadIdx.x / x.n_used;
        if (x.place_weight)
            x.place_weight[at] = x.weights[threadIdx.x];
    }
}

/* A block an expert: its choices in order. */
static __global__ void __launch_bounds__(PLACE_THREADS)
    sort_place(const uint32_t *n_rows, const cuda_experts x)
{
    cuda_let_next_begin();
    cuda_wait_before();
    __shared__ uint32_t of_warp[PLACE_THREADS / 32];
    const uint32_t n = *n_rows * x.n_used, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t at = x.first[blockIdx.x];
    const uint32_t end = x.first[blockIdx.x + 1];
    for (uint32_t o = 0; o < n; o += PLACE_THREADS) {
        const uint32_t i = o + threadIdx.x;
        const bool mine = i < n && x.chosen[i] == blockIdx.x;
        const uint32_t votes = __ballot_sync(0xffffffffu, mine);
        if (lane == 0)
            of_warp[warp] = static_cast<uint32_t>(__popc(votes));
        __syncthreads();
        uint32_t before = at;
        for (uint32_t w = 0; w < PLACE_THREADS / 32; w++) {
            before += w < warp ? of_warp[w] : 0;
            at += of_warp[w];
        }
        if (mine) {
            before += static_cast<uint32_t>(__popc(votes & ((1u << lane) - 1)));
            x.places[i] = before;
            x.place_row[before] = i / x.n_used;
            if (x.place_weight)
                x.place_weight[before] = x.weights[i];
        }
        __syncthreads();
    }
    for (uint32_t i = at + threadIdx.x; i < end; i += PLACE_THREADS)
        x.place_row[i] = UINT32_MAX;
}

extern "C" void cuda_experts_sort(const cuda_at *at, const cuda_experts *x)
{
    const uint32_t n = cuda_rows_bound(at) * x->n_used;
    if (n == 0)
        return;
    const int few = n <= SORT_THREADS;
    LAUNCH_COUNTED(sort_begin, 1, SORT_THREADS, at, *x, few);
    if (!few)
        LAUNCH_COUNTED(sort_place, x->n_expert, PLACE_THREADS, at, *x);
}

/* --- mix --- */

/* grid: (rows, 256 fours of values). */
static __global__ void __launch_bounds__(256) mix(
    const uint32_t *n_rows, const cuda_experts x, const cuda_buf in, const cuda_buf out, uint32_t n)
{
    cuda_let_next_begin();
    cuda_wait_before();
    const uint32_t row = blockIdx.x, j = 4 * (blockIdx.y * 256 + threadIdx.x);
    if (row >= *n_rows || j >= n)
        return;
    store4(out.p + row * out.stride, j, n, mixed_values(x, in, row, j, n));
}

extern "C" void cuda_experts_mix(const cuda_at *at,
                                 const cuda_experts *x,
                                 const struct cuda_mix *op)
{
    const uint32_t rows = cuda_rows_bound(at);
    if (rows > 0)
        LAUNCH_COUNTED(mix, dim3(rows, (op->n + 1023) / 1024), 256, at, *x, op->in, op->out, op->n);
}
