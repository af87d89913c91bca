/* Conversations with tools, in the form that templates want, and without templates' help. */
#include "chat/internal.h"
#include "chat/tools.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHATML                                                                                     \
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>\\n' "  \
    "}}{% endfor %}"

static const char conversation[] =
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"I look.\","
    "\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","
    "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}},{\"id\":\"abcdefghj\","
    "\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"content\":\"r1\"},"
    "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghj\",\"content\":\"<|im_end|>\"}]";

/* Prepare and render; the text is the caller's. */
static char *render(const char *source, const char *messages, const struct chat_tools *tools)
{
    struct chat_template *t = chat_template_create(source, strlen(source));
    json_t *m = json_loads(messages, 0, NULL), *ready = NULL, *vars = NULL;
    assert_non_null(m);
    const struct chat_turn turn = {.messages = m, .tools = tools};
    struct err_info e = {0};
    if (chat_turn_prepare(t, &turn, &ready, &vars, &e))
        fail_msg("%s", e.text);
    const struct chat_input in = {ready, vars, false, "<s>", "</s>", NULL};
    struct jinja_text out = {0};
    if (chat_render(t, &in, &out, &e))
        fail_msg("%s: %s", source, e.text);
    char *text = strdup(buf_cstr(&out.text));
    jinja_text_deinit(&out);
    json_decref(m);
    json_decref(ready);
    json_decref(vars);
    chat_template_destroy(t);
    return text;
}

static void check(const char *source,
                  const char *messages,
                  const struct chat_tools *tools,
                  const char *want)
{
    char *got = render(source, messages, tools);
    assert_string_equal(got, want);
    free(got);
}

static void add(struct chat_tools *t, const char *name)
{
    json_t *schema = json_loads("{\"type\":\"object\"}", 0, NULL);
    assert_int_equal(chat_tools_add(t, "tools[0]", name, NULL, schema, false, NULL), OK);
    json_decref(schema);
}

static void test_list(void **state)
{
    (void)state;
    struct chat_tools t = {.parallel = true};
    struct err_info e = {0};
    assert_false(chat_tools_wanted(&t));
    add(&t, "f");
    assert_true(chat_tools_has(&t, "f"));
    assert_false(chat_tools_has(&t, "g"));
    assert_true(chat_tools_wanted(&t));
    t.choice = CHAT_TOOLS_NONE;
    assert_false(chat_tools_wanted(&t));
    static const char *const bad[] = {"f", "", "a b", "a\"", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(chat_tools_add(&t, "tools[1]", bad[i], "", NULL, false, &e), ERR_INVALID);
        assert_string_equal(e.field, "tools[1]");
    }
    assert_int_equal(json_array_size(t.list), 1);
    chat_tools_deinit(&t);
}

/* Those that may be called, beside the others where calls must come, else alone. */
static void test_allowed(void **state)
{
    (void)state;
    static const enum chat_tool_choice choices[] = {CHAT_TOOLS_REQUIRED, CHAT_TOOLS_AUTO};
    json_t *names = json_pack("[s, s]", "h", "g");
    for (size_t i = 0; i < 2; i++) {
        struct chat_tools t = {.parallel = true, .choice = choices[i]};
        add(&t, "f");
        add(&t, "g");
        add(&t, "h");
        t.strict[2] = true;
        assert_int_equal(chat_tools_allow(&t, names, NULL), OK);
        assert_int_equal(json_array_size(t.list), i == 0 ? 3 : 2);
        assert_int_equal(chat_tools_has(&t, "f"), i == 0);
        const json_t *may = i == 0 ? t.allowed : t.list;
        const bool *strict = i == 0 ? t.allowed_strict : t.strict;
        assert_int_equal(json_array_size(may), 2);
        assert_int_equal(t.index[0], 1);
        assert_int_equal(t.index[1], 2);
        assert_false(strict[0]);
        assert_true(strict[1]);
        assert_true(i == 0 ? t.strict[2] : !t.allowed);
        chat_tools_deinit(&t);
    }
    json_decref(names);
}

/* A template that knows calls gets arguments as it wants them, and names on results. */
static void test_known(void **state)
{
    (void)state;
    static const char objects[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in "
        "c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}"
        "{% if m.role == 'tool' %}{{ m.name }}:{{ m.content }} {% endif %}{% endfor %}";
    check(objects, conversation, NULL, "a=1;f:r1 g:<|im_end|> ");
    static const char text[] = "{% for m in messages %}{% for c in m.tool_calls %}"
                               "{{ '[' + c.function.arguments + ']' }}{% endfor %}{% endfor %}";
    check(text, conversation, NULL, "[{\"a\": 1}][]");
    static const char given[] =
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":[1,\"x\"]}}}]},{\"role\":\"assistant\",\"content\":\"\","
        "\"tool_calls\":[]}]";
    check(text, given, NULL, "[{\"a\": [1, \"x\"]}]");
    check(
        "{% for m in messages %}{{ 'tool_calls' in m }} {% endfor %}", given, NULL, "True False ");
}

/* A template that insists on ids of nine letters and digits gets such, the same for call and
 * result; one that does not gets the client's. */
static void test_short_ids(void **state)
{
    (void)state;
    static const char strict[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id|length != 9 %}"
        "{{ raise_exception('nine') }}{% endif %}{{ c.id + ' ' }}{% endfor %}"
        "{% if m.role == 'tool' %}{% if m.tool_call_id|length != 9 %}{{ raise_exception('nine') }}"
        "{% endif %}{{ m.tool_call_id + ' ' }}{% endif %}{% endfor %}";
    static const char any[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.id + ' ' }}{% endfor %}"
        "{{ m.tool_call_id + ' ' if m.tool_call_id }}{% endfor %}";
    static const char *const ids[] = {
        "call_abc123", "toolu_01A", "", "nine-long", "a", "b", "functions.f:0", "0123456789"};
    const size_t n = sizeof ids / sizeof ids[0];
    json_t *calls = json_array(), *messages = json_array();
    struct buf plain = {0};
    json_array_append_new(
        messages,
        json_pack("{s:s,s:s,s:O}", "role", "assistant", "content", "", "tool_calls", calls));
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(calls,
                              json_pack("{s:s,s:s,s:{s:s,s:s}}",
                                        "id",
                                        ids[i],
                                        "type",
                                        "function",
                                        "function",
                                        "name",
                                        "f",
                                        "arguments",
                                        "{}"));
        json_array_append_new(
            messages,
            json_pack("{s:s,s:s,s:s}", "role", "tool", "tool_call_id", ids[i], "content", "r"));
    }
    json_array_append_new(
        messages,
        json_pack("{s:s,s:s,s:s}", "role", "tool", "tool_call_id", "abcDEF019", "content", "r"));
    char *text = json_dumps(messages, 0), *got = render(strict, text, NULL);
    assert_int_equal(strlen(got), (2 * n + 1) * 10);
    assert_memory_equal(got, got + n * 10, n * 10);
    assert_string_equal(got + 2 * n * 10, "abcDEF019 ");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 9; k++) {
            assert_true(isalnum((unsigned char)got[i * 10 + k]));
            assert_true(i == 0 || memcmp(got + i * 10, got + (i - 1) * 10, 9) != 0);
        }
    free(got);
    for (size_t i = 0; i < n; i++)
        buf_printf(&plain, "%s ", ids[i]);
    got = render(any, text, NULL);
    assert_memory_equal(got, plain.data, plain.len);
    buf_deinit(&plain);
    free(got);
    free(text);
    json_decref(calls);
    json_decref(messages);
}

/* Where a template takes one call a message, or writes only the first, each is one of its own, its
 * results behind it; what was said with them is said once, and no result is lost. */
static void test_one_call(void **state)
{
    (void)state;
    static const char refuses[] =
        "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}"
        "{{ raise_exception('one') }}{% endif %}{{ m.content + m.reasoning_content|default('') + "
        "'>' + m.tool_calls[0].function.name + '(' + m.tool_calls[0].function.arguments|tojson + "
        "') ' }}{% else %}{{ m.role + ':' + m.content + ' ' }}{% endif %}{% endfor %}";
    static const char drops[] =
        "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.name + '(' + "
        "m.tool_calls[0].function.arguments|tojson + ') ' }}{% else %}"
        "{{ m.name + ':' if m.name }}{{ m.content + ' ' }}{% endif %}{% endfor %}";
    static const char takes[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name + ' ' + "
        "c.function.arguments|tojson }}{% endfor %}{{ m.content + ' ' }}{% endfor %}";
    check(refuses,
          conversation,
          NULL,
          "user:q I look.hm>f({\"a\": 1}) tool:r1 >g({}) tool:<|im_end|> ");
    check(drops, conversation, NULL, "q f({\"a\": 1}) f:r1 g({}) g:<|im_end|> ");
    check(takes, conversation, NULL, "q f {\"a\": 1}g {}I look. r1 <|im_end|> ");
    static const char mixed[] = "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
                                "{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}},"
                                "{\"id\":\"2\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}},"
                                "{\"function\":{\"name\":\"h\",\"arguments\":\"\"}}]},"
                                "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"lost\"},"
                                "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"b\"},"
                                "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\"},"
                                "{\"role\":\"tool\",\"content\":\"none\"},"
                                "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"bb\"},"
                                "{\"role\":\"user\",\"content\":\"u\"},"
                                "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"late\"}]";
    check(refuses,
          mixed,
          NULL,
          ">f({}) tool:a >g({}) tool:b tool:bb >h({}) tool:lost tool:none user:u tool:late ");
    /* nor is what else a message holds said again with each call, of which there may be many */
    static const char marked[] =
        "{% for m in messages %}{% if m.tool_calls|length > 1 %}{{ raise_exception('one') }}"
        "{% endif %}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments|tojson }}"
        "{% endfor %}{{ m.mark|default('') }}{% endfor %}";
    check(marked,
          "[{\"role\":\"assistant\",\"content\":\"\",\"mark\":\"!\",\"tool_calls\":["
          "{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}},"
          "{\"id\":\"2\",\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]}]",
          NULL,
          "f{}!g{}");
}

/* Where a template writes calls only of messages without content, that is null, and what was said
 * with the calls is a message of its own. */
static void test_null_content(void **state)
{
    (void)state;
    static const char null_only[] =
        "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
        "{{ c.function.name + '(' + c.function.arguments + ') ' }}{% endfor %}"
        "{% else %}{{ m.role + ':' + m.content + ' ' }}{% endif %}{% endfor %}";
    static const char any[] =
        "{% for m in messages %}{{ m.content is none }}{{ m.tool_calls|length if m.tool_calls }} "
        "{% endfor %}";
    static const char silent[] =
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\","
        "\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":"
        "{\"a\":1}}}]},{\"role\":\"assistant\",\"content\":\"\"}]";
    check(null_only, silent, NULL, "user:q f({\"a\": 1}) assistant: ");
    check(null_only,
          conversation,
          NULL,
          "user:q assistant:I look. f({\"a\": 1}) g() tool:r1 tool:<|im_end|> ");
    check(any, silent, NULL, "False False1 False ");
    static const char first[] =
        "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name + "
        "m.tool_calls[0].function.arguments + ' ' }}{% else %}{{ m.role + ':' + m.content + ' ' }}"
        "{% endif %}{% endfor %}";
    check(first,
          conversation,
          NULL,
          "user:q assistant:I look. f{\"a\": 1} tool:r1 g tool:<|im_end|> ");
}

/* A template that reads results in the message that called has them there, with what is said of
 * them; what was said before is said before. */
static void test_inner_results(void **state)
{
    (void)state;
    static const char source[] =
        "{% for m in messages %}<{{ m.role }}{% if m.reasoning_content %}({{ m.reasoning_content "
        "}})"
        "{% endif %}{% for c in m.tool_calls or [] %} call:{{ c.function.name }}{{ "
        "c.function.arguments | tojson }}{% endfor %}{% for r in m.tool_responses or [] %} "
        "response:{{ r.name }}{value:{{ r.response }}}{% endfor %}{{ ' ' + m.content if m.content "
        "}}>{% endfor %}";
#define ASK "{\"role\":\"user\",\"content\":\"q\"},"
#define CALL(id, name)                                                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":\"{}\"}}"
#define CALLS(words, calls)                                                                        \
    "{\"role\":\"assistant\",\"content\":\"" words                                                 \
    "\",\"reasoning_content\":\"hm\",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) ",{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define SAY(text) ",{\"role\":\"assistant\",\"content\":\"" text "\"}"
    static const struct {
        const char *messages, *want;
    } cases[] = {
        {"[" ASK CALLS("", CALL("1", "f")) "]", "<user q><assistant(hm) call:f{}>"},
        {"[" ASK CALLS("", CALL("1", "f")) RESULT("1", "5") "]",
         "<user q><assistant(hm) call:f{} response:f{value:5}>"},
        {"[" ASK CALLS("", CALL("1", "f")) RESULT("1", "5") SAY("five") SAY("yes") "]",
         "<user q><assistant(hm) call:f{} response:f{value:5} five><assistant yes>"},
        {"[" ASK CALLS("I look.", CALL("1", "f")) RESULT("1", "5") "]",
         "<user q><assistant I look.><assistant(hm) call:f{} response:f{value:5}>"},
        {"[" ASK CALLS("", CALL("1", "f") "," CALL("2", "g")) RESULT("2", "b") RESULT("1", "a")
             RESULT("3", "c") SAY("") "]",
         "<user q><assistant(hm) call:f{} call:g{} response:g{value:b} response:f{value:a} "
         "response:unknown{value:c}><assistant>"},
        {"[" ASK CALLS("", CALL("1", "f")) RESULT("1", "a") "," CALLS("b", CALL("2", "g"))
             RESULT("2", "c") "]",
         "<user q><assistant(hm) call:f{} response:f{value:a}><assistant b><assistant(hm) call:g{} "
         "response:g{value:c}>"},
        {"[" ASK CALLS("w", CALL("1", "f")) "," ASK "{\"role\":\"tool\",\"content\":\"r\"}]",
         "<user q><assistant(hm) call:f{} w><user q><tool r>"},
    };
#undef ASK
#undef CALL
#undef CALLS
#undef RESULT
#undef SAY
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(source, cases[i].messages, NULL, cases[i].want);
}

/* Reasoning of earlier steps reaches the model wherever a template looks for it, beside words and
 * calls too, and empty turns are none that it refuses. */
static void test_reasoning(void **state)
{
    (void)state;
    static const char calls[] =
        "{% for c in m.tool_calls %}{{ '>' + c.function.name + c.function.arguments|tojson }}"
        "{% endfor %} {% endfor %}";
    static const char *const templates[][3] = {
        {"{% for m in messages %}{% if m.reasoning_content %}{{ '<' + m.reasoning_content + '>' }}"
         "{% elif m.thinking %}{{ '(' + m.thinking + ')' }}{% endif %}{{ m.content }}",
         "q <hm>I look.>f{\"a\": 1}>g{} r1 <|im_end|> ",
         "q <so>a  r"},
        {"{% for m in messages %}{{ '(' + m['thinking'] + ')' if m.thinking is defined }}"
         "{{ m.content }}",
         "q (hm)I look.>f{\"a\": 1}>g{} r1 <|im_end|> ",
         "q (so)a  r"},
        {"{% for m in messages %}{% if m.content and m.thinking and m.tool_calls %}"
         "{{ raise_exception('both') }}{% endif %}{{ '(' + m.thinking + ')' if m.thinking }}"
         "{{ m.content }}",
         "q (hm)>f{\"a\": 1}>g{} r1 <|im_end|> ",
         "q (so)a  r"},
        {"{% for m in messages %}{% if m.role == 'assistant' and not m.content and not "
         "m.tool_calls %}{{ raise_exception('empty') }}{% endif %}{% if m.content is string %}"
         "{{ m.content }}{% else %}{% for b in m.content %}{{ '[' + b.thinking + ']' if b.type == "
         "'thinking' else b['text'] }}{% endfor %}{% endif %}",
         "q [hm]I look.>f{\"a\": 1}>g{} r1 <|im_end|> ",
         "q [so]a  r"},
        {"{% for m in messages %}{{ m.content if m.content is string else m.content|tojson }}",
         "q I look.>f{\"a\": 1}>g{} r1 <|im_end|> ",
         "q a  r"},
    };
    static const char talk[] =
        "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\","
        "\"reasoning_content\":\"so\"},{\"role\":\"assistant\",\"content\":\"\","
        "\"reasoning_content\":\"\"},{\"role\":\"user\",\"content\":\"r\"}]";
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        char source[800], want[200];
        snprintf(source, sizeof source, "%s%s", templates[i][0], calls);
        check(source, conversation, NULL, templates[i][1]);
        snprintf(want, sizeof want, "%s ", templates[i][2]);
        check(source, talk, NULL, want);
    }
    /* it is the assistant's alone */
    char source[800];
    snprintf(
        source,
        sizeof source,
        "{%% for m in messages %%}{%% if m.content is string %%}{{ m.content }}{%% elif m.role =="
        " 'user' %%}{{ raise_exception('text') }}{%% else %%}{%% for b in m.content %%}"
        "{{ b.thinking if b.type == 'thinking' else b['text'] }}{%% endfor %%}{%% endif %%}%s",
        calls);
    check(
        source, "[{\"role\":\"user\",\"content\":\"q\",\"reasoning_content\":\"hm\"}]", NULL, "q ");
}

/* Arguments are read whatever the size of their numbers, and texts in them stay as they are. */
static void test_large_numbers(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'a': 18446744073709551616, 'b': -9223372036854775809, 'c': 9223372036854775807}",
         "{'a': 1.8446744073709552e+19, 'b': -9.223372036854776e+18, 'c': 9223372036854775807}"},
        {"{'a': 1e400, 'b': [-1.5e999, 1e-400, 2.5]}",
         "{'a': 1.7976931348623157e+308, 'b': [-1.7976931348623157e+308, 0.0, 2.5]}"},
        {"{'a 99999999999999999999': '1e999 \\\\', 'b': 99999999999999999999}",
         "{'a 99999999999999999999': '1e999 \\\\', 'b': 1e+20}"},
        {"{'a': 99999999999999999999", "{'a': 99999999999999999999"},
        {"1e999-1", "1e999-1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = strdup(cases[i][0]);
        for (char *s = text; *s; s++)
            *s = *s == '\'' ? '"' : *s;
        json_t *m = json_pack("[{s:s,s:s,s:[{s:{s:s,s:s}}]}]",
                              "role",
                              "assistant",
                              "content",
                              "",
                              "tool_calls",
                              "function",
                              "name",
                              "f",
                              "arguments",
                              text);
        char *messages = json_dumps(m, 0);
        char *got = render("{% for m in messages %}{% for c in m.tool_calls %}{% if c.function."
                           "arguments is string %}{{ c.function.arguments | replace('\"', \"'\") }}"
                           "{% else %}{{ c.function.arguments }}{% for k, v in c.function.arguments"
                           ".items() %}{% endfor %}{% endif %}{% endfor %}{% endfor %}",
                           messages,
                           NULL);
        assert_string_equal(got, cases[i][1]);
        free(got);
        free(messages);
        free(text);
        json_decref(m);
    }
}

/* One that does not gets text: calls, results in one turn of the user, and the list of tools. */
static void test_unknown(void **state)
{
    (void)state;
    check(CHATML,
          conversation,
          NULL,
          "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nI look.\n<tool_call>\n{\"name\": "
          "\"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
          "\"arguments\": {}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n"
          "</tool_response>\n<tool_response>\n<|im_end|>\n</tool_response><|im_end|>\n");
    struct chat_tools t = {.parallel = true};
    add(&t, "f");
    static const char hello[] = "[{\"role\":\"user\",\"content\":\"hello\"}]";
    static const char with_system[] = "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                                      "{\"role\":\"user\",\"content\":\"hello\"}]";
    static const char no_system[] =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.role + ':' + m.content }}{% endfor %}";
    char *text = render(CHATML, hello, &t);
    assert_ptr_equal(strstr(text, "<|im_start|>system\nYou have these tools:\n{\"type\""), text);
    assert_non_null(strstr(text, "<|im_start|>user\nhello<|im_end|>"));
    free(text);
    text = render(CHATML, with_system, &t);
    assert_ptr_equal(strstr(text, "<|im_start|>system\nBe brief.\n\nYou have these tools:"), text);
    free(text);
    text = render(no_system, hello, &t);
    assert_ptr_equal(strstr(text, "user:You have these tools:"), text);
    assert_non_null(strstr(text, "\n\nhello"));
    free(text);
    text = render(no_system, with_system, &t);
    assert_ptr_equal(strstr(text, "user:You have these tools:"), text);
    assert_non_null(strstr(text, "\n\nBe brief.\n\nhello"));
    free(text);
    t.choice = CHAT_TOOLS_NONE;
    check(no_system, hello, &t, "user:hello");
    chat_tools_deinit(&t);
}

/* What the system says reaches the model also where the template refuses it or drops it. */
static void test_no_system(void **state)
{
    (void)state;
    static const char *const templates[] = {
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{% for m in messages %}{{ m.role + ':' + m.content + ' ' }}{% endfor %}",
        "{% for m in messages if m.role != 'system' %}{{ m.role + ':' + m.content + ' ' }}"
        "{% endfor %}"};
    static const char *const cases[][2] = {
        {"[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]",
         "user:s\n\nu "},
        {"[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"system\",\"content\":\"t\"},"
         "{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"}]",
         "user:s\n\nt\n\nu assistant:a "},
        {"[{\"role\":\"system\",\"content\":\"s\"}]", "user:s "},
        {"[{\"role\":\"system\",\"content\":\"s\"},"
         "{\"role\":\"assistant\",\"content\":\"a\"}]",
         "user:s assistant:a "},
        {"[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"u\"}]",
         "user:u "},
        {"[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\"},"
         "{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"v\"}]",
         "user:u assistant:a user:s\n\nv "},
        {"[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"system\",\"content\":\"s\"},"
         "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"t\"}]",
         "user:u\n\ns assistant:a user:t "},
        {"[{\"role\":\"user\",\"content\":\"u\"}]", "user:u "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check(templates[0], cases[i][0], NULL, cases[i][1]);
        check(templates[1], cases[i][0], NULL, cases[i][1]);
    }
    /* those that take what it says once, and drop or refuse what it says first or later */
    static const char *const first[] = {
        "{% for m in messages %}{% if loop.first or m.role != 'system' %}{{ m.role + ':' + "
        "m.content + ' ' }}{% endif %}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('no') }}{% endif %}{{ m.role + ':' + m.content + ' ' }}{% endfor %}",
        "{% set n = namespace(s='') %}{% for m in messages if m.role == 'system' %}"
        "{% set n.s = 'system:' + m.content + ' ' %}{% endfor %}{{ n.s }}"
        "{% for m in messages if m.role != 'system' %}{{ m.role + ':' + m.content + ' ' }}"
        "{% endfor %}"};
    for (size_t i = 0; i < 3; i++) {
        check(first[i], cases[0][0], NULL, "system:s user:u ");
        check(first[i], cases[1][0], NULL, "system:s\n\nt user:u assistant:a ");
        check(first[i], cases[5][0], NULL, "user:u assistant:a user:s\n\nv ");
        check(first[i], cases[6][0], NULL, "user:u\n\ns assistant:a user:t ");
    }
    /* those that say nothing of the system, or refuse, where the user says nothing */
    static const char *const beside[] = {
        "{% for m in messages %}{% if m.role == 'user' %}{{ (messages[0].role + ':' + "
        "messages[0].content + ' ') if messages[0].role == 'system' and loop.last }}{{ 'user:' + "
        "m.content + ' ' }}{% endif %}{% endfor %}",
        "{% if not messages | selectattr('role', 'equalto', 'user') | list %}{{ "
        "raise_exception('no') "
        "}}{% endif %}{% for m in messages %}{{ m.role + ':' + m.content + ' ' }}{% endfor %}"};
    for (size_t i = 0; i < 2; i++) {
        check(beside[i], cases[0][0], NULL, "system:s user:u ");
        check(beside[i], cases[2][0], NULL, "user:s ");
    }
    /* one that wants `functions` as text takes the system all the same */
    check("{% for m in messages %}{{ m.role + ':' + m.content + ' ' + functions }}{% endfor %}",
          cases[0][0],
          NULL,
          "system:s user:u ");
}

/* Several messages of one side in a row, where roles must alternate: calls and results between them
 * are no turns, or are written as such. */
static void test_alternating(void **state)
{
    (void)state;
    static const char knows_calls[] =
        "{% set n = namespace(user=true) %}{% for m in messages %}{% if not m.tool_calls and "
        "m.role "
        "in ['user', 'assistant'] %}{% if (m.role == 'user') != n.user %}{{ "
        "raise_exception('alternate') }}{% endif %}{% set n.user = not n.user %}{% endif %}"
        "{{ m.role + ':' + (m.content or '') + (m.tool_calls | tojson if m.tool_calls else '') + "
        "';' "
        "}}{% endfor %}";
    static const char plain[] =
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('alternate') }}{% endif %}{{ m.role + ':' + m.content + ';' }}"
        "{% endfor %}";
#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"},"
#define CALLS                                                                                      \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":"             \
    "\"function\","                                                                                \
    "\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"},"
#define CALL_JSON                                                                                  \
    "[{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "     \
    "{}}}]"
#define CALL_TEXT "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"
    static const char *const cases[][3] = {
        {"[" SAYS("user", "q") SAYS("user", "") SAYS("user", "u") SAYS("assistant", "a")
             SAYS("assistant", "b") "{\"role\":\"user\",\"content\":\"v\"}]",
         "user:q\n\nu;assistant:a\n\nb;user:v;",
         "user:q\n\nu;assistant:a\n\nb;user:v;"},
        {"[" SAYS("user", "q") CALLS RESULT "{\"role\":\"user\",\"content\":\"u\"}]",
         "user:q;assistant:" CALL_JSON ";tool:r\n\nu;",
         "user:q;assistant:" CALL_TEXT ";user:<tool_response>\nr\n</tool_response>\n\nu;"},
        {"[" SAYS("user", "q") CALLS RESULT SAYS("assistant", "a")
             SAYS("system", "s") "{\"role\":\"user\",\"content\":\"u\"}]",
         "user:q;assistant:" CALL_JSON ";tool:r;assistant:a;system:s;user:u;",
         "user:q;assistant:" CALL_TEXT
         ";user:<tool_response>\nr\n</tool_response>;assistant:a;user:s\n\nu;"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check(knows_calls, cases[i][0], NULL, cases[i][1]);
        check(plain, cases[i][0], NULL, cases[i][2]);
    }
    check(CHATML,
          cases[0][0],
          NULL, /* where they need not, they stay as they are */
          "<|im_start|>user\nq<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>user\nu<|im_"
          "end|>\n"
          "<|im_start|>assistant\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
          "<|im_start|>user\nv<|im_end|>\n");
}

/* Templates of two kinds that leave a part to whoever writes messages. */
static void test_half_known(void **state)
{
    (void)state;
    static const char lfm2[] =
        "{{ '<|tool_list_start|>' if tools }}{% for m in messages %}{{ m.role + ':' + m.content + "
        "';' }}{% endfor %}";
    static const char deepseek[] =
        "{% for m in messages %}{{ m.role + ':' + (m.content or '') }}{% for c in m.tool_calls %}"
        "{{ '<｜tool▁calls▁begin｜>' + c.function.name }}{% endfor %};{% endfor %}";
    check(lfm2,
          conversation,
          NULL,
          "user:q;assistant:I look.<|tool_call_start|>[f(a=1), g()]<|tool_call_end|>;tool:r1;"
          "tool:<|im_end|>;");
    check(
        "{{ '<|tool_call|>' if tools }}{% for m in messages %}{{ m.role + ':' + m.content + ';' }}"
        "{% endfor %}", /* Granite 3 */
        conversation,
        NULL,
        "user:q;assistant:I look.<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, "
        "{\"name\": \"g\", \"arguments\": {}}];tool:r1;tool:<|im_end|>;");
    struct chat_tools t = {.parallel = true};
    add(&t, "f");
    char *text = render(deepseek, "[{\"role\":\"user\",\"content\":\"hello\"}]", &t);
    assert_non_null(strstr(text, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"));
    assert_null(strstr(text, "<tool_call>"));
    free(text);
    chat_tools_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_short_ids),
        cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_null_content),
        cmocka_unit_test(test_inner_results),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_no_system),
        cmocka_unit_test(test_alternating),
        cmocka_unit_test(test_half_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
