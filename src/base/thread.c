#include "base/thread.h"

#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>

/* They are raised by what a thread itself does. While blocked they end the process, whatever
 * handler there is. */
static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

int thread_start(pthread_t *out, void *(*thread_main)(void *), void *arg)
{
    sigset_t others, old;
    fenv_t env;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&others, faults[i]);
    pthread_sigmask(SIG_SETMASK, &others, &old);
    fegetenv(&env);
    fesetenv(FE_DFL_ENV);
    int rc = pthread_create(out, NULL, thread_main, arg); /* it inherits both */
    fesetenv(&env);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

void thread_keep_to(pthread_t thread, const uint32_t *cpus, uint32_t n)
{
    uint32_t end = 0;
    for (uint32_t i = 0; i < n; i++)
        end = cpus[i] >= end ? cpus[i] + 1 : end;
    cpu_set_t *set = CPU_ALLOC(end);
    if (!set)
        return;
    const size_t size = CPU_ALLOC_SIZE(end);
    CPU_ZERO_S(size, set);
    for (uint32_t i = 0; i < n; i++)
        CPU_SET_S(cpus[i], size, set);
    (void)pthread_setaffinity_np(thread, size, set);
    CPU_FREE(set);
}
