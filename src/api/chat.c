/* POST /v1/chat/completions: messages in, the assistant's next one out.
 *
 * The model's own template makes the prompt (chat/); only what it wrote can become control tokens,
 * never the text of a message. */
#include "api/call.h"
#include "api/reply.h"
#include "api/tools.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Beside those of params.c. */
static const struct api_refused refused[] = {
    {"audio", NEUTRAL_EMPTY, 0},
    {"prompt", NEUTRAL_NOTHING, 0},
    {"web_search_options", NEUTRAL_NOTHING, 0},
    {"chat_template", NEUTRAL_EMPTY, 0},
    {"echo", NEUTRAL_FALSE, 0},
    {"add_special_tokens", NEUTRAL_FALSE, 0},
    {"parse_tool_calls", NEUTRAL_TRUE, 0},
    {"stream_reasoning", NEUTRAL_TRUE, 0},
};

/* modalities: text alone. */
static enum err check_modalities(const json_t *body, struct err_info *e)
{
    json_t *list;
    enum err err = api_get_array(body, "modalities", "an array of strings", &list, e);
    for (size_t i = 0; !err && i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (!s || strcmp(s, "text") != 0)
            err = err_invalid(e, "modalities", "'modalities' other than text are not supported");
    }
    return err;
}

/* A part of text, by the names of /v1/responses too. */
static bool is_text_part(const char *type, unsigned more)
{
    return strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
           strcmp(type, "output_text") == 0 ||
           ((more & PARTS_REASONING) && strcmp(type, "reasoning_text") == 0);
}

enum err api_join_parts(const json_t *parts,
                        const char *field,
                        const char *between,
                        unsigned more,
                        struct buf *out,
                        struct err_info *e)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_object(part) || !type)
            return err_invalid(
                e, field, "'%s' must hold parts like {\"type\": \"text\", \"text\": ...}", field);
        const bool refusal = (more & PARTS_REFUSAL) && strcmp(type, "refusal") == 0;
        const json_t *text = json_object_get(part, refusal ? type : "text");
        if (!is_text_part(type, more) && !refusal)
            return err_invalid(e,
                               field,
                               strncmp(type, "image", 5) == 0
                                   ? "'%s' has a part of type '%.40s': image input is not "
                                     "supported by this model"
                                   : "'%s' has a part of type '%.40s'; this model reads only text",
                               field,
                               type);
        if (!json_is_string(text))
            return err_invalid(e,
                               field,
                               "'%s' has a part without the string '%s'",
                               field,
                               refusal ? type : "text");
        buf_str(out, i > 0 ? between : "");
        buf_add(out, json_string_value(text), json_string_length(text));
    }
    return OK;
}

json_t *api_add_message(json_t *all, const char *role, json_t *content)
{
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", content);
    json_array_append_new(all, m);
    return m;
}

json_t *api_call_of(const json_t *id, const char *name, json_t *arguments)
{
    json_t *function = json_pack("{s:s, s:o}", "name", name, "arguments", arguments);
    return json_pack("{s:O, s:s, s:o}", "id", id, "type", "function", "function", function);
}

/* Content as templates expect it: one string; parts each on a line, but for the assistant's, which
 * are pieces of one text. Null, which assistants that call tools have, is "", or what one said that
 * refused. */
static enum err parse_content(
    const json_t *message, const char *field, bool assistant, json_t **out, struct err_info *e)
{
    const json_t *v = json_object_get(message, "content");
    struct buf joined = {.may_fail = true};
    enum err err = OK;
    if (assistant && (!v || json_is_null(v)) && json_is_string(json_object_get(message, "refusal")))
        v = json_object_get(message, "refusal");
    if (json_is_string(v))
        *out = json_incref((json_t *)v);
    else if (json_is_array(v)) {
        err = assistant ? api_join_parts(v, field, "", PARTS_REFUSAL, &joined, e)
                        : api_join_parts(v, field, "\n", 0, &joined, e);
        *out = err ? NULL : api_json_string(&joined);
    } else if ((!v || json_is_null(v)) && assistant)
        *out = json_string("");
    else if (!v)
        err = err_invalid(e, field, "'%s' is required", field);
    else
        err = api_wrong_type(field, "a string or an array of parts", v, e);
    buf_deinit(&joined);
    return err;
}

/* One message: what came, with role and content as templates expect them. */
static enum err parse_message(const json_t *v, size_t i, json_t *all, struct err_info *e)
{
    static const struct api_refused calls[] = {{"function_call", NEUTRAL_EMPTY, 0},
                                               {"audio", NEUTRAL_EMPTY, 0}};
    char field[64];
    snprintf(field, sizeof field, "messages[%zu]", i);
    if (!json_is_object(v))
        return api_wrong_type(field, "an object", v, e);
    const json_t *role = json_object_get(v, "role");
    snprintf(field, sizeof field, "messages[%zu].role", i);
    if (!role)
        return err_invalid(e, field, "'%s' is required", field);
    if (!json_is_string(role))
        return api_wrong_type(field, "a string", role, e);
    enum err err = api_refuse_fields(v, calls, sizeof calls / sizeof calls[0], e);
    if (err)
        return err;
    json_t *message = json_copy((json_t *)v), *content = NULL;
    json_array_append_new(all, message);
    if (strcmp(json_string_value(role), "developer") == 0) /* newer name of the same */
        json_object_set_new(message, "role", json_string("system"));
    snprintf(field, sizeof field, "messages[%zu]", i);
    if ((err = api_tools_check_message(message, field, e)))
        return err;
    snprintf(field, sizeof field, "messages[%zu].content", i);
    err = parse_content(v, field, strcmp(json_string_value(role), "assistant") == 0, &content, e);
    if (!err && json_object_set_new(message, "content", content) != 0)
        err = err_set(e, ERR_NOMEM, "no memory for a message");
    return err;
}

/* *out is the caller's reference, also after an error. Errors name the message: messages[2]. */
static enum err parse_messages(const json_t *body, json_t **out, struct err_info *e)
{
    const json_t *v = api_get(body, "messages");
    if (!v)
        return err_invalid(e, "messages", "'messages' is required");
    if (!json_is_array(v))
        return api_wrong_type("messages", "an array", v, e);
    if (json_array_size(v) == 0)
        return err_invalid(e, "messages", "'messages' is empty");
    *out = json_array();
    for (size_t i = 0; i < json_array_size(v); i++) {
        enum err err = parse_message(json_array_get(v, i), i, *out, e);
        if (err)
            return err;
    }
    return OK;
}

/* Names that mean something already. */
static enum err check_var_name(const char *name,
                               bool has_documents,
                               bool has_tools,
                               struct err_info *e)
{
    static const char *const taken[] = {"messages", "bos_token", "eos_token"};
    bool clashes = (has_documents && strcmp(name, "documents") == 0) ||
                   (has_tools && strcmp(name, "tools") == 0);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        clashes |= strcmp(name, taken[i]) == 0;
    if (!clashes)
        return OK;
    return err_invalid(e, "chat_template_kwargs", "'chat_template_kwargs' may not set '%s'", name);
}

void api_say_thinking(json_t *vars, const json_t *given, bool on)
{
    static const char *const names[] = {"enable_thinking", "thinking"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!json_object_get(given, names[i]))
            json_object_set_new(vars, names[i], json_boolean(on));
}

/* How hard to think, as OpenAI's clients ask: a variable, of templates that have it. Those that can
 * only be told whether to think hear that; to a model that does not think it says nothing. */
static enum err parse_effort(const struct api_call *c,
                             const json_t *body,
                             json_t *vars,
                             struct err_info *e)
{
    static const char field[] = "reasoning_effort";
    struct gguf_str effort = {0};
    enum err err = api_get_str(body, field, &effort, e);
    if (err || effort.len == 0)
        return err;
    const bool none = strcmp(effort.data, "none") == 0;
    const char *name = chat_template_traits(api_template(c))->effort;
    if (none || !name)
        api_say_thinking(vars, json_object_get(body, "chat_template_kwargs"), !none);
    if (!name)
        return OK;
    if (json_object_get(vars, name))
        return err_invalid(
            e, field, "'reasoning_effort' is in 'chat_template_kwargs' too, as '%s'", name);
    json_object_set(vars, name, json_object_get(body, field));
    return OK;
}

static void add_text(json_t *vars, const char *name, const char *text)
{
    if (!json_object_get(vars, name))
        json_object_set_new(vars, name, json_string(text));
}

/* Today, for templates that would else write the day they were made. */
static void add_dates(json_t *vars)
{
    const time_t now = time(NULL);
    struct tm day;
    char text[32];
    if (!localtime_r(&now, &day))
        return;
    strftime(text, sizeof text, "%d %b %Y", &day);
    add_text(vars, "date_string", text);
    strftime(text, sizeof text, "%b %d %Y", &day);
    add_text(vars, "datetime", text);
}

/* llama-server's word for whether earlier answers keep their reasoning, by the variables that
 * templates have for it. */
static void say_preserved(json_t *vars)
{
    static const struct {
        const char *name;
        bool means; /* that it is kept */
    } names[] = {{"preserve_thinking", true},
                 {"clear_thinking", false},
                 {"truncate_history_thinking", false},
                 {"drop_thinking", false}};
    const json_t *given = json_object_get(vars, "preserve_reasoning");
    for (size_t i = 0; json_is_boolean(given) && i < sizeof names / sizeof names[0]; i++)
        if (!json_object_get(vars, names[i].name))
            json_object_set_new(
                vars, names[i].name, json_boolean(json_is_true(given) == names[i].means));
}

/* Variables for the template: chat_template_kwargs and documents. *out as in parse_messages. */
static enum err parse_vars(const struct api_call *c,
                           const json_t *body,
                           json_t **out,
                           struct err_info *e)
{
    json_t *kwargs, *documents;
    enum err err;
    if ((err = api_get_object(body, "chat_template_kwargs", "an object", &kwargs, e)) ||
        (err = api_get_array(body, "documents", "an array of objects", &documents, e)))
        return err;
    for (size_t i = 0; i < json_array_size(documents); i++)
        if (!json_is_object(json_array_get(documents, i)))
            return api_wrong_type(
                "documents", "an array of objects", json_array_get(documents, i), e);
    *out = kwargs ? json_copy(kwargs) : json_object();
    for (void *at = json_object_iter(*out); at; at = json_object_iter_next(*out, at)) {
        if ((err = check_var_name(json_object_iter_key(at), documents, api_get(body, "tools"), e)))
            return err;
    }
    json_object_update_missing(*out, json_object_get(c->api->defaults, "chat_template_kwargs"));
    if (chat_template_traits(api_template(c))->wants_thinking &&
        !json_object_get(*out, "enable_thinking"))
        json_object_set_new(*out, "enable_thinking", json_true());
    say_preserved(*out);
    add_dates(*out);
    if (documents)
        json_object_set(*out, "documents", documents);
    return OK;
}

static bool is_of_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

/* With continue_final_message the last message, which is the assistant's, is the beginning of the
 * answer: its text goes from *messages to *begun, the caller's reference, else NULL. llama-server's
 * clients need not say so. */
static enum err take_begun(
    const json_t *body, bool llama, json_t *messages, json_t **begun, struct err_info *e)
{
    static const char field[] = "continue_final_message";
    size_t n = json_array_size(messages);
    const json_t *last = json_array_get(messages, n - 1);
    bool wanted = llama && is_of_assistant(last) && !api_get(last, "tool_calls") &&
                  !api_get(last, "reasoning_content");
    enum err err = api_get_bool(body, field, &wanted, e);
    if (err || !wanted)
        return err;
    if (llama && !api_get(body, field) && is_of_assistant(json_array_get(messages, n - 2)))
        return err_invalid(e, "messages", "'messages' ends with two of the assistant's");
    if (api_get(body, field) && json_is_true(json_object_get(body, "add_generation_prompt")))
        return err_invalid(e,
                           field,
                           "'continue_final_message' and 'add_generation_prompt' cannot both be "
                           "true");
    if (!is_of_assistant(last) || api_get(last, "tool_calls") || api_get(last, "reasoning_content"))
        return err_invalid(e,
                           field,
                           "'continue_final_message' wants a last message of the assistant with "
                           "nothing but text");
    *begun = json_incref(json_object_get(last, "content"));
    json_array_remove(messages, n - 1);
    return OK;
}

/* Could the answer have begun with a text? asked: the client said continue_final_message, which
 * Anthropic's need not. */
static enum err check_begun(const struct api_call *c, bool asked, struct err_info *e)
{
    const char *why = c->reply.start.thinking && c->shape == API_ANTHROPIC
                          ? "the template has the model reason first ('thinking' of the type "
                            "disabled may turn that off)"
                      : c->reply.start.thinking
                          ? "the template has the model reason first (enable_thinking in "
                            "'chat_template_kwargs' may turn that off)"
                      : reply_is_framed(c->reply.style.format)
                          ? "answers of this model's format do not begin with their text"
                          : NULL;
    if (!why)
        return OK;
    if (asked)
        return err_invalid(
            e, "continue_final_message", "'continue_final_message' cannot be kept to: %s", why);
    return err_invalid(e,
                       "messages",
                       "the last message is the assistant's, which the answer would go on from: "
                       "%s; with 'continue_final_message' false it is a turn of its own",
                       why);
}

static enum err parse_prompt(struct api_call *c,
                             const json_t *body,
                             struct api_job *job,
                             struct err_info *e)
{
    json_t *messages = NULL, *vars = NULL, *begun = NULL;
    bool open_turn = true;
    enum err err;
    if (!(err = parse_messages(body, &messages, e)) && !(err = parse_vars(c, body, &vars, e)) &&
        !(err = parse_effort(c, body, vars, e)) &&
        !(err = api_get_bool(body, "add_generation_prompt", &open_turn, e)) &&
        !(err = take_begun(body, c->shape == API_BARE, messages, &begun, e))) {
        struct token_list *ids = &api_job_prompts(job, 1)->ids;
        err = api_reply_encode(c, messages, vars, open_turn || begun, begun, ids, e);
        if (err && e && e->field[0] == '\0')
            snprintf(e->field, sizeof e->field, "messages");
        if (!err && begun)
            err = check_begun(
                c, api_get(body, "continue_final_message") && c->shape != API_ANTHROPIC, e);
    }
    json_decref(begun);
    json_decref(messages);
    json_decref(vars);
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
        return err_invalid(e, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    c->n_top = n_top > 0 ? (uint32_t)n_top : 0;
    return OK;
}

/* Where reasoning goes: llama-server's, SGLang's and vLLM's words for it. */
static enum err parse_reasoning(struct api_call *c, const json_t *body, struct err_info *e)
{
    struct gguf_str format = {0};
    bool separate = true, include = true;
    enum err err;
    if ((err = api_get_str(body, "reasoning_format", &format, e)) ||
        (err = api_get_bool(body, "separate_reasoning", &separate, e)) ||
        (err = api_get_bool(body, "include_reasoning", &include, e)))
        return err;
    const char *name = format.data ? format.data : "auto";
    const bool none = strcmp(name, "none") == 0;
    if (!none && strcmp(name, "auto") != 0 && strcmp(name, "deepseek") != 0)
        return err_invalid(e,
                           "reasoning_format",
                           "'reasoning_format' must be 'auto', 'deepseek' or 'none', not '%.40s'",
                           name);
    c->reply.thoughts_stay = none || !separate;
    c->reply.no_thoughts = !include;
    return OK;
}

static enum err parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    enum err err;
    if ((err = api_refuse_fields(body, refused, sizeof refused / sizeof refused[0], e)) ||
        (err = api_tools_parse(body, &c->tools, e)) || (err = check_modalities(body, e)) ||
        (err = parse_logprobs(c, body, e)) || (err = parse_prompt(c, body, job, e)))
        return err;
    return parse_reasoning(c, body, e);
}

static void open_stream(struct api_call *c, struct buf *out)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        api_chunk_begin(&c->choices[i], out);
        /* as llama-server has it: it may be that no content comes */
        buf_str(out, ",\"delta\":{\"role\":\"assistant\",\"content\":null},\"logprobs\":null");
        api_chunk_end(&c->choices[i], NULL, out);
    }
}

static void whole(struct api_call *c, struct buf *out)
{
    api_put_choices(c, api_reply_whole, out);
}

const struct api_dialect api_chat = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_field = "messages",
    .whole_context = true,
    .parse = parse,
    .open = open_stream,
    .piece = api_reply_piece,
    .progress = api_openai_progress,
    .close = api_reply_close,
    .end = api_openai_end,
    .fail = api_openai_fail,
    .whole = whole,
};
