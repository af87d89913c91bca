/* Nobody fills the queue so that others are turned away. */
#include "engine/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define ROOM 90

static uint32_t take_all(struct quota *q, uint32_t tenant)
{
    uint32_t n = 0;
    while (quota_take(q, tenant, 1, NULL) == OK)
        n++;
    return n;
}

static void test_without_names_the_room_is_the_bound(void **state)
{
    (void)state;
    struct quota q;
    struct err_info e;
    assert_int_equal(quota_init(&q, ROOM, NULL), OK);
    assert_int_equal(take_all(&q, 0), ROOM);
    assert_int_equal(quota_take(&q, 0, 1, &e), ERR_QUEUE_FULL);
    assert_string_equal(e.text, "the queue is full: 90 requests are running or waiting");
    quota_give(&q, 0);
    assert_int_equal(quota_take(&q, 0, 2, NULL), ERR_QUEUE_FULL);
    assert_int_equal(quota_take(&q, 0, 1, NULL), OK);
    quota_deinit(&q);
}

static void test_a_greedy_one_leaves_room(void **state)
{
    (void)state;
    struct quota q;
    struct err_info e;
    assert_int_equal(quota_init(&q, ROOM, NULL), OK);
    assert_int_equal(take_all(&q, 5), 72); /* four times the 18 it leaves */
    assert_int_equal(take_all(&q, 6), 14); /* four times the 4 */
    assert_int_equal(quota_take(&q, 7, 1, NULL), OK);
    quota_deinit(&q);
    assert_int_equal(quota_init(&q, ROOM, NULL), OK);
    assert_int_equal(quota_take(&q, 5, ROOM, NULL),
                     OK); /* all at once, while nobody else is here */
    assert_int_equal(quota_take(&q, 6, 1, &e), ERR_QUEUE_FULL);
    for (uint32_t i = 0; i < ROOM; i++)
        quota_give(&q, 5);
    assert_int_equal(q.n_all + q.n_uses, 0);
    quota_deinit(&q);
}

/* However many take all they can, by turns, the next finds a place. */
static void test_there_is_a_place_for_a_new_one(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 20; n++) {
        struct quota q;
        uint32_t held[20] = {0}, n_more = 1;
        assert_int_equal(quota_init(&q, ROOM, NULL), OK);
        while (n_more > 0) {
            n_more = 0;
            for (uint32_t i = 0; i < n; i++) {
                bool got = quota_take(&q, i + 1, 1, NULL) == OK;
                held[i] += got;
                n_more += got;
            }
        }
        for (uint32_t i = 1; i < n; i++) /* nobody got much more than another */
            assert_true(held[i] <= held[0] && held[i] + 1 >= held[0]);
        assert_true(q.n_all >= ROOM * 4 * n / (4 * n + 1) - n);
        assert_int_equal(quota_take(&q, 99, 1, NULL), OK);
        quota_deinit(&q);
    }
}

static void test_sums_stay_right(void **state)
{
    (void)state;
    struct quota q;
    uint32_t held[20] = {0}, all = 0;
    unsigned seed = 1;
    assert_int_equal(quota_init(&q, ROOM, NULL), OK);
    for (int k = 0; k < 20000; k++) {
        uint32_t i = (uint32_t)rand_r(&seed) % 20, n = 1 + (uint32_t)rand_r(&seed) % 4;
        if (rand_r(&seed) % 2 == 0 && held[i] > 0) {
            quota_give(&q, i);
            held[i]--;
            all--;
        } else if (quota_take(&q, i, n, NULL) == OK) {
            held[i] += n;
            all += n;
        }
        uint32_t n_holders = 0;
        for (i = 0; i < 20; i++)
            n_holders += held[i] > 0;
        assert_int_equal(q.n_all, all);
        assert_int_equal(q.n_uses, n_holders);
        assert_true(all <= ROOM);
    }
    quota_deinit(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_names_the_room_is_the_bound),
        cmocka_unit_test(test_a_greedy_one_leaves_room),
        cmocka_unit_test(test_there_is_a_place_for_a_new_one),
        cmocka_unit_test(test_sums_stay_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
