/* Finding special tokens in text: control tokens where the caller allows them, user-defined ones
 * everywhere.
 *
 * Thread: immutable after special_init. */
#ifndef WEIR_TOKENIZER_SPECIAL_H
#define WEIR_TOKENIZER_SPECIAL_H

#include "tokenizer/vocab.h"

struct special_set {
    struct special_entry { /* sorted by text, so that those with a common prefix lie together */
        const char *text;
        uint32_t len;
        token_id id;
        bool control; /* or unknown: only in trusted text */
    } * entries;
    uint32_t first[257]; /* entries that begin with byte b: first[b] .. first[b + 1] */
    uint32_t n;
    uint32_t n_user_defined;
};

enum err special_init(struct special_set *s,
                      const struct vocab *v,
                      struct err_info *e) WEIR_MUST_USE;
void special_deinit(struct special_set *s);

/* The longest special token that text[0..n) begins with; a control token only within its first
 * n_trusted bytes. TOKEN_NONE if there is none. */
token_id special_longest(
    const struct special_set *s, const char *text, size_t n, size_t n_trusted, size_t *len);

#endif
