/* Replies as tables of cases: each is read in one piece, in two, byte by byte and cut by chance,
 * and comes out the same. */
#ifndef WEIR_TESTS_REPLY_CASES_H
#define WEIR_TESTS_REPLY_CASES_H

#include "unit/chat/reply/transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"\",\"parameters\":{"
    "\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"number\"},"
    "\"i\":{\"type\":[\"integer\",\"null\"]},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":"
    "\"object\"},\"sn\":{\"type\":[\"string\",\"null\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"python\",\"description\":\"\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"typed\",\"description\":\"\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"e\":{\"enum\":[\"1\",\"2\"]},\"c\":{"
    "\"const\":\"true\"},\"a\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},\"big\":{"
    "\"type\":\"integer\"}}}}}]";

enum flags { THINKING = 1, NO_TOOLS = 2, ONE_CALL = 4, CUT = 8, CLOSED = 16 };

struct reply_case {
    const char *format, *thoughts; /* NULL: none */
    const char *text, *want;
    unsigned flags;
};

/* The transcript of text[0..n), cut where cuts[i] is not 0 (behind byte i); NULL: one piece. */
static inline char *read_reply(const struct reply_case *c, size_t n, const char *cuts, bool *called)
{
    json_t *tools = json_loads(tools_json, 0, NULL);
    assert_non_null(tools);
    const struct reply_config cfg = {
        .style = {c->format ? reply_format_find(c->format) : NULL,
                  c->thoughts ? reply_thoughts_find(c->thoughts) : NULL},
        .tools = c->flags & NO_TOOLS ? NULL : tools,
        .one_call = (c->flags & ONE_CALL) != 0,
        .start = {.thinking = (c->flags & THINKING) != 0, .thought = (c->flags & CLOSED) != 0}};
    struct reply_parser *p = reply_create(&cfg);
    assert_non_null(p);
    struct transcript t = {.open = -1};
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && !(cuts && cuts[i]))
            continue;
        /* memory of its own, so that reading past a piece is seen */
        char *piece = malloc(i + 1 - from);
        memcpy(piece, c->text + from, i + 1 - from);
        reply_feed(p, piece, i + 1 - from, transcript_event, &t);
        free(piece);
        from = i + 1;
    }
    reply_finish(p, (c->flags & CUT) != 0, transcript_event, &t);
    transcript_close(&t);
    if (called)
        *called = reply_called(p);
    reply_destroy(p);
    json_decref(tools);
    return (char *)buf_cstr(&t.text); /* the caller frees it */
}

static inline void check(const struct reply_case *c)
{
    size_t n = strlen(c->text);
    char *cuts = calloc(n + 1, 1);
    for (size_t i = 0; i <= n + 20; i++) {
        if (i < n) { /* in two pieces, everywhere */
            memset(cuts, 0, n);
            cuts[i] = 1;
        } else if (i == n) { /* byte by byte */
            memset(cuts, 1, n);
        } else { /* at random; the seed is i */
            srand((unsigned)i);
            for (size_t k = 0; k < n; k++)
                cuts[k] = rand() % 4 == 0;
        }
        char *got = read_reply(c, n, cuts, NULL);
        if (strcmp(got, c->want) != 0)
            fail_msg("%s, split %zu of %s:\n  want %s\n  got  %s",
                     c->format ? c->format : "-",
                     i,
                     c->text,
                     c->want,
                     got);
        free(got);
    }
    free(cuts);
}

static inline void check_all(const struct reply_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check(&cases[i]);
}
#define CHECK_ALL(cases) check_all(cases, sizeof(cases) / sizeof(cases)[0])

#endif
