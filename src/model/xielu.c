/* Parameters of xIELU as files have them: a value for each layer, of which two are learned through
 * a softplus. Their keys stand without the architecture's prefix. */
#include "model/build.h"

#include <math.h>

/* The layer's value of a key that holds one for all, or one each. */
static double value_of(struct builder *b, const char *key)
{
    const uint32_t n = b->m->hp.n_layer;
    const struct gguf_kv *kv = b->err ? NULL : gguf_find(b->m->gguf, key);
    double v = 0;
    if (b->err)
        return 0;
    if (!kv)
        b->err = err_set(b->e, ERR_FORMAT, "metadata key %s is missing", key);
    else if (kv->kind == GGUF_F32)
        v = kv->f;
    else if (kv->kind == GGUF_ARRAY && kv->elem_kind == GGUF_F32 && kv->n_elems == n)
        v = gguf_elem(kv, b->layer).f;
    else
        b->err = err_set(b->e, ERR_FORMAT, "metadata key %s is not one f32 or %u", key, n);
    if (!b->err && !(v > -1e4 && v < 1e4))
        b->err = err_set(b->e, ERR_FORMAT, "%s is %g in layer %u", key, v, b->layer);
    return v;
}

static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

struct xielu plan_xielu(struct builder *b)
{
    const double beta = value_of(b, "xielu.beta");
    return (struct xielu){.positive = (float)softplus(value_of(b, "xielu.alpha_p")),
                          .negative = (float)(beta + softplus(value_of(b, "xielu.alpha_n"))),
                          .beta = (float)beta,
                          .eps = (float)value_of(b, "xielu.eps")};
}
