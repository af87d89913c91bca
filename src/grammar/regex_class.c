/* Characters and classes of regular expressions, and what they are where case does not count. */
#include "base/hex.h"
#include "base/utf8.h"
#include "grammar/regex.h"

#include <string.h>

/* Categories are hundreds of ranges each: in an expression, and in all that one builder reads. */
#define MAX_CATEGORIES 64u
#define MAX_CATEGORIES_ALL 1024u
#define MAX_FOLDED 256u  /* characters of a class whose cases count as no category */
#define MIN_JOINED 1024u /* ranges of a class that are sorted and joined before others come */

static bool is_word(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static enum side side_of(const struct char_set *set)
{
    uint32_t n_words = 0, n = 0;
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->r[i].hi > 0x7f)
            return SIDE_UNKNOWN;
        for (uint32_t c = set->r[i].lo; c <= set->r[i].hi; c++, n++)
            n_words += is_word(c);
    }
    return n == 0         ? SIDE_UNKNOWN
           : n_words == n ? SIDE_WORD
           : n_words == 0 ? SIDE_OTHER
                          : SIDE_UNKNOWN;
}

grammar_node regex_emit(struct regex *r, struct char_set *set)
{
    r->first = r->last = side_of(set);
    grammar_node node =
        r->in_json ? json_text_chars(r->b, set) : grammar_chars(r->b, set->n, set->r);
    char_set_deinit(set);
    return node;
}

static void add_word(struct char_set *set)
{
    char_set_add(set, 'a', 'z');
    char_set_add(set, 'A', 'Z');
    char_set_add(set, '0', '9');
    char_set_add(set, '_', '_');
}

/* What either language may count as a digit, a letter or a space: beyond ASCII they disagree. */
static void add_wide(struct char_set *set, char c)
{
    char_set_add(set, 0x80, 0x10ffff);
    if (c == 's')
        char_set_add(set, 0x1c, 0x1f);
}

/* What neither counts as a space. */
static void add_no_space(struct char_set *set)
{
    static const struct grammar_range spaces[] = {{0, 0x20},
                                                  {0x7f, 0xa0},
                                                  {0x1680, 0x1680},
                                                  {0x180e, 0x180e},
                                                  {0x2000, 0x200f},
                                                  {0x2028, 0x202f},
                                                  {0x205f, 0x205f},
                                                  {0x3000, 0x3000},
                                                  {0xfeff, 0xfeff}};
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        char_set_add(set, spaces[i].lo, spaces[i].hi);
}

/* \d \w \s, and their opposites in capitals; false for other letters. over: what either language
 * takes, else what both take. */
static bool add_class(struct char_set *set, char c, bool over)
{
    struct char_set own = {0};
    switch (c) {
    case 'd':
    case 'D':
        char_set_add(&own, '0', '9');
        break;
    case 'w':
    case 'W':
        add_word(&own);
        break;
    case 'S':
        if (!over) {
            add_no_space(&own);
            break;
        }
        /* fall through */
    case 's':
        char_set_add(&own, '\t', '\r');
        char_set_add(&own, ' ', ' ');
        break;
    default:
        return false;
    }
    if (over && c >= 'a')
        add_wide(&own, c);
    char_set_normalise(&own);
    if (c < 'a')
        char_set_invert(&own);
    /* beyond ASCII the languages disagree on what a digit or a letter is: \D and \W stay within */
    uint32_t most = !over && (c == 'D' || c == 'W') ? 0x7f : 0x10ffff;
    for (uint32_t i = 0; i < own.n; i++)
        if (own.r[i].lo <= most)
            char_set_add(set, own.r[i].lo, own.r[i].hi < most ? own.r[i].hi : most);
    char_set_deinit(&own);
    return true;
}

/* One more set of hundreds of ranges; false if there were too many. */
static bool count_category(struct regex *r, size_t at)
{
    if (++r->n_categories <= MAX_CATEGORIES && ++r->b->n_categories <= MAX_CATEGORIES_ALL)
        return true;
    fail_at(r,
            at,
            r->n_categories > MAX_CATEGORIES
                ? "there are too many categories of Unicode"
                : "all expressions together have too many categories of Unicode");
    return false;
}

/* Behind \p or \P: {NAME}. */
static bool add_category(struct regex *r, struct char_set *set, bool over)
{
    const size_t from = r->at;
    const bool inverted = peek(r) == 'P';
    if (!count_category(r, from - 1))
        return false;
    const char *name = r->s + from + 2;
    const char *end =
        r->n - from > 2 && name[-1] == '{' ? memchr(name, '}', r->n - from - 2) : NULL;
    if (!end || !char_set_add_category(set, name, (size_t)(end - name), inverted, over)) {
        fail_at(r, from - 1, "only general categories of Unicode are known: \\p{L}, \\p{Lu}");
        return false;
    }
    r->at += (size_t)(end - name) + 3;
    return true;
}

static bool at_category(const struct regex *r)
{
    return peek(r) == 'p' || peek(r) == 'P';
}

/* n_digits hex digits, or, for 0, as many as there are. */
static bool parse_hex(struct regex *r, uint32_t n_digits, uint32_t *out)
{
    uint32_t i = 0;
    for (*out = 0; (n_digits == 0 || i < n_digits) && *out <= 0x10ffff; i++) {
        const int digit = hex_digit(peek(r));
        if (digit < 0)
            break;
        *out = *out << 4 | (uint32_t)digit;
        r->at++;
    }
    return i > 0 && (n_digits == 0 || i == n_digits) && *out <= 0x10ffff &&
           (*out < 0xd800 || *out > 0xdfff);
}

/* Behind a backslash: one character. */
static bool parse_escape(struct regex *r, size_t from, uint32_t *out)
{
    char c = peek(r);
    static const char names[] = "nrtfv", values[] = "\n\r\t\f\v";
    const char *name = c ? strchr(names, c) : NULL;
    bool ok = true;
    r->at++;
    if (name) {
        *out = (uint8_t)values[name - names];
    } else if (c == '0' && !(peek(r) >= '0' && peek(r) <= '9')) {
        *out = 0;
    } else if (c == 'x') {
        ok = parse_hex(r, 2, out);
    } else if (c == 'u' && peek(r) == '{') {
        r->at++;
        ok = parse_hex(r, 0, out) && peek(r) == '}';
        r->at++;
    } else if (c == 'u') {
        ok = parse_hex(r, 4, out);
    } else if (c && strchr("^$\\.*+?()[]{}|/-\"'`,:;<>=!@#%&~_ ", c)) {
        *out = (uint8_t)c;
    } else {
        ok = false;
    }
    if (!ok)
        fail_at(r,
                from,
                c >= '1' && c <= '9'   ? "references back are not supported"
                : c == 'b' || c == 'B' ? "word boundaries are not supported here"
                                       : "this escape is not supported");
    return ok;
}

bool regex_char(struct regex *r, uint32_t *out)
{
    size_t n;
    if (utf8_len(r->s + r->at, r->n - r->at) <= 0) {
        fail_at(r, r->at, "this is not UTF-8");
        return false;
    }
    *out = utf8_decode(r->s + r->at, &n);
    r->at += n;
    return true;
}

/* A member of a class: a character, or true in *is_class for \d and its kind, which was added. */
static bool parse_member(
    struct regex *r, struct char_set *set, bool over, uint32_t *out, bool *is_class)
{
    size_t from = r->at;
    *is_class = false;
    if (peek(r) != '\\')
        return regex_char(r, out);
    r->at++;
    if (add_class(set, peek(r), over)) {
        *is_class = true;
        r->at++;
        return true;
    }
    if (at_category(r)) {
        *is_class = true;
        return add_category(r, set, over);
    }
    if (peek(r) == 'b') {
        *out = '\b';
        r->at++;
        return true;
    }
    return parse_escape(r, from, out);
}

/* Add to a class the characters that it names; where case does not count, in both. */
static void add_named(
    struct regex *r, struct char_set *set, struct char_set *named, bool over, size_t from)
{
    uint32_t n = 0;
    char_set_normalise(named);
    for (uint32_t i = 0; i < named->n && n <= MAX_FOLDED; i++)
        n += named->r[i].hi - named->r[i].lo + 1;
    if (r->fold && n > 0 && (n <= MAX_FOLDED || count_category(r, from)))
        char_set_fold(named, over);
    for (uint32_t i = 0; i < named->n; i++)
        char_set_add(set, named->r[i].lo, named->r[i].hi);
    char_set_normalise(set);
}

/* What is said again takes no room: the ranges apart are few. */
static void join(struct char_set *set, uint32_t *most)
{
    if (set->n <= *most)
        return;
    char_set_normalise(set);
    *most = 2 * set->n + MIN_JOINED;
}

grammar_node regex_set(struct regex *r)
{
    struct char_set set = {0}, named = {0}; /* of classes; character by character */
    size_t from = r->at++;
    bool inverted = peek(r) == '^', first = true, has_class = false;
    uint32_t most = MIN_JOINED, most_named = MIN_JOINED;
    const bool over = r->over != inverted; /* what is left out of all must be turned round too */
    r->at += inverted;
    while (!failed(r) && (peek(r) != ']' || first)) {
        uint32_t lo, hi;
        bool is_class, end_is_class;
        size_t at = r->at;
        if (first && peek(r) == ']') {
            fail_at(r,
                    at,
                    "a class that is empty, or begins with ']', means different things: write \\]");
            break;
        }
        first = false;
        join(&set, &most);
        join(&named, &most_named);
        if (r->at >= r->n) {
            fail_at(r, from, "this class has no end");
            break;
        }
        if (!parse_member(r, &set, over, &lo, &is_class) || is_class) {
            has_class |= is_class;
            continue;
        }
        hi = lo;
        if (peek(r) == '-' && r->at + 1 < r->n && r->s[r->at + 1] != ']') {
            r->at++;
            if (!parse_member(r, &set, over, &hi, &end_is_class))
                break;
            if (end_is_class || hi < lo)
                fail_at(r, at, "this range runs backwards");
        }
        if (!failed(r))
            char_set_add(&named, lo, hi);
    }
    r->at++;
    add_named(r, &set, &named, over, from);
    char_set_deinit(&named);
    if (r->fold && over && has_class && count_category(r, from)) /* some languages do so */
        char_set_fold(&set, true);
    if (inverted)
        char_set_invert(&set);
    if (!failed(r))
        return regex_emit(r, &set);
    char_set_deinit(&set);
    return 0;
}

grammar_node regex_one(struct regex *r, uint32_t c)
{
    struct char_set set = {0};
    char_set_add(&set, c, c);
    char_set_normalise(&set);
    if (r->fold)
        char_set_fold(&set, r->over);
    return regex_emit(r, &set);
}

grammar_node regex_escape(struct regex *r)
{
    struct char_set set = {0};
    size_t from = r->at++;
    uint32_t c;
    bool category = at_category(r) && add_category(r, &set, r->over);
    if (failed(r)) {
        char_set_deinit(&set);
        return 0;
    }
    if (category || add_class(&set, peek(r), r->over)) {
        r->at += !category;
        char_set_normalise(&set);
        if (r->fold && r->over && count_category(r, from))
            char_set_fold(&set, true);
        return regex_emit(r, &set);
    }
    return parse_escape(r, from, &c) ? regex_one(r, c) : 0;
}

grammar_node regex_any(struct regex *r)
{
    static const struct grammar_range lines[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    struct char_set set = {0};
    for (int i = 0; i < (r->over ? 1 : 3); i++) /* Python's lines end with \n alone */
        char_set_add(&set, lines[i].lo, lines[i].hi);
    char_set_normalise(&set);
    char_set_invert(&set);
    return regex_emit(r, &set);
}

grammar_node regex_kind(struct regex *r, enum side kind)
{
    struct char_set set = {0};
    (void)add_class(&set, kind == SIDE_WORD ? 'w' : 'W', false);
    char_set_normalise(&set);
    return regex_emit(r, &set);
}
