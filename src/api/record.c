/* What remains of a call: one line of JSON for the log, and the timeline of its requests. Nothing
 * of what was asked or answered is in either. */
#include "api/call.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- trace context ------------------------------------------------------------------------ */

static bool is_hex(const char *s, size_t n)
{
    bool zero = true;
    for (size_t i = 0; i < n; i++) {
        if (!(s[i] >= '0' && s[i] <= '9') && !(s[i] >= 'a' && s[i] <= 'f'))
            return false;
        zero &= s[i] == '0';
    }
    return !zero;
}

/* VERSION-TRACE-PARENT-FLAGS in lowercase hexadecimal, ids not all zero; a version after 00 may
 * have more behind. Source: W3C Trace Context, 3.2. */
static bool is_traceparent(const char *s)
{
    size_t n = strlen(s);
    if (n < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-')
        return false;
    bool version_0 = strncmp(s, "00", 2) == 0;
    bool version = version_0 || (is_hex(s, 2) && strncmp(s, "ff", 2) != 0);
    bool flags = strncmp(s + 53, "00", 2) == 0 || is_hex(s + 53, 2);
    bool end = n == 55 || (!version_0 && s[55] == '-');
    return version && flags && end && is_hex(s + 3, 32) && is_hex(s + 36, 16);
}

void api_record_begin(struct api_call *c, const struct api_input *in)
{
    c->begin_us = clock_us();
    c->begin_unix_ms = clock_unix_ms();
    c->bytes_in = in->body_len;
    snprintf(c->method, sizeof c->method, "%s", in->method);
    snprintf(c->client, sizeof c->client, "%s", in->client ? in->client : "");
    if (!in->traceparent || !is_traceparent(in->traceparent))
        return;
    /* of a later version, the part that is known */
    snprintf(c->traceparent, sizeof c->traceparent, "%.55s", in->traceparent);
    snprintf(c->trace_id, sizeof c->trace_id, "%.32s", in->traceparent + 3);
    api_put_header(c, "Traceparent", c->traceparent);
}

/* ---- timeline ----------------------------------------------------------------------------- */

static const char *finish_word(enum finish f)
{
    static const char *const words[] = {[FINISH_NONE] = "none",
                                        [FINISH_STOP] = "stop",
                                        [FINISH_LENGTH] = "length",
                                        [FINISH_CANCELLED] = "abort",
                                        [FINISH_ERROR] = "error"};
    return words[f];
}

static void put_ms(const struct api_call *c, const char *name, uint64_t us, struct buf *out)
{
    uint64_t since_us = us > c->begin_us ? us - c->begin_us : 0;
    api_field(out, name);
    buf_printf(out, "%.3f", (double)since_us * 1e-3);
}

static void put_event(const struct api_call *c, const char *name, uint64_t us, struct buf *out)
{
    if (out->len > 0 && out->data[out->len - 1] != '[')
        buf_char(out, ',');
    buf_printf(out, "{\"event\":\"%s\"", name);
    put_ms(c, "ms", us, out);
}

static void put_between(const struct api_call *c, const struct request_event *e, struct buf *out)
{
    static const char *const names[] = {[REQUEST_ADMITTED] = "admitted",
                                        [REQUEST_PREFILL] = "prefill",
                                        [REQUEST_PREEMPTED] = "preempted",
                                        [REQUEST_FETCHING] = "fetching",
                                        [REQUEST_FETCHED] = "fetched"};
    bool counts = e->kind != REQUEST_PREEMPTED && e->kind != REQUEST_FETCHING;
    put_event(c, names[e->kind], e->us, out);
    if (counts)
        buf_printf(out, ",\"tokens\":%u", e->n_tokens);
    buf_char(out, '}');
}

/* Of one choice. The first token is written where its time is among the other events. */
static void put_choice(const struct api_call *c, const struct api_choice *ch, struct buf *out)
{
    uint32_t n, n_omitted;
    struct request_times t = request_times(ch->req);
    const struct request_event *events = request_events(ch->req, &n, &n_omitted);
    bool first_due = t.first_us != 0;
    buf_printf(out, "{\"index\":%u,\"events\":[", ch->index);
    put_event(c, "queued", t.submit_us, out);
    buf_char(out, '}');
    for (uint32_t i = 0; i <= n; i++) {
        if (first_due && (i == n || events[i].us > t.first_us)) {
            put_event(c, "first_token", t.first_us, out);
            buf_char(out, '}');
            first_due = false;
        }
        if (i < n)
            put_between(c, &events[i], out);
    }
    put_event(c, "done", t.end_us, out);
    buf_printf(out,
               ",\"reason\":\"%s\"}],\"omitted\":%u}",
               finish_word(request_finish(ch->req)),
               n_omitted);
}

/* An object; all choices have finished. */
static void put_timeline(const struct api_call *c, struct buf *out)
{
    buf_str(out, "{\"choices\":[");
    for (uint32_t i = 0; i < c->n_choices; i++) {
        if (i > 0)
            buf_char(out, ',');
        put_choice(c, &c->choices[i], out);
    }
    buf_str(out, "]}");
}

void api_add_timeline(const struct api_call *c, struct buf *out)
{
    if (!c->timeline)
        return;
    buf_str(out, ",\"timeline\":");
    put_timeline(c, out);
}

void api_add_own_timeline(const struct api_choice *ch, struct buf *out)
{
    if (!ch->call->timeline)
        return;
    buf_str(out, ",\"timeline\":{\"choices\":[");
    put_choice(ch->call, ch, out);
    buf_str(out, "]}");
}

/* ---- the line ----------------------------------------------------------------------------- */

static void put_time(int64_t unix_ms, struct buf *out)
{
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;
    char text[32];
    gmtime_r(&s, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    buf_printf(out, "{\"time\":\"%s.%03dZ\"", text, (int)(unix_ms % 1000));
}

/* "" is not known, as NULL is not. */
static void put_text(struct buf *out, const char *name, const char *value)
{
    api_field_text(out, name, value && value[0] ? value : NULL);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b != 0 && (a == 0 || b < a) ? b : a;
}

void api_record_requests(struct api_call *c)
{
    const struct api_config *cfg = &c->api->cfg;
    struct api_computed *sum = &c->computed;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const struct request *r = c->choices[i].req;
        struct request_times t = request_times(r);
        uint32_t n;
        request_prompt(r, &n);
        sum->n_prompt += i % c->n_per_prompt == 0 ? n : 0;
        sum->n_cached += i % c->n_per_prompt == 0 ? request_n_cached(r) : 0;
        sum->n_completion += request_n_completion(r);
        sum->admit_us = sooner(sum->admit_us, t.admit_us);
        sum->first_us = sooner(sum->first_us, t.first_us);
        sum->finish = request_finish(r) > sum->finish ? request_finish(r) : sum->finish;
    }
    sum->n_choices += c->n_choices;
    if (c->n_choices > 0 && cfg->log_slow && !c->internal)
        put_timeline(c, &sum->timeline);
}

static void put_requests(const struct api_call *c, struct buf *out)
{
    const struct api_computed *sum = &c->computed;
    put_text(out, "finish", finish_word(sum->finish));
    api_field_int(out, "choices", sum->n_choices);
    api_field_int(out, "prompt_tokens", sum->n_prompt);
    api_field_int(out, "cached_tokens", sum->n_cached);
    api_field_int(out, "completion_tokens", sum->n_completion);
    if (sum->admit_us)
        put_ms(c, "admitted_ms", sum->admit_us, out);
    if (sum->first_us)
        put_ms(c, "first_token_ms", sum->first_us, out);
}

/* One that waited long for its reader is slow too. */
static bool is_slow(const struct api_call *c)
{
    const struct api_config *cfg = &c->api->cfg;
    return cfg->log_slow && c->computed.n_choices > 0 &&
           c->end_us - c->begin_us >= (uint64_t)cfg->slow_ms * 1000;
}

void api_record_end(const struct api_call *c)
{
    const struct api_config *cfg = &c->api->cfg;
    bool slow = is_slow(c);
    if (c->internal || !cfg->write_line || !(cfg->log_all || slow))
        return;
    struct buf b = {0};
    put_time(c->begin_unix_ms, &b);
    put_text(&b, "id", c->id);
    put_text(&b, "request_id", c->request_id);
    put_text(&b, "trace_id", c->trace_id);
    put_text(&b, "client", c->client);
    put_text(&b, "key", c->key ? api_key_name(c->key) : NULL);
    put_text(&b, "method", c->method);
    put_text(&b, "route", c->route);
    if (c->counted)
        api_field_int(&b, "status", c->answer.status);
    else
        api_field_null(&b, "status"); /* the client left before there was an answer */
    api_field_bool(&b, "stream", c->answer.stream);
    api_field_bool(&b, "complete", c->whole);
    api_field_int(&b, "bytes_in", c->bytes_in);
    api_field_int(&b, "bytes_out", strcmp(c->method, "HEAD") == 0 ? 0 : c->bytes_out);
    if (c->computed.n_choices > 0)
        put_requests(c, &b);
    put_ms(c, "total_ms", c->end_us, &b);
    if (slow) {
        buf_str(&b, ",\"timeline\":");
        buf_add(&b, c->computed.timeline.data, c->computed.timeline.len);
    }
    buf_char(&b, '}');
    cfg->write_line(cfg->line_ctx, b.data, b.len);
    buf_deinit(&b);
}

void api_count_answer(struct api *a, int status)
{
    if (status > 0 && status < API_MAX_STATUS)
        atomic_fetch_add_explicit(&a->n_answers[status], 1, memory_order_relaxed);
}

void api_note_refused(struct api *a, int status, const char *client)
{
    api_count_answer(a, status);
    if (!a->cfg.write_line || !a->cfg.log_all)
        return;
    struct buf b = {0};
    put_time(clock_unix_ms(), &b);
    put_text(&b, "client", client);
    buf_printf(&b, ",\"route\":null,\"status\":%d,\"complete\":true}", status);
    a->cfg.write_line(a->cfg.line_ctx, b.data, b.len);
    buf_deinit(&b);
}
