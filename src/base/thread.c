#include "base/thread.h"

#include <fenv.h>
#include <signal.h>

int thread_start(pthread_t *out, void *(*thread_main)(void *), void *arg)
{
    sigset_t all, old;
    fenv_t env;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    fegetenv(&env);
    fesetenv(FE_DFL_ENV);
    int rc = pthread_create(out, NULL, thread_main, arg); /* it inherits both */
    fesetenv(&env);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}
