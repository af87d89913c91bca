/* POST /completion: from llama-server's fields to those that all dialects share.
 *
 * adapt makes a body that params.c reads: other names, other defaults, and what Weir does not have
 * checked for the value that changes nothing. parse then reads the prompt in its many forms. */
#include "api/native.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Beside those of params.c. Fields that only tune what is off (dry_base, mirostat_tau, ...), or how
 * llama-server keeps its memory (n_keep, id_slot, n_cache_reuse), mean nothing here. */
static const struct api_refused refused[] = {
    {"multimodal_data", NEUTRAL_EMPTY, 0},
    {"messages", NEUTRAL_NOTHING, 0},
    {"add_special_tokens", NEUTRAL_TRUE, 0},
};

static void native_free(void *state)
{
    struct native *s = state;
    json_decref(s->fields);
    json_decref(s->shared);
    free(s->bias.items);
    free(s->bias.places);
    free(s->has_new_line);
    free(s);
}

enum err native_encode(const struct tokenizer *t,
                       const json_t *text,
                       bool first,
                       bool parse_special,
                       struct token_list *ids,
                       struct err_info *e)
{
    struct text_piece piece = {.text = json_string_value(text),
                               .n_bytes = json_string_length(text),
                               .parse_special = parse_special};
    if (first)
        tokenizer_add_begin(t, ids);
    return tokenizer_encode(t, &piece, 1, ids, e);
}

enum err native_encode_list(const struct tokenizer *t,
                            const json_t *list,
                            const char *field,
                            bool first,
                            bool parse_special,
                            struct token_list *ids,
                            struct err_info *e)
{
    const int64_t n_vocab = tokenizer_n_vocab(t);
    enum err err = OK;
    for (size_t i = 0; !err && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        int64_t id;
        if (json_is_string(item))
            err = native_encode(t, item, first && i == 0, parse_special, ids, e);
        else if (!api_is_whole(item, &id))
            err = api_wrong_type(field, "texts and integers, the ids of tokens", item, e);
        else if (id < 0 || id >= n_vocab)
            err = err_invalid(e,
                              field,
                              "token id %lld in '%s' is outside the vocabulary of %lld",
                              (long long)id,
                              field,
                              (long long)n_vocab);
        else if (!(err = token_list_room(ids, 1, e)))
            token_list_add(ids, (token_id)id);
    }
    return err;
}

void native_text(const struct tokenizer *t, const token_id *ids, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_bytes(t, ids[i], true, &n_bytes);
        buf_add(out, bytes, n_bytes);
    }
}

/* --- adapt ---------------------------------------------------------------------------------- */

/* n_predict, of which max_tokens and max_completion_tokens are other names: -1 is no limit, 0 no
 * output. */
static enum err adapt_counts(const struct api_call *c,
                             struct native *s,
                             json_t *body,
                             struct err_info *e)
{
    int64_t n = c->api->cfg.max_tokens, n_cmpl = 1;
    n = n > 0 ? n : -1;
    enum err err;
    if ((err = api_get_int(body, "max_tokens", -1, INT32_MAX, &n, e)) ||
        (err = api_get_int(body, "max_completion_tokens", -1, INT32_MAX, &n, e)) ||
        (err = api_get_int(body, "n_predict", -1, INT32_MAX, &n, e)) ||
        (err = api_get_int(body, "n_cmpl", 1, INT32_MAX, &n_cmpl, e)))
        return err;
    json_object_del(body, "n_predict");
    json_object_del(body, "max_tokens");
    json_object_del(body, "max_completion_tokens");
    s->n_predict = n;
    if (n >= 0)
        json_object_set_new(body, "max_tokens", json_integer(n > 0 ? n : 1));
    if (api_get(body, "n_cmpl"))
        json_object_set_new(body, "n", json_integer(n_cmpl));
    json_object_del(body, "n_cmpl");
    return OK;
}

/* Greedy below 0; a random seed of 32 bits for -1, so that the answer can say which. */
static enum err adapt_numbers(json_t *body, struct err_info *e)
{
    const json_t *t = json_object_get(body, "temperature");
    int64_t seed = -1;
    uint32_t random;
    if (json_is_number(t) && json_number_value(t) < 0)
        json_object_set_new(body, "temperature", json_integer(0));
    api_set_default(body, "temperature", json_real(0.8));
    api_set_default(body, "top_k", json_integer(40));
    api_set_default(body, "top_p", json_real(0.95));
    api_set_default(body, "min_p", json_real(0.05));
    api_set_default(body, "repeat_last_n", json_integer(64));
    enum err err = api_get_int(body, "seed", INT64_MIN, INT64_MAX, &seed, e);
    if (err || (seed != -1 && seed != NATIVE_RANDOM_SEED))
        return err;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(e, ERR_INTERNAL, "the system gives no random numbers");
    json_object_set_new(body, "seed", json_integer(random));
    return OK;
}

enum { SAMPLER_PENALTIES, SAMPLER_TOP_K, SAMPLER_TOP_P, SAMPLER_MIN_P, SAMPLER_TEMPERATURE };

/* The order that Weir has, in llama-server's names; the temperature may also come second. Those
 * that are never on may stand anywhere. */
static int sampler_of(const char *name)
{
    static const char *const names[] = {"penalties", "top_k", "top_p", "min_p", "temperature"};
    static const char *const off[] = {"dry", "typ_p", "typical_p", "xtc", "top_n_sigma"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, off[i]) == 0)
            return -1;
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -2;
}

static enum err wrong_samplers(const char *name, struct err_info *e)
{
    return err_invalid(e,
                       "samplers",
                       "'samplers' has '%.40s' where this server cannot have it; it has "
                       "\"penalties\", \"top_k\", \"top_p\", \"min_p\" in this order, and "
                       "\"temperature\" before \"top_k\" or at the end",
                       name);
}

/* A stage that is not named is off; what was said of it still has to make sense. */
static enum err drop_unnamed(json_t *body, const bool named[5], struct err_info *e)
{
    struct sample_params ignored = {0};
    enum err err = api_params_sampling(body, &ignored, e);
    if (err)
        return err;
    if (!named[SAMPLER_PENALTIES]) {
        json_object_del(body, "repeat_penalty");
        json_object_del(body, "repetition_penalty");
        json_object_del(body, "presence_penalty");
        json_object_del(body, "frequency_penalty");
    }
    if (!named[SAMPLER_TOP_K])
        json_object_set_new(body, "top_k", json_integer(0));
    if (!named[SAMPLER_TOP_P])
        json_object_set_new(body, "top_p", json_integer(1));
    if (!named[SAMPLER_MIN_P])
        json_object_set_new(body, "min_p", json_integer(0));
    if (!named[SAMPLER_TEMPERATURE])
        json_object_set_new(body, "temperature", json_integer(1));
    return OK;
}

/* *last: the temperature comes after the truncations, which is the default. */
static enum err adapt_samplers(json_t *body, bool *last, struct err_info *e)
{
    json_t *v;
    bool named[5] = {false};
    int at = -1; /* the last of the four that have an order */
    *last = true;
    enum err err = api_get_array(body, "samplers", "an array of names", &v, e);
    if (err || !v)
        return err;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name)
            return api_wrong_type("samplers", "an array of names", json_array_get(v, i), e);
        int k = sampler_of(name);
        if (k == -1)
            continue;
        bool early = k == SAMPLER_TEMPERATURE && at < SAMPLER_TOP_K;
        if (k < 0 || named[k] || (k <= at && !early) ||
            (k != SAMPLER_TEMPERATURE && named[SAMPLER_TEMPERATURE] && *last))
            return wrong_samplers(name, e);
        named[k] = true;
        if (early)
            *last = false;
        else
            at = k;
    }
    json_object_del(body, "samplers");
    return drop_unnamed(body, named, e);
}

/* Of an id that comes again, the sum, so that a body gives a step and the answer's settings no more
 * to do than the vocabulary has tokens. */
static enum err add_bias(
    struct api_call *c, struct native *s, token_id id, float bias, struct err_info *e)
{
    uint32_t n_vocab = tokenizer_n_vocab(c->tokenizer);
    if (!s->bias.items) {
        s->bias.items = malloc(n_vocab * sizeof *s->bias.items);
        s->bias.places = calloc(n_vocab, sizeof *s->bias.places);
        if (!s->bias.items || !s->bias.places)
            return err_set(e, ERR_NOMEM, "no memory for 'logit_bias'");
    }
    uint32_t *place = &s->bias.places[id];
    if (*place == 0) {
        s->bias.items[s->bias.n] = (struct logit_bias){.id = id};
        *place = ++s->bias.n;
    }
    s->bias.items[*place - 1].bias += bias;
    return OK;
}

/* One entry: an id or a text, all of whose tokens are meant; a number, or false for never. */
static enum err read_bias(
    struct api_call *c, struct native *s, const json_t *what, const json_t *v, struct err_info *e)
{
    uint32_t n_vocab = tokenizer_n_vocab(c->tokenizer);
    double bias = json_is_number(v) ? json_number_value(v) : json_is_false(v) ? -INFINITY : NAN;
    enum err err = OK;
    if (isnan(bias) || (isfinite(bias) && fabs(bias) > 100))
        return err_invalid(
            e, "logit_bias", "a bias in 'logit_bias' must be a number from -100 to 100, or false");
    int64_t id;
    if (api_is_whole(what, &id)) {
        if (id < 0 || id >= n_vocab)
            return err_invalid(e,
                               "logit_bias",
                               "'logit_bias' has token id %lld; the vocabulary has 0 to %u",
                               (long long)id,
                               n_vocab - 1);
        return add_bias(c, s, (token_id)id, (float)bias, e);
    }
    if (!json_is_string(what))
        return api_wrong_type("logit_bias", "pairs of a token id or text and a bias", what, e);
    struct token_list ids = {0};
    err = native_encode(c->tokenizer, what, false, false, &ids, e);
    for (size_t i = 0; !err && i < ids.n; i++)
        err = add_bias(c, s, ids.ids[i], (float)bias, e);
    token_list_deinit(&ids);
    return err;
}

/* An object's key is an id where it spells one. */
static enum err read_bias_key(
    struct api_call *c, struct native *s, const char *key, const json_t *v, struct err_info *e)
{
    size_t n = strlen(key);
    bool is_id = n > 0 && n < 10 && strspn(key, "0123456789") == n;
    json_t *what = is_id ? json_integer(strtol(key, NULL, 10)) : json_string(key);
    enum err err = read_bias(c, s, what, v, e);
    json_decref(what);
    return err;
}

/* [[ID or TEXT, BIAS], ...] or {"ID or TEXT": BIAS}. */
static enum err adapt_bias(struct api_call *c, struct native *s, json_t *body, struct err_info *e)
{
    json_t *o = (json_t *)api_get(body, "logit_bias"), *v;
    const char *key;
    enum err err = OK;
    if (json_is_object(o)) {
        json_object_foreach(o, key, v)
        {
            if ((err = read_bias_key(c, s, key, v, e)))
                return err;
        }
    } else if (json_is_array(o)) {
        for (size_t i = 0; i < json_array_size(o); i++) {
            v = json_array_get(o, i);
            if (json_array_size(v) != 2)
                return api_wrong_type("logit_bias", "pairs of a token id or text and a bias", v, e);
            if ((err = read_bias(c, s, json_array_get(v, 0), json_array_get(v, 1), e)))
                return err;
        }
    } else if (o) {
        return api_wrong_type("logit_bias", "an array of pairs, or an object", o, e);
    }
    json_object_del(body, "logit_bias");
    return OK;
}

/* There, with ignore_eos, tokens that end a text never come; elsewhere they are ordinary output. */
static enum err forbid_ends(struct api_call *c,
                            struct native *s,
                            const json_t *body,
                            struct err_info *e)
{
    bool ignored = false;
    enum err err = api_get_bool(body, "ignore_eos", &ignored, e);
    for (uint32_t i = 0; !err && ignored && i < tokenizer_n_vocab(c->tokenizer); i++)
        if (tokenizer_is_eog(c->tokenizer, (token_id)i))
            err = add_bias(c, s, (token_id)i, -INFINITY, e);
    return err;
}

void native_drop_text(json_t *body, const char *name, const char *text)
{
    const json_t *v = json_object_get(body, name);
    if (!json_is_array(v))
        return;
    json_t *kept = json_array();
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *item = json_array_get(v, i);
        if (!json_is_string(item) || strcmp(json_string_value(item), text) != 0)
            json_array_append(kept, item);
    }
    json_object_set_new(body, name, kept);
}

/* Empty stop strings stop nothing there. */
static void drop_empty_stops(json_t *body)
{
    const json_t *v = json_object_get(body, "stop");
    if (json_is_string(v) && json_string_length(v) == 0)
        json_object_del(body, "stop");
    native_drop_text(body, "stop", "");
}

static enum err read_flags(struct api_call *c, struct native *s, json_t *body, struct err_info *e)
{
    bool stream = false;
    int64_t n_probs = 0;
    enum err err;
    s->id_slot = -1;
    if ((err = api_get_bool(body, "stream", &stream, e)) ||
        (err = api_get_bool(body, "return_tokens", &s->tokens, e)) ||
        (err = api_get_int(body, "id_slot", -1, INT32_MAX, &s->id_slot, e)) ||
        (err = api_get_bool(body, "post_sampling_probs", &s->post_sampling, e)) ||
        (err = api_get_int(body, "n_probs", 0, REQUEST_MAX_TOP_LOGPROBS, &n_probs, e)) ||
        (err = native_read_fields(s, body, e)))
        return err;
    s->tokens |= stream; /* its streams always have them */
    json_object_set_new(body, "return_tokens", json_boolean(s->tokens));
    json_object_del(body, "n_probs");
    json_object_del(body, "post_sampling_probs");
    json_object_del(body, "response_fields");
    c->logprobs = n_probs > 0;
    c->n_top = (uint32_t)n_probs;
    return OK;
}

enum err native_adapt(struct api_call *c, const json_t *body, json_t **out, struct err_info *e)
{
    struct native *s = mem_zalloc(1, sizeof *s);
    bool temperature_last;
    enum err err;
    c->state = s;
    c->free_state = native_free;
    json_t *b = *out = json_copy((json_t *)body);
    if (!b)
        return err_set(e, ERR_NOMEM, "no memory to read the body");
    if ((err = api_refuse_fields(b, refused, sizeof refused / sizeof *refused, e)) ||
        (err = adapt_counts(c, s, b, e)) || (err = adapt_numbers(b, e)) ||
        (err = adapt_samplers(b, &temperature_last, e)) || (err = adapt_bias(c, s, b, e)) ||
        (err = forbid_ends(c, s, b, e)) || (err = read_flags(c, s, b, e)))
        return err;
    json_object_set_new(b, "temperature_last", json_boolean(temperature_last));
    drop_empty_stops(b);
    return OK;
}

/* --- the prompt ----------------------------------------------------------------------------- */

/* {"prompt_string": TEXT}, which may name media that nobody here can see. */
static enum err text_of_object(const json_t *v,
                               const char *field,
                               const json_t **text,
                               struct err_info *e)
{
    static const struct api_refused media[] = {{"multimodal_data", NEUTRAL_EMPTY, 0}};
    *text = json_object_get(v, "prompt_string");
    if (!json_is_string(*text))
        return err_invalid(e, field, "'%s' is an object without a 'prompt_string'", field);
    return api_refuse_fields(v, media, 1, e);
}

/* One prompt: a text, an object with one, or an array of ids and texts. */
static enum err one_prompt(struct api_call *c,
                           const json_t *v,
                           const char *field,
                           struct api_prompt *p,
                           struct err_info *e)
{
    const struct tokenizer *t = c->tokenizer;
    enum err err = OK;
    if (json_is_object(v) && (err = text_of_object(v, field, &v, e)))
        return err;
    if (json_is_string(v))
        err = native_encode(t, v, true, true, &p->ids, e);
    else if (json_is_array(v))
        err = native_encode_list(t, v, field, true, true, &p->ids, e);
    else
        err = api_wrong_type(field, "a text or an array of token ids and texts", v, e);
    if (!err && p->ids.n == 0)
        err = err_invalid(e, field, "'%s' is empty", field);
    if (!err)
        native_text(t, p->ids.ids, p->ids.n, &p->text);
    return err;
}

/* An array is one prompt if a number is in it and no array or object; else one an element. */
static bool is_one_prompt(const json_t *v)
{
    bool numbers = false, others = false;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *item = json_array_get(v, i);
        numbers |= json_is_number(item);
        others |= json_is_array(item) || json_is_object(item);
    }
    return !json_is_array(v) || (numbers && !others);
}

static enum err parse_prompts(struct api_call *c,
                              const json_t *body,
                              struct api_job *job,
                              struct err_info *e)
{
    const json_t *v = api_get(body, "prompt");
    size_t n = json_array_size(v), max = c->api->max_choices / job->params.n;
    if (!v)
        return err_invalid(e, "prompt", "'prompt' is required");
    if (is_one_prompt(v))
        return one_prompt(c, v, "prompt", api_job_prompts(job, 1), e);
    if (n == 0)
        return err_invalid(e, "prompt", "'prompt' is empty");
    if (n > max)
        return err_invalid(
            e, "prompt", "%zu prompts, but at most %zu are allowed in one request", n, max);
    return api_read_prompts(c, v, "prompt", one_prompt, job, e);
}

/* --- parse ---------------------------------------------------------------------------------- */

void native_parse_settings(struct api_call *c, const json_t *body, struct api_job *job)
{
    struct native *s = c->state;
    struct request_params *p = &job->params.request;
    p->no_output = s->n_predict == 0;
    job->params.max_tokens_gives = true;
    job->params.bias = s->bias.items; /* params.c saw none; freed with the job */
    p->sample.bias = s->bias.items;
    p->sample.n_bias = s->bias.n;
    p->sample.temperature_last = json_is_true(json_object_get(body, "temperature_last"));
    s->bias.items = NULL;
    p->sampled_logprobs = s->post_sampling;
    native_put_settings(c, s, job, &c->settings);
    native_share_settings(s, &c->settings);
}

enum err native_parse(struct api_call *c,
                      const json_t *body,
                      struct api_job *job,
                      struct err_info *e)
{
    native_parse_settings(c, body, job);
    return parse_prompts(c, body, job, e);
}
