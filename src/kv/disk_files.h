/* The names below a cache folder (disk.h draws them), opened and walked without following a
 * symbolic link. A link, or a file with another name, is a stranger's: counted, never touched.
 *
 * Thread: any. What another process does to the folder meanwhile is seen or not; nothing breaks. */
#ifndef WEIR_KV_DISK_FILES_H
#define WEIR_KV_DISK_FILES_H

#include "kv/key.h"

enum kv_file_kind {
    KV_FILE_SEGMENT,
    KV_FILE_TEMPORARY, /* a segment or about line that was not finished */
    KV_FILE_ABOUT,
    KV_FILE_LOCK,
    KV_FILE_STRANGER,
};

enum { KV_FILE_NAME_BYTES = 2 * KV_KEY_BYTES + 8 }; /* "<64 hex>.tmp" */
#define KV_FILE_ABOUT_NAME "about"

struct kv_file {
    enum kv_file_kind kind;
    int folder;        /* descriptor of what holds it; the walk's */
    const char *name;  /* in that folder; the walk's */
    uint64_t model;    /* kv_file_model, where the folder is a model's; 0 elsewhere */
    struct kv_key key; /* of a segment */
    uint64_t bytes;    /* st_size */
    int64_t mtime_ns;  /* since 1970, in [0, INT64_MAX / 2] */
};

typedef void (*kv_file_fn)(void *ctx, const struct kv_file *f);

/* The name of a model's folder: the first 64 bits of its fingerprint, 16 hex digits. */
uint64_t kv_file_model(const struct kv_key *fingerprint);

/* "<64 hex>.kv" and "<64 hex>.tmp" */
void kv_file_segment_name(const struct kv_key *key, char out[KV_FILE_NAME_BYTES]);
void kv_file_temporary_name(const struct kv_key *key, char out[KV_FILE_NAME_BYTES]);

/* The folder itself, created (0700) if `create` and its parent is there. Errors: ERR_IO. */
enum err kv_files_open(const char *dir, bool create, int *fd, struct err_info *e) WEIR_MUST_USE;

/* Every file below `root`, which errors call `dir`, folder by folder; fn may remove what it is
 * shown. A stranger's folder that cannot be read, or lies very deep, is shown as a stranger of 0
 * bytes. Errors: ERR_IO (the root or a folder of segments cannot be read). */
enum err kv_files_walk(int root, const char *dir, kv_file_fn fn, void *ctx, struct err_info *e)
    WEIR_MUST_USE;

/* The folder of a model, and that of a key in it; made if `create`. -1 and errno. */
int kv_files_model_folder(int root, uint64_t model, bool create);
int kv_files_key_folder(int root, uint64_t model, const struct kv_key *key, bool create);

/* Take the lock that makes this process the one that writes; the descriptor holds it. Its file is
 * made if `create`. -1: another has it (errno EWOULDBLOCK), there is no such file (ENOENT), or none
 * can be locked here (any other). */
int kv_files_lock(int root, bool create);
/* false: the file no longer has its name, so the lock does not keep others out. */
bool kv_files_lock_valid(int root, int lock);

/* Remove the folders of models that hold no segment any more, with their about line; not that of
 * *keep (NULL: none is kept). Needs the lock. */
void kv_files_prune(int root, const uint64_t *keep);

#endif
