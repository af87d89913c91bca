/* PLaMo's: of all ways to cut a text into tokens the one with the highest sum of scores, as in UGM,
 * but of the text as it is, with bytes for characters that are no token, and of equal ways the one
 * whose first token is longest (PLaMo 2; Preferred Networks 2025).
 *
 * Thread: immutable after plamo_create. */
#ifndef WEIR_TOKENIZER_PLAMO_H
#define WEIR_TOKENIZER_PLAMO_H

#include "tokenizer/encoder.h"

struct plamo;

/* *v must outlive *out. Errors: ERR_FORMAT (a byte without a token), ERR_NOMEM. */
enum err plamo_create(const struct vocab *v, struct plamo **out, struct err_info *e) WEIR_MUST_USE;
void plamo_destroy(struct plamo *p);

/* Append the ids of text[0..n), in which special tokens are not looked for. A byte order mark that
 * it begins with is left out. */
enum err plamo_encode(const struct plamo *p,
                      struct encoder *enc,
                      const char *text,
                      size_t n,
                      struct err_info *e) WEIR_MUST_USE;

#endif
