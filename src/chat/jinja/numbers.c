#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"
#include "chat/jinja/unicode.h"

#include <stdlib.h>
#include <string.h>

double jnumber_of(const char *s)
{
    return strtod(s, NULL);
}

/* Without white space at its ends, and with the decimals of all scripts as ASCII's. */
static const struct jstr *plain(struct jrun *r, const struct jstr *s)
{
    s = jstr_strip(r, s, NULL, true, true);
    jrun_charge(r, s->len / 64);
    if (s->n_chars == s->len)
        return s;
    struct jsb b = JSB(r);
    for (size_t at = 0; at < s->len;) {
        uint32_t c = jstr_next(s, &at);
        int digit = juni_decimal_value(c);
        jsb_char(&b, digit >= 0 ? '0' + (uint32_t)digit : c, true);
    }
    return jsb_done(&b);
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* The base that "0x", "0o" or "0b" at s names, or 0. */
static int prefix_base(const char *s, size_t n)
{
    if (n < 2 || s[0] != '0')
        return 0;
    char c = (char)(s[1] | 32);
    return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
}

bool jnumber_parse_int(struct jrun *r, const struct jstr *s, int64_t base, int64_t *out)
{
    const struct jstr *t = plain(r, s);
    const char *at = t->data, *end = at + t->len;
    if (base != 0 && (base < 2 || base > 36))
        return false;
    bool minus = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    int prefix = prefix_base(at, (size_t)(end - at));
    bool after_prefix = prefix && (base == 0 || base == prefix);
    if (after_prefix)
        at += 2;
    bool zero_only = base == 0 && !after_prefix && at < end && *at == '0';
    base = after_prefix ? prefix : base == 0 ? 10 : base;
    if (at == end || (*at == '_' && !after_prefix) || end[-1] == '_')
        return false;
    int64_t v = 0;
    for (bool underscore = false; at < end; at++) {
        int d = digit_value(*at);
        if (*at == '_' && !underscore) {
            underscore = true;
            continue;
        }
        if (*at == '_' || d >= base || (zero_only && d != 0))
            return false;
        underscore = false;
        if (__builtin_mul_overflow(v, base, &v) ||
            (minus ? __builtin_sub_overflow(v, d, &v) : __builtin_add_overflow(v, d, &v)))
            jrun_fail(r, "an integer has more than 64 bits");
    }
    *out = v;
    return true;
}

static bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* Digits with single underscores between them; returns what follows. */
static const char *skip_digits(const char *at, const char *end)
{
    while (is_digit(at, end) || (at < end && *at == '_' && is_digit(at + 1, end)))
        at++;
    return at;
}

static bool is_word(const char *at, const char *end, const char *word)
{
    return (size_t)(end - at) == strlen(word) && strncasecmp(at, word, strlen(word)) == 0;
}

/* strtod reads more than Python does (hex, "nan(1)"), so the form is checked before. */
static bool is_float(const char *at, const char *end)
{
    at += at < end && (*at == '-' || *at == '+');
    if (is_word(at, end, "inf") || is_word(at, end, "infinity") || is_word(at, end, "nan"))
        return true;
    bool whole = is_digit(at, end), fraction = false;
    if (whole)
        at = skip_digits(at, end);
    if (at < end && *at == '.') {
        at++;
        fraction = is_digit(at, end);
        if (fraction)
            at = skip_digits(at, end);
    }
    if (!whole && !fraction)
        return false;
    if (at < end && (*at | 32) == 'e') {
        at++;
        at += at < end && (*at == '-' || *at == '+');
        if (!is_digit(at, end))
            return false;
        at = skip_digits(at, end);
    }
    return at == end;
}

bool jnumber_parse_float(struct jrun *r, const struct jstr *s, double *out)
{
    const struct jstr *t = plain(r, s);
    if (!is_float(t->data, t->data + t->len))
        return false;
    char *copy = jrun_alloc(r, t->len + 1), *to = copy;
    for (size_t i = 0; i < t->len; i++)
        if (t->data[i] != '_')
            *to++ = t->data[i];
    *to = '\0';
    *out = strtod(copy, NULL);
    return true;
}
