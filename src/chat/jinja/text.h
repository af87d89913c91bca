/* Strings that know which of their bytes are trusted, and the builder that makes them.
 *
 * A string is immutable UTF-8; lengths and places that templates see count code points. Trust is
 * kept as marks: mark i says how bytes are from marks[i].begin up to the next mark.
 *
 *      <|im_start|>user\nHello<|im_end|>          marks: {0, yes} {17, no} {22, yes}
 *
 * A builder that became a string can go on growing, as long as the string is all of it: appending
 * to a string in a loop takes time linear in the text. */
#ifndef WEIR_CHAT_JINJA_TEXT_H
#define WEIR_CHAT_JINJA_TEXT_H

#include "chat/jinja/run.h"

struct jmark {
    size_t begin;
    bool trusted;
};

struct jstr {
    const char *data; /* [len], not NUL-terminated */
    size_t len;
    size_t n_chars;
    const struct jmark *marks; /* [n_marks], at least one, the first at 0, alternating */
    size_t n_marks;
    struct jsb *room; /* the builder that this is all of, or NULL */
    bool markup;      /* HTML that is safe: what is joined to it becomes escaped */
};

struct jsb {
    struct jrun *r;
    char *data;
    size_t len, cap;
    struct jmark *marks;
    size_t n_marks, cap_marks;
    size_t max_bytes; /* 0: r->max_output */
};

#define JSB(run) ((struct jsb){.r = (run)})

extern const struct jstr jstr_empty; /* trusted */

const struct jstr *jstr_new(struct jrun *r, const char *s, size_t n, bool trusted); /* copies */
const struct jstr *jstr_lit(struct jrun *r, const char *s); /* a literal of the program: trusted */
const struct jstr *jstr_concat(struct jrun *r, const struct jstr *a, const struct jstr *b);
const struct jstr *jstr_sub(struct jrun *r, const struct jstr *s, size_t begin, size_t end);
const struct jstr *jstr_as_markup(struct jrun *r, const struct jstr *s, bool markup);

/* Are all bytes trusted? */
static inline bool jstr_trusted(const struct jstr *s)
{
    return s->n_marks == 1 && s->marks[0].trusted;
}

/* What "%.*s" takes, for at most n bytes of s. */
#define JSTR_UP_TO(n, s) (int)((s)->len < (n) ? (s)->len : (n)), (s)->data

bool jstr_eq(const struct jstr *a, const struct jstr *b);
bool jstr_is(const struct jstr *s, const char *literal);
int jstr_cmp(const struct jstr *a, const struct jstr *b); /* by code points */

/* The byte where code point i begins; len for i >= n_chars. */
size_t jstr_byte_at(struct jrun *r, const struct jstr *s, size_t i);
/* The code point at byte *at, which moves on. */
uint32_t jstr_next(const struct jstr *s, size_t *at);
/* Where the character that ends at byte `end` begins. */
size_t jstr_before(const struct jstr *s, size_t end);
size_t jstr_count_chars(const char *s, size_t n);
/* First place of `needle` in s[from..end), as a byte; SIZE_MAX: none. */
size_t jstr_find(
    struct jrun *r, const struct jstr *s, const struct jstr *needle, size_t from, size_t end);
size_t jstr_rfind(
    struct jrun *r, const struct jstr *s, const struct jstr *needle, size_t from, size_t end);

/* Append. */
void jsb_add(struct jsb *b, const char *s, size_t n, bool trusted);
void jsb_lit(struct jsb *b, const char *s); /* trusted */
void jsb_str(struct jsb *b, const struct jstr *s);
void jsb_sub(struct jsb *b, const struct jstr *s, size_t begin, size_t end); /* bytes */
void jsb_char(struct jsb *b, uint32_t c, bool trusted);
void jsb_repeat(struct jsb *b, const struct jstr *s, size_t n);
/* The string; the builder may go on growing, but only through it. */
const struct jstr *jsb_done(struct jsb *b);

/* Is byte i of s trusted? */
bool jstr_trusted_at(const struct jstr *s, size_t i);

#endif
