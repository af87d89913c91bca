/* GGUF files built in memory, piece by piece and with no checks, so that any can be wrong. */
#ifndef WEIR_TEST_FILE_BUILDER_H
#define WEIR_TEST_FILE_BUILDER_H

#include "base/buf.h"
#include "gguf/gguf.h"

#include <string.h>

static inline void put_u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, sizeof v);
}

static inline void put_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof v);
}

static inline void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    buf_str(b, s);
}

static inline void put_header(struct buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    buf_str(b, "GGUF");
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_kv);
}

static inline void put_key(struct buf *b, const char *key, uint32_t kind)
{
    put_str(b, key);
    put_u32(b, kind);
}

static inline void put_kv(struct buf *b, const char *key, uint32_t kind, const void *v, size_t n)
{
    put_key(b, key, kind);
    buf_add(b, v, n);
}

static inline void put_kv_u32(struct buf *b, const char *key, uint32_t v)
{
    put_kv(b, key, GGUF_U32, &v, sizeof v);
}

static inline void put_array(struct buf *b, const char *key, uint32_t elem_kind, uint64_t n)
{
    put_key(b, key, GGUF_ARRAY);
    put_u32(b, elem_kind);
    put_u64(b, n);
}

/* A tensor of two dimensions. */
static inline void put_tensor(
    struct buf *b, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, 2);
    put_u64(b, ne0);
    put_u64(b, ne1);
    put_u32(b, type);
    put_u64(b, offset);
}

static inline void put_padding(struct buf *b, size_t alignment)
{
    while (b->len % alignment)
        buf_char(b, 0);
}

static inline void put_data(struct buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_char(b, (char)i);
}

#endif
