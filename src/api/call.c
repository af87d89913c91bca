/* The life of a call on the loop thread: its events come in, its bytes go out, it ends.
 *
 * Events name requests; each is noted in its choice, and the call goes on the list of news once. A
 * call may be on the list when it ends: then taking it off the list frees it. */
#include "api/text.h"
#include "api/vectors.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One pull writes about this much at most, so that a reader who was slow gets the rest later. */
#define PULL_BYTES (64u << 10)
/* Answers with more log-probabilities, values of vectors or ids are written by another thread. */
#define LONG_LOGPROBS 4096
#define LONG_VALUES 16384
#define LONG_IDS 16384
#define LONG_REPEATED (1 << 20)

const char *api_finish_name(enum finish f)
{
    return f == FINISH_LENGTH ? "length" : "stop";
}

static void put_counts(uint64_t prompt, uint64_t completion, struct buf *out)
{
    api_field_int(out, "prompt_tokens", (int64_t)prompt);
    api_field_int(out, "completion_tokens", (int64_t)completion);
    api_field_int(out, "total_tokens", (int64_t)(prompt + completion));
}

/* The usage field of a chunk that is not the last: what the choice itself came to, or null. */
static void put_chunk_usage(const struct api_choice *ch, struct buf *out)
{
    uint32_t n_prompt;
    if (!ch->call->include_usage)
        return;
    if (!ch->call->usage_so_far) {
        buf_str(out, ",\"usage\":null");
        return;
    }
    request_prompt(ch->req, &n_prompt);
    buf_str(out, ",\"usage\":{");
    put_counts(n_prompt, ch->ended ? request_n_completion(ch->req) : ch->n_taken, out);
    buf_char(out, '}');
}

/* The usage object of the call, all requests finished. */
static void put_usage(const struct api_call *c, struct buf *out)
{
    uint64_t prompt = 0, cached = 0, completion = 0, thoughts = 0;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const struct request *r = c->choices[i].req;
        completion += request_n_completion(r);
        thoughts += c->choices[i].n_thoughts;
        if (i % c->n_per_prompt == 0) { /* a prompt counts once, however many choices it has */
            uint32_t n;
            request_prompt(r, &n);
            prompt += n;
            cached += request_n_cached(r);
        }
    }
    buf_char(out, '{');
    put_counts(prompt, completion, out);
    buf_str(out, ",\"prompt_tokens_details\":{");
    api_field_int(out, "cached_tokens", (int64_t)cached);
    buf_str(out, "},\"completion_tokens_details\":{");
    api_field_int(out, "reasoning_tokens", (int64_t)thoughts);
    buf_str(out, "}}");
}

void api_chunk_begin(const struct api_choice *ch, struct buf *out)
{
    buf_join(out, &ch->call->prefix);
    buf_str(out, "{\"index\":");
    api_put_int(out, ch->index);
}

/* Is there one behind those of the choices? */
static bool has_last_chunk(const struct api_call *c)
{
    return c->include_usage || c->timeline;
}

void api_openai_progress(struct api_choice *ch, const char *fields, struct buf *out)
{
    api_chunk_begin(ch, out);
    buf_str(out, ch->call->dialect == &api_chat ? ",\"delta\":{}" : ",\"text\":\"\"");
    buf_str(out, ",\"logprobs\":null,\"finish_reason\":null}]");
    put_chunk_usage(ch, out);
    buf_str(out, fields);
    buf_str(out, "}\n\n");
}

/* What is told of a chat's one prompt, beside the choices of what comes first. */
static void put_chat_prompt(struct api_call *c, struct buf *out)
{
    if (c->dialect != &api_chat)
        return;
    api_put_prompt_ids(&c->choices[0], out);
    api_put_prompt_logprobs(&c->choices[0], out);
}

void api_chunk_end(const struct api_choice *ch, const char *finish, struct buf *out)
{
    api_field_text(out, "finish_reason", finish);
    buf_str(out, "}]");
    put_chat_prompt(ch->call, out);
    put_chunk_usage(ch, out);
    if (finish && !has_last_chunk(ch->call)) {
        api_put_extras(ch, out);
    } else if (ch->call->timings_per_token && ch->n_taken > 0) {
        buf_str(out, ",\"timings\":");
        api_put_timings(ch, ch->n_taken, out);
    }
    buf_str(out, "}\n\n");
}

/* What ended a choice other than its own end, as an error; false if nothing did. */
static bool failure_of(const struct api_choice *ch, struct err_info *e)
{
    if (!ch->done)
        return false;
    const struct err_info *own = request_error(ch->req);
    switch (request_finish(ch->req)) {
    case FINISH_ERROR:
        if (own->code == OK)
            err_set(e, ERR_INTERNAL, "the request failed");
        else if (ch->call->vectors)
            err_set(e, own->code, "text %u: %s", ch->index, own->text);
        else
            *e = *own;
        return true;
    case FINISH_CANCELLED: /* its client is still here: the drain ran out of time */
        err_set(e, ERR_DRAINING, "the server is shutting down");
        return true;
    case FINISH_STOP:
    case FINISH_NONE:
    case FINISH_LENGTH:
        break;
    }
    return false;
}

static bool failed(const struct api_call *c, struct err_info *e)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        if (failure_of(&c->choices[i], e))
            return true;
    }
    return false;
}

/* Give the answer's head, and count it once. */
static void fill_answer(struct api_call *c, struct api_answer *answer)
{
    *answer = c->answer;
    if (!c->counted)
        api_count_answer(c->api, c->answer.status);
    c->counted = true;
}

/* Not copied, unless something was there: it may be hundreds of megabytes. */
static void give_body(struct api_call *c, struct buf *out)
{
    if (out->len > 0) {
        buf_join(out, &c->body);
        return;
    }
    buf_deinit(out);
    *out = c->body;
    c->body = (struct buf){.may_fail = true};
}

/* An answer that was complete from the start, or an error. */
static enum api_pull pull_body(struct api_call *c, struct api_answer *answer, struct buf *out)
{
    api_settle(c); /* before the client knows */
    give_body(c, out);
    if (out->failed)
        return API_DONE;
    fill_answer(c, answer);
    return c->file_fd >= 0 ? api_pull_file(c, out) : API_DONE;
}

/* Of all vectors; none of what is ranked is shown. */
static uint64_t n_values(const struct api_call *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; c->vectors && i < c->n_choices; i++)
        n += request_n_vectors(c->choices[i].req) * (uint64_t)c->vectors->n_dims;
    return n;
}

/* Bytes of the request that answers repeat. */
static uint64_t n_repeated(const struct api_call *c)
{
    uint64_t n = c->settings.len * (uint64_t)c->n_choices;
    for (uint32_t i = 0; c->echoes && i < c->n_prompts; i++)
        n += c->echoes[i].len * (uint64_t)c->n_per_prompt;
    return n;
}

/* Whether the loop thread, and all streams, would wait for it: some 2 microseconds for each
 * log-probability. */
static bool takes_long(const struct api_call *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; c->logprobs && i < c->n_choices; i++) {
        uint32_t n_prompt = 0;
        (void)request_prompt_logprobs(c->choices[i].req, &n_prompt);
        n += n_prompt + request_n_completion(c->choices[i].req);
    }
    n = n * (1 + c->n_top) + api_n_prompt_logprobs(c, c->dialect);
    return n > LONG_LOGPROBS || n_values(c) > LONG_VALUES || api_n_ids(c) > LONG_IDS ||
           n_repeated(c) > LONG_REPEATED;
}

/* One object once all choices have ended; nothing is written before. */
static enum api_pull pull_whole(struct api_call *c, struct api_answer *answer, struct buf *out)
{
    if (c->n_running > 0)
        return API_WAIT;
    if (!c->written && takes_long(c))
        return API_WORK;
    if (c->written)
        give_body(c, out);
    else
        c->dialect->whole(c, out);
    if (!out->failed)
        fill_answer(c, answer);
    return API_DONE;
}

/* All requests have ended, so nobody else writes what this reads. */
void api_work(struct api_call *c)
{
    c->dialect->whole(c, &c->body);
    c->written = true;
}

void api_put_choices(struct api_call *c,
                     void (*choice)(struct api_choice *ch, struct buf *out),
                     struct buf *out)
{
    buf_join(out, &c->prefix);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        if (i > 0)
            buf_char(out, ',');
        choice(&c->choices[i], out);
    }
    buf_char(out, ']');
    put_chat_prompt(c, out);
    buf_str(out, ",\"usage\":");
    put_usage(c, out);
    api_add_timeline(c, out);
    api_put_extras(&c->choices[0], out);
    buf_char(out, '}');
}

void api_openai_fail(struct api_call *c, const struct err_info *e, struct buf *out)
{
    buf_str(out, "data: ");
    api_put_error(c->shape, api_shape_status(c->shape, e->code), e, c->answer.request_id, out);
    buf_str(out, "\n\n");
}

void api_named_fail(struct api_call *c, const struct err_info *e, struct buf *out)
{
    buf_str(out, "event: error\n");
    api_openai_fail(c, e, out);
}

/* The chunk of usage and timeline, if there is one, and the end mark. */
void api_openai_end(struct api_call *c, struct buf *out)
{
    if (has_last_chunk(c)) {
        buf_join(out, &c->prefix);
        buf_char(out, ']');
        if (c->include_usage) {
            buf_str(out, ",\"usage\":");
            put_usage(c, out);
        }
        api_add_timeline(c, out);
        api_put_extras(&c->choices[0], out);
        buf_str(out, "}\n\n");
    }
    buf_str(out, "data: [DONE]\n\n");
}

/* An echo with log-probabilities waits for them, and they are there with the first token. */
static bool echo_is_due(const struct api_choice *ch)
{
    return ch->call->echo && !ch->echoed && (ch->done || request_n_out(ch->req) > 0);
}

/* Write what one choice has; true when its last chunk is written. */
static bool stream_choice(struct api_choice *ch, struct buf *out, size_t full)
{
    struct api_piece p;
    if (ch->closed)
        return true;
    api_tell_progress(ch, out);
    while (out->len < full) {
        if (echo_is_due(ch)) {
            ch->call->dialect->echo(ch, out);
            continue;
        }
        if (api_next_piece(ch, &p)) {
            ch->call->dialect->piece(ch, &p, out);
            continue;
        }
        if (ch->ended) {
            ch->call->dialect->close(ch, out);
            ch->closed = true;
        }
        break;
    }
    return ch->closed;
}

/* Choices take turns by what they have; the first pull also opens the stream, so that its head goes
 * out while the prompt is still computed. */
static enum api_pull pull_stream(struct api_call *c, struct api_answer *answer, struct buf *out)
{
    struct err_info e = {0};
    size_t begin = out->len;
    bool opening = !c->opened, broken = failed(c, &e);
    uint32_t n_closed = 0;
    if (opening) {
        c->opened = true;
        if (c->dialect->open)
            c->dialect->open(c, out);
    }
    for (uint32_t i = 0; i < c->n_choices && !broken; i++)
        n_closed += stream_choice(&c->choices[i], out, begin + PULL_BYTES);
    if (!broken && !opening && out->len == begin && n_closed < c->n_choices)
        return API_WAIT;
    fill_answer(c, answer);
    if (broken)
        c->dialect->fail(c, &e, out);
    else if (n_closed == c->n_choices && c->dialect->end)
        c->dialect->end(c, out);
    return broken || n_closed == c->n_choices ? API_DONE : API_MORE;
}

static enum api_pull pull(struct api_call *c, struct api_answer *answer, struct buf *out)
{
    struct err_info e = {0};
    if (c->dialect && !c->answer.stream && failed(c, &e)) {
        /* a failure has its status, but for a stream, whose head may be out or not as it happens */
        api_answer_error(c, &e);
        c->dialect = NULL;
    }
    if (!c->dialect)
        return pull_body(c, answer, out);
    if (!c->answer.stream)
        return pull_whole(c, answer, out);
    return pull_stream(c, answer, out);
}

static void choice_deinit(struct api_choice *ch)
{
    request_destroy(ch->req);
    reply_destroy(ch->reply);
    buf_deinit(&ch->logprobs);
    buf_deinit(&ch->tokens);
}

void api_choices_destroy(struct api_call *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++)
        choice_deinit(&c->choices[i]);
    free(c->choices);
    c->choices = NULL;
    c->n_choices = 0;
    for (uint32_t i = 0; c->echoes && i < c->n_prompts; i++)
        buf_deinit(&c->echoes[i]);
    free(c->echoes);
    c->echoes = NULL;
    c->n_prompts = 0;
}

/* What the answer was made of; its head stays. No request runs. */
static void drop_makings(struct api_call *c)
{
    api_settle(c);
    api_record_requests(c);
    api_choices_destroy(c);
    if (c->free_state)
        c->free_state(c->state);
    c->free_state = NULL;
    chat_tools_deinit(&c->tools);
    buf_deinit(&c->body);
    buf_deinit(&c->prefix);
    buf_deinit(&c->text);
    buf_deinit(&c->settings);
    api_vectors_destroy(c->api, c->vectors);
    c->vectors = NULL;
}

/* There was no memory for what was to come: unless its head is out an error comes instead, of a
 * stream as its last event. n_out: bytes of before. */
static enum api_pull pull_starved(struct api_call *c,
                                  struct api_answer *answer,
                                  struct buf *out,
                                  size_t n_out)
{
    struct err_info e = {0};
    (void)api_no_memory(&e);
    if (n_out == 0)
        buf_deinit(out);
    out->len = n_out;
    out->failed = false;
    enum api_pull pulled = API_DONE;
    if (c->opened) {
        c->dialect->fail(c, &e, out);
    } else {
        buf_deinit(&c->body);
        api_answer_error(c, &e);
        c->dialect = NULL;
        pulled = pull_body(c, answer, out);
    }
    return out->failed ? API_CUT : pulled;
}

/* What waits for its reader afterwards is the bytes alone. */
enum api_pull api_pull(struct api_call *c, struct api_answer *answer, struct buf *out)
{
    size_t before = out->len;
    enum api_pull pulled = pull(c, answer, out);
    if (out->failed && pulled != API_CUT)
        pulled = pull_starved(c, answer, out, before);
    c->bytes_out += out->len - before;
    c->whole |= pulled == API_DONE;
    if (pulled == API_DONE && c->n_running == 0)
        drop_makings(c);
    return pulled;
}

static void call_destroy(struct api_call *c)
{
    drop_makings(c);
    api_record_end(c);
    buf_deinit(&c->computed.timeline);
    if (c->file_fd >= 0)
        close(c->file_fd);
    free(c);
}

void api_cut(struct api_call *c)
{
    c->whole = false;
}

/* Requests that still run are cancelled and keep the call alive; api_next frees it after the last
 * terminal event. */
void api_end(struct api_call *c)
{
    c->ended = true;
    c->end_us = clock_us();
    for (uint32_t i = 0; i < c->n_choices; i++) {
        if (!c->choices[i].done)
            engine_cancel(c->engine, c->choices[i].req);
    }
    if (c->n_running == 0 && !c->listed)
        call_destroy(c);
}

/* Note an event of one request, and that its call has news. */
static void note_event(struct api *a, struct request *r)
{
    struct api_choice *ch = request_user(r);
    struct api_call *c = ch->call;
    if (request_finish(r) != FINISH_NONE && !ch->done) {
        ch->done = true;
        if (--c->n_running == 0)
            api_settle(c);
    }
    if (c->listed)
        return;
    c->listed = true;
    c->next_news = NULL;
    *(a->news_head ? &a->news_tail->next_news : &a->news_head) = c;
    a->news_tail = c;
}

void *api_next(struct api *a)
{
    struct engine *eng = atomic_load_explicit(&a->engine, memory_order_acquire);
    struct request *r;
    /* all events first: a call with many choices is named once for them all */
    while (eng && (r = engine_next_event(eng)))
        note_event(a, r);
    struct api_call *c;
    while ((c = a->news_head)) {
        a->news_head = c->next_news;
        c->listed = false;
        if (!c->ended)
            return c->name;
        if (c->n_running == 0)
            call_destroy(c);
    }
    return NULL;
}
