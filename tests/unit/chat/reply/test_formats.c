/* Replies in every format, taken apart: the same however they are cut into pieces.
 *
 * The cases are written by hand from what the formats' own templates write. */
#include "unit/chat/reply/cases.h"

static void test_llama(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"llama3",
         NULL,
         "{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
        {"llama3",
         NULL,
         "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
         "{\"name\": \"f\", \"parameters\": {\"n\": 1}}",
         "B0 f A'{}' E B1 f A'{\"n\": 1}' E",
         0},
        /* JSON that is no call of a tool that is there */
        {"llama3",
         NULL,
         "{\"name\": \"Anna\", \"parameters\": {}}",
         "C'{\"name\": \"Anna\", \"parameters\": {}}'",
         0},
        {"llama3", NULL, "{\"answer\": {\"x\": 1}}", "C'{\"answer\": {\"x\": 1}}'", 0},
        {"llama3",
         NULL,
         "As {\"name\": \"f\", \"parameters\": {}}",
         "C'As {\"name\": \"f\", \"parameters\": {}}'",
         0},
        {"llama3",
         NULL,
         "{\"name\": \"f\", \"parameters\": {}} is it",
         "B0 f A'{}' E C' is it'",
         0},
        {"json", NULL, "```json\n{\"name\": \"f\", \"arguments\": {}}\n```", "B0 f A'{}' E", 0},
        {"json",
         NULL,
         "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"python\", \"arguments\": {}}]",
         "B0 f A'{}' E B1 python A'{}' E",
         0},
        {"json", NULL, "[1, 2]", "C'[1, 2]'", 0},
        {"json", NULL, "```json\n{\"a\": 1}\n```", "C'```json\n{\"a\": 1}\n```'", 0},
    };
    CHECK_ALL(cases);
}

static void test_mistral(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"mistral",
         NULL,
         "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}, \"id\": \"abcdefghi\"}, "
         "{\"name\": \"f\", \"arguments\": {}}]",
         "B0 f A'{\"s\": \"x\"}' E B1 f A'{}' E",
         0},
        {"mistral",
         NULL,
         "[TOOL_CALLS] [{\"id\": \"abcdefghi\", \"name\": \"f\", \"arguments\": {}}]",
         "B0 f (abcdefghi) A'{}' E",
         0},
        {"mistral",
         NULL,
         "Sure.[TOOL_CALLS]f[ARGS]{\"s\": \"[ARGS]\"}[TOOL_CALLS]get_weather[CALL_ID]abcdefghi"
         "[ARGS]{}",
         "C'Sure.' B0 f A'{\"s\": \"[ARGS]\"}' E B1 get_weather (abcdefghi) A'{}' E",
         0},
        {"mistral", NULL, "[TOOL_CALLS]f{\"n\": 1}", "B0 f A'{\"n\": 1}' E", 0},
        {"mistral", NULL, "[TOOL_CALLS] begins calls", "C'[TOOL_CALLS] begins calls'", 0},
        {"mistral", NULL, "[TOOL_CALLS]a b{}", "C'[TOOL_CALLS]a b{}'", 0},
        {"mistral", NULL, "[TOOL_CALLS]", "C'[TOOL_CALLS]'", 0},
    };
    CHECK_ALL(cases);
}

static void test_named(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"deepseek",
         "think",
         "a</"
         "think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
         "{\"s\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
         "get_weather\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "R'a' B0 f A'{\"s\": \"```\"}' E B1 get_weather A'{}' E",
         THINKING},
        {"deepseek",
         NULL,
         "Text<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": "
         "1}<｜tool▁call▁end｜>"
         "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "C'Text' B0 f A'{\"n\": 1}' E B1 f A'{}' E",
         0},
        {"deepseek",
         NULL,
         "<｜tool▁calls▁begin｜> is a mark",
         "C'<｜tool▁calls▁begin｜> is a mark'",
         0},
        {"kimi",
         NULL,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
         "<|tool_call_argument_begin|>{\"n\": 1}<|tool_call_end|><|tool_call_begin|>functions."
         "get_weather:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
         "B0 f (functions.f:0) A'{\"n\": 1}' E B1 get_weather (functions.get_weather:1) A'{}' E",
         0},
        {"functionary-v3.1",
         NULL,
         "<function=f>{\"s\": \"</function>\"}</function>\n<function=f>{}</function>",
         "B0 f A'{\"s\": \"</function>\"}' E B1 f A'{}' E",
         0},
        /* no arguments at all: not the next call's */
        {"kimi",
         NULL,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
         "<|tool_call_end|><|tool_call_begin|>functions.python:1<|tool_call_argument_begin|>"
         "{\"x\": 1}<|tool_call_end|><|tool_calls_section_end|>",
         "B0 f (functions.f:0) A'{}' E B1 python (functions.python:1) A'{\"x\": 1}' E",
         0},
        {"kimi",
         NULL,
         "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>No {}",
         "C'<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>No {}'",
         0},
        {"kimi",
         NULL,
         "<|tool_call_begin|>functions.f:0<|tool_call_end|>{}",
         "C'<|tool_call_begin|>functions.f:0<|tool_call_end|>{}'",
         0},
        {"solar",
         NULL,
         "<|tool_calls|><|tool_call:begin|>a<|tool_call:name|>f<|tool_call:args|><|tool_call:end|>"
         "<|tool_call:begin|>b<|tool_call:name|>python<|tool_call:args|>{\"x\": 1}"
         "<|tool_call:end|>",
         "B0 f (a) A'{}' E B1 python (b) A'{\"x\": 1}' E",
         0},
        {"solar",
         NULL,
         "<|tool_call:begin|>a<|tool_call:name|>f<|tool_call:args|>x {}",
         "C'<|tool_call:begin|>a<|tool_call:name|>f<|tool_call:args|>x {}'",
         0},
        {"deepseek",
         NULL,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁call▁end｜>"
         "<｜tool▁call▁begin｜>python<｜tool▁sep｜>{\"x\": "
         "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "B0 f A'{}' E B1 python A'{\"x\": 1}' E",
         0},
        {"deepseek",
         NULL,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n```"
         "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "B0 f A'{}' E",
         0},
        {"deepseek",
         NULL,
         "<｜tool▁call▁begin｜>f<｜tool▁sep｜>words {}",
         "C'<｜tool▁call▁begin｜>f<｜tool▁sep｜>words {}'",
         0},
        {"functionary-v3.1",
         NULL,
         "<function=f></function><function=python>{}</function>",
         "B0 f A'{}' E B1 python A'{}' E",
         0},
        {"granite", NULL, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "B0 f A'{}' E", 0},
        {"apriel",
         NULL,
         "Well. <tool_calls>[{\"name\": \"f\", \"arguments\": {\"n\":1}, \"id\": "
         "\"a\"}]</tool_calls>",
         "C'Well.' B0 f A'{\"n\":1}' E",
         0},
        {"firefunction",
         NULL,
         " functools[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"f\", \"arguments\": {}}]",
         "B0 f A'{}' E B1 f A'{}' E",
         0},
    };
    CHECK_ALL(cases);
}

static void test_functionary(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"functionary-v3.2", NULL, "all\nHello >> there", "C'Hello >> there'", 0},
        {"functionary-v3.2",
         NULL,
         "all\nI look.>>>f\n{\"s\": \">>>\"}>>>get_weather\n{}",
         "C'I look.' B0 f A'{\"s\": \">>>\"}' E B1 get_weather A'{}' E",
         0},
        {"functionary-v3.2",
         NULL,
         "python\nprint(\">>>\")\n",
         "B0 python A'{\"code\": \"print(\\\">>>\\\")\\n\"}' E",
         0},
        {"functionary-v3.2", NULL, "all\n>>> x = 1\ny", "C'>>> x = 1\ny'", 0},
        {"functionary-v3.2", NULL, "all\nHello", "C'Hello'", NO_TOOLS},
        {"functionary-v3.2", NULL, "f\n{}", "C'f\n{}'", NO_TOOLS},
    };
    CHECK_ALL(cases);
}

static void test_harmony(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"harmony",
         "harmony",
         "<|channel|>analysis<|message|>Hm. <|end|><|start|>assistant<|channel|>final<|message|>"
         "Yes.",
         "R'Hm.' C'Yes.'",
         NO_TOOLS},
        {"harmony",
         "harmony",
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.f <|constrain|>json<|message|>{\"s\": \"<|call|>\"}<|call|>",
         "R'Hm.' B0 f A'{\"s\": \"<|call|>\"}' E",
         0},
        {"harmony",
         "harmony",
         " to=functions.f<|channel|>commentary json<|message|>{}",
         "B0 f A'{}' E",
         0},
        {"harmony",
         "harmony",
         "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.python code<|message|>print(1)<|call|>",
         "C'I look.' B0 python A'print(1)' E",
         0},
        {"harmony",
         "harmony",
         "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>"
         "assistant<|channel|>final<|message|>Hi",
         "R'Hm.' C'Hi'",
         0},
        {"harmony", NULL, "<|channel|>analysis<|message|>a<|end|>", "C'a'", 0},
        {"harmony", "harmony", "No channel at all", "C'No channel at all'", 0},
        {"harmony", "harmony", "to", "C'to'", 0},
        {"harmony", "harmony", " <", "C' <'", CUT},
        {"harmony", "harmony", "<|channel|>fin", "", CUT},
        {"harmony",
         "harmony",
         "<|channel|>commentary to=functions.f<|message|>{}",
         "C'{}'",
         NO_TOOLS},
    };
    CHECK_ALL(cases);
}

/* Which pieces are reasoning is known before each is read, the mark at the end included. */
static void test_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *format, *thoughts, *pieces[16];
        uint32_t n_reasoning;
    } cases[] = {
        {"harmony",
         "harmony",
         {"<|channel|>",
          "analysis",
          "<|message|>",
          "We",
          " should",
          " greet",
          "<|end|>",
          "<|start|>",
          "assistant",
          "<|channel|>",
          "final",
          "<|message|>",
          "Hello"},
         4},
        {"harmony", "harmony", {"<|channel|>", "final", "<|message|>", "Hello"}, 0},
        {"muse",
         "muse",
         {" to",
          "=self",
          "<|message|>",
          "a",
          " b",
          "<|eom|>",
          "<|start|>",
          "assistant",
          " to=user"},
         3},
        {"hermes", "think", {"<think>", "a", " b", "</think>", "c"}, 3},
        {"hermes", "think", {"a", " b"}, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct reply_parser *p = reply_create(&(struct reply_config){
            .style = {reply_format_find(cases[c].format), reply_thoughts_find(cases[c].thoughts)}});
        struct transcript t = {.open = -1};
        uint32_t n = 0;
        assert_non_null(p);
        for (const char *const *piece = cases[c].pieces; *piece; piece++) {
            n += reply_reasons(p);
            reply_feed(p, *piece, strlen(*piece), transcript_event, &t);
        }
        reply_finish(p, false, transcript_event, &t);
        assert_int_equal(n, cases[c].n_reasoning);
        reply_destroy(p);
        buf_deinit(&t.text);
    }
}

/* Random texts made of the marks' pieces: splitting never shows, and without calls and marks
 * nothing is lost. */
static void test_pythonic(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"lfm2",
         NULL,
         "<|tool_call_start|>[f(s=\"x\", n=1)]<|tool_call_end|>",
         "B0 f A'{\"s\": \"x\", \"n\": 1}' E",
         0},
        {"lfm2",
         NULL,
         "I look. <|tool_call_start|>[f(), get_weather(a=[1, (2, 3), {'k': None}], b=True)]"
         "<|tool_call_end|> So.",
         "C'I look.' B0 f A'{}' E B1 get_weather A'{\"a\": [1, [2, 3], {\"k\": null}], \"b\": "
         "true}' "
         "E C' So.'",
         0},
        /* strings: both quotes, three of them, escapes, an empty one */
        {"lfm2",
         NULL,
         "<|tool_call_start|>[f(s='it\\'s \"x\"', t=\"\"\"a\n\"b\"\"\", u='', "
         "v=\"\\u00e4\\x41\\\\\\q"
         "\\n\")]<|tool_call_end|>",
         "B0 f A'{\"s\": \"it's \\\"x\\\"\", \"t\": \"a\\n\\\"b\", \"u\": \"\", \"v\": "
         "\"\xc3\xa4"
         "A\\\\\\\\q\\n\"}' E",
         0},
        /* numbers as Python takes them; words that are none; JSON's words */
        {"lfm2",
         NULL,
         "<|tool_call_start|>[f(a=-1.5e3, b=.5, c=5., d=1_000, e=007, g=word, h=false, i=null, "
         "j=123456789012345678901234567890)]<|tool_call_end|>",
         "B0 f A'{\"a\": -1.5e3, \"b\": 0.5, \"c\": 5.0, \"d\": 1000, \"e\": \"007\", \"g\": "
         "\"word\", \"h\": false, \"i\": null, \"j\": 123456789012345678901234567890}' E",
         0},
        /* values without names are the schema's first properties */
        {"lfm2",
         NULL,
         "<|tool_call_start|>[f('x', 2, i=3)]<|tool_call_end|>",
         "B0 f A'{\"s\": \"x\", \"n\": 2, \"i\": 3}' E",
         0},
        {"lfm2",
         NULL,
         "<|tool_call_start|>[f(True)]<|tool_call_end|>",
         "B0 f A'{\"s\": true}' E",
         0},
        {"lfm2",
         NULL,
         "<|tool_call_start|>[\n  f(\n    s='x',\n  ),\n]\n<|tool_call_end|>",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
        {"lfm2",
         NULL,
         "<|tool_call_start|>not a call<|tool_call_end|>",
         "C'<|tool_call_start|>not a call<|tool_call_end|>'",
         0},
        /* Gemma's quotes are none */
        {"lfm2",
         NULL,
         "<|tool_call_start|>[f(s=<|\"|>x<|\"|>)]<|tool_call_end|>",
         "B0 f A'{\"s\": ' C'<|\"|>x<|\"|>)]<|tool_call_end|>'",
         0},
        {"lfm2", NULL, "<|tool_call_start|>[f()]OK", "B0 f A'{}' E C'OK'", 0}, /* no name */
        {"lfm2", NULL, "<|tool_call_start|>[f(s=\"x\", n=", "B0 f A'{\"s\": \"x\", \"n\": '", CUT},
        {"olmo3",
         NULL,
         "I look. <function_calls>f(s=\"x\", n=1, b=true)\nget_weather(i=null)</function_calls>",
         "C'I look.' B0 f A'{\"s\": \"x\", \"n\": 1, \"b\": true}' E B1 get_weather A'{\"i\": "
         "null}' E",
         0},
        {"olmo3", NULL, "<function_calls> are written so", "C'<function_calls> are written so'", 0},
        {"pythonic", NULL, "[f(s='x'), python()]", "B0 f A'{\"s\": \"x\"}' E B1 python A'{}' E", 0},
        {"pythonic", NULL, "<|python_start|>[f()]<|python_end|>", "B0 f A'{}' E", 0},
        {"pythonic", NULL, "[link](http://x)", "C'[link](http://x)'", 0},
        {"pythonic", NULL, "[1, 2]", "C'[1, 2]'", 0},
        {"pythonic", NULL, "See [f(s='x')]", "C'See [f(s='x')]'", 0},
        {"pythonic",
         NULL,
         "Look:\n```tool_code\nprint(default_api.f(s=\"x\"))\n```",
         "C'Look:' B0 f A'{\"s\": \"x\"}' E",
         0},
        {"pythonic",
         NULL,
         "```tool_code\nf(s=\"x\")\nget_weather()\n```\nDone",
         "B0 f A'{\"s\": \"x\"}' E B1 get_weather A'{}' E C'\nDone'",
         0},
    };
    CHECK_ALL(cases);
}

static void test_gemma(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"gemma",
         "gemma",
         "<|channel>thought\nHm.\n<channel|><|tool_call>call:f{s:<|\"|>a \"b\" "
         "<c<|\"|>,n:-1.5,o:{k:"
         "[true,null,<|\"|><|\"|>]}}<tool_call|>",
         "R'Hm.' B0 f A'{\"s\": \"a \\\"b\\\" <c\", \"n\": -1.5, \"o\": {\"k\": [true, null, "
         "\"\"]}}' E",
         0},
        {"gemma",
         NULL,
         "Text<|tool_call>call:f{}<tool_call|><|tool_call>call:get_weather{a b:1}<tool_call|>",
         "C'Text' B0 f A'{}' E B1 get_weather A'{\"a b\": 1}' E",
         0},
        {"gemma", "gemma", "<|channel>thought\n<channel|>Hello", "C'Hello'", 0},
        {"functiongemma",
         NULL,
         "<start_function_call>call:f{n:2,s:<escape>a <|\"|> b\n<escape>,o:{k:[<escape>v<escape>]}}"
         "<end_function_call><start_function_call>call:python{}<end_function_call>",
         "B0 f A'{\"n\": 2, \"s\": \"a <|\\\"|> b\\n\", \"o\": {\"k\": [\"v\"]}}' E B1 python "
         "A'{}' E",
         0},
        {"functiongemma",
         NULL,
         "<start_function_call>call:f s",
         "C'<start_function_call>call:f s'",
         0},
        {"gemma", NULL, "<|tool_call>call:f s", "C'<|tool_call>call:f s'", 0},
        {"gemma", NULL, "<|tool_call>call:f{s:<|\"|>abc", "B0 f A'{\"s\": \"abc'", CUT},
    };
    CHECK_ALL(cases);
}

/* Formats that are others with marks of their own. */
static void test_relatives(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"seed",
         "seed",
         "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=f>\n<parameter=s>a\nb\n"
         "</parameter>\n<parameter=n>1</parameter>\n</function>\n</seed:tool_call>",
         "R'Hm.' B0 f A'{\"s\": \"a\\nb\\n\", \"n\": 1}' E",
         0},
        {"minicpm",
         NULL,
         "<function name=\"f\"><param name=\"s\"><![CDATA[<b> </param>]]></param><param "
         "name=\"n\">2</param></function>\n<function name=\"python\"></function>",
         "B0 f A'{\"s\": \"<b> </param>\", \"n\": 2}' E B1 python A'{}' E",
         0},
        {"nemotron",
         NULL,
         "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}]</TOOLCALL>\n",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
        {"command-r",
         NULL,
         "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": "
         "{\"s\": "
         "\"x\"}\n    }\n]\n```",
         "B0 f A'{\"s\": \"x\"}' E",
         0},
        {"apertus",
         "apertus",
         "<|inner_prefix|>Hm.<|inner_suffix|><|tools_prefix|>[{\"f\": {\"s\": \"x\"}}, "
         "{\"python\": {}}]<|tools_suffix|>",
         "R'Hm.' B0 f A'{\"s\": \"x\"}' E B1 python A'{}' E",
         0},
        {"gigachat",
         NULL,
         "Yes.<|function_call|>{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}",
         "C'Yes.' B0 f A'{\"s\": \"x\"}' E",
         0},
        {"gigachat",
         NULL,
         "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {}}",
         "B0 f A'{}' E",
         0},
        {"solar",
         NULL,
         "<|tool_calls|><|tool_call:begin|>c1<|tool_call:name|>f<|tool_call:args|>{\"s\": "
         "\"x\"}<|tool_call:end|>",
         "B0 f (c1) A'{\"s\": \"x\"}' E",
         0},
        {"command-r7b", NULL, "<|START_RESPONSE|>Hello<|END_RESPONSE|>", "C'Hello'", 0},
        {"solar",
         "solar",
         "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hello<|end|>",
         "R'Hm.' C'Hello'",
         NO_TOOLS},
        {"solar", "solar", "<|content|>Hello<|end|>", "C'Hello'", 0},
        {"hy3",
         "hy3",
         "<think:opensource>Hm.</think:opensource><tool_calls:opensource>\n<tool_call:opensource>f"
         "<tool_sep:opensource>\n<arg_key:opensource>s</arg_key:opensource>\n"
         "<arg_value:opensource>x\ny</arg_value:opensource>\n<arg_key:opensource>n"
         "</arg_key:opensource>\n<arg_value:opensource>3</arg_value:opensource>\n"
         "</tool_call:opensource>\n<tool_call:opensource>python<tool_sep:opensource>\n"
         "</tool_call:opensource>\n</tool_calls:opensource>",
         "R'Hm.' B0 f A'{\"s\": \"x\\ny\", \"n\": 3}' E B1 python A'{}' E",
         0},
        {"granite",
         "think",
         "<think>Hm.</think>\n<response>Hi </response> there\n</response>\n",
         "R'Hm.' C'Hi </response> there'",
         NO_TOOLS},
        {"granite",
         "think",
         "<think>Hm.</think><response>Hi</response><|tool_call|>[{\"name\": \"f\", \"arguments\": "
         "{}}]",
         "R'Hm.' C'Hi' B0 f A'{}' E",
         0},
        {"ernie",
         "think",
         "Hm.\n</think>\n\n<response>\nHi\n</response>\n",
         "R'Hm.' C'Hi'",
         THINKING},
        {"ernie",
         "think",
         "Hm.\n</think>\n\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n",
         "R'Hm.' B0 f A'{}' E",
         THINKING},
        {"granite", "think", "<response>Hi</response>", "C'<response>Hi</response>'", 0},
        {"granite", "think", "<think>a</think>A <response>", "R'a' C'A <response>'", 0},
        {"solar",
         "solar",
         "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>c1"
         "<|tool_call:name|>f<|tool_call:args|>{}<|tool_call:end|>",
         "R'Hm.' B0 f (c1) A'{}' E",
         0},
        {"minimax-m1",
         "think",
         "<think>\nHm.\n</think>\n\n<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"s\": "
         "\"x\"}}\n{\"name\": \"python\", \"arguments\": {}}\n</tool_calls>",
         "R'Hm.' B0 f A'{\"s\": \"x\"}' E B1 python A'{}' E",
         0},
        {"hunyuan",
         "think",
         "<think>\nHm.\n</think>\n<answer>\n助手：Hi, 助手：x\n</answer>",
         "R'Hm.' C'Hi, 助手：x'",
         NO_TOOLS},
        {"hunyuan",
         "think",
         "<think>\n\n</think>\n<answer>\n<tool_calls>[{\"name\": \"f\", \"arguments\": {}}, "
         "{\"name\": \"python\", \"arguments\": {\"x\": 1}}]</tool_calls>\n</answer>",
         "B0 f A'{}' E B1 python A'{\"x\": 1}' E",
         0},
        {"hunyuan", "think", "<answer>\nHi\n</answer>", "C'Hi'", CLOSED},
        {"hunyuan",
         "think",
         "<tool_calls>[{\"name\": 1}]</tool_calls>",
         "C'<tool_calls>[{\"name\": 1}]</tool_calls>'",
         0},
        {"xlam",
         NULL,
         "[{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}, {\"name\": \"python\", "
         "\"arguments\": {}}]",
         "B0 f A'{\"s\": \"x\"}' E B1 python A'{}' E",
         0},
        {"xlam", NULL, "[1, 2]", "C'[1, 2]'", 0},
        {"xlam", NULL, "[{\"name\": \"no\"}]", "C'[{\"name\": \"no\"}]'", 0},
        {"apriel",
         "apriel",
         "1. Hm.\n[BEGIN FINAL RESPONSE]\nHello[END FINAL RESPONSE]",
         "R'1. Hm.' C'Hello'",
         THINKING},
        {"apriel",
         "apriel",
         "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nHello",
         "R'Hm.' C'Hello'",
         NO_TOOLS},
        {"apriel",
         "apriel",
         "Hm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{\"name\": \"f\", \"arguments\": {}}]"
         "</tool_calls>",
         "R'Hm.' B0 f A'{}' E",
         THINKING},
        {"apriel",
         "apriel",
         "Hm.\n<tool_calls>[{\"name\": \"f\", \"arguments\": {}}]</tool_calls>",
         "R'Hm.' B0 f A'{}' E",
         THINKING},
    };
    CHECK_ALL(cases);
}

/* Where a model forgets to close its reasoning, a call does; what is none stays reasoning. */
static void test_calls_end_thoughts(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"qwen-xml",
         "think",
         "Hm.\n<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</"
         "tool_call>",
         "R'Hm.' B0 f A'{\"s\": \"x\"}' E",
         THINKING},
        {"qwen-xml",
         "think",
         "A <tool_call> it is.</think>So.",
         "R'A <tool_call> it is.' C'So.'",
         THINKING},
        {"kimi",
         "think",
         "<think>Hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
         "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
         "R'Hm' B0 f (functions.f:0) A'{}' E",
         0},
    };
    CHECK_ALL(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_functionary),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_pythonic),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_relatives),
        cmocka_unit_test(test_calls_end_thoughts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
