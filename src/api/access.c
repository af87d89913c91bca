/* A call and the key it came with: who it is, what it may, what it came to. */
#include "api/call.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* "Authorization: Bearer KEY", or Anthropic's "X-Api-Key: KEY". NULL if there is neither; what is
 * no bearer token is a wrong one. */
static const char *credential_of(const struct api_input *in)
{
    const char *a = in->authorization;
    if (a && strncasecmp(a, "Bearer ", 7) == 0)
        return a + 7 + strspn(a + 7, " ");
    return in->api_key ? in->api_key : a ? "" : NULL; /* no key is empty */
}

enum err api_identify(struct api_call *c,
                      const struct api_input *in,
                      bool admin_route,
                      struct err_info *e)
{
    if (c->internal) {
        bool owned = in->owner && in->owner[0];
        c->key = owned ? api_keys_named(c->api->keys, in->owner) : NULL;
        c->gone = owned && !c->key ? in->owner : NULL;
        return OK;
    }
    return api_keys_identify(c->api->keys, credential_of(in), admin_route, &c->key, e);
}

/* "1.25s", as OpenAI's are Go's durations. */
static void put_seconds(char *out, size_t cap, uint64_t us)
{
    uint64_t ms = (us + 999) / 1000;
    snprintf(out, cap, "%llu.%03us", (unsigned long long)(ms / 1000), (unsigned)(ms % 1000));
}

static void put_limit(struct api_call *c,
                      const char *const names[3],
                      char values[3][sizeof c->limits[0]],
                      uint64_t limit,
                      uint64_t left,
                      uint64_t full_us)
{
    if (limit == 0)
        return;
    bool first = values[0][0] == '\0';
    snprintf(values[0], sizeof values[0], "%llu", (unsigned long long)limit);
    snprintf(values[1], sizeof values[1], "%llu", (unsigned long long)left);
    put_seconds(values[2], sizeof values[2], full_us);
    for (int i = 0; first && i < 3; i++)
        api_put_header(c, names[i], values[i]);
}

/* As of now; a second time puts newer values in the place of the old. */
static void put_limits(struct api_call *c)
{
    static const char *const requests[] = {"X-RateLimit-Limit-Requests",
                                           "X-RateLimit-Remaining-Requests",
                                           "X-RateLimit-Reset-Requests"};
    static const char *const tokens[] = {
        "X-RateLimit-Limit-Tokens", "X-RateLimit-Remaining-Tokens", "X-RateLimit-Reset-Tokens"};
    struct api_key_state s = api_keys_state(c->api->keys, c->key, clock_us());
    put_limit(c, requests, c->limits, s.requests, s.requests_left, s.requests_full_us);
    put_limit(c, tokens, c->limits + 3, s.tokens, s.tokens_left, s.tokens_full_us);
}

static void come_back_in(struct api_call *c, uint32_t seconds)
{
    c->answer.key_wait_s = seconds;
    if (seconds == 0)
        return; /* not known: as for a full queue */
    api_put_retry_after(c, seconds);
}

bool api_client_left(const struct api_call *c)
{
    const struct api_config *cfg = &c->api->cfg;
    return cfg->client_left && !c->internal && cfg->client_left(cfg->worker_ctx, c->name);
}

enum err api_enter(struct api_call *c, struct err_info *e)
{
    uint32_t retry_s;
    if (!c->key)
        return OK;
    enum err err = api_keys_enter(c->api->keys, c->key, c->internal, clock_us(), &retry_s, e);
    c->entered = err == OK;
    come_back_in(c, retry_s);
    put_limits(c);
    return err;
}

enum err api_charge(struct api_call *c, uint64_t n_prompt, struct err_info *e)
{
    uint32_t retry_s;
    if (!c->entered)
        return OK;
    uint64_t now_us = clock_us();
    enum err err =
        api_keys_take_prompt(c->api->keys, c->key, c->internal, n_prompt, now_us, &retry_s, e);
    c->n_charged = err ? 0 : n_prompt;
    c->refused = err != OK;
    if (err == ERR_RATE_LIMIT) /* nothing was done for it */
        api_keys_undo(c->api->keys, c->key, 0, now_us);
    come_back_in(c, retry_s);
    put_limits(c);
    return err;
}

void api_uncharge(struct api_call *c)
{
    if (!c->entered)
        return;
    api_keys_undo(c->api->keys, c->key, c->n_charged, clock_us());
    c->n_charged = 0;
    c->refused = true;
    put_limits(c);
}

void api_settle(struct api_call *c)
{
    if (!c->entered || c->n_running > 0)
        return;
    c->entered = false;
    struct api_key_usage u = {.refused = c->refused, .n_prompt = c->n_charged};
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const struct request *r = c->choices[i].req;
        u.n_generated += request_n_completion(r);
        if (i % c->n_per_prompt == 0)
            u.n_cached += request_n_cached(r);
    }
    api_keys_leave(c->api->keys, c->key, &u, clock_us());
}

/* Work of the background ranks below what clients ask for. */
static enum err rank_internal(const struct api_call *c,
                              struct request_params *p,
                              struct err_info *e)
{
    if (p->priority > 0)
        return err_invalid(e, "priority", "'priority' may not be above 0 in a batch");
    p->priority += c->rank;
    if (p->priority < -REQUEST_MAX_PRIORITY)
        p->priority = -REQUEST_MAX_PRIORITY;
    return OK;
}

uint32_t api_owner(const struct api_call *c)
{
    return c->key ? api_keys_terms(c->api->keys, c->key).tenant : 0;
}

enum err api_apply_terms(const struct api_call *c,
                         const json_t *body,
                         struct api_key_terms *terms,
                         struct request_params *p,
                         struct err_info *e)
{
    enum err err = c->internal ? rank_internal(c, p, e) : OK;
    if (err)
        return err;
    if (!c->key && !c->gone)
        return OK;
    *terms = c->key ? api_keys_terms(c->api->keys, c->key) : api_keys_terms_gone(c->gone);
    if (terms->has_space) {
        p->cache_tenant = terms->space;
        p->n_cache_tenant = sizeof terms->space;
    }
    if (!terms->limits_priority)
        return OK;
    p->tenant = terms->tenant;
    if (c->internal) {
        if (p->priority > terms->priority)
            p->priority = terms->priority;
        return OK;
    }
    if (!api_get(body, "priority"))
        p->priority = terms->priority;
    if (p->priority > terms->priority)
        return err_set_field(e,
                             ERR_FORBIDDEN,
                             "priority",
                             "'priority' may be up to %d with this key, not %d",
                             terms->priority,
                             p->priority);
    return OK;
}
