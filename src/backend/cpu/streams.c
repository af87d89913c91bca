/* Ops on several residual streams, and others of the models that have them: a row each, in plain C,
 * as they are few beside the matrices. Sums run in the order of the values. */
#include "backend/cpu/cpu.h"

#include <math.h>

enum { MAX_STREAMS = 8 }; /* model/hparams.c */

/* Where stream j begins: the first, which layers compute, lies behind the others. */
static float *stream_of(float *streams, const struct step *s, uint32_t j)
{
    return streams + (size_t)((j + s->n_head - 1) % s->n_head) * s->n;
}

static double mean_square(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum / n;
}

static void match(const struct step *s, const float *in, float *out)
{
    const double want = mean_square(in, s->n);
    for (uint32_t h = 0; h < s->n_head; h++, out += s->n) {
        const float by = (float)sqrt(want / fmax(mean_square(out, s->n), 1e-5));
        for (uint32_t i = 0; i < s->n; i++)
            out[i] *= by;
    }
}

static void fold(const struct step *s, const float *in, float *out)
{
    for (uint32_t i = 0; i < s->n; i++) {
        float sum = out[i];
        for (uint32_t h = 0; h < s->n_head; h++)
            sum += in[(size_t)h * s->n + i];
        out[i] = sum * s->scale;
    }
}

static void predict(const struct step *s, const float *coefs, float *out)
{
    const uint32_t n = s->n_head;
    for (uint32_t i = 0; i < s->n; i++) {
        float was[MAX_STREAMS];
        for (uint32_t k = 0; k < n; k++)
            was[k] = stream_of(out, s, k)[i];
        for (uint32_t j = 0; j < n; j++) {
            float sum = 0;
            for (uint32_t k = 0; k < n; k++)
                sum += coefs[j * n + k] * was[k];
            stream_of(out, s, j)[i] = was[j] + sum;
        }
    }
}

static void correct(const struct step *s, const float *in, const float *coefs, float *out)
{
    const float *first = stream_of(out, s, 0);
    for (uint32_t i = 0; i < s->n; i++) {
        const float change = in[i] - first[i];
        for (uint32_t j = 0; j < s->n_head; j++)
            stream_of(out, s, j)[i] += change * (1.0f + coefs[j]);
    }
}

static void spread(const struct step *s, const float *in, float *out)
{
    for (uint32_t j = 1; j < s->n_head; j++) {
        float *stream = stream_of(out, s, j);
        for (uint32_t i = 0; i < s->n; i++)
            stream[i] += in[i];
    }
}

static void keep_largest(const struct step *s, float *x)
{
    double mean = 0, square = 0;
    for (uint32_t i = 0; i < s->n; i++)
        mean += x[i];
    mean /= s->n;
    for (uint32_t i = 0; i < s->n; i++)
        square += (x[i] - mean) * (x[i] - mean);
    const float cut = (float)(mean + s->scale * sqrt(square / s->n));
    for (uint32_t i = 0; i < s->n; i++)
        x[i] = x[i] - cut <= 0.0f ? 0.0f : x[i] - cut; /* what is no number stays none */
}

void streams_run(const struct step *s, const float *in, const float *in2, float *out)
{
    switch (s->op) {
    case OP_MUL:
        for (uint32_t i = 0; i < s->n; i++)
            out[i] = in[i] * s->w[i];
        break;
    case OP_SPARSE:
        keep_largest(s, out);
        break;
    case OP_MATCH:
        match(s, in, out);
        break;
    case OP_FOLD:
        fold(s, in, out);
        break;
    case OP_PREDICT:
        predict(s, in2, out);
        break;
    case OP_CORRECT:
        correct(s, in, in2, out);
        break;
    default: /* OP_SPREAD */
        spread(s, in, out);
    }
}
