/* Words of each pre-tokenizer, and hostile texts in linear time. */
#include "tokenizer/pretokenize.h"

#include "base/buf.h"
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void assert_words(const char *pre, const char *text, const char *want)
{
    struct pretokenizer *p = NULL;
    struct buf got = {0};
    assert_int_equal(pretokenizer_create(pre, strlen(pre), &p, NULL), OK);
    struct pretokenize_scratch *s = pretokenize_scratch_create(p);
    assert_non_null(s);
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        size_t end = pretokenize_next(p, s, text, n, at);
        assert_true(end > at && end <= n);
        buf_str(&got, at ? "|" : "");
        buf_add(&got, text + at, end - at);
        at = end;
    }
    assert_string_equal(buf_cstr(&got), want);
    buf_deinit(&got);
    pretokenize_scratch_destroy(s);
    pretokenizer_destroy(p);
}

static void test_gpt2(void **state)
{
    (void)state;
    assert_words(
        "gpt-2", "Hello world, it's 12345 o'clock", "Hello| world|,| it|'s| 12345| o|'|clock");
    assert_words("gpt-2", "a  b \n\n c", "a| | b| \n\n| c");
    assert_words("gpt-2", "IT'S", "IT|'|S");
    assert_words("gpt-2", "a   ", "a|   ");
    assert_words("default", "x1 \xe2\x82\xac 2", "x|1| \xe2\x82\xac| 2");
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

/* U+180E is no white space since Unicode 6.3, though PCRE2's \s says so; U+0085 and U+3000 are. */
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

static void test_unknown_name(void **state)
{
    (void)state;
    assert_words("no-such-thing", "Hello 12345", "Hello| 12345");
}

/* A megabyte of anything is cut in well under a second; quadratic work would take minutes. */
static void test_hostile(void **state)
{
    (void)state;
    static const char *const units[] = {" ",
                                        "\n",
                                        "a",
                                        "7",
                                        "'",
                                        "\xcc\x81",
                                        " \n",
                                        "\t ",
                                        "!",
                                        "'l",
                                        "\r",
                                        "\r\n",
                                        " '",
                                        "\xe3\x80\x80"};
    static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "starcoder"};
    static const char *const ends[] = {"", "x", "\n", "1"};
    const size_t n = 1 << 20;
    char *text = malloc(n + 8);
    for (size_t k = 0; k < 4 * 4 * (sizeof units / sizeof units[0]); k++) {
        const char *unit = units[k / 16], *tail = ends[k % 4];
        struct pretokenizer *p = NULL;
        size_t len = 0, n_unit = strlen(unit), n_words = 0;
        for (; len + n_unit <= n; len += n_unit)
            memcpy(text + len, unit, n_unit);
        memcpy(text + len, tail, strlen(tail));
        len += strlen(tail);
        assert_int_equal(pretokenizer_create(pres[k / 4 % 4], strlen(pres[k / 4 % 4]), &p, NULL),
                         OK);
        struct pretokenize_scratch *s = pretokenize_scratch_create(p);
        uint64_t begin_us = clock_us();
        for (size_t at = 0; at < len; n_words++) {
            size_t end = pretokenize_next(p, s, text, len, at);
            if (end <= at)
                fail_msg("unit %zu: stuck at %zu", k / 16, at);
            at = end;
        }
        if (clock_us() - begin_us > 5 * 1000 * 1000)
            fail_msg("unit %zu of %s took too long", k / 16, pres[k / 4 % 4]);
        pretokenize_scratch_destroy(s);
        pretokenizer_destroy(p);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama_bpe),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_starcoder),
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_unknown_name),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
