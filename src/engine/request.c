#include "engine/request.h"

#include "base/mem.h"
#include "engine/embed.h"
#include "engine/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct request_params request_params_default(void)
{
    return (struct request_params){.sample = sample_params_default(), .cache = true};
}

/* n * size bytes for an array whose length comes from input; 0 elements are fine. */
static bool take_array(void **out, size_t n, size_t size)
{
    *out = n ? calloc(n, size) : NULL;
    return n == 0 || *out;
}

/* Beside a text that says it. */
static enum err too_long(uint32_t n_prompt, uint32_t n_ctx, struct err_info *e)
{
    if (e) {
        e->n_prompt = n_prompt;
        e->n_ctx = n_ctx;
    }
    return ERR_TOO_LONG;
}

/* The longest output the request may have, checked against context and KV pool. */
static enum err limit_output(const struct engine *eng,
                             const struct request_params *p,
                             uint32_t n_prompt,
                             uint32_t *max_new,
                             struct err_info *e)
{
    uint32_t n_ctx = engine_n_ctx(eng);
    if (n_prompt >= n_ctx) {
        err_set_field(
            e,
            ERR_TOO_LONG,
            "prompt",
            "the prompt of %u tokens exceeds the available context size of %u, as it needs "
            "room for at least one more",
            n_prompt,
            n_ctx);
        return too_long(n_prompt, n_ctx, e);
    }
    if (p->max_tokens > n_ctx - n_prompt) {
        err_set_field(e,
                      ERR_TOO_LONG,
                      "max_tokens",
                      "the context holds %u tokens, but %llu were requested (%u in the prompt, %u "
                      "for the completion)",
                      n_ctx,
                      (unsigned long long)n_prompt + p->max_tokens,
                      n_prompt,
                      p->max_tokens);
        return too_long(n_prompt, n_ctx, e);
    }
    *max_new = p->max_tokens ? p->max_tokens : n_ctx - n_prompt;
    return OK;
}

/* Of a text that is to be one vector. */
static enum err limit_text(const struct engine *eng, uint32_t n_prompt, struct err_info *e)
{
    uint32_t n_ctx = engine_n_ctx(eng);
    if (n_prompt <= n_ctx)
        return OK;
    err_set_field(
        e,
        ERR_TOO_LONG,
        "prompt",
        "the input is too large: the model takes texts of at most %u tokens, but this one "
        "has %u",
        n_ctx,
        n_prompt);
    return too_long(n_prompt, n_ctx, e);
}

/* Can the model do what is asked for? n_vector: values of the vector; 0 for tokens. */
static enum err check_output(const struct engine *eng,
                             enum request_output output,
                             uint32_t *n_vector,
                             struct err_info *e)
{
    const struct model *m = engine_model(eng);
    *n_vector = output == OUTPUT_EMBEDDING ? m->hp.n_embd
                : output == OUTPUT_SCORES  ? m->hp.n_labels
                                           : 0;
    if (output == OUTPUT_TOKENS)
        return model_must_generate(m, e);
    if (output == OUTPUT_SCORES && m->hp.n_labels == 0)
        return err_set(
            e, ERR_INVALID, "the model has no head that scores texts, so it cannot rerank");
    if (output == OUTPUT_EMBEDDING && engine_pooling(eng) == POOLING_RANK)
        return err_set(
            e,
            ERR_INVALID,
            "the model scores texts; to have embeddings of it, the server has to be told "
            "the pooling");
    return OK;
}

static enum err check_prompt(const struct engine *eng,
                             const token_id *ids,
                             uint32_t n,
                             struct err_info *e)
{
    uint32_t n_vocab = engine_model(eng)->hp.n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
            return err_set_field(e,
                                 ERR_INVALID,
                                 "prompt",
                                 "token id %d at index %u is outside the vocabulary of %u",
                                 ids[i],
                                 i,
                                 n_vocab);
    }
    return OK;
}

/* All arrays whose sizes come from the request. */
static bool take_arrays(const struct engine *eng, struct request *r, const struct request_params *p)
{
    const uint32_t n_vocab = engine_model(eng)->hp.n_vocab;
    uint32_t n_suppressed;
    tokenizer_suppressed(eng->tokenizer, &n_suppressed);
    size_t n_tokens = (size_t)r->n_prompt + r->max_new;
    size_t n_top = p->n_top_logprobs;
    size_t n_lp = p->prompt_logprobs ? r->n_prompt : 0;
    return take_array((void **)&r->tokens, n_tokens, sizeof *r->tokens) &&
           take_array((void **)&r->out, r->max_new, sizeof *r->out) &&
           take_array((void **)&r->top, p->logprobs ? r->max_new * n_top : 0, sizeof *r->top) &&
           take_array((void **)&r->progress,
                      p->progress ? REQUEST_MAX_PROGRESS : 0,
                      sizeof *r->progress) &&
           take_array((void **)&r->prompt_logprobs, n_lp, sizeof *r->prompt_logprobs) &&
           take_array((void **)&r->prompt_top, n_lp * n_top, sizeof *r->prompt_top) &&
           take_array(
               (void **)&r->prompt_ranks, p->prompt_ranks ? n_lp : 0, sizeof *r->prompt_ranks) &&
           take_array((void **)&r->sums, r->n_vector, sizeof *r->sums) &&
           take_array((void **)&r->vector, (size_t)r->n_vectors * r->n_vector, sizeof *r->vector) &&
           take_array(
               (void **)&r->bias, (size_t)p->sample.n_bias + n_suppressed, sizeof *r->bias) &&
           take_array((void **)&r->stop_ids, p->n_stop_ids, sizeof *r->stop_ids) &&
           take_array((void **)&r->no_ends,
                      p->min_tokens > 0 ? (n_vocab + 63) / 64 : 0,
                      sizeof *r->no_ends) &&
           take_array(
               (void **)&r->may, p->rules ? token_rules_n_words(p->rules) : 0, sizeof *r->may) &&
           sample_history_create(&p->sample, n_tokens, n_vocab, &r->history);
}

/* Are its tokens drafted? Those that a grammar has a say in are not: its masks take their time. */
static bool drafts(const struct engine *eng, const struct request_params *p)
{
    return eng->cfg.n_draft > 0 && !eng->async && eng->memory.n_states == 0 && !p->grammar &&
           p->output == OUTPUT_TOKENS;
}

static void copy_params(const struct engine *eng, struct request *r, const struct request_params *p)
{
    uint32_t n_suppressed;
    const token_id *suppressed = tokenizer_suppressed(eng->tokenizer, &n_suppressed);
    r->params = *p;
    if (p->sample.n_bias)
        memcpy(r->bias, p->sample.bias, p->sample.n_bias * sizeof *r->bias);
    if (p->n_stop_ids)
        memcpy(r->stop_ids, p->stop_ids, p->n_stop_ids * sizeof *r->stop_ids);
    for (uint32_t i = 0; i < n_suppressed; i++)
        r->bias[r->params.sample.n_bias++] =
            (struct logit_bias){.id = suppressed[i], .bias = -INFINITY};
    r->params.sample.bias = r->bias;
    r->params.stop_ids = r->stop_ids;
    r->params.cache_salt = NULL; /* what they stand for is in seq.space */
    r->params.cache_tenant = NULL;
}

/* What may come before min_tokens. */
static void rule_out_ends(const struct engine *eng, struct request *r, uint32_t n_vocab)
{
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (r->params.ignore_eos || !tokenizer_is_eog(eng->tokenizer, (token_id)id))
            r->no_ends[id / 64] |= UINT64_C(1) << id % 64;
    }
    for (uint32_t i = 0; i < r->params.n_stop_ids; i++) {
        const token_id id = r->params.stop_ids[i];
        if (id >= 0 && (uint32_t)id < n_vocab)
            r->no_ends[id / 64] &= ~(UINT64_C(1) << id % 64);
    }
}

/* Do the rules leave nothing but what ends the output? */
static bool only_ends(const struct request *r)
{
    const struct sample_allowed early = {.bits = r->no_ends};
    return !token_rules_mask(r->rules, NULL, 0, &early, r->may);
}

/* Do the rules leave the mark that ends reasoning? Else it would be put in halves. */
static bool may_close(const struct request *r, const struct request_thought *t)
{
    const struct sample_allowed all = {0};
    for (uint32_t i = 0; i < t->n_close; i++)
        if (!token_rules_mask(r->rules, t->close, i, &all, r->may) ||
            !token_rules_may(r->may, t->close[i]))
            return false;
    return true;
}

/* Can it be done? *max_new, *n_vector: tokens that may come, values of a vector. */
static enum err check_params(const struct engine *eng,
                             const struct request_params *p,
                             const token_id *prompt,
                             uint32_t n_prompt,
                             uint32_t *max_new,
                             uint32_t *n_vector,
                             struct err_info *e)
{
    enum err err;
    if ((err = check_output(eng, p->output, n_vector, e)))
        return err;
    if (n_prompt == 0)
        return err_set_field(e, ERR_INVALID, "prompt", "the prompt is empty");
    if (p->n_top_logprobs > REQUEST_MAX_TOP_LOGPROBS)
        return err_set(e, ERR_INVALID, "too many logprobs");
    if (p->priority < -REQUEST_MAX_PRIORITY || p->priority > REQUEST_MAX_PRIORITY)
        return err_set_field(e,
                             ERR_INVALID,
                             "priority",
                             "must be from %d to %d",
                             -REQUEST_MAX_PRIORITY,
                             REQUEST_MAX_PRIORITY);
    if ((err = check_prompt(eng, prompt, n_prompt, e)) ||
        (err =
             *n_vector ? limit_text(eng, n_prompt, e) : limit_output(eng, p, n_prompt, max_new, e)))
        return err;
    if (p->min_tokens > *max_new)
        return err_set_field(e,
                             ERR_INVALID,
                             "min_tokens",
                             "'min_tokens' is %u, but there may be %u tokens at most",
                             p->min_tokens,
                             *max_new);
    return OK;
}

/* What p says of the tokens that may come: rules, stops, a grammar, how long reasoning may last. */
static enum err copy_limits(const struct engine *eng,
                            struct request *r,
                            const struct request_params *p,
                            struct err_info *e)
{
    r->rules = token_rules_acquire(p->rules);
    r->params.rules = NULL;
    if (p->min_tokens > 0)
        rule_out_ends(eng, r, engine_model(eng)->hp.n_vocab);
    if (r->rules && r->no_ends && only_ends(r))
        return err_set_field(e,
                             ERR_INVALID,
                             "min_tokens",
                             "of the tokens that are allowed each ends the answer, but "
                             "'min_tokens' is %u",
                             p->min_tokens);
    r->stop = stop_begin(p->stops);
    r->params.stops = NULL; /* the matcher has them */
    if (p->grammar)
        r->grammar = guide_begin(eng->guide, p->grammar);
    r->params.grammar = NULL; /* the state has it */
    struct request_thought limit = p->thought;
    limit.on = limit.on && (!r->rules || may_close(r, &limit));
    thought_begin(&r->thought, &limit);
    return OK;
}

/* All that request_destroy frees, or the error. */
static enum err fill(const struct engine *eng,
                     struct request *r,
                     const struct request_params *p,
                     const token_id *prompt,
                     struct err_info *e)
{
    const uint32_t n_prompt = r->n_prompt, n_tokens = n_prompt + r->max_new;
    enum err err;
    if (!take_arrays(eng, r, p) ||
        (drafts(eng, p) && !draft_create(&r->draft,
                                         n_tokens,
                                         eng->cfg.draft_gram ? eng->cfg.draft_gram : DRAFT_GRAM)))
        return err_set(
            e, ERR_NOMEM, "no memory for a request of %u + %u tokens", n_prompt, r->max_new);
    copy_params(eng, r, p);
    if ((err = copy_limits(eng, r, p, e)))
        return err;
    memcpy(r->tokens, prompt, n_prompt * sizeof *prompt);
    for (uint32_t i = 0; r->history && i < n_prompt; i++)
        sample_history_add(r->history, prompt[i], false);
    r->seq = (struct sched_seq){.user = r,
                                .slot = SCHED_NO_SLOT,
                                .tokens = r->tokens,
                                .n_prompt = n_prompt,
                                .n_max = n_tokens,
                                .all_logits = p->prompt_logprobs && !r->n_vector,
                                .shares = p->cache && engine_model(eng)->hp.causal &&
                                          !(r->n_vector && embed_needs_all(eng, p->output)),
                                .priority = p->priority,
                                .tenant = p->tenant,
                                .tenant_at = SCHED_NO_TENANT};
    return kv_space_of_tenant(
        p->cache_tenant, p->n_cache_tenant, p->cache_salt, p->n_cache_salt, &r->seq.space, e);
}

enum err request_create(const struct engine *eng,
                        const struct request_params *p,
                        const token_id *prompt,
                        uint32_t n_prompt,
                        void *user,
                        struct request **out,
                        struct err_info *e)
{
    uint32_t max_new = 0, n_vector = 0;
    *out = NULL;
    enum err err = check_params(eng, p, prompt, n_prompt, &max_new, &n_vector, e);
    if (err)
        return err;
    struct request *r = mem_zalloc(1, sizeof *r);
    r->n_prompt = n_prompt;
    r->max_new = max_new;
    r->n_vector = n_vector;
    r->n_vectors = !n_vector ? 0 : embed_each(eng, p->output) ? n_prompt : 1;
    r->user = user;
    r->now.end_id = r->published.end_id = r->seen.end_id = TOKEN_NONE;
    for (uint32_t k = 0; k < ASYNC_STEPS; k++)
        r->item_of[k] = UINT32_MAX;
    if ((err = fill(eng, r, p, prompt, e)))
        request_destroy(r);
    else
        *out = r;
    return err;
}

void request_destroy(struct request *r)
{
    if (!r)
        return;
    stop_destroy(r->stop);
    sample_history_destroy(r->history);
    grammar_state_destroy(r->grammar);
    draft_destroy(&r->draft);
    free(r->tokens);
    free(r->out);
    free(r->top);
    free(r->prompt_logprobs);
    free(r->progress);
    free(r->prompt_top);
    free(r->prompt_ranks);
    free(r->sums);
    free(r->vector);
    free(r->bias);
    free(r->stop_ids);
    free(r->no_ends);
    free(r->may);
    token_rules_release(r->rules);
    free(r);
}

void *request_user(const struct request *r)
{
    return r->user;
}

const token_id *request_prompt(const struct request *r, uint32_t *n)
{
    *n = r->n_prompt;
    return r->tokens;
}

uint32_t request_n_out(const struct request *r)
{
    return r->seen.n_out;
}

const struct request_token *request_out(const struct request *r)
{
    return r->out;
}

const struct token_logprob *request_top(const struct request *r, uint32_t i)
{
    return r->top ? r->top + (size_t)i * r->params.n_top_logprobs : NULL;
}

const float *request_prompt_logprobs(const struct request *r, uint32_t *n)
{
    *n = r->prompt_logprobs ? r->n_prompt : 0;
    return r->prompt_logprobs;
}

const struct token_logprob *request_prompt_top(const struct request *r, uint32_t i)
{
    return r->prompt_top ? r->prompt_top + (size_t)i * r->params.n_top_logprobs : NULL;
}

uint32_t request_prompt_rank(const struct request *r, uint32_t i)
{
    return r->prompt_ranks[i];
}

enum finish request_finish(const struct request *r)
{
    return r->seen.finish;
}

uint32_t request_text_bytes(const struct request *r)
{
    return r->seen.text_bytes;
}

uint32_t request_n_completion(const struct request *r)
{
    return r->seen.n_completion;
}

uint32_t request_n_cached(const struct request *r)
{
    return r->seen.n_cached;
}

const struct request_progress *request_progress(const struct request *r, uint32_t *n)
{
    *n = r->seen.n_progress;
    return r->progress;
}

uint32_t request_n_prefilled(const struct request *r)
{
    return r->seen.n_prefilled;
}

enum stop_kind request_stop(const struct request *r)
{
    return r->seen.stop;
}

token_id request_end_id(const struct request *r)
{
    return r->seen.end_id;
}

const char *request_stop_text(const struct request *r)
{
    return stop_get(r->stop, r->seen.stop_text).data;
}

struct request_times request_times(const struct request *r)
{
    return r->seen.times;
}

const float *request_vector(const struct request *r, uint32_t *n)
{
    *n = r->n_vector;
    return r->vector;
}

uint32_t request_n_vectors(const struct request *r)
{
    return r->n_vectors;
}

const struct err_info *request_error(const struct request *r)
{
    return &r->error;
}

const struct request_event *request_events(const struct request *r,
                                           uint32_t *n,
                                           uint32_t *n_omitted)
{
    *n = r->n_events;
    *n_omitted = r->n_events_omitted;
    return r->events;
}
