/* When lines of one key's batches may begin. */
#include "batches/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { PROBE = 10000, SECOND = 1000000, START = 5 * SECOND };

static bool may_begin(const struct places *p, uint64_t now_us)
{
    return now_us >= places_held_until(p);
}

/* As many lines as may begin at once, 9 at most. */
static uint32_t begin_all(struct places *p, uint64_t now_us)
{
    uint32_t n = 0;
    for (; n < 9 && may_begin(p, now_us); n++)
        places_begun(p, now_us);
    return n;
}

static void who_was_never_refused_begins_any_number(void **state)
{
    (void)state;
    struct places p = {0};
    assert_int_equal(begin_all(&p, START), 9);
    for (int i = 0; i < 9; i++)
        places_ended(&p, START + 1);
    assert_int_equal(begin_all(&p, START + 1), 9);
}

static void each_that_ended_lets_one_begin(void **state)
{
    (void)state;
    struct places p = {0};
    places_refused(&p, 0, START, START + 1);
    assert_int_equal(begin_all(&p, START + 1), 0);
    for (int i = 0; i < 3; i++)
        places_ended(&p, START + 5);
    assert_true(places_held_until(&p) == START + 5); /* who looked before has to look again */
    assert_int_equal(begin_all(&p, START + 5), 3);
    assert_int_equal(begin_all(&p, START + 5 + PROBE - 1), 0);
    assert_int_equal(begin_all(&p, START + 5 + PROBE), 1); /* a probe */
}

static void a_refusal_takes_what_was_free(void **state)
{
    (void)state;
    struct places p = {0};
    places_refused(&p, 0, START, START + 1);
    places_ended(&p, START + 2);
    places_ended(&p, START + 2);
    places_begun(&p, START + 3);
    places_refused(&p, 0, START + 3, START + 4);
    assert_int_equal(begin_all(&p, START + 5), 0);
}

static void probes_refused_in_a_row_come_later(void **state)
{
    (void)state;
    struct places p = {0};
    uint64_t now = START;
    for (int i = 0; i < 5; i++) /* under way before anybody was refused: a burst, which is none */
        places_refused(&p, 0, START - 1, now);
    for (int i = 0; i < 10; i++) {
        const uint64_t apart = PROBE * (UINT64_C(1) << (i < 7 ? i : 7));
        assert_true(places_held_until(&p) == now + apart);
        now += apart;
        places_begun(&p, now);
        places_refused(&p, 0, now, now);
    }
    places_ended(&p, now);
    places_begun(&p, now);
    assert_true(places_held_until(&p) == now + PROBE);
}

static void a_key_is_given_all_its_places_again(void **state)
{
    (void)state;
    struct places p = {0};
    places_refused(&p, 0, START, START);
    assert_int_equal(begin_all(&p, START + 60 * SECOND - 1), 1);
    assert_int_equal(begin_all(&p, START + 61 * SECOND), 9);
}

static void a_rate_holds_whatever_ends(void **state)
{
    (void)state;
    struct places p = {0};
    places_refused(&p, 3, START, START);
    places_refused(&p, 2, START, START + 1);
    places_ended(&p, START + 1);
    assert_true(places_held_until(&p) == START + 3 * SECOND);
    assert_int_equal(begin_all(&p, START + 3 * SECOND), 9);
}

static void batches_of_a_key_share_them(void **state)
{
    (void)state;
    struct places *all = NULL, *a = places_of(&all, "a"), *b = places_of(&all, "");
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(a, places_of(&all, "a"));
    assert_ptr_equal(b, places_of(&all, ""));
    places_refused(a, 0, START, START);
    assert_true(may_begin(b, START) && !may_begin(a, START));
    places_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_never_refused_begins_any_number),
        cmocka_unit_test(each_that_ended_lets_one_begin),
        cmocka_unit_test(a_refusal_takes_what_was_free),
        cmocka_unit_test(probes_refused_in_a_row_come_later),
        cmocka_unit_test(a_key_is_given_all_its_places_again),
        cmocka_unit_test(a_rate_holds_whatever_ends),
        cmocka_unit_test(batches_of_a_key_share_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
