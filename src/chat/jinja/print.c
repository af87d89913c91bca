/* str() and repr() of every kind of value. */
#include "chat/jinja/eval.h"
#include "chat/jinja/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- floats ---- */

/* The shortest digits d.ddd and their exponent that read back as |f|; a finite f that is not 0.
 * The point that printf writes depends on the locale, and is left out. */
static int shortest_digits(double f, char digits[20], int *exponent)
{
    char s[40];
    for (int n = 1; n <= 17; n++) {
        snprintf(s, sizeof s, "%.*e", n - 1, f);
        if (strtod(s, NULL) == f)
            break;
    }
    int n = 0;
    const char *at = s;
    for (; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            digits[n++] = *at;
    *exponent = *at ? atoi(at + 1) : 0;
    return n;
}

static void put_plain(char *out, const char *digits, int n, int exponent)
{
    if (exponent < 0) {
        *out++ = '0';
        *out++ = '.';
        for (int i = -1; i > exponent; i--)
            *out++ = '0';
        memcpy(out, digits, (size_t)n);
        out[n] = '\0';
        return;
    }
    for (int i = 0; i <= exponent || i < n; i++) {
        if (i == exponent + 1)
            *out++ = '.';
        *out++ = i < n ? digits[i] : '0';
    }
    if (n <= exponent + 1) {
        *out++ = '.';
        *out++ = '0';
    }
    *out = '\0';
}

void jfloat_repr(double f, char out[32])
{
    char digits[20] = "0";
    int exponent;
    if (isnan(f)) {
        memcpy(out, "nan", 4);
        return;
    }
    if (signbit(f))
        *out++ = '-';
    f = fabs(f);
    if (isinf(f) || f == 0.0) {
        memcpy(out, isinf(f) ? "inf" : "0.0", 4);
        return;
    }
    int n = shortest_digits(f, digits, &exponent);
    if (exponent >= -4 && exponent < 16) {
        put_plain(out, digits, n, exponent);
        return;
    }
    *out++ = digits[0];
    if (n > 1) {
        *out++ = '.';
        memcpy(out, digits + 1, (size_t)n - 1);
        out += n - 1;
    }
    snprintf(out, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent) % 1000);
}

/* ---- strings ---- */

static void put_escaped_char(struct jsb *b, uint32_t c, bool trusted)
{
    char s[12];
    if (c == '\n' || c == '\r' || c == '\t')
        snprintf(s, sizeof s, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c < 0x100)
        snprintf(s, sizeof s, "\\x%02x", (unsigned)c);
    else if (c < 0x10000)
        snprintf(s, sizeof s, "\\u%04x", (unsigned)c);
    else
        snprintf(s, sizeof s, "\\U%08x", (unsigned)c);
    jsb_add(b, s, strlen(s), trusted);
}

static void repr_str(struct jsb *b, const struct jstr *s)
{
    bool single = memchr(s->data, '\'', s->len), twice = memchr(s->data, '"', s->len);
    char quote = single && !twice ? '"' : '\'';
    bool trusted = true;
    if (s->markup)
        jsb_lit(b, "Markup(");
    jsb_add(b, &quote, 1, trusted);
    for (size_t at = 0, from = 0; from < s->len; from = at) {
        uint32_t c = jstr_next(s, &at);
        trusted = jstr_trusted_at(s, from);
        if (c == (unsigned char)quote || c == '\\') {
            jsb_add(b, "\\", 1, trusted);
            jsb_char(b, c, trusted);
        } else if (!juni_printable(c)) {
            put_escaped_char(b, c, trusted);
        } else {
            jsb_sub(b, s, from, at);
        }
    }
    jsb_add(b, &quote, 1, true);
    if (s->markup)
        jsb_lit(b, ")");
}

/* ---- containers ---- */

void jval_put_items(
    struct jsb *b, const struct jlist *l, const char *open, const char *close, jval_put_fn put)
{
    jsb_lit(b, open);
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            jsb_lit(b, ", ");
        put(b, l->items[i]);
    }
    jsb_lit(b, close);
}

void jval_put_pairs(struct jsb *b, const struct jpair *pairs, size_t n, jval_put_fn put)
{
    jsb_lit(b, "{");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            jsb_lit(b, ", ");
        put(b, pairs[i].key);
        jsb_lit(b, ": ");
        put(b, pairs[i].value);
    }
    jsb_lit(b, "}");
}

static void repr_view(struct jsb *b, struct jval v)
{
    jsb_lit(b, jval_type(v));
    jsb_lit(b, "(");
    jval_put_items(b, jval_items(b->r, v), "[", "]", jval_repr);
    jsb_lit(b, ")");
}

static void repr_number(struct jsb *b, struct jval v)
{
    char s[48];
    if (v.kind == J_FLOAT)
        jfloat_repr(v.f, s);
    else
        snprintf(s, sizeof s, "%lld", (long long)v.i);
    jsb_add(b, s, strlen(s), !v.input);
}

static void repr_range(struct jsb *b, const struct jrange *g)
{
    char s[96];
    int n = snprintf(s, sizeof s, "range(%lld, %lld", (long long)g->start, (long long)g->stop);
    if (g->step != 1)
        n += snprintf(s + n, sizeof s - (size_t)n, ", %lld", (long long)g->step);
    jsb_add(b, s, (size_t)n, true);
    jsb_lit(b, ")");
}

static void repr_container(struct jsb *b, struct jval v)
{
    switch (v.kind) {
    case J_LIST:
        jval_put_items(b, v.list, "[", "]", jval_repr);
        break;
    case J_TUPLE:
        jval_put_items(b, v.list, "(", v.list->n == 1 ? ",)" : ")", jval_repr);
        break;
    case J_DICT:
        jval_put_pairs(b, v.dict->pairs, v.dict->n, jval_repr);
        break;
    case J_NAMESPACE:
        jsb_lit(b, "<Namespace ");
        jval_put_pairs(b, v.dict->pairs, v.dict->n, jval_repr);
        jsb_lit(b, ">");
        break;
    default:
        repr_view(b, v);
    }
}

void jval_repr(struct jsb *b, struct jval v)
{
    jrun_charge(b->r, 1);
    switch (v.kind) {
    case J_UNDEFINED:
    case J_MISSING:
        jsb_lit(b, "Undefined");
        break;
    case J_NONE:
        jsb_add(b, "None", 4, !v.input);
        break;
    case J_BOOL:
        jsb_add(b, v.b ? "True" : "False", v.b ? 4 : 5, !v.input);
        break;
    case J_INT:
    case J_FLOAT:
        repr_number(b, v);
        break;
    case J_STR:
        repr_str(b, v.s);
        break;
    case J_RANGE:
        repr_range(b, v.range);
        break;
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_VIEW:
    case J_NAMESPACE:
        jrun_enter(b->r);
        repr_container(b, v);
        jrun_leave(b->r);
        break;
    case J_LOOP:
        jloop_repr(b, v);
        break;
    case J_MACRO:
        jsb_lit(b, v.macro->node->text ? "<Macro '" : "<Macro anonymous");
        if (v.macro->node->text)
            jsb_str(b, v.macro->node->text);
        jsb_lit(b, v.macro->node->text ? "'>" : ">");
        break;
    default: /* Python would add an address, which nobody can rely on */
        jsb_lit(b, "<");
        jsb_lit(b, jval_type(v));
        jsb_lit(b, " object>");
    }
}

void jval_ascii(struct jsb *b, struct jval v)
{
    struct jsb text = JSB(b->r);
    jval_repr(&text, v);
    const struct jstr *s = jsb_done(&text);
    for (size_t at = 0, from = 0; from < s->len; from = at) {
        uint32_t c = jstr_next(s, &at);
        if (c < 0x80)
            jsb_sub(b, s, from, at);
        else
            put_escaped_char(b, c, jstr_trusted_at(s, from));
    }
}

void jval_print(struct jsb *b, struct jval v)
{
    if (v.kind == J_STR)
        jsb_str(b, v.s);
    else if (v.kind != J_UNDEFINED)
        jval_repr(b, v);
}

const struct jstr *jval_to_str(struct jrun *r, struct jval v)
{
    if (v.kind == J_STR)
        return v.s;
    struct jsb b = JSB(r);
    jval_print(&b, v);
    return jsb_done(&b);
}
