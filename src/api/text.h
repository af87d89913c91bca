/* The visible output of a choice, piece by piece, and its log-probabilities. For api/ only.
 *
 * Bytes become text only as whole characters, and only up to the limit that the engine publishes,
 * so no part of a stop string is ever shown. Usually a piece is what one token made visible. When
 * the answer carries token ids or log-probabilities, which would give away a text that is held
 * back, a token becomes a piece only once all its bytes may be shown. */
#ifndef WEIR_API_TEXT_H
#define WEIR_API_TEXT_H

#include "api/call.h"

/* The next piece of what the engine has published, false if there is none now. Pieces without text
 * come only where every token counts: logprobs, return_tokens, token_ids, ignore_eos. */
bool api_next_piece(struct api_choice *ch, struct api_piece *p);

/* Text of a token as shown in lists, with the names of control tokens: a JSON string. Bytes that
 * are no text by themselves become U+FFFD, or "bytes:\xNN" as OpenAI's completions have it. */
void api_put_token(const struct tokenizer *t, token_id id, bool as_bytes, struct buf *out);

/* The same, or "token_id:N" where the client wants that instead. */
void api_put_token_name(const struct api_call *c, token_id id, bool as_bytes, struct buf *out);

/* {"token", "logprob", "bytes", "top_logprobs": [...]} of output i, each with its "id" if wanted.
 */
void api_put_logprob(const struct api_choice *ch, uint32_t i, bool with_id, struct buf *out);

/* {"id", "token", "bytes", "prob", "top_probs": [...]} of output i: probabilities of the draw, of
 * requests with params.sampled_logprobs. */
void api_put_prob(const struct api_choice *ch, uint32_t i, struct buf *out);

uint32_t api_count_chars(const char *s, size_t n);

#endif
