/* The disk tier: full KV blocks as files below one folder, which survive the process.
 *
 *      DIR/lock                      held by the one process that writes
 *      DIR/<model 16 hex>/<2 hex>/<key 64 hex>.kv     one segment: header, tokens, bytes, checksums
 *      DIR/<model 16 hex>/about      what the fingerprint stands for, one line, for `weir cache ls`
 *
 * A segment is written under a temporary name and renamed, so one with its right name is whole
 * unless the machine itself went down; its checksums say so then.
 *
 * Several processes may open one folder: the first writes, the others read what is there and look
 * again every few seconds; when the writer is gone, one of them takes its place. When writing
 * fails, what is there is still read, and nothing written until the next start, or, where the disk
 * was full, for a minute, and longer each time; when nothing can be read any more, all is off.
 * One block that cannot be read is as if it were not there: it is written again when it comes, and
 * who only reads tries it again after some minutes.
 * Where only a descriptor is wanting, or somebody empties the folder, a block is not written, or
 * not found, and nothing else changes. A folder made anew in DIR's place is gone on with.
 *
 * What was used longest ago makes room: fetched, or used in memory above, where it lies, too. The
 * order in which blocks were written and fetched is that of their files' times, and is known after
 * a restart; what was used above only is not.
 *
 * Files of other names are never touched, but their sizes, as of the last listing, are counted.
 * Where these alone leave no room for a block, none is written, and none removed in vain. */
#ifndef WEIR_KV_DISK_H
#define WEIR_KV_DISK_H

#include "kv/tier.h"

struct kv_disk_config {
    const char *dir;           /* created if its parent exists; who may write to it is trusted */
    uint64_t max_bytes;        /* of everything below dir; kept to the byte */
    struct kv_key fingerprint; /* of all that decides a block's bytes: model, kernels, KV type */
    const char *about;         /* one line for people; may be NULL */
    uint32_t block_tokens;
    size_t block_bytes;
    uint64_t buffer_bytes; /* memory for blocks on their way; at least 4 blocks are taken */
    /* Such memory as the device moves blocks into and out of beside the host; NULL, or where it
     * gives none: any. */
    void *(*alloc)(void *ctx, size_t n_bytes);
    void (*free)(void *ctx, void *p);
    /* On the tier's thread, before it looks at a buffer that blocks were moved into or out of:
     * until that has been done. false: the device failed, and nothing in them is anything. NULL:
     * blocks are there when the mover returns. */
    bool (*settle)(void *ctx);
    void *alloc_ctx;
    /* Called on the tier's thread when poll has something, or there is a buffer for who was told
     * that the tier is busy; for the last time before destroy returns. May be NULL. */
    void (*wake)(void *ctx);
    void *wake_ctx;
};

/* Lists the folder, so the more files, the longer it takes. Errors: ERR_IO (names the path),
 * ERR_INVALID (max_bytes below one segment, or a size that cannot be), ERR_NOMEM. */
enum err kv_disk_open(const struct kv_disk_config *cfg,
                      struct kv_tier **out,
                      struct err_info *e) WEIR_MUST_USE;

#endif
