/* Cutting text into the words within which byte-level BPE merges.
 *
 * Each pre-tokenizer that a file can name (tokenizer.ggml.pre) is a published regular expression or
 * several, written as stages (split.h). Each character belongs to exactly one word. What words a
 * name gives is what llama.cpp makes of it, where that differs from the model's own tokenizer.
 *
 * Thread: rules are constant; a struct pretokenize_scratch serves one caller. */
#ifndef WEIR_TOKENIZER_PRETOKENIZE_H
#define WEIR_TOKENIZER_PRETOKENIZE_H

#include "tokenizer/split.h"

#define PRETOKENIZE_MAX_STAGES 6

struct pretokenize_rule {
    const char *names; /* between blanks */
    struct split_stage stages[PRETOKENIZE_MAX_STAGES];
    bool whole_words; /* a word that is a token as a whole is that token, whatever merges say */
    bool adds_bos;    /* unless the file says otherwise */
    bool adds_sep;
    bool spans_words; /* words of more than one word: blanks lie within */
    bool whole_lines; /* whole_words, for words of line breaks */
    bool raw_text;    /* tokens are UTF-8 with U+2581 for the space, as SPM's; not mapped bytes */
};

/* The rule of tokenizer.ggml.pre, NULL for a name that is none. */
const struct pretokenize_rule *pretokenize_find(const char *name, size_t n);

/* For files that name no pre-tokenizer, or an unknown one. */
const struct pretokenize_rule *pretokenize_default(void);

/* The i-th rule, NULL after the last: for tests. */
const struct pretokenize_rule *pretokenize_rule_at(size_t i);

/* Where the stages stand in a text. */
struct pretokenize_scratch {
    struct split_level levels[PRETOKENIZE_MAX_STAGES];
};

/* The end of the word that begins at `at` < n; text[0..n) is valid UTF-8 and a text of its own,
 * taken word by word from 0 on. */
size_t pretokenize_next(const struct pretokenize_rule *rule,
                        struct pretokenize_scratch *s,
                        const char *text,
                        size_t n,
                        size_t at);

#endif
