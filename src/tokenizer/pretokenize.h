/* Cutting text into the words within which byte-level BPE merges.
 *
 * Each pre-tokenizer is a published regular expression, run by PCRE2 (compiled to machine code
 * where the system lets it). Each character belongs to exactly one word.
 *
 * Thread: a struct pretokenizer is immutable; a struct pretokenize_scratch serves one caller. */
#ifndef WEIR_TOKENIZER_PRETOKENIZE_H
#define WEIR_TOKENIZER_PRETOKENIZE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct pretokenizer;
struct pretokenize_scratch;

/* The pre-tokenizer of tokenizer.ggml.pre; an unknown name is a warning and gpt-2. */
enum err pretokenizer_create(const char *name,
                             size_t n,
                             struct pretokenizer **out,
                             struct err_info *e) WEIR_MUST_USE;
void pretokenizer_destroy(struct pretokenizer *p);

/* A word that is a token as a whole is that token, whatever the merges say. */
bool pretokenizer_whole_words(const struct pretokenizer *p);

/* NULL when memory is out. */
struct pretokenize_scratch *pretokenize_scratch_create(const struct pretokenizer *p);
void pretokenize_scratch_destroy(struct pretokenize_scratch *s);

/* The end of the word that begins at `at` < n; text[0..n) is valid UTF-8 and a text of its own (the
 * patterns look ahead). 0 when memory is out. */
size_t pretokenize_next(const struct pretokenizer *p,
                        struct pretokenize_scratch *s,
                        const char *text,
                        size_t n,
                        size_t at);

#endif
