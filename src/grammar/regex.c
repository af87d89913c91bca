/* Regular expressions: what ECMAScript and Python have in common, and no more.
 *
 *      a . [a-z] [^a-z] \d \w \s \D \W \S  \n \r \t \f \v \0 \xHH \uHHHH \u{H...}  \. and the like
 *      \p{L} \P{L} and the other general categories of Unicode
 *      xy  x|y  (x)  (?:x)  (?<name>x)  (?P<name>x)  x* x+ x? x{m} x{m,} x{m,n}  and lazy ones
 *      (?i) before it all, (?i:x) and (?-i:x)
 *      ^ and $ at the ends of the whole, of an alternative of the whole, or of a group around one
 *      \b between what is all letters, digits and _ and what is all else in ASCII, an end of the
 *      text, or what a search leaves free
 *
 * Classes are those of ASCII; where the two languages differ, both agree with what comes out: . is
 * no line end of either, and \S no space of Unicode. To take an expression's texts out of others,
 * `over` has what either of them takes. Look-around and references back are refused, as is
 * everything else that is not above. */
#include "base/utf8.h"
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_GROUPS_OPEN 200
/* Categories are hundreds of ranges each: in an expression, and in all that one builder reads. */
#define MAX_CATEGORIES 64u
#define MAX_CATEGORIES_ALL 1024u
#define MAX_GROUPS_WHOLE 8u /* around one another: the end of each is looked for */
#define MAX_FOLDED 256u     /* characters of a class whose cases count as no category */
#define MIN_JOINED 1024u    /* ranges of a class that are sorted and joined before others come */

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

static grammar_node fail_at(struct regex *r, size_t at, const char *what)
{
    return builder_fail(r->b, "%s: offset %zu: %s", r->where, at, what);
}

static bool failed(const struct regex *r)
{
    return builder_failed(r->b);
}

static char peek(const struct regex *r)
{
    return r->at < r->n ? r->s[r->at] : '\0';
}

static bool looking_at(const struct regex *r, const char *text)
{
    size_t n = strlen(text);
    return r->n - r->at >= n && memcmp(r->s + r->at, text, n) == 0;
}

/* ---- characters and classes ---- */

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

/* Characters of the set, as text or as they are written in JSON. */
static grammar_node emit(struct regex *r, struct char_set *set)
{
    r->first = r->last = side_of(set);
    return r->in_json ? json_text_chars(r->b, set) : grammar_chars(r->b, set->n, set->r);
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
        char c = peek(r);
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            break;
        *out = *out << 4 | digit;
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

static bool parse_char(struct regex *r, uint32_t *out)
{
    int n = utf8_len(r->s + r->at, r->n - r->at);
    if (n <= 0) {
        fail_at(r, r->at, "this is not UTF-8");
        return false;
    }
    static const uint8_t lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    *out = (uint8_t)r->s[r->at] & lead[n];
    for (int i = 1; i < n; i++)
        *out = *out << 6 | ((uint8_t)r->s[r->at + (size_t)i] & 0x3f);
    r->at += (size_t)n;
    return true;
}

/* A member of a class: a character, or true in *is_class for \d and its kind, which was added. */
static bool parse_member(
    struct regex *r, struct char_set *set, bool over, uint32_t *out, bool *is_class)
{
    size_t from = r->at;
    *is_class = false;
    if (peek(r) != '\\')
        return parse_char(r, out);
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

static grammar_node parse_set(struct regex *r)
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
    grammar_node node = failed(r) ? 0 : emit(r, &set);
    char_set_deinit(&set);
    return node;
}

static grammar_node emit_one(struct regex *r, uint32_t c)
{
    struct char_set set = {0};
    char_set_add(&set, c, c);
    char_set_normalise(&set);
    if (r->fold)
        char_set_fold(&set, r->over);
    grammar_node node = emit(r, &set);
    char_set_deinit(&set);
    return node;
}

/* ---- expressions ---- */

static grammar_node parse_alternatives(struct regex *r, bool top);

static grammar_node parse_group(struct regex *r, bool top)
{
    size_t from = r->at++;
    const bool fold = r->fold;
    if (++r->n_open > MAX_GROUPS_OPEN)
        return fail_at(r, from, "groups are nested too deeply");
    if (looking_at(r, "?:")) {
        r->at += 2;
    } else if (looking_at(r, "?i:")) {
        r->fold = true;
        r->at += 3;
    } else if (looking_at(r, "?-i:")) {
        r->fold = false;
        r->at += 4;
    } else if (looking_at(r, "?i)")) {
        return fail_at(r, from, "(?i) is supported at the beginning of the whole, and (?i:...)");
    } else if (looking_at(r, "?P<") || (looking_at(r, "?<") && r->n - r->at > 2 &&
                                        r->s[r->at + 2] != '=' && r->s[r->at + 2] != '!')) {
        while (r->at < r->n && peek(r) != '>')
            r->at++;
        r->at++;
    } else if (peek(r) == '?') {
        return fail_at(
            r, from, "look-around, other flags than i and other groups with '?' are not supported");
    }
    grammar_node node = parse_alternatives(r, top);
    if (!failed(r) && peek(r) != ')')
        return fail_at(r, from, "this group has no end");
    r->fold = fold;
    r->n_open--;
    r->at++;
    return node;
}

static grammar_node parse_backslash(struct regex *r)
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
        grammar_node node = emit(r, &set);
        char_set_deinit(&set);
        return node;
    }
    return parse_escape(r, from, &c) ? emit_one(r, c) : 0;
}

static grammar_node any_char(struct regex *r)
{
    static const struct grammar_range lines[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    struct char_set set = {0};
    for (int i = 0; i < (r->over ? 1 : 3); i++) /* Python's lines end with \n alone */
        char_set_add(&set, lines[i].lo, lines[i].hi);
    char_set_normalise(&set);
    char_set_invert(&set);
    grammar_node node = emit(r, &set);
    char_set_deinit(&set);
    return node;
}

static grammar_node parse_atom(struct regex *r)
{
    uint32_t c;
    switch (peek(r)) {
    case '(':
        return parse_group(r, false);
    case '[':
        return parse_set(r);
    case '.':
        r->at++;
        return any_char(r);
    case '\\':
        return parse_backslash(r);
    case '^':
    case '$':
        return fail_at(r, r->at, "^ and $ are supported only at the ends of the whole");
    case '*':
    case '+':
    case '?':
    case '{':
        return fail_at(
            r, r->at, "there is nothing to repeat (write \\ before the character itself)");
    default:
        return parse_char(r, &c) ? emit_one(r, c) : 0;
    }
}

/* Digits at `at`; false when there are none. */
static bool read_count(const struct regex *r, size_t *at, uint64_t *out)
{
    size_t from = *at;
    for (*out = 0; *at < r->n && r->s[*at] >= '0' && r->s[*at] <= '9'; (*at)++)
        *out = *out < UINT32_MAX ? *out * 10 + (uint64_t)(r->s[*at] - '0') : *out;
    return *at > from;
}

static grammar_node parse_braces(struct regex *r, grammar_node x)
{
    uint64_t min = 0, max = GRAMMAR_NO_LIMIT;
    size_t from = r->at, at = r->at + 1;
    bool has_min = read_count(r, &at, &min), has_max = false;
    if (at < r->n && r->s[at] == ',') {
        at++;
        has_max = read_count(r, &at, &max);
        if (!has_max)
            max = GRAMMAR_NO_LIMIT;
    } else {
        max = min;
    }
    if (!has_min || at >= r->n || r->s[at] != '}')
        return fail_at(
            r, from, "a repetition is written {m}, {m,} or {m,n} (and the character \\{)");
    if (min > MAX_STATES || (has_max && max > MAX_STATES))
        return fail_at(r, from, "this repetition is too long");
    if (max < min)
        return fail_at(r, from, "this repetition runs backwards");
    r->at = at + 1;
    if (min == 0)
        r->first = r->last = SIDE_UNKNOWN;
    return grammar_repeat(r->b, x, (uint32_t)min, (uint32_t)max);
}

static grammar_node parse_repeated(struct regex *r)
{
    grammar_node x = parse_atom(r);
    char c = peek(r);
    if (failed(r) || !c || !strchr("*+?{", c))
        return x;
    if (c == '{') {
        x = parse_braces(r, x);
    } else {
        r->at++;
        x = grammar_repeat(r->b, x, c == '+', c == '?' ? 1 : GRAMMAR_NO_LIMIT);
        if (c != '+')
            r->first = r->last = SIDE_UNKNOWN;
    }
    if (peek(r) == '?') /* lazy: the same texts */
        r->at++;
    else if (!failed(r) && peek(r) && strchr("*+{", peek(r)))
        return fail_at(r, r->at, "a repetition of a repetition needs a group");
    return x;
}

/* Anything, where an alternative of a search does not say how it begins or ends. */
static grammar_node anything(struct regex *r)
{
    struct char_set set = {0};
    char_set_add(&set, 1, 0x10ffff);
    char_set_normalise(&set);
    grammar_node x = emit(r, &set);
    char_set_deinit(&set);
    return grammar_repeat(r->b, x, 0, GRAMMAR_NO_LIMIT);
}

/* One character of the kind, of ASCII. */
static grammar_node one_of(struct regex *r, enum side kind)
{
    struct char_set set = {0};
    (void)add_class(&set, kind == SIDE_WORD ? 'w' : 'W', false);
    char_set_normalise(&set);
    grammar_node node = emit(r, &set);
    char_set_deinit(&set);
    return node;
}

/* What is free before, or behind, an edge at which a word begins or ends. */
static grammar_node anything_beside(struct regex *r, enum side edge, bool before)
{
    if (edge != SIDE_WORD && edge != SIDE_OTHER)
        return 0;
    grammar_node one = one_of(r, edge == SIDE_WORD ? SIDE_OTHER : SIDE_WORD), all = anything(r);
    grammar_node both =
        grammar_seq(r->b, 2, before ? (grammar_node[]){all, one} : (grammar_node[]){one, all});
    return edge == SIDE_WORD ? grammar_optional(r->b, both) : both;
}

/* A sequence while it is read. */
struct sequence {
    grammar_node *nodes;
    uint32_t n, cap;
    enum side first, last; /* last: of what stands before the next */
    bool boundary;         /* \b stands there too */
    size_t boundary_at;
};

static void add_node(struct sequence *q, grammar_node node)
{
    q->nodes = grow(q->nodes, &q->cap, q->n + 1, sizeof *q->nodes);
    q->nodes[q->n++] = node;
}

/* Keep to a \b between what was read and what has the edge `next`; *beside, if it is not
 * NULL, becomes what a search has there. */
static void settle(struct regex *r, struct sequence *q, enum side next, grammar_node *beside)
{
    const enum side last = q->last;
    const enum side known = last == SIDE_FREE ? next : last;
    if (!q->boundary || failed(r))
        return;
    q->boundary = false;
    if (r->over || known == SIDE_UNKNOWN || known == SIDE_FREE ||
        (!beside && (last == SIDE_FREE || last == SIDE_UNKNOWN || next == SIDE_UNKNOWN)))
        fail_at(r, q->boundary_at, "word boundaries are not supported here");
    else if (beside)
        *beside = anything_beside(r, known, last == SIDE_FREE);
    else if (last == next)
        fail_at(r, q->boundary_at, "no word begins or ends here");
}

/* A group that is a whole alternative: ^ and $ may stand in it, unless it is nested deeply. */
static bool at_whole_group(const struct regex *r)
{
    if (peek(r) != '(' || r->n_open >= MAX_GROUPS_WHOLE)
        return false;
    size_t end = regex_group_end(r->s, r->n, r->at);
    return end == r->n || (end < r->n && (r->s[end] == '|' || r->s[end] == ')'));
}

/* (?i) */
static void take_flag(struct regex *r)
{
    if (!looking_at(r, "(?i)"))
        return;
    r->fold = true;
    r->at += 4;
}

static grammar_node parse_sequence(struct regex *r, bool top)
{
    struct sequence q = {0};
    bool begins = top && r->anchored, ends = false;
    if (top && !begins && at_whole_group(r))
        return parse_group(r, true);
    if (top && peek(r) == '^') {
        begins = true;
        r->at++;
        if (r->at == 1) /* nothing before it that it could leave out */
            take_flag(r);
    }
    const bool searches = r->search && top && !begins;
    q.first = SIDE_UNKNOWN;
    q.last = searches ? SIDE_FREE : top ? SIDE_OTHER : SIDE_UNKNOWN;
    add_node(&q, searches ? anything(r) : grammar_empty(r->b));
    while (!failed(r) && r->at < r->n && peek(r) != '|' && peek(r) != ')') {
        if (top && peek(r) == '$' &&
            (r->at + 1 == r->n || r->s[r->at + 1] == '|' || r->s[r->at + 1] == ')')) {
            ends = true;
            r->at++;
            break;
        }
        if (looking_at(r, "\\b")) {
            q.boundary = true;
            q.boundary_at = r->at;
            r->at += 2;
            continue;
        }
        grammar_node node = parse_repeated(r);
        const enum side first = r->first, last = r->last;
        settle(r, &q, first, q.last == SIDE_FREE ? &q.nodes[0] : NULL);
        q.first = q.n == 1 ? first : q.first;
        q.last = last;
        add_node(&q, node);
    }
    grammar_node tail = grammar_empty(r->b);
    if (r->search && top && !ends) {
        tail = anything(r);
        settle(r, &q, SIDE_FREE, &tail);
    } else if (r->over && ends) {
        tail = grammar_optional(r->b, emit_one(r, '\n')); /* Python's $ */
    }
    settle(r, &q, top ? SIDE_OTHER : SIDE_UNKNOWN, NULL);
    add_node(&q, tail);
    grammar_node node = grammar_seq(r->b, q.n, q.nodes);
    free(q.nodes);
    r->first = q.first;
    r->last = q.last;
    return node;
}

static grammar_node parse_alternatives(struct regex *r, bool top)
{
    grammar_node *nodes = NULL;
    uint32_t n = 0, cap = 0;
    enum side first = SIDE_UNKNOWN, last = SIDE_UNKNOWN;
    bool more = true;
    while (more && !failed(r)) {
        nodes = grow(nodes, &cap, n + 1, sizeof *nodes);
        nodes[n++] = parse_sequence(r, top);
        first = n == 1 || first == r->first ? r->first : SIDE_UNKNOWN;
        last = n == 1 || last == r->last ? r->last : SIDE_UNKNOWN;
        more = peek(r) == '|';
        r->at += more;
    }
    grammar_node node = grammar_alt(r->b, n, nodes);
    free(nodes);
    r->first = first;
    r->last = last;
    return node;
}

grammar_node regex_part_node(struct grammar_builder *b,
                             const char *s,
                             const struct regex_part *part,
                             bool in_json,
                             bool over,
                             const char *where)
{
    struct regex r = {.b = b,
                      .s = s,
                      .n = part->to,
                      .at = part->from,
                      .where = where,
                      .in_json = in_json,
                      .search = true,
                      .over = over,
                      .anchored = part->anchored,
                      .fold = part->fold};
    if (part->to > MAX_TEXT_BYTES)
        return builder_fail(b, "%s has more than %u bytes", where, MAX_TEXT_BYTES);
    if (part->from == 0)
        take_flag(&r);
    grammar_node node = parse_alternatives(&r, true);
    if (!failed(&r) && r.at < r.n)
        return fail_at(&r, r.at, "this ')' closes nothing");
    return node;
}

grammar_node regex_node(struct grammar_builder *b,
                        const char *s,
                        size_t n,
                        bool in_json,
                        bool search,
                        const char *where)
{
    struct regex r = {.b = b, .s = s, .n = n, .where = where, .in_json = in_json, .search = search};
    if (n > MAX_TEXT_BYTES)
        return builder_fail(b, "%s has more than %u bytes", where, MAX_TEXT_BYTES);
    take_flag(&r);
    grammar_node node = parse_alternatives(&r, true);
    if (!failed(&r) && r.at < r.n)
        return fail_at(&r, r.at, "this ')' closes nothing");
    return node;
}

grammar_node grammar_regex(struct grammar_builder *b, const char *s, size_t n)
{
    char where[sizeof b->field + 2];
    where[0] = '\'';
    size_t len = strlen(b->field);
    memcpy(where + 1, b->field, len);
    where[len + 1] = '\'';
    where[len + 2 < sizeof where ? len + 2 : sizeof where - 1] = '\0';
    return regex_node(b, s, n, false, false, where);
}
