/* A table of hashes on the device, for looking up many at once.
 *
 *      host    | h0 -> 7 | - | h1 -> 3 | h2 -> 9 | - | ...      open addressing, linear probing
 *      device  the same bytes, as of the last sync
 *
 * The host changes its copy and marks what it touched; sync uploads those ranges, not the table. A
 * kernel answers queries, one a thread: the value, or -1 for a miss. A hash is a name only: whoever
 * asks compares what it stands for. Removing closes the gap (no tombstones), so a probe ends at the
 * first free place.
 *
 * An answer of the device's takes two copies, a launch and a wait, whatever it holds, so few hashes
 * are the host's: cuda_prefix_mirror_answer decides by CUDA_PREFIX_DEVICE_FROM, which
 * bench/cuda_prefix.c measures on a machine with a GPU. The server's own lookups walk kv/prefix.h:
 * hashes of so many blocks take the host longer to make than to look up.
 *
 * Thread: one. Allocates: in create. C and C++. */
#ifndef WEIR_BACKEND_CUDA_PREFIX_MIRROR_H
#define WEIR_BACKEND_CUDA_PREFIX_MIRROR_H

#include "backend/cuda/gpu.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_prefix_entry {
    uint64_t hash;
    int32_t value;   /* -1: the place is free */
    uint32_t unused; /* so that an entry is read in one load */
};

struct cuda_prefix_mirror;

/* Room for max_entries, and max_queries in a lookup. NULL: memory is out, of either kind; nothing
 * of it is kept. No function leaves an error for cudaGetLastError: what fails, it returns. */
struct cuda_prefix_mirror *cuda_prefix_mirror_create(uint32_t max_entries, uint32_t max_queries);
void cuda_prefix_mirror_destroy(struct cuda_prefix_mirror *m);

/* Add, or give another value (from 0); needs fewer than max_entries. */
void cuda_prefix_mirror_put(struct cuda_prefix_mirror *m, uint64_t hash, int32_t value);
void cuda_prefix_mirror_remove(struct cuda_prefix_mirror *m, uint64_t hash); /* if it is there */
uint32_t cuda_prefix_mirror_n(const struct cuda_prefix_mirror *m);

/* Upload what changed: so many bytes, 0 if nothing did; where one fails the rest is for the next
 * time. In the stream's order: until it has come so far, as it has after a lookup, nothing may be
 * put or removed. */
cudaError_t cuda_prefix_mirror_sync(struct cuda_prefix_mirror *m,
                                    cudaStream_t stream,
                                    size_t *bytes);

/* values[i] of hashes[i], or -1, as of the last sync; n at most max_queries. Waits for the answer.
 */
cudaError_t cuda_prefix_mirror_lookup(struct cuda_prefix_mirror *m,
                                      const uint64_t *hashes,
                                      uint32_t n,
                                      int32_t *values,
                                      cudaStream_t stream);
/* So many hashes or more are the device's to look up: where an H100 was seen to be sooner. */
#define CUDA_PREFIX_DEVICE_FROM 4096u
/* As cuda_prefix_mirror_lookup, by the host where n is less than device_from; as of now, then. */
cudaError_t cuda_prefix_mirror_answer(struct cuda_prefix_mirror *m,
                                      const uint64_t *hashes,
                                      uint32_t n,
                                      int32_t *values,
                                      uint32_t device_from,
                                      cudaStream_t stream);
/* The same by the host, from its own copy. */
int32_t cuda_prefix_mirror_find(const struct cuda_prefix_mirror *m, uint64_t hash);

/* The launch; table: of the device, [mask + 1]. */
void cuda_prefix_lookup(const struct cuda_prefix_entry *table,
                        uint32_t mask,
                        const uint64_t *hashes,
                        uint32_t n,
                        int32_t *values,
                        cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
