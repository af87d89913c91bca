/* GET /metrics: what the engine measured, in the text format of Prometheus 0.0.4.
 *
 * Names follow vLLM's where it has the same thing, with weir_ before them, so that dashboards need
 * only a new prefix. One snapshot of the engine serves the whole answer. */
#include "api/call.h"
#include "api/gate.h"

#include <math.h>
#include <stdio.h>

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP weir_%s %s\n# TYPE weir_%s %s\n", name, help, name, type);
}

void api_put_figure(struct buf *out, double v)
{
    if (v == floor(v) && fabs(v) < 9e15)
        api_put_int(out, (int64_t)v);
    else
        api_put_double(out, v);
}

/* One sample; `rest` follows the name: a suffix, labels or nothing. */
static void sample(struct buf *out, const char *name, const char *rest, double v)
{
    buf_str(out, "weir_");
    buf_str(out, name);
    buf_str(out, rest);
    buf_char(out, ' ');
    api_put_figure(out, v);
    buf_char(out, '\n');
}

static void gauge(struct buf *out, const char *name, const char *help, double v)
{
    head(out, name, "gauge", help);
    sample(out, name, "", v);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t v)
{
    head(out, name, "counter", help);
    sample(out, name, "", (double)v);
}

static void seconds(struct buf *out, const char *name, const char *help, double us)
{
    head(out, name, "counter", help);
    sample(out, name, "", us * 1e-6);
}

/* The engine counts each bucket alone; Prometheus wants all values up to a bound. */
static void histogram(struct buf *out,
                      const char *name,
                      const char *help,
                      const struct engine_hist *h)
{
    uint64_t below = 0;
    head(out, name, "histogram", help);
    for (uint32_t i = 0; i < h->n_bounds; i++) {
        below += h->counts[i];
        buf_str(out, "weir_");
        buf_str(out, name);
        buf_str(out, "_bucket{le=\"");
        api_put_double(out, h->bounds[i]);
        buf_str(out, "\"} ");
        api_put_int(out, (int64_t)below);
        buf_char(out, '\n');
    }
    sample(out, name, "_bucket{le=\"+Inf\"}", (double)h->count);
    sample(out, name, "_sum", h->sum);
    sample(out, name, "_count", (double)h->count);
}

static void requests(const struct engine_stats *s, struct buf *out)
{
    gauge(out, "requests_running", "Sequences admitted.", s->running);
    gauge(out, "requests_waiting", "Requests in the queue.", s->waiting);
    gauge(out, "requests_running_max", "Sequences that may be admitted at once.", s->max_running);
    gauge(out, "requests_waiting_max", "Requests the queue may hold.", s->max_queue);
    head(out, "request_success_total", "counter", "Requests that ended, by what ended them.");
    const char *name = "request_success_total";
    const uint64_t *n = s->requests_by_finish;
    sample(out, name, "{finished_reason=\"stop\"}", (double)n[FINISH_STOP]);
    sample(out, name, "{finished_reason=\"length\"}", (double)n[FINISH_LENGTH]);
    sample(out, name, "{finished_reason=\"abort\"}", (double)n[FINISH_CANCELLED]);
    sample(out, name, "{finished_reason=\"error\"}", (double)n[FINISH_ERROR]);
    counter(out,
            "prompt_tokens_total",
            "Tokens of prompts that were computed or found, once however many answers there are.",
            s->prompt_tokens);
    counter(out, "vectors_total", "Texts that became embeddings or scores.", s->vectors);
    counter(out, "generation_tokens_total", "Tokens generated.", s->output_tokens);
    counter(out,
            "prefix_cache_queries_total",
            "Prompt tokens looked up, by each answer.",
            s->looked_up_tokens);
    counter(out, "prefix_cache_hits_total", "Prompt tokens found computed.", s->cached_tokens);
    counter(out, "grammar_mask_hits_total", "Masks of grammars found computed.", s->masks.hits);
    counter(out, "grammar_mask_misses_total", "Masks of grammars computed.", s->masks.misses);
    seconds(out,
            "grammar_mask_seconds_total",
            "Time that computing masks took.",
            (double)s->masks.compute_us);
}

/* By bytes, where blocks, panes and states differ. */
static double kv_usage(const struct engine_stats *s)
{
    double block = (double)s->kv_block_bytes, pane = (double)s->kv_pane_bytes;
    double state = (double)s->kv_state_bytes;
    double total = block * s->kv.total + pane * s->kv.panes.total + state * s->kv.states.total;
    double used = block * s->kv.in_use + pane * s->kv.panes.in_use + state * s->kv.states.in_use;
    return total > 0.0 ? used / total : 0.0;
}

static void usage(struct buf *out, const char *name, const char *help, const struct kv_usage *u)
{
    head(out, name, "gauge", help);
    sample(out, name, "{state=\"free\"}", u->free);
    sample(out, name, "{state=\"in_use\"}", u->in_use);
    sample(out, name, "{state=\"cached\"}", u->cached);
}

static void kv(const struct engine_stats *s, struct buf *out)
{
    const struct kv_usage blocks = {
        s->kv.total, s->kv.free, s->kv.in_use, s->kv.cached, s->kv.peak_in_use};
    usage(out, "kv_blocks", "Blocks of the KV pool, by state.", &blocks);
    gauge(out, "kv_blocks_peak", "Most blocks in use at once.", blocks.peak_in_use);
    gauge(out, "kv_blocks_published", "Blocks that can be found by their text.", s->kv.published);
    usage(out, "kv_panes", "Panes, the blocks' part in windowed layers, by state.", &s->kv.panes);
    gauge(out, "kv_panes_peak", "Most panes in use at once.", s->kv.panes.peak_in_use);
    usage(out, "kv_states", "States of recurrent layers, by state.", &s->kv.states);
    gauge(out, "kv_states_peak", "Most states in use at once.", s->kv.states.peak_in_use);
    gauge(out, "kv_cache_usage_perc", "Share of the KV memory in use, 0 to 1.", kv_usage(s));
    gauge(out, "kv_block_tokens", "Positions in a block.", s->kv_block_tokens);
    gauge(out, "backend_memory_bytes", "Bytes the backend holds.", (double)s->memory_bytes);
    seconds(out,
            "backend_run_seconds_total",
            "Time of all workers at work together, loading included.",
            s->run_us);
    seconds(out,
            "backend_wait_seconds_total",
            "The part of it that they waited for one another.",
            s->waited_us);
    counter(out, "preemptions_total", "Sequences put back into the queue.", s->preemptions);
}

/* Positions, not requests: with those of sequences that come back after they were preempted. */
static void prefixes(const struct engine_stats *s, struct buf *out)
{
    counter(out,
            "kv_hit_tokens_total",
            "Positions found instead of computed.",
            s->kv.counts.hit_tokens);
    counter(out,
            "kv_miss_tokens_total",
            "Positions computed, of prompts that look for what is computed.",
            s->kv.counts.miss_tokens);
    counter(out, "kv_evictions_total", "Cached blocks taken back.", s->kv.counts.evicted);
    counter(out, "kv_copies_total", "Blocks copied for a partial match.", s->kv.counts.copied);
    counter(out,
            "kv_merges_total",
            "Blocks given back as another had their text.",
            s->kv.counts.merged);
    counter(out,
            "kv_panes_passed_total",
            "Panes that a sequence's window has passed.",
            s->kv.counts.panes_passed);
    counter(out,
            "kv_pane_evictions_total",
            "Cached panes taken back while their block stayed.",
            s->kv.counts.panes_evicted);
    counter(out,
            "kv_pane_miss_tokens_total",
            "Positions found that could not be used for want of panes.",
            s->kv.counts.pane_miss_tokens);
    counter(out,
            "kv_states_kept_total",
            "States of recurrent layers stored for a prefix.",
            s->kv.counts.states_kept);
    counter(out,
            "kv_state_evictions_total",
            "Cached states taken back while their block stayed.",
            s->kv.counts.states_evicted);
    counter(out,
            "kv_state_miss_tokens_total",
            "Positions found that could not be used for want of a state.",
            s->kv.counts.state_miss_tokens);
}

/* One figure of every tier. */
static void tier_samples(struct buf *out,
                         const struct engine_stats *s,
                         const char *name,
                         const char *type,
                         const char *help,
                         double (*value)(const struct engine_stats *s, uint32_t i))
{
    char label[64];
    head(out, name, type, help);
    for (uint32_t i = 0; i < s->n_tiers; i++) {
        snprintf(label, sizeof label, "{tier=\"%s\"}", s->tiers[i].name);
        sample(out, name, label, value(s, i));
    }
}

/* The figures of a tier, each a function of its own so that the table below is all there is. */
#define TIER_FIGURE(field)                                                                         \
    static double tier_##field(const struct engine_stats *s, uint32_t i)                           \
    {                                                                                              \
        return (double)s->tiers[i].stats.field;                                                    \
    }
TIER_FIGURE(on)
TIER_FIGURE(writes)
TIER_FIGURE(entries)
TIER_FIGURE(bytes)
TIER_FIGURE(max_bytes)
TIER_FIGURE(fetched)
TIER_FIGURE(missed)
TIER_FIGURE(stored)
TIER_FIGURE(dropped)
TIER_FIGURE(evicted)
TIER_FIGURE(ignored)
TIER_FIGURE(errors)
#undef TIER_FIGURE

static double tier_declined(const struct engine_stats *s, uint32_t i)
{
    return (double)s->kv.counts.fetches_declined[i];
}

static double tier_abandoned(const struct engine_stats *s, uint32_t i)
{
    return (double)s->kv.counts.fetches_abandoned[i];
}

static void tier_latencies(struct buf *out,
                           const struct engine_stats *s,
                           const char *name,
                           bool fetch)
{
    char label[64];
    head(out, name, "summary", "One block, without its time in the queue.");
    for (uint32_t i = 0; i < s->n_tiers; i++) {
        const struct kv_tier_stats *t = &s->tiers[i].stats;
        const struct kv_tier_latency *l = fetch ? &t->fetch : &t->store;
        snprintf(label, sizeof label, "_sum{tier=\"%s\"}", s->tiers[i].name);
        sample(out, name, label, (double)l->sum_us * 1e-6);
        snprintf(label, sizeof label, "_count{tier=\"%s\"}", s->tiers[i].name);
        sample(out, name, label, (double)l->count);
    }
}

static void tiers(const struct engine_stats *s, struct buf *out)
{
    static const struct {
        const char *name;
        bool gauge;
        const char *help;
        double (*value)(const struct engine_stats *s, uint32_t i);
    } figures[] = {
        {"tier_on", true, "0: turned off by an error.", tier_on},
        {"tier_writes",
         true,
         "0: another process writes here, or writing failed; then nothing more until a restart.",
         tier_writes},
        {"tier_entries", true, "Blocks held.", tier_entries},
        {"tier_bytes", true, "Bytes held.", tier_bytes},
        {"tier_max_bytes", true, "Bytes that may be held.", tier_max_bytes},
        {"tier_hits_total", false, "Blocks fetched.", tier_fetched},
        {"tier_misses_total", false, "Fetches without a block.", tier_missed},
        {"tier_declined_total",
         false,
         "Fetches not made, as computing was thought faster.",
         tier_declined},
        {"tier_abandoned_total", false, "Fetches given up because nothing came.", tier_abandoned},
        {"tier_stored_total", false, "Blocks written.", tier_stored},
        {"tier_dropped_total", false, "Blocks not written for want of a buffer.", tier_dropped},
        {"tier_evictions_total", false, "Blocks removed for the limit.", tier_evicted},
        {"tier_ignored_total", false, "Torn, foreign or damaged entries met.", tier_ignored},
        {"tier_errors_total", false, "Errors of input and output.", tier_errors},
    };
    if (s->n_tiers == 0)
        return;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        tier_samples(out,
                     s,
                     figures[i].name,
                     figures[i].gauge ? "gauge" : "counter",
                     figures[i].help,
                     figures[i].value);
    tier_latencies(out, s, "tier_fetch_seconds", true);
    tier_latencies(out, s, "tier_store_seconds", false);
}

static void times(const struct engine_stats *s, struct buf *out)
{
    histogram(out, "time_to_first_token_seconds", "From submission to the first token.", &s->ttft);
    histogram(out, "inter_token_latency_seconds", "Between two tokens of a request.", &s->itl);
    histogram(
        out, "request_queue_time_seconds", "From submission to the first step.", &s->queue_time);
    histogram(out,
              "request_prefill_time_seconds",
              "From the first step to the first token.",
              &s->prefill_time);
    histogram(
        out, "request_decode_time_seconds", "From the first token to the last.", &s->decode_time);
    histogram(out, "e2e_request_latency_seconds", "From submission to the end.", &s->e2e);
}

static void steps(const struct engine_stats *s, struct buf *out)
{
    histogram(out, "batch_rows", "Tokens in a step.", &s->batch_rows);
    histogram(out, "batch_sequences", "Sequences in a step.", &s->batch_seqs);
    histogram(out, "step_seconds", "Duration of a step.", &s->step_time);
    counter(out, "steps_total", "Steps run.", s->steps);
    counter(out, "steps_with_prefill_total", "Steps that computed prompts.", s->steps_with_prefill);
    counter(out, "steps_failed_total", "Steps whose device gave an error.", s->steps_failed);
    counter(out, "steps_ahead_total", "Steps begun while another was under way.", s->steps_ahead);
    counter(out,
            "step_rows_dropped_total",
            "Rows computed for requests that had ended meanwhile.",
            s->rows_dropped);
    counter(out,
            "step_allocations_total",
            "Memory allocations made inside steps; anything but 0 is a bug.",
            s->step_allocations);
}

/* One value of each class of buffers. */
static void by_class(struct buf *out,
                     const struct gpu_stats *g,
                     const char *name,
                     const char *type,
                     const char *help,
                     double (*value)(const struct gpu_class_stats *c))
{
    char label[64];
    head(out, name, type, help);
    for (int c = 0; c < N_GPU_CLASSES; c++) {
        snprintf(label, sizeof label, "{class=\"%s\"}", gpu_class_name((enum gpu_class)c));
        sample(out, name, label, value(&g->classes[c]));
    }
}

#define CLASS_FIGURE(field)                                                                        \
    static double class_##field(const struct gpu_class_stats *c)                                   \
    {                                                                                              \
        return (double)c->field;                                                                   \
    }
CLASS_FIGURE(borrows)
CLASS_FIGURE(returns)
CLASS_FIGURE(allocations)
CLASS_FIGURE(held)
CLASS_FIGURE(peak)
#undef CLASS_FIGURE

static void gpu_queue(const struct gpu_stats *g, struct buf *out)
{
    const struct gpu_queue_stats *q = &g->queue;
    gauge(out, "gpu_queue_in_flight", "Steps on their way.", q->in_flight);
    counter(out, "gpu_queue_submitted_total", "Steps given to the device.", q->submitted);
    counter(out, "gpu_queue_completed_total", "Steps that it has done.", q->completed);
    counter(out, "gpu_queue_stalls_total", "Times the host waited for a slot.", q->stalls);
    seconds(out, "gpu_queue_stall_seconds_total", "How long it did.", q->stall_us);
    seconds(out, "gpu_busy_seconds_total", "Time the device worked on steps.", q->busy_us);
    seconds(out,
            "gpu_idle_seconds_total",
            "Time it waited for the next step while there was one to prepare.",
            q->idle_us);
    gauge(out, "gpu_graphs", "Captured graphs of steps.", g->graphs);
    counter(out, "gpu_graph_replays_total", "Steps run as a graph.", g->replays);
    counter(out, "gpu_walks_total", "Steps run launch by launch.", g->walks);
}

static void gpu_moves(const struct gpu_stats *g, struct buf *out)
{
    const struct gpu_move_stats *m = &g->moves;
    const char *name = "gpu_blocks_moved_total";
    head(out, name, "counter", "KV blocks that left the device for the tiers, and came back.");
    sample(out, name, "{direction=\"out\"}", (double)m->read);
    sample(out, name, "{direction=\"in\"}", (double)m->written);
    counter(out, "gpu_blocks_moved_bytes_total", "Bytes of these.", m->bytes);
    counter(out, "gpu_blocks_waits_total", "Of them, how many a step waited for.", m->waits);
    seconds(out, "gpu_blocks_wait_seconds_total", "How long it did.", m->wait_us);
}

/* Of a model on the CPU only that it is not on a GPU. */
static void gpu(const struct engine_stats *s, struct buf *out)
{
    const struct gpu_stats *g = &s->gpu;
    const char *name = "gpu_memory_bytes";
    gauge(out, "gpu_active", "1: the model runs on a GPU.", s->on_gpu);
    if (!s->on_gpu)
        return;
    head(out, name, "gauge", "Memory taken, by what for; pinned is the host's.");
    sample(out, name, "{kind=\"weights\"}", (double)g->weights_bytes);
    sample(out, name, "{kind=\"kv\"}", (double)g->kv_bytes);
    sample(out, name, "{kind=\"workspace\"}", (double)g->workspace_bytes);
    sample(out, name, "{kind=\"buffers\"}", (double)api_gpu_buffers(g));
    sample(out, name, "{kind=\"pinned\"}", (double)g->pinned_bytes);
    gauge(out, "gpu_memory_total_bytes", "What the device has.", (double)g->total_bytes);
    gauge(out, "gpu_memory_limit_bytes", "What may be taken of it.", (double)g->limit_bytes);
    by_class(out, g, "gpu_pool_borrows_total", "counter", "Buffers lent to steps.", class_borrows);
    by_class(out, g, "gpu_pool_returns_total", "counter", "Buffers given back.", class_returns);
    by_class(out,
             g,
             "gpu_pool_allocations_total",
             "counter",
             "Buffers taken since the warm-up; anything but 0 is a bug.",
             class_allocations);
    by_class(out, g, "gpu_pool_buffers", "gauge", "Buffers there are.", class_held);
    by_class(out, g, "gpu_pool_peak", "gauge", "Most buffers lent at once.", class_peak);
    gpu_queue(g, out);
    gpu_moves(g, out);
}

/* Only the statuses that were given: most never are. */
static void answers(struct api *a, struct buf *out)
{
    head(out, "http_requests_total", "counter", "Answers given by the API, by HTTP status.");
    for (int status = 100; status < API_MAX_STATUS; status++) {
        uint64_t n = atomic_load_explicit(&a->n_answers[status], memory_order_relaxed);
        char label[] = "{status=\"000\"}";
        if (n == 0)
            continue;
        label[9] = (char)('0' + status / 100);
        label[10] = (char)('0' + status / 10 % 10);
        label[11] = (char)('0' + status % 10);
        sample(out, "http_requests_total", label, (double)n);
    }
}

enum err api_metrics(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    struct engine_stats s;
    struct buf *out = &c->body;
    engine_stats_get(c->engine, &s);
    requests(&s, out);
    gauge(out,
          "grammars_waiting",
          "Costly forms of answers that wait to be compiled.",
          api_gate_waiting(c->api->gate));
    kv(&s, out);
    prefixes(&s, out);
    tiers(&s, out);
    times(&s, out);
    steps(&s, out);
    gpu(&s, out);
    answers(c->api, out);
    api_keys_metrics(c->api->keys, out);
    if (c->api->extra)
        c->api->extra(c->api->extra_ctx, out);
    api_metrics_llama(&s, out);
    snprintf(c->began, sizeof c->began, "%lld", (long long)c->api->created);
    api_put_header(c, "Process-Start-Time-Unix", c->began);
    c->answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return OK;
}
