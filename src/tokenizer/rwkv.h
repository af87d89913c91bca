/* RWKV's: at each place of the text the longest token that it goes on with, over bytes. Characters
 * mean nothing; a byte that begins no token is the unknown one.
 *
 * Thread: immutable after rwkv_create. */
#ifndef WEIR_TOKENIZER_RWKV_H
#define WEIR_TOKENIZER_RWKV_H

#include "tokenizer/encoder.h"

struct rwkv;

/* *v must outlive *out. Errors: ERR_FORMAT (a byte without a token, and none is unknown),
 * ERR_NOMEM. */
enum err rwkv_create(const struct vocab *v, struct rwkv **out, struct err_info *e) WEIR_MUST_USE;
void rwkv_destroy(struct rwkv *r);

/* Append the ids of text[0..n), in which special tokens are not looked for. */
enum err rwkv_encode(const struct rwkv *r,
                     struct encoder *enc,
                     const char *text,
                     size_t n,
                     struct err_info *e) WEIR_MUST_USE;

#endif
