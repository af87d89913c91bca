/* A tier for simulations: an unreliable memory. It forgets, drops, delays, says it has what it will
 * never give, runs out of buffers, and may fall silent for good; but what it gives back is what was
 * stored. */
#ifndef WEIR_TESTS_SIM_FAKE_TIER_H
#define WEIR_TESTS_SIM_FAKE_TIER_H

#include "kv/tier.h"

struct fake_tier;

/* below(n): a random number below n, from the simulation's own generator. */
struct fake_tier *fake_tier_create(uint32_t block_tokens,
                                   size_t block_bytes,
                                   uint32_t (*below)(uint32_t n));
struct kv_tier *fake_tier_base(struct fake_tier *f);
/* From now on nothing is to be had and nothing taken; or it says that all is well and never
 * answers.
 */
void fake_tier_break(struct fake_tier *f);
void fake_tier_hush(struct fake_tier *f);
uint64_t fake_tier_n_fetched(const struct fake_tier *f);
void fake_tier_destroy(struct fake_tier *f);

#endif
