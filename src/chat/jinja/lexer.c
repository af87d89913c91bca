#include "chat/jinja/lexer.h"

#include "chat/jinja/unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
    struct jrun *r;
    struct jtokens *out;
    struct jstr source;
    const char *s;
    size_t n, at;
    uint32_t line;
    bool line_starting; /* what was read last ended a line */
    char brackets[JINJA_MAX_DEPTH];
    size_t n_brackets;
};

static _Noreturn void fail(struct lexer *l, const char *text)
{
    l->r->line = l->line;
    jrun_fail_as(l->r, ERR_FORMAT, "%s", text);
}

static struct jtoken *put(struct lexer *l, enum jtoken_kind kind)
{
    struct jtokens *t = l->out;
    t->items = jrun_grow(l->r, t->items, t->n, t->n + 1, &t->cap, sizeof *t->items);
    t->items[t->n] = (struct jtoken){.kind = kind, .line = l->line};
    return &t->items[t->n++];
}

/* Move on to byte `to`. */
static void advance(struct lexer *l, size_t to)
{
    for (size_t i = l->at; i < to; i++)
        l->line += l->s[i] == '\n';
    if (to > l->at)
        l->line_starting = l->s[to - 1] == '\n';
    l->at = to;
}

static bool looking_at(const struct lexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);
    return n <= l->n - at && memcmp(l->s + at, what, n) == 0;
}

/* ---- the ends of tags ---- */

/* Is there an end of a tag at `at`, such as "-%}"? Then *end is behind it and what it swallows. */
static bool tag_end(const struct lexer *l, size_t at, const char *close, size_t *end)
{
    bool variable = close[0] == '}';
    if (looking_at(l, at, close)) {
        *end = at + 2;
        if (!variable && *end < l->n && l->s[*end] == '\n')
            ++*end;
        return true;
    }
    if (at >= l->n || (l->s[at] != '-' && (l->s[at] != '+' || variable)) ||
        !looking_at(l, at + 1, close))
        return false;
    *end = l->s[at] == '-' ? juni_skip(&l->source, at + 3, true) : at + 3;
    return true;
}

/* ---- text ---- */

/* Where the text of [begin, end) ends, before a tag with this sign behind its bracket. */
static size_t trimmed_end(const struct lexer *l, size_t begin, size_t end, char sign, bool variable)
{
    if (sign == '-')
        return juni_skip_back(&l->source, begin, end, true);
    if (sign == '+' || variable)
        return end;
    size_t line = end;
    while (line > begin && l->s[line - 1] != '\n')
        line--;
    if (line == begin && !l->line_starting)
        return end;
    return line < end && juni_skip_back(&l->source, line, end, true) == line ? line : end;
}

static void put_data(struct lexer *l, size_t begin, size_t end)
{
    if (end > begin)
        put(l, T_DATA)->text = jstr_new(l->r, l->s + begin, end - begin, true);
}

static char sign_at(const struct lexer *l, size_t at)
{
    return at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
}

/* Is there "{% NAME %}" at `at`? Then *end is behind it; *sign the one of its begin. */
static bool bare_tag(const struct lexer *l, size_t at, const char *name, char *sign, size_t *end)
{
    if (!looking_at(l, at, "{%"))
        return false;
    *sign = sign_at(l, at + 2);
    size_t p = juni_skip(&l->source, at + 2 + (*sign != 0), true);
    if (!looking_at(l, p, name))
        return false;
    p = juni_skip(&l->source, p + strlen(name), true);
    bool begins = name[0] == 'r';
    if (begins && looking_at(l, p, "%}")) { /* this one swallows no newline */
        *end = p + 2;
        return true;
    }
    return !(begins && p < l->n && l->s[p] == '+') && tag_end(l, p, "%}", end);
}

static void read_raw(struct lexer *l)
{
    size_t begin = l->at, end = 0;
    char sign = 0;
    for (size_t at = begin; at < l->n; at++) {
        if (l->s[at] != '{' || !bare_tag(l, at, "endraw", &sign, &end))
            continue;
        put_data(l, begin, trimmed_end(l, begin, at, sign, false));
        advance(l, end);
        return;
    }
    fail(l, "missing end of raw directive");
}

static void read_comment(struct lexer *l)
{
    size_t end;
    for (size_t at = l->at; at < l->n; at++) {
        if (tag_end(l, at, "#}", &end)) {
            advance(l, end);
            return;
        }
    }
    fail(l, "missing end of comment tag");
}

/* ---- tokens inside tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool digit_of_base(char c, int base)
{
    int v = is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
    return v < base;
}

/* Digits, with single underscores between them, from `at` on; returns what follows. */
static size_t digits_end(const struct lexer *l, size_t at, int base)
{
    while (at < l->n && (digit_of_base(l->s[at], base) ||
                         (l->s[at] == '_' && at + 1 < l->n && digit_of_base(l->s[at + 1], base))))
        at++;
    return at;
}

/* The end of a float at l->at, or l->at if there is none. */
static size_t float_end(const struct lexer *l)
{
    if (l->at > 0 && l->s[l->at - 1] == '.')
        return l->at;
    size_t whole = digits_end(l, l->at, 10), end = whole;
    if (end + 1 < l->n && l->s[end] == '.' && is_digit(l->s[end + 1]))
        end = digits_end(l, end + 1, 10);
    size_t e = end;
    if (e < l->n && (l->s[e] | 32) == 'e') {
        e++;
        if (e < l->n && (l->s[e] == '+' || l->s[e] == '-'))
            e++;
        if (e < l->n && is_digit(l->s[e]))
            end = digits_end(l, e, 10);
    }
    return end == whole ? l->at : end;
}

/* A copy of [l->at, end) without underscores, for strtod and strtoll. */
static char *number_text(struct lexer *l, size_t end)
{
    char *s = jrun_alloc(l->r, end - l->at + 1), *to = s;
    for (size_t i = l->at; i < end; i++)
        if (l->s[i] != '_')
            *to++ = l->s[i];
    *to = '\0';
    return s;
}

static void read_int(struct lexer *l)
{
    size_t end;
    int base = 10;
    if (l->s[l->at] == '0' && l->at + 1 < l->n) {
        char c = (char)(l->s[l->at + 1] | 32);
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    }
    if (base != 10 && digits_end(l, l->at + 2, base) > l->at + 2)
        end = digits_end(l, l->at + 2, base);
    else if (l->s[l->at] == '0')
        end = digits_end(l, l->at, 1);
    else
        end = digits_end(l, l->at, 10);
    char *s = number_text(l, end);
    errno = 0;
    bool prefixed = end - l->at > 2 && base != 10;
    int64_t v = strtoll(prefixed ? s + 2 : s, NULL, prefixed ? base : 10);
    if (errno)
        fail(l, "an integer has more than 64 bits");
    put(l, T_INT)->i = v;
    advance(l, end);
}

static bool read_number(struct lexer *l)
{
    if (!is_digit(l->s[l->at]))
        return false;
    size_t end = float_end(l);
    if (end == l->at) {
        read_int(l);
        return true;
    }
    put(l, T_FLOAT)->f = strtod(number_text(l, end), NULL);
    advance(l, end);
    return true;
}

static bool read_name(struct lexer *l)
{
    size_t end = l->at, next = l->at;
    while (next < l->n && juni_word(jstr_next(&l->source, &next)))
        end = next;
    if (end == l->at)
        return false;
    size_t first = l->at;
    uint32_t c = jstr_next(&l->source, &first);
    if (c != '_' && !juni_alpha(c))
        fail(l, "invalid character in identifier");
    put(l, T_NAME)->text = jstr_new(l->r, l->s + l->at, end - l->at, true);
    advance(l, end);
    return true;
}

/* n hex digits at s. */
static uint32_t hex_of(struct lexer *l, const char *s, const char *end, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++, s++) {
        if (s >= end || !digit_of_base(*s, 16))
            fail(l, "truncated escape in a string");
        v = v * 16 + (uint32_t)(is_digit(*s) ? *s - '0' : (*s | 32) - 'a' + 10);
    }
    return v;
}

/* The escape behind a backslash at s; returns what follows. */
static const char *read_escape(struct lexer *l, struct jsb *b, const char *s, const char *end)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *known = *s ? strchr(from, *s) : NULL;
    if (known) {
        jsb_add(b, &to[known - from], 1, true);
        return s + 1;
    }
    if (*s == '\n')
        return s + 1;
    if (*s >= '0' && *s <= '7') {
        uint32_t v = 0;
        for (int i = 0; i < 3 && s < end && *s >= '0' && *s <= '7'; i++)
            v = v * 8 + (uint32_t)(*s++ - '0');
        jsb_char(b, v, true);
        return s;
    }
    if (*s == 'x' || *s == 'u' || *s == 'U') {
        int n = *s == 'x' ? 2 : *s == 'u' ? 4 : 8;
        uint32_t v = hex_of(l, s + 1, end, n);
        if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
            fail(l, "a string escapes what is no character");
        jsb_char(b, v, true);
        return s + 1 + n;
    }
    if (*s == 'N')
        fail(l, "characters by name are not supported in strings");
    jsb_lit(b, "\\"); /* no escape: the backslash stays */
    return s;
}

static bool read_string(struct lexer *l)
{
    char quote = l->s[l->at];
    if (quote != '\'' && quote != '"')
        return false;
    size_t end = l->at + 1;
    while (end < l->n && l->s[end] != quote)
        end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->n)
        return false;
    struct jsb b = JSB(l->r);
    const char *stop = l->s + end;
    for (const char *s = l->s + l->at + 1; s < stop;) {
        const char *back = memchr(s, '\\', (size_t)(stop - s));
        jsb_add(&b, s, (size_t)((back ? back : stop) - s), true);
        s = back ? read_escape(l, &b, back + 1, stop) : stop;
    }
    put(l, T_STRING)->text = jsb_done(&b);
    advance(l, end + 1);
    return true;
}

static void balance(struct lexer *l, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_brackets == sizeof l->brackets)
            fail(l, "brackets are nested too deeply");
        l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (l->n_brackets == 0 || l->brackets[--l->n_brackets] != c)
            fail(l, "a closing bracket does not match");
    }
}

static bool read_operator(struct lexer *l)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    static const char one[] = "+-/*%~[](){}><=.:|,;";
    size_t n = 0;
    for (size_t i = 0; i < sizeof two / sizeof two[0] && n == 0; i++)
        n = looking_at(l, l->at, two[i]) ? 2 : 0;
    if (n == 0 && l->s[l->at] && strchr(one, l->s[l->at]))
        n = 1;
    if (n == 0)
        return false;
    if (n == 1)
        balance(l, l->s[l->at]);
    memcpy(put(l, T_OPERATOR)->op, l->s + l->at, n);
    advance(l, l->at + n);
    return true;
}

/* Up to and with the end of a tag. */
static void read_tag(struct lexer *l, const char *close, enum jtoken_kind end_kind)
{
    size_t end;
    l->n_brackets = 0;
    while (l->at < l->n) {
        size_t behind = juni_skip(&l->source, l->at, true);
        if (l->n_brackets == 0 && tag_end(l, l->at, close, &end)) {
            put(l, end_kind);
            advance(l, end);
            return;
        }
        if (behind > l->at)
            advance(l, behind);
        else if (!read_number(l) && !read_name(l) && !read_string(l) && !read_operator(l))
            fail(l, "unexpected character in a tag");
    }
}

/* ---- the whole ---- */

/* The next "{%", "{{" or "{#", or the end. */
static size_t find_tag(const struct lexer *l)
{
    for (size_t at = l->at; at + 1 < l->n; at++)
        if (l->s[at] == '{' && (l->s[at + 1] == '%' || l->s[at + 1] == '{' || l->s[at + 1] == '#'))
            return at;
    return l->n;
}

static void read_part(struct lexer *l)
{
    size_t open = find_tag(l), end;
    char sign;
    if (open == l->n) {
        put_data(l, l->at, l->n);
        advance(l, l->n);
        return;
    }
    char kind = l->s[open + 1];
    bool raw = bare_tag(l, open, "raw", &sign, &end);
    sign = sign_at(l, open + 2);
    put_data(l, l->at, trimmed_end(l, l->at, open, sign, kind == '{'));
    advance(l, raw ? end : open + 2 + (sign != 0));
    if (raw) {
        read_raw(l);
    } else if (kind == '#') {
        read_comment(l);
    } else {
        put(l, kind == '{' ? T_VARIABLE_BEGIN : T_BLOCK_BEGIN);
        read_tag(l, kind == '{' ? "}}" : "%}", kind == '{' ? T_VARIABLE_END : T_BLOCK_END);
    }
}

void jinja_lex(struct jrun *r, const char *source, size_t n, struct jtokens *out)
{
    struct lexer *l = jrun_alloc(r, sizeof *l);
    l->r = r;
    l->out = out;
    l->source = jstr_empty;
    l->source.data = l->s = source;
    l->source.len = l->n = n;
    l->line = 1;
    l->line_starting = true;
    while (l->at < l->n)
        read_part(l);
    put(l, T_EOF);
}
