/* Figures as JSON: GET /v1/batch/stats, /v1/metrics and /models. All are the engine's own counts;
 * what a model on the CPU cannot have is 0 or false. */
#include "api/call.h"
#include "base/clock.h"

double api_share(double part, double rest)
{
    return part + rest > 0 ? part / (part + rest) : 0.0;
}

static double mean(const struct engine_hist *h)
{
    return h->count ? h->sum / (double)h->count : 0.0;
}

/* Where a share of the values lies: within its bucket as if they were spread evenly there. */
static double percentile(const struct engine_hist *h, double share)
{
    double rank = share * (double)h->count, below = 0.0;
    for (uint32_t i = 0; i < h->n_bounds && h->count > 0; i++) {
        double n = (double)h->counts[i], from = i ? h->bounds[i - 1] : 0.0;
        if (n > 0 && below + n >= rank)
            return from + (h->bounds[i] - from) * (rank - below) / n;
        below += n;
    }
    return h->count > 0 ? h->bounds[h->n_bounds - 1] : 0.0;
}

enum err api_batch_stats(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    struct engine_stats s;
    struct buf *out = &c->body;
    engine_stats_get(c->engine, &s);
    const struct engine_hist *h = &s.batch_seqs;
    uint64_t single = h->counts[0]; /* its bound is 1 */
    buf_str(out, "{\"object\":\"batch.stats\"");
    api_field_int(out, "queued", s.waiting);
    api_field_int(out, "running", s.running);
    api_field_int(out, "steps", h->count);
    api_field_int(out, "single_steps", single);
    api_field_int(out, "batched_steps", h->count - single);
    api_field_real(out, "average_batch", mean(h));
    api_field_real(out, "average_wait_ms", mean(&s.queue_time) * 1e3);
    buf_char(out, '}');
    return OK;
}

enum err api_figures(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    struct engine_stats s;
    struct buf *out = &c->body;
    uint64_t n_requests = 0;
    engine_stats_get(c->engine, &s);
    for (int i = FINISH_NONE; i <= FINISH_ERROR; i++)
        n_requests += s.requests_by_finish[i];
    buf_char(out, '{');
    api_field_model(c, "model_name", out);
    /* of the time that steps took, so an idle server does not get slower */
    api_field_real(out,
                   "throughput_tok_per_sec",
                   s.step_time.sum > 0 ? (double)s.output_tokens / s.step_time.sum : 0.0);
    api_field_real(out, "latency_p50_ms", percentile(&s.e2e, 0.50) * 1e3);
    api_field_real(out, "latency_p95_ms", percentile(&s.e2e, 0.95) * 1e3);
    api_field_real(out, "latency_p99_ms", percentile(&s.e2e, 0.99) * 1e3);
    const struct gpu_queue_stats *q = &s.gpu.queue; /* all 0 where there is no GPU */
    const double device_us = q->busy_us + q->idle_us;
    api_field_real(
        out, "gpu_utilization_percent", device_us > 0 ? 100.0 * q->busy_us / device_us : 0.0);
    api_field_int(out, "memory_used_bytes", s.memory_bytes);
    api_field_int(out, "gpu_memory_used_bytes", s.on_gpu ? s.memory_bytes : 0);
    api_field_int(out, "gpu_memory_total_bytes", s.gpu.total_bytes);
    api_field_bool(out, "cuda_path_active", s.on_gpu);
    api_field_int(out, "batch_size", s.running);
    api_field_int(out, "queue_depth", s.waiting);
    api_field_int(out, "total_tokens", s.output_tokens);
    api_field_int(out, "total_requests", n_requests);
    api_field_int(out, "uptime_secs", (clock_us() - c->api->began_us) / 1000000);
    buf_char(out, '}');
    return OK;
}

enum err api_plain_models(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    struct buf *out = &c->body;
    buf_str(out, "{\"models\":[{");
    api_field_model(c, "id", out);
    api_field_model(c, "name", out);
    if (c->engine) {
        struct buf text = {0};
        const struct model *m = engine_model(c->engine);
        buf_printf(&text,
                   "%s, %s, context %u",
                   m->arch,
                   engine_describe(c->engine),
                   engine_n_ctx(c->engine));
        api_field_text(out, "description", buf_cstr(&text));
        buf_deinit(&text);
    } else {
        api_field_text(out, "description", "");
    }
    api_field_text(out, "format", "gguf");
    api_field_bool(out, "loaded", c->engine);
    buf_str(out, "}],\"object\":\"list\",\"data\":[");
    api_put_model(c, out); /* llama-server's clients look here */
    buf_str(out, "]}");
    return OK;
}
