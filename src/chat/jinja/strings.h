/* What filters and methods on strings share (strings.c, wrap.c). */
#ifndef WEIR_CHAT_JINJA_STRINGS_H
#define WEIR_CHAT_JINJA_STRINGS_H

#include "chat/jinja/builtins.h"

const struct jstr *jstr_capitalize(struct jrun *r, const struct jstr *s);
/* Without the characters of `chars` (NULL: white space) at its ends. */
const struct jstr *jstr_strip(
    struct jrun *r, const struct jstr *s, const struct jstr *chars, bool left, bool right);
const struct jstr *jstr_spaces(struct jrun *r, int64_t n); /* none where n is negative */
/* At most `count` times; negative: all. */
const struct jstr *jstr_replace(struct jrun *r,
                                const struct jstr *s,
                                const struct jstr *old,
                                const struct jstr *new_,
                                int64_t count);
/* To `width` characters with the one that `fill` is; align is '<', '>' or '^', which puts the odd
 * one as str.center does. */
const struct jstr *jstr_pad(
    struct jrun *r, const struct jstr *s, int64_t width, const struct jstr *fill, char align);
/* Lists. sep NULL: white space. */
struct jval jstr_split(
    struct jrun *r, const struct jstr *s, const struct jstr *sep, int64_t max, bool from_right);
struct jval jstr_splitlines(struct jrun *r, const struct jstr *s, bool keep_ends);
/* Append a line as textwrap wraps it, lines joined by `glue`. */
void jstr_wrap(struct jsb *b,
               const struct jstr *s,
               size_t width,
               bool break_words,
               bool hyphens,
               const struct jstr *glue);

/* The filter urlize (urlize.c); a: trim_url_limit, nofollow, target, rel, extra_schemes. */
struct jval jstr_urlize(struct jrun *r, struct jval v, const struct jval *a);

/* An argument that is a string, or None or absent: NULL. */
const struct jstr *jarg_chars(struct jrun *r, struct jval v);

#endif
