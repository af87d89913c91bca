/* Grammars of calls whose arguments have tags: what a tag holds is read back as it is. */
#include "unit/chat/reply/grammar_cases.h"

/* text, which conforms, is read back as one call with these arguments, which are taken over. */
static void must_be_read_as(const struct reply_grammar *r, const char *text, json_t *arguments)
{
    struct counts c;
    assert_non_null(arguments);
    must_be = arguments;
    read_back(r, text, strlen(text), &c);
    must_be = NULL;
    if (c.bad || c.content || c.calls != 1 || c.whole != 1)
        fail_msg("%s", text);
    json_decref(arguments);
}

/* A key in an attribute is escaped there. */
static void test_escaped_keys(void **state)
{
    (void)state;
    static const char text[] =
        K3_NOTHING "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>" K3_ARG(
            "a&amp;b&quot;", "number", "1") "<|close|>call<|sep|><|close|>tools<|sep|>";
    json_t *tools = json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                               "\"properties\":{\"a&b\\\"\":{\"type\":\"integer\"}}}}}]",
                               0,
                               NULL);
    const struct reply_grammar r = {
        .style = {reply_format_find("kimi-k3"), NULL}, .tools = tools, .required = true};
    struct grammar *g = compile(&r, NULL);
    assert_non_null(g);
    assert_true(accepts(g, text));
    must_be_read_as(&r, text, json_pack("{s:i}", "a&b\"", 1));
    grammar_release(g);
    json_decref(tools);
}

/* Objects and arrays have tags of their own, by what the schema says of them. */
static void test_nested_schemas(void **state)
{
    (void)state;
    json_t *tools = json_loads(
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"o\":{"
        "\"type\":\"object\",\"properties\":{\"k\":{\"$ref\":\"#/$defs/k\"},\"s\":{\"type\":"
        "\"string\"}},\"required\":[\"k\"]},\"l\":{\"type\":\"array\",\"items\":{\"type\":"
        "\"integer\"},\"minItems\":1,\"maxItems\":2},\"u\":{\"type\":\"array\",\"items\":{"
        "\"enum\":[1,2]},\"uniqueItems\":true},\"n\":{\"$ref\":\"#/$defs/n\"},\"z\":{\"type\":"
        "\"array\",\"items\":{\"allOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}}},\"$"
        "defs\":{"
        "\"k\":{\"enum\":[\"a\",\"b\"]},\"n\":{\"type\":\"object\",\"properties\":{\"n\":{"
        "\"$ref\":\"#/$defs/n\"},\"m\":{\"$ref\":\"#/$defs/n\"}}}}}}}]",
        0,
        NULL);
    static const struct {
        const char *args, *want; /* NULL: it does not conform */
    } cases[] = {
        {"", "{}"},
        {M3_TAG("o", M3_TAG("k", "a") M3_TAG("s", "x\n<y>")),
         "{\"o\":{\"k\":\"a\",\"s\":\"x\\n<y>\"}}"},
        {M3_TAG("o", M3_TAG("k", "c")), NULL},
        {M3_TAG("o", M3_TAG("s", "x")), NULL},
        {M3_TAG("o", "{\"k\": \"a\"}"), NULL},
        {M3_TAG("l", M3_TAG("item", "1") M3_TAG("item", "2")), "{\"l\":[1,2]}"},
        {M3_TAG("l", ""), NULL},
        {M3_TAG("l", M3_TAG("item", "1") M3_TAG("item", "2") M3_TAG("item", "3")), NULL},
        {M3_TAG("l", M3_TAG("item", "x")), NULL},
        {M3_TAG("u", "[1, 2]"), "{\"u\":[1,2]}"},
        {M3_TAG("u", "[1, 1]"), NULL},
        {M3_TAG("n", M3_TAG("n", "")), "{\"n\":{\"n\":{}}}"},
        {M3_TAG("n", M3_TAG("n", M3_TAG("m", M3_TAG("n", M3_TAG("m", "{\"n\": {}}"))))),
         "{\"n\":{\"n\":{\"m\":{\"n\":{\"m\":{\"n\":{}}}}}}}"},
        {M3_TAG("z", ""), "{\"z\":[]}"},
        {M3_TAG("z", M3_TAG("item", "x")), NULL},
    };
    assert_non_null(tools);
    const struct reply_grammar r = {
        .style = {reply_format_find("minimax-m3"), NULL}, .tools = tools, .required = true};
    struct err_info e = {0};
    struct grammar *g = compile(&r, &e);
    if (!g)
        fail_msg("%s", e.text);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf text = {0};
        buf_printf(&text, M3_CALL("f", "%s"), cases[i].args);
        if (accepts(g, buf_cstr(&text)) != (cases[i].want != NULL))
            fail_msg("%s", cases[i].args);
        if (cases[i].want)
            must_be_read_as(&r, buf_cstr(&text), json_loads(cases[i].want, 0, NULL));
        buf_deinit(&text);
    }
    grammar_release(g);
    json_decref(tools);
}

/* What is required and not described must come all the same; strings are kept to their schema. */
static void test_tagged_schemas(void **state)
{
    (void)state;
    json_t *tools = json_loads(
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"z\":{"
        "\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"},\"c\":{\"$ref\":\"#/$defs/c\"}},"
        "\"required\":[\"z\",\"more\"],\"$defs\":{\"c\":{\"enum\":[\"1\",\"2\"]}}}}}]",
        0,
        NULL);
#define ARG(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define CALL(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"
    static const struct {
        const char *format, *text;
        bool want;
    } cases[] = {
        {"qwen-xml", CALL(ARG("z", "12345") ARG("more", "x")), true},
        {"qwen-xml", CALL(ARG("z", "12345") ARG("c", "2") ARG("more", "x")), true},
        {"qwen-xml", CALL(ARG("z", "12345") ARG("c", "3") ARG("more", "x")), false},
        {"qwen-xml", CALL(ARG("z", "1234") ARG("more", "x")), false},
        {"qwen-xml", CALL(ARG("z", "12345")), false},
        {"lfm2", "<|tool_call_start|>[f(z=\"12345\", c=\"1\", more=1)]<|tool_call_end|>", true},
        {"lfm2", "<|tool_call_start|>[f(z=\"1234\", more=1)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(z=\"12345\")]<|tool_call_end|>", false},
        {"gemma", "<|tool_call>call:f{more:[true],z:<|\"|>12345<|\"|>}<tool_call|>", true},
        {"gemma", "<|tool_call>call:f{more:1,z:<|\"|>12<|\"|>}<tool_call|>", false},
        {"gemma",
         "<|tool_call>call:f{c:<|\"|>3<|\"|>,more:1,z:<|\"|>12345<|\"|>}<tool_call|>",
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct reply_grammar r = {
            .style = {reply_format_find(cases[i].format), NULL}, .tools = tools, .required = true};
        struct err_info e = {0};
        struct grammar *g = compile(&r, &e);
        if (!g)
            fail_msg("%s: %s", cases[i].format, e.text);
        if (accepts(g, cases[i].text) != cases[i].want)
            fail_msg("%s: %s", cases[i].format, cases[i].text);
        grammar_release(g);
    }
    json_decref(tools);
}

/* A string that conforms in a tag is read back as it is: what would end it does not conform. */
static void test_tagged_texts(void **state)
{
    (void)state;
    static const char *const values[] = {"a\n</function></tool_call> b",
                                         "a\n</function>\n</tool_call>",
                                         "a\n</function> \n </tool_call> b",
                                         "a\n<parameter=s>\n b",
                                         "a</parameter></function> b",
                                         "a</parameter>\n<parameter=s>",
                                         "</parameter></function>",
                                         "</function>\n</tool_call>",
                                         "<parameter=s>\n",
                                         "a <parameter=s> </function>"};
    json_t *tools =
        json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                   "\"properties\":{\"s\":{\"type\":\"string\"}},\"required\":[\"s\"]}}}]",
                   0,
                   NULL);
    const struct reply_grammar r = {
        .style = {reply_format_find("qwen-xml"), NULL}, .tools = tools, .required = true};
    struct grammar *g = compile(&r, NULL);
    assert_non_null(g);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, CALL("<parameter=s>\n%s\n</parameter>\n"), values[i]);
        bool conforms = accepts(g, text);
        assert_true(conforms == (i >= 7));
        if (conforms)
            must_be_read_as(&r, text, json_pack("{s:s}", "s", values[i]));
    }
    grammar_release(g);
    json_decref(tools);
}

/* A bounded string has no closing tag in it, in lines of its own or not. */
static void test_bounded_texts(void **state)
{
    (void)state;
    json_t *tools = json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                               "\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":40}}}}}]",
                               0,
                               NULL);
    const struct reply_grammar r = {
        .style = {reply_format_find("qwen-xml"), NULL}, .tools = tools, .required = true};
    struct grammar *g = compile(&r, NULL);
    assert_non_null(g);
    assert_true(accepts(g, CALL(ARG("s", "a\n<b></param>"))));
    assert_false(accepts(g, CALL(ARG("s", "a</parameter></function> b"))));
    assert_false(accepts(g, CALL(ARG("s", "</parameter>"))));
    grammar_release(g);
    json_decref(tools);
}

/* An enumeration never becomes free text because its strings could be read as something else. */
static void test_tagged_choices(void **state)
{
    (void)state;
    static const char mixed[] = "{\"type\":[\"string\",\"integer\"],\"enum\":[\"1\",\"2\"]}";
    static const char partly[] = "{\"type\":[\"string\",\"integer\"],\"enum\":[\"1\",\"a\"]}";
    static const char ints[] = "{\"enum\":[1,2]}", both[] = "{\"enum\":[\"1\",2]}";
    static const char null[] = "{\"type\":\"string\",\"enum\":[\"a\",null]}";
    static const char long_ones[] =
        "{\"type\":[\"string\",\"number\"],\"enum\":[\"a\",\"ab\",0.05,7],"
        "\"minLength\":2,\"anyOf\":[{\"maximum\":1},{\"const\":7.5}]}";
#define DSML_CALL(kind, value)                                                                     \
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"k\" "      \
    "string=\"" kind "\">" value "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
#define GEMMA_CALL(value) "<|tool_call>call:f{k:" value "}<tool_call|>"
    static const struct {
        const char *format, *schema, *text, *want; /* NULL: it does not conform */
    } cases[] = {
        {"qwen-xml", mixed, CALL(ARG("k", "1")), "{\"k\":1}"},
        {"qwen-xml", mixed, CALL(ARG("k", "words")), NULL},
        {"qwen-xml", ints, CALL(ARG("k", "1")), "{\"k\":1}"},
        {"deepseek-v4", mixed, DSML_CALL("true", "1"), "{\"k\":\"1\"}"},
        {"deepseek-v4", mixed, DSML_CALL("true", "3"), NULL},
        {"qwen-xml", partly, CALL(ARG("k", "1")), NULL},
        {"deepseek-v4", partly, DSML_CALL("true", "1"), "{\"k\":\"1\"}"},
        {"deepseek-v4", ints, DSML_CALL("false", "2"), "{\"k\":2}"},
        {"deepseek-v4", ints, DSML_CALL("true", "2"), NULL},
        {"deepseek-v4", both, DSML_CALL("true", "1"), "{\"k\":\"1\"}"},
        {"deepseek-v4", both, DSML_CALL("true", "2"), NULL},
        /* values that the schema takes out of its own list */
        {"qwen-xml", null, CALL(ARG("k", "a")), "{\"k\":\"a\"}"},
        {"qwen-xml", null, CALL(ARG("k", "null")), NULL},
        {"deepseek-v4", null, DSML_CALL("true", "a"), "{\"k\":\"a\"}"},
        {"deepseek-v4", null, DSML_CALL("true", "null"), NULL},
        {"gemma", null, GEMMA_CALL("<|\"|>a<|\"|>"), "{\"k\":\"a\"}"},
        {"gemma", null, GEMMA_CALL("null"), NULL},
        {"gemma", null, GEMMA_CALL("<|\"|>null<|\"|>"), NULL},
        {"qwen-xml", long_ones, CALL(ARG("k", "ab")), "{\"k\":\"ab\"}"},
        {"qwen-xml", long_ones, CALL(ARG("k", "0.05")), "{\"k\":0.05}"},
        {"qwen-xml", long_ones, CALL(ARG("k", "a")), NULL},
        {"qwen-xml", long_ones, CALL(ARG("k", "7")), NULL},
        {"gemma", long_ones, GEMMA_CALL("<|\"|>ab<|\"|>"), "{\"k\":\"ab\"}"},
        {"gemma", long_ones, GEMMA_CALL("0.05"), "{\"k\":0.05}"},
        {"gemma", long_ones, GEMMA_CALL("<|\"|>a<|\"|>"), NULL},
        {"gemma", long_ones, GEMMA_CALL("7"), NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *tools = json_pack("[{s:{s:s, s:{s:s, s:{s:o}, s:[s]}}}]",
                                  "function",
                                  "name",
                                  "f",
                                  "parameters",
                                  "type",
                                  "object",
                                  "properties",
                                  "k",
                                  json_loads(cases[i].schema, 0, NULL),
                                  "required",
                                  "k");
        assert_non_null(tools);
        const struct reply_grammar r = {
            .style = {reply_format_find(cases[i].format), NULL}, .tools = tools, .required = true};
        struct grammar *g = compile(&r, NULL);
        assert_non_null(g);
        if (accepts(g, cases[i].text) != (cases[i].want != NULL))
            fail_msg("%s: %s", cases[i].schema, cases[i].text);
        if (cases[i].want)
            must_be_read_as(&r, cases[i].text, json_loads(cases[i].want, 0, NULL));
        grammar_release(g);
        json_decref(tools);
    }
}

/* The same where arguments have tags; what only a strict tool's schema refers to is refused. */
static void test_optional_tags(void **state)
{
    (void)state;
    json_t *tools = json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
                               "\"x\":{\"type\":\"integer\"}},\"minProperties\":1}}},"
                               "{\"function\":{\"name\":\"get\",\"parameters\":{\"type\":"
                               "\"object\",\"properties\":{}}}}]",
                               0,
                               NULL);
    static const bool last[] = {false, true}, first[] = {true, false};
    for (size_t i = 0; i < sizeof with_tags / sizeof with_tags[0]; i++) {
        struct err_info e = {0};
        struct reply_grammar r = {.style = {reply_format_find(with_tags[i]), NULL},
                                  .tools = tools,
                                  .strict = last,
                                  .parallel = true};
        struct grammar *g = compile(&r, &e);
        if (!g)
            fail_msg("%s: %s", with_tags[i], e.text);
        if (i == 0) {
            assert_true(accepts(g,
                                "a<tool_call>\n<function=f>\n<parameter=q>\n1\n</parameter>\n"
                                "<parameter=r>\n[]\n</parameter>\n</function>\n</tool_call>"));
            assert_false(accepts(g,
                                 "a<tool_call>\n<function=get>\n<parameter=q>\n1\n</parameter>\n"
                                 "</function>\n</tool_call>"));
        }
        grammar_release(g);
        r.strict = first;
        assert_null(compile(&r, &e));
        assert_non_null(strstr(e.text, "/tools/0/function/parameters"));
        r.strict = last;
        r.required = true;
        assert_null(compile(&r, &e));
    }
    json_decref(tools);
}
/* A string in a tag is read by the tool's own schema: an option that says otherwise is refused. */
static void test_options_read_alike(void **state)
{
    (void)state;
    json_t *tools = json_loads(
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"oneOf\":[{"
        "\"properties\":{\"k\":{\"const\":1},\"v\":{\"type\":\"integer\"}},\"required\":[\"k\"]},{"
        "\"properties\":{\"k\":{\"const\":2},\"v\":{\"type\":\"string\"}},\"required\":[\"k\"]}]}}}"
        "]",
        0,
        NULL);
    struct err_info e = {0};
    struct reply_grammar r = {
        .style = {reply_format_find("qwen-xml"), NULL}, .tools = tools, .required = true};
    assert_null(compile(&r, &e));
    assert_non_null(strstr(e.text, "/tools/0/function/parameters/properties/v"));
    r.style.format = reply_format_find("lfm2"); /* where strings have quotes */
    struct grammar *g = compile(&r, &e);
    assert_non_null(g);
    grammar_release(g);
    json_decref(tools);
}

/* Many arguments whose types are looked for behind many options: each schema is looked at once, not
 * for each argument. */
static void test_many_read_alike(void **state)
{
    (void)state;
    enum { PROPERTIES = 400, OPTIONS = 2000 };
    json_t *properties = json_object(), *options = json_array();
    for (int i = 0; i < PROPERTIES; i++) {
        char key[16];
        snprintf(key, sizeof key, "p%d", i);
        json_object_set_new(properties, key, json_pack("{s:s}", "type", "string"));
    }
    for (int i = 0; i < OPTIONS; i++)
        json_array_append_new(options, json_object());
    /* merged they are members of the root, where the tool's own schema does not have them */
    json_array_append_new(options, json_pack("{s:o}", "properties", properties));
    json_t *tools = json_pack("[{s:{s:s, s:{s:s, s:o}}}]",
                              "function",
                              "name",
                              "f",
                              "parameters",
                              "type",
                              "object",
                              "allOf",
                              options);
    struct err_info e = {0};
    const struct reply_grammar r = {
        .style = {reply_format_find("qwen-xml"), NULL}, .tools = tools, .required = true};
    struct grammar *g = compile(&r, &e);
    if (!g)
        fail_msg("%s", e.text);
    assert_true(accepts(g,
                        "<tool_call>\n<function=f>\n<parameter=p399>\n1\n</parameter>\n"
                        "</function>\n</tool_call>"));
    grammar_release(g);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escaped_keys),
        cmocka_unit_test(test_nested_schemas),
        cmocka_unit_test(test_tagged_schemas),
        cmocka_unit_test(test_tagged_texts),
        cmocka_unit_test(test_bounded_texts),
        cmocka_unit_test(test_tagged_choices),
        cmocka_unit_test(test_optional_tags),
        cmocka_unit_test(test_options_read_alike),
        cmocka_unit_test(test_many_read_alike),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
