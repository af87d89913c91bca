/* A reply as one line of text, for comparison: C'content' R'reasoning' B0 name (id) A'arguments' E,
 * neighbouring pieces of one kind joined. */
#ifndef WEIR_TESTS_TRANSCRIPT_H
#define WEIR_TESTS_TRANSCRIPT_H

#include "base/buf.h"
#include "chat/reply.h"

#include <stdio.h>
#include <string.h>

struct transcript {
    struct buf text;
    int open; /* the kind whose quote is open, or -1 */
};

static inline void transcript_close(struct transcript *t)
{
    if (t->open >= 0)
        buf_char(&t->text, '\'');
    t->open = -1;
}

static inline void transcript_event(void *ctx, const struct reply_event *ev)
{
    static const char letters[] = "CRBAE";
    struct transcript *t = ctx;
    char number[32];
    if (t->open != (int)ev->kind) {
        transcript_close(t);
        buf_str(&t->text, t->text.len ? " " : "");
        buf_char(&t->text, letters[ev->kind]);
    }
    if (ev->kind == REPLY_CALL_BEGIN) {
        snprintf(number, sizeof number, "%u ", ev->call);
        buf_str(&t->text, number);
        buf_add(&t->text, ev->text, ev->n);
        if (ev->id) {
            buf_str(&t->text, " (");
            buf_add(&t->text, ev->id, ev->n_id);
            buf_char(&t->text, ')');
        }
        return;
    }
    if (ev->kind == REPLY_CALL_END)
        return;
    if (t->open != (int)ev->kind)
        buf_char(&t->text, '\'');
    t->open = (int)ev->kind;
    buf_add(&t->text, ev->text, ev->n);
}

#endif
