/* Grammars of calls: what conforms is read back as calls, whole, of the tools that there are. */
#include "unit/grammar/harness.h"

#include "unit/grammar/checker.h"

#include "base/buf.h"
#include "chat/reply_grammar.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"b\":{\"type\":\"boolean\"},\"e\":{\"enum\":["
    "\"one\",\"two\"]}},\"required\":[\"s\",\"e\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{},\"additionalProperties\":false}}}]";

/* No free text in the arguments. */
static const char closed_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"enum\":[\"\",\"a\"]},\"b\":{\"type\":\"boolean\"},\"e\":{\"enum\":["
    "\"one\",\"two\"]}},\"required\":[\"s\",\"e\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{}}}]";
static const char *const with_tags[] = {"qwen-xml",
                                        "glm",
                                        "minimax",
                                        "deepseek-v3.2",
                                        "deepseek-v4",
                                        "seed",
                                        "minicpm",
                                        "hy3",
                                        "kimi-k3",
                                        "minimax-m3",
                                        "gemma",
                                        "functiongemma",
                                        "muse"};

/* Muse Glimmer's call of "get" as its template writes it. */
#define MUSE_GET(args)                                                                             \
    " to=get<|message|><atem:function_calls>\n<atem:invoke name=\"get\">\n" args                   \
    "</atem:invoke>\n</atem:function_calls>"

/* Kimi K3's. */
#define K3_NOTHING "<|close|>response<|sep|>"
#define K3_GET(args)                                                                               \
    "<|open|>tools<|sep|><|open|>call tool=\"get\" index=\"1\"<|sep|>" args                        \
    "<|close|>call<|sep|><|close|>tools<|sep|>"
#define K3_ARG(key, type, value)                                                                   \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"

/* MiniMax M3's. */
#define M3 "]<]minimax[>["
#define M3_TAG(name, value) M3 "<" name ">" value M3 "</" name ">"
#define M3_CALL(name, args)                                                                        \
    M3 "<tool_call>\n" M3 "<invoke name=\"" name "\">" args M3 "</invoke>\n" M3 "</tool_call>"

static int32_t channel_token(const void *ctx, const char *s, size_t n)
{
    (void)ctx;
    return n == 11 && memcmp(s, "<|channel|>", 11) == 0 ? CONTROL : -1;
}

static struct grammar *compile(const struct reply_grammar *r, struct err_info *e)
{
    struct grammar_builder *b = grammar_builder_create("tools");
    struct grammar *g = NULL;
    grammar_node root = reply_grammar_build(r, b);
    enum err err = grammar_compile(b, root, w.vocab, &g, e);
    assert_true(!err == (g != NULL));
    grammar_builder_destroy(b);
    return g;
}

struct counts {
    uint32_t calls, whole;
    size_t content, reasoning;
    struct buf arguments;
    bool bad;
};

/* Of the arguments of any call; or NULL. */
static const json_t *must_satisfy, *must_be;

static void on_event(void *ctx, const struct reply_event *ev)
{
    struct counts *c = ctx;
    switch (ev->kind) {
    case REPLY_CONTENT:
        c->content += ev->n;
        break;
    case REPLY_REASONING:
        c->reasoning += ev->n;
        break;
    case REPLY_CALL_BEGIN:
        c->calls++;
        c->bad |=
            !(ev->n == 1 && ev->text[0] == 'f') && !(ev->n == 3 && !memcmp(ev->text, "get", 3));
        buf_clear(&c->arguments);
        break;
    case REPLY_CALL_ARGUMENTS:
        buf_add(&c->arguments, ev->text, ev->n);
        break;
    case REPLY_CALL_END: {
        json_t *v = json_loadb(c->arguments.data, c->arguments.len, JSON_ALLOW_NUL, NULL);
        const char *e = json_string_value(json_object_get(v, "e"));
        c->bad |= !json_is_object(v);
        if (must_be)
            c->bad |= !json_equal(must_be, v);
        else if (must_satisfy)
            c->bad |= !v || !check(must_satisfy, must_satisfy, v);
        else if (json_object_size(v) > 0)
            c->bad |= !json_is_string(json_object_get(v, "s")) || !e ||
                      (strcmp(e, "one") != 0 && strcmp(e, "two") != 0);
        json_decref(v);
        c->whole++;
        break;
    }
    }
}

static void read_back(const struct reply_grammar *r, const char *text, size_t n, struct counts *out)
{
    const struct reply_config cfg = {.style = r->style, .tools = r->tools, .start = r->start};
    struct reply_parser *p = reply_create(&cfg);
    *out = (struct counts){0};
    reply_feed(p, text, n, on_event, out);
    reply_finish(p, false, on_event, out);
    reply_destroy(p);
    buf_deinit(&out->arguments);
}

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
#define DSML_CALL(kind, value)                                                                     \
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"k\" "      \
    "string=\"" kind "\">" value "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
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

/* A mark that is a control token is that token, not its text. */
static void test_tokens(void **state)
{
    (void)state;
    json_t *tools = json_loads(tools_json, 0, NULL);
    static const char rest[] = "commentary to=functions.get <|constrain|>json<|message|>{}";
    const struct reply_grammar r = {.style = {reply_format_find("harmony"), NULL},
                                    .tools = tools,
                                    .required = true,
                                    .token = channel_token};
    struct grammar *g = compile(&r, NULL);
    struct grammar_state *s = grammar_state_create(g);
    assert_int_equal(grammar_accept(s, '<', w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(s, CONTROL, w.scratch), GRAMMAR_GOES_ON);
    for (size_t i = 0; i < sizeof rest - 1; i++)
        assert_int_not_equal(grammar_accept(s, (uint8_t)rest[i], w.scratch), GRAMMAR_REFUSED);
    assert_true(grammar_complete(s));
    grammar_state_destroy(s);
    grammar_release(g);
    json_decref(tools);
}

/* Up to four marks, which have the tokens from CONTROL on. */
static const char *const muse_marks[4] = {"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"};
static const char *const kimi_marks[4] = {"<|open|>", "<|close|>", "<|sep|>"};
static const char *const minimax_marks[4] = {M3, "<tool_call>", "</tool_call>", "</mm:think>"};
static const char *const gemma_marks[4] = {
    "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"};

/* ctx: marks. */
static int32_t mark_token(const void *ctx, const char *s, size_t n)
{
    const char *const *marks = ctx;
    for (int32_t i = 0; i < 4 && marks[i]; i++)
        if (strlen(marks[i]) == n && memcmp(s, marks[i], n) == 0)
            return CONTROL + i;
    return -1;
}

/* Does text conform, each of its marks a token? */
static bool accepts_marks(struct grammar *g, const char *const *marks, const char *text)
{
    struct grammar_state *s = grammar_state_create(g);
    bool ok = true;
    while (*text && ok) {
        int32_t id = (uint8_t)*text;
        size_t n = 1;
        for (int32_t i = 0; i < 4 && marks[i]; i++)
            if (strncmp(text, marks[i], strlen(marks[i])) == 0) {
                id = CONTROL + i;
                n = strlen(marks[i]);
            }
        ok = grammar_accept(s, id, w.scratch) != GRAMMAR_REFUSED;
        text += n;
    }
    ok = ok && grammar_complete(s);
    grammar_state_destroy(s);
    return ok;
}

/* Marks that several tokens make up, and marks that begin with the same token. */
static void test_tokens_in_marks(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        const char *const *marks;
        bool thinking;
        const char *text;
    } cases[] = {
        {"kimi-k3", kimi_marks, true, "Hm.<|close|>think<|sep|>" K3_NOTHING K3_GET("")},
        {"kimi-k3",
         kimi_marks,
         false,
         "<|open|>think<|sep|>Hm.<|close|>think<|sep|>" K3_NOTHING K3_GET("")},
        {"minimax-m3", minimax_marks, true, "Hm.</mm:think>" M3_CALL("get", "")},
        {"minimax-m3", minimax_marks, false, "</mm:think>" M3_CALL("get", "")},
        {"gemma",
         gemma_marks,
         false,
         "<|channel>thought\nHm.\n<channel|><|tool_call>call:get{}<tool_call|>"},
    };
    static const char *const none[4] = {NULL};
    json_t *tools = json_loads(tools_json, 0, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *format = cases[i].format;
        const struct reply_grammar r = {
            .style = {reply_format_find(format), reply_thoughts_find(format)},
            .start = {.thinking = cases[i].thinking},
            .tools = tools,
            .required = true,
            .token = mark_token,
            .ctx = cases[i].marks};
        struct grammar *g = compile(&r, NULL);
        assert_non_null(g);
        if (!accepts_marks(g, cases[i].marks, cases[i].text) ||
            accepts_marks(g, none, cases[i].text))
            fail_msg("%s: %s", format, cases[i].text);
        grammar_release(g);
    }
    json_decref(tools);
}

/* Muse's marks are tokens around and between calls, and not to be spelt out within them. */
static void test_muse_tokens(void **state)
{
    (void)state;
#define NEXT "<|eom|><|start|>assistant"
#define MUSE_F(value)                                                                              \
    " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n"                            \
    "<atem:parameter name=\"s\">" value "</atem:parameter>\n"                                      \
    "<atem:parameter name=\"e\">one</atem:parameter>\n</atem:invoke>\n</atem:function_calls>"
    static const struct {
        const char *text;
        uint32_t n_calls; /* 0: does not conform */
    } cases[] = {
        {MUSE_GET(""), 1},
        {MUSE_GET("") NEXT MUSE_F("x") NEXT MUSE_GET(""), 3},
        {" to=self<|message|>Hm." NEXT MUSE_F("a < b"), 1},
        {MUSE_GET("") "<|eom|>", 0},
        {MUSE_F("<|eom|>"), 0},
        {" to=user<|message|>Hm." NEXT MUSE_GET(""), 0},
    };
    json_t *tools = json_loads(tools_json, 0, NULL);
    struct reply_grammar r = {.style = {reply_format_find("muse"), reply_thoughts_find("muse")},
                              .tools = tools,
                              .required = true,
                              .parallel = true,
                              .token = mark_token,
                              .ctx = muse_marks};
    struct grammar *g = compile(&r, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct counts c;
        if (accepts_marks(g, muse_marks, cases[i].text) != (cases[i].n_calls > 0))
            fail_msg("%s", cases[i].text);
        assert_false(accepts(g, cases[i].text)); /* spelt out */
        read_back(&r, cases[i].text, strlen(cases[i].text), &c);
        assert_true(cases[i].n_calls == 0 || (!c.bad && c.whole == cases[i].n_calls));
    }
    grammar_release(g);
    r.token = NULL; /* bytes in a value are those of its text */
    g = compile(&r, NULL);
    assert_true(accepts(g, MUSE_F("a <| b")));
    assert_false(accepts(g, MUSE_F("a <|eom|> b")));
    assert_false(accepts(g, MUSE_F("<|start|>")));
    grammar_release(g);
    json_decref(tools);
}

/* A bounded string is one still, with the closing tag kept out. */
static void test_muse_bounded(void **state)
{
    (void)state;
    json_t *tools =
        json_loads("[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                   "\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":30},\"e\":{}},"
                   "\"required\":[\"s\",\"e\"]}}}]",
                   0,
                   NULL);
    const struct reply_grammar r = {
        .style = {reply_format_find("muse"), NULL}, .tools = tools, .required = true};
    struct grammar *g = compile(&r, NULL);
    assert_true(accepts(g, MUSE_F("a <| b")));
    assert_false(accepts(g, MUSE_F("a</atem:parameter>b")));
    assert_false(accepts(g, MUSE_F("0123456789012345678901234567890")));
    grammar_release(g);
    json_decref(tools);
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
        cmocka_unit_test(test_random_answers),   cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_optional),         cmocka_unit_test(test_optional_bare),
        cmocka_unit_test(test_content_or_calls), cmocka_unit_test(test_nested_schemas),
        cmocka_unit_test(test_escaped_keys),     cmocka_unit_test(test_tagged_schemas),
        cmocka_unit_test(test_tagged_texts),     cmocka_unit_test(test_bounded_texts),
        cmocka_unit_test(test_tagged_choices),   cmocka_unit_test(test_optional_tags),
        cmocka_unit_test(test_root_options),     cmocka_unit_test(test_options_read_alike),
        cmocka_unit_test(test_many_read_alike),  cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_muse_tokens),      cmocka_unit_test(test_tokens_in_marks),
        cmocka_unit_test(test_muse_bounded),     cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
