/* allowed_token_ids, bad_words: tokens that a request rules out. For api/ only. */
#ifndef WEIR_API_RULES_H
#define WEIR_API_RULES_H

#include "api/params.h"

/* Into p->rules, of a model with n_vocab tokens: at least the tokenizer's. Errors: ERR_INVALID
 * naming the field, ERR_NOMEM. */
enum err api_rules_parse(const json_t *body,
                         const struct tokenizer *t,
                         uint32_t n_vocab,
                         struct api_params *p,
                         struct err_info *e) WEIR_MUST_USE;

#endif
