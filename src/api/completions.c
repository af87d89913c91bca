/* POST /v1/completions: text or token ids in, text out.
 *
 * The one dialect with several prompts, with echo, and with log-probabilities as parallel lists,
 * which are gathered in buffers of their own and written behind the text. */
#include "api/native.h"
#include "api/text.h"

#include <stdio.h>
#include <string.h>

/* In one chunk of a stream, those of the most likely tokens included: some milliseconds of the loop
 * thread. */
#define ECHO_LOGPROBS 2048

static const struct api_refused refused[] = {
    {"suffix", NEUTRAL_EMPTY, 0},
    {"messages", NEUTRAL_NOTHING, 0},
};

/* A text prompt. Its control tokens are plain text, as a user cannot speak for the system; unless
 * the client says that it wrote them itself. */
static enum err text_prompt(struct api_call *c,
                            const json_t *v,
                            const char *field,
                            struct api_prompt *p,
                            struct err_info *e)
{
    const enum err err =
        native_encode(c->tokenizer, v, !c->no_special, c->parse_special, &p->ids, e);
    if (err)
        return api_not_tokenized(err, field, e);
    if (p->ids.n == 0)
        return err_invalid(e, field, "'%s' is empty", field);
    if (c->echo)
        buf_add(&p->text, json_string_value(v), json_string_length(v));
    return OK;
}

enum err api_ids_prompt(struct api_call *c,
                        const json_t *v,
                        const char *field,
                        struct api_prompt *p,
                        struct err_info *e)
{
    int64_t n_vocab = tokenizer_n_vocab(c->tokenizer), id;
    size_t n = json_array_size(v);
    if (n == 0)
        return err_invalid(e, field, "'%s' is empty", field);
    enum err err = token_list_room(&p->ids, n, e);
    for (size_t i = 0; !err && i < n; i++) {
        const json_t *item = json_array_get(v, i);
        char at[64];
        if (!api_is_whole(item, &id)) {
            snprintf(at, sizeof at, "%s[%zu]", field, i);
            return api_wrong_type(at, "a token id like the others", item, e);
        }
        if (id < 0 || id >= n_vocab)
            return err_invalid(e,
                               field,
                               "token id %lld at index %zu of '%s' is outside the vocabulary of "
                               "%lld",
                               (long long)id,
                               i,
                               field,
                               (long long)n_vocab);
        token_list_add(&p->ids, (token_id)id);
    }
    if (!err && c->echo) {
        struct utf8_stream u = {0};
        struct buf bytes = {0};
        tokenizer_decode(c->tokenizer, p->ids.ids, p->ids.n, false, &bytes);
        utf8_feed(&u, bytes.data, bytes.len, true, &p->text);
        buf_deinit(&bytes);
    }
    return err;
}

static enum err one_prompt(struct api_call *c,
                           const json_t *v,
                           const char *field,
                           struct api_prompt *p,
                           struct err_info *e)
{
    if (json_is_string(v))
        return text_prompt(c, v, field, p, e);
    if (json_is_array(v))
        return api_ids_prompt(c, v, field, p, e);
    return api_wrong_type(field, "a string or an array of token ids", v, e);
}

/* An array of texts, or of arrays of ids: one prompt each. */
static enum err many_prompts(struct api_call *c,
                             const json_t *v,
                             struct api_job *job,
                             struct err_info *e)
{
    uint32_t max = c->api->max_choices;
    size_t n = json_array_size(v);
    if (n > max / job->params.n)
        return err_invalid(e,
                           "prompt",
                           "%zu prompts with n = %u make more than the %u choices a request may "
                           "have",
                           n,
                           job->params.n,
                           max);
    return api_read_prompts(c, v, "prompt", one_prompt, job, e);
}

/* Which of the four forms: the first element decides between ids and several prompts. */
static enum err parse_prompt(struct api_call *c,
                             const json_t *body,
                             struct api_job *job,
                             struct err_info *e)
{
    const json_t *v = api_get(body, "prompt");
    if (!v)
        return err_invalid(e, "prompt", "'prompt' is required");
    if (json_is_string(v))
        return text_prompt(c, v, "prompt", api_job_prompts(job, 1), e);
    if (!json_is_array(v))
        return api_wrong_type(
            "prompt", "a string, an array of strings, or (an array of) arrays of token ids", v, e);
    if (json_array_size(v) == 0 || json_is_number(json_array_get(v, 0)))
        return api_ids_prompt(c, v, "prompt", api_job_prompts(job, 1), e);
    return many_prompts(c, v, job, e);
}

static enum err parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    int64_t n_logprobs = -1;
    bool add_special = true;
    enum err err;
    if ((err = api_refuse_fields(body, refused, sizeof refused / sizeof refused[0], e)) ||
        (err = api_get_bool(body, "echo", &c->echo, e)) ||
        (err = api_get_bool(body, "parse_special", &c->parse_special, e)) ||
        (err = api_get_bool(body, "add_special_tokens", &add_special, e)) ||
        (err = api_get_int(body, "logprobs", 0, REQUEST_MAX_TOP_LOGPROBS, &n_logprobs, e)))
        return err;
    c->no_special = !add_special;
    c->logprobs = n_logprobs >= 0;
    c->n_top = c->logprobs ? (uint32_t)n_logprobs : 0;
    job->params.request.prompt_logprobs = c->echo && c->logprobs;
    return parse_prompt(c, body, job, e);
}

/* The four parallel lists of a "logprobs" object. */
struct lists {
    struct buf tokens, logprobs, top, offsets;
};

static void lists_deinit(struct lists *l)
{
    buf_deinit(&l->tokens);
    buf_deinit(&l->logprobs);
    buf_deinit(&l->top);
    buf_deinit(&l->offsets);
}

static void comma(struct buf *b)
{
    if (b->len > 0)
        buf_char(b, ',');
}

/* Some vocabularies have several ids for one text; as a key it may come once. */
static bool same_name(const struct api_call *c, token_id a, token_id b)
{
    const struct tokenizer *t = c->tokenizer;
    size_t n_a, n_b;
    if (c->tokens_as_ids)
        return a == b;
    const char *s_a = tokenizer_bytes(t, a, true, &n_a), *s_b = tokenizer_bytes(t, b, true, &n_b);
    return n_a == n_b && (n_a == 0 || memcmp(s_a, s_b, n_a) == 0);
}

/* {"text": logprob, ...} of the most likely tokens and of the one that came. Ids that spell the
 * same share a key, the most likely one's. */
static void put_top(const struct api_call *c,
                    const struct token_logprob *top,
                    struct token_logprob own,
                    struct buf *out)
{
    bool own_seen = false;
    const char *between = "";
    buf_char(out, '{');
    for (uint32_t i = 0; i < c->n_top && top; i++) {
        bool seen = false;
        for (uint32_t j = 0; j < i && !seen; j++)
            seen = same_name(c, top[i].id, top[j].id);
        own_seen |= same_name(c, top[i].id, own.id);
        if (seen)
            continue;
        buf_str(out, between);
        between = ",";
        api_put_token_name(c, top[i].id, true, out);
        buf_char(out, ':');
        api_put_float(out, top[i].logprob);
    }
    if (!own_seen) {
        buf_str(out, between);
        api_put_token_name(c, own.id, true, out);
        buf_char(out, ':');
        api_put_float(out, own.logprob);
    }
    buf_char(out, '}');
}

/* One token into the lists; `first` is the prompt's, which nothing predicts. */
static void add_logprob(const struct api_call *c,
                        struct lists *l,
                        struct token_logprob own,
                        const struct token_logprob *top,
                        bool first,
                        uint32_t offset)
{
    comma(&l->tokens);
    comma(&l->logprobs);
    comma(&l->top);
    comma(&l->offsets);
    api_put_token_name(c, own.id, true, &l->tokens);
    api_put_int(&l->offsets, offset);
    if (first) {
        buf_str(&l->logprobs, "null");
        buf_str(&l->top, "null");
        return;
    }
    api_put_float(&l->logprobs, own.logprob);
    put_top(c, top, own, &l->top);
}

static const struct buf *echo_of(const struct api_choice *ch)
{
    return &ch->call->echoes[ch->index / ch->call->n_per_prompt];
}

/* The next `most` tokens of the echoed prompt, and where their characters begin. */
static void add_prompt_logprobs(struct api_choice *ch, uint32_t most, struct lists *l)
{
    struct api_call *c = ch->call;
    uint32_t n, n_prompt;
    const float *logprobs = request_prompt_logprobs(ch->req, &n);
    const token_id *ids = request_prompt(ch->req, &n_prompt);
    n = n < n_prompt ? n : n_prompt;
    for (; most > 0 && ch->n_echoed < n; most--) {
        const uint32_t i = ch->n_echoed++;
        size_t len;
        const char *s = tokenizer_bytes_at(c->tokenizer, ids, i, false, &len);
        struct token_logprob own = {.id = ids[i], .logprob = logprobs[i]};
        add_logprob(c, l, own, request_prompt_top(ch->req, i), i == 0, ch->echo_chars);
        buf_clear(&c->text);
        utf8_feed(&ch->utf8, s, len, ch->n_echoed == n, &c->text);
        ch->echo_chars += api_count_chars(c->text.data, c->text.len);
    }
    ch->echoed = ch->n_echoed >= n;
}

static void add_piece_logprob(struct api_choice *ch, int64_t token, struct lists *l)
{
    if (token < 0)
        return;
    const struct request_token *t = &request_out(ch->req)[token];
    struct token_logprob own = {.id = t->id, .logprob = t->logprob};
    add_logprob(ch->call, l, own, request_top(ch->req, (uint32_t)token), false, ch->n_chars);
}

static void put_lists(const struct api_call *c, const struct lists *l, struct buf *out)
{
    if (!c->logprobs) {
        buf_str(out, ",\"logprobs\":null");
        return;
    }
    api_put_items(out, ",\"logprobs\":{\"tokens\":[", &l->tokens);
    api_put_items(out, ",\"token_logprobs\":[", &l->logprobs);
    if (c->n_top > 0)
        api_put_items(out, ",\"top_logprobs\":[", &l->top);
    else
        buf_str(out, ",\"top_logprobs\":null");
    api_put_items(out, ",\"text_offset\":[", &l->offsets);
    buf_char(out, '}');
}

/* The prompt, as the first part of the choice's text. */
static const struct buf *take_echo(struct api_choice *ch, struct lists *l)
{
    const struct buf *text = echo_of(ch);
    if (ch->call->logprobs)
        add_prompt_logprobs(ch, UINT32_MAX, l);
    ch->n_chars += api_count_chars(text->data, text->len);
    return text;
}

/* Each choice has its own prompt's. */
static void put_ids(struct api_choice *ch, struct buf *out)
{
    api_put_prompt_logprobs(ch, out);
    api_put_prompt_ids(ch, out);
    api_put_own_ids(ch, out);
}

/* The same in a stream: all of the text, then its log-probabilities, so many to a chunk. */
static void echo_chunk(struct api_choice *ch, struct buf *out)
{
    struct api_call *c = ch->call;
    struct lists l = {0};
    const struct buf *text = echo_of(ch);
    const bool first = ch->n_echoed == 0;
    if (c->logprobs)
        add_prompt_logprobs(ch, ECHO_LOGPROBS / (1 + c->n_top), &l);
    else
        ch->echoed = true;
    api_chunk_begin(ch, out);
    buf_str(out, ",\"text\":");
    api_put_str(out, text->data, first ? text->len : 0);
    put_lists(c, &l, out);
    put_ids(ch, out);
    api_chunk_end(ch, NULL, out);
    ch->n_chars += first ? api_count_chars(text->data, text->len) : 0;
    lists_deinit(&l);
}

/* The prompt is known at once; its log-probabilities are when the first token is. */
static void open_stream(struct api_call *c, struct buf *out)
{
    for (uint32_t i = 0; c->echo && !c->logprobs && i < c->n_choices; i++)
        echo_chunk(&c->choices[i], out);
}

/* The hot path: without lists it writes straight into *out. */
static void piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    struct api_call *c = ch->call;
    api_chunk_begin(ch, out);
    buf_str(out, ",\"text\":");
    api_put_str(out, p->text, p->len);
    if (c->logprobs) {
        struct lists l = {0};
        add_piece_logprob(ch, p->token, &l);
        put_lists(c, &l, out);
        lists_deinit(&l);
    } else {
        buf_str(out, ",\"logprobs\":null");
    }
    if (c->return_tokens) {
        buf_str(out, ",\"tokens\":[");
        if (p->token >= 0)
            api_put_int(out, request_out(ch->req)[p->token].id);
        buf_char(out, ']');
    }
    put_ids(ch, out);
    api_chunk_end(ch, NULL, out);
    ch->n_chars += api_count_chars(p->text, p->len);
}

static void close_choice(struct api_choice *ch, struct buf *out)
{
    api_chunk_begin(ch, out);
    buf_str(out, ",\"text\":\"\",\"logprobs\":null");
    put_ids(ch, out);
    api_chunk_end(ch, api_finish_name(request_finish(ch->req)), out);
}

/* Text first, then the lists that were gathered on the way. */
static void put_choice(struct api_choice *ch, struct buf *out)
{
    struct api_call *c = ch->call;
    struct lists l = {.tokens.may_fail = true,
                      .logprobs.may_fail = true,
                      .top.may_fail = true,
                      .offsets.may_fail = true};
    struct buf tokens = {.may_fail = true};
    struct api_piece p;
    buf_str(out, "{\"index\":");
    api_put_int(out, ch->index);
    buf_str(out, ",\"text\":\"");
    if (c->echo) {
        const struct buf *text = take_echo(ch, &l);
        json_text_escape(out, text->data, text->len);
    }
    while (api_next_piece(ch, &p)) {
        json_text_escape(out, p.text, p.len);
        if (c->logprobs)
            add_piece_logprob(ch, p.token, &l);
        if (c->return_tokens && p.token >= 0) {
            comma(&tokens);
            api_put_int(&tokens, request_out(ch->req)[p.token].id);
        }
        ch->n_chars += api_count_chars(p.text, p.len);
    }
    buf_char(out, '"');
    put_lists(c, &l, out);
    if (c->return_tokens)
        api_put_items(out, ",\"tokens\":[", &tokens);
    put_ids(ch, out);
    buf_str(out, ",\"finish_reason\":\"");
    buf_str(out, api_finish_name(request_finish(ch->req)));
    buf_str(out, "\"}");
    lists_deinit(&l);
    buf_deinit(&tokens);
}

static void whole(struct api_call *c, struct buf *out)
{
    api_put_choices(c, put_choice, out);
}

const struct api_dialect api_completions = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .prompt_field = "prompt",
    .whole_context = false,
    .parse = parse,
    .open = open_stream,
    .echo = echo_chunk,
    .piece = piece,
    .progress = api_openai_progress,
    .close = close_choice,
    .end = api_openai_end,
    .fail = api_openai_fail,
    .whole = whole,
};
