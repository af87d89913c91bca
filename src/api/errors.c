/* From what went wrong to what the client is told: the one table of statuses, and the shapes of
 * four APIs. */
#include "api/call.h"

#include <stdio.h>
#include <string.h>

#define STATUS_OVERLOADED 529 /* Anthropic's, for a full queue */

enum err api_no_memory(struct err_info *e)
{
    return err_set(e, ERR_NOMEM, "out of memory");
}

enum err api_not_tokenized(enum err why, const char *field, struct err_info *e)
{
    if (why == ERR_NOMEM)
        return why;
    return err_invalid(e, field, "'%s' cannot be tokenized", field);
}

enum err api_no_model(const struct api *a, const char *name, struct err_info *e)
{
    return err_set_field(e,
                         ERR_NOT_FOUND,
                         "model",
                         "the model '%.100s' is not here; this server has '%.100s'",
                         name,
                         a->model_id);
}

int api_status_of(enum err code)
{
    static const int statuses[] = {[OK] = 200,
                                   [ERR_NOMEM] = 503,
                                   [ERR_IO] = 500,
                                   [ERR_FULL] = 507,
                                   [ERR_FORMAT] = 400,
                                   [ERR_UNSUPPORTED] = 501,
                                   [ERR_INVALID] = 400,
                                   [ERR_NOT_FOUND] = 404,
                                   [ERR_METHOD] = 405,
                                   [ERR_AUTH] = 401,
                                   [ERR_FORBIDDEN] = 403,
                                   [ERR_TOO_LONG] = 400,
                                   [ERR_TOO_LARGE] = 413,
                                   [ERR_QUEUE_FULL] = 429,
                                   [ERR_RATE_LIMIT] = 429,
                                   [ERR_DRAINING] = 503,
                                   [ERR_INTERNAL] = 500};
    return statuses[code];
}

/* What each API calls a status; NULL: as it calls all below 500, or all from there on. */
static const struct words {
    int status;
    const char *code; /* OpenAI's machine-readable one */
    const char *openai, *anthropic, *llama;
} words[] = {
    {401,
     "invalid_api_key",
     "authentication_error",
     "authentication_error",
     "authentication_error"},
    {403, "forbidden", "permission_error", "permission_error", "permission_error"},
    {404, "not_found", NULL, "not_found_error", "not_found_error"},
    {405, "method_not_allowed", NULL, NULL, NULL},
    {413, "request_too_large", NULL, "request_too_large", NULL},
    {415, "unsupported_encoding", NULL, NULL, NULL},
    {429, "queue_full", "rate_limit_error", "rate_limit_error", "rate_limit_error"},
    {431, "headers_too_large", NULL, NULL, NULL},
    {501, "unsupported", NULL, NULL, "not_supported_error"},
    {503, "unavailable", NULL, "overloaded_error", "unavailable_error"},
    {507, "disk_full", NULL, NULL, NULL},
    {STATUS_OVERLOADED, NULL, NULL, "overloaded_error", NULL},
};

static const struct words *words_of(int status)
{
    static const struct words none = {0};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].status == status)
            return &words[i];
    return &none;
}

static const char *code_of(int status, const struct err_info *e)
{
    if (e->code == ERR_TOO_LONG)
        return "context_length_exceeded";
    if (e->code == ERR_NOT_FOUND && strcmp(e->field, "model") == 0)
        return "model_not_found";
    if (e->code == ERR_RATE_LIMIT)
        return "rate_limit_exceeded";
    return words_of(status)->code;
}

/* Clients retry by status, not by these. */
static const char *type_of(enum api_shape shape, int status, const struct err_info *e)
{
    const struct words *w = words_of(status);
    const char *type = shape == API_ANTHROPIC ? w->anthropic
                       : shape == API_LLAMA   ? w->llama
                                              : w->openai;
    if (e->code == ERR_TOO_LONG && (shape == API_LLAMA || shape == API_BARE))
        return "exceed_context_size_error"; /* llama-server's clients look for it */
    if (type)
        return type;
    return status < 500             ? "invalid_request_error"
           : shape == API_ANTHROPIC ? "api_error"
                                    : "server_error";
}

int api_shape_status(enum api_shape shape, enum err code)
{
    if (shape == API_ANTHROPIC && code == ERR_QUEUE_FULL)
        return STATUS_OVERLOADED;
    if (shape == API_PLAIN && code == ERR_QUEUE_FULL)
        return 503;
    if (shape == API_PLAIN && code == ERR_FORMAT)
        return 422;
    return api_status_of(code);
}

/* What llama-server's clients read of a prompt that is too long. */
static void put_lengths(const struct err_info *e, struct buf *out)
{
    if (e->code == ERR_TOO_LONG && e->n_ctx > 0)
        buf_printf(out, ",\"n_prompt_tokens\":%u,\"n_ctx\":%u", e->n_prompt, e->n_ctx);
}

/* Anthropic's clients (Claude Code, LangChain) know a prompt that is too long by these words alone,
 * and shorten the conversation then. */
static void put_anthropic_message(const struct err_info *e, struct buf *out)
{
    if (e->code == ERR_TOO_LONG && e->n_ctx > 0 && e->n_prompt >= e->n_ctx)
        buf_printf(out,
                   ",\"message\":\"prompt is too long: %u tokens > %u maximum\"",
                   e->n_prompt,
                   e->n_ctx - 1); /* there must be room for an answer */
    else
        api_field_text(out, "message", e->text);
}

void api_put_error(enum api_shape shape,
                   int status,
                   const struct err_info *e,
                   const char *request_id,
                   struct buf *out)
{
    switch (shape) {
    case API_OPENAI:
    case API_BARE:
        buf_str(out, "{\"error\":{");
        api_field_text(out, "message", e->text);
        api_field_text(out, "type", type_of(shape, status, e));
        api_field_text(out, "param", e->field[0] ? e->field : NULL);
        api_field_text(out, "code", code_of(status, e));
        put_lengths(e, out);
        buf_str(out, "}}");
        break;
    case API_ANTHROPIC:
        buf_str(out, "{\"type\":\"error\",\"error\":{");
        api_field_text(out, "type", type_of(shape, status, e));
        put_anthropic_message(e, out);
        if (strcmp(e->field, "thread") == 0) /* its clients send the whole conversation then */
            buf_str(out,
                    ",\"details\":{\"error_code\":\"thread_unsupported_request\","
                    "\"unsupported\":[\"thread\"]}");
        buf_char(out, '}');
        api_field_text(out, "request_id", request_id);
        buf_char(out, '}');
        break;
    case API_LLAMA:
        buf_str(out, "{\"error\":{");
        api_field_int(out, "code", status);
        api_field_text(out, "message", e->text);
        api_field_text(out, "type", type_of(shape, status, e));
        put_lengths(e, out);
        buf_str(out, "}}");
        break;
    case API_PLAIN:
        buf_char(out, '{');
        api_field_text(out, "error", e->text);
        buf_char(out, '}');
        break;
    }
}

bool api_error_body(
    int status, const struct err_info *e, const char *path, const char *request_id, struct buf *out)
{
    char route[64]; /* longer than every path that is not OpenAI's */
    snprintf(route, sizeof route, "%.*s", path ? (int)strcspn(path, "?") : 0, path ? path : "");
    const enum api_shape shape = api_shape_of(route);
    api_put_error(shape, status, e, request_id, out);
    return shape == API_ANTHROPIC;
}
