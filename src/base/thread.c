#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *out, void *(*thread_main)(void *), void *arg)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(out, NULL, thread_main, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}
