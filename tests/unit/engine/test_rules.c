/* Tokens that a request rules out: masks by hand, and in company with those of others. */
#include "engine/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define N_VOCAB 130 /* two words and two bits */

static struct token_rules *create(void)
{
    struct token_rules *t;
    struct err_info e = {0};
    assert_int_equal(token_rules_create(N_VOCAB, &t, &e), OK);
    assert_int_equal(token_rules_n_words(t), 3);
    return t;
}

static void test_all_may_come(void **state)
{
    (void)state;
    const struct sample_allowed all = {0};
    uint64_t may[3];
    struct token_rules *t = create();
    assert_true(token_rules_mask(t, NULL, 0, &all, may));
    assert_true(may[0] == UINT64_MAX && may[1] == UINT64_MAX && may[2] == 3);
    token_rules_release(t);
}

static void test_only_some(void **state)
{
    (void)state;
    const struct sample_allowed all = {0};
    static const token_id ids[] = {0, 63, 64, 129, 63, -1, 130, 1 << 30};
    uint64_t may[3];
    struct token_rules *t = create();
    token_rules_allow_only(t, ids, sizeof ids / sizeof ids[0]);
    struct token_rules *other = token_rules_acquire(t);
    token_rules_release(t);
    assert_true(token_rules_mask(other, NULL, 0, &all, may));
    assert_true(may[0] == (UINT64_C(1) << 63 | 1) && may[1] == 1 && may[2] == 2);
    assert_true(token_rules_may(may, 129));
    assert_false(token_rules_may(may, 128));
    token_rules_release(other);
}

static void test_with_other_masks(void **state)
{
    (void)state;
    static const token_id ids[] = {1, 2, 70};
    const uint64_t bits[3] = {6, 0, 3}, but[3] = {2, 0, 0}, both[3] = {6, 0, 0};
    uint64_t may[3];
    struct token_rules *t = create();
    token_rules_allow_only(t, ids, 3);
    struct sample_allowed also = {.bits = bits};
    assert_true(token_rules_mask(t, NULL, 0, &also, may));
    assert_true(may[0] == 6 && may[1] == 0 && may[2] == 0);
    also.but = but;
    assert_true(token_rules_mask(t, NULL, 0, &also, may));
    assert_true(may[0] == 4 && may[1] == 0 && may[2] == 0);
    also.but = both;
    assert_false(token_rules_mask(t, NULL, 0, &also, may));
    assert_true((may[0] | may[1] | may[2]) == 0);
    token_rules_release(t);
    token_rules_release(token_rules_acquire(NULL));
}

static bool may_follow(const struct token_rules *t, const token_id *said, size_t n, token_id id)
{
    const struct sample_allowed all = {0};
    uint64_t may[3];
    (void)!token_rules_mask(t, said, n, &all, may);
    return token_rules_may(may, id);
}

static void test_words(void **state)
{
    (void)state;
    static const token_id one[] = {5}, two[] = {7, 8}, three[] = {7, 7, 129}, far[] = {1, 1 << 30};
    static const token_id said[] = {8, 7, 7};
    struct token_rules *t = create();
    struct err_info e = {0};
    assert_int_equal(token_rules_ban(t, one, 1, &e), OK);
    assert_int_equal(token_rules_ban(t, two, 2, &e), OK);
    assert_int_equal(token_rules_ban(t, three, 3, &e), OK);
    assert_int_equal(token_rules_ban(t, far, 1, &e), OK); /* its first alone: never comes */
    assert_int_equal(token_rules_ban(t, far, 2, &e), OK);
    assert_false(may_follow(t, NULL, 0, 5));
    assert_false(may_follow(t, NULL, 0, 1));
    assert_true(may_follow(t, NULL, 0, 8)); /* nothing was said before it */
    assert_true(may_follow(t, NULL, 0, 7));
    assert_true(may_follow(t, said, 1, 8));
    assert_false(may_follow(t, said, 2, 8));
    assert_true(may_follow(t, said, 2, 129)); /* one 7 */
    assert_false(may_follow(t, said, 3, 129));
    assert_false(may_follow(t, said, 3, 8));
    assert_true(may_follow(t, said, 3, 7));
    assert_false(may_follow(t, said, 3, 5));
    assert_true(token_rules_any(t));
    token_rules_allow_only(t, one, 1);
    assert_true(token_rules_any(t));
    assert_int_equal(token_rules_ban(t, one, 1, &e), OK);
    assert_false(token_rules_any(t));
    token_rules_release(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_may_come),
        cmocka_unit_test(test_only_some),
        cmocka_unit_test(test_with_other_masks),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
