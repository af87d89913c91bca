/* What the file says that a model is: its sizes, what each layer attends to, what becomes of a
 * text's hidden states; and what is refused. Factors, angles and the parts that not all models have
 * are read in files of their own (keys.h). */
#include "base/mem.h"
#include "model/keys.h"

#include <stdlib.h>

/* Limits far above any real model: products of two stay inside 64 bits. */
#define MAX_LAYERS 1024
#define MAX_EMBD (1u << 17)
#define MAX_HEADS 1024
#define MAX_HEAD_DIM 1024
#define MAX_VOCAB (1u << 22)
#define MAX_LABELS 4096
#define MAX_PER_LAYER 8192
#define MAX_STREAMS 8     /* as many as steps of backends have room for */
#define UNUSED_HEAD_DIM 8 /* where nothing attends */

/* The widths that may differ from layer to layer, and the largest of each. */
static enum err read_layers(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    const uint32_t n = hp->n_layer, least = arch->gaps || arch->recurrence ? 0 : 1;
    bool has_heads = false; /* recurrent layers' are taken from them below */
    uint32_t *v = mem_zalloc((size_t)n * 3, sizeof *v), *kv = v + n, *ff = v + 2 * (size_t)n;
    enum err err = key_u32_layers(m, "attention.head_count", least, MAX_HEADS, v, e);
    for (uint32_t i = 0; i < n; i++)
        kv[i] = v[i];
    if (!err)
        err = key_u32_layers(m, "attention.head_count_kv", least, MAX_HEADS, kv, e);
    if (!err)
        err = key_u32_layers(m, "feed_forward_length", 0, MAX_FF, ff, e);
    for (uint32_t i = 0; i < n && !err; i++) {
        ff[i] = arch->half_ff ? ff[i] / 2 : ff[i];
        if (kv[i] && v[i] % kv[i] != 0)
            err = err_set(e,
                          ERR_FORMAT,
                          "%s.attention.head_count is %u, no multiple of head_count_kv, %u, in "
                          "layer %u",
                          m->arch,
                          v[i],
                          kv[i],
                          i);
        if (v[i] == 0)
            kv[i] = 0;
        has_heads |= v[i] > 0;
        m->layers[i] =
            (struct model_layer){.n_head = v[i], .n_head_kv = kv[i], .n_ff = ff[i], .kv_layer = i};
    }
    free(v);
    if (!err)
        err = recurrent_read_layers(m, arch, e);
    for (uint32_t i = 0; i < n; i++) {
        const struct model_layer *l = &m->layers[i];
        hp->n_head = l->n_head > hp->n_head ? l->n_head : hp->n_head;
        hp->n_head_kv = l->n_head_kv > hp->n_head_kv ? l->n_head_kv : hp->n_head_kv;
        hp->n_ff = l->n_ff > hp->n_ff ? l->n_ff : hp->n_ff;
    }
    if (!err && hp->n_head_kv == 0 && arch->recurrent_layers != RECURRENT_ALL)
        err = err_set(e,
                      ERR_FORMAT,
                      has_heads ? "%s: no layer attends"
                                : "metadata key %s.attention.head_count is missing or 0",
                      m->arch);
    return err;
}

/* Dimensions of a head where the file does not say: all layers have as many heads, then. */
static enum err read_head_dim(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    if (key_find(m, "attention.key_length"))
        return key_u32_in(m, "attention.key_length", 2, MAX_HEAD_DIM, &hp->head_dim, e);
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        if (m->layers[i].n_head && m->layers[i].n_head != hp->n_head)
            return err_set(e,
                           ERR_FORMAT,
                           "%s.attention.head_count differs from layer to layer, and %s."
                           "attention.key_length is missing",
                           m->arch,
                           m->arch);
    }
    if (hp->n_embd % hp->n_head != 0)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.attention.head_count is %u, which does not divide embedding_length, %u",
                       m->arch,
                       hp->n_head,
                       hp->n_embd);
    hp->head_dim = hp->n_embd / hp->n_head;
    return OK;
}

/* Keys and values that are made of a latent; K is that and what rotates, of one head for all. Files
 * say how long a head's key is before, or in older ones as if that were what is stored; some leave
 * out how long its value is. */
static enum err read_latent(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    const bool old = !key_find(m, "attention.key_length_mla");
    const char *key = old ? "attention.key_length" : "attention.key_length_mla";
    const char *value = old ? "attention.value_length" : "attention.value_length_mla";
    enum err err;
    if (old) /* of minicpm3's */
        hp->head_value = hp->n_embd / hp->n_head;
    if ((err = key_u32_in(m, "attention.kv_lora_rank", 2, MAX_HEAD_DIM, &hp->latent, e)) ||
        (err = key_u32_in(m, "attention.q_lora_rank", 0, MAX_EMBD, &hp->q_latent, e)) ||
        (err = key_u32_in(m, "rope.dimension_count", 2, MAX_HEAD_DIM, &hp->rope_dims, e)) ||
        (err = key_u32_in(m, key, hp->rope_dims + 1, MAX_HEAD_DIM, &hp->head_key, e)) ||
        (err = key_u32_in(m, value, 1, MAX_HEAD_DIM, &hp->head_value, e)))
        return err;
    if (hp->rope_dims % 2 != 0)
        return err_set(e, ERR_FORMAT, "%s.rope.dimension_count is odd: %u", m->arch, hp->rope_dims);
    hp->head_dim = hp->latent + hp->rope_dims;
    hp->rope_first = hp->latent;
    hp->rope_dims_of[ROPE_FULL] = hp->rope_dims_of[ROPE_WINDOW] = hp->rope_dims;
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        m->layers[i].n_head_kv = m->layers[i].n_head ? 1 : 0;
        m->layers[i].head_dim = hp->head_dim;
    }
    hp->n_head_kv = 1;
    return OK;
}

/* Of models in which nothing attends. */
static void set_unused_heads(struct model *m)
{
    struct model_hparams *hp = &m->hp;
    hp->head_dim = hp->rope_dims = UNUSED_HEAD_DIM;
    hp->rope_dims_of[ROPE_FULL] = hp->rope_dims_of[ROPE_WINDOW] = UNUSED_HEAD_DIM;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        m->layers[i].head_dim = UNUSED_HEAD_DIM;
}

uint32_t hparams_loops(const struct model *m, const struct arch *arch)
{
    uint32_t n = 1;
    struct err_info ignored;
    return arch->loops && !key_u32(m, "num_loops", &n, &ignored) ? n : 1;
}

static enum err read_loops(struct model *m, const struct arch *arch, struct err_info *e)
{
    uint32_t n_loops = 1;
    enum err err =
        arch->loops ? key_u32_in(m, "num_loops", 1, MAX_LAYERS / m->hp.n_layer, &n_loops, e) : OK;
    m->hp.n_layer *= n_loops;
    return err;
}

static enum err read_sizes(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err;
    if ((err = key_u32_in(m, "block_count", 1, MAX_LAYERS, &hp->n_layer, e)) ||
        (err = key_u32_in(m, "nextn_predict_layers", 0, hp->n_layer - 1, &hp->n_layer_beside, e)) ||
        (err = key_u32_in(m, "embedding_length", 1, MAX_EMBD, &hp->n_embd, e)) ||
        (err = key_u32_in(m, "context_length", 1, MODEL_MAX_CONTEXT, &hp->n_ctx_train, e)))
        return err;
    hp->n_layer -= hp->n_layer_beside;
    if ((err = read_loops(m, arch, e)) || (arch->cycles && (err = cycles_read(m, e))))
        return err;
    m->layers = mem_zalloc(hp->n_layer, sizeof *m->layers);
    err = read_layers(m, arch, e);
    if (err)
        return err;
    if (arch->recurrent_layers == RECURRENT_ALL) {
        set_unused_heads(m);
        return OK;
    }
    return arch->latent ? read_latent(m, e) : read_head_dim(m, e);
}

/* A length that is the same as that of keys. */
static enum err read_same(struct model *m, const char *key, uint32_t dim, struct err_info *e)
{
    uint32_t length = dim;
    enum err err = key_u32_in(m, key, 2, MAX_HEAD_DIM, &length, e);
    if (!err && length != dim)
        err = err_set(e,
                      ERR_UNSUPPORTED,
                      "%s: keys of %u and %s of %u dimensions",
                      m->arch,
                      dim,
                      key,
                      length);
    return err;
}

/* Values as long as keys, or where the architecture has that, shorter, and with a scale; 0: none.
 */
static enum err read_values(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    uint32_t value = hp->head_dim;
    if (!arch->value_shorter)
        return read_same(m, "attention.value_length", hp->head_dim, e);
    enum err err = key_u32_in(m, "attention.value_length", 2, hp->head_dim, &value, e);
    hp->head_value = value < hp->head_dim ? value : 0;
    if (!err)
        err = key_f32_in(m, "attention.value_scale", -1e-30f, 1e6f, &hp->value_scale, e);
    return err;
}

/* Of layers that see everything. */
static enum err halve_rope_dims(struct model *m, const char *key, struct err_info *e)
{
    uint32_t *n = &m->hp.rope_dims_of[ROPE_FULL];
    if (*n % 4 != 0)
        return err_set(e, ERR_FORMAT, "%s.%s is %u: half of it is odd", m->arch, key, *n);
    *n /= 2;
    return OK;
}

/* Values, and heads that rotate whole or in front; those of windowed layers may be
 * of another length where the architecture has that. */
static enum err read_heads(struct model *m, const struct arch *arch, struct err_info *e)
{
    static const char *const rope_keys[] = {
        [ROPE_FULL] = "rope.dimension_count", [ROPE_WINDOW] = "rope.dimension_count_swa"};
    struct model_hparams *hp = &m->hp;
    const uint32_t full = hp->head_dim;
    uint32_t dims[] = {[ROPE_FULL] = full, [ROPE_WINDOW] = full};
    enum err err = read_values(m, arch, e);
    if (!err && arch->window_heads)
        err = key_u32_in(m, "attention.key_length_swa", 2, MAX_HEAD_DIM, &dims[ROPE_WINDOW], e);
    else if (!err)
        err = read_same(m, "attention.key_length_swa", full, e);
    const uint32_t value = hp->head_value ? hp->head_value : dims[ROPE_WINDOW];
    if (err || (err = read_same(m, "attention.value_length_swa", value, e)))
        return err;
    for (int t = 0; t < N_ROPE_TABLES; t++) {
        uint32_t *n = &hp->rope_dims_of[t];
        *n = t == ROPE_WINDOW && !arch->window_heads ? hp->rope_dims_of[ROPE_FULL] : dims[t];
        if ((err = key_u32_in(m, rope_keys[t], 2, dims[t], n, e)))
            return err;
        if (*n % 2 != 0)
            return err_set(e, ERR_FORMAT, "%s.%s is odd: %u", m->arch, rope_keys[t], *n);
    }
    if (arch->full_half && (err = halve_rope_dims(m, rope_keys[ROPE_FULL], e)))
        return err;
    if (!arch->window_heads && !arch->window_turns &&
        hp->rope_dims_of[ROPE_WINDOW] != hp->rope_dims_of[ROPE_FULL])
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s.rope.dimension_count_swa is %u, not %u as in other layers",
                       m->arch,
                       hp->rope_dims_of[ROPE_WINDOW],
                       hp->rope_dims_of[ROPE_FULL]);
    for (int t = 0; t < N_ROPE_TABLES; t++)
        hp->rope_dims = hp->rope_dims_of[t] > hp->rope_dims ? hp->rope_dims_of[t] : hp->rope_dims;
    for (uint32_t i = 0; i < hp->n_layer; i++)
        m->layers[i].head_dim = dims[hparams_windowed(m, arch, i) ? ROPE_WINDOW : ROPE_FULL];
    hp->head_dim = dims[ROPE_WINDOW] > full ? dims[ROPE_WINDOW] : full;
    return OK;
}

/* The last layers attend to what the last one before them that is windowed, or not, as they are has
 * stored. */
static enum err read_borrowed(struct model *m, const struct arch *arch, struct err_info *e)
{
    const uint32_t n = m->hp.n_layer;
    uint32_t n_borrow = 0;
    if (arch->streams && !key_find(m, "attention.shared_kv_layers"))
        return err_set(
            e, ERR_FORMAT, "metadata key %s.attention.shared_kv_layers is missing", m->arch);
    enum err err = key_u32_in(m, "attention.shared_kv_layers", 0, n - 1, &n_borrow, e);
    for (uint32_t i = n - n_borrow; i < n && !err; i++) {
        struct model_layer *l = &m->layers[i];
        const bool windowed = hparams_windowed(m, arch, i);
        uint32_t from = n - n_borrow;
        while (from > 0 && hparams_windowed(m, arch, from - 1) != windowed)
            from--;
        if (from == 0)
            return err_set(e,
                           ERR_FORMAT,
                           "%s.attention.shared_kv_layers is %u: layer %u has none to attend to",
                           m->arch,
                           n_borrow,
                           i);
        l->kv_layer = from - 1;
        if (l->n_head_kv != m->layers[from - 1].n_head_kv)
            err = err_set(e,
                          ERR_FORMAT,
                          "%s: layer %u has %u KV heads, but layer %u, whose it attends to, has %u",
                          m->arch,
                          i,
                          l->n_head_kv,
                          from - 1,
                          m->layers[from - 1].n_head_kv);
    }
    return err;
}

static enum err read_vocab_size(struct model *m, struct err_info *e)
{
    const struct gguf_tensor *t = gguf_find_tensor(m->gguf, "token_embd.weight");
    if (!t)
        return err_set(e, ERR_FORMAT, "tensor token_embd.weight is missing");
    if (t->ne[1] < 1 || t->ne[1] > MAX_VOCAB)
        return err_set(e,
                       ERR_FORMAT,
                       "tensor token_embd.weight has %llu rows, expected 1 to %u",
                       (unsigned long long)t->ne[1],
                       MAX_VOCAB);
    m->hp.n_vocab = (uint32_t)t->ne[1];
    return OK;
}

/* Embeddings for each layer, and streams; nobody tells the rank of what runs beside attention but
 * its first matrix. */
static enum err read_streams(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    uint32_t active = 0;
    enum err err = key_u32_in(
        m, "embedding_length_per_layer_input", arch->streams, MAX_PER_LAYER, &hp->n_per_layer, e);
    if (err || !arch->streams)
        return err;
    if ((err = key_u32_in(m, "altup.num_inputs", 2, MAX_STREAMS, &hp->n_stream, e)) ||
        (err = key_u32(m, "altup.active_idx", &active, e)))
        return err;
    if (active != 0)
        return err_set(
            e, ERR_UNSUPPORTED, "%s.altup.active_idx is %u; 0 is supported", m->arch, active);
    const struct gguf_tensor *t = gguf_find_tensor(m->gguf, "blk.0.laurel_l.weight");
    if (!t || t->ne[1] > MAX_EMBD)
        return err_set(e,
                       ERR_FORMAT,
                       "tensor blk.0.laurel_l.weight is missing or has more than %u rows",
                       MAX_EMBD);
    hp->n_low = (uint32_t)t->ne[1];
    return OK;
}

static enum err read_connections(struct model *m, struct err_info *e)
{
    return key_u32_in(m, "hyper_connection.count", 2, MAX_STREAMS, &m->hp.n_stream, e);
}

static enum err read_window(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    hp->window = arch->window;
    enum err err = key_u32(m, "attention.sliding_window", &hp->window, e);
    if (err)
        return err;
    const bool turns = arch->window_rope || arch->window_unscaled; /* windowed layers otherwise */
    if (hp->window >= hp->n_ctx_train && arch->window_pattern == NO_WINDOWS && !turns)
        hp->window = 0;
    const struct gguf_kv *pattern = key_find(m, "attention.sliding_window_pattern");
    if (arch->window_by_file && (!pattern || pattern->kind != GGUF_ARRAY || !hp->window))
        return err_set(e,
                       ERR_FORMAT,
                       "metadata key %s.attention.sliding_window%s",
                       m->arch,
                       hp->window ? "_pattern is missing, or no array" : " is missing or 0");
    if (!pattern || !hp->window)
        return OK;
    if (pattern->kind == GGUF_ARRAY) {
        if (key_is_flags(pattern, hp->n_layer))
            return OK;
        return err_set(e,
                       ERR_FORMAT,
                       "%s.attention.sliding_window_pattern is not %u bools",
                       m->arch,
                       hp->n_layer);
    }
    uint32_t ignored = 0;
    return key_u32(m, "attention.sliding_window_pattern", &ignored, e);
}

bool hparams_windowed(const struct model *m, const struct arch *arch, uint32_t layer)
{
    if (m->hp.window == 0)
        return false;
    const struct gguf_kv *pattern = key_find(m, "attention.sliding_window_pattern");
    if (pattern && pattern->kind == GGUF_ARRAY)
        return key_flag(pattern, layer);
    if (!pattern && arch->window_pattern == NO_WINDOWS) /* the file gave a window all the same */
        return true;
    const uint64_t own = arch->window_pattern == ALL_WINDOWED ? 0 : (uint64_t)arch->window_pattern;
    const uint64_t n = pattern ? pattern->u : own;
    if (arch->window_last && n != 0)
        return layer % n != 0;
    return n == 0 || layer % n < n - 1;
}

/* Variants that would change the answer and that no op here computes, unless the row has them. */
static enum err refuse_unknown(const struct model *m, const struct arch *arch, struct err_info *e)
{
    const bool grok = arch->scales == SCALES_GROK;
    const bool scales = arch->scales == SCALES_GRANITE || arch->scales == SCALES_MINICPM;
    const struct {
        const char *key;
        bool known;
    } keys[] = {
        {"attention.alibi_bias_max", false},
        {"attention.max_alibi_bias", arch->alibi_by_key || arch->alibi > 0.0f},
        {"attention.clamp_kqv", arch->clamp},
        {"attention.output_scale", grok},
        {"attention.value_scale", arch->value_shorter},
        {"attention.temperature_scale", arch->temper != TEMPER_NONE},
        {"attention.shared_kv_layers", arch->borrows},
        {"embedding_length_per_layer_input", arch->per_layer},
        {"rope.scaling.alpha", arch->rope_alpha},
        {"rope.scaling.yarn_log_multiplier", arch->yarn_log},
        {"embedding_scale", scales || grok || arch->scales == SCALES_EMBEDDING},
        {"residual_scale", scales || arch->scales == SCALES_STREAM},
        {"logit_scale", scales || grok || arch->scales == SCALES_LOGIT},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct gguf_kv *kv = keys[i].known ? NULL : key_find(m, keys[i].key);
        if (kv && (kv->kind == GGUF_F32 || kv->kind == GGUF_F64 ? kv->f != 0.0 : kv->u > 1))
            return err_set(
                e, ERR_UNSUPPORTED, "%s: models with %s are not supported", m->arch, keys[i].key);
    }
    return OK;
}

enum norm_kind hparams_norm(const struct model *m, const struct arch *arch)
{
    const struct gguf_kv *eps =
        arch->norm_by_key ? key_find(m, "attention.layer_norm_rms_epsilon") : NULL;
    const bool none = eps && (eps->kind == GGUF_F32 || eps->kind == GGUF_F64) && eps->f == 0.0;
    return eps && !none ? NORM_RMS : arch->norm;
}

/* How many positions an index picks: so many, or so many blocks of them. */
static enum err read_index(struct model *m, const struct arch *arch, struct err_info *e)
{
    uint32_t *n = &m->hp.n_positions, block = 1;
    const uint32_t least = arch->indexed == REQUIRED;
    enum err err = key_u32_in(m, "attention.indexer.top_k", least, MODEL_MAX_CONTEXT, n, e);
    m->hp.indexed = *n > 0;
    if (err ||
        (err = key_u32_in(m, "attention.indexer.block_size", 1, MODEL_MAX_CONTEXT, &block, e)))
        return err;
    *n = *n < MODEL_MAX_CONTEXT / block ? *n * block : MODEL_MAX_CONTEXT;
    return OK;
}

/* What a row sees, and what becomes of a text's hidden states. */
static enum err read_pooling(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    uint32_t pooling = POOLING_UNSPECIFIED;
    enum err err;
    hp->causal = !arch->encoder && !arch->both_ways;
    if ((err = key_bool(m, "attention.causal", &hp->causal, e)) ||
        (err = key_u32(m, "pooling_type", &pooling, e)))
        return err;
    if (pooling == UINT32_MAX) /* how llama.cpp writes it in what it saves */
        pooling = POOLING_UNSPECIFIED;
    if (pooling > POOLING_RANK)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.pooling_type is %u, expected 0 to %d",
                       m->arch,
                       pooling,
                       POOLING_RANK);
    hp->pooling = (enum pooling)pooling;
    if (arch->both_ways)
        hp->causal = false;
    if (!hp->causal && hp->window && !arch->both_ways)
        return err_set(e, ERR_UNSUPPORTED, "%s: windows that look both ways", m->arch);
    if (!hp->causal && arch->recurrence)
        return err_set(e, ERR_UNSUPPORTED, "%s: recurrent layers that look both ways", m->arch);
    const bool learned = gguf_find_tensor(m->gguf, "position_embd.weight");
    if (arch->positions == REQUIRED || (arch->positions == OPTIONAL && learned))
        hp->n_positions = hp->n_ctx_train;
    if (arch->indexed && (err = read_index(m, arch, e)))
        return err;
    const struct gguf_tensor *cls = gguf_find_tensor(m->gguf, "cls.weight");
    if (!gguf_find_tensor(m->gguf, "cls.output.weight")) {
        hp->n_labels = arch->encoder && cls && cls->ne[1] == 1; /* one matrix, of one row */
        return OK;
    }
    if (arch->other_head)
        return err_set(
            e, ERR_UNSUPPORTED, "%s: models that score labels are not supported", m->arch);
    const struct gguf_kv *labels = key_find(m, "classifier.output_labels");
    const uint64_t n = labels && labels->kind == GGUF_ARRAY ? labels->n_elems : 1;
    if (n < 1 || n > MAX_LABELS)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.classifier.output_labels: %llu labels, expected 1 to %u",
                       m->arch,
                       (unsigned long long)n,
                       MAX_LABELS);
    hp->n_labels = (uint32_t)n;
    hp->label_softmax = arch->label_softmax;
    return OK;
}

/* A gate's limits; of what it multiplies none is said by 0 or less. */
static enum err read_situ(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err;
    if ((err = key_f32_in(m, "activation.situ_beta", 1e-6f, 1e6f, &hp->gate_scale, e)) ||
        (err = key_f32_in(m, "activation.situ_linear_beta", -1e6f, 1e6f, &hp->gate_cap, e)))
        return err;
    if (hp->gate_scale == 0.0f)
        return err_set(e, ERR_FORMAT, "metadata key %s.activation.situ_beta is missing", m->arch);
    hp->gate_cap = hp->gate_cap > 1e-6f ? hp->gate_cap : 0.0f;
    return OK;
}

static bool has_heads(const struct arch *arch)
{
    return !arch->latent && arch->recurrent_layers != RECURRENT_ALL;
}

enum err hparams_read(struct model *m, const struct arch *arch, struct err_info *e)
{
    enum err err;
    if ((err = refuse_unknown(m, arch, e)) || (err = read_sizes(m, arch, e)) ||
        (err = read_window(m, arch, e)) || (err = has_heads(arch) ? read_heads(m, arch, e) : OK) ||
        (err = arch->borrows ? read_borrowed(m, arch, e) : OK) ||
        (err = recurrent_read(m, arch, e)) || (err = experts_read(m, arch, e)) ||
        (err = read_vocab_size(m, e)) || (err = read_pooling(m, arch, e)))
        return err;
    if (arch->per_layer && (err = read_streams(m, arch, e)))
        return err;
    if (arch->connections && (err = read_connections(m, e)))
        return err;
    if (arch->gate == GATE_SITU && (err = read_situ(m, e)))
        return err;
    if (arch->recalls && (err = recall_read(m, e)))
        return err;
    return scales_read(m, arch, e);
}
