/* What the kernels of attention share: whom a row sees, where a position lies, and how ranges fold.
 *
 * A query is a row's head; those of one KV head, of all rows of a tile, are worked on together, row
 * by row: query i is head i % group of row i / group. All scores are in units of log2, so weights
 * are exp2 of differences.
 *
 *      range   m = max s[p]     l = sum e[p]          acc = sum e[p] v[p],   e[p] = 2^(s[p] - m)
 *      fold    M' = max(M, m)   L = L a + l b         A = A a + acc b,       a = 2^(M - M'),
 *                                                                            b = 2^(m - M')
 *      end     out = A / L, with a sink t: A a / (L a + 2^(t - M')) likewise
 *
 * A range in which a query sees nothing has m = -inf, l = 0 and acc = 0: its fold multiplies by 1
 * and adds 0. So does a tile within a range. That is why a row's bits do not depend on who shares
 * its tile, nor on which block of a grid summed a range. */
#ifndef WEIR_BACKEND_CUDA_ATTENTION_CUH
#define WEIR_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/attention.h"
#include "backend/cuda/device.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* As enum kv_type (backend.h). */
enum { KV_IS_F32, KV_IS_F16, KV_IS_BF16, KV_IS_Q8_0 };

/* As enum window_kind (model.h). */
enum { WINDOW_OF_LAST, WINDOW_OF_CHUNK, WINDOW_OF_BOTH_SIDES };

#define LOG2_E 1.4426950408889634f
#define LEAST __int_as_float(static_cast<int>(0xff800000u)) /* -inf */

/* What a launch is given. */
struct attn_args {
    cuda_step step;
    cuda_buf q, out;
    cuda_kv kv;
    uint32_t n_head, group;
    float scale, cap;
    uint32_t window;
    int window_kind, causal;
    uint32_t n_value; /* dims of V, and of what comes out */
    const float *sinks;
    float alibi;       /* as model_alibi_slope (model.h); 0: no slopes */
    float *parts;      /* [rows][n_head][n_ranges] parts, where n_splits > 1 */
    uint32_t n_ranges; /* that parts have room for */
    uint32_t n_splits; /* blocks that share a tile's ranges; 1: they are folded as they come */
    /* Tiles of up to so many queries are attn_mma's where attn_many has the others; 0: one of them
     * has all. */
    uint32_t lone;
};

/* A part: m, l, two floats of nothing, acc [n_value]. */
enum { PART_HEAD = 4 };

static __device__ __forceinline__ float *attn_part(const attn_args &a,
                                                   uint32_t row,
                                                   uint32_t head,
                                                   uint32_t range)
{
    const size_t i = (static_cast<size_t>(row) * a.n_head + head) * a.n_ranges + range;
    return a.parts + i * (a.n_value + PART_HEAD);
}

/* Positions from .. end - 1 that a row at `pos` of a sequence of so many sees. */
struct attn_seen {
    uint32_t from, end;
};
static __device__ __forceinline__ attn_seen attn_sees(const attn_args &a,
                                                      uint32_t pos,
                                                      uint32_t all)
{
    attn_seen s;
    s.from = 0;
    s.end = a.causal ? pos + 1 : all;
    if (a.window == 0)
        return s;
    const uint32_t to_side = a.window / 2;
    const uint32_t behind = a.window_kind == WINDOW_OF_CHUNK        ? pos % a.window
                            : a.window_kind == WINDOW_OF_BOTH_SIDES ? to_side
                                                                    : a.window - 1;
    s.from = pos > behind ? pos - behind : 0;
    if (a.window_kind == WINDOW_OF_BOTH_SIDES && pos + to_side < s.end)
        s.end = pos + to_side + 1;
    return s;
}

/* What a block works on: the rows of a tile, and what any of them sees. All of it comes from the
 * step's arrays, as do the places of K and V: it may be asked for before cuda_wait_before. */
struct attn_tile {
    uint32_t first_row, first_pos, n_query, all;
    attn_seen seen;
    const uint32_t *table;
};
static __device__ __forceinline__ attn_tile attn_tile_of(const attn_args &a, uint32_t i)
{
    const cuda_tile t = early_struct(&a.step.tiles[i]);
    const cuda_seq s = early_struct(&a.step.seqs[t.seq]);
    attn_tile x;
    x.first_row = t.first_row;
    x.first_pos = t.first_pos;
    x.n_query = t.n_rows * a.group;
    x.all = s.first_pos + s.n_rows;
    x.seen.from = attn_sees(a, t.first_pos, x.all).from;
    x.seen.end = attn_sees(a, t.first_pos + t.n_rows - 1, x.all).end;
    x.table = a.step.tables + (a.kv.in_panes ? s.panes : s.blocks);
    return x;
}

static __host__ __device__ __forceinline__ size_t kv_head_bytes(const cuda_kv &kv)
{
    return (kv.latent ? 1 : 2) * kv.half_bytes;
}

/* K of a position and KV head; V lies half_bytes on. */
static __device__ __forceinline__ uint8_t *kv_at(const cuda_kv &kv,
                                                 const uint32_t *table,
                                                 uint32_t head_kv,
                                                 uint32_t pos)
{
    return kv.base + early_value(&table[pos / kv.block_tokens]) * kv.block_stride +
           head_kv * kv_head_bytes(kv) + pos % kv.block_tokens * kv.row_bytes;
}

/* What a head takes off a score for each position between query and key, in units of log2. */
static __device__ __forceinline__ float attn_slope(const attn_args &a, uint32_t head)
{
    const uint32_t n = 1u << (31 - __clz(static_cast<int>(a.n_head)));
    const float power =
        head < n ? static_cast<float>(head + 1) : static_cast<float>(head - n) + 0.5f;
    return __fmul_rn(exp2f(-__fmul_rn(a.alibi, power) / static_cast<float>(n)), LOG2_E);
}
/* The score of a query at `place` with the key at `pos`, less what its head's slope takes off. */
static __device__ __forceinline__ float attn_sloped(float x,
                                                    float slope,
                                                    uint32_t place,
                                                    uint32_t pos)
{
    const uint32_t apart = place > pos ? place - pos : pos - place;
    return __fmaf_rn(-slope, static_cast<float>(apart), x);
}

/* The largest score and the sum so far take in a range's; old and more: by what values are
 * multiplied. */
static __device__ __forceinline__ void attn_fold(
    float *m, float *l, float range_m, float range_l, float *old, float *more)
{
    const float top = fmaxf(*m, range_m);
    *old = *m == top ? 1.0f : exp2f(__fsub_rn(*m, top));
    *more = range_m == top ? 1.0f : exp2f(__fsub_rn(range_m, top));
    *l = __fmaf_rn(range_l, *more, __fmul_rn(*l, *old));
    *m = top;
}
static __device__ __forceinline__ float attn_fold_value(float total,
                                                        float value,
                                                        float old,
                                                        float more)
{
    return __fmaf_rn(value, more, __fmul_rn(total, old));
}

/* By what the values of a head are multiplied in the end. */
static __device__ __forceinline__ float attn_inverse(const attn_args &a,
                                                     uint32_t head,
                                                     float m,
                                                     float l)
{
    if (!a.sinks)
        return 1.0f / l;
    const float sink = __fmul_rn(a.sinks[head], LOG2_E), top = fmaxf(m, sink);
    const float old = exp2f(__fsub_rn(m, top));
    return old / __fmaf_rn(l, old, exp2f(__fsub_rn(sink, top)));
}
/* +0 makes one zero of both, as a fold of nothing would. */
static __device__ __forceinline__ float attn_end_value(float total, float inverse)
{
    return __fadd_rn(__fmul_rn(total, inverse), 0.0f);
}

/* KV of f16, bf16 or q8_0: attention_mma.cu with heads of up to ATTN_MMA_MOST, but with those of up
 * to ATTN_MANY_MOST only where rows are mostly alone (few), else attention_many.cu;
 * attention_long.cu with longer ones and with a latent. shared: bytes that a block may have.
 * attn_long_blocks: how many the queries of a tile and KV head are divided between. */
enum { ATTN_MMA_MOST = 256, ATTN_MANY_MOST = 128 };
void attn_mma_launch(const attn_args *a, dim3 grid, int few, uint32_t shared, cudaStream_t stream);
void attn_many_launch(const attn_args *a, dim3 grid, uint32_t shared, cudaStream_t stream);
uint32_t attn_long_blocks(uint32_t group, int few, uint32_t shared);
void attn_long_launch(const attn_args *a, dim3 grid, int few, uint32_t shared, cudaStream_t stream);

#endif
