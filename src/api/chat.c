/* POST /v1/chat/completions: messages in, the assistant's next one out.
 *
 * The model's own template makes the prompt (chat/); only what it wrote can become control tokens,
 * never the text of a message. */
#include "api/call.h"
#include "api/text.h"
#include "chat/encode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Beside those of params.c. */
static const struct api_refused refused[] = {
    {"tools", NEUTRAL_EMPTY, 0},
    {"functions", NEUTRAL_EMPTY, 0},
    {"function_call", NEUTRAL_EMPTY, 0},
    {"audio", NEUTRAL_EMPTY, 0},
    {"prompt", NEUTRAL_NOTHING, 0},
    {"web_search_options", NEUTRAL_NOTHING, 0},
    {"reasoning_effort", NEUTRAL_EMPTY, 0},
    {"chat_template", NEUTRAL_EMPTY, 0},
    {"chat_template_kwargs", NEUTRAL_EMPTY, 0},
    {"documents", NEUTRAL_EMPTY, 0},
    {"echo", NEUTRAL_FALSE, 0},
    {"continue_final_message", NEUTRAL_FALSE, 0},
    {"add_generation_prompt", NEUTRAL_TRUE, 0},
};

/* Messages, with the memory of those contents that came in parts. */
struct messages {
    struct chat_message *items;
    struct buf *joined; /* [n] */
    size_t n;
};

static void messages_deinit(struct messages *m)
{
    for (size_t i = 0; m->joined && i < m->n; i++)
        buf_deinit(&m->joined[i]);
    free(m->joined);
    free(m->items);
}

/* tool_choice: "none" and "auto" mean nothing without tools. */
static enum err check_tool_choice(const json_t *body, struct err_info *e)
{
    const json_t *v = json_object_get(body, "tool_choice");
    const char *s = json_string_value(v);
    if (!v || json_is_null(v) || (s && (strcmp(s, "none") == 0 || strcmp(s, "auto") == 0)))
        return OK;
    return err_set_field(
        e, ERR_INVALID, "tool_choice", "'tool_choice' is not supported by this server");
}

/* modalities: text alone. */
static enum err check_modalities(const json_t *body, struct err_info *e)
{
    const json_t *v = json_object_get(body, "modalities");
    if (!v || json_is_null(v))
        return OK;
    if (!json_is_array(v))
        return api_wrong_type("modalities", "an array of strings", v, e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        if (!s || strcmp(s, "text") != 0)
            return err_set_field(
                e, ERR_INVALID, "modalities", "'modalities' other than text are not supported");
    }
    return OK;
}

/* Content in parts: the texts, one after the other. */
static enum err join_parts(const json_t *parts,
                           const char *field,
                           struct buf *out,
                           struct err_info *e)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_object(part) || !type)
            return err_set_field(e,
                                 ERR_INVALID,
                                 field,
                                 "'%s' must hold parts like {\"type\": \"text\", \"text\": ...}",
                                 field);
        if (strcmp(type, "text") != 0)
            return err_set_field(e,
                                 ERR_INVALID,
                                 field,
                                 "'%s' has a part of type '%.40s'; this model reads only text",
                                 field,
                                 type);
        if (!json_is_string(text))
            return err_set_field(
                e, ERR_INVALID, field, "'%s' has a text part without a 'text' string", field);
        buf_add(out, json_string_value(text), json_string_length(text));
    }
    return OK;
}

static enum err parse_content(const json_t *v,
                              const char *field,
                              bool may_be_null,
                              struct buf *joined,
                              struct chat_message *m,
                              struct err_info *e)
{
    m->content = "";
    m->content_len = 0;
    if (json_is_string(v)) {
        m->content = json_string_value(v);
        m->content_len = json_string_length(v);
        return OK;
    }
    if (json_is_array(v)) {
        enum err err = join_parts(v, field, joined, e);
        if (joined->len > 0) {
            m->content = joined->data;
            m->content_len = joined->len;
        }
        return err;
    }
    if ((!v || json_is_null(v)) && may_be_null)
        return OK;
    if (!v)
        return err_set_field(e, ERR_INVALID, field, "'%s' is required", field);
    return api_wrong_type(field, "a string or an array of parts", v, e);
}

static enum err parse_message(const json_t *v, size_t i, struct messages *all, struct err_info *e)
{
    static const struct api_refused calls[] = {{"tool_calls", NEUTRAL_EMPTY, 0},
                                               {"function_call", NEUTRAL_EMPTY, 0},
                                               {"audio", NEUTRAL_EMPTY, 0}};
    struct chat_message *m = &all->items[i];
    char field[64];
    snprintf(field, sizeof field, "messages[%zu]", i);
    if (!json_is_object(v))
        return api_wrong_type(field, "an object", v, e);
    const json_t *role = json_object_get(v, "role");
    snprintf(field, sizeof field, "messages[%zu].role", i);
    if (!role)
        return err_set_field(e, ERR_INVALID, field, "'%s' is required", field);
    if (!json_is_string(role))
        return api_wrong_type(field, "a string", role, e);
    m->role = json_string_value(role);
    m->role_len = json_string_length(role);
    if (strcmp(m->role, "developer") == 0) { /* newer name of the same */
        m->role = "system";
        m->role_len = strlen(m->role);
    }
    enum err err = api_refuse_fields(v, calls, sizeof calls / sizeof calls[0], e);
    if (err)
        return err;
    snprintf(field, sizeof field, "messages[%zu].content", i);
    return parse_content(json_object_get(v, "content"),
                         field,
                         strcmp(m->role, "assistant") == 0,
                         &all->joined[i],
                         m,
                         e);
}

/* Errors name the message: messages[2].content. */
static enum err parse_messages(const json_t *body, struct messages *m, struct err_info *e)
{
    const json_t *v = json_object_get(body, "messages");
    if (!v || json_is_null(v))
        return err_set_field(e, ERR_INVALID, "messages", "'messages' is required");
    if (!json_is_array(v))
        return api_wrong_type("messages", "an array", v, e);
    m->n = json_array_size(v);
    if (m->n == 0)
        return err_set_field(e, ERR_INVALID, "messages", "'messages' is empty");
    m->items = calloc(m->n, sizeof *m->items);
    m->joined = calloc(m->n, sizeof *m->joined);
    if (!m->items || !m->joined)
        return err_set(e, ERR_NOMEM, "no memory for %zu messages", m->n);
    for (size_t i = 0; i < m->n; i++) {
        enum err err = parse_message(json_array_get(v, i), i, m, e);
        if (err)
            return err;
    }
    return OK;
}

static enum err parse_prompt(struct api_call *c,
                             const json_t *body,
                             struct api_job *job,
                             struct err_info *e)
{
    struct messages m = {0};
    enum err err = parse_messages(body, &m, e);
    if (!err) {
        struct token_list *ids = &api_job_prompts(job, 1)->ids;
        err = chat_encode(c->api->tmpl, c->tokenizer, m.items, m.n, ids, e);
        if (err && e && e->field[0] == '\0')
            snprintf(e->field, sizeof e->field, "messages");
    }
    messages_deinit(&m);
    return err;
}

static enum err parse_logprobs(struct api_call *c, const json_t *body, struct err_info *e)
{
    int64_t n_top = -1;
    enum err err;
    if ((err = api_get_bool(body, "logprobs", &c->logprobs, e)) ||
        (err = api_get_int(body, "top_logprobs", 0, REQUEST_MAX_TOP_LOGPROBS, &n_top, e)))
        return err;
    if (n_top > 0 && !c->logprobs)
        return err_set_field(
            e, ERR_INVALID, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    c->n_top = n_top > 0 ? (uint32_t)n_top : 0;
    return OK;
}

static enum err parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    enum err err;
    if ((err = api_refuse_fields(body, refused, sizeof refused / sizeof refused[0], e)) ||
        (err = check_tool_choice(body, e)) || (err = check_modalities(body, e)) ||
        (err = parse_logprobs(c, body, e)))
        return err;
    return parse_prompt(c, body, job, e);
}

/* "token":...,"logprob":...,"bytes":[...] */
static void put_token(const struct tokenizer *t, token_id id, float logprob, struct buf *out)
{
    buf_str(out, "{\"token\":");
    api_put_token(t, id, false, out);
    buf_str(out, ",\"logprob\":");
    api_put_float(out, logprob);
    buf_str(out, ",\"bytes\":");
    api_put_token_bytes(t, id, out);
}

/* Output i, with the most likely ones in its place. */
static void put_logprob(const struct api_choice *ch, uint32_t i, struct buf *out)
{
    const struct api_call *c = ch->call;
    const struct request_token *own = &request_out(ch->req)[i];
    const struct token_logprob *top = request_top(ch->req, i);
    put_token(c->tokenizer, own->id, own->logprob, out);
    buf_str(out, ",\"top_logprobs\":[");
    for (uint32_t j = 0; j < c->n_top && top; j++) {
        if (j > 0)
            buf_char(out, ',');
        put_token(c->tokenizer, top[j].id, top[j].logprob, out);
        buf_char(out, '}');
    }
    buf_str(out, "]}");
}

static void open_stream(struct api_call *c, struct buf *out)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        api_chunk_begin(&c->choices[i], out);
        buf_str(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
        api_chunk_end(&c->choices[i], NULL, out);
    }
}

/* The hot path of streams: one of these a token and client. */
static void piece(struct api_choice *ch, const struct api_piece *p, struct buf *out)
{
    const struct api_call *c = ch->call;
    api_chunk_begin(ch, out);
    buf_str(out, ",\"delta\":{\"content\":");
    api_put_str(out, p->text, p->len);
    if (c->logprobs && p->token >= 0) {
        buf_str(out, "},\"logprobs\":{\"content\":[");
        put_logprob(ch, (uint32_t)p->token, out);
        buf_str(out, "],\"refusal\":null}");
    } else {
        buf_str(out, "},\"logprobs\":null");
    }
    if (c->return_tokens) {
        buf_str(out, ",\"tokens\":[");
        if (p->token >= 0)
            api_put_int(out, request_out(ch->req)[p->token].id);
        buf_char(out, ']');
    }
    api_chunk_end(ch, NULL, out);
}

/* An empty delta carries the reason, as clients expect. */
static void close_choice(struct api_choice *ch, struct buf *out)
{
    api_chunk_begin(ch, out);
    buf_str(out, ",\"delta\":{},\"logprobs\":null");
    api_chunk_end(ch, api_finish_name(request_finish(ch->req)), out);
}

static void whole(struct api_choice *ch, struct buf *out)
{
    const struct api_call *c = ch->call;
    struct buf logprobs = {0}, tokens = {0};
    struct api_piece p;
    buf_str(out, "{\"index\":");
    api_put_int(out, ch->index);
    buf_str(out, ",\"message\":{\"role\":\"assistant\",\"content\":\"");
    while (api_next_piece(ch, &p)) {
        api_put_escaped(out, p.text, p.len);
        if (p.token < 0)
            continue;
        if (c->logprobs) {
            buf_str(&logprobs, logprobs.len ? "," : "");
            put_logprob(ch, (uint32_t)p.token, &logprobs);
        }
        if (c->return_tokens) {
            buf_str(&tokens, tokens.len ? "," : "");
            api_put_int(&tokens, request_out(ch->req)[p.token].id);
        }
    }
    buf_str(out, "\",\"refusal\":null},\"logprobs\":");
    buf_str(out, c->logprobs ? "{\"content\":[" : "null");
    buf_add(out, logprobs.data, logprobs.len);
    buf_str(out, c->logprobs ? "],\"refusal\":null}" : "");
    if (c->return_tokens) {
        buf_str(out, ",\"tokens\":[");
        buf_add(out, tokens.data, tokens.len);
        buf_char(out, ']');
    }
    buf_str(out, ",\"finish_reason\":\"");
    buf_str(out, api_finish_name(request_finish(ch->req)));
    buf_str(out, "\"}");
    buf_deinit(&logprobs);
    buf_deinit(&tokens);
}

const struct api_dialect api_chat = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_field = "messages",
    .whole_context = true,
    .parse = parse,
    .open = open_stream,
    .piece = piece,
    .close = close_choice,
    .whole = whole,
};
