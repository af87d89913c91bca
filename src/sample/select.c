/* Selection by weight without sorting: which elements belong to the largest ones that together
 * reach a goal. A histogram over the keys' upper bits says in which bucket the goal is reached;
 * only that bucket is looked at by its next bits, and so on; equal keys are settled by index.
 * Three passes, whatever the distribution, and no worst case. */
#include "sample/internal.h"

#define N_BUCKETS (1u << SAMPLE_RADIX_BITS)

/* The bits of a key, upper first: 11, 11, 10. */
static const struct {
    uint32_t shift, n_bits;
} levels[] = {{21, 11}, {10, 11}, {0, 10}};

static void histogram(const uint32_t *keys,
                      const float *weights,
                      uint32_t n,
                      uint32_t prefix,
                      uint32_t prefix_mask,
                      int level,
                      double *hist)
{
    uint32_t shift = levels[level].shift, mask = (1u << levels[level].n_bits) - 1;
    memset(hist, 0, N_BUCKETS * sizeof *hist);
    for (uint32_t i = 0; i < n; i++)
        if ((keys[i] & prefix_mask) == prefix)
            hist[keys[i] >> shift & mask] += weights ? weights[i] : 1.0;
}

/* The bucket, from the top, in which *mass reaches goal; *mass becomes that of the buckets above
 * it. Should rounding keep it from being reached, the lowest bucket that holds anything. */
static uint32_t goal_bucket(const double *hist, double goal, double *mass)
{
    uint32_t lowest = 0;
    double above = *mass, before_lowest = *mass;
    for (uint32_t b = N_BUCKETS; b-- > 0;) {
        if (!(hist[b] > 0))
            continue;
        if (above + hist[b] >= goal) {
            *mass = above;
            return b;
        }
        lowest = b;
        before_lowest = above;
        above += hist[b];
    }
    *mass = before_lowest;
    return lowest;
}

struct sample_cut sample_select(
    const uint32_t *keys, const float *weights, uint32_t n, double goal, double *hist)
{
    uint32_t prefix = 0, prefix_mask = 0;
    double mass = 0;
    for (int level = 0; level < 3; level++) {
        histogram(keys, weights, n, prefix, prefix_mask, level, hist);
        uint32_t bucket = goal_bucket(hist, goal, &mass);
        prefix |= bucket << levels[level].shift;
        prefix_mask |= ((1u << levels[level].n_bits) - 1) << levels[level].shift;
    }
    struct sample_cut cut = {.key = prefix, .last = 0};
    for (uint32_t i = 0; i < n && mass < goal; i++) {
        if (keys[i] != prefix)
            continue;
        mass += weights ? weights[i] : 1.0;
        cut.last = i;
    }
    return cut;
}
