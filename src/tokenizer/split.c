#include "tokenizer/split.h"

#include <string.h>

/* What an alternative is tried on. */
struct scan {
    const struct charclass_table *t;
    struct split_level *l;
    const char *text;
    size_t end;
};

/* The class of the character at `at` and where the next one begins; 0, which no set holds, at the
 * end. */
static inline uint32_t class_at(const struct scan *s, size_t at, size_t *next)
{
    if (at >= s->end) {
        *next = at;
        return 0;
    }
    size_t len;
    uint32_t class = charclass_at(s->t, s->text + at, &len);
    *next = at + len;
    return class;
}

/* The end of up to max characters (0: any number) of `set` from `at` on. */
static inline size_t run(const struct scan *s, size_t at, uint32_t set, unsigned max)
{
    size_t next;
    for (unsigned n = 0; class_at(s, at, &next) & set;) {
        at = next;
        if (++n == max)
            break;
    }
    return at;
}

static size_t run_of_at_least(const struct scan *s, size_t at, const struct split_op *op)
{
    size_t next, n = 0;
    while ((op->max == 0 || n < op->max) && class_at(s, at, &next) & op->body) {
        at = next;
        n++;
    }
    return n >= op->min ? at : 0;
}

/* ---- alternatives: each yields the end of its match at `at`, or 0 ---- */

static size_t match_contraction(const struct scan *s, size_t at, bool any_case)
{
    static const char *const twos[] = {"re", "ve", "ll"};
    if (s->end - at < 2 || s->text[at] != '\'')
        return 0;
    char fold = any_case ? 0x20 : 0, a = s->text[at + 1];
    if (a >= 'A' && a <= 'Z')
        a = (char)(a | fold);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return at + 2;
    if (s->end - at < 3)
        return 0;
    char b = s->text[at + 2];
    if (b >= 'A' && b <= 'Z')
        b = (char)(b | fold);
    for (size_t i = 0; i < 3; i++)
        if (a == twos[i][0] && b == twos[i][1])
            return at + 3;
    return 0;
}

/* Where the lead, if there is one, makes room for a character of `body`: the start of the body.
 * `at` itself where there is no lead and the body begins at once, or `end` + 1 for neither. */
static size_t body_start(const struct scan *s, size_t at, uint32_t lead, uint32_t body, bool must)
{
    size_t next, after;
    uint32_t class = class_at(s, at, &next);
    if (class & lead && class_at(s, next, &after) & body)
        return next;
    return !must && class & body ? at : s->end + 1;
}

static size_t match_run(const struct scan *s, size_t at, const struct split_op *op)
{
    size_t start = body_start(s, at, op->lead, op->body, op->kind == SPLIT_LEAD_RUN);
    if (start > s->end)
        return 0;
    size_t end = op->min > 1 ? run_of_at_least(s, start, op) : run(s, start, op->body, op->max);
    if (end && op->tail)
        end = run(s, end, op->tail, op->tail_max);
    return end;
}

/* upper* body+ from `at`: as many of `upper` as leave something to `body`. */
static size_t cased_body(const struct scan *s, size_t at, const struct split_op *op)
{
    size_t next, last_both = 0;
    uint32_t class;
    for (; (class = class_at(s, at, &next)) & op->upper; at = next)
        if (class & op->body)
            last_both = next;
    if (class & op->body)
        return run(s, at, op->body, 0);
    return last_both;
}

static size_t match_cased(const struct scan *s, size_t at, const struct split_op *op)
{
    size_t starts[2], n_starts = 0, next;
    if (class_at(s, at, &next) & op->lead)
        starts[n_starts++] = next;
    starts[n_starts++] = at;
    for (size_t i = 0; i < n_starts; i++) {
        size_t end = cased_body(s, starts[i], op);
        if (end)
            return end;
    }
    for (size_t i = 0; i < n_starts; i++) {
        size_t end = run(s, starts[i], op->upper, 0);
        if (end > starts[i])
            return run(s, end, op->body, 0);
    }
    return 0;
}

/* See the white space from `at` to the end of its run, unless that was done. */
static void see_space(const struct scan *s, size_t at)
{
    struct split_level *l = s->l;
    if (at >= l->space_begin && at < l->space_end)
        return;
    size_t next;
    l->space_begin = at;
    l->newline_end = 0;
    for (uint32_t class; (class = class_at(s, at, &next)) & CC_SPACE; at = next)
        if (class & CC_NEWLINE)
            l->newline_end = next;
    l->space_end = at;
}

static size_t match_space_newline(const struct scan *s, size_t at)
{
    see_space(s, at);
    return s->l->space_end > at && s->l->newline_end > at ? s->l->newline_end : 0;
}

static size_t before_char(const struct scan *s, size_t at)
{
    do
        at--;
    while (((unsigned char)s->text[at] & 0xc0) == 0x80);
    return at;
}

static size_t match_space_inner(const struct scan *s, size_t at)
{
    see_space(s, at);
    size_t end = s->l->space_end;
    if (end <= at || end == s->end)
        return end > at ? end : 0;
    size_t last = before_char(s, end);
    return last > at ? last : 0;
}

/* A run of n matches \s{k}(?!\S) if more than k are left, or just k at the end of the piece. */
static size_t match_space_powers(const struct scan *s, size_t at)
{
    size_t ends[10], next, pos = at, n = 0; /* after 1, 2, 4, ... 512 characters */
    see_space(s, at);
    if (s->l->space_end <= at)
        return 0;
    for (unsigned i = 0; i < 10; i++) {
        for (; n < (size_t)1 << i && pos < s->l->space_end; n++, pos = next)
            class_at(s, pos, &next);
        ends[i] = n == (size_t)1 << i ? pos : 0;
    }
    for (unsigned i = 10; i-- > 1;)
        if (ends[i] && (ends[i] < s->l->space_end || s->l->space_end == s->end))
            return ends[i];
    return ends[0];
}

/* A letter with its marks, and a blank before it where another went before. */
static size_t letter_and_marks(const struct scan *s, size_t at, bool blank)
{
    size_t next, after;
    uint32_t class = class_at(s, at, &next);
    if (blank && class & CC_BLANK && class_at(s, next, &after) & CC_LETTER)
        next = after;
    else if (!(class & CC_LETTER))
        return 0;
    return run(s, next, CC_MARK, 0);
}

static size_t match_letters_blank(const struct scan *s, size_t at, const struct split_op *op)
{
    size_t start = body_start(s, at, op->lead, CC_LETTER, false);
    if (start > s->end)
        return 0;
    size_t end = letter_and_marks(s, start, false);
    for (size_t more; (more = letter_and_marks(s, end, true)) > 0;)
        end = more;
    return end;
}

static bool starts_with(const struct scan *s, size_t at, const char *word, size_t n)
{
    return s->end - at >= n && memcmp(s->text + at, word, n) == 0;
}

static size_t match_sentinel(const struct scan *s, size_t at)
{
    if (!starts_with(s, at, "<sentinel:", 10))
        return 0;
    size_t end = run(s, at + 10, CC_DIGIT, 0);
    return end > at + 10 && starts_with(s, end, ">", 1) ? end + 1 : 0;
}

static size_t match_image(const struct scan *s, size_t at)
{
    if (!starts_with(s, at, "IMGIMG", 6))
        return 0;
    size_t end = at + 6;
    while (end < s->end && end < at + 10 && s->text[end] >= 'A' && s->text[end] <= 'I')
        end++;
    return end > at + 6 && starts_with(s, end, "Z", 1) ? end + 1 : 0;
}

static size_t match_blanks(const struct scan *s, size_t at)
{
    if (s->text[at] == '\t' || s->text[at] == '\n')
        return at + 1;
    if (starts_with(s, at, "    ", 4))
        return at + 4;
    return starts_with(s, at, "  ", 2) ? at + 2 : 0;
}

static size_t match_op(const struct scan *s, size_t at, const struct split_op *op)
{
    switch (op->kind) {
    case SPLIT_RUN:
    case SPLIT_LEAD_RUN:
        return match_run(s, at, op);
    case SPLIT_CASED:
        return match_cased(s, at, op);
    case SPLIT_CONTRACTION:
        return match_contraction(s, at, op->any_case);
    case SPLIT_SPACE_NEWLINE:
        return match_space_newline(s, at);
    case SPLIT_SPACE_INNER:
        return match_space_inner(s, at);
    case SPLIT_SPACE_POWERS:
        return match_space_powers(s, at);
    case SPLIT_LETTERS_BLANK:
        return match_letters_blank(s, at, op);
    case SPLIT_SENTINEL:
        return match_sentinel(s, at);
    case SPLIT_IMAGE:
        return match_image(s, at);
    case SPLIT_BLANKS:
        return match_blanks(s, at);
    }
    return 0;
}

/* ---- stages ---- */

static size_t match_any(const struct scan *s, size_t at, const struct split_stage *stage)
{
    for (size_t i = 0; i < stage->n_ops; i++) {
        size_t end = match_op(s, at, &stage->ops[i]);
        if (end == 0)
            continue;
        size_t more =
            stage->ops[i].contraction && end < s->end ? match_contraction(s, end, true) : 0;
        return more ? more : end;
    }
    return 0;
}

size_t split_next(const struct charclass_table *t,
                  const struct split_stage *stage,
                  struct split_level *l,
                  const char *text,
                  size_t at,
                  size_t end)
{
    if (stage->cut)
        return stage->cut(l, text, at, end);
    if (l->match_begin == at && l->match_end > at)
        return l->match_end;
    struct scan s = {t, l, text, end};
    for (size_t pos = at, next; pos < end; pos = next) {
        size_t found = match_any(&s, pos, stage);
        if (found && pos == at)
            return found;
        if (found) {
            l->match_begin = pos;
            l->match_end = found;
            return pos;
        }
        class_at(&s, pos, &next);
    }
    return end;
}

/* \s+$: the white space that ends the piece, and what lies before it. */
size_t split_cut_end_space(struct split_level *l, const char *text, size_t at, size_t end)
{
    struct scan s = {charclass_table(), l, text, end};
    size_t begin = end, next;
    while (begin > at) {
        size_t last = before_char(&s, begin);
        if (!(class_at(&s, last, &next) & CC_SPACE))
            break;
        begin = last;
    }
    return begin > at ? begin : end;
}

size_t split_cut_groups(struct split_level *l, const char *text, size_t at, size_t end)
{
    struct scan s = {charclass_table(), l, text, end};
    size_t next, pos = at, n = 0;
    while (pos < end && !(class_at(&s, pos, &next) & CC_NUMBER))
        pos = next;
    if (pos >= l->grouped_end) {
        l->grouped_end = pos;
        for (; class_at(&s, l->grouped_end, &next) & CC_NUMBER; l->grouped_end = next)
            n++;
    }
    return run(&s, pos, CC_NUMBER, n % 3 ? (unsigned)(n % 3) : 3);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* (?=(\d{3})+(?!\d)): a border before each group of three that a number ends with. Text between
 * numbers belongs to the group before it. */
size_t split_cut_thousands(struct split_level *l, const char *text, size_t at, size_t end)
{
    for (size_t pos = at; pos < end;) {
        if (!is_digit(text[pos])) {
            pos++;
            continue;
        }
        if (pos >= l->grouped_end) {
            l->grouped_end = pos;
            while (l->grouped_end < end && is_digit(text[l->grouped_end]))
                l->grouped_end++;
        }
        size_t border = pos + (l->grouped_end - pos) % 3;
        if (border == at) /* the piece begins with a group */
            border += 3;
        if (border < l->grouped_end)
            return border;
        pos = l->grouped_end;
    }
    return end;
}
