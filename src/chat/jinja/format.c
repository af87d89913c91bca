/* str.format() and the % operator. */
#include "chat/jinja/builtins.h"

#include <math.h>
#include <string.h>

/* ---- str.format ---- */

struct format {
    struct jrun *r;
    const struct jstr *s;
    const struct jargs *args;
    int64_t next; /* the next automatic number; -1: numbers were given */
};

static void put_field(struct format *f, struct jsb *b, size_t begin, size_t end, int depth);

/* Text with fields, as in a format or, one level down, in a spec. */
static void put_text(struct format *f, struct jsb *b, size_t begin, size_t end, int depth)
{
    const char *d = f->s->data;
    for (size_t at = begin; at < end;) {
        if (d[at] == '{' || d[at] == '}') {
            if (at + 1 < end && d[at + 1] == d[at] && depth == 0) {
                jsb_sub(b, f->s, at, at + 1);
                at += 2;
                continue;
            }
            if (d[at] == '}')
                jrun_fail(f->r, "Single '}' encountered in format string");
            size_t close = at + 1;
            for (int open = 1; close < end; close++) {
                open += (d[close] == '{') - (d[close] == '}');
                if (open == 0)
                    break;
            }
            if (close >= end)
                jrun_fail(f->r, "expected '}' before end of string");
            put_field(f, b, at + 1, close, depth);
            at = close + 1;
            continue;
        }
        size_t stop = at;
        while (stop < end && d[stop] != '{' && d[stop] != '}')
            stop++;
        jsb_sub(b, f->s, at, stop);
        at = stop;
    }
}

/* The digits of s[begin..end) as a number, -1 if they are something else. */
static int64_t number_of(const struct jstr *s, size_t begin, size_t end)
{
    int64_t n = 0;
    if (begin == end || end - begin > 9)
        return -1;
    for (; begin < end; begin++) {
        if (s->data[begin] < '0' || s->data[begin] > '9')
            return -1;
        n = n * 10 + (s->data[begin] - '0');
    }
    return n;
}

static struct jval first_value(struct format *f, size_t begin, size_t end)
{
    int64_t i = number_of(f->s, begin, end);
    if (begin == end) {
        if (f->next < 0)
            jrun_fail(f->r,
                      "cannot switch from manual field specification to automatic field "
                      "numbering");
        i = f->next++;
    } else if (i >= 0) {
        if (f->next > 0)
            jrun_fail(f->r,
                      "cannot switch from automatic field numbering to manual field "
                      "specification");
        f->next = -1;
    }
    if (i >= 0) {
        if ((size_t)i >= f->args->n)
            jrun_fail(f->r,
                      "Replacement index %lld out of range for positional args tuple",
                      (long long)i);
        return f->args->items[i];
    }
    const struct jstr *name = jstr_sub(f->r, f->s, begin, end);
    for (size_t k = 0; k < f->args->n_keywords; k++)
        if (jstr_eq(f->args->keywords[k].name, name))
            return f->args->keywords[k].value;
    jrun_fail(f->r, "format misses '%.*s'", JSTR_UP_TO(60, name));
}

/* name(.attribute|[index])* */
static struct jval field_value(struct format *f, size_t begin, size_t end)
{
    const char *d = f->s->data;
    size_t at = begin;
    while (at < end && d[at] != '.' && d[at] != '[')
        at++;
    struct jval v = first_value(f, begin, at);
    while (at < end) {
        bool attribute = d[at] == '.';
        size_t from = ++at;
        while (at < end && (attribute ? d[at] != '.' && d[at] != '[' : d[at] != ']'))
            at++;
        if (at == from || (!attribute && at == end))
            jrun_fail(f->r, "Empty attribute in format string");
        int64_t i = attribute ? -1 : number_of(f->s, from, at);
        const struct jstr *name = jstr_sub(f->r, f->s, from, at);
        at += !attribute;
        if (at < end && d[at] != '.' && d[at] != '[')
            jrun_fail(f->r, "Only '.' or '[' may follow ']' in format field specifier");
        v = attribute ? jval_attr(f->r, v, name)
                      : jval_item(f->r, v, i >= 0 ? jval_int(i) : jval_str(name));
    }
    return v;
}

static void put_field(struct format *f, struct jsb *b, size_t begin, size_t end, int depth)
{
    const char *d = f->s->data;
    if (depth >= 2)
        jrun_fail(f->r, "Max string recursion exceeded");
    size_t name_end = begin, spec = end;
    bool bracket = false;
    char conversion = 0;
    for (; name_end < end; name_end++) {
        bracket = d[name_end] == '[' || (bracket && d[name_end] != ']');
        if (!bracket && (d[name_end] == '!' || d[name_end] == ':'))
            break;
        if (d[name_end] == '{')
            jrun_fail(f->r, "unexpected '{' in field name");
    }
    if (name_end < end && d[name_end] == '!') {
        conversion = name_end + 1 < end ? d[name_end + 1] : 0;
        if (!conversion || !strchr("rsa", conversion) ||
            (name_end + 2 < end && d[name_end + 2] != ':'))
            jrun_fail(f->r, "unknown conversion in format string");
        spec = name_end + 2 < end ? name_end + 3 : end;
    } else if (name_end < end) {
        spec = name_end + 1;
    }
    struct jval v = field_value(f, begin, name_end);
    if (conversion == 's')
        v = jval_str(jval_to_str(f->r, v));
    if (conversion == 'r' || conversion == 'a') {
        struct jsb repr = JSB(f->r);
        if (conversion == 'a')
            jval_ascii(&repr, v);
        else
            jval_repr(&repr, v);
        v = jval_str(jsb_done(&repr));
    }
    struct jsb text = JSB(f->r);
    put_text(f, &text, spec, end, depth + 1);
    const struct jstr *s = jsb_done(&text);
    if (!f->s->markup || (v.kind == J_STR && v.s->markup)) {
        jval_format_spec(b, v, s);
        return;
    }
    struct jsb plain = JSB(f->r); /* what goes into HTML is escaped */
    jval_format_spec(&plain, v, s);
    jsb_str(b, jstr_escape(f->r, jsb_done(&plain)));
}

struct jval jval_format(struct jrun *r, const struct jstr *format, const struct jargs *args)
{
    struct format f = {r, format, args, 0};
    struct jsb b = JSB(r);
    put_text(&f, &b, 0, format->len, 0);
    return jval_str(jstr_as_markup(r, jsb_done(&b), format->markup));
}

/* ---- % ---- */

struct percent {
    struct jrun *r;
    struct jval values;
    size_t n_used;
    bool markup; /* the format is: texts become escaped */
};

static struct jval next_value(struct percent *p)
{
    bool tuple = p->values.kind == J_TUPLE;
    size_t n = tuple ? p->values.list->n : 1;
    if (p->n_used >= n)
        jrun_fail(p->r, "not enough arguments for format string");
    return tuple ? p->values.list->items[p->n_used++] : (p->n_used++, p->values);
}

/* "(name)" at *at: its value. */
static struct jval named_value(struct percent *p, const struct jstr *s, size_t *at)
{
    size_t begin = ++*at;
    for (int open = 1; *at < s->len; ++*at) {
        open += (s->data[*at] == '(') - (s->data[*at] == ')');
        if (open == 0)
            break;
    }
    if (*at >= s->len)
        jrun_fail(p->r, "incomplete format key");
    if (p->values.kind != J_DICT)
        jrun_fail(p->r, "format requires a mapping");
    const struct jstr *name = jstr_sub(p->r, s, begin, (*at)++);
    const struct jval *v = jdict_get_str(p->r, p->values.dict, name);
    if (!v)
        jrun_fail(p->r, "format misses '%.*s'", JSTR_UP_TO(60, name));
    p->n_used = 1; /* the mapping itself is a value only before its names */
    return *v;
}

/* A width or precision: digits, or '*' for the next value. */
static int64_t read_size(struct percent *p, const struct jstr *s, size_t *at, int64_t missing)
{
    int64_t n = missing;
    if (*at < s->len && s->data[*at] == '*') {
        ++*at;
        n = jarg_int(p->r, next_value(p), 0);
    } else {
        for (; *at < s->len && s->data[*at] >= '0' && s->data[*at] <= '9'; ++*at) {
            n = (n < 0 ? 0 : n) * 10 + (s->data[*at] - '0');
            if (n > 1000000)
                break;
        }
    }
    if (n > 1000000 || n < -1000000)
        jrun_fail(p->r, "a width in a format is too large");
    return n;
}

static void put_integer(struct percent *p, struct jsb *b, struct jspec *f, struct jval v)
{
    jval_expect_defined(p->r, v);
    bool decimal = f->type == 'd' || f->type == 'i' || f->type == 'u';
    if (v.kind == J_FLOAT && decimal && !isfinite(v.f))
        jrun_fail(p->r, "cannot convert float %s to integer", isnan(v.f) ? "NaN" : "infinity");
    if (v.kind == J_FLOAT && decimal && !(fabs(v.f) < 9.2e18))
        jrun_fail(p->r, "an integer has more than 64 bits");
    if (v.kind == J_FLOAT && decimal)
        v = (struct jval){.kind = J_INT, .input = v.input, .i = (int64_t)v.f};
    if (!jval_is_int(v))
        jrun_fail(p->r, "%%%c format: a real number is required, not %s", f->type, jval_type(v));
    jspec_put_int(b, f, jval_as_int(v), !v.input);
}

static void put_text_value(const struct percent *p,
                           struct jsb *b,
                           const struct jspec *f,
                           struct jval v)
{
    struct jsb text = JSB(b->r);
    if (f->type == 's')
        jval_print(&text, v);
    else if (f->type == 'r')
        jval_repr(&text, v);
    else
        jval_ascii(&text, v);
    const struct jstr *s = jsb_done(&text);
    if (p->markup && !(f->type == 's' && v.kind == J_STR && v.s->markup))
        s = jstr_escape(b->r, s);
    if (f->precision >= 0)
        s = jstr_sub(b->r, s, 0, jstr_byte_at(b->r, s, (size_t)f->precision));
    jspec_put_padded(b, f, s, '>');
}

static void put_char_value(struct percent *p, struct jsb *b, const struct jspec *f, struct jval v)
{
    struct jsb one = JSB(b->r);
    if (v.kind == J_STR && v.s->n_chars == 1)
        jsb_str(&one, v.s);
    else if (jval_is_int(v) && jval_as_int(v) >= 0 && jval_as_int(v) <= 0x10FFFF &&
             (jval_as_int(v) < 0xD800 || jval_as_int(v) > 0xDFFF))
        jsb_char(&one, (uint32_t)jval_as_int(v), !v.input);
    else
        jrun_fail(p->r, "%%c requires int or char");
    jspec_put_padded(b, f, jsb_done(&one), '>');
}

static void put_conversion(struct percent *p, struct jsb *b, struct jspec *f, struct jval v)
{
    switch (f->type) {
    case 's':
    case 'r':
    case 'a':
        put_text_value(p, b, f, v);
        break;
    case 'c':
        put_char_value(p, b, f, v);
        break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        put_integer(p, b, f, v);
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        jval_expect_defined(p->r, v);
        if (!jval_is_number(v))
            jrun_fail(p->r, "must be real number, not %s", jval_type(v));
        jspec_put_float(b, f, jval_as_float(v), !v.input);
        break;
    default:
        jrun_fail(p->r, "unsupported format character '%c'", f->type);
    }
}

/* The conversion behind a '%' at s[at - 1]; returns what follows. */
static size_t put_percent(struct percent *p, struct jsb *b, const struct jstr *s, size_t at)
{
    struct jspec f = {.width = -1, .precision = -1};
    struct jval v = {.kind = J_MISSING};
    bool left = false, zero = false;
    if (at < s->len && s->data[at] == '(')
        v = named_value(p, s, &at);
    for (; at < s->len && s->data[at] && strchr("-+ #0", s->data[at]); at++) {
        char c = s->data[at];
        left |= c == '-';
        zero |= c == '0';
        f.alternate |= c == '#';
        if (c == '+' || (c == ' ' && !f.sign))
            f.sign = c;
    }
    f.width = read_size(p, s, &at, -1);
    if (f.width < -1) {
        left = true;
        f.width = -f.width;
    }
    if (at < s->len && s->data[at] == '.') {
        at++;
        f.precision = read_size(p, s, &at, 0);
        f.precision = f.precision < 0 ? 0 : f.precision;
    }
    while (at < s->len && (s->data[at] == 'l' || s->data[at] == 'h' || s->data[at] == 'L'))
        at++;
    if (at >= s->len)
        jrun_fail(p->r, "incomplete format");
    f.type = s->data[at];
    if (f.type == '%') {
        jsb_add(b, "%", 1, jstr_trusted(s));
        return at + 1;
    }
    bool number = strchr("diuxXoeEfFgG", f.type) != NULL;
    f.align = left ? '<' : zero && number ? '=' : '>';
    f.fill = jstr_new(p->r, zero && number && !left ? "0" : " ", 1, jstr_trusted(s));
    put_conversion(p, b, &f, v.kind == J_MISSING ? next_value(p) : v);
    return at + 1;
}

struct jval jval_percent(struct jrun *r, const struct jstr *format, struct jval values)
{
    struct percent p = {r, values, 0, format->markup};
    struct jsb b = JSB(r);
    for (size_t at = 0; at < format->len;) {
        const char *sign = memchr(format->data + at, '%', format->len - at);
        size_t stop = sign ? (size_t)(sign - format->data) : format->len;
        jsb_sub(&b, format, at, stop);
        at = sign ? put_percent(&p, &b, format, stop + 1) : stop;
    }
    /* what can be subscribed might be a mapping, so Python lets it be left over */
    bool maybe_mapping = values.kind == J_DICT || values.kind == J_LIST ||
                         values.kind == J_UNDEFINED || values.kind == J_RANGE;
    bool spare =
        values.kind == J_TUPLE ? p.n_used < values.list->n : p.n_used == 0 && !maybe_mapping;
    if (spare)
        jrun_fail(r, "not all arguments converted during string formatting");
    return jval_str(jstr_as_markup(r, jsb_done(&b), format->markup));
}
