/* What llama-server adds to OpenAI's answers, and clients of it read:
 *
 *      "timings"            how long prompt and answer took; at the end, or in every chunk
 *      "prompt_progress"    chunks of their own while a prompt is computed
 *      "__verbose"          the prompt and the answer as the model has them, if asked for
 *
 * OpenAI's clients pass over fields that they do not know. Loop thread, but for the last. */
#include "api/native.h"
#include "api/text.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* n tokens in so many steps: an answer's first token comes with the prompt's last step. */
static void put_ms(struct buf *out, const char *name, uint32_t n, uint32_t n_steps, double ms)
{
    buf_printf(out, ",\"%s_n\":%u,\"%s_ms\":", name, n, name);
    api_put_double(out, ms);
    buf_printf(out, ",\"%s_per_token_ms\":", name);
    api_put_double(out, n_steps ? ms / n_steps : 0);
    buf_printf(out, ",\"%s_per_second\":", name);
    api_put_double(out, ms > 0 ? n_steps / ms * 1e3 : 0);
}

static double ms_between(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) * 1e-3 : 0;
}

/* From the first token to the last of n, which may not be the newest; what ended an answer is in no
 * output, and the newest then. */
static double predicted_ms(const struct api_choice *ch, uint32_t n)
{
    struct request_times t = request_times(ch->req);
    if (n == 0)
        return 0;
    return ms_between(t.first_us,
                      n <= request_n_out(ch->req) ? request_out(ch->req)[n - 1].at_us : t.last_us);
}

static void put_timings(const struct api_choice *ch,
                        uint32_t n_prompt,
                        double prompt_ms,
                        uint32_t n_out,
                        struct buf *out)
{
    buf_printf(out, "{\"cache_n\":%u", request_n_cached(ch->req));
    put_ms(out, "prompt", n_prompt, n_prompt, prompt_ms);
    put_ms(out, "predicted", n_out, n_out ? n_out - 1 : 0, predicted_ms(ch, n_out));
    buf_char(out, '}');
}

void api_put_timings(const struct api_choice *ch, uint32_t n_out, struct buf *out)
{
    struct request_times t = request_times(ch->req);
    uint32_t n_prompt;
    request_prompt(ch->req, &n_prompt);
    const uint64_t read_us = t.first_us ? t.first_us : t.end_us; /* there may be no token at all */
    put_timings(
        ch, n_prompt - request_n_cached(ch->req), ms_between(t.admit_us, read_us), n_out, out);
}

/* Of a prompt of which n tokens were there at that time. */
static void put_progress(const struct api_choice *ch, uint32_t n, uint64_t at_us, struct buf *out)
{
    struct request_times t = request_times(ch->req);
    uint32_t n_prompt, n_cached = request_n_cached(ch->req);
    request_prompt(ch->req, &n_prompt);
    double ms = n > n_cached ? ms_between(t.admit_us, at_us) : 0;
    buf_printf(out,
               ",\"prompt_progress\":{\"total\":%u,\"cache\":%u,\"processed\":%u,\"time_ms\":",
               n_prompt,
               n_cached,
               n);
    api_put_double(out, ms);
    buf_char(out, '}');
    if (!ch->call->timings_per_token)
        return;
    buf_str(out, ",\"timings\":");
    put_timings(ch, n - n_cached, ms, 0, out);
}

/* First what was found, then each time that more of it is computed. */
void api_tell_progress(struct api_choice *ch, struct buf *out)
{
    struct buf fields = {0};
    uint32_t n = request_n_prefilled(ch->req), found = request_n_cached(ch->req);
    if (!ch->call->progress || !ch->call->dialect->progress || n <= ch->n_told)
        return;
    if (ch->n_told == 0 && found < n) {
        put_progress(ch, found, 0, &fields);
        ch->call->dialect->progress(ch, buf_cstr(&fields), out);
        buf_clear(&fields);
    }
    uint32_t n_steps;
    const struct request_progress *steps = request_progress(ch->req, &n_steps);
    for (uint32_t i = 0; i <= n_steps; i++) { /* the last one is what there is now */
        const struct request_progress p =
            i < n_steps ? steps[i] : (struct request_progress){clock_us(), n};
        if (p.n_prefilled <= ch->n_told)
            continue;
        ch->n_told = p.n_prefilled;
        put_progress(ch, p.n_prefilled, p.at_us, &fields);
        ch->call->dialect->progress(ch, buf_cstr(&fields), out);
        buf_clear(&fields);
    }
    buf_deinit(&fields);
}

static void put_verbose(const struct api_choice *ch, struct buf *out)
{
    const struct api_call *c = ch->call;
    struct buf text = {0};
    uint32_t n_prompt, n_out = request_n_out(ch->req);
    const token_id *prompt = request_prompt(ch->req, &n_prompt);
    const struct request_token *tokens = request_out(ch->req);
    buf_str(out, ",\"__verbose\":{\"prompt\":");
    native_text(c->tokenizer, prompt, n_prompt, &text);
    api_put_text(out, text.data, text.len);
    buf_clear(&text);
    buf_str(out, ",\"tokens\":[");
    for (uint32_t i = 0; i < n_out; i++) {
        buf_printf(out, "%s%d", i ? "," : "", tokens[i].id);
        native_text(c->tokenizer, &tokens[i].id, 1, &text);
    }
    buf_str(out, "],\"content\":");
    api_put_text(out, text.data, text.len);
    buf_printf(out,
               ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u,\"tokens_cached\":%u,"
               "\"stop_type\":\"%s\",\"generation_settings\":",
               request_n_completion(ch->req),
               n_prompt,
               request_n_cached(ch->req),
               api_stop_type(ch));
    buf_join(out, &c->settings);
    buf_char(out, '}');
    buf_deinit(&text);
}

void api_put_extras(const struct api_choice *ch, struct buf *out)
{
    buf_str(out, ",\"timings\":");
    api_put_timings(ch, request_n_completion(ch->req), out);
    if (ch->call->verbose)
        put_verbose(ch, out);
}

enum err api_read_extras(struct api_call *c,
                         const json_t *body,
                         struct api_params *p,
                         struct err_info *e)
{
    enum err err;
    if ((err = api_get_bool(body, "timings_per_token", &c->timings_per_token, e)) ||
        (err = api_get_bool(body, "return_progress", &c->progress, e)) ||
        (err = api_get_bool(body, "verbose", &c->verbose, e)))
        return err;
    p->request.progress = c->progress && p->stream;
    return OK;
}

/* -1: no limit. */
static enum err read_budget(const json_t *body, int64_t *n, const char **field, struct err_info *e)
{
    static const char *const names[] = {
        "thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"};
    *n = -1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        enum err err = api_get_int(body, names[i], -1, INT32_MAX, n, e);
        if (err)
            return err;
        if (api_get(body, names[i]))
            *field = names[i];
    }
    return OK;
}

enum err api_read_budget(struct api_call *c,
                         const json_t *body,
                         struct api_params *p,
                         struct err_info *e)
{
    const struct reply_thoughts *thoughts = c->reply.style.thoughts;
    const char *field = NULL;
    struct token_list close = {0};
    int64_t n;
    enum err err = read_budget(body, &n, &field, e);
    if (err || n < 0 || !thoughts)
        return err; /* a model that does not reason keeps to every limit */
    struct request_thought t = {
        .on = true, .open = c->reply.start.thinking, .max_tokens = (uint32_t)n};
    const char *begin = reply_thoughts_mark(thoughts, true);
    const char *end = reply_thoughts_mark(thoughts, false);
    struct text_piece piece = {.text = end, .n_bytes = strlen(end), .parse_special = true};
    snprintf(t.begin, sizeof t.begin, "%s", begin);
    snprintf(t.end, sizeof t.end, "%s", end);
    t.first = reply_thoughts_first(thoughts);
    for (size_t i = 0; c->reply.tools && i < sizeof t.call / sizeof t.call[0]; i++) {
        const char *mark = reply_call_in_thoughts(c->reply.style.format, i);
        if (!mark)
            break;
        snprintf(t.call[i], sizeof t.call[i], "%s", mark);
    }
    err = tokenizer_encode(c->tokenizer, &piece, 1, &close, e);
    if (!err && (close.n == 0 || close.n > REQUEST_MAX_CLOSE))
        err = err_invalid(
            e, field, "'%s' cannot be kept to: the model has no mark to end with", field);
    if (!err) {
        memcpy(t.close, close.ids, close.n * sizeof *close.ids);
        t.n_close = (uint32_t)close.n;
        p->request.thought = t;
    }
    token_list_deinit(&close);
    return err;
}
