/* POST /v1/gpu/warmup and GET /v1/gpu/status: what the GPU holds and does. Where the model runs on
 * the CPU they say that, and all figures are 0.
 *
 * The device is warmed up before the server says it is ready: its memory is taken, its kernels are
 * in place and its graphs captured. So the first route has nothing left to do; it says what is
 * there, however often it is asked. */
#include "api/call.h"

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

enum err api_gpu_warmup(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    struct engine_stats s;
    struct buf *out = &c->body;
    engine_stats_get(c->engine, &s);
    buf_char(out, '{');
    api_field_bool(out, "success", s.gpu.warmed_up);
    api_field_int(out, "memory_bytes", gpu_bytes(&s));
    api_field_int(out, "num_layers", s.gpu.n_layers);
    if (s.on_gpu) {
        struct buf text = {0};
        buf_printf(
            &text,
            "warmed up when the model was loaded: %u graphs of steps, %llu allocations since",
            s.gpu.graphs,
            (unsigned long long)allocations(&s.gpu));
        api_field_text(out, "message", buf_cstr(&text));
        buf_deinit(&text);
    } else {
        api_field_text(out, "message", "the model runs on the CPU: there is nothing to warm up");
    }
    buf_char(out, '}');
    return OK;
}

static void memory(const struct gpu_stats *g, struct buf *out)
{
    buf_str(out, ",\"memory\":{");
    api_field_int(out, "total_bytes", g->total_bytes);
    api_field_int(out, "limit_bytes", g->limit_bytes);
    api_field_int(out, "weights_bytes", g->weights_bytes);
    api_field_int(out, "kv_bytes", g->kv_bytes);
    api_field_int(out, "workspace_bytes", g->workspace_bytes);
    api_field_int(out, "buffers_bytes", api_gpu_buffers(g));
    api_field_int(out, "pinned_bytes", g->pinned_bytes);
    buf_char(out, '}');
}

static void pool(const struct gpu_stats *g, struct buf *out)
{
    buf_str(out, ",\"pool\":{");
    api_field_bool(out, "warmed_up", g->warmed_up);
    api_field_int(out, "allocations_after_warmup", allocations(g));
    for (int i = 0; i < N_GPU_CLASSES; i++) {
        const struct gpu_class_stats *c = &g->classes[i];
        api_field(out, gpu_class_name((enum gpu_class)i));
        buf_char(out, '{');
        api_field_int(out, "buffer_bytes", c->buffer_bytes);
        api_field_int(out, "held", c->held);
        api_field_int(out, "available", c->held - c->lent);
        api_field_int(out, "lent", c->lent);
        api_field_int(out, "peak_lent", c->peak);
        api_field_int(out, "borrows", c->borrows);
        api_field_int(out, "returns", c->returns);
        buf_char(out, '}');
    }
    buf_char(out, '}');
}

static void queue(const struct gpu_stats *g, struct buf *out)
{
    const struct gpu_queue_stats *q = &g->queue;
    buf_str(out, ",\"queue\":{");
    api_field_int(out, "slots", q->slots);
    api_field_int(out, "in_flight", q->in_flight);
    api_field_int(out, "submitted", q->submitted);
    api_field_int(out, "completed", q->completed);
    api_field_int(out, "stalls", q->stalls);
    api_field_real(out, "stall_seconds", q->stall_us * 1e-6);
    api_field_real(out, "busy_seconds", q->busy_us * 1e-6);
    api_field_real(out, "idle_seconds", q->idle_us * 1e-6);
    api_field_real(out, "utilization", api_share(q->busy_us, q->idle_us));
    api_field_real(out,
                   "pipeline_efficiency",
                   q->submitted ? 1.0 - (double)q->stalls / (double)q->submitted : 0.0);
    api_field_int(out, "graphs", g->graphs);
    api_field_int(out, "graph_replays", g->replays);
    api_field_int(out, "walks", g->walks);
    buf_char(out, '}');
}

static void moves(const struct gpu_stats *g, struct buf *out)
{
    const struct gpu_move_stats *m = &g->moves;
    buf_str(out, ",\"moves\":{");
    api_field_int(out, "blocks_out", m->read);
    api_field_int(out, "blocks_in", m->written);
    api_field_int(out, "bytes", m->bytes);
    api_field_int(out, "waits", m->waits);
    api_field_real(out, "wait_seconds", m->wait_us * 1e-6);
    api_field_real(out, "block_seconds", m->block_us * 1e-6);
    buf_char(out, '}');
}

/* Batches of any size go where the model is: on a GPU from 1, on a CPU none. */
enum err api_gpu_status(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    (void)in;
    (void)e;
    struct engine_stats s;
    struct buf *out = &c->body;
    engine_stats_get(c->engine, &s);
    const struct gpu_stats *g = &s.gpu;
    buf_char(out, '{');
    api_field_bool(out, "cache_ready", g->warmed_up);
    api_field_int(out, "cache_memory_bytes", gpu_bytes(&s));
    api_field_int(out, "batch_threshold", s.on_gpu);
    api_field_int(out, "recommended_min_batch", s.on_gpu);
    api_field_bool(out, "on_gpu", s.on_gpu);
    api_field_text(out, "device", engine_describe(c->engine));
    static const char *const wgmma[] = {"none", "off", "used"};
    api_field_text(out, "wgmma", wgmma[g->wgmma]);
    memory(g, out);
    pool(g, out);
    queue(g, out);
    moves(g, out);
    buf_char(out, '}');
    return OK;
}
