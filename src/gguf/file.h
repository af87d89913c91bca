/* What gguf.c, parse.c, split.c and index.c share: the struct behind struct gguf. Private to this
 * folder. */
#ifndef WEIR_GGUF_FILE_H
#define WEIR_GGUF_FILE_H

#include "gguf/gguf.h"

/* Names to ids: an open-addressing table of id + 1 (0 is a free slot), at most half full, over
 * entries that each begin with their name.
 *
 *     slots  | 0 | 3 | 0 | 1 | 0 | 2 | ...      n_slots is a power of two
 *                  |
 *     entries[2] = { name, ... }                stride bytes apart */
struct gguf_index {
    const void *entries;
    size_t stride;
    uint32_t *slots;
    size_t n_slots;
    uint64_t seed;
};

struct gguf {
    const uint8_t *base;
    size_t n_bytes;
    void *map;  /* the same as base, to unmap at close; NULL if the bytes are the caller's */
    char *path; /* NULL if the bytes are the caller's */
    size_t n_meta_bytes; /* from the start to behind the last tensor's entry */
    uint32_t version;
    uint32_t n_kv;
    uint32_t n_tensors;
    struct gguf_kv *kv;
    struct gguf_tensor *tensors;
    struct gguf_index kv_index;
    struct gguf_index tensor_index;
    struct gguf **parts; /* the other files of a split model, [n_parts - 1], whose tensors are here
                          * too; n_parts is 0 or 1 without any */
    uint32_t n_parts;
};

/* An empty index with room for n names. The hash is seeded at random, so that a file cannot choose
 * names that collide. Errors: ERR_NOMEM (without a text). */
enum err gguf_index_init(struct gguf_index *ix, const void *entries, size_t stride, uint32_t n)
    WEIR_MUST_USE;
void gguf_index_deinit(struct gguf_index *ix);

/* Add entry `id`; false when another of that name is there already. */
bool gguf_index_add(struct gguf_index *ix, uint32_t id) WEIR_MUST_USE;

/* The entry of that name, or NULL. */
const void *gguf_index_find(const struct gguf_index *ix, struct gguf_str name);

/* Bytes of a value of fixed size; 0 for strings, arrays and unknown kinds. */
size_t gguf_kind_bytes(uint32_t kind);

/* Widen the value of fixed size at b into the union, by kv->kind. */
void gguf_decode(struct gguf_kv *kv, const uint8_t *b);

/* Fill *g, zero but for base and n_bytes, from the bytes at base. `label` begins every error text.
 * After a failure *g holds what has been allocated so far, for gguf.c to free. */
enum err gguf_parse(struct gguf *g, const char *label, struct err_info *e) WEIR_MUST_USE;

enum {
    GGUF_LABEL_BYTES = 96,
    GGUF_MAX_ENTRIES = 1 << 20, /* keys, or tensors; the largest models have some ten thousand */
};

/* The end of a path, printable: it begins every error text, so it has to leave room for the rest.
 * Returns out. */
const char *gguf_label(const char *path, char out[GGUF_LABEL_BYTES]);

/* gguf_open for one file, whatever it says of being a part. */
enum err gguf_open_one(const char *path, struct gguf **out, struct err_info *e) WEIR_MUST_USE;

/* If g, just opened, says that it is one of several files, open the others and take their tensors.
 * Errors: those of gguf_open. */
enum err gguf_open_parts(struct gguf *g, struct err_info *e) WEIR_MUST_USE;

#endif
