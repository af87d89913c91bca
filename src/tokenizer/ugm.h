/* UGM: of all ways to cut a text into tokens the one with the highest sum of scores
 * (SentencePiece's unigram mode, Kudo 2018), as T5 and XLM-R use it.
 *
 * Text is normalised first: by the file's table of replacements (tokenizer.ggml.
 * precompiled_charsmap), and its white space as the flags say. Characters that are no token become
 * the unknown token, neighbours one together. So what is decoded need not be what was encoded.
 *
 * Thread: immutable after ugm_create. */
#ifndef WEIR_TOKENIZER_UGM_H
#define WEIR_TOKENIZER_UGM_H

#include "tokenizer/encoder.h"

struct ugm;

/* *v and *g must outlive *out. Errors: ERR_FORMAT (a table of replacements that is cut off, or no
 * unknown token), ERR_NOMEM. */
enum err ugm_create(const struct gguf *g,
                    const struct vocab *v,
                    struct ugm **out,
                    struct err_info *e) WEIR_MUST_USE;
void ugm_destroy(struct ugm *u);

/* Append the ids of text[0..n), in which special tokens are not looked for. */
enum err ugm_encode(const struct ugm *u,
                    struct encoder *enc,
                    const char *text,
                    size_t n,
                    struct err_info *e) WEIR_MUST_USE;

#endif
