/* What the file says that values are multiplied by (embeddings, scores, what joins the residual
 * stream, logits), and what keeps them small; the epsilon of norms and the base of rotations. */
#include "model/keys.h"

#include <math.h>

/* A factor of which 0 means that there is none. */
static enum err read_factor(const struct model *m, const char *suffix, float *v, struct err_info *e)
{
    const float none = *v;
    enum err err = key_f32_in(m, suffix, -1e6f, 1e6f, v, e);
    if (!err && *v != 0.0f && fabsf(*v) < 1e-30f) /* its reciprocal may be used */
        err = err_set(e, ERR_FORMAT, "%s.%s is %g", m->arch, suffix, (double)*v);
    if (*v == 0.0f)
        *v = none;
    return err;
}

/* Of the streams: what is embedded, what joins, what comes out. */
static enum err read_stream_scales(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err;
    hp->embedding_scale = arch->embed_sqrt ? sqrtf((float)hp->n_embd) : 1.0f;
    hp->residual_scale = hp->logit_scale = 1.0f;
    if (arch->scales == SCALES_MINICPM) { /* of its first release, whose files do not say */
        hp->embedding_scale = 12.0f;
        hp->residual_scale = 1.4f / sqrtf((float)hp->n_layer);
        hp->logit_scale = (float)hp->n_embd / 256.0f;
    }
    if (arch->scales == SCALES_GROK) { /* likewise; 1 / sqrt(3), and the root of 6144 */
        hp->embedding_scale = 78.38367176906169f;
        hp->logit_scale = 0.5773502691896257f;
    }
    if (arch->scales == SCALES_STREAM) {
        if (!key_find(m, "residual_scale"))
            return err_set(e, ERR_FORMAT, "metadata key %s.residual_scale is missing", m->arch);
        return key_f32_in(m, "residual_scale", 0.0f, 1e6f, &hp->residual_scale, e);
    }
    if (arch->scales == SCALES_LOGIT && !key_find(m, "logit_scale"))
        return err_set(e, ERR_FORMAT, "metadata key %s.logit_scale is missing", m->arch);
    if (arch->scales == SCALES_NONE)
        return OK;
    if (arch->scales == SCALES_LOGIT)
        return read_factor(m, "logit_scale", &hp->logit_scale, e);
    if ((err = read_factor(m, "embedding_scale", &hp->embedding_scale, e)) ||
        arch->scales == SCALES_EMBEDDING)
        return err;
    err = read_factor(m, "logit_scale", &hp->logit_scale, e);
    if (err || arch->scales == SCALES_GROK)
        return err;
    hp->logit_scale = 1.0f / hp->logit_scale;
    return read_factor(m, "residual_scale", &hp->residual_scale, e);
}

/* Queries that grow with the logarithm of their position. */
static enum err read_temperature(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    enum err err;
    if (arch->temper == TEMPER_UNROTATED) { /* as Llama 4's code has it */
        hp->temper_scale = 0.1f;
        hp->temper_length = 8192;
        hp->temper_offset = 1;
        return key_f32_in(m, "attention.temperature_scale", -1e-30f, 1e3f, &hp->temper_scale, e);
    }
    if (arch->temper != TEMPER_BY_KEY ||
        (err = key_f32_in(m, "attention.temperature_scale", -1e-30f, 1e3f, &hp->temper_scale, e)) ||
        hp->temper_scale == 0.0f)
        return arch->temper == TEMPER_BY_KEY ? err : OK;
    const char *length = key_find(m, "attention.temperature_length")
                             ? "attention.temperature_length"
                             : "rope.scaling.original_context_length";
    hp->temper_length = hp->n_ctx_train;
    return key_u32_in(m, length, 1, MODEL_MAX_CONTEXT, &hp->temper_length, e);
}

enum err scales_read(struct model *m, const struct arch *arch, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    uint32_t dims = hp->latent ? hp->head_key : hp->head_dim;
    if (hp->n_layer == arch->by_width_layers && hp->n_embd >= hp->n_head)
        dims = hp->n_embd / hp->n_head;
    double raised = 1;
    enum err err = arch->latent ? rope_scores(m, arch, &raised, e) : OK;
    hp->attention_scale = (float)(raised / sqrt((double)dims));
    if (arch->scale_by_dim)
        hp->attention_scale = 1.0f / (float)dims;
    if (arch->attention_scale > 0.0f)
        hp->attention_scale = arch->attention_scale;
    if (err || (err = read_temperature(m, arch, e)) ||
        (err =
             read_factor(m,
                         arch->scales == SCALES_GROK ? "attention.output_scale" : "attention.scale",
                         &hp->attention_scale,
                         e)) ||
        (err = read_stream_scales(m, arch, e)))
        return err;
    if (arch->alibi_layers == 0 || arch->alibi_layers == hp->n_layer)
        hp->alibi = arch->alibi;
    if (arch->alibi_by_key &&
        (err = key_f32_in(m, "attention.max_alibi_bias", -1e-30f, 1e3f, &hp->alibi, e)))
        return err;
    if (arch->clamp &&
        (err = key_f32_in(m, "attention.clamp_kqv", -1e-30f, 1e6f, &hp->qkv_clamp, e)))
        return err;
    hp->attention_cap = arch->attention_cap;
    hp->logit_cap = arch->logit_cap;
    if (arch->attention_cap > 0.0f &&
        (err = key_f32_in(m, "attn_logit_softcapping", -1e-30f, 1e6f, &hp->attention_cap, e)))
        return err;
    if ((arch->logit_cap > 0.0f || arch->logit_cap_by_key) &&
        (err = key_f32_in(m, "final_logit_softcapping", -1e-30f, 1e6f, &hp->logit_cap, e)))
        return err;
    hp->norm_eps = 1e-5f;
    hp->rope_freq_base = 10000.0f;
    const char *eps = "attention.layer_norm_epsilon"; /* which some call it, whatever the norm */
    const bool rms = hparams_norm(m, arch) == NORM_RMS;
    if (!key_find(m, eps) ||
        (rms && (!arch->recurrence || key_find(m, "attention.layer_norm_rms_epsilon"))))
        eps = "attention.layer_norm_rms_epsilon";
    if ((err = key_f32_in(m, eps, -1e-30f, 1.0f, &hp->norm_eps, e)) ||
        (err = key_f32_in(m, "rope.freq_base", 1.0f, 1e12f, &hp->rope_freq_base, e)))
        return err;
    return arch->rope_alpha ? rope_grow_base(m, e) : OK;
}
