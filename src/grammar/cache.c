/* Compiled grammars by what they were made from; the last used, within two bounds. */
#include "base/mem.h"
#include "grammar/internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 64u
#define MAX_BYTES ((size_t)192 << 20)

struct entry {
    void *key;
    size_t n;
    struct grammar *g; /* NULL: free */
    uint64_t used;
};

struct grammar_cache {
    pthread_mutex_t lock;
    struct entry entries[MAX_ENTRIES];
    uint64_t clock;
    size_t bytes;
};

struct grammar_cache *grammar_cache_create(void)
{
    struct grammar_cache *c = mem_zalloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static size_t bytes_of(const struct entry *x)
{
    return x->g ? x->n + grammar_bytes(x->g) : 0;
}

static void drop(struct grammar_cache *c, struct entry *x)
{
    c->bytes -= bytes_of(x);
    free(x->key);
    grammar_release(x->g);
    *x = (struct entry){0};
}

void grammar_cache_destroy(struct grammar_cache *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < MAX_ENTRIES; i++)
        drop(c, &c->entries[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static struct entry *find(struct grammar_cache *c, const void *key, size_t n)
{
    for (uint32_t i = 0; i < MAX_ENTRIES; i++) {
        struct entry *x = &c->entries[i];
        if (x->g && x->n == n && memcmp(x->key, key, n) == 0)
            return x;
    }
    return NULL;
}

/* The entry used longest ago; unless it must be in use, a free one where there is one. */
static struct entry *oldest(struct grammar_cache *c, bool in_use)
{
    struct entry *best = NULL;
    for (uint32_t i = 0; i < MAX_ENTRIES; i++) {
        struct entry *x = &c->entries[i];
        if ((x->g || !in_use) && (!best || x->used < best->used))
            best = x;
    }
    return best;
}

struct grammar *grammar_cache_find(struct grammar_cache *c, const void *key, size_t n)
{
    pthread_mutex_lock(&c->lock);
    struct entry *x = find(c, key, n);
    struct grammar *g = x ? grammar_acquire(x->g) : NULL;
    if (x)
        x->used = ++c->clock;
    pthread_mutex_unlock(&c->lock);
    return g;
}

void grammar_cache_add(struct grammar_cache *c, const void *key, size_t n, struct grammar *g)
{
    size_t bytes = n + grammar_bytes(g);
    void *copy = bytes <= MAX_BYTES ? malloc(n + 1) : NULL;
    if (!copy)
        return; /* it is compiled again next time */
    memcpy(copy, key, n);
    pthread_mutex_lock(&c->lock);
    if (find(c, key, n)) { /* somebody was faster */
        free(copy);
    } else {
        drop(c, oldest(c, false));
        while (c->bytes + bytes > MAX_BYTES)
            drop(c, oldest(c, true));
        *oldest(c, false) =
            (struct entry){.key = copy, .n = n, .g = grammar_acquire(g), .used = ++c->clock};
        c->bytes += bytes;
    }
    pthread_mutex_unlock(&c->lock);
}
