/* Reading what both dialects share.
 *
 * Each parse_ function reads one group of fields, leaves defaults where they are absent, and stops
 * at the first that is wrong. Nothing is clamped: a value out of range is the client's mistake, and
 * a silent correction would hide it. */
#include "api/params.h"

#include "engine/rules.h"
#include "engine/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_STOP_IDS 256
#define MAX_SALT_BYTES 1024

/* Of OpenAI's, vLLM's, SGLang's and llama.cpp's fields: what changes the answer and is not here. A
 * client that relies on one must hear so; a silent, different answer is worse than an error. */
static const struct api_refused refused[] = {
    {"ebnf", NEUTRAL_EMPTY, 0},
    {"stop_regex", NEUTRAL_EMPTY, 0},
    {"lora_path", NEUTRAL_EMPTY, 0},
    {"session_params", NEUTRAL_EMPTY, 0},
    {"custom_logit_processor", NEUTRAL_EMPTY, 0},
    {"vllm_xargs", NEUTRAL_EMPTY, 0},
    {"logprob_token_ids", NEUTRAL_EMPTY, 0},
    {"reasoning_budget_message", NEUTRAL_EMPTY, 0},
    {"repetition_detection", NEUTRAL_NOTHING, 0},
    {"grammar_lazy", NEUTRAL_FALSE, 0},
    {"return_hidden_states", NEUTRAL_FALSE, 0},
    {"adaptive_target", NEUTRAL_NUMBER, -1},
    {"logits_processors", NEUTRAL_EMPTY, 0},
    {"samplers", NEUTRAL_EMPTY, 0},
    {"lora", NEUTRAL_EMPTY, 0},
    {"moderation", NEUTRAL_NOTHING, 0},
    {"prompt_embeds", NEUTRAL_EMPTY, 0},
    {"truncate_prompt_tokens", NEUTRAL_NOTHING, 0},
    {"use_beam_search", NEUTRAL_FALSE, 0},
    {"length_penalty", NEUTRAL_NUMBER, 1},
    {"n_probs", NEUTRAL_NUMBER, 0},
    {"post_sampling_probs", NEUTRAL_FALSE, 0},
    {"response_fields", NEUTRAL_EMPTY, 0},
    {"n_cmpl", NEUTRAL_NUMBER, 1},
    {"min_keep", NEUTRAL_NUMBER, 0},
    {"guided_whitespace_pattern", NEUTRAL_EMPTY, 0},
    {"spaces_between_special_tokens", NEUTRAL_TRUE, 0},
    {"typical_p", NEUTRAL_NUMBER, 1},
    {"top_n_sigma", NEUTRAL_NUMBER, -1},
    {"tfs_z", NEUTRAL_NUMBER, 1},
    {"top_a", NEUTRAL_NUMBER, 0},
    {"mirostat", NEUTRAL_NUMBER, 0},
    {"dynatemp_range", NEUTRAL_NUMBER, 0},
    {"xtc_probability", NEUTRAL_NUMBER, 0},
    {"dry_multiplier", NEUTRAL_NUMBER, 0},
};

/* Does v, NULL or not, say what would be so without it? */
static bool is_neutral(const struct api_refused *f, const json_t *v)
{
    if (!v)
        return true;
    switch (f->neutral) {
    case NEUTRAL_NOTHING:
        return false;
    case NEUTRAL_EMPTY:
        return (json_is_string(v) && json_string_length(v) == 0) ||
               (json_is_array(v) && json_array_size(v) == 0) ||
               (json_is_object(v) && json_object_size(v) == 0);
    case NEUTRAL_FALSE:
        return json_is_false(v);
    case NEUTRAL_TRUE:
        return json_is_true(v);
    case NEUTRAL_NUMBER:
        return json_is_number(v) && json_number_value(v) == f->number;
    }
    return false;
}

enum err api_refuse_fields(const json_t *body,
                           const struct api_refused *fields,
                           size_t n,
                           struct err_info *e)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_neutral(&fields[i], api_get(body, fields[i].name)))
            return err_invalid(
                e, fields[i].name, "'%s' is not supported by this server", fields[i].name);
    }
    return OK;
}

/* llama-server's window of the penalties: of prompt and output together, -1 for all of it; of
 * nothing, they are off. Absent: as OpenAI and vLLM have them. */
static void set_window(struct sample_params *s, int64_t last_n)
{
    if (last_n == INT64_MIN)
        return;
    s->penalty_window = last_n < 0 ? UINT32_MAX : (uint32_t)last_n;
    if (last_n != 0)
        return;
    s->repetition_penalty = 1.0f;
    s->presence_penalty = s->frequency_penalty = 0.0f;
}

/* Numbers are read as doubles and rounded once; the sampler works in floats. */
enum err api_params_sampling(const json_t *body, struct sample_params *s, struct err_info *e)
{
    double temperature = 1.0, top_p = 1.0, min_p = 0.0, repetition = 1.0, presence = 0.0,
           frequency = 0.0;
    int64_t top_k = 0, last_n = INT64_MIN;
    enum err err;
    if ((err = api_get_real(body, "temperature", 0.0, 2.0, &temperature, e)) ||
        (err = api_get_real(body, "top_p", 0.0, 1.0, &top_p, e)) ||
        (err = api_get_real(body, "min_p", 0.0, 1.0, &min_p, e)) ||
        (err = api_get_int(body, "top_k", -1, INT32_MAX, &top_k, e)) ||
        (err = api_get_int(body, "repeat_last_n", -1, INT32_MAX, &last_n, e)) ||
        (err = api_get_real(body, "repeat_penalty", 0.01, 100.0, &repetition, e)) ||
        (err = api_get_real(body, "repetition_penalty", 0.01, 100.0, &repetition, e)) ||
        (err = api_get_real(body, "presence_penalty", -2.0, 2.0, &presence, e)) ||
        (err = api_get_real(body, "frequency_penalty", -2.0, 2.0, &frequency, e)))
        return err;
    s->temperature = (float)temperature;
    s->top_p = (float)top_p;
    s->min_p = (float)min_p;
    s->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    s->repetition_penalty = (float)repetition;
    s->presence_penalty = (float)presence;
    s->frequency_penalty = (float)frequency;
    set_window(s, last_n);
    return OK;
}

/* Absent, or -1, as vLLM and llama-server have it: a new one each time, so that the same question
 * has different answers. */
static enum err parse_seed(const json_t *body, uint64_t *seed, struct err_info *e)
{
    int64_t given = -1;
    enum err err = api_get_int(body, "seed", INT64_MIN, INT64_MAX, &given, e);
    *seed = (uint64_t)given;
    if (err || given != -1)
        return err;
    if (getrandom(seed, sizeof *seed, 0) != (ssize_t)sizeof *seed)
        return err_set(e, ERR_INTERNAL, "the system gives no random numbers");
    return OK;
}

/* "123" and nothing else spells 123: so an id cannot come twice in one object. */
static bool parse_id(const char *s, uint32_t n_vocab, int32_t *id)
{
    uint64_t v = 0;
    size_t n = strlen(s);
    if (n == 0 || n > 10 || (s[0] == '0' && n > 1))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    *id = (int32_t)v;
    return v < n_vocab;
}

static enum err parse_logit_bias(const json_t *body,
                                 uint32_t n_vocab,
                                 struct api_params *out,
                                 struct err_info *e)
{
    const char *name = "logit_bias", *key;
    json_t *o, *v;
    enum err err = api_get_object(body, name, "an object of token ids and numbers", &o, e);
    if (err || !o)
        return err;
    out->bias = malloc((json_object_size(o) + 1) * sizeof *out->bias);
    if (!out->bias)
        return err_set(e, ERR_NOMEM, "no memory for 'logit_bias'");
    uint32_t n = 0;
    json_object_foreach(o, key, v)
    {
        int32_t id;
        if (!parse_id(key, n_vocab, &id))
            return err_invalid(e,
                               name,
                               "'logit_bias' has the key '%.40s', which is not the id of a token "
                               "(0 to %u)",
                               key,
                               n_vocab - 1);
        double bias = json_is_number(v) ? json_number_value(v) : 1e9;
        if (!(bias >= -100.0 && bias <= 100.0))
            return err_invalid(
                e, name, "'logit_bias' of token %d must be a number from -100 to 100", id);
        out->bias[n++] = (struct logit_bias){.id = id, .bias = (float)bias};
    }
    out->request.sample.bias = out->bias;
    out->request.sample.n_bias = n;
    return OK;
}

/* An empty string would stop everything. */
static enum err read_stop(const json_t *v,
                          const char *field,
                          struct gguf_str *out,
                          struct err_info *e)
{
    if (!json_is_string(v))
        return api_wrong_type(field, "a string or an array of strings", v, e);
    if (json_string_length(v) == 0)
        return err_invalid(e, field, "'%s' must not be empty", field);
    *out = (struct gguf_str){json_string_value(v), json_string_length(v)};
    return OK;
}

static enum err parse_stop(const json_t *body, struct api_params *out, struct err_info *e)
{
    const json_t *v = api_get(body, "stop");
    struct gguf_str texts[REQUEST_MAX_STOPS];
    bool *keep = &out->request.keep_stop;
    enum err err;
    if ((err = api_get_bool(body, "no_stop_trim", keep, e)) ||
        (err = api_get_bool(body, "include_stop_str_in_output", keep, e)) || !v)
        return err;
    const bool many = json_is_array(v);
    const size_t n = many ? json_array_size(v) : 1;
    if (n > REQUEST_MAX_STOPS)
        return err_invalid(
            e, "stop", "'stop' has %zu strings; at most %d are supported", n, REQUEST_MAX_STOPS);
    for (size_t i = 0; !err && i < n; i++) {
        char field[32] = "stop";
        if (many)
            snprintf(field, sizeof field, "stop[%zu]", i);
        err = read_stop(many ? json_array_get(v, i) : v, field, &texts[i], e);
    }
    if (!err)
        err = stop_texts_create(texts, (uint32_t)n, &out->stops, e);
    out->request.stops = out->stops;
    return err;
}

static enum err parse_stop_ids(const json_t *body,
                               uint32_t n_vocab,
                               struct api_params *out,
                               struct err_info *e)
{
    const char *name = "stop_token_ids";
    json_t *v;
    enum err err = api_get_array(body, name, "an array of token ids", &v, e);
    if (err || !v)
        return err;
    size_t n = json_array_size(v);
    if (n > MAX_STOP_IDS)
        return err_invalid(
            e, name, "'%s' has %zu ids; at most %d are allowed", name, n, MAX_STOP_IDS);
    out->stop_ids = malloc((n + 1) * sizeof *out->stop_ids);
    if (!out->stop_ids)
        return err_set(e, ERR_NOMEM, "no memory for '%s'", name);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        if ((err = api_int_of(json_array_get(v, i), name, 0, (int64_t)n_vocab - 1, &id, e)))
            return err;
        out->stop_ids[i] = (token_id)id;
    }
    out->request.stop_ids = out->stop_ids;
    out->request.n_stop_ids = (uint32_t)n;
    return OK;
}

/* llama-server's ends of texts that an editor asked for. */
static enum err parse_lines(const json_t *body, struct request_params *p, struct err_info *e)
{
    int64_t n_indent = 0, ms = -1;
    enum err err;
    if ((err = api_get_int(body, "n_indent", 0, INT32_MAX, &n_indent, e)) ||
        (err = api_get_int(body, "t_max_predict_ms", -1, INT32_MAX, &ms, e)))
        return err;
    p->min_indent = (uint32_t)n_indent;
    p->max_line_ms = ms > 0 ? (uint32_t)ms : 0;
    return OK;
}

/* No answer depends on any of it. */
enum err api_params_cache(const json_t *body, struct request_params *p, struct err_info *e)
{
    struct gguf_str salt = {0};
    int64_t priority = 0;
    enum err err;
    if ((err = api_get_bool(body, "cache_prompt", &p->cache, e)) ||
        (err = api_get_str(body, "cache_salt", &salt, e)) ||
        (err = api_get_int(
             body, "priority", -REQUEST_MAX_PRIORITY, REQUEST_MAX_PRIORITY, &priority, e)))
        return err;
    if (salt.len > MAX_SALT_BYTES)
        return err_invalid(e,
                           "cache_salt",
                           "'cache_salt' has %zu bytes; at most %d are allowed",
                           salt.len,
                           MAX_SALT_BYTES);
    p->cache_salt = salt.data; /* a view of the body: the engine keeps what it stands for */
    p->n_cache_salt = salt.len;
    p->priority = (int32_t)priority;
    return OK;
}

/* stream_options without stream is no error: some clients always send it. */
static enum err parse_stream(const json_t *body, struct api_params *out, struct err_info *e)
{
    json_t *options;
    enum err err = api_get_bool(body, "stream", &out->stream, e);
    if (err || (err = api_get_object(body, "stream_options", "an object", &options, e)))
        return err;
    if ((err = api_get_bool(options, "include_usage", &out->include_usage, e)))
        api_rename_field(e, "include_usage", "stream_options.include_usage");
    else if ((err = api_get_bool(options, "continuous_usage_stats", &out->usage_so_far, e)))
        api_rename_field(e, "continuous_usage_stats", "stream_options.continuous_usage_stats");
    return err;
}

/* The most tokens of an answer; -1 is no number, and says nothing. */
static enum err get_most(
    const json_t *body, const char *field, int64_t *most, const char **none, struct err_info *e)
{
    int64_t n = -1;
    const enum err err = api_get_int(body, field, -1, INT32_MAX, &n, e);
    *most = n >= 0 ? n : *most;
    *none = n == 0 ? field : *none;
    return err;
}

enum err api_params_some(const struct api_params *p, struct err_info *e)
{
    if (!p->none)
        return OK;
    return err_invalid(e, p->none, "'%s' must be at least 1, or -1 for no number", p->none);
}

static enum err parse_counts(const json_t *body,
                             uint32_t max_choices,
                             struct api_params *out,
                             struct err_info *e)
{
    int64_t n = 1, best_of = -1, max_tokens = -1, n_predict = -1, min_tokens = 0;
    enum err err;
    if ((err = api_get_int(body, "n", 1, max_choices, &n, e)) ||
        (err = api_get_int(body, "n_predict", -1, INT32_MAX, &n_predict, e)) ||
        (err = api_get_int(body, "best_of", 1, max_choices, &best_of, e)) ||
        (err = api_get_int(body, "min_tokens", 0, INT32_MAX, &min_tokens, e)) ||
        (err = get_most(body, "max_tokens", &max_tokens, &out->none, e)) ||
        (err = get_most(body, "max_completion_tokens", &max_tokens, &out->none, e)))
        return err;
    if (best_of != -1 && best_of != n)
        return err_invalid(e, "best_of", "'best_of' is supported only when it equals 'n'");
    /* llama-server's name: more than fits means what fits */
    out->max_tokens_gives = max_tokens < 0 && n_predict > 0;
    if (max_tokens < 0) {
        max_tokens = n_predict;
        out->none = n_predict == 0 ? "n_predict" : NULL;
    }
    out->n = (uint32_t)n;
    out->max_tokens_given = max_tokens >= 0;
    out->request.min_tokens = (uint32_t)min_tokens;
    out->request.no_output = max_tokens == 0;
    out->request.max_tokens = max_tokens > 0 ? (uint32_t)max_tokens : max_tokens == 0;
    return max_tokens > 0 ? api_params_some(out, e) : OK; /* one 0 beside another number */
}

enum err api_params_parse(const json_t *body,
                          uint32_t n_vocab,
                          uint32_t max_choices,
                          struct api_params *out,
                          struct err_info *e)
{
    enum err err;
    bool skip_special = true;
    int64_t n_prompt_top = -1;
    out->request = request_params_default();
    if ((err = api_get_str(body, "model", &out->model, e)) ||
        (err = parse_counts(body, max_choices, out, e)) ||
        (err = api_params_sampling(body, &out->request.sample, e)) ||
        (err = parse_seed(body, &out->request.sample.seed, e)) ||
        (err = parse_logit_bias(body, n_vocab, out, e)) || (err = parse_stop(body, out, e)) ||
        (err = parse_stop_ids(body, n_vocab, out, e)) || (err = parse_stream(body, out, e)) ||
        (err = api_get_bool(body, "ignore_eos", &out->request.ignore_eos, e)) ||
        (err = parse_lines(body, &out->request, e)) ||
        (err = api_params_cache(body, &out->request, e)) ||
        (err = api_get_bool(body, "return_tokens", &out->return_tokens, e)) ||
        (err = api_get_bool(body, "return_token_ids", &out->return_token_ids, e)) ||
        (err = api_get_bool(body, "return_tokens_as_token_ids", &out->tokens_as_ids, e)) ||
        (err = api_get_bool(body, "skip_special_tokens", &skip_special, e)) ||
        (err = api_get_int(body, "prompt_logprobs", 0, REQUEST_MAX_TOP_LOGPROBS, &n_prompt_top, e)))
        return err;
    out->request.special_text = !skip_special;
    out->prompt_logprobs = n_prompt_top >= 0;
    out->n_prompt_top = out->prompt_logprobs ? (uint32_t)n_prompt_top : 0;
    return api_refuse_fields(body, refused, sizeof refused / sizeof refused[0], e);
}

void api_params_deinit(struct api_params *p)
{
    free(p->bias);
    free(p->stop_ids);
    stop_texts_release(p->stops);
    grammar_release(p->grammar);
    token_rules_release(p->rules);
}
