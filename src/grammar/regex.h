/* A regular expression while it is read; used by regex.c and regex_class.c only. */
#ifndef WEIR_GRAMMAR_REGEX_H
#define WEIR_GRAMMAR_REGEX_H

#include "grammar/internal.h"

#include <string.h>

/* What the characters at an edge of something are: of \w, of \W and ASCII, or not known, also
 * because there may be none. */
enum side { SIDE_UNKNOWN, SIDE_WORD, SIDE_OTHER, SIDE_FREE /* what comes before is not said */ };

struct regex {
    struct grammar_builder *b;
    const char *s, *where;
    size_t n, at;
    uint32_t n_open;
    bool in_json, search, over;
    bool anchored;         /* the whole begins where the text does */
    bool fold;             /* case does not count */
    enum side first, last; /* of what was parsed last */
    uint32_t n_categories;
};

static inline grammar_node fail_at(struct regex *r, size_t at, const char *what)
{
    return builder_fail(r->b, "%s: offset %zu: %s", r->where, at, what);
}

static inline bool failed(const struct regex *r)
{
    return builder_failed(r->b);
}

static inline char peek(const struct regex *r)
{
    return r->at < r->n ? r->s[r->at] : '\0';
}

static inline bool looking_at(const struct regex *r, const char *text)
{
    size_t n = strlen(text);
    return r->n - r->at >= n && memcmp(r->s + r->at, text, n) == 0;
}

/* ---- characters and classes (regex_class.c) ---- */

/* Characters of the normal set, which is given up, as text or as they are written in JSON; notes
 * what is at their edges, as all below that return a node do. */
grammar_node regex_emit(struct regex *r, struct char_set *set);
/* The character, or where case does not count those that differ from it in that alone. */
grammar_node regex_one(struct regex *r, uint32_t c);
/* Any character of ASCII that is of a word, or of none. */
grammar_node regex_kind(struct regex *r, enum side kind);
/* What stands there: '.', a class from its '[' on, what a backslash begins. */
grammar_node regex_any(struct regex *r);
grammar_node regex_set(struct regex *r);
grammar_node regex_escape(struct regex *r);
/* A character as it is; false if it is none (and the builder has failed). */
bool regex_char(struct regex *r, uint32_t *out);

#endif
