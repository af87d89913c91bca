/* POST /tokenize, /detokenize, /apply-template, and the routes that count the tokens of a prompt:
 * what a text, its ids and a conversation are to each other. The first two speak several dialects,
 * told apart by their fields:
 *
 *      llama-server's    {"content": TEXT} -> {"tokens": [...]}             and back
 *      {"text": TEXT} -> {"token_ids": [...], "num_tokens": N}              and back
 *      vLLM's            {"prompt": TEXT} or {"messages": [...]} -> {"count": N, "tokens": [...]}
 */
#include "api/native.h"
#include "base/utf8.h"

#include <string.h>

/* What these routes answer at most, as bytes of text or as pieces: a short id may stand for a long
 * text, and an answer is written in memory. */
#define MAX_TEXT_BYTES (16u << 20)
#define MAX_PIECES (1u << 19)

static void put_ids(const struct token_list *ids, struct buf *out)
{
    buf_char(out, '[');
    for (size_t i = 0; i < ids->n; i++) {
        if (i > 0)
            buf_char(out, ',');
        api_put_int(out, ids->ids[i]);
    }
    buf_char(out, ']');
}

void api_put_tokenized(const struct token_list *ids, struct buf *out)
{
    buf_str(out, "{\"token_ids\":");
    put_ids(ids, out);
    buf_printf(out, ",\"num_tokens\":%zu}", ids->n);
}

/* {"id": ID, "piece": TEXT}, or the piece's bytes where they are no text. */
static void put_pieces(const struct tokenizer *t, const struct token_list *ids, struct buf *out)
{
    buf_char(out, '[');
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *s = tokenizer_bytes(t, ids->ids[i], true, &n);
        buf_printf(out, "%s{\"id\":%d,\"piece\":", i ? "," : "", ids->ids[i]);
        if (utf8_valid(s, n)) {
            api_put_str(out, s, n);
        } else {
            for (size_t k = 0; k < n; k++)
                buf_printf(out, "%s%d", k ? "," : "[", (unsigned char)s[k]);
            buf_char(out, ']');
        }
        buf_char(out, '}');
    }
    buf_char(out, ']');
}

/* `content` may also be a list of texts and ids, as a prompt may. */
static enum err encode_content(const struct api_call *c,
                               const json_t *v,
                               bool add_special,
                               bool parse_special,
                               struct token_list *ids,
                               struct err_info *e)
{
    const struct tokenizer *t = c->tokenizer;
    if (json_is_string(v))
        return native_encode(t, v, add_special, parse_special, ids, e);
    if (!json_is_array(v))
        return api_wrong_type("content", "a string", v, e);
    return native_encode_list(t, v, "content", add_special, parse_special, ids, e);
}

static enum err tokenize_content(struct api_call *c, const json_t *body, struct err_info *e)
{
    bool add_special = false, parse_special = true, with_pieces = false;
    const json_t *content = api_get(body, "content");
    struct token_list ids = {0};
    enum err err;
    if ((err = api_get_bool(body, "add_special", &add_special, e)) ||
        (err = api_get_bool(body, "parse_special", &parse_special, e)) ||
        (err = api_get_bool(body, "with_pieces", &with_pieces, e)))
        return err;
    if (!content)
        return err_invalid(
            e, "content", "'content' is required (or 'prompt', 'messages' or 'text')");
    err = encode_content(c, content, add_special, parse_special, &ids, e);
    if (!err && add_special && json_is_string(content))
        tokenizer_add_end(c->tokenizer, &ids);
    if (!err && with_pieces && ids.n > MAX_PIECES)
        err = err_invalid(e,
                          "content",
                          "'content' has %zu tokens; with 'with_pieces' at most %u are answered",
                          ids.n,
                          MAX_PIECES);
    if (!err) {
        buf_str(&c->body, "{\"tokens\":");
        if (with_pieces)
            put_pieces(c->tokenizer, &ids, &c->body);
        else
            put_ids(&ids, &c->body);
        buf_char(&c->body, '}');
    }
    token_list_deinit(&ids);
    return err;
}

/* The text as a prompt would be: with BOS where the model wants one, and no control tokens. */
static enum err tokenize_text(struct api_call *c, const json_t *body, struct err_info *e)
{
    const json_t *text = json_object_get(body, "text");
    struct token_list ids = {0};
    if (!json_is_string(text))
        return api_wrong_type("text", "a string", text, e);
    enum err err = native_encode(c->tokenizer, text, true, false, &ids, e);
    if (!err)
        api_put_tokenized(&ids, &c->body);
    token_list_deinit(&ids);
    return err;
}

static void put_counted(const struct api_call *c, const struct token_list *ids, struct buf *out)
{
    buf_printf(
        out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":", ids->n, engine_n_ctx(c->engine));
    put_ids(ids, out);
    buf_str(out, ",\"token_strs\":null}");
}

static enum err check_vllm(const struct api_call *c, const json_t *body, struct err_info *e)
{
    static const struct api_refused refused[] = {{"return_token_strs", NEUTRAL_FALSE, 0},
                                                 {"mm_processor_kwargs", NEUTRAL_EMPTY, 0}};
    struct gguf_str model = {0};
    enum err err;
    if ((err = api_refuse_fields(body, refused, sizeof refused / sizeof refused[0], e)) ||
        (err = api_get_str(body, "model", &model, e)))
        return err;
    return api_check_model(c, model, e);
}

/* As a prompt of /v1/completions, which is a text here. */
static enum err tokenize_prompt(struct api_call *c, const json_t *body, struct err_info *e)
{
    const json_t *prompt = json_object_get(body, "prompt");
    bool add_special = true, parse_special = false;
    struct token_list ids = {0};
    enum err err;
    if (!json_is_string(prompt))
        return api_wrong_type("prompt", "a string", prompt, e);
    if ((err = check_vllm(c, body, e)) ||
        (err = api_get_bool(body, "add_special_tokens", &add_special, e)) ||
        (err = api_get_bool(body, "parse_special", &parse_special, e)))
        return err;
    err = native_encode(c->tokenizer, prompt, add_special, parse_special, &ids, e);
    if (!err)
        put_counted(c, &ids, &c->body);
    token_list_deinit(&ids);
    return err;
}

/* A conversation as the chat route takes it, whose template says what begins it. */
static enum err tokenize_chat(struct api_call *c, const json_t *body, struct err_info *e)
{
    static const struct api_refused refused[] = {{"add_special_tokens", NEUTRAL_FALSE, 0}};
    struct api_job job = {0};
    enum err err;
    c->prompt_only = true;
    if ((err = check_vllm(c, body, e)) || (err = api_refuse_fields(body, refused, 1, e)) ||
        (err = model_must_generate(engine_model(c->engine), e)))
        return err;
    err = api_chat.parse(c, body, &job, e);
    if (!err && api_json_starved())
        err = api_no_memory(e);
    if (!err)
        put_counted(c, &job.prompts[0].ids, &c->body);
    api_job_deinit(&job);
    return err;
}

static enum err check_text(const struct tokenizer *t,
                           const struct token_list *ids,
                           const char *field,
                           struct err_info *e)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        (void)tokenizer_bytes(t, ids->ids[i], true, &n);
        n_bytes += n;
    }
    if (n_bytes <= MAX_TEXT_BYTES)
        return OK;
    return err_invalid(e,
                       field,
                       "the text of '%s' would have %llu bytes; at most %u are answered",
                       field,
                       (unsigned long long)n_bytes,
                       MAX_TEXT_BYTES);
}

static enum err detokenize(struct api_call *c, const json_t *body, struct err_info *e)
{
    bool by_text = json_object_get(body, "token_ids") && !json_object_get(body, "tokens");
    const char *field = by_text ? "token_ids" : "tokens";
    const json_t *v = api_get(body, field);
    struct token_list ids = {0};
    struct buf text = {0};
    enum err err = OK;
    if (!v)
        return err_invalid(e, field, "'%s' is required", field);
    if (!json_is_array(v))
        return api_wrong_type(field, "an array of token ids", v, e);
    err = token_list_room(&ids, json_array_size(v), e);
    for (size_t i = 0; !err && i < json_array_size(v); i++) {
        int64_t id;
        err = api_int_of(
            json_array_get(v, i), field, 0, (int64_t)tokenizer_n_vocab(c->tokenizer) - 1, &id, e);
        if (!err)
            token_list_add(&ids, (token_id)id);
    }
    if (!err && !(err = check_text(c->tokenizer, &ids, field, e))) {
        tokenizer_decode(c->tokenizer, ids.ids, ids.n, true, &text);
        buf_str(&c->body, by_text ? "{\"text\":" : "{\"content\":");
        api_put_text(&c->body, text.data, text.len);
        buf_char(&c->body, '}');
    }
    token_list_deinit(&ids);
    buf_deinit(&text);
    return err;
}

/* Parse the body and let `run` write the answer. */
static enum err answer(struct api_call *c,
                       const struct api_input *in,
                       enum err (*run)(struct api_call *c, const json_t *body, struct err_info *e),
                       struct err_info *e)
{
    json_t *body = NULL;
    c->tokenizer = engine_tokenizer(c->engine);
    enum err err = api_json_parse(in->body, in->body_len, &body, e);
    if (!err)
        err = run(c, body, e);
    json_decref(body);
    return err;
}

/* By the one of these fields that there is. */
static enum err tokenize(struct api_call *c, const json_t *body, struct err_info *e)
{
    static const struct {
        const char *field;
        enum err (*run)(struct api_call *c, const json_t *body, struct err_info *e);
    } dialects[] = {{"content", tokenize_content},
                    {"text", tokenize_text},
                    {"messages", tokenize_chat},
                    {"prompt", tokenize_prompt}};
    const size_t n = sizeof dialects / sizeof dialects[0];
    size_t given = n;
    for (size_t i = 0; i < n; i++) {
        if (!api_get(body, dialects[i].field))
            continue;
        if (given < n)
            return err_invalid(e,
                               dialects[i].field,
                               "'%s' and '%s' cannot be given together",
                               dialects[given].field,
                               dialects[i].field);
        given = i;
    }
    return dialects[given < n ? given : 0].run(c, body, e); /* none: content is missed */
}

enum err api_tokenize(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return answer(c, in, tokenize, e);
}

enum err api_detokenize(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return answer(c, in, detokenize, e);
}

/* The conversation's prompt as text. Without the BOS that /completion would put before it again. */
enum err api_apply_template(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    struct token_list ids = {0};
    struct buf text = {0};
    enum err err = api_read_prompt(c, &api_chat, in, &ids, e);
    if (!err) {
        const struct tokenizer *t = c->tokenizer;
        size_t from = ids.n > 0 && tokenizer_adds_bos(t) && ids.ids[0] == tokenizer_bos(t);
        tokenizer_decode(t, ids.ids + from, ids.n - from, true, &text);
        buf_str(&c->body, "{\"prompt\":");
        api_put_text(&c->body, text.data, text.len);
        buf_char(&c->body, '}');
    }
    token_list_deinit(&ids);
    buf_deinit(&text);
    return err;
}

static enum err count(struct api_call *c,
                      const struct api_input *in,
                      const struct api_dialect *d,
                      struct err_info *e)
{
    const char *object = c->shape == API_ANTHROPIC ? "" : "\"object\":\"response.input_tokens\",";
    struct token_list ids = {0};
    enum err err = api_read_prompt(c, d, in, &ids, e);
    if (!err)
        buf_printf(&c->body, "{%s\"input_tokens\":%zu}", object, ids.n);
    token_list_deinit(&ids);
    return err;
}

enum err api_count_chat(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return count(c, in, &api_chat, e);
}

enum err api_count_responses(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return count(c, in, &api_responses, e);
}

enum err api_count_messages(struct api_call *c, const struct api_input *in, struct err_info *e)
{
    return count(c, in, &api_messages, e);
}
