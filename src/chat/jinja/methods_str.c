/* The methods of strings. */
#include "chat/jinja/strings.h"
#include "chat/jinja/unicode.h"

#include <string.h>

/* ---- case ---- */

JBUILTIN(str_upper, jval_str(juni_to_case(r, v.s, JCASE_UPPER)))
JBUILTIN(str_lower, jval_str(juni_to_case(r, v.s, JCASE_LOWER)))
JBUILTIN(str_casefold, jval_str(juni_to_case(r, v.s, JCASE_FOLD)))
JBUILTIN(str_capitalize, jval_str(jstr_capitalize(r, v.s)))

static const struct jstr *each_char(struct jrun *r, const struct jstr *s, bool swap)
{
    struct jsb b = JSB(r);
    bool in_word = false;
    for (size_t at = 0, next = 0; at < s->len; at = next) {
        uint32_t c = jstr_next(s, &next);
        enum jcase to = swap && juni_upper(c)    ? JCASE_LOWER
                        : swap && !juni_title(c) ? JCASE_UPPER
                        : !swap && in_word       ? JCASE_LOWER
                                                 : JCASE_TITLE;
        juni_put_case(&b, s, at, to);
        in_word = juni_cased(c);
    }
    return jstr_as_markup(r, jsb_done(&b), s->markup);
}

JBUILTIN(str_title, jval_str(each_char(r, v.s, false)))
JBUILTIN(str_swapcase, jval_str(each_char(r, v.s, true)))

/* ---- what a string consists of ---- */

static bool all_are(struct jrun *r, const struct jstr *s, bool (*is)(uint32_t c), bool when_empty)
{
    jrun_charge(r, s->len / 16);
    for (size_t at = 0; at < s->len;)
        if (!is(jstr_next(s, &at)))
            return false;
    return s->len > 0 || when_empty;
}

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

static bool is_identifier(struct jrun *r, const struct jstr *s)
{
    size_t at = 0;
    if (s->len == 0)
        return false;
    uint32_t c = jstr_next(s, &at);
    return (c == '_' || juni_alpha(c)) && all_are(r, s, juni_word, false);
}

/* Capitals only behind what has no case, small letters only behind what has. */
static bool is_title(struct jrun *r, const struct jstr *s)
{
    jrun_charge(r, s->len / 16);
    bool cased = false, some = false;
    for (size_t at = 0; at < s->len;) {
        uint32_t c = jstr_next(s, &at);
        bool upper = juni_upper(c) || juni_title(c), lower = juni_lower(c);
        if ((upper && cased) || (lower && !cased))
            return false;
        cased = upper || lower;
        some |= cased;
    }
    return some;
}

static struct jval is_case(struct jrun *r, struct jval v, const char *test)
{
    static const struct jargs none = {0};
    return jbuiltin_call(r, jtest_find(jstr_lit(r, test)), v, &none);
}

JBUILTIN(str_isupper, is_case(r, v, "upper"))
JBUILTIN(str_islower, is_case(r, v, "lower"))
JBUILTIN(str_isalpha, jval_bool(all_are(r, v.s, juni_alpha, false)))
JBUILTIN(str_isalnum, jval_bool(all_are(r, v.s, juni_alnum, false)))
JBUILTIN(str_isdigit, jval_bool(all_are(r, v.s, juni_digit, false)))
JBUILTIN(str_isdecimal, jval_bool(all_are(r, v.s, juni_decimal, false)))
JBUILTIN(str_isnumeric, jval_bool(all_are(r, v.s, juni_numeric, false)))
JBUILTIN(str_isspace, jval_bool(all_are(r, v.s, juni_space, false)))
JBUILTIN(str_isascii, jval_bool(all_are(r, v.s, is_ascii, true)))
JBUILTIN(str_isprintable, jval_bool(all_are(r, v.s, juni_printable, true)))
JBUILTIN(str_isidentifier, jval_bool(is_identifier(r, v.s)))
JBUILTIN(str_istitle, jval_bool(is_title(r, v.s)))

/* ---- ends ---- */

JBUILTIN(str_strip, jval_str(jstr_strip(r, v.s, jarg_chars(r, a[0]), true, true)))
JBUILTIN(str_lstrip, jval_str(jstr_strip(r, v.s, jarg_chars(r, a[0]), true, false)))
JBUILTIN(str_rstrip, jval_str(jstr_strip(r, v.s, jarg_chars(r, a[0]), false, true)))

/* Bytes of the characters that [from, to) names, as in a slice. False if there are none. */
static bool byte_range(struct jrun *r,
                       const struct jstr *s,
                       struct jval from,
                       struct jval to,
                       size_t *begin,
                       size_t *end)
{
    int64_t n = (int64_t)s->n_chars;
    int64_t i = from.kind == J_NONE ? 0 : jarg_int(r, from, 0);
    int64_t j = to.kind == J_NONE ? n : jarg_int(r, to, n);
    i = i < 0 ? (i < -n ? 0 : i + n) : i;
    j = j < 0 ? (j < -n ? 0 : j + n) : j > n ? n : j;
    if (i > j || i > n)
        return false;
    *begin = jstr_byte_at(r, s, (size_t)i);
    *end = jstr_byte_at(r, s, (size_t)j);
    return true;
}

static bool has_affix(struct jrun *r,
                      const struct jstr *s,
                      const struct jstr *x,
                      size_t begin,
                      size_t end,
                      bool at_end)
{
    jrun_charge(r, 1);
    if (x->len > end - begin)
        return false;
    jrun_charge(r, x->len / 64);
    return memcmp(s->data + (at_end ? end - x->len : begin), x->data, x->len) == 0;
}

/* startswith, endswith: one string or a tuple of them. */
static struct jval has_affixes(struct jrun *r, struct jval v, const struct jval *a, bool at_end)
{
    size_t begin = 0, end = 0;
    struct jval what = a[0];
    bool in_range = byte_range(r, v.s, a[1], a[2], &begin, &end);
    jval_expect_defined(r, what);
    if (what.kind != J_TUPLE && what.kind != J_STR)
        jrun_fail(r,
                  "%s first arg must be str or a tuple of str, not %s",
                  at_end ? "endswith" : "startswith",
                  jval_type(what));
    if (what.kind == J_STR)
        return jval_bool(in_range && has_affix(r, v.s, what.s, begin, end, at_end));
    for (size_t i = 0; i < what.list->n; i++)
        if (has_affix(r, v.s, jarg_str(r, what.list->items[i]), begin, end, at_end) && in_range)
            return jval_bool(true);
    return jval_bool(false);
}

JBUILTIN(str_startswith, has_affixes(r, v, a, false))
JBUILTIN(str_endswith, has_affixes(r, v, a, true))

static struct jval str_removeprefix(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jstr *x = jarg_str(r, a[0]);
    bool has = has_affix(r, v.s, x, 0, v.s->len, false);
    return jval_str(jstr_sub(r, v.s, has ? x->len : 0, v.s->len));
}

static struct jval str_removesuffix(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jstr *x = jarg_str(r, a[0]);
    bool has = has_affix(r, v.s, x, 0, v.s->len, true);
    return jval_str(jstr_sub(r, v.s, 0, v.s->len - (has ? x->len : 0)));
}

/* ---- finding ---- */

static int64_t find(struct jrun *r, struct jval v, const struct jval *a, bool last)
{
    size_t begin, end;
    const struct jstr *x = jarg_str(r, a[0]);
    if (!byte_range(r, v.s, a[1], a[2], &begin, &end))
        return -1;
    size_t at = last ? jstr_rfind(r, v.s, x, begin, end) : jstr_find(r, v.s, x, begin, end);
    if (at == SIZE_MAX)
        return -1;
    return v.s->n_chars == v.s->len ? (int64_t)at : (int64_t)jstr_count_chars(v.s->data, at);
}

static struct jval index_of(struct jrun *r, struct jval v, const struct jval *a, bool last)
{
    int64_t i = find(r, v, a, last);
    if (i < 0)
        jrun_fail(r, "substring not found");
    return jval_int(i);
}

JBUILTIN(str_find, jval_int(find(r, v, a, false)))
JBUILTIN(str_rfind, jval_int(find(r, v, a, true)))
JBUILTIN(str_index, index_of(r, v, a, false))
JBUILTIN(str_rindex, index_of(r, v, a, true))

static struct jval str_count(struct jrun *r, struct jval v, const struct jval *a)
{
    size_t begin, end;
    const struct jstr *x = jarg_str(r, a[0]);
    if (!byte_range(r, v.s, a[1], a[2], &begin, &end))
        return jval_int(0);
    jrun_charge(r, (end - begin) / 64);
    if (x->len == 0)
        return jval_int((int64_t)jstr_count_chars(v.s->data + begin, end - begin) + 1);
    int64_t n = 0;
    for (const char *p; end - begin >= x->len; begin = (size_t)(p - v.s->data) + x->len, n++) {
        p = memmem(v.s->data + begin, end - begin, x->data, x->len);
        if (!p)
            break;
    }
    return jval_int(n);
}

/* ---- splitting and joining ---- */

static struct jval split(struct jrun *r, struct jval v, const struct jval *a, bool from_right)
{
    return jstr_split(r, v.s, jarg_chars(r, a[0]), jarg_int(r, a[1], -1), from_right);
}

JBUILTIN(str_split, split(r, v, a, false))
JBUILTIN(str_rsplit, split(r, v, a, true))
JBUILTIN(str_splitlines, jstr_splitlines(r, v.s, jarg_bool(r, a[0], false)))

static struct jval partition(struct jrun *r, struct jval v, const struct jval *a, bool last)
{
    const struct jstr *sep = jarg_str(r, a[0]), *s = v.s;
    if (sep->len == 0)
        jrun_fail(r, "empty separator");
    size_t at = last ? jstr_rfind(r, s, sep, 0, s->len) : jstr_find(r, s, sep, 0, s->len);
    struct jval *parts = jrun_alloc_n(r, 3, sizeof *parts);
    struct jval none = jval_str(jstr_lit(r, ""));
    if (at == SIZE_MAX) {
        parts[0] = last ? none : v;
        parts[1] = none;
        parts[2] = last ? v : none;
    } else {
        parts[0] = jval_str(jstr_sub(r, s, 0, at));
        parts[1] = jval_str(jstr_sub(r, s, at, at + sep->len));
        parts[2] = jval_str(jstr_sub(r, s, at + sep->len, s->len));
    }
    return jval_tuple(r, parts, 3);
}

JBUILTIN(str_partition, partition(r, v, a, false))
JBUILTIN(str_rpartition, partition(r, v, a, true))

static struct jval str_join(struct jrun *r, struct jval v, const struct jval *a)
{
    struct jwalk w = jwalk_begin(r, a[0]);
    struct jsb b = JSB(r);
    size_t i = 0;
    for (struct jval item; jwalk_next(r, &w, &item); i++) {
        if (item.kind != J_STR)
            jrun_fail(r, "sequence item %zu: expected str instance, %s found", i, jval_type(item));
        if (i > 0)
            jsb_str(&b, v.s);
        jsb_str(&b, v.s->markup ? jstr_escape(r, item.s) : item.s);
    }
    return jval_str(jstr_as_markup(r, jsb_done(&b), v.s->markup));
}

JBUILTIN(
    str_replace,
    jval_str(jstr_replace(r, v.s, jarg_str(r, a[0]), jarg_str(r, a[1]), jarg_int(r, a[2], -1))))

/* ---- padding ---- */

static const struct jstr *fill_char(struct jrun *r, struct jval v)
{
    if (v.kind == J_MISSING)
        return jstr_lit(r, " ");
    const struct jstr *s = jarg_str(r, v);
    if (s->n_chars != 1)
        jrun_fail(r, "The fill character must be exactly one character long");
    return s;
}

static struct jval pad(struct jrun *r, struct jval v, const struct jval *a, char align)
{
    return jval_str(jstr_pad(r, v.s, jarg_int(r, a[0], 0), fill_char(r, a[1]), align));
}

JBUILTIN(str_ljust, pad(r, v, a, '<'))
JBUILTIN(str_rjust, pad(r, v, a, '>'))
JBUILTIN(str_center, pad(r, v, a, '^'))

static struct jval str_zfill(struct jrun *r, struct jval v, const struct jval *a)
{
    int64_t width = jarg_int(r, a[0], 0);
    width = width < 0 ? 0 : width;
    bool sign = v.s->len > 0 && (v.s->data[0] == '-' || v.s->data[0] == '+');
    struct jsb b = JSB(r);
    jsb_sub(&b, v.s, 0, sign);
    jsb_str(&b, jstr_pad(r, jstr_sub(r, v.s, sign, v.s->len), width - sign, jstr_lit(r, "0"), '>'));
    return jval_str(jsb_done(&b));
}

static struct jval str_expandtabs(struct jrun *r, struct jval v, const struct jval *a)
{
    int64_t size = jarg_int(r, a[0], 8), column = 0;
    struct jsb b = JSB(r);
    for (size_t at = 0, next = 0; at < v.s->len; at = next) {
        uint32_t c = jstr_next(v.s, &next);
        if (c != '\t') {
            jsb_sub(&b, v.s, at, next);
            column = c == '\n' || c == '\r' ? 0 : column + 1;
        } else if (size > 0) {
            int64_t n = size - column % size;
            jsb_repeat(&b, jstr_new(r, " ", 1, jstr_trusted_at(v.s, at)), (size_t)n);
            column += n;
        }
    }
    return jval_str(jsb_done(&b));
}

static struct jval str_format(struct jrun *r, struct jval v, const struct jargs *args)
{
    return jval_format(r, v.s, args);
}

static struct jval str_format_map(struct jrun *r, struct jval v, const struct jval *a)
{
    if (a[0].kind != J_DICT)
        jrun_fail(r, "format_map() takes a mapping");
    const struct jdict *d = a[0].dict;
    struct jkeyword *keywords = jrun_alloc_n(r, d->n, sizeof *keywords);
    struct jargs args = {.keywords = keywords};
    for (size_t i = 0; i < d->n; i++)
        if (d->pairs[i].key.kind == J_STR)
            keywords[args.n_keywords++] = (struct jkeyword){d->pairs[i].key.s, d->pairs[i].value};
    return jval_format(r, v.s, &args);
}

static struct jval str_unsupported(struct jrun *r, struct jval v, const struct jargs *args)
{
    (void)v;
    (void)args;
    jrun_fail(r, "encode, maketrans and translate of strings are not supported");
}

const struct jbuiltin jmethods_str[] = {
    {"upper", "", 0, str_upper, NULL},
    {"lower", "", 0, str_lower, NULL},
    {"casefold", "", 0, str_casefold, NULL},
    {"capitalize", "", 0, str_capitalize, NULL},
    {"title", "", 0, str_title, NULL},
    {"swapcase", "", 0, str_swapcase, NULL},
    {"isupper", "", 0, str_isupper, NULL},
    {"islower", "", 0, str_islower, NULL},
    {"isalpha", "", 0, str_isalpha, NULL},
    {"isalnum", "", 0, str_isalnum, NULL},
    {"isdigit", "", 0, str_isdigit, NULL},
    {"isdecimal", "", 0, str_isdecimal, NULL},
    {"isnumeric", "", 0, str_isnumeric, NULL},
    {"isspace", "", 0, str_isspace, NULL},
    {"isascii", "", 0, str_isascii, NULL},
    {"isprintable", "", 0, str_isprintable, NULL},
    {"isidentifier", "", 0, str_isidentifier, NULL},
    {"istitle", "", 0, str_istitle, NULL},
    {"strip", "/chars", 0, str_strip, NULL},
    {"lstrip", "/chars", 0, str_lstrip, NULL},
    {"rstrip", "/chars", 0, str_rstrip, NULL},
    {"startswith", "/prefix start end", 1, str_startswith, NULL},
    {"endswith", "/suffix start end", 1, str_endswith, NULL},
    {"removeprefix", "/prefix", 1, str_removeprefix, NULL},
    {"removesuffix", "/suffix", 1, str_removesuffix, NULL},
    {"find", "/sub start end", 1, str_find, NULL},
    {"rfind", "/sub start end", 1, str_rfind, NULL},
    {"index", "/sub start end", 1, str_index, NULL},
    {"rindex", "/sub start end", 1, str_rindex, NULL},
    {"count", "/sub start end", 1, str_count, NULL},
    {"split", "sep maxsplit", 0, str_split, NULL},
    {"rsplit", "sep maxsplit", 0, str_rsplit, NULL},
    {"splitlines", "keepends", 0, str_splitlines, NULL},
    {"partition", "/sep", 1, str_partition, NULL},
    {"rpartition", "/sep", 1, str_rpartition, NULL},
    {"join", "/iterable", 1, str_join, NULL},
    {"replace", "/old new count", 2, str_replace, NULL},
    {"ljust", "/width fill", 1, str_ljust, NULL},
    {"rjust", "/width fill", 1, str_rjust, NULL},
    {"center", "/width fill", 1, str_center, NULL},
    {"zfill", "/width", 1, str_zfill, NULL},
    {"expandtabs", "tabsize", 0, str_expandtabs, NULL},
    {"format", "", 0, NULL, str_format},
    {"format_map", "/mapping", 1, str_format_map, NULL},
    {"encode", "", 0, NULL, str_unsupported},
    {"maketrans", "", 0, NULL, str_unsupported},
    {"translate", "", 0, NULL, str_unsupported},
    {NULL, NULL, 0, NULL, NULL},
};
