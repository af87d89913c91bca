/* GET /v1/kv: the KV memory and the tier below it, in figures. ?check=true asks for all of it to be
 * walked and compared; that happens between two steps, and a later answer tells. */
#include "api/call.h"

static void usage(const struct kv_usage *u, struct buf *out)
{
    api_field_int(out, "total", u->total);
    api_field_int(out, "free", u->free);
    api_field_int(out, "in_use", u->in_use);
    api_field_int(out, "cached", u->cached);
    api_field_int(out, "peak_in_use", u->peak_in_use);
}

static void latency(struct buf *out, const char *name, const struct kv_tier_latency *l)
{
    api_field(out, name);
    buf_char(out, '{');
    api_field_int(out, "count", l->count);
    api_field_real(out, "mean_ms", l->count ? (double)l->sum_us / (double)l->count * 1e-3 : 0.0);
    api_field_real(out, "max_ms", (double)l->max_us * 1e-3);
    buf_char(out, '}');
}

static void tier(const struct engine_stats *s, uint32_t i, struct buf *out)
{
    const struct kv_tier_stats *t = &s->tiers[i].stats;
    buf_char(out, '{');
    api_field_text(out, "name", s->tiers[i].name);
    api_field_bool(out, "on", t->on);
    api_field_bool(out, "writes", t->writes);
    api_field_int(out, "entries", t->entries);
    api_field_int(out, "bytes", t->bytes);
    api_field_int(out, "max_bytes", t->max_bytes);
    api_field_int(out, "hits", t->fetched);
    api_field_int(out, "misses", t->missed);
    api_field_int(out, "declined", s->kv.counts.fetches_declined[i]);
    api_field_int(out, "abandoned", s->kv.counts.fetches_abandoned[i]);
    api_field_int(out, "stored", t->stored);
    api_field_int(out, "dropped", t->dropped);
    api_field_int(out, "evicted", t->evicted);
    api_field_int(out, "ignored", t->ignored);
    api_field_int(out, "errors", t->errors);
    latency(out, "fetch", &t->fetch);
    latency(out, "store", &t->store);
    buf_char(out, '}');
}

static void checks(const struct engine_stats *s, struct buf *out)
{
    buf_str(out, ",\"checks\":{");
    api_field_int(out, "made", s->checks);
    const char *said = s->check_ok ? "ok" : s->check_error.text;
    api_field_text(out, "last", s->checks > 0 ? said : NULL);
    buf_char(out, '}');
}

/* The pool of the layers with windows; null where there is none. */
static void windows(const struct engine_stats *s, struct buf *out)
{
    if (s->kv.panes.total == 0) {
        api_field_null(out, "windows");
        return;
    }
    buf_str(out, ",\"windows\":{");
    api_field_int(out, "tokens", s->kv_window);
    api_field_int(out, "pane_bytes", s->kv_pane_bytes);
    buf_str(out, ",\"panes\":{");
    usage(&s->kv.panes, out);
    buf_char(out, '}');
    api_field_int(out, "passed", s->kv.counts.panes_passed);
    api_field_int(out, "evicted", s->kv.counts.panes_evicted);
    api_field_int(out, "miss_tokens", s->kv.counts.pane_miss_tokens);
    buf_char(out, '}');
}

/* The pool of recurrent layers' states, likewise. */
static void states(const struct engine_stats *s, struct buf *out)
{
    if (s->kv.states.total == 0) {
        api_field_null(out, "states");
        return;
    }
    buf_str(out, ",\"states\":{");
    api_field_int(out, "bytes", s->kv_state_bytes);
    usage(&s->kv.states, out);
    api_field_int(out, "kept", s->kv.counts.states_kept);
    api_field_int(out, "evicted", s->kv.counts.states_evicted);
    api_field_int(out, "miss_tokens", s->kv.counts.state_miss_tokens);
    buf_char(out, '}');
}

enum err api_kv(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    struct engine_stats s;
    struct buf *out = &c->body;
    bool check = false;
    enum err err = api_query_flag(in, "check", &check, e);
    if (err)
        return err;
    engine_stats_get(c->engine, &s);
    if (check)
        engine_want_check(c->engine);
    buf_str(out, "{\"object\":\"kv\"");
    api_field_int(out, "block_tokens", s.kv_block_tokens);
    api_field_int(out, "block_bytes", s.kv_block_bytes);
    buf_str(out, ",\"blocks\":{");
    usage(&s.kv.blocks, out);
    api_field_int(out, "published", s.kv.published);
    buf_char(out, '}');
    windows(&s, out);
    states(&s, out);
    buf_str(out, ",\"prefix\":{");
    api_field_int(out, "hit_tokens", s.kv.counts.hit_tokens);
    api_field_int(out, "miss_tokens", s.kv.counts.miss_tokens);
    const double hit = (double)s.kv.counts.hit_tokens, miss = (double)s.kv.counts.miss_tokens;
    api_field_real(out, "hit_rate", api_share(hit, miss));
    api_field_int(out, "evicted_blocks", s.kv.counts.evicted);
    api_field_int(out, "copied_blocks", s.kv.counts.copied);
    api_field_int(out, "merged_blocks", s.kv.counts.merged);
    buf_char(out, '}');
    api_field_int(out, "preemptions", s.preemptions);
    checks(&s, out);
    buf_str(out, ",\"tiers\":[");
    for (uint32_t i = 0; i < s.n_tiers; i++) {
        if (i > 0)
            buf_char(out, ',');
        tier(&s, i, out);
    }
    buf_str(out, "]}");
    return OK;
}
