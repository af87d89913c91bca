#include "base/seed.h"
#include "gguf/file.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum err gguf_index_init(struct gguf_index *ix, const void *entries, size_t stride, uint32_t n)
{
    size_t n_slots = 8;
    while (n_slots / 2 < n)
        n_slots *= 2;
    *ix = (struct gguf_index){
        .entries = entries, .stride = stride, .n_slots = n_slots, .seed = seed_random()};
    ix->slots = calloc(n_slots, sizeof *ix->slots);
    return ix->slots ? OK : ERR_NOMEM;
}

void gguf_index_deinit(struct gguf_index *ix)
{
    free(ix->slots);
    *ix = (struct gguf_index){0};
}

/* Every entry begins with its name: struct gguf_kv with key, struct gguf_tensor with name. */
static const struct gguf_str *name_of(const struct gguf_index *ix, uint32_t id)
{
    return (const struct gguf_str *)((const char *)ix->entries + id * ix->stride);
}

/* The slot that holds the name, or the free one where it would go. */
static size_t slot_of(const struct gguf_index *ix, struct gguf_str name)
{
    size_t mask = ix->n_slots - 1;
    size_t slot = (size_t)XXH3_64bits_withSeed(name.data, name.len, ix->seed) & mask;
    for (; ix->slots[slot]; slot = (slot + 1) & mask) {
        const struct gguf_str *other = name_of(ix, ix->slots[slot] - 1);
        if (other->len == name.len && memcmp(other->data, name.data, name.len) == 0)
            break;
    }
    return slot;
}

bool gguf_index_add(struct gguf_index *ix, uint32_t id)
{
    size_t slot = slot_of(ix, *name_of(ix, id));
    if (ix->slots[slot])
        return false;
    ix->slots[slot] = id + 1;
    return true;
}

const void *gguf_index_find(const struct gguf_index *ix, struct gguf_str name)
{
    size_t slot = slot_of(ix, name);
    return ix->slots[slot] ? name_of(ix, ix->slots[slot] - 1) : NULL;
}
