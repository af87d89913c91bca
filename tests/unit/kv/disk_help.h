/* For the tests of the disk tier: random blocks that can be made again from their number, scratch
 * folders, what really lies in them, and a tier used as the engine uses it, one step at a time. */
#ifndef WEIR_TEST_DISK_HELP_H
#define WEIR_TEST_DISK_HELP_H

#include "base/clock.h"
#include "kv/disk.h"
#include "kv/segment.h"
#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* splitmix64 */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline void random_fill(uint64_t seed, void *out, size_t n_bytes)
{
    uint8_t *to = out;
    for (size_t i = 0; i < n_bytes; i++)
        to[i] = (uint8_t)random_next(&seed);
}

/* A seed from TEST_SEED or the clock, printed so that a failure can be repeated. */
static inline uint64_t test_seed(void)
{
    const char *given = getenv("TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000003u;
    printf("seed: TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

enum { HELP_TOKENS = 16 };

/* Block number `id`: its tokens, parent, key and payload follow from it. */
struct test_block {
    int32_t tokens[HELP_TOKENS];
    struct kv_tier_block block;
};

static inline void block_make(struct kv_hasher *h, uint64_t id, struct test_block *b)
{
    random_fill(id * 2 + 1, b->tokens, sizeof b->tokens);
    random_fill(id * 2 + 2, &b->block.parent, sizeof b->block.parent);
    b->block.tokens = b->tokens;
    kv_hash_block(h, &b->block.parent, b->tokens, HELP_TOKENS, &b->block.key);
}

static inline void block_payload(uint64_t id, void *out, size_t n_bytes)
{
    random_fill(~id, out, n_bytes);
}

static inline char *scratch_make(void)
{
    char *path = strdup("/tmp/weir-disk-XXXXXX");
    return mkdtemp(path);
}

static inline void scratch_remove(char *path)
{
    remove_folder(path);
    free(path);
}

static inline void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        abort();
    }
}

enum { HELP_PAYLOAD = 1000 };

static inline int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* A folder, and at most one tier on it. */
struct disk_test {
    char *dir;
    int n_descriptors; /* before; as many must be left */
    struct kv_hasher *h;
    struct kv_disk_config cfg;
    struct kv_tier *t;
};

static inline uint64_t segments(uint64_t n)
{
    return n * kv_segment_bytes(HELP_TOKENS, HELP_PAYLOAD);
}

static inline void disk_test_init(struct disk_test *x)
{
    *x = (struct disk_test){.dir = scratch_make(), .n_descriptors = count_descriptors()};
    x->cfg = (struct kv_disk_config){.dir = x->dir,
                                     .max_bytes = 1 << 30,
                                     .fingerprint = {{0xab, 0xcd}},
                                     .block_tokens = HELP_TOKENS,
                                     .block_bytes = HELP_PAYLOAD,
                                     .buffer_bytes = 8 * HELP_PAYLOAD};
    if (kv_hasher_create(&x->h, NULL))
        abort();
}

static inline void disk_test_close(struct disk_test *x)
{
    if (x->t)
        x->t->ops->destroy(x->t);
    x->t = NULL;
}

static inline void disk_test_deinit(struct disk_test *x)
{
    disk_test_close(x);
    kv_hasher_destroy(x->h);
    scratch_remove(x->dir);
    if (count_descriptors() != x->n_descriptors) {
        fprintf(stderr, "file descriptors were left open\n");
        abort();
    }
}

/* Close what is open, and open again as cfg says. */
static inline void disk_test_open(struct disk_test *x)
{
    struct err_info e = {0};
    disk_test_close(x);
    if (kv_disk_open(&x->cfg, &x->t, &e)) {
        fprintf(stderr, "kv_disk_open: %s\n", e.text);
        abort();
    }
}

static inline struct kv_tier_stats tier_stats(struct kv_tier *t)
{
    struct kv_tier_stats s;
    t->ops->stats(t, &s);
    return s;
}

static inline bool tier_has(struct disk_test *x, struct kv_tier *t, uint64_t id)
{
    struct test_block b;
    block_make(x->h, id, &b);
    return t->ops->has(t, &b.block.key);
}

static inline void tier_use(struct disk_test *x, struct kv_tier *t, uint64_t id)
{
    struct test_block b;
    block_make(x->h, id, &b);
    t->ops->used(t, &b.block.key, KV_TIER_USED);
}

/* Queue block `id`; false when the tier does not take it. */
static inline bool tier_queue(struct disk_test *x, struct kv_tier *t, uint64_t id)
{
    struct test_block b;
    block_make(x->h, id, &b);
    void *bytes = t->ops->store_begin(t, &b.block.key, KV_TIER_FULL);
    if (!bytes)
        return false;
    block_payload(id, bytes, x->cfg.block_bytes);
    t->ops->store(t, &b.block, bytes);
    return true;
}

/* Store it and wait until that has ended; false when it was not taken, or not written. */
static inline bool tier_store(struct disk_test *x, struct kv_tier *t, uint64_t id)
{
    struct kv_tier_stats before = tier_stats(t), now;
    if (!tier_queue(x, t, id))
        return false;
    do {
        usleep(50);
        now = tier_stats(t);
    } while (now.stored + now.dropped == before.stored + before.dropped);
    return now.stored > before.stored;
}

/* The next end of a fetch, which must be that of block `id`: 1 with its bytes, 0 without, -1 when
 * anything else came. */
static inline int tier_take(struct disk_test *x, struct kv_tier *t, uint64_t id)
{
    struct kv_tier_done done;
    uint64_t limit_us = clock_us() + 20000000;
    while (!t->ops->poll(t, &done)) {
        if (clock_us() > limit_us)
            return -1;
        usleep(50);
    }
    if (done.ticket != id)
        return -1;
    if (!done.bytes)
        return 0;
    void *want = malloc(x->cfg.block_bytes);
    block_payload(id, want, x->cfg.block_bytes);
    int same = memcmp(want, done.bytes, x->cfg.block_bytes) == 0 ? 1 : -1;
    free(want);
    t->ops->release(t, done.bytes);
    return same;
}

static inline bool tier_ask(struct disk_test *x, struct kv_tier *t, uint64_t id)
{
    struct test_block b;
    block_make(x->h, id, &b);
    return t->ops->fetch(t, &b.block, id);
}

/* Fetch it now: as tier_take. */
static inline int tier_fetch(struct disk_test *x, struct kv_tier *t, uint64_t id)
{
    return tier_ask(x, t, id) ? tier_take(x, t, id) : -1;
}

/* The path of block `id`, for `fingerprint` {{0xab, 0xcd}}; static storage. */
static inline const char *segment_path(struct disk_test *x, uint64_t id)
{
    static char path[256];
    struct test_block b;
    block_make(x->h, id, &b);
    int n = snprintf(
        path, sizeof path, "%s/abcd000000000000/%02x/", x->dir, (unsigned)b.block.key.bytes[0]);
    for (int i = 0; i < KV_KEY_BYTES; i++)
        n += snprintf(path + n, sizeof path - (size_t)n, "%02x", (unsigned)b.block.key.bytes[i]);
    snprintf(path + n, sizeof path - (size_t)n, ".kv");
    return path;
}

/* A path in its folder; static storage. */
static inline const char *below(const struct disk_test *x, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", x->dir, name);
    return path;
}

static inline bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* The sizes of all files below. */
static _Thread_local uint64_t real_sum, real_files;
static inline int real_visit(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)path;
    (void)ftw;
    if (kind == FTW_F || kind == FTW_SL) {
        real_sum += (uint64_t)st->st_size;
        real_files++;
    }
    return 0;
}

static inline uint64_t real_bytes(const char *dir)
{
    real_sum = real_files = 0;
    nftw(dir, real_visit, 16, FTW_PHYS);
    return real_sum;
}

/* A test's setup and teardown: *state is a struct disk_test. */
static inline int disk_test_setup(void **state)
{
    struct disk_test *x = malloc(sizeof *x);
    disk_test_init(x);
    *state = x;
    return 0;
}

static inline int disk_test_teardown(void **state)
{
    disk_test_deinit(*state);
    free(*state);
    return 0;
}

#endif
