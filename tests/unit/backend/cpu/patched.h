/* Files of small models, of which a test writes over some bytes, and what loading them says. Needs
 * cmocka.h first. */
#ifndef WEIR_TESTS_CPU_PATCHED_H
#define WEIR_TESTS_CPU_PATCHED_H

#include "backend/backend.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    uint8_t *data; /* whoever asked for them frees it */
    size_t n;
};

static inline struct bytes read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    struct bytes b = {.n = (size_t)ftell(f)};
    rewind(f);
    b.data = malloc(b.n);
    assert_int_equal(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

/* Where the entry with this key or name goes on behind its name. */
static inline uint8_t *behind(struct bytes b, const char *name)
{
    uint64_t len = strlen(name);
    for (size_t at = 0; at + sizeof len + len + 64 < b.n; at++) {
        uint8_t *p = b.data + at;
        if (memcmp(p, &len, sizeof len) == 0 && memcmp(p + sizeof len, name, len) == 0)
            return p + sizeof len + len;
    }
    fail_msg("no %s in the seed", name);
    return NULL;
}

static inline enum err load(struct bytes b, struct model **m, struct err_info *e)
{
    struct gguf *g;
    enum err err = gguf_open_memory(b.data, b.n, &g, e);
    return err ? err : model_from_gguf(g, "patched", m, e);
}

/* Load, and compile for the CPU: fewer bytes of KV memory than any request would need. */
static inline enum err load_all(struct bytes b, struct err_info *e)
{
    struct model *m = NULL;
    struct backend *backend;
    const struct backend_config cfg = {.n_threads = 1,
                                       .kv_type = KV_F32,
                                       .n_blocks = 1,
                                       .n_states = 1,
                                       .block_tokens = 16,
                                       .max_rows = 1,
                                       .max_seqs = 1,
                                       .max_logit_rows = 1};
    *e = (struct err_info){0};
    enum err err = load(b, &m, e);
    if (!err)
        err = cpu_backend_create(m, &cfg, &backend, e);
    if (!err)
        backend->ops->destroy(backend);
    model_destroy(m);
    return err;
}

#endif
