/* SPM: characters merged greedily by the score of what they make (SentencePiece's BPE mode, Kudo
 * and Richardson 2018), spaces written as U+2581, bytes of unknown characters as byte tokens.
 *
 * Thread: a struct spm is immutable after spm_init. */
#ifndef WEIR_TOKENIZER_SPM_H
#define WEIR_TOKENIZER_SPM_H

#include "tokenizer/encoder.h"

struct spm {
    const struct vocab *v;
    token_id unk; /* for characters without byte tokens; TOKEN_NONE: an error */
    /* No token has a space behind another character, so that no merge crosses the border before a
     * space, and each word can be merged by itself. */
    bool space_begins_word;
};

void spm_init(struct spm *s, const struct vocab *v);

/* Append the ids of text[0..n), in which special tokens are not looked for, as if a space stood
 * before it if `prefix`. */
enum err spm_encode(const struct spm *s,
                    struct encoder *enc,
                    const char *text,
                    size_t n,
                    bool prefix,
                    struct err_info *e) WEIR_MUST_USE;

#endif
