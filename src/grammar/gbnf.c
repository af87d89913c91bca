/* GBNF, the notation of llama.cpp for grammars.
 *
 *      root  ::= item ("," item)*        # rules, one a line; an open bracket or | goes on
 *      item  ::= "text" | [a-z0-9_] | [^"\\] | . | name | ( ... )
 *                each with * + ? {m} {m,} {m,n}; escapes \n \r \t \\ \" \[ \] \xHH \uHHHH
 * \UHHHHHHHH
 *                <[ID]> is one token, by its id
 *
 * Characters are code points, and ranges of them. Source: llama.cpp's grammars/README.md. */
#include "base/hex.h"
#include "base/utf8.h"
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BRACKETS 200
#define MAX_NAME 128

struct named_rule {
    grammar_node node;
    uint32_t name_at, name_len; /* in the source: where it was first seen */
    bool defined;
    uint32_t next; /* with the same hash, or NONE */
};

struct gbnf {
    struct grammar_builder *b;
    const char *s;
    size_t n, at;
    uint32_t n_open; /* brackets */
    struct named_rule *rules;
    uint32_t n_rules, cap_rules;
    uint32_t buckets[1024];
};

/* ---- where, for errors ---- */

static grammar_node fail_at(struct gbnf *g, size_t at, const char *what)
{
    uint32_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < g->n; i++) {
        if (g->s[i] == '\n') {
            line++;
            column = 1;
        } else if ((g->s[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return builder_fail(g->b, "'%s': line %u, column %u: %s", g->b->field, line, column, what);
}

static bool failed(const struct gbnf *g)
{
    return builder_failed(g->b);
}

static char peek(const struct gbnf *g)
{
    return g->at < g->n ? g->s[g->at] : '\0';
}

static bool looking_at(const struct gbnf *g, const char *text)
{
    size_t n = strlen(text);
    return g->n - g->at >= n && memcmp(g->s + g->at, text, n) == 0;
}

/* Skip blanks and comments; line ends too where a rule may go on. */
static void skip_space(struct gbnf *g, bool lines)
{
    while (g->at < g->n) {
        char c = g->s[g->at];
        if (c == '#') {
            while (g->at < g->n && g->s[g->at] != '\n' && g->s[g->at] != '\r')
                g->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->at++;
        } else {
            return;
        }
    }
}

/* ---- names ---- */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_length(const struct gbnf *g)
{
    size_t n = 0;
    while (g->at + n < g->n && is_name_char(g->s[g->at + n]))
        n++;
    return n;
}

/* The rule of that name, seen for the first time or again. */
static struct named_rule *find_rule(struct gbnf *g, size_t at, size_t n)
{
    char name[MAX_NAME + 1];
    uint32_t hash = 2166136261u;
    if (n > MAX_NAME) {
        fail_at(g, at, "the name is too long");
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)g->s[at + i]) * 16777619u;
    uint32_t *bucket = &g->buckets[hash % 1024];
    for (uint32_t i = *bucket; i != NONE; i = g->rules[i].next) {
        struct named_rule *r = &g->rules[i];
        /* NOLINTNEXTLINE(clang-analyzer-core.*): what a bucket names is there */
        if (r->name_len == n && memcmp(g->s + r->name_at, g->s + at, n) == 0)
            return r;
    }
    memcpy(name, g->s + at, n);
    name[n] = '\0';
    grammar_node node = grammar_rule(g->b, name);
    g->rules = grow(g->rules, &g->cap_rules, g->n_rules + 1, sizeof *g->rules);
    g->rules[g->n_rules] = (struct named_rule){
        .node = node, .name_at = (uint32_t)at, .name_len = (uint32_t)n, .next = *bucket};
    *bucket = g->n_rules;
    return &g->rules[g->n_rules++];
}

/* ---- characters ---- */

static bool parse_hex(struct gbnf *g, uint32_t n_digits, uint32_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < n_digits; i++) {
        const int digit = hex_digit(peek(g));
        if (digit < 0)
            return false;
        *out = *out << 4 | (uint32_t)digit;
        g->at++;
    }
    return *out <= 0x10ffff && (*out < 0xd800 || *out > 0xdfff);
}

static bool parse_escape(struct gbnf *g, uint32_t *out)
{
    size_t at = g->at++;
    char c = peek(g);
    static const char from[] = "nrt\\\"[]-^/'", to[] = "\n\r\t\\\"[]-^/'";
    const char *plain = c ? strchr(from, c) : NULL;
    g->at++;
    if (plain) {
        *out = (uint8_t)to[plain - from];
        return true;
    }
    uint32_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits && parse_hex(g, digits, out))
        return true;
    fail_at(g, at, "this escape is not known");
    return false;
}

/* One character of a text or a class. */
static bool parse_char(struct gbnf *g, uint32_t *out)
{
    if (peek(g) == '\\')
        return parse_escape(g, out);
    size_t n;
    if (utf8_len(g->s + g->at, g->n - g->at) <= 0) {
        fail_at(g, g->at, "this is not UTF-8");
        return false;
    }
    *out = utf8_decode(g->s + g->at, &n);
    g->at += n;
    return true;
}

static grammar_node parse_text(struct gbnf *g)
{
    struct buf text = {0};
    size_t from = g->at++;
    uint32_t c;
    char bytes[4];
    while (!failed(g) && peek(g) != '"') {
        if (g->at >= g->n)
            fail_at(g, from, "this text has no end");
        else if (parse_char(g, &c))
            buf_add(&text, bytes, utf8_encode(c, bytes));
    }
    g->at++;
    grammar_node node = grammar_literal(g->b, text.data, text.len);
    buf_deinit(&text);
    return node;
}

static grammar_node parse_class(struct gbnf *g)
{
    struct char_set set = {0};
    size_t from = g->at++;
    bool inverted = peek(g) == '^';
    g->at += inverted;
    while (!failed(g) && peek(g) != ']') {
        uint32_t lo, hi;
        size_t at = g->at;
        if (g->at >= g->n || peek(g) == '\n') {
            fail_at(g, from, "this class has no end");
            break;
        }
        if (!parse_char(g, &lo))
            break;
        hi = lo;
        if (peek(g) == '-' && g->at + 1 < g->n && g->s[g->at + 1] != ']') {
            g->at++;
            if (!parse_char(g, &hi))
                break;
        }
        if (hi < lo)
            fail_at(g, at, "this range runs backwards");
        char_set_add(&set, lo, hi);
    }
    g->at++;
    char_set_normalise(&set);
    if (inverted)
        char_set_invert(&set);
    grammar_node node = failed(g) ? 0 : grammar_chars(g->b, set.n, set.r);
    char_set_deinit(&set);
    return node;
}

/* <[ID]> */
static grammar_node parse_token(struct gbnf *g)
{
    size_t from = g->at;
    uint64_t id = 0;
    g->at += 2;
    size_t digits = g->at;
    while (peek(g) >= '0' && peek(g) <= '9' && id < INT32_MAX)
        id = id * 10 + (uint64_t)(g->s[g->at++] - '0');
    if (g->at == digits || id > INT32_MAX || !looking_at(g, "]>"))
        return fail_at(g, from, "a token is written <[ID]>, with its number");
    g->at += 2;
    return grammar_token(g->b, (int32_t)id);
}

/* ---- expressions ---- */

static grammar_node parse_alternatives(struct gbnf *g, bool nested);

static grammar_node parse_group(struct gbnf *g)
{
    size_t from = g->at++;
    if (++g->n_open > MAX_BRACKETS)
        return fail_at(g, from, "brackets are nested too deeply");
    grammar_node node = parse_alternatives(g, true);
    if (!failed(g) && peek(g) != ')')
        return fail_at(g, g->at < g->n ? g->at : from, "a ')' is missing");
    g->n_open--;
    g->at++;
    return node;
}

static bool parse_count(struct gbnf *g, uint32_t *out)
{
    uint64_t v = 0;
    size_t from = g->at;
    while (peek(g) >= '0' && peek(g) <= '9' && v < UINT32_MAX)
        v = v * 10 + (uint64_t)(g->s[g->at++] - '0');
    if (v > MAX_STATES) {
        fail_at(g, from, "this repetition is too long");
        return false;
    }
    if (g->at == from)
        return false;
    *out = (uint32_t)v;
    return true;
}

static grammar_node parse_braces(struct gbnf *g, grammar_node x)
{
    size_t from = g->at++;
    uint32_t min = 0, max = GRAMMAR_NO_LIMIT;
    skip_space(g, true);
    bool has_min = parse_count(g, &min);
    skip_space(g, true);
    if (peek(g) == ',') {
        g->at++;
        skip_space(g, true);
        (void)parse_count(g, &max);
        skip_space(g, true);
    } else {
        max = min;
    }
    if (failed(g))
        return x;
    if (peek(g) != '}' || !has_min)
        return fail_at(g, from, "a repetition is written {m}, {m,} or {m,n}");
    if (max < min)
        return fail_at(g, from, "this repetition runs backwards");
    g->at++;
    return grammar_repeat(g->b, x, min, max);
}

/* What follows an element: any number of * + ? {m,n}. */
static grammar_node parse_suffixes(struct gbnf *g, grammar_node x, bool nested)
{
    while (!failed(g)) {
        skip_space(g, nested);
        char c = peek(g);
        if (c == '*' || c == '+' || c == '?') {
            g->at++;
            x = grammar_repeat(g->b, x, c == '+', c == '?' ? 1 : GRAMMAR_NO_LIMIT);
        } else if (c == '{') {
            x = parse_braces(g, x);
        } else {
            break;
        }
    }
    return x;
}

/* One element, or false at what can be none. */
static bool parse_element(struct gbnf *g, grammar_node *out)
{
    size_t n;
    switch (peek(g)) {
    case '"':
        *out = parse_text(g);
        return true;
    case '[':
        *out = parse_class(g);
        return true;
    case '(':
        *out = parse_group(g);
        return true;
    case '.':
        g->at++;
        *out = grammar_chars(g->b, 1, &(struct grammar_range){0, 0x10ffff});
        return true;
    case '<':
        if (!looking_at(g, "<["))
            return false;
        *out = parse_token(g);
        return true;
    default:
        if ((n = name_length(g)) == 0)
            return false;
        struct named_rule *r = find_rule(g, g->at, n);
        *out = r ? r->node : 0;
        g->at += n;
        return true;
    }
}

/* Is this the beginning of the next rule? Outside of brackets a line end has ended this one
 * already, so only a line that was continued by | needs the question. */
static grammar_node parse_sequence(struct gbnf *g, bool nested)
{
    struct node_list l = {0};
    grammar_node x;
    while (!failed(g) && parse_element(g, &x)) {
        node_list_add(&l, parse_suffixes(g, x, nested));
        skip_space(g, nested);
    }
    return node_list_seq(g->b, &l);
}

static grammar_node parse_alternatives(struct gbnf *g, bool nested)
{
    struct node_list l = {0};
    skip_space(g, nested);
    node_list_add(&l, parse_sequence(g, nested));
    while (!failed(g) && peek(g) == '|') {
        g->at++;
        skip_space(g, true);
        node_list_add(&l, parse_sequence(g, nested));
    }
    return node_list_alt(g->b, &l);
}

static void parse_rule(struct gbnf *g)
{
    size_t from = g->at, n = name_length(g);
    if (n == 0) {
        fail_at(g, from, "expected the name of a rule");
        return;
    }
    struct named_rule *r = find_rule(g, from, n);
    g->at += n;
    skip_space(g, false);
    if (!r || !looking_at(g, "::=")) {
        fail_at(g, g->at, "expected '::='");
        return;
    }
    if (r->defined) {
        fail_at(g, from, "this rule is defined twice");
        return;
    }
    r->defined = true;
    grammar_node rule = r->node;
    g->at += 3;
    skip_space(g, true);
    grammar_define(g->b, rule, parse_alternatives(g, false));
    skip_space(g, false);
    if (!failed(g) && g->at < g->n && peek(g) != '\n' && peek(g) != '\r')
        fail_at(g, g->at, "expected an element, '|' or the end of the line");
}

grammar_node grammar_gbnf(struct grammar_builder *b, const char *s, size_t n)
{
    struct gbnf g = {.b = b, .s = s, .n = n};
    memset(g.buckets, 0xff, sizeof g.buckets);
    if (n > MAX_TEXT_BYTES)
        return builder_fail(b, "'%s' has more than %u bytes", b->field, MAX_TEXT_BYTES);
    skip_space(&g, true);
    while (!failed(&g) && g.at < g.n) {
        parse_rule(&g);
        skip_space(&g, true);
    }
    for (uint32_t i = 0; i < g.n_rules && !failed(&g); i++)
        if (!g.rules[i].defined)
            fail_at(&g, g.rules[i].name_at, "this rule is not defined");
    grammar_node root = 0;
    uint32_t i = 0;
    while (i < g.n_rules && (g.rules[i].name_len != 4 || memcmp(s + g.rules[i].name_at, "root", 4)))
        i++;
    if (i < g.n_rules)
        root = g.rules[i].node;
    else
        builder_fail(b, "'%s' has no rule named root", b->field);
    free(g.rules);
    return root;
}
