/* Logits to tokens: bias, penalties, temperature, top-k, top-p, min-p, one draw (sample/sample.h).
 *
 * A row of the vocabulary is cut into slices of 2048, a block each, so that a lone row fills the
 * device as well:
 *
 *      scan      slices x jobs    bias and penalties; maxima of slices, and of every 64 logits
 *      weigh     slices x jobs    sums of weights; for top-k the least logit that can be among them
 *      collect   slices x jobs    candidates: few tokens that hold all that truncations can keep
 *      choose    jobs             cut the candidates, draw
 *
 * A greedy job ends with the scan's maxima; one without top-k and top-p has no candidates: the draw
 * finds its slice by the sums and looks at that one only.
 *
 * Weights are integers (sample.cuh), so sums have no order to depend on. The host adds the same
 * weights as f64; where the two differ, by some 1e-10 of the whole, a random number has to lie
 * between. Truncations and the draw are selections, by histograms, not by sorting:
 *
 *      top-k     largest logits first, each weighs 1,                 goal k
 *      top-p     likewise, each weighs its weight,                    goal p of what top-k left
 *      draw      lowest ids first, each weighs what is left of it,    goal u of the whole
 *
 * Operations: some 30 a logit (the exponential). Bytes: the row once for the scan and, where it
 * does not choose greedily, twice more from the L2 cache. Bound on an H200: four launches, some 10
 * us for a row of 128,000; 256 of them 130 MB a pass, so 30 us a pass. */
#include "backend/cuda/sample.cuh"

/* --- scan --- */

/* Biases of ids of this slice; one that comes twice is added in the order of the list. */
static __device__ void add_biases(
    const sample_args &a, const cuda_sample_job &p, float *x, uint32_t first, uint32_t end)
{
    const cuda_bias *b = a.biases + p.first_bias;
    for (uint32_t i = threadIdx.x; i < p.n_bias; i += THREADS) {
        const uint32_t id = static_cast<uint32_t>(b[i].id);
        bool again = id < first || id >= end; /* also ids below 0 */
        for (uint32_t k = 0; k < i && !again; k++)
            again = b[k].id == b[i].id;
        for (uint32_t k = i; k < p.n_bias && !again; k++)
            if (b[k].id == b[i].id)
                x[id] = __fadd_rn(x[id], b[k].bias);
    }
}

static __device__ __forceinline__ float penalised(const cuda_sample_job &p, float x, uint32_t count)
{
    if (count == 0)
        return x;
    if (p.repetition_penalty != 1.0f)
        x = x > 0.0f ? __fdiv_rn(x, p.repetition_penalty) : __fmul_rn(x, p.repetition_penalty);
    if (count > 1)
        x = __fsub_rn(x,
                      __fadd_rn(p.presence_penalty,
                                __fmul_rn(p.frequency_penalty, __uint2float_rn(count / 2))));
    return x;
}

/* grid: [slices][jobs] */
static __global__ void scan_kernel(struct sample_args a)
{
    __shared__ float best[WARPS];
    __shared__ uint32_t best_id[WARPS];
    cuda_let_next_begin();
    const uint32_t slice = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const size_t i = blockIdx.y;
    cuda_sample_job p;
    const bool there = early_job(a, blockIdx.y, &p);
    cuda_wait_before();
    if (!there)
        return;
    float *x = a.logits.p + p.logit_row * a.logits.stride;
    const uint32_t first = slice * SLICE, end = min(first + SLICE, a.n_vocab);
    if (p.n_bias > 0) {
        add_biases(a, p, x, first, end);
        __syncthreads();
    }
    const bool penalise =
        p.slot != NONE &&
        (p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f);
    const uint32_t *counts = a.history + static_cast<size_t>(penalise ? p.slot : 0) * a.n_vocab;
    enum { PIECES = SLICE / PIECE / WARPS, EACH = PIECE / WARP }; /* of a warp, of a lane */
    float max = LEAST, values[PIECES][EACH];
    uint32_t max_id = NONE, given[PIECES][EACH];
#pragma unroll
    for (uint32_t k = 0; k < PIECES * EACH; k++) { /* all are asked for before one is needed */
        const uint32_t id = first + (warp + k / EACH * WARPS) * PIECE + lane + k % EACH * WARP;
        values[k / EACH][k % EACH] = id < end ? x[id] : 0.0f;
        given[k / EACH][k % EACH] = penalise && id < end ? counts[id] : 0;
    }
#pragma unroll
    for (uint32_t piece = 0; piece < PIECES; piece++) {
        const uint32_t begin = first + (warp + piece * WARPS) * PIECE;
        if (begin >= end)
            break;
        float largest = LEAST;
#pragma unroll
        for (uint32_t k = 0; k < EACH; k++) {
            const uint32_t id = begin + lane + k * WARP;
            if (id >= end)
                break;
            float v = values[piece][k];
            if (penalise) {
                v = penalised(p, v, given[piece][k]);
                x[id] = v;
            }
            if (v == v)
                keep_larger(&max, &max_id, v, id);
            largest = v > largest ? v : largest;
        }
        largest = warp_max(largest);
        if (lane == 0)
            a.piece_max[i * a.n_pieces + begin / PIECE] = largest;
    }
    warp_larger(&max, &max_id);
    if (lane == 0) {
        best[warp] = max;
        best_id[warp] = max_id;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int w = 1; w < WARPS; w++)
        keep_larger(&max, &max_id, best[w], best_id[w]);
    a.slice_max[i * a.n_slices + slice] = max;
    a.slice_id[i * a.n_slices + slice] = max_id;
    if (slice == 0)
        a.states[i].n_candidates = 0;
}

/* --- weigh --- */

namespace
{
/* k pieces have maxima of at least the k-th largest one, so at least k logits are as large. */
struct by_piece {
    const float *max;
    __device__ __forceinline__ bool operator()(uint32_t i, uint32_t *key, mass *m) const
    {
        *key = key_of(max[i]);
        *m = 1;
        return true;
    }
};
} // namespace

/* grid: [slices][jobs] */
static __global__ void weigh_kernel(struct sample_args a)
{
    __shared__ block_shared s;
    cuda_let_next_begin();
    const size_t i = blockIdx.y;
    cuda_sample_job p;
    const bool there = early_job(a, blockIdx.y, &p);
    cuda_wait_before();
    if (!there || asks_for_largest(p))
        return;
    const job j = job_of(a, blockIdx.y, p);
    if (j.kind == GREEDY)
        return;
    if (j.kind == TOP_K) {
        const uint32_t k = static_cast<uint32_t>(j.p.top_k);
        if (blockIdx.x > 0)
            return;
        float least = LEAST;
        if (k <= a.n_pieces) {
            mass above, own;
            const by_piece pieces = {a.piece_max + i * a.n_pieces};
            least = number_of(select_key(pieces, a.n_pieces, 4, k, &above, &own, &s));
        }
        if (threadIdx.x == 0)
            a.states[i].least = least;
        return;
    }
    const uint32_t first = blockIdx.x * SLICE, end = min(first + SLICE, a.n_vocab);
    mass sum = 0;
    for (uint32_t id = first + threadIdx.x; id < end; id += THREADS)
        sum += j.kind == TOP_P ? mass_of(cut_weight(j, j.x[id])) : drawn_mass(j, j.x[id]);
    sum = block_total(sum, &s);
    if (threadIdx.x == 0)
        a.slice_sum[i * a.n_slices + blockIdx.x] = sum;
}

/* --- collect --- */

static __device__ mass sum_of_slices(const sample_args &a, size_t i)
{
    mass sum = 0;
    for (uint32_t k = threadIdx.x % WARP; k < a.n_slices; k += WARP)
        sum += a.slice_sum[i * a.n_slices + k];
    return warp_total(sum);
}

/* Tokens lighter than (1 - p) / n of the whole weigh less than 1 - p of it together, so the others
 * hold p of it. */
static __device__ candidates candidates_of(const sample_args &a, const job *j, size_t i, mass whole)
{
    candidates c;
    c.j = j;
    c.ids = NULL;
    c.n = a.n_vocab;
    c.least = j->kind == TOP_K ? a.states[i].least : 0.0f;
    const double least = 0.999 * (1.0 - static_cast<double>(j->p.top_p)) *
                         static_cast<double>(whole) / static_cast<double>(a.n_vocab);
    c.least_mass = least > 1.0 ? static_cast<mass>(least) : 1;
    return c;
}

/* grid: [slices][jobs] */
static __global__ void collect_kernel(struct sample_args a)
{
    cuda_let_next_begin();
    const size_t i = blockIdx.y;
    cuda_sample_job p;
    const bool there = early_job(a, blockIdx.y, &p);
    cuda_wait_before();
    if (!there || asks_for_largest(p))
        return;
    const job j = job_of(a, blockIdx.y, p);
    if (j.kind == GREEDY || j.kind == AMONG_ALL)
        return;
    const candidates c = candidates_of(a, &j, i, j.kind == TOP_P ? sum_of_slices(a, i) : 0);
    const uint32_t lane = threadIdx.x % WARP, first = blockIdx.x * SLICE;
    for (uint32_t k = threadIdx.x; k < SLICE; k += THREADS) {
        const uint32_t id = first + k;
        const bool is = id < a.n_vocab && c.has(j.x[id]);
        const unsigned lanes = __ballot_sync(0xffffffffu, is);
        if (lanes == 0)
            continue;
        uint32_t at = 0;
        if (lane == 0)
            at = atomicAdd(&a.states[i].n_candidates, static_cast<uint32_t>(__popc(lanes)));
        at = __shfl_sync(0xffffffffu, at, 0) +
             static_cast<uint32_t>(__popc(lanes & ((1u << lane) - 1)));
        if (is && at < MOST_LISTED)
            a.listed[i * MOST_LISTED + at] = id;
    }
}

/* --- choose --- */

/* The draw from the whole row: the slice in which the goal is reached, then its token. */
static __device__ void draw_among_all(
    const sample_args &a, const job &j, size_t i, block_shared *s, uint32_t *id)
{
    const mass *sums = a.slice_sum + i * a.n_slices;
    const mass goal = drawn_goal(j, sum_of_slices(a, i));
    mass before = 0;
    uint32_t slice = 0; /* all threads walk: some hundred sums at most */
    while (slice + 1 < a.n_slices && before + sums[slice] < goal)
        before += sums[slice++];
    enum { EACH = SLICE / THREADS };
    const uint32_t first = slice * SLICE + threadIdx.x * EACH;
    mass own = 0;
    for (uint32_t k = first; k < first + EACH && k < a.n_vocab; k++)
        own += drawn_mass(j, j.x[k]);
    before += block_before(own, s);
    if (before >= goal || before + own < goal)
        return;
    for (uint32_t k = first;; k++) { /* one thread's */
        before += drawn_mass(j, j.x[k]);
        if (before >= goal) {
            *id = k;
            return;
        }
    }
}

/* What top-k and top-p leave of the candidates, and the draw from that. */
static __device__ uint32_t draw_among_some(const sample_args &a,
                                           const job &j,
                                           size_t i,
                                           block_shared *s)
{
    mass whole = j.kind == TOP_P ? sum_of_slices(a, i) : 0;
    candidates c = candidates_of(a, &j, i, whole);
    const uint32_t n = a.states[i].n_candidates;
    if (n <= MOST_LISTED) {
        c.ids = a.listed + i * MOST_LISTED;
        c.n = n;
    }
    cut within = {0, NONE};
    if (j.kind == TOP_K) {
        if (n > static_cast<uint32_t>(j.p.top_k))
            within = cut_at(c, within, false, static_cast<mass>(j.p.top_k), s);
        whole = total_of(by_logit{c, within, true}, c.n, s);
    }
    if (j.p.top_p < 1.0f) {
        const double goal = ceil(static_cast<double>(j.p.top_p) * static_cast<double>(whole));
        const mass m = static_cast<mass>(goal);
        within = cut_at(c, within, true, m < 1 ? 1 : m < whole ? m : whole, s);
    }
    const by_id drawn = {c, within, false, 0};
    mass above, own;
    whole = total_of(drawn, c.n, s);
    if (whole == 0)
        return j.max_id; /* min-p above 1 */
    const mass goal = drawn_goal(j, whole);
    return ID_MASK - select_key(drawn, c.n, ID_DIGITS, goal, &above, &own, s);
}

/* grid: [jobs] */
static __global__ void choose_kernel(struct sample_args a)
{
    __shared__ block_shared s;
    __shared__ uint32_t id;
    cuda_let_next_begin();
    const size_t i = blockIdx.x;
    cuda_sample_job p;
    const bool there = early_job(a, blockIdx.x, &p);
    cuda_wait_before();
    if (!there)
        return;
    const job j = job_of(a, blockIdx.x, p);
    if (threadIdx.x == 0)
        id = j.max < -LEAST ? j.max_id : NONE;
    __syncthreads();
    if (j.kind == AMONG_ALL) {
        draw_among_all(a, j, i, &s, &id);
    } else if (j.kind != GREEDY) {
        const uint32_t drawn = draw_among_some(a, j, i, &s);
        if (threadIdx.x == 0)
            id = drawn;
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    a.chosen[i] = id == NONE ? CUDA_NO_NUMBER : static_cast<int32_t>(id);
    if (j.p.slot != NONE && id != NONE)
        a.history[static_cast<size_t>(j.p.slot) * a.n_vocab + id] += 2;
}

/* --- the host's --- */

static size_t take(size_t *at, size_t bytes)
{
    const size_t here = *at;
    *at += (bytes + 255) / 256 * 256;
    return here;
}

/* Where the parts of the scratch lie; returns how much it is. */
static size_t place(uint8_t *base, size_t jobs, uint32_t n_vocab, struct sample_args *a)
{
    size_t at = 0;
    a->n_slices = (n_vocab + SLICE - 1) / SLICE;
    a->n_pieces = (n_vocab + PIECE - 1) / PIECE;
    const size_t states = take(&at, jobs * sizeof(job_state));
    const size_t maxima = take(&at, jobs * a->n_slices * sizeof(float));
    const size_t ids = take(&at, jobs * a->n_slices * sizeof(uint32_t));
    const size_t pieces = take(&at, jobs * a->n_pieces * sizeof(float));
    const size_t sums = take(&at, jobs * a->n_slices * sizeof(mass));
    const size_t listed = take(&at, jobs * MOST_LISTED * sizeof(uint32_t));
    if (base) {
        a->states = reinterpret_cast<job_state *>(base + states);
        a->slice_max = reinterpret_cast<float *>(base + maxima);
        a->slice_id = reinterpret_cast<uint32_t *>(base + ids);
        a->piece_max = reinterpret_cast<float *>(base + pieces);
        a->slice_sum = reinterpret_cast<mass *>(base + sums);
        a->listed = reinterpret_cast<uint32_t *>(base + listed);
    }
    return at;
}

size_t cuda_sample_scratch(uint32_t max_jobs, uint32_t n_vocab)
{
    struct sample_args a = {};
    return place(NULL, max_jobs, n_vocab, &a);
}

void cuda_sample(const struct cuda_at *at,
                 const struct cuda_sample_job *jobs,
                 const struct cuda_bias *biases,
                 const struct cuda_histories *h,
                 struct cuda_buf logits,
                 uint32_t n_vocab,
                 int32_t *chosen,
                 void *scratch)
{
    const uint32_t n = at->bounds.jobs;
    if (n == 0 || n_vocab == 0)
        return;
    struct sample_args a = {};
    place(static_cast<uint8_t *>(scratch), n, n_vocab, &a);
    a.counts = at->step.counts;
    a.jobs = jobs;
    a.biases = biases;
    a.history = h ? h->counts : NULL;
    a.logits = logits;
    a.n_vocab = n_vocab;
    a.chosen = chosen;
    const dim3 grid(a.n_slices, n);
    CUDA_LAUNCH_NEXT(scan_kernel, grid, THREADS, 0, at->stream, a);
    if (cudaPeekAtLastError() == cudaSuccess)
        CUDA_LAUNCH_NEXT(weigh_kernel, grid, THREADS, 0, at->stream, a);
    if (cudaPeekAtLastError() == cudaSuccess)
        CUDA_LAUNCH_NEXT(collect_kernel, grid, THREADS, 0, at->stream, a);
    if (cudaPeekAtLastError() == cudaSuccess)
        CUDA_LAUNCH_NEXT(choose_kernel, n, THREADS, 0, at->stream, a);
}

static __global__ void history_kernel(
    uint32_t *counts, uint32_t n_vocab, const int32_t *tokens, uint32_t n, int output)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n || static_cast<uint32_t>(tokens[i]) >= n_vocab)
        return;
    if (output)
        atomicAdd(&counts[tokens[i]], 2u);
    else
        atomicOr(&counts[tokens[i]], 1u);
}

cudaError_t cuda_history_begin(struct cuda_histories *h,
                               uint32_t n_vocab,
                               uint32_t slot,
                               cudaStream_t s)
{
    return cudaMemsetAsync(
        h->counts + static_cast<size_t>(slot) * n_vocab, 0, n_vocab * sizeof(uint32_t), s);
}

cudaError_t cuda_history_add(struct cuda_histories *h,
                             uint32_t n_vocab,
                             uint32_t slot,
                             const int32_t *tokens,
                             uint32_t n,
                             int output,
                             cudaStream_t s)
{
    if (n == 0)
        return cudaSuccess;
    CUDA_LAUNCH(history_kernel,
                (n + THREADS - 1) / THREADS,
                THREADS,
                0,
                s,
                h->counts + static_cast<size_t>(slot) * n_vocab,
                n_vocab,
                tokens,
                n,
                output);
    return cudaGetLastError();
}
