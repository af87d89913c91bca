#include "backend/cuda/prefix_mirror.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 }; /* entries that are uploaded together: 1 KiB */

struct cuda_prefix_mirror {
    struct cuda_prefix_entry *table; /* [mask + 1] pinned */
    struct cuda_prefix_entry *device;
    uint64_t *hashes, *device_hashes; /* [max_queries]; pinned, of the device */
    int32_t *values, *device_values;  /* likewise */
    uint8_t *dirty;                   /* [chunks] */
    uint32_t mask, n, max_entries, max_queries;
    uint32_t first_dirty, end_dirty; /* chunks outside are clean */
};

/* At most half full, so that probes stay short. */
static uint32_t table_size(uint32_t max_entries)
{
    uint32_t n = CHUNK;
    while (n / 2 < max_entries && n < UINT32_MAX / 2 + 1)
        n *= 2;
    return n;
}

static bool alloc_pair(void **host, void **device, size_t bytes)
{
    return cudaHostAlloc(host, bytes, cudaHostAllocDefault) == cudaSuccess &&
           cudaMalloc(device, bytes) == cudaSuccess;
}

struct cuda_prefix_mirror *cuda_prefix_mirror_create(uint32_t max_entries, uint32_t max_queries)
{
    struct cuda_prefix_mirror *m = calloc(1, sizeof *m);
    if (!m || max_entries > UINT32_MAX / 4)
        goto fail;
    const uint32_t size = table_size(max_entries);
    m->mask = size - 1;
    m->max_entries = max_entries;
    m->max_queries = max_queries;
    m->dirty = malloc(size / CHUNK);
    if (!m->dirty ||
        !alloc_pair((void **)&m->table, (void **)&m->device, size * sizeof *m->table) ||
        !alloc_pair((void **)&m->hashes,
                    (void **)&m->device_hashes,
                    (size_t)max_queries * sizeof *m->hashes) ||
        !alloc_pair((void **)&m->values,
                    (void **)&m->device_values,
                    (size_t)max_queries * sizeof *m->values))
        goto fail;
    for (uint32_t i = 0; i < size; i++)
        m->table[i] = (struct cuda_prefix_entry){.value = -1};
    memset(m->dirty, 1, size / CHUNK);
    m->end_dirty = size / CHUNK;
    return m;
fail:
    cuda_prefix_mirror_destroy(m);
    (void)cudaGetLastError(); /* or the next launch, whoever's it is, would be blamed */
    return NULL;
}

void cuda_prefix_mirror_destroy(struct cuda_prefix_mirror *m)
{
    if (!m)
        return;
    (void)cudaFreeHost(m->table);
    (void)cudaFreeHost(m->hashes);
    (void)cudaFreeHost(m->values);
    (void)cudaFree(m->device);
    (void)cudaFree(m->device_hashes);
    (void)cudaFree(m->device_values);
    free(m->dirty);
    free(m);
}

uint32_t cuda_prefix_mirror_n(const struct cuda_prefix_mirror *m)
{
    return m->n;
}

/* The place that has the hash, or the free one where the probe ends. */
static uint32_t probe(const struct cuda_prefix_mirror *m, uint64_t hash)
{
    uint32_t i = (uint32_t)hash & m->mask;
    while (m->table[i].value >= 0 && m->table[i].hash != hash)
        i = (i + 1) & m->mask;
    return i;
}

static void write(struct cuda_prefix_mirror *m, uint32_t i, struct cuda_prefix_entry entry)
{
    const uint32_t chunk = i / CHUNK;
    m->table[i] = entry;
    m->dirty[chunk] = 1;
    if (m->first_dirty == m->end_dirty) {
        m->first_dirty = chunk;
        m->end_dirty = chunk + 1;
    } else if (chunk < m->first_dirty) {
        m->first_dirty = chunk;
    } else if (chunk >= m->end_dirty) {
        m->end_dirty = chunk + 1;
    }
}

void cuda_prefix_mirror_put(struct cuda_prefix_mirror *m, uint64_t hash, int32_t value)
{
    const uint32_t i = probe(m, hash);
    assert(value >= 0);
    if (m->table[i].value < 0) {
        assert(m->n < m->max_entries);
        m->n++;
    }
    write(m, i, (struct cuda_prefix_entry){.hash = hash, .value = value});
}

/* Entries behind the gap move up, unless they would come to lie before where their probe begins. */
void cuda_prefix_mirror_remove(struct cuda_prefix_mirror *m, uint64_t hash)
{
    uint32_t gap = probe(m, hash);
    if (m->table[gap].value < 0)
        return;
    for (uint32_t i = (gap + 1) & m->mask; m->table[i].value >= 0; i = (i + 1) & m->mask) {
        const uint32_t home = (uint32_t)m->table[i].hash & m->mask;
        if (((i - home) & m->mask) < ((i - gap) & m->mask))
            continue;
        write(m, gap, m->table[i]);
        gap = i;
    }
    write(m, gap, (struct cuda_prefix_entry){.value = -1});
    m->n--;
}

int32_t cuda_prefix_mirror_find(const struct cuda_prefix_mirror *m, uint64_t hash)
{
    return m->table[probe(m, hash)].value;
}

cudaError_t cuda_prefix_mirror_sync(struct cuda_prefix_mirror *m,
                                    cudaStream_t stream,
                                    size_t *bytes)
{
    *bytes = 0;
    for (uint32_t i = m->first_dirty, end; i < m->end_dirty; i = end + 1) {
        for (end = i; end < m->end_dirty && m->dirty[end];)
            end++;
        if (end == i)
            continue;
        const size_t n = (size_t)(end - i) * CHUNK * sizeof *m->table;
        const cudaError_t rc = cudaMemcpyAsync(m->device + (size_t)i * CHUNK,
                                               m->table + (size_t)i * CHUNK,
                                               n,
                                               cudaMemcpyHostToDevice,
                                               stream);
        if (rc != cudaSuccess) { /* what was not uploaded is as it was: dirty */
            m->first_dirty = i;
            (void)cudaGetLastError();
            return rc;
        }
        memset(m->dirty + i, 0, end - i);
        *bytes += n;
    }
    m->first_dirty = m->end_dirty = 0;
    return cudaSuccess;
}

/* The stream's part of a lookup. */
static cudaError_t ask(struct cuda_prefix_mirror *m, uint32_t n, cudaStream_t stream)
{
    cudaError_t rc = cudaMemcpyAsync(
        m->device_hashes, m->hashes, n * sizeof *m->hashes, cudaMemcpyHostToDevice, stream);
    if (rc != cudaSuccess)
        return rc;
    cuda_prefix_lookup(m->device, m->mask, m->device_hashes, n, m->device_values, stream);
    rc = cudaGetLastError();
    if (rc != cudaSuccess)
        return rc;
    return cudaMemcpyAsync(
        m->values, m->device_values, n * sizeof *m->values, cudaMemcpyDeviceToHost, stream);
}

cudaError_t cuda_prefix_mirror_lookup(struct cuda_prefix_mirror *m,
                                      const uint64_t *hashes,
                                      uint32_t n,
                                      int32_t *values,
                                      cudaStream_t stream)
{
    assert(n <= m->max_queries);
    if (n == 0)
        return cudaSuccess;
    memcpy(m->hashes, hashes, n * sizeof *hashes);
    cudaError_t rc = ask(m, n, stream);
    const cudaError_t done = cudaStreamSynchronize(stream); /* even so: it reads the hashes */
    rc = rc == cudaSuccess ? done : rc;
    if (rc == cudaSuccess)
        memcpy(values, m->values, n * sizeof *values);
    else
        (void)cudaGetLastError();
    return rc;
}

cudaError_t cuda_prefix_mirror_answer(struct cuda_prefix_mirror *m,
                                      const uint64_t *hashes,
                                      uint32_t n,
                                      int32_t *values,
                                      uint32_t device_from,
                                      cudaStream_t stream)
{
    if (n >= device_from) {
        size_t bytes;
        const cudaError_t rc = cuda_prefix_mirror_sync(m, stream, &bytes);
        return rc == cudaSuccess ? cuda_prefix_mirror_lookup(m, hashes, n, values, stream) : rc;
    }
    for (uint32_t i = 0; i < n; i++)
        values[i] = cuda_prefix_mirror_find(m, hashes[i]);
    return cudaSuccess;
}
