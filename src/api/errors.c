/* From what went wrong to what the client is told: the one table, and OpenAI's shape. */
#include "api/call.h"

#include <string.h>

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
    case 429:
        return "queue_full";
    case 431:
        return "headers_too_large";
    case 501:
        return "unsupported";
    case 503:
        return "unavailable";
    default:
        return NULL;
    }
}

/* OpenAI's types; clients retry by status, not by these. */
static const char *type_of(int status)
{
    if (status == 401)
        return "authentication_error";
    if (status == 403)
        return "permission_error";
    if (status == 429)
        return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void api_error_body(int status, const struct err_info *e, struct buf *out)
{
    const char *code = code_of(status, e);
    buf_str(out, "{\"error\":{\"message\":");
    api_put_text(out, e->text, strlen(e->text));
    buf_str(out, ",\"type\":\"");
    buf_str(out, type_of(status));
    buf_str(out, "\",\"param\":");
    if (e->field[0])
        api_put_text(out, e->field, strlen(e->field));
    else
        buf_str(out, "null");
    buf_str(out, ",\"code\":");
    if (code)
        api_put_str(out, code, strlen(code));
    else
        buf_str(out, "null");
    buf_str(out, "}}");
}
