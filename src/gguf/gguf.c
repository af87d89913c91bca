#include "gguf/gguf.h"

#include "gguf/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static struct gguf_str str_of(const char *s)
{
    return (struct gguf_str){s, strlen(s)};
}

/* The end of a path, printable: it begins every error text, so it has to leave room for the rest.
 */
static const char *label_of(const char *path, char *out, size_t cap)
{
    size_t len = strlen(path), keep = cap - 4;
    return gguf_show(
        (struct gguf_str){path + (len > keep ? len - keep : 0), len > keep ? keep : len}, out, cap);
}

/* Takes over `map`, which is NULL if the bytes are the caller's. */
static enum err open_bytes(const uint8_t *base,
                           void *map,
                           size_t n_bytes,
                           const char *label,
                           struct gguf **out,
                           struct err_info *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g) {
        if (map)
            munmap(map, n_bytes);
        return err_set(e, ERR_NOMEM, "%s: out of memory", label);
    }
    g->base = base;
    g->map = map;
    g->n_bytes = n_bytes;
    enum err err = gguf_parse(g, label, e);
    if (err) {
        gguf_close(g);
        return err;
    }
    *out = g;
    return OK;
}

/* Map a regular file of at least one byte. */
static enum err map_file(
    const char *path, const char *label, void **map, size_t *n_bytes, struct err_info *e)
{
    struct stat st;
    enum err err = OK;
    /* not blocking, so that a FIFO is refused below instead of waited for */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = err_set(e, ERR_IO, "%s: cannot open: %s", label, strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        err = err_set(e, ERR_IO, "%s: not a regular file", label);
        goto out;
    }
    if (st.st_size == 0) {
        err = err_set(e, ERR_FORMAT, "%s: the file is empty", label);
        goto out;
    }
    *n_bytes = (size_t)st.st_size;
    *map = mmap(NULL, *n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (*map == MAP_FAILED)
        err = err_set(e, ERR_IO, "%s: cannot map %zu bytes: %s", label, *n_bytes, strerror(errno));
out:
    if (fd >= 0)
        close(fd);
    return err;
}

enum err gguf_open(const char *path, struct gguf **out, struct err_info *e)
{
    char label[96];
    void *map = NULL;
    size_t n_bytes = 0;
    *out = NULL;
    label_of(path, label, sizeof label);
    enum err err = map_file(path, label, &map, &n_bytes, e);
    return err ? err : open_bytes(map, map, n_bytes, label, out, e);
}

enum err gguf_open_memory(const void *data, size_t n_bytes, struct gguf **out, struct err_info *e)
{
    *out = NULL;
    return open_bytes(data, NULL, n_bytes, "GGUF in memory", out, e);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    if (g->map)
        munmap(g->map, g->n_bytes);
    gguf_index_deinit(&g->kv_index);
    gguf_index_deinit(&g->tensor_index);
    free(g->kv);
    free(g->tensors);
    free(g);
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

uint64_t gguf_hash(const struct gguf *g)
{
    return XXH3_64bits(g->base, g->n_bytes);
}

size_t gguf_file_bytes(const struct gguf *g)
{
    return g->n_bytes;
}

uint64_t gguf_n_kv(const struct gguf *g)
{
    return g->n_kv;
}

uint64_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t i)
{
    return &g->kv[i];
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    return &g->tensors[i];
}

size_t gguf_tensor_offset(const struct gguf *g, const struct gguf_tensor *t)
{
    return (size_t)(t->data - g->base);
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return gguf_index_find(&g->kv_index, str_of(key));
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    return gguf_index_find(&g->tensor_index, str_of(name));
}

void gguf_drop_pages(const struct gguf *g, const struct gguf_tensor *t, size_t first, size_t n)
{
    if (!g->map)
        return;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = gguf_tensor_offset(g, t) + first;
    const size_t from = (begin + page - 1) / page * page, to = (begin + n) / page * page;
    if (from < to)
        (void)madvise((char *)g->map + from, to - from, MADV_DONTNEED);
}
