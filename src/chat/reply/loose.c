/* Calls written as a programming language writes them: LFM2, Llama 4, OLMo 3 and Gemma 3 in the
 * manner of Python, Gemma 4 in its own, FunctionGemma with other quotes in the same.
 *
 *      MARK [f(a=1, b="x"), g(c=[True, None])] CLOSE
 *      <|tool_call>call:f{a:1,b:<|"|>x<|"|>,c:[true,null]}<tool_call|>
 *
 * Values become JSON as they come: keys get quotes, strings their escapes, True, False and None
 * their other spelling, tuples the brackets of lists. A word that is nothing of this is a string. A
 * value without a name is that of the next property in the tool's schema. Brackets lie on a stack
 * of bytes, so any nesting will do. */
#include "chat/reply/internal.h"

#include <string.h>

enum at { BEFORE, IN_NAME, AT_KEY, IN_KEY, AT_VALUE, IN_WORD, IN_STRING, AT_COMMA, AFTER };

static const struct loose_spec *spec_of(const struct reply_parser *p)
{
    return p->format->spec;
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '+' || c == '.' || (c & 0x80);
}

/* ---- the family's frame ---- */

static void to_name(struct reply_parser *p)
{
    p->loose.at = IN_NAME;
    p->loose.name_at = p->raw.len;
}

/* Behind a call. */
static void to_after(struct reply_parser *p)
{
    p->loose.at = AFTER;
    p->loose.closed = 0;
    buf_clear(&p->raw);
}

void loose_enter(struct reply_parser *p, const char *mark)
{
    struct loose_state *l = &p->loose;
    l->at = BEFORE;
    l->in_list = mark[strlen(mark) - 1] == '[';
    l->wraps = 0;
    l->closed = 0;
    l->close = strncmp(mark, "```", 3) == 0 ? "```" : spec_of(p)->close;
    if (l->in_list || spec_of(p)->quote)
        to_name(p);
}

/* c cannot stand in a call that has begun: it stays without its end, and c is text. */
static bool broken(struct reply_parser *p)
{
    to_after(p);
    reply_leave(p);
    return false;
}

static bool before_byte(struct reply_parser *p, char c)
{
    bool space = reply_is_space(c), opens = c == '[' && !p->loose.in_list;
    if (!space && !opens) {
        to_name(p);
        return loose_byte(p, c);
    }
    p->loose.in_list |= opens;
    buf_char(&p->raw, c);
    return true;
}

/* The name in raw is whole: it belongs to a tool, or at least could. */
static bool begin_call(struct reply_parser *p, const char *s, size_t n)
{
    char name[REPLY_MAX_NAME];
    const char *dot = n > 0 ? memrchr(s, '.', n) : NULL;
    size_t skip = dot ? (size_t)(dot + 1 - s) : 0;
    if (dot && !reply_knows(p, s, n) && reply_knows(p, s + skip, n - skip)) {
        s += skip; /* default_api.f */
        n -= skip;
    }
    if (!(reply_knows(p, s, n) || (!spec_of(p)->bare && reply_is_name(s, n))))
        return false;
    memcpy(name, s, n);
    buf_clear(&p->loose.name);
    buf_add(&p->loose.name, name, n);
    reply_begin(p, name, n, NULL, 0);
    reply_arguments(p, "{", 1);
    p->loose.at = AT_KEY;
    p->loose.first = true;
    p->loose.n_given = 0;
    buf_clear(&p->loose.stack);
    buf_char(&p->loose.stack, spec_of(p)->quote ? '}' : ')');
    return true;
}

static bool name_byte(struct reply_parser *p, char c)
{
    struct loose_state *l = &p->loose;
    const char *s = p->raw.data + l->name_at;
    size_t n = p->raw.len - l->name_at, space = reply_skip_space(s, 0, n);
    bool gemma = spec_of(p)->quote;
    s += space;
    n -= space;
    if (gemma && n >= 5 && memcmp(s, "call:", 5) == 0) {
        s += 5;
        n -= 5;
    }
    if (c == (gemma ? '{' : '(')) {
        if (!gemma && reply_is(s, n, "print") && !reply_knows(p, s, n)) {
            l->wraps++; /* print(f(...)) */
            buf_char(&p->raw, c);
            to_name(p);
            return true;
        }
        return begin_call(p, s, n) || reply_fail(p);
    }
    bool ok = reply_is_name(&c, 1) || (n == 0 && reply_is_space(c));
    if (!ok || n > REPLY_MAX_NAME || p->raw.len - l->name_at > REPLY_MAX_HEAD)
        return reply_fail(p);
    buf_char(&p->raw, c);
    return true;
}

/* Behind a call: the next one, the end of the list, the closing mark; or text again. */
static bool after_byte(struct reply_parser *p, char c)
{
    struct loose_state *l = &p->loose;
    if (l->close && (l->closed > 0 || c == l->close[0]))
        return reply_close_byte(p, l->close, &l->closed, c);
    if (c == ')' && l->wraps > 0) {
        l->wraps--;
        return true;
    }
    if (c == ']' && l->in_list) {
        l->in_list = false;
        buf_clear(&p->raw);
        if (!l->close)
            reply_leave(p);
        return true;
    }
    bool more = (l->in_list || l->close) && !spec_of(p)->quote; /* calls of the same block */
    if (more && reply_is_name(&c, 1)) {
        to_name(p);
        return name_byte(p, c);
    }
    if (!reply_is_space(c) && !(more && (c == ',' || c == ';')))
        return reply_fail(p);
    buf_char(&p->raw, c);
    return true;
}

/* ---- values ---- */

static char innermost(const struct reply_parser *p)
{
    return p->loose.stack.data[p->loose.stack.len - 1];
}

static bool at_root(const struct reply_parser *p)
{
    return p->loose.stack.len == 1;
}

static bool wants_key(const struct reply_parser *p)
{
    return at_root(p) || innermost(p) == '}';
}

static void put_quoted(struct reply_parser *p, const char *s, size_t n)
{
    reply_arguments(p, "\"", 1);
    reply_escaped(p, s, n);
    reply_arguments(p, "\"", 1);
}

/* The comma before an element or a member, unless it is the first. */
static void put_comma(struct reply_parser *p)
{
    if (!p->loose.first)
        reply_arguments(p, ", ", 2);
    p->loose.first = false;
}

/* What a value leaves behind: more of what it is in. */
static void value_ends(struct reply_parser *p)
{
    p->loose.at = AT_COMMA;
    p->loose.first = false;
}

static void close_bracket(struct reply_parser *p)
{
    struct loose_state *l = &p->loose;
    char c = innermost(p);
    reply_arguments(p, c == '}' || at_root(p) ? "}" : "]", 1);
    l->stack.len--;
    value_ends(p);
    if (l->stack.len > 0)
        return;
    reply_end(p);
    to_after(p);
}

/* A number as JSON writes it, in *out; false if the word is none. */
static bool number_of(const char *s, size_t n, struct buf *out)
{
    size_t i = 0, from;
    if (i < n && (s[i] == '-' || s[i] == '+')) {
        if (s[i] == '-')
            buf_char(out, '-');
        i++;
    }
    from = i;
    for (; i < n && ((s[i] >= '0' && s[i] <= '9') || (s[i] == '_' && i > from)); i++)
        if (s[i] != '_')
            buf_char(out, s[i]);
    size_t whole = i - from;
    if (whole > 1 && s[from] == '0')
        return false;
    if (whole == 0)
        buf_char(out, '0');
    size_t behind = 0;
    if (i < n && s[i] == '.') {
        buf_char(out, '.');
        for (i++; i < n && s[i] >= '0' && s[i] <= '9'; i++, behind++)
            buf_char(out, s[i]);
        if (behind == 0)
            buf_char(out, '0');
    }
    if (whole + behind == 0)
        return false;
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        buf_char(out, s[i++]);
        if (i < n && (s[i] == '-' || s[i] == '+'))
            buf_char(out, s[i++]);
        from = i;
        for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            buf_char(out, s[i]);
        if (i == from)
            return false;
    }
    return i == n;
}

static void put_word(struct reply_parser *p)
{
    static const char *const words[][2] = {{"True", "true"},
                                           {"true", "true"},
                                           {"False", "false"},
                                           {"false", "false"},
                                           {"None", "null"},
                                           {"none", "null"},
                                           {"null", "null"}};
    const struct buf *w = &p->loose.word;
    struct buf number = {0};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (reply_is(w->data, w->len, words[i][0])) {
            reply_arguments(p, words[i][1], strlen(words[i][1]));
            return;
        }
    }
    if (number_of(w->data, w->len, &number))
        reply_arguments(p, number.data, number.len);
    else
        put_quoted(p, w->data, w->len);
    buf_deinit(&number);
}

static void put_key(struct reply_parser *p, const char *s, size_t n)
{
    put_comma(p);
    put_quoted(p, s, n);
    reply_arguments(p, ": ", 2);
    p->loose.at = AT_VALUE;
}

/* The key of a value that was given without one; false: the tool has no more of them. */
static bool positional_key(struct reply_parser *p)
{
    struct loose_state *l = &p->loose;
    const char *key = reply_property(p, buf_cstr(&l->name), l->n_given++);
    if (!key)
        return false;
    put_key(p, key, strlen(key));
    return true;
}

static void string_begins(struct reply_parser *p, char quote)
{
    struct loose_state *l = &p->loose;
    l->at = IN_STRING;
    l->quote = quote;
    l->n_quotes = 1;
    l->triple = l->escaped = false;
    l->any = false;
    l->unescape = (struct json_unescape){0};
    buf_clear(&l->word);
    reply_arguments(p, "\"", 1);
}

static void string_ends(struct reply_parser *p)
{
    reply_arguments(p, "\"", 1);
    if (p->loose.is_key) {
        reply_arguments(p, ": ", 2);
        p->loose.at = IN_KEY; /* its colon comes */
        return;
    }
    value_ends(p);
}

/* One character of a string that is known to be part of it. */
static void string_char(struct reply_parser *p, const char *s, size_t n)
{
    struct buf text = {0};
    for (size_t i = 0; i < n; i++)
        (void)json_unescape_byte(&p->loose.unescape, s[i], &text);
    reply_escaped(p, text.data, text.len);
    buf_deinit(&text);
}

/* The byte behind a backslash. What JSON knows is given on to it. */
static void escape_byte(struct reply_parser *p, char c)
{
    static const char same[] = "bfnrtu\"\\/";
    char two[3] = {'\\', c, 0}, other[3] = {'\\', '\\', c};
    if (c == '\n') /* the line goes on */
        return;
    if (c == '\'')
        string_char(p, &c, 1);
    else if (c == 'x')
        string_char(p, "\\u00", 4);
    else if (c && strchr(same, c))
        string_char(p, two, 2);
    else
        string_char(p, other, 3);
}

static void plain_byte(struct reply_parser *p, char c)
{
    if (c == '"' || c == '\\')
        string_char(p, (char[]){'\\', c}, 2);
    else
        string_char(p, &c, 1);
}

/* A string of Python's: one quote or three on each side. n_quotes counts those just read. */
static bool python_string_byte(struct reply_parser *p, char c)
{
    struct loose_state *l = &p->loose;
    bool begins = !l->any;
    if (l->escaped) {
        l->escaped = false;
        escape_byte(p, c);
        return true;
    }
    if (c == l->quote) {
        l->n_quotes++;
        if (begins && l->n_quotes < 3)
            return true; /* an empty string, or the second of three */
        l->any = true;
        if (begins) {
            l->triple = true;
            l->n_quotes = 0;
        } else if (!l->triple || l->n_quotes == 3) {
            string_ends(p);
        }
        return true;
    }
    if (begins && l->n_quotes == 2) {
        string_ends(p);
        return loose_byte(p, c);
    }
    for (; l->any && l->triple && l->n_quotes > 0; l->n_quotes--)
        plain_byte(p, l->quote);
    l->any = true;
    l->n_quotes = 0;
    if (c == '\\')
        l->escaped = true;
    else
        plain_byte(p, c);
    return true;
}

/* One of Gemma's: everything up to the mark; what may be its beginning waits in word. */
static bool gemma_string_byte(struct reply_parser *p, char c)
{
    struct buf *w = &p->loose.word;
    buf_char(w, c);
    while (w->len > 0 && !reply_starts(spec_of(p)->quote, w->data, w->len)) {
        char first = reply_take_first(w);
        reply_escaped(p, &first, 1);
    }
    if (w->len == strlen(spec_of(p)->quote))
        string_ends(p);
    return true;
}

/* A byte of Gemma's quote at the beginning of a value or key; it waits in word. */
static bool gemma_quote_byte(struct reply_parser *p, char c)
{
    struct buf *w = &p->loose.word;
    buf_char(w, c);
    enum match got = reply_match(spec_of(p)->quote, w->data, w->len);
    if (got == MATCH_NONE)
        return broken(p);
    if (got == MATCH_PART)
        return true;
    if (p->loose.is_key) {
        p->loose.bare_key = false;
        put_comma(p);
    }
    string_begins(p, '<');
    return true;
}

static bool value_byte(struct reply_parser *p, char c)
{
    struct loose_state *l = &p->loose;
    bool list = !wants_key(p);
    if (reply_is_space(c))
        return true;
    if (list && c == innermost(p)) {
        close_bracket(p);
        return true;
    }
    if (list)
        put_comma(p);
    l->is_key = false;
    if (c == '"' || c == '\'') {
        string_begins(p, c);
    } else if (c == '[' || c == '(' || c == '{') {
        reply_arguments(p, c == '{' ? "{" : "[", 1);
        buf_char(&l->stack, c == '{' ? '}' : c == '[' ? ']' : ')');
        l->at = c == '{' ? AT_KEY : AT_VALUE;
        l->first = true;
    } else if (is_word(c) || (c == '<' && spec_of(p)->quote)) {
        buf_clear(&l->word);
        buf_char(&l->word, c);
        l->at = IN_WORD;
    } else {
        return broken(p);
    }
    return true;
}

static bool word_byte(struct reply_parser *p, char c)
{
    struct loose_state *l = &p->loose;
    if (l->word.data[0] == '<')
        return gemma_quote_byte(p, c);
    if (is_word(c)) {
        buf_char(&l->word, c);
        return true;
    }
    put_word(p);
    value_ends(p);
    return loose_byte(p, c);
}

/* Before a key, or the end of what has keys. */
static bool at_key_byte(struct reply_parser *p, char c)
{
    struct loose_state *l = &p->loose;
    if (reply_is_space(c))
        return true;
    if (c == innermost(p)) {
        close_bracket(p);
        return true;
    }
    l->is_key = true;
    buf_clear(&l->word);
    if (is_word(c) || (c == '<' && spec_of(p)->quote)) {
        buf_char(&l->word, c);
        l->at = IN_KEY;
        l->bare_key = true;
        return true;
    }
    l->bare_key = false;
    if (at_root(p) && !spec_of(p)->quote)
        return positional_key(p) ? value_byte(p, c) : broken(p);
    if (c != '"' && c != '\'')
        return broken(p);
    put_comma(p);
    string_begins(p, c);
    return true;
}

/* In a bare key, or between a key and its value. */
static bool key_byte(struct reply_parser *p, char c)
{
    struct loose_state *l = &p->loose;
    bool call = at_root(p) && !spec_of(p)->quote;
    if (l->bare_key && l->word.data[0] == '<')
        return gemma_quote_byte(p, c);
    if (c == (call ? '=' : ':')) {
        if (l->bare_key) {
            while (l->word.len > 0 && reply_is_space(l->word.data[l->word.len - 1]))
                l->word.len--;
            put_key(p, l->word.data, l->word.len);
        }
        l->at = AT_VALUE;
        return true;
    }
    if (!l->bare_key)
        return reply_is_space(c) || broken(p);
    if (call && (c == ',' || c == ')')) { /* a word that is a value */
        struct buf word = {0};
        buf_add(&word, l->word.data, l->word.len);
        bool ok = positional_key(p);
        buf_clear(&l->word);
        buf_add(&l->word, word.data, word.len);
        buf_deinit(&word);
        if (!ok)
            return broken(p);
        put_word(p);
        value_ends(p);
        return loose_byte(p, c);
    }
    bool goes_on = is_word(c) || reply_is_space(c) || (!call && c != '}' && c != ',');
    if (!goes_on || l->word.len >= REPLY_MAX_KEY)
        return broken(p);
    buf_char(&l->word, c);
    return true;
}

static bool comma_byte(struct reply_parser *p, char c)
{
    if (reply_is_space(c))
        return true;
    if (c == innermost(p)) {
        close_bracket(p);
        return true;
    }
    if (c != ',')
        return broken(p);
    p->loose.at = wants_key(p) ? AT_KEY : AT_VALUE;
    return true;
}

bool loose_byte(struct reply_parser *p, char c)
{
    switch ((enum at)p->loose.at) {
    case BEFORE:
        return before_byte(p, c);
    case IN_NAME:
        return name_byte(p, c);
    case AT_KEY:
        return at_key_byte(p, c);
    case IN_KEY:
        return key_byte(p, c);
    case AT_VALUE:
        return value_byte(p, c);
    case IN_WORD:
        return word_byte(p, c);
    case IN_STRING:
        return p->loose.quote == '<' ? gemma_string_byte(p, c) : python_string_byte(p, c);
    case AT_COMMA:
        return comma_byte(p, c);
    case AFTER:
        break;
    }
    return after_byte(p, c);
}

void loose_finish(struct reply_parser *p)
{
    struct loose_state *l = &p->loose;
    if (l->at == BEFORE || (l->at == IN_NAME && !(p->after_call && l->in_list)))
        reply_give_back(p);
    else if (l->at == IN_NAME || l->at == AFTER)
        reply_leave(p); /* separators, or part of the closing mark */
    else if (l->at == IN_WORD && l->word.data[0] != '<')
        reply_arguments(p, l->word.data, l->word.len);
}
