/* Folders, and small files that are there whole or not at all. */
#include "base/mem.h"
#include "batches/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_JSON_BYTES (1u << 20)

enum err disk_open_folder(int at, const char *path, int *fd, struct err_info *e)
{
    if (mkdirat(at, path, 0700) != 0 && errno != EEXIST)
        return err_set(e, ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    *fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    return OK;
}

enum err disk_lock(int at, const char *dir, int *fd, struct err_info *e)
{
    *fd = openat(at, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return err_set(e, ERR_IO, "%s/lock: %s", dir, strerror(errno));
    /* The file may be removed while one server works: so the folder is locked as well, where the
     * file system locks folders (NFS does not). */
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0 ||
        (flock(at, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK))
        return err_set(e, ERR_IO, "%s: another server works there", dir);
    return OK;
}

bool disk_write_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        data += done;
        n -= (size_t)done;
    }
    return true;
}

void disk_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Clients may read of a full disk: it says nothing of our files. */
static enum err not_written(const char *name, int why, struct err_info *e)
{
    if (why == ENOSPC || why == EDQUOT)
        return err_set(e, ERR_FULL, "the disk that files and batches are kept on is full");
    return err_set(e, ERR_IO, "%s: %s", name, strerror(why));
}

enum err disk_write(int fd, const char *name, const void *data, size_t n, struct err_info *e)
{
    char aside[80];
    snprintf(aside, sizeof aside, "%s.tmp", name);
    int f = openat(fd, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f < 0)
        return not_written(aside, errno, e);
    bool ok = disk_write_all(f, data, n) && fsync(f) == 0;
    int why = errno;
    if (close(f) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok && (renameat(fd, aside, fd, name) != 0 || fsync(fd) != 0)) {
        ok = false;
        why = errno;
    }
    if (ok)
        return OK;
    (void)unlinkat(fd, aside, 0);
    return not_written(name, why, e);
}

enum err disk_write_json(int fd, const char *name, const json_t *v, struct err_info *e)
{
    char *text = json_dumps(v, JSON_COMPACT);
    if (!text)
        return err_set(e, ERR_NOMEM, "no memory to write %s", name);
    enum err err = disk_write(fd, name, text, strlen(text), e);
    free(text);
    return err;
}

enum err disk_read_json(int fd, const char *name, json_t **out, struct err_info *e)
{
    struct stat st;
    *out = NULL;
    int f = openat(fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (f < 0)
        return err_set(e, ERR_IO, "%s: %s", name, strerror(errno));
    if (fstat(f, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)MAX_JSON_BYTES) {
        close(f);
        return err_set(e, ERR_FORMAT, "%s: not a small file", name);
    }
    json_t *v = json_loadfd(f, JSON_REJECT_DUPLICATES, NULL);
    close(f);
    if (!json_is_object(v)) {
        json_decref(v);
        return err_set(e, ERR_FORMAT, "%s: not a JSON object", name);
    }
    *out = v;
    return OK;
}

static json_t *value_of(const struct disk_field *f, const void *from)
{
    const void *at = (const char *)from + f->at;
    switch (f->kind) {
    case DISK_TEXT:
        return json_string(at);
    case DISK_OWN:
        return json_string(*(char *const *)at);
    case DISK_COUNT:
        return json_integer(*(const uint32_t *)at);
    case DISK_LONG:
        return json_integer(*(const int64_t *)at);
    case DISK_JSON:
        break;
    }
    return json_incref(*(json_t *const *)at);
}

json_t *disk_pack(const struct disk_field *fields, size_t n, const void *from)
{
    json_t *v = json_object();
    for (size_t i = 0; v && i < n; i++) {
        if (json_object_set_new(v, fields[i].name, value_of(&fields[i], from)) != 0) {
            json_decref(v);
            v = NULL;
        }
    }
    return v;
}

static bool read_field(const struct disk_field *f, json_t *v, void *to)
{
    void *at = (char *)to + f->at;
    switch (f->kind) {
    case DISK_TEXT:
        if (json_is_string(v))
            snprintf(at, f->cap, "%s", json_string_value(v));
        return json_is_string(v);
    case DISK_OWN:
        if (json_is_string(v))
            *(char **)at = mem_strdup(json_string_value(v));
        return json_is_string(v);
    case DISK_COUNT:
        *(uint32_t *)at = (uint32_t)json_integer_value(v);
        return json_is_integer(v);
    case DISK_LONG:
        *(int64_t *)at = json_integer_value(v);
        return json_is_integer(v);
    case DISK_JSON:
        break;
    }
    *(json_t **)at = json_incref(v);
    return v;
}

bool disk_unpack(const struct disk_field *fields, size_t n, const json_t *v, void *to)
{
    for (size_t i = 0; i < n; i++)
        if (!read_field(&fields[i], json_object_get(v, fields[i].name), to))
            return false;
    return true;
}

enum err disk_each(int fd,
                   const char *suffix,
                   void (*fn)(void *ctx, const char *stem),
                   void *ctx,
                   struct err_info *e)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d) {
        if (copy >= 0)
            close(copy);
        return err_set(e, ERR_IO, "cannot list a folder: %s", strerror(errno));
    }
    rewinddir(d);
    for (const struct dirent *entry; errno = 0, (entry = readdir(d));) {
        char stem[BATCH_ID_BYTES];
        size_t n = strlen(entry->d_name), n_suffix = strlen(suffix);
        if (n <= n_suffix || n - n_suffix >= sizeof stem ||
            strcmp(entry->d_name + n - n_suffix, suffix) != 0)
            continue;
        memcpy(stem, entry->d_name, n - n_suffix);
        stem[n - n_suffix] = '\0';
        fn(ctx, stem);
    }
    const int why = errno;
    closedir(d);
    return why ? err_set(e, ERR_IO, "cannot list a folder: %s", strerror(why)) : OK;
}
