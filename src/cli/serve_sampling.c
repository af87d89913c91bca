/* What a model's file advises of sampling: general.sampling.*, which converters copy from the
 * generation_config.json of the model. It holds for requests that do not say, as the operator's
 * flags do, which come first. */
#include "cli/serve_sampling.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *key, *field; /* of the file, of requests */
    double lo, hi;
    bool whole;
} advised[] = {
    {"temp", "temperature", 0.0, 2.0, false},
    {"top_k", "top_k", -1.0, INT32_MAX, true},
    {"top_p", "top_p", 0.0, 1.0, false},
    {"min_p", "min_p", 0.0, 1.0, false},
    {"penalty_repeat", "repeat_penalty", 0.01, 100.0, false},
    {"penalty_last_n", "repeat_last_n", -1.0, INT32_MAX, true},
};
/* Samplers that Weir does not have, and what they are when off. */
static const struct {
    const char *key;
    double off;
} others[] = {{"xtc_probability", 0.0}, {"mirostat", 0.0}};

/* NaN where it is no number. */
static double number_of(const struct gguf_kv *kv)
{
    switch (kv->kind) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        return (double)kv->u;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        return (double)kv->i;
    case GGUF_F32:
    case GGUF_F64:
        return kv->f;
    default:
        return NAN;
    }
}

/* Is there such a key, with a number? */
static bool advises(const struct gguf *g, const char *key, double *v)
{
    char name[64];
    snprintf(name, sizeof name, "general.sampling.%s", key);
    const struct gguf_kv *kv = gguf_find(g, name);
    *v = kv ? number_of(kv) : NAN;
    if (kv && isnan(*v))
        log_warn("%s is not a number: it is ignored", name);
    return !isnan(*v);
}

void serve_sampling_advice(const struct gguf *g, struct buf *out)
{
    double v;
    buf_char(out, '{');
    for (size_t i = 0; i < sizeof advised / sizeof advised[0]; i++) {
        if (!advises(g, advised[i].key, &v))
            continue;
        if (v < advised[i].lo || v > advised[i].hi || (advised[i].whole && v != floor(v)))
            log_warn("general.sampling.%s is %g: it is ignored", advised[i].key, v);
        else /* as decimals: what was 0.7 as a float is 0.7 again */
            buf_printf(out,
                       advised[i].whole ? "%s\"%s\":%.0f" : "%s\"%s\":%.7g",
                       out->len > 1 ? "," : "",
                       advised[i].field,
                       v);
    }
    buf_char(out, '}');
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (advises(g, others[i].key, &v) && v != others[i].off)
            log_warn("general.sampling.%s is %g: there is no such sampler here", others[i].key, v);
}
