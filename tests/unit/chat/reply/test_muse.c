/* Replies of Muse, taken apart. */
#include "unit/chat/reply/cases.h"

/* A call of "f", and how its message ends and another begins. */
#define ATEM_OPEN "<atem:function_calls>\n<atem:invoke name=\"f\">\n"
#define ATEM_CLOSE "</atem:invoke>\n</atem:function_calls>"
#define ATEM_ARG(key, value) "<atem:parameter name=\"" key "\">" value "</atem:parameter>\n"
#define NEXT "<|eom|><|start|>assistant"

/* Muse Glimmer, as its template writes turns. */
static void test_muse(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"muse",
         "muse",
         " to=self<|message|>Think." NEXT " to=user<|message|>Answer.",
         "R'Think.' C'Answer.'",
         NO_TOOLS},
        {"muse", "muse", " to=user<|message|>Two\nlines <b>.<|eot|>", "C'Two\nlines <b>.'", 0},
        {"muse",
         "muse",
         " to=f<|message|>" ATEM_OPEN ATEM_ARG("s", "a <b>\n\"c\"") ATEM_ARG("n", "1.5") ATEM_CLOSE,
         "B0 f A'{\"s\": \"a <b>\\n\\\"c\\\"\", \"n\": 1.5}' E",
         0},
        /* says something, then calls twice, and goes on */
        {"muse",
         "muse",
         " to=self<|message|>Hm." NEXT " to=user<|message|>I look.\n" NEXT
         " to=f<|message|>\n" ATEM_OPEN ATEM_CLOSE NEXT " to=f<|message|>" ATEM_OPEN ATEM_ARG(
             "o", "{\"a\": [1]}") ATEM_CLOSE "\n" NEXT " to=user<|message|>Done.",
         "R'Hm.' C'I look.' B0 f A'{}' E B1 f A'{\"o\": {\"a\": [1]}}' E C'Done.'",
         0},
        /* what is quoted is no call */
        {"muse",
         "muse",
         " to=self<|message|>Say " ATEM_OPEN ATEM_CLOSE "." NEXT
         " to=user<|message|>Like " ATEM_OPEN ATEM_CLOSE ".",
         "R'Say " ATEM_OPEN ATEM_CLOSE ".' C'Like " ATEM_OPEN ATEM_CLOSE ".'",
         0},
        {"muse", "muse", " to=f<|message|>No tags<|eom|>", "C'No tags'", 0},
        {"muse", "muse", " to=f<|message|><atem:func", "C'<atem:func'", CUT},
        {"muse", "muse", " to=f<|message|>\n<|eom|><|start|>assistant<|message|>Hi", "C'Hi'", 0},
        {"muse", "muse", " to=f<|message|>" ATEM_OPEN, "C'" ATEM_OPEN "'", NO_TOOLS},
        {"muse", NULL, " to=self<|message|>a<|eom|>", "C'a'", 0},
        {"muse", "muse", "No header", "C'No header'", 0},
        {"muse",
         "muse",
         " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n"
         "<atem:parameter name=\"s\">ab",
         "B0 f A'{\"s\": \"ab'",
         CUT},
    };
    CHECK_ALL(cases);
}

/* A message's mark ends its call wherever that is, and what follows is read. */
static void test_muse_unclosed(void **state)
{
    (void)state;
#define OPEN_F " to=f<|message|>" ATEM_OPEN
#define THEN_OK NEXT " to=user<|message|>ok"
    static const struct reply_case cases[] = {
        {"muse", "muse", OPEN_F ATEM_ARG("s", "x") THEN_OK, "B0 f A'{\"s\": \"x\"}' E C'ok'", 0},
        {"muse",
         "muse",
         OPEN_F ATEM_ARG("n", "1") NEXT OPEN_F ATEM_CLOSE,
         "B0 f A'{\"n\": 1}' E B1 f A'{}' E",
         0},
        /* within a value, a key, a name */
        {"muse",
         "muse",
         OPEN_F "<atem:parameter name=\"s\">x" THEN_OK,
         "B0 f A'{\"s\": \"x' C'ok'",
         0},
        {"muse", "muse", OPEN_F "<atem:parameter name=\"s" THEN_OK, "B0 f C'ok'", 0},
        {"muse",
         "muse",
         " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f" THEN_OK,
         "C'<atem:function_calls>\n<atem:invoke name=\"fok'",
         0},
        /* between tags */
        {"muse", "muse", OPEN_F "</atem:invoke>\n" THEN_OK, "B0 f A'{}' E C'ok'", 0},
        {"muse",
         "muse",
         " to=f<|message|><atem:function_calls>\n" THEN_OK,
         "C'<atem:function_calls>ok'",
         0},
        {"muse", "muse", OPEN_F THEN_OK, "C'<atem:function_calls>\n<atem:invoke name=\"f\">ok'", 0},
        {"muse", "muse", OPEN_F "</atem:invoke>\n<|eot|>", "B0 f A'{}' E", 0},
        {"muse",
         "muse",
         OPEN_F ATEM_ARG("s", "x") "<|start|>assistant to=user<|message|>ok",
         "B0 f A'{\"s\": \"x\"}' E C'ok'",
         0},
        /* the beginning of a mark is text of the value, or of what is no call */
        {"muse",
         "muse",
         OPEN_F ATEM_ARG("s", "a <| b <<|eo c <") ATEM_CLOSE,
         "B0 f A'{\"s\": \"a <| b <<|eo c <\"}' E",
         0},
        {"muse", "muse", OPEN_F "<atem:parameter name=\"s\">x<|e", "B0 f A'{\"s\": \"x<|e'", CUT},
        {"muse", "muse", OPEN_F "<<|eom|>", "C'" ATEM_OPEN "<'", 0},
        {"muse", "muse", OPEN_F "<<|e", "C'" ATEM_OPEN "<<|e'", CUT},
    };
    CHECK_ALL(cases);
}

/* A name of one word stands there twice. */
static void test_muse_names(void **state)
{
    (void)state;
#define CALL_OF(name)                                                                              \
    "<atem:function_calls>\n<atem:invoke name=\"" name "\">\n" ATEM_ARG("s", "1") ATEM_CLOSE
    static const struct reply_case cases[] = {
        {"muse", "muse", " to=f.f<|message|>" CALL_OF("f.f"), "B0 f A'{\"s\": \"1\"}' E", 0},
        {"muse", "muse", " to=f<|message|>" CALL_OF("f.g"), "B0 f.g A'{\"s\": 1}' E", 0},
        {"muse", "muse", " to=f<|message|>" CALL_OF("g.g"), "B0 g.g A'{\"s\": 1}' E", 0},
        {"minimax",
         NULL,
         "<minimax:tool_call>\n<invoke name=\"f.f\">\n</invoke>\n</minimax:tool_call>",
         "B0 f.f A'{}' E",
         0},
        {"muse", "muse", " to=user<|message|>" CALL_OF("f"), "C'" CALL_OF("f") "'", 0},
    };
    CHECK_ALL(cases);
}

/* Tools that are named as the other recipients are. */
static void test_muse_recipients(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {" to=user<|message|>" CALL_OF("user"), "B0 user A'{\"s\": 1}' E"},
        {" to=self<|message|>" CALL_OF("self"), "B0 self A'{\"s\": 1}' E"},
        {" to=self<|message|>Hm. <atem:" THEN_OK, "R'Hm. <atem:' C'ok'"},
        {" to=self<|message|><atem:func", "R'<atem:func'"},
    };
    json_t *tools = json_loads(
        "[{\"function\":{\"name\":\"user\"}},{\"function\":{\"name\":\"self\"}}]", 0, NULL);
    const struct reply_config cfg = {
        .style = {reply_format_find("muse"), reply_thoughts_find("muse")}, .tools = tools};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct transcript t = {.open = -1};
        struct reply_parser *p = reply_create(&cfg);
        reply_feed(p, cases[i].text, 19, transcript_event, &t);
        assert_int_equal(reply_reasons(p), cases[i].text[4] == 's');
        reply_feed(p, cases[i].text + 19, strlen(cases[i].text) - 19, transcript_event, &t);
        reply_finish(p, false, transcript_event, &t);
        transcript_close(&t);
        assert_string_equal(buf_cstr(&t.text), cases[i].want);
        reply_destroy(p);
        buf_deinit(&t.text);
    }
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_muse),
        cmocka_unit_test(test_muse_unclosed),
        cmocka_unit_test(test_muse_names),
        cmocka_unit_test(test_muse_recipients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
