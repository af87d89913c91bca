/* The tier's thread: one job at a time, fetches before stores, and between two files of a listing.
 * It alone touches the folder, so an eviction never meets a fetch half-way, and the sum of the
 * files' sizes is known at any moment:
 *
 *      room is made and the new file's size is added to the sum      -- then it is created
 *      a file is removed                                             -- then its size is subtracted
 *
 * so what is there is at most the sum, and the sum at most the limit.
 *
 * Nothing is synced. A process that dies leaves what it wrote in the page cache, whole, and a
 * segment gets its name only after its last byte; when the machine goes down, the name may be
 * there before the bytes, and the checksums notice. For a cache that is all it takes. */
#include "kv/disk_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "kv/disk_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FORGIVE_US = 300 * 1000000, /* after the last read that failed */
    SPARE_ENTRIES = 1024,
    FIRST_PAUSE_US = 60 * 1000000, /* of writing, when the disk is full; then twice as long */
    MAX_PAUSE_US = 600 * 1000000,
};

/* --- what is known ---------------------------------------------------------------------------- */

void disk_add_bytes(struct disk *d, uint64_t n)
{
    pthread_mutex_lock(&d->mutex);
    d->stats.bytes += n;
    pthread_mutex_unlock(&d->mutex);
}

void disk_subtract_bytes(struct disk *d, uint64_t n)
{
    pthread_mutex_lock(&d->mutex);
    d->stats.bytes -= n < d->stats.bytes ? n : d->stats.bytes;
    pthread_mutex_unlock(&d->mutex);
}

/* Its file is gone, or as good as gone. false: nobody thought that it was there. */
static bool forget(struct disk *d, uint64_t model, const struct kv_key *key)
{
    pthread_mutex_lock(&d->mutex);
    struct kv_tier_entry *entry = kv_tier_index_find(&d->held, model, key);
    if (entry) {
        d->stats.bytes -= entry->value < d->stats.bytes ? entry->value : d->stats.bytes;
        d->held_bytes -= entry->value < d->held_bytes ? entry->value : d->held_bytes;
        d->n_own -= model == d->model;
        kv_tier_index_remove(&d->held, entry);
    }
    pthread_mutex_unlock(&d->mutex);
    return entry != NULL;
}

/* Want of descriptors or of the kernel's memory: the disk is as good as it was. */
static bool may_pass(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* Of writing. What is not there, or there already, tells of who empties the folder meanwhile, or of
 * a stranger's folder that has a block's name: that block alone is not written. */
static enum err error_of(int error)
{
    if (error == ENOSPC || error == EDQUOT)
        return ERR_FULL;
    return may_pass(error) || error == ENOENT || error == EEXIST || error == EISDIR ? ERR_NOMEM
                                                                                    : ERR_IO;
}

static void note_error(struct disk *d)
{
    pthread_mutex_lock(&d->mutex);
    d->stats.errors++;
    pthread_mutex_unlock(&d->mutex);
}

/* For another process to write, if it can. */
static void give_up_lock(struct disk *d)
{
    if (d->lock >= 0)
        close(d->lock);
    d->lock = -1;
}

static void pause_writing(struct disk *d, const char *what)
{
    const uint64_t twice = 2 * d->pause_us;
    d->pause_us = twice == 0 ? FIRST_PAUSE_US : twice < MAX_PAUSE_US ? twice : MAX_PAUSE_US;
    d->resume_at_us = clock_us() + d->pause_us;
    log_warn("disk cache %s: %s; nothing is written to it for %u s",
             d->dir,
             what,
             (unsigned)(d->pause_us / 1000000));
}

/* Room may come again on a full disk (why: ERR_FULL); what else is wrong does not pass by itself.
 * It is the next listing that goes on (disk_scan), if nobody else writes by then. */
static void stop_writing(struct disk *d, enum err why, const char *what)
{
    pthread_mutex_lock(&d->mutex);
    d->writes = false;
    d->stats.errors++;
    pthread_mutex_unlock(&d->mutex);
    if (why == ERR_FULL) {
        pause_writing(d, what);
    } else {
        if (!d->write_failed)
            log_warn("disk cache %s: %s; nothing more is written to it", d->dir, what);
        d->write_failed = true;
    }
    give_up_lock(d);
}

/* One block that fails again and again says nothing of the disk. */
static void note_failed_read(struct disk *d, const struct kv_key *key, const char *what)
{
    pthread_mutex_lock(&d->mutex);
    d->stats.errors++;
    bool off = !disk_set_aside(d, key) && ++d->failed_reads == DISK_MAX_FAILED_READS;
    if (off)
        d->reads = d->writes = false;
    pthread_mutex_unlock(&d->mutex);
    if (off)
        log_warn("disk cache %s: %s; it is turned off", d->dir, what);
    d->forgive_at_us = clock_us() + FORGIVE_US;
    d->write_failed |= off;
    if (off)
        give_up_lock(d);
}

static void note_us(struct kv_tier_latency *all, uint64_t *learned_us, uint64_t us)
{
    all->count++;
    all->sum_us += us;
    if (us > all->max_us)
        all->max_us = us;
    *learned_us = (*learned_us * 7 + us) / 8;
}

/* Now is the time of this file's last use. Never earlier than another's, whatever the clock does,
 * so that the order of use is that of the mtimes at the next start. */
static void stamp(struct disk *d, int fd)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    d->newest_ns = ns > d->newest_ns ? ns : d->newest_ns + 1;
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = d->newest_ns / 1000000000, .tv_nsec = d->newest_ns % 1000000000}};
    (void)futimens(fd, times); /* where it cannot be set, the order is that of writing */
}

/* --- removing --------------------------------------------------------------------------------- */

/* A path that leads to no file any more. What lies behind a link, or in a folder that has a
 * segment's name, is not ours. */
static bool is_gone(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EISDIR;
}

/* false: it may still be there. */
static bool remove_segment(struct disk *d, uint64_t model, const struct kv_key *key)
{
    char name[KV_FILE_NAME_BYTES];
    kv_file_segment_name(key, name);
    int folder = kv_files_key_folder(d->root, model, key, false);
    bool removed = folder >= 0 && unlinkat(folder, name, 0) == 0;
    if (!removed && may_pass(errno)) {
        note_error(d);
    } else if (!removed && !is_gone(errno)) {
        char what[128];
        const enum err why = error_of(errno);
        snprintf(what, sizeof what, "cannot remove a segment: %s", strerror(errno));
        stop_writing(d, why, what);
    } else {
        removed = true;
    }
    if (folder >= 0)
        close(folder);
    return removed;
}

/* What the engine uses meanwhile changes the order. false: there is none. */
static bool oldest(struct disk *d, uint64_t *model, struct kv_key *key)
{
    pthread_mutex_lock(&d->mutex);
    const struct kv_tier_entry *entry = kv_tier_index_oldest(&d->held);
    if (entry) {
        *model = entry->model;
        *key = entry->key;
    }
    pthread_mutex_unlock(&d->mutex);
    return entry != NULL;
}

bool disk_could_hold(const struct disk *d, uint64_t need)
{
    const uint64_t others = d->stats.bytes > d->held_bytes ? d->stats.bytes - d->held_bytes : 0;
    return need <= d->max_bytes && others <= d->max_bytes - need;
}

static void tell_no_room(struct disk *d)
{
    if (!d->room_told)
        log_warn("disk cache %s: files that are not its segments take %llu of %llu bytes, which "
                 "leaves no room for a block; nothing is written to it",
                 d->dir,
                 (unsigned long long)(d->stats.bytes - d->held_bytes),
                 (unsigned long long)d->max_bytes);
    d->room_told = true;
}

bool disk_make_room(struct disk *d, uint64_t need)
{
    if (!disk_could_hold(d, need)) {
        tell_no_room(d);
        return false;
    }
    while (d->stats.bytes > d->max_bytes - need) {
        uint64_t model;
        struct kv_key key;
        if (!oldest(d, &model, &key) || !remove_segment(d, model, &key))
            return false;
        (void)forget(d, model, &key);
        pthread_mutex_lock(&d->mutex);
        d->stats.evicted++;
        pthread_mutex_unlock(&d->mutex);
    }
    return true;
}

/* A segment that is not what its name says. */
static void discard(struct disk *d, const struct kv_key *key)
{
    if (d->lock < 0 || remove_segment(d, d->model, key))
        (void)forget(d, d->model, key);
}

/* --- fetching --------------------------------------------------------------------------------- */

enum outcome { READ_DONE, READ_GONE, READ_BAD, READ_FAILED, READ_NOT_NOW };

/* What moved into buffers and out of them has been moved. */
static bool settled(const struct disk *d)
{
    return !d->settle || d->settle(d->alloc_ctx);
}

/* A block that is still waiting to be written is taken from its buffer, which may have been queued
 * since the fetch began. */
static bool copy_queued(struct disk *d, struct slot *s)
{
    pthread_mutex_lock(&d->mutex);
    const struct slot *from = disk_queued(d, &s->segment.key);
    pthread_mutex_unlock(&d->mutex);
    /* it stays: only this thread ends a store */
    if (!from || !kv_key_equal(&from->segment.parent, &s->segment.parent) ||
        memcmp(from->segment.tokens, s->segment.tokens, d->block_tokens * sizeof(int32_t)) != 0 ||
        !settled(d))
        return false;
    memcpy(s->bytes, from->bytes, d->block_bytes);
    return true;
}

static enum outcome read_segment(struct disk *d, struct slot *s, struct err_info *e)
{
    char name[KV_FILE_NAME_BYTES];
    enum outcome outcome = READ_DONE;
    kv_file_segment_name(&s->segment.key, name);
    int folder = kv_files_key_folder(d->root, d->model, &s->segment.key, false);
    /* not blocking: a FIFO of that name is refused, not waited for */
    int fd = folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        outcome = is_gone(errno) ? READ_GONE : may_pass(errno) ? READ_NOT_NOW : READ_FAILED;
        err_set(e, ERR_IO, "cannot open a segment: %s", strerror(errno));
    } else {
        enum err err = kv_segment_read(fd, &s->segment, s->bytes, e);
        if (err)
            outcome = err == ERR_IO ? READ_FAILED : READ_BAD;
        else
            stamp(d, fd);
        close(fd);
    }
    if (folder >= 0)
        close(folder);
    return outcome;
}

static void end_fetch(struct disk *d, uint32_t id, bool found)
{
    pthread_mutex_lock(&d->mutex);
    d->slots[id].found = found;
    d->stats.fetched += found;
    d->stats.missed += !found;
    d->fetching = false;
    disk_ring_push(&d->done, id);
    pthread_mutex_unlock(&d->mutex);
    if (d->wake)
        d->wake(d->wake_ctx);
}

static void note_read(struct disk *d, const struct kv_key *key, uint64_t us)
{
    d->failed_reads = 0;
    pthread_mutex_lock(&d->mutex);
    disk_forgive(d, key);
    struct kv_tier_entry *entry = kv_tier_index_find(&d->held, d->model, key);
    if (entry)
        kv_tier_index_touch(&d->held, entry);
    note_us(&d->stats.fetch, &d->fetch_us, us);
    pthread_mutex_unlock(&d->mutex);
}

static void fetch(struct disk *d, uint32_t id)
{
    struct slot *s = &d->slots[id];
    struct err_info e = {0};
    bool off = d->failed_reads >= DISK_MAX_FAILED_READS || !settled(d);
    if (off || copy_queued(d, s)) {
        end_fetch(d, id, !off);
        return;
    }
    uint64_t start_us = clock_us();
    enum outcome outcome = read_segment(d, s, &e);
    if (outcome == READ_DONE)
        note_read(d, &s->segment.key, clock_us() - start_us);
    if (outcome == READ_FAILED)
        note_failed_read(d, &s->segment.key, e.text);
    if (outcome == READ_NOT_NOW)
        note_error(d);
    if (outcome == READ_GONE)
        d->stale |= forget(d, d->model, &s->segment.key);
    if (outcome == READ_BAD) {
        discard(d, &s->segment.key);
        pthread_mutex_lock(&d->mutex);
        d->ignored_met++;
        pthread_mutex_unlock(&d->mutex);
    }
    end_fetch(d, id, outcome == READ_DONE);
}

void disk_serve_fetches(struct disk *d)
{
    pthread_mutex_lock(&d->mutex);
    while (d->fetches.n > 0 && !d->stopping) {
        const uint32_t id = disk_ring_pop(&d->fetches);
        d->fetching = true;
        pthread_mutex_unlock(&d->mutex);
        fetch(d, id);
        pthread_mutex_lock(&d->mutex);
    }
    pthread_mutex_unlock(&d->mutex);
}

/* --- storing ---------------------------------------------------------------------------------- */

/* What lies in its place is nobody's, as long as we are the one that writes. -1 and errno. */
static int create_temporary(const struct disk *d, int folder, const char *name)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(folder, name, flags, 0600);
    if (fd >= 0 || errno != EEXIST)
        return fd;
    if (kv_files_lock_valid(d->root, d->lock) && unlinkat(folder, name, 0) == 0)
        return openat(folder, name, flags, 0600);
    errno = EEXIST;
    return -1;
}

enum err disk_write_file(struct disk *d,
                         int folder,
                         const struct disk_new_file *f,
                         struct err_info *e)
{
    int fd = create_temporary(d, folder, f->temporary);
    if (fd < 0)
        return err_set(e, error_of(errno), "cannot create %s: %s", f->temporary, strerror(errno));
    enum err err = f->fill(fd, f->ctx, e);
    if (!err)
        stamp(d, fd);
    /* some file systems tell only now that there was no room */
    if (close(fd) != 0 && !err)
        err = err_set(e, error_of(errno), "cannot write: %s", strerror(errno));
    if (!err && renameat(folder, f->temporary, folder, f->name) != 0)
        err = err_set(e, error_of(errno), "cannot rename %s: %s", f->temporary, strerror(errno));
    if (err)
        (void)unlinkat(folder, f->temporary, 0);
    return err;
}

static enum err fill_segment(int fd, const void *slot, struct err_info *e)
{
    const struct slot *s = slot;
    return kv_segment_write(fd, &s->segment, s->bytes, e);
}

static enum err write_segment(struct disk *d, const struct slot *s, struct err_info *e)
{
    char temporary[KV_FILE_NAME_BYTES], name[KV_FILE_NAME_BYTES];
    kv_file_temporary_name(&s->segment.key, temporary);
    kv_file_segment_name(&s->segment.key, name);
    int folder = kv_files_key_folder(d->root, d->model, &s->segment.key, true);
    if (folder < 0)
        return err_set(e, error_of(errno), "cannot create a folder: %s", strerror(errno));
    struct disk_new_file f = {temporary, name, fill_segment, s};
    enum err err = disk_write_file(d, folder, &f, e);
    close(folder);
    return err;
}

/* From here until `larger`, which may be NULL, has taken its place the index stays as it is. */
static struct kv_tier_index grow_begin(struct disk *d)
{
    pthread_mutex_lock(&d->mutex);
    d->growing = true;
    const struct kv_tier_index held = d->held;
    pthread_mutex_unlock(&d->mutex);
    return held;
}

static void grow_end(struct disk *d, const struct kv_tier_index *larger)
{
    pthread_mutex_lock(&d->mutex);
    d->growing = false;
    if (larger)
        d->held = *larger;
    pthread_mutex_unlock(&d->mutex);
}

/* Room for one more entry. The larger index is filled without the mutex: nobody else changes the
 * old one, for what is used meanwhile is not noted. */
static bool reserve_entry(struct disk *d)
{
    struct kv_tier_index larger;
    if (d->held.n < d->held.cap)
        return true;
    struct kv_tier_index old = grow_begin(d);
    const bool grown = old.cap <= UINT32_MAX / 4 &&
                       kv_tier_index_copy(&old, old.cap * 2 + SPARE_ENTRIES, &larger, NULL) == OK;
    grow_end(d, grown ? &larger : NULL);
    if (grown)
        kv_tier_index_deinit(&old);
    return grown;
}

/* Where it is gone, another may write. */
static void check_lock(struct disk *d)
{
    if (d->lock < 0 || kv_files_lock_valid(d->root, d->lock))
        return;
    pthread_mutex_lock(&d->mutex);
    d->writes = false;
    pthread_mutex_unlock(&d->mutex);
    give_up_lock(d);
    log_warn("disk cache %s: its lock is gone; reading only until there is another", d->dir);
}

/* May this store go on? Much may have changed since it was queued. A file that could not be read
 * makes way now that there is another to put in its place. */
static bool can_store(struct disk *d, const struct slot *s)
{
    const struct kv_key *key = &s->segment.key;
    check_lock(d);
    if (d->lock < 0 || d->write_failed || disk_holds(d, key))
        return false;
    if (kv_tier_index_find(&d->held, d->model, key))
        discard(d, key);
    return !kv_tier_index_find(&d->held, d->model, key) && reserve_entry(d) &&
           disk_make_room(d, d->segment_bytes);
}

/* A block that has been written is just older than the one before it, which is of more use: it may
 * have been used since, while this one waited to be written. */
static void put_entry(struct disk *d, const struct kv_segment *s)
{
    disk_forgive(d, &s->key);
    kv_tier_index_put(&d->held, d->model, &s->key, d->segment_bytes);
    d->held_bytes += d->segment_bytes;
    const struct kv_tier_entry *parent = kv_tier_index_find(&d->held, d->model, &s->parent);
    if (parent)
        kv_tier_index_follow(&d->held, kv_tier_index_find(&d->held, d->model, &s->key), parent);
}

static bool store_segment(struct disk *d, const struct slot *s)
{
    struct err_info e = {0};
    if (!can_store(d, s))
        return false;
    uint64_t start_us = clock_us();
    disk_add_bytes(d, d->segment_bytes);
    enum err err = write_segment(d, s, &e);
    if (err) {
        disk_subtract_bytes(d, d->segment_bytes);
        if (err == ERR_NOMEM)
            note_error(d);
        else
            stop_writing(d, err, e.text);
        return false;
    }
    const uint64_t now_us = clock_us();
    if (now_us >= d->resume_at_us + d->pause_us)
        d->pause_us = 0;
    pthread_mutex_lock(&d->mutex);
    put_entry(d, &s->segment);
    d->n_own++;
    d->room_told = false;
    note_us(&d->stats.store, &d->store_us, now_us - start_us);
    pthread_mutex_unlock(&d->mutex);
    return true;
}

static void store(struct disk *d, uint32_t id)
{
    bool stored = settled(d) && store_segment(d, &d->slots[id]);
    pthread_mutex_lock(&d->mutex);
    d->stats.stored += stored;
    d->stats.dropped += !stored;
    d->storing = false;
    kv_tier_index_remove(&d->pending,
                         kv_tier_index_find(&d->pending, d->model, &d->slots[id].segment.key));
    disk_slot_free(d, id);
    const bool awaited = d->awaited;
    d->awaited = false;
    pthread_mutex_unlock(&d->mutex);
    if (awaited && d->wake)
        d->wake(d->wake_ctx);
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Is the folder to be listed again when it is time? The mutex is held. */
static bool looks_again(const struct disk *d)
{
    return d->reads && (d->lock < 0 || d->stale);
}

/* Until there is a job, or until it is time to look again. The mutex is held. */
static void wait_for_work(struct disk *d)
{
    if (!looks_again(d)) {
        pthread_cond_wait(&d->work, &d->mutex);
        return;
    }
    const struct timespec until = clock_spec(d->rescan_at_us);
    pthread_cond_timedwait(&d->work, &d->mutex, &until);
}

static void rescan(struct disk *d)
{
    struct err_info e = {0};
    check_lock(d);
    const bool failed = disk_scan(d, &e) != OK;
    if (failed && !d->scan_failed)
        log_warn("disk cache %s: %s; it is looked at again", d->dir, e.text);
    d->scan_failed = failed;
}

/* All fetches or one other job, without the mutex; false when there is nothing to do. It is held
 * before and after. */
static bool work(struct disk *d)
{
    const bool fetches = d->fetches.n > 0 && !d->stopping, stores = !fetches && d->stores.n > 0;
    uint32_t id = 0;
    if (!fetches && !stores && (!looks_again(d) || clock_us() < d->rescan_at_us))
        return false;
    if (stores) {
        d->storing = true;
        id = disk_ring_pop(&d->stores);
    }
    pthread_mutex_unlock(&d->mutex);
    if (fetches)
        disk_serve_fetches(d);
    else if (stores)
        store(d, id);
    else
        rescan(d);
    pthread_mutex_lock(&d->mutex);
    return true;
}

void *disk_thread(void *disk)
{
    struct disk *d = disk;
    pthread_mutex_lock(&d->mutex);
    while (!d->stopping || (d->stores.n > 0 && clock_us() < d->stop_before_us))
        if (!work(d) && !d->stopping)
            wait_for_work(d);
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}
