#include "model/model.h"

#include "base/mem.h"
#include "model/arch.h"
#include "model/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits far above any real model: products of two stay inside 64 bits. */
#define MAX_LAYERS 1024
#define MAX_EMBD (1u << 17)
#define MAX_HEADS 1024
#define MAX_HEAD_DIM 1024
#define MAX_FF (1u << 20)
#define MAX_VOCAB (1u << 22)
#define MAX_CTX (1u << 26)

static enum err get_u32(const struct model *m,
                        const char *suffix,
                        uint32_t *out,
                        struct err_info *e)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    return gguf_get_u32(m->gguf, key, out, e);
}

static enum err get_f32(const struct model *m, const char *suffix, float *out, struct err_info *e)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    return gguf_get_f32(m->gguf, key, out, e);
}

static bool has_key(const struct model *m, const char *suffix)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, suffix);
    return gguf_find(m->gguf, key) != NULL;
}

static enum err check_range(const struct model *m,
                            const char *what,
                            uint32_t v,
                            uint32_t lo,
                            uint32_t hi,
                            struct err_info *e)
{
    if (v >= lo && v <= hi)
        return OK;
    return err_set(e, ERR_FORMAT, "%s.%s is %u, expected %u to %u", m->arch, what, v, lo, hi);
}

/* Read one integer hyper-parameter; without a default (0) it must be there. */
static enum err read_u32(const struct model *m,
                         const char *suffix,
                         uint32_t lo,
                         uint32_t hi,
                         uint32_t *v,
                         struct err_info *e)
{
    uint32_t missing = *v == 0 && lo > 0;
    enum err err = get_u32(m, suffix, v, e);
    if (err)
        return err;
    if (missing && *v == 0)
        return err_set(e, ERR_FORMAT, "metadata key %s.%s is missing or 0", m->arch, suffix);
    return check_range(m, suffix, *v, lo, hi, e);
}

static enum err read_sizes(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err;
    if ((err = read_u32(m, "block_count", 1, MAX_LAYERS, &hp->n_layer, e)) ||
        (err = read_u32(m, "embedding_length", 1, MAX_EMBD, &hp->n_embd, e)) ||
        (err = read_u32(m, "feed_forward_length", 1, MAX_FF, &hp->n_ff, e)) ||
        (err = read_u32(m, "attention.head_count", 1, MAX_HEADS, &hp->n_head, e)) ||
        (err = read_u32(m, "context_length", 1, MAX_CTX, &hp->n_ctx_train, e)))
        return err;
    if (!has_key(m, "attention.key_length") && hp->n_embd % hp->n_head != 0)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.attention.head_count is %u, which does not divide embedding_length, %u",
                       m->arch,
                       hp->n_head,
                       hp->n_embd);
    hp->n_head_kv = hp->n_head;
    hp->head_dim = hp->n_embd / hp->n_head;
    if ((err = read_u32(m, "attention.head_count_kv", 1, hp->n_head, &hp->n_head_kv, e)) ||
        (err = read_u32(m, "attention.key_length", 2, MAX_HEAD_DIM, &hp->head_dim, e)))
        return err;
    uint32_t value_length = hp->head_dim;
    if ((err = read_u32(m, "attention.value_length", 2, MAX_HEAD_DIM, &value_length, e)))
        return err;
    hp->rope_dims = hp->head_dim;
    if ((err = read_u32(m, "rope.dimension_count", 2, hp->head_dim, &hp->rope_dims, e)))
        return err;
    uint32_t window = 0;
    if ((err = get_u32(m, "attention.sliding_window", &window, e)))
        return err;
    if (window != 0 && window < hp->n_ctx_train)
        return err_set(e, ERR_UNSUPPORTED, "%s: sliding windows are not supported", m->arch);
    if (hp->n_head % hp->n_head_kv != 0)
        return err_set(e,
                       ERR_FORMAT,
                       "%s.attention.head_count is %u, no multiple of head_count_kv, %u",
                       m->arch,
                       hp->n_head,
                       hp->n_head_kv);
    if (value_length != hp->head_dim)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s: keys of %u and values of %u dimensions",
                       m->arch,
                       hp->head_dim,
                       value_length);
    if (hp->rope_dims % 2 != 0)
        return err_set(e, ERR_FORMAT, "%s.rope.dimension_count is odd: %u", m->arch, hp->rope_dims);
    return OK;
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

/* Variants that would change the answer and that no op here computes. */
static enum err refuse_unknown(const struct model *m, struct err_info *e)
{
    static const char *const keys[] = {"expert_count",
                                       "attention.alibi_bias_max",
                                       "attention.scale",
                                       "attention.clamp_kqv",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "logit_scale",
                                       "embedding_scale",
                                       "residual_scale",
                                       "rope.scale_linear"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char key[96];
        snprintf(key, sizeof key, "%s.%s", m->arch, keys[i]);
        const struct gguf_kv *kv = gguf_find(m->gguf, key);
        if (kv && (kv->kind == GGUF_F32 || kv->kind == GGUF_F64 ? kv->f != 0.0 : kv->u != 0))
            return err_set(
                e, ERR_UNSUPPORTED, "%s: models with %s are not supported", m->arch, keys[i]);
    }
    return OK;
}

static enum err read_floats(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    hp->norm_eps = 1e-5f;
    hp->rope_freq_base = 10000.0f;
    enum err err;
    if ((err = get_f32(m, "attention.layer_norm_rms_epsilon", &hp->norm_eps, e)) ||
        (err = get_f32(m, "rope.freq_base", &hp->rope_freq_base, e)))
        return err;
    if (!(hp->norm_eps >= 0.0f && hp->norm_eps < 1.0f))
        return err_set(e,
                       ERR_FORMAT,
                       "%s.attention.layer_norm_rms_epsilon is %g",
                       m->arch,
                       (double)hp->norm_eps);
    if (!(hp->rope_freq_base > 1.0f && hp->rope_freq_base < 1e12f))
        return err_set(
            e, ERR_FORMAT, "%s.rope.freq_base is %g", m->arch, (double)hp->rope_freq_base);
    return OK;
}

/* Factor by which positions shrink: "none" or "linear"; others are refused by name. */
static enum err read_rope_scaling(const struct model *m, float *factor, struct err_info *e)
{
    char key[96], shown[48];
    struct gguf_str type = {"none", 4};
    *factor = 1.0f;
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch);
    enum err err = gguf_get_str(m->gguf, key, &type, e);
    if (err)
        return err;
    bool none = type.len == 4 && memcmp(type.data, "none", 4) == 0;
    bool linear = type.len == 6 && memcmp(type.data, "linear", 6) == 0;
    if (!none && !linear)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "%s is '%s'; none and linear are supported",
                       key,
                       gguf_show(type, shown, sizeof shown));
    if (linear && (err = get_f32(m, "rope.scaling.factor", factor, e)))
        return err;
    if (!(*factor > 1e-6f && *factor <= 1e6f))
        return err_set(e, ERR_FORMAT, "%s.rope.scaling.factor is %g", m->arch, (double)*factor);
    return OK;
}

/* inv_freq[i] = base^(-2i / rope_dims) / (factor of the file's table and of linear scaling).
 * Source: Su et al. 2021; the table: Llama 3.1, precomputed by the converter. */
static enum err make_rope(struct model *m, struct err_info *e)
{
    float linear;
    enum err err = read_rope_scaling(m, &linear, e);
    if (err)
        return err;
    uint32_t n = m->hp.rope_dims / 2;
    const struct gguf_tensor *factors = gguf_find_tensor(m->gguf, "rope_freqs.weight");
    if (factors && (factors->type != GGUF_TYPE_F32 || factors->ne[0] != n || factors->ne[1] != 1))
        return err_set(e, ERR_FORMAT, "tensor rope_freqs.weight is not %u values of F32", n);
    m->rope_inv_freq = mem_zalloc(n, sizeof *m->rope_inv_freq);
    for (uint32_t i = 0; i < n; i++) {
        float f = 1.0f;
        if (factors)
            memcpy(&f, factors->data + i * sizeof f, sizeof f);
        if (!(f > 1e-12f && f < 1e12f))
            return err_set(e, ERR_FORMAT, "tensor rope_freqs.weight[%u] is %g", i, (double)f);
        double exponent = -2.0 * i / m->hp.rope_dims;
        m->rope_inv_freq[i] = pow(m->hp.rope_freq_base, exponent) / f / linear;
    }
    return OK;
}

static void set_name(struct model *m, const char *fallback)
{
    struct gguf_str s = {fallback, strlen(fallback)};
    struct err_info ignored;
    if (gguf_get_str(m->gguf, "general.name", &s, &ignored) != OK || s.len == 0)
        s = (struct gguf_str){fallback, strlen(fallback)};
    size_t n = s.len < 200 ? s.len : 200;
    m->name = mem_alloc(n + 1);
    for (size_t i = 0; i < n; i++) /* it ends up in logs and JSON: printable ASCII only */
        m->name[i] = s.data[i] > ' ' && s.data[i] < 127 ? s.data[i] : '-';
    m->name[n] = '\0';
}

static enum err find_arch(struct model *m, const struct arch **out, struct err_info *e)
{
    struct gguf_str name = {"", 0};
    enum err err = gguf_get_str(m->gguf, "general.architecture", &name, e);
    if (err)
        return err;
    if (name.len == 0)
        return err_set(e, ERR_FORMAT, "metadata key general.architecture is missing");
    *out = arch_find(name.data, name.len);
    if (!*out) {
        char shown[48] = "";
        size_t n = name.len < sizeof shown - 1 ? name.len : sizeof shown - 1;
        for (size_t i = 0; i < n; i++)
            shown[i] = name.data[i] >= ' ' && name.data[i] < 127 ? name.data[i] : '?';
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "architecture '%s' is not supported; Weir runs %s",
                       shown,
                       arch_list());
    }
    m->arch = (*out)->name;
    m->rope = (*out)->rope;
    return OK;
}

enum err model_from_gguf(struct gguf *g, const char *name, struct model **out, struct err_info *e)
{
    struct model *m = mem_zalloc(1, sizeof *m);
    const struct arch *arch = NULL;
    m->gguf = g;
    enum err err;
    if ((err = find_arch(m, &arch, e)) || (err = refuse_unknown(m, e)) ||
        (err = read_sizes(m, e)) || (err = read_vocab_size(m, e)) || (err = read_floats(m, e)) ||
        (err = make_rope(m, e)) || (err = plan_build(m, arch, e))) {
        model_destroy(m);
        *out = NULL;
        return err;
    }
    set_name(m, name);
    *out = m;
    return OK;
}

enum err model_load(const char *path, struct model **out, struct err_info *e)
{
    struct gguf *g;
    *out = NULL;
    enum err err = gguf_open(path, &g, e);
    if (err)
        return err;
    const char *slash = strrchr(path, '/');
    return model_from_gguf(g, slash ? slash + 1 : path, out, e);
}

void model_destroy(struct model *m)
{
    if (!m)
        return;
    gguf_close(m->gguf);
    free(m->name);
    free(m->rope_inv_freq);
    free(m->ops);
    free(m);
}
