/* POST /v1/gpu/warmup and GET /v1/gpu/status: what the GPU holds and does. Where the model runs on
 * the CPU they say that, and all figures are 0.
 *
 * The device is warmed up before the server says it is ready: its memory is taken, its kernels are
 * in place and its graphs captured. So the first route has nothing left to do; it says what is
 * there, however often it is asked. */
#include "api/call.h"

#include <string.h>

static void field(struct buf *out, const char *name, uint64_t v)
{
    const char last = out->data[out->len - 1];
    buf_printf(out, "%s\"%s\":%llu", last == '{' ? "" : ",", name, (unsigned long long)v);
}

static void real_field(struct buf *out, const char *name, double v)
{
    buf_printf(out, ",\"%s\":", name);
    api_put_double(out, v);
}

static void bool_field(struct buf *out, const char *name, bool v)
{
    buf_printf(out, ",\"%s\":%s", name, v ? "true" : "false");
}

static uint64_t gpu_bytes(const struct engine_stats *s)
{
    return s->on_gpu ? s->memory_bytes : 0;
}

static uint64_t allocations(const struct gpu_stats *g)
{
    uint64_t n = 0;
    for (int c = 0; c < N_GPU_CLASSES; c++)
        n += g->classes[c].allocations;
    return n;
}

uint64_t api_gpu_buffers(const struct gpu_stats *g)
{
    uint64_t n = 0;
    for (int c = 0; c < N_GPU_CLASSES; c++)
        n += c == GPU_STAGING ? 0 : g->classes[c].buffer_bytes * g->classes[c].held;
    return n;
}

void api_gpu_warmup(struct api_call *c, const struct api_input *in)
{
    (void)in;
    struct engine_stats s;
    struct buf *out = &c->body;
    engine_stats_get(c->engine, &s);
    buf_printf(out, "{\"success\":%s", s.gpu.warmed_up ? "true" : "false");
    field(out, "memory_bytes", gpu_bytes(&s));
    field(out, "num_layers", s.gpu.n_layers);
    buf_str(out, ",\"message\":");
    if (s.on_gpu) {
        struct buf text = {0};
        buf_printf(
            &text,
            "warmed up when the model was loaded: %u graphs of steps, %llu allocations since",
            s.gpu.graphs,
            (unsigned long long)allocations(&s.gpu));
        api_put_text(out, text.data, text.len);
        buf_deinit(&text);
    } else {
        buf_str(out, "\"the model runs on the CPU: there is nothing to warm up\"");
    }
    buf_char(out, '}');
    api_answer_json(c, 200);
}

static void memory(const struct gpu_stats *g, struct buf *out)
{
    buf_str(out, ",\"memory\":{");
    field(out, "total_bytes", g->total_bytes);
    field(out, "limit_bytes", g->limit_bytes);
    field(out, "weights_bytes", g->weights_bytes);
    field(out, "kv_bytes", g->kv_bytes);
    field(out, "workspace_bytes", g->workspace_bytes);
    field(out, "buffers_bytes", api_gpu_buffers(g));
    field(out, "pinned_bytes", g->pinned_bytes);
    buf_char(out, '}');
}

static void pool(const struct gpu_stats *g, struct buf *out)
{
    buf_printf(out, ",\"pool\":{\"warmed_up\":%s", g->warmed_up ? "true" : "false");
    field(out, "allocations_after_warmup", allocations(g));
    for (int i = 0; i < N_GPU_CLASSES; i++) {
        const struct gpu_class_stats *c = &g->classes[i];
        buf_printf(out, ",\"%s\":{", gpu_class_name((enum gpu_class)i));
        field(out, "buffer_bytes", c->buffer_bytes);
        field(out, "held", c->held);
        field(out, "available", c->held - c->lent);
        field(out, "lent", c->lent);
        field(out, "peak_lent", c->peak);
        field(out, "borrows", c->borrows);
        field(out, "returns", c->returns);
        buf_char(out, '}');
    }
    buf_char(out, '}');
}

static double share(double part, double rest)
{
    return part + rest > 0 ? part / (part + rest) : 0.0;
}

static void queue(const struct gpu_stats *g, struct buf *out)
{
    const struct gpu_queue_stats *q = &g->queue;
    buf_str(out, ",\"queue\":{");
    field(out, "slots", q->slots);
    field(out, "in_flight", q->in_flight);
    field(out, "submitted", q->submitted);
    field(out, "completed", q->completed);
    field(out, "stalls", q->stalls);
    real_field(out, "stall_seconds", q->stall_us * 1e-6);
    real_field(out, "busy_seconds", q->busy_us * 1e-6);
    real_field(out, "idle_seconds", q->idle_us * 1e-6);
    real_field(out, "utilization", share(q->busy_us, q->idle_us));
    real_field(out,
               "pipeline_efficiency",
               q->submitted ? 1.0 - (double)q->stalls / (double)q->submitted : 0.0);
    field(out, "graphs", g->graphs);
    field(out, "graph_replays", g->replays);
    field(out, "walks", g->walks);
    buf_char(out, '}');
}

static void moves(const struct gpu_stats *g, struct buf *out)
{
    const struct gpu_move_stats *m = &g->moves;
    buf_str(out, ",\"moves\":{");
    field(out, "blocks_out", m->read);
    field(out, "blocks_in", m->written);
    field(out, "bytes", m->bytes);
    field(out, "waits", m->waits);
    real_field(out, "wait_seconds", m->wait_us * 1e-6);
    real_field(out, "block_seconds", m->block_us * 1e-6);
    buf_char(out, '}');
}

/* Batches of any size go where the model is: on a GPU from 1, on a CPU none. */
void api_gpu_status(struct api_call *c, const struct api_input *in)
{
    (void)in;
    struct engine_stats s;
    struct buf *out = &c->body;
    engine_stats_get(c->engine, &s);
    const struct gpu_stats *g = &s.gpu;
    buf_printf(out, "{\"cache_ready\":%s", g->warmed_up ? "true" : "false");
    field(out, "cache_memory_bytes", gpu_bytes(&s));
    field(out, "batch_threshold", s.on_gpu);
    field(out, "recommended_min_batch", s.on_gpu);
    bool_field(out, "on_gpu", s.on_gpu);
    buf_str(out, ",\"device\":");
    const char *name = engine_describe(c->engine);
    api_put_text(out, name, strlen(name));
    static const char *const wgmma[] = {"none", "off", "used"};
    buf_printf(out, ",\"wgmma\":\"%s\"", wgmma[g->wgmma]);
    memory(g, out);
    pool(g, out);
    queue(g, out);
    moves(g, out);
    buf_char(out, '}');
    api_answer_json(c, 200);
}
