/* Drafts say what stood behind the last tokens before, and nothing else. */
#include "engine/draft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 3000, ROOM = 16, NOBODYS = -7 };

static uint32_t make(struct draft *d, int32_t *tokens, uint32_t n, uint32_t most)
{
    for (uint32_t i = 0; i < ROOM; i++)
        tokens[n + i] = NOBODYS;
    const uint32_t n_drafted = draft_make(d, tokens, n, most);
    assert_true(n_drafted <= most);
    for (uint32_t i = n_drafted; i < ROOM; i++)
        assert_int_equal(tokens[n + i], NOBODYS);
    return n_drafted;
}

static void test_what_followed(void **state)
{
    (void)state;
    int32_t tokens[32] = {1, 2, 3, 4, 5, 6, 7, 1, 2};
    struct draft d;
    assert_true(draft_create(&d, 32, DRAFT_GRAM));
    assert_int_equal(make(&d, tokens, 9, 7), 0); /* two tokens are not enough */
    tokens[9] = 3;
    assert_int_equal(make(&d, tokens, 10, 7), 3);
    assert_int_equal(tokens[10], 4);
    assert_int_equal(tokens[12], 6);
    draft_learn(&d, 3, 3);
    assert_int_equal(make(&d, tokens, 10, 7), 6); /* longer, the more are right */
    assert_int_equal(make(&d, tokens, 10, 2), 2);
    assert_int_equal(make(&d, tokens, 10, 0), 0);
    draft_destroy(&d);
}

/* What follows reaches the end, and goes on with itself. */
static void test_repetition(void **state)
{
    (void)state;
    int32_t tokens[64];
    struct draft d;
    for (int32_t i = 0; i < 21; i++)
        tokens[i] = 100 + i % 5;
    assert_true(draft_create(&d, 64, DRAFT_GRAM));
    assert_int_equal(make(&d, tokens, 21, 7), 3);
    draft_learn(&d, 3, 3);
    draft_learn(&d, 6, 6);
    assert_int_equal(make(&d, tokens, 21, 12), 8);
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(tokens[21 + i], 100 + (21 + i) % 5);
    draft_destroy(&d);
}

/* The newest place counts, of those that are as long. */
static void test_newest(void **state)
{
    (void)state;
    int32_t tokens[48] = {1, 2, 3, 4, 0, 1, 2, 3, 5, 0, 1, 2, 3};
    struct draft d;
    assert_true(draft_create(&d, 32, DRAFT_GRAM));
    assert_int_equal(make(&d, tokens, 13, 1), 1);
    assert_int_equal(tokens[13], 5);
    draft_destroy(&d);
}

/* One in vain costs a step without, the next three, and so on to 64; a right token ends that. */
static void test_pauses(void **state)
{
    (void)state;
    int32_t tokens[32] = {1, 2, 3, 4, 5, 1, 2, 3};
    struct draft d;
    assert_true(draft_create(&d, 32, DRAFT_GRAM));
    uint32_t last = 0;
    for (int i = 0; i < 10; i++) {
        uint32_t n_without = 0;
        while (n_without <= 64 && make(&d, tokens, 8, 4) == 0)
            n_without++;
        assert_true(n_without >= last && n_without <= 64);
        assert_int_equal(n_without > 0, i > 0);
        last = n_without;
        draft_learn(&d, 2, 0);
    }
    assert_int_equal(last, 64);
    for (int i = 0; i < 64; i++)
        assert_int_equal(make(&d, tokens, 8, 4), 0);
    assert_int_equal(make(&d, tokens, 8, 4), 3);
    draft_learn(&d, 3, 1);
    assert_int_equal(make(&d, tokens, 8, 4), 2);
    draft_destroy(&d);
}

/* Over any text, read token by token: a draft begins with what followed the last tokens somewhere.
 */
static void test_any_text(void **state)
{
    (void)state;
    static int32_t tokens[MOST_TOKENS + ROOM];
    srand(20261);
    for (int round = 0; round < 20; round++) {
        const int n_words = 2 + rand() % 6;
        uint32_t n_drafts = 0;
        struct draft d;
        assert_true(draft_create(&d, MOST_TOKENS, DRAFT_GRAM));
        for (uint32_t n = 0; n < MOST_TOKENS; tokens[n] = rand() % n_words, n++) {
            const uint32_t n_drafted = make(&d, tokens, n, 7);
            bool found = n_drafted == 0;
            for (uint32_t at = DRAFT_GRAM; at < n && !found; at++)
                found = memcmp(tokens + at - DRAFT_GRAM,
                               tokens + n - DRAFT_GRAM,
                               (DRAFT_GRAM + 1) * sizeof *tokens) == 0;
            assert_true(found);
            n_drafts += n_drafted > 0;
            if (n_drafted > 0)
                draft_learn(&d, n_drafted, (uint32_t)rand() % (n_drafted + 1));
        }
        assert_true(n_drafts > 0);
        draft_destroy(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_followed),
        cmocka_unit_test(test_repetition),
        cmocka_unit_test(test_newest),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_any_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
