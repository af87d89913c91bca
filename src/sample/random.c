/* Philox4x32-10: ten rounds of multiply and mix turn a counter and a key into 128 random bits, so
 * the n-th number needs no state and no numbers before it.
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3. */
#include "sample/internal.h"

void sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * x0;
        uint64_t p1 = (uint64_t)0xcd9e8d57u * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += 0x9e3779b9u; /* the golden ratio's and the square root of 3's fractions */
        k1 += 0xbb67ae85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

double sample_uniform(uint64_t seed, uint64_t counter)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t x[4];
    sample_philox(c, key, x);
    uint64_t bits = ((uint64_t)x[0] << 32 | x[1]) >> 11;
    return (double)bits * 0x1p-53;
}
