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
    return err_set_field(e, ERR_INVALID, field, "'%s' cannot be tokenized", field);
}

int api_status_of(enum err code)
{
    switch (code) {
    case OK:
        return 200;
    case ERR_FORMAT:
    case ERR_INVALID:
    case ERR_TOO_LONG:
        return 400;
    case ERR_AUTH:
        return 401;
    case ERR_FORBIDDEN:
        return 403;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_METHOD:
        return 405;
    case ERR_TOO_LARGE:
        return 413;
    case ERR_QUEUE_FULL:
    case ERR_RATE_LIMIT:
        return 429;
    case ERR_UNSUPPORTED:
        return 501;
    case ERR_DRAINING:
    case ERR_NOMEM:
        return 503;
    case ERR_FULL:
        return 507;
    case ERR_IO:
    case ERR_INTERNAL:
        break;
    }
    return 500;
}

/* OpenAI's machine-readable code, NULL where it has none. */
static const char *code_of(int status, const struct err_info *e)
{
    if (e->code == ERR_TOO_LONG)
        return "context_length_exceeded";
    if (e->code == ERR_NOT_FOUND && strcmp(e->field, "model") == 0)
        return "model_not_found";
    if (e->code == ERR_RATE_LIMIT)
        return "rate_limit_exceeded";
    switch (status) {
    case 401:
        return "invalid_api_key";
    case 403:
        return "forbidden";
    case 404:
        return "not_found";
    case 405:
        return "method_not_allowed";
    case 413:
        return "request_too_large";
    case 415:
        return "unsupported_encoding";
    case 429:
        return "queue_full";
    case 431:
        return "headers_too_large";
    case 501:
        return "unsupported";
    case 503:
        return "unavailable";
    case 507:
        return "disk_full";
    default:
        return NULL;
    }
}

/* OpenAI's types; clients retry by status, not by these. */
static const char *openai_type(int status)
{
    if (status == 401)
        return "authentication_error";
    if (status == 403)
        return "permission_error";
    if (status == 429)
        return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

/* Anthropic's, one for each of its statuses. */
static const char *anthropic_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
    case STATUS_OVERLOADED:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

/* llama-server's. */
static const char *llama_type(int status, const struct err_info *e)
{
    if (e->code == ERR_TOO_LONG)
        return "exceed_context_size_error";
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
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

static void openai_error(int status, const char *type, const struct err_info *e, struct buf *out)
{
    buf_str(out, "{\"error\":{");
    api_field_text(out, "message", e->text);
    api_field_text(out, "type", type);
    api_field_text(out, "param", e->field[0] ? e->field : NULL);
    api_field_text(out, "code", code_of(status, e));
    put_lengths(e, out);
    buf_str(out, "}}");
}

void api_put_error(enum api_shape shape,
                   int status,
                   const struct err_info *e,
                   const char *request_id,
                   struct buf *out)
{
    switch (shape) {
    case API_OPENAI:
        openai_error(status, openai_type(status), e, out);
        break;
    case API_BARE: /* OpenAI's words but for the one that llama-server's clients look for */
        openai_error(
            status, e->code == ERR_TOO_LONG ? llama_type(status, e) : openai_type(status), e, out);
        break;
    case API_ANTHROPIC:
        buf_str(out, "{\"type\":\"error\",\"error\":{");
        api_field_text(out, "type", anthropic_type(status));
        api_field_text(out, "message", e->text);
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
        api_field_text(out, "type", llama_type(status, e));
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
