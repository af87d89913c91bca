/* WPM: BERT's words, each cut into the longest tokens from its left end on (Devlin et al. 2019).
 *
 * Text is normalised (lower case, without accents where the file says so), cut at white space, and
 * around punctuation and Chinese characters. In the file's vocabulary a token that begins a word
 * begins with U+2581. A word that no tokens make up is one unknown token. So bytes get lost, and
 * what is decoded is not the text that was encoded.
 *
 * Thread: immutable after wpm_create. */
#ifndef WEIR_TOKENIZER_WPM_H
#define WEIR_TOKENIZER_WPM_H

#include "tokenizer/encoder.h"

struct wpm;

/* *v must outlive *out. */
enum err wpm_create(const struct vocab *v, struct wpm **out, struct err_info *e) WEIR_MUST_USE;
void wpm_destroy(struct wpm *w);

/* Append the ids of text[0..n), in which special tokens are not looked for. ERR_UNSUPPORTED where
 * the vocabulary lacks an unknown token and needs one. */
enum err wpm_encode(const struct wpm *w,
                    struct encoder *enc,
                    const char *text,
                    size_t n,
                    struct err_info *e) WEIR_MUST_USE;

#endif
