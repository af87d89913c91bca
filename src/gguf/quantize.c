#include "gguf/quantize.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 }; /* sums are kept in so many parts, which the compiler puts into vectors */

/* The numbers that x divided by a step may be rounded to. */
struct range {
    float lo, hi;
};

/* To the nearest whole number, ties to even; |x| < 2^22. */
static float round_small(float x)
{
    return (x + 12582912.0f) - 12582912.0f;
}

static float number_of(float x, float inverse, struct range r)
{
    float q = x * inverse;
    q = q < r.lo ? r.lo : q;
    q = q > r.hi ? r.hi : q;
    return round_small(q);
}

static float inverse_of(float step)
{
    return step != 0 ? 1.0f / step : 0.0f;
}

static uint16_t half_of(float f)
{
    f = f > 65504.0f ? 65504.0f : f;
    return f32_to_f16(f < -65504.0f ? -65504.0f : f);
}

/* Sums over the n values of a group, x, and their numbers, q; n a multiple of LANES. */
struct sums {
    float q, qq, xq;
};

static struct sums sums_of(const float *x, int n, float offset, float inverse, struct range r)
{
    float q[LANES] = {0}, qq[LANES] = {0}, xq[LANES] = {0};
    for (int i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            float number = number_of(x[i + l] - offset, inverse, r);
            q[l] += number;
            qq[l] += number * number;
            xq[l] += number * x[i + l];
        }
    }
    struct sums s = {0, 0, 0};
    for (int l = 0; l < LANES; l++) {
        s.q += q[l];
        s.qq += qq[l];
        s.xq += xq[l];
    }
    return s;
}

/* The squared error of step * q + offset with the best q. */
static float error_of(const float *x, int n, float step, float offset, struct range r)
{
    float sum[LANES] = {0}, inverse = inverse_of(step), all = 0;
    for (int i = 0; i < n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            float q = number_of(x[i + l] - offset, inverse, r);
            float e = step * q + offset - x[i + l];
            sum[l] += e * e;
        }
    }
    for (int l = 0; l < LANES; l++)
        all += sum[l];
    return all;
}

static void numbers_of(const float *x, int n, float step, float offset, struct range r, int8_t *out)
{
    float inverse = inverse_of(step);
    for (int i = 0; i < n; i++)
        out[i] = (int8_t)number_of(x[i] - offset, inverse, r);
}

/* The step for q in -m..m - 1. The largest value goes to -m or nearby; with numbers fixed, the best
 * step is xq / qq, which takes xq^2 / qq off the squared error. */
static float fit_symmetric(const float *x, int n, float m)
{
    const struct range r = {-m, m - 1};
    float top = 0, step = 0, best = 0;
    for (int i = 0; i < n; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    if (fabsf(top) < 1e-30f)
        return 0;
    for (int i = -9; i <= 9; i++) {
        struct sums s = sums_of(x, n, 0, -(m + 0.1f * (float)i) / top, r);
        if (s.qq > 0 && s.xq / s.qq * s.xq > best) {
            best = s.xq / s.qq * s.xq;
            step = s.xq / s.qq;
        }
    }
    return step;
}

struct line {
    float step, offset;
};

/* Step and offset for x[32] by q in 0..m; with `below` the offset is at most 0. Least squares for
 * two unknowns, in double where differences of large terms remain. */
static struct line fit_line(const float *x, float m, bool below)
{
    double sum = 0, squares = 0, best = INFINITY;
    float lo = x[0], hi = x[0];
    for (int i = 0; i < 32; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    lo = below && lo > 0 ? 0 : lo;
    struct line line = {0, lo};
    if (!(hi - lo > 1e-30f))
        return line;
    for (int i = 0; i <= 20; i++) {
        const struct sums s =
            sums_of(x, 32, lo, (m - 1 + 0.1f * (float)i) / (hi - lo), (struct range){0, m});
        const double q = s.q, qq = s.qq, xq = s.xq, det = 32 * qq - q * q;
        double step = 0, offset = 1;
        if (det > 0) {
            step = (32 * xq - sum * q) / det;
            offset = (qq * sum - q * xq) / det;
        }
        if (below && offset > 0) { /* also where all numbers are the same */
            offset = 0;
            step = qq > 0 ? xq / qq : 0;
        }
        const double error = squares + step * step * qq + 32 * offset * offset - 2 * step * xq -
                             2 * offset * sum + 2 * step * offset * q;
        if (step > 0 && error < best) {
            best = error;
            line = (struct line){(float)step, (float)offset};
        }
    }
    return line;
}

static void quantize_q8_0(const float *x, void *out)
{
    struct block_q8_0 b;
    float top = 0;
    for (int i = 0; i < 32; i++)
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    b.d = half_of(top / 127.0f);
    numbers_of(x, 32, f16_to_f32(b.d), 0, (struct range){-127, 127}, b.qs);
    memcpy(out, &b, sizeof b);
}

/* Numbers j and j + 16 to byte j. */
static void pack_pairs(const int8_t *q, uint8_t qs[16])
{
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

static void pack_fifth_bits(const int8_t *q, uint8_t qh[4])
{
    memset(qh, 0, 4);
    for (int j = 0; j < 32; j++)
        qh[j / 8] = (uint8_t)(qh[j / 8] | (q[j] >> 4 & 1) << (j % 8));
}

static void quantize_q4_0(const float *x, void *out)
{
    struct block_q4_0 b;
    int8_t q[32];
    b.d = half_of(fit_symmetric(x, 32, 8));
    numbers_of(x, 32, f16_to_f32(b.d), 0, (struct range){-8, 7}, q);
    for (int j = 0; j < 32; j++)
        q[j] = (int8_t)(q[j] + 8);
    pack_pairs(q, b.qs);
    memcpy(out, &b, sizeof b);
}

static void quantize_q5_0(const float *x, void *out)
{
    struct block_q5_0 b;
    int8_t q[32];
    b.d = half_of(fit_symmetric(x, 32, 16));
    numbers_of(x, 32, f16_to_f32(b.d), 0, (struct range){-16, 15}, q);
    for (int j = 0; j < 32; j++)
        q[j] = (int8_t)(q[j] + 16);
    pack_pairs(q, b.qs);
    pack_fifth_bits(q, b.qh);
    memcpy(out, &b, sizeof b);
}

static void quantize_q5_1(const float *x, void *out)
{
    struct block_q5_1 b;
    int8_t q[32];
    const struct line line = fit_line(x, 31, false);
    b.d = half_of(line.step);
    b.m = half_of(line.offset);
    numbers_of(x, 32, f16_to_f32(b.d), f16_to_f32(b.m), (struct range){0, 31}, q);
    pack_pairs(q, b.qs);
    pack_fifth_bits(q, b.qh);
    memcpy(out, &b, sizeof b);
}

static int whole(float x, int lo, int hi)
{
    return x <= (float)lo ? lo : x >= (float)hi ? hi : (int)round_small(x);
}

/* Eight groups of 32 with scales and minima of six bits: the common part of Q4_K and Q5_K. */
struct k_block {
    uint16_t d, dmin;
    uint8_t scale[8], min[8];
    int8_t q[256];
};

/* Rounded scale and minimum are seldom the best pair: so are their neighbours tried. */
static void choose_scale_min(
    const float *x, struct range r, float d, float dmin, struct line line, uint8_t *s, uint8_t *m)
{
    static const int order[3] = {0, -1, 1}; /* of equals the rounded ones are taken */
    const int scale = whole(line.step * inverse_of(d), 0, 63);
    const int min = whole(-line.offset * inverse_of(dmin), 0, 63);
    float best = INFINITY;
    for (int i = 0; i < 9; i++) {
        const int a = scale + order[i / 3], b = min + order[i % 3];
        if (a < 0 || a > 63 || b < 0 || b > 63)
            continue;
        const float error = error_of(x, 32, d * (float)a, -(dmin * (float)b), r);
        if (error < best) {
            best = error;
            *s = (uint8_t)a;
            *m = (uint8_t)b;
        }
    }
}

static void choose_k_block(const float *x, float top, struct k_block *b)
{
    const struct range r = {0, top};
    struct line lines[8];
    float max_step = 0, max_min = 0;
    for (size_t g = 0; g < 8; g++) {
        lines[g] = fit_line(x + g * 32, top, true);
        max_step = lines[g].step > max_step ? lines[g].step : max_step;
        max_min = -lines[g].offset > max_min ? -lines[g].offset : max_min;
    }
    b->d = half_of(max_step / 63);
    b->dmin = half_of(max_min / 63);
    const float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
    for (size_t g = 0; g < 8; g++) {
        b->scale[g] = b->min[g] = 0;
        choose_scale_min(x + g * 32, r, d, dmin, lines[g], &b->scale[g], &b->min[g]);
        numbers_of(
            x + g * 32, 32, d * (float)b->scale[g], -(dmin * (float)b->min[g]), r, b->q + g * 32);
    }
}

/* The way back of block_k_scale_min. */
static void pack_scales_mins(const struct k_block *b, uint8_t out[12])
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(b->scale[i] | (b->scale[i + 4] >> 4) << 6);
        out[i + 4] = (uint8_t)(b->min[i] | (b->min[i + 4] >> 4) << 6);
        out[i + 8] = (uint8_t)((b->scale[i + 4] & 15) | (b->min[i + 4] & 15) << 4);
    }
}

/* Groups 2i and 2i + 1 share 32 bytes. */
static void pack_group_pairs(const int8_t q[256], uint8_t qs[128])
{
    for (int i = 0; i < 128; i++) {
        const int8_t *low = q + i / 32 * 64 + i % 32;
        qs[i] = (uint8_t)((low[0] & 15) | (low[32] & 15) << 4);
    }
}

static void quantize_q4_k(const float *x, void *out)
{
    struct block_q4_k b;
    struct k_block k;
    choose_k_block(x, 15, &k);
    b.d = k.d;
    b.dmin = k.dmin;
    pack_scales_mins(&k, b.scales);
    pack_group_pairs(k.q, b.qs);
    memcpy(out, &b, sizeof b);
}

static void quantize_q5_k(const float *x, void *out)
{
    struct block_q5_k b = {.qh = {0}};
    struct k_block k;
    choose_k_block(x, 31, &k);
    b.d = k.d;
    b.dmin = k.dmin;
    pack_scales_mins(&k, b.scales);
    pack_group_pairs(k.q, b.qs);
    for (int i = 0; i < 256; i++)
        b.qh[i % 32] = (uint8_t)(b.qh[i % 32] | (k.q[i] >> 4) << (i / 32));
    memcpy(out, &b, sizeof b);
}

/* The scale of 16 values in units of d, and its neighbours tried. */
static int8_t choose_scale(const float *x, struct range r, float d, float step)
{
    static const int order[3] = {0, -1, 1};
    const int scale = whole(step * inverse_of(d), -128, 127);
    int chosen = scale;
    float best = INFINITY;
    for (int i = 0; i < 3; i++) {
        const int a = scale + order[i];
        if (a < -128 || a > 127)
            continue;
        const float error = error_of(x, 16, d * (float)a, 0, r);
        if (error < best) {
            best = error;
            chosen = a;
        }
    }
    return (int8_t)chosen;
}

/* The order of the file: see expand_q6_k. */
static void pack_q6_k(const int8_t numbers[256], struct block_q6_k *b)
{
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, run = i / 32 % 4, j = i % 32, q = numbers[i] + 32;
        uint8_t *low = &b->ql[half * 64 + run % 2 * 32 + j], *high = &b->qh[half * 32 + j];
        *low = (uint8_t)(*low | (q & 15) << (run / 2 * 4));
        *high = (uint8_t)(*high | (q >> 4) << (run * 2));
    }
}

static void quantize_q6_k(const float *x, void *out)
{
    const struct range r = {-32, 31};
    struct block_q6_k b;
    float steps[16], top = 0;
    int8_t q[256];
    for (size_t g = 0; g < 16; g++) {
        steps[g] = fit_symmetric(x + g * 16, 16, 32);
        top = fabsf(steps[g]) > fabsf(top) ? steps[g] : top;
    }
    b.d = half_of(top / -128);
    const float d = f16_to_f32(b.d);
    for (size_t g = 0; g < 16; g++) {
        b.scales[g] = choose_scale(x + g * 16, r, d, steps[g]);
        numbers_of(x + g * 16, 16, d * (float)b.scales[g], 0, r, q + g * 16);
    }
    pack_q6_k(q, &b);
    memcpy(out, &b, sizeof b);
}

static void quantize_f16(const float *x, void *out)
{
    const uint16_t half = half_of(*x);
    memcpy(out, &half, sizeof half);
}

#define LARGEST_HALF 65504.0f /* scale, or offset */

/* One block, and the largest value that finds a place in it. */
static const struct {
    void (*quantize)(const float *x, void *out);
    float limit;
} types[] = {
    [GGUF_TYPE_F16] = {quantize_f16, LARGEST_HALF},
    [GGUF_TYPE_Q4_0] = {quantize_q4_0, 7 * LARGEST_HALF},
    [GGUF_TYPE_Q5_0] = {quantize_q5_0, 15 * LARGEST_HALF},
    [GGUF_TYPE_Q5_1] = {quantize_q5_1, LARGEST_HALF},
    [GGUF_TYPE_Q8_0] = {quantize_q8_0, 127 * LARGEST_HALF},
    [GGUF_TYPE_Q4_K] = {quantize_q4_k, 63 * LARGEST_HALF},
    [GGUF_TYPE_Q5_K] = {quantize_q5_k, 63 * LARGEST_HALF},
    [GGUF_TYPE_Q6_K] = {quantize_q6_k, 31 * 127 * LARGEST_HALF},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

float gguf_quantize_limit(enum gguf_type type)
{
    return (size_t)type < N_TYPES ? types[type].limit : 0.0f;
}

void gguf_quantize(enum gguf_type type, const float *x, void *out, size_t n)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    for (size_t i = 0; i < n / info->block_values; i++)
        types[type].quantize(x + i * info->block_values, (uint8_t *)out + i * info->block_bytes);
}
