/* Regular expressions: the whole text matches; what is refused, and where. */
#include "harness.h"

#include "grammar/internal.h"

#include <regex.h>

static const struct {
    const char *regex;
    const char *yes[8], *no[8];
} cases[] = {
    {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"a|bc|", {"a", "bc", ""}, {"b"}},
    {"(a|b)*c", {"c", "abac"}, {"ab"}},
    {"(?:ab)+?", {"ab", "abab"}, {"", "aba"}},
    {"(?P<x>a)(?<y>b)", {"ab"}, {"a"}},
    {"a{2}b{1,2}c{0,}", {"aab", "aabbcc"}, {"ab", "aabbb"}},
    {"[a-c\\d_-]+", {"a1-", "_"}, {"d", ""}},
    {"[^a-c]", {"d", "\xc3\xa9", "\n"}, {"a", ""}},
    {"\\w+@\\w+\\.com", {"a_1@b.com"}, {"a@b!com", "\xc3\xa9@b.com"}},
    {".", {"a", "\xe2\x82\xac"}, {"\n", "\r", "\xe2\x80\xa8"}},
    {"\\S+", {"ab"}, {"a b", "\xe3\x80\x80", "\xc2\xa0"}},
    {"\\D\\W", {"a!", "!-"}, {"1!", "ab", "\xd9\xa1!"}},
    {"\\s", {" ", "\t", "\n"}, {"a"}},
    {"^a$|^b", {"a", "b"}, {"c"}},
    {"\\x41\\u0042\\u{43}\\n\\t\\.", {"ABC\n\t."}, {"ABC"}},
    {"[\\]\\\\^]", {"]", "\\", "^"}, {"a"}},
    {"(\\d{3}-){2}\\d{4}", {"123-456-7890"}, {"123-456-789"}},
    {"]", {"]"}, {""}},
    {"[\\s\\d]", {"1", " "}, {"a"}},
    {"[^\\W]", {"a", "_", "0"}, {"!", "\xc3\xa9"}},
    {"[^\\d]", {"a", "!"}, {"1", "\xd9\xa1"}},
    {"[^\\s,]", {"a"}, {" ", ",", "\xe3\x80\x80", "\x1f"}},
    {"[^\\w\\s]", {"-"}, {"a", " ", "\xc3\xa9"}},
    {"\\bfoo\\b", {"foo"}, {"", "afoo"}},
    {"(?:a|\\d+)\\b[ -]\\b(?:b|_)", {"a b", "12-_"}, {"ab", "a  b"}},
    {"(^$|^[ab]+$|c)", {"", "ab", "c"}, {"bc"}},
    {"((^a|b$))", {"a", "b"}, {"ab"}},
    {"((((((((^a))))))))", {"a"}, {"b"}},
    {"\\p{L}+", {"a", "\xc3\xa9\xd0\xb6", "\xe6\x97\xa5"}, {"1", "-", "\xd9\xa1", "\xcd\xb8"}},
    {"\\p{Lu}\\p{Lowercase_Letter}", {"Ab", "\xc3\x89\xc3\xa9"}, {"ab", "AB"}},
    {"\\P{L}+", {"1-", "\xd9\xa1"}, {"a", "\xd0\xb6", "\xcd\xb8"}},
    {"[\\p{N}_]+", {"1_", "\xd9\xa1"}, {"a"}},
    {"[^\\p{L}\\d]", {"-"}, {"a", "1", "\xcd\xb8"}},
    {"(?i)Yes[a-c]",
     {"yesa", "YESC", "yEsB"},
     {"yesd",
      "ye\xc5\xbf"
      "a"}},
    {"(?i:a)b", {"ab", "Ab"}, {"aB", "AB"}},
    {"(?i)a(?-i:b)c", {"abc", "AbC"}, {"aBc"}},
    {"^(?i)a$|b", {"a", "A", "B"}, {"c"}},
    {"(?i)(?:^a$|^B$)", {"A", "b"}, {"ab"}},
    {"(?i)\xc3\xa9\xcf\x83\xd0\xb6",
     {"\xc3\xa9\xcf\x83\xd0\xb6", "\xc3\x89\xce\xa3\xd0\x96"},
     {"e"}},
    {"(?i)[\xce\xb1-\xcf\x89]",
     {"\xce\xa9", "\xcf\x89"},
     {"\xcf\x91"
      "a"}},
    {"(?i)k", {"k", "K"}, {"\xe2\x84\xaa"}}, /* not the sign of Kelvin */
    {"(?i)\xc3\x9f", {"\xc3\x9f"}, {"\xe1\xba\x9e", "ss"}},
    {"(?i)[^k]", {"a", "1"}, {"k", "K", "\xe2\x84\xaa"}}, /* nor is it something else */
    {"(?i)[^\xcf\x83]", {"a"}, {"\xcf\x83", "\xcf\x82", "\xce\xa3"}},
    {"(?i)\\d\\x41", {"1a", "1A"}, {"a"}},
};

static void test_language(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = must_make(REGEX, cases[i].regex);
        for (int k = 0; k < 8 && cases[i].yes[k]; k++)
            if (!accepts(g, cases[i].yes[k]))
                fail_msg("%s: should accept %s", cases[i].regex, cases[i].yes[k]);
        for (int k = 0; k < 8 && cases[i].no[k]; k++)
            if (accepts(g, cases[i].no[k]))
                fail_msg("%s: should not accept %s", cases[i].regex, cases[i].no[k]);
        grammar_release(g);
    }
}

static const struct {
    const char *regex;
    int offset;
} wrong[] = {{"a(?=b)", 1},
             {"a(?!b)", 1},
             {"(?<=a)b", 0},
             {"(a)\\1", 3},
             {"a\\bc", 1},
             {"a(?i)b", 1},
             {"(?s)a", 0},
             {"(?im)a", 0},
             {"(?ia", 0},
             {"(?i", 0},
             {"a(b", 1},
             {"a)b", 1},
             {"*a", 0},
             {"a**", 2},
             {"[a", 0},
             {"[]a]", 1},
             {"[b-a]", 1},
             {"a{2,1}", 1},
             {"a{,3}", 1},
             {"a{x}", 1},
             {"\\p{Greek}", 0},
             {"a^b", 1},
             {"a$b", 1},
             {"x(^a)", 2},
             {"\\", 0},
             {"\\u12", 0},
             {"\\q", 0},
             {"a{9999999}", 1},
             {"a\xff", 1},
             {"(?>a)", 0},
             {"\\p{L", 0},
             {"\\pL", 0},
             {"[\\p{Alpha}]", 1},
             {"a*\\bb", 2},
             {"x(\\bb)", 2},
             {" \\b!", 1},
             {"\\ba\\B", 3},
             {"\\b", 0},
             {"a\\b\xc3\xa9", 1},
             {"a++", 2},
             {"(((((((((^a)))))))))", 9}};

static void test_errors_say_where(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct err_info e = {0};
        char says[32];
        snprintf(says, sizeof says, "'field': offset %d: ", wrong[i].offset);
        struct grammar *g = make(REGEX, wrong[i].regex, &e);
        if (g || !strstr(e.text, says) || e.code != ERR_INVALID)
            fail_msg("%s: says \"%s\", not \"%s\"", wrong[i].regex, e.text, says);
    }
}

/* Categories are hundreds of ranges each, and expressions may be long. */
static void test_many_categories(void **state)
{
    (void)state;
    static char regex[200000];
    char *at = regex;
    struct err_info e = {0};
    *at++ = '[';
    for (int i = 0; i < 30000; i++)
        at += sprintf(at, "\\p{L}");
    strcpy(at, "]");
    assert_null(make(REGEX, regex, &e));
    assert_non_null(strstr(e.text, "offset 321: there are too many categories"));
}

/* Where case does not count, classes and long ranges bring as many. */
static void test_many_cases(void **state)
{
    (void)state;
    static const char *const parts[] = {"[^\\w]", "[\xc2\x80-\xef\xbf\xbf]"};
    static char regex[200000];
    for (size_t i = 0; i < 2; i++) {
        struct err_info e = {0};
        char *at = regex + sprintf(regex, "(?i)");
        for (int k = 0; k < 15000; k++)
            at += sprintf(at, "%s", parts[i]);
        assert_null(make(REGEX, regex, &e));
        assert_non_null(strstr(e.text, "there are too many categories"));
    }
}

/* So may their number in a schema, each of them of few nodes; and a class may say the same often.
 */
static void test_many_expressions(void **state)
{
    (void)state;
    enum { CATEGORIES = 60, MEMBERS = 20, CLASSES = 300000 };
    static char schema[400000];
    char *at = schema;
    struct err_info e = {0};
    at += sprintf(at, "{\"properties\":{");
    for (int i = 0; i < MEMBERS; i++) {
        at += sprintf(at, "%s\"a%d\":{\"type\":\"string\",\"pattern\":\"[^", i ? "," : "", i);
        for (int k = 0; k < CATEGORIES / 2; k++)
            at += sprintf(at, "\\\\p{L}\\\\P{L}");
        at += sprintf(at, "]a|b\"}");
    }
    strcpy(at, "}}");
    assert_null(make(SCHEMA, schema, &e));
    assert_non_null(strstr(e.text, "all expressions together have too many categories"));
    static char regex[2 * CLASSES + 8];
    at = regex;
    *at++ = '[';
    for (int i = 0; i < CLASSES; i++, at += 2)
        memcpy(at, "\\S", 2);
    strcpy(at, "]");
    struct grammar *g = make(REGEX, regex, &e);
    assert_true(accepts(g, "a") && !accepts(g, " "));
    grammar_release(g);
}

/* An expression of a and b with repetitions in repetitions. */
static size_t random_counts(uint64_t *seed, int depth, char *out)
{
    static const char *const times[] = {
        "", "", "?", "*", "+", "{2}", "{3}", "{0,2}", "{1,3}", "{2,4}", "{2,}", "{3,}", "{0,7}"};
    size_t n = 0;
    for (uint64_t i = 0, parts = 1 + next_random(seed) % 3; i < parts; i++) {
        if (depth > 0 && next_random(seed) % 2) {
            out[n++] = '(';
            n += random_counts(seed, depth - 1, out + n);
            if (next_random(seed) % 3 == 0) {
                out[n++] = '|';
                n += random_counts(seed, depth - 1, out + n);
            }
            out[n++] = ')';
        } else {
            static const char *const atoms[] = {"a", "b", "[ab]"};
            n += (size_t)sprintf(out + n, "%s", atoms[next_random(seed) % 3]);
        }
        n += (size_t)sprintf(
            out + n, "%s", times[next_random(seed) % (sizeof times / sizeof *times)]);
    }
    return n;
}

/* Parses that differ in a count alone are told apart as far as the language needs it: each text of
 * up to 9 letters is taken where the C library takes it. */
static void test_counts_against_the_c_library(void **state)
{
    uint64_t seed = 20261;
    (void)state;
    for (int i = 0; i < 300; i++) {
        char pattern[2000], whole[2010], text[10];
        regex_t other;
        pattern[random_counts(&seed, 2, pattern)] = '\0';
        (void)snprintf(whole, sizeof whole, "^(%s)$", pattern);
        assert_int_equal(regcomp(&other, whole, REG_EXTENDED | REG_NOSUB), 0);
        struct grammar *g = must_make(REGEX, pattern);
        for (int n = 0; n < 10; n++) {
            for (int bits = 0; bits < 1 << n; bits++) {
                for (int k = 0; k < n; k++)
                    text[k] = bits >> k & 1 ? 'b' : 'a';
                text[n] = '\0';
                if (accepts(g, text) != (regexec(&other, text, 0, NULL, 0) == 0))
                    fail_msg("%s: %s", pattern, text);
            }
        }
        grammar_release(g);
        regfree(&other);
    }
}

/* However a text may be cut into words, the counts of its words are one parse. */
static void test_counts_are_one_parse(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "(\\w+ ?){1,500}", "[a-z ]{0,900}[a-z ]{0,900}", "([a-z] ?){300,}", "((a ?)*b?){2,400}"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct grammar *g = must_make(REGEX, patterns[i]);
        struct grammar_state *s = grammar_state_create(g);
        for (int k = 0; k < 250; k++) {
            assert_int_equal(grammar_accept(s, 'a', w.scratch), GRAMMAR_GOES_ON);
            assert_in_range(s->n_parses, 1, 8);
        }
        grammar_state_destroy(s);
        grammar_release(g);
    }
}

/* Many options, each with counts of its own: none differs from another in a count alone, so none is
 * given up. */
static void test_counts_of_many_options(void **state)
{
    enum { OPTIONS = 300 };
    static char pattern[OPTIONS * 40], text[81 * 3 + 1];
    size_t n = 0;
    (void)state;
    for (int i = 0; i < OPTIONS; i++)
        n += (size_t)sprintf(pattern + n,
                             "%s((((a%c%c){3,}){3,}){3,}){3,}",
                             i > 0 ? "|" : "",
                             'a' + i / 26,
                             'a' + i % 26);
    struct grammar *g = must_make(REGEX, pattern);
    for (int i = 0; i < OPTIONS; i += 13) {
        for (int k = 0; k < 81; k++)
            (void)sprintf(text + k * 3, "a%c%c", 'a' + i / 26, 'a' + i % 26);
        assert_true(accepts(g, text));
        text[80 * 3] = '\0';
        assert_false(accepts(g, text));
    }
    grammar_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_of_many_options),
        cmocka_unit_test(test_counts_against_the_c_library),
        cmocka_unit_test(test_counts_are_one_parse),
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_errors_say_where),
        cmocka_unit_test(test_many_categories),
        cmocka_unit_test(test_many_cases),
        cmocka_unit_test(test_many_expressions),
    };
    return cmocka_run_group_tests(tests, world_create, world_destroy);
}
