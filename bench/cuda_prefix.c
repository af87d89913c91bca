/* From how many hashes on the device finds cached blocks sooner than the host: the figure that
 * CUDA_PREFIX_DEVICE_FROM (backend/cuda/prefix_mirror.h) has of one device.
 *
 *      cuda_prefix [BLOCKS]        cached blocks; default 65,536
 *
 * Both answer the same: how much of n blocks of 16 tokens, in prompts of 512 blocks, is cached,
 * with every token compared. The host walks its index (kv/prefix.h), as the server does. The
 * device's mirror is asked for n names at once, and the host compares the tokens of what it says;
 * `named`: with the names computed first, which the index needs none of. A line for each n, the
 * median of many rounds in microseconds, then the first n from which on the device is sooner, or
 * that there is none. */
#include "backend/cuda/prefix_mirror.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kv/prefix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 16, PROMPT = 512, MOST = 16384, ROUNDS = 31 };

struct world {
    uint32_t n_blocks;
    int32_t *tokens; /* [n_blocks][SIZE] */
    uint64_t *names;
    struct kv_key *keys;
    struct kv_prefix *index;
    struct kv_hasher *hasher;
    struct cuda_prefix_mirror *mirror;
    cudaStream_t stream;
    int32_t *found; /* [MOST] */
    uint64_t *asked;
};

static const struct kv_key nobody;

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "cuda_prefix: %s failed\n", what);
    exit(1);
}

static void must_cuda(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return;
    fprintf(stderr, "cuda_prefix: %s: %s\n", what, cudaGetErrorString(rc));
    exit(1);
}

static uint64_t name_of(const struct kv_key *key)
{
    uint64_t name;
    memcpy(&name, key->bytes, sizeof name);
    return name;
}

static uint64_t next_random(void)
{
    static uint64_t rng = 88172645463325252u; /* Marsaglia's xorshift64 */
    rng ^= rng << 13;
    rng ^= rng >> 7;
    return rng ^= rng << 17;
}

static void name_block(struct world *w, uint32_t i, struct kv_key *out)
{
    const struct kv_key *before = i % PROMPT ? &w->keys[i - 1] : &nobody;
    kv_hash_block(w->hasher, before, w->tokens + (size_t)i * SIZE, SIZE, out);
}

static void fill(struct world *w)
{
    struct err_info e;
    const size_t n = w->n_blocks;
    w->tokens = mem_alloc(n * SIZE * sizeof *w->tokens);
    w->names = mem_alloc(n * sizeof *w->names);
    w->keys = mem_alloc(n * sizeof *w->keys);
    w->found = mem_alloc(MOST * sizeof *w->found);
    w->asked = mem_alloc(MOST * sizeof *w->asked);
    must(kv_prefix_create(w->n_blocks, SIZE, &w->index, &e) == OK, "an index");
    must(kv_hasher_create(&w->hasher, &e) == OK, "a hasher");
    must_cuda(cudaStreamCreate(&w->stream), "the device");
    w->mirror = cuda_prefix_mirror_create(w->n_blocks, MOST);
    must(w->mirror != NULL, "a mirror");
    for (uint32_t i = 0; i < w->n_blocks; i++) {
        int32_t *tokens = w->tokens + (size_t)i * SIZE;
        for (int k = 0; k < SIZE; k++)
            tokens[k] = (int32_t)(next_random() % 150000);
        name_block(w, i, &w->keys[i]);
        w->names[i] = name_of(&w->keys[i]);
        kv_prefix_insert(w->index, i % PROMPT ? i - 1 : KV_ROOT, &nobody, i, tokens, SIZE);
        cuda_prefix_mirror_put(w->mirror, w->names[i], (int32_t)i);
    }
    size_t bytes;
    must_cuda(cuda_prefix_mirror_sync(w->mirror, w->stream, &bytes), "uploading the mirror");
    must_cuda(cudaStreamSynchronize(w->stream), "uploading the mirror");
}

/* Blocks first .. first + n - 1, of whole prompts one behind the other; how many were found. */
static uint32_t ask_host(struct world *w, uint32_t first, uint32_t n)
{
    uint32_t parent = KV_ROOT, found = 0;
    for (uint32_t i = first; i < first + n; i++) {
        uint32_t block = KV_ROOT;
        const int32_t *tokens = w->tokens + (size_t)i * SIZE;
        parent = i % PROMPT ? parent : KV_ROOT;
        found += kv_prefix_best(w->index, parent, &nobody, tokens, SIZE, &block) == SIZE;
        parent = block;
    }
    return found;
}

static uint32_t ask_device(struct world *w, uint32_t first, uint32_t n, int named)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct kv_key key;
        if (named)
            name_block(w, first + i, &key);
        w->asked[i] = named ? name_of(&key) : w->names[first + i];
    }
    must_cuda(cuda_prefix_mirror_lookup(w->mirror, w->asked, n, w->found, w->stream), "a lookup");
    for (uint32_t i = 0; i < n; i++) {
        const int32_t *tokens = w->tokens + (size_t)(first + i) * SIZE;
        found += w->found[i] >= 0 && memcmp(kv_prefix_tokens(w->index, (uint32_t)w->found[i]),
                                            tokens,
                                            SIZE * sizeof *tokens) == 0;
    }
    return found;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* way: 0 the host, 1 the device, 2 the device with names. Microseconds. */
static double measure(struct world *w, uint32_t n, int way)
{
    uint64_t ns[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t prompts = (w->n_blocks - n) / PROMPT + 1;
        const uint32_t first = (uint32_t)(next_random() % prompts) * PROMPT;
        const uint64_t since = clock_ns();
        const uint32_t found = way == 0 ? ask_host(w, first, n) : ask_device(w, first, n, way == 2);
        ns[i] = clock_ns() - since;
        must(found == n, "finding what is there");
    }
    qsort(ns, ROUNDS, sizeof *ns, by_size);
    return (double)ns[ROUNDS / 2] * 1e-3;
}

int main(int argc, char **argv)
{
    struct world w = {.n_blocks = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 65536};
    uint32_t from = 0;
    must(w.n_blocks >= PROMPT && w.n_blocks <= 1u << 24, "BLOCKS of 512 to 16,777,216:");
    fill(&w);
    printf(
        "%8s %12s %12s %12s   us, %u blocks cached\n", "n", "host", "device", "named", w.n_blocks);
    for (uint32_t n = 1; n <= MOST && n <= w.n_blocks; n *= 4) {
        const double host = measure(&w, n, 0), device = measure(&w, n, 1);
        printf("%8u %12.1f %12.1f %12.1f\n", n, host, device, measure(&w, n, 2));
        from = device >= host ? 0 : from ? from : n;
    }
    if (from)
        printf("the device is sooner from %u on\n", from);
    else
        printf("the host is sooner throughout\n");
    cuda_prefix_mirror_destroy(w.mirror);
    kv_prefix_destroy(w.index);
    kv_hasher_destroy(w.hasher);
    (void)cudaStreamDestroy(w.stream);
    free(w.tokens);
    free(w.names);
    free(w.keys);
    free(w.found);
    free(w.asked);
    return 0;
}
