/* Any bytes as a reply: the first byte chooses the format, the second flags and how the rest is cut
 * into pieces. However it is cut, the same comes out; events have the order that reply.h promises;
 * and what no format took for a mark is there. */
#include "chat/reply.h"

#include "base/buf.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":[\"number\",\"null\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"python\",\"parameters\":{}}}]";

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* Everything that came out, with marks where the kind changes. */
struct record {
    struct buf all;
    int kind;
    uint32_t n_begun, n_ended;
    size_t n_content;
};

static void on_event(void *ctx, const struct reply_event *ev)
{
    struct record *r = ctx;
    bool open = r->n_begun > r->n_ended;
    switch (ev->kind) {
    case REPLY_CONTENT:
    case REPLY_REASONING:
        must(ev->n > 0);
        r->n_content += ev->n;
        if (open) /* a call that was broken off */
            r->n_ended = r->n_begun;
        break;
    case REPLY_CALL_BEGIN:
        must(ev->n > 0 && ev->n <= 128 && ev->call == r->n_begun);
        must(!ev->id == !ev->n_id);
        r->n_ended = r->n_begun;
        r->n_begun++;
        break;
    case REPLY_CALL_ARGUMENTS:
        must(open && ev->n > 0 && ev->call + 1 == r->n_begun);
        break;
    case REPLY_CALL_END:
        must(open && ev->call + 1 == r->n_begun);
        r->n_ended++;
        break;
    }
    if (r->kind != (int)ev->kind || ev->kind == REPLY_CALL_BEGIN)
        buf_char(&r->all, (char)(1 + ev->kind));
    r->kind = (int)ev->kind;
    buf_add(&r->all, ev->text, ev->n);
    buf_add(&r->all, ev->id, ev->n_id);
}

static void run(const struct reply_config *cfg,
                bool cut,
                const char *s,
                size_t n,
                size_t step,
                struct record *r)
{
    struct reply_parser *p = reply_create(cfg);
    r->kind = -1;
    if (!p)
        return;
    for (size_t at = 0; at < n; at += step)
        reply_feed(p, s + at, n - at < step ? n - at : step, on_event, r);
    reply_finish(p, cut, on_event, r);
    must(!cfg->one_call || r->n_begun <= 1);
    reply_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static json_t *tools;
    if (!tools)
        tools = json_loads(tools_json, 0, NULL);
    if (n_bytes < 2)
        return 0;
    size_t n_formats = 0, n_thoughts = 0;
    while (reply_format_list(n_formats))
        n_formats++;
    while (reply_thoughts_list(n_thoughts))
        n_thoughts++;
    struct reply_config cfg = {.tools = data[1] & 1 ? NULL : tools,
                               .one_call = data[1] & 2,
                               .start = {.thinking = data[1] & 4}};
    if (data[0] % (n_formats + 1) < n_formats)
        cfg.style.format = reply_format_find(reply_format_list(data[0] % (n_formats + 1)));
    size_t thoughts = (size_t)(data[1] >> 4) % (n_thoughts + 1);
    if (thoughts < n_thoughts)
        cfg.style.thoughts = reply_thoughts_find(reply_thoughts_list(thoughts));
    const char *s = (const char *)data + 2;
    size_t n = n_bytes - 2;
    struct record whole = {0}, bytes = {0}, threes = {0};
    run(&cfg, data[1] & 8, s, n, n ? n : 1, &whole);
    run(&cfg, data[1] & 8, s, n, 1, &bytes);
    run(&cfg, data[1] & 8, s, n, 3, &threes);
    must(whole.all.len == bytes.all.len && whole.all.len == threes.all.len);
    if (whole.all.len > 0) {
        must(memcmp(whole.all.data, bytes.all.data, whole.all.len) == 0);
        must(memcmp(whole.all.data, threes.all.data, whole.all.len) == 0);
    }
    /* nothing is made up: JSON strings grow at most sixfold where tags are turned into JSON */
    must(whole.n_content <= n);
    buf_deinit(&whole.all);
    buf_deinit(&bytes.all);
    buf_deinit(&threes.all);
    return 0;
}
