/* Bytes against marks, and JSON by its borders: where a value ends, what a string says. Nothing is
 * built, and nothing is recursive. */
#include "base/hex.h"
#include "base/utf8.h"
#include "chat/reply/internal.h"

#include <stdio.h>
#include <string.h>

bool reply_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool reply_is(const char *s, size_t n, const char *what)
{
    return n == strlen(what) && memcmp(s, what, n) == 0;
}

size_t reply_skip_space(const char *s, size_t at, size_t n)
{
    while (at < n && reply_is_space(s[at]))
        at++;
    return at;
}

char reply_take_first(struct buf *b)
{
    char first = b->data[0];
    b->len--;
    memmove(b->data, b->data + 1, b->len);
    return first;
}

enum match reply_match(const char *mark, const char *s, size_t n)
{
    size_t n_mark = strlen(mark);
    if (n > n_mark || memcmp(s, mark, n) != 0)
        return MATCH_NONE;
    return n == n_mark ? MATCH_WHOLE : MATCH_PART;
}

/* What may stand in numbers and in true, false and null (and in what models write for them). */
static bool is_literal(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '+' || c == '.';
}

static enum scan in_string(struct json_scan *s, char c)
{
    if (s->escaped)
        s->escaped = false;
    else if (c == '\\')
        s->escaped = true;
    else if (c == '"')
        s->in_string = false;
    return !s->in_string && s->depth == 0 ? SCAN_LAST : SCAN_MORE;
}

/* A control character as an escape. */
static size_t spell_control(char c, char *out)
{
    static const char controls[] = "\b\f\n\r\t", names[] = "bfnrt";
    const char *at = c ? strchr(controls, c) : NULL;
    if (!at)
        return (size_t)sprintf(out, "\\u%04x", (unsigned)c);
    out[0] = '\\';
    out[1] = names[at - controls];
    return 2;
}

/* What follows a backslash as \\u, with so many digits; `whole`: all four. */
static size_t spell_held(struct json_scan *s, bool whole, char *out)
{
    const size_t n = s->n_held - 1u, at = whole ? 0 : 1;
    out[0] = '\\'; /* else the backslash before it stands for itself */
    out[at] = 'u';
    memcpy(out + at + 1, s->held, n);
    s->n_held = 0;
    return at + 1 + n;
}

size_t json_spell(struct json_scan *s, char c, char out[JSON_SPELL_BYTES])
{
    const bool control = s->in_string && (unsigned char)c < 0x20;
    size_t n = 0;
    if (s->n_held > 0 && hex_digit(c) >= 0) {
        s->held[s->n_held++ - 1] = c;
        return s->n_held == 5 ? spell_held(s, true, out) : 0;
    }
    if (s->n_held > 0)
        n = spell_held(s, false, out);
    if (s->in_string && s->escaped && c == 'u') {
        s->n_held = 1;
        return n;
    }
    if (s->in_string && s->escaped && (control || !strchr("bfnrt\"\\/", c)))
        out[n++] = '\\';
    if (control)
        return n + spell_control(c, out + n);
    out[n++] = c;
    return n;
}

static uint64_t level(uint64_t depth)
{
    return depth < 64 ? 1ull << depth : 0;
}

/* Does c close the innermost level, as far as that is known? */
static bool closes(const struct json_scan *s, char c)
{
    return s->depth > 64 || ((s->lists & level(s->depth - 1)) != 0) == (c == ']');
}

enum scan json_scan_byte(struct json_scan *s, char c)
{
    if (s->in_string)
        return in_string(s, c);
    if (s->literal && s->depth == 0)
        return is_literal(c) ? SCAN_MORE : SCAN_BEFORE;
    if (reply_is_space(c))
        return SCAN_MORE;
    if (c == '"') {
        s->begun = s->in_string = true;
    } else if (c == '{' || c == '[') {
        s->begun = true;
        s->lists = c == '[' ? s->lists | level(s->depth) : s->lists & ~level(s->depth);
        s->depth++;
    } else if (c == '}' || c == ']') {
        if (s->depth == 0 || !closes(s, c))
            return SCAN_BAD;
        if (--s->depth == 0)
            return SCAN_LAST;
    } else if (is_literal(c)) {
        s->begun = s->literal = true;
    } else if (s->depth == 0 || (c != ',' && c != ':')) {
        return SCAN_BAD;
    }
    return SCAN_MORE;
}

static void put_char(struct buf *out, uint32_t c)
{
    char bytes[4];
    buf_add(out, bytes, utf8_encode(c, bytes));
}

static const uint32_t replacement = 0xfffd;

/* \uXXXX is complete: half of a pair waits for the other. */
static void put_code(struct json_unescape *u, struct buf *out)
{
    uint32_t c = u->code;
    bool low = c >= 0xdc00 && c < 0xe000, high = c >= 0xd800 && c < 0xdc00;
    if (u->high && low) {
        put_char(out, 0x10000 + ((u->high - 0xd800) << 10) + (c - 0xdc00));
        u->high = 0;
        return;
    }
    if (u->high)
        put_char(out, replacement);
    u->high = high ? c : 0;
    if (!high)
        put_char(out, low ? replacement : c);
}

/* The byte behind a backslash. */
static void escape(struct json_unescape *u, char c, struct buf *out)
{
    static const char from[] = "bfnrt\"\\/", to[] = "\b\f\n\r\t\"\\/";
    const char *at = c ? strchr(from, c) : NULL;
    u->state = 0;
    if (c == 'u') {
        u->state = 2;
        u->code = 0;
        return;
    }
    if (!at)
        buf_char(out, '\\');
    buf_char(out, at ? to[at - from] : c);
}

bool json_unescape_byte(struct json_unescape *u, char c, struct buf *out)
{
    if (u->state >= 2) {
        int digit = hex_digit(c);
        if (digit >= 0) {
            u->code = u->code << 4 | (uint32_t)digit;
            if (++u->state == 6) {
                u->state = 0;
                put_code(u, out);
            }
            return false;
        }
        u->state = 0; /* not four digits */
        put_char(out, replacement);
    }
    if (u->high && !(u->state == 0 && c == '\\') && !(u->state == 1 && c == 'u')) {
        put_char(out, replacement); /* no second half follows */
        u->high = 0;
    }
    if (u->state == 1) {
        escape(u, c, out);
        return false;
    }
    if (c == '\\')
        u->state = 1;
    else if (c != '"')
        buf_char(out, c);
    return c == '"';
}
