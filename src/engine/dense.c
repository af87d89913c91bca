#include "engine/dense.h"

#include "base/mem.h"
#include "gguf/blocks.h"

#include <stdlib.h>

enum { LANES = 16 };

struct dense {
    uint32_t n_embd, mid;
    float *second, *third;
    float *between; /* [n_workers][mid] */
};

static enum err read_matrix(const struct gguf_tensor *t, float **out, struct err_info *e)
{
    const size_t n = (size_t)(t->ne[0] * t->ne[1]);
    *out = malloc(n * sizeof **out);
    if (!*out)
        return err_set(e, ERR_NOMEM, "no memory for embeddings");
    gguf_dequantize(t->type, t->data, *out, n);
    return OK;
}

enum err dense_create(const struct model *m,
                      uint32_t n_workers,
                      struct dense **out,
                      struct err_info *e)
{
    *out = NULL;
    if (!m->dense[0])
        return OK;
    struct dense *d = mem_zalloc(1, sizeof *d);
    d->n_embd = m->hp.n_embd;
    d->mid = (uint32_t)m->dense[0]->ne[1];
    d->between = calloc((size_t)n_workers * d->mid, sizeof *d->between);
    enum err err = d->between ? OK : err_set(e, ERR_NOMEM, "no memory for embeddings");
    if (err || (err = read_matrix(m->dense[0], &d->second, e)) ||
        (err = read_matrix(m->dense[1], &d->third, e))) {
        dense_destroy(d);
        return err;
    }
    *out = d;
    return OK;
}

void dense_destroy(struct dense *d)
{
    if (!d)
        return;
    free(d->second);
    free(d->third);
    free(d->between);
    free(d);
}

static void multiply(const float *w, const float *x, uint32_t n_in, uint32_t n_out, float *out)
{
    for (uint32_t r = 0; r < n_out; r++, w += n_in) {
        float s[LANES] = {0};
        uint32_t i = 0;
        for (; i + LANES <= n_in; i += LANES)
            for (int l = 0; l < LANES; l++)
                s[l] += w[i + l] * x[i + l];
        for (int l = 0; i < n_in; i++, l++)
            s[l] += w[i] * x[i];
        for (int n = LANES / 2; n > 0; n /= 2)
            for (int l = 0; l < n; l++)
                s[l] += s[l + n];
        out[r] = s[0];
    }
}

void dense_apply(const struct dense *d, uint32_t worker, float *v)
{
    if (!d)
        return;
    float *between = d->between + (size_t)worker * d->mid;
    multiply(d->second, v, d->n_embd, d->mid, between);
    multiply(d->third, between, d->mid, d->n_embd, v);
}
