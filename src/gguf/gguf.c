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

const char *gguf_label(const char *path, char out[GGUF_LABEL_BYTES])
{
    size_t len = strlen(path), keep = GGUF_LABEL_BYTES - 4;
    return gguf_show(
        (struct gguf_str){path + (len > keep ? len - keep : 0), len > keep ? keep : len},
        out,
        GGUF_LABEL_BYTES);
}

static void unparse(struct gguf *g)
{
    gguf_index_deinit(&g->kv_index);
    gguf_index_deinit(&g->tensor_index);
    free(g->kv);
    free(g->tensors);
    g->kv = NULL;
    g->tensors = NULL;
    g->n_kv = g->n_tensors = 0;
}

/* Map a regular file of at least one byte. */
static enum err map_file(struct gguf *g, const char *label, struct err_info *e)
{
    struct stat st;
    enum err err = OK;
    /* not blocking, so that a FIFO is refused below instead of waited for */
    int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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
    size_t n = (size_t)st.st_size;
    void *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        err = err_set(e, ERR_IO, "%s: cannot map %zu bytes: %s", label, n, strerror(errno));
        goto out;
    }
    g->base = g->map = map;
    g->n_bytes = n;
out:
    if (fd >= 0)
        close(fd);
    return err;
}

/* Put memory of our own, with the same bytes, in place of the pages that hold the metadata. From
 * here on no change of the file reaches what has been checked, nor the strings that others hold. */
static enum err own_metadata(struct gguf *g, const char *label, struct err_info *e)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t n = (g->n_meta_bytes + page - 1) / page * page;
    void *own = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return err_set(e, ERR_NOMEM, "%s: no memory for %zu bytes of metadata", label, n);
    memcpy(own, g->base, n < g->n_bytes ? n : g->n_bytes);
    if (mprotect(own, n, PROT_READ) != 0 ||
        mremap(own, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, g->map) == MAP_FAILED) {
        munmap(own, n);
        return err_set(e, ERR_NOMEM, "%s: cannot map %zu bytes of metadata", label, n);
    }
    return OK;
}

/* Parsed twice: where the metadata end is known only then, and they may change until copied. What
 * then ends behind the copy would be read from pages that go on changing. */
static enum err open_mapped(struct gguf *g, const char *label, struct err_info *e)
{
    enum err err = map_file(g, label, e);
    if (err || (err = gguf_parse(g, label, e)) || (err = own_metadata(g, label, e)))
        return err;
    const size_t n_copied = g->n_meta_bytes;
    unparse(g);
    err = gguf_parse(g, label, e);
    if (!err && g->n_meta_bytes > n_copied)
        err = err_set(e, ERR_IO, "%s: the file changed while it was opened", label);
    return err;
}

enum err gguf_open_one(const char *path, struct gguf **out, struct err_info *e)
{
    char label[GGUF_LABEL_BYTES];
    struct gguf *g = calloc(1, sizeof *g);
    *out = NULL;
    gguf_label(path, label);
    if (!g || !(g->path = strdup(path))) {
        free(g);
        return err_set(e, ERR_NOMEM, "%s: out of memory", label);
    }
    enum err err = open_mapped(g, label, e);
    if (err) {
        gguf_close(g);
        return err;
    }
    *out = g;
    return OK;
}

enum err gguf_open(const char *path, struct gguf **out, struct err_info *e)
{
    enum err err = gguf_open_one(path, out, e);
    if (!err && (err = gguf_open_parts(*out, e))) {
        gguf_close(*out);
        *out = NULL;
    }
    return err;
}

enum err gguf_open_memory(const void *data, size_t n_bytes, struct gguf **out, struct err_info *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return err_set(e, ERR_NOMEM, "GGUF in memory: out of memory");
    g->base = data;
    g->n_bytes = n_bytes;
    enum err err = gguf_parse(g, "GGUF in memory", e);
    if (err || (err = gguf_open_parts(g, e))) {
        gguf_close(g);
        return err;
    }
    *out = g;
    return OK;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (uint32_t i = 1; i < g->n_parts; i++)
        gguf_close(g->parts[i - 1]);
    if (g->map)
        munmap(g->map, g->n_bytes);
    unparse(g);
    free(g->parts);
    free(g->path);
    free(g);
}

/* The file that part `i` is. */
static const struct gguf *part_of(const struct gguf *g, uint32_t i)
{
    return i == 0 ? g : g->parts[i - 1];
}

uint32_t gguf_n_parts(const struct gguf *g)
{
    return g->n_parts > 1 ? g->n_parts : 1;
}

const char *gguf_part_path(const struct gguf *g, uint32_t part)
{
    return part_of(g, part)->path;
}

size_t gguf_part_bytes(const struct gguf *g, uint32_t part)
{
    return part_of(g, part)->n_bytes;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

uint64_t gguf_hash(const struct gguf *g)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t hash = 0;
    if (!state || XXH3_64bits_reset(state) != XXH_OK)
        abort(); /* half a kilobyte */
    for (uint32_t i = 0; i < gguf_n_parts(g); i++)
        (void)XXH3_64bits_update(state, part_of(g, i)->base, part_of(g, i)->n_bytes);
    hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

size_t gguf_file_bytes(const struct gguf *g)
{
    size_t n = 0;
    for (uint32_t i = 0; i < gguf_n_parts(g); i++)
        n += gguf_part_bytes(g, i);
    return n;
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
    return (size_t)(t->data - part_of(g, t->part)->base);
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
    char *map = part_of(g, t->part)->map;
    if (!map || gguf_tensor_offset(g, t) >= part_of(g, t->part)->n_bytes) /* not of the file */
        return;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), begin = gguf_tensor_offset(g, t) + first;
    const size_t from = (begin + page - 1) / page * page, to = (begin + n) / page * page;
    if (from < to)
        (void)madvise(map + from, to - from, MADV_DONTNEED);
}
