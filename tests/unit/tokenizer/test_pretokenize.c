/* Words of each pre-tokenizer, and hostile texts in linear time. */
#include "tokenizer/pretokenize.h"

#include "base/buf.h"
#include "unit/tokenizer/toy_vocab.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void assert_words(const char *pre, const char *text, const char *want)
{
    const struct pretokenize_rule *rule = pretokenize_find(pre, strlen(pre));
    struct pretokenize_scratch s;
    struct buf got = {0};
    assert_non_null(rule);
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t end = pretokenize_next(rule, &s, text, n, at);
        assert_true(end > at && end <= n);
        buf_str(&got, at ? "|" : "");
        buf_add(&got, text + at, end - at);
        at = end;
    }
    if (strcmp(buf_cstr(&got), want) != 0)
        fail_msg("%s: '%s' instead of '%s'", pre, buf_cstr(&got), want);
    buf_deinit(&got);
}

static void test_gpt2(void **state)
{
    (void)state;
    assert_words(
        "gpt-2", "Hello world, it's 12345 o'clock", "Hello| world|,| it|'s| 12345| o|'|clock");
    assert_words("gpt-2", "a  b \n\n c", "a| | b| \n\n| c");
    assert_words("gpt-2", "IT'S", "IT|'|S");
    assert_words("gpt-2", "a   ", "a|   ");
    assert_words("mpt", "x1 \xe2\x82\xac 2", "x|1| \xe2\x82\xac| 2");
}

static void test_llama_bpe(void **state)
{
    (void)state;
    assert_words("llama-bpe", "12345 IT'S a\n\nb", "123|45| IT|'S| a|\n\n|b");
    assert_words("llama-bpe", "(foo) ...\n x", "(foo|)| ...\n| x");
    assert_words("llama-bpe", "a   b\tc", "a|  | b|\tc");
}

static void test_qwen2(void **state)
{
    (void)state;
    assert_words("qwen2", "12 cats", "1|2| cats");
    assert_words("qwen2", "We'Ve\r\n \n x", "We|'Ve|\r\n \n| x");
    /* a combining mark is neither letter, digit nor space */
    assert_words("qwen2",
                 "e\xcc\x81"
                 "a",
                 "e|\xcc\x81"
                 "a");
}

static void test_starcoder(void **state)
{
    (void)state;
    assert_words("starcoder", "ab 12  3  c", "ab| |1|2|  |3| | c");
}

/* U+180E is no white space since Unicode 6.3, though some say so; U+0085 and U+3000 are. */
static void test_white_space(void **state)
{
    (void)state;
    assert_words("gpt-2",
                 "a\xe1\xa0\x8e"
                 "b",
                 "a|\xe1\xa0\x8e|b");
    assert_words("gpt-2", "a\xe1\xa0\x8e!", "a|\xe1\xa0\x8e!");
    assert_words("gpt-2", "a\xc2\x85!", "a|\xc2\x85|!");
    assert_words("gpt-2", "a\xe3\x80\x80\xe3\x80\x80!", "a|\xe3\x80\x80|\xe3\x80\x80|!");
}

static void test_names(void **state)
{
    (void)state;
    static const char *const none[] = {"", " ", "gpt", "gpt-2 ", "no-such-thing", "gpt-2 phi-2"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_null(pretokenize_find(none[i], strlen(none[i])));
    assert_ptr_equal(pretokenize_default(), pretokenize_find("default", 7));
    assert_words("default", "Hello, 12345", "Hello|,| |123|45");
    assert_words("default", "a`b $5", "a|`|b| |$|5");
    assert_words("falcon", "a`b 1234", "a|`|b| |123|4");
    assert_words("gpt-neox", "a`b 1234", "a|`|b| 1234");
}

/* One or two lines for each family of patterns: what tells it from the others. */
static void test_families(void **state)
{
    (void)state;
    static const char *const lines[][3] = {
        {"refact", "ab 12", "ab| |1|2"},
        {"tekken", "HELLOworld fooBar 12/\n", "HELLOworld| foo|Bar| |1|2|/\n"},
        {"tekken", "ABC", "ABC"},
        {"gpt-4o", "Don'T xY'll 1234", "Don'T| x|Y'll| |123|4"},
        {"granite-embed-multi-97m", "e\xcc\x81'S", "e\xcc\x81'S"},
        {"youtu", "aB's 12\xe3\x80\x81\xed\x95\x9c", "a|B's| |1|2|\xe3\x80\x81|\xed\x95\x9c"},
        {"kimi-k2", "ab\xe4\xb8\xad\xe6\x96\x87's 1234", "ab|\xe4\xb8\xad\xe6\x96\x87|'s| |123|4"},
        {"qwen35", "e\xcc\x81\xcc\x81 x", "e\xcc\x81\xcc\x81| x"},
        {"deepseek-llm", "Hi, you 12  ", "Hi|,| you| |12|  "},
        {"deepseek-llm", "a  b\xc2\xb5\n", "a| | b|\xc2\xb5|\n"},
        {"deepseek-coder", " a1!! \xe4\xb8\xad", " a|1|!!| |\xe4\xb8\xad"},
        {"deepseek-v3", ".foo 1234\xe4\xb8\xad!\n", ".foo| |123|4|\xe4\xb8\xad|!\n"},
        {"deepseek-v3",
         "\x01\x02"
         "a",
         "\x01|\x02"
         "a"},
        {"spark2_5", "a!\n\nb", "a|!|\n|\n|b"},
        {"afmoe",
         "a12345\xe0\xb9\x80"
         "b",
         "a|12|345|\xe0\xb9\x80|b"},
        {"tiny_aya", "1234567", "1|234|567"},
        {"superbpe", "by the way 12345 x", "by the way |12|345| x"},
        {"chameleon", "<sentinel:7>IMGIMGABZ     x1,,", "<|sentinel|:|7|>|IMGIMGABZ|    | x|1|,|,"},
        {"poro-chat", "Hyv\xc3\xa4 (talo).", "Hyv\xc3\xa4| (|talo|)."},
        {"viking", "a12.", "a|1|2|."},
        {"jais-2", "      x", "    | | x"},
        {"seed-coder", "a!\n1", "a|!|\n|1"},
        {"exaone-moe", "New York 2/x", "New York| |2|/x"},
        {"minicpm5", "12345a", "123|45|a"},
        {"laguna", " \n a", " |\n| a"},
        {"ufakzeka", "Ankara'da", "Ankara|'da"},
        {"qwen2", "Ankara'da", "Ankara|'d|a"},
        {"gemma4", "a b\n\nc", "a b|\n\n|c"},
        {"bloom", "a b, c", "a| b|,| c"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_words(lines[i][0], lines[i][1], lines[i][2]);
}

/* Words are upper case, then lower case, in any script, and hold marks. They are what Python's
 * regex finds by the patterns that the models were published with. */
static void test_marks_and_cases(void **state)
{
    (void)state;
    static const char *const lines[][3] = {
        {"tekken", "नमस्ते दुनिया, कैसे", "नमस्ते| दुनिया|,| कैसे"},
        {"tekken", "приветМир ÉCOLEé", "привет|Мир| ÉCOLEé"},
        {"tekken", "Đ\xcc\xa3iệnǅ ʰA", "Đ\xcc\xa3iện|ǅ| ʰ|A"},
        {"gpt-4o", "ที่ வணக்கம் שָׁלוֹם's", "ที่| வணக்கம்| שָׁלוֹם's"},
        {"gpt-4o", "приветМИР'll 1234", "привет|МИР'll| |123|4"},
        {"granite-embed-multi-97m", "приветМир", "привет|Мир"},
        {"tiny_aya", "helloWorld दी", "hello|World| दी"},
        {"youtu", "helloWorld दी", "hello|World| दी"},
        {"kimi-k2", "fooBar दी'S 人々a〇1", "foo|Bar| दी'S| |人々|a|〇|1"},
        {"kimi-k2", "e\xcc\x81\x41\x62中", "e\xcc\x81|Ab|中"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        assert_words(lines[i][0], lines[i][1], lines[i][2]);
}

static size_t count_words(const struct pretokenize_rule *rule, const char *text, size_t n)
{
    struct pretokenize_scratch s;
    size_t n_words = 0;
    for (size_t at = 0, end; at < n; at = end, n_words++) {
        end = pretokenize_next(rule, &s, text, n, at);
        if (end <= at || end > n)
            fail_msg("%s: stuck at %zu", rule->names, at);
    }
    return n_words;
}

/* A megabyte of anything is cut in a fraction of a second; quadratic work would take minutes. */
static void test_hostile(void **state)
{
    (void)state;
    static const char *const units[] = {" ",
                                        "\n",
                                        "a",
                                        "A",
                                        "7",
                                        "'",
                                        "\xcc\x81",
                                        " \n",
                                        "\t ",
                                        "!",
                                        "'l",
                                        "\r\n",
                                        " '",
                                        "a ",
                                        "\xe3\x80\x80",
                                        "1 ",
                                        "\xe4\xb8\xad",
                                        "<sentinel:1",
                                        "IMGIMG",
                                        "\xd9\xa3",
                                        "\xf0\x9f\x91\x8d\xe2\x80\x8d"};
    static const char *const ends[] = {"x", "\n", "1"};
    const size_t n = 1 << 17;
    char *text = malloc(n + 8);
    for (size_t k = 0; k < sizeof units / sizeof units[0]; k++) {
        size_t len = 0, n_unit = strlen(units[k]);
        for (; len + n_unit <= n; len += n_unit)
            memcpy(text + len, units[k], n_unit);
        memcpy(text + len, ends[k % 3], 1);
        for (size_t i = 0; pretokenize_rule_at(i); i++) {
            const clock_t begin = clock();
            count_words(pretokenize_rule_at(i), text, len + 1);
            if (clock() - begin > 5 * CLOCKS_PER_SEC)
                fail_msg("unit %zu with%stook too long", k, pretokenize_rule_at(i)->names);
        }
    }
    free(text);
}

/* Random text, of what patterns tell apart: words end between characters. */
static void test_random(void **state)
{
    (void)state;
    static const char *const parts[] = {"a",
                                        "B",
                                        "1",
                                        " ",
                                        "\n",
                                        "\r",
                                        "'s",
                                        "'LL",
                                        ".",
                                        "$",
                                        "/",
                                        "\xcc\x81",
                                        "\xe4\xb8\xad",
                                        "\xe3\x81\x8b",
                                        "\xed\x95\x9c",
                                        "\xc3\xa9",
                                        "\xd9\xa3",
                                        "\xe2\x80\xa6",
                                        "\xe3\x80\x80",
                                        "\x01",
                                        "\xf0\x9f\x91\x8d",
                                        "\xe0\xb9\x80",
                                        "\xf4\x8f\xbf\xbf"};
    uint64_t random = print_seed();
    for (int round = 0; round < 2000; round++) {
        char text[512];
        size_t n = 0, n_chars = 0, n_parts = next_random(&random) % 60 + 1;
        for (size_t i = 0; i < n_parts; i++) {
            const char *part = parts[next_random(&random) % (sizeof parts / sizeof parts[0])];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        for (size_t i = 0; i < n; i++)
            n_chars += ((unsigned char)text[i] & 0xc0) != 0x80;
        for (size_t i = 0; pretokenize_rule_at(i); i++) {
            struct pretokenize_scratch s;
            assert_true(count_words(pretokenize_rule_at(i), text, n) <= n_chars);
            for (size_t at = 0; at < n;
                 at = pretokenize_next(pretokenize_rule_at(i), &s, text, n, at))
                assert_true(((unsigned char)text[at] & 0xc0) != 0x80);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama_bpe),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_starcoder),
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_marks_and_cases),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
