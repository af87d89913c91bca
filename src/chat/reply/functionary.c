/* Functionary 3.2: every text has a recipient.
 *
 *      >>>all\ncontent>>>f\n{"a": 1}>>>g\n{...}
 *
 * The prompt ends with ">>>", so a reply begins with a recipient's name. A tool may also get source
 * code instead of JSON: that becomes {"code": "..."} and goes on to the end of the output, for
 * ">>>" may be part of it. */
#include "chat/reply/internal.h"

#include <string.h>

enum at { IN_NAME, IN_CONTENT, BEFORE_ARGUMENTS, IN_ARGUMENTS, IN_CODE, AFTER };

static const char mark[] = ">>>";

/* The name is whole: raw, behind its mark if it has one, up to the newline. */
static void recipient(struct reply_parser *p)
{
    size_t from = p->raw.len >= 3 && memcmp(p->raw.data, mark, 3) == 0 ? 3 : 0;
    const char *name = p->raw.data + from;
    size_t n = p->raw.len - from - 1;
    if (reply_is(name, n, "all")) {
        p->named.at = IN_CONTENT;
        buf_clear(&p->raw);
    } else if (p->calls_wanted && reply_knows(p, name, n)) {
        p->named.at = BEFORE_ARGUMENTS;
        p->named.scan = (struct json_scan){0};
    } else {
        p->named.at = IN_CONTENT;
        reply_give_back(p);
    }
}

static bool name_byte(struct reply_parser *p, char c)
{
    buf_char(&p->raw, c);
    if (c == '\n') {
        recipient(p);
    } else if (p->raw.len > REPLY_MAX_NAME + 3) {
        p->named.at = IN_CONTENT;
        reply_give_back(p);
    }
    return true;
}

/* Content up to the mark, of which raw holds the beginning. */
static bool content_byte(struct reply_parser *p, char c)
{
    buf_char(&p->raw, c);
    while (p->raw.len > 0 && !reply_starts(mark, p->raw.data, p->raw.len)) {
        char first = reply_take_first(&p->raw);
        reply_content(p, &first, 1);
    }
    if (p->raw.len == 3)
        p->named.at = IN_NAME;
    return true;
}

static bool first_byte(struct reply_parser *p, char c)
{
    char name[REPLY_MAX_NAME];
    if (reply_is_space(c)) {
        buf_char(&p->raw, c);
        return true;
    }
    size_t from = memcmp(p->raw.data, mark, 3) == 0 ? 3 : 0;
    size_t n = (size_t)((const char *)memchr(p->raw.data, '\n', p->raw.len) - p->raw.data) - from;
    memcpy(name, p->raw.data + from, n);
    reply_begin(p, name, n, NULL, 0);
    p->named.at = c == '{' ? IN_ARGUMENTS : IN_CODE;
    if (p->named.at == IN_CODE)
        reply_arguments(p, "{\"code\": \"", 10);
    return functionary_byte(p, c);
}

static bool arguments_byte(struct reply_parser *p, char c)
{
    enum scan got = reply_json_byte(p, &p->named.scan, c);
    if (got != SCAN_MORE)
        p->named.at = AFTER;
    return got != SCAN_BAD || functionary_byte(p, c);
}

bool functionary_byte(struct reply_parser *p, char c)
{
    switch ((enum at)p->named.at) {
    case IN_NAME:
        return name_byte(p, c);
    case BEFORE_ARGUMENTS:
        return first_byte(p, c);
    case IN_ARGUMENTS:
        return arguments_byte(p, c);
    case IN_CODE:
        reply_escaped(p, &c, 1);
        return true;
    case IN_CONTENT:
    case AFTER:
        break;
    }
    return content_byte(p, c);
}

void functionary_finish(struct reply_parser *p)
{
    enum at at = (enum at)p->named.at;
    if (at == IN_CODE && !p->cut) {
        reply_arguments(p, "\"}", 2);
        reply_end(p);
    }
    if (at == IN_NAME || at == BEFORE_ARGUMENTS || at == IN_CONTENT || at == AFTER)
        reply_give_back(p);
}
