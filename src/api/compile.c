#include "api/compile.h"

#include "api/gate.h"

#include <string.h>
#include <xxhash.h>

static struct grammar *find(struct api_call *c, const struct api_grammar_source *s)
{
    return s->check ? NULL : grammar_cache_find(c->api->grammars, s->key->data, s->key->len);
}

/* Compile; a try sets *cut_short where it was not enough, and then has no result. */
static enum err compile(struct api_call *c,
                        const struct api_grammar_source *s,
                        bool try,
                        bool *cut_short,
                        struct grammar **out,
                        struct err_info *e)
{
    const struct grammar_vocab *vocab;
    enum err err = engine_vocab(c->engine, &vocab, e);
    if (err)
        return err;
    struct grammar_builder *b = grammar_builder_create(s->field);
    grammar_builder_set_try(b, try);
    const grammar_node root = s->build(s->ctx, b);
    err = s->check ? grammar_builder_error(b, e) : grammar_compile(b, root, vocab, out, e);
    *cut_short = grammar_builder_cut_short(b);
    grammar_builder_destroy(b);
    if (*cut_short) {
        grammar_release(*out);
        *out = NULL;
    } else if (*out) {
        grammar_cache_add(c->api->grammars, s->key->data, s->key->len, *out);
    }
    return err;
}

/* Whose work it is: the key's, or without one the address's. */
static uint64_t who(const struct api_call *c)
{
    const char *port = strrchr(c->client, ':');
    size_t n = port ? (size_t)(port - c->client) : strlen(c->client);
    return api_owner(c) ? api_owner(c) : XXH3_64bits(c->client, n);
}

static void tell_slow(const struct api_call *c, bool slow)
{
    const struct api_config *cfg = &c->api->cfg;
    if (cfg->worker_slow && !c->internal)
        cfg->worker_slow(cfg->worker_ctx, slow);
}

static bool client_left(void *ctx)
{
    return api_client_left(ctx);
}

static enum err compile_in_turn(struct api_call *c,
                                const struct api_grammar_source *s,
                                struct grammar **out,
                                struct err_info *e)
{
    bool cut_short;
    uint32_t retry_s;
    enum err err = api_gate_enter(c->api->gate, who(c), client_left, c, &retry_s, e);
    if (err) {
        if (retry_s > 0)
            api_put_retry_after(c, retry_s);
        return err;
    }
    *out = find(c, s);
    if (!*out)
        err = compile(c, s, false, &cut_short, out, e);
    api_gate_leave(c->api->gate);
    return err;
}

enum err api_compile(struct api_call *c,
                     const struct api_grammar_source *s,
                     struct grammar **out,
                     struct err_info *e)
{
    bool cut_short = false;
    struct err_info tried = {0};
    *out = find(c, s);
    if (*out)
        return OK;
    enum err err = compile(c, s, true, &cut_short, out, &tried);
    if (!cut_short) {
        if (err && e)
            *e = tried;
        return err;
    }
    tell_slow(c, true);
    err = compile_in_turn(c, s, out, e);
    tell_slow(c, false);
    return err;
}
