#include "base/seed.h"

#include "base/clock.h"

#include <unistd.h>

uint64_t seed_random(void)
{
    uint64_t seed;
    if (getentropy(&seed, sizeof seed) != 0)
        seed = clock_us();
    return seed;
}
