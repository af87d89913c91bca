/* The GGUF file: metadata by key, tensors by name, over a read-only mapping of the file.
 *
 * The file is hostile. Every length, count, offset, type, alignment and string is checked against
 * the file before it is used; sums and products are checked for overflow; what is allocated is
 * bounded by the file's size. After gguf_open has succeeded, everything reachable from here lies
 * inside the mapping. Format: the GGUF specification, versions 2 and 3, little endian.
 *
 * A model may be split over files X-00001-of-00003.gguf and so on (split.c). Whoever opens the
 * first sees them as one: the keys of the first, and the tensors of all, part by part.
 *
 *      first file   [ header, keys, entries | tensors' data ]     part 0
 *      second file  [ header, keys, entries | tensors' data ]     part 1 ...
 *                     copied at gguf_open     mapped
 *
 * Keys, names and strings are in memory of our own. The tensors' data show the files as they are
 * now: whoever truncates one in place makes the next read of a lost page raise SIGBUS, until the
 * weights have been copied too. Replace a model by renaming a new file over it.
 *
 * Thread: open and close on one thread; a struct gguf is immutable in between, so any may read. */
#ifndef WEIR_GGUF_GGUF_H
#define WEIR_GGUF_GGUF_H

#include "base/err.h"
#include "gguf/blocks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_MAX_DIMS 4

/* Types of metadata values, numbered as in the file. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

/* Bytes inside the mapping; not NUL-terminated, any bytes at all. */
struct gguf_str {
    const char *data;
    size_t len;
};

/* One metadata entry. Scalars and strings are decoded; an array is a view of its elements. */
struct gguf_kv {
    struct gguf_str key;
    enum gguf_kind kind;
    enum gguf_kind elem_kind; /* of an array */
    uint64_t n_elems;         /* of an array */
    const uint8_t *elems;     /* first element of an array, maybe unaligned */
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        struct gguf_str s;
    };
};

/* One tensor. ne[0] is the length of a row (the fastest dimension), a multiple of the type's block;
 * dims past n_dims are 1, none is 0. No two tensors overlap. `data` is aligned to 8 bytes or more
 * (from gguf_open_memory: relative to the start of the bytes). The type has a gguf_type_info but
 * need not be one that Weir computes. */
struct gguf_tensor {
    struct gguf_str name;
    enum gguf_type type;
    uint32_t n_dims;
    uint32_t part; /* the file that holds it: 0, but for split models */
    uint64_t ne[GGUF_MAX_DIMS];
    size_t n_bytes;
    const uint8_t *data;
};

struct gguf;

/* Map and check the file and, if it is the first of a split model, the others. On failure *out is
 * NULL and e says in one line what is wrong and where (file, key or tensor name, byte offset).
 * Errors: ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED, ERR_INVALID (not the first of a split model),
 * ERR_NOMEM. */
enum err gguf_open(const char *path, struct gguf **out, struct err_info *e) WEIR_MUST_USE;

/* The same over bytes in memory that outlive *out (for tests, fuzzers and embedded models): of one
 * file, so a part of a split model is ERR_UNSUPPORTED. */
enum err gguf_open_memory(const void *data, size_t n_bytes, struct gguf **out, struct err_info *e)
    WEIR_MUST_USE;

void gguf_close(struct gguf *g); /* NULL is fine */

uint32_t gguf_version(const struct gguf *g);
size_t gguf_file_bytes(const struct gguf *g); /* of all parts */
uint64_t gguf_hash(const struct gguf *g);     /* XXH3-64 of all files; reads all of them */
uint64_t gguf_n_kv(const struct gguf *g);
uint64_t gguf_n_tensors(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t i);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i);

/* The files: 1, or as many as the model is split over. A path is NULL from gguf_open_memory. */
uint32_t gguf_n_parts(const struct gguf *g);
const char *gguf_part_path(const struct gguf *g, uint32_t part);
size_t gguf_part_bytes(const struct gguf *g, uint32_t part);

/* Bytes from the start of the tensor's file to its data. */
size_t gguf_tensor_offset(const struct gguf *g, const struct gguf_tensor *t);

/* NULL when there is none. O(1). */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Typed access. Absent: *out keeps the default that the caller put there, and OK is returned.
 * Present with another kind (any integer kind serves for u32 if the value fits; F32 and F64 serve
 * for f32 if finite): ERR_FORMAT naming the key. gguf_get_str leaves a view into the file. */
enum err gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct err_info *e)
    WEIR_MUST_USE;
enum err gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err_info *e)
    WEIR_MUST_USE;
enum err gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err_info *e)
    WEIR_MUST_USE;
enum err gguf_get_str(const struct gguf *g,
                      const char *key,
                      struct gguf_str *out,
                      struct err_info *e) WEIR_MUST_USE;

/* Walk the strings of an array of kind GGUF_STRING: start with at = kv->elems and call n_elems
 * times. The lengths were checked by gguf_open. */
struct gguf_str gguf_next_str(const uint8_t **at);

/* Element i of an array, of any kind but GGUF_STRING, decoded as an entry without a key. */
struct gguf_kv gguf_elem(const struct gguf_kv *array, uint64_t i);

/* s as text that is safe to print on one line: control characters, direction marks and bytes that
 * are not UTF-8 become \xNN, quotes and backslashes are escaped, and what does not fit into `cap`
 * bytes (at least 8) is cut and ends in "...". Returns out, NUL-terminated. */
const char *gguf_show(struct gguf_str s, char *out, size_t cap);

/* Tell the system that the pages behind n bytes of a tensor, from byte `first` on, are no longer
 * needed (after repacking). The bytes stay readable: they are read from the file again. Pages that
 * they share with other bytes stay. No effect on gguf_open_memory, nor where the data is not
 * the file's own. Any thread. */
void gguf_drop_pages(const struct gguf *g, const struct gguf_tensor *t, size_t first, size_t n);

#endif
