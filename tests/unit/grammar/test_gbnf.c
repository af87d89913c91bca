/* GBNF: what the notation means, llama.cpp's own examples in kind, and where errors are said to be.
 */
#include "harness.h"

static const struct {
    const char *grammar;
    const char *yes[8], *no[8];
} cases[] = {
    {"root ::= \"a\" \"b\"", {"ab"}, {"", "a", "b", "abc"}},
    {"root ::= \"a\" | \"bc\" |", {"a", "bc", ""}, {"b", "ac"}},
    {"root ::= \"a\"* \"b\"+ \"c\"?", {"b", "aab", "bbc"}, {"a", "c", "bcc"}},
    {"root ::= [a-c]{2,3}", {"ab", "abc"}, {"a", "abca", "ad"}},
    {"root ::= [a-c]{2}", {"ab"}, {"a", "abc"}},
    {"root ::= [a-c]{2,}", {"ab", "abcabc"}, {"a"}},
    {"root ::= [a-c]{0,2}", {"", "ab"}, {"abc"}},
    {"root ::= (\"ab\" | \"c\"){3,4}", {"abcab", "cccc"}, {"cc", "ccccc"}},
    {"root ::= (\"a\"*){0,3} \"b\"", {"b", "aaaaaab"}, {"a", ""}},
    {"root ::= (\"a\"*)* \"b\"", {"b", "aaaaaab"}, {"a", ""}},
    {"root ::= [^\"\\\\\\n]+",
     {"ab", "\xc3\xa9", "\xf0\x9f\x98\x80"},
     {"\"", "a\n", "\xc3", "\xed\xa0\x80"}},
    {"root ::= .", {"a", "\n", "\xe2\x82\xac"}, {"", "ab", "\xff"}},
    {"root ::= [\xe3\x81\x81-\xe3\x82\x9f]+", {"\xe3\x81\x82\xe3\x82\x8a"}, {"a", "\xe3\x83\x80"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\\n\"", {"A\xc3\xa9\xf0\x9f\x98\x80\"\\\n"}, {"A"}},
    {"root ::= [\\]\\-a]", {"]", "-", "a"}, {"\\", "b"}},
    {"root ::= [a-]", {"a", "-"}, {"b"}},
    /* a rule goes on behind | and within brackets; comments */
    {"# one\nroot ::= # two\n  ( x\n    y ) |\n  \"z\" # end\nx ::= \"x\"\n\ny ::= \"y\"",
     {"xy", "z"},
     {"x"}},
    {"root::=a-b_1\r\na-b_1::=\"q\"\r\n", {"q"}, {""}},
    /* llama.cpp's arithmetic */
    {"root  ::= (expr \"=\" term \"\\n\")+\nexpr  ::= term ([-+*/] term)*\n"
     "term  ::= ident | num | \"(\" expr \")\"\nident ::= [a-z] [a-z0-9_]*\nnum   ::= [0-9]+",
     {"1+2=3\n", "(a*(b-1))=x\n1=1\n"},
     {"1+=3\n", "1=2", "(1=2\n"}},
    /* recursion that is not at the front: nested, and at the end */
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"((x)", "x)"}},
    {"root ::= \"a\" root | \"b\"", {"b", "aaab"}, {"a", "ba"}},
    {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", {"aadbc", "aadcb", "d"}, {"aadb"}},
    /* palindromes: every place may be the middle */
    {"root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"", {"", "abba", "abaaba"}, {"ab", "aba"}},
    /* rules that derive nothing are as if they were not there */
    {"root ::= \"a\" | \"b\" never\nnever ::= \"c\" never", {"a"}, {"b", "bc"}},
};

static void test_language(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = must_make(GBNF, cases[i].grammar);
        for (int k = 0; k < 8 && cases[i].yes[k]; k++)
            if (!accepts(g, cases[i].yes[k]))
                fail_msg("%s: should accept %s", cases[i].grammar, cases[i].yes[k]);
        for (int k = 0; k < 8 && cases[i].no[k]; k++)
            if (accepts(g, cases[i].no[k]))
                fail_msg("%s: should not accept %s", cases[i].grammar, cases[i].no[k]);
        grammar_release(g);
    }
}

/* More texts than there may be parses, beside what is no text: none of them is given up. */
static void test_many_texts_beside_others(void **state)
{
    char *text = malloc(100000), word[16];
    size_t n = (size_t)sprintf(text, "root ::= ");
    (void)state;
    for (int i = 0; i < 2 * GRAMMAR_MAX_PARSES; i++)
        n += (size_t)sprintf(text + n, "\"w%d\" | ", i);
    sprintf(text + n, "[0-9]+ | \"b\" root");
    struct grammar *g = must_make(GBNF, text);
    for (int i = 0; i < 2 * GRAMMAR_MAX_PARSES; i++) {
        snprintf(word, sizeof word, "bw%d", i);
        assert_true(accepts(g, word));
    }
    assert_true(accepts(g, "12"));
    assert_false(accepts(g, "w"));
    assert_false(accepts(g, "w99999"));
    grammar_release(g);
    free(text);
}

static const struct {
    const char *grammar, *says;
} wrong[] = {
    {"", "no rule named root"},
    {"x ::= \"a\"", "no rule named root"},
    {"root ::= \"a\n", "line 1, column 10"},
    {"root ::= \"a\"\nx = \"b\"", "line 2, column 3"},
    {"root ::= x y\nx ::= \"a\"", "line 1, column 12: this rule is not defined"},
    {"root ::= (\"a\"", "line 1, column 10: a ')' is missing"},
    {"root ::= \"a\")", "line 1, column 13"},
    {"root ::= [a", "line 1, column 10"},
    {"root ::= [b-a]", "runs backwards"},
    {"root ::= \"a\"{2,1}", "runs backwards"},
    {"root ::= \"a\"{,2}", "written {m}"},
    {"root ::= \"a\"{99999999999}", "too long"},
    {"root ::= \"\\q\"", "line 1, column 11: this escape"},
    {"root ::= \"\\ud800\"", "this escape"},
    {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: this rule is defined twice"},
    {"root ::= root \"a\" | \"b\"", "left recursion"},
    {"root ::= x\nx ::= y\ny ::= \"q\"? x \"a\" | \"b\"", "left recursion"},
    {"root ::= ([a-z]*) root", "no text at all"},
    {"root ::= \"a\" root", "no text at all"},
    {"root ::= root", "no text at all"},
    {"root ::= []", "no text at all"},
    {"root ::= <x>", "line 1, column 10"},
    {"root ::= <[12", "<[ID]>"},
    {"root ::= \"a\" | <[100000]>", "no token 100000"},
    {"root ::= \xff", "line 1, column 10"},
    {"root ::= \"\xff\"", "not UTF-8"},
};

static void test_errors_say_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct err_info e = {0};
        struct grammar *g = make(GBNF, wrong[i].grammar, &e);
        if (g || !strstr(e.text, wrong[i].says) || e.code != ERR_INVALID ||
            strcmp(e.field, "field"))
            fail_msg("%s: says \"%s\", not \"%s\"", wrong[i].grammar, e.text, wrong[i].says);
    }
}

static void test_tokens_by_id(void **state)
{
    char text[64];
    (void)state;
    snprintf(text, sizeof text, "root ::= \"a\" <[%d]> \"b\" | \"c\"", CONTROL);
    struct grammar *g = must_make(GBNF, text);
    struct grammar_state *s = grammar_state_create(g);
    check_mask(s);
    assert_int_equal(grammar_accept(s, CONTROL, w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(s, 'a', w.scratch), GRAMMAR_GOES_ON);
    check_mask(s);
    assert_int_equal(grammar_accept(s, 'b', w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(s, CONTROL, w.scratch), GRAMMAR_GOES_ON);
    assert_int_equal(grammar_accept(s, 'b', w.scratch), GRAMMAR_ENDED);
    grammar_state_destroy(s);
    grammar_release(g);
}

/* A token that ends an answer does so behind a complete text alone, whatever a grammar names. */
static void test_token_of_the_end(void **state)
{
    char text[96];
    (void)state;
    snprintf(text, sizeof text, "root ::= \"a\" (<[%d]> \"b\")? \"c\"", EOG);
    struct grammar *g = must_make(GBNF, text);
    struct grammar_state *s = grammar_state_create(g);
    assert_int_equal(grammar_accept(s, 'a', w.scratch), GRAMMAR_GOES_ON);
    check_mask(s);
    assert_int_equal(grammar_accept(s, EOG, w.scratch), GRAMMAR_REFUSED);
    assert_int_equal(grammar_accept(s, 'c', w.scratch), GRAMMAR_ENDED);
    grammar_state_destroy(s);
    grammar_release(g);

    struct err_info e = {0};
    snprintf(text, sizeof text, "root ::= \"a\" <[%d]> \"b\"", EOG);
    assert_null(make(GBNF, text, &e));
    assert_non_null(strstr(e.text, "admits no text"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_many_texts_beside_others),
        cmocka_unit_test(test_errors_say_where),
        cmocka_unit_test(test_tokens_by_id),
        cmocka_unit_test(test_token_of_the_end),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
