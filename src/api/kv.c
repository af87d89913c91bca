/* GET /v1/kv: the KV memory and the tier below it, in figures. ?check=true asks for all of it to be
 * walked and compared; that happens between two steps, and a later answer tells. */
#include "api/call.h"

#include <string.h>

static void field(struct buf *out, const char *name, uint64_t v)
{
    if (out->data[out->len - 1] != '{')
        buf_char(out, ',');
    buf_char(out, '"');
    buf_str(out, name);
    buf_str(out, "\":");
    api_put_int(out, (int64_t)v);
}

static void real_field(struct buf *out, const char *name, double v)
{
    buf_str(out, ",\"");
    buf_str(out, name);
    buf_str(out, "\":");
    api_put_double(out, v);
}

static double ratio(uint64_t part, uint64_t rest)
{
    return part + rest > 0 ? (double)part / (double)(part + rest) : 0.0;
}

static void latency(struct buf *out, const char *name, const struct kv_tier_latency *l)
{
    buf_str(out, ",\"");
    buf_str(out, name);
    buf_str(out, "\":{");
    field(out, "count", l->count);
    real_field(out, "mean_ms", l->count ? (double)l->sum_us / (double)l->count * 1e-3 : 0.0);
    real_field(out, "max_ms", (double)l->max_us * 1e-3);
    buf_char(out, '}');
}

static void tier(const struct engine_stats *s, uint32_t i, struct buf *out)
{
    const struct kv_tier_stats *t = &s->tiers[i].stats;
    buf_str(out, "{\"name\":\"");
    buf_str(out, s->tiers[i].name);
    buf_str(out, "\",\"on\":");
    buf_str(out, t->on ? "true" : "false");
    buf_str(out, ",\"writes\":");
    buf_str(out, t->writes ? "true" : "false");
    field(out, "entries", t->entries);
    field(out, "bytes", t->bytes);
    field(out, "max_bytes", t->max_bytes);
    field(out, "hits", t->fetched);
    field(out, "misses", t->missed);
    field(out, "declined", s->kv.counts.fetches_declined[i]);
    field(out, "abandoned", s->kv.counts.fetches_abandoned[i]);
    field(out, "stored", t->stored);
    field(out, "dropped", t->dropped);
    field(out, "evicted", t->evicted);
    field(out, "ignored", t->ignored);
    field(out, "errors", t->errors);
    latency(out, "fetch", &t->fetch);
    latency(out, "store", &t->store);
    buf_char(out, '}');
}

static void checks(const struct engine_stats *s, struct buf *out)
{
    buf_str(out, ",\"checks\":{");
    field(out, "made", s->checks);
    buf_str(out, ",\"last\":");
    if (s->checks == 0)
        buf_str(out, "null");
    else if (s->check_ok)
        buf_str(out, "\"ok\"");
    else
        api_put_text(out, s->check_error.text, strlen(s->check_error.text));
    buf_char(out, '}');
}

/* The pool of the layers with windows; null where there is none. */
static void windows(const struct engine_stats *s, struct buf *out)
{
    buf_str(out, ",\"windows\":");
    if (s->kv.panes.total == 0) {
        buf_str(out, "null");
        return;
    }
    buf_char(out, '{');
    field(out, "tokens", s->kv_window);
    field(out, "pane_bytes", s->kv_pane_bytes);
    buf_str(out, ",\"panes\":{");
    field(out, "total", s->kv.panes.total);
    field(out, "free", s->kv.panes.free);
    field(out, "in_use", s->kv.panes.in_use);
    field(out, "cached", s->kv.panes.cached);
    field(out, "peak_in_use", s->kv.panes.peak_in_use);
    buf_char(out, '}');
    field(out, "passed", s->kv.counts.panes_passed);
    field(out, "evicted", s->kv.counts.panes_evicted);
    field(out, "miss_tokens", s->kv.counts.pane_miss_tokens);
    buf_char(out, '}');
}

/* The pool of recurrent layers' states, likewise. */
static void states(const struct engine_stats *s, struct buf *out)
{
    buf_str(out, ",\"states\":");
    if (s->kv.states.total == 0) {
        buf_str(out, "null");
        return;
    }
    buf_char(out, '{');
    field(out, "bytes", s->kv_state_bytes);
    field(out, "total", s->kv.states.total);
    field(out, "free", s->kv.states.free);
    field(out, "in_use", s->kv.states.in_use);
    field(out, "cached", s->kv.states.cached);
    field(out, "peak_in_use", s->kv.states.peak_in_use);
    field(out, "kept", s->kv.counts.states_kept);
    field(out, "evicted", s->kv.counts.states_evicted);
    field(out, "miss_tokens", s->kv.counts.state_miss_tokens);
    buf_char(out, '}');
}

void api_kv(struct api_call *c, const struct api_input *in)
{
    struct engine_stats s;
    struct buf *out = &c->body;
    struct err_info e = {0};
    bool check = false;
    if (api_query_flag(in, "check", &check, &e) != OK) {
        api_answer_error(c, &e);
        return;
    }
    engine_stats_get(c->engine, &s);
    if (check)
        engine_want_check(c->engine);
    buf_str(out, "{\"object\":\"kv\",\"block_tokens\":");
    api_put_int(out, s.kv_block_tokens);
    field(out, "block_bytes", s.kv_block_bytes);
    buf_str(out, ",\"blocks\":{");
    field(out, "total", s.kv.total);
    field(out, "free", s.kv.free);
    field(out, "in_use", s.kv.in_use);
    field(out, "cached", s.kv.cached);
    field(out, "peak_in_use", s.kv.peak_in_use);
    field(out, "published", s.kv.published);
    buf_char(out, '}');
    windows(&s, out);
    states(&s, out);
    buf_str(out, ",\"prefix\":{");
    field(out, "hit_tokens", s.kv.counts.hit_tokens);
    field(out, "miss_tokens", s.kv.counts.miss_tokens);
    real_field(out, "hit_rate", ratio(s.kv.counts.hit_tokens, s.kv.counts.miss_tokens));
    field(out, "evicted_blocks", s.kv.counts.evicted);
    field(out, "copied_blocks", s.kv.counts.copied);
    field(out, "merged_blocks", s.kv.counts.merged);
    buf_char(out, '}');
    field(out, "preemptions", s.preemptions);
    checks(&s, out);
    buf_str(out, ",\"tiers\":[");
    for (uint32_t i = 0; i < s.n_tiers; i++) {
        if (i > 0)
            buf_char(out, ',');
        tier(&s, i, out);
    }
    buf_str(out, "]}");
    api_answer_json(c, 200);
}
