/* What disk.c (the engine's side), disk_io.c and disk_scan.c (the tier's thread) share.
 *
 *      store_begin -> FILLING -> store -> [stores] -> written by the thread -> FREE
 *      fetch -> [fetches] -> read by the thread -> [done] -> poll -> LENT -> release -> FREE
 *
 * A slot is a buffer with its job. It belongs to whoever its state names, and changes hands under
 * the mutex; so its bytes need no lock. Where blocks move beside the host (kv_disk_config.settle),
 * the thread waits for that before it reads or fills a slot. The mutex is held for work in memory
 * only, never for a system call or an allocation. */
#ifndef WEIR_KV_DISK_INTERNAL_H
#define WEIR_KV_DISK_INTERNAL_H

#include "kv/disk.h"
#include "kv/segment.h"
#include "kv/tier_index.h"

#include <pthread.h>

enum { DISK_MAX_FAILED_READS = 8 }; /* of as many blocks in a row; then nothing is to be had */

enum slot_state {
    SLOT_FREE,    /* nobody's */
    SLOT_FILLING, /* the engine's, from store_begin to store or store_abandon */
    SLOT_STORE,   /* the thread's: queued or being written; nobody changes its bytes */
    SLOT_FETCH,   /* the thread's, until it is in `done`: then nobody's, until poll */
    SLOT_LENT,    /* the engine's, from poll to release */
};

struct slot {
    enum slot_state state;
    bool found; /* the end of a fetch */
    uint64_t ticket;
    struct kv_segment segment; /* its tokens lie in disk.tokens */
    void *bytes;               /* [block_bytes] */
};

/* Slot ids, first in first out; as long as there are slots, so it never overflows. */
struct ring {
    uint32_t *ids; /* [cap] */
    uint32_t cap, head, n;
};

struct disk {
    struct kv_tier tier;

    /* fixed at open */
    char *dir, *about;
    struct kv_key fingerprint;
    uint64_t model;
    uint64_t max_bytes;
    uint64_t segment_bytes; /* of one of our blocks */
    size_t block_bytes;
    size_t stride; /* from one slot's bytes to the next's */
    uint32_t block_tokens;
    uint32_t n_slots;
    uint32_t max_stores; /* slots that stores may hold: the rest is kept for fetches */
    uint8_t *memory;     /* [n_slots * stride] */
    int32_t *tokens;     /* [n_slots * block_tokens] */
    void (*free_memory)(void *ctx, void *p); /* or free */
    bool (*settle)(void *ctx);               /* or NULL */
    void *alloc_ctx;
    void (*wake)(void *ctx);
    void *wake_ctx;

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t work;

    /* under the mutex; what is in `held`, unreadable, and the byte counts, are changed by the
     * tier's thread alone, which may therefore read them without it, but not the order of use */
    struct slot *slots; /* [n_slots] */
    struct ring idle, fetches, stores, done;
    struct kv_tier_index held;    /* key -> bytes of the file, of every model */
    struct kv_tier_index pending; /* key -> slot, FILLING or STORE; room for n_slots */
    struct kv_tier_stats stats;   /* but entries, ignored, on and writes */
    uint64_t n_own;               /* entries of `held` that are of our model */
    uint64_t held_bytes;          /* of all of `held`: what can be removed to make room */
    uint64_t ignored_found;       /* the most that a scan found and left there */
    uint64_t ignored_met;         /* by fetches, and removed by scans: a counter never goes back */
    uint64_t fetch_us, store_us;  /* learned; of one block */
    uint32_t n_storing;           /* slots that are FILLING or STORE */
    bool fetching, storing;       /* a job is being done right now */
    bool awaited;                 /* somebody waits for a store to end */
    bool growing;                 /* `held` is being read: its order stays as it is */
    bool reads, writes;           /* still possible; writes: and the lock is ours */
    bool stopping;
    /* the last that could not be read, the latest last: to the engine they are not there */
    struct kv_key unreadable[DISK_MAX_FAILED_READS];
    uint32_t n_unreadable;

    /* of the tier's thread alone */
    int root;
    int lock;                /* -1: another process writes, or may */
    int64_t newest_ns;       /* the latest mtime given or seen */
    uint32_t failed_reads;   /* in a row, each of another block */
    uint64_t forgive_at_us;  /* by the next listing: what was unreadable is tried again */
    bool write_failed;       /* for good */
    bool stale;              /* a file was gone: others may be, so the folder is to be listed */
    bool room_told;          /* that there is none for a block: said once, until there is */
    uint64_t rescan_at_us;   /* not before; of a reader, or where `held` is stale */
    bool scan_failed;        /* the last time; told once */
    uint64_t resume_at_us;   /* after a full disk: nothing is written before */
    uint64_t pause_us;       /* the last one; 0 when the disk has had room since for as long */
    uint64_t stop_before_us; /* stores still queued then are given up */
};

void disk_ring_push(struct ring *r, uint32_t id);
uint32_t disk_ring_pop(struct ring *r);

/* Under the mutex: give a slot back; the slot of a block that is on its way to the disk and whose
 * bytes are complete, or NULL. */
void disk_slot_free(struct disk *d, uint32_t id);
const struct slot *disk_queued(const struct disk *d, const struct kv_key *key);

/* Under the mutex: is the block in a file that can be read, as far as is known? */
bool disk_holds(const struct disk *d, const struct kv_key *key);

/* The tier's thread only, under the mutex: it cannot be read (true: that was known); it can. */
bool disk_set_aside(struct disk *d, const struct kv_key *key);
void disk_forgive(struct disk *d, const struct kv_key *key);

/* Try for the lock and list the folder. At open, and again by readers from time to time; who has
 * the lock keeps it, and what it knows of the order of use. Errors: ERR_IO, ERR_NOMEM; what was
 * known before stays. */
enum err disk_scan(struct disk *d, struct err_info *e) WEIR_MUST_USE;
void disk_warn_of_others(const struct disk *d); /* where they may write to the folder */

/* The tier's thread only: the sum of the files' sizes. */
void disk_add_bytes(struct disk *d, uint64_t n);
void disk_subtract_bytes(struct disk *d, uint64_t n);

/* The tier's thread only: would `need` more bytes be within the limit without any segment? */
bool disk_could_hold(const struct disk *d, uint64_t need);

/* The tier's thread only: evict until `need` more bytes are within the limit. false: something
 * could not be removed, or it would not help; then nothing is. */
bool disk_make_room(struct disk *d, uint64_t need);

/* The tier's thread only: write a file under a temporary name and give it its own. `fill` writes
 * the bytes; room was made for them. An error leaves nothing behind. Errors: ERR_IO; ERR_FULL;
 * ERR_NOMEM: not this one, for want of a descriptor, or as somebody removes files just now. */
struct disk_new_file {
    const char *temporary, *name;
    enum err (*fill)(int fd, const void *ctx, struct err_info *e);
    const void *ctx;
};
enum err disk_write_file(struct disk *d,
                         int folder,
                         const struct disk_new_file *f,
                         struct err_info *e) WEIR_MUST_USE;

/* The tier's thread only, also in the middle of a job that takes long: those who fetch do not wait
 * for its end. Entries of `held` and the lock may be gone afterwards. */
void disk_serve_fetches(struct disk *d);

/* The tier's thread, until d->stopping. */
void *disk_thread(void *disk);

#endif
