/* What a model writes, taken apart: content, reasoning, and calls of tools.
 *
 *      bytes in pieces --reply_feed--> events ... --reply_finish--> what was held back
 *
 * A format says how a model writes calls, thoughts how it marks reasoning; both follow from the
 * text of the chat template (reply_style_detect) or from names that the operator gives.
 *
 * - Events follow from the bytes alone: however they are split into pieces, the same texts, names
 *   and arguments come out, in the same order. Only where a text is cut into events may differ.
 * - Nothing is lost. What begins like a call and turns out to be none comes back as content, byte
 *   for byte. Not part of any event are the marks themselves, and white space beside them.
 * - What cannot be a mark any more goes out at once.
 * - Arguments are what the model wrote. A call that the end of the output cuts has no
 *   REPLY_CALL_END, and its arguments are not whole.
 *
 * Thread: a parser belongs to one thread at a time; formats and thoughts are constants. */
#ifndef WEIR_CHAT_REPLY_H
#define WEIR_CHAT_REPLY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t; /* jansson's */

enum reply_kind {
    REPLY_CONTENT,
    REPLY_REASONING,
    REPLY_CALL_BEGIN,     /* a call, its arguments to come */
    REPLY_CALL_ARGUMENTS, /* more of them: together the text of a JSON value */
    REPLY_CALL_END,       /* the arguments are whole */
};

/* Views are valid until the callback returns. */
struct reply_event {
    enum reply_kind kind;
    uint32_t call;    /* which call, from 0 */
    const char *text; /* [n] of CONTENT, REASONING, CALL_ARGUMENTS: never empty; of CALL_BEGIN: the
                         name of the tool */
    size_t n;
    const char *id; /* [n_id] of CALL_BEGIN: what the model itself calls it, or NULL */
    size_t n_id;
};
typedef void (*reply_event_fn)(void *ctx, const struct reply_event *ev);

struct reply_format;   /* how calls are written */
struct reply_thoughts; /* how reasoning is marked */

struct reply_style {
    const struct reply_format *format;     /* NULL: unknown, or the model has none */
    const struct reply_thoughts *thoughts; /* NULL: none */
};

/* By what the template in source[0..n) writes; either may come out NULL. */
struct reply_style reply_style_detect(const char *source, size_t n);

/* By name; NULL if there is none such. The names, in order, for lists: NULL behind the last. */
const struct reply_format *reply_format_find(const char *name);
const struct reply_thoughts *reply_thoughts_find(const char *name);
const char *reply_format_name(const struct reply_format *f);     /* "none" for NULL */
const char *reply_thoughts_name(const struct reply_thoughts *t); /* the same */
const char *reply_thoughts_mark(const struct reply_thoughts *t, bool opening);
/* May a reply reason only once, where it begins? */
bool reply_thoughts_first(const struct reply_thoughts *t);
/* The marks of calls that end reasoning too, i from 0; NULL behind the last. */
const char *reply_call_in_thoughts(const struct reply_format *f, size_t i);
/* All names, i from 0; NULL behind the last. Only tests ask. */
const char *reply_format_list(size_t i);
const char *reply_thoughts_list(size_t i);

/* Does a reply have a frame of its own around content, so that it cannot begin with text? */
bool reply_is_framed(const struct reply_format *f);

/* Could this be a tool's name: letters, digits, '_', '-', '.' and ':'? */
#define REPLY_MAX_NAME 128 /* bytes */
bool reply_is_name(const char *s, size_t n);

/* Ids of calls must have nine letters or digits (Mistral's templates insist). */
bool reply_short_ids(const struct reply_format *f);

/* What of a reply stands at the end of the prompt already. */
struct reply_start {
    bool thinking; /* reasoning is open */
    bool thought;  /* it is closed */
};

/* Does the prompt, of which text[0..n) is the end as the template wrote it, open reasoning, or
 * close it? */
struct reply_start reply_start_of(struct reply_style style, const char *text, size_t n);

struct reply_config {
    struct reply_style style;
    const struct json_t *tools; /* [{"type": "function", "function": {"name": ...}}], which outlive
                                   the parser; NULL: calls are not looked for */
    bool one_call;              /* calls after the first are left out */
    bool thoughts_stay;         /* reasoning is content, as if the style had no thoughts */
    bool no_thoughts;           /* it is left out */
    struct reply_start start;
};

struct reply_parser;

/* NULL if with this configuration every output is content. */
struct reply_parser *reply_create(const struct reply_config *cfg);
void reply_destroy(struct reply_parser *p);

/* Is this the text of a control token that the parser wants to see? Those are fed as their text;
 * other control tokens are not part of the output. */
bool reply_reads(const struct reply_parser *p, const char *token, size_t n);

void reply_feed(struct reply_parser *p, const char *s, size_t n, reply_event_fn fn, void *ctx);

/* The output has ended, once; `cut`: not by the model, but by a limit. */
void reply_finish(struct reply_parser *p, bool cut, reply_event_fn fn, void *ctx);

/* Is what comes next reasoning, or the mark at its end, or what may yet prove to be? */
bool reply_reasons(const struct reply_parser *p);

/* After reply_finish: there were calls, and the arguments of each are whole. */
bool reply_called(const struct reply_parser *p);

#endif
