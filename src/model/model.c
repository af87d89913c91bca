#include "model/model.h"

#include "base/mem.h"
#include "model/keys.h"
#include "model/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
                       "architecture '%s' is not one that Weir runs (README.md lists them)",
                       shown);
    }
    m->arch = (*out)->name;
    return OK;
}

enum err model_from_gguf(struct gguf *g, const char *name, struct model **out, struct err_info *e)
{
    struct model *m = mem_zalloc(1, sizeof *m);
    const struct arch *arch = NULL;
    m->gguf = g;
    enum err err;
    if ((err = find_arch(m, &arch, e)) || (err = hparams_read(m, arch, e)) ||
        (err = rope_read(m, arch, m->hp.n_ctx_train, e)) || (err = plan_build(m, arch, e))) {
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

static const char *const pooling_names[] = {[POOLING_UNSPECIFIED] = "unspecified",
                                            [POOLING_MEAN] = "mean",
                                            [POOLING_CLS] = "cls",
                                            [POOLING_LAST] = "last",
                                            [POOLING_RANK] = "rank",
                                            [POOLING_NONE] = "none"};

enum err pooling_parse(const char *s, enum pooling *out)
{
    static const enum pooling chosen[] = {POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_NONE};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        if (strcmp(s, pooling_names[chosen[i]]) == 0) {
            *out = chosen[i];
            return OK;
        }
    }
    return ERR_INVALID;
}

enum err model_must_generate(const struct model *m, struct err_info *e)
{
    if (m->generates)
        return OK;
    return err_set(e,
                   ERR_INVALID,
                   "the model, of architecture %s, makes %s of texts; it does not continue them",
                   m->arch,
                   m->hp.n_labels ? "scores and embeddings" : "embeddings");
}

uint32_t model_default_context(const struct model *m)
{
    const uint32_t trained = m->hp.n_ctx_train, most = m->hp.n_positions;
    return most && most < trained ? most : trained;
}

const char *model_positions_verb(const struct model *m)
{
    return m->hp.indexed ? ", whose sparse attention is not supported, takes up to"
                         : " has learned";
}

enum err model_set_context(struct model *m, uint32_t n_ctx, struct err_info *e)
{
    const struct arch *arch = arch_find(m->arch, strlen(m->arch));
    if (n_ctx > MODEL_MAX_CONTEXT)
        return err_set_field(
            e, ERR_INVALID, "context", "%u tokens; at most %u", n_ctx, (unsigned)MODEL_MAX_CONTEXT);
    if (m->hp.n_positions && n_ctx > m->hp.n_positions)
        return err_set_field(e,
                             ERR_INVALID,
                             "context",
                             "%u tokens, but the model%s %u positions",
                             n_ctx,
                             model_positions_verb(m),
                             m->hp.n_positions);
    return rope_read(m, arch, n_ctx ? n_ctx : model_default_context(m), e);
}

float model_temper(const struct model_hparams *hp, uint32_t position)
{
    const uint64_t lengths = ((uint64_t)position + hp->temper_offset) / hp->temper_length;
    return (float)(1 + hp->temper_scale * log(1 + (double)lengths));
}

float model_alibi_slope(float exponent, uint32_t n_head, uint32_t h)
{
    uint32_t n = 1; /* the largest power of two that is not more than n_head */
    while (n * 2 <= n_head)
        n *= 2;
    const double power = h < n ? (double)(h + 1) : (double)(h - n) + 0.5;
    return (float)exp2(-(double)exponent * power / n);
}

void model_drop_made(struct model *m)
{
    for (uint32_t i = 0; i < m->n_made; i++)
        free(m->made[i]);
    m->n_made = 0;
}

void model_destroy(struct model *m)
{
    if (!m)
        return;
    gguf_close(m->gguf);
    free(m->name);
    for (int i = 0; i < N_ROPE_TABLES; i++)
        free(m->ropes[i].inv_freq);
    free(m->layers);
    free(m->ops);
    free(m->parts);
    model_drop_made(m);
    free(m->made);
    free(m);
}
