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
    assert_true(token_rules_mask(t, &all, may));
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
    assert_true(token_rules_mask(other, &all, may));
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
    assert_true(token_rules_mask(t, &also, may));
    assert_true(may[0] == 6 && may[1] == 0 && may[2] == 0);
    also.but = but;
    assert_true(token_rules_mask(t, &also, may));
    assert_true(may[0] == 4 && may[1] == 0 && may[2] == 0);
    also.but = both;
    assert_false(token_rules_mask(t, &also, may));
    assert_true((may[0] | may[1] | may[2]) == 0);
    token_rules_release(t);
    token_rules_release(token_rules_acquire(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_may_come),
        cmocka_unit_test(test_only_some),
        cmocka_unit_test(test_with_other_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
