/* Hostile grammars: each is compiled or refused with a line, in bounded work; and what is compiled
 * never leads into a dead end. */
#include "harness.h"

#include "base/buf.h"

static char *text_of(struct buf *b)
{
    (void)buf_cstr(b);
    return b->data;
}

/* part, n times */
static void times(struct buf *b, const char *part, int n)
{
    for (int i = 0; i < n; i++)
        buf_str(b, part);
}

/* A few steps from the front never leave nothing to choose. */
static void use(struct grammar *g)
{
    static char out[1 << 18];
    uint64_t seed = 5;
    size_t n;
    for (int i = 0; i < 5; i++)
        (void)random_answer(g, &seed, 50, out, sizeof out, &n);
    grammar_release(g);
}

static void expect_error(enum kind kind, const char *text, const char *says)
{
    struct err_info e = {0};
    struct grammar *g = make(kind, text, &e);
    if (g || !strstr(e.text, says))
        fail_msg("%.60s...: says \"%s\", not \"%s\"", text, e.text, says);
}

static void test_nesting(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "root ::= ");
    times(&b, "(", 60000);
    expect_error(GBNF, text_of(&b), "nested too deeply");
    buf_clear(&b);
    times(&b, "(", 60000);
    expect_error(REGEX, text_of(&b), "nested too deeply");
    buf_clear(&b);
    times(&b, "{\"items\":", 1000);
    buf_str(&b, "{}");
    times(&b, "}", 1000);
    expect_error(SCHEMA, text_of(&b), "nested too deeply");
    buf_clear(&b);
    /* suffixes of suffixes are loops in loops */
    buf_str(&b, "root ::= \"a\"");
    times(&b, "*", 100);
    use(must_make(GBNF, text_of(&b)));
    times(&b, "*", 60000);
    expect_error(GBNF, text_of(&b), "nested too deeply");
    buf_deinit(&b);
}

static void test_repetitions(void **state)
{
    (void)state;
    use(must_make(REGEX, "a{1,100000}"));
    use(must_make(REGEX, "(ab?){0,100000}"));
    use(must_make(REGEX, "((a{100}){100}){100}"));
    use(must_make(REGEX, "(((((a{9}){9}){9}){9}){9}){9}"));
    use(must_make(REGEX, "((a?){1000}){1000}"));
    use(must_make(REGEX, "(a*){1000}b"));
    use(must_make(REGEX, "(a|a|a|aa|aaa)*b"));
    use(must_make(GBNF, "root ::= ([a-z]{0,200} [a-z]{0,200} [a-z]{0,200}){0,200}"));
    expect_error(REGEX, "a{1000001}", "too long");
    expect_error(REGEX, "(a{300000}){300000}b{300000}c{300000}", "too large");
    use(must_make(SCHEMA, "{\"type\":\"string\",\"maxLength\":100000}"));
    expect_error(SCHEMA, "{\"type\":\"string\",\"minLength\":1e15}", "too large");
    use(must_make(SCHEMA, "{\"type\":\"string\",\"maxLength\":1e15}"));
}

/* Rules that call two of the next: as a tree they would be 2^60. */
static void test_doubling(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "root ::= r0 \"!\"\n");
    for (int i = 0; i < 60; i++)
        buf_printf(&b, "r%d ::= r%d r%d?\n", i, i + 1, i + 1);
    buf_str(&b, "r60 ::= \"x\"?\n");
    use(must_make(GBNF, text_of(&b)));
    buf_clear(&b);
    buf_str(&b, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 25; i++)
        buf_printf(&b,
                   "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},",
                   i,
                   i + 1,
                   i + 1);
    buf_str(&b, "\"d25\":{\"type\":\"integer\"}}}");
    expect_error(SCHEMA, text_of(&b), "combines too many");
    buf_deinit(&b);
}

/* References in a long chain are no recursion; what is compared and copied is counted. */
static void test_large_references(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 5000; i++)
        buf_printf(&b, "\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i, i + 1);
    buf_str(&b, "\"d5000\":{\"type\":\"integer\"}}}");
    use(must_make(SCHEMA, text_of(&b)));
    buf_clear(&b);
    buf_str(&b, "root ::= r0\n"); /* too long a way without a byte: refused, not followed */
    for (int i = 0; i < 20000; i++)
        buf_printf(&b, "r%d ::= r%d\n", i, i + 1);
    buf_str(&b, "r20000 ::= \"x\"");
    expect_error(GBNF, text_of(&b), "too tangled");
    buf_clear(&b);
    buf_str(&b, "{\"allOf\":[{}"); /* two equal parts, compared again and again */
    for (int i = 0; i < 3000; i++)
        buf_printf(&b, ",{\"$ref\":\"#/$defs/%c\"}", i % 2 ? 'a' : 'b');
    buf_str(&b, "],\"$defs\":{\"a\":{\"properties\":{\"x\":{\"enum\":[0");
    times(&b, ",1", 20000);
    buf_str(&b, "]}}},\"b\":{\"properties\":{\"x\":{\"enum\":[0");
    times(&b, ",1", 20000);
    buf_str(&b, "]}}}}}");
    expect_error(SCHEMA, text_of(&b), "combines too many");
    buf_deinit(&b);
}

/* Deep chains of rules: calls at an end open nothing, others only as deep as they may. */
static void test_long_chains(void **state)
{
    (void)state;
    for (int at_end = 0; at_end < 2; at_end++) {
        for (int n = 200; n <= 20000; n *= 100) {
            struct buf b = {0};
            buf_str(&b, "root ::= r0\n");
            for (int i = 0; i < n; i++)
                buf_printf(
                    &b, at_end ? "r%d ::= \"a\" r%d\n" : "r%d ::= \"a\" r%d \"b\"\n", i, i + 1);
            buf_printf(&b, "r%d ::= \"c\"\n", n);
            if (n == 200 || at_end)
                grammar_release(must_make(GBNF, text_of(&b)));
            else
                expect_error(GBNF, text_of(&b), "nests deeper than 256");
            buf_deinit(&b);
        }
    }
    /* nested as deep as it goes, it still ends */
    struct grammar *g = must_make(GBNF, "root ::= \"(\" root \")\" | \"x\"");
    struct grammar_state *s = grammar_state_create(g);
    int depth = 0;
    while (grammar_accept(s, '(', w.scratch) != GRAMMAR_REFUSED)
        depth++;
    assert_in_range(depth, 200, GRAMMAR_MAX_DEPTH);
    check_mask(s);
    assert_int_equal(grammar_accept(s, 'x', w.scratch), GRAMMAR_GOES_ON);
    for (int i = 0; i + 1 < depth; i++)
        assert_int_equal(grammar_accept(s, ')', w.scratch), GRAMMAR_GOES_ON);
    assert_int_equal(grammar_accept(s, ')', w.scratch), GRAMMAR_ENDED);
    grammar_state_destroy(s);
    grammar_release(g);
}

static void test_ambiguity(void **state)
{
    (void)state;
    /* any bracketing of a's, by every rule: more parses than are followed */
    struct grammar *g = must_make(GBNF, "root ::= \"a\" (root | root root)? (root root root)?");
    struct grammar_state *s = grammar_state_create(g);
    for (int i = 0; i < 100; i++)
        assert_int_equal(grammar_accept(s, 'a', w.scratch), GRAMMAR_GOES_ON);
    assert_true(grammar_complete(s));
    struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
    assert_false(mask.none);
    grammar_mask_release(w.masks, &mask);
    grammar_state_destroy(s);
    grammar_release(g);
    struct buf b = {0};
    buf_str(&b, "root ::= ("); /* many loops that all go on */
    for (int i = 0; i < 1500; i++)
        buf_printf(&b, "%s[a-z]* \"%d\"", i ? " | " : "", i);
    buf_str(&b, ")");
    use(must_make(GBNF, text_of(&b)));
    buf_deinit(&b);
}

static void numbers(struct buf *b, int from, int n)
{
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%d", i ? "," : "", from + i);
}

/* What costs much and makes little is counted: each of these would take minutes. */
static void test_work(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "{\"enum\":[");
    numbers(&b, 0, 30000);
    buf_str(&b, "],\"not\":{\"enum\":[");
    numbers(&b, 100000, 30000);
    buf_str(&b, "]}}"); /* each with each */
    expect_error(SCHEMA, text_of(&b), "combines too many");
    buf_clear(&b);
    buf_str(&b, "{\"allOf\":[{}");
    for (int i = 0; i < 7000; i++)
        buf_str(&b, ",{\"$ref\":\"#/$defs/y\"}");
    buf_str(&b, "],\"$defs\":{\"y\":{\"$ref\":\"#/$defs/x");
    times(&b, "/kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk", 400);
    buf_str(&b, "\"},\"x\":");
    times(&b, "{\"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\":", 400);
    buf_str(&b, "{}");
    times(&b, "}", 400);
    buf_str(&b, "}}"); /* one long reference, followed again and again */
    expect_error(SCHEMA, text_of(&b), "combines too many");
    buf_clear(&b);
    buf_str(&b, "{\"type\":\"string\",\"maxLength\":9000,\"pattern\":\"^((");
    times(&b, "(", 90);
    buf_str(&b, ".");
    times(&b, ")*", 90);
    buf_str(&b, "){500}|([0-9]|a|b|c|d|e|f|g|h|i|j|k){7000}z)$\"}"); /* few bytes, many moves */
    expect_error(SCHEMA, text_of(&b), "too large an automaton");
    buf_deinit(&b);
}

static void test_large(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_str(&b, "{\"properties\":{");
    for (int i = 0; i < 300; i++)
        buf_printf(&b, "%s\"property_%d\":{\"type\":\"string\",\"maxLength\":20}", i ? "," : "", i);
    buf_str(&b, "}}");
    use(must_make(SCHEMA, text_of(&b)));
    buf_clear(&b);
    buf_str(&b, "{\"properties\":{");
    for (int i = 0; i < 20000; i++)
        buf_printf(&b,
                   "%s\"property_%d\":{\"type\":\"string\",\"description\":\"xxxxxxx\"}",
                   i ? "," : "",
                   i);
    buf_str(&b, "}}"); /* over a megabyte */
    expect_error(SCHEMA, text_of(&b), "may be left out");
    buf_clear(&b);
    buf_str(&b, "{\"enum\":[");
    for (int i = 0; i < 60000; i++)
        buf_printf(&b, "%s\"value %d\"", i ? "," : "", i * 7919 % 60000);
    buf_str(&b, "]}");
    struct err_info e = {0};
    struct grammar *g = make(SCHEMA, text_of(&b), &e);
    if (g)
        use(g);
    else
        assert_non_null(strstr(e.text, "too large"));
    buf_clear(&b);
    for (int i = 1; i <= 600; i++) { /* a, aa, aaa, ...: a trie of one long path */
        buf_str(&b, i > 1 ? "|" : "");
        times(&b, "a", i);
    }
    use(must_make(REGEX, text_of(&b)));
    buf_deinit(&b);
    struct grammar_text *list = calloc(600, sizeof *list);
    char *as = malloc(600);
    memset(as, 'a', 600);
    for (int i = 0; i < 600; i++)
        list[i] = (struct grammar_text){as, (size_t)i + 1};
    struct grammar_builder *builder = grammar_builder_create("choice");
    assert_int_equal(
        grammar_compile(builder, grammar_choice(builder, 600, list), w.vocab, &g, NULL), OK);
    grammar_builder_destroy(builder);
    use(g);
    free(list);
    free(as);
}

/* Random bytes are a grammar or an error, never more. */
static void test_noise(void **state)
{
    (void)state;
    static const char alphabet[] = "rot:=\"ab[]^-(){}|*+?.,0129\\nxu# \n<>";
    uint64_t seed = 1234567;
    for (int i = 0; i < 20000; i++) {
        char text[48] = "root ::= ";
        size_t n = i % 2 ? 9 : 0, len = n + next_random(&seed) % 30;
        for (; n < len; n++)
            text[n] = alphabet[next_random(&seed) % (sizeof alphabet - 1)];
        text[n] = '\0';
        struct grammar *g = make(i % 2 ? GBNF : REGEX, text, NULL);
        if (g) {
            struct grammar_state *s = grammar_state_create(g);
            struct grammar_mask mask = grammar_mask_acquire(w.masks, s);
            assert_false(mask.none);
            grammar_mask_release(w.masks, &mask);
            grammar_state_destroy(s);
        }
        grammar_release(g);
    }
}

/* A try of what is cheap is all there is to do; of what is not it says so, and in full it is made
 * or refused as if there had been none. */
static void test_try(void **state)
{
    (void)state;
    static const char *const regexes[] = {"[a-c]{2,5}x", "(?:abcdefgh|ijklmnop){1,40000}"};
    static const char patterns[] =
        "{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){11}c$\",\"maxLength\":100,"
        "\"not\":{\"pattern\":\"^(a|b)*b(a|b){10}c$\"}}";
    for (int i = 0; i < 3; i++) {
        enum err full = OK;
        for (int try = 1; try >= 0; try--) {
            struct grammar_builder *b = grammar_builder_create("field");
            struct grammar *g = NULL;
            grammar_builder_set_try(b, try);
            grammar_node root = i < 2 ? grammar_regex(b, regexes[i], strlen(regexes[i]))
                                      : grammar_json_schema_text(b, patterns, strlen(patterns));
            enum err err = grammar_compile(b, root, w.vocab, &g, NULL);
            assert_int_equal(grammar_builder_cut_short(b), try && i > 0);
            if (i == 0)
                assert_int_equal(err, OK);
            full = err;
            grammar_release(g);
            grammar_builder_destroy(b);
        }
        assert_true(full == OK || full == ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_repetitions),
        cmocka_unit_test(test_doubling),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_large_references),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_try),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
