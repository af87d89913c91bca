/* Time. Steps, queues and histograms use the monotonic clock; `created` fields the wall clock. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

uint64_t clock_us(void);  /* monotonic microseconds */
uint64_t clock_ns(void);  /* the same in nanoseconds */
int64_t clock_unix(void); /* seconds since 1970 */
int64_t clock_unix_ms(void);

struct timespec clock_spec(uint64_t us); /* a time of clock_us, or how long something lasts */

/* As pthread_cond_init, for waits until a time of clock_us. */
void clock_cond_init(pthread_cond_t *cond);

#endif
