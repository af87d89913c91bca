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
               "\"cache_read_input_tokens\":%u,\"output_tokens\":%u}",
               n_prompt - n_cached,
               n_cached,
               n_out);
}

/* A message's head, up to its content. */
static void put_head(const struct api_call *c, struct buf *out)
{
    buf_str(out, "{\"id\":\"");
    buf_str(out, c->id);
    buf_str(out, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    buf_add(out, c->api->model_json.data, c->api->model_json.len);
    buf_str(out, ",\"content\":[");
}

static void put_stop(const struct api_choice *ch, struct buf *out)
{
    const struct messages *m = ch->call->state;
    const char *reason = request_finish(ch->req) == FINISH_LENGTH ? "max_tokens" : "end_turn";
    bool by_text = request_stop(ch->req) == STOP_TEXT;
    buf_printf(
        out, "\"stop_reason\":\"%s\",\"stop_sequence\":", by_text ? "stop_sequence" : reason);
    if (by_text) {
        const char *word = m->stops[request_stop_text(ch->req)];
        api_put_text(out, word, strlen(word));
    } else {
        buf_str(out, "null");
    }
}

static void open_stream(struct api_call *c, struct buf *out)
{
    (void)c;
    (void)out;
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

static void stop_block(struct messages *m, struct buf *out)
{
    if (m->open == BLOCK_NONE)
        return;
    m->open = BLOCK_NONE;
    begin_event(out, "content_block_stop");
    buf_printf(out, ",\"index\":%u", m->n_blocks - 1);
    end_event(out);
}

/* `block`: its JSON while it is empty. The first one is followed by a ping, as Anthropic has it. */
static void start_block(struct messages *m, enum block kind, const char *block, struct buf *out)
{
    stop_block(m, out);
    m->open = kind;
    begin_event(out, "content_block_start");
    buf_printf(out, ",\"index\":%u,\"content_block\":%s", m->n_blocks++, block);
    end_event(out);
    if (m->pinged)
        return;
    m->pinged = true;
    begin_event(out, "ping");
    end_event(out);
}

static void piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    struct messages *m = ch->call->state;
    start_message(ch, out);
    if (p->len == 0)
        return;
    if (m->open != BLOCK_TEXT)
        start_block(m, BLOCK_TEXT, "{\"type\":\"text\",\"text\":\"\"}", out);
    begin_event(out, "content_block_delta");
    buf_printf(out, ",\"index\":%u,\"delta\":{\"type\":\"text_delta\",\"text\":", m->n_blocks - 1);
    api_put_str(out, p->text, p->len);
    buf_char(out, '}');
    end_event(out);
}

static void close_choice(struct api_choice *ch, struct buf *out)
{
    start_message(ch, out);
    stop_block(ch->call->state, out);
    begin_event(out, "message_delta");
    buf_str(out, ",\"delta\":{");
    put_stop(ch, out);
    buf_str(out, "},");
    put_usage(ch, request_n_completion(ch->req), out);
    end_event(out);
}

static void end_stream(struct api_call *c, struct buf *out)
{
    (void)c;
    begin_event(out, "message_stop");
    end_event(out);
}

/* The status is long sent: the error is an event, and message_stop is missing. */
static void fail(struct api_call *c, const struct err_info *e, struct buf *out)
{
    buf_str(out, "event: error\ndata: ");
    api_put_error(c->shape, api_shape_status(c->shape, e->code), e, c->answer.request_id, out);
    buf_str(out, "\n\n");
}

static void whole(struct api_call *c, struct buf *out)
{
    struct api_choice *ch = &c->choices[0];
    struct buf text = {0};
    struct api_piece p;
    while (api_next_piece(ch, &p))
        api_put_escaped(&text, p.text, p.len);
    put_head(c, out);
    if (text.len > 0) {
        buf_str(out, "{\"type\":\"text\",\"text\":\"");
        buf_add(out, text.data, text.len);
        buf_str(out, "\"}");
    }
    buf_str(out, "],");
    put_stop(ch, out);
    buf_char(out, ',');
    put_usage(ch, request_n_completion(ch->req), out);
    buf_char(out, '}');
    buf_deinit(&text);
}

static const struct api_rename renames[] = {
    {"stop", "stop_sequences"}, {"response_format", "output_format"}, {0}};

const struct api_dialect api_messages = {
    .id_prefix = "msg_",
    .prompt_field = "messages",
    .whole_context = true,
    .any_model = true,
    .renames = renames,
    .adapt = messages_adapt,
    .parse = messages_parse,
    .open = open_stream,
    .piece = piece,
    .close = close_choice,
    .end = end_stream,
    .fail = fail,
    .whole = whole,
};
