/* The architectures Weir knows: one row each, in the table of its kind. What a row cannot say, an
 * op says. What a row does not name is 0: absent, plain or none. Sources are the papers and
 * published configurations of each family; the names of tensors and keys are GGUF's. */
#ifndef WEIR_MODEL_ARCH_H
#define WEIR_MODEL_ARCH_H

#include "model/model.h"

/* Whether a kind of tensor belongs to the architecture. */
enum presence { ABSENT, OPTIONAL, REQUIRED };

/* What is normalised between projection and rotation; or, of each head, after it; or so, but with
 * no weights and only where there is a rotation; or, before it, with weights for each head, also
 * as LayerNorm; or, after it, with a factor for each head of queries and none of keys. */
enum qk_norm {
    QK_PLAIN,
    QK_NORM_HEADS,
    QK_NORM_ROWS,
    QK_NORM_ROTATED,
    QK_NORM_BARE,
    QK_NORM_OWN,
    QK_NORM_EACH,
    QK_NORM_FACTORS
};

/* How rows are normalised: by their RMS; as LayerNorm, with a bias, without, or bare; or by their
 * RMS without weights. */
enum norm_kind { NORM_RMS, NORM_LAYER, NORM_LAYER_UNBIASED, NORM_LAYER_BARE, NORM_RMS_BARE };

/* Where the norms of a sub-layer stand: before it; after it, before it is added; both; over the
 * sum with what it added to; or before it, of what it is added to as well. */
enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_BOTH, NORM_OF_SUM, NORM_OF_STREAM };

/* Whether attention and feed-forward part read the same residual stream: not; always; if the key
 * use_parallel_residual says so; where there is no norm before the second. */
enum parallel { PARALLEL_NOT, PARALLEL_ALWAYS, PARALLEL_BY_KEY, PARALLEL_BY_NORM };

/* Which norm a layer has besides, where they do: none, so that one serves both; one for the
 * feed-forward part, ffn_norm; or, in some files, one for attention, attn_norm_2. */
enum second_norm { SECOND_NONE, SECOND_FFN, SECOND_ATTENTION };

/* Keys of scales that the architecture has: none; logit_scale, which multiplies; embedding_scale;
 * residual_scale, of what a sub-layer is added to; granite's, of which logit_scale divides; the
 * same with minicpm's defaults; or grok's, of embeddings, of scores and of logits, which all
 * multiply, with defaults. */
enum scales {
    SCALES_NONE,
    SCALES_LOGIT,
    SCALES_EMBEDDING,
    SCALES_STREAM,
    SCALES_GRANITE,
    SCALES_MINICPM,
    SCALES_GROK
};

/* What experts are weighed by: the softmax of their scores; sigmoids; or sigmoids where a bias
 * corrects them for the selection. */
enum gating { GATING_SOFTMAX, GATING_SIGMOID, GATING_BY_BIAS };

/* Whether queries grow with their position: if the file has a key for it; or, as in Llama 4, in the
 * layers that are not rotated. */
enum temper { TEMPER_NONE, TEMPER_BY_KEY, TEMPER_UNROTATED };

/* What recurrent layers are: a convolution between two gates (LFM2); heads by the gated delta rule,
 * with rates of their own, mixed by group, for each key, or so with a bound, of whole matrices, or
 * with a bound if the file has one, of which only the gate's matrix is whole; RWKV-6's and -7's,
 * whose feed-forward part is recurrent, too; Mamba-2's, or these with steps, keys and queries made
 * of what was convolved, and norms of them (PLaMo 2); the first Mamba's channels, or these with
 * norms of their steps, keys and queries (Jamba); or heads that forget at rates that no row changes
 * (lightning attention). */
enum recurrence {
    RECURRENCE_NONE,
    RECURRENCE_CONV,
    RECURRENCE_DELTA,
    RECURRENCE_DELTA_MIXED,
    RECURRENCE_DELTA_EACH,
    RECURRENCE_DELTA_BOUNDED,
    RECURRENCE_DELTA_GATED,
    RECURRENCE_RWKV6,
    RECURRENCE_RWKV7,
    RECURRENCE_MAMBA2,
    RECURRENCE_MAMBA2_NORMED,
    RECURRENCE_MAMBA,
    RECURRENCE_MAMBA_NORMED,
    RECURRENCE_FIXED
};

/* Which layers are: those without KV heads (and, where layers have gaps, no feed-forward part); all
 * but every n-th; all, beside attention; all, without it. */
enum recurrent_layers {
    RECURRENT_BY_HEADS,
    RECURRENT_BY_INTERVAL,
    RECURRENT_BESIDE,
    RECURRENT_ALL
};

/* How layers of windows alternate with layers that see everything. */
enum { NO_WINDOWS, ALL_WINDOWED = -1 }; /* else every n-th layer sees everything */

struct arch {
    const char *name; /* general.architecture, and the prefix of its metadata keys */
    enum rope_kind rope;
    enum presence qkv_bias;   /* attn_{q,k,v}.bias */
    bool latent;              /* attention over a latent: attn_kv_a_mqa and what follows */
    enum presence indexed;    /* an index picks which positions a row attends to, or which blocks of
                               * them, which no op here computes: texts may be as long as what it
                               * picks, which is all */
    enum presence out_bias;   /* attn_output.bias, and those of a dense feed-forward part */
    enum presence logit_bias; /* output.bias */
    uint32_t unsaid[2];       /* tokens that are never said, from the first to before the second, in
                               * files that have so many */
    enum qk_norm qk_norm;     /* attn_{q,k}_norm.weight */
    bool qk_norm_optional;    /* or not: some files have none */
    float qk_eps;             /* of these; 0: as of the others */
    enum norm_kind norm;
    bool norm_by_key; /* by RMS where the file has an epsilon for that */
    enum norm_place norms;
    bool norms_after_as_sums; /* those after it by the names of norms of sums; the feed-forward
                               * part's may have the usual one */
    bool norms_after_by_key;  /* after it, by the names of those before, if swin_norm says so */
    float after_eps;          /* of norms after a sub-layer; 0: as of the others */
    enum parallel parallel;
    enum second_norm second;
    const char *ffn_norm; /* name of the norm before the feed-forward part; NULL: ffn_norm */
    enum gate_kind gate;
    enum unary_kind gate_unary; /* before that; NONE: nothing is */
    bool gate_by_key;           /* unless hidden_activation says silu, */
    bool gate_by_heads;         /* or, without that, every head has keys of its own */
    bool gate_limits;           /* knows swiglu_clamp_exp and _shexp: experts, and what is not of
                                 * them, may keep the gate and what it multiplies within a limit, */
    bool gate_bound_first;      /* the gate before it is silu, not behind that */
    enum unary_kind unary;   /* a feed-forward part, or expert, is this of `up` alone; NONE: it has
                              * a gate */
    bool both_ways;          /* not causal, with windows to either side; no logits */
    bool encoder;            /* a norm over the embeddings too; no logits */
    bool embed_norm;         /* a norm over the embeddings */
    bool embed_bare;         /* likewise by RMS, without weights */
    bool embed_again;        /* which joins the stream at each layer's end, by a scale of its own */
    bool first_bare;         /* the first layer may lack attn_norm */
    bool gaps;               /* layers may lack attention, or the feed-forward part */
    bool loops;              /* num_loops: so often all layers are gone through */
    bool cycles;             /* two stacks of layers, gone through in cycles */
    enum presence positions; /* position_embd.weight */
    bool label_softmax;      /* a head's scores are logits of one choice */
    bool other_head;         /* what scores labels here is not supported */
    bool dense;              /* there may be matrices behind the pooling of embeddings */
    enum presence experts;   /* expert_count and its tensors */
    enum presence expert_bias; /* of the router and of the experts' matrices */
    bool expert_ff_by_rank;    /* without expert_feed_forward_length: feed_forward_length / used */
    bool experts_by_layer;     /* how many are used, and how long they are, may differ by layer */
    bool expert_all;           /* weights of the selection are a softmax over all experts */
    bool shared_by_count; /* without its length: expert_shared_count, or 1, of experts' length */
    enum presence shared; /* an expert for all rows, */
    enum presence shared_gate; /* and what weighs it */
    bool shared_average;       /* it and what was selected count half */
    bool shared_dense; /* it is called, and as long, as a dense part, and layers may lack it;
                        * where it is there the sum counts as if both were as large */
    bool expert_input; /* what is weighed is what an expert reads */
    bool router_first; /* the router reads the stream as the layer finds it, before attention */
    const char *expert_latent; /* experts may stand between two matrices that all share: what their
                                * names begin with */
    enum gating gating;        /* where the file does not say */
    bool expert_mixer; /* a weight is a softmax over what comes close to the score (SparseMixer) */
    enum presence select_bias; /* exp_probs_b.bias: what scores are added to for the selection */
    enum scales scales;
    bool embed_sqrt;      /* embeddings times sqrt(n_embd) */
    enum presence sinks;  /* attn_sinks.weight */
    int window_pattern;   /* where the file does not say */
    bool window_by_file;  /* the file has to say: its windowed layers are other layers */
    bool window_last;     /* of n layers the first sees everything, not the last */
    uint32_t window;      /* likewise */
    bool window_rope;     /* windowed layers have a base of their own, unscaled (10000) */
    bool window_unscaled; /* windowed layers rotate without the scaling of long contexts */
    bool window_turns;    /* other layers may rotate fewer values of a head than windowed ones; */
    bool full_half;       /* half as many as the file says */
    bool window_heads;    /* windowed layers may have heads of another length */
    float attention_cap, logit_cap; /* where the file does not say; 0: it has none, whatever the */
    bool logit_cap_by_key; /* file says, unless this; llama.cpp saves both for all models */
    float attention_scale; /* of scores, whatever the head's length; 0: by that */
    bool scale_by_dim;     /* by the inverse of that, not of its root */
    bool value_norm;       /* V by head, without weights */
    bool value_shorter;    /* a head's V may be shorter than its K; and what attention adds may have
                            * a scale, attention.value_scale */
    bool value_of_key;     /* a layer without attn_v: V is what K is made of */
    enum unary_kind attention_gate; /* attn_gate: what attention gathered, times this of it, by
                                     * value or, of a matrix that has as many rows, by head */
    bool gate_optional;             /* where the layer has one */
    bool gate_in_query;             /* or of what attn_q has behind each head's query */
    enum recurrence recurrence;
    bool usual_ff; /* RWKV's, but for its feed-forward part, which is the usual one; RWKV-6's heads
                    * then are gated linear attention, and may share keys and values; of RWKV-7's
                    * gates and norms of what they read may be absent */
    enum recurrent_layers recurrent_layers;
    uint32_t attention_step; /* by interval: every n-th layer is not, where the file does not say;
                              * 0: every fourth */
    bool sub_norms;  /* what attention gathered is normalised, and what the gate let through */
    bool scaled;     /* matrices may have a scale beside them: NAME.scale */
    bool bare_norms; /* names of norms may lack "weight" */
    const char *output_norm; /* name of the last norm; NULL: output_norm */
    bool clamp;              /* knows attention.clamp_kqv */
    bool half_ff;            /* feed_forward_length counts gate and up together */
    float alibi;             /* exponent of the slopes of scores, where the file does not say */
    bool alibi_by_key;       /* which some do */
    uint32_t alibi_layers; /* it has slopes, and no rotation, only with so many layers; 0: always */
    bool borrows;          /* the last layers may attend to K and V of earlier ones */
    bool per_layer;        /* layers may have embeddings of their own, and a scale */
    bool streams;          /* several residual streams, a product beside attention, and gates
                            * of which only the largest values are kept */
    bool connections;      /* several residual streams, of which each sub-layer reads a sum by
                            * weights, and to each of which it adds by another */
    bool recalls;          /* sub-layers read a mixture of the stream and of what it was before,
                            * attn_res.block_size layers apart */
    bool experts_beside;   /* experts add to a dense part, each with its own norms */
    bool experts_first;    /* likewise, but read the stream as the layer finds it; the dense part is
                            * as wide as that */
    bool sight_beside;     /* layers have matrices of their own for what is seen, left alone */
    uint32_t by_width_layers; /* with so many layers scores scale by n_embd / n_head */
    enum temper temper;
    float yarn_fast;   /* rope.scaling.yarn_beta_fast where the file does not say; 0: 32 */
    bool yarn_log;     /* knows rope.scaling.yarn_log_multiplier */
    bool yarn_between; /* YaRN's ramp begins and ends between two pairs; else at whole ones */
    bool rope_switch;  /* rope.scaling.finetuned false: no layer is rotated */
    bool
        rope_by_sections; /* with rope.dimension_sections Q and K are in the order of ROPE_HALVES */
    bool rope_pattern;    /* attention.rope_pattern: which layers are */
    bool rope_alpha;      /* rope.scaling.alpha: by how much the base grows */
    uint32_t no_rope_step; /* every n-th layer is not rotated; 0: all are */
    bool chunks;           /* windows are chunks */
    bool full_unrotated;   /* in models with windows, layers that see everything are not rotated */
    bool lead_rotated;     /* but the first ones, leading_dense_block_count */
};

/* The rows of a file, families together. */
struct arch_table {
    const struct arch *rows;
    size_t n;
};
extern const struct arch_table arch_dense;     /* decoders, of which some files may have experts */
extern const struct arch_table arch_experts;   /* decoders with experts in all their files */
extern const struct arch_table arch_recurrent; /* decoders with recurrent layers */
extern const struct arch_table arch_encoders;  /* what makes embeddings and scores */

/* NULL when no table has such a row. */
const struct arch *arch_find(const char *name, size_t len);

#endif
