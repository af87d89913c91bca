/* The architectures Weir knows: one row each. What a row cannot say, an op says. */
#ifndef WEIR_MODEL_ARCH_H
#define WEIR_MODEL_ARCH_H

#include "model/model.h"

/* Whether a kind of tensor belongs to the architecture. */
enum presence { ABSENT, OPTIONAL, REQUIRED };

/* What is normalised between projection and rotation. */
enum qk_norm { QK_PLAIN, QK_NORM_HEADS, QK_NORM_ROWS };

/* Where the norms of a sub-layer stand: before it; after it, before it is added; both; or over the
 * sum with what it added to. */
enum norm_place { NORM_BEFORE = 1, NORM_AFTER = 2, NORM_BOTH = 3, NORM_OF_SUM = 4 };

/* How layers of windows alternate with layers that see everything. */
enum { NO_WINDOWS = -1, ALL_WINDOWED = 0 }; /* else every n-th layer sees everything */

struct arch {
    const char *name; /* general.architecture, and the prefix of its metadata keys */
    enum rope_kind rope;
    enum presence qkv_bias; /* attn_{q,k,v}.bias */
    enum presence out_bias; /* attn_output.bias, and those of a dense feed-forward part */
    enum qk_norm qk_norm;   /* attn_{q,k}_norm.weight */
    enum norm_place norms;
    const char *ffn_norm; /* name of the norm before the feed-forward part; NULL: ffn_norm */
    enum gate_kind gate;
    bool ungated;              /* the feed-forward part is gelu(up) alone */
    bool encoder;              /* LayerNorms with biases, over the embeddings too; no logits */
    enum presence positions;   /* position_embd.weight */
    bool label_softmax;        /* a head's scores are logits of one choice */
    enum presence experts;     /* expert_count and its tensors */
    enum presence expert_bias; /* of the router and of the experts' matrices */
    bool expert_ff_by_rank;    /* without expert_feed_forward_length: feed_forward_length / used */
    bool expert_all;           /* weights of the selection are a softmax over all experts */
    enum presence shared;      /* an expert for all rows, */
    enum presence shared_gate; /* and what weighs it */
    bool scales;               /* granite's four: logit, residual, embedding, attention */
    bool embed_sqrt;           /* embeddings times sqrt(n_embd) */
    bool sinks;                /* attn_sinks.weight */
    int window_pattern;        /* where the file does not say */
    uint32_t window;           /* likewise */
    bool window_rope;          /* windowed layers have a base of their own, unscaled (10000) */
    bool window_unscaled;      /* windowed layers rotate without the scaling of long contexts */
    float attention_cap, logit_cap; /* where the file does not say */
    uint32_t by_width_layers;       /* with so many layers scores scale by n_embd / n_head */
    bool rope_switch;               /* rope.scaling.finetuned false: no layer is rotated */
    uint32_t no_rope_step;          /* every n-th layer is not rotated; 0: all are */
};

/* NULL when there is no such row. */
const struct arch *arch_find(const char *name, size_t len);

/* "llama, qwen2, qwen3" for messages. Static storage. */
const char *arch_list(void);

#endif
