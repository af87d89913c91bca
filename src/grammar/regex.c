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
#include "grammar/regex.h"

#include <stdio.h>
#include <string.h>

#define MAX_GROUPS_OPEN 200
#define MAX_GROUPS_WHOLE 8u /* around one another: the end of each is looked for */

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

static grammar_node parse_atom(struct regex *r)
{
    uint32_t c;
    switch (peek(r)) {
    case '(':
        return parse_group(r, false);
    case '[':
        return regex_set(r);
    case '.':
        r->at++;
        return regex_any(r);
    case '\\':
        return regex_escape(r);
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
        return regex_char(r, &c) ? regex_one(r, c) : 0;
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
    return grammar_repeat(r->b, regex_emit(r, &set), 0, GRAMMAR_NO_LIMIT);
}

/* What is free before, or behind, an edge at which a word begins or ends. */
static grammar_node anything_beside(struct regex *r, enum side edge, bool before)
{
    if (edge != SIDE_WORD && edge != SIDE_OTHER)
        return 0;
    grammar_node one = regex_kind(r, edge == SIDE_WORD ? SIDE_OTHER : SIDE_WORD), all = anything(r);
    grammar_node both =
        grammar_seq(r->b, 2, before ? (grammar_node[]){all, one} : (grammar_node[]){one, all});
    return edge == SIDE_WORD ? grammar_optional(r->b, both) : both;
}

/* A sequence while it is read. */
struct sequence {
    struct node_list list;
    enum side first, last; /* last: of what stands before the next */
    bool boundary;         /* \b stands there too */
    size_t boundary_at;
};

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
    node_list_add(&q.list, searches ? anything(r) : grammar_empty(r->b));
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
        settle(r, &q, first, q.last == SIDE_FREE ? &q.list.nodes[0] : NULL);
        q.first = q.list.n == 1 ? first : q.first;
        q.last = last;
        node_list_add(&q.list, node);
    }
    grammar_node tail = grammar_empty(r->b);
    if (r->search && top && !ends) {
        tail = anything(r);
        settle(r, &q, SIDE_FREE, &tail);
    } else if (r->over && ends) {
        tail = grammar_optional(r->b, regex_one(r, '\n')); /* Python's $ */
    }
    settle(r, &q, top ? SIDE_OTHER : SIDE_UNKNOWN, NULL);
    node_list_add(&q.list, tail);
    r->first = q.first;
    r->last = q.last;
    return node_list_seq(r->b, &q.list);
}

static grammar_node parse_alternatives(struct regex *r, bool top)
{
    struct node_list l = {0};
    enum side first = SIDE_UNKNOWN, last = SIDE_UNKNOWN;
    bool more = true;
    while (more && !failed(r)) {
        node_list_add(&l, parse_sequence(r, top));
        first = l.n == 1 || first == r->first ? r->first : SIDE_UNKNOWN;
        last = l.n == 1 || last == r->last ? r->last : SIDE_UNKNOWN;
        more = peek(r) == '|';
        r->at += more;
    }
    r->first = first;
    r->last = last;
    return node_list_alt(r->b, &l);
}

/* All of r->s, from r->at on. */
static grammar_node parse_whole(struct regex *r)
{
    if (r->n > MAX_TEXT_BYTES)
        return builder_fail(r->b, "%s has more than %u bytes", r->where, MAX_TEXT_BYTES);
    if (r->at == 0)
        take_flag(r);
    grammar_node node = parse_alternatives(r, true);
    if (!failed(r) && r->at < r->n)
        return fail_at(r, r->at, "this ')' closes nothing");
    return node;
}

grammar_node regex_part_node(struct grammar_builder *b,
                             const char *s,
                             const struct regex_part *part,
                             bool over,
                             const char *where)
{
    struct regex r = {.b = b,
                      .s = s,
                      .n = part->to,
                      .at = part->from,
                      .where = where,
                      .in_json = true,
                      .search = true,
                      .over = over,
                      .anchored = part->anchored,
                      .fold = part->fold};
    return parse_whole(&r);
}

grammar_node regex_node(struct grammar_builder *b,
                        const char *s,
                        size_t n,
                        bool in_json,
                        bool search,
                        const char *where)
{
    struct regex r = {.b = b, .s = s, .n = n, .where = where, .in_json = in_json, .search = search};
    return parse_whole(&r);
}

grammar_node grammar_regex(struct grammar_builder *b, const char *s, size_t n)
{
    char where[sizeof b->field + 3];
    snprintf(where, sizeof where, "'%s'", b->field);
    return regex_node(b, s, n, false, false, where);
}
