/* From a body to requests in the engine, on a worker thread.
 *
 *      body -- dialect.adapt --> body of fields that all dialects share
 *           -- api_params_parse, dialect.parse --> job -- api_create_choices --> requests
 *           -- api_submit --> engine
 *
 * Everything that can go wrong does so before submit or in it, and then all is undone: a client
 * gets all of its choices or an error, never some. */
#include "api/native.h"
#include "api/reply.h"
#include "api/rules.h"
#include "api/tools.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_TOKENS 16 /* as OpenAI has it for text */
/* In an answer, which takes some 60 bytes for each. */
#define MAX_PROMPT_LOGPROBS (8u << 20)

struct api_prompt *api_job_prompts(struct api_job *job, uint32_t n)
{
    job->prompts = mem_zalloc(n, sizeof *job->prompts);
    job->n_prompts = n;
    return job->prompts;
}

enum err api_read_prompts(struct api_call *c,
                          const json_t *list,
                          const char *name,
                          api_prompt_fn read,
                          struct api_job *job,
                          struct err_info *e)
{
    const size_t n = json_array_size(list);
    struct api_prompt *prompts = api_job_prompts(job, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        char field[48];
        snprintf(field, sizeof field, "%s[%zu]", name, i);
        enum err err = read(c, json_array_get(list, i), field, &prompts[i], e);
        if (err)
            return err;
    }
    return OK;
}

void api_job_deinit(struct api_job *job)
{
    for (uint32_t i = 0; i < job->n_prompts; i++) {
        token_list_deinit(&job->prompts[i].ids);
        buf_deinit(&job->prompts[i].text);
    }
    free(job->prompts);
    api_params_deinit(&job->params);
}

enum err api_check_model(const struct api_call *c, struct gguf_str name, struct err_info *e)
{
    if (!name.data || c->api->cfg.any_model || api_is_model(c->api, name.data, name.len))
        return OK;
    return api_no_model(c->api, name.data, e);
}

/* Of requests that do not say; 0: to the end of the context. */
static uint32_t default_max_tokens(const struct api_call *c, const struct api_dialect *d)
{
    if (c->api->cfg.max_tokens > 0)
        return c->api->cfg.max_tokens;
    return d->whole_context ? 0 : DEFAULT_MAX_TOKENS;
}

static enum err constrain(struct api_call *c,
                          const json_t *body,
                          struct api_params *p,
                          struct err_info *e)
{
    enum err err;
    if ((err = api_reply_constrain(c, p, e)) || (err = api_structured_parse(c, body, p, e)))
        api_tools_name_schema(&c->tools,
                              c->tool_places,
                              c->shape == API_ANTHROPIC ? "input_schema" : "parameters",
                              e);
    return err;
}

/* vLLM's fields that only OpenAI's two routes have, and of streams only the first. */
static enum err check_route(const struct api_dialect *d,
                            const struct api_params *p,
                            struct err_info *e)
{
    const bool here = d == &api_chat || d == &api_completions;
    if (p->return_token_ids && !here)
        return err_invalid(
            e, "return_token_ids", "'return_token_ids' is not supported by this route");
    if (p->tokens_as_ids && !here)
        return err_invalid(e,
                           "return_tokens_as_token_ids",
                           "'return_tokens_as_token_ids' is not supported by this route");
    if (p->prompt_logprobs && (!here || p->stream))
        return err_invalid(e,
                           "prompt_logprobs",
                           "'prompt_logprobs' is not supported %s",
                           here ? "in a stream" : "by this route");
    return OK;
}

/* Log-probabilities of prompt and answer; one number of most likely tokens serves both, and of
 * those who write them each takes as many as were asked for. */
static void ask_logprobs(struct api_call *c, struct api_params *p)
{
    c->prompt_logprobs = p->prompt_logprobs;
    c->n_prompt_top = p->n_prompt_top;
    p->request.logprobs = c->logprobs;
    p->request.n_top_logprobs = c->n_top > c->n_prompt_top ? c->n_top : c->n_prompt_top;
    p->request.prompt_ranks = c->prompt_logprobs;
}

/* Read the body into *job and the flags of *c. */
static enum err parse(struct api_call *c,
                      const struct api_dialect *d,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    struct api_params *p = &job->params;
    enum err err =
        api_params_parse(body, tokenizer_n_vocab(c->tokenizer), c->api->max_choices, p, e);
    if (err)
        return err;
    if ((!d->any_model && (err = api_check_model(c, p->model, e))) ||
        (err = model_must_generate(engine_model(c->engine), e)) ||
        (err = api_rules_parse(body, c->tokenizer, engine_model(c->engine)->hp.n_vocab, p, e)))
        return err;
    /* what the writers need later: the job ends with api_generate */
    c->include_usage = p->stream && p->include_usage;
    c->usage_so_far = p->usage_so_far;
    c->return_tokens = p->return_tokens;
    c->special_text = p->request.special_text;
    c->token_ids = p->return_token_ids;
    c->tokens_as_ids = p->tokens_as_ids;
    c->ignore_eos = p->request.ignore_eos;
    c->n_per_prompt = p->n;
    const bool scored = p->prompt_logprobs; /* of a prompt that is, an answer is not needed */
    if ((err = check_route(d, p, e)) || (err = api_get_bool(body, "timeline", &c->timeline, e)) ||
        (err = api_read_extras(c, body, p, e)) ||
        (err = api_apply_terms(c, body, &job->terms, &p->request, e)) ||
        (err = d->parse(c, body, job, e)) ||
        (!c->echo && !scored && (err = api_params_some(p, e))) ||
        (err = api_read_budget(c, body, p, e)) || (err = constrain(c, body, p, e)))
        return err;
    ask_logprobs(c, p);
    if (c->verbose && c->settings.len == 0) { /* the dialect has not */
        struct api_job used = *job;
        if (!p->max_tokens_given)
            used.params.request.max_tokens = default_max_tokens(c, d);
        native_put_settings(c, NULL, &used, &c->settings);
    }
    return OK;
}

/* The part of every chunk, or of the whole answer, that comes before its choices. */
static void write_prefix(struct api_call *c, const struct api_dialect *d, bool stream)
{
    struct buf *b = &c->prefix;
    buf_str(b, stream ? "data: {\"id\":\"" : "{\"id\":\"");
    buf_str(b, c->id);
    buf_str(b, "\",\"object\":\"");
    buf_str(b, stream ? d->chunk_object : d->object);
    buf_char(b, '"');
    api_field_int(b, "created", c->created);
    api_field_model(c, "model", b);
    buf_str(b, ",\"system_fingerprint\":\"build-" WEIR_VERSION "\"");
    buf_str(b, ",\"choices\":[");
}

/* The client's name of the prompt at fault. */
static void name_prompt(const struct api_dialect *d,
                        const struct api_job *job,
                        uint32_t index,
                        struct err_info *e)
{
    if (job->n_prompts > 1)
        snprintf(e->field, sizeof e->field, "%s[%u]", d->prompt_field, index / job->params.n);
    else
        snprintf(e->field, sizeof e->field, "%s", d->prompt_field);
}

/* The request of one choice. Choice i of a prompt draws from seed + i. */
static enum err create_choice(struct api_call *c,
                              const struct api_dialect *d,
                              const struct api_job *job,
                              uint32_t index,
                              struct err_info *e)
{
    const struct token_list *ids = &job->prompts[index / job->params.n].ids;
    struct request_params p = job->params.request;
    struct api_choice *ch = &c->choices[index];
    uint32_t n_ctx = engine_n_ctx(c->engine);
    p.sample.seed += index % job->params.n;
    p.same_prompt = index % job->params.n > 0;
    p.prompt_logprobs |= c->prompt_logprobs && !p.same_prompt;
    /* the default gives way to what fits; a number that was asked for does not */
    uint32_t usual = default_max_tokens(c, d);
    if (!job->params.max_tokens_given && usual > 0 && ids->n < n_ctx) {
        uint32_t room = n_ctx - (uint32_t)ids->n;
        p.max_tokens = room < usual ? room : usual;
    }
    if (job->params.max_tokens_gives && ids->n < n_ctx && p.max_tokens > n_ctx - ids->n)
        p.max_tokens = n_ctx - (uint32_t)ids->n;
    if (ids->n > UINT32_MAX / 2)
        return err_set_field(e, ERR_TOO_LONG, d->prompt_field, "the prompt is too long");
    *ch = (struct api_choice){
        .call = c, .index = index, .logprobs.may_fail = true, .tokens.may_fail = true};
    enum err err = request_create(c->engine, &p, ids->ids, (uint32_t)ids->n, ch, &ch->req, e);
    if (err && strcmp(e->field, "prompt") == 0)
        name_prompt(d, job, index, e);
    if (!err)
        ch->reply = reply_create(&c->reply);
    return err;
}

enum err api_create_choices(struct api_call *c,
                            const struct api_dialect *d,
                            struct api_job *job,
                            struct err_info *e)
{
    uint32_t n = job->n_prompts * job->params.n;
    c->choices = mem_zalloc(n, sizeof *c->choices);
    c->echoes = mem_zalloc(job->n_prompts, sizeof *c->echoes);
    c->n_prompts = job->n_prompts;
    for (uint32_t i = 0; i < job->n_prompts; i++) {
        c->echoes[i] = job->prompts[i].text;
        job->prompts[i].text = (struct buf){0};
    }
    for (c->n_choices = 0; c->n_choices < n; c->n_choices++) {
        enum err err = create_choice(c, d, job, c->n_choices, e);
        if (err)
            return err;
    }
    return OK;
}

/* Log-probabilities of prompts that an echo repeats: each choice has its own. */
static uint64_t n_echoed(const struct api_call *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; c->echo && c->logprobs && i < c->n_choices; i++) {
        uint32_t n_prompt;
        (void)request_prompt(c->choices[i].req, &n_prompt);
        n += n_prompt;
    }
    return n * (1 + c->n_top);
}

/* Is the answer of a size that can be held? */
static enum err check_size(const struct api_call *c,
                           const struct api_dialect *d,
                           struct err_info *e)
{
    const uint64_t n = api_n_prompt_logprobs(c, d) + n_echoed(c);
    if (n <= MAX_PROMPT_LOGPROBS)
        return OK;
    const char *field = c->prompt_logprobs ? "prompt_logprobs" : "logprobs";
    return err_invalid(e,
                       field,
                       "'%s' would give %llu log-probabilities of prompts, of which an answer may "
                       "have %u",
                       field,
                       (unsigned long long)n,
                       MAX_PROMPT_LOGPROBS);
}

enum err api_charge_job(struct api_call *c, const struct api_job *job, struct err_info *e)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < job->n_prompts; i++)
        n += job->prompts[i].ids.n;
    return api_charge(c, n, e);
}

enum err api_submit(struct api_call *c,
                    const struct api_dialect *d,
                    bool stream,
                    struct err_info *e)
{
    uint32_t n = c->n_choices;
    struct request **requests = mem_alloc(n * sizeof *requests);
    for (uint32_t i = 0; i < n; i++)
        requests[i] = c->choices[i].req;
    api_new_id(d->id_prefix, c->id, sizeof c->id);
    if (d->object)
        write_prefix(c, d, stream);
    c->answer.status = 200;
    c->answer.content_type = stream ? "text/event-stream" : "application/json";
    c->answer.stream = stream;
    /* all of this before the engine has the requests: their events may come at once */
    c->n_running = n;
    c->dialect = d;
    enum err err =
        api_json_starved() ? api_no_memory(e) : engine_submit_all(c->engine, requests, n, e);
    if (err) {
        c->n_running = 0;
        c->dialect = NULL;
        api_uncharge(c);
    }
    free(requests);
    return err;
}

/* The client's body, and the one that is read: the same, or what adapt made of it. */
struct bodies {
    json_t *own, *read; /* read: NULL until adapt has let the body pass */
};

/* Does the client's body say something at "a.b"? */
static bool has(const json_t *own, const char *path)
{
    const char *dot;
    while ((dot = strchr(path, '.'))) {
        own = json_object_getn(own, path, (size_t)(dot - path));
        path = dot + 1;
    }
    return api_get(own, path);
}

/* The client's name for the field at fault: what it sent, or the first of the dialect's. */
static void rename_field(const struct api_dialect *d, const struct bodies *b, struct err_info *e)
{
    const json_t *own = b->own;
    const struct api_rename *use = NULL;
    if (!b->read)
        return; /* adapt speaks of the client's fields */
    for (const struct api_rename *r = d->renames; r && r->from; r++) {
        size_t n = strlen(r->from);
        if (strncmp(e->field, r->from, n) != 0 || (e->field[n] != '\0' && e->field[n] != '['))
            continue;
        if (!use && !has(own, r->from))
            use = r;
        if (has(own, r->to)) {
            use = r;
            break;
        }
    }
    if (use)
        api_rename_field(e, use->from, use->to);
}

/* The operator's defaults (weir serve --temperature ...) come before the dialect's; variables of
 * the template behind all that a request says (chat.c). */
static void add_defaults(const struct api *a, json_t *body)
{
    const char *name;
    json_t *v;
    json_object_foreach(a->defaults, name, v)
    {
        if (strcmp(name, "chat_template_kwargs") != 0 && !api_get(body, name))
            json_object_set(body, name, v);
    }
}

static enum err read_body(struct api_call *c,
                          const struct api_dialect *d,
                          const struct api_input *in,
                          struct bodies *b,
                          struct api_job *job,
                          struct err_info *e)
{
    enum err err;
    c->tokenizer = engine_tokenizer(c->engine);
    if ((err = api_json_parse(in->body, in->body_len, &b->own, e)))
        return err;
    add_defaults(c->api, b->own);
    if (!d->adapt)
        b->read = json_incref(b->own);
    else if ((err = d->adapt(c, b->own, &b->read, e))) {
        json_decref(b->read);
        b->read = NULL;
        return err;
    }
    err = parse(c, d, b->read, job, e);
    return err || !api_json_starved() ? err : api_no_memory(e);
}

static void bodies_deinit(struct bodies *b)
{
    json_decref(b->own);
    json_decref(b->read);
}

enum err api_generate(struct api_call *c,
                      const struct api_dialect *d,
                      const struct api_input *in,
                      struct err_info *e)
{
    struct api_job job = {0};
    struct bodies bodies = {0};
    enum err err;
    if ((err = read_body(c, d, in, &bodies, &job, e)) ||
        (err = api_create_choices(c, d, &job, e)) || (err = check_size(c, d, e)) ||
        (err = api_charge_job(c, &job, e)) || (err = api_submit(c, d, job.params.stream, e))) {
        rename_field(d, &bodies, e);
        api_choices_destroy(c);
    }
    /* submitted: *c is not ours any more, but what follows is */
    api_job_deinit(&job);
    bodies_deinit(&bodies);
    return err;
}

enum err api_read_prompt(struct api_call *c,
                         const struct api_dialect *d,
                         const struct api_input *in,
                         struct token_list *ids,
                         struct err_info *e)
{
    struct api_job job = {0};
    struct bodies bodies = {0};
    c->prompt_only = true;
    enum err err = read_body(c, d, in, &bodies, &job, e);
    if (err) {
        rename_field(d, &bodies, e);
    } else {
        *ids = job.prompts[0].ids;
        job.prompts[0].ids = (struct token_list){0};
    }
    api_job_deinit(&job);
    bodies_deinit(&bodies);
    return err;
}
