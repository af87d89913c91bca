/* The phases of a reply, and what all formats share. */
#include "base/mem.h"
#include "chat/reply/internal.h"
#include "grammar/json_pointer.h"

#include <stdlib.h>
#include <string.h>

/* ---- events ---- */

static void give(struct reply_parser *p, const struct reply_event *ev)
{
    bool of_call = ev->kind >= REPLY_CALL_BEGIN;
    bool left_out =
        of_call ? p->one_call && p->n_calls > 1 : p->no_thoughts && ev->kind == REPLY_REASONING;
    if (!left_out)
        p->fn(p->ctx, ev);
}

static void flush(struct reply_parser *p)
{
    if (p->out.len == 0)
        return;
    const struct reply_event ev = {.kind = p->out_kind,
                                   .call = p->n_calls > 0 ? p->n_calls - 1 : 0,
                                   .text = p->out.data,
                                   .n = p->out.len};
    give(p, &ev);
    buf_clear(&p->out);
}

static void put(struct reply_parser *p, enum reply_kind kind, const char *s, size_t n)
{
    if (n == 0)
        return;
    if (p->out_kind != kind)
        flush(p);
    p->out_kind = kind;
    buf_add(&p->out, s, n);
}

void reply_reasoning(struct reply_parser *p, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (reply_is_space(s[i])) {
            buf_char(&p->space, s[i]);
            continue;
        }
        if (p->thought) /* what stands before the first word belongs to the mark */
            put(p, REPLY_REASONING, p->space.data, p->space.len);
        buf_clear(&p->space);
        p->thought = true;
        put(p, REPLY_REASONING, s + i, 1);
    }
}

void reply_content(struct reply_parser *p, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool waits = !p->begun || p->calls_wanted || p->in_answer;
        if (waits && reply_is_space(s[i])) {
            buf_char(&p->space, s[i]);
            continue;
        }
        if (p->begun || !(p->thought || p->in_answer))
            put(p, REPLY_CONTENT, p->space.data, p->space.len);
        buf_clear(&p->space);
        p->begun = true;
        p->answered = false;
        p->after_call = false;
        put(p, REPLY_CONTENT, s + i, 1);
    }
}

void reply_leave(struct reply_parser *p)
{
    p->phase = p->format->no_text ? PHASE_CALL : PHASE_TEXT;
    p->left = true;
    buf_clear(&p->raw);
}

void reply_give_back(struct reply_parser *p)
{
    p->phase = p->format->no_text ? PHASE_CALL : p->in_thought ? PHASE_THINKING : PHASE_TEXT;
    if (p->in_thought)
        reply_reasoning(p, p->raw.data, p->raw.len);
    else
        reply_content(p, p->raw.data, p->raw.len);
    p->in_thought = false;
    buf_clear(&p->raw);
}

bool reply_fail(struct reply_parser *p)
{
    reply_give_back(p);
    return false;
}

void reply_begin(struct reply_parser *p, const char *name, size_t n, const char *id, size_t n_id)
{
    flush(p);
    buf_clear(&p->space);
    buf_clear(&p->raw);
    p->in_thought = false;
    p->begun = p->after_call = true;
    p->n_calls++;
    const struct reply_event ev = {.kind = REPLY_CALL_BEGIN,
                                   .call = p->n_calls - 1,
                                   .text = name,
                                   .n = n,
                                   .id = n_id ? id : NULL,
                                   .n_id = n_id};
    give(p, &ev);
}

void reply_arguments(struct reply_parser *p, const char *s, size_t n)
{
    put(p, REPLY_CALL_ARGUMENTS, s, n);
}

void reply_end(struct reply_parser *p)
{
    flush(p);
    p->n_whole++;
    const struct reply_event ev = {.kind = REPLY_CALL_END, .call = p->n_calls - 1};
    give(p, &ev);
}

void reply_escaped(struct reply_parser *p, const char *s, size_t n)
{
    struct buf escaped = {0};
    json_text_escape(&escaped, s, n);
    reply_arguments(p, escaped.data, escaped.len);
    buf_deinit(&escaped);
}

enum scan reply_json_byte(struct reply_parser *p, struct json_scan *scan, char c)
{
    char text[JSON_SPELL_BYTES];
    const size_t n = json_spell(scan, c, text);
    enum scan got = json_scan_byte(scan, c);
    if (got != SCAN_BAD)
        reply_arguments(p, text, n);
    if (got == SCAN_LAST)
        reply_end(p);
    return got;
}

bool reply_close_byte(struct reply_parser *p, const char *close, size_t *closed, char c)
{
    if (close[*closed] != c)
        return reply_fail(p);
    buf_char(&p->raw, c);
    if (close[++*closed] == '\0')
        reply_leave(p);
    return true;
}

/* ---- tools ---- */

static const json_t *find_tool(const struct reply_parser *p, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *f = json_object_get(json_array_get(p->tools, i), "function");
        const json_t *v = json_object_get(f, "name");
        if (json_string_length(v) == n && n > 0 && memcmp(json_string_value(v), name, n) == 0)
            return f;
    }
    return NULL;
}

bool reply_knows(const struct reply_parser *p, const char *name, size_t n)
{
    return find_tool(p, name, n) != NULL;
}

bool reply_is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '-' || c == '.' || c == ':';
        if (!ok)
            return false;
    }
    return n > 0 && n <= REPLY_MAX_NAME;
}

const char *reply_property(const struct reply_parser *p, const char *tool, size_t i)
{
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(reply_parameters(p, tool), "properties"), key, v)
    {
        if (i-- == 0)
            return key;
    }
    return NULL;
}

const json_t *reply_resolve(const json_t *root, const json_t *schema)
{
    for (int i = 0; i < 8; i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        const json_t *at = ref ? json_pointer(root, json_local_ref(root, ref)) : NULL;
        if (!at)
            break;
        schema = at;
    }
    return schema;
}

enum { FIND_DEPTH = 4 };

/* A search for properties in a schema or in what it is made of. */
struct search {
    const json_t *root;
    const char *key;     /* the property's name; NULL: all of them */
    uint32_t left;       /* more schemas to look at: options that refer to one another are many more
                            than they are long */
    const json_t *found; /* the first with the name */
    json_t *all;         /* the first of each name, without a name */
};

/* What a property found `depth` above the last level refers to. */
static const json_t *resolve_found(const struct search *s, const json_t *found, int depth)
{
    for (int i = depth; i <= FIND_DEPTH; i++)
        found = reply_resolve(s->root, found);
    return found;
}

static void search_own(struct search *s, const json_t *properties, int depth)
{
    const char *key;
    json_t *v;
    if (s->key) {
        v = json_object_get(properties, s->key);
        s->found = v ? resolve_found(s, v, depth) : NULL;
        return;
    }
    json_object_foreach((json_t *)properties, key, v)
    {
        if (!json_object_get(s->all, key))
            json_object_set(s->all, key, (json_t *)resolve_found(s, v, depth));
    }
}

static void search(struct search *s, const json_t *schema, int depth)
{
    static const char *const parts[] = {"allOf", "anyOf", "oneOf"}, *const more[] = {"then",
                                                                                     "else"};
    if (s->left == 0 || s->found)
        return;
    s->left--;
    schema = reply_resolve(s->root, schema);
    search_own(s, json_object_get(schema, "properties"), depth);
    for (size_t k = 0; k < 3 && depth > 0; k++) {
        const json_t *list = json_object_get(schema, parts[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            search(s, json_array_get(list, i), depth - 1);
    }
    for (size_t k = 0; k < 2 && depth > 0; k++)
        if (json_object_get(schema, more[k]))
            search(s, json_object_get(schema, more[k]), depth - 1);
}

json_t *reply_all_properties(const json_t *root, const json_t *schema)
{
    struct search s = {.root = root, .left = REPLY_MAX_SCHEMAS, .all = json_object()};
    search(&s, schema, FIND_DEPTH);
    return s.all;
}

const json_t *reply_parameters(const struct reply_parser *p, const char *tool)
{
    return json_object_get(find_tool(p, tool, strlen(tool)), "parameters");
}

const json_t *reply_member(const json_t *root, const json_t *schema, const char *key)
{
    struct search s = {.root = root, .key = key, .left = REPLY_MAX_SCHEMAS};
    search(&s, schema, FIND_DEPTH);
    return s.found;
}

const json_t *reply_items(const json_t *root, const json_t *schema)
{
    static const char *const parts[] = {"anyOf", "oneOf", "allOf"};
    schema = reply_resolve(root, schema);
    const json_t *items = json_object_get(schema, "items");
    for (size_t k = 0; !items && k < 3; k++) {
        const json_t *list = json_object_get(schema, parts[k]);
        for (size_t i = 0; !items && i < json_array_size(list) && i < REPLY_MAX_SCHEMAS; i++)
            items = json_object_get(reply_resolve(root, json_array_get(list, i)), "items");
    }
    return items;
}

const json_t *reply_parameter(const struct reply_parser *p, const char *tool, const char *key)
{
    const json_t *root = reply_parameters(p, tool);
    return reply_member(root, root, key);
}

/* ---- marks ---- */

bool reply_raw_ends(const struct reply_parser *p, const char *s)
{
    size_t n = strlen(s);
    return p->raw.len >= n && memcmp(p->raw.data + p->raw.len - n, s, n) == 0;
}

bool reply_starts(const char *whole, const char *s, size_t n)
{
    return reply_match(whole, s, n) != MATCH_NONE;
}

static enum match match(const struct buf *held, const char *mark)
{
    return reply_match(mark, held->data, held->len);
}

/* Reasoning opens only where a reply begins: elsewhere the mark is being talked about. */
static bool may_think(const struct reply_parser *p)
{
    return p->thoughts && !p->begun && !p->thought && p->may_think;
}

static void open_thoughts(struct reply_parser *p)
{
    buf_clear(&p->held);
    buf_clear(&p->space);
    p->may_think = false;
    p->phase = PHASE_THINKING;
}

static void close_thoughts(struct reply_parser *p)
{
    buf_clear(&p->held);
    buf_clear(&p->space);
    p->phase = PHASE_TEXT;
    p->thought = true; /* what follows has white space of the mark before it, reasoning or not */
}

static void enter(struct reply_parser *p, const char *mark)
{
    buf_clear(&p->held);
    buf_clear(&p->raw);
    buf_str(&p->raw, mark);
    p->in_thought = p->phase == PHASE_THINKING;
    p->phase = PHASE_CALL;
    if (p->format->enter)
        p->format->enter(p, mark);
}

static bool may_open(const struct reply_parser *p, const struct reply_mark *m)
{
    return m->text && !(m->at_start && p->begun);
}

/* Is what is held a mark around content? MATCH_WHOLE: it was, and is gone. */
static enum match try_drop(struct reply_parser *p)
{
    enum match best = MATCH_NONE;
    for (size_t i = 0; p->drop && i < REPLY_MAX_DROPS; i++) {
        enum match got = may_open(p, &p->drop[i]) ? match(&p->held, p->drop[i].text) : MATCH_NONE;
        best = reply_better(best, got);
    }
    if (best == MATCH_WHOLE)
        buf_clear(&p->held);
    return best;
}

/* Is what is held a mark around the answer? MATCH_WHOLE: it was, and is gone; the one behind the
 * answer comes back if the answer goes on. */
static enum match try_answer(struct reply_parser *p)
{
    bool opens = (p->thought || p->closed) && !p->begun && !p->in_answer;
    if (!p->answer || !p->answer[0] || !(opens || p->in_answer))
        return MATCH_NONE;
    enum match got = match(&p->held, p->answer[!opens]);
    if (got != MATCH_WHOLE)
        return got;
    p->answered = p->in_answer;
    p->in_answer = true;
    if (p->answered)
        buf_add(&p->space, p->held.data, p->held.len);
    buf_clear(&p->held);
    return got;
}

/* Does what is held open a call? MATCH_WHOLE: it did, and the phase is another. */
static enum match try_call(struct reply_parser *p)
{
    enum match best = MATCH_NONE;
    for (size_t i = 0; p->calls_wanted && i < REPLY_MAX_MARKS; i++) {
        const struct reply_mark *m = &p->format->open[i];
        if (!may_open(p, m))
            continue;
        enum match got = match(&p->held, m->text);
        if (got == MATCH_WHOLE) {
            enter(p, m->text);
            return got;
        }
        best = reply_better(best, got);
    }
    return best;
}

/* The same of everything that may be opened in text. */
static enum match try_open(struct reply_parser *p)
{
    enum match best = MATCH_NONE;
    if (may_think(p)) {
        enum match opens = match(&p->held, p->thoughts->open);
        enum match closes = match(&p->held, p->thoughts->close); /* what was not opened */
        if (opens == MATCH_WHOLE)
            open_thoughts(p);
        else if (closes == MATCH_WHOLE)
            close_thoughts(p);
        best = reply_better(opens, closes);
        if (best == MATCH_WHOLE)
            return best;
    }
    best = reply_better(best, try_answer(p));
    best = best == MATCH_WHOLE ? best : reply_better(best, try_drop(p));
    return best == MATCH_WHOLE ? best : reply_better(best, try_call(p));
}

static enum match try_close(struct reply_parser *p)
{
    enum match got = match(&p->held, p->thoughts->close);
    if (got == MATCH_WHOLE)
        close_thoughts(p);
    enum match again = p->thought ? MATCH_NONE : match(&p->held, p->thoughts->open);
    if (again == MATCH_WHOLE) /* it is open already */
        open_thoughts(p);
    got = reply_better(got, again);
    bool calls = got != MATCH_WHOLE && p->format && p->format->calls_end_thoughts;
    return calls ? reply_better(got, try_call(p)) : got;
}

/* One byte of text or reasoning. What is held is let go from the front until it may be a mark. */
static void text_byte(struct reply_parser *p, char c)
{
    bool thinking = p->phase == PHASE_THINKING;
    buf_char(&p->held, c);
    while (p->held.len > 0) {
        enum match got = thinking ? try_close(p) : try_open(p);
        if (got != MATCH_NONE)
            return;
        char first = reply_take_first(&p->held);
        if (thinking)
            reply_reasoning(p, &first, 1);
        else
            reply_content(p, &first, 1);
    }
}

static void byte(struct reply_parser *p, char c)
{
    while (p->phase == PHASE_CALL)
        if (p->format->byte(p, c))
            return;
    text_byte(p, c);
}

void reply_feed(struct reply_parser *p, const char *s, size_t n, reply_event_fn fn, void *ctx)
{
    p->fn = fn;
    p->ctx = ctx;
    for (size_t i = 0; i < n; i++)
        byte(p, s[i]);
    flush(p);
}

void reply_finish(struct reply_parser *p, bool cut, reply_event_fn fn, void *ctx)
{
    p->fn = fn;
    p->ctx = ctx;
    p->cut = cut;
    if (p->phase == PHASE_CALL && p->format->finish)
        p->format->finish(p);
    if (p->phase == PHASE_THINKING) {
        reply_reasoning(p, p->held.data, p->held.len);
        if (p->thought)
            put(p, REPLY_REASONING, p->space.data, p->space.len);
    } else {
        reply_content(p, p->held.data, p->held.len);
        if (!p->answered && (p->begun ? !p->after_call : !p->thought))
            put(p, REPLY_CONTENT, p->space.data, p->space.len);
    }
    buf_clear(&p->held);
    buf_clear(&p->space);
    flush(p);
}

/* ---- life ---- */

struct reply_parser *reply_create(const struct reply_config *cfg)
{
    const struct reply_format *f = cfg->style.format;
    const struct reply_thoughts *thoughts = cfg->thoughts_stay ? NULL : cfg->style.thoughts;
    bool wanted = f && cfg->tools;
    if (!wanted && !thoughts && !(f && (f->no_text || f->drop[0].text)))
        return NULL;
    struct reply_parser *p = mem_zalloc(1, sizeof *p);
    p->calls_wanted = wanted;
    p->format = wanted || (f && f->no_text) ? f : NULL;
    p->drop = f ? f->drop : NULL;
    p->answer = f ? f->answer : NULL;
    p->thoughts = thoughts;
    p->tools = cfg->tools;
    p->one_call = cfg->one_call;
    p->no_thoughts = cfg->no_thoughts;
    p->phase = cfg->start.thinking && p->thoughts ? PHASE_THINKING : PHASE_TEXT;
    p->may_think = p->phase == PHASE_TEXT;
    p->closed = cfg->start.thought;
    if (p->phase == PHASE_TEXT && p->format && p->format->no_text)
        enter(p, "");
    return p;
}

void reply_destroy(struct reply_parser *p)
{
    if (!p)
        return;
    struct buf *const bufs[] = {&p->out,
                                &p->held,
                                &p->space,
                                &p->raw,
                                &p->object.word,
                                &p->object.name,
                                &p->object.id,
                                &p->object.arguments,
                                &p->nested.name,
                                &p->nested.tags,
                                &p->nested.value,
                                &p->loose.stack,
                                &p->loose.name,
                                &p->loose.word,
                                &p->tagged.name,
                                &p->tagged.key,
                                &p->tagged.value};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        buf_deinit(bufs[i]);
    free(p);
}

/* Is it the mark, or a part of one that several tokens make up? */
static bool is_of(const char *mark, const char *token, size_t n)
{
    return mark && n > 0 && memmem(mark, strlen(mark), token, n) != NULL;
}

bool reply_reads(const struct reply_parser *p, const char *token, size_t n)
{
    bool reads =
        p->thoughts && (is_of(p->thoughts->open, token, n) || is_of(p->thoughts->close, token, n));
    for (size_t i = 0; p->drop && i < REPLY_MAX_DROPS; i++)
        reads |= is_of(p->drop[i].text, token, n);
    for (size_t i = 0; p->format && i < REPLY_MAX_MARKS; i++)
        reads |= is_of(p->format->open[i].text, token, n) || is_of(p->format->tokens[i], token, n);
    return reads;
}

bool reply_reasons(const struct reply_parser *p)
{
    if (p->phase != PHASE_CALL)
        return p->phase == PHASE_THINKING;
    return p->in_thought || (p->format->reasons && p->format->reasons(p));
}

bool reply_called(const struct reply_parser *p)
{
    return p->n_calls > 0 && (p->n_whole == p->n_calls || (p->one_call && p->n_whole > 0));
}
