/* The filter urlize: words that look like addresses become links, by the rules that Jinja2 has in
 * two regular expressions. A word is split into punctuation before it, the address and punctuation
 * behind it; brackets that the address opens are given back to it. */
#include "chat/jinja/strings.h"
#include "chat/jinja/unicode.h"

#include <string.h>

/* Bytes begin..end of s. */
struct span {
    const struct jstr *s;
    size_t begin, end;
};

static bool begins_with(struct span w, const char *literal)
{
    const size_t n = strlen(literal);
    return w.end - w.begin >= n && memcmp(w.s->data + w.begin, literal, n) == 0;
}

static bool ends_with(struct span w, const char *literal)
{
    const size_t n = strlen(literal);
    return w.end - w.begin >= n && memcmp(w.s->data + w.end - n, literal, n) == 0;
}

static bool has(struct span w, char c)
{
    return memchr(w.s->data + w.begin, c, w.end - w.begin) != NULL;
}

static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

static int64_t count(struct span w, const char *literal)
{
    const size_t len = strlen(literal);
    int64_t n = 0;
    for (const char *at; (at = memmem(w.s->data + w.begin, w.end - w.begin, literal, len)); n++)
        w.begin = (size_t)(at - w.s->data) + len;
    return n;
}

/* A letter of [a-z] whatever its case, lower; 0: none. Four more fold to one. */
static char letter(uint32_t c)
{
    if (c == 0x130 || c == 0x131)
        return 'i';
    if (c == 0x17f)
        return 's';
    if (c == 0x212a)
        return 'k';
    return (c | 32) >= 'a' && (c | 32) <= 'z' && c < 128 ? (char)(c | 32) : '\0';
}

/* `literal`, in lower case, at the beginning, whatever the case there; moves on behind it. */
static bool skip(struct span *w, const char *literal)
{
    size_t at = w->begin;
    for (; *literal; literal++) {
        if (at == w->end)
            return false;
        const uint32_t c = jstr_next(w->s, &at);
        if (letter(c) ? letter(c) != *literal : c != (unsigned char)*literal)
            return false;
    }
    w->begin = at;
    return true;
}

static bool skip_scheme(struct span *w)
{
    return skip(w, "https://") || skip(w, "http://");
}

/* How many characters, if all are of a label of a name: \w, '%' or, with `hyphens`, '-'; else 0. */
static size_t label_chars(struct span w, bool hyphens)
{
    size_t n = 0;
    for (size_t at = w.begin; at < w.end; n++) {
        const uint32_t c = jstr_next(w.s, &at);
        if (!juni_word(c) && c != '%' && !(hyphens && c == '-'))
            return 0;
    }
    return n;
}

/* The last label of a name cut off it; *rest is what stands before, its last dot included. */
static struct span cut_label(struct span name, struct span *rest)
{
    const char *dot = memrchr(name.s->data + name.begin, '.', name.end - name.begin);
    *rest = name;
    rest->end = dot ? (size_t)(dot - name.s->data) + 1 : name.begin;
    name.begin = rest->end;
    return name;
}

/* Labels of least..most characters, each with a dot behind it. */
static bool are_labels(struct span w, size_t least, size_t most)
{
    while (w.begin < w.end) {
        struct span label = w;
        const char *dot = memchr(w.s->data + w.begin, '.', w.end - w.begin);
        if (!dot)
            return false;
        label.end = (size_t)(dot - w.s->data);
        const size_t n = label_chars(label, true);
        if (n < least || n > most)
            return false;
        w.begin = label.end + 1;
    }
    return true;
}

/* [a-z]{2,63} or xn--[\w%]{2,59} */
static bool is_top(struct span w)
{
    struct span rest = w;
    size_t n = 0;
    if (skip(&rest, "xn--") && (n = label_chars(rest, false)) >= 2 && n <= 59)
        return true;
    n = 0;
    for (size_t at = w.begin; at < w.end; n++)
        if (!letter(jstr_next(w.s, &at)))
            return false;
    return n >= 2 && n <= 63;
}

static bool is_basic_top(struct span w)
{
    static const char *const tops[] = {"com", "net", "int", "edu", "gov", "org", "info", "mil"};
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++) {
        struct span rest = w;
        if (skip(&rest, tops[i]) && rest.begin == rest.end)
            return true;
    }
    return false;
}

/* Decimals from w->begin on, at most `most`; moves behind them. */
static size_t skip_digits(struct span *w, size_t most)
{
    size_t n = 0;
    for (size_t at = w->begin; n < most && at < w->end; n++) {
        if (!juni_decimal(jstr_next(w->s, &at)))
            break;
        w->begin = at;
    }
    return n;
}

static bool is_ipv4(struct span w)
{
    for (int i = 0; i < 4; i++) {
        if (i > 0 && !skip(&w, "."))
            return false;
        if (skip_digits(&w, 3) == 0)
            return false;
    }
    return w.begin == w.end;
}

/* At most four hexadecimal digits. */
static void skip_hex(struct span *w)
{
    size_t at = w->begin;
    for (int n = 0; n < 4 && at < w->end; n++) {
        const uint32_t c = jstr_next(w->s, &at);
        if (!juni_decimal(c) && !(letter(c) && letter(c) <= 'f'))
            break;
        w->begin = at;
    }
}

/* \[([\da-f]{0,4}:){2}([\da-f]{0,4}:?){1,6}] at the beginning; moves behind it. */
static bool skip_ipv6(struct span *w)
{
    if (!skip(w, "["))
        return false;
    for (int i = 0; i < 2; i++) {
        skip_hex(w);
        if (!skip(w, ":"))
            return false;
    }
    for (int i = 0; i < 6; i++) {
        skip_hex(w);
        (void)skip(w, ":");
    }
    return skip(w, "]");
}

/* What may follow a host: a port, and a path, query or fragment. */
static bool is_behind_host(struct span w)
{
    if (w.begin < w.end && w.s->data[w.begin] == ':') {
        w.begin++;
        if (skip_digits(&w, 5) == 0)
            return false;
    }
    return w.begin == w.end || is_one_of(w.s->data[w.begin], "/?#");
}

static bool is_web(struct span w)
{
    struct span host = w, behind = w, rest = w;
    const bool scheme = skip_scheme(&host);
    if (scheme) {
        struct span v6 = host;
        if (skip_ipv6(&v6) && is_behind_host(v6))
            return true;
    }
    host.end = host.begin;
    while (host.end < w.end && !is_one_of(w.s->data[host.end], ":/?#"))
        host.end++;
    behind.begin = host.end;
    if (!is_behind_host(behind))
        return false;
    struct span named = host;
    if (scheme || skip(&named, "www.")) {
        const struct span top = cut_label(named, &rest);
        if (is_top(top) && are_labels(rest, 1, SIZE_MAX))
            return true;
    }
    if (scheme)
        return is_ipv4(host);
    const struct span top = cut_label(host, &rest);
    return is_basic_top(top) && rest.begin < rest.end && are_labels(rest, 2, 63);
}

/* \S+@\w[\w.-]*\.\w+ */
static bool is_mail(struct span w)
{
    const char *sign = memrchr(w.s->data + w.begin, '@', w.end - w.begin);
    if (!sign || sign == w.s->data + w.begin)
        return false;
    size_t n = 0, after_dot = 0;
    bool dot = false;
    for (size_t at = (size_t)(sign - w.s->data) + 1; at < w.end; n++) {
        const uint32_t c = jstr_next(w.s, &at);
        if (!juni_word(c) && (n == 0 || (c != '.' && c != '-')))
            return false;
        dot |= c == '.';
        after_dot = c == '.' ? 0 : c == '-' ? SIZE_MAX / 2 : after_dot + 1;
    }
    return dot && after_dot > 0 && after_dot < SIZE_MAX / 2;
}

/* ---- links ---- */

struct link_style {
    struct jrun *r;
    struct jsb *out;
    bool trims;
    int64_t limit;          /* of characters shown */
    const struct jstr *rel; /* escaped, or NULL */
    const struct jstr *target;
    struct jval schemes; /* a list, or missing */
};

static void put_attr(struct jsb *b, const char *name, const struct jstr *value)
{
    if (!value || value->len == 0)
        return;
    jsb_lit(b, name);
    jsb_str(b, value);
    jsb_lit(b, "\"");
}

/* <a href="PREFIX ADDRESS" ...>SHOWN</a> */
static void put_link(
    const struct link_style *l, const char *prefix, struct span w, struct span shown, bool web)
{
    jsb_lit(l->out, "<a href=\"");
    jsb_lit(l->out, prefix);
    jsb_sub(l->out, w.s, w.begin, w.end);
    jsb_lit(l->out, "\"");
    if (web) {
        put_attr(l->out, " rel=\"", l->rel);
        put_attr(l->out, " target=\"", l->target);
    }
    jsb_lit(l->out, ">");
    const struct jstr *text = jstr_sub(l->r, shown.s, shown.begin, shown.end);
    if (web && l->trims && (int64_t)text->n_chars > l->limit) {
        const int64_t n = l->limit < 0 ? l->limit + (int64_t)text->n_chars : l->limit;
        jsb_sub(l->out, text, 0, jstr_byte_at(l->r, text, n > 0 ? (size_t)n : 0));
        jsb_lit(l->out, "...");
    } else {
        jsb_str(l->out, text);
    }
    jsb_lit(l->out, "</a>");
}

static bool has_scheme(const struct link_style *l, struct span w)
{
    if (l->schemes.kind == J_MISSING)
        return false;
    jrun_charge(l->r, l->schemes.list->n * (1 + (w.end - w.begin) / 64));
    for (size_t i = 0; i < l->schemes.list->n; i++) {
        const struct jstr *s = l->schemes.list->items[i].s;
        if (w.end - w.begin > s->len && memcmp(w.s->data + w.begin, s->data, s->len) == 0)
            return true;
    }
    return false;
}

static void put_address(const struct link_style *l, struct span w)
{
    struct span address = w;
    if (is_web(w)) {
        const bool whole = begins_with(w, "https://") || begins_with(w, "http://");
        put_link(l, whole ? "" : "https://", w, w, true);
        return;
    }
    address.begin += begins_with(w, "mailto:") ? strlen("mailto:") : 0;
    if (address.begin > w.begin && is_mail(address)) {
        put_link(l, "", w, address, false);
    } else if (!begins_with(w, "www.") && !begins_with(w, "@") && !has(w, ':') && is_mail(w)) {
        put_link(l, "mailto:", w, w, false);
    } else if (has_scheme(l, w)) {
        struct link_style plain = *l;
        plain.trims = false;
        put_link(&plain, "", w, w, true);
    } else {
        jsb_sub(l->out, w.s, w.begin, w.end);
    }
}

static void put_word(const struct link_style *l, struct span word)
{
    static const char *const pairs[][2] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
    struct span middle = word, tail;
    for (bool more = true; more;) {
        const size_t n = begins_with(middle, "&lt;")                            ? 4
                         : begins_with(middle, "(") || begins_with(middle, "<") ? 1
                                                                                : 0;
        middle.begin += n;
        more = n > 0;
    }
    for (bool more = true; more;) {
        const bool one = ends_with(middle, ")") || ends_with(middle, ">") ||
                         ends_with(middle, ".") || ends_with(middle, ",");
        const size_t n = ends_with(middle, "&gt;") ? 4 : one;
        middle.end -= n;
        more = n > 0;
    }
    tail = (struct span){word.s, middle.end, word.end};
    for (size_t i = 0; i < 3; i++) {
        const int64_t opened = count(middle, pairs[i][0]), closed = count(tail, pairs[i][1]);
        if (opened <= count(middle, pairs[i][1]))
            continue;
        const size_t len = strlen(pairs[i][1]);
        for (int64_t k = 0; k < opened && k < closed; k++) {
            const char *at =
                memmem(tail.s->data + tail.begin, tail.end - tail.begin, pairs[i][1], len);
            tail.begin = (size_t)(at - tail.s->data) + len;
        }
        middle.end = tail.begin;
    }
    jsb_sub(l->out, word.s, word.begin, middle.begin);
    put_address(l, middle);
    jsb_sub(l->out, word.s, tail.begin, tail.end);
}

/* ---- arguments ---- */

/* The words of rel, with noopener and maybe nofollow, sorted, each once. */
static const struct jstr *rel_of(struct jrun *r, struct jval rel, bool nofollow)
{
    struct jsb b = JSB(r);
    if (jarg_given(rel))
        jsb_str(&b, jarg_str(r, rel));
    jsb_lit(&b, nofollow ? " noopener nofollow" : " noopener");
    const struct jlist *words = jstr_split(r, jsb_done(&b), NULL, -1, false).list;
    struct jsb out = JSB(r);
    const struct jstr *last = NULL;
    jrun_charge(r, words->n * words->n / 16);
    for (;;) { /* the smallest that is larger than the last */
        const struct jstr *next = NULL;
        for (size_t i = 0; i < words->n; i++) {
            const struct jstr *s = words->items[i].s;
            if ((!last || jstr_cmp(s, last) > 0) && (!next || jstr_cmp(s, next) < 0))
                next = s;
        }
        if (!next)
            return jstr_escape(r, jsb_done(&out));
        if (last)
            jsb_lit(&out, " ");
        jsb_str(&out, next);
        last = next;
    }
}

/* [\w.+-]{2,}:(/){0,2} */
static bool is_scheme(const struct jstr *s)
{
    struct span w = {s, 0, s->len};
    size_t n = 0;
    for (int i = 0; i < 2 && ends_with(w, "/"); i++)
        w.end--;
    if (!ends_with(w, ":"))
        return false;
    w.end--;
    for (size_t at = 0; at < w.end; n++) {
        const uint32_t c = jstr_next(s, &at);
        if (!juni_word(c) && c != '.' && c != '+' && c != '-')
            return false;
    }
    return n >= 2;
}

static struct jval schemes_of(struct jrun *r, struct jval v)
{
    if (!jarg_given(v))
        return (struct jval){.kind = J_MISSING};
    const struct jlist *list = jval_items(r, v);
    for (size_t i = 0; i < list->n; i++) {
        const struct jstr *s = jarg_str(r, list->items[i]);
        if (!is_scheme(s))
            jrun_fail(r, "'%.*s' is not a valid URI scheme prefix.", JSTR_UP_TO(80, s));
    }
    return jval_list(r, list->items, list->n);
}

struct jval jstr_urlize(struct jrun *r, struct jval v, const struct jval *a)
{
    const struct jstr *text = jval_to_str(r, v);
    struct jsb out = JSB(r);
    struct link_style l = {.r = r, .out = &out};
    text = text->markup ? jstr_as_markup(r, text, false) : jstr_escape(r, text);
    l.trims = jarg_given(a[0]);
    l.limit = l.trims ? jarg_int(r, a[0], 0) : 0;
    l.rel = rel_of(r, a[3], jarg_bool(r, a[1], false));
    if (jarg_given(a[2]))
        l.target = jstr_escape(r, jarg_str(r, a[2]));
    l.schemes = schemes_of(r, a[4]);
    jrun_charge(r, text->len / 8);
    for (size_t at = 0; at < text->len;) {
        struct span word = {text, at, juni_skip(text, at, false)};
        put_word(&l, word);
        at = juni_skip(text, word.end, true);
        jsb_sub(&out, text, word.end, at);
    }
    return jval_str(jstr_as_markup(r, jsb_done(&out), r->autoescape));
}
