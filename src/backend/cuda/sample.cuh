/* What the kernels of sampling share: the host's arithmetic, a job, and selection by masses.
 *
 * Weights are e^((l - max) / T) as the host computes them, bit for bit (no fused multiply-add), and
 * then integers of 44 bits behind the point (mass). Sums of integers do not depend on their order,
 * so histograms may be filled and candidates listed by whoever comes first, and yet the same
 * request draws the same token.
 *
 * Selection needs no order of the row (radix select, as sample/select.c): a histogram over 8 bits
 * of the keys says in which bucket a goal is reached; only that is looked at by its next 8 bits.
 * Keys that are equal are told apart by id. */
#ifndef WEIR_BACKEND_CUDA_SAMPLE_CUH
#define WEIR_BACKEND_CUDA_SAMPLE_CUH

#include "backend/cuda/sample.h"

#include "backend/cuda/device.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / WARP,
    SLICE = 2048,
    PIECE = 64,         /* logits that share a maximum */
    MOST_LISTED = 8192, /* candidates; where there are more, the row itself is looked through */
    BUCKETS = 256,
    COPIES = 8, /* of a histogram, so that warps seldom meet */
};

#define LEAST __int_as_float(static_cast<int>(0xff800000u)) /* -inf */
#define NONE 0xffffffffu

typedef unsigned long long mass; /* of weights: integers */

/* What a job's launches tell each other. */
struct job_state {
    uint32_t n_candidates;
    float least; /* top-k: no smaller logit is among them */
};

struct sample_args {
    const cuda_counts *counts;
    const cuda_sample_job *jobs;
    const cuda_bias *biases;
    uint32_t *history; /* [slots][n_vocab] */
    cuda_buf logits;
    uint32_t n_vocab, n_slices, n_pieces;
    int32_t *chosen;
    /* scratch, of each job */
    job_state *states;
    float *slice_max;   /* [n_slices] */
    uint32_t *slice_id; /* [n_slices] of the maximum; NONE: all are NaN */
    float *piece_max;   /* [n_pieces] */
    mass *slice_sum;    /* [n_slices] */
    uint32_t *listed;   /* [MOST_LISTED] ids */
};

/* --- as the host does it --- */

/* In the order of the numbers; both zeros are one. */
static __device__ __forceinline__ uint32_t key_of(float x)
{
    const uint32_t u = __float_as_uint(__fadd_rn(x, 0.0f));
    return u ^ (u >> 31 ? 0xffffffffu : 0x80000000u);
}
static __device__ __forceinline__ float number_of(uint32_t key)
{
    return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}

/* e^x for x in -87 .. 0 and 0 for anything else: sample/row.c's series, rounded at each step. */
static __device__ __forceinline__ float exp_nonpositive(float x)
{
    if (!((__float_as_uint(x) & 0x7fffffffu) <= 0x42ae0000u))
        return 0.0f;
    const float shift = 0x1.8p23f;
    const float shifted = __fadd_rn(__fmul_rn(x, 0x1.715476p0f), shift);
    const float n = __fsub_rn(shifted, shift);
    float f = __fsub_rn(x, __fmul_rn(n, 0x1.62e4p-1f));
    f = __fsub_rn(f, __fmul_rn(n, 0x1.7f7d1cp-20f));
    float p = 0x1.a01a02p-13f;
    p = __fadd_rn(__fmul_rn(p, f), 0x1.6c16c2p-10f);
    p = __fadd_rn(__fmul_rn(p, f), 0x1.111112p-7f);
    p = __fadd_rn(__fmul_rn(p, f), 0x1.555556p-5f);
    p = __fadd_rn(__fmul_rn(p, f), 0x1.555556p-3f);
    p = __fadd_rn(__fmul_rn(p, f), 0.5f);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f);
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

static __device__ __forceinline__ float weight_of(float x, float max, float scale)
{
    return exp_nonpositive(__fmul_rn(__fsub_rn(x, max), scale));
}

/* 53 random bits of (seed, position), at the upper end: Philox4x32-10 as sample/random.c. */
static __device__ unsigned long long random_bits(uint64_t seed, uint64_t position)
{
    uint32_t x0 = static_cast<uint32_t>(position), x1 = static_cast<uint32_t>(position >> 32);
    uint32_t x2 = 0, x3 = 0;
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = static_cast<uint64_t>(0xd2511f53u) * x0;
        const uint64_t p1 = static_cast<uint64_t>(0xcd9e8d57u) * x2;
        x0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ k0;
        x1 = static_cast<uint32_t>(p1);
        x2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ k1;
        x3 = static_cast<uint32_t>(p0);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return (static_cast<unsigned long long>(x0) << 32 | x1) >> 11 << 11;
}

/* --- a job --- */

enum job_kind { GREEDY, AMONG_ALL, TOP_K, TOP_P };

/* A job and its row, as every thread of a block knows them. */
struct job {
    cuda_sample_job p;
    const float *x;
    uint32_t n;
    float max;
    uint32_t max_id;
    float scale;     /* 1 / T */
    float cut_scale; /* that truncations see */
    job_kind kind;
};

static __device__ __forceinline__ mass mass_of(float w)
{
    return static_cast<mass>(w * 0x1p44f); /* the product is exact */
}

/* The weight by which truncations go. */
static __device__ __forceinline__ float cut_weight(const job &j, float x)
{
    return weight_of(x, j.max, j.cut_scale);
}

/* What is left of a weight that top-k and top-p have kept. */
static __device__ __forceinline__ mass drawn_mass(const job &j, float x)
{
    const float w = cut_weight(j, x);
    if (!(w > 0.0f) || (j.p.min_p > 0.0f && !(w >= j.p.min_p)))
        return 0;
    return mass_of(j.p.temperature_last ? weight_of(x, j.max, j.scale) : w);
}

/* The larger of two, the lower id among equals. */
static __device__ __forceinline__ void keep_larger(float *x, uint32_t *id, float y, uint32_t other)
{
    if (other != NONE && (*id == NONE || y > *x || (y == *x && other < *id))) {
        *x = y;
        *id = other;
    }
}

static __device__ __forceinline__ void warp_larger(float *x, uint32_t *id)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const float y = __shfl_xor_sync(0xffffffffu, *x, apart);
        const uint32_t other = __shfl_xor_sync(0xffffffffu, *id, apart);
        keep_larger(x, id, y, other);
    }
}

/* By what was asked for; one may turn out to be greedy by its logits, too. */
static __device__ __forceinline__ bool asks_for_largest(const cuda_sample_job &p)
{
    return !(p.temperature > 0.0f) || p.top_k == 1 || p.top_p <= 0.0f;
}

/* Job i, if there is one; also before cuda_wait_before. */
static __device__ __forceinline__ bool early_job(const sample_args &a,
                                                 uint32_t i,
                                                 cuda_sample_job *p)
{
    *p = cuda_sample_job();
    if (i >= early_value(&a.counts->n_jobs))
        return false;
    *p = early_struct(&a.jobs[i]);
    return true;
}

/* p: job i. The largest of all slices, which every warp finds for itself. */
static __device__ job job_of(const sample_args &a, uint32_t i, const cuda_sample_job &p)
{
    job j;
    j.p = p;
    j.x = a.logits.p + j.p.logit_row * a.logits.stride;
    j.n = a.n_vocab;
    j.max = LEAST;
    j.max_id = NONE;
    for (uint32_t s = threadIdx.x % WARP; s < a.n_slices; s += WARP)
        keep_larger(&j.max,
                    &j.max_id,
                    a.slice_max[static_cast<size_t>(i) * a.n_slices + s],
                    a.slice_id[static_cast<size_t>(i) * a.n_slices + s]);
    warp_larger(&j.max, &j.max_id);
    j.scale = __fdiv_rn(1.0f, j.p.temperature);
    j.cut_scale = j.p.temperature_last ? 1.0f : j.scale;
    const bool top_k = j.p.top_k > 0 && static_cast<uint32_t>(j.p.top_k) < a.n_vocab;
    /* nothing is weighed by an infinite logit, nor where it is that cold */
    const bool cold = !(fabsf(j.max) < -LEAST) || !(j.scale < -LEAST);
    if (asks_for_largest(j.p) || cold)
        j.kind = GREEDY;
    else
        j.kind = top_k ? TOP_K : j.p.top_p < 1.0f ? TOP_P : AMONG_ALL;
    if (j.kind == AMONG_ALL && !(j.p.min_p > 0.0f))
        j.cut_scale = j.scale; /* nothing is truncated */
    return j;
}

/* --- sums over a block --- */

/* Masses by halves: processors add 32 bits in shared memory at once, 64 by trying again while
 * another thread was sooner. */
struct block_shared {
    uint32_t low[COPIES][BUCKETS], high[COPIES][BUCKETS];
    mass warps[WARPS];
    mass above, own;
    uint32_t bucket;
};

static __device__ __forceinline__ mass warp_total(mass x)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* The sum over all threads. */
static __device__ mass block_total(mass x, block_shared *s)
{
    x = warp_total(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        s->warps[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < WARPS; i++)
        x += s->warps[i];
    return x;
}

/* Whoever makes the lower half wrap carries. */
static __device__ __forceinline__ void add_mass(uint32_t *low, uint32_t *high, mass m)
{
    const uint32_t part = static_cast<uint32_t>(m), before = atomicAdd(low, part);
    const uint32_t carry = before + part < before, more = static_cast<uint32_t>(m >> 32) + carry;
    if (more)
        atomicAdd(high, more);
}

/* The sum over the threads before this one. */
static __device__ mass block_before(mass x, block_shared *s)
{
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    mass sum = x;
    for (int apart = 1; apart < WARP; apart *= 2) {
        const mass y = __shfl_up_sync(0xffffffffu, sum, apart);
        sum += lane >= static_cast<uint32_t>(apart) ? y : 0;
    }
    __syncthreads();
    if (lane == WARP - 1)
        s->warps[warp] = sum;
    __syncthreads();
    for (uint32_t i = 0; i < warp; i++)
        sum += s->warps[i];
    return sum - x;
}

/* The key at which the masses of elements, largest keys first, reach `goal` (at least 1, at most
 * the sum of all). f(i, &key, &m): whether element i of n counts. Keys are below 2^(8 * digits).
 * above: the mass of larger keys; own: of this one. */
template <class F>
static __device__ uint32_t
select_key(F f, uint32_t n, int digits, mass goal, mass *above, mass *own, block_shared *s)
{
    uint32_t prefix = 0, known = 0;
    *above = 0;
    for (int shift = 8 * (digits - 1); shift >= 0; shift -= 8) {
        for (uint32_t b = threadIdx.x; b < COPIES * BUCKETS; b += THREADS)
            s->low[b / BUCKETS][b % BUCKETS] = s->high[b / BUCKETS][b % BUCKETS] = 0;
        __syncthreads();
        const uint32_t copy = threadIdx.x / WARP % COPIES;
        for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
            uint32_t key = 0; /* nvcc's code looks at them before it knows whether f has set them */
            mass m = 0;
            if (!f(i, &key, &m) || (key & known) != prefix || !m)
                continue;
            const uint32_t b = key >> shift & (BUCKETS - 1);
            add_mass(&s->low[copy][b], &s->high[copy][b], m);
        }
        __syncthreads();
        const uint32_t bucket = BUCKETS - 1 - threadIdx.x; /* the largest first */
        mass m = 0;
        for (int c = 0; c < COPIES; c++)
            m += static_cast<mass>(s->high[c][bucket]) << 32 | s->low[c][bucket];
        const mass before = *above + block_before(m, s);
        if (before < goal && before + m >= goal) { /* one thread's */
            s->bucket = bucket;
            s->above = before;
            s->own = m;
        }
        __syncthreads();
        prefix |= s->bucket << shift;
        known |= (BUCKETS - 1u) << shift;
        *above = s->above;
        *own = s->own;
    }
    return prefix;
}

/* Where a descending order was cut (equal ones by lower id). */
struct cut {
    uint32_t key, last;
};
static __device__ __forceinline__ bool kept(cut c, uint32_t key, uint32_t id)
{
    return key > c.key || (key == c.key && id <= c.last);
}

namespace
{
/* The candidates of a job: listed, or those in the whole row. */
struct candidates {
    const job *j;
    const uint32_t *ids; /* NULL: not listed */
    uint32_t n;
    float least;     /* of top-k, */
    mass least_mass; /* of top-p */
    __device__ __forceinline__ bool has(float x) const
    {
        return j->kind == TOP_K ? x >= least : mass_of(cut_weight(*j, x)) >= least_mass;
    }
    __device__ __forceinline__ bool at(uint32_t i, uint32_t *id, float *x) const
    {
        *id = ids ? ids[i] : i;
        *x = j->x[*id];
        return ids || has(*x);
    }
};

/* Candidates within a cut, by their logits; each weighs 1 or its weight. */
struct by_logit {
    candidates c;
    cut within;
    bool weighed;
    __device__ __forceinline__ mass one(float x) const
    {
        return weighed ? mass_of(cut_weight(*c.j, x)) : 1;
    }
    __device__ __forceinline__ bool operator()(uint32_t i, uint32_t *key, mass *m) const
    {
        uint32_t id;
        float x;
        if (!c.at(i, &id, &x))
            return false;
        *key = key_of(x);
        *m = one(x);
        return kept(within, *key, id);
    }
};
} // namespace

enum { ID_DIGITS = 3, ID_MASK = 0xffffff };

namespace
{
/* Those of one logit, or within a cut by what is left of them: lowest ids first. */
struct by_id {
    candidates c;
    cut within;
    bool one_key; /* only those of within.key, each weighs m */
    mass each;
    __device__ __forceinline__ bool operator()(uint32_t i, uint32_t *key, mass *m) const
    {
        uint32_t id;
        float x;
        if (!c.at(i, &id, &x))
            return false;
        *key = ID_MASK - id;
        if (one_key) {
            *m = each;
            return key_of(x) == within.key;
        }
        *m = drawn_mass(*c.j, x);
        return kept(within, key_of(x), id);
    }
};
} // namespace

/* The shortest head of the descending order whose masses reach the goal. */
static __device__ cut
cut_at(const candidates &c, cut within, bool weighed, mass goal, block_shared *s)
{
    const by_logit order = {c, within, weighed};
    mass above, own;
    cut found;
    found.key = select_key(order, c.n, 4, goal, &above, &own, s);
    found.last = found.key == within.key ? within.last : NONE;
    const mass each = order.one(number_of(found.key));
    const mass needed = (goal - above + each - 1) / each * each;
    if (needed < own) { /* not all of the equal ones */
        const by_id ids = {c, {found.key, NONE}, true, each};
        found.last = ID_MASK - select_key(ids, c.n, ID_DIGITS, goal - above, &above, &own, s);
    }
    return found;
}

/* The sum of what a function gives of each element. */
template <class F> static __device__ mass total_of(F f, uint32_t n, block_shared *s)
{
    mass sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        uint32_t key = 0; /* as above */
        mass m = 0;
        sum += f(i, &key, &m) ? m : 0;
    }
    return block_total(sum, s);
}

/* u of the whole, in 1 .. whole: the running sum has to exceed u * whole. */
static __device__ __forceinline__ mass drawn_goal(const job &j, mass whole)
{
    return __umul64hi(random_bits(j.p.seed, j.p.position), whole) + 1;
}

#endif
