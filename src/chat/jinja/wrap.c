/* Wrapping lines as Python's textwrap does: a line is cut into chunks, which are words, runs of
 * white space and parts of hyphenated words, and lines take as many chunks as fit. */
#include "chat/jinja/strings.h"
#include "chat/jinja/unicode.h"

#include <string.h>

/* The characters of a line, and the byte where each begins; [n] is the end. */
struct line {
    uint32_t *c;
    size_t *at;
    size_t n;
};

static bool is_blank(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ';
}

static bool is_letter(uint32_t c)
{
    return juni_word(c) && !juni_decimal(c);
}

static bool is_punct_or_word(uint32_t c)
{
    return juni_word(c) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' ||
           c == '?';
}

/* Two or more dashes at i with a word behind: the place behind the dashes, else i. */
static size_t em_dash(const struct line *l, size_t i)
{
    size_t end = i;
    while (end < l->n && l->c[end] == '-')
        end++;
    return end - i >= 2 && end < l->n && juni_word(l->c[end]) ? end : i;
}

/* May the hyphen at i end a chunk? */
static bool breaks_at_hyphen(const struct line *l, size_t i)
{
    if (l->c[i] != '-' || i < 2)
        return false;
    bool before =
        (is_letter(l->c[i - 1]) && is_letter(l->c[i - 2])) ||
        (i >= 3 && is_letter(l->c[i - 3]) && l->c[i - 2] == '-' && is_punct_or_word(l->c[i - 1]));
    size_t next = i + 1;
    if (!before || next >= l->n || !is_letter(l->c[next]))
        return false;
    next++;
    if (next < l->n && l->c[next] == '-')
        next++;
    return next < l->n && is_letter(l->c[next]);
}

/* The end of the chunk at i. */
static size_t chunk_end(const struct line *l, size_t i, bool hyphens)
{
    size_t end = i;
    if (is_blank(l->c[i])) {
        while (end < l->n && is_blank(l->c[end]))
            end++;
        return end;
    }
    if (hyphens && i > 0 && is_punct_or_word(l->c[i - 1]) && em_dash(l, i) > i)
        return em_dash(l, i);
    for (end = i + 1; end < l->n && !is_blank(l->c[end]); end++) {
        if (!hyphens)
            continue;
        if (breaks_at_hyphen(l, end))
            return end + 1;
        if (is_punct_or_word(l->c[end - 1]) && em_dash(l, end) > end)
            return end;
    }
    return end;
}

/* Where a chunk that is too long is cut, so that its first part has at most `room` characters. */
static size_t cut_of(const struct line *l, size_t begin, size_t end, size_t room, bool hyphens)
{
    if (!hyphens || end - begin <= room)
        return begin + room;
    size_t hyphen = begin + room;
    while (hyphen > begin && l->c[hyphen - 1] != '-')
        hyphen--;
    for (size_t i = begin; i + 1 < hyphen; i++)
        if (l->c[i] != '-')
            return hyphen;
    return begin + room;
}

static bool all_blank(const struct line *l, size_t begin, size_t end)
{
    for (; begin < end; begin++)
        if (!juni_space(l->c[begin]))
            return false;
    return true;
}

void jstr_wrap(struct jsb *b,
               const struct jstr *s,
               size_t width,
               bool break_words,
               bool hyphens,
               const struct jstr *glue)
{
    struct line l = {jrun_alloc_n(b->r, s->n_chars, sizeof *l.c),
                     jrun_alloc_n(b->r, s->n_chars + 1, sizeof *l.at),
                     s->n_chars};
    for (size_t i = 0, at = 0; i < l.n; i++) {
        l.at[i] = at;
        l.c[i] = jstr_next(s, &at);
    }
    l.at[l.n] = s->len;
    jrun_charge(b->r, l.n / 4);
    bool any = false;
    size_t end = 0; /* of the chunk that begins at `at` */
    for (size_t at = 0; at < l.n;) {
        end = end > at ? end : chunk_end(&l, at, hyphens);
        if (any && all_blank(&l, at, end)) {
            at = end;
            if (at == l.n)
                break;
            end = chunk_end(&l, at, hyphens);
        }
        size_t begin = at, last = at; /* the line, and its last chunk */
        while (at < l.n && end - begin <= width) {
            last = at;
            at = end;
            end = at < l.n ? chunk_end(&l, at, hyphens) : at;
        }
        if (at < l.n && end - at > width) {
            if (break_words) {
                last = at;
                at = cut_of(&l, at, end, width - (at - begin), hyphens);
                last = at > last ? last : begin;
            } else if (at == begin) {
                last = at;
                at = end;
            }
        }
        size_t stop = all_blank(&l, last, at) ? last : at;
        if (stop > begin) {
            if (any)
                jsb_str(b, glue);
            jsb_sub(b, s, l.at[begin], l.at[stop]);
            any = true;
        }
    }
}
