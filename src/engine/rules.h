/* Tokens that a request rules out, whatever the model thinks of them: all but those it allows,
 * and those that would complete a word it bans.
 *
 *      token_rules    what is ruled out, constant: one for all choices of a request
 *      (a mask)       what may come next, of one request: the rules, the grammar and min_tokens
 *                     together, made anew for each token by whoever chooses it */
#ifndef WEIR_ENGINE_RULES_H
#define WEIR_ENGINE_RULES_H

#include "base/err.h"
#include "sample/sample.h"
#include "tokenizer/tokenizer.h"

struct token_rules;

/* Nothing is ruled out of n_vocab > 0 tokens. *out has one reference; any thread. Errors:
 * ERR_NOMEM. */
enum err token_rules_create(uint32_t n_vocab,
                            struct token_rules **out,
                            struct err_info *e) WEIR_MUST_USE;
struct token_rules *token_rules_acquire(struct token_rules *t); /* NULL for NULL */
void token_rules_release(struct token_rules *t);

/* While there is one reference: all but ids[n] are ruled out. Ids out of range are nobody's. */
void token_rules_allow_only(struct token_rules *t, const token_id *ids, size_t n);

/* While there is one reference: ids[n], n > 0, do not come one behind the other; one alone never
 * comes. Errors: ERR_NOMEM. */
enum err token_rules_ban(struct token_rules *t, const token_id *ids, size_t n, struct err_info *e)
    WEIR_MUST_USE;
/* Is there a token that is not ruled out whatever was said? */
bool token_rules_any(const struct token_rules *t);

/* Words of 64 tokens in a mask. */
size_t token_rules_n_words(const struct token_rules *t);

/* What the rules leave behind said[n_said] of *also (its bits NULL: of all) into may[n_words];
 * false if that is nothing. Allocates: never. */
bool token_rules_mask(const struct token_rules *t,
                      const token_id *said,
                      size_t n_said,
                      const struct sample_allowed *also,
                      uint64_t *may) WEIR_MUST_USE;
bool token_rules_may(const uint64_t *may, token_id id);

#endif
