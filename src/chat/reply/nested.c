/* Calls with a tag for each argument, and tags within values: MiniMax M3.
 *
 *      MARK<tool_call>
 *      MARK<invoke name="f">MARK<city>Oslo MARK</city>MARK<days>MARK<item>1 MARK</item>MARK</days>
 *      MARK</invoke>
 *      MARK</tool_call>
 *
 * (without the spaces): an argument's name is its tag, an object has a tag for each member, an
 * array a tag "item" for each of its own. What JSON a value means follows from its schema as in
 * tagged.c; strings go out as they come, and so do the brackets. A value ends at its own closing
 * tag alone; tags are looked for in it only where no text has come and its schema says more than
 * string. */
#include "chat/reply/internal.h"

#include <string.h>

#define MARK "]<]minimax[>["

enum at { BEFORE_CALL, IN_CALL, IN_VALUE };
enum kind { UNKNOWN, OBJECT, ARRAY };

static const char open_tag[] = MARK "<", call_tag[] = "invoke name=\"", item[] = "item";

static const json_t *root_of(const struct reply_parser *p)
{
    return reply_parameters(p, buf_cstr((struct buf *)&p->nested.name));
}

/* The innermost element that is open. */
static struct nested_element *top_of(struct reply_parser *p)
{
    return &p->nested.open[p->nested.depth];
}

static const char *name_of(const struct reply_parser *p)
{
    return p->nested.tags.data + p->nested.open[p->nested.depth].name_at;
}

/* ---- calls and elements ---- */

void nested_enter(struct reply_parser *p, const char *mark)
{
    (void)mark;
    p->nested.at = BEFORE_CALL;
    p->nested.any = p->nested.begun = false;
    p->nested.mark_at = p->raw.len;
}

static void call_begins(struct reply_parser *p)
{
    struct nested_state *t = &p->nested;
    t->any = t->begun = true;
    t->depth = 0;
    t->open[0] = (struct nested_element){.schema = root_of(p), .kind = OBJECT, .first = true};
    buf_clear(&t->tags);
    reply_begin(p, t->name.data, t->name.len, NULL, 0);
}

static void call_ends(struct reply_parser *p)
{
    if (!p->nested.begun)
        call_begins(p);
    reply_arguments(p, top_of(p)->first ? "{}" : "}", top_of(p)->first ? 2 : 1);
    reply_end(p);
    p->nested.begun = false;
    p->nested.at = BEFORE_CALL;
}

/* A tag within the innermost element opens another. */
static bool element_opens(struct reply_parser *p, const char *s, size_t n)
{
    struct nested_state *t = &p->nested;
    struct nested_element *parent = top_of(p), *own = parent + 1;
    const bool array = parent->kind == ARRAY;
    if (t->depth + 1 >= NESTED_MAX_DEPTH)
        return false;
    buf_clear(&t->value);
    buf_add(&t->value, s, n); /* the key */
    reply_arguments(p, parent->first ? (array ? "[" : "{") : ", ", parent->first ? 1 : 2);
    if (!array) {
        reply_arguments(p, "\"", 1);
        reply_escaped(p, s, n);
        reply_arguments(p, "\": ", 3);
    }
    parent->first = false;
    *own = (struct nested_element){
        .schema = array ? reply_items(root_of(p), parent->schema)
                        : reply_member(root_of(p), parent->schema, buf_cstr(&t->value)),
        .first = true,
        .name_at = t->tags.len};
    buf_add(&t->tags, s, n);
    buf_char(&t->tags, '\0');
    t->depth++;
    t->at = IN_VALUE;
    t->blank = true;
    t->is_text = reply_only_string(root_of(p), own->schema);
    reply_arguments(p, "\"", t->is_text);
    buf_clear(&t->value);
    return true;
}

static void element_closes(struct reply_parser *p)
{
    p->nested.tags.len = top_of(p)->name_at;
    p->nested.depth--;
    p->nested.at = IN_CALL;
}

/* ---- values ---- */

/* What it is in which the first tag is s[0..n). */
static enum kind kind_of(const struct reply_parser *p,
                         const json_t *schema,
                         const char *s,
                         size_t n)
{
    const uint32_t types = reply_types(root_of(p), schema);
    if (!(types & TYPE_ARRAY))
        return OBJECT;
    return reply_is(s, n, item) || !(types & TYPE_OBJECT) ? ARRAY : OBJECT;
}

static void put_value(struct reply_parser *p)
{
    const struct nested_state *t = &p->nested;
    const json_t *schema = top_of(p)->schema;
    const uint32_t types = reply_types(root_of(p), schema);
    struct buf json = {0};
    if (t->value.len > 0 || types & TYPE_STRING)
        reply_value_json(root_of(p), schema, t->value.data, t->value.len, &json);
    else
        buf_str(&json,
                types & TYPE_OBJECT  ? "{}"
                : types & TYPE_ARRAY ? "[]"
                : types & TYPE_NULL  ? "null"
                                     : "\"\"");
    reply_arguments(p, json.data, json.len);
    buf_deinit(&json);
}

static void value_ends(struct reply_parser *p)
{
    if (p->nested.is_text)
        reply_arguments(p, "\"", 1);
    else
        put_value(p);
    element_closes(p);
    buf_clear(&p->raw);
    p->nested.mark_at = 0;
}

static void add_value(struct reply_parser *p, char c)
{
    p->nested.blank &= reply_is_space(c);
    if (p->nested.is_text)
        reply_escaped(p, &c, 1);
    else
        buf_char(&p->nested.value, c);
}

/* Is the value's closing tag at the beginning of raw? */
static enum match closing(const struct reply_parser *p)
{
    const size_t n_open = sizeof open_tag - 1, n = p->raw.len;
    const char *name = name_of(p), *s = p->raw.data;
    if (n <= n_open)
        return reply_starts(open_tag, s, n) ? MATCH_PART : MATCH_NONE;
    const size_t n_name = strlen(name), n_rest = n - n_open - 1;
    if (memcmp(s, open_tag, n_open) != 0 || s[n_open] != '/' ||
        memcmp(s + n_open + 1, name, n_rest < n_name ? n_rest : n_name) != 0)
        return MATCH_NONE;
    if (n_rest <= n_name)
        return MATCH_PART;
    return s[n - 1] == '>' ? MATCH_WHOLE : MATCH_NONE;
}

/* A tag that opens an element there? */
static enum match opening(const struct reply_parser *p)
{
    const size_t n_open = sizeof open_tag - 1, n = p->raw.len;
    const char *s = p->raw.data, last = s[n - 1];
    if (p->nested.is_text || !p->nested.blank)
        return MATCH_NONE;
    if (n <= n_open)
        return reply_starts(open_tag, s, n) ? MATCH_PART : MATCH_NONE;
    if (memcmp(s, open_tag, n_open) != 0 || s[n_open] == '/' || n > REPLY_MAX_HEAD || last == '\n')
        return MATCH_NONE;
    return last != '>' ? MATCH_PART : n > n_open + 1 ? MATCH_WHOLE : MATCH_NONE;
}

static bool value_byte(struct reply_parser *p, char c)
{
    const size_t n_open = sizeof open_tag - 1;
    buf_char(&p->raw, c);
    while (p->raw.len > 0) {
        const enum match closes = closing(p), opens = opening(p);
        if (closes == MATCH_WHOLE) {
            value_ends(p);
            return true;
        }
        if (opens == MATCH_WHOLE) {
            const char *tag = p->raw.data + n_open;
            const size_t n = p->raw.len - n_open - 1;
            top_of(p)->kind = kind_of(p, top_of(p)->schema, tag, n);
            if (element_opens(p, tag, n)) {
                buf_clear(&p->raw);
                return true;
            }
        } else if (closes == MATCH_PART || opens == MATCH_PART) {
            return true;
        }
        add_value(p, reply_take_first(&p->raw));
    }
    return true;
}

/* ---- tags ---- */

/* The byte at hand, last in raw, cannot stand here: what is not part of a call is text again. A
 * call of which an argument was begun is not whole. */
static bool fail_at_last(struct reply_parser *p)
{
    p->raw.len--;
    if (p->nested.begun && p->nested.depth == 0)
        call_ends(p);
    reply_give_back(p);
    return false;
}

/* A tag before or behind a call; false: it cannot stand there. */
static bool outer_tag(struct reply_parser *p, const char *s, size_t n)
{
    const size_t n_call = sizeof call_tag - 1;
    if (reply_is(s, n, "/tool_call")) {
        if (p->nested.any)
            reply_leave(p);
        return p->nested.any;
    }
    if (n < n_call + 2 || memcmp(s, call_tag, n_call) != 0 || s[n - 1] != '"' ||
        !reply_is_name(s + n_call, n - n_call - 1))
        return false;
    buf_clear(&p->nested.name);
    buf_add(&p->nested.name, s + n_call, n - n_call - 1);
    p->nested.at = IN_CALL;
    return true;
}

/* A tag of the block where an argument or the call's end was expected: the call ends before it. */
static bool tag_behind(struct reply_parser *p, const char *s, size_t n)
{
    struct buf tag = {0};
    buf_str(&tag, open_tag);
    buf_add(&tag, s, n);
    buf_char(&tag, '>');
    call_ends(p);
    buf_clear(&p->raw);
    buf_add(&p->raw, tag.data, tag.len);
    buf_deinit(&tag);
    return outer_tag(p, p->raw.data + sizeof open_tag - 1, n);
}

/* The tag of an argument. A call begins here, for only now it is sure to be one. */
static bool argument_tag(struct reply_parser *p, const char *s, size_t n)
{
    struct buf key = {0};
    buf_add(&key, s, n);
    if (!p->nested.begun)
        call_begins(p);
    const bool ok = element_opens(p, key.data, n);
    buf_deinit(&key);
    return ok;
}

/* A tag between arguments, or between the elements of a value. */
static bool inner_tag(struct reply_parser *p, const char *s, size_t n)
{
    const bool closes = s[0] == '/';
    if (p->nested.begun && p->nested.depth > 0) {
        if (!closes)
            return element_opens(p, s, n);
        if (!reply_is(s + 1, n - 1, name_of(p)))
            return false;
        reply_arguments(p, top_of(p)->kind == ARRAY ? "]" : "}", 1);
        element_closes(p);
        return true;
    }
    if (reply_is(s, n, "/invoke")) {
        call_ends(p);
        return true;
    }
    if (reply_is(s, n, "/tool_call") || (n > sizeof call_tag && memcmp(s, call_tag, 7) == 0))
        return tag_behind(p, s, n);
    return !closes && argument_tag(p, s, n);
}

/* White space, then a tag. */
static bool tag_byte(struct reply_parser *p, char c)
{
    struct nested_state *t = &p->nested;
    const size_t n_open = sizeof open_tag - 1;
    buf_char(&p->raw, c);
    const size_t from = reply_skip_space(p->raw.data, t->mark_at, p->raw.len);
    const char *s = p->raw.data + from;
    const size_t n = p->raw.len - from;
    if (p->raw.len - t->mark_at > REPLY_MAX_HEAD || (n > n_open && c == '\n') ||
        !reply_starts(open_tag, s, n < n_open ? n : n_open))
        return fail_at_last(p);
    if (n <= n_open || c != '>')
        return true;
    const size_t n_tag = n - n_open - 1;
    if (n_tag == 0 || !(t->at == BEFORE_CALL ? outer_tag : inner_tag)(p, s + n_open, n_tag))
        return fail_at_last(p);
    if (t->begun || t->at == BEFORE_CALL) /* else it may be text yet */
        buf_clear(&p->raw);
    t->mark_at = p->raw.len;
    return true;
}

bool nested_byte(struct reply_parser *p, char c)
{
    return p->nested.at == IN_VALUE ? value_byte(p, c) : tag_byte(p, c);
}

void nested_finish(struct reply_parser *p)
{
    struct nested_state *t = &p->nested;
    if (t->at == IN_VALUE) { /* what there is of it */
        for (size_t i = 0; i < p->raw.len; i++)
            add_value(p, p->raw.data[i]);
        if (!t->is_text)
            reply_arguments(p, t->value.data, t->value.len);
    } else if (t->begun && t->depth == 0 && !p->cut) {
        call_ends(p); /* only the closing tags are missing */
    } else if (!t->begun && (t->at == IN_CALL || !t->any)) {
        reply_give_back(p);
    }
}
