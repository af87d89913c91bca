/* The request fields that all dialects share: sampling, ends, streaming. For api/ only. */
#ifndef WEIR_API_PARAMS_H
#define WEIR_API_PARAMS_H

#include "api/json.h"
#include "engine/engine.h"

/* What a body asks for, but for the prompt. Zero-initialise; api_params_deinit frees. Strings are
 * views of the parsed body. */
struct api_params {
    struct request_params request; /* its arrays are the two below, its references the next three */
    struct logit_bias *bias;
    token_id *stop_ids;
    struct stop_texts *stops; /* a reference, or NULL; and so are the next */
    struct grammar *grammar;
    struct token_rules *rules;
    uint32_t n;            /* choices of each prompt */
    bool max_tokens_given; /* else the dialect's default */
    bool max_tokens_gives; /* more than fits means what fits; else it is an error */
    const char *none;      /* the field that asks for no token at all, or NULL */
    bool stream;
    bool include_usage;
    bool usage_so_far; /* with include_usage: in every chunk */
    bool return_tokens, return_token_ids;
    bool tokens_as_ids;   /* vLLM's return_tokens_as_token_ids */
    bool prompt_logprobs; /* vLLM's: with n_prompt_top most likely tokens at each place */
    uint32_t n_prompt_top;
    struct gguf_str model; /* data NULL: absent */
};

/* Read and check every shared field, and refuse the ones in the wire format of OpenAI, vLLM, SGLang
 * and llama.cpp that change the result and that Weir does not have. Fields that only inform are
 * ignored. Errors: ERR_INVALID naming the field; ERR_NOMEM; ERR_INTERNAL (no random numbers). */
enum err api_params_parse(const json_t *body,
                          uint32_t n_vocab,
                          uint32_t max_choices,
                          struct api_params *out,
                          struct err_info *e) WEIR_MUST_USE;
void api_params_deinit(struct api_params *p);

/* For who has nothing to say without a token: ERR_INVALID if none is asked for. */
enum err api_params_some(const struct api_params *p, struct err_info *e) WEIR_MUST_USE;

/* The part of it that says how tokens are chosen. */
enum err api_params_sampling(const json_t *body,
                             struct sample_params *s,
                             struct err_info *e) WEIR_MUST_USE;

/* The part of it that says how a request meets the KV memory and the others: cache_prompt,
 * cache_salt (a view of the body), priority. */
enum err api_params_cache(const json_t *body,
                          struct request_params *p,
                          struct err_info *e) WEIR_MUST_USE;

/* A field and the only value of it that changes nothing. */
enum api_neutral {
    NEUTRAL_NOTHING, /* absent or null */
    NEUTRAL_EMPTY,   /* "", [] or {} too */
    NEUTRAL_FALSE,   /* false too */
    NEUTRAL_TRUE,    /* true too */
    NEUTRAL_NUMBER,  /* the number too */
};
struct api_refused {
    const char *name;
    enum api_neutral neutral;
    double number;
};

/* ERR_INVALID if the body sets one of fields[n] to something else. */
enum err api_refuse_fields(const json_t *body,
                           const struct api_refused *fields,
                           size_t n,
                           struct err_info *e) WEIR_MUST_USE;

#endif
