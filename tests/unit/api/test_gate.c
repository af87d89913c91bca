/* The gate: one at a time, those who worked least first, bounded, closed without leaving anybody.
 */
#include "api/gate.h"

#include "base/clock.h"
#include "unit/api/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { MOST = 80 };

static struct api_gate *gate;
static atomic_int inside, n_passed, n_full, n_closed;
static atomic_int order[MOST];
static atomic_int n_left, n_told; /* clients that went; and those who said when to come again */
static atomic_uint_least64_t leaver;

static bool left(void *ctx)
{
    return atomic_load(&leaver) == (uint64_t)(uintptr_t)ctx;
}

static enum err enter(uint64_t who)
{
    uint32_t retry_s;
    struct err_info e = {0};
    enum err err = api_gate_enter(gate, who, left, (void *)(uintptr_t)who, &retry_s, &e);
    atomic_fetch_add(&n_told, retry_s > 0);
    return err;
}

static void *pass(void *arg)
{
    const uint64_t who = (uint64_t)(uintptr_t)arg;
    enum err err = enter(who);
    if (err) {
        atomic_fetch_add(err == ERR_DRAINING ? &n_closed : err == ERR_IO ? &n_left : &n_full, 1);
        return (void *)(uintptr_t)err;
    }
    if (atomic_fetch_add(&inside, 1) != 0) /* told by the next assertion */
        atomic_store(&order[0], -1);
    atomic_store(&order[atomic_fetch_add(&n_passed, 1)], (int)who);
    atomic_fetch_sub(&inside, 1);
    api_gate_leave(gate);
    return NULL;
}

static pthread_t threads[MOST];
static int n_threads;

static void send(uint64_t who)
{
    assert_int_equal(pthread_create(&threads[n_threads++], NULL, pass, (void *)(uintptr_t)who), 0);
}

/* Until so many wait or were refused. */
static void until(int waiting, int refused)
{
    while ((int)api_gate_waiting(gate) < waiting || atomic_load(&n_full) < refused)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int begin(void **state)
{
    (void)state;
    gate = api_gate_create();
    n_threads = 0;
    inside = n_passed = n_full = n_closed = n_left = n_told = 0;
    leaver = UINT64_MAX;
    return 0;
}

static void join(void)
{
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(api_gate_waiting(gate), 0);
    api_gate_destroy(gate);
}

/* Who holds the gate for long goes behind all others, however many of its own came before them. */
static void test_least_first(void **state)
{
    (void)state;
    const uint64_t since_us = clock_us();
    assert_int_equal(enter(1), OK);
    for (int i = 0; i < 5; i++)
        send(1);
    until(5, 0);
    send(2);
    until(6, 0);
    send(3);
    until(7, 0);
    while (clock_us() - since_us < 20000) /* 1 has had more than the others ever will */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    api_gate_leave(gate);
    join();
    static const int want[] = {2, 3, 1, 1, 1, 1, 1};
    for (int i = 0; i < 7; i++)
        assert_int_equal(order[i], want[i]);
}

/* One may hold four times what it leaves free; another has room then. */
static void test_room(void **state)
{
    (void)state;
    assert_int_equal(enter(1), OK);
    for (int i = 0; i < 60; i++)
        send(1);
    until(52, 8);
    assert_int_equal(api_gate_waiting(gate), 52);
    send(2);
    until(53, 8);
    assert_int_equal(n_full, 8);
    api_gate_leave(gate);
    join();
    assert_int_equal(n_passed, 53);
    assert_int_equal(n_told, 8); /* all who were refused */
}

/* Who waits for a client that leaves goes at once, and others keep their turns. */
static void test_leaving(void **state)
{
    (void)state;
    assert_int_equal(enter(1), OK);
    send(2);
    send(3);
    send(2);
    until(3, 0);
    leaver = 2;
    while (atomic_load(&n_left) < 2)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(api_gate_waiting(gate), 1);
    api_gate_leave(gate);
    assert_int_equal(enter(2), ERR_IO); /* nor does a turn that is free keep it */
    join();
    assert_int_equal(n_passed, 1);
    assert_int_equal(order[0], 3);
}

enum { TURN_US = 2200000 };

static uint32_t seconds_of(uint64_t us)
{
    return (uint32_t)((us + 999999) / 1000000);
}

/* How long to stay away: what is left of a turn as long as the last one, however long that took on
 * a busy machine. */
static void test_when_to_come_again(void **state)
{
    (void)state;
    uint32_t retry_s;
    struct err_info e = {0};
    uint64_t begin_us = clock_us();
    assert_int_equal(enter(1), OK);
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 200000000}, NULL);
    api_gate_leave(gate);
    const uint64_t first_us = clock_us() - begin_us;
    begin_us = clock_us();
    assert_int_equal(enter(1), OK);
    for (int i = 0; i < 52; i++)
        send(1);
    until(52, 0);
    assert_int_equal(api_gate_enter(gate, 1, NULL, NULL, &retry_s, &e), ERR_QUEUE_FULL);
    const uint64_t second_us = clock_us() - begin_us;
    const uint32_t least = second_us < TURN_US ? seconds_of(TURN_US - second_us) : 1;
    assert_in_range(retry_s, least, seconds_of(first_us));
    api_gate_leave(gate);
    join();
}

static void test_close(void **state)
{
    (void)state;
    assert_int_equal(enter(1), OK);
    for (int i = 0; i < 3; i++)
        send((uint64_t)i);
    until(3, 0);
    api_gate_close(gate);
    while (atomic_load(&n_closed) < 3)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(enter(2), ERR_DRAINING);
    api_gate_leave(gate);
    join();
    assert_int_equal(n_passed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_least_first, begin),
        cmocka_unit_test_setup(test_room, begin),
        cmocka_unit_test_setup(test_leaving, begin),
        cmocka_unit_test_setup(test_when_to_come_again, begin),
        cmocka_unit_test_setup(test_close, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
