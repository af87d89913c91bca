/* POST /completion, /completions and /infill: llama-server's own dialect, its answers and its
 * streams.
 *
 *      data: {"index", "content", "tokens", "stop": false, ...}     one for each token
 *      data: {"index", "content": "", ..., "stop": true, ...}       all about one answer; no [DONE]
 *
 * With several prompts an answer is an array, and a stream's events are told apart by `index`. */
#include "api/native.h"
#include "api/text.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Of the choice's text so far; the array is made with the first piece. */
static bool *has_new_line(const struct api_choice *ch)
{
    struct native *s = ch->call->state;
    if (!s->has_new_line)
        s->has_new_line = mem_zalloc(ch->call->n_choices, sizeof *s->has_new_line);
    return &s->has_new_line[ch->index];
}

static void put_tokens(const struct api_choice *ch, int64_t token, struct buf *out)
{
    buf_str(out, ",\"tokens\":[");
    if (token >= 0)
        api_put_int(out, request_out(ch->req)[token].id);
    buf_char(out, ']');
}

static void put_probs(const struct api_choice *ch, uint32_t i, struct buf *out)
{
    const struct native *s = ch->call->state;
    if (s->post_sampling)
        api_put_prob(ch, i, out);
    else
        api_put_logprob(ch, i, true, out);
}

static uint32_t n_prompt_of(const struct api_choice *ch)
{
    uint32_t n;
    request_prompt(ch->req, &n);
    return n;
}

/* Events without text, while the prompt is computed. */
static void progress(struct api_choice *ch, const char *fields, struct buf *out)
{
    const struct native *s = ch->call->state;
    buf_printf(out,
               "data: {\"index\":%u,\"content\":\"\",\"tokens\":[],\"stop\":false,\"id_slot\":",
               ch->index);
    api_put_int(out, s->id_slot);
    buf_printf(out, ",\"tokens_predicted\":0,\"tokens_evaluated\":%u", n_prompt_of(ch));
    buf_str(out, fields);
    buf_str(out, "}\n\n");
}

static void piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    const struct native *s = ch->call->state;
    *has_new_line(ch) |= p->len > 0 && memchr(p->text, '\n', p->len);
    buf_printf(out, "data: {\"index\":%u,\"content\":", ch->index);
    api_put_str(out, p->text, p->len);
    put_tokens(ch, p->token, out);
    buf_str(out, ",\"stop\":false,\"id_slot\":");
    api_put_int(out, s->id_slot);
    buf_printf(
        out, ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u", ch->n_taken, n_prompt_of(ch));
    if (ch->call->timings_per_token) {
        buf_str(out, ",\"timings\":");
        api_put_timings(ch, ch->n_taken, out);
    }
    if (ch->call->logprobs && p->token >= 0) {
        buf_str(out, ",\"completion_probabilities\":[");
        put_probs(ch, (uint32_t)p->token, out);
        buf_char(out, ']');
    }
    buf_str(out, "}\n\n");
}

const char *api_stop_type(const struct api_choice *ch)
{
    switch (request_stop(ch->req)) {
    case STOP_EOG:
    case STOP_ID:
    case STOP_GRAMMAR:
        return "eos";
    case STOP_TEXT:
        return "word";
    case STOP_NONE:
    case STOP_INDENT:
    case STOP_TIME:
        break;
    }
    return "limit";
}

/* Did the context end it, rather than n_predict? */
static bool truncated(const struct api_choice *ch)
{
    const struct native *s = ch->call->state;
    return request_finish(ch->req) == FINISH_LENGTH && request_stop(ch->req) == STOP_NONE &&
           (s->n_predict < 0 || request_n_completion(ch->req) < s->n_predict);
}

/* From "id_slot" on, the same in answers and in a stream's last event. */
static void put_end(const struct api_choice *ch, struct buf *out)
{
    const struct api_call *c = ch->call;
    const struct native *s = c->state;
    const struct buf *prompt = &c->echoes[ch->index / c->n_per_prompt];
    uint32_t n_out = request_n_completion(ch->req);
    buf_str(out, ",\"id_slot\":");
    api_put_int(out, s->id_slot);
    buf_str(out, ",\"stop\":true");
    api_field_model(c, "model", out);
    buf_printf(out,
               ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u,\"generation_settings\":",
               n_out,
               n_prompt_of(ch));
    if (s->fields) /* which are made of them once for all answers */
        buf_str(out, "null");
    else
        buf_join(out, &c->settings);
    buf_str(out, ",\"prompt\":");
    api_put_text(out, prompt->data, prompt->len);
    const char *word = request_stop(ch->req) == STOP_TEXT ? request_stop_text(ch->req) : "";
    api_field_bool(out, "has_new_line", *has_new_line(ch));
    api_field_bool(out, "truncated", truncated(ch));
    api_field_text(out, "stop_type", api_stop_type(ch));
    api_field_text(out, "stopping_word", word);
    buf_printf(out, ",\"tokens_cached\":%u,\"timings\":", request_n_cached(ch->req));
    api_put_timings(ch, n_out, out);
    api_add_own_timeline(ch, out);
    buf_char(out, '}');
}

static void close_choice(struct api_choice *ch, struct buf *out)
{
    const struct native *s = ch->call->state;
    struct buf all = {0};
    buf_printf(&all, "{\"index\":%u,\"content\":\"\",\"tokens\":[]", ch->index);
    put_end(ch, &all);
    buf_str(out, "data: ");
    native_put_selected(s, &all, out);
    buf_str(out, "\n\n");
    buf_deinit(&all);
}

static void put_choice(struct api_choice *ch, struct buf *out)
{
    struct api_call *c = ch->call;
    const struct native *s = c->state;
    struct buf all = {.may_fail = true}, tokens = all, probs = all;
    struct api_piece p;
    buf_printf(&all, "{\"index\":%u,\"content\":\"", ch->index);
    while (api_next_piece(ch, &p)) {
        *has_new_line(ch) |= p.len > 0 && memchr(p.text, '\n', p.len);
        json_text_escape(&all, p.text, p.len);
        if (p.token < 0)
            continue;
        buf_str(&tokens, tokens.len ? "," : "");
        api_put_int(&tokens, request_out(ch->req)[p.token].id);
        if (c->logprobs) {
            buf_str(&probs, probs.len ? "," : "");
            put_probs(ch, (uint32_t)p.token, &probs);
        }
    }
    buf_str(&all, "\",\"tokens\":[");
    if (s->tokens)
        buf_join(&all, &tokens);
    buf_char(&all, ']');
    if (c->logprobs)
        api_put_items(&all, ",\"completion_probabilities\":[", &probs);
    put_end(ch, &all);
    native_put_selected(s, &all, out);
    buf_deinit(&all);
    buf_deinit(&tokens);
    buf_deinit(&probs);
}

/* One answer is an object; several are an array. */
static void whole(struct api_call *c, struct buf *out)
{
    if (c->n_choices > 1)
        buf_char(out, '[');
    for (uint32_t i = 0; i < c->n_choices; i++) {
        if (i > 0)
            buf_char(out, ',');
        put_choice(&c->choices[i], out);
    }
    if (c->n_choices > 1)
        buf_char(out, ']');
}

static const struct api_rename renames[] = {{"max_tokens", "n_predict"}, {"n", "n_cmpl"}, {0}};

/* The last event, which has "stop": true, is the end. */
#define NATIVE_DIALECT(field, adapts, parses)                                                      \
    {                                                                                              \
        .id_prefix = "cmpl-", .prompt_field = (field), .whole_context = true, .any_model = true,   \
        .renames = renames, .adapt = (adapts), .parse = (parses), .piece = piece,                  \
        .progress = progress, .close = close_choice, .fail = api_openai_fail, .whole = whole       \
    }

const struct api_dialect api_native = NATIVE_DIALECT("prompt", native_adapt, native_parse);
const struct api_dialect api_infill = NATIVE_DIALECT("input_prefix", infill_adapt, infill_parse);
