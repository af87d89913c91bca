/* Calls with a tag for each argument: where values end, and what JSON they mean. */
#include "unit/chat/reply/cases.h"

/* Qwen's. */
#define ARG(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define CALL(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"

static void test_tagged(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"qwen-xml",
         NULL,
         "Ok.\n<tool_call>\n<function=f>\n<parameter=s>\nline 1\n\"2\"\\ <b>\n</parameter>\n"
         "<parameter=n>\n-1.50\n</parameter>\n<parameter=b>\ntrue\n</parameter>\n</function>\n"
         "</tool_call>",
         "C'Ok.' B0 f A'{\"s\": \"line 1\\n\\\"2\\\"\\\\ <b>\", \"n\": -1.50, \"b\": true}' E",
         0},
        /* types: what fits the schema is JSON, what does not stays a string */
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n<parameter=i>\nnull\n</parameter>\n<parameter=sn>\n12\n"
         "</parameter>\n<parameter=sn>\nnull\n</parameter>\n<parameter=o>\n{\"a\": [1]}\n"
         "</parameter>\n<parameter=n>\nmany\n</parameter>\n<parameter=free>\n[1]\n</parameter>\n"
         "<parameter=free>\nwords\n</parameter>\n</function>\n</tool_call>",
         "B0 f A'{\"i\": null, \"sn\": \"12\", \"sn\": null, \"o\": {\"a\": [1]}, \"n\": \"many\", "
         "\"free\": [1], \"free\": \"words\"}' E",
         0},
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>\n<tool_call>\n"
         "<function=f>\n<parameter=s>\n\n</parameter>\n</function>\n</tool_call>",
         "B0 get_weather A'{}' E B1 f A'{\"s\": \"\"}' E",
         0},
        {"qwen-xml",
         NULL,
         "<function=f>\n<parameter=s>\nx\n</parameter>\n</function>",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
        {"qwen-xml", NULL, "<tool_call>\n{\"name\": 1}", "C'<tool_call>\n{\"name\": 1}'", 0},
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f> is how",
         "C'<tool_call>\n<function=f> is how'",
         0},
        {"glm",
         "think",
         "<think>a</think><tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x\ny</arg_value>\n"
         "<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>get_weather"
         "</tool_call>",
         "R'a' B0 f A'{\"s\": \"x\\ny\", \"n\": 3}' E B1 get_weather A'{}' E",
         0},
        {"glm", NULL, "<tool_call> of the wild", "C'<tool_call> of the wild'", 0},
        {"deepseek-v3.2",
         NULL,
         "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
         "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"x\" string=\"false\">12"
         "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_weather\">\n"
         "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         "B0 f A'{\"s\": \"12\", \"x\": 12}' E B1 get_weather A'{}' E",
         0},
        {"minimax",
         NULL,
         "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
         "name=\"s\">x</parameter>\n</invoke>\n"
         "</minimax:tool_call>",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
    };
    CHECK_ALL(cases);
}

/* What a value in a tag is follows from the schema, also where it names no type. */
static void test_tagged_types(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"qwen-xml",
         NULL,
         "<function=typed>\n<parameter=e>\n1\n</parameter>\n<parameter=c>\ntrue\n</parameter>\n"
         "<parameter=a>\n7\n</parameter>\n<parameter=big>\n123456789012345678901234567890\n"
         "</parameter>\n</function>",
         "B0 typed A'{\"e\": \"1\", \"c\": \"true\", \"a\": 7, \"big\": "
         "123456789012345678901234567890}' E",
         0},
        /* Python's words and literals, where the schema has their type */
        {"qwen-xml",
         NULL,
         CALL(ARG("b", "True") ARG("b", "FALSE") ARG("i", "None") ARG("sn", "None") ARG("n", "True")
                  ARG("s", "True") ARG("sn", "none")),
         "B0 f A'{\"b\": true, \"b\": false, \"i\": null, \"sn\": null, \"n\": \"True\", \"s\": "
         "\"True\", \"sn\": \"none\"}' E",
         0},
        {"qwen-xml",
         NULL,
         CALL(ARG("o", "{'a': [True, (1, None)], \"b\": 'it\\'s'}") ARG("o", "{'a'}")
                  ARG("o", "{'a': 1}, b=2") ARG("o", "{'a': 1}) f(") ARG("o", "['a']")
                      ARG("s", "{'a': 1}") ARG("free", "{'a': 1}")),
         "B0 f A'{\"o\": {\"a\": [true, [1, null]], \"b\": \"it's\"}, \"o\": \"{'a'}\", \"o\": "
         "\"{'a': 1}, b=2\", \"o\": \"{'a': 1}) f(\", \"o\": \"['a']\", \"s\": \"{'a': 1}\", "
         "\"free\": \"{'a': 1}\"}' E",
         0},
        {"seed",
         NULL,
         "<seed:tool_call>\n<function=f>\n<parameter=b>True</parameter>\n</function>\n"
         "</seed:tool_call>",
         "B0 f A'{\"b\": true}' E",
         0},
        {"qwen-xml",
         NULL,
         CALL(ARG("free", "True") ARG("free", "None") ARG("free", "true")),
         "B0 f A'{\"free\": \"True\", \"free\": \"None\", \"free\": true}' E",
         0},
    };
    CHECK_ALL(cases);
}

/* The closing tag within a value is text of it, unless the call goes on behind it. */
static void test_closing_tags_in_values(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"qwen-xml",
         NULL,
         CALL(ARG("s", "<config><parameter>x</parameter></config>") ARG("n", "1")),
         "B0 f A'{\"s\": \"<config><parameter>x</parameter></config>\", \"n\": 1}' E",
         0},
        {"qwen-xml",
         NULL,
         CALL(ARG("s", "a\n</parameter>\n\n</parameter> </func")
                  ARG("o", "{\"a\": \"</parameter>\"}")),
         "B0 f A'{\"s\": \"a\\n</parameter>\\n\\n</parameter> </func\", \"o\": {\"a\": "
         "\"</parameter>\"}}' E",
         0},
        {"seed",
         NULL,
         "<seed:tool_call>\n<function=f>\n<parameter=s><p>x</parameter></p></parameter>\n"
         "</function>\n</seed:tool_call>",
         "B0 f A'{\"s\": \"<p>x</parameter></p>\"}' E",
         0},
        {"minimax",
         NULL,
         "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">x</parameter>y"
         "</parameter>\n</invoke>\n</minimax:tool_call>",
         "B0 f A'{\"s\": \"x</parameter>y\"}' E",
         0},
        {"minicpm",
         NULL,
         "<function name=\"f\"><param name=\"s\">x</param>y</param><param name=\"n\">2</param>"
         "</function>",
         "B0 f A'{\"s\": \"x</param>y\", \"n\": 2}' E",
         0},
        {"glm",
         NULL,
         "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>y</arg_value>\n</tool_call>",
         "B0 f A'{\"s\": \"x</arg_value>y\"}' E",
         0},
        /* the output ends behind it */
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</fun",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n",
         "B0 f A'{\"s\": \"x\"'",
         CUT},
        /* the next call without the end of this one */
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n" ARG("s", "x") CALL(ARG("n", "1")),
         "B0 f A'{\"s\": \"x\"}' E B1 f A'{\"n\": 1}' E",
         0},
        /* what cannot stand between arguments leaves the call whole, but not within one */
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n" ARG("s", "x") "<function=a b",
         "B0 f A'{\"s\": \"x\"}' E C'\n<function=a b'",
         0},
        {"glm",
         NULL,
         "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key> and",
         "B0 f A'{\"n\": 1' C' and'",
         0},
        {"glm",
         NULL,
         "<tool_call>f\n<arg_key>s</arg_key> and\n</tool_call>",
         "B0 f C' and\n</tool_call>'",
         0},
        /* what follows the end of a call is content alone */
        {"minicpm",
         NULL,
         "<function name=\"f\"><param name=\"s\">x</param></function>Done.",
         "B0 f A'{\"s\": \"x\"}' E C'Done.'",
         0},
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n" ARG("s", "x") "</function>\nDone.",
         "B0 f A'{\"s\": \"x\"}' E C'\nDone.'",
         0},
        /* what looked like the end of a value when the output ended */
        {"qwen-xml", NULL, "<function=f>\n<parameter=s>\na\n<par", "B0 f A'{\"s\": \"a\\n<par'", 0},
        {"qwen-xml",
         NULL,
         "<function=f>\n<parameter=n>\n1</param",
         "B0 f A'{\"n\": 1</param'",
         CUT},
    };
    CHECK_ALL(cases);
}

/* A value that is never closed ends where the next argument of the tool begins, or the call ends.
 */
static void test_values_never_closed(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n<parameter=s>\nOslo\n</function>\n</tool_call>",
         "B0 f A'{\"s\": \"Oslo\"}' E",
         0},
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n<parameter=s>\nOslo\n<parameter=n>\n1\n</function>\n"
         "</tool_call>\n<tool_call>\n<function=python>\n</function>\n</tool_call>",
         "B0 f A'{\"s\": \"Oslo\", \"n\": 1}' E B1 python A'{}' E",
         0},
        {"qwen-xml",
         NULL,
         "<function=f>\n<parameter=s>\nOslo\n</function>\n",
         "B0 f A'{\"s\": \"Oslo\"}' E",
         0},
        {"qwen-xml",
         NULL,
         CALL(ARG("s", "</function>\n</tool_call>") ARG("n", "1")),
         "B0 f A'{\"s\": \"</function>\\n</tool_call>\", \"n\": 1}' E",
         0},
        {"qwen-xml",
         NULL,
         CALL(ARG("s", "a\n<parameter=other>\n<parameter=\n</function>\n</function> b")),
         "B0 f A'{\"s\": \"a\\n<parameter=other>\\n<parameter=\\n</function>\\n</function> b\"}' E",
         0},
    };
    CHECK_ALL(cases);
}

/* Kimi K3: sections of a message, and the type of a value in its tag. */
#define K3(tag) "<|open|>" tag "<|sep|>"
#define K3_END(tag) "<|close|>" tag "<|sep|>"
#define K3_SAYS(text) K3("response") text K3_END("response")
#define K3_CALL(name, args) K3("call tool=\"" name "\" index=\"1\"") args K3_END("call")
#define K3_ARG(key, type, value)                                                                   \
    K3("argument key=\"" key "\" type=\"" type "\"") value K3_END("argument")
#define K3_MESSAGE K3_END("message")

static void test_kimi_k3(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"kimi-k3",
         "kimi-k3",
         "Hm, <|close|> it." K3_END("think") K3_SAYS("Hello.\n<b>") K3_MESSAGE,
         "R'Hm, <|close|> it.' C'Hello.\n<b>'",
         THINKING | NO_TOOLS},
        {"kimi-k3", "kimi-k3", "Hello" K3_END("response") K3_MESSAGE, "C'Hello'", 0},
        {"kimi-k3",
         "kimi-k3",
         K3_END("think") K3_SAYS("I look.") K3("tools")
             K3_CALL("f",
                     K3_ARG("s", "string", "a\n\"b\" <|close|>argument")
                         K3_ARG("n", "number", "-1.5") K3_ARG("b", "boolean", "true")
                             K3_ARG("o", "object", "{\"a\": [1]}") K3_ARG("i", "null", "null"))
                 K3_CALL("get_weather", "") K3_END("tools") K3_MESSAGE,
         "C'I look.' B0 f A'{\"s\": \"a\\n\\\"b\\\" <|close|>argument\", \"n\": -1.5, \"b\": true, "
         "\"o\": {\"a\": [1]}, \"i\": null}' E B1 get_weather A'{}' E",
         THINKING},
        /* the tag says what it is, where the schema does not; it is read by the schema else */
        {"kimi-k3",
         NULL,
         K3_SAYS("") K3("tools")
             K3_CALL("f",
                     K3_ARG("free", "string", "12") K3_ARG("more", "array", "[12]")
                         K3_ARG("n", "number", "many") K3_ARG("o", "object", "{a")) K3_END("tools"),
         "B0 f A'{\"free\": \"12\", \"more\": [12], \"n\": \"many\", \"o\": \"{a\"}' E",
         0},
        {"kimi-k3",
         NULL,
         K3("tools") K3_CALL("f", K3_ARG("a&amp;b&quot;&amp;quot;&am", "string", "&amp;"))
             K3_END("tools"),
         "B0 f A'{\"a&b\\\"&quot;&am\": \"&amp;\"}' E",
         0},
        /* closing tags within a value; none at the end */
        {"kimi-k3",
         NULL,
         K3("tools") K3_CALL("f", K3_ARG("s", "string", "x" K3_END("argument") " y")),
         "B0 f A'{\"s\": \"x<|close|>argument<|sep|> y\"}' E",
         0},
        /* no calls */
        {"kimi-k3",
         NULL,
         K3_SAYS("the tools tag, " K3("tools") " and so on"),
         "C'the tools tag, <|open|>tools<|sep|> and so on'",
         0},
        {"kimi-k3",
         NULL,
         K3("tools") K3("call name=\"f\"") K3_END("tools"),
         "C'<|open|>tools<|sep|><|open|>call name=\"f\"<|sep|><|close|>tools<|sep|>'",
         0},
        {"kimi-k3",
         NULL,
         K3("tools") K3_CALL("a b", "") K3_END("tools"),
         "C'<|open|>tools<|sep|><|open|>call tool=\"a b\" index=\"1\"<|sep|><|close|>call<|sep|>"
         "<|close|>tools<|sep|>'",
         0},
        {"kimi-k3",
         NULL,
         K3("tools") K3("call tool=\"f\" index=\"1\"")
             K3("argument key=\"s\" type=\"string\"") "ab<|clo",
         "B0 f A'{\"s\": \"ab<|clo'",
         CUT},
        /* reasoning that was not closed */
        {"kimi-k3",
         "kimi-k3",
         "Hm." K3("tools") K3_CALL("f", "") K3_END("tools"),
         "R'Hm.' B0 f A'{}' E",
         THINKING},
        {"kimi-k3",
         NULL,
         K3("tools") K3_CALL("f", "") K3_CALL("python", "") K3_END("tools"),
         "B0 f A'{}' E",
         ONE_CALL},
    };
    CHECK_ALL(cases);
}

/* Options that refer to one another: as many ways through them as 2000 to the power of 4. */
static void test_options_in_a_circle(void **state)
{
    (void)state;
    static const char call[] =
        "<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=x>\n1\n</parameter>\n"
        "</function>";
    json_t *list = json_array(), *ref = json_pack("{s:s}", "$ref", "#/$defs/a");
    for (int i = 0; i < 2000; i++)
        json_array_append(list, ref);
    json_t *tools = json_pack("[{s:{s:s, s:{s:{s:o}, s:{s:{s:O}}, s:O}}}]",
                              "function",
                              "name",
                              "f",
                              "parameters",
                              "properties",
                              "s",
                              ref,
                              "$defs",
                              "a",
                              "anyOf",
                              list,
                              "oneOf",
                              list);
    assert_non_null(tools);
    struct transcript t = {.open = -1};
    const struct reply_config cfg = {.style = {reply_format_find("qwen-xml"), NULL},
                                     .tools = tools};
    struct reply_parser *p = reply_create(&cfg);
    reply_feed(p, call, sizeof call - 1, transcript_event, &t);
    reply_finish(p, false, transcript_event, &t);
    transcript_close(&t);
    assert_string_equal(buf_cstr(&t.text), "B0 f A'{\"s\": 1, \"x\": 1}' E");
    reply_destroy(p);
    buf_deinit(&t.text);
    json_decref(tools);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_in_a_circle),
        cmocka_unit_test(test_tagged),
        cmocka_unit_test(test_kimi_k3),
        cmocka_unit_test(test_tagged_types),
        cmocka_unit_test(test_closing_tags_in_values),
        cmocka_unit_test(test_values_never_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
