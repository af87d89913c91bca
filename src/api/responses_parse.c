/* POST /v1/responses: from its fields to those of /v1/chat/completions.
 *
 *      previous_response_id, instructions, input       messages (responses_input.c)
 *      tools, tool_choice                              the same as functions (responses_tools.c)
 *      text.format, reasoning.effort                   response_format, a variable of the template
 */
#include "api/responses.h"
#include "api/tools.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct api_refused refused[] = {
    {"background", NEUTRAL_FALSE, 0},
    {"conversation", NEUTRAL_NOTHING, 0},
    {"prompt", NEUTRAL_NOTHING, 0},
    {"max_tool_calls", NEUTRAL_NOTHING, 0},
    {"messages", NEUTRAL_NOTHING, 0},
    {"context_management", NEUTRAL_EMPTY, 0},
    {"n", NEUTRAL_NUMBER, 1},
};

/* --- format, flags -------------------------------------------------------------------------- */

/* text: {"format": {"type": "text" | "json_object" | "json_schema", ...}}. */
static enum err adapt_format(const json_t *body, json_t *b, struct err_info *e)
{
    const json_t *text = json_object_get(body, "text");
    json_t *format = json_object_get(text, "format");
    if (!text || json_is_null(text) || (json_is_object(text) && (!format || json_is_null(format))))
        return OK;
    if (!json_is_object(text))
        return api_wrong_type("text", "an object", text, e);
    if (!json_is_object(format))
        return api_wrong_type("text.format", "an object", format, e);
    json_t *out = json_object();
    json_object_set(out, "type", json_object_get(format, "type"));
    if (strcmp(api_text_at(format, "type"), "json_schema") == 0) {
        if (!api_get(format, "schema")) {
            json_decref(out);
            return err_invalid(
                e, "text.format", "'text.format' has no 'schema' for its json_schema");
        }
        json_t *schema = json_copy(format);
        json_object_del(schema, "type");
        json_object_set_new(out, "json_schema", schema);
    }
    json_object_set_new(b, "response_format", out);
    return OK;
}

/* reasoning.effort: a variable of the template, where it has one; "none" is no thinking at all. */
static enum err adapt_effort(json_t *effort, json_t *b, struct err_info *e)
{
    if (!effort)
        return OK;
    if (!json_is_string(effort))
        return api_wrong_type("reasoning.effort", "a string", effort, e);
    json_t *kwargs = api_own_object(b, "chat_template_kwargs");
    if (!kwargs)
        return OK; /* refused where it is read */
    if (!json_object_get(kwargs, "reasoning_effort"))
        json_object_set(kwargs, "reasoning_effort", effort);
    if (strcmp(json_string_value(effort), "none") == 0)
        api_say_thinking(kwargs, kwargs, false);
    return OK;
}

static enum err adapt_rest(const json_t *body, json_t *b, struct err_info *e)
{
    json_t *max = (json_t *)api_get(body, "max_output_tokens");
    json_t *reasoning;
    struct gguf_str truncation = {"disabled", 8}, user;
    enum err err;
    if ((err = api_get_str(body, "truncation", &truncation, e)) ||
        (err = api_get_str(body, "user", &user, e)) ||
        (err = api_get_object(body, "reasoning", "an object", &reasoning, e)))
        return err;
    if (strcmp(truncation.data, "disabled") != 0 && strcmp(truncation.data, "auto") != 0)
        return err_invalid(e, "truncation", "'truncation' must be 'disabled' or 'auto'");
    if (max) { /* before the names that other routes have for it */
        json_object_del(b, "max_completion_tokens");
        json_object_set(b, "max_tokens", max);
    }
    json_object_del(b, "text");
    return adapt_effort((json_t *)api_get(reasoning, "effort"), b, e);
}

/* --- what the answer repeats ---------------------------------------------------------------- */

static void put_field(struct buf *out, const char *name, const json_t *v, const char *otherwise)
{
    const bool given = v && !json_is_null(v);
    char *text =
        given ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    out->failed |= given && !text;
    buf_printf(out, ",\"%s\":", name);
    buf_str(out, text ? text : otherwise);
    free(text);
}

/* The limit that holds, by whichever of its names. */
static const json_t *limit_of(const json_t *body)
{
    static const char *const names[] = {
        "max_output_tokens", "max_completion_tokens", "max_tokens", "n_predict"};
    const json_t *v = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !v; i++)
        v = api_get(body, names[i]);
    return v && json_number_value(v) > 0 ? v : NULL; /* -1: there is none */
}

static void write_echo(struct responses *r, const json_t *body)
{
    static const struct {
        const char *name, *otherwise;
    } fields[] = {
        {"instructions", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"previous_response_id", "null"},
        {"reasoning", "{\"effort\":null,\"summary\":null}"},
        {"store", "true"},
        {"temperature", "1.0"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"tool_choice", "\"auto\""},
        {"top_logprobs", "0"},
        {"top_p", "1.0"},
        {"truncation", "\"disabled\""},
        {"user", "null"},
    };
    put_field(&r->echo, "max_output_tokens", limit_of(body), "null");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        put_field(
            &r->echo, fields[i].name, json_object_get(body, fields[i].name), fields[i].otherwise);
    put_field(&r->echo, "tools", r->offered, "[]");
    buf_str(&r->echo, ",\"background\":false,\"max_tool_calls\":null,\"service_tier\":\"default\"");
}

/* include: only the log-probabilities are something that we could leave out. */
static enum err read_flags(struct api_call *c, const json_t *body, struct err_info *e)
{
    struct responses *r = c->state;
    json_t *include, *metadata;
    int64_t n_top = 0;
    enum err err;
    r->store = true;
    if ((err = api_get_bool(body, "store", &r->store, e)) ||
        (err = api_get_int(body, "top_logprobs", 0, REQUEST_MAX_TOP_LOGPROBS, &n_top, e)) ||
        (err = api_get_metadata(body, &metadata, e)) ||
        (err = api_get_array(body, "include", "an array of strings", &include, e)))
        return err;
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *name = json_string_value(json_array_get(include, i));
        if (!name)
            return api_wrong_type("include", "an array of strings", json_array_get(include, i), e);
        c->logprobs |= strcmp(name, "message.output_text.logprobs") == 0;
    }
    r->store &= !c->prompt_only;
    c->logprobs |= n_top > 0;
    c->n_top = (uint32_t)n_top;
    return OK;
}

#define N_TEXTS 12

/* All its texts: they grow with what the client sends, or with the answer. */
static void list_texts(struct responses *r, struct buf *all[N_TEXTS])
{
    struct buf *const texts[N_TEXTS] = {&r->echo,
                                        &r->messages,
                                        &r->given,
                                        &r->name,
                                        &r->text,
                                        &r->logprobs,
                                        &r->noted,
                                        &r->items,
                                        &r->input,
                                        &r->said,
                                        &r->thought,
                                        &r->called};
    memcpy(all, texts, sizeof texts);
}

static void responses_free(void *state)
{
    struct responses *r = state;
    struct buf *all[N_TEXTS];
    list_texts(r, all);
    for (size_t i = 0; i < N_TEXTS; i++)
        buf_deinit(all[i]);
    json_decref(r->offered);
    json_decref(r->places);
    json_decref(r->renamed);
    free(r);
}

enum err responses_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
{
    enum err err;
    struct responses *r = c->state = mem_zalloc(1, sizeof *r);
    struct buf *texts[N_TEXTS];
    list_texts(r, texts);
    for (size_t i = 0; i < N_TEXTS; i++)
        texts[i]->may_fail = true;
    c->free_state = responses_free;
    json_t *b = *out = json_copy((json_t *)body);
    if (!b)
        return err_set(e, ERR_NOMEM, "no memory to read the body");
    if ((err = api_refuse_fields(body, refused, sizeof refused / sizeof *refused, e)) ||
        (err = read_flags(c, body, e)) || (err = responses_adapt_input(c, body, b, e)) ||
        (err = responses_adapt_tools(r, body, b, e)) || (err = adapt_format(body, b, e)) ||
        (err = adapt_rest(body, b, e)))
        return err;
    c->tool_places = r->places;
    json_object_del(b, "top_logprobs"); /* read; in chat they need another field */
    write_echo(c->state, body);
    return r->echo.failed ? api_no_memory(e) : OK;
}

enum err responses_parse(struct api_call *c,
                         const json_t *body,
                         struct api_job *job,
                         struct err_info *e)
{
    bool logprobs = c->logprobs;
    uint32_t n_top = c->n_top;
    enum err err = api_chat.parse(c, body, job, e);
    const struct responses *r = c->state;
    if (err) {
        api_tools_name_place(r->places, e);
        api_rename_field(e, "tool_choice.allowed_tools", "tool_choice");
    }
    c->logprobs = logprobs;
    c->n_top = n_top;
    return err;
}
