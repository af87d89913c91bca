/* values[i] = the value of hashes[i] in an open-addressed table, or -1; a query a thread.
 *
 * Numbers of a query: 8 bytes in, 4 out, and one random read of 32 bytes for each place probed,
 * 1.5 on average in a table half full. At a million entries (16 MB) the table lies in the L2 of an
 * H200; so what a lookup takes is its launch and its two copies. */
#include "backend/cuda/prefix_mirror.h"

static __global__ void lookup(const cuda_prefix_entry *table,
                              uint32_t mask,
                              const uint64_t *hashes,
                              uint32_t n,
                              int32_t *values)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const uint64_t hash = hashes[i];
    uint32_t at = (uint32_t)hash & mask;
    while (table[at].value >= 0 && table[at].hash != hash)
        at = (at + 1) & mask;
    values[i] = table[at].value;
}

void cuda_prefix_lookup(const struct cuda_prefix_entry *table,
                        uint32_t mask,
                        const uint64_t *hashes,
                        uint32_t n,
                        int32_t *values,
                        cudaStream_t stream)
{
    const uint32_t block = 128;
    CUDA_LAUNCH(lookup, (n + block - 1) / block, block, 0, stream, table, mask, hashes, n, values);
}
