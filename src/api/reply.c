/* Replies in parts, in the shapes of OpenAI's chat route.
 *
 * A token's text may be held back, become part of several events or of none. Its log-probability
 * and its id go out with the next chunk that there is, so none is lost. */
#include "api/reply.h"

#include "api/compile.h"
#include "api/text.h"
#include "chat/reply_grammar.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

const struct chat_template *api_template(const struct api_call *c)
{
    return chat_template_for(c->api->tmpl, chat_tools_wanted(&c->tools));
}

enum err api_reply_encode(struct api_call *c,
                          const json_t *messages,
                          const json_t *vars,
                          bool add_generation_prompt,
                          const json_t *begun,
                          struct token_list *ids,
                          struct err_info *e)
{
    const struct chat_turn turn = {messages,
                                   vars,
                                   &c->tools,
                                   add_generation_prompt,
                                   json_string_value(begun),
                                   json_string_length(begun)};
    c->reply = (struct reply_config){.style = chat_template_style(api_template(c)),
                                     .one_call = !c->tools.parallel};
    if (chat_tools_wanted(&c->tools))
        c->reply.tools = c->tools.list;
    return chat_encode_turn(c->api->tmpl, c->tokenizer, &turn, ids, &c->reply.start, e);
}

/* ---- grammars ---- */

static int32_t control_token(const void *ctx, const char *s, size_t n)
{
    const struct tokenizer *t = ctx;
    token_id id = tokenizer_find(t, s, n);
    return id != TOKEN_NONE && !tokenizer_is_text(t, id) ? id : -1;
}

static struct reply_grammar calls_of(const struct api_call *c)
{
    const struct chat_tools *tools = &c->tools;
    return (struct reply_grammar){.style = c->reply.style,
                                  .start = c->reply.start,
                                  .tools = tools->allowed ? tools->allowed : tools->list,
                                  .strict = tools->allowed ? tools->allowed_strict : tools->strict,
                                  .only = tools->choice == CHAT_TOOLS_NAMED ? tools->name : NULL,
                                  .required = tools->choice == CHAT_TOOLS_REQUIRED ||
                                              tools->choice == CHAT_TOOLS_NAMED,
                                  .parallel = tools->parallel && tools->choice != CHAT_TOOLS_NAMED,
                                  .token = control_token,
                                  .ctx = c->tokenizer};
}

grammar_node api_reply_content(const struct api_call *c,
                               struct grammar_builder *b,
                               grammar_node content)
{
    struct reply_grammar r = calls_of(c);
    if (!c->reply.tools)
        r.tools = NULL;
    return reply_grammar_content(&r, b, content);
}

static bool any_strict(const struct chat_tools *tools)
{
    for (size_t i = 0; i < json_array_size(tools->list); i++)
        if (tools->strict[i])
            return true;
    return false;
}

bool api_reply_put_key(const struct api_call *c, struct buf *key)
{
    const struct reply_grammar r = calls_of(c);
    char *tools =
        c->reply.tools ? json_dumps(r.tools, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    buf_printf(key,
               "%s %s %d %d %d '%s' ",
               reply_format_name(c->reply.style.format),
               reply_thoughts_name(c->reply.style.thoughts),
               c->reply.start.thinking,
               r.required,
               r.parallel,
               r.only ? r.only : "");
    for (size_t i = 0; c->reply.tools && i < json_array_size(r.tools); i++)
        buf_char(key, r.strict[i] ? '1' : '0');
    buf_str(key, tools ? tools : "");
    free(tools);
    return tools || !c->reply.tools;
}

static grammar_node build_calls(void *ctx, struct grammar_builder *b)
{
    return reply_grammar_build(ctx, b);
}

static enum err compile(struct api_call *c,
                        struct reply_grammar *r,
                        struct grammar **out,
                        struct err_info *e)
{
    struct buf key = {0};
    const struct api_grammar_source source = {
        .field = "tools", .key = &key, .build = build_calls, .ctx = r};
    buf_str(&key, "calls ");
    enum err err = api_reply_put_key(c, &key)
                       ? api_compile(c, &source, out, e)
                       : err_set(e, ERR_NOMEM, "no memory for the grammar of 'tools'");
    buf_deinit(&key);
    return err;
}

enum err api_reply_constrain(struct api_call *c, struct api_params *p, struct err_info *e)
{
    struct reply_grammar r = calls_of(c);
    if (!c->reply.tools || (!r.required && !any_strict(&c->tools)))
        return OK;
    if (!reply_grammar_known(r.style.format)) {
        if (!r.required)
            return OK; /* no format, so no calls */
        return err_invalid(e,
                           "tool_choice",
                           "calls cannot be asked for: how this model writes them is not known "
                           "to this server");
    }
    enum err err = compile(c, &r, &p->grammar, e);
    p->request.grammar = p->grammar;
    return err;
}

/* ---- ids ---- */

/* n letters and digits, and a NUL. */
static void put_random(char *out, size_t n)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    unsigned char random[64];
    if (n > sizeof random || getrandom(random, n, 0) != (ssize_t)n)
        abort(); /* small requests never fail once the system is up */
    for (size_t i = 0; i < n; i++)
        out[i] = digits[random[i] % (sizeof digits - 1)];
    out[n] = '\0';
}

static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\')
            return false;
    return true;
}

void api_reply_call_id(const struct api_call *c,
                       const struct reply_event *ev,
                       const char *prefix,
                       char out[API_CALL_ID_BYTES])
{
    bool is_short = reply_short_ids(c->reply.style.format);
    bool fits = is_short ? ev->n_id == 9 : ev->n_id > 0 && ev->n_id < API_CALL_ID_BYTES;
    if (ev->id && fits && is_plain(ev->id, ev->n_id)) {
        memcpy(out, ev->id, ev->n_id);
        out[ev->n_id] = '\0';
        return;
    }
    size_t n = is_short ? 0 : strlen(prefix);
    memcpy(out, prefix, n);
    put_random(out + n, is_short ? 9 : 24);
}

/* Was the output ended by a limit? (reply_finish) */
static bool was_cut(const struct api_choice *ch)
{
    return request_finish(ch->req) != FINISH_STOP;
}

/* The first n tokens are read, of which the newest had their turn together: a piece and those
 * before it that made nothing visible by themselves, or what is left at the end. */
static void count_tokens(struct api_choice *ch, uint32_t n)
{
    if (n <= ch->n_read)
        return;
    ch->n_thoughts += reply_reasons(ch->reply) ? n - ch->n_read : 0;
    ch->n_read = n;
}

void api_reply_feed(struct api_choice *ch, const struct api_piece *p, reply_event_fn fn, void *ctx)
{
    if (ch->reply) {
        count_tokens(ch, (uint32_t)(p->token + 1));
        reply_feed(ch->reply, p->text, p->len, fn, ctx);
    } else if (p->len > 0)
        fn(ctx, &(struct reply_event){.kind = REPLY_CONTENT, .text = p->text, .n = p->len});
}

void api_reply_end(struct api_choice *ch, reply_event_fn fn, void *ctx)
{
    if (!ch->reply)
        return;
    count_tokens(ch, request_n_completion(ch->req));
    reply_finish(ch->reply, was_cut(ch), fn, ctx);
}

const char *api_reply_finish_name(const struct api_choice *ch)
{
    bool called = ch->reply && !was_cut(ch) && reply_called(ch->reply);
    return called ? "tool_calls" : api_finish_name(request_finish(ch->req));
}

/* ---- streamed ---- */

static void note_token(struct api_choice *ch, int64_t token)
{
    const struct api_call *c = ch->call;
    if (token < 0)
        return;
    if (c->logprobs) {
        buf_str(&ch->logprobs, ch->logprobs.len ? "," : "");
        api_put_logprob(ch, (uint32_t)token, false, &ch->logprobs);
    }
    if (c->return_tokens) {
        buf_str(&ch->tokens, ch->tokens.len ? "," : "");
        api_put_int(&ch->tokens, request_out(ch->req)[token].id);
    }
}

/* Behind a delta or a message: what was noted of tokens since the last time. `list`: a list of
 * log-probabilities also if there are none. */
static void put_noted(struct api_choice *ch, bool list, struct buf *out)
{
    if (list || buf_any(&ch->logprobs)) {
        api_put_items(out, ",\"logprobs\":{\"content\":[", &ch->logprobs);
        buf_str(out, ",\"refusal\":null}");
    } else {
        buf_str(out, ",\"logprobs\":null");
    }
    if (ch->call->return_tokens)
        api_put_items(out, ",\"tokens\":[", &ch->tokens);
    api_put_own_ids(ch, out);
    buf_clear(&ch->logprobs);
    buf_clear(&ch->tokens);
}

/* {"index":0,"id":...,"type":"function","function":{"name":...,"arguments":""  the rest is open */
static void put_call_head(const struct api_call *c,
                          const struct reply_event *ev,
                          bool with_index,
                          struct buf *out)
{
    char id[API_CALL_ID_BYTES];
    api_reply_call_id(c, ev, "call_", id);
    buf_char(out, '{');
    if (with_index) {
        buf_str(out, "\"index\":");
        api_put_int(out, ev->call);
        buf_char(out, ',');
    }
    buf_str(out, "\"id\":");
    api_put_str(out, id, strlen(id));
    buf_str(out, ",\"type\":\"function\",\"function\":{\"name\":");
    api_put_str(out, ev->text, ev->n);
    buf_str(out, ",\"arguments\":\"");
}

struct sink {
    struct api_choice *ch;
    struct buf *out;
};

static void on_event(void *ctx, const struct reply_event *ev)
{
    struct sink *s = ctx;
    struct buf *out = s->out;
    if (ev->kind == REPLY_CALL_END)
        return;
    api_chunk_begin(s->ch, out);
    buf_str(out, ",\"delta\":{");
    switch (ev->kind) {
    case REPLY_CONTENT:
        buf_str(out, "\"content\":");
        api_put_str(out, ev->text, ev->n);
        break;
    case REPLY_REASONING:
        buf_str(out, "\"reasoning_content\":");
        api_put_str(out, ev->text, ev->n);
        break;
    case REPLY_CALL_BEGIN:
        buf_str(out, "\"tool_calls\":[");
        put_call_head(s->ch->call, ev, true, out);
        buf_str(out, "\"}}]");
        break;
    case REPLY_CALL_ARGUMENTS:
    case REPLY_CALL_END:
        buf_str(out, "\"tool_calls\":[{\"index\":");
        api_put_int(out, ev->call);
        buf_str(out, ",\"function\":{\"arguments\":");
        api_put_str(out, ev->text, ev->n);
        buf_str(out, "}}]");
        break;
    }
    buf_char(out, '}');
    put_noted(s->ch, false, out);
    api_chunk_end(s->ch, NULL, out);
}

/* The hot path of streams: one of these a token and client. Where all is content a piece is a
 * chunk, also one without text, which is there for its token. */
void api_reply_piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    struct sink s = {ch, out};
    note_token(ch, p->token);
    if (ch->reply)
        api_reply_feed(ch, p, on_event, &s);
    else
        on_event(&s, &(struct reply_event){.kind = REPLY_CONTENT, .text = p->text, .n = p->len});
}

/* An empty delta carries the reason, as clients expect. */
void api_reply_close(struct api_choice *ch, struct buf *out)
{
    struct sink s = {ch, out};
    api_reply_end(ch, on_event, &s);
    api_chunk_begin(ch, out);
    buf_str(out, ",\"delta\":{}");
    if (ch->reply)
        put_noted(ch, false, out);
    else {
        buf_str(out, ",\"logprobs\":null"); /* each piece had its token's */
        api_put_own_ids(ch, out);
    }
    api_chunk_end(ch, api_reply_finish_name(ch), out);
}

/* ---- whole ---- */

struct parts {
    const struct api_call *call;
    struct buf content, reasoning, calls; /* insides of JSON strings, of an array */
    bool open;                            /* the last call's arguments are */
};

static void close_call(struct parts *p)
{
    if (p->open)
        buf_str(&p->calls, "\"}}");
    p->open = false;
}

static void gather(void *ctx, const struct reply_event *ev)
{
    struct parts *p = ctx;
    switch (ev->kind) {
    case REPLY_CONTENT:
        json_text_escape(&p->content, ev->text, ev->n);
        break;
    case REPLY_REASONING:
        json_text_escape(&p->reasoning, ev->text, ev->n);
        break;
    case REPLY_CALL_BEGIN:
        close_call(p);
        buf_str(&p->calls, p->calls.len ? "," : "");
        put_call_head(p->call, ev, false, &p->calls);
        p->open = true;
        break;
    case REPLY_CALL_ARGUMENTS:
        json_text_escape(&p->calls, ev->text, ev->n);
        break;
    case REPLY_CALL_END:
        break;
    }
}

static void put_message(const struct parts *p, struct buf *out)
{
    buf_str(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (!buf_any(&p->content) && buf_any(&p->calls)) {
        buf_str(out, "null");
    } else {
        buf_char(out, '"');
        buf_join(out, &p->content);
        buf_char(out, '"');
    }
    if (buf_any(&p->reasoning)) {
        buf_str(out, ",\"reasoning_content\":\"");
        buf_join(out, &p->reasoning);
        buf_char(out, '"');
    }
    buf_str(out, ",\"refusal\":null");
    if (buf_any(&p->calls))
        api_put_items(out, ",\"tool_calls\":[", &p->calls);
    buf_char(out, '}');
}

void api_reply_whole(struct api_choice *ch, struct buf *out)
{
    struct parts parts = {.call = ch->call,
                          .content.may_fail = true,
                          .reasoning.may_fail = true,
                          .calls.may_fail = true};
    struct api_piece p;
    while (api_next_piece(ch, &p)) {
        note_token(ch, p.token);
        api_reply_feed(ch, &p, gather, &parts);
    }
    api_reply_end(ch, gather, &parts);
    close_call(&parts);
    buf_str(out, "{\"index\":");
    api_put_int(out, ch->index);
    put_message(&parts, out);
    put_noted(ch, ch->call->logprobs, out);
    buf_str(out, ",\"finish_reason\":\"");
    buf_str(out, api_reply_finish_name(ch));
    buf_str(out, "\"}");
    buf_deinit(&parts.content);
    buf_deinit(&parts.reasoning);
    buf_deinit(&parts.calls);
}
