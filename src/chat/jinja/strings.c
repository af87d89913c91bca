#include "chat/jinja/strings.h"

#include "chat/jinja/unicode.h"

#include <string.h>

const struct jstr *jarg_chars(struct jrun *r, struct jval v)
{
    return jarg_given(v) ? jarg_str(r, v) : NULL;
}

const struct jstr *jstr_capitalize(struct jrun *r, const struct jstr *s)
{
    struct jsb b = JSB(r);
    for (size_t at = 0, next = 0; at < s->len; at = next) {
        jstr_next(s, &next);
        juni_put_case(&b, s, at, at == 0 ? JCASE_TITLE : JCASE_LOWER);
    }
    return jstr_as_markup(r, jsb_done(&b), s->markup);
}

static bool strips(struct jrun *r, const struct jstr *chars, uint32_t c)
{
    if (!chars)
        return juni_space(c);
    jrun_charge(r, chars->len / 64);
    for (size_t at = 0; at < chars->len;)
        if (jstr_next(chars, &at) == c)
            return true;
    return false;
}

const struct jstr *jstr_strip(
    struct jrun *r, const struct jstr *s, const struct jstr *chars, bool left, bool right)
{
    size_t begin = 0, end = s->len;
    while (left && begin < end) {
        size_t next = begin;
        if (!strips(r, chars, jstr_next(s, &next)))
            break;
        begin = next;
    }
    while (right && end > begin) {
        size_t at = jstr_before(s, end), next = at;
        if (!strips(r, chars, jstr_next(s, &next)))
            break;
        end = at;
    }
    size_t n_each = chars ? 1 + chars->len % 64 : 1; /* strips() pays for the rest */
    jrun_charge(r, (s->len - (end - begin)) / 16 * n_each);
    return jstr_sub(r, s, begin, end);
}

const struct jstr *jstr_spaces(struct jrun *r, int64_t n)
{
    struct jsb b = JSB(r);
    jsb_repeat(&b, jstr_lit(r, " "), n > 0 ? (size_t)n : 0);
    return jsb_done(&b);
}

/* `new_` before each character, and at the end. */
static const struct jstr *insert_everywhere(struct jrun *r,
                                            const struct jstr *s,
                                            const struct jstr *new_,
                                            int64_t count)
{
    struct jsb b = JSB(r);
    size_t at = 0;
    count = count < 0 ? -1 : count;
    for (;;) {
        if (count-- == 0)
            break;
        jsb_str(&b, new_);
        if (at >= s->len)
            break;
        size_t next = at;
        jstr_next(s, &next);
        jsb_sub(&b, s, at, next);
        at = next;
    }
    jsb_sub(&b, s, at, s->len);
    return jsb_done(&b);
}

const struct jstr *jstr_replace(struct jrun *r,
                                const struct jstr *s,
                                const struct jstr *old,
                                const struct jstr *new_,
                                int64_t count)
{
    if (old->len == 0)
        return insert_everywhere(r, s, new_, count);
    struct jsb b = JSB(r);
    size_t from = 0, at;
    jrun_charge(r, s->len / 64);
    while (count != 0) {
        const char *p = s->len - from < old->len
                            ? NULL
                            : memmem(s->data + from, s->len - from, old->data, old->len);
        if (!p)
            break;
        jrun_charge(r, 1);
        at = (size_t)(p - s->data);
        jsb_sub(&b, s, from, at);
        jsb_str(&b, new_);
        from = at + old->len;
        count -= count > 0;
    }
    if (from == 0)
        return s;
    jsb_sub(&b, s, from, s->len);
    return jstr_as_markup(r, jsb_done(&b), s->markup);
}

const struct jstr *jstr_pad(
    struct jrun *r, const struct jstr *s, int64_t width, const struct jstr *fill, char align)
{
    if (width <= (int64_t)s->n_chars)
        return s;
    int64_t n = width - (int64_t)s->n_chars;
    int64_t left = align == '<' ? 0 : align == '>' ? n : n / 2 + (n & width & 1);
    struct jsb b = JSB(r);
    jsb_repeat(&b, fill, (size_t)left);
    jsb_str(&b, s);
    jsb_repeat(&b, fill, (size_t)(n - left));
    return jstr_as_markup(r, jsb_done(&b), s->markup);
}

/* ---- splitting ---- */

static void add_part(
    struct jrun *r, struct jitems *parts, const struct jstr *s, size_t begin, size_t end)
{
    jrun_charge(r, 1);
    jitems_add(r, parts, jval_str(jstr_sub(r, s, begin, end)));
}

static void split_on(
    struct jrun *r, struct jitems *parts, const struct jstr *s, const struct jstr *sep, int64_t max)
{
    size_t from = 0;
    jrun_charge(r, s->len / 64);
    while (max-- != 0) {
        const char *p = s->len - from < sep->len
                            ? NULL
                            : memmem(s->data + from, s->len - from, sep->data, sep->len);
        if (!p)
            break;
        add_part(r, parts, s, from, (size_t)(p - s->data));
        from = (size_t)(p - s->data) + sep->len;
    }
    add_part(r, parts, s, from, s->len);
}

static void split_words(struct jrun *r, struct jitems *parts, const struct jstr *s, int64_t max)
{
    jrun_charge(r, s->len / 16);
    size_t at = juni_skip(s, 0, true);
    while (at < s->len) {
        if (max-- == 0) { /* white space at its far end stays */
            add_part(r, parts, s, at, s->len);
            return;
        }
        size_t end = juni_skip(s, at, false);
        add_part(r, parts, s, at, end);
        at = juni_skip(s, end, true);
    }
}

static void rsplit_words(struct jrun *r, struct jitems *parts, const struct jstr *s, int64_t max)
{
    jrun_charge(r, s->len / 16);
    size_t end = juni_skip_back(s, 0, s->len, true);
    while (end > 0) {
        if (max-- == 0) {
            add_part(r, parts, s, 0, end);
            return;
        }
        size_t begin = juni_skip_back(s, 0, end, false);
        add_part(r, parts, s, begin, end);
        end = juni_skip_back(s, 0, begin, true);
    }
}

static void rsplit_on(
    struct jrun *r, struct jitems *parts, const struct jstr *s, const struct jstr *sep, int64_t max)
{
    size_t end = s->len;
    while (max-- != 0) {
        size_t at = jstr_rfind(r, s, sep, 0, end);
        if (at == SIZE_MAX)
            break;
        add_part(r, parts, s, at + sep->len, end);
        end = at;
    }
    add_part(r, parts, s, 0, end);
}

struct jval jstr_split(
    struct jrun *r, const struct jstr *s, const struct jstr *sep, int64_t max, bool from_right)
{
    struct jitems parts = {0};
    max = max < 0 ? -1 : max;
    if (sep && sep->len == 0)
        jrun_fail(r, "empty separator");
    if (!from_right) {
        if (sep)
            split_on(r, &parts, s, sep, max);
        else
            split_words(r, &parts, s, max);
        return jval_list(r, parts.items, parts.n);
    }
    if (sep)
        rsplit_on(r, &parts, s, sep, max);
    else
        rsplit_words(r, &parts, s, max);
    for (size_t i = 0; i < parts.n / 2; i++) {
        struct jval other = parts.items[parts.n - 1 - i];
        parts.items[parts.n - 1 - i] = parts.items[i];
        parts.items[i] = other;
    }
    return jval_list(r, parts.items, parts.n);
}

struct jval jstr_splitlines(struct jrun *r, const struct jstr *s, bool keep_ends)
{
    struct jitems lines = {0};
    size_t from = 0;
    jrun_charge(r, s->len / 64);
    for (size_t at = 0, next = 0; at < s->len; at = next) {
        uint32_t c = jstr_next(s, &next);
        if (!juni_linebreak(c))
            continue;
        if (c == '\r' && next < s->len && s->data[next] == '\n')
            next++;
        add_part(r, &lines, s, from, keep_ends ? next : at);
        from = next;
    }
    if (from < s->len)
        add_part(r, &lines, s, from, s->len);
    return jval_list(r, lines.items, lines.n);
}
