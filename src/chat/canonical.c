#include "chat/chatml.h"

#include <string.h>

struct span {
    const char *s;
    size_t n;
};

/* A tag of the template, and the text before it with white space trimmed as the models' templates
 * expect it (Jinja's trim_blocks and lstrip_blocks). */
struct tag {
    char kind; /* '{' output, '%' statement, '#' comment, 0 the end of the source */
    struct span text;
    struct span body;
};

struct reader {
    const char *at, *end;
    bool trim_left;   /* the tag before ended with a dash */
    bool trim_line;   /* the tag before was a statement or comment: one newline goes */
    bool line_begins; /* nothing but trimmed text since the last newline */
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* ---- tags ---- */

static const char *find_tag(const char *s, const char *end)
{
    for (; end - s >= 2; s++)
        if (s[0] == '{' && (s[1] == '{' || s[1] == '%' || s[1] == '#'))
            return s;
    return end;
}

/* The two closing characters of a tag of `kind`, outside string literals; NULL if there are none.
 */
static const char *find_close(const char *s, const char *end, char kind)
{
    char quote = 0, close = kind == '{' ? '}' : kind;
    for (; end - s >= 2; s++) {
        if (quote && *s == '\\')
            s++;
        else if (quote)
            quote = *s == quote ? 0 : quote;
        else if (kind != '#' && (*s == '\'' || *s == '"'))
            quote = *s;
        else if (s[0] == close && s[1] == '}')
            return s;
    }
    return NULL;
}

static struct span trim_text(struct reader *r, const char *s, const char *end, char next, bool dash)
{
    bool line_begins = r->line_begins;
    while (r->trim_left && s < end && is_space(*s))
        s++;
    if (!r->trim_left && r->trim_line && s < end && *s == '\n') {
        s++;
        line_begins = true;
    }
    const char *stop = end;
    if (dash) {
        while (stop > s && is_space(stop[-1]))
            stop--;
    } else if (next == '%' || next == '#') {
        while (stop > s && (stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        if (stop > s ? stop[-1] != '\n' : !line_begins)
            stop = end; /* something precedes the tag on its line */
    }
    return (struct span){s, (size_t)(stop - s)};
}

/* Read up to and with the next tag; false where the source is malformed. */
static bool next_tag(struct reader *r, struct tag *t)
{
    const char *open = find_tag(r->at, r->end);
    t->kind = open < r->end ? open[1] : 0;
    bool dash = t->kind && r->end - open > 2 && open[2] == '-';
    t->text = trim_text(r, r->at, open, t->kind, dash);
    if (!t->kind)
        return true;
    const char *body = open + 2 + dash;
    const char *close = find_close(body, r->end, t->kind);
    if (!close || *body == '+')
        return false;
    r->at = close + 2;
    r->trim_left = close > body && close[-1] == '-';
    r->trim_line = t->kind != '{';
    r->line_begins = false;
    t->body = (struct span){body, (size_t)(close - body) - r->trim_left};
    return true;
}

/* ---- expressions ---- */

struct writer {
    struct buf *out;
    bool literal; /* the last token is a string literal, which another may continue */
};

static void put_literal_char(struct buf *out, char c)
{
    if (c == '"' || c == '\\')
        buf_char(out, '\\');
    if (c == '\n')
        buf_str(out, "\\n");
    else
        buf_char(out, c);
}

/* Begin a string literal; one joined by '+' to the last token, if that is a literal, continues it.
 */
static void open_literal(struct writer *w)
{
    struct buf *out = w->out;
    if (w->literal && out->len >= 2 && memcmp(out->data + out->len - 2, "\"+", 2) == 0)
        out->len -= 2;
    else
        buf_char(out, '"');
}

/* The literal at s, decoded; returns what follows it, or NULL. */
static const char *put_literal(struct writer *w, const char *s, const char *end)
{
    static const char escapes[] = "n\nt\tr\r\\\\'\'\"\"";
    char quote = *s++;
    open_literal(w);
    for (; s < end && *s != quote; s++) {
        char c = *s;
        if (c == '\\') {
            const char *e = escapes;
            if (++s == end)
                return NULL;
            while (*e && *e != *s)
                e += 2;
            if (!*e)
                return NULL; /* an escape that no plain template has */
            c = e[1];
        }
        put_literal_char(w->out, c);
    }
    buf_char(w->out, '"');
    w->literal = true;
    return s < end ? s + 1 : NULL;
}

/* ['name'] at s is written as .name: returns what follows, or NULL if it is not that. */
static const char *put_subscript(struct writer *w, const char *s, const char *end)
{
    do
        s++;
    while (s < end && is_space(*s));
    if (s == end || (*s != '\'' && *s != '"'))
        return NULL;
    char quote = *s++;
    const char *name = s;
    while (s < end && is_word(*s))
        s++;
    size_t n = (size_t)(s - name);
    if (n == 0 || s == end || *s++ != quote)
        return NULL;
    while (s < end && is_space(*s))
        s++;
    if (s == end || *s != ']')
        return NULL;
    buf_char(w->out, '.');
    buf_add(w->out, name, n);
    return s + 1;
}

static bool put_expression(struct writer *w, struct span body)
{
    const char *s = body.s, *end = body.s + body.n;
    while (s && s < end) {
        const char *behind = NULL;
        if (is_space(*s)) {
            s++;
        } else if (*s == '\'' || *s == '"') {
            s = put_literal(w, s, end);
        } else if (*s == '[' && (behind = put_subscript(w, s, end))) {
            s = behind;
            w->literal = false;
        } else if (is_word(*s)) {
            if (w->out->len > 0 && is_word(w->out->data[w->out->len - 1]))
                buf_char(w->out, ' ');
            while (s < end && is_word(*s))
                buf_char(w->out, *s++);
            w->literal = false;
        } else {
            bool plus = *s == '+' || *s == '~';
            buf_char(w->out, plus ? '+' : *s);
            w->literal &= plus;
            s++;
        }
    }
    return s != NULL;
}

/* ---- the whole ---- */

static void put_text(struct writer *w, struct span text)
{
    open_literal(w);
    for (size_t i = 0; i < text.n; i++)
        put_literal_char(w->out, text.s[i]);
    buf_char(w->out, '"');
    w->literal = true;
}

/* Outputs that follow one another are one output, joined by '+'. */
static void join_output(struct writer *w, bool *in_output)
{
    if (*in_output)
        buf_char(w->out, '+');
    *in_output = true;
}

static void end_output(struct writer *w, bool *in_output)
{
    if (*in_output)
        buf_char(w->out, ';');
    *in_output = w->literal = false;
}

bool jinja_canonical(const char *source, size_t n, struct buf *out)
{
    if (n > 0 && source[n - 1] == '\n')
        n--; /* as Jinja does, unless told to keep it */
    struct reader r = {.at = source, .end = source + n, .line_begins = true};
    struct writer w = {out, false};
    struct tag t = {0};
    bool in_output = false;
    do {
        if (!next_tag(&r, &t))
            return false;
        if (t.text.n > 0) {
            join_output(&w, &in_output);
            put_text(&w, t.text);
        }
        if (t.kind == '{') {
            join_output(&w, &in_output);
            if (!put_expression(&w, t.body))
                return false;
        } else if (t.kind == '%') {
            end_output(&w, &in_output);
            if (!put_expression(&w, t.body))
                return false;
            buf_char(out, ';');
            w.literal = false;
        }
    } while (t.kind);
    end_output(&w, &in_output);
    return true;
}
