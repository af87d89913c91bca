/* Budgets of reasoning: when it is open, and what is put when it has lasted long enough. */
#include "engine/thought.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static struct thought begin(uint32_t max, bool open)
{
    struct thought t;
    struct request_thought limit = {.on = true,
                                    .open = open,
                                    .max_tokens = max,
                                    .begin = "<think>",
                                    .end = "</think>",
                                    .close = {1, 2},
                                    .n_close = 2};
    thought_begin(&t, &limit);
    return t;
}

static void say(struct thought *t, token_id id, const char *text)
{
    thought_accept(t, id, text, strlen(text));
}

static void test_limit(void **state)
{
    (void)state;
    struct thought t = begin(3, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(thought_next(&t), TOKEN_NONE);
        say(&t, 9, "hm ");
    }
    assert_int_equal(thought_next(&t), 1);
    say(&t, 1, "</thi");
    assert_int_equal(thought_next(&t), 2);
    say(&t, 2, "nk>");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(thought_next(&t), TOKEN_NONE);
        say(&t, 9, "hm ");
    }
    say(&t, 9, "<think>"); /* once more, with all of the budget */
    say(&t, 9, "hm ");
    say(&t, 9, "hm ");
    assert_int_equal(thought_next(&t), TOKEN_NONE);
    say(&t, 9, "hm ");
    assert_int_equal(thought_next(&t), 1);
    struct thought none = begin(0, true), closed = begin(0, false);
    assert_int_equal(thought_next(&none), 1);
    assert_int_equal(thought_next(&closed), TOKEN_NONE);
    say(&closed, 9, "<think>");
    assert_int_equal(thought_next(&closed), 1);
}

/* What a grammar allows instead does not count as the mark. */
static void test_another_token_came(void **state)
{
    (void)state;
    struct thought t = begin(1, true);
    say(&t, 9, "hm");
    say(&t, 8, "\"");
    assert_int_equal(thought_next(&t), 1);
    say(&t, 1, "</thi");
    say(&t, 2, "nk>");
    assert_int_equal(thought_next(&t), TOKEN_NONE);
}

/* Where only the beginning of an output may reason, a mark elsewhere is being talked about. */
static void test_first(void **state)
{
    (void)state;
    static const struct {
        const char *pieces[4];
        bool open;
    } cases[] = {{{"<think>"}, true},
                 {{"\n ", "<th", "ink>"}, true},
                 {{" <think>hm"}, true},
                 {{"so <think>"}, false},
                 {{"<thin", "g><think>"}, false},
                 {{"<think>", "</think>", "<think>"}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct thought t = begin(0, false);
        t.limit.first = true;
        for (size_t k = 0; k < 4 && cases[i].pieces[k]; k++)
            say(&t, 9, cases[i].pieces[k]);
        assert_int_equal(t.open, cases[i].open);
    }
}

/* A call may begin in reasoning and ends it: no mark is put into the call. */
static void test_call_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct thought t = begin(3, true);
        strcpy(t.limit.call[i], "<tool_call>");
        say(&t, 9, "hm <tool_");
        say(&t, 9, "call>");
        for (int k = 0; k < 5; k++) {
            assert_int_equal(thought_next(&t), TOKEN_NONE);
            say(&t, 9, "{");
        }
    }
}

/* However the model cuts its marks into tokens, they are seen where they end, and once. */
static void test_marks_in_any_pieces(void **state)
{
    (void)state;
    static const char text[] = "a<<think>b</thin</think>c</think><thi<think>d</think>";
    srand(7);
    for (int round = 0; round < 2000; round++) {
        struct thought t = begin(1000, false);
        size_t at = 0;
        while (at < sizeof text - 1) {
            size_t n = 1 + (size_t)rand() % 12;
            n = n < sizeof text - 1 - at ? n : sizeof text - 1 - at;
            thought_accept(&t, 9, text + at, n);
            at += n;
            /* between marks in one piece the last one decides; so look only where a mark ended */
            bool want = (at >= 9 && at < 24) || (at >= 44 && at < sizeof text - 1);
            bool two = n > 7;
            if (!two)
                assert_int_equal(t.open, want);
        }
    }
    struct thought t = begin(1000, false);
    char *longest = malloc(5000);
    memset(longest, 'x', 5000);
    memcpy(longest + 5000 - 7, "<think>", 7);
    thought_accept(&t, 9, longest, 5000);
    assert_true(t.open);
    thought_accept(&t, 9, longest, 4990);
    assert_true(t.open);
    say(&t, 9, "");
    say(&t, 9, "</think>");
    assert_false(t.open);
    free(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_another_token_came),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_call_ends),
        cmocka_unit_test(test_marks_in_any_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
