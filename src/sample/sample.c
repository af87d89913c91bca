/* One row of logits to one token.
 *
 * All weights are exp((l - max) / T), so the likeliest token weighs 1 and min-p is a plain
 * threshold. Truncations cut a descending order without making one (select.c); the draw then goes
 * over what was kept in the order of ids.
 *
 *      no truncation       weights of all, sums of blocks, one draw                 2 passes
 *      top-k               candidates from the blocks whose maximum is large enough 1 pass
 *      top-p               those heavy enough to matter, cut where the mass is reached
 *
 * All passes go over the spans alone: runs of blocks in which some token is allowed. Blocks between
 * them are never read, and count as ones of -inf. */
#include "sample/sample.h"

#include "base/mem.h"
#include "sample/internal.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Blocks first .. end of a row. */
struct span {
    uint32_t first, end;
};

struct sample_scratch {
    uint32_t n_vocab;
    struct span *spans; /* [n_spans] of at most half the blocks, rounded up: ascending and apart */
    uint32_t n_spans;
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

/* Elements of a row of n from a block up to another. */
static uint32_t first_of(uint32_t block)
{
    return block * SAMPLE_BLOCK;
}
static uint32_t length_of(uint32_t n, uint32_t block, uint32_t end)
{
    uint32_t to = end * SAMPLE_BLOCK < n ? end * SAMPLE_BLOCK : n;
    return to - block * SAMPLE_BLOCK;
}

/* Find the spans and their blocks' maxima, and rule out in them what is not allowed. Returns the
 * largest logit. */
static float find_spans(float *logits,
                        uint32_t n,
                        const struct sample_allowed *allowed,
                        struct sample_scratch *s)
{
    float max = sample_block_max(logits, n, allowed, s->block_max);
    s->n_spans = 1;
    s->spans[0] = (struct span){0, sample_n_blocks(n)};
    if (!allowed)
        return max;
    s->n_spans = 0;
    for (uint32_t b = 0; b < sample_n_blocks(n); b++) {
        if (s->block_max[b] == -INFINITY)
            continue;
        if (s->n_spans == 0 || s->spans[s->n_spans - 1].end != b)
            s->spans[s->n_spans++] = (struct span){b, b};
        s->spans[s->n_spans - 1].end = b + 1;
    }
    return max;
}

/* sample_exp and sample_sum over a row's spans. */
static void exp_spans(const float *x, uint32_t n, float max, float scale, struct sample_scratch *s)
{
    for (const struct span *p = s->spans; p < s->spans + s->n_spans; p++)
        sample_exp(x + first_of(p->first),
                   length_of(n, p->first, p->end),
                   max,
                   scale,
                   s->weights + first_of(p->first));
}
static double sum_spans(uint32_t n, const struct sample_scratch *s)
{
    struct sample_sum sum = {0};
    for (const struct span *p = s->spans; p < s->spans + s->n_spans; p++)
        sample_sum_add(&sum, s->weights + first_of(p->first), length_of(n, p->first, p->end));
    return sample_sum_total(&sum);
}

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
    s->spans = mem_aligned((n_blocks + 1) / 2 * sizeof *s->spans);
    s->block_max = mem_aligned(n_blocks * sizeof *s->block_max);
    s->block_sum = mem_aligned(n_blocks * sizeof *s->block_sum);
    s->weights = mem_aligned(n * sizeof *s->weights);
    s->ids = mem_aligned(n * sizeof *s->ids);
    s->keys = mem_aligned(n * sizeof *s->keys);
    if (s->spans && s->block_max && s->block_sum && s->weights && s->ids && s->keys)
        return s;
    sample_scratch_destroy(s);
    return NULL;
}

void sample_scratch_destroy(struct sample_scratch *s)
{
    if (!s)
        return;
    free(s->spans);
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

/* min-p over a row's weights in one span; what it kept is weighed by the temperature where that
 * comes last. */
static void cut_min_p(const struct sample_params *p,
                      const float *logits,
                      uint32_t n,
                      float max,
                      float scale,
                      float *w)
{
    for (uint32_t i = 0; i < n; i++)
        w[i] = w[i] >= p->min_p ? w[i] : 0.0f;
    if (p->temperature_last)
        weigh_last(logits, n, max, scale, w);
}

/* The block in which the running sum of all first exceeds `target`; *before is the sum up to it. */
static uint32_t draw_block(const struct sample_scratch *s, double target, double *before)
{
    uint32_t chosen = s->spans[0].first;
    *before = 0;
    for (const struct span *p = s->spans; p < s->spans + s->n_spans; p++) {
        for (uint32_t b = p->first; b < p->end; b++) {
            if (!(s->block_sum[b] > 0))
                continue;
            chosen = b;
            if (*before + s->block_sum[b] > target)
                return b;
            *before += s->block_sum[b];
        }
    }
    return chosen;
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
    float *w = s->weights;
    double total = 0, before;
    exp_spans(logits, n, max, p->min_p > 0 ? truncation_scale(p, scale) : scale, s);
    for (const struct span *at = s->spans; at < s->spans + s->n_spans; at++) {
        uint32_t first = first_of(at->first);
        if (p->min_p > 0)
            cut_min_p(p, logits + first, length_of(n, at->first, at->end), max, scale, w + first);
        sample_block_sums(w + first, length_of(n, at->first, at->end), s->block_sum + at->first);
        for (uint32_t b = at->first; b < at->end; b++)
            total += s->block_sum[b];
    }
    s->n_drawn = n;
    s->all = true;
    uint32_t chosen = draw_block(s, u * total, &before);
    return (int32_t)(first_of(chosen) + draw(w + first_of(chosen),
                                             length_of(n, chosen, chosen + 1),
                                             u * total - before));
}

/* Candidates become the tokens of block b whose x >= least, behind the m that there are. */
static uint32_t collect_block(
    const float *x, uint32_t n, uint32_t b, float least, uint32_t m, struct sample_scratch *s)
{
    uint32_t end = first_of(b) + length_of(n, b, b + 1);
    for (uint32_t i = first_of(b); i < end; i++) {
        s->ids[m] = (int32_t)i;
        m += x[i] >= least; /* no branch to mispredict; NaN is never counted */
    }
    return m;
}

/* Candidates become the tokens whose x >= least, in the order of ids; block_max is x's. */
static uint32_t collect(const float *x, uint32_t n, float least, struct sample_scratch *s)
{
    uint32_t m = 0;
    for (const struct span *p = s->spans; p < s->spans + s->n_spans; p++)
        for (uint32_t b = p->first; b < p->end; b++)
            if (s->block_max[b] >= least)
                m = collect_block(x, n, b, least, m, s);
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
    exp_spans(logits, n, max, scale, s);
    *total = sum_spans(n, s);
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
static int32_t choose_likeliest(float *logits,
                                uint32_t n,
                                const struct sample_allowed *allowed,
                                struct sample_scratch *s)
{
    int32_t id = allowed ? sample_argmax_allowed(logits, n, allowed) : sample_argmax(logits, n);
    if (!(logits[id] < INFINITY))
        return SAMPLE_NO_NUMBER;
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
                     const struct sample_allowed *allowed,
                     struct sample_scratch *s)
{
    add_bias(p, logits, n_vocab);
    sample_penalise(p, h, logits, n_vocab);
    if (is_greedy(p))
        return choose_likeliest(logits, n_vocab, allowed, s);
    assert(n_vocab <= s->n_vocab);
    float max = find_spans(logits, n_vocab, allowed, s);
    float scale = 1.0f / p->temperature;
    /* nothing is weighed by an infinite logit, nor where it is that cold */
    if (!isfinite(max) || !isfinite(scale))
        return choose_likeliest(logits, n_vocab, allowed, s);
    double u = sample_uniform(p->seed, pos);
    bool top_k = p->top_k > 0 && (uint32_t)p->top_k < n_vocab;
    return top_k || p->top_p < 1 ? choose_among_some(p, u, logits, n_vocab, max, scale, s)
                                 : choose_among_all(p, u, logits, n_vocab, max, scale, s);
}

/* Weights from .. end of the last draw, into what is known of it. */
struct drawn {
    int32_t id;
    float own;
    double total;
    uint32_t n, n_top;
    struct token_logprob *top;
};
static void read_drawn(const struct sample_scratch *s, uint32_t from, uint32_t end, struct drawn *d)
{
    for (uint32_t i = from; i < end; i++) {
        if (!(s->weights[i] > 0))
            continue;
        int32_t at = s->all ? (int32_t)i : s->ids[i];
        if (at == d->id)
            d->own = logf((float)(s->weights[i] / d->total));
        if (d->n_top > 0 && (d->n < d->n_top || s->weights[i] > d->top[d->n - 1].logprob))
            sample_insert_top(d->top, &d->n, d->n_top, at, s->weights[i]);
    }
}

float sample_drawn_logprobs(const struct sample_scratch *s,
                            int32_t id,
                            uint32_t n_top,
                            struct token_logprob *top)
{
    struct drawn d = {.id = id,
                      .own = -INFINITY,
                      .total =
                          s->all ? sum_spans(s->n_drawn, s) : sample_sum(s->weights, s->n_drawn),
                      .n_top = n_top,
                      .top = top};
    if (!s->all)
        read_drawn(s, 0, s->n_drawn, &d);
    for (uint32_t i = 0; s->all && i < s->n_spans; i++)
        read_drawn(s,
                   first_of(s->spans[i].first),
                   first_of(s->spans[i].first) +
                       length_of(s->n_drawn, s->spans[i].first, s->spans[i].end),
                   &d);
    for (uint32_t i = 0; i < n_top; i++) {
        if (i < d.n)
            top[i].logprob = logf((float)(top[i].logprob / d.total));
        else
            top[i] = (struct token_logprob){.id = -1, .logprob = -INFINITY};
    }
    return d.own;
}
