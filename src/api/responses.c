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

#include <string.h>

/* --- the response object -------------------------------------------------------------------- */

static void put_usage(const struct api_choice *ch, struct buf *out)
{
    uint32_t n_prompt, n_out = request_n_completion(ch->req);
    request_prompt(ch->req, &n_prompt);
    buf_printf(out,
               "{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u},"
               "\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":0},"
               "\"total_tokens\":%llu}",
               n_prompt,
               request_n_cached(ch->req),
               n_out,
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
    buf_str(out, "\",\"object\":\"response\",\"created_at\":");
    api_put_int(out, c->created);
    buf_printf(out, ",\"status\":\"%s\",\"model\":", status);
    buf_add(out, c->api->model_json.data, c->api->model_json.len);
    buf_str(out, ",\"error\":");
    if (failure) {
        buf_str(out, "{\"code\":\"server_error\",\"message\":");
        api_put_text(out, failure->text, strlen(failure->text));
        buf_char(out, '}');
    } else {
        buf_str(out, "null");
    }
    buf_str(out, ",\"incomplete_details\":");
    buf_str(out, strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    buf_add(out, r->echo.data, r->echo.len);
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
    buf_add(out, r->items.data, r->items.len);
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
    buf_add(out, r->items.data, r->items.len);
    buf_str(out, "],\"usage\":");
    put_usage(ch, out);
    buf_char(out, '}');
}

/* Keep the answer, and the conversation up to it for the next one. */
static void keep(const struct api_choice *ch)
{
    const struct api_call *c = ch->call;
    struct responses *r = c->state;
    struct buf response = {0};
    if (!r->store)
        return;
    put_finished(ch, &response);
    buf_str(&r->messages, r->messages.len > 1 ? "," : "");
    buf_str(&r->messages, "{\"role\":\"assistant\",\"content\":\"");
    buf_add(&r->messages, r->said.data, r->said.len);
    buf_str(&r->messages, "\"}]");
    (void)api_store_put(c->api->store, c->id, &response, &r->messages);
    buf_deinit(&response);
}

/* --- events --------------------------------------------------------------------------------- */

/* `out` is NULL where nothing is streamed. */
static void begin_event(struct responses *r, const char *name, struct buf *out)
{
    buf_printf(
        out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", name, name, r->sequence++);
}

static void end_event(struct buf *out)
{
    buf_str(out, "}\n\n");
}

/* Where an event belongs: in the item under way, in its only part. */
static void put_place(const struct responses *r, struct buf *out)
{
    buf_printf(
        out, ",\"item_id\":\"%s\",\"output_index\":%u,\"content_index\":0", r->item_id, r->n_items);
}

static void put_part(const struct responses *r, bool whole, struct buf *out)
{
    buf_str(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
    if (whole)
        buf_add(out, r->logprobs.data, r->logprobs.len);
    buf_str(out, "],\"text\":\"");
    if (whole)
        buf_add(out, r->text.data, r->text.len);
    buf_str(out, "\"}");
}

/* The item under way; status NULL: as it begins. */
static void put_item(const struct responses *r, const char *status, struct buf *out)
{
    buf_printf(out,
               "{\"id\":\"%s\",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\","
               "\"content\":[",
               r->item_id,
               status ? status : "in_progress");
    if (status)
        put_part(r, true, out);
    buf_str(out, "]}");
}

static void begin_message(struct responses *r, struct buf *out)
{
    r->open = ITEM_MESSAGE;
    api_new_id("msg_", r->item_id, sizeof r->item_id);
    buf_clear(&r->text);
    buf_clear(&r->logprobs);
    if (!out)
        return;
    begin_event(r, "response.output_item.added", out);
    buf_printf(out, ",\"output_index\":%u,\"item\":", r->n_items);
    put_item(r, NULL, out);
    end_event(out);
    begin_event(r, "response.content_part.added", out);
    put_place(r, out);
    buf_str(out, ",\"part\":");
    put_part(r, false, out);
    end_event(out);
}

static void put_message_end(struct responses *r, const char *status, struct buf *out)
{
    begin_event(r, "response.output_text.done", out);
    put_place(r, out);
    buf_str(out, ",\"text\":\"");
    buf_add(out, r->text.data, r->text.len);
    buf_str(out, "\",\"logprobs\":[");
    buf_add(out, r->logprobs.data, r->logprobs.len);
    buf_char(out, ']');
    end_event(out);
    begin_event(r, "response.content_part.done", out);
    put_place(r, out);
    buf_str(out, ",\"part\":");
    put_part(r, true, out);
    end_event(out);
    begin_event(r, "response.output_item.done", out);
    buf_printf(out, ",\"output_index\":%u,\"item\":", r->n_items);
    put_item(r, status, out);
    end_event(out);
}

static void end_item(struct responses *r, const char *status, struct buf *out)
{
    if (r->open == ITEM_NONE)
        return;
    if (out)
        put_message_end(r, status, out);
    buf_str(&r->items, r->n_items ? "," : "");
    put_item(r, status, &r->items);
    buf_add(&r->said, r->text.data, r->text.len);
    r->n_items++;
    r->open = ITEM_NONE;
}

static void add_text(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    struct responses *r = ch->call->state;
    struct buf logprob = {0};
    if (r->open != ITEM_MESSAGE)
        begin_message(r, out);
    api_put_escaped(&r->text, p->text, p->len);
    if (ch->call->logprobs && p->token >= 0) {
        api_put_logprob(ch, (uint32_t)p->token, false, &logprob);
        buf_str(&r->logprobs, r->logprobs.len ? "," : "");
        buf_add(&r->logprobs, logprob.data, logprob.len);
    }
    if (out) {
        begin_event(r, "response.output_text.delta", out);
        put_place(r, out);
        buf_str(out, ",\"delta\":");
        api_put_str(out, p->text, p->len);
        buf_str(out, ",\"logprobs\":[");
        buf_add(out, logprob.data, logprob.len);
        buf_char(out, ']');
        end_event(out);
    }
    buf_deinit(&logprob);
}

/* All pieces were given: the last item ends, and there is at least one. */
static void finish(struct api_choice *ch, struct buf *out)
{
    struct responses *r = ch->call->state;
    if (r->open == ITEM_NONE && r->n_items == 0)
        begin_message(r, out);
    end_item(r, status_of(ch), out);
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
    end_event(out);
}

static void end_stream(struct api_call *c, struct buf *out)
{
    (void)c;
    (void)out; /* the event with the whole response is the end */
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
        add_text(ch, &p, NULL);
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
    .piece = add_text,
    .close = close_choice,
    .end = end_stream,
    .fail = fail,
    .whole = whole,
};

/* --- answers that are kept ------------------------------------------------------------------ */

static void no_response(struct api_call *c, const char *id)
{
    struct err_info e = {0};
    err_set(&e,
            ERR_NOT_FOUND,
            "there is no response '%.48s': it was never kept, was deleted, or gave way to newer "
            "ones",
            id);
    api_answer_error(c, &e);
}

void api_response_get(struct api_call *c, const struct api_input *in)
{
    const char *id = api_path_after(in->path, "/responses/");
    if (api_store_get(c->api->store, id, &c->body, NULL))
        api_answer_json(c, 200);
    else
        no_response(c, id);
}

void api_response_delete(struct api_call *c, const struct api_input *in)
{
    const char *id = api_path_after(in->path, "/responses/");
    if (!api_store_remove(c->api->store, id)) {
        no_response(c, id);
        return;
    }
    buf_str(&c->body, "{\"id\":");
    api_put_text(&c->body, id, strlen(id));
    buf_str(&c->body, ",\"object\":\"response\",\"deleted\":true}");
    api_answer_json(c, 200);
}
