/* Angles of rotation (Su et al. 2021), and the ways to stretch them over longer contexts:
 *
 *     linear    all frequencies through a factor (Chen et al. 2023)
 *     table     each frequency through a factor of its own: Llama 3.1's, precomputed by converters,
 *               and Phi-3's two, for short and for long contexts
 *     YaRN      low frequencies through the factor, high ones as they are, a ramp between; and
 *               scores raised a little (Peng et al. 2023) */
#include "base/mem.h"
#include "model/keys.h"

#include <math.h>
#include <string.h>

enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONGROPE };

struct stretch {
    enum scaling type;
    float factor;         /* 1: none */
    float attention;      /* factor of cosines and sines */
    uint32_t n_ctx_first; /* positions the model was trained on at first */
    float yarn_mix, beta_fast, beta_slow;
    bool between;       /* YaRN: the ramp's ends are not rounded to whole pairs */
    float turn, scores; /* YaRN: logarithm's share in cosines and sines; in scores, of which the
                         * latter's part is taken out of the former (DeepSeek's mscale and
                         * mscale_all_dim) */
};

/* How much YaRN raises by, for a share m of the logarithm. */
static double raised(const struct stretch *s, float m)
{
    const bool yarn = s->type == SCALING_YARN && s->yarn_mix > 0 && s->factor > 1;
    return yarn ? 1 + 0.1 * m * log((double)s->factor) : 1;
}

static enum err read_type(const struct model *m, enum scaling *out, struct err_info *e)
{
    static const char *const names[] = {[SCALING_NONE] = "none",
                                        [SCALING_LINEAR] = "linear",
                                        [SCALING_YARN] = "yarn",
                                        [SCALING_LONGROPE] = "longrope"};
    const struct gguf_kv *kv = key_find(m, "rope.scaling.type");
    *out = SCALING_LINEAR; /* a factor without a type is that of the linear way */
    if (!kv)
        return OK;
    if (kv->kind != GGUF_STRING)
        return err_set(e, ERR_FORMAT, "key \"%s.rope.scaling.type\" must hold a string", m->arch);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == kv->s.len && memcmp(names[i], kv->s.data, kv->s.len) == 0) {
            *out = (enum scaling)i;
            return OK;
        }
    }
    char shown[48];
    return err_set(e,
                   ERR_UNSUPPORTED,
                   "%s.rope.scaling.type is '%s'; none, linear, yarn and longrope are supported",
                   m->arch,
                   gguf_show(kv->s, shown, sizeof shown));
}

/* Files of deepseek2 have a tenth of the share; its share in cosines and sines is always the same.
 */
static enum err read_shares(const struct model *m,
                            const struct arch *arch,
                            struct stretch *s,
                            struct err_info *e)
{
    s->turn = 1.0f;
    s->scores = 0.0f;
    if (!arch->yarn_log)
        return OK;
    enum err err =
        key_f32_in(m, "rope.scaling.yarn_log_multiplier", -1e-30f, 100.0f, &s->scores, e);
    if (arch->latent && s->scores > 0.0f)
        s->turn = s->scores = s->scores / 0.1f;
    return err;
}

static enum err read_stretch(const struct model *m,
                             const struct arch *arch,
                             struct stretch *s,
                             struct err_info *e)
{
    *s = (struct stretch){.factor = 1.0f,
                          .attention = 1.0f,
                          .n_ctx_first = m->hp.n_ctx_train,
                          .yarn_mix = 1.0f,
                          .beta_fast = arch->yarn_fast > 0.0f ? arch->yarn_fast : 32.0f,
                          .beta_slow = 1.0f,
                          .between = arch->yarn_between};
    enum err err = read_type(m, &s->type, e);
    if (err || (err = read_shares(m, arch, s, e)))
        return err;
    const char *factor =
        key_find(m, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    if ((err = key_f32_in(m, factor, -1e-30f, 1e6f, &s->factor, e)) ||
        (err = key_f32_in(m, "rope.scaling.attn_factor", 0.0f, 1e3f, &s->attention, e)) ||
        (err = key_u32_in(m,
                          "rope.scaling.original_context_length",
                          1,
                          MODEL_MAX_CONTEXT,
                          &s->n_ctx_first,
                          e)) ||
        (err = key_f32_in(m, "rope.scaling.yarn_ext_factor", -2.0f, 2.0f, &s->yarn_mix, e)) ||
        (err = key_f32_in(m, "rope.scaling.yarn_beta_fast", 0.0f, 1e6f, &s->beta_fast, e)) ||
        (err = key_f32_in(m, "rope.scaling.yarn_beta_slow", 0.0f, 1e6f, &s->beta_slow, e)))
        return err;
    if (s->yarn_mix < 0.0f) /* how llama.cpp writes in what it saves that nobody said */
        s->yarn_mix = 1.0f;
    if (s->factor == 0.0f || s->type == SCALING_NONE)
        s->factor = 1.0f;
    if (s->factor < 1e-6f)
        return err_set(e, ERR_FORMAT, "%s.%s is %g", m->arch, factor, (double)s->factor);
    if (s->type == SCALING_LONGROPE) { /* the tables stretch; the factor only says how far */
        if (s->factor > 1.0f && s->n_ctx_first > 1 && !key_find(m, "rope.scaling.attn_factor"))
            s->attention = sqrtf(1 + logf(s->factor) / logf((float)s->n_ctx_first));
        s->factor = 1.0f;
    }
    return OK;
}

/* The file's table of factors for this context, or NULL. */
static enum err find_factors(const struct model *m,
                             const struct arch *arch,
                             bool is_long,
                             const struct gguf_tensor **out,
                             struct err_info *e)
{
    const char *name = "rope_freqs.weight";
    uint32_t n = m->hp.rope_dims_of[ROPE_FULL] / 2;
    *out = gguf_find_tensor(m->gguf, name);
    if (!*out) {
        name = is_long ? "rope_factors_long.weight" : "rope_factors_short.weight";
        *out = gguf_find_tensor(m->gguf, name);
    }
    const struct gguf_tensor *t = *out;
    if (t && arch->window_turns && t->ne[0] == m->hp.rope_dims / 2) /* as windowed layers would */
        n = m->hp.rope_dims / 2;
    if (t && (t->type != GGUF_TYPE_F32 || t->ne[0] != n || t->ne[1] != 1 || t->ne[2] != 1))
        return err_set(e, ERR_FORMAT, "tensor %s is not %u values of F32", name, n);
    for (uint32_t i = 0; t && i < n; i++) {
        float f;
        memcpy(&f, t->data + i * sizeof f, sizeof f);
        if (!(f > 1e-12f && f <= 1e30f)) /* 1e30: how some files say that a pair does not turn */
            return err_set(e, ERR_FORMAT, "tensor %s[%u] is %g", name, i, (double)f);
    }
    return OK;
}

const struct gguf_tensor *rope_tensor(const struct model *m, int i)
{
    static const char *const names[N_ROPE_TENSORS] = {
        "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    return gguf_find_tensor(m->gguf, names[i]);
}

/* The dim that turns `turns` times over the context of the first training. */
static double dim_of_turns(const struct stretch *s, uint32_t dims, double base, double turns)
{
    return dims * log(s->n_ctx_first / (turns * 2 * M_PI)) / (2 * log(base));
}

/* Share of pair i that keeps its frequency: 1 before the ramp, 0 behind it. */
static double yarn_kept(const struct stretch *s, uint32_t dims, double base, uint32_t i)
{
    const double fast = dim_of_turns(s, dims, base, s->beta_fast);
    const double slow = dim_of_turns(s, dims, base, s->beta_slow);
    const double low = fmax(0, s->between ? fast : floor(fast));
    const double high = fmin(dims - 1, s->between ? slow : ceil(slow));
    const double at = (i - low) / fmax(0.001, high - low);
    return (1 - fmin(1, fmax(0, at))) * s->yarn_mix;
}

static void fill(struct model_rope *r,
                 uint32_t dims,
                 double base,
                 const struct gguf_tensor *factors,
                 const struct stretch *s)
{
    const bool yarn = s->type == SCALING_YARN && s->yarn_mix > 0;
    r->n_dims = dims;
    r->scale = s->attention * (raised(s, s->turn) / raised(s, s->scores));
    if (!r->inv_freq)
        r->inv_freq = mem_zalloc(dims / 2, sizeof *r->inv_freq);
    for (uint32_t i = 0; i < dims / 2; i++) {
        float f = 1.0f;
        if (factors)
            memcpy(&f, factors->data + i * sizeof f, sizeof f);
        const double plain = pow(base, -2.0 * i / dims) / f, stretched = plain / s->factor;
        const double kept = yarn ? yarn_kept(s, dims, base, i) : 0;
        r->inv_freq[i] = stretched * (1 - kept) + plain * kept;
    }
}

enum err rope_scores(const struct model *m,
                     const struct arch *arch,
                     double *out,
                     struct err_info *e)
{
    struct stretch s;
    enum err err = read_stretch(m, arch, &s, e);
    if (!err)
        *out = raised(&s, s.scores) * raised(&s, s.scores);
    return err;
}

enum err rope_grow_base(struct model *m, struct err_info *e)
{
    struct model_hparams *hp = &m->hp;
    float alpha = 0.0f;
    enum err err = key_f32_in(m, "rope.scaling.alpha", -1e-30f, 1e6f, &alpha, e);
    if (err || alpha <= 0.0f || hp->head_dim <= 2)
        return err;
    hp->rope_freq_base *= powf(alpha, (float)hp->head_dim / (float)(hp->head_dim - 2));
    if (hp->rope_freq_base >= 1.0f && hp->rope_freq_base < 1e12f)
        return OK;
    return err_set(e, ERR_FORMAT, "%s.rope.scaling.alpha is %g", m->arch, (double)alpha);
}

/* Whether rotations are shared out among positions in time, height and width, which of texts are
 * one: converters then bring Q and K into the order that this takes. */
static bool has_sections(const struct model *m)
{
    const struct gguf_kv *kv = key_find(m, "rope.dimension_sections");
    return kv && kv->kind == GGUF_ARRAY && key_is_integer(kv->elem_kind) && kv->n_elems >= 2 &&
           gguf_elem(kv, 0).u > 0 && gguf_elem(kv, 1).u > 0;
}

enum err rope_read(struct model *m, const struct arch *arch, uint32_t n_ctx, struct err_info *e)
{
    struct stretch s;
    const struct gguf_tensor *factors;
    enum err err = read_stretch(m, arch, &s, e);
    if (err || (err = find_factors(m, arch, n_ctx > s.n_ctx_first, &factors, e)))
        return err;
    m->rope = arch->rope_by_sections && has_sections(m) ? ROPE_HALVES : arch->rope;
    const uint32_t *dims = m->hp.rope_dims_of;
    fill(&m->ropes[ROPE_FULL], dims[ROPE_FULL], m->hp.rope_freq_base, factors, &s);
    if (m->hp.window == 0)
        return OK;
    /* windowed layers, where the file or the architecture tells them apart */
    float base = arch->window_rope ? 10000.0f : m->hp.rope_freq_base;
    if ((err = key_f32_in(m, "rope.freq_base_swa", 1.0f, 1e12f, &base, e)))
        return err;
    if (base == m->hp.rope_freq_base && dims[ROPE_WINDOW] == dims[ROPE_FULL] &&
        !arch->window_rope && !arch->window_unscaled)
        return OK;
    if (arch->window_rope || arch->window_unscaled) {
        s.type = SCALING_NONE;
        s.factor = s.attention = 1.0f;
        factors = NULL;
    }
    if (factors && factors->ne[0] < dims[ROPE_WINDOW] / 2)
        return err_set(e,
                       ERR_FORMAT,
                       "tensor %.*s is not %u values of F32",
                       (int)factors->name.len,
                       factors->name.data,
                       dims[ROPE_WINDOW] / 2);
    fill(&m->ropes[ROPE_WINDOW], dims[ROPE_WINDOW], base, factors, &s);
    return OK;
}
