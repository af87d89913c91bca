/* Calls with the tool's name before the arguments: DeepSeek, Kimi, Functionary 3.1, and Mistral
 * since 2025.
 *
 *      SECTION CALL head {...} CLOSE CALL head {...} CLOSE SECTION_CLOSE
 *
 * The head is everything up to the arguments' first bracket; the format takes the name out. Where
 * CLOSE comes before a bracket there are no arguments. */
#include "chat/reply/internal.h"

#include <string.h>

enum at { IN_SECTION, IN_HEAD, IN_ARGUMENTS, AFTER };

static void to_head(struct reply_parser *p)
{
    p->named.at = IN_HEAD;
    p->named.scan = (struct json_scan){0};
    p->named.head_at = p->raw.len;
}

void named_enter(struct reply_parser *p, const char *mark)
{
    named_begin(p, p->format->spec, mark);
}

void named_begin(struct reply_parser *p, const struct named_spec *spec, const char *mark)
{
    p->named.spec = spec;
    if (spec->section && strcmp(mark, spec->section) == 0)
        p->named.at = IN_SECTION;
    else
        to_head(p);
}

/* One of the marks is growing at the end of raw, or is there. NULL: none. */
static const char *growing(const char *const *marks, size_t n_marks, const char *tail, size_t n)
{
    for (size_t i = 0; i < n_marks; i++)
        if (marks[i] && reply_starts(marks[i], tail, n))
            return marks[i];
    return NULL;
}

/* Between the section's mark and the first call's. */
static bool section_byte(struct reply_parser *p, char c)
{
    const struct named_spec *spec = p->named.spec;
    size_t from = reply_skip_space(p->raw.data, strlen(spec->section), p->raw.len);
    buf_char(&p->raw, c);
    if (from + 1 == p->raw.len && reply_is_space(c) && p->raw.len <= REPLY_MAX_HEAD)
        return true;
    if (p->raw.len > REPLY_MAX_HEAD ||
        !reply_starts(spec->call, p->raw.data + from, p->raw.len - from)) {
        p->raw.len--;
        return reply_fail(p);
    }
    if (p->raw.len - from == strlen(spec->call))
        to_head(p);
    return true;
}

/* Does the head of n bytes say which call it is? Then it begins. */
static bool begin_call(struct reply_parser *p, size_t n)
{
    struct reply_head head = {0};
    if (!p->named.spec->head(p->raw.data + p->named.head_at, n, &head) ||
        !reply_is_name(head.name, head.n_name))
        return false;
    /* the head lies in raw, which ends with the call's beginning */
    char name[REPLY_MAX_NAME], id[REPLY_MAX_HEAD];
    memcpy(name, head.name, head.n_name);
    if (head.n_id)
        memcpy(id, head.id, head.n_id);
    reply_begin(p, name, head.n_name, id, head.n_id);
    return true;
}

/* The call ends behind n bytes of head. */
static bool no_arguments(struct reply_parser *p, size_t n)
{
    if (!begin_call(p, n)) {
        p->raw.len--;
        return reply_fail(p);
    }
    reply_arguments(p, "{}", 2);
    reply_end(p);
    p->named.at = AFTER;
    if (!p->named.spec->section)
        reply_leave(p);
    return true;
}

static bool head_byte(struct reply_parser *p, char c)
{
    const char *close = p->named.spec->close;
    size_t n = p->raw.len - p->named.head_at;
    if (c == '{') {
        if (!begin_call(p, n))
            return reply_fail(p);
        p->named.at = IN_ARGUMENTS;
        return named_byte(p, c);
    }
    if (n >= REPLY_MAX_HEAD)
        return reply_fail(p);
    buf_char(&p->raw, c);
    if (close && n + 1 >= strlen(close) && reply_raw_ends(p, close))
        return no_arguments(p, n + 1 - strlen(close));
    return true;
}

static bool arguments_byte(struct reply_parser *p, char c)
{
    enum scan got = reply_json_byte(p, &p->named.scan, c);
    if (got != SCAN_MORE)
        p->named.at = AFTER;
    return got != SCAN_BAD || named_byte(p, c);
}

/* Behind the arguments: a fence, the closing mark, another call, the section's end. */
static bool after_byte(struct reply_parser *p, char c)
{
    const struct named_spec *spec = p->named.spec;
    const char *const marks[] = {"```", spec->close, spec->section_close, spec->call};
    size_t n_marks = spec->section ? 4 : 2;
    if (!spec->close && !spec->section) {
        reply_leave(p);
        return false;
    }
    buf_char(&p->raw, c);
    size_t at = reply_skip_space(p->raw.data, 0, p->raw.len), n = p->raw.len - at;
    const char *mark = growing(marks, n_marks, p->raw.data + at, n);
    if (!mark || p->raw.len > REPLY_MAX_HEAD) {
        p->raw.len--;
        return reply_fail(p);
    }
    if (n < strlen(mark))
        return true;
    if (mark == spec->call) {
        to_head(p);
        return true;
    }
    if (mark == spec->section_close || (mark == spec->close && !spec->section))
        reply_leave(p);
    buf_clear(&p->raw);
    return true;
}

bool named_byte(struct reply_parser *p, char c)
{
    switch ((enum at)p->named.at) {
    case IN_SECTION:
        return section_byte(p, c);
    case IN_HEAD:
        return head_byte(p, c);
    case IN_ARGUMENTS:
        return arguments_byte(p, c);
    case AFTER:
        break;
    }
    return after_byte(p, c);
}

void named_finish(struct reply_parser *p)
{
    if (p->named.at == IN_SECTION || p->named.at == IN_HEAD)
        reply_give_back(p);
    else
        reply_leave(p); /* part of a closing mark */
}
