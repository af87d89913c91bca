/* Time. Steps, queues and histograms use the monotonic clock; `created` fields the wall clock. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_us(void);  /* monotonic microseconds */
uint64_t clock_ns(void);  /* the same in nanoseconds */
int64_t clock_unix(void); /* seconds since 1970 */
int64_t clock_unix_ms(void);

#endif
