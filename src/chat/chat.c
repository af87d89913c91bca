#include "chat/chat.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct chat_template {
    struct jinja_template *jinja; /* NULL: none, or one that cannot be run */
    bool present;
    char *source; /* [n_source] */
    size_t n_source;
    struct err_info problem; /* of compiling */
    struct chat_traits traits;
    struct reply_style detected, style;
    bool format_off;                /* calls are not to be looked for */
    struct chat_template *tool_use; /* for requests with tools; NULL: itself */
};

/* Render messages, given as JSON of our own, into *out. */
static bool probe(const struct chat_template *t, const char *messages, struct jinja_text *out)
{
    json_t *m = json_loads(messages, 0, NULL);
    json_t *vars = t->traits.functions ? json_pack("{s:s}", "functions", "") : NULL;
    const struct chat_input in = {m, vars, false, "", "", NULL};
    bool ok = m && chat_render(t, &in, out, NULL) == OK;
    json_decref(m);
    json_decref(vars);
    return ok;
}

/* Does a conversation with this before its user's turn render, and the text show? */
static bool shows(const struct chat_template *t, const char *messages, const char *text)
{
    struct jinja_text out = {0};
    bool found = probe(t, messages, &out) && strstr(buf_cstr(&out.text), text);
    jinja_text_deinit(&out);
    return found;
}

/* A conversation in which the assistant calls a tool and has its result. */
struct call_probe {
    const char *id;
    const char *content; /* the assistant's, as JSON */
    const char *field;   /* NULL, or another of its message; its value is "zr" */
    bool as_text;        /* the arguments, which are {"zq":"zv"}, are given as text */
    bool second;         /* there is another call, with {"zg":"zv"} */
};

static void put_call(struct buf *out, const char *id, const char *key, bool as_text)
{
    const char *quote = as_text ? "\"" : "", *mark = as_text ? "\\\"" : "\"";
    buf_printf(out,
               "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":%s",
               id,
               quote);
    buf_printf(out, "{%s%s%s:%szv%s}%s}}", mark, key, mark, mark, mark, quote);
}

static void put_result(struct buf *out, const char *id)
{
    buf_printf(
        out, ",{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"name\":\"f\",\"content\":\"r\"}", id);
}

static bool call_shows(const struct chat_template *t, struct call_probe p, const char *text)
{
    static const char second[] = "abcdefghj";
    struct buf all = {0};
    buf_printf(&all,
               "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":%s",
               p.content);
    if (p.field)
        buf_printf(&all, ",\"%s\":\"zr\"", p.field);
    buf_str(&all, ",\"tool_calls\":[");
    put_call(&all, p.id, "zq", p.as_text);
    if (p.second) {
        buf_char(&all, ',');
        put_call(&all, second, "zg", p.as_text);
    }
    buf_str(&all, "]}");
    put_result(&all, p.id);
    if (p.second)
        put_result(&all, second);
    buf_char(&all, ']');
    bool found = shows(t, buf_cstr(&all), text);
    buf_deinit(&all);
    return found;
}

/* Of arguments given as an object and as text, which come out as JSON? Printed as Python's own
 * dictionaries they have single quotes; JSON text printed as JSON has escaped ones. */
static bool wants_text(const struct chat_template *t, struct call_probe p)
{
    if (call_shows(t, p, "zq") && !call_shows(t, p, "'zq'"))
        return false;
    p.as_text = true;
    return call_shows(t, p, "\"zq\"");
}

/* Does it write calls at all, whatever it makes of their arguments? */
static bool shows_call(const struct chat_template *t, struct call_probe p)
{
    if (call_shows(t, p, "zq"))
        return true;
    p.as_text = true;
    return call_shows(t, p, "zq");
}

/* Where it looks for reasoning. */
static void find_reasoning(struct chat_template *t, struct call_probe p, bool mentioned)
{
    static const char parts[] = "[{\"type\":\"thinking\",\"thinking\":\"zr\",\"zother\":1},"
                                "{\"type\":\"text\",\"text\":\"zt\"}]";
    struct call_probe in_parts = p, with_words = p;
    p.field = "reasoning_content";
    if (call_shows(t, p, "zr"))
        return;
    p.field = with_words.field = "thinking";
    t->traits.thinking = mentioned || call_shows(t, p, "zr");
    if (t->traits.thinking) {
        with_words.content = "\"w\"";
        t->traits.thinking_alone = call_shows(t, p, "") && !call_shows(t, with_words, "");
        return;
    }
    in_parts.content = parts;
    t->traits.thinking_parts = call_shows(t, in_parts, "zr") && call_shows(t, in_parts, "zt") &&
                               !call_shows(t, in_parts, "zother"); /* it would print them as JSON */
}

/* Does it refuse empty messages of the assistant, but not such a part? */
static bool wants_empty_parts(const struct chat_template *t)
{
    static const char empty[] = "[{\"role\":\"user\",\"content\":\"q\"},"
                                "{\"role\":\"assistant\",\"content\":\"\"},"
                                "{\"role\":\"user\",\"content\":\"q\"}]";
    static const char part[] =
        "[{\"role\":\"user\",\"content\":\"q\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"\"}]},"
        "{\"role\":\"user\",\"content\":\"q\"}]";
    return !shows(t, empty, "") && shows(t, part, "");
}

/* Does it write results of tools that stand in the message that called, and without the function's
 * name those that stand behind it? */
static bool embeds_results(const struct chat_template *t, struct call_probe p)
{
    static const char inside[] =
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":"
        "\"c\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}],"
        "\"tool_responses\":[{\"name\":\"f\",\"response\":\"zq\"}]}]";
    return !call_shows(t, p, "response:f") && shows(t, inside, "response:f{value:") &&
           shows(t, inside, "zq");
}

/* What it wants of messages of the assistant; mentioned: its source reads `message.thinking`. */
static void find_call_traits(struct chat_template *t, bool mentioned)
{
    struct call_probe p = {.id = "abcdefghi", .content = "\"\""}, null = p;
    null.content = "null";
    t->traits.null_content = !shows_call(t, p) && shows_call(t, null);
    p = t->traits.null_content ? null : p;
    struct call_probe long_id = p, two = p;
    p.as_text = long_id.as_text = two.as_text = t->traits.text_arguments = wants_text(t, p);
    long_id.id = "call_abcdefghi";
    two.second = true;
    t->traits.short_ids = call_shows(t, p, "") && !call_shows(t, long_id, "");
    t->traits.one_call = call_shows(t, p, "zq") && !call_shows(t, two, "zg");
    t->traits.inner_results = embeds_results(t, p);
    t->traits.empty_parts = wants_empty_parts(t);
    find_reasoning(t, p, mentioned);
}

/* Does it read `enable_thinking` and never ask whether that is defined, nor give it a default? Such
 * templates are made for servers that always set it. */
static bool reads_thinking(const struct chat_template *t, const char *source, size_t n)
{
    static const char name[] = "enable_thinking";
    static const char *const asks[] = {"is defined",
                                       "is not defined",
                                       "is none",
                                       "| default",
                                       "|default",
                                       "is undefined",
                                       "is not none"};
    const char *at = source, *end = source + n;
    if (!jinja_reads(t->jinja, name))
        return false;
    while ((at = memmem(at, (size_t)(end - at), name, sizeof name - 1))) {
        at += sizeof name - 1;
        const char *next = at;
        while (next < end && *next == ' ')
            next++;
        for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++)
            if ((size_t)(end - next) >= strlen(asks[i]) &&
                memcmp(next, asks[i], strlen(asks[i])) == 0)
                return false;
    }
    return true;
}

/* Does it refuse what the system says later, or render it, or what the system said first, as if it
 * had not been said? */
static bool drops_later(const struct chat_template *t)
{
    static const char later[] =
        "[{\"role\":\"system\",\"content\":\"zs\"},{\"role\":\"user\",\"content\":\"q\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"zq\"},"
        "{\"role\":\"user\",\"content\":\"q\"}]";
    return !shows(t, later, "zs") || !shows(t, later, "zq");
}

/* Does it refuse a message of the user's behind another? */
static bool wants_turns(const struct chat_template *t)
{
    static const char two[] =
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"user\",\"content\":\"q\"}]";
    static const char turns[] =
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"},"
        "{\"role\":\"user\",\"content\":\"q\"}]";
    return !shows(t, two, "") && shows(t, turns, "");
}

/* Does what the user says get lost but in parts? The templates of some models that see are so. */
static bool reads_only_parts(const struct chat_template *t)
{
    static const char parts[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"zq\"}]}]";
    return !shows(t, "[{\"role\":\"user\",\"content\":\"zq\"}]", "zq") && shows(t, parts, "zq");
}

static const char *effort_variable(const struct chat_template *t)
{
    static const char *const names[] = {"reasoning_effort", "reasoning_strength"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (jinja_reads(t->jinja, names[i]))
            return names[i];
    return NULL;
}

static void find_traits(struct chat_template *t, const char *source, size_t n)
{
    static const char calls[] = "tool_calls", thinking[] = "message.thinking";
    t->traits.effort = effort_variable(t);
    t->traits.wants_thinking = reads_thinking(t, source, n);
    t->traits.functions = jinja_reads(t->jinja, "functions") && !jinja_reads(t->jinja, "tools");
    t->traits.tools = t->traits.functions || jinja_reads(t->jinja, "tools");
    t->traits.only_parts = reads_only_parts(t); /* which chat_render heeds from here on */
    t->traits.calls = memmem(source, n, calls, sizeof calls - 1) != NULL;
    if (t->traits.calls)
        find_call_traits(t, memmem(source, n, thinking, sizeof thinking - 1) != NULL);
    t->traits.system = shows(t,
                             "[{\"role\":\"system\",\"content\":\"zq\"},"
                             "{\"role\":\"user\",\"content\":\"q\"}]",
                             "zq");
    t->traits.no_system =
        !t->traits.system && shows(t, "[{\"role\":\"user\",\"content\":\"zq\"}]", "zq");
    t->traits.drops_system = t->traits.system && drops_later(t);
    t->traits.wants_user =
        t->traits.system && !shows(t, "[{\"role\":\"system\",\"content\":\"zq\"}]", "zq");
    t->traits.alternates = wants_turns(t);
}

struct chat_template *chat_template_create(const char *source, size_t n_bytes)
{
    struct chat_template *t = mem_zalloc(1, sizeof *t);
    t->present = source && n_bytes > 0;
    t->source = mem_alloc(n_bytes + 1);
    t->n_source = t->present ? n_bytes : 0;
    if (t->present)
        memcpy(t->source, source, n_bytes);
    if (t->present && jinja_compile(source, n_bytes, &t->jinja, &t->problem))
        t->jinja = NULL; /* the problem is told when it matters */
    if (!t->present || !t->jinja)
        return t;
    find_traits(t, source, n_bytes);
    t->detected = reply_style_detect(source, n_bytes);
    /* Where it does not write tools turn.c tells the model of them: in the manner of Hermes, or of
     * DeepSeek, whose templates write calls and leave the list to the user. */
    bool own = t->traits.calls && t->detected.format == reply_format_find("deepseek");
    if (!t->traits.tools && !own)
        t->detected.format = reply_format_find("hermes");
    t->style = t->detected;
    return t;
}

void chat_template_destroy(struct chat_template *t)
{
    if (!t)
        return;
    chat_template_destroy(t->tool_use);
    jinja_destroy(t->jinja);
    free(t->source);
    free(t);
}

bool chat_template_add_tool_use(struct chat_template *t, const char *source, size_t n_bytes)
{
    struct chat_template *other = chat_template_create(source, n_bytes);
    if (!other->jinja) {
        chat_template_destroy(other);
        return false;
    }
    t->tool_use = other;
    return true;
}

const struct chat_template *chat_template_for(const struct chat_template *t, bool tools)
{
    return tools && t->tool_use ? t->tool_use : t;
}

const char *chat_template_source(const struct chat_template *t, size_t *n_bytes)
{
    *n_bytes = t->n_source;
    return t->source;
}

const char *chat_template_name(const struct chat_template *t)
{
    return !t->present ? "none" : t->jinja ? "jinja" : "unsupported";
}

const char *chat_template_problem(const struct chat_template *t)
{
    return t->present && !t->jinja ? t->problem.text : NULL;
}

const struct chat_traits *chat_template_traits(const struct chat_template *t)
{
    return &t->traits;
}

struct reply_style chat_template_style(const struct chat_template *t)
{
    return t->style;
}

bool chat_template_calls_unknown(const struct chat_template *t)
{
    return t->jinja && !t->style.format && !t->format_off;
}

enum err chat_template_set_style(struct chat_template *t,
                                 const char *format,
                                 const char *thoughts,
                                 struct err_info *e)
{
    bool own_format = strcmp(format, "auto") != 0, own_thoughts = strcmp(thoughts, "auto") != 0;
    bool no_format = strcmp(format, "none") == 0, no_thoughts = strcmp(thoughts, "none") == 0;
    if (own_format && !no_format && !reply_format_find(format))
        return err_set_field(
            e, ERR_INVALID, "tool-format", "there is no tool format '%.40s'", format);
    if (own_thoughts && !no_thoughts && !reply_thoughts_find(thoughts))
        return err_set_field(
            e, ERR_INVALID, "reasoning-format", "there is no reasoning format '%.40s'", thoughts);
    t->style = t->detected;
    t->format_off = no_format;
    if (own_format)
        t->style.format = no_format ? NULL : reply_format_find(format);
    if (own_thoughts)
        t->style.thoughts = no_thoughts ? NULL : reply_thoughts_find(thoughts);
    return t->tool_use ? chat_template_set_style(t->tool_use, format, thoughts, e) : OK;
}

/* {"bos_token": ..., "eos_token": ...}; NULL without memory. */
static json_t *own_vars(const struct chat_input *in)
{
    json_t *own = json_object();
    if (in->bos)
        json_object_set_new(own, "bos_token", json_string(in->bos));
    if (in->eos)
        json_object_set_new(own, "eos_token", json_string(in->eos));
    return own;
}

/* The messages, with texts as parts; NULL without memory. */
static json_t *in_parts(const json_t *messages)
{
    json_t *all = json_array(), *m;
    size_t i;
    json_array_foreach(messages, i, m)
    {
        json_t *text = json_object_get(m, "content"), *changed = json_copy(m);
        if (json_is_string(text))
            json_object_set_new(
                changed, "content", json_pack("[{s:s, s:O}]", "type", "text", "text", text));
        json_array_append_new(all, changed);
    }
    return all;
}

static json_t *other_vars(const struct chat_template *t, const struct chat_input *in)
{
    json_t *o = json_object();
    if (t->traits.only_parts)
        json_object_set_new(o, "messages", in_parts(in->messages));
    else
        json_object_set(o, "messages", (json_t *)in->messages); /* a reference more, no change */
    json_object_set_new(o, "add_generation_prompt", json_boolean(in->add_generation_prompt));
    return o;
}

enum err chat_render(const struct chat_template *t,
                     const struct chat_input *in,
                     struct jinja_text *out,
                     struct err_info *e)
{
    struct err_info failure = {0};
    if (!t->present)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "chats are turned off, as there is no chat template (--chat-template "
                       "none); send a whole prompt, as to /v1/completions");
    if (!t->jinja)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "the model's chat template cannot be run (%.200s); give a whole prompt "
                       "instead, to /v1/completions or to weir run --raw",
                       t->problem.text);
    json_t *own = own_vars(in), *more = other_vars(t, in);
    const struct jinja_input input = {own, in->vars, more, in->now};
    enum err err = own && more ? jinja_render(t->jinja, &input, NULL, out, &failure)
                               : err_set(&failure, ERR_NOMEM, "no memory for variables");
    json_decref(own);
    json_decref(more);
    return err ? err_set(e, err, "the chat template, %.300s", failure.text) : OK;
}
