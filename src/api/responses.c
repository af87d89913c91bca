/* POST /v1/responses: OpenAI's newer answers and streams; GET and DELETE of those that are kept.
 *
 *      response.created, response.in_progress
 *      response.output_item.added                     for each item: a message, reasoning, a call
 *          response.content_part.added
 *          response.output_text.delta ...
 *          response.output_text.done, response.content_part.done
 *      response.output_item.done
 *      response.completed | response.incomplete | response.failed
 *
 * Each event carries its number. The text of an item is gathered on the way, as its end repeats it;
 * an answer that is not streamed runs the same code with no events written. */
#include "api/responses.h"
#include "api/store.h"
#include "api/text.h"
#include "base/clock.h"

#include <string.h>

/* --- the response object -------------------------------------------------------------------- */

static void put_usage(const struct api_choice *ch, struct buf *out)
{
    uint32_t n_prompt, n_out = request_n_completion(ch->req);
    request_prompt(ch->req, &n_prompt);
    buf_printf(out,
               "{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
               "\"cache_write_tokens\":0},"
               "\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":%u},"
               "\"total_tokens\":%llu}",
               n_prompt,
               request_n_cached(ch->req),
               n_out,
               ch->n_thoughts,
               (unsigned long long)n_prompt + n_out);
}

/* Up to its output; failure NULL: none. */
static void put_head(const struct api_call *c,
                     const char *status,
                     const struct err_info *failure,
                     struct buf *out)
{
    const struct responses *r = c->state;
    buf_str(out, "{\"id\":\"");
    buf_str(out, c->id);
    buf_str(out, "\",\"object\":\"response\"");
    api_field_int(out, "created_at", c->created);
    api_field_text(out, "status", status);
    api_field_model(c, "model", out);
    if (failure) {
        buf_str(out, ",\"error\":{\"code\":\"server_error\"");
        api_field_text(out, "message", failure->text);
        buf_char(out, '}');
    } else {
        api_field_null(out, "error");
    }
    if (r->completed_at)
        api_field_int(out, "completed_at", r->completed_at);
    else
        api_field_null(out, "completed_at");
    buf_str(out, ",\"incomplete_details\":");
    buf_str(out, strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    buf_join(out, &r->echo);
    buf_str(out, ",\"output\":[");
}

/* As it is while it runs, or where it failed: without usage. */
static void put_unfinished(const struct api_call *c,
                           const char *status,
                           const struct err_info *failure,
                           struct buf *out)
{
    const struct responses *r = c->state;
    put_head(c, status, failure, out);
    if (!failure || !r->items.failed) /* that may be what it failed for */
        buf_join(out, &r->items);
    buf_str(out, "],\"usage\":null}");
}

static const char *status_of(const struct api_choice *ch)
{
    return request_finish(ch->req) == FINISH_LENGTH ? "incomplete" : "completed";
}

static void put_finished(const struct api_choice *ch, struct buf *out)
{
    const struct responses *r = ch->call->state;
    put_head(ch->call, status_of(ch), NULL, out);
    buf_join(out, &r->items);
    buf_str(out, "],\"usage\":");
    put_usage(ch, out);
    api_add_timeline(ch->call, out);
    buf_char(out, '}');
}

/* Keep the answer, and the conversation up to it for the next one. */
static void keep(const struct api_choice *ch)
{
    const struct api_call *c = ch->call;
    struct responses *r = c->state;
    struct buf response = {.may_fail = true};
    if (!r->store)
        return;
    put_finished(ch, &response);
    buf_str(&r->messages, r->messages.len > 1 ? "," : "");
    buf_str(&r->messages, "{\"role\":\"assistant\",\"content\":\"");
    buf_join(&r->messages, &r->said);
    if (buf_any(&r->thought)) {
        buf_str(&r->messages, "\",\"reasoning_content\":\"");
        buf_join(&r->messages, &r->thought);
    }
    buf_char(&r->messages, '"');
    if (buf_any(&r->called))
        api_put_items(&r->messages, ",\"tool_calls\":[", &r->called);
    buf_str(&r->messages, "}]");
    const struct buf *const texts[N_KEPT] = {&response, &r->messages, &r->given};
    if (!response.failed && !r->messages.failed)
        (void)api_store_put(c->api->store, api_owner(c), c->id, texts);
    buf_deinit(&response);
}

/* --- events --------------------------------------------------------------------------------- */

/* `out` is NULL where nothing is streamed. */
static void begin_event(struct responses *r, const char *name, struct buf *out)
{
    buf_printf(
        out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", name, name, r->sequence++);
}

/* As llama-server's clients ask for them; OpenAI's events have none. */
static void put_timings(const struct api_call *c, uint32_t n_out, struct buf *out)
{
    if (!c->timings_per_token)
        return;
    buf_str(out, ",\"timings\":");
    api_put_timings(&c->choices[0], n_out, out);
}

static void end_event(struct buf *out)
{
    buf_str(out, "}\n\n");
}

/* Where an event belongs: in the item under way, in its only part. Calls have no parts. */
static void put_place(const struct responses *r, struct buf *out)
{
    buf_printf(out, ",\"item_id\":\"%s\",\"output_index\":%u", r->item_id, r->n_items);
    if (r->open != ITEM_CALL)
        buf_str(out, ",\"content_index\":0");
}

/* The part of a message or of reasoning. */
static void put_part(const struct responses *r, bool whole, struct buf *out)
{
    if (r->open == ITEM_MESSAGE) {
        buf_str(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
        if (whole)
            buf_join(out, &r->logprobs);
        buf_str(out, "],\"text\":\"");
    } else {
        buf_str(out, "{\"type\":\"reasoning_text\",\"text\":\"");
    }
    if (whole)
        buf_join(out, &r->text);
    buf_str(out, "\"}");
}

/* The item under way; status NULL: as it begins. */
static void put_item(const struct responses *r, const char *status, struct buf *out)
{
    buf_printf(
        out, "{\"id\":\"%s\",\"status\":\"%s\"", r->item_id, status ? status : "in_progress");
    if (r->open == ITEM_CALL) {
        buf_char(out, ',');
        responses_put_call(r, status != NULL, out);
        buf_char(out, '}');
        return;
    }
    buf_str(out,
            r->open == ITEM_MESSAGE ? ",\"type\":\"message\",\"role\":\"assistant\",\"content\":["
                                    : ",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
    if (status)
        put_part(r, true, out);
    buf_str(out, "]}");
}

static void begin_item(struct responses *r, enum item kind, struct buf *out)
{
    static const char *const prefixes[] = {
        [ITEM_MESSAGE] = "msg_", [ITEM_REASONING] = "rs_", [ITEM_CALL] = "fc_"};
    const bool custom = kind == ITEM_CALL && responses_is_custom(r);
    r->open = kind;
    api_new_id(custom ? "ctc_" : prefixes[kind], r->item_id, sizeof r->item_id);
    buf_clear(&r->text);
    buf_clear(&r->logprobs);
    if (!out)
        return;
    begin_event(r, "response.output_item.added", out);
    buf_printf(out, ",\"output_index\":%u,\"item\":", r->n_items);
    put_item(r, NULL, out);
    end_event(out);
    if (kind == ITEM_CALL)
        return;
    begin_event(r, "response.content_part.added", out);
    put_place(r, out);
    buf_str(out, ",\"part\":");
    put_part(r, false, out);
    end_event(out);
}

/* "response.output_text.delta" and so on. */
static void begin_text_event(struct responses *r, bool done, struct buf *out)
{
    static const char *const names[][2] = {
        [ITEM_MESSAGE] = {"response.output_text.delta", "response.output_text.done"},
        [ITEM_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done"},
        [ITEM_CALL] = {"response.function_call_arguments.delta",
                       "response.function_call_arguments.done"}};
    begin_event(r, names[r->open][done], out);
    put_place(r, out);
}

/* All of it at once, as it is known at its end only. */
static void put_input(struct responses *r, struct buf *out)
{
    static const char *const names[] = {"response.custom_tool_call_input.delta",
                                        "response.custom_tool_call_input.done"};
    for (size_t i = 0; i < 2; i++) {
        begin_event(r, names[i], out);
        put_place(r, out);
        buf_str(out, i ? ",\"input\":\"" : ",\"delta\":\"");
        buf_join(out, &r->input);
        buf_char(out, '"');
        end_event(out);
    }
}

static void put_text_end(struct responses *r, struct buf *out)
{
    begin_text_event(r, true, out);
    buf_str(out, r->open == ITEM_CALL ? ",\"arguments\":\"" : ",\"text\":\"");
    buf_join(out, &r->text);
    buf_char(out, '"');
    if (r->open == ITEM_CALL) {
        buf_char(out, ',');
        responses_put_tool_name(r, out);
    } else if (r->open == ITEM_MESSAGE) {
        api_put_items(out, ",\"logprobs\":[", &r->logprobs);
    }
    end_event(out);
}

static void put_item_end(struct responses *r, const char *status, struct buf *out)
{
    if (r->open == ITEM_CALL && responses_is_custom(r))
        put_input(r, out);
    else
        put_text_end(r, out);
    if (r->open != ITEM_CALL) {
        begin_event(r, "response.content_part.done", out);
        put_place(r, out);
        buf_str(out, ",\"part\":");
        put_part(r, true, out);
        end_event(out);
    }
    begin_event(r, "response.output_item.done", out);
    buf_printf(out, ",\"output_index\":%u,\"item\":", r->n_items);
    put_item(r, status, out);
    end_event(out);
}

/* What the item was, for the turns that come. */
static void remember(struct responses *r)
{
    if (r->open == ITEM_CALL) {
        buf_str(&r->called, r->called.len ? "," : "");
        buf_printf(&r->called,
                   "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"",
                   r->call_id);
        buf_join(&r->called, &r->name);
        buf_str(&r->called, "\",\"arguments\":\"");
        buf_join(&r->called, &r->text);
        buf_str(&r->called, "\"}}");
    } else {
        struct buf *to = r->open == ITEM_MESSAGE ? &r->said : &r->thought;
        buf_join(to, &r->text);
    }
}

static void end_item(struct responses *r, const char *status, struct buf *out)
{
    if (r->open == ITEM_NONE)
        return;
    if (r->open == ITEM_CALL && responses_is_custom(r))
        responses_read_input(r);
    if (out)
        put_item_end(r, status, out);
    buf_str(&r->items, r->n_items ? "," : "");
    put_item(r, status, &r->items);
    remember(r);
    r->n_items++;
    r->open = ITEM_NONE;
}

struct sink {
    struct api_call *call;
    struct buf *out; /* NULL: nothing is streamed */
};

/* Text of the item under way; a message's comes with what is known of its tokens. */
static void add_text(const struct sink *s, const struct reply_event *ev)
{
    struct responses *r = s->call->state;
    struct buf *out = s->out;
    bool message = r->open == ITEM_MESSAGE;
    json_text_escape(&r->text, ev->text, ev->n);
    if (out && !(r->open == ITEM_CALL && responses_is_custom(r))) {
        begin_text_event(r, false, out);
        buf_str(out, ",\"delta\":");
        api_put_str(out, ev->text, ev->n);
        if (message)
            api_put_items(out, ",\"logprobs\":[", &r->noted);
        put_timings(s->call, s->call->choices[0].n_taken, out);
        end_event(out);
    }
    if (message && buf_any(&r->noted)) {
        buf_str(&r->logprobs, r->logprobs.len ? "," : "");
        buf_join(&r->logprobs, &r->noted);
    }
    buf_clear(&r->noted);
}

static void on_event(void *ctx, const struct reply_event *ev)
{
    struct sink *s = ctx;
    struct responses *r = s->call->state;
    enum item kind = ev->kind == REPLY_CONTENT     ? ITEM_MESSAGE
                     : ev->kind == REPLY_REASONING ? ITEM_REASONING
                                                   : ITEM_CALL;
    if (r->open != kind || ev->kind == REPLY_CALL_BEGIN)
        end_item(r, "completed", s->out);
    switch (ev->kind) {
    case REPLY_CONTENT:
    case REPLY_REASONING:
        if (r->open == ITEM_NONE)
            begin_item(r, kind, s->out);
        add_text(s, ev);
        break;
    case REPLY_CALL_BEGIN:
        buf_clear(&r->name);
        json_text_escape(&r->name, ev->text, ev->n);
        responses_find_tool(r, ev->text, ev->n);
        api_reply_call_id(s->call, ev, "call_", r->call_id);
        begin_item(r, ITEM_CALL, s->out);
        break;
    case REPLY_CALL_ARGUMENTS:
        add_text(s, ev);
        break;
    case REPLY_CALL_END:
        end_item(r, "completed", s->out);
        break;
    }
}

static void take_piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    struct responses *r = ch->call->state;
    struct sink s = {ch->call, out};
    if (ch->call->logprobs && p->token >= 0) {
        buf_str(&r->noted, r->noted.len ? "," : "");
        api_put_logprob(ch, (uint32_t)p->token, false, &r->noted);
    }
    api_reply_feed(ch, p, on_event, &s);
}

/* All pieces were given: the last item ends, and there is at least one. */
static void finish(struct api_choice *ch, struct buf *out)
{
    struct responses *r = ch->call->state;
    struct sink s = {ch->call, out};
    api_reply_end(ch, on_event, &s);
    if (r->open == ITEM_NONE && r->n_items == 0)
        begin_item(r, ITEM_MESSAGE, out);
    end_item(r, status_of(ch), out);
    if (request_finish(ch->req) != FINISH_LENGTH)
        r->completed_at = clock_unix();
    keep(ch);
}

/* --- the dialect ---------------------------------------------------------------------------- */

static void open_stream(struct api_call *c, struct buf *out)
{
    static const char *const names[] = {"response.created", "response.in_progress"};
    for (size_t i = 0; i < 2; i++) {
        begin_event(c->state, names[i], out);
        buf_str(out, ",\"response\":");
        put_unfinished(c, "in_progress", NULL, out);
        end_event(out);
    }
}

static void progress(struct api_choice *ch, const char *fields, struct buf *out)
{
    begin_event(ch->call->state, "response.in_progress", out);
    buf_str(out, ",\"response\":");
    put_unfinished(ch->call, "in_progress", NULL, out);
    buf_str(out, fields);
    end_event(out);
}

static void close_choice(struct api_choice *ch, struct buf *out)
{
    struct responses *r = ch->call->state;
    finish(ch, out);
    begin_event(r,
                strcmp(status_of(ch), "completed") == 0 ? "response.completed"
                                                        : "response.incomplete",
                out);
    buf_str(out, ",\"response\":");
    put_finished(ch, out);
    put_timings(ch->call, request_n_completion(ch->req), out);
    end_event(out);
}

static void fail(struct api_call *c, const struct err_info *e, struct buf *out)
{
    begin_event(c->state, "response.failed", out);
    buf_str(out, ",\"response\":");
    put_unfinished(c, "failed", e, out);
    end_event(out);
}

static void whole(struct api_call *c, struct buf *out)
{
    struct api_choice *ch = &c->choices[0];
    struct api_piece p;
    while (api_next_piece(ch, &p))
        take_piece(ch, &p, NULL);
    finish(ch, NULL);
    put_finished(ch, out);
}

static const struct api_rename renames[] = {{"messages", "input"},
                                            {"max_tokens", "max_output_tokens"},
                                            {"response_format", "text.format"},
                                            {0}};

const struct api_dialect api_responses = {
    .id_prefix = "resp_",
    .prompt_field = "input",
    .whole_context = true,
    .renames = renames,
    .adapt = responses_adapt,
    .parse = responses_parse,
    .open = open_stream,
    .piece = take_piece,
    .progress = progress,
    .close = close_choice,
    .fail = fail,
    .whole = whole,
};

/* --- answers that are kept ------------------------------------------------------------------ */

enum err responses_none(const char *id, struct err_info *e)
{
    return err_set(e,
                   ERR_NOT_FOUND,
                   "there is no response '%.48s': it was never kept, was deleted, or gave way to "
                   "newer ones",
                   id);
}

enum err api_response_get(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    const char *id = api_path_after(in->path, "/responses/");
    bool stream = false;
    enum err err = api_query_flag(in, "stream", &stream, e);
    if (err)
        return err;
    if (stream)
        return err_invalid(
            e, "stream", "an answer that is kept is given whole: 'stream' cannot be true");
    struct buf *const texts[N_KEPT] = {[KEPT_RESPONSE] = &c->body};
    return api_store_get(c->api->store, api_owner(c), id, texts) ? OK : responses_none(id, e);
}

enum err api_response_delete(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    const char *id = api_path_after(in->path, "/responses/");
    if (!api_store_remove(c->api->store, api_owner(c), id))
        return responses_none(id, e);
    buf_str(&c->body, "{\"id\":");
    api_put_text(&c->body, id, strlen(id));
    buf_str(&c->body, ",\"object\":\"response\",\"deleted\":true}");
    return OK;
}
