#include "chat/chat.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
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
    bool format_off; /* calls are not to be looked for */
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

#define PROBE_CALL(arguments)                                                                      \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_"      \
    "calls\":"                                                                                     \
    "[{\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"f\","                   \
    "\"arguments\":" arguments                                                                     \
    "}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"f\",\"content\":"           \
    "\"r\"}]"

/* Of arguments given as an object and as text, which come out as JSON? Printed as Python's own
 * dictionaries they have single quotes; JSON text printed as JSON has escaped ones. */
static bool wants_text(const struct chat_template *t)
{
    static const char object[] = PROBE_CALL("{\"zq\":\"zv\"}");
    static const char text[] = PROBE_CALL("\"{\\\"zq\\\":\\\"zv\\\"}\"");
    if (shows(t, object, "zq") && !shows(t, object, "'zq'"))
        return false;
    return shows(t, text, "\"zq\"");
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

/* Does it render what the system says later as if it had not been said? One that refuses it does
 * not lose it. */
static bool drops_later(const struct chat_template *t)
{
    static const char later[] =
        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"q\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"zq\"},"
        "{\"role\":\"user\",\"content\":\"q\"}]";
    return shows(t, later, "") && !shows(t, later, "zq");
}

static void find_traits(struct chat_template *t, const char *source, size_t n)
{
    static const char calls[] = "tool_calls", thinking[] = "message.thinking";
    t->traits.effort = jinja_reads(t->jinja, "reasoning_effort");
    t->traits.thinking = memmem(source, n, thinking, sizeof thinking - 1) != NULL;
    t->traits.wants_thinking = reads_thinking(t, source, n);
    t->traits.functions = jinja_reads(t->jinja, "functions") && !jinja_reads(t->jinja, "tools");
    t->traits.tools = t->traits.functions || jinja_reads(t->jinja, "tools");
    t->traits.calls = memmem(source, n, calls, sizeof calls - 1) != NULL;
    t->traits.text_arguments = t->traits.calls && wants_text(t);
    t->traits.system = shows(t,
                             "[{\"role\":\"system\",\"content\":\"zq\"},"
                             "{\"role\":\"user\",\"content\":\"q\"}]",
                             "zq");
    t->traits.no_system =
        !t->traits.system && shows(t, "[{\"role\":\"user\",\"content\":\"zq\"}]", "zq");
    t->traits.drops_system = t->traits.system && drops_later(t);
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
    jinja_destroy(t->jinja);
    free(t->source);
    free(t);
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
    return OK;
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

static json_t *other_vars(const struct chat_input *in)
{
    json_t *o = json_object();
    json_object_set(o, "messages", (json_t *)in->messages); /* one more reference, no change */
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
                       "the model has no chat template; use the completions route with a prompt");
    if (!t->jinja)
        return err_set(e,
                       ERR_UNSUPPORTED,
                       "the model's chat template cannot be run (%.200s); use the completions "
                       "route with a prompt",
                       t->problem.text);
    json_t *own = own_vars(in), *more = other_vars(in);
    const struct jinja_input input = {own, in->vars, more, in->now};
    enum err err = own && more ? jinja_render(t->jinja, &input, NULL, out, &failure)
                               : err_set(&failure, ERR_NOMEM, "no memory for variables");
    json_decref(own);
    json_decref(more);
    return err ? err_set(e, err, "the chat template, %.300s", failure.text) : OK;
}
