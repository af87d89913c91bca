/* Byte-level BPE: words to ids by the vocabulary's ranked merges (Sennrich et al. 2016, over
 * bytes).
 *
 * Thread: a struct bpe is immutable after bpe_create. */
#ifndef WEIR_TOKENIZER_BPE_H
#define WEIR_TOKENIZER_BPE_H

#include "tokenizer/encoder.h"

struct bpe;

/* Read merges and pre-tokenizer; *v must outlive *out. A merge that names a token which the
 * vocabulary does not have is ERR_FORMAT. */
enum err bpe_create(const struct gguf *g,
                    const struct vocab *v,
                    struct bpe **out,
                    struct err_info *e) WEIR_MUST_USE;
void bpe_destroy(struct bpe *b);

/* Append the ids of text[0..n), in which special tokens are not looked for. */
enum err bpe_encode(const struct bpe *b,
                    struct encoder *enc,
                    const char *text,
                    size_t n,
                    struct err_info *e) WEIR_MUST_USE;

#endif
