#include "gguf/write.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/seed.h"
#include "gguf/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUANTIZATION_VERSION = 2 }; /* of the blocks: what blocks.h describes */

#define FILE_TYPE_KEY "general.file_type"
#define VERSION_KEY "general.quantization_version"

struct gguf_writer {
    char *path, *target, *part; /* as given; links followed; what is written, beside it */
    int fd;
    mode_t mode; /* of the file in whose place this comes; 0: there is none */
    bool created;
    uint32_t alignment;
    uint64_t at;      /* bytes written */
    uint64_t n_bytes; /* of the whole */
    size_t *left;     /* [n_tensors] data still to come */
    uint64_t tensor, n_tensors;
};

static enum err io_error(const struct gguf_writer *w, const char *what, struct err_info *e)
{
    return err_set(e, ERR_IO, "%s: cannot %s: %s", w->path, what, strerror(errno));
}

static enum err put(struct gguf_writer *w, const void *bytes, size_t n, struct err_info *e)
{
    const char *at = bytes;
    while (n > 0) {
        const ssize_t done = write(w->fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return io_error(w, "write", e);
        at += done;
        n -= (size_t)done;
        w->at += (uint64_t)done;
    }
    return OK;
}

static void put_u32(struct buf *b, uint32_t x)
{
    buf_add(b, &x, sizeof x);
}

static void put_u64(struct buf *b, uint64_t x)
{
    buf_add(b, &x, sizeof x);
}

static void put_str(struct buf *b, struct gguf_str s)
{
    put_u64(b, s.len);
    buf_add(b, s.data, s.len);
}

/* Bytes of an array's elements; of strings with their lengths. */
static size_t elems_bytes(const struct gguf_kv *kv)
{
    const uint8_t *at = kv->elems;
    if (kv->elem_kind != GGUF_STRING)
        return (size_t)kv->n_elems * gguf_kind_bytes(kv->elem_kind);
    for (uint64_t i = 0; i < kv->n_elems; i++)
        (void)gguf_next_str(&at);
    return (size_t)(at - kv->elems);
}

static void put_kv(struct buf *b, const struct gguf_kv *kv)
{
    put_str(b, kv->key);
    put_u32(b, kv->kind);
    if (kv->kind == GGUF_STRING) {
        put_str(b, kv->s);
    } else if (kv->kind == GGUF_ARRAY) {
        put_u32(b, kv->elem_kind);
        put_u64(b, kv->n_elems);
        buf_add(b, kv->elems, elems_bytes(kv));
    } else if (kv->kind == GGUF_F32) {
        const float f = (float)kv->f;
        buf_add(b, &f, sizeof f);
    } else if (kv->kind == GGUF_BOOL) {
        buf_char(b, kv->b);
    } else { /* little endian: the low bytes of the union */
        buf_add(b, &kv->u, gguf_kind_bytes(kv->kind));
    }
}

static void put_kv_u32(struct buf *b, const char *key, uint32_t x)
{
    put_kv(b, &(struct gguf_kv){.key = {key, strlen(key)}, .kind = GGUF_U32, .u = x});
}

/* What is set anew, or would say that the file is one of several. */
static bool is_left_out(const struct gguf_kv *kv)
{
    static const char *const keys[] = {
        FILE_TYPE_KEY, VERSION_KEY, "split.no", "split.count", "split.tensors.count"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (kv->key.len == strlen(keys[i]) && memcmp(kv->key.data, keys[i], kv->key.len) == 0)
            return true;
    }
    return false;
}

static void put_all_kv(struct buf *b, const struct gguf *g, uint32_t file_type)
{
    for (uint64_t i = 0; i < g->n_kv; i++) {
        if (!is_left_out(&g->kv[i]))
            put_kv(b, &g->kv[i]);
    }
    put_kv_u32(b, VERSION_KEY, QUANTIZATION_VERSION);
    put_kv_u32(b, FILE_TYPE_KEY, file_type);
}

static uint64_t n_keys(const struct gguf *g)
{
    uint64_t n = 2;
    for (uint64_t i = 0; i < g->n_kv; i++)
        n += !is_left_out(&g->kv[i]);
    return n;
}

static uint64_t padded(uint64_t n, uint32_t alignment)
{
    return (n + alignment - 1) / alignment * alignment;
}

/* Everything before the data. Sizes cannot overflow: no type takes more bytes a value than f64,
 * and the values of a tensor were counted in 64 bits by the parser; they are checked all the same.
 */
static enum err put_head(struct gguf_writer *w,
                         const struct gguf *g,
                         const enum gguf_type *types,
                         uint32_t file_type,
                         struct buf *b,
                         struct err_info *e)
{
    uint64_t offset = 0;
    buf_str(b, "GGUF");
    put_u32(b, 3);
    put_u64(b, g->n_tensors);
    put_u64(b, n_keys(g));
    put_all_kv(b, g, file_type);
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const struct gguf_type_info *info = gguf_type_info(types[i]);
        size_t n = (size_t)(t->ne[0] / info->block_values);
        bool fits = mem_mul(n, info->block_bytes, &n);
        for (int d = 1; d < GGUF_MAX_DIMS; d++)
            fits = fits && mem_mul(n, (size_t)t->ne[d], &n);
        if (!fits || n > INT64_MAX / 2 || offset > INT64_MAX / 2)
            return err_set(e, ERR_UNSUPPORTED, "%s: the file would be too large", w->path);
        put_str(b, t->name);
        put_u32(b, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++)
            put_u64(b, t->ne[d]);
        put_u32(b, types[i]);
        put_u64(b, offset);
        w->left[i] = n;
        offset = padded(offset + n, w->alignment);
    }
    while (b->len % w->alignment != 0)
        buf_char(b, 0);
    w->n_bytes = b->len + offset;
    return OK;
}

/* Where the links of path lead: to a regular file, or to what does not exist yet. The rename at the
 * end would replace anything else, a device or a pipe. */
static enum err find_target(struct gguf_writer *w, struct err_info *e)
{
    struct stat st;
    w->target = realpath(w->path, NULL);
    if (w->target ? stat(w->target, &st) != 0 : errno != ENOENT || !w->path[0])
        return io_error(w, "create", e);
    if (w->target ? !S_ISREG(st.st_mode) : lstat(w->path, &st) == 0) /* a link to nothing */
        return err_set(e, ERR_IO, "%s: exists, and is no regular file", w->path);
    w->mode = w->target ? st.st_mode & 0777 : 0;
    if (!w->target)
        w->target = mem_strdup(w->path);
    return OK;
}

/* In the same folder; its name is short, for that of the file may be as long as names can be. */
static enum err open_part(struct gguf_writer *w, struct err_info *e)
{
    const char *slash = strrchr(w->target, '/');
    const int n_folder = slash ? (int)(slash + 1 - w->target) : 0;
    const size_t n = (size_t)n_folder + 32;
    w->part = mem_alloc(n);
    snprintf(w->part,
             n,
             "%.*sweir-%016llx.part",
             n_folder,
             w->target,
             (unsigned long long)seed_random());
    w->fd = open(w->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    w->created = w->fd >= 0;
    struct stat st;
    const bool differs = w->created && w->mode && fstat(w->fd, &st) == 0 &&
                         (st.st_mode & 0777) != w->mode; /* some file systems have one for all */
    if (differs && fchmod(w->fd, w->mode) != 0)
        return io_error(w, "set the mode of", e);
    return w->created ? OK : io_error(w, "create", e);
}

/* A full disk is better known now than after minutes. */
static enum err take_room(const struct gguf_writer *w, struct err_info *e)
{
    if (w->n_bytes == 0 || fallocate(w->fd, 0, 0, (off_t)w->n_bytes) == 0 || errno == EOPNOTSUPP ||
        errno == ENOSYS || errno == EINTR)
        return OK;
    return err_set(e,
                   ERR_IO,
                   "%s: no room for %llu bytes: %s",
                   w->path,
                   (unsigned long long)w->n_bytes,
                   strerror(errno));
}

enum err gguf_write_begin(const char *path,
                          const struct gguf *g,
                          const enum gguf_type *types,
                          uint32_t file_type,
                          struct gguf_writer **out,
                          struct err_info *e)
{
    struct gguf_writer *w = mem_zalloc(1, sizeof *w);
    struct buf head = {0};
    *out = NULL;
    w->path = mem_strdup(path);
    w->fd = -1;
    w->alignment = 32;
    w->n_tensors = g->n_tensors;
    w->left = mem_zalloc(g->n_tensors ? g->n_tensors : 1, sizeof *w->left);
    enum err err = gguf_get_u32(g, "general.alignment", &w->alignment, e);
    if (!err)
        err = find_target(w, e);
    if (!err)
        err = put_head(w, g, types, file_type, &head, e); /* the last that is read of g here */
    if (!err)
        err = open_part(w, e);
    if (!err)
        err = take_room(w, e);
    if (!err)
        err = put(w, head.data, head.len, e);
    buf_deinit(&head);
    if (err)
        gguf_write_abort(w);
    else
        *out = w;
    return err;
}

size_t gguf_write_bytes(const struct gguf_writer *w)
{
    return (size_t)w->n_bytes;
}

const char *gguf_write_part(const struct gguf_writer *w)
{
    return w->part;
}

/* Zeros up to the next tensor's place. */
static enum err pad(struct gguf_writer *w, struct err_info *e)
{
    static const char zeros[4096];
    enum err err = OK;
    while (!err && w->at % w->alignment != 0) {
        const size_t n = w->alignment - (size_t)(w->at % w->alignment);
        err = put(w, zeros, n < sizeof zeros ? n : sizeof zeros, e);
    }
    return err;
}

enum err gguf_write_data(struct gguf_writer *w, const void *bytes, size_t n, struct err_info *e)
{
    assert(w->tensor < w->n_tensors && n <= w->left[w->tensor]);
    enum err err = put(w, bytes, n, e);
    w->left[w->tensor] -= n;
    if (err || w->left[w->tensor] > 0)
        return err;
    w->tensor++;
    return pad(w, e);
}

static void free_writer(struct gguf_writer *w)
{
    free(w->path);
    free(w->target);
    free(w->part);
    free(w->left);
    free(w);
}

enum err gguf_write_end(struct gguf_writer *w, struct err_info *e)
{
    enum err err = OK;
    assert(w->tensor == w->n_tensors && w->at == w->n_bytes);
    if (fsync(w->fd) != 0)
        err = io_error(w, "write", e);
    if (close(w->fd) != 0 && !err)
        err = io_error(w, "write", e);
    w->fd = -1;
    if (!err && rename(w->part, w->target) != 0)
        err = io_error(w, "rename to it", e);
    if (err)
        gguf_write_abort(w);
    else
        free_writer(w);
    return err;
}

void gguf_write_abort(struct gguf_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->created)
        unlink(w->part);
    free_writer(w);
}
