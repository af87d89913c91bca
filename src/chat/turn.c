/* Templates differ in what they expect of conversations with tools: arguments as objects or as
 * text, names on results; and many know nothing of tools. For those the calls and results become
 * texts in the manner of Hermes, which most models have seen, and the tools are listed before the
 * conversation. */
#include "chat/internal.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define CALL_OPEN "<tool_call>\n"
#define CALL_CLOSE "\n</tool_call>"
#define DEEPSEEK_OPEN "<｜tool▁calls▁begin｜>"
#define DEEPSEEK_CALL                                                                              \
    "<｜tool▁call▁begin｜><name of the tool><｜tool▁sep｜><object with its "             \
    "arguments><｜tool▁call▁end｜>"
#define DEEPSEEK_CLOSE "<｜tool▁calls▁end｜>"
#define RESULT_OPEN "<tool_response>\n"
#define RESULT_CLOSE "\n</tool_response>"

static const char id_digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/* JSON as templates print it. */
static void put_json(struct buf *out, const json_t *v)
{
    char *s = json_dumps(v, JSON_ENCODE_ANY);
    buf_str(out, s ? s : "null");
    free(s);
}

static json_t *string_of(const struct buf *b)
{
    return json_stringn(b->len ? b->data : "", b->len);
}

/* What is too large for jansson's integers becomes a real, what is too large for that the largest.
 */
static void put_number(struct buf *out, const char *s, size_t n)
{
    char *end, *end_int;
    double v = strtod(s, &end);
    errno = 0;
    (void)strtoll(s, &end_int, 10);
    bool is_large = errno == ERANGE && end_int == s + n;
    if (isinf(v) && end == s + n) {
        buf_str(out, v < 0 ? "-1.7976931348623157e308" : "1.7976931348623157e308");
    } else {
        buf_add(out, s, n);
        buf_str(out, is_large ? "e0" : "");
    }
}

/* JSON with the numbers in reach; what is in strings stays. */
static json_t *read_large_numbers(const char *s, size_t n)
{
    struct buf text = {0};
    bool in_string = false;
    for (size_t at = 0, len; at < n; at += len) {
        bool number = !in_string && ((s[at] >= '0' && s[at] <= '9') || s[at] == '-');
        in_string ^= s[at] == '"';
        len = number ? strspn(s + at, "+-.0123456789eE") : in_string && s[at] == '\\' ? 2 : 1;
        len = len < n - at ? len : n - at;
        if (number)
            put_number(&text, s + at, len);
        else
            buf_add(&text, s + at, len);
    }
    json_t *v = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    buf_deinit(&text);
    return v;
}

/* Arguments given as text, read; NULL where they are no JSON. No arguments at all are none. */
static json_t *read_arguments(const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (strspn(s, " \t\r\n") == n)
        return json_object();
    json_t *read = json_loadb(s, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    return read ? read : read_large_numbers(s, n);
}

static bool is_short_id(const char *id)
{
    size_t n = strlen(id);
    return n == 9 && strspn(id, id_digits) == n;
}

/* Another id becomes nine letters or digits, the same ones wherever it stands: 62^9 are enough for
 * the ids of one conversation. */
static void shorten_id(json_t *o, const char *key)
{
    const char *id = json_string_value(json_object_get(o, key));
    char made[9];
    if (!id || is_short_id(id))
        return;
    uint64_t h = XXH3_64bits(id, strlen(id));
    for (size_t i = 0; i < sizeof made; i++, h /= 62)
        made[i] = id_digits[h % 62];
    json_object_set_new(o, key, json_stringn(made, sizeof made));
}

/* The form that the template wants. Text that is no JSON stays text. */
static json_t *arguments_for(const struct chat_traits *traits, const json_t *v)
{
    struct buf text = {0};
    json_t *made = NULL;
    if (traits->text_arguments && !json_is_string(v)) {
        put_json(&text, v);
        made = string_of(&text);
        buf_deinit(&text);
    } else if (!traits->text_arguments && json_is_string(v)) {
        made = read_arguments(v);
    }
    return made ? made : json_incref((json_t *)v);
}

static json_t *calls_for(const struct chat_traits *traits, const json_t *calls)
{
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_copy(json_array_get(calls, i));
        json_t *function = json_copy(json_object_get(call, "function"));
        const json_t *arguments = json_object_get(function, "arguments");
        if (arguments)
            json_object_set_new(function, "arguments", arguments_for(traits, arguments));
        if (function)
            json_object_set_new(call, "function", function);
        if (traits->short_ids)
            shorten_id(call, "id");
        json_array_append_new(all, call);
    }
    return all;
}

void chat_note_names(struct json_t *names, const struct json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const char *id = json_string_value(json_object_get(call, "id"));
        json_t *name = json_object_get(json_object_get(call, "function"), "name");
        if (id && name)
            json_object_set(names, id, name);
    }
}

static bool is_empty(const json_t *content)
{
    return json_is_string(content) && json_string_length(content) == 0;
}

/* ---- templates that know calls ---- */

/* Content of one part, or of that and what is said. */
static json_t *parts_of(const char *type, json_t *text, json_t *words)
{
    json_t *parts = json_pack("[{s:s, s:O}]", "type", type, type, text);
    if (json_string_length(words) > 0)
        json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", words));
    return parts;
}

/* What the assistant thought, where the template looks for it, and what it said beside, which is
 * not to be refused. copy: of m. */
static void set_reasoning(const struct chat_traits *traits, const json_t *m, json_t *copy)
{
    json_t *reasoning = json_object_get(m, "reasoning_content");
    json_t *words = json_object_get(m, "content");
    const bool calls = json_array_size(json_object_get(m, "tool_calls")) > 0;
    const bool reasons = json_string_length(reasoning) > 0;
    if (!chat_has_role(m, "assistant"))
        return;
    if (reasons && traits->thinking)
        json_object_set(copy, "thinking", reasoning);
    if (reasons && traits->thinking_alone && calls)
        json_object_set_new(copy, "content", json_string(""));
    if (reasons && traits->thinking_parts)
        json_object_set_new(copy, "content", parts_of("thinking", reasoning, words));
    else if (traits->empty_parts && !calls && is_empty(words))
        json_object_set_new(copy, "content", parts_of("text", words, NULL));
}

/* names: of the calls so far. */
static json_t *known_message(const struct chat_traits *traits, const json_t *m, json_t *names)
{
    const json_t *calls = json_object_get(m, "tool_calls");
    json_t *copy = json_copy((json_t *)m);
    if (json_array_size(calls) > 0)
        json_object_set_new(copy, "tool_calls", calls_for(traits, calls));
    else
        json_object_del(copy, "tool_calls"); /* templates ask whether it is there */
    if (traits->null_content && json_array_size(calls) > 0 &&
        is_empty(json_object_get(m, "content")))
        json_object_set_new(copy, "content", json_null());
    set_reasoning(traits, m, copy);
    chat_note_names(names, calls);
    const char *id = json_string_value(json_object_get(m, "tool_call_id"));
    json_t *name = id ? json_object_get(names, id) : NULL;
    if (name && chat_has_role(m, "tool") && !json_object_get(m, "name"))
        json_object_set(copy, "name", name);
    if (traits->short_ids)
        shorten_id(copy, "tool_call_id");
    return copy;
}

/* ---- templates that do not ---- */

/* How calls are written where the template does not. */
struct plain {
    const char *format;
    const char *open, *between, *close; /* of all calls of a message */
    bool python, newline;               /* f(a=1); open is on a line of its own */
};
static const struct plain hermes = {
    "hermes", CALL_OPEN, CALL_CLOSE "\n" CALL_OPEN, CALL_CLOSE, false, true};
/* Templates that write tools and results, and leave calls to whoever writes messages. */
static const struct plain plains[] = {
    {"lfm2", "<|tool_call_start|>[", ", ", "]<|tool_call_end|>", true, false},
    {"granite", "<|tool_call|>[", ", ", "]", false, false},
};

/* NULL: the template is none of these. */
static const struct plain *plain_of(const struct chat_template *tmpl)
{
    const char *format = reply_format_name(chat_template_style(tmpl).format);
    const struct chat_traits *traits = chat_template_traits(tmpl);
    for (size_t i = 0; traits->tools && i < sizeof plains / sizeof plains[0]; i++)
        if (strcmp(plains[i].format, format) == 0)
            return &plains[i];
    return NULL;
}

static void put_call(struct buf *out, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    json_t *read = json_is_string(arguments) ? read_arguments(arguments) : NULL;
    buf_str(out, "{\"name\": ");
    put_json(out, json_object_get(function, "name"));
    buf_str(out, ", \"arguments\": ");
    put_json(out, read ? read : arguments);
    buf_char(out, '}');
    json_decref(read);
}

static void put_content(struct buf *out, const json_t *m)
{
    const json_t *content = json_object_get(m, "content");
    if (json_is_string(content))
        buf_add(out, json_string_value(content), json_string_length(content));
}

/* f(a=1, b="x") */
static void put_python_call(struct buf *out, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    const char *name = json_string_value(json_object_get(function, "name")), *key;
    json_t *read = json_is_string(arguments) ? read_arguments(arguments) : NULL, *v;
    size_t n = 0;
    buf_str(out, name ? name : "");
    buf_char(out, '(');
    json_object_foreach((json_t *)(read ? read : arguments), key, v)
    {
        buf_str(out, n++ > 0 ? ", " : "");
        buf_str(out, key);
        buf_char(out, '=');
        put_json(out, v);
    }
    buf_char(out, ')');
    json_decref(read);
}

/* Calls as text behind the content. */
static json_t *plain_calls(const json_t *m, const struct plain *plain)
{
    struct buf text = {0};
    json_t *copy = json_copy((json_t *)m);
    const json_t *calls = json_object_get(m, "tool_calls");
    size_t n = json_array_size(calls);
    put_content(&text, m);
    buf_str(&text, plain->newline && n > 0 && text.len > 0 ? "\n" : "");
    for (size_t i = 0; i < n; i++) {
        buf_str(&text, i > 0 ? plain->between : plain->open);
        (plain->python ? put_python_call : put_call)(&text, json_array_get(calls, i));
    }
    buf_str(&text, n > 0 ? plain->close : "");
    json_object_del(copy, "tool_calls");
    json_object_set_new(copy, "content", string_of(&text));
    buf_deinit(&text);
    return copy;
}

/* Results become turns of the user; several in a row are one turn, for roles must alternate. */
static void note_result(struct buf *results, const json_t *m)
{
    buf_str(results, results->len ? "\n" RESULT_OPEN : RESULT_OPEN);
    put_content(results, m);
    buf_str(results, RESULT_CLOSE);
}

static json_t *text_message(const char *role, const struct buf *text)
{
    return json_pack("{s:s, s:o}", "role", role, "content", string_of(text));
}

static void add_results(json_t *all, struct buf *results)
{
    if (results->len > 0)
        json_array_append_new(all, text_message("user", results));
    buf_clear(results);
}

/* What a model is told that was given no words for tools by its template. */
static void put_tools(struct buf *out, const struct chat_tools *tools, bool deepseek)
{
    buf_str(out, "You have these tools:\n");
    for (size_t i = 0; i < json_array_size(tools->list); i++) {
        put_json(out, json_array_get(tools->list, i));
        buf_char(out, '\n');
    }
    if (deepseek) {
        buf_str(out,
                "\nTo use a tool, answer in exactly this form:\n" DEEPSEEK_OPEN DEEPSEEK_CALL
                    DEEPSEEK_CLOSE);
        buf_str(out,
                tools->parallel ? "\nTo use several, write several calls between the outer "
                                  "marks."
                                : "");
        return;
    }
    buf_str(out,
            "\nTo use a tool, answer with its name and arguments as JSON between these marks:\n"
            "<tool_call>\n{\"name\": <name of the tool>, \"arguments\": <object with its "
            "arguments>}\n</tool_call>");
    buf_str(out, tools->parallel ? "\nTo use several, write several such blocks." : "");
}

static bool is_text_of(const json_t *m, const char *role)
{
    return chat_has_role(m, role) && json_is_string(json_object_get(m, "content"));
}

/* words go behind what the message says, or before it; its content is text. */
static void join_words(json_t *m, const struct buf *words, bool behind)
{
    struct buf text = {0};
    if (behind) {
        put_content(&text, m);
        buf_str(&text, text.len > 0 ? "\n\n" : "");
    }
    buf_add(&text, words->data, words->len);
    if (!behind) {
        buf_str(&text, "\n\n");
        put_content(&text, m);
    }
    json_object_set_new(m, "content", string_of(&text));
    buf_deinit(&text);
}

/* The list goes behind what the system says, or makes a turn of the system, or goes before what the
 * user says first. */
static void insert_tools(const struct chat_traits *traits,
                         const struct chat_tools *tools,
                         bool deepseek,
                         json_t *messages)
{
    struct buf text = {0};
    json_t *first = json_array_get(messages, 0);
    bool behind = chat_has_role(first, "system");
    put_tools(&text, tools, deepseek);
    if (behind || (!traits->system && chat_has_role(first, "user"))) {
        json_t *copy = json_copy(first);
        join_words(copy, &text, behind);
        json_array_set_new(messages, 0, copy);
    } else {
        json_array_insert_new(messages, 0, text_message(traits->system ? "system" : "user", &text));
    }
    buf_deinit(&text);
}

/* Where the template has no place for the system: its words before `next` go behind those that it
 * has a place for, if these were last, or before what the user says next, or behind what the user
 * said last, or are a turn of the user's. */
static void put_system(json_t *all, struct buf *words, json_t *next)
{
    json_t *last = json_array_get(all, json_array_size(all) - 1);
    if (is_text_of(last, "system"))
        join_words(last, words, true);
    else if (is_text_of(next, "user"))
        join_words(next, words, false);
    else if (is_text_of(last, "user"))
        join_words(last, words, true);
    else
        json_array_append_new(all, text_message("user", words));
    buf_clear(words);
}

/* What the system says, all of it or (first) all but what it says first, in other messages.
 * messages: the caller's reference, and all in it too. */
static json_t *move_system(json_t *messages, bool first)
{
    struct buf words = {0};
    json_t *all = json_array();
    for (size_t i = 0; i <= json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i); /* NULL: the end */
        if (chat_has_role(m, "system") && !(first && i == 0)) {
            bool more = words.len > 0 && json_string_length(json_object_get(m, "content")) > 0;
            buf_str(&words, more ? "\n\n" : "");
            put_content(&words, m);
            continue;
        }
        if (words.len > 0)
            put_system(all, &words, m);
        json_array_append(all, m);
    }
    if (json_array_size(all) == 0)
        json_array_append_new(all, text_message("user", &words));
    buf_deinit(&words);
    json_decref(messages);
    return all;
}

/* Where the user has to say something: what the system says, if nobody else asks. */
static void make_user(json_t *all)
{
    json_t *first = json_array_get(all, 0), *m;
    size_t i;
    json_array_foreach(all, i, m)
    {
        if (chat_has_role(m, "user"))
            return;
    }
    if (chat_has_role(first, "system"))
        json_object_set_new(first, "role", json_string("user"));
}

/* Where roles must alternate: what the user says goes behind what the user said before, or a tool
 * gave, which the assistant has not answered, and what the assistant says behind what it said
 * before. messages: the caller's reference, and all in it too. */
static json_t *join_turns(json_t *messages)
{
    json_t *all = json_array(), *open = NULL, *m; /* open: what text of such a role goes behind */
    size_t i;
    json_array_foreach(messages, i, m)
    {
        const bool calls = json_array_size(json_object_get(m, "tool_calls")) > 0;
        const bool answers = chat_has_role(m, "assistant"), asks = chat_has_role(m, "user");
        const bool joins = is_text_of(m, "user") || (is_text_of(m, "assistant") && !calls);
        if (joins && open && chat_has_role(open, "assistant") == answers) {
            struct buf words = {0};
            put_content(&words, m);
            if (words.len > 0)
                join_words(open, &words, true);
            buf_deinit(&words);
            continue;
        }
        json_array_append(all, m);
        if (asks || chat_has_role(m, "tool") || (answers && !calls))
            open = json_is_string(json_object_get(m, "content")) ? m : NULL;
    }
    json_decref(messages);
    return all;
}

/* own: how calls are written that the template leaves to us, which knows results; or NULL. */
static json_t *messages_for(const struct chat_traits *traits,
                            const json_t *messages,
                            const struct plain *own)
{
    json_t *all = json_array(), *names = json_object();
    struct buf results = {0};
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        if (!traits->calls && !own && chat_has_role(m, "tool")) {
            note_result(&results, m);
            continue;
        }
        add_results(all, &results);
        json_array_append_new(all,
                              traits->calls ? known_message(traits, m, names)
                                            : plain_calls(m, own ? own : &hermes));
    }
    add_results(all, &results);
    buf_deinit(&results);
    json_decref(names);
    if (traits->no_system || traits->drops_system)
        all = move_system(all, traits->system);
    if (traits->wants_user)
        make_user(all);
    return traits->alternates ? join_turns(all) : all;
}

/* Templates that read `functions` put it behind a text, so it is one also without tools. */
static void set_functions(json_t *vars, const json_t *tools)
{
    char *text = tools ? json_dumps(tools, JSON_INDENT(2)) : NULL;
    json_object_set_new(vars, "functions", json_string(text ? text : ""));
    free(text);
}

enum err chat_turn_prepare(const struct chat_template *tmpl,
                           const struct chat_turn *turn,
                           struct json_t **messages,
                           struct json_t **vars,
                           struct err_info *e)
{
    const struct chat_traits *traits = chat_template_traits(tmpl);
    bool wanted = chat_tools_wanted(turn->tools);
    json_t *other = traits->one_call || traits->null_content
                        ? chat_split_messages(traits, turn->messages)
                    : traits->inner_results ? chat_embed_results(turn->messages)
                                            : NULL;
    *messages = messages_for(traits, other ? other : turn->messages, plain_of(tmpl));
    json_decref(other);
    *vars = turn->vars ? json_copy((json_t *)turn->vars) : json_object();
    if (wanted && chat_template_calls_unknown(tmpl))
        return err_set_field(e,
                             ERR_INVALID,
                             "tools",
                             "how this model writes calls of tools is not known to this server; "
                             "its operator can choose with --tool-format");
    if (!*messages || !*vars)
        return err_set(e, ERR_NOMEM, "no memory for a conversation");
    if (traits->functions && !json_object_get(*vars, "functions"))
        set_functions(*vars, wanted ? turn->tools->list : NULL);
    else if (wanted && traits->tools)
        json_object_set(*vars, "tools", turn->tools->list);
    else if (wanted)
        insert_tools(traits,
                     turn->tools,
                     chat_template_style(tmpl).format == reply_format_find("deepseek"),
                     *messages);
    return OK;
}
