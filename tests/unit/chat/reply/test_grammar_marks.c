/* Grammars of calls whose marks are control tokens, one or several. */
#include "unit/chat/reply/grammar_cases.h"

static int32_t channel_token(const void *ctx, const char *s, size_t n)
{
    (void)ctx;
    return n == 11 && memcmp(s, "<|channel|>", 11) == 0 ? CONTROL : -1;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_tokens_in_marks),
        cmocka_unit_test(test_muse_tokens),
        cmocka_unit_test(test_muse_bounded),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
