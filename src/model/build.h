/* What plans are built with; used by plan.c and what it is divided into. */
#ifndef WEIR_MODEL_BUILD_H
#define WEIR_MODEL_BUILD_H

#include "model/arch.h"

/* State of one build: the first error sticks, so that the plan below reads as the maths. */
struct builder {
    struct model *m;
    const struct arch *arch;
    enum norm_kind norm;
    enum norm_place norms;
    uint32_t n_used, n_ff_expert;  /* experts of a row in the layer, and their width */
    uint32_t most_ops, most_parts; /* that m->ops and m->parts have room for, at least 1 */
    uint32_t layer;
    uint32_t n_named;               /* layers of a pass, behind which the next one begins */
    uint32_t n_low_pass;            /* hp.n_low_pass */
    bool *used;                     /* [gguf_n_tensors] whether the tensor found its place */
    const struct gguf_tensor *ones; /* weights of norms that have none, once they were needed */
    const struct gguf_tensor *lift_read, *lift_write, *lift_bias; /* connections.c */
    const struct gguf_tensor *repeats;                            /* rwkv.c */
    const struct gguf_tensor *less; /* those of a convolution that is a difference, likewise */
    uint32_t n_recalled;            /* of hp.n_recall, before the sub-layer under construction */
    bool restarts;                  /* what it adds begins the stream anew */
    enum err err;
    struct err_info *e;
};
/* What a tensor's rows (of `cols` values) may be of. */
enum values { ANY_TYPE, F32_ONLY };

/* The tensor found its place. */
void plan_mark(struct builder *b, const struct gguf_tensor *t);

/* Tensor `name` of the given shape, or NULL if it may be absent and is, or on error (b->err). */
const struct gguf_tensor *plan_take_shape(struct builder *b,
                                          const char *name,
                                          const uint64_t ne[4],
                                          enum values values,
                                          enum presence presence);
const struct gguf_tensor *plan_take3(struct builder *b,
                                     const char *name,
                                     uint64_t cols,
                                     uint64_t rows,
                                     uint64_t depth,
                                     enum values values,
                                     enum presence presence);
const struct gguf_tensor *plan_take(struct builder *b,
                                    const char *name,
                                    uint64_t cols,
                                    uint64_t rows,
                                    enum values values,
                                    enum presence presence);

/* What products with a tensor of NVFP4, or of an architecture that has scales, are multiplied by, n
 * values: NAME.scale of its name without "weight", or NULL if there is none. NAME.input_scale, by
 * which others quantise what it is multiplied with, is left alone. */
const struct gguf_tensor *plan_factor(struct builder *b, const struct gguf_tensor *w, uint64_t n);

/* Name of a tensor of the layer under construction; valid until the next call. */
const char *plan_name(const struct builder *b, const char *stem, const char *kind);
bool plan_has(const struct builder *b, const char *stem); /* its weight */
/* The same without "weight" or "bias". */
const char *plan_bare_name(const struct builder *b, const char *stem);

/* The next op, as wide as its buffers. Where there is no room for one more: b->err, and the last
 * one again. */
struct op *plan_add(struct builder *b, enum op_kind kind, enum model_buf in, enum model_buf out);
struct op *plan_linear(struct builder *b,
                       const char *stem,
                       enum model_buf in,
                       uint32_t n_in,
                       enum model_buf out,
                       uint32_t n_out,
                       enum presence bias);

/* The same with a tensor that was taken, and no bias. */
struct op *plan_linear_of(struct builder *b,
                          const struct gguf_tensor *w,
                          enum model_buf in,
                          uint32_t n_in,
                          enum model_buf out,
                          uint32_t n_out);

/* A tensor that no file has as it is needed, made of another: of ne[2] matrices of ne[1] rows, a
 * row of ne[0] values in row_bytes; the caller fills in its bytes, *data. The product fits size_t.
 * NULL on error (b->err). */
struct gguf_tensor *plan_make(struct builder *b,
                              const struct gguf_tensor *of,
                              enum gguf_type type,
                              const uint64_t ne[3],
                              size_t row_bytes,
                              uint8_t **data);

/* The next tensor of m->parts, a copy to be changed; without room as plan_add. */
struct gguf_tensor *plan_part(struct builder *b, const struct gguf_tensor *of);

/* Rows first .. first + n - 1 of a matrix, or values of a vector, as a tensor of their own; NULL of
 * NULL. */
const struct gguf_tensor *plan_slice(struct builder *b,
                                     const struct gguf_tensor *t,
                                     uint64_t first,
                                     uint64_t n);

/* A tensor that holds the matrices of several linears of one input, one below the other. */
void plan_stacked(struct builder *b,
                  const char *stem,
                  enum model_buf in,
                  const enum model_buf *outs,
                  const uint32_t *n_outs,
                  int n,
                  enum presence bias);

/* Likewise, where they read the first n_in values of a row. */
void plan_stacked_of(struct builder *b,
                     const char *stem,
                     enum model_buf in,
                     uint32_t n_in,
                     const enum model_buf *outs,
                     const uint32_t *n_outs,
                     int n,
                     enum presence bias);

/* Of the values of each head of a buffer, which has n; w: f32 [head_dim], or NULL. */
struct op *plan_head_norm(struct builder *b,
                          enum model_buf buf,
                          uint32_t n,
                          const struct gguf_tensor *w);
/* The weights of norms over n_embd values that have none, made once; NULL on error (b->err). */
const struct gguf_tensor *plan_ones(struct builder *b);
/* The norm of the layer under construction, of rows of n_embd values. */
void plan_norm(struct builder *b, const char *stem, enum model_buf in, enum model_buf out);
/* By RMS, of the first n values of a buffer, in place. */
void plan_part_norm(struct builder *b, const char *stem, enum model_buf buf, uint32_t n);
/* The norm before a sub-layer, where there is one; returns what the sub-layer reads. */
enum model_buf plan_norm_before(struct builder *b, const char *stem);
/* What a sub-layer put in OUT, normalised where the architecture does so, joins the residual
 * stream. */
void plan_result(struct builder *b, const char *norm, const char *norm_of_sum);
/* in times the kind's function of gate, to out. */
void plan_product(struct builder *b,
                  enum gate_kind kind,
                  enum model_buf gate,
                  enum model_buf in,
                  enum model_buf out);
/* The n_embd values at from * n_embd of `in` to those at to * n_embd of `out`. */
void plan_copy(
    struct builder *b, enum model_buf in, uint32_t from, enum model_buf out, uint32_t to);

/* attention.c: what attention adds to X; in parallel layers the feed-forward part reads the H that
 * it leaves. And of Q, K and V, once their buffers hold them: rotated, normalised, stored,
 * attended. */
void plan_attention(struct builder *b, bool parallel);
void plan_attend(struct builder *b);

/* experts.c: scores for the experts, where they are not of what these read; else those too, the
 * experts and the one that all rows share, to OUT; or, beside a dense part whose result OUT holds,
 * normalised and added to it; or of X before attention, to SHARED. */
void plan_router(struct builder *b, enum model_buf in);
void plan_experts(struct builder *b, enum model_buf in);
void plan_experts_beside(struct builder *b);
void plan_experts_first(struct builder *b);

/* feed_forward.c: the dense part, of what it reads, to OUT. */
void plan_dense(struct builder *b, enum model_buf in);
/* The first n values, in place. */
void plan_unary(struct builder *b, enum model_buf buf, uint32_t n, enum unary_kind kind);
/* out = act(out) * up, the first n values. */
void plan_gated(struct builder *b, enum model_buf out, enum model_buf up, uint32_t n);

/* per_layer.c: what each layer will read of the token, once X is embedded; and what a layer makes
 * of its part, at its end. */
void plan_per_layer_inputs(struct builder *b);
void plan_per_layer(struct builder *b);
/* To OUT, of what the layer's gate reads. */
void plan_per_layer_part(struct builder *b, enum model_buf in);
/* The embedding, which BESIDE holds, joins the stream once more, by the layer's scale. */
void plan_embed_again(struct builder *b);

/* streams.c: the streams of X; before a layer, the one that it computes, in X; after it; and X of
 * them all. And what is added to attention's result, of what attention reads; and after it. */
void plan_streams(struct builder *b);
void plan_streams_predict(struct builder *b);
void plan_streams_correct(struct builder *b);
void plan_streams_fold(struct builder *b);
void plan_beside_attention(struct builder *b, enum model_buf in);
void plan_add_beside(struct builder *b);
/* Of the layer's gate, n values, where the layer does so. */
void plan_sparse(struct builder *b, uint32_t n);

/* connections.c: the streams, of X; what a sub-layer reads of them, to X; OUT, to each of them; and
 * X of them all. */
void plan_connections(struct builder *b);
void plan_connections_read(struct builder *b, const char *stem);
void plan_connections_write(struct builder *b);
void plan_connections_end(struct builder *b);

/* cycles.c: what the first pass reads, once X is embedded; and, behind a pass, what the next one
 * does. */
void plan_cycles(struct builder *b);
void plan_cycles_next(struct builder *b);
/* recall.c: the widths of its buffers, and its most ops; what the sub-layer whose norm this is
 * reads, H, or X while there is nothing to recall; where the layer begins a block, X is kept. And
 * at the end, X of them all. */
void recall_widths(struct model *m);
uint32_t recall_most_ops(const struct model *m);
enum model_buf plan_recall(struct builder *b, bool attention);
void plan_recall_last(struct builder *b);

/* The widths of recurrent layers' buffers (recurrent_sizes.c); such a layer, of what its linears
 * read, to `out` (recurrent.c). */
void recurrent_widths(struct model *m, const struct arch *arch);
void plan_recurrent(struct builder *b, enum model_buf in, enum model_buf out);

/* rwkv.c: what the file says; a recurrent layer of RWKV, and its feed-forward part, to `out`; and
 * what becomes of X behind the layer. */
bool rwkv_is(const struct arch *arch);
enum err rwkv_read(struct model *m, const struct arch *arch, struct err_info *e) WEIR_MUST_USE;
void rwkv_widths(struct model *m, const struct arch *arch);
void plan_rwkv_end(struct builder *b);
void plan_rwkv(struct builder *b, enum model_buf in, enum model_buf out);
void plan_rwkv_channels(struct builder *b, enum model_buf in);

/* xielu.c: the parameters of the layer under construction. */
struct xielu plan_xielu(struct builder *b);

/* latent.c: attention over a latent, from what it reads to OUT. */
void plan_latent_attention(struct builder *b, enum model_buf in);
/* What would pick positions of this layer, were there more of them (hp.n_positions). */
void plan_leave_index(struct builder *b);

#endif
