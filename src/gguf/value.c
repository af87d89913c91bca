/* Values of metadata: decoding, and typed access by key. */
#include "gguf/file.h"

#include <float.h>
#include <math.h>
#include <string.h>

size_t gguf_kind_bytes(uint32_t kind)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < sizeof bytes ? bytes[kind] : 0;
}

void gguf_decode(struct gguf_kv *kv, const uint8_t *b)
{
    union {
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        float f32;
        double f64;
    } v;
    memcpy(&v, b, gguf_kind_bytes(kv->kind));
    switch (kv->kind) {
    case GGUF_U8:
        kv->u = b[0];
        return;
    case GGUF_I8:
        kv->i = b[0] < 128 ? b[0] : b[0] - 256;
        return;
    case GGUF_U16:
        kv->u = v.u16;
        return;
    case GGUF_I16:
        kv->i = v.i16;
        return;
    case GGUF_U32:
        kv->u = v.u32;
        return;
    case GGUF_I32:
        kv->i = v.i32;
        return;
    case GGUF_F32:
        kv->f = (double)v.f32;
        return;
    case GGUF_BOOL:
        kv->b = b[0] != 0;
        return;
    case GGUF_U64:
    case GGUF_I64: /* the same bits of the union */
        kv->u = v.u64;
        return;
    case GGUF_F64:
        kv->f = v.f64;
        return;
    case GGUF_STRING:
    case GGUF_ARRAY:
        return;
    }
}

static enum err wrong_kind(const char *key, const char *wanted, struct err_info *e)
{
    return err_set(e, ERR_FORMAT, "key \"%s\" must hold %s", key, wanted);
}

enum err gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct err_info *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return OK;
    switch (kv->kind) {
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        if (kv->i < 0)
            return err_set(e, ERR_FORMAT, "key \"%s\" is negative: %lld", key, (long long)kv->i);
        break;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        break;
    default:
        return wrong_kind(key, "an integer", e);
    }
    /* a signed value that is not negative has the same bits as the unsigned one */
    if (kv->u > UINT32_MAX)
        return err_set(
            e, ERR_FORMAT, "key \"%s\" is too large: %llu", key, (unsigned long long)kv->u);
    *out = (uint32_t)kv->u;
    return OK;
}

enum err gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err_info *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return OK;
    if (kv->kind != GGUF_F32 && kv->kind != GGUF_F64)
        return wrong_kind(key, "a floating-point number", e);
    if (!isfinite(kv->f) || fabs(kv->f) > FLT_MAX)
        return err_set(e, ERR_FORMAT, "key \"%s\" is not a finite f32: %g", key, kv->f);
    *out = (float)kv->f;
    return OK;
}

enum err gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err_info *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return OK;
    if (kv->kind != GGUF_BOOL)
        return wrong_kind(key, "a bool", e);
    *out = kv->b;
    return OK;
}

enum err gguf_get_str(const struct gguf *g,
                      const char *key,
                      struct gguf_str *out,
                      struct err_info *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return OK;
    if (kv->kind != GGUF_STRING)
        return wrong_kind(key, "a string", e);
    *out = kv->s;
    return OK;
}

struct gguf_str gguf_next_str(const uint8_t **at)
{
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    struct gguf_str s = {(const char *)*at + sizeof n, (size_t)n};
    *at += sizeof n + (size_t)n;
    return s;
}

struct gguf_kv gguf_elem(const struct gguf_kv *array, uint64_t i)
{
    struct gguf_kv kv = {.kind = array->elem_kind};
    gguf_decode(&kv, array->elems + i * gguf_kind_bytes(kv.kind));
    return kv;
}
