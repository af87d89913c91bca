/* A model is a plan: hyper-parameters and tensors become a flat array of op records, once.
 *
 * An architecture is a row of the table in arch.c. A backend executes the plan over a batch and
 * needs to know nothing else about models.
 *
 * Activations are rows of f32 in named buffers; every op reads and writes whole buffers:
 *
 *      X    [n_embd]            the residual stream
 *      H    [n_embd]            X normalised; input of the linears
 *      Q    [n_head * head_dim]         K, V  [n_head_kv * head_dim]
 *      ATT  [n_head * head_dim]         what attention gathered
 *      GATE, UP  [n_ff]         or of the expert that all rows share
 *      OUT  [n_embd]            what a sub-layer adds to X
 *
 * and, in models with experts, of which each row is given to n_expert_used:
 *
 *      ROUTER [n_expert]                   scores; then OP_SELECT picks, with a weight each
 *      EXPERT_GATE, EXPERT_UP  [n_expert_used][n_ff_expert]     by rank of the selection
 *      EXPERT_OUT  [n_expert_used][n_embd]
 *      SHARED [n_embd], SHARED_GATE [1]    of the expert that all rows share
 *
 * Thread: immutable after model_load. */
#ifndef WEIR_MODEL_MODEL_H
#define WEIR_MODEL_MODEL_H

#include "base/err.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_buf {
    BUF_X,
    BUF_H,
    BUF_Q,
    BUF_K,
    BUF_V,
    BUF_ATT,
    BUF_GATE,
    BUF_UP,
    BUF_OUT,
    BUF_ROUTER,
    BUF_EXPERT_GATE,
    BUF_EXPERT_UP,
    BUF_EXPERT_OUT,
    BUF_SHARED,
    BUF_SHARED_GATE,
    BUF_LOGITS, /* [n_vocab], only for the rows that need logits */
    N_MODEL_BUFS,
};

struct model_hparams {
    uint32_t n_vocab;
    uint32_t n_ctx_train; /* positions the model was trained on */
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t n_head;
    uint32_t n_head_kv;
    uint32_t head_dim;
    uint32_t n_ff;
    uint32_t n_expert, n_expert_used; /* 0: no experts */
    uint32_t n_ff_expert;
    uint32_t n_ff_shared; /* 0: no expert that all rows share */
    uint32_t rope_dims;   /* leading dims of a head that rotate; even */
    uint32_t window; /* positions that a windowed layer sees, its own included; 0: no such layer */
    float norm_eps;
    float rope_freq_base;
    float embedding_scale, residual_scale, logit_scale; /* multiply; 1: none */
    float attention_scale;                              /* of scores */
    float attention_cap, logit_cap;                     /* x to cap tanh(x / cap); 0: none */
    float expert_scale;                                 /* of the selection's weights */
    bool expert_norm; /* the selection's weights sum to 1 (before expert_scale) */
};

enum op_kind {
    OP_EMBED,      /* out[r] = row token[r] of w * scale */
    OP_NORM,       /* out[r] = in[r] / rms(in[r]) * w; w: f32 [n]; out may be in */
    OP_LINEAR,     /* out[r][j] = sum_k w[j][k] in[r][k] (+ bias[j]); w: [n_out rows of n_in] */
    OP_HEAD_NORM,  /* as OP_NORM over each head of head_dim of buffer `out`, in place */
    OP_ROPE_STORE, /* rotate Q and K by position (K, Q in place), then store K, V of `layer` */
    OP_ATTENTION,  /* out[r] = softmax(cap(Q[r] . K^T * scale)) V over the row's own sequence:
                    * causal, the last `window` positions if that is not 0. w: f32 [n_head] or
                    * NULL: a score more for each head that takes part in the sum but has no V */
    OP_GATED,      /* out[r] = act(in[r]) * in2[r] */
    OP_ADD,        /* out[r] += in[r] * scale */
    OP_ADD_GATED,  /* out[r] += in[r] * sigmoid(in2[r][0]) */
    OP_SELECT,     /* the n_expert_used largest of in[r], in order, with softmax weights */
    OP_EXPERTS,    /* as OP_LINEAR for each rank of the selection, with that expert's part of w
                    * [n_expert][n_out rows of n_in] and bias [n_expert][n_out]; in: a row of H for
                    * all ranks, or n_in by rank; out: n_out by rank */
    OP_MIX,        /* out[r] = sum over ranks, from the first, of weight * in[r][rank] */
    OP_LOGITS,     /* as OP_LINEAR, only for the rows whose logits are wanted, into BUF_LOGITS,
                    * then * scale, then capped */
};

/* How adjacent dims pair up in rotation: (2i, 2i+1) or (i, i + rope_dims/2). */
enum rope_kind { ROPE_ADJACENT, ROPE_HALVES };

/* Whose angles a layer rotates by. */
enum rope_table {
    ROPE_FULL,   /* of layers that see everything, */
    ROPE_WINDOW, /* of windowed layers where the model has others for them; */
    N_ROPE_TABLES,
    ROPE_NONE = N_ROPE_TABLES, /* no rotation */
};

/* What gates: silu(g) u; gelu(g) u by its tanh form; g' sigmoid(1.702 g') (u' + 1) with g' = min(g,
 * 7) and u' = u within -7..7. */
enum gate_kind { GATE_SILU, GATE_GELU, GATE_CLAMPED };

struct op {
    enum op_kind kind;
    uint16_t layer; /* of ROPE_STORE and ATTENTION: which layer's KV */
    enum model_buf in, in2, out;
    uint32_t n_in, n_out; /* LINEAR, EXPERTS, LOGITS: K and N; else n_out = values of a row */
    const struct gguf_tensor *w;    /* EMBED, LINEAR, LOGITS: any block format; norms: f32 */
    const struct gguf_tensor *bias; /* f32 or NULL */
    float scale;                    /* EMBED, ATTENTION, ADD, LOGITS; else 1 */
    float cap;                      /* ATTENTION, LOGITS; 0: none */
    uint32_t window;                /* ATTENTION; 0: all */
    enum rope_table rope;           /* ROPE_STORE */
    enum gate_kind gate;            /* GATED */
};

/* Angles are position * inv_freq; cosines and sines are multiplied by scale. */
struct model_rope {
    double *inv_freq; /* [rope_dims / 2] radians a position, factors and scaling applied; or NULL */
    double scale;
};

struct model {
    struct gguf *gguf; /* owned */
    const char *arch;  /* static */
    char *name;        /* general.name, or the file's name */
    struct model_hparams hp;
    enum rope_kind rope;
    struct model_rope ropes[N_ROPE_TABLES];
    uint32_t buf_width[N_MODEL_BUFS]; /* floats a row */
    struct op *ops;
    uint32_t n_ops;
    struct gguf_tensor *parts; /* of tensors that hold several matrices */
    uint32_t n_parts;
    size_t weight_bytes; /* of all tensors the plan uses, as stored in the file */
};

/* Open, check and plan. Tensors are checked for presence, shape and type. On failure *out is NULL.
 * Errors: ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED (architecture, feature, type), ERR_NOMEM. */
enum err model_load(const char *path, struct model **out, struct err_info *e) WEIR_MUST_USE;

/* The same from an open file, which is owned from here on, also on failure. */
enum err model_from_gguf(struct gguf *g, const char *name, struct model **out, struct err_info *e)
    WEIR_MUST_USE;

/* Say for how many positions the model will be used: some have one set of rotation factors for
 * contexts as long as they were first trained on and another for longer ones. Without this call, or
 * with 0, n_ctx_train decides. Before a backend is made. Errors: ERR_FORMAT (of the factors). */
enum err model_set_context(struct model *m, uint32_t n_ctx, struct err_info *e) WEIR_MUST_USE;

void model_destroy(struct model *m);

#endif
