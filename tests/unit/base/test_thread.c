/* Threads of Weir's: which signals reach them. */
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

static volatile sig_atomic_t heard;

static void hear(int sig)
{
    heard = sig;
}

static const int signals[] = {
    SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGTERM, SIGINT, SIGUSR1};
enum { N_SIGNALS = sizeof signals / sizeof signals[0], N_FAULTS = 6 };

/* Each is sent to the thread itself, as a fault is: the one that a handler has heard, or 0. */
static void *send_all(void *arg)
{
    int *out = arg;
    for (int i = 0; i < N_SIGNALS; i++) {
        heard = 0;
        raise(signals[i]);
        out[i] = heard;
    }
    return NULL;
}

static void test_faults_are_handled_and_nothing_else(void **state)
{
    (void)state;
    const struct sigaction action = {.sa_handler = hear};
    struct sigaction before[N_SIGNALS];
    int got[N_SIGNALS];
    pthread_t thread;
    for (int i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &action, &before[i]);
    assert_int_equal(thread_start(&thread, send_all, got), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &before[i], NULL);
    for (int i = 0; i < N_SIGNALS; i++)
        assert_int_equal(got[i], i < N_FAULTS ? signals[i] : 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_are_handled_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
