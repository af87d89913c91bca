/* Values of forced calls come back as what their schema says of them, or the schema is refused. */
#include "unit/grammar/harness.h"

#include "base/buf.h"
#include "chat/reply_grammar.h"

#define QWEN(args) "<tool_call>\n<function=f>\n" args "</function>\n</tool_call>"
#define QWEN_ARG(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define M3 "]<]minimax[>["
#define M3_TAG(name, value) M3 "<" name ">" value M3 "</" name ">"
#define M3_CALL(args)                                                                              \
    M3 "<tool_call>\n" M3 "<invoke name=\"f\">" args M3 "</invoke>\n" M3 "</tool_call>"

/* The tool f with these parameters: JSON with ' for ". */
static json_t *tool_of(const char *parameters)
{
    struct buf quoted = {0};
    for (const char *s = parameters; *s; s++)
        buf_char(&quoted, *s == '\'' ? '"' : *s);
    json_t *schema = json_loadb(quoted.data, quoted.len, 0, NULL);
    json_t *tools = json_pack("[{s:{s:s, s:o}}]", "function", "name", "f", "parameters", schema);
    if (!tools)
        fail_msg("%s", parameters);
    buf_deinit(&quoted);
    return tools;
}

/* What a call of the tool must be; NULL with *e. */
static struct grammar *compile(const char *format, const json_t *tools, struct err_info *e)
{
    const struct reply_grammar r = {
        .style = {reply_format_find(format), NULL}, .tools = tools, .required = true};
    struct grammar_builder *b = grammar_builder_create("tools");
    struct grammar *g = NULL;
    grammar_node root = reply_grammar_build(&r, b);
    enum err err = grammar_compile(b, root, w.vocab, &g, e);
    assert_true(!err == (g != NULL));
    grammar_builder_destroy(b);
    return g;
}

static void on_event(void *ctx, const struct reply_event *ev)
{
    assert_true(ev->kind != REPLY_CONTENT);
    if (ev->kind == REPLY_CALL_ARGUMENTS)
        buf_add(ctx, ev->text, ev->n);
}

/* The arguments of the call. */
static json_t *read_back(const char *format, const json_t *tools, const char *text)
{
    const struct reply_config cfg = {.style = {reply_format_find(format), NULL}, .tools = tools};
    struct reply_parser *p = reply_create(&cfg);
    struct buf arguments = {0};
    reply_feed(p, text, strlen(text), on_event, &arguments);
    reply_finish(p, false, on_event, &arguments);
    reply_destroy(p);
    json_t *v = json_loadb(arguments.data, arguments.len, 0, NULL);
    buf_deinit(&arguments);
    return v;
}

struct forced {
    const char *format, *parameters;
    const char *text; /* that conforms, or does not; NULL: the parameters are refused */
    const char *want; /* what it is read back as, with ' for "; NULL: it does not conform */
};

static void check_case(const struct forced *c)
{
    json_t *tools = tool_of(c->parameters);
    struct err_info e = {0};
    struct grammar *g = compile(c->format, tools, &e);
    if (!g != !c->text)
        fail_msg("%s: %s: %s", c->format, c->parameters, g ? "it is taken" : e.text);
    if (!c->text)
        assert_non_null(strstr(e.text, "/tools/0/function/parameters"));
    if (c->text && accepts(g, c->text) != (c->want != NULL))
        fail_msg("%s: %s: %s", c->format, c->parameters, c->text);
    if (c->want) {
        struct buf quoted = {0};
        for (const char *s = c->want; *s; s++)
            buf_char(&quoted, *s == '\'' ? '"' : *s);
        json_t *want = json_loadb(quoted.data, quoted.len, 0, NULL);
        json_t *got = read_back(c->format, tools, c->text);
        assert_non_null(want);
        if (!json_equal(want, got))
            fail_msg("%s: %s: %s", c->format, c->parameters, c->text);
        json_decref(want);
        json_decref(got);
        buf_deinit(&quoted);
    }
    if (g)
        grammar_release(g);
    json_decref(tools);
}

#define CHECK_ALL(cases)                                                                           \
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)                                    \
    check_case(&cases[i])

/* Python's words stand where they are read as booleans; elsewhere they would be strings. */
static void test_booleans(void **state)
{
    (void)state;
    static const char plain[] = "{'properties':{'v':{'type':'boolean'}}}";
    static const char both[] =
        "{'properties':{'v':{'allOf':[{'type':'boolean'},{'description':'x'}]}}}";
    static const char later[] = "{'allOf':[{'properties':{'v':{}}},{'properties':{'v':{'type':"
                                "'boolean'}}}]}";
    static const char options[] =
        "{'anyOf':[{'properties':{'k':{'const':1},'v':{'type':'integer'}},'required':['k','v']},{"
        "'properties':{'k':{'const':2},'v':{'type':'boolean'}},'required':['k','v']}]}";
    static const char nested[] =
        "{'properties':{'o':{'type':'object','properties':{'v':{'allOf':[{'type':'boolean'},{}]}}}}"
        "}";
    static const struct forced cases[] = {
        {"qwen-xml", plain, QWEN(QWEN_ARG("v", "True")), "{'v':true}"},
        {"qwen-xml", both, QWEN(QWEN_ARG("v", "True")), NULL},
        {"qwen-xml", both, QWEN(QWEN_ARG("v", "true")), "{'v':true}"},
        {"qwen-xml", later, QWEN(QWEN_ARG("v", "False")), NULL},
        {"qwen-xml", later, QWEN(QWEN_ARG("v", "false")), "{'v':false}"},
        {"qwen-xml", options, QWEN(QWEN_ARG("k", "2") QWEN_ARG("v", "True")), NULL},
        {"qwen-xml", options, QWEN(QWEN_ARG("k", "2") QWEN_ARG("v", "true")), "{'k':2,'v':true}"},
        {"minimax-m3", nested, M3_CALL(M3_TAG("o", M3_TAG("v", "True"))), NULL},
        {"minimax-m3", nested, M3_CALL(M3_TAG("o", M3_TAG("v", "true"))), "{'o':{'v':true}}"},
    };
    CHECK_ALL(cases);
}

/* A value behind a reference is no string if what it refers to is none. */
static void test_references(void **state)
{
    (void)state;
    static const char schema[] =
        "{'properties':{'v':{'anyOf':[{'$ref':'#/$defs/i'},{'type':'null'}]}},'$defs':{'i':{'type':"
        "'integer'}}}";
    static const char spelled[] =
        "{'properties':{'v':{'$ref':'#/$defs/My%20whole~1number'}},'$defs':{'My whole/number':{"
        "'type':'integer'}}}";
    static const struct forced cases[] = {
        {"qwen-xml", schema, QWEN(QWEN_ARG("v", "words")), NULL},
        {"qwen-xml", schema, QWEN(QWEN_ARG("v", "5")), "{'v':5}"},
        {"qwen-xml", schema, QWEN(QWEN_ARG("v", "null")), "{'v':null}"},
        {"qwen-xml", spelled, QWEN(QWEN_ARG("v", "words")), NULL},
        {"qwen-xml", spelled, QWEN(QWEN_ARG("v", "5")), "{'v':5}"},
    };
    CHECK_ALL(cases);
}

/* What is read by another option's types than its own is refused, also within values. */
static void test_read_alike(void **state)
{
    (void)state;
#define OPTIONS(a, b)                                                                              \
    "{'anyOf':[{'properties':{'k':{'const':'A'},'o':" a "},'required':['k','o']},{'properties':{"  \
    "'k':{'const':'B'},'o':" b "},'required':['k','o']}]}"
#define MEMBER(type) "{'type':'object','properties':{'v':{'type':'" type "'}},'required':['v']}"
#define TYPE(type) "{'type':'" type "'}"
#define LIST(items) "{'type':'array','items':" items "}"
    static const struct forced cases[] = {
        {"qwen-xml", OPTIONS(TYPE("string"), TYPE("integer")), NULL, NULL},
        {"qwen-xml", OPTIONS(TYPE("integer"), TYPE("string")), NULL, NULL},
        {"qwen-xml",
         OPTIONS(TYPE("number"), TYPE("integer")),
         QWEN(QWEN_ARG("k", "B") QWEN_ARG("o", "7")),
         "{'k':'B','o':7}"},
        {"minimax-m3", OPTIONS(MEMBER("integer"), MEMBER("string")), NULL, NULL},
        {"minimax-m3", OPTIONS(MEMBER("string"), MEMBER("integer")), NULL, NULL},
        {"minimax-m3", OPTIONS(LIST(TYPE("string")), LIST(TYPE("integer"))), NULL, NULL},
        {"minimax-m3",
         OPTIONS(LIST(LIST(TYPE("string"))), LIST(LIST(TYPE("integer")))),
         NULL,
         NULL},
        {"minimax-m3",
         "{'properties':{'l':{'type':'array','items':{'allOf':[{'type':'string'},{}]}}}}",
         NULL,
         NULL},
        {"minimax-m3",
         OPTIONS(MEMBER("integer"), MEMBER("integer")),
         M3_CALL(M3_TAG("k", "B") M3_TAG("o", M3_TAG("v", "1"))),
         "{'k':'B','o':{'v':1}}"},
        /* an object of which the reader does not know that it is one has no tags, but is JSON */
        {"minimax-m3",
         "{'properties':{'p':{'allOf':[{'type':'object'},{'properties':{'item':{'type':'string'}}}]"
         "}}}",
         M3_CALL(M3_TAG("p", M3_TAG("item", "x"))),
         NULL},
        {"minimax-m3",
         "{'properties':{'p':{'allOf':[{'type':'object'},{'properties':{'item':{'type':'string'}}}]"
         "}}}",
         M3_CALL(M3_TAG("p", "{\"item\": \"x\"}")),
         "{'p':{'item':'x'}}"},
    };
    CHECK_ALL(cases);
}

/* What may also be null is written as templates write it without. */
static void test_null(void **state)
{
    (void)state;
    static const char schema[] =
        "{'properties':{'l':{'type':['array','null'],'items':{'type':'integer'}},'o':{'anyOf':[{"
        "'$ref':'#/$defs/o'},{'type':'null'}]},'b':{'type':['null','boolean']},'e':{'type':["
        "'boolean','null'],'enum':[true]}},'$defs':{'o':{'type':'object','properties':{'k':{'type':"
        "'integer'}}}}}";
#define NODE "{'anyOf':[{'$ref':'#/$defs/n'},{'type':'null'}]}"
    static const char tree[] =
        "{'properties':{'a':" NODE "},'$defs':{'n':{'type':'object','properties':{'a':" NODE
        ",'b':" NODE ",'c':" NODE ",'d':" NODE ",'e':" NODE ",'f':" NODE ",'g':" NODE "}}}}";
    static const struct forced cases[] = {
        {"minimax-m3",
         schema,
         M3_CALL(M3_TAG("l", M3_TAG("item", "1")) M3_TAG("o", M3_TAG("k", "2"))),
         "{'l':[1],'o':{'k':2}}"},
        {"minimax-m3",
         schema,
         M3_CALL(M3_TAG("l", "null") M3_TAG("o", "null") M3_TAG("b", "True")),
         "{'l':null,'o':null,'b':true}"},
        {"minimax-m3", schema, M3_CALL(M3_TAG("l", "") M3_TAG("o", "")), "{'l':[],'o':{}}"},
        {"minimax-m3", schema, M3_CALL(M3_TAG("l", M3_TAG("item", "x"))), NULL},
        {"minimax-m3", schema, M3_CALL(M3_TAG("o", M3_TAG("k", "x"))), NULL},
        {"minimax-m3",
         "{'properties':{'o':{'type':'object','anyOf':[{'properties':{'k':{'type':'integer'}}},{"
         "'type':'null'}]}}}",
         M3_CALL(M3_TAG("o", "null")),
         NULL},
        {"minimax-m3", tree, M3_CALL(M3_TAG("a", "null")), "{'a':null}"},
        {"qwen-xml", schema, QWEN(QWEN_ARG("b", "True")), "{'b':true}"},
        {"qwen-xml", schema, QWEN(QWEN_ARG("b", "null")), "{'b':null}"},
        {"qwen-xml", schema, QWEN(QWEN_ARG("e", "null")), NULL},
        {"qwen-xml", schema, QWEN(QWEN_ARG("o", "{\"k\": 1}")), "{'o':{'k':1}}"},
    };
    CHECK_ALL(cases);
}

/* What else is said of a string that may be null holds as well. */
static void test_string_or_null(void **state)
{
    (void)state;
#define OR_NULL(option) "{'properties':{'v':{'anyOf':[" option ",{'type':'null'}]}}}"
    static const char listed[] = OR_NULL("{'type':'string','enum':['x','y','None']}");
    static const char one[] = OR_NULL("{'const':'x'}");
    static const char bounded[] =
        "{'properties':{'v':{'type':['string','null'],'pattern':'^a+$','maxLength':3}}}";
    static const char named[] = "{'properties':{'v':{'anyOf':[{'$ref':'#/$defs/e'},{'type':'null'}]"
                                ",'default':null}},'$defs':{'e':{'type':'string','enum':['x']}}}";
#define M3_STRING(text) M3_CALL(M3_TAG("v", text))
#define GLM(value)                                                                                 \
    "<tool_call>f\n<arg_key>v</arg_key>\n<arg_value>" value "</arg_value>\n</tool_call>"
    static const struct forced cases[] = {
        {"qwen-xml", listed, QWEN(QWEN_ARG("v", "y")), "{'v':'y'}"},
        {"qwen-xml", listed, QWEN(QWEN_ARG("v", "null")), "{'v':null}"},
        {"qwen-xml", listed, QWEN(QWEN_ARG("v", "z")), NULL},
        {"qwen-xml", listed, QWEN(QWEN_ARG("v", "None")), NULL}, /* it would be read as null */
        {"qwen-xml", one, QWEN(QWEN_ARG("v", "x")), "{'v':'x'}"},
        {"qwen-xml", one, QWEN(QWEN_ARG("v", "null")), "{'v':null}"},
        {"qwen-xml", one, QWEN(QWEN_ARG("v", "xx")), NULL},
        {"qwen-xml", bounded, QWEN(QWEN_ARG("v", "aaa")), "{'v':'aaa'}"},
        {"qwen-xml", bounded, QWEN(QWEN_ARG("v", "null")), "{'v':null}"},
        {"qwen-xml", bounded, QWEN(QWEN_ARG("v", "aaaa")), NULL},
        {"qwen-xml", named, QWEN(QWEN_ARG("v", "x")), "{'v':'x'}"},
        {"qwen-xml", named, QWEN(QWEN_ARG("v", "null")), "{'v':null}"},
        {"qwen-xml", named, QWEN(QWEN_ARG("v", "y")), NULL},
        {"glm", named, GLM("x"), "{'v':'x'}"},
        {"glm", named, GLM("null"), "{'v':null}"},
        {"glm", named, GLM("y"), NULL},
        {"minimax-m3", named, M3_STRING("x"), "{'v':'x'}"},
        {"minimax-m3", named, M3_STRING("null"), "{'v':null}"},
        {"minimax-m3", named, M3_STRING("y"), NULL},
    };
    CHECK_ALL(cases);
}

/* More options beside null than a tool's root may have are options of a value all the same. */
static void test_many_beside_null(void **state)
{
    (void)state;
    struct buf schema = {0};
    buf_str(&schema,
            "{'properties':{'v':{'anyOf':[{'$ref':'#/$defs/v'},{'type':'null'}]}},'$defs':{'v':{"
            "'anyOf':[{'type':'boolean'}");
    for (int i = 0; i < 300; i++)
        buf_printf(&schema, ",{'const':%d}", i);
    buf_str(&schema, "]}}}");
    const struct forced cases[] = {
        {"minimax-m3", buf_cstr(&schema), M3_CALL(M3_TAG("v", "299")), "{'v':299}"},
        {"minimax-m3", buf_cstr(&schema), M3_CALL(M3_TAG("v", "null")), "{'v':null}"},
        {"minimax-m3", buf_cstr(&schema), M3_CALL(M3_TAG("v", "300")), NULL},
    };
    CHECK_ALL(cases);
    buf_deinit(&schema);
}

/* What is not described by its name is kept to what the schema says of all others. */
static void test_others(void **state)
{
    (void)state;
#define INSIDE(rest) "{'properties':{'o':{'type':'object'" rest "}}}"
#define OTHERS "'additionalProperties':{'type':'integer'}"
#define GEMMA(value) "<|tool_call>call:f{o:" value "}<tool_call|>"
    static const char more[] = "{'required':['n']," OTHERS "}";
    static const struct forced cases[] = {
        {"gemma", INSIDE(""), GEMMA("{a:true}"), "{'o':{'a':true}}"},
        {"gemma", INSIDE("," OTHERS), GEMMA("{a:1,b:2}"), "{'o':{'a':1,'b':2}}"},
        {"gemma", INSIDE("," OTHERS), GEMMA("{a:true}"), NULL},
        {"gemma",
         INSIDE(",'additionalProperties':{'type':'array','items':{'type':'boolean'}}"),
         GEMMA("{a:[true]}"),
         "{'o':{'a':[true]}}"},
        {"gemma", INSIDE(",'additionalProperties':false"), GEMMA("{}"), "{'o':{}}"},
        {"gemma", INSIDE(",'additionalProperties':false"), GEMMA("{a:1}"), NULL},
        {"gemma",
         INSIDE(",'additionalProperties':true,'minProperties':0"),
         GEMMA("{a:1}"),
         "{'o':{'a':1}}"},
        {"gemma", INSIDE(",'required':['a']"), GEMMA("{a:1}"), "{'o':{'a':1}}"},
        {"gemma", INSIDE(",'required':['a']"), GEMMA("{}"), NULL},
        {"gemma", INSIDE(",'minProperties':2"), NULL, NULL},
        {"gemma", INSIDE(",'maxProperties':2"), NULL, NULL},
        {"gemma", INSIDE(",'propertyNames':{'pattern':'^a'}"), NULL, NULL},
        {"gemma", INSIDE(",'patternProperties':{'^a':{'type':'integer'}}"), NULL, NULL},
        {"qwen-xml", "{'enum':[{'n':1}]}", NULL, NULL},
        {"lfm2", "{'properties':{'n':{}},'not':{'const':{'n':1}}}", NULL, NULL},
        {"qwen-xml",
         "{'properties':{'n':{'type':'string','allOf':[{'pattern':'^a'},{'pattern':'z$'}]}}}",
         QWEN(QWEN_ARG("n", "abz")),
         "{'n':'abz'}"},
        {"qwen-xml",
         "{'properties':{'n':{'type':'string','allOf':[{'pattern':'^a'},{'pattern':'z$'}]}}}",
         QWEN(QWEN_ARG("n", "abc")),
         NULL},
        {"qwen-xml",
         "{'properties':{'n':{'type':'string','not':{'const':'x'}}}}",
         QWEN(QWEN_ARG("n", "xx")),
         "{'n':'xx'}"},
        {"qwen-xml",
         "{'properties':{'n':{'type':'string','not':{'const':'x'}}}}",
         QWEN(QWEN_ARG("n", "x")),
         NULL},
        {"qwen-xml", more, QWEN(QWEN_ARG("n", "1")), "{'n':1}"},
        {"qwen-xml", more, QWEN(QWEN_ARG("n", "one")), NULL},
        {"olmo3", more, "<function_calls>f(n=true)</function_calls>", NULL},
    };
    CHECK_ALL(cases);
}

/* Can the format's calls have an argument of this name? Then one is read back. */
static bool takes_key(const char *format, const char *key)
{
    json_t *tools = json_pack("[{s:{s:s, s:{s:{s:{s:[i]}}, s:[s], s:b}}}]",
                              "function",
                              "name",
                              "f",
                              "parameters",
                              "properties",
                              key,
                              "enum",
                              5,
                              "required",
                              key,
                              "additionalProperties",
                              0);
    struct err_info e = {0};
    struct grammar *g = compile(format, tools, &e);
    static char text[8000];
    size_t n;
    uint64_t seed = 7;
    if (g && !random_answer(g, &seed, 4000, text, sizeof text, &n))
        fail_msg("%s: %s: no end", format, key);
    json_t *got = g ? read_back(format, tools, text) : NULL;
    if (g && json_integer_value(json_object_get(got, key)) != 5)
        fail_msg("%s: %s", format, text);
    if (!g)
        assert_non_null(strstr(e.text, "this name cannot be written in this model's calls"));
    if (g)
        grammar_release(g);
    json_decref(got);
    json_decref(tools);
    return g != NULL;
}

/* A name that the reader would not read whole is refused; all others come back. */
static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key, *refused; /* by these formats alone, spaces around each */
    } cases[] = {
        {"a>b", " qwen-xml seed minimax-m3 "},
        {"a\"b", " deepseek-v3.2 deepseek-v4 "},
        {"a\">b", " qwen-xml seed minimax minicpm muse minimax-m3 deepseek-v3.2 deepseek-v4 "},
        {"a</arg_key>", " glm qwen-xml seed minimax-m3 "},
        {"a</arg_key:opensource>", " hy3 qwen-xml seed minimax-m3 "},
        {"a<b&quot;", " "},
        {"a\nb", " minimax-m3 "},
        {"", " minimax-m3 "},
        {"/x", " minimax-m3 "},
        {"invoke name=x", " minimax-m3 "},
        {"item", " "},
    };
    static const char *const tags[] = {"qwen-xml",
                                       "glm",
                                       "minimax",
                                       "deepseek-v3.2",
                                       "deepseek-v4",
                                       "seed",
                                       "minicpm",
                                       "hy3",
                                       "kimi-k3",
                                       "minimax-m3",
                                       "muse"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t k = 0; k < sizeof tags / sizeof tags[0]; k++) {
            char word[32];
            snprintf(word, sizeof word, " %s ", tags[k]);
            if (takes_key(tags[k], cases[i].key) == (strstr(cases[i].refused, word) != NULL))
                fail_msg("%s: %s", tags[k], cases[i].key);
        }
}

/* Readers wait for the end of a key up to a bound. */
static void test_long_keys(void **state)
{
    (void)state;
    static const char *const formats[] = {
        "qwen-xml", "hy3", "minimax-m3", "olmo3", "lfm2", "gemma", "functiongemma"};
    char key[601];
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        bool before = true;
        for (size_t n = 480; n <= 520; n++) {
            memset(key, 'k', n);
            key[n] = '\0';
            const bool now = takes_key(formats[i], key);
            assert_true(before || !now);
            before = now;
        }
        assert_false(before);
        memset(key, 'k', 600);
        key[600] = '\0';
        assert_false(takes_key(formats[i], key));
        key[480] = '\0';
        assert_true(takes_key(formats[i], key));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_booleans),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_read_alike),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_string_or_null),
        cmocka_unit_test(test_many_beside_null),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_long_keys),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
