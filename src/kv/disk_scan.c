/* What is in the folder: listing it, at open, again while another process writes, and when files
 * have vanished; and the line that tells people whose blocks a model's folder holds. */
#include "base/clock.h"
#include "base/log.h"
#include "kv/disk_files.h"
#include "kv/disk_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RESCAN_US = 2000000,
    RESCAN_SHARE = 20, /* a reader spends at most 1/20 of its time listing the folder */
    ABOUT_BYTES = 512,
    SPARE_ENTRIES = 1024,
    FILES_A_TURN = 256, /* that are listed before those who fetch have theirs */
};

/* --- the line about the model ----------------------------------------------------------------- */

struct about {
    char text[ABOUT_BYTES];
    size_t n;
};

static enum err fill_about(int fd, const void *ctx, struct err_info *e)
{
    const struct about *a = ctx;
    ssize_t wrote = write(fd, a->text, a->n);
    return wrote == (ssize_t)a->n ? OK : err_set(e, ERR_IO, "cannot write: %s", strerror(errno));
}

/* Is this what the file says already? If not, the file is removed. */
static bool about_is_there(struct disk *d, int folder, const struct about *want)
{
    struct about is;
    struct stat st;
    int fd = openat(folder, KV_FILE_ABOUT_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    ssize_t n = regular ? read(fd, is.text, sizeof is.text) : -1;
    close(fd);
    if (n == (ssize_t)want->n && memcmp(is.text, want->text, want->n) == 0)
        return true;
    if (regular && unlinkat(folder, KV_FILE_ABOUT_NAME, 0) == 0)
        disk_subtract_bytes(d, (uint64_t)st.st_size);
    return false;
}

/* For people only, so nothing is made of a failure; and never at the price of the last segment. */
static void write_about(struct disk *d)
{
    struct about a;
    struct disk_new_file f = {KV_FILE_ABOUT_NAME ".tmp", KV_FILE_ABOUT_NAME, fill_about, &a};
    a.n = strcspn(d->about, "\r\n");
    if (a.n > sizeof a.text - 1)
        a.n = sizeof a.text - 1;
    memcpy(a.text, d->about, a.n);
    a.text[a.n++] = '\n';
    int folder = a.n == 1 || d->max_bytes - d->segment_bytes < a.n
                     ? -1
                     : kv_files_model_folder(d->root, d->model, true);
    if (folder < 0)
        return;
    if (!about_is_there(d, folder, &a) && disk_could_hold(d, a.n + d->segment_bytes) &&
        disk_make_room(d, a.n)) {
        disk_add_bytes(d, a.n);
        if (disk_write_file(d, folder, &f, NULL))
            disk_subtract_bytes(d, a.n);
    }
    close(folder);
}

/* --- the scan --------------------------------------------------------------------------------- */

struct scan {
    struct disk *d;
    bool no_memory;
    uint64_t n_files;
    uint64_t served_us;       /* that was not the listing's */
    struct kv_file *segments; /* [n], their names and folders no longer valid */
    size_t n, cap;
    uint64_t bytes, ignored, removed; /* ignored: those that are still there */
};

static void scan_keep(struct scan *s, const struct kv_file *f)
{
    if (s->n == s->cap) {
        size_t cap = s->cap * 2 + SPARE_ENTRIES;
        struct kv_file *more =
            cap > UINT32_MAX / 4 ? NULL : realloc(s->segments, cap * sizeof *more);
        if (!more) {
            s->no_memory = true;
            return;
        }
        s->segments = more;
        s->cap = cap;
    }
    s->segments[s->n++] = *f;
}

/* Who has the lock removes what is left over and what is damaged. */
static void scan_file(void *ctx, const struct kv_file *f)
{
    struct scan *s = ctx;
    bool torn =
        f->kind == KV_FILE_SEGMENT && f->model == s->d->model && f->bytes != s->d->segment_bytes;
    if (++s->n_files % FILES_A_TURN == 0) {
        const uint64_t start_us = clock_us();
        disk_serve_fetches(s->d);
        s->served_us += clock_us() - start_us;
    }
    if (s->d->lock >= 0 && (torn || f->kind == KV_FILE_TEMPORARY) &&
        unlinkat(f->folder, f->name, 0) == 0) {
        s->removed += torn;
        return;
    }
    s->ignored += torn || f->kind == KV_FILE_STRANGER;
    if (__builtin_add_overflow(s->bytes, f->bytes, &s->bytes))
        s->bytes = UINT64_MAX; /* strangers' sparse files */
    if (f->kind == KV_FILE_SEGMENT && !torn)
        scan_keep(s, f);
}

static int by_last_use(const void *a, const void *b)
{
    const struct kv_file *x = a, *y = b;
    if (x->mtime_ns != y->mtime_ns)
        return x->mtime_ns < y->mtime_ns ? -1 : 1;
    return memcmp(&x->key, &y->key, sizeof x->key);
}

/* While this process wrote, it knew more of the order of use than the files' times tell. */
static void keep_order(struct disk *d, struct kv_tier_index *found)
{
    pthread_mutex_lock(&d->mutex);
    d->growing = true;
    pthread_mutex_unlock(&d->mutex);
    const struct kv_tier_entry *was = kv_tier_index_oldest(&d->held);
    for (; was; was = kv_tier_index_newer(&d->held, was)) {
        struct kv_tier_entry *is = kv_tier_index_find(found, was->model, &was->key);
        if (is)
            kv_tier_index_touch(found, is);
    }
}

/* Let the index say what the scan found. */
static enum err scan_take(struct disk *d, const struct scan *s, bool wrote, struct err_info *e)
{
    struct kv_tier_index found, old;
    uint64_t n_own = 0, held_bytes = 0;
    enum err err = kv_tier_index_init(&found, (uint32_t)(s->n + s->n / 2) + SPARE_ENTRIES, e);
    if (err)
        return err;
    for (size_t i = 0; i < s->n; i++) {
        uint32_t n_before = found.n;
        /* a folder that changes while it is listed may show a file twice */
        kv_tier_index_put(&found, s->segments[i].model, &s->segments[i].key, s->segments[i].bytes);
        if (found.n == n_before)
            continue;
        n_own += s->segments[i].model == d->model;
        if (__builtin_add_overflow(held_bytes, s->segments[i].bytes, &held_bytes))
            held_bytes = UINT64_MAX;
    }
    if (s->n > 0 && s->segments[s->n - 1].mtime_ns > d->newest_ns)
        d->newest_ns = s->segments[s->n - 1].mtime_ns;
    if (wrote)
        keep_order(d, &found);
    pthread_mutex_lock(&d->mutex);
    d->growing = false;
    old = d->held;
    d->held = found;
    d->n_own = n_own;
    d->held_bytes = held_bytes;
    d->stats.bytes = s->bytes;
    d->ignored_met += s->removed; /* of which some may have been found before */
    d->ignored_found -= s->removed < d->ignored_found ? s->removed : d->ignored_found;
    if (s->ignored > d->ignored_found) /* what lies there is found again by each scan */
        d->ignored_found = s->ignored;
    pthread_mutex_unlock(&d->mutex);
    kv_tier_index_deinit(&old);
    return OK;
}

/* served_us: how long others had their turns meanwhile. */
static enum err scan_folder(struct disk *d, bool wrote, uint64_t *served_us, struct err_info *e)
{
    struct scan s = {.d = d};
    if (d->lock >= 0)
        kv_files_prune(d->root, &d->model);
    enum err err = kv_files_walk(d->root, d->dir, scan_file, &s, e);
    if (!err && s.no_memory)
        err = err_set(e, ERR_NOMEM, "%s: no memory to list it", d->dir);
    if (!err) {
        if (s.n > 0)
            qsort(s.segments, s.n, sizeof *s.segments, by_last_use);
        err = scan_take(d, &s, wrote, e);
    }
    free(s.segments);
    *served_us = s.served_us;
    return err;
}

static void forgive_all(struct disk *d)
{
    pthread_mutex_lock(&d->mutex);
    d->n_unreadable = 0;
    pthread_mutex_unlock(&d->mutex);
    d->failed_reads = 0;
}

/* Checksums keep out accidents. Who may write to the folder can put other bytes under a key. */
void disk_warn_of_others(const struct disk *d)
{
    struct stat st;
    if (fstat(d->root, &st) == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)))
        log_warn("disk cache %s: others may write to it, and so change answers; chmod go-w it",
                 d->dir);
}

/* Who empties a cache may remove the folder itself: what has its name then takes its place. */
static void find_root(struct disk *d)
{
    struct stat st;
    int now;
    const bool gone = fstat(d->root, &st) == 0 ? st.st_nlink == 0 : errno == ESTALE;
    if (!gone || kv_files_open(d->dir, false, &now, NULL) != OK)
        return;
    close(d->root);
    d->root = now;
    disk_warn_of_others(d);
}

enum err disk_scan(struct disk *d, struct err_info *e)
{
    const bool first = d->rescan_at_us == 0, wrote = d->lock >= 0;
    uint64_t start_us = clock_us();
    if (start_us >= d->forgive_at_us)
        forgive_all(d);
    if (!wrote)
        find_root(d);
    /* the lock first: what is listed under it changes by our hand only */
    const bool may_write = !d->write_failed && start_us >= d->resume_at_us;
    if (!wrote && may_write)
        d->lock = kv_files_lock(d->root, true);
    if (first && d->lock < 0)
        log_info("disk cache %s: reading only: %s",
                 d->dir,
                 errno == EWOULDBLOCK ? "another process writes to it" : strerror(errno));
    const bool was_stale = d->stale;
    d->stale = false; /* a fetch meanwhile may find out that it is again */
    uint64_t served_us;
    enum err err = scan_folder(d, wrote, &served_us, e);
    d->stale |= was_stale && err != OK;
    if (err && d->lock >= 0 && !wrote) {
        close(d->lock);
        d->lock = -1;
    }
    uint64_t now_us = clock_us(), pause_us = (now_us - start_us - served_us) * RESCAN_SHARE;
    d->rescan_at_us = now_us + (pause_us > RESCAN_US ? pause_us : RESCAN_US);
    if (err || d->lock < 0)
        return err;
    if (!first && !wrote)
        log_info("disk cache %s: writing to it from now on", d->dir);
    (void)disk_make_room(d, 0);
    if (d->lock >= 0) /* still: something could not be removed */
        write_about(d);
    pthread_mutex_lock(&d->mutex);
    d->writes = d->lock >= 0;
    pthread_mutex_unlock(&d->mutex);
    return OK;
}
