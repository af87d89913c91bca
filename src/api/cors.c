/* Pages of other origins: which a browser may let call, and what it asks before that. Off unless
 * the operator names origins. Keys travel in headers, so nothing here speaks of cookies. */
#include "api/call.h"

#include <string.h>

static const char exposed[] =
    "X-Request-Id, Request-Id, Retry-After, Traceparent, X-RateLimit-Limit-Requests, "
    "X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests, X-RateLimit-Limit-Tokens, "
    "X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens";

/* A page that this machine serves itself, over http or https and at any port. */
static bool is_local(const char *origin)
{
    static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *at = strncmp(origin, "http://", 7) == 0    ? origin + 7
                     : strncmp(origin, "https://", 8) == 0 ? origin + 8
                                                           : NULL;
    for (size_t i = 0; at && i < sizeof hosts / sizeof hosts[0]; i++) {
        size_t n = strlen(hosts[i]);
        if (strncmp(at, hosts[i], n) != 0)
            continue;
        const char *port = at + n;
        if (*port == '\0' || (*port == ':' && port[1] && !port[1 + strspn(port + 1, "0123456789")]))
            return true;
    }
    return false;
}

/* The configured origin that is like this one, or NULL. */
static const char *find_origin(const struct api_config *cfg, const char *origin)
{
    for (size_t i = 0; i < cfg->n_cors_origins; i++) {
        if (strcmp(cfg->cors_origins[i], origin) == 0)
            return cfg->cors_origins[i];
    }
    return NULL;
}

/* The value of Access-Control-Allow-Origin, or NULL. */
static const char *allowed_origin(const struct api_call *c, const struct api_input *in)
{
    if (!in->origin)
        return NULL;
    if (find_origin(&c->api->cfg, "*"))
        return in->origin;
    if (is_local(in->origin) && find_origin(&c->api->cfg, "localhost"))
        return in->origin;
    return find_origin(&c->api->cfg, in->origin);
}

static void put_origin(struct api_call *c, const char *origin)
{
    if (origin)
        api_put_header(c, "Access-Control-Allow-Origin", origin);
    if (c->api->cfg.n_cors_origins > 0)
        api_put_header(c, "Vary", "Origin");
}

void api_cors(struct api_call *c, const struct api_input *in)
{
    const char *origin = allowed_origin(c, in);
    put_origin(c, origin);
    if (origin)
        api_put_header(c, "Access-Control-Expose-Headers", exposed);
}

/* Names of headers and commas only: it goes back as it came. */
static bool is_header_list(const char *s)
{
    for (; *s; s++) {
        bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
        if (!letter && !(*s >= '0' && *s <= '9') && !strchr("-_, ", *s))
            return false;
    }
    return true;
}

/* Which headers a client's library sends is its own affair, so any may come; by name, as the star
 * does not stand for Authorization. Methods are those of all routes. A browser keeps the answer for
 * ten minutes. */
bool api_cors_preflight(struct api_call *c, const struct api_input *in)
{
    const char *origin = allowed_origin(c, in);
    if (!in->origin || strcmp(in->method, "OPTIONS") != 0 || !in->cors_method ||
        c->api->cfg.n_cors_origins == 0)
        return false;
    put_origin(c, origin);
    c->answer.status = 200;
    if (!origin) /* answered, but with nothing that lets the page call */
        return true;
    api_put_header(c, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    if (in->cors_headers && is_header_list(in->cors_headers))
        api_put_header(c, "Access-Control-Allow-Headers", in->cors_headers);
    api_put_header(c, "Access-Control-Max-Age", "600");
    return true;
}
