#include "model/keys.h"

#include <stdio.h>

enum { KEY_BYTES = 96 };

static const char *name_of(const struct model *m, const char *suffix, char out[KEY_BYTES])
{
    snprintf(out, KEY_BYTES, "%s.%s", m->arch, suffix);
    return out;
}

const struct gguf_kv *key_find(const struct model *m, const char *suffix)
{
    char key[KEY_BYTES];
    return gguf_find(m->gguf, name_of(m, suffix, key));
}

bool key_is_integer(enum gguf_kind kind)
{
    return kind != GGUF_F32 && kind != GGUF_F64 && kind != GGUF_BOOL && kind != GGUF_STRING &&
           kind != GGUF_ARRAY;
}

/* A value a layer, the same for all. */
static enum err uniform(const char *key,
                        const struct gguf_kv *kv,
                        uint32_t *out,
                        struct err_info *e)
{
    if (!key_is_integer(kv->elem_kind) || kv->n_elems == 0)
        return err_set(e, ERR_FORMAT, "key \"%s\" must hold integers", key);
    const struct gguf_kv first = gguf_elem(kv, 0);
    for (uint64_t i = 1; i < kv->n_elems; i++) {
        if (gguf_elem(kv, i).u != first.u)
            return err_set(
                e, ERR_UNSUPPORTED, "%s differs from layer to layer, which is not supported", key);
    }
    if (first.u > UINT32_MAX) /* or negative */
        return err_set(e, ERR_FORMAT, "key \"%s\" is out of range", key);
    *out = (uint32_t)first.u;
    return OK;
}

enum err key_u32(const struct model *m, const char *suffix, uint32_t *out, struct err_info *e)
{
    char key[KEY_BYTES];
    const struct gguf_kv *kv = gguf_find(m->gguf, name_of(m, suffix, key));
    if (kv && kv->kind == GGUF_ARRAY)
        return uniform(key, kv, out, e);
    return gguf_get_u32(m->gguf, key, out, e);
}

static enum err key_f32(const struct model *m, const char *suffix, float *out, struct err_info *e)
{
    char key[KEY_BYTES];
    return gguf_get_f32(m->gguf, name_of(m, suffix, key), out, e);
}

enum err key_bool(const struct model *m, const char *suffix, bool *out, struct err_info *e)
{
    char key[KEY_BYTES];
    return gguf_get_bool(m->gguf, name_of(m, suffix, key), out, e);
}

bool key_is_flags(const struct gguf_kv *kv, uint64_t n)
{
    const bool list = kv->kind == GGUF_ARRAY;
    const enum gguf_kind kind = list ? kv->elem_kind : kv->kind;
    return (!list || kv->n_elems >= n) && (kind == GGUF_BOOL || key_is_integer(kind));
}

bool key_flag(const struct gguf_kv *kv, uint64_t i)
{
    const struct gguf_kv v = kv->kind == GGUF_ARRAY ? gguf_elem(kv, i) : *kv;
    return v.kind == GGUF_BOOL ? v.b : v.u != 0;
}

enum err key_u32_in(const struct model *m,
                    const char *suffix,
                    uint32_t lo,
                    uint32_t hi,
                    uint32_t *v,
                    struct err_info *e)
{
    const bool needed = *v == 0 && lo > 0;
    enum err err = key_u32(m, suffix, v, e);
    if (err)
        return err;
    if (needed && *v == 0)
        return err_set(e, ERR_FORMAT, "metadata key %s.%s is missing or 0", m->arch, suffix);
    if (*v >= lo && *v <= hi)
        return OK;
    return err_set(e, ERR_FORMAT, "%s.%s is %u, expected %u to %u", m->arch, suffix, *v, lo, hi);
}

enum err key_u32_or_0(const struct model *m,
                      const char *suffix,
                      uint32_t lo,
                      uint32_t hi,
                      uint32_t *v,
                      struct err_info *e)
{
    const struct gguf_kv *kv = key_find(m, suffix);
    const bool none = kv && key_is_integer(kv->kind) && kv->u == 0;
    return none && *v > 0 ? OK : key_u32_in(m, suffix, lo, hi, v, e);
}

enum err key_u32_layer(const struct model *m,
                       const char *suffix,
                       uint32_t layer,
                       uint32_t lo,
                       uint32_t hi,
                       uint32_t *out,
                       struct err_info *e)
{
    char key[KEY_BYTES];
    const struct gguf_kv *kv = gguf_find(m->gguf, name_of(m, suffix, key));
    const uint32_t n = m->hp.n_layer;
    if (!kv)
        return OK;
    if (kv->kind != GGUF_ARRAY)
        return key_u32_in(m, suffix, lo, hi, out, e);
    if (!key_is_integer(kv->elem_kind))
        return err_set(e, ERR_FORMAT, "key \"%s\" must hold integers", key);
    if (kv->n_elems != n && kv->n_elems != (uint64_t)n + m->hp.n_layer_beside)
        return err_set(e,
                       ERR_FORMAT,
                       "%s has %llu values for %u layers",
                       key,
                       (unsigned long long)kv->n_elems,
                       n);
    const uint64_t v = gguf_elem(kv, layer).u; /* a negative one is above hi */
    if (v < lo || v > hi)
        return err_set(
            e, ERR_FORMAT, "%s[%u] is %lld, expected %u to %u", key, layer, (long long)v, lo, hi);
    *out = (uint32_t)v;
    return OK;
}

enum err key_u32_layers(const struct model *m,
                        const char *suffix,
                        uint32_t lo,
                        uint32_t hi,
                        uint32_t *out,
                        struct err_info *e)
{
    enum err err = OK;
    for (uint32_t i = 0; i < m->hp.n_layer && !err; i++)
        err = key_u32_layer(m, suffix, i, lo, hi, &out[i], e);
    return err;
}

enum err key_f32_in(
    const struct model *m, const char *suffix, float lo, float hi, float *v, struct err_info *e)
{
    enum err err = key_f32(m, suffix, v, e);
    if (err || !key_find(m, suffix) || (*v > lo && *v < hi))
        return err;
    return err_set(e,
                   ERR_FORMAT,
                   "%s.%s is %g, expected more than %g and less than %g",
                   m->arch,
                   suffix,
                   (double)*v,
                   (double)lo,
                   (double)hi);
}

enum err key_f32_layer(const struct model *m,
                       const char *suffix,
                       uint32_t layer,
                       float lo,
                       float hi,
                       float *v,
                       struct err_info *e)
{
    const struct gguf_kv *kv = key_find(m, suffix);
    const uint32_t n = m->hp.n_layer;
    if (!kv || kv->kind != GGUF_ARRAY)
        return key_f32_in(m, suffix, lo, hi, v, e);
    if (kv->elem_kind != GGUF_F32 ||
        (kv->n_elems != n && kv->n_elems != (uint64_t)n + m->hp.n_layer_beside))
        return err_set(e, ERR_FORMAT, "%s.%s is not %u values of F32", m->arch, suffix, n);
    *v = (float)gguf_elem(kv, layer).f;
    if (*v > lo && *v < hi)
        return OK;
    return err_set(e,
                   ERR_FORMAT,
                   "%s.%s[%u] is %g, expected more than %g and less than %g",
                   m->arch,
                   suffix,
                   layer,
                   (double)*v,
                   (double)lo,
                   (double)hi);
}
