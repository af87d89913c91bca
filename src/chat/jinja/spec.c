/* One value by a format spec: [[fill]align][sign][#][0][width][,][.precision][type]. */
#include "chat/jinja/builtins.h"
#include "chat/jinja/strings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WIDTH 1000000

/* Digits at *at; -1 if there are none. */
static int64_t read_number(struct jrun *r, const char **at, const char *end)
{
    int64_t n = -1;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        n = (n < 0 ? 0 : n) * 10 + (**at - '0');
        if (n > MAX_WIDTH)
            jrun_fail(r, "a width in a format is too large");
    }
    return n;
}

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '=' || c == '^';
}

/* `align` is the type's own: a width that begins with 0 pads behind the sign only if that is '>'.
 */
static struct jspec parse(struct jrun *r, const struct jstr *spec, char align)
{
    bool trusted = jstr_trusted(spec);
    struct jspec f = {.fill = jstr_new(r, " ", 1, trusted), .width = -1, .precision = -1};
    const char *s = spec->data, *at = s, *end = s + spec->len;
    size_t n = spec->len, next = 0;
    if (n > 0)
        (void)jstr_next(spec, &next);
    if (next < n && is_align(s[next])) {
        f.fill = jstr_sub(r, spec, 0, next);
        f.align = s[next];
        at = s + next + 1;
    } else if (n > 0 && is_align(*at)) {
        f.align = *at++;
    }
    if (at < end && (*at == '+' || *at == '-' || *at == ' '))
        f.sign = *at++;
    if (at < end && *at == '#') {
        f.alternate = true;
        at++;
    }
    if (at < end && *at == '0') {
        f.fill =
            f.align && s + next < end && is_align(s[next]) ? f.fill : jstr_new(r, "0", 1, trusted);
        if (!f.align && align == '>')
            f.align = '=';
        at++;
    }
    f.width = read_number(r, &at, end);
    if (at < end && (*at == ',' || *at == '_'))
        f.group = *at++;
    if (at < end && *at == '.') {
        at++;
        f.precision = read_number(r, &at, end);
        if (f.precision < 0)
            jrun_fail(r, "Format specifier missing precision");
    }
    if (at < end)
        f.type = *at++;
    if (at < end)
        jrun_fail(r, "Invalid format specifier");
    return f;
}

/* `digits` of a number, with a separator every few digits before the point. Zeros in front of them
 * fill up to n_min characters, and are grouped with them. */
static void put_grouped(
    struct jsb *b, const struct jspec *f, const char *digits, int64_t n_min, bool trusted)
{
    bool radix = f->type && strchr("xXbo", f->type);
    size_t every = radix ? 4 : 3, n = strlen(digits), n_zeros = 0;
    size_t whole = radix ? n : strspn(digits, "0123456789");
    while (whole > 0 && (int64_t)(n_zeros + n + (n_zeros + whole - 1) / every) < n_min)
        n_zeros++;
    jrun_charge(b->r, n_zeros / 4);
    for (size_t left = n_zeros + whole; left > 0; left--) {
        if (left < n_zeros + whole && left % every == 0)
            jsb_add(b, &f->group, 1, trusted);
        jsb_add(b, left > whole ? "0" : digits + whole - left, 1, trusted);
    }
    jsb_add(b, digits + whole, n - whole, trusted);
}

static void put_number(struct jsb *b,
                       const struct jspec *f,
                       const char *sign,
                       const char *prefix,
                       const char *digits,
                       bool trusted)
{
    struct jrun *r = b->r;
    struct jsb head = JSB(r), body = JSB(r), all = JSB(r);
    jsb_add(&head, sign, strlen(sign), trusted);
    jsb_add(&head, prefix, strlen(prefix), trusted);
    const struct jstr *front = jsb_done(&head);
    bool zeros = f->align == '=' && jstr_is(f->fill, "0");
    if (f->group)
        put_grouped(&body,
                    f,
                    digits,
                    zeros ? f->width - (int64_t)front->n_chars : 0,
                    trusted && jstr_trusted(f->fill));
    else
        jsb_add(&body, digits, strlen(digits), trusted);
    const struct jstr *rest = jsb_done(&body);
    if (f->align == '=') {
        jsb_str(&all, front);
        jsb_str(&all, jstr_pad(r, rest, f->width - (int64_t)front->n_chars, f->fill, '>'));
    } else {
        jsb_str(&all, front);
        jsb_str(&all, rest);
    }
    const struct jstr *s = jsb_done(&all);
    jspec_put_padded(b, f, s, '>');
}

void jspec_put_padded(struct jsb *b, const struct jspec *f, const struct jstr *s, char align)
{
    align = f->align ? f->align : align;
    int64_t n = f->width - (int64_t)s->n_chars;
    if (align == '^' && n > 0) { /* here the odd one goes behind, unlike in str.center */
        s = jstr_pad(b->r, s, (int64_t)s->n_chars + n / 2, f->fill, '>');
        align = '<';
    }
    jsb_str(b, jstr_pad(b->r, s, f->width, f->fill, align == '=' ? '>' : align));
}

static const char *sign_of(bool minus, char sign)
{
    return minus ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

void jspec_put_int(struct jsb *b, const struct jspec *f, int64_t i, bool trusted)
{
    char digits[72];
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *prefix = "";
    if (f->type == 'x' || f->type == 'X') {
        snprintf(digits, sizeof digits, f->type == 'x' ? "%llx" : "%llX", (unsigned long long)m);
        prefix = f->alternate ? (f->type == 'x' ? "0x" : "0X") : "";
    } else if (f->type == 'o') {
        snprintf(digits, sizeof digits, "%llo", (unsigned long long)m);
        prefix = f->alternate ? "0o" : "";
    } else if (f->type == 'b') {
        size_t n = 0;
        for (int bit = m ? 63 - __builtin_clzll(m) : 0; bit >= 0; bit--)
            digits[n++] = (m >> bit & 1) ? '1' : '0';
        digits[n] = '\0';
        prefix = f->alternate ? "0b" : "";
    } else {
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)m);
    }
    size_t n = strlen(digits), n_zeros = f->precision > (int64_t)n ? (size_t)f->precision - n : 0;
    char *whole = jrun_alloc(b->r, n_zeros + n + 1);
    memset(whole, '0', n_zeros);
    memcpy(whole + n_zeros, digits, n);
    put_number(b, f, sign_of(i < 0, f->sign), prefix, whole, trusted);
}

/* 'g', and what a type of none is with a precision: that can be told from an integer ("2.0"). Not
 * printf's, which counts the digits before it rounds where '#' is given. */
static void print_general(char *digits, size_t cap, const struct jspec *f, int precision, double m)
{
    bool shows_float = !f->type;
    precision = precision > 0 ? precision : 1;
    snprintf(digits, cap, "%.*e", precision - 1, m);
    int exponent = atoi(strchr(digits, 'e') + 1);
    bool plain = exponent >= -4 && exponent < precision - shows_float;
    if (plain)
        snprintf(digits, cap, "%.*f", precision - 1 - exponent, m);
    char *e = digits + strcspn(digits, "e"), *end = e;
    if (!f->alternate && memchr(digits, '.', (size_t)(e - digits))) {
        while (end[-1] == '0')
            end--;
        end -= end[-1] == '.';
    }
    memmove(end, e, strlen(e) + 1);
    if (shows_float && plain && !strchr(digits, '.'))
        memcpy(digits + strlen(digits), ".0", 3);
    if (f->type == 'G' && !plain)
        *strchr(digits, 'e') = 'E';
}

/* '#' keeps the point, also where no digit follows it. */
static void keep_point(char *digits)
{
    char *at = digits + strspn(digits, "0123456789");
    if (*at == '.')
        return;
    memmove(at + 1, at, strlen(at) + 1);
    *at = '.';
}

/* "1.50e+10" and so on. */
void jspec_put_float(struct jsb *b, const struct jspec *f, double v, bool trusted)
{
    char type = f->type ? f->type : 'r';
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    bool percent = type == '%', upper = type == 'F' || type == 'E' || type == 'G';
    size_t cap = 400 + (size_t)precision; /* a double has up to 309 digits before its point */
    char *digits = jrun_alloc(b->r, cap);
    double m = fabs(percent ? v * 100.0 : v);
    if (!isfinite(v))
        snprintf(digits, cap, "%s", isnan(v) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
    else if (type == 'e' || type == 'E')
        snprintf(digits, cap, upper ? "%.*E" : "%.*e", precision, m);
    else if (type == 'f' || type == 'F' || percent)
        snprintf(digits, cap, "%.*f", precision, m);
    else if (type == 'r' && f->precision < 0)
        jfloat_repr(m, digits);
    else
        print_general(digits, cap, f, precision, m);
    if (f->alternate && isfinite(m))
        keep_point(digits);
    if (percent)
        memcpy(digits + strlen(digits), "%", 2);
    bool minus = signbit(v) && !isnan(v);
    put_number(b, f, sign_of(minus, f->sign), "", digits, trusted);
}

static _Noreturn void fail_type(struct jrun *r, char type, struct jval v)
{
    jrun_fail(r, "Unknown format code '%c' for object of type '%s'", type, jval_type(v));
}

static void put_str(struct jsb *b, const struct jspec *f, const struct jstr *s)
{
    if (f->precision >= 0)
        s = jstr_sub(b->r, s, 0, jstr_byte_at(b->r, s, (size_t)f->precision));
    jspec_put_padded(b, f, s, '<');
}

void jval_format_spec(struct jsb *b, struct jval v, const struct jstr *spec)
{
    struct jrun *r = b->r;
    if (spec->len == 0) {
        jval_print(b, v);
        return;
    }
    struct jspec f = parse(r, spec, v.kind == J_STR ? '<' : '>');
    if (f.group && f.type && !strchr(f.group == ',' ? "deEfFgG%" : "deEfFgG%boxX", f.type))
        jrun_fail(r, "Cannot specify '%c' with '%c'.", f.group, f.type);
    if (v.kind == J_STR) {
        if (f.type && f.type != 's')
            fail_type(r, f.type, v);
        if (f.sign || f.alternate || f.group || f.align == '=')
            jrun_fail(r, "a string has no sign, '#', ',', '_' or '=' in its format");
        put_str(b, &f, v.s);
    } else if (v.kind == J_FLOAT) {
        if (f.type && !strchr("eEfFgGn%", f.type))
            fail_type(r, f.type, v);
        jspec_put_float(b, &f, v.f, !v.input);
    } else if (jval_is_int(v)) {
        int64_t i = jval_as_int(v);
        if (f.type && strchr("eEfFgG%", f.type)) {
            jspec_put_float(b, &f, (double)i, !v.input);
        } else if (f.type == 'c') {
            if (f.sign || f.alternate || f.precision >= 0)
                jrun_fail(r, "a character has no sign, '#' or precision in its format");
            if (i < 0 || i > 0x10FFFF || (i >= 0xD800 && i < 0xE000))
                jrun_fail(r, "%%c arg not in range(0x110000)");
            struct jsb one = JSB(r);
            jsb_char(&one, (uint32_t)i, !v.input);
            jspec_put_padded(b, &f, jsb_done(&one), '>');
        } else {
            if (f.type && !strchr("bdoxXn", f.type))
                fail_type(r, f.type, v);
            if (f.precision >= 0)
                jrun_fail(r, "Precision not allowed in integer format specifier");
            jspec_put_int(b, &f, i, !v.input);
        }
    } else {
        jrun_fail(r, "unsupported format string passed to %s.__format__", jval_type(v));
    }
}
