#include "chat/jinja/text.h"

#include "base/utf8.h"

#include <string.h>

static const struct jmark trusted_mark = {0, true}, input_mark = {0, false};

const struct jstr jstr_empty = {.data = "", .marks = &trusted_mark, .n_marks = 1};

size_t jstr_count_chars(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

static struct jstr *make(struct jrun *r, const char *s, size_t n, bool trusted)
{
    struct jstr *v = jrun_alloc(r, sizeof *v);
    v->data = s;
    v->len = n;
    v->n_chars = jstr_count_chars(s, n);
    v->marks = trusted ? &trusted_mark : &input_mark;
    v->n_marks = 1;
    return v;
}

const struct jstr *jstr_new(struct jrun *r, const char *s, size_t n, bool trusted)
{
    char *copy = jrun_alloc(r, n);
    if (n > 0)
        memcpy(copy, s, n);
    return make(r, copy, n, trusted);
}

const struct jstr *jstr_lit(struct jrun *r, const char *s)
{
    return make(r, s, strlen(s), true);
}

/* ---- marks ---- */

/* The mark that holds byte i. */
static size_t mark_of(const struct jstr *s, size_t i)
{
    size_t lo = 0, hi = s->n_marks;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->marks[mid].begin <= i)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

bool jstr_trusted_at(const struct jstr *s, size_t i)
{
    return s->marks[mark_of(s, i)].trusted;
}

static size_t mark_end(const struct jstr *s, size_t m)
{
    return m + 1 < s->n_marks ? s->marks[m + 1].begin : s->len;
}

const struct jstr *jstr_sub(struct jrun *r, const struct jstr *s, size_t begin, size_t end)
{
    if (begin == 0 && end >= s->len)
        return s;
    if (begin >= end) {
        struct jstr *none = make(r, "", 0, true);
        none->markup = s->markup;
        return none;
    }
    jrun_charge(r, (end - begin) / 64);
    size_t first = mark_of(s, begin), last = mark_of(s, end - 1);
    struct jstr *v = make(r, s->data + begin, end - begin, s->marks[first].trusted);
    v->markup = s->markup;
    if (first < last) {
        struct jmark *marks = jrun_alloc_n(r, last - first + 1, sizeof *marks);
        for (size_t m = first; m <= last; m++) {
            marks[m - first] = s->marks[m];
            marks[m - first].begin = m == first ? 0 : s->marks[m].begin - begin;
        }
        v->marks = marks;
        v->n_marks = last - first + 1;
    }
    return v;
}

const struct jstr *jstr_as_markup(struct jrun *r, const struct jstr *s, bool markup)
{
    if (s->markup == markup)
        return s;
    struct jstr *v = jrun_alloc(r, sizeof *v);
    *v = *s;
    v->markup = markup;
    v->room = NULL;
    return v;
}

/* ---- comparing and searching ---- */

bool jstr_eq(const struct jstr *a, const struct jstr *b)
{
    return a == b || (a->len == b->len && memcmp(a->data, b->data, a->len) == 0);
}

bool jstr_is(const struct jstr *s, const char *literal)
{
    return s->len == strlen(literal) && memcmp(s->data, literal, s->len) == 0;
}

/* The order of UTF-8 bytes is that of code points. */
int jstr_cmp(const struct jstr *a, const struct jstr *b)
{
    int c = memcmp(a->data, b->data, a->len < b->len ? a->len : b->len);
    return c ? c : (a->len > b->len) - (a->len < b->len);
}

size_t jstr_byte_at(struct jrun *r, const struct jstr *s, size_t i)
{
    if (i >= s->n_chars)
        return s->len;
    if (s->n_chars == s->len)
        return i;
    jrun_charge(r, i / 16);
    size_t at = 0;
    for (size_t n = 0; at < s->len; at++)
        if (((unsigned char)s->data[at] & 0xC0) != 0x80 && n++ == i)
            break;
    return at;
}

uint32_t jstr_next(const struct jstr *s, size_t *at)
{
    size_t n;
    const uint32_t c = utf8_decode(s->data + *at, &n);
    *at += n;
    return c;
}

size_t jstr_before(const struct jstr *s, size_t end)
{
    do
        end--;
    while (end > 0 && ((unsigned char)s->data[end] & 0xC0) == 0x80);
    return end;
}

size_t jstr_find(
    struct jrun *r, const struct jstr *s, const struct jstr *needle, size_t from, size_t end)
{
    if (from > end || needle->len > end - from)
        return SIZE_MAX;
    jrun_charge(r, (end - from) / 64);
    const char *p = needle->len == 0
                        ? s->data + from
                        : memmem(s->data + from, end - from, needle->data, needle->len);
    return p ? (size_t)(p - s->data) : SIZE_MAX;
}

size_t jstr_rfind(
    struct jrun *r, const struct jstr *s, const struct jstr *needle, size_t from, size_t end)
{
    if (from > end || needle->len > end - from)
        return SIZE_MAX;
    for (size_t at = end - needle->len + 1; at-- > from;) {
        jrun_charge(r, needle->len / 64 + (at % 64 == 0));
        if (memcmp(s->data + at, needle->data, needle->len) == 0)
            return at;
    }
    return SIZE_MAX;
}

/* ---- building ---- */

static void mark(struct jsb *b, bool trusted)
{
    if (b->n_marks > 0 && b->marks[b->n_marks - 1].trusted == trusted)
        return;
    b->marks =
        jrun_grow(b->r, b->marks, b->n_marks, b->n_marks + 1, &b->cap_marks, sizeof *b->marks);
    b->marks[b->n_marks++] = (struct jmark){b->len, trusted};
}

static void reserve(struct jsb *b, size_t n)
{
    size_t max = b->max_bytes ? b->max_bytes : b->r->max_output;
    if (n > max || b->len > max - n)
        jrun_fail_as(b->r, ERR_TOO_LARGE, "a text is longer than %zu bytes", max);
    size_t need = b->len + n;
    b->data = jrun_grow(b->r, b->data, b->len, need < 48 ? 48 : need, &b->cap, 1);
}

void jsb_add(struct jsb *b, const char *s, size_t n, bool trusted)
{
    if (n == 0)
        return;
    reserve(b, n);
    mark(b, trusted);
    memcpy(b->data + b->len, s, n);
    b->len += n;
}

void jsb_lit(struct jsb *b, const char *s)
{
    jsb_add(b, s, strlen(s), true);
}

void jsb_sub(struct jsb *b, const struct jstr *s, size_t begin, size_t end)
{
    if (begin >= end)
        return;
    for (size_t m = mark_of(s, begin); m < s->n_marks && s->marks[m].begin < end; m++) {
        size_t from = s->marks[m].begin < begin ? begin : s->marks[m].begin;
        size_t to = mark_end(s, m) < end ? mark_end(s, m) : end;
        jsb_add(b, s->data + from, to - from, s->marks[m].trusted);
    }
}

void jsb_str(struct jsb *b, const struct jstr *s)
{
    jsb_sub(b, s, 0, s->len);
}

void jsb_char(struct jsb *b, uint32_t c, bool trusted)
{
    char s[4];
    const size_t n = utf8_encode(c, s);
    jsb_add(b, s, n, trusted);
}

void jsb_repeat(struct jsb *b, const struct jstr *s, size_t n)
{
    size_t max = b->max_bytes ? b->max_bytes : b->r->max_output;
    if (s->len > 0 && n > max / s->len)
        jrun_fail_as(b->r, ERR_TOO_LARGE, "a text is longer than %zu bytes", max);
    jrun_charge(b->r, s->len > 0 ? n : 0);
    for (size_t i = 0; i < n && s->len > 0; i++)
        jsb_str(b, s);
}

const struct jstr *jsb_done(struct jsb *b)
{
    struct jstr *v = make(b->r, b->len ? b->data : "", b->len, true);
    if (b->n_marks > 0) {
        v->marks = b->marks;
        v->n_marks = b->n_marks;
    }
    if (b->len >= 64) {
        v->room = jrun_alloc(b->r, sizeof *b);
        *v->room = *b;
    }
    return v;
}

const struct jstr *jstr_concat(struct jrun *r, const struct jstr *a, const struct jstr *b)
{
    if (b->len == 0)
        return a;
    if (a->len == 0 && !a->markup)
        return b;
    struct jsb *room = a->room;
    if (!room || room->len != a->len || room->n_marks != a->n_marks) {
        struct jsb fresh = JSB(r);
        jsb_str(&fresh, a);
        jsb_str(&fresh, b);
        return jsb_done(&fresh);
    }
    jsb_str(room, b);
    struct jstr *v = jrun_alloc(r, sizeof *v);
    *v = (struct jstr){.data = room->data,
                       .len = room->len,
                       .n_chars = a->n_chars + b->n_chars,
                       .marks = room->marks,
                       .n_marks = room->n_marks,
                       .room = room};
    return v;
}
