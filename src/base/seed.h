/* A seed for hashes, so that no file or request can choose keys that collide. */
#ifndef WEIR_BASE_SEED_H
#define WEIR_BASE_SEED_H

#include <stdint.h>

/* Another one at each call. Any thread. */
uint64_t seed_random(void);

#endif
