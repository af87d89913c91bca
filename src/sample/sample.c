/* One row of logits to one token.
 *
 * All weights are exp((l - max) / T), so the likeliest token weighs 1 and min-p is a plain
 * threshold. Truncations cut a descending order without making one (select.c); the draw then goes
 * over what was kept in the order of ids.
 *
 *      no truncation       weights of all, sums of blocks, one draw                 2 passes
 *      top-k               candidates from the blocks whose maximum is large enough 1 pass
 *      top-p               those heavy enough to matter, cut where the mass is reached */
#include "sample/sample.h"

#include "base/mem.h"
#include "sample/internal.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

struct sample_scratch {
    uint32_t n_vocab;
    float *block_max;  /* [sample_n_blocks(n_vocab)] of logits */
    double *block_sum; /* [sample_n_blocks(n_vocab)] of weights */
    float *weights;    /* [n_vocab] */
    /* candidates, in the order of ids */
    int32_t *ids;   /* [n_vocab] */
    uint32_t *keys; /* [n_vocab] */
    double hist[1 << SAMPLE_RADIX_BITS];
    /* what the last draw was from: weights[n_drawn], of the tokens ids[n_drawn], or, `all`, of the
     * tokens by number */
    uint32_t n_drawn;
    bool all;
};

struct sample_params sample_params_default(void)
{
    return (struct sample_params){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

struct sample_scratch *sample_scratch_create(uint32_t n_vocab)
{
    struct sample_scratch *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    size_t n = n_vocab ? n_vocab : 1, n_blocks = sample_n_blocks((uint32_t)n);
    s->n_vocab = n_vocab;
    s->block_max = mem_aligned(n_blocks * sizeof *s->block_max);
    s->block_sum = mem_aligned(n_blocks * sizeof *s->block_sum);
    s->weights = mem_aligned(n * sizeof *s->weights);
    s->ids = mem_aligned(n * sizeof *s->ids);
    s->keys = mem_aligned(n * sizeof *s->keys);
    if (s->block_max && s->block_sum && s->weights && s->ids && s->keys)
        return s;
    sample_scratch_destroy(s);
    return NULL;
}

void sample_scratch_destroy(struct sample_scratch *s)
{
    if (!s)
        return;
    free(s->block_max);
    free(s->block_sum);
    free(s->weights);
    free(s->ids);
    free(s->keys);
    free(s);
}

static void add_bias(const struct sample_params *p, float *logits, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= 0 && (uint32_t)p->bias[i].id < n_vocab)
            logits[p->bias[i].id] += p->bias[i].bias;
}

/* The element of w[n] in which the running sum first exceeds `target`, or the last one that weighs
 * anything when rounding keeps it below. A weight of 0 is never chosen. */
static uint32_t draw(const float *w, uint32_t n, double target)
{
    double sum = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(w[i] > 0))
            continue;
        sum += w[i];
        last = i;
        if (sum > target)
            break;
    }
    return last;
}

/* Truncations see the temperature, or the model's own distribution when that comes last. */
static float truncation_scale(const struct sample_params *p, float scale)
{
    return p->temperature_last ? 1.0f : scale;
}

/* Weigh what the truncations kept of x[n] anew, now by the temperature. */
static void weigh_last(const float *x, uint32_t n, float max, float scale, float *w)
{
    for (uint32_t i = 0; i < n; i++) {
        float again;
        sample_exp(x + i, 1, max, scale, &again);
        w[i] = w[i] > 0 ? again : 0.0f;
    }
}

/* All tokens, but for min-p. */
static int32_t choose_among_all(const struct sample_params *p,
                                double u,
                                const float *logits,
                                uint32_t n,
                                float max,
                                float scale,
                                struct sample_scratch *s)
{
    uint32_t n_blocks = sample_n_blocks(n);
    float *w = s->weights;
    sample_exp(logits, n, max, p->min_p > 0 ? truncation_scale(p, scale) : scale, w);
    if (p->min_p > 0) {
        for (uint32_t i = 0; i < n; i++)
            w[i] = w[i] >= p->min_p ? w[i] : 0.0f;
        if (p->temperature_last)
            weigh_last(logits, n, max, scale, w);
    }
    double total = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint32_t first = b * SAMPLE_BLOCK;
        s->block_sum[b] =
            sample_sum(w + first, n - first < SAMPLE_BLOCK ? n - first : SAMPLE_BLOCK);
        total += s->block_sum[b];
    }
    s->n_drawn = n;
    s->all = true;
    double target = u * total, before = 0;
    uint32_t chosen = 0;
    for (uint32_t b = 0; b < n_blocks; b++) {
        if (!(s->block_sum[b] > 0))
            continue;
        chosen = b;
        if (before + s->block_sum[b] > target)
            break;
        before += s->block_sum[b];
    }
    uint32_t first = chosen * SAMPLE_BLOCK;
    uint32_t len = n - first < SAMPLE_BLOCK ? n - first : SAMPLE_BLOCK;
    return (int32_t)(first + draw(w + first, len, target - before));
}

/* Candidates become the tokens whose x >= least, in the order of ids; block_max is x's. */
static uint32_t collect(const float *x, uint32_t n, float least, struct sample_scratch *s)
{
    uint32_t m = 0;
    for (uint32_t b = 0; b < sample_n_blocks(n); b++) {
        if (!(s->block_max[b] >= least))
            continue;
        uint32_t end = (b + 1) * SAMPLE_BLOCK < n ? (b + 1) * SAMPLE_BLOCK : n;
        for (uint32_t i = b * SAMPLE_BLOCK; i < end; i++) {
            s->ids[m] = (int32_t)i;
            m += x[i] >= least; /* no branch to mispredict; NaN is never counted */
        }
    }
    return m;
}

/* Candidates become the k largest logits, equal ones by lower id; fewer when the rest are NaN. */
static uint32_t collect_top_k(const float *logits, uint32_t n, uint32_t k, struct sample_scratch *s)
{
    uint32_t n_blocks = sample_n_blocks(n);
    float least = -INFINITY;
    if (k <= n_blocks) {
        /* k blocks have maxima >= the k-th largest maximum, so at least k logits are too */
        for (uint32_t b = 0; b < n_blocks; b++)
            s->keys[b] = sample_key(s->block_max[b]);
        least = sample_unkey(sample_select(s->keys, NULL, n_blocks, k, s->hist).key);
    }
    uint32_t m = collect(logits, n, least, s);
    if (m <= k)
        return m;
    for (uint32_t i = 0; i < m; i++)
        s->keys[i] = sample_key(logits[s->ids[i]]);
    struct sample_cut cut = sample_select(s->keys, NULL, m, k, s->hist);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m; i++) {
        s->ids[kept] = s->ids[i];
        kept += sample_kept(cut, s->keys[i], i);
    }
    return kept;
}

/* Candidates and weights shrink to the shortest head, by descending logits, that holds top_p of
 * `total`. */
static uint32_t cut_top_p(
    double top_p, double total, const float *logits, uint32_t m, struct sample_scratch *s)
{
    for (uint32_t i = 0; i < m; i++)
        s->keys[i] = sample_key(logits[s->ids[i]]);
    struct sample_cut cut = sample_select(s->keys, s->weights, m, top_p * total, s->hist);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m; i++) {
        s->ids[kept] = s->ids[i];
        s->weights[kept] = s->weights[i];
        kept += sample_kept(cut, s->keys[i], i);
    }
    return kept;
}

/* Candidates and weights become the top k. */
static uint32_t weigh_top_k(const struct sample_params *p,
                            const float *logits,
                            uint32_t n,
                            float max,
                            float scale,
                            struct sample_scratch *s)
{
    uint32_t m = collect_top_k(logits, n, (uint32_t)p->top_k, s);
    for (uint32_t i = 0; i < m; i++)
        s->weights[i] = logits[s->ids[i]];
    sample_exp(s->weights, m, max, scale, s->weights);
    return m;
}

/* Candidates and weights become those that top-p may keep. Tokens lighter than
 * (1 - p) * total / n weigh less than (1 - p) * total together, so the others hold p of it. */
static uint32_t weigh_heavy(const struct sample_params *p,
                            const float *logits,
                            uint32_t n,
                            float max,
                            float scale,
                            double *total,
                            struct sample_scratch *s)
{
    sample_exp(logits, n, max, scale, s->weights);
    *total = sample_sum(s->weights, n);
    float least = (float)(0.999 * (1.0 - (double)p->top_p) * *total / n);
    sample_exp(s->block_max, sample_n_blocks(n), max, scale, s->block_max);
    uint32_t m = collect(s->weights, n, least > FLT_MIN ? least : FLT_MIN, s);
    for (uint32_t i = 0; i < m; i++)
        s->weights[i] = s->weights[s->ids[i]];
    return m;
}

static int32_t choose_among_some(const struct sample_params *p,
                                 double u,
                                 const float *logits,
                                 uint32_t n,
                                 float max,
                                 float scale,
                                 struct sample_scratch *s)
{
    uint32_t m;
    double total;
    float cut_scale = truncation_scale(p, scale);
    if (p->top_k > 0 && (uint32_t)p->top_k < n) {
        m = weigh_top_k(p, logits, n, max, cut_scale, s);
        total = sample_sum(s->weights, m);
    } else {
        m = weigh_heavy(p, logits, n, max, cut_scale, &total, s);
    }
    if (p->top_p < 1)
        m = cut_top_p(p->top_p, total, logits, m, s);
    if (p->min_p > 0)
        for (uint32_t i = 0; i < m; i++)
            s->weights[i] = s->weights[i] >= p->min_p ? s->weights[i] : 0.0f;
    for (uint32_t i = 0; p->temperature_last && i < m; i++)
        weigh_last(logits + s->ids[i], 1, max, scale, s->weights + i);
    s->n_drawn = m;
    s->all = false;
    return s->ids[draw(s->weights, m, u * sample_sum(s->weights, m))];
}

/* There was no draw: the token came by itself, and needs no scratch. */
static int32_t choose_likeliest(const float *logits, uint32_t n, struct sample_scratch *s)
{
    int32_t id = sample_argmax(logits, n);
    if (!s)
        return id;
    s->n_drawn = 1;
    s->all = false;
    s->weights[0] = 1.0f;
    return s->ids[0] = id;
}

/* Parameters under which only the likeliest token is left. */
static bool is_greedy(const struct sample_params *p)
{
    return !(p->temperature > 0) || p->top_k == 1 || p->top_p <= 0;
}

int32_t sample_token(const struct sample_params *p,
                     const struct sample_history *h,
                     uint64_t pos,
                     float *logits,
                     uint32_t n_vocab,
                     struct sample_scratch *s)
{
    add_bias(p, logits, n_vocab);
    sample_penalise(p, h, logits, n_vocab);
    if (is_greedy(p))
        return choose_likeliest(logits, n_vocab, s);
    assert(n_vocab <= s->n_vocab);
    float max = sample_block_max(logits, n_vocab, s->block_max);
    float scale = 1.0f / p->temperature;
    /* an infinite logit outweighs all others, and so does the largest when it is that cold */
    if (!isfinite(max) || !isfinite(scale))
        return choose_likeliest(logits, n_vocab, s);
    double u = sample_uniform(p->seed, pos);
    bool top_k = p->top_k > 0 && (uint32_t)p->top_k < n_vocab;
    return top_k || p->top_p < 1 ? choose_among_some(p, u, logits, n_vocab, max, scale, s)
                                 : choose_among_all(p, u, logits, n_vocab, max, scale, s);
}

float sample_drawn_logprobs(const struct sample_scratch *s,
                            int32_t id,
                            uint32_t n_top,
                            struct token_logprob *top)
{
    const double total = sample_sum(s->weights, s->n_drawn);
    uint32_t n = 0;
    float own = -INFINITY;
    for (uint32_t i = 0; i < s->n_drawn; i++) {
        if (!(s->weights[i] > 0))
            continue;
        int32_t at = s->all ? (int32_t)i : s->ids[i];
        if (at == id)
            own = logf((float)(s->weights[i] / total));
        if (n_top > 0 && (n < n_top || s->weights[i] > top[n - 1].logprob))
            sample_insert_top(top, &n, n_top, at, s->weights[i]);
    }
    for (uint32_t i = 0; i < n_top; i++) {
        if (i < n)
            top[i].logprob = logf((float)(top[i].logprob / total));
        else
            top[i] = (struct token_logprob){.id = -1, .logprob = -INFINITY};
    }
    return own;
}
