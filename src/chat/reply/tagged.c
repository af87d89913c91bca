/* Calls with a tag for each argument: Qwen 3.5 and Qwen3-Coder, GLM, DeepSeek since 3.2, MiniMax
 * M2, Kimi K3.
 *
 *      OPEN NAME_OPEN name NAME_CLOSE KEY_OPEN key KEY_CLOSE VALUE_OPEN value VALUE_CLOSE ...
 *           CALL_CLOSE  ...  CLOSE
 *
 * Values are plain text; what JSON they mean follows from the type that the tool's schema gives the
 * argument: a string goes out as it comes, anything else when it is whole. Where the schema does
 * not say, what reads as JSON is JSON. A value ends at the first closing tag behind which the call
 * goes on as a call does: others are text of the value. Where values have lines of their own, the
 * next argument of the tool and the end of the call end one too that was never closed, from its
 * second line on. grammar.c keeps texts free of all that ends a value, but for what
 * reply_grammar.h names. */
#include "chat/reply/internal.h"

#include <stdio.h>
#include <string.h>

enum at { BEFORE_NAME, IN_NAME, IN_CALL, IN_KEY, BEFORE_VALUE, IN_VALUE, AFTER };

static const struct tagged_spec *spec_of(const struct reply_parser *p)
{
    return p->format->spec;
}

static void reset(struct tagged_state *t)
{
    t->at = BEFORE_NAME;
    t->begun = false;
    t->first = true;
    buf_clear(&t->name);
}

/* From here on raw is looked at for the next mark. */
static void go(struct reply_parser *p, enum at at)
{
    p->tagged.at = (uint8_t)at;
    if (p->tagged.begun)
        buf_clear(&p->raw);
    p->tagged.mark_at = p->raw.len;
}

void tagged_enter(struct reply_parser *p, const char *mark)
{
    reset(&p->tagged);
    bool named = spec_of(p)->name_open && strcmp(mark, spec_of(p)->name_open) == 0;
    go(p, named || !spec_of(p)->name_open ? IN_NAME : BEFORE_NAME);
}

/* Of several marks, white space before them, which has a bound: which is there? `waits`: one may
 * come yet. */
static const char *next_mark(struct reply_parser *p,
                             const char *const *marks,
                             size_t n_marks,
                             bool *waits)
{
    size_t at = reply_skip_space(p->raw.data, p->tagged.mark_at, p->raw.len);
    *waits = at == p->raw.len && at - p->tagged.mark_at <= REPLY_MAX_HEAD;
    for (size_t i = 0; i < n_marks && at < p->raw.len; i++) {
        enum match got = MATCH_NONE;
        if (marks[i])
            got = reply_match(marks[i], p->raw.data + at, p->raw.len - at);
        if (got == MATCH_WHOLE)
            return marks[i];
        *waits |= got == MATCH_PART;
    }
    return NULL;
}

/* ---- values ---- */

static const json_t *root_of(const struct reply_parser *p)
{
    return reply_parameters(p, buf_cstr((struct buf *)&p->tagged.name));
}

static const json_t *schema_of(struct reply_parser *p)
{
    return reply_parameter(p, buf_cstr(&p->tagged.name), buf_cstr(&p->tagged.key));
}

/* A whole value whose type had to wait for its end. */
static void put_value(struct reply_parser *p)
{
    struct buf json = {0};
    reply_value_json(root_of(p), schema_of(p), p->tagged.value.data, p->tagged.value.len, &json);
    reply_arguments(p, json.data, json.len);
    buf_deinit(&json);
}

static void value_begins(struct reply_parser *p, bool is_text)
{
    struct tagged_state *t = &p->tagged;
    t->is_text = is_text;
    t->value_begun = t->in_cdata = false;
    buf_clear(&t->value);
    reply_arguments(p, t->first ? "{\"" : ", \"", t->first ? 2 : 3);
    t->first = false;
    reply_escaped(p, t->key.data, t->key.len);
    reply_arguments(p, is_text ? "\": \"" : "\": ", is_text ? 4 : 3);
    go(p, IN_VALUE);
}

static void add_value(struct reply_parser *p, char c)
{
    struct tagged_state *t = &p->tagged;
    bool skip = !t->value_begun && spec_of(p)->lines && c == '\n';
    t->value_begun = true;
    if (skip)
        return;
    if (t->is_text)
        reply_escaped(p, &c, 1);
    else
        buf_char(&t->value, c);
}

/* Is raw the beginning of what opens CDATA, or all of it? */
static bool may_quote(const struct reply_parser *p, bool *whole)
{
    static const char open[] = "<![CDATA[";
    if (!spec_of(p)->cdata || p->tagged.value_begun || p->tagged.in_cdata)
        return false;
    *whole = p->raw.len == sizeof open - 1;
    return reply_starts(open, p->raw.data, p->raw.len);
}

/* Of marks, white space before them: is one at s[0..n)? `last`: nothing more comes. */
static enum match marks_at(
    const char *const *marks, size_t n_marks, const char *s, size_t n, bool last)
{
    enum match best = MATCH_NONE;
    size_t at = reply_skip_space(s, 0, n);
    for (size_t i = 0; i < n_marks; i++) {
        enum match got = marks[i] ? reply_match(marks[i], s + at, n - at) : MATCH_NONE;
        best = reply_better(best, got);
    }
    return best == MATCH_PART && (last || at >= REPLY_MAX_HEAD) ? MATCH_WHOLE : best;
}

/* Is `tag` at s[0..n), and then one of the marks? */
static enum match tag_at(
    const char *tag, const char *const *marks, size_t n_marks, const char *s, size_t n, bool last)
{
    size_t n_tag = strlen(tag);
    if (n < n_tag)
        return reply_starts(tag, s, n) ? MATCH_PART : MATCH_NONE;
    return memcmp(s, tag, n_tag) == 0 ? marks_at(marks, n_marks, s + n_tag, n - n_tag, last)
                                      : MATCH_NONE;
}

/* Is the beginning of another argument at s[0..n), one that the tool has? */
static enum match key_at(const struct reply_parser *p, const char *s, size_t n)
{
    const struct tagged_spec *spec = spec_of(p);
    size_t n_open = strlen(spec->key_open), n_close = strlen(spec->key_close);
    if (n <= n_open)
        return reply_starts(spec->key_open, s, n) ? MATCH_PART : MATCH_NONE;
    if (memcmp(s, spec->key_open, n_open) != 0)
        return MATCH_NONE;
    s += n_open;
    n -= n_open;
    if (n < n_close || memcmp(s + n - n_close, spec->key_close, n_close) != 0)
        return n <= REPLY_MAX_NAME && s[n - 1] != '\n' ? MATCH_PART : MATCH_NONE;
    char key[REPLY_MAX_NAME + 8];
    snprintf(key, sizeof key, "%.*s", (int)(n - n_close), s);
    return reply_parameter(p, buf_cstr((struct buf *)&p->tagged.name), key) ? MATCH_WHOLE
                                                                            : MATCH_NONE;
}

/* Does the value end where raw begins? Behind *n bytes the call goes on. */
static enum match ending(const struct reply_parser *p, bool last, size_t *n)
{
    const struct tagged_spec *spec = spec_of(p);
    const char *const marks[] = {
        spec->key_open, spec->call_close, spec->close, spec->open, spec->name_open};
    const char *close = p->tagged.in_cdata ? "]]></param>" : spec->value_close;
    size_t line = spec->lines && p->raw.data[0] == '\n';
    const char *s = p->raw.data + line;
    size_t n_s = p->raw.len - line;
    enum match got = tag_at(close, marks, sizeof marks / sizeof marks[0], s, n_s, last);
    *n = line + strlen(close);
    if (got == MATCH_WHOLE || !line || !p->tagged.value_begun)
        return got;
    enum match open = reply_better(tag_at(spec->call_close, &spec->close, 1, s, n_s, last),
                                   key_at(p, s, n_s)); /* never closed */
    if (open == MATCH_WHOLE)
        *n = line;
    return reply_better(got, open);
}

static void end_value(struct reply_parser *p)
{
    if (p->tagged.is_text)
        reply_arguments(p, "\"", 1);
    else
        put_value(p);
    go(p, IN_CALL);
}

/* The value ends behind n bytes of raw, and the others are of the call. */
static void value_ends(struct reply_parser *p, size_t n)
{
    struct buf rest = {0};
    buf_add(&rest, p->raw.data + n, p->raw.len - n);
    end_value(p);
    for (size_t i = 0; i < rest.len; i++)
        (void)tagged_byte(p, rest.data[i]);
    buf_deinit(&rest);
}

static bool value_byte(struct reply_parser *p, char c)
{
    buf_char(&p->raw, c);
    while (p->raw.len > 0) {
        bool whole;
        size_t n;
        if (may_quote(p, &whole)) {
            p->tagged.in_cdata = whole;
            if (whole)
                buf_clear(&p->raw);
            return true;
        }
        enum match end = ending(p, false, &n);
        if (end == MATCH_WHOLE)
            value_ends(p, n);
        if (end != MATCH_NONE)
            return true;
        add_value(p, reply_take_first(&p->raw));
    }
    return true;
}

/* ---- calls ---- */

static void begin_call(struct reply_parser *p)
{
    struct tagged_state *t = &p->tagged;
    if (t->begun)
        return;
    reply_begin(p, t->name.data, t->name.len, NULL, 0);
    t->begun = true;
}

static void end_call(struct reply_parser *p)
{
    begin_call(p);
    reply_arguments(p, p->tagged.first ? "{}" : "}", p->tagged.first ? 2 : 1);
    reply_end(p);
    reset(&p->tagged);
}

/* The byte at hand, last in raw, cannot stand here: what is not part of a call is text again. A
 * call of which an argument was begun is not whole. */
static bool fail_at_last(struct reply_parser *p)
{
    p->raw.len--;
    if (p->tagged.begun && p->tagged.at == IN_CALL)
        end_call(p);
    reply_give_back(p);
    return false;
}

/* Half of the name if it is a tool's name twice, with a dot between; Muse writes so. */
static size_t once(const struct reply_parser *p, const char *s, size_t n)
{
    size_t half = n / 2;
    bool twice = spec_of(p)->twice && n % 2 == 1 && s[half] == '.' &&
                 memcmp(s, s + half + 1, half) == 0 && reply_knows(p, s, half);
    return twice && !reply_knows(p, s, n) ? half : n;
}

/* Take the name in front of its closing mark, or in front of the first byte that is of no name. */
static bool name_byte(struct reply_parser *p, char c)
{
    struct tagged_state *t = &p->tagged;
    const char *close = spec_of(p)->name_close, *quote;
    buf_char(&p->raw, c);
    size_t n = p->raw.len - t->mark_at;
    bool ends = close ? reply_raw_ends(p, close) : !reply_is_name(&c, 1);
    if (!ends)
        return n <= REPLY_MAX_HEAD || fail_at_last(p);
    n -= close ? strlen(close) : 1;
    if (spec_of(p)->attributes && (quote = memchr(p->raw.data + t->mark_at, '"', n)))
        n = (size_t)(quote - (p->raw.data + t->mark_at));
    if (!reply_is_name(p->raw.data + t->mark_at, n))
        return fail_at_last(p);
    buf_clear(&t->name);
    buf_add(&t->name, p->raw.data + t->mark_at, once(p, p->raw.data + t->mark_at, n));
    t->at = IN_CALL;
    t->mark_at = p->raw.len;
    if (close)
        return true;
    p->raw.len--; /* the byte behind is of the call */
    t->mark_at--;
    return tagged_byte(p, c);
}

/* In a call: an argument, or its end, or the next call. A call begins here, for only now it is sure
 * to be one. */
static bool call_byte(struct reply_parser *p, char c)
{
    const struct tagged_spec *spec = spec_of(p);
    bool begun = p->tagged.begun, waits;
    const char *const marks[] = {spec->key_open,
                                 spec->call_close,
                                 spec->close,
                                 begun ? spec->open : NULL,
                                 begun ? spec->name_open : NULL};
    buf_char(&p->raw, c);
    const char *mark = next_mark(p, marks, 5, &waits);
    if (!mark)
        return waits || fail_at_last(p);
    begin_call(p);
    if (mark == spec->key_open) {
        buf_clear(&p->tagged.key);
        go(p, IN_KEY);
        return true;
    }
    end_call(p);
    if (mark == spec->close) {
        reply_leave(p);
    } else if (mark == spec->call_close) {
        buf_clear(&p->raw);
        go(p, AFTER);
    } else {
        tagged_enter(p, mark);
    }
    return true;
}

/* The text of an attribute, s[0..n), as it is without escapes. */
static void add_attribute(struct buf *out, const char *s, size_t n)
{
    static const char quote[] = "&quot;", amp[] = "&amp;";
    for (size_t at = 0; at < n; at++) {
        const bool is_quote =
            n - at >= sizeof quote - 1 && !memcmp(s + at, quote, sizeof quote - 1);
        const bool is_amp = n - at >= sizeof amp - 1 && !memcmp(s + at, amp, sizeof amp - 1);
        buf_char(out, is_quote ? '"' : s[at]);
        at += is_quote ? sizeof quote - 2 : is_amp ? sizeof amp - 2 : 0;
    }
}

static bool key_byte(struct reply_parser *p, char c)
{
    struct tagged_state *t = &p->tagged;
    const struct tagged_spec *spec = spec_of(p);
    buf_char(&p->raw, c);
    if (!reply_raw_ends(p, spec->key_close))
        return p->raw.len <= REPLY_MAX_HEAD || fail_at_last(p);
    const size_t n = p->raw.len - strlen(spec->key_close);
    if (spec->attributes)
        add_attribute(&t->key, p->raw.data, n);
    else
        buf_add(&t->key, p->raw.data, n);
    if (spec->value_open[0])
        go(p, BEFORE_VALUE);
    else
        value_begins(p, reply_only_string(root_of(p), schema_of(p)));
    return true;
}

static bool before_value_byte(struct reply_parser *p, char c)
{
    const struct tagged_spec *spec = spec_of(p);
    bool waits;
    buf_char(&p->raw, c);
    const char *mark = next_mark(p, spec->value_open, REPLY_MAX_VALUE_OPEN, &waits);
    if (!mark)
        return waits || fail_at_last(p);
    value_begins(
        p, spec->typed ? mark == spec->value_open[0] : reply_only_string(root_of(p), schema_of(p)));
    return true;
}

/* Between the calls of a block. */
static bool between_byte(struct reply_parser *p, char c)
{
    const struct tagged_spec *spec = spec_of(p);
    bool before = p->tagged.at == BEFORE_NAME, waits;
    const char *const marks[] = {spec->name_open, before ? NULL : spec->close};
    buf_char(&p->raw, c);
    const char *mark = next_mark(p, marks, 2, &waits);
    if (!mark)
        return waits || fail_at_last(p);
    if (mark == spec->close)
        reply_leave(p);
    else
        go(p, IN_NAME);
    return true;
}

bool tagged_byte(struct reply_parser *p, char c)
{
    switch ((enum at)p->tagged.at) {
    case IN_NAME:
        return name_byte(p, c);
    case IN_CALL:
        return call_byte(p, c);
    case IN_KEY:
        return key_byte(p, c);
    case BEFORE_VALUE:
        return before_value_byte(p, c);
    case IN_VALUE:
        return value_byte(p, c);
    case BEFORE_NAME:
    case AFTER:
        break;
    }
    return between_byte(p, c);
}

void tagged_finish(struct reply_parser *p)
{
    struct tagged_state *t = &p->tagged;
    size_t n;
    if (t->begun && t->at == IN_VALUE && p->raw.len > 0 && ending(p, true, &n) == MATCH_WHOLE)
        end_value(p);
    if (t->begun && t->at == IN_VALUE) { /* what there is of a value */
        for (size_t i = 0; i < p->raw.len; i++)
            add_value(p, p->raw.data[i]);
        if (!t->is_text)
            reply_arguments(p, t->value.data, t->value.len);
    } else if (t->begun && t->at == IN_CALL && !p->cut) {
        end_call(p); /* only the closing tags are missing */
    } else if (!t->begun && t->at != AFTER) {
        reply_give_back(p);
    }
}
