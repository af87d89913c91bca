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

/* A member of the engine's figures; or of several things of a kind, the same one of each. */
struct figure {
    const char *name, *help;
    enum { IS_GAUGE, IS_COUNTER, IS_SECONDS } kind; /* the last: a counter, of microseconds */
    enum { BOOL, U32, U64, REAL } type;
    size_t at, step; /* in struct engine_stats; from one thing to the next */
};
#define TYPE_OF(x) _Generic((x), bool : BOOL, uint32_t : U32, uint64_t : U64, double : REAL)
#define FIGURE(kind, member, step, name, help)                                                     \
    {                                                                                              \
        name, help, kind, TYPE_OF(((struct engine_stats *)0)->member),                             \
            offsetof(struct engine_stats, member), step                                            \
    }
#define GAUGE(member, name, help) FIGURE(IS_GAUGE, member, 0, name, help)
#define COUNTER(member, name, help) FIGURE(IS_COUNTER, member, 0, name, help)
#define SECONDS(member, name, help) FIGURE(IS_SECONDS, member, 0, name, help)
#define OF_TIERS(kind, member, name, help)                                                         \
    FIGURE(kind, tiers[0].stats.member, sizeof(struct engine_tier), name, help)
#define OF_CLASSES(kind, member, name, help)                                                       \
    FIGURE(kind, gpu.classes[0].member, sizeof(struct gpu_class_stats), name, help)
#define N_OF(figures) (sizeof(figures) / sizeof((figures)[0]))

static double value_of(const struct engine_stats *s, const struct figure *f, uint32_t i)
{
    const void *at = (const char *)s + f->at + i * f->step;
    const double v = f->type == BOOL  ? *(const bool *)at
                     : f->type == U32 ? *(const uint32_t *)at
                     : f->type == U64 ? (double)*(const uint64_t *)at
                                      : *(const double *)at;
    return f->kind == IS_SECONDS ? v * 1e-6 : v;
}

/* figures[n], each of names[n_names], which are of `key`; or, where that is NULL, of one thing. */
static void put_figures(struct buf *out,
                        const struct engine_stats *s,
                        const struct figure *figures,
                        size_t n,
                        const char *key,
                        const char *const *names,
                        uint32_t n_names)
{
    for (const struct figure *f = figures; f < figures + n; f++) {
        head(out, f->name, f->kind == IS_GAUGE ? "gauge" : "counter", f->help);
        for (uint32_t i = 0; i < n_names; i++) {
            char label[64] = "";
            if (key)
                snprintf(label, sizeof label, "{%s=\"%s\"}", key, names[i]);
            sample(out, f->name, label, value_of(s, f, i));
        }
    }
}

static const struct figure figures[] = {
    GAUGE(running, "requests_running", "Sequences admitted."),
    GAUGE(waiting, "requests_waiting", "Requests in the queue."),
    GAUGE(max_running, "requests_running_max", "Sequences that may be admitted at once."),
    GAUGE(max_queue, "requests_waiting_max", "Requests the queue may hold."),
    COUNTER(prompt_tokens,
            "prompt_tokens_total",
            "Tokens of prompts that were computed or found, once however many answers there are."),
    COUNTER(vectors, "vectors_total", "Texts that became embeddings or scores."),
    COUNTER(output_tokens, "generation_tokens_total", "Tokens generated."),
    COUNTER(
        looked_up_tokens, "prefix_cache_queries_total", "Prompt tokens looked up, by each answer."),
    COUNTER(cached_tokens, "prefix_cache_hits_total", "Prompt tokens found computed."),
    COUNTER(masks.hits, "grammar_mask_hits_total", "Masks of grammars found computed."),
    COUNTER(masks.misses, "grammar_mask_misses_total", "Masks of grammars computed."),
    COUNTER(masks.evictions,
            "grammar_mask_evictions_total",
            "Masks of grammars that others took the place of."),
    SECONDS(masks.compute_us, "grammar_mask_seconds_total", "Time that computing masks took."),
    GAUGE(kv.published, "kv_blocks_published", "Blocks that can be found by their text."),
    GAUGE(kv.panes.peak_in_use, "kv_panes_peak", "Most panes in use at once."),
    GAUGE(kv.states.peak_in_use, "kv_states_peak", "Most states in use at once."),
    GAUGE(kv_block_tokens, "kv_block_tokens", "Positions in a block."),
    GAUGE(memory_bytes, "backend_memory_bytes", "Bytes the backend holds."),
    SECONDS(run_us,
            "backend_run_seconds_total",
            "Time of all workers at work together, loading included."),
    SECONDS(waited_us,
            "backend_wait_seconds_total",
            "The part of it that they waited for one another."),
    COUNTER(preemptions, "preemptions_total", "Sequences put back into the queue."),
    COUNTER(kv.counts.hit_tokens, "kv_hit_tokens_total", "Positions found instead of computed."),
    COUNTER(kv.counts.miss_tokens,
            "kv_miss_tokens_total",
            "Positions computed, of prompts that look for what is computed."),
    COUNTER(kv.counts.evicted, "kv_evictions_total", "Cached blocks taken back."),
    COUNTER(kv.counts.copied, "kv_copies_total", "Blocks copied for a partial match."),
    COUNTER(kv.counts.merged, "kv_merges_total", "Blocks given back as another had their text."),
    COUNTER(kv.counts.panes_passed,
            "kv_panes_passed_total",
            "Panes that a sequence's window has passed."),
    COUNTER(kv.counts.panes_evicted,
            "kv_pane_evictions_total",
            "Cached panes taken back while their block stayed."),
    COUNTER(kv.counts.pane_miss_tokens,
            "kv_pane_miss_tokens_total",
            "Positions found that could not be used for want of panes."),
    COUNTER(kv.counts.states_kept,
            "kv_states_kept_total",
            "States of recurrent layers stored for a prefix."),
    COUNTER(kv.counts.states_evicted,
            "kv_state_evictions_total",
            "Cached states taken back while their block stayed."),
    COUNTER(kv.counts.state_miss_tokens,
            "kv_state_miss_tokens_total",
            "Positions found that could not be used for want of a state."),
    COUNTER(steps, "steps_total", "Steps run."),
    COUNTER(steps_with_prefill, "steps_with_prefill_total", "Steps that computed prompts."),
    COUNTER(steps_failed, "steps_failed_total", "Steps whose device gave an error."),
    COUNTER(steps_ahead, "steps_ahead_total", "Steps begun while another was under way."),
    COUNTER(rows_dropped,
            "step_rows_dropped_total",
            "Rows computed for requests that had ended meanwhile."),
    COUNTER(step_allocations,
            "step_allocations_total",
            "Memory allocations made inside steps; anything but 0 is a bug."),
    GAUGE(on_gpu, "gpu_active", "1: the model runs on a GPU."),
};

/* Of each tier. */
static const struct figure tier_figures[] = {
    OF_TIERS(IS_GAUGE, on, "tier_on", "0: turned off by an error."),
    OF_TIERS(
        IS_GAUGE,
        writes,
        "tier_writes",
        "0: another process writes here, or writing failed: until a restart, or for some minutes."),
    OF_TIERS(IS_GAUGE, entries, "tier_entries", "Blocks held."),
    OF_TIERS(IS_GAUGE, bytes, "tier_bytes", "Bytes held."),
    OF_TIERS(IS_GAUGE, max_bytes, "tier_max_bytes", "Bytes that may be held."),
    OF_TIERS(IS_COUNTER, fetched, "tier_hits_total", "Blocks fetched."),
    OF_TIERS(IS_COUNTER, missed, "tier_misses_total", "Fetches without a block."),
    FIGURE(IS_COUNTER,
           kv.counts.fetches_declined[0],
           sizeof(uint64_t),
           "tier_declined_total",
           "Fetches not made, as computing was thought faster."),
    FIGURE(IS_COUNTER,
           kv.counts.fetches_abandoned[0],
           sizeof(uint64_t),
           "tier_abandoned_total",
           "Fetches given up because nothing came."),
    OF_TIERS(IS_COUNTER, stored, "tier_stored_total", "Blocks written."),
    OF_TIERS(IS_COUNTER,
             dropped,
             "tier_dropped_total",
             "Blocks not written: no buffer, no room, or writing failed or was over."),
    OF_TIERS(IS_COUNTER, evicted, "tier_evictions_total", "Blocks removed for the limit."),
    OF_TIERS(IS_COUNTER, ignored, "tier_ignored_total", "Torn, foreign or damaged entries met."),
    OF_TIERS(IS_COUNTER, errors, "tier_errors_total", "Errors of input and output."),
};

static const struct figure gpu_figures[] = {
    GAUGE(gpu.total_bytes, "gpu_memory_total_bytes", "What the device has."),
    GAUGE(gpu.limit_bytes, "gpu_memory_limit_bytes", "What may be taken of it."),
    GAUGE(gpu.queue.in_flight, "gpu_queue_in_flight", "Steps on their way."),
    COUNTER(gpu.queue.submitted, "gpu_queue_submitted_total", "Steps given to the device."),
    COUNTER(gpu.queue.completed, "gpu_queue_completed_total", "Steps that it has done."),
    COUNTER(gpu.queue.stalls, "gpu_queue_stalls_total", "Times the host waited for a slot."),
    SECONDS(
        gpu.queue.stall_us, "gpu_queue_stall_seconds_total", "Time the host waited for a slot."),
    SECONDS(gpu.queue.busy_us, "gpu_busy_seconds_total", "Time the device worked on steps."),
    SECONDS(gpu.queue.idle_us,
            "gpu_idle_seconds_total",
            "Time it waited for the next step while there was one to prepare."),
    GAUGE(gpu.graphs, "gpu_graphs", "Captured graphs of steps."),
    COUNTER(gpu.replays, "gpu_graph_replays_total", "Steps run as a graph."),
    COUNTER(gpu.walks, "gpu_walks_total", "Steps run launch by launch."),
    COUNTER(gpu.moves.bytes, "gpu_blocks_moved_bytes_total", "Bytes of blocks moved."),
    COUNTER(gpu.moves.waits, "gpu_blocks_waits_total", "Moved blocks that a step waited for."),
    SECONDS(gpu.moves.wait_us, "gpu_blocks_wait_seconds_total", "Time steps waited for blocks."),
};

/* Of each class of buffers. */
static const struct figure class_figures[] = {
    OF_CLASSES(IS_COUNTER, borrows, "gpu_pool_borrows_total", "Buffers lent to steps."),
    OF_CLASSES(IS_COUNTER, returns, "gpu_pool_returns_total", "Buffers given back."),
    OF_CLASSES(IS_COUNTER,
               allocations,
               "gpu_pool_allocations_total",
               "Buffers taken since the warm-up; anything but 0 is a bug."),
    OF_CLASSES(IS_GAUGE, held, "gpu_pool_buffers", "Buffers there are."),
    OF_CLASSES(IS_GAUGE, peak, "gpu_pool_peak", "Most buffers lent at once."),
};

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

static void finished(const struct engine_stats *s, struct buf *out)
{
    static const char name[] = "request_success_total";
    const uint64_t *n = s->requests_by_finish;
    head(out, name, "counter", "Requests that ended, by what ended them.");
    sample(out, name, "{finished_reason=\"stop\"}", (double)n[FINISH_STOP]);
    sample(out, name, "{finished_reason=\"length\"}", (double)n[FINISH_LENGTH]);
    sample(out, name, "{finished_reason=\"abort\"}", (double)n[FINISH_CANCELLED]);
    sample(out, name, "{finished_reason=\"error\"}", (double)n[FINISH_ERROR]);
}

/* By bytes, where blocks, panes and states differ. */
static double kv_usage(const struct engine_stats *s)
{
    double block = (double)s->kv_block_bytes, pane = (double)s->kv_pane_bytes;
    double state = (double)s->kv_state_bytes;
    double total =
        block * s->kv.blocks.total + pane * s->kv.panes.total + state * s->kv.states.total;
    double used =
        block * s->kv.blocks.in_use + pane * s->kv.panes.in_use + state * s->kv.states.in_use;
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
    usage(out, "kv_blocks", "Blocks of the KV pool, by state.", &s->kv.blocks);
    gauge(out, "kv_blocks_peak", "Most blocks in use at once.", s->kv.blocks.peak_in_use);
    usage(out, "kv_panes", "Panes, the blocks' part in windowed layers, by state.", &s->kv.panes);
    usage(out, "kv_states", "States of recurrent layers, by state.", &s->kv.states);
    gauge(out, "kv_cache_usage_perc", "Share of the KV memory in use, 0 to 1.", kv_usage(s));
}

static void tier_latencies(struct buf *out,
                           const struct engine_stats *s,
                           const char *name,
                           bool fetch)
{
    char label[64];
    const char *help = fetch ? "Time to fetch one block, without its time in the queue."
                             : "Time to store one block, without its time in the queue.";
    head(out, name, "summary", help);
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
    const char *names[KV_MAX_TIERS];
    if (s->n_tiers == 0)
        return;
    for (uint32_t i = 0; i < s->n_tiers; i++)
        names[i] = s->tiers[i].name;
    put_figures(out, s, tier_figures, N_OF(tier_figures), "tier", names, s->n_tiers);
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
    histogram(out, "batch_rows", "Tokens in a step.", &s->batch_rows);
    histogram(out, "batch_sequences", "Sequences in a step.", &s->batch_seqs);
    histogram(out, "step_seconds", "Duration of a step.", &s->step_time);
}

/* Of a model on the CPU there is nothing to tell. */
static void gpu(const struct engine_stats *s, struct buf *out)
{
    const struct gpu_stats *g = &s->gpu;
    const char *name = "gpu_memory_bytes", *names[N_GPU_CLASSES];
    if (!s->on_gpu)
        return;
    head(out, name, "gauge", "Memory taken, by what for; pinned is the host's.");
    sample(out, name, "{kind=\"weights\"}", (double)g->weights_bytes);
    sample(out, name, "{kind=\"kv\"}", (double)g->kv_bytes);
    sample(out, name, "{kind=\"workspace\"}", (double)g->workspace_bytes);
    sample(out, name, "{kind=\"buffers\"}", (double)api_gpu_buffers(g));
    sample(out, name, "{kind=\"pinned\"}", (double)g->pinned_bytes);
    name = "gpu_blocks_moved_total";
    head(out, name, "counter", "KV blocks that left the device for the tiers, and came back.");
    sample(out, name, "{direction=\"out\"}", (double)g->moves.read);
    sample(out, name, "{direction=\"in\"}", (double)g->moves.written);
    put_figures(out, s, gpu_figures, N_OF(gpu_figures), NULL, NULL, 1);
    for (int c = 0; c < N_GPU_CLASSES; c++)
        names[c] = gpu_class_name((enum gpu_class)c);
    put_figures(out, s, class_figures, N_OF(class_figures), "class", names, N_GPU_CLASSES);
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
    finished(&s, out);
    put_figures(out, &s, figures, N_OF(figures), NULL, NULL, 1);
    gauge(out,
          "grammars_waiting",
          "Costly forms of answers that wait to be compiled.",
          api_gate_waiting(c->api->gate));
    kv(&s, out);
    tiers(&s, out);
    times(&s, out);
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
