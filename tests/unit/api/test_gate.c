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

static void *pass(void *arg)
{
    const uint64_t who = (uint64_t)(uintptr_t)arg;
    struct err_info e = {0};
    enum err err = api_gate_enter(gate, who, &e);
    if (err) {
        atomic_fetch_add(err == ERR_DRAINING ? &n_closed : &n_full, 1);
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
    inside = n_passed = n_full = n_closed = 0;
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
    assert_int_equal(api_gate_enter(gate, 1, NULL), OK);
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
    assert_int_equal(api_gate_enter(gate, 1, NULL), OK);
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
}

static void test_close(void **state)
{
    (void)state;
    assert_int_equal(api_gate_enter(gate, 1, NULL), OK);
    for (int i = 0; i < 3; i++)
        send((uint64_t)i);
    until(3, 0);
    api_gate_close(gate);
    while (atomic_load(&n_closed) < 3)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(api_gate_enter(gate, 2, NULL), ERR_DRAINING);
    api_gate_leave(gate);
    join();
    assert_int_equal(n_passed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_least_first, begin),
        cmocka_unit_test_setup(test_room, begin),
        cmocka_unit_test_setup(test_close, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
