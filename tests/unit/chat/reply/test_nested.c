/* MiniMax M3: tags within values, and what JSON they mean. */
#include "unit/chat/reply/cases.h"

#define M3 "]<]minimax[>["
#define TAG(name, value) M3 "<" name ">" value M3 "</" name ">"
#define CALL(name, args) M3 "<invoke name=\"" name "\">" args M3 "</invoke>\n"
#define CALLS(calls) M3 "<tool_call>\n" calls M3 "</tool_call>"

static void test_calls(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"minimax-m3",
         "minimax-m3",
         "<mm:think>Hm.</mm:think>I look." CALLS(
             CALL("f", TAG("s", "a\n\"b\" <c>") TAG("n", "-1.5") TAG("b", "true"))
                 CALL("get_weather", "")),
         "R'Hm.' C'I look.' B0 f A'{\"s\": \"a\\n\\\"b\\\" <c>\", \"n\": -1.5, \"b\": true}' E B1 "
         "get_weather A'{}' E",
         0},
        {"minimax-m3", "minimax-m3", "</mm:think>Hello", "C'Hello'", 0},
        {"minimax-m3",
         "minimax-m3",
         "</mm:think>" CALLS(CALL("f", TAG("i", "7"))),
         "B0 f A'{\"i\": 7}' E",
         0},
        /* between calls and arguments lines may end */
        {"minimax-m3",
         NULL,
         CALLS("\n" M3 "<invoke name=\"f\">\n" TAG("s", "x") "\n" TAG("n", "1") "\n" M3
                                                                                "</invoke>"),
         "B0 f A'{\"s\": \"x\", \"n\": 1}' E",
         0},
        {"minimax-m3",
         NULL,
         CALLS(CALL("f", "") CALL("python", "")) " So.",
         "B0 f A'{}' E C' So.'",
         ONE_CALL},
        /* a call without its end */
        {"minimax-m3",
         NULL,
         CALLS(M3 "<invoke name=\"f\">" TAG("s", "x") CALL("python", "")),
         "B0 f A'{\"s\": \"x\"}' E B1 python A'{}' E",
         0},
        {"minimax-m3",
         NULL,
         M3 "<tool_call>" M3 "<invoke name=\"f\">" M3 "<invoke name=\"python\">" M3 "</tool_call>",
         "B0 f A'{}' E B1 python A'{}' E",
         0},
        {"minimax-m3",
         NULL,
         M3 "<tool_call>" M3 "<invoke name=\"f\">" TAG("s", "x"),
         "B0 f A'{\"s\": \"x\"}' E",
         0},
    };
    CHECK_ALL(cases);
}

/* Objects and arrays, by the schema or by their tags alone. */
static void test_values(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"minimax-m3",
         NULL,
         CALLS(CALL("f",
                    TAG("o",
                        TAG("k", "v w") TAG("list", TAG("item", "1") TAG("item", "b"))
                            TAG("more", TAG("x", TAG("y", "null")))))),
         "B0 f A'{\"o\": {\"k\": \"v w\", \"list\": [1, \"b\"], \"more\": {\"x\": {\"y\": "
         "null}}}}' "
         "E",
         0},
        /* lines between tags, JSON in a tag, nothing in one */
        {"minimax-m3",
         NULL,
         CALLS(CALL("f",
                    TAG("o", "\n" TAG("k", "1") "\n") TAG("o", "{\"a\": [1]}") TAG("o", "")
                        TAG("s", "") TAG("free", "") TAG("sn", "12") TAG("sn", "null"))),
         "B0 f A'{\"o\": {\"k\": 1}, \"o\": {\"a\": [1]}, \"o\": {}, \"s\": \"\", \"free\": \"\", "
         "\"sn\": \"12\", \"sn\": null}' E",
         0},
        /* "item" is a name too; an array of arrays */
        {"minimax-m3",
         NULL,
         CALLS(CALL("f",
                    TAG("o", TAG("item", "x"))
                        TAG("free", TAG("item", TAG("item", "1")) TAG("item", TAG("item", "2"))))),
         "B0 f A'{\"o\": {\"item\": \"x\"}, \"free\": [[1], [2]]}' E",
         0},
        /* what fits no type, bad JSON */
        {"minimax-m3",
         NULL,
         CALLS(CALL("f", TAG("n", "many") TAG("o", "{a") TAG("b", "True"))),
         "B0 f A'{\"n\": \"many\", \"o\": \"{a\", \"b\": true}' E",
         0},
        /* strings keep all that is not their own closing tag */
        {"minimax-m3",
         NULL,
         CALLS(CALL("f", TAG("s", "a" M3 "</x>" TAG("k", "v") M3 "</invoke>" M3 "<b ]<]min"))),
         "B0 f A'{\"s\": "
         "\"a]<]minimax[>[</x>]<]minimax[>[<k>v]<]minimax[>[</k>]<]minimax[>[</invoke>"
         "]<]minimax[>[<b ]<]min\"}' E",
         0},
        {"minimax-m3",
         NULL,
         CALLS(CALL("f", TAG("free", "words " TAG("k", "v")))),
         "B0 f A'{\"free\": \"words ]<]minimax[>[<k>v]<]minimax[>[</k>\"}' E",
         0},
        {"minimax-m3",
         NULL,
         M3 "<tool_call>" M3 "<invoke name=\"f\">" M3 "<o>" M3 "<k>ab" M3 "</",
         "B0 f A'{\"o\": {\"k\": ab]<]minimax[>[</'",
         CUT},
    };
    CHECK_ALL(cases);
}

/* What is no call is content, what breaks one off too. */
static void test_no_calls(void **state)
{
    (void)state;
    static const struct reply_case cases[] = {
        {"minimax-m3",
         NULL,
         "The tag " M3 "<tool_call> begins.",
         "C'The tag " M3 "<tool_call> begins.'",
         0},
        {"minimax-m3", NULL, CALLS(""), "C'" CALLS("") "'", 0},
        {"minimax-m3", NULL, CALLS(M3 "<invoke f>"), "C'" CALLS(M3 "<invoke f>") "'", 0},
        {"minimax-m3", NULL, CALLS(CALL("a b", "")), "C'" CALLS(CALL("a b", "")) "'", 0},
        {"minimax-m3", NULL, CALLS(CALL("f", "words")), "C'" CALLS(CALL("f", "words")) "'", 0},
        {"minimax-m3", NULL, M3 "<tool_call>\n" M3 "<inv", "C'" M3 "<tool_call>\n" M3 "<inv'", CUT},
        {"minimax-m3", "minimax-m3", CALLS(CALL("f", "")), "C'" CALLS(CALL("f", "")) "'", NO_TOOLS},
        {"minimax-m3",
         NULL,
         CALLS(M3 "<invoke name=\"f\">" TAG("s", "x") " and"),
         "B0 f A'{\"s\": \"x\"}' E C' and" M3 "</tool_call>'",
         0},
        {"minimax-m3",
         NULL,
         CALLS(M3 "<invoke name=\"f\">" M3 "<o>" TAG("k", "x") M3 "</s>"),
         "B0 f A'{\"o\": {\"k\": \"x\"' C'" M3 "</s>" M3 "</tool_call>'",
         0},
    };
    CHECK_ALL(cases);
}

/* Tags in tags without an end. */
static void test_deep(void **state)
{
    (void)state;
    struct buf text = {0}, want = {0};
    buf_str(&text, M3 "<tool_call>" M3 "<invoke name=\"f\">" M3 "<o>");
    buf_str(&want, "B0 f A'{\"o\": ");
    for (int i = 0; i < 100; i++)
        buf_str(&text, M3 "<a>");
    for (int i = 0; i < 62; i++)
        buf_str(&want, "{\"a\": ");
    for (int i = 0; i < 38; i++)
        buf_str(&want, M3 "<a>");
    buf_str(&want, "'");
    const struct reply_case c = {"minimax-m3", NULL, buf_cstr(&text), buf_cstr(&want), CUT};
    bool called;
    char *cuts = calloc(text.len, 1), *got = read_reply(&c, text.len, cuts, &called);
    assert_string_equal(got, c.want);
    assert_false(called);
    free(got);
    free(cuts);
    buf_deinit(&text);
    buf_deinit(&want);
}

/* The arguments of a call that ends are JSON. */
static void on_event(void *ctx, const struct reply_event *ev)
{
    struct buf *arguments = ctx;
    if (ev->kind == REPLY_CALL_BEGIN)
        buf_clear(arguments);
    if (ev->kind == REPLY_CALL_ARGUMENTS)
        buf_add(arguments, ev->text, ev->n);
    if (ev->kind != REPLY_CALL_END)
        return;
    json_t *v = json_loadb(arguments->data, arguments->len, 0, NULL);
    if (!json_is_object(v))
        fail_msg("%s", buf_cstr(arguments));
    json_decref(v);
}

/* Random texts of the pieces of tags: however they are cut the same comes out. */
static void test_random(void **state)
{
    (void)state;
    static const char *const parts[] = {M3 "<o>",
                                        M3 "<k>",
                                        M3 "<item>",
                                        M3 "</o>",
                                        M3 "</k>",
                                        M3 "</item>",
                                        M3 "<s>",
                                        M3 "</s>",
                                        M3 "<n>",
                                        M3 "</n>",
                                        M3,
                                        "<",
                                        "]<]mini",
                                        "\n",
                                        "1",
                                        "a \"b\"",
                                        "{\"x\": 2}",
                                        M3 "</invoke>",
                                        M3 "<invoke name=\"f\">",
                                        M3 "</tool_call>",
                                        M3 "<tool_call>"};
    json_t *tools = json_loads(tools_json, 0, NULL);
    const struct reply_config cfg = {.style = {reply_format_find("minimax-m3"), NULL},
                                     .tools = tools};
    for (unsigned seed = 1; seed <= 3000; seed++) {
        struct buf text = {0}, arguments = {0};
        srand(seed);
        buf_str(&text, M3 "<tool_call>" M3 "<invoke name=\"f\">" M3 "<o>");
        for (int i = rand() % 12; i > 0; i--)
            buf_str(&text, parts[(size_t)rand() % (sizeof parts / sizeof parts[0])]);
        const struct reply_case c = {"minimax-m3", NULL, buf_cstr(&text), NULL, seed % 2 ? CUT : 0};
        char *cuts = calloc(text.len, 1), *whole = read_reply(&c, text.len, cuts, NULL);
        for (size_t i = 0; i < text.len; i++)
            cuts[i] = seed % 3 == 0 || rand() % 4 == 0;
        char *pieces = read_reply(&c, text.len, cuts, NULL);
        if (strcmp(whole, pieces) != 0)
            fail_msg("seed %u: %s\n  %s\n  %s", seed, c.text, whole, pieces);
        struct reply_parser *p = reply_create(&cfg);
        reply_feed(p, c.text, text.len, on_event, &arguments);
        reply_finish(p, false, on_event, &arguments);
        reply_destroy(p);
        free(whole);
        free(pieces);
        free(cuts);
        buf_deinit(&text);
        buf_deinit(&arguments);
    }
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
