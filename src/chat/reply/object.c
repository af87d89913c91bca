/* Calls as JSON objects that hold the tool's name: Hermes and Qwen, Llama, Mistral until 2024,
 * Granite, Command R, FireFunction, and models that were only told of JSON.
 *
 *      MARK {"name": "f", "arguments": {...}} CLOSE      or an array of such objects, or several
 *
 * Names of members differ, so all that are in use are known: name, function, tool_name; arguments,
 * parameters; id, tool_call_id. {"type": "function", "function": {...}} is read too. Arguments
 * that stand before the name wait for it; arguments as JSON in a string are taken out of it. */
#include "chat/reply/internal.h"

#include <string.h>

enum at { AT_VALUE, AT_KEY, IN_KEY, AT_COLON, AT_MEMBER, IN_MEMBER, AT_COMMA, AFTER };
enum target { OF_NAME, OF_ARGUMENTS, OF_ID, OF_FUNCTION, OF_TYPE, OF_OTHER };

static void reset(struct object_state *o)
{
    o->at = AT_VALUE;
    o->nest = 0;
    o->has_name = o->has_arguments = o->begun = o->whole = o->decoded = false;
    buf_clear(&o->word);
    buf_clear(&o->name);
    buf_clear(&o->id);
    buf_clear(&o->arguments);
}

/* No call after all; the byte at hand, the last in raw, is to be read as text. */
static bool fail_at_last(struct reply_parser *p)
{
    p->raw.len--;
    return reply_fail(p);
}

/* The block has nothing more to give. Bytes from here on are looked at again. */
static void to_after(struct reply_parser *p)
{
    p->object.at = AFTER;
    p->object.closed = 0;
    buf_clear(&p->raw);
}

void object_enter(struct reply_parser *p, const char *mark)
{
    object_begin(p, p->format->spec, mark);
}

void object_begin(struct reply_parser *p, const struct object_spec *spec, const char *mark)
{
    p->object.spec = spec;
    reset(&p->object);
    p->object.close = strncmp(mark, "```", 3) == 0 ? "```" : p->object.spec->close;
    /* where the object's own bracket is the mark */
    char last = mark[0] ? mark[strlen(mark) - 1] : '\0';
    if (last == '{')
        p->object.at = AT_KEY;
    p->object.in_array = last == '[';
}

static enum target target_of(const char *key, size_t n)
{
    static const struct {
        const char *key;
        enum target target;
    } keys[] = {{"name", OF_NAME},
                {"tool_name", OF_NAME},
                {"arguments", OF_ARGUMENTS},
                {"parameters", OF_ARGUMENTS},
                {"id", OF_ID},
                {"tool_call_id", OF_ID},
                {"function", OF_FUNCTION},
                {"type", OF_TYPE}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (reply_is(key, n, keys[i].key))
            return keys[i].target;
    return OF_OTHER;
}

static bool member_byte(struct reply_parser *p, char c);
static bool between_byte(struct reply_parser *p, char c);
static bool after_byte(struct reply_parser *p, char c);

/* c cannot stand here. A call that has begun ends, whole if its arguments are; the rest is read as
 * what stands behind a call. */
static bool broken(struct reply_parser *p, char c)
{
    if (!p->object.begun)
        return fail_at_last(p);
    to_after(p);
    return after_byte(p, c);
}

static void begin_call(struct reply_parser *p)
{
    struct object_state *o = &p->object;
    reply_begin(p, o->name.data, o->name.len, o->id.data, o->id.len);
    o->begun = true;
}

/* Bytes of the arguments: to the client, or kept until there is a name. */
static void add_arguments(struct reply_parser *p, const char *s, size_t n)
{
    struct object_state *o = &p->object;
    if (o->begun)
        reply_arguments(p, s, n);
    else
        buf_add(&o->arguments, s, n);
    o->has_arguments |= n > 0;
}

static void arguments_are_whole(struct reply_parser *p)
{
    struct object_state *o = &p->object;
    if (!o->has_arguments)
        add_arguments(p, "{}", 2);
    o->whole = true;
    o->at = AT_COMMA;
    if (o->begun)
        reply_end(p);
}

/* {NAME: ARGUMENTS}: the key is the name. */
static bool key_is_name(struct reply_parser *p)
{
    struct object_state *o = &p->object;
    if (!reply_is_name(o->word.data, o->word.len)) {
        reply_give_back(p);
        return true;
    }
    buf_clear(&o->name);
    buf_add(&o->name, o->word.data, o->word.len);
    o->has_name = true;
    o->target = OF_ARGUMENTS;
    o->at = AT_COLON;
    return true;
}

/* A key is whole. */
static bool key_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    if (!json_unescape_byte(&o->unescape, c, &o->word))
        return true;
    if (p->object.spec->keyed && !o->has_name)
        return key_is_name(p);
    enum target t = target_of(o->word.data ? o->word.data : "", o->word.len);
    if (t == OF_OTHER && p->object.spec->bare && !o->begun) {
        reply_give_back(p); /* JSON, but no call */
        return true;
    }
    bool again = (t == OF_NAME && o->has_name) || (t == OF_ARGUMENTS && (o->whole || o->begun)) ||
                 (t == OF_FUNCTION && (o->nest > 0 || o->has_name));
    o->target = again ? OF_OTHER : (uint8_t)t;
    o->at = AT_COLON;
    return true;
}

/* The first byte of a member's value. */
static bool member_begins(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    o->scan = (struct json_scan){0};
    o->unescape = (struct json_unescape){0};
    buf_clear(&o->word);
    if (o->target == OF_FUNCTION && c == '{') {
        o->nest = 1;
        o->at = AT_KEY;
        return true;
    }
    if (o->target == OF_FUNCTION)
        o->target = OF_NAME;
    if (o->target == OF_NAME && c != '"')
        return fail_at_last(p);
    if (o->target == OF_ID && c != '"')
        o->target = OF_OTHER;
    o->at = IN_MEMBER;
    bool string = o->target == OF_NAME || o->target == OF_ID;
    o->decoded = o->target == OF_ARGUMENTS && c == '"';
    if (string || o->decoded) {
        if (o->decoded && o->has_name)
            begin_call(p);
        return true;
    }
    struct json_scan first = {0};
    if (json_scan_byte(&first, c) == SCAN_BAD) /* c is read before a call begins */
        return broken(p, c);
    if (o->target == OF_ARGUMENTS && o->has_name)
        begin_call(p);
    return member_byte(p, c);
}

/* A string that is kept. A mistaken mark in front of an essay must not hold all of it back. */
static bool word_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    bool is_name = o->target == OF_NAME;
    if (!json_unescape_byte(&o->unescape, c, &o->word)) {
        if (!is_name || o->word.len <= REPLY_MAX_NAME)
            return true;
        reply_give_back(p);
        return true;
    }
    o->at = AT_COMMA;
    struct buf *to = is_name ? &o->name : &o->id;
    buf_clear(to);
    buf_add(to, o->word.data, o->word.len);
    if (!is_name)
        return true;
    o->has_name = true;
    bool ok = reply_knows(p, to->data, to->len) ||
              (!p->object.spec->bare && reply_is_name(to->data, to->len));
    if (!ok)
        reply_give_back(p);
    return true;
}

/* Arguments inside a string: escapes that were for strings in it may be used up with its own. */
static bool decoded_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    char text[JSON_SPELL_BYTES];
    buf_clear(&o->word);
    bool end = json_unescape_byte(&o->unescape, c, &o->word);
    for (size_t i = 0; i < o->word.len; i++) {
        add_arguments(p, text, json_spell(&o->scan, o->word.data[i], text));
        (void)json_scan_byte(&o->scan, o->word.data[i]);
    }
    if (end)
        arguments_are_whole(p);
    return true;
}

/* A number or a word: known only at its end, where null turns out to be nothing. */
static void literal_ends(struct reply_parser *p)
{
    struct object_state *o = &p->object;
    if (!reply_is(o->word.data, o->word.len, "null"))
        add_arguments(p, o->word.data, o->word.len);
    arguments_are_whole(p);
}

static bool arguments_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    char text[JSON_SPELL_BYTES];
    const size_t n = json_spell(&o->scan, c, text);
    enum scan got = json_scan_byte(&o->scan, c);
    if (got == SCAN_BEFORE) {
        literal_ends(p);
        return between_byte(p, c);
    }
    if (got == SCAN_BAD)
        return broken(p, c);
    if (o->scan.literal && o->scan.depth == 0 && got == SCAN_MORE)
        buf_char(&o->word, c);
    else
        add_arguments(p, text, n);
    if (got == SCAN_LAST)
        arguments_are_whole(p);
    return true;
}

static bool other_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    enum scan got = json_scan_byte(&o->scan, c);
    if (got == SCAN_BAD)
        return broken(p, c);
    if (got == SCAN_MORE)
        return true;
    o->at = AT_COMMA;
    return got == SCAN_LAST || between_byte(p, c);
}

static bool member_byte(struct reply_parser *p, char c)
{
    switch ((enum target)p->object.target) {
    case OF_NAME:
    case OF_ID:
        return word_byte(p, c);
    case OF_ARGUMENTS:
        return p->object.decoded ? decoded_byte(p, c) : arguments_byte(p, c);
    default:
        return other_byte(p, c);
    }
}

/* '}' of a member "function", or of the call. */
static bool object_closes(struct reply_parser *p)
{
    struct object_state *o = &p->object;
    if (o->nest > 0) {
        o->nest = 0;
        o->at = AT_COMMA;
        return true;
    }
    if (!o->has_name) {
        reply_give_back(p);
        return true;
    }
    if (!o->begun) {
        begin_call(p);
        o->has_arguments = o->arguments.len > 0;
        reply_arguments(p, o->arguments.data, o->arguments.len);
        arguments_are_whole(p);
    }
    to_after(p);
    return true;
}

static void next_object(struct reply_parser *p)
{
    bool in_array = p->object.in_array;
    reset(&p->object);
    p->object.in_array = in_array;
    p->object.at = AT_KEY;
}

/* Behind an object: another one, the end of the array, the closing mark; or text again. */
static bool after_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    if (o->close && (o->closed > 0 || c == o->close[0]))
        return reply_close_byte(p, o->close, &o->closed, c);
    if (c == '{') {
        next_object(p);
    } else if (c == ']' && o->in_array) {
        o->in_array = false;
        buf_clear(&p->raw);
        if (!o->close)
            reply_leave(p);
        return true;
    } else if (!reply_is_space(c) && c != ',' && c != ';' && !(c == '}' && o->close)) {
        return reply_fail(p);
    }
    buf_char(&p->raw, c);
    return true;
}

/* Before the first object. */
static bool value_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    if (c == '{')
        o->at = AT_KEY;
    else if (c == '[' && !o->in_array)
        o->in_array = true;
    else if (!reply_is_space(c))
        return reply_fail(p);
    buf_char(&p->raw, c);
    return true;
}

/* What stands between the members. */
static bool between_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    if (reply_is_space(c))
        return true;
    if (o->at == AT_KEY && c == '"') {
        o->at = IN_KEY;
        o->unescape = (struct json_unescape){0};
        buf_clear(&o->word);
        return true;
    }
    if (o->at == AT_COLON && c == ':') {
        o->at = AT_MEMBER;
        return true;
    }
    if (o->at == AT_COMMA && c == ',') {
        o->at = AT_KEY;
        return true;
    }
    if (c == '}' && o->at != AT_COLON)
        return object_closes(p);
    return broken(p, c);
}

bool object_byte(struct reply_parser *p, char c)
{
    struct object_state *o = &p->object;
    if (o->at == AT_VALUE)
        return value_byte(p, c);
    if (o->at == AFTER)
        return after_byte(p, c);
    if (!o->begun)
        buf_char(&p->raw, c);
    switch ((enum at)o->at) {
    case IN_KEY:
        return key_byte(p, c);
    case AT_MEMBER:
        return reply_is_space(c) || member_begins(p, c);
    case IN_MEMBER:
        return member_byte(p, c);
    default:
        return between_byte(p, c);
    }
}

void object_finish(struct reply_parser *p)
{
    struct object_state *o = &p->object;
    if (o->at == AFTER)
        reply_leave(p); /* separators, or part of the closing mark */
    else if (!o->begun)
        reply_give_back(p);
    else if (o->at == IN_MEMBER && o->target == OF_ARGUMENTS && !o->whole)
        add_arguments(p, o->word.data, o->scan.literal ? o->word.len : 0);
}
