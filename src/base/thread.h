/* Threads of Weir's own. */
#ifndef WEIR_BASE_THREAD_H
#define WEIR_BASE_THREAD_H

#include <pthread.h>

/* pthread_create of one that blocks all signals: these are for the threads that the program made
 * for them. Returns 0, or what pthread_create says. */
int thread_start(pthread_t *out, void *(*thread_main)(void *), void *arg);

#endif
