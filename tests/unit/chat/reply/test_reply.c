/* Replies taken apart: what all formats share, by the example of Hermes, and properties of all of
 * them by chance. test_formats.c has the others. */
#include "unit/chat/reply/cases.h"

#include <time.h>

static void test_hermes(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"hermes", NULL, "Hello, world", "C'Hello, world'", 0},
        {"hermes", NULL, "  two\n\nlines \n", "C'  two\n\nlines \n'", 0},
        {"hermes",
         NULL,
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}\n</tool_call>",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
        {"hermes",
         NULL,
         "I look. \n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
         "{}}\n</tool_call>\n<tool_call>\n"
         "{\"name\": \"get_weather\", \"arguments\": {\"a\":[1,{\"b\":\"}\"}]}}\n</tool_call>\n",
         "C'I look.' B0 f A'{}' E B1 get_weather A'{\"a\":[1,{\"b\":\"}\"}]}' E",
         0},
        /* content behind a call keeps what stands between */
        {"hermes",
         NULL,
         "a<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n\nb\n",
         "C'a' B0 f A'{}' E C'\n\nb\n'",
         0},
        /* arguments first, as text, lacking, null; a function inside; an id */
        {"hermes",
         NULL,
         "<tool_call>{\"arguments\": {\"s\": 1}, \"name\": \"f\"}</tool_call>",
         "B0 f A'{\"s\": 1}' E",
         0},
        {"hermes",
         NULL,
         "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"s\\\": "
         "\\\"\\u00e4\\ud83d\\ude00\\\"}\"}"
         "</tool_call>",
         "B0 f A'{\"s\": \"\xc3\xa4\xf0\x9f\x98\x80\"}' E",
         0},
        {"hermes", NULL, "<tool_call>{\"name\": \"f\"}</tool_call>", "B0 f A'{}' E", 0},
        {"hermes",
         NULL,
         "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
         "B0 f A'{}' E",
         0},
        {"hermes",
         NULL,
         "<tool_call>{\"id\": \"x1\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
         "\"parameters\": {\"n\": -1.5e3}}}</tool_call>",
         "B0 f (x1) A'{\"n\": -1.5e3}' E",
         0},
        /* the closing mark inside a string is text of the string */
        {"hermes",
         NULL,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\\\"}\"}}</tool_call>x",
         "B0 f A'{\"s\": \"</tool_call>\\\"}\"}' E C'x'",
         0},
        /* line breaks in strings, and backslashes that escape nothing; brackets that do not fit */
        {"hermes",
         NULL,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\nb\t\\d\x01\\\n\"}}</tool_call>",
         "B0 f A'{\"s\": \"a\\nb\\t\\\\d\\u0001\\\\\\n\"}' E",
         0},
        {"hermes",
         NULL,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": [1}]}</tool_call>",
         "B0 f A'{\"s\": [1' C'}]}</tool_call>'",
         0},
        {"hermes",
         NULL,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"p\": "
         "\"C:\\users\\u00e9\\u12\"}}</tool_call>",
         "B0 f A'{\"p\": \"C:\\\\users\\u00e9\\\\u12\"}' E",
         0},
        {"hermes",
         NULL,
         "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"s\\\": \\\"a\\nb\\\"}\"}</tool_call>",
         "B0 f A'{\"s\": \"a\\nb\"}' E",
         0},
        /* several objects in one block; in an array */
        {"hermes",
         NULL,
         "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"python\",\"arguments\":{}}"
         "</tool_call>",
         "B0 f A'{}' E B1 python A'{}' E",
         0},
        {"hermes",
         NULL,
         "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"f\",\"arguments\":{}}]"
         "</tool_call>",
         "B0 f A'{}' E B1 f A'{}' E",
         0},
        /* a bracket too few, a bracket too many, no closing mark */
        {"hermes",
         NULL,
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}</tool_call>",
         "B0 f A'{\"n\":1}' E",
         0},
        {"hermes",
         NULL,
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}}}</tool_call>",
         "B0 f A'{\"n\":1}' E",
         0},
        {"hermes",
         NULL,
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":1}}",
         "B0 f A'{\"n\":1}' E",
         0},
        /* the first of several */
        {"hermes",
         NULL,
         "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"f\","
         "\"arguments\":{}}</tool_call>",
         "B0 f A'{}' E",
         ONE_CALL},
        /* names that nobody gave are still calls */
        {"hermes",
         NULL,
         "<tool_call>{\"name\":\"other\",\"arguments\":{}}</tool_call>",
         "B0 other A'{}' E",
         0},
    };
    CHECK_ALL(cases);
}

/* What is no call comes back whole. */
static void test_given_back(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "<tool_call",
        "a < b <tool_ca",
        "<tool_call> is how calls begin",
        "<tool_call>\n[1, 2]</tool_call>",
        "<tool_call>{\"nam\": 1}</tool_call>",
        "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\" = \"f\"}</tool_call>",
        "<tool_call>{name: \"f\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": <none>}</tool_call>",
        "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"",
        "<tool_call>{\"name\": \"f\"",
        "<tool_call><tool_call><tool_call>",
        "</tool_call> \xf0\x9f\x98\x80 \xff\xfe",
        "<think>no thoughts here</think>",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char want[200];
        snprintf(want, sizeof want, "C'%s'", texts[i]);
        check(&(struct reply_case){"hermes", NULL, texts[i], want, 0});
    }
    /* and a call that follows is one */
    check(&(struct reply_case){"hermes",
                               NULL,
                               "<tool_call> {\"a\": 1} <tool_call>{\"name\":\"f\",\"arguments\":{}}"
                               "</tool_call>",
                               "C'<tool_call> {\"a\": 1}' B0 f A'{}' E",
                               0});
}

/* What the end of the output cuts is not whole. */
static void test_cut(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"hermes",
         NULL,
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\": \"abc",
         "B0 f A'{\"s\": \"abc'",
         CUT},
        {"hermes",
         NULL,
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\": [</tool_call>",
         "B0 f A'{\"s\": ['",
         0},
        {"mistral", NULL, "[TOOL_CALLS]f[ARGS]{\"s\":", "B0 f A'{\"s\":'", CUT},
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n<parameter=s>\nabc",
         "B0 f A'{\"s\": \"abc'",
         CUT},
        {"qwen-xml",
         NULL,
         "<tool_call>\n<function=f>\n<parameter=n>\n12",
         "B0 f A'{\"n\": 12'",
         CUT},
        {"functionary-v3.2", NULL, "python\nprint(1)", "B0 python A'{\"code\": \"print(1)'", CUT},
        {"harmony",
         "harmony",
         "<|channel|>commentary to=functions.f<|message|>{\"a\"",
         "B0 f A'{\"a\"'",
         CUT},
    };
    CHECK_ALL(cases);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool called = true;
        free(read_reply(&cases[i], strlen(cases[i].text), NULL, &called));
        assert_false(called);
    }
    bool called = false;
    const struct reply_case whole = {
        "hermes", NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "", 0};
    free(read_reply(&whole, strlen(whole.text), NULL, &called));
    assert_true(called);
}

static void test_thoughts(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {NULL, "think", "<think>\nHm.\n\nYes.\n</think>\n\nDone.", "R'Hm.\n\nYes.' C'Done.'", 0},
        {NULL, "think", "Hm.\n</think>\n\nDone.\n", "R'Hm.' C'Done.\n'", THINKING},
        {NULL, "think", "\n\n</think>\n\nDone", "C'Done'", THINKING},
        {NULL,
         "think",
         "No end < / in <think> sight ",
         "R'No end < / in <think> sight '",
         THINKING},
        {NULL, "think", "Text with <think>x</think>", "C'Text with <think>x</think>'", 0},
        {NULL, "think", " \n<think>a</think>b", "R'a' C'b'", 0},
        {NULL, "think", "  indented", "C'  indented'", 0},
        {NULL, "mistral", "[THINK]a[/THINK]b", "R'a' C'b'", 0},
        /* closed without having been opened; opened twice */
        {NULL, "minimax-m3", "</mm:think>Hello", "C'Hello'", 0},
        {NULL, "think", "\n</think>\n\nA </think>", "C'A </think>'", 0},
        {NULL, "think", "<think>\na</think>b", "R'a' C'b'", THINKING},
        {NULL, "think", "<think><think>a <think></think>b", "R'a <think>' C'b'", 0},
        {"hermes",
         "think",
         "<think>\nI call <tool_call>.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
         "{}}\n</tool_call>",
         "R'I call <tool_call>.' B0 f A'{}' E",
         0},
        {"hermes",
         "think",
         "<think>a</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
         "R'a' C'<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>'",
         NO_TOOLS},
        {"command-r7b",
         "command-r7b",
         "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
         "\"tool_name\": \"f\", \"parameters\": {\"s\": \"x\"}}\n]<|END_ACTION|>",
         "R'a' B0 f (0) A'{\"s\": \"x\"}' E",
         0},
    };
    CHECK_ALL(cases);
}

static void test_random_splits(void **state)
{
    (void)state;
    static const char *const parts[] = {"<tool_call>",
                                        "</tool_call>",
                                        "{",
                                        "}",
                                        "\"name\": ",
                                        "\"f\"",
                                        ", ",
                                        "\"arguments\": ",
                                        "\"",
                                        "\\",
                                        "\n",
                                        " ",
                                        "text",
                                        "<",
                                        "[TOOL_CALLS]",
                                        "[ARGS]",
                                        "[",
                                        "]",
                                        "<function=",
                                        "f>",
                                        "<parameter=s>",
                                        "</parameter>",
                                        "</function>",
                                        "<arg_key>",
                                        "</arg_key>",
                                        "<arg_value>",
                                        "</arg_value>",
                                        "<|channel|>",
                                        "analysis",
                                        "<|message|>",
                                        "<|end|>",
                                        "to=functions.f",
                                        "to=f<|message|>",
                                        "<|eom|>",
                                        "<atem:function_calls>",
                                        "<atem:invoke name=\"f\">",
                                        "<atem:parameter name=\"s\">",
                                        "</atem:parameter>",
                                        "</atem:invoke>",
                                        "</atem:function_calls>",
                                        "<think>",
                                        "</think>",
                                        ">>>",
                                        "all\n",
                                        "f\n",
                                        "<｜tool▁call▁begin｜>",
                                        "<｜tool▁sep｜>",
                                        "```json",
                                        "```",
                                        "1.5",
                                        "null",
                                        "\\u00",
                                        "e4",
                                        "functools[",
                                        "<tool_calls>",
                                        "\xe2\x82\xac"};
    const size_t n_parts = sizeof parts / sizeof parts[0];
    for (unsigned seed = 0; seed < 6000; seed++) {
        srand(seed);
        char text[400] = "";
        for (int k = rand() % 14; k >= 0; k--)
            strcat(text, parts[(size_t)rand() % n_parts]);
        struct reply_case c = {reply_format_list((size_t)rand() % 19), "think", text, NULL, 0};
        c.flags = (unsigned)rand() % 16;
        if (rand() % 2)
            c.flags &= ~(unsigned)NO_TOOLS;
        size_t n = strlen(text);
        char *cuts = malloc(n + 1);
        memset(cuts, 1, n + 1);
        char *whole = read_reply(&c, n, NULL, NULL), *bytes = read_reply(&c, n, cuts, NULL);
        if (strcmp(whole, bytes) != 0)
            fail_msg(
                "seed %u, %s, %s:\n  whole %s\n  bytes %s", seed, c.format, text, whole, bytes);
        free(whole);
        free(bytes);
        free(cuts);
    }
}

/* Large and deep arguments take time in proportion, and come out as they went in. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 1 << 20, DEPTH = 10000 };
    static const char head[] = "<tool_call>{\"name\": \"f\", \"arguments\": ",
                      tail[] = "}</tool_call>";
    struct buf text = {0}, want = {0};
    buf_str(&text, head);
    buf_str(&want, "B0 f A'");
    struct buf arguments = {0};
    buf_str(&arguments, "{\"s\": \"");
    for (size_t i = 0; i < N; i++)
        buf_char(&arguments, (char)('a' + i % 26));
    buf_str(&arguments, "\", \"o\": ");
    for (size_t i = 0; i < DEPTH; i++)
        buf_str(&arguments, "{\"a\": [");
    for (size_t i = 0; i < DEPTH; i++)
        buf_str(&arguments, "]}");
    buf_char(&arguments, '}');
    buf_add(&text, arguments.data, arguments.len);
    buf_add(&want, arguments.data, arguments.len);
    buf_str(&text, tail);
    buf_str(&want, "' E");
    const struct reply_case c = {"hermes", NULL, buf_cstr(&text), NULL, 0};
    char *got = read_reply(&c, text.len, NULL, NULL);
    assert_string_equal(got, buf_cstr(&want));
    free(got);
    buf_deinit(&text);
    buf_deinit(&want);
    buf_deinit(&arguments);
}

/* White space takes time in proportion wherever it may stand. */
static void test_much_white_space(void **state)
{
    (void)state;
    enum { N = 1 << 20, SECONDS = 5 };
    static const char atem[] = " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">";
    static const char section[] = "<|tool_calls_section_begin|>";
    const struct {
        const char *format, *before, *behind;
    } places[] = {
        {"harmony", "", "<|channel|>final<|message|>a"},
        {"harmony", "<|channel|>final<|message|>a<|end|>", "<|start|>assistant"},
        {"harmony", "<|channel|>commentary to=functions.f<|message|>", "{}"},
        {"muse", "", " to=user<|message|>a"},
        {"muse", " to=f<|message|>", "<atem:function_calls>"},
        {"muse", " to=f<|message|><atem:function_calls>", "<atem:invoke name=\"f\">"},
        {"muse", atem, "</atem:invoke>"},
        {"qwen-xml", "<tool_call>", "<function=f></function>"},
        {"qwen-xml", "<function=f>", "</function>"},
        {"qwen-xml", "<function=f><parameter=s>x</parameter>", "</function>"},
        {"qwen-xml", "<tool_call><function=f></function>", "</tool_call>"},
        {"glm", "<tool_call>f<arg_key>s</arg_key>", "<arg_value>x</arg_value></tool_call>"},
        {"hy3", "<tool_calls:opensource>", "<tool_call:opensource>"},
        {"minimax", "<minimax:tool_call>", "<invoke name=\"f\">"},
        {"seed", "<seed:tool_call>", "<function=f>"},
        {"minicpm", "<function name=\"f\">", "</function>"},
        {"deepseek-v4", "<｜DSML｜tool_calls>", "<｜DSML｜invoke name=\"f\">"},
        {"kimi", section, "<|tool_call_begin|>"},
        {"kimi",
         "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}",
         "<|tool_call_end|>"},
        {"deepseek", "<｜tool▁call▁begin｜>", "f<｜tool▁sep｜>{}"},
        {"functionary-v3.1", "<function=f>", "{}</function>"},
        {"functionary-v3.2", "f\n", "{}"},
        {"hermes", "<tool_call>", "{\"name\": \"f\"}"},
        {"mistral", "[TOOL_CALLS]", "f[ARGS]{}"},
        {"lfm2", "<|tool_call_start|>", "[f()]"},
        {"pythonic", "[print(", "f())]"},
        {"pythonic", "[f(),", "f()]"},
        {"gemma", "<|tool_call>", "call:f{}"},
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct buf text = {0};
        buf_str(&text, places[i].before);
        for (size_t k = 0; k < N; k++)
            buf_char(&text, k % 8 ? ' ' : '\n');
        buf_str(&text, places[i].behind);
        const struct reply_case c = {places[i].format, NULL, buf_cstr(&text), NULL, 0};
        clock_t start = clock();
        free(read_reply(&c, text.len, NULL, NULL));
        if (clock() - start > (clock_t)SECONDS * CLOCKS_PER_SEC)
            fail_msg("%s: white space behind %s", places[i].format, places[i].before);
        buf_deinit(&text);
    }
}

/* What cannot be a mark any more goes out with the piece that shows it. */
static void test_nothing_is_held_longer(void **state)
{
    (void)state;
    const struct reply_config cfg = {.style = {reply_format_find("hermes"), NULL},
                                     .tools = json_loads(tools_json, 0, NULL)};
    struct reply_parser *p = reply_create(&cfg);
    struct transcript t = {.open = -1};
    static const struct {
        const char *piece, *so_far;
    } steps[] = {{"Hi", "C'Hi"},
                 {" <", "C'Hi"},
                 {"b>", "C'Hi <b>"},
                 {"<tool_call>{\"name\": \"f\"", "C'Hi <b>"},
                 {", \"arguments\": {", "C'Hi <b>' B0 f A'{"},
                 {"\"s\": 1", "C'Hi <b>' B0 f A'{\"s\": 1"}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        reply_feed(p, steps[i].piece, strlen(steps[i].piece), transcript_event, &t);
        assert_string_equal(buf_cstr(&t.text), steps[i].so_far);
    }
    assert_true(reply_reads(p, "<tool_call>", 11));
    assert_false(reply_reads(p, "<|eot_id|>", 10));
    reply_destroy(p);
    json_decref((json_t *)cfg.tools);
    buf_deinit(&t.text);
}

/* Control tokens that begin marks around content are wanted also where no calls are. */
static void test_tokens_of_drops(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "<|think|>", "a", "<|end|>", "<|begin|>", "assistant", "<|content|>", "b"};
    const struct reply_config cfg = {
        .style = {reply_format_find("solar"), reply_thoughts_find("solar")}};
    struct reply_parser *p = reply_create(&cfg);
    struct transcript t = {.open = -1};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        if (pieces[i][0] != '<' || reply_reads(p, pieces[i], strlen(pieces[i])))
            reply_feed(p, pieces[i], strlen(pieces[i]), transcript_event, &t);
    assert_false(reply_reads(p, "<|tool_call:end|>", 17));
    assert_false(reply_reads(p, "", 0));
    reply_finish(p, false, transcript_event, &t);
    transcript_close(&t);
    assert_string_equal(buf_cstr(&t.text), "R'a' C'b'");
    reply_destroy(p);
    buf_deinit(&t.text);
}

/* The same of marks that several tokens make up. */
static void test_tokens_of_marks(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a",
                                         "<|close|>",
                                         "think",
                                         "<|sep|>",
                                         "<|open|>",
                                         "response",
                                         "<|sep|>",
                                         "b",
                                         "<|end_of_msg|>"};
    const struct reply_config cfg = {
        .style = {reply_format_find("kimi-k3"), reply_thoughts_find("kimi-k3")},
        .start = {.thinking = true}};
    struct reply_parser *p = reply_create(&cfg);
    struct transcript t = {.open = -1};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        if (pieces[i][0] != '<' || reply_reads(p, pieces[i], strlen(pieces[i])))
            reply_feed(p, pieces[i], strlen(pieces[i]), transcript_event, &t);
    reply_finish(p, false, transcript_event, &t);
    transcript_close(&t);
    assert_string_equal(buf_cstr(&t.text), "R'a' C'b'");
    reply_destroy(p);
    buf_deinit(&t.text);
}

static void test_styles(void **state)
{
    (void)state;
    static const struct {
        const char *source, *format, *thoughts;
    } cases[] = {
        {"plain", "none", "none"},
        {"<tool_call> \"arguments\" </think>", "hermes", "think"},
        {"<function= <parameter= <tool_call>", "qwen-xml", "none"},
        {"[TOOL_CALLS] [THINK] [/THINK]", "mistral", "mistral"},
        {"<|channel|> <|message|> </think>", "harmony", "harmony"},
        {"'<atem:function_calls>\n' assistant to=self<|message|> <|eom|>", "muse", "muse"},
        {"<|eom|>", "none", "none"},
        {"<|start_header_id|>ipython", "llama3", "none"},
        {"<|header_start|>ipython<|header_end|>", "llama3", "none"},
        {"<tool_calls> </thinking> [BEGIN FINAL RESPONSE]", "apriel", "apriel"},
        {"<|tool_call:begin|> <|think|> <|end|>", "solar", "solar"},
        {"<|user|> <|end|>", "none", "none"},
        {"content.split('</thought>') '[|assistant|]<thought>\n'", "none", "thought"},
        {"':opensource' '<tool_sep{}>'.format()", "hy3", "hy3"},
        {"'<|open|>' + tag '<|close|>' + tag '<|end_of_msg|>'", "kimi-k3", "kimi-k3"},
        {"ns = ']<]minimax[>[' ns ~ '<tool_call>' '</mm:think>'", "minimax-m3", "minimax-m3"},
        {"<tool_calls> <end_of_sentence>", "minimax-m1", "think"},
        {"<tool_calls>[{}]</tool_calls> <|extra_0|>", "hunyuan", "think"},
        {"<tool_calls> <answer>", "hunyuan", "think"},
        {"<start_function_call>call:", "functiongemma", "none"},
        {"<functions></functions> <function_calls>", "olmo3", "none"},
        {"<tool_call> \"arguments\" </think> <response> </response>", "ernie", "think"},
        {"[{\"name\": \"tool_call_name\", \"arguments\": {}}]", "xlam", "none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct reply_style s = reply_style_detect(cases[i].source, strlen(cases[i].source));
        assert_string_equal(reply_format_name(s.format), cases[i].format);
        assert_string_equal(reply_thoughts_name(s.thoughts), cases[i].thoughts);
    }
    struct reply_style think = {NULL, reply_thoughts_find("think")};
    assert_true(reply_start_of(think, "x<think>\n", 9).thinking);
    assert_false(reply_start_of(think, "<think></think>", 15).thinking);
    assert_true(reply_start_of(think, "<think></think>\n", 16).thought);
    assert_false(reply_start_of(think, NULL, 0).thinking);
    struct reply_style apriel = {NULL, reply_thoughts_find("apriel")};
    static const char opened[] = "<|begin_assistant|>\nHere are my reasoning steps:\n";
    assert_true(reply_start_of(apriel, opened, sizeof opened - 1).thinking);
    assert_null(reply_create(&(struct reply_config){0}));
    assert_null(reply_format_find("nothing"));
    size_t n = 0;
    while (reply_format_list(n)) {
        assert_ptr_equal(reply_format_find(reply_format_list(n)),
                         reply_format_find(reply_format_list(n)));
        n++;
    }
    assert_int_equal(n, 38);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),
        cmocka_unit_test(test_given_back),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_random_splits),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_much_white_space),
        cmocka_unit_test(test_nothing_is_held_longer),
        cmocka_unit_test(test_tokens_of_drops),
        cmocka_unit_test(test_tokens_of_marks),
        cmocka_unit_test(test_styles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
