/* Replies that make calls, of the frames that the formats have (frames.c), with reasoning and
 * content around them. */
#include "chat/reply/frame.h"
#include "chat/reply/internal.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The control token with exactly this text, or -1. */
static int32_t token_of(const struct maker *m, const char *s)
{
    return m->r->token ? m->r->token(m->r->ctx, s, strlen(s)) : -1;
}

/* The first control token in s, the longest there, or -1: where and how long it is. */
static int32_t find_token(const struct maker *m, const char *s, size_t *at, size_t *n)
{
    size_t n_s = m->r->token ? strlen(s) : 0;
    for (*at = 0; *at < n_s; ++*at)
        for (*n = n_s - *at; *n > 1; --*n) {
            int32_t id = m->r->token(m->r->ctx, s + *at, *n);
            if (id >= 0)
                return id;
        }
    return -1;
}

/* Text in which control tokens of the model are those tokens. */
static grammar_node text_piece(const struct maker *m, const char *s)
{
    size_t at, n;
    int32_t id = find_token(m, s, &at, &n);
    if (id < 0)
        return grammar_literal(m->b, s, strlen(s));
    grammar_node before = grammar_literal(m->b, s, at), token = grammar_token(m->b, id);
    return SEQ(m->b, before, token, text_piece(m, s + at + n));
}

grammar_node frame_piece(const struct maker *m, const char *s)
{
    static const struct grammar_text types[] = {
        {"number", 6}, {"boolean", 7}, {"null", 4}, {"object", 6}, {"array", 5}};
    if (m->name && strcmp(s, "@") == 0)
        return grammar_literal(m->b, m->name, strlen(m->name));
    if (strcmp(s, "#") == 0)
        return grammar_repeat(m->b, grammar_byte_range(m->b, '0', '9'), 1, 3);
    if (strcmp(s, "~") == 0)
        return grammar_optional(m->b, grammar_literal(m->b, "\n", 1));
    if (strcmp(s, "?") == 0)
        return grammar_choice(m->b, sizeof types / sizeof types[0], types);
    return text_piece(m, s);
}

grammar_node frame_pieces_from(const struct maker *m, const char *const *texts, size_t from)
{
    grammar_node nodes[MAX_PIECES];
    uint32_t n = 0;
    for (size_t i = from; i < MAX_PIECES && texts[i]; i++)
        nodes[n++] = frame_piece(m, texts[i]);
    return n ? grammar_seq(m->b, n, nodes) : grammar_empty(m->b);
}

grammar_node frame_pieces(const struct maker *m, const char *const *texts)
{
    return frame_pieces_from(m, texts, 0);
}

/* Free text without any of ban[MAX_BANS] up to a mark, behind which `tail` comes; `ends`: it may
 * end without. */
static grammar_node scan_until(
    const struct maker *m, const char *mark, grammar_node tail, const char *const *ban, bool ends)
{
    struct grammar_text triggers[1 + MAX_BANS] = {{mark, strlen(mark)}};
    grammar_node tails[1 + MAX_BANS] = {tail};
    uint32_t n = 1;
    for (size_t i = 0; ban && i < MAX_BANS; i++) {
        if (!ban[i])
            continue;
        triggers[n] = (struct grammar_text){ban[i], strlen(ban[i])};
        tails[n++] = grammar_never(m->b);
    }
    return grammar_scan(m->b, n, triggers, tails, ends);
}

/* The same in which the mark does not come. One that is a control token could be spelt out in other
 * tokens, and would be read as the mark. */
static grammar_node text_without(const struct maker *m, const char *mark, const char *const *ban)
{
    return scan_until(m, mark, grammar_never(m->b), ban, true);
}

grammar_node frame_text_until(const struct maker *m, const char *mark, const char *const *ban)
{
    size_t at, n;
    if (find_token(m, mark, &at, &n) >= 0 && at == 0)
        return SEQ(m->b, text_without(m, mark, ban), text_piece(m, mark));
    return scan_until(m, mark, grammar_empty(m->b), ban, false);
}

/* ---- calls ---- */

static grammar_node call_of(const struct maker *m, size_t i)
{
    const json_t *function = json_object_get(json_array_get(m->r->tools, i), "function");
    const json_t *schema = json_object_get(function, "parameters");
    const char *name = json_string_value(json_object_get(function, "name"));
    bool free = !m->r->required && !(m->r->strict && m->r->strict[i]);
    const struct maker own = {m->r, m->b, m->f, name, schema};
    grammar_node arguments = frame_arguments(&own, schema, i, free);
    return SEQ(m->b,
               grammar_literal(m->b, name, strlen(name)),
               frame_pieces(&own, m->f->args),
               arguments,
               frame_pieces(m, m->f->close));
}

/* A name and what follows it, of any tool that may be called. */
static grammar_node any_call(const struct maker *m)
{
    size_t n = json_array_size(m->r->tools);
    grammar_node *calls = mem_zalloc(n + 1, sizeof *calls);
    uint32_t n_calls = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_object_get(json_array_get(m->r->tools, i), "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        if (name && (!m->r->only || strcmp(name, m->r->only) == 0))
            calls[n_calls++] = call_of(m, i);
    }
    grammar_node node = n_calls ? grammar_alt(m->b, n_calls, calls) : grammar_never(m->b);
    free(calls);
    return node;
}

/* The block behind its first piece, which is the block's, or the call's where blocks have none. */
static grammar_node block_behind_first(const struct maker *m)
{
    const struct frame *f = m->f;
    grammar_node call = any_call(m);
    size_t in_open = f->open[0] != NULL, in_name = !in_open && f->name[0];
    grammar_node node = SEQ(
        m->b, frame_pieces_from(m, f->open, in_open), frame_pieces_from(m, f->name, in_name), call);
    if (m->r->parallel && f->between[0]) {
        grammar_node next = SEQ(m->b, frame_pieces(m, f->between), frame_pieces(m, f->name), call);
        node = SEQ(m->b, node, grammar_repeat(m->b, next, 0, GRAMMAR_NO_LIMIT));
    }
    return SEQ(m->b, node, frame_pieces(m, f->end));
}

static const char *first_piece(const struct frame *f)
{
    return f->open[0] ? f->open[0] : f->name[0];
}

/* Sections of a reply: content, whose section is there without any too, is before calls. */
static const struct section {
    const char *format, *open[MAX_PIECES], *close[MAX_PIECES], *end[MAX_PIECES]; /* end: of all */
} sections[] = {
    {.format = "kimi-k3",
     .open = {"<|open|>response<|sep|>"},
     .close = {"<|close|>", "response<|sep|>"},
     .end = {"<|close|>message<|sep|>"}},
};

/* NULL: the format has none. */
static const struct section *section_of(const struct maker *m)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strcmp(sections[i].format, reply_format_name(m->r->style.format)) == 0)
            return &sections[i];
    return NULL;
}

/* What ends content, then calls, and the reply; calls may be grammar_empty. */
static grammar_node section_then(const struct maker *m, const struct section *s, grammar_node calls)
{
    return SEQ(
        m->b, frame_pieces(m, s->close), calls, grammar_optional(m->b, frame_pieces(m, s->end)));
}

static grammar_node block(const struct maker *m)
{
    const char *first = first_piece(m->f);
    grammar_node rest = block_behind_first(m);
    return first ? SEQ(m->b, frame_piece(m, first), rest) : rest;
}

static grammar_node required_block(const struct maker *m)
{
    const struct section *s = section_of(m);
    if (!s)
        return block(m);
    return SEQ(
        m->b, grammar_optional(m->b, frame_pieces(m, s->open)), section_then(m, s, block(m)));
}

/* Text in its section, and then calls or none. */
static grammar_node section_block(const struct maker *m, const struct section *s)
{
    const char *const ban[MAX_BANS] = {"<|open|>"};
    grammar_node then = grammar_optional(m->b, block(m));
    return SEQ(m->b,
               grammar_optional(m->b, frame_pieces(m, s->open)),
               frame_text_until(m, s->close[0], ban),
               frame_pieces_from(m, s->close, 1),
               then,
               grammar_optional(m->b, frame_pieces(m, s->end)));
}

/* The marks that begin calls of the format, but for `but` and those that begin with it. */
static uint32_t other_marks(const struct maker *m,
                            const char *but,
                            struct grammar_text out[REPLY_MAX_MARKS])
{
    const struct reply_format *f = m->r->style.format;
    uint32_t n = 0;
    for (size_t i = 0; i < REPLY_MAX_MARKS && f->open[i].text; i++) {
        const char *mark = f->open[i].text;
        bool same = but && strncmp(mark, but, strlen(but)) == 0;
        if (!same && !f->open[i].at_start)
            out[n++] = (struct grammar_text){mark, strlen(mark)};
    }
    return n;
}

/* Text, in which the first piece begins a block; behind it the reply ends. Other marks that are
 * read as calls cannot come. */
static grammar_node optional_block(const struct maker *m)
{
    const char *first = first_piece(m->f);
    grammar_node rest = block_behind_first(m), tails[REPLY_MAX_MARKS + 1];
    struct grammar_text triggers[REPLY_MAX_MARKS + 1];
    uint32_t n = other_marks(m, first, triggers);
    int32_t id = token_of(m, first);
    for (uint32_t i = 0; i <= n; i++)
        tails[i] = grammar_never(m->b);
    triggers[n] = (struct grammar_text){first, strlen(first)};
    if (id < 0)
        tails[n] = rest;
    grammar_node text = grammar_scan(m->b, n + 1, triggers, tails, true);
    if (id < 0)
        return text;
    return SEQ(m->b, text, grammar_optional(m->b, SEQ(m->b, grammar_token(m->b, id), rest)));
}

/* Where calls are plain JSON or Python, a text that cannot be one: it begins with something else.
 */
static grammar_node bare_text(const struct maker *m)
{
    static const struct grammar_range other[] = {
        {0x21, 0x3b}, {0x3d, 0x5a}, {0x5c, 0x5f}, {0x61, 0x7a}, {0x7c, 0x10ffff}};
    struct grammar_text marks[REPLY_MAX_MARKS];
    grammar_node tails[REPLY_MAX_MARKS];
    uint32_t n = other_marks(m, NULL, marks);
    for (uint32_t i = 0; i < n; i++)
        tails[i] = grammar_never(m->b);
    grammar_node space =
        grammar_choice(m->b, 4, (struct grammar_text[]){{" ", 1}, {"\n", 1}, {"\t", 1}, {"\r", 1}});
    return SEQ(m->b,
               grammar_repeat(m->b, space, 0, 8),
               grammar_optional(m->b,
                                SEQ(m->b,
                                    grammar_chars(m->b, 5, other), /* none of < [ ` { */
                                    grammar_scan(m->b, n, marks, tails, true))));
}

/* ---- formats in which all is messages ---- */

/* What opens each kind of message, and what ends one behind which another follows. */
static const struct message_marks {
    const char *format;
    const char *reasoning[MAX_PIECES], *preamble[MAX_PIECES], *content[MAX_PIECES];
    const char *end, *ban[MAX_BANS]; /* ban: must not come in a preamble */
} messages[] = {
    {.format = "harmony",
     .reasoning = {"<|channel|>", "analysis", "<|message|>"},
     .preamble = {"<|channel|>", "commentary", "<|message|>"},
     .content = {"<|channel|>", "final", "<|message|>"},
     .end = "<|end|>",
     .ban = {"<|channel|>"}},
    {.format = "muse",
     .reasoning = {" to=self", "<|message|>"},
     .preamble = {" to=user", "<|message|>"},
     .content = {" to=user", "<|message|>"},
     .end = "<|eom|>",
     .ban = {"<|eot|>", "<|start|>"}},
};

/* NULL: the format has no such messages. */
static const struct message_marks *messages_of(const char *format)
{
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++)
        if (strcmp(messages[i].format, format) == 0)
            return &messages[i];
    return NULL;
}

/* A message, and the beginning of the next one. */
static grammar_node message_before(const struct maker *m,
                                   const char *const *open,
                                   const char *end,
                                   const char *const *ban)
{
    return SEQ(m->b,
               frame_pieces(m, open),
               frame_text_until(m, end, ban),
               frame_piece(m, "<|start|>"),
               frame_piece(m, "assistant"));
}

/* ---- reasoning ---- */

/* What would begin a call within reasoning; NULL: nothing. Of several marks no call lacks the last.
 */
static const char *call_mark(const struct maker *m)
{
    const char *last = NULL, *mark;
    for (size_t i = 0; (mark = reply_call_in_thoughts(m->r->style.format, i)); i++)
        last = mark;
    return last;
}

/* Reasoning where it is open, or may be opened, and the white space behind it. */
static grammar_node thoughts_before(const struct maker *m)
{
    const struct reply_style *s = &m->r->style;
    if (!s->thoughts)
        return grammar_empty(m->b);
    const struct message_marks *marks = messages_of(reply_thoughts_name(s->thoughts));
    if (marks)
        return grammar_optional(m->b, message_before(m, marks->reasoning, marks->end, NULL));
    grammar_node newlines = grammar_repeat(m->b, grammar_literal(m->b, "\n", 1), 0, 3);
    const char *const ban[MAX_BANS] = {call_mark(m)};
    grammar_node closed =
        SEQ(m->b, frame_text_until(m, reply_thoughts_mark(s->thoughts, false), ban), newlines);
    if (strcmp(reply_thoughts_name(s->thoughts), "solar") == 0) /* the next message */
        closed =
            SEQ(m->b,
                closed,
                grammar_optional(
                    m->b, SEQ(m->b, frame_piece(m, "<|begin|>"), frame_piece(m, "assistant"))));
    if (m->r->start.thinking)
        return closed;
    grammar_node opened = SEQ(m->b, frame_piece(m, reply_thoughts_mark(s->thoughts, true)), closed);
    grammar_node none = /* as MiniMax M3 writes it */
        SEQ(m->b, frame_piece(m, reply_thoughts_mark(s->thoughts, false)), newlines);
    return grammar_optional(m->b, ALT(m->b, opened, none));
}

/* ---- all of it ---- */

/* Is this a format in which calls have no mark of their own, but are messages, or the whole reply?
 */
static bool is_message(const char *format)
{
    return messages_of(format) || strcmp(format, "functionary-v3.2") == 0;
}

static bool is_bare(const char *format)
{
    static const char *const all[] = {"llama3", "json", "pythonic", "xlam"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(format, all[i]) == 0)
            return true;
    return false;
}

bool reply_grammar_known(const struct reply_format *f)
{
    for (size_t i = 0; f && i < frame_count; i++)
        if (strcmp(frames[i].format, reply_format_name(f)) == 0)
            return true;
    return false;
}

/* What stands before content of its own. */
static grammar_node content_opens(const struct maker *m)
{
    const char *name = reply_format_name(m->r->style.format);
    const struct message_marks *marks = messages_of(name);
    const struct section *section = section_of(m);
    if (marks)
        return frame_pieces(m, marks->content);
    if (section)
        return grammar_optional(m->b, frame_pieces(m, section->open));
    if (strcmp(name, "solar") == 0)
        return grammar_optional(m->b, frame_piece(m, "<|content|>"));
    return strcmp(name, "functionary-v3.2") == 0 ? frame_piece(m, "all\n") : grammar_empty(m->b);
}

/* What may stand behind content of its own. */
static grammar_node content_closes(const struct maker *m)
{
    const struct section *s = section_of(m);
    return s ? grammar_optional(m->b, section_then(m, s, grammar_empty(m->b)))
             : grammar_empty(m->b);
}

/* Text of a message, and then a call in one of its own. */
static grammar_node message_then(const struct maker *m, grammar_node calls)
{
    if (strcmp(m->f->format, "functionary-v3.2") == 0) {
        const struct grammar_text mark = {">>>", 3};
        return SEQ(m->b, frame_piece(m, "all\n"), grammar_scan(m->b, 1, &mark, &calls, true));
    }
    const struct message_marks *marks = messages_of(m->f->format);
    grammar_node preamble = message_before(m, marks->preamble, marks->end, marks->ban);
    grammar_node text = SEQ(m->b, content_opens(m), text_without(m, "<|", NULL));
    return ALT(m->b, text, SEQ(m->b, preamble, calls));
}

/* A reply that may make calls, or is text: of the frame at hand. */
static grammar_node optional_calls(const struct maker *m)
{
    const struct section *section = section_of(m);
    if (section)
        return section_block(m, section);
    if (!is_bare(m->f->format) && !is_message(m->f->format))
        return optional_block(m);
    grammar_node calls = required_block(m);
    grammar_node text = is_bare(m->f->format) ? bare_text(m) : message_then(m, calls);
    return ALT(m->b, calls, text);
}

/* `make` of each frame that the model may mean. */
static grammar_node all_frames(struct maker *m, grammar_node (*make)(const struct maker *m))
{
    grammar_node blocks[MAX_FRAMES];
    uint32_t n = 0;
    for (size_t i = 0; i < frame_count && n < MAX_FRAMES; i++) {
        m->f = &frames[i];
        if (strcmp(m->f->format, reply_format_name(m->r->style.format)) != 0)
            continue;
        if (m->f->needs && token_of(m, m->f->needs) < 0)
            continue;
        blocks[n++] = make(m);
        if (m->f->needs)
            break; /* the model knows this way, so it is the one */
    }
    return grammar_alt(m->b, n, blocks);
}

grammar_node reply_grammar_build(const struct reply_grammar *r, struct grammar_builder *b)
{
    struct maker m = {.r = r, .b = b};
    if (!reply_grammar_known(r->style.format))
        return grammar_never(b);
    grammar_node calls = all_frames(&m, r->required ? required_block : optional_calls);
    return SEQ(b, thoughts_before(&m), calls);
}

grammar_node reply_grammar_content(const struct reply_grammar *r,
                                   struct grammar_builder *b,
                                   grammar_node content)
{
    struct maker m = {.r = r, .b = b};
    grammar_node reply = SEQ(b, content_opens(&m), content, content_closes(&m));
    if (r->tools && reply_grammar_known(r->style.format))
        reply = ALT(b, reply, all_frames(&m, required_block));
    return SEQ(b, thoughts_before(&m), reply);
}
