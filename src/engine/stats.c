#include "engine/stats.h"

static const double latency_bounds[] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
static const double fine_bounds[] = {0.0001,
                                     0.00025,
                                     0.0005,
                                     0.001,
                                     0.0025,
                                     0.005,
                                     0.01,
                                     0.025,
                                     0.05,
                                     0.1,
                                     0.25,
                                     0.5,
                                     1,
                                     2.5,
                                     5,
                                     10};
static const double size_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

#define COUNT(a) (uint32_t)(sizeof(a) / sizeof(a)[0])

static void hist_init(struct engine_hist *h, const double *bounds, uint32_t n)
{
    *h = (struct engine_hist){.bounds = bounds, .n_bounds = n};
}

void stats_init(struct engine_stats *s)
{
    *s = (struct engine_stats){0};
    struct engine_hist *latencies[] = {
        &s->ttft, &s->queue_time, &s->e2e, &s->prefill_time, &s->decode_time};
    for (uint32_t i = 0; i < COUNT(latencies); i++)
        hist_init(latencies[i], latency_bounds, COUNT(latency_bounds));
    hist_init(&s->itl, fine_bounds, COUNT(fine_bounds));
    hist_init(&s->step_time, fine_bounds, COUNT(fine_bounds));
    hist_init(&s->batch_rows, size_bounds, COUNT(size_bounds));
    hist_init(&s->batch_seqs, size_bounds, COUNT(size_bounds));
}

void hist_add(struct engine_hist *h, double value)
{
    uint32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += value;
    h->count++;
}

static double seconds(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) * 1e-6 : 0.0;
}

/* Each answer looks for its prompt in the cache, or computes all of it; the prompt is said once. */
static void note_prompt(struct engine_stats *s, struct request *r)
{
    s->prompt_tokens += r->params.same_prompt ? 0 : r->n_prompt;
    s->looked_up_tokens += sched_looks(&r->seq) ? r->n_prompt : 0;
    s->cached_tokens += r->seq.n_cached;
    s->computed_tokens += r->n_prompt - r->seq.n_cached;
    r->now.n_cached = r->seq.n_cached;
}

static void note_length(struct engine_stats *s, uint32_t n)
{
    s->most_tokens = n > s->most_tokens ? n : s->most_tokens;
}

void stats_token(struct engine_stats *s, struct request *r, uint64_t now_us, bool any)
{
    const bool first = r->now.times.first_us == 0;
    if (first) {
        hist_add(&s->prefill_time, seconds(r->now.times.admit_us, now_us));
        note_prompt(s, r);
    }
    if (!any)
        return;
    if (r->params.no_output) {
        note_length(s, r->n_prompt);
        return;
    }
    if (first) {
        r->now.times.first_us = now_us;
        hist_add(&s->ttft, seconds(r->now.times.submit_us, now_us));
    } else {
        hist_add(&s->itl, seconds(r->now.times.last_us, now_us));
    }
    r->now.times.last_us = now_us;
    s->output_tokens++;
    note_length(s, r->n_prompt + r->now.n_out + 1); /* it is appended next */
}

void stats_vector(struct engine_stats *s, struct request *r, uint64_t now_us, bool any)
{
    hist_add(&s->prefill_time, seconds(r->now.times.admit_us, now_us));
    note_prompt(s, r);
    s->vectors += any;
    note_length(s, r->n_prompt);
}

void stats_finished(struct engine_stats *s, const struct request *r, uint64_t now_us)
{
    s->requests_by_finish[r->now.finish]++;
    hist_add(&s->e2e, seconds(r->now.times.submit_us, now_us));
    if (r->now.times.first_us)
        hist_add(&s->decode_time, seconds(r->now.times.first_us, r->now.times.last_us));
}
