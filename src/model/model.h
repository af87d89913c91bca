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
 *      GATE, UP  [n_ff]
 *      OUT  [n_embd]            what a sub-layer adds to X
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
    uint32_t rope_dims; /* leading dims of a head that rotate; even */
    float norm_eps;
    float rope_freq_base;
};

enum op_kind {
    OP_EMBED,      /* out[r] = row token[r] of w */
    OP_NORM,       /* out[r] = in[r] / rms(in[r]) * w; w: f32 [n] */
    OP_LINEAR,     /* out[r][j] = sum_k w[j][k] in[r][k] (+ bias[j]); w: [n_out rows of n_in] */
    OP_HEAD_NORM,  /* as OP_NORM over each head of head_dim of buffer `out`, in place */
    OP_ROPE_STORE, /* rotate Q and K by position (K, Q in place), then store K, V of `layer` */
    OP_ATTENTION,  /* out[r] = softmax(Q[r] . K^T * scale) V over the row's own sequence, causal */
    OP_GATED_SILU, /* out[r] = silu(in[r]) * in2[r] */
    OP_ADD,        /* out[r] += in[r] */
    OP_LOGITS,     /* as OP_LINEAR, only for the rows whose logits are wanted, into BUF_LOGITS */
};

/* How adjacent dims pair up in rotation: (2i, 2i+1) or (i, i + rope_dims/2). */
enum rope_kind { ROPE_ADJACENT, ROPE_HALVES };

struct op {
    enum op_kind kind;
    uint16_t layer; /* of ROPE_STORE and ATTENTION: which layer's KV */
    enum model_buf in, in2, out;
    uint32_t n_in, n_out;           /* LINEAR, LOGITS: K and N; else n_out = row length of out */
    const struct gguf_tensor *w;    /* EMBED, LINEAR, LOGITS: any block format; norms: f32 */
    const struct gguf_tensor *bias; /* f32 or NULL */
    float scale;                    /* ATTENTION: of the scores */
};

struct model {
    struct gguf *gguf; /* owned */
    const char *arch;  /* static */
    char *name;        /* general.name, or the file's name */
    struct model_hparams hp;
    enum rope_kind rope;
    double *rope_inv_freq; /* [rope_dims / 2] radians a position, factors and scaling applied */
    uint32_t buf_width[N_MODEL_BUFS]; /* floats a row */
    struct op *ops;
    uint32_t n_ops;
    size_t weight_bytes; /* of all tensors the plan uses, as stored in the file */
};

/* Open, check and plan. Tensors are checked for presence, shape and type. On failure *out is NULL.
 * Errors: ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED (architecture, feature, type), ERR_NOMEM. */
enum err model_load(const char *path, struct model **out, struct err_info *e) WEIR_MUST_USE;

/* The same from an open file, which is owned from here on, also on failure. */
enum err model_from_gguf(struct gguf *g, const char *name, struct model **out, struct err_info *e)
    WEIR_MUST_USE;

void model_destroy(struct model *m);

#endif
