/* Token buckets with a clock of our own, and against arithmetic in 128 bits. */
#include "api/bucket.h"

#include "unit/api/cmocka_all.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define SECOND 1000000ull
#define MINUTE (60 * SECOND)

static void test_a_minutes_worth_at_once(void **state)
{
    (void)state;
    struct bucket b = {0};
    bucket_set(&b, 3, 100);
    for (uint64_t left = 3; left-- > 0;) {
        assert_int_equal(bucket_wait_us(&b, 1, 100), 0);
        bucket_take(&b, 1, 100);
        assert_int_equal(bucket_left(&b, 100), left);
    }
    assert_int_equal(bucket_wait_us(&b, 3, 100), MINUTE);
    assert_int_equal(bucket_wait_us(&b, 1, 100), 20 * SECOND);
    assert_int_equal(bucket_wait_us(&b, 1, 100 + 20 * SECOND - 1), 1);
    assert_int_equal(bucket_wait_us(&b, 1, 100 + 20 * SECOND), 0);
    assert_int_equal(bucket_left(&b, 100 + MINUTE), 3);
    assert_int_equal(bucket_left(&b, 100 + 10 * MINUTE), 3); /* never more */
}

static void test_no_limit(void **state)
{
    (void)state;
    struct bucket b = {0};
    assert_int_equal(bucket_wait_us(&b, UINT64_MAX, 0), 0);
    bucket_take(&b, UINT64_MAX, 5);
    bucket_give_back(&b, 7, 5);
    assert_true(bucket_left(&b, 5) == UINT64_MAX);
    assert_int_equal(bucket_wait_us(&b, 1, 5), 0);
}

static void test_debt_is_paid_back(void **state)
{
    (void)state;
    struct bucket b = {0};
    bucket_set(&b, 60, 0);
    bucket_take(&b, 100, 0);
    assert_int_equal(bucket_left(&b, 0), 0);
    assert_int_equal(bucket_wait_us(&b, 1, 0), 41 * SECOND);
    assert_int_equal(bucket_wait_us(&b, 60, 0), 100 * SECOND);
    assert_int_equal(bucket_wait_us(&b, 1, 41 * SECOND), 0);
    bucket_give_back(&b, 100, 0);
    assert_int_equal(bucket_left(&b, 0), 60);
    bucket_give_back(&b, 1000, 0); /* not more than full */
    assert_int_equal(bucket_left(&b, 0), 60);
}

static void test_more_than_ever_fits(void **state)
{
    (void)state;
    struct bucket b = {0};
    bucket_set(&b, 10, 0);
    assert_true(bucket_wait_us(&b, 11, 0) == UINT64_MAX);
    assert_true(bucket_wait_us(&b, UINT64_MAX, 0) == UINT64_MAX);
    assert_int_equal(bucket_wait_us(&b, 10, 0), 0);
}

static void test_another_limit_keeps_what_was_used(void **state)
{
    (void)state;
    struct bucket b = {0};
    bucket_set(&b, 10, 0);
    bucket_take(&b, 4, 0);
    bucket_set(&b, 100, 0);
    assert_int_equal(bucket_left(&b, 0), 96);
    bucket_set(&b, 2, 0);
    assert_int_equal(bucket_left(&b, 0), 0);
    assert_int_equal(bucket_wait_us(&b, 1, 0), 90 * SECOND);
    bucket_set(&b, 0, 0);
    assert_int_equal(bucket_wait_us(&b, 1000, 0), 0);
    bucket_set(&b, 5, 0); /* from no limit: full */
    assert_int_equal(bucket_left(&b, 0), 5);
}

static void test_extremes_do_not_wrap(void **state)
{
    (void)state;
    struct bucket b = {0};
    bucket_set(&b, BUCKET_MAX_PER_MINUTE, 0);
    for (int i = 0; i < 100; i++)
        bucket_take(&b, UINT64_MAX, (uint64_t)i);
    assert_int_equal(bucket_left(&b, 100), 0);
    assert_true(bucket_wait_us(&b, 1, 100) > 0);
    assert_int_equal(bucket_left(&b, UINT64_MAX), BUCKET_MAX_PER_MINUTE);
    bucket_set(&b, 1, UINT64_MAX);
    assert_int_equal(bucket_left(&b, 5), 1); /* a clock that goes back changes nothing */
}

/* However often it is looked at in between, the same comes out. */
static void test_random(void **state)
{
    (void)state;
    const char *given = getenv("WEIR_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 2000; round++) {
        uint64_t limit = 1 + (uint64_t)rand() % 1000000, now = (uint64_t)rand();
        struct bucket b = {0};
        bucket_set(&b, limit, now);
        __int128 level = (__int128)limit * MINUTE;
        for (int i = 0; i < 30; i++) {
            uint64_t later = (uint64_t)rand() % (2 * MINUTE), n = (uint64_t)rand() % (2 * limit);
            now += later;
            level += (__int128)later * limit;
            if (level > (__int128)limit * MINUTE)
                level = (__int128)limit * MINUTE;
            for (int look = rand() % 3; look > 0; look--)
                (void)bucket_left(&b, now);
            assert_int_equal(bucket_left(&b, now), level > 0 ? (uint64_t)(level / MINUTE) : 0);
            const bool has = n <= limit && level >= (__int128)n * MINUTE;
            assert_int_equal(bucket_wait_us(&b, n, now) == 0, has);
            if (n <= limit) {
                uint64_t wait = bucket_wait_us(&b, n, now);
                assert_true(level + (__int128)wait * limit >= (__int128)n * MINUTE);
                assert_true(wait == 0 ||
                            level + (__int128)(wait - 1) * limit < (__int128)n * MINUTE);
            }
            if (level > -(__int128)limit * MINUTE) {
                bucket_take(&b, n, now);
                level -= (__int128)n * MINUTE;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_minutes_worth_at_once),
        cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_debt_is_paid_back),
        cmocka_unit_test(test_more_than_ever_fits),
        cmocka_unit_test(test_another_limit_keeps_what_was_used),
        cmocka_unit_test(test_extremes_do_not_wrap),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
