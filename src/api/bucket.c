#include "api/bucket.h"

#define ONE 60000000ll
#define MAX_DEBT (INT64_MAX / 4)

static int64_t full(const struct bucket *b)
{
    return (int64_t)b->per_minute * ONE;
}

static void catch_up(struct bucket *b, uint64_t now_us)
{
    uint64_t missing = (uint64_t)(full(b) - b->level);
    uint64_t elapsed_us = now_us > b->at_us ? now_us - b->at_us : 0;
    if (b->per_minute == 0)
        return;
    if (elapsed_us > missing / b->per_minute)
        b->level = full(b);
    else
        b->level += (int64_t)(elapsed_us * b->per_minute);
    b->at_us = now_us > b->at_us ? now_us : b->at_us;
}

void bucket_set(struct bucket *b, uint64_t per_minute, uint64_t now_us)
{
    int64_t used = 0;
    if (b->per_minute) {
        catch_up(b, now_us);
        used = full(b) - b->level;
    }
    b->per_minute = per_minute;
    b->level = full(b) - used;
    b->at_us = now_us;
}

/* n as a level, as far as one can be away from zero. */
static int64_t level_of(uint64_t n)
{
    return n > (uint64_t)(MAX_DEBT / ONE) ? MAX_DEBT : (int64_t)n * ONE;
}

void bucket_take(struct bucket *b, uint64_t n, uint64_t now_us)
{
    catch_up(b, now_us);
    if (b->per_minute)
        b->level = b->level - level_of(n) < -MAX_DEBT ? -MAX_DEBT : b->level - level_of(n);
}

void bucket_give_back(struct bucket *b, uint64_t n, uint64_t now_us)
{
    catch_up(b, now_us);
    if (b->per_minute)
        b->level = level_of(n) > full(b) - b->level ? full(b) : b->level + level_of(n);
}

uint64_t bucket_left(struct bucket *b, uint64_t now_us)
{
    catch_up(b, now_us);
    if (b->per_minute == 0)
        return UINT64_MAX;
    return b->level > 0 ? (uint64_t)(b->level / ONE) : 0;
}

uint64_t bucket_wait_us(struct bucket *b, uint64_t n, uint64_t now_us)
{
    catch_up(b, now_us);
    if (b->per_minute == 0)
        return 0;
    if (n > b->per_minute)
        return UINT64_MAX;
    int64_t missing = (int64_t)n * ONE - b->level;
    if (missing <= 0)
        return 0;
    return ((uint64_t)missing + b->per_minute - 1) / b->per_minute;
}
