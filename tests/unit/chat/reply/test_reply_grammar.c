/* Grammars of calls: what conforms is read back as calls, whole, of the tools that there are. */
#include "unit/chat/reply/grammar_cases.h"

/* No free text in the arguments. */
static const char closed_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"enum\":[\"\",\"a\"]},\"b\":{\"type\":\"boolean\"},\"e\":{\"enum\":["
    "\"one\",\"two\"]}},\"required\":[\"s\",\"e\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{}}}]";

/* Answers by chance, in every format, with reasoning, alone and several. */
static void test_random_answers(void **state)
{
    (void)state;
    json_t *any = json_loads(tools_json, 0, NULL), *closed = json_loads(closed_json, 0, NULL);
    static char text[20000];
    uint32_t n_all = 0;
    for (size_t i = 0; reply_format_list(i); i++) {
        const struct reply_format *f = reply_format_find(reply_format_list(i));
        const struct reply_thoughts *own = reply_thoughts_find(reply_format_name(f));
        bool harmony = own && reply_is_framed(f); /* what is in messages */
        bool functionary = strcmp(reply_format_name(f), "functionary-v3.2") == 0;
        bool tagged = false;
        for (size_t k = 0; k < sizeof with_tags / sizeof with_tags[0]; k++)
            tagged |= strcmp(reply_format_name(f), with_tags[k]) == 0;
        json_t *tools = tagged ? closed : any;
        assert_true(reply_grammar_known(f));
        for (unsigned way = 0; way < 8; way++) {
            struct reply_grammar r = {.style = {f, NULL}, .tools = tools, .required = true};
            struct err_info e = {0};
            r.parallel = way & 1;
            r.only = way & 2 ? "f" : NULL;
            if (way & 4 && !functionary)
                r.style.thoughts = harmony ? own : reply_thoughts_find("think");
            r.start.thinking = way == 7 && !harmony && !functionary;
            struct grammar *g = compile(&r, &e);
            if (!g)
                fail_msg("%s: %s", reply_format_name(f), e.text);
            uint32_t n_ended = 0;
            for (uint64_t k = 1; k <= 40; k++) {
                uint64_t seed = k * 77 + way;
                size_t n;
                struct counts c;
                if (!random_answer(g, &seed, 60, text, sizeof text, &n))
                    continue;
                n_ended++;
                read_back(&r, text, n, &c);
                if (c.bad || c.content || c.calls == 0 || c.whole != c.calls)
                    fail_msg("%s, way %u, seed %llu: %u calls, %u whole, %zu content: %s",
                             reply_format_name(f),
                             way,
                             (unsigned long long)k,
                             c.calls,
                             c.whole,
                             c.content,
                             text);
                assert_true(r.parallel || c.calls == 1);
            }
            /* by chance free text hardly ever comes to its closing mark */
            assert_true(n_ended > 10 || (way & 4));
            n_all += n_ended;
            grammar_release(g);
        }
    }
    assert_true(n_all > 28 * 4 * 20);
    json_decref(any);
    json_decref(closed);
}

/* What templates write conforms. */
static void test_goldens(void **state)
{
    (void)state;
    json_t *tools = json_loads(tools_json, 0, NULL);
    static const struct {
        const char *format, *text;
        bool want;
    } cases[] = {
        {"hermes",
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\", \"e\": \"one\"}}\n"
         "</tool_call>",
         true},
        {"hermes", "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>", true},
        {"hermes", "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>", false},
        {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", false},
        {"hermes", "Hello", false},
        {"mistral", "[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {}}]", true},
        {"llama3", "{\"name\": \"get\", \"parameters\": {}}", true},
        {"qwen-xml",
         "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n<parameter=e>\ntwo\n"
         "</parameter>\n</function>\n</tool_call>",
         true},
        {"qwen-xml",
         "<tool_call>\n<function=f>\n<parameter=e>\ntwo\n</parameter>\n</function>\n</tool_call>",
         false},
        {"functionary-v3.2", "get\n{}", true},
        {"xlam", "[{\"name\": \"get\", \"arguments\": {}}]", true},
        {"xlam", "{\"name\": \"get\", \"arguments\": {}}", false},
        {"hunyuan", "<tool_calls>[{\"name\": \"get\", \"arguments\": {}}]</tool_calls>", true},
        {"functiongemma", "<start_function_call>call:get{}<end_function_call>", true},
        {"functiongemma",
         "<start_function_call>call:f{b:true,e:<escape>one<escape>,s:<escape>x<escape>}"
         "<end_function_call>",
         true},
        {"olmo3", "<function_calls>get()\nf(s=\"x\", e=\"one\")</function_calls>", true},
        {"minimax-m1",
         "<tool_calls>\n{\"name\": \"get\", \"arguments\": {}}\n{\"name\": \"get\", "
         "\"arguments\": {}}\n</tool_calls>",
         true},
        {"glm", "<tool_call>get</tool_call>", true},
        {"glm", "<tool_call>get\n</tool_call>\n<tool_call>get</tool_call>", true},
        {"qwen-xml",
         "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n<parameter=b>\nTrue\n"
         "</parameter>\n<parameter=e>\ntwo\n</parameter>\n</function>\n</tool_call>",
         true},
        {"kimi-k3", K3_NOTHING K3_GET(""), true},
        {"kimi-k3",
         "<|open|>response<|sep|>" K3_NOTHING K3_GET("") "<|close|>message<|sep|>",
         true},
        {"kimi-k3", K3_GET(""), false},
        {"kimi-k3", "Hi" K3_NOTHING K3_GET(""), false},
        {"kimi-k3", K3_NOTHING "<|close|>message<|sep|>", false},
        {"kimi-k3", K3_NOTHING K3_GET(K3_ARG("q", "number", "1")), false},
        {"minimax-m3", M3_CALL("get", ""), true},
        {"minimax-m3", M3_CALL("f", M3_TAG("s", "x") M3_TAG("b", "true") M3_TAG("e", "two")), true},
        {"minimax-m3", M3_CALL("f", M3_TAG("s", "x")), false},
        {"minimax-m3", M3_CALL("f", M3_TAG("s", "x") M3_TAG("e", "three")), false},
        {"harmony", "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}", true},
        {"harmony", " to=functions.get<|channel|>commentary json<|message|>{}", true},
        {"harmony", " to=functions.get<|channel|>final json<|message|>{}", false},
        {"muse", MUSE_GET(""), true},
        {"muse", MUSE_GET("") "<|eom|><|start|>assistant" MUSE_GET(""), true},
        {"muse", MUSE_GET("") MUSE_GET(""), false},
        {"muse", " to=user<|message|>Hello", false},
        {"muse", MUSE_GET("<atem:parameter name=\"q\">1</atem:parameter>\n"), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct reply_grammar r = {.style = {reply_format_find(cases[i].format), NULL},
                                        .tools = tools,
                                        .required = true,
                                        .parallel = true};
        struct grammar *g = compile(&r, NULL);
        assert_non_null(g);
        if (accepts(g, cases[i].text) != cases[i].want)
            fail_msg("%s", cases[i].text);
        grammar_release(g);
    }
    json_decref(tools);
}

/* Text is free until a call begins; then a strict tool's arguments conform, and others are any
 * object. */
static void test_optional(void **state)
{
    (void)state;
    json_t *tools = json_loads(tools_json, 0, NULL);
    static const bool strict[] = {false, true};
    struct reply_grammar r = {
        .style = {reply_format_find("hermes"), NULL}, .tools = tools, .strict = strict};
    struct grammar *g = compile(&r, NULL);
    assert_true(accepts(g, "Hello <b> {"));
    assert_true(accepts(g, ""));
    assert_true(
        accepts(g, "a<tool_call>\n{\"name\": \"f\", \"arguments\": {\"q\": 1}}\n</tool_call>"));
    assert_true(accepts(g, "a<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>"));
    assert_false(
        accepts(g, "a<tool_call>\n{\"name\": \"get\", \"arguments\": {\"q\": 1}}\n</tool_call>"));
    assert_false(accepts(g, "a<tool_call> b"));
    grammar_release(g);
    assert_false(reply_grammar_known(NULL));
    json_decref(tools);
}

/* The same where calls have no mark: a text that begins like one is one. */
static void test_optional_bare(void **state)
{
    (void)state;
    static const struct {
        const char *format, *text;
        bool want;
    } cases[] = {
        {"llama3", "Hello {\"name\"", true},
        {"llama3", "", true},
        {"llama3", "{\"name\": \"get\", \"parameters\": {}}", true},
        {"llama3", "{\"name\": \"get\", \"parameters\": {\"q\": 1}}", false},
        {"llama3", " {\"name\": \"get\"", false},
        {"llama3", "Text <|python_tag|>{", false},
        {"json", "```json", false},
        {"json", "{\"name\": \"f\", \"arguments\": {\"q\": 1}}", true}, /* f is not strict */
        {"pythonic", "[get()]", true},
        {"pythonic", "[get(q=1)]", false},
        {"pythonic", "See [1]", true},
        {"harmony", "<|channel|>final<|message|>Hello", true},
        {"harmony", "<|channel|>final<|message|>Hello<|start|>", false},
        {"harmony", "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}", true},
        {"harmony",
         "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.get <|constrain|>json<|message|>{}",
         true},
        {"harmony",
         "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"q\":1}",
         false},
        {"muse", " to=user<|message|>Hello", true},
        {"muse", " to=user<|message|>Hello<|eom|>", false},
        {"muse", MUSE_GET(""), true},
        {"muse", " to=user<|message|>I look.<|eom|><|start|>assistant" MUSE_GET(""), true},
        {"muse", MUSE_GET("<atem:parameter name=\"q\">1</atem:parameter>\n"), false},
        {"functionary-v3.2", "all\nHello", true},
        {"functionary-v3.2", "all\nI look.>>>get\n{}", true},
        {"functionary-v3.2", "get\n{\"q\": 1}", false},
        {"qwen-xml", "Text <function=f>", false},
        {"kimi-k3", "<|open|>response<|sep|>Hello" K3_NOTHING "<|close|>message<|sep|>", true},
        {"kimi-k3", "Hello" K3_NOTHING, true},
        {"kimi-k3", "I look." K3_NOTHING K3_GET(""), true},
        {"kimi-k3", "I look." K3_NOTHING K3_GET(K3_ARG("q", "number", "1")), false},
        {"kimi-k3", "I look." K3_GET(""), false},
        {"minimax-m1",
         "Ok.<tool_calls>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_calls>",
         true},
        {"minimax-m3", "Hello", true},
        {"minimax-m3", "I look." M3_CALL("get", ""), true},
        {"minimax-m3", "I look." M3_CALL("get", M3_TAG("q", "1")), false},
        {"minimax-m3", M3_CALL("f", M3_TAG("b", "false")), true}, /* f is not strict */
        {"xlam", "[{\"name\": \"get\", \"arguments\": {}}]", true},
        {"xlam", "[{\"name\": \"get\", \"arguments\": {\"q\": 1}}]", false},
    };
    json_t *tools = json_loads(tools_json, 0, NULL);
    static const bool strict[] = {false, true};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct reply_grammar r = {
            .style = {reply_format_find(cases[i].format), NULL}, .tools = tools, .strict = strict};
        struct grammar *g = compile(&r, NULL);
        assert_non_null(g);
        if (accepts(g, cases[i].text) != cases[i].want)
            fail_msg("%s: %s", cases[i].format, cases[i].text);
        grammar_release(g);
    }
    json_decref(tools);
}

/* An answer of a form of its own, or calls. */
static void test_content_or_calls(void **state)
{
    (void)state;
    static const struct {
        const char *format, *text;
        bool want;
    } cases[] = {
        {"hermes", "42", true},
        {"hermes", "4a", false},
        {"hermes", "<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>", true},
        {"hermes", "42<tool_call>", false},
        {"hermes", "<think>Hm.</think>42", true},
        {"harmony", "<|channel|>final<|message|>42", true},
        {"harmony", "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}", true},
        {"lfm2", "<|tool_call_start|>[get()]<|tool_call_end|>", true},
        {"lfm2", "7", true},
        {"kimi-k3", "<|open|>response<|sep|>42", true},
        {"kimi-k3", "42" K3_NOTHING "<|close|>message<|sep|>", true},
        {"kimi-k3", "4a" K3_NOTHING, false},
        {"kimi-k3", K3_NOTHING K3_GET(""), true},
    };
    json_t *tools = json_loads(tools_json, 0, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct reply_thoughts *think = reply_thoughts_find("think");
        const struct reply_grammar r = {
            .style = {reply_format_find(cases[i].format), i < 5 ? think : NULL}, .tools = tools};
        struct grammar_builder *b = grammar_builder_create("tools");
        struct grammar *g = NULL;
        grammar_node root = reply_grammar_content(&r, b, grammar_regex(b, "[0-9]+", 6));
        assert_int_equal(grammar_compile(b, root, w.vocab, &g, NULL), OK);
        grammar_builder_destroy(b);
        if (accepts(g, cases[i].text) != cases[i].want)
            fail_msg("%s: %s", cases[i].format, cases[i].text);
        grammar_release(g);
    }
    json_decref(tools);
}
/* Options at the root of a tool's schema are kept to in every format: beside what holds for all,
 * one only where oneOf says so, by references, by conditions. */
static void test_root_options(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{'type':'object','oneOf':[{'properties':{'k':{'const':'a'},'x':{'type':'integer'}},"
        "'required':['k','x']},{'properties':{'k':{'const':'b'},'y':{'enum':['1','2']}},"
        "'required':['k','y']}]}",
        "{'type':'object','properties':{'a':{'type':'boolean'},'b':{'type':'boolean'}},'oneOf':[{"
        "'required':['a']},{'required':['b']}]}",
        "{'type':'object','properties':{'n':{'type':'integer'}},'required':['n'],'anyOf':[{"
        "'properties':{'n':{'minimum':5,'maximum':7}}},{'$ref':'#/$defs/low'}],'$defs':{'low':{"
        "'properties':{'n':{'maximum':-5,'minimum':-9}}}}}",
        "{'type':'object','properties':{'paid':{'type':'boolean'},'sum':{'type':'integer'}},"
        "'required':['paid'],'if':{'properties':{'paid':{'const':true}}},'then':{'required':["
        "'sum']},'additionalProperties':false}",
        "{'type':'object','properties':{'a':{'type':'boolean'},'b':{'type':'boolean'}},"
        "'dependentRequired':{'a':['b']},'additionalProperties':false}"};
    static char text[20000];
    for (size_t k = 0; k < sizeof schemas / sizeof schemas[0]; k++) {
        struct buf quoted = {0};
        for (const char *p = schemas[k]; *p; p++)
            buf_char(&quoted, *p == '\'' ? '"' : *p);
        json_t *schema = json_loadb(quoted.data, quoted.len, 0, NULL);
        json_t *tools = json_pack("[{s:s, s:{s:s, s:o}}]",
                                  "type",
                                  "function",
                                  "function",
                                  "name",
                                  "f",
                                  "parameters",
                                  schema);
        assert_non_null(tools);
        must_satisfy = schema;
        for (size_t i = 0; reply_format_list(i); i++) {
            const struct reply_format *f = reply_format_find(reply_format_list(i));
            const struct reply_grammar r = {.style = {f, NULL}, .tools = tools, .required = true};
            struct err_info e = {0};
            struct grammar *g = compile(&r, &e);
            uint32_t n_ended = 0;
            if (!g)
                fail_msg("%s: %s: %s", reply_format_name(f), schemas[k], e.text);
            for (uint64_t seed = 1; seed <= 40; seed++) {
                uint64_t x = seed * 31;
                size_t n;
                struct counts c;
                if (!random_answer(g, &x, 80, text, sizeof text, &n))
                    continue;
                n_ended++;
                read_back(&r, text, n, &c);
                if (c.bad || c.whole != 1)
                    fail_msg("%s: %s: %.*s", reply_format_name(f), schemas[k], (int)n, text);
            }
            assert_true(n_ended > 10);
            grammar_release(g);
        }
        must_satisfy = NULL;
        buf_deinit(&quoted);
        json_decref(tools);
    }
}

/* A schema that refers to itself comes to an end, in every format. */
static void test_recursion(void **state)
{
    (void)state;
    json_t *tools = json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                               "\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}},\"$defs\":{\"n\":{"
                               "\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
                               "\"next\":{\"$ref\":\"#/$defs/n\"}}}}}}}]",
                               0,
                               NULL);
    assert_non_null(tools);
    for (size_t i = 0; reply_format_list(i); i++) {
        const struct reply_format *f = reply_format_find(reply_format_list(i));
        const struct reply_grammar r = {.style = {f, NULL}, .tools = tools, .required = true};
        struct err_info e = {0};
        struct grammar *g = compile(&r, &e);
        if (!g)
            fail_msg("%s: %s", reply_format_name(f), e.text);
        grammar_release(g);
    }
    json_decref(tools);
}

static void test_errors(void **state)
{
    (void)state;
    struct err_info e = {0};
    json_t *tools = json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                               "\"properties\":{\"a\":{\"pattern\":\"(\"}}}}}]",
                               0,
                               NULL);
    const struct reply_grammar r = {
        .style = {reply_format_find("hermes"), NULL}, .tools = tools, .required = true};
    assert_null(compile(&r, &e));
    assert_non_null(strstr(e.text, "/tools/0/function/parameters"));
    json_decref(tools);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_answers),
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_optional),
        cmocka_unit_test(test_optional_bare),
        cmocka_unit_test(test_content_or_calls),
        cmocka_unit_test(test_root_options),
        cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
