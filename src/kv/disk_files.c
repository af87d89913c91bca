#include "kv/disk_files.h"

#include "base/hex.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MODEL_DIGITS = 16,
    SHARD_DIGITS = 2,
    KEY_DIGITS = 2 * KV_KEY_BYTES,
    MAX_DEPTH = 32, /* of strangers' folders: a descriptor each */
};

static const char lock_name[] = "lock";
static const char about_temporary[] = KV_FILE_ABOUT_NAME ".tmp";

#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* --- names ------------------------------------------------------------------------------------ */

uint64_t kv_file_model(const struct kv_key *fingerprint)
{
    uint64_t model = 0;
    for (int i = 0; i < 8; i++)
        model = model << 8 | fingerprint->bytes[i];
    return model;
}

static void key_name(const struct kv_key *key, const char *suffix, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < KV_KEY_BYTES; i++) {
        *out++ = digits[key->bytes[i] >> 4];
        *out++ = digits[key->bytes[i] & 15];
    }
    memcpy(out, suffix, strlen(suffix) + 1);
}

void kv_file_segment_name(const struct kv_key *key, char out[KV_FILE_NAME_BYTES])
{
    key_name(key, ".kv", out);
}

void kv_file_temporary_name(const struct kv_key *key, char out[KV_FILE_NAME_BYTES])
{
    key_name(key, ".tmp", out);
}

/* The first n_digits of s as bytes; false if they are not that many lower-case digits. */
static bool parse_hex(const char *s, int n_digits, uint8_t *out)
{
    for (int i = 0; i < n_digits; i++) {
        int digit = hex_digit(s[i]); /* the NUL is none, so this ends with s */
        if (digit < 0 || (s[i] >= 'A' && s[i] <= 'F'))
            return false;
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | digit : digit << 4);
    }
    return true;
}

/* --- folders ---------------------------------------------------------------------------------- */

enum err kv_files_open(const char *dir, bool create, int *fd, struct err_info *e)
{
    *fd = -1;
    if (create && mkdir(dir, 0700) != 0 && errno != EEXIST)
        return err_set(e, ERR_IO, "%s: cannot create: %s", dir, strerror(errno));
    /* the operator named it, so here a symbolic link is followed */
    *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd >= 0 ? OK : err_set(e, ERR_IO, "%s: cannot open: %s", dir, strerror(errno));
}

static int open_folder(int parent, const char *name, bool create)
{
    int fd = openat(parent, name, FOLDER_FLAGS);
    if (fd >= 0 || errno != ENOENT || !create)
        return fd;
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
        return -1;
    return openat(parent, name, FOLDER_FLAGS);
}

int kv_files_model_folder(int root, uint64_t model, bool create)
{
    char name[MODEL_DIGITS + 1];
    snprintf(name, sizeof name, "%016" PRIx64, model);
    return open_folder(root, name, create);
}

int kv_files_key_folder(int root, uint64_t model, const struct kv_key *key, bool create)
{
    char name[SHARD_DIGITS + 1];
    int parent = kv_files_model_folder(root, model, create);
    if (parent < 0)
        return -1;
    snprintf(name, sizeof name, "%02x", (unsigned)key->bytes[0]);
    int fd = open_folder(parent, name, create), saved = errno;
    close(parent);
    errno = saved;
    return fd;
}

/* --- the walk --------------------------------------------------------------------------------- */

enum level { LEVEL_ROOT, LEVEL_MODEL, LEVEL_SHARD, LEVEL_STRANGER };

struct walk {
    kv_file_fn fn;
    void *ctx;
};

struct place {
    enum level level;
    int depth;
    uint64_t model;
    uint8_t shard;
};

/* Seconds that no real clock shows are cut off, so that nanoseconds fit and can be counted on. */
static int64_t mtime_of(const struct stat *st)
{
    const int64_t max_seconds = INT64_MAX / 2 / 1000000000;
    int64_t seconds = st->st_mtim.tv_sec;
    if (seconds < 0)
        return 0;
    return seconds >= max_seconds ? max_seconds * 1000000000
                                  : seconds * 1000000000 + st->st_mtim.tv_nsec;
}

static enum kv_file_kind kind_in_shard(const struct place *at, const char *name, struct kv_key *key)
{
    if (!parse_hex(name, KEY_DIGITS, key->bytes) || key->bytes[0] != at->shard)
        return KV_FILE_STRANGER;
    if (strcmp(name + KEY_DIGITS, ".kv") == 0)
        return KV_FILE_SEGMENT;
    return strcmp(name + KEY_DIGITS, ".tmp") == 0 ? KV_FILE_TEMPORARY : KV_FILE_STRANGER;
}

static enum kv_file_kind kind_of(const struct place *at, const char *name, struct kv_key *key)
{
    if (at->level == LEVEL_SHARD)
        return kind_in_shard(at, name, key);
    if (at->level == LEVEL_ROOT && strcmp(name, lock_name) == 0)
        return KV_FILE_LOCK;
    if (at->level == LEVEL_MODEL && strcmp(name, KV_FILE_ABOUT_NAME) == 0)
        return KV_FILE_ABOUT;
    if (at->level == LEVEL_MODEL && strcmp(name, about_temporary) == 0)
        return KV_FILE_TEMPORARY;
    return KV_FILE_STRANGER;
}

static void show_file(const struct walk *w,
                      const struct place *at,
                      int folder,
                      const char *name,
                      const struct stat *st)
{
    struct kv_file f = {.kind = KV_FILE_STRANGER,
                        .folder = folder,
                        .name = name,
                        .model = at->model,
                        .bytes = (uint64_t)st->st_size,
                        .mtime_ns = mtime_of(st)};
    if (S_ISREG(st->st_mode))
        f.kind = kind_of(at, name, &f.key);
    w->fn(w->ctx, &f);
}

static struct place place_below(const struct place *at, const char *name)
{
    struct place below = {.level = LEVEL_STRANGER, .depth = at->depth + 1, .model = at->model};
    uint8_t bytes[MODEL_DIGITS / 2];
    struct kv_key fingerprint = {{0}};
    if (at->level == LEVEL_ROOT && parse_hex(name, MODEL_DIGITS, bytes) && !name[MODEL_DIGITS]) {
        memcpy(fingerprint.bytes, bytes, sizeof bytes);
        below.level = LEVEL_MODEL;
        below.model = kv_file_model(&fingerprint);
    } else if (at->level == LEVEL_MODEL && parse_hex(name, SHARD_DIGITS, bytes) &&
               !name[SHARD_DIGITS]) {
        below.level = LEVEL_SHARD;
        below.shard = bytes[0];
    }
    return below;
}

static bool walk_folder(struct walk *w, const struct place *at, int fd);

/* What is of no use to us may be unreadable. But a folder of segments that is not listed would not
 * be in the sum of bytes, so that is an error. */
static bool walk_inner(struct walk *w, const struct place *at, int folder, const char *name)
{
    struct place below = place_below(at, name);
    int fd = below.depth < MAX_DEPTH ? openat(folder, name, FOLDER_FLAGS) : -1;
    if (fd < 0 && errno == ENOENT) /* gone meanwhile */
        return true;
    if (fd >= 0 && walk_folder(w, &below, fd))
        return true;
    if (below.level != LEVEL_STRANGER)
        return false;
    struct kv_file f = {
        .kind = KV_FILE_STRANGER, .folder = folder, .name = name, .model = below.model};
    w->fn(w->ctx, &f);
    return true;
}

static bool walk_entry(struct walk *w, const struct place *at, int folder, const char *name)
{
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return true;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT;
    if (S_ISDIR(st.st_mode))
        return walk_inner(w, at, folder, name);
    show_file(w, at, folder, name, &st);
    return true;
}

/* Takes over fd. false and errno: not all could be read. */
static bool walk_folder(struct walk *w, const struct place *at, int fd)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return false;
    }
    struct dirent *entry;
    bool ok = true;
    while (ok && (errno = 0, (entry = readdir(dir))))
        ok = walk_entry(w, at, fd, entry->d_name);
    int saved = errno;
    closedir(dir);
    errno = saved;
    return ok && saved == 0;
}

enum err kv_files_walk(int root, const char *dir, kv_file_fn fn, void *ctx, struct err_info *e)
{
    struct walk w = {fn, ctx};
    struct place at = {.level = LEVEL_ROOT};
    /* opened anew, as a duplicate would share the position of the other's reading */
    int fd = openat(root, ".", FOLDER_FLAGS);
    if (fd < 0 || !walk_folder(&w, &at, fd))
        return err_set(e, ERR_IO, "%s: cannot list it all: %s", dir, strerror(errno));
    return OK;
}

/* --- the lock --------------------------------------------------------------------------------- */

bool kv_files_lock_valid(int root, int lock)
{
    struct stat ours, named;
    return fstat(lock, &ours) == 0 && fstatat(root, lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

/* flock, not fcntl: fcntl's locks vanish when any descriptor of the file is closed anywhere in the
 * process, and two openers in one process would not keep each other out. */
int kv_files_lock(int root, bool create)
{
    const int flags = O_RDWR | (create ? O_CREAT : 0) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    for (int tries = 0; tries < 100; tries++) {
        int fd = openat(root, lock_name, flags, 0600);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            int saved = errno;
            close(fd);
            errno = saved;
            return -1;
        }
        if (kv_files_lock_valid(root, fd))
            return fd;
        close(fd); /* gone between opening and locking: there may be a new one */
    }
    errno = ESTALE; /* a file system that does not know its own files again */
    return -1;
}

/* Only an empty folder can be removed, so trying is how to look. */
static void remove_unused(int root, const char *name)
{
    int model = openat(root, name, FOLDER_FLAGS);
    if (model < 0)
        return;
    bool used = false;
    for (unsigned i = 0; i < 256; i++) {
        char shard[SHARD_DIGITS + 1];
        snprintf(shard, sizeof shard, "%02x", i);
        used |= unlinkat(model, shard, AT_REMOVEDIR) != 0 && errno != ENOENT;
    }
    if (!used) {
        (void)unlinkat(model, KV_FILE_ABOUT_NAME, 0);
        (void)unlinkat(root, name, AT_REMOVEDIR);
    }
    close(model);
}

void kv_files_prune(int root, const uint64_t *keep)
{
    int fd = openat(root, ".", FOLDER_FLAGS);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    struct place top = {.level = LEVEL_ROOT};
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct place at = place_below(&top, entry->d_name);
        if (at.level == LEVEL_MODEL && (!keep || at.model != *keep))
            remove_unused(fd, entry->d_name);
    }
    closedir(dir);
}
