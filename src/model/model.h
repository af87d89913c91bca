/* A model is a plan: hyper-parameters and tensors become a flat array of op records, once.
 *
 * An architecture is a row of a table (arch.h). A backend executes the plan over a batch and
 * needs to know nothing else about models.
 *
 * Activations are rows of f32 in named buffers; every op reads and writes whole buffers:
 *
 *      X    [n_embd]            the residual stream
 *      H    [n_embd]            X normalised; input of the linears
 *      Q    [n_head * head_dim]         K, V  [n_head_kv * head_dim]
 *      ATT  [n_head * head_dim]         what attention gathered
 *      GATE, UP  [n_ff]         or of the expert that all rows share
 *                               (all of the layer with the most; others use their beginning)
 *      OUT  [n_embd]            what a sub-layer adds to X
 *
 * in models with latent attention (DeepSeek-V2's), where one row a position, [latent + rope_dims]
 * long, is the K of all heads, and its first `latent` values are their V:
 *
 *      QUERY [q_latent]                    what the queries are made of; then what gates, by head
 *                                          or by value
 *      HEADS [n_head][key or value length] queries before they are brought to the latent space, and
 *                                          what attention gathered once it is brought back;
 *                                          in models that gate that, the gate
 *      Q, K  [n_head][latent + rope_dims], [latent + rope_dims]          ATT [n_head][latent]
 *
 * and, in models with experts, of which each row is given to n_expert_used:
 *
 *      ROUTER [n_expert]                   scores; then OP_SELECT picks, with a weight each
 *      EXPERT_GATE, EXPERT_UP  [n_expert_used][n_ff_expert]     by rank of the selection
 *      EXPERT_OUT  [n_expert_used][n_embd]
 *      SHARED [n_embd], SHARED_GATE [1]    of the expert that all rows share; or, where experts
 *                                          run beside or before the dense part, what they put out
 *
 * in models whose layers have embeddings of their own (Gemma 4's smaller ones):
 *
 *      PER_LAYER [n_layer][n_per_layer]    what each layer reads of the token
 *      PROJECTED [n_layer][n_per_layer]    the embedding's part of it
 *
 * and in models with several residual streams (Gemma 3n's), of which a layer computes one, in X; or
 * (Hunyuan 4's), of which a sub-layer reads a sum:
 *
 *      STREAMS [n_stream][n_embd]          the active one last
 *      UNFOLDED [n_stream - 1][n_embd]     the others as they will be added to it; or all, to be
 *                                          weighed [n_stream][n_embd]
 *      MODES [n_stream], COEFS [n_stream][n_stream]      how they are mixed
 *      LOW [n_low], BESIDE [n_embd]        a product of two narrow matrices beside attention
 *                                          (LOW: what experts read and put out, if that is narrow;
 *                                          BESIDE: the embedding, if layers add it once more;
 *                                          in models of two stacks (HRM-Text) LOW and BESIDE: what
 *                                          the low and the high one made last)
 *
 * in models whose sub-layers read a mixture of what the stream was (Kimi K3):
 *
 *      STREAMS [n_recall][n_embd]          the stream at the beginning of each block of layers
 *      BESIDE [n_embd]                     the one of them that joins the mixture
 *      MODES [1], COEFS [1]                the logarithm of the weights so far; that one's score
 *
 * and in models with recurrent layers, which keep of a sequence not K and V of every position but a
 * state of fixed size: the last inputs of a convolution, and a matrix for each head:
 *
 *      MIX [conv_channels]                 what is convolved: queries, keys and values in one
 *      RATE, BETA [n_rec_head]             how fast a head forgets, and how much it takes in
 *                                          (RATE [n_rec_head][rec_key] where each key has its own)
 *      REC [n_rec_head][rec_value]         what heads read from their states
 *      REC_GATE [n_rec_head][rec_value]    and what that is gated by
 *      REC_KEY, REC_QUERY [rec_key]        in the first Mamba, whose heads are channels: RATE
 *                                          has a step for each, made of BETA [rec_rank];
 *                                          in PLaMo 2, too, where they go to MIX, behind what is
 *                                          convolved, and RATE is one for each head; QUERY then
 *                                          [n_rec_head][2][rec_value]: gates and what is convolved
 *
 * which in RWKV reads them of buffers of their own, all [n_embd], one row of all heads:
 *
 *      MIX [2 * n_embd]                    what the row before was, less what this one is: of what
 *                                          the recurrent part reads, then the feed-forward part
 *      ATT                                 the row with a share of that: input of a linear
 *      Q, K, V, RATE                       with a rate for each key
 *      REC_KEY, BETA                       what is taken out of a state, and where to (RWKV-7)
 *      QUERY [5][n_embd]                   shares of the row before (RWKV-6)
 *      BESIDE                              V of the first layer
 *      LOW [rec_rank]                      products of two narrow matrices
 *
 * What comes out is of some rows only, which the batch names:
 *
 *      LOGITS [n_vocab]                    of models that generate
 *      HIDDEN [n_embd]                     the final hidden state: embeddings are made of it
 *      HEAD   [n_embd], SCORES [n_labels]  likewise, of models that judge texts
 *
 * Thread: immutable after model_load, but for model_set_context, before others use it, and
 * model_drop_made. */
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
    BUF_QUERY,
    BUF_HEADS,
    BUF_ROUTER,
    BUF_EXPERT_GATE,
    BUF_EXPERT_UP,
    BUF_EXPERT_OUT,
    BUF_SHARED,
    BUF_SHARED_GATE,
    BUF_PER_LAYER,
    BUF_PROJECTED,
    BUF_STREAMS,
    BUF_UNFOLDED,
    BUF_MODES,
    BUF_COEFS,
    BUF_LOW,
    BUF_BESIDE,
    BUF_MIX,
    BUF_RATE,
    BUF_BETA,
    BUF_REC,
    BUF_REC_GATE,
    BUF_REC_KEY,
    BUF_REC_QUERY,
    BUF_LOGITS, /* [n_vocab], only for the rows that need logits */
    BUF_HIDDEN, /* from here on: only for the rows whose hidden states are wanted */
    BUF_HEAD,
    BUF_SCORES,
    N_MODEL_BUFS,
};

/* Is it by ranks of the selection, n_expert_used in a row? */
static inline bool model_buf_of_experts(enum model_buf buf)
{
    return buf >= BUF_EXPERT_GATE && buf <= BUF_EXPERT_OUT;
}

/* How the hidden states of a text become one vector; numbered as in files, but for the last. */
enum pooling {
    POOLING_UNSPECIFIED, /* a file's 0: it names none */
    POOLING_MEAN,        /* the mean over all positions */
    POOLING_CLS,         /* the first position's */
    POOLING_LAST,        /* the last position's */
    POOLING_RANK,        /* no vector: the scores that the model's head makes of one of them */
    POOLING_NONE,        /* an operator's "none": each position's own vector. Never in a file */
};

/* Whose angles a layer rotates by. */
enum rope_table {
    ROPE_FULL,   /* of layers that see everything, */
    ROPE_WINDOW, /* of windowed layers where the model has others for them; */
    N_ROPE_TABLES,
    ROPE_NONE = N_ROPE_TABLES, /* no rotation */
};

enum { MODEL_MAX_CONV_WIDTH = 8, MODEL_MAX_CONTEXT = 1 << 26 };

struct model_hparams {
    uint32_t n_vocab;
    uint32_t n_ctx_train; /* positions the model was trained on */
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t n_stack; /* layers of each of two stacks that are gone through in cycles:
                       * n_low_pass times the first, then the second; 0: there is one */
    uint32_t n_low_pass;
    uint32_t n_layer_beside;    /* behind them in the file, that guess further tokens: left alone */
    uint32_t n_head, n_head_kv; /* of the layer with the most */
    uint32_t head_dim; /* of Q and K as they meet, in the layer with the most; of V too, unless: */
    uint32_t latent;   /* of the head_dim values of K the first so many are V, and no V is stored
                        * beside it; 0: V is stored, as long as K, the last head_value of it where
                        * that is not 0 behind zeros */
    uint32_t q_latent; /* models with a latent: queries are made of so many values; 0: of H */
    uint32_t head_key; /* likewise: a head's query, before it is brought to the latent space, */
    uint32_t head_value; /* and what it gathered, once it is brought back; without a latent: 0, or
                          * how long a head's values are, which is less than head_dim */
    uint32_t n_ff;       /* of the layer with the most */
    uint32_t n_expert, n_expert_used; /* 0: no experts; the latter of the layer with the most */
    uint32_t n_expert_group;          /* of equal size, of which the best n_expert_group_used are */
    uint32_t n_expert_group_used;     /* selected from; 1 or 0: no groups */
    uint32_t n_ff_expert;             /* likewise */
    uint32_t n_ff_shared;             /* 0: no expert that all rows share */
    uint32_t n_expert_latent;         /* values of what experts read and put out; 0: n_embd */
    uint32_t rope_dims;               /* dims of a head that rotate; even; the most of these: */
    uint32_t rope_dims_of[N_ROPE_TABLES];
    uint32_t rope_first;            /* from this one on */
    uint32_t n_stream;              /* residual streams; 0: one */
    uint32_t recall_step, n_recall; /* sub-layers read a mixture of the stream and of what it was
                                     * before each recall_step layers, n_recall times; 0: they do
                                     * not */
    uint32_t n_low;                 /* rank of what is computed beside attention; 0: nothing is */
    uint32_t
        n_per_layer; /* values of the embedding that each layer has of its own; 0: it has none */
    uint32_t window; /* positions that a windowed layer sees, its own included; 0: no such layer */
    uint32_t conv_width; /* rows that a recurrent layer's convolution is over; 1: it has none; 0: no
                          * such layers */
    uint32_t conv_channels; /* values of such a row of MIX */
    uint32_t n_rec_head;    /* of a recurrent layer; 0: it has a convolution alone */
    uint32_t n_rec_group;   /* heads share keys and queries, n_rec_head / n_rec_group of them */
    uint32_t rec_key, rec_value; /* a head's state is a matrix of rec_key by rec_value */
    uint32_t rec_rank;           /* values that the heads' steps are made of; 0: each has its own;
                                  * in RWKV the most of a narrow product, at least n_rec_head */
    float norm_eps;
    float rope_freq_base;
    float embedding_scale, residual_scale, logit_scale; /* multiply; 1: none */
    float attention_scale;                              /* of scores */
    float attention_cap, logit_cap;                     /* x to cap tanh(x / cap); 0: none */
    float gate_scale, gate_cap;                         /* of GATE_SITU */
    float alibi;        /* the exponent of scores' slopes (model_alibi_slope); 0: none */
    float qkv_clamp;    /* Q, K and V within -it .. it; 0: none */
    float value_scale;  /* of what attention adds; 0: none */
    float expert_scale; /* of the selection's weights */
    float temper_scale; /* queries times 1 + this log(1 + floor((position + temper_offset) / */
    uint32_t temper_length, temper_offset; /* temper_length)), where an op says so */
    bool expert_norm;     /* the selection's weights sum to 1 (before expert_scale) */
    bool expert_input;    /* they multiply what an expert reads, not what it gives */
    bool expert_sigmoid;  /* they are sigmoids of the scores instead of their softmax */
    bool causal;          /* a row sees the positions up to its own; else all of its text, which
                           * therefore has to lie in one batch, whole */
    uint32_t n_positions; /* that a text may have: those the model has learned, each its own row;
                           * or, where `indexed`, those up to which rows attend to all before them,
                           * of which there is no table; 0: as many as one likes */
    bool indexed;         /* with more an index would pick some, which no op computes */
    enum pooling pooling; /* as the file says */
    uint32_t n_labels;    /* scores of a text; 0: the model has no head for them */
    bool label_softmax;   /* they are logits of one choice among the labels */
    bool expert_mixer; /* the selection's weights: of each score that of its softmax among those not
                        * selected before it that are within a fiftieth of it, at least by the
                        * larger of it and their own magnitude (SparseMixer; Liu et al. 2024) */
};

/* What an op with `temper` multiplies queries at a position by. */
float model_temper(const struct model_hparams *hp, uint32_t position);

/* What scores of head h of n_head go down by for each position between query and key, where the
 * model has an exponent for that (ALiBi; Press, Smith and Lewis 2022). */
float model_alibi_slope(float exponent, uint32_t n_head, uint32_t h);

/* What may differ from layer to layer. */
struct model_layer {
    uint32_t n_head;    /* 0: the layer does not attend */
    uint32_t n_head_kv; /* 0 though n_head is not: one matrix stands in for attention */
    uint32_t n_ff;      /* of a dense feed-forward part; 0: the layer has none */
    uint32_t head_dim;  /* of Q and K */
    uint32_t kv_layer;  /* the layer whose K and V it attends to: its own, or one before it */
    bool recurrent;     /* it keeps a state, instead of attention or beside it */
};

/* Floats of a sequence's state in each recurrent layer: first conv_width - 1 rows of conv_channels,
 * the oldest first, then the heads' matrices, each as the backend likes. */
size_t model_conv_state_floats(const struct model_hparams *hp);
size_t model_state_floats(const struct model_hparams *hp);
/* Of the whole model: 0 where no layer is recurrent. */
struct model;
size_t model_state_bytes(const struct model *m);

enum op_kind {
    OP_EMBED,        /* out[r] = row token[r] of w * scale */
    OP_ADD_POSITION, /* out[r] += row position[r] of w */
    OP_ADD_TYPE,     /* out[r] += row 0 of w; row 1, if there is one, in the second of two texts */
    OP_NORM,         /* out[r] = in[r] / rms(in[r]) * w; w: f32 [n]; out may be in */
    OP_LAYER_NORM,   /* out[r] = (in[r] - mean) / deviation * w + bias; out may be in; without a w
                      * or a bias those are 1 and 0 */
    OP_LINEAR,       /* out[r][j] = sum_k w[j][k] in[r][k] (+ bias[j]); w: [n_out rows of n_in] */
    OP_HEAD_LINEAR, /* as OP_LINEAR within each head, with that head's part of w [n_head][n_out rows
                     * of n_in]: of the first n_in of in_step values to the first n_out of out_step
                     */
    OP_HEAD_COPY,   /* the last n_out of each head's in_step values, or with `front` the first, to
                     * the last of its out_step; with `zero` what stands before these is 0 */
    OP_HEAD_NORM,   /* as OP_NORM over each head of head_dim of buffer `out`, in place; a w may be
                     * missing, or have a row for each head */
    OP_HEAD_UNIT,   /* each head of head_dim of the first n_out values of `out`: x / sqrt(sum(x^2) +
                     * eps) */
    OP_HEAD_LAYER_NORM, /* as OP_LAYER_NORM over each head of head_dim of buffer `out`, in place; w
                         * and bias, which may be missing: f32 [heads][head_dim] */
    OP_ROPE,            /* rotate Q and K by position (K, Q in place) */
    OP_ROPE_STORE,      /* the same, then store K, V of `layer` */
    OP_ATTENTION, /* out[r] = softmax(cap(Q[r] . K^T * scale) - slope * distance) V over the row's
                   * own sequence: causal unless the model is not, within a window if that is not 0.
                   * w: f32 [n_head] or NULL: a score more for each head that takes part in the sum
                   * but has no V */
    OP_CONV,      /* over the rows of a sequence: out[r][c] = sum_i w[c][i] out[r - conv_width + 1 +
                   * i][c]
                   * (+ bias[c]), then silu if `gated`; rows before the first are those of the state.
                   * Of n_out of the state's channels, and of BUF_MIX, from first_channel on.
                   * w: f32 [n_out of conv_width] */
    OP_RATES,   /* per head h, with s = softplus(x + bias[h]), a = w[h]; f32 [n_head]. RECUR_DELTA:
                 * RATE = e^(s a), BETA = sigmoid(y); RECUR_SCAN: RATE = e^(s a), BETA = s. x is RATE,
                 * y BETA; or where in_step is not 0 `in` has y of in_step heads, then their x, and
                 * so on */
    OP_RECUR,   /* per head, of a state S [rec_key][rec_value], with k, q of the head's group and v
                 * its own, all in MIX; f = RATE[h], b = BETA[h]:
                 *   RECUR_DELTA: S = f S + k (v - f S^T k) b; out = S^T q / sqrt(rec_key)
                 *   RECUR_SCAN:  S = f S + k v b;             out = S^T q + w[h] v
                 *   RECUR_FIXED: S = f S + k v b;             out = S^T q
                 * RECUR_DELTA_EACH is RECUR_DELTA with a diagonal f, RATE[h][rec_key].
                 * Of RECUR_FIXED f = w[0][h] and b = w[1][h]; w: f32 [2 of n_head].
                 * RECUR_SELECTIVE: of heads of one value, v in MIX, that share k and q, REC_KEY and
                 * REC_QUERY; s = RATE[h]; w: f32 [n_head of rec_key]
                 *   S[i] = e^(s w[h][i]) S[i] + k[i] s v;     out = S . q + bias[h] v
                 * RECUR_DELTA_APART: of Q, K and V, with u = REC_KEY, f = RATE and b = BETA, each
                 * [h][rec_key]: S = f S + k v - b (S^T u);    out = S^T q
                 * RECUR_READ_FIRST, likewise: out = S^T q;    S = f S + k v */
    OP_SCALE,   /* out[r] *= scale */
    OP_CLAMP,   /* out[r] within -cap .. cap */
    OP_MUL,     /* out[r] = in[r] * w; w: f32 [n] */
    OP_SPARSE,  /* out[r] = max(out[r] - mean - scale * deviation, 0), the deviation that of all
                 * values; out is in */
    OP_MATCH,   /* each of the n_head parts of out[r], n_out long, times what makes its magnitude
                 * that of in[r] */
    OP_FOLD,    /* out[r] = (out[r] + the sum of the n_head parts of in[r]) * scale */
    OP_PREDICT, /* n_head streams of n_out values in out[r], the first (which is last): stream j +=
                 * sum over k of in2[r][j][k] * stream k, of what they were */
    OP_CORRECT, /* likewise: stream j += (in[r] - the first) * (1 + in2[r][j]) */
    OP_SPREAD,  /* likewise: all but the first += in[r] */
    OP_GATED,   /* out[r] = act(in[r]) * in2[r], from value in2_first on; with expert_input of
                 * experts' buffers, after both were multiplied by the rank's weight */
    OP_UNARY,   /* out[r] = unary(in[r]); out is in */
    OP_HEAD_SCALE, /* each of the n_head heads of head_dim of out[r] *= in[r][head] */
    OP_ADD,        /* out[r] += in[r] * scale */
    OP_ADD_GATED,  /* out[r] += in[r] * sigmoid(in2[r][0]) */
    OP_SELECT,     /* the n_head largest of in[r], in order, with weights: the softmax, or
                    * the sigmoid, of in[r]. With a bias: the largest of these plus bias. With a w,
                    * f32 [n_expert]: weights times it */
    OP_EXPERTS,    /* as OP_LINEAR for each rank of the selection, with that expert's part of w
                    * [n_expert][rows of n_in], of which its n_out begin at first_row, and bias
                    * [n_expert][n_out]; in: a row of H for all ranks, or n_in by rank; out: n_out by
                    * rank */
    OP_MIX,        /* out[r] = sum over ranks, from the first, of weight * in[r][rank]; with
                    * expert_input of in[r][rank] alone */
    OP_LOGITS,     /* as OP_LINEAR, only for the rows whose logits are wanted, into BUF_LOGITS,
                    * then * scale, then capped */
    OP_HIDDEN,     /* HIDDEN = in of the rows whose hidden states are wanted, as OP_NORM if there
                    * is a w; linears that read it or HEAD follow */
    OP_TANH,       /* out[r] = tanh(in[r]); out is in */
};

/* What recurrent heads do, and where a row of MIX has what they read. DELTA is the gated delta rule
 * (Yang, Kautz and Hatamizadeh 2024): q and k of all groups, then v; head h is of group
 * h / (n_head / n_group), or where `tiled` h % n_group. DELTA_EACH forgets at a rate for each key
 * (Kimi Delta Attention, 2025). DELTA_APART takes out of a state by a vector of its own, and adds
 * what it takes out along another (RWKV-7; Peng et al. 2025). READ_FIRST forgets at a rate for each
 * key and reads what was there before the row (RWKV-6; Peng et al. 2024). SCAN is Mamba-2's (Dao
 * and Gu 2024): v, then k and q of all groups. FIXED is lightning attention (Qin et al. 2024): of
 * each head its q, its k and its v, heads being groups. SELECTIVE is the first Mamba's (Gu and Dao
 * 2023). */
enum recur_kind {
    RECUR_DELTA,
    RECUR_DELTA_EACH,
    RECUR_DELTA_APART,
    RECUR_READ_FIRST,
    RECUR_SCAN,
    RECUR_FIXED,
    RECUR_SELECTIVE
};

/* How adjacent dims pair up in rotation: (2i, 2i+1) or (i, i + rope_dims/2). */
enum rope_kind { ROPE_ADJACENT, ROPE_HALVES };

/* What gates: silu(g) u; gelu(g) u by its tanh form; g' sigmoid(1.702 g') (u' + 1) with g' = min(g,
 * 7) and u' = u within -7..7; sigmoid(g) u; g u; min(silu(g), c) u' with u' = u within -c..c, of
 * the op's cap c (Step 3.5); silu(min(g, c)) u' likewise (Maple); s tanh(g / s) sigmoid(g) u' of
 * the op's scale s, with u' = c tanh(u / c), or u where c is 0 (Kimi K3). */
enum gate_kind {
    GATE_SILU,
    GATE_GELU,
    GATE_CLAMPED,
    GATE_SIGMOID,
    GATE_PLAIN,
    GATE_SILU_CAPPED,
    GATE_SILU_BOUNDED,
    GATE_SITU
};

/* What stands between the two matrices of a feed-forward part without a gate, or before one: gelu
 * by the error function; gelu by its tanh form; max(x, 0)^2; max(x, 0); 1 / (1 + e^-x);
 * log(1 + e^x); e^x; or, of parameters that differ from layer to layer, xIELU (Huang and Schlag
 * 2024).
 */
enum unary_kind {
    UNARY_NONE,
    UNARY_GELU,
    UNARY_GELU_TANH,
    UNARY_RELU_SQUARE,
    UNARY_RELU,
    UNARY_SIGMOID,
    UNARY_SOFTPLUS,
    UNARY_EXP,
    N_UNARY_KINDS,
    UNARY_XIELU = N_UNARY_KINDS,
};

/* Above 0 positive x^2 + beta x, else negative (e^min(x, eps) - 1 - x) + beta x. */
struct xielu {
    float positive, negative, beta, eps;
};

/* What a row sees of a window of n positions: the last n, its own included; of chunks n long, its
 * own chunk up to itself; or, where the model is not causal, n / 2 to either side. */
enum window_kind { WINDOW_LAST, WINDOW_CHUNK, WINDOW_AROUND };

struct op {
    enum op_kind kind;
    uint16_t layer; /* of ROPE_STORE and ATTENTION: which layer's KV */
    enum model_buf in, in2, out;
    uint32_t n_in, n_out;       /* LINEAR, EXPERTS, LOGITS: K and N; else n_out = values of a row */
    uint32_t n_head, n_head_kv; /* ROPE, ROPE_STORE, ATTENTION, HEAD_*: of this layer; RATES, RECUR;
                                 * of SELECT, EXPERTS, MIX, and GATED and UNARY of experts' buffers
                                 * n_head experts of a row, so many ranks */
    uint32_t head_dim;          /* ROPE, ROPE_STORE, ATTENTION, HEAD_NORM, HEAD_LAYER_NORM */
    uint32_t in_step, out_step; /* HEAD_LINEAR, HEAD_COPY: values from head to head */
    uint32_t in2_first;         /* GATED */
    uint32_t first_row;         /* EXPERTS */
    uint32_t first_channel;     /* CONV */
    const struct gguf_tensor *w;      /* EMBED, LINEAR, LOGITS: any block format; norms: f32 */
    const struct gguf_tensor *bias;   /* f32 or NULL */
    const struct gguf_tensor *factor; /* LINEAR, LOGITS, EXPERTS: f32 [1], of EXPERTS [n_expert], or
                                       * NULL: products times it, before a bias */
    float scale;                      /* EMBED, ATTENTION, ADD, SCALE, LOGITS, GATED; else 1 */
    float cap;                        /* ATTENTION, LOGITS; 0: none; CLAMP; GATED of such a kind */
    float eps;                        /* HEAD_UNIT, HEAD_LAYER_NORM; 0: the model's */
    float alibi;                      /* ATTENTION: the slopes' exponent; 0: slopes are 0 */
    uint32_t window;                  /* ATTENTION; 0: all */
    enum window_kind window_kind;     /* likewise */
    bool borrowed;                    /* ATTENTION: an op of another layer stores K and V */
    bool temper;                      /* ROPE_STORE: queries are made to grow (temper_scale) */
    bool front, zero;                 /* HEAD_COPY */
    bool gated;                       /* CONV */
    bool tiled;                       /* RECUR */
    enum recur_kind recur;            /* RATES, RECUR */
    enum rope_table rope;             /* ROPE, ROPE_STORE */
    enum gate_kind gate;              /* GATED */
    enum unary_kind unary;            /* UNARY */
    struct xielu xielu;               /* UNARY of that kind */
};

/* Angles are position * inv_freq; cosines and sines are multiplied by scale. */
struct model_rope {
    double *inv_freq; /* [n_dims / 2] radians a position, factors and scaling applied; or NULL */
    uint32_t n_dims;  /* of a head that rotate */
    double scale;
};

struct model {
    struct gguf *gguf; /* owned */
    /* Of embeddings, behind the pooling: [mid][n_embd], [n_embd][mid]; both or neither (NULL). */
    const struct gguf_tensor *dense[2];
    const char *arch; /* static */
    char *name;       /* general.name, or the file's name */
    struct model_hparams hp;
    struct model_layer *layers; /* [n_layer] */
    enum rope_kind rope;
    struct model_rope ropes[N_ROPE_TABLES];
    uint32_t buf_width[N_MODEL_BUFS]; /* floats a row */
    struct op *ops;
    uint32_t n_ops;
    bool generates;            /* the plan has logits: the model continues texts */
    struct gguf_tensor *parts; /* of tensors that hold several matrices */
    uint32_t n_parts;
    uint8_t **made; /* [n_made] data of tensors that no file has as they are needed */
    uint32_t n_made;
    size_t weight_bytes; /* of all tensors the plan uses, as stored in the file */
};

/* Open, check and plan. Tensors are checked for presence, shape and type. On failure *out is NULL.
 * Errors: ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED (architecture, feature, type), ERR_NOMEM. */
enum err model_load(const char *path, struct model **out, struct err_info *e) WEIR_MUST_USE;

/* The same from an open file, which is owned from here on, also on failure. */
enum err model_from_gguf(struct gguf *g, const char *name, struct model **out, struct err_info *e)
    WEIR_MUST_USE;

/* Free the data of matrices that were made when the file was loaded, once a backend has its own
 * copy of them: no further one can be made. Idempotent. */
void model_drop_made(struct model *m);

/* What an operator may choose: mean, cls, last or none. OK or ERR_INVALID. */
enum err pooling_parse(const char *s, enum pooling *out);

/* Say for how many positions the model will be used: some have one set of rotation factors for
 * contexts as long as they were first trained on and another for longer ones. Without this call, or
 * with 0, n_ctx_train decides. Before a backend is made. Errors: ERR_FORMAT (of the factors),
 * ERR_INVALID (more than the positions that the model has learned). */
enum err model_set_context(struct model *m, uint32_t n_ctx, struct err_info *e) WEIR_MUST_USE;

/* Positions where nobody says how many: those of training, or fewer if the model takes no more. */
uint32_t model_default_context(const struct model *m);

/* What stands between "the model" and n_positions where a text would be too long. */
const char *model_positions_verb(const struct model *m);

/* ERR_INVALID, with the reason, if the model does not continue texts. */
enum err model_must_generate(const struct model *m, struct err_info *e) WEIR_MUST_USE;

void model_destroy(struct model *m);

#endif
