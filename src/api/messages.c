/* POST /v1/messages: Anthropic's answers and streams.
 *
 *      message_start
 *      content_block_start, content_block_delta ..., content_block_stop     for each block
 *      message_delta (why it ended, usage), message_stop
 *
 * Each event has its name in `event:` and in its data. message_start waits for the first token, as
 * only then it is known how much of the prompt was cached. Text, thoughts and calls are blocks in
 * the order in which the model writes them. */
#include "api/messages.h"
#include "api/reply.h"
#include "api/text.h"

#include <string.h>

static void begin_event(struct buf *out, const char *name)
{
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void end_event(struct buf *out)
{
    buf_str(out, "}\n\n");
}

/* What was read from the cache does not count as input. */
static void put_usage(const struct api_choice *ch, uint32_t n_out, struct buf *out)
{
    uint32_t n_prompt, n_cached = request_n_cached(ch->req);
    request_prompt(ch->req, &n_prompt);
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":%u,\"output_tokens\":%u,"
               "\"output_tokens_details\":{\"thinking_tokens\":%u}}",
               n_prompt - n_cached,
               n_cached,
               n_out,
               ch->n_thoughts);
}

/* A message's head, up to its content. */
static void put_head(const struct api_call *c, struct buf *out)
{
    buf_str(out, "{\"id\":\"");
    buf_str(out, c->id);
    buf_str(out, "\",\"type\":\"message\",\"role\":\"assistant\"");
    api_field_model(c, "model", out);
    buf_str(out, ",\"content\":[");
}

/* Was it the context that ended it, before as many tokens as were asked for? */
static bool at_context_end(const struct api_choice *ch)
{
    const struct messages *m = ch->call->state;
    const uint32_t n_out = request_n_out(ch->req);
    uint32_t n_prompt;
    request_prompt(ch->req, &n_prompt);
    return n_prompt + n_out >= engine_n_ctx(ch->call->engine) && m->max_tokens > n_out;
}

static const char *stop_reason(const struct api_choice *ch)
{
    if (request_stop(ch->req) == STOP_TEXT)
        return "stop_sequence";
    if (request_finish(ch->req) == FINISH_LENGTH)
        return at_context_end(ch) ? "model_context_window_exceeded" : "max_tokens";
    return strcmp(api_reply_finish_name(ch), "tool_calls") == 0 ? "tool_use" : "end_turn";
}

static void put_stop(const struct api_choice *ch, struct buf *out)
{
    const bool stopped = request_stop(ch->req) == STOP_TEXT;
    api_field_text(out, "stop_reason", stop_reason(ch));
    api_field_text(out, "stop_sequence", stopped ? request_stop_text(ch->req) : NULL);
}

static void start_message(struct api_choice *ch, struct buf *out)
{
    struct messages *m = ch->call->state;
    if (m->started)
        return;
    m->started = true;
    begin_event(out, "message_start");
    buf_str(out, ",\"message\":");
    put_head(ch->call, out);
    buf_str(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(ch, 0, out);
    buf_char(out, '}');
    end_event(out);
}

/* `delta`: its type and the name of its text. */
static void put_delta(const struct messages *m,
                      const char *delta,
                      const char *name,
                      const char *text,
                      size_t n,
                      struct buf *out)
{
    begin_event(out, "content_block_delta");
    buf_printf(
        out, ",\"index\":%u,\"delta\":{\"type\":\"%s\",\"%s\":", m->n_blocks - 1, delta, name);
    api_put_str(out, text, n);
    buf_char(out, '}');
    end_event(out);
}

/* Thoughts end with a signature there; ours are not signed. */
static void stop_block(struct messages *m, struct buf *out)
{
    if (m->open == BLOCK_NONE)
        return;
    if (m->open == BLOCK_THINKING)
        put_delta(m, "signature_delta", "signature", "", 0, out);
    m->open = BLOCK_NONE;
    begin_event(out, "content_block_stop");
    buf_printf(out, ",\"index\":%u", m->n_blocks - 1);
    end_event(out);
}

/* A block up to what it holds; for a call, ev is its beginning. */
static void put_block_head(const struct api_call *c,
                           enum block kind,
                           const struct reply_event *ev,
                           struct buf *out)
{
    char id[API_CALL_ID_BYTES];
    if (kind == BLOCK_TEXT) {
        buf_str(out, "{\"type\":\"text\",\"text\":\"");
    } else if (kind == BLOCK_THINKING) {
        buf_str(out, "{\"type\":\"thinking\",\"thinking\":\"");
    } else {
        api_reply_call_id(c, ev, "toolu_", id);
        buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", id);
        api_put_str(out, ev->text, ev->n);
        buf_str(out, ",\"input\":");
    }
}

static void put_block_end(enum block kind, struct buf *out)
{
    static const char *const ends[] = {[BLOCK_NONE] = "",
                                       [BLOCK_TEXT] = "\"}",
                                       [BLOCK_THINKING] = "\",\"signature\":\"\"}",
                                       [BLOCK_TOOL] = "}"};
    buf_str(out, ends[kind]);
}

/* The first block is followed by a ping, as Anthropic has it. */
static void start_block(struct api_call *c,
                        enum block kind,
                        const struct reply_event *ev,
                        struct buf *out)
{
    struct messages *m = c->state;
    stop_block(m, out);
    m->open = kind;
    begin_event(out, "content_block_start");
    buf_printf(out, ",\"index\":%u,\"content_block\":", m->n_blocks++);
    put_block_head(c, kind, ev, out);
    buf_str(out, kind == BLOCK_TOOL ? "{}" : "");
    put_block_end(kind, out);
    end_event(out);
    if (m->pinged)
        return;
    m->pinged = true;
    begin_event(out, "ping");
    end_event(out);
}

struct sink {
    struct api_choice *ch;
    struct buf *out;
};

static void on_event(void *ctx, const struct reply_event *ev)
{
    struct sink *s = ctx;
    struct api_call *c = s->ch->call;
    struct messages *m = c->state;
    switch (ev->kind) {
    case REPLY_CONTENT:
        if (m->open != BLOCK_TEXT)
            start_block(c, BLOCK_TEXT, ev, s->out);
        put_delta(m, "text_delta", "text", ev->text, ev->n, s->out);
        break;
    case REPLY_REASONING:
        if (m->open != BLOCK_THINKING)
            start_block(c, BLOCK_THINKING, ev, s->out);
        put_delta(m, "thinking_delta", "thinking", ev->text, ev->n, s->out);
        break;
    case REPLY_CALL_BEGIN:
        start_block(c, BLOCK_TOOL, ev, s->out);
        break;
    case REPLY_CALL_ARGUMENTS:
        put_delta(m, "input_json_delta", "partial_json", ev->text, ev->n, s->out);
        break;
    case REPLY_CALL_END:
        stop_block(m, s->out);
        break;
    }
}

static void piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    struct sink s = {ch, out};
    start_message(ch, out);
    api_reply_feed(ch, p, on_event, &s);
}

static void close_choice(struct api_choice *ch, struct buf *out)
{
    struct sink s = {ch, out};
    start_message(ch, out);
    api_reply_end(ch, on_event, &s);
    stop_block(ch->call->state, out);
    begin_event(out, "message_delta");
    buf_str(out, ",\"delta\":{");
    put_stop(ch, out);
    buf_str(out, "},");
    put_usage(ch, request_n_completion(ch->req), out);
    api_add_timeline(ch->call, out);
    end_event(out);
}

static void end_stream(struct api_call *c, struct buf *out)
{
    (void)c;
    begin_event(out, "message_stop");
    end_event(out);
}

/* --- whole ---------------------------------------------------------------------------------- */

/* The content of an answer that is not streamed. */
struct content {
    const struct api_call *call;
    struct buf blocks; /* JSON, with commas between */
    enum block open;
    struct buf input; /* of the call under way */
};

/* A call's input is what the model wrote, if it is JSON: what a limit cut off is not. */
static void put_input(struct content *t)
{
    json_error_t je;
    json_t *v = api_json_load(
        t->input.data ? t->input.data : "", t->input.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    const struct buf none = {.data = "{}", .len = 2, .failed = !v && api_json_starved()};
    buf_join(&t->blocks, v ? &t->input : &none);
    json_decref(v);
}

static void end_block(struct content *t)
{
    if (t->open == BLOCK_TOOL)
        put_input(t);
    put_block_end(t->open, &t->blocks);
    buf_clear(&t->input);
    t->open = BLOCK_NONE;
}

static void begin_block(struct content *t, enum block kind, const struct reply_event *ev)
{
    end_block(t);
    t->open = kind;
    buf_str(&t->blocks, t->blocks.len ? "," : "");
    put_block_head(t->call, kind, ev, &t->blocks);
}

static void gather(void *ctx, const struct reply_event *ev)
{
    struct content *t = ctx;
    enum block kind = ev->kind == REPLY_CONTENT ? BLOCK_TEXT : BLOCK_THINKING;
    switch (ev->kind) {
    case REPLY_CONTENT:
    case REPLY_REASONING:
        if (t->open != kind)
            begin_block(t, kind, ev);
        json_text_escape(&t->blocks, ev->text, ev->n);
        break;
    case REPLY_CALL_BEGIN:
        begin_block(t, BLOCK_TOOL, ev);
        break;
    case REPLY_CALL_ARGUMENTS:
        buf_add(&t->input, ev->text, ev->n);
        break;
    case REPLY_CALL_END:
        end_block(t);
        break;
    }
}

static void whole(struct api_call *c, struct buf *out)
{
    struct api_choice *ch = &c->choices[0];
    struct content t = {.call = c, .blocks.may_fail = true};
    struct api_piece p;
    while (api_next_piece(ch, &p))
        api_reply_feed(ch, &p, gather, &t);
    api_reply_end(ch, gather, &t);
    end_block(&t);
    put_head(c, out);
    buf_join(out, &t.blocks);
    buf_char(out, ']');
    put_stop(ch, out);
    buf_char(out, ',');
    put_usage(ch, request_n_completion(ch->req), out);
    api_add_timeline(c, out);
    buf_char(out, '}');
    buf_deinit(&t.blocks);
    buf_deinit(&t.input);
}

static const struct api_rename renames[] = {{"stop", "stop_sequences"},
                                            {"response_format", "output_format"},
                                            {"response_format", "output_config.format"},
                                            {0}};

const struct api_dialect api_messages = {
    .id_prefix = "msg_",
    .prompt_field = "messages",
    .whole_context = true,
    .any_model = true,
    .renames = renames,
    .adapt = messages_adapt,
    .parse = messages_parse,
    .piece = piece,
    .close = close_choice,
    .end = end_stream,
    .fail = api_named_fail,
    .whole = whole,
};
