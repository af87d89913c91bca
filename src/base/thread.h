/* Threads of Weir's own. */
#ifndef WEIR_BASE_THREAD_H
#define WEIR_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* pthread_create of one that blocks all signals but its own faults: these are for the threads that
 * the program made for them; and that computes as threads do by default (fenv.h), however this one
 * rounds or traps. Returns 0, or what pthread_create says. */
int thread_start(pthread_t *out, void *(*thread_main)(void *), void *arg);

/* From now on that thread runs on these n CPUs alone. Where the system refuses that it stays where
 * it may be. */
void thread_keep_to(pthread_t thread, const uint32_t *cpus, uint32_t n);

#endif
