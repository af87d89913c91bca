/* Filters on text. */
#include "chat/jinja/strings.h"
#include "chat/jinja/unicode.h"

#include <stdio.h>
#include <string.h>

JBUILTIN(filter_upper, jval_str(juni_to_case(r, jval_to_str(r, v), JCASE_UPPER)))
JBUILTIN(filter_lower, jval_str(juni_to_case(r, jval_to_str(r, v), JCASE_LOWER)))
JBUILTIN(filter_capitalize, jval_str(jstr_capitalize(r, jval_to_str(r, v))))

static bool begins_word(uint32_t c)
{
    return c == '-' || juni_space(c) || c == '(' || c == '{' || c == '[' || c == '<';
}

static size_t word_end(const struct jstr *s, size_t at)
{
    for (size_t next = at; at < s->len; at = next)
        if (begins_word(jstr_next(s, &next)))
            break;
    return at;
}

/* Words begin after white space, dashes and brackets. The rest of one is put in lower case as if it
 * stood alone. */
static struct jval filter_title(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    const struct jstr *s = jval_to_str(r, v);
    struct jsb b = JSB(r);
    for (size_t at = 0, next = 0; at < s->len; at = next) {
        bool word = !begins_word(jstr_next(s, &next));
        size_t end = word ? word_end(s, next) : next;
        juni_put_case(&b, s, at, JCASE_UPPER);
        jsb_str(&b, juni_to_case(r, jstr_sub(r, s, next, end), JCASE_LOWER));
        next = end;
    }
    return jval_str(jstr_as_markup(r, jsb_done(&b), s->markup));
}

JBUILTIN(filter_trim, jval_str(jstr_strip(r, jval_to_str(r, v), jarg_chars(r, a[0]), true, true)))

static struct jval filter_replace(struct jrun *r, struct jval v, const struct jval *a)
{
    int64_t count = a[2].kind == J_NONE ? -1 : jarg_int(r, a[2], -1);
    return jval_str(jstr_as_markup(
        r,
        jstr_replace(r, jval_to_str(r, v), jval_to_str(r, a[0]), jval_to_str(r, a[1]), count),
        false));
}

/* ---- lines ---- */

static struct jval filter_indent(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jstr *s = jarg_str(r, v), *width;
    bool first = jarg_bool(r, a[1], false), blank = jarg_bool(r, a[2], false);
    struct jsb b = JSB(r);
    width = a[0].kind == J_STR ? a[0].s : jstr_spaces(r, jarg_int(r, a[0], 4));
    struct jsb with_newline = JSB(r); /* the filter adds one, so that the last line is kept */
    jsb_str(&with_newline, s);
    jsb_lit(&with_newline, "\n");
    const struct jlist *lines = jstr_splitlines(r, jsb_done(&with_newline), false).list;
    if (first)
        jsb_str(&b, width);
    for (size_t i = 0; i < lines->n; i++) {
        if (i > 0)
            jsb_lit(&b, "\n");
        if (i > 0 && (blank || lines->items[i].s->len > 0))
            jsb_str(&b, width);
        jsb_str(&b, lines->items[i].s);
    }
    return jval_str(jstr_as_markup(r, jsb_done(&b), s->markup));
}

JBUILTIN(filter_center,
         jval_str(jstr_pad(r, jval_to_str(r, v), jarg_int(r, a[0], 80), jstr_lit(r, " "), '^')))

static struct jval filter_truncate(struct jrun *r, struct jval v, const struct jval *a)
{
    if (jval_len(v) < 0)
        jrun_fail(r, "object of type '%s' has no len()", jval_type(v));
    int64_t length = jarg_int(r, a[0], 255);
    int64_t leeway = a[3].kind == J_NONE ? 5 : jarg_int(r, a[3], 5);
    const struct jstr *end = a[2].kind == J_MISSING ? jstr_lit(r, "...") : jarg_str(r, a[2]);
    int64_t n_end = (int64_t)end->n_chars;
    if (length < n_end || leeway < 0)
        jrun_fail(r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway > INT64_MAX - length || jval_len(v) <= length + leeway)
        return v;
    const struct jstr *s = jarg_str(r, v);
    size_t cut = jstr_byte_at(r, s, (size_t)(length - n_end));
    if (!jarg_bool(r, a[1], false)) {
        size_t space = jstr_rfind(r, s, jstr_lit(r, " "), 0, cut);
        cut = space == SIZE_MAX ? cut : space;
    }
    return jval_add(r, jval_str(jstr_sub(r, s, 0, cut)), jval_str(end));
}

static struct jval filter_wordcount(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    const struct jstr *s = jval_to_str(r, v);
    int64_t n = 0;
    bool inside = false;
    jrun_charge(r, s->len / 16);
    for (size_t at = 0; at < s->len;) {
        bool word = juni_word(jstr_next(s, &at));
        n += word && !inside;
        inside = word;
    }
    return jval_int(n);
}

static struct jval filter_wordwrap(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jstr *s = jarg_str(r, v);
    const struct jstr *glue = jarg_given(a[2]) ? jarg_str(r, a[2]) : jstr_lit(r, "\n");
    const struct jlist *lines = jstr_splitlines(r, s, false).list;
    int64_t width = jarg_int(r, a[0], 79);
    bool break_words = jarg_bool(r, a[1], true), hyphens = jarg_bool(r, a[3], true);
    struct jsb b = JSB(r);
    if (width <= 0)
        jrun_fail(r, "invalid width %lld (must be > 0)", (long long)width);
    for (size_t i = 0; i < lines->n; i++) {
        if (i > 0)
            jsb_str(&b, glue);
        jstr_wrap(&b, lines->items[i].s, (size_t)width, break_words, hyphens, glue);
    }
    return jval_str(jsb_done(&b));
}

/* ---- HTML and URLs ---- */

const struct jstr *jstr_escape(struct jrun *r, const struct jstr *s)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (s->markup)
        return s;
    struct jsb b = JSB(r);
    size_t begin = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char *at = s->data[i] ? strchr(from, s->data[i]) : NULL;
        if (!at)
            continue;
        jsb_sub(&b, s, begin, i);
        const char *entity = to[at - from];
        jsb_add(&b, entity, strlen(entity), jstr_trusted_at(s, i));
        begin = i + 1;
    }
    jsb_sub(&b, s, begin, s->len);
    return jstr_as_markup(r, jsb_done(&b), true);
}

JBUILTIN(filter_escape, jval_str(jstr_escape(r, jval_to_str(r, v))))
JBUILTIN(filter_forceescape, jval_str(jstr_escape(r, jstr_as_markup(r, jval_to_str(r, v), false))))
JBUILTIN(filter_safe, jval_str(jstr_as_markup(r, jval_to_str(r, v), true)))
JBUILTIN(filter_string, jval_str(jval_to_str(r, v)))

/* The character that &name; or &#n; at `at` stands for, 0 if it is none; *end is behind it. */
static uint32_t entity_at(const struct jstr *s, size_t at, size_t *end)
{
    static const struct {
        const char *name;
        uint32_t c;
    } known[] = {{"&amp;", '&'},
                 {"&lt;", '<'},
                 {"&gt;", '>'},
                 {"&quot;", '"'},
                 {"&apos;", '\''},
                 {"&nbsp;", 0xA0}};
    uint32_t c = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t n = strlen(known[i].name);
        if (s->len - at >= n && memcmp(s->data + at, known[i].name, n) == 0) {
            *end = at + n;
            return known[i].c;
        }
    }
    if (s->len - at < 4 || s->data[at + 1] != '#')
        return 0;
    bool hex = (s->data[at + 2] | 32) == 'x';
    size_t i = at + 2 + hex;
    for (; i < s->len && c < 0x110000; i++) {
        char d = (char)(s->data[i] | 32);
        if (d >= '0' && d <= '9')
            c = c * (hex ? 16 : 10) + (uint32_t)(d - '0');
        else if (hex && d >= 'a' && d <= 'f')
            c = c * 16 + (uint32_t)(d - 'a' + 10);
        else
            break;
    }
    if (i >= s->len || s->data[i] != ';' || c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return 0;
    *end = i + 1;
    return c;
}

/* Comments and tags go, runs of white space become one space, entities their characters. */
static struct jval filter_striptags(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    const struct jstr *s = jval_to_str(r, v);
    struct jsb b = JSB(r);
    bool open[2] = {false, false}; /* a tag, a comment was begun that never ends: so is each more */
    for (size_t at = 0; at < s->len;) {
        bool comment = s->len - at >= 4 && memcmp(s->data + at, "<!--", 4) == 0;
        const char *close = open[comment]        ? NULL
                            : comment            ? memmem(s->data + at, s->len - at, "-->", 3)
                            : s->data[at] == '<' ? memchr(s->data + at, '>', s->len - at)
                                                 : NULL;
        open[comment] |= s->data[at] == '<' && !close;
        if (close) {
            at = (size_t)(close - s->data) + (comment ? 3 : 1);
            continue;
        }
        size_t next = at;
        jstr_next(s, &next);
        jsb_sub(&b, s, at, next);
        at = next;
    }
    const struct jlist *words = jstr_split(r, jsb_done(&b), NULL, -1, false).list;
    struct jsb joined = JSB(r), out = JSB(r);
    for (size_t i = 0; i < words->n; i++) {
        if (i > 0)
            jsb_lit(&joined, " ");
        jsb_str(&joined, words->items[i].s);
    }
    const struct jstr *text = jsb_done(&joined);
    for (size_t at = 0, end = 0; at < text->len; at = end) {
        uint32_t c = text->data[at] == '&' ? entity_at(text, at, &end) : 0;
        if (c) {
            jsb_char(&out, c, jstr_trusted(jstr_sub(r, text, at, end)));
        } else {
            end = at;
            jstr_next(text, &end);
            jsb_sub(&out, text, at, end);
        }
    }
    return jval_str(jsb_done(&out));
}

/* Any byte outside of the unreserved ones as %XX; '/' stays in paths, a space is '+' in queries. */
static void put_quoted(struct jsb *b, const struct jstr *s, bool query)
{
    static const char kept[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~";
    for (size_t i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->data[i];
        char out[4];
        bool plain = (c && strchr(kept, c)) || (c == '/' && !query);
        int n = plain || (query && c == ' ') ? 1 : 3;
        if (n == 1)
            out[0] = c == ' ' ? '+' : (char)c;
        else
            snprintf(out, sizeof out, "%%%02X", c);
        jsb_add(b, out, (size_t)n, jstr_trusted_at(s, i));
    }
}

static struct jval filter_urlencode(struct jrun *r, struct jval v, const struct jval *a)
{
    (void)a;
    struct jsb b = JSB(r);
    if (v.kind == J_STR || !jval_iterable(v)) {
        put_quoted(&b, jval_to_str(r, v), false);
        return jval_str(jsb_done(&b));
    }
    struct jview view = {v.kind == J_DICT ? v.dict : NULL, VIEW_ITEMS};
    if (v.kind == J_DICT)
        v = (struct jval){.kind = J_VIEW, .view = &view};
    struct jwalk w = jwalk_begin(r, v);
    bool first = true;
    for (struct jval pair; jwalk_next(r, &w, &pair); first = false) {
        const struct jlist *two = jval_items(r, pair);
        if (two->n != 2)
            jrun_fail(r, "urlencode takes pairs");
        if (!first)
            jsb_lit(&b, "&");
        put_quoted(&b, jval_to_str(r, two->items[0]), true);
        jsb_lit(&b, "=");
        put_quoted(&b, jval_to_str(r, two->items[1]), true);
    }
    return jval_str(jsb_done(&b));
}

static struct jval filter_xmlattr(struct jrun *r, struct jval v, const struct jval *a)
{
    struct jsb b = JSB(r);
    if (v.kind != J_DICT)
        jrun_fail(r, "'%s' object has no attribute 'items'", jval_type(v));
    for (size_t i = 0; i < v.dict->n; i++) {
        struct jval value = v.dict->pairs[i].value;
        if (value.kind == J_NONE || value.kind == J_UNDEFINED)
            continue;
        const struct jstr *key = jarg_str(r, v.dict->pairs[i].key);
        for (size_t at = 0; at < key->len; at++)
            if (strchr(" \t\n\r\f\v/>=", key->data[at]) && key->data[at])
                jrun_fail(r, "Invalid character in attribute name");
        if (b.len > 0 || jarg_bool(r, a[0], true))
            jsb_lit(&b, " ");
        jsb_str(&b, jstr_escape(r, key));
        jsb_lit(&b, "=\"");
        jsb_str(&b, jstr_escape(r, jval_to_str(r, value)));
        jsb_lit(&b, "\"");
    }
    return jval_str(jsb_done(&b));
}

static struct jval filter_format(struct jrun *r, struct jval v, const struct jargs *args)
{
    const struct jstr *format = jval_to_str(r, v);
    if (args->n > 0 && args->n_keywords > 0)
        jrun_fail(r, "can't handle positional and keyword arguments at the same time");
    if (args->n_keywords == 0)
        return jval_percent(r, format, jval_tuple_of(r, args->items, args->n));
    struct jdict *d = jdict_new(r);
    for (size_t i = 0; i < args->n_keywords; i++)
        jdict_set(r, d, jval_str(args->keywords[i].name), args->keywords[i].value);
    return jval_percent(r, format, jval_dict(d));
}

const struct jbuiltin jfilters_text[] = {
    {"upper", "", 0, filter_upper, NULL},
    {"lower", "", 0, filter_lower, NULL},
    {"capitalize", "", 0, filter_capitalize, NULL},
    {"title", "", 0, filter_title, NULL},
    {"trim", "chars", 0, filter_trim, NULL},
    {"replace", "old new count", 2, filter_replace, NULL},
    {"indent", "width first blank", 0, filter_indent, NULL},
    {"center", "width", 0, filter_center, NULL},
    {"truncate", "length killwords end leeway", 0, filter_truncate, NULL},
    {"wordcount", "", 0, filter_wordcount, NULL},
    {"wordwrap", "width break_long_words wrapstring break_on_hyphens", 0, filter_wordwrap, NULL},
    {"escape", "", 0, filter_escape, NULL},
    {"e", "", 0, filter_escape, NULL},
    {"forceescape", "", 0, filter_forceescape, NULL},
    {"safe", "", 0, filter_safe, NULL},
    {"string", "", 0, filter_string, NULL},
    {"striptags", "", 0, filter_striptags, NULL},
    {"urlencode", "", 0, filter_urlencode, NULL},
    {"urlize", "trim_url_limit nofollow target rel extra_schemes", 0, jstr_urlize, NULL},
    {"xmlattr", "autospace", 0, filter_xmlattr, NULL},
    {"format", "", 0, NULL, filter_format},
    {NULL, NULL, 0, NULL, NULL},
};
