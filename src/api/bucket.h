/* A token bucket: so many a minute, and never more than a minute's worth at once.
 *
 *      level --- take ---> lower, below zero if what was taken is more than was known before
 *        '------ time ---> higher by per_minute a minute, up to per_minute
 *
 * Exact: the level counts 1/60,000,000ths, so that each microsecond adds a whole number and nothing
 * is lost however often it is looked at. Time is an argument, in microseconds, and never goes back.
 * Not locked. For api/ only. */
#ifndef WEIR_API_BUCKET_H
#define WEIR_API_BUCKET_H

#include <stdint.h>

#define BUCKET_MAX_PER_MINUTE 10000000000ull

struct bucket {
    uint64_t per_minute; /* 0: no limit, and the rest means nothing */
    int64_t level;       /* 60,000,000 is one */
    uint64_t at_us;      /* as of then */
};

/* Another limit, at most BUCKET_MAX_PER_MINUTE: what was used stays used. A new bucket is full. */
void bucket_set(struct bucket *b, uint64_t per_minute, uint64_t now_us);

void bucket_take(struct bucket *b, uint64_t n, uint64_t now_us);
void bucket_give_back(struct bucket *b, uint64_t n, uint64_t now_us);

uint64_t bucket_left(struct bucket *b,
                     uint64_t now_us); /* whole ones; UINT64_MAX without a limit */
/* Microseconds until it has n, if nobody takes any; UINT64_MAX if it never will. */
uint64_t bucket_wait_us(struct bucket *b, uint64_t n, uint64_t now_us);

#endif
