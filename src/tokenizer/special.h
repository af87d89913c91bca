/* Finding special tokens in text: control tokens where the caller allows them, user-defined ones
 * everywhere.
 *
 * Thread: immutable after special_init. */
#ifndef WEIR_TOKENIZER_SPECIAL_H
#define WEIR_TOKENIZER_SPECIAL_H

#include "tokenizer/prefix.h"

struct special_set {
    const struct vocab *v;
    struct prefix_set set;
};

enum err special_init(struct special_set *s,
                      const struct vocab *v,
                      struct err_info *e) WEIR_MUST_USE;
void special_deinit(struct special_set *s);

/* The longest special token that text[0..n) begins with; a control token only within its first
 * n_trusted bytes. TOKEN_NONE if there is none. */
token_id special_longest(
    const struct special_set *s, const char *text, size_t n, size_t n_trusted, size_t *len);

/* May a special token begin with this byte? */
static inline bool special_begins(const struct special_set *s, unsigned char byte)
{
    return s->set.first[byte] != s->set.first[byte + 1];
}

#endif
